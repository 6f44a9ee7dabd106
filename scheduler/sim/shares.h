// SPDX-License-Identifier: Apache-2.0
// Whether clients get the device time that is due to them.

#ifndef GPUSHARED_SCHEDULER_SIM_SHARES_H_
#define GPUSHARED_SCHEDULER_SIM_SHARES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "scheduler/sim/run.h"

namespace gpushared::simulation {

// How well a run kept to the weights. Held time is scaled to the sum of what was due, so that a
// device which is idle between kernels is nobody's loss.
struct ShareReport {
  // Largest difference, over all clients and windows, of the part of a window that a client held
  // and the part that was due to it.
  double error_max = 0;
  // Of held ÷ due over the whole run (Jain, Chiu and Hawe, 1984): 1 when all are equal.
  double jain = 0;
  double least_ratio = 0, greatest_ratio = 0;  // Held ÷ due, over the whole run.
};

// `samples` are cumulative and equally far apart; clients to which nothing was due do not count.
// The largest difference, over all capped clients and samples a second apart, of the part of the
// second that a client held and its cap. Its own demand, or others, may leave it below that.
double CapErrorMax(const std::vector<ShareSample>& samples,
                   const std::vector<std::uint32_t>& max_shares);

ShareReport ReportShares(const std::vector<ShareSample>& samples);

struct ShareOptions {
  std::vector<std::uint32_t> weights = {1, 1};
  scheduler::SchedulingClass scheduling_class = scheduler::SchedulingClass::kNormal;
  // In thousandths of device time, for the first clients; kSharePerMilleMax: no cap.
  std::vector<std::uint32_t> max_shares = {};
  std::uint32_t seed = 1;  // Chooses the kernels.
  // Every second client sleeps for this long after being busy for this long, and comes with as
  // much delay; 0: all are busy all the time.
  double sleep_s = 0;
  // Steps that a client has enqueued at least. With 1 it waits for each of its steps.
  std::size_t depth = 2;
  // Zero: 100 slices of the smallest share, and 2 s at least.
  scheduler::Duration length{};
};

// Clients whose kernels take 50 us to 2 ms, each its own; samples are one second apart.
Scenario MakeShareScenario(const ShareOptions& options, scheduler::Duration slice);

}  // namespace gpushared::simulation

#endif  // GPUSHARED_SCHEDULER_SIM_SHARES_H_
