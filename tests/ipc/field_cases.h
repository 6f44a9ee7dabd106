// SPDX-License-Identifier: Apache-2.0
// Iterates over the field tables of the wire: every field of a struct needs a case, so that a new
// field without one fails.

#ifndef GPUSHARED_TESTS_IPC_FIELD_CASES_H_
#define GPUSHARED_TESTS_IPC_FIELD_CASES_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/wire_fields.h"

namespace gpushared::testing {

// A value of a field and its expected rejection.
struct FieldCase {
  std::string_view field;
  std::uint64_t value = 0;
  std::string rejection;  // Part of the message; empty: this value is legal.
  std::size_t element = 0;
};

// States explicitly that any value of this field is legal.
inline FieldCase AnyValue(std::string_view field) { return {field, ~std::uint64_t{0}, "", 0}; }

inline bool IsReserved(const ipc::Field& field) { return field.name.starts_with("reserved"); }

// Overwrites one element of a field.
inline void Poke(std::byte* wire, const ipc::Field& field, std::size_t element,
                 std::uint64_t value) {
  std::memcpy(wire + field.offset + element * field.element_bytes, &value, field.element_bytes);
}

template <typename T>
const ipc::Field* FindField(std::string_view name) {
  for (const ipc::Field& field : GetFields<T>()) {
    if (field.name == name) return &field;
  }
  return nullptr;
}

// Returns the fields of T that have no case and are neither reserved nor in `elsewhere`; arrays
// need a case for each element.
template <typename T>
std::vector<std::string> FieldsWithoutCase(const std::vector<FieldCase>& cases,
                                           const std::vector<std::string_view>& elsewhere) {
  std::vector<std::string> missing;
  for (const ipc::Field& field : GetFields<T>()) {
    bool excused = IsReserved(field);
    for (const std::string_view name : elsewhere) excused = excused || name == field.name;
    if (excused) continue;
    const bool text = field.element_bytes == 1 && field.bytes > 8;
    const std::size_t elements = text ? 1 : field.bytes / field.element_bytes;
    for (std::size_t element = 0; element < elements; ++element) {
      bool found = false;
      for (const FieldCase& c : cases) {
        found = found || (c.field == field.name && c.element == element);
      }
      if (!found) missing.push_back(field.name + "[" + std::to_string(element) + "]");
    }
  }
  return missing;
}

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_IPC_FIELD_CASES_H_
