// SPDX-License-Identifier: Apache-2.0
// Advice as text for people and as JSON for programs.

#ifndef GPUSHARED_SCHEDULER_SIM_ADVICE_REPORT_H_
#define GPUSHARED_SCHEDULER_SIM_ADVICE_REPORT_H_

#include <string>
#include <vector>

#include "scheduler/sim/advice.h"

#include <nlohmann/json_fwd.hpp>

namespace gpushared::simulation {

// "gpushared-sim place", "gpusharedctl advise": the exit code where a job fits nowhere. No error
// has it.
inline constexpr int kFitsNowhere = 4;

// A table of all clients, the verdict, and how sure it is.
std::string AdviceText(const Advice& advice);
// The nodes of one job, the best one first.
std::string RankingText(const std::vector<Advice>& ranked);
nlohmann::ordered_json AdviceJson(const Advice& advice);

// What the job asks Slurm and Kubernetes for, a line each. `share_percent`: SmallestShare.
std::string HintText(const Profile& job, double share_percent);

}  // namespace gpushared::simulation

#endif  // GPUSHARED_SCHEDULER_SIM_ADVICE_REPORT_H_
