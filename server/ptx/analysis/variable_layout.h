// SPDX-License-Identifier: Apache-2.0
// Consecutive layout of the .global and .const variables of a module, and the contents of these
// variables before the first kernel runs.

#ifndef GPUSHARED_SERVER_PTX_ANALYSIS_VARIABLE_LAYOUT_H_
#define GPUSHARED_SERVER_PTX_ANALYSIS_VARIABLE_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "gpushared/result.h"

#include "common/ptx/text/module.h"

namespace gpushared::ptx {

// Position and size of a module variable (.global or .const).
struct VariablePlacement {
  std::string name;
  std::uint64_t offset = 0;  // Bytes from the start of the module's variable area.
  std::uint64_t bytes = 0;
};

// Variable area of a module: a contiguous part of the client's range, placed by the caller. Each
// client has a separate instance, so state is never shared.
struct ModuleLayout {
  // An address inside an initializer: `bytes` bytes at `offset` are set to (base + `target_offset`)
  // >> `shift`.
  struct AddressSlot {
    std::uint64_t offset = 0;
    std::uint64_t target_offset = 0;
    std::uint32_t bytes = 8;
    std::uint32_t shift = 0;
  };

  std::uint64_t bytes = 0;      // Size of the area; 0 if the module has no variables.
  std::uint64_t alignment = 1;  // Required alignment of the area.
  std::vector<VariablePlacement> variables;
  // Contents of the area, `bytes` bytes, with zeros in place of the addresses of variables.
  std::vector<std::byte> initial;
  std::vector<AddressSlot> address_slots;

  // Returns the bytes to copy to `base` before the first launch.
  std::vector<std::byte> InitialBytes(std::uint64_t base) const;
  // Returns null if there is no such variable. Borrowed.
  const VariablePlacement* Find(const std::string& name) const;
};

// Fails with kInvalidArgument and the PTX line for invalid initializers and for modules whose
// variables exceed kModuleVariableBytesMax.
Result<ModuleLayout> LayOutModule(const Module& module);

// Limit for the variables of a client's modules, the same on every device. It is needed because a
// short text can declare variables of any size.
inline constexpr std::uint64_t kModuleVariableBytesMax = std::uint64_t{256} << 20;

}  // namespace gpushared::ptx

#endif  // GPUSHARED_SERVER_PTX_ANALYSIS_VARIABLE_LAYOUT_H_
