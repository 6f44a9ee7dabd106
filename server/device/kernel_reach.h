// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_DEVICE_KERNEL_REACH_H_
#define GPUSHARED_SERVER_DEVICE_KERNEL_REACH_H_

#include <utility>

#include "server/device/device.h"
#include "server/ptx/analysis/kernel_reach.h"

namespace gpushared::device {

inline void SetReach(KernelInfo& info, ptx::KernelReach reach) {
  info.reach_offsets = std::move(reach.offsets);
  info.why_reach_unknown = std::move(reach.why_unknown);
}

}  // namespace gpushared::device

#endif  // GPUSHARED_SERVER_DEVICE_KERNEL_REACH_H_
