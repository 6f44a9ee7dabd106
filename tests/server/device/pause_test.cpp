// SPDX-License-Identifier: Apache-2.0
// Launches of the cpu device that are preempted inside a block and resumed.
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "server/device/cpu/run_store.h"
#include "tests/server/device/cpu_device_case.h"

namespace gpushared::device {
namespace {

using namespace std::chrono_literals;

// count: each thread counts the iterations of a loop in local memory, and writes their sum to its
// own word of `out`. Every 1,024th iteration has a barrier. A block that begins adds 1 to `begun`.
// meet: blocks wait for each other on a counter, `rounds` times.
constexpr std::string_view kText = R"(.version 8.0
.target sm_75
.address_size 64
.visible .entry count(.param .u64 begun, .param .u64 out, .param .u32 rounds) {
.local .align 4 .b8 own[4096];
.reg .pred %p<4>; .reg .b32 %r<12>; .reg .b64 %rd<8>;
ld.param.u64 %rd0, [begun];
ld.param.u64 %rd1, [out];
ld.param.u32 %r0, [rounds];
mov.u32 %r1, %tid.x;
mov.u32 %r2, %ctaid.x;
mov.u32 %r3, %ntid.x;
mad.lo.u32 %r4, %r2, %r3, %r1;
mul.wide.u32 %rd2, %r4, 4;
add.u64 %rd1, %rd1, %rd2;
setp.eq.u32 %p0, %r1, 0;
@%p0 atom.global.add.u32 %r5, [%rd0], 1;
mov.u64 %rd3, own;
mov.u32 %r6, 0;
$LOOP:
and.b32 %r7, %r6, 1023;
mul.wide.u32 %rd4, %r7, 4;
add.u64 %rd5, %rd3, %rd4;
ld.local.u32 %r8, [%rd5];
add.u32 %r8, %r8, 1;
st.local.u32 [%rd5], %r8;
setp.ne.u32 %p1, %r7, 1023;
@%p1 bra $ON;
bar.sync 0;
$ON:
add.u32 %r6, %r6, 1;
setp.lt.u32 %p2, %r6, %r0;
@%p2 bra $LOOP;
mov.u32 %r9, 0;
mov.u32 %r6, 0;
$SUM:
mul.wide.u32 %rd4, %r6, 4;
add.u64 %rd5, %rd3, %rd4;
ld.local.u32 %r8, [%rd5];
add.u32 %r9, %r9, %r8;
add.u32 %r6, %r6, 1;
setp.lt.u32 %p3, %r6, 1024;
@%p3 bra $SUM;
st.global.u32 [%rd1], %r9;
ret;
}
.visible .entry meet(.param .u64 counter, .param .u32 blocks, .param .u32 rounds) {
.reg .pred %p<2>; .reg .b32 %r<6>; .reg .b64 %rd<2>;
ld.param.u64 %rd0, [counter];
ld.param.u32 %r0, [blocks];
ld.param.u32 %r1, [rounds];
mov.u32 %r2, 0;
$ROUND:
add.u32 %r2, %r2, %r0;
atom.global.add.u32 %r3, [%rd0], 1;
$WAIT:
ld.volatile.global.u32 %r4, [%rd0];
setp.lt.u32 %p0, %r4, %r2;
@%p0 bra $WAIT;
sub.u32 %r1, %r1, 1;
setp.ne.u32 %p1, %r1, 0;
@%p1 bra $ROUND;
ret;
}
.visible .entry endless() { $L: bra.uni $L; }
.visible .entry nothing() { ret; }
)";
enum Kernel : std::uint32_t { kCount, kMeet, kEndless, kNothing };

class PauseTest : public ::testing::TestWithParam<std::uint32_t>, protected CpuDeviceCase {
 protected:
  void SetUp() override {
    Start({.executor_threads = GetParam(), .memory_bytes = 1 << 28}, 1 << 26, kText);
    ASSERT_TRUE(space_->Resize(std::uint64_t{1} << 22).ok());
    for (const KernelInfo& kernel : module_->kernels()) EXPECT_EQ(kernel.unsupported, "");
  }

  LaunchWork Work(std::uint32_t kernel) {
    LaunchWork work = CpuDeviceCase::Work(kernel);
    work.may_be_paused = true;
    return work;
  }
  struct CountParameters {
    std::uint64_t begun, out;
    std::uint32_t rounds;
    std::uint32_t padding = 0;
    std::span<const std::byte> bytes() const { return std::as_bytes(std::span(this, 1)).first(20); }
  };
  std::uint32_t Word(std::uint64_t index) const {
    return std::atomic_ref<std::uint32_t>(
               reinterpret_cast<std::uint32_t*>(static_cast<std::uintptr_t>(space_->base()))[index])
        .load();
  }

  // Submits the launch repeatedly, stopping it after `time` each time, until it finishes. Returns
  // how many of the stops occurred inside a block.
  int RunInPieces(LaunchWork work, std::chrono::microseconds time) {
    int pauses = 0;
    for (;;) {
      device_->Submit(work);
      work.paused.reset();
      std::this_thread::sleep_for(time);
      device_->RequestStop(work.id);
      const Completion completion = Await();
      EXPECT_TRUE(completion.status.ok()) << completion.status.ToString();
      EXPECT_GE(completion.units_done, work.first_unit);
      if (!completion.stopped) {
        EXPECT_EQ(completion.units_done, work.grid.Count());
        EXPECT_EQ(completion.paused, nullptr);
        return pauses;
      }
      if (completion.paused != nullptr) ++pauses;
      work.paused = completion.paused;
      work.first_unit = completion.units_done;
      work.id = ++last_id_;
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Threads, PauseTest, ::testing::Values(1, 3), [](const auto& threads) {
  return std::to_string(threads.param) + "_threads";
});

TEST_P(PauseTest, StoppedBlockResumesWhereItStopped) {
  constexpr std::uint32_t kBlocks = 4, kThreads = 96, kRounds = 60'000;
  LaunchWork work = Work(kCount);
  work.grid = {kBlocks, 1, 1};
  work.block = {kThreads, 1, 1};
  const CountParameters parameters{
      .begun = space_->base(), .out = space_->base() + 64, .rounds = kRounds};
  work.parameters = parameters.bytes();
  EXPECT_GT(RunInPieces(work, 2ms), 2);
  EXPECT_EQ(Word(0), kBlocks) << "no block begins twice";
  for (std::uint32_t i = 0; i < kBlocks * kThreads; ++i) ASSERT_EQ(Word(16 + i), kRounds) << i;
}

// Each node begins only once, when the previous node has ended.
TEST_P(PauseTest, GraphStoppedInsideNodeResumesThere) {
  constexpr std::uint32_t kBlocks = 4, kThreads = 96, kRounds = 30'000, kNodes = 3;
  constexpr std::uint64_t kWords = 1024;  // Words of each node.
  std::array<CountParameters, kNodes> parameters;
  std::vector<GraphNode> nodes;
  for (std::uint32_t node = 0; node < kNodes; ++node) {
    const std::uint64_t base = space_->base() + node * kWords * 4;
    parameters[node] = {.begun = base, .out = base + 64, .rounds = kRounds};
    LaunchWork work = CpuDeviceCase::Work(kCount);
    work.grid = {kBlocks, 1, 1};
    work.block = {kThreads, 1, 1};
    work.parameters = parameters[node].bytes();
    nodes.emplace_back(work);
  }
  const std::vector<const GraphNode*> list = {&nodes[0], &nodes[1], &nodes[2]};
  GraphWork graph;
  graph.space = space_.get();
  graph.stream = 1;
  graph.nodes = list;
  graph.may_be_paused = true;
  int pauses = 0;
  for (Completion last{.stopped = true}; last.stopped;) {
    graph.id = ++last_id_;
    device_->SubmitGraph(graph);
    graph.paused.reset();
    std::this_thread::sleep_for(2ms);
    device_->RequestStop(graph.id);
    last = Await();
    ASSERT_TRUE(last.status.ok()) << last.status.ToString();
    ASSERT_GE(last.units_done, graph.first_unit);
    if (last.paused != nullptr) ++pauses;
    graph.paused = last.paused;
    graph.first_unit = last.units_done;
  }
  EXPECT_EQ(graph.first_unit, kNodes);
  EXPECT_GT(pauses, 2);
  for (std::uint32_t node = 0; node < kNodes; ++node) {
    EXPECT_EQ(Word(node * kWords), kBlocks) << "no block begins twice";
    for (std::uint32_t i = 0; i < kBlocks * kThreads; ++i) {
      ASSERT_EQ(Word(node * kWords + 16 + i), kRounds) << node << " " << i;
    }
  }
}

// All threads are inside a block that does not yield, so the spare thread runs the more urgent
// work.
TEST_P(PauseTest, MoreUrgentWorkOvertakesUnpausableBlocks) {
  LaunchWork endless = Work(kEndless);
  endless.may_be_paused = false;
  endless.grid = {GetParam(), 1, 1};
  device_->Submit(endless);
  for (int i = 0; i < 3; ++i) {
    LaunchWork urgent = Work(kNothing);
    urgent.stream = 2;
    urgent.priority = 1;
    device_->Submit(urgent);
    const Completion completion = Await();
    EXPECT_EQ(completion.id, urgent.id);
    EXPECT_TRUE(completion.status.ok()) << completion.status.ToString();
  }
  device_->RequestKill(endless.id);
  EXPECT_EQ(Await().id, endless.id);
}

// Runs of the launch wait for each other, so whichever is resumed first, the others must follow.
TEST_P(PauseTest, BlocksThatWaitForEachOtherArePausedTogether) {
  constexpr std::uint32_t kBlocks = 12;
  LaunchWork work = Work(kMeet);
  work.grid = {kBlocks, 1, 1};
  struct {
    std::uint64_t counter;
    std::uint32_t blocks = kBlocks, rounds = 300;
  } const parameters{.counter = space_->base()};
  work.parameters = std::as_bytes(std::span(&parameters, 1));
  EXPECT_GT(RunInPieces(work, 1ms), 0);
  EXPECT_EQ(Word(0), kBlocks * 300);
}

// Runs that wait for each other have only one thread left.
TEST_P(PauseTest, WaitingRunsYieldTheirThreadToEachOther) {
  if (GetParam() == 1) GTEST_SKIP() << "one thread has one run";
  constexpr std::uint32_t kBlocks = 12, kRounds = 2000;
  LaunchWork work = Work(kMeet);
  work.grid = {kBlocks, 1, 1};
  struct {
    std::uint64_t counter;
    std::uint32_t blocks = kBlocks, rounds = kRounds;
  } const parameters{.counter = space_->base()};
  work.parameters = std::as_bytes(std::span(&parameters, 1));
  device_->Submit(work);
  while (Word(0) < kBlocks) std::this_thread::yield();
  LaunchWork urgent = Work(kEndless);
  urgent.stream = 2;
  urgent.priority = 1;
  urgent.grid = {GetParam() - 1, 1, 1};
  device_->Submit(urgent);
  const Completion completion = Await();
  EXPECT_EQ(completion.id, work.id);
  EXPECT_TRUE(completion.status.ok()) << completion.status.ToString();
  EXPECT_EQ(Word(0), kBlocks * kRounds);
  device_->RequestKill(urgent.id);
  EXPECT_EQ(Await().id, urgent.id);
}

TEST_P(PauseTest, MoreUrgentWorkRunsFirstWithoutStopRequest) {
  LaunchWork endless = Work(kEndless);
  endless.grid = {100, 1, 1};
  device_->Submit(endless);
  for (int i = 0; i < 50; ++i) {
    LaunchWork urgent = Work(kNothing);
    urgent.stream = 2;
    urgent.priority = 1;
    urgent.grid = {10, 1, 1};
    device_->Submit(urgent);
    EXPECT_EQ(Await().id, urgent.id);
  }
  device_->RequestKill(endless.id);
  EXPECT_EQ(Await().status.code(), StatusCode::kCancelled);
}

TEST_P(PauseTest, WorkOfTheSamePriorityWaitsForTheBlock) {
  LaunchWork first = Work(kCount);
  first.grid = {GetParam(), 1, 1};
  first.block = {32, 1, 1};
  const CountParameters parameters{
      .begun = space_->base(), .out = space_->base() + 64, .rounds = 100'000};
  first.parameters = parameters.bytes();
  device_->Submit(first);
  while (Word(0) < GetParam()) std::this_thread::yield();
  LaunchWork second = Work(kNothing);
  second.stream = 2;
  device_->Submit(second);
  const WorkId ended_first = Await().id;
  Await();
  // One of several blocks may end before the others, which frees its thread.
  if (GetParam() == 1) {
    EXPECT_EQ(ended_first, first.id);
  }
}

TEST_P(PauseTest, WorkThatMayNotBePausedRunsToTheEndOfItsBlock) {
  LaunchWork work = Work(kCount);
  work.may_be_paused = false;
  work.block = {32, 1, 1};
  const CountParameters parameters{
      .begun = space_->base(), .out = space_->base() + 64, .rounds = 100'000};
  work.parameters = parameters.bytes();
  device_->Submit(work);
  while (Word(0) == 0) std::this_thread::yield();
  device_->RequestStop(work.id);
  const Completion completion = Await();
  EXPECT_FALSE(completion.stopped);
  EXPECT_EQ(Word(16), 100'000u);
}

TEST_P(PauseTest, DroppedWorkDoesNotResume) {
  LaunchWork endless = Work(kEndless);
  device_->Submit(endless);
  std::this_thread::sleep_for(5ms);
  device_->RequestStop(endless.id);
  {
    const Completion completion = Await();
    EXPECT_TRUE(completion.stopped);
    EXPECT_EQ(completion.units_done, 1u) << "the one that is paused";
    ASSERT_NE(completion.paused, nullptr);
  }
  const LaunchWork next = Work(kNothing);
  device_->Submit(next);
  EXPECT_TRUE(Await().status.ok());
}

TEST_P(PauseTest, PausedWorkCanBeKilled) {
  LaunchWork endless = Work(kEndless);
  device_->Submit(endless);
  std::this_thread::sleep_for(5ms);
  device_->RequestStop(endless.id);
  endless.paused = Await().paused;
  ASSERT_NE(endless.paused, nullptr);
  endless.first_unit = 1;
  endless.id = ++last_id_;
  device_->Submit(endless);
  device_->RequestKill(endless.id);
  EXPECT_EQ(Await().status.code(), StatusCode::kCancelled);
}

TEST(RunStore, LimitsRunsOfAllClientsAndOfEach) {
  RunStore store;
  const auto* const one = reinterpret_cast<const Space*>(8);
  EXPECT_TRUE(store.Reserve(one, kPausedBytesPerSpaceMax));
  EXPECT_FALSE(store.Reserve(one, 1));
  for (std::uintptr_t other = 16; other <= 32; other += 8) {
    EXPECT_TRUE(store.Reserve(reinterpret_cast<const Space*>(other), kPausedBytesPerSpaceMax));
  }
  EXPECT_FALSE(store.Reserve(reinterpret_cast<const Space*>(40), 1)) << "all is in use";
  store.Release(one, kPausedBytesPerSpaceMax);
  EXPECT_TRUE(store.Reserve(reinterpret_cast<const Space*>(40), 1));
  EXPECT_FALSE(store.Reserve(one, ~std::uint64_t{0}));
}

TEST(RunStore, DroppedRunReturnsItsMemoryAndExecutor) {
  const auto store = std::make_shared<RunStore>();
  ASSERT_TRUE(store->Reserve(nullptr, 100));
  auto executor = std::make_unique<executor::BlockExecutor>();
  const executor::BlockExecutor* const known = executor.get();
  {
    PausedRun run(std::move(executor), store, nullptr, 100);
    EXPECT_EQ(store->bytes(), 100u);
    PausedRun moved;
    moved = std::move(run);
    EXPECT_FALSE(moved.empty());
  }
  EXPECT_EQ(store->bytes(), 0u);
  EXPECT_EQ(store->Take().get(), known);
}

}  // namespace
}  // namespace gpushared::device
