// SPDX-License-Identifier: Apache-2.0
#include "server/device/cuda/contain_words.h"

#include <atomic>
#include <new>
#include <utility>

namespace gpushared::device::cuda {

ContainWords::~ContainWords() {
  if (context_->is_dead() || !context_->Bind().ok()) return;
  const Driver& driver = context_->driver();
  // A write of a stop word may still be in flight.
  (void)context_->Call(driver.CtxSynchronize);
  for (const DeviceAddress chunk : controls_) (void)context_->Call(driver.MemFree, chunk);
  if (spare_ != nullptr) hosts_.push_back(spare_);
  for (std::byte* const chunk : hosts_) {
    (void)context_->Call(driver.MemFreeHost, static_cast<void*>(chunk));
  }
}

std::optional<ContainWords::Slot> ContainWords::TakeFree() {
  const MutexLock lock(mutex_);
  if (free_.empty()) return std::nullopt;
  const Slot slot = free_.back();
  free_.pop_back();
  return slot;
}

Result<ContainWords::Slot> ContainWords::Take() {
  std::optional<Slot> slot = TakeFree();
  while (!slot) {
    const MutexLock growing(growing_);
    slot = TakeFree();  // Another thread may have added slots.
    if (slot) break;
    if (Status status = Grow(); !status.ok()) return status;
    slot = TakeFree();
  }
  return *slot;
}

void ContainWords::Return(const Slot& slot) {
  const MutexLock lock(mutex_);
  free_.push_back(slot);
}

// Includes modules without running launches: their next launch clears the word.
bool ContainWords::ReportAllToEnd() {
  const MutexLock lock(mutex_);
  for (std::byte* const chunk : hosts_) {
    for (std::size_t i = 0; i < kSlotsPerChunk; ++i) {
      auto& words =
          *std::launder(reinterpret_cast<ptx::ContainHostWords*>(chunk + i * kHostStride));
      std::atomic_ref(words.stop).store(1, std::memory_order_release);
    }
  }
  return free_.size() < hosts_.size() * kSlotsPerChunk;
}

Status ContainWords::Grow() {
  static_assert(sizeof(ptx::ContainControl) <= kControlStride &&
                sizeof(ptx::ContainHostWords) <= kHostStride);
  const Driver& driver = context_->driver();
  if (spare_ == nullptr) {
    void* host = nullptr;
    Status status =
        context_->Try("allocating pinned host memory", driver.MemHostAlloc, &host,
                      std::size_t{kSlotsPerChunk * kHostStride}, kHostPortable | kHostDeviceMap);
    if (!status.ok()) return status;
    spare_ = static_cast<std::byte*>(host);
  }
  DeviceAddress words = 0;
  Status status = context_->Try("mapping pinned host memory", driver.MemHostGetDevicePointer,
                                &words, static_cast<void*>(spare_), 0U);
  DeviceAddress control = 0;
  if (status.ok()) {
    status = context_->Try("allocating device memory", driver.MemAlloc, &control,
                           std::size_t{kSlotsPerChunk * kControlStride});
  }
  if (!status.ok()) return status;
  const MutexLock lock(mutex_);
  std::byte* const hosts = std::exchange(spare_, nullptr);
  controls_.push_back(control);
  hosts_.push_back(hosts);
  for (std::size_t i = kSlotsPerChunk; i-- > 0;) {
    free_.push_back({.control = control + i * kControlStride,
                     .host_words = words + i * kHostStride,
                     .host = new (hosts + i * kHostStride) ptx::ContainHostWords});
  }
  return {};
}

}  // namespace gpushared::device::cuda
