// SPDX-License-Identifier: Apache-2.0
// Modules and kernels of the fake driver: PTX, decoded and run by the cpu executor.

#ifndef GPUSHARED_TESTS_SUPPORT_FAKE_CUDA_MODULES_H_
#define GPUSHARED_TESTS_SUPPORT_FAKE_CUDA_MODULES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "server/device/cpu/executor/program.h"
#include "server/device/device.h"
#include "tests/support/fake_cuda/world.h"

namespace gpushared::testing::fake_cuda {

inline constexpr std::uint32_t kSharedBytesWithoutOptIn = 48 * 1024;

struct FakeModule {
  std::uintptr_t context = 0;
  std::uint64_t variables = 0;  // Address of its variables; 0 if it has none.
  device::executor::ModuleLayout layout;
  std::unique_ptr<device::executor::ModuleImage> image;
  std::vector<std::uint64_t> code;  // Memory of loaded kernels.
  std::vector<std::uintptr_t> functions;
};

struct FakeFunction {
  std::uintptr_t module_handle = 0;
  std::shared_ptr<FakeModule> module;
  const device::executor::Program* program = nullptr;
  std::uint32_t dynamic_shared_max = 0;  // The function attribute's value.
  bool is_loaded = false;
  const device::KernelInfo& info() const { return program->info(); }
};

struct LaunchShape {
  device::Dim3 grid, block;
  std::uint32_t dynamic_shared_bytes = 0;
  bool is_cooperative = false;
};

// Returns whether modules are loaded without their kernels: unless CUDA_MODULE_LOADING is EAGER.
bool LoadsLazily();
// Loads the kernel's code unless it is loaded: spends the time and takes the memory. Returns false
// if memory is exhausted.
bool LoadFunction(World& world, FakeFunction& function);

// Loads PTX text or a fatbin. `log` receives the messages of a compiler.
device::cuda::Code LoadModule(World& world, const void* image, std::uintptr_t* handle,
                              std::string* log);
// Frees the module's functions and variables; its handle remains valid.
void FreeVariables(World& world, const FakeModule& module);

// The arguments of a launch, in one of the two forms of cuLaunchKernel.
struct Arguments {
  void** parameters = nullptr;
  void** extra = nullptr;
};
// Checks the launch like a driver. `gathered` receives its arguments.
device::cuda::Code CheckLaunch(World& world, const FakeFunction& function, const LaunchShape& shape,
                               const Arguments& arguments, const char* call,
                               std::vector<std::byte>& gathered);
Work MakeLaunch(World& world, const std::shared_ptr<FakeFunction>& function,
                const LaunchShape& shape, std::vector<std::byte> parameters, const char* call);

}  // namespace gpushared::testing::fake_cuda

#endif  // GPUSHARED_TESTS_SUPPORT_FAKE_CUDA_MODULES_H_
