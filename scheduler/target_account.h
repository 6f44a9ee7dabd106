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
  // Latency target; zero for a client without a latency target.
  Duration target{};

  bool has_target() const { return target > Duration::zero(); }
  bool is_open() const { return open_count_ > 0; }

  // Records the start of a request. `disturbed` is the total time in which work without a target
  // was on the device alongside requests with a target.
  void Begin(const RequestMark& request, Duration disturbed, TimePoint now);
  struct Ending {
    bool was_met = false;
    bool was_abandoned = false;
  };
  Ending End(std::uint64_t number, Duration disturbed, TimePoint now);

  // Returns the number of open requests. Open requests are numbered from 0, in order of arrival.
  std::size_t open_count() const { return open_count_; }
  TimePoint deadline(std::size_t open) const { return open_[open].arrived + target; }
  bool IsAbandoned(std::size_t open) const { return open_[open].abandoned_at.has_value(); }
  void Abandon(std::size_t open, TimePoint now);
  // Restores all abandoned targets, and returns how many there were.
  std::size_t TakeBack();
  std::size_t abandoned_count() const { return abandoned_count_; }
  // Returns whether an open request was abandoned, and at most `target` has passed since then.
  bool IsOverloaded(TimePoint now) const;

  void OnStarted(Duration predicted, TimePoint now);
  void OnEnded(Duration predicted, TimePoint now);
  // Sets the predicted time of the client's head command; empty if it has none.
  void SetHead(std::optional<Duration> predicted, TimePoint now);

  // Time that the first `requests` open requests need from now.
  struct Needs {
    Duration likely{};  // Based on the median need; in total at least the submitted work.
    Duration safe{};    // A bound that is seldom exceeded; the whole target without samples.
  };
  Needs Need(std::size_t requests, TimePoint now) const {
    const Duration progress = Progress(now);
    // The submitted work may belong to later open requests.
    const Duration brought = requests < open_count_ ? progress : running_ + head_;
    const auto count = static_cast<Duration::rep>(requests);
    const Duration safe = std::max<Duration>(brought, count * need_safe_ - done_) - progress;
    return {.likely = std::max<Duration>(brought, count * need_likely_ - done_) - progress,
            .safe = knows_ ? safe : std::max<Duration>(brought, target)};
  }
  // Returns whether no command of the client is queued or running.
  bool IsIdle() const { return running_ + head_ == Duration::zero(); }
  TimePoint idle_since() const { return idle_since_; }
  // Returns the work for the open requests that is on the device or has ended.
  Duration Begun() const { return running_ + done_; }
  // Returns the device time that one request seldom exceeds; zero without samples.
  Duration Whole() const { return need_safe_; }

  // Returns the predicted time of the client's commands on the device.
  Duration Running() const { return running_; }

  const ArrivalPredictor& arrivals() const { return arrivals_; }
  // Records that the client expects its next request; see ArrivalPredictor.
  void OnHint(TimePoint at, Duration overdue) { arrivals_.OnHint(at, overdue); }

  // Returns whether the need of a request has been measured, so that needs can be estimated.
  bool knows() const { return knows_; }
  // Returns by how much the start of a request that arrives at an idle device may be delayed.
  Duration FreshSlack() const;
  // Returns whether other clients may make one more request late: fewer than one in a hundred of
  // this client's requests have been late.
  bool MayBeLate() const { return late_credit_ > 0; }
  // Returns the time that others may add to the client's requests without making slow ones late:
  // half of the slack of the slowest recent request, without the time added by others and without a
  // single outlier. Empty until enough requests have ended.
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
    Duration done_before{};  // Value of done_ever_ when the request began.
    std::optional<TimePoint> abandoned_at;
  };

  // Returns the predicted time, but at least one unit, so that even the shortest command is
  // included.
  static Duration Counted(Duration predicted) { return std::max(predicted, Duration(1)); }
  // Assumes that work on the device proceeds as predicted.
  Duration Progress(TimePoint now) const {
    return std::clamp<Duration>(now - running_since_, Duration::zero(), running_);
  }
  void Learn(const Open& request, Duration disturbed, TimePoint now);

  // The members up to open_count_ are adjacent to each other and to `target`, because every plan
  // reads them.
  Duration done_{};  // Predicted time of commands that ended for the open requests.
  Duration running_{};
  // Time at which the running command started or the previous one ended.
  TimePoint running_since_{};
  Duration head_{};
  Duration need_likely_{}, need_safe_{};
  Duration slowest_{};       // The largest of latencies_ without an outlier.
  bool knows_ = false;       // Whether needs_ has samples.
  bool knows_slow_ = false;  // Whether latencies_ has enough samples to judge slow requests.

  // Number of ended requests, less a hundred for each late one; bounded in both directions.
  int late_credit_ = 0;

  bool was_alone_ = false;  // Whether the open request has not overlapped with another one.
  std::size_t open_count_ = 0;
  std::size_t abandoned_count_ = 0;
  TimePoint idle_since_{};
  Duration done_ever_{};
  // Work for overlapping requests that is not in needs_ yet.
  Duration overlapping_done_{};
  int overlapping_ended_ = 0;

  std::array<Open, kOpenRequestsMax> open_{};  // The first open_count_ entries, by arrival.
  RecentSamples<19> needs_;
  RecentSamples<19> host_times_;
  RecentSamples<64> latencies_;  // Latencies without the time added by others.
  ArrivalPredictor arrivals_;
};

}  // namespace gpushared::scheduler

#endif  // GPUSHARED_SCHEDULER_TARGET_ACCOUNT_H_
