// SPDX-License-Identifier: Apache-2.0
// The symbols that programs link to, and their table.

#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_ENTRY_POINTS_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_ENTRY_POINTS_H_

#include <cstddef>
#include <functional>
#include <span>
#include <string_view>

#include "client_lib/drop_in/default_stream.h"

namespace gpushared::drop_in {

// The newest CUDA release whose functions are in functions.inc; what cuDriverGetVersion says.
inline constexpr int kDriverVersion = 13050;

struct Function {
  std::string_view name;  // For cuGetProcAddress.
  int version;            // The first CUDA release with this form, 1000 * major + 10 * minor.
  std::string_view symbol;
  DefaultStream default_stream;
  bool is_implemented;
  void* address;
};

// All of them, by name, then by version.
std::span<const Function> Functions();

// From now on every symbol's jump leads to what `target` returns for its place in Functions(). On
// false, nothing has changed, since the table cannot be written.
bool RedirectCalls(const std::function<const void*(std::size_t index)>& target);

}  // namespace gpushared::drop_in

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_ENTRY_POINTS_H_
