// SPDX-License-Identifier: Apache-2.0
#include "server/device/cuda/cuda_module.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <optional>
#include <variant>

#include "server/device/module_passes.h"
#include "server/ptx/fatbin.h"
#include "server/ptx/module.h"
#include "server/ptx/parser.h"
#include "server/ptx/printer.h"

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

// Of a compiler's log, without its trailing newline.
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

}  // namespace

// What was handed in, and what its PTX says where it has some.
struct CudaModule::Image {
  std::vector<char> bytes;  // With zeros behind it: text is read up to a zero.
  std::optional<ptx::Module> ptx;
  Status why_no_ptx;
  // Set where passes have made another module of it, whose text `bytes` are then.
  std::optional<PassedModule> passed;

  static Result<Image> Read(std::span<const std::byte> image);
  const ptx::Module* text() const { return passed ? &passed->module : ptx ? &*ptx : nullptr; }
  void Assign(std::span<const std::byte> image);
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
  if (is_elf) {
    read.why_no_ptx = Status(StatusCode::kUnsupported, "a cubin holds no PTX");
  } else {
    Result<std::string> text = ptx::ExtractPtx(image);
    Result<ptx::Module> parsed = text.ok() ? ptx::Parse(*text) : text.status();
    if (parsed.ok()) read.ptx = *std::move(parsed);
    read.why_no_ptx = parsed.status();
    // What is neither container nor text is nothing to show a compiler.
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
                                                               ModulePasses passes) {
  Result<Image> read = Image::Read(image);
  if (!read.ok()) return read.status();
  std::shared_ptr<CudaModule> module(new CudaModule(context, std::move(range)));
  if (passes.isolation != Isolation::kOff) {
    if (Status status = module->Fence(*read, passes); !status.ok()) return status;
  }
  if (const ptx::Module* text = read->text()) {
    const std::uint64_t bytes =
        VariableBytes(*text, read->passed ? read->passed->fence_constant : "");
    if (Status taken = module->range_->TakeForModule(bytes); !taken.ok()) return taken;
    module->variable_bytes_ = bytes;
  }
  if (Status status = module->LoadImage(*read); !status.ok()) return status;
  if (Status status = module->WriteVariables(*read); !status.ok()) return status;
  if (Status status = module->FindKernels(*read); !status.ok()) return status;
  return std::shared_ptr<const device::Module>(std::move(module));
}

CudaModule::~CudaModule() {
  if (module_ != nullptr && !context_.is_dead() && context_.Bind().ok()) {
    (void)context_.Call(context_.driver().ModuleUnload, module_);
  }
  range_->ReturnModuleBlock(variables_);
  range_->ReturnFromModule(variable_bytes_);
}

Status CudaModule::Fence(Image& image, ModulePasses passes) {
  if (!image.ptx) {
    return {image.why_no_ptx.code(),
            "module refused: kernels of this client are kept in its memory by rewriting their PTX, "
            "and there is none: " +
                image.why_no_ptx.message()};
  }
  Result<PassedModule> passed = ApplyPasses(*std::move(image.ptx), passes);
  if (!passed.ok()) return passed.status();
  image.passed = *std::move(passed);
  if (image.passed->variables.alignment > kPageBytes) {
    return {StatusCode::kUnsupported, "module refused: a variable asks for an alignment of " +
                                          std::to_string(image.passed->variables.alignment) +
                                          " bytes, " + std::to_string(kPageBytes) + " are given"};
  }
  Result<CudaRange::Block> block = range_->TakeModuleBlock(image.passed->variables.bytes);
  if (!block.ok()) return block.status();
  variables_ = *block;
  const std::string text = ptx::Print(image.passed->module);
  image.Assign(std::as_bytes(std::span(text)));
  return {};
}

// Of a fenced module: what the driver cannot write, since only we know where it lies.
Status CudaModule::WriteVariables(const Image& image) {
  if (!image.passed || !image.passed->is_fenced()) return {};
  const PassedModule& passed = *image.passed;
  Status status =
      range_->Write(variables_.address, passed.variables.InitialBytes(variables_.address));
  if (!status.ok()) return status;
  DeviceAddress constant = 0;
  std::size_t bytes = 0;
  status = context_.Try("finding the fence", context_.driver().ModuleGetGlobal, &constant, &bytes,
                        module_, passed.fence_constant.c_str());
  if (!status.ok()) return status;
  const MappedRange range = range_->mapped();
  const std::vector<std::byte> fence =
      PassedModule::ConstantBytes(range.base, range.range_bytes, variables_.address);
  if (bytes != fence.size()) {
    return {StatusCode::kInternal, "module refused: the driver says that its fence has " +
                                       std::to_string(bytes) + " bytes, it has " +
                                       std::to_string(fence.size())};
  }
  return range_->Write(constant, fence);
}

Status CudaModule::FindFunction(const std::string& name, Function* function) {
  return context_.Try("finding a kernel", context_.driver().ModuleGetFunction, function, module_,
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
      if (Status status = FindFunction(kernel.info.name, &found); !status.ok()) return status;
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
      if (Status status = FindFunction(function->name, &found); !status.ok()) return status;
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
      return {status.code(), "module refused: kernel '" + info.name + "': " + status.message()};
    }
    kernels_.push_back(std::move(info));
  }
  return {};
}

Status CudaModule::Describe(const Image& image, Function function, KernelInfo& info) {
  const Driver& driver = context_.driver();
  if (driver.Has(Feature::kEagerLoading)) {
    Status status = context_.Try("loading it", driver.FuncLoad, function);
    if (!status.ok()) return status;
  }
  int threads = 0;
  int shared = 0;
  Status status = context_.Try("asking for its threads", driver.FuncGetAttribute, &threads,
                               FunctionAttribute::kThreadsPerBlockMax, function);
  if (!status.ok()) return status;
  status = context_.Try("asking for its shared memory", driver.FuncGetAttribute, &shared,
                        FunctionAttribute::kSharedBytes, function);
  if (!status.ok()) return status;
  info.threads_per_block_max = static_cast<std::uint32_t>(std::max(threads, 0));
  info.static_shared_bytes = static_cast<std::uint32_t>(std::max(shared, 0));
  if (status = OptIntoSharedMemory(function, info); !status.ok()) return status;
  return FindParameters(image, function, info);
}

Status CudaModule::OptIntoSharedMemory(Function function, const KernelInfo& info) {
  const int limit = context_.Attribute(DeviceAttribute::kSharedBytesPerBlockOptIn, 0);
  const int dynamic = limit - static_cast<int>(info.static_shared_bytes);
  if (dynamic <= 0) return {};
  return context_.Try("opting into more shared memory", context_.driver().FuncSetAttribute,
                      function, FunctionAttribute::kDynamicSharedBytesMax, dynamic);
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
  return CudaModule::Load(image, *context_, range_, passes_);
}

}  // namespace gpushared::device::cuda
