// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_DEVICE_CUDA_CONTAIN_WORDS_H_
#define GPUSHARED_SERVER_DEVICE_CUDA_CONTAIN_WORDS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "gpushared/mutex.h"
#include "gpushared/result.h"
#include "gpushared/status.h"

#include "server/device/cuda/cuda_context.h"
#include "server/device/cuda/urgent_writes.h"
#include "server/ptx/passes/fence.h"

namespace gpushared::device::cuda {

// Memory that contained modules share with the device (server/ptx/passes/fence.h): for each module
// a ContainControl in device memory and ContainHostWords in pinned host memory, both outside of
// every client's range.
//
// The control is in device memory because every launch reads it. The fault record is in host memory
// because only a fault writes to it, and because a copy from device memory after each launch would
// make the GPU wait. The stop word of loops is in host memory as well, because it must be writable
// while the driver accepts no call.
//
// Take, Return and ReportAllToEnd are thread-safe; the rest is confined to the device thread. The
// context is current on the calling thread, except for ReportAllToEnd.
class ContainWords {
 public:
  // Words of one module.
  struct Slot {
    DeviceAddress control = 0;
    DeviceAddress host_words = 0;           // Address for kernels.
    ptx::ContainHostWords* host = nullptr;  // Address for the host.
  };

  ContainWords(std::shared_ptr<CudaContext> context, std::shared_ptr<UrgentWrites> writes)
      : context_(std::move(context)), writes_(std::move(writes)) {}
  ContainWords(const ContainWords&) = delete;
  ContainWords& operator=(const ContainWords&) = delete;
  ~ContainWords();

  // Returns a slot whose words are not initialized. Must not be called on the device thread.
  Result<Slot> Take();
  // Called when nothing writes to the words any more.
  void Return(const Slot& slot);

  // Sets the stop words of all modules, which ends running kernels that poll them. Does not call
  // the driver. Returns false if there is no module.
  bool ReportAllToEnd();

  UrgentWrites& writes() { return *writes_; }
  const CudaContext& context() const { return *context_; }

 private:
  static constexpr std::size_t kSlotsPerChunk = 256;
  // Words of different modules share no sector of the L2 cache and no cache line of the host.
  static constexpr std::uint64_t kControlStride = 128;
  static constexpr std::uint64_t kHostStride = 64;

  std::optional<Slot> TakeFree();
  Status Grow() GPUSHARED_REQUIRES(growing_);

  const std::shared_ptr<CudaContext> context_;
  const std::shared_ptr<UrgentWrites> writes_;
  Mutex growing_;  // Held across driver calls; acquired before mutex_.
  // Host memory whose controls are not yet allocated.
  std::byte* spare_ GPUSHARED_GUARDED_BY(growing_) = nullptr;
  Mutex mutex_;  // Never held across a driver call.
  // Freed only by the destructor, because freeing waits for everything on the GPU.
  std::vector<DeviceAddress> controls_ GPUSHARED_GUARDED_BY(mutex_);
  std::vector<std::byte*> hosts_ GPUSHARED_GUARDED_BY(mutex_);
  std::vector<Slot> free_ GPUSHARED_GUARDED_BY(mutex_);
};

}  // namespace gpushared::device::cuda

#endif  // GPUSHARED_SERVER_DEVICE_CUDA_CONTAIN_WORDS_H_
