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
                                                      AddressRange& range) {
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
  Result<AddressRange::Block> variables = range.TakeModuleBlock(layout->bytes);
  if (!variables) return variables.status();
  // From here on the block goes back with the module.
  std::shared_ptr<CpuModule> module(new CpuModule(range, *variables));
  if (layout->bytes > 0) {
    const std::vector<std::byte> initial = layout->InitialBytes(variables->address);
    std::memcpy(reinterpret_cast<void*>(static_cast<std::uintptr_t>(variables->address)),
                initial.data(), initial.size());
  }
  Result<std::unique_ptr<executor::ModuleImage>> decoded =
      executor::DecodeModule(*parsed, *layout, variables->address);
  if (!decoded) return decoded.status();
  module->image_ = std::move(*decoded);
  module->kernels_.reserve(module->image_->size());
  for (std::size_t i = 0; i < module->image_->size(); ++i) {
    module->kernels_.push_back(module->image_->program(i).info());
  }
  return std::shared_ptr<const Module>(std::move(module));
}

CpuModule::~CpuModule() { range_.ReturnModuleBlock(variables_); }

executor::MemoryWindow CpuModule::window() const {
  return {.base = range_.base(),
          .mapped_bytes = &range_.mapped_word(),
          .variables_base = variables_.address,
          .variables_bytes = variables_.bytes};
}

}  // namespace gpushared::device
