// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/memory_world.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace gpushared::testing {

using namespace std::chrono_literals;
using scheduler::MemoryAction;

namespace {

constexpr std::size_t kClientsInWorldMax = 6;
constexpr std::size_t kNeededByStepMax = 12;
constexpr std::uint64_t kPoison = ~std::uint64_t{0};

}  // namespace

MemoryWorld::MemoryWorld(std::uint64_t seed)
    : random_(seed),
      holds_for_in_(Draw(2) == 0),
      residency_({.device_bytes = kFrames * kStepBytes,
                  .suspends_for_swap_in = holds_for_in_,
                  .residency_factor = static_cast<int>(Draw(10)),
                  .residency_min = 1ms,
                  .residency_max = 200ms,
                  .idle_min = 2ms,
                  .retry_after = 5ms,
                  .swap_bytes_max = (1 + Draw(8)) * kStepBytes}) {
  for (std::size_t frame = 0; frame < kFrames; ++frame) free_frames_.push_back(frame);
}

MemoryWorld::Outcome MemoryWorld::Run(std::uint64_t steps) {
  for (std::uint64_t step = 0; step < steps && outcome_.broken.empty(); ++step) {
    now_ += scheduler::Duration(Draw(500'000));
    Act();
    Decide();
    CheckAll();
  }
  if (outcome_.broken.empty()) ServeEverybody();
  outcome_.wakes = residency_.request_stats().wakes;
  while (!clients_.empty() && outcome_.broken.empty()) {
    Leave(clients_.begin()->first);
    CheckAll();
  }
  if (free_frames_.size() != kFrames || pinned_ != 0) Break("device memory is left over");
  if (free_slots_.size() != slots_.size()) Break("the store is not empty");
  if (std::ranges::count(frames_, kZero) != kFrames) Break("contents are left on the device");
  if (std::ranges::count(slots_, kPoison) != static_cast<std::ptrdiff_t>(slots_.size())) {
    Break("contents are left in the store");
  }
  return outcome_;
}

void MemoryWorld::Break(const std::string& what) {
  if (outcome_.broken.empty()) outcome_.broken = what;
}

// ---- events

void MemoryWorld::Act() {
  if (move_ && Draw(3) == 0) return EndSwap();
  if (clients_.empty() || (clients_.size() < kClientsInWorldMax && Draw(200) == 0)) return Come();
  const auto chosen = std::next(clients_.begin(), static_cast<long>(Draw(clients_.size())));
  const ClientId id = chosen->first;
  Client& client = chosen->second;
  switch (Draw(20)) {
    case 0:
      if (Draw(40) == 0) Leave(id);
      return;
    case 1:
    case 2:
      return Grow(id, client, 1 + Draw(20));
    case 3:
      return Shrink(id, client);
    case 4:
      return Pin(id, client);
    case 5:
    case 6:
      client.is_busy = Draw(2) == 0 || client.on_device > 0;
      return residency_.SetBusy(id, client.is_busy, now_);
    case 7:
      return Draw(4) == 0 ? ParkOrWake(id, client) : Launch(id, client);
    default:
      return client.on_device > 0 && Draw(2) == 0 ? EndLaunch(id, client) : Launch(id, client);
  }
}

void MemoryWorld::Come() {
  const ClientId id{next_id_++};
  std::uint64_t promised = 0;
  for (const auto& [other, client] : clients_) promised += client.grant.guaranteed_bytes;
  const std::uint64_t left = kFrames * kStepBytes - promised;
  Client& client = clients_[id];
  client.grant = {
      .guaranteed_bytes = Draw(3) == 0 ? 0 : Draw(left / kStepBytes / 2 + 1) * kStepBytes,
      .left_free_bytes = 0,
      .scheduling_class = static_cast<scheduler::SchedulingClass>(Draw(3)),
      .idle_after = std::chrono::milliseconds(Draw(3) == 0 ? 1 + Draw(50) : 0)};
  client.is_known = Draw(3) > 0;
  residency_.Add(id, client.grant);
}

void MemoryWorld::Leave(ClientId id) {
  Client& client = clients_.at(id);
  while (!client.pages.empty()) DropPage(client);
  pinned_ -= client.pinned;
  if (move_ && move_->client == id) move_.reset();
  clients_.erase(id);
  residency_.Remove(id);
  ++outcome_.deaths;
}

void MemoryWorld::Grow(ClientId id, Client& client, std::size_t pages) {
  if (client.asked > 0 || client.pages.size() + pages > PagesMax(client)) return;
  const bool is_moving = move_ && move_->client == id;
  if (!is_moving && AddPages(client, pages)) {
    return residency_.OnMemory(id, UsageFor(client), now_);
  }
  client.asked = pages;
  residency_.RequestMemory(id, pages * kStepBytes, now_);
}

void MemoryWorld::Shrink(ClientId id, Client& client) {
  if (client.asked > 0 || client.on_device > 0) return;
  for (std::size_t gone = Draw(client.pages.size() + 1); gone > 0; --gone) DropPage(client);
  residency_.OnMemory(id, UsageFor(client), now_);
}

void MemoryWorld::Pin(ClientId id, Client& client) {
  if (move_ && move_->client == id) return;
  if (client.asked > 0) return;
  if (client.pinned > 0 && Draw(2) == 0) {
    --client.pinned;
    --pinned_;
  } else if (FreeFrames() > 0 && client.pinned < 2) {
    ++client.pinned;
    ++pinned_;
  }
  residency_.OnMemory(id, UsageFor(client), now_);
}

void MemoryWorld::Launch(ClientId id, Client& client) {
  if (!client.is_busy) {
    client.is_busy = true;
    residency_.SetBusy(id, true, now_);
  }
  if (client.is_suspended || client.on_device > 2) return;
  if (client.is_known && CountMissing(client) > 0) return;
  if (CountMissing(client) > 0) return Break("a client runs without its memory");
  for (std::size_t page = 0; page < client.pages.size(); ++page) {
    if (!Needs(client, page)) continue;
    Page& touched = client.pages[page];
    if (frames_[touched.frame.value()] != touched.contents) return Break("a client lost a page");
    touched.contents = frames_[*touched.frame] = next_contents_++;
  }
  ++client.on_device;
  ++outcome_.launches;
  if (client.resident < client.pages.size()) ++outcome_.launches_by_page;
  if (client.pages.size() > kFrames) ++outcome_.beyond;
  Choose(id, client);
}

void MemoryWorld::Choose(ClientId id, Client& client) {
  if (!client.is_known) return;
  const std::size_t pages = client.pages.size();
  client.needed.assign(pages, false);
  for (std::size_t left = Draw(std::min<std::size_t>(pages, 6) + 1); left > 0; --left) {
    client.needed[Draw(pages)] = true;
  }
  const scheduler::MemoryUsage held = UsageFor(client);
  residency_.SetUnneeded(id, held.unneeded_bytes, held.spare_bytes, now_);
}

std::size_t MemoryWorld::CountMissing(const Client& client) {
  std::size_t missing = 0;
  for (std::size_t page = 0; page < client.pages.size(); ++page) {
    missing += !client.pages[page].frame && Needs(client, page);
  }
  return missing;
}

void MemoryWorld::EndLaunch(ClientId id, Client& client) {
  if (--client.on_device == 0 && client.is_suspended) residency_.OnDrained(id);
}

void MemoryWorld::ParkOrWake(ClientId id, const Client& client) {
  if (residency_.GetParking(id).is_parked) return residency_.Wake(id, now_);
  const bool is_held = client.is_busy || Draw(2) == 0;
  residency_.Park(id, is_held, now_);
}

// ---- decisions

void MemoryWorld::Decide() {
  while (outcome_.broken.empty()) {
    const auto action = residency_.Next(FreeFrames() * kStepBytes, now_);
    if (!action) break;
    CarryOut(*action);
  }
  if (const auto at = residency_.wake_at(); at && *at <= now_) Break("it is to be asked at once");
}

void MemoryWorld::CarryOut(const MemoryAction& action) {
  const auto found = clients_.find(action.client);
  if (found == clients_.end()) return Break("a decision about a client that has gone");
  Client& client = found->second;
  const bool is_within_guarantee =
      (client.pages.size() + client.pinned) * kStepBytes <= client.grant.guaranteed_bytes;
  const bool is_parked = residency_.GetParking(action.client).is_parked;
  switch (action.kind) {
    case MemoryAction::Kind::kSuspend:
      if (is_within_guarantee && !is_parked &&
          !(holds_for_in_ && client.resident < client.pages.size())) {
        return Break("a client within its guarantee is held");
      }
      client.is_suspended = true;
      if (client.on_device == 0) residency_.OnDrained(action.client);
      return;
    case MemoryAction::Kind::kResume:
      if (CountMissing(client) > 0) return Break("a client goes on without what it needs");
      if (is_parked) return Break("a parked client goes on");
      client.is_suspended = false;
      return;
    case MemoryAction::Kind::kSwapOut:
      if (is_within_guarantee && !is_parked) return Break("memory within a guarantee is moved out");
      outcome_.parked_out += is_parked;
      if (client.on_device > 0) return Break("memory moves under a kernel");
      if (action.beneficiary == action.client) {
        ++outcome_.own_swaps;
        if (client.is_busy && action.bytes > UsageFor(client).spare_bytes) {
          return Break("a client loses what it is about to touch, for itself");
        }
      }
      [[fallthrough]];
    case MemoryAction::Kind::kSwapIn:
      if (is_parked && action.kind == MemoryAction::Kind::kSwapIn) {
        return Break("memory of a parked client comes in");
      }
      if (holds_for_in_ && action.kind == MemoryAction::Kind::kSwapIn) {
        if (client.on_device > 0 || !client.is_suspended)
          return Break("memory comes in under a kernel");
        ++outcome_.quiet_swaps_in;
      }
      if (move_) return Break("two moves at one time");
      move_ = action;
      is_cut_ = false;
      return;
    case MemoryAction::Kind::kPreemptSwap:
      if (!move_ || move_->client != action.client) return Break("a move is cut that nobody makes");
      if (std::exchange(is_cut_, true)) return Break("a move is cut twice");
      if (move_->is_guaranteed) return Break("a move is cut that somebody has a right to");
      ++outcome_.cuts;
      return;
    case MemoryAction::Kind::kMemoryRequest: {
      ++outcome_.rooms;
      const std::size_t pages = std::exchange(client.asked, 0);
      if (!AddPages(client, pages)) return Break("the room that was made is not there");
      return residency_.OnMemory(action.client, UsageFor(client), now_);
    }
    case MemoryAction::Kind::kNoMemory: {
      ++outcome_.rejected;
      const std::size_t wanted = client.pages.size() + client.pinned + client.asked;
      client.asked = 0;
      if (wanted * kStepBytes <= client.grant.guaranteed_bytes) {
        return Break("room within a guarantee is rejected");
      }
      return;
    }
  }
}

void MemoryWorld::EndSwap() {
  const MemoryAction move = *std::exchange(move_, std::nullopt);
  Client& client = clients_.at(move.client);
  // Occasionally swaps fewer pages than requested.
  std::size_t pages = move.bytes / kStepBytes;
  if (Draw(8) == 0) pages = Draw(pages + 1);
  if (is_cut_) pages = std::min<std::size_t>(pages, 1 + Draw(pages + 1));
  const bool goes_out = move.kind == MemoryAction::Kind::kSwapOut;
  while (pages > 0 && (goes_out ? SwapOutPage(client) : SwapInPage(client))) --pages;
  // Occasionally the swap store fails. If the guarantee of another client needs the memory, the
  // session of the swapped client ends.
  if (goes_out && Draw(50) == 0) {
    residency_.OnSwapFailed(move.client, UsageFor(client), now_);
    ++outcome_.failures;
    if (move.is_guaranteed) Leave(move.client);
  } else {
    residency_.OnSwapped(move.client, UsageFor(client), now_);
  }
  ++outcome_.moves;
}

// ---- memory

scheduler::MemoryUsage MemoryWorld::UsageFor(const Client& client) const {
  std::size_t spare = 0;
  for (std::size_t page = 0; page < client.pages.size(); ++page) {
    spare += client.pages[page].frame && !Needs(client, page);
  }
  return {
      .movable_bytes = client.pages.size() * kStepBytes,
      .resident_bytes = client.resident * kStepBytes,
      .pinned_bytes = client.pinned * kStepBytes,
      .unneeded_bytes = (client.pages.size() - client.resident - CountMissing(client)) * kStepBytes,
      .spare_bytes = spare * kStepBytes};
}

bool MemoryWorld::AddPages(Client& client, std::size_t pages) {
  if (FreeFrames() < pages) return false;
  for (; pages > 0; --pages) {
    const std::size_t frame = free_frames_.back();
    free_frames_.pop_back();
    if (frames_[frame] != kZero) Break("fresh memory has contents of another");
    client.pages.push_back({.frame = frame});
    const auto needed = static_cast<std::size_t>(std::ranges::count(client.needed, true));
    client.needed.push_back(Draw(2) == 0 && needed < kNeededByStepMax);
    ++client.resident;
  }
  return true;
}

void MemoryWorld::DropPage(Client& client) {
  const Page page = client.pages.back();
  client.pages.pop_back();
  client.needed.pop_back();
  if (page.frame) {
    --client.resident;
    frames_[*page.frame] = kZero;
    free_frames_.push_back(*page.frame);
  } else {
    slots_[page.slot.value()] = kPoison;
    free_slots_.push_back(*page.slot);
  }
}

bool MemoryWorld::SwapOutPage(Client& client) {
  // Prefers pages that the next launch does not touch, and among these the last one.
  std::optional<std::size_t> chosen;
  for (std::size_t each = 0; each < client.pages.size(); ++each) {
    if (!client.pages[each].frame) continue;
    if (!chosen || !Needs(client, each) || Needs(client, *chosen)) chosen = each;
  }
  if (!chosen) return false;
  Page& page = client.pages[*chosen];
  --client.resident;
  if (free_slots_.empty()) {
    free_slots_.push_back(slots_.size());
    slots_.push_back(kPoison);
  }
  page.slot = free_slots_.back();
  free_slots_.pop_back();
  slots_[*page.slot] = std::exchange(frames_[page.frame.value()], kZero);
  free_frames_.push_back(*std::exchange(page.frame, std::nullopt));
  return true;
}

bool MemoryWorld::SwapInPage(Client& client) {
  std::optional<std::size_t> chosen;
  for (std::size_t each = client.pages.size(); each-- > 0;) {
    if (client.pages[each].frame) continue;
    if (!chosen || Needs(client, each) || !Needs(client, *chosen)) chosen = each;
  }
  if (!chosen || FreeFrames() == 0) return false;
  Page& page = client.pages[*chosen];
  ++client.resident;
  page.frame = free_frames_.back();
  free_frames_.pop_back();
  frames_[*page.frame] = std::exchange(slots_[page.slot.value()], kPoison);
  free_slots_.push_back(*std::exchange(page.slot, std::nullopt));
  return true;
}

// ---- rules

void MemoryWorld::CheckAll() {
  std::size_t resident = 0, out = 0;
  for (const auto& [id, client] : clients_) {
    if (residency_.WantedBytes(id) > client.resident * kStepBytes) Break("more is wanted than is");
    resident += client.resident;
    out += client.pages.size() - client.resident;
    if (client.is_suspended != residency_.IsHeld(id)) Break("who is held is not told");
    if (residency_.ResidentBytes(id) != client.resident * kStepBytes) {
      Break("what is on the device is not told");
    }
    if (!client.is_suspended && !client.is_known && client.resident != client.pages.size()) {
      Break("a client without all of its memory may run");
    }
  }
  if (resident + pinned_ > kFrames) Break("more is on the device than it has");
  if (resident + free_frames_.size() != kFrames) Break("a frame is lost");
  if (out + free_slots_.size() != slots_.size()) Break("a slot is lost");
}

// Lets each client in turn be the only one with work.
void MemoryWorld::ServeEverybody() {
  for (auto& [id, client] : clients_) {
    client.on_device = 0;
    if (client.is_suspended) residency_.OnDrained(id);
    residency_.Wake(id, now_);
    residency_.SetBusy(id, client.is_busy = false, now_);
  }
  for (auto& [id, client] : clients_) {
    residency_.SetBusy(id, client.is_busy = true, now_);
    Await("a client's memory never comes back", [&, id = id] {
      return (!client.is_suspended && CountMissing(client) == 0) || residency_.IsStarved(id);
    });
    residency_.SetBusy(id, client.is_busy = false, now_);
    Await("a client never grows", [&] { return client.asked == 0; });
  }
}

void MemoryWorld::Await(const std::string& broken_otherwise, const std::function<bool()>& is_over) {
  const scheduler::TimePoint latest = now_ + 60s;
  while (!is_over() && outcome_.broken.empty()) {
    Decide();
    if (move_) EndSwap();
    now_ += 100us;
    if (now_ > latest) Break(broken_otherwise);
    CheckAll();
  }
}

}  // namespace gpushared::testing
