// SPDX-License-Identifier: Apache-2.0
// atom and red: every operation and type in global, shared and generic memory, contended inside a
// warp, between warps, and between executors on several threads.
#include <algorithm>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "tests/executor/half_reference.h"
#include "tests/executor/launcher.h"
#include "tests/executor/op_harness.h"

namespace gpushared::testing {
namespace {

// Returns the value after an operation from the value before it and the operands.
using Step = std::function<Word(Word old, Word b, Word c)>;

struct AtomicForm {
  std::string operation, type;
  Step step;
};

template <typename T, typename F>
Step Of(F f) {
  return [f](Word old, Word b, Word c) {
    return ToWord(static_cast<T>(f(FromWord<T>(old), FromWord<T>(b), FromWord<T>(c))));
  };
}

template <typename T>
void AddIntegers(const std::string& type, std::vector<AtomicForm>* forms) {
  using U = std::make_unsigned_t<T>;
  forms->push_back({"add", type, Of<U>([](U a, U b, U) { return a + b; })});
  forms->push_back({"min", type, Of<T>([](T a, T b, T) { return std::min(a, b); })});
  forms->push_back({"max", type, Of<T>([](T a, T b, T) { return std::max(a, b); })});
}
template <typename T>
void AddBits(const std::string& type, std::vector<AtomicForm>* forms) {
  forms->push_back({"and", type, Of<T>([](T a, T b, T) { return a & b; })});
  forms->push_back({"or", type, Of<T>([](T a, T b, T) { return a | b; })});
  forms->push_back({"xor", type, Of<T>([](T a, T b, T) { return a ^ b; })});
  forms->push_back({"exch", type, Of<T>([](T, T b, T) { return b; })});
  forms->push_back({"cas", type, Of<T>([](T a, T b, T c) { return a == b ? c : a; })});
}

std::vector<AtomicForm> AllForms() {
  std::vector<AtomicForm> forms;
  AddIntegers<u32>("u32", &forms);
  AddIntegers<s32>("s32", &forms);
  AddIntegers<u64>("u64", &forms);
  AddIntegers<s64>("s64", &forms);
  AddBits<u32>("b32", &forms);
  AddBits<u64>("b64", &forms);
  forms.push_back({"cas", "b16", Of<u16>([](u16 a, u16 b, u16 c) { return a == b ? c : a; })});
  // PTX ISA, atom: inc and dec wrap at the operand.
  forms.push_back({"inc", "u32", Of<u32>([](u32 a, u32 b, u32) { return a >= b ? 0 : a + 1; })});
  forms.push_back(
      {"dec", "u32", Of<u32>([](u32 a, u32 b, u32) { return a == 0 || a > b ? b : a - 1; })});
  forms.push_back({"add", "f32", Of<float>([](float a, float b, float) { return a + b; })});
  forms.push_back({"add", "f64", Of<double>([](double a, double b, double) { return a + b; })});
  for (const HalfType& half : kHalfTypes) {
    const auto add = [half](Word a, Word b) {
      return Word{
          half.FromReal(half.ToReal(static_cast<u16>(a)) + half.ToReal(static_cast<u16>(b)))};
    };
    forms.push_back({"add.noftz", half.name, [add](Word a, Word b, Word) { return add(a, b); }});
    forms.push_back({"add.noftz", half.name + "x2", [add](Word a, Word b, Word) {
                       return add(a, b) | add(a >> 16, b >> 16) << 16;
                     }});
  }
  return forms;
}

class Atomics : public PerFlavour {};

// Each thread operates on its own cell and outputs the old value and the new one. The harness'
// tuples contain the cell (a) and the operands (b, c).
TEST_P(Atomics, EveryOperationInEverySpace) {
  for (const AtomicForm& form : AllForms()) {
    const std::string& type = form.type;
    const std::string bits = ".b" + std::to_string(GetBits(type));
    const bool compares = form.operation == "cas";
    for (const std::string place : {"global", "shared", "generic", "shared, 64-bit address"}) {
      const std::string space = place.substr(0, place.find(','));
      for (const bool wants_result : {true, false}) {
        if (!wants_result && (compares || form.operation == "exch")) continue;
        // The cell is in the given space; %cell is its address.
        std::string code = "{\n.reg .b64 %cell;\n.reg .b32 %slot;\n";
        std::string address = "[%cell]";
        if (space == "global") {
          code += "mov.u64 %cell, cells;\nmad.wide.u32 %cell, %index, 8, %cell;\n";
        } else if (place != "shared") {
          code += "mov.u32 %slot, %tid.x;\n" +
                  std::string(space == "generic" ? "cvta.shared" : "mov") +
                  ".u64 %cell, staged;\nmad.wide.u32 %cell, %slot, 8, %cell;\n";
        } else {
          code +=
              "mov.u32 %slot, %tid.x;\nmov.u32 %word, staged;\n"
              "mad.lo.u32 %slot, %slot, 8, %word;\n";
          address = "[%slot]";
        }
        const std::string in = space == "generic" ? "" : "." + space;
        code += "st" + in + bits + " " + address + ", $a;\n";
        code += "$g " + std::string(wants_result ? "atom" : "red") + in + "." + form.operation +
                "." + type + (wants_result ? " $d, " : " ") + address + ", $b" +
                (compares ? ", $c" : "") + ";\n$g ld" + in + bits + " $e, " + address + ";\n}";
        Form check = {(wants_result ? "atom." : "red.") + place + "." + form.operation + "." + type,
                      type,
                      std::vector<std::string>(compares ? 3 : 2, type),
                      {}};
        check.code = code;
        check.second_result = type;
        // A form without a result is followed by a move of the new value to $d, so that both forms
        // are checked alike.
        if (!wants_result) check.code += "\n$g mov" + bits + " $d, $a;";
        check.reference = [&form](const Inputs& in_words) {
          return Outputs{in_words[0], form.step(in_words[0], in_words[1], in_words[2])};
        };
        check.module_variables = ".global .align 8 .b64 cells[2048];\n";
        check.kernel_variables = "  .shared .align 8 .b8 staged[1024];\n";
        std::vector<Inputs> tuples = EdgeTuples(check.sources);
        // Makes every third comparison succeed, which is rare among random operands.
        for (std::size_t i = 0; compares && i < tuples.size(); i += 3) tuples[i][1] = tuples[i][0];
        CheckForm(GetParam(), check, tuples);
      }
    }
    if (HasFailure()) return;
  }
}

// All threads increment one cell: every old value must differ, and no update may be lost.
TEST_P(Atomics, ContendedCountersLoseNoUpdate) {
  for (const std::string space : {"global", "shared"}) {
    Launcher launcher(std::uint64_t{1} << 20, GetParam());
    const std::string cell = space == "global" ? "[%total]" : "[cell]";
    launcher.Load(
        ".version 9.0\n.target sm_90\n.address_size 64\n"
        ".visible .entry count(.param .u64 total, .param .u64 seen)\n{\n"
        "  .shared .align 4 .b32 cell;\n  .reg .b32 %old, %i, %lane;\n  .reg .pred %even;\n"
        "  .reg .b64 %total, %seen, %at;\n"
        "  ld.param.u64 %total, [total];\n  ld.param.u64 %seen, [seen];\n"
        "  mov.u32 %lane, %tid.x;\n  and.b32 %i, %lane, 1;\n  setp.eq.u32 %even, %i, 0;\n"
        "  atom." +
        space + ".add.u32 %old, " + cell +
        ", 1;\n"
        "  mul.wide.u32 %at, %old, 4;\n  add.u64 %at, %seen, %at;\n"
        "  red.global.add.u32 [%at], 1;\n"
        "  @%even atom." +
        space + ".inc.u32 %old, " + cell +
        ", 1000000;\n"
        "  @%even red.global.add.u32 [%seen+" +
        std::to_string(4 * 4000) +
        "], 1;\n"
        "  ret;\n}\n");
    auto* total = launcher.Allocate<u32>(1);
    auto* seen = launcher.Allocate<u32>(4001);
    const u32 blocks = space == "global" ? 4 : 1;
    const auto outcome = launcher.Run("count", {blocks, 1, 1}, {500, 1, 1}, total, seen);
    ASSERT_FALSE(outcome.fault) << outcome.fault->message;
    u32 values = 0;
    for (u32 i = 0; i < 4000; ++i) {
      EXPECT_LE(seen[i], 1u);
      values += seen[i];
    }
    EXPECT_EQ(values, blocks * 500);
    EXPECT_EQ(seen[4000], blocks * 250);
    if (space == "global") {
      EXPECT_EQ(*total, blocks * 750);
    }
  }
}

// Executors on several threads run blocks of one launch, and the sum of each type must be exact.
TEST_P(Atomics, ExecutorsOnSeveralThreadsLoseNoUpdate) {
  Launcher launcher(std::uint64_t{1} << 20, GetParam());
  launcher.Load(R"(
.version 9.0
.target sm_90
.address_size 64
.visible .entry sum(.param .u64 cells)
{
  .reg .b64 %c; .reg .b32 %old, %got, %new; .reg .pred %p; .reg .b16 %h;
  ld.param.u64 %c, [cells];
  red.global.add.u32 [%c], 1;
  red.global.add.u64 [%c+8], 3;
  red.global.add.f32 [%c+16], 0f3f800000;
  red.global.add.f64 [%c+24], 0d3ff0000000000000;
  red.global.xor.b32 [%c+32], 1;
  atom.global.inc.u32 %old, [%c+36], 0xffffffff;
  mov.u32 %old, %ctaid.x;
  red.global.max.u32 [%c+40], %old;
  ld.relaxed.gpu.global.u32 %old, [%c+44];
AGAIN:
  add.u32 %new, %old, 5;
  atom.global.cas.b32 %got, [%c+44], %old, %new;
  setp.ne.u32 %p, %got, %old;
  mov.u32 %old, %got;
  @%p bra AGAIN;
  ret;
})");
  constexpr u32 kBlocks = 400, kWidth = 64, kExecutors = 4;
  auto* cells = launcher.Allocate<u8>(48);
  std::vector<std::byte> parameters(8);
  std::memcpy(parameters.data(), &cells, 8);
  const std::atomic<std::uint64_t> mapped = launcher.mapped_bytes();
  executor::Launch launch;
  launch.program = &launcher.Kernel("sum");
  launch.grid = {kBlocks, 1, 1};
  launch.block = {kWidth, 1, 1};
  launch.parameters = parameters;
  launch.memory = {launcher.base(), &mapped};
  std::vector<std::thread> threads;
  std::atomic<u64> done = 0;
  for (u32 t = 0; t < kExecutors; ++t) {
    threads.emplace_back([&, t] {
      executor::BlockExecutor one;
      const std::atomic<bool> never = false;
      done +=
          one.Run(launch, t * kBlocks / kExecutors, kBlocks / kExecutors, never, never).blocks_done;
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_EQ(done.load(), kBlocks);
  const auto cell = [&]<typename T>(T, u32 at) {
    T value;
    std::memcpy(&value, cells + at, sizeof(T));
    return value;
  };
  constexpr u32 kThreads = kBlocks * kWidth;
  EXPECT_EQ(cell(u32{}, 0), kThreads);
  EXPECT_EQ(cell(u64{}, 8), 3u * kThreads);
  EXPECT_EQ(cell(float{}, 16), static_cast<float>(kThreads));
  EXPECT_EQ(cell(double{}, 24), static_cast<double>(kThreads));
  EXPECT_EQ(cell(u32{}, 32), 0u);
  EXPECT_EQ(cell(u32{}, 36), kThreads);
  EXPECT_EQ(cell(u32{}, 40), kBlocks - 1);
  EXPECT_EQ(cell(u32{}, 44), 5 * kThreads);
}

struct VectorForm {
  std::string type;
  u32 bytes, count;
  Word one;  // The number one, in each element.

  // A kernel in which each thread adds `ones` to `sums`. The last thread outputs the previous
  // value, or the amount it added.
  std::string Text(bool wants_result, u32 offset) const {
    const std::string bits = ".b" + std::to_string(bytes * 8);
    std::string registers, load, store;
    for (u32 i = 0; i < count; ++i) {
      const std::string name = "%e" + std::to_string(i);
      const std::string at = "+" + std::to_string(i * bytes) + "]";
      registers += (i == 0 ? "{" : ", ") + name;
      load += "ld.global" + bits + " " + name + ", [%ones" + at + ";\n";
      store += "st.global" + bits + " [%out" + at + ", " + name + ";\n";
    }
    registers += "}";
    return ".version 8.6\n.target sm_90\n.address_size 64\n"
           ".visible .entry add(.param .u64 sums, .param .u64 ones, .param .u64 out) {\n"
           ".reg " +
           bits +
           " %e<8>; .reg .b64 %sums, %ones, %out; .reg .b32 %t; .reg .pred %p;\n"
           "ld.param.u64 %sums, [sums];\nld.param.u64 %ones, [ones];\nld.param.u64 %out, [out];\n" +
           load + (wants_result ? "atom" : "red") + ".global.v" + std::to_string(count) + "." +
           type + (type == "f32" ? ".add " : ".add.noftz ") +
           (wants_result ? registers + ", " : "") + "[%sums+" + std::to_string(offset) + "], " +
           registers + ";\nmov.u32 %t, %tid.x;\nsetp.ne.u32 %p, %t, 39;\n@%p ret;\n" + store +
           "ret; }\n";
  }
  // Returns the number in one half of an element, or in the whole element.
  double Number(const u8* at, u32 half) const {
    u32 word = 0;
    std::memcpy(&word, at, bytes);
    if (type == "f32") return double{__builtin_bit_cast(float, word)};
    const HalfType& known = kHalfTypes[type.starts_with(kHalfTypes[0].name) ? 0 : 1];
    return static_cast<double>(known.ToReal(static_cast<u16>(word >> (16 * half))));
  }
};

// red.global.v4.f32.add: each element is a separate addition, and the whole vector must be aligned.
TEST_P(Atomics, VectorsAreAddedElementByElement) {
  for (const VectorForm& form :
       {VectorForm{"f32", 4, 2, 0x3f800000}, VectorForm{"f32", 4, 4, 0x3f800000},
        VectorForm{"f16", 2, 2, 0x3c00}, VectorForm{"bf16", 2, 8, 0x3f80},
        VectorForm{"f16x2", 4, 4, 0x3c003c00}, VectorForm{"bf16x2", 4, 2, 0x3f803f80}}) {
    for (const bool wants_result : {false, true}) {
      Launcher launcher(std::uint64_t{1} << 20, GetParam());
      launcher.Load(form.Text(wants_result, 0));
      u8* const sums = launcher.Allocate<u8>(64);
      u8* const ones = launcher.Allocate<u8>(64);
      u8* const out = launcher.Allocate<u8>(64);
      std::fill_n(sums, 64, u8{0});
      for (u32 i = 0; i < form.count; ++i) {
        std::memcpy(ones + std::size_t{i} * form.bytes, &form.one, form.bytes);
      }
      EXPECT_FALSE(launcher.Run("add", {1, 1, 1}, {40, 1, 1}, sums, ones, out).fault);
      const u32 halves = form.type.ends_with("x2") ? 2 : 1;
      for (u32 i = 0; i < form.count * halves; ++i) {
        const std::size_t at = std::size_t{i} / halves * form.bytes;
        EXPECT_EQ(form.Number(sums + at, i % halves), 40) << form.type << " element " << i;
        EXPECT_EQ(form.Number(out + at, i % halves), wants_result ? 39 : 1) << form.type;
      }
      launcher.Load(form.Text(wants_result, form.bytes));
      EXPECT_TRUE(launcher.Run("add", {1, 1, 1}, {40, 1, 1}, sums, ones, out).fault) << form.type;
    }
  }
}

GPUSHARED_INSTANTIATE_FLAVOURS(Atomics);

}  // namespace
}  // namespace gpushared::testing
