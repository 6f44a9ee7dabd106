// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_MODULES_LOADER_LOAD_LIMIT_H_
#define GPUSHARED_SERVER_MODULES_LOADER_LOAD_LIMIT_H_

#include <chrono>
#include <cstdint>
#include <string_view>

namespace gpushared::loader {

// What reading one module may take, the longest attempt at it.
//
// Thread-compatible value.
struct LoadLimit {
  std::chrono::nanoseconds time = std::chrono::seconds(10);  // Processor time.
  std::uint64_t memory_bytes = std::uint64_t{512} << 20;
};

// Behind what names such a limit in a rejection.
inline constexpr std::string_view kRaisedBy = " (--load-limit of the server)";

}  // namespace gpushared::loader

#endif  // GPUSHARED_SERVER_MODULES_LOADER_LOAD_LIMIT_H_
