// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_TESTS_SCHEDULER_RESIDENCY_CASE_H_
#define GPUSHARED_TESTS_SCHEDULER_RESIDENCY_CASE_H_

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>

#include <gtest/gtest.h>

#include "scheduler/residency.h"

namespace gpushared::scheduler {

using namespace std::chrono_literals;

// A device of 100 steps on which all moves take 1 ms a step and clients leave the device at once.
class ResidencyTest : public ::testing::Test {
 protected:
  using Kind = MemoryAction::Kind;
  static constexpr std::uint64_t kStep = std::uint64_t{2} << 20;
  static constexpr std::uint64_t kDevice = 100 * kStep;

  explicit ResidencyTest(Duration notice = {}, bool suspends_for_swap_in = false)
      : residency_({.device_bytes = kDevice,
                    .suspends_for_swap_in = suspends_for_swap_in,
                    .residency_factor = 4,
                    .residency_min = 10ms,
                    .idle_min = 5ms,
                    .notice = notice,
                    .swap_bytes_max = 8 * kStep}) {}

  ClientId Add(std::uint64_t guaranteed_steps,
               SchedulingClass scheduling_class = SchedulingClass::kLow) {
    const ClientId client{++last_};
    residency_.Add(client, {.guaranteed_bytes = guaranteed_steps * kStep,
                            .scheduling_class = scheduling_class});
    return client;
  }
  MemorySuspended& Of(ClientId client) { return held_[client.value]; }
  std::uint64_t Free() const {
    std::uint64_t used = 0;
    for (const MemorySuspended& held : held_) used += held.resident_bytes + held.pinned_bytes;
    return kDevice - used;
  }
  // It grows where there is room.
  void Grow(ClientId client, std::uint64_t steps) {
    ASSERT_LE(steps * kStep, Free());
    Of(client).movable_bytes += steps * kStep;
    Of(client).resident_bytes += steps * kStep;
    residency_.OnMemory(client, Of(client), now_);
  }
  // It has so much memory, of which as much is here as there is room for, and something to run.
  void Begin(ClientId client, std::uint64_t steps) {
    Of(client) = {.movable_bytes = steps * kStep,
                  .resident_bytes = std::min(steps * kStep, Free())};
    residency_.OnMemory(client, Of(client), now_);
    Busy(client);
  }
  void Busy(ClientId client, bool is_busy = true) { residency_.SetBusy(client, is_busy, now_); }
  // From now on that is all that its next commands touch of what is moved out.
  void Needs(ClientId client, std::uint64_t steps) {
    MemorySuspended& held = Of(client);
    held.unneeded_bytes = held.absent_bytes() - steps * kStep;
    is_known_[client.value] = true;
    residency_.SetUnneeded(client, held.unneeded_bytes, held.spare_bytes, now_);
  }
  bool Runs(ClientId client) {
    return Of(client).missing_bytes() == 0 && !residency_.IsHeld(client);
  }
  bool IsThere(ClientId client) { return Of(client).is_whole() && !residency_.IsHeld(client); }

  // Carries out what is decided until nothing is; returns the last action.
  std::optional<MemoryAction> Settle() {
    std::optional<MemoryAction> last;
    while (const auto action = residency_.Next(Free(), now_)) {
      last = action;
      MemorySuspended& held = Of(action->client);
      switch (action->kind) {
        case Kind::kHold:
          now_ += stop_;
          residency_.OnDrained(action->client);
          break;
        case Kind::kSwapOut:
        case Kind::kSwapIn:
          now_ += (action->beneficiary == slowed_ ? 3ms : 1ms) *
                      static_cast<int>(action->bytes / kStep) +
                  std::exchange(delay_, {});
          if (action->kind == Kind::kSwapOut) {
            held.resident_bytes -= action->bytes;
            const std::uint64_t spared = std::min(held.spare_bytes, action->bytes);
            held.spare_bytes -= spared;
            held.unneeded_bytes += is_known_[action->client.value] ? action->bytes : spared;
            swapped_out_ += action->bytes / kStep;
          } else {
            held.resident_bytes += action->bytes;
            held.unneeded_bytes = std::min(held.unneeded_bytes, held.absent_bytes());
          }
          residency_.OnSwapped(action->client, held, now_);
          break;
        case Kind::kMemoryRequest:
          room_for_ = action->client;
          break;
        case Kind::kRelease:
        case Kind::kCut:
        case Kind::kNoMemory:
          break;
      }
    }
    return last;
  }
  // Lets time pass, and what is decided happen, until `client` is there or a second is over.
  bool Comes(ClientId client) {
    const TimePoint latest = now_ + 10s;
    for (Settle(); !IsThere(client) && now_ < latest; Settle()) {
      now_ = residency_.wake_at().value_or(latest);
    }
    return IsThere(client);
  }

  // For so long; how long each of them ran.
  std::array<Duration, 3> RunTurns(const std::array<ClientId, 3>& clients, Duration time) {
    std::array<Duration, 3> ran{};
    const TimePoint end = now_ + time;
    while (now_ < end) {
      Settle();
      const TimePoint next = residency_.wake_at().value_or(end);
      for (std::size_t i = 0; i < clients.size(); ++i) {
        if (IsThere(clients.at(i))) ran.at(i) += next - now_;
      }
      now_ = next;
    }
    return ran;
  }

  Residency residency_;
  TimePoint now_{1s};
  std::uint64_t swapped_out_ = 0;
  ClientId room_for_;  // Made last.
  Duration delay_{};   // The next move takes so much longer.
  ClientId slowed_;    // Moves for it take three times as long.
  Duration stop_{};    // Who is held takes so long to stop.

 private:
  std::uint64_t last_ = 0;
  std::array<MemorySuspended, 8> held_{};
  std::array<bool, 8> is_known_{};  // Its next commands touch nothing of what goes out.
};

// Of two busy clients that fill the device, the second one asks for more. The stay of the first
// one is over.
class MemoryNotice : public ResidencyTest {
 protected:
  MemoryNotice() : ResidencyTest(2ms) {
    Grow(one_, 60);
    Busy(one_);
    Grow(other_, 40);
    Busy(other_);
    now_ += 1s;
  }
  // One action after the other.
  MemoryAction Expect(Kind kind) {
    const auto action = residency_.Next(Free(), now_);
    EXPECT_TRUE(action && action->kind == kind) << static_cast<int>(kind);
    return action.value_or(MemoryAction{});
  }

  const ClientId one_ = Add(0), other_ = Add(0);
};

}  // namespace gpushared::scheduler

#endif  // GPUSHARED_TESTS_SCHEDULER_RESIDENCY_CASE_H_
