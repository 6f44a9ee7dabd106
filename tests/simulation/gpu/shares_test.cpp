// SPDX-License-Identifier: Apache-2.0
// Device time follows weights in the simulated worker.
#include "scheduler/sim/shares.h"

#include <chrono>
#include <vector>

#include <gtest/gtest.h>

namespace gpushared::simulation {
namespace {

using namespace std::chrono_literals;
using scheduler::Duration;

ShareSample Sample(std::vector<Duration> held, std::vector<Duration> due) {
  return {std::move(held), std::move(due)};
}

TEST(ShareReports, ExactShareIsNoError) {
  const ShareReport report =
      ReportShares({Sample({250ms, 750ms}, {250ms, 750ms}), Sample({1s, 3s}, {1s, 3s})});
  EXPECT_NEAR(report.error_max, 0, 1e-9);
  EXPECT_NEAR(report.jain, 1, 1e-9);
  EXPECT_NEAR(report.least_ratio, 1, 1e-9);
}

TEST(ShareReports, TheWorstWindowCounts) {
  const ShareReport report =
      ReportShares({Sample({400ms, 600ms}, {500ms, 500ms}), Sample({1s, 1s}, {1s, 1s})});
  EXPECT_NEAR(report.error_max, 0.1, 1e-9);
  EXPECT_NEAR(report.jain, 1, 1e-9);  // The shares are equal at the end of the run.
}

TEST(ShareReports, StarvingOneOfTwoClientsHalvesIndex) {
  const ShareReport report = ReportShares({Sample({0s, 1s}, {500ms, 500ms})});
  EXPECT_NEAR(report.jain, 0.5, 1e-9);
  EXPECT_EQ(report.least_ratio, 0);
  EXPECT_NEAR(report.greatest_ratio, 2, 1e-9);
}

TEST(ShareReports, IdleTimeIsNoClientsLoss) {
  const ShareReport report = ReportShares({Sample({400ms, 400ms}, {500ms, 500ms})});
  EXPECT_NEAR(report.error_max, 0, 1e-9);
  EXPECT_NEAR(report.least_ratio, 1, 1e-9);
}

TEST(ShareReports, IgnoresClientsThatAreDueNothing) {
  const ShareReport report = ReportShares({Sample({1s, 0s}, {1s, 0s})});
  EXPECT_NEAR(report.jain, 1, 1e-9);
}

// Checks the accuracy of shares that docs/simulation.md states, for `policy`.
void ExpectFair(const ShareOptions& options, std::string_view policy = "fair") {
  const FrontOptions front;
  const Outcome outcome =
      RunScenario(*FindSetup(policy), front, MakeShareScenario(options, front.policy.slice));
  const ShareReport report = ReportShares(outcome.samples);
  EXPECT_LE(report.error_max, 0.02);
  EXPECT_GE(report.jain, 0.99);
  EXPECT_GT(report.least_ratio, 0.8);
}

TEST(FairShareRuns, EqualWeightsGetEqualTime) { ExpectFair({.weights = {1, 1}, .length = 5s}); }

TEST(FairShareRuns, AThousandTimesTheWeightIsAThousandTimesTheTime) {
  ExpectFair({.weights = {1, 1000}, .length = 20s});
}

TEST(FairShareRuns, ManyClientsOfManyWeights) {
  ExpectFair({.weights = {1, 2, 3, 5, 10, 20, 30, 50}, .length = 25s});
}

TEST(FairShareRuns, WeightsInsideAClassUnderPriority) {
  ExpectFair({.weights = {1, 3, 10}, .length = 10s}, "priority");
}

TEST(FairShareRuns, LendsSleepersTimeUntilTheyWake) {
  ExpectFair({.weights = {1, 4, 2, 8}, .sleep_s = 0.7, .length = 20s});
}

TEST(FairShareRuns, ClientsThatWaitForEachKernelGetTheirShareToo) {
  ExpectFair({.weights = {1, 10}, .depth = 1, .length = 10s});
}

TEST(CappedRuns, EveryPolicyIsWithinTwoPointsOfACap) {
  for (const scheduler::PolicyEntry& policy : scheduler::PolicyCatalog()) {
    const ShareOptions options{.weights = {1, 1, 1}, .max_shares = {250, 50, 1000}, .length = 10s};
    const FrontOptions front;
    const Outcome outcome =
        RunScenario(*FindSetup(policy.name), front, MakeShareScenario(options, front.policy.slice));
    EXPECT_LE(CapErrorMax(outcome.samples, options.max_shares), 0.02) << policy.name;
    // The third client gets the rest.
    EXPECT_GE(outcome.samples.back().held[2] / outcome.samples.size(), 680ms) << policy.name;
  }
}

TEST(FairShareRuns, WeightsHaveNoEffectWithoutPolicy) {
  const FrontOptions front;
  const Outcome outcome =
      RunScenario(*FindSetup("mps"), front,
                  MakeShareScenario({.weights = {1, 10}, .length = 5s}, front.policy.slice));
  EXPECT_GT(ReportShares(outcome.samples).error_max, 0.2);
}

}  // namespace
}  // namespace gpushared::simulation
