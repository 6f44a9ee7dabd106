// SPDX-License-Identifier: Apache-2.0
// The worker's submissions to the device, and their times, with several clients.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scheduler/policy_catalog.h"
#include "tests/server/worker/harness.h"
#include "tests/support/log_text.h"

#include <nlohmann/json.hpp>

namespace gpushared::testing {
namespace {

// Returns the session of a submission; streams are numbered within a session.
std::uint64_t GetSession(const StepDevice::Submission& submission) {
  return submission.stream / ipc::kStreamsMax;
}

TEST(WorkerScheduling, PreemptsLowLaunchForHighOneAndResumesIt) {
  WorkerHarness worker;
  RawClient low = worker.Client({.name = "low", .client_class = SchedulingClass::kLow});
  RawClient high = worker.Client({.name = "high", .client_class = SchedulingClass::kHigh});

  const Sequence training = low.Launch(0, 0, 0, {.x = 100});
  ASSERT_EQ(worker.device().WaitForSubmissions(1).size(), 1u);
  worker.device().RunUnits(30);
  const Sequence request = high.Launch(0, 0, 1, {}, std::vector<std::byte>(24));

  auto seen = worker.device().WaitForSubmissions(2);
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_EQ(worker.device().stops_asked(), 1u);
  EXPECT_EQ(seen[1].kernel, "three");
  EXPECT_GT(seen[1].priority, seen[0].priority);
  worker.device().FinishOldest();
  ASSERT_TRUE(high.AwaitFinished(0, request));
  seen = worker.device().WaitForSubmissions(3);
  ASSERT_EQ(seen.size(), 3u);
  EXPECT_EQ(seen[2].kernel, "null");
  EXPECT_EQ(seen[2].first_unit, 30u);
  EXPECT_EQ(low.finished(0), 0u) << "a stopped launch has not finished";
  worker.device().FinishOldest();
  EXPECT_TRUE(low.AwaitFinished(0, training));
}

TEST(WorkerScheduling, RemainderOfPreemptedLaunchGoesFirst) {
  WorkerHarness worker;
  RawClient low = worker.Client({.client_class = SchedulingClass::kLow});
  RawClient high = worker.Client({.client_class = SchedulingClass::kHigh});
  low.CreateStream(1);
  low.Launch(0, 0, 0, {.x = 100});
  ASSERT_EQ(worker.device().WaitForSubmissions(1).size(), 1u);
  low.Launch(1, 0, 0, {.x = 7});
  // An answer on the socket proves that the second command waits in the lane.
  ASSERT_TRUE(low.Ask<ipc::Done>(ipc::UnloadModule{.module = 0}).ok());
  worker.device().RunUnits(30);
  high.Launch(0, 0, 0);
  ASSERT_EQ(worker.device().WaitForSubmissions(2).size(), 2u);
  worker.device().FinishOldest();

  const auto seen = worker.device().WaitForSubmissions(3);
  ASSERT_EQ(seen.size(), 3u);
  EXPECT_EQ(seen[2].units, 100u);
  EXPECT_EQ(seen[2].first_unit, 30u);
}

TEST(WorkerScheduling, ErrorStopsOtherWorkOfItsStream) {
  WorkerHarness worker({.preemption = device::Preemption::kBetweenCommands},
                       {.lane_options = {.beyond_window_max = 8}});
  RawClient client = worker.Client();
  client.CreateStream(1);
  for (const std::uint32_t stream : {0u, 0u, 0u, 1u}) client.Launch(stream, 0, 0);
  ASSERT_EQ(worker.device().WaitForSubmissions(4).size(), 4u);
  worker.device().FinishOldest(Status(StatusCode::kKernelFault, "fault"));
  ASSERT_TRUE(client.NextCompletion());

  EXPECT_EQ(worker.device().stops_asked(), 2u) << "the other stream goes on";
}

TEST(WorkerScheduling, ChargesDeviceTimeToItsUser) {
  WorkerHarness worker;
  RawClient busy = worker.Client();
  const std::uint64_t busy_session = worker.last_session();
  RawClient idle = worker.Client();
  const Sequence launch = busy.Launch(0, 0, 0);
  ASSERT_EQ(worker.device().WaitForSubmissions(1).size(), 1u);
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const auto time_of_busy = [&](const nlohmann::json& document) {
    for (const auto& client : document["clients"]) {
      if (client["client"] == busy_session) return client["device_time_s"].get<double>();
    }
    return 0.0;
  };
  const double running_s =
      time_of_busy(nlohmann::json::parse(worker.AskAdmin(ipc::AdminVerb::kClients)));
  EXPECT_GE(running_s, 0.005) << "a kernel may run for minutes";
  EXPECT_GE(nlohmann::json::parse(worker.AskAdmin(ipc::AdminVerb::kStatus))["device_time_s"],
            running_s);
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  worker.device().FinishOldest();
  ASSERT_TRUE(busy.AwaitFinished(0, launch));
  const double total_s =
      time_of_busy(nlohmann::json::parse(worker.AskAdmin(ipc::AdminVerb::kClients)));
  EXPECT_GE(total_s, running_s + 0.005);
  EXPECT_NEAR(nlohmann::json::parse(worker.AskAdmin(ipc::AdminVerb::kStatus))["device_time_s"],
              total_s, 1e-9)
      << "nothing counts twice";

  const auto clients = nlohmann::json::parse(worker.AskAdmin(ipc::AdminVerb::kClients))["clients"];
  ASSERT_EQ(clients.size(), 2u);
  for (const auto& client : clients) {
    const double device_time_s = client["device_time_s"];
    if (client["client"] == busy_session) {
      EXPECT_GE(device_time_s, 0.005);
    } else {
      EXPECT_EQ(device_time_s, 0);
    }
  }
}

TEST(WorkerScheduling, CountsNonPreemptedWorkWithItsKernel) {
  WorkerHarness worker({.preemption = device::Preemption::kBetweenCommands},
                       {.settings = {.policy = "priority"}});
  RawClient low = worker.Client({.client_class = SchedulingClass::kLow});
  RawClient high = worker.Client({.client_class = SchedulingClass::kHigh});
  const auto row = [&] {
    return nlohmann::json::parse(worker.AskAdmin(ipc::AdminVerb::kClients))["clients"][0];
  };
  ASSERT_TRUE(low.AwaitFinished(0, [&] {
    const Sequence alone = low.Launch(0, 0, 0);
    EXPECT_EQ(worker.device().WaitForSubmissions(1).size(), 1u);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    worker.device().FinishOldest();
    return alone;
  }()));
  EXPECT_EQ(row()["nonpreemptible_s"], 0) << "nobody was kept waiting";
  EXPECT_FALSE(row().contains("nonpreemptible_kernel"));

  const Sequence beside = low.Launch(0, 0, 0);
  ASSERT_EQ(worker.device().WaitForSubmissions(2).size(), 2u);
  const Sequence request = high.Launch(0, 0, 0);
  ASSERT_EQ(worker.device().WaitForSubmissions(3).size(), 3u);
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  worker.device().FinishOldest();
  ASSERT_TRUE(low.AwaitFinished(0, beside));
  worker.device().FinishOldest();
  ASSERT_TRUE(high.AwaitFinished(0, request));
  EXPECT_GE(row()["nonpreemptible_s"], 0.002);
  EXPECT_GE(row()["nonpreemptible_longest_us"], 2000);
  EXPECT_EQ(row()["nonpreemptible_kernel"], "null");
}

TEST(WorkerScheduling, ChargesWorkThatBeginsAndEndsInOneIteration) {
  WorkerHarness worker({.runs_at_once = true, .submitting_takes = std::chrono::milliseconds(2)});
  RawClient client = worker.Client();
  ASSERT_TRUE(client.AwaitFinished(0, client.Launch(0, 0, 0)));
  const auto ps = nlohmann::json::parse(worker.AskAdmin(ipc::AdminVerb::kClients));
  EXPECT_GE(ps["clients"][0]["device_time_s"], 0.002);
}

TEST(WorkerScheduling, PreemptibleLaunchDelaysItsSuccessors) {
  // With these options the lane alone would submit more than one launch at a time.
  WorkerHarness worker({},
                       {.settings = {.policy = "fifo"}, .lane_options = {.beyond_window_max = 8}});
  RawClient client = worker.Client({.client_class = SchedulingClass::kLow});
  client.CreateStream(1);
  // The launch's duration is unknown, so it is worth making preemptible.
  client.Launch(0, 0, 0, {.x = 10});
  client.Launch(0, 0, 0, {.x = 11});
  ASSERT_EQ(worker.device().WaitForSubmissions(1).size(), 1u);
  // An answer on the socket proves that the ring was visited.
  ASSERT_TRUE(client.Ask<ipc::Done>(ipc::UnloadModule{.module = 0}).ok());
  EXPECT_EQ(worker.device().submissions().size(), 1u);
  worker.device().FinishOldest();
  ASSERT_EQ(worker.device().WaitForSubmissions(2).size(), 2u);
  EXPECT_EQ(worker.device().submissions()[1].units, 11u);
}

TEST(WorkerScheduling, ChainedStopsAllowTwoLaunchesThatResumeInOrder) {
  // A launch that a fast machine ends within microseconds is not worth making preemptible the next
  // time.
  WorkerHarness worker({.launch_takes = std::chrono::milliseconds(5),
                        .stoppable_takes = std::chrono::milliseconds(5),
                        .stopping_costs = true},
                       {.settings = {.policy = "priority"}});
  RawClient low = worker.Client({.client_class = SchedulingClass::kLow});
  RawClient high = worker.Client({.client_class = SchedulingClass::kHigh});
  Sequence last = 0;
  for (const std::uint32_t blocks : {10u, 11u, 12u}) last = low.Launch(0, 0, 0, {.x = blocks});
  ASSERT_EQ(worker.device().WaitForSubmissions(2).size(), 2u);
  ASSERT_TRUE(low.Ask<ipc::Done>(ipc::UnloadModule{.module = 0}).ok());
  EXPECT_EQ(worker.device().submissions().size(), 2u) << "no third one";
  worker.device().RunUnits(4);
  high.Launch(0, 0, 0, {.x = 13});
  ASSERT_EQ(worker.device().WaitForSubmissions(3).size(), 3u);
  worker.device().FinishOldest();

  std::vector<std::pair<std::uint64_t, std::uint64_t>> order;
  for (std::size_t i = 3; i < 6; ++i) {
    const auto seen = worker.device().WaitForSubmissions(i + 1);
    ASSERT_GT(seen.size(), i);
    order.emplace_back(seen[i].units, seen[i].first_unit);
    if (i > 3) worker.device().FinishOldest();
  }
  using Pair = std::pair<std::uint64_t, std::uint64_t>;
  EXPECT_EQ(order, (std::vector<Pair>{{10, 4}, {11, 0}, {12, 0}}));
  worker.device().FinishOldest();
  EXPECT_TRUE(low.AwaitFinished(0, last));
}

TEST(WorkerScheduling, ChainedStopsAllowOnlyPreemptibleSuccessors) {
  WorkerHarness worker(
      {.stopping_costs = true, .unstoppable_kernel = "three"},
      {.settings = {.policy = "priority"}, .lane_options = {.beyond_window_max = 8}});
  RawClient low = worker.Client({.client_class = SchedulingClass::kLow});
  const RawClient high = worker.Client({.client_class = SchedulingClass::kHigh});
  low.Launch(0, 0, 0, {.x = 10});
  low.Launch(0, 0, 1, {}, std::vector<std::byte>(24));
  ASSERT_EQ(worker.device().WaitForSubmissions(1).size(), 1u);
  ASSERT_TRUE(low.Ask<ipc::Done>(ipc::UnloadModule{.module = 0}).ok());
  EXPECT_EQ(worker.device().submissions().size(), 1u);
  worker.device().FinishOldest();
  EXPECT_EQ(worker.device().WaitForSubmissions(2).size(), 2u);
}

// Ends the launch late, because the next one would not be made preemptible if it were known to be
// short.
void EndLate(StepDevice& device) {
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  device.FinishOldest();
}

// On some devices, a preemptible launch runs more slowly, and not at the same time as its client's
// other work.
TEST(WorkerScheduling, CostlyPreemptionIsUsedOnlyWithMoreUrgentClient) {
  WorkerHarness worker({.stopping_costs = true}, {.settings = {.policy = "priority"},
                                                  .lane_options = {.beyond_window_max = 8}});
  RawClient low = worker.Client({.client_class = SchedulingClass::kLow});
  RawClient peer = worker.Client({.client_class = SchedulingClass::kLow});
  const auto launches = [&](std::size_t so_far) {
    low.Launch(0, 0, 0, {.x = 10});
    const auto seen = worker.device().WaitForSubmissions(so_far + 1);
    EXPECT_EQ(seen.size(), so_far + 1);
    EndLate(worker.device());
    return seen.back().may_be_stopped;
  };
  EXPECT_FALSE(launches(0)) << "a client of its own class stops nobody";
  {
    RawClient high = worker.Client({.client_class = SchedulingClass::kHigh});
    EXPECT_TRUE(launches(1));
  }
  ASSERT_TRUE(Eventually([&] {
    return nlohmann::json::parse(worker.AskAdmin(ipc::AdminVerb::kClients))["clients"].size() == 2;
  }));
  EXPECT_FALSE(launches(2)) << "the more urgent one has left";
}

TEST(WorkerScheduling, CostlyPreemptionIgnoresLeavingClient) {
  WorkerHarness worker({.stopping_costs = true, .ignores_stop = true, .can_kill = false},
                       {.settings = {.policy = "priority"}});
  RawClient low = worker.Client({.client_class = SchedulingClass::kLow});
  {
    RawClient high = worker.Client({.client_class = SchedulingClass::kHigh});
    high.Launch(0, 0, 0, {.x = 1000});
    ASSERT_EQ(worker.device().WaitForSubmissions(1).size(), 1u);
  }
  // The worker requests a stop of the client's work, but the device ignores the request.
  ASSERT_TRUE(Eventually([&] { return worker.device().stops_asked() > 0; }));
  low.Launch(0, 0, 0, {.x = 10});
  const auto seen = worker.device().WaitForSubmissions(2);
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_EQ(seen[1].units, 10u);
  EXPECT_FALSE(seen[1].may_be_stopped);
}

constexpr std::uint64_t kPromiseNs = 50'000'000;

// Returns whether a launch of the first client, of unknown duration, is made preemptible while the
// second one is connected.
bool IsStoppableBeside(const server::WorkerOptions& options,
                       const WorkerHarness::ClientOptions& running,
                       const WorkerHarness::ClientOptions& waiting) {
  WorkerHarness worker({.stopping_costs = true}, options);
  RawClient first = worker.Client(running);
  RawClient second = worker.Client(waiting);
  first.Launch(0, 0, 0, {.x = 10});
  const auto seen = worker.device().WaitForSubmissions(1);
  EXPECT_EQ(seen.size(), 1u);
  return !seen.empty() && seen[0].may_be_stopped;
}

TEST(WorkerScheduling, CostlyPreemptionServesLatencyTargetsOnlyUnderDeadline) {
  for (const SchedulingClass each : {SchedulingClass::kNormal, SchedulingClass::kLow}) {
    const WorkerHarness::ClientOptions bulk = {.client_class = each};
    const WorkerHarness::ClientOptions promised = {.client_class = each,
                                                   .latency_target_ns = kPromiseNs};
    EXPECT_TRUE(IsStoppableBeside({.settings = {.policy = "deadline"}}, bulk, promised));
    EXPECT_TRUE(IsStoppableBeside({.settings = {.policy = "deadline"}}, promised, promised));
    EXPECT_FALSE(IsStoppableBeside({.settings = {.policy = "deadline"}}, promised, bulk));
    EXPECT_FALSE(IsStoppableBeside({.settings = {.policy = "priority"}}, bulk, promised));
  }
  const WorkerHarness::ClientOptions normal = {.client_class = SchedulingClass::kNormal};
  const WorkerHarness::ClientOptions low = {.client_class = SchedulingClass::kLow};
  const WorkerHarness::ClientOptions low_promised = {.client_class = SchedulingClass::kLow,
                                                     .latency_target_ns = kPromiseNs};
  EXPECT_TRUE(IsStoppableBeside({.settings = {.policy = "deadline"}}, normal, low_promised));
  EXPECT_TRUE(IsStoppableBeside({.settings = {.policy = "deadline"}}, low, normal));
  EXPECT_FALSE(IsStoppableBeside({.settings = {.policy = "deadline"}}, normal, low));
}

TEST(WorkerScheduling, CostlyPreemptionServesFloorOfLowClass) {
  const WorkerHarness::ClientOptions normal = {.client_class = SchedulingClass::kNormal};
  const WorkerHarness::ClientOptions low = {.client_class = SchedulingClass::kLow};
  EXPECT_TRUE(IsStoppableBeside({.settings = {.policy_options = {.low_floor = 0.1}}}, normal, low));
  EXPECT_FALSE(IsStoppableBeside({.settings = {.policy_options = {.low_floor = 0.1}}}, low, low));
  EXPECT_FALSE(IsStoppableBeside({}, normal, low));
}

TEST(WorkerScheduling, CostlyPreemptionIsOffUnderNonPreemptivePolicy) {
  EXPECT_FALSE(IsStoppableBeside({.settings = {.policy = "fifo"}},
                                 {.client_class = SchedulingClass::kLow},
                                 {.client_class = SchedulingClass::kHigh}));
}

// Submits `count` launches, with 1, 2, ... blocks.
void LaunchInTurn(RawClient& low, std::uint32_t count) {
  for (std::uint32_t i = 1; i <= count; ++i) low.Launch(0, 0, 0, {.x = i});
  // An answer on the socket proves that all of them wait in the lane.
  ASSERT_TRUE(low.Ask<ipc::Done>(ipc::UnloadModule{.module = 7}).ok());
}

TEST(WorkerScheduling, QueuedWorkBecomesPreemptibleForNewUrgentClient) {
  constexpr std::uint32_t kLaunches = 40;
  WorkerHarness worker({.stopping_costs = true}, {.settings = {.policy = "priority"}});
  RawClient low = worker.Client({.client_class = SchedulingClass::kLow});
  // A second client, because a client that is alone has two long commands on the device.
  const RawClient idle = worker.Client({.client_class = SchedulingClass::kLow});
  ASSERT_TRUE(low.LoadModule(7, "null 0\n").ok());
  LaunchInTurn(low, kLaunches);
  ASSERT_EQ(worker.device().WaitForSubmissions(1).size(), 1u);
  EXPECT_FALSE(worker.device().submissions()[0].may_be_stopped);

  RawClient high = worker.Client({.client_class = SchedulingClass::kHigh});
  EndLate(worker.device());
  ASSERT_EQ(worker.device().WaitForSubmissions(3).size(), 3u) << "one, and one behind it";
  worker.device().RunUnits(1);
  // Uses another kernel, because otherwise the low launches would be known to be equally short.
  const Sequence request = high.Launch(0, 0, 1, {.x = 1000}, std::vector<std::byte>(24));
  ASSERT_EQ(worker.device().WaitForSubmissions(4).size(), 4u);
  EXPECT_EQ(worker.device().stops_asked(), 2u);
  EXPECT_EQ(worker.device().submissions()[3].units, 1000u);
  worker.device().FinishOldest();
  ASSERT_TRUE(high.AwaitFinished(0, request));

  // The stopped launches resume, and none is lost, doubled or reordered.
  for (std::uint32_t i = 2; i <= kLaunches; ++i) {
    const auto seen = worker.device().WaitForSubmissions(i + 3);
    ASSERT_GE(seen.size(), i + 3);
    const StepDevice::Submission& each = seen[i + 2];
    EXPECT_EQ(each.units, i);
    EXPECT_EQ(each.first_unit, i == 2 ? 1u : 0u);
    EXPECT_TRUE(each.may_be_stopped);
    EndLate(worker.device());
  }
  EXPECT_TRUE(low.AwaitFinished(0, kLaunches));
}

TEST(WorkerScheduling, QueuedWorkBecomesPreemptibleWhenClientLeavesHighClass) {
  WorkerHarness worker({}, {.lane_options = {.high_in_flight_max = 1}});
  RawClient client = worker.Client({.client_class = SchedulingClass::kHigh});
  RawClient high = worker.Client({.client_class = SchedulingClass::kHigh});
  ASSERT_TRUE(client.LoadModule(7, "null 0\n").ok());
  LaunchInTurn(client, 3);
  ASSERT_EQ(worker.device().WaitForSubmissions(1).size(), 1u);
  worker.Send(ipc::SetSession{.session = 1, .client_class = SchedulingClass::kLow, .weight = 1}, 9);
  ASSERT_TRUE(worker.Await<ipc::ChannelReply>());
  EndLate(worker.device());
  ASSERT_EQ(worker.device().WaitForSubmissions(2).size(), 2u);
  high.Launch(0, 0, 0, {.x = 1000});
  ASSERT_EQ(worker.device().WaitForSubmissions(3).size(), 3u);
  EXPECT_EQ(worker.device().stops_asked(), 1u);
}

// Marks, waits and other streams' commands between re-submitted launches keep their positions.
TEST(WorkerScheduling, ResubmittedWorkKeepsItsStreamOrder) {
  WorkerHarness worker({.stopping_costs = true, .unstoppable_kernel = "three"},
                       {.settings = {.policy = "priority"}});
  RawClient low = worker.Client({.client_class = SchedulingClass::kLow});
  // A second client, because a client that is alone has two long commands on the device.
  const RawClient idle = worker.Client({.client_class = SchedulingClass::kLow});
  ASSERT_TRUE(low.LoadModule(7, "null 0\n").ok());
  low.CreateStream(1);
  const std::vector<std::byte> parameters(24);
  low.Launch(0, 0, 1, {.x = 1}, parameters);
  low.Launch(0, 0, 1, {.x = 2}, parameters);  // Cannot be made preemptible.
  low.Mark(0);
  low.Launch(0, 0, 0, {.x = 3});
  low.Mark(0);
  const Sequence other = low.Launch(1, 0, 1, {.x = 101}, parameters);
  low.WaitFor(0, 1, other);
  const Sequence last = low.Launch(0, 0, 0, {.x = 4});
  ASSERT_TRUE(low.Ask<ipc::Done>(ipc::UnloadModule{.module = 7}).ok());
  RawClient high = worker.Client({.client_class = SchedulingClass::kHigh});

  std::vector<std::uint64_t> order;
  for (std::size_t i = 0; i < 5; ++i) {
    const auto seen = worker.device().WaitForSubmissions(i + 1);
    ASSERT_EQ(seen.size(), i + 1);
    EXPECT_EQ(seen[i].may_be_stopped, seen[i].units == 3 || seen[i].units == 4);
    order.push_back(seen[i].units);
    EndLate(worker.device());
  }
  EXPECT_EQ(order.back(), 4U) << "it waits for the other stream, which has no place but that";
  std::erase(order, 101);
  EXPECT_EQ(order, (std::vector<std::uint64_t>{1, 2, 3, 4}));
  EXPECT_TRUE(low.AwaitFinished(0, last));
  EXPECT_TRUE(low.NextCompletion());
  EXPECT_TRUE(low.NextCompletion());
}

// Copies and fills are preemptible whichever clients are connected.
TEST(WorkerScheduling, ResubmitsFillWithEarlierWorkOfItsStream) {
  WorkerHarness worker({.stopping_costs = true}, {.settings = {.policy = "priority"}});
  RawClient low = worker.Client({.client_class = SchedulingClass::kLow});
  // A second client, because a client that is alone has two long commands on the device.
  const RawClient idle = worker.Client({.client_class = SchedulingClass::kLow});
  ASSERT_TRUE(low.LoadModule(7, "null 0\n").ok());
  low.Launch(0, 0, 0, {.x = 1});
  low.Launch(0, 0, 0, {.x = 2});
  low.Fill(0, low.base(), 3 << 20, 1);
  const Sequence last = low.Launch(0, 0, 0, {.x = 4});
  ASSERT_TRUE(low.Ask<ipc::Done>(ipc::UnloadModule{.module = 7}).ok());
  RawClient high = worker.Client({.client_class = SchedulingClass::kHigh});

  const std::vector<std::uint64_t> order = {1, 2, (3 << 20) / device::kCopyPieceBytes, 4};
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto seen = worker.device().WaitForSubmissions(i + 1);
    ASSERT_EQ(seen.size(), i + 1);
    EXPECT_EQ(seen[i].units, order[i]);
    EndLate(worker.device());
  }
  EXPECT_TRUE(low.AwaitFinished(0, last));
}

nlohmann::json DeviceStatus(WorkerHarness& worker) {
  return nlohmann::json::parse(worker.AskAdmin(ipc::AdminVerb::kStatus));
}

TEST(WorkerScheduling, WindowFollowsLaunchBubbleWhileHighClientIsConnected) {
  WorkerHarness worker({.unstoppable_kernel = "null"}, {.settings = {.policy = "priority"},
                                                        .lane_options = {.beyond_window_max = 8}});
  RawClient low = worker.Client({.client_class = SchedulingClass::kLow});
  std::size_t launched = 0;
  const auto launch = [&](std::size_t at_once) {
    Sequence last = 0;
    for (std::size_t i = 0; i < at_once; ++i) last = low.Launch(0, 0, 0);
    launched += at_once;
    EXPECT_EQ(worker.device().WaitForSubmissions(launched).size(), launched);
    for (std::size_t i = 0; i < at_once; ++i) EndLate(worker.device());
    EXPECT_TRUE(low.AwaitFinished(0, last));
  };
  for (int i = 0; i < 7; ++i) launch(1);
  launch(2);  // One of the two found the device idle.
  nlohmann::json status = DeviceStatus(worker);
  EXPECT_FALSE(status.contains("launch_bubble_us")) << "eight are too few";
  EXPECT_EQ(status["lookahead_us"], 500.0);

  for (int i = 0; i < 100 && !status.contains("launch_bubble_us"); ++i) {
    launch(1);
    status = DeviceStatus(worker);
  }
  ASSERT_TRUE(status.contains("launch_bubble_us"));
  EXPECT_EQ(status["lookahead_us"], 500.0) << "nobody of the high class is here";
  {
    RawClient high = worker.Client({.client_class = SchedulingClass::kHigh});
    status = DeviceStatus(worker);
    const double launch_bubble_us = status["launch_bubble_us"];
    EXPECT_GT(launch_bubble_us, 0.0);
    EXPECT_NEAR(status["lookahead_us"].get<double>(), std::clamp(2 * launch_bubble_us, 20.0, 500.0),
                0.01);
  }
  EXPECT_TRUE(Eventually([&] { return DeviceStatus(worker)["lookahead_us"] == 500.0; }));
}

TEST(WorkerScheduling, CostlyPreemptionServesAnyClientUnderClasslessPolicy) {
  WorkerHarness worker({.stopping_costs = true}, {.settings = {.policy = "round_robin"}});
  RawClient first = worker.Client({.client_class = SchedulingClass::kNormal});
  first.Launch(0, 0, 0, {.x = 10});
  ASSERT_EQ(worker.device().WaitForSubmissions(1).size(), 1u);
  EXPECT_FALSE(worker.device().submissions()[0].may_be_stopped);
  EndLate(worker.device());
  RawClient other = worker.Client({.client_class = SchedulingClass::kLow});
  first.Launch(0, 0, 0, {.x = 10});
  ASSERT_EQ(worker.device().WaitForSubmissions(2).size(), 2u);
  EXPECT_TRUE(worker.device().submissions()[1].may_be_stopped);
}

TEST(WorkerScheduling, SubmitsUnstoppableLaunchesBackToBackWithoutStopRequests) {
  WorkerHarness worker(
      {.stopping_costs = true, .unstoppable_kernel = "null"},
      {.settings = {.policy = "priority"}, .lane_options = {.beyond_window_max = 8}});
  RawClient low = worker.Client({.client_class = SchedulingClass::kLow});
  RawClient high = worker.Client({.client_class = SchedulingClass::kHigh});
  for (int i = 0; i < 3; ++i) low.Launch(0, 0, 0, {.x = 10});
  const auto seen = worker.device().WaitForSubmissions(3);
  ASSERT_EQ(seen.size(), 3u);
  for (const auto& submission : seen) EXPECT_FALSE(submission.may_be_stopped);
  high.Launch(0, 0, 0);
  ASSERT_EQ(worker.device().WaitForSubmissions(4).size(), 4u);
  EXPECT_EQ(worker.device().stops_asked(), 0u);
}

TEST(WorkerScheduling, SubmitsHighClassCommandsOfStreamBackToBack) {
  WorkerHarness worker;
  RawClient client = worker.Client({.client_class = SchedulingClass::kHigh});
  for (std::uint32_t i = 1; i <= 10; ++i) client.Launch(0, 0, 0, {.x = i});
  const auto seen = worker.device().WaitForSubmissions(10);
  ASSERT_EQ(seen.size(), 10u);
  for (std::uint32_t i = 0; i < 10; ++i) EXPECT_EQ(seen[i].units, i + 1);
  EXPECT_EQ(worker.device().running_count(), 10u);
}

// Waiting for the end of each short command would cost more than stopping one could save.
TEST(WorkerScheduling, SubmitsShortCommandsOfStreamBackToBack) {
  WorkerHarness worker({}, {.settings = {.policy = "fifo"}});
  RawClient client = worker.Client({.client_class = SchedulingClass::kLow});
  for (int i = 0; i < 5; ++i) client.Fill(0, client.base(), 16, 1);
  EXPECT_EQ(worker.device().WaitForSubmissions(5).size(), 5u);
  EXPECT_EQ(worker.device().running_count(), 5u);
}

TEST(WorkerScheduling, FloodDoesNotDelayOtherClient) {
  WorkerHarness worker({.runs_at_once = true}, {.settings = {.policy = "fifo"}});
  RawClient flood = worker.Client();
  RawClient good = worker.Client();
  std::atomic<bool> stop{false};
  std::thread flooding([&] {
    while (!stop) flood.Launch(0, 0, 0);
  });
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(good.AwaitFinished(0, good.Launch(0, 0, 0)));
  }
  stop = true;
  flooding.join();
  std::map<std::uint64_t, int> launches;
  for (const auto& submission : worker.device().submissions()) ++launches[GetSession(submission)];
  EXPECT_EQ(launches[2], 50);
}

// The commands that are still queued when their client leaves are dropped, however many they are.
TEST(WorkerScheduling, SubmitsNothingOfDepartedClient) {
  WorkerHarness worker({}, {.settings = {.policy = "fifo"}});
  RawClient good = worker.Client();
  {
    RawClient gone = worker.Client();
    for (int i = 0; i < 500; ++i) gone.Launch(0, 0, 0);
    ASSERT_EQ(worker.device().WaitForSubmissions(1).size(), 1u);
  }
  ASSERT_TRUE(worker.Await<ipc::SessionEnded>());
  worker.device().RunAtOnce();
  ASSERT_TRUE(good.AwaitFinished(0, good.Launch(0, 0, 0)));
  std::map<std::uint64_t, int> launches;
  for (const auto& submission : worker.device().submissions()) ++launches[GetSession(submission)];
  EXPECT_EQ(launches[2], 1);
  EXPECT_EQ(launches[1], 1);
}

TEST(WorkerScheduling, ChangesClassOfRunningSession) {
  WorkerHarness worker;
  RawClient first = worker.Client({.client_class = SchedulingClass::kLow});
  RawClient second = worker.Client({.client_class = SchedulingClass::kLow});
  first.Launch(0, 0, 0, {.x = 100});
  ASSERT_EQ(worker.device().WaitForSubmissions(1).size(), 1u);
  worker.Send(ipc::SetSession{.session = 2, .client_class = SchedulingClass::kHigh, .weight = 7},
              9);
  const auto reply = worker.Await<ipc::ChannelReply>();
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->code, StatusCode::kOk);

  second.Launch(0, 0, 0, {.x = 5});
  const auto seen = worker.device().WaitForSubmissions(2);
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_EQ(seen[1].units, 5u);
  EXPECT_EQ(worker.device().stops_asked(), 1u);
  EXPECT_GT(seen[1].priority, seen[0].priority);
}

TEST(WorkerScheduling, EveryPolicyRunsAllWorkOfAllClients) {
  for (const scheduler::PolicyEntry& entry : scheduler::PolicyCatalog()) {
    const std::string policy(entry.name);
    SCOPED_TRACE(policy);
    WorkerHarness worker({.runs_at_once = true}, {.settings = {.policy = policy}});
    std::vector<RawClient> clients;
    for (const SchedulingClass each :
         {SchedulingClass::kHigh, SchedulingClass::kNormal, SchedulingClass::kLow}) {
      clients.push_back(worker.Client({.client_class = each}));
    }
    for (int i = 0; i < 200; ++i) {
      for (RawClient& client : clients) client.Launch(0, 0, 0, {.x = 3});
    }
    for (RawClient& client : clients) EXPECT_TRUE(client.AwaitFinished(0, 200));
  }
}

server::WorkerOptions LimitedLow(scheduler::Duration limit) {
  server::WorkerOptions options;
  const auto low = static_cast<std::size_t>(scheduler::SchedulingClass::kLow);
  options.settings.kernel_limits.at(low) = limit;
  options.settings.kernel_limits_given.at(low) = true;
  return options;
}

TEST(KernelLimit, EndsLongKernelAndFailsItsStreamWithMessage) {
  WorkerHarness worker({.ignores_stop = true}, LimitedLow(std::chrono::milliseconds(30)));
  RawClient low = worker.Client({.name = "slow", .client_class = SchedulingClass::kLow});
  RawClient normal = worker.Client();
  low.Launch(0, 0, 0, {.x = 100});
  ASSERT_EQ(worker.device().WaitForSubmissions(1).size(), 1u);
  const auto record = low.NextCompletion();
  ASSERT_TRUE(record);
  EXPECT_EQ(record->code, StatusCode::kKernelFault);
  EXPECT_EQ(record->fault, FaultKind::kLaunchTimeout);
  EXPECT_EQ(worker.device().kills_asked(), 1u);
  const auto error = low.Ask<ipc::ErrorText>(ipc::DescribeError{.stream = 0});
  ASSERT_TRUE(error.ok()) << error.status().ToString();
  EXPECT_THAT(error->status.message(),
              ::testing::MatchesRegex(".*kernel 'null' ended by force: it has run [0-9.e-]+ s, "
                                      "kernels of class low may run 0.03 s .--kernel-limit of the "
                                      "server. .client 1 'slow'.*"));
  // The work of the destroyed stream does not count against the next stream with the same number.
  low.CreateStream(1);
  const Sequence next = low.Launch(1, 0, 0, {.x = 100});
  ASSERT_EQ(worker.device().WaitForSubmissions(2).size(), 2u);
  worker.device().FinishOldest();
  EXPECT_TRUE(low.AwaitFinished(1, next));
  EXPECT_EQ(worker.device().kills_asked(), 1u);
  // Classes without a limit run unlimited.
  const Sequence long_one = normal.Launch(0, 0, 0, {.x = 100});
  ASSERT_EQ(worker.device().WaitForSubmissions(3).size(), 3u);
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  EXPECT_EQ(worker.device().kills_asked(), 1u);
  worker.device().FinishOldest();
  EXPECT_TRUE(normal.AwaitFinished(0, long_one));
  EXPECT_TRUE(low.Ask<ipc::Done>(ipc::UnloadModule{.module = 0}).ok()) << "the session lives on";
}

TEST(KernelLimit, CountsTotalTimeOfStoppedKernel) {
  WorkerHarness worker({}, LimitedLow(std::chrono::milliseconds(60)));
  RawClient low = worker.Client({.client_class = SchedulingClass::kLow});
  RawClient high = worker.Client({.client_class = SchedulingClass::kHigh});
  low.Launch(0, 0, 0, {.x = 1000});
  std::size_t submissions = 1;
  ASSERT_EQ(worker.device().WaitForSubmissions(submissions).size(), submissions);
  while (worker.device().kills_asked() == 0) {
    worker.device().RunUnits(1);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const Sequence request = high.Launch(0, 0, 0);
    if (worker.device().kills_asked() > 0) break;
    ASSERT_FALSE(worker.device().WaitForSubmissions(submissions + 1).empty());
    worker.device().FinishOldest();
    ASSERT_TRUE(high.AwaitFinished(0, request));
    submissions += 2;
    ASSERT_TRUE(Eventually([&] {
      return worker.device().submissions().size() >= submissions ||
             worker.device().kills_asked() > 0;
    }));
    ASSERT_LT(submissions, 40u) << "a kernel that is stopped now and then is never ended";
  }
  worker.device().FinishAll();
  const auto record = low.NextCompletion();
  ASSERT_TRUE(record);
  EXPECT_EQ(record->code, StatusCode::kKernelFault);
  EXPECT_EQ(record->fault, FaultKind::kLaunchTimeout);
}

TEST(KernelLimit, UnstoppableKernelIsDeviceLossThatNamesKernel) {
  WorkerHarness worker({.preemption = device::Preemption::kBetweenCommands, .can_kill = false},
                       LimitedLow(std::chrono::milliseconds(30)));
  RawClient low = worker.Client({.name = "slow", .client_class = SchedulingClass::kLow});
  RawClient other = worker.Client({.name = "other"});
  low.Launch(0, 0, 0, {.x = 100});
  for (RawClient* client : {&low, &other}) {
    const Status end = client->AwaitEnd();
    EXPECT_EQ(end.code(), StatusCode::kDeviceLost);
    EXPECT_THAT(end.message(), ::testing::HasSubstr("kernel 'null' ended by force: it has run "));
    EXPECT_THAT(end.message(), ::testing::HasSubstr("cannot end one kernel alone; "
                                                    "caused by kernel 'null' [client 1 'slow'"));
  }
  EXPECT_EQ(worker.AwaitExit(), server::kWorkerLostDevice);
  EXPECT_EQ(worker.device().kills_asked(), 0u);
}

TEST(WorkerScheduling, LogsSlowPreemptionOncePerKernel) {
  const LogText log;
  {
    WorkerHarness worker({.ignores_stop = true}, {.settings = {.policy = "priority"}});
    RawClient low = worker.Client({.name = "slow", .client_class = SchedulingClass::kLow});
    RawClient high = worker.Client({.client_class = SchedulingClass::kHigh});
    for (std::size_t round = 1; round <= 2; ++round) {
      const Sequence slow = low.Launch(0, 0, 0, {.x = 100});
      ASSERT_EQ(worker.device().WaitForSubmissions(2 * round - 1).size(), 2 * round - 1);
      const Sequence request = high.Launch(0, 0, 0);
      ASSERT_EQ(worker.device().WaitForSubmissions(2 * round).size(), 2 * round);
      ASSERT_TRUE(Eventually([&] { return worker.device().stops_asked() >= round; }));
      std::this_thread::sleep_for(std::chrono::milliseconds(80));
      worker.device().FinishAll();
      ASSERT_TRUE(low.AwaitFinished(0, slow));
      ASSERT_TRUE(high.AwaitFinished(0, request));
    }
  }
  EXPECT_EQ(log.Count("kernel 'null' held the device for "), 1U);
}

// The operator did not choose this limit, so exceeding it must not end the device.
TEST(KernelLimit, DefaultLimitLogsInsteadOfEndingDevice) {
  const LogText log;
  server::WorkerOptions options = LimitedLow(std::chrono::milliseconds(30));
  options.settings.kernel_limits_given = {};
  {
    WorkerHarness worker({.preemption = device::Preemption::kBetweenCommands, .can_kill = false},
                         options);
    RawClient low = worker.Client({.client_class = SchedulingClass::kLow});
    const Sequence launch = low.Launch(0, 0, 0, {.x = 100});
    ASSERT_EQ(worker.device().WaitForSubmissions(1).size(), 1u);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    worker.device().FinishOldest();
    EXPECT_TRUE(low.AwaitFinished(0, launch));
    EXPECT_TRUE(low.Ask<ipc::Done>(ipc::UnloadModule{.module = 0}).ok()) << "the session lives on";
  }
  EXPECT_EQ(log.Count("it continues: this device cannot terminate a single kernel"), 1U);
}

TEST(KernelLimit, EndsOnlyKernelThatObeysRequest) {
  WorkerHarness worker({.can_kill = false, .may_be_killed = true},
                       LimitedLow(std::chrono::milliseconds(30)));
  RawClient low = worker.Client({.name = "slow", .client_class = SchedulingClass::kLow});
  low.Launch(0, 0, 0, {.x = 100});
  ASSERT_TRUE(Eventually([&] { return worker.device().kills_asked() == 1; }));
  worker.device().FinishOldest(Status(StatusCode::kCancelled, "left"));
  const auto record = low.NextCompletion();
  ASSERT_TRUE(record);
  EXPECT_EQ(record->code, StatusCode::kKernelFault);
  EXPECT_EQ(record->fault, FaultKind::kLaunchTimeout);
  EXPECT_TRUE(low.Ask<ipc::Done>(ipc::UnloadModule{.module = 0}).ok()) << "the session lives on";
}

TEST(KernelLimit, KernelThatIgnoresRequestIsDeviceLossThatNamesKernel) {
  server::WorkerOptions options = LimitedLow(std::chrono::milliseconds(30));
  options.leaves_within = std::chrono::milliseconds(40);
  WorkerHarness worker({.can_kill = false, .may_be_killed = true}, options);
  RawClient low = worker.Client({.name = "slow", .client_class = SchedulingClass::kLow});
  low.Launch(0, 0, 0, {.x = 100});
  const Status end = low.AwaitEnd();
  EXPECT_EQ(end.code(), StatusCode::kDeviceLost);
  EXPECT_THAT(end.message(), ::testing::HasSubstr("kernel 'null' ended by force: it has run "));
  EXPECT_THAT(end.message(), ::testing::HasSubstr("has not ended within 0.04 s of the request; "
                                                  "caused by kernel 'null' [client 1 'slow'"));
  EXPECT_EQ(worker.AwaitExit(), server::kWorkerLostDevice);
  EXPECT_EQ(worker.device().kills_asked(), 1u);
}

// The worker no longer waits for a kernel that has left the device, however many kernels follow.
TEST(KernelLimit, GracePeriodAppliesToStoppedKernelOnly) {
  server::WorkerOptions options = LimitedLow(std::chrono::milliseconds(10));
  options.leaves_within = std::chrono::seconds(2);
  WorkerHarness worker({.can_kill = false, .may_be_killed = true}, options);
  RawClient low = worker.Client({.client_class = SchedulingClass::kLow});
  for (std::uint32_t stream = 1; stream <= 5; ++stream) {
    low.CreateStream(stream);
    low.Launch(stream, 0, 0, {.x = 100});
    ASSERT_TRUE(Eventually([&] { return worker.device().kills_asked() == stream; }));
    std::this_thread::sleep_for(std::chrono::milliseconds(450));
    worker.device().FinishOldest(Status(StatusCode::kCancelled, "left"));
    ASSERT_TRUE(low.NextCompletion());
  }
  EXPECT_TRUE(low.Ask<ipc::Done>(ipc::UnloadModule{.module = 0}).ok());
}

// A device that announces no completions is polled while it has work, with short sleeps in between,
// because a spinning thread would occupy a core. Without work it is not polled.
TEST(WorkerScheduling, PollsDeviceWithShortSleepsUntilWorkEnds) {
  WorkerHarness worker({.must_be_polled = true});
  RawClient client = worker.Client();
  const Sequence launch = client.Launch(0, 0, 0, {.x = 100});
  ASSERT_EQ(worker.device().WaitForSubmissions(1).size(), 1u);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const std::size_t before = worker.device().times_asked();
  const auto since = std::chrono::steady_clock::now();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  // The number of polls is reached however rarely a busy machine runs the thread.
  EXPECT_TRUE(Eventually([&] { return worker.device().times_asked() >= before + 20; }));
  const std::size_t asked = worker.device().times_asked() - before;
  const auto passed = std::chrono::steady_clock::now() - since;
  // Two polls an iteration, and at least 5 µs of sleep in each iteration: a spinning thread would
  // poll about ten times as often.
  EXPECT_LE(asked, static_cast<std::size_t>(passed / std::chrono::nanoseconds(2500)));

  worker.device().FinishOldest();
  ASSERT_TRUE(client.AwaitFinished(0, launch));
  // An answer on the socket proves that the iteration of the completion is over.
  ASSERT_TRUE(client.Ask<ipc::Done>(ipc::UnloadModule{.module = 0}).ok());
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const std::size_t idle = worker.device().times_asked();
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_LE(worker.device().times_asked() - idle, 4u);
}

TEST(WorkerScheduling, DoesNotRequestStopOfDeviceThatCannot) {
  WorkerHarness worker({.preemption = device::Preemption::kBetweenCommands});
  RawClient low = worker.Client({.client_class = SchedulingClass::kLow});
  RawClient high = worker.Client({.client_class = SchedulingClass::kHigh});
  low.Launch(0, 0, 0, {.x = 100});
  ASSERT_EQ(worker.device().WaitForSubmissions(1).size(), 1u);
  high.Launch(0, 0, 0);
  ASSERT_EQ(worker.device().WaitForSubmissions(2).size(), 2u);
  EXPECT_EQ(worker.device().stops_asked(), 0u);
}

}  // namespace
}  // namespace gpushared::testing
