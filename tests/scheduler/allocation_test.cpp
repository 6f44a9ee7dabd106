// SPDX-License-Identifier: Apache-2.0
// A decision allocates nothing. Counted by a replaced operator new, hence a program of
// its own.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "scheduler/device_lane.h"
#include "scheduler/policy_catalog.h"
#include "tests/support/allocation_count.h"

namespace gpushared::scheduler {
namespace {

using namespace std::chrono_literals;

class Allocation : public ::testing::TestWithParam<PolicyEntry> {};

TEST_P(Allocation, DecisionsStopsAndCompletionsAllocateNothing) {
  constexpr std::uint64_t kClients = 64;
  DeviceLane lane(GetParam().make({.slice = 100us, .low_floor = 0.1}), LaneOptions{});
  TimePoint now{};
  std::uint64_t last_command = 0;
  const auto enqueue = [&](ClientId client) {
    ++last_command;
    lane.Enqueue(client, {last_command, 7us, last_command % 2 == 0}, now);
  };
  for (std::uint64_t id = 1; id <= kClients; ++id) {
    lane.AddClient(ClientId{id}, {.scheduling_class = static_cast<SchedulingClass>(id % 3)}, now);
    for (int i = 0; i < 100; ++i) enqueue(ClientId{id});
  }

  std::vector<std::uint64_t> in_flight;
  in_flight.reserve(256);
  std::uint64_t submits = 0;
  const auto turn = [&] {
    now += 5us;
    if (!in_flight.empty()) {
      lane.OnCompleted(in_flight.front(), now);
      in_flight.erase(in_flight.begin());
    }
    while (const auto action = lane.Next(now)) {
      if (action->kind != Action::Kind::kSubmit) continue;
      ++submits;
      in_flight.push_back(action->command);
      enqueue(action->client);
    }
  };
  for (int i = 0; i < 1000; ++i) turn();

  const std::uint64_t before = testing::AllocationCount();
  for (int i = 0; i < 10'000; ++i) turn();

  EXPECT_EQ(testing::AllocationCount(), before);
  EXPECT_GT(submits, 5000u);
}

INSTANTIATE_TEST_SUITE_P(Catalog, Allocation,
                         ::testing::ValuesIn(PolicyCatalog().begin(), PolicyCatalog().end()),
                         [](const auto& each) { return std::string(each.param.name); });

}  // namespace
}  // namespace gpushared::scheduler
