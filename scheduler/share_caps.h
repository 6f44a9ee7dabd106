// SPDX-License-Identifier: Apache-2.0
// Caps of device time: accounting, throttling and resumption of their clients.

#ifndef GPUSHARED_SCHEDULER_SHARE_CAPS_H_
#define GPUSHARED_SCHEDULER_SHARE_CAPS_H_

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "scheduler/types.h"

namespace gpushared::scheduler {

inline constexpr std::size_t kCapsPerClientMax = 3;
// A cap's share holds over intervals of at least this length.
inline constexpr Duration kCapWindow = std::chrono::milliseconds(100);

// Upper bound of the share of device time for all clients under the same cap number together. A cap
// of the whole device throttles no client.
struct ShareCap {
  std::uint64_t number = 0;
  // 1..kSharePerMilleMax. If clients set different values, the latest one applies.
  std::uint32_t per_mille = kSharePerMilleMax;
};

// The caps of one lane.
//
// A cap earns credit at its share of wall time, and its clients' commands spend the credit. At zero
// credit the cap closes: its clients are throttled until it has earned half of its credit limit.
// The limit is the share of one window, but at most kCreditMax, so that a client that slept is
// never far above its share. A command that cannot be stopped may run up debt, which is paid back
// in full.
//
// Credit is earned in wall time, so host steal does not reduce a capped client's share.
//
// Allocates when a cap is named for the first time. Thread-compatible.
class ShareCaps {
 public:
  static constexpr Duration kCreditMax = std::chrono::milliseconds(10);

  // The caps of a client or of a running command. Packed into one word, because every command has a
  // set.
  class alignas(std::uint64_t) Set {
   public:
    bool empty() const { return count_ == 0; }
    auto begin() const { return places_.begin(); }
    auto end() const { return places_.begin() + count_; }

   private:
    friend class ShareCaps;
    std::array<std::uint16_t, kCapsPerClientMax> places_{};
    std::uint8_t count_ = 0;
  };

  // Puts a client under these caps. A share that differs from the cap's present one replaces it,
  // and debt beyond the new share of a window is forgiven, so that the new share takes effect
  // within a window. `caps` are at most kCapsPerClientMax, with distinct numbers.
  Set Join(std::span<const ShareCap> caps, TimePoint now);
  // Called when the client leaves or gets other caps. A cap outlives its clients while it is in
  // debt.
  void Leave(const Set& caps);

  // Report that a command under these caps begins or ends. The caps of a running command are not
  // dropped.
  void OnStarted(const Set& caps, TimePoint now);
  void OnEnded(const Set& caps);
  // Bills device time of a command. `spent` is negative if the final charge is smaller than the
  // time billed before.
  void Bill(const Set& caps, Duration spent, TimePoint now);

  // Returns whether a cap may change now. If so, the owner bills the commands on the device, then
  // calls Review.
  bool IsDue(TimePoint now) const { return now >= due_at_; }
  void Review(TimePoint now);
  // Returns the time of the next review; empty without caps.
  std::optional<TimePoint> due_at() const {
    return due_at_ == TimePoint::max() ? std::nullopt : std::optional(due_at_);
  }

  bool IsClosed(const Set& caps) const;

 private:
  struct Cap {
    std::uint64_t number = 0;
    std::uint32_t per_mille = kSharePerMilleMax;
    std::uint32_t clients = 0;
    std::uint32_t on_device = 0;
    bool is_closed = false;
    std::int64_t credit = 0;  // In thousandths of a nanosecond; debt if negative.
    TimePoint earned_until{};

    bool is_used() const { return clients > 0 || on_device > 0; }
    std::int64_t most() const;
    void EarnUpTo(TimePoint now);
    void Change(std::uint32_t wanted, TimePoint now);
    // Returns when the cap opens, or, if it is open, when it would close if its clients had the
    // device alone; TimePoint::max() for an open cap without commands on the device.
    TimePoint ChangesAt(TimePoint now) const;
  };

  std::uint16_t PlaceFor(std::uint64_t number, TimePoint now);

  std::vector<Cap> caps_;
  TimePoint due_at_ = TimePoint::max();
};

}  // namespace gpushared::scheduler

#endif  // GPUSHARED_SCHEDULER_SHARE_CAPS_H_
