// SPDX-License-Identifier: Apache-2.0
// Every limit of parser.h: input at the limit passes, input beyond it is rejected by name.
#include <string>
#include <string_view>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/ptx/text/parser.h"
#include "common/ptx/text/printer.h"

namespace gpushared::ptx {
namespace {

using ::testing::HasSubstr;

constexpr std::string_view kLimitsHeader = ".version 9.0\n.target sm_75\n";

std::string Repeat(std::string_view piece, std::size_t count) {
  std::string text;
  text.reserve(piece.size() * count);
  for (std::size_t i = 0; i < count; ++i) text += piece;
  return text;
}

Status StatusFor(const std::string& items) {
  return Parse(std::string(kLimitsHeader) + items).status();
}

Status StatusOfBody(const std::string& body) { return StatusFor(".entry k() {" + body + "}"); }

void ExpectLimit(const Status& status, const std::string& message) {
  EXPECT_EQ(status.code(), StatusCode::kLimitExceeded);
  EXPECT_THAT(status.message(), HasSubstr(message));
}

TEST(ParserLimits, TextBytes) {
  const std::string text(kTextBytesMax + 1, ' ');
  ExpectLimit(Parse(text).status(), "67108865 bytes");
  EXPECT_EQ(Parse(text.substr(1)).status().code(), StatusCode::kInvalidArgument);
}

TEST(ParserLimits, Tokens) {
  ExpectLimit(StatusFor(Repeat(";", kTokensMax)), "more than 8388608 tokens");
}

TEST(ParserLimits, Statements) {
  const std::string many = Repeat("a;", kStatementsMax - 2);  // The function and '}' count, too.
  EXPECT_TRUE(StatusOfBody(many).ok());
  ExpectLimit(StatusOfBody(many + "a;"), "more than 1048576 statements");
}

// Short text expands to several instructions.
TEST(ParserLimits, StatementsOfIndexedElements) {
  const auto status = [](std::size_t count) {
    return StatusFor(".global .u32 t[4];.entry k() {.reg .b32 %r;" + Repeat("a t[%r];", count) +
                     "}");
  };
  EXPECT_TRUE(status(1000).ok());
  ExpectLimit(status(kStatementsMax / 6), "more than 1048576 statements");
}

TEST(ParserLimits, ScopeDepth) {
  const auto nested = [](std::size_t depth) { return Repeat("{", depth) + Repeat("}", depth); };
  EXPECT_TRUE(StatusOfBody(nested(kScopeDepthMax - 1)).ok());
  ExpectLimit(StatusOfBody(nested(kScopeDepthMax)), "scopes nested deeper than 64");
  ExpectLimit(StatusOfBody(Repeat("{", 1000000)), "scopes nested deeper than 64");
}

TEST(ParserLimits, OperandDepth) {
  const auto nested = [](std::size_t depth) {
    return "op " + Repeat("{", depth) + "a" + Repeat("}", depth) + ";";
  };
  EXPECT_TRUE(StatusOfBody(nested(kOperandDepthMax - 1)).ok());
  ExpectLimit(StatusOfBody(nested(kOperandDepthMax)), "operands nested deeper than 8");
  ExpectLimit(StatusOfBody("op " + Repeat("[a,{(", 1000000)), "operands nested deeper than 8");
}

TEST(ParserLimits, BracketsInVerbatimTextCostNoStack) {
  const std::size_t depth = 1000000;
  EXPECT_TRUE(StatusFor(".global .u32 a = " + Repeat("{", depth) + Repeat("}", depth) + ";").ok());
  EXPECT_FALSE(StatusFor(".global .u32 a = " + Repeat("{", depth)).ok());
  EXPECT_FALSE(StatusFor(".novel " + Repeat("(", depth)).ok());
  EXPECT_FALSE(StatusFor(".section .x " + Repeat("{", depth)).ok());
}

TEST(ParserLimits, SizesOfVariables) {
  EXPECT_TRUE(StatusFor(".global .b8 a[1099511627776];").ok());
  ExpectLimit(StatusFor(".global .b8 a[1099511627777];"), "an extent above");
  ExpectLimit(StatusFor(".global .b16 a[1099511627776];"), "a variable of more than");
  ExpectLimit(StatusFor(".global .b8 a[1099511627776][1099511627776];"), "a variable of more than");
  ExpectLimit(StatusFor(".global .b8 a[][1099511627776][2];"), "a variable of more than");
  ExpectLimit(StatusFor(".global .b8 a" + Repeat("[1]", 9) + ";"), "more than 8 dimensions");
  ExpectLimit(StatusFor(".global .align 2097152 .b8 a;"), "an alignment in bytes above");
  ExpectLimit(StatusOfBody(".reg .b32 %r<16777217>;"), "a number of registers above");
  EXPECT_FALSE(StatusOfBody(".reg .b32 %r<99999999999999999999>;").ok());
}

TEST(ParserLimits, OffsetsWrapInsteadOfOverflowing) {
  const Result<Module> module =
      Parse(std::string(kLimitsHeader) +
            ".entry k() { op [a+9223372036854775807+1], [a-9223372036854775808], "
            "-9223372036854775808, 18446744073709551615+1; }");
  ASSERT_TRUE(module) << module.status().message();
  EXPECT_THAT(Print(*module), HasSubstr("op [a+-9223372036854775808], [a+-9223372036854775808], "
                                        "-9223372036854775808, 0;"));
}

TEST(ParserLimits, ModuleMadeByHandHasSaturatedSizes) {
  Variable variable;
  variable.type = "b64";
  variable.extents = {UINT64_MAX / 2, 2};
  EXPECT_EQ(variable.Bytes(), UINT64_MAX);
}

}  // namespace
}  // namespace gpushared::ptx
