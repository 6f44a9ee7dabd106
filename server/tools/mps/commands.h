// SPDX-License-Identifier: Apache-2.0
// Commands of nvidia-cuda-mps-control, translated to requests to a gpushared server.

#ifndef GPUSHARED_SERVER_TOOLS_MPS_COMMANDS_H_
#define GPUSHARED_SERVER_TOOLS_MPS_COMMANDS_H_

#include <string>
#include <vector>

#include "gpushared/result.h"

namespace gpushared::server::mps {

// Result of a command.
struct Answer {
  std::string text;     // Text for stdout, in NVIDIA's format.
  std::string note;     // Describes a difference from MPS, for stderr; may be empty.
  bool is_end = false;  // Whether to stop reading further lines.
};

// Executes one command. Workers take the role of MPS servers and are identified by pid; endpoints
// take the role of namespaces. Blocks like admin::Ask, and for the seconds given to `quit -t`.
// `socket` is the path of the server's socket, `words` a command with its arguments. A rejection
// names the rejected word and the allowed values. For a command that failed because no server was
// running, admin::IsUnreachable returns true. In a job of a cluster, its prolog or its epilog
// (`is_in_job`), commands that would change the server for other jobs have no effect.
Result<Answer> Do(const std::string& socket, const std::vector<std::string>& words, bool is_in_job);

// Returns a human-readable list with one line per command.
std::string Help();

}  // namespace gpushared::server::mps

#endif  // GPUSHARED_SERVER_TOOLS_MPS_COMMANDS_H_
