// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_LAUNCH_LIMITS_H_
#define GPUSHARED_LAUNCH_LIMITS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace gpushared {

// Extents that a launch requests along x, y and z: the grid's in blocks, the block's in threads.
//
// Thread-compatible value.
struct LaunchExtents {
  std::array<std::uint32_t, 3> grid = {};
  std::array<std::uint32_t, 3> block = {};
  // Blocks per cluster; all zero if the launch does not specify clusters.
  std::array<std::uint32_t, 3> cluster = {};
  std::uint32_t static_shared_bytes = 0;  // Static shared memory per block, declared by the kernel.
  std::uint32_t dynamic_shared_bytes = 0;  // Dynamic shared memory per block.
};

// Limits of a device for launches of one kernel. Each extent of a launch's grid and block is at
// least 1.
//
// Thread-compatible value.
struct LaunchLimits {
  std::array<std::uint32_t, 3> grid_max = {};
  std::array<std::uint32_t, 3> block_max = {};
  std::uint32_t threads_per_block_max = 0;  // The lower of the kernel's and the device's limit.
  // Limit for static and dynamic shared memory together.
  std::uint32_t shared_bytes_per_block_max = 0;
  // Extents that the kernel was compiled for (.reqntid, .reqnctapercluster); all zero if any are
  // allowed.
  std::array<std::uint32_t, 3> required_block = {};
  std::array<std::uint32_t, 3> required_cluster = {};
};

// First limit that a launch exceeds. Holds numbers and no text, so that rejecting a launch is as
// cheap as accepting it unless a caller asks for the message.
//
// Thread-compatible value.
struct LaunchExcess {
  enum class Of : std::uint8_t {
    kNothing,
    kGrid,
    kBlock,
    kThreads,
    kShared,
    kExactBlock,
    kCluster
  };

  Of of = Of::kNothing;
  std::uint8_t axis = 0;  // 0 to 2; only for kGrid, kBlock, kExactBlock and kCluster.
  std::uint64_t asked = 0;
  std::uint64_t allowed = 0;

  bool ok() const { return of == Of::kNothing; }
  // Returns a message such as "launch rejected: kernel 'k' asks for 201 blocks along y, device
  // cpu:0 allows 1 to 200". The names are inserted verbatim. Requires !ok().
  std::string Message(std::string_view kernel, std::string_view device) const;
};

// Returns whether the launch is within all limits.
inline bool IsWithinLaunchLimits(const LaunchExtents& asked, const LaunchLimits& limits) {
  bool fits = true;
  // Valid extents are 1 to the maximum; subtracting 1 makes 0 wrap to the largest number, so one
  // comparison suffices. Unrolled by hand, so that compilers keep the numbers in registers.
  const auto check_axis = [&](std::size_t i) {
    fits &= asked.grid[i] - 1 < limits.grid_max[i];
    fits &= asked.block[i] - 1 < limits.block_max[i];
  };
  check_axis(0);
  check_axis(1);
  check_axis(2);
  // The second product can wrap only if the first one is already too large.
  const std::uint64_t plane = std::uint64_t{asked.block[0]} * asked.block[1];
  fits &= plane <= limits.threads_per_block_max;
  fits &= plane * asked.block[2] <= limits.threads_per_block_max;
  fits &= std::uint64_t{asked.static_shared_bytes} + asked.dynamic_shared_bytes <=
          limits.shared_bytes_per_block_max;
  // Few kernels require a shape. A required shape has no extent of 0, so testing x suffices.
  if (limits.required_block[0] != 0) [[unlikely]]
    fits &= asked.block == limits.required_block;
  if (limits.required_cluster[0] != 0 && asked.cluster[0] != 0) [[unlikely]]
    fits &= asked.cluster == limits.required_cluster;
  return fits;
}

// Returns the first limit that the launch exceeds. Requires that it exceeds one.
[[gnu::cold]] LaunchExcess FindExcess(const LaunchExtents& asked, const LaunchLimits& limits);

// Checks a launch. Client library, worker and device each call this function, or
// IsWithinLaunchLimits and FindExcess, with their own copy of the numbers. Any thread may call it.
inline LaunchExcess CheckLaunchLimits(const LaunchExtents& asked, const LaunchLimits& limits) {
  if (IsWithinLaunchLimits(asked, limits)) [[likely]]
    return {};
  return FindExcess(asked, limits);
}

}  // namespace gpushared

#endif  // GPUSHARED_LAUNCH_LIMITS_H_
