// SPDX-License-Identifier: Apache-2.0
// Predicts when a client's next request may come, from its last arrivals or from a hint.

#ifndef GPUSHARED_SCHEDULER_ARRIVAL_PREDICTOR_H_
#define GPUSHARED_SCHEDULER_ARRIVAL_PREDICTOR_H_

#include <algorithm>
#include <cstddef>
#include <optional>

#include "scheduler/recent_samples.h"
#include "scheduler/types.h"

namespace gpushared::scheduler {

// Predicts the earliest next arrival: the last arrival plus the shortest recent gap that has not
// passed yet. For a periodic client the gap is its period. For a bursty client it is the short gap
// inside a burst, and after that the pause between bursts. For a client with memoryless arrivals
// the earliest arrival is always about `now`, which carries no information.
//
// A hint from the client replaces the prediction until the next arrival, or until the hint is
// overdue.
//
// Thread-compatible value; never allocates.
class ArrivalPredictor {
 public:
  // Minimum number of gaps for a prediction.
  static constexpr std::size_t kGapsMin = 4;
  // A gap may be shorter or longer than an observed one by the observed gap divided by this.
  static constexpr int kJitterDivisor = 16;

  struct Prediction {
    TimePoint earliest{};  // Equals `now` if the request may arrive at any time.
    // Time at which the prediction changes without an arrival. Empty if no such change is due.
    std::optional<TimePoint> changes_at;
  };

  // Arrivals may be reported out of order.
  void OnArrival(TimePoint at);
  // Records that the client expects its next request at `at`. The hint is trusted until `overdue`
  // after that time.
  void OnHint(TimePoint at, Duration overdue);
  bool HasHint(TimePoint now) const { return hint_ && now < hint_->until; }

  Prediction Predict(TimePoint now) const;

  // Bounds of the next arrival, from regular arrivals or from a hint; empty when neither exists.
  // `until` is later than now.
  struct Span {
    TimePoint from{};
    TimePoint until{};
  };
  std::optional<Span> NextSpan(TimePoint now) const;

 private:
  static Duration GetJitter(Duration gap) { return gap / kJitterDivisor; }
  static Duration Bounded(Duration gap) {
    return std::clamp<Duration>(gap, Duration(1), kCommandTimeMax);
  }

  std::optional<TimePoint> last_;
  std::optional<TimePoint> before_last_;
  RecentSamples<16> gaps_;
  std::optional<Span> hint_;
};

}  // namespace gpushared::scheduler

#endif  // GPUSHARED_SCHEDULER_ARRIVAL_PREDICTOR_H_
