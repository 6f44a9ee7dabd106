// SPDX-License-Identifier: Apache-2.0
// The numbers of CUdevice_attribute. What the device tells about itself comes from the server. The
// cpu device executes PTX of compute capability 8.0 with the limits of such a GPU.
#include "client_lib/drop_in/device_attributes.h"

#include <algorithm>
#include <limits>

namespace gpushared::drop_in {
namespace {

// The last number that CUDA 13.5 gives to an attribute.
constexpr int kAttributeLast = 161;

int Clamped(std::uint64_t value) {
  return static_cast<int>(std::min<std::uint64_t>(value, std::numeric_limits<int>::max()));
}

// Limits of compute capability 8.0 and plain facts, where the server's description is silent.
int FixedAttribute(int id) {
  switch (id) {
    case kConstantBytes:
      return 65536;
    case kWarpThreads:
      return 32;
    case kPitchBytesMax:
      return std::numeric_limits<int>::max();
    case kRegistersPerBlock:
      return 65536;
    case kClockKilohertz:
      return 1'000'000;
    case kTextureAlignment:
      return 512;
    case 15:
      return 1;  // Copies overlap with kernels.
    case 31:
      return 1;  // Kernels of several streams run at the same time.
    case 36:
      return 1'000'000;  // Memory clock, kHz.
    case 37:
      return 64;  // Memory bus, bits.
    case 38:
      return 1 << 20;  // L2 cache, bytes.
    case kThreadsPerMultiprocessor:
      return 2048;
    case 40:
      return 2;  // Copy engines.
    case 41:
      return 1;  // Unified addressing.
    case 51:
      return 32;  // Pitch alignment of textures.
    case kComputeMajor:
      return 8;
    case kComputeMinor:
      return 0;
    case 79:
    case 80:
      return 1;  // Global and local loads pass the L1 cache.
    case kSharedBytesPerMultiprocessor:
      return 164 * 1024;
    case 82:
      return 65536;  // Registers per multiprocessor.
    case 87:
      return 2;  // Single to double precision.
    case 90:
      return 1;  // Kernels can be preempted.
    case 95:
      return 1;  // Cooperative launches.
    case 99:
      return 1;  // Host memory can be registered.
    case kBlocksPerMultiprocessor:
      return 32;
    default:
      return 0;
  }
}

}  // namespace

int DeviceAttribute(const DeviceProperties& device, int id) {
  switch (id) {
    case kThreadsPerBlockMax:
      return Clamped(device.threads_per_block_max);
    case 2:
    case 3:
    case 4:
      return Clamped(device.block_max[static_cast<std::size_t>(id - 2)]);
    case 5:
    case 6:
    case 7:
      return Clamped(device.grid_max[static_cast<std::size_t>(id - 5)]);
    // Without an opt-in a kernel gets 48 KiB, as on every GPU.
    case kSharedBytesPerBlock:
      return std::min(Clamped(device.shared_bytes_per_block_max), 49152);
    case kMultiprocessors:
      return std::max(Clamped(device.multiprocessors), 1);
    case kSharedBytesOptIn:
      return Clamped(device.shared_bytes_per_block_max);
    default:
      return FixedAttribute(id);
  }
}

Code DeviceAttribute(const DeviceProperties& device, int id, int& value) {
  if (id < 1 || id > kAttributeLast) return Code::kInvalidValue;
  value = DeviceAttribute(device, id);
  return Code::kSuccess;
}

}  // namespace gpushared::drop_in
