// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_DEVICE_CUDA_CONTAIN_WORDS_H_
#define GPUSHARED_SERVER_DEVICE_CUDA_CONTAIN_WORDS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "gpushared/mutex.h"
#include "gpushared/result.h"
#include "gpushared/status.h"

#include "server/device/cuda/cuda_context.h"
#include "server/device/cuda/urgent_writes.h"
#include "server/ptx/passes/contain.h"

namespace gpushared::device::cuda {

// Memory that contained modules share with the device (server/ptx/passes/contain.h). Each module
// has a ContainControl and a FaultRecord in device memory outside of every client's range. Each
// launch has a place in host memory, to which the record is copied behind it.
//
// The control lies on the device because kernels look at it in their loops. The record lies there
// because its copies tell which launch of a stream was the first to find something in it.
//
// Thread-safe in what modules need; the rest is confined to the device thread. The context is
// current on the calling thread.
class ContainWords {
 public:
  // So many launches of contained kernels one channel may have with the driver.
  static constexpr std::size_t kCopiesPerChannel = 256;
  // In sectors of their own: one is read all the time, the other written once.
  static constexpr std::uint64_t kFaultOffset = 128;
  static constexpr std::uint64_t kSlotBytes = 256;

  static Result<std::shared_ptr<ContainWords>> Create(std::shared_ptr<CudaContext> context,
                                                      std::shared_ptr<UrgentWrites> writes,
                                                      std::size_t channels);
  ContainWords(const ContainWords&) = delete;
  ContainWords& operator=(const ContainWords&) = delete;
  ~ContainWords();

  // ---- of modules; not on the device thread

  // kSlotBytes bytes with anything in them: the control, and at kFaultOffset the record.
  Result<DeviceAddress> Take();
  // Once nothing writes to them any more.
  void Return(DeviceAddress slot);

  // ---- of launches

  // Where the record is copied to behind this launch of the channel; launches take turns.
  ptx::FaultRecord* CopyOf(std::size_t channel, std::size_t launch) const {
    return copies_ + channel * kCopiesPerChannel + launch % kCopiesPerChannel;
  }
  // Behind the launch, on its stream. `copy` can be read once that is known to have ended.
  Status Read(DeviceAddress slot, ptx::FaultRecord* copy, Stream stream);
  UrgentWrites& writes() { return *writes_; }
  const CudaContext& context() const { return *context_; }

 private:
  static constexpr std::size_t kSlotsPerChunk = 256;

  ContainWords(std::shared_ptr<CudaContext> context, std::shared_ptr<UrgentWrites> writes)
      : context_(std::move(context)), writes_(std::move(writes)) {}

  const std::shared_ptr<CudaContext> context_;
  const std::shared_ptr<UrgentWrites> writes_;
  ptx::FaultRecord* copies_ = nullptr;
  Mutex mutex_;
  // Never given back before the end: that would wait for everything on the GPU.
  std::vector<DeviceAddress> chunks_ GPUSHARED_GUARDED_BY(mutex_);
  std::vector<DeviceAddress> free_ GPUSHARED_GUARDED_BY(mutex_);
};

}  // namespace gpushared::device::cuda

#endif  // GPUSHARED_SERVER_DEVICE_CUDA_CONTAIN_WORDS_H_
