// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fake_space.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>
#include <variant>

#include "server/executor/program.h"
#include "server/ptx/text/fatbin.h"
#include "server/ptx/text/module.h"
#include "server/ptx/text/parser.h"

namespace gpushared::testing {
namespace {

device::KernelInfo InfoOf(const ptx::Function& function, const FakeKernels& kernels) {
  device::KernelInfo info;
  info.name = function.name;
  info.threads_per_block_max = 1024;
  for (const ptx::Variable& parameter : function.parameters) {
    const std::uint32_t alignment = std::max(1U, parameter.NaturalAlignment());
    const std::uint32_t offset = (info.parameter_bytes + alignment - 1) / alignment * alignment;
    const auto bytes = static_cast<std::uint32_t>(parameter.Bytes());
    info.parameters.push_back({.offset = offset, .bytes = bytes});
    info.parameter_bytes = offset + bytes;
  }
  for (const ptx::Statement& statement : *function.body) {
    const auto* variable = std::get_if<ptx::Variable>(&statement);
    if (variable != nullptr && variable->space == ptx::StateSpace::kShared) {
      info.static_shared_bytes += static_cast<std::uint32_t>(variable->Bytes());
    }
  }
  if (const auto found = kernels.find(info.name); found != kernels.end()) {
    info.unsupported = found->second.unsupported;
  }
  return info;
}

}  // namespace

Result<std::shared_ptr<const device::Module>> FakeModule::Load(std::span<const std::byte> image,
                                                               device::AddressRange& range,
                                                               const FakeKernels& kernels) {
  Result<std::string> text = ptx::ExtractPtx(image);
  if (!text) return text.status();
  Result<ptx::Module> parsed = ptx::Parse(*text);
  if (!parsed) return parsed.status();
  Result<device::executor::ModuleLayout> layout = device::executor::LayOutModule(*parsed);
  if (!layout) return layout.status();
  Result<device::AddressRange::Block> block = range.TakeModuleBlock(layout->bytes);
  if (!block) return block.status();
  std::shared_ptr<FakeModule> module(new FakeModule(range, *block));
  if (layout->bytes > 0) {
    const std::vector<std::byte> initial = layout->InitialBytes(block->address);
    std::memcpy(reinterpret_cast<void*>(static_cast<std::uintptr_t>(block->address)),
                initial.data(), initial.size());
  }
  for (const device::executor::VariablePlacement& variable : layout->variables) {
    module->offsets_[variable.name] = variable.offset;
  }
  for (const ptx::Item& item : parsed->items) {
    const auto* function = std::get_if<ptx::Function>(&item);
    if (function != nullptr && function->is_entry && function->body) {
      module->kernels_.push_back(InfoOf(*function, kernels));
    }
  }
  return std::shared_ptr<const device::Module>(std::move(module));
}

std::byte* FakeModule::Variable(std::string_view name) const {
  const auto found = offsets_.find(name);
  if (found == offsets_.end()) return nullptr;
  return reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(block_.address + found->second));
}

Result<std::unique_ptr<device::Space>> FakeSpace::Create(
    const device::SpaceOptions& options, std::shared_ptr<device::MemoryBudget> budget,
    const FakeKernels& kernels) {
  Result<std::unique_ptr<device::AddressRange>> range = device::AddressRange::Reserve(
      options.quota_bytes, std::move(budget), options.left_free_bytes);
  if (!range) return range.status();
  return std::unique_ptr<device::Space>(std::make_unique<FakeSpace>(std::move(*range), kernels));
}

}  // namespace gpushared::testing
