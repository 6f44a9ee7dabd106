// SPDX-License-Identifier: Apache-2.0
// The parameters through which kernels access memory, and the kernels that use addresses of other
// origin.
#include "server/ptx/analysis/kernel_reach.h"

#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>

#include "common/ptx/text/parser.h"

namespace gpushared::ptx {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Offsets = std::vector<std::uint32_t>;

KernelReach ReachOfModule(const std::string& text) {
  const Result<Module> module = Parse(".version 9.0\n.target sm_90\n.address_size 64\n" + text);
  if (!module) return {.why_unknown = std::string(module.status().message())};
  const CallGraph calls(*module);
  return ReachFinder(*module, calls).Find(*module->FindFunction("kernel"));
}

// `code` is placed in line 11. %p and %q are pointers at offsets 0 and 8; %gp and %gq are the same,
// converted to global addresses. %n is a number of 64 bits at 16, and %i one of 32 bits at 24.
// `all` is a struct at 32. %x and the 32-bit %k were loaded from memory.
KernelReach ReachOfCode(const std::string& code, const std::string& before = {}) {
  return ReachOfModule(
      ".global .align 8 .u64 variable[4]; .const .align 8 .u64 table[4];"
      ".extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);"
      ".extern .func __assertfail (.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d,"
      ".param .b64 e); .extern .func (.param .b64 r) malloc (.param .b64 a);" +
      before +
      "\n.visible .entry kernel(.param .u64 p, .param .u64 q, .param .u64 n, .param .u32 i,\n"
      ".param .align 8 .b8 all[32]) {\n"
      ".shared .align 16 .b8 area[128]; .local .align 16 .b8 own[32];\n"
      ".reg .pred %t; .reg .b32 %i, %k, %r<9>; .reg .b64 %p, %q, %gp, %gq, %n, %x, %d<20>;\n"
      "ld.param.u64 %p, [p]; ld.param.u64 %q, [q]; ld.param.u64 %n, [n]; ld.param.u32 %i, [i];\n"
      "cvta.to.global.u64 %gp, %p; cvta.to.global.u64 %gq, %q; ld.shared.u64 %x, [area];"
      "ld.shared.u32 %k, [area]; setp.eq.u32 %t, %i, 3;\n" +
      code + "\nret;\n}\n");
}

void ExpectKnown(const std::string& code, const Offsets& offsets, bool reaches_variables = false,
                 const std::string& before = {}) {
  const KernelReach reach = ReachOfCode(code, before);
  EXPECT_EQ(reach.why_unknown, "") << code;
  EXPECT_EQ(reach.offsets, offsets) << code;
  EXPECT_EQ(reach.reaches_variables, reaches_variables) << code;
}
void ExpectUnknown(const std::string& code, const std::string& why,
                   const std::string& before = {}) {
  const KernelReach reach = ReachOfCode(code, before);
  EXPECT_THAT(reach.why_unknown, HasSubstr(why)) << code;
  EXPECT_THAT(reach.offsets, ElementsAre()) << code;
}

constexpr const char* kFromMemory = "at an address that is loaded from memory in line ";
constexpr const char* kNoPointer = "at an address that comes from no pointer among the parameters";

TEST(KernelReach, EveryFormOfAccess) {
  for (const char* access :
       {"ld.global.u32 %r1, [%p];", "ld.u32 %r1, [%p+16];",
        "ld.global.nc.v4.u32 {%r1,%r2,%r3,%r4}, [%p];", "ldu.global.u32 %r1, [%p];",
        "ld.volatile.u64 %d1, [%p];", "st.global.u32 [%p], %r1;", "st.v2.u64 [%p], {%d1, %d2};",
        "atom.global.add.u32 %r1, [%p], 1;", "atom.cas.b64 %d1, [%p], %n, %n;",
        "red.global.add.u32 [%p+4], 1;", "prefetch.global.L2 [%p];", "prefetchu.L1 [%p];",
        "discard.global.L2 [%p], 128;", "cp.async.ca.shared.global [area], [%p], 16;",
        "st.release.gpu.global.u32 [%p], %r1;", "@%t ld.global.u32 %r1, [%p];"}) {
    ExpectKnown(access, {0});
    std::string elsewhere = access;
    elsewhere.replace(elsewhere.find("%p"), 2, "%x");
    ExpectUnknown(elsewhere, kFromMemory);
  }
  ExpectKnown("ld.global.u32 %r1, [%gp]; st.global.u32 [%gq], %r1;", {0, 8});
  ExpectKnown("ret;", {});
  ExpectKnown("ld.shared.u32 %r1, [area]; st.local.u32 [own], %r1; ld.shared.u32 %r2, [%r1];", {});
}

TEST(KernelReach, AddressesAreComputedFromPointers) {
  const auto reached = [](const std::string& code, const Offsets& offsets) {
    ExpectKnown(code + "ld.global.u32 %r1, [%d1];", offsets);
  };
  reached("mad.wide.u32 %d1, %i, 4, %gp;", {0});
  reached("mul.wide.s32 %d2, %k, 4; add.s64 %d1, %d2, %gp;", {0});
  reached("cvt.s64.s32 %d2, %i; shl.b64 %d2, %d2, 3; sub.s64 %d1, %gp, %d2;", {0});
  reached("mad.lo.s64 %d1, %n, %x, %gp;", {0});
  reached("mov.b64 %d1, %p;", {0});
  reached("cvta.to.global.u64 %d2, %p; cvta.global.u64 %d1, %d2;", {0});
  reached("selp.b64 %d1, %p, %q, %t;", {0, 8});
  reached("selp.b64 %d2, %p, %q, %t; cvta.to.global.u64 %d1, %d2;", {0, 8});
  reached("max.u64 %d1, %p, %q;", {0, 8});
  reached("mov.u64 %d1, %p; @%t mov.u64 %d1, %q;", {0, 8});
  reached("mov.u64 %d1, 0; @%t mov.u64 %d1, %p;", {0});
  reached("add.u64 %d2, %p, 15; and.b64 %d1, %d2, -16;", {0});
  reached("and.b64 %d2, %p, 15; sub.u64 %d1, %p, %d2;", {0});
  reached("or.b64 %d1, %gp, 4;", {0});
  reached("shr.u64 %d2, %p, 4; shl.b64 %d1, %d2, 4;", {0});
  reached("add.u64 %d1, %gp, %n;", {0});
  // It is unknown which of the two is the pointer.
  reached("add.u64 %d1, %p, %n;", {0, 16});
  // An index from memory is added to a value that `cvta` identifies as a pointer.
  reached("add.u64 %d1, %gp, %x;", {0});
  reached("shl.b64 %d2, %x, 2; add.u64 %d1, %gp, %d2;", {0});
  reached("xor.b64 %d2, %n, %x; add.u64 %d1, %gp, %d2;", {0});
  // Loops.
  reached("mov.u64 %d1, %gp; again: add.u64 %d1, %d1, 4; ld.global.u32 %r2, [%d1]; @%t bra again;",
          {0});
  reached(
      "mov.u64 %d1, %gp; mov.u64 %d2, %gq; again: st.global.u32 [%d1], %i; mov.u64 %d3, %d1;"
      "mov.u64 %d1, %d2; mov.u64 %d2, %d3; @%t bra again;",
      {0, 8});
}

TEST(KernelReach, WordsOfStructs) {
  ExpectKnown("ld.param.u64 %d1, [all+8]; ld.global.u32 %r1, [%d1];", {40});
  ExpectKnown("ld.param.v2.u64 {%d1, %d2}, [all+16]; st.global.u32 [%d2], %i;", {56});
  // An index into an array of pointers may select any of them.
  ExpectKnown(
      "mov.b64 %d1, all; mul.wide.u32 %d2, %i, 8; add.s64 %d1, %d1, %d2;"
      "ld.param.u64 %d3, [%d1]; ld.global.u32 %r1, [%d3];",
      {32, 40, 48, 56});
  ExpectKnown("cvta.param.u64 %d1, all; ld.u64 %d3, [%d1+8]; ld.global.u32 %r1, [%d3];",
              {32, 40, 48, 56});
  ExpectUnknown("ld.param.u64 %d1, [all+4]; ld.global.u32 %r1, [%d1];",
                "computed in an unsupported way");
  ExpectUnknown("ld.param.u64 %d1, [all+32]; ld.global.u32 %r1, [%d1];",
                "computed in an unsupported way");
}

TEST(KernelReach, AddressOfOtherOriginIsUnknown) {
  const auto unknown = [](const std::string& code, const std::string& why) {
    ExpectUnknown(code + "ld.global.u32 %r1, [%d1];", why);
  };
  unknown("ld.global.u64 %d1, [%p];", std::string(kFromMemory) + "11");
  unknown("ld.global.u64 %d2, [%p]; mad.wide.u32 %d1, %i, 4, %d2;", kFromMemory);
  unknown("ld.global.nc.v2.u64 {%d2, %d1}, [%p];", kFromMemory);
  unknown("ld.u64 %d2, [%p]; cvta.to.global.u64 %d1, %d2;", kFromMemory);
  unknown("ld.shared.u64 %d1, [area];", kFromMemory);
  unknown("st.local.u64 [own], %p; ld.local.u64 %d1, [own];", kFromMemory);
  unknown("mov.u64 %d2, own; cvta.local.u64 %d2, %d2; st.u64 [%d2], %p; ld.u64 %d1, [%d2];",
          kFromMemory);
  unknown("atom.global.exch.b64 %d1, [%p], %n;", kFromMemory);
  unknown("ld.const.u64 %d1, [table];", kFromMemory);
  unknown("ld.global.u64 %d1, [variable];", kFromMemory);
  unknown("mov.u64 %d1, %p; @%t ld.global.u64 %d1, [%q];", kFromMemory);
  unknown("selp.b64 %d1, %x, %p, %t;", kFromMemory);
  // Adding a number does not turn an unknown address into a pointer.
  unknown("add.u64 %d1, %x, %n;", kFromMemory);
  unknown("ld.global.u64 %d2, [%p]; mad.lo.s64 %d1, %n, 4, %d2;", kFromMemory);
  unknown("shl.b64 %d2, %x, 16; shr.s64 %d2, %d2, 16; add.u64 %d1, %d2, %n;", kFromMemory);
  unknown("add.u64 %d2, %p, %x; cvta.to.global.u64 %d1, %d2;", kFromMemory);
  unknown("min.u64 %d2, %x, %n; max.u64 %d1, %d2, %n;", kFromMemory);
  // The distance between two pointers can move a third one anywhere.
  unknown("sub.s64 %d2, %q, %p; add.s64 %d1, %x, %d2;", kFromMemory);
  unknown("sub.s64 %d2, %gq, %gp; add.s64 %d1, %d2, %x;", kFromMemory);
  unknown("sub.s64 %d2, %x, %gp; add.s64 %d1, %d2, %gq;", kFromMemory);
  unknown("not.b64 %d2, %gp; add.s64 %d2, %d2, %gq; add.s64 %d1, %d2, %x;", kFromMemory);
  unknown("xor.b64 %d1, %p, %q;", "comes from an exclusive or in line 11");
  unknown("xor.b64 %d2, %p, %q; xor.b64 %d1, %d2, %p;", "comes from an exclusive or");
  unknown("mov.b64 %d1, {%k, %i};", "is combined from parts in line 11");
  unknown("mov.b64 {%r1, %r2}, %p; mov.b64 %d1, {%r1, %r2};", "combined from parts");
  unknown(
      "cvt.u64.u32 %d2, %k; shl.b64 %d2, %d2, 32; cvt.u64.u32 %d3, %i; or.b64 %d2, %d2, %d3;"
      "add.u64 %d1, %d2, %n;",
      "combined from parts");
  unknown("cvt.u64.u32 %d2, %k; mul.lo.u64 %d2, %d2, 4294967296; add.u64 %d1, %d2, %n;",
          "combined from parts");
  unknown("bfi.b64 %d1, %p, %n, 3, 5;", "computed in an unsupported way in line 11");
  // An address that is not derived from a parameter of 8 bytes.
  unknown("cvt.u64.u32 %d1, %i;", kNoPointer);
  unknown("mov.u64 %d1, 4096;", kNoPointer);
  unknown("mov.u64 %d1, %clock64;", kNoPointer);
  unknown("cvt.u64.u32 %d2, %k; mul.lo.u64 %d1, %d2, 8;", kNoPointer);
  ExpectUnknown("ld.global.u32 %r1, [4096];", kNoPointer);
  ExpectUnknown("ld.global.u32 %r1, [%r2];", kNoPointer);
  // Registers that are never written are 0.
  unknown("add.u64 %d2, %d9, %x; @%t mov.u64 %d1, %p; @!%t mov.u64 %d1, %d2;", kFromMemory);
  ExpectUnknown("ld.global.u32 %r1, [%d9];", kNoPointer);
}

TEST(KernelReach, DifferencesReachBothPointers) {
  ExpectKnown("sub.s64 %d2, %q, %p; add.s64 %d1, %p, %d2; ld.global.u32 %r1, [%d1];", {0, 8});
  ExpectKnown("sub.s64 %d2, %gq, %gp; add.s64 %d1, %gp, %d2; ld.global.u32 %r1, [%d1];", {0, 8});
  ExpectKnown(
      "sub.s64 %d2, %q, %p; cvt.u32.u64 %r2, %d2; shr.u32 %r2, %r2, 2;"
      "mad.wide.u32 %d1, %r2, 4, %gp; ld.global.u32 %r1, [%d1];",
      {0, 8});
  ExpectKnown(
      "mul.lo.s64 %d2, %p, -1; add.s64 %d2, %d2, %q; shr.s64 %d2, %d2, 2; shl.b64 %d2, %d2, 2;"
      "add.s64 %d1, %gp, %d2; ld.global.u32 %r1, [%d1];",
      {0, 8});
}

TEST(KernelReach, VariablesOfTheModule) {
  ExpectKnown("ld.global.u32 %r1, [variable+4];", {}, true);
  ExpectKnown("mov.u64 %d1, variable; mad.wide.u32 %d1, %i, 4, %d1; st.global.u32 [%d1], %i;", {},
              true);
  ExpectKnown("ld.const.u32 %r1, [table];", {}, true);
  ExpectKnown("mov.u64 %d1, variable; selp.b64 %d1, %d1, %p, %t; ld.u32 %r1, [%d1];", {0}, true);
  ExpectKnown(
      "mov.u64 %d1, variable; sub.u64 %d2, %d1, %p; add.u64 %d3, %p, %d2;"
      "ld.global.u32 %r1, [%d3];",
      {0}, true);
  // Memory of the thread and the block is not part of the access set.
  ExpectKnown("cvta.shared.u64 %d1, area; selp.b64 %d1, %d1, %p, %t; ld.u32 %r1, [%d1];", {0});
  ExpectKnown("cvta.local.u64 %d1, own; st.u32 [%d1], %i;", {});
}

TEST(KernelReach, FunctionsAreFollowed) {
  const std::string load =
      ".func (.param .b32 r) load (.param .b64 a, .param .b32 at) {"
      ".reg .b64 %d<3>; .reg .b32 %r<3>; ld.param.u64 %d1, [a]; ld.param.u32 %r1, [at];"
      "mad.wide.u32 %d1, %r1, 4, %d1; ld.u32 %r2, [%d1]; st.param.b32 [r+0], %r2; ret; }";
  const std::string call_load =
      "{ .param .b64 a0; .param .b32 a1; .param .b32 r0; st.param.b64 [a0+0], $; st.param.b32 "
      "[a1+0],"
      "%i; call.uni (r0), load, (a0, a1); ld.param.b32 %r1, [r0+0]; }";
  const auto with = [&](const std::string& what) {
    std::string text = call_load;
    return text.replace(text.find('$'), 1, what);
  };
  ExpectKnown(with("%p"), {0}, false, load);
  ExpectKnown(with("%p") + with("%q"), {0, 8}, false, load);
  ExpectUnknown(with("%p") + with("%x"), "ld.u32 at an address that is loaded from memory in line",
                load);
  ExpectUnknown(with("%x"), ", in function 'load'", load);
  // A value that a function returns.
  const std::string moved =
      ".func (.param .align 8 .b8 r[16]) moved (.param .align 8 .b8 a[16]) {"
      ".reg .b64 %d<3>; .reg .b32 %r<3>; ld.param.u64 %d1, [a]; ld.param.u32 %r1, [a+8];"
      "add.u64 %d1, %d1, 4; st.param.b64 [r+0], %d1; st.param.b32 [r+8], %r1; ret; }";
  const std::string call_moved =
      "{ .param .align 8 .b8 a0[16]; .param .align 8 .b8 r0[16]; st.param.b64 [a0+0], %gp;"
      "st.param.b32 [a0+8], %i; call.uni (r0), moved, (a0); ld.param.b64 %d1, [r0+0];"
      "ld.param.b64 %d2, [r0+8]; }";
  ExpectKnown(call_moved + "ld.global.u32 %r1, [%d1];", {0}, false, moved);
  ExpectUnknown(call_moved + "ld.global.u32 %r1, [%d2];", "combined from parts", moved);
  // Halves of a pointer.
  const std::string call_halves =
      "{ .param .align 8 .b8 a0[16]; .param .align 8 .b8 r0[16]; st.param.b32 [a0+0], %k;"
      "st.param.b32 [a0+4], %i; call.uni (r0), moved, (a0); ld.param.b64 %d1, [r0+0]; }";
  ExpectUnknown(call_halves + "ld.global.u32 %r1, [%d1];", "combined from parts", moved);
  // A value that is never passed.
  const std::string call_without =
      "{ .param .align 8 .b8 a0[16]; .param .align 8 .b8 r0[16]; call.uni (r0), moved, (a0);"
      "ld.param.b64 %d1, [r0+0]; }";
  ExpectUnknown(call_without + "@%t mov.u64 %d1, %p; ld.global.u32 %r1, [%d1];", "", moved);
  // A value that is overwritten through its address.
  const std::string changed =
      ".func (.param .b64 r) changed (.param .b64 a, .param .b64 x) { .reg .b64 %d<4>;"
      "mov.u64 %d1, a; cvta.local.u64 %d1, %d1; ld.param.u64 %d2, [x]; st.u64 [%d1], %d2;"
      "ld.param.u64 %d3, [a]; st.param.b64 [r+0], %d3; ret; }";
  ExpectUnknown(
      "{ .param .b64 a0; .param .b64 a1; .param .b64 r0; st.param.b64 [a0+0], %p;"
      "st.param.b64 [a1+0], %x; call.uni (r0), changed, (a0, a1); ld.param.b64 %d1, [r0+0]; }"
      "ld.global.u32 %r1, [%d1];",
      kFromMemory, changed);
  // Recursion.
  const std::string deep =
      ".func deep (.param .b64 a) { .reg .b64 %d<3>; .reg .b32 %r<3>; .reg .pred %p<2>;"
      "ld.param.u64 %d1, [a]; ld.u32 %r1, [%d1]; setp.eq.u32 %p1, %r1, 0; @%p1 ret;"
      "add.u64 %d1, %d1, 4; { .param .b64 b0; st.param.b64 [b0+0], %d1; call.uni deep, (b0); } "
      "ret; }";
  ExpectKnown("{ .param .b64 a0; st.param.b64 [a0+0], %p; call.uni deep, (a0); }", {0}, false,
              deep);
}

TEST(KernelReach, UntraceableAddressIsUnknown) {
  ExpectUnknown("tex.1d.v4.f32.s32 {%r1, %r2, %r3, %r4}, [%p, {%i}];",
                "line 11: it is not known what memory 'tex.1d.v4.f32.s32' touches");
  ExpectUnknown(
      "{ .param .b64 a0; .param .b64 a1; .param .b32 r0; st.param.b64 [a0+0], %p;"
      "st.param.b64 [a1+0], %p; call.uni (r0), vprintf, (a0, a1); }",
      "it calls 'vprintf', and it is not known what memory that touches");
  ExpectUnknown(
      "{ .param .b64 a0; .param .b64 r0; st.param.b64 [a0+0], %n;"
      "call.uni (r0), malloc, (a0); ld.param.b64 %d1, [r0+0]; }",
      "it uses the device heap");
  const std::string prototype =
      "{ .param .b64 a0; st.param.b64 [a0+0], %n; pr: .callprototype _ (.param .b64 _);"
      "call %d1, (a0), pr; }";
  ExpectUnknown(prototype, "it calls '%d1', and it is not known what memory that touches");
}

TEST(KernelReach, AssertionsReadTextsOfTheModule) {
  const auto fails = [](const std::string& text) {
    return "{ .param .b64 a0; .param .b64 a1; .param .b32 a2; .param .b64 a3; .param .b64 a4;"
           "st.param.b64 [a0+0], " +
           text +
           "; st.param.b64 [a1+0], %d1; st.param.b32 [a2+0], %i; st.param.b64 [a3+0], %d1;"
           "st.param.b64 [a4+0], %n; call.uni __assertfail, (a0, a1, a2, a3, a4); }";
  };
  const std::string variable = "mov.u64 %d1, variable; cvta.global.u64 %d1, %d1;";
  ExpectKnown(variable + fails("%d1"), {}, true);
  ExpectUnknown(variable + fails("%x"), "an assertion at an address that is loaded from memory");
}

TEST(KernelReach, TracesManyWords) {
  const auto with = [](std::uint32_t bytes) {
    return ReachOfModule(".visible .entry kernel(.param .align 8 .b8 all[" + std::to_string(bytes) +
                         "], .param .u32 i) { .reg .b64 %d<9>; .reg .b32 %r<9>; mov.b64 %d1, all;"
                         "ld.param.u32 %r1, [i]; mad.wide.u32 %d1, %r1, 8, %d1;"
                         "ld.param.u64 %d2, [%d1]; ld.global.u32 %r2, [%d2]; ret; }");
  };
  EXPECT_EQ(with(8 * kReachOffsetsMax).offsets.size(), kReachOffsetsMax);
  EXPECT_THAT(with(8 * kReachOffsetsMax + 8).why_unknown, HasSubstr("512"));
  // Each parameter is accessed separately.
  std::string loads;
  for (int i = 0; i < 200; ++i) {
    loads += "ld.param.u64 %d1, [all+" + std::to_string(8 * i) + "]; st.global.u32 [%d1], 1;";
  }
  EXPECT_THAT(ReachOfModule(".visible .entry kernel(.param .align 8 .b8 all[2048]) {"
                            ".reg .b64 %d<9>; " +
                            loads + " ret; }")
                  .why_unknown,
              HasSubstr("128"));
}

TEST(KernelReach, UsesPointerDeclarations) {
  const auto with = [](const std::string& attributes) {
    return ReachOfModule(".visible .entry kernel(.param .u64 " + attributes +
                         " a) { .reg .b64 %d<9>; .reg .b32 %r<9>; .shared .b64 s;"
                         "ld.param.u64 %d1, [a]; ld.shared.u64 %d2, [s]; add.u64 %d1, %d1, %d2;"
                         "ld.global.u32 %r2, [%d1]; ret; }");
  };
  EXPECT_THAT(with(".ptr .global .align 4").offsets, ElementsAre(0));
  EXPECT_THAT(with(".ptr .align 4").offsets, ElementsAre(0));
  EXPECT_NE(with(".ptr .shared .align 4").why_unknown, "");
  EXPECT_NE(with("").why_unknown, "");
}

TEST(KernelReach, WorkIsBounded) {
  // Each register is resolved one round after the register that follows it.
  constexpr int kLength = 9000;
  std::string code = ".reg .b64 %c<" + std::to_string(kLength + 1) + ">; again:";
  for (int i = 0; i < kLength; ++i) {
    code += "add.u64 %c" + std::to_string(i) + ", %c" + std::to_string(i + 1) + ", 4;\n";
  }
  code += "mov.u64 %c" + std::to_string(kLength) + ", %p; @%t bra again; ld.global.u32 %r1, [%c0];";
  EXPECT_THAT(ReachOfCode(code).why_unknown, HasSubstr("too long"));
}

}  // namespace
}  // namespace gpushared::ptx
