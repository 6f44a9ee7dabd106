// SPDX-License-Identifier: Apache-2.0
// Kernels whose code is loaded when they are first launched.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/device/cuda/cuda_module.h"
#include "server/device/shown_name.h"

namespace gpushared::device::cuda {
namespace {

// Number of threads of a block for which there are enough registers: each of the four parts of a
// multiprocessor has a quarter of them and allocates them to warps in units of 256.
std::uint32_t ThreadsByRegisters(int registers) {
  constexpr int kThreadsMax = 1024, kPerPart = 65536 / 4, kUnit = 256, kWarp = 32, kParts = 4;
  if (registers <= 0) return kThreadsMax;
  const int of_warp = (registers * kWarp + kUnit - 1) / kUnit * kUnit;
  return static_cast<std::uint32_t>(std::min(kThreadsMax, kPerPart / of_warp * kParts * kWarp));
}

}  // namespace

Result<CudaModule::Functions> CudaModule::ListFunctions(cuda::Module module) {
  const Driver& driver = context_.driver();
  unsigned count = 0;
  Status status = context_.Try("counting kernels", driver.ModuleGetFunctionCount, &count, module);
  std::vector<Function> functions(count);
  if (status.ok() && count > 0) {
    status = context_.Try("listing kernels", driver.ModuleEnumerateFunctions, functions.data(),
                          count, module);
  }
  Functions listed;
  for (const Function function : functions) {
    const char* name = nullptr;
    if (status.ok()) status = context_.Try("naming a kernel", driver.FuncGetName, &name, function);
    if (status.ok()) listed.emplace(name, function);
  }
  if (!status.ok()) return status;
  return listed;
}

// Finds the functions by listing them, because cuModuleGetFunction would load each function.
Status CudaModule::FindLateKernels(const CudaPrepared& prepared) {
  const Result<Functions> listed = ListFunctions(module_);
  if (!listed.ok()) return listed.status();
  for (const KernelInfo& parsed : prepared.kernel_infos()) {
    functions_.push_back(nullptr);
    KernelInfo& info = kernels_.emplace_back(parsed);
    TakeReach(prepared, parsed, info);
    if (!parsed.unsupported.empty()) continue;
    const auto found = listed->find(parsed.name);
    if (found == listed->end()) {
      return {StatusCode::kInvalidArgument,
              "module rejected: the driver has no kernel '" + ShownName(parsed.name) + "'"};
    }
    functions_.back() = found->second;
    if (Status status = DescribeLate(prepared, found->second, info); !status.ok()) {
      return {status.code(),
              "module rejected: kernel '" + ShownName(parsed.name) + "': " + status.message()};
    }
  }
  late_ = std::make_unique<Late[]>(kernels_.size());
  return {};
}

// Reads an attribute of the kernel. If the driver reports it for loaded kernels only, loads the
// kernel, which costs time and memory.
Result<int> CudaModule::Ask(const char* doing, FunctionAttribute attribute, Function function) {
  const Driver& driver = context_.driver();
  int value = 0;
  Code code = context_.Call(driver.FuncGetAttribute, &value, attribute, function);
  if (code == Code::kFunctionNotLoaded) {
    code = context_.Call(driver.FuncLoad, function);
    if (code != Code::kSuccess) {
      return context_.Explain("loading it", driver.FuncLoad.name(), code);
    }
    code = context_.Call(driver.FuncGetAttribute, &value, attribute, function);
  }
  if (code != Code::kSuccess) return context_.Explain(doing, driver.FuncGetAttribute.name(), code);
  return std::max(value, 0);
}

// Takes from the text what the driver reports for loaded kernels only. If the result is too large,
// the driver rejects the launch.
Status CudaModule::DescribeLate(const CudaPrepared& prepared, Function function, KernelInfo& info) {
  const Result<int> shared =
      Ask("asking for its shared memory", FunctionAttribute::kSharedBytes, function);
  if (!shared.ok()) return shared.status();
  const Result<int> local =
      Ask("asking for its local memory", FunctionAttribute::kLocalBytes, function);
  if (!local.ok()) return local.status();
  const Result<int> registers =
      Ask("asking for its registers", FunctionAttribute::kRegisters, function);
  if (!registers.ok()) return registers.status();
  const Result<int> ptx = Ask("asking for its version", FunctionAttribute::kPtxVersion, function);
  if (!ptx.ok()) return ptx.status();
  const Result<int> binary =
      Ask("asking for its code's version", FunctionAttribute::kBinaryVersion, function);
  if (!binary.ok()) return binary.status();
  info.static_shared_bytes = static_cast<std::uint32_t>(*shared);
  info.local_bytes = static_cast<std::uint32_t>(*local);
  info.registers = static_cast<std::uint32_t>(*registers);
  info.ptx_version = static_cast<std::uint32_t>(*ptx);
  info.binary_version = static_cast<std::uint32_t>(*binary);
  const std::uint32_t threads = ThreadsByRegisters(*registers);
  info.threads_per_block_max =
      info.threads_per_block_max == 0 ? threads : std::min(info.threads_per_block_max, threads);
  info.unsupported = context_.WhyTooMuchLocalMemory(info.local_bytes);
  const int limit = std::max(context_.Attribute(DeviceAttribute::kSharedBytesPerBlockOptIn, 0),
                             context_.Attribute(DeviceAttribute::kSharedBytesPerBlockMax, 0));
  info.dynamic_shared_bytes_max = static_cast<std::uint32_t>(std::max(limit - *shared, 0));
  info.constant_bytes = 0;
  for (const VariableInfo& variable : prepared.variable_infos()) {
    if (variable.space != VariableInfo::Space::kConstant) continue;
    info.constant_bytes += static_cast<std::uint32_t>(variable.bytes);
  }
  info.parameters.clear();
  info.parameter_bytes = 0;
  return FindParameters(prepared, function, info);
}

Result<bool> CudaModule::IsLateReady(std::uint32_t kernel, bool is_urgent) const {
  using enum Late::State;
  Late& late = late_[kernel];
  // Acquire, pairs with the release in LoadLate: the code, or `why`, is set.
  const Late::State state = late.state.load(std::memory_order_acquire);
  if (state == kLoaded) return true;
  if (state == kFailed) return late.why;
  if (state == kUnloaded) {
    late.state.store(kWanted, std::memory_order_relaxed);  // Ordered by the loader's lock.
    // Loading does not change the observable state of the module.
    auto* const self = const_cast<CudaModule*>(this);
    KernelLoader& loader = is_urgent ? loaders_->urgent : loaders_->other;
    loader.Load(range_.get(), this, [self, kernel] { self->LoadLate(kernel); });
  }
  return false;
}

// The original kernel runs until the form is loaded.
bool CudaModule::IsLateClaimReady(std::uint32_t kernel) const {
  using enum Late::State;
  Late& late = late_claims_[kernel];
  // Acquire, pairs with the release in LoadLateClaim.
  const Late::State state = late.state.load(std::memory_order_acquire);
  if (state == kUnloaded) {
    late.state.store(kWanted, std::memory_order_relaxed);  // Ordered by the loader's lock.
    auto* const self = const_cast<CudaModule*>(this);
    loaders_->unhurried.Load(range_.get(), this, [self, kernel] { self->LoadLateClaim(kernel); });
  }
  return state == kLoaded;
}

void CudaModule::LoadLate(std::uint32_t kernel) {
  Late& late = late_[kernel];
  Status status = context_.Try("loading it", context_.driver().FuncLoad, functions_[kernel]);
  if (status.ok()) {
    status = OptIntoSharedMemory(functions_[kernel], kernels_[kernel].static_shared_bytes).status();
  }
  if (!status.ok()) {
    late.why = {status.code(), "launch rejected: kernel '" + ShownName(kernels_[kernel].name) +
                                   "': " + status.message()};
  }
  // Release, pairs with the acquire in IsLateReady.
  late.state.store(status.ok() ? Late::State::kLoaded : Late::State::kFailed,
                   std::memory_order_release);
}

void CudaModule::LoadLateClaim(std::uint32_t kernel) {
  const Result<PreemptibleKernel> claim = FinishClaim(preemptible_kernels_[kernel]);
  const bool is_usable = claim.ok() && claim->function != nullptr;
  if (is_usable) {
    // Other threads read these limits only after the state is kLoaded.
    preemptible_kernels_[kernel].threads_per_block_max = claim->threads_per_block_max;
    preemptible_kernels_[kernel].dynamic_shared_bytes_max = claim->dynamic_shared_bytes_max;
  } else if (!claim.ok() && maker_ != nullptr) {
    maker_->Note("kernel '" + ShownName(kernels_[kernel].name) +
                 "' cannot be stopped: " + claim.status().message());
  }
  // Release, pairs with the acquire in IsLateClaimReady.
  late_claims_[kernel].state.store(is_usable ? Late::State::kLoaded : Late::State::kFailed,
                                   std::memory_order_release);
}

}  // namespace gpushared::device::cuda
