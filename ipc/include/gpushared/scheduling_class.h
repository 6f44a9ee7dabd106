// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SCHEDULING_CLASS_H_
#define GPUSHARED_SCHEDULING_CLASS_H_

#include <cstdint>

namespace gpushared {

// Urgency of a client; smaller values are served first. The numbers travel on the wire and equal
// gpushared_class_t in the C API.
enum class SchedulingClass : std::uint8_t {
  kHigh = 0,  // Served first; the server protects its latency.
  kNormal = 1,
  kLow = 2,  // Uses the device time that the other classes leave idle.
};

}  // namespace gpushared

#endif  // GPUSHARED_SCHEDULING_CLASS_H_
