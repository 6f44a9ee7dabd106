// SPDX-License-Identifier: Apache-2.0
#include "scheduler/predictor.h"

#include <chrono>
#include <vector>

#include <gtest/gtest.h>

namespace gpushared::scheduler {
namespace {

using namespace std::chrono_literals;

TEST(Predictor, GuessesAMillisecondBeforeTheFirstSample) {
  EXPECT_EQ(Predictor().Predict(42), 1ms);
}

TEST(Predictor, PredictsLargestOfFewSamples) {
  Predictor predictor;
  predictor.AddSample(42, 30us);
  EXPECT_EQ(predictor.Predict(42), 30us);
  predictor.AddSample(42, 50us);
  predictor.AddSample(42, 40us);

  EXPECT_EQ(predictor.Predict(42), 50us);
}

TEST(Predictor, ImportedCostsGiveSamePredictions) {
  Predictor predictor, other;
  EXPECT_TRUE(predictor.Known().empty());
  predictor.AddSample(7, 400us, {.kernel = 1, .blocks = 10});
  predictor.AddSample(8, 100us, {.kernel = 1, .blocks = 2});
  predictor.AddSample(7, 300us, {.kernel = 1, .blocks = 10});
  const std::vector<KnownCost> known = predictor.Known();
  ASSERT_EQ(known.size(), 2u);
  EXPECT_EQ(known[0].key, 8u) << "the one sampled last comes last";
  for (const KnownCost& cost : known) other.AddSample(cost.key, cost.predicted, cost.grid);
  EXPECT_EQ(other.Predict(7), predictor.Predict(7));
  EXPECT_EQ(other.Predict(8), predictor.Predict(8));
  EXPECT_EQ(other.Predict(9, {.kernel = 1, .blocks = 20}),
            predictor.Predict(9, {.kernel = 1, .blocks = 20}));
}

// A single page fault or throttled clock must not make a kernel look slow forever.
TEST(Predictor, OneSlowRunAmongManyIsNotExpectedAgain) {
  Predictor predictor;
  for (int i = 0; i < 9; ++i) predictor.AddSample(42, 30us);
  predictor.AddSample(42, 20ms);
  for (int i = 0; i < 9; ++i) predictor.AddSample(42, 30us);
  EXPECT_EQ(predictor.Predict(42), 30us);
}

TEST(Predictor, PredictsSlowIfOneInFourIsSlow) {
  Predictor predictor;
  for (int i = 0; i < 40; ++i) predictor.AddSample(42, i % 4 == 0 ? 90us : 30us);
  EXPECT_EQ(predictor.Predict(42), 90us);
}

TEST(Predictor, LearnsThatKernelBecameFaster) {
  Predictor predictor;
  for (int i = 0; i < 100; ++i) predictor.AddSample(42, 90us);
  for (int i = 0; i < 19; ++i) predictor.AddSample(42, 30us);
  EXPECT_EQ(predictor.Predict(42), 30us);
}

TEST(Predictor, PredictsOtherGridFromKnownGrids) {
  Predictor predictor;
  predictor.AddSample(1, 100us, {.kernel = 7, .blocks = 64});

  EXPECT_EQ(predictor.Predict(2, {.kernel = 7, .blocks = 129}), 300us);
  EXPECT_EQ(predictor.Predict(2, {.kernel = 7, .blocks = 128}), 200us);
  EXPECT_EQ(predictor.Predict(2, {.kernel = 7, .blocks = 8}), 100us) << "no shorter";
  EXPECT_EQ(predictor.Predict(2, {.kernel = 8, .blocks = 8}), Predictor::kFirstGuess);
  EXPECT_EQ(predictor.Predict(2), Predictor::kFirstGuess);
  EXPECT_FALSE(predictor.Knows(2));
  predictor.AddSample(2, 5us, {.kernel = 7, .blocks = 128});
  EXPECT_EQ(predictor.Predict(2, {.kernel = 7, .blocks = 128}), 5us);
}

TEST(Predictor, PredictionForLargestGridsDoesNotOverflow) {
  Predictor predictor;
  predictor.AddSample(1, 1h, {.kernel = 7, .blocks = 1});
  const std::uint64_t blocks = std::uint64_t{0x7fffffff} * 65535 * 65535;
  EXPECT_EQ(predictor.Predict(2, {.kernel = 7, .blocks = blocks}), Duration(kCommandTimeMax));
}

// A key that replaces another key has none of the replaced key's samples.
TEST(Predictor, NewKeyHasNoSamplesOfReplacedOne) {
  Predictor predictor;
  for (std::uint64_t key = 0; key < 8 * Predictor::kKeysMax; ++key) {
    predictor.AddSample(key, 1s);
  }
  const std::uint64_t fresh = std::uint64_t{1} << 40;
  predictor.AddSample(fresh, 2us);
  EXPECT_EQ(predictor.Predict(fresh), 2us);
}

TEST(Predictor, KeysDoNotMix) {
  Predictor predictor;
  predictor.AddSample(1, 5us);
  predictor.AddSample(2, 7us);

  EXPECT_EQ(predictor.Predict(1), 5us);
  EXPECT_EQ(predictor.Predict(2), 7us);
  EXPECT_EQ(predictor.Predict(3), Predictor::kFirstGuess);
}

TEST(Predictor, KeyZeroIsAKeyLikeOthers) {
  Predictor predictor;
  EXPECT_EQ(predictor.Predict(0), Predictor::kFirstGuess);
  predictor.AddSample(0, 9us);
  EXPECT_EQ(predictor.Predict(0), 9us);
}

// A client may launch a new grid each time. Keys that are replaced must fall back to the first
// guess, and the table must not grow.
TEST(Predictor, FloodOfNewKeysOnlyFallsBackToFirstGuess) {
  Predictor predictor;
  const std::uint64_t flood = 4 * Predictor::kKeysMax;
  for (std::uint64_t key = 0; key < flood; ++key) predictor.AddSample(key, 3us);

  std::size_t kept = 0;
  for (std::uint64_t key = 0; key < flood; ++key) {
    const Duration predicted = predictor.Predict(key);
    ASSERT_TRUE(predicted == 3us || predicted == Predictor::kFirstGuess);
    if (predicted == 3us) ++kept;
  }
  EXPECT_LE(kept, Predictor::kKeysMax);
  EXPECT_GE(kept, Predictor::kKeysMax / 2);
  EXPECT_EQ(predictor.Predict(flood - 1), 3us);
}

TEST(Predictor, RemainingIsProportionalToTheUnitsLeft) {
  EXPECT_EQ(Predictor::Remaining(10ms, 0, 100), 10ms);
  EXPECT_EQ(Predictor::Remaining(10ms, 75, 100), 2500us);
  EXPECT_EQ(Predictor::Remaining(10ms, 100, 100), 0ms);
  EXPECT_EQ(Predictor::Remaining(10ms, 0, 0), 0ms);
}

TEST(Predictor, RemainingOfTheLargestGridDoesNotOverflow) {
  const std::uint64_t units = std::uint64_t{0x7fffffff} * 65535 * 65535;
  EXPECT_EQ(Predictor::Remaining(1h, units - units / 4, units).count() / 1'000'000,
            Duration(15min).count() / 1'000'000 - 1);
}

}  // namespace
}  // namespace gpushared::scheduler
