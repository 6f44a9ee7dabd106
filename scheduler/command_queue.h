// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SCHEDULER_COMMAND_QUEUE_H_
#define GPUSHARED_SCHEDULER_COMMAND_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "scheduler/types.h"

namespace gpushared::scheduler {

// A ready command: as far as its client's own order is concerned, it could be submitted now.
struct LaneCommand {
  std::uint64_t command = 0;  // Unique among queued commands and those in flight.
  Duration predicted{};       // Predicted time of the remaining units; see Predictor.
  // Whether both the command and the device support a stop within the command.
  bool stoppable = false;
  std::uint32_t stream = 0;  // Commands of one stream of a client run in order.
  // Whether the command is predicted to be too short to be worth stopping, and becomes stoppable
  // only when it outlives its prediction.
  bool stops_late = false;
};

struct QueuedCommand {
  LaneCommand command;
  std::uint64_t arrival = 0;
};

// Double-ended ring of one client's ready commands. Allocates only when it holds more commands than
// ever before, and never shrinks.
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

  static constexpr std::size_t kFirstCapacity = 64;  // All capacities are powers of two.

  std::vector<QueuedCommand> slots_;
  std::size_t first_ = 0;
  std::size_t count_ = 0;
};

}  // namespace gpushared::scheduler

#endif  // GPUSHARED_SCHEDULER_COMMAND_QUEUE_H_
