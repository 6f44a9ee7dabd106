// SPDX-License-Identifier: Apache-2.0
// Modules and libraries: loading, unloading, and lookup of kernels. Both are the same kind of
// object, so a library's handle is also its module's handle.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "client_lib/drop_in/calls.h"
#include "client_lib/drop_in/current.h"
#include "client_lib/drop_in/image_link.h"
#include "client_lib/drop_in/jit_log.h"
#include "client_lib/drop_in/jit_options.h"
#include "client_lib/drop_in/log.h"
#include "common/ptx/text/fatbin.h"
#include "common/ptx/text/target.h"

namespace gpushared::drop_in {
namespace {

// Returns whether the PTX version of the image is unknown. CUDA has a separate error code for that.
bool HasUnknownVersion(std::span<const std::byte> image) {
  const Result<std::string> text = ptx::ExtractPtx(image);
  if (!text.ok()) return false;
  const std::string_view version = ptx::GetVersion(*text);
  return !version.empty() && !ptx::IsKnownVersion(version);
}

// Returns the driver's code for a rejected image.
Code LoadCode(Session& session, const Status& status, std::span<const std::byte> image) {
  // INVALID_PTX is documented as "a PTX JIT compilation failed". OUT_OF_MEMORY would make programs
  // free device memory and retry, which does not help here.
  if (status.code() == StatusCode::kLimitExceeded) {
    return Reject(Code::kInvalidPtx, status.message());
  }
  if (status.code() != StatusCode::kInvalidArgument && status.code() != StatusCode::kUnsupported) {
    return session.GetCode(status);
  }
  const bool is_text = image.size() < 4 || std::memcmp(image.data(),
                                                       "\x7f"
                                                       "ELF",
                                                       4) != 0;
  const bool is_fatbin = image.size() >= 4 && std::memcmp(image.data(), "\x50\xed\x55\xba", 4) == 0;
  if (HasUnknownVersion(image)) return Reject(Code::kUnsupportedPtxVersion, status.message());
  return Reject(is_text && !is_fatbin ? Code::kInvalidPtx : Code::kNoBinaryForGpu,
                status.message());
}

// Returns the session of the current context. If `needs` is kDevice and there is no context,
// returns that of the first device.
enum class Needs : bool { kContext, kDevice };
Code FindSession(Needs needs, std::shared_ptr<Session>& session) {
  const Current current;
  if (current.ok()) {
    session = current->shared_session();
    return Code::kSuccess;
  }
  const bool has_none = current.code() == Code::kInvalidContext;
  if (needs == Needs::kContext || !has_none) return current.code();
  return Driver::Get().DeviceAt(0)->AnySession(session);
}

Code Load(const void* image, bool is_library, unsigned option_count, const JitOption* options,
          void** values, ModuleHandle* handle) {
  if (AnyNull(handle, image)) return Code::kInvalidValue;
  if (option_count != 0 && AnyNull(options, values)) return Code::kInvalidValue;
  if (const Code code = CheckJitOptions(JitUse::kLoad, option_count, options, values);
      code != Code::kSuccess) {
    return code;
  }
  std::shared_ptr<Session> session;
  if (const Code code = FindSession(is_library ? Needs::kDevice : Needs::kContext, session);
      code != Code::kSuccess) {
    return code;
  }
  JitLog log(option_count, options, values);
  std::span<const std::byte> bytes = ImageBytes(image);
  if (bytes.empty()) return Code::kInvalidImage;
  ImageLink limited;
  if (const unsigned most = RegistersMost(option_count, options, values); most != 0) {
    limited.LimitRegisters(most);
    const std::string_view all(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    // Machine code has fixed registers, so an image without PTX is passed on unchanged.
    const bool is_new = limited.AddFatbin("the module", all).ok() && limited.Complete().ok();
    if (is_new) bytes = std::as_bytes(std::span(limited.image()));
  }
  Result<std::shared_ptr<CudaModule>> module = is_library
                                                   ? CudaModule::LoadLibrary(session, bytes)
                                                   : CudaModule::Load(Current().shared(), bytes);
  log.WriteTime();
  if (!module.ok()) {
    log.WriteError(module.status().message());
    return LoadCode(*session, module.status(), bytes);
  }
  *handle = Driver::Get().modules.Insert(*module);
  if (*handle == nullptr) return Code::kOutOfMemory;
  (*module)->set_handle(*handle);
  return Code::kSuccess;
}

// Reads a file into `image` and appends a NUL, which an image without a size needs.
Code ReadImage(const char* path, std::vector<char>& image) {
  if (AnyNull(path)) return Code::kInvalidValue;
  std::ifstream file(path, std::ios::binary);
  std::error_code failed;
  if (!file || std::filesystem::is_directory(path, failed)) {
    return Reject(Code::kFileNotFound, std::string("cannot read ") + path);
  }
  image.assign(std::istreambuf_iterator<char>(file), {});
  image.push_back('\0');
  return Code::kSuccess;
}

Code Unload(ModuleHandle handle, bool is_library) {
  Driver& driver = Driver::Get();
  if (const Code code = driver.Ready(); code != Code::kSuccess) return code;
  const std::shared_ptr<CudaModule> module = driver.modules.Find(handle);
  if (module == nullptr || module->is_library() != is_library) return Code::kInvalidHandle;
  driver.modules.Remove(handle);
  driver.kernels.RemoveIf([&](const CudaKernel& kernel) { return kernel.module == module; });
  return Code::kSuccess;
}

// Calls `use` with the module of the handle and with the module loaded in the session.
template <typename Use>
Code WithModule(ModuleHandle handle, Needs needs, const Use& use) {
  Driver& driver = Driver::Get();
  if (const Code code = driver.Ready(); code != Code::kSuccess) return code;
  // An invalid handle must not open a session.
  const std::shared_ptr<CudaModule> module = driver.modules.Find(handle);
  if (module == nullptr) return Code::kInvalidHandle;
  std::shared_ptr<Session> session;
  if (const Code code = FindSession(needs, session); code != Code::kSuccess) return code;
  const Result<Module> loaded = module->In(session);
  if (!loaded.ok()) return session->GetCode(loaded.status());
  return use(session, module, *loaded);
}

Code AddKernel(const std::shared_ptr<Session>& session, const std::shared_ptr<CudaModule>& module,
               const Result<Kernel>& kernel, FunctionHandle* function) {
  if (!kernel.ok()) return session->GetCode(kernel.status());
  // A kernel has a single handle, because programs compare handles.
  auto& kernels = Driver::Get().kernels;
  const FunctionHandle known = module->GetHandle(kernel->name());
  if (kernels.Find(known) != nullptr) {
    *function = known;
    return Code::kSuccess;
  }
  *function =
      kernels.Insert(std::make_shared<CudaKernel>(module, kernel->name(), *kernel, session));
  if (*function == nullptr) return Code::kOutOfMemory;
  module->SetHandleOf(kernel->name(), *function);
  return Code::kSuccess;
}

Code GetFunction(FunctionHandle* function, ModuleHandle handle, const char* name, Needs needs) {
  return WithModule(handle, needs,
                    [&](const auto& session, const auto& module, const Module& loaded) {
                      return AddKernel(session, module, loaded.GetKernel(name), function);
                    });
}

Code GetFunctionCount(unsigned* count, ModuleHandle handle, Needs needs) {
  if (AnyNull(count)) return Code::kInvalidValue;
  return WithModule(handle, needs, [&](const auto&, const auto&, const Module& loaded) {
    *count = static_cast<unsigned>(loaded.kernel_count());
    return Code::kSuccess;
  });
}

Code EnumerateFunctions(FunctionHandle* functions, unsigned count, ModuleHandle handle,
                        Needs needs) {
  if (AnyNull(functions)) return Code::kInvalidValue;
  return WithModule(
      handle, needs, [&](const auto& session, const auto& module, const Module& loaded) {
        const std::size_t last = std::min<std::size_t>(count, loaded.kernel_count());
        for (std::size_t i = 0; i < last; ++i) {
          const Code code = AddKernel(session, module, loaded.KernelAt(i), &functions[i]);
          if (code != Code::kSuccess) return code;
        }
        return Code::kSuccess;
      });
}

}  // namespace

// ---- modules

Code ModuleLoadData(ModuleHandle* module, const void* image) {
  return Load(image, /*is_library=*/false, 0, nullptr, nullptr, module);
}

Code ModuleLoadDataEx(ModuleHandle* module, const void* image, unsigned option_count,
                      JitOption* options, void** values) {
  return Load(image, /*is_library=*/false, option_count, options, values, module);
}

Code ModuleLoadFatBinary(ModuleHandle* module, const void* image) {
  return ModuleLoadData(module, image);
}

Code ModuleLoad(ModuleHandle* module, const char* path) {
  std::vector<char> image;
  if (const Code code = ReadImage(path, image); code != Code::kSuccess) return code;
  return ModuleLoadData(module, image.data());
}

Code ModuleUnload(ModuleHandle module) { return Unload(module, /*is_library=*/false); }

Code ModuleGetFunction(FunctionHandle* function, ModuleHandle handle, const char* name) {
  if (AnyNull(function, name)) return Code::kInvalidValue;
  return GetFunction(function, handle, name, Needs::kContext);
}

Code ModuleGetFunctionCount(unsigned* count, ModuleHandle handle) {
  return GetFunctionCount(count, handle, Needs::kContext);
}

Code ModuleEnumerateFunctions(FunctionHandle* functions, unsigned count, ModuleHandle handle) {
  return EnumerateFunctions(functions, count, handle, Needs::kContext);
}

Code ModuleGetGlobal(DevicePointer* address, std::size_t* bytes, ModuleHandle handle,
                     const char* name) {
  if (AnyNull(name)) return Code::kInvalidValue;
  return WithModule(handle, Needs::kContext,
                    [&](const auto& session, const auto&, const Module& loaded) {
                      const Result<ModuleVariable> variable = loaded.GetVariable(name);
                      if (!variable.ok()) return session->GetCode(variable.status());
                      if (address != nullptr) *address = variable->address;
                      if (bytes != nullptr) *bytes = variable->bytes;
                      return Code::kSuccess;
                    });
}

Code ModuleGetLoadingMode(LoadingMode* mode) {
  if (AnyNull(mode)) return Code::kInvalidValue;
  *mode = LoadingMode::kEager;
  return Driver::Get().Ready();
}

// ---- libraries. Without a context, they are loaded and their kernels looked up on the first
// device.

Code LibraryLoadData(LibraryHandle* library, const void* image, JitOption* options, void** values,
                     unsigned option_count, void*, void**, unsigned) {
  ModuleHandle module = nullptr;
  if (AnyNull(library)) return Code::kInvalidValue;
  const Code code = Load(image, /*is_library=*/true, option_count, options, values, &module);
  if (code == Code::kSuccess) *library = As<LibraryHandle>(module);
  return code;
}

Code LibraryLoadFromFile(LibraryHandle* library, const char* path, JitOption* options,
                         void** values, unsigned option_count, void* library_options,
                         void** library_values, unsigned library_option_count) {
  std::vector<char> image;
  if (const Code code = ReadImage(path, image); code != Code::kSuccess) return code;
  return LibraryLoadData(library, image.data(), options, values, option_count, library_options,
                         library_values, library_option_count);
}

Code LibraryUnload(LibraryHandle library) {
  return Unload(As<ModuleHandle>(library), /*is_library=*/true);
}

Code LibraryGetKernel(KernelHandle* kernel, LibraryHandle library, const char* name) {
  FunctionHandle function = nullptr;
  if (AnyNull(kernel, name)) return Code::kInvalidValue;
  const Code code = GetFunction(&function, As<ModuleHandle>(library), name, Needs::kDevice);
  if (code == Code::kSuccess) *kernel = As<KernelHandle>(function);
  return code;
}

Code LibraryGetKernelCount(unsigned* count, LibraryHandle library) {
  return GetFunctionCount(count, As<ModuleHandle>(library), Needs::kDevice);
}

Code LibraryEnumerateKernels(KernelHandle* kernels, unsigned count, LibraryHandle library) {
  static_assert(sizeof(KernelHandle) == sizeof(FunctionHandle));
  return EnumerateFunctions(As<FunctionHandle*>(kernels), count, As<ModuleHandle>(library),
                            Needs::kDevice);
}

Code LibraryGetGlobal(DevicePointer* address, std::size_t* bytes, LibraryHandle library,
                      const char* name) {
  return ModuleGetGlobal(address, bytes, As<ModuleHandle>(library), name);
}

// No variable is managed memory.
Code LibraryGetManaged(DevicePointer*, std::size_t*, LibraryHandle library, const char* name) {
  if (AnyNull(name)) return Code::kInvalidValue;
  return WithModule(As<ModuleHandle>(library), Needs::kContext,
                    [&](const auto&...) { return Code::kNotFound; });
}

Code LibraryGetModule(ModuleHandle* module, LibraryHandle library) {
  if (AnyNull(module)) return Code::kInvalidValue;
  return WithModule(As<ModuleHandle>(library), Needs::kContext, [&](const auto&...) {
    *module = As<ModuleHandle>(library);
    return Code::kSuccess;
  });
}

}  // namespace gpushared::drop_in
