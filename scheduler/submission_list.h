// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SCHEDULER_SUBMISSION_LIST_H_
#define GPUSHARED_SCHEDULER_SUBMISSION_LIST_H_

#include <algorithm>
#include <cstddef>
#include <new>
#include <type_traits>
#include <vector>

namespace gpushared::scheduler {

// Up to `limit` entries in order of addition. Removal near the front is fast; most removals are
// there, because commands mostly complete in the order of submission. Allocates on construction
// only.
//
// Thread-compatible. Pointers are valid until the next Add or Remove.
template <typename Entry>
class SubmissionList {
 public:
  // Twice the capacity, so that the entries are moved to the start only once per `limit` additions.
  explicit SubmissionList(std::size_t limit) : slots_(2 * limit) {}

  bool empty() const { return first_ == end_; }
  std::size_t size() const { return end_ - first_; }
  Entry* begin() { return slots_.data() + first_; }
  Entry* end() { return slots_.data() + end_; }
  const Entry* begin() const { return slots_.data() + first_; }
  const Entry* end() const { return slots_.data() + end_; }
  const Entry& front() const { return slots_[first_]; }

  // The list must not be full. `make()` constructs the entry in place, because a large entry that
  // was just written is slow to copy.
  template <typename Make>
  void Add(Make make) {
    if (end_ == slots_.size()) {
      std::move(begin(), end(), slots_.data());
      end_ = size();
      first_ = 0;
    }
    ::new (static_cast<void*>(&slots_[end_])) Entry(make());
    ++end_;
  }

  void Remove(Entry* entry) {
    std::move_backward(begin(), entry, entry + 1);
    ++first_;
  }

 private:
  static_assert(std::is_trivially_copyable_v<Entry> && std::is_trivially_destructible_v<Entry>);

  std::vector<Entry> slots_;
  std::size_t first_ = 0;
  std::size_t end_ = 0;
};

}  // namespace gpushared::scheduler

#endif  // GPUSHARED_SCHEDULER_SUBMISSION_LIST_H_
