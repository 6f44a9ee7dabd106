// SPDX-License-Identifier: Apache-2.0
// The executor rejects unsupported entries by name before they run, every one with its PTX line. A
// kernel next to it in the same module still runs.
#include <initializer_list>
#include <string>
#include <variant>

#include <gmock/gmock.h>

#include "common/ptx/text/parser.h"
#include "server/ptx/analysis/variable_layout.h"
#include "tests/executor/launcher.h"
#include "tests/executor/op_harness.h"

namespace gpushared::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kHeader = ".version 9.0\n.target sm_90\n.address_size 64\n";

std::string Unsupported(const std::string& body, const std::string& declarations = "") {
  Launcher launcher(65536, device::executor::Flavour::kBaseline);
  launcher.Load(
      kHeader + declarations + ".visible .entry k(.param .u64 a) {\n" +
      "  .reg .b16 %h<4>; .reg .b32 %r<9>; .reg .b64 %d<9>; .reg .pred %p<4>; .reg .b32 %t<9>;\n" +
      body + "\n  ret;\n}\n");
  return launcher.Kernel("k").info().unsupported;
}

TEST(Rejections, EachMissingInstructionIsNamedWithItsLine) {
  const std::string text = Unsupported(
      "  tex.a2d.v4.f32.f32 {%r0, %r1, %r2, %r3}, [%d0, {%r4, %r5, %r6, %r6}];\n"
      "  add.u32 %r0, %r0, 1;\n"
      "  mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 {%r0, %r1, %r2, %r3}, {%r0, %r1}, "
      "{%r4, %r5}, {%r0, %r1, %r2, %r3};\n"
      "  cp.async.bulk.shared.global [%r0], [%d0], 16, [%r1];");
  EXPECT_THAT(text, HasSubstr("line 6: tex.a2d.v4.f32.f32 (of textures, this device has "));
  EXPECT_THAT(text, HasSubstr("line 8: mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32"));
  EXPECT_THAT(text, HasSubstr("line 9: cp.async.bulk.shared.global"));
  EXPECT_THAT(text, Not(HasSubstr("add.u32")));
}

// CUDA's headers write the modifiers after the type.
TEST(Rejections, FtzAndSatMayFollowTheType) {
  EXPECT_EQ(Unsupported("  lg2.approx.f32.ftz %r0, %r1;\n"
                        "  add.rn.f32.ftz.sat %r0, %r1, %r2;\n"
                        "  cvt.rni.s32.f32.ftz %r0, %r1;"),
            "");
  EXPECT_THAT(Unsupported("  lg2.approx.f32.wild %r0, %r1;"), HasSubstr("lg2.approx.f32.wild"));
}

struct Rejected {
  const char* code;
  const char* named;
};
void ExpectRejected(std::initializer_list<Rejected> cases) {
  for (const auto& [code, named] : cases) {
    EXPECT_THAT(Unsupported(code), HasSubstr(std::string("line 6: ") + named)) << code;
  }
}

// An unknown modifier must not be dropped, because the result would be wrong.
TEST(Rejections, UnknownModifiersAreNotIgnored) {
  ExpectRejected({
      {"add.rn.wild.f32 %r0, %r1, %r2;", "add.rn.wild.f32"},
      {"min.xorsign.f32 %r0, %r1, %r2;", "min.xorsign.f32"},
      {"min.xorsign.abs.f64 %d0, %d1, %d2;", "min.xorsign.abs.f64"},
      {"min.f32 %r0, %r1, %r2, %r3;", "min.f32"},
      {"setp.lt.nand.s32 %p0, %r1, %r2, %p1;", "setp.lt.nand.s32"},
      {"setp.almost.s32 %p0, %r1, %r2;", "setp.almost.s32"},
      {"setp.lt.wild.s32 %p0, %r1, %r2;", "setp.lt.wild.s32"},
      {"set.lt.wild.u32.s32 %r0, %r1, %r2;", "set.lt.wild.u32.s32"},
      {"selp.wild.b32 %r0, %r1, %r2, %p0;", "selp.wild.b32"},
      {"slct.wild.b32.s32 %r0, %r1, %r2, %r3;", "slct.wild.b32.s32"},
      {"mov.wild.b32 %r0, %r1;", "mov.wild.b32"},
      {"and.wild.pred %p0, %p1, %p2;", "and.wild.pred"},
      {"add.cc.wild.u32 %r0, %r1, %r2;", "add.cc.wild.u32"},
      {"cvta.wild.to.global.u64 %d0, %d1;", "cvta.wild.to.global.u64"},
      {"ld.wild.global.u32 %r0, [%d0];", "ld.wild.global.u32"},
      {"st.global.wild.u32 [%d0], %r0;", "st.global.wild.u32"},
      {"ld.global.v3.u32 {%r0, %r1, %r2}, [%d0];", "ld.global.v3.u32"},
      {"ld.shared::cluster.u32 %r0, [%d0];", "ld.shared::cluster.u32"},
      {"atom.global.nand.b32 %r0, [%d0], %r1;", "atom.global.nand.b32"},
      {"atom.global.add.wild.u32 %r0, [%d0], %r1;", "atom.global.add.wild.u32"},
      {"atom.global.min.f32 %r0, [%d0], %r1;", "atom.global.min.f32"},
      {"red.global.add.v2.u32 [%d0], {%r0, %r1};", "red.global.add.v2.u32"},
      {"red.global.v2.f32.add [%d0], {%r0, %r1, %r2};", "red.global.v2.f32.add"},
      {"atom.global.v4.f16.min {%h0, %h1, %h2, %h3}, [%d0], {%h0, %h1, %h2, %h3};",
       "atom.global.v4.f16.min"},
      {"shfl.sync.sideways.b32 %r0, %r1, 1, 31, -1;", "shfl.sync.sideways.b32"},
      {"vote.sync.most.pred %p0, %p1, -1;", "vote.sync.most.pred"},
      {"redux.sync.add.f32 %r0, %r1, -1;", "redux.sync.add.f32"},
      {"bar.wild 0;", "bar.wild"},
      {"barrier.cluster.arrive;", "barrier.cluster.arrive"},
      {"bar.red.xor.pred %p0, 0, %p1;", "bar.red.xor.pred"},
      {"cvt.rn.satfinite.e4m3x2.f32 %h0, %r0, %r1;", "cvt.rn.satfinite.e4m3x2.f32"},
      {"cvt.rs.f16x2.f32 %r0, %r1, %r2, %r3;", "cvt.rs.f16x2.f32"},
      {"lop3.xor.b32 %r0|%p0, %r1, %r2, %r3, 0x80, %p1;", "lop3.xor.b32"},
      {"vadd.s32.s32.s32 %r0, %r1, %r2;", "vadd.s32.s32.s32"},
      {"vabsdiff4.u32.u32.u32 %r0, %r1.b7654, %r2, %r3;", "vabsdiff4.u32.u32.u32"},
      {"vabsdiff4.u32.s32.s32 %r0, %r1, %r2, %r3;", "vabsdiff4.u32.s32.s32"},
      {"max.relu.u32 %r0, %r1, %r2;", "max.relu.u32"},
      {"cvt.pack.sat.s8.s32 %r0, %r1, %r2;", "cvt.pack.sat.s8.s32"},
      {"szext.s32 %r0, %r1, %r2;", "szext.s32"},
      {"alloca.u64 %d0, %d1, 3;", "alloca.u64"},
      {"ld.global.b128 %d0, [%d1];", "ld.global.b128"},
      {"atom.global.exch.b128 %d0, [%d1], %d2;", "atom.global.exch.b128"},
      {"isspacep.nowhere %p0, %d0;", "isspacep.nowhere"},
      {"nanosleep.wild.u32 5;", "nanosleep.wild.u32"},
      {"membar.wild;", "membar.wild"},
      {"mov.b128 %d0, {%d1, %d2};", "mov.b128"},
      {"griddepcontrol.wild;", "griddepcontrol.wild"},
      {"cp.async.ca.shared.global.wild [%r0], [%d0], 16;", "cp.async.ca.shared.global.wild"},
      {"cp.async.cg.shared.global [%r0], [%d0], 8;", "cp.async.cg.shared.global"},
      {"cp.async.ca.shared.global [%r0], [%d0], %r1;", "cp.async.ca.shared.global"},
      {"cp.async.wait_group.wild 1;", "cp.async.wait_group.wild"},
      {"cp.async.mbarrier.arrive.shared.b64 [%d0];", "cp.async.mbarrier.arrive.shared.b64"},
      {"mbarrier.arrive.expect_tx.shared.b64 %d0, [%r0], 16;",
       "mbarrier.arrive.expect_tx.shared.b64"},
      {"mbarrier.expect_tx.relaxed.cta.shared.b64 [%r0], 16;",
       "mbarrier.expect_tx.relaxed.cta.shared.b64"},
      {"mbarrier.arrive.shared::cluster.b64 _, [%r0];", "mbarrier.arrive.shared::cluster.b64"},
      {"mbarrier.init.global.b64 [%d0], 1;", "mbarrier.init.global.b64"},
      {"ldmatrix.sync.aligned.m8n8.x2.wild.shared.b16 {%r0, %r1}, [%r2];",
       "ldmatrix.sync.aligned.m8n8.x2.wild.shared.b16"},
      {"ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r0}, [%r2];",
       "ldmatrix.sync.aligned.m8n8.x2.shared.b16"},
      {"movmatrix.sync.aligned.m8n8.b16 %r0, %r1;", "movmatrix.sync.aligned.m8n8.b16"},
      {"mma.sync.aligned.m16n8k8.row.col.f16.bf16.bf16.f16 {%r0, %r1}, {%r2, %r3}, {%r4}, "
       "{%r0, %r1};",
       "mma.sync.aligned.m16n8k8.row.col.f16.bf16.bf16.f16"},
      {"mma.sync.aligned.m16n8k8.row.row.f16.f16.f16.f16 {%r0, %r1}, {%r2, %r3}, {%r4}, "
       "{%r0, %r1};",
       "mma.sync.aligned.m16n8k8.row.row.f16.f16.f16.f16"},
      {"mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16 {%r0, %r1}, {%r2}, {%r4}, {%r0, %r1};",
       "mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16"},
      {"wmma.mma.sync.aligned.row.col.m16n16k8.f32.f32 {%r0}, {%r1}, {%r2}, {%r3};",
       "wmma.mma.sync.aligned.row.col.m16n16k8.f32.f32"},
      {"wmma.store.d.sync.aligned.row.m8n8k16.global.f32 [%d0], {%r1}, %r2;",
       "wmma.store.d.sync.aligned.row.m8n8k16.global.f32"},
  });
}

// The rejected forms: access by name, layers, cubes, samples, gradients, gathers, queries, separate
// samplers, offsets and residency.
TEST(Rejections, UnsupportedFormsOfTextures) {
  const std::string four = "{%r0, %r1, %r2, %r3}";
  const std::pair<std::string, std::string> cases[] = {
      {"tex.a1d.v4.f32.f32", four + ", [%d0, {%r4, %r5}]"},
      {"tex.cube.v4.f32.f32", four + ", [%d0, {%r4, %r5, %r6, %r6}]"},
      {"tex.acube.v4.f32.f32", four + ", [%d0, {%r4, %r5, %r6, %r7}]"},
      {"tex.2dms.v4.f32.s32", four + ", [%d0, {%r4, %r5, %r6, %r6}]"},
      {"tex.grad.2d.v4.f32.f32", four + ", [%d0, {%r4, %r5}], {%r6, %r6}, {%r7, %r7}"},
      {"tex.base.2d.v4.f32.f32", four + ", [%d0, {%r4, %r5}]"},
      {"tex.2d.v2.f16x2.f32", "{%r0, %r1}, [%d0, {%r4, %r5}]"},
      {"tex.2d.v4.f32.f32", four + ", [%d0, %d1, {%r4, %r5}]"},
      {"tex.2d.v4.f32.f32", four + ", [%d0, {%r4, %r5}], {%r6, %r6}"},
      {"tex.2d.v4.f32.f32", four + "|%p0, [%d0, {%r4, %r5}]"},
      {"tex.2d.v4.f32.f32", four + ", [%d0, {%r4}]"},
      {"tex.2d.v4.f32.f32", four + ", [%d0+64, {%r4, %r5}]"},
      {"tld4.r.a2d.v4.f32.f32", four + ", [%d0, {%r4, %r5, %r6, %r6}]"},
      {"txq.width.b32", "%r0, [%d0]"},
      {"suq.width.b32", "%r0, [%d0]"},
      {"suld.b.a2d.b32.trap", "{%r0}, [%d0, {%r4, %r5, %r6, %r6}]"},
      {"suld.b.2d.v4.b64.trap", "{%d0, %d1, %d2, %d3}, [%d0, {%r4, %r5}]"},
      {"suld.b.2d.b32.wrap", "{%r0}, [%d0, {%r4, %r5}]"},
      {"sust.p.2d.v4.b32.trap", "[%d0, {%r4, %r5}], " + four},
      {"sured.b.add.2d.u32.trap", "[%d0, {%r4, %r5}], %r0"},
  };
  for (const auto& [spelling, operands] : cases) {
    EXPECT_THAT(Unsupported("  " + spelling + " " + operands + ";"),
                HasSubstr("line 6: " + spelling + " (of textures, this device has "))
        << operands;
  }
  EXPECT_THAT(Unsupported("  tex.2d.v4.f32.f32 " + four + ", [picture, {%r4, %r5}];",
                          ".global .texref picture;\n"),
              HasSubstr("line 7: tex.2d.v4.f32.f32 (of textures, this device has "));
}

// Modifiers and types that exist in PTX, but not together: ptxas rejects them too.
TEST(Rejections, FormsThatPtxLacks) {
  const struct {
    const char* code;
    const char* named;
  } kCases[] = {
      {"add.rn.ftz.bf16 %h0, %h1, %h2;", "add.rn.ftz.bf16"},
      {"sub.sat.bf16x2 %r0, %r1, %r2;", "sub.sat.bf16x2"},
      {"fma.rn.ftz.relu.bf16 %h0, %h1, %h2, %h3;", "fma.rn.ftz.relu.bf16"},
      {"min.ftz.bf16x2 %r0, %r1, %r2;", "min.ftz.bf16x2"},
      {"neg.ftz.bf16 %h0, %h1;", "neg.ftz.bf16"},
      {"ex2.approx.bf16 %h0, %h1;", "ex2.approx.bf16"},
      {"ex2.approx.ftz.f16 %h0, %h1;", "ex2.approx.ftz.f16"},
      {"max.NaN.f64 %d0, %d1, %d2;", "max.NaN.f64"},
      {"setp.lt.ftz.bf16x2 %p0|%p1, %r0, %r1;", "setp.lt.ftz.bf16x2"},
      {"set.lt.ftz.bf16x2.bf16x2 %r0, %r1, %r2;", "set.lt.ftz.bf16x2.bf16x2"},
      {"cvt.rm.relu.f16.f32 %h0, %r0;", "cvt.rm.relu.f16.f32"},
      {"cvt.rn.sat.bf16.f32 %h0, %r0;", "cvt.rn.sat.bf16.f32"},
      {"cvt.sat.s64.u32 %d0, %r0;", "cvt.sat.s64.u32"},
      {"cvt.sat.u16.u16 %h0, %h1;", "cvt.sat.u16.u16"},
      {"ld.shared.v4.u64 {%d0, %d1, %d2, %d3}, [%r0];", "ld.shared.v4.u64"},
      {"st.local.v4.u64 [%r0], {%d0, %d1, %d2, %d3};", "st.local.v4.u64"},
      {"ld.volatile.shared.v4.u64 {%d0, %d1, %d2, %d3}, [%r0];", "ld.volatile.shared.v4.u64"},
      {"ld.param.v4.u64 {%d0, %d1, %d2, %d3}, [%d4];", "ld.param.v4.u64"},
      {"ld.relaxed.gpu.local.u32 %r0, [%r1];", "ld.relaxed.gpu.local.u32"},
      {"st.release.gpu.local.u32 [%r1], %r0;", "st.release.gpu.local.u32"},
      {"ld.relaxed.gpu.const.u32 %r0, [%d1];", "ld.relaxed.gpu.const.u32"},
      {"ld.volatile.param.u64 %d0, [a];", "ld.volatile.param.u64"},
  };
  for (const auto& c : kCases) {
    EXPECT_THAT(Unsupported(c.code), HasSubstr(std::string("line 6: ") + c.named)) << c.code;
  }
  const std::string argument =
      "{ .param .align 16 .b8 x[32];\n  st.param.v4.b64 [x], {%d0, %d1, %d2, %d3}; }";
  EXPECT_THAT(Unsupported(argument), HasSubstr("line 7: st.param.v4.b64"));
}

TEST(Rejections, InvalidOperands) {
  EXPECT_THAT(Unsupported("mov.u32 %r0, %pm8;"), HasSubstr("special register %pm8"));
  EXPECT_THAT(Unsupported("mov.u32 %r0, nobody;"), HasSubstr("unknown name 'nobody'"));
  EXPECT_THAT(Unsupported("add.u32 %r0, %r1, %p0;"), HasSubstr("add.u32 with operand %p0"));
  EXPECT_THAT(Unsupported("add.u32 %q, %r1, 1;"), HasSubstr("unknown register '%q'"));
  EXPECT_THAT(Unsupported("@%q add.u32 %r0, %r1, 1;"), HasSubstr("unknown predicate '%q'"));
  EXPECT_THAT(Unsupported("call nobody, ();"), HasSubstr("call of 'nobody'"));
  EXPECT_THAT(Unsupported("call %d0, ();"), HasSubstr("indirect call without a prototype"));
  const std::string parameters = ".param .b64 x; .param .b32 y; .param .b8 z; ";
  EXPECT_THAT(Unsupported(parameters + "call (z), vprintf, (x, x);"),
              HasSubstr("call with argument 'z'"));
  EXPECT_THAT(Unsupported(parameters + "call (y), vprintf, (x, y);"),
              HasSubstr("call with argument 'y'"));
  EXPECT_THAT(Unsupported(parameters + "call malloc, (x);"), HasSubstr("call of 'malloc'"));
  EXPECT_THAT(Unsupported(parameters + "call (x), malloc, (y);"),
              HasSubstr("call with argument 'y'"));
  EXPECT_THAT(Unsupported("ld.param.u64 %d0, [a+4];"), HasSubstr("ld.param.u64 outside 'a'"));
  EXPECT_THAT(Unsupported("lop3.b32 %r0, %r1, %r2, %r3, %r4;"), HasSubstr("lop3.b32"));
  EXPECT_THAT(Unsupported("add.u32 %r0, %r1;"), HasSubstr("add.u32"));
}

TEST(Rejections, InstructionsWithoutTheirTypes) {
  ExpectRejected({
      {"vote %p0, %p1;", "vote"},
      {"shfl %r0, %r1, %r2, %r3;", "shfl"},
      {"slct %r0, %r1, %r2, %r3;", "slct"},
      {"slct.b32 %r0, %r1, %r2, %r3;", "slct.b32"},
      {"setp.lt %p0, %r1, %r2;", "setp.lt"},
      {"set.lt.u32 %r0, %r1, %r2;", "set.lt.u32"},
      {"mov %r0, %r1;", "mov"},
      {"atom %r0, [%d0], %r1;", "atom"},
      {"ld %r0, [%d0];", "ld"},
      {"cvt %r0, %r1;", "cvt"},
  });
}

// The list is complete however long it is, and contains each entry once.
TEST(Rejections, TheListIsComplete) {
  std::string body;
  for (int i = 0; i < 60; ++i) body += "  wild" + std::to_string(i) + ".u32 %r0, %r1;\n";
  const std::string text = Unsupported(body + body);
  for (int i = 0; i < 60 && !HasFailure(); ++i) {
    const std::string entry =
        "line " + std::to_string(6 + i) + ": wild" + std::to_string(i) + ".u32";
    EXPECT_THAT(text, HasSubstr(entry));
  }
  EXPECT_THAT(text, Not(HasSubstr("line 66")));
}

TEST(Rejections, CallersInheritUnsupportedInstructions) {
  const std::string declarations =
      ".func helper(.param .b32 x) {\n  .reg .b32 %r<3>;\n  wild.u32 %r0, %r1;\n  ret;\n}\n";
  EXPECT_THAT(
      Unsupported("{ .param .b32 x; st.param.b32 [x], %r0; call helper, (x); }", declarations),
      HasSubstr("line 6: wild.u32"));
  EXPECT_EQ(Unsupported("add.u32 %r0, %r0, 1;", declarations), "");
}

// Without this rejection, the initialiser of the first variable would be written to the smaller
// second one.
TEST(Rejections, TwoVariablesWithTheSameName) {
  const auto module =
      ptx::Parse(std::string(kHeader) + ".global .b8 x[100] = {1, 2, 3};\n.global .b8 x[1];\n");
  ASSERT_TRUE(module.ok()) << module.status().message();
  const Status status = ptx::LayOutModule(*module).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("line 5"));
  EXPECT_THAT(status.message(), HasSubstr("'x': the name is declared twice"));
}

Status LayOut(const std::string& variables) {
  const auto module = ptx::Parse(std::string(kHeader) + variables);
  return module ? ptx::LayOutModule(*module).status() : module.status();
}

TEST(Rejections, AddressesInInitialisersAreNotNested) {
  EXPECT_TRUE(LayOut(".global .b64 x;\n.global .u64 y[3] = {generic(x), generic(x)+8, x};").ok());
  std::string nested;
  for (int i = 0; i < 200'000; ++i) nested += "generic(";
  nested += 'x';
  const Status status = LayOut(".global .b64 x;\n.global .u64 y = " + nested + ";");
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("line 5"));
}

TEST(Rejections, VariablesBeyondTheSizeLimit) {
  EXPECT_TRUE(LayOut(".global .b8 x[1000];").ok());
  const Status status = LayOut(".global .b8 x[268435456];\n.global .b8 y;");
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("'y': variables of the module exceed 268435456 bytes"));
}

// Every kernel gets its own copy of all code that it calls, so without a limit the same function
// would be decoded once for each kernel of the text.
TEST(Rejections, TotalDecodedStatementsAreLimited) {
  constexpr std::size_t kKernels = 64;
  std::string text = std::string(kHeader) + ".func f() { ret; }\n";
  for (std::size_t k = 0; k < kKernels; ++k) {
    text += ".visible .entry k" + std::to_string(k) + "() { call f; ret; }\n";
  }
  Result<ptx::Module> module = ptx::Parse(text);
  ASSERT_TRUE(module) << module.status().message();
  auto& f = std::get<ptx::Function>(module->items.front());
  const auto decode = [&] {
    return device::executor::DecodeModule(*module, {}, 0, device::executor::Flavour::kBaseline);
  };
  const auto fill = [&](std::size_t statements) {
    f.body->insert(f.body->begin(), statements, ptx::Directive{{}, ".pragma \"\";"});
  };
  // Number of statements that may be decoded for each kernel. Five of them are the kernel itself,
  // the two statements in it, the function, and the function's `ret`.
  const std::size_t each = device::executor::kDecodedStatementsMax / kKernels;
  fill(each - 5);
  EXPECT_TRUE(decode());
  fill(1);
  const auto rejected = decode();
  ASSERT_FALSE(rejected);
  EXPECT_EQ(rejected.status().code(), StatusCode::kLimitExceeded);
  EXPECT_THAT(std::string(rejected.status().message()), HasSubstr("'k63'"));
  EXPECT_THAT(std::string(rejected.status().message()), HasSubstr("4194304"));
}

}  // namespace
}  // namespace gpushared::testing
