// SPDX-License-Identifier: Apache-2.0
// Random clients that oversubscribe the device's memory. GPUSHARED_MEMORY_STEPS=N runs N steps in
// total; GPUSHARED_MEMORY_SEED=N runs only seed N.

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include <gtest/gtest.h>

#include "tests/simulation/memory_world.h"

namespace gpushared::testing {
namespace {

constexpr std::uint64_t kStepsPerSeed = 10'000;

std::uint64_t MemoryNumber(const char* name, std::uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

TEST(MemorySimulation, LosesNoByteAndAllAccountsEndAtZero) {
  const std::uint64_t only = MemoryNumber("GPUSHARED_MEMORY_SEED", 0);
  const std::uint64_t seeds = MemoryNumber("GPUSHARED_MEMORY_STEPS", 100'000) / kStepsPerSeed;
  MemoryWorld::Outcome sum;
  for (std::uint64_t seed = only != 0 ? only : 1; seed <= (only != 0 ? only : seeds); ++seed) {
    const MemoryWorld::Outcome outcome = MemoryWorld(seed).Run(kStepsPerSeed);
    ASSERT_EQ(outcome.broken, "") << "replay: GPUSHARED_MEMORY_SEED=" << seed
                                  << " simulation_test --gtest_filter='MemorySimulation.*'";
    sum.launches += outcome.launches;
    sum.launches_by_page += outcome.launches_by_page;
    sum.beyond += outcome.beyond;
    sum.own_swaps += outcome.own_swaps;
    sum.quiet_swaps_in += outcome.quiet_swaps_in;
    sum.parked_out += outcome.parked_out;
    sum.wakes += outcome.wakes;
    sum.moves += outcome.moves;
    sum.cuts += outcome.cuts;
    sum.deaths += outcome.deaths;
    sum.rejected += outcome.rejected;
    sum.rooms += outcome.rooms;
    sum.failures += outcome.failures;
  }
  std::printf(
      "%llu launches (%llu by step, %llu of more than the device has), %llu moves (%llu out for "
      "their own client), %llu deaths, %llu rooms made, %llu rejected\n",
      static_cast<unsigned long long>(sum.launches),
      static_cast<unsigned long long>(sum.launches_by_page),
      static_cast<unsigned long long>(sum.beyond), static_cast<unsigned long long>(sum.moves),
      static_cast<unsigned long long>(sum.own_swaps), static_cast<unsigned long long>(sum.deaths),
      static_cast<unsigned long long>(sum.rooms), static_cast<unsigned long long>(sum.rejected));
  // Each kind of event must have occurred. Without these checks, a world in which nothing happens
  // would pass, too.
  EXPECT_GT(sum.launches, sum.launches_by_page);
  EXPECT_GT(sum.launches_by_page, 0u);
  EXPECT_GT(sum.beyond, 0u);
  EXPECT_GT(sum.own_swaps, 0u);
  EXPECT_GT(sum.quiet_swaps_in, 0u);
  EXPECT_GT(sum.parked_out, 0u);
  EXPECT_GT(sum.wakes, 0u);
  EXPECT_GT(sum.moves, 0u);
  EXPECT_GT(sum.cuts, 0u);
  EXPECT_GT(sum.rooms, 0u);
  EXPECT_GT(sum.rejected, 0u);
  EXPECT_GT(sum.failures, 0u);
}

}  // namespace
}  // namespace gpushared::testing
