// SPDX-License-Identifier: Apache-2.0
// Divergence, functions and barriers: each thread's result equals the result of that thread alone.
#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "tests/executor/kernel_file.h"

namespace gpushared::testing {
namespace {

class Divergence : public KernelFile {
 protected:
  Divergence() : KernelFile("divergence") {}
};
class Functions : public KernelFile {
 protected:
  Functions() : KernelFile("functions") {}
};
class Barriers : public KernelFile {
 protected:
  Barriers() : KernelFile("barriers") {}
};

// The function of the same name in divergence.cu, computed on the host.
unsigned Walk(unsigned x) {
  unsigned steps = 0;
  for (unsigned i = 0; i < 50; ++i) {
    if (x % 3 == 0) {
      x = x / 3 + i;
      if (x % 2 == 0) continue;
      steps += 5;
    } else if (x % 5 == 1) {
      unsigned inner = x & 7;
      while (true) {
        steps += inner;
        if (inner++ > 9 || steps % 11 == 0) break;
        if (steps > 1000) return steps * 3 + x;
      }
      x += inner;
    } else {
      x = x * 7 + 1;
    }
    if (x > 100000) break;
    ++steps;
  }
  return steps * 2 + x;
}

TEST_P(Divergence, NestedBranchesLoopsAndReturns) {
  constexpr unsigned kCount = 3001;
  auto* out = launcher.Allocate<unsigned>(kCount);
  Run("walk", {30, 1, 1}, {128, 1, 1}, out, kCount);
  for (unsigned i = 0; i < kCount; ++i) ASSERT_EQ(out[i], Walk(i)) << i;
}

TEST_P(Divergence, EveryLaneTakesItsOwnSwitchCase) {
  auto* choice = launcher.Allocate<unsigned>(64);
  auto* out = launcher.Allocate<unsigned>(64);
  for (unsigned i = 0; i < 64; ++i) choice[i] = i * 7 % 64;
  Run("select_case", {1, 1, 1}, {64, 1, 1}, choice, out);
  for (unsigned i = 0; i < 64; ++i) {
    unsigned value = i;
    for (unsigned round = 0; round < 3; ++round) {
      const unsigned c = (choice[i] + round) % 12;
      if (c == 0) value += 1;
      if (c == 1) value *= 3;
      if (c == 2) value ^= 0x55;
      if (c == 2 || c == 3) value -= 7;
      if (c == 4) value = value << 3 | 1;
      if (c == 5) value = ~value;
      if (c == 6) value %= 1000;
      if (c == 6 || c == 7) value += choice[i];
      if (c == 8) {
        unsigned reversed = 0;
        for (int b = 0; b < 32; ++b) reversed |= (value >> b & 1) << (31 - b);
        value = reversed;
      }
      if (c == 9) value = static_cast<unsigned>(std::popcount(value));
      if (c >= 10) value += 100;
    }
    ASSERT_EQ(out[i], value) << i;
  }
}

// brx.idx, which nvcc rarely generates: every lane branches to its own target, and lanes whose
// guard is false do not branch.
TEST_P(Divergence, EveryLaneTakesItsOwnIndexedBranch) {
  launcher.Load(R"(
.version 9.0
.target sm_90
.address_size 64
.visible .entry jump(.param .u64 out)
{
  .reg .b32 %lane, %index, %value, %round; .reg .b64 %out, %at; .reg .pred %on, %again;
  mov.u32 %lane, %tid.x;
  ld.param.u64 %out, [out];
  mul.wide.u32 %at, %lane, 4;
  add.u64 %out, %out, %at;
  mov.u32 %value, %lane;
  mov.u32 %round, 0;
LOOP:
  add.u32 %index, %lane, %round;
  rem.u32 %index, %index, 5;
  setp.ne.u32 %on, %index, 4;
TABLE: .branchtargets ADD, TWICE, NEXT, FLIP;
  @%on brx.idx %index, TABLE;
  sub.u32 %value, %value, 1000;
  bra NEXT;
ADD:
  add.u32 %value, %value, 7;
  bra NEXT;
TWICE:
  mul.lo.u32 %value, %value, 2;
FLIP:
  not.b32 %value, %value;
NEXT:
  add.u32 %round, %round, 1;
  setp.lt.u32 %again, %round, 6;
  @%again bra LOOP;
  st.global.u32 [%out], %value;
  ret;
})");
  auto* out = launcher.Allocate<unsigned>(80);
  Run("jump", {1, 1, 1}, {80, 1, 1}, out);
  for (unsigned i = 0; i < 80; ++i) {
    unsigned value = i;
    for (unsigned round = 0; round < 6; ++round) {
      const unsigned index = (i + round) % 5;
      if (index == 0) value += 7;
      if (index == 1) value = ~(value * 2);
      if (index == 3) value = ~value;
      if (index == 4) value -= 1000;
    }
    EXPECT_EQ(out[i], value) << i;
  }
}

TEST_P(Divergence, BarrierDoesNotWaitForReturnedThreads) {
  auto* out = launcher.Allocate<unsigned>(64);
  Run("early_return", {1, 1, 1}, {64, 1, 1}, out);
  for (unsigned i = 0; i < 64; ++i) EXPECT_EQ(out[i], i % 3 == 0 ? 0 : (i + 1) % 64 + 1);
}

TEST_P(Divergence, EveryLaneAcquiresTheLockOnce) {
  auto* lock = launcher.Allocate<int>(1);
  auto* order = launcher.Allocate<unsigned>(96);
  auto* count = launcher.Allocate<unsigned>(1);
  Run("lane_lock", {1, 1, 1}, {96, 1, 1}, lock, order, count);
  EXPECT_EQ(*count, 96u);
  std::vector<bool> seen(96, false);
  for (unsigned i = 0; i < 96; ++i) seen[order[i] % 96] = true;
  EXPECT_EQ(std::count(seen.begin(), seen.end(), true), 96);
  *lock = 0, *count = 0;
  Run("naive_lane_lock", {2, 1, 1}, {50, 1, 1}, lock, count);
  EXPECT_EQ(*count, 100u);
}

// Spinning lanes must yield soon to the lanes that they wait for. The test counts operations
// instead of measuring time.
TEST_P(Divergence, SpinningLanesYieldSoon) {
  auto* lock = launcher.Allocate<int>(1);
  auto* count = launcher.Allocate<unsigned>(1);
  launcher.count_instructions = true;
  Run("naive_lane_lock", {1, 1, 1}, {32, 1, 1}, lock, count);
  EXPECT_EQ(*count, 32u);
  EXPECT_LT(launcher.counts().lane_instructions, 32u * 32 * 500);
}

TEST_P(Divergence, LanesMayWaitForLanesOfTheirWarp) {
  auto* flags = launcher.Allocate<unsigned>(64);
  auto* out = launcher.Allocate<unsigned>(64);
  Run("wait_in_warp", {1, 1, 1}, {64, 1, 1}, flags, out);
  for (unsigned i = 0; i < 64; ++i) EXPECT_EQ(out[i], i % 2 == 1 ? i - 1 + 100 : i);
}

TEST_P(Divergence, DivergedLanesReconvergeForExchange) {
  auto* out = launcher.Allocate<unsigned>(64);
  Run("exchange_after_parting", {1, 1, 1}, {64, 1, 1}, out, 9u);
  unsigned value[64], next[64];
  for (unsigned i = 0; i < 64; ++i) value[i] = i;
  for (unsigned r = 0; r < 9; ++r) {
    for (unsigned i = 0; i < 64; ++i) {
      if ((i + r) % 4 != 0) continue;
      for (unsigned k = 0; k < i; ++k) value[i] = value[i] * 5 + 1;
    }
    for (unsigned i = 0; i < 64; ++i) next[i] = value[i] + value[i ^ (1u << (r % 5))];
    std::copy(next, next + 64, value);
  }
  for (unsigned i = 0; i < 64; ++i) ASSERT_EQ(out[i], value[i]) << i;
}

TEST_P(Divergence, HalvesOfAWarpExchangeSeparately) {
  auto* out = launcher.Allocate<unsigned>(32);
  Run("halves_apart", {1, 1, 1}, {32, 1, 1}, out);
  for (unsigned i = 0; i < 32; ++i) EXPECT_EQ(out[i], i < 16 ? 120u : 31u);
}

TEST_P(Functions, PassAndReturnStructs) {
  auto* out = launcher.Allocate<double>(64);
  Run("pass_structs", {1, 1, 1}, {64, 1, 1}, out);
  for (int i = 0; i < 64; ++i) {
    double weight = 1.5;
    int corner[3] = {1, 2, 3}, tag = i;
    const auto moved = [&](int by, double factor) {
      for (int& c : corner) c += by;
      weight *= factor;
      --tag;
    };
    if (i % 2 == 0) moved(i, 2);
    moved(-1, 0.5);
    EXPECT_EQ(out[i], weight + corner[0] + corner[1] * 10 + corner[2] * 100 + tag) << i;
  }
}

TEST_P(Functions, LanesRecurseToDifferentDepths) {
  auto* out = launcher.Allocate<unsigned>(64);
  Run("recurse", {1, 1, 1}, {64, 1, 1}, out);
  for (unsigned i = 0; i < 64; ++i) {
    unsigned a = 0, b = 1;
    for (unsigned k = 0; k < i % 13; ++k) b = std::exchange(a, b) + b;
    EXPECT_EQ(out[i], a) << i;
  }
  Run("call_each_other", {1, 1, 1}, {64, 1, 1}, out);
  for (unsigned i = 0; i < 64; ++i) EXPECT_EQ(out[i], i % 2 == 0 ? 1u : 2u);
}

TEST_P(Functions, EachCallHasItsOwnLocalMemory) {
  auto* out = launcher.Allocate<unsigned>(32);
  constexpr unsigned kDepth = 40;
  Run("recurse_to", {1, 1, 1}, {32, 1, 1}, kDepth, out);
  const auto depth = [](auto&& self, unsigned n, unsigned* trace) -> unsigned {
    unsigned local[4] = {n, n + 1, n + 2, n + 3};
    if (n == 0) return 0;
    const unsigned below = self(self, n - 1, local);
    trace[n % 4] += below;
    return below + local[(n + 1) % 4];
  };
  unsigned trace[4] = {};
  const unsigned expected = depth(depth, kDepth, trace) + trace[0];
  for (unsigned i = 0; i < 32; ++i) EXPECT_EQ(out[i], expected);
}

TEST_P(Functions, EndlessRecursionIsAFault) {
  auto* out = launcher.Allocate<unsigned>(32);
  const executor::Fault fault = Faulting("recurse_for_ever", {1, 1, 1}, {32, 1, 1}, out);
  EXPECT_EQ(fault.kind, executor::Fault::Kind::kCallDepth);
  EXPECT_NE(fault.message.find("call at depth"), std::string::npos) << fault.message;
}

TEST_P(Functions, EveryLaneAcquiresALockInsideAFunction) {
  auto* lock = launcher.Allocate<int>(1);
  auto* count = launcher.Allocate<unsigned>(1);
  Run("lock_in_function", {2, 1, 1}, {64, 1, 1}, lock, count);
  EXPECT_EQ(*count, 2u * (32 + 32 * 100));
}

// The function of the same name in functions.cu, computed on the host.
unsigned Helper(unsigned value) {
  for (unsigned i = 0; i < value % 7; ++i) value = value * 3 + i;
  return value;
}

TEST_P(Functions, PathsOfAWarpCallIndependently) {
  auto* lock = launcher.Allocate<int>(1);
  auto* count = launcher.Allocate<unsigned>(1);
  auto* out = launcher.Allocate<unsigned>(64);
  Run("calls_under_a_lock", {1, 1, 1}, {64, 1, 1}, lock, count, out);
  EXPECT_EQ(*count, 42u);
  for (unsigned i = 0; i < 64; ++i) {
    unsigned expected = Helper(i) + Helper(i + 2);
    if (i % 3 != 0) expected += Helper(i) + Helper(i + 1);
    ASSERT_EQ(out[i], expected) << i;
  }
}

TEST_P(Functions, PathsReturnThroughEveryCall) {
  auto* lock = launcher.Allocate<int>(1);
  auto* count = launcher.Allocate<unsigned>(1);
  auto* out = launcher.Allocate<unsigned>(64);
  Run("nested_lock", {1, 1, 1}, {64, 1, 1}, lock, count, out);
  unsigned total = 0;
  for (unsigned i = 0; i < 64; ++i) {
    const unsigned kept = Helper(i) ^ 0x1234;
    unsigned expected = Helper(i + 1);
    if (i % 4 != 1) expected += kept + Helper(i + 5), total += kept & 3;
    ASSERT_EQ(out[i], expected) << i;
  }
  EXPECT_EQ(*count, total);
}

TEST_P(Functions, LanesExchangeInAFunctionReachedByDifferentCalls) {
  auto* out = launcher.Allocate<unsigned>(64);
  Run("exchange_in_function", {1, 1, 1}, {64, 1, 1}, out);
  for (unsigned i = 0; i < 64; ++i) {
    const auto scaled = [](unsigned t) { return t % 2 == 0 ? t * 10 + 3 : (t + 1000) * 10 + 5; };
    EXPECT_EQ(out[i], scaled(i) + scaled(i ^ 1) + (i % 2 == 0 ? 1 : 2)) << i;
  }
}

TEST_P(Functions, LanesWithSeparateFramesReconverge) {
  auto* lock = launcher.Allocate<int>(1);
  auto* count = launcher.Allocate<unsigned>(1);
  auto* out = launcher.Allocate<unsigned>(64);
  Run("meet_after_lock", {1, 1, 1}, {64, 1, 1}, lock, count, out);
  EXPECT_EQ(*count, 64u);
  for (unsigned i = 0; i < 64; ++i) {
    EXPECT_EQ(out[i], i * 30 + 7 + (i ^ 1) * 30 + 7 + 1 + (63 - i) * 11) << i;
  }
}

TEST_P(Functions, BarrierInAFunctionCountsThreadsNotCalls) {
  auto* out = launcher.Allocate<unsigned>(128);
  Run("barrier_in_function", {1, 1, 1}, {128, 1, 1}, out);
  for (unsigned i = 0; i < 128; ++i) {
    EXPECT_EQ(out[i], i % 2 == 1 ? (i + 64) % 128 * 3 : (i + 1) % 128 * 3 + 7) << i;
  }
}

TEST_P(Functions, ExitInAFunctionEndsTheThread) {
  auto* out = launcher.Allocate<unsigned>(64);
  Run("exit_in_function", {1, 1, 1}, {64, 1, 1}, out);
  for (unsigned i = 0; i < 64; ++i) EXPECT_EQ(out[i], i % 5 == 2 ? 1u : 2u);
}

TEST_P(Barriers, CountedBarriersJoinTwoWarpsOfFour) {
  auto* out = launcher.Allocate<unsigned>(160);
  Run("producer_consumer", {1, 1, 1}, {128, 1, 1}, out);
  for (unsigned i = 0; i < 160; ++i) EXPECT_EQ(out[i], i / 32 * 100 + 31 - i % 32);
}

TEST_P(Barriers, ReductionsOverTheBlock) {
  auto* out = launcher.Allocate<int>(3 * 100);
  for (const bool above : {false, true}) {
    for (const int threshold : {0, 1, 40, 99, 100}) {
      Run("reductions", {1, 1, 1}, {100, 1, 1}, out, threshold, above);
      const int count = above ? 100 - threshold : threshold;
      for (int i = 0; i < 100; ++i) {
        ASSERT_EQ(out[3 * i], count);
        ASSERT_EQ(out[3 * i + 1] != 0, count == 100);
        ASSERT_EQ(out[3 * i + 2] != 0, count > 0);
      }
    }
  }
}

// Barriers count in warps (PTX ISA, barrier: "a multiple of the warp size").
TEST_P(Barriers, PartialWarpCountsAsAWholeWarp) {
  auto* out = launcher.Allocate<unsigned>(80);
  Run("counts_whole_warps", {1, 1, 1}, {80, 1, 1}, out);
  for (unsigned i = 0; i < 80; ++i) EXPECT_EQ(out[i], 79 - i + 5);
}

TEST_P(Barriers, EveryRoundSeesThePreviousOne) {
  auto* out = launcher.Allocate<unsigned>(3 * 1000);
  launcher.dynamic_shared_bytes = 4000;
  Run("many_rounds", {3, 1, 1}, {1000, 1, 1}, out, 17);
  for (unsigned i = 0; i < 3000; ++i) ASSERT_EQ(out[i], (i % 1000 + 17) % 1000 + 17);
}

TEST_P(Barriers, HalfAWarpWaitsAlone) {
  auto* out = launcher.Allocate<unsigned>(64);
  Run("parted_warp", {1, 1, 1}, {64, 1, 1}, out);
  for (unsigned i = 0; i < 64; ++i) {
    unsigned value = i + 1;
    for (unsigned k = 0; k < i + 1; ++k) value = value * 7 + k;
    EXPECT_EQ(out[i], i % 2 == 0 ? value : i - 1) << i;
  }
}

GPUSHARED_INSTANTIATE_FLAVOURS(Divergence);
GPUSHARED_INSTANTIATE_FLAVOURS(Functions);
GPUSHARED_INSTANTIATE_FLAVOURS(Barriers);

}  // namespace
}  // namespace gpushared::testing
