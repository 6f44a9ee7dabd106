// SPDX-License-Identifier: Apache-2.0
// One function of a module that is fenced; fence.h tells what for.

#ifndef GPUSHARED_SERVER_PTX_PASSES_FENCE_FUNCTION_H_
#define GPUSHARED_SERVER_PTX_PASSES_FENCE_FUNCTION_H_

#include <string>

#include "common/ptx/text/editor.h"
#include "common/ptx/text/module.h"
#include "server/ptx/passes/fence_code.h"

namespace gpushared::ptx {

// The instruction that makes a generic address of a parameter; null when the body has none. Such an
// address means something in its own kernel alone, and where that passes it to.
const Instruction* MakesGenericParameter(const Function& function);

// Rewrites the body; returns why it can't be done ("line 12: ..."), or "". The function is not to
// be used after a failure. `shared_begin`: set to the register in which a kernel wants the start of
// its shared memory, if it wants it (ZeroShared).
std::string FenceFunction(ModuleEditor& names, Function& function, const FenceFacts& facts,
                          std::string& shared_begin);

}  // namespace gpushared::ptx

#endif  // GPUSHARED_SERVER_PTX_PASSES_FENCE_FUNCTION_H_
