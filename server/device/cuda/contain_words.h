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

// Memory that contained modules share with the device (server/ptx/passes/fence.h): for each
// module a ContainControl in device memory and ContainHostWords in pinned host memory, both outside
// of every client's range.
//
// The control lies on the device because every launch reads it. The fault record lies on the host
// because only a fault writes to it: a copy behind each launch would make the GPU wait. So does the
// stop word of loops, which is to be written while the driver takes no call.
//
// Thread-safe in what modules need, and ReportAllToEnd; the rest is confined to the device thread.
// The context is current on the calling thread, except for ReportAllToEnd.
class ContainWords {
 public:
  // The words of one module.
  struct Slot {
    DeviceAddress control = 0;
    DeviceAddress host_words = 0;           // As kernels reach them,
    ptx::ContainHostWords* host = nullptr;  // and as the host does.
  };

  ContainWords(std::shared_ptr<CudaContext> context, std::shared_ptr<UrgentWrites> writes)
      : context_(std::move(context)), writes_(std::move(writes)) {}
  ContainWords(const ContainWords&) = delete;
  ContainWords& operator=(const ContainWords&) = delete;
  ~ContainWords();

  // Not on the device thread. With anything in them.
  Result<Slot> Take();
  // Once nothing writes to them any more.
  void Return(const Slot& slot);

  // Sets the stop words of all modules: what runs of them, and looks, ends. Waits for no call of
  // the driver. False: there is no module.
  bool ReportAllToEnd();

  UrgentWrites& writes() { return *writes_; }
  const CudaContext& context() const { return *context_; }

 private:
  static constexpr std::size_t kSlotsPerChunk = 256;
  // Words of two modules share no sector of the L2 cache, and no line of the host's.
  static constexpr std::uint64_t kControlStride = 128;
  static constexpr std::uint64_t kHostStride = 64;

  std::optional<Slot> TakeFree();
  Status Grow() GPUSHARED_REQUIRES(growing_);

  const std::shared_ptr<CudaContext> context_;
  const std::shared_ptr<UrgentWrites> writes_;
  Mutex growing_;  // Held across calls of the driver, and before mutex_.
  // Host memory that is still to get its control.
  std::byte* spare_ GPUSHARED_GUARDED_BY(growing_) = nullptr;
  Mutex mutex_;  // Never held across one.
  // Never given back before the end: that would wait for everything on the GPU.
  std::vector<DeviceAddress> controls_ GPUSHARED_GUARDED_BY(mutex_);
  std::vector<std::byte*> hosts_ GPUSHARED_GUARDED_BY(mutex_);
  std::vector<Slot> free_ GPUSHARED_GUARDED_BY(mutex_);
};

}  // namespace gpushared::device::cuda

#endif  // GPUSHARED_SERVER_DEVICE_CUDA_CONTAIN_WORDS_H_
