// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SCHEDULER_DEADLINE_POLICY_H_
#define GPUSHARED_SCHEDULER_DEADLINE_POLICY_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "scheduler/client_table.h"
#include "scheduler/fair_shares.h"
#include "scheduler/policy.h"
#include "scheduler/recent_samples.h"
#include "scheduler/target_account.h"

namespace gpushared::scheduler {

// Keeps latency promises, and gives the device to others as far as that allows.
//
// A client with a promise stands above all classes while it has a request open. Among such
// clients the earliest deadline runs first (Liu and Layland, Journal of the ACM 20(1), 1973).
// All other work is shared as under `priority`, by class and weight. It may start in two cases:
//   * Beside promised work, if two things hold. It can leave the device before any promised
//     request needs it. And it adds no more to this busy time than the recent slow requests left
//     of the promise. The first rule alone would spend slack that later requests will need.
//   * In a pause, if one of three things holds. A request in the middle would still be kept, and
//     slow ones have as much left, or the work is no longer than a stop. Or none is expected so
//     soon. Or none has been open for `patience`.
//
// When not all promises can be kept, the policy gives up those that are lost anyway. Then it gives
// up as many as it takes: lowest class first, and inside a class the one that needs most, which
// gives up the fewest (Moore, Management Science 15(1), 1968). Among one client's requests it gives
// up the last. A client whose open requests are all given up is served by its class.
//
// A request that brings nothing keeps nobody waiting for longer than `patience`, or than such a
// request takes altogether. Its promise holds again when it brings something. A client whose
// requests are not known yet holds back no higher class by what they might need. By what they do
// need it does so for `patience` at most.
class DeadlinePolicy final : public Policy {
 public:
  explicit DeadlinePolicy(const PolicyOptions& options);

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
  void OnRequestEnded(ClientId client, std::uint64_t number, TimePoint now) override;
  void OnRequestExpected(ClientId client, TimePoint at, TimePoint now) override;
  Decision Pick(TimePoint now) override;
  bool IsPreemptibleBy(const ClientSpec& running, const ClientSpec& waiting) const override {
    const bool has_target = waiting.latency_target.value_or(Duration::zero()) > Duration::zero();
    return has_target || waiting.scheduling_class < running.scheduling_class;
  }
  TargetReport targets() const override;

 private:
  using Level = FairShares::Level;
  static constexpr Level kWithTarget = 0;
  static constexpr Level kHighest = 1;  // The high class.
  static constexpr Level kLowest = kSchedulingClasses;

  struct State {
    ClientId client;
    ClientSpec spec;
    Head head{};
    bool ready = false;
    bool has_target = false;    // Is in due_.
    bool is_set_aside = false;  // Its requests have brought nothing for too long.
    bool is_throttled = false;
    std::uint32_t running = 0;
    Duration unstoppable{};  // Predicted time of what it has on the device and cannot stop.
    std::optional<TimePoint> stop_asked{};
    // Behind the others: what decisions read of it lies at its start.
    TargetAccount account{};

    bool is_waited_for() const {
      return account.has_target() && account.knows() && !account.is_open() && !is_throttled;
    }
  };

  // An open request whose promise is to be kept.
  struct Due {
    TimePoint deadline{};
    TimePoint latest_end{};  // Leaves a reserve for errors of predictions.
    Duration headroom{};     // Time that it leaves to others.
    State* state = nullptr;
    std::uint8_t open = 0;      // Its number among its client's.
    std::uint8_t requests = 0;  // It and those before it that are of no other entry.
    bool is_first = false;      // Among its client's requests.
    std::uint8_t unknown_from = kSchedulingClasses;  // Its class while too little is known of it.

    std::size_t counted_before() const { return open + std::size_t{1} - requests; }
  };

  Level LevelFor(const State& state) const {
    if (state.has_target) return kWithTarget;
    return kHighest + static_cast<Level>(state.spec.scheduling_class);
  }

  // Before every event: counts the time in which others were beside promised work.
  void AdvanceTo(TimePoint now);
  // After a change of what decides where a client belongs.
  void Place(State& state, TimePoint now);
  void Enlist(State& state);
  void Delist(const State& state);
  void Reindex();
  // Sums up the part of the plan that no command changes.
  void SumUp();
  // A client's commands on the device change sides together with it.
  void CountOthers(const State& state, int sign);

  void Replan(TimePoint now);
  void SetAsideIdle(TimePoint now);
  // Until when an idle client's requests are waited for.
  TimePoint WaitedForUntil(const TargetAccount& account) const {
    return account.idle_since() + std::max(patience_, account.Whole());
  }
  // Nothing is known of its requests, and they have held up a higher class for long enough.
  bool IsOverdrawn(const State& state) const;
  // Null when all open requests can be kept, and then the plan for them; else one to give up.
  const Due* Plan(TimePoint now);
  // Looks among the requests up to `last`, which cannot all be kept.
  const Due* FindVictim(const Due& last, TimePoint now) const;
  void Abandon(const Due& due, TimePoint now);
  void ReviewPause(TimePoint now);

  std::optional<Decision> PickWithTarget(TimePoint now);
  bool MustStopOthers(TimePoint now) const;
  Decision StopOther();
  // The lowest level that has anything of what is not promised; kWithTarget if none.
  Level LowestStoppable() const;
  // Nobody of that level may be beside promised work, of which too little is known.
  bool IsKeptOut(Level level) const { return level >= kHighest + unknown_from_; }
  bool IsDisturbed() const { return others_running_ > 0 && shares_.IsActive(kWithTarget); }
  // Until when others, if they are not kept out, may be beside promised work.
  TimePoint BesideUntil(TimePoint now) const;
  // Empty when the head of an unpromised client may start.
  std::optional<Decision> HoldBack(const State& state, TimePoint now);
  std::optional<Decision> HoldBackInPause(const Head& head, Duration hold, TimePoint now);
  void LearnStopTime(Duration took);
  void BeginStopTrial();
  // Stoppable work waits, maybe only because a stop is taken to be long.
  void WantStopTrial(TimePoint now);
  std::optional<TimePoint> NextChange(TimePoint now) const;

  const Duration hold_off_;
  const Duration patience_;
  FairShares shares_;
  ClientTable<State> clients_;
  std::vector<Due> due_;  // By deadline.
  // Open requests that are given up.
  std::size_t abandoned_now_ = 0;

  // Commands on the device that are not promised.
  std::uint32_t others_running_ = 0;
  Duration others_unstoppable_{};
  // Time in which it was beside promised work, over all and before this busy time.
  Duration disturbed_{}, disturbed_before_{};
  TimePoint counted_until_{};
  Duration on_device_{};  // Predicted time of all that is there.

  // The plan for open requests; made anew when dirty, or when it no longer holds.
  bool plan_is_dirty_ = false;
  TimePoint plan_holds_until_ = TimePoint::max();
  TimePoint idle_until_ = TimePoint::max();    // Then the first idle client is set aside.
  TimePoint latest_start_ = TimePoint::max();  // Promised work needs the device from here on.
  Duration headroom_{};
  // The highest class of which there is a request whose need or whose slow ones are not known.
  std::uint8_t unknown_from_ = kSchedulingClasses;

  // The same for the pause until the next request.
  bool pause_is_dirty_ = false;
  std::optional<TimePoint> pause_holds_until_;
  bool is_waiting_ = false;  // Clients are idle whose next request must be kept.
  Duration fresh_slack_{};   // The least of all clients'.
  Duration tolerance_{};     // fresh_slack_, bounded by the least headroom or the time of a stop.
  std::optional<ArrivalPredictor::Span> quiet_;  // The device is to be free of others then.
  std::optional<TimePoint> last_end_;            // When a promised request ended.

  RecentSamples<19> stop_times_;  // The first one is a guess.
  Duration stop_time_;            // From asking to the end, seldom longer.
  // While stops are taken to last for too long none is made, and nobody would ever know better.
  // So when work was kept from starting for a while, it may, until a stop of it is seen.
  std::optional<TimePoint> stop_trial_at_;
  Duration stop_trial_gap_;  // Longer after each trial that has shown nothing new.
  bool is_stop_tried_ = false;

  TargetReport report_;
};

}  // namespace gpushared::scheduler

#endif  // GPUSHARED_SCHEDULER_DEADLINE_POLICY_H_
