// SPDX-License-Identifier: Apache-2.0
// Human-readable and JSON output of advice.

#ifndef GPUSHARED_SCHEDULER_SIM_ADVICE_REPORT_H_
#define GPUSHARED_SCHEDULER_SIM_ADVICE_REPORT_H_

#include <string>
#include <vector>

#include "scheduler/sim/advice.h"

#include <nlohmann/json_fwd.hpp>

namespace gpushared::simulation {

// Exit code of `gpushared-sim place` and `gpusharedctl advise` when a job fits on no node. Distinct
// from all exit codes of errors.
inline constexpr int kFitsNowhere = 4;

// Formats a table of all clients, the verdict, and its certainty.
std::string AdviceText(const Advice& advice);
// Formats the nodes for one job, best first.
std::string RankingText(const std::vector<Advice>& ranked);
nlohmann::ordered_json AdviceJson(const Advice& advice);

// Formats the job's resource requests for Slurm and Kubernetes, one per line. `share_percent` is
// the result of SmallestShare.
std::string HintText(const Profile& job, double share_percent);

}  // namespace gpushared::simulation

#endif  // GPUSHARED_SCHEDULER_SIM_ADVICE_REPORT_H_
