// SPDX-License-Identifier: Apache-2.0
#include "server/ptx/analysis/function_address.h"

#include <variant>

namespace gpushared::ptx {

std::unordered_map<std::string_view, std::uint64_t> FunctionAddresses(const Module& module) {
  std::unordered_map<std::string_view, std::uint64_t> addresses;
  std::uint64_t next = kFunctionWindow + kFunctionStep;
  for (const Item& item : module.items) {
    const auto* function = std::get_if<Function>(&item);
    if (function == nullptr || !function->body || function->is_entry) continue;
    if (addresses.emplace(function->name, next).second) next += kFunctionStep;
  }
  return addresses;
}

}  // namespace gpushared::ptx
