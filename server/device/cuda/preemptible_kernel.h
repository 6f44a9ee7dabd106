// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_DEVICE_CUDA_PREEMPTIBLE_KERNEL_H_
#define GPUSHARED_SERVER_DEVICE_CUDA_PREEMPTIBLE_KERNEL_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "common/cuda_driver/driver_types.h"
#include "server/device/device.h"
#include "server/ptx/passes/claim.h"

namespace gpushared::device::cuda {

// Blocks of a kernel that one multiprocessor runs at once, for the shapes of blocks that it was
// launched with lately. The device thread needs it whenever it looks at a launch, and the driver
// takes a microsecond or two to answer. Clients choose the shapes, so only a few are remembered.
//
// Confined to the device thread.
class RecentOccupancy {
 public:
  // 0 where it is not remembered.
  std::uint32_t Find(std::uint64_t threads, std::uint64_t shared_bytes) const {
    for (const Entry& entry : entries_) {
      if (entry.threads == threads && entry.shared_bytes == shared_bytes) return entry.blocks;
    }
    return 0;
  }
  // Takes the place of the oldest.
  void Remember(std::uint64_t threads, std::uint64_t shared_bytes, std::uint32_t blocks) {
    entries_[next_] = {.threads = threads, .shared_bytes = shared_bytes, .blocks = blocks};
    next_ = (next_ + 1) % kShapes;
  }

  static constexpr std::size_t kShapes = 4;

 private:
  struct Entry {
    std::uint64_t threads = 0;
    std::uint64_t shared_bytes = 0;
    std::uint32_t blocks = 0;
  };
  std::array<Entry, kShapes> entries_;
  std::size_t next_ = 0;
};

// The claimed form of a kernel, as the driver has it.
struct PreemptibleKernel {
  Function function = nullptr;         // Null: there is none.
  std::uint32_t parameter_offset = 0;  // Of ptx::ClaimParameter.
  std::uint32_t threads_per_block_max = 0;
  std::uint32_t dynamic_shared_bytes_max = 0;
  mutable RecentOccupancy occupancy;  // The device thread's.

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

#endif  // GPUSHARED_SERVER_DEVICE_CUDA_PREEMPTIBLE_KERNEL_H_
