// SPDX-License-Identifier: Apache-2.0
#include "scheduler/fair_shares.h"

#include <algorithm>
#include <limits>
#include <optional>

namespace gpushared::scheduler {

void FairShares::RefreshGroup(const Group& group, Level level) {
  const Share& share = group.shares[level];
  LevelState& state = levels_[level];
  const bool is_absent = share.active > 0 && share.ready == 0;
  const std::int64_t key = share.key();
  state.ready_keys.Set(group.place, share.ready > 0 ? key : SmallestKey::kNone);
  state.absent_keys.Set(group.place, is_absent ? key : SmallestKey::kNone);
  state.active_used.Set(group.place, share.active > 0 ? share.charged.used : SmallestKey::kNone);
}

void FairShares::Add(ClientId client, Level level, std::uint32_t weight,
                     std::optional<std::uint64_t> group) {
  const std::size_t slot = GroupFor(group);
  accounts_.Add(client, Account{.group = slot,
                                .level = static_cast<std::uint8_t>(level),
                                .weight = weight,
                                .paused_since = {}});
  ++groups_[slot].clients;
  Reweigh(slot);
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
  Reweigh(account.group);
  Refresh(account);
}

void FairShares::Remove(ClientId client, TimePoint now) {
  Account& account = accounts_.At(client);
  // Commands still on the device are charged by prediction, because no event will report the end of
  // them.
  Charge(ShareFor(account).charged, ShareFor(account).weight, Duration(account.pending_ns));
  Withdraw(account, now);
  const std::size_t slot = account.group;
  // All accounts after the removed one move up by one place, and the last places become free.
  for (LevelState& level : levels_) {
    level.ForgetAccount(accounts_.size() - 1);
    level.ForgetGroup(groups_here_ - 1);
  }
  accounts_.Remove(client);
  --groups_[slot].clients;
  if (groups_[slot].clients > 0) Reweigh(slot);
  RefreshAll();
}

std::size_t FairShares::GroupFor(std::optional<std::uint64_t> number) {
  std::size_t free = kNoPlace, left = kNoPlace;
  for (std::size_t slot = 0; slot < groups_.size(); ++slot) {
    const Group& group = groups_[slot];
    if (number && group.number == number) return slot;
    if (group.clients == 0) (group.number ? left : free) = slot;
  }
  // A group without clients keeps its debt for as long as slots are free.
  if (free == kNoPlace && groups_.size() < kClientsMax) {
    free = groups_.size();
    groups_.emplace_back();
  }
  if (free == kNoPlace) free = left;
  Check(free != kNoPlace, "there are as many groups as clients at most");
  groups_[free] = Group();
  groups_[free].number = number;
  return free;
}

void FairShares::Reweigh(std::size_t group) {
  std::array<std::uint32_t, kLevelsMax> heaviest{};
  for (const Item& item : accounts_) {
    const Account& account = item.value;
    if (account.group != group) continue;
    heaviest[account.level] = std::max(heaviest[account.level], account.weight);
  }
  for (Level level = 0; level < kLevelsMax; ++level) {
    Share& share = groups_[group].shares[level];
    if (heaviest[level] == 0 || heaviest[level] == share.weight) continue;
    share.weight = heaviest[level];
    share.charged.remainder = 0;
  }
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
  ++ShareFor(account).ready;
  Refresh(account);
}

void FairShares::OnIdle(ClientId client, TimePoint now) {
  Account& account = accounts_.At(client);
  LevelState& level = levels_[account.level];
  account.ready = false;
  --level.ready;
  --ShareFor(account).ready;
  RecordLess(level, now);
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
  const std::int64_t pending_ns = GetPending(head.predicted, head.stoppable);
  account.pending_ns += pending_ns;
  ShareFor(account).pending_ns += pending_ns;
  if (account.counted && !head.stoppable) {
    RefreshGroup(groups_[account.group], account.level);  // Only this group's keys have changed.
  } else {
    Refresh(account);
  }
}

void FairShares::OnEnded(ClientId client, const Ended& ended, TimePoint now) {
  Account& account = accounts_.At(client);
  LevelState& level = levels_[account.level];
  --account.running;
  --level.running;
  RecordLess(level, now);
  if (ended.stoppable && !ended.stop_asked) {
    --account.stoppable;
    --level.stoppable;
  }
  account.uncharged_since = now;
  const std::int64_t pending_ns = GetPending(ended.predicted, ended.stoppable);
  account.pending_ns -= pending_ns;
  ShareFor(account).pending_ns -= pending_ns;
  // The command is charged to the level in which it started. Otherwise a client that has changed
  // levels since then would escape the charge.
  Group& group = groups_[account.group];
  Charge(account.charged[ended.account], account.weight, ended.held);
  Charge(group.shares[ended.account].charged, group.shares[ended.account].weight, ended.held);
  if (ended.account != account.level) RefreshGroup(group, ended.account);
  account.last_held = ended.held;
  const bool stays_active = account.counted && (account.ready || account.running > 0);
  if (stays_active && account.stoppable == 0 && !ended.stoppable) {
    RefreshGroup(group, account.level);  // Only this group's keys have changed.
    return;
  }
  if (!account.ready && account.running == 0) Pause(account, now);
  Refresh(account);
}

Decision FairShares::Pick(Level level, TimePoint now) {
  LevelState& state = levels_[level];
  ExpirePauses(state, now);
  const SmallestKey::Found furthest = state.ready_keys.Find();
  if (furthest.key == SmallestKey::kNone) return Decision::Wait();
  const Group& group = groups_[group_at_[furthest.place]];
  const Item* const best = GetBest(group, level);
  Check(best != nullptr, "a group that is ready has a client that is");
  const std::optional<TimePoint> held_until = HeldUntil(best->value, group, now);
  const auto run = [&](std::optional<TimePoint> reconsider_at) {
    if (!held_until) {
      Decision decision = Decision::Run(best->client, reconsider_at);
      decision.account = static_cast<std::uint8_t>(level);
      return decision;
    }
    return Decision::Wait(reconsider_at ? std::min(*reconsider_at, *held_until) : *held_until);
  };
  if (state.stoppable == 0) return run({});
  // Most of the time no slice is over yet, so the accounts need not be examined.
  const TimePoint first_slice_end = TimePoint(Duration(state.uncharged.Find().key)) + slice_;
  if (first_slice_end > now) return run(first_slice_end);

  std::optional<TimePoint> reconsider_at;
  for (Item& item : accounts_) {
    const Account& account = item.value;
    if (account.level != level || account.stoppable == 0) continue;
    const std::optional<TimePoint> due = DueAt(account, group);
    if (!due) continue;
    if (*due <= now) return Stop(item.client);
    reconsider_at = Earlier(reconsider_at, due);
  }
  return run(reconsider_at);
}

std::optional<TimePoint> FairShares::DueAt(const Account& account, const Group& best) const {
  const Group& group = groups_[account.group];
  const Share& share = group.shares[account.level];
  const SmallestKey& keys = levels_[account.level].ready_keys;
  std::optional<TimePoint> due;
  const std::int64_t other_group =
      &group == &best ? SmallestBut(group.place, keys, groups_here_) : keys.at(best.place);
  if (other_group != SmallestKey::kNone) {
    due = account.uncharged_since +
          std::max<Duration>(slice_, Lead(share.charged.used, share.weight, other_group));
  }
  if (&group != &best) return due;
  if (const Item* const sibling = GetBest(group, account.level, account.place)) {
    due = Earlier(due, account.uncharged_since +
                           std::max<Duration>(
                               slice_, Lead(account.used(), account.weight, sibling->value.key())));
  }
  return due;
}

const FairShares::Item* FairShares::GetBest(const Group& group, Level level,
                                            std::size_t except) const {
  const Item* const items = &*accounts_.begin();
  if (group.clients == 1) {
    const Item& only = items[group.first];
    return only.value.ready && only.value.level == level && group.first != except ? &only : nullptr;
  }
  const Item* best = nullptr;
  std::int64_t best_key = SmallestKey::kNone;
  for (std::size_t place = group.first; place < accounts_.size(); ++place) {
    const Account& account = items[place].value;
    if (&groups_[account.group] != &group || account.level != level) continue;
    if (!account.ready || place == except || account.key() >= best_key) continue;
    best = &items[place];
    best_key = account.key();
  }
  return best;
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
    // Lower work waits for this level's commands on the device.
    if (HasRunning(level)) return Decision::Wait();
  }
  return Decision::Wait();
}

std::optional<TimePoint> FairShares::HeldUntil(const Account& best, const Group& group,
                                               TimePoint now) {
  const Level level = best.level;
  LevelState& state = levels_[level];
  std::optional<TimePoint> latest;
  if (level < suspended_from_) return latest;
  const Share& share = group.shares[level];
  const std::int64_t group_key = share.key(), client_key = best.key();
  const bool has_absent_siblings = share.active > share.ready;
  if (state.absent_keys.Find().key >= group_key && !has_absent_siblings) return latest;
  for (const Item& item : accounts_) {
    const Account& account = item.value;
    if (account.level != level || account.ready || !account.is_active()) continue;
    const Group& other = groups_[account.group];
    const bool is_sibling = &other == &group;
    // Ready groups compete through their keys, so only absent ones matter here.
    if (!is_sibling && state.absent_keys.at(other.place) >= group_key) continue;
    if (is_sibling && account.key() >= client_key) continue;
    const Share& others = other.shares[level];
    TimePoint until = now;
    if (account.running > 0) {
      until = account.uncharged_since + (is_sibling
                                             ? Lead(account.used(), account.weight, client_key)
                                             : Lead(others.charged.used, others.weight, group_key));
    } else if (account.returns_soon && account.last_held >= hold_off_) {
      until = *account.paused_since + hold_off_;
    }
    if (until > now) latest = std::max(latest.value_or(until), until);
  }
  return latest;
}

std::int64_t FairShares::SmallestBut(std::size_t place, const SmallestKey& keys,
                                     std::size_t places) {
  std::int64_t smallest = SmallestKey::kNone;
  for (std::size_t i = 0; i < places; ++i) {
    if (i != place) smallest = std::min(smallest, keys.at(i));
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

std::int64_t FairShares::GetPending(Duration predicted, bool stoppable) const {
  // A stoppable command holds the device for at most a slice while another client waits.
  return (stoppable ? std::min(predicted, slice_) : predicted).count();
}

void FairShares::Charge(Charged& charged, std::uint32_t weight, Duration held) {
  const std::int64_t scaled = held.count() * kVirtualScale + charged.remainder;
  const std::int64_t used = Weighed(scaled, weight);
  charged.used += used;
  charged.remainder = scaled - used * weight;
}

void FairShares::Refresh(Account& account) {
  const bool active = account.is_active();
  Share& share = ShareFor(account);
  if (active != account.counted) {
    account.counted = active;
    if (active) {
      ++share.active;
    } else {
      --share.active;
    }
  }
  LevelState& level = levels_[account.level];
  level.pauses.Set(account.place, account.paused_since
                                      ? account.paused_since->time_since_epoch().count()
                                      : SmallestKey::kNone);
  level.uncharged.Set(account.place, account.stoppable > 0
                                         ? account.uncharged_since.time_since_epoch().count()
                                         : SmallestKey::kNone);
  RefreshGroup(groups_[account.group], account.level);
}

void FairShares::RefreshAll() {
  for (Group& group : groups_) group.place = kNoPlace;
  groups_here_ = 0;
  std::size_t place = 0;
  for (Item& item : accounts_) {
    item.value.place = place;
    for (LevelState& level : levels_) level.ForgetAccount(place);
    if (Group& group = groups_[item.value.group]; group.place == kNoPlace) {
      group.place = groups_here_++;
      group.first = place;
      group_at_[group.place] = static_cast<std::uint16_t>(item.value.group);
      for (LevelState& level : levels_) level.ForgetGroup(group.place);
    }
    ++place;
  }
  for (Item& item : accounts_) Refresh(item.value);
}

std::int64_t FairShares::GetClock(LevelState& level) {
  const SmallestKey::Found furthest_behind = level.active_used.Find();
  if (furthest_behind.key != SmallestKey::kNone) {
    level.clock = std::max(level.clock, furthest_behind.key);
  }
  return level.clock;
}

std::int64_t FairShares::ClockInside(const Account& account) {
  const Group& group = groups_[account.group];
  Share& share = ShareFor(account);
  std::int64_t furthest_behind = SmallestKey::kNone;
  if (group.clients > 1) {
    for (const Item& item : accounts_) {
      const Account& other = item.value;
      if (other.group != account.group || other.level != account.level || !other.counted) continue;
      furthest_behind = std::min(furthest_behind, other.used());
    }
  }
  if (furthest_behind != SmallestKey::kNone) share.clock = std::max(share.clock, furthest_behind);
  return share.clock;
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
  Share& share = ShareFor(account);
  if (share.active > 0) {
    ClockInside(account);
    return;
  }
  share.clock = std::max(share.clock, account.used());
  if (level.ready > 0 || level.running > 0 || level.paused > 0) {
    GetClock(level);
  } else {
    // When the last active client falls asleep, the level's clock advances to the virtual time of
    // the client's group, because time used while alone must not become debt.
    level.clock = std::max(level.clock, share.charged.used);
  }
}

void FairShares::MoveForward(Account& account) {
  Share& share = ShareFor(account);
  if (share.active == 0) {
    const std::int64_t clock = GetClock(levels_[account.level]);
    if (share.charged.used < clock) share.charged = {.used = clock, .remainder = 0};
  }
  const std::int64_t clock = ClockInside(account);
  Charged& charged = account.charged[account.level];
  if (charged.used < clock) charged = {.used = clock, .remainder = 0};
}

void FairShares::Withdraw(Account& account, TimePoint now) {
  const bool was_active = account.is_active();
  Leave(account, now);
  levels_[account.level].ForgetAccount(account.place);
  RefreshGroup(groups_[account.group], account.level);
  // The client falls asleep in the old level, because that level's clock must not include time that
  // a sleeping client owes.
  if (was_active) OnAsleep(account);
}

void FairShares::Enter(Account& account) {
  LevelState& level = levels_[account.level];
  Share& share = ShareFor(account);
  if (account.ready) {
    ++level.ready;
    ++share.ready;
  }
  share.pending_ns += account.pending_ns;
  level.running += account.running;
  level.stoppable += account.stoppable;
}

void FairShares::Leave(Account& account, TimePoint now) {
  if (account.paused_since) EndPause(account);
  Share& share = ShareFor(account);
  if (account.counted) --share.active;
  account.counted = false;
  share.pending_ns -= account.pending_ns;
  if (!account.ready && account.running == 0) return;
  LevelState& level = levels_[account.level];
  if (account.ready) {
    --level.ready;
    --share.ready;
  }
  level.running -= account.running;
  level.stoppable -= account.stoppable;
  RecordLess(level, now);
}

void FairShares::RecordLess(LevelState& level, TimePoint now) {
  if (level.ready == 0 && level.running == 0) level.inactive_since = now;
}

Duration FairShares::Lead(std::int64_t used, std::uint32_t weight, std::int64_t rival_key) {
  if (rival_key <= used) return Duration::zero();
  // Rounded up, and bounded so that the product fits into 64 bits.
  constexpr std::int64_t kAheadMax = std::numeric_limits<std::int64_t>::max() / kWeightMax;
  const std::int64_t ahead = std::min(rival_key - used, kAheadMax);
  return Duration((ahead * weight) / kVirtualScale + 1);
}

}  // namespace gpushared::scheduler
