// SPDX-License-Identifier: Apache-2.0
#include "scheduler/sim/mix.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gpushared::simulation {
namespace {

using namespace std::chrono_literals;
using scheduler::SchedulingClass;
using ::testing::HasSubstr;
using Pace = ClientPlan::Pace;

const std::map<std::string, Job> kProfiles = {{"vgg", {"vgg", {Kernel{80, 200us}}}},
                                              {"bert", {"bert", {Kernel{800, 40us}}}}};

Result<Scenario> Read(const std::string& text) {
  const std::string path = ::testing::TempDir() + "mix-" + std::to_string(::getpid()) + ".json";
  std::ofstream(path) << text;
  Result<Scenario> scenario = ReadMix(path, kProfiles, 1);
  std::filesystem::remove(path);
  return scenario;
}

std::string Task(const std::string& load, const std::string& model = "vgg") {
  return R"({"id": "a", "load": {)" + load + R"(}, "client": {"model_name": ")" + model + R"("}})";
}
std::string Mix(const std::string& tasks) { return R"({"time": 2, "tasks": [)" + tasks + "]}"; }

TEST(Mixes, APeriodicTaskOfPriorityZeroIsHighClassAndContinuousOnesTrain) {
  const Result<Scenario> scenario =
      Read(Mix(Task(R"("type": "periodic", "priority": 0, "frequency": 100)") + "," +
               Task(R"("type": "continuous")", "bert")));
  ASSERT_TRUE(scenario.ok()) << scenario.status().ToString();
  EXPECT_EQ(scenario->length, 2s);
  ASSERT_EQ(scenario->clients.size(), 2U);
  const ClientPlan& high = scenario->clients[0];
  EXPECT_EQ(high.spec.scheduling_class, SchedulingClass::kHigh);
  EXPECT_EQ(high.pace, Pace::kOpen);
  EXPECT_EQ(high.times_s.size(), 200U);
  EXPECT_DOUBLE_EQ(high.times_s.at(1), 0.01);
  const ClientPlan& low = scenario->clients[1];
  EXPECT_EQ(low.spec.scheduling_class, SchedulingClass::kLow);
  EXPECT_EQ(low.pace, Pace::kEndless);
  EXPECT_EQ(low.job.name, "bert");
}

TEST(Mixes, ContinuousLoadAboveTheLowClassIsAClosedLoop) {
  const Result<Scenario> scenario = Read(
      Mix(Task(R"("type": "continuous", "class": "normal", "weight": 3, "latency_target_ms": 2)")));
  ASSERT_TRUE(scenario.ok()) << scenario.status().ToString();
  const ClientPlan& plan = scenario->clients[0];
  EXPECT_EQ(plan.spec.scheduling_class, SchedulingClass::kNormal);
  EXPECT_EQ(plan.spec.weight, 3U);
  EXPECT_EQ(plan.spec.latency_target, 2ms);
  EXPECT_EQ(plan.pace, Pace::kClosed);
}

TEST(Mixes, RejectsInvalidTaskByName) {
  const std::string good = Task(R"("type": "continuous")");
  for (const std::string& bad :
       {Task(R"("type": "often")"), Task(R"("frequency": 3)"), Task(R"("type": "periodic")"),
        Task(R"("type": "poisson", "frequency": -1)"), Task(R"("type": "continuous", "weight": 0)"),
        Task(R"("type": "continuous", "class": "best")"), Task(R"("type": "continuous")", "gpt"),
        Task(R"("type": "trace", "frequency": 3, "file": "none.csv")"), std::string("7"),
        std::string("{}"), Task(R"("type": "continuous", "latency_target_ms": "soon")")}) {
    const Result<Scenario> scenario = Read(Mix(good + "," + bad));
    ASSERT_FALSE(scenario.ok()) << bad;
    EXPECT_THAT(scenario.status().message(), HasSubstr("'tasks[1]")) << bad;
  }
  for (const char* text : {"", "[]", "{", R"({"time": 1})", R"({"time": 0, "tasks": [{}]})",
                           R"({"time": 1, "tasks": []})", R"({"time": 1, "tasks": {}})"})
    EXPECT_FALSE(Read(text).ok()) << text;
  for (const char* path : {"/no/mix.json", "/tmp"})
    EXPECT_FALSE(ReadMix(path, kProfiles, 1).ok()) << path;
}

TEST(Mixes, EveryClientOfAMixIsReported) {
  const Result<Scenario> scenario = Read(
      Mix(Task(R"("type": "poisson", "priority": 0, "frequency": 300, "latency_target_ms": 0.3)") +
          "," + Task(R"("type": "continuous", "priority": 0)") + "," +
          Task(R"("type": "continuous")", "bert")));
  ASSERT_TRUE(scenario.ok()) << scenario.status().ToString();
  const std::vector<ClientRow> rows = RunMix(*scenario, {}, {*FindSetup("priority")});
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_GT(rows[0].requests, 500U);
  EXPECT_GE(rows[0].p99_ms, rows[0].p50_ms);
  EXPECT_GT(rows[0].target_met, 0);
  EXPECT_LT(rows[0].target_met, 1);
  EXPECT_NEAR(rows[0].throughput, 1, 0.01);
  EXPECT_GT(rows[1].requests, 5000U);
  EXPECT_LT(rows[1].throughput, 1);
  // High clients are always busy, which leaves no device time for the low one.
  EXPECT_EQ(rows[2].requests, 0U);
  EXPECT_LT(rows[2].throughput, 0.1);
}

}  // namespace
}  // namespace gpushared::simulation
