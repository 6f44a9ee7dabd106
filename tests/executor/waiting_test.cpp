// SPDX-License-Identifier: Apache-2.0
// Blocks that wait for others make progress. A launch in which no block can make progress is ended
// with a message.
#include <algorithm>
#include <chrono>
#include <functional>

#include <gmock/gmock.h>

#include "common/ptx/link/linker.h"
#include "tests/executor/kernel_file.h"

namespace gpushared::testing {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;

class Waiting : public KernelFile {
 protected:
  Waiting() : KernelFile("waiting") {}
};

TEST_P(Waiting, BlocksMayWaitForLaterOnes) {
  constexpr unsigned kBlocks = 50;
  auto *done = launcher.Allocate<unsigned>(kBlocks),
       *out = launcher.Allocate<unsigned>(kBlocks * 64);
  Run("wait_for_the_next", {kBlocks, 1, 1}, {64, 1, 1}, done, out);
  for (unsigned i = 0; i + 1 < kBlocks; ++i) ASSERT_EQ(out[i * 64 + 63], i + 101) << i;
}

TEST_P(Waiting, BlocksMayWaitForLaterOnesWithABarrierInEachRound) {
  constexpr unsigned kBlocks = 20;
  auto *done = launcher.Allocate<unsigned>(kBlocks),
       *out = launcher.Allocate<unsigned>(kBlocks * 64);
  Run("wait_between_barriers", {kBlocks, 1, 1}, {64, 1, 1}, done, out);
  for (unsigned i = 0; i + 1 < kBlocks; ++i) ASSERT_EQ(out[i * 64 + 63], i + 101) << i;
}

TEST_P(Waiting, BlocksMayCountTheirWaitingRounds) {
  auto *done = launcher.Allocate<unsigned>(3), *rounds = launcher.Allocate<unsigned>(3 * 64);
  Run("count_between_barriers", {3, 1, 1}, {64, 1, 1}, done, rounds);
  EXPECT_GT(rounds[0], 0u);
  EXPECT_EQ(rounds[2 * 64], 0u);
}

TEST_P(Waiting, NodesOfATreeWaitForTheirParents) {
  constexpr int kCount = 5000;
  int* start = launcher.Allocate<int>(kCount);
  std::fill(start + 1, start + kCount, -1);
  Run("sort_down_a_tree", {7, 1, 1}, {96, 1, 1}, start, kCount);
  for (int i = 1; i < kCount; ++i) {
    ASSERT_EQ(start[i], start[(i - 1) / 2] + (i % 2 == 1 ? 1 : 2)) << i;
  }
}

// Blocks that run alongside others cannot be preempted, so only waiting blocks do.
TEST_P(Waiting, BlockThatWorksInRoundsRunsAlone) {
  auto* sum = launcher.Allocate<unsigned>(1);
  unsigned asked = 0;
  launcher.more_blocks = [&](bool while_waiting) {
    if (while_waiting) ++asked;
    return std::nullopt;
  };
  Run("add_in_rounds", {2, 1, 1}, {64, 1, 1}, sum, 2000u);
  EXPECT_EQ(*sum, 2u * 64 * 2000);
  EXPECT_EQ(asked, 0u);
}

TEST_P(Waiting, StuckLaunchWithBarriersFaults) {
  auto* flag = launcher.Allocate<unsigned>(1);
  launcher.stall_limit = 30ms;
  const executor::Fault fault =
      Faulting("wait_for_nobody_between_barriers", {3, 1, 1}, {64, 1, 1}, flag);
  EXPECT_EQ(fault.kind, executor::Fault::Kind::kStalled);
  EXPECT_THAT(fault.message, HasSubstr("made no progress for 30 ms"));
}

TEST_P(Waiting, BlockThatSleepsYieldsItsCore) {
  auto* looks = launcher.Allocate<unsigned long long>(1);
  Run("sleep_for", {1, 1, 1}, {64, 1, 1}, 10'000'000ULL, looks);
  // The sleeps of half a millisecond limit the number of polls: an iteration without a sleep would
  // take only 10 us.
  EXPECT_LE(*looks, 21u);
  EXPECT_GE(*looks, 1u);
}

TEST_P(Waiting, BlocksMayWaitForLaterOnesAsleep) {
  auto *done = launcher.Allocate<unsigned>(5), *looks = launcher.Allocate<unsigned>(1);
  Run("sleep_for_the_next", {5, 1, 1}, {1, 1, 1}, done, looks);
  // The block polls for 20 ms alone, and then a few times alongside the others.
  EXPECT_GE(*looks, 20u);
  EXPECT_LT(*looks, 60u);
}

TEST_P(Waiting, RequestsBlocksAfterTheRange) {
  auto *done = launcher.Allocate<unsigned>(10), *out = launcher.Allocate<unsigned>(10 * 32);
  launcher.block_count = 4;
  unsigned given = 0;
  launcher.more_blocks = [&](bool) -> std::optional<std::uint64_t> {
    if (given == 6) return std::nullopt;
    return launcher.block_count + given++;
  };
  const auto outcome = launcher.Run("wait_for_the_next", {10, 1, 1}, {32, 1, 1}, done, out);
  EXPECT_EQ(outcome.end, executor::RunOutcome::End::kFinished);
  EXPECT_EQ(outcome.blocks_done, 10u);
  EXPECT_EQ(given, 6u);
}

TEST_P(Waiting, StuckLaunchFaultsWithKernelAndLine) {
  auto* flag = launcher.Allocate<unsigned>(1);
  launcher.stall_limit = 30ms;
  const executor::Fault fault = Faulting("wait_for_nobody", {3, 1, 1}, {64, 1, 1}, flag);
  EXPECT_EQ(fault.kind, executor::Fault::Kind::kStalled);
  EXPECT_GT(fault.line, 0u);
  EXPECT_THAT(fault.message, HasSubstr("kernel 'wait_for_nobody', block (0,0,0) thread (0,0,0)"));
  EXPECT_THAT(fault.message, HasSubstr("PTX line " + std::to_string(fault.line)));
  EXPECT_THAT(fault.message, HasSubstr("made no progress for 30 ms"));
}

TEST_P(Waiting, LoopThatCountsIsNotStuck) {
  auto *flag = launcher.Allocate<unsigned>(1), *out = launcher.Allocate<unsigned>(1);
  launcher.stall_limit = 1ms;
  Run("wait_a_while", {1, 1, 1}, {1, 1, 1}, flag, 300000u, out);
  EXPECT_EQ(*out, 300000u);
}

// The launch is not stuck while another of its executors may still set the flag.
TEST_P(Waiting, LaunchWithProgressElsewhereIsNotStuck) {
  auto* flag = launcher.Allocate<unsigned>(1);
  launcher.stall_limit = 20ms;
  executor::LaunchState state;
  launcher.state = &state;
  unsigned asked = 0;
  launcher.more_blocks = [&](bool) {
    state.progress.fetch_add(1);
    if (++asked == 2000) __atomic_store_n(flag, 1u, __ATOMIC_RELEASE);
    return std::nullopt;
  };
  Run("wait_for_nobody", {1, 1, 1}, {32, 1, 1}, flag);
  EXPECT_GE(asked, 2000u);
}

TEST_P(Waiting, BlocksThatWaitForEachOtherCanBeKilled) {
  auto* flag = launcher.Allocate<unsigned>(1);
  launcher.more_blocks = [&](bool) {
    launcher.kill = true;
    return std::nullopt;
  };
  const auto outcome = launcher.Run("wait_for_nobody", {3, 1, 1}, {64, 1, 1}, flag);
  EXPECT_EQ(outcome.end, executor::RunOutcome::End::kKilled);
  EXPECT_EQ(outcome.blocks_done, 0u);
}

TEST_P(Waiting, LanesTakeLocksInsideFunctions) {
  auto* lock = launcher.Allocate<int>(1);
  auto* sum = launcher.Allocate<int>(1);
  Run("locks_in_functions", {3, 1, 1}, {64, 1, 1}, lock, sum);
  EXPECT_EQ(*sum, 3 * 64 * 1001);
}

GPUSHARED_INSTANTIATE_FLAVOURS(Waiting);

// The grid barrier that the linker adds: each block adds to a count before it and reads the sum
// after it. `%envreg1` and `%envreg2` name the launch's workspace.
TEST(GridSynchronisation, LinkersGridBarrierWaitsForAllBlocks) {
  constexpr std::string_view kKernel = R"(.version 7.0
.target sm_75
.address_size 64
.extern .func (.param .b64 r) cudaCGGetIntrinsicHandle(.param .b32 s);
.extern .func (.param .b32 r) cudaCGSynchronize(.param .b64 h, .param .b32 f);
.visible .entry all(.param .u64 count, .param .u64 out) {
  .reg .b32 %r<9>; .reg .b64 %d<9>; .reg .pred %p;
  ld.param.u64 %d1, [count]; ld.param.u64 %d2, [out];
  mov.u32 %r1, %tid.x; setp.ne.u32 %p, %r1, 0;
  @!%p red.global.add.u32 [%d1], 1;
  {
  .param .b32 a0; .param .b64 r0;
  st.param.b32 [a0], 1;
  call (r0), cudaCGGetIntrinsicHandle, (a0);
  ld.param.b64 %d3, [r0];
  }
  {
  .param .b64 a0; .param .b32 a1; .param .b32 r0;
  st.param.b64 [a0], %d3; st.param.b32 [a1], 0;
  call (r0), cudaCGSynchronize, (a0, a1);
  ld.param.b32 %r4, [r0];
  }
  ld.volatile.global.u32 %r2, [%d1];
  add.u32 %r2, %r2, %r4;
  mov.u32 %r3, %ctaid.x; mul.wide.u32 %d4, %r3, 4; add.u64 %d4, %d2, %d4;
  @!%p st.global.u32 [%d4], %r2;
  ret;
})";
  const ptx::LinkInput input{.name = "all.ptx", .text = kKernel};
  const Result<std::string> linked = ptx::Link({&input, 1});
  ASSERT_TRUE(linked.ok()) << linked.status().ToString();
  Launcher launcher;
  launcher.Load(*linked);
  ASSERT_EQ(launcher.Kernel("all").info().unsupported, "");
  constexpr std::uint32_t kBlocks = 24;
  auto* const count = launcher.Allocate<std::uint32_t>(1);
  auto* const out = launcher.Allocate<std::uint32_t>(kBlocks);
  launcher.is_cooperative = true;
  const auto outcome = launcher.Run("all", {kBlocks, 1, 1}, {64, 1, 1}, count, out);
  EXPECT_FALSE(outcome.fault) << outcome.fault->message;
  for (std::uint32_t block = 0; block < kBlocks; ++block) EXPECT_EQ(out[block], kBlocks) << block;
}

TEST(GridSynchronisation, OnlyCooperativeLaunchesHaveAWorkspace) {
  Launcher launcher;
  launcher.Load(R"(.version 7.0
.target sm_75
.address_size 64
.visible .entry workspace(.param .u64 out) {
  .reg .b32 %r<3>; .reg .b64 %d<3>;
  ld.param.u64 %d1, [out];
  mov.u32 %r1, %envreg1; mov.u32 %r2, %envreg2;
  mov.b64 %d2, {%r2, %r1};
  st.global.u64 [%d1], %d2;
  ret;
})");
  auto* const address = launcher.Allocate<std::uint64_t>(1);
  *address = 1;
  EXPECT_FALSE(launcher.Run("workspace", {1, 1, 1}, {1, 1, 1}, address).fault);
  EXPECT_EQ(*address, 0U);
  launcher.is_cooperative = true;
  EXPECT_FALSE(launcher.Run("workspace", {1, 1, 1}, {1, 1, 1}, address).fault);
  EXPECT_NE(*address, 0U);
}

}  // namespace
}  // namespace gpushared::testing
