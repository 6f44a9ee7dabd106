// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_COMMON_PTX_TEXT_INDEXED_ARRAYS_H_
#define GPUSHARED_COMMON_PTX_TEXT_INDEXED_ARRAYS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/ptx/text/module.h"

namespace gpushared::ptx {

// What stands for `table[%r3+1]`: PTX lets an address be an array's name and the number of an
// element. The rest of this library knows addresses as a base and an offset in bytes. So the
// address is computed by instructions in front, as ptxas does it: the number has 32 bits, and its
// product with the size of an element, too.
struct IndexedElement {
  std::string array;
  std::string index;        // A register; empty: `offset` alone counts.
  std::int64_t offset = 0;  // Elements.
};

// The arrays and registers that a text has declared so far.
//
// Thread-compatible.
class IndexedArrays {
 public:
  void Note(const Variable& variable);
  // Bytes of an element; nothing where the name is no array, or several that differ.
  std::optional<std::uint32_t> ElementBytes(const std::string& array) const;
  // The name of the register that has the address between ScopeBegin and ScopeEnd, which the
  // caller adds behind the instruction. Nothing where the index is not of 32 or 64 bits.
  std::optional<std::string> Address(const IndexedElement& element, SourcePosition position,
                                     std::vector<Statement>& body) const;

 private:
  // By name, or by that of a family of registers. 0: several that differ.
  std::map<std::string, std::uint32_t> element_bytes_;
  std::map<std::string, std::uint32_t> register_bytes_;
};

}  // namespace gpushared::ptx

#endif  // GPUSHARED_COMMON_PTX_TEXT_INDEXED_ARRAYS_H_
