// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SCHEDULER_PRIORITY_POLICY_H_
#define GPUSHARED_SCHEDULER_PRIORITY_POLICY_H_

#include <cstdint>
#include <optional>

#include "scheduler/client_table.h"
#include "scheduler/fair_shares.h"
#include "scheduler/policy.h"

namespace gpushared::scheduler {

// Serves the high class before the normal class, and the normal class before the low class. Inside
// a class device time is shared by weight.
//
// A lower class fills gaps: its work starts only while no higher class has anything ready or on the
// device, and only a hold-off time after that, so that short pauses inside one request do not let
// lower work in. When higher work becomes ready, stoppable lower work is stopped immediately. With
// a floor, the low class earns the floor's share of the time in which the class has work. Whenever
// the class has earned a slice, the device is drained of higher work and then runs low work for a
// slice.
//
// A client of the high class may announce a request. Stoppable lower work is then stopped in time
// for the request, and non-preemptible work that would last beyond the announced time does not
// start. The announcement ends with the client's next command or request, or shortly after the
// announced time.
class PriorityPolicy final : public Policy {
 public:
  explicit PriorityPolicy(const PolicyOptions& options);

  LaneRules rules() const override { return {.classes_matter = true}; }

  void OnClientAdded(ClientId client, const ClientSpec& spec, TimePoint now) override;
  void OnClientChanged(ClientId client, const ClientSpec& spec, TimePoint now) override;
  void OnClientRemoved(ClientId client, TimePoint now) override;
  void OnReady(ClientId client, const Head& head, TimePoint now) override;
  void OnIdle(ClientId client, TimePoint now) override;
  void OnStarted(ClientId client, const Head& head, TimePoint now) override;
  void OnEnded(ClientId client, const Ended& ended, TimePoint now) override;
  void OnThrottled(ClientId client, bool is_throttled, TimePoint now) override;
  void OnRequestBegan(ClientId client, const RequestMark& request, TimePoint now) override;
  void OnRequestExpected(ClientId client, TimePoint at, TimePoint now) override;
  Decision Pick(TimePoint now) override;
  bool IsPreemptibleBy(const ClientSpec& running, const ClientSpec& waiting) const override {
    const bool is_floor = floor_ppm_ > 0 && LevelFor(waiting) == kLowest;
    return is_floor ? LevelFor(running) != kLowest : LevelFor(waiting) < LevelFor(running);
  }

 private:
  using Level = FairShares::Level;
  static constexpr Level kHighest = 0;
  static constexpr Level kLowest = kSchedulingClasses - 1;

  // A slice of the low class that takes precedence over higher work.
  enum class FloorTurn : std::uint8_t { kNone, kEmptying, kRunning, kLeaving };

  static Level LevelFor(const ClientSpec& spec) {
    return static_cast<Level>(spec.scheduling_class);
  }
  // Brings the floor's account up to date; called before every event takes effect.
  void EarnUpTo(TimePoint now) {
    if (floor_ppm_ > 0) Earn(now);
  }
  void Earn(TimePoint now);
  // Returns a decision only during a floor turn: while the device is drained of higher work, while
  // low work runs, and until low work has left the device.
  std::optional<Decision> PickFloorTurn(TimePoint now);
  // Restricts the decision while a high-class request is expected.
  Decision KeepFree(Decision decision, TimePoint now);
  // Drops the client's announcement, because the request has come or will not come.
  void ForgetExpected(ClientId client);
  void ReviewExpected(TimePoint now);
  // Returns when the low class will be owed a slice if it keeps waiting.
  std::optional<TimePoint> FloorTurnDue(TimePoint now) const;
  bool IsHigherActive() const;

  const Duration slice_;
  const Duration hold_off_;
  const std::int64_t floor_ppm_;  // An integer, so that decisions are the same on every machine.
  const Duration floor_gap_;
  FairShares shares_;

  // Time at which a high-class client expects a request, and time until which the announcement is
  // trusted.
  struct Expected {
    TimePoint at{};
    TimePoint until{};
  };
  struct State {
    Head head;
    bool ready = false;
    std::optional<Expected> expected;
  };
  ClientTable<State> clients_;
  std::optional<Expected> next_expected_;  // The earliest expected request of any client.

  TimePoint earned_until_{};
  std::int64_t owed_ns_ = 0;        // Device time owed to the low class.
  std::int64_t owed_fraction_ = 0;  // Fraction beyond owed_ns_, in millionths of a nanosecond.
  FloorTurn floor_turn_ = FloorTurn::kNone;
  TimePoint floor_turn_end_{};
  TimePoint next_floor_turn_{};
};

}  // namespace gpushared::scheduler

#endif  // GPUSHARED_SCHEDULER_PRIORITY_POLICY_H_
