// SPDX-License-Identifier: Apache-2.0
// Arithmetic with sizes that a program chooses, which must not wrap around to small ones.

#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_GATE_UP_TO_MAX_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_GATE_UP_TO_MAX_H_

#include <cstdint>
#include <limits>

namespace gpushared::drop_in::gate {

inline std::uint64_t AddUpToMax(std::uint64_t one, std::uint64_t two) {
  std::uint64_t sum = 0;
  return __builtin_add_overflow(one, two, &sum) ? std::numeric_limits<std::uint64_t>::max() : sum;
}

inline std::uint64_t MultiplyUpToMax(std::uint64_t one, std::uint64_t two) {
  std::uint64_t product = 0;
  return __builtin_mul_overflow(one, two, &product) ? std::numeric_limits<std::uint64_t>::max()
                                                    : product;
}

}  // namespace gpushared::drop_in::gate

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_GATE_UP_TO_MAX_H_
