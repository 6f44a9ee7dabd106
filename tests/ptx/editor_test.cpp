// SPDX-License-Identifier: Apache-2.0
#include "common/ptx/text/editor.h"

#include <string>
#include <variant>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/ptx/parsed.h"

namespace gpushared::ptx {
namespace {

using ::testing::HasSubstr;

Function& FirstFunction(Module& module) {
  for (Item& item : module.items) {
    if (auto* function = std::get_if<Function>(&item)) return *function;
  }
  ADD_FAILURE() << "no function";
  static Function none;
  return none;
}

std::string GetBody(const Module& module) {
  const std::string text = Print(module);
  return text.substr(text.find("{\n"));
}

TEST(Editor, NamesOccurNowhereInTheModule) {
  Module module = Parsed(
      ".global .b32 __gs0_x;\n.entry k(.param .u32 a__gs1b) {\n"
      ".reg .b32 %__gs3_r;\n__gs02:\nret;\n}\n");
  const ModuleEditor editor(module);
  // The numbers 0 to 3 occur in names of the module, at different places of the names and in
  // different spellings.
  EXPECT_EQ(editor.HiddenName("word"), "__gs4_word");
}

TEST(Editor, SecondPassUsesOtherNamesThanTheFirst) {
  Module module = Parsed(".entry k() {\nret;\n}\n");
  ModuleEditor first(module);
  FunctionEditor function(first, FirstFunction(module));
  const std::string name = function.NewRegister("b32");
  function.InsertAtEntry(Make("mov.b32", {Name(name), Integer(1)}));
  function.Apply();
  ModuleEditor second(module);
  EXPECT_NE(second.HiddenName("x"), first.HiddenName("x"));
}

TEST(Editor, UniqueNamesDifferButHiddenNamesAreStable) {
  Module module = Parsed(".entry k() {\nret;\n}\n");
  ModuleEditor editor(module);
  EXPECT_NE(editor.UniqueName("x"), editor.UniqueName("x"));
  EXPECT_EQ(editor.HiddenName("x"), editor.HiddenName("x"));
}

TEST(Editor, UniqueNameOfNameWithPercentSignIsValid) {
  Module module = Parsed(".entry %k() {\nret;\n}\n");
  Function& kernel = FirstFunction(module);
  ModuleEditor editor(module);
  kernel.name = editor.UniqueName("claimed_" + kernel.name);
  const Result<Module> again = Parse(Print(module));
  ASSERT_TRUE(again) << again.status().message();
  EXPECT_EQ(Print(*again), Print(module));
}

TEST(Editor, InsertionsKeepOrderAfterLabelsAndAroundInstruction) {
  Module module = Parsed(".entry k() {\n.reg .b32 %r<2>;\nL:\nadd.u32 %r0, %r0, 1;\nret;\n}\n");
  ModuleEditor names(module);
  FunctionEditor editor(names, FirstFunction(module));
  ASSERT_EQ(editor.size(), 4u);
  editor.InsertBefore(2, Make("mov.b32", {Name("%r1"), Integer(1)}));
  editor.InsertBefore(2, Make("mov.b32", {Name("%r1"), Integer(2)}));
  editor.InsertAfter(2, Make("mov.b32", {Name("%r1"), Integer(3)}));
  editor.InsertAfter(3, Make("mov.b32", {Name("%r1"), Integer(4)}));
  editor.InsertAtEntry(Make("mov.b32", {Name("%r1"), Integer(0)}));
  editor.Apply();
  EXPECT_EQ(GetBody(module),
            "{\n\t.reg .b32 %r<2>;\n\tmov.b32 %r1, 0;\nL:\n\tmov.b32 %r1, 1;\n\tmov.b32 %r1, 2;\n"
            "\tadd.u32 %r0, %r0, 1;\n\tmov.b32 %r1, 3;\n\tret;\n\tmov.b32 %r1, 4;\n}\n");
}

TEST(Editor, EntryFollowsLeadingDirectives) {
  Module module = Parsed(".entry k() {\n.pragma \"nounroll\";\nret;\n}\n.entry e() {\n}\n");
  ModuleEditor names(module);
  for (Item& item : module.items) {
    FunctionEditor editor(names, std::get<Function>(item));
    editor.InsertAtEntry(Make("bar.sync", {Integer(0)}));
    editor.Apply();
  }
  EXPECT_THAT(Print(module), HasSubstr("\t.pragma \"nounroll\";\n\tbar.sync 0;\n\tret;\n"));
  EXPECT_THAT(Print(module), HasSubstr("{\n\tbar.sync 0;\n}\n"));
}

TEST(Editor, RegistersOfATypeAreOneFamilyAndDeclaredForTheWholeFunction) {
  Module module = Parsed(".entry k() {\n{\nret;\n}\n}\n");
  ModuleEditor names(module);
  FunctionEditor editor(names, FirstFunction(module));
  const std::string a = editor.NewRegister("b32"), b = editor.NewRegister("b32");
  const std::string p = editor.NewRegister("pred");
  editor.InsertBefore(1, MakeIf(p, "mov.b32", {Name(a), Name(b)}));
  editor.Apply();
  EXPECT_NE(a, b);
  const std::string text = GetBody(module);
  EXPECT_THAT(text, HasSubstr(".reg .b32 " + a.substr(0, a.size() - 1) + "<2>;"));
  EXPECT_THAT(text, HasSubstr(".reg .pred " + p.substr(0, p.size() - 1) + "<1>;"));
  EXPECT_THAT(text, HasSubstr("\t{\n\t@" + p + " mov.b32 " + a + ", " + b + ";\n\tret;"));
  EXPECT_LT(text.find(".reg .b32"), text.find("\t{\n"));
}

TEST(Editor, ApplyingTwiceInsertsOnce) {
  Module module = Parsed(".entry k() {\nret;\n}\n");
  ModuleEditor names(module);
  FunctionEditor editor(names, FirstFunction(module));
  editor.InsertBefore(0, Make("bar.sync", {Integer(0)}));
  editor.Apply();
  editor.Apply();
  EXPECT_EQ(editor.size(), 2u);
}

TEST(Editor, AppendedParametersKeepTheOffsetsOfOthers) {
  Module module = Parsed(".entry k(.param .u32 a, .param .align 8 .b8 b[12]) {\nret;\n}\n");
  ModuleEditor editor(module);
  Function& kernel = FirstFunction(module);
  EXPECT_EQ(ParameterBytes(kernel), 20u);
  const auto added = editor.AppendParameter(kernel, 40, 8);
  ASSERT_TRUE(added);
  EXPECT_EQ(added->offset, 24u);
  EXPECT_EQ(ParameterBytes(kernel), 64u);
  ASSERT_EQ(kernel.parameters.size(), 3u);
  EXPECT_EQ(kernel.parameters[0].name, "a");
  EXPECT_EQ(kernel.parameters[2].name, added->name);
  EXPECT_THAT(Print(module), HasSubstr(".param .align 8 .b8 " + added->name + "[40]"));
}

TEST(Editor, KernelWithoutParametersGetsItsFirst) {
  Module module = Parsed(".entry k\n{\nret;\n}\n");
  ModuleEditor editor(module);
  const auto added = editor.AppendParameter(FirstFunction(module), 40, 8);
  ASSERT_TRUE(added);
  EXPECT_EQ(added->offset, 0u);
}

TEST(Editor, RejectsParametersBeyondTheTargetsLimit) {
  Module module = Parsed(".entry k(.param .align 4 .b8 a[32728]) {\nret;\n}\n");
  Function& kernel = FirstFunction(module);
  ModuleEditor editor(module);
  const auto rejected = editor.AppendParameter(kernel, 40, 8);
  ASSERT_FALSE(rejected);
  EXPECT_EQ(rejected.status().code(), StatusCode::kLimitExceeded);
  EXPECT_THAT(std::string(rejected.status().message()),
              AllOf(HasSubstr("32768"), HasSubstr("32764")));
  EXPECT_TRUE(editor.AppendParameter(kernel, 36, 4));
  EXPECT_EQ(ParameterBytes(kernel), 32764u);

  Module older = Parsed(".entry k() {\nret;\n}\n");
  EXPECT_EQ(ParameterBytesMax(older), 32764u);
  older.version = "8.0";
  EXPECT_EQ(ParameterBytesMax(older), 4352u);
  older.version = "8.1", older.target = "sm_61";
  EXPECT_EQ(ParameterBytesMax(older), 4352u);
}

TEST(Editor, ReadsVersionAndTarget) {
  Module module;
  module.version = "10.2", module.target = "sm_90a, texmode_independent";
  EXPECT_EQ(TargetArchitecture(module), 90u);
  EXPECT_TRUE(HasVersion(module, 8, 1));
  EXPECT_TRUE(HasVersion(module, 10, 2));
  EXPECT_FALSE(HasVersion(module, 10, 3));
  module.version = "7", module.target = "compute";
  EXPECT_FALSE(HasVersion(module, 6, 0));
  EXPECT_EQ(TargetArchitecture(module), 0u);
}

TEST(Editor, VariablesPrecedeTheFirstFunction) {
  Module module = Parsed(".global .b32 g;\n.entry k() {\nret;\n}\n");
  ModuleEditor editor(module);
  Variable variable;
  variable.space = StateSpace::kConstant;
  variable.type = "b64";
  variable.name = editor.HiddenName("base");
  editor.AddVariable(variable);
  ASSERT_EQ(module.items.size(), 3u);
  EXPECT_EQ(std::get<Variable>(module.items[1]).name, "__gs0_base");
}

TEST(Editor, ResultPrintsAndParsesToTheSameText) {
  Module module = Parsed(".entry k() {\n.reg .b64 %rd<2>;\nret;\n}\n");
  ModuleEditor names(module);
  FunctionEditor editor(names, FirstFunction(module));
  const std::string label = editor.NewLabel(), value = editor.NewRegister("b64");
  EXPECT_NE(editor.NewLabel(), label);
  editor.InsertAtEntry(Label{.position = {}, .name = label});
  editor.InsertAtEntry(
      Make("ld.relaxed.sys.global.L2::128B.u64", {Name(value), Address("%rd1", -8)}));
  editor.InsertAtEntry(Make("mov.b64", {Vector({Name("%rd0"), Name("_")}), Name(value)}));
  editor.Apply();
  const std::string once = Print(module);
  EXPECT_THAT(once, HasSubstr("ld.relaxed.sys.global.L2::128B.u64 " + value + ", [%rd1+-8];"));
  const Result<Module> again = Parse(once);
  ASSERT_TRUE(again) << again.status().message();
  EXPECT_EQ(Print(*again), once);
}

TEST(Editor, EveryOperandIsVisitedWithItsElements) {
  const Module module = Parsed(
      ".entry k() {\n.reg .b32 %r<9>; .reg .pred %p<3>;\n"
      "shfl.sync.up.b32 %r0|%p1, %r2, %r3, %r4, %r5;\nst.global.v2.u32 [%r6], {%r7, %r8};\n}\n");
  std::string seen;
  for (const Statement& statement : *module.FindFunction("k")->body) {
    const auto* instruction = std::get_if<Instruction>(&statement);
    if (instruction == nullptr) continue;
    ForEachOperand(*instruction, [&](const Operand& operand) {
      if (!operand.text.empty()) seen += operand.text + " ";
    });
  }
  EXPECT_EQ(seen, "%r0 %p1 %r2 %r3 %r4 %r5 %r6 %r7 %r8 ");
}

}  // namespace
}  // namespace gpushared::ptx
