// SPDX-License-Identifier: Apache-2.0
#include "scheduler/round_robin_policy.h"

#include <chrono>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/policy_timeline.h"

namespace gpushared::scheduler {
namespace {

using namespace std::chrono_literals;
using testing::PolicyTimeline;

std::unique_ptr<Policy> RoundRobin(Duration slice = 2ms) {
  return std::make_unique<RoundRobinPolicy>(PolicyOptions{.slice = slice});
}

TEST(RoundRobinPolicy, AllClientsGetEqualTime) {
  PolicyTimeline timeline(RoundRobin());
  const ClientId a = timeline.AddBusyClient({.weight = 7}, 500us);
  const ClientId b = timeline.AddBusyClient({.scheduling_class = SchedulingClass::kLow}, 100us);
  const ClientId c = timeline.AddBusyClient({}, 2ms);

  timeline.RunFor(600ms);

  EXPECT_EQ(timeline.Held(a), 200ms);
  EXPECT_EQ(timeline.Held(b), 200ms);
  EXPECT_EQ(timeline.Held(c), 200ms);
}

TEST(RoundRobinPolicy, AClientKeepsTheDeviceForItsWholeSlice) {
  PolicyTimeline timeline(RoundRobin());
  const ClientId a = timeline.AddBusyClient({}, 500us);
  const ClientId b = timeline.AddBusyClient({}, 500us);

  timeline.RunFor(7900us);

  std::vector<ClientId> order;
  for (const auto& logged : timeline.actions()) order.push_back(logged.action.client);
  EXPECT_EQ(order, (std::vector{a, a, a, a, b, b, b, b, a, a, a, a, b, b, b, b}));
}

TEST(RoundRobinPolicy, TheRunningCommandIsStoppedAtTheEndOfTheSlice) {
  PolicyTimeline timeline(RoundRobin());
  const ClientId a = timeline.AddBusyClient({}, {.time = 50ms, .unit = 100us});
  const ClientId b = timeline.AddBusyClient({}, {.time = 50ms, .unit = 100us});

  timeline.RunFor(400ms);

  EXPECT_EQ(timeline.Held(a), 200ms);
  EXPECT_EQ(timeline.Held(b), 200ms);
  EXPECT_GE(timeline.CountStops(a), 90u);
}

// All clients owe many slices, so the rounds that would pass over all of them are skipped.
TEST(RoundRobinPolicy, DebtsOfAllClientsCancelOut) {
  PolicyTimeline timeline(RoundRobin());
  const ClientId a = timeline.AddBusyClient({}, 40ms);
  const ClientId b = timeline.AddBusyClient({}, 60ms);
  const ClientId c = timeline.AddBusyClient({}, 90ms);

  timeline.RunFor(36s);

  for (const ClientId client : {a, b, c}) {
    EXPECT_NEAR(static_cast<double>(timeline.Held(client).count()), 12e9, 0.1e9);
  }
}

TEST(RoundRobinPolicy, TimeUsedAloneIsNoDebt) {
  PolicyTimeline timeline(RoundRobin());
  const ClientId early = timeline.AddBusyClient({}, 1ms);
  timeline.RunFor(10s);
  const Duration before = timeline.Held(early);

  const ClientId late = timeline.AddBusyClient({}, 1ms);
  timeline.RunFor(100ms);

  EXPECT_EQ(timeline.Held(late), 50ms);
  EXPECT_EQ(timeline.Held(early) - before, 50ms);
}

TEST(RoundRobinPolicy, IdleClientLosesDeviceAtOnce) {
  PolicyTimeline timeline(RoundRobin());
  const ClientId brief = timeline.AddClient({});
  const ClientId busy = timeline.AddBusyClient({}, 1ms);
  timeline.Post(brief, {.time = 100us});

  timeline.RunFor(1100us);

  EXPECT_EQ(timeline.Held(brief) + timeline.Held(busy), 1100us);
}

TEST(RoundRobinPolicy, NextClientWaitsForRemovedClientsWork) {
  PolicyTimeline timeline(RoundRobin(), {.window = 1s});
  const ClientId gone = timeline.AddClient({});
  timeline.Post(gone, {.time = 10ms});
  timeline.RunFor(1ms);
  const ClientId next = timeline.AddClient({});
  timeline.Post(next, {.time = 1ms});
  timeline.Remove(gone);

  timeline.RunFor(50ms);

  EXPECT_EQ(timeline.LastSubmit(next), TimePoint(10ms));
  EXPECT_EQ(timeline.Completed(next), 1u);
}

}  // namespace
}  // namespace gpushared::scheduler
