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

// Why a command can't run, as numbers. A sentence is made of them when somebody asks. So a
// rejected command costs the device thread no more than an accepted one, whatever names and
// reasons its module has.
struct Rejection {
  enum class Reason : std::uint8_t {
    kNone,  // It can.
    kNoModule,
    kNoKernel,
    kUnsupported,
    kBeyondLimits,
    kParameterBytes,
    kNoStagingBuffer,
    kOutsideStagingBuffer,
    kNotMapped,
    kWaitFailed,
    kGraphThere,
    kNoGraph,
    kNoNodes,
    kNoNode,
    kGraphBytes,
    kGraphBytesOfAll,
    kBufferThere,
    kBuffersFull,
    kNoBuffer,
    kBeyondDevice,
  };
  static constexpr std::uint32_t kNoNodeNumber = 0xffffffff;
  Reason reason = Reason::kNone;
  const char* what = "launch";  // "copy", "fill".
  std::uint32_t number =
      0;  // The module, staging buffer or graph, or the stream that was waited for.
  std::uint32_t kernel = 0;
  std::uint64_t serial = 0;  // The module's; its number may come to mean another.
  std::uint64_t asked = 0;
  std::uint64_t allowed = 0;
  std::uint64_t at = 0;    // Address or offset; with kGraphBytesOfAll, bytes for all clients.
  std::uint64_t base = 0;  // Where mapped memory begins, or another buffer.
  LaunchExcess excess;     // With kBeyondLimits.
  // Of a graph's node: which one.
  std::uint32_t graph = 0;
  std::uint32_t node = kNoNodeNumber;

  bool ok() const { return reason == Reason::kNone; }
  StatusCode code() const;
};

// Why a stream failed: a rejection, or what the device said.
struct CommandFailure {
  explicit CommandFailure(const Rejection& why) : code(why.code()), rejection(why) {}
  CommandFailure(StatusCode of, std::string says, FaultKind kind = FaultKind::kNone)
      : code(of), fault(kind), sentence(std::move(says)) {}

  StatusCode code;
  FaultKind fault = FaultKind::kNone;  // Only a code of kKernelFault has one.
  Rejection rejection;
  std::string sentence;  // Empty: of the rejection.
};

// Of a command that can't run; null: it can. One word, since each command has one.
using MaybeRejected = std::unique_ptr<CommandFailure>;
// Out of line, so that code for commands that run stays together.
[[gnu::cold]] MaybeRejected Reject(const Rejection& why);

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_STATE_REJECTION_H_
