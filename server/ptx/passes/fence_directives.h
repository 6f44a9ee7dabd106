// SPDX-License-Identifier: Apache-2.0
// What fenced modules keep of their directives and of other text that passes do not look into.

#ifndef GPUSHARED_SERVER_PTX_PASSES_FENCE_DIRECTIVES_H_
#define GPUSHARED_SERVER_PTX_PASSES_FENCE_DIRECTIVES_H_

#include <string>
#include <string_view>

#include "server/ptx/text/module.h"

namespace gpushared::ptx {

// Why a module's text cannot be fenced as it stands outside of functions ("line 12: ..."), or "".
// Strings are taken in .pragma only: where they end is not for two readers to agree on.
std::string WhyTextIsNotKnown(const Module& module);

// Takes away what a compiler may do without: .pragma but "nounroll" and "used_bytes_mask" (others
// move registers to shared memory), .abi_preserve, and .noreturn of functions that are here, for
// they might return. Returns why another directive cannot be fenced, or "".
std::string KeepKnownDirectives(Function& function);
// Whether it is a .pragma that stays.
bool IsKnownPragma(std::string_view directive);

}  // namespace gpushared::ptx

#endif  // GPUSHARED_SERVER_PTX_PASSES_FENCE_DIRECTIVES_H_
