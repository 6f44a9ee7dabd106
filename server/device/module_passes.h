// SPDX-License-Identifier: Apache-2.0
// What a device makes of a client's PTX before it runs: the passes of server/ptx, in their order.

#ifndef GPUSHARED_SERVER_DEVICE_MODULE_PASSES_H_
#define GPUSHARED_SERVER_DEVICE_MODULE_PASSES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gpushared/result.h"

#include "common/ptx/text/module.h"
#include "server/device/device.h"
#include "server/device/isolation.h"
#include "server/ptx/analysis/variable_layout.h"
#include "server/ptx/passes/fence.h"

namespace gpushared::device {

// A kernel of the client.
struct PassedKernel {
  // Name, parameters as the text declares them, and in `unsupported` why it may not run here.
  KernelInfo info;
  std::string claimed;  // Name of its claimed form; empty when there is none.
  // Of ptx::ClaimParameter in the claimed form's parameters.
  std::uint32_t claim_offset = 0;
  std::string why_not_preemptible;  // "line 12: waiting for other blocks".
};

// Variables that a module declares in device memory, without addresses.
std::vector<VariableInfo> GetVariables(const ptx::Module& module);

struct PassedModule {
  ptx::Module module;
  std::vector<VariableInfo> declared;  // Variables of the client, before any pass.
  std::vector<PassedKernel> kernels;   // All that have a body, in source order.
  // Of a fenced module: the variable that takes a ptx::FenceConstant, and the variables that lie
  // in the client's range, at FenceConstant::variables.
  std::string fence_constant;
  ptx::ModuleLayout variables;
  // Of a contained module: what its ptx::FaultRecord means.
  std::vector<ptx::FaultPlace> places;
  bool is_contained = false;

  bool is_fenced() const { return !fence_constant.empty(); }
  // What to write at `fence_constant` for a client's range and where its variables were placed;
  // `control` and `host_words` as ptx::FenceConstant has them, for contained modules.
  static std::vector<std::byte> ConstantBytes(std::uint64_t range_base, std::uint64_t variables,
                                              std::uint64_t control = 0,
                                              std::uint64_t host_words = 0);
};

// kInvalidArgument, with the reason, for modules that cannot be kept in their client's memory.
// Kernels that cannot are listed, and say so in their `unsupported`. `range_bytes`: of the range in
// which it is used.
Result<PassedModule> ApplyPasses(ptx::Module module, ModulePasses passes,
                                 std::uint64_t range_bytes);
// Adds claimed forms to a module that has none; false, and nothing changes, when no kernel gets
// one.
bool AddClaims(PassedModule& passed);

}  // namespace gpushared::device

#endif  // GPUSHARED_SERVER_DEVICE_MODULE_PASSES_H_
