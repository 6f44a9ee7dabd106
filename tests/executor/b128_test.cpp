// SPDX-License-Identifier: Apache-2.0
// Values of 128 bits: in registers, in memory of every space, as parameters, and exchanged.
#include <array>
#include <atomic>
#include <cstring>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "tests/executor/launcher.h"
#include "tests/executor/op_harness.h"

namespace gpushared::testing {
namespace {

constexpr const char* kB128Header = ".version 8.4\n.target sm_90\n.address_size 64\n";

class B128 : public PerFlavour {
 protected:
  void Check(const Form& form) { CheckForm(GetParam(), form); }
};

// $a and $b are the halves of a value, $d and $e those of the result.
Form Halves(const std::string& spelling, const std::string& code, Reference reference) {
  return {spelling, "b64", {"b64", "b64", "b64"}, std::move(reference), {}, code, "b64"};
}
Outputs Same(const Inputs& in) { return {in[0], in[1]}; }

TEST_P(B128, MovesPacksAndUnpacks) {
  const std::string registers = "{ .reg .b128 q, p;\n";
  Check(Halves("mov.b128 of a register",
               registers + "mov.b128 q, {$a, $b};\nmov.b128 p, q;\n$g mov.b128 {$d, $e}, p;\n}",
               Same));
  Check(Halves("mov.b128 guarded",
               registers + "mov.b128 q, {$a, $b};\nmov.b128 p, {$d, $e};\n$g mov.b128 p, q;\n"
                           "mov.b128 {$d, $e}, p;\n}",
               Same));
  Check(Halves(
      "mov.b128 of a half",
      registers + "mov.b128 q, {$b, $a};\n$g mov.b128 {_, $d}, q;\n$g mov.b128 {$e, _}, q;\n}",
      Same));
  Check(Halves("mov.b128 of a number", registers + "mov.b128 q, -5;\n$g mov.b128 {$d, $e}, q;\n}",
               [](const Inputs&) {
                 return Outputs{~Word{4}, 0};
               }));
  Check(Halves("mov.b128 of words",
               registers + ".reg .b32 r, s, t, u;\nmov.b64 {r, s}, $a;\nmov.b64 {t, u}, $b;\n"
                           "mov.b128 q, {u, r, 7, s};\nmov.b128 {t, _, u, r}, q;\n"
                           "$g mov.b64 $d, {t, u};\n$g mov.b64 $e, {r, 0};\n}",
               [](const Inputs& in) {
                 return Outputs{in[1] >> 32 | Word{7} << 32, in[0] >> 32};
               }));
}

TEST_P(B128, LoadsAndStoresInEverySpace) {
  const std::array<const char*, 4> orders = {"", ".volatile", ".relaxed.gpu", ".weak"};
  for (const std::string space : {".global", ".shared", ".local", ""}) {
    for (const std::string order : orders) {
      if (space == ".local" && order != "" && order != ".weak") continue;
      std::string place = "mov.u64 at, cells;\nmad.wide.u32 at, %index, 16, at;\n";
      if (space == ".shared") place = "mov.u32 word, %tid.x;\nmad.wide.u32 at, word, 16, 0;\n";
      if (space == ".local") place = "mov.u64 at, own;\n";
      Form form =
          Halves("ld" + order + space + ".b128",
                 "{ .reg .b128 q, p; .reg .b64 at; .reg .b32 word;\n" + place +
                     "mov.b128 q, {$a, $b};\nst" + order + space + ".b128 [at], q;\n" + "$g ld" +
                     order + space + ".b128 p, [at];\n$g mov.b128 {$d, $e}, p;\n}",
                 Same);
      form.module_variables = ".global .align 16 .b8 cells[32768];\n";
      form.kernel_variables = "  .shared .align 16 .b8 staged[2048];\n  .local .b128 own;\n";
      Check(form);
    }
  }
  Check(
      Halves("st.b128 of a number",
             "{ .reg .b128 q; .local .b128 own;\nst.local.b128 [own], 6;\nld.local.b128 q, [own];\n"
             "$g mov.b128 {$d, $e}, q;\n}",
             [](const Inputs&) {
               return Outputs{6, 0};
             }));
}

// PTX stores the lower bits of a register that is wider than the stored type.
TEST_P(B128, StoresTheLowerBitsOfARegister) {
  Check(Halves("st.b64 of 128 bits",
               "{ .reg .b128 q; .local .align 16 .b64 own[2];\nmov.b128 q, {$a, $b};\n"
               "st.local.b64 [own], q;\nst.local.b32 [own+8], q;\n"
               "$g ld.local.b64 $d, [own];\n$g ld.local.u32 $e, [own+8];\n}",
               [](const Inputs& in) {
                 return Outputs{in[0], in[0] & 0xffffffff};
               }));
}

TEST_P(B128, ArePassedToFunctions) {
  Form form =
      Halves("call with b128",
             "{ .reg .b128 q, p; .param .b128 x, y;\nmov.b128 q, {$a, $b};\n"
             "st.param.b128 [x], q;\ncall (y), swap, (x);\nld.param.b128 p, [y];\n"
             "call (q), swapped, (p);\ncall (p), swapped, (q);\n$g mov.b128 {$e, $d}, p;\n}",
             Same);
  form.module_variables =
      ".func (.param .b128 r) swap(.param .b128 a) {\n.reg .b128 q; .reg .b64 l, h;\n"
      "ld.param.b128 q, [a];\nmov.b128 {l, h}, q;\nmov.b128 q, {h, l};\nst.param.b128 [r], "
      "q;\nret; }\n"
      ".func (.reg .b128 r) swapped(.reg .b128 a) {\n.reg .b64 l, h;\nmov.b128 {l, h}, a;\n"
      "mov.b128 r, {h, l};\nret; }\n";
  Check(form);
}

TEST_P(B128, KernelParameters) {
  Launcher launcher(std::uint64_t{1} << 20, GetParam());
  launcher.Load(std::string(kB128Header) +
                ".visible .entry check(.param .u64 out, .param .b128 value) {\n"
                ".reg .b128 q; .reg .b64 o;\nld.param.u64 o, [out];\nld.param.b128 q, [value];\n"
                "st.global.b128 [o], q;\nret; }\n");
  Word* const out = launcher.Allocate<Word>(2);
  std::vector<std::byte> parameters(32);
  const std::array<Word, 4> words = {reinterpret_cast<Word>(out), 0, 0x0123456789abcdef, 0x55aa};
  std::memcpy(parameters.data(), words.data(), 32);
  EXPECT_FALSE(launcher.RunPacked("check", {1, 1, 1}, {1, 1, 1}, parameters).fault);
  EXPECT_EQ(out[0], words[2]);
  EXPECT_EQ(out[1], words[3]);
}

// Memory contains the value of $a and $b, and is compared with the same value or with another one.
TEST_P(B128, ExchangesInEverySpace) {
  for (const std::string space : {".global", ".shared", ""}) {
    for (const bool is_narrow : {false, true}) {
      if (is_narrow && space != ".shared") continue;
      std::string place = "mov.u64 at, cells;\nmad.wide.u32 at, %index, 16, at;\n";
      if (space == ".shared") place = "mov.u32 word, %tid.x;\nmad.wide.u32 at, word, 16, 0;\n";
      if (is_narrow) place += "cvt.u32.u64 word, at;\n";
      const std::string at = is_narrow ? "[word]" : "[at]";
      for (const bool compares : {false, true}) {
        Form form =
            Halves((compares ? "atom.cas.b128" : "atom.exch.b128") + space,
                   "{ .reg .b128 memory, wanted, next, old; .reg .b64 at, x, y; .reg .b32 word;\n" +
                       place + "mov.b128 memory, {$a, $b};\nmov.b128 next, {$b, $c};\nst" + space +
                       ".b128 " + at + ", memory;\nmov.b128 wanted, {$a, $c};\n$g atom" + space +
                       (compares ? ".cas.b128 old, " + at + ", wanted, next;\n"
                                 : ".exch.b128 old, " + at + ", next;\n") +
                       "ld" + space + ".b128 memory, " + at +
                       ";\nmov.b128 {x, y}, old;\n"
                       "$g xor.b64 $d, x, y;\nmov.b128 {x, y}, memory;\n$g xor.b64 $e, x, y;\n}",
                   [compares](const Inputs& in) {
                     const bool is_equal = !compares || in[1] == in[2];
                     return Outputs{in[0] ^ in[1], is_equal ? in[1] ^ in[2] : in[0] ^ in[1]};
                   });
        form.module_variables = ".global .align 16 .b8 cells[32768];\n";
        form.kernel_variables = "  .shared .align 16 .b8 staged[2048];\n";
        std::vector<Inputs> tuples = EdgeTuples(form.sources);
        for (std::size_t i = 0; i < tuples.size(); i += 2) tuples[i][2] = tuples[i][1];
        CheckForm(GetParam(), form, tuples);
      }
    }
  }
}

// Both halves of a value that is read must come from the same write, and no addition may be lost.
TEST_P(B128, ExecutorsOnSeveralThreadsSeeWholeValues) {
  Launcher launcher(std::uint64_t{1} << 20, GetParam());
  launcher.Load(
      std::string(kB128Header) +
      ".visible .entry count(.param .u64 cell, .param .u64 torn) {\n"
      ".reg .b128 %old, %next, %seen; .reg .b64 %cell, %torn, %l, %h, %a, %b; .reg .pred %p, %q;\n"
      "ld.param.u64 %cell, [cell];\nld.param.u64 %torn, [torn];\n"
      "ld.relaxed.gpu.global.b128 %old, [%cell];\n"
      "AGAIN:\nmov.b128 {%l, %h}, %old;\nsetp.ne.u64 %p, %l, %h;\n"
      "@%p red.global.add.u64 [%torn], 1;\nadd.u64 %l, %l, 1;\nadd.u64 %h, %h, 1;\n"
      "mov.b128 %next, {%l, %h};\natom.relaxed.gpu.global.cas.b128 %seen, [%cell], %old, %next;\n"
      "mov.b128 {%a, %b}, %seen;\nmov.b128 {%l, %h}, %old;\nsetp.ne.u64 %p, %a, %l;\n"
      "setp.ne.u64 %q, %b, %h;\nor.pred %p, %p, %q;\nmov.b128 %old, %seen;\n@%p bra AGAIN;\nret; "
      "}\n");
  Word* const cell = static_cast<Word*>(launcher.AllocateBytes(16));
  Word* const torn = launcher.Allocate<Word>(1);
  ASSERT_EQ(reinterpret_cast<Word>(cell) % 16, 0u);
  cell[0] = cell[1] = *torn = 0;
  constexpr u32 kBlocks = 200, kThreads = 64, kExecutors = 4;
  const std::array<Word*, 2> parameters = {cell, torn};
  const auto words = std::as_bytes(std::span(parameters));
  const std::vector<std::byte> bytes(words.begin(), words.end());
  const std::atomic<std::uint64_t> mapped = launcher.mapped_bytes();
  executor::Launch launch;
  launch.program = &launcher.Kernel("count");
  launch.grid = {kBlocks, 1, 1};
  launch.block = {kThreads, 1, 1};
  launch.parameters = bytes;
  launch.memory = {launcher.base(), &mapped};
  std::vector<std::thread> threads;
  for (u32 i = 0; i < kExecutors; ++i) {
    threads.emplace_back([&, i] {
      executor::BlockExecutor one;
      const std::atomic<bool> never = false;
      one.Run(launch, i * kBlocks / kExecutors, kBlocks / kExecutors, never, never);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(*torn, 0u);
  EXPECT_EQ(cell[0], Word{kBlocks} * kThreads);
  EXPECT_EQ(cell[1], cell[0]);
}

GPUSHARED_INSTANTIATE_FLAVOURS(B128);

}  // namespace
}  // namespace gpushared::testing
