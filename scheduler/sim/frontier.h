// SPDX-License-Identifier: Apache-2.0
// Bounds of what any scheduler can reach for a pair of jobs: p99 inflation against throughput of
// the low class.

#ifndef GPUSHARED_SCHEDULER_SIM_FRONTIER_H_
#define GPUSHARED_SCHEDULER_SIM_FRONTIER_H_

#include <optional>
#include <span>
#include <vector>

#include "scheduler/sim/front.h"
#include "scheduler/sim/job.h"

namespace gpushared::simulation {

struct FrontierOptions {
  FrontOptions front;
  double load = 0.44;
  // Time from the arrival of a request until no further block of a low kernel starts.
  scheduler::Duration stop = std::chrono::microseconds(12);
};

struct Frontier {
  // Throughput, relative to running alone, of a low client whose scheduler knows all arrivals in
  // advance. The scheduler fills each pause with whole blocks, so that no request is delayed.
  double low_if_arrivals_known = 0;
  // The smallest p99 inflation for which the low class need not be slowed.
  double inflation_at_full_speed = 0;
  // For each requested p99 inflation, the low client's relative throughput if only the distribution
  // of arrivals is known; empty if no schedule of all low kernels keeps p99 within the inflation.
  std::vector<std::optional<double>> low;
};

// Computes the frontier for requests that arrive at random (Poisson) and are served one at a time.
//
// Poisson arrivals are memoryless, so the scheduler can choose only on how many multiprocessors
// each low kernel runs. On fewer multiprocessors a kernel takes more waves, but delays a request by
// less. For a given bound, kernels are slowed until at most one request in a hundred exceeds it.
// Each step slows the kernel whose slowing removes the most time with excessive delay per unit of
// lost time.
Frontier ComputeFrontier(const Job& high, const Job& low, std::span<const double> inflations,
                         const FrontierOptions& options);

}  // namespace gpushared::simulation

#endif  // GPUSHARED_SCHEDULER_SIM_FRONTIER_H_
