// SPDX-License-Identifier: Apache-2.0
// High-class clients that answer requests, low-class clients that train without end, at one load
// under one policy after the other.

#ifndef GPUSHARED_SCHEDULER_SIM_EXPERIMENT_H_
#define GPUSHARED_SCHEDULER_SIM_EXPERIMENT_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gpushared/result.h"

#include "scheduler/sim/front.h"
#include "scheduler/sim/job.h"
#include "scheduler/sim/run.h"

namespace gpushared::simulation {

// The smallest value that `fraction` of all do not exceed. `times` is not empty.
scheduler::Duration Percentile(std::vector<scheduler::Duration> times, double fraction);

// Tables and files tell times so.
inline double Seconds(scheduler::Duration time) {
  return std::chrono::duration<double>(time).count();
}

// From its arrival to the client knowing its end, on an idle GPU without a scheduler.
scheduler::Duration ServiceTime(const FrontOptions& options, const Job& job);

// One row of the comparison.
struct Row {
  std::string policy, high, low, arrivals;
  double load = 0;           // Asked: arrival rate × time of one request alone, all high clients.
  double p99_alone_ms = 0;   // Natively, with the same arrivals and without low clients.
  double p99_inflation = 0;  // p99 shared ÷ p99 alone − 1.
  double p99_added_ms = 0;   // p99 of shared − alone, request by request.
  double latency_target_ms = 0;
  double target_met = 0;                           // Part of the requests.
  double gap_used = 0;                             // Low steps/s ÷ alone ÷ (1 − load).
  double high_throughput = 0, low_throughput = 0;  // Relative to alone.
  // Simulated for this row; the runs alone are with the first row of their cell.
  std::uint64_t launches = 0;
  std::uint64_t decisions = 0;  // How often our policies chose to submit something.
};

struct CellOptions {
  Job high, low;
  // Each with its part of the load and of the requests, and its own arrivals.
  std::size_t high_clients = 1;
  std::size_t low_clients = 1;
  double load = 0.5;
  // Of MakeArrivals, or "closed": each request some time after the one before has ended,
  // exponentially distributed so that alone the load comes out.
  std::string arrivals = "poisson";
  // A client takes up its next request when the one before has ended, and times it from there.
  bool one_by_one = false;
  std::size_t requests = 10'000;
  std::uint32_t seed = 1;
  // What a request is to take at most; 5 % above the p99 alone when empty.
  std::optional<scheduler::Duration> target;
  FrontOptions front;
};

// One pair at one load under each of `contestants`. Deterministic by seed.
Result<std::vector<Row>> RunCell(const CellOptions& options,
                                 const std::vector<SetupEntry>& contestants);

}  // namespace gpushared::simulation

#endif  // GPUSHARED_SCHEDULER_SIM_EXPERIMENT_H_
