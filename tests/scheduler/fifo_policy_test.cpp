// SPDX-License-Identifier: Apache-2.0
#include "scheduler/fifo_policy.h"

#include <chrono>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/policy_timeline.h"

namespace gpushared::scheduler {
namespace {

using namespace std::chrono_literals;
using testing::PolicyTimeline;

TEST(FifoPolicy, RunsCommandsOfAllClientsInOrderOfArrival) {
  PolicyTimeline timeline(std::make_unique<FifoPolicy>());
  const ClientId a = timeline.AddClient({.scheduling_class = SchedulingClass::kLow});
  const ClientId b = timeline.AddClient({.scheduling_class = SchedulingClass::kHigh});
  std::vector<std::uint64_t> posted;
  for (const ClientId client : {a, a, b, a, b, b, a}) {
    posted.push_back(timeline.Post(client, {.time = 1ms}));
  }

  timeline.RunFor(1s);

  std::vector<std::uint64_t> submitted;
  for (const auto& logged : timeline.actions()) submitted.push_back(logged.action.command);
  EXPECT_EQ(submitted, posted);
}

TEST(FifoPolicy, AHighClassCommandWaitsForAllThatCameBefore) {
  PolicyTimeline timeline(std::make_unique<FifoPolicy>());
  const ClientId low = timeline.AddClient({.scheduling_class = SchedulingClass::kLow});
  const ClientId high = timeline.AddClient({.scheduling_class = SchedulingClass::kHigh});
  timeline.Post(low, {.time = 20ms, .unit = 100us});
  const auto command = timeline.Post(high, {.time = 1ms});

  timeline.RunFor(1s);

  EXPECT_EQ(timeline.Latency(command), 21ms);
  EXPECT_EQ(timeline.CountStops(low), 0u);
}

}  // namespace
}  // namespace gpushared::scheduler
