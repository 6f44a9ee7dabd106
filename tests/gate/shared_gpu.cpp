// SPDX-License-Identifier: Apache-2.0
// A stand-in for the installed driver: libcuda.so.1 with a modelled GPU that all processes share.
// Kernels of all processes run one after another in the order of their submission, as on a real GPU
// without MPS and without a server. A kernel takes as many microseconds as its grid has blocks.
// $SHARED_GPU_COUNT is the number of such GPUs (1).
//
// Each GPU has 8 GiB of memory, which is accounted separately for each process and has no contents.
// An allocation whose size is kFailing modulo 512 fails without a reason. cuDeviceGetAttribute
// supports two attributes that no driver has: see Attribute.
//
// $SHARED_GPU names the file with the state of the GPU. Without it no call takes time, and kernels
// end at once although events report their time, for measurements of the gate itself. Exit code 86:
// the program made a call that is an error for the driver at this moment; stderr names the call.

#include "tests/gate/shared_gpu.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include <cuda.h>

// The gate calls the form that every driver has.
#undef cuEventElapsedTime

namespace {

// Costs of an H100 (tests/gpu/results): a call, the way to the GPU, and the time between kernels.
constexpr std::int64_t kCallNs = 2'000, kWayNs = 4'000, kGapNs = 1'000;

std::int64_t Now() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

[[noreturn]] void Mistake(const char* what) {
  std::fprintf(stderr, "shared_gpu: %s\n", what);
  std::_Exit(86);
}

constexpr int kGpusMax = 4;
int GetGpuCount() {
  const char* const count = std::getenv("SHARED_GPU_COUNT");
  return count == nullptr ? 1 : std::clamp(std::atoi(count), 1, kGpusMax);
}

struct SharedState {
  std::array<std::atomic<std::int64_t>, kGpusMax> free_at{};
};

// Null without $SHARED_GPU.
SharedState* OpenState() {
  const char* const path = std::getenv("SHARED_GPU");
  if (path == nullptr) return nullptr;
  const int fd = ::open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0 || ::ftruncate(fd, sizeof(SharedState)) != 0) Mistake("cannot open $SHARED_GPU");
  void* const memory =
      ::mmap(nullptr, sizeof(SharedState), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ::close(fd);
  return memory == MAP_FAILED ? nullptr : static_cast<SharedState*>(memory);
}
SharedState* const gpu = OpenState();

struct Stream {
  std::size_t gpu = 0;
  std::atomic<std::int64_t> end{0};
  std::atomic<bool> is_capturing{false};
};
struct Event {
  std::atomic<std::int64_t> at{0};
};
struct Graph {
  std::atomic<std::int64_t> kernel_ns{0};
};

std::array<Stream, kGpusMax> default_streams;
Graph captured;
std::atomic<int> captures{0};
std::atomic<int> contexts{0}, events_alive{0};
thread_local CUcontext current = nullptr;

// A context's handle has the number of its GPU in the low bits.
std::size_t GpuOf(CUcontext context) {
  return reinterpret_cast<std::uintptr_t>(context) % kGpusMax;
}
Stream& Of(CUstream stream) {
  const bool is_default = reinterpret_cast<std::uintptr_t>(stream) <= 2;
  if (!is_default) return *reinterpret_cast<Stream*>(stream);
  Stream& found = default_streams[GpuOf(current)];
  found.gpu = GpuOf(current);
  return found;
}

// Host memory by its page, and the context in which it is registered.
class Registered {
 public:
  bool Add(const void* page, CUcontext context) {
    const std::lock_guard lock(mutex_);
    return pages_.try_emplace(reinterpret_cast<std::uintptr_t>(page), context).second;
  }
  void Remove(CUcontext context) {
    const std::lock_guard lock(mutex_);
    std::erase_if(pages_, [=](const auto& page) { return page.second == context; });
  }
  bool Contains(CUdeviceptr address, CUcontext context) {
    const std::lock_guard lock(mutex_);
    const auto page = pages_.find(address / 4096 * 4096);
    return page != pages_.end() && page->second == context;
  }

 private:
  std::mutex mutex_;
  std::map<std::uintptr_t, CUcontext> pages_;
};
Registered& GetRegistered() {
  static Registered& registered = *new Registered;
  return registered;
}

// Performs writes and host functions when the GPU reaches them in the stream.
class Later {
 public:
  void Do(std::int64_t at, std::function<void()> action) {
    if (gpu == nullptr) return action();
    const std::lock_guard lock(mutex_);
    if (!std::exchange(has_thread_, true)) std::thread([this] { Run(); }).detach();
    actions_.emplace(at, std::move(action));
    changed_.notify_one();
  }

 private:
  void Run() {
    ::prctl(PR_SET_TIMERSLACK, 1UL);
    std::unique_lock lock(mutex_);
    for (;;) {
      if (actions_.empty()) {
        changed_.wait(lock);
        continue;
      }
      const auto first = actions_.begin();
      const std::int64_t left = first->first - Now();
      if (left > 0) {
        changed_.wait_for(lock, std::chrono::nanoseconds(left));
        continue;
      }
      const std::function<void()> action = std::move(first->second);
      actions_.erase(first);
      lock.unlock();
      action();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::multimap<std::int64_t, std::function<void()>> actions_;
  bool has_thread_ = false;
};
Later& GetLater() {
  static Later& later = *new Later;
  return later;
}

void SpendCall() {
  if (gpu == nullptr) return;
  const std::int64_t end = Now() + kCallNs;
  while (Now() < end) {
  }
}

void Await(std::int64_t at) {
  if (gpu == nullptr) return;
  for (;;) {
    const std::int64_t left = at - Now();
    if (left <= 0) return;
    if (left > 100'000) std::this_thread::sleep_for(std::chrono::nanoseconds(left - 80'000));
  }
}

// Ends of the last launches of the process: a launch waits until the one 1024 before has ended.
std::array<std::atomic<std::int64_t>, 1024> ends;
std::atomic<std::size_t> launches{0};

// Puts work at the end of the GPU's queue.
void Queue(Stream& stream, std::int64_t length) {
  if (gpu == nullptr) {
    stream.end += length;  // For events; nothing waits for it.
    return;
  }
  SpendCall();
  std::atomic<std::int64_t>& place = ends[launches++ % ends.size()];
  Await(place);
  std::atomic<std::int64_t>& gpu_free_at = gpu->free_at[stream.gpu];
  std::int64_t free_at = gpu_free_at.load();
  std::int64_t end = 0;
  do {
    end = std::max({Now() + kWayNs, free_at + kGapNs, stream.end.load()}) + length;
  } while (!gpu_free_at.compare_exchange_weak(free_at, end));
  stream.end = place = end;
}

CUresult LaunchFor(CUstream handle, std::int64_t length) {
  Stream& stream = Of(handle);
  if (stream.is_capturing) {
    captured.kernel_ns += length;
    return CUDA_SUCCESS;
  }
  Queue(stream, length);
  return CUDA_SUCCESS;
}

// ---- memory

using shared_gpu::kMemoryBytes, shared_gpu::kFailing;

struct Physical {
  std::size_t bytes = 0;
  int uses = 0;  // References and mappings.
};
struct Pool {
  // The driver's pools grow in steps as well.
  static constexpr std::size_t kStep = std::size_t{2} << 20;
  bool is_host = false;
  std::size_t reserved = 0, used = 0;
};
struct Block {
  std::size_t bytes = 0;
  Pool* pool = nullptr;
};

class Memory {
 public:
  // Allocates from the device or a pool.
  CUresult Allocate(std::uint64_t* address, std::size_t bytes, Pool* pool = nullptr) {
    const std::lock_guard lock(mutex_);
    ++calls_;
    if (bytes % 512 == kFailing) return CUDA_ERROR_NOT_PERMITTED;
    if (pool == nullptr) {
      if (!Grow(bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
    } else if (!pool->is_host) {
      const std::size_t needed = (pool->used + bytes + Pool::kStep - 1) / Pool::kStep * Pool::kStep;
      if (needed > pool->reserved) {
        if (!Grow(needed - pool->reserved)) return CUDA_ERROR_OUT_OF_MEMORY;
        pool->reserved = needed;
      }
      pool->used += bytes;
    }
    *address = NewAddress(bytes);
    blocks_[*address] = {bytes, pool};
    return CUDA_SUCCESS;
  }
  CUresult Free(std::uint64_t address) {
    const std::lock_guard lock(mutex_);
    const auto block = blocks_.find(address);
    if (block == blocks_.end()) return CUDA_ERROR_INVALID_VALUE;
    const auto [bytes, pool] = block->second;
    if (pool == nullptr) {
      used_ -= bytes;
    } else if (!pool->is_host) {
      pool->used -= bytes;
    }
    freed_.emplace(bytes, address);
    blocks_.erase(block);
    return CUDA_SUCCESS;
  }
  CUresult Trim(Pool& pool, std::size_t bytes_kept) {
    const std::lock_guard lock(mutex_);
    const std::size_t used = (pool.used + Pool::kStep - 1) / Pool::kStep * Pool::kStep;
    const std::size_t kept = std::max(used, std::min(bytes_kept, pool.reserved));
    used_ -= pool.reserved - kept;
    pool.reserved = kept;
    return CUDA_SUCCESS;
  }
  // Memory that the program has allocated from the pool remains allocated.
  CUresult Destroy(Pool& pool) {
    Trim(pool, 0);
    const std::lock_guard lock(mutex_);
    used_ -= pool.reserved - pool.used;
    for (auto& [address, block] : blocks_) {
      if (block.pool == &pool) block.pool = nullptr;
    }
    return CUDA_SUCCESS;
  }
  std::size_t Get(const Pool& pool, std::size_t Pool::*bytes) {
    const std::lock_guard lock(mutex_);
    return pool.*bytes;
  }

  CUresult CreatePhysical(CUmemGenericAllocationHandle* handle, std::size_t bytes, bool is_host) {
    const std::lock_guard lock(mutex_);
    ++calls_;
    if (bytes % 512 == kFailing) return CUDA_ERROR_NOT_PERMITTED;
    if (!is_host && !Grow(bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
    *handle = ++last_handle_;
    physical_[*handle] = {is_host ? 0 : bytes, 1};
    return CUDA_SUCCESS;
  }
  CUresult Use(CUmemGenericAllocationHandle handle, int change) {
    const std::lock_guard lock(mutex_);
    const auto found = physical_.find(handle);
    if (found == physical_.end()) return CUDA_ERROR_INVALID_VALUE;
    found->second.uses += change;
    if (found->second.uses > 0) return CUDA_SUCCESS;
    used_ -= found->second.bytes;
    physical_.erase(found);
    return CUDA_SUCCESS;
  }
  CUresult Map(std::uint64_t address, CUmemGenericAllocationHandle handle) {
    if (const CUresult code = Use(handle, 1); code != CUDA_SUCCESS) return code;
    const std::lock_guard lock(mutex_);
    mapped_[address] = handle;
    return CUDA_SUCCESS;
  }
  CUresult Unmap(std::uint64_t address) {
    const CUmemGenericAllocationHandle handle = MappedAt(address);
    if (handle == 0) return CUDA_ERROR_INVALID_VALUE;
    const CUresult code = Use(handle, -1);
    const std::lock_guard lock(mutex_);
    mapped_.erase(address);
    return code;
  }
  CUmemGenericAllocationHandle MappedAt(std::uint64_t address) {
    const std::lock_guard lock(mutex_);
    const auto found = mapped_.find(address);
    return found == mapped_.end() ? 0 : found->second;
  }

  std::size_t used() {
    const std::lock_guard lock(mutex_);
    return used_;
  }
  int Answer(shared_gpu::Attribute attribute) {
    const std::lock_guard lock(mutex_);
    return attribute == shared_gpu::kAllocationCalls ? calls_ : static_cast<int>(peak_ >> 10);
  }

 private:
  bool Grow(std::size_t bytes) {
    if (bytes > kMemoryBytes - used_) return false;
    used_ += bytes;
    peak_ = std::max(peak_, used_);
    return true;
  }
  // Reuses an address as soon as it is free, as a driver does.
  std::uint64_t NewAddress(std::size_t bytes) {
    const auto freed = freed_.find(bytes);
    if (freed != freed_.end()) {
      const std::uint64_t address = freed->second;
      freed_.erase(freed);
      return address;
    }
    const std::uint64_t address = next_;
    next_ += (bytes + 511) / 512 * 512;
    return address;
  }

  std::mutex mutex_;
  std::size_t used_ = 0, peak_ = 0;
  int calls_ = 0;
  std::uint64_t next_ = std::uint64_t{7} << 44;
  std::map<std::uint64_t, Block> blocks_;
  std::multimap<std::size_t, std::uint64_t> freed_;
  CUmemGenericAllocationHandle last_handle_ = 0x1000;
  std::map<CUmemGenericAllocationHandle, Physical> physical_;
  std::map<std::uint64_t, CUmemGenericAllocationHandle> mapped_;
};
Memory& GetMemory() {
  static Memory& memory = *new Memory;
  return memory;
}
Pool default_pool;
Pool& Of(CUmemoryPool pool) { return *reinterpret_cast<Pool*>(pool); }

std::size_t BytesOf(const CUDA_ARRAY3D_DESCRIPTOR& shape) {
  if (shape.Format != CU_AD_FORMAT_FLOAT) Mistake("an array of another format than floats");
  return shape.Width * std::max<std::size_t>(shape.Height, 1) *
         std::max<std::size_t>(shape.Depth, 1) * shape.NumChannels * sizeof(float);
}

}  // namespace

extern "C" {

CUresult cuInit(unsigned) { return CUDA_SUCCESS; }
CUresult cuDriverGetVersion(int* version) {
  *version = 13000;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetCount(int* count) {
  *count = GetGpuCount();
  return CUDA_SUCCESS;
}
CUresult cuDeviceGet(CUdevice* device, int number) {
  *device = number;
  return CUDA_SUCCESS;
}

CUresult cuCtxCreate_v2(CUcontext* context, unsigned, CUdevice device) {
  const auto number = static_cast<std::uintptr_t>(++contexts);
  current = *context = reinterpret_cast<CUcontext>(number << 12 | static_cast<unsigned>(device));
  return CUDA_SUCCESS;
}
CUresult cuCtxDestroy_v2(CUcontext context) {
  if (events_alive > 0) Mistake("a context ends with events in it");
  GetRegistered().Remove(context);
  current = nullptr;
  return CUDA_SUCCESS;
}
CUresult cuCtxSetCurrent(CUcontext context) {
  current = context;
  return CUDA_SUCCESS;
}
CUresult cuCtxGetCurrent(CUcontext* context) {
  *context = current;
  return CUDA_SUCCESS;
}
CUresult cuCtxGetDevice(CUdevice* device) {
  if (current == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *device = static_cast<CUdevice>(GpuOf(current));
  return CUDA_SUCCESS;
}
CUresult cuCtxSynchronize() {
  if (gpu != nullptr) Await(gpu->free_at[GpuOf(current)].load());
  return CUDA_SUCCESS;
}

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  *module = static_cast<CUmodule>(const_cast<void*>(image));
  return CUDA_SUCCESS;
}
CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char*) {
  *function = reinterpret_cast<CUfunction>(module);
  return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction, unsigned grid_x, unsigned, unsigned, unsigned, unsigned,
                        unsigned, unsigned, CUstream stream, void**, void**) {
  return LaunchFor(stream, std::int64_t{grid_x} * 1000);
}
// These functions do not call cuLaunchKernel, because the call would reach the gate's function.
CUresult cuLaunchKernel_ptsz(CUfunction, unsigned grid_x, unsigned, unsigned, unsigned, unsigned,
                             unsigned, unsigned, CUstream stream, void**, void**) {
  return LaunchFor(stream, std::int64_t{grid_x} * 1000);
}
CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction, void**, void**) {
  return LaunchFor(config->hStream, std::int64_t{config->gridDimX} * 1000);
}
CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig* config, CUfunction, void**, void**) {
  return LaunchFor(config->hStream, std::int64_t{config->gridDimX} * 1000);
}
CUresult cuLaunchCooperativeKernel(CUfunction, unsigned grid_x, unsigned, unsigned, unsigned,
                                   unsigned, unsigned, unsigned, CUstream stream, void**) {
  return LaunchFor(stream, std::int64_t{grid_x} * 1000);
}
CUresult cuLaunchCooperativeKernel_ptsz(CUfunction, unsigned grid_x, unsigned, unsigned, unsigned,
                                        unsigned, unsigned, unsigned, CUstream stream, void**) {
  return LaunchFor(stream, std::int64_t{grid_x} * 1000);
}

// Copies go through the queue of kernels at 20 GB/s, which is PCIe 4's rate.
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr, const void*, std::size_t bytes, CUstream stream) {
  return LaunchFor(stream, static_cast<std::int64_t>(bytes / 20));
}
CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, std::size_t bytes) {
  const CUresult code = cuMemcpyHtoDAsync_v2(to, from, bytes, nullptr);
  Await(Of(CUstream{}).end);
  return code;
}
CUresult cuMemsetD32Async(CUdeviceptr to, unsigned, std::size_t count, CUstream stream) {
  return cuMemcpyHtoDAsync_v2(to, nullptr, count * sizeof(unsigned), stream);
}

CUresult cuStreamCreate(CUstream* stream, unsigned) {
  *stream = reinterpret_cast<CUstream>(new Stream{.gpu = GpuOf(current)});
  return CUDA_SUCCESS;
}
CUresult cuStreamDestroy_v2(CUstream) { return CUDA_SUCCESS; }  // Work may still refer to it.
CUresult cuStreamSynchronize(CUstream stream) {
  Await(Of(stream).end);
  return CUDA_SUCCESS;
}
CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  *status =
      Of(stream).is_capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}
CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode) {
  Of(stream).is_capturing = true;
  ++captures;
  captured.kernel_ns = 0;
  return CUDA_SUCCESS;
}
CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  Of(stream).is_capturing = false;
  --captures;
  *graph = reinterpret_cast<CUgraph>(&captured);
  return CUDA_SUCCESS;
}
CUresult cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph, unsigned long long) {
  auto* const made = new Graph;
  made->kernel_ns = reinterpret_cast<Graph*>(graph)->kernel_ns.load();
  *exec = reinterpret_cast<CUgraphExec>(made);
  return CUDA_SUCCESS;
}
CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
  return LaunchFor(stream, reinterpret_cast<Graph*>(exec)->kernel_ns);
}
CUresult cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream) {
  return LaunchFor(stream, reinterpret_cast<Graph*>(exec)->kernel_ns);
}

CUresult cuEventCreate(CUevent* event, unsigned) {
  ++events_alive;
  *event = reinterpret_cast<CUevent>(new Event);
  return CUDA_SUCCESS;
}
CUresult cuEventDestroy_v2(CUevent event) {
  --events_alive;
  delete reinterpret_cast<Event*>(event);
  return CUDA_SUCCESS;
}
CUresult cuEventRecord(CUevent event, CUstream stream) {
  if (captures > 0) Mistake("an event is recorded during a capture");
  const std::int64_t end = Of(stream).end;
  reinterpret_cast<Event*>(event)->at = gpu == nullptr ? end : std::max(end, Now());
  return CUDA_SUCCESS;
}
CUresult cuEventQuery(CUevent event) {
  if (captures > 0) Mistake("an event is queried during a capture");
  const bool is_over = gpu == nullptr || reinterpret_cast<Event*>(event)->at <= Now();
  return is_over ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
CUresult cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  *milliseconds = static_cast<float>(
      static_cast<double>(reinterpret_cast<Event*>(end)->at - reinterpret_cast<Event*>(start)->at) /
      1e6);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice) {
  *value = GetMemory().Answer(static_cast<shared_gpu::Attribute>(attribute));
  return CUDA_SUCCESS;
}
CUresult cuDeviceTotalMem_v2(std::size_t* bytes, CUdevice) {
  *bytes = kMemoryBytes;
  return CUDA_SUCCESS;
}
CUresult cuMemGetInfo_v2(std::size_t* free_bytes, std::size_t* total_bytes) {
  *free_bytes = kMemoryBytes - GetMemory().used();
  *total_bytes = kMemoryBytes;
  return CUDA_SUCCESS;
}
CUresult cuMemAlloc_v2(CUdeviceptr* address, std::size_t bytes) {
  std::uint64_t made = 0;
  const CUresult code = GetMemory().Allocate(&made, bytes);
  if (code == CUDA_SUCCESS) *address = made;
  return code;
}
CUresult cuMemAllocPitch_v2(CUdeviceptr* address, std::size_t* pitch, std::size_t width_bytes,
                            std::size_t height, unsigned) {
  *pitch = (width_bytes + 511) / 512 * 512;
  return cuMemAlloc_v2(address, width_bytes % 512 == kFailing ? kFailing : *pitch * height);
}
CUresult cuMemAllocManaged(CUdeviceptr* address, std::size_t bytes, unsigned) {
  return cuMemAlloc_v2(address, bytes);
}
CUresult cuMemFree_v2(CUdeviceptr address) { return GetMemory().Free(address); }

CUresult cuArray3DCreate_v2(CUarray* array, const CUDA_ARRAY3D_DESCRIPTOR* shape) {
  std::uint64_t address = 0;
  const CUresult code = GetMemory().Allocate(&address, BytesOf(*shape));
  if (code == CUDA_SUCCESS) *array = reinterpret_cast<CUarray>(address);
  return code;
}
CUresult cuArrayCreate_v2(CUarray* array, const CUDA_ARRAY_DESCRIPTOR* shape) {
  CUDA_ARRAY3D_DESCRIPTOR same = {};
  same.Width = shape->Width;
  same.Height = shape->Height;
  same.Format = shape->Format;
  same.NumChannels = shape->NumChannels;
  return cuArray3DCreate_v2(array, &same);
}
CUresult cuArrayDestroy(CUarray array) {
  return GetMemory().Free(reinterpret_cast<std::uint64_t>(array));
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, std::size_t bytes,
                     const CUmemAllocationProp* properties, unsigned long long) {
  return GetMemory().CreatePhysical(handle, bytes,
                                    properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE);
}
CUresult cuMemRelease(CUmemGenericAllocationHandle handle) { return GetMemory().Use(handle, -1); }
CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
  *handle = GetMemory().MappedAt(reinterpret_cast<std::uint64_t>(address));
  return GetMemory().Use(*handle, 1);
}
CUresult cuMemMap(CUdeviceptr address, std::size_t, std::size_t,
                  CUmemGenericAllocationHandle handle, unsigned long long) {
  return GetMemory().Map(address, handle);
}
CUresult cuMemUnmap(CUdeviceptr address, std::size_t) { return GetMemory().Unmap(address); }

CUresult cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice) {
  *pool = reinterpret_cast<CUmemoryPool>(&default_pool);
  return CUDA_SUCCESS;
}
CUresult cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* properties) {
  auto* const made = new Pool;
  made->is_host = properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE;
  *pool = reinterpret_cast<CUmemoryPool>(made);
  return CUDA_SUCCESS;
}
CUresult cuMemPoolDestroy(CUmemoryPool pool) {
  if (&Of(pool) == &default_pool) return CUDA_ERROR_INVALID_VALUE;
  return GetMemory().Destroy(Of(pool));
}
CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void* value) {
  if (captures > 0) Mistake("a pool is looked at during a capture");
  if (attribute != CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT &&
      attribute != CU_MEMPOOL_ATTR_USED_MEM_CURRENT) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *static_cast<cuuint64_t*>(value) = GetMemory().Get(
      Of(pool), attribute == CU_MEMPOOL_ATTR_USED_MEM_CURRENT ? &Pool::used : &Pool::reserved);
  return CUDA_SUCCESS;
}
CUresult cuMemPoolTrimTo(CUmemoryPool pool, std::size_t bytes_kept) {
  if (captures > 0) Mistake("a pool is trimmed during a capture");
  return GetMemory().Trim(Of(pool), bytes_kept);
}
CUresult cuMemAllocFromPoolAsync(CUdeviceptr* address, std::size_t bytes, CUmemoryPool pool,
                                 CUstream stream) {
  std::uint64_t made = 0;
  // A captured allocation is a node of the graph.
  const CUresult code = GetMemory().Allocate(&made, Of(stream).is_capturing ? 0 : bytes, &Of(pool));
  if (code == CUDA_SUCCESS) *address = made;
  return code;
}
CUresult cuMemAllocAsync(CUdeviceptr* address, std::size_t bytes, CUstream stream) {
  return cuMemAllocFromPoolAsync(address, bytes, reinterpret_cast<CUmemoryPool>(&default_pool),
                                 stream);
}
CUresult cuMemAllocAsync_ptsz(CUdeviceptr* address, std::size_t bytes, CUstream stream) {
  return cuMemAllocAsync(address, bytes, stream);
}
CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
  return Of(stream).is_capturing ? CUDA_SUCCESS : GetMemory().Free(address);
}

CUresult cuMemHostRegister_v2(void* page, std::size_t, unsigned) {
  return GetRegistered().Add(page, current) ? CUDA_SUCCESS
                                            : CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
}
CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* device, void* host, unsigned) {
  *device = reinterpret_cast<CUdeviceptr>(host);
  return CUDA_SUCCESS;
}
CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned) {
  if (captures > 0) Mistake("a word is written during a capture");
  if (current == nullptr || !GetRegistered().Contains(address, current)) {
    Mistake("a word is written in a context in which its memory is not registered");
  }
  SpendCall();
  auto* const word = reinterpret_cast<std::atomic<std::uint32_t>*>(address);
  GetLater().Do(Of(stream).end, [word, value] { word->store(value, std::memory_order_release); });
  return CUDA_SUCCESS;
}
CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void* data) {
  if (captures > 0) Mistake("a host function is launched during a capture");
  GetLater().Do(Of(stream).end, [function, data] { function(data); });
  return CUDA_SUCCESS;
}

CUresult cuGetProcAddress_v2(const char* name, void** function, int, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* result) {
  static void* const self = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  *function = nullptr;
  const bool is_per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
  for (const char* const suffix : {is_per_thread ? "_ptsz" : "", "_v2", ""}) {
    *function = ::dlsym(self, (std::string(name) + suffix).c_str());
    if (*function != nullptr) break;
  }
  if (result != nullptr) {
    *result =
        *function == nullptr ? CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND : CU_GET_PROC_ADDRESS_SUCCESS;
  }
  return CUDA_SUCCESS;
}

}  // extern "C"
