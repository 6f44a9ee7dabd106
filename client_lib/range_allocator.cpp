// SPDX-License-Identifier: Apache-2.0
#include "client_lib/range_allocator.h"

#include <algorithm>
#include <iterator>
#include <limits>

namespace gpushared::client {

namespace {

// Returns the first address at or after `address` where a block of `bytes` may begin.
std::uint64_t PlaceFor(std::uint64_t bytes, std::uint64_t address) {
  const std::uint64_t alignment = bytes >= RangeAllocator::kLargeBytes
                                      ? RangeAllocator::kLargeAlignmentBytes
                                      : RangeAllocator::kAlignmentBytes;
  return (address + alignment - 1) / alignment * alignment;
}

}  // namespace

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
  const auto best =
      std::find_if(by_size_.lower_bound({*rounded, 0}), by_size_.end(), [&](const auto& block) {
        return PlaceFor(*rounded, block.second) - block.second <= block.first - *rounded;
      });
  if (best == by_size_.end()) return {};
  const auto [block_bytes, begin] = *best;
  const std::uint64_t address = PlaceFor(*rounded, begin);
  const std::uint64_t end = begin + block_bytes;
  RemoveFree(free_.find(begin));
  if (address > begin) AddFree(begin, address - begin);
  if (end > address + *rounded) AddFree(address + *rounded, end - address - *rounded);
  allocated_.emplace(address, *rounded);
  used_bytes_ += *rounded;
  return address;
}

std::uint64_t RangeAllocator::GrowthFor(std::uint64_t bytes) const {
  const std::uint64_t rounded = *RoundUp(bytes);
  return PlaceFor(rounded, end_ - TailBytes()) + rounded - end_;
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
