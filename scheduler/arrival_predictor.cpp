// SPDX-License-Identifier: Apache-2.0
#include "scheduler/arrival_predictor.h"

#include <algorithm>

namespace gpushared::scheduler {

void ArrivalPredictor::OnArrival(TimePoint at) {
  hint_.reset();
  if (last_ && at < *last_) {
    // This arrival is inside the last gap and divides that gap. An even older arrival is ignored,
    // because the gap that contains it has already been recorded.
    if (before_last_ && at <= *before_last_) return;
    if (before_last_) gaps_.ReplaceLast(Bounded(at - *before_last_));
    gaps_.Add(Bounded(*last_ - at));
    before_last_ = at;
    return;
  }
  if (last_) gaps_.Add(Bounded(at - *last_));
  before_last_ = last_;
  last_ = at;
}

void ArrivalPredictor::OnHint(TimePoint at, Duration overdue) {
  hint_ = Span{.from = at, .until = at + overdue};
}

ArrivalPredictor::Prediction ArrivalPredictor::Predict(TimePoint now) const {
  if (HasHint(now)) {
    if (now < hint_->from) return {.earliest = hint_->from, .changes_at = hint_->from};
    return {.earliest = now, .changes_at = hint_->until};
  }
  if (gaps_.size() < kGapsMin) return {.earliest = now, .changes_at = {}};
  const Duration elapsed = now - *last_;
  std::optional<Duration> next;  // Becomes the shortest gap that has not passed yet.
  for (const Duration gap : gaps_) {
    if (gap + GetJitter(gap) >= elapsed && (!next || gap < *next)) next = gap;
  }
  if (!next) return {.earliest = now, .changes_at = {}};
  const TimePoint from = *last_ + (*next - GetJitter(*next));
  if (now < from) return {.earliest = from, .changes_at = from};
  return {.earliest = now, .changes_at = *last_ + *next + GetJitter(*next) + Duration(1)};
}

std::optional<ArrivalPredictor::Span> ArrivalPredictor::NextSpan(TimePoint now) const {
  if (HasHint(now)) return hint_;
  if (gaps_.size() < kGapsMin) return {};
  const Duration shortest = gaps_.Smallest(), longest = gaps_.Largest();
  // The gaps differ too much for a periodic client.
  if (longest - shortest > 2 * GetJitter(longest)) return {};
  const Span span{.from = *last_ + (shortest - GetJitter(shortest)),
                  .until = *last_ + longest + GetJitter(longest)};
  return now < span.until ? std::optional(span) : std::nullopt;
}

}  // namespace gpushared::scheduler
