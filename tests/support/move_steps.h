// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_TESTS_SUPPORT_MOVE_STEPS_H_
#define GPUSHARED_TESTS_SUPPORT_MOVE_STEPS_H_

#include <cstdint>

#include "gpushared/limits.h"
#include "gpushared/status.h"

namespace gpushared::testing {

// SwapOut swaps out the last resident pages, SwapIn swaps in the first swapped-out ones, until this
// many bytes of a device::Space (or of a range with the same interface) are swapped. Returns the
// first error.
template <typename Memory>
Status SwapOut(Memory& memory, std::uint64_t bytes) {
  for (std::uint64_t at = memory.use().mapped_bytes; bytes > 0 && at > 0;) {
    at -= kMapPageBytes;
    if (memory.NonResidentBytes(memory.base() + at, kMapPageBytes) > 0) continue;
    if (Status moved = memory.SwapPageOut(at); !moved.ok()) return moved;
    bytes -= kMapPageBytes;
  }
  return {};
}
template <typename Memory>
Status SwapIn(Memory& memory, std::uint64_t bytes) {
  const std::uint64_t end = memory.use().mapped_bytes;
  for (std::uint64_t at = 0; bytes > 0 && at < end; at += kMapPageBytes) {
    if (memory.NonResidentBytes(memory.base() + at, kMapPageBytes) == 0) continue;
    if (Status moved = memory.SwapPageIn(at); !moved.ok()) return moved;
    bytes -= kMapPageBytes;
  }
  return {};
}

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_SUPPORT_MOVE_STEPS_H_
