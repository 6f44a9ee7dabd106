// SPDX-License-Identifier: Apache-2.0
#include "scheduler/target_account.h"

#include <algorithm>
#include <utility>

#include "scheduler/check.h"

namespace gpushared::scheduler {

namespace {

// Minimum number of requests before the slow ones among them are judged.
constexpr std::size_t kLatenciesMin = 16;
// A request this many times slower than the next slowest is considered an outlier, such as one
// during which its host was suspended by a debugger or hypervisor.
constexpr int kOutlier = 2;
// Number of overlapping requests that make one sample of a request's need. Work done for one of
// these requests while an earlier one is open is within the sample, and work for requests that are
// still open afterwards cancels out with work done before the sample.
constexpr int kOverlapping = 4;
// One request in this many may be late.
constexpr int kRequestsPerLate = 100;
// Bound of the late requests that later ones have to make up for. Without it, a period of overload
// would restrict other work for a long time.
constexpr int kLateMax = 8;

}  // namespace

void TargetAccount::Begin(const RequestMark& request, Duration disturbed, TimePoint now) {
  Check(open_count_ < kOpenRequestsMax, "a client has more requests open than there may be");
  if (open_count_ == 0) {
    done_ = Duration::zero();
    idle_since_ = now;
  }
  was_alone_ = open_count_ == 0;
  const auto last = open_.begin() + static_cast<std::ptrdiff_t>(open_count_++);
  const auto place = std::find_if(open_.begin(), last,
                                  [&](const Open& each) { return each.arrived > request.arrived; });
  std::move_backward(place, last, last + 1);
  *place = {request.number, request.arrived, now, disturbed, done_ever_, {}};
  arrivals_.OnArrival(request.arrived);
}

TargetAccount::Ending TargetAccount::End(std::uint64_t number, Duration disturbed, TimePoint now) {
  const auto last = open_.begin() + static_cast<std::ptrdiff_t>(open_count_);
  const auto found =
      std::find_if(open_.begin(), last, [&](const Open& each) { return each.number == number; });
  Check(found != last, "a request ended that had not begun");
  const Open ended = *found;
  std::move(found + 1, last, found);
  --open_count_;
  if (ended.abandoned_at) --abandoned_count_;
  Learn(ended, disturbed, now);
  // The remaining work was done for later requests, so it cannot exceed their need.
  done_ = std::clamp<Duration>(done_ - need_likely_, Duration::zero(),
                               static_cast<int>(open_count_) * need_likely_);
  const bool was_met = now - ended.arrived <= target;
  late_credit_ = std::clamp(late_credit_ + 1 - (was_met ? 0 : kRequestsPerLate),
                            -kLateMax * kRequestsPerLate, kRequestsPerLate);
  return {.was_met = was_met, .was_abandoned = ended.abandoned_at.has_value()};
}

void TargetAccount::Abandon(std::size_t open, TimePoint now) {
  open_[open].abandoned_at = now;
  ++abandoned_count_;
}

std::size_t TargetAccount::TakeBack() {
  for (Open& each : open_) each.abandoned_at.reset();
  return std::exchange(abandoned_count_, 0);
}

bool TargetAccount::IsOverloaded(TimePoint now) const {
  const auto last = open_.begin() + static_cast<std::ptrdiff_t>(open_count_);
  return std::any_of(open_.begin(), last, [&](const Open& each) {
    return each.abandoned_at && now <= *each.abandoned_at + target;
  });
}

void TargetAccount::Learn(const Open& request, Duration disturbed, TimePoint now) {
  const Duration added = disturbed - request.disturbed_before;
  const Duration latency = now - request.arrived;
  latencies_.Add(latency - std::min(added, latency));
  slowest_ = latencies_.LargestButOne();
  if (const Duration largest = latencies_.Largest(); largest <= kOutlier * slowest_) {
    slowest_ = largest;
  }
  knows_slow_ = latencies_.size() >= kLatenciesMin;
  if (was_alone_ && open_count_ == 0) {
    needs_.Add(done_);
    overlapping_done_ -= done_;
  } else if (++overlapping_ended_ == kOverlapping) {
    needs_.Add(overlapping_done_ / kOverlapping);
    overlapping_done_ = Duration::zero();
    overlapping_ended_ = 0;
  }
  knows_ = !needs_.empty();
  if (added == Duration::zero()) {
    // No work without a target ran alongside this request, so the time in which none of the
    // client's commands was on the device was the host's.
    const Duration on_device = done_ever_ - request.done_before;
    host_times_.Add(std::max<Duration>(now - request.began - on_device, Duration::zero()));
  }
  need_likely_ = needs_.Quantile(50);
  need_safe_ = needs_.Quantile(90) + host_times_.Quantile(50);
}

void TargetAccount::SetHead(std::optional<Duration> predicted, TimePoint now) {
  if (!predicted && head_ > Duration::zero()) idle_since_ = now;
  head_ = predicted ? Counted(*predicted) : Duration::zero();
}

void TargetAccount::OnStarted(Duration predicted, TimePoint now) {
  if (running_ == Duration::zero()) running_since_ = now;
  running_ += Counted(predicted);
}

void TargetAccount::OnEnded(Duration predicted, TimePoint now) {
  const Duration counted = Counted(predicted);
  running_ -= counted;
  running_since_ = idle_since_ = now;
  if (open_count_ == 0) return;
  done_ += counted;
  done_ever_ += counted;
  overlapping_done_ += counted;
}

Duration TargetAccount::FreshSlack() const {
  return std::max<Duration>(target - need_safe_, Duration::zero());
}

}  // namespace gpushared::scheduler
