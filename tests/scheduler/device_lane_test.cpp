// SPDX-License-Identifier: Apache-2.0
#include "scheduler/device_lane.h"

#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scheduler/fifo_policy.h"
#include "scheduler/priority_policy.h"

namespace gpushared::scheduler {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

constexpr ClientId kA{1}, kB{2}, kC{3};
constexpr TimePoint kStart{};

// A policy that returns the decisions that a test sets.
class ScriptedPolicy final : public Policy {
 public:
  LaneRules rules() const override { return rules_; }
  void OnClientAdded(ClientId, const ClientSpec&, TimePoint) override {}
  void OnClientChanged(ClientId, const ClientSpec&, TimePoint) override {}
  void OnClientRemoved(ClientId, TimePoint) override {}
  void OnReady(ClientId client, const Head& head, TimePoint) override {
    ready.push_back({client, head});
  }
  void OnIdle(ClientId client, TimePoint) override { idle.push_back(client); }
  void OnStarted(ClientId, const Head&, TimePoint) override {}
  void OnEnded(ClientId client, const Ended& end, TimePoint) override {
    ended.push_back({client, end});
  }
  Decision Pick(TimePoint) override {
    ++asked;
    if (decisions.empty()) return Decision::Wait();
    const Decision first = decisions.front();
    if (decisions.size() > 1 || !repeat_last) decisions.pop_front();
    return first;
  }

  LaneRules rules_;
  std::deque<Decision> decisions;
  bool repeat_last = false;
  int asked = 0;
  std::vector<std::pair<ClientId, Head>> ready;
  std::vector<ClientId> idle;
  std::vector<std::pair<ClientId, Ended>> ended;
};

struct ScriptedLane {
  explicit ScriptedLane(LaneOptions options = {}, LaneRules rules = {}) {
    auto owned = std::make_unique<ScriptedPolicy>();
    owned->rules_ = rules;
    policy = owned.get();
    lane = std::make_unique<DeviceLane>(std::move(owned), options);
    lane->AddClient(kA, {}, kStart);
    lane->AddClient(kB, {}, kStart);
  }

  void Enqueue(ClientId client, std::uint64_t command, Duration predicted = 1us,
               bool stoppable = false) {
    lane->Enqueue(client, {command, predicted, stoppable}, kStart);
  }
  // Calls Next until it returns no action. Returns the actions as command numbers, which are
  // negative for stops.
  std::vector<int> Actions(TimePoint now = kStart) {
    std::vector<int> all;
    while (const auto action = lane->Next(now)) {
      const int command = static_cast<int>(action->command);
      all.push_back(action->kind == Action::Kind::kStop ? -command : command);
    }
    return all;
  }

  ScriptedPolicy* policy;
  std::unique_ptr<DeviceLane> lane;
};

std::unique_ptr<DeviceLane> FifoLane(const LaneOptions& options) {
  auto lane = std::make_unique<DeviceLane>(std::make_unique<FifoPolicy>(), options);
  lane->AddClient(kA, {}, kStart);
  lane->AddClient(kB, {}, kStart);
  return lane;
}

std::size_t SubmitAll(DeviceLane& lane, TimePoint now = kStart) {
  std::size_t submitted = 0;
  while (const auto action = lane.Next(now)) {
    if (action->kind == Action::Kind::kSubmit) ++submitted;
  }
  return submitted;
}

TEST(DeviceLane, ThePredictedTimeOnTheDeviceStaysWithinTheWindow) {
  const auto lane = FifoLane({.window = 500us});
  for (std::uint64_t i = 1; i <= 10; ++i) lane->Enqueue(kA, {i, 120us, false}, kStart);

  EXPECT_EQ(SubmitAll(*lane), 4u);
  EXPECT_EQ(lane->window_used(), 480us);
  lane->OnCompleted(1, kStart + 120us);
  EXPECT_EQ(SubmitAll(*lane, kStart + 120us), 1u);
}

TEST(DeviceLane, OneCommandLongerThanTheWindowMayStillRun) {
  const auto lane = FifoLane({.window = 500us});
  lane->Enqueue(kA, {1, 20ms, false}, kStart);
  lane->Enqueue(kB, {2, 20ms, false}, kStart);

  EXPECT_EQ(SubmitAll(*lane), 1u);
  lane->OnCompleted(1, kStart + 20ms);
  EXPECT_EQ(SubmitAll(*lane, kStart + 20ms), 1u);
}

TEST(DeviceLane, ClientAloneHasOneMoreLongCommandOnDevice) {
  const auto lane = FifoLane({.window = 500us});
  lane->RemoveClient(kB, kStart);
  for (std::uint64_t i = 1; i <= 4; ++i) lane->Enqueue(kA, {i, 20ms, false}, kStart);

  EXPECT_EQ(SubmitAll(*lane), 2u);
  lane->AddClient(kB, {}, kStart);
  lane->OnCompleted(1, kStart + 20ms);
  EXPECT_EQ(SubmitAll(*lane, kStart + 20ms), 0u);
}

TEST(DeviceLane, LongCommandsRunConcurrentlyIfConfigured) {
  const auto lane = FifoLane({.window = 500us, .beyond_window_max = 2});
  for (std::uint64_t i = 1; i <= 3; ++i) lane->Enqueue(kA, {i, 20ms, false}, kStart);

  EXPECT_EQ(SubmitAll(*lane), 2u);
}

TEST(DeviceLane, StoppableCommandFollowsAnotherIfStopsChain) {
  for (const bool chains : {true, false}) {
    const auto lane = FifoLane({.window = 500us, .chains_stops = chains});
    for (std::uint64_t i = 1; i <= 3; ++i) lane->Enqueue(kA, {i, 400us, true, 7}, kStart);
    EXPECT_EQ(SubmitAll(*lane), chains ? 2u : 1u);
  }
  for (const LaneCommand& next :
       {LaneCommand{2, 400us, false, 7}, LaneCommand{2, 400us, true, 8}}) {
    const auto lane = FifoLane({.window = 500us, .chains_stops = true});
    lane->Enqueue(kA, {1, 400us, true, 7}, kStart);
    lane->Enqueue(kA, next, kStart);
    EXPECT_EQ(SubmitAll(*lane), 1u);
  }
  const auto lane = FifoLane({.window = 500us, .chains_stops = true});
  lane->Enqueue(kA, {1, 400us, true, 7}, kStart);
  lane->Enqueue(kB, {2, 400us, true, 7}, kStart);
  EXPECT_EQ(SubmitAll(*lane), 1u) << "a stream of another client";
}

TEST(DeviceLane, NoMoreCommandsAreOnTheDeviceThanAllowed) {
  const auto lane = FifoLane({.in_flight_max = 3});
  for (std::uint64_t i = 1; i <= 10; ++i) lane->Enqueue(kA, {i, 1ns, false}, kStart);

  EXPECT_EQ(SubmitAll(*lane), 3u);
  EXPECT_EQ(lane->in_flight_count(), 3u);
}

TEST(DeviceLane, TheHighClassIsNotHeldBackByTheWindow) {
  DeviceLane lane(std::make_unique<PriorityPolicy>(PolicyOptions{}),
                  {.high_in_flight_max = 5, .window = 500us});
  lane.AddClient(kA, {.scheduling_class = SchedulingClass::kHigh}, kStart);
  for (std::uint64_t i = 1; i <= 10; ++i) lane.Enqueue(kA, {i, 5ms, false}, kStart);

  EXPECT_EQ(SubmitAll(lane), 5u);
  EXPECT_EQ(lane.window_used(), 0ns);
}

// Low work on the device must not use up the high class's limit.
TEST(DeviceLane, HighClassHasItsOwnInFlightLimit) {
  DeviceLane lane(std::make_unique<PriorityPolicy>(PolicyOptions{}),
                  {.in_flight_max = 2, .high_in_flight_max = 3});
  lane.AddClient(kA, {.scheduling_class = SchedulingClass::kLow}, kStart);
  lane.AddClient(kB, {.scheduling_class = SchedulingClass::kHigh}, kStart);
  for (std::uint64_t i = 1; i <= 5; ++i) lane.Enqueue(kA, {i, 1us, false}, kStart);
  EXPECT_EQ(SubmitAll(lane), 2u);
  for (std::uint64_t i = 11; i <= 15; ++i) lane.Enqueue(kB, {i, 1us, false}, kStart);

  EXPECT_EQ(SubmitAll(lane), 3u);
}

// kA is a low client whose commands take 10 us unless stated otherwise. kB is an idle high client.
class Lookahead : public ::testing::Test {
 protected:
  static constexpr ClientSpec kHighSpec{.scheduling_class = SchedulingClass::kHigh};
  static constexpr ClientSpec kLowSpec{.scheduling_class = SchedulingClass::kLow};

  Lookahead() {
    lane_.AddClient(kA, kLowSpec, kStart);
    lane_.AddClient(kB, kHighSpec, kStart);
  }
  void Enqueue(int count, Duration predicted = 10us, std::uint32_t stream = 0) {
    for (int i = 0; i < count; ++i) {
      lane_.Enqueue(kA, {++last_command_, predicted, false, stream}, kStart);
    }
  }

  DeviceLane lane_{std::make_unique<PriorityPolicy>(PolicyOptions{.hold_off = 0us})};
  std::uint64_t last_command_ = 0;
};

TEST_F(Lookahead, OnlyWindowLimitsDeviceWorkUntilLaunchBubbleIsKnown) {
  Enqueue(60);
  EXPECT_EQ(SubmitAll(lane_), 50u);
  EXPECT_EQ(lane_.lookahead(), 500us);
}

TEST_F(Lookahead, QueuedWorkIsAtMostTwoLaunchBubblesNextToHighClient) {
  lane_.SetLaunchBubble(20us);
  Enqueue(60);
  EXPECT_EQ(lane_.lookahead(), 40us);
  EXPECT_EQ(SubmitAll(lane_), 1u + 4u);
  lane_.OnCompleted(1, kStart + 10us);
  EXPECT_EQ(SubmitAll(lane_, kStart + 10us), 1u);
}

TEST_F(Lookahead, LongRunningCommandDoesNotDelaySubmissionOfNextOnes) {
  lane_.SetLaunchBubble(20us);
  Enqueue(1, 300us);
  Enqueue(1, 90us);
  Enqueue(1);
  EXPECT_EQ(SubmitAll(lane_), 2u) << "the second one alone keeps the device busy";
  lane_.OnCompleted(1, kStart + 300us);
  EXPECT_EQ(SubmitAll(lane_, kStart + 300us), 1u);
}

TEST_F(Lookahead, TheWindowStaysABound) {
  lane_.SetLaunchBubble(400us);
  EXPECT_EQ(lane_.lookahead(), 500us);
  lane_.SetLaunchBubble(Duration::max());
  EXPECT_EQ(lane_.lookahead(), 500us);
  lane_.SetLaunchBubble(200us);
  Enqueue(4, 180us);
  EXPECT_EQ(SubmitAll(lane_), 2u);
}

TEST_F(Lookahead, IsNeverTooShortToMatter) {
  lane_.SetLaunchBubble(1us);
  EXPECT_EQ(lane_.lookahead(), 20us);
}

TEST_F(Lookahead, StreamsRunSideBySideAndEachIsKeptBusy) {
  lane_.SetLaunchBubble(20us);
  for (int i = 0; i < 10; ++i) {
    Enqueue(1, 10us, 1);
    Enqueue(1, 10us, 2);
  }
  EXPECT_EQ(SubmitAll(lane_), 2u * 5u);
}

TEST_F(Lookahead, EachClientsStreamsAreItsOwn) {
  lane_.SetLaunchBubble(20us);
  lane_.AddClient(kC, kLowSpec, kStart);
  Enqueue(10);
  for (std::uint64_t i = 101; i <= 110; ++i) lane_.Enqueue(kC, {i, 10us, false, 0}, kStart);
  EXPECT_EQ(SubmitAll(lane_), 2u * 5u);
}

TEST_F(Lookahead, WhatIsAllowedLaterIsSubmittedAtOnce) {
  lane_.SetLaunchBubble(10us);
  Enqueue(60);
  EXPECT_EQ(SubmitAll(lane_), 1u + 2u);
  lane_.SetLaunchBubble(20us);
  EXPECT_EQ(SubmitAll(lane_), 2u);
  lane_.RemoveClient(kB, kStart);
  EXPECT_EQ(SubmitAll(lane_), 45u) << "nobody waits any more";
}

TEST_F(Lookahead, AppliesForHighClassAndClientsWithTarget) {
  lane_.SetLaunchBubble(20us);
  lane_.ChangeClient(kB, kLowSpec, kStart);
  EXPECT_EQ(lane_.lookahead(), 500us);
  lane_.ChangeClient(kB, {.latency_target = 10ms}, kStart);
  EXPECT_EQ(lane_.lookahead(), 40us);
  lane_.ChangeClient(kB, kHighSpec, kStart);
  lane_.ChangeClient(kB, kHighSpec, kStart);
  EXPECT_EQ(lane_.lookahead(), 40us);
  lane_.RemoveClient(kB, kStart);
  EXPECT_EQ(lane_.lookahead(), 500us);
}

TEST_F(Lookahead, DoesNotLimitHighClass) {
  lane_.SetLaunchBubble(20us);
  for (std::uint64_t i = 101; i <= 160; ++i) lane_.Enqueue(kB, {i, 10us, false}, kStart);
  EXPECT_EQ(SubmitAll(lane_), 60u);
}

TEST_F(Lookahead, OnlyTheWindowAppliesIfClassesDoNotMatter) {
  const auto lane = FifoLane({});
  lane->ChangeClient(kB, kHighSpec, kStart);
  lane->SetLaunchBubble(20us);
  EXPECT_EQ(lane->lookahead(), 500us);
}

TEST(DeviceLane, RunsOneClientAtATimeIfConfigured) {
  ScriptedLane lane({}, {.one_client_at_a_time = true});
  lane.Enqueue(kA, 1);
  lane.Enqueue(kA, 2);
  lane.Enqueue(kB, 3);
  lane.policy->decisions = {Decision::Run(kA), Decision::Run(kA), Decision::Run(kB)};
  lane.policy->repeat_last = true;

  EXPECT_THAT(lane.Actions(), ElementsAre(1, 2));
  lane.lane->OnCompleted(2, kStart);
  EXPECT_THAT(lane.Actions(), IsEmpty());
  lane.lane->OnCompleted(1, kStart);
  lane.policy->repeat_last = false;
  EXPECT_THAT(lane.Actions(), ElementsAre(3));
}

TEST(DeviceLane, ReturnsStopOncePerCommand) {
  ScriptedLane lane;
  lane.Enqueue(kA, 1, 1us, true);
  lane.Enqueue(kA, 2, 1us, true);
  lane.Enqueue(kA, 3, 1us, false);
  lane.policy->decisions = {Decision::Run(kA), Decision::Run(kA), Decision::Run(kA),
                            Decision::Stop(kA)};

  const auto actions = lane.Actions();

  EXPECT_THAT(actions, ElementsAre(1, 2, 3, -2, -1));
  lane.policy->decisions = {Decision::Stop(kA)};
  lane.lane->OnCompleted(3, kStart);
  EXPECT_DEATH(lane.Actions(), "nothing to stop");
}

// If an earlier command is stopped first, the device begins a later one in its place.
TEST(DeviceLane, StopsLatestCommandFirstEvenAfterOthersEnd) {
  ScriptedLane lane;
  for (const std::uint64_t command : {1, 2, 3, 4}) lane.Enqueue(kA, command, 1us, true);
  lane.policy->decisions = std::deque<Decision>(4, Decision::Run(kA));
  EXPECT_THAT(lane.Actions(), ElementsAre(1, 2, 3, 4));

  lane.lane->OnCompleted(1, kStart);
  lane.policy->decisions = {Decision::Stop(kA)};

  EXPECT_THAT(lane.Actions(), ElementsAre(-4, -3, -2));
}

TEST(DeviceLane, DropsStopOfEndedCommand) {
  ScriptedLane lane;
  lane.Enqueue(kA, 1, 1us, true);
  lane.Enqueue(kA, 2, 1us, true);
  lane.policy->decisions = {Decision::Run(kA), Decision::Run(kA)};
  EXPECT_THAT(lane.Actions(), ElementsAre(1, 2));
  lane.policy->decisions = {Decision::Stop(kA)};
  lane.Enqueue(kB, 3);
  ASSERT_EQ(lane.lane->Next(kStart)->command, 2u);

  lane.lane->OnCompleted(1, kStart);

  EXPECT_THAT(lane.Actions(), IsEmpty());
  EXPECT_TRUE(lane.policy->ended.back().second.stop_asked);
}

TEST(DeviceLane, RemainderOfStoppedCommandPrecedesOtherWorkOfItsClient) {
  const auto lane = FifoLane({.in_flight_max = 1});
  for (std::uint64_t i = 1; i <= 3; ++i) lane->Enqueue(kA, {i, 1us, true}, kStart);
  lane->Enqueue(kB, {9, 1us, true}, kStart);
  ASSERT_EQ(lane->Next(kStart)->command, 1u);
  lane->OnCompleted(1, kStart);

  lane->EnqueueFront(kA, {1, 1us, true}, kStart);

  EXPECT_EQ(lane->Next(kStart)->command, 1u);
}

TEST(DeviceLane, ReportsEachHeadToPolicy) {
  ScriptedLane lane;
  lane.Enqueue(kA, 1, 5us, true);
  lane.Enqueue(kA, 2, 7us, false);
  lane.policy->decisions = {Decision::Run(kA), Decision::Run(kA)};
  lane.Actions();

  ASSERT_EQ(lane.policy->ready.size(), 2u);
  EXPECT_EQ(lane.policy->ready[0].second.predicted, 5us);
  EXPECT_TRUE(lane.policy->ready[0].second.stoppable);
  EXPECT_EQ(lane.policy->ready[1].second.predicted, 7us);
  EXPECT_FALSE(lane.policy->ready[1].second.stoppable);
  EXPECT_LT(lane.policy->ready[0].second.arrival, lane.policy->ready[1].second.arrival);
  EXPECT_THAT(lane.policy->idle, ElementsAre(kA));
}

TEST(DeviceLane, ARemovedClientIsNeverSubmittedAgainAndItsWorkIsReported) {
  const auto lane = FifoLane({.in_flight_max = 2});
  for (std::uint64_t i = 1; i <= 4; ++i) lane->Enqueue(kA, {i, 1us, true}, kStart);
  lane->Enqueue(kB, {9, 1us, true}, kStart);
  EXPECT_EQ(SubmitAll(*lane), 2u);

  EXPECT_THAT(lane->RemoveClient(kA, kStart), UnorderedElementsAre(1, 2));
  EXPECT_FALSE(lane->Next(kStart));
  const Charge charge = lane->OnCompleted(2, kStart + 3us);

  EXPECT_EQ(charge.client, kA);
  EXPECT_TRUE(charge.stop_asked);
  EXPECT_EQ(lane->Next(kStart + 3us)->command, 9u);
  lane->OnCompleted(1, kStart + 5us);
  EXPECT_FALSE(lane->Next(kStart + 5us));
}

TEST(DeviceLane, DoesNotReportRemovedClientsWorkToPolicy) {
  ScriptedLane lane;
  lane.Enqueue(kA, 1, 1us, true);
  lane.policy->decisions = {Decision::Run(kA), Decision::Stop(kA)};
  ASSERT_EQ(lane.lane->Next(kStart)->command, 1u);

  lane.lane->RemoveClient(kA, kStart);
  lane.policy->decisions.clear();
  EXPECT_THAT(lane.Actions(), IsEmpty());
  lane.lane->OnCompleted(1, kStart);

  EXPECT_THAT(lane.policy->ended, IsEmpty());
}

TEST(DeviceLane, DropsStopsOfRemovedClient) {
  ScriptedLane lane;
  lane.Enqueue(kA, 1, 1us, true);
  lane.Enqueue(kA, 2, 1us, true);
  lane.policy->decisions = {Decision::Run(kA), Decision::Run(kA)};
  EXPECT_THAT(lane.Actions(), ElementsAre(1, 2));
  lane.policy->decisions = {Decision::Stop(kA)};
  lane.Enqueue(kB, 3);
  ASSERT_EQ(lane.lane->Next(kStart)->kind, Action::Kind::kStop);

  lane.lane->RemoveClient(kA, kStart);

  EXPECT_THAT(lane.Actions(), IsEmpty());
}

TEST(DeviceLane, DroppedCommandsAreNotSubmitted) {
  const auto lane = FifoLane({});
  for (std::uint64_t i = 1; i <= 4; ++i) lane->Enqueue(kA, {i, 1us, false}, kStart);

  EXPECT_THAT(lane->Drop(
                  kA, [](std::uint64_t command) { return command != 3; }, kStart),
              ElementsAre(1, 2, 4));

  EXPECT_EQ(lane->Next(kStart)->command, 3u);
  EXPECT_FALSE(lane->Next(kStart));
}

TEST(DeviceLane, AWaitDecisionWakesTheLaneAtItsTime) {
  ScriptedLane lane;
  lane.Enqueue(kA, 1);
  lane.policy->decisions = {Decision::Wait(kStart + 20us), Decision::Run(kA)};

  EXPECT_THAT(lane.Actions(), IsEmpty());
  EXPECT_EQ(lane.lane->wake_at(), kStart + 20us);
  EXPECT_THAT(lane.Actions(kStart + 19us), IsEmpty());
  EXPECT_THAT(lane.Actions(kStart + 20us), ElementsAre(1));
}

TEST(DeviceLane, DoesNotCallThePolicyAgainWhileNothingHappens) {
  ScriptedLane lane;
  EXPECT_THAT(lane.Actions(), IsEmpty());
  const int asked = lane.policy->asked;

  for (int i = 0; i < 10; ++i) EXPECT_THAT(lane.Actions(kStart + i * 1ms), IsEmpty());
  EXPECT_EQ(lane.policy->asked, asked);

  lane.Enqueue(kA, 1);
  EXPECT_THAT(lane.Actions(), IsEmpty());
  EXPECT_EQ(lane.policy->asked, asked + 1);
}

TEST(DeviceLane, WakesAtTheReconsiderTimeOfARejectedRun) {
  ScriptedLane lane({.in_flight_max = 1});
  lane.Enqueue(kA, 1, 1us, true);
  lane.Enqueue(kB, 2);
  lane.policy->decisions = {Decision::Run(kA), Decision::Run(kB, kStart + 2ms), Decision::Stop(kA)};

  EXPECT_THAT(lane.Actions(), ElementsAre(1));
  EXPECT_EQ(lane.lane->wake_at(), kStart + 2ms);
  EXPECT_THAT(lane.Actions(kStart + 2ms), ElementsAre(-1));
}

TEST(DeviceLane, ReportsDeviceTimeOfRunningCommands) {
  const auto lane = FifoLane({});
  lane->Enqueue(kA, {1, 100us, false}, kStart);
  lane->Enqueue(kB, {2, 300us, false}, kStart);
  SubmitAll(*lane);
  const auto held = [&](TimePoint now) {
    std::map<std::uint64_t, Duration> each;
    lane->ForEachHeld(now, [&](std::uint64_t command, Duration time) { each[command] = time; });
    return each;
  };

  EXPECT_THAT(held(kStart + 200us), ElementsAre(Pair(1, 50us), Pair(2, 150us)));
  EXPECT_EQ(lane->BusyUntil(kStart + 200us), 200us);
  EXPECT_EQ(lane->OnCompleted(1, kStart + 200us).held, 50us) << "looking changes nothing";
  EXPECT_THAT(held(kStart + 300us), ElementsAre(Pair(2, 250us)));
  lane->OnCompleted(2, kStart + 450us);
  EXPECT_EQ(lane->BusyUntil(kStart + 900us), 450us);
}

TEST(DeviceLane, DoesNotChargeHostSteal) {
  const auto lane = FifoLane({});
  lane->Enqueue(kA, {1, 100us, false}, kStart);
  SubmitAll(*lane);
  lane->SetHostSteal(80ms);

  EXPECT_EQ(lane->OnCompleted(1, kStart + 80ms + 120us).held, 120us);
}

TEST(DeviceLaneDeathTest, InvalidCallsEndProcess) {
  ScriptedLane lane;
  lane.policy->decisions = {Decision::Run(kA)};
  EXPECT_DEATH(lane.Actions(), "not ready");
  lane.policy->decisions = {Decision::Run(ClientId{77})};
  EXPECT_DEATH(lane.Actions(), "unknown client");
  lane.policy->decisions = {Decision::Stop(kA)};
  EXPECT_DEATH(lane.Actions(), "nothing to stop");
  lane.policy->decisions = {Decision::Wait(kStart)};
  EXPECT_DEATH(lane.Actions(), "again at once");
  EXPECT_DEATH(lane.lane->OnCompleted(5, kStart), "not in flight");
  EXPECT_DEATH(lane.lane->AddClient(ClientId{3}, {.weight = 0}, kStart), "weight");
  EXPECT_DEATH(lane.lane->Enqueue(ClientId{77}, {}, kStart), "unknown client");
}

}  // namespace
}  // namespace gpushared::scheduler
