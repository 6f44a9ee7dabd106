// SPDX-License-Identifier: Apache-2.0
// Occupancy of multiprocessors, and limits of launches.

#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_OCCUPANCY_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_OCCUPANCY_H_

#include <cstdint>

#include "gpushared/client.h"

#include "client_lib/drop_in/cuda_module.h"

namespace gpushared::drop_in {

// Limits for the blocks of one kernel on one device.
//
// Thread-compatible value.
struct OccupancyLimits {
  int threads_per_block;
  int warp_threads;
  int threads_per_multiprocessor;
  int blocks_per_multiprocessor;
  std::uint64_t shared_per_multiprocessor;
  std::uint64_t shared_per_block;
  std::uint64_t static_shared;
  int warps_by_registers;
  int multiprocessors;
  int cluster_blocks_max;  // 1: no clusters.
};

OccupancyLimits GetOccupancyLimits(const DeviceProperties& device, const Kernel& kernel);

// Returns how many blocks with these threads and bytes of dynamic shared memory fit onto one
// multiprocessor. `block_threads` is at least 1.
int BlocksFitting(const OccupancyLimits& limits, int block_threads, std::uint64_t dynamic_shared);

// Returns the bytes of dynamic shared memory that a launch may request:
// CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES if the program has set it, otherwise the device's
// limit per block (48 KiB) minus the kernel's static shared memory.
int DynamicSharedMax(const DeviceProperties& device, const CudaKernel& kernel,
                     const Kernel& loaded);

}  // namespace gpushared::drop_in

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_OCCUPANCY_H_
