// SPDX-License-Identifier: Apache-2.0
// `run [options] -- PROGRAM...`: executes the program in this process with the drop-in ahead of any
// other libcuda, so that signals, terminal and exit code are the program's own.

#ifndef GPUSHARED_SERVER_TOOLS_RUN_RUN_H_
#define GPUSHARED_SERVER_TOOLS_RUN_RUN_H_

#include <span>

namespace gpushared::server {

// Returns true if the arguments, which begin with the program's name, are those of `run`.
bool IsRunCommand(std::span<char* const> arguments);

// Runs the command. Returns only if the program did not start: 0 after help and after --explain
// without a program, 2 for a usage error, 3 if no server is running, 126 and 127 as in shells, and
// 1 for any other failure.
int RunCommand(std::span<char* const> arguments);

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_TOOLS_RUN_RUN_H_
