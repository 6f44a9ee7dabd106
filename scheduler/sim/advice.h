// SPDX-License-Identifier: Apache-2.0
// Advice on whether a job fits onto a device alongside its present clients, with all latency
// targets met.

#ifndef GPUSHARED_SCHEDULER_SIM_ADVICE_H_
#define GPUSHARED_SCHEDULER_SIM_ADVICE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "scheduler/sim/front.h"
#include "scheduler/sim/profile.h"
#include "scheduler/sim/run.h"

namespace gpushared::simulation {

struct AdviceOptions {
  std::size_t seeds = 5;
  std::uint32_t seed = 1;  // The first seed.
  // A client that retains less than this percentage of its pace does not fit.
  double least_pace_percent = 0;
};

// Predicted figures of one client, over all seeds together.
struct ClientAdvice {
  std::string name, scheduling_class;
  bool is_job = false;
  std::optional<double> latency_target_ms;
  std::size_t requests = 0;  // Sample size of p99_ms: recorded or drawn requests.
  // Latency from arrival to end. Zero for a client without requests.
  double p99_now_ms = 0;  // p99 without the job; for the job itself, its p99 alone on this device.
  double p99_ms = 0;
  // 95 % confidence interval of p99_ms, as far as it can be estimated from the seeds and the number
  // of recorded requests.
  double p99_low_ms = 0, p99_high_ms = 0;
  double met_percent = 100;
  double pace_percent = 100;  // Requests or work per second, relative to the present rate.
  double device_percent = 0;  // Share of device time.
  bool falls_behind = false;  // Whether requests arrive faster than they are served.

  bool is_late() const { return latency_target_ms && p99_ms > *latency_target_ms; }
};

struct Advice {
  enum class Certainty : std::uint8_t { kSure, kLikely, kUnsure };

  std::string node, job, policy;
  std::size_t node_number = 0;        // Index of the node in the argument of Place.
  std::vector<ClientAdvice> clients;  // Includes the job as the last element.
  // Time in which no high-class client has anything open, and device time of the other classes.
  double gap_percent = 0, lower_percent = 0;
  double memory_mib = 0, memory_free_mib = 0;  // Of the job and of the node; zero if unknown.
  std::vector<std::string> reasons;  // Reasons why the job does not fit; empty if it fits.
  Certainty certainty = Certainty::kSure;
  std::vector<std::string> doubts;  // Reasons why the advice is uncertain.

  bool fits() const { return reasons.empty(); }
};

// Predicts the latency and pace of `job` and of the node's clients. Deterministic by seed.
Advice Advise(const Node& node, const Profile& job, const AdviceOptions& options);

// Places each job, in order, on the node where it fits best, alongside the jobs placed before it.
// Returns for each job the advice for all nodes, best first: nodes where the job fits, then the
// others. Each of the two parts is ordered by the largest ratio of p99 to latency target of any
// client, then by the largest loss of pace of any client, both ascending.
std::vector<std::vector<Advice>> Place(std::vector<Node> nodes, const std::vector<Profile>& jobs,
                                       const AdviceOptions& options);

// Returns the smallest cap, in percent of device time and in steps of 10, under which a job that
// fits still fits and retains 95 % of its device time.
double SmallestShare(const Node& node, const Profile& job, const AdviceOptions& options);

// The functions below are parts of those above, declared for tests.
FrontOptions GetFrontOptions(const Node& node);
// Returns the plan of the client's requests. The plan of turn 0 follows the recording from its
// beginning; those of other turns begin at a random place in it.
ClientPlan GetPlan(const Profile& profile, const Node& node, double seconds, std::size_t turn,
                   std::uint32_t seed);
// Sets the certainty of the advice, from its figures and their sample sizes.
void Judge(const Node& node, const Profile& job, const AdviceOptions& options, Advice& advice);

}  // namespace gpushared::simulation

#endif  // GPUSHARED_SCHEDULER_SIM_ADVICE_H_
