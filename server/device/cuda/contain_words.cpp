// SPDX-License-Identifier: Apache-2.0
#include "server/device/cuda/contain_words.h"

#include <utility>

namespace gpushared::device::cuda {

static_assert(sizeof(ptx::ContainControl) <= ContainWords::kFaultOffset &&
              ContainWords::kFaultOffset + sizeof(ptx::FaultRecord) <= ContainWords::kSlotBytes);

Result<std::shared_ptr<ContainWords>> ContainWords::Create(std::shared_ptr<CudaContext> context,
                                                           std::shared_ptr<UrgentWrites> writes,
                                                           std::size_t channels) {
  std::shared_ptr<ContainWords> words(new ContainWords(std::move(context), std::move(writes)));
  void* host = nullptr;
  Status status = words->context_->Try(
      "taking pinned host memory", words->context_->driver().MemHostAlloc, &host,
      channels * kCopiesPerChannel * sizeof(ptx::FaultRecord), kHostPortable);
  if (!status.ok()) return status;
  words->copies_ = static_cast<ptx::FaultRecord*>(host);
  return words;
}

ContainWords::~ContainWords() {
  if (context_->is_dead() || !context_->Bind().ok()) return;
  const Driver& driver = context_->driver();
  // A copy may be on its way of a launch that the driver refused.
  (void)context_->Call(driver.CtxSynchronize);
  for (const DeviceAddress chunk : chunks_) (void)context_->Call(driver.MemFree, chunk);
  if (copies_ != nullptr) (void)context_->Call(driver.MemFreeHost, static_cast<void*>(copies_));
}

Result<DeviceAddress> ContainWords::Take() {
  const MutexLock lock(mutex_);
  if (free_.empty()) {
    DeviceAddress chunk = 0;
    Status status = context_->Try("taking device memory", context_->driver().MemAlloc, &chunk,
                                  kSlotsPerChunk * kSlotBytes);
    if (!status.ok()) return status;
    chunks_.push_back(chunk);
    for (std::size_t i = kSlotsPerChunk; i-- > 0;) free_.push_back(chunk + i * kSlotBytes);
  }
  const DeviceAddress slot = free_.back();
  free_.pop_back();
  return slot;
}

void ContainWords::Return(DeviceAddress slot) {
  const MutexLock lock(mutex_);
  free_.push_back(slot);
}

Status ContainWords::Read(DeviceAddress slot, ptx::FaultRecord* copy, Stream stream) {
  return context_->Try("reading what a launch ended with", context_->driver().MemcpyDtoHAsync,
                       static_cast<void*>(copy), slot + kFaultOffset, sizeof *copy, stream);
}

}  // namespace gpushared::device::cuda
