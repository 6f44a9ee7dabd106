// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_TESTS_SUPPORT_ALLOCATION_COUNT_H_
#define GPUSHARED_TESTS_SUPPORT_ALLOCATION_COUNT_H_

#include <cstdint>

namespace gpushared::testing {

// Returns the number of allocations by operator new in this process so far. This library replaces
// that operator, so only programs that count allocations link it. Thread-safe.
std::uint64_t AllocationCount();

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_SUPPORT_ALLOCATION_COUNT_H_
