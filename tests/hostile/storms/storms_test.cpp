// SPDX-License-Identifier: Apache-2.0
// Short storms: no client is starved, no process ends, no resource leaks. Times are judged by the
// program `storms`, which has longer and more storms.
#include "tests/hostile/storms/storms.h"

#include <unistd.h>

#include <cstdint>
#include <ostream>
#include <string>

#include <gtest/gtest.h>

#include "tests/hostile/storms/experiment.h"
#include "tests/hostile/storms/processes.h"

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

}  // namespace
}  // namespace gpushared::storms
