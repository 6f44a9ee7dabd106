// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_STATE_FAILURE_TEXT_H_
#define GPUSHARED_SERVER_WORKER_STATE_FAILURE_TEXT_H_

#include <cstdint>

#include "gpushared/status.h"

#include "server/device/device.h"
#include "server/worker/state/client_state.h"
#include "server/worker/state/rejection.h"

namespace gpushared::server {

// Returns the message for a failed command, including its client, stream and number.
Status Describe(const CommandFailure& failure, const ClientState& client, std::uint32_t stream,
                std::uint64_t sequence, const device::DeviceInfo& info);

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_STATE_FAILURE_TEXT_H_
