// SPDX-License-Identifier: Apache-2.0
#include "scheduler/fair_shares.h"

#include <algorithm>
#include <limits>
#include <optional>

namespace gpushared::scheduler {

void FairShares::Add(ClientId client, Level level, std::uint32_t weight) {
  accounts_.Add(client, Account{.level = static_cast<std::uint8_t>(level), .weight = weight});
}

void FairShares::Change(ClientId client, Level level, std::uint32_t weight, TimePoint now) {
  Account& account = accounts_.At(client);
  if (account.weight != weight) {
    account.weight = weight;
    account.remainder = 0;
  }
  if (account.level != level) {
    Leave(account, now);
    OnAsleep(account);
    account.level = static_cast<std::uint8_t>(level);
    // Virtual times of two levels have nothing to do with each other.
    account.used = levels_[level].clock;
    account.remainder = 0;
    Enter(account);
  }
  Refresh(account);
}

void FairShares::Remove(ClientId client, TimePoint now) {
  Account& account = accounts_.At(client);
  Leave(account, now);
  account.ready = false;
  account.running = 0;
  account.stoppable = 0;
  Refresh(account);
  OnAsleep(account);
  accounts_.Remove(client);
}

void FairShares::OnReady(ClientId client) {
  Account& account = accounts_.At(client);
  if (account.ready) return;
  LevelState& level = levels_[account.level];
  if (account.running == 0 && account.used < level.clock) {
    account.used = level.clock;
    account.remainder = 0;
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
  Refresh(account);
  if (account.running == 0) OnAsleep(account);
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
  const std::int64_t scaled = ended.held.count() * kVirtualScale + account.remainder;
  account.used += scaled / account.weight;
  account.remainder = scaled % account.weight;
  Refresh(account);
  if (!account.ready && account.running == 0) OnAsleep(account);
}

Decision FairShares::Pick(Level level, TimePoint now) {
  const Front front = Scan(level);
  if (front.best_key == kNobody) return Decision::Wait();
  const Item& best = *front.best;
  if (levels_[level].stoppable == 0) return Decision::Run(best.client);
  // Most of the time no slice is over yet, and nobody needs to be looked at.
  const TimePoint first_slice_end = front.stoppable_since + slice_;
  if (first_slice_end > now) return Decision::Run(best.client, first_slice_end);

  std::optional<TimePoint> reconsider_at;
  for (Item& item : accounts_) {
    if (item.value.level != level || item.value.stoppable == 0) continue;
    const std::int64_t rival_key = &item == &best ? front.second_key : front.best_key;
    if (rival_key == kNobody) continue;
    const TimePoint due = OvertakenAt(item.value, rival_key);
    if (due <= now) return Stop(item);
    if (!reconsider_at || due < *reconsider_at) reconsider_at = due;
  }
  return Decision::Run(best.client, reconsider_at);
}

Decision FairShares::StopOne(Level level) {
  const auto first = std::find_if(accounts_.begin(), accounts_.end(), [&](const Item& item) {
    return item.value.level == level && item.value.stoppable > 0;
  });
  Check(first != accounts_.end(), "a level without a stoppable command was to be stopped");
  return Stop(*first);
}

Decision FairShares::Stop(Item& item) {
  levels_[item.value.level].stoppable -= item.value.stoppable;
  item.value.stoppable = 0;
  Refresh(item.value);
  return Decision::Stop(item.client);
}

std::int64_t FairShares::PendingOf(Duration predicted, bool stoppable) const {
  // What can be stopped will not hold the device for longer while another one waits.
  return (stoppable ? std::min(predicted, slice_) : predicted).count();
}

void FairShares::Refresh(Account& account) {
  const std::int64_t key = account.used + account.pending_ns * kVirtualScale / account.weight;
  account.ready_key = account.ready ? key : kNobody;
  account.active_used = account.ready || account.running > 0 ? account.used : kNobody;
  account.stoppable_since = account.stoppable > 0 ? account.uncharged_since : TimePoint::max();
}

FairShares::Front FairShares::Scan(Level level) {
  // The hot loop of a decision: minima only, which compile to no branches. Among equals the
  // first stays, which is the lowest number.
  Front front;
  std::int64_t furthest_behind = kNobody;
  for (const Item& item : accounts_) {
    const Account& account = item.value;
    if (account.level != level) continue;
    furthest_behind = std::min(furthest_behind, account.active_used);
    front.second_key = std::min(front.second_key, std::max(front.best_key, account.ready_key));
    front.best = account.ready_key < front.best_key ? &item : front.best;
    front.best_key = std::min(front.best_key, account.ready_key);
    front.stoppable_since = std::min(front.stoppable_since, account.stoppable_since);
  }
  LevelState& state = levels_[level];
  if (furthest_behind != kNobody) state.clock = std::max(state.clock, furthest_behind);
  return front;
}

void FairShares::OnAsleep(const Account& account) {
  LevelState& level = levels_[account.level];
  if (level.ready > 0 || level.running > 0) {
    Scan(account.level);
  } else {
    // The last to leave takes the clock along: what it used while alone is no debt.
    level.clock = std::max(level.clock, account.used);
  }
}

void FairShares::Enter(Account& account) {
  LevelState& level = levels_[account.level];
  if (account.ready) ++level.ready;
  level.running += account.running;
  level.stoppable += account.stoppable;
}

void FairShares::Leave(const Account& account, TimePoint now) {
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

TimePoint FairShares::OvertakenAt(const Account& account, std::int64_t rival_key) const {
  Duration overtaken = Duration::zero();
  if (rival_key > account.used) {
    // Rounded up, and bounded so that the product stays within 64 bits.
    constexpr std::int64_t kAheadMax = std::numeric_limits<std::int64_t>::max() / kWeightMax;
    const std::int64_t ahead = std::min(rival_key - account.used, kAheadMax);
    overtaken = Duration((ahead * account.weight) / kVirtualScale + 1);
  }
  return account.uncharged_since + std::max<Duration>(slice_, overtaken);
}

}  // namespace gpushared::scheduler
