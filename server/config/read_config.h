// SPDX-License-Identifier: Apache-2.0
// Reads the command line and the file into a Config, and passes the Config on to workers.

#ifndef GPUSHARED_SERVER_CONFIG_READ_CONFIG_H_
#define GPUSHARED_SERVER_CONFIG_READ_CONFIG_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "gpushared/result.h"

#include "server/config/config.h"

namespace gpushared::server {

// Result of options that end the program before it serves: --help, --version, and invalid ones.
struct ExitNow {
  int code = 0;
  std::string text;  // For stdout if code is 0, otherwise for stderr.
};

// Resources of the machine, passed in so that tests can choose them.
struct Machine {
  std::uint32_t cores = 1;
  std::uint64_t memory_bytes = 0;
  static Machine Local();
};

// Parses the command line and reads the file. Command-line options override the file, which
// overrides the defaults. Invalid input results in exit code 2.
std::variant<Config, ExitNow> ParseCommandLine(std::span<const char* const> arguments,
                                               const Machine& machine, std::string_view version);

// Reads the configuration file of a running server again. `arguments` are those with which the
// server was started. Returns kUnsupported if they name no file.
Result<Config> ReadAgain(std::span<const char* const> arguments, const Machine& machine);

// Returns the options that differ and require a restart to take effect.
std::vector<std::string> NeedRestart(const Config& running, const Config& read);

// Returns the options that start a worker with the same settings. ParseCommandLine parses them.
std::vector<std::string> WorkerArguments(const Config& config, const WorkerRole& role);

// Returns lines of the form "name = value", for the log at start.
std::vector<std::string> Describe(const Config& config);

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_CONFIG_READ_CONFIG_H_
