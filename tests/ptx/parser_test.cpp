// SPDX-License-Identifier: Apache-2.0
#include "common/ptx/text/parser.h"

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/ptx/text/printer.h"
#include "common/ptx/text/written_module.h"

namespace gpushared::ptx {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::string_view kParserHeader = ".version 9.0\n.target sm_75\n.address_size 64\n";

Module ParseOrFail(const std::string& items) {
  Result<Module> module = Parse(std::string(kParserHeader) + items);
  EXPECT_TRUE(module) << module.status().message();
  return module ? *std::move(module) : Module();
}

std::string GetError(const std::string& items) {
  const Result<Module> module = Parse(std::string(kParserHeader) + items);
  EXPECT_FALSE(module) << items;
  return module.status().message();
}

std::string KernelWith(const std::string& body) { return ".entry k()\n{\n" + body + "\n}\n"; }

// Returns the only statement of a kernel, parsed.
template <typename T>
T Statement1(const std::string& text) {
  const Module module = ParseOrFail(KernelWith(text));
  const Function* kernel = module.FindFunction("k");
  if (kernel == nullptr || kernel->body->empty() ||
      !std::holds_alternative<T>(kernel->body->front())) {
    ADD_FAILURE() << "not parsed as expected: " << text;
    return T();
  }
  return std::get<T>(kernel->body->front());
}

Operand GetOperand(const std::string& text) {
  const Instruction instruction = Statement1<Instruction>("op " + text + ";");
  EXPECT_EQ(instruction.operands.size(), 1u) << text;
  return instruction.operands.empty() ? Operand() : instruction.operands[0];
}

TEST(Parser, ReadsGuardOpcodeModifiersAndOperands) {
  const auto i = Statement1<Instruction>("@!%p1 ld.global.L2::128B.v2.f32 {%f1, _}, [%rd1+-16];");
  ASSERT_TRUE(i.guard.has_value());
  EXPECT_EQ(i.guard->predicate, "%p1");
  EXPECT_TRUE(i.guard->negated);
  EXPECT_EQ(i.opcode, "ld");
  EXPECT_THAT(i.modifiers, ElementsAre("global", "L2::128B", "v2", "f32"));
  EXPECT_TRUE(i.Has("v2"));
  EXPECT_FALSE(i.Has("v4"));
  EXPECT_EQ(i.Spelling(), "ld.global.L2::128B.v2.f32");
  ASSERT_EQ(i.operands.size(), 2u);
  EXPECT_EQ(i.operands[0].kind, Operand::Kind::kVector);
  EXPECT_EQ(i.operands[0].elements[1].text, "_");
  EXPECT_EQ(i.operands[1].kind, Operand::Kind::kAddress);
  EXPECT_EQ(i.operands[1].text, "%rd1");
  EXPECT_EQ(i.operands[1].offset, -16);
  EXPECT_EQ(i.position.line, 6u);
}

TEST(Parser, ReadsEveryKindOfOperand) {
  EXPECT_EQ(GetOperand("%tid.x").text, "%tid.x");
  EXPECT_EQ(GetOperand("-5").integer, -5);
  EXPECT_EQ(GetOperand("0xffffffffffffffff").integer, -1);
  EXPECT_EQ(GetOperand("0f3F800000").kind, Operand::Kind::kFloat);
  EXPECT_EQ(GetOperand("-0d3FF0000000000000").integer,
            static_cast<std::int64_t>(0xBFF0000000000000u));
  EXPECT_EQ(GetOperand("-1.5").integer, static_cast<std::int64_t>(0xBFF8000000000000u));
  EXPECT_EQ(GetOperand("4+8").integer, 12);
  EXPECT_EQ(GetOperand("symbol+8").offset, 8);
  EXPECT_EQ(GetOperand("symbol+8-3").offset, 5);
  EXPECT_EQ(GetOperand("symbol+-4").offset, -4);
  EXPECT_EQ(GetOperand("symbol--4").offset, 4);
  EXPECT_TRUE(GetOperand("!%p3").negated);
  EXPECT_EQ(GetOperand("%p1|%p2").kind, Operand::Kind::kPair);
  EXPECT_EQ(GetOperand("[16]").integer, 16);
  EXPECT_EQ(GetOperand("[tex, {%f1, %f2}]").elements.size(), 1u);
  EXPECT_EQ(GetOperand("()").kind, Operand::Kind::kList);
  EXPECT_EQ(GetOperand("-%r1").text, "-%r1");
}

// constant_test.cpp covers all forms of constant expressions.
TEST(Parser, ReadsConstantExpressionsAsOperands) {
  for (const auto& [text, value] :
       std::initializer_list<std::pair<const char*, std::int64_t>>{{"1+2*3", 7},
                                                                   {"(1<<4)|3", 19},
                                                                   {"5|3", 7},
                                                                   {"~0x2", -3},
                                                                   {"-(5)", -5},
                                                                   {"+5", 5},
                                                                   {"!5", 0},
                                                                   {"WARP_SZ", 32},
                                                                   {"-WARP_SZ", -32},
                                                                   {"(.s64)5", 5},
                                                                   {"1.5>1.0", 1},
                                                                   {"1?2:3", 2}}) {
    const Operand operand = GetOperand(text);
    EXPECT_EQ(operand.kind, Operand::Kind::kInteger) << text;
    EXPECT_EQ(operand.integer, value) << text;
    EXPECT_EQ(operand.text, std::to_string(value)) << text;
  }
  EXPECT_EQ(GetOperand("1.5*2.0").text, "0d4008000000000000");
  EXPECT_EQ(GetOperand("(0f3F800000)").text, "0f3F800000");
  EXPECT_EQ(GetOperand("[4*2]").integer, 8);
  for (const char* address : {"[a+4*2]", "[a+(8)]", "[a+16-8]", "[a-8+16]", "[a+1?8:4]", "[a+1<<3]",
                              "[a+8|8]", "[a+WARP_SZ-24]", "[a- -8]"}) {
    EXPECT_EQ(GetOperand(address).text, "a") << address;
    EXPECT_EQ(GetOperand(address).offset, 8) << address;
  }
  const Operand vector = GetOperand("{1+1, %r1, ~0}");
  EXPECT_EQ(vector.elements[0].integer, 2);
  EXPECT_EQ(vector.elements[2].integer, -1);
  const auto call = Statement1<Instruction>("call (%r1), f, (1, (2+3)*4, %r2);");
  EXPECT_EQ(call.operands[2].elements[1].integer, 20);
  EXPECT_EQ(Print(call), "call (%r1), f, (1, 20, %r2)");
}

TEST(Parser, ReadsConstantExpressionsInDeclarations) {
  EXPECT_EQ(Statement1<Variable>(".reg .b32 %r<2+2>;").register_count, 4u);
  EXPECT_EQ(Statement1<Variable>(".reg .b32 %r<WARP_SZ>;").register_count, 32u);
  EXPECT_EQ(Statement1<Variable>(".reg .b32 %r<(5>4)+1>;").register_count, 2u);
  const auto variable = Statement1<Variable>(".local .align 2*4 .b8 a[8-4][1<<2];");
  EXPECT_EQ(variable.alignment, 8u);
  EXPECT_THAT(variable.extents, ElementsAre(4u, 4u));
}

TEST(Parser, CountsTheElementsOfAnArrayWithoutASize) {
  for (const auto& [text, extent] : std::initializer_list<std::pair<const char*, std::uint64_t>>{
           {"a[] = {1, 2, 3}", 3},
           {"a[] = {1}", 1},
           {"a[] = {}", 0},
           {"a[][2] = {{-1, 0}, {0, -1}, {(1), 0}}", 3},
           {"a[] = {(1 ? 2 : 3), 0xFF(b)}", 2}}) {
    const Module module = ParseOrFail(std::string(".global .u32 ") + text + ";\n");
    EXPECT_EQ(std::get<Variable>(module.items[0]).extents[0], extent) << text;
  }
}

TEST(Parser, KeepsInstructionsAndDirectivesItDoesNotKnow) {
  const auto i = Statement1<Instruction>("frobnicate.x::y.8x8 {a, b}|c, [d, {e}], (f);");
  EXPECT_EQ(Print(i), "frobnicate.x::y.8x8 {a, b}|c, [d, {e}], (f)");
  EXPECT_EQ(Statement1<Directive>(".pragma   \"nounroll\" ;").text, ".pragma \"nounroll\" ;");
  const Module module = ParseOrFail(".other f, g;\n.novel { a; b (c) };\n");
  ASSERT_EQ(module.items.size(), 2u);
  EXPECT_EQ(std::get<Directive>(module.items[1]).text, ".novel { a; b (c) };");
}

TEST(Parser, ReadsDeclarations) {
  const auto family = Statement1<Variable>(".reg .pred %p<7>;");
  EXPECT_EQ(family.register_count, 7u);
  EXPECT_EQ(family.Bytes(), 0u);
  const Module module = ParseOrFail(
      ".visible .global .attribute(.managed) .align 16 .v2 .f32 a[4][8] = {{1, 2}, 3}, b;\n"
      ".extern .shared .align 8 .b8 s[];\n");
  ASSERT_EQ(module.items.size(), 3u);
  const auto& a = std::get<Variable>(module.items[0]);
  EXPECT_EQ(a.linkage, ".visible");
  EXPECT_EQ(a.space, StateSpace::kGlobal);
  EXPECT_EQ(a.attributes, ".attribute(.managed)");
  EXPECT_EQ(a.Bytes(), 256u);
  EXPECT_EQ(a.NaturalAlignment(), 16u);
  EXPECT_EQ(a.initializer, "{{1, 2}, 3}");
  EXPECT_EQ(std::get<Variable>(module.items[1]).name, "b");
  EXPECT_FALSE(std::get<Variable>(module.items[1]).initializer);
  const auto& s = std::get<Variable>(module.items[2]);
  EXPECT_THAT(s.extents, ElementsAre(0u));
  EXPECT_EQ(s.Bytes(), 0u);
}

TEST(Parser, ReadsFunctionHeads) {
  const Module module = ParseOrFail(
      ".extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b)\n;\n"
      ".func .attribute(.unified(1, 2)) (.reg .b32 r) f(.reg .b32 a) .noreturn { ret; }\n"
      ".visible .entry k(.param .u64 .ptr .global .align 4 p, .param .align 8 .b8 s[24])\n"
      ".maxntid 256, 1, 1\n.minnctapersm 2\n.pragma \"x\";\n{ ret; }\n");
  ASSERT_EQ(module.items.size(), 3u);
  const auto& printf = std::get<Function>(module.items[0]);
  EXPECT_FALSE(printf.body.has_value());
  EXPECT_EQ(printf.returns.size(), 1u);
  EXPECT_EQ(module.FindFunction("vprintf"), nullptr);
  const auto& f = std::get<Function>(module.items[1]);
  EXPECT_EQ(f.attributes, ".attribute(.unified(1, 2))");
  EXPECT_EQ(f.returns[0].space, StateSpace::kParameter);  // See register_parameters.h.
  EXPECT_EQ(f.performance[0].text, ".noreturn");
  const Function* k = module.FindFunction("k");
  ASSERT_NE(k, nullptr);
  EXPECT_TRUE(k->is_entry);
  EXPECT_EQ(k->parameters[0].attributes, ".ptr .global .align 4");
  EXPECT_EQ(k->parameters[0].alignment, 0u);
  EXPECT_EQ(k->parameters[1].Bytes(), 24u);
  ASSERT_EQ(k->performance.size(), 3u);
  EXPECT_EQ(k->performance[0].text, ".maxntid 256, 1, 1");
  EXPECT_EQ(k->performance[2].text, ".pragma \"x\";");
}

TEST(Parser, DropsDebugInformationAndNothingElse) {
  const Module module = ParseOrFail(
      ".file 1 \"a b.cu\", 123, 456\n"
      ".entry k() {\n.loc 1 2 3\nadd a, b, c;\n"
      ".loc 1 2 3, function_name $L__info + 8, inlined_at 1 7 9\nsub a, b, c;\n"
      "L:\n.loc 1 2 3, function_name $L__info, inlined_at 1 7 9\n@p bra L;\n}\n"
      ".section .debug_str { a:\n.b8 1, 2\n.b8 {3}\n}\n.global .u32 kept;\n");
  ASSERT_EQ(module.items.size(), 2u);
  const auto& body = *std::get<Function>(module.items[0]).body;
  ASSERT_EQ(body.size(), 4u);
  EXPECT_EQ(std::get<Instruction>(body[1]).opcode, "sub");
  EXPECT_EQ(std::get<Label>(body[2]).name, "L");
  EXPECT_TRUE(std::get<Instruction>(body[3]).guard.has_value());
}

TEST(Parser, KeepsListsBehindLabels) {
  const Module module = ParseOrFail(KernelWith("list: .branchtargets A, B;\nA: B: ret;"));
  const auto& body = *module.FindFunction("k")->body;
  EXPECT_EQ(std::get<Label>(body[0]).name, "list");
  EXPECT_EQ(std::get<Directive>(body[1]).text, ".branchtargets A, B;");
}

TEST(Parser, ReadsPrototypes) {
  const Result<Function> prototype = ParsePrototype(
      ".callprototype (.param .b32 _) _ (.param .b64 _, .param .align 8 .b8 _[24]);");
  ASSERT_TRUE(prototype) << prototype.status().message();
  ASSERT_EQ(prototype->returns.size(), 1u);
  EXPECT_EQ(prototype->returns[0].Bytes(), 4u);
  ASSERT_EQ(prototype->parameters.size(), 2u);
  EXPECT_EQ(prototype->parameters[0].Bytes(), 8u);
  EXPECT_EQ(prototype->parameters[1].Bytes(), 24u);
  EXPECT_TRUE(ParsePrototype(".callprototype () _ () .noreturn;"));
  EXPECT_TRUE(ParsePrototype(".callprototype _ ();"));
  for (const char* wrong : {"", ".callprototype", ".callprototype wild", ".callprototype _ () {}",
                            ".func _ ();", ".callprototype _ (); ret;"}) {
    EXPECT_FALSE(ParsePrototype(wrong)) << wrong;
  }
}

TEST(Parser, StopsAtTheFirstNul) {
  using std::string_literals::operator""s;
  EXPECT_TRUE(Parse(std::string(kParserHeader) + "\0garbage \" "s));
}

TEST(Parser, NamesLineColumnAndToken) {
  EXPECT_EQ(GetError(KernelWith("mov.u32 %r1 %r2;")),
            "ptx: line 6 column 13: expected ',', near '%r2'");
  EXPECT_EQ(Parse("hello").status().message(),
            "ptx: line 1 column 1: a module begins with .version, near 'hello'");
  EXPECT_THAT(GetError(".entry k() { ret;"), HasSubstr("near end of text"));
  EXPECT_THAT(GetError(".pragma (a"), HasSubstr("bracket has no end"));
}

TEST(Parser, QuotesTokensSoThatALogStaysALog) {
  EXPECT_THAT(GetError("\x1b[31m"), HasSubstr("near '?'"));
  EXPECT_THAT(GetError(std::string(5000, 'x')), HasSubstr("xxx...'"));
  EXPECT_LT(GetError(std::string(5000, 'x')).size(), 200u);
}

TEST(Parser, RejectsInvalidText) {
  for (const char* items : {".version 8.0\n",
                            ".target sm_80\n",
                            ".address_size 63\n",
                            ".entry (.param .b32 a) k() {}",
                            ".entry k(",
                            ".entry k() { add a, b",
                            ".entry k() { @!",
                            ".entry k() { op 12abc; }",
                            ".entry k() { op [0f3F800000]; }",
                            ".entry k() { op [!a]; }",
                            ".entry k() { op a+b; }",
                            ".entry k() { op 1.5+2; }",
                            ".entry k() { op -0f3F800000; }",
                            ".entry k() { op 0f3F800000+1.0; }",
                            ".entry k() { op 1/0; }",
                            ".entry k() { op (1; }",
                            ".entry k() { op 1?2; }",
                            ".entry k() { op 1+; }",
                            ".entry k() { op ~%r1; }",
                            ".entry k() { op [a+1.5]; }",
                            ".entry k() { op [a+b]; }",
                            ".entry k() { op 7%4; }",
                            ".global .u32 a[-1];",
                            ".global .u32 a[1.5];",
                            ".global .u32 .u64 a;",
                            ".global a;",
                            ".global .u32 a = ;",
                            ".global .align 3 .u32 a;",
                            ".global .u32 a<4>;",
                            ".entry k() { .reg .b32 r<0>; }",
                            ".visible bogus",
                            ".visible .alias a, b;",
                            "}",
                            ".global .u32 a = {1;",
                            ".entry k() { .extern }",
                            ".section .x {",
                            ".file 1 x",
                            ".pragma \"x\"",
                            ".entry k(.param .u64 .ptr .ptr a) {}",
                            "\"text\"",
                            ".entry k() { op a,, b; }"}) {
    GetError(items);
  }
  EXPECT_FALSE(Parse(""));
  EXPECT_FALSE(Parse(".version 9.0"));
}

// As for ptxas, an index counts elements and is computed with 32 bits.
TEST(Parser, ComputesTheAddressOfAnElement) {
  const std::string table = ".visible .global .align 8 .u64 table[4];\n";
  const std::string registers = ".reg .b32 %r<3>;\n.reg .b64 %rd<3>;\n";
  const auto printed = [&](const std::string& text) {
    return Print(ParseOrFail(table + KernelWith(registers + text)));
  };
  EXPECT_THAT(printed("ld.global.u64 %rd1, table[2];"), HasSubstr("%rd1, [table+16];"));
  EXPECT_THAT(printed("mov.u64 %rd1, table[1];"), HasSubstr("mov.u64 %rd1, table+8;"));
  const std::string indexed = printed("@%p1 ld.global.u64 %rd1, table[%r2+1];");
  for (const char* line :
       {"mov.b32 %gpushared_number, %r2;", "mad.lo.u32 %gpushared_number, %gpushared_number, 8, 8;",
        "mov.u64 %gpushared_element, table;",
        "mad.wide.u32 %gpushared_element, %gpushared_number, 1, %gpushared_element;",
        "@%p1 ld.global.u64 %rd1, [%gpushared_element];"}) {
    EXPECT_THAT(indexed, HasSubstr(line));
  }
  EXPECT_THAT(printed("ld.global.u64 %rd1, table[%rd2];"),
              HasSubstr("cvt.u32.u64 %gpushared_number, %rd2;"));
  for (const char* wrong :
       {"ld.u64 %rd1, nothing[1];", "ld.u64 %rd1, table[table];", "ld.u64 %rd1, table[%f1];",
        "ld.u64 %rd1, table[0f3f800000];", "ld.u64 %rd1, table[];", "ld.u64 %rd1, table[1;",
        "ld.u64 %rd1, table[table[table[1]]];", "ld.u64 {%rd1, table[%r1]}, table;",
        "ld.u64 table[%r1], table[%r2];"}) {
    GetError(table + KernelWith(registers + wrong));
  }
}

// ptxas rejects a text whose target announces debug information that the text does not contain.
TEST(Parser, DropsDebugInformationAndItsTargetOption) {
  const Result<Module> module = Parse(
      ".version 9.0\n.target sm_75, texmode_independent, debug, map_f64_to_f32\n"
      ".file 1 \"a.cu\", 1, 2\n.entry k()\n{\n.loc 1 2 3\nret;\n}\n"
      ".section .debug_str\n{\nL:\n.b8 0\n}\n");
  ASSERT_TRUE(module) << module.status().message();
  EXPECT_EQ(module->target, "sm_75, texmode_independent, map_f64_to_f32");
  ASSERT_EQ(module->items.size(), 1u);
  EXPECT_EQ(module->FindFunction("k")->body->size(), 1u);
}

}  // namespace
}  // namespace gpushared::ptx
