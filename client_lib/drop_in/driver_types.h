// SPDX-License-Identifier: Apache-2.0
// Driver interface types for the drop-in: the declarations that it shares with the server
// (device::cuda), and further ones in the same style. tests/drop_in/driver_abi_test.cpp compares
// each with the real header.
// cuda.h itself is not used, because a program may pass any number where cuda.h has an enumeration,
// and reading it as that enumeration is undefined in C++; such fields are ints here.

#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_DRIVER_TYPES_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_DRIVER_TYPES_H_

#include <cstddef>
#include <cstdint>

#include "common/cuda_driver/driver_types.h"

namespace gpushared::drop_in {

using device::cuda::Access;
using device::cuda::AccessDescription;
using device::cuda::AllocationProperties;
using device::cuda::AllocationType;
using device::cuda::Code;
using device::cuda::Copy2d;
using device::cuda::HostFunction;
using device::cuda::JitOption;
using device::cuda::KernelHandle;
using device::cuda::LaunchAttribute;
using device::cuda::LaunchAttributeId;
using device::cuda::LaunchConfig;
using device::cuda::LoadingMode;
using device::cuda::LocationType;
using device::cuda::MemoryLocation;
using device::cuda::MemoryType;
using device::cuda::ProcAddressResult;
using device::cuda::Uuid;

// Handles of programs. The pointers are not addresses; see handle_table.h.
using ContextHandle = device::cuda::Context;
using StreamHandle = device::cuda::Stream;
using EventHandle = device::cuda::Event;
using ModuleHandle = device::cuda::Module;
using FunctionHandle = device::cuda::Function;
using ArrayHandle = device::cuda::Array;
using GreenContextHandle = device::cuda::GreenContext;
using GraphHandle = device::cuda::DriverGraph;
using GraphNodeHandle = device::cuda::DriverNode;
using GraphExecHandle = device::cuda::DriverExec;
using LibraryHandle = struct LibraryTarget*;
using LinkHandle = struct LinkTarget*;
using PoolHandle = struct PoolTarget*;
using MipmappedArrayHandle = struct MipmappedArrayTarget*;
using UserObjectHandle = struct UserObjectTarget*;
using AllocationHandle = struct AllocationTarget*;  // In programs, a 64-bit number.

using DevicePointer = std::uint64_t;  // CUdeviceptr.
using TextureHandle = std::uint64_t;  // CUtexObject and CUsurfObject: the address of the record.

// Allocations of at least this size are zeroed, as by NVIDIA's driver.
inline constexpr std::size_t kLargeBytes = std::size_t{2} << 20;

// Streams that exist in every context. A null handle means one of them, depending on whether the
// program called the legacy or the per-thread symbol.
inline StreamHandle LegacyStream() { return reinterpret_cast<StreamHandle>(1); }
inline StreamHandle PerThreadStream() { return reinterpret_cast<StreamHandle>(2); }

using Copy3d = device::cuda::CopyNode;  // CUDA_MEMCPY3D.
using CopySide = device::cuda::CopyNodeSide;
struct PeerCopy3d : Copy3d {};  // CUDA_MEMCPY3D_PEER.

// CUmemcpyAttributes.
struct CopyHints {
  int source_order;
  MemoryLocation source, destination;
  unsigned flags;
};
static_assert(sizeof(CopyHints) == 24);

// CUextent3D, in texels, or in bytes if no array is copied.
struct CopyExtent {
  std::size_t width, height, depth;
};

// CUmemcpy3DOperand.
struct CopyOperand {
  static constexpr int kPointer = 1;
  static constexpr int kArray = 2;

  int type;
  union {
    struct {
      DevicePointer address;
      std::size_t row_length, layer_height;  // 0: the same as the extent.
      MemoryLocation location;
    } memory;
    struct {
      ArrayHandle array;
      std::size_t x, y, z;
    } array;
  } in;

  bool is_known() const { return type == kPointer || type == kArray; }
};

// CUDA_MEMCPY3D_BATCH_OP.
struct CopyOperation {
  CopyOperand source, destination;
  CopyExtent extent;
  int source_order;
  unsigned flags;
};
static_assert(sizeof(CopyOperation) == 112);

// CUDA_ARRAY_DESCRIPTOR.
struct ArrayShape {
  std::size_t width, height;  // Texels; the height of a one-dimensional array is 0.
  int format;
  unsigned channels;
};
static_assert(sizeof(ArrayShape) == 24);

// CUDA_ARRAY3D_DESCRIPTOR.
struct ArrayShape3d {
  std::size_t width, height, depth;  // Texels; 0 for dimensions that the array does not have.
  int format;
  unsigned channels;
  unsigned flags;
};
static_assert(sizeof(ArrayShape3d) == 40);
inline constexpr unsigned kArrayForSurfaces = 0x02;
inline constexpr unsigned kArrayLayered = 0x01, kArrayCubemap = 0x04;
// The program maps physical memory into the array.
inline constexpr unsigned kArraySparse = 0x40, kArrayDeferredMapping = 0x80;
inline constexpr unsigned kArrayFlags = 0x1ff;  // All flags that exist.

// CUDA_RESOURCE_DESC: location of the texels of a texture or surface.
struct TextureResource {
  enum Type : int { kArray = 0, kMipmappedArray = 1, kLinear = 2, kPitched = 3 };
  struct Linear {
    DevicePointer address;
    int format;
    unsigned channels;
    std::size_t bytes;
  };
  struct Pitched {
    DevicePointer address;
    int format;
    unsigned channels;
    std::size_t width, height;  // Texels.
    std::size_t pitch_bytes;
  };
  int type;
  union {
    ArrayHandle array;
    Linear linear;
    Pitched pitched;
    int reserved[32];
  } in;
  unsigned flags;
};
static_assert(sizeof(TextureResource) == 144);

// CUDA_TEXTURE_DESC: how a texture is sampled. The modes have the numbers of TextureRecord.
struct TextureMode {
  int address_modes[3];
  int filter;
  unsigned flags;
  unsigned anisotropy_max;
  int level_filter;
  float level_bias, level_least, level_most;
  float border[4];
  int reserved[12];
};
static_assert(sizeof(TextureMode) == 104);
inline constexpr unsigned kReadAsInteger = 0x01;
inline constexpr unsigned kNormalisedCoordinates = 0x02;
inline constexpr unsigned kNoTrilinearShortcut = 0x20;
inline constexpr unsigned kTextureFlags = 0x73;  // All flags that exist.

// CUDA_RESOURCE_VIEW_DESC.
struct TextureView {
  int format;
  std::size_t width, height, depth;
  unsigned level_first, level_last;
  unsigned layer_first, layer_last;
  unsigned reserved[16];
};
static_assert(sizeof(TextureView) == 112);
// CUmemPoolProps.
struct PoolProperties {
  AllocationType type;
  int handle_types;
  MemoryLocation location;
  void* security_attributes;
  std::size_t bytes_max;
  unsigned short usage;
  unsigned char reserved[54];
};
static_assert(sizeof(PoolProperties) == 88);

// CUctxCreateParams.
struct ContextParameters {
  void* affinities;
  int affinity_count;
  const void* graphics;
};
static_assert(sizeof(ContextParameters) == 24);

// CUdevprop.
struct LegacyDeviceProperties {
  int threads_per_block_max;
  int block_max[3];
  int grid_max[3];
  int shared_bytes_per_block;
  int constant_bytes;
  int warp_threads;
  int pitch_bytes_max;
  int registers_per_block;
  int clock_kilohertz;
  int texture_alignment;
};
static_assert(sizeof(LegacyDeviceProperties) == 56);

// ---- parameters of graph nodes: CUDA_*_NODE_PARAMS

struct KernelNodeParametersV1 {
  FunctionHandle function;
  unsigned grid_x, grid_y, grid_z;
  unsigned block_x, block_y, block_z;
  unsigned shared_bytes;
  void** parameters;
  void** extra;
};
struct KernelNodeParameters {
  KernelNodeParametersV1 launch;
  KernelHandle kernel;  // Used if there is no function.
  ContextHandle context;
};
static_assert(sizeof(KernelNodeParameters) == 72);

using FillNodeParameters = device::cuda::FillNode;

struct CopyNodeParameters {
  int flags;
  int reserved;
  ContextHandle context;
  Copy3d copy;
};
static_assert(sizeof(CopyNodeParameters) == 216);

struct HostNodeParameters {
  HostFunction function;
  void* data;
};

// CUDA_MEM_ALLOC_NODE_PARAMS.
struct MemoryNodeParameters {
  PoolProperties pool;
  const AccessDescription* access;
  std::size_t access_count;
  std::size_t bytes;
  DevicePointer address;  // Output.
};
static_assert(sizeof(MemoryNodeParameters) == 120);

struct ChildNodeParameters {
  GraphHandle graph;
  int ownership;
};

// CUgraphNodeParams.
struct NodeParameters {
  int type;
  int reserved0[3];
  union {
    long long reserved1[29];
    KernelNodeParameters kernel;
    CopyNodeParameters copy;
    FillNodeParameters fill;  // Followed by a context.
    HostNodeParameters host;
    ChildNodeParameters child;
    EventHandle event;
    MemoryNodeParameters allocation;
    DevicePointer freed;
  };
  long long reserved2;
};
static_assert(sizeof(NodeParameters) == 256);

struct EdgeData {
  unsigned char from_port;
  unsigned char to_port;
  unsigned char type;
  unsigned char reserved[5];
};
static_assert(sizeof(EdgeData) == 8);

struct InstantiateParameters {
  std::uint64_t flags;
  StreamHandle upload_stream;
  GraphNodeHandle error_node;
  int result;
};
static_assert(sizeof(InstantiateParameters) == 32);

struct UpdateResultInfo {
  int result;
  GraphNodeHandle error_node;
  GraphNodeHandle error_from_node;
};
static_assert(sizeof(UpdateResultInfo) == 24);

using BlockToSharedBytes = std::size_t (*)(int block_threads);
using StreamCallback = void (*)(StreamHandle stream, Code status, void* data);

}  // namespace gpushared::drop_in

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_DRIVER_TYPES_H_
