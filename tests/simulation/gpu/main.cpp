// SPDX-License-Identifier: Apache-2.0
// gpushared-sim: what a mix of jobs would do to each other, before a GPU is at hand.
#include <chrono>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "tests/simulation/gpu/experiment.h"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

namespace {

using gpushared::Result;
using gpushared::Status;
using namespace gpushared::simulation;

struct Arguments {
  std::vector<std::string> high, low, policies;
  std::vector<std::string> arrivals = {"poisson"};
  std::vector<double> loads = {0.5};
  std::string json;
  std::size_t requests = 10'000;
  std::uint32_t seed = 1, stretch = 1;
  bool no_claims = false;
};

nlohmann::ordered_json ToJson(const Row& row) {
  return {{"policy", row.policy},
          {"high", row.high},
          {"low", row.low},
          {"load", row.load},
          {"arrivals", row.arrivals},
          {"p99_alone_ms", row.p99_alone_ms},
          {"p99_inflation", row.p99_inflation},
          {"p99_added_ms", row.p99_added_ms},
          {"gap_used", row.gap_used},
          {"high_throughput", row.high_throughput},
          {"low_throughput", row.low_throughput}};
}

void PrintHeader() {
  std::printf("%-13s %-18s %-20s %5s %-9s %10s %9s %9s %6s %6s\n", "POLICY", "HIGH", "LOW", "LOAD",
              "ARRIVALS", "ALONE ms", "p99", "ADDED ms", "GAP", "LOW");
}

void Print(const Row& row) {
  const std::string arrivals = row.arrivals.substr(row.arrivals.find_last_of('/') + 1);
  std::printf("%-13s %-18s %-20s %5.2f %-9.9s %10.2f %+8.1f%% %9.3f %6.2f %6.2f\n",
              row.policy.c_str(), row.high.c_str(), row.low.c_str(), row.load, arrivals.c_str(),
              row.p99_alone_ms, 100 * row.p99_inflation, row.p99_added_ms, row.gap_used,
              row.low_throughput);
}

Result<std::vector<Job>> ReadJobs(const std::vector<std::string>& paths, std::uint32_t stretch) {
  std::vector<Job> jobs;
  for (const std::string& path : paths) {
    Result<Job> job = ReadOrionProfile(path, {.block_stretch = stretch});
    if (!job.ok()) return job.status();
    jobs.push_back(std::move(*job));
  }
  return jobs;
}

Status Compare(const Arguments& arguments) {
  std::vector<SetupEntry> contestants;
  for (const std::string& name : arguments.policies) {
    const std::optional<SetupEntry> entry = FindSetup(name);
    if (!entry)
      return Status(gpushared::StatusCode::kInvalidArgument,
                    "unknown policy '" + name + "': gpushared-sim policies lists them");
    contestants.push_back(*entry);
  }
  if (contestants.empty()) contestants = SetupCatalog();
  const Result<std::vector<Job>> high = ReadJobs(arguments.high, 1);
  if (!high.ok()) return high.status();
  const Result<std::vector<Job>> low = ReadJobs(arguments.low, arguments.stretch);
  if (!low.ok()) return low.status();

  auto document = nlohmann::ordered_json::array();
  std::uint64_t launches = 0;
  const auto begun = std::chrono::steady_clock::now();
  PrintHeader();
  for (const Job& high_job : *high) {
    for (const Job& low_job : *low) {
      for (const double load : arguments.loads) {
        for (const std::string& arrivals : arguments.arrivals) {
          CellOptions cell{.high = high_job,
                           .low = low_job,
                           .load = load,
                           .arrivals = arrivals,
                           .requests = arguments.requests,
                           .seed = arguments.seed,
                           .front = {}};
          cell.front.claims = !arguments.no_claims;
          const Result<std::vector<Row>> rows = RunCell(cell, contestants);
          if (!rows.ok()) return rows.status();
          for (const Row& row : *rows) {
            Print(row);
            document.push_back(ToJson(row));
            launches += row.launches;
          }
          std::fflush(stdout);
        }
      }
    }
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
  std::printf("%.1f M launches in %.1f s, seed %u\n", static_cast<double>(launches) / 1e6,
              took.count(), arguments.seed);
  if (arguments.json.empty()) return {};
  std::ofstream file(arguments.json);
  file << document.dump(1) << '\n';
  if (!file.flush())
    return Status(gpushared::StatusCode::kInternal, "cannot write '" + arguments.json + "'");
  return {};
}

int ListPolicies() {
  for (const SetupEntry& entry : SetupCatalog()) {
    std::printf("%-13.*s %.*s\n", static_cast<int>(entry.name.size()), entry.name.data(),
                static_cast<int>(entry.description.size()), entry.description.data());
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("what jobs that share a GPU do to each other, simulated");
  app.require_subcommand(1);
  Arguments arguments;
  CLI::App* compare = app.add_subcommand("compare", "each policy on each combination");
  compare->add_option("--high", arguments.high, "kernel profiles of requests (CSV)")->required();
  compare->add_option("--low", arguments.low, "kernel profiles of training steps (CSV)")
      ->required();
  compare->add_option("--load", arguments.loads, "arrival rate x time of a request alone (0.5)")
      ->check(CLI::Range(0.01, 0.95));
  compare->add_option("--arrivals", arguments.arrivals,
                      "poisson, bursty, or traces whose distances are scaled to the load");
  compare->add_option("--policy", arguments.policies, "of `gpushared-sim policies` (all)");
  compare->add_option("--requests", arguments.requests, "per combination (10000)")
      ->check(CLI::Range(100, 10'000'000));
  compare->add_option("--seed", arguments.seed, "of arrivals (1)");
  compare
      ->add_option("--block-stretch", arguments.stretch,
                   "blocks of low kernels this many times as long (1)")
      ->check(CLI::Range(1, 1000));
  compare->add_flag("--no-claims", arguments.no_claims, "no kernel is cut at blocks");
  compare->add_option("--json", arguments.json, "write the rows to this file");
  CLI::App* policies = app.add_subcommand("policies", "what can be compared");
  CLI11_PARSE(app, argc, argv);
  if (policies->parsed()) return ListPolicies();
  const Status status = Compare(arguments);
  if (status.ok()) return 0;
  std::fprintf(stderr, "gpushared-sim: %s\n", status.message().c_str());
  return 1;
}
