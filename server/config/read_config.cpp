// SPDX-License-Identifier: Apache-2.0
#include "server/config/read_config.h"

#include <algorithm>
#include <cstddef>
#include <thread>
#include <utility>

#include "common/command_line/command_line.h"
#include "server/config/config_syntax.h"
#include "server/config/options.h"
#include "server/platform/usable_memory.h"

namespace gpushared::server {
namespace {

constexpr std::uint32_t kCpuThreadsUnset = 0;
constexpr std::string_view kFloorPolicy = "priority";

// Must be called once all options are known.
Status CheckFloor(const Config& config) {
  const double floor = config.policy_options.low_floor;
  if (floor == 0 || config.policy == kFloorPolicy) return Status::Ok();
  return Rejected("low-floor", "asked for " + PercentText(floor) + " under policy '" +
                                   config.policy + "', which has no floor: expected 0%, or " +
                                   "policy '" + std::string(kFloorPolicy) + "'");
}

Status CheckIdleAfter(const Config& config) {
  if (config.idle_after.count() == 0 || config.overcommit_bytes > 0) return Status::Ok();
  return Rejected("idle-after", "parking a client requires overcommit, for example 16GiB");
}

// Checks that swap space is configured if any rule has a memory_limit. Must be called after all
// options are known.
void CheckMemoryLimits(const Config& config, ConfigReport& report) {
  if (config.overcommit_bytes > 0) return;
  const auto check = [&](const Allowance& rule) {
    if (!rule.memory_limit) return;
    report.errors.push_back(
        "config file " + Escaped(config.config_file) + " line " + std::to_string(rule.line) +
        ": memory_limit rejected for " + rule.label +
        ": memory beyond a guarantee requires overcommit, for example overcommit = \"16GiB\"");
  };
  std::ranges::for_each(config.access, check);
  std::ranges::for_each(config.endpoints, check);
}

Status CheckFixedShares(const Config& config) {
  if (!config.has_fixed_shares || config.defaults.client_max_share < kSharePerMilleMax) {
    return Status::Ok();
  }
  return Rejected("policy",
                  "'" + std::string(kFixedShare) +
                      "' needs --client-max-share below 100%, the device time of each client");
}

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

// Texts of options given on the command line, before validation.
struct Given {
  std::vector<std::string> values = std::vector<std::string>(Options().size());
  std::vector<command_line::Option> options;
  std::string file, checked_file, manual_part;
  WorkerRole role;
  std::string worker_settings;
};

void Declare(const command_line::Command& app, Given& given) {
  for (const Option& option : Options()) {
    given.options.push_back(app.AddOption("--" + std::string(option.name),
                                          given.values[given.options.size()],
                                          std::string(option.help))
                                .TypeName(std::string(option.metavariable)));
  }
  const command_line::Option file =
      app.AddOption("--config", given.file,
                    "configuration file (TOML), which options on the command line override")
          .TypeName("FILE");
  app.AddOption("--check-config", given.checked_file,
                "file to check without starting the server; lists all errors and ineffective "
                "settings; exit code 2 if --config would reject it")
      .TypeName("FILE")
      .Excludes(file);
  app.AddOption("--worker", given.role.channel_fd, "").Hidden();
  app.AddOption("--worker-device", given.role.device, "").Hidden();
  app.AddOption("--worker-generation", given.role.generation, "").Hidden();
  app.AddOption(kRegistryDirectoryOption, given.role.registry_directory, "").Hidden();
  app.AddOption(kMadeByOption, given.role.made_by, "").Hidden();
  app.AddOption(kTotalsFileOption, given.role.totals_file, "").Hidden();
  app.AddOption("--worker-settings", given.worker_settings, "").Hidden();
  app.AddOption("--manual", given.manual_part, "").Hidden();
}

// Adds an error with its position in the file, unless the command line overrides the option.
void AddError(const Status& status, std::string_view option, const Given& given,
              ConfigReport& report) {
  if (status.ok()) return;
  const auto place = report.places.find(option);
  const std::ptrdiff_t at = FindOption(option) - Options().data();
  const bool is_given = given.options[static_cast<std::size_t>(at)].count() > 0;
  if (place == report.places.end() || is_given) {
    report.errors.emplace_back(status.message());
  } else {
    report.errors.push_back(place->second + InKeys(status.message(), option));
  }
}

// Command-line options override the file, which overrides the defaults.
Config Assemble(const Given& given, const Machine& machine, ConfigReport& report) {
  Config config;
  config.cpu_threads = kCpuThreadsUnset;
  config.config_file = given.checked_file.empty() ? given.file : given.checked_file;
  if (!config.config_file.empty()) report = ApplyFile(config.config_file, config);
  if (given.role.channel_fd >= 0) {
    report = ReadConfigText(given.worker_settings, "of the broker", config);
    config.worker = given.role;
  }
  for (std::size_t i = 0; i < given.values.size(); ++i) {
    if (given.options[i].count() == 0) continue;
    const Status status = Apply(Options()[i], given.values[i], config);
    if (!status.ok()) report.errors.emplace_back(status.message());
  }
  AddError(CheckFloor(config), "low-floor", given, report);
  AddError(CheckIdleAfter(config), "idle-after", given, report);
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
  return config;
}

}  // namespace

Machine Machine::Local() {
  Machine machine;
  machine.cores = std::max(1U, std::thread::hardware_concurrency());
  machine.memory_bytes = UsableMemoryBytes();
  return machine;
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
  if (!given.manual_part.empty()) return ExitNow{.code = 0, .text = ManualPart(given.manual_part)};

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
  std::vector<std::string> names;
  for (const Option& option : Options()) {
    const bool is_live = option.effect == Effect::kAtReload;
    if (!is_live && option.value.text(running) != option.value.text(read))
      names.emplace_back(option.name);
  }
  return names;
}

std::vector<std::string> WorkerArguments(const Config& config, const WorkerRole& role) {
  return {"--worker",
          std::to_string(role.channel_fd),
          "--worker-device",
          role.device,
          "--worker-generation",
          std::to_string(role.generation),
          "--worker-settings",
          WorkersPart(config)};
}

std::vector<std::string> Describe(const Config& config) {
  std::vector<std::string> lines;
  const auto add = [&](std::string_view name, const std::string& value) {
    lines.push_back(std::string(name) + " = " + (value.empty() ? "(default)" : value));
  };
  for (const Option& option : Options()) add(option.name, option.value.text(config));
  add("config", config.config_file.empty() ? "(none)" : config.config_file);
  for (const AccessRule& rule : config.access) lines.push_back("access: " + Describe(rule));
  for (const EndpointRule& rule : config.endpoints) {
    lines.push_back(Describe(rule) + ", for " +
                    (rule.who.empty() ? "everyone" : SubjectsText(rule.who)));
  }
  return lines;
}

}  // namespace gpushared::server
