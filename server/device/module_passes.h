// SPDX-License-Identifier: Apache-2.0
// Applies the passes of server/ptx to a client's PTX, in their order, before it runs on a device.

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
  // Contains the name, the parameters as declared in the text and, in `unsupported`, the reason if
  // the kernel cannot be confined.
  KernelInfo info;
  std::string claimed;  // Name of its preemptible form; empty if it has none.
  // Offset of ptx::ClaimParameter in the parameters of the preemptible form.
  std::uint32_t claim_offset = 0;
  std::string why_not_preemptible;  // "line 12: waiting for other blocks".
};

// Returns the variables that a module declares in device memory. Their addresses are not set.
std::vector<VariableInfo> GetVariables(const ptx::Module& module);

struct PassedModule {
  ptx::Module module;
  std::vector<VariableInfo> declared;  // The client's variables before any pass.
  std::vector<PassedKernel> kernels;   // All kernels with a body, in source order.
  // For fenced modules: the variable that receives a ptx::FenceConstant, and the layout of the
  // variables inside the client's range, which begin at FenceConstant::variables.
  std::string fence_constant;
  ptx::ModuleLayout variables;
  // For contained modules: the meaning of the places in a ptx::FaultRecord.
  std::vector<ptx::FaultPlace> places;
  bool is_contained = false;

  bool is_fenced() const { return !fence_constant.empty(); }
  // Returns the value of `fence_constant` for a client's range and the address of its variables;
  // `control` and `host_words` are those of ptx::FenceConstant and apply to contained modules.
  static std::vector<std::byte> ConstantBytes(std::uint64_t range_base, std::uint64_t variables,
                                              std::uint64_t control = 0,
                                              std::uint64_t host_words = 0);
};

// Fails with kInvalidArgument and a reason if the module cannot be confined to its client's memory.
// If only some kernels cannot be confined, their `unsupported` contains the reason.
// `range_bytes` is the size of the address range in which the module will be used.
Result<PassedModule> ApplyPasses(ptx::Module module, ModulePasses passes,
                                 std::uint64_t range_bytes);
// Adds preemptible forms to a module that has none, and sets `why_not_preemptible` of the kernels
// that get none. If no kernel gets one, returns false and leaves `passed.module` unchanged.
bool AddClaims(PassedModule& passed);

}  // namespace gpushared::device

#endif  // GPUSHARED_SERVER_DEVICE_MODULE_PASSES_H_
