// SPDX-License-Identifier: Apache-2.0
// Makes contained functions end early; see fence.h.

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

// Returns the reason why a kernel that reaches these functions, itself first, cannot be contained:
// "line 12: ...", or "".
std::string WhyNotContained(const CallGraph& calls, const std::vector<const Function*>& reachable);

// Replaces each trap of a fenced function by an entry in the FaultRecord and an exit. Adds checks
// of ContainHostWords::stop, so that the work between two checks is bounded (kContainWork), and in
// kernels a check of ContainControl::stop at the beginning. `has_loops`: FunctionWork::HasLoops of
// the original function. `constant` is the variable that holds a FenceConstant. Adds the places
// where the function may end to `places`. Returns the reason why the function cannot be contained,
// or "".
std::string ContainFunction(ModuleEditor& names, Function& function, const std::string& constant,
                            std::vector<FaultPlace>& places, FunctionWork& work, bool has_loops);

}  // namespace gpushared::ptx

#endif  // GPUSHARED_SERVER_PTX_PASSES_CONTAIN_FUNCTION_H_
