// SPDX-License-Identifier: Apache-2.0
// The end of a program that its command line asks for, the same for all of an operator's services.

#ifndef GPUSHARED_SERVER_TELEMETRY_ADMIN_PARSE_ARGUMENTS_H_
#define GPUSHARED_SERVER_TELEMETRY_ADMIN_PARSE_ARGUMENTS_H_

#include <optional>
#include <span>

#include "common/command_line/command_line.h"
#include "server/telemetry/admin/exit_now.h"

namespace gpushared::admin {

// Nothing where the program goes on. Otherwise it asked for help or its version, or makes no sense.
inline std::optional<ExitNow> ParseArguments(const command_line::Program& app,
                                             std::span<const char* const> arguments) {
  const auto stop = app.Parse(arguments);
  if (!stop) return std::nullopt;
  return stop->code == 0 ? ExitNow{0, stop->output} : ExitNow{kRejectedArguments, stop->errors};
}

}  // namespace gpushared::admin

#endif  // GPUSHARED_SERVER_TELEMETRY_ADMIN_PARSE_ARGUMENTS_H_
