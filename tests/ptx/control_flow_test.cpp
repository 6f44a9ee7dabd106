// SPDX-License-Identifier: Apache-2.0
#include "server/ptx/analysis/control_flow.h"

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/ptx/analysis/dominators.h"
#include "tests/ptx/parsed.h"

namespace gpushared::ptx {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using End = BasicBlock::End;

std::vector<std::uint32_t> PostDominators(const ControlFlow& flow) {
  std::vector<std::uint32_t> result;
  for (const BasicBlock& block : flow.blocks) result.push_back(block.immediate_post_dominator);
  return result;
}

TEST(ControlFlow, EmptyBodyHasNoBlocks) {
  EXPECT_THAT(GetFlow("").blocks, IsEmpty());
  EXPECT_THAT(GetFlow("L: { }").blocks, IsEmpty());
}

TEST(ControlFlow, BothPathsOfABranchMeetAfterIt) {
  const ControlFlow flow =
      GetFlow("@%p1 bra ELSE; mov.b32 %r1, 1; bra.uni DONE; ELSE: mov.b32 %r1, 2; DONE: ret;");
  ASSERT_EQ(flow.blocks.size(), 4u);
  EXPECT_EQ(flow.blocks[0].end, End::kConditionalBranch);
  EXPECT_THAT(flow.blocks[0].successors, ElementsAre(2, 1));
  EXPECT_EQ(flow.blocks[1].end, End::kBranch);
  EXPECT_EQ(flow.blocks[2].end, End::kFallThrough);
  EXPECT_EQ(flow.blocks[3].end, End::kLeave);
  EXPECT_THAT(flow.blocks[3].successors, IsEmpty());
  EXPECT_THAT(PostDominators(flow), ElementsAre(3, 3, 3, kNoBlock));
  EXPECT_THAT(flow.block_of, ElementsAre(0, 1, 1, 2, 3));
}

TEST(ControlFlow, BranchToTheNextInstructionKeepsBothSuccessors) {
  const ControlFlow flow = GetFlow("@%p1 bra L; L: ret;");
  EXPECT_THAT(flow.blocks[0].successors, ElementsAre(1, 1));
  EXPECT_EQ(flow.blocks[0].immediate_post_dominator, 1u);
}

TEST(ControlFlow, ThreadsThatExitMeetTheOthersOnlyAtTheEnd) {
  const ControlFlow flow = GetFlow("@%p1 ret; add.s32 %r1, %r1, 1; @!%p2 exit; ret;");
  ASSERT_EQ(flow.blocks.size(), 3u);
  EXPECT_EQ(flow.blocks[0].end, End::kConditionalLeave);
  EXPECT_THAT(flow.blocks[0].successors, ElementsAre(1));
  EXPECT_THAT(PostDominators(flow), ElementsAre(kNoBlock, kNoBlock, kNoBlock));
}

TEST(ControlFlow, RunningOffTheEndExits) {
  const ControlFlow flow = GetFlow("@%p1 bra END; add.s32 %r1, %r1, 1; END:");
  ASSERT_EQ(flow.blocks.size(), 2u);
  EXPECT_THAT(flow.blocks[0].successors, ElementsAre(kNoBlock, 1));
  EXPECT_THAT(flow.blocks[1].successors, ElementsAre(kNoBlock));
}

TEST(ControlFlow, EndlessLoopsStillHaveMeetingPoints) {
  const ControlFlow flow = GetFlow(
      "LOOP: @%p1 bra ODD; add.s32 %r1, %r1, 1; bra JOIN; ODD: add.s32 %r1, %r1, 2;\n"
      "JOIN: bra LOOP;");
  ASSERT_EQ(flow.blocks.size(), 4u);
  EXPECT_THAT(PostDominators(flow), ElementsAre(3, 3, 3, kNoBlock));
  EXPECT_THAT(PostDominators(GetFlow("L: bra L;")), ElementsAre(kNoBlock));
  // One path ends, the other never does.
  const ControlFlow mixed = GetFlow("@%p1 bra SPIN; ret; SPIN: bra SPIN;");
  EXPECT_EQ(mixed.blocks[0].immediate_post_dominator, kNoBlock);
}

TEST(ControlFlow, UnreachableCodeIsAnalysed) {
  const ControlFlow flow = GetFlow("ret; add.s32 %r1, %r1, 1; bra L; L: ret;");
  EXPECT_THAT(PostDominators(flow), ElementsAre(kNoBlock, 2, kNoBlock));
}

TEST(ControlFlow, IndexedBranchesKeepTheirTable) {
  const ControlFlow flow = GetFlow(
      "list: .branchtargets A, B, A;\n"
      "brx.idx %r1, list; A: add.s32 %r1, %r1, 1; bra DONE; B: add.s32 %r1, %r1, 2; DONE: ret;");
  ASSERT_EQ(flow.blocks.size(), 4u);
  EXPECT_EQ(flow.blocks[0].end, End::kIndexedBranch);
  EXPECT_THAT(flow.blocks[0].branch_table, ElementsAre(1, 2, 1));
  EXPECT_THAT(flow.blocks[0].successors, ElementsAre(1, 2));
  EXPECT_THAT(PostDominators(flow), ElementsAre(3, 3, 3, kNoBlock));
}

TEST(ControlFlow, GuardedIndexedBranchMayFallThrough) {
  const ControlFlow flow = GetFlow("list: .branchtargets A; @%p1 brx.idx %r1, list; ret; A: ret;");
  EXPECT_THAT(flow.blocks[0].successors, ElementsAre(1, 2));
}

TEST(ControlFlow, NamesOfInnerScopesAreMadeUnique) {
  const ControlFlow flow = GetFlow(
      "mov.b32 %r1, 0;\n"
      "{ .reg .b32 %r<4>, t; mov.b32 %r1, %r7; st.b32 [t+4], t;\n"
      "  { .reg .pred t; @t mov.b32 %r2, 1; } }\n"
      "{ .reg .b32 t; mov.b32 t, %r1; }\n");
  ASSERT_EQ(flow.instructions.size(), 5u);
  EXPECT_EQ(Print(flow.instructions[0]), "mov.b32 %r1, 0");
  EXPECT_EQ(Print(flow.instructions[1]), "mov.b32 %r1@1, %r7");
  EXPECT_EQ(Print(flow.instructions[2]), "st.b32 [t@1+4], t@1");
  EXPECT_EQ(Print(flow.instructions[3]), "@t@2 mov.b32 %r2@1, 1");
  EXPECT_EQ(Print(flow.instructions[4]), "mov.b32 t@3, %r1");
  EXPECT_EQ(flow.registers[flow.FindRegister("t@2")].type, "pred");
  EXPECT_EQ(flow.FindRegister("%r07"), kNoRegister);
  EXPECT_EQ(flow.FindRegister("%tid.x"), kNoRegister);
}

TEST(ControlFlow, LabelsOfInnerScopesDoNotClash) {
  const std::string once = "{ @%p1 bra DONE; add.s32 %r1, %r1, 1; DONE: }\n";
  const ControlFlow flow = GetFlow(once + once + "ret;");
  ASSERT_EQ(flow.blocks.size(), 5u);
  EXPECT_THAT(flow.blocks[0].successors, ElementsAre(2, 1));
  EXPECT_THAT(flow.blocks[2].successors, ElementsAre(4, 3));
  // An outer label is visible from inside; an inner one is not visible from outside.
  EXPECT_TRUE(Analyse("{ bra OUT; } OUT: ret;"));
  EXPECT_FALSE(Analyse("{ IN: } bra IN;"));
}

TEST(ControlFlow, DirectivesBehindLabelsAreKept) {
  const ControlFlow flow = GetFlow(
      "{ .param .b32 r; .param .b64 p;\n"
      "proto: .callprototype (.param .b32 _) _ (.param .b64 _); call (r), %r2, (p), proto; }");
  ASSERT_EQ(flow.directives.size(), 1u);
  EXPECT_EQ(flow.directives[0].name, "proto@1");
  EXPECT_EQ(flow.instructions[0].operands[3].text, "proto@1");
}

TEST(ControlFlow, SelectorsAndSignsDoNotHideTheRegister) {
  const ControlFlow flow = GetFlow(
      ".reg .b32 %a; vmad.s32.s32.s32 %a, -%a.h1, %a.b2, -%a; { .reg .b32 %a; "
      "vadd.s32.s32.s32 %a.b3, %a.b1, %a, %a; }");
  ASSERT_NE(flow.FindRegister("%a"), kNoRegister);
  EXPECT_EQ(flow.FindRegister("-%a.h1"), flow.FindRegister("%a"));
  EXPECT_EQ(flow.instructions[1].operands[0].text, "%a@1.b3");
  EXPECT_EQ(flow.FindRegister("%a@1.b3"), flow.FindRegister("%a@1"));
}

TEST(ControlFlow, RejectsWhatPtxasRejectsWithItsLine) {
  const auto message = [](const std::string& body) { return Analyse(body).status().message(); };
  EXPECT_EQ(message("ret;\nbra NOWHERE;"),
            "ptx: line 7: branch to label 'NOWHERE', which does not exist");
  EXPECT_THAT(message("L: L: ret;"), HasSubstr("'L' is defined twice"));
  EXPECT_THAT(message(".reg .b32 a; .reg .b64 a;"), HasSubstr("'a' is declared twice"));
  EXPECT_THAT(message("brx.idx %r1, list;"), HasSubstr("'list'"));
  EXPECT_THAT(message("list: .branchtargets X; brx.idx %r1, list;"), HasSubstr("'X'"));
  EXPECT_THAT(message("list: .branchtargets ,; brx.idx %r1, list;"), HasSubstr("is empty"));
  EXPECT_THAT(message("bra;"), HasSubstr("bra needs one label"));
  EXPECT_THAT(message("bra {%r1};"), HasSubstr("does not exist"));
  EXPECT_THAT(message("brx.idx %r1;"), HasSubstr("brx.idx needs"));
}

TEST(ControlFlow, ModulesMadeByHandMayHaveUnmatchedScopes) {
  Function function;
  function.body.emplace().emplace_back(ScopeEnd{});
  EXPECT_FALSE(AnalyseControlFlow(function));
  function.body->front() = ScopeBegin{};
  EXPECT_FALSE(AnalyseControlFlow(function));
}

TEST(ControlFlow, RejectsGraphsThatWouldTakeTooLong) {
  // A long chain, and many branches that each meet only at its far end.
  std::string body;
  constexpr int kChain = 30000;
  for (int i = 0; i < kChain; ++i) {
    body += "@%p1 bra NEAR; bra FAR;\n";
  }
  body += "ret; NEAR:\n";
  for (int i = 0; i < kChain; ++i) {
    body += "C" + std::to_string(i) + ": add.s32 %r1, %r1, 1;\n";
  }
  body += "FAR: ret;\n";
  for (int i = 0; i < kChain; ++i) body += "bra C" + std::to_string(i) + ";\n";
  const Result<ControlFlow> flow = Analyse(body);
  ASSERT_FALSE(flow);
  EXPECT_EQ(flow.status().code(), StatusCode::kLimitExceeded);
  EXPECT_THAT(flow.status().message(), HasSubstr("entangled"));
}

TEST(ControlFlow, RejectsTooManyUsesOfALongBranchList) {
  std::string body = "list: .branchtargets ";
  for (int i = 0; i < 20000; ++i) body += "L,";
  body += "L;\nL:\n";
  for (int i = 0; i < 100; ++i) body += "brx.idx %r1, list;\n";
  EXPECT_THAT(Analyse(body).status().message(), HasSubstr("1048576"));
}

TEST(DirectiveTargets, AreTheNamesAfterTheDirective) {
  EXPECT_THAT(DirectiveTargets(".branchtargets a, b,c ;"), ElementsAre("a", "b", "c"));
  EXPECT_THAT(DirectiveTargets(".branchtargets;"), IsEmpty());
  EXPECT_THAT(DirectiveTargets(""), IsEmpty());
}

// The definition: p post-dominates b if every path from b to the end contains p.
std::vector<std::uint32_t> PostDominatorsByDefinition(const std::vector<BasicBlock>& blocks) {
  const auto size = static_cast<std::uint32_t>(blocks.size());
  const auto reaches_end_without = [&](std::uint32_t from, std::uint32_t avoided) {
    std::vector<bool> seen(size);
    std::vector<std::uint32_t> open = {from};
    while (!open.empty()) {
      const std::uint32_t b = open.back();
      open.pop_back();
      if (b == kNoBlock) return true;
      if (b == avoided || seen[b]) continue;
      seen[b] = true;
      open.insert(open.end(), blocks[b].successors.begin(), blocks[b].successors.end());
      if (blocks[b].end == BasicBlock::End::kLeave) return true;
    }
    return false;
  };
  std::vector<std::uint32_t> nearest(size, kNoBlock);
  for (std::uint32_t b = 0; b < size; ++b) {
    if (!reaches_end_without(b, kNoBlock)) return {};
    for (std::uint32_t p = 0; p < size; ++p) {
      if (p == b || reaches_end_without(b, p)) continue;
      // The nearest post-dominator is post-dominated by all others.
      if (nearest[b] == kNoBlock || !reaches_end_without(p, nearest[b])) nearest[b] = p;
    }
  }
  return nearest;
}

// Some of the graphs are irreducible, for which one pass over the blocks is not enough.
TEST(PostDominators, AgreeWithTheDefinitionOnRandomGraphs) {
  std::mt19937 random(11);
  int compared = 0;
  for (int round = 0; round < 5'000; ++round) {
    std::vector<BasicBlock> blocks(2 + random() % 8);
    const auto any = [&] { return static_cast<std::uint32_t>(random() % blocks.size()); };
    for (BasicBlock& block : blocks) {
      if (random() % 6 == 0) {
        block.end = BasicBlock::End::kLeave;
      } else {
        block.end = BasicBlock::End::kConditionalBranch;
        block.successors = {any(), any()};
      }
    }
    const std::vector<std::uint32_t> expected = PostDominatorsByDefinition(blocks);
    if (expected.empty()) continue;  // Some block cannot reach the end; another test covers this.
    ASSERT_TRUE(FindPostDominators(blocks));
    for (std::uint32_t b = 0; b < blocks.size(); ++b) {
      ASSERT_EQ(blocks[b].immediate_post_dominator, expected[b]) << "round " << round;
    }
    ++compared;
  }
  EXPECT_GT(compared, 1000);
}

}  // namespace
}  // namespace gpushared::ptx
