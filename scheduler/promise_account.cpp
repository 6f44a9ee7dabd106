// SPDX-License-Identifier: Apache-2.0
#include "scheduler/promise_account.h"

#include <algorithm>

#include "scheduler/check.h"

namespace gpushared::scheduler {

namespace {

// Below this many requests nothing is said of the slow ones.
constexpr std::size_t kLatenciesMin = 16;

}  // namespace

void PromiseAccount::Begin(const RequestMark& request, Duration disturbed, TimePoint now) {
  Check(open_count_ < kOpenRequestsMax, "a client has more requests open than there may be");
  if (open_count_ == 0) {
    done_ = Duration::zero();
    first_arrival_ = request.arrived;
  }
  was_alone_ = open_count_ == 0;
  first_arrival_ = std::min(first_arrival_, request.arrived);
  open_[open_count_++] = {request.number, request.arrived, now, disturbed};
  arrivals.OnArrival(request.arrived);
}

PromiseAccount::Ending PromiseAccount::End(std::uint64_t number, Duration disturbed,
                                           TimePoint now) {
  const auto last = open_.begin() + static_cast<std::ptrdiff_t>(open_count_);
  const auto found =
      std::find_if(open_.begin(), last, [&](const Open& each) { return each.number == number; });
  Check(found != last, "a request ended that had not begun");
  const Open ended = *found;
  *found = open_[--open_count_];
  Learn(ended, disturbed, now);
  if (open_count_ > 0) {
    first_arrival_ = open_[0].arrived;
    for (std::size_t i = 1; i < open_count_; ++i) {
      first_arrival_ = std::min(first_arrival_, open_[i].arrived);
    }
    done_ = std::max<Duration>(done_ - need_likely_, Duration::zero());
  }
  return {.was_kept = now - ended.arrived <= promise};
}

void PromiseAccount::Learn(const Open& request, Duration disturbed, TimePoint now) {
  const Duration added = disturbed - request.disturbed_before;
  const Duration latency = now - request.arrived;
  latencies_.Add(latency - std::min(added, latency));
  slowest_ = latencies_.Largest();
  knows_slow_ = latencies_.size() >= kLatenciesMin;
  if (!was_alone_ || open_count_ > 0) return;  // What was done was not for it alone.
  needs_.Add(done_);
  knows_ = true;
  if (added == Duration::zero()) {
    host_times_.Add(std::max<Duration>(now - request.began - done_, Duration::zero()));
  }
  need_likely_ = needs_.Quantile(50);
  need_safe_ = needs_.Quantile(90) + host_times_.Quantile(50);
}

void PromiseAccount::OnStarted(Duration predicted, TimePoint now) {
  if (running_ == Duration::zero()) running_since_ = now;
  running_ += predicted;
}

void PromiseAccount::OnEnded(Duration predicted, TimePoint now) {
  running_ -= predicted;
  running_since_ = now;
  if (open_count_ > 0) done_ += predicted;
}

Duration PromiseAccount::FreshSlack() const {
  return std::max<Duration>(promise - need_safe_, Duration::zero());
}

}  // namespace gpushared::scheduler
