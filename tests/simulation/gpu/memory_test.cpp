// SPDX-License-Identifier: Apache-2.0
#include "scheduler/sim/memory.h"

#include <chrono>

#include <gtest/gtest.h>

namespace gpushared::simulation {
namespace {

using namespace std::chrono_literals;

TEST(MemorySimulated, AGuaranteeWaitsForBytesAndNotForTurns) {
  const MemoryScenario scenario{.length = 1h};
  const MemoryReport ours = SimulateResidency(scenario);
  ASSERT_GT(ours.waits.size(), 20u);
  // 20 GiB at 25 GB/s take 0.86 s; besides it waits for a stop and a move that has begun.
  EXPECT_LE(ours.waits.back(), 870ms);
  const MemoryReport turns = SimulateWholeDeviceTurns(scenario);
  EXPECT_GT(turns.waits.back(), 30s);
}

TEST(MemorySimulated, LowClientsRunForNineTenthsOfTheTimeAndInTurn) {
  const MemoryReport report =
      SimulateResidency({.low_clients = 3, .high_every = 1000h, .length = 1h});
  EXPECT_GT(report.low_runs, 0.85);
  EXPECT_GT(report.least_runs, report.low_runs / 3 * 0.9);
}

}  // namespace
}  // namespace gpushared::simulation
