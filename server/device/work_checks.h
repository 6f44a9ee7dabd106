// SPDX-License-Identifier: Apache-2.0
// Validation of submitted work, common to all devices. The caller has made the same checks; these
// keep a bug in the caller from damaging another client.

#ifndef GPUSHARED_SERVER_DEVICE_WORK_CHECKS_H_
#define GPUSHARED_SERVER_DEVICE_WORK_CHECKS_H_

#include <algorithm>
#include <cstdint>

#include "gpushared/launch_limits.h"
#include "gpushared/status.h"

#include "server/device/device.h"
#include "server/device/memory_pieces.h"

namespace gpushared::device {

// Part of a client's address range that the client may access: [base, base + mapped_bytes).
struct MappedRange {
  std::uint64_t base = 0;
  std::uint64_t range_bytes = 0;
  std::uint64_t mapped_bytes = 0;
  bool Contains(std::uint64_t address, std::uint64_t bytes) const {
    // Wraps to a large value if `address` is below `base`.
    const std::uint64_t offset = address - base;
    return offset <= mapped_bytes && bytes <= mapped_bytes - offset;
  }
};

// Returns the launch limits of the kernel on the device. A kernel may allow fewer threads than the
// device.
inline LaunchLimits GetLimits(const KernelInfo& kernel, const DeviceInfo& device) {
  const std::uint32_t threads_max =
      kernel.threads_per_block_max == 0
          ? device.threads_per_block_max
          : std::min(kernel.threads_per_block_max, device.threads_per_block_max);
  return {.grid_max = device.grid_max,
          .block_max = device.block_max,
          .threads_per_block_max = threads_max,
          .shared_bytes_per_block_max = device.shared_bytes_per_block_max,
          .required_block = kernel.required_block,
          .required_cluster = kernel.required_cluster};
}

// Fails with kInvalidArgument, or with kUnsupported for a kernel with unsupported instructions.
Status CheckLaunch(const LaunchWork& work, const DeviceInfo& device);
// Fails with kInvalidArgument if the work violates a rule for its fields, or accesses anything
// other than mapped memory and `variables`, the memory of the client's modules.
Status CheckCopy(const CopyWork& work, const MappedRange& range, const MemoryPieces& variables);
Status CheckFill(const FillWork& work, const MappedRange& range, const MemoryPieces& variables);

}  // namespace gpushared::device

#endif  // GPUSHARED_SERVER_DEVICE_WORK_CHECKS_H_
