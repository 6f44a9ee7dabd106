// SPDX-License-Identifier: Apache-2.0
#include "server/device/cpu/space_heap.h"

#include <utility>

namespace gpushared::device {

SpaceHeap::~SpaceHeap() { range_.ReturnModuleBlock(block_); }

Status SpaceHeap::Make() {
  const std::scoped_lock lock(mutex_);
  if (heap_ != nullptr) return {};
  Result<AddressRange::Block> block = range_.TakeModuleBlock(executor::kDeviceHeapBytes);
  if (!block) return block.status();
  block_ = *block;
  piece_ = {.base = block_.address, .bytes = block_.bytes};
  heap_ = std::make_unique<executor::DeviceHeap>(block_.address, block_.bytes);
  // Release, pairs with the acquires of heap() and pieces().
  made_.store(heap_.get(), std::memory_order_release);
  return {};
}

executor::DeviceHeap* SpaceHeap::heap() const { return made_.load(std::memory_order_acquire); }

std::span<const executor::MemoryPiece> SpaceHeap::pieces() const {
  if (heap() == nullptr) return {};
  return {&piece_, 1};
}

}  // namespace gpushared::device
