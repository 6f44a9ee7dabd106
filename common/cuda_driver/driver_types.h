// SPDX-License-Identifier: Apache-2.0
// Own declarations of the parts of the CUDA driver's C interface that gpushared uses, so that
// gpushared can be built without CUDA headers. tests/server/device/cuda_driver_abi_test.cpp
// compares the declarations with the real header.

#ifndef GPUSHARED_COMMON_CUDA_DRIVER_DRIVER_TYPES_H_
#define GPUSHARED_COMMON_CUDA_DRIVER_DRIVER_TYPES_H_

#include <cstddef>
#include <cstdint>

namespace gpushared::device::cuda {

// Result of every call. A newer driver may return numbers that are not listed.
enum class [[nodiscard]] Code : int{
#define GPUSHARED_CUDA_ERROR(number, ours, name, text) ours = number,
#include "common/cuda_driver/driver_errors.inc"
#undef GPUSHARED_CUDA_ERROR
};

// Handles. Their target types are opaque.
using Context = struct ContextTarget*;
using Module = struct ModuleTarget*;
using Function = struct FunctionTarget*;
using Stream = struct StreamTarget*;
using Event = struct EventTarget*;
using Array = struct ArrayTarget*;
using GreenContext = struct GreenContextTarget*;
using ResourceDescription = struct ResourceDescriptionTarget*;
using DriverGraph = struct GraphTarget*;
using DriverNode = struct GraphNodeTarget*;  // Owned by its graph.
using DriverExec = struct GraphExecTarget*;  // An instantiated graph.
using KernelHandle = struct KernelTarget*;
using DeviceNumber = int;             // Index among the devices visible to this process.
using DeviceAddress = std::uint64_t;  // CUdeviceptr.
using MemoryHandle = std::uint64_t;   // Physical memory, mapped or not.
// Called on a thread of the driver; must not call the driver.
using HostFunction = void (*)(void*);

enum class DeviceAttribute : int {
#define GPUSHARED_CUDA_ATTRIBUTE(number, ours, name) ours = number,
#include "common/cuda_driver/driver_attributes.inc"
#undef GPUSHARED_CUDA_ATTRIBUTE
};

constexpr bool IsLimitOfTextures(DeviceAttribute id) {
  using enum DeviceAttribute;
  return (id >= kTexture1dWidthMax && id <= kTexture3dDepthMax) ||
         (id >= kSurface1dWidthMax && id <= kSurface3dDepthMax) ||
         (id >= kTexture1dLinearWidthMax && id <= kTexture2dLinearPitchBytesMax);
}

enum class ComputeMode : int { kDefault = 0, kProhibited = 2, kExclusiveProcess = 3 };

enum class FunctionAttribute : int {
  kThreadsPerBlockMax = 0,
  kSharedBytes = 1,  // Static shared memory per block.
  kConstantBytes = 2,
  kLocalBytes = 3,  // Local memory per thread.
  kRegisters = 4,
  kPtxVersion = 5,
  kBinaryVersion = 6,
  kDynamicSharedBytesMax = 8,
  kClusterSizeMustBeSet = 10,
  kRequiredClusterX = 11,
  kRequiredClusterY = 12,
  kRequiredClusterZ = 13,
  kNonPortableClusterSizeAllowed = 14,
};

enum class Limit : int { kStackBytes = 0, kPrintfBytes = 1, kHeapBytes = 2 };

// Flags of cuDevicePrimaryCtxSetFlags.
inline constexpr unsigned kContextSpin = 0x01;
inline constexpr unsigned kContextBlockingSync = 0x04;
inline constexpr unsigned kContextKeepLocalMemory = 0x10;
// Flags of stream and event creation.
inline constexpr unsigned kStreamNonBlocking = 0x1;
inline constexpr unsigned kEventBlockingSync = 0x1;
inline constexpr unsigned kEventDisableTiming = 0x2;
// Flags of cuMemHostAlloc and cuMemHostRegister.
inline constexpr unsigned kHostPortable = 0x01;
inline constexpr unsigned kHostDeviceMap = 0x02;
inline constexpr unsigned kHostRegisterReadOnly = 0x08;
// Keys in the `extra` array of a launch. The array passes the whole argument buffer, instead of
// separate parameters.
inline constexpr std::uintptr_t kLaunchEnd = 0;
inline constexpr std::uintptr_t kLaunchBuffer = 1;  // Followed by the buffer's address.
// Followed by the address of a std::size_t with the buffer's size.
inline constexpr std::uintptr_t kLaunchBufferBytes = 2;
// Flags of cuStreamWriteValue.
inline constexpr unsigned kWriteValueDefault = 0x0;
inline constexpr unsigned kWriteValueNoBarrier = 0x1;
// Flags of cuGreenCtxCreate and of cuDevSmResourceSplitByCount.
inline constexpr unsigned kGreenContextDefaultStream = 0x1;  // Always required.
inline constexpr unsigned kSplitIgnoreCoscheduling = 0x1;

enum class JitOption : int {
  kMaxRegisters = 0,
  kWallTime = 2,
  kInfoLogBuffer = 3,
  kInfoLogBytes = 4,
  kErrorLogBuffer = 5,
  kErrorLogBytes = 6,
};

enum class LoadingMode : int { kEager = 1, kLazy = 2 };

enum class ProcAddressResult : int { kFound = 0, kNotFound = 1, kVersionNotSufficient = 2 };

struct Uuid {
  char bytes[16];
};
static_assert(sizeof(Uuid) == 16);

enum class LocationType : int { kDevice = 1, kHost = 2 };
struct MemoryLocation {
  LocationType type = LocationType::kDevice;
  int id = 0;
};
static_assert(sizeof(MemoryLocation) == 8);

enum class AllocationType : int { kPinned = 1 };
enum class Granularity : int { kMinimum = 0, kRecommended = 1 };
struct AllocationProperties {
  AllocationType type = AllocationType::kPinned;
  int requested_handle_types = 0;
  MemoryLocation location;
  void* win32_handle_metadata = nullptr;
  struct {
    unsigned char compression = 0;
    unsigned char gpu_direct_rdma = 0;
    unsigned short usage = 0;
    unsigned char reserved[4] = {};
  } flags;
};
static_assert(sizeof(AllocationProperties) == 32);

enum class Access : int { kNone = 0, kRead = 1, kReadWrite = 3 };
struct AccessDescription {
  MemoryLocation location;
  Access access = Access::kReadWrite;
};
static_assert(sizeof(AccessDescription) == 12);

enum class MemoryType : int { kHost = 1, kDevice = 2, kArray = 3, kUnified = 4 };
struct Copy2d {
  std::size_t source_x_bytes = 0;
  std::size_t source_y = 0;
  MemoryType source_type = MemoryType::kHost;
  const void* source_host = nullptr;
  DeviceAddress source_device = 0;
  Array source_array = nullptr;
  std::size_t source_pitch = 0;
  std::size_t destination_x_bytes = 0;
  std::size_t destination_y = 0;
  MemoryType destination_type = MemoryType::kHost;
  void* destination_host = nullptr;
  DeviceAddress destination_device = 0;
  Array destination_array = nullptr;
  std::size_t destination_pitch = 0;
  std::size_t width_bytes = 0;
  std::size_t height = 0;
};
static_assert(sizeof(Copy2d) == 128 && offsetof(Copy2d, destination_x_bytes) == 56);

// Graph nodes.
struct KernelNode {
  Function function = nullptr;
  unsigned grid_x = 1, grid_y = 1, grid_z = 1;
  unsigned block_x = 1, block_y = 1, block_z = 1;
  unsigned shared_bytes = 0;
  void** parameters = nullptr;
  void** extra = nullptr;  // Same as in a launch.
  KernelHandle kernel = nullptr;
  Context context = nullptr;
};
static_assert(sizeof(KernelNode) == 72 && offsetof(KernelNode, parameters) == 40);

struct FillNode {
  DeviceAddress destination;
  std::size_t pitch_bytes;
  unsigned value;
  unsigned element_bytes;
  std::size_t width_elements;
  std::size_t height;
};
static_assert(sizeof(FillNode) == 40 && offsetof(FillNode, width_elements) == 24);

// Source or destination of a CopyNode.
struct CopyNodeSide {
  std::size_t x_bytes = 0, y = 0, z = 0, level = 0;
  MemoryType type = MemoryType::kHost;
  void* host = nullptr;
  DeviceAddress device = 0;
  Array array = nullptr;
  Context context = nullptr;  // For copies between devices only.
  std::size_t pitch = 0, height = 0;
};
static_assert(sizeof(CopyNodeSide) == 88);
struct CopyNode {
  CopyNodeSide source, destination;
  std::size_t width_bytes = 0, height = 1, depth = 1;
};
static_assert(sizeof(CopyNode) == 200);

enum class LaunchAttributeId : int {
  kIgnore = 0,
  kCooperative = 2,
  kClusterDimension = 4,
  kPriority = 8,
};
struct LaunchAttribute {
  LaunchAttributeId id = LaunchAttributeId::kIgnore;
  char padding[4] = {};
  union alignas(8) Value {
    char bytes[64] = {};
    int cooperative;
    struct {
      unsigned x, y, z;
    } cluster;
    int priority;
  } value;
};
static_assert(sizeof(LaunchAttribute) == 72 && offsetof(LaunchAttribute, value) == 8);

struct LaunchConfig {
  unsigned grid_x = 1, grid_y = 1, grid_z = 1;
  unsigned block_x = 1, block_y = 1, block_z = 1;
  unsigned shared_bytes = 0;
  Stream stream = nullptr;
  LaunchAttribute* attributes = nullptr;
  unsigned attribute_count = 0;
};
static_assert(sizeof(LaunchConfig) == 56 && offsetof(LaunchConfig, stream) == 32);

enum class ResourceType : int { kInvalid = 0, kMultiprocessors = 1 };
// Created by the driver; only the named members may be read, and none written.
struct Resource {
  struct Multiprocessors {
    unsigned multiprocessors;
    unsigned partition_least;  // Zero before CUDA 13.0.
    unsigned coscheduled_multiple;
  };
  ResourceType type = ResourceType::kInvalid;
  unsigned char padding[92] = {};
  union {
    unsigned char bytes[48] = {};
    Multiprocessors sm;
  };
};
static_assert(sizeof(Resource) == 144 && offsetof(Resource, sm) == 96);

}  // namespace gpushared::device::cuda

#endif  // GPUSHARED_COMMON_CUDA_DRIVER_DRIVER_TYPES_H_
