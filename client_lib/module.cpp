// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>

#include "gpushared/client.h"

#include "client_lib/session.h"

namespace gpushared {

using client::KernelState;

const std::string& Kernel::name() const noexcept { return state_->name; }

std::span<const KernelParameter> Kernel::parameters() const noexcept { return state_->parameters; }

std::uint32_t Kernel::parameter_bytes() const noexcept { return state_->parameter_bytes; }

std::uint32_t Kernel::static_shared_bytes() const noexcept { return state_->static_shared_bytes; }

std::uint32_t Kernel::threads_per_block_max() const noexcept {
  return state_->threads_per_block_max;
}

Dim3 Kernel::required_block() const noexcept {
  const auto& block = state_->required_block;
  return {block[0], block[1], block[2]};
}

Dim3 Kernel::required_cluster() const noexcept {
  const auto& cluster = state_->required_cluster;
  return {cluster[0], cluster[1], cluster[2]};
}

const KernelAttributes& Kernel::attributes() const noexcept { return state_->attributes; }

const std::string& Kernel::unsupported() const noexcept { return state_->unsupported; }

std::size_t Module::kernel_count() const noexcept { return valid() ? state_->kernels.size() : 0; }

Result<Kernel> Module::KernelAt(std::size_t index) const {
  if (index >= kernel_count()) {
    return Status(StatusCode::kNotFound, "kernel " + std::to_string(index) +
                                             " not found: the module has " +
                                             std::to_string(kernel_count()));
  }
  // Aliases the module, so that the kernel keeps it alive without a copy.
  return Kernel(std::shared_ptr<const KernelState>(state_, &state_->kernels[index]));
}

Result<Kernel> Module::GetKernel(std::string_view name) const {
  constexpr std::size_t kNamesListedMax = 16;
  std::string names;
  for (std::size_t index = 0; index < kernel_count(); ++index) {
    if (state_->kernels[index].name == name) return KernelAt(index);
    if (index < kNamesListedMax) names += (index == 0 ? "" : ", ") + state_->kernels[index].name;
  }
  if (kernel_count() > kNamesListedMax) {
    names += " and " + std::to_string(kernel_count() - kNamesListedMax) + " more";
  }
  return Status(StatusCode::kNotFound,
                "kernel '" + std::string(name) +
                    "' not found; the module has: " + (names.empty() ? "no kernel" : names));
}

std::span<const ModuleVariable> Module::variables() const noexcept {
  return valid() ? std::span<const ModuleVariable>(state_->variables)
                 : std::span<const ModuleVariable>();
}

Result<ModuleVariable> Module::GetVariable(std::string_view name) const {
  const std::span<const ModuleVariable> all = variables();
  const auto found = std::ranges::find(all, name, &ModuleVariable::name);
  if (found != all.end()) return *found;
  return Status(StatusCode::kNotFound, "variable '" + std::string(name) +
                                           "' not found: the module has " +
                                           std::to_string(all.size()) + " variables");
}

}  // namespace gpushared
