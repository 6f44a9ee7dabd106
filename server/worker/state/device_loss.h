// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_STATE_DEVICE_LOSS_H_
#define GPUSHARED_SERVER_WORKER_STATE_DEVICE_LOSS_H_

#include <span>
#include <string>
#include <string_view>

#include "gpushared/status.h"

namespace gpushared::server {

// Returns the status that is reported to clients and operators for a lost device. `suspects`
// describes the work that was running, with its client, as in "kernel 'scale' [client 7 'train' pid
// 4121]"; only the first few are named.
Status DescribeDeviceLoss(std::string_view device, std::string_view why,
                          std::span<const std::string> suspects);

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_STATE_DEVICE_LOSS_H_
