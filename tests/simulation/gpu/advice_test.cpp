// SPDX-License-Identifier: Apache-2.0
#include "scheduler/sim/advice.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scheduler/sim/advice_report.h"

#include <nlohmann/json.hpp>

namespace gpushared::simulation {
namespace {

using namespace std::chrono_literals;
using scheduler::SchedulingClass;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Returns requests of `kernels` kernels at equal intervals.
Profile Server(const std::string& name, double every_ms, std::size_t kernels, double us,
               std::chrono::milliseconds target) {
  Profile profile{.name = name,
                  .spec = {.scheduling_class = SchedulingClass::kHigh, .latency_target = target},
                  .pace = Profile::Pace::kOpen};
  profile.kernels = {{.name = "k"}};
  for (std::size_t i = 0; i < 200; ++i) {
    Profile::Request request{.at_ms = every_ms * static_cast<double>(i), .steps = {}};
    request.steps.assign(kernels, {.us = us, .after_us = {}});
    profile.requests.push_back(request);
  }
  return profile;
}

Profile Training(SchedulingClass of_class, double us) {
  Profile profile{.name = "train", .spec = {.scheduling_class = of_class}};
  profile.kernels = {{.name = "k"}};
  profile.requests = {{.steps = std::vector<Profile::Step>(50, {.us = us, .after_us = {}})}};
  return profile;
}

Node Device(const std::string& policy, std::vector<Profile> clients) {
  Node node{.name = "cpu:0", .policy = policy, .costs = {.samples = 100, .stops = 10}};
  node.clients = std::move(clients);
  return node;
}

constexpr AdviceOptions kOnce{.seeds = 1};

TEST(Advice, TrainingFitsInLowerClassButNotInSameClass) {
  const Node node = Device("priority", {Server("serve", 40, 8, 1000, 20ms)});
  const Advice below = Advise(node, Training(SchedulingClass::kLow, 5000), kOnce);
  EXPECT_TRUE(below.fits());
  EXPECT_EQ(below.certainty, Advice::Certainty::kSure) << below.doubts.front();
  EXPECT_NEAR(below.clients.at(0).p99_ms, 8.5, 0.7);
  EXPECT_NEAR(below.gap_percent, 79, 3);
  EXPECT_NEAR(below.lower_percent, 79, 3);

  // On the cpu device a request waits for all earlier work, and then has the device alone.
  const Profile train = Training(SchedulingClass::kHigh, 5000);
  EXPECT_THAT(Advise(node, train, kOnce).reasons,
              ElementsAre(HasSubstr("serve would meet its target of 20.0 ms for 0.00%")));
  // On a GPU the request's kernels alternate with the other client's: 8 times 6 ms in 40 ms.
  Node gpu = node;
  gpu.kind = "cuda";
  EXPECT_THAT(Advise(gpu, train, kOnce).reasons, ElementsAre(HasSubstr("serve would fall behind")));
}

TEST(Advice, LongKernelsWithoutClassesMissTarget) {
  const Profile train = Training(SchedulingClass::kLow, 30'000);
  EXPECT_FALSE(Advise(Device("fifo", {Server("serve", 40, 8, 1000, 25ms)}), train, kOnce).fits());
  EXPECT_TRUE(
      Advise(Device("priority", {Server("serve", 40, 8, 1000, 25ms)}), train, kOnce).fits());
}

TEST(Advice, ReportsTargetThatIsAlreadyMissed) {
  const Node node = Device("priority", {Server("serve", 40, 8, 1000, 5ms)});
  const Advice advice = Advise(node, Training(SchedulingClass::kLow, 100), kOnce);
  EXPECT_THAT(advice.reasons, ElementsAre(HasSubstr("it misses the target already now")));
}

TEST(Advice, ClientThatFallsBehindDoesNotFitEvenWithoutTarget) {
  Profile server = Server("serve", 10, 8, 1000, 5ms);
  server.spec.latency_target.reset();
  Profile other = server;
  other.name = "other";
  const Advice advice = Advise(Device("fair", {server}), other, kOnce);
  EXPECT_THAT(advice.reasons, testing::Contains(HasSubstr("fall behind")));
}

// Arrivals drawn after the end of the run must not count as delayed.
TEST(Advice, AnIdleDeviceKeepsUpWithDrawnArrivals) {
  Profile server = Server("serve", 40, 1, 400, 20ms);
  server.pace = Profile::Pace::kPoisson;
  server.every_ms = 40;
  for (std::uint32_t seed = 1; seed <= 5; ++seed) {
    const Advice advice = Advise(Device("priority", {}), server, {.seeds = 1, .seed = seed});
    EXPECT_FALSE(advice.clients.at(0).falls_behind) << seed;
  }
}

TEST(Advice, MinimumPaceIsTargetIfRequested) {
  const Node node = Device("fair", {Training(SchedulingClass::kNormal, 3000)});
  const Profile job = Training(SchedulingClass::kNormal, 3000);
  EXPECT_TRUE(Advise(node, job, kOnce).fits());
  const Advice advice = Advise(node, job, {.seeds = 1, .least_pace_percent = 60});
  ASSERT_EQ(advice.reasons.size(), 2U);
  EXPECT_NEAR(advice.clients.at(0).pace_percent, 50, 3);
}

TEST(Advice, InsufficientMemoryDoesNotFit) {
  Node node = Device("priority", {Server("serve", 40, 8, 1000, 20ms)});
  node.memory_mib = 100;
  node.clients[0].memory_mib = 60;
  Profile job = Training(SchedulingClass::kLow, 5000);
  job.memory_mib = 41;
  EXPECT_THAT(Advise(node, job, kOnce).reasons,
              ElementsAre("the job needs 41.0 MiB, but only 40.0 MiB are free"));
  job.memory_mib = 40;
  EXPECT_TRUE(Advise(node, job, kOnce).fits());
}

// The client waits for each kernel of a request, so each kernel costs a launch bubble.
TEST(Advice, IncludesCostsOfDevice) {
  Profile server = Server("serve", 40, 8, 1000, 100ms);
  for (Profile::Request& request : server.requests)
    for (Profile::Step& step : request.steps) step.after_us = 100;
  Node node = Device("priority", {});
  node.costs.launch_us = 300;
  node.costs.notice_us = 600;
  EXPECT_NEAR(Advise(node, server, kOnce).clients.at(0).p99_ms, 8 * (1 + 0.1 + 0.9), 0.2);
}

TEST(Advice, ReportsFewMeasurements) {
  Node node = Device("priority", {});
  Profile server = Server("serve", 40, 1, 1000, 20ms);
  server.requests.resize(5);
  server.seen = {.shared_percent = 50, .lost = 2, .streams = 3};
  node.costs.samples = 3;
  node.costs.stops = 0;
  const Advice advice = Advise(node, server, kOnce);
  EXPECT_TRUE(advice.fits());
  EXPECT_EQ(advice.certainty, Advice::Certainty::kUnsure);
  EXPECT_THAT(
      advice.doubts,
      ElementsAre("the p99 of serve rests on 5 requests, fewer than 100",
                  "1 of 1 kernels of serve were measured fewer than 9 times",
                  "serve was measured alongside others for 50.0% of its device time",
                  "2 events of serve were lost", "serve has 3 streams, which count as one",
                  "the costs of cpu:0 rest on 3 launches", "no stop was observed on cpu:0"));
}

TEST(Advice, TargetWithinIntervalIsUncertain) {
  Advice advice;
  advice.clients = {
      {.name = "a", .latency_target_ms = 20, .p99_ms = 18, .p99_low_ms = 15, .p99_high_ms = 22}};
  const Profile job = Training(SchedulingClass::kLow, 100);
  Judge(Device("priority", {}), job, {}, advice);
  EXPECT_TRUE(advice.fits());
  EXPECT_EQ(advice.certainty, Advice::Certainty::kUnsure);
  EXPECT_THAT(advice.doubts, ElementsAre(HasSubstr("on both sides of its target")));
}

TEST(Advice, EqualSeedsGiveSameAdvice) {
  Profile server = Server("serve", 20, 8, 1000, 20ms);
  server.pace = Profile::Pace::kPoisson;
  server.every_ms = 20;
  const Node node = Device("deadline", {Training(SchedulingClass::kLow, 5000)});
  const auto say = [&](std::uint32_t seed) {
    return AdviceJson(Advise(node, server, {.seeds = 2, .seed = seed})).dump();
  };
  EXPECT_EQ(say(1), say(1));
  EXPECT_NE(say(1), say(2));
}

TEST(Places, RanksNodeWithMostSlackFirst) {
  Node busy = Device("priority", {Server("serve", 12, 8, 1000, 20ms)});
  busy.name = "busy";
  Node idle = Device("priority", {Training(SchedulingClass::kLow, 1000)});
  idle.name = "idle";
  Node full = idle;
  full.name = "full";
  full.memory_mib = 1;
  Profile job = Server("job", 40, 5, 1000, 20ms);
  job.memory_mib = 2;
  const auto placed = Place({full, busy, idle}, {job}, kOnce);
  ASSERT_EQ(placed.size(), 1U);
  std::vector<std::string> order;
  for (const Advice& advice : placed[0]) order.push_back(advice.node);
  EXPECT_EQ(order.front(), "idle");
  EXPECT_EQ(placed[0].front().node_number, 2U);
  EXPECT_THAT(RankingText(placed[0]), HasSubstr("job fits on idle; sure"));
  EXPECT_THAT(RankingText(placed[0]), HasSubstr("job does not fit on full"));
}

TEST(Places, PlacedJobCountsForNextOne) {
  Node first = Device("priority", {}), second = first;
  first.name = "first";
  second.name = "second";
  const Profile job = Server("job", 12, 8, 1000, 12ms);
  const auto placed = Place({first, second}, {job, job, job}, kOnce);
  EXPECT_EQ(placed[0].front().node, "first");
  EXPECT_EQ(placed[1].front().node, "second");
  EXPECT_FALSE(placed[2].front().fits());
}

TEST(Places, ShareIsSmallestThatJobTolerates) {
  Profile job = Server("job", 40, 8, 1000, 30ms);
  const double share = SmallestShare(Device("priority", {}), job, kOnce);
  EXPECT_GT(share, 20) << "8 ms of 40 are 20%";
  EXPECT_LT(share, 100);
  EXPECT_THAT(HintText(job, share), HasSubstr("--gpushared-class=high"));
}

TEST(Plans, ReplaysRecordingFromItsStartThenFromOtherOffsets) {
  Profile server = Server("serve", 40, 1, 1000, 20ms);
  for (std::size_t i = 0; i < server.requests.size(); ++i)
    server.requests[i].steps[0].us = 1000 + static_cast<double>(i);
  const Node node = Device("priority", {});
  const ClientPlan first = GetPlan(server, node, 8, 0, 1);
  EXPECT_EQ(first.times_s.size(), 200U);
  EXPECT_DOUBLE_EQ(first.times_s.at(1), 0.04);
  EXPECT_EQ(SoloTime(first.jobs.at(3).kernels.at(0), 1), 1003us);
  const ClientPlan other = GetPlan(server, node, 8, 1, 7);
  EXPECT_NE(SoloTime(other.jobs.at(3).kernels.at(0), 1), 1003us);
  EXPECT_EQ(other.jobs.size(), 200U);
}

}  // namespace
}  // namespace gpushared::simulation
