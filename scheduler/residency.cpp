// SPDX-License-Identifier: Apache-2.0
#include "scheduler/residency.h"

#include <algorithm>
#include <utility>

#include "scheduler/check.h"

namespace gpushared::scheduler {
namespace {

constexpr std::uint64_t kMebibyte = std::uint64_t{1} << 20;

}  // namespace

void Residency::Add(ClientId client, const MemoryGrant& grant) {
  clients_.Add(client, Client{.grant = grant});
}

void Residency::Change(ClientId client, const MemoryGrant& grant, TimePoint now) {
  Client& state = clients_.At(client);
  state.grant = grant;
  UpdateWait(state, now);
}

void Residency::Remove(ClientId client) {
  clients_.Remove(client);
  if (swap_ && swap_->client == client) swap_.reset();
}

void Residency::UpdateWait(Client& client, TimePoint now) {
  const bool waits = client.wants_memory();
  if (waits == client.waits_since.has_value()) return;
  if (waits) {
    client.waits_since = now;
  } else {
    client.waited += now - *client.waits_since;
    client.waits_since.reset();
  }
}

void Residency::Update(Client& client, const MemoryUsage& memory, TimePoint now) {
  Check(memory.resident_bytes <= memory.movable_bytes, "no more is resident than there is");
  Check(memory.unneeded_bytes <= memory.absent_bytes(), "no more is unneeded than is absent");
  Check(memory.spare_bytes <= memory.resident_bytes, "no more is spare than is resident");
  const bool had_nothing = client.memory.movable_bytes == 0 && memory.movable_bytes > 0;
  const bool wanted_more = client.wants_more(now);
  const bool was_missing = !client.can_run() || client.swap_work.took.count() > 0;
  client.memory = memory;
  if (client.can_run() && (had_nothing || was_missing)) BeginResidency(client, wanted_more, now);
  UpdateWait(client, now);
}

void Residency::BeginResidency(Client& client, bool is_continuation, TimePoint now) {
  const Duration added_cost = SwapInCostFor(std::exchange(client.swap_work, {}), is_continuation);
  client.own_evicted_bytes = 0;
  if (is_continuation) {
    client.swap_in_cost += added_cost;
  } else {
    client.previous_swap_in_cost = std::exchange(client.swap_in_cost, added_cost);
    client.resident_since = now;
  }
  client.is_resident = true;
  const Duration cost = (client.swap_in_cost + client.previous_swap_in_cost) / 2;
  client.resident_until =
      client.resident_since +
      std::clamp(cost * options_.residency_factor, options_.residency_min, options_.residency_max);
}

void Residency::SetUnneeded(ClientId client, std::uint64_t unneeded_bytes,
                            std::uint64_t spare_bytes, TimePoint now) {
  Client& state = clients_.At(client);
  MemoryUsage memory = state.memory;
  memory.unneeded_bytes = unneeded_bytes;
  memory.spare_bytes = spare_bytes;
  if (memory != state.memory) Update(state, memory, now);
}

void Residency::OnMemory(ClientId client, const MemoryUsage& memory, TimePoint now) {
  Client& state = clients_.At(client);
  state.granted_bytes = 0;
  if (memory.movable_bytes > state.memory.movable_bytes) OnActivity(state, now);
  Update(state, memory, now);
}

void Residency::SetBusy(ClientId client, bool is_busy, TimePoint now) {
  Client& state = clients_.At(client);
  if (std::exchange(state.is_busy, is_busy) == is_busy) return;
  if (!is_busy) state.idle_since = now;
  if (is_busy) OnActivity(state, now);
  UpdateWait(state, now);
}

void Residency::RequestMemory(ClientId client, std::uint64_t bytes, TimePoint now) {
  Client& state = clients_.At(client);
  Check(state.requested_bytes == 0 && bytes > 0, "a client has one memory request at a time");
  state.granted_bytes = 0;
  state.requested_bytes = bytes;
  OnActivity(state, now);
  UpdateWait(state, now);
  state.requested_at = now;
}

void Residency::OnDrained(ClientId client) {
  Client& state = clients_.At(client);
  if (state.is_suspended) state.is_drained = true;
}

Duration Residency::SwapInCostFor(const SwapWork& work, bool is_continuation) {
  const auto mebibytes = static_cast<Duration::rep>(work.bytes / kMebibyte);
  // Short swap-ins are excluded, because they take longer per byte and would lengthen all residency
  // periods.
  const bool is_representative = work.bytes >= options_.swap_bytes_max;
  if (is_representative && (!is_continuation || swap_in_times_.empty()))
    swap_in_times_.Add(work.took / mebibytes);
  if (swap_in_times_.empty()) return work.took;
  const Duration usual = mebibytes * swap_in_times_.Quantile(50);
  return is_representative ? usual : std::min(work.took, usual);
}

void Residency::Charge(Client& beneficiary, const Swap& swap, std::uint64_t moved, Duration took) {
  if (!swap.is_swap_in && swap.client == swap.beneficiary) {
    beneficiary.own_evicted_bytes += moved;
    return;
  }
  if (moved == 0) return;
  const std::uint64_t own = swap.is_swap_in ? std::min(moved, beneficiary.own_evicted_bytes) : 0;
  beneficiary.own_evicted_bytes -= own;
  const double part = static_cast<double>(moved - own) / static_cast<double>(moved);
  beneficiary.swap_work.bytes += moved - own;
  beneficiary.swap_work.took +=
      Duration(static_cast<Duration::rep>(static_cast<double>(took.count()) * part));
}

void Residency::OnSwapped(ClientId client, const MemoryUsage& memory, TimePoint now) {
  Check(swap_ && swap_->client == client, "a move ends that was begun");
  Client& state = clients_.At(client);
  const std::uint64_t before = state.memory.resident_bytes, after = memory.resident_bytes;
  const std::uint64_t moved = std::max(before, after) - std::min(before, after);
  const Duration took = now - swap_->since;
  if (const auto mebibytes = static_cast<Duration::rep>(moved / kMebibyte); mebibytes > 0) {
    per_mebibyte_[swap_->is_swap_in ? 1 : 0].Add(took / mebibytes);
  }
  if (Client* const beneficiary = clients_.Find(swap_->beneficiary)) {
    Charge(*beneficiary, *swap_, moved, took);
  }
  if (swap_->is_swap_in && before == after) {
    swap_in_backoff_until_ = now + options_.retry_swap_in_after;
  }
  if (!swap_->is_swap_in && before == after && state.parking.is_parked) {
    // The swap store has failed or is full. The next attempt follows after another idle period.
    state.parking.is_parked = state.parking.is_held = false;
    state.idle_since = now;
  }
  swap_.reset();
  state.swaps.out_bytes += before - std::min(before, after);
  state.swaps.in_bytes += after - std::min(before, after);
  Update(state, memory, now);
  if (after < before && !state.can_run() && std::exchange(state.is_resident, false)) {
    if (!state.parking.is_parked) ++state.swaps.times_out;
  }
  // If the device had never swapped anything before, Park could promise nothing. The swap-out of
  // this client has given the first sample.
  if (state.parking.is_parked && after == 0 && !state.parking.promised) {
    PromiseWake(state);
  }
}

void Residency::OnSwapFailed(ClientId client, const MemoryUsage& memory, TimePoint now) {
  Check(swap_ && swap_->client == client, "a move ends that was begun");
  Client* const beneficiary = clients_.Find(swap_->beneficiary);
  if (beneficiary != nullptr && beneficiary->requested_bytes > 0 && !beneficiary->is_guaranteed()) {
    beneficiary->is_rejected = true;
  }
  OnSwapped(client, memory, now);
  swaps_fail_until_ = now + options_.retry_after;
}

// ---- parking

void Residency::Park(ClientId client, bool is_held, TimePoint now) {
  Park(clients_.At(client), is_held, now);
}

void Residency::Park(Client& client, bool is_held, TimePoint now) {
  client.parking.is_held = is_held;
  if (std::exchange(client.parking.is_parked, true)) return;
  client.wakes_since.reset();
  PromiseWake(client);
  UpdateWait(client, now);
}

void Residency::Wake(ClientId client, TimePoint now) { Wake(clients_.At(client), now); }

void Residency::Wake(Client& client, TimePoint now) {
  if (!std::exchange(client.parking.is_parked, false)) return;
  client.parking.is_held = false;
  client.wakes_since = now;
  UpdateWait(client, now);
}

void Residency::OnActivity(Client& client, TimePoint now) {
  if (!client.parking.is_held) Wake(client, now);
}

void Residency::CountWake(Client& client, TimePoint now) {
  const Duration took = now - *std::exchange(client.wakes_since, std::nullopt);
  const bool has_promise = client.parking.promised.has_value();
  const bool is_in_time = has_promise && took <= *client.parking.promised;
  if (has_promise) wake_delays_.Add(std::max(took - client.wake_estimate, Duration::zero()));
  client.parking.last_wake = took;
  const auto count = [&](auto& counters) {
    ++counters.wakes;
    counters.wakes_promised += has_promise;
    counters.wakes_in_time += is_in_time;
  };
  count(client.parking);
  count(request_stats_);
  request_stats_.longest_wake = std::max(request_stats_.longest_wake, took);
}

// The estimate adds up the waits of a wake: for a swap in progress, for the commands of a victim,
// for the victim's swap-out and for the swap-in, each as slow as the slowest recent one. The
// promise adds the largest recent excess over it, because threads and other clients cause further
// delays.
void Residency::PromiseWake(Client& client) const {
  client.parking.promised.reset();
  const auto& [out, in] = per_mebibyte_;
  if (!client.is_within_guarantee() || (out.empty() && in.empty())) return;
  const Duration per_out = out.empty() ? in.Largest() : out.Largest();
  const Duration per_in = in.empty() ? out.Largest() : in.Largest();
  const auto mebibytes = [](std::uint64_t bytes) {
    return static_cast<Duration::rep>(bytes / kMebibyte);
  };
  client.wake_estimate = (per_out + per_in) * mebibytes(client.memory.movable_bytes) +
                         std::max(per_out, per_in) * mebibytes(options_.swap_bytes_max) +
                         drain_times_.Largest();
  client.parking.promised =
      client.wake_estimate + std::max(wake_delays_.Largest(), options_.wake_delay_min);
}

void Residency::ParkIdleClients(TimePoint now) {
  for (auto& [id, client] : clients_) {
    if (client.grant.idle_after == Duration::zero() || client.parking.is_parked || client.is_busy ||
        client.requested_bytes > 0 || client.memory.resident_bytes == 0) {
      continue;
    }
    // A client is not parked within its residency period, so that the part of the time spent on
    // swaps stays limited even if the client submits a command shortly after each parking.
    const TimePoint at =
        std::max(std::max(client.idle_since, client.resident_since) + client.grant.idle_after,
                 client.resident_until);
    if (at <= now) {
      Park(client, /*is_held=*/false, now);
    } else {
      wake_at_ = Earlier(wake_at_, at);
    }
  }
}

std::optional<MemoryAction> Residency::SwapOutParked(TimePoint now) {
  for (const auto& [id, client] : clients_) {
    if (!client.parking.is_parked) continue;
    if (auto suspended = Suspend(id, id, now)) return suspended;
    if (!client.is_quiet() || client.memory.resident_bytes == 0) continue;
    if (now < swaps_fail_until_) continue;
    return BeginSwap(MemoryAction::Kind::kSwapOut, id, client.memory.resident_bytes, ClientId{},
                     /*is_guaranteed=*/false, now);
  }
  return {};
}

ParkingState Residency::GetParking(ClientId client) const {
  const Client* const state = clients_.Find(client);
  return state == nullptr ? ParkingState{} : state->parking;
}

// ---- figures

bool Residency::IsBusy(ClientId client) const {
  const Client* const state = clients_.Find(client);
  return state != nullptr && state->is_busy;
}

bool Residency::IsWithinGuarantee(ClientId client) const {
  const Client* const state = clients_.Find(client);
  return state != nullptr && state->is_within_guarantee();
}

bool Residency::IsHeld(ClientId client) const {
  const Client* const state = clients_.Find(client);
  return state != nullptr && state->is_suspended;
}

bool Residency::LacksMemory(ClientId client) const {
  const Client* const state = clients_.Find(client);
  return state != nullptr && !state->can_run();
}

MemoryUsage Residency::UsageFor(ClientId client) const {
  const Client* const state = clients_.Find(client);
  return state == nullptr ? MemoryUsage{} : state->memory;
}

std::uint64_t Residency::ResidentBytes(ClientId client) const {
  const Client* const state = clients_.Find(client);
  return state == nullptr ? 0 : state->memory.resident_bytes;
}

std::uint64_t Residency::WantedBytes(ClientId client) const {
  const Client* const state = clients_.Find(client);
  return state == nullptr ? 0 : std::min(state->wanted_bytes, state->evictable_bytes());
}

MemorySwaps Residency::GetSwaps(ClientId client) const {
  const Client* const state = clients_.Find(client);
  return state == nullptr ? MemorySwaps{} : state->swaps;
}

Duration Residency::WaitedFor(ClientId client, TimePoint now) const {
  const Client* const state = clients_.Find(client);
  if (state == nullptr) return {};
  return state->waited + (state->waits_since ? now - *state->waits_since : Duration::zero());
}

bool Residency::IsStarved(ClientId client) const {
  const Client* const state = clients_.Find(client);
  return state != nullptr && !state->can_run() && !IsFeasible(client, *state);
}

MemoryRequestStats Residency::request_stats() const {
  const auto per_second = [this](bool is_swap_in) -> std::uint64_t {
    constexpr std::uint64_t kSecond = Duration(std::chrono::seconds(1)).count();
    const Duration usual = per_mebibyte_[is_swap_in ? 1 : 0].Quantile(50);
    if (usual <= Duration::zero()) return 0;
    return kMebibyte * kSecond / static_cast<std::uint64_t>(usual.count());
  };
  MemoryRequestStats stats = request_stats_;
  stats.out_bytes_per_s = per_second(false);
  stats.in_bytes_per_s = per_second(true);
  for (const auto& [id, client] : clients_) stats.parked += client.parking.is_parked;
  return stats;
}

void Residency::CountAnswer(const Client& client, TimePoint now) {
  ++request_stats_.requests;
  request_stats_.longest_wait = std::max(request_stats_.longest_wait, now - client.requested_at);
}

std::optional<MemoryAction> Residency::PreemptSwap(std::uint64_t free_bytes, TimePoint now) {
  if (swap_->is_guaranteed || swap_->is_preempted) return {};
  for (const Item& each : clients_) {
    if (!each.value.wants_memory() || !each.value.is_guaranteed()) continue;
    // A request that cannot be served yet must not delay others.
    if (each.client == swap_->beneficiary || !CanEventuallyServe(each, free_bytes, now)) continue;
    swap_->is_preempted = true;
    return MemoryAction{MemoryAction::Kind::kPreemptSwap, swap_->client, 0, each.client, true};
  }
  return {};
}

// ---- choosing the client to serve

std::uint64_t Residency::UnevictableBytesExcept(ClientId excluded) const {
  std::uint64_t bytes = 0;
  for (const auto& [client, state] : clients_) {
    if (client != excluded) bytes += state.unevictable_bytes();
  }
  return bytes;
}

bool Residency::IsFeasible(ClientId id, const Client& client) const {
  const std::uint64_t kept = client.memory.resident_bytes - client.own_evictable_later_bytes();
  const std::uint64_t bytes =
      kept + client.memory.pinned_bytes + client.needed_bytes() + UnevictableBytesExcept(id);
  return bytes <= options_.device_bytes - client.grant.left_free_bytes;
}

std::uint64_t Residency::MaxResidentBytes(ClientId client) const {
  const Client* const state = clients_.Find(client);
  if (state == nullptr) return 0;
  const std::uint64_t taken =
      state->grant.left_free_bytes + state->memory.pinned_bytes + UnevictableBytesExcept(client);
  return options_.device_bytes - std::min(options_.device_bytes, taken);
}

bool Residency::IsServedBefore(const Item& left, const Item& right, TimePoint now) {
  if (left.value.is_guaranteed() != right.value.is_guaranteed()) return left.value.is_guaranteed();
  const SchedulingClass of_left = left.value.grant.scheduling_class;
  const SchedulingClass of_right = right.value.grant.scheduling_class;
  if (of_left != of_right) return of_left < of_right;
  const bool left_is_resident = left.value.wants_more(now),
             right_is_resident = right.value.wants_more(now);
  if (left_is_resident != right_is_resident) return left_is_resident;
  return *left.value.waits_since < *right.value.waits_since;
}

const Residency::Item* Residency::ChooseCandidate(std::uint64_t free_bytes, TimePoint now) const {
  const Item* first = nullptr;
  for (const Item& each : clients_) {
    if (!each.value.wants_memory()) continue;
    if (first != nullptr && !IsServedBefore(each, *first, now)) continue;
    if (CanEventuallyServe(each, free_bytes, now)) first = &each;
  }
  return first;
}

std::uint64_t Residency::AvailableTo(const Client& client, std::uint64_t free_bytes) const {
  std::uint64_t reserved = client.grant.left_free_bytes;
  for (const auto& [other, state] : clients_) {
    if (&state != &client) reserved += state.granted_bytes;
  }
  return free_bytes - std::min(free_bytes, reserved);
}

bool Residency::IsDraining(const Client& client, std::uint64_t free_bytes) const {
  return options_.suspends_for_swap_in && client.is_suspended && !client.is_drained &&
         client.swap_in_bytes() > 0 && client.needed_bytes() <= AvailableTo(client, free_bytes);
}

bool Residency::CanEventuallyServe(const Item& candidate, std::uint64_t free_bytes,
                                   TimePoint now) const {
  if (!IsFeasible(candidate.client, candidate.value)) return false;
  // The candidate's own running commands may take long, so others are served in the meantime.
  if (IsDraining(candidate.value, free_bytes)) return false;
  std::uint64_t bytes =
      AvailableTo(candidate.value, free_bytes) + candidate.value.own_evictable_bytes();
  for (const Item& each : clients_) {
    if (each.client == candidate.client) continue;
    if (EvictableAt(each.value, candidate.value, now) != TimePoint::max()) {
      bytes += each.value.evictable_bytes();
    }
  }
  return candidate.value.needed_bytes() <= bytes;
}

// ---- choosing the victim

TimePoint Residency::IdleAt(const Client& client) const {
  if (client.is_busy || client.requested_bytes > 0) return TimePoint::max();
  return client.idle_since + std::max(options_.idle_min, client.swap_in_cost);
}

bool Residency::IsIdle(const Client& client, TimePoint now) const { return IdleAt(client) <= now; }

TimePoint Residency::EvictableAt(const Client& victim, const Client& candidate,
                                 TimePoint now) const {
  if (victim.evictable_bytes() == 0) return TimePoint::max();
  if (now < swaps_fail_until_) return TimePoint::max();
  if (candidate.is_guaranteed()) return now;
  if (victim.parking.is_parked) return now;
  // The victim waited for this memory and is about to use it.
  if (victim.granted_bytes > 0) return TimePoint::max();
  const TimePoint idle_at = IdleAt(victim);
  // A victim of a higher class keeps its memory until the victim is idle.
  if (victim.grant.scheduling_class < candidate.grant.scheduling_class) return idle_at;
  // A client that cannot run has no residency period that would protect the rest of its memory.
  if (!victim.can_run() && !victim.is_in_residency_period(now)) return now;
  const TimePoint notified_at = victim.notified_at.value_or(now);
  return std::min(idle_at, std::max(victim.resident_until, notified_at + options_.notice));
}

void Residency::NotifyWanted(Client& victim, const Client& candidate, std::uint64_t bytes,
                             TimePoint now) {
  if (candidate.is_guaranteed() || victim.evictable_bytes() == 0) return;
  victim.wanted_bytes = std::min(bytes, victim.evictable_bytes());
  if (!victim.notified_at) victim.notified_at = now;
}

void Residency::ClearWanted() {
  for (auto& [client, state] : clients_) {
    if (state.wanted_bytes == 0) state.notified_at.reset();
    state.wanted_bytes = 0;
  }
}

bool Residency::IsEvictedBefore(const Item& left, const Item& right, ClientId candidate,
                                TimePoint now) const {
  const Client& one = left.value;
  const Client& other = right.value;
  if (one.parking.is_parked != other.parking.is_parked) return one.parking.is_parked;
  if (one.grant.scheduling_class != other.grant.scheduling_class) {
    return one.grant.scheduling_class > other.grant.scheduling_class;
  }
  const bool one_is_idle = IsIdle(one, now), other_is_idle = IsIdle(other, now);
  if (one_is_idle != other_is_idle) return one_is_idle;
  if (one_is_idle) return one.idle_since < other.idle_since;
  // The requesting client's own memory is evicted before memory that others work on.
  const bool is_own = left.client == candidate;
  if (is_own != (right.client == candidate)) return is_own;
  if ((one.memory.spare_bytes > 0) != (other.memory.spare_bytes > 0))
    return one.memory.spare_bytes > 0;
  // A client that can run would go to the end of the queue if it were evicted, so its next turn is
  // the furthest in the future. Among waiting clients, the last one to come has the furthest turn.
  if (one.can_run() != other.can_run()) return one.can_run();
  return one.resident_since > other.resident_since;
}

Residency::Item* Residency::ChooseVictim(const Item& candidate, std::uint64_t bytes,
                                         TimePoint now) {
  Item* first = nullptr;
  std::uint64_t found = 0;
  std::optional<TimePoint> more_at;
  const std::uint64_t own = now < swaps_fail_until_ ? 0 : candidate.value.own_evictable_bytes();
  for (Item& each : clients_) {
    if (each.client == candidate.client) {
      if (own == 0) continue;
      found += own;
    } else {
      const TimePoint at = EvictableAt(each.value, candidate.value, now);
      if (at == TimePoint::max()) continue;
      if (own < bytes) NotifyWanted(each.value, candidate.value, bytes, now);
      if (at > now) {
        more_at = Earlier(more_at, at);
        continue;
      }
      found += each.value.evictable_bytes();
    }
    if (first == nullptr || IsEvictedBefore(each, *first, candidate.client, now)) first = &each;
  }
  if (found >= bytes) return first;
  if (more_at) wake_at_ = Earlier(wake_at_, *more_at);
  return nullptr;
}

std::uint64_t Residency::EvictionBytes(const Item& victim, ClientId candidate) {
  const MemoryUsage& memory = victim.value.memory;
  if (victim.client == candidate) return victim.value.own_evictable_bytes();
  return memory.spare_bytes > 0 ? memory.spare_bytes : memory.resident_bytes;
}

// ---- actions

std::optional<MemoryAction> Residency::Suspend(ClientId client, ClientId beneficiary,
                                               TimePoint now) {
  Client& state = clients_.At(client);
  if (std::exchange(state.is_suspended, true)) return {};
  state.is_drained = false;
  state.suspended_since = now;
  return MemoryAction{MemoryAction::Kind::kSuspend, client, 0, beneficiary};
}

MemoryAction Residency::BeginSwap(MemoryAction::Kind kind, ClientId client, std::uint64_t bytes,
                                  ClientId beneficiary, bool is_guaranteed, TimePoint now) {
  if (const auto since = std::exchange(clients_.At(client).suspended_since, std::nullopt)) {
    drain_times_.Add(now - *since);
  }
  swap_ = Swap{.client = client,
               .beneficiary = beneficiary,
               .since = now,
               .is_swap_in = kind == MemoryAction::Kind::kSwapIn,
               .is_guaranteed = is_guaranteed};
  return {kind, client, std::min(bytes, options_.swap_bytes_max), beneficiary, is_guaranteed};
}

std::optional<MemoryAction> Residency::Serve(const Item& candidate, std::uint64_t free_bytes,
                                             TimePoint now, ClientId* victim) {
  using Kind = MemoryAction::Kind;
  const auto swap = [&](Kind kind, ClientId client, std::uint64_t bytes) {
    return BeginSwap(kind, client, bytes, candidate.client, candidate.value.is_guaranteed(), now);
  };
  const std::uint64_t available = AvailableTo(candidate.value, free_bytes);
  const std::uint64_t needed = candidate.value.needed_bytes();
  if (needed <= available) {
    if (const std::uint64_t coming = candidate.value.swap_in_bytes(); coming > 0) {
      if (options_.suspends_for_swap_in && !candidate.value.is_quiet()) {
        return Suspend(candidate.client, candidate.client, now);
      }
      return swap(Kind::kSwapIn, candidate.client, coming);
    }
    Client& served = clients_.At(candidate.client);
    if (served.is_guaranteed()) CountAnswer(served, now);
    served.granted_bytes = std::exchange(served.requested_bytes, 0);
    UpdateWait(served, now);
    return MemoryAction{Kind::kMemoryRequest, candidate.client, served.granted_bytes,
                        candidate.client};
  }
  Item* const found = ChooseVictim(candidate, needed - available, now);
  if (found == nullptr) return {};
  *victim = found->client;
  if (!found->value.is_quiet()) return Suspend(found->client, candidate.client, now);
  return swap(Kind::kSwapOut, found->client,
              std::min(needed - available, EvictionBytes(*found, candidate.client)));
}

std::optional<MemoryAction> Residency::Next(std::uint64_t free_bytes, TimePoint now) {
  using Kind = MemoryAction::Kind;
  wake_at_.reset();
  for (auto& [client, state] : clients_) {
    if (state.requested_bytes == 0 || state.parking.is_parked) continue;
    if (!state.is_rejected && IsFeasible(client, state)) continue;
    state.is_rejected = false;
    const std::uint64_t asked = std::exchange(state.requested_bytes, 0);
    UpdateWait(state, now);
    return MemoryAction{Kind::kNoMemory, client, asked, client};
  }
  ParkIdleClients(now);
  if (swap_) return PreemptSwap(free_bytes, now);
  if (now < swap_in_backoff_until_) {
    wake_at_ = swap_in_backoff_until_;
    return {};
  }
  ClearWanted();
  if (now < swaps_fail_until_) wake_at_ = swaps_fail_until_;
  ClientId victim;
  const Item* const candidate = ChooseCandidate(free_bytes, now);
  if (candidate != nullptr) {
    if (const auto action = Serve(*candidate, free_bytes, now, &victim)) return action;
  }
  if (const auto action = SwapOutParked(now)) return action;
  for (auto& [client, state] : clients_) {
    if (state.parking.is_parked || !state.can_run() || client == victim) continue;
    if (state.wakes_since) CountWake(state, now);
    if (!std::exchange(state.is_suspended, false)) continue;
    return MemoryAction{Kind::kResume, client, 0, client};
  }
  return {};
}

}  // namespace gpushared::scheduler
