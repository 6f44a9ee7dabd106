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

// Number of blocks of a kernel that one multiprocessor runs at once, for recently launched block
// shapes. The device thread needs this number whenever it considers a launch, while the driver
// takes a microsecond or two to compute it. The number of cached shapes is limited, because clients
// could launch any number of shapes.
//
// Confined to the device thread.
class RecentOccupancy {
 public:
  // Returns 0 if the shape is not cached.
  std::uint32_t Find(std::uint64_t threads, std::uint64_t shared_bytes) const {
    for (const Entry& entry : entries_) {
      if (entry.threads == threads && entry.shared_bytes == shared_bytes) return entry.blocks;
    }
    return 0;
  }
  // Replaces the oldest entry.
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

// The preemptible form of a kernel as loaded by the driver.
struct PreemptibleKernel {
  Function function = nullptr;         // Null if it does not exist.
  std::uint32_t parameter_offset = 0;  // Offset of ptx::ClaimParameter.
  std::uint32_t threads_per_block_max = 0;
  std::uint32_t dynamic_shared_bytes_max = 0;
  mutable RecentOccupancy occupancy;  // Device thread only.

  // Whether the form can run the launch. It needs slightly more resources than the client's kernel.
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
