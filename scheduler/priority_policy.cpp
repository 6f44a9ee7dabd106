// SPDX-License-Identifier: Apache-2.0
#include "scheduler/priority_policy.h"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace gpushared::scheduler {

namespace {

constexpr std::int64_t kMillion = 1'000'000;
// The floor's debt to the low class is capped at this many slices. Otherwise the class could occupy
// the device for a long time after a long wait for commands that cannot be stopped.
constexpr std::int64_t kOwedSlicesMax = 4;
// Lead time before an expected request, in which a fully occupied device drains.
constexpr Duration kStopTime = std::chrono::microseconds(100);
// A hint is trusted until this long after the announced time. After that, lower classes may run
// until the next hint.
constexpr Duration kOverdue = std::chrono::microseconds(500);

// Returns the minimum time between two turns of the low class: a slice, or, with a large floor,
// half of the time that the floor leaves to the others per slice. The debt decides when a turn
// begins.
Duration FloorGap(Duration slice, std::int64_t floor_ppm) {
  if (floor_ppm * 3 <= kMillion) return slice;
  return slice * (kMillion - floor_ppm) / floor_ppm / 2;
}

}  // namespace

PriorityPolicy::PriorityPolicy(const PolicyOptions& options)
    : slice_(options.slice),
      hold_off_(options.hold_off),
      floor_ppm_(std::llround(options.low_floor * static_cast<double>(kMillion))),
      floor_gap_(FloorGap(options.slice, floor_ppm_)),
      // The high class is never suspended for others.
      shares_(options.slice, options.hold_off,
              LevelFor({.scheduling_class = SchedulingClass::kNormal})) {}

void PriorityPolicy::OnClientAdded(ClientId client, const ClientSpec& spec, TimePoint now) {
  EarnUpTo(now);
  shares_.Add(client, LevelFor(spec), spec.weight, spec.group);
  clients_.Add(client, State{.head = {}, .expected = {}});
}

void PriorityPolicy::OnClientChanged(ClientId client, const ClientSpec& spec, TimePoint now) {
  EarnUpTo(now);
  shares_.Change(client, LevelFor(spec), spec.weight, now);
  if (LevelFor(spec) != kHighest) ForgetExpected(client);
}

void PriorityPolicy::OnClientRemoved(ClientId client, TimePoint now) {
  EarnUpTo(now);
  shares_.Remove(client, now);
  ForgetExpected(client);
  clients_.Remove(client);
}

void PriorityPolicy::OnReady(ClientId client, const Head& head, TimePoint now) {
  EarnUpTo(now);
  State& state = clients_.At(client);
  state.head = head;
  // Another command was queued before, so this one is not the expected request and changes no
  // share.
  if (state.ready) return;
  ForgetExpected(client);
  state.ready = true;
  shares_.OnReady(client);
}

void PriorityPolicy::OnIdle(ClientId client, TimePoint now) {
  EarnUpTo(now);
  clients_.At(client).ready = false;
  shares_.OnIdle(client, now);
}

void PriorityPolicy::OnStarted(ClientId client, const Head& head, TimePoint now) {
  EarnUpTo(now);
  shares_.OnStarted(client, head, now);
}

void PriorityPolicy::OnEnded(ClientId client, const Ended& ended, TimePoint now) {
  EarnUpTo(now);
  if (floor_ppm_ > 0 && shares_.GetLevel(client) == kLowest) {
    // Device time that the low class had in gaps counts against the floor. It counts up to one
    // slice only, because a long idle period of the others must not cost the class its floor much
    // later.
    owed_ns_ = std::max<std::int64_t>(owed_ns_ - ended.held.count(), -slice_.count());
  }
  shares_.OnEnded(client, ended, now);
}

void PriorityPolicy::OnThrottled(ClientId client, bool is_throttled, TimePoint) {
  if (is_throttled) ForgetExpected(client);
}

void PriorityPolicy::OnRequestBegan(ClientId client, const RequestMark&, TimePoint) {
  ForgetExpected(client);
}

void PriorityPolicy::OnRequestExpected(ClientId client, TimePoint at, TimePoint now) {
  // Without this check any client could keep the device idle with hints.
  if (shares_.GetLevel(client) != kHighest) return;
  const TimePoint soonest = std::max(at, now);
  clients_.At(client).expected = Expected{.at = soonest, .until = soonest + kOverdue};
  ReviewExpected(now);
}

void PriorityPolicy::ForgetExpected(ClientId client) {
  std::optional<Expected>& expected = clients_.At(client).expected;
  if (!expected) return;
  expected.reset();
  ReviewExpected(TimePoint::min());
}

void PriorityPolicy::ReviewExpected(TimePoint now) {
  next_expected_.reset();
  for (auto& item : clients_) {
    std::optional<Expected>& expected = item.value.expected;
    if (expected && now >= expected->until) expected.reset();
    if (expected && (!next_expected_ || expected->at < next_expected_->at)) {
      next_expected_ = expected;
    }
  }
}

Decision PriorityPolicy::KeepFree(Decision decision, TimePoint now) {
  if (now >= next_expected_->until) ReviewExpected(now);
  if (!next_expected_ || decision.kind == Decision::Kind::kStop) return decision;
  const Expected& expected = *next_expected_;
  const TimePoint stop_at = expected.at - kStopTime;
  if (now >= stop_at) {
    for (Level lower = kLowest; lower > kHighest; --lower) {
      if (shares_.HasStoppable(lower)) return shares_.StopOne(lower);
    }
  }
  if (decision.kind == Decision::Kind::kRun && shares_.GetLevel(decision.client) != kHighest) {
    const Head& head = clients_.At(decision.client).head;
    const TimePoint end = head.stoppable ? now + kStopTime : now + head.predicted;
    if (end >= expected.at) return Decision::Wait(expected.until);
  }
  decision.reconsider_at =
      Earlier(decision.reconsider_at, now < stop_at ? stop_at : expected.until);
  return decision;
}

Decision PriorityPolicy::Pick(TimePoint now) {
  EarnUpTo(now);
  if (floor_ppm_ > 0) {
    if (const std::optional<Decision> decision = PickFloorTurn(now)) return *decision;
  }
  Decision decision = shares_.PickByLevel(kHighest, kLowest, hold_off_, now);
  if (next_expected_) decision = KeepFree(decision, now);
  if (floor_ppm_ > 0 && decision.kind != Decision::Kind::kStop) {
    decision.reconsider_at = Earlier(decision.reconsider_at, FloorTurnDue(now));
  }
  return decision;
}

std::optional<Decision> PriorityPolicy::PickFloorTurn(TimePoint now) {
  if (floor_turn_ == FloorTurn::kNone) {
    if (now < next_floor_turn_) return {};
    if (owed_ns_ < slice_.count() || !shares_.IsActive(kLowest) || !IsHigherActive()) return {};
    floor_turn_ = FloorTurn::kEmptying;
  }
  if (floor_turn_ == FloorTurn::kEmptying) {
    for (Level higher = 0; higher < kLowest; ++higher) {
      if (shares_.HasStoppable(higher)) return shares_.StopOne(higher);
    }
    for (Level higher = 0; higher < kLowest; ++higher) {
      if (shares_.HasRunning(higher)) return Decision::Wait();
    }
    floor_turn_ = FloorTurn::kRunning;
    floor_turn_end_ = now + slice_;
  }
  if (floor_turn_ == FloorTurn::kRunning) {
    const bool is_over = now >= floor_turn_end_ || owed_ns_ <= 0 || !shares_.IsActive(kLowest);
    if (!is_over) {
      Decision decision = shares_.Pick(kLowest, now);
      if (decision.kind != Decision::Kind::kStop) {
        decision.reconsider_at = Earlier(decision.reconsider_at, floor_turn_end_);
      }
      return decision;
    }
    floor_turn_ = FloorTurn::kLeaving;
  }
  // Under a full load of higher work, low work left on the device would never finish, so it could
  // never be charged.
  if (IsHigherActive() && shares_.HasRunning(kLowest)) {
    return shares_.HasStoppable(kLowest) ? shares_.StopOne(kLowest) : Decision::Wait();
  }
  floor_turn_ = FloorTurn::kNone;
  next_floor_turn_ = now + floor_gap_;
  return {};
}

std::optional<TimePoint> PriorityPolicy::FloorTurnDue(TimePoint now) const {
  if (!shares_.IsActive(kLowest) || !IsHigherActive()) return {};
  const std::int64_t missing_ns = slice_.count() - owed_ns_;
  const TimePoint guaranteed_at =
      missing_ns > 0 ? now + Duration(missing_ns * kMillion / floor_ppm_ + 1) : now;
  return std::max(guaranteed_at, next_floor_turn_);
}

bool PriorityPolicy::IsHigherActive() const {
  for (Level higher = 0; higher < kLowest; ++higher) {
    if (shares_.IsActive(higher)) return true;
  }
  return false;
}

void PriorityPolicy::Earn(TimePoint now) {
  if (now > earned_until_ && shares_.IsActive(kLowest)) {
    const Duration span = std::min<Duration>(now - earned_until_, kCommandTimeMax);
    const std::int64_t earned = span.count() * floor_ppm_ + owed_fraction_;
    owed_ns_ = std::min(owed_ns_ + earned / kMillion, kOwedSlicesMax * slice_.count());
    owed_fraction_ = earned % kMillion;
  }
  earned_until_ = std::max(earned_until_, now);
}

}  // namespace gpushared::scheduler
