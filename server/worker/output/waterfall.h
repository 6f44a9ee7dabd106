// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_OUTPUT_WATERFALL_H_
#define GPUSHARED_SERVER_WORKER_OUTPUT_WATERFALL_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "scheduler/types.h"
#include "server/worker/state/stay.h"

namespace gpushared::server {

// The kItemsMax largest of the items that were added, in no order, and what the others come to.
// Only items that are there are made and copied, since each request has some of these lists.
//
// Thread-compatible value; allocates nothing.
template <typename Item, std::size_t kItemsMax>
class Largest {
  static_assert(std::is_trivially_copyable_v<Item>);

 public:
  Largest() {}  // Leaves the items unmade.
  Largest(const Largest& other) { *this = other; }
  Largest& operator=(const Largest& other) {
    if (this == &other) return *this;
    std::copy_n(other.items_.begin(), other.count_, items_.begin());
    std::copy_n(other.sizes_.begin(), other.count_, sizes_.begin());
    count_ = other.count_;
    least_ = other.least_;
    rest_count = other.rest_count;
    rest = other.rest;
    return *this;
  }
  ~Largest() = default;

  // Not in line: most items of a long list are no larger than least(), and are not added.
  [[gnu::noinline]] void Add(const Item& item, scheduler::Duration size) {
    if (count_ == kItemsMax) return Replace(item, size);
    sizes_[count_] = size;
    items_[count_++] = item;
    if (count_ == kItemsMax) FindLeast();
  }
  std::span<const Item> items() const { return std::span(items_).first(count_); }
  // What is not larger than this goes to the rest. Zero while there is room.
  scheduler::Duration least() const {
    return count_ == kItemsMax ? sizes_[least_] : scheduler::Duration::zero();
  }

  std::uint64_t rest_count = 0;
  scheduler::Duration rest{};

 private:
  // Most are no larger than the least one.
  void Replace(const Item& item, scheduler::Duration size) {
    scheduler::Duration& least = sizes_[least_];
    ++rest_count;
    rest += std::min(least, size);
    if (least >= size) [[likely]]
      return;
    items_[least_] = item;
    least = size;
    FindLeast();
  }
  void FindLeast() {
    least_ = static_cast<std::size_t>(std::ranges::min_element(sizes_) - sizes_.begin());
  }

  // The first `count_` of both are made.
  union {
    std::array<Item, kItemsMax> items_;
  };
  union {
    std::array<scheduler::Duration, kItemsMax> sizes_;
  };
  std::size_t count_ = 0;
  std::size_t least_ = 0;  // The least one's place, once all kItemsMax are there.
};

// A time in which a client had commands ready and none on the device.
struct Wait {
  scheduler::TimePoint from{};
  scheduler::TimePoint to{};
  scheduler::Duration length() const { return to - from; }
};

// What went on in the time of one request: the longest waits of its client, and who had the device
// for longest, its client among them.
struct Waterfall {
  static constexpr std::size_t kWaitsMax = 4;
  static constexpr std::size_t kStaysMax = 16;

  Largest<Wait, kWaitsMax> waits;
  Largest<Stay, kStaysMax> stays;  // Sized by their part within the request.
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_OUTPUT_WATERFALL_H_
