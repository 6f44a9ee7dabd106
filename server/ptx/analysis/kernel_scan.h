// SPDX-License-Identifier: Apache-2.0
// Features used by a kernel, including all functions that it calls.

#ifndef GPUSHARED_SERVER_PTX_ANALYSIS_KERNEL_SCAN_H_
#define GPUSHARED_SERVER_PTX_ANALYSIS_KERNEL_SCAN_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "gpushared/result.h"

#include "common/ptx/text/module.h"
#include "server/ptx/analysis/block_waits.h"
#include "server/ptx/analysis/call_graph.h"
#include "server/ptx/analysis/features.h"

namespace gpushared::ptx {

struct Finding {
  Feature feature = Feature::kPrint;
  std::uint32_t line = 0;  // PTX line of the first use; 0 if a pass created it.
  std::string detail;      // The variable, register, function or loop; may be empty.
};

// Returns "line 12: waiting for other blocks", followed by the detail in parentheses.
std::string Describe(const Finding& finding);

// Limit for the statements of the kernels of one module, where functions count once for each kernel
// that may call them; kLimitExceeded beyond it. Large libraries have a few hundred thousand.
inline constexpr std::size_t kScannedStatementsMax = std::size_t{1} << 24;

// Functions, by name, that read concurrent writes of other blocks, directly or in their callees.
struct Polling {
  std::unordered_set<std::string_view> functions;
  bool is_any = false;  // Whether indirect calls can reach one of them.
};

// Names of the module that instructions may use.
struct ModuleNames {
  std::unordered_set<std::string_view> variables;  // .global and .const variables.
  std::unordered_set<std::string_view> functions;  // Functions whose address is taken.
};

// Scans the kernels of one module. Thread-compatible; borrows the module and the call graph.
class KernelScanner {
 public:
  KernelScanner(const Module& module, const CallGraph& calls);

  // Returns each feature used by the kernel or a function with a body that it may call, once, at
  // its first use. The kernel's own body precedes the bodies of functions. Fails like
  // AnalyseControlFlow for malformed code.
  Result<std::vector<Finding>> Scan(const Function& kernel);

 private:
  // Scans each function once, however many kernels call it.
  const Result<std::vector<Finding>>& ScanFunction(const Function& function);

  const CallGraph& calls_;
  const Polling polling_;
  ModuleNames names_;
  std::unordered_map<const Function*, Result<std::vector<Finding>>> functions_;  // Already scanned.
  std::size_t statements_ = 0;  // Counted against kScannedStatementsMax.
  WaitSteps wait_steps_;
};

}  // namespace gpushared::ptx

#endif  // GPUSHARED_SERVER_PTX_ANALYSIS_KERNEL_SCAN_H_
