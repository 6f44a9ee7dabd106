// SPDX-License-Identifier: Apache-2.0
// Latency-critical high-class clients alongside best-effort low-class clients that train
// continuously, at one load under several policies.

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

// Returns the element of rank floor(fraction × (n − 1)), counted from 0, of the n elements in
// ascending order. `times` must not be empty.
scheduler::Duration Percentile(std::vector<scheduler::Duration> times, double fraction);

inline double Seconds(scheduler::Duration time) {
  return std::chrono::duration<double>(time).count();
}

// Returns the latency of one request, from its arrival until the client is notified, on an idle GPU
// without a scheduler.
scheduler::Duration ServiceTime(const FrontOptions& options, const Job& job);

// A row of the comparison.
struct Row {
  std::string policy, high, low, arrivals;
  // Requested load: arrival rate × time of one request alone, over all high clients.
  double load = 0;
  double p99_alone_ms = 0;   // Measured natively, with the same arrivals and no low clients.
  double p99_inflation = 0;  // p99 shared ÷ p99 alone − 1.
  double p99_added_ms = 0;   // p99 of shared − alone, request by request.
  double latency_target_ms = 0;
  double target_met = 0;                           // Fraction of requests that met their target.
  double gap_used = 0;                             // Low steps/s ÷ alone ÷ (1 − load).
  double high_throughput = 0, low_throughput = 0;  // Throughput relative to running alone.
  // Launches of the run of this row. The first row of a cell includes those of the runs alone.
  std::uint64_t launches = 0;
  std::uint64_t decisions = 0;  // Submissions decided by our policies.
};

struct CellOptions {
  Job high, low;
  // Number of high clients. Each has its part of the load and of the requests, and its own
  // arrivals.
  std::size_t high_clients = 1;
  std::size_t low_clients = 1;
  double load = 0.5;
  // A kind of MakeArrivals, or "closed": each request follows the end of the previous one after an
  // exponentially distributed pause, such that the load results when the client is alone.
  std::string arrivals = "poisson";
  // Whether a client starts a request only when the previous one has ended, and measures the
  // latency from that start (Pace::kOneByOne).
  bool one_by_one = false;
  std::size_t requests = 10'000;
  std::uint32_t seed = 1;
  // Latency target of a request; 5 % above the p99 alone when empty.
  std::optional<scheduler::Duration> target;
  FrontOptions front;
};

// Runs one pair at one load under each of `contestants`. Deterministic by seed.
Result<std::vector<Row>> RunCell(const CellOptions& options,
                                 const std::vector<SetupEntry>& contestants);

}  // namespace gpushared::simulation

#endif  // GPUSHARED_SCHEDULER_SIM_EXPERIMENT_H_
