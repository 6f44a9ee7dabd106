// SPDX-License-Identifier: Apache-2.0
// Whether a job fits beside those that a device has, with the promises of all of them.

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
  std::uint32_t seed = 1;  // The first one.
  // A client that keeps less than this of its pace does not fit.
  double least_pace_percent = 0;
};

// How one client would fare. Figures are of all seeds together.
struct ClientAdvice {
  std::string name, scheduling_class;
  bool is_job = false;
  std::optional<double> latency_target_ms;
  std::size_t requests = 0;  // On which p99_ms rests: of its profile.
  // Of its requests, from arrival to end. Zero for a client without.
  double p99_now_ms = 0;  // Without the job; of the job, alone on this device.
  double p99_ms = 0;
  // 95 of 100 such recordings would have led to a p99 in here, as far as can be told: from seeds,
  // the number of recorded requests, and the device's changes of speed.
  double p99_low_ms = 0, p99_high_ms = 0;
  double met_percent = 100;
  double pace_percent = 100;  // Requests or work per second, of what it does now.
  double device_percent = 0;  // Device time.
  bool falls_behind = false;  // Requests come faster than they are answered.

  bool is_late() const { return latency_target_ms && p99_ms > *latency_target_ms; }
};

struct Advice {
  enum class Certainty : std::uint8_t { kSure, kLikely, kUnsure };

  std::string node, job, policy;
  std::size_t node_number = 0;        // Among those that Place was given.
  std::vector<ClientAdvice> clients;  // The job is the last one.
  // Time in which no client of the high class has anything open, and device time of the others.
  double gap_percent = 0, lower_percent = 0;
  double memory_mib = 0, memory_free_mib = 0;  // Of the job; zero where it is not known.
  std::vector<std::string> reasons;            // Why it does not fit; empty: it fits.
  Certainty certainty = Certainty::kSure;
  std::vector<std::string> doubts;  // Why it is not sure.

  bool fits() const { return reasons.empty(); }
};

// Deterministic by seed.
Advice Advise(const Node& node, const Profile& job, const AdviceOptions& options);

// Places each job, in their order, on the node where it fits best, beside those that were placed
// before. Tells for each job the advice about every node, the best one first. Nodes where it fits
// come first. Among them the promise that is nearest to being broken decides, then the client that
// loses most of its pace.
std::vector<std::vector<Advice>> Place(std::vector<Node> nodes, const std::vector<Profile>& jobs,
                                       const AdviceOptions& options);

// The smallest cap, in percent of device time and steps of 10, that a job which fits can bear. It
// still fits then, and keeps 95 % of its pace.
double SmallestShare(const Node& node, const Profile& job, const AdviceOptions& options);

// The parts of the above; for tests.
FrontOptions GetFrontOptions(const Node& node);
// Its requests as recorded for the first of all `turns`, and begun elsewhere in the recording for
// the others.
ClientPlan GetPlan(const Profile& profile, const Node& node, double seconds, std::size_t turn,
                   std::uint32_t seed);
// How sure, from the figures and from what they rest on.
void Judge(const Node& node, const Profile& job, const AdviceOptions& options, Advice& advice);

}  // namespace gpushared::simulation

#endif  // GPUSHARED_SCHEDULER_SIM_ADVICE_H_
