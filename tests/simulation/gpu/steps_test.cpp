// SPDX-License-Identifier: Apache-2.0
// Clients that wait for their own steps, and requests that differ.
#include <chrono>
#include <vector>

#include <gtest/gtest.h>

#include "scheduler/sim/run.h"

namespace gpushared::simulation {
namespace {

using namespace std::chrono_literals;
using Pace = ClientPlan::Pace;

FrontOptions FreeDevice() {
  FrontOptions options{.multiprocessors = 1};
  options.costs = {
      .launch_call = {}, .launch_delay = {}, .kernel_gap = {}, .notice = {}, .claim = {}};
  return options;
}

std::vector<scheduler::Duration> GetTimes(const ClientPlan& plan) {
  const Scenario scenario{.clients = {plan}};
  return RunScenario(*FindSetup("fifo"), FreeDevice(), scenario).clients.at(0).request_times;
}

ClientPlan PlanWith(std::vector<Job> jobs, Pace pace, std::vector<double> times_s) {
  return {.name = "client",
          .spec = {},
          .job = {},
          .jobs = std::move(jobs),
          .pace = pace,
          .times_s = std::move(times_s),
          .awake = {}};
}

using Times = std::vector<scheduler::Duration>;

TEST(Steps, AwaitedKernelStartsAfterPreviousOne) {
  const Job job{
      "job",
      {{.block_time = 1ms, .after = 2ms}, {.block_time = 1ms, .after = 3ms}, {.block_time = 1ms}}};
  EXPECT_EQ(GetTimes(PlanWith({job}, Pace::kOpen, {0.0, 1.0})), Times({8ms, 8ms}));
}

TEST(Steps, RequestsRunTheirOwnJobsInTurn) {
  const Job brief{"brief", {{.block_time = 1ms}}},
      slow{"slow", {{.block_time = 5ms}, {.block_time = 2ms}}};
  EXPECT_EQ(GetTimes(PlanWith({brief, slow}, Pace::kOpen, {0, 1, 2})), Times({1ms, 7ms, 1ms}));
}

TEST(Steps, SequentialRequestsWaitInClientAndAreTimedFromArrival) {
  const Job job{"job", {{.block_time = 3ms, .after = 1ms}}};
  EXPECT_EQ(GetTimes(PlanWith({job}, Pace::kInTurn, {0, 0.001, 0.1})), Times({4ms, 7ms, 4ms}));
  EXPECT_EQ(GetTimes(PlanWith({job}, Pace::kOneByOne, {0, 0.001, 0.1})), Times({4ms, 4ms, 4ms}));
}

TEST(Steps, TheGapIsTheTimeWithoutHighWork) {
  ClientPlan high = PlanWith({{"job", {{.block_time = 4ms}}}}, Pace::kOpen, {0.010});
  high.spec.scheduling_class = scheduler::SchedulingClass::kHigh;
  const Outcome outcome =
      RunScenario(*FindSetup("priority"), FreeDevice(), {.clients = {high}, .length = 100ms});
  EXPECT_EQ(outcome.gap, 96ms);
}

}  // namespace
}  // namespace gpushared::simulation
