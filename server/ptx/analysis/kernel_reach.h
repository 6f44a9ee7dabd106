// SPDX-License-Identifier: Apache-2.0
// Determines the parameters through which a kernel accesses memory.

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

// Limit for the words of a kernel's parameters that may be addresses; beyond it the access set is
// unknown.
inline constexpr std::size_t kReachOffsetsMax = 512;
struct KernelReach {
  // Reason why the access set is unknown: "line 12: ld.global.u32 at an address that is loaded from
  // memory". If empty, the other members are valid.
  std::string why_unknown;
  // Ascending byte offsets of words in the parameters, which a launch packs into one buffer.
  // Each access to global memory is at an address computed from one of these words and numbers.
  // Some of the words may be numbers themselves.
  std::vector<std::uint32_t> offsets;
  bool reaches_variables = false;  // Whether it also accesses variables of its module.
};

// Determines the access sets of the kernels of one module. Thread-compatible; borrows the module
// and the call graph.
//
// The access set of a kernel is known if all of these hold:
//   * FindMemoryAccesses supports all of its instructions.
//   * No address is loaded from memory or combined from parts; numbers may be.
//   * Functions that it calls are in the module and called by name. Only __assertfail may be
//     elsewhere.
// An address is assumed to be in the allocation that its pointer points into. A kernel that
// deliberately leaves an array to access another one is not detected.
class ReachFinder {
 public:
  ReachFinder(const Module& module, const CallGraph& calls);

  struct AnalysedFunction {
    const Function* function = nullptr;
    const ControlFlow* flow = nullptr;
  };
  // `functions`: the kernel, then all functions that it may call.
  KernelReach Find(std::span<const AnalysedFunction> functions);
  // Analyses the control flow of the kernel, which must have a body, and of all functions that it
  // may call, and returns the kernel's access set.
  KernelReach Find(const Function& kernel);

  // Returns the control flow of a called function. Analyses each function once and stores the
  // result.
  const Result<ControlFlow>& GetFlow(const Function& function);

 private:
  KernelReach Unknown(std::string why);

  const Module& module_;
  const CallGraph& calls_;
  std::unordered_map<std::string_view, const Variable*> variables_;  // Variables of the module.
  std::unordered_map<const Function*, Result<ControlFlow>> flows_;   // Results of GetFlow.
  std::size_t steps_ = 0;
  std::size_t reason_bytes_left_ = kReasonBytesMax;
};

}  // namespace gpushared::ptx

#endif  // GPUSHARED_SERVER_PTX_ANALYSIS_KERNEL_REACH_H_
