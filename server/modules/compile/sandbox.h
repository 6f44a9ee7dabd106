// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_MODULES_COMPILE_SANDBOX_H_
#define GPUSHARED_SERVER_MODULES_COMPILE_SANDBOX_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "gpushared/result.h"

namespace gpushared::compile {

struct SandboxLimits {
  std::chrono::seconds time{30};  // Bounds processor time and elapsed time.
  std::uint64_t memory_bytes = std::uint64_t{2} << 30;
  std::uint64_t output_bytes = std::uint64_t{64} << 20;
  std::size_t text_bytes = 8192;  // Of what it prints; the rest is dropped.
};

struct SandboxResult {
  int exit_code = 0;
  std::vector<std::byte> output;
  std::string text;  // stdout and stderr.
};

// The names under which the program finds its input and its output.
inline constexpr const char* kSandboxInput = "/proc/self/fd/3";
inline constexpr const char* kSandboxOutput = "/proc/self/fd/4";

// Runs a program on a client's bytes, until it ends or goes beyond a limit. The program has no
// environment. Its descriptors are those two, /dev/null as stdin, and the pipe for its text. It may
// gain no privileges, start no processes, open no sockets, trace or signal nobody, and write no
// file but its output. Where the kernel allows, it has its own namespaces, without a network.
//
// `arguments[0]` is the program's path. Errors: kLimitExceeded beyond a limit; kInternal if it died
// otherwise or could not start; kCancelled once the descriptor `abandoned`, if any, can be read.
// Waits; thread-safe.
Result<SandboxResult> RunSandboxed(const std::vector<std::string>& arguments,
                                   std::span<const std::byte> input, const SandboxLimits& limits,
                                   int abandoned = -1);

}  // namespace gpushared::compile

#endif  // GPUSHARED_SERVER_MODULES_COMPILE_SANDBOX_H_
