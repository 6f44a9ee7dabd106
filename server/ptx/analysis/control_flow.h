// SPDX-License-Identifier: Apache-2.0
// Control flow of a function body: sequence of instructions, basic blocks, reconvergence points of
// diverged threads, and live ranges of registers.

#ifndef GPUSHARED_SERVER_PTX_ANALYSIS_CONTROL_FLOW_H_
#define GPUSHARED_SERVER_PTX_ANALYSIS_CONTROL_FLOW_H_

#include <cstddef>

#include "gpushared/result.h"

#include "common/ptx/text/module.h"
#include "server/ptx/analysis/flow.h"

namespace gpushared::ptx {

// Limit for the instructions of a function; kLimitExceeded beyond it.
inline constexpr std::size_t kFunctionInstructionsMax = std::size_t{1} << 20;
// Limit for the entries of all .branchtargets that the brx.idx instructions of a function use.
inline constexpr std::size_t kBranchTargetsMax = std::size_t{1} << 20;

// `function` must have a body. Fails with kInvalidArgument and the PTX line for undefined labels
// and branch target lists, a name declared twice in one scope, and unbalanced braces. Names that
// are not declared in the body (parameters, module variables, special registers) remain unchanged.
// The caller must detect names that are declared nowhere.
Result<ControlFlow> AnalyseControlFlow(const Function& function);

}  // namespace gpushared::ptx

#endif  // GPUSHARED_SERVER_PTX_ANALYSIS_CONTROL_FLOW_H_
