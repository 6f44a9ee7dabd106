// SPDX-License-Identifier: Apache-2.0
// gpushared-sim: predicts how the jobs of a mix affect each other, without a GPU.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <ctime>
#include <exception>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/command_line/command_line.h"
#include "scheduler/sim/arrivals.h"
#include "scheduler/sim/experiment.h"
#include "scheduler/sim/frontier.h"
#include "scheduler/sim/memory.h"
#include "scheduler/sim/mix.h"
#include "scheduler/sim/place_command.h"
#include "scheduler/sim/shares.h"

#include <nlohmann/json.hpp>

namespace gpushared::simulation {
namespace {

using scheduler::Duration;
using Document = nlohmann::ordered_json;

// Arguments of all subcommands except place.
struct Arguments {
  std::vector<std::string> policies;
  std::string json;
  std::uint32_t seed = 1, stretch = 1;
  bool no_claims = false;

  std::vector<std::string> high, low;
  bool one_by_one = false;
  std::vector<std::string> arrivals = {"poisson"};
  std::vector<double> loads = {0.5};
  std::size_t requests = 10'000, high_clients = 1, low_clients = 1;
  double latency_target_ms = 0, window_us = 0, launch_bubble_us = 0, context_switch_us = 0;
  double contention = kContention, stop_us = 12;
  std::vector<double> inflations = {1, 2, 3, 4, 5, 7, 10};  // Percent.

  std::string mix;
  std::vector<std::string> profiles;

  std::vector<std::uint32_t> weights;
  std::vector<double> max_shares;  // Percent.
  std::size_t clients = 2;
  double low_part = 0.6, gigabytes_per_s = 25;
  int low_parts = 10;
  std::uint64_t device_gib = 80;
  std::uint32_t spread = 1;
  double sleep_s = 0, seconds = 0;
  bool synchronous = false;
};

Duration Nanoseconds(double count) { return Duration(static_cast<Duration::rep>(count)); }

// Checks the file of --json in advance, because a run may take hours before the file is written.
Status CheckWritable(const std::string& path) {
  if (path.empty() || std::ofstream(path, std::ios::app)) return {};
  return Status(StatusCode::kInvalidArgument, "cannot write '" + path + "'");
}

Status Save(const Document& document, const std::string& path) {
  if (path.empty()) return {};
  std::ofstream file(path);
  file << document.dump(1) << '\n';
  if (!file.flush()) return Status(StatusCode::kInternal, "cannot write '" + path + "'");
  return {};
}

Result<std::vector<SetupEntry>> ChosenSetups(const std::vector<std::string>& names) {
  if (names.empty()) return SetupCatalog();
  std::vector<SetupEntry> setups;
  for (const std::string& name : names) {
    const std::optional<SetupEntry> entry = FindSetup(name);
    if (!entry) {
      return Status(StatusCode::kInvalidArgument,
                    "unknown policy '" + name + "': gpushared-sim policies lists them");
    }
    setups.push_back(*entry);
  }
  return setups;
}

Result<std::vector<Job>> ReadJobs(const std::vector<std::string>& paths, std::uint32_t stretch) {
  std::vector<Job> jobs;
  for (const std::string& path : paths) {
    Result<Job> job = ReadJob(path, {.block_stretch = stretch});
    if (!job.ok()) return job.status();
    jobs.push_back(std::move(*job));
  }
  return jobs;
}

Document ToJson(const Row& row) {
  return {{"policy", row.policy},
          {"high", row.high},
          {"low", row.low},
          {"load", row.load},
          {"arrivals", row.arrivals},
          {"p99_alone_ms", row.p99_alone_ms},
          {"p99_inflation", row.p99_inflation},
          {"p99_added_ms", row.p99_added_ms},
          {"latency_target_ms", row.latency_target_ms},
          {"target_met", row.target_met},
          {"gap_used", row.gap_used},
          {"high_throughput", row.high_throughput},
          {"low_throughput", row.low_throughput},
          {"decisions", row.decisions}};
}

void Print(const Row& row) {
  const std::string arrivals = row.arrivals.substr(row.arrivals.find_last_of('/') + 1);
  std::printf("%-18s %-18s %-20s %5.2f %-9.9s %10.2f %+8.1f%% %9.3f %6.1f%% %6.2f %6.2f\n",
              row.policy.c_str(), row.high.c_str(), row.low.c_str(), row.load, arrivals.c_str(),
              row.p99_alone_ms, 100 * row.p99_inflation, row.p99_added_ms, 100 * row.target_met,
              row.gap_used, row.low_throughput);
}

CellOptions GetCell(const Arguments& arguments, const Job& high, const Job& low, double load,
                    const std::string& arrivals) {
  CellOptions cell{.high = high,
                   .low = low,
                   .high_clients = arguments.high_clients,
                   .low_clients = arguments.low_clients,
                   .load = load,
                   .arrivals = arrivals,
                   .one_by_one = arguments.one_by_one,
                   .requests = arguments.requests,
                   .seed = arguments.seed,
                   .target = {},
                   .front = {}};
  cell.front.claims = !arguments.no_claims;
  if (arguments.window_us > 0) cell.front.lane.window = Nanoseconds(1e3 * arguments.window_us);
  if (arguments.launch_bubble_us > 0) {
    cell.front.launch_bubble = Nanoseconds(1e3 * arguments.launch_bubble_us);
  }
  if (arguments.context_switch_us > 0) {
    cell.front.costs.context_switch = Nanoseconds(1e3 * arguments.context_switch_us);
  }
  cell.front.costs.contention = arguments.contention;
  if (arguments.latency_target_ms > 0) cell.target = Nanoseconds(1e6 * arguments.latency_target_ms);
  return cell;
}

Status Compare(const Arguments& arguments) {
  const Result<std::vector<SetupEntry>> contestants = ChosenSetups(arguments.policies);
  if (!contestants.ok()) return contestants.status();
  const Result<std::vector<Job>> high = ReadJobs(arguments.high, 1);
  if (!high.ok()) return high.status();
  const Result<std::vector<Job>> low = ReadJobs(arguments.low, arguments.stretch);
  if (!low.ok()) return low.status();
  for (const std::string& arrivals : arguments.arrivals) {
    if (arrivals == "closed") continue;
    const auto made = MakeArrivals(arrivals, arguments.requests, 1.0, arguments.seed);
    if (!made.ok()) return made.status();
  }

  auto document = Document::array();
  std::uint64_t launches = 0;
  const std::clock_t begun = std::clock();
  std::printf("%-18s %-18s %-20s %5s %-9s %10s %9s %9s %7s %6s %6s\n", "POLICY", "HIGH", "LOW",
              "LOAD", "ARRIVALS", "ALONE ms", "p99", "ADDED ms", "MET", "GAP", "LOW");
  for (const Job& high_job : *high) {
    for (const Job& low_job : *low) {
      for (const double load : arguments.loads) {
        for (const std::string& arrivals : arguments.arrivals) {
          const Result<std::vector<Row>> rows =
              RunCell(GetCell(arguments, high_job, low_job, load, arrivals), *contestants);
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
  const double took_s = static_cast<double>(std::clock() - begun) / CLOCKS_PER_SEC;
  const double millions = static_cast<double>(launches) / 1e6;
  std::printf("%.1f M launches in %.1f s of processor time, %.1f M/s, seed %u\n", millions, took_s,
              millions / took_s, arguments.seed);
  return Save(document, arguments.json);
}

Status PrintFrontiers(const Arguments& arguments) {
  const Result<std::vector<Job>> high = ReadJobs(arguments.high, 1);
  if (!high.ok()) return high.status();
  const Result<std::vector<Job>> low = ReadJobs(arguments.low, arguments.stretch);
  if (!low.ok()) return low.status();
  FrontierOptions options{
      .front = {}, .load = arguments.loads.front(), .stop = Nanoseconds(1e3 * arguments.stop_us)};
  options.front.costs.contention = arguments.contention;
  std::vector<double> inflations;
  std::printf("%-18s %-20s %9s %9s", "HIGH", "LOW", "KNOWN", "FULL at");
  for (const double percent : arguments.inflations) {
    inflations.push_back(percent / 100);
    std::printf(" %+6.1f%%", percent);
  }
  std::printf("\n");
  for (const Job& high_job : *high) {
    for (const Job& low_job : *low) {
      const Frontier frontier = ComputeFrontier(high_job, low_job, inflations, options);
      std::printf("%-18s %-20s %9.2f %+8.1f%%", high_job.name.c_str(), low_job.name.c_str(),
                  frontier.low_if_arrivals_known, 100 * frontier.inflation_at_full_speed);
      for (const std::optional<double> throughput : frontier.low) {
        throughput ? std::printf(" %7.2f", *throughput) : std::printf(" %7s", "-");
      }
      std::printf("\n");
    }
  }
  return {};
}

Status Mix(const Arguments& arguments) {
  const Result<std::vector<SetupEntry>> contestants = ChosenSetups(arguments.policies);
  if (!contestants.ok()) return contestants.status();
  std::map<std::string, Job> profiles;
  for (const std::string& profile : arguments.profiles) {
    const std::size_t equals = profile.find('=');
    if (equals == std::string::npos)
      return Status(StatusCode::kInvalidArgument, "'" + profile + "' is not MODEL=JOB");
    Result<Job> job = ReadJob(profile.substr(equals + 1), {.block_stretch = arguments.stretch});
    if (!job.ok()) return job.status();
    profiles[profile.substr(0, equals)] = std::move(*job);
  }
  const Result<Scenario> scenario = ReadMix(arguments.mix, profiles, arguments.seed);
  if (!scenario.ok()) return scenario.status();

  FrontOptions front;
  front.claims = !arguments.no_claims;
  auto document = Document::array();
  std::printf("%-18s %-20s %-6s %9s %9s %9s %10s %7s %10s\n", "POLICY", "CLIENT", "CLASS",
              "REQUESTS", "p50 ms", "p99 ms", "ALONE ms", "MET", "THROUGHPUT");
  for (const ClientRow& row : RunMix(*scenario, front, *contestants)) {
    std::printf("%-18s %-20s %-6s %9zu %9.3f %9.3f %10.3f %6.1f%% %10.3f\n", row.policy.c_str(),
                row.client.c_str(), row.scheduling_class.c_str(), row.requests, row.p50_ms,
                row.p99_ms, row.p99_alone_ms, 100 * row.target_met, row.throughput);
    document.push_back({{"policy", row.policy},
                        {"client", row.client},
                        {"class", row.scheduling_class},
                        {"requests", row.requests},
                        {"p50_ms", row.p50_ms},
                        {"p99_ms", row.p99_ms},
                        {"p99_alone_ms", row.p99_alone_ms},
                        {"target_met", row.target_met},
                        {"throughput", row.throughput}});
  }
  return Save(document, arguments.json);
}

Document ToJson(const std::vector<ShareSample>& samples) {
  auto rows = Document::array();
  for (const ShareSample& sample : samples) {
    Document held = Document::array(), due = Document::array();
    for (const Duration each : sample.held) held.push_back(each.count());
    for (const Duration each : sample.due) due.push_back(each.count());
    rows.push_back({{"held_ns", held}, {"due_ns", due}});
  }
  return rows;
}

// Returns weights from 1 to `spread`, evenly spaced on a logarithmic scale.
std::vector<std::uint32_t> SpreadWeights(std::size_t clients, std::uint32_t spread) {
  std::vector<std::uint32_t> weights(clients, 1);
  for (std::size_t i = 0; i < clients && clients > 1; ++i) {
    const double part = static_cast<double>(i) / static_cast<double>(clients - 1);
    weights[i] = static_cast<std::uint32_t>(std::lround(std::pow(spread, part)));
  }
  return weights;
}

Status Shares(Arguments arguments) {
  constexpr std::size_t kWeightsMax = 64;
  if (arguments.weights.size() > kWeightsMax) {
    return Status(StatusCode::kInvalidArgument, std::to_string(arguments.weights.size()) +
                                                    " weights, but at most " +
                                                    std::to_string(kWeightsMax) + " clients");
  }
  if (arguments.policies.empty()) arguments.policies = {"fair"};
  const Result<std::vector<SetupEntry>> contestants = ChosenSetups(arguments.policies);
  if (!contestants.ok()) return contestants.status();
  const FrontOptions front;
  ShareOptions options{.weights = arguments.weights,
                       .seed = arguments.seed,
                       .sleep_s = arguments.sleep_s,
                       .length = Nanoseconds(1e9 * arguments.seconds)};
  if (arguments.synchronous) options.depth = 1;
  if (options.weights.empty()) options.weights = SpreadWeights(arguments.clients, arguments.spread);
  if (arguments.max_shares.size() > options.weights.size()) {
    return Status(StatusCode::kInvalidArgument,
                  std::to_string(arguments.max_shares.size()) + " maximum shares, but only " +
                      std::to_string(options.weights.size()) + " clients");
  }
  for (const SetupEntry& contestant : *contestants) {
    if (arguments.max_shares.empty() || scheduler::FindPolicy(contestant.name) != nullptr) continue;
    return Status(StatusCode::kInvalidArgument,
                  "--max-share rejected: '" + std::string(contestant.name) +
                      "' does not support caps, allowed: " + scheduler::PolicyNames());
  }
  for (const double percent : arguments.max_shares) {
    options.max_shares.push_back(static_cast<std::uint32_t>(std::lround(10 * percent)));
  }
  const Scenario scenario = MakeShareScenario(options, front.policy.slice);

  auto document = Document::array();
  std::printf("%-18s %8s %10s %12s %8s %8s %8s\n", "POLICY", "CLIENTS", "SECONDS", "ERROR of 1 s",
              "JAIN", "LEAST", "MOST");
  for (const SetupEntry& contestant : *contestants) {
    const Outcome outcome = RunScenario(contestant, front, scenario);
    const ShareReport report = ReportShares(outcome.samples);
    std::printf("%-18.*s %8zu %10.0f %9.2f pp %8.4f %8.3f %8.3f\n",
                static_cast<int>(contestant.name.size()), contestant.name.data(),
                scenario.clients.size(), outcome.seconds, 100 * report.error_max, report.jain,
                report.least_ratio, report.greatest_ratio);
    const double cap_error = CapErrorMax(outcome.samples, options.max_shares);
    if (!options.max_shares.empty()) {
      std::printf("%-18s largest deviation of a one-second share from its cap: %.2f pp\n", "",
                  100 * cap_error);
    }
    document.push_back({{"policy", contestant.name},
                        {"weights", options.weights},
                        {"max_share_percent", arguments.max_shares},
                        {"cap_error_max", cap_error},
                        {"seconds", outcome.seconds},
                        {"error_max", report.error_max},
                        {"jain", report.jain},
                        {"least_ratio", report.least_ratio},
                        {"greatest_ratio", report.greatest_ratio},
                        {"samples", ToJson(outcome.samples)}});
  }
  return Save(document, arguments.json);
}

int ListPolicies() {
  for (const SetupEntry& entry : SetupCatalog()) {
    std::printf("%-18.*s %.*s\n", static_cast<int>(entry.name.size()), entry.name.data(),
                static_cast<int>(entry.description.size()), entry.description.data());
  }
  return 0;
}

void AddCommon(const command_line::Command& command, Arguments& arguments,
               const char* default_policies) {
  command.AddOption("--policy", arguments.policies,
                    std::string("policies, as listed by `gpushared-sim policies` (default: ") +
                        default_policies + ")");
  command.AddOption("--seed", arguments.seed, "seed of the random numbers (default 1)");
  command.AddOption("--json", arguments.json, "output file for the rows");
}

void AddKernelOptions(const command_line::Command& command, Arguments& arguments,
                      const char* whose) {
  command
      .AddOption(
          "--block-stretch", arguments.stretch,
          std::string("blocks of ") + whose + " kernels, lengthened by this factor (default 1)")
      .Range(1, 1000);
  command.AddFlag("--no-claims", arguments.no_claims, "kernels without preemption between blocks");
}

void AddCompare(const command_line::Command& app, Arguments& arguments) {
  const command_line::Command command =
      app.AddCommand("compare",
                     "each combination of a high job, whose requests arrive, and a low job, which "
                     "trains continuously");
  command
      .AddOption("--high", arguments.high,
                 "jobs of requests: kernel profiles (CSV), even:KERNELS:KERNEL_US:BLOCK_US, "
                 "nonpreemptible:KERNELS:KERNEL_US:BLOCK_US (the same kernels as machine code), "
                 "grid:KERNELS:BLOCKS:BLOCK_US:BLOCKS_PER_MULTIPROCESSOR, copies in:US and out:US, "
                 "or several joined with +")
      .Required();
  command.AddOption("--low", arguments.low, "jobs of training steps, as above").Required();
  command
      .AddOption("--load", arguments.loads,
                 "load: arrival rate x time of a request alone (default 0.5)")
      .Within(0.01, 0.95);
  command.AddOption("--arrivals", arguments.arrivals,
                    "arrivals: poisson, bursty, periodic, closed (loop), or traces whose intervals "
                    "are scaled to the load (default poisson)");
  command.AddFlag("--one-by-one", arguments.one_by_one,
                  "requests one after the other: a request starts when the previous one has ended, "
                  "and is timed from its start instead of its arrival");
  command.AddOption("--requests", arguments.requests, "requests per combination (default 10000)")
      .Range(100, 10'000'000);
  command
      .AddOption("--high-clients", arguments.high_clients,
                 "high clients, which share load and requests (default 1)")
      .Range(1, 64);
  command
      .AddOption("--low-clients", arguments.low_clients,
                 "low clients, which train continuously (default 1)")
      .Range(1, 64);
  command
      .AddOption("--latency-target", arguments.latency_target_ms,
                 "latency target of a request, ms (default 1.05 x p99 alone)")
      .Within(0.001, 1e6);
  command
      .AddOption("--window", arguments.window_us,
                 "window: limit of the predicted time of normal and low work on the device, us "
                 "(default 500)")
      .Within(1, 1e6);
  command
      .AddOption(
          "--launch-bubble", arguments.launch_bubble_us,
          "launch bubble of the device as known to the lane, us (default 9.1, as in the costs)")
      .Within(0.001, 1e6);
  command
      .AddOption("--context-switch", arguments.context_switch_us,
                 "context switch time of a time-sliced GPU, us (default 50)")
      .Within(0.001, 1e6);
  command
      .AddOption("--contention", arguments.contention,
                 "how much kernels slow each other down in caches and memory (default 4; 0: not at "
                 "all)")
      .Within(0, 1000);
  AddKernelOptions(command, arguments, "low");
  AddCommon(command, arguments, "all");
}

void AddFrontier(const command_line::Command& app, Arguments& arguments) {
  const command_line::Command command = app.AddCommand(
      "frontier",
      "throughput of low work that any scheduler can reach at a given p99 inflation of requests "
      "served one at a time; KNOWN: without inflation, if all arrivals are known; FULL at: the "
      "inflation at which low work runs at full speed");
  command.AddOption("--high", arguments.high, "jobs of requests, as for compare").Required();
  command.AddOption("--low", arguments.low, "jobs of training steps, as for compare").Required();
  command.AddOption("--load", arguments.loads, "load (default 0.5)").Within(0.01, 0.95);
  command
      .AddOption("--inflation", arguments.inflations,
                 "p99 inflations, percent (default 1 2 3 4 5 7 10)")
      .Within(0.01, 1000);
  command
      .AddOption("--stop", arguments.stop_us,
                 "time in which a stop reaches the blocks, us (default 12)")
      .Within(0, 1e6);
  command.AddOption("--contention", arguments.contention, "as for compare (default 4)")
      .Within(0, 1000);
  command
      .AddOption("--block-stretch", arguments.stretch,
                 "blocks of low kernels, lengthened by this factor (default 1)")
      .Range(1, 1000);
}

void AddMix(const command_line::Command& app, Arguments& arguments) {
  const command_line::Command command = app.AddCommand("mix", "arbitrary clients from a DISB file");
  command.AddOption("file", arguments.mix, "DISB client list (JSON)").Required();
  command
      .AddOption("--profile", arguments.profiles,
                 "job of a model, MODEL=JOB, as for compare --high")
      .Required();
  AddKernelOptions(command, arguments, "all");
  AddCommon(command, arguments, "all");
}

void AddShares(const command_line::Command& app, Arguments& arguments) {
  const command_line::Command command =
      app.AddCommand("shares", "device time compared with weights");
  command.AddOption("--weights", arguments.weights, "weights, one per client")
      .Range(1u, kWeightMax);
  command
      .AddOption("--max-share", arguments.max_shares,
                 "maximum shares of the first clients, in percent of device time; 100: no cap")
      .Within(0.1, 100);
  command
      .AddOption("--clients", arguments.clients,
                 "number of clients if no weights are given (default 2)")
      .Range(2, 64);
  command
      .AddOption("--spread", arguments.spread,
                 "largest weight; weights are spread from 1 to this one (default 1)")
      .Range(1u, kWeightMax);
  command
      .AddOption(
          "--sleep", arguments.sleep_s,
          "every other client works and sleeps in turn, each for so many seconds (default: never)")
      .Within(0.001, 1e6);
  command
      .AddOption("--seconds", arguments.seconds,
                 "simulated seconds (default: 100 slices of the smallest share)")
      .Within(1, 1e6);
  command.AddFlag("--synchronous", arguments.synchronous,
                  "synchronous clients, which wait for each of their kernels");
  AddCommon(command, arguments, "fair");
}

void PrintMemory(const char* name, const MemoryReport& report) {
  const auto ms = [&](std::size_t permille) {
    if (report.waits.empty()) return 0.0;
    const std::size_t place =
        std::min(report.waits.size() - 1, report.waits.size() * permille / 1000);
    return std::chrono::duration<double, std::milli>(report.waits[place]).count();
  };
  std::printf(
      "%-20s low clients run %.3f of the time, the worst one %.3f; high waits p50 %.1f ms, p99 "
      "%.1f ms "
      "(%zu visits); %.0f GiB moved\n",
      name, report.low_runs, report.least_runs, ms(500), ms(990), report.waits.size(),
      report.moved_bytes / (1u << 30));
}

Status Memory(const Arguments& arguments) {
  MemoryScenario scenario;
  scenario.low_clients = static_cast<std::size_t>(arguments.clients);
  scenario.seed = arguments.seed;
  scenario.bytes_per_s = arguments.gigabytes_per_s * 1e9;
  scenario.device_bytes = arguments.device_gib << 30;
  scenario.low_part = arguments.low_part;
  PrintMemory("residency", SimulateResidency(scenario));
  MemoryScenario in_parts = scenario;
  in_parts.low_parts = static_cast<std::size_t>(arguments.low_parts);
  PrintMemory("residency, in parts", SimulateResidency(in_parts));
  PrintMemory("whole-device turns", SimulateWholeDeviceTurns(scenario));
  PrintMemory("page faults", SimulatePageFaults(scenario));
  return Status::Ok();
}

void AddMemory(const command_line::Command& app, Arguments& arguments) {
  const command_line::Command command = app.AddCommand(
      "memory", "memory oversubscription by low clients, with a high client that comes and goes");
  command.AddOption("--clients", arguments.clients, "low clients (default 2)").Range(2, 16);
  command
      .AddOption("--part", arguments.low_part,
                 "fraction of the device's memory held by each of them (default 0.6)")
      .Within(0.1, 0.75);
  command
      .AddOption(
          "--parts", arguments.low_parts,
          "number of parts in which a client uses its memory, in the second row (default 10)")
      .Range(2, 1000);
  command.AddOption("--device-gib", arguments.device_gib, "memory of the device, GiB (default 80)")
      .Range(1u, 1024u);
  command.AddOption("--gb-per-s", arguments.gigabytes_per_s, "transfer rate, GB/s (default 25)")
      .Within(0.1, 1000);
  command.AddOption("--seed", arguments.seed, "seed of the visits (default 1)");
}

int RunTool(int argc, char** argv) {
  const command_line::Program app("Simulator of jobs that share a GPU.");
  app.RequireCommand();
  Arguments arguments;
  AddCompare(app, arguments);
  AddMix(app, arguments);
  AddFrontier(app, arguments);
  AddShares(app, arguments);
  const std::function<int()> place = AddPlace(app);
  AddMemory(app, arguments);
  app.AddCommand("policies", "list of policies");
  if (const auto stop = app.Parse({argv, static_cast<std::size_t>(argc)}); stop) {
    return stop->Print() == 0 ? 0 : 2;
  }
  const std::string command = app.Chosen();
  if (command == "policies") return ListPolicies();
  if (command == "place") return place();
  Status status = CheckWritable(arguments.json);
  if (status.ok()) {
    status = command == "compare"    ? Compare(arguments)
             : command == "frontier" ? PrintFrontiers(arguments)
             : command == "mix"      ? Mix(arguments)
             : command == "memory"   ? Memory(arguments)
                                     : Shares(arguments);
  }
  if (status.ok()) return 0;
  std::fprintf(stderr, "gpushared-sim: %s\n", status.message().c_str());
  return 1;
}

}  // namespace
}  // namespace gpushared::simulation

int main(int argc, char** argv) {
  try {
    return gpushared::simulation::RunTool(argc, argv);
  } catch (const std::exception& error) {  // For example, if memory is exhausted.
    std::fprintf(stderr, "gpushared-sim: %s\n", error.what());
    return 1;
  }
}
