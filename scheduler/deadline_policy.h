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

// Earliest-deadline-first for requests with a latency target; admits all other work into the
// remaining slack.
//
// A client with a latency target ranks above all classes while it has a request open. Among such
// clients the earliest deadline runs first (Liu and Layland, Journal of the ACM 20(1), 1973). All
// other work is shared as under `priority`, by class and weight. It is admitted in two cases:
//   * Alongside requests with a target, if the work can leave the device before any of the requests
//     needs the device, and if it does not exhaust the headroom: half of the slack of the slowest
//     recent request. The first condition alone would spend slack that later requests will need.
//   * While no such request is open, if one of these holds:
//       - A request that arrives while the work runs would still meet its target, and the work
//         takes at most the headroom or the preemption latency.
//       - Fewer than one in a hundred requests were late, and one that waits for the preemption of
//         the work would be late by at most half of its target.
//       - No request is expected before the work ends.
//       - No request has been open for `patience`.
//
// When not all targets can be met, the policy first abandons the requests that would be late in any
// case, and then further ones until the rest is feasible: the lowest class first, and inside a
// class the one with the largest need, because that abandons the fewest (Moore, Management Science
// 15(1), 1968). Among one client's requests it abandons the last. A client whose open requests are
// all abandoned is served by its class.
//
// A request without commands delays others for at most the longer of two times: `patience`, and the
// device time that a request of the same client seldom exceeds. Its target counts again once it has
// a command. A client whose requests are still unknown delays higher classes for at most
// `patience`, and only while it has commands, because its needs can only be guessed.
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
  static constexpr Level kHighest = 1;
  static constexpr Level kLowest = kSchedulingClasses;

  struct State {
    ClientId client;
    ClientSpec spec;
    Head head{};
    bool ready = false;
    bool has_target = false;    // Whether the client has entries in due_.
    bool is_set_aside = false;  // Whether its open requests have had no commands for too long.
    bool is_throttled = false;
    std::uint32_t running = 0;
    Duration unstoppable{};  // Predicted time of its running commands that cannot be stopped.
    std::optional<TimePoint> stop_asked{};
    // Last, so that the fields that each decision reads share the first cache line.
    TargetAccount account{};

    bool is_waited_for() const {
      return account.has_target() && account.knows() && !account.is_open() && !is_throttled;
    }
  };

  // An open request whose target is to be met.
  struct Due {
    TimePoint deadline{};
    TimePoint latest_end{};  // The deadline less a reserve for prediction errors.
    Duration headroom{};     // Time by which other work may delay the request.
    State* state = nullptr;
    std::uint8_t open = 0;  // Index among its client's open requests.
    // Number of the client's open requests after the one of its previous entry, up to and including
    // the one of this entry.
    std::uint8_t requests = 0;
    bool is_first = false;  // Whether this is the first entry of its client.
    // The client's class while the need or the largest latency of its requests is unknown;
    // otherwise kSchedulingClasses.
    std::uint8_t unknown_from = kSchedulingClasses;

    std::size_t counted_before() const { return open + std::size_t{1} - requests; }
  };

  Level LevelFor(const State& state) const {
    if (state.has_target) return kWithTarget;
    return kHighest + static_cast<Level>(state.spec.scheduling_class);
  }

  // Accounts for the time that others spent alongside requests with a target. Called before every
  // event.
  void AdvanceTo(TimePoint now);
  // Moves the client to its present level after a change that may affect the level.
  void Place(State& state, TimePoint now);
  void Enlist(State& state);
  void Delist(const State& state);
  void Reindex();
  // Sums up the part of the plan that does not depend on commands.
  void SumUp();
  // Adds the client's running commands to, or removes them from, those without a target.
  void CountOthers(const State& state, int sign);

  void Replan(TimePoint now);
  void SetAsideIdle(TimePoint now);
  // Time until which an idle client's requests delay others.
  TimePoint WaitedForUntil(const TargetAccount& account) const {
    return account.idle_since() + std::max(patience_, account.Whole());
  }
  // Returns whether the client's requests are unknown and have already delayed a higher class for
  // `patience`.
  bool IsOverdrawn(const State& state) const;
  // Makes the plan and returns null if all open targets can be met; otherwise returns a request to
  // abandon.
  const Due* Plan(TimePoint now);
  // Chooses among the requests up to `last`, which cannot all meet their targets.
  const Due* FindVictim(const Due& last, TimePoint now) const;
  void Abandon(const Due& due, TimePoint now);
  void ReviewPause(TimePoint now);
  // Returns whether the client's next request may wait for a preemption that takes more than the
  // request's slack.
  bool MayRiskStop(const TargetAccount& account, TimePoint now) const;

  std::optional<Decision> PickWithTarget(TimePoint now);
  bool MustStopOthers(TimePoint now) const;
  Decision StopOther();
  // The lowest level with stoppable commands that have no target; kWithTarget if none.
  Level LowestStoppable() const;
  // Returns whether too little is known about the open requests for work of `level` to run
  // alongside them.
  bool IsKeptOut(Level level) const { return level >= kHighest + unknown_from_; }
  bool IsDisturbed() const { return others_running_ > 0 && shares_.IsActive(kWithTarget); }
  // Returns the time until which admitted work may run alongside the open requests.
  TimePoint AlongsideUntil(TimePoint now) const;
  // Returns the decision that keeps the head of a client without a target from starting; empty if
  // it may start.
  std::optional<Decision> HoldBack(const State& state, TimePoint now);
  std::optional<Decision> HoldBackInPause(const Head& head, Duration hold, TimePoint now);
  void LearnStopTime(Duration took);
  void BeginStopProbe();
  // Schedules a probe of the preemption latency when stoppable work waits. An overestimate of that
  // latency may be the only reason for the wait.
  void ScheduleStopProbe(TimePoint now);
  std::optional<TimePoint> NextChange(TimePoint now) const;

  const Duration hold_off_;
  const Duration patience_;
  FairShares shares_;
  ClientTable<State> clients_;
  std::vector<Due> due_;  // Sorted by deadline.
  // Number of open requests that are abandoned.
  std::size_t abandoned_now_ = 0;

  // Number of running commands without a target, and predicted time of those that cannot be
  // stopped.
  std::uint32_t others_running_ = 0;
  Duration others_unstoppable_{};
  // Time that commands without a target ran alongside requests with a target: in total, and until
  // due_ was last empty.
  Duration disturbed_{}, disturbed_before_{};
  TimePoint counted_until_{};
  Duration on_device_{};  // Predicted time of all running commands.

  // The plan for open requests, remade when it is dirty or has expired.
  bool plan_is_dirty_ = false;
  TimePoint plan_holds_until_ = TimePoint::max();
  TimePoint idle_until_ = TimePoint::max();  // Time at which the next idle client is set aside.
  // Time from which the requests with a target need the device.
  TimePoint latest_start_ = TimePoint::max();
  Duration headroom_{};
  // Highest class with a client whose needs or largest latency are unknown; see Due::unknown_from.
  std::uint8_t unknown_from_ = kSchedulingClasses;

  // Whether the members below, about the pause until the next request, are outdated.
  bool pause_is_dirty_ = false;
  std::optional<TimePoint> pause_holds_until_;
  // Whether a client without open requests is waited for (State::is_waited_for).
  bool is_waiting_ = false;
  // The smallest slack of the next request of any client that is waited for. If that request may be
  // late (MayRiskStop), its slack counts as at least the preemption latency.
  Duration fresh_slack_{};
  // fresh_slack_, or less: bounded for each client by the larger of the client's headroom and the
  // preemption latency.
  Duration tolerance_{};
  // Span in which the device must be free of other work.
  std::optional<ArrivalPredictor::Span> quiet_;
  std::optional<TimePoint> last_end_;  // Time at which the last request with a target ended.

  RecentSamples<19> stop_times_;  // Holds one guess at first.
  Duration stop_time_;            // Preemption latency, from stop to end, that is seldom exceeded.
  // While the estimate is too long, no work starts that would have to be stopped, so no stop
  // would be observed that could improve the estimate. Therefore work that has waited for a while
  // is admitted until one stop is observed.
  std::optional<TimePoint> stop_probe_at_;
  Duration stop_probe_gap_;  // Grows after each probe that found no improvement.
  bool is_probing_stop_ = false;

  TargetReport report_;
};

}  // namespace gpushared::scheduler

#endif  // GPUSHARED_SCHEDULER_DEADLINE_POLICY_H_
