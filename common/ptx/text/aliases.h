// SPDX-License-Identifier: Apache-2.0
// Second names of functions (.alias f, g), which the rest of this library does without.

#ifndef GPUSHARED_COMMON_PTX_TEXT_ALIASES_H_
#define GPUSHARED_COMMON_PTX_TEXT_ALIASES_H_

#include <string>
#include <vector>

#include "gpushared/status.h"

#include "common/ptx/text/module.h"

namespace gpushared::ptx {

// ".alias name, function;"
struct Alias {
  SourcePosition position;
  std::string name;
  std::string function;
};

// Makes whatever names the alias name the function: operands, lists of targets and initial values.
// The module keeps the declaration. Where other modules see it, it becomes a function of its own
// with the same body, so that they can be linked to it.
//
// As ptxas, kInvalidArgument with the line where the alias is not a declared function without a
// body, or its function not one with a body, the same parameters and the same results.
// kLimitExceeded where the module became too long.
Status ResolveAliases(Module& module, const std::vector<Alias>& aliases);

}  // namespace gpushared::ptx

#endif  // GPUSHARED_COMMON_PTX_TEXT_ALIASES_H_
