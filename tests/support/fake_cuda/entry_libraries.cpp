// SPDX-License-Identifier: Apache-2.0
// Libraries: modules that belong to no context, and whose kernels are launched like functions. Here
// they are modules of the context that is current when they are loaded.

#include <string>

#include "tests/support/fake_cuda/entry_points.h"
#include "tests/support/fake_cuda/modules.h"
#include "tests/support/fake_cuda/world.h"

namespace gpushared::device::cuda {

using testing::fake_cuda::Call;
using testing::fake_cuda::Lock;
using testing::fake_cuda::Needs;
using testing::fake_cuda::Number;
using testing::fake_cuda::World;

extern "C" {

Code cuLibraryLoadData(Library* library, const void* code, JitOption*, void**, unsigned, int*,
                       void**, unsigned) {
  return Call("cuLibraryLoadData", Needs::kContext, 0, [&](World& world, Lock&) {
    std::uintptr_t handle = 0;
    std::string log;
    const Code loaded = testing::fake_cuda::LoadModule(world, code, &handle, &log);
    *library = reinterpret_cast<Library>(handle);
    return loaded;
  });
}

Code cuLibraryGetKernel(KernelHandle* kernel, Library handle, const char* name) {
  constexpr const char* kName = "cuLibraryGetKernel";
  return Call(kName, Needs::kContext, Number(handle), [&](World& world, Lock&) {
    const auto library = world.Get(world.modules, Number(handle), kName);
    if (library == nullptr) return Code::kInvalidHandle;
    for (const std::uintptr_t candidate : library->functions) {
      const auto function = world.functions.Find(candidate);
      if (function->info().name != name) continue;
      if (!testing::fake_cuda::LoadFunction(world, *function)) return Code::kOutOfMemory;
      *kernel = reinterpret_cast<KernelHandle>(candidate);
      return Code::kSuccess;
    }
    return Code::kNotFound;
  });
}

Code cuLibraryUnload(Library handle) { return cuModuleUnload(reinterpret_cast<Module>(handle)); }

}  // extern "C"
}  // namespace gpushared::device::cuda
