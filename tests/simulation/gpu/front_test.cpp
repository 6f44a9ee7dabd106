// SPDX-License-Identifier: Apache-2.0
// Work that each front submits to the GPU, and when.
#include "scheduler/sim/front.h"

#include <chrono>
#include <map>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "tests/simulation/gpu/recording_gpu.h"

namespace gpushared::simulation {
namespace {

using namespace std::chrono_literals;
using scheduler::Duration;
using scheduler::SchedulingClass;
using scheduler::TimePoint;

class Fronts : public ::testing::Test {
 protected:
  // Client 0 has class high, and client 1 class low.
  void Start(std::string_view name, FrontOptions options = {}) {
    const std::optional<SetupEntry> entry = FindSetup(name);
    ASSERT_TRUE(entry);
    front_ = entry->make_front(gpu_, options);
    front_->AddClient({.scheduling_class = SchedulingClass::kHigh}, now_);
    front_->AddClient({.scheduling_class = SchedulingClass::kLow}, now_);
  }
  void Launch(std::uint64_t id, std::size_t client, const Kernel& kernel) {
    front_->Enqueue({.id = id, .client = client, .kernel = kernel}, now_);
    front_->Act(now_);
  }
  // Ends the work, and lets enough time pass for the policy's hold-off. Returns whether the kernel
  // is complete.
  bool Finish(std::uint64_t id, std::uint32_t blocks) {
    const bool is_whole = front_->OnFinished({id, blocks}, now_);
    front_->Act(now_);
    now_ += 1ms;
    front_->Act(now_);
    return is_whole;
  }
  std::vector<std::uint64_t> submitted() const {
    std::vector<std::uint64_t> ids;
    for (const Work& work : gpu_.submitted) ids.push_back(work.id);
    return ids;
  }

  RecordingGpu gpu_;
  std::unique_ptr<Front> front_;
  TimePoint now_{1s};
};

using Ids = std::vector<std::uint64_t>;
constexpr Kernel kLong{800, 100us};
constexpr Kernel kShort{80, 10us};

// The predicted time of an unknown kernel is so long that the kernel is made stoppable.
TEST_F(Fronts, KernelsWithAKeyAreLearnt) {
  constexpr Kernel kKnown{.blocks = 80, .block_time = 10us, .cost_key = 5};
  Start("priority");
  Launch(1, 1, kKnown);
  EXPECT_TRUE(gpu_.submitted.at(0).stoppable);
  EXPECT_TRUE(Finish(1, 80));
  Launch(2, 1, kKnown);
  EXPECT_FALSE(gpu_.submitted.at(1).stoppable);
}

// A decode step: small kernels that the client launches as one command.
class Graphs : public Fronts {
 protected:
  static constexpr std::uint32_t kNodes = 300;
  static constexpr Kernel kNode{80, 6us};
  void LaunchGraph(std::size_t client) {
    for (std::uint32_t node = 0; node < kNodes; ++node) {
      Kernel kernel = kNode;
      kernel.graph_nodes = node == 0 ? kNodes : 0;
      kernel.follows_in_graph = node > 0;
      EXPECT_TRUE(node == 0 || gpu_.submitted.empty()) << "before it was there";
      Launch(node + 1, client, kernel);
    }
  }
  // Ends submitted work until no more is submitted.
  void FinishAll() {
    for (std::size_t done = 0; done < gpu_.submitted.size(); ++done) {
      const std::size_t before = gpu_.submitted.size();
      EXPECT_TRUE(Finish(gpu_.submitted[done].id, kNode.blocks));
      if (gpu_.submitted.size() > before) parts_.push_back(gpu_.submitted.size() - before);
    }
  }
  std::vector<std::size_t> parts_;  // Number of nodes of each part that FinishAll saw submitted.
};

TEST_F(Graphs, OfTheHighClassCostOneDecision) {
  Start("priority");
  LaunchGraph(0);
  ASSERT_EQ(gpu_.submitted.size(), kNodes);
  EXPECT_EQ(front_->decisions(), 1U);
  for (std::size_t node = 0; node < kNodes; ++node) {
    EXPECT_EQ(gpu_.submitted[node].kernel.follows_in_graph, node > 0);
    EXPECT_FALSE(gpu_.submitted[node].stoppable);
  }
  FinishAll();
  EXPECT_EQ(front_->decisions(), 1U);
  Launch(1000, 1, kShort);
  EXPECT_EQ(submitted().back(), 1000U) << "the graph has ended";
}

TEST_F(Graphs, AreSplitNextToMoreUrgentClient) {
  Start("priority");
  LaunchGraph(1);
  // The nodes of a part take 100 us in total. The window has space for several parts.
  EXPECT_EQ(gpu_.submitted.size() % 16, 0U);
  EXPECT_LT(gpu_.submitted.size(), kNodes);
  const std::uint64_t first = front_->decisions();
  EXPECT_EQ(gpu_.submitted.size(), first * 16);
  // A high kernel runs between two parts.
  const std::size_t before = gpu_.submitted.size();
  Launch(1000, 0, kShort);
  EXPECT_EQ(gpu_.submitted.size(), before + 1);
  EXPECT_TRUE(Finish(1000, kShort.blocks));
  std::erase_if(gpu_.submitted, [](const Work& work) { return work.id == 1000; });
  FinishAll();
  EXPECT_EQ(gpu_.submitted.size(), kNodes);
  EXPECT_EQ(front_->decisions(), 1 + (kNodes + 15) / 16);
  for (const std::size_t part : parts_) EXPECT_LE(part, 16U);
}

TEST_F(Graphs, RunForSliceWithoutMoreUrgentClient) {
  Start("fifo");
  LaunchGraph(1);
  FinishAll();
  EXPECT_EQ(front_->decisions(), 1U) << "1.8 ms are less than a slice";
}

TEST_F(Fronts, PriorityStopsALongLowKernelForHighWorkAndResumesIt) {
  Start("priority");
  Launch(1, 1, kLong);
  EXPECT_TRUE(gpu_.submitted.at(0).stoppable);
  Launch(2, 0, kShort);
  EXPECT_EQ(gpu_.stopped, Ids({1}));
  EXPECT_FALSE(Finish(1, 160));
  EXPECT_EQ(submitted(), Ids({1, 2}));
  EXPECT_TRUE(Finish(2, 80));
  EXPECT_EQ(submitted(), Ids({1, 2, 1}));
  EXPECT_EQ(gpu_.submitted.back().first_block, 160U);
  EXPECT_TRUE(Finish(1, 800));
}

TEST_F(Fronts, NothingFollowsAKernelThatCanBeStoppedBeforeItHasEnded) {
  Start("priority");
  Launch(1, 1, {160, 100us});  // The window admits both.
  Launch(2, 1, kShort);
  EXPECT_EQ(submitted(), Ids({1}));
  Finish(1, 160);
  EXPECT_EQ(submitted(), Ids({1, 2}));
}

// The launch bubble is 3 + 2.1 + 4 us. While one kernel runs, two further kernels of 9 us each
// cover the bubble.
TEST_F(Fronts, ReportsLaunchBubbleOfCostsToLane) {
  Start("priority");
  for (std::uint64_t id = 1; id <= 9; ++id) Launch(id, 1, {80, 9us});
  EXPECT_EQ(submitted(), Ids({1, 2, 3}));
}

TEST_F(Fronts, GivenLaunchBubbleOverridesComputedOne) {
  Start("priority", {.launch_bubble = 30us});
  for (std::uint64_t id = 1; id <= 9; ++id) Launch(id, 1, {80, 19us});
  EXPECT_EQ(submitted(), Ids({1, 2, 3, 4}));
}

// Device time is charged in proportion to predictions, so charges reveal the predictions.
TEST_F(Fronts, PredictionIncludesClaimsAndKernelGap) {
  Start("priority");
  Launch(1, 1, kLong);
  Launch(2, 0, {800, 10us});
  ASSERT_EQ(submitted(), Ids({1, 2}));
  front_->OnFinished({1, 160}, now_ + 1ms);
  // Kernel 1 takes ten waves of 100 us, with a claim of 1 us per block. Kernel 2 takes ten waves of
  // 10 us. Each kernel has a gap of 1 us.
  const double low_part = (10 * 101.0 + 1) / (10 * 101.0 + 1 + 10 * 10 + 1);
  EXPECT_NEAR(static_cast<double>(front_->charged(1)->count()), 1e6 * low_part, 10);
}

// When a request ends, the next one can be forwarded to the lane.
TEST_F(Fronts, ReportsEveryRequestToLane) {
  front_ = FindSetup("deadline")->make_front(gpu_, {});
  front_->AddClient({.scheduling_class = SchedulingClass::kLow, .latency_target = 50ms}, now_);
  front_->AddClient({.scheduling_class = SchedulingClass::kNormal}, now_);
  std::uint64_t request = 0;
  while (++request <= 2 * kOpenRequestsMax) {
    front_->OnRequestBegan(0, request, now_, now_);
    front_->OnRequestEnded(0, request, now_);
  }
  front_->OnRequestBegan(0, request, now_, now_);
  front_->Enqueue({.id = 1, .client = 1, .kernel = kShort}, now_);
  front_->Enqueue({.id = 2, .client = 0, .kernel = kShort}, now_);
  front_->Act(now_);
  ASSERT_FALSE(submitted().empty());
  EXPECT_EQ(submitted()[0], 2U) << "what is promised goes before what is not";
}

TEST_F(Fronts, DoesNotSplitShortOrHighClassKernels) {
  Start("priority");
  Launch(1, 1, kShort);
  Finish(1, 80);
  Launch(2, 1, {80, 99us});
  Finish(2, 80);
  Launch(3, 0, kLong);
  ASSERT_EQ(submitted(), Ids({1, 2, 3}));
  for (const Work& work : gpu_.submitted) EXPECT_FALSE(work.stoppable) << work.id;
}

TEST_F(Fronts, SplitsNothingWithoutClaims) {
  Start("priority", {.claims = false});
  Launch(1, 1, kLong);
  EXPECT_FALSE(gpu_.submitted.at(0).stoppable);
}

constexpr Kernel kCopy{10, 40us, Kernel::Kind::kCopyToDevice};

// As in the worker, copies are stopped without claims.
TEST_F(Fronts, SplitsLowerClassCopiesWithAndWithoutClaims) {
  for (const bool claims : {true, false}) {
    gpu_ = {};
    Start("priority", {.claims = claims});
    Launch(1, 1, kCopy);
    EXPECT_TRUE(gpu_.submitted.at(0).stoppable);
    Launch(2, 0, kShort);
    EXPECT_EQ(gpu_.stopped, Ids({1}));
    EXPECT_FALSE(Finish(1, 4));
    EXPECT_TRUE(Finish(2, 80));
    EXPECT_EQ(gpu_.submitted.back().first_block, 4U);
    EXPECT_TRUE(Finish(1, 10));
    Launch(3, 0, kCopy);
    EXPECT_FALSE(gpu_.submitted.back().stoppable) << "of the high class";
    EXPECT_TRUE(Finish(3, 10));
    Launch(4, 1, {2, 40us, Kernel::Kind::kCopyToHost});
    EXPECT_FALSE(gpu_.submitted.back().stoppable) << "shorter than is worth it";
  }
}

TEST_F(Fronts, APredictedCopyHasNoClaims) {
  Start("priority");
  Launch(1, 1, kCopy);
  Launch(2, 0, {800, 10us});
  front_->OnFinished({1, 10}, now_ + 1ms);
  EXPECT_NEAR(static_cast<double>(front_->charged(1)->count()), 1e6 * 401 / (401 + 101), 10);
}

TEST_F(Fronts, RulesForKernelsSpareCopies) {
  Start("tally");
  Launch(1, 1, kCopy);
  EXPECT_FALSE(gpu_.submitted.at(0).stoppable);
  EXPECT_EQ(gpu_.submitted.at(0).kernel.block_time, 40us);
  gpu_ = {};
  Start("orion");
  Launch(1, 0, {10, 100us, Kernel::Kind::kCompute});
  for (std::uint64_t id = 2; id <= 9; ++id) Launch(id, 1, {100, 40us, kCopy.kind});
  EXPECT_EQ(gpu_.submitted.size(), 9U);
  Launch(10, 1, {10, 100us, Kernel::Kind::kMemory});
  EXPECT_EQ(gpu_.submitted.size(), 10U) << "copies take none of the multiprocessors";
  gpu_ = {};
  Start("tgs");
  for (std::uint64_t id = 1; id <= 40; ++id) Launch(id, 1, {1000, 40us, kCopy.kind});
  EXPECT_EQ(gpu_.submitted.size(), 40U);
}

TEST_F(Fronts, LowWorkWaitsForHighWork) {
  for (const std::string_view name : {"priority", "tally", "xsched-1"}) {
    gpu_ = {};
    Start(name);
    Launch(1, 0, kShort);
    Launch(2, 1, kShort);
    EXPECT_EQ(submitted(), Ids({1})) << name;
    Finish(1, 80);
    EXPECT_EQ(submitted(), Ids({1, 2})) << name;
  }
}

TEST_F(Fronts, XSchedHasEightInFlightThatRunToTheirEnd) {
  Start("xsched-1");
  for (std::uint64_t id = 1; id <= 10; ++id) Launch(id, 1, kLong);
  EXPECT_EQ(gpu_.submitted.size(), 8U);
  Launch(11, 0, kShort);
  EXPECT_TRUE(gpu_.stopped.empty());
  Finish(1, 800);
  EXPECT_EQ(gpu_.submitted.size(), 9U);  // Only kernel 11 was added.
  Finish(11, 80);
  EXPECT_EQ(gpu_.submitted.size(), 10U);
}

TEST_F(Fronts, TallyPaysForEveryBlockAndStopsKernels) {
  Start("tally");
  Launch(1, 1, kLong);
  EXPECT_EQ(gpu_.submitted.at(0).kernel.block_time, 125us);
  Launch(2, 0, kShort);
  EXPECT_EQ(gpu_.stopped, Ids({1}));
  EXPECT_FALSE(Finish(1, 80));
  EXPECT_TRUE(Finish(2, 80));
  EXPECT_EQ(gpu_.submitted.back().first_block, 80U);
}

TEST_F(Fronts, TallyWaitsBeforeLowWorkGoesOn) {
  Start("tally");
  Launch(1, 0, kShort);
  Launch(2, 1, kShort);
  front_->OnFinished({1, 80}, now_);
  front_->Act(now_);
  EXPECT_EQ(submitted(), Ids({1}));
  EXPECT_EQ(front_->wake_at(), now_ + 100us);
  front_->Act(now_ + 100us);
  EXPECT_EQ(submitted(), Ids({1, 2}));
}

constexpr Kernel kCompute{10, 100us, Kernel::Kind::kCompute};
constexpr Kernel kMemory{10, 100us, Kernel::Kind::kMemory};

TEST_F(Fronts, OrionAdmitsComplementaryKernelsNextToHighWork) {
  Start("orion");
  Launch(1, 0, kCompute);
  Launch(2, 1, kCompute);
  EXPECT_EQ(submitted(), Ids({1}));
  gpu_ = {};
  Start("orion");
  Launch(1, 0, kCompute);
  Launch(2, 1, kMemory);
  EXPECT_EQ(submitted(), Ids({1, 2}));
}

TEST_F(Fronts, OrionLimitsWorkNextToHighWork) {
  Start("orion");
  Launch(1, 0, kCompute);
  // The kernel has more blocks than all multiprocessors together run at a time.
  Launch(2, 1, {81, 100us, Kernel::Kind::kMemory});
  EXPECT_EQ(submitted(), Ids({1}));
  gpu_ = {};
  Start("orion");
  Launch(1, 0, kCompute);
  for (std::uint64_t id = 2; id <= 60; ++id) Launch(id, 1, kMemory);
  const std::size_t beside = gpu_.submitted.size() - 1;
  EXPECT_GT(beside, 1U);
  EXPECT_LT(beside, 59U);
}

TEST_F(Fronts, TgsBoundsTheLowBlocksOfAPeriod) {
  Start("tgs");
  for (std::uint64_t id = 1; id <= 40; ++id) Launch(id, 1, {1000, 1us});
  // Kernels of 20,000 blocks in total, and the one that exceeds this bound.
  EXPECT_EQ(gpu_.submitted.size(), 21U);
}

class TgsRates : public Fronts {
 protected:
  // In each period, launches `high_blocks` blocks of the high class, and 200 kernels of the low
  // class. Returns how many kernels were submitted in the last period.
  std::size_t RunFor(int periods, std::uint32_t high_blocks) {
    std::size_t low = 0;
    for (int period = 0; period < periods; ++period) {
      gpu_.submitted.clear();
      if (high_blocks > 0) Launch(++id_, 0, {high_blocks, 1us});
      for (int i = 0; i < 200; ++i) Launch(++id_, 1, {1000, 1us});
      low = gpu_.submitted.size();
      now_ += 5ms;
    }
    return low;
  }
  std::uint64_t id_ = 0;
};

TEST_F(TgsRates, TheBoundRisesWhileHighWorkKeepsItsRateAndFallsWhenItDoesNot) {
  Start("tgs");
  const std::size_t before = RunFor(5, 50'000);
  const std::size_t later = RunFor(2, 50'000);
  EXPECT_GT(later, before);
  EXPECT_LT(RunFor(3, 40'000), later);
}

TEST_F(TgsRates, LowClassIsNotLimitedWhileHighClassIsIdle) {
  Start("tgs");
  RunFor(5, 50'000);
  EXPECT_LT(RunFor(3, 40'000), 200U);
  EXPECT_EQ(RunFor(10, 0), 200U);
}

TEST_F(Fronts, MpsDelaysNothing) {
  Start("mps-priority");
  Launch(1, 1, kLong);
  Launch(2, 0, kShort);
  EXPECT_EQ(submitted(), Ids({1, 2}));
  EXPECT_GT(gpu_.submitted.at(1).priority, gpu_.submitted.at(0).priority);
  gpu_ = {};
  Start("mps");
  Launch(1, 1, kLong);
  Launch(2, 0, kShort);
  EXPECT_EQ(gpu_.submitted.at(1).priority, gpu_.submitted.at(0).priority);
}

}  // namespace
}  // namespace gpushared::simulation
