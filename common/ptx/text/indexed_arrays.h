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

// A parsed `table[%r3+1]`: in PTX, an address may be the name of an array and the number of an
// element. The rest of this library only supports a base and an offset in bytes, so the parser
// inserts instructions that compute the address first. As in ptxas, the element number and its
// product with the element size have 32 bits.
struct IndexedElement {
  std::string array;
  std::string index;        // The register with the number of the element.
  std::int64_t offset = 0;  // Number of elements that is added to `index`.
};

// The arrays and registers that the text has declared so far.
//
// Thread-compatible.
class IndexedArrays {
 public:
  void Note(const Variable& variable);
  // Returns the bytes of an element, or nothing if the name is not an array or denotes arrays with
  // different elements.
  std::optional<std::uint32_t> ElementBytes(const std::string& array) const;
  // Appends a ScopeBegin and instructions that compute the address to `body`, and returns the name
  // of the register that contains the address. The caller adds the instruction that uses it, then a
  // ScopeEnd. Returns nothing if the index does not have 32 or 64 bits.
  std::optional<std::string> Address(const IndexedElement& element, SourcePosition position,
                                     std::vector<Statement>& body) const;

 private:
  // Element bytes by the name of an array, and register bytes by the name of a register or of its
  // family. 0 if declarations of the same name differ.
  std::map<std::string, std::uint32_t> element_bytes_;
  std::map<std::string, std::uint32_t> register_bytes_;
};

}  // namespace gpushared::ptx

#endif  // GPUSHARED_COMMON_PTX_TEXT_INDEXED_ARRAYS_H_
