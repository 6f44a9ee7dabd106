// SPDX-License-Identifier: Apache-2.0
// Caps of device time: how much their clients have used, and whether they may go on.

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
// A cap's share is kept over times of this length and longer.
inline constexpr Duration kCapWindow = std::chrono::milliseconds(100);

// At most this part of the device's time, for all clients together that are under the same number.
// The cap of the whole device bars nobody.
struct ShareCap {
  std::uint64_t number = 0;
  std::uint32_t per_mille = kSharePerMilleMax;  // 1..kSharePerMilleMax. What was said last counts.
};

// The caps of one lane.
//
// A cap earns credit at its share of the time, and its clients' commands spend it. At zero it
// closes: its clients are throttled until it has earned half of the most that it can save. The most
// is the share of a window, and at most kCreditMax, so that a client that slept is never much
// above its share. A command that cannot be stopped may run up debt, which is paid back in full.
//
// Time within caps is wall time: a device that was kept from running by its host gives a capped
// client no less.
//
// Allocates when a cap is named for the first time. Thread-compatible.
class ShareCaps {
 public:
  static constexpr Duration kCreditMax = std::chrono::milliseconds(10);

  // The caps that a client is under, or under which a command runs. One word: each command has one.
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

  // Puts a client under these caps. A share that differs from the cap's present one replaces it.
  // Debt beyond a window's share is forgiven then, so that a new share counts within a window.
  // At most kCapsPerClientMax, each with another number.
  Set Join(std::span<const ShareCap> caps, TimePoint now);
  // The client leaves, or gets others. A cap outlives its clients while it is in debt.
  void Leave(const Set& caps);

  // A command of these caps begins or ends; caps are not forgotten in between.
  void OnStarted(const Set& caps, TimePoint now);
  void OnEnded(const Set& caps);
  // Device time of a command. Negative when less was charged in the end than billed before.
  void Bill(const Set& caps, Duration spent, TimePoint now);

  // Something may change now: the owner bills what is on the device, then calls Review.
  bool IsDue(TimePoint now) const { return now >= due_at_; }
  void Review(TimePoint now);
  // When to review next; never while there is no cap.
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
    std::int64_t credit = 0;  // In thousandths of a nanosecond. Negative: debt.
    TimePoint earned_until{};

    bool is_used() const { return clients > 0 || on_device > 0; }
    std::int64_t most() const;
    void EarnUpTo(TimePoint now);
    void Change(std::uint32_t wanted, TimePoint now);
    // When it opens, or would close if its clients had the device alone; never while it is at rest.
    TimePoint ChangesAt(TimePoint now) const;
  };

  std::uint16_t PlaceFor(std::uint64_t number, TimePoint now);

  std::vector<Cap> caps_;
  TimePoint due_at_ = TimePoint::max();
};

}  // namespace gpushared::scheduler

#endif  // GPUSHARED_SCHEDULER_SHARE_CAPS_H_
