// SPDX-License-Identifier: Apache-2.0
// The memory that an instruction touches, for passes that must miss none of it.

#ifndef GPUSHARED_SERVER_PTX_ANALYSIS_MEMORY_ACCESS_H_
#define GPUSHARED_SERVER_PTX_ANALYSIS_MEMORY_ACCESS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/ptx/text/module.h"

namespace gpushared::ptx {

enum class AccessSpace : std::uint8_t { kGeneric, kGlobal, kConstant, kShared, kLocal, kParameter };

struct MemoryAccess {
  std::size_t operand = 0;  // The address among the instruction's operands.
  AccessSpace space = AccessSpace::kGeneric;
  std::uint32_t bytes = 0;  // From the address on, strides aside; 0 for hints, which touch none.
  // What the address is a multiple of, else the device faults; a power of two.
  std::uint32_t alignment = 1;
  // Of a generic address: whether the device takes one of shared memory, of local memory and of a
  // kernel's parameters here; of others it makes a fault.
  bool takes_shared = false, takes_local = false, takes_parameter = false;
  // wmma.load and wmma.store: as many rows (or columns), `stride` operand times
  // `stride_bytes` apart. `stride_bytes` 0: elements of less than a byte.
  std::optional<std::size_t> stride;
  std::uint32_t rows = 1;
  std::uint32_t stride_bytes = 0;
};

struct MemoryAccesses {
  std::vector<MemoryAccess> list;  // Of operands that are there; none where it is rejected.
  std::string rejection;           // What is not understood about the instruction; else empty.
};

// Knows instructions by a list of those that are safe to know: whatever is not on it is rejected,
// since it might touch memory in a way that the list knows nothing of.
MemoryAccesses FindMemoryAccesses(const Instruction& instruction);

}  // namespace gpushared::ptx

#endif  // GPUSHARED_SERVER_PTX_ANALYSIS_MEMORY_ACCESS_H_
