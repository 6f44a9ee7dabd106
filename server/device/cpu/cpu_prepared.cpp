// SPDX-License-Identifier: Apache-2.0
#include "server/device/cpu/cpu_prepared.h"

#include <algorithm>
#include <string>
#include <utility>

#include "common/ptx/text/fatbin.h"
#include "common/ptx/text/module.h"
#include "common/ptx/text/parser.h"
#include "common/ptx/text/target.h"
#include "server/device/cpu/executor/decode.h"
#include "server/device/cpu/executor/flat_code.h"
#include "server/device/memory_budget.h"
#include "server/device/module_passes.h"
#include "server/device/shown_name.h"
#include "server/ptx/analysis/type_check.h"

namespace gpushared::device {
namespace {

Status CheckAlignment(const ptx::ModuleLayout& layout) {
  if (layout.alignment <= kPageBytes) return {};
  return {StatusCode::kUnsupported, "module rejected: a variable asks for an alignment of " +
                                        std::to_string(layout.alignment) +
                                        " bytes, the cpu device gives " +
                                        std::to_string(kPageBytes)};
}

// Rejects text that the compiler of a GPU driver rejects, so that a module that loads here also
// loads there.
Status CheckText(const ptx::Module& module) {
  Status status = ptx::CheckTarget(module, executor::kNewestArchitecture);
  return status.ok() ? ptx::CheckTypes(module) : status;
}

// Limits of ptxas. Shared memory beyond kStaticSharedBytesMax must be dynamic; kConstantBytesMax is
// the size of the constant bank on every architecture.
constexpr std::uint32_t kStaticSharedBytesMax = 48 << 10;
constexpr std::uint32_t kConstantBytesMax = 64 << 10;

Status CheckSizes(const KernelInfo& kernel) {
  const auto rejected = [&](const char* what, std::uint32_t bytes, std::uint32_t most) {
    return Status(StatusCode::kInvalidArgument,
                  "kernel '" + ShownName(kernel.name) + "' uses too much " + what + ": " +
                      std::to_string(bytes) + " bytes, allowed: " + std::to_string(most));
  };
  if (kernel.static_shared_bytes > kStaticSharedBytesMax) {
    return rejected("static shared memory", kernel.static_shared_bytes, kStaticSharedBytesMax);
  }
  if (kernel.constant_bytes > kConstantBytesMax) {
    return rejected("constant memory", kernel.constant_bytes, kConstantBytesMax);
  }
  return {};
}

}  // namespace

Status PrepareCpuModule(std::span<const std::byte> image, FlatWriter& to) {
  Result<std::string> text = ptx::ExtractPtx(image);
  if (!text) return text.status();
  Result<ptx::Module> module = ptx::Parse(*text);
  if (!module) return module.status();
  if (Status status = CheckText(*module); !status.ok()) return status;
  // The text is no longer needed. It is freed early, because it can be large and the decoded module
  // takes several times as much memory.
  text->clear();
  text->shrink_to_fit();
  static_assert(executor::kModuleVariableBytesMax <= kModuleAreaBytes);
  Result<executor::ModuleLayout> layout = executor::LayOutModule(*module);
  if (!layout) return layout.status();
  if (Status status = CheckAlignment(*layout); !status.ok()) return status;
  to.Put(layout->bytes);
  const LayoutPart parts[] = {{*layout, 0}};
  PutContents(parts, to);
  PutVariables(GetVariables(*module), parts, to);
  // Programs are decoded one at a time, so that only one of them is in memory.
  Status sizes;
  Status decoded =
      executor::DecodeKernels(*module, *layout, 0, executor::BestFlavour(),
                              [&](std::unique_ptr<const executor::Program> program) {
                                if (sizes.ok()) sizes = CheckSizes(program->info());
                                to.Put(std::uint32_t{1});
                                executor::PutProgram(*program, executor::BestFlavour(), to);
                              });
  if (!decoded.ok()) return decoded;
  if (!sizes.ok()) return sizes;
  to.Put(std::uint32_t{0});
  return {};
}

// ---- reading: nothing is trusted until it was checked

Result<std::shared_ptr<const CpuPrepared>> CpuPrepared::Take(std::span<const std::byte> flat) {
  std::shared_ptr<CpuPrepared> module(new CpuPrepared);
  FlatReader from(flat);
  module->variable_bytes_ = from.Take<std::uint64_t>();
  if (module->variable_bytes_ > kModuleAreaBytes) return WrongModule("the size of its variables");
  Result<VariableContents> contents = TakeContents(from, module->variable_bytes_);
  if (!contents) return contents.status();
  module->contents_ = *std::move(contents);
  Result<std::vector<VariableInfo>> variables = TakeVariables(from, module->variable_bytes_);
  if (!variables) return variables.status();
  // The cpu device has no driver that would place variables elsewhere.
  if (std::ranges::find(*variables, kElsewhere, &VariableInfo::address) != variables->end()) {
    return WrongModule("a variable");
  }
  module->variables_ = *std::move(variables);
  while (from.Take<std::uint32_t>() != 0) {
    auto program = executor::TakeProgram(from, executor::BestFlavour());
    if (!program) return program.status();
    module->infos_.push_back((*program)->info());
    module->programs_.push_back(*std::move(program));
  }
  if (!from.ok() || from.left() != 0) return WrongModule("its length");
  module->CountBytes();
  return std::shared_ptr<const CpuPrepared>(std::move(module));
}

void CpuPrepared::CountBytes() {
  bytes_ = sizeof *this;
  for (const auto& program : programs_) bytes_ += executor::MemoryBytes(*program);
  bytes_ += contents_.HostBytes();
  // Descriptions of variables and kernels are counted twice, because each placed module has copies.
  for (const VariableInfo& variable : variables_) {
    bytes_ += 2 * (sizeof variable + variable.name.size());
  }
  for (const KernelInfo& info : infos_) {
    bytes_ += 2 * (sizeof info + info.name.size() + info.unsupported.size() +
                   info.why_reach_unknown.size() +
                   info.reach_offsets.size() * sizeof info.reach_offsets[0] +
                   info.parameters.size() * sizeof info.parameters[0]);
  }
}

}  // namespace gpushared::device
