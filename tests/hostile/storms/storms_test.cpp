// SPDX-License-Identifier: Apache-2.0
// Short storms: no client is starved, no process ends, no resource leaks. Times are judged by the
// program `storms`, which has longer and more storms.
#include "tests/hostile/storms/storms.h"

#include <unistd.h>

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/hostile/storms/experiment.h"
#include "tests/hostile/storms/log_minute.h"
#include "tests/hostile/storms/median_outcome.h"
#include "tests/hostile/storms/processes.h"
#include "tests/hostile/storms/report.h"

namespace gpushared::storms {
namespace {

constexpr double kSeconds = 2;
// Memory that a worker may retain after a storm: free memory that its heap and executor keep for
// reuse.
constexpr std::uint64_t kBytesLeftMax = std::uint64_t{128} << 20;

struct ShortStorm {
  const char* name;
  std::uint64_t deeds_least = 1;

  friend void PrintTo(const ShortStorm& storm, std::ostream* out) { *out << storm.name; }
};

StormPlan ShortPlan(const ShortStorm& storm) {
  StormPlan plan{.server = GPUSHARED_BIN_DIR "/gpushared", .seconds = kSeconds};
  plan.compares_times = false;
  plan.deeds_least = storm.deeds_least;
  return plan;
}

class Storms : public ::testing::TestWithParam<ShortStorm> {};

TEST_P(Storms, StarveNoClientAndLeakNothing) {
  const Storm* const storm = FindStorm(GetParam().name);
  ASSERT_NE(storm, nullptr);
  const StormOutcome outcome = RunStorm(*storm, ShortPlan(GetParam()));
  EXPECT_EQ(outcome.Broken(), "") << outcome.log_tail;
  EXPECT_GE(outcome.deeds, GetParam().deeds_least) << outcome.attacker_words;
  EXPECT_LE(outcome.after.Bytes(), outcome.before.Bytes() + kBytesLeftMax);
}

constexpr ShortStorm kShort[] = {{"launches"},
                                 {"streams"},
                                 {"unloads"},
                                 {"silent"},
                                 {"hellos"},
                                 {"churn", 1000},
                                 {"left_staging_buffers"}};

INSTANTIATE_TEST_SUITE_P(Short, Storms, ::testing::ValuesIn(kShort),
                         [](const auto& storm) { return std::string(storm.param.name); });

class StormsOfMemory : public ::testing::TestWithParam<ShortStorm> {};

TEST_P(StormsOfMemory, LeaveWorkerAliveWithinOneAndAHalfGibibytes) {
  const StormPlan plan = ShortPlan(GetParam());
  const MemoryCage cage(plan.memory_limit_bytes);
  if (!cage.rejection().empty()) GTEST_SKIP() << cage.rejection();
  const StormOutcome outcome = RunStorm(*FindStorm(GetParam().name), plan);
  EXPECT_EQ(outcome.not_caged, "");
  EXPECT_EQ(outcome.memory_kills, 0u) << outcome.log_tail;
  EXPECT_FALSE(outcome.worker_ended) << outcome.log_tail;
  EXPECT_GE(outcome.deeds, GetParam().deeds_least) << outcome.attacker_words;
}

constexpr ShortStorm kOfMemory[] = {{"names", 2000}, {"bombs", 8}, {"memory", 4}};

INSTANTIATE_TEST_SUITE_P(Short, StormsOfMemory, ::testing::ValuesIn(kOfMemory),
                         [](const auto& storm) { return std::string(storm.param.name); });

TEST(StormProcesses, EndWithTheirObject) {
  const Shared<std::atomic<pid_t>> child;
  {
    Processes processes;
    processes.Start({}, [&] {
      *child = ::getpid();
      ::pause();
    });
    while (*child == 0) ::usleep(1000);
    EXPECT_NE(ResidentBytes(*child), 0u);
  }
  EXPECT_EQ(ResidentBytes(*child), 0u);
}

TEST(StormProcesses, EndWithTheirParentThatIsKilled) {
  const Shared<std::atomic<pid_t>> grandchild;
  {
    Processes processes;
    processes.Start({}, [&] {
      Processes inner;
      inner.Start({}, [&] {
        *grandchild = ::getpid();
        ::pause();
      });
      ::pause();
    });
    while (*grandchild == 0) ::usleep(1000);
  }
  for (int i = 0; i < 20'000 && ResidentBytes(*grandchild) != 0; ++i) ::usleep(1000);
  EXPECT_EQ(ResidentBytes(*grandchild), 0u);
}

TEST(StormLatencies, AreNearestRankQuantiles) {
  std::vector<double> values;
  for (int i = 1; i <= 1000; ++i) values.push_back(i);
  const Latencies latencies = GetLatencies(values);
  EXPECT_EQ(latencies.p50, 500);
  EXPECT_EQ(latencies.p99, 990);
  EXPECT_EQ(latencies.p999, 999);
  EXPECT_EQ(latencies.worst, 1000);
  EXPECT_EQ(GetLatencies({}).worst, 0);
}

TEST(LogMinute, ExtrapolatesShortStormAtRateOfItsEnd) {
  constexpr std::int64_t kSecondNs = 1'000'000'000;
  LogMinute log;
  EXPECT_EQ(log.Bytes(), 0);
  log.Add(0, 500);  // Written before the storm.
  log.Add(kSecondNs / 2, 100'500);
  for (int second = 1; second <= 4; ++second) {
    log.Add(second * kSecondNs, 100'500 + 1000 * static_cast<std::uint64_t>(second));
  }
  EXPECT_FALSE(log.is_whole());
  EXPECT_DOUBLE_EQ(log.Bytes(), 104'000 + 56 * 1000);
}

TEST(LogMinute, TakesWorstMinuteOfLongStorm) {
  constexpr std::int64_t kSecondNs = 1'000'000'000;
  LogMinute log;
  std::uint64_t bytes = 0;
  for (int second = 0; second <= 200; ++second) {
    log.Add(second * kSecondNs, bytes);
    bytes += second >= 100 && second < 110 ? 5000 : 10;
  }
  EXPECT_TRUE(log.is_whole());
  EXPECT_DOUBLE_EQ(log.Bytes(), 10 * 5000 + 50 * 10);
}

// A sound outcome, for tests that corrupt one part of it.
StormOutcome Sound() {
  StormOutcome outcome;
  outcome.honest.count = outcome.result.count = 10;
  return outcome;
}

TEST(StormOutcome, IsBrokenByMachineIndependentFailures) {
  EXPECT_EQ(Sound().Broken(), "");
  StormOutcome outcome = Sound();
  outcome.worker_ended = true;
  EXPECT_NE(outcome.Broken(), "");
  outcome = Sound();
  outcome.wrong_results = 1;
  EXPECT_NE(outcome.Broken(), "");
  outcome = Sound();
  outcome.result.unfinished = 10;
  EXPECT_NE(outcome.Broken(), "");
  outcome = Sound();
  outcome.after.workers_descriptors = kDescriptorsLeftMax + 1;
  EXPECT_NE(outcome.Broken(), "");
}

TEST(StormOutcome, MissesGoalsByTimesAndLogBytes) {
  EXPECT_EQ(Sound().Missed(), "");
  StormOutcome outcome = Sound();
  outcome.p99_ratio = kHonestRatioMax + 0.1;
  outcome.welcome.p99 = kWelcomeP99MaxNs + 1;
  outcome.log_bytes_per_minute = kLogBytesPerMinuteMax + 1;
  EXPECT_EQ(outcome.Missed(), "p99 welcome log");
}

TEST(StormOutcome, PutsGoalsThatControlMissesInBrackets) {
  StormOutcome outcome = Sound();
  outcome.p99_ratio = 2.5;
  outcome.welcome.p99 = 60e6;
  outcome.control_p99_ratio = 2.6;
  outcome.control_welcome.p99 = 59e6;
  EXPECT_EQ(outcome.Missed(), "(p99) welcome");
  outcome.control_p99_ratio = 2.4;
  outcome.control_welcome.p99 = 61e6;
  EXPECT_EQ(outcome.Missed(), "p99 (welcome)");
}

TEST(StormControl, UsesRequestedPartOfCore) {
  const Shared<Board> board;
  Processes processes;
  const std::int64_t began_ns = NowNs();
  processes.Start({}, [&] { TakePartOfCore({.socket = "", .number = 0, .board = *board}, 0.25); });
  ::usleep(500'000);
  const double took = std::chrono::duration<double>(processes.ProcessorTime()).count();
  // TakePartOfCore may be ahead by its part of one period (10 ms), and gets less on a loaded
  // machine.
  EXPECT_GT(took, 0);
  EXPECT_LE(took, 0.25 * static_cast<double>(NowNs() - began_ns) / 1e9 + 0.02);
}

TEST(StormMedian, TakesMedianOfEachFigureAndKeepsAllFailures) {
  std::vector<StormOutcome> runs(5, Sound());
  const double ratios[] = {3, 1, 2.5, 1.5, 2}, welcomes[] = {10, 90, 30, 20, 80};
  for (std::size_t i = 0; i < runs.size(); ++i) {
    runs[i].p99_ratio = ratios[i];
    runs[i].welcome.p99 = welcomes[i];
  }
  EXPECT_EQ(GetMedian(runs).p99_ratio, 2);
  EXPECT_EQ(GetMedian(runs).welcome.p99, 30);
  EXPECT_EQ(GetMedian(runs).Broken(), "");
  runs[3].worker_ended = true;
  EXPECT_EQ(GetMedian(runs).Broken(), "run 4: the worker ended");
  runs.resize(2);
  EXPECT_EQ(GetMedian(runs).p99_ratio, 1) << "the lower one of two";
}

TEST(StormTable, ShowsMissedFiguresInBold) {
  StormOutcome outcome = Sound();
  outcome.name = "calm";
  outcome.p99_ratio = 1.25;
  outcome.honest.p99 = 12e6;
  outcome.welcome.p99 = 63e6;
  outcome.load.p99 = 8e6;
  outcome.log_bytes_per_minute = 2e6;
  EXPECT_NE(MarkdownTable({outcome}).find("| calm | 1.25 |  | 12 | **63** |  | 8.0 | **2000** |\n"),
            std::string::npos)
      << MarkdownTable({outcome});
  outcome.control_p99_ratio = 1.5;
  outcome.control_welcome.p99 = 15e6;
  EXPECT_NE(
      MarkdownTable({outcome}).find("| calm | 1.25 | 1.50 | 12 | **63** | 15 | 8.0 | **2000** |\n"),
      std::string::npos)
      << MarkdownTable({outcome});
}

}  // namespace
}  // namespace gpushared::storms
