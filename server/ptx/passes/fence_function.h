// SPDX-License-Identifier: Apache-2.0
// Fences one function of a module; see fence.h.

#ifndef GPUSHARED_SERVER_PTX_PASSES_FENCE_FUNCTION_H_
#define GPUSHARED_SERVER_PTX_PASSES_FENCE_FUNCTION_H_

#include <string>

#include "common/ptx/text/editor.h"
#include "common/ptx/text/module.h"
#include "server/ptx/passes/fence_code.h"

namespace gpushared::ptx {

// Returns the instruction that creates a generic address of a parameter, or null. Such an address
// is only valid in its own kernel and in functions to which the kernel passes it.
const Instruction* MakesGenericParameter(const Function& function);

// Rewrites the body. Returns the reason why this is not possible ("line 12: ..."), or "". After a
// failure the function must not be used. `shared_begin`: set to the register that a kernel needs to
// receive the start of its shared memory (ZeroShared), if any.
std::string FenceFunction(ModuleEditor& names, Function& function, const FenceFacts& facts,
                          std::string& shared_begin);

}  // namespace gpushared::ptx

#endif  // GPUSHARED_SERVER_PTX_PASSES_FENCE_FUNCTION_H_
