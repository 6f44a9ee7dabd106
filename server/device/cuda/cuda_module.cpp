// SPDX-License-Identifier: Apache-2.0
#include "server/device/cuda/cuda_module.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <optional>

#include "gpushared/limits.h"

#include "server/device/memory_pieces.h"
#include "server/device/module_passes.h"
#include "server/device/prepare.h"
#include "server/device/shown_name.h"
#include "server/ptx/passes/claim.h"
#include "server/ptx/passes/fence.h"

namespace gpushared::device::cuda {
namespace {

constexpr std::size_t kCompilerLogBytes = 8192;
// Ends the search for the number of parameters; no kernel can have more.
constexpr std::size_t kParametersMax = 4096;

// Returns a compiler's log as one line, to be appended to a message; empty if the log is empty.
std::string LogText(const std::array<char, kCompilerLogBytes>& log) {
  std::string text(log.data(), strnlen(log.data(), log.size()));
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  std::ranges::replace(text, '\n', ' ');
  return text.empty() ? text : "; the compiler reports: " + text;
}

Status NoCompiler() {
  return {
      StatusCode::kUnsupported,
      "module rejected: kernels of this client are rewritten to confine them to its memory, and "
      "code of users other than the server's own is compiled outside of the server, but there "
      "is no compiler; the operator can install ptxas (of the CUDA toolkit), name it with "
      "ptx-compiler, or let the GPU's driver compile inside the server with ptx-compiler = "
      "\"driver\""};
}

}  // namespace

Result<std::shared_ptr<const device::Module>> CudaModule::Place(const CudaPrepared& prepared,
                                                                CudaContext& context,
                                                                std::shared_ptr<CudaRange> range,
                                                                const ModuleLoading& loading) {
  if (prepared.is_fenced() && loading.maker == nullptr && !loading.driver_may_compile) {
    return NoCompiler();
  }
  std::shared_ptr<CudaModule> module(new CudaModule(context, std::move(range), prepared, loading));
  if (Status status = module->TakeMemory(prepared, loading.words); !status.ok()) return status;
  if (Status status = module->LoadImage(prepared); !status.ok()) return status;
  if (Status status = module->WriteVariables(prepared); !status.ok()) return status;
  if (Status status = module->FindKernels(prepared); !status.ok()) return status;
  if (Status status = module->FindVariables(prepared); !status.ok()) return status;
  if (Status status = module->FindClaims(prepared); !status.ok()) return status;
  return std::shared_ptr<const device::Module>(std::move(module));
}

CudaModule::~CudaModule() {
  if (target_ != nullptr) {
    const MutexLock lock(target_->mutex);
    target_->module = nullptr;
  }
  if (loaders_ != nullptr) loaders_->Forget(this);
  if (graphs_ != nullptr && !context_.is_dead() && context_.Bind().ok()) graphs_->Forget(*this);
  // Begins after the calls above, because they may wait for threads that wait for an idle window.
  const IdleWindow window(context_.idle_windows(), Urgency::kAwaited);
  range_->RemoveVariables(variable_memory_);
  for (const cuda::Module module : {module_, preemptible_module_}) {
    if (module == nullptr || context_.is_dead() || !context_.Bind().ok()) continue;
    (void)context_.Call(context_.driver().ModuleUnload, module);
  }
  if (contained_ != nullptr) range_->ForgetLimit(contained_->control());
  contained_.reset();
  range_->ReturnModuleBlock(variables_);
  range_->ReturnFromModule(variable_bytes_);
}

Status CudaModule::TakeMemory(const CudaPrepared& prepared, std::shared_ptr<ContainWords> words) {
  std::uint64_t bytes = prepared.range_variable_bytes();
  if (prepared.is_contained() && bytes > 0) bytes += ptx::kContainTailBytes;
  if (prepared.is_fenced()) {
    Result<CudaRange::Block> block = range_->TakeModuleBlock(bytes);
    if (!block.ok()) return block.status();
    variables_ = *block;
  }
  if (prepared.is_contained()) {
    Status status = Contain(prepared, std::move(words));
    if (!status.ok()) return {status.code(), "module rejected: " + status.message()};
  }
  Status taken = range_->TakeForModule(prepared.driver_variable_bytes());
  if (taken.ok()) variable_bytes_ = prepared.driver_variable_bytes();
  return taken;
}

Status CudaModule::Contain(const CudaPrepared& prepared, std::shared_ptr<ContainWords> words) {
  const Result<ContainWords::Slot> slot = words->Take();
  if (!slot.ok()) return slot.status();
  contained_ = std::make_unique<ContainedLaunches>(*range_, std::move(words), *slot,
                                                   prepared.fault_places());
  contained_->ZeroHostWords();
  constexpr std::array<std::byte, sizeof(ptx::ContainControl)> kZeros{};
  Status status = range_->Write(contained_->control(), kZeros);
  static_assert(offsetof(ptx::ContainControl, limit) == 0);
  return status.ok() ? range_->KeepLimit(contained_->control()) : status;
}

// ---- preemptible forms

Status CudaModule::FindClaims(const CudaPrepared& prepared) {
  if (maker_ == nullptr) return {};
  if (!prepared.note().empty()) maker_->Note(prepared.note());
  if (prepared.has_claims()) {
    Status status = TakeClaims(*prepared.claims(), module_);
    if (!status.ok()) return Status(status.code(), "module rejected: " + status.message());
  } else if (prepared.claims() != nullptr) {
    CompileClaims(prepared.claims());
  }
  return {};
}

void CudaModule::CompileClaims(const std::shared_ptr<const PreemptibleText>& claims) {
  target_ = std::make_shared<Target>(this);
  CodeMaker::Job job{.ptx = claims->text, .target = claims->target};
  job.wanted = [target = target_] {
    const MutexLock lock(target->mutex);
    return target->module != nullptr;
  };
  job.done = [target = target_, claims](const Result<std::vector<std::byte>>& code) {
    const MutexLock lock(target->mutex);
    if (target->module != nullptr) target->module->AddClaims(*claims, code);
  };
  maker_->CompileLater(std::move(job));
}

void CudaModule::AddClaims(const PreemptibleText& claims,
                           const Result<std::vector<std::byte>>& code) {
  if (code.ok() && !claims.is_separable) {
    return maker_->Note("kernels of a module with variables can be stopped from its next load on");
  }
  const Status status = code.ok() ? LoadClaims(claims, *code) : code.status();
  if (status.ok() || status.code() == StatusCode::kCancelled) return;
  maker_->Note("kernels of a module cannot be stopped: " + status.message());
}

Status CudaModule::LoadClaims(const PreemptibleText& claims, std::vector<std::byte> code) {
  if (context_.is_dead()) return context_.death();
  if (Status status = context_.Bind(); !status.ok()) return status;
  code.resize(code.size() + CudaPrepared::kTrailingZeros);
  Status status = context_.Try("loading preemptible forms", context_.driver().ModuleLoadDataEx,
                               &preemptible_module_, static_cast<const void*>(code.data()), 0U,
                               static_cast<JitOption*>(nullptr), static_cast<void**>(nullptr));
  if (status.ok()) status = WriteFence(preemptible_module_);
  if (status.ok()) status = TakeClaims(claims, preemptible_module_);
  return status;
}

Status CudaModule::TakeClaims(const PreemptibleText& claims, cuda::Module module) {
  std::vector<PreemptibleKernel> forms(kernels_.size());
  Functions late;
  if (late_ != nullptr) {
    Result<Functions> listed = ListFunctions(module);
    if (!listed.ok()) return listed.status();
    late = *std::move(listed);
    late_claims_ = std::make_unique<Late[]>(kernels_.size());
  }
  for (const PreemptibleText::Form& form : claims.forms) {
    const auto kernel = std::ranges::find(kernels_, form.kernel, &KernelInfo::name);
    // A launch fills in the kernel's own parameters, followed by the words of the claim.
    if (kernel == kernels_.end() || !kernel->unsupported.empty() ||
        form.parameter_offset < kernel->parameter_bytes ||
        form.parameter_offset > kParameterBytesMax) {
      continue;
    }
    PreemptibleKernel& claim = forms[static_cast<std::size_t>(kernel - kernels_.begin())];
    if (late_ != nullptr) {
      const auto found = late.find(form.claimed);
      if (found == late.end()) continue;
      claim = {.function = found->second, .parameter_offset = form.parameter_offset};
      continue;
    }
    const Result<PreemptibleKernel> taken = TakeClaim(form, module);
    if (!taken.ok()) return taken.status();
    claim = *taken;
  }
  preemptible_kernels_ = std::move(forms);
  claimed_.store(&preemptible_kernels_, std::memory_order_release);
  return {};
}

// A kernel without a preemptible function runs in its original form.
Result<PreemptibleKernel> CudaModule::TakeClaim(const PreemptibleText::Form& form,
                                                cuda::Module module) {
  PreemptibleKernel taken{.parameter_offset = form.parameter_offset};
  Status status = FindFunction(module, form.claimed, &taken.function);
  if (!status.ok()) return status;
  return FinishClaim(taken);
}

// Loads the form and reads its launch limits.
Result<PreemptibleKernel> CudaModule::FinishClaim(PreemptibleKernel claim) {
  const Function function = std::exchange(claim.function, nullptr);
  const Result<Limits> limits = FindLimits(function);
  if (!limits.ok()) return limits.status();
  if (!context_.WhyTooMuchLocalMemory(limits->local_bytes).empty()) return claim;
  claim.threads_per_block_max = limits->threads_per_block;
  const Result<std::uint32_t> dynamic = OptIntoSharedMemory(function, limits->static_shared_bytes);
  if (!dynamic.ok()) return dynamic.status();
  claim.dynamic_shared_bytes_max = *dynamic;
  claim.function = function;
  return claim;
}

// ---- the driver's module

// Writes the initial contents of a fenced module's variables, which the driver does not place.
Status CudaModule::WriteVariables(const CudaPrepared& prepared) {
  if (!prepared.is_fenced()) return {};
  Status status = range_->Write(variables_.address, prepared.InitialBytes(variables_.address));
  return status.ok() ? WriteFence(module_) : status;
}

Status CudaModule::WriteFence(cuda::Module module) {
  if (fence_constant_.empty()) return {};
  DeviceAddress constant = 0;
  std::size_t bytes = 0;
  Status status = context_.Try("finding the fence", context_.driver().ModuleGetGlobal, &constant,
                               &bytes, module, fence_constant_.c_str());
  if (!status.ok()) return status;
  const MappedRange range = range_->mapped();
  const std::vector<std::byte> fence = PassedModule::ConstantBytes(
      range.base, variables_.address, contained_ ? contained_->control() : 0,
      contained_ ? contained_->host_words() : 0);
  if (bytes != fence.size()) {
    return {StatusCode::kInternal, "module rejected: according to the driver, its fence has " +
                                       std::to_string(bytes) + " bytes, it has " +
                                       std::to_string(fence.size())};
  }
  return range_->Write(constant, fence);
}

Status CudaModule::FindFunction(cuda::Module module, const std::string& name, Function* function) {
  return context_.Try("finding a kernel", context_.driver().ModuleGetFunction, function, module,
                      name.c_str());
}

Status CudaModule::LoadImage(const CudaPrepared& prepared) {
  const Driver& driver = context_.driver();
  std::array<char, kCompilerLogBytes> log{};
  std::array names = {JitOption::kErrorLogBuffer, JitOption::kErrorLogBytes};
  // The driver expects numbers inside the pointers.
  std::array<void*, 2> values = {log.data(), reinterpret_cast<void*>(log.size())};
  cuda::Module module = nullptr;
  const Code code =
      context_.Call(driver.ModuleLoadDataEx, &module, static_cast<const void*>(prepared.image()),
                    static_cast<unsigned>(names.size()), names.data(), values.data());
  if (code == Code::kSuccess) {
    module_ = module;
    return {};
  }
  Status why = context_.Explain("loading the module", driver.ModuleLoadDataEx.name(), code);
  // The error from parsing the PTX includes line and column.
  if (code == Code::kInvalidPtx && !prepared.has_ptx()) why = prepared.why_no_ptx();
  return {why.code(), "module rejected: " + why.message() + LogText(log)};
}

Status CudaModule::NamesFromDriver(std::vector<std::string>& names) {
  const Driver& driver = context_.driver();
  unsigned count = 0;
  Status status = context_.Try("counting kernels", driver.ModuleGetFunctionCount, &count, module_);
  if (!status.ok()) return status;
  // An empty array has no address, and a driver may reject a null pointer.
  if (count == 0) return {};
  functions_.resize(count);
  status = context_.Try("listing kernels", driver.ModuleEnumerateFunctions, functions_.data(),
                        count, module_);
  for (std::size_t i = 0; status.ok() && i < functions_.size(); ++i) {
    const char* name = nullptr;
    status = context_.Try("naming a kernel", driver.FuncGetName, &name, functions_[i]);
    if (status.ok()) names.emplace_back(name);
  }
  return status;
}

// The function is null if a pass rejected the kernel.
Status CudaModule::NamesFromText(const CudaPrepared& prepared, std::vector<std::string>& names) {
  for (const KernelInfo& kernel : prepared.kernel_infos()) {
    names.push_back(kernel.name);
    Function& found = functions_.emplace_back(nullptr);
    if (!kernel.unsupported.empty()) continue;
    if (Status status = FindFunction(module_, kernel.name, &found); !status.ok()) return status;
  }
  return {};
}

Status CudaModule::FindKernels(const CudaPrepared& prepared) {
  // Kernels are loaded lazily only if there is PTX text, because the driver does not report the
  // launch limits of a kernel that is not loaded.
  if (loaders_ != nullptr && prepared.has_ptx() &&
      prepared.kernel_infos().size() > kLoadedAtOnceMax) {
    return FindLateKernels(prepared);
  }
  const Driver& driver = context_.driver();
  std::vector<std::string> names;
  Status found;
  // Functions that were added by passes are not the client's, although the driver lists them.
  const bool has_added = prepared.is_fenced() || prepared.has_claims();
  const bool driver_lists = driver.Has(Feature::kFunctionNames);
  if (has_added || (!driver_lists && prepared.has_ptx())) {
    found = NamesFromText(prepared, names);
  } else if (driver_lists) {
    found = NamesFromDriver(names);
  } else {
    found = Status(StatusCode::kUnsupported, "module rejected: " + prepared.why_no_ptx().message() +
                                                 ", and this driver (CUDA " +
                                                 VersionText(driver.version()) +
                                                 ") cannot list the kernels of machine code, "
                                                 "12.4 can");
  }
  if (!found.ok()) return found;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (functions_[i] == nullptr) {
      kernels_.push_back(prepared.kernel_infos()[i]);
      continue;
    }
    KernelInfo info;
    info.name = std::move(names[i]);
    const auto parsed = std::ranges::find(prepared.kernel_infos(), info.name, &KernelInfo::name);
    if (parsed != prepared.kernel_infos().end()) TakeReach(prepared, *parsed, info);
    Status status = Describe(prepared, functions_[i], info);
    if (!status.ok()) {
      return {status.code(),
              "module rejected: kernel '" + ShownName(info.name) + "': " + status.message()};
    }
    kernels_.push_back(std::move(info));
  }
  return {};
}

// Variables of machine code without text are unknown, because the driver does not list names.
Status CudaModule::FindVariables(const CudaPrepared& prepared) {
  const Driver& driver = context_.driver();
  variable_infos_.assign(prepared.variable_infos().begin(), prepared.variable_infos().end());
  if (prepared.range_variable_bytes() > 0) {
    variable_memory_.push_back(
        {.base = variables_.address, .bytes = prepared.range_variable_bytes()});
  }
  // Upper bound for the padding between variables that the driver places.
  constexpr std::uint64_t kPaddingBytesMax = 15;
  std::vector<VariableInfo> outside;
  Status status;
  std::erase_if(variable_infos_, [&](VariableInfo& variable) {
    if (variable.address != kElsewhere) {
      variable.address += variables_.address;
      return false;
    }
    DeviceAddress address = 0;
    std::size_t bytes = 0;
    const Code code =
        context_.Call(driver.ModuleGetGlobal, &address, &bytes, module_, variable.name.c_str());
    // The compiler may remove unused variables.
    if (code == Code::kNotFound) return true;
    if (code != Code::kSuccess && status.ok()) {
      status = context_.Explain("finding a variable", driver.ModuleGetGlobal.name(), code);
    }
    variable.address = address;
    variable.bytes = bytes;
    outside.push_back(variable);
    return false;
  });
  if (!status.ok()) return status;
  const std::vector<MemoryPiece> pieces = GetPieces(outside, kPaddingBytesMax);
  variable_memory_.insert(variable_memory_.end(), pieces.begin(), pieces.end());
  range_->AddVariables(variable_memory_);
  return {};
}

void CudaModule::TakeReach(const CudaPrepared& prepared, const KernelInfo& parsed,
                           KernelInfo& info) {
  if (prepared.runs_text()) {
    info.reach_offsets = parsed.reach_offsets;
    info.why_reach_unknown = parsed.why_reach_unknown;
  } else {
    info.reach_offsets.clear();
    info.why_reach_unknown = "machine code may run in the place of its PTX";
  }
}

Status CudaModule::Describe(const CudaPrepared& prepared, Function function, KernelInfo& info) {
  const Result<Limits> limits = FindLimits(function);
  if (!limits.ok()) return limits.status();
  info.threads_per_block_max = limits->threads_per_block;
  info.static_shared_bytes = limits->static_shared_bytes;
  info.unsupported = context_.WhyTooMuchLocalMemory(limits->local_bytes);
  const Result<std::uint32_t> dynamic = OptIntoSharedMemory(function, info.static_shared_bytes);
  info.local_bytes = static_cast<std::uint32_t>(limits->local_bytes);
  info.constant_bytes = limits->constant_bytes;
  info.registers = limits->registers;
  info.ptx_version = limits->ptx_version;
  info.binary_version = limits->binary_version;
  if (dynamic.ok()) info.dynamic_shared_bytes_max = *dynamic;
  return dynamic.ok() ? FindParameters(prepared, function, info) : dynamic.status();
}

Result<CudaModule::Limits> CudaModule::FindLimits(Function function) {
  const Driver& driver = context_.driver();
  if (driver.Has(Feature::kEagerLoading)) {
    Status status = context_.Try("loading it", driver.FuncLoad, function);
    if (!status.ok()) return status;
  }
  std::array<int, 7> found{};
  constexpr std::array kAsked = {
      std::pair("asking for its threads", FunctionAttribute::kThreadsPerBlockMax),
      std::pair("asking for its shared memory", FunctionAttribute::kSharedBytes),
      std::pair("asking for its local memory", FunctionAttribute::kLocalBytes),
      std::pair("asking for its constants", FunctionAttribute::kConstantBytes),
      std::pair("asking for its registers", FunctionAttribute::kRegisters),
      std::pair("asking for its version", FunctionAttribute::kPtxVersion),
      std::pair("asking for its code's version", FunctionAttribute::kBinaryVersion)};
  for (std::size_t i = 0; i < kAsked.size(); ++i) {
    const auto& [doing, attribute] = kAsked[i];
    Status status = context_.Try(doing, driver.FuncGetAttribute, &found[i], attribute, function);
    if (!status.ok()) return status;
    found[i] = std::max(found[i], 0);
  }
  return Limits{.threads_per_block = static_cast<std::uint32_t>(found[0]),
                .static_shared_bytes = static_cast<std::uint32_t>(found[1]),
                .local_bytes = static_cast<std::uint64_t>(found[2]),
                .constant_bytes = static_cast<std::uint32_t>(found[3]),
                .registers = static_cast<std::uint32_t>(found[4]),
                .ptx_version = static_cast<std::uint32_t>(found[5]),
                .binary_version = static_cast<std::uint32_t>(found[6])};
}

// Makes the driver allow as much dynamic shared memory as the GPU has, and returns the maximum of a
// launch.
Result<std::uint32_t> CudaModule::OptIntoSharedMemory(Function function,
                                                      std::uint32_t static_bytes) {
  const int limit = context_.Attribute(DeviceAttribute::kSharedBytesPerBlockOptIn, 0);
  const int dynamic = limit - static_cast<int>(static_bytes);
  if (dynamic <= 0) {
    const int usual = context_.Attribute(DeviceAttribute::kSharedBytesPerBlockMax, 0);
    return static_cast<std::uint32_t>(std::max(usual - static_cast<int>(static_bytes), 0));
  }
  Status status = context_.Try("opting into more shared memory", context_.driver().FuncSetAttribute,
                               function, FunctionAttribute::kDynamicSharedBytesMax, dynamic);
  if (!status.ok()) return status;
  return static_cast<std::uint32_t>(dynamic);
}

Status CudaModule::FindParameters(const CudaPrepared& prepared, Function function,
                                  KernelInfo& info) {
  const Driver& driver = context_.driver();
  if (driver.Has(Feature::kParameterInfo)) {
    for (std::size_t i = 0; i < kParametersMax; ++i) {
      std::size_t offset = 0;
      std::size_t bytes = 0;
      Code code = context_.Call(driver.FuncGetParamInfo, function, i, &offset, &bytes);
      // See Ask.
      if (code == Code::kFunctionNotLoaded &&
          context_.Call(driver.FuncLoad, function) == Code::kSuccess) {
        code = context_.Call(driver.FuncGetParamInfo, function, i, &offset, &bytes);
      }
      if (code == Code::kInvalidValue) break;  // No such parameter.
      if (code != Code::kSuccess) {
        return context_.Explain("asking for its parameters", driver.FuncGetParamInfo.name(), code);
      }
      info.parameters.push_back({.offset = static_cast<std::uint32_t>(offset),
                                 .bytes = static_cast<std::uint32_t>(bytes)});
    }
  } else if (const auto text =
                 std::ranges::find(prepared.kernel_infos(), info.name, &KernelInfo::name);
             text != prepared.kernel_infos().end()) {
    info.parameters = text->parameters;
  } else {
    return {StatusCode::kUnsupported,
            "its parameters are unknown: there is no PTX of it, and this driver (CUDA " +
                VersionText(driver.version()) + ") does not report them, 12.4 does"};
  }
  for (const ParameterLayout& parameter : info.parameters) {
    info.parameter_bytes = std::max(info.parameter_bytes, parameter.offset + parameter.bytes);
  }
  return {};
}

Result<std::uint64_t> CudaSpace::Resize(std::uint64_t mapped_bytes) {
  if (context_->is_dead()) return context_->death();
  if (Status status = context_->Bind(); !status.ok()) return status;
  return range_->Resize(mapped_bytes);
}

Status CudaSpace::Enter() const {
  return context_->is_dead() ? context_->death() : context_->Bind();
}

Status CudaSpace::SwapPageOut(std::uint64_t offset) {
  Status entered = Enter();
  return entered.ok() ? range_->SwapPageOut(offset) : entered;
}

Status CudaSpace::SwapPageIn(std::uint64_t offset) {
  Status entered = Enter();
  return entered.ok() ? range_->SwapPageIn(offset) : entered;
}

namespace {

class CudaChunk : public Chunk {
 public:
  CudaChunk(CudaContext& context, std::shared_ptr<CudaRange> range,
            const CudaRange::ChunkMemory& memory)
      : context_(context), range_(std::move(range)), memory_(memory) {}
  CudaChunk(const CudaChunk&) = delete;
  CudaChunk& operator=(const CudaChunk&) = delete;
  ~CudaChunk() override {
    if (context_.is_dead() || !context_.Bind().ok()) return;
    range_->ReturnChunk(memory_);
  }

  CudaRange::ChunkMemory& memory() { return memory_; }

 private:
  CudaContext& context_;
  const std::shared_ptr<CudaRange> range_;
  CudaRange::ChunkMemory memory_;
};

}  // namespace

Result<std::unique_ptr<Chunk>> CudaSpace::MakeChunk(std::uint64_t bytes) {
  if (context_->is_dead()) return context_->death();
  if (Status status = context_->Bind(); !status.ok()) return status;
  const Result<CudaRange::ChunkMemory> memory = range_->TakeChunk(bytes);
  if (!memory.ok()) return memory.status();
  return std::unique_ptr<Chunk>(std::make_unique<CudaChunk>(*context_, range_, *memory));
}

Status CudaSpace::MapChunk(Chunk& chunk, std::uint64_t address) {
  if (context_->is_dead()) return context_->death();
  if (Status status = context_->Bind(); !status.ok()) return status;
  return range_->MapChunk(static_cast<CudaChunk&>(chunk).memory(), address);
}

Status CudaSpace::Unmap(std::uint64_t address, std::uint64_t bytes) {
  if (context_->is_dead()) return context_->death();
  if (Status status = context_->Bind(); !status.ok()) return status;
  return range_->Unmap(address, bytes);
}

Result<std::shared_ptr<const PreparedModule>> CudaSpace::CompileModule(
    std::shared_ptr<const PreparedModule> module, bool may_take_long) {
  if (loading_.maker == nullptr) return module;
  Result<std::shared_ptr<const CudaPrepared>> compiled =
      CudaPrepared::Compile(std::static_pointer_cast<const CudaPrepared>(std::move(module)),
                            *loading_.maker, may_take_long);
  if (!compiled.ok()) return compiled.status();
  return std::shared_ptr<const PreparedModule>(*std::move(compiled));
}

Result<std::shared_ptr<const device::Module>> CudaSpace::PlaceModule(
    std::shared_ptr<const PreparedModule> module) {
  if (context_->is_dead()) return context_->death();
  if (Status status = context_->Bind(); !status.ok()) return status;
  const IdleWindow window(context_->idle_windows(), Urgency::kAwaited);
  return CudaModule::Place(static_cast<const CudaPrepared&>(*module), *context_, range_, loading_);
}

}  // namespace gpushared::device::cuda
