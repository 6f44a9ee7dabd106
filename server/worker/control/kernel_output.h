// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_CONTROL_KERNEL_OUTPUT_H_
#define GPUSHARED_SERVER_WORKER_CONTROL_KERNEL_OUTPUT_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string_view>

#include "gpushared/mutex.h"

#include "server/device/device.h"
#include "server/worker/control/client_log.h"
#include "server/worker/state/printed_text.h"

namespace gpushared::server {

// Where what kernels print goes: to the client that keeps it, or else into the server's log. There
// it stands line by line, with the client's number and without control characters. It stays within
// the bounds of ClientLog, so that no kernel fills a disk.
//
// Thread-safe: executor threads call it.
class KernelOutputLog {
 public:
  static constexpr std::size_t kLineBytesMax = 1024;  // Longer lines are cut in pieces.

  // `log` outlives it.
  explicit KernelOutputLog(ClientLog& log) : log_(log) {}

  // Text of the session's kernels goes there from now on, until Forget.
  void Keep(std::uint64_t session, std::shared_ptr<PrintedText> text);
  void Forget(std::uint64_t session);

  void Write(const device::KernelOutput& output);
  // Writes text of a kernel whose client nobody knows.
  void Write(std::string_view text);

 private:
  // If a line is held back, the rest of the text is dropped with it.
  void Write(std::uint64_t session, std::string_view who, std::string_view text);

  ClientLog& log_;
  Mutex mutex_;
  // By session.
  std::map<std::uint64_t, std::shared_ptr<PrintedText>> kept_ GPUSHARED_GUARDED_BY(mutex_);
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_CONTROL_KERNEL_OUTPUT_H_
