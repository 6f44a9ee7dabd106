// SPDX-License-Identifier: Apache-2.0
// Seeded runs of a whole world; every failure can be replayed by its seed.
//
// GPUSHARED_SIMULATION_SEED=N runs only seed N; GPUSHARED_SIMULATION_SEEDS=N runs N seeds per case
// instead of the few default ones.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include <gtest/gtest.h>

#include "tests/simulation/world.h"

namespace gpushared::testing {
namespace {

constexpr std::uint64_t kSteps = 2000;
constexpr std::uint64_t kSeedsPerCase = 40;
constexpr std::uint64_t kCases = 4;

std::uint64_t FromEnvironment(const char* name, std::uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

World::Outcome RunSeed(std::uint64_t seed) {
  World world(seed);
  const World::Outcome outcome = world.Run(kSteps);
  EXPECT_EQ(outcome.broken, "") << "seed " << seed << ": " << world.Describe() << "\nreplay: "
                                << "GPUSHARED_SIMULATION_SEED=" << seed
                                << " simulation_test --gtest_filter='*/0'";
  return outcome;
}

class Simulation : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(Simulation, InvariantsHoldAfterEachStep) {
  if (const std::uint64_t seed = FromEnvironment("GPUSHARED_SIMULATION_SEED", 0); seed != 0) {
    if (GetParam() == 0) RunSeed(seed);
    return;
  }
  const std::uint64_t seeds = FromEnvironment("GPUSHARED_SIMULATION_SEEDS", kSeedsPerCase);
  World::Outcome sum;
  for (std::uint64_t i = 0; i < seeds; ++i) {
    const World::Outcome outcome = RunSeed(1 + i * kCases + GetParam());
    if (HasFailure()) return;
    sum.submits += outcome.submits;
    sum.stops += outcome.stops;
    sum.deaths += outcome.deaths;
    sum.completed += outcome.completed;
    sum.looked_ahead += outcome.looked_ahead;
  }
  std::printf(
      "%llu seeds: %llu submits (%llu looked ahead), %llu stops, %llu deaths, %llu completed\n",
      static_cast<unsigned long long>(seeds), static_cast<unsigned long long>(sum.submits),
      static_cast<unsigned long long>(sum.looked_ahead), static_cast<unsigned long long>(sum.stops),
      static_cast<unsigned long long>(sum.deaths), static_cast<unsigned long long>(sum.completed));
  // Each kind of event must have occurred. Without these checks, a world in which nothing happens
  // would pass, too.
  EXPECT_GT(sum.completed, 1000 * seeds);
  EXPECT_GT(sum.deaths, 10 * seeds);
  EXPECT_GT(sum.looked_ahead, seeds) << "the lookahead was never asked for";
}

INSTANTIATE_TEST_SUITE_P(Seeds, Simulation, ::testing::Range(std::uint64_t{0}, kCases));

TEST(SimulationReplay, OneSeedGivesOneWorld) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    const World::Outcome first = World(seed).Run(300);
    const World::Outcome second = World(seed).Run(300);
    EXPECT_EQ(first.submits, second.submits);
    EXPECT_EQ(first.stops, second.stops);
    EXPECT_EQ(first.completed, second.completed);
  }
}

}  // namespace
}  // namespace gpushared::testing
