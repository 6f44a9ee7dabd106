// SPDX-License-Identifier: Apache-2.0
// The settings that both the command line and the configuration file have. Each is one row of a
// table, and everything that is said or done of it follows from the row.

#ifndef GPUSHARED_SERVER_CONFIG_OPTIONS_H_
#define GPUSHARED_SERVER_CONFIG_OPTIONS_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "gpushared/result.h"

#include "server/config/config.h"

namespace gpushared::server {

// A policy that is nothing without a share for each client.
inline constexpr std::string_view kFixedShare = "fixed_share";

// When a change of the setting takes effect.
enum class Effect : std::uint8_t {
  kAtReload,   // A running server takes it over: it is one of LiveRules.
  kAtStart,    // With the next start of the server.
  kForWorkers  // The same, and the server's workers are told.
};

struct Option {
  std::string_view name;  // As on the command line, without dashes: "low-floor".
  std::string_view metavariable;
  std::string_view help;
  // Its paragraph in gpushared(8), in scdoc; empty: it shares that of the option after it.
  std::string_view page;
  // Its paragraph in gpushared.toml(5); empty: it has none.
  std::string_view key_page = {};
  // Or it shares the paragraph of this option, which comes earlier in the table.
  std::string_view key_page_of = {};
  Effect effect = Effect::kForWorkers;
  struct {
    // Takes a text from whichever source. An error says what was asked and what is allowed.
    Status (*set)(std::string_view value, Config& config);
    // As `set` takes it where workers are told, else for people. Empty: the built-in one.
    std::string (*text)(const Config& config);
  } value;
};

std::span<const Option> Options();

// Null for unknown names.
const Option* FindOption(std::string_view name);

// Sets it; an error begins with "option <name> rejected: ".
Status Apply(const Option& option, std::string_view value, Config& config);
Status Rejected(std::string_view option, std::string_view why);

// The name as the file has it: "low_floor".
std::string GetKey(std::string_view option);

// What a worker is told of the configuration, as text of a configuration file.
std::string WorkersPart(const Config& config);

// What manual pages say of the options, in scdoc: "options" of gpushared(8), "keys" of
// gpushared.toml(5), and the names of those keys that are "live". Empty for other parts.
std::string ManualPart(std::string_view part);

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_CONFIG_OPTIONS_H_
