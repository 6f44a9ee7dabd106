// SPDX-License-Identifier: Apache-2.0
#include "client_lib/drop_in/graph_memory.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace gpushared::drop_in {

GraphMemory::~GraphMemory() {
  if (const std::shared_ptr<GraphMemories> owner = owner_.lock()) owner->Free(address_);
}

Result<std::shared_ptr<GraphMemory>> GraphMemories::Make(const Client& client, std::size_t bytes) {
  Result<DeviceBuffer> buffer = client.AllocateDevice(bytes);
  if (!buffer.ok()) return buffer.status();
  auto made = std::make_shared<GraphMemory>(weak_from_this(), buffer->address(), bytes);
  const MutexLock lock(mutex_);
  buffers_[made->address()] = std::move(*buffer);
  bytes_.now += bytes;
  bytes_.high = std::max(bytes_.high, bytes_.now);
  return made;
}

// Commands that use the memory may still be queued; the library reuses it only after them.
void GraphMemories::Free(std::uint64_t address) {
  const MutexLock lock(mutex_);
  const auto found = buffers_.find(address);
  bytes_.now -= found->second.size();
  buffers_.erase(found);
}

bool GraphMemories::BeginsAt(std::uint64_t address) const {
  const MutexLock lock(mutex_);
  return buffers_.contains(address);
}

bool GraphMemories::Holds(std::uint64_t address) const {
  const MutexLock lock(mutex_);
  const auto behind = buffers_.upper_bound(address);
  return behind != buffers_.begin() &&
         address - std::prev(behind)->first < std::prev(behind)->second.size();
}

GraphMemories::Bytes GraphMemories::bytes() const {
  const MutexLock lock(mutex_);
  return bytes_;
}

void GraphMemories::ForgetHigh() {
  const MutexLock lock(mutex_);
  bytes_.high = bytes_.now;
}

}  // namespace gpushared::drop_in
