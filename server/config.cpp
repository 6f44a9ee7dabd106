// SPDX-License-Identifier: Apache-2.0
#include "server/config.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <set>
#include <thread>
#include <utility>

#include "command_line/command_line.h"
#include "ipc/share.h"
#include "scheduler/class_name.h"
#include "scheduler/policy_catalog.h"
#include "server/config_syntax.h"
#include "server/usable_memory.h"

namespace gpushared::server {
namespace {

using std::chrono::nanoseconds;

constexpr std::uint32_t kCpuThreadsMost = 1024;
constexpr std::uint32_t kCpuThreadsUnset = 0;
constexpr std::uint32_t kMultiprocessorsMost = 4096;
constexpr double kSmFractionLeast = 0.001;  // The worker is told six decimals of a percentage.
constexpr std::string_view kFloorPolicy = "priority";
constexpr std::array<std::string_view, 5> kLogLevelNames = {"trace", "debug", "info", "warn",
                                                            "error"};

Status Refused(std::string_view option, const std::string& why) {
  return {StatusCode::kInvalidArgument, "option " + std::string(option) + " refused: " + why};
}

Status Refused(std::string_view option, std::string_view asked, const std::string& allowed) {
  return Refused(option, "asked for '" + Escaped(asked) + "', allowed is " + allowed);
}

// The names that NVIDIA's vGPU scheduler has for what it does. Both take turns; under fixed shares
// every client has a cap, too, and its time stays idle while it has nothing to do.
constexpr std::string_view kEqualShare = "equal_share", kFixedShare = "fixed_share";

Status SetPolicy(std::string_view value, Config& config) {
  config.has_fixed_shares = value == kFixedShare;
  const bool is_preset = config.has_fixed_shares || value == kEqualShare;
  const std::string_view name = is_preset ? std::string_view("round_robin") : value;
  if (scheduler::FindPolicy(name) == nullptr) {
    return Refused("policy", value,
                   scheduler::PolicyNames() + ", " + std::string(kEqualShare) + ", " +
                       std::string(kFixedShare));
  }
  config.policy = name;
  return Status::Ok();
}

Status SetClientMaxShare(std::string_view value, Config& config) {
  const Result<std::uint32_t> share = ipc::ParseShare(value);
  if (!share.ok()) return Refused("client-max-share", share.status().message());
  config.defaults.client_max_share = *share;
  return Status::Ok();
}

Status SetDevice(std::string_view value, Config& config) {
  if (value.empty()) return Refused("device", value, "auto or a list such as cpu:0,cpu:1");
  config.device = value;
  return Status::Ok();
}

Status SetCpuThreads(std::string_view value, Config& config) {
  const Result<std::uint64_t> count = ParseCount(value, 1, kCpuThreadsMost);
  if (!count.ok()) return Refused("cpu-threads", count.status().message());
  config.cpu_threads = static_cast<std::uint32_t>(*count);
  return Status::Ok();
}

Status SetBytes(std::string_view option, std::string_view value, std::uint64_t least,
                std::uint64_t& bytes, bool& given) {
  const Result<std::uint64_t> parsed = ParseBytes(value);
  if (!parsed.ok()) return Refused(option, parsed.status().message());
  if (*parsed < least) return Refused(option, value, "at least " + FormatBytes(least));
  bytes = *parsed;
  given = true;
  return Status::Ok();
}

// A size, a level of isolation, or both.
Status SetMemory(std::string_view value, Config& config) {
  for (const std::string_view part : SplitAtCommas(value)) {
    if (const auto isolation = device::ParseIsolation(part)) {
      config.defaults.isolation = isolation;
      continue;
    }
    Status status =
        SetBytes("memory", part, kMemoryLeast, config.memory_bytes, config.memory_given);
    if (!status.ok()) return status;
  }
  return Status::Ok();
}

Status SetStagingMemory(std::string_view value, Config& config) {
  return SetBytes("staging-memory", value, kStagingLeast, config.staging_bytes,
                  config.staging_given);
}

// A size, and the folder of a file: "64GiB,/var/tmp".
Status SetOvercommit(std::string_view value, Config& config) {
  const std::size_t comma = value.find(',');
  const Result<std::uint64_t> bytes = ParseBytes(value.substr(0, comma));
  if (!bytes.ok()) return Refused("overcommit", bytes.status().message());
  const std::string folder(comma == std::string_view::npos ? "" : value.substr(comma + 1));
  if (comma != std::string_view::npos && !folder.starts_with('/')) {
    return Refused("overcommit", value, "a size, and after a comma the full path of a folder");
  }
  config.overcommit_bytes = *bytes;
  config.overcommit_folder = folder;
  return Status::Ok();
}

Status SetMemoryReserve(std::string_view value, Config& config) {
  const Result<double> part = ParseFraction(value);
  if (!part.ok()) return Refused("memory-reserve", part.status().message());
  if (*part > kMemoryReserveMost) return Refused("memory-reserve", value, "0% to 90%");
  config.defaults.memory_reserve = *part;
  return Status::Ok();
}

Status SetShareBy(std::string_view value, Config& config) {
  if (value != "uid" && value != "client") return Refused("share-by", value, "uid or client");
  config.shares_by_uid = value == "uid";
  return Status::Ok();
}

std::string ShareByText(const Config& config) { return config.shares_by_uid ? "uid" : "client"; }

Status SetSocket(std::string_view value, Config& config) {
  // sun_path holds 108 bytes with its terminating zero.
  constexpr std::size_t kPathBytesMax = 107;
  if (value.empty() || value.size() > kPathBytesMax) {
    return Refused("socket", value, "a path of 1 to " + std::to_string(kPathBytesMax) + " bytes");
  }
  config.socket = value;
  return Status::Ok();
}

Status SetCostFolder(std::string_view value, Config& config) {
  constexpr std::size_t kPathBytesMax = 4000;  // A file name follows.
  if (value.empty() || value.front() != '/' || value.size() > kPathBytesMax) {
    return Refused("cost-folder", value,
                   "an absolute path of up to " + std::to_string(kPathBytesMax) + " bytes");
  }
  config.cost_folder = value;
  return Status::Ok();
}

Status SetSlice(std::string_view value, Config& config) {
  const Result<nanoseconds> slice = ParseDuration(value);
  if (!slice.ok()) return Refused("slice", slice.status().message());
  scheduler::PolicyOptions options;
  options.slice = *slice;
  if (const std::string_view why = scheduler::WhyInvalid(options); !why.empty()) {
    return Refused("slice", "asked for '" + Escaped(value) + "': " + std::string(why));
  }
  config.slice = *slice;
  return Status::Ok();
}

Status SetLowFloor(std::string_view value, Config& config) {
  const Result<double> floor = ParseFraction(value);
  if (!floor.ok()) return Refused("low-floor", floor.status().message());
  scheduler::PolicyOptions options;
  options.low_floor = *floor;
  if (const std::string_view why = scheduler::WhyInvalid(options); !why.empty()) {
    return Refused("low-floor", "asked for '" + Escaped(value) + "': " + std::string(why));
  }
  config.low_floor = *floor;
  return Status::Ok();
}

// Once all options are known.
Status CheckFloor(const Config& config) {
  if (config.low_floor == 0 || config.policy == kFloorPolicy) return Status::Ok();
  return Refused("low-floor", "asked for " + PercentText(config.low_floor) + " under policy '" +
                                  config.policy +
                                  "', which has no floor, allowed is 0% there and " +
                                  "more under '" + std::string(kFloorPolicy) + "'");
}

// Once all options are known: a limit beyond the guarantee needs a place for what is beyond it.
void CheckMemoryLimits(const Config& config, ConfigReport& report) {
  if (config.overcommit_bytes > 0) return;
  const auto check = [&](const Allowance& rule) {
    if (!rule.memory_limit) return;
    report.errors.push_back("config file " + Escaped(config.config_file) + " line " +
                            std::to_string(rule.line) + ": memory_limit refused for " + rule.label +
                            ": there is no room for memory beyond a guarantee; give overcommit, "
                            "for example overcommit = \"16GiB\"");
  };
  std::ranges::for_each(config.access, check);
  std::ranges::for_each(config.entrances, check);
}

Status CheckFixedShares(const Config& config) {
  if (!config.has_fixed_shares || config.defaults.client_max_share < scheduler::kSharePerMilleMax) {
    return Status::Ok();
  }
  return Refused("policy",
                 "'" + std::string(kFixedShare) +
                     "' needs --client-max-share below 100%, the device time that each client has");
}

// Takes "low=2s,normal=10s" apart; each class at most once. `set` refuses what follows the '='.
template <typename Set>
Status ForEachClass(std::string_view option, std::string_view value, std::string_view example,
                    Set set) {
  std::array<bool, scheduler::kSchedulingClasses> seen{};
  for (const std::string_view item : SplitAtCommas(value)) {
    const std::size_t equals = item.find('=');
    const std::optional<scheduler::SchedulingClass> of_class = ParseClass(item.substr(0, equals));
    if (equals == std::string_view::npos || !of_class ||
        std::exchange(seen.at(static_cast<std::size_t>(*of_class)), true)) {
      return Refused(option, value,
                     "high=..., normal=... and low=..., each at most once, for example " +
                         std::string(example));
    }
    if (const Status status = set(static_cast<std::size_t>(*of_class), item.substr(equals + 1));
        !status.ok()) {
      return Refused(option, status.message());
    }
  }
  return Status::Ok();
}

Status ReadKernelLimit(std::string_view text, std::optional<nanoseconds>& limit) {
  if (text == Config::kNone) {
    limit.reset();
    return Status::Ok();
  }
  const Result<nanoseconds> asked = ParseDuration(text);
  if (!asked.ok()) return asked.status();
  if (*asked < kKernelLimitLeast || *asked > kKernelLimitMost) {
    return {StatusCode::kInvalidArgument,
            "asked for '" + Escaped(text) + "', allowed is 1ms to 86400s, or none"};
  }
  limit = *asked;
  return Status::Ok();
}

Status SetKernelLimit(std::string_view value, Config& config) {
  decltype(config.kernel_limits) limits = kKernelLimitsBuiltIn;
  decltype(config.kernel_limits_given) given = {};
  if (value == Config::kNone) {
    limits = {};
    given.fill(true);
  } else {
    Status status = ForEachClass("kernel-limit", value, "low=2s,normal=none",
                                 [&](std::size_t of_class, std::string_view text) {
                                   given.at(of_class) = true;
                                   return ReadKernelLimit(text, limits.at(of_class));
                                 });
    if (!status.ok()) return status;
  }
  config.kernel_limits = limits;
  config.kernel_limits_given = given;
  return Status::Ok();
}

// As SetKernelLimit reads it, those that were given alone; empty when none was.
std::string KernelLimitText(const Config& config) {
  std::string text;
  for (std::size_t i = 0; i < config.kernel_limits.size(); ++i) {
    if (!config.kernel_limits_given.at(i)) continue;
    const std::optional<nanoseconds>& limit = config.kernel_limits.at(i);
    text += (text.empty() ? "" : ",") +
            std::string(scheduler::ClassName(static_cast<scheduler::SchedulingClass>(i))) + "=" +
            (limit ? std::to_string(limit->count()) + "ns" : std::string(Config::kNone));
  }
  return text;
}

// "30s", "2GiB" or both.
Status SetLoadLimit(std::string_view value, Config& config) {
  loader::LoadLimit limit;
  for (const std::string_view part : SplitAtCommas(value)) {
    const Result<nanoseconds> time = ParseDuration(part);
    const Result<std::uint64_t> bytes = ParseBytes(part);
    const bool is_time = time.ok() && *time >= kLoadTimeLeast && *time <= kLoadTimeMost;
    const bool is_memory = bytes.ok() && *bytes >= kLoadMemoryLeast && *bytes <= kLoadMemoryMost;
    if (!is_time && !is_memory) {
      return Refused("load-limit", value,
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
  return std::to_string(config.load_limit.time.count()) + "ns," +
         std::to_string(config.load_limit.memory_bytes) + "B";
}

// "0-3,6": numbers and ranges of processors.
Status SetCpuAffinity(std::string_view value, Config& config) {
  constexpr std::size_t kRangesMax = 128;
  std::set<std::uint32_t> processors;
  std::size_t ranges = 0;
  for (std::string_view rest = value; !rest.empty() || ranges == 0;) {
    const std::string_view item = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), item.size() + 1));
    const std::size_t dash = item.find('-');
    const Result<std::uint64_t> first = ParseCount(item.substr(0, dash), 0, CPU_SETSIZE - 1);
    if (!first.ok()) return Refused("cpu-affinity", first.status().message());
    const Result<std::uint64_t> last =
        dash == std::string_view::npos ? first
                                       : ParseCount(item.substr(dash + 1), *first, CPU_SETSIZE - 1);
    if (!last.ok()) return Refused("cpu-affinity", last.status().message());
    if (++ranges > kRangesMax) {
      return Refused("cpu-affinity",
                     "more than " + std::to_string(kRangesMax) + " numbers and ranges");
    }
    for (std::uint64_t each = *first; each <= *last; ++each) {
      processors.insert(static_cast<std::uint32_t>(each));
    }
  }
  config.cpu_affinity.assign(processors.begin(), processors.end());
  return Status::Ok();
}

Status SetSmLimit(std::string_view value, Config& config) {
  device::SmLimits limits;
  Status status = ForEachClass(
      "sm-limit", value, "low=50% or low=32", [&](std::size_t of_class, std::string_view text) {
        device::SmLimit limit;
        if (text.ends_with('%')) {
          const Result<double> fraction = ParseFraction(text);
          if (!fraction.ok() || *fraction < kSmFractionLeast) {
            return Status(StatusCode::kInvalidArgument,
                          "asked for '" + Escaped(text) + "', allowed is 0.1% to 100%");
          }
          limit.fraction = *fraction;
        } else {
          const Result<std::uint64_t> count = ParseCount(text, 1, kMultiprocessorsMost);
          if (!count.ok()) return count.status();
          limit.multiprocessors = static_cast<std::uint32_t>(*count);
        }
        limits.at(of_class) = limit;
        return Status::Ok();
      });
  if (status.ok()) config.sm_limits = limits;
  return status;
}

// As SetSmLimit reads it; empty when there is none.
std::string SmLimitText(const Config& config) {
  std::string text;
  for (std::size_t i = 0; i < config.sm_limits.size(); ++i) {
    const std::optional<device::SmLimit>& limit = config.sm_limits.at(i);
    if (!limit) continue;
    text += (text.empty() ? "" : ",") +
            std::string(scheduler::ClassName(static_cast<scheduler::SchedulingClass>(i))) + "=" +
            (limit->fraction > 0 ? std::to_string(limit->fraction * 100) + "%"
                                 : std::to_string(limit->multiprocessors));
  }
  return text;
}

Status SetCudaCompletion(std::string_view value, Config& config) {
  using device::cuda::CompletionKind;
  if (value != "events" && value != "writes") {
    return Refused("cuda-completion", value, "events or writes");
  }
  config.cuda_completion = value == "events" ? CompletionKind::kEvents : CompletionKind::kWrites;
  return Status::Ok();
}

std::string CudaCompletionName(const Config& config) {
  return config.cuda_completion == device::cuda::CompletionKind::kEvents ? "events" : "writes";
}

// A worker runs in the folder of its broker, but whoever reads the log may be elsewhere.
Status SetPath(const char* option, std::string_view value, std::string& path) {
  if (value != Config::kNone && !value.starts_with('/')) {
    return Refused(option, value, "a path that begins with '/', or none");
  }
  path = value;
  return Status::Ok();
}

Status SetPtxCompiler(std::string_view value, Config& config) {
  if (value != Config::kDriver) return SetPath("ptx-compiler", value, config.ptx_compiler);
  config.ptx_compiler = value;
  return Status::Ok();
}

Status SetCodeCache(std::string_view value, Config& config) {
  return SetPath("code-cache", value, config.code_cache);
}

Status SetSubjects(const char* option, std::string_view value, std::vector<Subject>& subjects) {
  Result<std::vector<Subject>> parsed = ParseSubjects(value);
  if (!parsed.ok()) return Refused(option, parsed.status().message());
  subjects = std::move(*parsed);
  return Status::Ok();
}

Status SetObservers(std::string_view value, Config& config) {
  return SetSubjects("observe", value, config.observers);
}

Status SetOperators(std::string_view value, Config& config) {
  return SetSubjects("operate", value, config.operators);
}

Status SetLeaseGrace(std::string_view value, Config& config) {
  const Result<nanoseconds> grace = ParseDuration(value);
  if (!grace.ok()) return Refused("lease-grace", grace.status().message());
  if (*grace > kLeaseGraceMost) {
    return Refused("lease-grace", value, "at most " + FormatDuration(kLeaseGraceMost));
  }
  config.lease_grace = *grace;
  return Status::Ok();
}

Status SetLogLevel(std::string_view value, Config& config) {
  const auto* found = std::find(kLogLevelNames.begin(), kLogLevelNames.end(), value);
  if (found == kLogLevelNames.end()) {
    return Refused("log-level", value, "trace, debug, info, warn or error");
  }
  config.log_level = static_cast<LogLevel>(found - kLogLevelNames.begin());
  return Status::Ok();
}

// Every option that both the command line and the file can set.
struct Option {
  std::string_view name;
  std::string_view metavariable;
  std::string_view help;
  Status (*apply)(std::string_view value, Config& config);
};
constexpr std::array kOptions = {
    Option{"policy", "NAME",
           "who runs next: fifo, round_robin, fair, priority or deadline; or, with vGPU's names, "
           "equal_share, which is round_robin, and fixed_share, which is the same with "
           "--client-max-share (default priority)",
           SetPolicy},
    Option{"device", "LIST",
           "auto (every usable GPU and MIG instance, else cpu:0), or a list of cpu:N, cuda:N, "
           "GPU-<uuid> and MIG-<uuid> (default auto)",
           SetDevice},
    Option{"cpu-threads", "N", "executor threads of each cpu device (default: cores - 1)",
           SetCpuThreads},
    Option{"memory", "SIZE|LEVEL",
           "device memory of each cpu device, for example 4GiB (default: half of the machine's "
           "or of the control group's limit, shared out); or how kernels on a GPU are kept from "
           "other clients, off, fence or contain, where no access rule says it (default: off for "
           "the server's own user, else "
           "fence); or both, separated by a comma",
           SetMemory},
    Option{"staging-memory", "SIZE",
           "host memory through which all clients of one device copy "
           "(default: an eighth of the machine's or of the control group's limit, shared out)",
           SetStagingMemory},
    Option{"overcommit", "SIZE[,FOLDER]",
           "host memory for device memory that clients hold beyond their guarantees (memory_limit "
           "in access rules and entrances), for each device; or, with a folder, a file there "
           "(default: none, and nobody holds more)",
           SetOvercommit},
    Option{"socket", "PATH",
           "where clients connect (default: $GPUSHARED_SOCKET, else "
           "/run/gpushared/gpushared.sock, else $XDG_RUNTIME_DIR/gpushared.sock)",
           SetSocket},
    Option{"slice", "DURATION", "time slice, for example 500us (default 2ms)", SetSlice},
    Option{"share-by", "WHOM",
           "who shares device time by weight: uid (first the users, then the clients of each) or "
           "client (default uid)",
           SetShareBy},
    Option{
        "client-max-share", "PERCENT",
        "device time that each client has at most, where no access rule or entrance says it, for "
        "example 25% (default 100%)",
        SetClientMaxShare},
    Option{"memory-reserve", "PERCENT",
           "part of each device's memory that clients must leave to those who may be of class high "
           "(default 10%)",
           SetMemoryReserve},
    Option{"low-floor", "PERCENT",
           "part of device time that class low gets in any case, under policy priority "
           "(default 0%)",
           SetLowFloor},
    Option{"cost-folder", "PATH",
           "folder, which exists, in which each device's worker keeps how long kernels take "
           "(default: nothing is kept)",
           SetCostFolder},
    Option{"kernel-limit", "LIST",
           "how long one kernel of a class may run, for example low=2s,normal=none, or none "
           "(default: low=10s,normal=60s); on a GPU, where a kernel cannot be ended alone unless "
           "its client is contained, a limit that is given ends the device's worker and all its "
           "sessions, a built-in one is said in the log",
           SetKernelLimit},
    Option{"load-limit", "TIME,SIZE",
           "processor time and memory that reading one module may take, for example 30s,2GiB, or "
           "one of both; compiling it for a GPU may take three times that time and four times that "
           "memory (default: 10s,512MiB)",
           SetLoadLimit},
    Option{"cpu-affinity", "LIST",
           "the only processors that the server uses, for example 0-3,6 (default: all that it "
           "may)",
           SetCpuAffinity},
    Option{"sm-limit", "LIST",
           "how many multiprocessors of each GPU a class may use, for example low=50% or low=32 "
           "(default: all)",
           SetSmLimit},
    Option{"cuda-completion", "HOW",
           "how the end of work on a GPU becomes known: events, or writes to host memory "
           "(default events)",
           SetCudaCompletion},
    Option{
        "ptx-compiler", "PATH",
        "the ptxas that compiles, in a process of its own, kernels of GPUs which were rewritten "
        "so that they can be stopped or are kept in their client's memory (default: where CUDA is "
        "usually installed); where there is none, as with none: no kernel can be stopped, and "
        "rewritten kernels of other users are refused; driver: no compiler either, but the GPU's "
        "driver compiles them, inside the server",
        SetPtxCompiler},
    Option{"code-cache", "FOLDER",
           "where its results are kept, or none (default: $CACHE_DIRECTORY, else "
           "$XDG_CACHE_HOME/gpushared, else $HOME/.cache/gpushared)",
           SetCodeCache},
    Option{
        "observe", "LIST",
        "who may look at the server (status, ps, devices, entrances, explain) besides root and the "
        "server's own user: everyone, or a list of user:NAME, uid:NUMBER, group:NAME and "
        "gid:NUMBER (default: nobody)",
        SetObservers},
    Option{"operate", "LIST",
           "who may act on the server (client set, client terminate, entrance lease, reload, "
           "drain) and look at it; as --observe (default: nobody)",
           SetOperators},
    Option{"lease-grace", "DURATION",
           "how long the sessions of a leased entrance live on after its lease (default 10s)",
           SetLeaseGrace},
    Option{"log-level", "LEVEL", "trace, debug, info, warn or error (default info)", SetLogLevel},
};

ConfigReport ApplyFile(const std::string& path, Config& config) {
  const Result<std::string> text = ReadConfigFile(path);
  if (text.ok()) return ReadConfigText(*text, path, config);
  return {.errors = {text.status().message()}, .warnings = {}, .places = {}};
}

ExitNow Usage(const std::string& message) {
  const char* where =
      message.starts_with("config file") ? "see gpushared.toml(5)" : "see gpushared --help";
  return {.code = 2, .text = "gpushared: " + message + "\n" + where + "\n"};
}

// The texts given on the command line, before any is judged.
struct Given {
  std::array<std::string, kOptions.size()> values;
  std::vector<command_line::Option> options;
  std::string file, checked_file;
  WorkerRole role;
};

void Declare(const command_line::Command& app, Given& given) {
  for (std::size_t i = 0; i < kOptions.size(); ++i) {
    given.options.push_back(app.AddOption("--" + std::string(kOptions[i].name), given.values[i],
                                          std::string(kOptions[i].help))
                                .TypeName(std::string(kOptions[i].metavariable)));
  }
  const command_line::Option file =
      app.AddOption("--config", given.file, "TOML file; the command line wins over it")
          .TypeName("FILE");
  app.AddOption("--check-config", given.checked_file,
                "say all that is wrong with this file, and what in it has no effect, and serve "
                "nobody; exit code 2 where --config would refuse it")
      .TypeName("FILE")
      .Excludes(file);
  app.AddOption("--worker", given.role.channel_fd, "").Hidden();
  app.AddOption("--worker-device", given.role.device, "").Hidden();
  app.AddOption("--worker-generation", given.role.generation, "").Hidden();
  app.AddOption(kRosterFolderOption, given.role.roster_folder, "").Hidden();
  app.AddOption(kMadeByOption, given.role.made_by, "").Hidden();
  app.AddOption(kTotalsFileOption, given.role.totals_file, "").Hidden();
}

// Where the option's error is: in the file, unless the command line sets it.
void AddError(const Status& status, std::string_view option, const Given& given,
              ConfigReport& report) {
  if (status.ok()) return;
  const auto place = report.places.find(option);
  const auto at = static_cast<std::size_t>(std::ranges::find(kOptions, option, &Option::name) -
                                           kOptions.begin());
  const bool is_given = at < kOptions.size() && given.options[at].count() > 0;
  if (place == report.places.end() || is_given) {
    report.errors.emplace_back(status.message());
  } else {
    report.errors.push_back(place->second + InKeys(status.message(), option));
  }
}

// Command line over file over built-in values.
Config Assemble(const Given& given, const Machine& machine, ConfigReport& report) {
  Config config;
  config.cpu_threads = kCpuThreadsUnset;
  config.config_file = given.checked_file.empty() ? given.file : given.checked_file;
  if (!config.config_file.empty()) report = ApplyFile(config.config_file, config);
  for (std::size_t i = 0; i < kOptions.size(); ++i) {
    if (given.options[i].count() == 0) continue;
    const Status status = kOptions[i].apply(given.values[i], config);
    if (!status.ok()) report.errors.emplace_back(status.message());
  }
  AddError(CheckFloor(config), "low-floor", given, report);
  AddError(CheckFixedShares(config), "policy", given, report);
  CheckMemoryLimits(config, report);
  if (config.cpu_threads == kCpuThreadsUnset) {
    const auto chosen = static_cast<std::uint32_t>(config.cpu_affinity.size());
    config.cpu_threads = std::max(2U, chosen == 0 ? machine.cores : chosen) - 1;
  }
  if (config.memory_bytes == 0)
    config.memory_bytes = std::max(kMemoryLeast, machine.memory_bytes / 2);
  if (config.staging_bytes == 0)
    config.staging_bytes = std::max(kStagingLeast, machine.memory_bytes / 8);
  if (given.role.channel_fd >= 0) config.worker = given.role;
  return config;
}

}  // namespace

std::string CpuListText(const std::vector<std::uint32_t>& processors) {
  std::string text;
  for (const std::uint32_t each : processors) {
    text += (text.empty() ? "" : ",") + std::to_string(each);
  }
  return text;
}

std::string_view LogLevelName(LogLevel level) {
  return kLogLevelNames.at(static_cast<std::size_t>(level));
}

Machine Machine::Local() {
  Machine machine;
  machine.cores = std::max(1U, std::thread::hardware_concurrency());
  machine.memory_bytes = UsableMemoryBytes();
  return machine;
}

Status ApplyOption(std::string_view name, std::string_view value, Config& config) {
  for (const Option& option : kOptions) {
    if (option.name == name) return option.apply(value, config);
  }
  return {StatusCode::kNotFound, "option " + Escaped(name) + " is unknown"};
}

bool IsOption(std::string_view name) {
  return std::ranges::find(kOptions, name, &Option::name) != kOptions.end();
}

std::vector<std::string> OptionNames() {
  std::vector<std::string> names;
  for (const Option& option : kOptions) names.emplace_back(option.name);
  return names;
}

std::variant<Config, ExitNow> ParseCommandLine(std::span<const char* const> arguments,
                                               const Machine& machine, std::string_view version) {
  const command_line::Program app(
      "Shares devices between processes. Clients connect over a Unix socket; see also "
      "gpusharedctl.",
      "gpushared");
  Given given;
  Declare(app, given);
  app.SetVersion("gpushared " + std::string(version));
  if (auto stop = app.Parse(arguments); stop) {
    if (stop->code != 0) return Usage(stop->why);
    return ExitNow{.code = 0, .text = std::move(stop->output)};
  }

  ConfigReport report;
  Config config = Assemble(given, machine, report);
  if (!given.checked_file.empty()) {
    config.check = std::move(report);
  } else if (const Status status = report.FirstError(); !status.ok()) {
    return Usage(status.message());
  }
  return config;
}

Result<Config> ReadAgain(std::span<const char* const> arguments, const Machine& machine) {
  const command_line::Program app("");
  Given given;
  Declare(app, given);
  if (const auto stop = app.Parse(arguments); stop) {
    return Status(StatusCode::kInvalidArgument, stop->why);
  }
  if (given.file.empty()) {
    return Status(StatusCode::kUnsupported, "the server was started without a configuration file");
  }
  ConfigReport report;
  Config config = Assemble(given, machine, report);
  if (Status status = report.FirstError(); !status.ok()) return status;
  return config;
}

std::vector<std::string> NeedRestart(const Config& running, const Config& read) {
  // Rules are no "name = value".
  constexpr std::array<std::string_view, 3> kLive = {"lease-grace", "observe", "operate"};
  const std::vector<std::string> before = Describe(running), after = Describe(read);
  std::vector<std::string> names;
  for (std::size_t i = 0; i < std::min(before.size(), after.size()); ++i) {
    const std::string name = after[i].substr(0, after[i].find(" = "));
    if (name == after[i]) break;
    if (before[i] != after[i] && std::ranges::find(kLive, name) == kLive.end()) {
      names.push_back(name);
    }
  }
  return names;
}

std::string OvercommitText(const Config& config) {
  return std::to_string(config.overcommit_bytes) + "B" +
         (config.overcommit_folder.empty() ? "" : "," + config.overcommit_folder);
}

std::vector<std::string> WorkerArguments(const Config& config, const WorkerRole& role) {
  std::vector<std::string> arguments = {"--worker",
                                        std::to_string(role.channel_fd),
                                        "--worker-device",
                                        role.device,
                                        "--worker-generation",
                                        std::to_string(role.generation),
                                        "--policy",
                                        config.policy,
                                        "--cpu-threads",
                                        std::to_string(config.cpu_threads),
                                        "--memory",
                                        std::to_string(config.memory_bytes) + "B",
                                        "--staging-memory",
                                        std::to_string(config.staging_bytes) + "B",
                                        "--slice",
                                        std::to_string(config.slice.count()) + "ns",
                                        "--share-by",
                                        ShareByText(config),
                                        "--memory-reserve",
                                        PercentText(config.defaults.memory_reserve),
                                        "--low-floor",
                                        PercentText(config.low_floor),
                                        "--cuda-completion",
                                        CudaCompletionName(config),
                                        "--load-limit",
                                        LoadLimitText(config),
                                        "--log-level",
                                        std::string(LogLevelName(config.log_level))};
  if (config.overcommit_bytes > 0) {
    arguments.insert(arguments.end(), {"--overcommit", OvercommitText(config)});
  }
  if (!config.cost_folder.empty()) {
    arguments.insert(arguments.end(), {"--cost-folder", config.cost_folder});
  }
  if (const std::string limits = KernelLimitText(config); !limits.empty()) {
    arguments.insert(arguments.end(), {"--kernel-limit", limits});
  }
  if (const std::string limits = SmLimitText(config); !limits.empty()) {
    arguments.insert(arguments.end(), {"--sm-limit", limits});
  }
  if (!config.ptx_compiler.empty()) {
    arguments.insert(arguments.end(), {"--ptx-compiler", config.ptx_compiler});
  }
  if (!config.code_cache.empty()) {
    arguments.insert(arguments.end(), {"--code-cache", config.code_cache});
  }
  return arguments;
}

std::string Describe(const Allowance& allowance) {
  return allowance.label + ": class " + std::string(scheduler::ClassName(allowance.UsualClass())) +
         ", highest class " + std::string(scheduler::ClassName(allowance.highest_class)) +
         ", weight " + std::to_string(allowance.usual_weight) + " up to " +
         std::to_string(allowance.max_weight) +
         (allowance.AllowsPromises() ? ", promises" : ", no promises") + ", memory " +
         allowance.memory.ToString() +
         (allowance.client_memory ? ", per client " + allowance.client_memory->ToString() : "") +
         (allowance.memory_limit ? ", at most " + allowance.memory_limit->ToString() : "") +
         ", device time " + ipc::ShareText(allowance.max_share) +
         (allowance.client_max_share ? ", per client " + ipc::ShareText(*allowance.client_max_share)
                                     : "") +
         ", clients " + std::to_string(allowance.clients_max) +
         (allowance.isolation ? ", kernels " + std::string(IsolationName(*allowance.isolation))
                              : "");
}

std::vector<std::string> Describe(const Config& config) {
  std::vector<std::string> lines = {
      "policy = " + config.policy,
      "device = " + config.device,
      "cpu-threads = " + std::to_string(config.cpu_threads),
      "memory = " + FormatBytes(config.memory_bytes) +
          (config.defaults.isolation ? "," + std::string(IsolationName(*config.defaults.isolation))
                                     : ""),
      "staging-memory = " + FormatBytes(config.staging_bytes),
      "overcommit = " + (config.overcommit_bytes == 0 ? "(none)" : OvercommitText(config)),
      "socket = " + (config.socket.empty() ? "(usual places)" : config.socket),
      "slice = " + FormatDuration(config.slice),
      "share-by = " + ShareByText(config),
      "client-max-share = " + ipc::ShareText(config.defaults.client_max_share),
      "memory-reserve = " + PercentText(config.defaults.memory_reserve),
      "low-floor = " + PercentText(config.low_floor),
      "cost-folder = " + (config.cost_folder.empty() ? "(none)" : config.cost_folder),
      "kernel-limit = " +
          (KernelLimitText(config).empty() ? "(built in)" : KernelLimitText(config)),
      "load-limit = " + FormatDuration(config.load_limit.time) + "," +
          FormatBytes(config.load_limit.memory_bytes),
      "cpu-affinity = " +
          (config.cpu_affinity.empty() ? "(all)" : CpuListText(config.cpu_affinity)),
      "sm-limit = " + (SmLimitText(config).empty() ? "(none)" : SmLimitText(config)),
      "cuda-completion = " + CudaCompletionName(config),
      "ptx-compiler = " + (config.ptx_compiler.empty() ? "(usual places)" : config.ptx_compiler),
      "code-cache = " + (config.code_cache.empty() ? "(usual places)" : config.code_cache),
      "lease-grace = " + FormatDuration(config.lease_grace),
      "observe = " + SubjectsText(config.observers),
      "operate = " + SubjectsText(config.operators),
      "log-level = " + std::string(LogLevelName(config.log_level)),
      "config = " + (config.config_file.empty() ? "(none)" : config.config_file)};
  for (const AccessRule& rule : config.access) lines.push_back("access: " + Describe(rule));
  for (const EntranceRule& rule : config.entrances) {
    lines.push_back(Describe(rule) + ", for " +
                    (rule.who.empty() ? "everyone" : SubjectsText(rule.who)));
  }
  return lines;
}

}  // namespace gpushared::server
