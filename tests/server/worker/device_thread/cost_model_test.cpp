// SPDX-License-Identifier: Apache-2.0
// Predictions of device time, and the keyed hash that distinguishes commands.
#include "server/worker/state/cost_model.h"

#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <random>
#include <span>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "server/worker/state/command_slab.h"
#include "server/worker/state/keyed_hash.h"
#include "tests/support/null_device.h"

namespace gpushared::server {
namespace {

using namespace std::chrono_literals;

CommandSlot LaunchSlot(std::uint64_t key) {
  CommandSlot slot;
  slot.kind = CommandKind::kLaunch;
  slot.cost_key = key;
  slot.cost_kernel = key;
  slot.units = 100;
  return slot;
}

TEST(CostModel, PredictsLongestSampleAndRestOfStoppedCommand) {
  CostModel costs;
  CommandSlot slot = LaunchSlot(42);
  EXPECT_EQ(costs.Predict(slot), scheduler::Predictor::kFirstGuess);
  costs.AddSample(slot, 300us);
  costs.AddSample(slot, 200us);
  EXPECT_EQ(costs.Predict(slot), 300us);
  slot.units_done = 50;
  EXPECT_EQ(costs.Predict(slot), 150us);
  EXPECT_EQ(costs.Predict(LaunchSlot(43)), scheduler::Predictor::kFirstGuess);
}

TEST(CostModel, PredictsOtherGridsOfKnownKernel) {
  CostModel costs;
  costs.AddSample(LaunchSlot(42), 300us);
  CommandSlot larger = LaunchSlot(43);
  larger.cost_kernel = 42;
  larger.units = 200;
  EXPECT_EQ(costs.Predict(larger), 600us);
}

TEST(CostModel, ComparesPredictionsWithLaterSamples) {
  CostModel costs;
  const CommandSlot slot = LaunchSlot(42);
  costs.AddSample(slot, 300us);  // There was no prediction to judge.
  EXPECT_EQ(costs.accuracy().predictions, 0u);
  costs.AddSample(slot, 400us);
  costs.AddSample(slot, 200us);
  EXPECT_EQ(costs.accuracy().predictions, 2u);
  EXPECT_EQ(costs.accuracy().exceeded, 1u);
  // The errors: 300 us instead of 400, then 400 us instead of 200.
  EXPECT_GE(costs.accuracy().error_permille.Quantile(0.5), 250u);
  EXPECT_LT(costs.accuracy().error_permille.Quantile(0.5), 290u);
  EXPECT_GE(costs.accuracy().error_permille.Quantile(1.0), 1000u);
}

TEST(CostModel, LaunchesOfDifferentModulesKernelsOrShapesHaveTheirOwnKeys) {
  device::LaunchWork work;
  work.grid = {2, 3, 4};
  work.block = {5, 6, 7};
  std::vector<std::uint64_t> keys = {CostModel::LaunchKey(1, work), CostModel::LaunchKey(2, work)};
  const auto with = [&](auto change) {
    device::LaunchWork other = work;
    change(other);
    keys.push_back(CostModel::LaunchKey(1, other));
  };
  with([](device::LaunchWork& other) { other.kernel = 1; });
  with([](device::LaunchWork& other) { other.grid = {3, 2, 4}; });
  with([](device::LaunchWork& other) { other.grid = {2, 4, 3}; });
  with([](device::LaunchWork& other) { other.block = {6, 5, 7}; });
  with([](device::LaunchWork& other) { other.block = {5, 7, 6}; });
  with([](device::LaunchWork& other) { other.dynamic_shared_bytes = 64; });
  std::sort(keys.begin(), keys.end());
  EXPECT_EQ(std::unique(keys.begin(), keys.end()), keys.end());
}

// If such times did not count, a client could avoid measurements by never running a kernel alone.
TEST(CostModel, LearnsChargedTimeNextToSameClientsWork) {
  CostModel costs;
  CommandSlot slot = LaunchSlot(42);
  costs.AddSample(slot, 50us);
  slot.charged = 2ms;
  slot.is_among_own = false;
  costs.AddBound(slot, 5ms);
  EXPECT_EQ(costs.Predict(LaunchSlot(42)), 50us) << "another client may have made it longer";
  slot.is_among_own = true;
  costs.AddBound(slot, 5ms);
  EXPECT_EQ(costs.Predict(LaunchSlot(42)), 2ms);
}

TEST(CostModel, OutlivedPredictionDoubles) {
  CostModel costs;
  CommandSlot slot = LaunchSlot(42);
  slot.units = 100;
  costs.AddSample(slot, 50us);
  slot.charged = 3ms;
  EXPECT_EQ(costs.Predict(slot), 3ms);
  costs.AddSample(slot, 10ms);
  slot.units_done = 50;
  EXPECT_EQ(costs.Predict(slot), 5ms) << "half of it, as it is known now";
}

// A strided fill may take longer, because each row may touch a page for the first time.
TEST(CostModel, StridedFillsDoNotAffectPredictionsOfContiguousOnes) {
  CostModel costs;
  CommandSlot plain, rows;
  plain.kind = rows.kind = CommandKind::kFill;
  plain.bytes = rows.bytes = 4096;
  plain.units = 1;
  rows.units = 4096;
  costs.AddSample(plain, 5us);
  costs.AddSample(rows, 10s);
  EXPECT_EQ(costs.Predict(plain), 5us);
  EXPECT_EQ(costs.Predict(rows), 10s);
}

// The time of a launch next to other work is only an upper bound of its time alone.
TEST(CostModel, TimesNextToOthersOnlyShortenPredictions) {
  CostModel costs;
  const CommandSlot slot = LaunchSlot(42);
  costs.AddBound(slot, 5ms);
  EXPECT_EQ(costs.Predict(slot), scheduler::Predictor::kFirstGuess);
  EXPECT_TRUE(costs.Known().empty()) << "longer than the guess says nothing";
  costs.AddBound(slot, 20us);
  EXPECT_EQ(costs.Predict(slot), 20us);
  for (int i = 0; i < 40; ++i) costs.AddBound(slot, 5ms);
  EXPECT_EQ(costs.Predict(slot), 20us);
  costs.AddSample(slot, 30us);
  EXPECT_EQ(costs.Predict(slot), 20us) << "one of nineteen";
  EXPECT_EQ(costs.accuracy().predictions, 1u) << "a bound is nothing to judge a prediction by";
}

TEST(CostModel, BoundCountsAsOftenAsSample) {
  CostModel costs;
  const CommandSlot slot = LaunchSlot(42);
  for (int i = 0; i < 19; ++i) costs.AddSample(slot, 100us);
  for (int i = 0; i < 17; ++i) costs.AddBound(slot, 60us);
  EXPECT_EQ(costs.Predict(slot), 100us);
  costs.AddBound(slot, 60us);
  EXPECT_EQ(costs.Predict(slot), 60us);
}

// If only samples below the prediction counted, the prediction would sink to the shortest of all.
TEST(CostModel, BoundsDoNotPullThePredictionBelowTheirOwnQuantile) {
  CostModel costs;
  const CommandSlot slot = LaunchSlot(42);
  for (int i = 0; i < 400; ++i) costs.AddBound(slot, i % 4 == 0 ? 100us : 60us);
  EXPECT_EQ(costs.Predict(slot), 100us);
}

TEST(CostModel, BoundsOfSiblingsAndCopiesCountLikeSamples) {
  CostModel costs;
  costs.AddSample(LaunchSlot(42), 300us);
  CommandSlot larger = LaunchSlot(43);
  larger.cost_kernel = 42;
  larger.units = 200;
  costs.AddBound(larger, 700us);
  EXPECT_EQ(costs.Predict(larger), 600us);
  costs.AddBound(larger, 500us);
  EXPECT_EQ(costs.Predict(larger), 500us);

  CommandSlot copy;
  copy.kind = CommandKind::kCopyToHost;
  copy.bytes = 1 << 20;
  copy.units = 16;
  const scheduler::Duration guess = costs.Predict(copy);
  costs.AddBound(copy, guess + 1us);
  EXPECT_EQ(costs.Predict(copy), guess);
  costs.AddBound(copy, 90us);
  EXPECT_EQ(costs.Predict(copy), 90us);
}

TEST(CostModel, KnownPartsContainAllCosts) {
  CostModel costs;
  for (std::uint64_t key = 1; key <= 500; ++key) costs.AddSample(LaunchSlot(key), 1us * key);
  costs.AddSample(LaunchSlot(7), 1us);
  std::vector<scheduler::KnownCost> parts;
  for (std::size_t part = 0; part < scheduler::Predictor::kKnownParts; ++part) {
    const auto more = costs.KnownPart(part);
    EXPECT_LT(more.size(), 100u);
    parts.insert(parts.end(), more.begin(), more.end());
  }
  scheduler::Predictor::SortByAge(parts);
  const std::vector<scheduler::KnownCost> all = costs.Known();
  ASSERT_EQ(parts.size(), all.size());
  EXPECT_GT(all.size(), 400u);
  for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(parts[i].key, all[i].key);
  EXPECT_EQ(all.back().key, 7u) << "the one sampled last";
}

// Test vectors from the appendix of the SipHash paper, and from the authors' implementation.
TEST(KeyedHash, IsSipHash) {
  const HashSeed seed = {0x0706050403020100u, 0x0f0e0d0c0b0a0908u};
  std::array<std::byte, 15> bytes;
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i);
  const auto hash = [&](std::size_t size) { return KeyedHash(std::span(bytes).first(size), seed); };
  EXPECT_EQ(hash(0), 0x726fdb47dd0e0e31u);
  EXPECT_EQ(hash(1), 0x74f839c593dc67fdu);
  EXPECT_EQ(hash(8), 0x93f5f5799a932462u);
  EXPECT_EQ(hash(15), 0xa129ca6149be45e5u);
  EXPECT_NE(MakeHashSeed(), MakeHashSeed());
}

TEST(CostModel, ModuleKeyCoversContentOwnerAndIsolation) {
  const auto identity = [](std::string_view text, std::uint32_t uid,
                           device::Isolation isolation = device::Isolation::kOff,
                           const HashSeed& seed = {1, 2}) {
    return CostModel::ModuleIdentity(std::as_bytes(std::span(text)), {uid, isolation}, seed);
  };
  std::vector<std::uint64_t> all = {identity("", 1),
                                    identity("12345678", 1),
                                    identity("12345678", 2),
                                    identity("12345679", 1),
                                    identity("123456781", 1),
                                    identity("123456782", 1),
                                    identity("1234567812", 1),
                                    identity("12345678", 1, device::Isolation::kFence),
                                    identity("12345678", 1, device::Isolation::kOff, {1, 3}),
                                    identity("12345678", 1, device::Isolation::kOff, {0, 2})};
  EXPECT_EQ(identity("12345678", 1), all[1]);
  std::ranges::sort(all);
  EXPECT_EQ(std::ranges::adjacent_find(all), all.end());
}

TEST(CostModel, PredictsFromImportedCosts) {
  CostModel first, second;
  first.AddSample(LaunchSlot(42), 300us);
  first.AddSample(LaunchSlot(43), 200us);
  first.AddSample(LaunchSlot(42), 250us);
  second.Learn(first.Known());
  EXPECT_EQ(second.Predict(LaunchSlot(42)), 300us);
  EXPECT_EQ(second.Predict(LaunchSlot(43)), 200us);
  EXPECT_EQ(second.accuracy().predictions, 0u) << "what was learnt is no prediction";
}

TEST(CostModel, EachFormOfALaunchIsPredictedFromItsOwnSamples) {
  CostModel costs;
  const CommandSlot launch = LaunchSlot(77);
  CommandSlot stoppable = LaunchSlot(77);
  stoppable.runs_stoppable_form = true;
  costs.AddSample(launch, 300us);
  EXPECT_EQ(costs.Predict(stoppable), 300us) << "as long as it has none";
  costs.AddSample(stoppable, 400us);
  EXPECT_EQ(costs.Predict(stoppable), 400us);
  EXPECT_EQ(costs.Predict(launch), 300us);

  CostModel other;
  other.AddSample(stoppable, 400us);
  EXPECT_EQ(other.Predict(launch), 400us) << "not the first guess";
}

TEST(CostModel, ComparesFormsByMediansOfEnoughSamples) {
  const CommandSlot launch = LaunchSlot(77);
  CommandSlot stoppable = LaunchSlot(77);
  stoppable.runs_stoppable_form = true;
  const auto is_slow = [&](scheduler::Duration original, scheduler::Duration other,
                           std::size_t samples) {
    CostModel costs;
    for (std::size_t i = 0; i < CostModel::kFormSamplesMin; ++i) costs.AddSample(launch, original);
    for (std::size_t i = 0; i < samples; ++i) costs.AddSample(stoppable, other);
    return costs.GetForms(launch).is_stoppable_slow();
  };
  EXPECT_TRUE(is_slow(1000us, 1151us, 5));
  EXPECT_FALSE(is_slow(1000us, 1150us, 5));
  EXPECT_FALSE(is_slow(1000us, 9000us, 4));
  EXPECT_FALSE(is_slow(scheduler::kCommandTimeMax, scheduler::kCommandTimeMax, 5));

  CostModel costs;
  for (int i = 0; i < 5; ++i) costs.AddSample(launch, 1000us);
  for (const auto sample : {1010us, 9000us, 1020us, 9000us, 1030us}) {
    costs.AddSample(stoppable, sample);
  }
  EXPECT_FALSE(costs.GetForms(launch).is_stoppable_slow()) << "outliers decide nothing";
}

// A client that knew which of its launches are sampled could make those short, and be predicted
// accordingly.
TEST(CostModel, SamplesOneInSixteenBySecret) {
  const auto sampled = [](const HashSeed& secret, std::uint64_t session) {
    const CostModel costs(secret);
    std::vector<std::uint64_t> places;
    for (std::uint64_t begin = 0; begin < 4096; begin += CostModel::kSampleEvery) {
      std::size_t count = 0;
      for (std::uint64_t number = begin; number < begin + CostModel::kSampleEvery; ++number) {
        if (!costs.IsSampled(session, number)) continue;
        ++count;
        places.push_back(number - begin);
      }
      EXPECT_EQ(count, 1u) << begin;
    }
    return places;
  };
  const std::vector<std::uint64_t> places = sampled({1, 2}, 1);
  ASSERT_EQ(places.size(), 256u);
  EXPECT_EQ(places, sampled({1, 2}, 1));
  using Other = std::pair<HashSeed, std::uint64_t>;
  for (const auto& [secret, session] : {Other{{1, 3}, 1}, Other{{2, 2}, 1}, Other{{1, 2}, 2}}) {
    const std::vector<std::uint64_t> others = sampled(secret, session);
    std::size_t same = 0;
    for (std::size_t i = 0; i < places.size(); ++i) same += places[i] == others[i] ? 1 : 0;
    EXPECT_LT(same, 40u) << "one of 16 by chance";
  }
  for (std::uint64_t place = 0; place < CostModel::kSampleEvery; ++place) {
    EXPECT_GT(std::ranges::count(places, place), 4) << place;
  }
}

TEST(CostModel, ImportedCostsIncludeSlowForms) {
  CostModel first, second;
  const CommandSlot launch = LaunchSlot(77);
  CommandSlot stoppable = LaunchSlot(77);
  stoppable.runs_stoppable_form = true;
  for (int i = 0; i < 19; ++i) {
    first.AddSample(launch, 1000us);
    if (i < 4) first.AddSample(stoppable, 1300us);
  }
  second.Learn(first.Known());
  EXPECT_FALSE(second.GetForms(launch).is_stoppable_slow()) << "the first did not know it either";
  first.AddSample(stoppable, 1300us);
  CostModel third;
  third.Learn(first.Known());
  EXPECT_TRUE(third.GetForms(launch).is_stoppable_slow());
  EXPECT_TRUE(third.WantsSample(1, launch)) << "what was learnt is soon replaced";
}

TEST(CostModel, LaunchBubbleIsTheNinetiethPercentile) {
  CostModel costs;
  for (int i = 0; i < 8; ++i) costs.AddLaunchBubble(10us);
  EXPECT_FALSE(costs.LaunchBubble()) << "too few to tell";
  costs.AddLaunchBubble(10us);
  EXPECT_EQ(costs.LaunchBubble(), 10us);
  for (int i = 0; i < 9; ++i) costs.AddLaunchBubble(12us);
  costs.AddLaunchBubble(50ms);
  EXPECT_EQ(costs.LaunchBubble(), 12us) << "one that was slow";
  for (int i = 0; i < 2; ++i) costs.AddLaunchBubble(80us);
  EXPECT_EQ(costs.LaunchBubble(), 80us) << "three of nineteen are no accident";
  for (int i = 0; i < 19; ++i) costs.AddLaunchBubble(5us);
  EXPECT_EQ(costs.LaunchBubble(), 5us) << "nothing is kept for ever";
}

TEST(CostModel, CopiesArePredictedBySizeAndKind) {
  CostModel costs;
  CommandSlot copy;
  copy.kind = CommandKind::kCopyToHost;
  copy.bytes = 1 << 20;
  copy.units = 16;
  const scheduler::Duration guess = costs.Predict(copy);
  EXPECT_GT(guess, 500us) << "a gigabyte per second";
  costs.AddSample(copy, 90us);
  EXPECT_EQ(costs.Predict(copy), 90us);
  copy.kind = CommandKind::kFill;
  EXPECT_EQ(costs.Predict(copy), guess);
  copy.bytes = 16;
  EXPECT_LT(costs.Predict(copy), 50us);
}

TEST(CostModel, MeasuresOneInSixteenWellKnownCopies) {
  CostModel costs;
  CommandSlot copy;
  copy.kind = CommandKind::kCopyToDevice;
  copy.bytes = 1 << 20;
  copy.units = 256;
  for (int i = 0; i < 19; ++i) {
    copy.sequence = static_cast<std::uint64_t>(i);
    EXPECT_TRUE(costs.WantsSample(1, copy)) << i;
    costs.AddSample(copy, 90us);
  }
  std::uint64_t wanted = 0;
  for (copy.sequence = 0; copy.sequence < 160; ++copy.sequence) {
    wanted += costs.WantsSample(1, copy) ? 1 : 0;
  }
  EXPECT_EQ(wanted, 160 / CostModel::kSampleEvery);
  copy.bytes = 4 << 20;
  copy.units = 1024;
  EXPECT_TRUE(costs.WantsSample(1, copy)) << "none of its size was seen";
  copy.kind = CommandKind::kFill;
  copy.bytes = 1 << 20;
  EXPECT_TRUE(costs.WantsSample(1, copy)) << "no fill was seen";
}

}  // namespace
}  // namespace gpushared::server
