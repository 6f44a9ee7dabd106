// SPDX-License-Identifier: Apache-2.0
#include "server/ptx/analysis/kernel_scan.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/ptx/text/parser.h"
#include "server/ptx/analysis/block_waits.h"
#include "server/ptx/analysis/control_flow.h"
#include "server/ptx/analysis/look_back.h"
#include "tests/support/read_file.h"

namespace gpushared::ptx {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Scans kernel `k` of a module text; three header lines precede it.
std::map<Feature, std::string> ScanText(const std::string& text) {
  const Result<Module> module = Parse(".version 8.1\n.target sm_75\n.address_size 64\n" + text);
  EXPECT_TRUE(module) << module.status().message();
  if (!module) return {};
  const CallGraph calls(*module);
  const auto findings = KernelScanner(*module, calls).Scan(*module->FindFunction("k"));
  EXPECT_TRUE(findings) << findings.status().message();
  std::map<Feature, std::string> by_feature;
  if (!findings) return by_feature;
  for (const Finding& finding : *findings) by_feature[finding.feature] = Describe(finding);
  return by_feature;
}

// Scans a kernel with one line of register declarations, before the lines of `body`.
std::map<Feature, std::string> ScanBody(const std::string& body) {
  return ScanText(
      ".entry k(.param .u64 a, .param .u32 n) {\n"
      ".reg .b32 %r<40>; .reg .b64 %rd<40>; .reg .pred %p<10>;\n" +
      body + "\nret;\n}\n");
}

bool Waits(const std::string& body) { return ScanBody(body).contains(Feature::kWaitsForBlocks); }
bool LooksBack(const std::string& body) {
  const auto found = ScanBody(body);
  return found.contains(Feature::kWaitsForEarlierBlocks) &&
         !found.contains(Feature::kWaitsForBlocks);
}

TEST(CallGraph, ReachesEachFunctionOnceEvenInCycles) {
  const Result<Module> module = Parse(
      ".version 8.1\n.target sm_75\n.func b();\n.func a() { call b; ret; }\n"
      ".func b() { call a; call (), b, (); ret; }\n.func c() { ret; }\n"
      ".entry k() { call a; ret; }\n");
  ASSERT_TRUE(module) << module.status().message();
  const CallGraph graph(*module);
  std::vector<std::string> names;
  for (const Function* function : graph.Reachable(*module->FindFunction("k"))) {
    names.push_back(function->name);
  }
  EXPECT_THAT(names, ElementsAre("k", "a", "b"));
}

TEST(CallGraph, AnIndirectCallReachesEveryFunctionWhoseAddressIsTaken) {
  const Result<Module> module = Parse(
      ".version 8.1\n.target sm_75\n.func a() { ret; }\n.func c() { call d; ret; }\n"
      ".func d() { ret; }\n.func called() { ret; }\n.func masked() { ret; }\n"
      ".global .u64 table[3] = {0, c, other};\n.global .u8 low = 0xFF(generic(masked));\n"
      ".entry other() { .reg .b64 %rd<2>; mov.u64 %rd1, a; call called; ret; }\n"
      ".entry k() { .reg .b64 %rd<2>; p: .callprototype _ (); call %rd1, p; ret; }\n");
  ASSERT_TRUE(module) << module.status().message();
  const CallGraph graph(*module);
  std::vector<std::string> names;
  for (const Function* function : graph.Reachable(*module->FindFunction("k"))) {
    names.push_back(function->name);
  }
  EXPECT_THAT(names, ElementsAre("k", "a", "c", "masked", "d"));
  ASSERT_EQ(graph.GetCalls(*module->FindFunction("k")).size(), 1u);
  EXPECT_EQ(graph.GetCalls(*module->FindFunction("k"))[0].kind, Call::Kind::kIndirect);
}

TEST(KernelScan, NamesLineAndFunctionOfFeaturesInCallees) {
  const auto found = ScanText(
      ".func f() {\n.reg .b32 %r<2>;\nmov.u32 %r0, %ctaid.x;\ntrap;\nret;\n}\n"
      ".entry k() {\ncall f;\nret;\n}\n");
  EXPECT_EQ(found.at(Feature::kTrap), "line 7: traps (in function 'f')");
  EXPECT_THAT(found.at(Feature::kBlockIndexInFunction),
              AllOf(HasSubstr("line 6:"), HasSubstr("%ctaid.x"), HasSubstr("'f'")));
}

TEST(KernelScan, KernelMayReadItsBlockIndex) {
  EXPECT_THAT(ScanBody("mov.u32 %r0, %ctaid.x;"), IsEmpty());
}

TEST(KernelScan, NamesModuleVariablesButNotThoseOfOtherSpaces) {
  const auto found = ScanText(
      ".shared .b32 s;\n.const .b32 c;\n.entry k() {\n.reg .b32 %r<2>;\n"
      "ld.shared.u32 %r0, [s];\nld.const.u32 %r0, [c+4];\nret;\n}\n");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found.at(Feature::kModuleVariables), "line 9: module variables ('c')");
}

TEST(KernelScan, FunctionsOfOtherModulesAreMissingAndBuiltInsAreNot) {
  const auto found = ScanText(
      ".extern .func vprintf();\n.extern .func far();\n.entry k() {\ncall vprintf;\ncall far;\n"
      "ret;\n}\n");
  EXPECT_TRUE(found.contains(Feature::kPrint));
  EXPECT_THAT(found.at(Feature::kMissingFunction), HasSubstr("'far'"));
}

TEST(KernelScan, MalformedCodeIsAnError) {
  const Result<Module> module = Parse(".version 8.1\n.target sm_75\n.entry k() { bra L; }\n");
  ASSERT_TRUE(module);
  const CallGraph calls(*module);
  EXPECT_FALSE(KernelScanner(*module, calls).Scan(*module->FindFunction("k")));
}

// --- waits -------------------------------------------------------------------------------------

TEST(BlockWaits, LoopUntilAnotherBlockWritesIsAWait) {
  for (const char* load :
       {"ld.volatile.global.u32 %r0, [%rd0];", "ld.acquire.gpu.u32 %r0, [%rd0];",
        "ld.relaxed.sys.global.u32 %r0, [%rd0];", "ld.global.cv.u32 %r0, [%rd0];",
        "ld.global.cg.u32 %r0, [%rd0];", "atom.global.exch.b32 %r0, [%rd0], 1;",
        "atom.global.cas.b32 %r0, [%rd0], 0, 1;", "atom.global.add.u32 %r0, [%rd0], 0;",
        "atom.or.b32 %r0, [%rd0], 0;"}) {
    EXPECT_TRUE(Waits(std::string("L: ") + load + " setp.ne.u32 %p0, %r0, 0; @%p0 bra L;")) << load;
    EXPECT_FALSE(Waits(std::string(load) + " setp.ne.u32 %p0, %r0, 0; @%p0 bra L; L:")) << load;
  }
}

TEST(BlockWaits, LoopOnTheBlocksOwnMemoryIsNoWait) {
  for (const char* load :
       {"ld.volatile.shared.u32 %r0, [%r9];", "ld.acquire.cta.global.u32 %r0, [%rd0];",
        "ld.global.u32 %r0, [%rd0];", "ld.volatile.local.u32 %r0, [%rd0];",
        "atom.shared.cas.b32 %r0, [%r9], 0, 1;"}) {
    EXPECT_FALSE(Waits(std::string("L: ") + load + " setp.ne.u32 %p0, %r0, 0; @%p0 bra L;"))
        << load;
  }
}

TEST(BlockWaits, LoopThatEndsForOtherReasonsIsNoWait) {
  EXPECT_FALSE(
      Waits("L: ld.volatile.global.u32 %r0, [%rd0]; add.u32 %r1, %r1, %r0; add.u32 %r2, %r2, 1;"
            "setp.lt.u32 %p0, %r2, 9; @%p0 bra L; st.global.u32 [%rd0], %r1;"));
}

TEST(BlockWaits, ValueUsedAfterTheLoopIsNoWait) {
  EXPECT_FALSE(
      Waits("L: ld.volatile.global.u32 %r0, [%rd0]; setp.eq.u32 %p0, %r5, 0; @%p0 bra L;"
            "mov.u32 %r5, %r0;"));
}

TEST(BlockWaits, TakingWorkFromACounterIsNoWait) {
  EXPECT_FALSE(
      Waits("L: atom.global.add.u32 %r0, [%rd0], 1; setp.lt.u32 %p0, %r0, 99; @%p0 bra L;"));
  EXPECT_FALSE(
      Waits("L: atom.global.add.u32 %r0, [%rd0], %r7; setp.lt.u32 %p0, %r0, 99; @%p0 bra L;"));
}

TEST(BlockWaits, AddingARegisterThatIsAlwaysZeroIsAWait) {
  EXPECT_TRUE(
      Waits("mov.u32 %r7, 0; L: atom.global.add.u32 %r0, [%rd0], %r7; setp.lt.u32 %p0, %r0, 9;"
            "@%p0 bra L;"));
}

TEST(BlockWaits, AddingARegisterThatIsSometimesZeroIsNoWait) {
  const std::string loop =
      "L: atom.global.add.u32 %r0, [%rd0], %r7; setp.lt.u32 %p0, %r0, 9; @%p0 bra L;";
  EXPECT_FALSE(Waits("mov.u32 %r7, 0; mov.u32 %r7, 1;" + loop));
  EXPECT_FALSE(Waits("mov.u32 %r7, 1; mov.u32 %r7, 0;" + loop));
  EXPECT_FALSE(Waits("mov.u32 %r7, 0; mov.b64 {%r6, %r7}, %rd1;" + loop));
}

// If every addition searched the register's writes, this would take a minute.
TEST(BlockWaits, ManyAdditionsSearchTheRegisterOnce) {
  std::string additions = "mov.u32 %r7, 0;\n";
  for (int i = 0; i < 20'000; ++i) additions += "atom.global.add.u32 %r0, [%rd0], %r7;\n";
  EXPECT_FALSE(Waits(additions));
}

TEST(BlockWaits, RetriedCompareAndSwapIsNoWait) {
  EXPECT_FALSE(
      Waits("ld.global.u32 %r1, [%rd0]; L: mov.u32 %r2, %r1; add.u32 %r3, %r2, 5;"
            "atom.global.cas.b32 %r1, [%rd0], %r2, %r3; setp.ne.u32 %p0, %r1, %r2; @%p0 bra L;"));
}

TEST(BlockWaits, TheValueIsFollowedThroughVotesSelectionsAndMemory) {
  EXPECT_TRUE(
      Waits("L: ld.volatile.global.u32 %r0, [%rd0]; setp.eq.u32 %p0, %r0, 0;"
            "vote.sync.any.pred %p1, %p0, -1; @!%p1 bra D; bra L; D:"));
  EXPECT_TRUE(
      Waits("L: ld.volatile.global.u32 %r0, [%rd0]; setp.eq.u32 %p0, %r0, 0;"
            "selp.b32 %r1, 1, 2, %p0; st.shared.u32 [%r9], %r1; bar.sync 0;"
            "ld.shared.u32 %r2, [%r9]; setp.eq.u32 %p1, %r2, 1; @%p1 bra L;"));
  // The condition of the loop depends on a value that a branch sets.
  EXPECT_TRUE(
      Waits("L: ld.volatile.global.u32 %r0, [%rd0]; setp.eq.u32 %p0, %r0, 0; mov.u32 %r1, 1;"
            "@%p0 bra E; mov.u32 %r1, 0; E: setp.ne.u32 %p1, %r1, 0; @%p1 bra L;"));
}

TEST(BlockWaits, LoopLeftByReturnOrIndexedBranchIsAWait) {
  EXPECT_TRUE(
      Waits("L: ld.volatile.global.u32 %r0, [%rd0]; setp.ne.u32 %p0, %r0, 0; @%p0 ret; bra L;"));
  EXPECT_TRUE(
      Waits("T: .branchtargets L, D;\nL: ld.volatile.global.u32 %r0, [%rd0]; brx.idx %r0, T; D:"));
}

TEST(BlockWaits, InnerLoopWithTheSameHeadIsAWait) {
  EXPECT_TRUE(
      Waits("L: ld.volatile.global.u32 %r0, [%rd0]; setp.eq.u32 %p0, %r0, 0; @%p0 bra L;"
            "add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 9; @%p1 bra L;"));
}

TEST(BlockWaits, FollowsFunctionThatReturnsWhatOthersWrite) {
  const std::string function =
      ".func (.reg .b32 %v) f(.reg .b64 %a) {\nld.volatile.global.u32 %v, [%a];\nret;\n}\n"
      ".func (.reg .b32 %v) g(.reg .b64 %a) {\ncall (%v), f, (%a);\nret;\n}\n";
  const auto waiting = [&](const std::string& body) {
    return ScanText(function + ".entry k() {\n.reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p;\n" +
                    body + "\nret;\n}\n")
        .contains(Feature::kWaitsForBlocks);
  };
  EXPECT_TRUE(waiting("L: call (%r0), g, (%rd0); setp.eq.u32 %p, %r0, 0; @%p bra L;"));
  EXPECT_FALSE(waiting("call (%r0), g, (%rd0); setp.eq.u32 %p, %r0, 0; @%p bra L; L:"));
}

TEST(BlockWaits, WaitInsideAFunctionCountsForItsKernels) {
  EXPECT_TRUE(ScanText(".func f(.reg .b64 %a) {\n.reg .b32 %r; .reg .pred %p;\n"
                       "L: ld.volatile.global.u32 %r, [%a]; setp.eq.u32 %p, %r, 0; @%p bra L;\n"
                       "ret;\n}\n.entry k() {\n.reg .b64 %rd;\ncall f, (%rd);\nret;\n}\n")
                  .contains(Feature::kWaitsForBlocks));
}

TEST(BlockWaits, MessageNamesLoopAndAwaitedMemory) {
  const auto said = [](const std::string& body) {
    return ScanText(
               ".global .u32 flag;\n.func (.reg .b32 %v) f(.reg .b64 %a) {\n"
               "ld.volatile.global.u32 %v, [%a];\nret;\n}\n"
               ".entry k(.param .u64 a, .param .u32 n) {\n"
               ".reg .b32 %r<40>; .reg .b64 %rd<40>; .reg .pred %p<10>;\n" +
               body + "\nret;\n}\n")
        .at(Feature::kWaitsForBlocks);
  };
  const std::string again = "setp.eq.u32 %p0, %r0, 0;\n@%p0 bra L;";
  // The body begins in line 11.
  EXPECT_EQ(
      said("ld.param.u64 %rd0, [a];\nld.param.u32 %r4, [n];\nmul.wide.u32 %rd2, %r4, 4;\n"
           "cvta.to.global.u64 %rd1, %rd0;\nadd.s64 %rd3, %rd2, %rd1;\nL:\n"
           "ld.volatile.global.u32 %r0, [%rd3];\n" +
           again),
      "line 17: waiting for other blocks (the loop of lines 17 to 19 waits for what parameter "
      "'a' points to)");
  EXPECT_EQ(said("L: ld.volatile.global.u32 %r0, [flag+4]; setp.eq.u32 %p0, %r0, 0; @%p0 bra L;"),
            "line 11: waiting for other blocks (the loop of line 11 waits for variable 'flag')");
  EXPECT_EQ(said("mov.u64 %rd1, flag;\nL:\natom.global.exch.b32 %r0, [%rd1], 1;\n" + again),
            "line 13: waiting for other blocks (the loop of lines 13 to 15 waits for variable "
            "'flag')");
  EXPECT_EQ(said("L:\ncall (%r0), f, (%rd0);\n" + again),
            "line 12: waiting for other blocks (the loop of lines 12 to 14 waits for what 'f' "
            "returns)");
  EXPECT_EQ(said("L:\nld.acquire.gpu.u32 %r0, [%rd0];\n" + again),
            "line 12: waiting for other blocks (the loop of lines 12 to 14 waits for memory at "
            "'%rd0')");
  // The inner one of two loops is named.
  EXPECT_EQ(said("M:\nadd.u32 %r1, %r1, 1;\nL:\nld.volatile.global.u32 %r0, [flag];\n" + again +
                 "\nsetp.lt.u32 %p1, %r1, 9;\n@%p1 bra M;"),
            "line 14: waiting for other blocks (the loop of lines 14 to 16 waits for variable "
            "'flag')");
}

// With names and paths of any length, the message must remain short and be produced quickly.
TEST(BlockWaits, MessageHasBoundedLength) {
  const std::string name(1'000'000, 'x');
  const auto found =
      ScanText(".global .u32 " + name + ";\n.entry k() {\n.reg .b32 %r0; .reg .pred %p0;\nL: " +
               "ld.volatile.global.u32 %r0, [" + name +
               "]; setp.eq.u32 %p0, %r0, 0; @%p0 bra L;\nret;\n}\n");
  EXPECT_LT(found.at(Feature::kWaitsForBlocks).size(), 300u);
  std::string chain = "ld.param.u64 %rd0, [a];\n";
  for (int i = 0; i < 2000; ++i) {
    chain += "add.u64 %q" + std::to_string(i + 1) + ", %q" + std::to_string(i) + ", 1;\n";
  }
  const std::string body =
      chain + "L: ld.volatile.global.u32 %r0, [%q2000]; setp.eq.u32 %p0, %r0, 0; @%p0 bra L;";
  EXPECT_THAT(ScanText(".entry k(.param .u64 a) {\n.reg .b32 %r0; .reg .b64 %rd0, %q<2001>; "
                       ".reg .pred %p0;\n" +
                       body + "\nret;\n}\n")
                  .at(Feature::kWaitsForBlocks),
              HasSubstr("'%q2000'"));
}

// Returns the lines of the waits, and adds the search's steps to `*steps`.
std::vector<std::uint32_t> WaitLines(const std::string& body, WaitSteps* steps) {
  const Result<Module> module = Parse(
      ".version 8.1\n.target sm_75\n.entry k() {\n"
      ".reg .b32 %r<9>; .reg .b64 %rd<99>; .reg .pred %p<9>;\n" +
      body + "\nret;\n}\n");
  EXPECT_TRUE(module) << module.status().message();
  const Result<ControlFlow> flow = AnalyseControlFlow(*module->FindFunction("k"));
  EXPECT_TRUE(flow) << flow.status().message();
  std::vector<std::uint32_t> lines;
  for (const BlockWait& wait : FindBlockWaits(
           *flow, [](const Instruction&) { return false; }, *steps)) {
    lines.push_back(wait.line);
  }
  return lines;
}

// The value of each load is followed through the whole block. Without a limit on the steps, the
// cost would be quadratic in the length of the text.
TEST(BlockWaits, EachInstructionThatABranchRepeatsIsAStep) {
  constexpr std::size_t kLoads = 1000;
  std::string body = "L:\n";
  for (std::size_t i = 0; i < kLoads; ++i) body += "ld.volatile.global.u32 %r1, [%rd1];\n";
  WaitSteps steps;
  EXPECT_EQ(WaitLines(body + "setp.ne.u32 %p1, %r1, 0; @%p1 bra L;", &steps).size(), kLoads);
  EXPECT_GE(steps.followed, kLoads * kLoads);
}

TEST(BlockWaits, StepsAddUpOverTheModule) {
  const std::string body =
      "L: ld.volatile.global.u32 %r0, [%rd0]; setp.lt.u32 %p0, %r2, 9; @%p0 bra L;";
  WaitSteps steps;
  EXPECT_THAT(WaitLines(body, &steps), IsEmpty());
  const std::size_t once = steps.followed;
  EXPECT_GT(once, 0u);
  EXPECT_THAT(WaitLines(body, &steps), IsEmpty());
  EXPECT_EQ(steps.followed, 2 * once);
  // Loops beyond the bound count as waits.
  steps.followed = kBlockWaitStepsMax + 1;
  EXPECT_THAT(WaitLines(body, &steps), ElementsAre(5));
  EXPECT_EQ(steps.followed, kBlockWaitStepsMax + 1);
}

// --- decoupled look-back -----------------------------------------------------------------------

// Every block stores at a + 8 * %ctaid.x + 256, and waits for the word at %rd9 + 256. The code
// `address` computes %rd9.
std::string StoresAndWaits(const std::string& address) {
  return "ld.param.u64 %rd0, [a]; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %tid.x;"
         "mul.wide.u32 %rd1, %r1, 8; add.s64 %rd2, %rd0, %rd1;"
         "st.release.gpu.global.u32 [%rd2+256], %r2;" +
         address +
         "L: ld.acquire.gpu.global.u32 %r9, [%rd9+256]; setp.eq.u32 %p0, %r9, 0; @%p0 bra L;";
}

TEST(LookBack, RecognisesWaitForThePreviousBlock) {
  EXPECT_TRUE(LooksBack(StoresAndWaits(
      "add.s32 %r3, %r1, -1; mul.wide.s32 %rd8, %r3, 8; add.s64 %rd9, %rd0, %rd8;")));
  EXPECT_TRUE(LooksBack(StoresAndWaits("add.s64 %rd9, %rd2, -8;")));
}

TEST(LookBack, EachThreadMayPollADifferentBlock) {
  EXPECT_TRUE(
      LooksBack(StoresAndWaits("not.b32 %r3, %r2; add.s32 %r4, %r1, %r3;"
                               "mul.wide.s32 %rd8, %r4, 8; add.s64 %rd9, %rd0, %rd8;")));
  EXPECT_TRUE(
      LooksBack(StoresAndWaits("sub.s32 %r4, %r1, %r2; sub.s32 %r5, %r4, 1; cvt.s64.s32 %rd7, %r5;"
                               "shl.b64 %rd8, %rd7, 3; add.s64 %rd9, %rd8, %rd0;")));
}

TEST(LookBack, AddressMayDecreaseEachRound) {
  EXPECT_TRUE(LooksBack(
      StoresAndWaits("not.b32 %r3, %r2; add.s32 %r4, %r1, %r3; B: mul.wide.s32 %rd8, %r4, 8;"
                     "add.s64 %rd9, %rd0, %rd8;") +
      "add.s32 %r4, %r4, -32; setp.gt.s32 %p1, %r9, 7; @%p1 bra B;"));
}

TEST(LookBack, PollingItselfOrLaterBlocksIsNoLookBack) {
  for (const char* address :
       {"add.s32 %r3, %r1, %r2; add.s32 %r4, %r3, -1; mul.wide.s32 %rd8, %r4, 8;"
        "add.s64 %rd9, %rd0, %rd8;",
        "ld.param.u32 %r3, [n]; sub.s32 %r4, %r1, %r3; add.s32 %r5, %r4, -1;"
        "mul.wide.s32 %rd8, %r5, 8; add.s64 %rd9, %rd0, %rd8;",
        "mov.u64 %rd9, %rd2;", "add.s64 %rd9, %rd2, 8;", "add.s64 %rd9, %rd2, -4;",
        "mov.u64 %rd9, %rd0;",
        "add.s32 %r3, %r1, %r2; mul.wide.s32 %rd8, %r3, 8;"
        "add.s64 %rd9, %rd0, %rd8;",
        "ld.param.u32 %r3, [n]; sub.s32 %r4, %r1, %r3; mul.wide.s32 %rd8, %r4, 8;"
        "add.s64 %rd9, %rd0, %rd8;"}) {
    EXPECT_FALSE(LooksBack(StoresAndWaits(address))) << address;
    EXPECT_TRUE(Waits(StoresAndWaits(address))) << address;
  }
  EXPECT_FALSE(LooksBack(StoresAndWaits("add.s32 %r4, %r1, -9; B: mul.wide.s32 %rd8, %r4, 8;"
                                        "add.s64 %rd9, %rd0, %rd8;") +
                         "add.s32 %r4, %r4, 1; setp.gt.s32 %p1, %r9, 7; @%p1 bra B;"));
  // A stride of another size indicates another array.
  EXPECT_FALSE(LooksBack(StoresAndWaits(
      "add.s32 %r3, %r1, -1; mul.wide.s32 %rd8, %r3, 4; add.s64 %rd9, %rd0, %rd8;")));
}

TEST(LookBack, WordNotStoredPerBlockIsNoLookBack) {
  EXPECT_TRUE(
      Waits("ld.param.u64 %rd0, [a]; mov.u32 %r1, %ctaid.x; mul.wide.u32 %rd1, %r1, 8;"
            "add.s64 %rd2, %rd0, %rd1;"
            "L: ld.acquire.gpu.u32 %r9, [%rd2+-8]; setp.eq.u32 %p0, %r9, 0; @%p0 bra L;"));
}

TEST(LookBack, ExchangeIsNoLookBack) {
  EXPECT_TRUE(Waits(StoresAndWaits("add.s64 %rd9, %rd2, -8;") +
                    "M: atom.global.exch.b32 %r9, [%rd9], 0; setp.eq.u32 %p0, %r9, 0;"
                    "@%p0 bra M;"));
}

// A sum of 2^16 terms in 16 lines.
TEST(LookBack, StepsAddUpOverTheModule) {
  std::string body = "ld.param.u64 %rd0, [a];\n";
  for (int i = 1; i <= 16; ++i) {
    const std::string before = ", %rd" + std::to_string(i - 1);
    body += "add.s64 %rd" + std::to_string(i) + before + before + ";\n";
  }
  body += "st.global.u32 [%rd16], %r1;";
  body += "L: ld.volatile.global.u32 %r0, [%rd0]; setp.eq.u32 %p0, %r0, 0; @%p0 bra L;";
  WaitSteps steps;
  EXPECT_EQ(WaitLines(body, &steps).size(), 1u);
  EXPECT_GE(steps.look_back, std::size_t{1} << 16);
  EXPECT_LT(steps.look_back, kLookBackStepsMax / 4);
  steps.look_back = kLookBackStepsMax - 1;
  EXPECT_EQ(WaitLines(body, &steps).size(), 1u);
  EXPECT_GT(steps.look_back, kLookBackStepsMax);
  EXPECT_LT(steps.look_back, kLookBackStepsMax + 64);
}

TEST(LookBack, EachComparedTermIsAStep) {
  constexpr std::size_t kTerms = 60, kLoads = 500;
  std::string body = "mov.u32 %r1, %ctaid.x; mul.wide.u32 %rd0, %r1, 8;\n";
  for (std::size_t i = 0; i < kTerms; ++i) {
    body += "add.s64 %rd" + std::to_string(i + 1) + ", %rd" + std::to_string(i) + ", a" +
            std::to_string(i) + ";\n";
  }
  body += "st.global.u32 [%rd" + std::to_string(kTerms) + "], %r1;\nL:\n";
  for (std::size_t i = 0; i < kLoads; ++i) body += "ld.volatile.global.u32 %r0, [%rd0];\n";
  WaitSteps steps;
  EXPECT_EQ(WaitLines(body + "setp.ne.u32 %p0, %r0, 0; @%p0 bra L;", &steps).size(), kLoads);
  EXPECT_GE(steps.look_back, kLoads * kTerms);
}

// The two texts differ only in the length of their names.
TEST(LookBack, LongNamesAreManySteps) {
  const auto steps_with = [](const std::string& name) {
    WaitSteps steps;
    const std::string body = "ld.param.u64 %rd0, [" + name + "]; st.global.u32 [%rd0], %r1;" +
                             "L: ld.volatile.global.u32 %r0, [%rd0]; setp.ne.u32 %p0, %r0, 0;" +
                             "@%p0 bra L;";
    EXPECT_EQ(WaitLines(body, &steps).size(), 1u);
    return steps.look_back;
  };
  EXPECT_GE(steps_with(std::string(6400, 'a')), 100 + steps_with("a"));
}

// The function's waits take many steps. If each kernel searched for them again, the module's steps
// would not suffice.
TEST(KernelScan, FunctionIsScannedOnceForAllKernels) {
  constexpr std::size_t kKernels = 1000, kLoads = 300;
  std::string text =
      ".version 8.1\n.target sm_75\n.address_size 64\n.func f() {\n"
      ".reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p<9>;\nL:\n";
  for (std::size_t i = 0; i < kLoads; ++i) text += "ld.volatile.global.u32 %r0, [%rd0];\n";
  text += "setp.eq.u32 %p0, %r0, 0; @%p0 bra M;\n";
  for (std::size_t i = 0; i < kLoads; ++i) text += "add.u32 %r1, %r1, 1;\n";
  text += "M: add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, 9; @%p1 bra L;\nret;\n}\n";
  for (std::size_t i = 0; i < kKernels; ++i) {
    text += ".entry k" + std::to_string(i) + "() { call f; ret; }\n";
  }
  const Result<Module> module = Parse(text);
  ASSERT_TRUE(module) << module.status().message();
  const CallGraph calls(*module);
  KernelScanner scanner(*module, calls);
  for (std::size_t i = 0; i < kKernels; ++i) {
    const auto findings = scanner.Scan(*module->FindFunction("k" + std::to_string(i)));
    ASSERT_TRUE(findings) << findings.status().message();
    EXPECT_THAT(*findings, IsEmpty()) << i << ": " << Describe(findings->front());
  }
}

// Each kernel is scanned together with the functions that it calls, so without a limit a function
// would be scanned once for each kernel of the text.
TEST(KernelScan, TotalScannedStatementsAreLimited) {
  constexpr std::size_t kKernels = 1024, kStatements = kScannedStatementsMax / kKernels;
  Result<Module> module = Parse(
      ".version 8.1\n.target sm_75\n.address_size 64\n.func f() { ret; }\n"
      ".entry k() { call f, (); ret; }\n");
  ASSERT_TRUE(module) << module.status().message();
  for (Item& item : module->items) {
    auto* function = std::get_if<Function>(&item);
    if (function != nullptr && !function->is_entry) {
      function->body->insert(function->body->begin(), kStatements, Directive{{}, ".pragma \"\";"});
    }
  }
  const CallGraph calls(*module);
  KernelScanner scanner(*module, calls);
  const Function& kernel = *module->FindFunction("k");
  for (std::size_t i = 0; i + 1 < kKernels; ++i) ASSERT_TRUE(scanner.Scan(kernel)) << i;
  const auto rejected = scanner.Scan(kernel);
  ASSERT_FALSE(rejected);
  EXPECT_EQ(rejected.status().code(), StatusCode::kLimitExceeded);
  EXPECT_THAT(std::string(rejected.status().message()), HasSubstr("line 5"));
  EXPECT_FALSE(scanner.Scan(kernel));
}

}  // namespace
}  // namespace gpushared::ptx
