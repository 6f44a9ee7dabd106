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

// A device of 100 pages. Each page takes 1 ms to swap, and running commands end immediately.
class ResidencyTest : public ::testing::Test {
 protected:
  using Kind = MemoryAction::Kind;
  static constexpr std::uint64_t kPage = std::uint64_t{2} << 20;
  static constexpr std::uint64_t kDevice = 100 * kPage;

  explicit ResidencyTest(Duration notice = {}, bool suspends_for_swap_in = false)
      : residency_({.device_bytes = kDevice,
                    .suspends_for_swap_in = suspends_for_swap_in,
                    .residency_factor = 4,
                    .residency_min = 10ms,
                    .idle_min = 5ms,
                    .notice = notice,
                    .wake_delay_min = {},
                    .swap_bytes_max = 8 * kPage}) {}

  ClientId Add(std::uint64_t guaranteed_pages,
               SchedulingClass scheduling_class = SchedulingClass::kLow) {
    const ClientId client{++last_};
    residency_.Add(client, {.guaranteed_bytes = guaranteed_pages * kPage,
                            .scheduling_class = scheduling_class});
    return client;
  }
  MemoryUsage& Of(ClientId client) { return memory_[client.value]; }
  std::uint64_t Free() const {
    std::uint64_t used = 0;
    for (const MemoryUsage& memory : memory_) used += memory.resident_bytes + memory.pinned_bytes;
    return kDevice - used;
  }
  // Allocates pages that are free.
  void Grow(ClientId client, std::uint64_t pages) {
    ASSERT_LE(pages * kPage, Free());
    Of(client).movable_bytes += pages * kPage;
    Of(client).resident_bytes += pages * kPage;
    residency_.OnMemory(client, Of(client), now_);
  }
  // Gives the client this number of pages, resident as far as they fit, and a command to run.
  void Begin(ClientId client, std::uint64_t pages) {
    Of(client) = {.movable_bytes = pages * kPage,
                  .resident_bytes = std::min(pages * kPage, Free())};
    residency_.OnMemory(client, Of(client), now_);
    Busy(client);
  }
  void Busy(ClientId client, bool is_busy = true) { residency_.SetBusy(client, is_busy, now_); }
  // From now on the client's next commands touch only these pages of its swapped-out memory.
  void Needs(ClientId client, std::uint64_t pages) {
    MemoryUsage& memory = Of(client);
    memory.unneeded_bytes = memory.absent_bytes() - pages * kPage;
    is_known_[client.value] = true;
    residency_.SetUnneeded(client, memory.unneeded_bytes, memory.spare_bytes, now_);
  }
  bool Runs(ClientId client) {
    return Of(client).missing_bytes() == 0 && !residency_.IsHeld(client);
  }
  bool IsResident(ClientId client) { return Of(client).is_whole() && !residency_.IsHeld(client); }

  // Carries out actions until none is left; returns the last one.
  std::optional<MemoryAction> Settle() {
    std::optional<MemoryAction> last;
    while (const auto action = residency_.Next(Free(), now_)) {
      last = action;
      MemoryUsage& memory = Of(action->client);
      switch (action->kind) {
        case Kind::kSuspend:
          now_ += stop_;
          residency_.OnDrained(action->client);
          break;
        case Kind::kSwapOut:
        case Kind::kSwapIn:
          now_ += (action->beneficiary == slowed_ ? 3ms : 1ms) *
                      static_cast<int>(action->bytes / kPage) +
                  std::exchange(delay_, {});
          if (action->kind == Kind::kSwapOut) {
            memory.resident_bytes -= action->bytes;
            const std::uint64_t spare_evicted = std::min(memory.spare_bytes, action->bytes);
            memory.spare_bytes -= spare_evicted;
            memory.unneeded_bytes +=
                is_known_[action->client.value] ? action->bytes : spare_evicted;
            swapped_out_ += action->bytes / kPage;
          } else {
            memory.resident_bytes += action->bytes;
            memory.unneeded_bytes = std::min(memory.unneeded_bytes, memory.absent_bytes());
          }
          residency_.OnSwapped(action->client, memory, now_);
          break;
        case Kind::kMemoryRequest:
          granted_to_ = action->client;
          break;
        case Kind::kResume:
        case Kind::kPreemptSwap:
        case Kind::kNoMemory:
          break;
      }
    }
    return last;
  }
  // Advances time and carries out actions until all of `client` is resident or 10 s have passed.
  bool BecomesResident(ClientId client) {
    const TimePoint latest = now_ + 10s;
    for (Settle(); !IsResident(client) && now_ < latest; Settle()) {
      now_ = residency_.wake_at().value_or(latest);
    }
    return IsResident(client);
  }

  // Advances time; returns how long each client could run.
  std::array<Duration, 3> RunTurns(const std::array<ClientId, 3>& clients, Duration time) {
    std::array<Duration, 3> ran{};
    const TimePoint end = now_ + time;
    while (now_ < end) {
      Settle();
      const TimePoint next = residency_.wake_at().value_or(end);
      for (std::size_t i = 0; i < clients.size(); ++i) {
        if (IsResident(clients.at(i))) ran.at(i) += next - now_;
      }
      now_ = next;
    }
    return ran;
  }

  Residency residency_;
  TimePoint now_{1s};
  std::uint64_t swapped_out_ = 0;
  ClientId granted_to_;  // The last client whose request was granted.
  Duration delay_{};     // Extra time of the next swap.
  ClientId slowed_;      // Swaps for this client take three times as long.
  Duration stop_{};      // Time for which a suspended client's commands keep running.

 private:
  std::uint64_t last_ = 0;
  std::array<MemoryUsage, 8> memory_{};
  // Whether the access set of the client's next commands is known. If so, it excludes all evicted
  // pages.
  std::array<bool, 8> is_known_{};
};

// Two busy clients fill the device, the second one requests more, and the first one's residency
// period has ended.
class EvictionNoticeTest : public ResidencyTest {
 protected:
  EvictionNoticeTest() : ResidencyTest(2ms) {
    Grow(one_, 60);
    Busy(one_);
    Grow(other_, 40);
    Busy(other_);
    now_ += 1s;
  }
  // Expects that the next action has this kind. Returns the action without carrying it out.
  MemoryAction Expect(Kind kind) {
    const auto action = residency_.Next(Free(), now_);
    EXPECT_TRUE(action && action->kind == kind) << static_cast<int>(kind);
    return action.value_or(MemoryAction{});
  }

  const ClientId one_ = Add(0), other_ = Add(0);
};

}  // namespace gpushared::scheduler

#endif  // GPUSHARED_TESTS_SCHEDULER_RESIDENCY_CASE_H_
