// SPDX-License-Identifier: Apache-2.0
// Validation of shares: whether clients get the device time due to them.

#ifndef GPUSHARED_SCHEDULER_SIM_SHARES_H_
#define GPUSHARED_SCHEDULER_SIM_SHARES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "scheduler/sim/run.h"

namespace gpushared::simulation {

// Accuracy of shares in a run. Held time is scaled to the sum of the due time, so that device idle
// time between kernels does not count against any client.
struct ShareReport {
  // Largest difference, over all clients and windows, between the client's share of a window and
  // the share due to it.
  double error_max = 0;
  // Jain's fairness index of held ÷ due over the whole run (Jain, Chiu and Hawe, 1984): 1 when all
  // are equal.
  double jain = 0;
  double least_ratio = 0, greatest_ratio = 0;  // Held ÷ due, over the whole run.
};

// Largest difference, over all capped clients and samples a second apart, between the client's
// share of the second and its cap. Low demand, or other clients, may leave it below its cap.
double CapErrorMax(const std::vector<ShareSample>& samples,
                   const std::vector<std::uint32_t>& max_shares);

// `samples` are cumulative, at equal intervals. Clients to which nothing was due do not count.
ShareReport ReportShares(const std::vector<ShareSample>& samples);

struct ShareOptions {
  std::vector<std::uint32_t> weights = {1, 1};
  scheduler::SchedulingClass scheduling_class = scheduler::SchedulingClass::kNormal;
  // In thousandths of device time, for the first clients; kSharePerMilleMax: no cap.
  std::vector<std::uint32_t> max_shares = {};
  std::uint32_t seed = 1;  // Chooses the kernels.
  // Every second client alternates between being busy and sleeping for this long, and arrives with
  // the same delay; 0: all are always busy.
  double sleep_s = 0;
  // Minimum number of steps enqueued by a client. With 1 it waits for each of its steps.
  std::size_t depth = 2;
  // Zero: 100 slices of the smallest share, and at least 2 s.
  scheduler::Duration length{};
};

// Clients with kernels of 50 us to 2 ms, different for each; samples are one second apart.
Scenario MakeShareScenario(const ShareOptions& options, scheduler::Duration slice);

}  // namespace gpushared::simulation

#endif  // GPUSHARED_SCHEDULER_SIM_SHARES_H_
