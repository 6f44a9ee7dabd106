// SPDX-License-Identifier: Apache-2.0
// Commands that run longer than predicted.
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scheduler/fifo_policy.h"
#include "scheduler/policy_catalog.h"
#include "tests/support/policy_timeline.h"

namespace gpushared::testing {
namespace {

using namespace std::chrono_literals;
using scheduler::Action;
using scheduler::ClientId;
using scheduler::Duration;
using scheduler::PolicyOptions;

constexpr Duration kUnit = 100us;
constexpr PolicyTimeline::Command kTaughtShort{
    .time = 12s, .unit = kUnit, .predicted = 54us, .stops_late = true};
constexpr PolicyTimeline::Command kShort{.time = 20us};

// All policies that stop work for a client of the same class.
class Outlived : public ::testing::TestWithParam<std::string> {
 protected:
  static std::unique_ptr<scheduler::Policy> Policy() {
    return scheduler::FindPolicy(GetParam())->make(PolicyOptions{});
  }
};
INSTANTIATE_TEST_SUITE_P(Policies, Outlived,
                         ::testing::Values("round_robin", "fair", "priority", "deadline"));

TEST_P(Outlived, ClientOfTheSameClassWaitsAtMostTwoSlicesAndAUnit) {
  PolicyTimeline timeline(Policy(), {});
  const ClientId liar = timeline.AddClient({.group = 1});
  const ClientId honest = timeline.AddClient({.group = 2});
  for (int i = 0; i < 8; ++i) timeline.Post(liar, kTaughtShort);
  timeline.RunFor(100us);
  const std::uint64_t waiting = timeline.Post(honest, kShort);
  timeline.RunFor(1s);

  ASSERT_TRUE(timeline.Latency(waiting)) << "it still waits";
  EXPECT_LE(*timeline.Latency(waiting), 2 * PolicyOptions{}.slice + kUnit + kShort.time);
  EXPECT_GT(timeline.CountStops(liar), 0u);
}

TEST_P(Outlived, EarlierCommandYieldsAfterSlice) {
  PolicyTimeline timeline(Policy(), {});
  const ClientId liar = timeline.AddClient({.group = 1});
  const ClientId honest = timeline.AddClient({.group = 2});
  timeline.Post(liar, kTaughtShort);
  timeline.RunFor(1s);
  const std::uint64_t waiting = timeline.Post(honest, kShort);
  timeline.RunFor(1s);

  ASSERT_TRUE(timeline.Latency(waiting));
  EXPECT_LE(*timeline.Latency(waiting), PolicyOptions{}.slice + kUnit + kShort.time);
}

TEST_P(Outlived, CommandsWithinTwiceTheirPredictionAreNotStopped) {
  PolicyTimeline timeline(Policy(), {});
  const ClientId first = timeline.AddBusyClient(
      {.group = 1}, {.time = 90us, .unit = 10us, .predicted = 50us, .stops_late = true});
  const ClientId second = timeline.AddBusyClient(
      {.group = 2}, {.time = 90us, .unit = 10us, .predicted = 50us, .stops_late = true});
  timeline.RunFor(50ms);

  EXPECT_GT(timeline.Completed(first), 200u);
  EXPECT_GT(timeline.Completed(second), 200u);
  EXPECT_EQ(timeline.CountStops(first) + timeline.CountStops(second), 0u);
}

TEST_P(Outlived, SharesAreThoseOfHonestClients) {
  PolicyTimeline timeline(Policy(), {});
  const ClientId liar = timeline.AddBusyClient(
      {.group = 1}, {.time = 30ms, .unit = kUnit, .predicted = 54us, .stops_late = true});
  const ClientId honest = timeline.AddBusyClient({.group = 2}, {.time = 1ms, .unit = kUnit});
  timeline.RunFor(2s);

  const double share = std::chrono::duration<double>(timeline.Held(honest)).count() / 2.0;
  EXPECT_GT(share, 0.40);
  EXPECT_GT(timeline.Completed(liar), 0u);
}

using OutlivedOfClass = Outlived;
INSTANTIATE_TEST_SUITE_P(Policies, OutlivedOfClass, ::testing::Values("priority", "deadline"));

TEST_P(OutlivedOfClass, LowerClassYieldsToHighClass) {
  PolicyTimeline timeline(Policy(), {});
  const ClientId low = timeline.AddClient({.scheduling_class = scheduler::SchedulingClass::kLow});
  const ClientId high = timeline.AddClient({.scheduling_class = scheduler::SchedulingClass::kHigh});
  timeline.Post(low, kTaughtShort);
  timeline.RunFor(10ms);
  const std::uint64_t request = timeline.Post(high, kShort);
  timeline.RunFor(1s);

  ASSERT_TRUE(timeline.Latency(request));
  EXPECT_LE(*timeline.Latency(request), 2 * kUnit + kShort.time);
}

// ---- the lane

constexpr ClientId kA{1}, kB{2};
constexpr scheduler::TimePoint kStart{};

std::unique_ptr<scheduler::DeviceLane> Lane() {
  auto lane = std::make_unique<scheduler::DeviceLane>(
      scheduler::FindPolicy("fair")->make(PolicyOptions{}), scheduler::LaneOptions{});
  lane->AddClient(kA, {}, kStart);
  lane->AddClient(kB, {}, kStart);
  return lane;
}

std::vector<std::uint64_t> Take(scheduler::DeviceLane& lane, Action::Kind kind,
                                scheduler::TimePoint now) {
  std::vector<std::uint64_t> commands;
  while (const auto action = lane.Next(now)) {
    if (action->kind == kind) commands.push_back(action->command);
  }
  return commands;
}

TEST(OutlivedLane, StopsAllWorkOfNamedStreamsLatestFirst) {
  const auto lane = Lane();
  for (const std::uint64_t command : {1, 2, 3, 4}) {
    lane->Enqueue(kA,
                  {.command = command,
                   .predicted = 50us,
                   .stream = static_cast<std::uint32_t>(command % 2),
                   .stops_late = true},
                  kStart);
  }
  EXPECT_EQ(Take(*lane, Action::Kind::kSubmit, kStart).size(), 4u);
  ASSERT_TRUE(lane->wake_at()) << "nothing else happens when it has outlived its prediction";
  EXPECT_THAT(Take(*lane, Action::Kind::kOutlived, kStart + 2ms), ::testing::ElementsAre(1, 2));
  lane->Enqueue(kB, {.command = 5, .predicted = 20us}, kStart + 2ms);
  EXPECT_THAT(Take(*lane, Action::Kind::kStop, kStart + 5ms), ::testing::ElementsAre(4, 3, 2, 1));
}

TEST(OutlivedLane, WorkBeforeUnstoppableWorkStaysUnstoppable) {
  const auto lane = Lane();
  lane->Enqueue(kA, {.command = 1, .predicted = 50us, .stops_late = true}, kStart);
  lane->Enqueue(kA, {.command = 2, .predicted = 50us}, kStart);
  EXPECT_EQ(Take(*lane, Action::Kind::kSubmit, kStart).size(), 2u);
  EXPECT_THAT(Take(*lane, Action::Kind::kOutlived, kStart + 1s), ::testing::IsEmpty());
  EXPECT_FALSE(lane->wake_at());
}

TEST(OutlivedLane, ChargesAddUpToTheTimeOnTheDevice) {
  const auto lane = Lane();
  lane->Enqueue(kA, {.command = 1, .predicted = 50us, .stops_late = true}, kStart);
  lane->Enqueue(kB, {.command = 2, .predicted = 20us, .stops_late = true}, kStart);
  EXPECT_EQ(Take(*lane, Action::Kind::kSubmit, kStart).size(), 2u);
  for (Duration after = 1ms; after < 20ms; after += 100us) {
    Take(*lane, Action::Kind::kOutlived, kStart + after);
  }
  const Duration first = lane->OnCompleted(1, kStart + 20ms).held;
  const Duration second = lane->OnCompleted(2, kStart + 30ms).held;
  EXPECT_EQ(first + second, 30ms);
  EXPECT_GT(first, 14ms) << "who outlived its prediction first pays for it";
  EXPECT_EQ(lane->window_used(), 0us);
}

TEST(OutlivedLane, CommandThatEndsInTimeSetsNoWakeUp) {
  const auto lane = Lane();
  lane->Enqueue(kA, {.command = 1, .predicted = 50us, .stops_late = true}, kStart);
  EXPECT_EQ(Take(*lane, Action::Kind::kSubmit, kStart).size(), 1u);
  lane->OnCompleted(1, kStart + 50us);
  EXPECT_THAT(Take(*lane, Action::Kind::kOutlived, kStart + 50us), ::testing::IsEmpty());
  EXPECT_FALSE(lane->wake_at());
}

}  // namespace
}  // namespace gpushared::testing
