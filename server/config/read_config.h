// SPDX-License-Identifier: Apache-2.0
// From the command line and the file to a Config, and from there to a worker.

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

// Options that end the program before it serves: --help, --version, and rejections.
struct ExitNow {
  int code = 0;
  std::string text;  // For stdout when code is 0, else for stderr.
};

// The machine's resources, handed in so that tests choose them.
struct Machine {
  std::uint32_t cores = 1;
  std::uint64_t memory_bytes = 0;
  static Machine Local();
};

// Command line over file over built-in values. Exit code 2 for everything that is rejected.
std::variant<Config, ExitNow> ParseCommandLine(std::span<const char* const> arguments,
                                               const Machine& machine, std::string_view version);

// The same for a server that runs: reads its file again. The arguments were accepted at its start.
// kUnsupported: they name no file.
Result<Config> ReadAgain(std::span<const char* const> arguments, const Machine& machine);

// The options that differ and that a running server does not take over.
std::vector<std::string> NeedRestart(const Config& running, const Config& read);

// The options that start a worker with the same settings: ParseCommandLine reads them back.
std::vector<std::string> WorkerArguments(const Config& config, const WorkerRole& role);

// One "name = value" per line, for the log at start.
std::vector<std::string> Describe(const Config& config);

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_CONFIG_READ_CONFIG_H_
