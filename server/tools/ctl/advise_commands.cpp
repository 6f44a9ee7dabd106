// SPDX-License-Identifier: Apache-2.0
// `gpusharedctl profile` measures a client or a device; `gpusharedctl advise` predicts whether a
// profiled job fits on a device in addition to its current jobs.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "scheduler/sim/advice_report.h"
#include "server/tools/ctl/command_line.h"
#include "server/tools/ctl/profile/record.h"

#include <nlohmann/json.hpp>

namespace gpushared::server {
namespace {

struct ProfileArguments {
  std::string client;  // Id or name of the client.
  bool of_node = false;
  std::string device, file;
  double seconds = 10;
};

struct AdviseArguments {
  std::string profile, node, device;
  double seconds = 10;
  simulation::AdviceOptions options;
  bool with_hint = false;
};

void AddRecording(const Command& command, std::string& device, double& seconds) {
  constexpr double kRecordedSecondsMax = 3600;
  command.AddOption("--device", device, "device to measure, if there are several");
  command.AddOption("--seconds", seconds, "duration of the measurement (default 10)")
      .Within(0.1, kRecordedSecondsMax);
}

int WriteProfile(const CommandLine& line, const ProfileArguments& asked) {
  const std::optional<std::string> path = GetSocket(line);
  if (!path) return kNoServer;
  const Result<std::uint64_t> client =
      asked.of_node ? Result<std::uint64_t>(std::uint64_t{0}) : ClientNamed(*path, asked.client);
  if (!client.ok()) return Complain(*path, client.status());
  const Result<RecordedDevice> recorded =
      RecordDevice({.socket = *path,
                    .device = asked.device,
                    .client = *client,
                    .time = std::chrono::duration<double>(asked.seconds)});
  if (!recorded.ok()) return Complain(*path, recorded.status());
  const std::string text = asked.of_node ? simulation::NodeText(recorded->node)
                                         : simulation::ProfileText(recorded->node.clients.front());
  if (asked.file.empty()) return Print(text);
  std::ofstream file(asked.file);
  file << text;
  if (file.flush()) return kDone;
  return Complain(asked.file, {StatusCode::kInternal, "cannot write the profile"});
}

int RejectFile(const Status& why) {
  std::fprintf(stderr, "gpusharedctl: %s\n", why.message().c_str());
  return kRejected;
}

int RunAdvise(const CommandLine& line, const AdviseArguments& asked) {
  const Result<simulation::Profile> job = simulation::ReadProfile(asked.profile);
  if (!job.ok()) return RejectFile(job.status());
  simulation::Node node;
  if (asked.node.empty()) {
    const std::optional<std::string> path = GetSocket(line);
    if (!path) return kNoServer;
    Result<RecordedDevice> recorded =
        RecordDevice({.socket = *path,
                      .device = asked.device,
                      .time = std::chrono::duration<double>(asked.seconds)});
    if (!recorded.ok()) return Complain(*path, recorded.status());
    node = std::move(recorded->node);
  } else {
    Result<simulation::Node> read = simulation::ReadNode(asked.node);
    if (!read.ok()) return RejectFile(read.status());
    node = std::move(*read);
  }
  const simulation::Advice advice = simulation::Advise(node, *job, asked.options);
  std::string text =
      line.as_json ? simulation::AdviceJson(advice).dump(2) + "\n" : simulation::AdviceText(advice);
  if (asked.with_hint && advice.fits() && !line.as_json) {
    text += simulation::HintText(*job, simulation::SmallestShare(node, *job, asked.options));
  }
  const int printed = Print(text);
  return printed != kDone ? printed : advice.fits() ? kDone : kFitsNowhere;
}

void AddProfile(CommandLine& line) {
  const auto asked = std::make_shared<ProfileArguments>();
  const Command command = AddCommand(
      line.app, "profile", "profile of a client, or of a device with all its clients, for advise");
  const Option client = command.AddOption("client", asked->client, "id or name as shown by ps");
  const Option node = command.AddFlag("--node", asked->of_node,
                                      "device with all its clients, for gpushared-sim place");
  client.Excludes(node);
  command.AddOption("--out", asked->file, "output file (default: stdout)").TypeName("FILE");
  AddRecording(command, asked->device, asked->seconds);
  command.OnUse([&line, asked, client, node] {
    if (client.count() + node.count() != 1) {
      command_line::Reject("profile: expected the ID or name of a client, or --node");
    }
    line.action = [&line, asked] { return WriteProfile(line, *asked); };
  });
}

void AddAdvise(CommandLine& line) {
  constexpr std::size_t kSeedsMax = 1000;
  const auto asked = std::make_shared<AdviseArguments>();
  const Command command =
      AddCommand(line.app, "advise",
                 "prediction whether a job fits on the node without violating latency targets");
  command
      .AddOption("profile", asked->profile, "profile of the job, written by gpusharedctl profile")
      .Required()
      .TypeName("FILE");
  command
      .AddOption("--node", asked->node,
                 "file written by gpusharedctl profile --node, used instead of the running server")
      .TypeName("FILE");
  AddRecording(command, asked->device, asked->seconds);
  command
      .AddOption("--seeds", asked->options.seeds,
                 "number of simulation runs for the interval (default 5)")
      .Range(std::size_t{1}, kSeedsMax);
  command.AddOption("--seed", asked->options.seed, "seed of the first run (default 1)");
  command
      .AddOption("--least-pace", asked->options.least_pace_percent,
                 "minimum percentage of its pace that every client must keep (default 0)")
      .Within(0, 100);
  command.AddFlag("--hint", asked->with_hint, "hint for the job's request to Slurm or Kubernetes");
  command.OnUse(
      [&line, asked] { line.action = [&line, asked] { return RunAdvise(line, *asked); }; });
}

}  // namespace

void AddAdviseCommands(CommandLine& line) {
  AddProfile(line);
  AddAdvise(line);
}

}  // namespace gpushared::server
