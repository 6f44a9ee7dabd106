// SPDX-License-Identifier: Apache-2.0
// Hooks of the calls that allocate, free and measure memory.

#include <algorithm>
#include <bit>
#include <optional>

#include "client_lib/drop_in/gate/admission.h"
#include "client_lib/drop_in/gate/driver_functions.h"
#include "client_lib/drop_in/gate/hooks.h"
#include "client_lib/drop_in/gate/memory.h"
#include "client_lib/drop_in/gate/streams.h"
#include "client_lib/drop_in/gate/up_to_max.h"

namespace gpushared::drop_in::gate {
namespace {

using Kind = MemoryQuota::Kind;

MemoryQuota::Allocation InCurrentContext(int gpu, std::uint64_t bytes) {
  MemoryQuota::Allocation allocation{.gpu = gpu, .bytes = bytes};
  if (driver_functions.ctx_get_current != nullptr) {
    (void)driver_functions.ctx_get_current(&allocation.context);
  }
  return allocation;
}

std::uint64_t KeyOf(DevicePointer address) { return address; }
template <typename Target>
std::uint64_t KeyOf(Target* handle) {
  return reinterpret_cast<std::uintptr_t>(handle);
}

// Calls `counted` if the memory that the calling thread allocates on the GPU is counted, and `call`
// if it is not. The first use of a GPU connects to the server, which sets the limit of the GPU.
template <typename Counted, typename Call>
Code Count(std::optional<int> gpu, Counted counted, Call call) {
  if (!gpu || !IsGpu(*gpu) || !MemoryQuota::Get().InOwner()) return call();
  const Code code = Admission::Of(*gpu).Connect();
  return code == Code::kSuccess ? counted(*gpu) : code;
}

// `get_bytes` returns the size after success, when the driver has stored `made`.
template <typename Made, typename Call, typename GetBytes>
Code Allocate(Kind kind, std::uint64_t bytes, const Made* made, Call call, GetBytes get_bytes) {
  const auto counted = [&](int gpu) {
    MemoryQuota& quota = MemoryQuota::Get();
    if (!quota.Reserve(gpu, bytes)) return Code::kOutOfMemory;
    const Code code = call();
    if (code == Code::kSuccess) {
      quota.Record(kind, KeyOf(*made), bytes, InCurrentContext(gpu, get_bytes()));
    } else {
      quota.GiveBack(gpu, bytes);
    }
    return code;
  };
  return Count(Admission::CurrentGpu(), counted, call);
}
template <typename Made, typename Call>
Code Allocate(Kind kind, std::uint64_t bytes, const Made* made, Call call) {
  return Allocate(kind, bytes, made, call, [=] { return bytes; });
}

template <typename Made, typename Call>
Code Free(Kind kind, Made made, Call call) {
  MemoryQuota& quota = MemoryQuota::Get();
  if (!quota.InOwner()) return call();
  const auto taken = quota.Take(kind, KeyOf(made));
  const Code code = call();
  if (!taken) return code;
  if (code == Code::kSuccess) {
    quota.Discount(*taken);
  } else {
    quota.PutBack(kind, KeyOf(made), *taken);
  }
  return code;
}

// ---- arrays

// Returns the number of bits of a texel. `format` is a CUarray_format. A texel of a format that
// includes the channels has a fixed number of bits; a texel of any other format has the bits of one
// channel times `channels`.
std::uint64_t BitsOfTexel(int format, unsigned channels) {
  switch (format) {
    case 0x01:  // UNSIGNED_INT8
    case 0x08:  // SIGNED_INT8
      return 8 * std::uint64_t{channels};
    case 0x02:  // UNSIGNED_INT16
    case 0x09:  // SIGNED_INT16
    case 0x10:  // HALF
      return 16 * std::uint64_t{channels};
    case 0x03:  // UNSIGNED_INT32
    case 0x0a:  // SIGNED_INT32
    case 0x20:  // FLOAT
      return 32 * std::uint64_t{channels};
    case 0x91:  // BC1_UNORM
    case 0x92:  // BC1_UNORM_SRGB
    case 0x97:  // BC4_UNORM
    case 0x98:  // BC4_SNORM
      return 4;
    case 0xc0:  // UNORM_INT8X1
    case 0xc6:  // SNORM_INT8X1
      return 8;
    case 0xb0:  // NV12
      return 12;
    case 0xa2:  // NV16
    case 0xa5:  // YUY2
    case 0xc1:  // UNORM_INT8X2
    case 0xc3:  // UNORM_INT16X1
    case 0xc7:  // SNORM_INT8X2
    case 0xc9:  // SNORM_INT16X1
      return 16;
    case 0x9f:  // P010
    case 0xa1:  // P016
    case 0xb2:  // Y444_PLANAR8
      return 24;
    case 0xb3:  // Y444_PLANAR10
      return 48;
    case 0xb1:  // Y416
    case 0xc5:  // UNORM_INT16X4
    case 0xcb:  // SNORM_INT16X4
      return 64;
    default:
      // BC2, BC3 and BC5 to BC7.
      if (format >= 0x93 && format <= 0x9e) return 8;
      // All other formats of CUDA 13, and perhaps later ones.
      return 32;
  }
}

// Whether the depth is a number of layers or faces.
bool HasLayers(const ArrayShape3d& shape) {
  return (shape.flags & (kArrayLayered | kArrayCubemap)) != 0;
}

std::uint64_t BytesOfLevel(const ArrayShape3d& shape, unsigned level) {
  const auto extent = [level](std::size_t texels) {
    return std::max<std::uint64_t>(std::uint64_t{texels} >> level, 1);
  };
  const std::uint64_t depth =
      HasLayers(shape) ? std::max<std::uint64_t>(shape.depth, 1) : extent(shape.depth);
  const std::uint64_t texels =
      MultiplyUpToMax(MultiplyUpToMax(extent(shape.width), extent(shape.height)), depth);
  const std::uint64_t bits = BitsOfTexel(shape.format, shape.channels);
  return AddUpToMax(MultiplyUpToMax(texels / 8, bits), (texels % 8 * bits + 7) / 8);
}

std::uint64_t BytesOfArray(const ArrayShape3d& shape, unsigned levels) {
  // The memory of such an array is allocated by cuMemCreate and counted there.
  if ((shape.flags & (kArraySparse | kArrayDeferredMapping)) != 0) return 0;
  std::uint64_t bytes = 0;
  // The driver adjusts the number of levels likewise: the last one may be a single texel.
  const std::uint64_t longest =
      std::max<std::uint64_t>({shape.width, shape.height, HasLayers(shape) ? 1 : shape.depth, 1});
  levels = std::clamp(levels, 1U, static_cast<unsigned>(std::bit_width(longest)));
  for (unsigned level = 0; level < levels; ++level) {
    bytes = AddUpToMax(bytes, BytesOfLevel(shape, level));
  }
  return bytes;
}

// ---- pools

bool IsHost(const MemoryLocation& location) {
  // The types after kHost are NUMA nodes of the host.
  return location.type >= LocationType::kHost;
}

// Returns the GPU of a stream, which need not be the current GPU. Returns the current GPU for a
// default stream, and for every stream if the driver cannot be queried (before CUDA 12.8).
std::optional<int> GpuOf(StreamHandle stream) {
  int gpu = -1;
  const bool is_default = reinterpret_cast<std::uintptr_t>(stream) <= 2;
  const bool is_told = !Admission::SeesOneGpu() && !is_default &&
                       driver_functions.stream_get_device != nullptr &&
                       driver_functions.stream_get_device(stream, &gpu) == Code::kSuccess;
  return is_told ? std::optional(gpu) : Admission::CurrentGpu();
}

// Returns the pool from which cuMemAllocAsync allocates; null if the driver does not report it.
PoolHandle PoolOf(int gpu) {
  PoolHandle pool = nullptr;
  return driver_functions.device_get_pool != nullptr &&
                 driver_functions.device_get_pool(&pool, gpu) == Code::kSuccess
             ? pool
             : nullptr;
}

// `get_pool` returns the pool on a GPU.
template <typename GetPool, typename Call>
Code AllocateInPool(const DevicePointer* address, std::size_t bytes, StreamHandle stream,
                    GetPool get_pool, Call call) {
  // During a capture the driver must not be queried. A captured call only adds a node to a graph;
  // the memory of any other call is counted when the pool's size is next read.
  if (open_captures.load(std::memory_order_acquire) > 0) return call();
  const auto counted = [&](int gpu) {
    MemoryQuota& quota = MemoryQuota::Get();
    const PoolHandle pool = get_pool(gpu);
    if (pool != nullptr && quota.IsHostPool(pool)) return call();
    const auto answer =
        pool == nullptr ? MemoryQuota::PoolAnswer::kUnknown : quota.ReserveInPool(pool, gpu, bytes);
    if (answer == MemoryQuota::PoolAnswer::kRejected) return Code::kOutOfMemory;
    if (answer == MemoryQuota::PoolAnswer::kUnknown) {
      return Allocate(Kind::kAddress, bytes, address, call);
    }
    const Code code = call();
    quota.SettleInPool(pool, bytes,
                       code == Code::kSuccess ? std::optional(*address) : std::nullopt);
    return code;
  };
  return Count(GpuOf(WithoutForm(stream)), counted, call);
}

template <typename Call>
Code GetPool(PoolHandle* pool, const MemoryLocation* location, Call call) {
  const Code code = call();
  if (code != Code::kSuccess || !MemoryQuota::Get().InOwner()) return code;
  if (IsHost(*location)) {
    MemoryQuota::Get().AddHostPool(*pool);
  } else if (location->type == LocationType::kDevice && IsGpu(location->id)) {
    MemoryQuota::Get().AddPool(*pool, location->id);
  }
  return code;
}

// Adds an allocation node to a graph, unless its memory exceeds what the limit leaves.
template <typename Call>
Code AddMemoryNode(const MemoryNodeParameters& parameters, Call call) {
  const MemoryLocation& location = parameters.pool.location;
  if (IsHost(location)) return call();
  const auto counted = [&](int gpu) {
    return MemoryQuota::Get().Fits(gpu, parameters.bytes) ? call() : Code::kOutOfMemory;
  };
  return Count(location.id, counted, call);
}
template <typename Call>
Code AddNode(const NodeParameters* parameters, Call call) {
  constexpr int kAllocation = 10;  // CU_GRAPH_NODE_TYPE_MEM_ALLOC.
  return parameters == nullptr || parameters->type != kAllocation
             ? call()
             : AddMemoryNode(parameters->allocation, call);
}

}  // namespace

Code MemAlloc(Code (*allocate)(DevicePointer*, std::size_t), DevicePointer* address,
              std::size_t bytes) {
  return Allocate(Kind::kAddress, bytes, address, [&] { return allocate(address, bytes); });
}

Code MemAllocPitch(Code (*allocate)(DevicePointer*, std::size_t*, std::size_t, std::size_t,
                                    unsigned),
                   DevicePointer* address, std::size_t* pitch, std::size_t width_bytes,
                   std::size_t height, unsigned element_bytes) {
  // Alignment of the pitch on all GPUs so far. If the driver chooses another pitch, the size is
  // corrected after the call.
  constexpr std::uint64_t kAlignment = 512;
  const std::uint64_t rows = width_bytes / kAlignment + (width_bytes % kAlignment != 0 ? 1 : 0);
  return Allocate(
      Kind::kAddress, MultiplyUpToMax(MultiplyUpToMax(rows, kAlignment), height), address,
      [&] { return allocate(address, pitch, width_bytes, height, element_bytes); },
      [&] { return MultiplyUpToMax(*pitch, height); });
}

Code MemAllocManaged(Code (*allocate)(DevicePointer*, std::size_t, unsigned),
                     DevicePointer* address, std::size_t bytes, unsigned flags) {
  return Allocate(Kind::kAddress, bytes, address, [&] { return allocate(address, bytes, flags); });
}

Code MemFree(Code (*free)(DevicePointer), DevicePointer address) {
  return Free(Kind::kAddress, address, [&] { return free(address); });
}

// ---- arrays

Code ArrayCreate(Code (*create)(ArrayHandle*, const ArrayShape*), ArrayHandle* array,
                 const ArrayShape* shape) {
  const auto call = [&] { return create(array, shape); };
  if (shape == nullptr) return call();
  const ArrayShape3d same = {.width = shape->width,
                             .height = shape->height,
                             .depth = 0,
                             .format = shape->format,
                             .channels = shape->channels,
                             .flags = 0};
  return Allocate(Kind::kArray, BytesOfArray(same, 1), array, call);
}

Code Array3dCreate(Code (*create)(ArrayHandle*, const ArrayShape3d*), ArrayHandle* array,
                   const ArrayShape3d* shape) {
  const auto call = [&] { return create(array, shape); };
  if (shape == nullptr) return call();
  return Allocate(Kind::kArray, BytesOfArray(*shape, 1), array, call);
}

Code ArrayDestroy(Code (*destroy)(ArrayHandle), ArrayHandle array) {
  return Free(Kind::kArray, array, [&] { return destroy(array); });
}

Code MipmappedArrayCreate(Code (*create)(MipmappedArrayHandle*, const ArrayShape3d*, unsigned),
                          MipmappedArrayHandle* array, const ArrayShape3d* shape, unsigned levels) {
  const auto call = [&] { return create(array, shape, levels); };
  if (shape == nullptr) return call();
  return Allocate(Kind::kMipmappedArray, BytesOfArray(*shape, levels), array, call);
}

Code MipmappedArrayDestroy(Code (*destroy)(MipmappedArrayHandle), MipmappedArrayHandle array) {
  return Free(Kind::kMipmappedArray, array, [&] { return destroy(array); });
}

// ---- physical memory

Code MemCreate(Code (*create)(std::uint64_t*, std::size_t, const AllocationProperties*,
                              std::uint64_t),
               std::uint64_t* handle, std::size_t bytes, const AllocationProperties* properties,
               std::uint64_t flags) {
  const auto call = [&] { return create(handle, bytes, properties, flags); };
  if (properties == nullptr || properties->location.type != LocationType::kDevice) return call();
  const auto counted = [&](int gpu) {
    MemoryQuota& quota = MemoryQuota::Get();
    if (!quota.Reserve(gpu, bytes)) return Code::kOutOfMemory;
    const Code code = call();
    if (code == Code::kSuccess) {
      quota.RecordPhysical(*handle, gpu, bytes);
    } else {
      quota.GiveBack(gpu, bytes);
    }
    return code;
  };
  return Count(properties->location.id, counted, call);
}

Code MemRetainAllocationHandle(Code (*retain)(std::uint64_t*, void*), std::uint64_t* handle,
                               void* address) {
  const Code code = retain(handle, address);
  if (code == Code::kSuccess && MemoryQuota::Get().InOwner()) {
    MemoryQuota::Get().AddReference(*handle);
  }
  return code;
}

Code MemImportFromShareableHandle(Code (*import)(std::uint64_t*, void*, int), std::uint64_t* handle,
                                  void* shareable, int type) {
  const Code code = import(handle, shareable, type);
  if (code == Code::kSuccess && MemoryQuota::Get().InOwner()) {
    MemoryQuota::Get().AddReference(*handle);
  }
  return code;
}

Code MemRelease(Code (*release)(std::uint64_t), std::uint64_t handle) {
  MemoryQuota& quota = MemoryQuota::Get();
  if (!quota.InOwner()) return release(handle);
  const auto drops = quota.DropReference(handle);
  const Code code = release(handle);
  quota.Finish(drops, code == Code::kSuccess);
  return code;
}

Code MemMap(Code (*map)(DevicePointer, std::size_t, std::size_t, std::uint64_t, std::uint64_t),
            DevicePointer address, std::size_t bytes, std::size_t offset, std::uint64_t handle,
            std::uint64_t flags) {
  const Code code = map(address, bytes, offset, handle, flags);
  if (code == Code::kSuccess && MemoryQuota::Get().InOwner()) {
    MemoryQuota::Get().AddMapping(address, handle);
  }
  return code;
}

Code MemUnmap(Code (*unmap)(DevicePointer, std::size_t), DevicePointer address, std::size_t bytes) {
  MemoryQuota& quota = MemoryQuota::Get();
  if (!quota.InOwner()) return unmap(address, bytes);
  const auto drops = quota.DropMappings(address, bytes);
  const Code code = unmap(address, bytes);
  quota.Finish(drops, code == Code::kSuccess);
  return code;
}

// ---- stream-ordered memory

Code MemAllocAsync(Code (*allocate)(DevicePointer*, std::size_t, StreamHandle),
                   DevicePointer* address, std::size_t bytes, StreamHandle stream) {
  return AllocateInPool(address, bytes, stream, PoolOf,
                        [&] { return allocate(address, bytes, stream); });
}

Code MemAllocFromPoolAsync(Code (*allocate)(DevicePointer*, std::size_t, PoolHandle, StreamHandle),
                           DevicePointer* address, std::size_t bytes, PoolHandle pool,
                           StreamHandle stream) {
  return AllocateInPool(
      address, bytes, stream, [&](int) { return pool; },
      [&] { return allocate(address, bytes, pool, stream); });
}

Code MemFreeAsync(Code (*free)(DevicePointer, StreamHandle), DevicePointer address,
                  StreamHandle stream) {
  const auto call = [&] { return free(address, stream); };
  // A captured call frees nothing; it adds a node to a graph.
  if (open_captures.load(std::memory_order_acquire) > 0 && IsCapturing(stream)) return call();
  // The memory may also come from cuMemAlloc.
  return Free(Kind::kAddress, address, call);
}

Code MemPoolCreate(Code (*create)(PoolHandle*, const PoolProperties*), PoolHandle* pool,
                   const PoolProperties* properties) {
  return GetPool(pool, properties == nullptr ? nullptr : &properties->location,
                 [&] { return create(pool, properties); });
}

Code MemGetPool(Code (*get)(PoolHandle*, MemoryLocation*, AllocationType), PoolHandle* pool,
                MemoryLocation* location, AllocationType type) {
  return GetPool(pool, location, [&] { return get(pool, location, type); });
}

Code MemPoolTrimTo(Code (*trim)(PoolHandle, std::size_t), PoolHandle pool, std::size_t bytes_kept) {
  const Code code = trim(pool, bytes_kept);
  if (code == Code::kSuccess && MemoryQuota::Get().InOwner()) MemoryQuota::Get().Refresh(pool);
  return code;
}

Code MemPoolDestroy(Code (*destroy)(PoolHandle), PoolHandle pool) {
  MemoryQuota& quota = MemoryQuota::Get();
  if (!quota.InOwner()) return destroy(pool);
  const auto taken = quota.TakePool(pool);
  const Code code = destroy(pool);
  if (!taken) return code;
  if (code == Code::kSuccess) {
    quota.DiscountPool(pool, *taken);
  } else {
    quota.PutBackPool(pool, *taken);
  }
  return code;
}

// ---- graphs

Code GraphAddMemAllocNode(Code (*add)(GraphNodeHandle*, GraphHandle, const GraphNodeHandle*,
                                      std::size_t, MemoryNodeParameters*),
                          GraphNodeHandle* node, GraphHandle graph, const GraphNodeHandle* needs,
                          std::size_t count, MemoryNodeParameters* parameters) {
  const auto call = [&] { return add(node, graph, needs, count, parameters); };
  return parameters == nullptr ? call() : AddMemoryNode(*parameters, call);
}

Code GraphAddNode(Code (*add)(GraphNodeHandle*, GraphHandle, const GraphNodeHandle*, std::size_t,
                              NodeParameters*),
                  GraphNodeHandle* node, GraphHandle graph, const GraphNodeHandle* needs,
                  std::size_t count, NodeParameters* parameters) {
  return AddNode(parameters, [&] { return add(node, graph, needs, count, parameters); });
}

Code GraphAddNodeV2(Code (*add)(GraphNodeHandle*, GraphHandle, const GraphNodeHandle*,
                                const EdgeData*, std::size_t, NodeParameters*),
                    GraphNodeHandle* node, GraphHandle graph, const GraphNodeHandle* needs,
                    const EdgeData* edges, std::size_t count, NodeParameters* parameters) {
  return AddNode(parameters, [&] { return add(node, graph, needs, edges, count, parameters); });
}

// ---- sizes

Code MemGetInfo(Code (*get)(std::size_t*, std::size_t*), std::size_t* free_bytes,
                std::size_t* total_bytes) {
  const auto call = [&] { return get(free_bytes, total_bytes); };
  const auto counted = [&](int gpu) {
    const Code code = call();
    if (code != Code::kSuccess) return code;
    MemoryQuota& quota = MemoryQuota::Get();
    quota.RefreshPools(gpu);
    if (free_bytes != nullptr) *free_bytes = std::min<std::uint64_t>(*free_bytes, quota.Left(gpu));
    if (total_bytes != nullptr) {
      *total_bytes = std::min<std::uint64_t>(*total_bytes, quota.GetLimit(gpu));
    }
    return code;
  };
  return Count(Admission::CurrentGpu(), counted, call);
}

Code DeviceTotalMem(Code (*get)(std::size_t*, int), std::size_t* bytes, int device) {
  const Code code = get(bytes, device);
  MemoryQuota& quota = MemoryQuota::Get();
  // Does not connect to the server, because programs query GPUs that they do not use.
  if (code == Code::kSuccess && IsGpu(device) && quota.InOwner()) {
    *bytes = std::min<std::uint64_t>(*bytes, quota.GetLimit(device));
  }
  return code;
}

}  // namespace gpushared::drop_in::gate
