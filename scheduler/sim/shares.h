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

// Accuracy of shares in a run. Device time that clients held is scaled to the sum of the due time,
// so that device idle time between kernels does not count against any client.
struct ShareReport {
  // Largest difference, over all clients and windows, between the client's share of a window and
  // the share due to it.
  double error_max = 0;
  // Jain's fairness index of held ÷ due over the whole run (Jain, Chiu and Hawe, 1984): 1 if all
  // ratios are equal.
  double jain = 0;
  double least_ratio = 0, greatest_ratio = 0;  // Extremes of held ÷ due over the whole run.
};

// Largest difference, over all capped clients and samples a second apart, between the client's
// share of the second and its cap. It is also large if low demand or other clients leave a client
// below its cap.
double CapErrorMax(const std::vector<ShareSample>& samples,
                   const std::vector<std::uint32_t>& max_shares);

// Computes the report. `samples` are cumulative, at equal intervals. Clients to which nothing was
// due do not count.
ShareReport ReportShares(const std::vector<ShareSample>& samples);

struct ShareOptions {
  std::vector<std::uint32_t> weights = {1, 1};
  scheduler::SchedulingClass scheduling_class = scheduler::SchedulingClass::kNormal;
  // Caps of the first clients, in thousandths of device time; kSharePerMilleMax means no cap.
  std::vector<std::uint32_t> max_shares = {};
  std::uint32_t seed = 1;  // Seed of the choice of kernels.
  // Every second client alternates between being busy and sleeping for this long, and arrives after
  // a first sleep. With 0, all clients are always busy.
  double sleep_s = 0;
  // Number of steps that a client keeps enqueued. With 1, the client waits for each of its steps.
  std::size_t depth = 2;
  // If zero: 100 slices of the smallest share, but at least 2 s.
  scheduler::Duration length{};
};

// Returns a scenario of clients with kernels of 50 us to 2 ms, different for each; samples are one
// second apart.
Scenario MakeShareScenario(const ShareOptions& options, scheduler::Duration slice);

}  // namespace gpushared::simulation

#endif  // GPUSHARED_SCHEDULER_SIM_SHARES_H_
