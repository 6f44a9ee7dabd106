// SPDX-License-Identifier: Apache-2.0
// Kernels that read values that were never written: registers, parameters of calls, results.
// Unfenced kernels read the previous contents, and fenced kernels read zeros.
#include <cstring>
#include <string>
#include <variant>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/ptx/text/editor.h"
#include "common/ptx/text/parser.h"
#include "tests/passes/fence_bench.h"

namespace gpushared::testing {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kLeftByOthers = 0xab;  // Every byte left by other clients.

std::string GetText(const std::string& body, const std::string& module) {
  return ".version 8.0\n.target sm_80\n.address_size 64\n" + module +
         "\n.visible .entry k(.param .u64 out)\n{\n"
         ".reg .b64 %rd<8>;\n.reg .b32 %r<8>;\n.reg .b16 %h<4>;\n.reg .pred %p<4>;\n"
         ".reg .f32 %f<4>;\n.reg .f64 %fd<4>;\nld.param.u64 %rd1, [out];\n" +
         body + "\nret;\n}\n";
}

// Returns writes to a declared variable, as if another client had left the value there.
std::vector<ptx::Instruction> WritesOfOthers(const ptx::Variable& variable) {
  std::vector<ptx::Instruction> writes;
  const std::uint32_t bytes = ptx::TypeBytes(variable.type);
  if (variable.space == ptx::StateSpace::kParameter) {
    for (std::uint64_t i = 0; i < variable.Bytes(); ++i) {
      const auto offset = static_cast<std::int64_t>(i);
      writes.push_back(ptx::Make(
          "st.param.b8", {ptx::Address(variable.name, offset), ptx::Integer(kLeftByOthers)}));
    }
  }
  if (variable.space != ptx::StateSpace::kRegister) return writes;
  const std::string type = bytes == 0 ? "pred" : "b" + std::to_string(8 * bytes);
  const bool is_family = variable.register_count > 0;
  for (std::uint32_t i = 0; i < (is_family ? variable.register_count : 1); ++i) {
    const std::string name = variable.name + (is_family ? std::to_string(i) : "");
    writes.push_back(
        ptx::Make("mov." + type, {ptx::Name(name), ptx::Integer(kLeftByOthers * 0x01010101)}));
  }
  return writes;
}

void LeaveInEveryVariable(ptx::Module& module) {
  ptx::ModuleEditor names(module);
  for (ptx::Item& item : module.items) {
    auto* function = std::get_if<ptx::Function>(&item);
    if (function == nullptr) continue;
    ptx::FunctionEditor editor(names, *function);
    for (std::size_t i = 0; i < editor.size(); ++i) {
      const auto* variable = std::get_if<ptx::Variable>(&editor.At(i));
      if (variable == nullptr) continue;
      for (ptx::Instruction& write : WritesOfOthers(*variable))
        editor.InsertAfter(i, std::move(write));
    }
    const ptx::Instruction carry = ptx::Make(
        "add.cc.u32", {ptx::Name(editor.NewRegister("b32")), ptx::Integer(-1), ptx::Integer(1)});
    editor.InsertAtEntry(carry);
    for (std::size_t i = 0; i < editor.size(); ++i) {
      const auto* instruction = std::get_if<ptx::Instruction>(&editor.At(i));
      if (instruction != nullptr && instruction->opcode == "call") editor.InsertAfter(i, carry);
    }
    for (const ptx::Variable& result : function->returns) {
      for (ptx::Instruction& write : WritesOfOthers(result)) editor.InsertAtEntry(std::move(write));
    }
    editor.Apply();
  }
}

struct Reading {
  const char* name;
  const char* body;  // Stores the value that it has read to [%rd1].
  const char* module = "";
};

constexpr Reading kReadings[] = {
    {"register", "st.global.u32 [%rd1], %r5;"},
    {"wide_register", "st.global.u64 [%rd1], %rd5;"},
    {"narrow_register", "st.global.u16 [%rd1], %h2;"},
    {"predicate", "selp.b32 %r1, 1, 0, %p2; st.global.u32 [%rd1], %r1;"},
    {"guard", "mov.u32 %r1, 1; @%p2 st.global.u32 [%rd1], %r1;"},
    {"real", "st.global.f32 [%rd1], %f2;"},
    {"wide_real", "st.global.f64 [%rd1], %fd2;"},
    {"written_on_another_way",
     "setp.eq.u64 %p1, %rd1, 0; @%p1 bra SET; bra READ;\nSET: mov.u32 %r5, 0;\n"
     "READ: st.global.u32 [%rd1], %r5;"},
    {"written_by_other_threads",
     "setp.eq.u64 %p1, %rd1, 0; @%p1 mov.u32 %r5, 0; st.global.u32 [%rd1], %r5;"},
    {"written_behind_it",
     "mov.u32 %r1, 0;\nAGAIN: setp.eq.u32 %p1, %r1, 0; @%p1 st.global.u32 [%rd1], %r5;\n"
     "mov.u32 %r5, 0; add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 2;\n@%p1 bra AGAIN;"},
    {"half_of_a_pair", "mov.b16 %h1, 0; mov.b32 %r1, {%h1, %h2}; st.global.u32 [%rd1], %r1;"},
    {"in_a_scope", "{ .reg .b32 t; st.global.u32 [%rd1], t; }"},
    {"in_a_scope_of_a_loop",
     "mov.u32 %r1, 0;\nAGAIN: { .reg .b32 %t<3>; st.global.u32 [%rd1], %t2; mov.u32 %t2, 0; }\n"
     "add.u32 %r1, %r1, 1; add.s64 %rd1, %rd1, 4; setp.lt.u32 %p1, %r1, 2;\n@%p1 bra AGAIN;"},
    {"carry", "addc.u32 %r1, 0, 0; st.global.u32 [%rd1], %r1;"},
    {"carry_that_other_threads_set",
     "setp.eq.u64 %p1, %rd1, 0; @%p1 add.cc.u32 %r1, 0, 0; addc.u32 %r1, 0, 0;\n"
     "st.global.u32 [%rd1], %r1;"},
    {"carry_of_a_call",
     "add.cc.u32 %r1, 0, 0; call f; madc.lo.u32 %r1, 0, 0, 0; st.global.u32 [%rd1], %r1;",
     ".func f() { ret; }"},
    {"in_a_function", "{ .param .b64 a; st.param.b64 [a], %rd1; call f, (a); }",
     ".func f(.param .b64 p) { .reg .b64 %a; .reg .b32 %u; ld.param.b64 %a, [p];\n"
     "st.global.u32 [%a], %u; ret; }"},
    {"parameter", "{ .param .b64 a; .param .b32 b; st.param.b64 [a], %rd1; call f, (a, b); }",
     ".func f(.param .b64 p, .param .b32 q) { .reg .b64 %a; .reg .b32 %u; ld.param.b64 %a, [p];\n"
     "ld.param.b32 %u, [q]; st.global.u32 [%a], %u; ret; }"},
    {"hole_in_a_parameter",
     "{ .param .align 8 .b8 a[24]; st.param.b64 [a], %rd1; st.param.b32 [a+12], 0;\n"
     "st.param.b16 [a+18], 0; st.param.b8 [a+23], 0; call f, (a); }",
     ".func f(.param .align 8 .b8 p[24]) { .reg .b64 %a; .reg .b32 %u<6>; ld.param.b64 %a, [p];\n"
     "ld.param.b32 %u0, [p+8]; ld.param.v2.b32 {%u1, %u2}, [p+16]; or.b32 %u0, %u0, %u1;\n"
     "or.b32 %u0, %u0, %u2; st.global.u32 [%a], %u0; ret; }"},
    {"parameter_stored_by_others",
     "setp.eq.u64 %p1, %rd1, 0; { .param .b64 a; .param .b32 b; @%p1 st.param.b32 [b], 0;\n"
     "st.param.b64 [a], %rd1; call f, (a, b); }",
     ".func f(.param .b64 p, .param .b32 q) { .reg .b64 %a; .reg .b32 %u; ld.param.b64 %a, [p];\n"
     "ld.param.b32 %u, [q]; st.global.u32 [%a], %u; ret; }"},
    {"parameter_of_the_call_before",
     "{ .param .b64 a; .param .b32 b; st.param.b64 [a], %rd1; st.param.b32 [b], 0x05050505;\n"
     "call f, (a, b); st.param.b64 [a], %rd1; st.param.b8 [b+1], 0; call f, (a, b); }",
     ".func f(.param .b64 p, .param .b32 q) { .reg .b64 %a; .reg .b32 %u; ld.param.b64 %a, [p];\n"
     "ld.param.b32 %u, [q]; st.global.u32 [%a], %u; ret; }"},
    {"result", "{ .param .b32 r; call (r), f; ld.param.b32 %r1, [r]; }\nst.global.u32 [%rd1], %r1;",
     ".func (.param .b32 q) f() { ret; }"},
    {"result_of_nothing",
     "{ .param .b32 r; call (r), f; ld.param.b32 %r1, [r]; }\nst.global.u32 [%rd1], %r1;",
     ".func (.param .b32 q) f() { }"},
    {"result_of_another_way",
     "{ .param .b64 a; .param .b32 r; st.param.b64 [a], %rd1; call (r), f, (a);\n"
     "ld.param.b32 %r1, [r]; }\nst.global.u32 [%rd1], %r1;",
     ".func (.param .b32 q) f(.param .b64 p) { .reg .b64 %a; .reg .pred %u; ld.param.b64 %a, [p];\n"
     "setp.ne.u64 %u, %a, 0; @%u ret; st.param.b32 [q], 0; ret; }"},
    {"result_of_a_branch",
     "{ .param .b64 a; .param .b32 r; st.param.b64 [a], %rd1; call (r), f, (a);\n"
     "ld.param.b32 %r1, [r]; }\nst.global.u32 [%rd1], %r1;",
     ".func (.param .b32 q) f(.param .b64 p) { .reg .b64 %a; .reg .pred %u; ld.param.b64 %a, [p];\n"
     "setp.ne.u64 %u, %a, 0; @%u bra OTHER; st.param.b32 [q], 0; ret;\nOTHER: ret; }"},
    {"result_of_other_threads",
     "{ .param .b64 a; .param .b32 r; st.param.b64 [a], %rd1; call (r), f, (a);\n"
     "ld.param.b32 %r1, [r]; }\nst.global.u32 [%rd1], %r1;",
     ".func (.param .b32 q) f(.param .b64 p) { .reg .b64 %a; .reg .pred %u; ld.param.b64 %a, [p];\n"
     "setp.eq.u64 %u, %a, 0; @%u st.param.b32 [q], 0; ret; }"},
    {"hole_in_a_result",
     "{ .param .align 8 .b8 r[16]; call (r), f; ld.param.b32 %r1, [r+4]; }\n"
     "st.global.u32 [%rd1], %r1;",
     ".func (.param .align 8 .b8 q[16]) f() { st.param.b32 [q], 0; st.param.b64 [q+8], 0; ret; }"},
};

constexpr Form kForms[] = {Form::kFenced, Form::kFencedAndClaimed, Form::kContained,
                           Form::kContainedAndClaimed};

// Runs this form of the kernel, and returns the value that the kernel stores.
std::uint64_t Seen(FenceBench& bench, Form form) {
  const std::uint64_t address = bench.ranges().client() + kOut;
  auto* out = reinterpret_cast<std::uint64_t*>(address);
  FenceLaunch launch{.kernel = "k", .grid = {}, .block = {}, .parameters = {}};
  launch.grid = launch.block = {1, 1, 1};
  launch.parameters.resize(sizeof address);
  std::memcpy(launch.parameters.data(), &address, sizeof address);
  *out = 0;
  EXPECT_EQ(bench.Run(form, launch), "") << "form " << static_cast<int>(form);
  return *out;
}

class Unwritten : public ::testing::TestWithParam<std::size_t> {};

TEST_P(Unwritten, IsZeroInFencedKernels) {
  const Reading& reading = kReadings[GetParam()];
  FenceBench bench(GetText(reading.body, reading.module), LeaveInEveryVariable);
  ASSERT_EQ(bench.Reason("k"), "");
  ASSERT_EQ(bench.ReasonOfContained("k"), "");
  EXPECT_NE(Seen(bench, Form::kPlain), 0u)
      << "the kernel must see another client's data without the fence";
  for (const Form form : kForms) EXPECT_EQ(Seen(bench, form), 0u) << static_cast<int>(form);
}

INSTANTIATE_TEST_SUITE_P(All, Unwritten, ::testing::Range<std::size_t>(0, std::size(kReadings)),
                         [](const auto& any) { return std::string(kReadings[any.param].name); });

// Zeros are written before every possible write, so that they never overwrite one.
TEST(Written, KeepsItsValue) {
  FenceBench bench(
      GetText("mov.u32 %r5, 1; @%p2 mov.u32 %r5, 7; setp.ne.u64 %p1, %rd1, 0;\n"
              "{ .param .align 4 .b8 a[8]; .param .align 4 .b8 r[8];\n"
              "@%p1 st.param.b32 [a], 2; st.param.b16 [a+4], 3; call (r), f, (a);\n"
              "ld.param.b32 %r1, [r]; ld.param.b32 %r2, [r+4]; }\n"
              "mad.lo.u32 %r1, %r1, 100, %r2; mad.lo.u32 %r1, %r5, 10000, %r1;\n"
              "add.cc.u32 %r2, 0xffffffff, 1; @%p1 bra NEXT;\nNEXT: addc.u32 %r1, %r1, 0;\n"
              "st.global.u32 [%rd1], %r1;",
              ".func (.param .align 4 .b8 q[8]) f(.param .align 4 .b8 p[8]) {\n"
              ".reg .b32 %a<2>; .reg .pred %u; ld.param.b32 %a0, [p]; ld.param.b32 %a1, [p+4];\n"
              "st.param.b32 [q+4], %a1; setp.ne.u32 %u, %a0, 0; @%u st.param.b32 [q], %a0;\n"
              "ret; }"),
      LeaveInEveryVariable);
  ASSERT_EQ(bench.Reason("k"), "");
  for (const Form form : kForms) EXPECT_EQ(Seen(bench, form), 10204u) << static_cast<int>(form);
}

// A branch may bypass the zero unless an unwritten value can be read.
TEST(Written, RegisterMayBeDeclaredLate) {
  FenceBench bench(GetText("bra L; .reg .b32 late;\n"
                           "L: mov.u32 late, 7; st.global.u32 [%rd1], late;",
                           ""),
                   LeaveInEveryVariable);
  ASSERT_EQ(bench.Reason("k"), "");
  for (const Form form : kForms) EXPECT_EQ(Seen(bench, form), 7u) << static_cast<int>(form);
}

TEST(UnwrittenRejected, NamesWhatCannotBeZeroed) {
  constexpr const char* kFunction =
      ".func (.param .b32 r) f(.param .b32 p) { .reg .b32 %u; st.param.b32 [r], 0; ret; }\n";
  const std::vector<Reading> cases = {
      {"'q' is read where no call has set it", "{ .param .b32 q; ld.param.b32 %r1, [q]; }"},
      {"'b' is read where no call has set it",
       "{ .param .b32 a, b; st.param.b32 [a], 0; call (b), f, (a);\n@%p1 bra L;\n"
       "L: ld.param.b32 %r1, [b]; }"},
      {"'a' is read where no call has set it",
       "{ .param .b32 a, b; st.param.b32 [a], 0; call (b), f, (a); ld.param.b32 %r1, [a]; }"},
      {"results of a call that only some threads make",
       "{ .param .b32 a, b; st.param.b32 [a], 0; @%p1 call (b), f, (a); ld.param.b32 %r1, [b]; }"},
      {"a parameter of a call is not stored right before the call",
       "{ .param .b32 a, b; st.param.b32 [a], 0;\n@%p1 bra L;\nL: call (b), f, (a); }"},
      {"a parameter of a call is not stored right before the call",
       "{ .param .b32 a, b, c; st.param.b32 [a], 0; st.param.b32 [c], 0; call (b), f, (a); }"},
      {"'b' is read where no call has set it",
       "{ .param .b32 a, b, c; st.param.b32 [a], 0; call (b), f, (a); st.param.b32 [a], 0;\n"
       "call (c), f, (a); ld.param.b32 %r1, [b]; }"},
      {"register 'n' of type b8 is read where nothing wrote it",
       "{ .reg .b8 n; st.global.b8 [%rd1], n; }"},
      {"register 'late', declared after an instruction, is read where nothing wrote it",
       "bra L; .reg .b32 late;\nL: st.global.u32 [%rd1], late;"},
      {"register 'late', declared after an instruction, is read where nothing wrote it",
       "{ bra L; .reg .b32 late;\nL: st.global.u32 [%rd1], late; }"},
      {"register 'late', declared after an instruction, is read where nothing wrote it",
       "{ .reg .b32 t;\nL: { } .reg .b32 late; mov.u32 t, late; st.global.u32 [%rd1], t; }"},
      {"'s' is read where no call has set it", "{ .param .b32 b; call (b), g; }",
       ".func (.param .b32 s) g() { .reg .b32 %u; ld.param.b32 %u, [s]; ret; }\n"},
      {"result 's' is passed on", "{ .param .b32 b; call (b), g; }",
       ".func h(.param .b32 p) { ret; }\n.func (.param .b32 s) g() { call h, (s); ret; }\n"},
      {"results that cannot be zeroed", "{ .reg .b16 b; call (b), g; }",
       ".func (.reg .b16 s) g() { ret; }\n"},
      {"more bytes of parameters than can be zeroed",
       "{ .param .align 8 .b8 a[4096]; call g, (a); }",
       ".func g(.param .align 8 .b8 p[4096]) { ret; }\n"},
  };
  for (const auto& [reason, body, module] : cases) {
    const std::string text = GetText(body, std::string(kFunction) + module);
    const Result<ptx::Module> parsed = ptx::Parse(text);
    ASSERT_TRUE(parsed) << parsed.status().message() << body;
    const Result<ptx::Fenced> fenced = ptx::Fence(*parsed, kRangeBytes);
    ASSERT_TRUE(fenced) << fenced.status().message();
    EXPECT_THAT(fenced->kernels.at(0).reason, HasSubstr(reason)) << body;
    EXPECT_THAT(fenced->kernels.at(0).reason, HasSubstr("line ")) << body;
  }
}

}  // namespace
}  // namespace gpushared::testing
