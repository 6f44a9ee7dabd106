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
  kGraph,  // Several nodes of a graph; a single one is as it is alone.
  // Below: never seen by the device.
  kWaitFor,
  kMark,
  kCreateStream,
  kDestroyStream,
  kDestroyStreamInRequest,  // It ends the stream's oldest request, too.
  kBeginRequest,
  kEndRequest,
  kExpectRequest,
  kChangeGraph,
  kChangeBuffers,
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_STATE_COMMAND_KIND_H_
