// SPDX-License-Identifier: Apache-2.0
#include "server/device/module_passes.h"

#include <cstring>
#include <limits>
#include <unordered_map>
#include <utility>
#include <variant>

#include "common/ptx/text/editor.h"
#include "server/device/kernel_reach.h"
#include "server/ptx/analysis/launch_bounds.h"
#include "server/ptx/passes/claim.h"
#include "server/ptx/passes/fence.h"

namespace gpushared::device {
namespace {

// Lays out the parameters. Omits those from the first that ends above 32 bits: a kernel with such a
// parameter never runs.
void LayOutParameters(const ptx::Function& kernel, KernelInfo& info) {
  for (const ptx::ParameterPlace& place : ptx::PlaceParameters(kernel)) {
    // If the end overflows 64 bits, it is less than the beginning.
    const bool is_within = place.end <= std::numeric_limits<std::uint32_t>::max();
    if (!is_within || place.end < place.offset) return;
    info.parameters.push_back({.offset = static_cast<std::uint32_t>(place.offset),
                               .bytes = static_cast<std::uint32_t>(place.end - place.offset)});
    info.parameter_bytes = static_cast<std::uint32_t>(place.end);
  }
}

std::vector<PassedKernel> GetKernels(const ptx::Module& module) {
  std::vector<PassedKernel> kernels;
  const ptx::CallGraph calls(module);
  ptx::ReachFinder reaches(module, calls);
  for (const ptx::Item& item : module.items) {
    const auto* function = std::get_if<ptx::Function>(&item);
    if (function == nullptr || !function->is_entry || !function->body) continue;
    PassedKernel& kernel = kernels.emplace_back();
    kernel.info.name = function->name;
    LayOutParameters(*function, kernel.info);
    const ptx::LaunchBounds bounds = ptx::GetLaunchBounds(*function);
    kernel.info.required_block = bounds.block;
    kernel.info.required_cluster = bounds.cluster;
    SetReach(kernel.info, reaches.Find(*function));
  }
  return kernels;
}

Status FenceModule(PassedModule& passed, std::uint64_t range_bytes, bool contains) {
  Result<ptx::Fenced> fenced =
      contains ? ptx::Contain(passed.module, range_bytes) : ptx::Fence(passed.module, range_bytes);
  if (!fenced) {
    return {fenced.status().code(), "module rejected: it cannot be kept in its client's memory: " +
                                        fenced.status().message()};
  }
  std::unordered_map<std::string_view, std::string_view> reasons;
  for (const ptx::FencedKernel& kernel : fenced->kernels) {
    if (!kernel.reason.empty()) reasons.emplace(kernel.kernel, kernel.reason);
  }
  for (PassedKernel& kernel : passed.kernels) {
    const auto found = reasons.find(kernel.info.name);
    if (found == reasons.end()) continue;
    kernel.info.unsupported =
        contains ? "what cannot be contained: " : "what cannot be kept in its client's memory: ";
    kernel.info.unsupported += found->second;
  }
  passed.module = std::move(fenced->module);
  passed.fence_constant = std::move(fenced->constant);
  passed.variables = std::move(fenced->variables);
  passed.places = std::move(fenced->places);
  passed.is_contained = contains;
  return {};
}

}  // namespace

std::vector<VariableInfo> GetVariables(const ptx::Module& module) {
  std::vector<VariableInfo> variables;
  for (const ptx::Item& item : module.items) {
    const auto* variable = std::get_if<ptx::Variable>(&item);
    if (variable == nullptr || variable->linkage == ".extern") continue;
    const bool is_constant = variable->space == ptx::StateSpace::kConstant;
    if (!is_constant && variable->space != ptx::StateSpace::kGlobal) continue;
    variables.push_back(
        {.name = variable->name,
         .bytes = variable->Bytes(),
         .space = is_constant ? VariableInfo::Space::kConstant : VariableInfo::Space::kGlobal});
  }
  return variables;
}

std::vector<std::byte> PassedModule::ConstantBytes(std::uint64_t range_base,
                                                   std::uint64_t variables, std::uint64_t control,
                                                   std::uint64_t host_words) {
  ptx::FenceConstant constant = ptx::MakeFenceConstant(range_base, variables);
  constant.control = control;
  constant.host_words = host_words;
  std::vector<std::byte> bytes(sizeof constant);
  std::memcpy(bytes.data(), &constant, sizeof constant);
  return bytes;
}

Result<PassedModule> ApplyPasses(ptx::Module module, ModulePasses passes,
                                 std::uint64_t range_bytes) {
  PassedModule passed;
  passed.kernels = GetKernels(module);
  passed.declared = GetVariables(module);
  passed.module = std::move(module);
  if (passes.isolation != Isolation::kOff) {
    const bool contains = passes.isolation == Isolation::kContain;
    if (Status status = FenceModule(passed, range_bytes, contains); !status.ok()) return status;
  }
  // Claims are added after the fence, because the words of a claim are outside of every client's
  // range, and the fence would redirect the accesses to them.
  if (passes.claims) AddClaims(passed);
  return passed;
}

bool AddClaims(PassedModule& passed) {
  ptx::Claims claims = ptx::Claim(passed.module);
  std::unordered_map<std::string_view, const ptx::PreemptibleKernel*> claimed;
  for (const ptx::PreemptibleKernel& kernel : claims.kernels)
    claimed.emplace(kernel.kernel, &kernel);
  bool any = false;
  for (PassedKernel& kernel : passed.kernels) {
    const auto found = claimed.find(kernel.info.name);
    if (found == claimed.end()) continue;
    kernel.claimed = found->second->claimed;
    kernel.claim_offset = found->second->parameter_offset;
    kernel.why_not_preemptible = found->second->reason;
    any |= !kernel.claimed.empty();
  }
  if (any) passed.module = std::move(claims.module);
  return any;
}

}  // namespace gpushared::device
