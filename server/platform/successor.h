// SPDX-License-Identifier: Apache-2.0
// Whether a newer program can go on in place of a running broker.

#ifndef GPUSHARED_SERVER_PLATFORM_SUCCESSOR_H_
#define GPUSHARED_SERVER_PLATFORM_SUCCESSOR_H_

#include <chrono>
#include <string>
#include <vector>

#include "gpushared/result.h"

namespace gpushared::server {

// Hidden: with it, the program says whether it could be started with the other arguments, and goes.
inline constexpr const char* kCheckOption = "--check-successor";

// The path of this process's program. To be asked at the start: the file may be replaced later.
// Empty: unknown.
std::string ProgramPath();

// Starts the program with kCheckOption and these arguments (without its name), and waits for it.
// Its version, or its own sentence of rejection. kVersionMismatch: it could not talk to the workers
// that are here. Blocks for `wait_max` at most; any thread may call it.
Result<std::string> CheckSuccessor(const std::string& program,
                                   const std::vector<std::string>& arguments,
                                   std::chrono::milliseconds wait_max = std::chrono::seconds(10));

// The other side of that: what such a program prints when all is well.
std::string SuccessorAnswer(const std::string& version);

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_PLATFORM_SUCCESSOR_H_
