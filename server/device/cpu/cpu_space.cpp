// SPDX-License-Identifier: Apache-2.0
#include "server/device/cpu/cpu_space.h"

#include <cstring>
#include <string>
#include <utility>

#include "server/ptx/contain.h"
#include "server/ptx/fatbin.h"
#include "server/ptx/module.h"
#include "server/ptx/parser.h"

namespace gpushared::device {

namespace {

std::uint64_t LineUp(std::uint64_t bytes) { return RoundUp(bytes, 64); }

Status CheckAlignment(const executor::ModuleLayout& layout) {
  if (layout.alignment <= kPageBytes) return {};
  return {StatusCode::kUnsupported, "module refused: a variable asks for an alignment of " +
                                        std::to_string(layout.alignment) +
                                        " bytes, the cpu device gives " +
                                        std::to_string(kPageBytes)};
}

void WriteAt(std::uint64_t address, std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  std::memcpy(reinterpret_cast<void*>(static_cast<std::uintptr_t>(address)), bytes.data(),
              bytes.size());
}

}  // namespace

Result<std::shared_ptr<const Module>> CpuModule::Load(std::span<const std::byte> image,
                                                      AddressRange& range, ModulePasses passes) {
  Result<std::string> text = ptx::ExtractPtx(image);
  if (!text) return text.status();
  Result<ptx::Module> parsed = ptx::Parse(*text);
  if (!parsed) return parsed.status();
  Result<PassedModule> passed = ApplyPasses(*std::move(parsed), passes, range.bytes());
  if (!passed) return passed.status();
  static_assert(executor::kModuleVariableBytesMax <= kModuleAreaBytes);
  Result<executor::ModuleLayout> layout = executor::LayOutModule(passed->module);
  if (!layout) return layout.status();
  for (const executor::ModuleLayout* part : {&*layout, &passed->variables}) {
    if (Status status = CheckAlignment(*part); !status.ok()) return status;
  }
  const Places places = PlacesOf(*passed, *layout, passes.claims);
  Result<AddressRange::Block> block = range.TakeModuleBlock(places.end);
  if (!block) return block.status();
  // From here on the block goes back with the module.
  std::shared_ptr<CpuModule> module(new CpuModule(range, *block));
  if (passed->is_contained) {
    module->contained_ = std::make_unique<ContainedRuns>(block->address + places.contained, range,
                                                         std::move(passed->places));
  }
  module->WriteVariables(*passed, *layout, block->address + places.layout);
  if (passes.claims) {
    module->slots_ = std::make_unique<ClaimSlots>(block->address + places.slots);
  }
  Result<std::unique_ptr<executor::ModuleImage>> decoded =
      executor::DecodeModule(passed->module, *layout, block->address + places.layout);
  if (!decoded) return decoded.status();
  module->image_ = std::move(*decoded);
  module->ListKernels(passed->kernels);
  return std::shared_ptr<const Module>(std::move(module));
}

CpuModule::Places CpuModule::PlacesOf(const PassedModule& passed,
                                      const executor::ModuleLayout& layout, bool claims) {
  Places places;
  if (passed.variables.bytes > 0) {
    places.layout = RoundUp(
        passed.variables.bytes + (passed.is_contained ? ptx::kContainTailBytes : 0), kPageBytes);
  }
  places.end = places.layout + layout.bytes;
  if (passed.is_contained) {
    places.contained = LineUp(places.end);
    places.end = places.contained + ContainedRuns::kBytes;
  }
  if (claims) {
    places.slots = LineUp(places.end);
    places.end = places.slots + ClaimSlots::kBytes;
  }
  return places;
}

void CpuModule::WriteVariables(const PassedModule& passed, const executor::ModuleLayout& layout,
                               std::uint64_t layout_address) const {
  WriteAt(variables_.address, passed.variables.InitialBytes(variables_.address));
  WriteAt(layout_address, layout.InitialBytes(layout_address));
  const ptx::VariablePlacement* constant = layout.Find(passed.fence_constant);
  if (!passed.is_fenced() || constant == nullptr) return;
  WriteAt(layout_address + constant->offset,
          PassedModule::ConstantBytes(range_.base(), variables_.address,
                                      contained_ ? contained_->control_address() : 0,
                                      contained_ ? contained_->fault_address() : 0));
}

void CpuModule::ListKernels(const std::vector<PassedKernel>& kernels) {
  for (const PassedKernel& kernel : kernels) {
    const executor::Program* const program = image_->Find(kernel.info.name);
    const bool runs = program != nullptr && kernel.info.unsupported.empty();
    kernels_.push_back(runs ? program->info() : kernel.info);
    if (!runs && kernels_.back().unsupported.empty()) kernels_.back().unsupported = "its code";
    programs_.push_back(runs ? program : nullptr);
    const executor::Program* const claimed =
        kernel.claimed.empty() ? nullptr : image_->Find(kernel.claimed);
    ClaimedForm& form = claimed_.emplace_back();
    if (!runs || claimed == nullptr || !claimed->info().unsupported.empty()) continue;
    form = {.program = claimed, .parameter_offset = kernel.claim_offset};
  }
}

CpuModule::~CpuModule() { range_.ReturnModuleBlock(variables_); }

executor::MemoryWindow CpuModule::window() const {
  return {.base = range_.base(),
          .mapped_bytes = &range_.reached_word(),
          .variables_base = variables_.address,
          .variables_bytes = variables_.bytes};
}

}  // namespace gpushared::device
