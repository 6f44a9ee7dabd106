// SPDX-License-Identifier: Apache-2.0
// Checks whether a newer program can replace a running broker.

#ifndef GPUSHARED_SERVER_PLATFORM_SUCCESSOR_H_
#define GPUSHARED_SERVER_PLATFORM_SUCCESSOR_H_

#include <chrono>
#include <string>
#include <vector>

#include "gpushared/result.h"

namespace gpushared::server {

// Hidden option that makes the program report whether it could start with the other arguments, and
// exit.
inline constexpr const char* kCheckOption = "--check-successor";

// Returns the path of this process's program, or an empty string if it is unknown. Must be called
// at the start, because the file may be replaced later.
std::string ProgramPath();

// Starts the program with kCheckOption and these arguments (without its name), and waits for it.
// Returns its version, or its own message if it rejects the arguments. kVersionMismatch if it
// cannot communicate with the running workers. Blocks for at most `wait_max`; any thread may call
// it.
Result<std::string> CheckSuccessor(const std::string& program,
                                   const std::vector<std::string>& arguments,
                                   std::chrono::milliseconds wait_max = std::chrono::seconds(10));

// Returns what the checked program prints on success.
std::string SuccessorAnswer(const std::string& version);

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_PLATFORM_SUCCESSOR_H_
