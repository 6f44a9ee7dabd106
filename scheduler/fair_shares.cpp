// SPDX-License-Identifier: Apache-2.0
#include "scheduler/fair_shares.h"

#include <algorithm>
#include <limits>
#include <optional>

namespace gpushared::scheduler {

void FairShares::Add(ClientId client, Level level, std::uint32_t weight) {
  accounts_.Add(
      client,
      Account{.level = static_cast<std::uint8_t>(level), .weight = weight, .paused_since = {}});
  RefreshAll();
}

void FairShares::Change(ClientId client, Level level, std::uint32_t weight, TimePoint now) {
  Account& account = accounts_.At(client);
  if (account.weight != weight) {
    account.weight = weight;
    for (Charged& charged : account.charged) charged.remainder = 0;
  }
  if (account.level != level) {
    const std::optional<TimePoint> paused_since = account.paused_since;
    Withdraw(account, now);
    account.level = static_cast<std::uint8_t>(level);
    MoveForward(account);
    Enter(account);
    if (paused_since) Pause(account, *paused_since);
  }
  Refresh(account);
}

void FairShares::Remove(ClientId client, TimePoint now) {
  Withdraw(accounts_.At(client), now);
  // All behind it move up by one place, and the last place becomes free.
  for (LevelState& level : levels_) level.Forget(accounts_.size() - 1);
  accounts_.Remove(client);
  RefreshAll();
}

void FairShares::OnReady(ClientId client) {
  Account& account = accounts_.At(client);
  if (account.ready) return;
  LevelState& level = levels_[account.level];
  if (account.paused_since) {
    EndPause(account);
    account.returns_soon = true;
  } else if (account.running == 0) {
    MoveForward(account);
  }
  account.ready = true;
  ++level.ready;
  Refresh(account);
}

void FairShares::OnIdle(ClientId client, TimePoint now) {
  Account& account = accounts_.At(client);
  LevelState& level = levels_[account.level];
  account.ready = false;
  --level.ready;
  NoteLess(level, now);
  if (account.running == 0) Pause(account, now);
  Refresh(account);
}

void FairShares::OnStarted(ClientId client, const Head& head, TimePoint now) {
  Account& account = accounts_.At(client);
  LevelState& level = levels_[account.level];
  if (account.running == 0) account.uncharged_since = now;
  ++account.running;
  ++level.running;
  if (head.stoppable) {
    ++account.stoppable;
    ++level.stoppable;
  }
  account.pending_ns += PendingOf(head.predicted, head.stoppable);
  Refresh(account);
}

void FairShares::OnEnded(ClientId client, const Ended& ended, TimePoint now) {
  Account& account = accounts_.At(client);
  LevelState& level = levels_[account.level];
  --account.running;
  --level.running;
  NoteLess(level, now);
  if (ended.stoppable && !ended.stop_asked) {
    --account.stoppable;
    --level.stoppable;
  }
  account.uncharged_since = now;
  account.pending_ns -= PendingOf(ended.predicted, ended.stoppable);
  // Its client may be in another level by now, and would leave the charge behind.
  Charged& charged = account.charged[ended.account];
  const std::int64_t scaled = ended.held.count() * kVirtualScale + charged.remainder;
  charged.used += scaled / account.weight;
  charged.remainder = scaled % account.weight;
  account.last_held = ended.held;
  if (!account.ready && account.running == 0) Pause(account, now);
  Refresh(account);
}

Decision FairShares::Pick(Level level, TimePoint now) {
  LevelState& state = levels_[level];
  ExpirePauses(state, now);
  const SmallestKey::Found best = state.ready_keys.Find();
  if (best.key == SmallestKey::kNone) return Decision::Wait();
  const ClientId client = accounts_.begin()[static_cast<std::ptrdiff_t>(best.place)].client;
  const std::optional<TimePoint> held_until = HeldUntil(level, best.key, now);
  const auto run = [&](std::optional<TimePoint> reconsider_at) {
    if (!held_until) {
      Decision decision = Decision::Run(client, reconsider_at);
      decision.account = static_cast<std::uint8_t>(level);
      return decision;
    }
    return Decision::Wait(reconsider_at ? std::min(*reconsider_at, *held_until) : *held_until);
  };
  if (state.stoppable == 0) return run({});
  // Most of the time no slice is over yet, and nobody needs to be looked at.
  const TimePoint first_slice_end = TimePoint(Duration(state.uncharged.Find().key)) + slice_;
  if (first_slice_end > now) return run(first_slice_end);

  std::optional<TimePoint> reconsider_at;
  for (Item& item : accounts_) {
    const Account& account = item.value;
    if (account.level != level || account.stoppable == 0) continue;
    const std::int64_t rival_key =
        account.place == best.place ? SmallestBut(best.place, state) : best.key;
    if (rival_key == SmallestKey::kNone) continue;
    const TimePoint due = OvertakenAt(account, rival_key);
    if (due <= now) return Stop(item.client);
    if (!reconsider_at || due < *reconsider_at) reconsider_at = due;
  }
  return run(reconsider_at);
}

Decision FairShares::PickByLevel(Level highest, Level lowest, Duration hold_off, TimePoint now) {
  for (Level level = highest; level <= lowest; ++level) {
    if (HasReady(level)) {
      for (Level lower = lowest; lower > level; --lower) {
        if (HasStoppable(lower)) return StopOne(lower);
      }
      TimePoint held_off_until = now;
      for (Level higher = highest; higher < level; ++higher) {
        if (const auto since = levels_[higher].inactive_since) {
          held_off_until = std::max(held_off_until, *since + hold_off);
        }
      }
      return held_off_until > now ? Decision::Wait(held_off_until) : Pick(level, now);
    }
    // Lower work waits for what is on the device of this level.
    if (HasRunning(level)) return Decision::Wait();
  }
  return Decision::Wait();
}

std::optional<TimePoint> FairShares::HeldUntil(Level level, std::int64_t best_key, TimePoint now) {
  LevelState& state = levels_[level];
  std::optional<TimePoint> latest;
  if (level < held_from_ || state.absent_keys.Find().key >= best_key) return latest;
  for (const Item& item : accounts_) {
    const Account& account = item.value;
    if (account.level != level || state.absent_keys.at(account.place) >= best_key) continue;
    TimePoint until = now;
    if (account.running > 0) {
      until = account.uncharged_since + Lead(account, best_key);
    } else if (account.returns_soon && account.last_held >= hold_off_) {
      until = *account.paused_since + hold_off_;
    }
    if (until > now) latest = std::max(latest.value_or(until), until);
  }
  return latest;
}

std::int64_t FairShares::SmallestBut(std::size_t place, const LevelState& level) const {
  std::int64_t smallest = SmallestKey::kNone;
  for (std::size_t i = 0; i < accounts_.size(); ++i) {
    if (i != place) smallest = std::min(smallest, level.ready_keys.at(i));
  }
  return smallest;
}

Decision FairShares::StopOne(Level level) {
  const auto first = std::find_if(accounts_.begin(), accounts_.end(), [&](const Item& item) {
    return item.value.level == level && item.value.stoppable > 0;
  });
  Check(first != accounts_.end(), "a level without a stoppable command was to be stopped");
  return Stop(first->client);
}

Decision FairShares::Stop(ClientId client) {
  Account& account = accounts_.At(client);
  levels_[account.level].stoppable -= account.stoppable;
  account.stoppable = 0;
  Refresh(account);
  return Decision::Stop(client);
}

std::int64_t FairShares::PendingOf(Duration predicted, bool stoppable) const {
  // What can be stopped will not hold the device for longer while another one waits.
  return (stoppable ? std::min(predicted, slice_) : predicted).count();
}

void FairShares::Refresh(const Account& account) {
  const std::int64_t key = account.used() + account.pending_ns * kVirtualScale / account.weight;
  const bool active = account.is_active();
  const bool absent = active && !account.ready;
  LevelState& level = levels_[account.level];
  level.ready_keys.Set(account.place, account.ready ? key : SmallestKey::kNone);
  level.absent_keys.Set(account.place, absent ? key : SmallestKey::kNone);
  level.pauses.Set(account.place, account.paused_since
                                      ? account.paused_since->time_since_epoch().count()
                                      : SmallestKey::kNone);
  level.active_used.Set(account.place, active ? account.used() : SmallestKey::kNone);
  level.uncharged.Set(account.place, account.stoppable > 0
                                         ? account.uncharged_since.time_since_epoch().count()
                                         : SmallestKey::kNone);
}

void FairShares::RefreshAll() {
  std::size_t place = 0;
  for (Item& item : accounts_) {
    item.value.place = place++;
    for (LevelState& level : levels_) level.Forget(item.value.place);
    Refresh(item.value);
  }
}

std::int64_t FairShares::ClockOf(LevelState& level) {
  const SmallestKey::Found furthest_behind = level.active_used.Find();
  if (furthest_behind.key != SmallestKey::kNone) {
    level.clock = std::max(level.clock, furthest_behind.key);
  }
  return level.clock;
}

void FairShares::Pause(Account& account, TimePoint now) {
  account.paused_since = now;
  ++levels_[account.level].paused;
}

void FairShares::EndPause(Account& account) {
  account.paused_since.reset();
  --levels_[account.level].paused;
}

void FairShares::ExpirePauses(LevelState& level, TimePoint now) {
  while (level.paused > 0) {
    const SmallestKey::Found first = level.pauses.Find();
    if (TimePoint(Duration(first.key)) + hold_off_ > now) return;
    Account& account = accounts_.begin()[static_cast<std::ptrdiff_t>(first.place)].value;
    EndPause(account);
    account.returns_soon = false;
    Refresh(account);
    OnAsleep(account);
  }
}

void FairShares::OnAsleep(const Account& account) {
  LevelState& level = levels_[account.level];
  if (level.ready > 0 || level.running > 0 || level.paused > 0) {
    ClockOf(level);
  } else {
    // The last to leave takes the clock along: what it used while alone is no debt.
    level.clock = std::max(level.clock, account.used());
  }
}

void FairShares::MoveForward(Account& account) {
  const std::int64_t clock = ClockOf(levels_[account.level]);
  Charged& charged = account.charged[account.level];
  if (charged.used < clock) charged = {.used = clock, .remainder = 0};
}

void FairShares::Withdraw(Account& account, TimePoint now) {
  const bool was_active = account.is_active();
  Leave(account, now);
  levels_[account.level].Forget(account.place);
  // What one that slept owes is no time of the level.
  if (was_active) OnAsleep(account);
}

void FairShares::Enter(Account& account) {
  LevelState& level = levels_[account.level];
  if (account.ready) ++level.ready;
  level.running += account.running;
  level.stoppable += account.stoppable;
}

void FairShares::Leave(Account& account, TimePoint now) {
  if (account.paused_since) EndPause(account);
  if (!account.ready && account.running == 0) return;
  LevelState& level = levels_[account.level];
  if (account.ready) --level.ready;
  level.running -= account.running;
  level.stoppable -= account.stoppable;
  NoteLess(level, now);
}

void FairShares::NoteLess(LevelState& level, TimePoint now) {
  if (level.ready == 0 && level.running == 0) level.inactive_since = now;
}

Duration FairShares::Lead(const Account& account, std::int64_t rival_key) {
  if (rival_key <= account.used()) return Duration::zero();
  // Rounded up, and bounded so that the product stays within 64 bits.
  constexpr std::int64_t kAheadMax = std::numeric_limits<std::int64_t>::max() / kWeightMax;
  const std::int64_t ahead = std::min(rival_key - account.used(), kAheadMax);
  return Duration((ahead * account.weight) / kVirtualScale + 1);
}

TimePoint FairShares::OvertakenAt(const Account& account, std::int64_t rival_key) const {
  return account.uncharged_since + std::max<Duration>(slice_, Lead(account, rival_key));
}

}  // namespace gpushared::scheduler
