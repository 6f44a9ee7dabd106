// SPDX-License-Identifier: Apache-2.0
#include "server/worker/dispatch/memory_manager.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "gpushared/check.h"

#include "server/device/memory_budget.h"

namespace gpushared::server {

scheduler::MemoryUsage MemoryManager::GetHeld(const ClientState& client,
                                              const device::SpaceUse& use) {
  scheduler::MemoryUsage held{.movable_bytes = use.mapped_bytes,
                              .resident_bytes = use.resident_bytes,
                              .pinned_bytes = use.pinned_bytes};
  RecordNeed(client, held);
  return held;
}

void MemoryManager::RecordNeed(const ClientState& client, scheduler::MemoryUsage& held) {
  const PageUse::Need need = of_client_[client].use.Count(*client.setup.space, held.movable_bytes);
  const std::uint64_t missing = std::min(need.missing_bytes, held.absent_bytes());
  const std::uint64_t there = std::min(need.bytes - need.missing_bytes, held.resident_bytes);
  held.unneeded_bytes = held.absent_bytes() - missing;
  held.spare_bytes = held.resident_bytes - there;
}

scheduler::MemoryGrant MemoryManager::GetGrant(const ClientState& client) const {
  const bool classes_matter = lane_.rules().classes_matter;
  return {.guaranteed_bytes = client.setup.guaranteed_bytes,
          .left_free_bytes = client.setup.left_free_bytes,
          .scheduling_class =
              classes_matter ? client.spec().scheduling_class : scheduler::SchedulingClass::kNormal,
          // A client of class high or with a latency target cannot wait for its memory.
          .idle_after = lane_.rules().IsUrgent(client.spec()) ? scheduler::Duration::zero()
                                                              : client.setup.idle_after};
}

void MemoryManager::OnClientAdded(const ClientState& client) {
  of_client_.Begin(client);
  residency_.Add(client.id(), GetGrant(client));
}

void MemoryManager::OnClientChanged(const ClientState& client, scheduler::TimePoint now) {
  if (client.life.is_leaving()) return;
  residency_.Change(client.id(), GetGrant(client), now);
  is_due_ = true;
}

void MemoryManager::OnClientLeaving(ClientState& client, scheduler::TimePoint now) {
  Count(client, now);
  residency_.Remove(client.id());
  is_due_ = true;
}

void MemoryManager::OnMemory(ClientState& client, const device::SpaceUse& use,
                             scheduler::TimePoint now) {
  residency_.OnMemory(client.id(), GetHeld(client, use), now);
  OnPagesSwapped(client, use, now);
  is_due_ = true;
}

void MemoryManager::OnPagesSwapped(ClientState& client, const device::SpaceUse& use,
                                   scheduler::TimePoint now) {
  const std::uint64_t taken = client.setup.left_free_bytes + use.pinned_bytes;
  const std::uint64_t all = device_.info().memory_bytes;
  const bool was_away = client.memory.is_by_page();
  client.memory.SetByPage(use.resident_bytes < use.mapped_bytes, all - std::min(all, taken));
  if (was_away) dispatcher_.OnMemoryCame(client, now);
  RecordLack(client, now);
}

void MemoryManager::RecordLack(ClientState& client, scheduler::TimePoint now) {
  // The lane counts the time of a suspended client whose commands are queued in the lane. Commands
  // that arrive later, or while all of the client's memory is swapped out, are not queued.
  const bool is_counted = residency_.IsHeld(client.id()) && client.load.queued() > 0;
  const bool lacks = client.memory.is_by_page() && !client.streams.slab().empty() && !is_counted &&
                     residency_.LacksMemory(client.id());
  if (lacks == client.memory.lacks_pages()) return;
  client.memory.SetLack(lacks, now);
  requests_.OnOffersChanged(client, now);
}

void MemoryManager::OnSwapped(ClientState& client, const MemorySwapped& moved,
                              scheduler::TimePoint now) {
  if (moved.has_failed) {
    residency_.OnSwapFailed(client.id(), GetHeld(client, moved.use), now);
  } else {
    residency_.OnSwapped(client.id(), GetHeld(client, moved.use), now);
  }
  OnPagesSwapped(client, moved.use, now);
  Count(client, now);
  is_due_ = true;
}

void MemoryManager::RequestMemory(const ClientState& client, std::uint64_t bytes,
                                  scheduler::TimePoint now) {
  residency_.RequestMemory(client.id(), bytes, now);
  is_due_ = true;
}

ClientParked MemoryManager::Park(const ClientState& client, const ParkClient& request,
                                 scheduler::TimePoint now) {
  ClientParked answer{.token = request.token};
  const bool is_busy = !client.streams.slab().empty() || residency_.IsBusy(client.id());
  if (request.wakes && !residency_.GetParking(client.id()).is_parked) {
    answer.status = {StatusCode::kNotFound,
                     fmt::format("wake rejected: the client is not parked [{}]", client.setup.who)};
  } else if (request.wakes) {
    residency_.Wake(client.id(), now);
  } else if (is_busy && !request.is_held) {
    answer.status = {
        StatusCode::kNotReady,
        fmt::format("park rejected: the client is busy, so its next command would wake "
                    "it at once; with --hold it stays parked until it is woken [{}]",
                    client.setup.who)};
  } else {
    residency_.Park(client.id(), request.is_held, now);
  }
  is_due_ = true;
  answer.bytes = residency_.UsageFor(client.id()).movable_bytes;
  answer.parking = residency_.GetParking(client.id());
  return answer;
}

void MemoryManager::Review(bool was_busy, scheduler::TimePoint now) {
  if (was_busy && !check_at_) check_at_ = std::max(now, checked_ + check_pause_);
  const std::optional<scheduler::TimePoint> at = wake_at();
  const bool is_check_due = is_due_ || (at && now >= *at);
  if (!ReportDrainedClients() && !is_check_due) return;
  if (is_check_due) {
    is_due_ = false;
    check_at_.reset();
    checked_ = now;
    ReportBusyClients(now);
  }
  while (const auto action = residency_.Next(device_.free_memory_bytes(), now)) {
    CarryOut(*action, now);
  }
  for (ClientState* const client : registry_.present()) {
    if (!client->life.is_leaving()) Show(*client);
  }
}

void MemoryManager::Show(ClientState& client) {
  const bool is_new =
      client.output.ShowMemory(client.setup.guaranteed_bytes, residency_.ResidentBytes(client.id()),
                               residency_.WantedBytes(client.id()));
  if (is_new) publisher_.Mark(client);
}

void MemoryManager::Count(ClientState& client, scheduler::TimePoint now) {
  const scheduler::MemorySwaps moves = residency_.GetSwaps(client.id());
  OfClient& mine = of_client_[client];
  const scheduler::MemorySwaps before = std::exchange(mine.counted_swaps, moves);
  client.memory.SetSwappedIn(moves.in_bytes);
  client.memory.SetParking(residency_.GetParking(client.id()));
  const scheduler::Duration waited = residency_.WaitedFor(client.id(), now);
  ClassTotals& totals = client.totals.of_class();
  totals.memory_out_bytes.Add(moves.out_bytes - before.out_bytes);
  totals.memory_in_bytes.Add(moves.in_bytes - before.in_bytes);
  totals.memory_swaps.Add(moves.times_out - before.times_out);
  totals.memory_waited_ns.Add(waited - std::exchange(mine.counted_wait, waited));
}

bool MemoryManager::HadWork(ClientState& client, scheduler::TimePoint now) {
  OfClient& mine = of_client_[client];
  const ClientCounters& ended = client.counters;
  const std::uint64_t work = ended.launches + ended.copies + ended.fills;
  if (std::exchange(mine.work_ended, work) != work) mine.had_work_until = now + check_pause_;
  if (now >= mine.had_work_until) return false;
  check_at_ = scheduler::Earlier(check_at_, mine.had_work_until);
  return true;
}

void MemoryManager::ReportBusyClients(scheduler::TimePoint now) {
  std::uint64_t looked_at = 0;
  for (ClientState* const client : registry_.present()) {
    if (client->life.is_leaving()) continue;
    Count(*client, now);
    Examine(*client, now);
    RecordLack(*client, now);
    residency_.SetBusy(client->id(), !client->streams.slab().empty() || HadWork(*client, now), now);
    looked_at += of_client_[*client].use.TakeExamined();
  }
  check_pause_ = std::max(check_every_, kPausePerItem * static_cast<std::int64_t>(looked_at));
}

bool MemoryManager::ReportDrainedClients() {
  bool has_drained = false;
  std::erase_if(draining_, [&](scheduler::ClientId id) {
    const ClientState* const client = registry_.Find(id.value);
    if (client == nullptr || client->life.is_leaving() || !residency_.IsHeld(id)) return true;
    if (client->load.on_device() > 0) return false;
    residency_.OnDrained(id);
    return has_drained = true;
  });
  return has_drained;
}

void MemoryManager::Examine(ClientState& client, scheduler::TimePoint now) {
  if (residency_.IsWithinGuarantee(client.id())) return;
  scheduler::MemoryUsage held = residency_.UsageFor(client.id());
  of_client_[client].use.Examine(client.streams, *client.setup.space, held.movable_bytes,
                                 residency_.MaxResidentBytes(client.id()));
  RecordNeed(client, held);
  residency_.SetUnneeded(client.id(), held.unneeded_bytes, held.spare_bytes, now);
}

void MemoryManager::Move(ClientState& client, const scheduler::MemoryAction& action) {
  const bool goes_out = action.kind == scheduler::MemoryAction::Kind::kSwapOut;
  ClientState* const beneficiary = registry_.Find(action.beneficiary.value);
  if (goes_out && beneficiary != nullptr) {
    beneficiary->memory.AddEvicted(action.bytes, action.client.value);
  }
  const std::size_t count = device::RoundUp(action.bytes, kMapPageBytes) / kMapPageBytes;
  const PageUse& use = of_client_[client].use;
  const device::Space& space = *client.setup.space;
  control_.Post(
      SwapMemory{.session = action.client.value,
                 .goes_out = goes_out,
                 .steps = goes_out ? use.ToSwapOut(space, count) : use.ToSwapIn(space, count),
                 .is_guaranteed = action.is_guaranteed,
                 .parks = residency_.GetParking(action.client).is_parked,
                 .is_urgent = IsUrgent(action.beneficiary)});
}

bool MemoryManager::IsUrgent(scheduler::ClientId client) const {
  const ClientState* const state = registry_.Find(client.value);
  return state != nullptr && lane_.rules().IsUrgent(state->spec());
}

void MemoryManager::CarryOut(const scheduler::MemoryAction& action, scheduler::TimePoint now) {
  using Kind = scheduler::MemoryAction::Kind;
  ClientState* const client = registry_.Find(action.client.value);
  Check(client != nullptr, "memory actions name connected clients");
  switch (action.kind) {
    case Kind::kSuspend:
      lane_.Hold(client->id(), true, now);
      if (std::ranges::find(draining_, action.client) == draining_.end()) {
        draining_.push_back(action.client);
      }
      ReportDrainedClients();
      return;
    case Kind::kResume:
      Count(*client, now);  // Counts the wake before a short request of the client can end.
      if (client->memory.is_by_page()) dispatcher_.OfferAgain(*client, now);
      return lane_.Hold(client->id(), false, now);
    case Kind::kSwapOut:
    case Kind::kSwapIn:
      return Move(*client, action);
    case Kind::kPreemptSwap:
      control_.Post(
          PreemptSwap{.session = action.client.value, .is_urgent = IsUrgent(action.beneficiary)});
      return;
    case Kind::kMemoryRequest:
    case Kind::kNoMemory:
      control_.Post(MemoryAnswer{.session = action.client.value,
                                 .is_made = action.kind == Kind::kMemoryRequest});
      return;
  }
}

std::optional<scheduler::TimePoint> MemoryManager::wake_at() const {
  return scheduler::Earlier(check_at_, residency_.wake_at());
}

MemorySnapshot MemoryManager::GetSnapshot(const ClientState& client,
                                          scheduler::TimePoint now) const {
  return {.resident_bytes = residency_.ResidentBytes(client.id()),
          .moves = residency_.GetSwaps(client.id()),
          .waited = residency_.WaitedFor(client.id(), now),
          .parking = residency_.GetParking(client.id()),
          .is_suspended = residency_.IsHeld(client.id()),
          .is_starved = residency_.IsStarved(client.id())};
}

}  // namespace gpushared::server
