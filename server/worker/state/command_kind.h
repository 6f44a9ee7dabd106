// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_STATE_COMMAND_KIND_H_
#define GPUSHARED_SERVER_WORKER_STATE_COMMAND_KIND_H_

#include <cstdint>

namespace gpushared::server {

enum class CommandKind : std::uint8_t {
  kLaunch,
  kCopyToDevice,
  kCopyToHost,
  kCopyOnDevice,
  kFill,
  kGraph,  // Several nodes of a graph; a single node has the kind of its work.
  // The device never sees the kinds below.
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

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_STATE_COMMAND_KIND_H_
