// SPDX-License-Identifier: Apache-2.0
// Residency promises room that is somebody's right.
#include <cstdint>
#include <optional>

#include <gtest/gtest.h>

#include "tests/scheduler/residency_case.h"

namespace gpushared::scheduler {
namespace {

// Each client that runs is to stop once. After one move the others go out before it.
TEST_F(MemoryNotice, StopsOfAllThatMakeRoomArePromised) {
  stop_ = 3ms;
  residency_.AskRoom(Add(80, SchedulingClass::kHigh), 8 * kStep, now_);
  Settle();  // A first stop, so that it is known.
  residency_.Remove(room_for_);
  const auto wait = [&](std::uint64_t steps) {
    EXPECT_TRUE(Comes(one_) && Comes(other_));
    const ClientId high = Add(steps, SchedulingClass::kHigh);
    const std::optional<Duration> promised = PromisedTo(high);
    residency_.AskRoom(high, steps * kStep, now_);
    Settle();
    const Room room = residency_.LastRoomOf(high);
    EXPECT_EQ(room.promised, promised) << steps;
    EXPECT_EQ(room.waited, promised) << steps;
    residency_.Remove(high);
    return room.waited;
  };
  EXPECT_EQ(wait(8), Duration(8ms + 3ms));
  EXPECT_EQ(wait(20), Duration(20ms + 2 * 3ms));
  EXPECT_EQ(wait(70), Duration(70ms + 2 * 3ms));
}

TEST_F(MemoryNotice, WhoHadNothingToStopSaysNothingOfStops) {
  const ClientId high = Add(80, SchedulingClass::kHigh);
  for (int visit = 0; visit < 70; ++visit) {
    stop_ = visit == 0 ? Duration(3ms) : Duration::zero();
    residency_.AskRoom(high, 8 * kStep, now_);
    Settle();
    residency_.OnMemory(high, {}, now_);
    EXPECT_TRUE(Comes(one_) && Comes(other_));
  }
  EXPECT_EQ(residency_.rooms().stop, 3ms);
}

// The last two are equals: neither goes out before the other.
TEST_F(MemoryNotice, ThoseThatCameAtOneTimeStopEachForThemselves) {
  Of(one_).movable_bytes -= 30 * kStep;
  Of(one_).resident_bytes -= 30 * kStep;
  residency_.OnMemory(one_, Of(one_), now_);
  const ClientId third = Add(0);
  Grow(third, 30);
  Busy(third);
  const ClientId high = Add(80, SchedulingClass::kHigh);
  residency_.AskRoom(high, 10 * kStep, now_);
  const ClientId stops = Expect(Kind::kHold).client;
  now_ += 3ms;
  residency_.OnDrained(stops, now_);
  Settle();
  residency_.Remove(high);
  ASSERT_TRUE(Comes(stops));
  EXPECT_EQ(PromisedTo(Add(100)), Duration(100ms + 3 * 3ms));
}

// High clients ask for room that they have a right to. A step takes 1 ms.
class OwedRoomTest : public ResidencyTest {
 protected:
  OwedRoomTest() {
    Grow(low_, 100);
    Busy(low_);
  }
  // The client that has the room.
  ClientId HaveRoom(std::uint64_t steps) {
    const ClientId high = Add(40, SchedulingClass::kHigh);
    residency_.AskRoom(high, steps * kStep, now_);
    Settle();
    EXPECT_EQ(room_for_, high);
    Grow(high, steps);
    return high;
  }

  const ClientId low_ = Add(0);
};

TEST_F(OwedRoomTest, NothingIsPromisedBeforeTheSpeedIsKnown) {
  HaveRoom(8);
  EXPECT_EQ(residency_.rooms().rooms, 0u);
  // 2 MiB in 1 ms.
  EXPECT_EQ(residency_.rooms().out_bytes_per_s, 1000 * kStep);
  EXPECT_EQ(residency_.rooms().in_bytes_per_s, 0u);
}

TEST_F(OwedRoomTest, ItTakesAsLongAsItsBytes) {
  HaveRoom(8);
  HaveRoom(20);
  const RoomReport report = residency_.rooms();
  EXPECT_EQ(report.rooms, 1u);
  EXPECT_EQ(report.late, 0u);
  EXPECT_EQ(report.longest, 20ms);
  EXPECT_EQ(report.longest_promised, 20ms);
}

TEST_F(OwedRoomTest, AMoveThatIsHeldUpMakesItLate) {
  HaveRoom(8);
  delay_ = 5ms;
  HaveRoom(20);
  HaveRoom(4);
  const RoomReport report = residency_.rooms();
  EXPECT_EQ(report.rooms, 2u);
  EXPECT_EQ(report.late, 1u);
  EXPECT_EQ(report.longest, 25ms);
  EXPECT_EQ(report.longest_promised, 20ms);
}

// The longest of those before: what a stop takes is not known before it is over.
TEST_F(OwedRoomTest, TheLongestStopIsPartOfThePromise) {
  const ClientId first = HaveRoom(8);
  Of(first) = {};
  residency_.Remove(first);
  const auto ask = [&](std::uint64_t steps, scheduler::Duration stop) {
    ASSERT_TRUE(Comes(low_));
    const ClientId high = Add(40, SchedulingClass::kHigh);
    residency_.AskRoom(high, steps * kStep, now_);
    ASSERT_EQ(residency_.Next(Free(), now_).value().kind, Kind::kHold);
    EXPECT_FALSE(residency_.Next(Free(), now_));
    now_ += stop;
    residency_.OnDrained(low_, now_);
    Settle();
    residency_.Remove(high);
  };
  ask(10, 3ms);
  EXPECT_EQ(residency_.rooms().late, 1u) << "nobody had taken so long";
  EXPECT_EQ(residency_.rooms().stop, 3ms);
  ask(12, 2ms);
  const RoomReport report = residency_.rooms();
  EXPECT_EQ(report.rooms, 2u);
  EXPECT_EQ(report.late, 1u);
  EXPECT_EQ(report.longest, 14ms);
  EXPECT_EQ(report.longest_promised, 15ms);
}

TEST_F(OwedRoomTest, WhatAGuaranteeLeavesIsPromisedBeforeItIsAsked) {
  const ClientId first = HaveRoom(8);
  EXPECT_EQ(PromisedTo(first), Duration(32ms));
  EXPECT_EQ(residency_.LastRoomOf(first).bytes, 0u) << "nothing was known";
  const ClientId second = HaveRoom(20);
  const Room room = residency_.LastRoomOf(second);
  EXPECT_EQ(room.bytes, 20 * kStep);
  EXPECT_EQ(room.waited, 20ms);
  EXPECT_EQ(room.promised, 20ms);
  EXPECT_EQ(room.ended, now_);
  EXPECT_EQ(PromisedTo(low_), std::nullopt);
}

TEST_F(OwedRoomTest, OneSlowMoveOfManyIsPartOfThePromiseOnce) {
  const ClientId high{7};
  for (int visit = 0; visit < 50; ++visit) {
    residency_.Add(high,
                   {.guaranteed_bytes = 40 * kStep, .scheduling_class = SchedulingClass::kHigh});
    residency_.AskRoom(high, 2 * kStep, now_);
    if (visit == 45) delay_ = 5ms;
    Settle();
    ASSERT_EQ(PromisedTo(high).value(), visit < 45 ? 38ms : 58ms) << visit;
    residency_.Remove(high);
    ASSERT_TRUE(Comes(low_));
  }
  EXPECT_EQ(residency_.rooms().late, 1u);
  EXPECT_EQ(residency_.rooms().out_bytes_per_s, 1000 * kStep);
  // 4 MiB took 7 ms and not 2. As slow, the largest move would take 28 ms and not 8.
  EXPECT_EQ(residency_.rooms().delay, 20ms);
}

// More moves than count for the speed are over long before as many rooms are.
TEST_F(OwedRoomTest, AWaitThatWasTooLongIsPartOfThePromiseFor127More) {
  const ClientId high{7};
  for (int visit = 0; visit < 180; ++visit) {
    residency_.Add(high,
                   {.guaranteed_bytes = 40 * kStep, .scheduling_class = SchedulingClass::kHigh});
    residency_.AskRoom(high, 2 * kStep, now_);
    if (visit == 45) delay_ = 5ms;
    Settle();
    // One move of 63 decides while it counts: the largest one would be late by 20 ms.
    const auto delay = visit < 45 ? 0ms : visit < 45 + 63 ? 20ms : visit < 45 + 127 ? 5ms : 0ms;
    ASSERT_EQ(PromisedTo(high).value(), 38ms + delay) << visit;
    ASSERT_EQ(residency_.rooms().delay, delay) << visit;
    residency_.Remove(high);
    ASSERT_TRUE(Comes(low_));
  }
  EXPECT_EQ(residency_.rooms().late, 1u);
}

// One waits for the other, which was promised to neither.
TEST_F(OwedRoomTest, TwoThatWaitForEachOtherMakeNoPromiseLonger) {
  const ClientId first = HaveRoom(8);
  const ClientId second = Add(40, SchedulingClass::kHigh), third = Add(40, SchedulingClass::kHigh);
  residency_.AskRoom(second, 10 * kStep, now_);
  residency_.AskRoom(third, 10 * kStep, now_);
  Settle();
  Settle();
  const RoomReport report = residency_.rooms();
  EXPECT_EQ(report.rooms, 2u);
  EXPECT_EQ(report.longest, 20ms) << "one of them waited for both";
  EXPECT_EQ(report.delay, 0ms);
  EXPECT_EQ(PromisedTo(first), Duration(32ms));
}

// The store failed, and it was tried again after a second.
TEST_F(OwedRoomTest, AMoveThatFailedMakesNoPromiseLonger) {
  HaveRoom(8);
  const ClientId high = Add(40, SchedulingClass::kHigh);
  residency_.AskRoom(high, 10 * kStep, now_);
  const auto move = residency_.Next(Free(), now_);
  ASSERT_TRUE(move && move->kind == Kind::kMoveOut);
  residency_.OnMoveFailed(low_, Of(low_), now_);
  EXPECT_FALSE(Settle());
  now_ = residency_.wake_at().value();
  Settle();
  EXPECT_EQ(room_for_, high);
  EXPECT_EQ(residency_.rooms().longest, 1s + 10ms);
  EXPECT_EQ(residency_.rooms().delay, 0ms);
}

// They wait for others, and an urgent one does not.
TEST_F(OwedRoomTest, MovesForThoseWithoutARightMakeNoPromiseLonger) {
  const ClientId high = HaveRoom(8);
  delay_ = 100ms;
  const ClientId other = Add(0);
  residency_.AskRoom(other, 20 * kStep, now_);
  now_ += 1s;
  Settle();
  EXPECT_EQ(room_for_, other);
  EXPECT_EQ(PromisedTo(high), Duration(32ms));
}

TEST_F(OwedRoomTest, WhatIsFreeTakesNoTime) {
  const ClientId first = HaveRoom(8);
  const std::optional<Duration> full = PromisedTo(first);
  EXPECT_GT(full, Duration::zero());
  EXPECT_EQ(residency_.PromisedTo(first, Free() + 8 * kStep, now_), *full - 8ms);
  EXPECT_EQ(residency_.PromisedTo(first, 100 * kStep, now_), Duration::zero());
}

TEST_F(OwedRoomTest, RoomBeyondAGuaranteeIsPromisedNothing) {
  HaveRoom(8);
  const ClientId other = Add(0);
  residency_.AskRoom(other, 20 * kStep, now_);
  now_ += 1s;
  Settle();
  EXPECT_EQ(room_for_, other);
  EXPECT_EQ(residency_.rooms().rooms, 0u);
}

}  // namespace
}  // namespace gpushared::scheduler
