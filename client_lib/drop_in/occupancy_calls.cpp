// SPDX-License-Identifier: Apache-2.0
// Occupancy of multiprocessors, computed from the attributes of the device.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>

#include "client_lib/drop_in/calls.h"
#include "client_lib/drop_in/current.h"
#include "client_lib/drop_in/occupancy.h"

namespace gpushared::drop_in {
namespace {

Code FindLimits(FunctionHandle function, OccupancyLimits& limits) {
  const Current current;
  if (!current.ok()) return current.code();
  const std::shared_ptr<CudaKernel> kernel = Driver::Get().kernels.Find(function);
  if (kernel == nullptr) return Code::kInvalidHandle;
  const Result<Kernel> loaded = kernel->In(*current);
  if (!loaded.ok()) return current.GetCode(loaded.status());
  limits = GetOccupancyLimits(current->session().client().device(), *loaded);
  return Code::kSuccess;
}

// Threads per block and blocks per cluster of the launch that a LaunchConfig describes.
struct Asked {
  int block_threads = 0;
  std::uint64_t cluster_blocks = 1;
};

Code ReadConfig(const LaunchConfig& config, Asked& asked) {
  if (config.attribute_count != 0 && config.attributes == nullptr) return Code::kInvalidValue;
  std::uint64_t threads = 1;
  for (const unsigned size : {config.block_x, config.block_y, config.block_z}) {
    threads *= std::min(size, 4096U);  // More than any block has.
  }
  if (threads == 0 || threads > std::numeric_limits<int>::max()) return Code::kInvalidValue;
  asked.block_threads = static_cast<int>(threads);
  for (unsigned i = 0; i < config.attribute_count; ++i) {
    const LaunchAttribute& attribute = config.attributes[i];
    if (attribute.id != LaunchAttributeId::kClusterDimension) continue;
    const auto& size = attribute.value.cluster;
    asked.cluster_blocks = 1;
    for (const unsigned blocks : {size.x, size.y, size.z}) {
      asked.cluster_blocks *= std::clamp(blocks, 1U, 4096U);
    }
  }
  return Code::kSuccess;
}

}  // namespace

Code OccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, FunctionHandle function,
                                               int block_threads, std::size_t shared_bytes) {
  if (AnyNull(blocks) || block_threads <= 0) return Code::kInvalidValue;
  OccupancyLimits limits{};
  const Code code = FindLimits(function, limits);
  if (code == Code::kSuccess) *blocks = BlocksFitting(limits, block_threads, shared_bytes);
  return code;
}

Code OccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, FunctionHandle function,
                                                        int block_threads, std::size_t shared_bytes,
                                                        unsigned flags) {
  if (flags > 1) return Code::kInvalidValue;
  return OccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, block_threads, shared_bytes);
}

Code OccupancyMaxPotentialBlockSize(int* grid_least, int* block_threads, FunctionHandle function,
                                    BlockToSharedBytes shared_of_block, std::size_t shared_bytes,
                                    int block_threads_max) {
  if (AnyNull(grid_least, block_threads) || block_threads_max < 0) return Code::kInvalidValue;
  OccupancyLimits limits{};
  if (const Code code = FindLimits(function, limits); code != Code::kSuccess) return code;
  const int most = block_threads_max == 0 ? limits.threads_per_block
                                          : std::min(block_threads_max, limits.threads_per_block);
  int best_threads = 0, best_blocks = 0;
  // Tries sizes in whole warps from the largest one down, so that the fewest blocks win among equal
  // occupancies.
  for (int threads = most; threads > 0;
       threads = (threads - 1) / limits.warp_threads * limits.warp_threads) {
    const std::size_t shared = shared_of_block == nullptr ? shared_bytes : shared_of_block(threads);
    const int blocks = BlocksFitting(limits, threads, shared);
    if (blocks * threads <= best_blocks * best_threads) continue;
    best_threads = threads;
    best_blocks = blocks;
  }
  *block_threads = best_threads;
  *grid_least = best_blocks * limits.multiprocessors;
  return Code::kSuccess;
}

Code OccupancyMaxPotentialBlockSizeWithFlags(int* grid_least, int* block_threads,
                                             FunctionHandle function,
                                             BlockToSharedBytes shared_of_block,
                                             std::size_t shared_bytes, int block_threads_max,
                                             unsigned flags) {
  if (flags > 1) return Code::kInvalidValue;
  return OccupancyMaxPotentialBlockSize(grid_least, block_threads, function, shared_of_block,
                                        shared_bytes, block_threads_max);
}

Code OccupancyAvailableDynamicSmemPerBlock(std::size_t* shared_bytes, FunctionHandle function,
                                           int blocks, int block_threads) {
  if (AnyNull(shared_bytes) || blocks <= 0 || block_threads <= 0) return Code::kInvalidValue;
  OccupancyLimits limits{};
  if (const Code code = FindLimits(function, limits); code != Code::kSuccess) return code;
  if (blocks > BlocksFitting(limits, block_threads, 0)) return Code::kInvalidValue;
  const std::uint64_t share =
      std::min(limits.shared_per_multiprocessor / static_cast<std::uint64_t>(blocks),
               limits.shared_per_block);
  // No launch gets more than the kernel may request.
  int most = 0;
  const Code code = FuncGetAttribute(
      &most, static_cast<int>(device::cuda::FunctionAttribute::kDynamicSharedBytesMax), function);
  if (code != Code::kSuccess) return code;
  *shared_bytes =
      std::min(share - std::min(limits.static_shared, share), static_cast<std::uint64_t>(most));
  return Code::kSuccess;
}

Code OccupancyMaxActiveClusters(int* clusters, FunctionHandle function,
                                const LaunchConfig* config) {
  if (AnyNull(clusters, config)) return Code::kInvalidValue;
  Asked asked;
  OccupancyLimits limits{};
  Code code = ReadConfig(*config, asked);
  if (code == Code::kSuccess) code = FindLimits(function, limits);
  if (code != Code::kSuccess) return code;
  if (asked.cluster_blocks > static_cast<std::uint64_t>(limits.cluster_blocks_max)) {
    return Code::kInvalidClusterSize;
  }
  *clusters = BlocksFitting(limits, asked.block_threads, config->shared_bytes) *
              limits.multiprocessors / static_cast<int>(asked.cluster_blocks);
  return Code::kSuccess;
}

Code OccupancyMaxPotentialClusterSize(int* blocks, FunctionHandle function,
                                      const LaunchConfig* config) {
  if (AnyNull(blocks, config)) return Code::kInvalidValue;
  Asked asked;
  OccupancyLimits limits{};
  Code code = ReadConfig(*config, asked);
  if (code == Code::kSuccess) code = FindLimits(function, limits);
  if (code != Code::kSuccess) return code;
  const bool fits = BlocksFitting(limits, asked.block_threads, config->shared_bytes) > 0;
  *blocks = fits ? limits.cluster_blocks_max : 0;
  return Code::kSuccess;
}

}  // namespace gpushared::drop_in
