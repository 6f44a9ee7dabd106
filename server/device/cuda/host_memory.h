// SPDX-License-Identifier: Apache-2.0
// Host memory that the GPU can access directly, and bounce buffers for memory that it cannot.

#ifndef GPUSHARED_SERVER_DEVICE_CUDA_HOST_MEMORY_H_
#define GPUSHARED_SERVER_DEVICE_CUDA_HOST_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "gpushared/mutex.h"
#include "gpushared/result.h"
#include "gpushared/status.h"

#include "server/device/cuda/cuda_context.h"
#include "server/device/device.h"

namespace gpushared::device::cuda {

// Host memory that is registered with the driver.
//
// Thread-safe: the lock is held for lookups and updates, never across a driver call.
class PinnedRegions {
 public:
  explicit PinnedRegions(std::shared_ptr<CudaContext> context) : context_(std::move(context)) {}

  // Must not be called on the device thread, because registering faults in and locks every page.
  static Result<std::unique_ptr<PinnedMemory>> Pin(std::shared_ptr<PinnedRegions> regions,
                                                   std::span<std::byte> memory);
  bool Covers(const std::byte* from, std::uint64_t bytes) const;

 private:
  class Registration;
  const std::shared_ptr<CudaContext> context_;
  mutable Mutex mutex_;
  std::map<std::uintptr_t, std::size_t> regions_
      GPUSHARED_GUARDED_BY(mutex_);  // Bytes, by address.
};

// Buffers for copies of unregistered memory, which the driver would otherwise copy synchronously on
// the calling thread.
//
// Confined to the device thread.
class BounceBuffers {
 public:
  // The CPU copies this much in 20 µs.
  static constexpr std::size_t kBytes = std::size_t{256} * 1024;
  static constexpr std::size_t kCount = 8;

  static Result<std::unique_ptr<BounceBuffers>> Create(std::shared_ptr<CudaContext> context);
  BounceBuffers(const BounceBuffers&) = delete;
  BounceBuffers& operator=(const BounceBuffers&) = delete;
  ~BounceBuffers();

  // Returns null if all buffers are in use.
  std::byte* Take();
  void Return(std::byte* buffer) { free_.push_back(buffer); }

 private:
  BounceBuffers(std::shared_ptr<CudaContext> context, std::byte* memory);

  const std::shared_ptr<CudaContext> context_;
  std::byte* const memory_;
  std::vector<std::byte*> free_;
};

}  // namespace gpushared::device::cuda

#endif  // GPUSHARED_SERVER_DEVICE_CUDA_HOST_MEMORY_H_
