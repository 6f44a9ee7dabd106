// SPDX-License-Identifier: Apache-2.0
// Memory accesses of instructions, for passes that must not miss any.

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
  std::size_t operand = 0;  // Index of the address operand.
  AccessSpace space = AccessSpace::kGeneric;
  // Size of the access, or of one row if there is a stride; 0 for hints, which access no memory.
  std::uint32_t bytes = 0;
  // A power of two. The device faults unless the address is a multiple of it.
  std::uint32_t alignment = 1;
  // Whether a generic address may be one of shared memory, of local memory, and of a kernel's
  // parameters; otherwise the device faults.
  bool takes_shared = false, takes_local = false, takes_parameter = false;
  // wmma.load and wmma.store access `rows` rows (or columns), whose distance is operand `stride`
  // times `stride_bytes`. `stride_bytes` is 0 for elements smaller than a byte.
  std::optional<std::size_t> stride;
  std::uint32_t rows = 1;
  std::uint32_t stride_bytes = 0;
};

struct MemoryAccesses {
  std::vector<MemoryAccess> list;  // Empty if the instruction is rejected.
  std::string rejection;           // Reason why the instruction is not understood; otherwise empty.
};

// Uses an allowlist of known instructions: any other instruction is rejected, because it might
// access memory in an unknown way.
MemoryAccesses FindMemoryAccesses(const Instruction& instruction);

}  // namespace gpushared::ptx

#endif  // GPUSHARED_SERVER_PTX_ANALYSIS_MEMORY_ACCESS_H_
