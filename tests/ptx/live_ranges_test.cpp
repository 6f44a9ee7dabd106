// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "tests/ptx/parsed.h"

namespace gpushared::ptx {
namespace {

std::pair<std::uint32_t, std::uint32_t> GetRange(const ControlFlow& flow, const std::string& name) {
  const std::uint32_t index = flow.FindRegister(name);
  EXPECT_NE(index, kNoRegister) << name;
  if (index == kNoRegister) return {1, 0};
  return {flow.registers[index].live_begin, flow.registers[index].live_end};
}

using Range = std::pair<std::uint32_t, std::uint32_t>;

TEST(LiveRanges, ReachFromTheWriteToTheLastRead) {
  const ControlFlow flow = GetFlow(
      "mov.b32 %r1, 1; mov.b32 %r2, 2; add.s32 %r3, %r1, %r2; st.global.u32 [%r3], %r2; ret;");
  EXPECT_EQ(GetRange(flow, "%r1"), Range(0, 2));
  EXPECT_EQ(GetRange(flow, "%r2"), Range(1, 3));
  EXPECT_EQ(GetRange(flow, "%r3"), Range(2, 3));
}

TEST(LiveRanges, CoverTheWholeLoopForValuesFromBeforeIt) {
  const ControlFlow flow = GetFlow(
      "mov.b32 %r1, 1;\nmov.b32 %r2, 0;\n"
      "L: add.s32 %r3, %r1, 1;\nadd.s32 %r2, %r2, %r3;\nmov.b32 %r4, 1;\nsetp.lt.s32 %p1, %r2, 9;\n"
      "@%p1 bra L;\nst.global.u32 [%r2], %r4;\nret;");
  EXPECT_EQ(GetRange(flow, "%r1"), Range(0, 6));
  EXPECT_EQ(GetRange(flow, "%r3"), Range(2, 3));
  EXPECT_EQ(GetRange(flow, "%r2"), Range(1, 7));
  EXPECT_EQ(GetRange(flow, "%r4"), Range(4, 7));
}

TEST(LiveRanges, ValuesCarriedAroundALoopAreLiveInAllOfIt) {
  // %r1 is read at the top of the next round before it is written again.
  const ControlFlow flow = GetFlow(
      "mov.b32 %r1, 0;\nL: mov.b32 %r2, %r1;\nmov.b32 %r3, 7;\nmov.b32 %r1, %r3;\n"
      "@%p1 bra L;\nret;");
  EXPECT_EQ(GetRange(flow, "%r1"), Range(0, 4));
}

TEST(LiveRanges, GuardedWriteKeepsTheOldValueAlive) {
  const ControlFlow flow =
      GetFlow("mov.b32 %r1, 1;\nmov.b32 %r9, 1;\n@%p1 mov.b32 %r1, 2;\nmov.b32 %r2, %r1;\nret;");
  EXPECT_EQ(GetRange(flow, "%r1"), Range(0, 3));
  // Threads whose guard is false carry %r1 over from the previous round.
  const ControlFlow loop = GetFlow(
      "mov.b32 %r1, 1;\nL: mov.b32 %r3, 7;\n@%p1 mov.b32 %r1, 2;\nmov.b32 %r2, %r1;\n"
      "mov.b32 %r4, 1;\n@%p2 bra L;\nret;");
  EXPECT_EQ(GetRange(loop, "%r1"), Range(0, 5));
  EXPECT_EQ(GetRange(loop, "%r3"), Range(1, 1));
  // %r1 is never written for all threads, so its value is needed from the start.
  const ControlFlow partial = GetFlow("ret;\nL: @%p1 mov.b32 %r1, 2;\nbra L;");
  EXPECT_EQ(GetRange(partial, "%r1").first, 1u);
}

TEST(LiveRanges, ValueReadBeforeAnyWriteIsLiveFromTheStart) {
  const ControlFlow flow =
      GetFlow("mov.b32 %r2, 1;\n@%p1 bra L;\nmov.b32 %r1, 1;\nL: mov.b32 %r3, %r1;\nret;");
  EXPECT_EQ(GetRange(flow, "%r1"), Range(0, 3));
  EXPECT_EQ(GetRange(flow, "%p1"), Range(0, 1));
}

TEST(LiveRanges, ReportsRegistersThatMayBeReadUnwritten) {
  const auto unwritten = [](const std::string& body, const std::string& name) {
    const ControlFlow flow = GetFlow(body);
    return flow.registers[flow.FindRegister(name)].is_read_unwritten;
  };
  EXPECT_TRUE(unwritten("mov.b32 %r2, %r1; ret;", "%r1"));
  EXPECT_FALSE(unwritten("mov.b32 %r1, 1; mov.b32 %r2, %r1; ret;", "%r1"));
  EXPECT_FALSE(unwritten("mov.b32 %r1, 1; ret;", "%r1"));
  EXPECT_TRUE(unwritten("@%p1 bra L; mov.b32 %r1, 1;\nL: mov.b32 %r2, %r1; ret;", "%r1"));
  EXPECT_TRUE(unwritten("@%p1 mov.b32 %r1, 1; mov.b32 %r2, %r1; ret;", "%r1"));
  EXPECT_FALSE(unwritten("vadd.s32.s32.s32 %r1.b1, 1, 2, 3; mov.b32 %r2, %r1; ret;", "%r1"));
  EXPECT_TRUE(unwritten("vadd.s32.s32.s32 %r2, 1, %r1.b1; ret;", "%r1"));
  // The first block is part of a loop.
  EXPECT_FALSE(unwritten("L: mov.b32 %r1, 1; mov.b32 %r2, %r1; @%p1 bra L; ret;", "%r1"));
  EXPECT_TRUE(unwritten("L: mov.b32 %r2, %r1; mov.b32 %r1, 1; @%p1 bra L; ret;", "%r1"));
  // The read is unreachable.
  EXPECT_FALSE(unwritten("ret; mov.b32 %r2, %r1;", "%r1"));
}

TEST(LiveRanges, UnusedResultIsLiveAtItsInstruction) {
  const ControlFlow flow = GetFlow("mov.b32 %r2, 1;\nmov.b32 %r1, 1;\nret;");
  EXPECT_EQ(GetRange(flow, "%r1"), Range(1, 1));
}

TEST(LiveRanges, VectorsPairsAndListsAreWrittenElementByElement) {
  const ControlFlow flow = GetFlow(
      "ret;\nld.v2.u32 {%r1, %r2}, [%r9];\nsetp.eq.s32 %p1|%p2, %r1, 0;\ncall (%r3), f, (%r2);\n"
      "@%p2 st.u32 [%r3], 0;\n");
  EXPECT_EQ(GetRange(flow, "%r1"), Range(1, 2));
  EXPECT_EQ(GetRange(flow, "%r2"), Range(1, 3));
  EXPECT_EQ(GetRange(flow, "%p2"), Range(2, 4));
  EXPECT_EQ(GetRange(flow, "%r3"), Range(3, 4));
}

TEST(LiveRanges, UnusedRegisterIsNotListed) {
  const ControlFlow flow = GetFlow("mov.b32 %r1, 1;");
  EXPECT_EQ(flow.registers.size(), 1u);
}

TEST(LiveRanges, StoresBranchesAndBarriersWriteNothing) {
  for (const char* text : {"st.global.u32 [%r1], %r2;", "red.global.add.u32 [%r1], %r2;",
                           "bar.sync %r1;", "barrier.cta.sync %r1, %r2;", "nanosleep.u32 %r1;",
                           "call f, (%r1);", "bar.warp.sync %r1;"}) {
    const ControlFlow flow = GetFlow(text);
    EXPECT_FALSE(WritesFirstOperand(flow.instructions[0])) << text;
  }
  for (const char* text : {"bar.red.popc.u32 %r1, 0, %p1;", "atom.global.add.u32 %r1, [%r2], 1;",
                           "call (%r1), f;", "tex.2d.v4.f32.f32 {%r1, %r2, %r3, %r4}, [t, {%r5}];",
                           "unheard_of %r1, %r2;", "activemask.b32 %r1;"}) {
    const ControlFlow flow = GetFlow(text);
    EXPECT_TRUE(WritesFirstOperand(flow.instructions[0])) << text;
  }
}

TEST(LiveRanges, BeyondTheLimitEverythingIsLiveEverywhere) {
  // Every register is live in every block: more visits than the limit allows.
  std::string body;
  constexpr int kBlocks = 9000;
  for (int i = 0; i < 90; ++i) body += "mov.b32 %r" + std::to_string(i) + ", 1;\n";
  for (int i = 0; i < kBlocks; ++i)
    body += ".reg .b32 a" + std::to_string(i) + "; mov.b32 a" + std::to_string(i) + ", 1;\n";
  for (int i = 0; i < kBlocks; ++i) body += "@%p1 bra END;\n";
  for (int i = 0; i < kBlocks; ++i) body += "mov.b32 %r1, a" + std::to_string(i) + ";\n";
  body += "END: ret;\n";
  const ControlFlow flow = GetFlow(body);
  const auto last = static_cast<std::uint32_t>(flow.instructions.size() - 1);
  EXPECT_EQ(GetRange(flow, "a" + std::to_string(kBlocks - 1)), Range(0, last));
  EXPECT_EQ(GetRange(flow, "a0"), Range(90, 90 + 2 * kBlocks));
  // It is safe to report a register as read before it is written.
  EXPECT_TRUE(
      flow.registers[flow.FindRegister("a" + std::to_string(kBlocks - 1))].is_read_unwritten);
  EXPECT_FALSE(flow.registers[flow.FindRegister("a0")].is_read_unwritten);
}

}  // namespace
}  // namespace gpushared::ptx
