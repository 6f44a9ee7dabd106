// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_STATUS_H_
#define GPUSHARED_STATUS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace gpushared {

// What went wrong, for code. The numbers travel on the wire and equal those of
// gpushared_status_t in the C API, so they are never reused or renumbered.
enum class StatusCode : std::uint32_t {
  kOk = 0,
  kInvalidArgument = 1,     // No server in any state could accept this argument.
  kNotFound = 2,            // The named kernel, module, device or client does not exist.
  kOutOfMemory = 3,         // Device memory, quota or staging memory is used up.
  kLimitExceeded = 4,       // A named limit (streams, modules, clients, ...) is reached.
  kPermissionDenied = 5,    // The access rules do not allow it.
  kUnavailable = 6,         // No server answers, or it is draining.
  kVersionMismatch = 7,     // Client library and server speak different protocol versions.
  kDeviceLost = 8,          // The worker and its device context are gone.
  kDisconnected = 9,        // The session has ended; nothing more will run.
  kUnsupported = 10,        // This device cannot do it.
  kWrongProcess = 11,       // A forked child used its parent's client.
  kKernelFault = 12,        // A kernel trapped, left its memory or ran too long.
  kCancelled = 13,          // Not run, because earlier work it depends on failed.
  kNotReady = 14,           // Asked without waiting, and not finished yet.
  kTimedOut = 15,           // A bounded wait ended first.
  kProtocolViolation = 16,  // The peer sent bytes that no honest peer sends.
  kInternal = 17,           // The machine failed us; the message says where.
};

// The enumerator without its `k`, for messages: "OutOfMemory". "Unknown" for other values.
std::string_view StatusCodeName(StatusCode code) noexcept;

// Success, or a code and a sentence that says what was rejected, what was asked
// and what is allowed (with units), and who asked.
//
// Thread-compatible value.
class [[nodiscard]] Status {
 public:
  Status() = default;  // Success.
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  static Status Ok() { return {}; }

  bool ok() const noexcept { return code_ == StatusCode::kOk; }
  StatusCode code() const noexcept { return code_; }
  // Empty on success. Lower case, no full stop.
  const std::string& message() const noexcept { return message_; }
  // "OutOfMemory: allocation of ...", or "Ok".
  std::string ToString() const;

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

}  // namespace gpushared

#endif  // GPUSHARED_STATUS_H_
