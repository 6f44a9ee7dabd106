// SPDX-License-Identifier: Apache-2.0
// A client's latency promise: its open requests, what they need, and how they ended.

#ifndef GPUSHARED_SCHEDULER_PROMISE_ACCOUNT_H_
#define GPUSHARED_SCHEDULER_PROMISE_ACCOUNT_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "scheduler/arrival_predictor.h"
#include "scheduler/recent_samples.h"
#include "scheduler/types.h"

namespace gpushared::scheduler {

// Keeps what is known about one client's requests. Each open request has its own deadline. They are
// taken to be served in the order of their arrival. Promises are given up request by request.
//
// A request's need is counted in predicted device time of its commands, which does not depend on
// who else was on the device. The host's time between them is learnt from undisturbed requests.
// Nobody knows which command belongs to which request. So overlapping requests are taken, a few
// in a row, to have needed the same.
//
// Thread-compatible value; allocates nothing.
class TargetAccount {
 public:
  // Zero where the client promised nothing.
  Duration target{};

  bool has_target() const { return target > Duration::zero(); }
  bool is_open() const { return open_count_ > 0; }

  // `disturbed`: time, over all, in which others were on the device beside promised work.
  void Begin(const RequestMark& request, Duration disturbed, TimePoint now);
  struct Ending {
    bool was_met = false;
    bool was_abandoned = false;
  };
  Ending End(std::uint64_t number, Duration disturbed, TimePoint now);

  // Open requests, numbered from the one that arrived first.
  std::size_t open_count() const { return open_count_; }
  TimePoint deadline(std::size_t open) const { return open_[open].arrived + target; }
  bool IsAbandoned(std::size_t open) const { return open_[open].abandoned_at.has_value(); }
  void Abandon(std::size_t open, TimePoint now);
  // All of them are promised again; returns how many were not.
  std::size_t TakeBack();
  std::size_t abandoned_count() const { return abandoned_count_; }
  // One was given up no longer ago than a promise takes.
  bool IsOverloaded(TimePoint now) const;

  void OnStarted(Duration predicted, TimePoint now);
  void OnEnded(Duration predicted, TimePoint now);
  // Predicted time of the client's head command, empty when there is none.
  void SetHead(std::optional<Duration> predicted, TimePoint now);

  // Time that its first `requests` open ones need from now.
  struct Needs {
    Duration likely{};  // The median; in all no less than was brought.
    Duration safe{};    // Seldom more. The whole promise while nothing is known.
  };
  Needs Need(std::size_t requests, TimePoint now) const {
    const Duration progress = Progress(now);
    // With others behind them, what is brought may be theirs.
    const Duration brought = requests < open_count_ ? progress : running_ + head_;
    const auto count = static_cast<Duration::rep>(requests);
    const Duration safe = std::max<Duration>(brought, count * need_safe_ - done_) - progress;
    return {.likely = std::max<Duration>(brought, count * need_likely_ - done_) - progress,
            .safe = knows_ ? safe : std::max<Duration>(brought, target)};
  }
  // It has requests open and nothing that could run for them.
  bool IsIdle() const { return running_ + head_ == Duration::zero(); }
  TimePoint idle_since() const { return idle_since_; }
  // Work for the open requests that is on the device or has ended.
  Duration Begun() const { return running_ + done_; }
  // Time that one request seldom needs more than. Zero while nothing is known.
  Duration Whole() const { return need_safe_; }

  // Predicted time of what it has on the device.
  Duration Running() const { return running_; }

  const ArrivalPredictor& arrivals() const { return arrivals_; }
  // The client expects its next request; see ArrivalPredictor.
  void OnHint(TimePoint at, Duration overdue) { arrivals_.OnHint(at, overdue); }

  // A request has ended, so that something is known.
  bool knows() const { return knows_; }
  // How much later a request may start that comes to an idle device.
  Duration FreshSlack() const;
  // How much others may add to its requests without making the slow ones late: half of what
  // the slowest of the last ones, undisturbed, left of the promise, but for a single one that is
  // not like the others. Unknown at first.
  std::optional<Duration> Headroom() const {
    if (!knows_slow_) return {};
    return std::max<Duration>(target - slowest_, Duration::zero()) / 2;
  }

 private:
  struct Open {
    std::uint64_t number = 0;
    TimePoint arrived{};
    TimePoint began{};
    Duration disturbed_before{};
    Duration done_before{};  // done_ever_ at its begin.
    std::optional<TimePoint> abandoned_at;
  };

  // A command counts as something, however short.
  static Duration Counted(Duration predicted) { return std::max(predicted, Duration(1)); }
  // Work on the device is taken to proceed as predicted.
  Duration Progress(TimePoint now) const {
    return std::clamp<Duration>(now - running_since_, Duration::zero(), running_);
  }
  void Learn(const Open& request, Duration disturbed, TimePoint now);

  // Every plan reads these, so they lie together and next to the promise.
  Duration done_{};  // Predicted time of what has ended for the open ones.
  Duration running_{};
  TimePoint running_since_{};  // Or when the last command before ended.
  Duration head_{};
  Duration need_likely_{}, need_safe_{};
  Duration slowest_{};       // The largest of latencies_ without an outlier.
  bool knows_ = false;       // Whether needs_ has any.
  bool knows_slow_ = false;  // Whether latencies_ has enough.

  bool was_alone_ = false;  // The open request had no other beside it.
  std::size_t open_count_ = 0;
  std::size_t abandoned_count_ = 0;
  TimePoint idle_since_{};
  Duration done_ever_{};
  // Overlapping requests that are not in needs_ yet.
  Duration overlapping_done_{};
  int overlapping_ended_ = 0;

  std::array<Open, kOpenRequestsMax> open_{};  // The first open_count_, as they arrived.
  RecentSamples<19> needs_;
  RecentSamples<19> host_times_;
  RecentSamples<64> latencies_;  // Less what others added.
  ArrivalPredictor arrivals_;
};

}  // namespace gpushared::scheduler

#endif  // GPUSHARED_SCHEDULER_PROMISE_ACCOUNT_H_
