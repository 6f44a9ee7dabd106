// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_STATUS_H_
#define GPUSHARED_STATUS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace gpushared {

// Error category, for code to act on; docs/library.md describes how to handle each. The numbers
// travel on the wire and equal gpushared_status_t in the C API, so they are never reused or
// renumbered.
enum class StatusCode : std::uint32_t {
  kOk = 0,
  kInvalidArgument = 1,     // No server could accept this argument in any state.
  kNotFound = 2,            // The named kernel, module, device or client does not exist.
  kOutOfMemory = 3,         // Device memory, quota or staging memory is exhausted.
  kLimitExceeded = 4,       // A limit that the message names has been reached.
  kPermissionDenied = 5,    // The access rules of the server do not allow the operation.
  kUnavailable = 6,         // No server answers, or the server is draining.
  kVersionMismatch = 7,     // Client library and server speak different protocol versions.
  kDeviceLost = 8,          // The worker process and its device context have ended.
  kDisconnected = 9,        // The session has ended; nothing more will run.
  kUnsupported = 10,        // The device or the server does not support the operation.
  kWrongProcess = 11,       // A forked child used the client of its parent.
  kKernelFault = 12,        // A kernel trapped, accessed foreign memory or ran too long.
  kCancelled = 13,          // The command did not run, because work that it depends on has failed.
  kNotReady = 14,           // Not finished yet; the call did not wait.
  kTimedOut = 15,           // The wait reached its time limit.
  kProtocolViolation = 16,  // The peer sent bytes that no correct peer sends.
  kInternal = 17,           // The system failed; the message names the failing part.
};

// Returns the enumerator without its `k`, for messages: "OutOfMemory". "Unknown" for other values.
std::string_view StatusCodeName(StatusCode code) noexcept;

// Either success, or a code and a message that states what was rejected, what was requested and
// what is allowed (with units), and who requested it.
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
