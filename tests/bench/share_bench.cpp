// SPDX-License-Identifier: Apache-2.0
// Device time of real processes on the cpu device compared with their weights, measured as
// `gpushared-sim shares` measures simulated ones.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <map>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "scheduler/sim/shares.h"
#include "tests/bench/machine_noise.h"
#include "tests/bench/replay_clients.h"
#include "tests/bench/report.h"
#include "tests/support/server_process.h"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

namespace gpushared::testing {
namespace {

using namespace std::chrono_literals;
using simulation::ShareSample;
using std::chrono::nanoseconds;

struct Arguments {
  std::size_t clients = 2;
  std::uint32_t spread = 1;
  unsigned scale = 4;
  double seconds = 20;
  std::uint32_t seed = 1;
  std::string policy = "fair";
  bool sleeps = false;
};

// The guaranteed error bound, and the maximum part of a window during which the machine may keep
// the worker off its cores without the window being ignored.
constexpr double kErrorMax = 0.02, kDisturbedMax = 0.02;

// Device time of one batch. Two batches are queued, so that a process that is kept off its core for
// this long does not run out of work.
constexpr nanoseconds kBatchTime = 200ms;
constexpr std::size_t kBatchMax = 1500;  // Launches; two batches fit into the ring.

[[noreturn]] void LaunchWithoutEnd(const ClientOptions& options, Hold hold,
                                   const simulation::Job& job) {
  const HoldingClient holding(options, hold);
  const Event ends[2] = {Must(holding.client.CreateEvent()), Must(holding.client.CreateEvent())};
  const simulation::Kernel& kernel = job.kernels.front();
  const auto kernels = static_cast<std::size_t>(kBatchTime / simulation::SoloTime(kernel, 1));
  const std::size_t launches = std::clamp<std::size_t>(kernels, 1, kBatchMax);
  for (std::size_t batch = 0;; ++batch) {
    if (batch >= 2) Must(ends[batch % 2].Synchronize());
    for (std::size_t i = 0; i < launches; ++i) holding.Launch(job);
    Must(holding.stream.Record(ends[batch % 2]));
  }
}

// Returns weights from 1 to `spread`, evenly spaced on a logarithmic scale.
std::vector<std::uint32_t> SpreadWeights(const Arguments& arguments) {
  std::vector<std::uint32_t> weights;
  for (std::size_t i = 0; i < arguments.clients; ++i) {
    const double part = static_cast<double>(i) / static_cast<double>(arguments.clients - 1);
    weights.push_back(static_cast<std::uint32_t>(std::lround(std::pow(arguments.spread, part))));
  }
  return weights;
}

// Adds the device time of every object that has a name and a device time to `times`, by name.
void Collect(const nlohmann::json& value, std::map<std::string, nanoseconds>& times) {
  if (value.is_object() && value.contains("name") && value.contains("device_time_s")) {
    times[value["name"].get<std::string>()] =
        nanoseconds(std::llround(1e9 * value["device_time_s"].get<double>()));
  }
  if (value.is_structured()) {
    for (const auto& each : value) Collect(each, times);
  }
}

// Results for an interval with at least one second of device time.
struct Window {
  double error = 0;   // Largest difference between any client's actual and due time.
  double unmade = 0;  // Like `error`, without differences that compensate for earlier ones.
  double kept = 0;    // Time for which the machine kept the worker off its cores.
};

struct Outcome {
  std::vector<Window> windows;
  std::vector<ShareSample> samples;  // Cumulative, one per window.
};

class Measurement {
 public:
  explicit Measurement(const Arguments& arguments)
      : arguments_(arguments),
        weights_(SpreadWeights(arguments)),
        server_({"--log-level", "warn", "--device", "cpu:0", "--cpu-threads", "1", "--policy",
                 arguments.policy}) {
    // Makes sure that the device exists before all clients connect at once.
    Must(Client::Connect({.name = "first", .socket = server_.socket()})).Close();
    worker_ = server_.workers().at(0);
    while (server_.Ctl({"ps", "--json"}).output.find("\"first\"") != std::string::npos)
      std::this_thread::sleep_for(5ms);
    simulation::Scenario scenario = simulation::MakeShareScenario(
        {.weights = weights_, .seed = arguments.seed, .length = 1s}, 2ms);
    for (std::size_t i = 0; i < weights_.size(); ++i) {
      simulation::Job& job = scenario.clients[i].job;
      for (simulation::Kernel& kernel : job.kernels) {
        kernel.blocks = 10;
        kernel.block_time *= arguments.scale;
      }
      const ClientOptions options{
          .name = GetName(i), .weight = weights_[i], .socket = server_.socket()};
      const Hold hold = arguments.sleeps ? Hold::kAsleep : Hold::kAwake;
      processes_.Start([&] { LaunchWithoutEnd(options, hold, job); });
    }
  }

  Outcome Run() {
    std::vector<nanoseconds> before = Held();
    while (std::find(before.begin(), before.end(), 0ns) != before.end()) {
      processes_.CheckAlive();
      std::this_thread::sleep_for(50ms);
      before = Held();
    }
    const std::vector<nanoseconds> start = before;
    Outcome outcome;
    nanoseconds missing = 1s;
    nanoseconds kept_before = KeptFromCores(worker_);
    while (Total(before) - Total(start) < std::chrono::duration<double>(arguments_.seconds)) {
      // Device time does not pass faster than real time, so earlier queries would only cost the
      // server time.
      std::this_thread::sleep_for(std::max<nanoseconds>(missing, 5ms));
      processes_.CheckAlive();
      const std::vector<nanoseconds> now = Held();
      missing = 1s - (Total(now) - Total(before));
      if (missing > 0ns) continue;
      const nanoseconds kept = KeptFromCores(worker_);
      outcome.windows.push_back(Judge(start, before, now, kept - kept_before));
      outcome.samples.push_back(Since(start, now));
      before = now;
      kept_before = kept;
      missing = 1s;
    }
    return outcome;
  }

 private:
  static std::string GetName(std::size_t client) { return "client-" + std::to_string(client); }

  static nanoseconds Total(const std::vector<nanoseconds>& times) {
    return std::accumulate(times.begin(), times.end(), nanoseconds());
  }

  ShareSample Since(const std::vector<nanoseconds>& start,
                    const std::vector<nanoseconds>& now) const {
    const auto sum = std::accumulate(weights_.begin(), weights_.end(), std::uint32_t{0});
    const nanoseconds length = Total(now) - Total(start);
    ShareSample sample;
    for (std::size_t i = 0; i < weights_.size(); ++i) {
      sample.held.push_back(now[i] - start[i]);
      sample.due.push_back(length * weights_[i] / sum);
    }
    return sample;
  }

  Window Judge(const std::vector<nanoseconds>& start, const std::vector<nanoseconds>& before,
               const std::vector<nanoseconds>& now, nanoseconds kept) const {
    const ShareSample at_begin = Since(start, before), at_end = Since(start, now);
    nanoseconds error{}, unmade{};
    for (std::size_t i = 0; i < weights_.size(); ++i) {
      const nanoseconds ahead_before = at_begin.held[i] - at_begin.due[i];
      const nanoseconds ahead = at_end.held[i] - at_end.due[i];
      error = std::max(error, std::chrono::abs(ahead - ahead_before));
      // A change that reduces an earlier difference, down to zero, is not counted.
      const auto [least, most] = std::minmax({ahead_before, nanoseconds()});
      unmade = std::max({unmade, ahead - most, least - ahead});
    }
    const auto length = static_cast<double>((Total(now) - Total(before)).count());
    const auto part = [&](nanoseconds time) { return static_cast<double>(time.count()) / length; };
    return {.error = part(error), .unmade = part(unmade), .kept = part(kept)};
  }

  std::vector<nanoseconds> Held() const {
    std::map<std::string, nanoseconds> times;
    Collect(nlohmann::json::parse(server_.Ctl({"ps", "--json"}).output, nullptr, false), times);
    std::vector<nanoseconds> held;
    for (std::size_t i = 0; i < weights_.size(); ++i) held.push_back(times[GetName(i)]);
    return held;
  }

  const Arguments arguments_;
  const std::vector<std::uint32_t> weights_;
  const ServerProcess server_;
  pid_t worker_ = -1;
  ClientProcesses processes_;
};

void Print(const Outcome& outcome) {
  const auto print_worst = [&](const char* which, auto value, auto is_counted) {
    double worst = 0;
    std::size_t count = 0;
    for (const Window& window : outcome.windows) {
      if (!is_counted(window)) continue;
      worst = std::max(worst, value(window));
      ++count;
    }
    std::printf("%-40s %6.2f points in the worst of %zu windows\n", which, 100 * worst, count);
  };
  const auto error = [](const Window& each) { return each.error; };
  const auto is_any = [](const Window&) { return true; };
  const auto is_undisturbed = [](const Window& each) { return each.kept <= kDisturbedMax; };
  const auto unmade = [](const Window& each) { return each.unmade; };
  print_worst("error of 1 s", error, is_any);
  print_worst("... without compensation of earlier ones", unmade, is_any);
  print_worst("... with worker off its cores < 2 %", unmade, is_undisturbed);
  const auto is_beyond = [](const Window& each) { return each.error > kErrorMax; };
  std::printf("%-40s %3td of %zu windows\n", "more than 2 points",
              std::count_if(outcome.windows.begin(), outcome.windows.end(), is_beyond),
              outcome.windows.size());
  double kept = 0;
  for (const Window& window : outcome.windows) kept += window.kept;
  std::printf("%-40s %6.2f points of a window\n", "worker kept off its cores",
              100 * kept / static_cast<double>(outcome.windows.size()));
  const simulation::ShareReport report = simulation::ReportShares(outcome.samples);
  std::printf("over all: Jain's index %.4f, received / due %.3f to %.3f\n", report.jain,
              report.least_ratio, report.greatest_ratio);
}

int Run(int argc, char** argv) {
  CLI::App app("device time of real processes against their weights");
  Arguments arguments;
  app.add_option("--clients", arguments.clients, "processes (2)")->check(CLI::Range(2, 64));
  app.add_option("--spread", arguments.spread, "weights range from 1 to this (1)")
      ->check(CLI::Range(1, 1000));
  app.add_option("--scale", arguments.scale, "kernels take this many times 50 us to 2 ms (4)")
      ->check(CLI::Range(1, 100));
  app.add_option("--seconds", arguments.seconds, "device time to measure (20)")
      ->check(CLI::Range(1.0, 3600.0));
  app.add_option("--seed", arguments.seed, "seed of the kernels (1)");
  app.add_option("--policy", arguments.policy, "policy of the server (fair)");
  app.add_flag("--sleep", arguments.sleeps, "kernels mostly sleep, for machines with other work");
  CLI11_PARSE(app, argc, argv);
  for (const std::string& line : Environment()) std::printf("%s\n", line.c_str());
  const Outcome outcome = Measurement(arguments).Run();
  std::printf("policy %s, %zu clients, weights 1 to %u\n", arguments.policy.c_str(),
              arguments.clients, arguments.spread);
  Print(outcome);
  return 0;
}

}  // namespace
}  // namespace gpushared::testing

int main(int argc, char** argv) {
  return gpushared::testing::RunProgram([&] { return gpushared::testing::Run(argc, argv); });
}
