// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_KERNEL_OUTPUT_H_
#define GPUSHARED_SERVER_WORKER_KERNEL_OUTPUT_H_

#include <chrono>
#include <cstddef>
#include <mutex>
#include <string>
#include <string_view>

#include "server/device/device.h"

namespace gpushared::server {

// What kernels print, in the server's log: line by line, with the client's number, without
// control characters, and bounded per second over all clients, so that no kernel fills a disk.
//
// Thread-safe: executor threads call it.
class KernelOutputLog {
 public:
  static constexpr std::size_t kBytesPerSecond = 256 * 1024;
  static constexpr std::size_t kLineBytesMax = 1024;  // Longer lines are cut in pieces.

  void Write(const device::KernelOutput& output);
  // `who`: "client 7".
  void Write(const std::string& who, std::string_view text);

 private:
  bool Admit(std::size_t bytes);

  std::mutex mutex_;
  std::chrono::steady_clock::time_point second_began_{};
  std::size_t bytes_this_second_ = 0;
  bool said_so_ = false;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_KERNEL_OUTPUT_H_
