// SPDX-License-Identifier: Apache-2.0
// `gpusharedctl trace` records the execution traces of devices in a file.
#include <signal.h>
#include <sys/resource.h>
#include <time.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/tools/ctl/command_line.h"
#include "server/tools/ctl/trace/recording.h"

#include <nlohmann/json.hpp>

namespace gpushared::server {
namespace {

constexpr double kSecondsMax = 3600;
constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
// Well below the 40 ms of events that a worker's ring holds at the highest load.
constexpr std::chrono::milliseconds kPollEvery{5};

struct TraceArguments {
  double seconds = 10;
  std::string file;
  std::vector<std::string> devices;
  std::uint64_t mib_max = 1024;
};

// Lowers our priority, because threads of clients must not be delayed by an observer on a shared
// core. The ring of the trace holds the events until this process runs.
void LetOthersGoFirst() {
  constexpr int kNicer = 10;
  (void)::setpriority(PRIO_PROCESS, 0, ::getpriority(PRIO_PROCESS, 0) + kNicer);
}

// Handles Ctrl-C, which ends a recording early with a complete file.
class Interrupts {
 public:
  Interrupts() {
    ::sigemptyset(&signals_);
    ::sigaddset(&signals_, SIGINT);
    ::sigaddset(&signals_, SIGTERM);
    ::sigprocmask(SIG_BLOCK, &signals_, &before_);
  }
  ~Interrupts() { ::sigprocmask(SIG_SETMASK, &before_, nullptr); }
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  // Returns true if an interrupt arrived within that time.
  bool Await(std::chrono::milliseconds time) const {
    const timespec wait = {.tv_sec = 0, .tv_nsec = time.count() * 1'000'000};
    return ::sigtimedwait(&signals_, nullptr, &wait) > 0;
  }

 private:
  sigset_t signals_{}, before_{};
};

std::string SummaryText(const nlohmann::json& summary) {
  const auto number = [&](const char* of) {
    return std::to_string(summary.value(of, std::uint64_t{0}));
  };
  std::string devices;
  for (const nlohmann::json& device : summary.at("devices")) {
    devices += (devices.empty() ? "" : ", ") + device.get<std::string>();
  }
  const std::uint64_t tenths = static_cast<std::uint64_t>(summary.value("seconds", 0.0) * 10 + 0.5);
  std::string text = summary.value("file", "") + ": " + number("slices") + " slices and " +
                     number("requests") + " requests of " + number("clients") + " clients on " +
                     devices + " in " + std::to_string(tenths / 10) + "." +
                     std::to_string(tenths % 10) + " s; ";
  text += summary.value("lost", std::uint64_t{0}) == 0
              ? "nothing was lost\n"
              : number("lost") + " events were lost: they came faster than they were read\n";
  if (summary.value("is_full", false)) {
    text += "the file is full after " + number("bytes") + " bytes; see --max-mib\n";
  }
  return text;
}

int Record(const CommandLine& line, const TraceArguments& asked) {
  const std::optional<std::string> path = GetSocket(line);
  if (!path) return kNoServer;
  LetOthersGoFirst();
  const Interrupts interrupts;
  Result<std::unique_ptr<Recording>> recording =
      Recording::Begin({.socket = *path,
                        .devices = asked.devices,
                        .file = asked.file,
                        .bytes_max = asked.mib_max * kMiB});
  if (!recording.ok()) return Complain(*path, recording.status());
  const auto until =
      std::chrono::steady_clock::now() + std::chrono::duration<double>(asked.seconds);
  while (std::chrono::steady_clock::now() < until && (*recording)->Go() &&
         !interrupts.Await(kPollEvery)) {
  }
  if (const Status finished = (*recording)->Finish(); !finished.ok()) {
    return Complain(asked.file, finished);
  }
  const nlohmann::json summary = (*recording)->Summary();
  return Print(line.as_json ? summary.dump(2) + "\n" : SummaryText(summary));
}

}  // namespace

void AddTraceCommands(CommandLine& line) {
  const auto asked = std::make_shared<TraceArguments>();
  const Command trace = AddCommand(
      line.app, "trace", "recording of execution traces for a viewer such as ui.perfetto.dev");
  trace.AddOption("--out", asked->file, "output file, such as NAME.json")
      .Required()
      .TypeName("FILE");
  trace
      .AddOption("--seconds", asked->seconds,
                 "duration in seconds (default 10); Ctrl-C ends it earlier")
      .Within(0.1, kSecondsMax);
  trace.AddOption("--device", asked->devices, "devices to record (default: all)")
      .Delimiter(',')
      .TypeName("LIST");
  trace.AddOption("--max-mib", asked->mib_max, "maximum size of the file in MiB (default 1024)")
      .Range(1U, 1U << 20);
  trace.OnUse([&line, asked] { line.action = [&line, asked] { return Record(line, *asked); }; });
}

}  // namespace gpushared::server
