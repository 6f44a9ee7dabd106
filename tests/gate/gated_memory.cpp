// SPDX-License-Identifier: Apache-2.0
#include "tests/gate/gated_memory.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include <cuda.h>

#include "tests/gate/shared_gpu.h"

// CUDA 13's header no longer declares this function, but every driver exports it.
extern "C" CUresult cuCtxCreate_v2(CUcontext* context, unsigned flags, CUdevice device);

namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;
// Pools of the modelled driver grow in such steps.
constexpr std::size_t kStep = 2 * kMiB;
// An allocation that the modelled driver fails, and its code.
constexpr std::size_t kFailing = kMiB + shared_gpu::kFailing;
constexpr CUresult kFailure = CUDA_ERROR_NOT_PERMITTED;

template <typename Value, typename Wanted>
void Expect(Value value, Wanted wanted, const char* what, const char* where = "") {
  if (value == static_cast<Value>(wanted)) return;
  std::printf("{\"failed\": \"%s %s\", \"value\": %lld, \"wanted\": %lld}\n", what, where,
              static_cast<long long>(value), static_cast<long long>(wanted));
  std::exit(1);
}
#define EXPECT_OK(...) Expect(__VA_ARGS__, CUDA_SUCCESS, #__VA_ARGS__)

std::size_t FreeBytes() {
  std::size_t free_bytes = 0, total_bytes = 0;
  EXPECT_OK(cuMemGetInfo(&free_bytes, &total_bytes));
  return free_bytes;
}
int AskDriver(shared_gpu::Attribute attribute) {
  int value = 0;
  EXPECT_OK(cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(attribute), 0));
  return value;
}

CUmemAllocationProp PhysicalAt(CUmemLocationType type) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = type;
  return properties;
}
CUresult CreatePhysical(CUmemGenericAllocationHandle* handle, std::size_t bytes,
                        CUmemLocationType type = CU_MEM_LOCATION_TYPE_DEVICE) {
  const CUmemAllocationProp properties = PhysicalAt(type);
  return cuMemCreate(handle, bytes, &properties, 0);
}
CUmemoryPool CreatePool(CUmemLocationType type = CU_MEM_LOCATION_TYPE_DEVICE) {
  CUmemPoolProps properties = {};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = type;
  CUmemoryPool pool = nullptr;
  EXPECT_OK(cuMemPoolCreate(&pool, &properties));
  return pool;
}

// One way to allocate memory.
struct Way {
  const char* name;
  std::function<CUresult(CUdeviceptr* made, std::size_t bytes)> allocate;
  std::function<CUresult(CUdeviceptr made)> free;
  CUmemoryPool pool = nullptr;
};

// Returns the number of rows of an image of this size: several if the size is a multiple of 1 MiB.
std::size_t Rows(std::size_t bytes) { return bytes % kMiB == 0 ? 1024 : 1; }

std::vector<Way> GetWays() {
  CUmemoryPool default_pool = nullptr;
  EXPECT_OK(cuDeviceGetMemPool(&default_pool, 0));
  const CUmemoryPool own_pool = CreatePool();
  const auto free = [](CUdeviceptr made) { return cuMemFree(made); };
  const auto free_async = [](CUdeviceptr made) { return cuMemFreeAsync(made, nullptr); };
  const auto free_array = [](CUdeviceptr made) {
    return cuArrayDestroy(reinterpret_cast<CUarray>(made));
  };
  return {
      {"cuMemAlloc", [](CUdeviceptr* made, std::size_t bytes) { return cuMemAlloc(made, bytes); },
       free},
      {"cuMemAllocManaged",
       [](CUdeviceptr* made, std::size_t bytes) {
         return cuMemAllocManaged(made, bytes, CU_MEM_ATTACH_GLOBAL);
       },
       free},
      {"cuMemAllocPitch",
       [](CUdeviceptr* made, std::size_t bytes) {
         std::size_t pitch = 0;
         return cuMemAllocPitch(made, &pitch, bytes / Rows(bytes), Rows(bytes), 4);
       },
       free},
      {"cuArrayCreate",
       [](CUdeviceptr* made, std::size_t bytes) {
         CUDA_ARRAY_DESCRIPTOR shape = {};
         shape.Width = bytes / Rows(bytes) / sizeof(float);
         shape.Height = Rows(bytes);
         shape.Format = CU_AD_FORMAT_FLOAT;
         shape.NumChannels = 1;
         return cuArrayCreate(reinterpret_cast<CUarray*>(made), &shape);
       },
       free_array},
      {"cuArray3DCreate",
       [](CUdeviceptr* made, std::size_t bytes) {
         CUDA_ARRAY3D_DESCRIPTOR shape = {};
         shape.Width = bytes / Rows(bytes) / sizeof(float);
         shape.Height = 1;
         shape.Depth = Rows(bytes);
         shape.Format = CU_AD_FORMAT_FLOAT;
         shape.NumChannels = 1;
         return cuArray3DCreate(reinterpret_cast<CUarray*>(made), &shape);
       },
       free_array},
      {"cuMemCreate",
       [](CUdeviceptr* made, std::size_t bytes) {
         return CreatePhysical(reinterpret_cast<CUmemGenericAllocationHandle*>(made), bytes);
       },
       [](CUdeviceptr made) { return cuMemRelease(made); }},
      {"cuMemAllocAsync",
       [](CUdeviceptr* made, std::size_t bytes) { return cuMemAllocAsync(made, bytes, nullptr); },
       free_async, default_pool},
      {"cuMemAllocFromPoolAsync",
       [own_pool](CUdeviceptr* made, std::size_t bytes) {
         return cuMemAllocFromPoolAsync(made, bytes, own_pool, nullptr);
       },
       free_async, own_pool},
  };
}

class Case {
 public:
  explicit Case(std::size_t bytes) : limit(bytes) {
    EXPECT_OK(cuInit(0));
    EXPECT_OK(cuCtxCreate_v2(&context, 0, 0));
  }
  const std::size_t limit;
  CUcontext context = nullptr;
};

void Limit(const Case& the) {
  for (const Way& way : GetWays()) {
    Expect(FreeBytes(), the.limit, "free memory before", way.name);
    std::vector<CUdeviceptr> made(8);
    for (std::size_t i = 0; i < made.size(); ++i) {
      Expect(way.allocate(&made[i], the.limit / 8), CUDA_SUCCESS, "within the limit", way.name);
      Expect(FreeBytes(), the.limit - (i + 1) * the.limit / 8, "free memory", way.name);
    }
    CUdeviceptr one_more = 42;
    const int calls = AskDriver(shared_gpu::kAllocationCalls);
    Expect(way.allocate(&one_more, kStep), CUDA_ERROR_OUT_OF_MEMORY, "above the limit", way.name);
    Expect(AskDriver(shared_gpu::kAllocationCalls), calls, "calls of the driver", way.name);
    Expect(one_more, 42, "output of a rejected call", way.name);
    // cuMemAlloc cannot exceed the limit, either.
    Expect(cuMemAlloc(&one_more, 1), CUDA_ERROR_OUT_OF_MEMORY, "above the limit after", way.name);

    Expect(way.free(made[3]), CUDA_SUCCESS, "free", way.name);
    Expect(way.allocate(&made[3], the.limit / 8), CUDA_SUCCESS, "allocate again", way.name);
    Expect(way.allocate(&one_more, kStep), CUDA_ERROR_OUT_OF_MEMORY, "reject again", way.name);
    for (const CUdeviceptr each : made) Expect(way.free(each), CUDA_SUCCESS, "free", way.name);
    if (way.pool != nullptr) EXPECT_OK(cuMemPoolTrimTo(way.pool, 0));
  }
  Expect(FreeBytes(), the.limit, "free memory at the end");
  Expect(AskDriver(shared_gpu::kPeakKiB), the.limit >> 10, "most memory ever allocated");
}

void Failures(const Case& the) {
  for (const Way& way : GetWays()) {
    CUdeviceptr made = 42;
    for (std::size_t bytes = 0; bytes < 2 * the.limit; bytes += kMiB) {
      Expect(way.allocate(&made, kFailing), kFailure, "failing", way.name);
    }
    Expect(made, 42, "output of a failing call", way.name);
    Expect(FreeBytes(), the.limit, "free memory", way.name);
    Expect(way.allocate(&made, the.limit), CUDA_SUCCESS, "all memory", way.name);
    Expect(way.free(made), CUDA_SUCCESS, "free", way.name);
    if (way.pool != nullptr) EXPECT_OK(cuMemPoolTrimTo(way.pool, 0));
  }
}

void WrongFrees(const Case& the) {
  CUdeviceptr kept = 0, freed = 0;
  CUmemGenericAllocationHandle physical = 0;
  EXPECT_OK(cuMemAlloc(&kept, 16 * kMiB));
  EXPECT_OK(cuMemAlloc(&freed, 8 * kMiB));
  EXPECT_OK(cuMemFree(freed));
  EXPECT_OK(CreatePhysical(&physical, 16 * kMiB));
  EXPECT_OK(cuMemRelease(physical));
  for (int i = 0; i < 100; ++i) {
    for (const CUdeviceptr wrong : {freed, CUdeviceptr{0x1234}, kept + 512}) {
      Expect(cuMemFree(wrong), CUDA_ERROR_INVALID_VALUE, "cuMemFree");
      Expect(cuMemFreeAsync(wrong, nullptr), CUDA_ERROR_INVALID_VALUE, "cuMemFreeAsync");
      Expect(cuArrayDestroy(reinterpret_cast<CUarray>(wrong)), CUDA_ERROR_INVALID_VALUE,
             "cuArrayDestroy");
      Expect(cuMemRelease(wrong), CUDA_ERROR_INVALID_VALUE, "cuMemRelease");
      Expect(cuMemUnmap(wrong, kMiB), CUDA_ERROR_INVALID_VALUE, "cuMemUnmap");
    }
    Expect(cuMemRelease(physical), CUDA_ERROR_INVALID_VALUE, "cuMemRelease twice");
  }
  Expect(FreeBytes(), the.limit - 16 * kMiB, "free memory");
  // cuMemFreeAsync frees memory of cuMemAlloc, and cuMemFree frees memory of cuMemAllocAsync.
  EXPECT_OK(cuMemFreeAsync(kept, nullptr));
  Expect(FreeBytes(), the.limit, "free memory after cuMemFreeAsync");
}

void Sizes(const Case& the) {
  std::size_t free_bytes = 0, total_bytes = 0;
  EXPECT_OK(cuMemGetInfo(&free_bytes, &total_bytes));
  Expect(total_bytes, the.limit, "total memory");
  Expect(free_bytes, the.limit, "free memory");
  EXPECT_OK(cuDeviceTotalMem(&total_bytes, 0));
  Expect(total_bytes, the.limit, "cuDeviceTotalMem");
}

// Without a limit the sizes are the driver's, and so is the rejection.
void Unlimited(const Case&) {
  std::size_t free_bytes = 0, total_bytes = 0;
  CUdeviceptr made = 0;
  EXPECT_OK(cuMemAlloc(&made, shared_gpu::kMemoryBytes / 2));
  EXPECT_OK(cuMemGetInfo(&free_bytes, &total_bytes));
  Expect(free_bytes, shared_gpu::kMemoryBytes / 2, "free memory");
  Expect(total_bytes, shared_gpu::kMemoryBytes, "total memory");
  EXPECT_OK(cuDeviceTotalMem(&total_bytes, 0));
  Expect(total_bytes, shared_gpu::kMemoryBytes, "cuDeviceTotalMem");
  const int calls = AskDriver(shared_gpu::kAllocationCalls);
  for (const Way& way : GetWays()) {
    Expect(way.allocate(&made, shared_gpu::kMemoryBytes), CUDA_ERROR_OUT_OF_MEMORY, "rejected",
           way.name);
  }
  Expect(AskDriver(shared_gpu::kAllocationCalls), calls + 8, "calls of the driver");
}

void HostMemory(const Case& the) {
  const CUmemoryPool pool = CreatePool(CU_MEM_LOCATION_TYPE_HOST);
  CUmemGenericAllocationHandle handle = 0;
  EXPECT_OK(CreatePhysical(&handle, 4 * the.limit, CU_MEM_LOCATION_TYPE_HOST));
  CUdeviceptr made = 0;
  EXPECT_OK(cuMemAllocFromPoolAsync(&made, 4 * the.limit, pool, nullptr));
  Expect(FreeBytes(), the.limit, "free memory");
  EXPECT_OK(cuMemFreeAsync(made, nullptr));
  EXPECT_OK(cuMemRelease(handle));
  EXPECT_OK(cuMemPoolDestroy(pool));
  Expect(FreeBytes(), the.limit, "free memory at the end");
}

void Mappings(const Case& the) {
  constexpr CUdeviceptr kAddress = CUdeviceptr{6} << 44;
  CUmemGenericAllocationHandle handle = 0, again = 0;
  EXPECT_OK(CreatePhysical(&handle, 64 * kMiB));
  EXPECT_OK(cuMemMap(kAddress, 64 * kMiB, 0, handle, 0));
  EXPECT_OK(cuMemRelease(handle));
  Expect(FreeBytes(), the.limit - 64 * kMiB, "free memory while it is mapped");
  EXPECT_OK(cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(kAddress)));
  Expect(again, handle, "retained handle");
  EXPECT_OK(cuMemUnmap(kAddress, 64 * kMiB));
  Expect(FreeBytes(), the.limit - 64 * kMiB, "free memory while it is retained");
  EXPECT_OK(cuMemRelease(again));
  Expect(FreeBytes(), the.limit, "free memory");
}

void Pools(const Case& the) {
  CUmemoryPool default_pool = nullptr;
  EXPECT_OK(cuDeviceGetMemPool(&default_pool, 0));
  CUdeviceptr made = 0, other = 0;
  // Free memory of a pool is charged, and is released if another allocation needs it.
  EXPECT_OK(cuMemAllocAsync(&made, the.limit / 2, nullptr));
  EXPECT_OK(cuMemFreeAsync(made, nullptr));
  Expect(FreeBytes(), the.limit / 2, "free memory beside a pool");
  EXPECT_OK(cuMemAllocAsync(&made, the.limit / 4, nullptr));
  Expect(FreeBytes(), the.limit / 2, "free memory beside a pool that has not grown");
  EXPECT_OK(cuMemAlloc(&other, the.limit / 4 * 3));
  Expect(FreeBytes(), 0, "free memory of a full device");
  EXPECT_OK(cuMemFree(other));
  EXPECT_OK(cuMemFree(made));
  // A pool releases free memory that another pool needs.
  const CUmemoryPool pool = CreatePool();
  EXPECT_OK(cuMemAllocFromPoolAsync(&made, the.limit, pool, nullptr));
  EXPECT_OK(cuMemFreeAsync(made, nullptr));
  EXPECT_OK(cuMemAllocAsync(&made, the.limit, nullptr));
  EXPECT_OK(cuMemFreeAsync(made, nullptr));
  EXPECT_OK(cuMemPoolTrimTo(default_pool, kStep));
  Expect(FreeBytes(), the.limit - kStep, "free memory after a trim");
  EXPECT_OK(cuMemPoolTrimTo(default_pool, 0));
  // Allocations from a destroyed pool are charged until they are freed.
  EXPECT_OK(cuMemAllocFromPoolAsync(&made, 3 * kMiB, pool, nullptr));
  EXPECT_OK(cuMemPoolDestroy(pool));
  Expect(FreeBytes(), the.limit - 3 * kMiB, "free memory after the pool's end");
  EXPECT_OK(cuMemFreeAsync(made, nullptr));
  Expect(FreeBytes(), the.limit, "free memory at the end");
  Expect(AskDriver(shared_gpu::kPeakKiB), the.limit >> 10, "most memory ever allocated");
}

// The modelled driver ends the program if the gate calls a forbidden function during the capture.
void Capture(const Case& the) {
  CUstream stream = nullptr;
  CUgraph graph = nullptr;
  CUdeviceptr kept = 0, node = 0, made = 0;
  EXPECT_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  EXPECT_OK(cuMemAllocAsync(&kept, 32 * kMiB, nullptr));
  EXPECT_OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  EXPECT_OK(cuMemAllocAsync(&node, 2 * the.limit, stream));
  EXPECT_OK(cuMemFreeAsync(node, stream));
  EXPECT_OK(cuMemFreeAsync(kept, stream));
  Expect(FreeBytes(), the.limit - 32 * kMiB, "free memory during a capture");
  // Memory that a graph will use is allocated during its capture, so it counts.
  EXPECT_OK(cuMemAlloc(&made, 64 * kMiB));
  Expect(FreeBytes(), the.limit - 96 * kMiB, "free memory during a capture");
  Expect(cuMemAlloc(&node, the.limit), CUDA_ERROR_OUT_OF_MEMORY, "above the limit");
  EXPECT_OK(cuStreamEndCapture(stream, &graph));
  EXPECT_OK(cuMemFree(made));
  Expect(FreeBytes(), the.limit - 32 * kMiB, "free memory after a capture");
}

void Contexts(const Case& the) {
  CUdeviceptr made = 0;
  CUmemGenericAllocationHandle handle = 0;
  EXPECT_OK(cuMemAlloc(&made, the.limit / 2));
  EXPECT_OK(CreatePhysical(&handle, the.limit / 4));
  EXPECT_OK(cuCtxDestroy(the.context));
  // Physical memory belongs to no context.
  Expect(FreeBytes(), the.limit - the.limit / 4, "free memory");
}

// Each GPU has its own limit, whichever is the current one when memory is freed.
void Gpus(const Case& the) {
  CUcontext second = nullptr;
  CUdeviceptr on_first = 0, on_second = 0, pooled = 0;
  EXPECT_OK(cuCtxCreate_v2(&second, 0, 1));
  EXPECT_OK(cuMemAlloc(&on_second, the.limit / 2));
  CUmemAllocationProp properties = PhysicalAt(CU_MEM_LOCATION_TYPE_DEVICE);
  CUmemGenericAllocationHandle handle = 0;
  EXPECT_OK(cuMemCreate(&handle, the.limit / 2, &properties, 0));
  properties.location.id = 1;
  CUmemGenericAllocationHandle other = 0;
  EXPECT_OK(cuMemCreate(&other, the.limit / 4, &properties, 0));
  Expect(FreeBytes(), the.limit / 4, "free memory of GPU 1");
  EXPECT_OK(cuCtxSetCurrent(the.context));
  EXPECT_OK(cuMemAlloc(&on_first, the.limit / 2));
  Expect(FreeBytes(), 0, "free memory of GPU 0");
  EXPECT_OK(cuMemFree(on_second));
  Expect(FreeBytes(), 0, "free memory of GPU 0 still");
  CUmemPoolProps pool_properties = {};
  pool_properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  pool_properties.location = properties.location;
  CUmemoryPool pool = nullptr;
  EXPECT_OK(cuMemPoolCreate(&pool, &pool_properties));
  EXPECT_OK(cuMemAllocFromPoolAsync(&pooled, kStep, pool, nullptr));
  EXPECT_OK(cuCtxSetCurrent(second));
  Expect(FreeBytes(), the.limit - the.limit / 4 - kStep, "free memory of GPU 1 at last");
}

void Fork(const Case& the) {
  CUdeviceptr made = 0;
  EXPECT_OK(cuMemAlloc(&made, the.limit));
  const pid_t child = ::fork();
  if (child == 0) {
    CUdeviceptr more = 0;
    std::_Exit(cuMemAlloc(&more, kMiB) == CUDA_SUCCESS && cuMemFree(made) == CUDA_SUCCESS ? 7 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  Expect(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 7, "exit code of the child");
  Expect(cuMemAlloc(&made, kMiB), CUDA_ERROR_OUT_OF_MEMORY, "the parent's limit");
}

void Threads(const Case& the) {
  const std::vector<Way> ways = GetWays();
  std::atomic<int> rejections{0};
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(400);
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      std::minstd_rand random(t + 1);
      std::vector<std::pair<const Way*, CUdeviceptr>> held;
      while (std::chrono::steady_clock::now() < end) {
        if (held.size() > 6) {
          const std::size_t i = random() % held.size();
          EXPECT_OK(held[i].first->free(held[i].second));
          held[i] = held.back();
          held.pop_back();
          continue;
        }
        const Way& way = ways[random() % ways.size()];
        CUdeviceptr made = 0;
        const CUresult code = way.allocate(&made, (1 + random() % 4) * the.limit / 64);
        if (code == CUDA_SUCCESS) {
          held.emplace_back(&way, made);
        } else {
          Expect(code, CUDA_ERROR_OUT_OF_MEMORY, "rejected", way.name);
          ++rejections;
          if (held.empty()) continue;
          EXPECT_OK(held.back().first->free(held.back().second));
          held.pop_back();
        }
      }
      for (const auto& [way, made] : held) EXPECT_OK(way->free(made));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Way& way : ways) {
    if (way.pool != nullptr) EXPECT_OK(cuMemPoolTrimTo(way.pool, 0));
  }
  Expect(FreeBytes(), the.limit, "free memory at the end");
  Expect(rejections > 0, true, "rejections");
  Expect(AskDriver(shared_gpu::kPeakKiB) <= static_cast<int>(the.limit >> 10), true,
         "the limit held");
  CUdeviceptr made = 0;
  EXPECT_OK(cuMemAlloc(&made, the.limit));
}

}  // namespace

int RunMemoryCase(const std::string& name, std::size_t limit_mib) {
  const std::map<std::string, void (*)(const Case&)> cases = {
      {"capture", Capture},     {"contexts", Contexts}, {"failures", Failures},
      {"fork", Fork},           {"frees", WrongFrees},  {"gpus", Gpus},
      {"host", HostMemory},     {"limit", Limit},       {"mappings", Mappings},
      {"pools", Pools},         {"sizes", Sizes},       {"threads", Threads},
      {"unlimited", Unlimited},
  };
  const auto found = cases.find(name);
  if (found == cases.end()) return 2;
  found->second(Case(limit_mib * kMiB));
  return 0;
}
