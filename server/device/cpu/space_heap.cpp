// SPDX-License-Identifier: Apache-2.0
#include "server/device/cpu/space_heap.h"

#include <string>
#include <utility>

namespace gpushared::device {

namespace {

// Returns how much of the bookkeeping's host memory counts against the quota: nothing for a heap of
// at most the default size.
std::uint64_t BooksBytes(std::uint64_t heap_bytes) {
  return heap_bytes <= executor::kDeviceHeapBytes ? 0 : heap_bytes / 3;
}

}  // namespace

SpaceHeap::~SpaceHeap() { range_.ReturnModuleBlock(block_, BooksBytes(bytes())); }

Status SpaceHeap::Make() {
  const MutexLock lock(mutex_);
  return heap_ != nullptr ? Status() : MakeLocked(bytes());
}

Status SpaceHeap::SetBytes(std::uint64_t bytes) {
  const MutexLock lock(mutex_);
  if (heap_ != nullptr && bytes == this->bytes()) return {};
  if (used_.load(std::memory_order_relaxed) != nullptr) {
    return {StatusCode::kInvalidArgument, "heap rejected: kernels have allocated from the one of " +
                                              std::to_string(this->bytes()) + " bytes"};
  }
  const Status made = MakeLocked(bytes);
  if (made.ok()) return made;
  return {made.code(), "heap of " + std::to_string(bytes) + " bytes: " + made.message()};
}

Status SpaceHeap::MakeLocked(std::uint64_t bytes) {
  Result<AddressRange::Block> block = range_.TakeModuleBlock(bytes, BooksBytes(bytes));
  if (!block) return block.status();
  range_.ReturnModuleBlock(std::exchange(block_, *block), BooksBytes(this->bytes()));
  heap_ = std::make_unique<executor::DeviceHeap>(block_.address, block_.bytes);
  bytes_.store(bytes, std::memory_order_relaxed);
  return {};
}

executor::DeviceHeap* SpaceHeap::ForKernel(bool allocates) {
  executor::DeviceHeap* const used = used_.load(std::memory_order_acquire);
  if (used != nullptr || !allocates) return used;
  const MutexLock lock(mutex_);
  used_.store(heap_.get(), std::memory_order_release);
  return heap_.get();
}

}  // namespace gpushared::device
