// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_STATE_REJECTION_H_
#define GPUSHARED_SERVER_WORKER_STATE_REJECTION_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "gpushared/fault_kind.h"
#include "gpushared/launch_limits.h"
#include "gpushared/status.h"

namespace gpushared::server {

// Reason for rejecting a command, as numbers. The message is formatted only on demand, so that a
// rejected command costs the device thread no more than an accepted one, regardless of the names
// and reasons in its module.
struct Rejection {
  enum class Reason : std::uint8_t {
    kNone,  // Not rejected.
    kNoModule,
    kNoKernel,
    kUnsupported,
    kBeyondLimits,
    kParameterBytes,
    kNoStagingBuffer,
    kOutsideStagingBuffer,
    kNotMapped,
    kWaitFailed,
    kGraphExists,
    kNoGraph,
    kNoNodes,
    kNoNode,
    kGraphBytes,
    kGraphBytesOfAll,
    kBufferExists,
    kBuffersFull,
    kNoBuffer,
    kBeyondDevice,
  };
  static constexpr std::uint32_t kNoNodeNumber = 0xffffffff;
  Reason reason = Reason::kNone;
  const char* what = "launch";  // "launch", "copy" or "fill".
  // Number of the module, staging buffer or graph, or of the stream that was waited for.
  std::uint32_t number = 0;
  std::uint32_t kernel = 0;
  std::uint64_t serial = 0;  // The module's, because its number may be reused.
  std::uint64_t asked = 0;
  std::uint64_t allowed = 0;
  std::uint64_t at = 0;    // Address or offset; with kGraphBytesOfAll, the bytes for all clients.
  std::uint64_t base = 0;  // Start of mapped memory, or another buffer.
  LaunchExcess excess;     // Set with kBeyondLimits.
  // The node, if the rejected command is a node of a graph.
  std::uint32_t graph = 0;
  std::uint32_t node = kNoNodeNumber;

  bool ok() const { return reason == Reason::kNone; }
  StatusCode code() const;
};

// Reason why a stream failed: a rejection, or an error reported by the device.
struct CommandFailure {
  explicit CommandFailure(const Rejection& why) : code(why.code()), rejection(why) {}
  CommandFailure(StatusCode of, std::string says, FaultKind kind = FaultKind::kNone)
      : code(of), fault(kind), message(std::move(says)) {}

  StatusCode code;
  FaultKind fault = FaultKind::kNone;  // Set only with code kKernelFault.
  Rejection rejection;
  std::string message;  // Empty if the message is that of the rejection.
};

// Null unless the command was rejected. A single word, because every command has one.
using MaybeRejected = std::unique_ptr<CommandFailure>;
// Out of line to keep the code for valid commands compact.
[[gnu::cold]] MaybeRejected Reject(const Rejection& why);

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_STATE_REJECTION_H_
