// SPDX-License-Identifier: Apache-2.0
// Clients, what they run and when, a GPU, and what stands before it.

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
    kEndless,  // The next step as soon as one has ended.
    kOpen,     // Requests arrive, whatever became of those before.
    kClosed,   // The next request some time after the one before has ended.
    // Requests arrive, wait in the client until the one before has ended, and are timed from there.
    kOneByOne,
    // The same, but timed from their arrival.
    kInTurn,
  };
  struct Span {
    double from_s = 0, until_s = 0;
  };

  std::string name;
  scheduler::ClientSpec spec;
  std::optional<std::uint32_t> max_share = {};  // In thousandths of device time.
  Job job;
  // Unless empty: request i runs number i mod size of these, not `job`.
  std::vector<Job> jobs = {};
  Pace pace = Pace::kEndless;
  // kOpen, kOneByOne, kInTurn: arrivals, seconds from the start, ascending. kClosed: the pause
  // before each request.
  std::vector<double> times_s;
  // kEndless: steps enqueued ahead, at least one, and when it is awake, ascending; empty: always.
  // A step that has begun is brought to its end.
  std::size_t depth = 1;
  std::vector<Span> awake;
};

struct Scenario {
  std::vector<ClientPlan> clients;
  // Zero: until all requests have ended. What is open then counts as far as it came.
  scheduler::Duration length{};
  // Zero: shares are not sampled.
  scheduler::Duration sample_every{};
};

// Cumulative, per client.
struct ShareSample {
  std::vector<scheduler::Duration> held;  // Device time charged; work done where nobody charges.
  std::vector<scheduler::Duration> due;   // By weight, of the time in which it had work.
};

struct ClientOutcome {
  // From its arrival, or as its pace says, to the client knowing its end, per request in order of
  // arrival.
  std::vector<scheduler::Duration> request_times;
  double jobs = 0;  // Requests or steps, whole and broken.
  // Device time charged; empty where nobody charges.
  std::optional<scheduler::Duration> charged;
};

struct Outcome {
  std::vector<ClientOutcome> clients;
  double seconds = 0;  // Simulated time.
  // Time in which no high client had anything open.
  scheduler::Duration gap{};
  std::uint64_t launches = 0;
  std::uint64_t decisions = 0;  // How often our policies chose to submit something.
  std::vector<ShareSample> samples;
};

// Deterministic. Throws std::logic_error when requests are open and nothing will ever happen.
Outcome RunScenario(const SetupEntry& setup, const FrontOptions& options, const Scenario& scenario);

}  // namespace gpushared::simulation

#endif  // GPUSHARED_SCHEDULER_SIM_RUN_H_
