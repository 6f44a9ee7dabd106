// SPDX-License-Identifier: Apache-2.0
#include "scheduler/sim/experiment.h"

#include <array>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scheduler/sim/arrivals.h"

namespace gpushared::simulation {
namespace {

using namespace std::chrono_literals;
using scheduler::Duration;
using scheduler::SchedulingClass;
using ::testing::HasSubstr;

// A file that the destructor deletes.
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

TEST(OrionProfile, LongerBlocksDoNotChangeKernelTime) {
  const ProfileFile file(std::string(kHeader) + "k,1,0,800,1000000\none wave,1,0,80,5000\n");
  const Result<Job> job = ReadOrionProfile(file.path(), {.block_stretch = 5});
  ASSERT_TRUE(job.ok());
  EXPECT_EQ(job->kernels[0].block_time, 500us);
  EXPECT_EQ(SoloTime(job->kernels[0], 80), 1ms);
  EXPECT_EQ(job->kernels[1].block_time, 5us);
}

TEST(OrionProfile, RejectsInvalidLineWithItsNumber) {
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

TEST(Jobs, ParsesUniformJobFromCommandLine) {
  const Result<Job> job = ReadJob("even:3:1000:50", {});
  ASSERT_TRUE(job.ok()) << job.status().ToString();
  EXPECT_EQ(job->kernels.size(), 3U);
  EXPECT_EQ(job->kernels[0].block_time, 50us);
  EXPECT_EQ(SoloTime(job->kernels[0], 80), 1ms);
  for (const char* text : {"even:", "even:1:2", "even:1:2:", "even:1:100:30", "even:0:100:50",
                           "even:1:0:50", "even:1:100:0", "even:1:100:50:", "even:1:10000000:1",
                           "even:99999:100:50", "even:1:100000000:100000"})
    EXPECT_THAT(ReadJob(text, {}).status().message(), HasSubstr("even:KERNELS")) << text;
  EXPECT_THAT(ReadJob("/no/file", {}).status().message(), HasSubstr("/no/file"));
  EXPECT_THAT(ReadJob("nonpreemptible:1:2", {}).status().message(),
              HasSubstr("nonpreemptible:KERNELS"));
}

TEST(Jobs, ParsesGraphLikeItsKernels) {
  const Result<Job> job = ReadJob("graph:3:1000:50+even:1:10:10", {});
  ASSERT_TRUE(job.ok()) << job.status().ToString();
  ASSERT_EQ(job->kernels.size(), 4U);
  const std::array<std::uint32_t, 4> nodes{3, 0, 0, 0};
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    EXPECT_EQ(job->kernels[i].graph_nodes, nodes.at(i));
    EXPECT_EQ(job->kernels[i].follows_in_graph, i == 1 || i == 2);
  }
  EXPECT_EQ(SoloTime(job->kernels[1], 80), 1ms);
  EXPECT_THAT(ReadJob("graph:1:2", {}).status().message(), HasSubstr("graph:KERNELS"));
}

// A decode step, for which the client's calls take more time than the GPU's kernels.
TEST(Jobs, AGraphCostsOneDecisionAndLessTime) {
  std::array<Row, 2> rows{};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    CellOptions cell;
    cell.high = *ReadJob(i == 0 ? "even:300:6:6" : "graph:300:6:6", {});
    cell.low = *ReadJob("even:20:1000:20", {});
    cell.load = 0.3;
    cell.requests = 200;
    const auto run = RunCell(cell, {*FindSetup("priority")});
    ASSERT_TRUE(run.ok()) << run.status().ToString();
    rows.at(i) = run->front();
    EXPECT_LT(rows.at(i).p99_inflation, 0.1);
  }
  EXPECT_GE(rows[0].decisions, 300U * 200U);
  EXPECT_LT(rows[1].decisions * 20, rows[0].decisions) << "low kernels take some of them";
  EXPECT_LT(rows[1].p99_alone_ms, rows[0].p99_alone_ms);
}

// A request waits for a running kernel of machine code, regardless of its blocks.
TEST(Jobs, DoesNotPreemptNonpreemptibleWorkForARequest) {
  std::array<double, 2> added_ms{};
  for (std::size_t i = 0; i < added_ms.size(); ++i) {
    const Result<Job> high = ReadJob("even:10:50:10", {});
    const Result<Job> low = ReadJob(i == 0 ? "even:20:10000:20" : "nonpreemptible:20:10000:20", {});
    ASSERT_TRUE(high.ok() && low.ok());
    CellOptions cell;
    cell.high = *high;
    cell.low = *low;
    cell.load = 0.3;
    cell.requests = 300;
    const auto rows = RunCell(cell, {*FindSetup("priority")});
    ASSERT_TRUE(rows.ok()) << rows.status().ToString();
    added_ms.at(i) = rows->front().p99_added_ms;
  }
  EXPECT_LT(added_ms[0], 0.2);
  EXPECT_GT(added_ms[1], 1);
}

TEST(Jobs, AGridSaysHowManyBlocksAMultiprocessorHolds) {
  const Result<Job> job = ReadJob("grid:3:100:50:4", {});
  ASSERT_TRUE(job.ok()) << job.status().ToString();
  EXPECT_EQ(job->kernels.size(), 3U);
  EXPECT_EQ(job->kernels[0].blocks, 100U);
  EXPECT_EQ(job->kernels[0].block_time, 50us);
  EXPECT_EQ(job->kernels[0].blocks_per_multiprocessor, 4U);
  for (const char* text : {"grid:", "grid:3:100:50", "grid:3:100:50:0", "grid:3:100:50:33",
                           "grid:0:100:50:4", "grid:3:0:50:4", "grid:3:100:0:4", "grid:3:1:1:1:1",
                           "grid:3:9999999:50:4", "grid:99999:100:50:4", "grid:3:1:99999999:4"})
    EXPECT_THAT(ReadJob(text, {}).status().message(), HasSubstr("grid:KERNELS")) << text;
}

TEST(Jobs, PiecesOfACopyTakeItsTimeInTotal) {
  const Result<Job> job = ReadJob("in:100", {});
  ASSERT_TRUE(job.ok()) << job.status().ToString();
  ASSERT_EQ(job->kernels.size(), 1U);
  EXPECT_EQ(job->kernels[0].kind, Kernel::Kind::kCopyToDevice);
  EXPECT_EQ(job->kernels[0].blocks, 3U);
  EXPECT_NEAR(static_cast<double>(SoloTime(job->kernels[0], 80).count()), 100e3, 3);
  EXPECT_EQ(ReadJob("out:40", {})->kernels[0].kind, Kernel::Kind::kCopyToHost);
  EXPECT_EQ(ReadJob("out:40", {})->kernels[0].blocks, 1U);
  for (const char* text : {"in:", "in:0", "in:1.5", "in:-1", "in:4:", "out:10000001", "out:x"})
    EXPECT_THAT(ReadJob(text, {}).status().message(), HasSubstr("in:US or out:US")) << text;
}

TEST(Jobs, PartsRunOneAfterTheOther) {
  const ProfileFile file(std::string(kHeader) + "k,1,0,80,5000\n");
  const Result<Job> job = ReadJob("in:80+" + file.path() + "+even:2:100:50+out:8", {});
  ASSERT_TRUE(job.ok()) << job.status().ToString();
  EXPECT_THAT(job->name, ::testing::MatchesRegex("in:80\\+profile-[0-9]+\\+even:2:100:50\\+out:8"));
  ASSERT_EQ(job->kernels.size(), 5U);
  EXPECT_EQ(job->kernels[0].kind, Kernel::Kind::kCopyToDevice);
  EXPECT_EQ(job->kernels[1].block_time, 5us);
  EXPECT_EQ(job->kernels[3].block_time, 50us);
  EXPECT_EQ(job->kernels[4].kind, Kernel::Kind::kCopyToHost);
  for (const char* text : {"", "+", "in:80+", "+in:80", "in:80++in:80", "in:80+even:1"})
    EXPECT_FALSE(ReadJob(text, {}).ok()) << text;
}

TEST(Arrivals, HaveTheRequestedMean) {
  for (const char* kind : {"poisson", "bursty"}) {
    const Result<std::vector<double>> arrivals = MakeArrivals(kind, 20'000, 0.01, 3);
    ASSERT_TRUE(arrivals.ok());
    EXPECT_NEAR(arrivals->back() / 20'000, 0.01, 0.0003) << kind;
    EXPECT_TRUE(std::is_sorted(arrivals->begin(), arrivals->end()));
  }
  const Result<std::vector<double>> periodic = MakeArrivals("periodic", 3, 0.5, 1);
  EXPECT_EQ(*periodic, std::vector<double>({0, 0.5, 1}));
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

// kRequest takes 1 ms in ten kernels. kStep consists of long kernels with short blocks.
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

Row GetRow(const CellOptions& cell, std::string_view policy) {
  const Result<std::vector<Row>> rows = RunCell(cell, {*FindSetup(policy)});
  EXPECT_TRUE(rows.ok());
  return rows->front();
}

TEST(Experiment, EqualSeedsGiveEqualFigures) {
  const Row first = GetRow(Cell(), "priority");
  const Row again = GetRow(Cell(), "priority");
  EXPECT_EQ(first.p99_inflation, again.p99_inflation);
  EXPECT_EQ(first.gap_used, again.gap_used);
  CellOptions other = Cell();
  other.seed = 6;
  EXPECT_NE(GetRow(other, "priority").p99_added_ms, first.p99_added_ms);
}

TEST(Experiment, EveryContestantServesEveryRequest) {
  for (const SetupEntry& entry : SetupCatalog()) {
    const Scenario scenario{
        .clients = {{.name = "high",
                     .spec = {.scheduling_class = SchedulingClass::kHigh, .latency_target = 2ms},
                     .job = kRequest,
                     .pace = ClientPlan::Pace::kOpen,
                     .times_s = {0.0, 0.001, 0.05},
                     .awake = {}},
                    {.name = "low",
                     .spec = {.scheduling_class = SchedulingClass::kLow},
                     .job = kStep,
                     .times_s = {},
                     .awake = {}}}};
    const Outcome outcome = RunScenario(entry, {}, scenario);
    const std::vector<Duration>& times = outcome.clients[0].request_times;
    EXPECT_EQ(times.size(), 3U) << entry.name;
    for (const Duration time : times) EXPECT_GT(time, 1ms) << entry.name;
    EXPECT_GT(outcome.clients[1].jobs, 0) << entry.name;
  }
}

TEST(Experiment, LoadIsTheShareOfTimeThatRequestsTake) {
  // A work-conserving policy leaves the rest of the time to the low class.
  EXPECT_NEAR(GetRow(Cell(), "priority").low_throughput, 0.5, 0.06);
}

TEST(Experiment, ClaimsKeepRequestsFromWaitingForWholeKernels) {
  CellOptions cell = Cell();
  const Row with = GetRow(cell, "priority");
  cell.front.claims = false;
  const Row without = GetRow(cell, "priority");
  // A low kernel takes 2 ms; a block of it 40 us.
  EXPECT_LT(with.p99_added_ms, 0.2);
  EXPECT_GT(without.p99_added_ms, 1.5);
}

TEST(Experiment, ShallowLookaheadReducesDelayAndFillsGapAlike) {
  CellOptions cell = Cell();
  cell.load = 0.3;
  cell.low.kernels.assign(100, Kernel{80, 30us});
  const Row shallow = GetRow(cell, "priority");
  cell.front.launch_bubble = 1s;
  const Row deep = GetRow(cell, "priority");
  EXPECT_LT(shallow.p99_added_ms, deep.p99_added_ms / 2);
  EXPECT_NEAR(shallow.gap_used, deep.gap_used, 0.02);
}

TEST(Experiment, SeveralClientsOfAClassShareItsLoad) {
  CellOptions cell = Cell();
  cell.high_clients = 3;
  cell.low_clients = 2;
  const Row row = GetRow(cell, "priority");
  EXPECT_NEAR(row.low_throughput, 0.5, 0.08);
  EXPECT_LT(row.p99_added_ms, 0.3);
  // Three queues with a third of the load each differ from one client's queue.
  EXPECT_NE(row.p99_alone_ms, GetRow(Cell(), "priority").p99_alone_ms);
}

TEST(Experiment, AClosedLoopNeverHasTwoRequestsOpen) {
  CellOptions cell = Cell();
  cell.arrivals = "closed";
  const Row row = GetRow(cell, "priority");
  // Ten kernels of 100 us: no request waits for another one.
  EXPECT_LT(row.p99_alone_ms, 1.1);
  EXPECT_NEAR(row.low_throughput, 0.5, 0.06);
  EXPECT_LT(row.p99_inflation, 0.2);
}

TEST(Experiment, TimesSequentialRequestsFromEndOfPrevious) {
  CellOptions cell = Cell();
  cell.load = 0.9;
  EXPECT_GT(GetRow(cell, "priority").p99_alone_ms, 5);
  cell.one_by_one = true;
  const Row row = GetRow(cell, "priority");
  EXPECT_LT(row.p99_alone_ms, 1.1);
  // No request is served before its arrival, and none is lost.
  EXPECT_NEAR(row.low_throughput, 0.1, 0.06);
  EXPECT_NEAR(row.high_throughput, 1, 0.01);
}

TEST(Experiment, FixedSharesDivideDeviceAmongAllClients) {
  CellOptions cell = Cell();
  cell.low_clients = 3;
  const Row row = GetRow(cell, "vgpu-fixed");
  EXPECT_NEAR(row.low_throughput, 0.75, 0.05);
}

TEST(Experiment, CopiesDelayOnlyCopiesOfTheirDirection) {
  CellOptions cell = Cell();
  cell.load = 0.1;
  cell.high = *ReadJob("in:400+even:10:50:10", {});
  cell.low = *ReadJob("out:4000", {});
  EXPECT_EQ(GetRow(cell, "mps").p99_added_ms, 0);
  cell.low = *ReadJob("in:4000", {});
  EXPECT_GT(GetRow(cell, "mps").p99_added_ms, 3);
  // The request may have to wait for a piece of 40 us of a stopped low copy.
  EXPECT_LT(GetRow(cell, "priority").p99_added_ms, 0.1);
}

// A copy is a command like others, so lower-class work is already stopped when the copy begins, and
// does not delay the kernels that follow the copy.
TEST(Experiment, KernelsAfterCopyFindDeviceFree) {
  CellOptions cell = Cell();
  cell.load = 0.3;
  cell.low = *ReadJob("even:20:1000:200", {});
  cell.high = *ReadJob("even:10:40:10", {});
  EXPECT_GT(GetRow(cell, "priority").p99_added_ms, 0.1);
  cell.high = *ReadJob("in:200+even:10:40:10", {});
  EXPECT_LT(GetRow(cell, "priority").p99_added_ms, 0.01);
}

TEST(Experiment, CountsRequestsWithinTargetAsMet) {
  CellOptions cell = Cell();
  cell.target = 1s;
  EXPECT_EQ(GetRow(cell, "priority").target_met, 1);
  cell.target = 10us;
  EXPECT_EQ(GetRow(cell, "priority").target_met, 0);
  cell.target.reset();
  const Row row = GetRow(cell, "priority");
  EXPECT_NEAR(row.latency_target_ms, 1.05 * row.p99_alone_ms, 1e-3);
  EXPECT_GT(row.target_met, 0.98);
}

TEST(Experiment, DeadlineMeetsTargetsAndFillsTheGap) {
  const Row row = GetRow(Cell(), "deadline");
  EXPECT_LE(row.p99_inflation, 0.05);
  EXPECT_GT(row.target_met, 0.98);
  EXPECT_GT(row.gap_used, 0.9);
}

TEST(Experiment, MoreRequestsMayBeOpenThanReportedToPolicy) {
  const Scenario burst{
      .clients = {{.name = "high",
                   .spec = {.scheduling_class = SchedulingClass::kHigh, .latency_target = 2ms},
                   .job = kRequest,
                   .pace = ClientPlan::Pace::kOpen,
                   .times_s = std::vector<double>(2 * kOpenRequestsMax + 1, 0.0),
                   .awake = {}}}};
  const Outcome outcome = RunScenario(*FindSetup("deadline"), {}, burst);
  EXPECT_EQ(outcome.clients[0].request_times.size(), 2 * kOpenRequestsMax + 1);
}

TEST(Experiment, LongBlocksMissTargetUnderEveryPolicy) {
  CellOptions cell = Cell();
  cell.low.kernels.assign(20, Kernel{160, 4ms});
  EXPECT_GT(GetRow(cell, "priority").p99_added_ms, 3);
}

TEST(Experiment, PriorityBeatsAlternatives) {
  const Row ours = GetRow(Cell(), "priority");
  for (const char* name : {"mps", "mps-priority", "time-slicing", "fifo"}) {
    EXPECT_LT(ours.p99_added_ms * 5, GetRow(Cell(), name).p99_added_ms) << name;
  }
  EXPECT_GT(ours.gap_used, GetRow(Cell(), "tally").gap_used);
}

// A hard case for a scheduler: requests as short as one low kernel, at a load at which they seldom
// queue. The target for the p99 is at most 5 % more than the p99 alone.
struct HardCell {
  int request_us, low_kernel_us, low_block_us;
};

class HardCells : public ::testing::TestWithParam<std::tuple<const char*, HardCell>> {
 protected:
  static Row Run(bool claims) {
    const auto& [policy, hard] = GetParam();
    CellOptions cell = Cell();
    cell.high = *ReadJob("even:10:" + std::to_string(hard.request_us / 10) + ":10", {});
    cell.low = *ReadJob(
        "even:20:" + std::to_string(hard.low_kernel_us) + ":" + std::to_string(hard.low_block_us),
        {});
    cell.load = 0.3;
    cell.requests = 1000;
    cell.front.claims = claims;
    return GetRow(cell, policy);
  }
};

// `deadline` leaves the gap unused rather than miss the target, as far as it can.
TEST_P(HardCells, WithoutClaimsTargetIsMissedOrGapStaysUnused) {
  const Row row = Run(false);
  if (row.policy == "deadline" && row.p99_inflation <= 0.05) {
    EXPECT_LT(row.gap_used, 0.5);
  } else {
    EXPECT_GT(row.p99_inflation, 0.05);
  }
}

TEST_P(HardCells, WithClaimsTargetIsMetAndGapIsUsedIfBlocksAreShort) {
  const Row row = Run(true);
  EXPECT_GT(row.gap_used, 0.8);
  if (std::get<HardCell>(GetParam()).low_block_us <= 50) {
    EXPECT_LE(row.p99_inflation, 0.05);
  } else if (row.policy == "priority") {
    EXPECT_LT(row.p99_inflation, Run(false).p99_inflation + 0.01);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, HardCells,
    ::testing::Combine(::testing::Values("priority", "deadline"),
                       ::testing::Values(HardCell{500, 1000, 5}, HardCell{500, 1000, 50},
                                         HardCell{500, 10'000, 20}, HardCell{500, 10'000, 50},
                                         HardCell{1000, 1000, 5}, HardCell{1000, 10'000, 5},
                                         HardCell{1000, 10'000, 50}, HardCell{500, 1000, 1000},
                                         HardCell{1000, 10'000, 200},
                                         HardCell{1000, 10'000, 1000})),
    [](const auto& instance) {
      const HardCell& cell = std::get<HardCell>(instance.param);
      return std::get<const char*>(instance.param) + ("_" + std::to_string(cell.request_us)) +
             "us_beside_" + std::to_string(cell.low_kernel_us) + "us_of_" +
             std::to_string(cell.low_block_us) + "us_blocks";
    });

}  // namespace
}  // namespace gpushared::simulation
