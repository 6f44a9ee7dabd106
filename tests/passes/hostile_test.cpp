// SPDX-License-Identifier: Apache-2.0
// Kernels that attack their neighbours' memory. Unfenced, each of them succeeds, because otherwise
// the test would prove nothing; fenced, none does, nor does a preemptible form.
#include <array>
#include <cstring>
#include <string>
#include <variant>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/ptx/text/editor.h"
#include "common/ptx/text/parser.h"
#include "common/ptx/text/printer.h"
#include "tests/passes/fence_bench.h"

namespace gpushared::testing {
namespace {

using ::testing::HasSubstr;

constexpr std::uint32_t kSecret = 0x5ec4e75e;
// Distance of the targets from the client's range: near enough for one immediate.
constexpr std::uint64_t kReach = 0x20000000;

struct Attack {
  const char* name;
  // In the kernel, %rd1 points to the client's memory, %rd2 to memory of the neighbour after the
  // client's range, and %rd3 to memory of the neighbour before it.
  const char* body;
  const char* module = "";  // Text before the kernel.
};

std::string KernelText(const Attack& attack, const char* target = "sm_80") {
  return std::string(".version 8.0\n.target ") + target + "\n.address_size 64\n" + attack.module +
         "\n.visible .entry k(.param .u64 out, .param .u64 above, .param .u64 below)\n{\n"
         ".reg .b64 %rd<16>;\n.reg .b32 %r<32>;\n.reg .pred %p<8>;\n"
         "ld.param.u64 %rd1, [out];\nld.param.u64 %rd2, [above];\nld.param.u64 %rd3, [below];\n" +
         attack.body + "\nret;\n}\n";
}

constexpr Attack kAttacks[] = {
    {"global_store", "st.global.u32 [%rd2], 6;"},
    {"global_load", "ld.global.u32 %r1, [%rd2]; st.global.u32 [%rd1], %r1;"},
    {"load_below", "ld.global.nc.u32 %r1, [%rd3]; st.global.u32 [%rd1], %r1;"},
    {"generic_store", "st.u32 [%rd2], 6;"},
    {"generic_load", "ld.volatile.u32 %r1, [%rd2]; st.u32 [%rd1], %r1;"},
    {"generic_load_beside_shared_memory",
     "cvta.shared.u64 %rd4, s; st.u32 [%rd4], 1; ld.u32 %r1, [%rd2]; st.u32 [%rd1], %r1;",
     ".shared .align 4 .b8 s[64];"},
    {"generic_load_beside_a_parameter",
     "mov.b64 %rd4, out; cvta.param.u64 %rd4, %rd4; ld.u64 %rd5, [%rd4]; ld.u32 %r1, [%rd2];\n"
     "st.u32 [%rd5], %r1;"},
    {"generic_store_beside_a_parameter",
     "mov.b64 %rd4, out; cvta.param.u64 %rd4, %rd4; sub.s64 %rd5, %rd2, %rd4; ld.u32 %r1, [%rd4];\n"
     "add.s64 %rd4, %rd4, %rd5; st.u32 [%rd4], 6;"},
    {"vector_store", "st.global.v4.u32 [%rd2], {%r1, %r2, %r3, %r4};"},
    {"vector_load",
     "ld.global.v2.u64 {%rd4, %rd5}, [%rd2]; st.global.v2.u64 [%rd1], {%rd4, %rd5};"},
    {"atomic", "atom.global.add.u32 %r1, [%rd2], 1; st.global.u32 [%rd1], %r1;"},
    {"generic_atomic", "atom.exch.b32 %r1, [%rd2], 1;"},
    {"reduction", "red.global.add.u32 [%rd3], 1;"},
    {"negative_offset", "add.s64 %rd4, %rd2, 64; st.global.u32 [%rd4+-64], 6;"},
    {"huge_immediate", "sub.s64 %rd4, %rd2, 0x40000000; st.global.u32 [%rd4+0x40000000], 6;"},
    {"huge_negative_immediate",
     "add.s64 %rd4, %rd3, 0x40000000; st.global.u32 [%rd4+-1073741824], 6;"},
    {"written_after_use",
     "ld.global.u32 %r1, [%rd1]; mov.u64 %rd1, %rd2; st.global.u32 [%rd1], 6;"},
    {"written_if",
     "ld.global.u32 %r1, [%rd1]; setp.eq.u32 %p1, %r1, 0;\n"
     "@%p1 mov.u64 %rd1, %rd2; st.global.u32 [%rd1], 6;"},
    {"written_by_load",
     "st.global.u64 [%rd1], %rd2; mov.u64 %rd4, %rd1; ld.global.u64 %rd5, [%rd4+8];\n"
     "ld.global.v2.u64 {%rd4, %rd5}, [%rd4]; st.global.u32 [%rd4], 6;"},
    {"written_in_loop",
     "mov.u64 %rd4, %rd1; mov.u32 %r1, 0;\nAGAIN: st.global.u32 [%rd4], 6;\n"
     "mov.u64 %rd4, %rd2; add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 2;\n"
     "@%p1 bra AGAIN;"},
    {"written_behind_its_use",
     "mov.u32 %r1, 0;\nAGAIN: @%p2 st.global.u32 [%rd4], 6; setp.eq.u32 %p2, %r1, 0;\n"
     "mov.u64 %rd4, %rd2; add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 2;\n@%p1 bra AGAIN;"},
    {"last_written_first",
     "mov.u32 %r1, 0; bra MIDDLE;\nTOP: mov.u64 %rd4, %rd2; bra USE;\n"
     "MIDDLE: mov.u64 %rd4, %rd1; st.global.u32 [%rd4], 5; bra TOP;\n"
     "USE: st.global.u32 [%rd4], 6;"},
    {"jump_over_the_mask",
     "mov.u64 %rd4, %rd2; setp.ne.u64 %p1, %rd1, 0;\n@%p1 bra OVER;\nld.global.u32 %r1, [%rd4];\n"
     "OVER: st.global.u32 [%rd4], 6;"},
    {"two_ways_one_mask",
     "mov.u64 %rd4, %rd2; setp.eq.u64 %p1, %rd1, 0;\n@%p1 bra LEFT;\nmov.u32 %r1, 6; bra JOIN;\n"
     "LEFT: ld.global.u32 %r1, [%rd4];\nJOIN: st.global.u32 [%rd4], %r1;"},
    {"same_name_in_two_scopes",
     "{ .reg .b64 %t; mov.u64 %t, %rd1; st.global.u32 [%t], 5; }\n"
     "{ .reg .b64 %t; mov.u64 %t, %rd2; st.global.u32 [%t], 6; }"},
    {"in_a_function", "{ .param .b64 a; st.param.b64 [a], %rd2; call f, (a); }",
     ".func f(.param .b64 p) { .reg .b64 %a; ld.param.b64 %a, [p]; st.global.u32 [%a], 6; ret; }"},
    {"in_a_function_of_registers", "call f, (%rd2, 6);",
     ".func f(.reg .u64 a, .reg .b32 n) { st.global.u32 [a], n; ret; }"},
    {"in_a_result_of_registers", "call (%rd4), f, (%rd2); st.global.u32 [%rd4], 6;",
     ".func (.reg .u64 r) f(.reg .u64 a) { mov.u64 r, a; }"},
    {"variable_as_base",
     "mov.u64 %rd4, g; sub.s64 %rd5, %rd2, %rd4; add.s64 %rd6, %rd4, %rd5;\n"
     "st.global.u32 [%rd6], 6;",
     ".global .b32 g;"},
    {"constant_as_base",
     "mov.u64 %rd4, c; sub.s64 %rd5, %rd2, %rd4; add.s64 %rd6, %rd4, %rd5;\n"
     "ld.const.u32 %r1, [%rd6]; st.global.u32 [%rd1], %r1;",
     ".const .b32 c = 3;"},
    {"strided_matrix",
     "sub.s64 %rd5, %rd2, 0x30000000; mov.u32 %r9, "
     "0x8000000;\nwmma.load.a.sync.aligned.row.m16n16k16.global.f16 "
     "{%r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8}, [%rd5], %r9;\n"
     "mov.u32 %r10, %laneid; mul.wide.u32 %rd4, %r10, 32; add.s64 %rd4, %rd4, %rd1;\n"
     "st.global.v4.b32 [%rd4], {%r1, %r2, %r3, %r4};\n"
     "st.global.v4.b32 [%rd4+16], {%r5, %r6, %r7, %r8};"},
    {"copy_without_waiting",
     "mov.u32 %r1, s; cp.async.ca.shared.global [%r1], [%rd2], 4; cp.async.wait_all;\n"
     "ld.shared.u32 %r2, [s]; st.global.u32 [%rd1], %r2;",
     ".shared .align 16 .b8 s[64];"},
};

class Hostile : public ::testing::TestWithParam<std::size_t> {
 protected:
  static std::uint64_t Above(FenceBench& bench) { return bench.ranges().above() + kReach; }
  static std::uint64_t Below(FenceBench& bench) {
    return bench.ranges().below() + bench.ranges().range_bytes() - kReach;
  }
  static std::array<std::uint32_t*, 2> Targets(FenceBench& bench) {
    return {reinterpret_cast<std::uint32_t*>(Above(bench)),
            reinterpret_cast<std::uint32_t*>(Below(bench))};
  }
  static std::uint32_t* Out(FenceBench& bench) {
    return reinterpret_cast<std::uint32_t*>(bench.ranges().client() + kOut);
  }

  static FenceLaunch Prepare(FenceBench& bench) {
    for (std::uint32_t* target : Targets(bench)) std::fill_n(target, 64, kSecret);
    std::fill_n(Out(bench), 256, 0u);
    FenceLaunch launch{.kernel = "k", .grid = {}, .block = {}, .parameters = {}};
    launch.grid = launch.block = {1, 1, 1};
    const std::uint64_t parameters[] = {bench.ranges().client() + kOut, Above(bench), Below(bench)};
    launch.parameters.resize(sizeof parameters);
    std::memcpy(launch.parameters.data(), parameters, sizeof parameters);
    return launch;
  }

  void TryIn(std::uint64_t range_bytes) const;
  void CompareIn(std::uint64_t range_bytes, std::uint64_t apart) const;

  // Returns whether a neighbour's bytes were changed, or appear in the client's memory.
  static bool Got(FenceBench& bench) {
    const auto is_secret = [](std::uint32_t word) { return word == kSecret; };
    for (const std::uint32_t* target : Targets(bench)) {
      if (!std::all_of(target, target + 64, is_secret)) return true;
    }
    // Half of a word is enough, because matrix fragments split it.
    return std::any_of(Out(bench), Out(bench) + 256, [](std::uint32_t word) {
      return (word & 0xffff) == (kSecret & 0xffff) || word >> 16 == (kSecret & 0xffff);
    });
  }
};

void Hostile::TryIn(std::uint64_t range_bytes) const {
  const Attack& attack = kAttacks[GetParam()];
  FenceBench bench(KernelText(attack), {}, range_bytes);
  ASSERT_EQ(bench.Reason("k"), "");
  FenceLaunch launch = Prepare(bench);
  if (std::string(attack.name) == "strided_matrix") launch.block = {32, 1, 1};
  ASSERT_EQ(bench.Run(Form::kPlain, launch), "");
  EXPECT_TRUE(Got(bench)) << "the attack must succeed without the fence";
  for (const Form form :
       {Form::kFenced, Form::kFencedAndClaimed, Form::kContained, Form::kContainedAndClaimed}) {
    if (!bench.Has(form, "k")) continue;
    Prepare(bench);
    bench.ranges().Forbid();
    EXPECT_EQ(bench.Run(form, launch), "") << "form " << static_cast<int>(form);
    EXPECT_EQ(bench.fault().place, 0u);
    bench.ranges().Allow();
    EXPECT_FALSE(Got(bench));
  }
}

TEST_P(Hostile, ReachesItsNeighboursOnlyUnfenced) { TryIn(kRangeBytes); }
TEST_P(Hostile, ReachesItsNeighboursOnlyUnfencedInALargeRange) { TryIn(16 * kRangeBytes); }

// Gives the same kernels their own memory: their results must not change.
void Hostile::CompareIn(std::uint64_t range_bytes, std::uint64_t apart) const {
  const Attack& attack = kAttacks[GetParam()];
  FenceBench bench(KernelText(attack), {}, range_bytes);
  FenceLaunch launch = Prepare(bench);
  if (std::string(attack.name) == "strided_matrix") launch.block = {32, 1, 1};
  const std::uint64_t base = bench.ranges().client();
  const std::array<std::uint64_t, 3> places = {base + kOut, base + apart, base + 2 * apart};
  std::memcpy(launch.parameters.data(), places.data(), sizeof places);
  std::array<std::vector<std::uint32_t>, 3> left;
  constexpr std::array kForms = {Form::kPlain, Form::kFenced, Form::kContained};
  for (std::size_t form = 0; form < kForms.size(); ++form) {
    for (const std::uint64_t place : places) {
      auto* words = reinterpret_cast<std::uint32_t*>(place);
      for (std::uint32_t i = 0; i < 256; ++i) words[i] = i * 77;
    }
    ASSERT_EQ(bench.Run(kForms[form], launch), "");
    for (const std::uint64_t place : places) {
      const auto* words = reinterpret_cast<const std::uint32_t*>(place);
      left[form].insert(left[form].end(), words, words + 256);
    }
  }
  EXPECT_EQ(left[0], left[1]);
  EXPECT_EQ(left[0], left[2]);
}
TEST_P(Hostile, ComputesTheSameInItsOwnMemory) { CompareIn(kRangeBytes, 0x30000000); }
TEST_P(Hostile, ComputesTheSameInALargeRange) { CompareIn(16 * kRangeBytes, 0x540000000); }

INSTANTIATE_TEST_SUITE_P(All, Hostile, ::testing::Range<std::size_t>(0, std::size(kAttacks)),
                         [](const auto& any) { return std::string(kAttacks[any.param].name); });

class Bounded : public Hostile {
 protected:
  // Runs the fenced form with all memory of other clients forbidden. Returns the word that the
  // kernel has stored in the client's memory.
  static std::uint32_t Run(const Attack& attack) {
    FenceBench bench(KernelText(attack));
    EXPECT_EQ(bench.Reason("k"), "");
    const FenceLaunch launch = Prepare(bench);
    bench.ranges().Forbid();
    EXPECT_EQ(bench.Run(Form::kFenced, launch), "");
    bench.ranges().Allow();
    return *Out(bench);
  }
};

TEST_F(Bounded, BranchesBeyondTheirListTakeItsLastEntry) {
  const char* body =
      "mov.u32 %r1, INDEX;\nbrx.idx %r1, TO;\nTO: .branchtargets A, B;\n"
      "A: mov.u32 %r2, 1; bra END;\nB: mov.u32 %r2, 2;\nEND: st.global.u32 [%rd1], %r2;";
  const auto with = [body](const char* index) {
    std::string text = body;
    text.replace(text.find("INDEX"), 5, index);
    return Run({.name = "", .body = text.c_str()});
  };
  EXPECT_EQ(with("0"), 1u);
  EXPECT_EQ(with("1"), 2u);
  EXPECT_EQ(with("2"), 2u);
  EXPECT_EQ(with("0xfffffff0"), 2u);
}

TEST_F(Bounded, LocalAccessesBeyondTheArrayStayInside) {
  const char* header =
      ".local .align 8 .b8 a[16]; .local .align 8 .b8 b[32];\n"
      "mov.u64 %rd4, a; mov.u64 %rd5, b;\n";
  const auto with = [header](const std::string& rest) {
    return Run({.name = "", .body = (header + rest).c_str()});
  };
  // The two arrays form one of 48 bytes.
  for (const char* offset : {"44", "48", "0x100000", "-4", "0x7fffffff"}) {
    EXPECT_EQ(with(std::string("add.s64 %rd6, %rd4, ") + offset +
                   "; st.local.u32 [%rd6], 7; ld.local.u32 %r1, [b+28];\n"
                   "st.global.u32 [%rd1], %r1;"),
              7u)
        << offset;
  }
  EXPECT_EQ(with("st.local.u32 [%rd5+4], 7; add.s64 %rd6, %rd5, 4; ld.local.u32 %r1, [%rd6];\n"
                 "st.global.u32 [%rd1], %r1;"),
            7u);
  EXPECT_EQ(with("st.local.u32 [b+8], 7; ld.local.u32 %r1, [%rd5+8];\n"
                 "st.global.u32 [%rd1], %r1;"),
            7u);
  EXPECT_EQ(with("cvta.local.u64 %rd6, %rd5; st.u32 [%rd6+1000], 7; ld.local.u32 %r1, [b+28];\n"
                 "st.global.u32 [%rd1], %r1;"),
            7u);
}

TEST_F(Bounded, ParameterAccessesBeyondTheLastStayInside) {
  const auto with = [](const std::string& offset) {
    return Run({.name = "",
                .body = ("mov.b64 %rd4, out; add.s64 %rd4, %rd4, " + offset +
                         "; ld.param.u32 %r1, [%rd4]; cvt.u32.u64 %r2, %rd3;\n"
                         "shr.u64 %rd5, %rd3, 32; cvt.u32.u64 %r3, %rd5; sub.u32 %r4, %r1, %r3;\n"
                         "st.global.u32 [%rd1], %r4;")
                            .c_str()});
  };
  // The last word of three addresses.
  for (const char* offset : {"20", "24", "4096", "0x7fffffff0", "-4"}) {
    EXPECT_EQ(with(offset), 0u) << offset;
  }
}

// cp.async zero-fills the missing part of a short source; the behaviour for a longer source is
// unspecified.
TEST_F(Bounded, CopiesReadOnlyAsMuchAsTheyWrite) {
  FenceBench bench(KernelText(
      {.name = "",
       .body = "mov.u32 %r1, s; mov.u32 %r3, 99; cp.async.ca.shared.global [%r1], [%rd1], 4, %r3;",
       .module = ".shared .align 16 .b8 s[64];"}));
  const std::string text = ptx::Print(bench.fenced().module);
  EXPECT_THAT(text, HasSubstr("cp.async"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("4, %r3;")));
}

// Data that other clients' kernels left in uninitialised memory. At the entry of `k`, LeaveResidue
// inserts stores of this value to every byte of kResidues.
constexpr int kLeft = 0xab;
struct Residue {
  const char* space;
  const char* name;
  int bytes;
};
constexpr Residue kResidues[] = {
    {"shared", "s", 40}, {"shared", "t", 23}, {"shared", "d", 21}, {"local", "l", 300}};

void LeaveResidue(ptx::Module& module) {
  ptx::ModuleEditor names(module);
  for (ptx::Item& item : module.items) {
    auto* kernel = std::get_if<ptx::Function>(&item);
    if (kernel == nullptr) continue;
    ptx::FunctionEditor editor(names, *kernel);
    for (const Residue& residue : kResidues) {
      for (int i = 0; i < residue.bytes; ++i) {
        editor.InsertAtEntry(ptx::Make(std::string("st.") + residue.space + ".u8",
                                       {ptx::Address(residue.name, i), ptx::Integer(kLeft)}));
      }
    }
    editor.InsertAtEntry(ptx::Make("bar.sync", {ptx::Integer(0)}));
    editor.Apply();
  }
}

TEST_F(Bounded, SharedAndLocalMemoryOfOthersCannotBeRead) {
  std::string body = ".local .align 4 .b8 l[300]; mov.u32 %r2, 0;\n";
  for (const Residue& residue : kResidues) {
    for (int i = 0; i < residue.bytes; ++i) {
      body += std::string("ld.") + residue.space + ".u8 %r1, [" + residue.name + "+" +
              std::to_string(i) + "]; or.b32 %r2, %r2, %r1;\n";
    }
  }
  body += "st.global.u32 [%rd1], %r2;";
  const Attack attack = {.name = "",
                         .body = body.c_str(),
                         .module =
                             ".shared .align 4 .b8 s[40];\n.shared .align 1 .b8 t[23];\n"
                             ".extern .shared .align 1 .b8 d[];\n"};
  FenceBench bench(KernelText(attack), LeaveResidue);
  ASSERT_EQ(bench.Reason("k"), "");
  FenceLaunch launch = Prepare(bench);
  launch.block = {3, 1, 1};
  launch.dynamic_shared_bytes = 21;
  ASSERT_EQ(bench.Run(Form::kPlain, launch), "");
  EXPECT_EQ(*Out(bench), static_cast<std::uint32_t>(kLeft));
  Prepare(bench);
  ASSERT_EQ(bench.Run(Form::kFenced, launch), "");
  EXPECT_EQ(*Out(bench), 0u);
}

// The fence rejects whatever it cannot bound, and names line and reason.
TEST(Rejected, NamesWhatCannotBeFenced) {
  constexpr std::array<std::array<const char*, 3>, 23> kCases = {{
      {"call through an argument", "call %rd2, P;\nP: .callprototype _ ();", "indirect calls"},
      {"overwritten function pointer",
       "mov.u64 %rd4, t; st.global.u64 [%rd4], %rd2; ld.global.u64 %rd5, [t];\ncall %rd5, P;\n"
       "P: .callprototype _ ();",
       "indirect calls"},
      {"another module's function", "call elsewhere;", "functions of other modules"},
      {"textures", "tex.1d.v4.f32.s32 {%r1, %r2, %r3, %r4}, [%rd2, {%r5}];", "textures"},
      {"printing", "call (%r1), vprintf, (%rd1, %rd2);", "printing"},
      {"heap", "call (%rd4), malloc, (%rd2);", "memory allocation in the kernel"},
      {"grid", "mov.u32 %r1, %envreg2;", "grid-wide synchronisation"},
      {"grid in a vector", "mov.b64 %rd4, {%envreg2, %r1};", "grid-wide synchronisation"},
      {"bulk copy", "cp.async.bulk.commit_group;", "'cp.async.bulk.commit_group' is not known"},
      {"hint about a tensor map", "prefetch.tensormap [%rd2];",
       "'prefetch.tensormap' is not known"},
      {"tensor map", "fence.proxy.tensormap::generic.acquire.gpu [%rd2], 128;", "is not known"},
      {"unknown", "frobnicate.b32 %r1, [%rd2];", "'frobnicate.b32' is not known"},
      {"nothing to access", "ld.const.u32 ;", "'ld.const.u32' is not known"},
      {"stack", "stackrestore.u64 %rd2;", "'stackrestore.u64' is not known"},
      {"parameter of a call", "{ .param .b64 a; st.param.b64 [a+4096], %rd2; call f, (a); }",
       "outside of a parameter"},
      {"local variable", ".local .b32 l; st.local.b32 [l+4], %r1;", "access outside of 'l'"},
      {"local memory of others", "st.local.b32 [%rd2], %r1;", "does not declare"},
      {"constant", "ld.const.u32 %r1, [c+4];", "access outside of constant 'c'"},
      {"narrow address", "st.global.u32 [%r1], %r1;", "address in a register of type b32"},
      {"variable of the body", "{ .reg .b64 t; st.global.u32 [t], 1; }",
       "hides something of that name"},
      {"variable that is written", "mov.u64 t, %rd2; st.global.u32 [t], 6;",
       "is written and is no register"},
      {"variable that is loaded", "ld.global.u64 t, [%rd1]; st.global.u32 [t], 6;",
       "is written and is no register"},
      {"register used for another",
       ".reg .b64 l; mov.u64 l, %rd1;\n"
       "{ mov.u64 l, %rd2; .reg .b64 l; } st.global.u32 [l], 6;",
       "hides something of that name"},
  }};
  for (const auto& [name, body, reason] : kCases) {
    const std::string text = KernelText(
        {.name = name,
         .body = body,
         .module = ".global .u64 t = 0; .const .b32 c = 1;\n.func elsewhere();\n"
                   ".extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);\n"
                   ".extern .func (.param .b64 r) malloc(.param .b64 a);\n"
                   ".func f(.param .b64 p) { ret; }"});
    const Result<ptx::Module> module = ptx::Parse(text);
    ASSERT_TRUE(module) << name << ": " << module.status().message();
    const Result<ptx::Fenced> fenced = ptx::Fence(*module, kRangeBytes);
    ASSERT_TRUE(fenced) << name << ": " << fenced.status().message();
    EXPECT_THAT(fenced->kernels.at(0).reason, HasSubstr(reason)) << name;
    EXPECT_THAT(fenced->kernels.at(0).reason, HasSubstr("line ")) << name;
    EXPECT_EQ(fenced->module.FindFunction("k"), nullptr) << name;
  }
}

}  // namespace
}  // namespace gpushared::testing
