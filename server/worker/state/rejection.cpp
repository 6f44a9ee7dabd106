// SPDX-License-Identifier: Apache-2.0
#include "server/worker/state/rejection.h"

namespace gpushared::server {

using Reason = Rejection::Reason;

StatusCode Rejection::code() const {
  switch (reason) {
    case Reason::kNone:
      return StatusCode::kOk;
    case Reason::kNoModule:
    case Reason::kNoKernel:
    case Reason::kNoStagingBuffer:
    case Reason::kNoGraph:
    case Reason::kNoNode:
    case Reason::kNoBuffer:
      return StatusCode::kNotFound;
    case Reason::kGraphBytes:
    case Reason::kGraphBytesOfAll:
    case Reason::kBuffersFull:
      return StatusCode::kLimitExceeded;
    case Reason::kBeyondDevice:
      return StatusCode::kOutOfMemory;
    case Reason::kUnsupported:
      return StatusCode::kUnsupported;
    case Reason::kWaitFailed:
      return StatusCode::kCancelled;
    default:
      return StatusCode::kInvalidArgument;
  }
}

MaybeRejected Reject(const Rejection& why) { return std::make_unique<CommandFailure>(why); }

}  // namespace gpushared::server
