// SPDX-License-Identifier: Apache-2.0
#include "scheduler/charge_meter.h"

#include <algorithm>
#include <chrono>

#include "scheduler/check.h"

namespace gpushared::scheduler {

namespace {

__extension__ using Wide = unsigned __int128;

// Lower bound of predicted times. It keeps the time per predicted nanosecond within 64 bits even if
// a command is in flight for days.
constexpr Duration kPredictedMin = std::chrono::microseconds(1);

}  // namespace

Duration ChargeMeter::SoFar(const Entry& entry, TimePoint now) const {
  ChargeMeter ended = *this;
  return ended.End(entry, now);
}

Duration ChargeMeter::BusyUntil(TimePoint now) const {
  ChargeMeter later = *this;
  later.Advance(now);
  return later.busy_total_;
}

ChargeMeter::Entry ChargeMeter::Start(Duration predicted, TimePoint now) {
  Advance(now);
  const auto predicted_ns = static_cast<std::uint64_t>(
      std::clamp(predicted, kPredictedMin, Duration(kCommandTimeMax)).count());
  predicted_sum_ns_ += predicted_ns;
  ++in_flight_;
  return {predicted_ns, level_};
}

Duration ChargeMeter::End(const Entry& entry, TimePoint now) {
  Check(in_flight_ > 0, "a charge ended that had not started");
  Advance(now);
  predicted_sum_ns_ -= entry.predicted_ns;
  --in_flight_;
  Duration charge;
  if (in_flight_ == 0) {
    // The last command in flight is charged the rounding error, less than a nanosecond per command.
    charge = busy_total_ - charged_total_;
    carry_ = 0;
  } else {
    const Wide split = Wide{level_ - entry.level_at_start} * entry.predicted_ns;
    charge = Duration(static_cast<Duration::rep>(split >> kFractionBits));
  }
  charged_total_ += charge;
  return charge;
}

void ChargeMeter::Advance(TimePoint now) {
  const TimePoint counted = now - excluded_;
  if (in_flight_ == 0) {
    // The clock may also move backward, because time excluded while nothing was in flight must not
    // reduce any charge.
    last_ = counted;
    return;
  }
  if (counted <= last_) return;
  Duration left = counted - last_;
  last_ = counted;
  busy_total_ += left;
  while (left > Duration::zero()) {
    // The interval is split, so that the shifted length fits into 64 bits.
    const Duration part = std::min<Duration>(left, kCommandTimeMax);
    left -= part;
    const std::uint64_t total =
        (static_cast<std::uint64_t>(part.count()) << kFractionBits) + carry_;
    level_ += total / predicted_sum_ns_;
    carry_ = total % predicted_sum_ns_;
  }
}

}  // namespace gpushared::scheduler
