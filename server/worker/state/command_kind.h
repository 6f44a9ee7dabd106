// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_STATE_COMMAND_KIND_H_
#define GPUSHARED_SERVER_WORKER_STATE_COMMAND_KIND_H_

#include <cstdint>

#include "server/telemetry/trace/execution_record.h"

namespace gpushared::server {

enum class CommandKind : std::uint8_t {
  kLaunch,
  kCopyToDevice,
  kCopyToHost,
  kCopyOnDevice,
  kFill,
  kGraph,  // Several nodes of a graph; a single node has the kind of its work.
  kTurn,   // A turn of a gated client, whose work goes to the driver without the worker.
  // The kinds below take no device time.
  kWaitFor,
  kMark,
  kCreateStream,
  kDestroyStream,
  kDestroyStreamInRequest,  // Also ends the oldest request of the stream.
  kBeginRequest,
  kEndRequest,
  kExpectRequest,
  kChangeGraph,
  kChangeBuffers,
};

// Converts the kind of device work, whose values are the same in both enumerations.
constexpr trace::Work ToWork(CommandKind kind) { return static_cast<trace::Work>(kind); }
static_assert(ToWork(CommandKind::kLaunch) == trace::Work::kLaunch &&
              ToWork(CommandKind::kCopyToDevice) == trace::Work::kCopyToDevice &&
              ToWork(CommandKind::kCopyToHost) == trace::Work::kCopyToHost &&
              ToWork(CommandKind::kCopyOnDevice) == trace::Work::kCopyOnDevice &&
              ToWork(CommandKind::kFill) == trace::Work::kFill &&
              ToWork(CommandKind::kGraph) == trace::Work::kGraph &&
              ToWork(CommandKind::kTurn) == trace::Work::kTurn);

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_STATE_COMMAND_KIND_H_
