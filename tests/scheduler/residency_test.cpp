// SPDX-License-Identifier: Apache-2.0
// Eviction order, preempted swaps and failed swaps.
#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "tests/scheduler/residency_case.h"

namespace gpushared::scheduler {
namespace {

TEST_F(ResidencyTest, DoesNotSwapWhenAllClientsFit) {
  const ClientId one = Add(0), other = Add(0);
  Grow(one, 50);
  Grow(other, 50);
  Busy(one);
  Busy(other);
  EXPECT_FALSE(Settle());
  EXPECT_FALSE(residency_.wake_at());
}

TEST_F(ResidencyTest, RequestWithinAGuaranteeEvictsClientAboveItsOwnAtOnce) {
  const ClientId high = Add(50, SchedulingClass::kHigh), low = Add(10);
  Grow(low, 90);
  Busy(low);
  residency_.RequestMemory(high, 40 * kPage, now_);
  const auto last = Settle();
  ASSERT_TRUE(last);
  EXPECT_EQ(last->kind, Kind::kMemoryRequest);
  EXPECT_EQ(last->client, high);
  EXPECT_EQ(swapped_out_, 30u);  // 10 were free.
  EXPECT_TRUE(residency_.IsHeld(low));
}

TEST_F(ResidencyTest, GrantedMemoryIsNotReassigned) {
  const ClientId high = Add(50, SchedulingClass::kHigh), low = Add(10);
  Grow(low, 90);
  Busy(low);
  residency_.RequestMemory(high, 40 * kPage, now_);
  Settle();
  // The granted memory is still free. The low client has a command that needs memory, but must not
  // get the granted memory.
  EXPECT_GE(Free(), 40 * kPage);
  EXPECT_FALSE(Settle());
  Grow(high, 40);
  EXPECT_TRUE(residency_.IsWithinGuarantee(high));
  EXPECT_TRUE(residency_.IsStarved(low));
}

TEST_F(ResidencyTest, ClientWithinItsGuaranteeIsNeverEvicted) {
  const ClientId guaranteed = Add(50, SchedulingClass::kLow), high = Add(0, SchedulingClass::kHigh);
  Grow(guaranteed, 50);
  Grow(high, 50);
  residency_.RequestMemory(high, 1 * kPage, now_);
  const auto last = Settle();
  ASSERT_TRUE(last);
  EXPECT_EQ(last->kind, Kind::kMemoryRequest);
  EXPECT_EQ(Of(high).resident_bytes, 49 * kPage) << "it evicts its own pages";
  EXPECT_TRUE(IsResident(guaranteed));
}

TEST_F(ResidencyTest, ResidencyIsProportionalToSwapInCost) {
  const ClientId one = Add(0), other = Add(0);
  Grow(one, 60);
  Busy(one);
  Grow(other, 40);
  Busy(other);
  residency_.RequestMemory(other, 20 * kPage, now_);
  now_ += 20ms;  // The residency period of a new client has ended.
  Settle();
  Grow(other, 20);
  EXPECT_TRUE(IsResident(other));
  EXPECT_FALSE(IsResident(one));
  const TimePoint resident_since = now_;
  ASSERT_TRUE(BecomesResident(one));
  // Swapping out 20 pages at 1 ms each cost 20 ms, and half of four times that counts now; then 20
  // pages go out and 20 come in again.
  EXPECT_EQ(now_ - resident_since, 40ms + 40ms);
}

TEST_F(ResidencyTest, BusyClientsTakeTurnsAndNoneStarves) {
  const ClientId clients[] = {Add(0), Add(0), Add(0)};
  Grow(clients[0], 60);
  Grow(clients[1], 40);
  for (const ClientId client : clients) Busy(client);
  now_ += 20ms;
  residency_.RequestMemory(clients[1], 20 * kPage, now_);
  Settle();
  Grow(clients[1], 20);
  Of(clients[2]).movable_bytes = 60 * kPage;  // Swapped out before.
  residency_.OnMemory(clients[2], Of(clients[2]), now_);
  std::array<int, 3> turns{};
  for (int round = 0; round < 30; ++round) {
    // The first client is the first victim, and the third one is the last to be swapped in.
    const int next = (3 - round % 3) % 3;
    ASSERT_TRUE(BecomesResident(clients[next])) << round;
    ++turns.at(static_cast<std::size_t>(next));
  }
  EXPECT_EQ(turns, (std::array{10, 10, 10}));
  // The last client to be swapped in is evicted first: 40 pages a turn. Evicting the oldest would
  // take 60.
  EXPECT_LE(swapped_out_, 30u * 41);
}

// Cheap and expensive swap-ins alternate, because a client is evicted partly or wholly in turn.
TEST_F(ResidencyTest, ClientsOfOneClassGetEqualResidency) {
  const std::array clients = {Add(0), Add(0), Add(0)};
  for (const ClientId client : clients) Begin(client, 57);
  const std::array<Duration, 3> ran = RunTurns(clients, 600s);
  const auto [least, most] = std::ranges::minmax(ran);
  EXPECT_GT(least, 600s / 4);  // A third, without the swaps.
  EXPECT_LT(most - least, most / 50);
}

// Half of a swap-in's cost counts for the next period. A client with an empty swap-in between two
// others must not get a period half as long again.
TEST_F(ResidencyTest, EmptySwapInDoesNotExtendResidency) {
  const ClientId one = Add(0), other = Add(0);
  for (const ClientId client : {one, other}) Begin(client, 60);
  for (int turn = 0; turn < 4; ++turn) ASSERT_TRUE(BecomesResident(turn % 2 == 0 ? other : one));
  Of(other) = {};
  residency_.OnMemory(other, Of(other), now_);
  Begin(other, 60);
  ASSERT_TRUE(BecomesResident(other));
  const TimePoint resident_since = now_;
  ASSERT_TRUE(BecomesResident(one));
  EXPECT_EQ(now_ - resident_since, 80ms + 40ms);
}

// Half of an expensive swap-in counts for the next period.
TEST_F(ResidencyTest, AllResidencyPeriodsOfOneClassAreEqual) {
  const std::array clients = {Add(0), Add(0), Add(0)};
  for (const ClientId client : clients) Begin(client, 57);
  for (int turn = 0; turn < 6; ++turn)
    ASSERT_TRUE(BecomesResident(clients.at((turn + 1) % 3))) << turn;
  std::vector<std::uint64_t> swapped_pages;
  for (int turn = 6; turn < 18; ++turn) {
    const TimePoint resident_since = now_;
    const std::uint64_t moved_before = swapped_out_;
    ASSERT_TRUE(BecomesResident(clients.at((turn + 1) % 3))) << turn;
    swapped_pages.push_back(swapped_out_ - moved_before);
    // Equal numbers of pages go out and come in. This is the time of the swaps.
    const Duration swap_time = 2ms * static_cast<int>(swapped_pages.back());
    EXPECT_EQ(now_ - resident_since - swap_time, 4 * 71ms) << turn;
  }
  EXPECT_GT(std::ranges::max(swapped_pages), 3 * std::ranges::min(swapped_pages));
}

// The machine is slow whenever this client is swapped in.
TEST_F(ResidencyTest, ResidencyIsEqualWhenOneClientsSwapsAreSlow) {
  const std::array clients = {Add(0), Add(0), Add(0)};
  for (const ClientId client : clients) Begin(client, 57);
  slowed_ = clients[1];
  const std::array<Duration, 3> ran = RunTurns(clients, 600s);
  const auto [least, most] = std::ranges::minmax(ran);
  EXPECT_GT(least, 600s / 5);
  EXPECT_LT(most - least, most / 20);
}

// A client whose swap-in is delayed once must not occupy the device for seconds.
TEST_F(ResidencyTest, DelayedSwapDoesNotExtendResidency) {
  const ClientId one = Add(0), other = Add(0);
  for (const ClientId client : {one, other}) Begin(client, 60);
  // Each turn swaps 20 pages out and 20 in: 40 ms, for a period of 160 ms.
  for (int turn = 0; turn < 4; ++turn) ASSERT_TRUE(BecomesResident(turn % 2 == 0 ? other : one));
  delay_ = 5s;
  ASSERT_TRUE(BecomesResident(other));
  const TimePoint resident_since = now_;
  ASSERT_TRUE(BecomesResident(one));
  EXPECT_EQ(now_ - resident_since, 160ms + 40ms);
}

TEST_F(ResidencyTest, SlowShortSwapsDoNotExtendResidencyOfOthers) {
  // Two clients of two pages each take turns on three free pages.
  const ClientId high = Add(97, SchedulingClass::kHigh);
  Grow(high, 97);
  const std::array small = {Add(0), Add(0)};
  for (const ClientId client : small) {
    Of(client) = {.movable_bytes = 2 * kPage, .resident_bytes = 0};
    residency_.OnMemory(client, Of(client), now_);
  }
  for (int turn = 0; turn < 20; ++turn) {
    slowed_ = small.at(turn % 2);
    Busy(slowed_);
    ASSERT_TRUE(BecomesResident(slowed_)) << turn;
    Busy(slowed_, false);
    now_ += 10ms;
  }
  Of(high) = {};
  residency_.OnMemory(high, Of(high), now_);

  const ClientId one = Add(0), other = Add(0);
  for (const ClientId client : {one, other}) Begin(client, 60);
  for (int turn = 0; turn < 4; ++turn) ASSERT_TRUE(BecomesResident(turn % 2 == 0 ? other : one));
  ASSERT_TRUE(BecomesResident(other));
  const TimePoint resident_since = now_;
  ASSERT_TRUE(BecomesResident(one));
  EXPECT_EQ(now_ - resident_since, 160ms + 40ms);
}

TEST_F(ResidencyTest, IdleClientIsEvictedBeforeItsResidencyEnds) {
  const ClientId one = Add(0), other = Add(0);
  Grow(one, 60);
  Busy(one);
  now_ += 20ms;
  Grow(other, 40);
  Busy(other);
  residency_.RequestMemory(other, 20 * kPage, now_);
  Settle();
  Grow(other, 20);
  const TimePoint resident_since = now_;
  Busy(other, false);
  ASSERT_TRUE(BecomesResident(one));
  // The client's swap-in took 20 ms, and it may be idle for as long before it is evicted.
  EXPECT_EQ(now_ - resident_since, 20ms + 40ms);
}

TEST_F(ResidencyTest, HigherClassKeepsItsMemoryUntilItIsIdle) {
  const ClientId normal = Add(0, SchedulingClass::kNormal), low = Add(0);
  Grow(normal, 60);
  Grow(low, 40);
  Busy(normal);
  Busy(low);
  residency_.RequestMemory(low, 20 * kPage, now_);
  now_ += 1h;
  EXPECT_FALSE(Settle());
  Busy(normal, false);
  Settle();
  now_ = residency_.wake_at().value();
  const auto last = Settle();
  ASSERT_TRUE(last);
  EXPECT_EQ(last->kind, Kind::kMemoryRequest);
}

TEST_F(ResidencyTest, EvictsLowestClassFirstAndIdleClientsBeforeBusyOnes) {
  const ClientId high = Add(50, SchedulingClass::kHigh), normal = Add(0, SchedulingClass::kNormal),
                 busy = Add(0), idle = Add(0);
  Grow(normal, 30);
  Grow(idle, 20);
  Grow(busy, 50);
  Busy(normal);
  Busy(busy);
  now_ += 1s;
  residency_.RequestMemory(high, 20 * kPage, now_);
  Settle();
  EXPECT_EQ(Of(idle).resident_bytes, 0u);
  EXPECT_TRUE(IsResident(busy));
  Grow(high, 20);
  residency_.RequestMemory(high, 20 * kPage, now_);
  Settle();
  EXPECT_EQ(Of(busy).resident_bytes, 30 * kPage);
  EXPECT_TRUE(IsResident(normal));
}

TEST_F(ResidencyTest, ResumesSuspendedVictimWhenTheRequestIsGone) {
  const ClientId high = Add(50, SchedulingClass::kHigh), low = Add(0);
  Grow(low, 100);
  Busy(low);
  residency_.RequestMemory(high, 10 * kPage, now_);
  const auto hold = residency_.Next(Free(), now_);
  ASSERT_TRUE(hold);
  EXPECT_EQ(hold->kind, Kind::kSuspend);
  EXPECT_FALSE(residency_.Next(Free(), now_));  // The client's commands are on the device.
  residency_.Remove(high);
  const auto release = residency_.Next(Free(), now_);
  ASSERT_TRUE(release);
  EXPECT_EQ(release->kind, Kind::kResume);
  EXPECT_EQ(release->client, low);
}

TEST_F(ResidencyTest, SwapInWithoutFreeMemoryIsRepeatedAfterADelay) {
  const ClientId client = Add(0);
  Of(client).movable_bytes = 60 * kPage;
  residency_.OnMemory(client, Of(client), now_);
  Busy(client);
  const auto first = residency_.Next(Free(), now_);
  ASSERT_TRUE(first && first->kind == Kind::kSwapIn);
  residency_.OnSwapped(client, Of(client), now_);
  EXPECT_FALSE(residency_.Next(Free(), now_));
  EXPECT_EQ(residency_.wake_at(), now_ + 1ms);
  now_ += 1ms;
  ASSERT_TRUE(BecomesResident(client));
}

TEST_F(ResidencyTest, SwapWithoutProgressDoesNotExtendResidency) {
  const ClientId client = Add(0), other = Add(0);
  Of(client).movable_bytes = 60 * kPage;
  residency_.OnMemory(client, Of(client), now_);
  Busy(client);
  const auto first = residency_.Next(Free(), now_);
  ASSERT_TRUE(first && first->kind == Kind::kSwapIn);
  now_ += 5s;
  residency_.OnSwapped(client, Of(client), now_);
  ASSERT_TRUE(BecomesResident(client));
  const TimePoint resident_since = now_;
  Of(other).movable_bytes = 60 * kPage;
  residency_.OnMemory(other, Of(other), now_);
  Busy(other);
  ASSERT_TRUE(BecomesResident(other));
  // Swapping in 60 pages took 60 ms. Four times that is 240 ms, half of which counts for this
  // residency period. Then 20 pages are swapped out, and 60 pages are swapped in.
  EXPECT_EQ(now_ - resident_since, 120ms + 80ms);
}

TEST_F(ResidencyTest, WaitsCountFromTheRequestToTheSwapIn) {
  const ClientId high = Add(50, SchedulingClass::kHigh), low = Add(10);
  Grow(low, 90);
  residency_.RequestMemory(high, 40 * kPage, now_);
  Settle();
  Grow(high, 40);
  now_ += 1s;  // Swapped out, and idle.
  EXPECT_EQ(residency_.WaitedFor(low, now_), 0ns);
  Busy(low);
  now_ += 3ms;
  EXPECT_EQ(residency_.WaitedFor(low, now_), 3ms);
  EXPECT_TRUE(residency_.IsStarved(low));
  Of(high) = {};
  residency_.OnMemory(high, Of(high), now_);
  ASSERT_TRUE(BecomesResident(low));
  EXPECT_EQ(residency_.WaitedFor(low, now_), 3ms + 30ms);
  now_ += 1s;
  EXPECT_EQ(residency_.WaitedFor(low, now_), 3ms + 30ms);
}

TEST_F(EvictionNoticeTest, RunningClientMayFreeMemoryDuringTheNotice) {
  residency_.RequestMemory(other_, 20 * kPage, now_);
  EXPECT_FALSE(Settle());
  EXPECT_EQ(residency_.WantedBytes(one_), 20 * kPage);
  EXPECT_EQ(residency_.wake_at(), now_ + 2ms);
  now_ += 1ms;
  Of(one_).movable_bytes -= 20 * kPage;
  Of(one_).resident_bytes -= 20 * kPage;
  residency_.OnMemory(one_, Of(one_), now_);
  EXPECT_EQ(Expect(Kind::kMemoryRequest).client, other_);
  EXPECT_FALSE(Settle());
  EXPECT_EQ(residency_.WantedBytes(one_), 0u);
  EXPECT_EQ(swapped_out_, 0u);
  EXPECT_TRUE(IsResident(one_));
}

TEST_F(EvictionNoticeTest, EvictsClientThatFreesNothingDuringTheNotice) {
  residency_.RequestMemory(other_, 20 * kPage, now_);
  EXPECT_FALSE(Settle());
  now_ += 2ms;
  const auto last = Settle();
  ASSERT_TRUE(last);
  EXPECT_EQ(last->kind, Kind::kMemoryRequest);
  EXPECT_EQ(swapped_out_, 20u);
}

TEST_F(EvictionNoticeTest, RequestWithinAGuaranteeSkipsTheNotice) {
  const ClientId high = Add(50, SchedulingClass::kHigh);
  residency_.RequestMemory(high, 20 * kPage, now_);
  EXPECT_EQ(Expect(Kind::kSuspend).client, one_);
  EXPECT_EQ(residency_.WantedBytes(one_), 0u) << "it could free nothing in time";
}

TEST_F(EvictionNoticeTest, RequestWithinAGuaranteePreemptsOtherSwap) {
  residency_.RequestMemory(other_, 20 * kPage, now_);
  EXPECT_FALSE(residency_.Next(Free(), now_));
  now_ += 2ms;
  EXPECT_EQ(Expect(Kind::kSuspend).client, one_);
  residency_.OnDrained(one_);
  EXPECT_EQ(Expect(Kind::kSwapOut).client, one_);
  EXPECT_FALSE(residency_.Next(Free(), now_));
  const ClientId high = Add(50, SchedulingClass::kHigh);
  residency_.RequestMemory(high, 2 * kPage, now_);
  EXPECT_EQ(Expect(Kind::kPreemptSwap).client, one_);
  EXPECT_FALSE(residency_.Next(Free(), now_)) << "once is enough";
  Of(one_).resident_bytes -= kPage;
  residency_.OnSwapped(one_, Of(one_), now_);
  const auto next = residency_.Next(Free(), now_);
  ASSERT_TRUE(next);
  EXPECT_EQ(next->beneficiary, high);
}

TEST_F(EvictionNoticeTest, SwapForAGuaranteeIsNotPreempted) {
  const ClientId high = Add(30, SchedulingClass::kHigh), third = Add(30, SchedulingClass::kHigh);
  residency_.RequestMemory(third, 20 * kPage, now_);
  EXPECT_EQ(Expect(Kind::kSuspend).client, one_);
  residency_.OnDrained(one_);
  EXPECT_EQ(Expect(Kind::kSwapOut).beneficiary, third);
  residency_.RequestMemory(high, 20 * kPage, now_);
  EXPECT_FALSE(residency_.Next(Free(), now_));
}

TEST_F(EvictionNoticeTest, PreemptedSwapInContinuesAtOnceAfterwards) {
  Of(other_).movable_bytes = 60 * kPage;  // Swapped out before.
  residency_.OnMemory(other_, Of(other_), now_);
  Of(one_) = {};
  residency_.OnMemory(one_, Of(one_), now_);
  EXPECT_EQ(Expect(Kind::kSwapIn).client, other_);
  const ClientId high = Add(50, SchedulingClass::kHigh);
  residency_.RequestMemory(high, 10 * kPage, now_);
  EXPECT_EQ(Expect(Kind::kPreemptSwap).client, other_);
  Of(other_).resident_bytes += kPage;  // The current page is done.
  residency_.OnSwapped(other_, Of(other_), now_);
  EXPECT_EQ(Expect(Kind::kMemoryRequest).client, high);
  EXPECT_EQ(Expect(Kind::kSwapIn).client, other_);
}

// Whenever pages are swapped for another client, the nagging client requests a page of its
// guarantee, and does not use it when the request is granted.
TEST_F(EvictionNoticeTest, ContinuousRequestsDoNotStarveOthers) {
  Of(other_).movable_bytes = 60 * kPage;  // Swapped out before.
  residency_.OnMemory(other_, Of(other_), now_);
  const ClientId nagging = Add(1, SchedulingClass::kHigh);
  int cuts = 0;
  for (int turn = 0; turn < 1000 && !IsResident(other_); ++turn) {
    const auto action = residency_.Next(Free(), now_);
    if (!action) {
      now_ = residency_.wake_at().value_or(now_ + 1ms);
      continue;
    }
    if (action->kind == Kind::kSuspend) residency_.OnDrained(action->client);
    if (action->kind == Kind::kMemoryRequest) residency_.OnMemory(nagging, {}, now_);
    if (action->kind != Kind::kSwapOut && action->kind != Kind::kSwapIn) continue;
    std::uint64_t moved = action->bytes;
    if (action->beneficiary != nagging) {
      residency_.RequestMemory(nagging, kPage, now_);
      EXPECT_EQ(Expect(Kind::kPreemptSwap).client, action->client);
      moved = kPage;  // The current page is done.
      ++cuts;
    }
    now_ += 1ms;
    MemoryUsage& memory = Of(action->client);
    memory.resident_bytes += action->kind == Kind::kSwapIn ? moved : 0 - moved;
    residency_.OnSwapped(action->client, memory, now_);
  }
  EXPECT_TRUE(IsResident(other_));
  EXPECT_GE(cuts, 20);
}

class FailingStoreTest : public EvictionNoticeTest {
 protected:
  // Makes the next swap-out, of one_, fail. Returns its action, which may have any beneficiary.
  MemoryAction FailToSwap() {
    if (const auto at = residency_.wake_at()) now_ = *at;
    EXPECT_EQ(Expect(Kind::kSuspend).client, one_);
    residency_.OnDrained(one_);
    const MemoryAction move = Expect(Kind::kSwapOut);
    residency_.OnSwapFailed(move.client, Of(move.client), now_);
    return move;
  }
};

TEST_F(FailingStoreTest, RejectsTheRequestAndResumesTheVictim) {
  residency_.RequestMemory(other_, 20 * kPage, now_);
  EXPECT_FALSE(Settle());
  EXPECT_FALSE(FailToSwap().is_guaranteed);
  EXPECT_EQ(Expect(Kind::kNoMemory).client, other_);
  EXPECT_EQ(Expect(Kind::kResume).client, one_);
  EXPECT_FALSE(Settle());
  EXPECT_TRUE(IsResident(one_));
  EXPECT_TRUE(IsResident(other_));
}

TEST_F(FailingStoreTest, ImpossibleRequestPreemptsNoSwap) {
  Of(other_).movable_bytes = 60 * kPage;  // Swapped out before.
  residency_.OnMemory(other_, Of(other_), now_);
  EXPECT_FALSE(Settle());
  FailToSwap();
  // The client freed the rest.
  Of(one_) = {.movable_bytes = 40 * kPage, .resident_bytes = 40 * kPage};
  residency_.OnMemory(one_, Of(one_), now_);
  while (const auto action = residency_.Next(Free(), now_)) {
    if (action->kind == Kind::kSwapIn) break;
  }
  const ClientId high = Add(90, SchedulingClass::kHigh);
  residency_.RequestMemory(high, 70 * kPage, now_);
  EXPECT_FALSE(residency_.Next(Free(), now_)) << "the store has just failed";
  now_ += 1s;
  EXPECT_EQ(Expect(Kind::kPreemptSwap).client, other_);
}

TEST_F(FailingStoreTest, RepeatsTheSwapInAfterADelay) {
  Of(other_).movable_bytes = 60 * kPage;  // Swapped out before.
  residency_.OnMemory(other_, Of(other_), now_);
  EXPECT_FALSE(Settle());
  FailToSwap();
  EXPECT_EQ(Expect(Kind::kResume).client, one_);
  EXPECT_FALSE(Settle());
  EXPECT_TRUE(IsResident(one_));
  EXPECT_EQ(residency_.wake_at(), now_ + 1s);
  now_ += 1s;
  Settle();
  now_ = residency_.wake_at().value_or(now_);
  Settle();
  EXPECT_TRUE(IsResident(other_));
}

TEST_F(FailingStoreTest, SwapOutForAGuaranteeIsMarked) {
  const ClientId high = Add(50, SchedulingClass::kHigh);
  residency_.RequestMemory(high, 20 * kPage, now_);
  EXPECT_TRUE(FailToSwap().is_guaranteed);
  // Only the failing client's session ends.
  residency_.Remove(one_);
  EXPECT_FALSE(Settle());
  Of(one_) = {};
  const auto last = Settle();
  ASSERT_TRUE(last);
  EXPECT_EQ(last->kind, Kind::kMemoryRequest);
  EXPECT_EQ(last->client, high);
  EXPECT_TRUE(IsResident(other_));
}

}  // namespace
}  // namespace gpushared::scheduler
