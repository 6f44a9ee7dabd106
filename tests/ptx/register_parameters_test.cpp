// SPDX-License-Identifier: Apache-2.0
#include "common/ptx/text/register_parameters.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/ptx/parsed.h"

namespace gpushared::ptx {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(RegisterParameters, BecomeParametersOfTheFunction) {
  const std::string text = PrintedTwice(
      ".func (.reg .u32 r) f(.reg .u32 n, .param .b64 p)\n{\n.reg .pred q;\n"
      "setp.eq.u32 q, n, 0;\nmov.u32 r, 1;\n@q ret;\nadd.u32 r, n, 1;\n}\n");
  EXPECT_THAT(text, HasSubstr("(\n\t.param .u32 %gpushared_result0\n) f(\n"
                              "\t.param .u32 %gpushared_parameter0,\n\t.param .b64 p\n)"));
  EXPECT_THAT(text, HasSubstr("{\n\t.reg .u32 r;\n\t.reg .u32 n;\n"
                              "\tld.param.u32 n, [%gpushared_parameter0];\n"));
  EXPECT_THAT(text, HasSubstr("\t@q st.param.u32 [%gpushared_result0], r;\n\t@q ret;\n"));
  EXPECT_THAT(text, HasSubstr("\tadd.u32 r, n, 1;\n\tst.param.u32 [%gpushared_result0], r;\n}"));
}

TEST(RegisterParameters, PassThroughParametersOfTheCall) {
  const std::string text = PrintedTwice(
      ".func (.reg .u32 r, .reg .f32 s) f(.reg .u32 n, .param .u64 p);\n"
      ".entry k()\n{\n.reg .b32 %r<4>; .reg .f32 %f; .reg .pred %p;\n"
      "@%p call (%r1, _), f, (%r2, 1+2);\nret;\n}\n");
  EXPECT_THAT(text, HasSubstr("\t{\n"
                              "\t.param .u32 %gpushared_argument0;\n"
                              "\t@%p st.param.u32 [%gpushared_argument0], %r2;\n"
                              "\t.param .u64 %gpushared_argument1;\n"
                              "\t@%p st.param.u64 [%gpushared_argument1], 3;\n"
                              "\t.param .u32 %gpushared_returned0;\n"
                              "\t.param .f32 %gpushared_returned1;\n"
                              "\t@%p call (%gpushared_returned0, %gpushared_returned1), f, "
                              "(%gpushared_argument0, %gpushared_argument1);\n"
                              "\t@%p ld.param.u32 %r1, [%gpushared_returned0];\n\t}\n"));
}

TEST(RegisterParameters, LeaveCallsWithParametersAlone) {
  const std::string text = PrintedTwice(
      ".func (.param .b32 r) f(.param .b32 n) { ret; }\n"
      ".entry k()\n{\n{\n.param .b32 a; .param .b32 b;\nst.param.b32 [a], 1;\n"
      "call (b), f, (a);\n}\nret;\n}\n");
  EXPECT_THAT(text, Not(HasSubstr("gpushared")));
  EXPECT_THAT(text, HasSubstr("call (b), f, (a);"));
}

TEST(RegisterParameters, AreChangedInPrototypes) {
  const std::string text = PrintedTwice(
      ".entry k()\n{\n.reg .b64 %rd<3>; .reg .b32 %r<3>;\n"
      "P: .callprototype (.reg .u32 _) _ (.reg .u64 _, .param .align 8 .b8 in[16]);\n"
      "{\n.param .align 8 .b8 in[16];\ncall (%r1), %rd1, (%rd2, in), P;\n}\nret;\n}\n");
  EXPECT_THAT(text, HasSubstr(".callprototype (.param .u32 _) _ (.param .u64 _, .param"));
  EXPECT_THAT(text, HasSubstr("call (%gpushared_returned0), %rd1, (%gpushared_argument0, in), P;"));
}

TEST(RegisterParameters, StayIfPtxasRejectsThem) {
  for (const char* function :
       {".func f(.reg .pred p) { ret; }\n", ".func f(.reg .b16 p) { ret; }\n",
        ".func (.reg .b32 p) f() { { .reg .b64 p; ret; } }\n"}) {
    EXPECT_THAT(PrintedTwice(function), HasSubstr("(\n\t.reg")) << function;
  }
}

TEST(RegisterParameters, AddOnlyABoundedNumber) {
  std::string parameters, arguments;
  for (int i = 0; i < 10'000; ++i) {
    parameters += (i == 0 ? ".reg .b32 a" : ", .reg .b32 a") + std::to_string(i);
    arguments += i == 0 ? "1" : ",1";
  }
  std::string calls;
  for (int i = 0; i < 53; ++i) calls += "call f, (" + arguments + ");\n";
  const Result<Module> module = Parse(".version 8.3\n.target sm_80\n.func f(" + parameters +
                                      ");\n.entry k()\n{\n" + calls + "ret;\n}\n");
  EXPECT_EQ(module.status().code(), StatusCode::kLimitExceeded);
  EXPECT_THAT(module.status().message(), HasSubstr("line 4"));
}

}  // namespace
}  // namespace gpushared::ptx
