// SPDX-License-Identifier: Apache-2.0
// Replaces function aliases (.alias f, g), which the rest of this library does not support.

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

// Replaces all uses of an alias (in operands, target lists and initial values) by its function. The
// declaration of the alias remains in the module. If the alias is visible to other modules, its
// declaration becomes a separate function with the same body, so that they can link to it.
//
// Like ptxas, fails with kInvalidArgument and the line unless the alias is a declared function
// without a body, and its function has a body and the same parameters and results. Fails with
// kLimitExceeded if the module becomes too long.
Status ResolveAliases(Module& module, const std::vector<Alias>& aliases);

}  // namespace gpushared::ptx

#endif  // GPUSHARED_COMMON_PTX_TEXT_ALIASES_H_
