// SPDX-License-Identifier: Apache-2.0
// Memory that is allocated and freed in the order of a stream, and the pools that it comes from.
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
constexpr int kReadWrite = 3;
constexpr std::size_t kAccessListMax = 4096;  // Devices; a longer list is no list.

// Runs `use` with the pool behind the handle.
template <typename Use>
Code WithPool(PoolHandle handle, const Use& use) {
  Driver& driver = Driver::Get();
  if (const Code code = driver.Ready(); code != Code::kSuccess) return code;
  const std::shared_ptr<MemoryPool> pool = driver.pools.Find(handle);
  return pool == nullptr ? Code::kInvalidValue : use(pool);
}

// Runs `use` with the device of this ordinal.
template <typename Use>
Code WithDevice(int ordinal, const Use& use) {
  Driver& driver = Driver::Get();
  if (const Code code = driver.Ready(); code != Code::kSuccess) return code;
  CudaDevice* const device = driver.DeviceAt(ordinal);
  return device == nullptr ? Code::kInvalidDevice : use(*device);
}

Code PutHandle(const std::shared_ptr<MemoryPool>& pool, PoolHandle* handle) {
  if (pool == nullptr) return Code::kOutOfMemory;
  *handle = pool->handle();
  return Code::kSuccess;
}

// Memory of hosts has no pools here.
Code CheckPlace(const MemoryLocation& location, AllocationType type) {
  if (type == AllocationType::kPinned && location.type == LocationType::kDevice) {
    return Code::kSuccess;
  }
  return Refuse(Code::kNotSupported, "pool refused: only device memory has pools");
}

// Memory from `pool`, or, where that is null, from the pool of the stream's device.
Code Allocate(DevicePointer* address, std::size_t bytes, std::shared_ptr<MemoryPool> pool,
              const StreamChoice& stream) {
  Context& context = stream->context();
  Session& session = context.session();
  if (pool == nullptr) pool = Driver::Get().DeviceAt(context.ordinal())->Pool();
  if (pool == nullptr) return Code::kOutOfMemory;
  if (pool->ordinal() != context.ordinal()) {
    return Refuse(Code::kNotSupported,
                  "allocation refused: devices cannot reach each other's memory");
  }
  Result<std::unique_ptr<PooledMemory>> memory =
      session.kept_memory().Take(pool, bytes, stream->id());
  if (!memory.ok()) return session.CodeOf(memory.status());
  const std::uint64_t begin = (*memory)->address();
  if (!session.addresses().Insert({.address = begin,
                                   .bytes = bytes,
                                   .kind = BlockKind::kDevice,
                                   .context_id = context.id(),
                                   .buffer_id = NextBufferId()},
                                  std::move(*memory))) {
    return Refuse(Code::kOutOfMemory,
                  "allocation refused: this process has host memory at the "
                  "device's address");
  }
  *address = begin;
  return Code::kSuccess;
}

// No bytes are no error here, as cuda-core's tests expect of NVIDIA's driver; for cuMemAlloc they
// are one. Freeing null does nothing.
Code AllocateNothing(DevicePointer* address) {
  *address = 0;
  return Code::kSuccess;
}

// A capture makes a node. Then the memory is the graph's, whatever pool it was asked from.
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
    if (stream.is_captured()) [[unlikely]]
      return CaptureAllocation(address, bytes, stream);
    if (bytes == 0) return AllocateNothing(address);
    return Allocate(address, bytes, pool, stream);
  });
}

// Memory of no pool goes as by cuMemFree, after all commands that are queued.
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
  if (!freed.ok()) return session.CodeOf(freed.status());
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
    return Refuse(Code::kNotSupported,
                  "pool refused: its memory cannot be shared between processes or decompressed");
  }
  const Code code = CheckPlace(properties->location, properties->type);
  if (code != Code::kSuccess) return code;
  return WithDevice(properties->location.id, [&](const CudaDevice& device) {
    auto made = std::make_shared<MemoryPool>(device.ordinal(), properties->bytes_max);
    *handle = Driver::Get().pools.Insert(made);
    if (*handle == nullptr) return Code::kOutOfMemory;
    made->set_handle(*handle);
    return Code::kSuccess;
  });
}

// Allocations of it live on until they are freed.
Code MemPoolDestroy(PoolHandle handle) {
  return WithPool(handle, [&](const std::shared_ptr<MemoryPool>& pool) {
    CudaDevice& device = *Driver::Get().DeviceAt(pool->ordinal());
    if (pool == device.DefaultPool()) {
      return Refuse(Code::kInvalidValue, "the default pool of a device stays");
    }
    if (Driver::Get().pools.Remove(handle) == nullptr) return Code::kInvalidValue;
    pool->LetGo();
    device.ForgetPool(pool);
    if (const auto session = device.LiveSession()) session->kept_memory().Drop(*pool);
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
    const auto session = Driver::Get().DeviceAt(pool->ordinal())->LiveSession();
    if (session != nullptr) session->kept_memory().TrimTo(*pool, bytes);
    return Code::kSuccess;
  });
}

Code MemPoolGetAccess(int* access, PoolHandle handle, MemoryLocation* location) {
  if (AnyNull(access, location)) return Code::kInvalidValue;
  return WithPool(handle, [&](const std::shared_ptr<MemoryPool>& pool) {
    const bool is_own = location->type == LocationType::kDevice && location->id == pool->ordinal();
    *access = is_own ? kReadWrite : kNoAccess;
    return Code::kSuccess;
  });
}

// A pool's own device reaches it, and no other: programs may say so again.
Code MemPoolSetAccess(PoolHandle handle, const AccessDescription* list, std::size_t count) {
  if ((count != 0 && AnyNull(list)) || count > kAccessListMax) return Code::kInvalidValue;
  return WithPool(handle, [&](const std::shared_ptr<MemoryPool>& pool) {
    for (const AccessDescription& wanted : std::span(list, count)) {
      if (wanted.location.type != LocationType::kDevice) return Code::kInvalidValue;
      const bool is_own = wanted.location.id == pool->ordinal();
      if (static_cast<int>(wanted.access) == (is_own ? kReadWrite : kNoAccess)) continue;
      return Refuse(is_own ? Code::kInvalidValue : Code::kInvalidDevice,
                    "access refused: a pool's own device reads and writes it, no other reaches it");
    }
    return Code::kSuccess;
  });
}

// ---- which pool is a device's

Code DeviceGetDefaultMemPool(PoolHandle* pool, int device) {
  if (AnyNull(pool)) return Code::kInvalidValue;
  return WithDevice(device, [&](CudaDevice& of) { return PutHandle(of.DefaultPool(), pool); });
}

Code DeviceGetMemPool(PoolHandle* pool, int device) {
  if (AnyNull(pool)) return Code::kInvalidValue;
  return WithDevice(device, [&](CudaDevice& of) { return PutHandle(of.Pool(), pool); });
}

Code DeviceSetMemPool(int device, PoolHandle handle) {
  return WithDevice(device, [&](CudaDevice& of) {
    return WithPool(handle, [&](const std::shared_ptr<MemoryPool>& pool) {
      if (pool->ordinal() != of.ordinal()) return Code::kInvalidValue;
      of.SetPool(pool);
      return Code::kSuccess;
    });
  });
}

Code MemGetDefaultMemPool(PoolHandle* pool, MemoryLocation* location, AllocationType type) {
  if (AnyNull(pool, location)) return Code::kInvalidValue;
  const Code code = CheckPlace(*location, type);
  return code == Code::kSuccess ? DeviceGetDefaultMemPool(pool, location->id) : code;
}

Code MemGetMemPool(PoolHandle* pool, MemoryLocation* location, AllocationType type) {
  if (AnyNull(pool, location)) return Code::kInvalidValue;
  const Code code = CheckPlace(*location, type);
  return code == Code::kSuccess ? DeviceGetMemPool(pool, location->id) : code;
}

Code MemSetMemPool(MemoryLocation* location, AllocationType type, PoolHandle pool) {
  if (AnyNull(location)) return Code::kInvalidValue;
  const Code code = CheckPlace(*location, type);
  return code == Code::kSuccess ? DeviceSetMemPool(location->id, pool) : code;
}

}  // namespace gpushared::drop_in
