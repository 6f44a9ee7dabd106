// SPDX-License-Identifier: Apache-2.0
// What the operator asked for, typed and checked. See read_config.h for how it comes here.

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
// Where no rule says it: a quarter of a device's places, and no more of its time than others have.
inline constexpr std::uint32_t kClientsPerUidUsual = 32;
inline constexpr std::uint32_t kWeightUsual = 1;
inline constexpr std::size_t kAccessRulesMax = 256;
inline constexpr std::size_t kEndpointsMax = 64;  // In the configuration.
inline constexpr std::uint32_t kEndpointClientsMax = 8192;
inline constexpr std::size_t kEndpointNameBytesMax = 32;

// What a client may ask for.
//
// Thread-compatible value.
struct Allowance {
  std::string label;       // Whose it is, for people: "user 'alice' (uid 1000)".
  std::uint32_t line = 0;  // Of the configuration file; 0: it is not from there.
  scheduler::SchedulingClass highest_class = scheduler::SchedulingClass::kNormal;
  std::uint32_t max_weight = kWeightUsual;
  // Clients have these who do not ask.
  std::optional<scheduler::SchedulingClass> usual_class;  // Unset: normal, if that is allowed.
  std::uint32_t usual_weight = kWeightUsual;
  scheduler::SchedulingClass UsualClass() const {
    return usual_class.value_or(std::max(highest_class, scheduler::SchedulingClass::kNormal));
  }
  // Under `deadline` what is promised goes before all classes. Unset: who may be of class high.
  std::optional<bool> targets;
  bool AllowsLatencyTargets() const {
    return targets.value_or(highest_class == scheduler::SchedulingClass::kHigh);
  }
  // Who may be of the high class may use the places and the memory that ordinary users must leave.
  bool MayUseReserve() const { return highest_class == scheduler::SchedulingClass::kHigh; }
  // Of each device: what all live sessions of one uid may hold together, and one of them alone.
  MemoryQuota memory;
  // Device time of all its clients together, in thousandths of each device.
  std::uint32_t max_share = kSharePerMilleMax;
  // The same of each client. Unset: as Config::client_max_share says.
  std::optional<std::uint32_t> client_max_share;
  std::optional<MemoryQuota> client_memory;  // Unset: as much as `memory` leaves.
  // A client may hold so much of each device, beyond what is guaranteed to it by the two above.
  // Unset: no more than that.
  std::optional<MemoryQuota> memory_limit;
  std::uint32_t clients_max = kClientsPerUidUsual;  // Live sessions of one uid, over all devices.
  // Unset: as Config::isolation says.
  std::optional<device::Isolation> isolation;
};

// What holds where no rule says otherwise.
//
// Thread-compatible value.
struct AccessDefaults {
  // How kernels are kept in their client's memory. Unset: those of the server's own uid not at all,
  // others as kIsolationOfStrangers.
  std::optional<device::Isolation> isolation;
  // Part of each device's memory that ordinary users leave to those who may be of the high class.
  // The same part of the shared half of its staging memory.
  double memory_reserve = 0;
  // Device time of each client at most, in thousandths.
  std::uint32_t client_max_share = kSharePerMilleMax;
};

// A further socket, and what all who come through it have together.
//
// Thread-compatible value.
struct EndpointRule : Allowance {
  std::string name;
  std::string socket;  // Empty: see Endpoints in server/broker.
  // Endpoints of one budget share memory, max_share and clients_max, as if they were one. Empty: it
  // is the endpoint's own.
  std::string budget;
  std::vector<Subject> who;          // May come; empty: everyone.
  std::vector<std::string> devices;  // Names or UUIDs; empty: all of the server's.
};

// The allowance of one user or group. The first rule that matches a client counts.
//
// Thread-compatible value.
struct AccessRule : Allowance {
  Subject who;
};

// Which part of the program this process is. The broker starts workers with the hidden options
// that fill this.
struct WorkerRole {
  int channel_fd = -1;
  std::string device;  // "cpu:0".
  std::uint32_t generation = 1;
  std::string registry_directory;  // See WorkerOptions; and made_by.
  std::uint64_t made_by = 0;
  std::string totals_file;  // See WorkerOptions.
};
inline constexpr const char* kRegistryDirectoryOption = "--worker-registries";
inline constexpr const char* kMadeByOption = "--worker-made-by";
inline constexpr const char* kTotalsFileOption = "--worker-totals";

// The part of the configuration that a running server takes over.
//
// Thread-compatible value.
struct LiveRules {
  std::vector<AccessRule> access;  // In order; the built-in rules come after these.
  std::vector<EndpointRule> endpoints;
  // How long the sessions of a leased endpoint live on after its lease.
  std::chrono::nanoseconds lease_grace = std::chrono::seconds(10);
  // Who may look at the server, and who may act on it, besides root and the server's own uid. Who
  // may act may look, too.
  std::vector<Subject> observers, operators;
};

// The same of a configuration that was read again.
struct NewRules : LiveRules {
  std::vector<std::string> need_restart;  // Options that were changed, and are not taken over.
};

// What is wrong with a configuration, and what is allowed but does not do what it seems to. Each
// begins with its file and line, if it has any, and they are in the order of the file.
//
// Thread-compatible value.
struct ConfigReport {
  std::vector<std::string> errors, warnings;
  // By option as on the command line: where the file sets it, "config file x line 2 column 7: ".
  std::map<std::string, std::string, std::less<>> places;

  Status FirstError() const;  // And how many more there are.
};

// Thread-compatible value; constant after parsing.
struct Config : WorkerSettings, LiveRules {
  std::string device = "auto";  // As device::SelectDevices reads it.
  // The only processors that broker and workers use, ascending; empty: all that they may.
  std::vector<std::uint32_t> cpu_affinity;
  bool memory_given = false;   // Else memory_bytes is for all cpu devices together,
  bool staging_given = false;  // and staging_bytes for all devices.
  AccessDefaults defaults = {.memory_reserve = 0.1};
  // Named `--policy fixed_share`, which is nothing without a share.
  bool has_fixed_shares = false;
  std::string socket;  // Empty: the usual places (ipc/socket_path.h).
  LogLevel log_level = LogLevel::kInfo;
  std::string config_file;           // Empty: none was given.
  std::optional<WorkerRole> worker;  // Set: this process is a worker.
  // Set: --check-config asks for this alone. Where it has errors, the rest is as far as it could be
  // read.
  std::optional<ConfigReport> check;
};

// Sets what the TOML text names. Messages carry `file` and the line.
ConfigReport ReadConfigText(std::string_view text, std::string_view file, Config& config);

// The rule of an endpoint, from the keys that an [[endpoint]] has but for `socket`. `source` is
// named in messages.
Result<EndpointRule> ParseEndpointTerms(std::string_view text, std::string_view source);

// A message about an option, which it names as the file does: "low_floor".
std::string InKeys(std::string_view message, std::string_view option);

// For people, in one line.
std::string Describe(const Allowance& allowance);

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_CONFIG_CONFIG_H_
