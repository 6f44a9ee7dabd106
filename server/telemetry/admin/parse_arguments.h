// SPDX-License-Identifier: Apache-2.0
// Command-line parsing shared by the operator's services.

#ifndef GPUSHARED_SERVER_TELEMETRY_ADMIN_PARSE_ARGUMENTS_H_
#define GPUSHARED_SERVER_TELEMETRY_ADMIN_PARSE_ARGUMENTS_H_

#include <optional>
#include <span>

#include "common/command_line/command_line.h"
#include "server/telemetry/admin/exit_now.h"

namespace gpushared::admin {

// Returns nothing if the program should continue, otherwise the help, the version or a usage error.
inline std::optional<ExitNow> ParseArguments(const command_line::Program& app,
                                             std::span<const char* const> arguments) {
  const auto stop = app.Parse(arguments);
  if (!stop) return std::nullopt;
  return stop->code == 0 ? ExitNow{0, stop->output} : ExitNow{kRejectedArguments, stop->errors};
}

}  // namespace gpushared::admin

#endif  // GPUSHARED_SERVER_TELEMETRY_ADMIN_PARSE_ARGUMENTS_H_
