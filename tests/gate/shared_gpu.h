// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_TESTS_GATE_SHARED_GPU_H_
#define GPUSHARED_TESTS_GATE_SHARED_GPU_H_

#include <cstddef>

// What programs know of the modelled GPU (shared_gpu.cpp).
namespace shared_gpu {

inline constexpr std::size_t kMemoryBytes = std::size_t{8} << 30;
// An allocation whose size is this modulo 512 fails in the driver.
inline constexpr std::size_t kFailing = 12;

// Attributes that only the modelled driver has. They show what reaches the driver through the gate.
enum Attribute : int {
  kAllocationCalls = 9001,  // Requested allocations, with or without success.
  kPeakKiB = 9002,          // The most memory that was ever allocated.
};

}  // namespace shared_gpu

#endif  // GPUSHARED_TESTS_GATE_SHARED_GPU_H_
