// SPDX-License-Identifier: Apache-2.0
// The driver, its devices and contexts, green contexts, and the lookup of calls.

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <string>

#include "common/cuda_driver/error_text.h"
#include "server/device/cuda/driver.h"
#include "tests/support/fake_cuda/entry_points.h"
#include "tests/support/fake_cuda/world.h"

namespace gpushared::device::cuda {

using testing::fake_cuda::Call;
using testing::fake_cuda::FakeContext;
using testing::fake_cuda::Gpu;
using testing::fake_cuda::Lock;
using testing::fake_cuda::Needs;
using testing::fake_cuda::Number;
using testing::fake_cuda::World;

namespace {

struct Exported {
  const char* name;
  int version;
  void* function;
};
const Exported kExported[] = {
#define FAKE_CUDA_ROW(name, suffix, version, feature, signature) \
  {"cu" #name, version, reinterpret_cast<void*>(&cu##name##suffix)},
    GPUSHARED_CUDA_SYMBOLS(FAKE_CUDA_ROW){"cuLibraryLoadData", 12000,
                                          reinterpret_cast<void*>(&cuLibraryLoadData)},
    {"cuLibraryGetKernel", 12000, reinterpret_cast<void*>(&cuLibraryGetKernel)},
    {"cuLibraryUnload", 12000, reinterpret_cast<void*>(&cuLibraryUnload)},
};

Code OfGpu(const char* name, DeviceNumber device, auto&& body) {
  return Call(name, Needs::kInit, 0, [&](World& world, Lock&) {
    Gpu* gpu = world.VisibleGpu(device);
    return gpu == nullptr ? Code::kInvalidDevice : body(world, *gpu);
  });
}

int ValueFor(const World& world, DeviceAttribute which) {
  const auto found = world.settings.attributes.find(static_cast<int>(which));
  return found == world.settings.attributes.end() ? 0 : found->second;
}

constexpr unsigned kSplitMultiple = 8;  // Compute capability 9.0.

}  // namespace

extern "C" {

Code cuGetProcAddress_v2(const char* symbol, void** function, int version, std::uint64_t,
                         ProcAddressResult* how) {
  return Call("cuGetProcAddress", Needs::kNothing, 0, [&](World& world, Lock&) {
    const auto* found = std::ranges::find_if(
        kExported, [&](const Exported& one) { return std::strcmp(one.name, symbol) == 0; });
    ProcAddressResult result = ProcAddressResult::kNotFound;
    if (found != std::end(kExported) && !world.settings.missing.contains(symbol) &&
        found->version <= world.settings.version) {
      result = version >= found->version ? ProcAddressResult::kFound
                                         : ProcAddressResult::kVersionNotSufficient;
    }
    if (result == ProcAddressResult::kFound && version != found->version) {
      world.Mistake("cuGetProcAddress: " + std::string(symbol) + " in the form of CUDA " +
                    VersionText(version) + ", declared is that of " + VersionText(found->version));
    }
    *function = result == ProcAddressResult::kFound ? found->function : nullptr;
    if (how != nullptr) *how = result;
    // Real drivers report a missing symbol only through `how` if the caller passes it.
    return result == ProcAddressResult::kFound || how != nullptr ? Code::kSuccess : Code::kNotFound;
  });
}

Code cuGetProcAddress(const char* symbol, void** function, int version, std::uint64_t flags) {
  return cuGetProcAddress_v2(symbol, function, version, flags, nullptr);
}

Code cuInit(unsigned flags) {
  return Call("cuInit", Needs::kNothing, 0, [&](World& world, Lock&) {
    if (flags != 0) return Code::kInvalidValue;
    if (world.Visible().empty()) return Code::kNoDevice;
    world.initialized = true;
    return Code::kSuccess;
  });
}

Code cuDriverGetVersion(int* version) {
  return Call("cuDriverGetVersion", Needs::kNothing, 0, [&](World& world, Lock&) {
    *version = world.settings.version;
    return Code::kSuccess;
  });
}

Code cuGetErrorName(Code code, const char** name) {
  return ReportText(code, &ErrorText::name, name);
}
Code cuGetErrorString(Code code, const char** text) {
  return ReportText(code, &ErrorText::text, text);
}

Code cuDeviceGetCount(int* count) {
  return Call("cuDeviceGetCount", Needs::kInit, 0, [&](World& world, Lock&) {
    *count = static_cast<int>(world.Visible().size());
    return Code::kSuccess;
  });
}

Code cuDeviceGet(DeviceNumber* device, int ordinal) {
  return OfGpu("cuDeviceGet", ordinal, [&](World&, Gpu&) {
    *device = ordinal;
    return Code::kSuccess;
  });
}

Code cuDeviceGetName(char* name, int bytes, DeviceNumber device) {
  return OfGpu("cuDeviceGetName", device, [&](World&, Gpu& gpu) {
    const bool instance = gpu.uuid.starts_with("MIG-");
    std::snprintf(name, static_cast<std::size_t>(bytes), "%s",
                  instance ? "NVIDIA Fake H200 MIG 1g.18gb" : "NVIDIA Fake H200");
    return Code::kSuccess;
  });
}

Code cuDeviceGetUuid_v2(Uuid* uuid, DeviceNumber device) {
  return OfGpu("cuDeviceGetUuid", device, [&](World&, Gpu& gpu) {
    std::string digits = gpu.uuid.substr(4);
    std::erase(digits, '-');
    for (std::size_t i = 0; i < sizeof uuid->bytes; ++i) {
      uuid->bytes[i] = static_cast<char>(std::stoi(digits.substr(2 * i, 2), nullptr, 16));
    }
    return Code::kSuccess;
  });
}

Code cuDeviceTotalMem_v2(std::size_t* bytes, DeviceNumber device) {
  return OfGpu("cuDeviceTotalMem", device, [&](World& world, Gpu&) {
    *bytes = world.settings.memory_bytes;
    return Code::kSuccess;
  });
}

Code cuDeviceGetAttribute(int* value, DeviceAttribute which, DeviceNumber device) {
  return OfGpu("cuDeviceGetAttribute", device, [&](World& world, Gpu&) {
    const auto fails = world.settings.attribute_fails.find(static_cast<int>(which));
    if (fails != world.settings.attribute_fails.end()) return fails->second;
    if (!world.settings.attributes.contains(static_cast<int>(which))) return Code::kInvalidValue;
    *value = ValueFor(world, which);
    return Code::kSuccess;
  });
}

Code cuDeviceGetPCIBusId(char* text, int bytes, DeviceNumber device) {
  return OfGpu("cuDeviceGetPCIBusId", device, [&](World&, Gpu& gpu) {
    std::snprintf(text, static_cast<std::size_t>(bytes), "0000:%02x:00.0", 0x10 + gpu.number);
    return Code::kSuccess;
  });
}

// ---- contexts

Code cuDevicePrimaryCtxRetain(Context* context, DeviceNumber device) {
  return OfGpu("cuDevicePrimaryCtxRetain", device, [&](World& world, Gpu& gpu) {
    if (world.sticky) return *world.sticky;
    const auto mode = static_cast<ComputeMode>(ValueFor(world, DeviceAttribute::kComputeMode));
    if (mode == ComputeMode::kProhibited) return Code::kDeviceUnavailable;
    if (gpu.retained++ == 0) {
      gpu.primary = world.contexts.Add(std::make_shared<FakeContext>(FakeContext{.gpu = &gpu}));
    }
    *context = reinterpret_cast<Context>(gpu.primary);
    return Code::kSuccess;
  });
}

Code cuDevicePrimaryCtxRelease_v2(DeviceNumber device) {
  return OfGpu("cuDevicePrimaryCtxRelease", device, [&](World& world, Gpu& gpu) {
    if (gpu.retained == 0) {
      world.Mistake("cuDevicePrimaryCtxRelease: the context is not retained");
      return Code::kInvalidContext;
    }
    if (--gpu.retained == 0) {
      world.EndContext(gpu.primary, "cuDevicePrimaryCtxRelease");
      gpu.primary = 0;
    }
    return Code::kSuccess;
  });
}

Code cuDevicePrimaryCtxSetFlags_v2(DeviceNumber device, unsigned flags) {
  return OfGpu("cuDevicePrimaryCtxSetFlags", device, [&](World&, Gpu& gpu) {
    gpu.flags = flags;
    return Code::kSuccess;
  });
}

Code cuDevicePrimaryCtxGetState(DeviceNumber device, unsigned* flags, int* active) {
  return OfGpu("cuDevicePrimaryCtxGetState", device, [&](World&, Gpu& gpu) {
    *flags = gpu.flags;
    *active = gpu.retained > 0;
    return Code::kSuccess;
  });
}

Code cuCtxSetCurrent(Context context) {
  return Call("cuCtxSetCurrent", Needs::kInit, Number(context), [&](World& world, Lock&) {
    if (context != nullptr &&
        world.Get(world.contexts, Number(context), "cuCtxSetCurrent") == nullptr) {
      return Code::kInvalidContext;
    }
    World::current = Number(context);
    return Code::kSuccess;
  });
}

Code cuCtxGetCurrent(Context* context) {
  return Call("cuCtxGetCurrent", Needs::kInit, 0, [&](World&, Lock&) {
    *context = reinterpret_cast<Context>(World::current);
    return Code::kSuccess;
  });
}

Code cuCtxSynchronize() {
  return Call("cuCtxSynchronize", Needs::kContext, 0, [&](World& world, Lock& lock) {
    Gpu* gpu = world.CurrentContext()->gpu;
    world.Await(lock, [&] {
      auto last = std::chrono::steady_clock::time_point();
      for (const auto& stream : gpu->streams) last = std::max(last, world.SeenAt(*stream));
      return last;
    });
    return world.sticky.value_or(Code::kSuccess);
  });
}

Code cuCtxSetLimit(Limit limit, std::size_t value) {
  return Call("cuCtxSetLimit", Needs::kContext, 0, [&](World& world, Lock&) {
    if (limit > Limit::kHeapBytes) return Code::kUnsupportedLimit;
    world.limits.at(static_cast<std::size_t>(limit)) = value;
    const bool takes = limit == Limit::kStackBytes &&
                       world.settings.local_memory == testing::fake_cuda::LocalMemory::kAtOnce;
    return !takes || world.TakeLocalMemory() ? Code::kSuccess : Code::kOutOfMemory;
  });
}

Code cuCtxGetLimit(std::size_t* value, Limit limit) {
  return Call("cuCtxGetLimit", Needs::kContext, 0, [&](World& world, Lock&) {
    if (limit > Limit::kHeapBytes) return Code::kUnsupportedLimit;
    *value = world.limits.at(static_cast<std::size_t>(limit));
    return Code::kSuccess;
  });
}

Code cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  return Call("cuCtxGetStreamPriorityRange", Needs::kContext, 0, [&](World& world, Lock&) {
    const bool has = ValueFor(world, DeviceAttribute::kStreamPriorities) != 0;
    *least = 0;
    *greatest = has ? -5 : 0;
    return Code::kSuccess;
  });
}

Code cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  return Call("cuMemGetInfo", Needs::kContext, 0, [&](World& world, Lock&) {
    *total = world.settings.memory_bytes;
    *free = *total - world.memory.used();
    return Code::kSuccess;
  });
}

// ---- green contexts

Code cuDeviceGetDevResource(DeviceNumber device, Resource* resource, ResourceType type) {
  return OfGpu("cuDeviceGetDevResource", device, [&](World& world, Gpu&) {
    if (type != ResourceType::kMultiprocessors) return Code::kInvalidResourceType;
    *resource = {};
    resource->type = type;
    resource->sm = {.multiprocessors =
                        static_cast<unsigned>(ValueFor(world, DeviceAttribute::kMultiprocessors)),
                    .partition_least = kSplitMultiple,
                    .coscheduled_multiple = kSplitMultiple};
    return Code::kSuccess;
  });
}

Code cuDevSmResourceSplitByCount(Resource* groups, unsigned* count, const Resource* whole,
                                 Resource* rest, unsigned, unsigned least) {
  return Call("cuDevSmResourceSplitByCount", Needs::kInit, 0, [&](World&, Lock&) {
    if (whole->type != ResourceType::kMultiprocessors) return Code::kInvalidResourceType;
    if (least > whole->sm.multiprocessors) return Code::kInvalidValue;
    const unsigned each =
        std::max(1U, (least + kSplitMultiple - 1) / kSplitMultiple) * kSplitMultiple;
    const unsigned possible = whole->sm.multiprocessors / each;
    if (possible == 0) return Code::kInvalidResourceConfiguration;
    const unsigned made = groups == nullptr ? possible : std::min(possible, *count);
    *count = made;
    if (groups == nullptr) return Code::kSuccess;
    for (unsigned i = 0; i < made; ++i) {
      groups[i] = *whole;
      groups[i].sm.multiprocessors = each;
    }
    if (rest != nullptr) {
      *rest = *whole;
      rest->sm.multiprocessors -= made * each;
    }
    return Code::kSuccess;
  });
}

Code cuDevResourceGenerateDesc(ResourceDescription* description, Resource* resources,
                               unsigned count) {
  return Call("cuDevResourceGenerateDesc", Needs::kInit, 0, [&](World&, Lock&) {
    unsigned sum = 0;
    for (unsigned i = 0; i < count; ++i) sum += resources[i].sm.multiprocessors;
    if (sum == 0) return Code::kInvalidResourceConfiguration;
    *description = reinterpret_cast<ResourceDescription>(std::uintptr_t{sum});
    return Code::kSuccess;
  });
}

Code cuGreenCtxCreate(GreenContext* context, ResourceDescription description, DeviceNumber device,
                      unsigned flags) {
  return OfGpu("cuGreenCtxCreate", device, [&](World& world, Gpu& gpu) {
    if ((flags & kGreenContextDefaultStream) == 0) return Code::kInvalidValue;
    // A green context retains the primary context.
    if (gpu.retained++ == 0) {
      gpu.primary = world.contexts.Add(std::make_shared<FakeContext>(FakeContext{.gpu = &gpu}));
    }
    const auto made = std::make_shared<FakeContext>(FakeContext{
        .gpu = &gpu, .green = true, .multiprocessors = static_cast<unsigned>(Number(description))});
    *context = reinterpret_cast<GreenContext>(world.contexts.Add(made));
    return Code::kSuccess;
  });
}

Code cuGreenCtxDestroy(GreenContext context) {
  return Call("cuGreenCtxDestroy", Needs::kInit, Number(context), [&](World& world, Lock&) {
    const auto found = world.Get(world.contexts, Number(context), "cuGreenCtxDestroy");
    if (found == nullptr || !found->green) return Code::kInvalidContext;
    world.EndContext(Number(context), "cuGreenCtxDestroy");
    if (--found->gpu->retained == 0) world.EndContext(found->gpu->primary, "cuGreenCtxDestroy");
    return Code::kSuccess;
  });
}

Code cuCtxFromGreenCtx(Context* context, GreenContext green) {
  return Call("cuCtxFromGreenCtx", Needs::kInit, Number(green), [&](World& world, Lock&) {
    if (world.Get(world.contexts, Number(green), "cuCtxFromGreenCtx") == nullptr) {
      return Code::kInvalidContext;
    }
    *context = reinterpret_cast<Context>(green);
    return Code::kSuccess;
  });
}

}  // extern "C"
}  // namespace gpushared::device::cuda
