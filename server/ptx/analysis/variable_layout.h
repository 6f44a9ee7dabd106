// SPDX-License-Identifier: Apache-2.0
// Where the .global and .const variables of a module lie, one behind the other, and what is
// written there before a kernel first runs.

#ifndef GPUSHARED_SERVER_PTX_ANALYSIS_VARIABLE_LAYOUT_H_
#define GPUSHARED_SERVER_PTX_ANALYSIS_VARIABLE_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "gpushared/result.h"

#include "common/ptx/text/module.h"

namespace gpushared::ptx {

// Where one module variable (.global or .const) lies and what it starts as.
struct VariablePlacement {
  std::string name;
  std::uint64_t offset = 0;  // Bytes from the start of the module's variable area.
  std::uint64_t bytes = 0;
};

// The variable area of a module: one contiguous piece of the client's range,
// placed by the caller. One instance per client, so state is never shared.
struct ModuleLayout {
  // An address inside an initialiser: `bytes` bytes at `offset` become those of
  // (base + `target_offset`) >> `shift`.
  struct AddressSlot {
    std::uint64_t offset = 0;
    std::uint64_t target_offset = 0;
    std::uint32_t bytes = 8;
    std::uint32_t shift = 0;
  };

  std::uint64_t bytes = 0;      // Of the whole area; 0 when the module has no variables.
  std::uint64_t alignment = 1;  // The area's start must be a multiple of this.
  std::vector<VariablePlacement> variables;
  std::vector<std::byte> initial;  // `bytes` bytes, addresses not yet filled in.
  std::vector<AddressSlot> address_slots;

  // The bytes to copy to `base` before the first launch.
  std::vector<std::byte> InitialBytes(std::uint64_t base) const;
  // Null when there is no such variable. Borrowed.
  const VariablePlacement* Find(const std::string& name) const;
};

// Rejects (kInvalidArgument, with the PTX line) initialisers it cannot read, and
// modules whose variables exceed kModuleVariableBytesMax.
Result<ModuleLayout> LayOutModule(const Module& module);

// What no device gives more of to the modules of a client; a short text asks for any number.
inline constexpr std::uint64_t kModuleVariableBytesMax = std::uint64_t{256} << 20;

}  // namespace gpushared::ptx

#endif  // GPUSHARED_SERVER_PTX_ANALYSIS_VARIABLE_LAYOUT_H_
