// SPDX-License-Identifier: Apache-2.0
#include "gpushared/launch_limits.h"

#include <limits>

namespace gpushared {

LaunchExcess FindExcess(const LaunchExtents& asked, const LaunchLimits& limits) {
  using Of = LaunchExcess::Of;
  for (std::uint8_t axis = 0; axis < 3; ++axis) {
    if (asked.grid[axis] - 1 >= limits.grid_max[axis]) {
      return {Of::kGrid, axis, asked.grid[axis], limits.grid_max[axis]};
    }
    if (asked.block[axis] - 1 >= limits.block_max[axis]) {
      return {Of::kBlock, axis, asked.block[axis], limits.block_max[axis]};
    }
  }
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
  const std::uint64_t plane = std::uint64_t{asked.block[0]} * asked.block[1];
  const std::uint64_t threads = plane > kMost / asked.block[2] ? kMost : plane * asked.block[2];
  if (threads > limits.threads_per_block_max) {
    return {Of::kThreads, 0, threads, limits.threads_per_block_max};
  }
  const std::uint64_t shared =
      std::uint64_t{asked.static_shared_bytes} + asked.dynamic_shared_bytes;
  if (shared > limits.shared_bytes_per_block_max) {
    return {Of::kShared, 0, shared, limits.shared_bytes_per_block_max};
  }
  for (std::uint8_t axis = 0; axis < 3; ++axis) {
    if (limits.required_block[0] != 0 && asked.block[axis] != limits.required_block[axis]) {
      return {Of::kExactBlock, axis, asked.block[axis], limits.required_block[axis]};
    }
    if (limits.required_cluster[0] != 0 && asked.cluster[0] != 0 &&
        asked.cluster[axis] != limits.required_cluster[axis]) {
      return {Of::kCluster, axis, asked.cluster[axis], limits.required_cluster[axis]};
    }
  }
  return {};
}

std::string LaunchExcess::Message(std::string_view kernel, std::string_view device) const {
  const std::string number = std::to_string(asked);
  const std::string most = std::to_string(allowed);
  const std::string on = std::string(device);
  const std::string along = std::string(" along ") + "xyz"[axis];
  const std::string rejected = "launch rejected: kernel '" + std::string(kernel) + "' asks for ";
  switch (of) {
    case Of::kNothing:
      return {};
    case Of::kGrid:
      return rejected + number + " blocks" + along + ", device " + on + " allows 1 to " + most;
    case Of::kBlock:
      return rejected + number + " threads per block" + along + ", device " + on + " allows 1 to " +
             most;
    case Of::kThreads:
      return rejected + number + " threads per block, it allows " + most + " on device " + on;
    case Of::kShared:
      return rejected + number + " bytes of static and dynamic shared memory per block, device " +
             on + " allows " + most;
    case Of::kExactBlock:
      return rejected + number + " threads per block" + along + ", it was compiled for exactly " +
             most + " (.reqntid)";
    case Of::kCluster:
      return rejected + number + " blocks per cluster" + along + ", it was compiled for exactly " +
             most + " (.reqnctapercluster)";
  }
  return {};
}

}  // namespace gpushared
