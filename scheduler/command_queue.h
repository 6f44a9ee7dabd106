// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SCHEDULER_COMMAND_QUEUE_H_
#define GPUSHARED_SCHEDULER_COMMAND_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "scheduler/types.h"

namespace gpushared::scheduler {

// A ready command: the caller could submit it now as far as its own order goes.
struct LaneCommand {
  std::uint64_t command = 0;  // Names it in actions; unique among what is queued or in flight.
  Duration predicted{};       // For the remaining units; see Predictor.
  bool stoppable = false;     // It, and the device, can stop within the command.
  std::uint32_t stream = 0;   // Those of one stream of its client run one after the other.
  // Not worth stopping by its prediction, but the device can: it becomes stoppable when it outlives
  // its prediction.
  bool stops_late = false;
};

struct QueuedCommand {
  LaneCommand command;
  std::uint64_t arrival = 0;
};

// Double-ended ring of one client's ready commands. Grows to the most it ever held
// and then allocates no more.
//
// Thread-compatible.
class CommandQueue {
 public:
  bool empty() const { return count_ == 0; }
  std::size_t size() const { return count_; }
  const QueuedCommand& front() const { return slots_[first_]; }

  void PushBack(const QueuedCommand& command) {
    if (count_ == slots_.size()) Grow();
    slots_[(first_ + count_) & (slots_.size() - 1)] = command;
    ++count_;
  }

  void PushFront(const QueuedCommand& command) {
    if (count_ == slots_.size()) Grow();
    first_ = (first_ - 1) & (slots_.size() - 1);
    slots_[first_] = command;
    ++count_;
  }

  void PopFront() {
    first_ = (first_ + 1) & (slots_.size() - 1);
    --count_;
  }

  template <typename Predicate>
  std::size_t RemoveIf(Predicate doomed) {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < count_; ++i) {
      const QueuedCommand& candidate = slots_[(first_ + i) & (slots_.size() - 1)];
      if (doomed(candidate)) continue;
      slots_[(first_ + kept) & (slots_.size() - 1)] = candidate;
      ++kept;
    }
    const std::size_t before = std::exchange(count_, kept);
    return before - kept;
  }

 private:
  void Grow() {
    std::vector<QueuedCommand> larger(slots_.empty() ? kFirstCapacity : 2 * slots_.size());
    for (std::size_t i = 0; i < count_; ++i) {
      larger[i] = slots_[(first_ + i) & (slots_.size() - 1)];
    }
    slots_ = std::move(larger);
    first_ = 0;
  }

  static constexpr std::size_t kFirstCapacity = 64;  // Power of two, as all later ones.

  std::vector<QueuedCommand> slots_;
  std::size_t first_ = 0;
  std::size_t count_ = 0;
};

}  // namespace gpushared::scheduler

#endif  // GPUSHARED_SCHEDULER_COMMAND_QUEUE_H_
