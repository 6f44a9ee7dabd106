// SPDX-License-Identifier: Apache-2.0
// `run [options] -- PROGRAM...`: becomes the program, with the drop-in in front of any libcuda. So
// signals, terminal and exit code are the program's own.

#ifndef GPUSHARED_SERVER_TOOLS_RUN_RUN_H_
#define GPUSHARED_SERVER_TOOLS_RUN_RUN_H_

#include <span>

namespace gpushared::server {

// Whether these arguments, a program's name first, are of `run`.
bool IsRunCommand(std::span<char* const> arguments);

// Returns only when the program did not start. 0: after help, and --explain without a program.
// 2: the command line makes no sense. 3: no server answers. 126 and 127: as shells use them.
// 1: all else.
int RunCommand(std::span<char* const> arguments);

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_TOOLS_RUN_RUN_H_
