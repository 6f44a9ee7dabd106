// SPDX-License-Identifier: Apache-2.0
// The end of a program that its command line asks for, the same for all of an operator's services.

#ifndef GPUSHARED_SERVER_ADMIN_PARSE_ARGUMENTS_H_
#define GPUSHARED_SERVER_ADMIN_PARSE_ARGUMENTS_H_

#include <optional>
#include <span>
#include <sstream>
#include <string>

#include "server/admin/exit_now.h"

#include <CLI/CLI.hpp>

namespace gpushared::admin {

// Nothing where the program goes on. Otherwise it asked for help or its version, or makes no sense.
inline std::optional<ExitNow> ParseArguments(CLI::App& app,
                                             std::span<const char* const> arguments) {
  try {
    app.parse(static_cast<int>(arguments.size()), arguments.data());
  } catch (const CLI::ParseError& stop) {
    std::ostringstream out, error;
    if (app.exit(stop, out, error) == 0) return ExitNow{0, out.str()};
    return ExitNow{kRefusedArguments, error.str()};
  }
  return std::nullopt;
}

}  // namespace gpushared::admin

#endif  // GPUSHARED_SERVER_ADMIN_PARSE_ARGUMENTS_H_
