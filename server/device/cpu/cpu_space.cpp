// SPDX-License-Identifier: Apache-2.0
#include "server/device/cpu/cpu_space.h"

#include <cstring>
#include <string>
#include <utility>

#include "server/ptx/fatbin.h"
#include "server/ptx/module.h"
#include "server/ptx/parser.h"

namespace gpushared::device {

Result<std::shared_ptr<const Module>> CpuModule::Load(std::span<const std::byte> image,
                                                      AddressRange& range, bool claims) {
  Result<std::string> text = ptx::ExtractPtx(image);
  if (!text) return text.status();
  Result<ptx::Module> parsed = ptx::Parse(*text);
  if (!parsed) return parsed.status();
  Result<executor::ModuleLayout> layout = executor::LayOutModule(*parsed);
  if (!layout) return layout.status();
  if (layout->alignment > kPageBytes) {
    return Status(StatusCode::kUnsupported, "module refused: a variable asks for an alignment of " +
                                                std::to_string(layout->alignment) +
                                                " bytes, the cpu device gives " +
                                                std::to_string(kPageBytes));
  }
  // The words of claimed launches lie behind the variables.
  const std::uint64_t slots_offset = (layout->bytes + 63) / 64 * 64;
  Result<AddressRange::Block> variables =
      range.TakeModuleBlock(claims ? slots_offset + ClaimSlots::kBytes : layout->bytes);
  if (!variables) return variables.status();
  // From here on the block goes back with the module.
  std::shared_ptr<CpuModule> module(new CpuModule(range, *variables));
  if (layout->bytes > 0) {
    const std::vector<std::byte> initial = layout->InitialBytes(variables->address);
    std::memcpy(reinterpret_cast<void*>(static_cast<std::uintptr_t>(variables->address)),
                initial.data(), initial.size());
  }
  ptx::Claims claimed;
  if (claims) {
    claimed = ptx::Claim(*parsed);
    module->slots_ = std::make_unique<ClaimSlots>(variables->address + slots_offset);
  }
  Result<std::unique_ptr<executor::ModuleImage>> decoded =
      executor::DecodeModule(claims ? claimed.module : *parsed, *layout, variables->address);
  if (!decoded) return decoded.status();
  module->image_ = std::move(*decoded);
  module->ListKernels(claimed.kernels);
  return std::shared_ptr<const Module>(std::move(module));
}

void CpuModule::ListKernels(const std::vector<ptx::ClaimedKernel>& claims) {
  // A claimed form stands behind its original.
  for (std::size_t i = 0; i < image_->size(); ++i) {
    const executor::Program& program = image_->program(i);
    const std::size_t kernel = kernels_.size();
    const bool is_form =
        kernel > 0 && kernel <= claims.size() && claims[kernel - 1].claimed == program.info().name;
    if (is_form) {
      if (!program.info().unsupported.empty()) continue;
      claimed_.back() = {.program = &program,
                         .parameter_offset = claims[kernel - 1].parameter_offset};
      continue;
    }
    kernels_.push_back(program.info());
    programs_.push_back(&program);
    claimed_.emplace_back();
  }
}

CpuModule::~CpuModule() { range_.ReturnModuleBlock(variables_); }

executor::MemoryWindow CpuModule::window() const {
  return {.base = range_.base(),
          .mapped_bytes = &range_.mapped_word(),
          .variables_base = variables_.address,
          .variables_bytes = variables_.bytes};
}

}  // namespace gpushared::device
