// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_DEVICE_SM_LIMIT_H_
#define GPUSHARED_SERVER_DEVICE_SM_LIMIT_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace gpushared::device {

// Limit of the multiprocessors that one class may use, either absolute or as a fraction of the
// device.
//
// Thread-compatible value.
struct SmLimit {
  std::uint32_t multiprocessors = 0;  // Absolute number, used if fraction is 0.
  // Fraction of the device, above 0 and up to 1; 0 if `multiprocessors` applies.
  double fraction = 0;

  // Returns the limit for a device with `all` multiprocessors; at least 1.
  std::uint32_t Of(std::uint32_t all) const {
    if (fraction == 0) return std::min(multiprocessors, all);
    return std::max(1U, static_cast<std::uint32_t>(fraction * all));
  }
  friend bool operator==(const SmLimit&, const SmLimit&) = default;
};

// Number of scheduling classes; class 0 is the most urgent.
inline constexpr std::size_t kDeviceClasses = 3;
using SmLimits = std::array<std::optional<SmLimit>, kDeviceClasses>;

// Result of applying a limit: the requested and the granted number of multiprocessors.
struct SmGrant {
  std::size_t of_class = 0;
  std::uint32_t asked = 0;
  std::uint32_t granted = 0;
};

}  // namespace gpushared::device

#endif  // GPUSHARED_SERVER_DEVICE_SM_LIMIT_H_
