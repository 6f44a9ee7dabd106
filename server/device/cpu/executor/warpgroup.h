// SPDX-License-Identifier: Apache-2.0
// Encoding of wgmma shared by the decoder and the operation. Private to the executor.

#ifndef GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_WARPGROUP_H_
#define GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_WARPGROUP_H_

#include <cstdint>

namespace gpushared::device::executor {

// Flags in MicroOp::extra.
inline constexpr std::uint32_t kNegates = 1;  // Negates the products.
inline constexpr std::uint32_t kTransposesA = 2;
inline constexpr std::uint32_t kTransposesB = 4;

inline constexpr std::uint32_t kWarpgroupColumnsMax = 256;
inline constexpr std::uint32_t kWarpgroupDepthMax = 32;  // Elements along K.

}  // namespace gpushared::device::executor

#endif  // GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_WARPGROUP_H_
