// SPDX-License-Identifier: Apache-2.0
#include "scheduler/sim/memory.h"

#include <chrono>

#include <gtest/gtest.h>

namespace gpushared::simulation {
namespace {

using namespace std::chrono_literals;

TEST(MemorySimulated, GuaranteeWaitsForSwapsButNotForResidencyPeriods) {
  const MemoryScenario scenario{.length = 1h};
  const MemoryReport ours = SimulateResidency(scenario);
  ASSERT_GT(ours.waits.size(), 20u);
  // 20 GiB at 25 GB/s take 0.86 s. The client also waits for a stop and for a swap in progress.
  EXPECT_LE(ours.waits.back(), 870ms);
  const MemoryReport turns = SimulateWholeDeviceTurns(scenario);
  EXPECT_GT(turns.waits.back(), 30s);
}

TEST(MemorySimulated, PageFaultsThrashIfMemoryIsOversubscribed) {
  MemoryScenario scenario{.length = 1h};
  const MemoryReport faults = SimulatePageFaults(scenario);
  EXPECT_LT(faults.low_runs, SimulateWholeDeviceTurns(scenario).low_runs);
  EXPECT_GT(faults.waits.front(), SimulateResidency(scenario).waits.back());
  // A pass over 48 GiB swaps 48 GiB in and 48 GiB out, for each of the two.
  EXPECT_NEAR(faults.least_runs, 1 / (1 + 4 * 48 * 1.073741824 / 25), 0.001);
  EXPECT_NEAR(faults.low_runs, 2 * faults.least_runs, 1e-9) << "one computes while one waits";
  EXPECT_NEAR(faults.moved_bytes, 25e9 * 3600, 1) << "the link never rests";
  // The third client's 20 GiB share the link with the traffic of the other two. It arrives after 60
  // s and stays for 10 s.
  EXPECT_NEAR(std::chrono::duration<double>(faults.waits.front()).count(),
              3 * 20 * 1.073741824 / 25, 0.001);
  EXPECT_EQ(faults.waits.size(), 49u);
  EXPECT_EQ(faults.waits.front(), faults.waits.back());
  scenario.low_part = 0.5;
  const MemoryReport fitting = SimulatePageFaults(scenario);
  EXPECT_EQ(fitting.low_runs, 1);
  EXPECT_EQ(fitting.moved_bytes, 0);
}

TEST(MemorySimulated, LowClientsRunForNineTenthsOfTheTimeAndInTurn) {
  const MemoryReport report =
      SimulateResidency({.low_clients = 3, .high_every = 1000h, .length = 1h});
  EXPECT_GT(report.low_runs, 0.85);
  EXPECT_GT(report.least_runs, report.low_runs / 3 * 0.9);
}

// With paging, the part that each client works on is resident, and no client waits for all of
// another client's memory.
TEST(MemorySimulated, ClientsThatWorkInPartsRunLongerAndSwapLess) {
  MemoryScenario scenario{.low_clients = 3, .high_every = 1000h, .length = 1h};
  const MemoryReport whole = SimulateResidency(scenario);
  scenario.low_parts = 10;
  const MemoryReport by_page = SimulateResidency(scenario);
  EXPECT_GT(by_page.low_runs, 0.99);
  EXPECT_GT(by_page.least_runs, 0.3);
  EXPECT_LT(by_page.moved_bytes, whole.moved_bytes);
}

}  // namespace
}  // namespace gpushared::simulation
