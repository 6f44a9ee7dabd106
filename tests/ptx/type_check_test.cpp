// SPDX-License-Identifier: Apache-2.0
// Texts that the ptxas of CUDA 13.0 accepts, and texts that it rejects. If a ptxas is installed,
// the tables are compared with it, and so are the verdicts on random types of operands.
#include "server/ptx/analysis/type_check.h"

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "common/ptx/text/parser.h"
#include "tests/support/read_file.h"
#include "tests/support/scratch_directory.h"

namespace gpushared::ptx {
namespace {

constexpr const char* kHeader = ".version 8.6\n.target sm_90\n.address_size 64\n";
constexpr const char* kRegisters =
    ".reg .pred p; .reg .u16 h; .reg .b16 g; .reg .u32 r; .reg .s32 i; .reg .b32 w; .reg .u64 x; "
    ".reg .s64 l; .reg .b64 z; .reg .f16 e; .reg .f16x2 v; .reg .f32 f; .reg .f64 d; "
    ".reg .b32 %a<3>;\n";

std::string GetText(const std::string& code, const std::string& module_scope = "") {
  return kHeader + module_scope + "\n.visible .entry k(.param .u64 o) {\n" + kRegisters + code +
         "\nret; }\n";
}

Status GetCheck(const std::string& text) {
  const Result<Module> module = Parse(text);
  return module ? CheckTypes(*module) : module.status();
}

bool HasAssembler() {
  return std::filesystem::exists(std::string(GPUSHARED_TEST_CUDA_BIN) + "/ptxas");
}
// Returns ptxas's report on a text; nothing if it accepts the text.
std::string ReportOn(const std::string& text) {
  const testing::ScratchDirectory scratch;
  const std::string in = scratch / "in.ptx", report = scratch / "report";
  std::ofstream(in, std::ios::binary) << text;
  const int code = std::system((std::string(GPUSHARED_TEST_CUDA_BIN) + "/ptxas -arch=sm_90 " + in +
                                " -o /dev/null > " + report + " 2>&1")
                                   .c_str());
  return code == 0 ? "" : "rejected\n" + testing::ReadFile(report);
}

// Returns which of these codes ptxas accepts, as kernels of four lines each. ptxas reports the
// lines of nearly all errors of a text. If it rejects a text without naming a line, each remaining
// code is tested alone.
std::vector<bool> TakenByPtxas(const std::vector<std::string>& codes) {
  std::vector<bool> is_taken(codes.size(), true);
  for (bool names_lines = true; names_lines;) {
    std::string text = kHeader;
    for (std::size_t i = 0; i < codes.size(); ++i) {
      text += ".visible .entry k" + (i == 0 ? "" : std::to_string(i)) + "(.param .u64 o) {\n" +
              kRegisters + (is_taken[i] ? codes[i] : "") + "\nret; }\n";
    }
    std::istringstream report(ReportOn(text));
    if (report.str().empty()) return is_taken;
    names_lines = false;
    for (std::string line; std::getline(report, line);) {
      const std::size_t at = line.find(", line ");
      if (at == std::string::npos || line.find("; error") == std::string::npos) continue;
      is_taken.at((std::stoul(line.substr(at + 7)) - 4) / 4) = false;
      names_lines = true;
    }
  }
  for (std::size_t i = 0; i < codes.size(); ++i) {
    is_taken[i] = is_taken[i] && ReportOn(GetText(codes[i])).empty();
  }
  return is_taken;
}

struct Example {
  const char* code;
  const char* module_scope = "";
};

constexpr Example kTaken[] = {
    {"add.u32 r, i, w; add.s64 l, x, z; add.f32 f, f, w; add.f16 e, e, g;"},
    {"add.f32 f, f, 1.0; add.f64 d, d, 0f3F800000; add.f32 f, f, 0d3FF0000000000000;"},
    {"and.b32 w, f, v; xor.b16 g, h, e; or.b64 z, d, l; not.pred p, p; and.pred p, p, !p;"},
    {"mov.b32 w, f; mov.b32 f, 1; mov.b32 r, 0f3F800000; mov.b64 z, 0d3FF0000000000000;"},
    {"mov.u32 r, %tid.x; mov.u16 h, %tid.x; mov.b32 w, %laneid; mov.u64 x, %clock64;"},
    {"mov.b32 w, {h, g}; mov.b32 {h, _}, w; mov.b64 z, {r, r}; mov.u64 x, k;"},
    {"mov.u16 h, 70000; mov.u32 r, -5000000000; add.u32 r, r, WARP_SZ;"},
    {"ld.global.u8 w, [x]; ld.global.u8 h, [z]; ld.global.f32 z, [x]; ld.global.b32 d, [x];"},
    {"ld.shared.u32 r, [w]; ld.shared.u32 r, [x]; ld.const.u32 r, [r]; ld.param.u32 r, [o+4];"},
    {"ld.global.v2.u32 {r, _}, [x]; st.global.v2.f32 [x], {f, f}; st.global.u8 [x], l;"},
    {"st.global.f32 [x], 1.0; st.global.u32 [x], 1; st.global.b32 [x], 0f3F800000;"},
    {"cvt.u64.u32 x, %tid.x; cvt.u32.u16 x, r; cvt.rn.f16x2.f32 v, f, f; cvt.f64.f32 d, f;"},
    {"cvt.rzi.u32.f32 r, f; cvt.rn.f32.u32 f, r; cvt.f32.f32 f, f; cvt.u32.u32 r, 1;"},
    {"setp.eq.and.u32 p, r, r, !p; setp.eq.u32 p|_, r, i; setp.lt.f32 p, f, w;"},
    {"selp.b32 w, f, r, p; selp.b32 w, 0f3F800000, 0f00000000, p; slct.f32.s32 f, f, f, i;"},
    {"mul.wide.u16 r, h, g; mad.wide.s32 l, i, w, l; shl.b64 z, d, r; popc.b64 r, l;"},
    {"atom.global.add.f32 f, [x], w; atom.global.cas.b64 z, [x], l, x; red.global.add.u32 [x], i;"},
    {"div.full.f32 f, f, f; sqrt.approx.f32 f, f; fma.rn.f16x2 v, w, v, v;"},
    {"bar.sync 15; bar.sync 0, 64; bar.warp.sync -1; bar.red.popc.u32 r, 3, p;"},
    {"add.u32 %a0, %a1, %a2; { .reg .f32 r; add.f32 r, r, f; } add.u32 r, r, r;"},
    {"{ L: bra M; M: } { L: }"},
    {"vadd.s32.u32.s32 i, r, w; vadd.sat.u32.s32.s32 r.b1, 5, i.h1, 7; vmin.s32.u32.s32.max i, r, "
     "i, i;"},
    {"vshl.u32.u32.u32.clamp.sat r, r, r; vset.u32.s32.lt.add r, r, i, r; vadd.s32.s32.s32 i, i, "
     "i, i;"},
    {"vmad.s32.s32.u32.shr7.sat i, -i.b0, r, w; vmad.u32.u32.u32.po r, r, 3, r; "
     "vmad.s32.s32.s32 i, -i, -w, -i;"},
    {"vabsdiff4.u32.u32.u32.add r, r, r, r; vadd2.s32.s32.s32.sat i.h0, i.h33, w.h00, i; "
     "vset4.u32.s32.ne r.b310, r.b7654, i.b0123, r;"},
    {"mad24.hi.sat.s32 i, i, w, i; mov.u32 r, %pm0; mov.u64 x, %pm7_64;"},
    {"max.relu.s32 i, i, i; min.s16x2.relu w, w, w; szext.wrap.s32 i, w, r; szext.clamp.u32 r, 5, "
     "3;"},
    {"cvt.pack.sat.s16.s32 w, i, r; cvt.pack.u8.sat.s32.b32 w, 3, i, w; "
     "cvt.pack.sat.s4.s32.b32 w, i, i, 0;"},
    {".reg .b128 q, t; mov.b128 q, {z, d}; mov.b128 q, {r, 5, i, w}; mov.b128 {_, z}, t; mov.b128 "
     "q, 5;"},
    {".reg .b128 q, t; ld.relaxed.gpu.b128 q, [x]; st.global.b128 [x], 7; st.global.u32 [x], q; "
     "atom.global.cas.b128 q, [x], q, t; atom.shared.exch.b128 _, [r], t; atom.exch.b128 q, [x], "
     "3;"},
    {"red.global.v2.f32.add [x], {f, f}; atom.global.v4.f32.add {f, _, f, _}, [x], {f, f, f, f}; "
     "red.v8.bf16.add.noftz [x], {g, g, g, g, g, g, g, g}; red.global.add.v2.f32 [x], {f, f};"},
    {"lop3.or.b32 w|p, r, i, w, 0x80, !p; lop3.and.b32 _|p, r, i, w, 0x80, p;"},
    {"alloca.u64 x, 16; alloca.u64 x, z, 1; stacksave.u64 x; stackrestore.u64 x; alloca.u32 r, w;"},
    {".reg .v4 .f32 a; .reg .v2 .u32 b; mov.v4.f32 a, a; ld.global.v4.f32 a, [x]; mov.b64 z, b; "
     "mov.b64 b, z; mov.v2.u32 b, {r, r}; add.f32 a.x, a.y, a.b; ld.global.v2.f32 {a.x, a.w}, "
     "[x];"},
    {"call m, (r);", ".func m(.param .b32 a); .func n(.param .b32 a) { ret; } .alias m, n;"},
    {"mov.u64 x, m; call m; .alias m, n;", ".func m(); .func n() { ret; }"},
    {"ld.u32 r, [c]; mov.u64 x, c;", ".global .u32 c = 1;"},
    {"", ".func f(); .func f() { ret; } .extern .global .u32 e; .extern .global .u32 e;"},
};

constexpr Example kRejected[] = {
    {"add.f32 f, f, 1;"},
    {"add.u32 r, r, 1.0;"},
    {"add.u32 r, r, f;"},
    {"add.u32 r, r, h;"},
    {"add.u32 r, r, x;"},
    {"add.u32 r, r, p;"},
    {"add.u32 r, r, unknown;"},
    {"add.u32 %a0, %a1, %a3;"},
    {"add.u32 r, r;"},
    {"add.u32 r, r, r, r;"},
    {"add.u32 1, r, r;"},
    {"add.u32 r, %tid.x, 1;"},
    {"add.b32 w, w, w;"},
    {"add.rn.u32 r, r, r;"},
    {"and.u32 r, r, r;"},
    {"mul.u32 r, r, r;"},
    {"mul.lo.f32 f, f, f;"},
    {"neg.u32 r, r;"},
    {"mov.u64 x, f;"},
    {"mov.f32 f, r;"},
    {"mov.f32 f, 1;"},
    {"mov.u32 r, 1.5;"},
    {"mov.u32 r, 0f3F800000;"},
    {"mov.u64 x, %tid.x;"},
    {"mov.u32 r, %clock64;"},
    {"mov.u64 x, {r, r};"},
    {"mov.b64 z, {h, r};"},
    {"mov.u32 r, p;"},
    {"ld.global.u32 f, [x];"},
    {"ld.global.f32 d, [x];"},
    {"ld.global.u32 h, [x];"},
    {"ld.global.u32 r, [r];"},
    {"ld.u32 r, [w];"},
    {"ld.global.u32 r, [f];"},
    {"ld.global.v2.u32 r, [x];"},
    {"ld.global.u32 {r, r}, [x];"},
    {"ld.global.v2.u32 {r, x}, [x];"},
    {"ld.global.u32 r, x;"},
    {"st.global.f32 [x], 1;"},
    {"st.global.u32 [x], h;"},
    {"st.const.u32 [x], r;"},
    {"st.param.u64 [o], x;"},
    {"cvt.u32.f32 r, f;"},
    {"cvt.f32.u32 f, r;"},
    {"cvt.f32.f64 f, d;"},
    {"cvt.u32.u16 h, h;"},
    {"div.f32 f, f, f;"},
    {"fma.f32 f, f, f, f;"},
    {"ex2.f32 f, f;"},
    {"setp.lt.b32 p, w, w;"},
    {"setp.eq.u32 r, r, r;"},
    {"setp.eq.and.u32 p, r, r, r;"},
    {"selp.u32 r, r, r, r;"},
    {"shl.b32 w, w, x;"},
    {"mul.wide.u32 r, r, r;"},
    {"atom.global.add.u32 r, [x], f;"},
    {"atom.global.cas.b32 w, [x], w;"},
    {"@r ret;"},
    {".reg .b128 q; selp.b128 q, q, q, p;"},
    {".reg .b128 q; setp.eq.b128 p, q, q;"},
    {".reg .b128 q; mov.b128 q, {r, r, r};"},
    {".reg .b128 q; mov.b128 q, {h, h, h, h, h, h, h, h};"},
    {".reg .b128 q; atom.global.and.b128 q, [x], q;"},
    {".reg .b128 q; ld.global.v2.b128 {q, q}, [x];"},
    {"ld.global.b128 z, [x];"},
    {"alloca.b64 z, 16;"},
    {"alloca.s64 l, 16;"},
    {"alloca.u64 x, r;"},
    {"alloca.u64 x, 16, r;"},
    {"alloca.u64 x, 16, 3;"},
    {"alloca.u64 x, 16, 16777216;"},
    {"stackrestore.u64 5;"},
    {"stackrestore.u64 r;"},
    {"stacksave.s64 l;"},
    {".reg .v2 .u32 a, b; mov.u32 a, b;"},
    {".reg .v2 .u32 a, b; mov.b64 a, b;"},
    {".reg .v2 .u32 a; add.u32 a, a, a;"},
    {".reg .v4 .b64 a;"},
    {".reg .v2 .pred a;"},
    {"", ".func m() { ret; } .func n() { ret; } .alias m, n;"},
    {"", ".func m(); .alias m, n; .func n() { ret; }"},
    {"", ".func m(.param .b32 a); .func n() { ret; } .alias m, n;"},
    {"vadd.b32.s32.s32 w, i, i;"},
    {"vadd.s32.s32.s32 i, f, i;"},
    {"vadd.s32.s32.s32 i, x, i;"},
    {"vadd.s32.s32.s32 i, h, i;"},
    {"vadd.s32.s32.s32 i, i, 1.5;"},
    {"vadd.s32.s32.s32 p, i, i;"},
    {"vadd.s32.s32.s32 i, %tid.x, i;"},
    {"vadd.s32.s32.s32 i, -i, i;"},
    {"max.relu.f32 f, f, f;"},
    {"max.relu.f16 e, e, e;"},
    {"max.relu.u32 r, r, r;"},
    {"max.relu.s64 l, l, l;"},
    {"szext.u32 r, r, r;"},
    {"szext.clamp.b32 w, w, r;"},
    {"szext.clamp.s64 l, l, r;"},
    {"szext.wrap.s32 f, i, r;"},
    {"cvt.pack.s8.s32.b32 w, i, i, w;"},
    {"cvt.pack.sat.s8.s32 w, i, i;"},
    {"cvt.pack.sat.s16.s32.b32 w, i, i, w;"},
    {"cvt.pack.sat.s8.u32.b32 w, i, i, w;"},
    {"cvt.pack.sat.s16.s32 h, i, i;"},
    {"cvt.pack.sat.s16.s32 f, i, i;"},
    {"bar.sync 16;"},
    {"bar.sync 0, 33;"},
    {"L: ret; L:"},
    {"ld.global.u32 r, [c];", ".const .u32 c = 1;"},
    {"st.const.u32 [c], 5;", ".const .u32 c = 1;"},
    {"", ".visible .entry j() { ret; } .visible .entry j() { ret; }"},
    {"", ".func f() { ret; } .func f() { ret; }"},
    {"", ".func k() { ret; }"},
    {"", ".global .u32 c; .global .u32 c;"},
    {"", ".weak .global .u32 c; .weak .global .u32 c;"},
    {"", ".global .u32 f; .func f() { ret; }"},
};

TEST(TypeCheck, AcceptsWhatPtxasAccepts) {
  for (const Example& example : kTaken) {
    const Status status = GetCheck(GetText(example.code, example.module_scope));
    EXPECT_TRUE(status.ok()) << example.module_scope << example.code << ": " << status.message();
  }
}

TEST(TypeCheck, RejectsWhatPtxasRejects) {
  for (const Example& example : kRejected) {
    const Status status = GetCheck(GetText(example.code, example.module_scope));
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << example.module_scope << example.code;
    EXPECT_TRUE(status.message().find("line ") != std::string::npos) << status.message();
  }
}

TEST(TypeCheck, NamesLineAndInstruction) {
  EXPECT_EQ(GetCheck(GetText("add.u32 r, r, r;\nadd.u32 r, f, r;")).message(),
            "line 8: operand 2 of add.u32 has the wrong type, or is no register");
}

TEST(TypeCheck, TableAgreesWithPtxas) {
  if (!HasAssembler()) GTEST_SKIP() << "no ptxas in " << GPUSHARED_TEST_CUDA_BIN;
  const auto compare = [](std::span<const Example> examples, bool is_taken) {
    std::vector<std::string> codes;
    for (const auto& [code, module_scope] : examples) {
      if (*module_scope == '\0') {
        codes.push_back(code);
      } else {
        EXPECT_EQ(ReportOn(GetText(code, module_scope)).empty(), is_taken) << module_scope << code;
      }
    }
    const std::vector<bool> found = TakenByPtxas(codes);
    for (std::size_t i = 0; i < codes.size(); ++i) EXPECT_EQ(found[i], is_taken) << codes[i];
  };
  compare(kTaken, true);
  compare(kRejected, false);
}

// `$` and a letter stand for an operand: either the operand of this name, whose type fits, or a
// random one.
constexpr auto kForms = std::to_array<std::string_view>({"add.u32 $r, $r, $i",
                                                         "add.f32 $f, $f, $w",
                                                         "and.b32 $w, $r, $i",
                                                         "mov.u32 $r, $i",
                                                         "mov.b64 $z, $d",
                                                         "mov.f64 $d, $d",
                                                         "ld.global.u8 $h, [$x]",
                                                         "ld.global.b32 $f, [$x]",
                                                         "ld.shared.f64 $d, [$r]",
                                                         "st.global.u32 [$x], $r",
                                                         "cvt.u32.u16 $r, $h",
                                                         "cvt.rn.f16.f32 $e, $f",
                                                         "cvt.rzi.s32.f64 $i, $d",
                                                         "setp.lt.s32 $p, $i, $r",
                                                         "setp.ne.b64 $p, $z, $x",
                                                         "selp.f32 $f, $f, $w, $p",
                                                         "mul.wide.u16 $r, $h, $g",
                                                         "mad.lo.u64 $x, $z, $x, $l",
                                                         "fma.rn.f16 $e, $g, $e, $e",
                                                         "shr.b32 $w, $f, $w",
                                                         "bfe.s64 $l, $x, $r, $w",
                                                         "popc.b64 $r, $z",
                                                         "atom.global.add.u32 $r, [$x], $r",
                                                         "set.eq.u32.f32 $r, $f, $f",
                                                         "slct.u32.f32 $r, $r, $r, $f",
                                                         "prmt.b32 $w, $r, $w, $r"});
constexpr auto kOperands = std::to_array<std::string_view>(
    {"p", "h", "g", "r", "i", "w", "x", "l", "z", "e", "f", "d", "5", "0f3F800000", "nobody"});

std::string Vary(std::string_view form, std::mt19937& random) {
  std::string code;
  for (std::size_t i = 0; i < form.size(); ++i) {
    if (form[i] != '$') {
      code += form[i];
      continue;
    }
    const bool is_other = random() % 3 == 0;
    code += is_other ? std::string(kOperands[random() % kOperands.size()])
                     : std::string(1, form[i + 1]);
    ++i;
  }
  return code + ";";
}

TEST(TypeCheck, NeverRejectsRandomTypesThatPtxasAccepts) {
  if (!HasAssembler()) GTEST_SKIP() << "no ptxas in " << GPUSHARED_TEST_CUDA_BIN;
  std::mt19937 random(20);
  std::vector<std::string> codes(150);
  for (std::string& code : codes) code = Vary(kForms[random() % kForms.size()], random);
  const std::vector<bool> is_taken = TakenByPtxas(codes);
  int taken = 0, rejected = 0, missed = 0;
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const Status status = GetCheck(GetText(codes[i]));
    if (is_taken[i]) {
      ++taken;
      EXPECT_TRUE(status.ok()) << codes[i] << ": " << status.message();
    } else {
      ++rejected;
      missed += status.ok() ? 1 : 0;
    }
  }
  EXPECT_GT(taken, 20);
  EXPECT_GT(rejected, 20);
  EXPECT_LE(missed * 10, rejected) << "must find nine of ten wrong types";
}

}  // namespace
}  // namespace gpushared::ptx
