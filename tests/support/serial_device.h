// SPDX-License-Identifier: Apache-2.0
// A model of a device on a virtual clock: runs one command at a time, which can be stopped between
// units.

#ifndef GPUSHARED_TESTS_SUPPORT_SERIAL_DEVICE_H_
#define GPUSHARED_TESTS_SUPPORT_SERIAL_DEVICE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "scheduler/types.h"

namespace gpushared::testing {

// Models durations only. The caller advances time from event to event: it calls next_event(),
// advances to that time, and takes the finished work.
//
// Thread-compatible.
class SerialDevice {
 public:
  using Duration = scheduler::Duration;
  using TimePoint = scheduler::TimePoint;

  struct Work {
    std::uint64_t command = 0;
    Duration time{};
    Duration unit{};  // 0 if the work cannot be stopped.
    std::uint8_t priority = 0;
  };
  struct Finished {
    std::uint64_t command = 0;
    Duration ran{};
    bool is_whole = true;
  };

  void Submit(const Work& work, TimePoint now) {
    waiting_.push_back(work);
    StartNext(now);
  }

  void RequestStop(std::uint64_t command, TimePoint now) {
    if (running_ && running_->command == command) {
      if (running_->unit == Duration::zero()) return;
      const Duration ran = now - started_;
      const auto units = (ran + running_->unit - Duration(1)) / running_->unit;
      end_ = std::min(end_, started_ + units * running_->unit);
      return;
    }
    const auto found = std::find_if(waiting_.begin(), waiting_.end(),
                                    [&](const Work& work) { return work.command == command; });
    if (found == waiting_.end() || found->unit == Duration::zero()) return;
    finished_.push_back({command, Duration::zero(), false});
    waiting_.erase(found);
  }

  std::optional<TimePoint> next_event() const {
    if (!finished_.empty()) return last_event_;
    return running_ ? std::optional(end_) : std::nullopt;
  }

  std::optional<Finished> TakeFinished(TimePoint now) {
    if (finished_.empty() && running_ && end_ <= now) {
      const Duration ran = end_ - started_;
      busy_ += ran;
      finished_.push_back({running_->command, ran, ran == running_->time});
      running_.reset();
      StartNext(end_);
    }
    if (finished_.empty()) return {};
    const Finished first = finished_.front();
    finished_.pop_front();
    return first;
  }

  std::optional<std::uint64_t> running() const {
    return running_ ? std::optional(running_->command) : std::nullopt;
  }
  Duration busy() const { return busy_; }  // Total time of finished work.

 private:
  void StartNext(TimePoint now) {
    last_event_ = std::max(last_event_, now);
    if (running_ || waiting_.empty()) return;
    auto next = waiting_.begin();
    for (auto each = waiting_.begin(); each != waiting_.end(); ++each) {
      if (each->priority > next->priority) next = each;
    }
    running_ = *next;
    waiting_.erase(next);
    started_ = now;
    end_ = now + running_->time;
  }

  std::vector<Work> waiting_;
  std::optional<Work> running_;
  TimePoint started_{}, end_{}, last_event_{};
  std::deque<Finished> finished_;
  Duration busy_{};
};

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_SUPPORT_SERIAL_DEVICE_H_
