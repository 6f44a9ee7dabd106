// SPDX-License-Identifier: Apache-2.0
// Limits that more than one of client library, wire, server and scheduler keep.

#ifndef GPUSHARED_LIMITS_H_
#define GPUSHARED_LIMITS_H_

#include <cstdint>

namespace gpushared {

// A client's weight in its class is 1 to this.
inline constexpr std::uint32_t kWeightMax = 1000;
// Shares of device time are in thousandths; this is the whole device, and no cap.
inline constexpr std::uint32_t kSharePerMilleMax = 1000;
// A client's requests that are open at one time, from their begin to their end.
inline constexpr std::uint32_t kOpenRequestsMax = 16;

// Device memory is mapped, moved and given out as chunks in multiples of this.
inline constexpr std::uint64_t kMapPageBytes = std::uint64_t{2} << 20;

// Of one kernel, as CUDA allows from sm_70 on.
inline constexpr std::uint32_t kParameterBytesMax = 32764;
// A module with more variables is rejected.
inline constexpr std::uint32_t kVariablesPerModuleMax = 16384;

}  // namespace gpushared

#endif  // GPUSHARED_LIMITS_H_
