// SPDX-License-Identifier: Apache-2.0
// Contained kernels never end the context: none of their accesses faults, and the FaultRecord
// describes the fault that would have ended it. The bench lets them access only mapped memory, so
// that any other access is detected.
#include <array>
#include <atomic>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/ptx/text/parser.h"
#include "common/ptx/text/printer.h"
#include "server/ptx/passes/contain_work.h"
#include "server/ptx/passes/fence.h"
#include "tests/passes/fence_bench.h"

namespace gpushared::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// A kernel in which %rd1 points to the client's memory, and %rd2 to the end of the mapped part.
std::string KernelText(const std::string& body, const std::string& module = "") {
  return ".version 8.0\n.target sm_80\n.address_size 64\n" + module +
         "\n.visible .entry k(.param .u64 out, .param .u64 end, .param .u32 n)\n{\n"
         ".reg .b64 %rd<16>;\n.reg .b32 %r<32>;\n.reg .pred %p<8>;\n.reg .b16 %h<4>;\n"
         "ld.param.u64 %rd1, [out];\nld.param.u64 %rd2, [end];\nmov.u32 %r30, %tid.x;\n" +
         body + "\nret;\n}\n";
}

FenceLaunch Prepare(FenceBench& bench) {
  std::memset(reinterpret_cast<void*>(bench.ranges().client() + kOut), 0, 4096);
  FenceLaunch launch{.kernel = "k", .grid = {}, .block = {}, .parameters = {}};
  launch.grid = launch.block = {1, 1, 1};
  launch.parameters.resize(20);
  const std::uint64_t places[] = {bench.ranges().client() + kOut,
                                  bench.ranges().client() + kMappedBytes};
  std::memcpy(launch.parameters.data(), places, sizeof places);
  return launch;
}

std::uint32_t Out(FenceBench& bench, std::size_t word = 0) {
  std::uint32_t value = 0;
  std::memcpy(&value, reinterpret_cast<void*>(bench.ranges().client() + kOut + 4 * word), 4);
  return value;
}

// Accesses that fault without containment: either in the fence, which does not know the mapped
// part, or on a device.
struct Stray {
  const char* name;
  const char* body;
  const char* module = "";
  std::uint32_t threads = 1;
};

constexpr Stray kStrays[] = {
    {"behind_the_mapped_end", "st.global.u32 [%rd2+65536], 6;"},
    {"far_behind_it", "add.s64 %rd4, %rd2, 0x1000000; ld.global.u32 %r1, [%rd4];"},
    {"immediates_behind_the_end",
     "st.global.u32 [%rd2+56000], 6; ld.global.u32 %r1, [%rd2+56000];"},
    {"before_the_range", "and.b64 %rd4, %rd1, -0x100000000; ld.global.u32 %r1, [%rd4+-4];"},
    {"null", "ld.global.u32 %r1, [0]; mov.u64 %rd4, 0; st.u32 [%rd4], 1;"},
    {"misaligned_load", "ld.global.u32 %r1, [%rd1+1]; ld.global.u16 %h1, [%rd1+3];"},
    {"misaligned_register",
     "add.s64 %rd4, %rd1, 2; st.global.u32 [%rd4], 6; atom.global.add.u64 "
     "%rd5, [%rd4+2], 1; ld.u64 %rd6, [%rd4];"},
    {"misaligned_vector",
     "add.s64 %rd4, %rd1, 4; st.global.v4.u32 [%rd4], {%r1, %r2, %r3, %r4};\n"
     "ld.global.v2.u32 {%r1, %r2}, [%rd4];"},
    {"wider_behind_narrower",
     "add.s64 %rd4, %rd1, 4; st.global.u32 [%rd4], 6;\n"
     "st.global.u64 [%rd4], %rd1; st.global.v2.u64 [%rd4], {%rd1, %rd2};"},
    {"shared_overflow",
     "mov.u32 %r1, s; st.shared.u32 [%r1+0x100000], 6;\n"
     "add.u32 %r1, %r1, 62; ld.shared.u32 %r2, [%r1];",
     ".shared .align 4 .b8 s[64];"},
    {"shared_by_name", "st.shared.u32 [s+64000], 6; st.shared.u32 [s+2], 6;",
     ".shared .align 4 .b8 s[64];"},
    {"shared_wider_than_it_is", "st.shared.v4.u32 [s], {%r1, %r2, %r3, %r4};",
     ".shared .align 4 .b8 s[4];"},
    {"shared_below", "mov.u32 %r1, 0; st.shared.u32 [%r1+-4], 6;", ".shared .align 4 .b8 s[64];"},
    {"shared_that_is_not", "mov.u32 %r1, 0x4000; st.shared.v4.u32 [%r1], {%r1, %r1, %r1, %r1};"},
    {"dynamic_shared_of_none", "ld.shared.u32 %r1, [d+12]; st.global.u32 [%rd1], %r1;",
     ".extern .shared .align 16 .b8 d[];"},
    {"shared_by_number", "st.shared.u32 [0xfffffffc], 6;", ".shared .align 4 .b8 s[64];"},
    {"generic_shared",
     "cvta.shared.u64 %rd4, s; add.s64 %rd4, %rd4, 0x10001; st.u32 [%rd4], 6;\n"
     "cvta.shared.u64 %rd4, s; ld.u64 %rd5, [%rd4+-8]; st.u32 [%rd4+2], 6;",
     ".shared .align 8 .b8 s[64];"},
    {"misaligned_local",
     ".local .align 4 .b8 l[24]; mov.u64 %rd4, l; add.s64 %rd5, %rd4, 2;\n"
     "st.local.u32 [%rd5], 6; st.local.v2.u64 [%rd4], {%rd1, %rd1};\n"
     "cvta.local.u64 %rd6, %rd4; st.u64 [%rd6+3], %rd1;"},
    {"parameter",
     "mov.b64 %rd4, out; ld.param.u32 %r1, [%rd4+4000]; ld.param.u32 %r1, [%rd4+2];\n"
     "sub.s64 %rd4, %rd4, 64; ld.param.u64 %rd5, [%rd4];"},
    {"generic_parameter",
     "mov.b64 %rd4, out; cvta.param.u64 %rd4, %rd4; ld.u32 %r1, [%rd4+4000]; ld.u32 %r1, "
     "[%rd4+2];\n"
     "ld.v2.u64 {%rd5, %rd6}, [%rd4+8]; ld.volatile.u64 %rd5, [%rd4+-64]; st.u32 [%rd4], 6;\n"
     "st.volatile.u64 [%rd4+3], %rd1; atom.add.u32 %r1, [%rd4], 1; red.or.b32 [%rd4+4], 1;"},
    {"misaligned_copy",
     "mov.u32 %r1, s; add.u32 %r2, %r1, 3; add.s64 %rd4, %rd1, 5; mov.u32 %r3, 99;\n"
     "cp.async.ca.shared.global [%r2], [%rd4], 8;\n"
     "cp.async.ca.shared.global [%r2+100000], [%rd2+1000], 16, %r3;\n"
     "cp.async.wait_all;",
     ".shared .align 16 .b8 s[64];"},
    {"strided_matrix",
     "mov.u32 %r9, 0x7ffffff;\n"
     "wmma.load.a.sync.aligned.row.m16n16k16.global.f16 "
     "{%r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8}, [%rd1+2], %r9;",
     "", 32},
    {"strided_matrix_from_memory_to_variables",
     // The second row is between the others, and the last one is in the variable.
     "sub.s64 %rd4, %rd2, 0x100000; mov.u64 %rd5, g; cvta.global.u64 %rd6, %rd5;\n"
     "sub.s64 %rd7, %rd5, %rd4; div.u64 %rd7, %rd7, 30; cvt.u32.u64 %r9, %rd7;\n"
     "add.u32 %r9, %r9, 8; and.b32 %r9, %r9, -8;\n"
     "wmma.load.a.sync.aligned.row.m16n16k16.global.f16 "
     "{%r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8}, [%rd4], %r9;",
     ".global .align 32 .b8 g[4096];", 32},
    {"strided_shared_matrix",
     "mov.u32 %r9, 0x7ffffff; mov.u32 %r10, s;\n"
     "wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 "
     "{%r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8}, [%r10], %r9;",
     ".shared .align 32 .b8 s[512];", 32},
    {"rows_of_matrices",
     "mov.u32 %r10, s;\nldmatrix.sync.aligned.m8n8.x4.shared.b16 "
     "{%r1, %r2, %r3, %r4}, [%r10+505];",
     ".shared .align 32 .b8 s[512];", 32},
    {"hints", "prefetch.global.L2 [%rd2+100];"},
    {"cache_policies",
     "createpolicy.range.global.L2::evict_last.L2::evict_unchanged.b64 %rd4, [%rd2], 64, 128;\n"
     "ld.global.L2::cache_hint.u32 %r1, [%rd1], %rd2;\n"
     "st.global.L2::cache_hint.u32 [%rd1], %r1, %rd4;"},
    {"odd_constant",
     "mov.u64 %rd4, c; ld.const.u64 %rd5, [%rd4+1]; add.s64 %rd4, %rd4, 0x7fffff;\n"
     "ld.const.u32 %r1, [%rd4];",
     ".const .align 8 .b8 c[16];"},
    {"odd_variable",
     "ld.global.u32 %r1, [g+1]; ld.global.u64 %rd4, [g+4]; st.global.u32 [g+62], 1;",
     ".global .align 4 .b8 g[64];"},
};

class Strays : public ::testing::TestWithParam<std::size_t> {};

TEST_P(Strays, EndNothing) {
  const Stray& stray = kStrays[GetParam()];
  FenceBench bench(KernelText(stray.body, stray.module));
  ASSERT_EQ(bench.ReasonOfContained("k"), "");
  FenceLaunch launch = Prepare(bench);
  launch.block = {stray.threads, 1, 1};
  bench.ranges().Forbid();
  for (const Form form : {Form::kContained, Form::kContainedAndClaimed}) {
    if (!bench.Has(form, "k")) continue;
    EXPECT_EQ(bench.Run(form, launch), "") << static_cast<int>(form);
    EXPECT_EQ(bench.fault().place, 0u);
  }
  bench.ranges().Allow();
}

INSTANTIATE_TEST_SUITE_P(All, Strays, ::testing::Range<std::size_t>(0, std::size(kStrays)),
                         [](const auto& any) { return std::string(kStrays[any.param].name); });

// On a device, atomic operations on local memory fault, as do those on vectors outside global
// memory.
TEST(Contained, AtomicOperationsLeaveOtherMemoryAlone) {
  FenceBench bench(KernelText(
      ".local .align 8 .b8 l[8]; cvta.local.u64 %rd4, l; st.u32 [%rd4], 5; red.add.u32 [%rd4], 1;\n"
      "atom.exch.b32 %r1, [%rd4], 9; ld.u32 %r2, [%rd4]; st.global.u32 [%rd1], %r2;\n"
      "cvta.shared.u64 %rd5, s; atom.add.u32 %r1, [%rd5], 4; ld.u32 %r2, [%rd5];\n"
      "st.global.u32 [%rd1+4], %r2;",
      ".shared .align 4 .b8 s[64];"));
  ASSERT_EQ(bench.ReasonOfContained("k"), "");
  ASSERT_EQ(bench.Run(Form::kContained, Prepare(bench)), "");
  EXPECT_EQ(Out(bench, 0), 5u);
  EXPECT_EQ(Out(bench, 1), 4u);

  const auto vectors =
      ptx::Parse(KernelText("cvta.shared.u64 %rd5, s; red.add.v2.f32 [%rd5], {%r1, %r2};\n"
                            "ld.v4.b64 {%rd6, %rd7, %rd8, %rd9}, [%rd5];",
                            ".shared .align 16 .b8 s[64];"));
  ASSERT_TRUE(vectors) << vectors.status().message();
  const auto contained = ptx::Contain(*vectors, kRangeBytes);
  ASSERT_TRUE(contained) << contained.status().message();
  EXPECT_EQ(contained->kernels.at(0).reason, "");
  EXPECT_THAT(ptx::Print(contained->module), Not(HasSubstr("isspacep")));
}

// Hardware may have private memory below a kernel's shared memory. The executor's shared memory
// begins at address 0, so only the text shows the protection. A .func cannot know where its
// kernel's shared memory begins.
TEST(Contained, SharedAccessesOfKernelsStayAboveTheirFirstVariable) {
  const auto module =
      ptx::Parse(KernelText("mov.u32 %r1, 0; st.shared.u32 [%r1], 6; ld.shared.u32 %r2, "
                            "[%r1+0x3fc]; st.shared.u32 [s], 6;",
                            ".shared .align 4 .b8 t[64]; .shared .align 4 .b8 s[64];"));
  ASSERT_TRUE(module) << module.status().message();
  const auto contained = ptx::Contain(*module, kRangeBytes);
  ASSERT_TRUE(contained) << contained.status().message();
  const ptx::Function* kernel = contained->module.FindFunction("k");
  ASSERT_NE(kernel, nullptr);
  std::string begin;
  int clamped = 0;
  for (const ptx::Statement& statement : *kernel->body) {
    const auto* instruction = std::get_if<ptx::Instruction>(&statement);
    if (instruction == nullptr) continue;
    // The start of the zeroed range, as ZeroShared computes it.
    const std::vector<ptx::Operand>& operands = instruction->operands;
    if (instruction->opcode == "and" && begin.empty()) begin = operands[0].text;
    if (instruction->opcode == "mov" && operands[1].text == begin) begin = operands[0].text;
    if (instruction->opcode != "max") continue;
    EXPECT_EQ(operands[2].text, begin);
    ++clamped;
  }
  EXPECT_EQ(clamped, 2) << "the third access is inside a variable";
}

// The bytes directly at the ends of memory belong to the client and remain accessible.
TEST(Contained, AccessTheirOwnMemoryToTheLastByte) {
  FenceBench bench(KernelText(
      "mov.u32 %r1, 0x11223344; st.global.u8 [%rd2+-1], %r1; ld.global.u32 %r2, [%rd2+-4];\n"
      "st.global.u32 [%rd1], %r2; mov.u32 %r3, d; st.shared.u8 [%r3+20], %r1;\n"
      "ld.shared.u8 %r4, [d+20]; st.global.u32 [%rd1+4], %r4;\n"
      "mov.u32 %r5, s; st.shared.u16 [%r5+6], %r1; ld.shared.u32 %r6, [s+4];\n"
      "st.global.u32 [%rd1+8], %r6; cvta.shared.u64 %rd4, d; st.u16 [%rd4+18], %r1;\n"
      "ld.u32 %r7, [%rd4+16]; st.global.u32 [%rd1+12], %r7;",
      ".shared .align 4 .b8 s[8];\n.extern .shared .align 4 .b8 d[];"));
  ASSERT_EQ(bench.ReasonOfContained("k"), "");
  FenceLaunch launch = Prepare(bench);
  launch.dynamic_shared_bytes = 21;
  ASSERT_EQ(bench.Run(Form::kContained, launch), "");
  EXPECT_EQ(Out(bench, 0), 0x44000000u);
  EXPECT_EQ(Out(bench, 1), 0x44u);
  EXPECT_EQ(Out(bench, 2), 0x33440000u);
  EXPECT_EQ(Out(bench, 3), 0x33440000u);
}

// Returns how a kernel ends, and the contents of its record.
std::string GetFault(FenceBench& bench, const FenceLaunch& launch, Form form = Form::kContained) {
  EXPECT_EQ(bench.Run(form, launch), "");
  return bench.fault().place == 0
             ? ""
             : ptx::DescribeFault(bench.contained().places, bench.fault()).message;
}

constexpr const char* kAssertion =
    ".extern .func __assertfail(.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d, "
    ".param .b64 e);";

TEST(Contained, TrapsAreRecordedAndEndTheirThread) {
  const std::array<std::array<const char*, 3>, 3> kinds = {{
      {"trap;", "", "trap at line 15 of 'k'"},
      {"brkpt;", "", "breakpoint at line 15 of 'k'"},
      {"call __assertfail, (%rd1, %rd1, %r1, %rd1, %rd1);", kAssertion,
       "failed assertion at line 15 of 'k'"},
  }};
  for (const auto& [ends, module, wanted] : kinds) {
    // Thread 5 of block 1 ends; all others continue, even past the barrier.
    FenceBench bench(KernelText(
        std::string("mov.u32 %r1, %ctaid.x; mad.lo.u32 %r1, %r1, 100, %r30; setp.ne.u32 %p1, %r1, "
                    "105; @%p1 bra GO;\n") +
            ends +
            "\nGO: bar.sync 0; mul.wide.u32 %rd4, %r1, 4; add.s64 %rd4, %rd4, %rd1;\n"
            "st.global.u32 [%rd4], 1;",
        module));
    ASSERT_EQ(bench.ReasonOfContained("k"), "");
    for (const Form form : {Form::kContained, Form::kContainedAndClaimed}) {
      FenceLaunch launch = Prepare(bench);
      launch.grid = {3, 1, 1};
      launch.block = {64, 1, 1};
      const std::string fault = GetFault(bench, launch, form);
      EXPECT_THAT(fault, StartsWith(wanted));
      EXPECT_THAT(fault, HasSubstr("[block (1,0,0) thread (5,0,0)]"));
      EXPECT_EQ(Out(bench, 104), 1u);
      EXPECT_EQ(Out(bench, 105), 0u);
      EXPECT_EQ(Out(bench, 106), 1u);
      EXPECT_EQ(Out(bench, 263), 1u);
    }
  }
}

TEST(Contained, GuardedTrapsEndOnlyTheirThreads) {
  FenceBench bench(
      KernelText("setp.eq.u32 %p1, %r30, 7; @%p1 trap; setp.eq.u32 %p2, %r30, 9;\n"
                 "@!%p2 bra ON; trap; ON: st.global.u32 [%rd1], 1;"));
  FenceLaunch launch = Prepare(bench);
  launch.block = {7, 1, 1};
  EXPECT_EQ(GetFault(bench, launch), "");
  launch.block = {8, 1, 1};
  EXPECT_THAT(GetFault(bench, launch), HasSubstr("line 14 of 'k' [block (0,0,0) thread (7,0,0)]"));
  EXPECT_EQ(Out(bench), 1u);
}

TEST(Contained, KeepsTheFirstFault) {
  FenceBench bench(KernelText("setp.eq.u32 %p1, %r30, 40; @%p1 trap;\nbar.sync 0;\ntrap;"));
  FenceLaunch launch = Prepare(bench);
  launch.block = {64, 1, 1};
  EXPECT_THAT(GetFault(bench, launch), HasSubstr("line 14 of 'k' [block (0,0,0) thread (40,0,0)]"));
  const std::uint32_t other = bench.fault().other_place;
  ASSERT_NE(other, 0u) << "the record must also name another fault";
  EXPECT_EQ(bench.contained().places.at(other - 1).line, 16u);
}

TEST(Contained, ManyThreadsAtOneInstructionAreOneFault) {
  FenceBench bench(KernelText("trap;"));
  FenceLaunch launch = Prepare(bench);
  launch.grid = launch.block = {4, 1, 1};
  EXPECT_THAT(GetFault(bench, launch), HasSubstr("line 14 of 'k' [block (0,0,0) thread (0,0,0)]"));
  EXPECT_EQ(bench.fault().other_place, 0u);
}

TEST(Contained, TrapsInFunctionsEndTheThread) {
  FenceBench bench(KernelText("call f; st.global.u32 [%rd1], 1;", ".func f() { trap; ret; }"));
  FenceLaunch launch = Prepare(bench);
  EXPECT_THAT(GetFault(bench, launch), StartsWith("trap at line 4 of 'f' [thread (0,0,0)]"));
  EXPECT_EQ(Out(bench), 0u);
}

// Endless loops of every shape. In half of the kernels, other threads wait for those in the loop.
constexpr Stray kLoops[] = {
    {"to_itself", "L: bra L;"},
    {"conditional", "L: ld.volatile.global.u32 %r1, [%rd1]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L;"},
    {"not_taken", "L: setp.eq.u32 %p1, %r30, 77; @%p1 bra OUT; bra L; OUT:"},
    {"two_labels", "bra B; A: add.u32 %r1, %r1, 1; B: add.u32 %r1, %r1, 1; bra A;"},
    {"indexed", "L: mov.u32 %r1, 0; brx.idx %r1, TO; TO: .branchtargets L, OUT; OUT:"},
    {"into_the_middle",
     "setp.eq.u32 %p1, %r30, 0; @%p1 bra M; T: add.u32 %r1, %r1, 1; M: add.u32 "
     "%r1, %r1, 2; setp.ne.u32 %p2, %r30, 99; @%p2 bra T;"},
    {"others_at_a_barrier",
     "setp.ne.u32 %p1, %r30, 33; @%p1 bra OUT; L: bra L; OUT: bar.sync 0;\n"
     "bar.sync 0;",
     "", 64},
    {"in_a_function", "call f;", ".func f() { L: bra L; }"},
    {"in_a_scope", "{ .reg .pred %q; L: setp.lt.u32 %q, %r30, 99; @%q bra L; }"},
};

class Loops : public ::testing::TestWithParam<std::size_t> {};

TEST_P(Loops, EndOnceTheServerStopsThem) {
  const Stray& loop = kLoops[GetParam()];
  FenceBench bench(KernelText(loop.body, loop.module));
  ASSERT_EQ(bench.ReasonOfContained("k"), "");
  FenceLaunch launch = Prepare(bench);
  launch.grid = {2, 1, 1};
  launch.block = {loop.threads, 1, 1};
  bench.SetStop(1);
  EXPECT_THAT(GetFault(bench, launch), StartsWith("stopped"));
}

INSTANTIATE_TEST_SUITE_P(All, Loops, ::testing::Range<std::size_t>(0, std::size(kLoops)),
                         [](const auto& any) { return std::string(kLoops[any.param].name); });

// Counts the iterations that a thread executes after the stop, in any loop.
constexpr const char* kCount =
    "ld.volatile.global.u32 %r1, [%rd1]; add.u32 %r1, %r1, 1; "
    "st.volatile.global.u32 [%rd1], %r1;\n";

struct Turns {
  const char* name;
  std::string body, module;
  std::uint32_t turns_max;  // Maximum number of iterations after the stop.
};

std::string Repeat(int count, const std::string& text) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

// .func f<i> has a loop of this many iterations, each with a call of f<i+1>.
std::string LoopsInLoops(int depth, int turns) {
  std::string text;
  for (int i = depth; i-- > 0;) {
    const std::string number = std::to_string(i), next = std::to_string(i + 1);
    text +=
        ".func f" + number + "(.param .b64 p) { .reg .b64 %rd<4>; .reg .b32 %r<4>; " +
        ".reg .pred %p<2>; ld.param.b64 %rd1, [p]; mov.u32 %r2, " + std::to_string(turns) +
        ";\nL: " +
        (i == depth - 1 ? kCount
                        : "{ .param .b64 a; st.param.b64 [a], %rd1; call f" + next + ", (a); }\n") +
        "add.s32 %r2, %r2, -1; setp.gt.s32 %p1, %r2, 0; @%p1 bra L; ret; }\n";
  }
  return text;
}

// .func f<i> calls f<i+1> twice.
std::string CallsOfTwo(int depth) {
  std::string text;
  for (int i = depth; i-- > 0;) {
    const std::string number = std::to_string(i), next = std::to_string(i + 1);
    const std::string call =
        "{ .param .b64 a; st.param.b64 [a], %rd1; call f" + next + ", (a); }\n";
    text += ".func f" + number + "(.param .b64 p) { .reg .b64 %rd<4>; .reg .b32 %r<4>; " +
            "ld.param.b64 %rd1, [p];\n" + (i == depth - 1 ? kCount : call + call) + "ret; }\n";
  }
  return text;
}

const std::string kCallF0 = "{ .param .b64 a; st.param.b64 [a], %rd1; call f0, (a); }";

std::vector<Turns> AllTurns() {
  // Each part branches over the code in between, which would contain the polls.
  constexpr int kParts = 60;
  std::string forward = "setp.ge.u32 %p7, %r30, 0;\nAGAIN: @%p7 bra B0;\n";
  for (int i = 0; i < kParts; ++i) {
    forward += "A" + std::to_string(i) + ": " + Repeat(200, "red.global.add.u32 [%rd1+64], 1;\n") +
               "B" + std::to_string(i) + ": nanosleep.u32 20000;\n" + kCount +
               (i + 1 < kParts ? "@%p7 bra B" + std::to_string(i + 1) : "bra AGAIN") + ";\n";
  }
  const std::string sleeps = Repeat(600, "nanosleep.u32 100000;\n" + std::string(kCount));
  return {
      {"sleeping", "L: nanosleep.u32 1000000;\n" + std::string(kCount) + "bra L;", "", 128},
      {"sleeping_as_told",
       "mov.u32 %r4, -1; L: nanosleep.u32 %r4;\n" + std::string(kCount) + "bra L;", "", 128},
      {"atomics", "L: " + Repeat(100, "red.global.add.u32 [%rd1+64], 1;\n") + kCount + "bra L;", "",
       11},
      {"loops_in_functions", "L: " + kCallF0 + " bra L;", LoopsInLoops(2, 4000), 1100},
      {"loops_in_functions_in_functions", kCallF0, LoopsInLoops(4, 200), 1100},
      {"calls_without_loops", "L: " + kCallF0 + " bra L;", CallsOfTwo(22), 1100},
      {"short_loops_in_functions", "L: " + kCallF0 + " bra L;", LoopsInLoops(1, 40), 1100},
      {"short_loops_in_functions_in_functions", "L: " + kCallF0 + " bra L;", LoopsInLoops(5, 10),
       1100},
      {"straight_on", "AGAIN: " + sleeps + "bra AGAIN;", "", 128},
      {"over_the_looks", forward, "", 12},
  };
}

class TurnsOfLoops : public ::testing::TestWithParam<std::size_t> {};

TEST_P(TurnsOfLoops, AreFewAfterTheStop) {
  const Turns turns = AllTurns()[GetParam()];
  FenceBench bench(KernelText(turns.body, turns.module));
  ASSERT_EQ(bench.ReasonOfContained("k"), "");
  const FenceLaunch launch = Prepare(bench);
  std::atomic_ref count(*reinterpret_cast<std::uint32_t*>(bench.ranges().client() + kOut));
  std::uint32_t seen = 0;
  std::jthread server([&] {
    while (count.load() < 10) std::this_thread::yield();
    bench.SetStop(1);
    seen = count.load();
  });
  const std::string fault = GetFault(bench, launch);
  server.join();
  EXPECT_THAT(fault, StartsWith("stopped"));
  EXPECT_LE(Out(bench) - seen, turns.turns_max);
}

INSTANTIATE_TEST_SUITE_P(All, TurnsOfLoops, ::testing::Range<std::size_t>(0, AllTurns().size()),
                         [](const auto& any) { return std::string(AllTurns()[any.param].name); });

// Threads poll between two sleeps, never during one.
TEST(Contained, BoundsEverySleep) {
  FenceBench bench(
      KernelText("mov.u32 %r4, -1; nanosleep.u32 %r4; nanosleep.u32 1000000; nanosleep.u32 20;"));
  const ptx::Function* kernel = bench.contained().module.FindFunction("k");
  ASSERT_NE(kernel, nullptr);
  std::map<std::string, std::int64_t> bounds;  // By register.
  std::vector<std::int64_t> longest;
  for (const ptx::Statement& statement : *kernel->body) {
    const auto* instruction = std::get_if<ptx::Instruction>(&statement);
    if (instruction == nullptr) continue;
    const std::vector<ptx::Operand>& operands = instruction->operands;
    if (instruction->opcode == "min") bounds[operands[0].text] = operands[2].integer;
    if (instruction->opcode != "nanosleep") continue;
    const bool is_constant = operands[0].kind == ptx::Operand::Kind::kInteger;
    longest.push_back(is_constant ? operands[0].integer : bounds[operands[0].text]);
  }
  const auto most = static_cast<std::int64_t>(ptx::kSleepNsMax);
  EXPECT_THAT(longest, ::testing::ElementsAre(most, most, 20));
}

// The kernels' poll word is never set, because the driver accepts no call.
TEST(Contained, RemainingBlocksEndAtOnceAfterOneHasStopped) {
  FenceBench bench(KernelText("red.global.add.u32 [%rd1], 1; L: bra L;"));
  FenceLaunch launch = Prepare(bench);
  launch.grid = {1000, 1, 1};
  std::jthread server([&] {
    while (Out(bench) == 0) std::this_thread::yield();
    bench.SetStop(1);
  });
  EXPECT_THAT(GetFault(bench, launch), StartsWith("stopped"));
  EXPECT_EQ(Out(bench), 1u);
}

TEST(Contained, StoppedKernelsDoNotBegin) {
  FenceBench bench(KernelText("st.global.u32 [%rd1], 1;"));
  const FenceLaunch launch = Prepare(bench);
  bench.SetStopAtEntry(1);
  EXPECT_THAT(GetFault(bench, launch), HasSubstr("line 5 of 'k'"));
  EXPECT_EQ(Out(bench), 0u);
  bench.SetStopAtEntry(0);
  EXPECT_EQ(GetFault(bench, launch), "");
  EXPECT_EQ(Out(bench), 1u);
}

TEST(Contained, ReportsRecordOfUnknownPlace) {
  EXPECT_THAT(ptx::DescribeFault({}, {.place = 7}).message, HasSubstr("not in the module: 7"));
}

TEST(Contained, FaultMessageTruncatesLongNames) {
  const std::array<ptx::FaultPlace, 1> places = {{{.function = std::string(100'000, 'f')}}};
  EXPECT_LT(ptx::DescribeFault(places, {.place = 1}).message.size(), 1000u);
}

TEST(NotContained, NamesWhatCouldHangOrFault) {
  const std::array<std::array<const char*, 2>, 11> cases = {{
      {"call f, ();", "recursion"},
      {"bar.sync 0; bar.sync 1;", "line 16: a second barrier"},
      {"bar.sync 1, 64;", "a barrier for a part of the block"},
      {"bar.arrive 0, 64;", "a barrier for a part of the block"},
      {"bar.sync %r1;", "a barrier whose number is not constant"},
      {"bar.sync 16;", "a barrier that does not exist"},
      {"mbarrier.init.shared.b64 [s], 1;", "'mbarrier.init.shared.b64' is not known"},
      {"cvta.param.u64 %rd4, out; call h, ();",
       "line 16: generic address of a parameter, and function 'h' may read through it"},
      {"wmma.load.a.sync.aligned.row.m8n8k32.global.s4 {%r1}, [%rd1], %r2;", "is not known"},
      {"cvta.shared.u64 %rd4, s; wmma.load.a.sync.aligned.row.m16n16k16.f16 "
       "{%r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8}, [%rd4];",
       "is not known"},
      {"ld.param.u32 %r1, [out+2];", "outside of a parameter"},
  }};
  for (const auto& [body, reason] : cases) {
    const auto module = ptx::Parse(KernelText(
        body,
        ".shared .align 8 .b8 s[64];\n.func f() { call g, (); ret; }\n.func g() { call f, (); "
        "ret; } .func h() { .reg .b64 %a; ld.u64 %a, [%a]; ret; }"));
    ASSERT_TRUE(module) << module.status().message();
    const auto contained = ptx::Contain(*module, kRangeBytes);
    ASSERT_TRUE(contained) << contained.status().message();
    EXPECT_THAT(contained->kernels.at(0).reason, HasSubstr(reason)) << body;
    EXPECT_THAT(contained->kernels.at(0).reason, StartsWith("line ")) << body;
  }
}

}  // namespace
}  // namespace gpushared::testing
