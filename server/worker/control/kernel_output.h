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

// Destination of kernels' printed output: the client if it reads printed text, otherwise the
// server's log. In the log it appears line by line, with the client's number and without control
// characters, within the limits of ClientLog, so that no kernel can fill a disk.
//
// Thread-safe: executor threads call it.
class KernelOutputLog {
 public:
  static constexpr std::size_t kLineBytesMax = 1024;  // Longer lines are split.

  // `log` must outlive this.
  explicit KernelOutputLog(ClientLog& log) : log_(log) {}

  // Directs the output of the session's kernels to `text`, until Forget.
  void Keep(std::uint64_t session, std::shared_ptr<PrintedText> text);
  void Forget(std::uint64_t session);

  void Write(const device::KernelOutput& output);
  // Writes output of a kernel whose client is unknown.
  void Write(std::string_view text);

 private:
  // If a line is suppressed, the rest of the text is dropped with it.
  void Write(std::uint64_t session, std::string_view who, std::string_view text);

  ClientLog& log_;
  Mutex mutex_;
  // By session.
  std::map<std::uint64_t, std::shared_ptr<PrintedText>> kept_ GPUSHARED_GUARDED_BY(mutex_);
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_CONTROL_KERNEL_OUTPUT_H_
