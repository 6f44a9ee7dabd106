// SPDX-License-Identifier: Apache-2.0
// A kernel that is killed ends soon, whatever it is executing. The operations that it still runs
// are counted. The time is measured and printed, but only loosely bounded, because a machine's
// noise affects it.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <gmock/gmock.h>

#include "tests/executor/launcher.h"
#include "tests/executor/op_harness.h"

namespace gpushared::testing {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;

// At least one operation of each family. %io is an address of global memory, %sh of shared and %lo
// of local memory.
constexpr std::array<std::string_view, 44> kSnippets = {
    "add.s32 %r1, %r1, %r2;",
    "mad.lo.u32 %r3, %r1, %r2, %r3;",
    "div.u32 %r4, %r1, 7;",
    "rem.s64 %l1, %l2, 1000003;",
    "mul.hi.u64 %l2, %l1, %l2;",
    "lop3.b32 %r1, %r2, %r3, %r4, 0x96;",
    "shf.l.wrap.b32 %r2, %r1, %r3, 5;",
    "popc.b32 %r5, %r1;",
    "brev.b32 %r6, %r5;",
    "add.cc.u32 %r1, %r1, %r2; addc.u32 %r3, %r3, %r4;",
    "dp4a.u32.u32 %r7, %r1, %r2, %r7;",
    "sad.u32 %r1, %r2, %r3, %r1;",
    "fma.rn.f32 %f1, %f1, %f2, %f3;",
    "div.rn.f64 %d1, %d1, %d2;",
    "sqrt.rn.f64 %d2, %d1;",
    "fma.rn.f64 %d3, %d1, %d2, %d3;",
    "sin.approx.f32 %f2, %f1;",
    "ex2.approx.f32 %f3, %f2;",
    "tanh.approx.f32 %f4, %f3;",
    "fma.rn.f16x2 %r8, %r8, %r7, %r6;",
    "cvt.rn.f32.f64 %f1, %d1;",
    "cvt.rni.s64.f64 %l1, %d1;",
    "setp.lt.f64 %p, %d1, %d2; selp.b32 %r1, %r2, %r3, %p;",
    "set.gt.u32.f32 %r1, %f1, %f2;",
    "mov.b64 %l1, {%r1, %r2}; mov.b64 {%r3, %r4}, %l1;",
    "prmt.b32 %r5, %r1, %r2, 0x3210;",
    "ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%io];",
    "st.global.v2.u64 [%io+16], {%l1, %l2};",
    "ld.volatile.global.u32 %r1, [%io+32];",
    "ld.shared.u32 %r2, [%sh];",
    "st.shared.u32 [%sh+4], %r3;",
    "ld.local.u64 %l1, [%lo]; st.local.u64 [%lo+8], %l1;",
    "atom.global.add.u32 %r1, [%io+64], 1;",
    "atom.global.cas.b64 %l1, [%io+72], %l1, %l2;",
    "red.global.add.f64 [%io+80], %d1;",
    "atom.shared.max.s32 %r1, [%sh], %r2;",
    "shfl.sync.bfly.b32 %r1, %r2, 5, 31, %act;",
    "match.any.sync.b64 %r1, %l1, %act;",
    "redux.sync.add.u32 %r1, %r2, %act; vote.sync.ballot.b32 %r2, %p, %act;",
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1,%f2,%f3,%f4}, {%r1,%r2,%r3,%r4}, "
    "{%r5,%r6}, {%f1,%f2,%f3,%f4};",
    "wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {%r1,%r2,%r3,%r4,%r5,%r6,%r7,%r8}, [%base];",
    "cp.async.ca.shared.global [%sh16], [%io], 16; membar.gl;",
    "nanosleep.u32 20;",
    "call (%r1), work, (%r2);",
};

// How the operations are arranged in the kernel.
enum class Shape { kLoop, kStraight, kApart, kNested, kBarrier };
constexpr std::array<Shape, 5> kShapes = {Shape::kLoop, Shape::kStraight, Shape::kApart,
                                          Shape::kNested, Shape::kBarrier};

u32 Draw(std::mt19937& random, std::size_t below) { return static_cast<u32>(random() % below); }

// Returns whether a whole warp must arrive at the operation together.
bool IsAligned(std::string_view snippet) {
  return snippet.starts_with("mma") || snippet.starts_with("wmma");
}

std::string Body(std::mt19937& random, Shape shape) {
  std::vector<std::string_view> chosen;
  for (u32 i = 1 + Draw(random, 5); i != 0; --i) {
    const std::string_view snippet = kSnippets[Draw(random, kSnippets.size())];
    if (shape == Shape::kApart && IsAligned(snippet)) continue;
    chosen.push_back(snippet);
  }
  if (chosen.empty()) chosen.push_back(kSnippets.front());
  const u32 operations = shape == Shape::kStraight ? 200u << Draw(random, 5) : 5 + Draw(random, 60);
  std::string body;
  for (u32 i = 0; i < operations; ++i) {
    body += chosen[Draw(random, chosen.size())];
    body += '\n';
  }
  return body;
}

std::string Looped(const std::string& body, Shape shape) {
  std::string text = "LOOP:\n";
  if (shape == Shape::kApart) {
    text += "and.b32 %r9, %lane, 3;\nAPART:\nsub.u32 %r9, %r9, 1;\nactivemask.b32 %act;\n" + body +
            "setp.gt.s32 %p, %r9, 0;\n@%p bra APART;\n";
  } else if (shape == Shape::kNested) {
    text += "mov.u32 %r9, 0;\nINNER:\n" + body +
            "add.u32 %r9, %r9, 1;\nsetp.lt.u32 %p, %r9, 100000;\n@%p bra INNER;\n";
  } else {
    text += body;
  }
  if (shape == Shape::kBarrier) text += "bar.sync 0;\n";
  return text + "bra LOOP;\n";
}

// Returns a kernel in which `begin` runs once and `rest` never ends.
std::string KernelText(const std::string& begin, const std::string& rest) {
  return R"(.version 9.0
.target sm_90
.address_size 64
.func (.param .b32 result) work(.param .b32 value)
{
  .reg .b32 %v;
  ld.param.b32 %v, [value];
  xor.b32 %v, %v, 5;
  st.param.b32 [result], %v;
  ret;
}
.visible .entry endless(.param .u64 io, .param .u64 kill)
{
  .shared .align 16 .b8 shared[4096];
  .local .align 8 .b8 local[64];
  .reg .pred %p, %q;
  .param .b32 in;
  .param .b32 back;
  .reg .b32 %r<10>, %lane, %act, %sh, %sh16;
  .reg .f32 %f<6>;
  .reg .f64 %d<4>;
  .reg .b64 %l<4>, %io, %base, %kill, %lo;
  ld.param.u64 %base, [io];
  ld.param.u64 %kill, [kill];
  mov.u32 %lane, %tid.x;
  and.b32 %lane, %lane, 31;
  mad.wide.u32 %io, %lane, 128, %base;
  mov.u32 %sh, shared;
  mad.lo.u32 %sh16, %lane, 16, %sh;
  mad.lo.u32 %sh, %lane, 8, %sh;
  mov.u64 %lo, local;
  mov.u32 %act, 0xffffffff;
  mov.u32 %r2, %lane;
  mov.f64 %d2, 0d3FF8000000000000;
  setp.ne.u32 %p, %lane, 7;
)" + begin +
         rest + "}\n";
}

std::string WithCalls(std::string text) {
  const std::string call = "call (%r1), work, (%r2);";
  const std::string whole =
      "st.param.b32 [in], %r2; call (back), work, (in); ld.param.b32 %r1, [back];";
  for (std::size_t at = 0; (at = text.find(call, at)) != std::string::npos; at += whole.size()) {
    text.replace(at, call.size(), whole);
  }
  return text;
}

struct Endless {
  Shape shape;
  std::string rest;
};

Endless RandomKernel(std::mt19937& random) {
  const Shape shape = kShapes[Draw(random, kShapes.size())];
  return {shape, WithCalls(Looped(Body(random, shape), shape))};
}

class Killed : public PerFlavour {
 protected:
  // Returns the number of operations that a kernel runs after it has set its own kill word.
  u64 OperationsAfterKill(const std::string& rest, u32 threads) {
    Launcher launcher(std::uint64_t{1} << 20, GetParam());
    launcher.Load(KernelText("st.global.u8 [%kill], 1;\n", rest));
    auto* io = launcher.Allocate<std::byte>(8192);
    auto* kill = launcher.Allocate<std::atomic<bool>>(1);
    launcher.kill_word = kill;
    launcher.count_instructions = true;
    const auto outcome = launcher.Run("endless", {2, 1, 1}, {threads, 1, 1}, io, kill);
    EXPECT_EQ(outcome.end, executor::RunOutcome::End::kKilled)
        << rest << (outcome.fault ? outcome.fault->message : "");
    return launcher.counts().warp_instructions;
  }

  // Kills a run after `delay`; returns the time from the kill to the end of the run.
  microseconds UntilItEnds(Launcher& launcher, u32 threads, microseconds delay) {
    auto* io = launcher.Allocate<std::byte>(8192);
    Clock::time_point killed;
    std::jthread killer([&] {
      std::this_thread::sleep_for(delay);
      killed = Clock::now();
      launcher.kill = true;
    });
    const auto outcome = launcher.Run("endless", {1000, 1, 1}, {threads, 1, 1}, io, io);
    const Clock::time_point ended = Clock::now();
    killer.join();
    launcher.kill = false;
    EXPECT_EQ(outcome.end, executor::RunOutcome::End::kKilled)
        << (outcome.fault ? outcome.fault->message : "");
    return std::chrono::duration_cast<microseconds>(ended - killed);
  }

  void Report(const char* what, std::vector<microseconds> latencies) {
    std::sort(latencies.begin(), latencies.end());
    const auto at = [&](std::size_t percent) {
      return static_cast<long long>(
          latencies[std::min(latencies.size() - 1, latencies.size() * percent / 100)].count());
    };
    std::printf("%s: %zu kills, p50 %lld us, p99 %lld us, worst %lld us\n", what, latencies.size(),
                at(50), at(99), at(100));
    EXPECT_LT(latencies.back(), kAnyMachine);
  }

  static constexpr std::chrono::seconds kAnyMachine{5};
};

constexpr u32 kKernels = 1000;
// Allowance for operations before the loop and for the parts of a compound operation.
constexpr u64 kAround = 64;

TEST_P(Killed, AnyKernelRunsFewOperationsAfterTheKill) {
  std::mt19937 random(1);
  u64 most = 0;
  for (u32 i = 0; i < GetSweep(kKernels); ++i) {
    const Endless kernel = RandomKernel(random);
    const u64 operations = OperationsAfterKill(kernel.rest, 32u << Draw(random, 3));
    ASSERT_LE(operations, executor::kOpsPerCheck + kAround) << i << ":\n" << kernel.rest;
    most = std::max(most, operations);
  }
  std::printf("at most %llu operations after a kill\n", static_cast<unsigned long long>(most));
}

// The interval between polls depends on the operations' cost, because a matrix product takes about
// a hundred times as long as an addition.
TEST_P(Killed, MatrixInstructionsCountByTheirCost) {
  std::string rest = "LOOP:\n";
  for (u32 i = 0; i < 1000; ++i) {
    rest += kSnippets[39];
    rest += '\n';
  }
  EXPECT_LE(OperationsAfterKill(rest + "bra LOOP;\n", 32), kAround + 64);
}

// A forward branch that skips other paths' polls must poll itself.
TEST_P(Killed, ForwardJumpsPoll) {
  std::string rest = "LOOP:\n";
  for (u32 i = 0; i < 40; ++i) {
    const std::string number = std::to_string(i);
    for (u32 k = 0; k < 1000; ++k) rest += "add.u32 %r1, %r1, 1;\n";
    rest += "bra PAST" + number + ";\n";
    for (u32 k = 0; k < 100; ++k) rest += "add.u32 %r3, %r3, 1;\n";
    rest += "PAST" + number + ":\n";
  }
  EXPECT_LE(OperationsAfterKill(rest + "bra LOOP;\n", 32), executor::kOpsPerCheck + kAround);
}

// Returns nested loops, each of which lane n leaves after n rounds. A second exit, which is never
// taken, keeps the lanes that leave from waiting directly after the branch. All lanes together make
// C(31 + depth, depth) rounds, and no backward branch is ever taken by all active lanes.
std::string LoopsThatLanesLeaveOneByOne(u32 depth) {
  std::string text = ".reg .b32 %c<" + std::to_string(depth + 1) + ">;\n" +
                     "mov.u32 %c0, %lane;\nsetp.gt.u32 %q, %lane, 31;\n";
  for (u32 i = 1; i <= depth; ++i) {
    const std::string n = std::to_string(i);
    text += "mov.u32 %c" + n + ", %c" + std::to_string(i - 1) + ";\nBACK" + n + ":\n@%q bra OUT" +
            n + ";\n";
  }
  for (u32 i = depth; i >= 1; --i) {
    const std::string n = std::to_string(i);
    text += "setp.ne.u32 %p, %c" + n + ", 0;\nsub.u32 %c" + n + ", %c" + n + ", 1;\n@%p bra BACK" +
            n + ";\nmov.u32 %c" + n + ", 0;\nOUT" + n + ":\nadd.u32 %r1, %r1, 1;\n";
  }
  return text + "ret;\n";
}

TEST_P(Killed, LoopsThatLanesLeaveOneByOnePoll) {
  EXPECT_LE(OperationsAfterKill(LoopsThatLanesLeaveOneByOne(8), 32),
            executor::kOpsPerCheck + kAround);
}

TEST_P(Killed, AnyKernelEndsSoon) {
  std::mt19937 random(2);
  std::vector<microseconds> latencies;
  for (u32 i = 0; i < GetSweep(kKernels); ++i) {
    const Endless kernel = RandomKernel(random);
    Launcher launcher(std::uint64_t{1} << 20, GetParam());
    launcher.Load(KernelText("", kernel.rest));
    latencies.push_back(
        UntilItEnds(launcher, 32u << Draw(random, 6), microseconds(random() % 1500)));
  }
  Report("random kernels", std::move(latencies));
}

TEST_P(Killed, WhileItsLocalMemoryIsCleared) {
  // The block begins by clearing 128 MiB (128 KiB per thread), and does no other work.
  std::string text = KernelText("", "st.local.u32 [%lo], %r1;\nret;\n");
  text.replace(text.find("local[64]"), 9, "local[131072]");
  std::vector<microseconds> latencies;
  for (u32 i = 0; i < 10; ++i) {
    Launcher launcher(std::uint64_t{1} << 20, GetParam());
    launcher.Load(text);
    latencies.push_back(UntilItEnds(launcher, 1024, microseconds(i * 3000)));
  }
  Report("128 MiB of local memory", std::move(latencies));
}

// Only what is printed of a string is read, so that the time of a print depends on its output.
TEST_P(Killed, PrintingReadsOnlyWhatItPrints) {
  Launcher launcher(std::uint64_t{1} << 20, GetParam());
  std::string format;
  for (u32 i = 0; i < 1000; ++i) format += "%.0s";
  launcher.Load(R"(.version 9.0
.target sm_90
.address_size 64
.extern .func (.param .b32 result) vprintf(.param .b64 format, .param .b64 arguments);
.visible .entry print(.param .u64 format, .param .u64 arguments)
{
  .reg .b64 %f, %a;
  ld.param.u64 %f, [format];
  ld.param.u64 %a, [arguments];
  { .param .b64 format; .param .b64 arguments; .param .b32 result;
    st.param.b64 [format], %f; st.param.b64 [arguments], %a;
    call (result), vprintf, (format, arguments); }
  ret;
}
)");
  char* text = launcher.Allocate<char>(4096);
  u64* arguments = launcher.Allocate<u64>(1000);
  std::copy(format.begin(), format.end(), text);
  std::fill(arguments, arguments + 1000, 16);  // Addresses without memory.
  const auto silent = launcher.Run("print", {1, 1, 1}, {32, 1, 1}, text, arguments);
  EXPECT_FALSE(silent.fault) << silent.fault->message;
  EXPECT_EQ(launcher.printed, "");
  // A string without an end is read only as far as its precision allows it to be printed.
  char* word = launcher.Allocate<char>(8192);
  std::fill(word, word + 8192, 'x');
  std::copy_n("<%5.3s|%-5.2s|%s>", 18, text);
  arguments[0] = arguments[1] = arguments[2] = reinterpret_cast<u64>(word);
  EXPECT_FALSE(launcher.Run("print", {1, 1, 1}, {1, 1, 1}, text, arguments).fault);
  EXPECT_EQ(launcher.printed, "<  xxx|xx   |" + std::string(executor::kPrintBytesMax - 13, 'x'));
}

// Lanes print one after the other, so a kill between them must keep the rest from printing.
TEST_P(Killed, NoLanePrintsAfterTheKill) {
  Launcher launcher(std::uint64_t{1} << 20, GetParam());
  launcher.Load(R"(.version 9.0
.target sm_90
.address_size 64
.global .align 1 .b8 text[3] = {104, 10, 0};
.extern .func (.param .b32 result) vprintf(.param .b64 format, .param .b64 arguments);
.visible .entry print()
{
  .reg .b64 %f;
  mov.u64 %f, text;
LOOP:
  { .param .b64 format; .param .b64 arguments; .param .b32 result;
    st.param.b64 [format], %f; st.param.b64 [arguments], %f;
    call (result), vprintf, (format, arguments); }
  bra LOOP;
}
)");
  launcher.on_print = [&] { launcher.kill = true; };
  EXPECT_EQ(launcher.Run("print", {1, 1, 1}, {64, 1, 1}).end, executor::RunOutcome::End::kKilled);
  EXPECT_EQ(launcher.printed, "h\n");
}

GPUSHARED_INSTANTIATE_FLAVOURS(Killed);

}  // namespace
}  // namespace gpushared::testing
