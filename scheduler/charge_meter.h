// SPDX-License-Identifier: Apache-2.0
// Splits device time over the commands that were on the device.

#ifndef GPUSHARED_SCHEDULER_CHARGE_METER_H_
#define GPUSHARED_SCHEDULER_CHARGE_METER_H_

#include <cstddef>
#include <cstdint>

#include "scheduler/types.h"

namespace gpushared::scheduler {

// Charges each command for its part of the time it was in flight.
//
// Every start and end bounds an interval; its length is split over the commands in
// flight in proportion to their predicted times. Once all have ended, the sum of all
// charges equals the time in which anything was in flight, exactly. Nobody pays for waiting
// on a neighbour. Only excluded time goes unbilled: its host kept the device from running.
//
// A start or an end costs the same however many commands are in flight: time per
// predicted nanosecond is accumulated once for all.
//
// Thread-compatible.
class ChargeMeter {
 public:
  // The owner keeps one for each command in flight.
  struct Entry {
    std::uint64_t predicted_ns = 0;
    std::uint64_t level_at_start = 0;
  };

  // Excludes `total` in all, never less than before, up to the next start or end. Time noticed late
  // may exceed the interval since the last start or end. The rest comes off later intervals, until
  // nothing is in flight.
  void Exclude(Duration total) { excluded_ = total; }

  Entry Start(Duration predicted, TimePoint now);
  // The charge of the command if it ended now.
  Duration SoFar(const Entry& entry, TimePoint now) const;
  // Returns the command's charge. A command may be ended and started again with another prediction
  // at one moment: it is then charged by that one from there on.
  Duration End(const Entry& entry, TimePoint now);

  Duration excluded() const { return excluded_; }
  Duration charged_total() const { return charged_total_; }
  // Device time of commands in flight, which is not charged yet; up to the last start or end.
  Duration uncharged() const { return busy_total_ - charged_total_; }
  // Time with at least one command in flight, less what was excluded, up to the last start or end.
  Duration busy_total() const { return busy_total_; }
  // The same up to `now`.
  Duration BusyUntil(TimePoint now) const;

 private:
  void Advance(TimePoint now);

  static constexpr int kFractionBits = 20;

  // Time per predicted nanosecond, in 2^-kFractionBits. Wraps around after months of
  // never being idle, so only differences mean something.
  std::uint64_t level_ = 0;
  std::uint64_t carry_ = 0;  // Remainder of the division, carried into the next interval.
  std::uint64_t predicted_sum_ns_ = 0;
  std::size_t in_flight_ = 0;
  Duration excluded_{};
  TimePoint last_{};  // On a clock that stands still while time is excluded.
  Duration busy_total_{};
  Duration charged_total_{};
};

}  // namespace gpushared::scheduler

#endif  // GPUSHARED_SCHEDULER_CHARGE_METER_H_
