// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_CONTROL_KERNEL_OUTPUT_H_
#define GPUSHARED_SERVER_WORKER_CONTROL_KERNEL_OUTPUT_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "server/device/device.h"
#include "server/worker/control/client_log.h"

namespace gpushared::server {

// What kernels print, in the server's log: line by line, with the client's number, without
// control characters, and within the bounds of ClientLog, so that no kernel fills a disk.
//
// Thread-safe: executor threads call it.
class KernelOutputLog {
 public:
  static constexpr std::size_t kLineBytesMax = 1024;  // Longer lines are cut in pieces.

  // `log` outlives it.
  explicit KernelOutputLog(ClientLog& log) : log_(log) {}

  void Write(const device::KernelOutput& output);
  // Writes text of a kernel whose client nobody knows.
  void Write(std::string_view text);

 private:
  // If a line is held back, the rest of the text is dropped with it.
  void Write(std::uint64_t session, std::string_view who, std::string_view text);

  ClientLog& log_;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_CONTROL_KERNEL_OUTPUT_H_
