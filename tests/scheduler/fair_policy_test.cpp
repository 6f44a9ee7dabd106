// SPDX-License-Identifier: Apache-2.0
#include "scheduler/fair_policy.h"

#include <chrono>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/policy_timeline.h"

namespace gpushared::scheduler {
namespace {

using namespace std::chrono_literals;
using testing::PolicyTimeline;

std::unique_ptr<Policy> Fair(PolicyOptions options = {}) {
  return std::make_unique<FairPolicy>(options);
}

TEST(FairPolicy, SharesFollowWeightsWhenBothAreBusy) {
  PolicyTimeline timeline(Fair());
  const ClientId heavy = timeline.AddBusyClient({.weight = 3}, 1ms);
  const ClientId light = timeline.AddBusyClient({.weight = 1}, 1ms);

  timeline.RunFor(400ms);

  EXPECT_EQ(timeline.Held(heavy), 300ms);
  EXPECT_EQ(timeline.Held(light), 100ms);
}

// A user that opens more clients only divides the same share among more.
TEST(FairPolicy, GroupSharesTimeOfOneClient) {
  PolicyTimeline timeline(Fair());
  const ClientId alone = timeline.AddBusyClient({.group = 1000}, 1ms);
  std::vector<ClientId> crowd;
  for (int i = 0; i < 4; ++i) crowd.push_back(timeline.AddBusyClient({.group = 1001}, 1ms));
  const ClientId no_group = timeline.AddBusyClient({}, 1ms);

  timeline.RunFor(1200ms);

  EXPECT_EQ(timeline.Held(alone), 400ms);
  EXPECT_EQ(timeline.Held(no_group), 400ms);
  for (const ClientId client : crowd) EXPECT_EQ(timeline.Held(client), 100ms);
}

TEST(FairPolicy, AGroupHasTheWeightOfItsHeaviestClientAndSharesItByWeight) {
  PolicyTimeline timeline(Fair());
  const ClientId alone = timeline.AddBusyClient({.weight = 2, .group = 1000}, 1ms);
  const ClientId heavy = timeline.AddBusyClient({.weight = 4, .group = 1001}, 1ms);
  const ClientId light = timeline.AddBusyClient({.weight = 1, .group = 1001}, 1ms);

  timeline.RunFor(1500ms);

  EXPECT_NEAR(static_cast<double>(timeline.Held(alone).count()), 500e6, 2e6);
  EXPECT_NEAR(static_cast<double>(timeline.Held(heavy).count()), 800e6, 2e6);
  EXPECT_NEAR(static_cast<double>(timeline.Held(light).count()), 200e6, 2e6);

  timeline.Remove(heavy);
  const Duration before = timeline.Held(light);
  timeline.RunFor(900ms);
  EXPECT_NEAR(static_cast<double>((timeline.Held(light) - before).count()), 300e6, 2e6);
}

// Each client of the group is moved forward when it wakes, so without the group's account none
// would ever carry debt.
TEST(FairPolicy, AlternatelySleepingGroupGetsShareOfOneClient) {
  PolicyTimeline timeline(Fair());
  const ClientId honest = timeline.AddBusyClient({.group = 1000}, 1ms);
  std::vector<ClientId> crowd;
  for (int i = 0; i < 8; ++i) {
    crowd.push_back(timeline.AddBusyClient({.group = 1001}, 1ms));
    timeline.Sleep(crowd.back());
  }
  for (int i = 0; i < 1000; ++i) {
    const ClientId turn = crowd[static_cast<std::size_t>(i) % crowd.size()];
    timeline.Wake(turn);
    timeline.RunFor(2ms);
    timeline.Sleep(turn);
  }

  EXPECT_NEAR(static_cast<double>(timeline.Held(honest).count()), 1000e6, 10e6);
}

TEST(FairPolicy, ReturningGroupKeepsItsDebt) {
  PolicyTimeline timeline(Fair());
  const ClientId honest = timeline.AddBusyClient({.group = 1000}, 1ms);
  for (int i = 0; i < 100; ++i) {
    const ClientId visitor = timeline.AddClient({.group = 1001});
    timeline.Post(visitor, {.time = 8ms});
    timeline.RunFor(10ms);
    timeline.Remove(visitor);
  }

  EXPECT_GE(timeline.Held(honest), 490ms);
}

TEST(FairPolicy, LongWorkOfAGroupIsStoppedForAnotherOneAndForItsOwnClients) {
  PolicyTimeline timeline(Fair({.slice = 2ms}));
  const ClientId endless = timeline.AddBusyClient({.group = 1000}, {.time = 1s, .unit = 100us});
  const ClientId sibling = timeline.AddBusyClient({.group = 1000}, {.time = 1s, .unit = 100us});
  const ClientId other = timeline.AddBusyClient({.group = 1001}, {.time = 1s, .unit = 100us});

  timeline.RunFor(400ms);

  EXPECT_NEAR(static_cast<double>(timeline.Held(endless).count()), 100e6, 5e6);
  EXPECT_NEAR(static_cast<double>(timeline.Held(sibling).count()), 100e6, 5e6);
  EXPECT_NEAR(static_cast<double>(timeline.Held(other).count()), 200e6, 5e6);
}

// A wrong prediction may affect the order once, but shares follow the measured time.
TEST(FairPolicy, ShareIsByMeasuredNotByPredictedTime) {
  PolicyTimeline timeline(Fair());
  const ClientId liar = timeline.AddBusyClient({}, {.time = 4ms, .predicted = 1us});
  const ClientId honest = timeline.AddBusyClient({}, {.time = 1ms});

  timeline.RunFor(800ms);

  EXPECT_NEAR(static_cast<double>(timeline.Held(liar).count()), 400e6, 4e6);
  EXPECT_NEAR(static_cast<double>(timeline.Held(honest).count()), 400e6, 4e6);
}

// A new client that started at virtual time zero would own the device until it had caught up with
// its neighbour's earlier use.
TEST(FairPolicy, DoesNotCompensateNewClientForEarlierTime) {
  PolicyTimeline timeline(Fair());
  const ClientId early = timeline.AddBusyClient({}, 1ms);
  timeline.RunFor(10s);

  const ClientId late = timeline.AddBusyClient({}, 1ms);
  timeline.RunFor(100ms);

  EXPECT_EQ(timeline.Held(late), 50ms);
  EXPECT_EQ(timeline.Held(early), 10s + 50ms);
}

TEST(FairPolicy, DoesNotCompensateSleeperForSleepTime) {
  PolicyTimeline timeline(Fair());
  const ClientId busy = timeline.AddBusyClient({}, 1ms);
  const ClientId sleeper = timeline.AddBusyClient({}, 1ms);
  timeline.RunFor(2ms);
  timeline.Sleep(sleeper);
  timeline.RunFor(10s);
  const Duration before = timeline.Held(sleeper);

  timeline.Wake(sleeper);
  timeline.RunFor(100ms);

  EXPECT_EQ(timeline.Held(sleeper) - before, 50ms);
  EXPECT_EQ(timeline.Held(busy) + timeline.Held(sleeper), 10s + 102ms);
}

// Device time that a client has used beyond its share remains a debt while the client sleeps.
TEST(FairPolicy, SleepingDoesNotShedADebt) {
  PolicyTimeline timeline(Fair());
  const ClientId greedy = timeline.AddClient({});
  const ClientId patient = timeline.AddBusyClient({}, 1ms);
  timeline.RunFor(1ms);
  timeline.Post(greedy, {.time = 50ms});
  timeline.RunFor(60ms);
  const Duration before = timeline.Held(greedy);
  EXPECT_EQ(before, 50ms);

  const auto again = timeline.Post(greedy, {.time = 1ms});
  timeline.RunFor(100ms);

  // The client waits until the other client has used 50 ms, too.
  EXPECT_GE(*timeline.Latency(again), 40ms);
  EXPECT_GE(timeline.Held(patient), 100ms);
}

// Time used while no other client had work for the device does not become debt.
TEST(FairPolicy, TimeUsedAloneIsNoDebt) {
  PolicyTimeline timeline(Fair());
  const ClientId early = timeline.AddClient({});
  timeline.Post(early, {.time = 50ms});
  timeline.RunFor(60ms);
  timeline.AddBusyClient({}, 1ms);

  const auto again = timeline.Post(early, {.time = 1ms});
  timeline.RunFor(100ms);

  EXPECT_LE(*timeline.Latency(again), 2ms);
}

// Dividing a charge by the weight must not lose time: with 100 ns commands and weight 1000 a
// truncated share would be off by more than a tenth.
TEST(FairPolicy, ShortCommandsOfAHeavyClientAreCountedInFull) {
  PolicyTimeline timeline(Fair());
  const ClientId heavy = timeline.AddBusyClient({.weight = 999}, 107ns);
  const ClientId light = timeline.AddBusyClient({.weight = 333}, 107ns);

  timeline.RunFor(4ms);

  const double share = static_cast<double>(timeline.Held(heavy).count()) /
                       static_cast<double>((timeline.Held(heavy) + timeline.Held(light)).count());
  EXPECT_NEAR(share, 0.75, 0.001);
}

TEST(FairPolicy, AWeightChangedWhileRunningHoldsFromThenOn) {
  PolicyTimeline timeline(Fair());
  const ClientId changed = timeline.AddBusyClient({.weight = 1}, 1ms);
  const ClientId other = timeline.AddBusyClient({.weight = 1}, 1ms);
  timeline.RunFor(100ms);
  const Duration before = timeline.Held(changed);

  timeline.lane().ChangeClient(changed, {.weight = 3}, timeline.now());
  timeline.RunFor(400ms);

  EXPECT_NEAR(static_cast<double>((timeline.Held(changed) - before).count()), 300e6, 2e6);
  EXPECT_NEAR(static_cast<double>(timeline.Held(other).count()), 150e6, 2e6);
}

TEST(FairPolicy, PreemptsAtEndOfSliceForClientBelowItsShare) {
  PolicyTimeline timeline(Fair({.slice = 2ms}));
  const ClientId long_kernels = timeline.AddBusyClient({}, {.time = 20ms, .unit = 100us});
  timeline.RunFor(500us);
  const ClientId other = timeline.AddClient({});
  const auto command = timeline.Post(other, {.time = 1ms});

  timeline.RunFor(100ms);

  EXPECT_EQ(timeline.Latency(command), 1500us + 1ms);
  EXPECT_EQ(timeline.CountStops(long_kernels), 1u);
}

TEST(FairPolicy, AClientAloneIsNeverStopped) {
  PolicyTimeline timeline(Fair());
  const ClientId alone = timeline.AddBusyClient({}, {.time = 20ms, .unit = 100us});

  timeline.RunFor(1s);

  EXPECT_EQ(timeline.CountStops(alone), 0u);
  EXPECT_EQ(timeline.Held(alone), 1s);
}

TEST(FairPolicy, DoesNotPreemptForClientAboveItsShare) {
  PolicyTimeline timeline(Fair({.slice = 2ms}));
  const ClientId ahead = timeline.AddClient({});
  timeline.AddBusyClient({}, 1ms);
  timeline.Post(ahead, {.time = 100ms});
  timeline.RunFor(102ms);
  const ClientId behind = timeline.AddBusyClient({}, {.time = 20ms, .unit = 100us});
  timeline.AddClient({});
  timeline.Post(ahead, {.time = 1ms});

  timeline.RunFor(30ms);

  EXPECT_LE(timeline.CountStops(behind), 12u);  // For the busy neighbour, not for `ahead`.
  EXPECT_EQ(timeline.Completed(ahead), 1u);
}

// Two clients that queue one command of 1 ms at a time; `heavy` has ten times the weight.
class OneAtATime : public ::testing::Test {
 protected:
  OneAtATime() {
    policy_->OnClientAdded(heavy_, {.weight = 10}, now_);
    policy_->OnClientAdded(light_, {.weight = 1}, now_);
    policy_->OnReady(heavy_, kHead, now_);
    policy_->OnReady(light_, kHead, now_);
  }

  void Start(ClientId client) {
    const Decision decision = policy_->Pick(now_);
    ASSERT_EQ(decision.kind, Decision::Kind::kRun);
    ASSERT_EQ(decision.client, client);
    policy_->OnStarted(client, kHead, now_);
    policy_->OnIdle(client, now_);
  }
  void End(ClientId client) {
    now_ += 1ms;
    policy_->OnEnded(client, {.held = 1ms, .predicted = 1ms}, now_);
  }
  // Runs until both clients are equal and `heavy` has a running command.
  void RunBothOnce() {
    Start(heavy_);
    Start(light_);
    End(light_);
    policy_->OnReady(light_, kHead, now_);
    End(heavy_);
    policy_->OnReady(heavy_, kHead, now_);
    Start(heavy_);
  }

  static constexpr Head kHead{.predicted = 1ms};
  const std::unique_ptr<Policy> policy_ = Fair({.hold_off = 20us});
  const ClientId heavy_{1}, light_{2};
  TimePoint now_{1s};
};

TEST_F(OneAtATime, DelaysOthersForRunningClientBelowItsShare) {
  RunBothOnce();
  EXPECT_EQ(policy_->Pick(now_).kind, Decision::Kind::kWait);
  End(heavy_);
  policy_->OnReady(heavy_, kHead, now_);
  Start(heavy_);
}

TEST_F(OneAtATime, WaitsBrieflyForClientThatReturnsSoon) {
  RunBothOnce();
  End(heavy_);
  const Decision decision = policy_->Pick(now_);
  EXPECT_EQ(decision.kind, Decision::Kind::kWait);
  EXPECT_EQ(decision.reconsider_at, now_ + 20us);
  now_ += 19us;
  policy_->OnReady(heavy_, kHead, now_);
  Start(heavy_);
}

TEST_F(OneAtATime, DoesNotWaitAgainForAbsentClient) {
  RunBothOnce();
  End(heavy_);
  policy_->Pick(now_);
  now_ += 20us;
  Start(light_);
  now_ += 1ms;
  policy_->OnReady(heavy_, kHead, now_);
  Start(heavy_);
  End(light_);
  policy_->OnReady(light_, kHead, now_);
  End(heavy_);
  Start(light_);
}

TEST_F(OneAtATime, ClientThatUsesUpItsCreditDelaysNoOther) {
  RunBothOnce();
  // 1 ms of `light` at weight 1 equals 10 ms at weight 10, of which `heavy` has used 1 ms.
  const Decision decision = policy_->Pick(now_);
  EXPECT_EQ(decision.kind, Decision::Kind::kWait);
  ASSERT_TRUE(decision.reconsider_at);
  EXPECT_EQ(*decision.reconsider_at, now_ + 9ms + 1ns);
  now_ = *decision.reconsider_at;
  EXPECT_EQ(policy_->Pick(now_).kind, Decision::Kind::kRun);
}

TEST_F(OneAtATime, ShortCommandsAreNotWorthAWait) {
  RunBothOnce();
  now_ += 1us;
  policy_->OnEnded(heavy_, {.held = 1us, .predicted = 1ms}, now_);
  Start(light_);
}

}  // namespace
}  // namespace gpushared::scheduler
