// SPDX-License-Identifier: Apache-2.0
#include "server/device/cuda/cuda_module.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <limits>
#include <optional>
#include <variant>

#include "server/device/module_passes.h"
#include "server/device/shown_name.h"
#include "server/ptx/passes/contain.h"
#include "server/ptx/text/fatbin.h"
#include "server/ptx/text/module.h"
#include "server/ptx/text/parser.h"
#include "server/ptx/text/printer.h"

namespace gpushared::device::cuda {
namespace {

constexpr std::uint32_t kFatbinMagic = 0xba55ed50;
constexpr std::size_t kFatbinHeaderBytes = 16;
constexpr std::array kElfMagic = {std::byte{0x7f}, std::byte{'E'}, std::byte{'L'}, std::byte{'F'}};
constexpr std::size_t kElfHeaderBytes = 64;

constexpr std::size_t kCompilerLogBytes = 8192;
// Longer than any kernel can have parameters; ends the search for their number.
constexpr std::size_t kParametersMax = 4096;

// Drivers are given an address and believe the header about the length.
Status CheckFatbin(std::span<const std::byte> image) {
  std::uint16_t header_bytes = 0;
  std::uint64_t payload_bytes = 0;
  if (image.size() >= kFatbinHeaderBytes) {
    std::memcpy(&header_bytes, image.data() + 6, sizeof header_bytes);
    std::memcpy(&payload_bytes, image.data() + 8, sizeof payload_bytes);
  }
  if (header_bytes >= kFatbinHeaderBytes && header_bytes <= image.size() &&
      payload_bytes <= image.size() - header_bytes) {
    return {};
  }
  return {StatusCode::kInvalidArgument,
          "module refused: the fatbin claims " + std::to_string(header_bytes) + " + " +
              std::to_string(payload_bytes) + " bytes, its image has " +
              std::to_string(image.size())};
}

bool StartsWith(std::span<const std::byte> image, std::span<const std::byte> magic) {
  return image.size() >= magic.size() && std::equal(magic.begin(), magic.end(), image.begin());
}

// The text of a compiler's log, without its trailing newline.
std::string LogText(const std::array<char, kCompilerLogBytes>& log) {
  std::string text(log.data(), strnlen(log.data(), log.size()));
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  std::ranges::replace(text, '\n', ' ');
  return text.empty() ? text : "; the compiler says: " + text;
}

// Without the one of this name, which is ours.
std::uint64_t VariableBytes(const ptx::Module& module, std::string_view ours) {
  constexpr std::uint64_t kPage = 4096;
  std::uint64_t bytes = 0;
  for (const ptx::Item& item : module.items) {
    const auto* variable = std::get_if<ptx::Variable>(&item);
    if (variable == nullptr || variable->linkage == ".extern" || variable->name == ours) continue;
    const bool is_memory = variable->space == ptx::StateSpace::kGlobal ||
                           variable->space == ptx::StateSpace::kConstant;
    // Bounded by ptx::kVariableBytesMax each; a sum that wraps would take 2^24 of them.
    if (is_memory) bytes += variable->Bytes();
  }
  return RoundUp(bytes, kPage);
}

Status NobodyCompiles() {
  return {StatusCode::kUnsupported,
          "module refused: kernels of this client are rewritten to keep them in its memory, what "
          "other users than the server's own wrote is compiled outside of the server, and there "
          "is no compiler; the operator can install ptxas (of the CUDA toolkit), name it with "
          "ptx-compiler, or let the GPU's driver compile inside the server with ptx-compiler = "
          "\"driver\""};
}

bool HasGlobalVariables(const ptx::Module& module) {
  return std::ranges::any_of(module.items, [](const ptx::Item& item) {
    const auto* variable = std::get_if<ptx::Variable>(&item);
    return variable != nullptr && variable->space == ptx::StateSpace::kGlobal;
  });
}

// A line that names the kernels which get no claimed form, and why; empty when all do.
std::string Unclaimed(const PassedModule& passed) {
  constexpr std::size_t kNamedMax = 8;
  constexpr std::size_t kNameBytesMax = 128;
  std::string text;
  std::size_t count = 0;
  for (const PassedKernel& kernel : passed.kernels) {
    if (!kernel.claimed.empty() || !kernel.info.unsupported.empty()) continue;
    if (++count > kNamedMax) continue;
    text += (count == 1 ? "kernels that cannot be stopped: '" : ", '") +
            kernel.info.name.substr(0, kNameBytesMax) + "' (" + kernel.why_not_claimed + ")";
  }
  if (count > kNamedMax) text += " and " + std::to_string(count - kNamedMax) + " more";
  return text;
}

}  // namespace

// The client's image, and its PTX if it has some.
struct CudaModule::Image {
  std::vector<char> bytes;  // With zeros behind it: text is read up to a zero.
  std::optional<ptx::Module> ptx;
  Status why_no_ptx;
  bool is_text = false;  // No container, which may hold better code than its PTX.
  // Set where passes have made another module of it, of which `bytes` are the text or the code.
  std::optional<PassedModule> passed;
  std::shared_ptr<const Claims> claims;  // Its claimed forms, where it can have any.
  bool has_claims = false;               // They are in `bytes`.

  static Result<Image> Read(std::span<const std::byte> image);
  const ptx::Module* text() const { return passed ? &passed->module : ptx ? &*ptx : nullptr; }
  void Assign(std::span<const std::byte> image);
};

// A module with the claimed forms of its kernels beside them.
struct CudaModule::Claims {
  PassedModule passed;
  std::string text;
  // Whether the forms may be a module of their own.
  bool can_stand_apart = false;
};

Result<CudaModule::Image> CudaModule::Image::Read(std::span<const std::byte> image) {
  const bool is_elf = StartsWith(image, kElfMagic);
  const bool is_fatbin = StartsWith(image, std::as_bytes(std::span(&kFatbinMagic, 1)));
  if (is_elf && image.size() < kElfHeaderBytes) {
    return Status(StatusCode::kInvalidArgument,
                  "module refused: a cubin of " + std::to_string(image.size()) + " bytes");
  }
  if (is_fatbin) {
    if (Status status = CheckFatbin(image); !status.ok()) return status;
  }
  Image read;
  read.is_text = !is_elf && !is_fatbin;
  if (is_elf) {
    read.why_no_ptx = Status(StatusCode::kUnsupported, "a cubin holds no PTX");
  } else {
    Result<std::string> text = ptx::ExtractPtx(image);
    Result<ptx::Module> parsed = text.ok() ? ptx::Parse(*text) : text.status();
    if (parsed.ok()) read.ptx = *std::move(parsed);
    read.why_no_ptx = parsed.status();
    // Bytes that are neither container nor text are nothing to show a compiler.
    if (!text.ok() && !is_fatbin) return text.status();
  }
  read.Assign(image);
  return read;
}

void CudaModule::Image::Assign(std::span<const std::byte> image) {
  constexpr std::size_t kZeros = 64;
  bytes.assign(image.size() + kZeros, '\0');
  std::ranges::copy(image, std::as_writable_bytes(std::span(bytes)).begin());
}

Result<std::shared_ptr<const device::Module>> CudaModule::Load(std::span<const std::byte> image,
                                                               CudaContext& context,
                                                               std::shared_ptr<CudaRange> range,
                                                               const ModuleLoading& loading) {
  Result<Image> read = Image::Read(image);
  if (!read.ok()) return read.status();
  std::shared_ptr<CudaModule> module(new CudaModule(context, std::move(range), loading.maker));
  if (Status status = module->Prepare(*read, loading); !status.ok()) return status;
  if (const ptx::Module* text = read->text()) {
    const std::uint64_t bytes =
        VariableBytes(*text, read->passed ? read->passed->fence_constant : "");
    if (Status taken = module->range_->TakeForModule(bytes); !taken.ok()) return taken;
    module->variable_bytes_ = bytes;
  }
  if (Status status = module->LoadImage(*read); !status.ok()) return status;
  if (Status status = module->WriteVariables(*read); !status.ok()) return status;
  if (Status status = module->FindKernels(*read); !status.ok()) return status;
  if (read->has_claims) {
    Status status = module->TakeClaims(*read->claims, module->module_);
    if (!status.ok()) return Status(status.code(), "module refused: " + status.message());
  } else if (read->claims != nullptr) {
    module->CompileClaims(std::move(read->claims));
  }
  return std::shared_ptr<const device::Module>(std::move(module));
}

CudaModule::~CudaModule() {
  if (target_ != nullptr) {
    const std::lock_guard lock(target_->mutex);
    target_->module = nullptr;
  }
  for (const cuda::Module module : {module_, claimed_module_}) {
    if (module == nullptr || context_.is_dead() || !context_.Bind().ok()) continue;
    (void)context_.Call(context_.driver().ModuleUnload, module);
  }
  if (contained_ != nullptr) range_->ForgetLimit(contained_->control());
  contained_.reset();
  range_->ReturnModuleBlock(variables_);
  range_->ReturnFromModule(variable_bytes_);
}

// Prepares the image for the driver.
Status CudaModule::Prepare(Image& image, const ModuleLoading& loading) {
  const bool is_isolated = loading.isolation != Isolation::kOff;
  if (is_isolated) {
    if (maker_ == nullptr && !loading.driver_may_compile) return NobodyCompiles();
    if (Status status = Fence(image, loading); !status.ok()) return status;
  }
  if (maker_ == nullptr) return {};
  image.claims = MakeClaims(image);
  if (image.claims != nullptr && (image.is_text || is_isolated)) {
    const auto kept = maker_->Find(image.claims->text, image.claims->passed.module.target);
    if (kept) {
      image.passed = image.claims->passed;
      image.has_claims = true;
      image.Assign(*kept);
      return {};
    }
  }
  if (!is_isolated) return {};
  const ptx::Module& module = image.passed->module;
  const Result<std::vector<std::byte>> code = maker_->Compile(ptx::Print(module), module.target);
  if (!code.ok()) {
    return {code.status().code(), "module refused: " + code.status().message()};
  }
  image.Assign(*code);
  return {};
}

Status CudaModule::Fence(Image& image, const ModuleLoading& loading) {
  if (!image.ptx) {
    return {image.why_no_ptx.code(),
            "module refused: kernels of this client are kept in its memory by rewriting their PTX, "
            "and there is none: " +
                image.why_no_ptx.message()};
  }
  Result<PassedModule> passed = ApplyPasses(*std::move(image.ptx), {.isolation = loading.isolation},
                                            range_->mapped().range_bytes);
  if (!passed.ok()) return passed.status();
  image.passed = *std::move(passed);
  if (image.passed->variables.alignment > kPageBytes) {
    return {StatusCode::kUnsupported, "module refused: a variable asks for an alignment of " +
                                          std::to_string(image.passed->variables.alignment) +
                                          " bytes, " + std::to_string(kPageBytes) + " are given"};
  }
  const bool is_contained = image.passed->is_contained;
  std::uint64_t bytes = image.passed->variables.bytes;
  if (is_contained && bytes > 0) bytes += ptx::kContainTailBytes;
  Result<CudaRange::Block> block = range_->TakeModuleBlock(bytes);
  if (!block.ok()) return block.status();
  variables_ = *block;
  if (is_contained) {
    Status status = Contain(image.passed->places, loading.words);
    if (!status.ok()) return {status.code(), "module refused: " + status.message()};
  }
  const std::string text = ptx::Print(image.passed->module);
  image.Assign(std::as_bytes(std::span(text)));
  return {};
}

Status CudaModule::Contain(std::vector<ptx::FaultPlace> places,
                           std::shared_ptr<ContainWords> words) {
  const Result<DeviceAddress> slot = words->Take();
  if (!slot.ok()) return slot.status();
  contained_ =
      std::make_unique<ContainedLaunches>(*range_, std::move(words), *slot, std::move(places));
  constexpr std::array<std::byte, ContainWords::kSlotBytes> kZeros{};
  Status status = range_->Write(*slot, kZeros);
  static_assert(offsetof(ptx::ContainControl, limit) == 0);
  return status.ok() ? range_->KeepLimit(contained_->control()) : status;
}

// ---- claimed forms

std::shared_ptr<const CudaModule::Claims> CudaModule::MakeClaims(const Image& image) const {
  if (image.text() == nullptr) {
    maker_->Note("kernels of a module cannot be stopped: " + image.why_no_ptx.message());
    return nullptr;
  }
  auto claims = std::make_shared<Claims>();
  if (image.passed) {
    claims->passed = *image.passed;
  } else {
    // Nothing is refused where nothing is rewritten.
    claims->passed = *ApplyPasses(*image.ptx, {}, range_->mapped().range_bytes);
  }
  const bool any = device::AddClaims(claims->passed);
  if (const std::string text = Unclaimed(claims->passed); !text.empty()) maker_->Note(text);
  if (!any) return nullptr;
  // Variables of a fenced module are where we put them, for however many modules.
  claims->can_stand_apart =
      claims->passed.is_fenced() || !HasGlobalVariables(claims->passed.module);
  if (!claims->can_stand_apart && !image.is_text) {
    maker_->Note(
        "kernels of a module cannot be stopped: it is a container of code and has variables");
    return nullptr;
  }
  claims->text = ptx::Print(claims->passed.module);
  return claims;
}

void CudaModule::CompileClaims(std::shared_ptr<const Claims> claims) {
  target_ = std::make_shared<Target>();
  target_->module = this;
  CodeMaker::Job job{.ptx = claims->text, .target = claims->passed.module.target};
  job.wanted = [target = target_] {
    const std::lock_guard lock(target->mutex);
    return target->module != nullptr;
  };
  job.done = [target = target_, claims](const Result<std::vector<std::byte>>& code) {
    const std::lock_guard lock(target->mutex);
    if (target->module != nullptr) target->module->AddClaims(*claims, code);
  };
  maker_->CompileLater(std::move(job));
}

void CudaModule::AddClaims(const Claims& claims, const Result<std::vector<std::byte>>& code) {
  if (code.ok() && !claims.can_stand_apart) {
    return maker_->Note("kernels of a module with variables can be stopped from its next load on");
  }
  const Status status = code.ok() ? LoadClaims(claims, *code) : code.status();
  if (status.ok() || status.code() == StatusCode::kCancelled) return;
  maker_->Note("kernels of a module cannot be stopped: " + status.message());
}

Status CudaModule::LoadClaims(const Claims& claims, std::span<const std::byte> code) {
  if (context_.is_dead()) return context_.death();
  if (Status status = context_.Bind(); !status.ok()) return status;
  Image image;
  image.Assign(code);
  Status status = context_.Try("loading claimed forms", context_.driver().ModuleLoadDataEx,
                               &claimed_module_, static_cast<const void*>(image.bytes.data()), 0U,
                               static_cast<JitOption*>(nullptr), static_cast<void**>(nullptr));
  if (status.ok()) status = WriteFence(claims.passed, claimed_module_);
  if (status.ok()) status = TakeClaims(claims, claimed_module_);
  return status;
}

Status CudaModule::TakeClaims(const Claims& claims, cuda::Module module) {
  std::vector<ClaimedKernel> forms(kernels_.size());
  for (const PassedKernel& passed : claims.passed.kernels) {
    const auto kernel = std::ranges::find(kernels_, passed.info.name, &KernelInfo::name);
    if (passed.claimed.empty() || kernel == kernels_.end() || !kernel->unsupported.empty())
      continue;
    ClaimedKernel form{.parameter_offset = passed.claim_offset};
    Status status = FindFunction(module, passed.claimed, &form.function);
    if (!status.ok()) return status;
    const Result<Limits> limits = FindLimits(form.function);
    if (!limits.ok()) return limits.status();
    // It runs as it was written, then.
    if (limits->local_bytes > context_.local_bytes_max()) continue;
    form.threads_per_block_max = limits->threads_per_block;
    const Result<std::uint32_t> dynamic =
        OptIntoSharedMemory(form.function, limits->static_shared_bytes);
    if (!dynamic.ok()) return dynamic.status();
    form.dynamic_shared_bytes_max = *dynamic;
    forms[static_cast<std::size_t>(kernel - kernels_.begin())] = form;
  }
  claimed_kernels_ = std::move(forms);
  claimed_.store(&claimed_kernels_, std::memory_order_release);
  return {};
}

// ---- the driver's module

// Of a fenced module: what the driver cannot write, since only we know where it lies.
Status CudaModule::WriteVariables(const Image& image) {
  if (!image.passed || !image.passed->is_fenced()) return {};
  const PassedModule& passed = *image.passed;
  Status status =
      range_->Write(variables_.address, passed.variables.InitialBytes(variables_.address));
  return status.ok() ? WriteFence(passed, module_) : status;
}

Status CudaModule::WriteFence(const PassedModule& passed, cuda::Module module) {
  if (!passed.is_fenced()) return {};
  DeviceAddress constant = 0;
  std::size_t bytes = 0;
  Status status = context_.Try("finding the fence", context_.driver().ModuleGetGlobal, &constant,
                               &bytes, module, passed.fence_constant.c_str());
  if (!status.ok()) return status;
  const MappedRange range = range_->mapped();
  const std::vector<std::byte> fence = PassedModule::ConstantBytes(
      range.base, variables_.address, contained_ ? contained_->control() : 0,
      contained_ ? contained_->fault() : 0);
  if (bytes != fence.size()) {
    return {StatusCode::kInternal, "module refused: the driver says that its fence has " +
                                       std::to_string(bytes) + " bytes, it has " +
                                       std::to_string(fence.size())};
  }
  return range_->Write(constant, fence);
}

Status CudaModule::FindFunction(cuda::Module module, const std::string& name, Function* function) {
  return context_.Try("finding a kernel", context_.driver().ModuleGetFunction, function, module,
                      name.c_str());
}

Status CudaModule::LoadImage(const Image& image) {
  const Driver& driver = context_.driver();
  std::array<char, kCompilerLogBytes> log{};
  std::array names = {JitOption::kErrorLogBuffer, JitOption::kErrorLogBytes};
  // Numbers are handed over in the pointers themselves.
  std::array<void*, 2> values = {log.data(), reinterpret_cast<void*>(log.size())};
  cuda::Module module = nullptr;
  const Code code =
      context_.Call(driver.ModuleLoadDataEx, &module, static_cast<const void*>(image.bytes.data()),
                    static_cast<unsigned>(names.size()), names.data(), values.data());
  if (code == Code::kSuccess) {
    module_ = module;
    return {};
  }
  Status why = context_.Explain("loading the module", driver.ModuleLoadDataEx.name(), code);
  // Our own words have line and column.
  if (code == Code::kInvalidPtx && image.text() == nullptr) why = image.why_no_ptx;
  return {why.code(), "module refused: " + why.message() + LogText(log)};
}

Status CudaModule::NamesFromDriver(std::vector<std::string>& names) {
  const Driver& driver = context_.driver();
  unsigned count = 0;
  Status status = context_.Try("counting kernels", driver.ModuleGetFunctionCount, &count, module_);
  if (!status.ok()) return status;
  // There is no place to put none, and a driver may refuse to be given none.
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

Status CudaModule::FindKernels(const Image& image) {
  const Driver& driver = context_.driver();
  std::vector<std::string> names;
  if (image.passed) {
    for (const PassedKernel& kernel : image.passed->kernels) {
      names.push_back(kernel.info.name);
      Function& found = functions_.emplace_back(nullptr);
      if (!kernel.info.unsupported.empty()) continue;
      if (Status status = FindFunction(module_, kernel.info.name, &found); !status.ok())
        return status;
    }
  } else if (driver.Has(Feature::kFunctionNames)) {
    if (Status status = NamesFromDriver(names); !status.ok()) return status;
  } else if (!image.ptx) {
    return {StatusCode::kUnsupported, "module refused: " + image.why_no_ptx.message() +
                                          ", and this driver (CUDA " +
                                          VersionText(driver.version()) +
                                          ") cannot list the kernels of machine code, 12.4 can"};
  } else {
    for (const ptx::Item& item : image.ptx->items) {
      const auto* function = std::get_if<ptx::Function>(&item);
      if (function == nullptr || !function->is_entry || !function->body) continue;
      Function& found = functions_.emplace_back(nullptr);
      if (Status status = FindFunction(module_, function->name, &found); !status.ok())
        return status;
      names.push_back(function->name);
    }
  }
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (functions_[i] == nullptr) {
      kernels_.push_back(image.passed->kernels[i].info);
      continue;
    }
    KernelInfo info;
    info.name = std::move(names[i]);
    Status status = Describe(image, functions_[i], info);
    if (!status.ok()) {
      return {status.code(),
              "module refused: kernel '" + ShownName(info.name) + "': " + status.message()};
    }
    kernels_.push_back(std::move(info));
  }
  return {};
}

Status CudaModule::Describe(const Image& image, Function function, KernelInfo& info) {
  const Result<Limits> limits = FindLimits(function);
  if (!limits.ok()) return limits.status();
  info.threads_per_block_max = limits->threads_per_block;
  info.static_shared_bytes = limits->static_shared_bytes;
  if (limits->local_bytes > context_.local_bytes_max()) {
    info.unsupported = std::to_string(limits->local_bytes) +
                       " bytes of local memory for each thread, " +
                       std::to_string(context_.local_bytes_max()) + " are there";
  }
  const Result<std::uint32_t> dynamic = OptIntoSharedMemory(function, info.static_shared_bytes);
  return dynamic.ok() ? FindParameters(image, function, info) : dynamic.status();
}

Result<CudaModule::Limits> CudaModule::FindLimits(Function function) {
  const Driver& driver = context_.driver();
  if (driver.Has(Feature::kEagerLoading)) {
    Status status = context_.Try("loading it", driver.FuncLoad, function);
    if (!status.ok()) return status;
  }
  std::array<int, 3> found{};
  constexpr std::array kAsked = {
      std::pair("asking for its threads", FunctionAttribute::kThreadsPerBlockMax),
      std::pair("asking for its shared memory", FunctionAttribute::kSharedBytes),
      std::pair("asking for its local memory", FunctionAttribute::kLocalBytes)};
  for (std::size_t i = 0; i < kAsked.size(); ++i) {
    const auto& [doing, attribute] = kAsked[i];
    Status status = context_.Try(doing, driver.FuncGetAttribute, &found[i], attribute, function);
    if (!status.ok()) return status;
    found[i] = std::max(found[i], 0);
  }
  return Limits{.threads_per_block = static_cast<std::uint32_t>(found[0]),
                .static_shared_bytes = static_cast<std::uint32_t>(found[1]),
                .local_bytes = static_cast<std::uint64_t>(found[2])};
}

// Returns how much dynamic shared memory a launch may then ask for.
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

Status CudaModule::FindParameters(const Image& image, Function function, KernelInfo& info) {
  const Driver& driver = context_.driver();
  if (driver.Has(Feature::kParameterInfo)) {
    for (std::size_t i = 0; i < kParametersMax; ++i) {
      std::size_t offset = 0;
      std::size_t bytes = 0;
      const Code code = context_.Call(driver.FuncGetParamInfo, function, i, &offset, &bytes);
      if (code == Code::kInvalidValue) break;  // There is none of this number.
      if (code != Code::kSuccess) {
        return context_.Explain("asking for its parameters", driver.FuncGetParamInfo.name(), code);
      }
      info.parameters.push_back({.offset = static_cast<std::uint32_t>(offset),
                                 .bytes = static_cast<std::uint32_t>(bytes)});
    }
  } else if (const ptx::Function* text =
                 image.text() != nullptr ? image.text()->FindFunction(info.name) : nullptr;
             text != nullptr) {
    std::uint64_t end = 0;
    for (const ptx::Variable& parameter : text->parameters) {
      const std::uint64_t alignment = std::max(parameter.NaturalAlignment(), 1U);
      const std::uint64_t offset = RoundUp(end, alignment);
      end = offset + parameter.Bytes();
      if (end > std::numeric_limits<std::uint32_t>::max()) {
        return {StatusCode::kInvalidArgument, "its parameters take more than 4 GiB"};
      }
      info.parameters.push_back({.offset = static_cast<std::uint32_t>(offset),
                                 .bytes = static_cast<std::uint32_t>(parameter.Bytes())});
    }
  } else {
    return {StatusCode::kUnsupported,
            "its parameters are unknown: there is no PTX of it, and this driver (CUDA " +
                VersionText(driver.version()) + ") does not tell, 12.4 does"};
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

Result<std::shared_ptr<const device::Module>> CudaSpace::LoadModule(
    std::span<const std::byte> image) {
  if (context_->is_dead()) return context_->death();
  if (Status status = context_->Bind(); !status.ok()) return status;
  return CudaModule::Load(image, *context_, range_, loading_);
}

}  // namespace gpushared::device::cuda
