// SPDX-License-Identifier: Apache-2.0
#include "server/device/cuda/contain_words.h"

#include <utility>

namespace gpushared::device::cuda {

ContainWords::~ContainWords() {
  if (context_->is_dead() || !context_->Bind().ok()) return;
  const Driver& driver = context_->driver();
  // A stop word may be on its way.
  (void)context_->Call(driver.CtxSynchronize);
  for (const DeviceAddress chunk : controls_) (void)context_->Call(driver.MemFree, chunk);
  for (std::byte* const chunk : records_) {
    (void)context_->Call(driver.MemFreeHost, static_cast<void*>(chunk));
  }
}

Result<ContainWords::Slot> ContainWords::Take() {
  const MutexLock lock(mutex_);
  if (free_.empty()) {
    if (Status status = Grow(); !status.ok()) return status;
  }
  const Slot slot = free_.back();
  free_.pop_back();
  return slot;
}

void ContainWords::Return(const Slot& slot) {
  const MutexLock lock(mutex_);
  free_.push_back(slot);
}

Status ContainWords::Grow() {
  static_assert(sizeof(ptx::ContainControl) <= kControlStride &&
                sizeof(ptx::FaultRecord) <= kRecordStride);
  const Driver& driver = context_->driver();
  // Records that an earlier call got, and no control for them, are still there.
  if (records_.size() == controls_.size()) {
    void* host = nullptr;
    Status status =
        context_->Try("taking pinned host memory", driver.MemHostAlloc, &host,
                      std::size_t{kSlotsPerChunk * kRecordStride}, kHostPortable | kHostDeviceMap);
    if (!status.ok()) return status;
    records_.push_back(static_cast<std::byte*>(host));
  }
  DeviceAddress fault = 0;
  Status status = context_->Try("mapping pinned host memory", driver.MemHostGetDevicePointer,
                                &fault, static_cast<void*>(records_.back()), 0U);
  DeviceAddress control = 0;
  if (status.ok()) {
    status = context_->Try("taking device memory", driver.MemAlloc, &control,
                           std::size_t{kSlotsPerChunk * kControlStride});
  }
  if (!status.ok()) return status;
  controls_.push_back(control);
  for (std::size_t i = kSlotsPerChunk; i-- > 0;) {
    std::byte* const record = records_.back() + i * kRecordStride;
    free_.push_back({.control = control + i * kControlStride,
                     .fault = fault + i * kRecordStride,
                     .record = new (record) ptx::FaultRecord});
  }
  return {};
}

}  // namespace gpushared::device::cuda
