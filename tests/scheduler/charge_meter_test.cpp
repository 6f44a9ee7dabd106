// SPDX-License-Identifier: Apache-2.0
#include "scheduler/charge_meter.h"

#include <chrono>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace gpushared::scheduler {
namespace {

using namespace std::chrono_literals;

constexpr TimePoint At(Duration since_start) { return TimePoint(since_start); }

TEST(ChargeMeter, ACommandAloneIsChargedForAllItsTime) {
  ChargeMeter meter;
  const auto entry = meter.Start(1ms, At(5ms));

  EXPECT_EQ(meter.End(entry, At(12ms)), 7ms);
}

TEST(ChargeMeter, TimeTogetherIsSplitByPredictedTime) {
  ChargeMeter meter;
  const auto longer = meter.Start(3ms, At(0ms));
  const auto shorter = meter.Start(1ms, At(0ms));

  EXPECT_EQ(meter.End(shorter, At(4ms)), 1ms);
  EXPECT_EQ(meter.End(longer, At(6ms)), 3ms + 2ms);
}

// Without the mark at the start, the second command would pay for time before it started.
TEST(ChargeMeter, DoesNotChargeTimeBeforeStart) {
  ChargeMeter meter;
  const auto early = meter.Start(1ms, At(0ms));
  const auto late = meter.Start(1ms, At(10ms));

  EXPECT_EQ(meter.End(late, At(12ms)), 1ms);
  EXPECT_EQ(meter.uncharged(), 11ms);
  EXPECT_EQ(meter.End(early, At(12ms)), 11ms);
}

TEST(ChargeMeter, DoesNotChargeIdleTime) {
  ChargeMeter meter;
  meter.End(meter.Start(1ms, At(0ms)), At(1ms));
  meter.End(meter.Start(1ms, At(1h)), At(1h + 1ms));

  EXPECT_EQ(meter.charged_total(), 2ms);
  EXPECT_EQ(meter.busy_total(), 2ms);
}

TEST(ChargeMeter, ChargesAddUpToTheBusyTimeExactly) {
  std::mt19937_64 random(7);
  ChargeMeter meter;
  std::vector<ChargeMeter::Entry> in_flight;
  TimePoint now{};
  Duration charged{};
  for (int step = 0; step < 100'000; ++step) {
    now += Duration(random() % 100'000);
    if (in_flight.size() < 64 && random() % 2 == 0) {
      in_flight.push_back(meter.Start(Duration(random() % 5'000'000), now));
    } else if (!in_flight.empty()) {
      std::swap(in_flight[random() % in_flight.size()], in_flight.back());
      const Duration charge = meter.End(in_flight.back(), now);
      ASSERT_GE(charge, 0ns);
      charged += charge;
      in_flight.pop_back();
    }
    ASSERT_LE(charged, meter.busy_total());
  }
  while (!in_flight.empty()) {
    charged += meter.End(in_flight.back(), now);
    in_flight.pop_back();
  }

  EXPECT_EQ(charged, meter.busy_total());
  EXPECT_EQ(meter.charged_total(), meter.busy_total());
}

TEST(ChargeMeter, DoesNotChargeExcludedTime) {
  ChargeMeter meter;
  const auto first = meter.Start(1ms, At(0ms));
  const auto second = meter.Start(3ms, At(0ms));
  meter.Exclude(80ms);

  EXPECT_EQ(meter.End(first, At(84ms)), 1ms);
  EXPECT_EQ(meter.End(second, At(90ms)), 3ms + 6ms);
  EXPECT_EQ(meter.busy_total(), 10ms);
}

// Excluded time is reported occasionally, and therefore late.
TEST(ChargeMeter, SubtractsLateExclusionFromLaterTime) {
  ChargeMeter meter;
  const auto first = meter.Start(1ms, At(0ms));
  const auto second = meter.Start(1ms, At(0ms));
  EXPECT_EQ(meter.End(first, At(4ms)), 2ms);
  const auto third = meter.Start(1ms, At(4ms));
  meter.Exclude(2ms);

  EXPECT_EQ(meter.End(second, At(5ms)), 2ms);
  EXPECT_EQ(meter.End(third, At(10ms)), 4ms);
  EXPECT_EQ(meter.charged_total(), 8ms);
}

TEST(ChargeMeter, ExclusionWhileIdleAffectsNoClient) {
  ChargeMeter meter;
  meter.End(meter.Start(1ms, At(0ms)), At(5ms));
  meter.Exclude(80ms);
  const auto later = meter.Start(1ms, At(6ms));

  EXPECT_EQ(meter.End(later, At(9ms)), 3ms);
}

// A command that hangs for a weekend must not overflow the sums.
TEST(ChargeMeter, HoursInFlightAreCountedWhole) {
  ChargeMeter meter;
  const auto first = meter.Start(1ns, At(0ns));
  const auto second = meter.Start(1ns, At(0ns));

  EXPECT_EQ(meter.End(first, At(1000h)), 500h);
  EXPECT_EQ(meter.End(second, At(1000h)), 500h);
}

TEST(ChargeMeter, ATimeThatGoesBackCountsAsNow) {
  ChargeMeter meter;
  const auto entry = meter.Start(1ms, At(5ms));

  EXPECT_EQ(meter.End(entry, At(4ms)), 0ns);
}

}  // namespace
}  // namespace gpushared::scheduler
