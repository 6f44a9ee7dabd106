// SPDX-License-Identifier: Apache-2.0
// Clients' announcements of requests, and how the worker uses them.
#include <chrono>
#include <memory>
#include <sstream>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include "tests/server/worker/harness.h"

#include <nlohmann/json.hpp>

namespace gpushared::testing {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kHourNs = 3'600'000'000'000;

// Returns the row of ps for the `index`-th client.
nlohmann::json GetRow(WorkerHarness& worker, std::size_t index = 0) {
  return nlohmann::json::parse(worker.AskAdmin(ipc::AdminVerb::kClients))["clients"][index];
}

TEST(WorkerRequests, MarkedRequestEndsAfterAllItsCommands) {
  WorkerHarness worker;
  RawClient client = worker.Client({.latency_target_ns = kHourNs});
  client.BeginRequest(0);
  const Sequence launch = client.Launch(0, 0, 0);
  const Sequence end = client.EndRequest(0);
  ASSERT_EQ(worker.device().WaitForSubmissions(1).size(), 1u);
  EXPECT_EQ(GetRow(worker)["requests"], 0);
  worker.device().FinishOldest();
  ASSERT_TRUE(client.AwaitFinished(0, end));
  EXPECT_GT(end, launch);
  const auto row = GetRow(worker);
  EXPECT_EQ(row["requests"], 1);
  EXPECT_EQ(row["requests_target_met"], 1);
}

TEST(WorkerRequests, MarkedRequestsDisablePauseDetection) {
  WorkerHarness worker({.runs_at_once = true});
  RawClient client = worker.Client({.latency_target_ns = kHourNs});
  ASSERT_TRUE(client.AwaitFinished(0, client.Launch(0, 0, 0)));
  ASSERT_EQ(GetRow(worker)["requests"], 1) << "from pause to pause";
  client.BeginRequest(0);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(client.AwaitFinished(0, client.Launch(0, 0, 0)));
  EXPECT_EQ(GetRow(worker)["requests"], 1);
  ASSERT_TRUE(client.AwaitFinished(0, client.EndRequest(0)));
  EXPECT_EQ(GetRow(worker)["requests"], 2);
  ASSERT_TRUE(client.AwaitFinished(0, client.Launch(0, 0, 0)));
  EXPECT_EQ(GetRow(worker)["requests"], 2) << "what is between two requests is none";
}

TEST(WorkerRequests, CountsRequestsWithoutLatencyTarget) {
  WorkerHarness worker({.runs_at_once = true});
  RawClient client = worker.Client();
  client.BeginRequest(0, 5'000'000);
  ASSERT_TRUE(client.AwaitFinished(0, client.EndRequest(0)));
  const auto row = GetRow(worker);
  EXPECT_EQ(row["requests"], 1);
  EXPECT_GE(row["request_p50_us"], 5000.0) << "its age counts";
  EXPECT_FALSE(row.contains("requests_target_met"));
}

TEST(WorkerRequests, RequestStartsWhenClientSays) {
  WorkerHarness worker({.runs_at_once = true});
  RawClient client = worker.Client({.latency_target_ns = 60'000'000'000});
  client.BeginRequest(0, 59'000'000'000);
  ASSERT_TRUE(client.AwaitFinished(0, client.EndRequest(0)));
  client.BeginRequest(0, 61'000'000'000);
  ASSERT_TRUE(client.AwaitFinished(0, client.EndRequest(0)));
  const auto row = GetRow(worker);
  EXPECT_EQ(row["requests"], 2);
  EXPECT_EQ(row["requests_target_met"], 1);
}

TEST(WorkerRequests, RequestOfFailedStreamMissesTarget) {
  WorkerHarness worker({.runs_at_once = true});
  RawClient client = worker.Client({.latency_target_ns = kHourNs});
  client.BeginRequest(0);
  client.Launch(0, 9, 0);
  ASSERT_TRUE(client.AwaitFinished(0, client.EndRequest(0)));
  const auto row = GetRow(worker);
  EXPECT_EQ(row["requests"], 1);
  EXPECT_EQ(row["requests_target_met"], 0);
}

TEST(WorkerRequests, DestroyingStreamEndsItsRequest) {
  WorkerHarness worker;
  RawClient client = worker.Client({.latency_target_ns = kHourNs});
  client.CreateStream(3);
  client.BeginRequest(3);
  client.Launch(3, 0, 0);
  client.DestroyStream(3);
  client.CreateStream(3);
  client.BeginRequest(3);
  const Sequence end = client.EndRequest(3);
  ASSERT_EQ(worker.device().WaitForSubmissions(1).size(), 1u);
  EXPECT_EQ(GetRow(worker)["requests"], 0) << "the second waits for the first one's launch";
  worker.device().FinishOldest();
  ASSERT_TRUE(client.AwaitFinished(3, end));
  EXPECT_EQ(GetRow(worker)["requests"], 2);
  client.DestroyStream(3);
  client.CreateStream(3);
  ASSERT_TRUE(client.AwaitFinished(3, client.Launch(3, 9, 0)));
  EXPECT_EQ(GetRow(worker)["requests"], 2);
}

TEST(WorkerRequests, LimitsOpenRequests) {
  WorkerHarness worker({.runs_at_once = true}, {.settings = {.policy = "deadline"}});
  RawClient client = worker.Client({.latency_target_ns = kHourNs});
  for (std::uint32_t stream = 1; stream <= kOpenRequestsMax; ++stream) {
    client.CreateStream(stream);
    ASSERT_TRUE(client.AwaitFinished(stream, client.BeginRequest(stream)));
  }
  ASSERT_TRUE(client.AwaitFinished(4, client.EndRequest(4)));
  ASSERT_TRUE(client.AwaitFinished(0, client.BeginRequest(0))) << "one has ended";
  client.BeginRequest(4);
  const Status end = client.AwaitEnd();
  EXPECT_EQ(end.code(), StatusCode::kProtocolViolation);
  EXPECT_THAT(end.message(), HasSubstr("16 requests are open, allowed: 16"));
}

TEST(WorkerRequests, LogsOverloadOnce) {
  std::ostringstream log;
  const auto sink = std::make_shared<spdlog::sinks::ostream_sink_mt>(log);
  spdlog::default_logger()->sinks().push_back(sink);
  {
    WorkerHarness worker({.runs_at_once = true}, {.settings = {.policy = "deadline"}});
    RawClient client = worker.Client({.latency_target_ns = 1'000'000});
    for (int i = 0; i < 3; ++i) {
      // The target of this request is already missed when it begins.
      client.BeginRequest(0, 10'000'000);
      client.Launch(0, 0, 0);
      ASSERT_TRUE(client.AwaitFinished(0, client.EndRequest(0)));
    }
    const auto status = nlohmann::json::parse(worker.AskAdmin(ipc::AdminVerb::kStatus));
    EXPECT_EQ(status["targets_abandoned"]["normal"], 3);
  }
  spdlog::default_logger()->sinks().pop_back();
  const std::string text = log.str();
  const std::size_t line = text.find("overloaded: not all latency targets can be met");
  EXPECT_NE(line, std::string::npos) << text;
  EXPECT_NE(text.find("1 of class normal, 0 of class low"), std::string::npos) << text;
  EXPECT_EQ(text.find("overloaded", line + 1), std::string::npos) << text;
}

// Under `deadline`, stoppable work does not begin if a request is expected during it.
TEST(WorkerRequests, HintKeepsDeviceFreeForRequest) {
  WorkerHarness worker({}, {.settings = {.policy = "deadline"}});
  RawClient high =
      worker.Client({.client_class = SchedulingClass::kHigh, .latency_target_ns = 60'000'000'000});
  RawClient low = worker.Client({.client_class = SchedulingClass::kLow});
  ASSERT_TRUE(high.AwaitFinished(0, high.ExpectRequest(0, 0)));
  low.Launch(0, 0, 0, {.x = 100});
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(worker.device().submissions().size(), 0u);
  high.BeginRequest(0);  // The hint was correct.
  ASSERT_TRUE(high.AwaitFinished(0, high.EndRequest(0)));
  EXPECT_EQ(worker.device().WaitForSubmissions(1).size(), 1u);
}

}  // namespace
}  // namespace gpushared::testing
