// SPDX-License-Identifier: Apache-2.0
// The operator's rules for Slurm jobs, and the part that one step gets. Pure functions without
// access to Slurm or the server.

#ifndef GPUSHARED_SERVER_TOOLS_CLUSTER_SLURM_JOB_RULES_H_
#define GPUSHARED_SERVER_TOOLS_CLUSTER_SLURM_JOB_RULES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gpushared/result.h"

#include "scheduler/share_caps.h"
#include "scheduler/types.h"

namespace gpushared::slurm {

// Defaults and limits for jobs of one QOS. Shares are in thousandths of a device's time, memory is
// in bytes of one device.
//
// Thread-compatible value.
struct QosRule {
  scheduler::SchedulingClass usual_class = scheduler::SchedulingClass::kNormal;
  scheduler::SchedulingClass highest_class = scheduler::SchedulingClass::kNormal;
  // Default share of jobs without a gres, if such jobs are served.
  std::uint32_t share = kSharePerMilleMax;
  std::uint32_t highest_share = kSharePerMilleMax;
  std::optional<std::uint64_t> memory;          // If unset, all of the device's memory.
  std::optional<std::uint64_t> highest_memory;  // If unset, there is no limit.
};

// Contents of the file slurm.toml.
//
// Thread-compatible value.
struct JobRules {
  std::string socket = "/run/gpushared/gpushared.sock";  // Socket of the node's server.
  bool needs_gres = true;  // Whether only jobs with a share from the controller get access.
  std::map<std::string, QosRule, std::less<>> of_qos;
  // Rule for each QOS without a separate rule. If unset, jobs of such a QOS are rejected.
  std::optional<QosRule> of_others;
};
inline constexpr std::size_t kRulesBytesMax = std::size_t{1} << 20;
inline constexpr std::size_t kQosMax = 1024;

// `source` is named in messages, with the line.
Result<JobRules> ParseJobRules(std::string_view text, std::string_view source);

// The part of this node's devices that the controller allocated to a job.
//
// Thread-compatible value.
struct Allocation {
  std::optional<std::uint32_t> share;         // Thousandths of a device's time.
  std::optional<std::uint64_t> memory_bytes;  // Unset if the nodes do not count memory.
  std::string type;  // Type of the gres, such as "h100" or "cuda0"; empty if the nodes have none.
};

// Parses Slurm's list of a job's resources on one node, "gpushared:cuda0(CNT:25),gpu:1(IDX:0)".
// Rejects shares of more than one type, because a share refers to a single device.
Result<Allocation> ParseAllocation(std::string_view gres);

// A device of the node's server.
struct NodeDevice {
  std::string device, name;  // "cuda:0", "NVIDIA H100 80GB HBM3".
};
// Returns the device to which the type refers. A type is a device's id without the colon, such as
// "cuda0", or one or more words of the device's name, such as "h100", as in Slurm's gres/gpu.
// Rejects a type that refers to no device or to several devices.
Result<std::string> DeviceOfType(std::string_view type, const std::vector<NodeDevice>& devices);

// Options of the step as typed; empty if not given.
//
// Thread-compatible value.
struct StepOptions {
  std::string scheduling_class, share, memory;
};
// Checks the syntax of the options.
Status CheckOptions(const StepOptions& options);

// Identity of the step.
//
// Thread-compatible value.
struct StepFacts {
  std::uint32_t job = 0;
  std::string step;            // Name of the step: "0", "batch".
  std::uint32_t restarts = 0;  // Number of times that the job was restarted.
  std::uint32_t uid = 0;
  std::uint32_t tasks = 1;  // Number of tasks on this node.
  std::string qos;
};

// Returns the terms of the step's endpoint (server/telemetry/admin, Lease), or why the step is
// rejected. Returns no value if the step has no share of a device and requests none. The steps of
// one job share a budget, so that together they never exceed what the controller allocated to the
// job. With `device`, the endpoint permits this device only.
Result<std::optional<std::string>> StepTerms(const JobRules& rules, const StepFacts& step,
                                             const Allocation& has, const std::string& device,
                                             const StepOptions& options);

}  // namespace gpushared::slurm

#endif  // GPUSHARED_SERVER_TOOLS_CLUSTER_SLURM_JOB_RULES_H_
