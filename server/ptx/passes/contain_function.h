// SPDX-License-Identifier: Apache-2.0
// How contained functions end before their end; fence.h tells what for.

#ifndef GPUSHARED_SERVER_PTX_PASSES_CONTAIN_FUNCTION_H_
#define GPUSHARED_SERVER_PTX_PASSES_CONTAIN_FUNCTION_H_

#include <string>
#include <vector>

#include "common/ptx/text/editor.h"
#include "common/ptx/text/module.h"
#include "server/ptx/analysis/call_graph.h"
#include "server/ptx/passes/contain_work.h"
#include "server/ptx/passes/fault_place.h"

namespace gpushared::ptx {

// Why a kernel cannot be contained that reaches these functions, itself first: "line 12: ...", or
// "".
std::string WhyNotContained(const CallGraph& calls, const std::vector<const Function*>& reachable);

// Turns traps of a fenced function into an entry of the FaultRecord and an exit. Makes it look at
// ContainHostWords::stop after at most kContainWork, and kernels at ContainControl::stop before
// they begin. `has_loops`: FunctionWork::HasLoops of the function as it was. `constant` names the
// variable that holds a FenceConstant. Adds to `places` where it may end. Returns why it can't be
// done, or "".
std::string ContainFunction(ModuleEditor& names, Function& function, const std::string& constant,
                            std::vector<FaultPlace>& places, FunctionWork& work, bool has_loops);

}  // namespace gpushared::ptx

#endif  // GPUSHARED_SERVER_PTX_PASSES_CONTAIN_FUNCTION_H_
