// SPDX-License-Identifier: Apache-2.0
// Zeroes what a function may read though nothing has written it: registers, bytes of parameters
// that calls pass, results. There the hardware has what others left.

#ifndef GPUSHARED_SERVER_PTX_PASSES_FENCE_UNWRITTEN_H_
#define GPUSHARED_SERVER_PTX_PASSES_FENCE_UNWRITTEN_H_

#include <cstddef>
#include <string>
#include <vector>

#include "server/ptx/passes/fence_flow.h"
#include "server/ptx/text/editor.h"
#include "server/ptx/text/module.h"

namespace gpushared::ptx {

// `flow` is the function's, and `statements` has the place of each of its instructions in the
// body. Returns why it can't be done ("line 12: ..."), or "".
std::string ZeroUnwritten(FunctionEditor& editor, const Function& function, const FenceFlow& flow,
                          const std::vector<std::size_t>& statements);

}  // namespace gpushared::ptx

#endif  // GPUSHARED_SERVER_PTX_PASSES_FENCE_UNWRITTEN_H_
