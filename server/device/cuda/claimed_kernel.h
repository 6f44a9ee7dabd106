// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_DEVICE_CUDA_CLAIMED_KERNEL_H_
#define GPUSHARED_SERVER_DEVICE_CUDA_CLAIMED_KERNEL_H_

#include <cstdint>

#include "server/device/cuda/driver_types.h"
#include "server/device/device.h"
#include "server/ptx/passes/claim.h"

namespace gpushared::device::cuda {

// The claimed form of a kernel, as the driver has it.
struct ClaimedKernel {
  Function function = nullptr;         // Null: there is none.
  std::uint32_t parameter_offset = 0;  // Of ptx::ClaimParameter.
  std::uint32_t threads_per_block_max = 0;
  std::uint32_t dynamic_shared_bytes_max = 0;

  // Whether it can run the launch. It needs somewhat more than the client's kernel.
  bool Takes(const LaunchWork& work) const {
    return function != nullptr && work.grid.Count() < ptx::kClaimBlocksMax &&
           work.block.Count() <= threads_per_block_max &&
           std::uint64_t{work.dynamic_shared_bytes} + ptx::kClaimSharedBytes <=
               dynamic_shared_bytes_max &&
           !work.is_cooperative && work.cluster.x == 0;
  }
};

}  // namespace gpushared::device::cuda

#endif  // GPUSHARED_SERVER_DEVICE_CUDA_CLAIMED_KERNEL_H_
