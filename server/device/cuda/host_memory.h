// SPDX-License-Identifier: Apache-2.0
// Host memory that the GPU reaches by itself, and the way round for memory that it does not.

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

// The host memory that is registered with the driver.
//
// Thread-safe: the lock is held to look and to note, never across a call of the driver.
class PinnedRegions {
 public:
  explicit PinnedRegions(std::shared_ptr<CudaContext> context) : context_(std::move(context)) {}

  // Not on the device thread: registering brings in and locks every page.
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

// Buffers through which copies of unregistered memory go: a driver given such memory would copy
// on the calling thread, and wait.
//
// Confined to the device thread.
class BounceBuffers {
 public:
  // 20 µs of copying by the processor.
  static constexpr std::size_t kBytes = std::size_t{256} * 1024;
  static constexpr std::size_t kCount = 8;

  static Result<std::unique_ptr<BounceBuffers>> Create(std::shared_ptr<CudaContext> context);
  BounceBuffers(const BounceBuffers&) = delete;
  BounceBuffers& operator=(const BounceBuffers&) = delete;
  ~BounceBuffers();

  // Null when all are in use.
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
