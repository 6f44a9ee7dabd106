// SPDX-License-Identifier: Apache-2.0
// What the operator gives to Slurm's jobs, and what of it one step gets. Pure: no Slurm, no server.

#ifndef GPUSHARED_SERVER_TOOLS_CLUSTER_SLURM_JOB_RULES_H_
#define GPUSHARED_SERVER_TOOLS_CLUSTER_SLURM_JOB_RULES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "gpushared/result.h"

#include "scheduler/share_caps.h"
#include "scheduler/types.h"

namespace gpushared::slurm {

// What the jobs of one QOS have, and what they may have at most. Shares are in thousandths of a
// device's time, memory is in bytes of one device.
//
// Thread-compatible value.
struct QosRule {
  scheduler::SchedulingClass usual_class = scheduler::SchedulingClass::kNormal;
  scheduler::SchedulingClass highest_class = scheduler::SchedulingClass::kNormal;
  // Jobs without a gres have it, where those are served.
  std::uint32_t share = kSharePerMilleMax;
  std::uint32_t highest_share = kSharePerMilleMax;
  std::optional<std::uint64_t> memory;          // Unset: all that is there.
  std::optional<std::uint64_t> highest_memory;  // Unset: no bound.
};

// The file slurm.toml.
//
// Thread-compatible value.
struct JobRules {
  std::string socket = "/run/gpushared/gpushared.sock";  // The node's server is there.
  bool needs_gres = true;  // Jobs to which the controller gave no share get nothing.
  std::map<std::string, QosRule, std::less<>> of_qos;
  std::optional<QosRule> of_others;  // Of QOS that have no rule. Unset: they are rejected.
};
inline constexpr std::size_t kRulesBytesMax = std::size_t{1} << 20;
inline constexpr std::size_t kQosMax = 1024;

// `source` is named in messages, with the line.
Result<JobRules> ParseJobRules(std::string_view text, std::string_view source);

// The part of this node's devices that the controller gave to a job.
//
// Thread-compatible value.
struct Allocation {
  std::optional<std::uint32_t> share;         // Thousandths.
  std::optional<std::uint64_t> memory_bytes;  // Unset: the nodes do not count it.
  std::string device;                         // "cuda:0"; empty: the gres names none.
};

// From Slurm's list of what a job has on one node, "gpushared:cuda0(CNT:25),gpu:1(IDX:0)". Rejects
// shares on more than one device: a share is of one.
Result<Allocation> ParseAllocation(std::string_view gres);

// The step's own options, as they were typed. Empty: not said.
//
// Thread-compatible value.
struct StepOptions {
  std::string scheduling_class, share, memory;
};
// Whether they have a form that makes sense.
Status CheckOptions(const StepOptions& options);

// Who the step is.
//
// Thread-compatible value.
struct StepFacts {
  std::uint32_t job = 0;
  std::string step;            // "0", "batch".
  std::uint32_t restarts = 0;  // How often the job began anew.
  std::uint32_t uid = 0;
  std::uint32_t tasks = 1;  // On this node.
  std::string qos;
};

// The terms of the step's endpoint (server/telemetry/admin, Lease), or why it is rejected. Nothing
// where the step has no part of a device and asks for none. The steps of one job have one budget,
// so that they never have more together than the controller gave to the job.
Result<std::optional<std::string>> StepTerms(const JobRules& rules, const StepFacts& step,
                                             const Allocation& has, const StepOptions& options);

}  // namespace gpushared::slurm

#endif  // GPUSHARED_SERVER_TOOLS_CLUSTER_SLURM_JOB_RULES_H_
