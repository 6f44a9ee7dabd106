// SPDX-License-Identifier: Apache-2.0
// What every device checks of the work it is given. The caller has checked the same; this is what
// keeps its mistake from becoming another tenant's damage.

#ifndef GPUSHARED_SERVER_DEVICE_WORK_CHECKS_H_
#define GPUSHARED_SERVER_DEVICE_WORK_CHECKS_H_

#include <algorithm>
#include <cstdint>

#include "gpushared/launch_limits.h"
#include "gpushared/status.h"

#include "server/device/device.h"
#include "server/device/memory_pieces.h"

namespace gpushared::device {

// What a client may name: [base, base + mapped_bytes) of its range.
struct MappedRange {
  std::uint64_t base = 0;
  std::uint64_t range_bytes = 0;
  std::uint64_t mapped_bytes = 0;
  bool Contains(std::uint64_t address, std::uint64_t bytes) const {
    const std::uint64_t offset = address - base;  // Wraps below base, and is then too large.
    return offset <= mapped_bytes && bytes <= mapped_bytes - offset;
  }
};

// What the device allows a launch of that kernel. A kernel may allow fewer threads than the device.
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

// kInvalidArgument, or kUnsupported for a kernel that the device lacks instructions for.
Status CheckLaunch(const LaunchWork& work, const DeviceInfo& device);
// kInvalidArgument when the work would touch anything but mapped memory and `variables`, memory of
// the client's modules, or breaks a rule of its fields.
Status CheckCopy(const CopyWork& work, const MappedRange& range, const MemoryPieces& variables);
Status CheckFill(const FillWork& work, const MappedRange& range, const MemoryPieces& variables);

}  // namespace gpushared::device

#endif  // GPUSHARED_SERVER_DEVICE_WORK_CHECKS_H_
