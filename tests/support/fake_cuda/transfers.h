// SPDX-License-Identifier: Apache-2.0
// Copies and fills of the fake driver, as work items.

#ifndef GPUSHARED_TESTS_SUPPORT_FAKE_CUDA_TRANSFERS_H_
#define GPUSHARED_TESTS_SUPPORT_FAKE_CUDA_TRANSFERS_H_

#include <cstddef>
#include <cstdint>

#include "common/cuda_driver/driver_types.h"
#include "tests/support/fake_cuda/world.h"

namespace gpushared::testing::fake_cuda {

inline void* Pointer(device::cuda::DeviceAddress address) {
  return reinterpret_cast<void*>(static_cast<std::uintptr_t>(address));
}

// A rectangle on one side of a copy.
struct Side {
  std::byte* start = nullptr;
  std::size_t pitch = 0;
  bool host = false;
  std::uint64_t Extent(std::size_t width, std::size_t height) const {
    return height == 0 ? 0 : pitch * (height - 1) + width;
  }
};
inline Side OnDevice(device::cuda::DeviceAddress address, std::size_t pitch = 0) {
  return {.start = static_cast<std::byte*>(Pointer(address)), .pitch = pitch};
}
inline Side OnHost(const void* address, std::size_t pitch = 0) {
  return {
      .start = static_cast<std::byte*>(const_cast<void*>(address)), .pitch = pitch, .host = true};
}

// The size of a copy in bytes, or of a fill in elements.
struct Area {
  std::size_t width = 0;
  std::size_t height = 0;
};
struct FillValue {
  std::uint32_t value = 0;
  std::size_t element_bytes = 1;  // 1, 2 or 4.
};

// Validate the operation like a driver, and set up `work` to perform it.
device::cuda::Code MakeCopy(World& world, const char* call, const Side& to, const Side& from,
                            Area area, Work& work, bool& is_pageable);
device::cuda::Code MakeFill(World& world, const char* call, const Side& to, FillValue value,
                            Area area, Work& work);

}  // namespace gpushared::testing::fake_cuda

#endif  // GPUSHARED_TESTS_SUPPORT_FAKE_CUDA_TRANSFERS_H_
