// SPDX-License-Identifier: Apache-2.0
// Stream-ordered memory and its pools.
#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "client_lib/drop_in/calls.h"
#include "client_lib/drop_in/current.h"
#include "client_lib/drop_in/graph_work.h"
#include "client_lib/drop_in/log.h"

namespace gpushared::drop_in {
namespace {

constexpr int kNoAccess = 0;
constexpr int kReadOnly = 1;
constexpr int kReadWrite = 3;
constexpr std::size_t kAccessListMax = 4096;  // Longer lists of devices are invalid.

// Calls `use` with the pool of the handle.
template <typename Use>
Code WithPool(PoolHandle handle, const Use& use) {
  Driver& driver = Driver::Get();
  if (const Code code = driver.Ready(); code != Code::kSuccess) return code;
  const std::shared_ptr<MemoryPool> pool = driver.pools.Find(handle);
  return pool == nullptr ? Code::kInvalidValue : use(pool);
}

// Calls `use` with the device of this ordinal.
template <typename Use>
Code WithDevice(int ordinal, const Use& use) {
  Driver& driver = Driver::Get();
  if (const Code code = driver.Ready(); code != Code::kSuccess) return code;
  CudaDevice* const device = driver.DeviceAt(ordinal);
  return device == nullptr ? Code::kInvalidDevice : use(*device);
}

// Returns whether the pool's memory is at this location.
bool IsOwn(const MemoryPool& pool, const MemoryLocation& location) {
  return pool.is_host() ? location.type == LocationType::kHost
                        : location.type == LocationType::kDevice && location.id == pool.ordinal();
}

Code SetPool(PoolChoice& place, PoolHandle handle) {
  return WithPool(handle, [&](const std::shared_ptr<MemoryPool>& pool) {
    if (pool->ordinal() != place.ordinal()) return Code::kInvalidValue;
    place.Set(pool);
    return Code::kSuccess;
  });
}

Code PutHandle(const std::shared_ptr<MemoryPool>& pool, PoolHandle* handle) {
  if (pool == nullptr) return Code::kOutOfMemory;
  *handle = pool->handle();
  return Code::kSuccess;
}

// Calls `use` with the pools of a location.
template <typename Use>
Code WithPlace(const MemoryLocation& location, AllocationType type, const Use& use) {
  Driver& driver = Driver::Get();
  if (const Code code = driver.Ready(); code != Code::kSuccess) return code;
  if (type == AllocationType::kPinned && location.type == LocationType::kHost) {
    return use(driver.host_pools);
  }
  if (type == AllocationType::kPinned && location.type == LocationType::kDevice) {
    return WithDevice(location.id, [&](CudaDevice& device) { return use(device.pools); });
  }
  return Reject(Code::kNotSupported,
                "pool rejected: pools of managed memory or of one NUMA node are not supported; "
                "use a pool of device memory or of host memory");
}

PoolChoice& GetPlace(const MemoryPool& pool) {
  Driver& driver = Driver::Get();
  return pool.is_host() ? driver.host_pools : driver.DeviceAt(pool.ordinal())->pools;
}

// Calls `use` with the kept memory of each session that may have memory of the pool.
template <typename Use>
void ForEachKept(const MemoryPool& pool, const Use& use) {
  Driver& driver = Driver::Get();
  for (int ordinal = 0; ordinal < driver.device_count(); ++ordinal) {
    if (!pool.is_host() && pool.ordinal() != ordinal) continue;
    const auto session = driver.DeviceAt(ordinal)->LiveSession();
    if (session != nullptr) use(session->kept_memory());
  }
}

// Allocates from `pool`, or from the pool of the stream's device if `pool` is null.
Code Allocate(DevicePointer* address, std::size_t bytes, std::shared_ptr<MemoryPool> pool,
              const StreamChoice& stream) {
  Context& context = stream->context();
  Session& session = context.session();
  if (pool == nullptr) pool = Driver::Get().DeviceAt(context.ordinal())->pools.Now();
  if (pool == nullptr) return Code::kOutOfMemory;
  if (!pool->is_host() && pool->ordinal() != context.ordinal()) {
    return Reject(Code::kNotSupported,
                  "allocation rejected: devices cannot access each other's memory");
  }
  Result<std::unique_ptr<PooledMemory>> memory =
      session.kept_memory().Take(pool, bytes, stream->id());
  if (!memory.ok()) return session.GetCode(memory.status());
  const std::uint64_t begin = (*memory)->address();
  // Clears large memory like cuMemAlloc, but in stream order.
  if (const std::size_t used_bytes = (*memory)->TakeUsedBytes(); bytes >= kLargeBytes) {
    const Code code = used_bytes == 0 ? Code::kSuccess : stream.Run([&](const Stream& queue) {
      return queue.Fill(begin, FillElement::U8(0), used_bytes);
    });
    if (code != Code::kSuccess) return code;
  }
  if (!session.addresses().Insert({.address = begin,
                                   .bytes = bytes,
                                   .kind = pool->is_host() ? BlockKind::kHost : BlockKind::kDevice,
                                   .context_id = context.id(),
                                   .buffer_id = NextBufferId()},
                                  std::move(*memory))) {
    return Reject(Code::kOutOfMemory,
                  "allocation rejected: this process has host memory at the "
                  "device's address");
  }
  *address = begin;
  return Code::kSuccess;
}

// Returns null for an allocation of zero bytes, which NVIDIA's driver accepts here (as cuda-core's
// tests expect) but not in cuMemAlloc. Freeing null has no effect.
Code AllocateNothing(DevicePointer* address) {
  *address = 0;
  return Code::kSuccess;
}

// In a capture the allocation becomes a node, and the memory belongs to the graph, regardless of
// the requested pool.
Code CaptureAllocation(DevicePointer* address, std::size_t bytes, const StreamChoice& stream) {
  MemoryNodeParameters parameters{};
  parameters.pool.type = AllocationType::kPinned;
  parameters.pool.location = {LocationType::kDevice, stream->context().ordinal()};
  parameters.bytes = bytes;
  AllocateWork work;
  if (const Code code = MakeAllocateWork(parameters, work); code != Code::kSuccess) return code;
  const DevicePointer made = work.parameters.address;
  const Code code = stream.Capture(std::move(work));
  if (code == Code::kSuccess) *address = made;
  return code;
}

Code CaptureFree(DevicePointer address, const StreamChoice& stream) {
  FreeWork work;
  const Code code = MakeFreeWork(address, work);
  return code == Code::kSuccess ? stream.Capture(work) : code;
}

}  // namespace

// ---- memory

Code MemAllocAsync(DevicePointer* address, std::size_t bytes, StreamHandle handle) {
  if (AnyNull(address)) return Code::kInvalidValue;
  const Current current;
  const StreamChoice stream(current, handle);
  if (stream.is_captured()) [[unlikely]]
    return CaptureAllocation(address, bytes, stream);
  if (const Code code = stream.Allowed(); code != Code::kSuccess) return code;
  if (bytes == 0) return AllocateNothing(address);
  return Allocate(address, bytes, nullptr, stream);
}

Code MemAllocFromPoolAsync(DevicePointer* address, std::size_t bytes, PoolHandle pool_handle,
                           StreamHandle handle) {
  if (AnyNull(address)) return Code::kInvalidValue;
  const Current current;
  const StreamChoice stream(current, handle);
  if (!stream.is_captured()) {
    if (const Code code = stream.Allowed(); code != Code::kSuccess) return code;
  }
  return WithPool(pool_handle, [&](const std::shared_ptr<MemoryPool>& pool) {
    if (stream.is_captured()) [[unlikely]] {
      if (!pool->is_host()) return CaptureAllocation(address, bytes, stream);
      return Reject(Code::kNotSupported,
                    "allocation rejected: a graph cannot allocate host memory");
    }
    if (bytes == 0) return AllocateNothing(address);
    return Allocate(address, bytes, pool, stream);
  });
}

// Memory that belongs to no pool is freed as by cuMemFree, after all queued commands.
Code MemFreeAsync(DevicePointer address, StreamHandle handle) {
  const Current current;
  const StreamChoice stream(current, handle);
  if (stream.is_captured()) [[unlikely]]
    return CaptureFree(address, stream);
  if (const Code code = stream.Allowed(); code != Code::kSuccess) return code;
  Session& session = stream->context().session();
  std::unique_ptr<PooledMemory> memory = session.addresses().TakePooled(address);
  if (memory == nullptr) return MemFree(address);
  Result<Event> freed = session.client().CreateEvent();
  if (!freed.ok()) return session.GetCode(freed.status());
  const Code code = stream.Run([&](const Stream& queue) { return queue.Record(*freed); });
  if (code != Code::kSuccess) return code;
  session.kept_memory().Keep(std::move(memory), stream->id(), std::move(*freed));
  return Code::kSuccess;
}

// ---- pools

Code MemPoolCreate(PoolHandle* handle, const PoolProperties* properties) {
  if (AnyNull(handle, properties)) return Code::kInvalidValue;
  const bool is_reserved_zero =
      std::ranges::all_of(properties->reserved, [](unsigned char byte) { return byte == 0; });
  if (!is_reserved_zero) return Code::kInvalidValue;
  if (properties->handle_types != 0 || properties->usage != 0) {
    return Reject(Code::kNotSupported,
                  "pool rejected: its memory cannot be shared between processes or decompressed");
  }
  return WithPlace(properties->location, properties->type, [&](const PoolChoice& place) {
    auto made = std::make_shared<MemoryPool>(place.ordinal(), properties->bytes_max);
    *handle = Driver::Get().pools.Insert(made);
    if (*handle == nullptr) return Code::kOutOfMemory;
    made->set_handle(*handle);
    return Code::kSuccess;
  });
}

// Existing allocations remain valid until they are freed.
Code MemPoolDestroy(PoolHandle handle) {
  return WithPool(handle, [&](const std::shared_ptr<MemoryPool>& pool) {
    PoolChoice& place = GetPlace(*pool);
    if (pool == place.Default()) {
      return Reject(Code::kInvalidValue, "a default pool cannot be destroyed");
    }
    if (Driver::Get().pools.Remove(handle) == nullptr) return Code::kInvalidValue;
    pool->MarkDestroyed();
    place.Forget(pool);
    ForEachKept(*pool, [&](KeptMemory& kept) { kept.Drop(*pool); });
    return Code::kSuccess;
  });
}

Code MemPoolGetAttribute(PoolHandle handle, int attribute, void* value) {
  if (AnyNull(value)) return Code::kInvalidValue;
  return WithPool(handle, [&](const std::shared_ptr<MemoryPool>& pool) {
    return pool->GetAttribute(attribute, value);
  });
}

Code MemPoolSetAttribute(PoolHandle handle, int attribute, void* value) {
  if (AnyNull(value)) return Code::kInvalidValue;
  return WithPool(handle, [&](const std::shared_ptr<MemoryPool>& pool) {
    return pool->SetAttribute(attribute, value);
  });
}

Code MemPoolTrimTo(PoolHandle handle, std::size_t bytes) {
  return WithPool(handle, [&](const std::shared_ptr<MemoryPool>& pool) {
    ForEachKept(*pool, [&](KeptMemory& kept) { kept.TrimTo(*pool, bytes); });
    return Code::kSuccess;
  });
}

Code MemPoolGetAccess(int* access, PoolHandle handle, MemoryLocation* location) {
  if (AnyNull(access, location)) return Code::kInvalidValue;
  return WithPool(handle, [&](const std::shared_ptr<MemoryPool>& pool) {
    const bool is_device = location->type == LocationType::kDevice;
    if (IsOwn(*pool, *location)) {
      *access = kReadWrite;
    } else {
      *access = pool->is_host() && is_device ? pool->GetAccess(location->id) : kNoAccess;
    }
    return Code::kSuccess;
  });
}

// A program may grant access to the pool's own location again. Pools of host memory are accessible
// to all devices, regardless of the settings; a device pool is accessible to no other device.
Code MemPoolSetAccess(PoolHandle handle, const AccessDescription* list, std::size_t count) {
  if ((count != 0 && AnyNull(list)) || count > kAccessListMax) return Code::kInvalidValue;
  return WithPool(handle, [&](const std::shared_ptr<MemoryPool>& pool) {
    for (const AccessDescription& wanted : std::span(list, count)) {
      const int access = static_cast<int>(wanted.access);
      const bool is_own = IsOwn(*pool, wanted.location);
      if (wanted.location.type != LocationType::kDevice && !is_own) return Code::kInvalidValue;
      if (pool->is_host() && !is_own) {
        if (access != kNoAccess && access != kReadOnly && access != kReadWrite) {
          return Code::kInvalidValue;
        }
        if (Driver::Get().DeviceAt(wanted.location.id) == nullptr) return Code::kInvalidDevice;
        pool->SetAccess(wanted.location.id, access);
        continue;
      }
      if (access == (is_own ? kReadWrite : kNoAccess)) continue;
      return Reject(
          is_own ? Code::kInvalidValue : Code::kInvalidDevice,
          "access rejected: a pool's own location always has read and write access, and no "
          "other device can access a device pool");
    }
    return Code::kSuccess;
  });
}

// ---- pool of a location

Code DeviceGetDefaultMemPool(PoolHandle* pool, int device) {
  if (AnyNull(pool)) return Code::kInvalidValue;
  return WithDevice(device, [&](CudaDevice& of) { return PutHandle(of.pools.Default(), pool); });
}

Code DeviceGetMemPool(PoolHandle* pool, int device) {
  if (AnyNull(pool)) return Code::kInvalidValue;
  return WithDevice(device, [&](CudaDevice& of) { return PutHandle(of.pools.Now(), pool); });
}

Code DeviceSetMemPool(int device, PoolHandle handle) {
  return WithDevice(device, [&](CudaDevice& of) { return SetPool(of.pools, handle); });
}

Code MemGetDefaultMemPool(PoolHandle* pool, MemoryLocation* location, AllocationType type) {
  if (AnyNull(pool, location)) return Code::kInvalidValue;
  return WithPlace(*location, type,
                   [&](PoolChoice& place) { return PutHandle(place.Default(), pool); });
}

Code MemGetMemPool(PoolHandle* pool, MemoryLocation* location, AllocationType type) {
  if (AnyNull(pool, location)) return Code::kInvalidValue;
  return WithPlace(*location, type,
                   [&](PoolChoice& place) { return PutHandle(place.Now(), pool); });
}

Code MemSetMemPool(MemoryLocation* location, AllocationType type, PoolHandle pool) {
  if (AnyNull(location)) return Code::kInvalidValue;
  return WithPlace(*location, type, [&](PoolChoice& place) { return SetPool(place, pool); });
}

}  // namespace gpushared::drop_in
