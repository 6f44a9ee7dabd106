// SPDX-License-Identifier: Apache-2.0
// Clients whose memory is swapped page by page.
#include <cstdint>

#include <gtest/gtest.h>

#include "tests/scheduler/residency_case.h"

namespace gpushared::scheduler {
namespace {

class PagedResidencyTest : public ResidencyTest {
 protected:
  // The other client's request is granted, and the first one lacks 40 of its 80 pages.
  void Begin() {
    Grow(one_, 80);
    Busy(one_);
    residency_.RequestMemory(other_, 60 * kPage, now_);
    now_ += 1s;
    ASSERT_EQ(Settle()->kind, Kind::kMemoryRequest);
    Grow(other_, 60);
    Busy(other_);
    ASSERT_EQ(Of(one_).absent_bytes(), 40 * kPage);
  }

  const ClientId one_ = Add(0), other_ = Add(0);
};

TEST_F(PagedResidencyTest, SwapsInOnlyTheAccessSet) {
  Begin();
  Needs(one_, 5);
  Settle();
  EXPECT_FALSE(Runs(one_)) << "the other one is in its residency period";
  now_ += 1s;
  Settle();
  EXPECT_TRUE(Runs(one_));
  EXPECT_EQ(Of(one_).resident_bytes, 45 * kPage);
  EXPECT_EQ(Of(other_).resident_bytes, 55 * kPage);
  EXPECT_EQ(residency_.ResidentBytes(one_), 45 * kPage);
  EXPECT_FALSE(residency_.IsStarved(one_));
}

TEST_F(PagedResidencyTest, ResumesAtOnceWhenItsAccessSetIsResident) {
  Begin();
  Needs(one_, 0);
  Settle();
  EXPECT_TRUE(Runs(one_));
  EXPECT_TRUE(Runs(other_));
  EXPECT_FALSE(residency_.wake_at()) << "nobody lacks anything";
}

TEST_F(PagedResidencyTest, ServesFurtherPagesFirstDuringTheResidencyPeriod) {
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
  EXPECT_EQ(Of(other_).resident_bytes, 52 * kPage);
  // Both swap-ins count for the client's residency period. Then the other client's turn begins.
  EXPECT_EQ(Of(one_).resident_bytes, 48 * kPage);
  const TimePoint since = now_;
  EXPECT_TRUE(BecomesResident(other_));
  EXPECT_GT(now_ - since, 20ms);
  EXPECT_LT(now_ - since, 200ms);
}

TEST_F(PagedResidencyTest, SwapsInAllMemoryWithinTheGuarantee) {
  Begin();
  Needs(one_, 0);
  Settle();
  residency_.Change(one_, {.guaranteed_bytes = 80 * kPage}, now_);
  Settle();
  EXPECT_TRUE(Of(one_).is_whole());
}

// Clients together hold more memory than the device has.
class OversubscribedPagesTest : public ResidencyTest {
 protected:
  explicit OversubscribedPagesTest(bool suspends_for_swap_in = false)
      : ResidencyTest({}, suspends_for_swap_in) {}

  // Allocates in parts, as a session does.
  void GrowTo(ClientId client, std::uint64_t pages) {
    Busy(client, false);
    while (Of(client).movable_bytes < pages * kPage) {
      residency_.RequestMemory(client, 8 * kPage, now_);
      const auto last = Settle();
      ASSERT_TRUE(last && last->kind == Kind::kMemoryRequest) << Of(client).movable_bytes / kPage;
      Grow(client, 8);
      Settle();
    }
  }
  // The client's next commands touch `pages` pages, of which `resident` are resident.
  void Works(ClientId client, std::uint64_t pages, std::uint64_t resident) {
    MemoryUsage& memory = Of(client);
    memory.unneeded_bytes = memory.absent_bytes() - (pages - resident) * kPage;
    memory.spare_bytes = memory.resident_bytes - resident * kPage;
    residency_.SetUnneeded(client, memory.unneeded_bytes, memory.spare_bytes, now_);
    Busy(client);
  }
};

TEST_F(OversubscribedPagesTest, GrowingBeyondTheDeviceEvictsTheClientsOwnPages) {
  const ClientId client = Add(0);
  GrowTo(client, 296);
  EXPECT_EQ(Of(client).resident_bytes, kDevice);
  EXPECT_EQ(swapped_out_, 196u);
}

TEST_F(OversubscribedPagesTest, SwapInReplacesPagesOutsideTheClientsOwnAccessSet) {
  const ClientId client = Add(0);
  GrowTo(client, 296);
  const std::uint64_t before = swapped_out_;
  const std::uint64_t times_out = residency_.GetSwaps(client).times_out;
  Works(client, 40, 10);
  EXPECT_FALSE(Runs(client));
  Settle();
  EXPECT_TRUE(Runs(client));
  EXPECT_EQ(swapped_out_ - before, 30u);
  EXPECT_EQ(residency_.GetSwaps(client).in_bytes, 30 * kPage);
  EXPECT_EQ(residency_.GetSwaps(client).times_out, times_out) << "it lost nothing that it needs";
}

TEST_F(OversubscribedPagesTest, DoesNotEvictOthersWhileTheClientHasSparePages) {
  const ClientId other = Add(0), client = Add(0);
  Grow(other, 40);
  Works(other, 40, 40);
  GrowTo(client, 96);
  now_ += 10s;  // Ends the other client's residency period.
  Works(client, 30, 0);
  Settle();
  EXPECT_TRUE(Runs(client));
  EXPECT_TRUE(IsResident(other));
}

TEST_F(OversubscribedPagesTest, EvictsBusyClientWithSparePagesFirst) {
  const ClientId first = Add(0), last = Add(0), client = Add(0);
  Grow(first, 48);
  Works(first, 20, 20);
  Grow(last, 48);
  Works(last, 48, 48);
  now_ += 10s;
  residency_.RequestMemory(client, 30 * kPage, now_);
  EXPECT_EQ(Settle()->kind, Kind::kResume);
  EXPECT_TRUE(IsResident(last));
  EXPECT_EQ(Of(first).resident_bytes, 22 * kPage);
}

TEST_F(OversubscribedPagesTest, EvictsIdleClientBeforeSparePagesOfABusyOne) {
  const ClientId idle = Add(0), client = Add(0);
  Grow(idle, 40);
  GrowTo(client, 56);
  now_ += 10s;
  Works(client, 30, 30);
  residency_.RequestMemory(client, 8 * kPage, now_);
  Settle();
  EXPECT_EQ(Of(client).resident_bytes, 56 * kPage);
  EXPECT_EQ(Of(idle).resident_bytes, 36 * kPage);
}

TEST_F(OversubscribedPagesTest, ReplacingOwnPagesDoesNotExtendResidency) {
  const ClientId client = Add(0), other = Add(0);
  GrowTo(client, 296);
  Works(client, 60, 60);
  residency_.RequestMemory(other, 8 * kPage, now_);
  Settle();
  // The client continues with further parts of its memory.
  const TimePoint latest = now_ + 2s;
  while (granted_to_ != other && now_ < latest) {
    Works(client, 60, 20);
    Settle();
    now_ += 1ms;
  }
  EXPECT_EQ(granted_to_, other);
}

TEST_F(OversubscribedPagesTest, GrantsMemoryToABusyClientOnceItsPagesAreSpare) {
  const ClientId client = Add(0);
  GrowTo(client, 96);
  Works(client, 96, 96);
  residency_.RequestMemory(client, 8 * kPage, now_);
  EXPECT_FALSE(Settle()) << "all that it has is needed";
  EXPECT_FALSE(residency_.IsHeld(client)) << "and runs on";
  Busy(client, false);
  const auto last = Settle();
  ASSERT_TRUE(last);
  EXPECT_EQ(swapped_out_, 4u);
}

// Pages are swapped in only while no command of the client runs.
class QuietSwapInTest : public OversubscribedPagesTest {
 protected:
  QuietSwapInTest() : OversubscribedPagesTest(true) {}
};

TEST_F(QuietSwapInTest, SwapsInOnceTheClientIsQuiet) {
  const ClientId client = Add(0);
  Of(client) = {.movable_bytes = 60 * kPage, .resident_bytes = 30 * kPage};
  residency_.OnMemory(client, Of(client), now_);
  Works(client, 36, 30);
  const auto suspend = residency_.Next(Free(), now_);
  ASSERT_TRUE(suspend);
  EXPECT_EQ(suspend->kind, Kind::kSuspend);
  EXPECT_FALSE(residency_.Next(Free(), now_)) << "its commands still run";
  residency_.OnDrained(client);
  const auto moved = residency_.Next(Free(), now_);
  ASSERT_TRUE(moved);
  EXPECT_EQ(moved->kind, Kind::kSwapIn);
  Of(client).resident_bytes = 36 * kPage;
  Of(client).unneeded_bytes = Of(client).absent_bytes();
  residency_.OnSwapped(client, Of(client), now_);
  EXPECT_EQ(residency_.Next(Free(), now_)->kind, Kind::kResume);
  EXPECT_TRUE(Runs(client));
  // The client was resumed, and is suspended again for its next pages, regardless of its former
  // state.
  Works(client, 40, 36);
  EXPECT_EQ(residency_.Next(Free(), now_)->kind, Kind::kSuspend);
  EXPECT_FALSE(residency_.Next(Free(), now_)) << "it was quiet before, and is not now";
}

// A client's commands may never end, for example because a kernel waits for data that the client
// itself writes from another stream.
TEST_F(QuietSwapInTest, ClientWithEndlessCommandsDoesNotDelayOthers) {
  const ClientId endless = Add(0), other = Add(0);
  for (const ClientId each : {endless, other}) {
    Of(each) = {.movable_bytes = 40 * kPage, .resident_bytes = 20 * kPage};
    residency_.OnMemory(each, Of(each), now_);
    Works(each, 26, 20);
  }
  EXPECT_EQ(residency_.Next(Free(), now_)->client, endless);
  const auto next = residency_.Next(Free(), now_);
  ASSERT_TRUE(next) << "there is room for both";
  EXPECT_EQ(next->kind, Kind::kSuspend);
  EXPECT_EQ(next->client, other);
  residency_.OnDrained(other);
  EXPECT_EQ(residency_.Next(Free(), now_)->kind, Kind::kSwapIn);
}

TEST_F(OversubscribedPagesTest, RejectsImpossibleRequestAtOnce) {
  const ClientId guaranteed = Add(50), client = Add(0);
  Grow(guaranteed, 50);
  residency_.RequestMemory(client, 51 * kPage, now_);
  EXPECT_EQ(Settle()->kind, Kind::kNoMemory);
  EXPECT_EQ(residency_.MaxResidentBytes(client), 50 * kPage);
  GrowTo(client, 96);
  Works(client, 51, 5);
  EXPECT_TRUE(residency_.IsStarved(client));
  Works(client, 50, 5);
  EXPECT_FALSE(residency_.IsStarved(client));
}

}  // namespace
}  // namespace gpushared::scheduler
