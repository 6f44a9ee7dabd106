// SPDX-License-Identifier: Apache-2.0
// Through which of its parameters a kernel touches memory.

#ifndef GPUSHARED_SERVER_PTX_ANALYSIS_KERNEL_REACH_H_
#define GPUSHARED_SERVER_PTX_ANALYSIS_KERNEL_REACH_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "gpushared/result.h"

#include "common/ptx/text/module.h"
#include "server/ptx/analysis/call_graph.h"
#include "server/ptx/analysis/control_flow.h"

namespace gpushared::ptx {

// Words of a kernel's parameters; a kernel that may use more as addresses is unknown.
inline constexpr std::size_t kReachOffsetsMax = 512;
struct KernelReach {
  // Why nothing is known: "line 12: ld.global.u32 at an address that is loaded from memory". Empty
  // if the rest holds.
  std::string why_unknown;
  // Each access of global memory is at an address that was computed from numbers and one of these
  // words: byte offsets in the parameters as a launch packs them, ascending. Words that are numbers
  // may be among them.
  std::vector<std::uint32_t> offsets;
  bool reaches_variables = false;  // Also variables of its module.
};

// Finds the reach of the kernels of one module. Thread-compatible; borrows the module and the call
// graph.
//
// A kernel is known if all of these hold:
//   * FindMemoryAccesses knows its instructions.
//   * No address is loaded from memory or put together of parts. Numbers may be.
//   * Functions that it calls are in the module, and are named. Assertions may fail.
// An address is taken for one of the allocation that its pointer points into. A kernel that leaves
// an array on purpose, to reach another one, is not found.
class ReachFinder {
 public:
  ReachFinder(const Module& module, const CallGraph& calls);

  struct AnalysedFunction {
    const Function* function = nullptr;
    const ControlFlow* flow = nullptr;
  };
  // The kernel, and all functions that it may call.
  KernelReach Find(std::span<const AnalysedFunction> functions);
  // The same for who has not analysed them. The kernel has a body.
  KernelReach Find(const Function& kernel);

  // Of a function that kernels call: analysed once, whichever of them reach it. Stays.
  const Result<ControlFlow>& GetFlow(const Function& function);

 private:
  KernelReach Unknown(std::string why);

  const Module& module_;
  const CallGraph& calls_;
  std::unordered_map<std::string_view, const Variable*> variables_;  // Variables of the module.
  std::unordered_map<const Function*, Result<ControlFlow>> flows_;   // Control flows of functions.
  std::size_t steps_ = 0;
  std::size_t reason_bytes_left_ = kReasonBytesMax;
};

}  // namespace gpushared::ptx

#endif  // GPUSHARED_SERVER_PTX_ANALYSIS_KERNEL_REACH_H_
