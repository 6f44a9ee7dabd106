// SPDX-License-Identifier: Apache-2.0
#include "client_lib/range_allocator.h"

#include <iterator>
#include <limits>

namespace gpushared::client {

std::optional<std::uint64_t> RangeAllocator::RoundUp(std::uint64_t bytes) {
  if (bytes > std::numeric_limits<std::uint64_t>::max() - (kAlignmentBytes - 1)) return {};
  return (bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
}

void RangeAllocator::Grow(std::uint64_t bytes) {
  if (bytes == 0) return;
  const std::uint64_t address = end_;
  end_ += bytes;
  AddFree(address, bytes);
}

void RangeAllocator::Shrink(std::uint64_t bytes) {
  if (bytes == 0) return;
  const auto tail = std::prev(free_.end());
  const auto [address, tail_bytes] = *tail;
  RemoveFree(tail);
  if (tail_bytes > bytes) AddFree(address, tail_bytes - bytes);
  end_ -= bytes;
}

std::optional<std::uint64_t> RangeAllocator::Allocate(std::uint64_t bytes) {
  const std::optional<std::uint64_t> rounded = RoundUp(bytes);
  if (!rounded || *rounded == 0) return {};
  const auto best = by_size_.lower_bound({*rounded, 0});
  if (best == by_size_.end()) return {};
  const auto [block_bytes, address] = *best;
  RemoveFree(free_.find(address));
  if (block_bytes > *rounded) AddFree(address + *rounded, block_bytes - *rounded);
  allocated_.emplace(address, *rounded);
  used_bytes_ += *rounded;
  return address;
}

bool RangeAllocator::Release(std::uint64_t address) {
  const auto block = allocated_.find(address);
  if (block == allocated_.end()) return false;
  const std::uint64_t bytes = block->second;
  allocated_.erase(block);
  used_bytes_ -= bytes;
  AddFree(address, bytes);
  return true;
}

std::uint64_t RangeAllocator::BlockBytes(std::uint64_t address) const {
  const auto block = allocated_.find(address);
  return block == allocated_.end() ? 0 : block->second;
}

std::uint64_t RangeAllocator::TailBytes() const {
  if (free_.empty()) return 0;
  const auto& [address, bytes] = *free_.rbegin();
  return address + bytes == end_ ? bytes : 0;
}

void RangeAllocator::AddFree(std::uint64_t address, std::uint64_t bytes) {
  auto next = free_.lower_bound(address);
  if (next != free_.end() && address + bytes == next->first) {
    bytes += next->second;
    const auto after = std::next(next);
    RemoveFree(next);
    next = after;
  }
  if (next != free_.begin()) {
    const auto previous = std::prev(next);
    if (previous->first + previous->second == address) {
      address = previous->first;
      bytes += previous->second;
      RemoveFree(previous);
    }
  }
  free_.emplace(address, bytes);
  by_size_.emplace(bytes, address);
}

void RangeAllocator::RemoveFree(std::map<std::uint64_t, std::uint64_t>::iterator block) {
  by_size_.erase({block->second, block->first});
  free_.erase(block);
}

}  // namespace gpushared::client
