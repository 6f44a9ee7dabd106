// SPDX-License-Identifier: Apache-2.0
#include "scheduler/deadline_policy.h"

#include <algorithm>
#include <chrono>

namespace gpushared::scheduler {

namespace {

// Initial estimate of the preemption latency: the time in which a fully occupied device drains.
constexpr Duration kStopTimeFirst = std::chrono::microseconds(100);
// Lower bound of the estimate. Commands that had not started stop immediately, and without the
// bound such samples would admit work only to stop it again.
constexpr Duration kStopTimeMin = std::chrono::microseconds(20);
// Interval between probes of the preemption latency. It doubles up to the maximum while the
// estimate is confirmed, so that at most one request in about a minute is delayed by a probe.
constexpr Duration kStopProbeGapMin = std::chrono::seconds(1);
constexpr Duration kStopProbeGapMax = std::chrono::seconds(64);
// Stoppable work starts only if it can run for this many preemption latencies.
constexpr int kStopsPerTurn = 4;
// The part of a target that is reserved for prediction errors is the target divided by this.
constexpr int kReserveDivisor = 16;
// A preemption latency of more than the target divided by this is not risked, because a request
// would be too late.
constexpr int kLatenessDivisor = 2;
// Minimum time for which a plan holds while no event occurs.
constexpr Duration kPlanMin = std::chrono::microseconds(20);
// A hint is trusted until the latency target divided by kOverdueDivisor, but at least kOverdueMin,
// has passed since the announced time.
constexpr int kOverdueDivisor = 4;
constexpr Duration kOverdueMin = std::chrono::microseconds(500);

}  // namespace

DeadlinePolicy::DeadlinePolicy(const PolicyOptions& options)
    : hold_off_(options.hold_off),
      patience_(options.patience),
      // As under `priority`, the high class is never suspended for others.
      shares_(options.slice, options.hold_off, kHighest + 1),
      stop_time_(kStopTimeFirst),
      stop_probe_gap_(kStopProbeGapMin) {
  due_.reserve(kClientsMax * kOpenRequestsMax);
  stop_times_.Add(kStopTimeFirst);
}

// ---- events

void DeadlinePolicy::AdvanceTo(TimePoint now) {
  if (now <= counted_until_) return;
  if (IsDisturbed()) disturbed_ += now - counted_until_;
  counted_until_ = now;
}

void DeadlinePolicy::OnClientAdded(ClientId client, const ClientSpec& spec, TimePoint now) {
  AdvanceTo(now);
  State& state = clients_.Add(client, State{.client = client, .spec = spec});
  state.account.target = spec.latency_target.value_or(Duration::zero());
  shares_.Add(client, LevelFor(state), spec.weight, spec.group);
  Reindex();
}

void DeadlinePolicy::OnClientChanged(ClientId client, const ClientSpec& spec, TimePoint now) {
  AdvanceTo(now);
  State& state = clients_.At(client);
  const bool is_same_target = state.spec.latency_target == spec.latency_target;
  state.spec = spec;
  state.account.target = spec.latency_target.value_or(Duration::zero());
  // Requests abandoned under the former target may be feasible under the new one.
  if (!is_same_target) abandoned_now_ -= state.account.TakeBack();
  Place(state, now);
}

void DeadlinePolicy::OnClientRemoved(ClientId client, TimePoint now) {
  AdvanceTo(now);
  State& state = clients_.At(client);
  if (state.has_target) {
    Delist(state);
  } else {
    CountOthers(state, -1);
  }
  abandoned_now_ -= state.account.abandoned_count();
  on_device_ -= state.account.Running();
  clients_.Remove(client);
  shares_.Remove(client, now);
  Reindex();
}

void DeadlinePolicy::OnReady(ClientId client, const Head& head, TimePoint now) {
  AdvanceTo(now);
  State& state = clients_.At(client);
  state.ready = true;
  state.head = head;
  state.account.SetHead(head.predicted, now);
  if (state.is_set_aside) {
    state.is_set_aside = false;
    Place(state, now);
  }
  if (state.has_target) plan_is_dirty_ = true;
  shares_.OnReady(client);
}

void DeadlinePolicy::OnIdle(ClientId client, TimePoint now) {
  AdvanceTo(now);
  State& state = clients_.At(client);
  state.ready = false;
  state.account.SetHead({}, now);
  if (state.has_target) plan_is_dirty_ = true;
  shares_.OnIdle(client, now);
}

void DeadlinePolicy::OnStarted(ClientId client, const Head& head, TimePoint now) {
  AdvanceTo(now);
  State& state = clients_.At(client);
  ++state.running;
  if (!head.stoppable) state.unstoppable += head.predicted;
  if (!state.has_target) {
    ++others_running_;
    if (!head.stoppable) others_unstoppable_ += head.predicted;
    if (is_waiting_ && !head.stoppable && head.predicted > tolerance_) ++report_.at_risk;
  }
  on_device_ -= state.account.Running();
  state.account.OnStarted(head.predicted, now);
  on_device_ += state.account.Running();
  shares_.OnStarted(client, head, now);
}

void DeadlinePolicy::OnEnded(ClientId client, const Ended& ended, TimePoint now) {
  AdvanceTo(now);
  State& state = clients_.At(client);
  --state.running;
  const Duration unstoppable = ended.stoppable ? Duration::zero() : ended.predicted;
  state.unstoppable -= unstoppable;
  if (!state.has_target) {
    --others_running_;
    others_unstoppable_ -= unstoppable;
  }
  if (ended.stop_asked && state.stop_asked) {
    LearnStopTime(now - *state.stop_asked);
    state.stop_asked.reset();
  }
  on_device_ -= state.account.Running();
  state.account.OnEnded(ended.predicted, now);
  on_device_ += state.account.Running();
  if (state.has_target) plan_is_dirty_ = true;
  shares_.OnEnded(client, ended, now);
}

void DeadlinePolicy::OnThrottled(ClientId client, bool is_throttled, TimePoint now) {
  AdvanceTo(now);
  State& state = clients_.At(client);
  state.is_throttled = is_throttled;
  Place(state, now);
}

void DeadlinePolicy::OnRequestBegan(ClientId client, const RequestMark& request, TimePoint now) {
  AdvanceTo(now);
  State& state = clients_.At(client);
  state.account.Begin(request, disturbed_, now);
  Place(state, now);
}

void DeadlinePolicy::OnRequestEnded(ClientId client, std::uint64_t number, TimePoint now) {
  AdvanceTo(now);
  State& state = clients_.At(client);
  const TargetAccount::Ending ending = state.account.End(number, disturbed_, now);
  if (state.account.has_target()) {
    ++report_.requests;
    if (ending.was_met) ++report_.met;
    last_end_ = now;
  }
  if (ending.was_abandoned) --abandoned_now_;
  if (!state.account.is_open()) state.is_set_aside = false;
  Place(state, now);
}

void DeadlinePolicy::OnRequestExpected(ClientId client, TimePoint at, TimePoint now) {
  AdvanceTo(now);
  State& state = clients_.At(client);
  const bool may_hint =
      state.account.has_target() || state.spec.scheduling_class == SchedulingClass::kHigh;
  if (!may_hint) return;  // Without this check any client could keep the device idle with hints.
  const Duration overdue = state.account.target / kOverdueDivisor;
  state.account.OnHint(at, std::max(overdue, kOverdueMin));
  pause_is_dirty_ = true;
}

// ---- preemption latency

void DeadlinePolicy::LearnStopTime(Duration took) {
  if (is_probing_stop_) {
    const bool is_news = took <= stop_times_.LargestButOne() / 2;
    if (is_news) stop_times_.Clear();
    stop_probe_gap_ = is_news ? kStopProbeGapMin : std::min(2 * stop_probe_gap_, kStopProbeGapMax);
    is_probing_stop_ = false;
  }
  stop_probe_at_.reset();
  stop_times_.Add(took);
  stop_time_ = std::max(stop_times_.LargestButOne(), kStopTimeMin);
  pause_is_dirty_ = true;
}

void DeadlinePolicy::BeginStopProbe() {
  is_probing_stop_ = true;
  stop_time_ = kStopTimeMin;
  pause_is_dirty_ = true;
}

void DeadlinePolicy::ScheduleStopProbe(TimePoint now) {
  if (stop_probe_at_) return;
  const bool is_too_long = is_waiting_ && fresh_slack_ < stop_time_;
  if (is_too_long || stop_time_ > kStopTimeFirst) stop_probe_at_ = now + stop_probe_gap_;
}

// ---- levels

void DeadlinePolicy::CountOthers(const State& state, int sign) {
  others_running_ += static_cast<std::uint32_t>(sign) * state.running;
  others_unstoppable_ += sign * state.unstoppable;
}

void DeadlinePolicy::Place(State& state, TimePoint now) {
  plan_is_dirty_ = pause_is_dirty_ = true;
  const TargetAccount& account = state.account;
  const bool belongs = account.has_target() && !state.is_set_aside && !state.is_throttled &&
                       account.open_count() > account.abandoned_count();
  if (state.has_target) {
    Delist(state);
  } else if (belongs) {
    CountOthers(state, -1);
  }
  if (belongs) {
    if (due_.empty()) disturbed_before_ = disturbed_;
    Enlist(state);
  } else if (state.has_target) {
    CountOthers(state, 1);
  }
  state.has_target = belongs;
  SumUp();
  shares_.Change(state.client, LevelFor(state), state.spec.weight, now);
}

void DeadlinePolicy::Enlist(State& state) {
  const TargetAccount& account = state.account;
  const std::optional<Duration> own = account.Headroom();
  const std::size_t unknown_from =
      own ? kSchedulingClasses : static_cast<std::size_t>(state.spec.scheduling_class);
  // A delay of a request also delays each later request of its client, even an abandoned one.
  const bool is_waited_behind = account.open_count() > 1;
  const Duration headroom =
      own && is_waited_behind ? Duration::zero() : own.value_or(kCommandTimeMax);
  std::size_t counted = 0;
  for (std::size_t open = 0; open < account.open_count(); ++open) {
    if (account.IsAbandoned(open)) continue;
    const Due due{.deadline = account.deadline(open),
                  .latest_end = account.deadline(open) - account.target / kReserveDivisor,
                  .headroom = headroom,
                  .state = &state,
                  .open = static_cast<std::uint8_t>(open),
                  .requests = static_cast<std::uint8_t>(open + 1 - counted),
                  .is_first = counted == 0,
                  .unknown_from = static_cast<std::uint8_t>(unknown_from)};
    counted = open + 1;
    // The new entry goes after entries with the same deadline, except those of clients that were
    // added later.
    const auto place = std::find_if(due_.begin(), due_.end(), [&](const Due& each) {
      return each.deadline > due.deadline ||
             (each.deadline == due.deadline && each.state->client > state.client);
    });
    due_.insert(place, due);
  }
}

void DeadlinePolicy::Delist(const State& state) {
  std::erase_if(due_, [&](const Due& each) { return each.state == &state; });
}

void DeadlinePolicy::SumUp() {
  headroom_ = kCommandTimeMax;
  unknown_from_ = kSchedulingClasses;
  for (const Due& due : due_) {
    headroom_ = std::min(headroom_, due.headroom);
    unknown_from_ = std::min(unknown_from_, due.unknown_from);
  }
}

void DeadlinePolicy::Reindex() {
  due_.clear();
  for (auto& item : clients_) {
    if (item.value.has_target) Enlist(item.value);
  }
  SumUp();
  plan_is_dirty_ = pause_is_dirty_ = true;
}

// ---- plans

void DeadlinePolicy::Replan(TimePoint now) {
  for (;;) {
    if (const Due* const victim = Plan(now)) {
      Abandon(*victim, now);
    } else if (now >= idle_until_) {
      SetAsideIdle(now);
    } else {
      break;
    }
  }
  plan_is_dirty_ = false;
}

void DeadlinePolicy::SetAsideIdle(TimePoint now) {
  for (auto& item : clients_) {
    State& state = item.value;
    if (!state.has_target || !state.account.IsIdle()) continue;
    if (now < WaitedForUntil(state.account)) continue;
    state.is_set_aside = true;
    Place(state, now);
  }
}

bool DeadlinePolicy::IsOverdrawn(const State& state) const {
  if (state.account.Begun() <= patience_) return false;
  const Level level = kHighest + static_cast<Level>(state.spec.scheduling_class);
  for (Level higher = kHighest; higher < level; ++higher) {
    if (shares_.IsActive(higher)) return true;
  }
  return false;
}

// Makes a single pass over all open requests, because most decisions need a plan.
const DeadlinePolicy::Due* DeadlinePolicy::Plan(TimePoint now) {
  // Local variables, because the compiler cannot prove that members do not alias an account and
  // would reload them.
  TimePoint holds_until = TimePoint::max(), idle_until = holds_until, latest_start = holds_until;
  Duration likely{}, safe{};
  for (const Due& due : due_) {
    const TargetAccount& account = due.state->account;
    const TargetAccount::Needs alone = account.Need(due.open + std::size_t{1}, now);
    likely += alone.likely;
    safe += alone.safe;
    if (!due.is_first) {
      const TargetAccount::Needs before = account.Need(due.counted_before(), now);
      likely -= before.likely;
      safe -= before.safe;
    }
    const TimePoint begin = due.deadline - likely;
    if (begin < now) {
      const bool is_lost_anyway = now + alone.likely > due.deadline;
      return is_lost_anyway ? &due : FindVictim(due, now);
    }
    holds_until = std::min(holds_until, begin);
    if (account.IsIdle()) idle_until = std::min(idle_until, WaitedForUntil(account));
    if (account.knows()) {
      latest_start = std::min(latest_start, due.latest_end - safe);
    } else if (IsOverdrawn(*due.state)) {
      return &due;
    }
  }
  idle_until_ = idle_until;
  latest_start_ = latest_start;
  // A request that is exactly on schedule makes the plan expire at once, hence the minimum.
  plan_holds_until_ = std::max(std::min(holds_until, idle_until - Duration(1)), now + kPlanMin);
  return nullptr;
}

const DeadlinePolicy::Due* DeadlinePolicy::FindVictim(const Due& last, TimePoint now) const {
  const auto need_of = [&](const Due& due) {
    const TargetAccount& account = due.state->account;
    const Duration all = account.Need(due.open + std::size_t{1}, now).likely;
    return due.is_first ? all : all - account.Need(due.counted_before(), now).likely;
  };
  const Due* victim = &due_.front();
  for (const Due& each : due_) {
    const auto ours = each.state->spec.scheduling_class;
    const auto theirs = victim->state->spec.scheduling_class;
    // A client's last request needs no less than its earlier ones.
    const bool is_worse = ours > theirs || (ours == theirs && need_of(each) >= need_of(*victim));
    if (is_worse) victim = &each;
    if (&each == &last) break;
  }
  return victim;
}

void DeadlinePolicy::Abandon(const Due& due, TimePoint now) {
  State& state = *due.state;
  state.account.Abandon(due.open, now);
  ++abandoned_now_;
  ++report_.abandoned[static_cast<std::size_t>(state.spec.scheduling_class)];
  Place(state, now);
}

void DeadlinePolicy::ReviewPause(TimePoint now) {
  pause_is_dirty_ = false;
  pause_holds_until_.reset();
  quiet_.reset();
  is_waiting_ = false;
  fresh_slack_ = tolerance_ = kCommandTimeMax;
  for (const auto& item : clients_) {
    const State& state = item.value;
    const TargetAccount& account = state.account;
    if (account.is_open() || state.is_throttled) continue;
    const bool is_hinted = account.arrivals().HasHint(now);
    if (!state.is_waited_for() && !is_hinted) continue;
    if (state.is_waited_for()) {
      is_waiting_ = true;
      Duration fresh = account.FreshSlack();
      if (fresh < stop_time_ && MayRiskStop(account, now)) fresh = stop_time_;
      fresh_slack_ = std::min(fresh_slack_, fresh);
      // A non-preemptible command that takes at most the preemption latency delays a request at
      // most as long as a stop would. It is admitted only if the stop itself is short enough.
      const Duration like_a_stop = fresh >= stop_time_ ? stop_time_ : Duration::zero();
      const Duration spare = std::max(account.Headroom().value_or(fresh), like_a_stop);
      tolerance_ = std::min({tolerance_, fresh, spare});
      if (fresh >= stop_time_ && !is_hinted) continue;
    }
    const std::optional<ArrivalPredictor::Span> span = account.arrivals().NextSpan(now);
    if (span && (!quiet_ || span->from < quiet_->from)) quiet_ = span;
  }
  if (quiet_) pause_holds_until_ = quiet_->until;
}

bool DeadlinePolicy::MayRiskStop(const TargetAccount& account, TimePoint now) const {
  return account.MayBeLate() && stop_time_ <= account.target / kLatenessDivisor &&
         !account.arrivals().NextSpan(now);
}

// ---- decisions

Decision DeadlinePolicy::Pick(TimePoint now) {
  AdvanceTo(now);
  if (stop_probe_at_ && now >= *stop_probe_at_ && !is_probing_stop_) BeginStopProbe();
  if (plan_is_dirty_ || now > plan_holds_until_) Replan(now);
  if (pause_is_dirty_ || (pause_holds_until_ && now >= *pause_holds_until_)) ReviewPause(now);

  if (MustStopOthers(now)) return StopOther();
  std::optional<Decision> decision = PickWithTarget(now);
  if (!decision) {
    decision = shares_.PickByLevel(kHighest, kLowest, hold_off_, now);
    if (decision->kind == Decision::Kind::kRun) {
      if (const auto held_back = HoldBack(clients_.At(decision->client), now)) {
        decision = held_back;
      }
    }
  }
  if (decision->kind == Decision::Kind::kStop) {
    State& state = clients_.At(decision->client);
    if (!state.stop_asked) state.stop_asked = now;
  } else {
    decision->reconsider_at = Earlier(decision->reconsider_at, NextChange(now));
  }
  return *decision;
}

DeadlinePolicy::Level DeadlinePolicy::LowestStoppable() const {
  Level level = kLowest;
  while (level > kWithTarget && !shares_.HasStoppable(level)) --level;
  return level;
}

TimePoint DeadlinePolicy::AlongsideUntil(TimePoint now) const {
  const Duration left = headroom_ - (disturbed_ - disturbed_before_);
  return std::min(latest_start_, now + std::max(left, Duration::zero()));
}

bool DeadlinePolicy::MustStopOthers(TimePoint now) const {
  const Level lowest = LowestStoppable();
  if (lowest == kWithTarget) return false;
  if (!due_.empty()) {
    // During a probe the preemption latency is unknown, so the open requests are protected by
    // stopping immediately.
    if (is_probing_stop_ || IsKeptOut(lowest) || now + stop_time_ >= AlongsideUntil(now))
      return true;
  }
  const bool is_quiet = quiet_ && now + stop_time_ >= quiet_->from && now < quiet_->until;
  return is_quiet && lowest > kHighest;
}

Decision DeadlinePolicy::StopOther() {
  const Decision decision = shares_.StopOne(LowestStoppable());
  State& state = clients_.At(decision.client);
  if (!state.stop_asked) state.stop_asked = counted_until_;
  return decision;
}

std::optional<Decision> DeadlinePolicy::PickWithTarget(TimePoint now) {
  const auto first =
      std::find_if(due_.begin(), due_.end(), [](const Due& each) { return each.state->ready; });
  if (first == due_.end()) return {};
  // Requests with later deadlines are preempted when the first one would be late otherwise.
  const TargetAccount& account = first->state->account;
  const TimePoint end = now + account.Need(first->open + std::size_t{1}, now).safe;
  // Usually all running commands together leave enough slack, so they need not be examined.
  if (end + on_device_ <= first->latest_end) return Decision::Run(first->state->client);
  Duration in_the_way{};
  for (auto later = due_.end(); later != first; --later) {
    const Due& each = *(later - 1);
    const State& state = *each.state;
    if (&state == first->state || !each.is_first || state.running == 0) continue;
    if (!shares_.HasStoppable(state.client)) continue;
    in_the_way += state.account.Running();
    if (end + in_the_way > first->latest_end) return shares_.Stop(state.client);
  }
  return Decision::Run(first->state->client);
}

std::optional<Decision> DeadlinePolicy::HoldBack(const State& state, TimePoint now) {
  const Head& head = state.head;
  const Duration turn = head.stoppable ? kStopsPerTurn * stop_time_ : head.predicted;
  const Duration hold = others_unstoppable_ + turn;
  if (!due_.empty()) {
    const bool is_kept_out = is_probing_stop_ || IsKeptOut(LevelFor(state));
    if (is_kept_out || now + hold > AlongsideUntil(now)) return Decision::Wait();
  }
  // The high class is never delayed for an expected request.
  if (state.spec.scheduling_class == SchedulingClass::kHigh) return {};
  if (due_.empty() && last_end_ && *last_end_ + hold_off_ > now) {
    return Decision::Wait(*last_end_ + hold_off_);
  }
  return HoldBackInPause(head, hold, now);
}

std::optional<Decision> DeadlinePolicy::HoldBackInPause(const Head& head, Duration hold,
                                                        TimePoint now) {
  if (quiet_ && now < quiet_->until) {
    const Duration late = head.stoppable ? Duration::zero() : tolerance_;
    if (now + hold > quiet_->from + late) {
      if (head.stoppable) ScheduleStopProbe(now);
      return Decision::Wait(quiet_->until);
    }
    if (head.stoppable) return {};
  }
  if (!is_waiting_ || !last_end_) return {};
  const TimePoint patient_until = *last_end_ + patience_;
  if (now >= patient_until) return {};
  if (head.stoppable) {
    if (fresh_slack_ >= stop_time_) return {};
    ScheduleStopProbe(now);
    return Decision::Wait(patient_until);
  }
  if (hold <= tolerance_) return {};
  std::optional<TimePoint> changes_at;
  for (const auto& item : clients_) {
    if (!item.value.is_waited_for()) continue;
    const auto prediction = item.value.account.arrivals().Predict(now);
    if (now + hold <= prediction.earliest + tolerance_) continue;
    changes_at = Earlier(changes_at.value_or(patient_until), prediction.changes_at);
  }
  if (!changes_at) return {};
  return Decision::Wait(std::min(*changes_at, patient_until));
}

// Returns when a decision may change without an event.
std::optional<TimePoint> DeadlinePolicy::NextChange(TimePoint now) const {
  std::optional<TimePoint> next;
  const auto consider = [&](TimePoint at) {
    if (at > now) next = Earlier(next, at);
  };
  if (!due_.empty()) {
    consider(plan_holds_until_ + Duration(1));
    // Other work that runs alongside the requests shrinks the headroom, so the next change is due
    // when that work must leave the device.
    consider((IsDisturbed() ? AlongsideUntil(now) : latest_start_) - stop_time_);
  }
  if (quiet_) {
    consider(quiet_->from - stop_time_);
    consider(quiet_->until);
  }
  if (stop_probe_at_ && !is_probing_stop_) consider(*stop_probe_at_);
  return next;
}

TargetReport DeadlinePolicy::targets() const {
  TargetReport report = report_;
  // A request that never ends must not make the policy report overload forever.
  report.is_overloaded =
      abandoned_now_ > 0 && std::any_of(clients_.begin(), clients_.end(), [&](const auto& item) {
        return item.value.account.IsOverloaded(counted_until_);
      });
  return report;
}

}  // namespace gpushared::scheduler
