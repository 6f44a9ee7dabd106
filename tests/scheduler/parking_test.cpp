// SPDX-License-Identifier: Apache-2.0
// Parked clients: their memory is swapped out, within their guarantee or not, until they are woken.
#include <cstdint>

#include <gtest/gtest.h>

#include "tests/scheduler/residency_case.h"

namespace gpushared::scheduler {
namespace {

// Swapping a page takes 1 ms.
class ParkingTest : public ResidencyTest {
 protected:
  // Parking swaps have no beneficiary, which the default of `slowed_` would match.
  ParkingTest() { slowed_ = ClientId{99}; }
  ClientId AddIdle(std::uint64_t pages, Duration idle_after) {
    const ClientId client = Add(pages);
    residency_.Change(client, {.guaranteed_bytes = pages * kPage, .idle_after = idle_after}, now_);
    Grow(client, pages);
    return client;
  }
  void Park(ClientId client, bool is_held = false) {
    residency_.Park(client, is_held, now_);
    Settle();
  }
  bool IsParked(ClientId client) { return residency_.GetParking(client).is_parked; }
  std::uint64_t Resident(ClientId client) { return Of(client).resident_bytes / kPage; }
  // Parks the client and wakes it, so that the rates of swaps are known.
  void Measure(ClientId client) {
    Park(client);
    residency_.Wake(client, now_);
    Settle();
  }
};

TEST_F(ParkingTest, MemoryWithinTheGuaranteeBecomesFreeForOthers) {
  const ClientId parked = Add(40), other = Add(100);
  Grow(parked, 40);
  Park(parked);
  EXPECT_EQ(Resident(parked), 0u);
  EXPECT_TRUE(residency_.IsHeld(parked));
  EXPECT_EQ(residency_.request_stats().parked, 1u);
  residency_.RequestMemory(other, 100 * kPage, now_);
  Settle();
  EXPECT_EQ(granted_to_, other);
}

TEST_F(ParkingTest, NextCommandWakesTheClient) {
  const ClientId client = Add(40);
  Grow(client, 40);
  Park(client);
  Busy(client);
  Settle();
  EXPECT_TRUE(IsResident(client));
  EXPECT_FALSE(IsParked(client));
  EXPECT_EQ(residency_.GetParking(client).last_wake, 40ms);
  EXPECT_EQ(residency_.GetSwaps(client).times_out, 0u) << "parking is not an eviction";
}

TEST_F(ParkingTest, CommandThatArrivesBeforeTheSwapCancelsIt) {
  const ClientId client = Add(40);
  Grow(client, 40);
  residency_.Park(client, /*is_held=*/false, now_);
  Busy(client);
  Settle();
  EXPECT_EQ(swapped_out_, 0u);
  EXPECT_TRUE(Runs(client));
}

TEST_F(ParkingTest, HeldClientStaysUntilItIsWoken) {
  const ClientId client = Add(40);
  Grow(client, 40);
  Busy(client);
  Park(client, /*is_held=*/true);
  EXPECT_EQ(Resident(client), 0u);
  Busy(client, false);
  Busy(client);
  residency_.RequestMemory(client, kPage, now_);
  now_ += 1s;
  Settle();
  EXPECT_TRUE(IsParked(client));
  EXPECT_NE(granted_to_, client);
  residency_.Wake(client, now_);
  Settle();
  EXPECT_TRUE(IsResident(client));
}

TEST_F(ParkingTest, ClientWithoutMemoryIsHeldAsWell) {
  const ClientId client = Add(40);
  Busy(client);
  residency_.Park(client, /*is_held=*/true, now_);
  const auto action = residency_.Next(Free(), now_);
  ASSERT_TRUE(action && action->kind == Kind::kSuspend);
  residency_.OnDrained(client);
  EXPECT_FALSE(residency_.Next(Free(), now_));
}

TEST_F(ParkingTest, AllocationWakesTheClient) {
  const ClientId client = Add(40), other = Add(40);
  Grow(client, 20);
  Grow(other, 20);
  Park(client);
  Grow(client, 1);
  residency_.Park(other, /*is_held=*/false, now_);
  residency_.RequestMemory(other, 80 * kPage, now_);
  EXPECT_FALSE(IsParked(client));
  EXPECT_FALSE(IsParked(other));
}

TEST_F(ParkingTest, WokenClientEvictsMemoryBeyondGuarantees) {
  const ClientId client = Add(40), busy = Add(0), settled = Add(30);
  Grow(client, 40);
  Grow(settled, 30);
  Park(client);
  Grow(busy, 70);
  Busy(busy);
  Busy(client);
  Settle();
  EXPECT_TRUE(IsResident(client));
  EXPECT_EQ(Resident(busy), 30u);
  EXPECT_EQ(Resident(settled), 30u);
}

TEST_F(ParkingTest, WokenClientWaitsForGuaranteedMemoryOfOthers) {
  const ClientId client = Add(60), other = Add(60);
  Grow(client, 60);
  Park(client);
  Grow(other, 60);
  Busy(client);
  Settle();
  EXPECT_TRUE(residency_.IsStarved(client));
  EXPECT_EQ(Resident(other), 60u);
  Park(other);
  EXPECT_TRUE(IsResident(client));
}

TEST_F(ParkingTest, OneOfTwoWokenClientsThatDoNotFitRuns) {
  const ClientId one = Add(60), other = Add(60);
  Grow(one, 60);
  Park(one);
  Grow(other, 60);
  Park(other);
  Busy(one);
  Busy(other);
  Settle();
  EXPECT_TRUE(IsResident(one));
  EXPECT_TRUE(residency_.IsStarved(other));
  Busy(one, false);
  Park(one);
  EXPECT_TRUE(IsResident(other));
}

TEST_F(ParkingTest, ParkedClientIsEvictedBeforeAllOthers) {
  const ClientId high = Add(10, SchedulingClass::kHigh), low = Add(0), asks = Add(50);
  Grow(low, 80);
  Grow(high, 10);
  Busy(low);
  residency_.Park(high, /*is_held=*/false, now_);
  residency_.RequestMemory(asks, 20 * kPage, now_);
  Settle();
  EXPECT_EQ(granted_to_, asks);
  EXPECT_EQ(Resident(low), 80u);
}

TEST_F(ParkingTest, ClientThatIsIdleForLongEnoughIsParked) {
  const ClientId client = AddIdle(40, 1s), never = AddIdle(20, 0s);
  Busy(client);
  now_ += 2s;
  Settle();
  EXPECT_FALSE(IsParked(client)) << "it is busy";
  Busy(client, false);
  Settle();
  EXPECT_EQ(residency_.wake_at(), now_ + 1s);
  now_ += 1s - 1ms;
  Settle();
  EXPECT_FALSE(IsParked(client));
  now_ += 1ms;
  Settle();
  EXPECT_TRUE(IsParked(client));
  EXPECT_EQ(Resident(client), 0u);
  EXPECT_FALSE(IsParked(never));
}

// A client that submits a command each time after it is parked must not keep the device swapping.
TEST_F(ParkingTest, WakingInALoopTakesAFifthOfTheTimeAtMost) {
  const ClientId client = AddIdle(50, 1ms);
  const TimePoint since = now_;
  std::uint64_t wakes = 0;
  while (now_ < since + 10s) {
    Settle();
    now_ = residency_.wake_at().value_or(now_);
    Settle();
    if (!IsParked(client)) continue;
    Busy(client);
    Settle();
    Busy(client, false);
    ++wakes;
  }
  // The residency period is four times the swap-in cost, and a swap-out takes as long as a swap-in.
  EXPECT_GE(wakes, 20u);
  EXPECT_LE(wakes * 50ms, 10s / 5);
}

TEST_F(ParkingTest, ClientWhoseMemoryCannotBeSwappedOutIsWoken) {
  const ClientId client = AddIdle(40, 1s);
  now_ += 1s;
  auto action = residency_.Next(Free(), now_);
  while (action && action->kind != Kind::kSwapOut) {
    if (action->kind == Kind::kSuspend) residency_.OnDrained(client);
    action = residency_.Next(Free(), now_);
  }
  ASSERT_TRUE(action);
  residency_.OnSwapped(client, Of(client), now_);
  EXPECT_FALSE(Settle()->kind == Kind::kSwapOut);
  EXPECT_TRUE(IsResident(client));
  EXPECT_EQ(residency_.wake_at(), now_ + 1s);
}

TEST_F(ParkingTest, PromiseCoversAnEvictionTheSwapInAndAStop) {
  const ClientId client = Add(40), busy = Add(0);
  Grow(client, 40);
  Measure(client);
  stop_ = 5ms;
  Park(client);
  EXPECT_EQ(residency_.GetParking(client).promised, 40ms + 40ms + 8ms);
  Grow(busy, 100);
  Busy(busy);
  Busy(client);
  Settle();
  EXPECT_EQ(residency_.GetParking(client).last_wake, 40ms + 40ms + 5ms);
  Park(client);
  EXPECT_EQ(residency_.GetParking(client).promised, 40ms + 40ms + 8ms + 5ms);
}

TEST_F(ParkingTest, CountsWakesThatKeptThePromise) {
  const ClientId client = Add(40);
  Grow(client, 40);
  Measure(client);
  Measure(client);
  delay_ = {};
  Park(client);
  delay_ = 100ms;
  residency_.Wake(client, now_);
  Settle();
  const ParkingState parking = residency_.GetParking(client);
  EXPECT_EQ(parking.wakes, 3u);
  EXPECT_EQ(parking.wakes_promised, 3u) << "the first promise follows from the swap-out";
  EXPECT_EQ(parking.wakes_in_time, 2u);
  EXPECT_EQ(parking.last_wake, 140ms);
  Park(client);
  // The slowest swap, 16 MiB in 108 ms, is now expected of all of 80 MiB and of a swap in progress,
  // in addition to the excess of 52 ms over the estimate.
  EXPECT_EQ(residency_.GetParking(client).promised, 40ms + 540ms + 108ms + 52ms);
  const MemoryRequestStats stats = residency_.request_stats();
  EXPECT_EQ(stats.wakes, 3u);
  EXPECT_EQ(stats.wakes_in_time, 2u);
  EXPECT_EQ(stats.longest_wake, 140ms);
}

TEST_F(ParkingTest, NothingIsPromisedBeyondTheGuarantee) {
  const ClientId client = Add(40), beyond = Add(10);
  Grow(client, 40);
  Measure(client);
  Grow(beyond, 20);
  Park(beyond);
  EXPECT_FALSE(residency_.GetParking(beyond).promised);
  residency_.Wake(beyond, now_);
  Busy(beyond);
  Settle();
  EXPECT_TRUE(Runs(beyond));
  EXPECT_EQ(residency_.GetParking(beyond).wakes_promised, 0u);
}

TEST_F(ParkingTest, ParkedClientThatLeavesFreesItsMemory) {
  const ClientId client = Add(40), other = Add(100);
  Grow(client, 40);
  residency_.Park(client, /*is_held=*/true, now_);
  while (const auto action = residency_.Next(Free(), now_)) {
    if (action->kind == Kind::kSwapOut) break;
    residency_.OnDrained(client);
  }
  residency_.Remove(client);
  Of(client) = {};
  residency_.RequestMemory(other, 100 * kPage, now_);
  Settle();
  EXPECT_EQ(granted_to_, other);
}

}  // namespace
}  // namespace gpushared::scheduler
