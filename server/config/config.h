// SPDX-License-Identifier: Apache-2.0
// The operator's settings, typed and validated. See read_config.h for how they are read.

#ifndef GPUSHARED_SERVER_CONFIG_CONFIG_H_
#define GPUSHARED_SERVER_CONFIG_CONFIG_H_

#include <sys/types.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gpushared/result.h"

#include "scheduler/share_caps.h"
#include "scheduler/types.h"
#include "server/config/config_values.h"
#include "server/config/subject.h"
#include "server/device/isolation.h"
#include "server/worker/control/worker_settings.h"

namespace gpushared::server {

enum class LogLevel : std::uint8_t { kTrace, kDebug, kInfo, kWarn, kError };
inline constexpr std::array<std::string_view, 5> kLogLevelNames = {"trace", "debug", "info", "warn",
                                                                   "error"};
inline std::string_view LogLevelName(LogLevel level) {
  return kLogLevelNames.at(static_cast<std::size_t>(level));
}

inline constexpr std::uint64_t kMemoryLeast = std::uint64_t{64} << 20;
inline constexpr std::uint64_t kStagingLeast = std::uint64_t{64} << 20;
inline constexpr std::uint32_t kClientsPerUidMax = 64;
// Defaults without a rule: a quarter of a device's sessions, and the same share of device time as
// other clients.
inline constexpr std::uint32_t kClientsPerUidUsual = 32;
inline constexpr std::uint32_t kWeightUsual = 1;
inline constexpr std::size_t kAccessRulesMax = 256;
inline constexpr std::size_t kEndpointsMax = 64;  // Limit of endpoints in the configuration.
inline constexpr std::uint32_t kEndpointClientsMax = 8192;
inline constexpr std::size_t kEndpointNameBytesMax = 32;
// Limit of lease_grace and resume_within.
inline constexpr std::chrono::hours kLeaseGraceMost{1};

// Limits on what a client may request when it connects, and the defaults for omitted requests.
struct Allowance {
  std::string label;       // For messages: "user 'alice' (uid 1000)", "endpoint 'batch'".
  std::uint32_t line = 0;  // Line in the configuration file; 0 if the rule is not from there.
  scheduler::SchedulingClass highest_class = scheduler::SchedulingClass::kNormal;
  std::uint32_t max_weight = kWeightUsual;
  // Class and weight of clients that do not request them.
  std::optional<scheduler::SchedulingClass> usual_class;  // If unset: normal, if that is allowed.
  std::uint32_t usual_weight = kWeightUsual;
  scheduler::SchedulingClass UsualClass() const {
    return usual_class.value_or(std::max(highest_class, scheduler::SchedulingClass::kNormal));
  }
  // Whether latency targets are allowed. Under the policy `deadline` they take precedence over all
  // classes, so if this is unset, they are allowed only if class high is.
  std::optional<bool> targets;
  bool AllowsLatencyTargets() const {
    return targets.value_or(highest_class == scheduler::SchedulingClass::kHigh);
  }
  // Returns true if the clients may be of class high and may therefore use the sessions and the
  // memory that ordinary users must leave free.
  bool MayUseReserve() const { return highest_class == scheduler::SchedulingClass::kHigh; }
  // Limit of each device's memory for all sessions of one uid, or of an endpoint, together, and
  // hence for each of them.
  MemoryQuota memory;
  // Limit of the device time of all clients together, in thousandths of each device.
  std::uint32_t max_share = kSharePerMilleMax;
  // Limit of the device time of each client. If unset, AccessDefaults::client_max_share applies.
  std::optional<std::uint32_t> client_max_share;
  std::optional<MemoryQuota> client_memory;  // If unset: as much as `memory` leaves.
  // Limit of each device's memory for one client, including memory beyond its guarantee. If unset,
  // its guarantee, which follows from `memory` and `client_memory`.
  std::optional<MemoryQuota> memory_limit;
  // Limit of the sessions of one uid, or of an endpoint, over all devices.
  std::uint32_t clients_max = kClientsPerUidUsual;
  // Memory isolation of kernels. If unset, AccessDefaults::isolation applies.
  std::optional<device::Isolation> isolation;
};

// Defaults for clients without a rule.
struct AccessDefaults {
  // Memory isolation of kernels. If unset: none for the server's own uid, kIsolationOfOtherUsers
  // for others.
  std::optional<device::Isolation> isolation;
  // Fraction of each device's memory, and of the shared halves of its staging and image memory,
  // that ordinary users must leave to clients that may be of class high.
  double memory_reserve = 0;
  // Maximum device time of each client, in thousandths.
  std::uint32_t client_max_share = kSharePerMilleMax;
};

// An additional socket, and limits for the clients that connect through it, all of them together.
struct EndpointRule : Allowance {
  std::string name;
  std::string socket;  // If empty, the broker chooses the path; see EndpointTable::GetSocket.
  // Endpoints with the same budget share memory, max_share and clients_max as if they were one. If
  // empty, the endpoint has a separate budget.
  std::string budget;
  std::vector<Subject> who;  // Subjects that may connect; empty for everyone.
  // Names or UUIDs of devices; empty for all of the server's devices.
  std::vector<std::string> devices;
  // Owner of the work of the endpoint's clients, for operators, in the syntax of
  // ipc::Owner::Parse. Empty if not stated.
  std::string owner;
  // Applies to leases: time after the end of the lease's connection during which its endpoint still
  // admits clients and the lease can be resumed.
  std::chrono::nanoseconds resume_within{};
};

// Allowance of one user or group. The first rule that matches a client applies.
struct AccessRule : Allowance {
  Subject who;
};

// Role of a worker process. Set by hidden options, with which the broker starts workers.
struct WorkerRole {
  int channel_fd = -1;
  std::string device;  // For example "cpu:0".
  std::uint32_t generation = 1;
  std::string registry_directory;  // See WorkerOptions, for this field and made_by.
  std::uint64_t made_by = 0;
  std::string totals_file;  // See WorkerOptions.
};
inline constexpr const char* kRegistryDirectoryOption = "--worker-registries";
inline constexpr const char* kMadeByOption = "--worker-made-by";
inline constexpr const char* kTotalsFileOption = "--worker-totals";

// The part of the configuration that a running server reloads.
struct LiveRules {
  // In the order in which they are tried; the default rules come after these.
  std::vector<AccessRule> access;
  std::vector<EndpointRule> endpoints;
  // Time for which the sessions of a leased endpoint may continue after the end of its lease.
  std::chrono::nanoseconds lease_grace = std::chrono::seconds(10);
  // Subjects with read-only admin rights (observers), and those with full admin rights (operators).
  // Root and the server's own uid always have full rights. Operators have the rights of observers
  // as well.
  std::vector<Subject> observers, operators;
};

// LiveRules of a configuration that was read again.
struct NewRules : LiveRules {
  // Options that were changed but take effect only after a restart.
  std::vector<std::string> need_restart;
};

// Errors of a configuration, and warnings about settings that are valid but do not have the effect
// they seem to have. A message about a setting in the file begins with the file and the line.
// Messages are ordered by their position in the file.
struct ConfigReport {
  std::vector<std::string> errors, warnings;
  // Position of each option that the file sets, as in "config file x line 2 column 7: ". Its keys
  // are the options' names on the command line.
  std::map<std::string, std::string, std::less<>> places;

  Status FirstError() const;  // Returns the first error, which states the number of further ones.
};

// Thread-compatible value; constant after parsing.
struct Config : WorkerSettings, LiveRules {
  std::string device = "auto";  // In the syntax of device::SelectDevices.
  // CPUs on which the broker and the workers may run, ascending. Empty: all CPUs of this process.
  std::vector<std::uint32_t> cpu_affinity;
  bool memory_given = false;   // If false, memory_bytes is divided among the cpu devices.
  bool staging_given = false;  // If false, staging_bytes is divided among all devices.
  AccessDefaults defaults = {.memory_reserve = 0.1};
  // Whether the policy was configured as `--policy fixed_share`, which requires a share.
  bool has_fixed_shares = false;
  std::string socket;  // If empty, the default locations apply (ipc/socket_path.h).
  LogLevel log_level = LogLevel::kInfo;
  std::string config_file;           // Empty if none was given.
  std::optional<WorkerRole> worker;  // Set if this process is a worker.
  // Set by --check-config, which only requests this report. If the report has errors, Config
  // contains only the settings that could be read.
  std::optional<ConfigReport> check;
};

// Applies the settings of a TOML text. Messages begin with `file` and the line.
ConfigReport ReadConfigText(std::string_view text, std::string_view file, Config& config);

// Parses the rule of an endpoint from the keys of an [[endpoint]] other than `socket`. `source`
// appears in messages.
Result<EndpointRule> ParseEndpointTerms(std::string_view text, std::string_view source);

// Returns the message about an option with the option's name as it is written in the file:
// "low_floor".
std::string InKeys(std::string_view message, std::string_view option);

// Returns a human-readable description in one line.
std::string Describe(const Allowance& allowance);

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_CONFIG_CONFIG_H_
