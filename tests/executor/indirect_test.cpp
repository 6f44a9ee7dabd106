// SPDX-License-Identifier: Apache-2.0
// Calls through registers: every lane gets the result of the function that it names, and an address
// that names no function is a fault.
#include <array>
#include <string>

#include <gmock/gmock.h>

#include "tests/executor/kernel_file.h"

namespace gpushared::testing {
namespace {

using Kind = executor::Fault::Kind;
using ::testing::HasSubstr;

class IndirectCalls : public KernelFile {
 protected:
  IndirectCalls() : KernelFile("indirect") {}
};

// The function of the same name in indirect.cu, computed on the host.
unsigned Loop(unsigned a, unsigned b) {
  for (unsigned i = 0; i < a % 9; ++i) b = b * 3 + i;
  return b;
}
unsigned Operation(unsigned which, unsigned a, unsigned b) {
  return which == 0 ? a + b : which == 1 ? a - b : Loop(a, b);
}

TEST_P(IndirectCalls, LanesOfAWarpCallDifferentFunctions) {
  auto* choice = launcher.Allocate<unsigned>(80);
  auto* out = launcher.Allocate<unsigned>(80);
  for (const unsigned factor : {0u, 1u, 7u}) {
    for (unsigned i = 0; i < 80; ++i) choice[i] = i * factor + 2;
    Run("call_by_table", {1, 1, 1}, {80, 1, 1}, choice, out);
    for (unsigned i = 0; i < 80; ++i) {
      unsigned value = Operation(choice[i] % 3, i, 100);
      if (i % 5 != 0) value += choice[i] % 2 == 0 ? Loop(i, value) : i + value;
      ASSERT_EQ(out[i], value) << i << " of " << factor;
    }
  }
}

TEST_P(IndirectCalls, FunctionAddressIsTheSameInAllKernelsOfAModule) {
  auto* handed = launcher.Allocate<u64>(2);
  auto* out = launcher.Allocate<unsigned>(64);
  Run("hand_over", {1, 1, 1}, {32, 1, 1}, handed);
  EXPECT_NE(handed[0], handed[1]);
  Run("call_what_was_handed_over", {1, 1, 1}, {64, 1, 1}, handed, out);
  for (unsigned i = 0; i < 64; ++i) EXPECT_EQ(out[i], Operation(1 + i % 2, i, 7)) << i;
}

TEST_P(IndirectCalls, VirtualFunctions) {
  auto* out = launcher.Allocate<float>(64);
  for (const unsigned mask : {0u, 1u, 0xffu}) {
    Run("virtual_functions", {1, 1, 1}, {64, 1, 1}, out, mask);
    for (unsigned i = 0; i < 64; ++i) {
      const float t = static_cast<float>(i);
      const float area = (i & mask) != 0 ? t * t * 1001 : 3 * (t + 1) * 2001;
      ASSERT_EQ(out[i], area) << i;
    }
  }
}

TEST_P(IndirectCalls, IndirectCallsNestToDifferentDepths) {
  auto* out = launcher.Allocate<unsigned>(96);
  Run("walk", {1, 1, 1}, {96, 1, 1}, out);
  for (unsigned i = 0; i < 96; ++i) {
    unsigned value = i, calls = 0;
    for (unsigned left = i % 7; left != 0; ++calls) value = Operation(i % 3, value, --left);
    ASSERT_EQ(out[i], value + calls) << i;
  }
}

TEST_P(IndirectCalls, LanesMeetAtABarrierInsideCalledFunctions) {
  auto* out = launcher.Allocate<unsigned>(64);
  Run("wait_in_both", {1, 1, 1}, {64, 1, 1}, out);
  const auto put = [](unsigned t) { return t * 3 + (t % 3 == 0 ? 1000 : 0); };
  for (unsigned i = 0; i < 64; ++i) {
    EXPECT_EQ(out[i], i % 3 == 0 ? put((i + 1) % 64) : put(63 - i)) << i;
  }
}

TEST_P(IndirectCalls, LanesMayExitInsideACall) {
  auto* out = launcher.Allocate<unsigned>(64);
  Run("leave_inside", {1, 1, 1}, {64, 1, 1}, out);
  for (unsigned i = 0; i < 64; ++i) {
    EXPECT_EQ(out[i], i % 3 == 0 ? Loop(i, 20) : i % 4 == 1 ? 1 : i + 20) << i;
  }
}

TEST_P(IndirectCalls, AddressOfNoFunctionIsAFault) {
  auto* handed = launcher.Allocate<u64>(2);
  auto* out = launcher.Allocate<unsigned>(64);
  Run("hand_over", {1, 1, 1}, {32, 1, 1}, handed);
  const u64 subtract = handed[0];
  for (const u64 wrong : {u64{0}, u64{1}, subtract + 1, subtract + (u64{1} << 20), ~u64{0},
                          launcher.base(), reinterpret_cast<u64>(out)}) {
    handed[1] = wrong;
    out[0] = 77;
    const executor::Fault fault =
        Faulting("call_what_was_handed_over", {1, 1, 1}, {64, 1, 1}, handed, out);
    EXPECT_EQ(fault.kind, Kind::kCallTarget) << fault.message;
    EXPECT_EQ(fault.address, wrong);
    EXPECT_EQ(fault.thread.x, 1u);
    EXPECT_NE(fault.line, 0u);
    EXPECT_THAT(fault.message, HasSubstr("kernel 'call_what_was_handed_over'"));
    EXPECT_THAT(fault.message, HasSubstr("is the address of no function that the call may reach"));
    EXPECT_EQ(out[0], 77u);
  }
}

// Returns kernels that call through %d1, whose value the test supplies.
std::string CallText(const std::string& directive, const std::string& call) {
  return R"(
.version 9.0
.target sm_90
.address_size 64
.func (.param .b32 r) twice(.param .b32 x) {
  .reg .b32 %x; ld.param.u32 %x, [x]; add.u32 %x, %x, %x; st.param.b32 [r], %x; ret;
}
.func (.param .b32 r) next(.param .b32 x) {
  .reg .b32 %x; ld.param.u32 %x, [x]; add.u32 %x, %x, 1; st.param.b32 [r], %x; ret;
}
.func (.param .b32 r) wide(.param .b64 x) { .reg .b32 %x; mov.u32 %x, 9; st.param.b32 [r], %x; ret; }
.func nothing() { ret; }
.func (.param .b32 r) untaken(.param .b32 x) { ret; }
.visible .entry addresses(.param .u64 out) {
  .reg .b64 %o, %f;
  ld.param.u64 %o, [out];
  mov.u64 %f, twice; st.global.u64 [%o], %f;
  mov.u64 %f, next; st.global.u64 [%o+8], %f;
  mov.u64 %f, wide; st.global.u64 [%o+16], %f;
  mov.u64 %f, nothing; st.global.u64 [%o+24], %f;
  ret;
}
.visible .entry k(.param .u64 out, .param .u64 f) {
  .reg .b64 %o, %d1, %at; .reg .b32 %x; .reg .pred %odd;
  ld.param.u64 %o, [out]; ld.param.u64 %d1, [f];
  mov.u32 %x, %tid.x; mul.wide.u32 %at, %x, 4; add.u64 %o, %o, %at;
  and.b32 %x, %x, 1; setp.eq.u32 %odd, %x, 1; mov.u32 %x, %tid.x;
  {
  .param .b32 a; .param .b32 b;
  st.param.b32 [a], %x;
  st.param.b32 [b], %x;
)" + directive +
         "\n" + call + R"(
  ld.param.b32 %x, [b];
  }
  st.global.u32 [%o], %x;
  ret;
}
)";
}
constexpr const char* kPrototype = "P: .callprototype (.param .b32 _) _ (.param .b32 _);";

struct CallCase {
  Launcher launcher;
  u64* addresses;
  unsigned* out;
  executor::RunOutcome outcome = {};

  CallCase(executor::Flavour flavour, const std::string& directive, const std::string& call)
      : launcher(std::uint64_t{1} << 20, flavour) {
    launcher.Load(CallText(directive, call));
    addresses = launcher.Allocate<u64>(4);
    out = launcher.Allocate<unsigned>(32);
    launcher.Run("addresses", {1, 1, 1}, {1, 1, 1}, addresses);
  }
  executor::RunOutcome Run(u64 function) {
    return launcher.Run("k", {1, 1, 1}, {32, 1, 1}, out, function);
  }
};

TEST_P(IndirectCalls, GuardedLanesDoNotCall) {
  CallCase test(GetParam(), kPrototype, "@%odd call (b), %d1, (a), P;");
  ASSERT_FALSE(test.Run(test.addresses[0]).fault);
  for (unsigned i = 0; i < 32; ++i) EXPECT_EQ(test.out[i], i % 2 == 1 ? 2 * i : i);
}

TEST_P(IndirectCalls, FunctionWithOtherParametersIsAFault) {
  CallCase test(GetParam(), kPrototype, "call (b), %d1, (a), P;");
  ASSERT_FALSE(test.Run(test.addresses[1]).fault);
  EXPECT_EQ(test.out[5], 6u);
  const std::array<std::array<const char*, 2>, 2> wrong = {{{"wide", ""}, {"nothing", ""}}};
  for (std::size_t i = 0; i < wrong.size(); ++i) {
    const executor::RunOutcome outcome = test.Run(test.addresses[2 + i]);
    ASSERT_TRUE(outcome.fault) << wrong[i][0];
    EXPECT_EQ(outcome.fault->kind, Kind::kCallPrototype);
    EXPECT_THAT(outcome.fault->message,
                HasSubstr("function '" + std::string(wrong[i][0]) + "' at 0x44"));
    EXPECT_THAT(outcome.fault->message, HasSubstr("parameters or results of other sizes"));
  }
}

TEST_P(IndirectCalls, FaultMessageTruncatesLongNames) {
  std::string text = CallText(kPrototype, "call (b), %d1, (a), P;");
  for (std::size_t at = 0; (at = text.find("wide(", at)) != std::string::npos;) {
    text.replace(at, 4, std::string(100'000, 'w'));
  }
  const std::size_t taken = text.find("%f, wide;");
  text.replace(taken + 4, 4, std::string(100'000, 'w'));
  launcher.Load(text);
  auto* const addresses = launcher.Allocate<u64>(4);
  launcher.Run("addresses", {1, 1, 1}, {1, 1, 1}, addresses);
  const executor::RunOutcome outcome =
      launcher.Run("k", {1, 1, 1}, {32, 1, 1}, addresses, addresses[2]);
  ASSERT_TRUE(outcome.fault);
  EXPECT_LT(outcome.fault->message.size(), 1000u);
}

// A program that invents an address can call only functions whose addresses are taken somewhere in
// the text.
TEST_P(IndirectCalls, FunctionWhoseAddressIsNotTakenIsUnreachable) {
  CallCase test(GetParam(), kPrototype, "call (b), %d1, (a), P;");
  const executor::RunOutcome outcome = test.Run(test.addresses[3] + 16);
  ASSERT_TRUE(outcome.fault);
  EXPECT_EQ(outcome.fault->kind, Kind::kCallTarget);
}

TEST_P(IndirectCalls, CallReachesOnlyItsListedTargets) {
  CallCase test(GetParam(), "T: .calltargets next, twice;", "call (b), %d1, (a), T;");
  ASSERT_FALSE(test.Run(test.addresses[0]).fault);
  EXPECT_EQ(test.out[5], 10u);
  ASSERT_FALSE(test.Run(test.addresses[1]).fault);
  EXPECT_EQ(test.out[5], 6u);
  CallCase narrow(GetParam(), "T: .calltargets next;", "call (b), %d1, (a), T;");
  EXPECT_FALSE(narrow.Run(narrow.addresses[1]).fault);
  const executor::RunOutcome outcome = narrow.Run(narrow.addresses[0]);
  ASSERT_TRUE(outcome.fault);
  EXPECT_EQ(outcome.fault->kind, Kind::kCallTarget);
}

TEST_P(IndirectCalls, AddressOfAFunctionIsNoMemory) {
  CallCase test(GetParam(), kPrototype, "ld.u32 %x, [%d1];");
  const executor::RunOutcome outcome = test.Run(test.addresses[0]);
  ASSERT_TRUE(outcome.fault);
  EXPECT_EQ(outcome.fault->kind, Kind::kGlobalAddress);
}

TEST_P(IndirectCalls, RejectsCallsThatCannotBeChecked) {
  const auto unsupported = [&](const std::string& directive, const std::string& call) {
    Launcher other(std::uint64_t{1} << 20, GetParam());
    other.Load(CallText(directive, call));
    return other.Kernel("k").info().unsupported;
  };
  EXPECT_THAT(unsupported("", "call (b), %d1, (a);"),
              HasSubstr("line 33: indirect call without a prototype"));
  EXPECT_THAT(unsupported("P: .callprototype wild wild;", "call (b), %d1, (a), P;"),
              HasSubstr("indirect call without a prototype"));
  EXPECT_THAT(unsupported("P: .calltargets nobody;", "call (b), %d1, (a), P;"),
              HasSubstr("indirect call without a prototype"));
  EXPECT_THAT(unsupported(kPrototype, "call (b), %d1, (a, a), P;"),
              HasSubstr("call with 2 arguments or results instead of 1"));
  EXPECT_THAT(unsupported(kPrototype, "mov.u32 %x, twice;"),
              HasSubstr("address of function 'twice' in less than 64 bits"));
  EXPECT_THAT(unsupported(kPrototype, "call k, (a, a);"), HasSubstr("call of 'k'"));
}

// Functions whose parameters and results are registers, and calls that pass registers and numbers
// to parameters of either kind: by name, through a prototype and through a list of targets.
constexpr const char* kInRegisters = R"(.version 8.3
.target sm_80
.address_size 64
.func (.reg .u32 r) factorial(.reg .u32 n)
{
  .reg .pred q; .reg .u32 rest;
  mov.u32 r, 1;
  setp.eq.u32 q, n, 0;
  @q ret;
  sub.u32 rest, n, 1;
  call (rest), factorial, (rest);
  mul.lo.u32 r, rest, n;
}
.func (.reg .u64 w) sum(.reg .f32 a, .reg .u64 b, .reg .u32 c)
{
  .reg .u64 t;
  add.u32 c, c, 1;
  cvt.u64.u32 w, c;
  add.u64 w, w, b;
  add.f32 a, a, a;
  cvt.rzi.u64.f32 t, a;
  add.u64 w, w, t;
  ret;
}
.func (.param .align 8 .b8 out[16]) add_to(.reg .u64 place, .param .align 8 .b8 in[16])
{
  .reg .b32 x, y;
  ld.param.v2.u32 {x, y}, [in+8];
  add.u32 x, x, y;
  st.global.u32 [place], x;
  st.param.u32 [out+4], x;
  ret;
}
.func (.reg .u32 r) by_seven(.reg .u32 a) { mul.lo.u32 r, a, 7; ret; }
.func (.param .b32 r) plain(.param .b32 a) { .reg .b32 x; ld.param.b32 x, [a]; st.param.b32 [r], x; ret; }
.global .u64 table[1] = {add_to};
.visible .entry check(.param .u64 results)
{
  .reg .b64 o, t, w, code; .reg .b32 n, v, u; .reg .pred p;
  ld.param.u64 o, [results];
  mov.u32 n, %tid.x;
  mad.wide.u32 o, n, 32, o;
  and.b32 v, n, 7;
  call (v), factorial, (v);
  st.global.u32 [o], v;
  setp.lt.u32 p, n, 20;
  mov.u64 w, 5;
  @p call (w), sum, (1.5, (1<<33)+1, n);
  st.global.u64 [o+8], w;
  ld.global.u64 code, [table];
  add.u64 t, o, 16;
  {
    .param .align 8 .b8 in[16]; .param .align 8 .b8 out[16];
    PROTO: .callprototype (.param .align 8 .b8 _[16]) _ (.reg .u64 _, .param .align 8 .b8 _[16]);
    st.param.v2.u32 [in+8], {n, 100};
    call (out), code, (t, in), PROTO;
    ld.param.u32 u, [out+4];
  }
  st.global.u32 [o+20], u;
  mov.u64 code, by_seven;
  LIST: .calltargets by_seven;
  call (u), code, (n), LIST;
  st.global.u32 [o+24], u;
  call (u), plain, (n);
  call (_), plain, (7);
  st.global.u32 [o+28], u;
  ret;
})";

TEST_P(IndirectCalls, ParametersMayBeRegisters) {
  launcher.Load(kInRegisters);
  struct Results {
    u32 factorial, unused;
    u64 sum;
    u32 stored, returned, by_seven, plain;
  };
  auto* out = launcher.Allocate<Results>(80);
  Run("check", {1, 1, 1}, {80, 1, 1}, out);
  for (u32 n = 0; n < 80; ++n) {
    u32 factorial = 1;
    for (u32 k = n % 8; k > 1; --k) factorial *= k;
    EXPECT_EQ(out[n].factorial, factorial);
    EXPECT_EQ(out[n].sum, n < 20 ? (u64{1} << 33) + 5 + n : 5);
    EXPECT_EQ(out[n].stored, n + 100);
    EXPECT_EQ(out[n].returned, n + 100);
    EXPECT_EQ(out[n].by_seven, n * 7);
    EXPECT_EQ(out[n].plain, n);
  }
}

GPUSHARED_INSTANTIATE_FLAVOURS(IndirectCalls);

}  // namespace
}  // namespace gpushared::testing
