// SPDX-License-Identifier: Apache-2.0
// Compares real processes on a real server's cpu device with the simulator, for the same pair of
// jobs and the same arrivals. The simulator uses costs measured on that device.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/sim/arrivals.h"
#include "scheduler/sim/experiment.h"
#include "tests/bench/replay_clients.h"
#include "tests/bench/report.h"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

namespace gpushared::testing {
namespace {

using simulation::ClientPlan;
using simulation::FrontOptions;
using simulation::Job;
using std::chrono::nanoseconds;

// Evenly spaced requests before the counted ones, so that policies and predictions have learnt by
// then.
constexpr std::size_t kWarmUp = 20;
constexpr nanoseconds kLowAlone = std::chrono::seconds(20);
constexpr double kTargetAboveAlone = 1.05;

struct Arguments {
  std::string high = "even:10:400:400", low = "even:20:1600:100";
  std::vector<std::string> policies = {"priority", "deadline", "fifo", "round_robin", "fair"};
  unsigned scale = 10;
  double load = 0.3;
  bool is_one_by_one = false;
  std::size_t requests = 400;
  std::uint32_t seed = 1;
  int tries = 1;
  double waited_max = 0.1;
  std::string json;
};

double Milliseconds(nanoseconds time) { return static_cast<double>(time.count()) / 1e6; }

// Converts the job to one multiprocessor: one block for each wave, `scale` times as long.
Job OnOneMultiprocessor(Job job, unsigned scale) {
  constexpr std::uint32_t kMultiprocessors = simulation::ProfileOptions{}.multiprocessors;
  for (simulation::Kernel& kernel : job.kernels) {
    kernel.blocks = (kernel.blocks + kMultiprocessors - 1) / kMultiprocessors;
    kernel.block_time *= scale;
  }
  return job;
}

nanoseconds GetTime(const Job& job) {
  nanoseconds time{};
  for (const simulation::Kernel& kernel : job.kernels) time += simulation::SoloTime(kernel, 1);
  return time;
}

// The result of one side, real or simulated.
struct Side {
  nanoseconds p50{}, p99{};
  double low_jobs_per_s = 0;
};

Side Judge(std::vector<nanoseconds> latencies, double low_jobs_per_s) {
  Side side{.low_jobs_per_s = low_jobs_per_s};
  if (latencies.empty()) return side;
  latencies.erase(latencies.begin(), latencies.begin() + kWarmUp);
  side.p50 = simulation::Percentile(latencies, 0.5);
  side.p99 = simulation::Percentile(latencies, 0.99);
  return side;
}

class Simulator {
 public:
  explicit Simulator(const ReplayCosts& costs) : block_cost_(costs.block) {
    front_.multiprocessors = 1;
    front_.costs = {.launch_call = nanoseconds(0),  // Included in the round trip.
                    .launch_delay = costs.round_trip / 2,
                    .kernel_gap = costs.kernel_gap,
                    .notice = costs.round_trip - costs.round_trip / 2,
                    .stop_flag = nanoseconds(0),  // The device polls before each block.
                    .drain = nanoseconds(0),
                    .claim = nanoseconds(0)};
  }

  Side Run(const std::string& policy, const ReplayPlan& plan) const {
    simulation::Scenario scenario;
    if (!plan.arrivals_s.empty()) {
      scenario.clients.push_back(
          {.name = "high",
           .spec = {.scheduling_class = scheduler::SchedulingClass::kHigh,
                    .latency_target = plan.target},
           .job = WithCosts(plan.high),
           .pace = plan.is_one_by_one ? ClientPlan::Pace::kOneByOne : ClientPlan::Pace::kOpen,
           .times_s = plan.arrivals_s,
           .awake = {}});
    } else {
      scenario.length = plan.length;
    }
    if (plan.has_low) {
      scenario.clients.push_back({.name = "low",
                                  .spec = {.scheduling_class = scheduler::SchedulingClass::kLow},
                                  .job = WithCosts(plan.low),
                                  .times_s = {},
                                  .depth = 2,
                                  .awake = {}});
    }
    const auto outcome = simulation::RunScenario(*simulation::FindSetup(policy), front_, scenario);
    const double low_jobs = plan.has_low ? outcome.clients.back().jobs : 0;
    return Judge(outcome.clients.front().request_times, low_jobs / outcome.seconds);
  }

 private:
  Job WithCosts(Job job) const {
    for (simulation::Kernel& kernel : job.kernels) kernel.block_time += block_cost_;
    return job;
  }

  const nanoseconds block_cost_;
  FrontOptions front_;
};

struct Row {
  std::string policy;
  Side real, simulated;
  double real_gap_used = 0, simulated_gap_used = 0;
  double worker_waited = 0;

  double p99_error() const { return Milliseconds(real.p99) / Milliseconds(simulated.p99) - 1; }
};

// Replays the plan until the machine is quiet enough, at most `tries` times; returns the quietest
// run.
ReplayOutcome ReplayQuietly(const Arguments& arguments, const std::string& policy,
                            const ReplayPlan& plan) {
  ReplayOutcome best = Replay(policy, plan);
  for (int i = 1; i < arguments.tries && best.worker_waited > arguments.waited_max; ++i) {
    ReplayOutcome next = Replay(policy, plan);
    if (next.worker_waited < best.worker_waited) best = std::move(next);
  }
  return best;
}

std::vector<std::string> ByP99(std::vector<Row> rows, Side Row::*side) {
  std::sort(rows.begin(), rows.end(),
            [&](const Row& a, const Row& b) { return (a.*side).p99 < (b.*side).p99; });
  std::vector<std::string> names;
  for (const Row& row : rows) names.push_back(row.policy);
  return names;
}

std::string Listed(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : " < ") + name;
  return text;
}

void Print(const Row& row) {
  std::printf("%-12s %9.1f %9.1f   %9.1f %9.1f %+7.1f%%   %6.2f %6.2f   %6.1f%%\n",
              row.policy.c_str(), Milliseconds(row.real.p50), Milliseconds(row.simulated.p50),
              Milliseconds(row.real.p99), Milliseconds(row.simulated.p99), 100 * row.p99_error(),
              row.real_gap_used, row.simulated_gap_used, 100 * row.worker_waited);
  std::fflush(stdout);
}

nlohmann::ordered_json ToJson(const Row& row) {
  return {{"policy", row.policy},
          {"p50_ms", Milliseconds(row.real.p50)},
          {"p50_simulated_ms", Milliseconds(row.simulated.p50)},
          {"p99_ms", Milliseconds(row.real.p99)},
          {"p99_simulated_ms", Milliseconds(row.simulated.p99)},
          {"p99_error", row.p99_error()},
          {"gap_used", row.real_gap_used},
          {"gap_used_simulated", row.simulated_gap_used},
          {"worker_waited", row.worker_waited}};
}

ReplayPlan MakePlan(const Arguments& arguments) {
  const Job high = Must(simulation::ReadJob(arguments.high, {}));
  const Job low = Must(simulation::ReadJob(arguments.low, {}));
  ReplayPlan plan{.high = OnOneMultiprocessor(high, arguments.scale),
                  .low = OnOneMultiprocessor(low, arguments.scale),
                  .arrivals_s = {},
                  .is_one_by_one = arguments.is_one_by_one,
                  .target = {},
                  .length = kLowAlone};
  const double service_s = Milliseconds(GetTime(plan.high)) / 1e3;
  for (std::size_t i = 0; i < kWarmUp; ++i)
    plan.arrivals_s.push_back(3 * service_s * static_cast<double>(i));
  const double first_s = 3 * service_s * static_cast<double>(kWarmUp);
  for (const double at : Must(simulation::MakeArrivals("poisson", arguments.requests,
                                                       service_s / arguments.load, arguments.seed)))
    plan.arrivals_s.push_back(first_s + at);
  return plan;
}

class Comparison {
 public:
  explicit Comparison(const Arguments& arguments)
      : arguments_(arguments), plan_(MakePlan(arguments)), costs_(MeasureCosts()) {
    std::printf("measured: round trip %.1f us, kernel gap %.1f us, block cost %.1f us\n",
                1e3 * Milliseconds(costs_.round_trip), 1e3 * Milliseconds(costs_.kernel_gap),
                1e3 * Milliseconds(costs_.block));
    std::printf("request %.1f ms in %zu kernels, low step %.1f ms in %zu, load %.2f\n",
                Milliseconds(GetTime(plan_.high)), plan_.high.kernels.size(),
                Milliseconds(GetTime(plan_.low)), plan_.low.kernels.size(), arguments.load);
    std::printf("%-12s %9s %9s   %9s %9s %8s   %6s %6s   %7s\n", "POLICY", "p50 ms", "SIM",
                "p99 ms", "SIM", "ERROR", "GAP", "SIM", "WAITED");
  }

  int Run() {
    low_alone_ = RunBoth("priority", "low alone", [](ReplayPlan& plan) { plan.arrivals_s = {}; });
    const Row alone =
        RunBoth("priority", "high alone", [](ReplayPlan& plan) { plan.has_low = false; });
    Print(alone);
    // Calculated as in the simulator's table, because the machine's noise is not a part of the
    // latency target.
    const auto target = nanoseconds(static_cast<nanoseconds::rep>(
        static_cast<double>(alone.simulated.p99.count()) * kTargetAboveAlone));
    std::vector<Row> rows;
    for (const std::string& policy : arguments_.policies) {
      rows.push_back(RunBoth(policy, policy, [&](ReplayPlan& plan) { plan.target = target; }));
      Print(rows.back());
    }
    const auto real = ByP99(rows, &Row::real), simulated = ByP99(rows, &Row::simulated);
    std::printf("by p99, real:      %s\nby p99, simulated: %s\n", Listed(real).c_str(),
                Listed(simulated).c_str());
    rows.insert(rows.begin(), alone);
    return Save(rows) ? 0 : 1;
  }

 private:
  template <typename Change>
  Row RunBoth(const std::string& policy, const std::string& label, Change change) {
    ReplayPlan plan = plan_;
    change(plan);
    const ReplayOutcome outcome = ReplayQuietly(arguments_, policy, plan);
    Row row{.policy = label,
            .real = Judge(outcome.latencies, outcome.low_jobs_per_s),
            .simulated = Simulator(costs_).Run(policy, plan),
            .worker_waited = outcome.worker_waited};
    const double gap = 1 - arguments_.load;
    if (low_alone_.real.low_jobs_per_s > 0) {
      row.real_gap_used = row.real.low_jobs_per_s / low_alone_.real.low_jobs_per_s / gap;
      row.simulated_gap_used =
          row.simulated.low_jobs_per_s / low_alone_.simulated.low_jobs_per_s / gap;
    }
    return row;
  }

  bool Save(const std::vector<Row>& rows) const {
    if (arguments_.json.empty()) return true;
    nlohmann::ordered_json document = {{"environment", Environment()},
                                       {"high", arguments_.high},
                                       {"low", arguments_.low},
                                       {"scale", arguments_.scale},
                                       {"load", arguments_.load},
                                       {"one_by_one", arguments_.is_one_by_one},
                                       {"requests", arguments_.requests},
                                       {"seed", arguments_.seed},
                                       {"round_trip_ns", costs_.round_trip.count()},
                                       {"kernel_gap_ns", costs_.kernel_gap.count()},
                                       {"block_cost_ns", costs_.block.count()},
                                       {"rows", nlohmann::ordered_json::array()}};
    for (const Row& row : rows) document["rows"].push_back(ToJson(row));
    std::ofstream file(arguments_.json);
    file << document.dump(1) << '\n';
    return static_cast<bool>(file.flush());
  }

  const Arguments arguments_;
  const ReplayPlan plan_;
  const ReplayCosts costs_;
  Row low_alone_;
};

int Run(int argc, char** argv) {
  CLI::App app(
      "compares real processes on the cpu device with the simulator, for one pair of jobs");
  Arguments arguments;
  app.add_option("--high", arguments.high, "job of a request: as in gpushared-sim compare");
  app.add_option("--low", arguments.low, "job of a training step");
  app.add_option("--policy", arguments.policies, "policies to compare (all)");
  app.add_option("--scale", arguments.scale,
                 "kernels take this many times as long as in the profile (10)")
      ->check(CLI::Range(1, 10'000));
  app.add_option("--load", arguments.load, "arrival rate x time of a request alone (0.3)")
      ->check(CLI::Range(0.01, 0.95));
  app.add_flag("--one-by-one", arguments.is_one_by_one,
               "requests one after the other, timed from their start, as in gpushared-sim compare");
  app.add_option("--requests", arguments.requests, "Poisson arrivals for each policy (400)")
      ->check(CLI::Range(100, 50'000));
  app.add_option("--seed", arguments.seed, "seed of the arrivals (1)");
  app.add_option("--tries", arguments.tries, "maximum number of tries of a disturbed run (1)")
      ->check(CLI::Range(1, 100));
  app.add_option(
      "--waited-max", arguments.waited_max,
      "a run is disturbed if the worker waited for a core longer than this part of it (0.1)");
  app.add_option("--json", arguments.json, "write the rows to this file");
  CLI11_PARSE(app, argc, argv);
  for (const std::string& line : Environment()) std::printf("%s\n", line.c_str());
  return Comparison(arguments).Run();
}

}  // namespace
}  // namespace gpushared::testing

int main(int argc, char** argv) {
  return gpushared::testing::RunProgram([&] { return gpushared::testing::Run(argc, argv); });
}
