// SPDX-License-Identifier: Apache-2.0
// Exported symbols and their table.

#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_ENTRY_POINTS_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_ENTRY_POINTS_H_

#include <cstddef>
#include <functional>
#include <span>
#include <string_view>

#include "client_lib/drop_in/default_stream.h"

namespace gpushared::drop_in {

// Newest CUDA release whose functions are in functions.inc; reported by cuDriverGetVersion.
inline constexpr int kDriverVersion = 13050;

struct Function {
  std::string_view name;  // As passed to cuGetProcAddress.
  int version;            // First CUDA release with this form, 1000 * major + 10 * minor.
  std::string_view symbol;
  DefaultStream default_stream;
  bool is_implemented;
  void* address;
};

// Returns all functions, sorted by name, then by version.
std::span<const Function> Functions();

// Makes the jump of every symbol lead to `target`(index in Functions()). Returns false, without any
// effect, if the table cannot be written.
bool RedirectCalls(const std::function<const void*(std::size_t index)>& target);

}  // namespace gpushared::drop_in

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_ENTRY_POINTS_H_
