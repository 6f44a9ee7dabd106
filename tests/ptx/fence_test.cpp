// SPDX-License-Identifier: Apache-2.0
// The text that the fence generates, and the text that it does not change. Its protection is tested
// in tests/passes.
#include "server/ptx/passes/fence.h"

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/ptx/analysis/dominators.h"
#include "server/ptx/analysis/value_flow.h"
#include "tests/ptx/parsed.h"

namespace gpushared::ptx {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// Not the smallest range, so that the mask is a separate instruction.
constexpr std::uint64_t kRangeBytes = std::uint64_t{16} << 30;

Fenced FenceText(const std::string& text) {
  Result<Fenced> fenced = Fence(Parsed(text), kRangeBytes);
  EXPECT_TRUE(fenced) << fenced.status().message();
  return fenced ? *std::move(fenced) : Fenced();
}

// Returns the text of a module of one kernel with this body, after the pass.
std::string FenceBody(const std::string& body, const std::string& module = "") {
  const Fenced fenced =
      FenceText(module + ".entry k() {\n.reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p<9>;\n" +
                body + "\nret;\n}");
  EXPECT_EQ(fenced.kernels.at(0).reason, "");
  return Print(fenced.module);
}

std::size_t Count(const std::string& text, const std::string& what) {
  std::size_t count = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) {
    ++count;
  }
  return count;
}

// Counts the masked addresses, each of which takes one "lop3".
std::size_t Masks(const std::string& body) { return Count(FenceBody(body), "lop3.b32"); }

TEST(Fence, OneMaskServesAllAccessesToAnUnchangedBase) {
  EXPECT_EQ(Masks("ld.global.u32 %r1, [%rd1]; st.global.u32 [%rd1+4], %r1;"), 1u);
  EXPECT_EQ(Masks("mov.u64 %rd1, 0; ld.global.u32 %r1, [%rd1]; @%p1 bra L; st.global.u32 "
                  "[%rd1+4], %r1;\nL: st.global.u32 [%rd1+8], %r1;"),
            1u);
  EXPECT_EQ(Masks("mov.u64 %rd1, 0; @%p1 bra L; st.global.u32 [%rd1+4], %r1;\n"
                  "L: st.global.u32 [%rd1+8], %r1;"),
            2u);
  EXPECT_EQ(Masks("ld.global.u32 %r1, [%rd1]; add.s64 %rd1, %rd1, 4; ld.global.u32 %r1, [%rd1];"),
            2u);
}

// The cpu device lacks most of them, but a GPU has them.
TEST(Fence, KeepsVideoInstructions) {
  const std::string text = FenceBody(
      "ld.global.u32 %r1, [%rd1];\nvmad.s32.s32.u32.sat.shr7 %r2, -%r1.h1, %r1.b3, %r1;\n"
      "vset4.u32.s32.ge.add %r3.b310, %r2.b7012, %r1, %r2;\nst.global.u32 [%rd1], %r3;");
  EXPECT_THAT(text, HasSubstr("vmad.s32.s32.u32.sat.shr7 %r2, -%r1.h1, %r1.b3, %r1;"));
  EXPECT_THAT(text, HasSubstr("vset4.u32.s32.ge.add %r3.b310, %r2.b7012, %r1, %r2;"));
}

// Compilers generate this for a[i], a[i + 512], a[i + 1024].
TEST(Fence, OneMaskServesSumsOfItsRegister) {
  const std::string text =
      "ld.global.u32 %r1, [%rd1]; add.s64 %rd2, %rd1, 2048; ld.global.u32 %r2, [%rd2];\n"
      "add.s64 %rd3, %rd2, 2048; st.global.u32 [%rd3+4], %r1;";
  EXPECT_EQ(Masks(text), 1u);
  EXPECT_THAT(FenceBody(text), HasSubstr("+2048]"));
  EXPECT_THAT(FenceBody(text), HasSubstr("+4100]"));
  // The register has, or may have, changed between the two uses.
  EXPECT_EQ(Masks("add.s64 %rd2, %rd1, 8; mov.u64 %rd1, 0; ld.global.u32 %r1, [%rd1];\n"
                  "ld.global.u32 %r1, [%rd2];"),
            2u);
  EXPECT_EQ(Masks("add.s64 %rd2, %rd1, 8; @%p1 mov.u64 %rd1, 0; ld.global.u32 %r1, [%rd1];\n"
                  "ld.global.u32 %r1, [%rd2];"),
            2u);
  EXPECT_EQ(Masks("L: ld.global.u32 %r1, [%rd1]; @%p1 add.s64 %rd2, %rd1, 8;\n"
                  "ld.global.u32 %r1, [%rd2];"),
            2u);
  EXPECT_EQ(Masks("add.s64 %rd2, %rd1, 65536; ld.global.u32 %r1, [%rd1]; ld.global.u32 %r1, "
                  "[%rd2];"),
            2u);
  EXPECT_EQ(Masks("add.s64 %rd2, %rd1, 40000; ld.global.u32 %r1, [%rd1]; ld.global.u32 %r1, "
                  "[%rd2+40000];"),
            2u);
  // The name denotes a different register in the second scope.
  EXPECT_EQ(Masks("{ .reg .b64 x; mov.u64 x, %rd1; ld.global.u32 %r1, [x]; add.s64 %rd2, x, 8; }\n"
                  "{ .reg .b64 x; mov.u64 x, 0; ld.global.u32 %r1, [%rd2]; }"),
            2u);
  EXPECT_EQ(Masks("add.s64 %rd2, %rd1, 8; add.s64 %rd1, %rd1, 4; ld.global.u32 %r1, [%rd1];\n"
                  "{ .reg .b64 %t; ld.global.u32 %r1, [%rd2]; add.s64 %t, %rd1, 0; }"),
            2u);
}

TEST(Fence, ZeroesOnlyWhatMayBeReadUnwritten) {
  EXPECT_THAT(FenceBody("mov.b32 %r1, 1; add.u32 %r2, %r1, %r1; setp.eq.u32 %p1, %r2, 7;\n"
                        "@%p1 bra L; mov.b32 %r3, %r2;\nL:"),
              Not(HasSubstr(", 0;")));
  const std::string text = FenceBody(
      "add.u32 %r2, %r1, %r1;\n{ .param .align 8 .b8 a[24]; st.param.b32 [a], %r2;\n"
      "st.param.b16 [a+16], 1; call f, (a); }",
      ".func f(.param .align 8 .b8 p[24]) { ret; }\n");
  EXPECT_THAT(text, HasSubstr("mov.b32 %r1, 0;"));
  EXPECT_EQ(Count(text, "mov.b32 %r"), 1u);
  // Each store is as wide as its alignment permits.
  for (const char* zero :
       {".b32 [a+4], 0;", ".b64 [a+8], 0;", ".b16 [a+18], 0;", ".b32 [a+20], 0;"}) {
    EXPECT_THAT(text, HasSubstr("st.param" + std::string(zero)));
  }
  EXPECT_EQ(Count(text, "st.param"), 6u);
  EXPECT_THAT(FenceBody(".reg .v2 .b32 %v; mov.b32 %v.x, 1; mov.b32 %r1, %v.y;"),
              HasSubstr("mov.b32 %v$gpushared_y, 0;"));
}

// Constants read at a masked address must be in the range, because the address is not valid in the
// constant window.
TEST(Fence, MovesConstantsReadByAddress) {
  const std::string text =
      FenceBody("mov.u64 %rd1, c; ld.const.u32 %r1, [%rd1+4];", ".const .align 4 .b8 c[16];\n");
  EXPECT_THAT(text, Not(HasSubstr("ld.const.u32 %r1")));
  EXPECT_THAT(text, HasSubstr("ld.global.u32 %r1"));
}

TEST(Contain, LocalArraysAreAlignedForEveryAccess) {
  const Result<Fenced> contained =
      Contain(Parsed(".entry k() { .reg .b32 %r; .local .align 4 .b8 l[24];\n"
                     "ld.local.u32 %r, [l]; ret; }"),
              kRangeBytes);
  ASSERT_TRUE(contained) << contained.status().message();
  EXPECT_THAT(Print(contained->module), HasSubstr(".local .align 32 "));
}

TEST(Contain, CodeThatRunsOffTheEndDoesNotEnterTheExit) {
  const Result<Fenced> contained =
      Contain(Parsed(".entry k() { .reg .pred %p; @%p trap; }"), kRangeBytes);
  ASSERT_TRUE(contained) << contained.status().message();
  const std::string text = Print(contained->module);
  EXPECT_LT(text.find("ret;"), text.find("atom.global.cas"));
}

TEST(Fence, KeepsImmediatesUpToTheMargin) {
  EXPECT_THAT(FenceBody("ld.global.u32 %r1, [%rd1+4096];"), HasSubstr("+4096]"));
  EXPECT_THAT(FenceBody("ld.global.u32 %r1, [%rd1+-4096];"), HasSubstr("+-4096]"));
  for (const char* far : {"65536", "-65536", "1000000000"}) {
    const std::string text = FenceBody(std::string("ld.global.u32 %r1, [%rd1+") + far + "];");
    EXPECT_THAT(text, Not(HasSubstr(std::string(far) + "]"))) << far;
    EXPECT_THAT(text, HasSubstr(std::string(", ") + far + ";")) << far;
  }
}

TEST(Fence, AddressesWrittenAsNumbersAreMasked) {
  const std::string text = FenceBody("ld.global.u32 %r1, [4096]; st.u32 [8192+4], %r1;");
  EXPECT_EQ(Count(text, "lop3.b32"), 2u);
  EXPECT_THAT(text, Not(HasSubstr("[4096")));
  EXPECT_THAT(text, Not(HasSubstr("[8192")));
}

TEST(Fence, SharedLocalAndParameterAccessesAreNotMasked) {
  const std::string text =
      FenceBody(".local .b32 l; st.local.b32 [l], 1; mov.u32 %r1, s; st.shared.b32 [%r1], 1;",
                ".shared .align 4 .b8 s[8];\n");
  EXPECT_THAT(text, Not(HasSubstr("ld.const")));
}

TEST(Fence, VariablesLieInTheRangeAndConstantsStay) {
  const Fenced fenced = FenceText(
      ".const .b32 c = 5;\n.global .b8 a = 1;\n.global .align 8 .u64 p = a;\n"
      ".entry k() {\n.reg .b32 %r<9>; .reg .b64 %rd;\nld.const.b32 %r1, [c]; ld.global.b32 %r2, "
      "[p+4]; mov.u64 %rd, p+1;\nret;\n}");
  EXPECT_EQ(fenced.variables.bytes, 16u);
  ASSERT_EQ(fenced.variables.variables.size(), 2u);
  EXPECT_EQ(fenced.variables.variables[1].offset, 8u);
  const std::vector<std::byte> image = fenced.variables.InitialBytes(0x1000);
  std::uint64_t pointer = 0;
  std::memcpy(&pointer, image.data() + 8, 8);
  EXPECT_EQ(pointer, 0x1000u);
  const std::string text = Print(fenced.module);
  EXPECT_THAT(text, HasSubstr(".const .b32 c = 5"));
  EXPECT_THAT(text, Not(HasSubstr(".global .")));
  EXPECT_THAT(text, HasSubstr("+12]"));
  EXPECT_THAT(text, HasSubstr(", 9;"));
  EXPECT_THAT(text, Not(HasSubstr("lop3.b32")));
}

TEST(Fence, AccessOutsideItsVariableIsMasked) {
  EXPECT_THAT(FenceBody("ld.global.b32 %r1, [g+4];", ".global .b32 g;\n"), HasSubstr("lop3.b32"));
  EXPECT_THAT(FenceBody("ld.global.b32 %r1, [g+-1];", ".global .b32 g;\n"), HasSubstr("lop3.b32"));
}

TEST(Fence, MovesConstantsWithGenericAddresses) {
  const std::string text = FenceBody(
      "cvta.const.u64 %rd1, c; ld.u32 %r1, [%rd1]; ld.const.u32 %r2, [c];", ".const .b32 c = 5;\n");
  EXPECT_THAT(text, Not(HasSubstr("cvta")));
  EXPECT_THAT(text, Not(HasSubstr(".b32 c = 5")));
  EXPECT_THAT(text, HasSubstr("ld.global.u32 %r2"));
  // The address of a moved variable is not known before the module is loaded.
  EXPECT_THAT(
      FenceBody("ld.const.u64 %rd1, [c];", ".global .b32 g;\n.const .u64 c = generic(g);\n"),
      HasSubstr("ld.global.u64 %rd1"));
}

// The selection is generated only for loads of the kernel that has the parameters, and never for
// stores.
TEST(Fence, LoadsThroughGenericParameterAddressesStayInside) {
  const auto selects = [](const std::string& body) {
    const Fenced fenced = FenceText(
        ".entry k(.param .u64 p) {\n.reg .b32 %r<9>; .reg .b64 %rd<9>;\n" + body + "\nret;\n}");
    EXPECT_EQ(fenced.kernels.at(0).reason, "");
    return Count(Print(fenced.module), "isspacep.param");
  };
  const std::string makes = "mov.b64 %rd1, p; cvta.param.u64 %rd1, %rd1; ";
  EXPECT_EQ(selects(makes + "ld.u32 %r1, [%rd1]; st.u32 [%rd1], 1; ld.u32 %r2, [%rd1];"), 1u);
  for (const char* other : {"st.u32 [%rd1], %r1;", "atom.add.u32 %r1, [%rd1], 1;",
                            "red.add.u32 [%rd1], 1;", "ld.global.u32 %r1, [%rd1];"}) {
    EXPECT_EQ(selects(makes + other), 0u) << other;
  }
  EXPECT_EQ(selects("ld.u32 %r1, [%rd1];"), 0u);
}

TEST(Fence, ReasonsOfAllKernelsTogetherAreBounded) {
  const std::string name(std::size_t{4} << 20, 'n');
  std::string text = ".func f() { .reg .b32 %a; ld.global.b32 %a, [" + name + "]; ret; }\n";
  for (int i = 0; i < 40; ++i) text += ".entry k" + std::to_string(i) + "() { call f; ret; }\n";
  std::size_t bytes = 0;
  for (const FencedKernel& kernel : FenceText(text).kernels) {
    EXPECT_NE(kernel.reason, "");
    EXPECT_LE(kernel.reason.size(), std::size_t{8} << 10);
    bytes += kernel.reason.size();
  }
  EXPECT_LE(bytes, kReasonBytesMax + 40 * 100);
}

// Discarding memory could make data reappear that was there before the zeroing.
TEST(Fence, RemovesDiscards) {
  const std::string text = FenceBody(
      "discard.global.L2 [%rd1], 128; @%p1 discard.L2 [%rd1+128], 128; ld.global.u32 %r1, [%rd1];");
  EXPECT_THAT(text, Not(HasSubstr("discard")));
  EXPECT_THAT(text, HasSubstr("prefetch.global.L2 ["));
  EXPECT_THAT(text, HasSubstr("prefetch.L2 ["));
}

TEST(Fence, SharedMemoryIsZeroedByKernelsThatReachIt) {
  const std::string shared = ".shared .align 4 .b8 s[64];\n";
  EXPECT_THAT(FenceBody("ld.shared.u32 %r1, [s];", shared), HasSubstr("st.shared.v4.b32"));
  EXPECT_THAT(FenceBody("cvta.shared.u64 %rd1, s; ld.u32 %r1, [%rd1];", shared),
              HasSubstr("st.shared.v4.b32"));
  EXPECT_THAT(FenceBody("ld.u32 %r1, [%rd1];", shared), Not(HasSubstr("st.shared")));
}

// ptxas ignores the keyword `extern`, and gives the variable memory that others have written.
TEST(Fence, ExternalSharedMemoryOfKnownSizeLosesExtern) {
  const std::string text = FenceBody("ld.shared.u32 %r1, [s];", ".extern .shared .b8 s[64];\n");
  EXPECT_EQ(text, FenceBody("ld.shared.u32 %r1, [s];", ".shared .b8 s[64];\n"));
  EXPECT_THAT(FenceBody("ld.shared.u32 %r1, [s];", ".extern .shared .b8 s[];\n"),
              HasSubstr(".extern .shared .b8 s[]"));
}

TEST(Fence, LocalMemoryIsZeroedWhereItCanBeReadUnwritten) {
  const std::string local = ".local .align 16 .b8 l[32]; mov.u64 %rd1, l;";
  EXPECT_EQ(Count(FenceBody(local + "ld.local.u32 %r1, [%rd1];"), "st.local.v4"), 2u);
  EXPECT_EQ(Count(FenceBody(local + "st.local.u32 [%rd1], 1;"), "st.local.v4"), 0u);
}

TEST(Fence, AssertionsBecomeTraps) {
  const std::string text = FenceBody(
      "call __assertfail, (%rd1, %rd2, %r1, %rd3, %rd4);",
      ".extern .func __assertfail(.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d, "
      ".param .b64 e);\n");
  EXPECT_THAT(text, HasSubstr("trap;"));
  EXPECT_THAT(text, Not(HasSubstr("__assertfail")));
}

TEST(Fence, ServersNamesDifferFromTheClients) {
  const Fenced fenced = FenceText(".entry k() {\nret;\n}\n");
  EXPECT_EQ(fenced.constant, "__gs0_fence");
  EXPECT_FALSE(Fence(fenced.module, kRangeBytes));
  EXPECT_FALSE(Fence(Parsed(".global .b32 __gs0_x;\n"), kRangeBytes));
}

TEST(Fence, ModulesThatCannotBeFencedAtAllAreRejected) {
  const Result<Module> narrow =
      Parse(".version 8.1\n.target sm_75\n.address_size 32\n.entry k() {\nret;\n}\n");
  ASSERT_TRUE(narrow);
  EXPECT_THAT(Fence(*narrow, kRangeBytes).status().message(), HasSubstr("32 bits"));
  EXPECT_FALSE(Fence(Parsed(".global .u32 g = nowhere;\n"), kRangeBytes));
}

TEST(Fence, UnfenceableKernelsDoNotAffectOthers) {
  const Fenced fenced = FenceText(
      ".func f() {\n.reg .b64 %rd;\nst.local.u32 [%rd], 1;\nret;\n}\n"
      ".entry bad() {\ncall f;\nret;\n}\n.entry good() {\nret;\n}\n");
  ASSERT_EQ(fenced.kernels.size(), 2u);
  EXPECT_THAT(fenced.kernels[0].reason, AllOf(HasSubstr("line 6:"), HasSubstr("'f'")));
  EXPECT_EQ(fenced.kernels[1].reason, "");
  EXPECT_EQ(fenced.module.FindFunction("bad"), nullptr);
  EXPECT_EQ(fenced.module.FindFunction("f"), nullptr);
  EXPECT_NE(fenced.module.FindFunction("good"), nullptr);
}

// The pointer is written to one component, and another component is used as an address.
TEST(Fence, DistinguishesComponentsOfVectors) {
  const std::string local = ".local .b32 l; .reg .v2 .b64 %v; mov.u64 %v.x, l; ";
  EXPECT_THAT(FenceBody(local + "ld.local.u32 %r1, [%v.y];"), Not(HasSubstr("[%v$gpushared_y]")));
  EXPECT_EQ(Masks(".reg .v2 .b64 %v; mov.u64 %v.x, 1; ld.global.u32 %r1, [%v.x];\n"
                  "ld.global.u32 %r1, [%v.y];"),
            2u);
}

TEST(Fence, RegistersOf128BitsAreZeroedAndTheirAccessesMasked) {
  const std::string text = FenceBody(
      ".reg .b128 %q; ld.global.b128 %q, [%rd1];\n@%p1 bra L; ret;\nL: st.global.b128 [%rd2], %q;\n"
      "{ .reg .b128 %t; atom.global.exch.b128 %t, [%rd3], %q; }");
  EXPECT_EQ(Count(text, "lop3.b32"), 3u);
  EXPECT_THAT(FenceBody(".reg .b128 %q; st.global.b128 [%rd2], %q;"), HasSubstr("mov.b128 %q, 0;"));
}

TEST(Fence, TheConstantNamesTheHighWordOfTheRange) {
  const FenceConstant constant = MakeFenceConstant(0x700000000, 5);
  EXPECT_EQ(constant.base_high, 7u);
  EXPECT_EQ(constant.variables, 5u);
  EXPECT_EQ(constant.never, 0xffffffffu);
}

TEST(Fence, TheSizeOfTheRangeIsInTheText) {
  const Module module =
      Parsed(".entry k() {\n.reg .b32 %r1; .reg .b64 %rd1;\nld.global.u32 %r1, [%rd1];\nret;\n}\n");
  const auto text = [&](std::uint64_t bytes) { return Print(Fence(module, bytes)->module); };
  EXPECT_THAT(text(kFenceRangeBytesMin), Not(HasSubstr("lop3")));
  EXPECT_THAT(text(2 * kFenceRangeBytesMin), HasSubstr(", 1, "));
  EXPECT_THAT(text(32 * kFenceRangeBytesMin), HasSubstr(", 31, "));
  for (const std::uint64_t bad :
       {std::uint64_t{0}, kFenceRangeBytesMin / 2, 3 * kFenceRangeBytesMin, ~std::uint64_t{0}}) {
    EXPECT_THAT(std::string(Fence(module, bad).status().message()),
                HasSubstr("invalid range size"));
  }
}

// A kernel with many accesses keeps the base in a register, whose value the compiler of the kernel
// cannot know.
TEST(Fence, ManyMasksShareARegister) {
  const auto body = [](int accesses) {
    std::string text;
    for (int i = 0; i < accesses; ++i) text += "mov.u64 %rd1, %rd2; ld.global.u32 %r1, [%rd1];\n";
    return FenceBody(text);
  };
  EXPECT_THAT(body(31), Not(HasSubstr("selp")));
  EXPECT_THAT(body(32), HasSubstr("selp.b32"));
}

TEST(Dominators, OfALoopWithTwoPaths) {
  const Module module = Parsed(
      ".entry k() {\n.reg .pred %p<3>;\nTOP: @%p0 bra LEFT;\nbar.sync 0; bra JOIN;\n"
      "LEFT: bar.sync 1;\nJOIN: @%p1 bra TOP;\nret;\nbar.sync 2;\nret;\n}\n");
  const Result<ControlFlow> flow = AnalyseControlFlow(*module.FindFunction("k"));
  ASSERT_TRUE(flow);
  EXPECT_THAT(FindDominators(flow->blocks), ElementsAre(kNoBlock, 0, 0, 0, 3, kNoBlock));
}

// Tests both orders of the paths in the text: the taken path first, and last.
TEST(Dominators, JoinOfTwoLongPathsIsDominatedByTheirFork) {
  const std::string one =
      "ONE: bar.sync 2; @%p1 bra TWO;\nbar.sync 1;\nTWO: bar.sync 3; bra JOIN;\n";
  const std::string other =
      "OTHER: bar.sync 4; @%p2 bra LAST;\nbar.sync 5;\nLAST: bar.sync 6; bra JOIN;\n";
  for (const std::string& ways : {one + other, other + one}) {
    const Module module = Parsed(".entry k() {\n.reg .pred %p<4>;\n@%p0 bra ONE;\nbra OTHER;\n" +
                                 ways + "JOIN: ret;\n}\n");
    const Result<ControlFlow> flow = AnalyseControlFlow(*module.FindFunction("k"));
    ASSERT_TRUE(flow);
    const std::vector<std::uint32_t> found = FindDominators(flow->blocks);
    ASSERT_EQ(found.size(), 9u);
    EXPECT_EQ(found.back(), 0u);
  }
}

// The writes of an instruction are sorted instead of searched one by one, because an instruction
// may have millions of writes.
TEST(ValueFlow, WrittenRegistersAreUniqueAndAscending) {
  const Module module = Parsed(
      ".entry k() {\n.reg .b32 %r<4>; .reg .b64 %d;\n"
      "mov.b32 %r1, 0;\nmov.b64 {%r3, %r1, %r3}, %d;\nret;\n}\n");
  Result<ControlFlow> flow = AnalyseControlFlow(*module.FindFunction("k"));
  ASSERT_TRUE(flow);
  const std::uint32_t first = flow->FindRegister("%r1"), other = flow->FindRegister("%r3");
  ASSERT_LT(first, other);
  const ValueFlow fence(*std::move(flow));
  EXPECT_THAT(fence.written.at(1), ElementsAre(first, other));
  EXPECT_EQ(fence.writes.at(other), 1u);
}

}  // namespace
}  // namespace gpushared::ptx
