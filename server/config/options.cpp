// SPDX-License-Identifier: Apache-2.0
#include "server/config/options.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "ipc/share.h"
#include "ipc/wire/bytes.h"
#include "scheduler/class_name.h"
#include "scheduler/policy_catalog.h"
#include "server/config/config_values.h"

namespace gpushared::server {
namespace {

using std::chrono::nanoseconds;

constexpr std::uint32_t kCpuThreadsMost = 1024;
constexpr std::uint32_t kMultiprocessorsMost = 4096;
constexpr double kSmFractionLeast = 0.001;
constexpr double kMemoryReserveMost = 0.9;
constexpr std::chrono::milliseconds kKernelLimitLeast{1};
constexpr std::chrono::milliseconds kIdleAfterLeast{100};
constexpr std::chrono::hours kKernelLimitMost{24};
constexpr std::chrono::seconds kLoadTimeLeast{1};
constexpr std::chrono::hours kLoadTimeMost{1};
constexpr std::uint64_t kLoadMemoryLeast = std::uint64_t{128} << 20;
constexpr std::uint64_t kLoadMemoryMost = std::uint64_t{64} << 30;

template <typename T, typename Field>
Status Take(Result<T> parsed, Field& field) {
  if (!parsed.ok()) return parsed.status();
  field = static_cast<Field>(*std::move(parsed));
  return Status::Ok();
}

// Setter and formatter of options that correspond to one field: a member of Config, or a member of
// such a member.
template <auto kParse, auto... kField>
Status Set(std::string_view value, Config& config) {
  return Take(kParse(value), (config.*....*kField));
}

std::string GetText(const std::string& text) { return text; }
std::string GetText(std::uint32_t count) { return std::to_string(count); }
std::string GetText(double fraction) { return PercentText(fraction); }
std::string GetText(nanoseconds duration) { return DurationText(duration); }
std::string GetText(const std::vector<std::uint32_t>& list) { return CpuListText(list); }
std::string GetText(const std::vector<Subject>& subjects) { return SubjectsText(subjects); }

template <auto... kField>
std::string Text(const Config& config) {
  return GetText((config.*....*kField));
}

// Parses a name from a list; the value is the name's index.
template <const auto& kNames, auto kField>
Status SetNamed(std::string_view value, Config& config) {
  const auto found = std::ranges::find(kNames, value);
  if (found == kNames.end()) return NotAllowed(value, Listed(kNames, " or "));
  config.*kField =
      static_cast<std::remove_reference_t<decltype(config.*kField)>>(found - kNames.begin());
  return Status::Ok();
}

template <const auto& kNames, auto kField>
std::string NameText(const Config& config) {
  return std::string(kNames.at(static_cast<std::size_t>(config.*kField)));
}

// Names used by NVIDIA's vGPU scheduler. Under both, clients take turns. Under fixed_share every
// client also has a cap, and its share of the time remains unused while it is idle.
constexpr std::string_view kEqualShare = "equal_share";

Status SetPolicy(std::string_view value, Config& config) {
  const bool has_fixed_shares = value == kFixedShare;
  const bool is_preset = has_fixed_shares || value == kEqualShare;
  const std::string_view name = is_preset ? std::string_view("round_robin") : value;
  if (scheduler::FindPolicy(name) == nullptr) {
    return NotAllowed(value, scheduler::PolicyNames() + ", " + std::string(kEqualShare) + ", " +
                                 std::string(kFixedShare));
  }
  config.has_fixed_shares = has_fixed_shares;
  config.policy = name;
  return Status::Ok();
}

template <auto kParse, auto kField>
Status SetPolicyOption(std::string_view value, Config& config) {
  scheduler::PolicyOptions options;
  if (Status status = Take(kParse(value), options.*kField); !status.ok()) return status;
  if (const std::string_view why = scheduler::WhyInvalid(options); !why.empty()) {
    return {StatusCode::kInvalidArgument,
            "asked for '" + Escaped(value) + "': " + std::string(why)};
  }
  config.policy_options.*kField = options.*kField;
  return Status::Ok();
}

Status SetDevice(std::string_view value, Config& config) {
  if (value.empty()) return NotAllowed(value, "auto or a list such as cpu:0,cpu:1");
  config.device = value;
  return Status::Ok();
}

Status SetCpuThreads(std::string_view value, Config& config) {
  return Take(ParseCount(value, 1, kCpuThreadsMost), config.cpu_threads);
}

Status SetBytes(std::string_view value, std::uint64_t least, std::uint64_t& bytes, bool& given) {
  const Result<std::uint64_t> parsed = ParseBytes(value);
  if (!parsed.ok()) return parsed.status();
  if (*parsed < least) return NotAllowed(value, "at least " + FormatBytes(least));
  bytes = *parsed;
  given = true;
  return Status::Ok();
}

// Parses a size, an isolation level, or both.
Status SetMemory(std::string_view value, Config& config) {
  for (const std::string_view part : SplitAtCommas(value)) {
    if (const auto isolation = device::ParseIsolation(part)) {
      config.defaults.isolation = isolation;
      continue;
    }
    Status status = SetBytes(part, kMemoryLeast, config.memory_bytes, config.memory_given);
    if (!status.ok()) return status;
  }
  return Status::Ok();
}

// Requires printable text, because paths are logged and are passed to workers within a text.
bool IsFullPath(std::string_view value) {
  return value.starts_with('/') && ipc::IsPrintableText(value);
}

// Parses a size and the directory of a file: "64GiB,/var/tmp".
Status SetOvercommit(std::string_view value, Config& config) {
  const std::size_t comma = value.find(',');
  const Result<std::uint64_t> bytes = ParseBytes(value.substr(0, comma));
  if (!bytes.ok()) return bytes.status();
  const std::string directory(comma == std::string_view::npos ? "" : value.substr(comma + 1));
  if (comma != std::string_view::npos && !IsFullPath(directory)) {
    return NotAllowed(value, "a size, and after a comma the full path of a directory");
  }
  config.overcommit_bytes = *bytes;
  config.overcommit_directory = directory;
  return Status::Ok();
}

std::string OvercommitText(const Config& config) {
  if (config.overcommit_bytes == 0) return "";
  return BytesText(config.overcommit_bytes) +
         (config.overcommit_directory.empty() ? "" : "," + config.overcommit_directory);
}

Status SetIdleAfter(std::string_view value, Config& config) {
  const Result<nanoseconds> time = ParseDuration(value);
  if (time.ok() && *time < kIdleAfterLeast) {
    return NotAllowed(value, "at least " + FormatDuration(kIdleAfterLeast));
  }
  return Take(time, config.idle_after);
}

std::string IdleAfterText(const Config& config) {
  return config.idle_after.count() == 0 ? "" : DurationText(config.idle_after);
}

Status SetStagingMemory(std::string_view value, Config& config) {
  return SetBytes(value, kStagingLeast, config.staging_bytes, config.staging_given);
}

std::string StagingMemoryText(const Config& config) {
  return config.staging_given ? BytesText(config.staging_bytes) : "";
}

std::string MemoryText(const Config& config) {
  std::string text = config.memory_given ? BytesText(config.memory_bytes) : "";
  if (const std::optional<device::Isolation>& level = config.defaults.isolation) {
    text += (text.empty() ? "" : ",") + std::string(device::IsolationName(*level));
  }
  return text;
}

Status SetMemoryReserve(std::string_view value, Config& config) {
  const Result<double> part = ParseFraction(value);
  if (part.ok() && *part > kMemoryReserveMost) return NotAllowed(value, "0% to 90%");
  return Take(part, config.defaults.memory_reserve);
}

Status SetShareBy(std::string_view value, Config& config) {
  if (value != "uid" && value != "client") return NotAllowed(value, "uid or client");
  config.shares_by_uid = value == "uid";
  return Status::Ok();
}

std::string ShareByText(const Config& config) {
  return std::string(config.shares_by_uid ? "uid" : "client");
}

std::string ClientMaxShareText(const Config& config) {
  return ipc::ShareText(config.defaults.client_max_share);
}

Status SetSocket(std::string_view value, Config& config) {
  // sun_path holds 108 bytes, including the terminating zero.
  constexpr std::size_t kPathBytesMax = 107;
  if (value.empty() || value.size() > kPathBytesMax) {
    return NotAllowed(value, "a path of 1 to " + std::to_string(kPathBytesMax) + " bytes");
  }
  config.socket = value;
  return Status::Ok();
}

Status SetCostDirectory(std::string_view value, Config& config) {
  // The limit leaves space for a file name.
  constexpr std::size_t kPathBytesMax = 4000;
  if (!IsFullPath(value) || value.size() > kPathBytesMax) {
    return NotAllowed(value,
                      "an absolute path of up to " + std::to_string(kPathBytesMax) + " bytes");
  }
  config.cost_directory = value;
  return Status::Ok();
}

// The path must be absolute, so that it is unambiguous in the log.
Status SetPath(std::string_view value, std::string& path) {
  if (value != Config::kNone && !IsFullPath(value)) {
    return NotAllowed(value, "a path that begins with '/', or none");
  }
  path = value;
  return Status::Ok();
}

Status SetPtxCompiler(std::string_view value, Config& config) {
  if (value != Config::kDriver) return SetPath(value, config.ptx_compiler);
  config.ptx_compiler = value;
  return Status::Ok();
}

Status SetCodeCache(std::string_view value, Config& config) {
  return SetPath(value, config.code_cache);
}

constexpr std::array<std::string_view, 2> kCudaCompletionNames = {"events", "writes"};

Status ReadKernelLimit(std::string_view text, std::optional<nanoseconds>& limit) {
  if (text == Config::kNone) {
    limit.reset();
    return Status::Ok();
  }
  const Result<nanoseconds> asked = ParseDuration(text);
  if (asked.ok() && (*asked < kKernelLimitLeast || *asked > kKernelLimitMost)) {
    return NotAllowed(text, "1ms to 86400s, or none");
  }
  return Take(asked, limit);
}

Status SetKernelLimit(std::string_view value, Config& config) {
  decltype(config.kernel_limits) limits = kKernelLimitsBuiltIn;
  decltype(config.kernel_limits_given) given = {};
  if (value == Config::kNone) {
    limits = {};
    given.fill(true);
  } else {
    Status status =
        ForEachClass(value, "low=2s,normal=none", [&](std::size_t of_class, std::string_view text) {
          given.at(of_class) = true;
          return ReadKernelLimit(text, limits.at(of_class));
        });
    if (!status.ok()) return status;
  }
  config.kernel_limits = limits;
  config.kernel_limits_given = given;
  return Status::Ok();
}

std::string KernelLimitText(const Config& config) {
  return ByClass([&](std::size_t i) {
    if (!config.kernel_limits_given.at(i)) return std::string();
    const std::optional<nanoseconds>& limit = config.kernel_limits.at(i);
    return limit ? DurationText(*limit) : std::string(Config::kNone);
  });
}

// Parses "30s", "2GiB" or both.
Status SetLoadLimit(std::string_view value, Config& config) {
  loader::LoadLimit limit;
  for (const std::string_view part : SplitAtCommas(value)) {
    const Result<nanoseconds> time = ParseDuration(part);
    const Result<std::uint64_t> bytes = ParseBytes(part);
    const bool is_time = time.ok() && *time >= kLoadTimeLeast && *time <= kLoadTimeMost;
    const bool is_memory = bytes.ok() && *bytes >= kLoadMemoryLeast && *bytes <= kLoadMemoryMost;
    if (!is_time && !is_memory) {
      return NotAllowed(value,
                        "a time of 1s to 3600s, a size of 128MiB to 64GiB, or both, for example "
                        "30s,2GiB");
    }
    if (is_time) limit.time = *time;
    if (is_memory) limit.memory_bytes = *bytes;
  }
  config.load_limit = limit;
  return Status::Ok();
}

std::string LoadLimitText(const Config& config) {
  return DurationText(config.load_limit.time) + "," + BytesText(config.load_limit.memory_bytes);
}

Status SetSmLimit(std::string_view value, Config& config) {
  device::SmLimits limits;
  Status status =
      ForEachClass(value, "low=50% or low=32", [&](std::size_t of_class, std::string_view text) {
        device::SmLimit& limit = limits.at(of_class).emplace();
        if (!text.ends_with('%')) {
          return Take(ParseCount(text, 1, kMultiprocessorsMost), limit.multiprocessors);
        }
        const Result<double> fraction = ParseFraction(text);
        if (!fraction.ok() || *fraction < kSmFractionLeast) {
          return NotAllowed(text, "0.1% to 100%");
        }
        limit.fraction = *fraction;
        return Status::Ok();
      });
  if (status.ok()) config.sm_limits = limits;
  return status;
}

std::string SmLimitText(const Config& config) {
  return ByClass([&](std::size_t i) {
    const std::optional<device::SmLimit>& limit = config.sm_limits.at(i);
    if (!limit) return std::string();
    return limit->fraction > 0 ? PercentText(limit->fraction)
                               : std::to_string(limit->multiprocessors);
  });
}

Status SetLeaseGrace(std::string_view value, Config& config) {
  const Result<nanoseconds> grace = ParseDuration(value);
  if (grace.ok() && *grace > kLeaseGraceMost) {
    return NotAllowed(value, "at most " + FormatDuration(kLeaseGraceMost));
  }
  return Take(grace, config.lease_grace);
}

constexpr auto kOptions = std::to_array<Option>({
    {.name = "policy",
     .metavariable = "NAME",
     .help = "scheduling policy: fifo, round_robin, fair, priority or deadline; also NVIDIA vGPU's "
             "names equal_share (round_robin) and fixed_share (round_robin with "
             "--client-max-share) (default priority)",
     .page =
         "Scheduling policy: fifo, round_robin, fair, priority or deadline; also NVIDIA vGPU's "
         "names equal_share (round_robin) and fixed_share (round_robin with *--client-max-share*).",
     .key_page = "Scheduling policy, time slice, sharing by user or by client, and the minimum "
                 "share of class low.",
     .value = {SetPolicy, Text<&Config::policy>}},
    {.name = "device",
     .metavariable = "LIST",
     .help = "devices to share: auto (every usable GPU and MIG instance, else cpu:0), or a list of "
             "cpu:N, cuda:N, GPU-<uuid> and MIG-<uuid> (default auto)",
     .page = "Devices to share: auto, or a comma-separated list of cpu:N, cuda:N, GPU-_uuid_ and "
             "MIG-_uuid_.",
     .key_page = "Devices, executor threads of a cpu device, and CPU affinity of the server.",
     .effect = Effect::kAtStart,
     .value = {SetDevice, Text<&Config::device>}},
    {.name = "cpu-threads",
     .metavariable = "N",
     .help = "executor threads of each cpu device (default: cores - 1)",
     .page = "Executor threads of each cpu device.",
     .key_page_of = "device",
     .value = {SetCpuThreads, Text<&Config::cpu_threads>}},
    {.name = "memory",
     .metavariable = "SIZE|LEVEL",
     .help = "device memory of each cpu device, for example 4GiB (default: half of the machine's "
             "memory or of the control group's limit, divided by the devices); or the isolation of "
             "kernels on a GPU, off, fence or contain, unless an access rule sets it (default: off "
             "for the server's own user, otherwise fence); or both, separated by a comma",
     .page = "Device memory of each cpu device, and isolation of kernels on a GPU: off, fence or "
             "contain.",
     .key_page = "Device memory of a cpu device and isolation of kernels; total size of the "
                 "staging buffers; reserve for clients allowed to use class high.",
     .value = {SetMemory, MemoryText}},
    {.name = "staging-memory",
     .metavariable = "SIZE",
     .help = "total size of the host staging buffers of each device (default: an eighth of the "
             "machine's memory or of the control group's limit, divided by the devices)",
     .page = "Total size of the host staging buffers of each device.",
     .key_page_of = "memory",
     .value = {SetStagingMemory, StagingMemoryText}},
    {.name = "overcommit",
     .metavariable = "SIZE[,DIRECTORY]",
     .help = "swap space of each device for memory that clients hold beyond their guarantees "
             "(memory_limit in access rules and endpoints): host memory, or a file in DIRECTORY "
             "(default: no oversubscription)",
     .page = "Swap space of each device for memory that clients hold beyond their guarantees: host "
             "memory, or a file in the directory.",
     .key_page = "Swap space for memory that clients hold beyond their guarantees "
                 "(*memory_limit*): a size of host memory, or \"SIZE,DIRECTORY\" for a file.",
     .value = {SetOvercommit, OvercommitText}},
    {.name = "idle-after",
     .metavariable = "DURATION",
     .help = "idle time after which a client that is neither of class high nor has a latency "
             "target is parked: its device memory goes to the swap space until its next command, "
             "for example 300s; requires overcommit (default: never)",
     .page = "Idle time after which a client is parked: its device memory goes to the swap space "
             "until its next command.",
     .key_page = "Idle time after which a client is parked in the swap space.",
     .value = {SetIdleAfter, IdleAfterText}},
    {.name = "socket",
     .metavariable = "PATH",
     .help = "socket for clients (default: $GPUSHARED_SOCKET, else /run/gpushared/gpushared.sock, "
             "else $XDG_RUNTIME_DIR/gpushared.sock)",
     .page = "Socket for clients.",
     .key_page = "Socket for clients.",
     .effect = Effect::kAtStart,
     .value = {SetSocket, Text<&Config::socket>}},
    {.name = "slice",
     .metavariable = "DURATION",
     .help = "time slice, for example 500us (default 2ms)",
     .page = "Time slice.",
     .key_page_of = "policy",
     .value = {SetPolicyOption<ParseDuration, &scheduler::PolicyOptions::slice>,
               Text<&Config::policy_options, &scheduler::PolicyOptions::slice>}},
    {.name = "share-by",
     .metavariable = "WHOM",
     .help = "sharing of device time by weight: uid (among users, then among the clients of each) "
             "or client (default uid)",
     .page = "Sharing of device time by weight: uid or client.",
     .key_page_of = "policy",
     .value = {SetShareBy, ShareByText}},
    {.name = "client-max-share",
     .metavariable = "PERCENT",
     .help = "maximum device time of each client unless an access rule or endpoint sets it, for "
             "example 25% (default 100%)",
     .page = "Maximum device time of each client unless a rule sets it.",
     .key_page = "Maximum device time of each client unless a rule sets it.",
     .effect = Effect::kAtStart,
     .value = {Set<ipc::ParseShare, &Config::defaults, &AccessDefaults::client_max_share>,
               ClientMaxShareText}},
    {.name = "memory-reserve",
     .metavariable = "PERCENT",
     .help = "fraction of each device's memory that is reserved for clients allowed to use class "
             "high (default 10%)",
     .page = "Fraction of device memory that is reserved for clients allowed to use class high.",
     .key_page_of = "memory",
     .value = {SetMemoryReserve, Text<&Config::defaults, &AccessDefaults::memory_reserve>}},
    {.name = "low-floor",
     .metavariable = "PERCENT",
     .help = "minimum share of device time for class low under policy priority (default 0%)",
     .page = "Minimum share of device time for class low under policy priority.",
     .key_page_of = "policy",
     .value = {SetPolicyOption<ParseFraction, &scheduler::PolicyOptions::low_floor>,
               Text<&Config::policy_options, &scheduler::PolicyOptions::low_floor>}},
    {.name = "cost-directory",
     .metavariable = "PATH",
     .help = "existing directory in which each worker persists its kernel cost model (default: not "
             "persisted)",
     .page = "Directory in which each worker persists its kernel cost model.",
     .value = {SetCostDirectory, Text<&Config::cost_directory>}},
    {.name = "kernel-limit",
     .metavariable = "LIST",
     .help = "time limit of a kernel by class, for example low=2s,normal=none, or none (default: "
             "low=10s,normal=60s); on a GPU, kernels can be terminated individually only if their "
             "client is contained; otherwise a kernel beyond a limit that is given here terminates "
             "the device's worker with all its sessions, and one beyond a default limit is logged",
     .page = "Time limit of a kernel by class.",
     .key_page = "Time limit of a kernel, and number of multiprocessors, by class.",
     .value = {SetKernelLimit, KernelLimitText}},
    {.name = "load-limit",
     .metavariable = "TIME,SIZE",
     .help = "maximum CPU time and memory for loading a module, for example 30s,2GiB, or one of "
             "both; compiling it for a GPU may take three times that time and four times that "
             "memory (default: 10s,512MiB)",
     .page = "Maximum CPU time and memory for loading a module.",
     .key_page = "Maximum CPU time and memory for loading a module.",
     .value = {SetLoadLimit, LoadLimitText}},
    {.name = "cpu-affinity",
     .metavariable = "LIST",
     .help = "CPU affinity of the server, for example 0-3,6 (default: all allowed CPUs)",
     .page = "CPU affinity of the server.",
     .key_page_of = "device",
     .effect = Effect::kAtStart,
     .value = {Set<ParseCpuList, &Config::cpu_affinity>, Text<&Config::cpu_affinity>}},
    {.name = "sm-limit",
     .metavariable = "LIST",
     .help = "multiprocessors of each GPU that a class may use, for example low=50% or low=32 "
             "(default: all)",
     .page = "Multiprocessors of each GPU that a class may use.",
     .key_page_of = "kernel-limit",
     .value = {SetSmLimit, SmLimitText}},
    {.name = "cuda-completion",
     .metavariable = "HOW",
     .help =
         "detection of completed work on a GPU: events, or writes to host memory (default events)",
     .page = "Detection of completed work on a GPU: events or writes.",
     .value = {SetNamed<kCudaCompletionNames, &Config::cuda_completion>,
               NameText<kCudaCompletionNames, &Config::cuda_completion>}},
    {.name = "ptx-compiler",
     .metavariable = "PATH",
     .help = "ptxas that compiles rewritten (preemptible or fenced) kernels for GPUs in a separate "
             "process (default: CUDA's usual locations), none or driver; with none, or if no ptxas "
             "is found, kernels are not preemptible, and rewritten kernels of other users are "
             "rejected; with driver, the GPU's driver compiles them within the server",
     .page = "ptxas that compiles rewritten kernels, none or driver.",
     .key_page = "ptxas that compiles rewritten kernels.",
     .value = {SetPtxCompiler, Text<&Config::ptx_compiler>}},
    {.name = "code-cache",
     .metavariable = "DIRECTORY",
     .help = "cache directory for compiled kernels, or none (default: $CACHE_DIRECTORY, else "
             "$XDG_CACHE_HOME/gpushared, else $HOME/.cache/gpushared)",
     .page = "Cache directory for compiled kernels, or none.",
     .value = {SetCodeCache, Text<&Config::code_cache>}},
    {.name = "observe",
     .metavariable = "LIST",
     .help = "users with the right to observe the server (status, ps, devices, endpoints, explain, "
             "trace) in addition to root and the server's own user: everyone, or a list of "
             "user:NAME, uid:NUMBER, group:NAME and gid:NUMBER (default: none)",
     .page = "",
     .key_page = "Users with the right to observe the server, and with the right to operate it: "
                 "\"everyone\", or a list of \"user:NAME\", \"uid:NUMBER\", \"group:NAME\" and "
                 "\"gid:NUMBER\". Root and the server's own user have both rights.",
     .effect = Effect::kAtReload,
     .value = {Set<ParseSubjects, &Config::observers>, Text<&Config::observers>}},
    {.name = "operate",
     .metavariable = "LIST",
     .help =
         "users with the right to operate the server (client set, client terminate, endpoint "
         "lease, reload, upgrade, drain, resume) and to observe it; as --observe (default: none)",
     .page = "Users with the right to observe the server, and with the right to operate it.",
     .key_page_of = "observe",
     .effect = Effect::kAtReload,
     .value = {Set<ParseSubjects, &Config::operators>, Text<&Config::operators>}},
    {.name = "lease-grace",
     .metavariable = "DURATION",
     .help = "grace period of the sessions of a leased endpoint after its lease (default 10s)",
     .page = "Grace period of the sessions of a leased endpoint after its lease.",
     .key_page = "Grace period of the sessions of a leased endpoint after its lease.",
     .effect = Effect::kAtReload,
     .value = {SetLeaseGrace, Text<&Config::lease_grace>}},
    {.name = "log-level",
     .metavariable = "LEVEL",
     .help = "log level: trace, debug, info, warn or error (default info)",
     .page = "Log level: trace, debug, info, warn or error.",
     .key_page = "Log level: trace, debug, info, warn or error.",
     .value = {SetNamed<kLogLevelNames, &Config::log_level>,
               NameText<kLogLevelNames, &Config::log_level>}},
});

}  // namespace

std::span<const Option> Options() { return kOptions; }

const Option* FindOption(std::string_view name) {
  const auto* const found = std::ranges::find(kOptions, name, &Option::name);
  return found == kOptions.end() ? nullptr : found;
}

Status Rejected(std::string_view option, std::string_view why) {
  return {StatusCode::kInvalidArgument,
          "option " + std::string(option) + " rejected: " + std::string(why)};
}

Status Apply(const Option& option, std::string_view value, Config& config) {
  const Status status = option.value.set(value, config);
  return status.ok() ? status : Rejected(option.name, status.message());
}

std::string GetKey(std::string_view option) {
  std::string key(option);
  std::ranges::replace(key, '-', '_');
  return key;
}

std::string WorkersPart(const Config& config) {
  std::string part;
  for (const Option& option : kOptions) {
    if (option.effect != Effect::kForWorkers) continue;
    std::string quoted;
    for (const char each : option.value.text(config)) {
      if (each == '"' || each == '\\') quoted += '\\';
      quoted += each;
    }
    if (!quoted.empty()) part += GetKey(option.name) + " = \"" + quoted + "\"\n";
  }
  return part;
}

}  // namespace gpushared::server
