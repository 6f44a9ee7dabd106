// SPDX-License-Identifier: Apache-2.0
#include "scheduler/arrival_predictor.h"

#include <chrono>
#include <random>

#include <gtest/gtest.h>

namespace gpushared::scheduler {
namespace {

using namespace std::chrono_literals;

// Reports `count` arrivals with gaps of gap(0), gap(1) and so on. Returns the time of the last
// arrival.
template <typename Gap>
TimePoint Arrive(ArrivalPredictor& predictor, int count, Gap gap) {
  TimePoint at = TimePoint(1s);
  for (int i = 0; i < count; ++i) {
    predictor.OnArrival(at);
    if (i + 1 < count) at += gap(i);
  }
  return at;
}

TEST(ArrivalPredictor, WithoutHistoryRequestMayComeAtAnyTime) {
  ArrivalPredictor predictor;
  EXPECT_EQ(predictor.Predict(TimePoint(5ms)).earliest, TimePoint(5ms));
  const TimePoint last = Arrive(predictor, ArrivalPredictor::kGapsMin, [](int) { return 10ms; });
  EXPECT_EQ(predictor.Predict(last + 1ms).earliest, last + 1ms);
  EXPECT_FALSE(predictor.NextSpan(last));
}

TEST(ArrivalPredictor, PredictsPeriodicClientAfterPeriodMinusJitter) {
  ArrivalPredictor predictor;
  const TimePoint last = Arrive(predictor, 20, [](int) { return 16ms; });

  const auto early = predictor.Predict(last + 2ms);
  EXPECT_EQ(early.earliest, last + 15ms);
  EXPECT_EQ(early.changes_at, last + 15ms);
  const auto due = predictor.Predict(last + 16ms);
  EXPECT_EQ(due.earliest, last + 16ms);
  EXPECT_EQ(due.changes_at, last + 17ms + 1ns);
  const auto span = predictor.NextSpan(last + 2ms);
  ASSERT_TRUE(span);
  EXPECT_EQ(span->from, last + 15ms);
  EXPECT_EQ(span->until, last + 17ms);
  EXPECT_FALSE(predictor.NextSpan(last + 17ms));
}

TEST(ArrivalPredictor, PredictsPauseOnceBurstIsOver) {
  ArrivalPredictor predictor;
  // Bursts of four, 1 ms apart, every 103 ms.
  const TimePoint last =
      Arrive(predictor, 24, [](int i) -> Duration { return i % 4 == 3 ? 100ms : 1ms; });

  // The burst may continue.
  EXPECT_LT(predictor.Predict(last + 500us).earliest, last + 1ms);
  // A burst without an arrival for longer than its gap is over.
  const auto pause = predictor.Predict(last + 2ms);
  EXPECT_EQ(pause.earliest, last + 100ms - Duration(100ms) / ArrivalPredictor::kJitterDivisor);
  EXPECT_FALSE(predictor.NextSpan(last + 2ms)) << "bursts are no period";
}

// A prediction must be early rather than late, because a late prediction may cost a latency target.
// So nearly all requests of a client with memoryless arrivals must come after the prediction.
TEST(ArrivalPredictor, FewMemorylessArrivalsComeBeforePrediction) {
  ArrivalPredictor predictor;
  std::mt19937_64 random(7);
  std::exponential_distribution<double> gaps_ns(1.0 / 10e6);
  TimePoint at{};
  int too_early = 0;
  for (int i = 0; i < 10'000; ++i) {
    const Duration gap(1 + static_cast<Duration::rep>(gaps_ns(random)));
    if (i > 100 && at + gap < predictor.Predict(at).earliest) ++too_early;
    at += gap;
    predictor.OnArrival(at);
  }
  EXPECT_LT(too_early, 800);
}

TEST(ArrivalPredictor, HintReplacesPredictionUntilOverdueOrMet) {
  ArrivalPredictor predictor;
  const TimePoint last = Arrive(predictor, 20, [](int) { return 16ms; });
  predictor.OnHint(last + 4ms, 1ms);

  EXPECT_EQ(predictor.Predict(last + 1ms).earliest, last + 4ms);
  const auto span = predictor.NextSpan(last + 1ms);
  ASSERT_TRUE(span);
  EXPECT_EQ(span->from, last + 4ms);
  EXPECT_EQ(span->until, last + 5ms);
  // The hint is overdue, so the prediction is based on past arrivals again.
  EXPECT_EQ(predictor.Predict(last + 5ms).earliest, last + 15ms);

  predictor.OnHint(last + 20ms, 1ms);
  predictor.OnArrival(last + 19ms);
  EXPECT_FALSE(predictor.HasHint(last + 19ms));
}

TEST(ArrivalPredictor, ArrivalsReportedOutOfOrderKeepTheirPeriod) {
  ArrivalPredictor predictor;
  const TimePoint first(1s);
  // Arrivals 1 0 3 2 5 4 ...
  for (int i = 0; i < 24; ++i) predictor.OnArrival(first + (i ^ 1) * 16ms);
  const TimePoint last = first + 23 * 16ms;

  const auto span = predictor.NextSpan(last + 2ms);
  ASSERT_TRUE(span);
  EXPECT_EQ(span->from, last + 15ms);
  EXPECT_EQ(span->until, last + 17ms);
}

TEST(ArrivalPredictor, SingleLateReportChangesNothing) {
  ArrivalPredictor predictor;
  const TimePoint last = Arrive(predictor, 20, [](int) { return 16ms; });
  predictor.OnArrival(last - 100ms);
  const auto span = predictor.NextSpan(last + 2ms);
  ASSERT_TRUE(span);
  EXPECT_EQ(span->from, last + 15ms);
}

TEST(ArrivalPredictor, ForgetsFormerPeriod) {
  ArrivalPredictor predictor;
  Arrive(predictor, 20, [](int) { return 1ms; });
  TimePoint at = TimePoint(10s);
  for (int i = 0; i < 17; ++i) predictor.OnArrival(at += 32ms);
  EXPECT_EQ(predictor.Predict(at + 5ms).earliest, at + 30ms);
}

}  // namespace
}  // namespace gpushared::scheduler
