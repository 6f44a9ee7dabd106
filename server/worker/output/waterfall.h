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
#include "server/telemetry/trace/execution_record.h"

namespace gpushared::server {

// The kItemsMax largest items added, in no particular order, and the number and sum of the others.
// Only items that are present are constructed and copied, because each request has several of these
// lists.
//
// Thread-compatible value; allocates nothing.
template <typename Item, std::size_t kItemsMax>
class Largest {
  static_assert(std::is_trivially_copyable_v<Item>);

 public:
  Largest() {}  // Leaves the items uninitialised.
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

  // Out of line, because a caller with many items calls it only for the few that exceed least().
  [[gnu::noinline]] void Add(const Item& item, scheduler::Duration size) {
    if (count_ == kItemsMax) return Replace(item, size);
    sizes_[count_] = size;
    items_[count_++] = item;
    if (count_ == kItemsMax) FindLeast();
  }
  std::span<const Item> items() const { return std::span(items_).first(count_); }
  // Items up to this size are added to the rest. Zero while the list is not full.
  scheduler::Duration least() const {
    return count_ == kItemsMax ? sizes_[least_] : scheduler::Duration::zero();
  }

  std::uint64_t rest_count = 0;
  scheduler::Duration rest{};

 private:
  // Replaces the smallest item if `item` is larger, which is rare. Adds the other to the rest.
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

  // Only the first `count_` elements of both are initialised.
  union {
    std::array<Item, kItemsMax> items_;
  };
  union {
    std::array<scheduler::Duration, kItemsMax> sizes_;
  };
  std::size_t count_ = 0;
  std::size_t least_ = 0;  // Index of the smallest item, once the list is full.
};

// An interval in which a client had commands ready but none on the device.
struct Wait {
  scheduler::TimePoint from{};
  scheduler::TimePoint to{};
  scheduler::Duration length() const { return to - from; }
};

// Timeline of one request: the client's longest waits, and the commands, of any client, that
// occupied the device for longest.
struct Waterfall {
  static constexpr std::size_t kWaitsMax = 4;
  static constexpr std::size_t kExecutionsMax = 16;

  Largest<Wait, kWaitsMax> waits;
  // The size of a record is the part of its time that is within the request.
  Largest<trace::ExecutionRecord, kExecutionsMax> executions;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_OUTPUT_WATERFALL_H_
