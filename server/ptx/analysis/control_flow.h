// SPDX-License-Identifier: Apache-2.0
// The shape of one function body: its instructions in a row, basic blocks, where
// diverged threads meet again, and from where to where each register is needed.

#ifndef GPUSHARED_SERVER_PTX_ANALYSIS_CONTROL_FLOW_H_
#define GPUSHARED_SERVER_PTX_ANALYSIS_CONTROL_FLOW_H_

#include <cstddef>

#include "gpushared/result.h"

#include "common/ptx/text/module.h"
#include "server/ptx/analysis/flow.h"

namespace gpushared::ptx {

// Instructions that one function may have; beyond that kLimitExceeded.
inline constexpr std::size_t kFunctionInstructionsMax = std::size_t{1} << 20;
// Entries of all .branchtargets that one function's brx.idx use, together.
inline constexpr std::size_t kBranchTargetsMax = std::size_t{1} << 20;

// `function` must have a body. Fails with kInvalidArgument, naming the PTX line, for three
// mistakes: undefined labels and branch target lists, a name declared twice in one scope,
// braces that do not match. Names not declared in the body (parameters, module variables,
// special registers) stay as they are, so the caller finds unknown registers.
Result<ControlFlow> AnalyseControlFlow(const Function& function);

}  // namespace gpushared::ptx

#endif  // GPUSHARED_SERVER_PTX_ANALYSIS_CONTROL_FLOW_H_
