// SPDX-License-Identifier: Apache-2.0
// Text in which a name could be read in two ways, and compilers' text, in which none can.
#include "server/ptx/analysis/plain_names.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/ptx/passes/fence.h"
#include "tests/ptx/parsed.h"

namespace gpushared::ptx {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::string WhyNot(const std::string& body, const std::string& module_text = "") {
  const Module module =
      Parsed(module_text + ".entry k(.param .b64 p)\n{\n.reg .b64 %rd<9>; .reg .b32 %r<9>;\n" +
             ".reg .pred %q;\n" + body + "\nret;\n}\n");
  const PlainNames names(module);
  if (!names.reason().empty()) return names.reason();
  const Function* kernel = module.FindFunction("k");
  return kernel == nullptr ? "no kernel" : names.WhyNot(*kernel);
}

TEST(PlainNames, RejectsDeclarationThatHidesAnother) {
  constexpr const char* kHides = "hides";
  EXPECT_THAT(WhyNot("{ .shared .b64 %rd1; }"), HasSubstr("'%rd1' " + std::string(kHides)));
  EXPECT_THAT(WhyNot("{ .reg .b64 %rd<3>; }"), HasSubstr(kHides));
  EXPECT_THAT(WhyNot(".reg .b64 x3; { .reg .b32 x<4>; }"), HasSubstr(kHides));
  EXPECT_THAT(WhyNot(".reg .b64 x3; .reg .b32 x<4>;"), HasSubstr(kHides));
  EXPECT_THAT(WhyNot(".reg .b32 x<4>; .reg .b64 x3;"), HasSubstr(kHides));
  EXPECT_THAT(WhyNot(".param .b64 x; { .reg .b32 x; }"), HasSubstr(kHides));
  EXPECT_THAT(WhyNot(".reg .b64 p;"), HasSubstr(kHides));
  EXPECT_THAT(WhyNot(".reg .b64 g;", ".global .b32 g;\n"), HasSubstr(kHides));
  EXPECT_THAT(WhyNot(".reg .b64 s<4>;", ".shared .b32 s3;\n"), HasSubstr(kHides));
  EXPECT_THAT(WhyNot(".reg .b64 f; call f;", ".func f() { ret; }\n"), HasSubstr(kHides));
  EXPECT_THAT(WhyNot(".reg .b64 f;", ".func f();\n"), HasSubstr(kHides));
  EXPECT_THAT(WhyNot(".reg .b64 k;"), HasSubstr(kHides));
  EXPECT_THAT(WhyNot("bra x; { .reg .b64 x; } x:"), HasSubstr(kHides));
  EXPECT_THAT(WhyNot("x2: { .reg .b64 x<3>; }"), HasSubstr(kHides));
  // A name is not hidden by a declaration whose scope has ended or has not begun.
  EXPECT_EQ(WhyNot("{ .reg .b64 x; } { .reg .b32 x; .reg .b64 y<4>; } .reg .pred x, y3;"), "");
  EXPECT_EQ(WhyNot(".reg .b64 x4; { .reg .b32 x<4>; }"), "");
  EXPECT_EQ(WhyNot(".reg .b64 s<3>;", ".shared .b32 s3;\n"), "");
}

// nvcc generates such scopes for inline assembly.
TEST(PlainNames, RegisterHidesAnotherOnlyAtTheBeginningOfItsScope) {
  EXPECT_EQ(WhyNot("{ .reg .b64 %rd1; mov.u64 %rd1, 1; } mov.u64 %rd1, 2;"), "");
  EXPECT_EQ(WhyNot(".reg .b64 x; { .reg .b32 y; { .reg .pred y, x; @x mov.u64 %rd1, 1; } }"), "");
  constexpr const char* kHides = "hides";
  EXPECT_THAT(WhyNot("{ mov.u64 %rd1, 1; .reg .b64 %rd1; }"), HasSubstr(kHides));
  EXPECT_THAT(WhyNot("{ { mov.u64 %rd1, 1; } .reg .b64 %rd1; }"), HasSubstr(kHides));
  EXPECT_THAT(WhyNot("{ .reg .b64 x; { mov.u64 %rd2, x; } { mov.u64 x, 1; .reg .b64 x; } }"),
              HasSubstr(kHides));
}

TEST(PlainNames, RejectsDeclarationOfSpecialNames) {
  constexpr const char* kHides = "hides";
  for (const char* name : {"%tid", "%dynamic_smem_size", "WARP_SZ", "_", "%envreg7", "%pm3",
                           "%pm3_64", "%clock64", "%reserved_smem_offset_1"}) {
    EXPECT_THAT(WhyNot(std::string(".reg .b32 ") + name + ";"), HasSubstr(kHides)) << name;
  }
  EXPECT_THAT(WhyNot(".reg .b32 %envreg<2>;"), HasSubstr(kHides));
  EXPECT_THAT(WhyNot(".reg .b32 %clock<65>;"), HasSubstr(kHides));
  EXPECT_THAT(WhyNot("", ".global .b32 WARP_SZ;\n"), HasSubstr("'WARP_SZ' is declared twice"));
  EXPECT_THAT(WhyNot(".reg .b32 x1<4>;"), HasSubstr("are ambiguous"));
}

TEST(PlainNames, LabelsAreUnique) {
  EXPECT_THAT(WhyNot("x: { bra x; x: }"), HasSubstr("'x' is a label"));
  EXPECT_THAT(WhyNot("{ { x: bra x; } } x:"), HasSubstr("a label"));
  EXPECT_THAT(WhyNot("g:", ".global .b32 g;\n"), HasSubstr("a label"));
  EXPECT_EQ(WhyNot("bra y; { x: bra x; } { bra x; x: } y:"), "");
}

TEST(PlainNames, RejectsUseBeforeDeclaration) {
  EXPECT_THAT(WhyNot("mov.u64 %rd1, x; .reg .b64 x;"), HasSubstr("not declared here"));
  EXPECT_THAT(WhyNot("{ mov.u64 %rd1, x; .reg .b64 x; }"), HasSubstr("not declared here"));
  EXPECT_THAT(WhyNot("{ .reg .b64 x; } mov.u64 %rd1, x;"), HasSubstr("not declared here"));
  EXPECT_THAT(WhyNot("{ .reg .b64 x<2>; } mov.u64 %rd1, x1;"), HasSubstr("not declared here"));
  EXPECT_THAT(WhyNot("mov.u64 %rd1, %rd9;"), HasSubstr("'%rd9' is not declared here"));
  EXPECT_THAT(WhyNot("mov.u64 %rd1, %rd01;"), HasSubstr("not declared here"));
  EXPECT_THAT(WhyNot("st.global.v2.b64 [%rd1], {%rd2, x};"), HasSubstr("not declared here"));
  EXPECT_THAT(WhyNot("ld.global.u64 %rd1, [x+8];"), HasSubstr("not declared here"));
  EXPECT_THAT(WhyNot("@x bra y; y:"), HasSubstr("'x' is no register"));
  EXPECT_EQ(WhyNot("mov.u32 %r1, %tid.x; mov.u32 %r2, %envreg3; mov.u64 %rd1, %pm7_64;\n"
                   "mov.u32 %r3, WARP_SZ; ld.param.u64 %rd2, [p]; ld.global.u32 %r4, [4096];\n"
                   ".reg .v2 .b32 %v; mov.u32 %v.x, %v.y; @!%q mov.u64 %rd1, k;"),
            "");
}

TEST(PlainNames, OnlyRegistersAreWritten) {
  constexpr const char* kVariables = ".global .b64 g; .shared .b64 s;\n";
  for (const char* body :
       {"mov.u64 g, %rd2;", "ld.global.u64 g, [%rd2];", "mov.b64 {g, %r1}, %rd2;",
        "atom.global.add.u64 g, [%rd2], 1;", "cvta.global.u64 s, %rd2;", "mov.u64 %tid, %rd2;",
        "setp.eq.u32 %q|g, %r1, 2;", "mov.u64 %rd1+8, %rd2;", "mov.u64 k, %rd2;", "call (g), f;"}) {
    EXPECT_THAT(WhyNot(body, std::string(kVariables) + ".func (.reg .b64 a) f() { ret; }\n"),
                HasSubstr("is no register"))
        << body;
  }
  EXPECT_EQ(WhyNot("{ .param .b64 a; call (a), f; } setp.eq.u32 %q|_, %r1, 2; st.global.u64 "
                   "[%rd1], g; call (%rd1), f; red.global.add.u64 [g], 1; .reg .b32 %v;\n"
                   "vadd.u32.u32.u32 %v.b1, %r1, %r2, %r3;",
                   std::string(kVariables) + ".func (.param .b64 a) f() { ret; }\n"),
            "");
}

TEST(PlainNames, CallsNameAFunctionAndEndAfterTheArguments) {
  constexpr const char* kFunction = ".func f(.param .b64 a) { ret; }\n";
  constexpr const char* kNoFunction = "does not consist of a function's name and its arguments";
  EXPECT_THAT(
      WhyNot("{ .param .b64 a; call f, (a), P; P: .callprototype _ (.param .b64 a); }", kFunction),
      HasSubstr(kNoFunction));
  EXPECT_THAT(WhyNot("call f, P; P: .callprototype _ ();", kFunction), HasSubstr(kNoFunction));
  EXPECT_THAT(WhyNot("call %rd1;", kFunction), HasSubstr(kNoFunction));
  EXPECT_THAT(WhyNot("call f+16;", kFunction), HasSubstr(kNoFunction));
  EXPECT_EQ(WhyNot("{ .param .b64 a; call.uni f, (a); }", kFunction), "");
}

TEST(PlainNames, ModuleNamesAreDeclaredOnceExceptFunctionPrototypes) {
  EXPECT_THAT(WhyNot("", ".func g(); .global .b32 g;\n"), HasSubstr("'g' is declared twice"));
  EXPECT_THAT(WhyNot("", ".global .b32 g; .func g();\n"), HasSubstr("'g' is declared twice"));
  EXPECT_THAT(WhyNot("", ".func g() { ret; } .func g() { ret; }\n"),
              HasSubstr("'g' is declared twice"));
  EXPECT_EQ(WhyNot("", ".func g(); .func g() { ret; } .func g();\n"), "");
}

// --- Text that is not analysed -------------------------------------------------------------

std::string FencedText(const std::string& text) {
  const Result<Fenced> fenced = Fence(Parsed(text), kFenceRangeBytesMin);
  if (!fenced) return std::string(fenced.status().message());
  for (const FencedKernel& kernel : fenced->kernels) {
    if (!kernel.reason.empty()) return kernel.reason;
  }
  return Print(fenced->module);
}

TEST(FenceDirectives, RemovesHintsForCompilers) {
  const std::string text = FencedText(
      ".pragma \"enable_smem_spilling\";\n.pragma \"nounroll\";\n"
      ".func f() .noreturn { .pragma \"frequency 9\"; ret; }\n"
      ".entry k() .maxntid 64, 1, 1 .pragma \"enable_smem_spilling\"; {\n"
      ".pragma \"used_bytes_mask 0xff\"; .pragma \"used_bytes_mask 1;\"; call f; ret; }\n");
  for (const char* gone : {"smem_spilling", "noreturn", "frequency", "mask 1;"}) {
    EXPECT_THAT(text, Not(HasSubstr(gone)));
  }
  for (const char* kept : {"nounroll", ".maxntid 64", "mask 0xff"}) {
    EXPECT_THAT(text, HasSubstr(kept));
  }
}

TEST(FenceDirectives, RejectsUnknownDirectivesAndStrings) {
  EXPECT_THAT(FencedText(".entry k() .frobnicate 3 { ret; }\n"),
              HasSubstr("'.frobnicate' is not known"));
  EXPECT_THAT(FencedText(".func f();\n.other f, k;\n.entry k() { ret; }\n"),
              HasSubstr("'.other' cannot be fenced"));
  EXPECT_THAT(FencedText(".const .b8 c[4] = \"a\\\"b\";\n.entry k() { ret; }\n"),
              HasSubstr("string in 'c'"));
}

}  // namespace
}  // namespace gpushared::ptx
