// SPDX-License-Identifier: Apache-2.0
// Kernels: names, parameters and attributes. CUfunction and CUkernel are the same handle here.
#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>

#include "client_lib/drop_in/calls.h"
#include "client_lib/drop_in/current.h"
#include "client_lib/drop_in/device_attributes.h"
#include "client_lib/drop_in/occupancy.h"

namespace gpushared::drop_in {
namespace {

using device::cuda::FunctionAttribute;

bool IsAttribute(int attribute) { return attribute >= 0 && attribute < CudaKernel::kAttributesMax; }
// Returns whether a program may set the attribute; the others are facts.
bool IsSettable(int attribute) { return attribute >= 8 && IsAttribute(attribute); }

// Calls `use` with the kernel of the handle.
template <typename Use>
Code WithKernel(FunctionHandle handle, const Use& use) {
  Driver& driver = Driver::Get();
  if (const Code code = driver.Ready(); code != Code::kSuccess) return code;
  const std::shared_ptr<CudaKernel> kernel = driver.kernels.Find(handle);
  return kernel == nullptr ? Code::kInvalidHandle : use(kernel);
}

// As WithKernel, with the kernel loaded in the current context.
template <typename Use>
Code WithLoaded(FunctionHandle handle, const Use& use) {
  return WithKernel(handle, [&](const std::shared_ptr<CudaKernel>& kernel) {
    const Current current;
    if (!current.ok()) return current.code();
    const Result<Kernel> loaded = kernel->In(*current);
    return loaded.ok() ? use(current, *kernel, *loaded) : current.GetCode(loaded.status());
  });
}

// As WithKernel, for facts, which need no context.
template <typename Use>
Code WithFacts(FunctionHandle handle, const Use& use) {
  return WithKernel(handle, [&](const std::shared_ptr<CudaKernel>& kernel) {
    const Current current;
    if (current.code() == Code::kInvalidContext) return use(*kernel, kernel->first());
    if (!current.ok()) return current.code();
    const Result<Kernel> loaded = kernel->In(*current);
    return loaded.ok() ? use(*kernel, *loaded) : current.GetCode(loaded.status());
  });
}

// Returns the value that the program has set, or a fact about the kernel; zero for all other
// attributes.
int Fact(const DeviceProperties& device, const CudaKernel& of, const Kernel& kernel,
         int attribute) {
  const int set = of.set_attributes[static_cast<std::size_t>(attribute)].load();
  if (set != CudaKernel::kUnset) return set;
  const KernelAttributes& facts = kernel.attributes();
  switch (static_cast<FunctionAttribute>(attribute)) {
    case FunctionAttribute::kThreadsPerBlockMax:
      return static_cast<int>(kernel.threads_per_block_max());
    case FunctionAttribute::kSharedBytes:
      return static_cast<int>(kernel.static_shared_bytes());
    case FunctionAttribute::kConstantBytes:
      return static_cast<int>(facts.constant_bytes);
    case FunctionAttribute::kLocalBytes:
      return static_cast<int>(facts.local_bytes);
    case FunctionAttribute::kRegisters:
      return static_cast<int>(facts.registers);
    case FunctionAttribute::kPtxVersion:
      return static_cast<int>(facts.ptx_version);
    case FunctionAttribute::kBinaryVersion:
      return static_cast<int>(facts.binary_version);
    case FunctionAttribute::kDynamicSharedBytesMax:
      return DynamicSharedMax(device, of, kernel);
    case FunctionAttribute::kRequiredClusterX:
      return static_cast<int>(kernel.required_cluster().x);
    case FunctionAttribute::kRequiredClusterY:
      return static_cast<int>(kernel.required_cluster().y);
    case FunctionAttribute::kRequiredClusterZ:
      return static_cast<int>(kernel.required_cluster().z);
    default:
      return 0;
  }
}

// Requires that `attribute` is settable.
Code SetAttribute(const DeviceProperties& device, CudaKernel& kernel, const Kernel& loaded,
                  int attribute, int value) {
  if (attribute == static_cast<int>(FunctionAttribute::kDynamicSharedBytesMax)) {
    const auto most = std::int64_t{AttributeFor(device, Attribute::kSharedBytesPerBlockOptIn)} -
                      loaded.static_shared_bytes();
    if (value < 0 || value > most) return Code::kInvalidValue;
  }
  // cuda.h: values set at compile time cannot be set at run time.
  const bool is_cluster = attribute >= static_cast<int>(FunctionAttribute::kRequiredClusterX) &&
                          attribute <= static_cast<int>(FunctionAttribute::kRequiredClusterZ);
  if (is_cluster && loaded.required_cluster().x != 0) return Code::kNotPermitted;
  kernel.set_attributes[static_cast<std::size_t>(attribute)].store(value);
  return Code::kSuccess;
}

}  // namespace

Code FuncGetModule(ModuleHandle* module, FunctionHandle function) {
  if (AnyNull(module)) return Code::kInvalidValue;
  return WithKernel(function, [&](const std::shared_ptr<CudaKernel>& kernel) {
    *module = kernel->module->handle();
    return Code::kSuccess;
  });
}

Code FuncGetName(const char** name, FunctionHandle function) {
  if (AnyNull(name)) return Code::kInvalidValue;
  return WithKernel(function, [&](const std::shared_ptr<CudaKernel>& kernel) {
    *name = kernel->name.c_str();
    return Code::kSuccess;
  });
}

Code FuncGetParamCount(FunctionHandle function, std::size_t* count) {
  if (AnyNull(count)) return Code::kInvalidValue;
  return WithFacts(function, [&](const CudaKernel&, const Kernel& kernel) {
    *count = kernel.parameters().size();
    return Code::kSuccess;
  });
}

Code FuncGetParamInfo(FunctionHandle function, std::size_t index, std::size_t* offset,
                      std::size_t* bytes) {
  if (AnyNull(offset)) return Code::kInvalidValue;
  return WithFacts(function, [&](const CudaKernel&, const Kernel& kernel) {
    if (index >= kernel.parameters().size()) return Code::kInvalidValue;
    *offset = kernel.parameters()[index].offset;
    if (bytes != nullptr) *bytes = kernel.parameters()[index].bytes;
    return Code::kSuccess;
  });
}

// Kernels are loaded with their module.
Code FuncIsLoaded(int* state, FunctionHandle function) {
  if (AnyNull(state)) return Code::kInvalidValue;
  return WithKernel(function, [&](const std::shared_ptr<CudaKernel>&) {
    *state = 1;
    return Code::kSuccess;
  });
}

Code FuncLoad(FunctionHandle function) {
  return WithLoaded(function, [](const auto&...) { return Code::kSuccess; });
}

Code FuncGetAttribute(int* value, int attribute, FunctionHandle function) {
  if (AnyNull(value) || !IsAttribute(attribute)) return Code::kInvalidValue;
  return WithLoaded(
      function, [&](const Current& current, const CudaKernel& kernel, const Kernel& loaded) {
        *value = Fact(current->session().client().device(), kernel, loaded, attribute);
        return Code::kSuccess;
      });
}

Code FuncSetAttribute(FunctionHandle function, int attribute, int value) {
  if (!IsSettable(attribute)) return Code::kInvalidValue;
  return WithLoaded(
      function, [&](const Current& current, CudaKernel& kernel, const Kernel& loaded) {
        return SetAttribute(current->session().client().device(), kernel, loaded, attribute, value);
      });
}

// Hints without effect here.
Code FuncSetCacheConfig(FunctionHandle function, int) { return FuncLoad(function); }
Code FuncSetSharedMemConfig(FunctionHandle function, int) { return FuncLoad(function); }

Code KernelGetFunction(FunctionHandle* function, KernelHandle kernel) {
  if (AnyNull(function)) return Code::kInvalidValue;
  return WithLoaded(As<FunctionHandle>(kernel), [&](const auto&...) {
    *function = As<FunctionHandle>(kernel);
    return Code::kSuccess;
  });
}

Code KernelGetLibrary(LibraryHandle* library, KernelHandle kernel) {
  if (AnyNull(library)) return Code::kInvalidValue;
  return WithKernel(As<FunctionHandle>(kernel), [&](const std::shared_ptr<CudaKernel>& found) {
    if (!found->module->is_library()) return Code::kInvalidHandle;
    *library = As<LibraryHandle>(found->module->handle());
    return Code::kSuccess;
  });
}

Code KernelGetName(const char** name, KernelHandle kernel) {
  return FuncGetName(name, As<FunctionHandle>(kernel));
}

Code KernelGetParamCount(KernelHandle kernel, std::size_t* count) {
  return FuncGetParamCount(As<FunctionHandle>(kernel), count);
}

Code KernelGetParamInfo(KernelHandle kernel, std::size_t index, std::size_t* offset,
                        std::size_t* bytes) {
  return FuncGetParamInfo(As<FunctionHandle>(kernel), index, offset, bytes);
}

namespace {

Code CheckDevice(int ordinal) {
  Driver& driver = Driver::Get();
  if (const Code code = driver.Ready(); code != Code::kSuccess) return code;
  return driver.DeviceAt(ordinal) == nullptr ? Code::kInvalidDevice : Code::kSuccess;
}

}  // namespace

Code KernelGetAttribute(int* value, int attribute, KernelHandle kernel, int device) {
  if (AnyNull(value) || !IsAttribute(attribute)) return Code::kInvalidValue;
  if (const Code code = CheckDevice(device); code != Code::kSuccess) return code;
  return WithFacts(As<FunctionHandle>(kernel), [&](const CudaKernel& of, const Kernel& loaded) {
    *value = Fact(Driver::Get().DeviceAt(device)->properties(), of, loaded, attribute);
    return Code::kSuccess;
  });
}

Code KernelSetAttribute(int attribute, int value, KernelHandle kernel, int device) {
  if (!IsSettable(attribute)) return Code::kInvalidValue;
  if (const Code code = CheckDevice(device); code != Code::kSuccess) return code;
  return WithFacts(As<FunctionHandle>(kernel), [&](CudaKernel& of, const Kernel& loaded) {
    return SetAttribute(Driver::Get().DeviceAt(device)->properties(), of, loaded, attribute, value);
  });
}

Code KernelSetCacheConfig(KernelHandle kernel, int config, int device) {
  const Code code = CheckDevice(device);
  return code == Code::kSuccess ? FuncSetCacheConfig(As<FunctionHandle>(kernel), config) : code;
}

}  // namespace gpushared::drop_in
