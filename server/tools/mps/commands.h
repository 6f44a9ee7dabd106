// SPDX-License-Identifier: Apache-2.0
// The commands of nvidia-cuda-mps-control, asked of a gpushared server.

#ifndef GPUSHARED_SERVER_TOOLS_MPS_COMMANDS_H_
#define GPUSHARED_SERVER_TOOLS_MPS_COMMANDS_H_

#include <string>
#include <vector>

#include "gpushared/result.h"

namespace gpushared::server::mps {

// The answer to a command.
struct Answer {
  std::string text;     // For stdout, in NVIDIA's form.
  std::string note;     // For stderr: what a user of MPS would not expect. Empty: nothing.
  bool is_end = false;  // No further lines are read.
};

// Carries out one command. An MPS server is a worker here, by its pid. An endpoint is what MPS
// calls a namespace. Blocks as admin::Ask does, and for the seconds that `quit -t` names.
// `socket`: the server's path. `words`: a command and its arguments, at least one. A rejection says
// what was rejected, and what is allowed; admin::NobodyAnswers tells whether there was a server.
Result<Answer> Do(const std::string& socket, const std::vector<std::string>& words);

// A line per command, for people.
std::string Help();

}  // namespace gpushared::server::mps

#endif  // GPUSHARED_SERVER_TOOLS_MPS_COMMANDS_H_
