// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_COMPILE_SANDBOX_H_
#define GPUSHARED_SERVER_COMPILE_SANDBOX_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "gpushared/result.h"

namespace gpushared::compile {

struct SandboxLimits {
  std::chrono::seconds time{30};  // Of the processor, and by the clock.
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

// Runs a program that reads what a client wrote, until it ends or goes beyond a limit. It has no
// environment and no descriptors but those two, stdin from /dev/null and its printed text; may
// gain no privileges, start no processes, open no sockets, trace and signal nobody, and write no
// file but its output. Where the kernel allows it has namespaces of its own, without a network.
//
// `arguments[0]` is the program's path. kLimitExceeded for what went beyond a limit, kInternal for
// what died otherwise or could not be started; kCancelled once the descriptor `abandoned` can be
// read, where there is one. Waits; thread-safe.
Result<SandboxResult> RunSandboxed(const std::vector<std::string>& arguments,
                                   std::span<const std::byte> input, const SandboxLimits& limits,
                                   int abandoned = -1);

}  // namespace gpushared::compile

#endif  // GPUSHARED_SERVER_COMPILE_SANDBOX_H_
