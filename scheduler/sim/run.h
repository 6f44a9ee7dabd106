// SPDX-License-Identifier: Apache-2.0
// Simulation of one scenario: clients, their work and arrivals, a GPU, and the front between them.

#ifndef GPUSHARED_SCHEDULER_SIM_RUN_H_
#define GPUSHARED_SCHEDULER_SIM_RUN_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "scheduler/sim/front.h"
#include "scheduler/sim/job.h"

namespace gpushared::simulation {

struct ClientPlan {
  enum class Pace : std::uint8_t {
    kEndless,  // The next step starts as soon as the previous one has ended.
    kOpen,     // Requests arrive independently of earlier ones.
    kClosed,   // The next request starts some time after the previous one has ended.
    // Requests arrive and wait in the client until the previous one has ended. Latency counts from
    // the end of that wait.
    kOneByOne,
    // As kOneByOne, but latency counts from the arrival.
    kInTurn,
  };
  struct Span {
    double from_s = 0, until_s = 0;
  };

  std::string name;
  scheduler::ClientSpec spec;
  std::optional<std::uint32_t> max_share = {};  // In thousandths of device time.
  Job job;
  // If not empty, request i runs jobs[i mod size] instead of `job`.
  std::vector<Job> jobs = {};
  Pace pace = Pace::kEndless;
  // With kOpen, kOneByOne and kInTurn: arrivals in seconds from the start, ascending. With kClosed:
  // the pause before each request, in seconds.
  std::vector<double> times_s;
  // With kEndless: the number of steps enqueued ahead (at least one), and the ascending spans in
  // which the client is awake (always, if empty). A step that has begun is completed.
  std::size_t depth = 1;
  std::vector<Span> awake;
};

struct Scenario {
  std::vector<ClientPlan> clients;
  // If zero, the scenario lasts until all requests have ended. Otherwise, requests open at the end
  // count partially.
  scheduler::Duration length{};
  // If zero, shares are not sampled.
  scheduler::Duration sample_every{};
};

// Cumulative values, per client.
struct ShareSample {
  // Device time charged, or work done under fronts that do not charge.
  std::vector<scheduler::Duration> held;
  // Device time due to the client by its weight, while it had work.
  std::vector<scheduler::Duration> due;
};

struct ClientOutcome {
  // Latency of each request, in order of arrival: from the moment that the client's Pace defines
  // until the client is notified of the end.
  std::vector<scheduler::Duration> request_times;
  double jobs = 0;  // Requests or steps, including fractions.
  // Device time charged; empty under fronts that do not charge.
  std::optional<scheduler::Duration> charged;
};

struct Outcome {
  std::vector<ClientOutcome> clients;
  double seconds = 0;  // Simulated time.
  // Time in which no high client had anything open.
  scheduler::Duration gap{};
  std::uint64_t launches = 0;
  std::uint64_t decisions = 0;  // Submissions decided by our policies.
  std::vector<ShareSample> samples;
};

// Runs the scenario; deterministic. Throws std::logic_error if requests are open and no event is
// left.
Outcome RunScenario(const SetupEntry& setup, const FrontOptions& options, const Scenario& scenario);

}  // namespace gpushared::simulation

#endif  // GPUSHARED_SCHEDULER_SIM_RUN_H_
