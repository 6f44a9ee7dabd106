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
  std::chrono::seconds time{30};  // Limits both CPU time and elapsed time.
  std::uint64_t memory_bytes = std::uint64_t{2} << 30;
  std::uint64_t output_bytes = std::uint64_t{64} << 20;
  std::size_t text_bytes = 8192;  // Limit of the text on stdout and stderr; the rest is dropped.
};

struct SandboxResult {
  int exit_code = 0;
  std::vector<std::byte> output;
  std::string text;  // Output on stdout and stderr.
};

// Paths under which the program finds its input and output.
inline constexpr const char* kSandboxInput = "/proc/self/fd/3";
inline constexpr const char* kSandboxOutput = "/proc/self/fd/4";

// Runs a program on a client's bytes until it ends or exceeds a limit. The program has an empty
// environment. Its descriptors are the input and output files, /dev/null as stdin, and a pipe as
// stdout and stderr. It cannot gain privileges, start processes, open sockets, trace or signal
// other processes, or write any file but its output. If the kernel permits, it has separate
// namespaces without a network.
//
// `arguments[0]` is the program's path. Fails with kLimitExceeded above the limit of time or
// output, kInternal if the program could not start or a signal ended it, and kCancelled when the
// descriptor `abandoned`, if any, becomes readable. At the memory limit, the program's allocations
// fail. Blocks; thread-safe.
Result<SandboxResult> RunSandboxed(const std::vector<std::string>& arguments,
                                   std::span<const std::byte> input, const SandboxLimits& limits,
                                   int abandoned = -1);

}  // namespace gpushared::compile

#endif  // GPUSHARED_SERVER_MODULES_COMPILE_SANDBOX_H_
