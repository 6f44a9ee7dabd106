// SPDX-License-Identifier: Apache-2.0
// The simulated GPUs, compared with arithmetic by hand.
#include <chrono>
#include <map>
#include <vector>

#include <gtest/gtest.h>

#include "scheduler/sim/shared_gpu.h"
#include "scheduler/sim/time_sliced_gpu.h"

namespace gpushared::simulation {
namespace {

using namespace std::chrono_literals;
using scheduler::Duration;
using scheduler::TimePoint;

// A GPU without costs; tests set those that they examine.
constexpr GpuCosts kFree{.launch_call = {},
                         .launch_delay = {},
                         .kernel_gap = {},
                         .notice = {},
                         .stop_flag = {},
                         .drain = {},
                         .claim = {},
                         .context_switch = {}};

TimePoint At(Duration time) { return TimePoint(time); }

struct End {
  Duration at{};
  std::uint32_t blocks_done = 0;
};

// Runs until no event is left, and returns the end of each piece of work.
std::map<std::uint64_t, End> Drain(GpuDevice& gpu) {
  std::map<std::uint64_t, End> ends;
  std::vector<Finished> finished;
  while (const auto next = gpu.next_event()) {
    finished.clear();
    gpu.Advance(*next, finished);
    for (const Finished& one : finished) ends[one.id] = {next->time_since_epoch(), one.blocks_done};
  }
  return ends;
}

TEST(SharedGpu, KernelRunsInWaves) {
  SharedGpu gpu(10, kFree);
  gpu.Submit({.id = 1, .kernel = {25, 100us}}, At(0us));
  EXPECT_EQ(Drain(gpu).at(1).at, 300us);
}

TEST(SharedGpu, EachCostIsPaidWhereItArises) {
  SharedGpu gpu(10, {.launch_delay = 4us, .kernel_gap = 1us, .notice = 3us});
  gpu.Submit({.id = 1, .kernel = {10, 100us}}, At(0us));
  gpu.Submit({.id = 2, .kernel = {10, 100us}}, At(0us));
  const auto ends = Drain(gpu);
  EXPECT_EQ(ends.at(1).at, 4us + 100us + 3us);
  EXPECT_EQ(ends.at(2).at, 4us + 100us + 1us + 100us + 3us);
}

// A single thread launches and is notified of ends, and may have to wait for a core.
TEST(SharedGpu, CostsThatVaryAreDrawnAndNoEndOvertakesAnother) {
  GpuCosts costs = kFree;
  costs.notices = {1us, 500us};
  SharedGpu gpu(10, costs);
  constexpr int kKernels = 64;
  for (std::uint64_t id = 1; id <= kKernels; ++id)
    gpu.Submit({.id = id, .kernel = {10, 100us}}, At(0us));
  const auto ends = Drain(gpu);
  int late = 0;
  for (int i = 1; i <= kKernels; ++i) {
    const auto id = static_cast<std::uint64_t>(i);
    const Duration after = ends.at(id).at - i * 100us;
    EXPECT_GE(after, 1us) << id;
    EXPECT_LE(after, 500us) << id;
    if (after == 500us) ++late;
    if (i > 1) {
      EXPECT_GE(ends.at(id).at, ends.at(id - 1).at) << id;
    }
  }
  EXPECT_GT(late, kKernels / 4);
  EXPECT_LT(late, kKernels * 3 / 4);

  costs = kFree;
  costs.launch_delays = {7us};
  costs.kernel_gaps = {11us};
  SharedGpu other(10, costs);
  other.Submit({.id = 1, .kernel = {10, 100us}}, At(0us));
  other.Submit({.id = 2, .kernel = {10, 100us}}, At(0us));
  EXPECT_EQ(Drain(other).at(2).at, 7us + 100us + 11us + 100us);
}

TEST(SharedGpu, FreeMultiprocessorsGoToTheNextStream) {
  SharedGpu gpu(10, kFree);
  gpu.Submit({.id = 1, .stream = 0, .kernel = {6, 100us}}, At(0us));
  gpu.Submit({.id = 2, .stream = 1, .kernel = {4, 50us}}, At(0us));
  gpu.Submit({.id = 3, .stream = 2, .kernel = {4, 10us}}, At(0us));
  const auto ends = Drain(gpu);
  EXPECT_EQ(ends.at(1).at, 100us);
  EXPECT_EQ(ends.at(2).at, 50us);
  EXPECT_EQ(ends.at(3).at, 60us);
}

TEST(SharedGpu, ServesEqualPrioritiesInOrderOfArrival) {
  SharedGpu gpu(10, kFree);
  gpu.Submit({.id = 1, .stream = 0, .kernel = {10, 100us}}, At(0us));
  gpu.Submit({.id = 2, .stream = 2, .kernel = {10, 10us}}, At(0us));
  gpu.Submit({.id = 3, .stream = 1, .kernel = {10, 20us}}, At(0us));
  const auto ends = Drain(gpu);
  EXPECT_EQ(ends.at(2).at, 110us);
  EXPECT_EQ(ends.at(3).at, 130us);
}

// With contention 4, a stream beside others on half of the multiprocessors takes 1 + 4 × 0.5² = 2
// times as long.
TEST(SharedGpu, KernelsSideBySideSlowEachOtherDownForAsLongAsTheyOverlap) {
  GpuCosts costs = kFree;
  costs.contention = 4;
  const auto run = [&](Kernel::Kind kind, Kernel::Kind other, double contention) {
    costs.contention = contention;
    SharedGpu gpu(10, costs);
    gpu.Submit({.id = 1, .stream = 0, .kernel = {5, 100us, kind}}, At(0us));
    gpu.Submit({.id = 2, .stream = 1, .kernel = {5, 50us, other}}, At(0us));
    return Drain(gpu);
  };
  using enum Kernel::Kind;
  const auto slowed = run(kCompute, kMemory, 4);
  EXPECT_EQ(slowed.at(2).at, 100us);
  EXPECT_EQ(slowed.at(1).at, 150us) << "half of it was left when it was alone";
  EXPECT_EQ(run(kCompute, kMemory, 0).at(1).at, 100us);
  EXPECT_EQ(run(kCompute, kUnknown, 4).at(1).at, 100us);
  EXPECT_EQ(run(kUnknown, kCompute, 4).at(1).at, 100us);
}

TEST(SharedGpu, BlocksOfOneStreamDoNotContend) {
  GpuCosts costs = kFree;
  costs.contention = 4;
  SharedGpu gpu(10, costs);
  gpu.Submit({.id = 1, .kernel = {25, 100us, Kernel::Kind::kMemory}}, At(0us));
  EXPECT_EQ(Drain(gpu).at(1).at, 300us);
}

TEST(SharedGpu, CopiesDoNotContend) {
  GpuCosts costs = kFree;
  costs.contention = 4;
  SharedGpu gpu(10, costs);
  gpu.Submit({.id = 1, .stream = 0, .kernel = {10, 100us, Kernel::Kind::kMemory}}, At(0us));
  gpu.Submit({.id = 2, .stream = 1, .kernel = {1, 100us, Kernel::Kind::kCopyToDevice}}, At(0us));
  const auto ends = Drain(gpu);
  EXPECT_EQ(ends.at(1).at, 100us);
  EXPECT_EQ(ends.at(2).at, 100us);
}

// As on the cpu device, a burst of one client is not interrupted by another client's.
TEST(SharedGpu, StreamAdvancesWithoutItsNeighbours) {
  GpuCosts costs = kFree;
  costs.kernel_gap = 1us;
  const auto run = [&](StreamOrder order) {
    SharedGpu gpu(1, costs, order);
    gpu.Submit({.id = 1, .stream = 0, .kernel = {1, 100us}}, At(0us));
    gpu.Submit({.id = 2, .stream = 0, .kernel = {1, 100us}}, At(0us));
    gpu.Submit({.id = 3, .stream = 1, .kernel = {1, 10us}}, At(0us));
    gpu.Submit({.id = 4, .stream = 0, .kernel = {1, 100us}}, At(0us));
    return Drain(gpu);
  };
  const auto submitted = run(StreamOrder::kSubmitted);
  EXPECT_EQ(submitted.at(2).at, 201us) << "the gap is the device's time";
  EXPECT_EQ(submitted.at(3).at, 211us) << "older than the last one of the other stream";
  EXPECT_EQ(submitted.at(4).at, 312us);
  const auto eligible = run(StreamOrder::kEligible);
  EXPECT_EQ(eligible.at(3).at, 110us);
  EXPECT_EQ(eligible.at(2).at, 210us);
}

TEST(SharedGpu, PriorityDecidesAtBlocksAndInterruptsNone) {
  SharedGpu gpu(10, kFree);
  gpu.Submit({.id = 1, .stream = 0, .kernel = {30, 100us}}, At(0us));
  std::vector<Finished> finished;
  gpu.Advance(At(20us), finished);
  gpu.Submit({.id = 2, .stream = 1, .kernel = {10, 10us}, .priority = 1}, At(20us));
  const auto ends = Drain(gpu);
  EXPECT_EQ(ends.at(2).at, 110us);
  EXPECT_EQ(ends.at(1).at, 310us);
}

TEST(SharedGpu, StoppedWorkEndsWithItsRunningBlocksAndGoesOnWhereItWas) {
  GpuCosts costs = kFree;
  costs.drain = 5us;
  SharedGpu gpu(10, costs);
  gpu.Submit({.id = 1, .kernel = {100, 100us}, .stoppable = true}, At(0us));
  std::vector<Finished> finished;
  gpu.Advance(At(150us), finished);
  gpu.RequestStop(1, At(150us));
  const auto ends = Drain(gpu);
  EXPECT_EQ(ends.at(1).at, 205us);
  EXPECT_EQ(ends.at(1).blocks_done, 20U);
  gpu.Submit({.id = 1, .kernel = {100, 100us}, .first_block = 20, .stoppable = true}, At(205us));
  EXPECT_EQ(Drain(gpu).at(1).at, 205us + 800us);
}

TEST(SharedGpu, WorkThatCannotStopRunsToItsEnd) {
  SharedGpu gpu(10, kFree);
  gpu.Submit({.id = 1, .kernel = {100, 100us}}, At(0us));
  gpu.RequestStop(1, At(0us));
  EXPECT_EQ(Drain(gpu).at(1).blocks_done, 100U);
}

TEST(SharedGpu, ClaimsCostPerBlock) {
  GpuCosts costs = kFree;
  costs.claim = 2us;
  SharedGpu gpu(10, costs);
  gpu.Submit({.id = 1, .kernel = {30, 100us}, .stoppable = true}, At(0us));
  EXPECT_EQ(Drain(gpu).at(1).at, 306us);
}

TEST(SharedGpu, MultiprocessorHoldsLimitedNumberOfBlocks) {
  for (const std::uint32_t each : {1U, 2U, 3U, 7U, 32U}) {
    SharedGpu gpu(10, kFree);
    gpu.Submit({.id = 1, .kernel = {10 * each, 100us, {}, each}}, At(0us));
    gpu.Submit({.id = 2, .kernel = {10 * each + 1, 100us, {}, each}}, At(0us));
    const auto ends = Drain(gpu);
    EXPECT_EQ(ends.at(1).at, 100us) << each;
    EXPECT_EQ(ends.at(2).at, 300us) << each;
    EXPECT_EQ(SoloTime({10 * each + 1, 100us, {}, each}, 10), 200us) << each;
  }
}

TEST(SharedGpu, OthersUseSpaceThatKernelLeaves) {
  SharedGpu gpu(10, kFree);
  gpu.Submit({.id = 1, .stream = 0, .kernel = {10, 100us, {}, 2}}, At(0us));  // Half of the space.
  gpu.Submit({.id = 2, .stream = 1, .kernel = {20, 50us, {}, 4}}, At(0us));   // The other half.
  gpu.Submit({.id = 3, .stream = 2, .kernel = {20, 10us, {}, 4}}, At(0us));
  const auto ends = Drain(gpu);
  EXPECT_EQ(ends.at(2).at, 50us);
  EXPECT_EQ(ends.at(3).at, 60us);
  EXPECT_EQ(ends.at(1).at, 100us);
}

TEST(SharedGpu, FirstKernelWaitsForSpaceAndDelaysLaterOnes) {
  SharedGpu gpu(10, kFree);
  gpu.Submit({.id = 1, .stream = 0, .kernel = {15, 100us, {}, 2}}, At(0us));
  // There is space for two of its blocks.
  gpu.Submit({.id = 2, .stream = 1, .kernel = {10, 50us}}, At(0us));
  // This kernel would fit, but must wait until all blocks of the previous one have begun.
  gpu.Submit({.id = 3, .stream = 2, .kernel = {2, 10us, {}, 4}}, At(0us));
  const auto ends = Drain(gpu);
  EXPECT_EQ(ends.at(2).at, 150us);
  EXPECT_EQ(ends.at(3).at, 110us) << "when all blocks of the one before have begun";
}

Kernel GetCopy(std::uint32_t pieces, Kernel::Kind direction = Kernel::Kind::kCopyToDevice) {
  return {pieces, 40us, direction};
}

TEST(SharedGpu, CopiesRunBesideKernelsAndOneEachWay) {
  SharedGpu gpu(10, kFree);
  gpu.Submit({.id = 1, .stream = 0, .kernel = {10, 400us}}, At(0us));
  gpu.Submit({.id = 2, .stream = 1, .kernel = GetCopy(5)}, At(0us));
  gpu.Submit({.id = 3, .stream = 2, .kernel = GetCopy(3, Kernel::Kind::kCopyToHost)}, At(0us));
  gpu.Submit({.id = 4, .stream = 3, .kernel = GetCopy(1)}, At(0us));
  const auto ends = Drain(gpu);
  EXPECT_EQ(ends.at(1).at, 400us);
  EXPECT_EQ(ends.at(2).at, 200us);
  EXPECT_EQ(ends.at(3).at, 120us);
  EXPECT_EQ(ends.at(4).at, 240us);
  EXPECT_EQ(SoloTime(GetCopy(5), 10), 200us);
}

TEST(SharedGpu, PriorityHasNoEffectOnCopies) {
  SharedGpu gpu(10, kFree);
  gpu.Submit({.id = 1, .stream = 0, .kernel = GetCopy(5)}, At(0us));
  std::vector<Finished> finished;
  gpu.Advance(At(20us), finished);
  gpu.Submit({.id = 2, .stream = 1, .kernel = GetCopy(1), .priority = 1}, At(20us));
  EXPECT_EQ(Drain(gpu).at(2).at, 240us);
}

TEST(SharedGpu, ACopyIsStoppedBetweenItsPiecesAndPaysForNoClaims) {
  SharedGpu gpu(10, {.launch_delay = {}, .notice = {}, .stop_flag = {}});
  gpu.Submit({.id = 1, .kernel = GetCopy(5), .stoppable = true}, At(0us));
  std::vector<Finished> finished;
  gpu.Advance(At(50us), finished);
  gpu.RequestStop(1, At(50us));
  const auto ends = Drain(gpu);
  EXPECT_EQ(ends.at(1).at, 80us);
  EXPECT_EQ(ends.at(1).blocks_done, 2U);
}

TEST(TimeSlicedGpu, OneContextAtATimeInSlices) {
  GpuCosts costs = kFree;
  costs.context_switch = 10us;
  TimeSlicedGpu gpu(10, costs, 1ms);
  gpu.Submit({.id = 1, .stream = 0, .kernel = {10, 3ms}}, At(0us));
  gpu.Submit({.id = 2, .stream = 1, .kernel = {10, 1500us}}, At(0us));
  const auto ends = Drain(gpu);
  // Context 0 runs until context 1 requests the device. The slice of context 1 begins immediately,
  // because context 0 was granted no slice.
  EXPECT_EQ(ends.at(2).at, 10us + 1ms + 10us + 1ms + 10us + 500us);
  EXPECT_EQ(ends.at(1).at, ends.at(2).at + 10us + 2ms);
}

TEST(TimeSlicedGpu, ContextAloneIsNotInterrupted) {
  GpuCosts costs = kFree;
  costs.context_switch = 10us;
  TimeSlicedGpu gpu(10, costs, 1ms);
  gpu.Submit({.id = 1, .stream = 0, .kernel = {10, 30ms}}, At(0us));
  EXPECT_EQ(Drain(gpu).at(1).at, 30ms);
}

TEST(TimeSlicedGpu, FixedSharesLendNothing) {
  TimeSlicedGpu gpu(10, kFree, 1ms, 2);
  gpu.Submit({.id = 1, .stream = 0, .kernel = {10, 3ms}}, At(0us));
  EXPECT_EQ(Drain(gpu).at(1).at, 5ms);
  gpu.Submit({.id = 2, .stream = 1, .kernel = {10, 1ms}}, At(5ms));
  EXPECT_EQ(Drain(gpu).at(2).at, 6ms);
}

}  // namespace
}  // namespace gpushared::simulation
