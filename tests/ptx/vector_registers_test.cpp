// SPDX-License-Identifier: Apache-2.0
#include "common/ptx/text/vector_registers.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/ptx/parsed.h"

namespace gpushared::ptx {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string SplitBody(const std::string& body) {
  return PrintedTwice(".entry k()\n{\n" + body + "ret;\n}");
}

TEST(VectorRegisters, BecomeARegisterForEachComponent) {
  const std::string text = SplitBody(
      ".reg .v4 .f32 %v; .reg .v2 .u32 w; .reg .b64 %rd;\n"
      "mov.f32 %v.y, 0f00000000; add.u32 w.x, w.r, w.g; ld.global.v4.f32 %v, [%rd];\n"
      "mov.b64 %rd, w; st.global.f32 [%rd+4], %v.a;\n");
  EXPECT_THAT(text, HasSubstr("\t.reg .f32 %v$gpushared_x;\n\t.reg .f32 %v$gpushared_y;\n"
                              "\t.reg .f32 %v$gpushared_z;\n\t.reg .f32 %v$gpushared_w;\n"
                              "\t.reg .u32 w$gpushared_x;\n\t.reg .u32 w$gpushared_y;\n"));
  EXPECT_THAT(text, HasSubstr("mov.f32 %v$gpushared_y, 0f00000000;"));
  EXPECT_THAT(text, HasSubstr("add.u32 w$gpushared_x, w$gpushared_x, w$gpushared_y;"));
  EXPECT_THAT(text, HasSubstr("ld.global.v4.f32 {%v$gpushared_x, %v$gpushared_y, "
                              "%v$gpushared_z, %v$gpushared_w}, [%rd];"));
  EXPECT_THAT(text, HasSubstr("mov.b64 %rd, {w$gpushared_x, w$gpushared_y};"));
  EXPECT_THAT(text, HasSubstr("st.global.f32 [%rd+4], %v$gpushared_w;"));
}

TEST(VectorRegisters, AreMembersOfFamilies) {
  const std::string text = SplitBody(
      ".reg .v2 .b32 %v<12>; .reg .b32 %v13;\nmov.b32 %v11.y, %v13; mov.b32 %v13, %v2.x;\n");
  EXPECT_THAT(text, HasSubstr(".reg .b32 %v$gpushared_y_<12>;"));
  EXPECT_THAT(text, HasSubstr("mov.b32 %v$gpushared_y_11, %v13;"));
  EXPECT_THAT(text, HasSubstr("mov.b32 %v13, %v$gpushared_x_2;"));
}

TEST(VectorRegisters, HaveTheScopeOfTheirDeclaration) {
  const std::string text =
      SplitBody(".reg .v2 .b32 v; .reg .b64 d;\n{ .reg .b64 v; mov.b64 d, v; }\nmov.b64 d, v;\n");
  EXPECT_THAT(text, HasSubstr("mov.b64 d, v;"));
  EXPECT_THAT(text, HasSubstr("mov.b64 d, {v$gpushared_x, v$gpushared_y};"));
}

TEST(VectorRegisters, ArePassedComponentByComponent) {
  const std::string text = PrintedTwice(
      ".func (.reg .v2 .f32 r) f(.reg .v2 .f32 a)\n{\nadd.f32 r.x, a.x, a.y;\nmov.f32 r.y, "
      "a.x;\n}\n"
      ".entry k()\n{\n.reg .v2 .f32 v;\ncall (v), f, (v);\nret;\n}\n");
  EXPECT_THAT(text,
              HasSubstr("\t.param .f32 %gpushared_result0,\n\t.param .f32 %gpushared_result1\n"));
  EXPECT_THAT(text, HasSubstr("\tld.param.f32 v$gpushared_y, [%gpushared_returned1];\n"));
}

TEST(VectorRegisters, LeaveOtherNamesAlone) {
  const std::string text = SplitBody(
      ".reg .v2 .u32 v; .reg .b32 r;\nmov.u32 r, %tid.y; mov.u32 v.z, r; vadd.s32.s32.s32 r, r.b1, "
      "r;\n");
  EXPECT_THAT(text, HasSubstr("mov.u32 r, %tid.y;"));
  EXPECT_THAT(text, HasSubstr("mov.u32 v.z, r;"));
  EXPECT_THAT(text, HasSubstr("vadd.s32.s32.s32 r, r.b1, r;"));
}

TEST(VectorRegisters, TotalNumberIsLimited) {
  std::string body = ".reg .v4 .f32 v;\n";
  for (int i = 0; i < 33'000; ++i) body += "f v, v, v, v, v, v, v, v;\n";
  const Result<Module> module =
      Parse(".version 8.3\n.target sm_80\n.address_size 64\n.entry k() {\n" + body + "}");
  EXPECT_EQ(module.status().code(), StatusCode::kLimitExceeded);
}

}  // namespace
}  // namespace gpushared::ptx
