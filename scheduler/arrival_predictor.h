// SPDX-License-Identifier: Apache-2.0
// When a client's next request may come, from when its last ones did.

#ifndef GPUSHARED_SCHEDULER_ARRIVAL_PREDICTOR_H_
#define GPUSHARED_SCHEDULER_ARRIVAL_PREDICTOR_H_

#include <algorithm>
#include <cstddef>
#include <optional>

#include "scheduler/recent_samples.h"
#include "scheduler/types.h"

namespace gpushared::scheduler {

// Predicts the earliest next arrival: the last one plus the shortest recent gap that is not
// over yet. For a periodic client the gap is its period. For a bursty one it is the short gap
// inside a burst, and after that the pause between bursts. For a client without memory the
// prediction is about now at all times, that is, no prediction.
//
// A hint by the client itself takes the place of the prediction, until it is overdue.
//
// Thread-compatible value; allocates nothing.
class ArrivalPredictor {
 public:
  // Fewer gaps than this say nothing.
  static constexpr std::size_t kGapsMin = 4;
  // A gap may turn out this part shorter or longer than one that was seen.
  static constexpr int kJitterDivisor = 16;

  struct Prediction {
    TimePoint earliest{};  // `now` when it may come at any time.
    // The prediction changes by itself then, if nothing arrives: never if empty.
    std::optional<TimePoint> changes_at;
  };

  // Told out of order, `at` is before one that was told already.
  void OnArrival(TimePoint at);
  // The client expects its next request at `at`. Believed until `overdue` after that.
  void OnHint(TimePoint at, Duration overdue);
  bool HasHint(TimePoint now) const { return hint_ && now < hint_->until; }

  Prediction Predict(TimePoint now) const;

  // The next arrival lies between the two, as far as its regularity or its own word tells;
  // empty when it does not. `until` is later than now.
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
