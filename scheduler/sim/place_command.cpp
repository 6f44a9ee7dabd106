// SPDX-License-Identifier: Apache-2.0
#include "scheduler/sim/place_command.h"

#include <cstddef>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/sim/advice_report.h"

#include <nlohmann/json.hpp>

namespace gpushared::simulation {
namespace {

struct PlaceArguments {
  std::vector<std::string> nodes, jobs;
  AdviceOptions options;
  std::string json;
  bool with_hint = false;
};

int Rejected(const Status& why) {
  std::fprintf(stderr, "gpushared-sim: %s\n", why.message().c_str());
  return 1;
}

int RunPlace(const PlaceArguments& arguments) {
  std::vector<Node> nodes;
  std::vector<Profile> jobs;
  for (const std::string& path : arguments.nodes) {
    Result<Node> node = ReadNode(path);
    if (!node.ok()) return Rejected(node.status());
    nodes.push_back(std::move(*node));
  }
  for (const std::string& path : arguments.jobs) {
    Result<Profile> job = ReadProfile(path);
    if (!job.ok()) return Rejected(job.status());
    jobs.push_back(std::move(*job));
  }
  const std::vector<std::vector<Advice>> placed = Place(nodes, jobs, arguments.options);
  auto document = nlohmann::ordered_json::array();
  bool all_fit = true;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const Advice& best = placed[i].front();
    all_fit = all_fit && best.fits();
    auto rows = nlohmann::ordered_json::array();
    for (const Advice& advice : placed[i]) rows.push_back(AdviceJson(advice));
    document.push_back(std::move(rows));
    std::fputs(((i > 0 ? "\n" : "") + RankingText(placed[i])).c_str(), stdout);
    if (!best.fits()) continue;
    Node& node = nodes[best.node_number];
    if (arguments.with_hint) {
      const double share = SmallestShare(node, jobs[i], arguments.options);
      std::fputs(HintText(jobs[i], share).c_str(), stdout);
    }
    node.clients.push_back(jobs[i]);
  }
  if (!arguments.json.empty()) {
    std::ofstream file(arguments.json);
    file << document.dump(1) << '\n';
    if (!file.flush())
      return Rejected({StatusCode::kInternal, "cannot write '" + arguments.json + "'"});
  }
  return all_fit ? 0 : kFitsNowhere;
}

}  // namespace

std::function<int()> AddPlace(const command_line::Command& app) {
  constexpr std::size_t kFilesMax = 256, kSeedsMax = 1000;
  const auto arguments = std::make_shared<PlaceArguments>();
  const command_line::Command command = app.AddCommand(
      "place",
      "selection of the node on which a job fits best, given the current jobs and latency targets");
  command
      .AddOption("--node", arguments->nodes,
                 "files written by `gpusharedctl profile --node`: a device and its clients")
      .Required()
      .Expected(1, kFilesMax)
      .TypeName("FILE");
  command
      .AddOption(
          "--job", arguments->jobs,
          "files written by `gpusharedctl profile CLIENT`; several are placed one after the other")
      .Required()
      .Expected(1, kFilesMax)
      .TypeName("FILE");
  command
      .AddOption("--seeds", arguments->options.seeds,
                 "number of simulation runs for the interval (default 5)")
      .Range(std::size_t{1}, kSeedsMax);
  command.AddOption("--seed", arguments->options.seed, "seed of the first run (default 1)");
  command
      .AddOption("--least-pace", arguments->options.least_pace_percent,
                 "minimum percentage of its pace that every client must keep (default 0)")
      .Within(0, 100);
  command.AddFlag("--hint", arguments->with_hint,
                  "hint for the job's request to Slurm or Kubernetes");
  command.AddOption("--json", arguments->json, "output file for the nodes of each job")
      .TypeName("FILE");
  command.SetFooter(
      "Exit codes: 0 each job fits somewhere; 1 a file was rejected; 2 usage error; 4 a job fits "
      "nowhere.");
  return [arguments] { return RunPlace(*arguments); };
}

}  // namespace gpushared::simulation
