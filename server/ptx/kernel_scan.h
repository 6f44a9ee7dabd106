// SPDX-License-Identifier: Apache-2.0
// What a kernel needs and does, with all the functions it calls.

#ifndef GPUSHARED_SERVER_PTX_KERNEL_SCAN_H_
#define GPUSHARED_SERVER_PTX_KERNEL_SCAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "gpushared/result.h"

#include "server/ptx/call_graph.h"
#include "server/ptx/features.h"
#include "server/ptx/module.h"

namespace gpushared::ptx {

struct Finding {
  Feature feature = Feature::kPrint;
  std::uint32_t line = 0;  // Of its first use; 0 when a pass made it.
  std::string detail;      // Which variable, register or function; may be empty.
};

// "line 12: waits for other blocks" with the detail behind it.
std::string Describe(const Finding& finding);

// Each feature that the kernel uses, or a function with a body that it may call, once: where it
// comes first, the kernel's own body before those of functions. Fails as AnalyseControlFlow does,
// for code that is malformed.
Result<std::vector<Finding>> ScanKernel(const Module& module, const CallGraph& calls,
                                        const Function& kernel);

}  // namespace gpushared::ptx

#endif  // GPUSHARED_SERVER_PTX_KERNEL_SCAN_H_
