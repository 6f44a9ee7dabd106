// SPDX-License-Identifier: Apache-2.0
// Why requests took as long as they did: what is measured, and what is told of it.
#include <array>
#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/worker/activity_meter.h"
#include "server/worker/request_history.h"
#include "server/worker/stay_log.h"
#include "tests/server/worker_harness.h"

#include <nlohmann/json.hpp>

namespace gpushared::testing {
namespace {

using namespace std::chrono_literals;
using ipc::ClientClass;
using nlohmann::json;
using scheduler::SchedulingClass;
using scheduler::TimePoint;
using server::ActivityMeter;
using server::Blocker;
using server::ClientActivity;
using server::RequestHistory;
using server::RequestReport;
using server::Stay;
using server::StayLog;
using Phase = ClientActivity::Phase;
using ::testing::HasSubstr;

TimePoint At(scheduler::Duration since_start) { return TimePoint(since_start); }

// ---- the log of what was on the device

Stay StayOf(std::uint64_t session, TimePoint submitted, TimePoint ended) {
  return {.session = session, .submitted = submitted, .ended = ended, .charged = ended - submitted};
}

TEST(StayLog, TheBlockerIsWhoWasThereForMostOfTheWait) {
  StayLog log;
  log.Add(StayOf(2, At(0us), At(150us)));    // 50 us of the wait.
  log.Add(StayOf(3, At(140us), At(220us)));  // 80 us.
  log.Add(StayOf(1, At(0us), At(230us)));    // The one who waits.
  log.Add(StayOf(4, At(230us), At(290us)));
  const Stay* const found = log.LongestOfOthers(1, At(100us), At(300us));
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->session, 3u);
  EXPECT_EQ(log.LongestOfOthers(1, At(290us), At(300us)), nullptr) << "it had ended before";
}

TEST(StayLog, ARequestKnowsItsCommandsAndWhoElseHadTheDeviceMostFirst) {
  StayLog log;
  log.Add(StayOf(9, At(0us), At(100us)));  // Before.
  for (std::uint64_t other = 2; other <= 7; ++other) {
    log.Add(StayOf(other, At(200us), At(200us + (9 - other) * 10us)));
  }
  log.Add(StayOf(2, At(300us), At(400us)));
  log.Add(StayOf(1, At(400us), At(430us)));
  Stay stopped = StayOf(1, At(430us), At(480us));
  stopped.was_stopped = true;
  log.Add(stopped);
  RequestReport report;
  report.begun = At(150us);
  const Stay* const longest = log.Summarise(1, report);
  ASSERT_NE(longest, nullptr);
  EXPECT_EQ(longest->submitted, At(430us));
  EXPECT_EQ(report.commands, 2u);
  EXPECT_EQ(report.stops, 1u);
  EXPECT_FALSE(report.is_cut);
  const std::array<std::pair<std::uint64_t, scheduler::Duration>, 4> most = {
      {{2, 170us}, {3, 60us}, {4, 50us}, {5, 40us}}};
  for (std::size_t i = 0; i < most.size(); ++i) {
    EXPECT_EQ(report.others[i].session, most[i].first) << i;
    EXPECT_EQ(report.others[i].charged, most[i].second) << i;
  }
  EXPECT_EQ(report.charged_to_rest, 20us + 30us);
}

TEST(StayLog, SaysWhenItDoesNotGoBackFarEnough) {
  StayLog log;
  for (std::size_t i = 0; i < StayLog::kStaysMax; ++i) {
    log.Add(StayOf(1, At(i * 10us), At((i + 1) * 10us)));
  }
  RequestReport whole, cut;
  whole.begun = At(10us);
  cut.begun = At(5us);
  log.Summarise(1, whole);
  log.Summarise(1, cut);
  EXPECT_FALSE(whole.is_cut);
  EXPECT_TRUE(cut.is_cut);
  EXPECT_EQ(cut.commands, StayLog::kStaysMax);
}

// ---- what is kept of requests

TEST(RequestHistory, KeepsTheLastOnesAndFindsThemByNumber) {
  RequestHistory history;
  EXPECT_EQ(history.Slowest(), nullptr);
  EXPECT_EQ(history.first_number(), 0u);
  EXPECT_EQ(history.last_number(), 0u);
  for (std::uint64_t number = 1; number <= RequestHistory::kReportsMax + 3; ++number) {
    RequestReport report;
    report.number = number;
    report.ended = At(number == 2 ? 90ms : number == 40 ? 50ms : 1ms);
    history.Add(report);
  }
  EXPECT_EQ(history.Find(3), nullptr);
  ASSERT_NE(history.Find(4), nullptr);
  EXPECT_EQ(history.first_number(), 4u);
  EXPECT_EQ(history.last_number(), RequestHistory::kReportsMax + 3);
  EXPECT_EQ(history.Slowest()->number, 40u) << "the slower one is forgotten";
}

// ---- waits, gaps and shares

class Activity : public ::testing::Test {
 protected:
  static constexpr scheduler::ClientSpec Spec(SchedulingClass of_class, std::uint32_t weight = 1) {
    return {.scheduling_class = of_class, .weight = weight};
  }
  // A stay of the client that begins now.
  void Run(ClientActivity& client, scheduler::Duration time) {
    meter_.Set(client, Phase::kOnDevice, now_);
    now_ += time;
    meter_.OnCharged(client, time, now_);
    meter_.Set(client, Phase::kWaiting, now_);
  }

  TimePoint now_ = At(1s);
  ActivityMeter meter_{true};
};

TEST_F(Activity, TimeIsOfThePhaseThatItWasSpentIn) {
  ClientActivity client;
  meter_.Begin(client, Spec(SchedulingClass::kLow), At(0ms));
  meter_.Set(client, Phase::kWaiting, At(10ms));
  meter_.Set(client, Phase::kOnDevice, At(13ms));
  meter_.Set(client, Phase::kAway, At(20ms));
  meter_.Set(client, Phase::kWaiting, At(50ms));
  EXPECT_EQ(client.waited, 3ms);
  EXPECT_EQ(client.on_device, 7ms);
  EXPECT_EQ(client.WaitedUntil(At(52ms)), 5ms);
  EXPECT_EQ(client.OnDeviceUntil(At(52ms)), 7ms);
}

TEST_F(Activity, AGapIsWhatTheHighClassLeavesAndOthersWant) {
  ClientActivity high, low;
  meter_.Begin(high, Spec(SchedulingClass::kHigh), At(0ms));
  meter_.Begin(low, Spec(SchedulingClass::kLow), At(0ms));
  meter_.Set(low, Phase::kWaiting, At(10ms));   // Before, nobody wanted it.
  meter_.Set(low, Phase::kOnDevice, At(12ms));  // 2 ms of gap not used.
  meter_.Set(high, Phase::kWaiting, At(20ms));  // 8 ms used; no gap from here on.
  meter_.Set(low, Phase::kWaiting, At(21ms));
  meter_.Set(high, Phase::kOnDevice, At(21ms));
  meter_.Set(high, Phase::kAway, At(30ms));
  meter_.Set(low, Phase::kAway, At(35ms));  // 5 ms not used.
  meter_.Set(high, Phase::kWaiting, At(90ms));
  EXPECT_EQ(meter_.gaps().wanted, 2ms + 8ms + 5ms);
  EXPECT_EQ(meter_.gaps().used, 8ms);
}

TEST_F(Activity, SharesAsWeightsSayAreNoError) {
  ClientActivity heavy, light;
  meter_.Begin(heavy, Spec(SchedulingClass::kLow, 3), now_);
  meter_.Begin(light, Spec(SchedulingClass::kLow, 1), now_);
  meter_.Set(heavy, Phase::kWaiting, now_);
  meter_.Set(light, Phase::kWaiting, now_);
  for (int i = 0; i < 600; ++i) {
    Run(heavy, 3ms);
    Run(light, 1ms);
  }
  EXPECT_EQ(heavy.windows, 2u);
  EXPECT_NEAR(heavy.share_error, 0.0, 0.5);
  EXPECT_NEAR(light.share_error, 0.0, 0.5);
}

TEST_F(Activity, WhoGetsMoreThanItsWeightSaysTakesItFromItsClassOnly) {
  ClientActivity greedy, modest, starved, other;
  meter_.Begin(greedy, Spec(SchedulingClass::kLow), now_);
  meter_.Begin(modest, Spec(SchedulingClass::kLow), now_);
  meter_.Begin(starved, Spec(SchedulingClass::kLow, 2), now_);
  meter_.Begin(other, Spec(SchedulingClass::kNormal), now_);
  for (ClientActivity* each : {&greedy, &modest, &starved, &other}) {
    meter_.Set(*each, Phase::kWaiting, now_);
  }
  for (int i = 0; i < 300; ++i) {
    Run(greedy, 3ms);
    Run(modest, 1ms);
    Run(other, 4ms);
  }
  meter_.Refresh(starved, now_);
  EXPECT_NEAR(greedy.share_error, 75.0 - 25.0, 1.0);
  EXPECT_NEAR(modest.share_error, 0.0, 1.0);
  EXPECT_NEAR(starved.share_error, -50.0, 1.0);
  EXPECT_NEAR(starved.share_error_worst, -50.0, 1.0);
  EXPECT_NEAR(other.share_error, 0.0, 0.1);
}

TEST_F(Activity, ClientsOfOneGroupAreDueWhatOneClientIs) {
  ClientActivity alone, first, second;
  scheduler::ClientSpec spec = Spec(SchedulingClass::kLow);
  meter_.Begin(alone, spec, now_);
  spec.group = 1000;
  meter_.Begin(first, spec, now_);
  meter_.Begin(second, spec, now_);
  for (ClientActivity* each : {&alone, &first, &second}) meter_.Set(*each, Phase::kWaiting, now_);
  for (int i = 0; i < 600; ++i) {
    Run(alone, 2ms);
    Run(first, 1ms);
    Run(second, 1ms);
  }
  EXPECT_NEAR(alone.share_error, 0.0, 0.5);
  EXPECT_NEAR(first.share_error, 0.0, 0.5);
  meter_.End(second, now_);
  for (int i = 0; i < 600; ++i) {
    Run(alone, 3ms);
    Run(first, 1ms);
  }
  EXPECT_NEAR(alone.share_error, 25.0, 0.5);
  EXPECT_NEAR(first.share_error, -25.0, 0.5);
}

TEST_F(Activity, NothingIsDueToWhoAsksForNothing) {
  ClientActivity busy, asleep, late;
  meter_.Begin(busy, Spec(SchedulingClass::kLow), now_);
  meter_.Begin(asleep, Spec(SchedulingClass::kLow), now_);
  meter_.Begin(late, Spec(SchedulingClass::kLow), now_);
  meter_.Set(busy, Phase::kWaiting, now_);
  for (int i = 0; i < 1200; ++i) Run(busy, 1ms);
  EXPECT_EQ(busy.windows, 1u);
  EXPECT_NEAR(busy.share_error, 0.0, 0.01);
  meter_.Refresh(asleep, now_);
  EXPECT_EQ(asleep.windows, 0u);
  // A newcomer has no claim to the time before it came.
  meter_.Set(late, Phase::kWaiting, now_);
  for (int i = 0; i < 600; ++i) {
    Run(busy, 1ms);
    Run(late, 1ms);
  }
  EXPECT_NEAR(late.share_error, 0.0, 1.0);
}

TEST_F(Activity, WhatWasDueBeforeAPauseStaysDue) {
  ClientActivity busy, pauses;
  meter_.Begin(busy, Spec(SchedulingClass::kLow), now_);
  meter_.Begin(pauses, Spec(SchedulingClass::kLow), now_);
  meter_.Set(busy, Phase::kWaiting, now_);
  meter_.Set(pauses, Phase::kWaiting, now_);
  for (int i = 0; i < 600; ++i) Run(busy, 1ms);
  meter_.Set(pauses, Phase::kAway, now_);
  for (int i = 0; i < 600; ++i) Run(busy, 1ms);
  meter_.Refresh(pauses, now_);
  EXPECT_EQ(pauses.windows, 1u);
  EXPECT_NEAR(pauses.share_error, -50.0, 0.1);
}

TEST_F(Activity, WithoutClassesAllShareAlike) {
  ActivityMeter flat(false);
  ClientActivity high, low;
  flat.Begin(high, Spec(SchedulingClass::kHigh), At(0s));
  flat.Begin(low, Spec(SchedulingClass::kLow), At(0s));
  flat.Set(high, Phase::kOnDevice, At(0s));
  flat.Set(low, Phase::kWaiting, At(0s));
  flat.OnCharged(high, 2s, At(2s));
  flat.Refresh(low, At(2s));
  EXPECT_NEAR(high.share_error, 50.0, 0.1);
  EXPECT_NEAR(low.share_error, -50.0, 0.1);
}

// ---- the whole worker

json Explain(WorkerHarness& worker, std::uint64_t client, std::uint64_t request = 0) {
  return json::parse(worker.AskAdmin(
      ipc::Admin{.verb = ipc::AdminVerb::kExplain, .client = client, .request = request}));
}

TEST(Explain, NamesTheKernelThatCouldNotBeCutAndTheTimesOfTheRequest) {
  WorkerHarness worker({.preemption = device::Preemption::kBetweenCommands});
  RawClient low = worker.Client({.name = "train", .client_class = ClientClass::kLow});
  RawClient high = worker.Client(
      {.name = "serve", .client_class = ClientClass::kHigh, .latency_promise_ns = 20'000'000});
  low.Launch(0, 0, 0, {.x = 100});
  low.Launch(0, 0, 0, {.x = 100});
  ASSERT_EQ(worker.device().WaitForSubmissions(1).size(), 1u);
  high.BeginRequest(0, 5'000'000);
  high.Launch(0, 0, 0);
  const Sequence end = high.EndRequest(0);
  // The high class is not held back by the window: what it waits for is a low kernel of its own
  // making only where the policy waits for it. Here it goes to the device at once.
  ASSERT_EQ(worker.device().WaitForSubmissions(2).size(), 2u);
  std::this_thread::sleep_for(30ms);
  worker.device().FinishAll();
  ASSERT_TRUE(high.AwaitFinished(0, end));
  const json why = Explain(worker, 2);
  EXPECT_EQ(why["client"], 2);
  EXPECT_EQ(why["name"], "serve");
  EXPECT_EQ(why["request"], 1);
  EXPECT_EQ(why["marked"], true);
  EXPECT_EQ(why["kept"], false);
  EXPECT_EQ(why["promise_us"], 20'000.0);
  EXPECT_GE(why["latency_us"], 35'000.0) << "its age counts";
  EXPECT_NEAR(why["before_us"].get<double>(), 5'000.0, 1.0);
  EXPECT_GE(why["on_device_us"], 29'000.0);
  EXPECT_EQ(why["commands"], 1);
  EXPECT_EQ(why["longest_command"]["what"], "kernel 'null'");
  EXPECT_NEAR(why["before_us"].get<double>() + why["waited_us"].get<double>() +
                  why["on_device_us"].get<double>() + why["host_us"].get<double>(),
              why["latency_us"].get<double>(), 1.0)
      << "the parts are the whole";
}

TEST(Explain, ALowClientWaitsForTheHighOneAndIsToldSo) {
  WorkerHarness worker;
  RawClient high = worker.Client({.name = "serve", .client_class = ClientClass::kHigh});
  RawClient low = worker.Client({.name = "train", .client_class = ClientClass::kLow});
  high.Launch(0, 0, 1, {}, std::vector<std::byte>(24));
  ASSERT_EQ(worker.device().WaitForSubmissions(1).size(), 1u);
  const Sequence last = low.Launch(0, 0, 0, {.x = 10});
  std::this_thread::sleep_for(40ms);  // The worker may take the launch late.
  worker.device().FinishOldest();
  ASSERT_EQ(worker.device().WaitForSubmissions(2).size(), 2u);
  worker.device().FinishOldest();
  ASSERT_TRUE(low.AwaitFinished(0, last));
  const json why = Explain(worker, 2, 1);
  EXPECT_EQ(why["marked"], false) << "told from its pauses";
  EXPECT_FALSE(why.contains("kept"));
  EXPECT_GE(why["waited_us"], 10'000.0);
  const json& wait = why["longest_wait"];
  EXPECT_GE(wait["us"], 10'000.0);
  ASSERT_TRUE(wait.contains("behind")) << why.dump();
  EXPECT_EQ(wait["behind"]["client"], 1);
  EXPECT_EQ(wait["behind"]["name"], "serve");
  EXPECT_EQ(wait["behind"]["what"], "kernel 'three'");
  EXPECT_THAT(wait["behind"]["cut"].get<std::string>(), HasSubstr("of the high class"));
  ASSERT_EQ(why["others"].size(), 1u);
  EXPECT_EQ(why["others"][0]["client"], 1);
  EXPECT_GE(why["others"][0]["device_time_us"], 19'000.0);

  const Sequence next = low.Launch(0, 0, 0, {.x = 10});
  ASSERT_EQ(worker.device().WaitForSubmissions(3).size(), 3u);
  worker.device().FinishOldest();
  ASSERT_TRUE(low.AwaitFinished(0, next));
  EXPECT_LT(Explain(worker, 2, 2)["waited_us"], why["waited_us"]) << "each has its own waits";
}

TEST(Explain, AWaitCountsFromTheBeginOfTheRequest) {
  WorkerHarness worker;
  RawClient high = worker.Client({.client_class = ClientClass::kHigh});
  RawClient low = worker.Client({.client_class = ClientClass::kLow});
  high.Launch(0, 0, 0);
  ASSERT_EQ(worker.device().WaitForSubmissions(1).size(), 1u);
  low.Launch(0, 0, 0, {.x = 10});
  std::this_thread::sleep_for(30ms);
  low.BeginRequest(0);
  const Sequence end = low.EndRequest(0);
  std::this_thread::sleep_for(1ms);
  worker.device().FinishOldest();
  ASSERT_EQ(worker.device().WaitForSubmissions(2).size(), 2u);
  worker.device().FinishOldest();
  ASSERT_TRUE(low.AwaitFinished(0, end));
  const json why = Explain(worker, 2);
  ASSERT_TRUE(why.contains("longest_wait"));
  EXPECT_LE(why["longest_wait"]["us"], why["latency_us"]);
  EXPECT_LE(why["waited_us"], why["latency_us"]);
}

TEST(Explain, AKernelIsNotNamedAfterAModuleThatTookItsNumber) {
  WorkerHarness worker;
  RawClient client = worker.Client();
  client.BeginRequest(0);
  const Sequence launch = client.Launch(0, 0, 0);
  ASSERT_EQ(worker.device().WaitForSubmissions(1).size(), 1u);
  std::this_thread::sleep_for(1ms);
  worker.device().FinishOldest();
  ASSERT_TRUE(client.AwaitFinished(0, launch));
  ASSERT_TRUE(client.Ask<ipc::Done>(ipc::UnloadModule{.module = 0}).ok());
  ASSERT_TRUE(client.LoadModule(0, "other 0\n").ok());
  ASSERT_TRUE(client.AwaitFinished(0, client.EndRequest(0)));
  EXPECT_EQ(Explain(worker, 1)["longest_command"]["what"], "");
}

TEST(Explain, AStopSaysHowLongItTook) {
  WorkerHarness worker({.ignores_stop = true}, {.policy = "round_robin"});
  RawClient first = worker.Client({.name = "first"});
  RawClient second = worker.Client({.name = "second"});
  first.Launch(0, 0, 0, {.x = 1000});
  ASSERT_EQ(worker.device().WaitForSubmissions(1).size(), 1u);
  const Sequence last = second.Launch(0, 0, 0, {.x = 10});
  while (worker.device().stops_asked() == 0) std::this_thread::sleep_for(1ms);
  std::this_thread::sleep_for(10ms);
  worker.device().FinishOldest();
  ASSERT_EQ(worker.device().WaitForSubmissions(2).size(), 2u);
  worker.device().FinishOldest();
  ASSERT_TRUE(second.AwaitFinished(0, last));
  const json behind = Explain(worker, 2)["longest_wait"]["behind"];
  EXPECT_EQ(behind["was_stopped"], true);
  EXPECT_GE(behind["stop_latency_us"], 9'000.0);
  EXPECT_LE(behind["stop_latency_us"], behind["on_device_us"]);
  const json ps = json::parse(worker.AskAdmin(ipc::AdminVerb::kClients));
  EXPECT_GE(ps["clients"][0]["stop_time_s"], 0.009);
  EXPECT_GE(ps["clients"][1]["waited_s"], 0.009);
}

TEST(Explain, ALongLaunchThatTheDeviceCouldNotStopIsNotSaidToHaveBeenShort) {
  WorkerHarness worker({.unstoppable_kernel = "null"}, {.policy = "round_robin"});
  RawClient first = worker.Client({.name = "first"});
  RawClient second = worker.Client({.name = "second"});
  first.Launch(0, 0, 0, {.x = 1000});
  ASSERT_EQ(worker.device().WaitForSubmissions(1).size(), 1u);
  const Sequence last = second.Launch(0, 0, 0, {.x = 10});
  std::this_thread::sleep_for(10ms);
  worker.device().FinishOldest();
  ASSERT_EQ(worker.device().WaitForSubmissions(2).size(), 2u);
  worker.device().FinishOldest();
  ASSERT_TRUE(second.AwaitFinished(0, last));
  const json behind = Explain(worker, 2)["longest_wait"]["behind"];
  EXPECT_THAT(behind["cut"].get<std::string>(), HasSubstr("no form that can be stopped"));
}

TEST(Explain, WhatIsNotKnownIsRefusedWithWhatIs) {
  WorkerHarness worker({.runs_at_once = true});
  RawClient client = worker.Client();
  const auto ask = [&](std::uint64_t request) {
    return worker.AskAdmin(
        ipc::Admin{.verb = ipc::AdminVerb::kExplain, .client = 1, .request = request});
  };
  EXPECT_EQ(ask(0), "client 1 has no request that has ended");
  for (int i = 0; i < 70; ++i) ASSERT_TRUE(client.AwaitFinished(0, client.Launch(0, 0, 0)));
  EXPECT_EQ(ask(6), "request 6 of client 1 is not known: it keeps the last 64, from 7 to 70");
  EXPECT_EQ(ask(71), "request 71 of client 1 is not known: it keeps the last 64, from 7 to 70");
  EXPECT_EQ(json::parse(ask(7))["request"], 7);
}

TEST(Explain, WorkWithoutAResultIsWasted) {
  WorkerHarness worker;
  RawClient client = worker.Client();
  client.Launch(0, 0, 0);
  ASSERT_EQ(worker.device().WaitForSubmissions(1).size(), 1u);
  std::this_thread::sleep_for(10ms);
  worker.device().FinishOldest(Status(StatusCode::kKernelFault, "planned"));
  ASSERT_TRUE(client.AwaitFinished(0, 1));
  const json ps = json::parse(worker.AskAdmin(ipc::AdminVerb::kClients));
  EXPECT_GE(ps["clients"][0]["wasted_s"], 0.009);
  EXPECT_EQ(Explain(worker, 1)["failed"], false) << "nobody marked it as a request of a stream";
}

}  // namespace
}  // namespace gpushared::testing
