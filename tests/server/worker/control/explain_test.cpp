// SPDX-License-Identifier: Apache-2.0
// Explanations to operators of why requests took as long as they did.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/worker/harness.h"

#include <nlohmann/json.hpp>

namespace gpushared::testing {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using ::testing::HasSubstr;

json Explain(WorkerHarness& worker, std::uint64_t client, std::uint64_t request = 0) {
  return json::parse(worker.AskAdmin(
      ipc::Admin{.verb = ipc::AdminVerb::kExplain, .client = client, .request = request}));
}

TEST(Explain, NamesNonPreemptedKernelAndTimesOfRequest) {
  WorkerHarness worker({.preemption = device::Preemption::kBetweenCommands});
  RawClient low = worker.Client({.name = "train", .client_class = SchedulingClass::kLow});
  RawClient high = worker.Client(
      {.name = "serve", .client_class = SchedulingClass::kHigh, .latency_target_ns = 20'000'000});
  low.Launch(0, 0, 0, {.x = 100});
  low.Launch(0, 0, 0, {.x = 100});
  ASSERT_EQ(worker.device().WaitForSubmissions(1).size(), 1u);
  high.BeginRequest(0, 5'000'000);
  high.Launch(0, 0, 0);
  const Sequence end = high.EndRequest(0);
  // The window does not delay clients of the high class. Only some policies make them wait for a
  // low kernel; under the default policy, their work is submitted at once.
  ASSERT_EQ(worker.device().WaitForSubmissions(2).size(), 2u);
  std::this_thread::sleep_for(30ms);
  worker.device().FinishAll();
  ASSERT_TRUE(high.AwaitFinished(0, end));
  const json why = Explain(worker, 2);
  EXPECT_EQ(why["client"], 2);
  EXPECT_EQ(why["name"], "serve");
  EXPECT_EQ(why["request"], 1);
  EXPECT_EQ(why["marked"], true);
  EXPECT_EQ(why["target_met"], false);
  EXPECT_EQ(why["latency_target_us"], 20'000.0);
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

TEST(Explain, ReportsThatLowClientWaitedForHighOne) {
  WorkerHarness worker;
  RawClient high = worker.Client({.name = "serve", .client_class = SchedulingClass::kHigh});
  RawClient low = worker.Client({.name = "train", .client_class = SchedulingClass::kLow});
  high.Launch(0, 0, 1, {}, std::vector<std::byte>(24));
  ASSERT_EQ(worker.device().WaitForSubmissions(1).size(), 1u);
  const Sequence last = low.Launch(0, 0, 0, {.x = 10});
  std::this_thread::sleep_for(40ms);  // The worker may read the launch late.
  worker.device().FinishOldest();
  ASSERT_EQ(worker.device().WaitForSubmissions(2).size(), 2u);
  worker.device().FinishOldest();
  ASSERT_TRUE(low.AwaitFinished(0, last));
  const json why = Explain(worker, 2, 1);
  EXPECT_EQ(why["marked"], false) << "told from its pauses";
  EXPECT_FALSE(why.contains("target_met"));
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

// Returns the rows of a waterfall of this kind and client.
std::vector<json> GetRows(const json& why, const std::string& kind, std::uint64_t client) {
  std::vector<json> rows;
  for (const json& row : why["waterfall"]) {
    if (row["kind"] == kind && row["client"] == client) rows.push_back(row);
  }
  return rows;
}

TEST(Explain, WaterfallShowsWaitsAndClientsThatHadDevice) {
  WorkerHarness worker;
  RawClient high = worker.Client({.name = "serve", .client_class = SchedulingClass::kHigh});
  RawClient low = worker.Client({.name = "train", .client_class = SchedulingClass::kLow});
  high.Launch(0, 0, 1, {}, std::vector<std::byte>(24));
  ASSERT_EQ(worker.device().WaitForSubmissions(1).size(), 1u);
  std::this_thread::sleep_for(5ms);
  const Sequence last = low.Launch(0, 0, 0, {.x = 10});
  std::this_thread::sleep_for(40ms);
  worker.device().FinishOldest();
  ASSERT_EQ(worker.device().WaitForSubmissions(2).size(), 2u);
  std::this_thread::sleep_for(5ms);
  worker.device().FinishOldest();
  ASSERT_TRUE(low.AwaitFinished(0, last));
  const json why = Explain(worker, 2, 1);
  const std::vector<json> waits = GetRows(why, "wait", 2), others = GetRows(why, "other", 1),
                          own = GetRows(why, "own", 2);
  ASSERT_EQ(waits.size(), 1u) << why.dump(1);
  ASSERT_EQ(others.size(), 1u);
  ASSERT_EQ(own.size(), 1u);
  EXPECT_NEAR(waits[0]["to_us"].get<double>() - waits[0]["from_us"].get<double>(),
              why["waited_us"].get<double>(), 1.0);
  EXPECT_EQ(others[0]["name"], "serve");
  EXPECT_EQ(others[0]["what"], "kernel 'three'");
  EXPECT_LT(others[0]["from_us"], 0.0) << "it was there before";
  EXPECT_THAT(others[0]["cut"].get<std::string>(), HasSubstr("of the high class"));
  EXPECT_FALSE(others[0].contains("stop_asked_us"));
  EXPECT_EQ(own[0]["what"], "kernel 'null'");
  EXPECT_GE(own[0]["from_us"], others[0]["to_us"]);
  EXPECT_LE(own[0]["to_us"].get<double>(), why["latency_us"].get<double>() + 1.0);
  EXPECT_EQ(why["waterfall"][0]["kind"], "other") << "in the order of their begins";
  EXPECT_EQ(why["waterfall_rest"]["commands"], 0);
}

TEST(Explain, WaterfallKeepsLongestRowsAndCountsRest) {
  WorkerHarness worker;
  RawClient client = worker.Client({.name = "serve", .client_class = SchedulingClass::kHigh});
  client.BeginRequest(0);
  for (int i = 0; i < 40; ++i) {
    const Sequence launch = client.Launch(0, 0, 0);
    ASSERT_EQ(worker.device().WaitForSubmissions(static_cast<std::size_t>(i) + 1).size(),
              static_cast<std::size_t>(i) + 1);
    if (i == 20) std::this_thread::sleep_for(30ms);
    worker.device().FinishOldest();
    ASSERT_TRUE(client.AwaitFinished(0, launch));
  }
  ASSERT_TRUE(client.AwaitFinished(0, client.EndRequest(0)));
  const json why = Explain(worker, 1);
  const std::vector<json> own = GetRows(why, "own", 1);
  EXPECT_EQ(own.size() + why["waterfall_rest"]["commands"].get<std::size_t>(), 40u);
  EXPECT_EQ(own.size(), 16u);
  EXPECT_TRUE(std::ranges::any_of(own, [](const json& row) {
    return row["to_us"].get<double>() - row["from_us"].get<double>() >= 29'000.0;
  })) << "the longest is kept, though many came after it";
}

TEST(Explain, WaterfallNamesPreemptedClient) {
  WorkerHarness worker;
  RawClient low = worker.Client({.name = "train", .client_class = SchedulingClass::kLow});
  low.Launch(0, 0, 0, {.x = 100});
  ASSERT_EQ(worker.device().WaitForSubmissions(1).size(), 1u);
  worker.device().RunUnits(30);
  RawClient high = worker.Client({.name = "serve", .client_class = SchedulingClass::kHigh});
  high.BeginRequest(0);
  high.Launch(0, 0, 0);
  const Sequence end = high.EndRequest(0);
  ASSERT_TRUE(Eventually([&] { return worker.device().stops_asked() > 0; }));
  std::this_thread::sleep_for(2ms);
  worker.device().RunAtOnce();
  ASSERT_TRUE(high.AwaitFinished(0, end));
  const json why = Explain(worker, 2);
  const std::vector<json> others = GetRows(why, "other", 1);
  ASSERT_EQ(others.size(), 1u) << why.dump(1);
  EXPECT_EQ(others[0]["cut"], "was stopped");
  EXPECT_EQ(others[0]["unfinished"], true);
  EXPECT_GE(others[0]["stop_asked_us"], 0.0) << "for this request's sake";
  EXPECT_LE(others[0]["stop_asked_us"], others[0]["to_us"]);
  EXPECT_GE(others[0]["stop_latency_us"], 0.0);
}

TEST(Explain, CountsWaitFromBeginOfRequest) {
  WorkerHarness worker;
  RawClient high = worker.Client({.client_class = SchedulingClass::kHigh});
  RawClient low = worker.Client({.client_class = SchedulingClass::kLow});
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

TEST(Explain, DoesNotNameKernelAfterModuleThatReusedItsNumber) {
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

// Non-preemptible work may run from before a wait until long after it.
TEST(Explain, BlamesWaitOnLongestOverlappingExecution) {
  WorkerHarness worker(
      {.preemption = device::Preemption::kBetweenCommands},
      {.settings = {.policy = "priority"}, .lane_options = {.beyond_window_max = 2}});
  RawClient train = worker.Client({.name = "train", .client_class = SchedulingClass::kLow});
  RawClient other = worker.Client({.name = "other", .client_class = SchedulingClass::kLow});
  RawClient high = worker.Client({.name = "serve", .client_class = SchedulingClass::kHigh});
  train.Launch(0, 0, 0);
  train.CreateStream(1);
  train.Launch(1, 0, 1, {}, std::vector<std::byte>(24));
  const auto training = worker.device().WaitForSubmissions(2);
  ASSERT_EQ(training.size(), 2u);
  const Sequence last = other.Launch(0, 0, 0);
  std::this_thread::sleep_for(20ms);  // The worker may read the launch late.
  const Sequence request = high.Launch(0, 0, 0);
  ASSERT_EQ(worker.device().WaitForSubmissions(3).size(), 3u) << "the other one waits";
  worker.device().FinishOldest();
  std::this_thread::sleep_for(5ms);
  worker.device().FinishLatest();
  ASSERT_TRUE(high.AwaitFinished(0, request));
  ASSERT_EQ(worker.device().WaitForSubmissions(4).size(), 4u);
  worker.device().FinishOldest();
  worker.device().FinishOldest();
  ASSERT_TRUE(other.AwaitFinished(0, last));
  const json why = Explain(worker, 2);
  const json behind = why["longest_wait"]["behind"];
  EXPECT_EQ(behind["name"], "train");
  EXPECT_EQ(behind["what"], "kernel '" + training[1].kernel + "'") << why.dump();
  EXPECT_GE(behind["on_device_us"], 25'000.0);
  EXPECT_THAT(behind["cut"].get<std::string>(), HasSubstr("stops between commands only"));
}

TEST(Explain, ReportsDurationOfPreemption) {
  WorkerHarness worker({.ignores_stop = true}, {.settings = {.policy = "round_robin"}});
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
  EXPECT_NEAR(ps["clients"][0]["stop_time_s"].get<double>() * 1e6,
              behind["stop_latency_us"].get<double>(), 1.0);
  EXPECT_GE(ps["clients"][1]["waited_s"], 0.009);
}

TEST(Explain, DoesNotReportUnstoppableLongLaunchAsShort) {
  WorkerHarness worker({.unstoppable_kernel = "null"}, {.settings = {.policy = "round_robin"}});
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
  EXPECT_THAT(behind["cut"].get<std::string>(), HasSubstr("no preemptible form"));
}

TEST(Explain, ExplainsUnfinishedRequestIfSlowest) {
  WorkerHarness worker;
  RawClient high = worker.Client({.name = "serve", .client_class = SchedulingClass::kHigh});
  RawClient low = worker.Client(
      {.name = "train", .client_class = SchedulingClass::kLow, .latency_target_ns = 10'000'000});
  high.Launch(0, 0, 1, {}, std::vector<std::byte>(24));
  ASSERT_EQ(worker.device().WaitForSubmissions(1).size(), 1u);
  low.BeginRequest(0);
  const Sequence last = low.Launch(0, 0, 0, {.x = 10});
  const Sequence end = low.EndRequest(0);
  const auto starved_for_s = [&] {
    const json ps = json::parse(worker.AskAdmin(ipc::AdminVerb::kClients));
    return ps["clients"][1]["starved_for_s"].get<double>();
  };
  while (starved_for_s() < 0.05) std::this_thread::sleep_for(5ms);
  const json ps = json::parse(worker.AskAdmin(ipc::AdminVerb::kClients));
  EXPECT_GE(ps["clients"][1]["waited_s"], 0.05) << "also while the wait goes on";
  EXPECT_EQ(ps["clients"][0]["starved_for_s"], 0.0);
  const json waiting = Explain(worker, 2);
  EXPECT_EQ(waiting["open"], true);
  EXPECT_EQ(waiting["request"], 1);
  EXPECT_EQ(waiting["target_met"], false) << "its target is broken already";
  EXPECT_FALSE(waiting.contains("ended_s_ago"));
  EXPECT_GE(waiting["waited_us"], 50'000.0);
  EXPECT_NEAR(waiting["longest_wait"]["us"].get<double>(), waiting["waited_us"].get<double>(), 1.0);
  EXPECT_EQ(GetRows(waiting, "wait", 2).size(), 1u);

  worker.device().FinishOldest();
  ASSERT_EQ(worker.device().WaitForSubmissions(2).size(), 2u);
  worker.device().FinishOldest();
  ASSERT_TRUE(low.AwaitFinished(0, last));
  ASSERT_TRUE(low.AwaitFinished(0, end));
  EXPECT_EQ(Explain(worker, 2)["open"], false);
  // A request that has just begun is not the slowest.
  low.BeginRequest(0);
  low.Launch(0, 0, 0, {.x = 10});
  ASSERT_EQ(worker.device().WaitForSubmissions(3).size(), 3u);
  EXPECT_EQ(Explain(worker, 2)["request"], 1);
  EXPECT_EQ(Explain(worker, 2, 2)["open"], true);
  EXPECT_FALSE(Explain(worker, 2, 2).contains("ended_s_ago"));
}

TEST(Explain, RejectsUnknownRequestNamingKnownOnes) {
  WorkerHarness worker({.runs_at_once = true});
  RawClient client = worker.Client();
  const auto ask = [&](std::uint64_t request) {
    return worker.AskAdmin(
        ipc::Admin{.verb = ipc::AdminVerb::kExplain, .client = 1, .request = request});
  };
  EXPECT_EQ(ask(0), "client 1 has no request, and had none");
  for (int i = 0; i < 70; ++i) ASSERT_TRUE(client.AwaitFinished(0, client.Launch(0, 0, 0)));
  EXPECT_EQ(ask(6), "request 6 of client 1 is not known: it keeps the last 64, from 7 to 70");
  EXPECT_EQ(ask(71), "request 71 of client 1 is not known: it keeps the last 64, from 7 to 70");
  EXPECT_EQ(json::parse(ask(7))["request"], 7);
}

TEST(Explain, CountsWorkWithoutResultAsWasted) {
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
