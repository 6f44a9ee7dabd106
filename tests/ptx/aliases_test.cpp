// SPDX-License-Identifier: Apache-2.0
#include "common/ptx/text/aliases.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/ptx/parsed.h"

namespace gpushared::ptx {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Result<Module> ParsedWithAliases(const std::string& text) {
  return Parse(".version 8.3\n.target sm_80\n.address_size 64\n" + text);
}
std::string Resolved(const std::string& text) { return Print(Parsed(text, "sm_80")); }
std::string WhyNoAlias(const std::string& text) {
  const Result<Module> module = ParsedWithAliases(text);
  EXPECT_EQ(module.status().code(), StatusCode::kInvalidArgument);
  return std::string(module.status().message());
}

constexpr const char* kFunctions =
    ".func (.param .b32 r) g(.param .b32 a) { ret; }\n.func (.param .b32 r) f(.param .b32 a);\n";

TEST(Aliases, AreReplacedByTheirFunctionEverywhere) {
  const std::string text =
      Resolved(std::string(kFunctions) +
               ".alias f, g;\n.global .u64 t[2] = {f, ff};\n.func ff() { ret; }\n"
               ".entry k() {\n.reg .u64 x; .param .b32 p, q;\nmov.u64 x, f;\ncall (p), f, (q);\n"
               "L: .calltargets f, ff;\ncall (p), x, (q), L;\nret; }\n");
  EXPECT_THAT(text, HasSubstr("{g, ff}"));
  EXPECT_THAT(text, HasSubstr("mov.u64 x, g;"));
  EXPECT_THAT(text, HasSubstr("call (p), g, (q);"));
  EXPECT_THAT(text, HasSubstr(".calltargets g, ff;"));
  EXPECT_THAT(text, Not(HasSubstr(".alias")));
}

TEST(Aliases, MayStandInAFunction) {
  EXPECT_THAT(Resolved(std::string(kFunctions) +
                       ".entry k() {\n.param .b32 p;\ncall (p), f, (p);\n.alias f, g;\nret; }\n"),
              HasSubstr("call (p), g, (p);"));
}

TEST(Aliases, DoNotReplaceLocalDeclarations) {
  const std::string text =
      Resolved(std::string(kFunctions) +
               ".alias f, g;\n.entry k() {\n.reg .b32 f;\nmov.b32 f, 1;\nret; }\n");
  EXPECT_THAT(text, HasSubstr("mov.b32 f, 1;"));
}

TEST(Aliases, BecomeFunctionsIfVisible) {
  const std::string text = Resolved(
      ".visible .func g(.param .b32 a) { .reg .b32 r; mov.b32 r, 3; ret; }\n"
      ".visible .func f(.param .b32 b);\n.alias f, g;\n");
  EXPECT_THAT(text.substr(text.find("f(")), HasSubstr("mov.b32 r, 3;"));
}

TEST(Aliases, AreRejectedAsPtxasRejectsThem) {
  EXPECT_THAT(WhyNoAlias(".func f();\n.alias f, g;\n.func g() { ret; }\n"),
              HasSubstr("line 5: 'g' is no function that an alias can name"));
  EXPECT_THAT(WhyNoAlias(".func g() { ret; }\n.alias f, g;\n"), HasSubstr("'f' is not declared"));
  EXPECT_THAT(WhyNoAlias(".func f() { ret; }\n.func g() { ret; }\n.alias f, g;\n"),
              HasSubstr("'f' is a function, and no alias"));
  EXPECT_THAT(WhyNoAlias(".func f(.param .b32 a);\n.func g() { ret; }\n.alias f, g;\n"),
              HasSubstr("other parameters or results"));
  EXPECT_THAT(WhyNoAlias(".entry f();\n.entry g() { ret; }\n.alias f, g;\n"),
              HasSubstr("'f' is not declared as a function"));
  EXPECT_THAT(
      WhyNoAlias(".func f();\n.func g() { ret; }\n.alias f, g;\n.func h();\n.alias h, f;\n"),
      HasSubstr("'f' is no function that an alias can name"));
  EXPECT_THAT(WhyNoAlias(std::string(kFunctions) + ".alias f, g;\n.alias f, g;\n"),
              HasSubstr("twice"));
  EXPECT_THAT(WhyNoAlias(".alias f g;\n"), HasSubstr("expected ','"));
}

// Each alias is exported as a copy of the body.
TEST(Aliases, TotalSizeOfBodiesIsLimited) {
  std::string text = ".visible .func g() {\n";
  for (int i = 0; i < 20'000; ++i) text += "f;\n";
  text += "}\n";
  for (int i = 0; i < 60; ++i) {
    const std::string name = "f" + std::to_string(i);
    text += ".visible .func " + name + "();\n.alias " + name + ", g;\n";
  }
  EXPECT_EQ(ParsedWithAliases(text).status().code(), StatusCode::kLimitExceeded);
}

}  // namespace
}  // namespace gpushared::ptx
