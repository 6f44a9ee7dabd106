// SPDX-License-Identifier: Apache-2.0
// Accounting of one client's requests with a latency target: their needs, slack and outcomes.

#ifndef GPUSHARED_SCHEDULER_TARGET_ACCOUNT_H_
#define GPUSHARED_SCHEDULER_TARGET_ACCOUNT_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "scheduler/arrival_predictor.h"
#include "scheduler/recent_samples.h"
#include "scheduler/types.h"

namespace gpushared::scheduler {

// Statistics and deadlines of one client's requests. Each open request has its own deadline.
// Requests are assumed to be served in order of arrival, and targets are abandoned request by
// request.
//
// A request's need is the predicted device time of its commands, because that does not depend on
// other clients' work on the device. The host's time between commands is learned from undisturbed
// requests. Commands are not labelled with their request, so several consecutive overlapping
// requests are assumed to have had equal needs.
//
// Thread-compatible value; never allocates.
class TargetAccount {
 public:
  // Zero for a client without a latency target.
  Duration target{};

  bool has_target() const { return target > Duration::zero(); }
  bool is_open() const { return open_count_ > 0; }

  // `disturbed`: total time in which others were on the device alongside requests with a target.
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
  // Restores all abandoned targets, and returns how many there were.
  std::size_t TakeBack();
  std::size_t abandoned_count() const { return abandoned_count_; }
  // Whether a request was abandoned within the last period of one target.
  bool IsOverloaded(TimePoint now) const;

  void OnStarted(Duration predicted, TimePoint now);
  void OnEnded(Duration predicted, TimePoint now);
  // Predicted time of the client's head command, empty without one.
  void SetHead(std::optional<Duration> predicted, TimePoint now);

  // Time that the first `requests` open requests need from now.
  struct Needs {
    Duration likely{};  // The median; in total at least the submitted work.
    Duration safe{};    // Seldom exceeded. The whole target while nothing is known.
  };
  Needs Need(std::size_t requests, TimePoint now) const {
    const Duration progress = Progress(now);
    // With later requests open, the submitted work may be theirs.
    const Duration brought = requests < open_count_ ? progress : running_ + head_;
    const auto count = static_cast<Duration::rep>(requests);
    const Duration safe = std::max<Duration>(brought, count * need_safe_ - done_) - progress;
    return {.likely = std::max<Duration>(brought, count * need_likely_ - done_) - progress,
            .safe = knows_ ? safe : std::max<Duration>(brought, target)};
  }
  // Requests are open, but no command of the client is queued or running.
  bool IsIdle() const { return running_ + head_ == Duration::zero(); }
  TimePoint idle_since() const { return idle_since_; }
  // Work for the open requests that is on the device or has ended.
  Duration Begun() const { return running_ + done_; }
  // Device time that one request seldom exceeds. Zero while nothing is known.
  Duration Whole() const { return need_safe_; }

  // Predicted time of the client's commands on the device.
  Duration Running() const { return running_; }

  const ArrivalPredictor& arrivals() const { return arrivals_; }
  // The client expects its next request; see ArrivalPredictor.
  void OnHint(TimePoint at, Duration overdue) { arrivals_.OnHint(at, overdue); }

  // Whether a request has ended, so that needs can be estimated.
  bool knows() const { return knows_; }
  // How much later a request may start that arrives at an idle device.
  Duration FreshSlack() const;
  // Time that others may add to its requests without making slow ones late: half of the slack of
  // the slowest recent request, without the time added by others and without a single outlier.
  // Empty until enough requests have ended.
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
    Duration done_before{};  // done_ever_ when it began.
    std::optional<TimePoint> abandoned_at;
  };

  // Counts even the shortest command.
  static Duration Counted(Duration predicted) { return std::max(predicted, Duration(1)); }
  // Assumes that work on the device proceeds as predicted.
  Duration Progress(TimePoint now) const {
    return std::clamp<Duration>(now - running_since_, Duration::zero(), running_);
  }
  void Learn(const Open& request, Duration disturbed, TimePoint now);

  // Adjacent to each other and to `target`, because every plan reads them.
  Duration done_{};  // Predicted time of commands that ended for the open requests.
  Duration running_{};
  TimePoint running_since_{};  // Or when the previous command ended.
  Duration head_{};
  Duration need_likely_{}, need_safe_{};
  Duration slowest_{};       // The largest of latencies_ without an outlier.
  bool knows_ = false;       // Whether needs_ has samples.
  bool knows_slow_ = false;  // Whether latencies_ has enough samples.

  bool was_alone_ = false;  // The open request has not overlapped with another.
  std::size_t open_count_ = 0;
  std::size_t abandoned_count_ = 0;
  TimePoint idle_since_{};
  Duration done_ever_{};
  // Overlapping requests that are not in needs_ yet.
  Duration overlapping_done_{};
  int overlapping_ended_ = 0;

  std::array<Open, kOpenRequestsMax> open_{};  // The first open_count_ entries, by arrival.
  RecentSamples<19> needs_;
  RecentSamples<19> host_times_;
  RecentSamples<64> latencies_;  // Without the time added by others.
  ArrivalPredictor arrivals_;
};

}  // namespace gpushared::scheduler

#endif  // GPUSHARED_SCHEDULER_TARGET_ACCOUNT_H_
