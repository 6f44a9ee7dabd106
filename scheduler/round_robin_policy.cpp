// SPDX-License-Identifier: Apache-2.0
#include "scheduler/round_robin_policy.h"

#include <algorithm>
#include <tuple>

namespace gpushared::scheduler {

RoundRobinPolicy::RoundRobinPolicy(const PolicyOptions& options) : slice_(options.slice) {}

void RoundRobinPolicy::OnClientAdded(ClientId client, const ClientSpec&, TimePoint) {
  accounts_.Add(client, Account{.place = ++last_place_});
}

void RoundRobinPolicy::OnClientChanged(ClientId, const ClientSpec&, TimePoint) {}

void RoundRobinPolicy::OnClientRemoved(ClientId client, TimePoint) {
  if (accounts_.At(client).ready) --ready_count_;
  accounts_.Remove(client);
  if (holder_ == client) holder_.reset();
}

void RoundRobinPolicy::OnReady(ClientId client, const Head&, TimePoint now) {
  Account& account = accounts_.At(client);
  if (account.ready) return;
  if (holder_ && *holder_ != client && turn_end_ && *turn_end_ <= now &&
      !OthersReady(accounts_.At(*holder_))) {
    // The holder had the device to itself until now, so its slice starts when the second client
    // arrives.
    turn_end_ = now + slice_;
  }
  account.ready = true;
  ++ready_count_;
}

void RoundRobinPolicy::OnIdle(ClientId client, TimePoint) {
  accounts_.At(client).ready = false;
  --ready_count_;
}

void RoundRobinPolicy::OnStarted(ClientId client, const Head& head, TimePoint now) {
  Account& account = accounts_.At(client);
  ++account.running;
  if (head.stoppable) ++account.stoppable;
  if (!turn_end_) turn_end_ = now + turn_budget_;
}

void RoundRobinPolicy::OnEnded(ClientId client, const Ended& ended, TimePoint) {
  Account& account = accounts_.At(client);
  --account.running;
  if (ended.stoppable && !ended.stop_asked) --account.stoppable;
}

Decision RoundRobinPolicy::Pick(TimePoint now) {
  if (holder_) {
    if (const std::optional<Decision> decision = KeepHolder(now)) return *decision;
    holder_.reset();
  }
  return NextHolder();
}

std::optional<Decision> RoundRobinPolicy::KeepHolder(TimePoint now) {
  Account& holder = accounts_.At(*holder_);
  const bool others_wait = OthersReady(holder);
  if (!turn_end_) {
    // The holder's first command has not started yet. The lane may still be waiting for commands of
    // a removed client.
    if (holder.ready) return Decision::Run(*holder_);
    return {};
  }
  const bool is_over = now >= *turn_end_ && others_wait;
  if (!is_over) {
    // No other client waits, so the next slice begins.
    if (now >= *turn_end_) turn_end_ = now + slice_;
    if (holder.ready) {
      return Decision::Run(*holder_, others_wait ? turn_end_ : std::optional<TimePoint>());
    }
    if (holder.running == 0) return {};
    const bool end_matters = others_wait && holder.stoppable > 0;
    return Decision::Wait(end_matters ? turn_end_ : std::optional<TimePoint>());
  }
  if (holder.stoppable > 0) {
    holder.stoppable = 0;
    return Decision::Stop(*holder_);
  }
  if (holder.running > 0) return Decision::Wait();
  holder.debt += now - *turn_end_;
  return {};
}

Decision RoundRobinPolicy::NextHolder() {
  // A client that owes at least a whole slice is passed over. Rounds that would pass over all
  // clients are skipped by choosing the client that would be passed over the fewest times.
  const auto rounds = [this](const Account& account) { return account.debt / slice_; };
  const auto order = [&](const Account& account) {
    return std::tuple(rounds(account), account.place <= cursor_place_, account.place);
  };
  ClientTable<Account>::Item* next = nullptr;
  for (auto& item : accounts_) {
    if (!item.value.ready) continue;
    if (next == nullptr || order(item.value) < order(next->value)) next = &item;
  }
  if (next == nullptr) return Decision::Wait();

  const auto circle = [&](const Account& account) {
    return std::tuple(account.place <= cursor_place_, account.place);
  };
  const auto rounds_passed = rounds(next->value);
  for (auto& item : accounts_) {
    if (!item.value.ready) continue;
    const bool is_before_next = circle(item.value) < circle(next->value);
    item.value.debt -= slice_ * (rounds_passed + (is_before_next ? 1 : 0));
  }
  turn_budget_ = slice_ - next->value.debt;
  next->value.debt = Duration::zero();
  turn_end_.reset();
  holder_ = next->client;
  cursor_place_ = next->value.place;
  return Decision::Run(next->client);
}

}  // namespace gpushared::scheduler
