// SPDX-License-Identifier: Apache-2.0
#include "client_lib/drop_in/device_attributes.h"

#include <algorithm>
#include <limits>

namespace gpushared::drop_in {
namespace {

// Highest attribute number of CUDA 13.5.
constexpr int kAttributeLast = 161;

int Clamped(std::uint64_t value) {
  return static_cast<int>(std::min<std::uint64_t>(value, std::numeric_limits<int>::max()));
}

// Returns whether an attribute is a fact about the hardware. Attributes for features that a driver
// adds (concurrent managed access, sharing between processes) are not passed on, because this
// library does not implement them.
bool IsPassedOn(Attribute id) {
  switch (id) {
    case Attribute::kConstantBytes:
    case Attribute::kPitchBytesMax:
    case Attribute::kRegistersPerBlockMax:
    case Attribute::kClockKilohertz:
    case Attribute::kTexture1dWidthMax:
    case Attribute::kTexture2dWidthMax:
    case Attribute::kTexture2dHeightMax:
    case Attribute::kTexture3dWidthMax:
    case Attribute::kTexture3dHeightMax:
    case Attribute::kTexture3dDepthMax:
    case Attribute::kSurface1dWidthMax:
    case Attribute::kSurface2dWidthMax:
    case Attribute::kSurface2dHeightMax:
    case Attribute::kSurface3dWidthMax:
    case Attribute::kSurface3dHeightMax:
    case Attribute::kSurface3dDepthMax:
    case Attribute::kTexture1dLinearWidthMax:
    case Attribute::kTexture2dLinearWidthMax:
    case Attribute::kTexture2dLinearHeightMax:
    case Attribute::kTexture2dLinearPitchBytesMax:
    case Attribute::kTextureAlignment:
    case Attribute::kCopiesBesideKernels:
    case Attribute::kSurfaceAlignment:
    case Attribute::kConcurrentKernels:
    case Attribute::kMemoryClockKilohertz:
    case Attribute::kMemoryBusBits:
    case Attribute::kL2CacheBytes:
    case Attribute::kThreadsPerMultiprocessorMax:
    case Attribute::kCopyEngines:
    case Attribute::kTexturePitchAlignment:
    case Attribute::kComputeCapabilityMajor:
    case Attribute::kComputeCapabilityMinor:
    case Attribute::kGlobalL1Cache:
    case Attribute::kLocalL1Cache:
    case Attribute::kSharedBytesPerMultiprocessor:
    case Attribute::kRegistersPerMultiprocessor:
    case Attribute::kSingleToDoubleRatio:
    case Attribute::kComputePreemption:
    case Attribute::kCooperativeLaunch:
    case Attribute::kVirtualMemory:
    case Attribute::kBlocksPerMultiprocessorMax:
    case Attribute::kReservedSharedBytesPerBlock:
    case Attribute::kClusterLaunch:
      return true;
    default:
      return false;
  }
}

}  // namespace

int AttributeFor(const DeviceProperties& device, Attribute id) {
  switch (id) {
    // Launches are checked against these.
    case Attribute::kThreadsPerBlockMax:
      return Clamped(device.threads_per_block_max);
    case Attribute::kBlockXMax:
    case Attribute::kBlockYMax:
    case Attribute::kBlockZMax:
      return Clamped(device.block_max[static_cast<std::size_t>(id) -
                                      static_cast<std::size_t>(Attribute::kBlockXMax)]);
    case Attribute::kGridXMax:
    case Attribute::kGridYMax:
    case Attribute::kGridZMax:
      return Clamped(device.grid_max[static_cast<std::size_t>(id) -
                                     static_cast<std::size_t>(Attribute::kGridXMax)]);
    // Without an opt-in a kernel gets 48 KiB, as on every GPU.
    case Attribute::kSharedBytesPerBlockMax:
      return std::min(Clamped(device.shared_bytes_per_block_max), 49152);
    case Attribute::kSharedBytesPerBlockOptIn:
      return Clamped(device.shared_bytes_per_block_max);
    case Attribute::kMultiprocessors:
      return std::max(Clamped(device.multiprocessors), 1);
    // These attributes are the same on every existing device.
    case Attribute::kWarpThreads:
      return 32;
    // Implemented by this library.
    case Attribute::kMapHostMemory:
    case Attribute::kManagedMemory:
    case Attribute::kUnifiedAddressing:
    case Attribute::kHostRegister:
    case Attribute::kMemoryPools:
    case Attribute::kHostMemoryPools:
      return 1;
    default:
      return IsPassedOn(id)
                 ? std::max(device.Attribute(static_cast<std::uint32_t>(id)).value_or(0), 0)
                 : 0;
  }
}

Code AttributeFor(const DeviceProperties& device, int id, int& value) {
  if (id < 1 || id > kAttributeLast) return Code::kInvalidValue;
  value = AttributeFor(device, static_cast<Attribute>(id));
  return Code::kSuccess;
}

}  // namespace gpushared::drop_in
