// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_SURFACE_ACCESS_H_
#define GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_SURFACE_ACCESS_H_

#include <cstdint>

namespace gpushared::device::executor {

// Handling of an access outside of a surface.
enum class SurfaceBounds : std::uint8_t { kTrap, kClamp, kZero };

// Elements that suld and sust access, encoded as one number: MicroOp::immediate.
struct SurfaceAccess {
  std::uint32_t element_bytes = 4;
  std::uint32_t elements = 1;
  SurfaceBounds bounds = SurfaceBounds::kTrap;

  static SurfaceAccess Of(std::int64_t number) {
    return {.element_bytes = static_cast<std::uint8_t>(number),
            .elements = static_cast<std::uint8_t>(number >> 8),
            .bounds = static_cast<SurfaceBounds>(number >> 16 & 0xff)};
  }
  std::int64_t Number() const {
    return element_bytes | elements << 8 | static_cast<std::uint32_t>(bounds) << 16;
  }
  bool IsPossible() const {
    const bool is_size =
        element_bytes == 1 || element_bytes == 2 || element_bytes == 4 || element_bytes == 8;
    return is_size && (elements == 1 || elements == 2 || elements == 4) &&
           element_bytes * elements <= 16 && bounds <= SurfaceBounds::kZero;
  }
};

}  // namespace gpushared::device::executor

#endif  // GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_SURFACE_ACCESS_H_
