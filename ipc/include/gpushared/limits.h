// SPDX-License-Identifier: Apache-2.0
// Limits shared by the client library, the wire format, the server and the scheduler.

#ifndef GPUSHARED_LIMITS_H_
#define GPUSHARED_LIMITS_H_

#include <cstdint>

namespace gpushared {

// Largest weight of a client within its class; the smallest is 1.
inline constexpr std::uint32_t kWeightMax = 1000;
// Largest share of device time, in thousandths: the whole device. A cap of this value caps nothing.
inline constexpr std::uint32_t kSharePerMilleMax = 1000;
// Maximum number of requests of one client that are open at the same time.
inline constexpr std::uint32_t kOpenRequestsMax = 16;

// Page size: device memory is mapped, swapped and allocated as chunks in multiples of this size.
inline constexpr std::uint64_t kMapPageBytes = std::uint64_t{2} << 20;

// Parameter bytes of one kernel, as CUDA allows from sm_70 on.
inline constexpr std::uint32_t kParameterBytesMax = 32764;
// A module with more variables is rejected.
inline constexpr std::uint32_t kVariablesPerModuleMax = 16384;

}  // namespace gpushared

#endif  // GPUSHARED_LIMITS_H_
