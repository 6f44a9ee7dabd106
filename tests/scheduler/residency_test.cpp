// SPDX-License-Identifier: Apache-2.0
// Who makes room for whom, when a move ends early, and moves that fail.
#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "tests/scheduler/residency_case.h"

namespace gpushared::scheduler {
namespace {

TEST_F(ResidencyTest, NobodyMovesWhereAllHaveRoom) {
  const ClientId one = Add(0), other = Add(0);
  Grow(one, 50);
  Grow(other, 50);
  Busy(one);
  Busy(other);
  EXPECT_FALSE(Settle());
  EXPECT_FALSE(residency_.wake_at());
}

TEST_F(ResidencyTest, RoomWithinAGuaranteeIsMadeAtOnceByWhoeverIsBeyondItsOwn) {
  const ClientId high = Add(50, SchedulingClass::kHigh), low = Add(10);
  Grow(low, 90);
  Busy(low);
  residency_.RequestMemory(high, 40 * kStep, now_);
  const auto last = Settle();
  ASSERT_TRUE(last);
  EXPECT_EQ(last->kind, Kind::kMemoryRequest);
  EXPECT_EQ(last->client, high);
  EXPECT_EQ(swapped_out_, 30u);  // 10 were free.
  EXPECT_TRUE(residency_.IsHeld(low));
}

TEST_F(ResidencyTest, RoomThatWasGrantedIsNobodyElses) {
  const ClientId high = Add(50, SchedulingClass::kHigh), low = Add(10);
  Grow(low, 90);
  Busy(low);
  residency_.RequestMemory(high, 40 * kStep, now_);
  Settle();
  // Freed by the grant; the low client wants it back and is to leave it alone.
  EXPECT_GE(Free(), 40 * kStep);
  EXPECT_FALSE(Settle());
  Grow(high, 40);
  EXPECT_TRUE(residency_.IsWithinGuarantee(high));
  EXPECT_TRUE(residency_.IsStarved(low));
}

TEST_F(ResidencyTest, WhoIsWithinItsGuaranteeNeverMoves) {
  const ClientId settled = Add(50, SchedulingClass::kLow), high = Add(0, SchedulingClass::kHigh);
  Grow(settled, 50);
  Grow(high, 50);
  residency_.RequestMemory(high, 1 * kStep, now_);
  const auto last = Settle();
  ASSERT_TRUE(last);
  EXPECT_EQ(last->kind, Kind::kMemoryRequest);
  EXPECT_EQ(Of(high).resident_bytes, 49 * kStep) << "it makes room for itself";
  EXPECT_TRUE(IsThere(settled));
}

TEST_F(ResidencyTest, WhoComesInStaysForAMultipleOfWhatItsWayTook) {
  const ClientId one = Add(0), other = Add(0);
  Grow(one, 60);
  Busy(one);
  Grow(other, 40);
  Busy(other);
  residency_.RequestMemory(other, 20 * kStep, now_);
  now_ += 20ms;  // The stay of a new client is over.
  Settle();
  Grow(other, 20);
  EXPECT_TRUE(IsThere(other));
  EXPECT_FALSE(IsThere(one));
  const TimePoint came_in = now_;
  ASSERT_TRUE(Comes(one));
  // 20 steps out at 1 ms each bought four times that, half of it now; then 20 out and 20 in again.
  EXPECT_EQ(now_ - came_in, 40ms + 40ms);
}

TEST_F(ResidencyTest, BusyClientsTakeTurnsAndNobodyStarves) {
  const ClientId clients[] = {Add(0), Add(0), Add(0)};
  Grow(clients[0], 60);
  Grow(clients[1], 40);
  for (const ClientId client : clients) Busy(client);
  now_ += 20ms;
  residency_.RequestMemory(clients[1], 20 * kStep, now_);
  Settle();
  Grow(clients[1], 20);
  Of(clients[2]).movable_bytes = 60 * kStep;  // It was moved out before.
  residency_.OnMemory(clients[2], Of(clients[2]), now_);
  std::array<int, 3> turns{};
  for (int round = 0; round < 30; ++round) {
    // The first one was the first to make room, and the third came last.
    const int next = (3 - round % 3) % 3;
    ASSERT_TRUE(Comes(clients[next])) << round;
    ++turns.at(static_cast<std::size_t>(next));
  }
  EXPECT_EQ(turns, (std::array{10, 10, 10}));
  // Who came in last goes out first: 40 steps a turn. Taking from the oldest would move 60.
  EXPECT_LE(swapped_out_, 30u * 41);
}

// Each comes in by short and long ways in turn, since it is moved out in part and as a whole.
TEST_F(ResidencyTest, EqualsThatTakeTurnsRunForEquallyLong) {
  const std::array clients = {Add(0), Add(0), Add(0)};
  for (const ClientId client : clients) Begin(client, 57);
  const std::array<Duration, 3> ran = RunTurns(clients, 600s);
  const auto [least, most] = std::ranges::minmax(ran);
  EXPECT_GT(least, 600s / 4);  // A third, without the moves.
  EXPECT_LT(most - least, most / 50);
}

// Half of a way is paid with the next stay. A client that has a way of nothing between two others
// would have one and a half times as much.
TEST_F(ResidencyTest, AWayOfNothingBuysNoLongerStay) {
  const ClientId one = Add(0), other = Add(0);
  for (const ClientId client : {one, other}) Begin(client, 60);
  for (int turn = 0; turn < 4; ++turn) ASSERT_TRUE(Comes(turn % 2 == 0 ? other : one));
  Of(other) = {};
  residency_.OnMemory(other, Of(other), now_);
  Begin(other, 60);
  ASSERT_TRUE(Comes(other));
  const TimePoint came_in = now_;
  ASSERT_TRUE(Comes(one));
  EXPECT_EQ(now_ - came_in, 80ms + 40ms);
}

// Half of a long way is paid with the next stay.
TEST_F(ResidencyTest, EachStayOfEqualsIsAsLong) {
  const std::array clients = {Add(0), Add(0), Add(0)};
  for (const ClientId client : clients) Begin(client, 57);
  for (int turn = 0; turn < 6; ++turn) ASSERT_TRUE(Comes(clients.at((turn + 1) % 3))) << turn;
  std::vector<std::uint64_t> ways;
  for (int turn = 6; turn < 18; ++turn) {
    const TimePoint came_in = now_;
    const std::uint64_t moved_before = swapped_out_;
    ASSERT_TRUE(Comes(clients.at((turn + 1) % 3))) << turn;
    ways.push_back(swapped_out_ - moved_before);
    // As many steps come in as go out. Of the whole time, these are the moves.
    const Duration way = 2ms * static_cast<int>(ways.back());
    EXPECT_EQ(now_ - came_in - way, 4 * 71ms) << turn;
  }
  EXPECT_GT(std::ranges::max(ways), 3 * std::ranges::min(ways));
}

// The machine is slow whenever one of them comes in.
TEST_F(ResidencyTest, EqualsRunForEquallyLongWhateverTheirOwnMovesTook) {
  const std::array clients = {Add(0), Add(0), Add(0)};
  for (const ClientId client : clients) Begin(client, 57);
  slowed_ = clients[1];
  const std::array<Duration, 3> ran = RunTurns(clients, 600s);
  const auto [least, most] = std::ranges::minmax(ran);
  EXPECT_GT(least, 600s / 5);
  EXPECT_LT(most - least, most / 20);
}

// A client whose way is held up once would have the device for seconds, and the others nothing.
TEST_F(ResidencyTest, AMoveThatTheMachineHeldUpBuysNoLongStay) {
  const ClientId one = Add(0), other = Add(0);
  for (const ClientId client : {one, other}) Begin(client, 60);
  // Each moves 20 steps out and as many in: 40 ms, for a stay of 160 ms.
  for (int turn = 0; turn < 4; ++turn) ASSERT_TRUE(Comes(turn % 2 == 0 ? other : one));
  delay_ = 5s;
  ASSERT_TRUE(Comes(other));
  const TimePoint came_in = now_;
  ASSERT_TRUE(Comes(one));
  EXPECT_EQ(now_ - came_in, 160ms + 40ms);
}

TEST_F(ResidencyTest, ShortWaysThatTakeLongLengthenNoStayOfOthers) {
  // Two steps each, in turn, where there is room for four.
  const ClientId high = Add(97, SchedulingClass::kHigh);
  Grow(high, 97);
  const std::array small = {Add(0), Add(0)};
  for (const ClientId client : small) {
    Of(client) = {.movable_bytes = 2 * kStep, .resident_bytes = 0};
    residency_.OnMemory(client, Of(client), now_);
  }
  for (int turn = 0; turn < 20; ++turn) {
    slowed_ = small.at(turn % 2);
    Busy(slowed_);
    ASSERT_TRUE(Comes(slowed_)) << turn;
    Busy(slowed_, false);
    now_ += 10ms;
  }
  Of(high) = {};
  residency_.OnMemory(high, Of(high), now_);

  const ClientId one = Add(0), other = Add(0);
  for (const ClientId client : {one, other}) Begin(client, 60);
  for (int turn = 0; turn < 4; ++turn) ASSERT_TRUE(Comes(turn % 2 == 0 ? other : one));
  ASSERT_TRUE(Comes(other));
  const TimePoint came_in = now_;
  ASSERT_TRUE(Comes(one));
  EXPECT_EQ(now_ - came_in, 160ms + 40ms);
}

TEST_F(ResidencyTest, AnIdleClientMakesRoomBeforeItsStayIsOver) {
  const ClientId one = Add(0), other = Add(0);
  Grow(one, 60);
  Busy(one);
  now_ += 20ms;
  Grow(other, 40);
  Busy(other);
  residency_.RequestMemory(other, 20 * kStep, now_);
  Settle();
  Grow(other, 20);
  const TimePoint came_in = now_;
  Busy(other, false);
  ASSERT_TRUE(Comes(one));
  // Its way in took 20 ms: for so long it may be idle and keep its place.
  EXPECT_EQ(now_ - came_in, 20ms + 40ms);
}

TEST_F(ResidencyTest, ABusyHigherClassKeepsItsMemoryAndAnIdleOneDoesNot) {
  const ClientId normal = Add(0, SchedulingClass::kNormal), low = Add(0);
  Grow(normal, 60);
  Grow(low, 40);
  Busy(normal);
  Busy(low);
  residency_.RequestMemory(low, 20 * kStep, now_);
  now_ += 1h;
  EXPECT_FALSE(Settle());
  Busy(normal, false);
  Settle();
  now_ = residency_.wake_at().value();
  const auto last = Settle();
  ASSERT_TRUE(last);
  EXPECT_EQ(last->kind, Kind::kMemoryRequest);
}

TEST_F(ResidencyTest, TheLowestClassMakesRoomFirstAndIdleClientsBeforeBusyOnes) {
  const ClientId high = Add(50, SchedulingClass::kHigh), normal = Add(0, SchedulingClass::kNormal),
                 busy = Add(0), idle = Add(0);
  Grow(normal, 30);
  Grow(idle, 20);
  Grow(busy, 50);
  Busy(normal);
  Busy(busy);
  now_ += 1s;
  residency_.RequestMemory(high, 20 * kStep, now_);
  Settle();
  EXPECT_EQ(Of(idle).resident_bytes, 0u);
  EXPECT_TRUE(IsThere(busy));
  Grow(high, 20);
  residency_.RequestMemory(high, 20 * kStep, now_);
  Settle();
  EXPECT_EQ(Of(busy).resident_bytes, 30 * kStep);
  EXPECT_TRUE(IsThere(normal));
}

TEST_F(ResidencyTest, AHeldClientThatNobodyNeedsAnyMoreGoesOn) {
  const ClientId high = Add(50, SchedulingClass::kHigh), low = Add(0);
  Grow(low, 100);
  Busy(low);
  residency_.RequestMemory(high, 10 * kStep, now_);
  const auto hold = residency_.Next(Free(), now_);
  ASSERT_TRUE(hold);
  EXPECT_EQ(hold->kind, Kind::kHold);
  EXPECT_FALSE(residency_.Next(Free(), now_));  // Its commands are on the device.
  residency_.Remove(high);
  const auto release = residency_.Next(Free(), now_);
  ASSERT_TRUE(release);
  EXPECT_EQ(release->kind, Kind::kRelease);
  EXPECT_EQ(release->client, low);
}

TEST_F(ResidencyTest, AMoveInThatFindsNoRoomIsNotTriedAgainAtOnce) {
  const ClientId client = Add(0);
  Of(client).movable_bytes = 60 * kStep;
  residency_.OnMemory(client, Of(client), now_);
  Busy(client);
  const auto first = residency_.Next(Free(), now_);
  ASSERT_TRUE(first && first->kind == Kind::kSwapIn);
  residency_.OnSwapped(client, Of(client), now_);
  EXPECT_FALSE(residency_.Next(Free(), now_));
  EXPECT_EQ(residency_.wake_at(), now_ + 1ms);
  now_ += 1ms;
  ASSERT_TRUE(Comes(client));
}

TEST_F(ResidencyTest, AMoveThatMovedNothingBuysNoStay) {
  const ClientId client = Add(0), other = Add(0);
  Of(client).movable_bytes = 60 * kStep;
  residency_.OnMemory(client, Of(client), now_);
  Busy(client);
  const auto first = residency_.Next(Free(), now_);
  ASSERT_TRUE(first && first->kind == Kind::kSwapIn);
  now_ += 5s;
  residency_.OnSwapped(client, Of(client), now_);
  ASSERT_TRUE(Comes(client));
  const TimePoint came_in = now_;
  Of(other).movable_bytes = 60 * kStep;
  residency_.OnMemory(other, Of(other), now_);
  Busy(other);
  ASSERT_TRUE(Comes(other));
  // 60 steps came in at 1 ms each for 240 ms, half of it now. Then 20 go out, and 60 come in.
  EXPECT_EQ(now_ - came_in, 120ms + 80ms);
}

TEST_F(ResidencyTest, WaitsCountFromTheWishToTheReturn) {
  const ClientId high = Add(50, SchedulingClass::kHigh), low = Add(10);
  Grow(low, 90);
  residency_.RequestMemory(high, 40 * kStep, now_);
  Settle();
  Grow(high, 40);
  now_ += 1s;  // Out, and idle.
  EXPECT_EQ(residency_.WaitedFor(low, now_), 0ns);
  Busy(low);
  now_ += 3ms;
  EXPECT_EQ(residency_.WaitedFor(low, now_), 3ms);
  EXPECT_TRUE(residency_.IsStarved(low));
  Of(high) = {};
  residency_.OnMemory(high, Of(high), now_);
  ASSERT_TRUE(Comes(low));
  EXPECT_EQ(residency_.WaitedFor(low, now_), 3ms + 30ms);
  now_ += 1s;
  EXPECT_EQ(residency_.WaitedFor(low, now_), 3ms + 30ms);
}

TEST_F(MemoryNotice, WhoRunsIsToldAndMayFreeWhatItDoesNotNeed) {
  residency_.RequestMemory(other_, 20 * kStep, now_);
  EXPECT_FALSE(Settle());
  EXPECT_EQ(residency_.WantedBytes(one_), 20 * kStep);
  EXPECT_EQ(residency_.wake_at(), now_ + 2ms);
  now_ += 1ms;
  Of(one_).movable_bytes -= 20 * kStep;
  Of(one_).resident_bytes -= 20 * kStep;
  residency_.OnMemory(one_, Of(one_), now_);
  EXPECT_EQ(Expect(Kind::kMemoryRequest).client, other_);
  EXPECT_FALSE(Settle());
  EXPECT_EQ(residency_.WantedBytes(one_), 0u);
  EXPECT_EQ(swapped_out_, 0u);
  EXPECT_TRUE(IsThere(one_));
}

TEST_F(MemoryNotice, WhoDoesNothingIsMovedWhenTheNoticeIsOver) {
  residency_.RequestMemory(other_, 20 * kStep, now_);
  EXPECT_FALSE(Settle());
  now_ += 2ms;
  const auto last = Settle();
  ASSERT_TRUE(last);
  EXPECT_EQ(last->kind, Kind::kMemoryRequest);
  EXPECT_EQ(swapped_out_, 20u);
}

TEST_F(MemoryNotice, AGuaranteeWaitsForNoNotice) {
  const ClientId high = Add(50, SchedulingClass::kHigh);
  residency_.RequestMemory(high, 20 * kStep, now_);
  EXPECT_EQ(Expect(Kind::kHold).client, one_);
  EXPECT_EQ(residency_.WantedBytes(one_), 0u) << "it could free nothing in time";
}

TEST_F(MemoryNotice, AMoveForOneWithoutARightEndsForOneWithARight) {
  residency_.RequestMemory(other_, 20 * kStep, now_);
  EXPECT_FALSE(residency_.Next(Free(), now_));
  now_ += 2ms;
  EXPECT_EQ(Expect(Kind::kHold).client, one_);
  residency_.OnDrained(one_);
  EXPECT_EQ(Expect(Kind::kSwapOut).client, one_);
  EXPECT_FALSE(residency_.Next(Free(), now_));
  const ClientId high = Add(50, SchedulingClass::kHigh);
  residency_.RequestMemory(high, 2 * kStep, now_);
  EXPECT_EQ(Expect(Kind::kCut).client, one_);
  EXPECT_FALSE(residency_.Next(Free(), now_)) << "once is enough";
  Of(one_).resident_bytes -= kStep;
  residency_.OnSwapped(one_, Of(one_), now_);
  const auto next = residency_.Next(Free(), now_);
  ASSERT_TRUE(next);
  EXPECT_EQ(next->beneficiary, high);
}

TEST_F(MemoryNotice, AMoveForAGuaranteeIsNotCutForAnotherOne) {
  const ClientId high = Add(30, SchedulingClass::kHigh), third = Add(30, SchedulingClass::kHigh);
  residency_.RequestMemory(third, 20 * kStep, now_);
  EXPECT_EQ(Expect(Kind::kHold).client, one_);
  residency_.OnDrained(one_);
  EXPECT_EQ(Expect(Kind::kSwapOut).beneficiary, third);
  residency_.RequestMemory(high, 20 * kStep, now_);
  EXPECT_FALSE(residency_.Next(Free(), now_));
}

TEST_F(MemoryNotice, AMoveInThatWasCutGoesOnAtOnceAfterwards) {
  Of(other_).movable_bytes = 60 * kStep;  // It was moved out before.
  residency_.OnMemory(other_, Of(other_), now_);
  Of(one_) = {};
  residency_.OnMemory(one_, Of(one_), now_);
  EXPECT_EQ(Expect(Kind::kSwapIn).client, other_);
  const ClientId high = Add(50, SchedulingClass::kHigh);
  residency_.RequestMemory(high, 10 * kStep, now_);
  EXPECT_EQ(Expect(Kind::kCut).client, other_);
  Of(other_).resident_bytes += kStep;  // The present step is made.
  residency_.OnSwapped(other_, Of(other_), now_);
  EXPECT_EQ(Expect(Kind::kMemoryRequest).client, high);
  EXPECT_EQ(Expect(Kind::kSwapIn).client, other_);
}

// It takes a step of its guarantee and gives it back, and asks whenever others move.
TEST_F(MemoryNotice, WhoAsksForRoomAllTheTimeKeepsNobodyOut) {
  Of(other_).movable_bytes = 60 * kStep;  // It was moved out before.
  residency_.OnMemory(other_, Of(other_), now_);
  const ClientId nagging = Add(1, SchedulingClass::kHigh);
  int cuts = 0;
  for (int turn = 0; turn < 1000 && !IsThere(other_); ++turn) {
    const auto action = residency_.Next(Free(), now_);
    if (!action) {
      now_ = residency_.wake_at().value_or(now_ + 1ms);
      continue;
    }
    if (action->kind == Kind::kHold) residency_.OnDrained(action->client);
    if (action->kind == Kind::kMemoryRequest) residency_.OnMemory(nagging, {}, now_);
    if (action->kind != Kind::kSwapOut && action->kind != Kind::kSwapIn) continue;
    std::uint64_t moved = action->bytes;
    if (action->beneficiary != nagging) {
      residency_.RequestMemory(nagging, kStep, now_);
      EXPECT_EQ(Expect(Kind::kCut).client, action->client);
      moved = kStep;  // The present step is made.
      ++cuts;
    }
    now_ += 1ms;
    MemorySuspended& held = Of(action->client);
    held.resident_bytes += action->kind == Kind::kSwapIn ? moved : 0 - moved;
    residency_.OnSwapped(action->client, held, now_);
  }
  EXPECT_TRUE(IsThere(other_));
  EXPECT_GE(cuts, 20);
}

class FailingStore : public MemoryNotice {
 protected:
  // The first move out of one_, on whosever behalf.
  MemoryAction FailToSwap() {
    if (const auto at = residency_.wake_at()) now_ = *at;
    EXPECT_EQ(Expect(Kind::kHold).client, one_);
    residency_.OnDrained(one_);
    const MemoryAction move = Expect(Kind::kSwapOut);
    residency_.OnSwapFailed(move.client, Of(move.client), now_);
    return move;
  }
};

TEST_F(FailingStore, WhoAskedIsRejectedAndWhoIsThereGoesOn) {
  residency_.RequestMemory(other_, 20 * kStep, now_);
  EXPECT_FALSE(Settle());
  EXPECT_FALSE(FailToSwap().is_guaranteed);
  EXPECT_EQ(Expect(Kind::kNoMemory).client, other_);
  EXPECT_EQ(Expect(Kind::kRelease).client, one_);
  EXPECT_FALSE(Settle());
  EXPECT_TRUE(IsThere(one_));
  EXPECT_TRUE(IsThere(other_));
}

TEST_F(FailingStore, NoMoveIsCutForOneForWhomNobodyCanMakeRoom) {
  Of(other_).movable_bytes = 60 * kStep;  // It was moved out before.
  residency_.OnMemory(other_, Of(other_), now_);
  EXPECT_FALSE(Settle());
  FailToSwap();
  Of(one_) = {.movable_bytes = 40 * kStep, .resident_bytes = 40 * kStep};  // It gave the rest back.
  residency_.OnMemory(one_, Of(one_), now_);
  while (const auto action = residency_.Next(Free(), now_)) {
    if (action->kind == Kind::kSwapIn) break;
  }
  const ClientId high = Add(90, SchedulingClass::kHigh);
  residency_.RequestMemory(high, 70 * kStep, now_);
  EXPECT_FALSE(residency_.Next(Free(), now_)) << "the store has just failed";
  now_ += 1s;
  EXPECT_EQ(Expect(Kind::kCut).client, other_);
}

TEST_F(FailingStore, WhoWaitsToComeInTriesAgainAfterAWhile) {
  Of(other_).movable_bytes = 60 * kStep;  // It was moved out before.
  residency_.OnMemory(other_, Of(other_), now_);
  EXPECT_FALSE(Settle());
  FailToSwap();
  EXPECT_EQ(Expect(Kind::kRelease).client, one_);
  EXPECT_FALSE(Settle());
  EXPECT_TRUE(IsThere(one_));
  EXPECT_EQ(residency_.wake_at(), now_ + 1s);
  now_ += 1s;
  Settle();
  now_ = residency_.wake_at().value_or(now_);
  Settle();
  EXPECT_TRUE(IsThere(other_));
}

TEST_F(FailingStore, AMoveForAGuaranteeSaysSo) {
  const ClientId high = Add(50, SchedulingClass::kHigh);
  residency_.RequestMemory(high, 20 * kStep, now_);
  EXPECT_TRUE(FailToSwap().is_guaranteed);
  // Its session ends for it, and nobody else's.
  residency_.Remove(one_);
  EXPECT_FALSE(Settle());
  Of(one_) = {};
  const auto last = Settle();
  ASSERT_TRUE(last);
  EXPECT_EQ(last->kind, Kind::kMemoryRequest);
  EXPECT_EQ(last->client, high);
  EXPECT_TRUE(IsThere(other_));
}

}  // namespace
}  // namespace gpushared::scheduler
