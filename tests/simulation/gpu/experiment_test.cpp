// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/gpu/experiment.h"

#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gpushared::simulation {
namespace {

using namespace std::chrono_literals;
using scheduler::Duration;
using ::testing::HasSubstr;

// A file that goes with the test.
class ProfileFile {
 public:
  explicit ProfileFile(const std::string& text)
      : path_(::testing::TempDir() + "profile-" + std::to_string(::getpid()) + ".csv") {
    std::ofstream(path_) << text;
  }
  ~ProfileFile() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

constexpr char kHeader[] = "Name,Profile,Memory_footprint,SM_usage,Duration\n";

TEST(OrionProfile, KernelsBecomeBlocksWhoseWavesTakeTheMeasuredTime) {
  const ProfileFile file(std::string(kHeader) + "gemm<a, b>,1,0,160,200000\ncopy,0,0,0,3000\n");
  const Result<Job> job = ReadOrionProfile(file.path(), {});
  ASSERT_TRUE(job.ok()) << job.status().ToString();
  ASSERT_EQ(job->kernels.size(), 2U);
  EXPECT_EQ(job->kernels[0].blocks, 160U);
  EXPECT_EQ(job->kernels[0].block_time, 100us);
  EXPECT_EQ(job->kernels[0].kind, Kernel::Kind::kCompute);
  EXPECT_EQ(job->kernels[1].kind, Kernel::Kind::kMemory);
  EXPECT_EQ(job->kernels[1].blocks, 1U);
  EXPECT_EQ(SoloTime(job->kernels[0], 80), 200us);
}

TEST(OrionProfile, LongerBlocksTakeTheSameTimeInAll) {
  const ProfileFile file(std::string(kHeader) + "k,1,0,800,1000000\none wave,1,0,80,5000\n");
  const Result<Job> job = ReadOrionProfile(file.path(), {.block_stretch = 5});
  ASSERT_TRUE(job.ok());
  EXPECT_EQ(job->kernels[0].block_time, 500us);
  EXPECT_EQ(SoloTime(job->kernels[0], 80), 1ms);
  EXPECT_EQ(job->kernels[1].block_time, 5us);
}

TEST(OrionProfile, WhatIsWrongIsRefusedWithItsLine) {
  for (const char* line : {"no figures", "k,1,0,80", "k,1,0,80,", "k,1,0,80,1e3", "k,1,0,80,0",
                           "k,1,0,99999999,5", "k,1,0,-1,5", "k,2,0,80,5"}) {
    const ProfileFile file(std::string(kHeader) + "fine,1,0,80,5\n" + line + "\n");
    const Result<Job> job = ReadOrionProfile(file.path(), {});
    ASSERT_FALSE(job.ok()) << line;
    EXPECT_THAT(job.status().message(), HasSubstr("line 3"));
    EXPECT_THAT(job.status().message(), HasSubstr(file.path()));
  }
  EXPECT_FALSE(ReadOrionProfile("/does/not/exist.csv", {}).ok());
  const ProfileFile empty(kHeader);
  EXPECT_THAT(ReadOrionProfile(empty.path(), {}).status().message(), HasSubstr("no kernels"));
}

TEST(Arrivals, HaveTheAskedMean) {
  for (const char* kind : {"poisson", "bursty"}) {
    const Result<std::vector<double>> arrivals = MakeArrivals(kind, 20'000, 0.01, 3);
    ASSERT_TRUE(arrivals.ok());
    EXPECT_NEAR(arrivals->back() / 20'000, 0.01, 0.0003) << kind;
    EXPECT_TRUE(std::is_sorted(arrivals->begin(), arrivals->end()));
  }
  EXPECT_THAT(MakeArrivals("/no/trace.csv", 10, 1, 1).status().message(),
              HasSubstr("/no/trace.csv"));
}

TEST(Percentiles, AreValuesThatOccurred) {
  std::vector<Duration> times(101);
  for (int i = 0; i <= 100; ++i) times[static_cast<std::size_t>(100 - i)] = Duration(i);
  EXPECT_EQ(Percentile(times, 0.99), 99ns);
  EXPECT_EQ(Percentile(times, 0), 0ns);
  EXPECT_EQ(Percentile(times, 1), 100ns);
}

// A request of 1 ms in ten kernels; a step of long kernels in short blocks.
const Job kRequest{"request", std::vector<Kernel>(10, Kernel{80, 100us})};
const Job kStep{"step", std::vector<Kernel>(20, Kernel{4000, 40us})};

CellOptions Cell() {
  return {.high = kRequest,
          .low = kStep,
          .load = 0.5,
          .arrivals = "poisson",
          .requests = 3000,
          .seed = 5,
          .front = {}};
}

Row RowOf(const CellOptions& cell, std::string_view policy) {
  const Result<std::vector<Row>> rows = RunCell(cell, {*FindSetup(policy)});
  EXPECT_TRUE(rows.ok());
  return rows->front();
}

TEST(Experiment, SameSeedSameFigures) {
  const Row first = RowOf(Cell(), "priority");
  const Row again = RowOf(Cell(), "priority");
  EXPECT_EQ(first.p99_inflation, again.p99_inflation);
  EXPECT_EQ(first.gap_used, again.gap_used);
  CellOptions other = Cell();
  other.seed = 6;
  EXPECT_NE(RowOf(other, "priority").p99_added_ms, first.p99_added_ms);
}

TEST(Experiment, EveryContestantServesEveryRequest) {
  for (const SetupEntry& entry : SetupCatalog()) {
    const Outcome outcome = RunExperiment(entry, {}, &kRequest, {0.0, 0.001, 0.05}, &kStep);
    EXPECT_EQ(outcome.request_times.size(), 3U) << entry.name;
    for (const Duration time : outcome.request_times) EXPECT_GT(time, 1ms) << entry.name;
    EXPECT_GT(outcome.low_steps_per_s, 0) << entry.name;
  }
}

TEST(Experiment, LoadIsTheShareOfTimeThatRequestsTake) {
  // What high leaves is what a policy that wastes nothing gives to low.
  EXPECT_NEAR(RowOf(Cell(), "priority").low_throughput, 0.5, 0.06);
}

TEST(Experiment, ClaimsKeepRequestsFromWaitingForWholeKernels) {
  CellOptions cell = Cell();
  const Row with = RowOf(cell, "priority");
  cell.front.claims = false;
  const Row without = RowOf(cell, "priority");
  // A low kernel takes 2 ms; a block of it 40 us.
  EXPECT_LT(with.p99_added_ms, 0.2);
  EXPECT_GT(without.p99_added_ms, 1.5);
}

TEST(Experiment, LongBlocksBreakThePromiseWhateverThePolicy) {
  CellOptions cell = Cell();
  cell.low.kernels.assign(20, Kernel{160, 4ms});
  EXPECT_GT(RowOf(cell, "priority").p99_added_ms, 3);
}

TEST(Experiment, PriorityBeatsWhatUsersWouldPickInstead) {
  const Row ours = RowOf(Cell(), "priority");
  for (const char* name : {"mps", "mps-priority", "time-slicing", "fifo"}) {
    EXPECT_LT(ours.p99_added_ms * 5, RowOf(Cell(), name).p99_added_ms) << name;
  }
  EXPECT_GT(ours.gap_used, RowOf(Cell(), "tally").gap_used);
}

}  // namespace
}  // namespace gpushared::simulation
