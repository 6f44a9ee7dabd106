// SPDX-License-Identifier: Apache-2.0
// Memory, modules and launches.

#include <algorithm>
#include <chrono>
#include <cstring>
#include <span>
#include <string>

#include "server/device/cpu/executor/code.h"
#include "tests/support/fake_cuda/entry_points.h"
#include "tests/support/fake_cuda/graphs.h"
#include "tests/support/fake_cuda/modules.h"
#include "tests/support/fake_cuda/world.h"

namespace gpushared::device::cuda {

using testing::fake_cuda::Call;
using testing::fake_cuda::CheckLaunch;
using testing::fake_cuda::FakeFunction;
using testing::fake_cuda::FakeModule;
using testing::fake_cuda::LaunchShape;
using testing::fake_cuda::LoadFunction;
using testing::fake_cuda::LoadsLazily;
using testing::fake_cuda::Lock;
using testing::fake_cuda::MakeLaunch;
using testing::fake_cuda::Needs;
using testing::fake_cuda::Number;
using testing::fake_cuda::Work;
using testing::fake_cuda::World;

namespace {

// Reports a failed release as a mistake of the caller, and returns `code`.
Code Returned(World& world, const char* name, Code code) {
  if (code != Code::kSuccess) {
    world.Mistake(std::string(name) + ": returns what is not there (code " +
                  std::to_string(static_cast<int>(code)) + ")");
  }
  return code;
}

// Spends the time that the bytes add to the call's own.
void SpendOnBytes(const World& world, const char* name, std::uint64_t bytes) {
  if (!world.settings.costs) return;
  World::Spend(std::chrono::nanoseconds(world.settings.costs->OfBytes(name, bytes)));
}

// Returns the size of host memory that the driver allocated or registered.
std::uint64_t HostBytes(const World& world, const void* address) {
  const auto found = world.memory.hosts.find(Number(address));
  return found == world.memory.hosts.end() ? 0 : found->second.bytes;
}

void CheckUnused(World& world, const char* name, DeviceAddress address, std::uint64_t bytes) {
  if (const Work* work = world.PendingUse(address, bytes); work != nullptr && !world.sticky) {
    world.Mistake(std::string(name) + ": takes memory away that a pending " + work->call + " uses");
  }
}

Code OfFunction(const char* name, Function handle, auto&& body) {
  return Call(name, Needs::kContext, Number(handle), [&](World& world, Lock&) {
    const auto function = world.Get(world.functions, Number(handle), name);
    return function == nullptr ? Code::kInvalidHandle : body(world, function);
  });
}

Code OfModule(const char* name, Module handle, auto&& body) {
  return Call(name, Needs::kContext, Number(handle), [&](World& world, Lock&) {
    const auto module = world.Get(world.modules, Number(handle), name);
    return module == nullptr ? Code::kInvalidHandle : body(world, *module);
  });
}

bool IsHere(const AllocationProperties* properties) {
  return properties != nullptr && properties->type == AllocationType::kPinned &&
         properties->location.type == LocationType::kDevice;
}

// Returns a launch's attributes, such as "cluster 2x1x1" or "cooperative"; empty for a plain
// launch.
std::string GetAttributes(const LaunchConfig& config) {
  std::string text;
  for (unsigned i = 0; i < config.attribute_count; ++i) {
    const LaunchAttribute& attribute = config.attributes[i];
    if (!text.empty()) text += " ";
    if (attribute.id == LaunchAttributeId::kClusterDimension) {
      const auto& cluster = attribute.value.cluster;
      text += "cluster " + std::to_string(cluster.x) + "x" + std::to_string(cluster.y) + "x" +
              std::to_string(cluster.z);
    } else if (attribute.id == LaunchAttributeId::kCooperative) {
      text += attribute.value.cooperative != 0 ? "cooperative" : "";
    }
  }
  return text;
}

int BlocksPerMultiprocessor(const World& world, unsigned threads) {
  constexpr int kMost = 32;
  const int room =
      world.settings.attributes.at(static_cast<int>(DeviceAttribute::kThreadsPerMultiprocessorMax));
  return std::min(kMost, room / static_cast<int>(threads));
}

// Returns how many blocks of the launch the context's multiprocessors can run at once.
std::uint64_t BlocksAtOnce(World& world, std::uintptr_t of_context, const LaunchConfig& config) {
  const auto context = world.contexts.Find(of_context);
  const unsigned multiprocessors = context != nullptr && context->green
                                       ? context->multiprocessors
                                       : static_cast<unsigned>(world.settings.attributes.at(
                                             static_cast<int>(DeviceAttribute::kMultiprocessors)));
  const unsigned threads = std::max(1U, config.block_x * config.block_y * config.block_z);
  return std::uint64_t{multiprocessors} *
         static_cast<unsigned>(BlocksPerMultiprocessor(world, threads));
}

bool IsCooperative(const LaunchConfig& config) {
  return std::ranges::any_of(
      std::span(config.attributes, config.attribute_count), [](const LaunchAttribute& attribute) {
        return attribute.id == LaunchAttributeId::kCooperative && attribute.value.cooperative != 0;
      });
}

Code Launch(const char* name, Function handle, const LaunchConfig& config, void** parameters,
            void** extra) {
  return OfFunction(name, handle, [&](World& world, const auto& function) {
    if (config.stream == nullptr) {
      world.Mistake(std::string(name) + ": on the default stream");
      return Code::kInvalidHandle;
    }
    const auto stream = world.Get(world.streams, Number(config.stream), name);
    if (stream == nullptr) return Code::kInvalidHandle;
    for (unsigned i = 0; i < config.attribute_count; ++i) {
      const LaunchAttribute& attribute = config.attributes[i];
      const auto& cluster = attribute.value.cluster;
      if (attribute.id == LaunchAttributeId::kClusterDimension &&
          (cluster.x == 0 || cluster.y == 0 || cluster.z == 0 || config.grid_x % cluster.x != 0 ||
           config.grid_y % cluster.y != 0 || config.grid_z % cluster.z != 0)) {
        return Code::kInvalidClusterSize;
      }
    }
    const std::uint64_t blocks = std::uint64_t{config.grid_x} * config.grid_y * config.grid_z;
    const bool is_cooperative = IsCooperative(config);
    if (is_cooperative && blocks > BlocksAtOnce(world, stream->context, config)) {
      return Code::kCooperativeLaunchTooLarge;
    }
    world.last_attributes = GetAttributes(config);
    const LaunchShape shape = {
        .grid = {config.grid_x, config.grid_y, config.grid_z},
        .block = {config.block_x, config.block_y, config.block_z},
        .dynamic_shared_bytes = config.shared_bytes,
        .is_cooperative = is_cooperative,
    };
    std::vector<std::byte> gathered;
    const Code code = CheckLaunch(world, *function, shape, {parameters, extra}, name, gathered);
    if (code != Code::kSuccess) return code;
    world.Submit(*stream, MakeLaunch(world, function, shape, std::move(gathered), name));
    return code;
  });
}

}  // namespace

extern "C" {

// ---- plain memory

Code cuMemAlloc_v2(DeviceAddress* address, std::size_t bytes) {
  return Call("cuMemAlloc", Needs::kContext, 0,
              [&](World& world, Lock&) { return world.memory.Allocate(bytes, address); });
}

Code cuMemFree_v2(DeviceAddress address) {
  return Call("cuMemFree", Needs::kContext, address, [&](World& world, Lock&) {
    CheckUnused(world, "cuMemFree", address, 1);
    return Returned(world, "cuMemFree", world.memory.Free(address));
  });
}

Code cuMemHostAlloc(void** address, std::size_t bytes, unsigned) {
  return Call("cuMemHostAlloc", Needs::kContext, 0, [&](World& world, Lock&) {
    SpendOnBytes(world, "cuMemHostAlloc", bytes);
    return world.memory.AllocateHost(bytes, address);
  });
}

Code cuMemFreeHost(void* address) {
  return Call("cuMemFreeHost", Needs::kContext, Number(address), [&](World& world, Lock&) {
    CheckUnused(world, "cuMemFreeHost", Number(address), 1);
    SpendOnBytes(world, "cuMemFreeHost", HostBytes(world, address));
    return Returned(world, "cuMemFreeHost", world.memory.FreeHost(address));
  });
}

Code cuMemHostGetDevicePointer_v2(DeviceAddress* address, void* host, unsigned) {
  constexpr const char* kName = "cuMemHostGetDevicePointer";
  return Call(kName, Needs::kContext, Number(host), [&](World& world, Lock&) {
    if (!world.memory.Pinned(host, 1)) return Code::kInvalidValue;
    *address = Number(host);
    return Code::kSuccess;
  });
}

Code cuMemHostRegister_v2(void* host, std::size_t bytes, unsigned flags) {
  return Call("cuMemHostRegister", Needs::kContext, Number(host), [&](World& world, Lock&) {
    constexpr unsigned kKnown = kHostPortable | kHostDeviceMap | kHostRegisterReadOnly;
    if ((flags & ~kKnown) != 0) return Code::kInvalidValue;
    SpendOnBytes(world, "cuMemHostRegister", bytes);
    return world.memory.Register(host, bytes);
  });
}

Code cuMemHostUnregister(void* host) {
  return Call("cuMemHostUnregister", Needs::kContext, Number(host), [&](World& world, Lock&) {
    const std::uint64_t bytes = HostBytes(world, host);
    if (bytes > 0) CheckUnused(world, "cuMemHostUnregister", Number(host), bytes);
    SpendOnBytes(world, "cuMemHostUnregister", bytes);
    return Returned(world, "cuMemHostUnregister", world.memory.Unregister(host));
  });
}

// ---- virtual memory

Code cuMemGetAllocationGranularity(std::size_t* bytes, const AllocationProperties* properties,
                                   Granularity) {
  return Call("cuMemGetAllocationGranularity", Needs::kContext, 0, [&](World&, Lock&) {
    if (!IsHere(properties)) return Code::kInvalidValue;
    *bytes = testing::fake_cuda::kGranule;
    return Code::kSuccess;
  });
}

Code cuMemAddressReserve(DeviceAddress* address, std::size_t bytes, std::size_t alignment,
                         DeviceAddress, unsigned long long flags) {
  return Call("cuMemAddressReserve", Needs::kContext, 0, [&](World& world, Lock&) {
    return flags != 0 ? Code::kInvalidValue : world.memory.Reserve(bytes, alignment, address);
  });
}

Code cuMemAddressFree(DeviceAddress address, std::size_t bytes) {
  return Call("cuMemAddressFree", Needs::kContext, address, [&](World& world, Lock&) {
    return Returned(world, "cuMemAddressFree", world.memory.FreeReservation(address, bytes));
  });
}

Code cuMemCreate(MemoryHandle* handle, std::size_t bytes, const AllocationProperties* properties,
                 unsigned long long flags) {
  return Call("cuMemCreate", Needs::kContext, 0, [&](World& world, Lock&) {
    if (!IsHere(properties) || flags != 0) return Code::kInvalidValue;
    return world.memory.Create(bytes, handle);
  });
}

Code cuMemRelease(MemoryHandle handle) {
  return Call("cuMemRelease", Needs::kContext, handle, [&](World& world, Lock&) {
    return Returned(world, "cuMemRelease", world.memory.Release(handle));
  });
}

Code cuMemMap(DeviceAddress address, std::size_t bytes, std::size_t offset, MemoryHandle handle,
              unsigned long long flags) {
  return Call("cuMemMap", Needs::kContext, handle, [&](World& world, Lock&) {
    return flags != 0 ? Code::kInvalidValue : world.memory.Map(address, bytes, offset, handle);
  });
}

Code cuMemUnmap(DeviceAddress address, std::size_t bytes) {
  return Call("cuMemUnmap", Needs::kContext, address, [&](World& world, Lock&) {
    CheckUnused(world, "cuMemUnmap", address, bytes);
    return Returned(world, "cuMemUnmap", world.memory.Unmap(address, bytes));
  });
}

Code cuMemSetAccess(DeviceAddress address, std::size_t bytes, const AccessDescription* access,
                    std::size_t count) {
  return Call("cuMemSetAccess", Needs::kContext, address, [&](World& world, Lock&) {
    if (count != 1 || access->location.type != LocationType::kDevice) return Code::kInvalidValue;
    return world.memory.SetAccess(address, bytes, access->access);
  });
}

// ---- modules

Code cuModuleLoadDataEx(Module* module, const void* image, unsigned options, JitOption* names,
                        void** values) {
  return Call("cuModuleLoadDataEx", Needs::kContext, 0, [&](World& world, Lock&) {
    std::uintptr_t handle = 0;
    std::string log;
    const Code code = testing::fake_cuda::LoadModule(world, image, &handle, &log);
    char* buffer = nullptr;
    std::size_t bytes = 0;
    for (unsigned i = 0; i < options; ++i) {
      if (names[i] == JitOption::kErrorLogBuffer) buffer = static_cast<char*>(values[i]);
      if (names[i] == JitOption::kErrorLogBytes) bytes = Number(values[i]);
    }
    if (buffer != nullptr && bytes > 0) {
      const std::size_t used = std::min(log.size(), bytes - 1);
      std::memcpy(buffer, log.data(), used);
      buffer[used] = 0;
    }
    *module = reinterpret_cast<Module>(handle);
    return code;
  });
}

Code cuModuleUnload(Module handle) {
  return OfModule("cuModuleUnload", handle, [&](World& world, FakeModule& module) {
    if (const Work* work = world.PendingModule(Number(handle)); work != nullptr && !world.sticky) {
      world.Mistake("cuModuleUnload: a kernel of the module is pending");
    }
    if (testing::fake_cuda::HasKernelsOf(world, Number(handle)) && !world.sticky) {
      world.Mistake("cuModuleUnload: a graph has a kernel of the module");
    }
    FreeVariables(world, module);
    world.modules.Remove(Number(handle));
    return Code::kSuccess;
  });
}

Code cuModuleGetFunction(Function* function, Module handle, const char* name) {
  return OfModule("cuModuleGetFunction", handle, [&](World& world, FakeModule& module) {
    for (const std::uintptr_t candidate : module.functions) {
      if (world.functions.Find(candidate)->info().name == name) {
        if (!LoadFunction(world, *world.functions.Find(candidate))) return Code::kOutOfMemory;
        *function = reinterpret_cast<Function>(candidate);
        return Code::kSuccess;
      }
    }
    return Code::kNotFound;
  });
}

Code cuModuleGetGlobal_v2(DeviceAddress* address, std::size_t* bytes, Module handle,
                          const char* name) {
  return OfModule("cuModuleGetGlobal", handle, [&](World&, FakeModule& module) {
    for (const auto& variable : module.layout.variables) {
      if (variable.name != name) continue;
      if (address != nullptr) *address = module.variables + variable.offset;
      if (bytes != nullptr) *bytes = variable.bytes;
      return Code::kSuccess;
    }
    return Code::kNotFound;
  });
}

Code cuModuleGetFunctionCount(unsigned* count, Module handle) {
  return OfModule("cuModuleGetFunctionCount", handle, [&](World&, FakeModule& module) {
    *count = static_cast<unsigned>(module.functions.size());
    return Code::kSuccess;
  });
}

Code cuModuleEnumerateFunctions(Function* functions, unsigned count, Module handle) {
  return OfModule("cuModuleEnumerateFunctions", handle, [&](World&, FakeModule& module) {
    if (functions == nullptr || count == 0) return Code::kInvalidValue;
    for (unsigned i = 0; i < count && i < module.functions.size(); ++i) {
      functions[i] = reinterpret_cast<Function>(module.functions[i]);
    }
    return Code::kSuccess;
  });
}

Code cuModuleGetLoadingMode(LoadingMode* mode) {
  return Call("cuModuleGetLoadingMode", Needs::kInit, 0, [&](World&, Lock&) {
    *mode = LoadsLazily() ? LoadingMode::kLazy : LoadingMode::kEager;
    return Code::kSuccess;
  });
}

// ---- functions and launches

Code cuFuncGetName(const char** name, Function handle) {
  return OfFunction("cuFuncGetName", handle, [&](World&, const auto& function) {
    *name = function->info().name.c_str();
    return Code::kSuccess;
  });
}

Code cuFuncLoad(Function handle) {
  return OfFunction("cuFuncLoad", handle, [](World& world, const auto& function) {
    return LoadFunction(world, *function) ? Code::kSuccess : Code::kOutOfMemory;
  });
}

Code cuFuncGetParamInfo(Function handle, std::size_t index, std::size_t* offset,
                        std::size_t* bytes) {
  return OfFunction("cuFuncGetParamInfo", handle, [&](World&, const auto& function) {
    if (index >= function->info().parameters.size()) return Code::kInvalidValue;
    *offset = function->info().parameters[index].offset;
    if (bytes != nullptr) *bytes = function->info().parameters[index].bytes;
    return Code::kSuccess;
  });
}

Code cuFuncGetAttribute(int* value, FunctionAttribute which, Function handle) {
  return OfFunction("cuFuncGetAttribute", handle, [&](World&, const auto& function) {
    const KernelInfo& info = function->info();
    // cuda.h names these three as requiring loaded code.
    const bool needs_code = which == FunctionAttribute::kThreadsPerBlockMax ||
                            which == FunctionAttribute::kConstantBytes ||
                            which == FunctionAttribute::kDynamicSharedBytesMax;
    if (needs_code && !function->is_loaded) return Code::kFunctionNotLoaded;
    switch (which) {
      case FunctionAttribute::kThreadsPerBlockMax:
        *value =
            info.threads_per_block_max == 0 ? 1024 : static_cast<int>(info.threads_per_block_max);
        break;
      case FunctionAttribute::kSharedBytes:
        *value = static_cast<int>(info.static_shared_bytes);
        break;
      case FunctionAttribute::kDynamicSharedBytesMax:
        *value = static_cast<int>(function->dynamic_shared_max);
        break;
      case FunctionAttribute::kLocalBytes:
        *value = static_cast<int>(function->program->code().local_bytes_per_thread);
        break;
      case FunctionAttribute::kConstantBytes:
        *value = static_cast<int>(info.constant_bytes);
        break;
      case FunctionAttribute::kRegisters:
        *value = static_cast<int>(info.registers);
        break;
      case FunctionAttribute::kPtxVersion:
        *value = static_cast<int>(info.ptx_version);
        break;
      case FunctionAttribute::kBinaryVersion:
        *value = static_cast<int>(info.binary_version);
        break;
      case FunctionAttribute::kClusterSizeMustBeSet:
      case FunctionAttribute::kNonPortableClusterSizeAllowed:
        *value = 0;
        break;
      default:
        return Code::kInvalidValue;
    }
    return Code::kSuccess;
  });
}

Code cuFuncSetAttribute(Function handle, FunctionAttribute which, int value) {
  return OfFunction("cuFuncSetAttribute", handle, [&](World& world, const auto& function) {
    if (which != FunctionAttribute::kDynamicSharedBytesMax) return Code::kSuccess;
    if (!function->is_loaded) return Code::kFunctionNotLoaded;
    const int opt_in =
        world.settings.attributes.at(static_cast<int>(DeviceAttribute::kSharedBytesPerBlockOptIn));
    const int fixed = static_cast<int>(function->info().static_shared_bytes);
    if (value < 0 || value + fixed > opt_in) return Code::kInvalidValue;
    function->dynamic_shared_max = static_cast<std::uint32_t>(value);
    return Code::kSuccess;
  });
}

Code cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Function handle, int threads,
                                                 std::size_t) {
  constexpr const char* kName = "cuOccupancyMaxActiveBlocksPerMultiprocessor";
  return OfFunction(kName, handle, [&](World& world, const auto& function) {
    if (!function->is_loaded) return Code::kFunctionNotLoaded;
    if (threads <= 0 || threads > 1024) return Code::kInvalidValue;
    *blocks = BlocksPerMultiprocessor(world, static_cast<unsigned>(threads));
    return Code::kSuccess;
  });
}

Code cuLaunchKernel(Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                    unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                    Stream stream, void** parameters, void** extra) {
  const LaunchConfig config = {.grid_x = grid_x,
                               .grid_y = grid_y,
                               .grid_z = grid_z,
                               .block_x = block_x,
                               .block_y = block_y,
                               .block_z = block_z,
                               .shared_bytes = shared_bytes,
                               .stream = stream};
  return Launch("cuLaunchKernel", function, config, parameters, extra);
}

Code cuLaunchKernelEx(const LaunchConfig* config, Function function, void** parameters,
                      void** extra) {
  return Launch("cuLaunchKernelEx", function, *config, parameters, extra);
}

}  // extern "C"
}  // namespace gpushared::device::cuda
