// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_TESTS_SUPPORT_ALLOCATION_COUNT_H_
#define GPUSHARED_TESTS_SUPPORT_ALLOCATION_COUNT_H_

#include <cstdint>

namespace gpushared::testing {

// Allocations of the whole process by operator new so far, which this library replaces: programs
// that count are programs of their own. Thread-safe.
std::uint64_t AllocationCount();

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_SUPPORT_ALLOCATION_COUNT_H_
