// SPDX-License-Identifier: Apache-2.0
// A stand-in for the address of a function where no device gives it one.

#ifndef GPUSHARED_SERVER_PTX_ANALYSIS_FUNCTION_ADDRESS_H_
#define GPUSHARED_SERVER_PTX_ANALYSIS_FUNCTION_ADDRESS_H_

#include <cstdint>
#include <string_view>
#include <unordered_map>

#include "common/ptx/text/module.h"

namespace gpushared::ptx {

// No user-space host address has these bits, so no memory lies there. The first step stays free:
// compilers use low bits of a function's address, and programs add small offsets to null.
inline constexpr std::uint64_t kFunctionWindow = 0x4400000000000000;
inline constexpr std::uint64_t kFunctionStep = 16;

// Addresses of a module's .func with a body, by name. They follow from the order of the text, so
// whoever asks gets the same ones. Borrows the module.
std::unordered_map<std::string_view, std::uint64_t> FunctionAddresses(const Module& module);

}  // namespace gpushared::ptx

#endif  // GPUSHARED_SERVER_PTX_ANALYSIS_FUNCTION_ADDRESS_H_
