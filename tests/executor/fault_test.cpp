// SPDX-License-Identifier: Apache-2.0
// Faults that end a kernel. Each names the kernel, block, thread, PTX line, instruction and
// address. The faulting instruction writes nothing, and the next run is unaffected.
#include <array>
#include <memory>
#include <string>

#include <gmock/gmock.h>

#include "tests/executor/launcher.h"
#include "tests/executor/op_harness.h"

namespace gpushared::testing {
namespace {

using Kind = executor::Fault::Kind;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::array<u32, 3> Coordinates(const device::Dim3& at) { return {at.x, at.y, at.z}; }

class Faults : public PerFlavour {
 protected:
  void SetUp() override {
    PerFlavour::SetUp();
    launcher_ = std::make_unique<Launcher>(65536, GetParam());
    cells_ = launcher_->Allocate<u64>(64);
  }

  // Runs `code`, which begins in line 11 of the text, in two blocks of (8, 4, 2) threads. `%me` is
  // true only for thread (3, 2, 1) of block (1, 0, 0). `%a` is the start of memory.
  executor::RunOutcome RunCode(const std::string& code) {
    launcher_->Load(
        ".version 9.0\n.target sm_90\n.address_size 64\n"
        ".visible .entry faulty(.param .u64 a, .param .u64 count) {\n"
        ".shared .align 16 .b8 area[128]; .local .align 16 .b8 own[32];\n"
        ".reg .pred %me, %all; .reg .b32 %r<9>; .reg .b64 %a, %d<9>; .reg .b16 %h;\n"
        "mov.u32 %r0, %tid.x; mov.u32 %r1, %tid.y; mov.u32 %r2, %tid.z; mov.u32 %r3, %ctaid.x;\n"
        "mad.lo.u32 %r1, %r1, 8, %r0; mad.lo.u32 %r2, %r2, 32, %r1; mad.lo.u32 %r2, %r3, 64, %r2;\n"
        "setp.eq.u32 %me, %r2, 115; ld.param.u64 %a, [a]; setp.eq.u32 %all, %r3, 1;\n"
        "mov.u64 %d8, 0; mov.u32 %r8, 0;\n" +
        code + "\nret;\n}\n");
    return launcher_->Run("faulty", {2, 1, 1}, {8, 4, 2}, cells_, u64{64});
  }
  void Expect(const std::string& code, Kind kind, u64 address, u32 bytes,
              const std::string& instruction, const std::string& says) {
    const executor::RunOutcome outcome = RunCode(code);
    ASSERT_EQ(outcome.end, executor::RunOutcome::End::kFaulted) << code;
    ASSERT_TRUE(outcome.fault);
    const executor::Fault& fault = *outcome.fault;
    EXPECT_EQ(fault.kind, kind) << fault.message;
    EXPECT_THAT(Coordinates(fault.block), ElementsAre(1, 0, 0));
    EXPECT_THAT(Coordinates(fault.thread), ElementsAre(3, 2, 1));
    EXPECT_EQ(fault.line, 11u) << fault.message;
    EXPECT_EQ(fault.instruction, instruction);
    EXPECT_EQ(fault.address, address) << fault.message;
    EXPECT_EQ(fault.bytes, bytes) << fault.message;
    EXPECT_THAT(fault.message,
                HasSubstr("kernel 'faulty', block (1,0,0) thread (3,2,1), PTX line 11, " +
                          instruction + ": "));
    EXPECT_THAT(fault.message, HasSubstr(says));
    EXPECT_EQ(outcome.blocks_done, 1u);
  }
  u64 base() const { return launcher_->base(); }

  std::unique_ptr<Launcher> launcher_;
  u64* cells_ = nullptr;
};

constexpr u64 kMemory = 65536;

TEST_P(Faults, OutsideTheClientsMemory) {
  Expect("@%me ld.global.u32 %r4, [%d8];", Kind::kGlobalAddress, 0, 4, "ld.global.u32",
         "4 bytes at 0x0 are outside the client's 65536 bytes of memory");
  Expect("@%me st.global.f64 [0x10], 0d0000000000000000;", Kind::kGlobalAddress, 16, 8,
         "st.global.f64", "bytes before its start");
  const u64 end = base() + kMemory;
  Expect("add.u64 %d1, %a, 65536; @%me ld.global.u8 %r4, [%d1];", Kind::kGlobalAddress, end, 1,
         "ld.global.u8", "0 bytes past its end");
  Expect("add.u64 %d1, %a, 65528; @%me st.global.v2.u64 [%d1], {%a, %a};", Kind::kGlobalAddress,
         end - 8, 16, "st.global.v2.u64", "8 bytes too far");
  Expect("@%me st.global.u32 [%a+-4], %r4;", Kind::kGlobalAddress, base() - 4, 4, "st.global.u32",
         "4 bytes before its start");
  Expect("add.u64 %d1, %a, 65536; @%me atom.global.add.u32 %r4, [%d1], 1;", Kind::kGlobalAddress,
         end, 4, "atom.global.add.u32", "outside the client's");
  Expect("add.u64 %d1, %a, 65536; @%me red.add.u64 [%d1], %a;", Kind::kGlobalAddress, end, 8,
         "red.add.u64", "outside the client's");
  Expect("@%me ld.volatile.global.u32 %r4, [%d8+8];", Kind::kGlobalAddress, 8, 4,
         "ld.volatile.global.u32", "outside");
  Expect("mov.u64 %d1, -4; @%me ld.u32 %r4, [%d1];", Kind::kGlobalAddress, ~u64{3}, 4, "ld.u32",
         "outside");
}

TEST_P(Faults, OutsideTheBlocksSharedMemory) {
  Expect("mov.u32 %r4, area; @%me ld.shared.u32 %r5, [%r4+128];", Kind::kSharedAddress, 128, 4,
         "ld.shared.u32", "4 bytes at 0x80 are outside the block's 128 bytes of shared memory");
  Expect("@%me st.shared.v4.u32 [area+120], {%r0, %r0, %r0, %r0};", Kind::kSharedAddress, 120, 16,
         "st.shared.v4.u32", "8 bytes too far");
  Expect("mov.u32 %r4, -4; @%me ld.shared.f32 %r5, [%r4];", Kind::kSharedAddress, 0xfffffffc, 4,
         "ld.shared.f32", "past its end");
  Expect("@%me atom.shared.cas.b32 %r5, [area+128], 0, 1;", Kind::kSharedAddress, 128, 4,
         "atom.shared.cas.b32", "outside");
  Expect("cvta.shared.u64 %d1, area; @%me st.u8 [%d1+164], %r0;", Kind::kSharedAddress, 164, 1,
         "st.u8", "36 bytes past its end");
}

TEST_P(Faults, OutsideTheThreadsLocalMemory) {
  Expect("@%me st.local.u32 [own+32], %r0;", Kind::kLocalAddress, 32, 4, "st.local.u32",
         "4 bytes at 0x20 are outside the thread's 32 bytes of local memory");
  Expect("cvta.local.u64 %d1, own; @%me ld.u64 %d2, [%d1+28];", Kind::kLocalAddress, 28, 8,
         "ld.u64", "4 bytes too far");
}

TEST_P(Faults, OutsideTheParameters) {
  Expect("mov.u64 %d1, count; @%me ld.param.u64 %d2, [%d1+8];", Kind::kParameterAddress, 16, 8,
         "ld.param.u64", "outside the kernel's 16 bytes of parameters");
}

// Parameters can be read through generic addresses but not written.
TEST_P(Faults, GenericAddressesOfParameters) {
  const std::string generic = "mov.u64 %d1, count; cvta.param.u64 %d1, %d1; ";
  constexpr u64 kCount = executor::kParameterWindow + 8;
  Expect(generic + "@%me ld.u32 %r4, [%d1+8];", Kind::kParameterAddress, 16, 4, "ld.u32",
         "4 bytes at 0x10 are outside the kernel's 16 bytes of parameters");
  Expect(generic + "@%me ld.u32 %r4, [%d1+2];", Kind::kMisaligned, kCount + 2, 4, "ld.u32",
         "not aligned");
  Expect(generic + "@%me st.u32 [%d1], %r4;", Kind::kGlobalAddress, kCount, 4, "st.u32",
         "outside the client's 65536 bytes of memory");
  Expect(generic + "@%me st.volatile.u64 [%d1], %d1;", Kind::kGlobalAddress, kCount, 8,
         "st.volatile.u64", "outside the client's 65536 bytes of memory");
  Expect(generic + "@%me atom.add.u32 %r4, [%d1], 1;", Kind::kGlobalAddress, kCount, 4,
         "atom.add.u32", "outside the client's 65536 bytes of memory");
  Expect(generic + "@%me red.or.b32 [%d1], 1;", Kind::kGlobalAddress, kCount, 4, "red.or.b32",
         "outside the client's 65536 bytes of memory");
}

TEST_P(Faults, Misaligned) {
  Expect("@%me ld.global.u32 %r4, [%a+2];", Kind::kMisaligned, base() + 2, 4, "ld.global.u32",
         "are not aligned to their size");
  Expect("@%me st.global.v2.f32 [%a+4], {%r4, %r4};", Kind::kMisaligned, base() + 4, 8,
         "st.global.v2.f32", "not aligned");
  Expect("@%me atom.global.exch.b64 %d1, [%a+4], %a;", Kind::kMisaligned, base() + 4, 8,
         "atom.global.exch.b64", "not aligned");
  Expect("@%me ld.shared.u16 %h, [area+1];", Kind::kMisaligned, 1, 2, "ld.shared.u16",
         "not aligned");
  Expect("@%me ld.local.u64 %d1, [own+4];", Kind::kMisaligned, 4, 8, "ld.local.u64", "not aligned");
  Expect("@%me ld.u32 %r4, [%a+1];", Kind::kMisaligned, base() + 1, 4, "ld.u32", "not aligned");
}

TEST_P(Faults, TrapsAndOperandsOutOfRange) {
  Expect("@%me trap;", Kind::kTrap, 0, 0, "trap", "the kernel trapped");
  Expect("@%me brkpt;", Kind::kTrap, 0, 0, "brkpt", "the kernel trapped");
  Expect("mov.u32 %r4, 16; @%me bar.sync %r4;", Kind::kInvalidOperand, 16, 0, "bar.sync",
         "operand 16 is out of range");
  Expect("mov.u32 %r4, 9; @%me brx.idx %r4, TABLE; TABLE: .branchtargets ONE, TWO; ONE: TWO:",
         Kind::kInvalidOperand, 9, 0, "brx.idx", "operand 9 is out of range");
}

// The fast paths check all lanes at once. Such a check must find one bad lane among good ones
// before any of the good ones has accessed memory.
TEST_P(Faults, NoLaneWritesIfOneFaults) {
  const struct {
    const char* address;
    const char* kind;
  } kPatterns[] = {
      {"mul.wide.u32 %d1, %r2, 8; add.u64 %d1, %a, %d1; add.u64 %d1, %d1, 65024;", "consecutive"},
      {"sub.u32 %r4, 127, %r2; mul.wide.u32 %d1, %r4, 8; add.u64 %d1, %a, %d1; add.u64 %d1, %d1, "
       "65200;",
       "reversed"},
  };
  for (const auto& pattern : kPatterns) {
    const auto outcome = RunCode(std::string(pattern.address) + "\n@%all st.global.u64 [%d1], %a;");
    ASSERT_TRUE(outcome.fault) << pattern.kind;
    EXPECT_EQ(outcome.fault->kind, Kind::kGlobalAddress);
    // Threads of warp 0 of block 1 reach beyond the end of memory, so no thread of this warp may
    // have stored.
    const u64* tail = reinterpret_cast<const u64*>(base() + 65024 + 64 * 8);
    for (u64 at = 0; reinterpret_cast<u64>(tail + at) < base() + kMemory; ++at) {
      EXPECT_EQ(tail[at], 0u) << pattern.kind;
    }
  }
}

// The next run on the same executor starts from a clean state.
TEST_P(Faults, ExecutorRunsAgainAfterAFault) {
  const auto first = RunCode(
      "bar.sync 0; @%me trap; bar.sync 0; atom.shared.add.u32 %r4, [area], 1; @%me st.global.u64 "
      "[%a], 7;");
  EXPECT_TRUE(first.fault);
  launcher_->Load(
      ".version 9.0\n.target sm_90\n.address_size 64\n.visible .entry fine(.param .u64 a) {\n"
      ".shared .align 4 .b32 cell; .reg .b32 %r<3>; .reg .b64 %a;\n"
      "ld.param.u64 %a, [a]; atom.shared.add.u32 %r0, [cell], 1; bar.sync 0; ld.shared.u32 %r1, "
      "[cell];\n"
      "st.global.u32 [%a], %r1; ret;\n}\n");
  const auto second = launcher_->Run("fine", {1, 1, 1}, {70, 1, 1}, cells_);
  EXPECT_FALSE(second.fault);
  EXPECT_EQ(*cells_, 70u);
}

TEST_P(Faults, BlockThatCannotContinueIsADeadlock) {
  const auto outcome = RunCode("setp.lt.u32 %me, %r0, 4; @%me bar.sync 1, 128;");
  ASSERT_TRUE(outcome.fault);
  EXPECT_EQ(outcome.fault->kind, Kind::kDeadlock);
  EXPECT_THAT(outcome.fault->message, HasSubstr("every thread of the block waits"));
}

TEST_P(Faults, EndlessLoopIsKilled) {
  Launcher launcher(65536, GetParam());
  launcher.Load(
      ".version 9.0\n.target sm_90\n.address_size 64\n.visible .entry spin() {\nLOOP: bra "
      "LOOP;\n}\n");
  launcher.kill = true;
  const auto outcome = launcher.Run("spin", {1, 1, 1}, {64, 1, 1});
  EXPECT_EQ(outcome.end, executor::RunOutcome::End::kKilled);
  launcher.kill = false;
  launcher.stop = true;
  EXPECT_EQ(launcher.Run("spin", {1, 1, 1}, {64, 1, 1}).end, executor::RunOutcome::End::kStopped);
}

GPUSHARED_INSTANTIATE_FLAVOURS(Faults);

}  // namespace
}  // namespace gpushared::testing
