// SPDX-License-Identifier: Apache-2.0
#include "server/device/cpu/executor/device_heap.h"

#include <algorithm>
#include <bit>

namespace gpushared::device::executor {

DeviceHeap::DeviceHeap(std::uint64_t base, std::uint64_t bytes)
    : base_(base), bytes_(bytes), places_(bytes / kGranule) {
  lists_.fill(kNone);
  Mark(0, static_cast<Granule>(places_.size()), false);
  Link(0);
}

std::size_t DeviceHeap::GetList(Granule size) {
  return static_cast<std::size_t>(std::bit_width(size)) - 1;
}

void DeviceHeap::Mark(Granule first, Granule size, bool is_used) {
  places_[first].size = places_[first + size - 1].size_back = size;
  places_[first].is_used = is_used;
}

void DeviceHeap::Link(Granule first) {
  Granule& head = lists_[GetList(places_[first].size)];
  places_[first].previous = kNone;
  places_[first].next = head;
  if (head != kNone) places_[head].previous = first;
  head = first;
}

void DeviceHeap::Unlink(Granule first) {
  const Place& place = places_[first];
  if (place.next != kNone) places_[place.next].previous = place.previous;
  if (place.previous != kNone) {
    places_[place.previous].next = place.next;
  } else {
    lists_[GetList(place.size)] = place.next;
  }
}

// Checks a few pieces in the list of the given size, then takes one from a list in which all pieces
// are large enough.
DeviceHeap::Granule DeviceHeap::FindFree(Granule size) const {
  const std::size_t own = GetList(size);
  Granule at = lists_[own];
  for (int inspected = 0; at != kNone && inspected < kInspectedMax;
       ++inspected, at = places_[at].next) {
    if (places_[at].size >= size) return at;
  }
  const auto found = std::find_if(lists_.begin() + static_cast<std::ptrdiff_t>(own) + 1,
                                  lists_.end(), [](Granule head) { return head != kNone; });
  return found == lists_.end() ? kNone : *found;
}

std::optional<std::uint64_t> DeviceHeap::Allocate(std::uint64_t bytes) {
  if (bytes > bytes_) return std::nullopt;
  const auto size =
      static_cast<Granule>(std::max<std::uint64_t>((bytes + kGranule - 1) / kGranule, 1));
  const MutexLock lock(mutex_);
  const Granule first = FindFree(size);
  if (first == kNone) return std::nullopt;
  Unlink(first);
  const Granule rest = places_[first].size - size;
  Mark(first, size, true);
  if (rest != 0) {
    Mark(first + size, rest, false);
    Link(first + size);
  }
  return base_ + first * kGranule;
}

bool DeviceHeap::Free(std::uint64_t address) {
  const MutexLock lock(mutex_);
  const std::uint64_t offset = address - base_;
  if (offset >= places_.size() * kGranule || offset % kGranule != 0) return false;
  auto first = static_cast<Granule>(offset / kGranule);
  if (places_[first].size == 0 || !places_[first].is_used) return false;
  Granule size = places_[first].size;
  if (const Granule behind = first + size; behind < places_.size() && !places_[behind].is_used) {
    Unlink(behind);
    size += places_[behind].size;
    places_[behind].size = 0;
  }
  if (first != 0 && !places_[first - places_[first - 1].size_back].is_used) {
    const Granule before = first - places_[first - 1].size_back;
    Unlink(before);
    size += places_[before].size;
    places_[first].size = 0;
    first = before;
  }
  Mark(first, size, false);
  Link(first);
  return true;
}

}  // namespace gpushared::device::executor
