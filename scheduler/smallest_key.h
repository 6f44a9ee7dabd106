// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SCHEDULER_SMALLEST_KEY_H_
#define GPUSHARED_SCHEDULER_SMALLEST_KEY_H_

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "scheduler/types.h"

namespace gpushared::scheduler {

// Finds the first smallest among up to kClientsMax keys, one per place.
//
// Keys are divided into groups. Setting a key marks its group. Find searches the marked groups
// (only one after a single event), then compares one key per group.
//
// Thread-compatible value; never allocates.
class SmallestKey {
 public:
  static constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();

  struct Found {
    std::size_t place = 0;
    std::int64_t key = kNone;  // kNone if no place has a key.
  };

  SmallestKey() { keys_.fill(kNone); }

  void Set(std::size_t place, std::int64_t key) {
    if (keys_[place] == key) return;
    keys_[place] = key;
    marked_ |= 1u << (place / kGroup);
    places_ = std::max(places_, place + 1);
  }

  std::int64_t at(std::size_t place) const { return keys_[place]; }

  Found Find() {
    for (; marked_ != 0; marked_ &= marked_ - 1) {
      const auto group = static_cast<std::size_t>(std::countr_zero(marked_));
      const std::size_t first = group * kGroup;
      const std::size_t end = std::min(first + kGroup, places_);
      Found found{first, keys_[first]};
      for (std::size_t place = first + 1; place < end; ++place) {
        found = Smaller(found, {place, keys_[place]});
      }
      found_[group] = found;
    }
    Found found = found_[0];
    for (std::size_t group = 1; group * kGroup < places_; ++group) {
      found = Smaller(found, found_[group]);
    }
    return found;
  }

 private:
  static constexpr std::size_t kGroup = 8;
  static constexpr std::size_t kGroups = kClientsMax / kGroup;
  static_assert(kClientsMax % kGroup == 0 && kGroups <= 32);

  // Two conditional moves instead of a branch, because the outcome is unpredictable.
  static Found Smaller(const Found& first, const Found& second) {
    const bool takes_second = second.key < first.key;
    return {takes_second ? second.place : first.place, takes_second ? second.key : first.key};
  }

  std::array<std::int64_t, kClientsMax> keys_;
  std::array<Found, kGroups> found_{};
  std::uint32_t marked_ = 0;  // One bit per group.
  std::size_t places_ = 0;    // One past the last place that ever had a key.
};

}  // namespace gpushared::scheduler

#endif  // GPUSHARED_SCHEDULER_SMALLEST_KEY_H_
