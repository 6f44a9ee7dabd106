// SPDX-License-Identifier: Apache-2.0
#include "common/ptx/link/linker.h"

#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/ptx/text/module.h"
#include "common/ptx/text/parser.h"

namespace gpushared::ptx {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::string_view kHeader = ".version 7.0\n.target sm_75\n.address_size 64\n";

std::string Text(std::string_view body, std::string_view header = kHeader) {
  return std::string(header) + std::string(body);
}

Result<std::string> LinkTexts(const std::vector<std::string>& texts) {
  static constexpr std::string_view kNames[] = {"a.ptx", "b.ptx", "c.ptx"};
  std::vector<LinkInput> inputs;
  for (std::size_t i = 0; i < texts.size(); ++i) inputs.push_back({kNames[i], texts[i]});
  return Link(inputs);
}

Module Linked(const std::vector<std::string>& texts) {
  const Result<std::string> text = LinkTexts(texts);
  EXPECT_TRUE(text.ok()) << text.status().ToString();
  Result<Module> module = Parse(text.ok() ? *text : Text(""));
  EXPECT_TRUE(module.ok()) << module.status().ToString() << "\n" << *text;
  return module.ok() ? *std::move(module) : Module();
}

const Variable* FindVariable(const Module& module, std::string_view name) {
  for (const Item& item : module.items) {
    const auto* variable = std::get_if<Variable>(&item);
    if (variable != nullptr && variable->name == name) return variable;
  }
  return nullptr;
}

std::string Rejection(const std::vector<std::string>& texts) {
  const Result<std::string> text = LinkTexts(texts);
  EXPECT_FALSE(text.ok());
  return text.status().message();
}

constexpr std::string_view kCaller =
    ".extern .func (.param .b32 r) twice(.param .b32 x);\n"
    ".visible .entry k(.param .u64 p)\n{\n.reg .b32 %r<3>;\nmov.u32 %r1, 1;\n{\n"
    ".param .b32 a0;\nst.param.b32 [a0], %r1;\n.param .b32 r0;\n"
    "call (r0), twice, (a0);\nld.param.b32 %r2, [r0];\n}\nret;\n}\n";
constexpr std::string_view kCallee =
    ".visible .func (.param .b32 r) twice(.param .b32 x)\n{\n.reg .b32 %r<3>;\n"
    "ld.param.b32 %r1, [x];\nadd.u32 %r2, %r1, %r1;\nst.param.b32 [r], %r2;\nret;\n}\n";

TEST(Linker, ResolvesExternFunctionFromAnotherInput) {
  for (const bool callee_first : {false, true}) {
    const Module module = callee_first ? Linked({Text(kCallee), Text(kCaller)})
                                       : Linked({Text(kCaller), Text(kCallee)});
    ASSERT_NE(module.FindFunction("twice"), nullptr);
    ASSERT_NE(module.FindFunction("k"), nullptr);
    // The callee is declared before its use, and no declaration is `.extern`.
    std::size_t declared = 0;
    for (const Item& item : module.items) {
      const auto* function = std::get_if<Function>(&item);
      if (function == nullptr) continue;
      EXPECT_NE(function->linkage, ".extern");
      declared += function->name == "twice" ? 1 : 0;
    }
    EXPECT_EQ(declared, 2u) << "expected a prototype and a definition";
  }
}

TEST(Linker, ResolvesExternVariableFromAnotherInput) {
  const Module module = Linked({Text(".extern .global .align 4 .u32 count;\n"
                                     ".visible .global .align 8 .u64 where = generic(count);\n"),
                                Text(".visible .global .align 4 .u32 count = 7;\n")});
  const Variable* const count = FindVariable(module, "count");
  ASSERT_NE(count, nullptr);
  EXPECT_EQ(count->linkage, ".visible");
  EXPECT_EQ(count->initializer, "7");
  // A variable precedes the initialiser that names it.
  EXPECT_LT(count, FindVariable(module, "where"));
}

TEST(Linker, UndefinedReferencesAreRejectedByName) {
  EXPECT_THAT(Rejection({Text(kCaller)}), HasSubstr("a.ptx: undefined reference to 'twice'"));
  EXPECT_THAT(Rejection({Text(""), Text(".extern .global .u32 lost;\n")}),
              HasSubstr("b.ptx: undefined reference to 'lost'"));
}

TEST(Linker, SymbolsOfTheDeviceStayExtern) {
  const Module module =
      Linked({Text(".extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);\n"
                   ".extern .shared .align 4 .b8 room[];\n"),
              Text(".extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);\n"
                   ".extern .shared .align 16 .b8 room[];\n")});
  const Variable* const room = FindVariable(module, "room");
  ASSERT_NE(room, nullptr);
  EXPECT_EQ(room->linkage, ".extern");
  EXPECT_EQ(room->alignment, 16u) << "the largest alignment of all inputs";
  EXPECT_EQ(module.items.size(), 2u);
}

TEST(Linker, TwoStrongDefinitionsAreRejected) {
  EXPECT_THAT(Rejection({Text(kCallee), Text(kCallee)}),
              HasSubstr("b.ptx: 'twice' is defined there and in a.ptx"));
  const std::string kernel = Text(".entry k()\n{\nret;\n}\n");
  EXPECT_THAT(Rejection({kernel, kernel}), HasSubstr("'k' is defined there and in a.ptx"));
  const std::string variable = Text(".visible .global .u32 w;\n");
  EXPECT_THAT(Rejection({variable, variable}), HasSubstr("'w' is defined there and in a.ptx"));
  EXPECT_THAT(Rejection({Text(".visible .global .u32 twice;\n"), Text(kCallee)}),
              HasSubstr("'twice' is a function there and a variable in a.ptx"));
}

TEST(Linker, StrongSymbolReplacesWeakAndFirstWeakWins) {
  const auto weak = [](std::string_view value) {
    return Text(".weak .global .align 4 .u32 w = " + std::string(value) + ";\n");
  };
  EXPECT_EQ(FindVariable(Linked({weak("1"), weak("2")}), "w")->initializer, "1");
  const Module module =
      Linked({weak("1"), Text(".visible .global .align 4 .u32 w = 3;\n"), weak("2")});
  EXPECT_EQ(FindVariable(module, "w")->initializer, "3");
}

TEST(Linker, LargestCommonVariableWins) {
  const Module module = Linked({Text(".common .global .align 4 .b8 c[8];\n"),
                                Text(".common .global .align 16 .b8 c[32];\n"),
                                Text(".common .global .align 4 .b8 c[16];\n")});
  EXPECT_EQ(FindVariable(module, "c")->Bytes(), 32u);
  EXPECT_EQ(FindVariable(module, "c")->alignment, 16u);
}

// Each of the two inputs has its own `limit` and `clamp`, and a kernel whose parameter hides
// `limit`.
TEST(Linker, NamesWithoutLinkageStaySeparate) {
  const auto input = [](std::string_view kernel, std::string_view value) {
    return Text(".global .align 4 .u32 limit = " + std::string(value) +
                ";\n.global .align 8 .u64 at = generic(limit);\n"
                ".func clamp()\n{\n.reg .b32 %r<2>;\nld.global.u32 %r1, [limit];\nret;\n}\n"
                ".visible .entry " +
                std::string(kernel) +
                "(.param .u32 limit)\n{\n.reg .b32 %r<2>;\nld.param.u32 %r1, [limit];\n"
                "call clamp, ();\nret;\n}\n");
  };
  const Result<std::string> text = LinkTexts({input("k", "1"), input("m", "2")});
  ASSERT_TRUE(text.ok()) << text.status().ToString();
  const Result<Module> module = Parse(*text);
  ASSERT_TRUE(module.ok()) << module.status().ToString();
  EXPECT_EQ(FindVariable(*module, "limit"), nullptr);
  for (const auto& [number, value] : {std::pair("1", "1"), std::pair("4", "2")}) {
    const Variable* const limit = FindVariable(*module, "limit$" + std::string(number));
    ASSERT_NE(limit, nullptr) << *text;
    EXPECT_EQ(limit->initializer, value);
  }
  EXPECT_THAT(*text, HasSubstr("generic(limit$1)"));
  EXPECT_THAT(*text, HasSubstr("generic(limit$4)"));
  EXPECT_THAT(*text, HasSubstr("ld.param.u32 %r1, [limit];"));
  EXPECT_THAT(*text, HasSubstr("call clamp$3, ()"));
  EXPECT_THAT(*text, HasSubstr("call clamp$6, ()"));
}

TEST(Linker, VersionAndTargetAreTheNewest) {
  const Module module = Linked({Text("", ".version 8.9\n.target sm_70\n.address_size 64\n"),
                                Text("", ".version 8.10\n.target sm_60\n.address_size 64\n"),
                                Text("", ".version 6.0\n.target sm_86\n.address_size 64\n")});
  EXPECT_EQ(module.version, "8.10");
  EXPECT_EQ(module.target, "sm_86");
}

TEST(Linker, KernelsWithoutRegisterLimitGetTheLinksLimit) {
  const std::string text = Text(
      ".visible .entry plain()\n{\nret;\n}\n"
      ".visible .entry own()\n.maxntid 64, 1, 1\n.maxnreg 40\n{\nret;\n}\n"
      ".visible .func helper()\n{\nret;\n}\n");
  const std::vector<LinkInput> inputs = {{"a.ptx", text}};
  const Result<std::string> linked = Link(inputs, 32);
  ASSERT_TRUE(linked) << linked.status().message();
  const Result<Module> module = Parse(*linked);
  ASSERT_TRUE(module) << module.status().message();
  const auto performance_of = [&](std::string_view name) {
    std::string all;
    const Function* const function = module->FindFunction(name);
    if (function == nullptr) return all;
    for (const Directive& directive : function->performance) all += directive.text + ";";
    return all;
  };
  EXPECT_EQ(performance_of("plain"), ".maxnreg 32;");
  EXPECT_EQ(performance_of("own"), ".maxntid 64, 1, 1;.maxnreg 40;");
  EXPECT_EQ(performance_of("helper"), "");
}

TEST(Linker, BadInputsAreNamed) {
  EXPECT_THAT(Rejection({Text(""), "nonsense"}), HasSubstr("b.ptx: ptx: line 1"));
  EXPECT_THAT(Rejection({Text("", ".version 7.0\n.target sm_75\n.address_size 32\n")}),
              HasSubstr("a.ptx:"));
  EXPECT_EQ(Link({}).status().code(), StatusCode::kLimitExceeded);
}

// The variables of a cycle name each other, and must not hang the linker.
TEST(Linker, CyclicInitialisersTerminate) {
  const Module module =
      Linked({Text(".visible .global .align 8 .u64 a = generic(b);\n"
                   ".visible .global .align 8 .u64 b = generic(a);\n")});
  EXPECT_EQ(module.items.size(), 2u);
}

TEST(Linker, DefinesGridSynchronisationOnDemand) {
  const std::string asks = Text(
      ".extern .func (.param .b64 r) cudaCGGetIntrinsicHandle(.param .b32 s);\n"
      ".extern .func (.param .b32 r) cudaCGSynchronize(.param .b64 h, .param .b32 f);\n"
      ".visible .entry k()\n{\nret;\n}\n");
  const Module module = Linked({asks});
  EXPECT_NE(module.FindFunction("cudaCGSynchronize"), nullptr);
  EXPECT_NE(module.FindFunction("cudaCGGetIntrinsicHandle"), nullptr);
  EXPECT_EQ(Linked({Text("")}).items.size(), 0u);
}

}  // namespace
}  // namespace gpushared::ptx
