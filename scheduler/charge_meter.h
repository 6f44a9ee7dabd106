// SPDX-License-Identifier: Apache-2.0
// Splits device time among the commands that were on the device.

#ifndef GPUSHARED_SCHEDULER_CHARGE_METER_H_
#define GPUSHARED_SCHEDULER_CHARGE_METER_H_

#include <cstddef>
#include <cstdint>

#include "scheduler/types.h"

namespace gpushared::scheduler {

// Charges each command for its part of the time it was in flight.
//
// Every start and end bounds an interval, whose length is split among the commands in flight in
// proportion to their predicted times. Once all have ended, the charges add up exactly to the time
// in which anything was in flight, so no client pays for waiting on another one. Only excluded
// time, in which the host kept the device from running, is not charged.
//
// A start or an end costs the same regardless of the number of commands in flight, because time per
// predicted nanosecond is accumulated once for all of them.
//
// Thread-compatible.
class ChargeMeter {
 public:
  // State of one command in flight, stored by the caller.
  struct Entry {
    std::uint64_t predicted_ns = 0;
    std::uint64_t level_at_start = 0;
  };

  // Sets the total of all excluded time, which takes effect at the next start or end. The total
  // never decreases. Time that is detected late may exceed the interval since the last start or
  // end. The remainder is deducted from later intervals, until nothing is in flight.
  void Exclude(Duration total) { excluded_ = total; }

  Entry Start(Duration predicted, TimePoint now);
  // Returns what the command would be charged if it ended now.
  Duration SoFar(const Entry& entry, TimePoint now) const;
  // Returns the command's charge. A command may be ended and restarted with another prediction at
  // the same moment; from then on it is charged by the new one.
  Duration End(const Entry& entry, TimePoint now);

  Duration excluded() const { return excluded_; }
  Duration charged_total() const { return charged_total_; }
  // Device time of commands in flight that has not been charged yet, up to the last start or end.
  Duration uncharged() const { return busy_total_ - charged_total_; }
  // Time with at least one command in flight, less excluded time, up to the last start or end.
  Duration busy_total() const { return busy_total_; }
  // Returns the value that busy_total() would have after a start or end at `now`.
  Duration BusyUntil(TimePoint now) const;

 private:
  void Advance(TimePoint now);

  static constexpr int kFractionBits = 20;

  // Time per predicted nanosecond, in units of 2^-kFractionBits. Wraps around after months of busy
  // time, so only differences are meaningful.
  std::uint64_t level_ = 0;
  std::uint64_t carry_ = 0;  // Remainder of the division, carried into the next interval.
  std::uint64_t predicted_sum_ns_ = 0;
  std::size_t in_flight_ = 0;
  Duration excluded_{};
  // Time of the last start or end, on a clock that stops while time is excluded.
  TimePoint last_{};
  Duration busy_total_{};
  Duration charged_total_{};
};

}  // namespace gpushared::scheduler

#endif  // GPUSHARED_SCHEDULER_CHARGE_METER_H_
