// SPDX-License-Identifier: Apache-2.0
#include "scheduler/fair_shares.h"

#include <algorithm>

namespace gpushared::scheduler {

void FairShares::Add(ClientId client, Level level, std::uint32_t weight) {
  accounts_.Add(client, Account{.level = static_cast<std::uint8_t>(level), .weight = weight});
}

void FairShares::Change(ClientId client, Level level, std::uint32_t weight) {
  Account& account = accounts_.At(client);
  if (account.weight != weight) {
    account.weight = weight;
    account.remainder = 0;
  }
  if (account.level != level) {
    Leave(account);
    OnAsleep(account);
    account.level = static_cast<std::uint8_t>(level);
    // Virtual times of two levels have nothing to do with each other.
    account.used = levels_[level].clock;
    account.remainder = 0;
    Enter(account);
  }
  UpdateKey(account);
}

void FairShares::Remove(ClientId client) {
  Account& account = accounts_.At(client);
  Leave(account);
  account.ready = false;
  account.running = 0;
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
    UpdateKey(account);
  }
  account.ready = true;
  ++level.ready;
}

void FairShares::OnIdle(ClientId client) {
  Account& account = accounts_.At(client);
  account.ready = false;
  --levels_[account.level].ready;
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
  UpdateKey(account);
}

void FairShares::OnEnded(ClientId client, const Ended& ended, TimePoint now) {
  Account& account = accounts_.At(client);
  LevelState& level = levels_[account.level];
  --account.running;
  --level.running;
  if (ended.stoppable && !ended.stop_asked) {
    --account.stoppable;
    --level.stoppable;
  }
  account.uncharged_since = now;
  account.pending_ns -= PendingOf(ended.predicted, ended.stoppable);
  const std::int64_t scaled = ended.held.count() * kVirtualScale + account.remainder;
  account.used += scaled / account.weight;
  account.remainder = scaled % account.weight;
  UpdateKey(account);
  if (!account.ready && account.running == 0) OnAsleep(account);
}

Decision FairShares::Pick(Level level, TimePoint now) {
  const Front front = Scan(level);
  if (front.best == nullptr) return Decision::Wait();
  std::optional<TimePoint> reconsider_at;
  if (levels_[level].stoppable > 0) {
    for (Item& item : accounts_) {
      Account& account = item.value;
      if (account.level != level || account.stoppable == 0) continue;
      const Item* const rival = front.best == &item ? front.second : front.best;
      if (rival == nullptr) continue;
      const TimePoint due = OvertakenAt(account, rival->value);
      if (due <= now) {
        levels_[level].stoppable -= account.stoppable;
        account.stoppable = 0;
        return Decision::Stop(item.client);
      }
      if (!reconsider_at || due < *reconsider_at) reconsider_at = due;
    }
  }
  return Decision::Run(front.best->client, reconsider_at);
}

Decision FairShares::StopOne(Level level) {
  Item* first = nullptr;
  for (Item& item : accounts_) {
    if (item.value.level != level || item.value.stoppable == 0) continue;
    if (first == nullptr || item.client < first->client) first = &item;
  }
  Check(first != nullptr, "a level without a stoppable command was to be stopped");
  levels_[level].stoppable -= first->value.stoppable;
  first->value.stoppable = 0;
  return Decision::Stop(first->client);
}

bool FairShares::IsBehind(const Item& left, const Item* right) {
  if (right == nullptr || left.value.key != right->value.key) {
    return right == nullptr || left.value.key < right->value.key;
  }
  return left.client < right->client;  // So that a run can be replayed.
}

std::int64_t FairShares::PendingOf(Duration predicted, bool stoppable) const {
  // What can be stopped will not hold the device for longer while another one waits.
  return (stoppable ? std::min(predicted, slice_) : predicted).count();
}

void FairShares::UpdateKey(Account& account) {
  account.key = account.used + account.pending_ns * kVirtualScale / account.weight;
}

FairShares::Front FairShares::Scan(Level level) {
  Front front;
  std::optional<std::int64_t> furthest_behind;
  for (const Item& item : accounts_) {
    const Account& account = item.value;
    if (account.level != level || (!account.ready && account.running == 0)) continue;
    furthest_behind = std::min(furthest_behind.value_or(account.used), account.used);
    if (!account.ready) continue;
    if (IsBehind(item, front.best)) {
      front.second = front.best;
      front.best = &item;
    } else if (IsBehind(item, front.second)) {
      front.second = &item;
    }
  }
  LevelState& state = levels_[level];
  if (furthest_behind) state.clock = std::max(state.clock, *furthest_behind);
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

void FairShares::Leave(const Account& account) {
  LevelState& level = levels_[account.level];
  if (account.ready) --level.ready;
  level.running -= account.running;
  level.stoppable -= account.stoppable;
}

TimePoint FairShares::OvertakenAt(const Account& account, const Account& rival) const {
  Duration overtaken = Duration::zero();
  if (rival.key > account.used) {
    // Rounded up, and bounded so that a far-away moment stays a representable one.
    const std::int64_t ahead = std::min(rival.key - account.used,
                                        kCommandTimeMax.count() * kVirtualScale / account.weight);
    overtaken = Duration((ahead * account.weight) / kVirtualScale + 1);
  }
  return account.uncharged_since + std::max<Duration>(slice_, overtaken);
}

}  // namespace gpushared::scheduler
