// SPDX-License-Identifier: Apache-2.0
#include "server/device/cpu/cpu_prepared.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "server/device/cpu/claimed_launch.h"
#include "server/device/cpu/contained_runs.h"
#include "server/device/memory_budget.h"
#include "server/device/module_passes.h"
#include "server/executor/decode.h"
#include "server/executor/flat_code.h"
#include "server/ptx/passes/claim.h"
#include "server/ptx/passes/contain.h"
#include "server/ptx/text/fatbin.h"
#include "server/ptx/text/module.h"
#include "server/ptx/text/parser.h"

namespace gpushared::device {
namespace {

constexpr std::uint32_t kNoProgram = 0xffffffff;

std::uint64_t LineUp(std::uint64_t bytes) { return RoundUp(bytes, 64); }

Status CheckAlignment(const ptx::ModuleLayout& layout) {
  if (layout.alignment <= kPageBytes) return {};
  return {StatusCode::kUnsupported, "module refused: a variable asks for an alignment of " +
                                        std::to_string(layout.alignment) +
                                        " bytes, the cpu device gives " +
                                        std::to_string(kPageBytes)};
}

CpuPrepared::Places PlacesOf(const PassedModule& passed, const ptx::ModuleLayout& layout,
                             bool claims) {
  CpuPrepared::Places places;
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

// ---- writing

// Numbers of the programs that were written, the first of each name, and what kernels say.
struct Written {
  std::unordered_map<std::string, std::uint32_t> numbers;
  std::vector<bool> is_supported;

  std::uint32_t Find(const std::string& name) const {
    const auto found = numbers.find(name);
    return found == numbers.end() ? kNoProgram : found->second;
  }
};

void PutKernels(const std::vector<PassedKernel>& kernels, const Written& written, FlatWriter& to) {
  to.PutCount(kernels.size());
  for (const PassedKernel& kernel : kernels) {
    std::uint32_t program = written.Find(kernel.info.name);
    if (!kernel.info.unsupported.empty()) program = kNoProgram;
    std::uint32_t claimed = kernel.claimed.empty() ? kNoProgram : written.Find(kernel.claimed);
    if (claimed != kNoProgram && !written.is_supported[claimed]) claimed = kNoProgram;
    if (program == kNoProgram) claimed = kNoProgram;
    to.Put(program);
    to.Put(claimed);
    to.Put(kernel.claim_offset);
    executor::PutKernelInfo(kernel.info, to);
  }
}

}  // namespace

Status PrepareCpuModule(const ModuleRecipe& recipe, std::span<const std::byte> image,
                        FlatWriter& to) {
  Result<std::string> text = ptx::ExtractPtx(image);
  if (!text) return text.status();
  Result<ptx::Module> parsed = ptx::Parse(*text);
  if (!parsed) return parsed.status();
  // A text of some size is needed no more, and its module takes many times that.
  text->clear();
  text->shrink_to_fit();
  Result<PassedModule> passed = ApplyPasses(*std::move(parsed), recipe.passes, recipe.range_bytes);
  if (!passed) return passed.status();
  static_assert(executor::kModuleVariableBytesMax <= kModuleAreaBytes);
  Result<executor::ModuleLayout> layout = executor::LayOutModule(passed->module);
  if (!layout) return layout.status();
  for (const executor::ModuleLayout* part : {&*layout, &passed->variables}) {
    if (Status status = CheckAlignment(*part); !status.ok()) return status;
  }
  const CpuPrepared::Places places = PlacesOf(*passed, *layout, recipe.passes.claims);
  const ptx::VariablePlacement* const constant =
      passed->is_fenced() ? layout->Find(passed->fence_constant) : nullptr;
  to.Put(places);
  to.Put(constant == nullptr ? CpuPrepared::kNowhere : places.layout + constant->offset);
  to.Put(std::uint32_t{passed->is_contained});
  PutFaultPlaces(passed->places, to);
  const LayoutPart parts[] = {{passed->variables, 0}, {*layout, places.layout}};
  PutContents(parts, to);
  PutVariables(std::move(passed->declared), parts, to);
  Written written;
  // One after the other, so that no more than one is in memory.
  Status decoded = executor::DecodeKernels(
      passed->module, *layout, places.layout, executor::BestFlavour(),
      [&](std::unique_ptr<const executor::Program> program) {
        to.Put(std::uint32_t{1});
        written.numbers.emplace(program->info().name,
                                static_cast<std::uint32_t>(written.is_supported.size()));
        written.is_supported.push_back(program->info().unsupported.empty());
        executor::PutProgram(*program, executor::BestFlavour(), to);
      });
  if (!decoded.ok()) return decoded;
  to.Put(std::uint32_t{0});
  PutKernels(passed->kernels, written, to);
  return {};
}

// ---- reading: nothing of this is true before it has been looked at

Result<std::shared_ptr<const CpuPrepared>> CpuPrepared::Take(const ModuleRecipe& recipe,
                                                             std::span<const std::byte> flat) {
  std::shared_ptr<CpuPrepared> module(new CpuPrepared);
  FlatReader from(flat);
  if (Status status = module->TakePlaces(recipe, from); !status.ok()) return status;
  Result<VariableContents> contents = TakeContents(from, module->places_.end);
  if (!contents) return contents.status();
  module->contents_ = *std::move(contents);
  Result<std::vector<VariableInfo>> variables = TakeVariables(from, module->places_.end);
  if (!variables) return variables.status();
  // No driver places any here.
  if (std::ranges::find(*variables, kElsewhere, &VariableInfo::address) != variables->end()) {
    return WrongModule("a variable");
  }
  module->variables_ = *std::move(variables);
  while (from.Take<std::uint32_t>() != 0) {
    auto program = executor::TakeProgram(from, executor::BestFlavour());
    if (!program) return program.status();
    module->programs_.push_back(*std::move(program));
  }
  if (Status status = module->TakeKernels(recipe, from); !status.ok()) return status;
  if (!from.ok() || from.left() != 0) return WrongModule("its length");
  module->CountBytes();
  return std::shared_ptr<const CpuPrepared>(std::move(module));
}

Status CpuPrepared::TakePlaces(const ModuleRecipe& recipe, FlatReader& from) {
  places_ = from.Take<Places>();
  fence_constant_ = from.Take<std::uint64_t>();
  is_contained_ = from.Take<std::uint32_t>() != 0;
  const auto holds = [&](std::uint64_t place, std::uint64_t bytes) {
    return place % 64 == 0 && IsInside(place, bytes, places_.end);
  };
  // The area that modules have together, and what lies behind the variables of one.
  constexpr std::uint64_t kEndMax = kModuleAreaBytes * 3;
  const bool contains = recipe.passes.isolation == Isolation::kContain;
  if (places_.end > kEndMax || places_.layout > places_.end || places_.layout % kPageBytes != 0 ||
      is_contained_ != contains || (contains && !holds(places_.contained, ContainedRuns::kBytes)) ||
      (recipe.passes.claims && !holds(places_.slots, ClaimSlots::kBytes)) ||
      (fence_constant_ != kNowhere &&
       !IsInside(fence_constant_, sizeof(ptx::FenceConstant), places_.end))) {
    return WrongModule("where its parts lie");
  }
  Result<std::vector<ptx::FaultPlace>> faults = TakeFaultPlaces(from);
  if (!faults) return faults.status();
  fault_places_ = *std::move(faults);
  return {};
}

bool CpuPrepared::FindProgram(std::uint32_t number, const executor::Program** program) const {
  if (number == kNoProgram) return true;
  if (number >= programs_.size()) return false;
  *program = programs_[number].get();
  return true;
}

Status CpuPrepared::TakeKernels(const ModuleRecipe& recipe, FlatReader& from) {
  // Twice: see infos_.
  kernels_.resize(from.TakeCount(40, 2 * sizeof(Kernel)));
  for (Kernel& kernel : kernels_) {
    const auto program = from.Take<std::uint32_t>(), claimed = from.Take<std::uint32_t>();
    kernel.claim_offset = from.Take<std::uint32_t>();
    Result<KernelInfo> info = executor::TakeKernelInfo(from);
    if (!info) return info.status();
    kernel.info = *std::move(info);
    if (!FindProgram(program, &kernel.program) || !FindProgram(claimed, &kernel.claimed)) {
      return WrongModule("a kernel without its code");
    }
    if (kernel.program != nullptr) kernel.info = kernel.program->info();
    if (kernel.program == nullptr && kernel.info.unsupported.empty()) {
      kernel.info.unsupported = "its code";
    }
    infos_.push_back(kernel.info);
    if (kernel.claimed == nullptr) continue;
    // Of the claimed form the launch fills in what the kernel has, and the words behind it.
    const KernelInfo& form = kernel.claimed->info();
    const std::uint64_t end = std::uint64_t{kernel.claim_offset} + sizeof(ptx::ClaimParameter);
    if (!recipe.passes.claims || !form.unsupported.empty() || kernel.program == nullptr ||
        kernel.claim_offset < kernel.info.parameter_bytes || end < form.parameter_bytes ||
        end > kParameterBytesMax + sizeof(ptx::ClaimParameter)) {
      return WrongModule("the claimed form of a kernel");
    }
  }
  return {};
}

void CpuPrepared::CountBytes() {
  bytes_ = sizeof *this;
  for (const auto& program : programs_) bytes_ += executor::MemoryBytes(*program);
  bytes_ += contents_.HostBytes() + HostBytes(fault_places_);
  // Twice: each placed module has its own.
  for (const VariableInfo& variable : variables_) {
    bytes_ += 2 * (sizeof variable + variable.name.size());
  }
  for (const KernelInfo& info : infos_) {
    bytes_ += 2 * (sizeof(Kernel) + info.name.size() + info.unsupported.size() +
                   info.parameters.size() * sizeof info.parameters[0]);
  }
}

}  // namespace gpushared::device
