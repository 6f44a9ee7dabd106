// SPDX-License-Identifier: Apache-2.0
// The needs and deeds of a kernel, including all functions it calls.

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
  std::uint32_t line = 0;  // Of its first use; 0 when a pass made it.
  std::string detail;      // Which variable, register, function or loop; may be empty.
};

// "line 12: waits for other blocks" with the detail behind it.
std::string Describe(const Finding& finding);

// Statements that the kernels of one module may have, those of functions counted for each kernel
// that may call them; beyond that kLimitExceeded. Large libraries have a few hundred thousand.
inline constexpr std::size_t kScannedStatementsMax = std::size_t{1} << 24;

// Functions, by name, that see what other blocks write, themselves or in what they call.
struct Polling {
  std::unordered_set<std::string_view> functions;
  bool is_any = false;  // One that indirect calls can reach.
};

// Names of the module that instructions may use.
struct ModuleNames {
  std::unordered_set<std::string_view> variables;  // .global and .const ones.
  std::unordered_set<std::string_view> functions;  // Those whose address something takes.
};

// Scans the kernels of one module. Thread-compatible; borrows the module and the call graph.
class KernelScanner {
 public:
  KernelScanner(const Module& module, const CallGraph& calls);

  // Each feature that the kernel uses, or a function with a body that it may call, once: where it
  // comes first, the kernel's own body before those of functions. Fails as AnalyseControlFlow does,
  // for code that is malformed.
  Result<std::vector<Finding>> Scan(const Function& kernel);

 private:
  // Once each, whichever kernels reach it.
  const Result<std::vector<Finding>>& ScanFunction(const Function& function);

  const CallGraph& calls_;
  const Polling polling_;
  ModuleNames names_;
  std::unordered_map<const Function*, Result<std::vector<Finding>>> functions_;  // Scanned.
  std::size_t statements_ = 0;                                                   // Scanned so far.
  WaitSteps wait_steps_;
};

}  // namespace gpushared::ptx

#endif  // GPUSHARED_SERVER_PTX_ANALYSIS_KERNEL_SCAN_H_
