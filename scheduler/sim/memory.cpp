// SPDX-License-Identifier: Apache-2.0
#include "scheduler/sim/memory.h"

#include <algorithm>
#include <optional>
#include <random>
#include <utility>

#include "scheduler/residency.h"

namespace gpushared::simulation {
namespace {

using scheduler::ClientId;
using scheduler::Duration;
using scheduler::MemoryAction;
using scheduler::TimePoint;

std::uint64_t Part(const MemoryScenario& scenario, double part) {
  return static_cast<std::uint64_t>(part * static_cast<double>(scenario.device_bytes)) /
         kMapPageBytes * kMapPageBytes;
}

Duration SwapTime(const MemoryScenario& scenario, std::uint64_t bytes) {
  return Duration(
      static_cast<std::int64_t>(static_cast<double>(bytes) / scenario.bytes_per_s * 1e9));
}

// Arrivals of the high client, counted from the end of its previous visit.
class Visits {
 public:
  explicit Visits(const MemoryScenario& scenario)
      : random_(scenario.seed), every_(static_cast<double>(scenario.high_every.count())) {}
  TimePoint After(TimePoint left) {
    return left + Duration(static_cast<std::int64_t>(every_ * distance_(random_)));
  }

 private:
  std::mt19937_64 random_;
  std::exponential_distribution<double> distance_{1.0};
  double every_;
};

class ResidencyWorld {
 public:
  explicit ResidencyWorld(const MemoryScenario& scenario)
      : scenario_(scenario),
        residency_({.device_bytes = scenario.device_bytes}),
        visits_(scenario),
        high_{scenario.low_clients + 1},
        ran_(scenario.low_clients) {}

  MemoryReport Run();

 private:
  // A part of a client's memory; all parts have equal size.
  struct PartHeld {
    std::uint64_t resident_bytes = 0;
    TimePoint used{};
  };
  struct Held {
    scheduler::MemoryUsage memory;
    bool is_suspended = false;
    std::vector<PartHeld> parts;  // Empty for the high client.
    std::size_t part = 0;         // The part in use.
    Duration left{};              // Running time left in that part.

    bool runs() const { return memory.missing_bytes() == 0 && !is_suspended; }
  };

  std::uint64_t Free() const;
  void Begin();
  void Decide();
  void PreemptSwap();
  void Advance(TimePoint to);
  void OnEvent();
  TimePoint NextEvent() const;
  Held& Of(ClientId client) { return clients_.at(client.value - 1); }
  std::uint64_t PartBytes(const Held& client) const {
    return client.memory.movable_bytes / client.parts.size();
  }
  // Distributes the bytes of a swap over the client's parts.
  void SwapParts(Held& client, bool goes_out, std::uint64_t bytes) const;
  void RecordNeed(Held& client) const;
  std::size_t CountRunning() const;

  const MemoryScenario scenario_;
  scheduler::Residency residency_;
  Visits visits_;
  const ClientId high_;
  std::vector<Held> clients_;
  TimePoint now_{std::chrono::seconds(1)};
  std::optional<MemoryAction> move_, hold_;
  TimePoint swap_began_{}, swap_ends_{}, hold_ends_{}, high_changes_{};
  std::optional<TimePoint> asked_;
  bool is_high_here_ = false;
  std::vector<Duration> ran_;
  Duration any_ran_{};
  MemoryReport report_;
};

std::uint64_t ResidencyWorld::Free() const {
  std::uint64_t used = 0;
  for (const Held& each : clients_) used += each.memory.resident_bytes;
  return scenario_.device_bytes - used;
}

// Low clients arrive one after the other, so the first ones get the available memory.
void ResidencyWorld::Begin() {
  for (std::size_t i = 0; i < scenario_.low_clients; ++i) {
    const ClientId client{i + 1};
    residency_.Add(client, {.scheduling_class = scheduler::SchedulingClass::kLow});
    const std::uint64_t bytes = Part(scenario_, scenario_.low_part);
    Held low{.memory = {.movable_bytes = bytes / scenario_.low_parts * scenario_.low_parts}};
    low.parts.resize(scenario_.low_parts);
    low.left = scenario_.part_takes;
    low.memory.resident_bytes = std::min(low.memory.movable_bytes, Free());
    SwapParts(low, false, low.memory.resident_bytes);
    RecordNeed(low);
    clients_.push_back(std::move(low));
    residency_.OnMemory(client, clients_.back().memory, now_);
    residency_.SetBusy(client, true, now_);
  }
  clients_.push_back({});
  high_changes_ = visits_.After(now_);
}

// Swaps in the part in use first, and swaps out the least recently used part first.
void ResidencyWorld::SwapParts(Held& client, bool goes_out, std::uint64_t bytes) const {
  const std::uint64_t whole = PartBytes(client);
  while (bytes > 0) {
    PartHeld* chosen = nullptr;
    for (PartHeld& each : client.parts) {
      if (each.resident_bytes == (goes_out ? 0 : whole)) continue;
      const PartHeld* const current = &client.parts[client.part];
      const auto goes_before = [&] {
        if (!goes_out || &each == current) return !goes_out && &each == current;
        return chosen == current || each.used < chosen->used;
      };
      if (chosen == nullptr || goes_before()) chosen = &each;
    }
    if (chosen == nullptr) return;
    const std::uint64_t room = goes_out ? chosen->resident_bytes : whole - chosen->resident_bytes;
    const std::uint64_t moved = std::min(bytes, room);
    chosen->resident_bytes += goes_out ? 0 - moved : moved;
    bytes -= moved;
  }
}

void ResidencyWorld::RecordNeed(Held& client) const {
  if (client.parts.empty()) return;
  const std::uint64_t there = client.parts[client.part].resident_bytes;
  const std::uint64_t missing = PartBytes(client) - there;
  client.memory.unneeded_bytes = client.memory.absent_bytes() - missing;
  client.memory.spare_bytes = client.memory.resident_bytes - there;
}

std::size_t ResidencyWorld::CountRunning() const {
  std::size_t running = 0;
  for (std::size_t i = 0; i < scenario_.low_clients; ++i) running += clients_[i].runs();
  return running;
}

void ResidencyWorld::Decide() {
  using Kind = MemoryAction::Kind;
  while (const auto action = residency_.Next(Free(), now_)) {
    switch (action->kind) {
      case Kind::kSuspend:
        Of(action->client).is_suspended = true;
        hold_ = action;
        hold_ends_ = now_ + scenario_.stop;
        break;
      case Kind::kResume:
        Of(action->client).is_suspended = false;
        break;
      case Kind::kSwapOut:
      case Kind::kSwapIn:
        move_ = action;
        swap_began_ = now_;
        swap_ends_ = now_ + SwapTime(scenario_, action->bytes);
        break;
      case Kind::kPreemptSwap:
        PreemptSwap();
        break;
      case Kind::kMemoryRequest:
        Of(high_).memory = {.movable_bytes = action->bytes, .resident_bytes = action->bytes};
        residency_.OnMemory(high_, Of(high_).memory, now_);
        report_.waits.push_back(now_ - *std::exchange(asked_, std::nullopt));
        high_changes_ = now_ + scenario_.high_residency;
        break;
      case Kind::kNoMemory:
        return;
    }
  }
}

void ResidencyWorld::PreemptSwap() {
  const Duration step = SwapTime(scenario_, kMapPageBytes);
  const auto begun = static_cast<std::uint64_t>((now_ - swap_began_) / step) + 1;
  move_->bytes = std::min(move_->bytes, begun * kMapPageBytes);
  swap_ends_ = std::min(swap_ends_, swap_began_ + SwapTime(scenario_, move_->bytes));
}

TimePoint ResidencyWorld::NextEvent() const {
  TimePoint next = residency_.wake_at().value_or(TimePoint::max());
  if (move_) next = std::min(next, swap_ends_);
  if (hold_) next = std::min(next, hold_ends_);
  if (!asked_) next = std::min(next, high_changes_);
  const std::size_t running = CountRunning();
  for (std::size_t i = 0; i < scenario_.low_clients && scenario_.low_parts > 1; ++i) {
    if (!clients_[i].runs()) continue;
    next = std::min(next, now_ + clients_[i].left * static_cast<std::int64_t>(running));
  }
  return next;
}

void ResidencyWorld::Advance(TimePoint to) {
  const std::size_t running = CountRunning();
  if (running > 0) any_ran_ += to - now_;
  for (std::size_t i = 0; i < scenario_.low_clients && running > 0; ++i) {
    if (!clients_[i].runs()) continue;
    const Duration ran = (to - now_) / static_cast<std::int64_t>(running);
    ran_[i] += ran;
    clients_[i].left -= ran;
  }
  now_ = to;
}

void ResidencyWorld::OnEvent() {
  if (move_ && now_ >= swap_ends_) {
    const MemoryAction move = *std::exchange(move_, std::nullopt);
    Held& client = Of(move.client);
    scheduler::MemoryUsage& memory = client.memory;
    const bool goes_out = move.kind == MemoryAction::Kind::kSwapOut;
    memory.resident_bytes += goes_out ? 0 - move.bytes : move.bytes;
    SwapParts(client, goes_out, move.bytes);
    RecordNeed(client);
    report_.moved_bytes += static_cast<double>(move.bytes);
    residency_.OnSwapped(move.client, memory, now_);
  }
  for (std::size_t i = 0; i < scenario_.low_clients && scenario_.low_parts > 1; ++i) {
    Held& client = clients_[i];
    // The time left is rounded down, so up to a nanosecond per client may remain.
    if (!client.runs() || client.left > scenario_.low_clients * Duration(1)) continue;
    client.part = (client.part + 1) % client.parts.size();
    client.parts[client.part].used = now_;
    client.left = scenario_.part_takes;
    RecordNeed(client);
    residency_.SetUnneeded({i + 1}, client.memory.unneeded_bytes, client.memory.spare_bytes, now_);
  }
  if (hold_ && now_ >= hold_ends_) residency_.OnDrained(std::exchange(hold_, {})->client);
  if (asked_ || now_ < high_changes_) return;
  is_high_here_ = !is_high_here_;
  if (is_high_here_) {
    const std::uint64_t bytes = Part(scenario_, scenario_.high_part);
    residency_.Add(
        high_, {.guaranteed_bytes = bytes, .scheduling_class = scheduler::SchedulingClass::kHigh});
    residency_.RequestMemory(high_, bytes, now_);
    asked_ = now_;
  } else {
    residency_.Remove(high_);
    Of(high_).memory = {};
    high_changes_ = visits_.After(now_);
  }
}

MemoryReport ResidencyWorld::Run() {
  Begin();
  const TimePoint began = now_, end = now_ + scenario_.length;
  while (now_ < end) {
    Decide();
    Advance(std::min(end, NextEvent()));
    OnEvent();
  }
  const auto part = [&](Duration time) {
    return static_cast<double>(time.count()) / static_cast<double>((end - began).count());
  };
  report_.low_runs = part(any_ran_);
  report_.least_runs = part(*std::ranges::min_element(ran_));
  std::ranges::sort(report_.waits);
  return std::move(report_);
}

}  // namespace

MemoryReport SimulateResidency(const MemoryScenario& scenario) {
  return ResidencyWorld(scenario).Run();
}

MemoryReport SimulateWholeDeviceTurns(const MemoryScenario& scenario, Duration turn) {
  MemoryReport report;
  Visits visits(scenario);
  const std::uint64_t of_low = Part(scenario, scenario.low_part);
  const std::uint64_t of_high = Part(scenario, scenario.high_part);
  TimePoint now{}, comes = visits.After(now);
  std::vector<Duration> ran(scenario.low_clients);
  for (std::size_t next = 0; now < TimePoint{} + scenario.length;
       next = (next + 1) % scenario.low_clients) {
    // As many pages are swapped out as are swapped in, one after the other.
    const Duration swap = std::min(turn, 2 * SwapTime(scenario, of_low));
    ran[next] += turn - swap;
    report.moved_bytes += 2 * static_cast<double>(of_low);
    now += turn;
    if (comes > now) continue;
    // The high client requested its turn during the present one, so each other low client has a
    // turn first.
    for (std::size_t i = 1; i < scenario.low_clients; ++i) {
      ran[(next + i) % scenario.low_clients] += turn - swap;
      report.moved_bytes += 2 * static_cast<double>(of_low);
      now += turn;
    }
    now += 2 * SwapTime(scenario, of_high);
    report.moved_bytes += 2 * static_cast<double>(of_high);
    report.waits.push_back(now - comes);
    now += scenario.high_residency;
    comes = visits.After(now);
  }
  Duration all{};
  for (const Duration each : ran) all += each;
  const auto length = static_cast<double>(now.time_since_epoch().count());
  report.low_runs = static_cast<double>(all.count()) / length;
  report.least_runs = static_cast<double>(std::ranges::min_element(ran)->count()) / length;
  std::ranges::sort(report.waits);
  return report;
}

MemoryReport SimulatePageFaults(const MemoryScenario& scenario, Duration pass) {
  const auto low = static_cast<std::int64_t>(scenario.low_clients);
  const std::uint64_t of_low = Part(scenario, scenario.low_part);
  const bool fits = scenario.low_clients * of_low <= scenario.device_bytes;
  const Duration faults = fits ? Duration{} : 2 * low * SwapTime(scenario, of_low);
  MemoryReport report;
  report.least_runs =
      static_cast<double>(pass.count()) / static_cast<double>((pass + faults).count());
  // While one client waits for its pages, others compute.
  report.low_runs = std::min(1.0, report.least_runs * static_cast<double>(low));
  const double length_s = std::chrono::duration<double>(scenario.length).count();
  if (!fits) report.moved_bytes = scenario.bytes_per_s * length_s;
  // The high client's pages are new, so as much memory of other clients is evicted, in addition to
  // the low clients' traffic.
  const Duration first_touch = (low + 1) * SwapTime(scenario, Part(scenario, scenario.high_part));
  const Duration between = scenario.high_every + scenario.high_residency + first_touch;
  report.waits.assign(static_cast<std::size_t>(scenario.length / between), first_touch);
  return report;
}

}  // namespace gpushared::simulation
