// SPDX-License-Identifier: Apache-2.0
// On a device that can stop only the preemptible form of a kernel: which form each launch runs as.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <vector>

#include <gtest/gtest.h>

#include "server/worker/state/cost_model.h"
#include "tests/server/worker/harness.h"
#include "tests/support/log_text.h"
#include "tests/support/scratch_directory.h"

#include <nlohmann/json.hpp>

namespace gpushared::testing {
namespace {

using std::chrono::microseconds;

constexpr std::size_t kForms = server::CostModel::kFormSamplesMin;
constexpr std::size_t kEvery = server::CostModel::kSampleEvery;

// Returns a device on which a launch of the original form takes 1000 us.
StepDeviceOptions Stopped(microseconds stoppable_takes) {
  return {.launch_takes = microseconds(1000),
          .stoppable_takes = stoppable_takes,
          .stopping_costs = true};
}

// Runs `count` launches one after the other, each to its end. Returns which of them were stoppable.
std::vector<bool> LaunchEach(WorkerHarness& worker, RawClient& client, std::size_t count) {
  std::vector<bool> stoppable;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t before = worker.device().submissions().size();
    const Sequence launch = client.Launch(0, 0, 0, {.x = 10});
    const auto seen = worker.device().WaitForSubmissions(before + 1);
    EXPECT_EQ(seen.size(), before + 1);
    if (seen.empty()) break;
    stoppable.push_back(seen.back().may_be_stopped);
    worker.device().FinishLatest();
    EXPECT_TRUE(client.AwaitFinished(0, launch));
  }
  return stoppable;
}

std::size_t Stoppable(const std::vector<bool>& launches) {
  return static_cast<std::size_t>(std::ranges::count(launches, true));
}

TEST(Forms, SlowFormIsAbandonedAndLoggedOnce) {
  const LogText log;
  {
    WorkerHarness worker(Stopped(microseconds(1200)), {.settings = {.policy = "priority"}});
    RawClient low = worker.Client({.client_class = SchedulingClass::kLow});
    EXPECT_EQ(Stoppable(LaunchEach(worker, low, kForms)), 0u) << "there is nobody to stop it for";
    RawClient high = worker.Client({.client_class = SchedulingClass::kHigh});
    EXPECT_EQ(Stoppable(LaunchEach(worker, low, kForms)), kForms);
    EXPECT_EQ(Stoppable(LaunchEach(worker, low, 2 * kEvery)), 0u) << "1.2 is more than 1.15";
  }
  EXPECT_EQ(
      log.Count("kernel 'null' is no longer preempted: its preemptible form takes 1200 us, its "
                "original form 1000 us, and at most 1.15 times that is allowed"),
      1U);
}

TEST(Forms, KeepsSlightlySlowerForm) {
  WorkerHarness worker(Stopped(microseconds(1150)), {.settings = {.policy = "priority"}});
  RawClient low = worker.Client({.client_class = SchedulingClass::kLow});
  (void)LaunchEach(worker, low, kForms);
  RawClient high = worker.Client({.client_class = SchedulingClass::kHigh});
  EXPECT_EQ(Stoppable(LaunchEach(worker, low, 2 * kEvery)), 2 * kEvery);
}

// On this device, each part of a stopped launch takes as long as a whole launch.
TEST(Forms, PreemptionsDoNotMakeFormSlow) {
  WorkerHarness worker(Stopped(microseconds(1100)), {.settings = {.policy = "priority"}});
  RawClient low = worker.Client({.client_class = SchedulingClass::kLow});
  (void)LaunchEach(worker, low, kForms);
  RawClient high = worker.Client({.client_class = SchedulingClass::kHigh});
  std::size_t seen = kForms;
  for (std::size_t i = 0; i < kForms; ++i) {
    const Sequence stopped = low.Launch(0, 0, 0, {.x = 10});
    ASSERT_EQ(worker.device().WaitForSubmissions(seen + 1).size(), seen + 1);
    const Sequence request = high.Launch(0, 0, 0);
    ASSERT_EQ(worker.device().WaitForSubmissions(seen + 2).size(), seen + 2);
    worker.device().FinishOldest();
    ASSERT_TRUE(high.AwaitFinished(0, request));
    seen += 3;
    ASSERT_EQ(worker.device().WaitForSubmissions(seen).size(), seen);
    worker.device().FinishOldest();
    ASSERT_TRUE(low.AwaitFinished(0, stopped));
  }
  EXPECT_EQ(worker.device().stops_asked(), kForms);
  EXPECT_EQ(Stoppable(LaunchEach(worker, low, 1)), 1u);
}

TEST(Forms, AFewSamplesDecideNothing) {
  WorkerHarness worker(Stopped(microseconds(3000)), {.settings = {.policy = "priority"}});
  RawClient low = worker.Client({.client_class = SchedulingClass::kLow});
  (void)LaunchEach(worker, low, kForms);
  RawClient high = worker.Client({.client_class = SchedulingClass::kHigh});
  EXPECT_EQ(Stoppable(LaunchEach(worker, low, kForms - 1)), kForms - 1);
}

// If a code cache has the form at once and a more urgent client is always connected, the original
// would otherwise never be measured.
TEST(Forms, RunsUnmeasuredOriginalOccasionally) {
  WorkerHarness worker(Stopped(microseconds(1200)), {.settings = {.policy = "priority"}});
  RawClient high = worker.Client({.client_class = SchedulingClass::kHigh});
  RawClient low = worker.Client({.client_class = SchedulingClass::kLow});
  const std::vector<bool> launches = LaunchEach(worker, low, kEvery * (kForms + 3));
  // Sequence numbers (from 1) of launches of the original form.
  std::vector<std::size_t> originals;
  for (std::size_t i = 0; i < launches.size(); ++i) {
    if (!launches[i]) originals.push_back(i + 1);
  }
  ASSERT_GT(originals.size(), kForms);
  for (std::size_t i = 1; i < kForms; ++i) {
    EXPECT_NE(originals[i] / kEvery, originals[i - 1] / kEvery) << "one of each kEvery";
  }
  const std::size_t known_at = originals[kForms - 1];
  EXPECT_EQ(originals.size() - kForms, launches.size() - known_at)
      << "all of those behind, once kForms are known";
}

TEST(Forms, TriesNoOriginalWhileOtherClientHasWork) {
  StepDeviceOptions device = Stopped(microseconds(1200));
  // The peer's kernel, which is therefore not stopped at the end of a time slice.
  device.unstoppable_kernel = "three";
  WorkerHarness worker(
      device, {.settings = {.policy = "priority"}, .lane_options = {.beyond_window_max = 8}});
  RawClient high = worker.Client({.client_class = SchedulingClass::kHigh});
  RawClient low = worker.Client({.client_class = SchedulingClass::kLow});
  RawClient peer = worker.Client({.client_class = SchedulingClass::kLow});
  EXPECT_EQ(Stoppable(LaunchEach(worker, low, kForms)), kForms);
  peer.Launch(0, 0, 1, {.x = 1}, std::vector<std::byte>(24));
  ASSERT_EQ(worker.device().WaitForSubmissions(kForms + 1).size(), kForms + 1);
  EXPECT_EQ(Stoppable(LaunchEach(worker, low, 3 * kEvery)), 3 * kEvery);
}

TEST(Forms, TriesNoOriginalLongerThanTimeSlice) {
  WorkerHarness worker(
      Stopped(microseconds(1200)),
      {.settings = {.policy = "priority",
                    .policy_options = {.slice = std::chrono::microseconds(1000)}}});
  RawClient high = worker.Client({.client_class = SchedulingClass::kHigh});
  RawClient low = worker.Client({.client_class = SchedulingClass::kLow});
  EXPECT_EQ(Stoppable(LaunchEach(worker, low, 3 * kEvery)), 3 * kEvery);
}

// The predictions of this kernel are no longer trusted, nor are those of the client's other
// kernels.
TEST(Forms, MispredictionMakesAllLaunchesOfClientPreemptible) {
  WorkerHarness worker({.launch_takes = microseconds(50),
                        .stoppable_takes = microseconds(50),
                        .stopping_costs = true});
  RawClient liar = worker.Client({.client_class = SchedulingClass::kLow});
  RawClient truthful = worker.Client({.client_class = SchedulingClass::kLow});
  const RawClient high = worker.Client({.client_class = SchedulingClass::kHigh});
  const auto launch_other = [&](RawClient& client) {
    const std::size_t before = worker.device().submissions().size();
    const Sequence launch = client.Launch(0, 0, 1, {.x = 10}, std::vector<std::byte>(24));
    const auto seen = worker.device().WaitForSubmissions(before + 1);
    worker.device().FinishLatest();
    EXPECT_TRUE(client.AwaitFinished(0, launch));
    return !seen.empty() && seen.back().may_be_stopped;
  };
  // Launches without a prediction are assumed to be long.
  EXPECT_TRUE(launch_other(liar));
  LaunchEach(worker, liar, 1);
  EXPECT_FALSE(launch_other(liar)) << "too short to be worth it";
  EXPECT_EQ(Stoppable(LaunchEach(worker, liar, 4)), 0u);
  worker.device().LaunchesTake(microseconds(50'000));
  EXPECT_EQ(Stoppable(LaunchEach(worker, liar, 1)), 0u) << "nobody could know";
  EXPECT_TRUE(launch_other(liar));
  EXPECT_FALSE(launch_other(truthful));
}

TEST(Forms, NextWorkerKnowsSlowForms) {
  const ScratchDirectory directory;
  const server::WorkerOptions options = {.settings = {.policy = "priority"},
                                         .cost_file = directory / "costs"};
  {
    WorkerHarness worker(Stopped(microseconds(1200)), options);
    RawClient low = worker.Client({.client_class = SchedulingClass::kLow});
    (void)LaunchEach(worker, low, kForms);
    RawClient high = worker.Client({.client_class = SchedulingClass::kHigh});
    (void)LaunchEach(worker, low, kForms);
  }
  WorkerHarness worker(Stopped(microseconds(1200)), options);
  RawClient high = worker.Client({.client_class = SchedulingClass::kHigh});
  RawClient low = worker.Client({.client_class = SchedulingClass::kLow});
  EXPECT_EQ(Stoppable(LaunchEach(worker, low, 3)), 0u);
}

TEST(Forms, ExplainsWhyAbandonedFormWasNotPreempted) {
  WorkerHarness worker(Stopped(microseconds(1200)), {.settings = {.policy = "priority"}});
  RawClient low = worker.Client({.client_class = SchedulingClass::kLow});
  (void)LaunchEach(worker, low, kForms);
  RawClient high = worker.Client({.client_class = SchedulingClass::kHigh});
  (void)LaunchEach(worker, low, kForms);
  const Sequence slow = low.Launch(0, 0, 0, {.x = 10});
  const std::size_t before = 2 * kForms + 1;
  ASSERT_EQ(worker.device().WaitForSubmissions(before).size(), before);
  const Sequence request = high.Launch(0, 0, 1, {}, std::vector<std::byte>(24));
  ASSERT_EQ(worker.device().WaitForSubmissions(before + 1).size(), before + 1);
  EXPECT_EQ(worker.device().stops_asked(), 0u);
  worker.device().FinishOldest();
  ASSERT_TRUE(low.AwaitFinished(0, slow));
  worker.device().FinishOldest();
  ASSERT_TRUE(high.AwaitFinished(0, request));
  const auto row = nlohmann::json::parse(worker.AskAdmin(ipc::AdminVerb::kClients))["clients"][0];
  EXPECT_EQ(row["nonpreemptible_kernel"], "null");
  EXPECT_EQ(row["nonpreemptible_why"], "slow form");
}

}  // namespace
}  // namespace gpushared::testing
