// SPDX-License-Identifier: Apache-2.0
#include "client_lib/drop_in/occupancy.h"

#include <algorithm>
#include <limits>

#include "client_lib/drop_in/device_attributes.h"

namespace gpushared::drop_in {
namespace {

// Cluster size that every device with clusters supports (CUDA C++ Programming Guide).
constexpr int kPortableClusterBlocks = 8;

// Each of the four parts of a multiprocessor allocates registers to whole warps, in units of 256
// (CUDA's occupancy calculator, compute capability 7.0 and later).
int WarpsByRegisters(int registers_per_thread, int registers_per_multiprocessor) {
  constexpr int kParts = 4;
  constexpr int kStep = 256;
  if (registers_per_thread <= 0) return std::numeric_limits<int>::max();
  const int per_warp = (registers_per_thread * 32 + kStep - 1) / kStep * kStep;
  return kParts * (registers_per_multiprocessor / kParts / per_warp);
}

}  // namespace

OccupancyLimits GetOccupancyLimits(const DeviceProperties& device, const Kernel& kernel) {
  const auto bytes = [&](Attribute id) {
    return static_cast<std::uint64_t>(AttributeFor(device, id));
  };
  return {
      .threads_per_block = static_cast<int>(kernel.threads_per_block_max()),
      .warp_threads = AttributeFor(device, Attribute::kWarpThreads),
      .threads_per_multiprocessor = AttributeFor(device, Attribute::kThreadsPerMultiprocessorMax),
      .blocks_per_multiprocessor = AttributeFor(device, Attribute::kBlocksPerMultiprocessorMax),
      .shared_per_multiprocessor = bytes(Attribute::kSharedBytesPerMultiprocessor),
      .shared_per_block = bytes(Attribute::kSharedBytesPerBlockOptIn),
      .static_shared = kernel.static_shared_bytes(),
      .warps_by_registers =
          WarpsByRegisters(static_cast<int>(std::min(kernel.attributes().registers, 255U)),
                           AttributeFor(device, Attribute::kRegistersPerMultiprocessor)),
      .multiprocessors = AttributeFor(device, Attribute::kMultiprocessors),
      .cluster_blocks_max =
          AttributeFor(device, Attribute::kClusterLaunch) == 0 ? 1 : kPortableClusterBlocks};
}

int BlocksFitting(const OccupancyLimits& limits, int block_threads, std::uint64_t dynamic_shared) {
  if (block_threads > limits.threads_per_block) return 0;
  const int warps = (block_threads + limits.warp_threads - 1) / limits.warp_threads;
  int blocks = std::min(limits.blocks_per_multiprocessor,
                        limits.threads_per_multiprocessor / (warps * limits.warp_threads));
  blocks = std::min(blocks, limits.warps_by_registers / warps);
  if (dynamic_shared >
      limits.shared_per_block - std::min(limits.static_shared, limits.shared_per_block)) {
    return 0;
  }
  const std::uint64_t shared = limits.static_shared + dynamic_shared;
  if (shared != 0) {
    const std::uint64_t most = limits.shared_per_multiprocessor / shared;
    blocks = static_cast<int>(std::min<std::uint64_t>(static_cast<std::uint64_t>(blocks), most));
  }
  return blocks;
}

int DynamicSharedMax(const DeviceProperties& device, const CudaKernel& kernel,
                     const Kernel& loaded) {
  constexpr auto kIndex =
      static_cast<std::size_t>(device::cuda::FunctionAttribute::kDynamicSharedBytesMax);
  const int set = kernel.set_attributes[kIndex].load();
  if (set != CudaKernel::kUnset) return set;
  const int rest = AttributeFor(device, Attribute::kSharedBytesPerBlockMax) -
                   static_cast<int>(loaded.static_shared_bytes());
  return std::max(rest, 0);
}

}  // namespace gpushared::drop_in
