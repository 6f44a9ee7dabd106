// SPDX-License-Identifier: Apache-2.0
#include "server/device/cpu/space_heap.h"

#include <utility>

namespace gpushared::device {

SpaceHeap::~SpaceHeap() { range_.ReturnModuleBlock(block_); }

Status SpaceHeap::Make() {
  const MutexLock lock(mutex_);
  if (heap_ != nullptr) return {};
  Result<AddressRange::Block> block = range_.TakeModuleBlock(executor::kDeviceHeapBytes);
  if (!block) return block.status();
  block_ = *block;
  heap_ = std::make_unique<executor::DeviceHeap>(block_.address, block_.bytes);
  // Release, pairs with the acquire of heap().
  made_.store(heap_.get(), std::memory_order_release);
  return {};
}

executor::DeviceHeap* SpaceHeap::heap() const { return made_.load(std::memory_order_acquire); }

}  // namespace gpushared::device
