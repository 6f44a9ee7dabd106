// SPDX-License-Identifier: Apache-2.0
// Table of the settings that can be given on the command line and in the configuration file. Each
// is one row, from which the help, the manual pages and the handling of the setting are derived.

#ifndef GPUSHARED_SERVER_CONFIG_OPTIONS_H_
#define GPUSHARED_SERVER_CONFIG_OPTIONS_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "gpushared/result.h"

#include "server/config/config.h"

namespace gpushared::server {

// Policy that requires a share for each client.
inline constexpr std::string_view kFixedShare = "fixed_share";

// Time at which a change of the setting takes effect.
enum class Effect : std::uint8_t {
  kAtReload,   // On reload, as one of LiveRules.
  kAtStart,    // At the next start of the server.
  kForWorkers  // At the next start of the server; the setting is passed to the workers.
};

struct Option {
  std::string_view name;  // As on the command line, without the leading dashes: "low-floor".
  std::string_view metavariable;
  std::string_view help;
  // Paragraph in gpushared(8), in scdoc. If empty, the option shares the next option's paragraph.
  std::string_view page;
  // Paragraph in gpushared.toml(5). If empty, that of the option `key_page_of` applies, if set.
  std::string_view key_page = {};
  // An earlier option of the table, whose paragraph in gpushared.toml(5) this one shares.
  std::string_view key_page_of = {};
  Effect effect = Effect::kForWorkers;
  struct {
    // Applies a text from the command line or the file. An error states what was given and what is
    // allowed.
    Status (*set)(std::string_view value, Config& config);
    // Formats the value: in the syntax of `set` if workers get it, otherwise human-readable. Empty
    // for the default value.
    std::string (*text)(const Config& config);
  } value;
};

std::span<const Option> Options();

// Returns null if the name is unknown.
const Option* FindOption(std::string_view name);

// Applies the option; errors begin with "option <name> rejected: ".
Status Apply(const Option& option, std::string_view value, Config& config);
Status Rejected(std::string_view option, std::string_view why);

// Returns the name as it is written in the file: "low_floor".
std::string GetKey(std::string_view option);

// Returns the part of the configuration that is passed to a worker, as text of a configuration
// file.
std::string WorkersPart(const Config& config);

// Returns a part of the manual pages, in scdoc: "options" for gpushared(8), "keys" for
// gpushared.toml(5), or "live" for the names of the keys that take effect on reload. Empty for
// unknown parts.
std::string ManualPart(std::string_view part);

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_CONFIG_OPTIONS_H_
