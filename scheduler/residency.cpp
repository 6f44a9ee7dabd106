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
  CountWait(state, now);
}

void Residency::Remove(ClientId client) {
  clients_.Remove(client);
  if (move_ && move_->client == client) move_.reset();
}

void Residency::CountWait(Client& client, TimePoint now) {
  const bool waits = client.wants_memory();
  if (waits == client.waits_since.has_value()) return;
  if (waits) {
    client.waits_since = now;
  } else {
    client.waited += now - *client.waits_since;
    client.waits_since.reset();
  }
}

void Residency::Update(Client& client, const MemorySuspended& held, TimePoint now) {
  Check(held.resident_bytes <= held.movable_bytes, "no more is resident than there is");
  Check(held.unneeded_bytes <= held.absent_bytes(), "no more is unneeded than is absent");
  Check(held.spare_bytes <= held.resident_bytes, "no more is spare than is resident");
  const bool had_nothing = client.held.movable_bytes == 0 && held.movable_bytes > 0;
  const bool wanted_more = client.wants_more(now);
  const bool was_missing = !client.can_run() || client.way.took.count() > 0;
  client.held = held;
  if (client.can_run() && (had_nothing || was_missing)) ComeIn(client, wanted_more, now);
  CountWait(client, now);
}

void Residency::ComeIn(Client& client, bool goes_on, TimePoint now) {
  const Duration way = GetCost(std::exchange(client.way, {}), goes_on);
  client.replaced_bytes = 0;
  if (goes_on) {
    client.last_way += way;
  } else {
    client.way_before = std::exchange(client.last_way, way);
    client.came_in = now;
  }
  client.is_in = true;
  const Duration cost = (client.last_way + client.way_before) / 2;
  client.resident_until =
      client.came_in +
      std::clamp(cost * options_.residency_factor, options_.residency_min, options_.residency_max);
}

void Residency::SetUnneeded(ClientId client, std::uint64_t unneeded_bytes,
                            std::uint64_t spare_bytes, TimePoint now) {
  Client& state = clients_.At(client);
  MemorySuspended held = state.held;
  held.unneeded_bytes = unneeded_bytes;
  held.spare_bytes = spare_bytes;
  if (held != state.held) Update(state, held, now);
}

void Residency::OnMemory(ClientId client, const MemorySuspended& held, TimePoint now) {
  Client& state = clients_.At(client);
  state.granted_bytes = 0;
  Update(state, held, now);
}

void Residency::SetBusy(ClientId client, bool is_busy, TimePoint now) {
  Client& state = clients_.At(client);
  if (std::exchange(state.is_busy, is_busy) == is_busy) return;
  if (!is_busy) state.idle_since = now;
  CountWait(state, now);
}

void Residency::RequestMemory(ClientId client, std::uint64_t bytes, TimePoint now) {
  Client& state = clients_.At(client);
  Check(state.asked_bytes == 0 && bytes > 0, "a client asks for room once at a time");
  state.granted_bytes = 0;
  state.asked_bytes = bytes;
  CountWait(state, now);
  state.asked_at = now;
}

void Residency::OnDrained(ClientId client) {
  Client& state = clients_.At(client);
  if (state.is_suspended) state.is_drained = true;
}

Duration Residency::GetCost(const Way& way, bool goes_on) {
  const auto mebibytes = static_cast<Duration::rep>(way.bytes / kMebibyte);
  // A short one takes longer for each byte. Many of them would lengthen the stays of all.
  const bool is_telling = way.bytes >= options_.swap_bytes_max;
  if (is_telling && (!goes_on || ways_.empty())) ways_.Add(way.took / mebibytes);
  if (ways_.empty()) return way.took;
  const Duration usual = mebibytes * ways_.Quantile(50);
  return is_telling ? usual : std::min(way.took, usual);
}

void Residency::Charge(Client& beneficiary, const Move& move, std::uint64_t moved, Duration took) {
  if (!move.goes_in && move.client == move.beneficiary) {
    beneficiary.replaced_bytes += moved;
    return;
  }
  if (moved == 0) return;
  const std::uint64_t own = move.goes_in ? std::min(moved, beneficiary.replaced_bytes) : 0;
  beneficiary.replaced_bytes -= own;
  const double part = static_cast<double>(moved - own) / static_cast<double>(moved);
  beneficiary.way.bytes += moved - own;
  beneficiary.way.took +=
      Duration(static_cast<Duration::rep>(static_cast<double>(took.count()) * part));
}

void Residency::OnSwapped(ClientId client, const MemorySuspended& held, TimePoint now) {
  Check(move_ && move_->client == client, "a move ends that was begun");
  Client& state = clients_.At(client);
  const std::uint64_t before = state.held.resident_bytes, after = held.resident_bytes;
  if (Client* const beneficiary = clients_.Find(move_->beneficiary)) {
    const std::uint64_t moved = std::max(before, after) - std::min(before, after);
    const Duration took = now - move_->since;
    if (const auto mebibytes = static_cast<Duration::rep>(moved / kMebibyte); mebibytes > 0) {
      per_mebibyte_[move_->goes_in ? 1 : 0].Add(took / mebibytes);
    }
    Charge(*beneficiary, *move_, moved, took);
  }
  if (move_->goes_in && before == after) rests_until_ = now + options_.rest;
  move_.reset();
  state.moves.out_bytes += before - std::min(before, after);
  state.moves.in_bytes += after - std::min(before, after);
  Update(state, held, now);
  if (after < before && !state.can_run() && std::exchange(state.is_in, false)) {
    ++state.moves.times_out;
  }
}

void Residency::OnSwapFailed(ClientId client, const MemorySuspended& held, TimePoint now) {
  Check(move_ && move_->client == client, "a move ends that was begun");
  Client* const beneficiary = clients_.Find(move_->beneficiary);
  if (beneficiary != nullptr && beneficiary->asked_bytes > 0 && !beneficiary->has_right()) {
    beneficiary->is_rejected = true;
  }
  OnSwapped(client, held, now);
  swaps_fail_until_ = now + options_.retry_after;
}

bool Residency::IsWithinGuarantee(ClientId client) const {
  const Client* const state = clients_.Find(client);
  return state != nullptr && state->is_within_guarantee();
}

bool Residency::IsHeld(ClientId client) const {
  const Client* const state = clients_.Find(client);
  return state != nullptr && state->is_suspended;
}

MemorySuspended Residency::HeldBy(ClientId client) const {
  const Client* const state = clients_.Find(client);
  return state == nullptr ? MemorySuspended{} : state->held;
}

std::uint64_t Residency::ResidentBytes(ClientId client) const {
  const Client* const state = clients_.Find(client);
  return state == nullptr ? 0 : state->held.resident_bytes;
}

std::uint64_t Residency::WantedBytes(ClientId client) const {
  const Client* const state = clients_.Find(client);
  return state == nullptr ? 0 : std::min(state->wanted_bytes, state->movable_now());
}

MemorySwaps Residency::GetMoves(ClientId client) const {
  const Client* const state = clients_.Find(client);
  return state == nullptr ? MemorySwaps{} : state->moves;
}

Duration Residency::WaitedFor(ClientId client, TimePoint now) const {
  const Client* const state = clients_.Find(client);
  if (state == nullptr) return {};
  return state->waited + (state->waits_since ? now - *state->waits_since : Duration::zero());
}

bool Residency::IsStarved(ClientId client) const {
  const Client* const state = clients_.Find(client);
  return state != nullptr && !state->can_run() && !CanEverHave(client, *state);
}

MemoryRequestStats Residency::request_stats() const {
  const auto per_second = [this](bool goes_in) -> std::uint64_t {
    constexpr std::uint64_t kSecond = Duration(std::chrono::seconds(1)).count();
    const Duration usual = per_mebibyte_[goes_in ? 1 : 0].Quantile(50);
    if (usual <= Duration::zero()) return 0;
    return kMebibyte * kSecond / static_cast<std::uint64_t>(usual.count());
  };
  MemoryRequestStats stats = request_stats_;
  stats.out_bytes_per_s = per_second(false);
  stats.in_bytes_per_s = per_second(true);
  return stats;
}

void Residency::CountAnswer(const Client& client, TimePoint now) {
  ++request_stats_.requests;
  request_stats_.longest_wait = std::max(request_stats_.longest_wait, now - client.asked_at);
}

std::optional<MemoryAction> Residency::PreemptSwap(std::uint64_t free_bytes, TimePoint now) {
  if (move_->is_guaranteed || move_->is_cut) return {};
  for (const Item& each : clients_) {
    if (!each.value.wants_memory() || !each.value.has_right()) continue;
    // Who can't be served now does not hold others up.
    if (each.client == move_->beneficiary || !MayCome(each, free_bytes, now)) continue;
    move_->is_cut = true;
    return MemoryAction{MemoryAction::Kind::kCut, move_->client, 0, each.client, true};
  }
  return {};
}

// ---- who is next

std::uint64_t Residency::FixedBytes(ClientId but) const {
  std::uint64_t bytes = 0;
  for (const auto& [client, state] : clients_) {
    if (client != but) bytes += state.fixed_bytes();
  }
  return bytes;
}

bool Residency::CanEverHave(ClientId id, const Client& client) const {
  const std::uint64_t kept = client.held.resident_bytes - client.own_memory_ever_bytes();
  const std::uint64_t bytes =
      kept + client.held.pinned_bytes + client.needed_bytes() + FixedBytes(id);
  return bytes <= options_.device_bytes - client.grant.left_free_bytes;
}

std::uint64_t Residency::RoomFor(ClientId client) const {
  const Client* const state = clients_.Find(client);
  if (state == nullptr) return 0;
  const std::uint64_t taken =
      state->grant.left_free_bytes + state->held.pinned_bytes + FixedBytes(client);
  return options_.device_bytes - std::min(options_.device_bytes, taken);
}

bool Residency::GoesBefore(const Item& left, const Item& right, TimePoint now) {
  if (left.value.has_right() != right.value.has_right()) return left.value.has_right();
  const SchedulingClass of_left = left.value.grant.scheduling_class;
  const SchedulingClass of_right = right.value.grant.scheduling_class;
  if (of_left != of_right) return of_left < of_right;
  const bool left_is_in = left.value.wants_more(now), right_is_in = right.value.wants_more(now);
  if (left_is_in != right_is_in) return left_is_in;
  return *left.value.waits_since < *right.value.waits_since;
}

const Residency::Item* Residency::Choose(std::uint64_t free_bytes, TimePoint now) const {
  const Item* first = nullptr;
  for (const Item& each : clients_) {
    if (!each.value.wants_memory()) continue;
    if (first != nullptr && !GoesBefore(each, *first, now)) continue;
    if (MayCome(each, free_bytes, now)) first = &each;
  }
  return first;
}

std::uint64_t Residency::AvailableTo(const Client& client, std::uint64_t free_bytes) const {
  std::uint64_t spoken_for = client.grant.left_free_bytes;
  for (const auto& [other, state] : clients_) {
    if (&state != &client) spoken_for += state.granted_bytes;
  }
  return free_bytes - std::min(free_bytes, spoken_for);
}

bool Residency::IsDraining(const Client& client, std::uint64_t free_bytes) const {
  return options_.suspends_for_swap_in && client.is_suspended && !client.is_drained &&
         client.coming_bytes() > 0 && client.needed_bytes() <= AvailableTo(client, free_bytes);
}

bool Residency::MayCome(const Item& candidate, std::uint64_t free_bytes, TimePoint now) const {
  if (!CanEverHave(candidate.client, candidate.value)) return false;
  // What runs of it may go on for long. Meanwhile others come.
  if (IsDraining(candidate.value, free_bytes)) return false;
  std::uint64_t bytes =
      AvailableTo(candidate.value, free_bytes) + candidate.value.own_memory_bytes();
  for (const Item& each : clients_) {
    if (each.client == candidate.client) continue;
    if (EvictableAt(each.value, candidate.value, now) != TimePoint::max()) {
      bytes += each.value.movable_now();
    }
  }
  return candidate.value.needed_bytes() <= bytes;
}

// ---- who makes room

TimePoint Residency::IdleAt(const Client& client) const {
  if (client.is_busy || client.asked_bytes > 0) return TimePoint::max();
  return client.idle_since + std::max(options_.idle_min, client.last_way);
}

bool Residency::IsIdle(const Client& client, TimePoint now) const { return IdleAt(client) <= now; }

TimePoint Residency::EvictableAt(const Client& victim, const Client& candidate,
                                 TimePoint now) const {
  if (victim.movable_now() == 0) return TimePoint::max();
  if (now < swaps_fail_until_) return TimePoint::max();
  if (candidate.has_right()) return now;
  // It has waited for its room, and uses it now.
  if (victim.granted_bytes > 0) return TimePoint::max();
  const TimePoint idle_at = IdleAt(victim);
  // A higher class keeps its memory for as long as it has something to do.
  if (victim.grant.scheduling_class < candidate.grant.scheduling_class) return idle_at;
  // A client that does not run has no stay for its rest.
  if (!victim.can_run() && !victim.is_in_residency_period(now)) return now;
  const TimePoint told_at = victim.told_at.value_or(now);
  return std::min(idle_at, std::max(victim.resident_until, told_at + options_.notice));
}

void Residency::ReportWanted(Client& victim, const Client& candidate, std::uint64_t bytes,
                             TimePoint now) {
  if (candidate.has_right() || victim.movable_now() == 0) return;
  victim.wanted_bytes = std::min(bytes, victim.movable_now());
  if (!victim.told_at) victim.told_at = now;
}

void Residency::ForgetWanted() {
  for (auto& [client, state] : clients_) {
    if (state.wanted_bytes == 0) state.told_at.reset();
    state.wanted_bytes = 0;
  }
}

bool Residency::GoesOutBefore(const Item& left, const Item& right, ClientId candidate,
                              TimePoint now) const {
  const Client& one = left.value;
  const Client& other = right.value;
  if (one.grant.scheduling_class != other.grant.scheduling_class) {
    return one.grant.scheduling_class > other.grant.scheduling_class;
  }
  const bool one_is_idle = IsIdle(one, now), other_is_idle = IsIdle(other, now);
  if (one_is_idle != other_is_idle) return one_is_idle;
  if (one_is_idle) return one.idle_since < other.idle_since;
  // Whoever needs the room, before others lose what they work on.
  const bool is_own = left.client == candidate;
  if (is_own != (right.client == candidate)) return is_own;
  if ((one.held.spare_bytes > 0) != (other.held.spare_bytes > 0)) return one.held.spare_bytes > 0;
  // Who runs is at the end of the row once it is out; of those that wait, who came last.
  if (one.can_run() != other.can_run()) return one.can_run();
  return one.came_in > other.came_in;
}

Residency::Item* Residency::Victim(const Item& candidate, std::uint64_t bytes, TimePoint now) {
  Item* first = nullptr;
  std::uint64_t found = 0;
  std::optional<TimePoint> more_at;
  const std::uint64_t own = now < swaps_fail_until_ ? 0 : candidate.value.own_memory_bytes();
  for (Item& each : clients_) {
    if (each.client == candidate.client) {
      if (own == 0) continue;
      found += own;
    } else {
      const TimePoint at = EvictableAt(each.value, candidate.value, now);
      if (at == TimePoint::max()) continue;
      if (own < bytes) ReportWanted(each.value, candidate.value, bytes, now);
      if (at > now) {
        more_at = Earlier(more_at, at);
        continue;
      }
      found += each.value.movable_now();
    }
    if (first == nullptr || GoesOutBefore(each, *first, candidate.client, now)) first = &each;
  }
  if (found >= bytes) return first;
  if (more_at) wake_at_ = Earlier(wake_at_, *more_at);
  return nullptr;
}

std::uint64_t Residency::GivesBytes(const Item& victim, ClientId candidate) {
  const MemorySuspended& held = victim.value.held;
  if (victim.client == candidate) return victim.value.own_memory_bytes();
  return held.spare_bytes > 0 ? held.spare_bytes : held.resident_bytes;
}

// ---- what is done

std::optional<MemoryAction> Residency::Hold(ClientId client, ClientId beneficiary) {
  Client& state = clients_.At(client);
  if (std::exchange(state.is_suspended, true)) return {};
  state.is_drained = false;
  return MemoryAction{MemoryAction::Kind::kHold, client, 0, beneficiary};
}

std::optional<MemoryAction> Residency::Serve(const Item& candidate, std::uint64_t free_bytes,
                                             TimePoint now, ClientId* victim) {
  using Kind = MemoryAction::Kind;
  const auto move = [&](Kind kind, ClientId client, std::uint64_t bytes) {
    move_ = Move{.client = client,
                 .beneficiary = candidate.client,
                 .since = now,
                 .goes_in = kind == Kind::kSwapIn,
                 .is_guaranteed = candidate.value.has_right()};
    return MemoryAction{kind, client, std::min(bytes, options_.swap_bytes_max), candidate.client,
                        candidate.value.has_right()};
  };
  const std::uint64_t available = AvailableTo(candidate.value, free_bytes);
  const std::uint64_t needed = candidate.value.needed_bytes();
  if (needed <= available) {
    if (const std::uint64_t coming = candidate.value.coming_bytes(); coming > 0) {
      if (options_.suspends_for_swap_in && !candidate.value.is_quiet()) {
        return Hold(candidate.client, candidate.client);
      }
      return move(Kind::kSwapIn, candidate.client, coming);
    }
    Client& served = clients_.At(candidate.client);
    if (served.has_right()) CountAnswer(served, now);
    served.granted_bytes = std::exchange(served.asked_bytes, 0);
    CountWait(served, now);
    return MemoryAction{Kind::kMemoryRequest, candidate.client, served.granted_bytes,
                        candidate.client};
  }
  Item* const found = Victim(candidate, needed - available, now);
  if (found == nullptr) return {};
  *victim = found->client;
  if (!found->value.is_quiet()) return Hold(found->client, candidate.client);
  return move(Kind::kSwapOut, found->client,
              std::min(needed - available, GivesBytes(*found, candidate.client)));
}

std::optional<MemoryAction> Residency::Next(std::uint64_t free_bytes, TimePoint now) {
  using Kind = MemoryAction::Kind;
  wake_at_.reset();
  for (auto& [client, state] : clients_) {
    if (state.asked_bytes == 0 || (!state.is_rejected && CanEverHave(client, state))) continue;
    state.is_rejected = false;
    const std::uint64_t asked = std::exchange(state.asked_bytes, 0);
    CountWait(state, now);
    return MemoryAction{Kind::kNoMemory, client, asked, client};
  }
  if (move_) return PreemptSwap(free_bytes, now);
  if (now < rests_until_) {
    wake_at_ = rests_until_;
    return {};
  }
  ForgetWanted();
  if (now < swaps_fail_until_) wake_at_ = swaps_fail_until_;
  ClientId victim;
  const Item* const candidate = Choose(free_bytes, now);
  if (candidate != nullptr) {
    if (const auto action = Serve(*candidate, free_bytes, now, &victim)) return action;
  }
  for (auto& [client, state] : clients_) {
    if (!state.is_suspended || !state.can_run() || client == victim) continue;
    state.is_suspended = false;
    return MemoryAction{Kind::kRelease, client, 0, client};
  }
  return {};
}

}  // namespace gpushared::scheduler
