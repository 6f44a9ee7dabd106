// SPDX-License-Identifier: Apache-2.0
#include "scheduler/recent_samples.h"

#include <chrono>
#include <random>

#include <gtest/gtest.h>

namespace gpushared::scheduler {
namespace {

using namespace std::chrono_literals;

TEST(RecentSamples, IsZeroWithoutSamples) {
  const RecentSamples<19> samples;
  EXPECT_TRUE(samples.empty());
  EXPECT_EQ(samples.Quantile(90), 0ns);
  EXPECT_EQ(samples.Largest(), 0ns);
}

TEST(RecentSamples, HighQuantileOfFewSamplesIsLargest) {
  RecentSamples<19> samples;
  for (const Duration each : {3us, 9us, 1us, 7us}) samples.Add(each);
  EXPECT_EQ(samples.Quantile(90), 9us);
  EXPECT_EQ(samples.Quantile(50), 7us);
  EXPECT_EQ(samples.Smallest(), 1us);
}

TEST(RecentSamples, OneOutlierOfAFullWindowDoesNotShowInItsNinetiethPercentile) {
  RecentSamples<19> samples;
  samples.Add(1s);
  for (int i = 0; i < 18; ++i) samples.Add(10us);
  EXPECT_EQ(samples.Quantile(90), 10us);
  EXPECT_EQ(samples.Largest(), 1s);
  samples.Add(1s);  // Replaces the first sample.
  samples.Add(1s);
  EXPECT_EQ(samples.Quantile(90), 1s);
}

TEST(RecentSamples, SecondLargestIgnoresSingleOutlier) {
  RecentSamples<3> samples;
  EXPECT_EQ(samples.LargestButOne(), 0us);
  samples.Add(5us);
  EXPECT_EQ(samples.LargestButOne(), 5us);
  samples.Add(1s);
  EXPECT_EQ(samples.LargestButOne(), 5us);
  samples.Add(1s);
  EXPECT_EQ(samples.LargestButOne(), 1s);
}

TEST(RecentSamples, ReplacesLastSampleEvenAtEndOfWindow) {
  RecentSamples<3> samples;
  for (const Duration each : {1us, 2us, 9us}) samples.Add(each);
  samples.ReplaceLast(3us);
  EXPECT_EQ(samples.Largest(), 3us);
  samples.Add(8us);
  samples.ReplaceLast(4us);
  EXPECT_EQ(samples.Smallest(), 2us);
  EXPECT_EQ(samples.Largest(), 4us);
}

TEST(RecentSamples, QuantileReportedAsStableDoesNotChange) {
  RecentSamples<19> samples;
  std::mt19937_64 random(5);
  int stayed = 0;
  for (int i = 0; i < 50'000; ++i) {
    const Duration next(static_cast<Duration::rep>(random() % 40));  // With many equal samples.
    for (const unsigned percent : {10u, 50u, 90u}) {
      const Duration before = samples.Quantile(percent);
      if (!samples.KeepsQuantile(before, next)) continue;
      RecentSamples<19> after = samples;
      after.Add(next);
      ASSERT_EQ(after.Quantile(percent), before) << percent;
      if (percent == 90) ++stayed;
    }
    samples.Add(next);
  }
  EXPECT_GT(stayed, 35'000);
}

TEST(RecentSamples, FullWindowOfNewSamplesForgetsOldOnes) {
  RecentSamples<19> samples;
  for (int i = 0; i < 50; ++i) samples.Add(1ms);
  for (int i = 0; i < 19; ++i) samples.Add(1us);
  EXPECT_EQ(samples.Largest(), 1us);
}

TEST(RecentSamples, TenthOfNextSamplesExceedsNinetiethPercentile) {
  RecentSamples<19> samples;
  std::mt19937_64 random(3);
  std::lognormal_distribution<double> times_ns(10.0, 1.0);
  int above = 0;
  constexpr int kDraws = 50'000;
  for (int i = 0; i < kDraws; ++i) {
    const Duration next(static_cast<Duration::rep>(times_ns(random)));
    if (samples.size() == 19 && next > samples.Quantile(90)) ++above;
    samples.Add(next);
  }
  EXPECT_NEAR(static_cast<double>(above) / kDraws, 0.10, 0.01);
}

}  // namespace
}  // namespace gpushared::scheduler
