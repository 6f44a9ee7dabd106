// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SCHEDULING_CLASS_H_
#define GPUSHARED_SCHEDULING_CLASS_H_

#include <cstdint>

namespace gpushared {

// How urgent a client is. Smaller is served first. The numbers travel on the wire and equal
// gpushared_class_t in the C API.
enum class SchedulingClass : std::uint8_t {
  kHigh = 0,  // Served first; its latency is what the server protects.
  kNormal = 1,
  kLow = 2,  // Fills the gaps of the others.
};

}  // namespace gpushared

#endif  // GPUSHARED_SCHEDULING_CLASS_H_
