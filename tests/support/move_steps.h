// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_TESTS_SUPPORT_MOVE_STEPS_H_
#define GPUSHARED_TESTS_SUPPORT_MOVE_STEPS_H_

#include <cstdint>

#include "gpushared/limits.h"
#include "gpushared/status.h"

namespace gpushared::testing {

// Moves so many bytes of a device::Space, or of a range as one has it, in whole steps: the last
// ones that are there out, or the first ones that are away in. Ends at the first error.
template <typename Memory>
Status MoveOut(Memory& memory, std::uint64_t bytes) {
  for (std::uint64_t at = memory.use().mapped_bytes; bytes > 0 && at > 0;) {
    at -= kMapStepBytes;
    if (memory.AwayBytes(memory.base() + at, kMapStepBytes) > 0) continue;
    if (Status moved = memory.MoveStepOut(at); !moved.ok()) return moved;
    bytes -= kMapStepBytes;
  }
  return {};
}
template <typename Memory>
Status MoveIn(Memory& memory, std::uint64_t bytes) {
  const std::uint64_t end = memory.use().mapped_bytes;
  for (std::uint64_t at = 0; bytes > 0 && at < end; at += kMapStepBytes) {
    if (memory.AwayBytes(memory.base() + at, kMapStepBytes) == 0) continue;
    if (Status moved = memory.MoveStepIn(at); !moved.ok()) return moved;
    bytes -= kMapStepBytes;
  }
  return {};
}

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_SUPPORT_MOVE_STEPS_H_
