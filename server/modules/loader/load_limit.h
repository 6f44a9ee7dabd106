// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_MODULES_LOADER_LOAD_LIMIT_H_
#define GPUSHARED_SERVER_MODULES_LOADER_LOAD_LIMIT_H_

#include <chrono>
#include <cstdint>
#include <string_view>

namespace gpushared::loader {

// Limits for reading one module, in the longest attempt.
//
// Thread-compatible value.
struct LoadLimit {
  std::chrono::nanoseconds time = std::chrono::seconds(10);  // Limit of the CPU time.
  std::uint64_t memory_bytes = std::uint64_t{512} << 20;
};

// Appended to rejections that name such a limit.
inline constexpr std::string_view kRaisedBy = " (--load-limit of the server)";

}  // namespace gpushared::loader

#endif  // GPUSHARED_SERVER_MODULES_LOADER_LOAD_LIMIT_H_
