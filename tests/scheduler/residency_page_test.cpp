// SPDX-License-Identifier: Apache-2.0
// Clients whose memory moves by step.
#include <cstdint>

#include <gtest/gtest.h>

#include "tests/scheduler/residency_case.h"

namespace gpushared::scheduler {
namespace {

class ResidencyByStep : public ResidencyTest {
 protected:
  // The other one has what it asked for, and the first one lacks 40 of its 80 steps.
  void Begin() {
    Grow(one_, 80);
    Busy(one_);
    residency_.RequestMemory(other_, 60 * kStep, now_);
    now_ += 1s;
    ASSERT_EQ(Settle()->kind, Kind::kMemoryRequest);
    Grow(other_, 60);
    Busy(other_);
    ASSERT_EQ(Of(one_).absent_bytes(), 40 * kStep);
  }

  const ClientId one_ = Add(0), other_ = Add(0);
};

TEST_F(ResidencyByStep, WhoTouchesLittleComesInWithThatAlone) {
  Begin();
  Needs(one_, 5);
  Settle();
  EXPECT_FALSE(Runs(one_)) << "the other one has its stay";
  now_ += 1s;
  Settle();
  EXPECT_TRUE(Runs(one_));
  EXPECT_EQ(Of(one_).resident_bytes, 45 * kStep);
  EXPECT_EQ(Of(other_).resident_bytes, 55 * kStep);
  EXPECT_EQ(residency_.ResidentBytes(one_), 45 * kStep);
  EXPECT_FALSE(residency_.IsStarved(one_));
}

TEST_F(ResidencyByStep, WhoseStepsAreThereGoesOnAtOnce) {
  Begin();
  Needs(one_, 0);
  Settle();
  EXPECT_TRUE(Runs(one_));
  EXPECT_TRUE(Runs(other_));
  EXPECT_FALSE(residency_.wake_at()) << "nobody lacks anything";
}

TEST_F(ResidencyByStep, DuringItsStayAClientGoesFirstWithWhatFurtherCommandsTouch) {
  Begin();
  Needs(one_, 5);
  now_ += 1s;
  Settle();
  ASSERT_TRUE(Runs(one_));
  Settle();
  ASSERT_FALSE(Runs(other_)) << "it lacks what made room";
  Needs(one_, 3);
  Settle();
  EXPECT_TRUE(Runs(one_));
  EXPECT_EQ(Of(other_).resident_bytes, 52 * kStep);
  // All that came in for it counts for its stay, and then it is the other one's turn.
  EXPECT_EQ(Of(one_).resident_bytes, 48 * kStep);
  const TimePoint since = now_;
  EXPECT_TRUE(Comes(other_));
  EXPECT_GT(now_ - since, 20ms);
  EXPECT_LT(now_ - since, 200ms);
}

TEST_F(ResidencyByStep, WithinItsGuaranteeAClientHasAllOfItsMemory) {
  Begin();
  Needs(one_, 0);
  Settle();
  residency_.Change(one_, {.guaranteed_bytes = 80 * kStep}, now_);
  Settle();
  EXPECT_TRUE(Of(one_).is_whole());
}

// Clients hold more than the device has.
class ByPageTest : public ResidencyTest {
 protected:
  explicit ByPageTest(bool suspends_for_swap_in = false)
      : ResidencyTest({}, suspends_for_swap_in) {}

  // It grows in parts, as a session does.
  void GrowTo(ClientId client, std::uint64_t steps) {
    Busy(client, false);
    while (Of(client).movable_bytes < steps * kStep) {
      residency_.RequestMemory(client, 8 * kStep, now_);
      const auto last = Settle();
      ASSERT_TRUE(last && last->kind == Kind::kMemoryRequest) << Of(client).movable_bytes / kStep;
      Grow(client, 8);
      Settle();
    }
  }
  // Its next commands touch so many steps, and of those so many are there.
  void Works(ClientId client, std::uint64_t steps, std::uint64_t there) {
    MemorySuspended& held = Of(client);
    held.unneeded_bytes = held.absent_bytes() - (steps - there) * kStep;
    held.spare_bytes = held.resident_bytes - there * kStep;
    residency_.SetUnneeded(client, held.unneeded_bytes, held.spare_bytes, now_);
    Busy(client);
  }
};

TEST_F(ByPageTest, AClientGrowsBeyondTheDeviceAndMakesRoomForItself) {
  const ClientId client = Add(0);
  GrowTo(client, 296);
  EXPECT_EQ(Of(client).resident_bytes, kDevice);
  EXPECT_EQ(swapped_out_, 196u);
}

TEST_F(ByPageTest, WhatComesInTakesThePlaceOfWhatItsClientDoesNotTouch) {
  const ClientId client = Add(0);
  GrowTo(client, 296);
  const std::uint64_t before = swapped_out_;
  const std::uint64_t times_out = residency_.GetMoves(client).times_out;
  Works(client, 40, 10);
  EXPECT_FALSE(Runs(client));
  Settle();
  EXPECT_TRUE(Runs(client));
  EXPECT_EQ(swapped_out_ - before, 30u);
  EXPECT_EQ(residency_.GetMoves(client).in_bytes, 30 * kStep);
  EXPECT_EQ(residency_.GetMoves(client).times_out, times_out) << "it lost nothing that it needs";
}

TEST_F(ByPageTest, OthersKeepWhatTheyWorkOnWhileAClientHasRoomOfItsOwn) {
  const ClientId other = Add(0), client = Add(0);
  Grow(other, 40);
  Works(other, 40, 40);
  GrowTo(client, 96);
  now_ += 10s;  // The other one has had its stay.
  Works(client, 30, 0);
  Settle();
  EXPECT_TRUE(Runs(client));
  EXPECT_TRUE(IsThere(other));
}

TEST_F(ByPageTest, OfBusyOnesTheOneGivesThatHasMemoryToSpare) {
  const ClientId first = Add(0), last = Add(0), client = Add(0);
  Grow(first, 48);
  Works(first, 20, 20);
  Grow(last, 48);
  Works(last, 48, 48);
  now_ += 10s;
  residency_.RequestMemory(client, 30 * kStep, now_);
  EXPECT_EQ(Settle()->kind, Kind::kRelease);
  EXPECT_TRUE(IsThere(last));
  EXPECT_EQ(Of(first).resident_bytes, 22 * kStep);
}

TEST_F(ByPageTest, AnIdleOneMakesRoomBeforeWhatABusyOneCanSpare) {
  const ClientId idle = Add(0), client = Add(0);
  Grow(idle, 40);
  GrowTo(client, 56);
  now_ += 10s;
  Works(client, 30, 30);
  residency_.RequestMemory(client, 8 * kStep, now_);
  Settle();
  EXPECT_EQ(Of(client).resident_bytes, 56 * kStep);
  EXPECT_EQ(Of(idle).resident_bytes, 36 * kStep);
}

TEST_F(ByPageTest, WhatTakesThePlaceOfItsOwnMemoryBuysNoLongerStay) {
  const ClientId client = Add(0), other = Add(0);
  GrowTo(client, 296);
  Works(client, 60, 60);
  residency_.RequestMemory(other, 8 * kStep, now_);
  Settle();
  // It goes on and on to further parts.
  const TimePoint latest = now_ + 2s;
  while (room_for_ != other && now_ < latest) {
    Works(client, 60, 20);
    Settle();
    now_ += 1ms;
  }
  EXPECT_EQ(room_for_, other);
}

TEST_F(ByPageTest, ABusyClientGrowsOnceItsCommandsLeaveRoom) {
  const ClientId client = Add(0);
  GrowTo(client, 96);
  Works(client, 96, 96);
  residency_.RequestMemory(client, 8 * kStep, now_);
  EXPECT_FALSE(Settle()) << "all that it has is needed";
  EXPECT_FALSE(residency_.IsHeld(client)) << "and runs on";
  Busy(client, false);
  const auto last = Settle();
  ASSERT_TRUE(last);
  EXPECT_EQ(swapped_out_, 4u);
}

// And come in while nothing of their client runs.
class QuietByStepTest : public ByPageTest {
 protected:
  QuietByStepTest() : ByPageTest(true) {}
};

TEST_F(QuietByStepTest, StepsComeInOnceNothingOfTheirClientRuns) {
  const ClientId client = Add(0);
  Of(client) = {.movable_bytes = 60 * kStep, .resident_bytes = 30 * kStep};
  residency_.OnMemory(client, Of(client), now_);
  Works(client, 36, 30);
  const auto held = residency_.Next(Free(), now_);
  ASSERT_TRUE(held);
  EXPECT_EQ(held->kind, Kind::kHold);
  EXPECT_FALSE(residency_.Next(Free(), now_)) << "its commands still run";
  residency_.OnDrained(client);
  const auto moved = residency_.Next(Free(), now_);
  ASSERT_TRUE(moved);
  EXPECT_EQ(moved->kind, Kind::kSwapIn);
  Of(client).resident_bytes = 36 * kStep;
  Of(client).unneeded_bytes = Of(client).absent_bytes();
  residency_.OnSwapped(client, Of(client), now_);
  EXPECT_EQ(residency_.Next(Free(), now_)->kind, Kind::kRelease);
  EXPECT_TRUE(Runs(client));
  // It came back, and is held again for its next steps, whatever it was before.
  Works(client, 40, 36);
  EXPECT_EQ(residency_.Next(Free(), now_)->kind, Kind::kHold);
  EXPECT_FALSE(residency_.Next(Free(), now_)) << "it was quiet before, and is not now";
}

// Its kernel may wait for what it writes itself from another stream.
TEST_F(QuietByStepTest, OneWhoseCommandsDoNotEndHoldsUpNobodyElse) {
  const ClientId endless = Add(0), other = Add(0);
  for (const ClientId each : {endless, other}) {
    Of(each) = {.movable_bytes = 40 * kStep, .resident_bytes = 20 * kStep};
    residency_.OnMemory(each, Of(each), now_);
    Works(each, 26, 20);
  }
  EXPECT_EQ(residency_.Next(Free(), now_)->client, endless);
  const auto next = residency_.Next(Free(), now_);
  ASSERT_TRUE(next) << "there is room for both";
  EXPECT_EQ(next->kind, Kind::kHold);
  EXPECT_EQ(next->client, other);
  residency_.OnDrained(other);
  EXPECT_EQ(residency_.Next(Free(), now_)->kind, Kind::kSwapIn);
}

TEST_F(ByPageTest, WhatNeverFitsIsRejectedAtOnce) {
  const ClientId guaranteed = Add(50), client = Add(0);
  Grow(guaranteed, 50);
  residency_.RequestMemory(client, 51 * kStep, now_);
  EXPECT_EQ(Settle()->kind, Kind::kNoMemory);
  EXPECT_EQ(residency_.RoomFor(client), 50 * kStep);
  GrowTo(client, 96);
  Works(client, 51, 5);
  EXPECT_TRUE(residency_.IsStarved(client));
  Works(client, 50, 5);
  EXPECT_FALSE(residency_.IsStarved(client));
}

}  // namespace
}  // namespace gpushared::scheduler
