// SPDX-License-Identifier: Apache-2.0
#include "scheduler/share_caps.h"

#include <algorithm>

#include "scheduler/check.h"

namespace gpushared::scheduler {

namespace {

constexpr std::uint32_t kWhole = kSharePerMilleMax;
// Minimum interval between reviews of an open cap's credit. A stoppable command can therefore
// overdraw the cap by little more than this time.
constexpr Duration kReviewMin = std::chrono::microseconds(100);
// Upper bound of times, so that products fit into 64 bits.
constexpr Duration kEarnedMax = std::chrono::hours(1000);
// Capacity for all caps that the clients of a lane may name, and for those in debt.
constexpr std::size_t kCapsMax = (kCapsPerClientMax + 1) * kClientsMax;

std::int64_t ShareFor(Duration time, std::uint32_t per_mille) {
  return time.count() * static_cast<std::int64_t>(per_mille);
}

}  // namespace

// ---- one cap

std::int64_t ShareCaps::Cap::most() const {
  return std::min(ShareFor(kCapWindow, per_mille), ShareFor(kCreditMax, kSharePerMilleMax));
}

void ShareCaps::Cap::EarnUpTo(TimePoint now) {
  if (now <= earned_until) return;
  const Duration span = std::min<Duration>(now - earned_until, kEarnedMax);
  earned_until = now;
  credit = std::min(credit + ShareFor(span, per_mille), most());
  if (is_closed && 2 * credit >= most()) is_closed = false;
}

void ShareCaps::Cap::Change(std::uint32_t wanted, TimePoint now) {
  EarnUpTo(now);
  if (wanted == per_mille) return;
  per_mille = wanted;
  if (per_mille == kWhole) credit = most();
  credit = std::clamp(credit, -ShareFor(kCapWindow, per_mille), most());
  is_closed = credit <= 0;
}

TimePoint ShareCaps::Cap::ChangesAt(TimePoint now) const {
  if (per_mille == kWhole) return TimePoint::max();
  if (is_closed) {
    const std::int64_t missing = most() / 2 + 1 - credit;
    return now + std::max(Duration(missing / per_mille + 1), Duration(1));
  }
  if (on_device == 0) return TimePoint::max();
  return now + std::max(Duration(credit / (kWhole - per_mille)), kReviewMin);
}

// ---- all caps

std::uint16_t ShareCaps::PlaceFor(std::uint64_t number, TimePoint now) {
  Cap* free = nullptr;
  for (Cap& cap : caps_) {
    if (cap.number == number) return static_cast<std::uint16_t>(&cap - caps_.data());
    if (cap.is_used()) continue;
    cap.EarnUpTo(now);
    if (free == nullptr || cap.credit > free->credit) free = &cap;
  }
  const bool is_full = caps_.size() == kCapsMax;
  if (free == nullptr || (free->credit < free->most() && !is_full)) {
    Check(!is_full, "more caps are in use than clients may name");
    free = &caps_.emplace_back();
  }
  *free = Cap{.number = number, .earned_until = now};
  free->credit = free->most();
  return static_cast<std::uint16_t>(free - caps_.data());
}

ShareCaps::Set ShareCaps::Join(std::span<const ShareCap> caps, TimePoint now) {
  Check(caps.size() <= kCapsPerClientMax, "a client is under too many caps");
  Set set;
  for (const ShareCap& wanted : caps) {
    Check(wanted.per_mille >= 1 && wanted.per_mille <= kSharePerMilleMax,
          "a cap's share is out of range");
    const std::uint16_t place = PlaceFor(wanted.number, now);
    Check(std::find(set.begin(), set.end(), place) == set.end(),
          "a client is under the same cap twice");
    caps_[place].Change(wanted.per_mille, now);
    ++caps_[place].clients;
    set.places_[set.count_++] = place;
  }
  due_at_ = now;
  return set;
}

void ShareCaps::Leave(const Set& caps) {
  for (const std::uint16_t place : caps) --caps_[place].clients;
}

void ShareCaps::OnStarted(const Set& caps, TimePoint now) {
  for (const std::uint16_t place : caps) {
    Cap& cap = caps_[place];
    cap.EarnUpTo(now);
    ++cap.on_device;
    due_at_ = std::min(due_at_, cap.ChangesAt(now));
  }
}

void ShareCaps::OnEnded(const Set& caps) {
  for (const std::uint16_t place : caps) --caps_[place].on_device;
}

void ShareCaps::Bill(const Set& caps, Duration spent, TimePoint now) {
  for (const std::uint16_t place : caps) {
    Cap& cap = caps_[place];
    if (cap.per_mille == kWhole) continue;
    cap.EarnUpTo(now);
    cap.credit -= ShareFor(spent, kSharePerMilleMax);
    if (cap.is_closed || cap.credit > 0) continue;
    cap.is_closed = true;
    due_at_ = now;
  }
}

void ShareCaps::Review(TimePoint now) {
  due_at_ = TimePoint::max();
  for (Cap& cap : caps_) {
    if (!cap.is_used()) continue;
    cap.EarnUpTo(now);
    due_at_ = std::min(due_at_, cap.ChangesAt(now));
  }
}

bool ShareCaps::IsClosed(const Set& caps) const {
  return std::any_of(caps.begin(), caps.end(),
                     [&](std::uint16_t place) { return caps_[place].is_closed; });
}

}  // namespace gpushared::scheduler
