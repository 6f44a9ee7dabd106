// SPDX-License-Identifier: Apache-2.0
// Artificial addresses of functions on devices without function addresses.

#ifndef GPUSHARED_SERVER_PTX_ANALYSIS_FUNCTION_ADDRESS_H_
#define GPUSHARED_SERVER_PTX_ANALYSIS_FUNCTION_ADDRESS_H_

#include <cstdint>
#include <string_view>
#include <unordered_map>

#include "common/ptx/text/module.h"

namespace gpushared::ptx {

// Functions have the addresses kFunctionWindow + n * kFunctionStep, n >= 1. No user-space host
// address has these high bits, so no memory exists there. The low bits are zero, because compilers
// use them.
inline constexpr std::uint64_t kFunctionWindow = 0x4400000000000000;
inline constexpr std::uint64_t kFunctionStep = 16;

// Returns the address of each .func with a body, by name. The addresses depend only on the order of
// the functions in the text, so all callers get the same addresses. Borrows the module.
std::unordered_map<std::string_view, std::uint64_t> FunctionAddresses(const Module& module);

}  // namespace gpushared::ptx

#endif  // GPUSHARED_SERVER_PTX_ANALYSIS_FUNCTION_ADDRESS_H_
