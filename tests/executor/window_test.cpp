// SPDX-License-Identifier: Apache-2.0
// Launches that may access only a part of their client's memory, in pieces.
#include <array>
#include <memory>
#include <string>

#include <gmock/gmock.h>

#include "tests/executor/launcher.h"
#include "tests/executor/op_harness.h"

namespace gpushared::testing {
namespace {

using Kind = executor::Fault::Kind;
using ::testing::HasSubstr;

constexpr u32 kPieces = 3;
constexpr u32 kPieceWords = 512;  // u32 each; padding of the same size separates two pieces.
constexpr u64 kPieceSize = kPieceWords * sizeof(u32);

// Three pieces of memory with padding between them.
class Window : public PerFlavour {
 protected:
  void SetUp() override {
    PerFlavour::SetUp();
    launcher_ = std::make_unique<Launcher>(65536, GetParam());
    words_ = launcher_->Allocate<u32>(2 * kPieces * kPieceWords);
    for (u32 i = 0; i < 2 * kPieces * kPieceWords; ++i) words_[i] = i * 2654435761u;
  }

  u64 Piece(u32 i) const { return reinterpret_cast<u64>(words_) + 2 * i * kPieceSize; }
  device::Reach GetReach(std::initializer_list<u32> pieces) const {
    device::Reach reach;
    for (const u32 i : pieces) reach.Add({.base = Piece(i), .bytes = kPieceSize});
    return reach;
  }

  // Runs `code` in one block of 64 threads. %a, %b and %c are the addresses of the thread's word of
  // each piece. %a0, %b0 and %c0 are the addresses of the pieces. %t is the thread.
  executor::RunOutcome RunCode(const std::string& code) {
    launcher_->Load(
        ".version 9.0\n.target sm_90\n.address_size 64\n"
        ".global .u32 variable[64];\n"
        ".visible .entry looks(.param .u64 pa, .param .u64 pb, .param .u64 pc) {\n"
        ".shared .align 16 .b8 area[1024];\n"
        ".reg .pred %p<4>; .reg .b32 %t, %r<9>; .reg .b64 %a, %b, %c, %a0, %b0, %c0, %d<9>;\n"
        "mov.u32 %t, %tid.x; ld.param.u64 %a0, [pa]; ld.param.u64 %b0, [pb];\n"
        "ld.param.u64 %c0, [pc]; mad.wide.u32 %a, %t, 4, %a0; mad.wide.u32 %b, %t, 4, %b0;\n"
        "mad.wide.u32 %c, %t, 4, %c0; mov.u64 %d8, 0; mov.u32 %r8, 0;\n" +
        code + "\nret;\n}\n");
    return launcher_->Run("looks", {1, 1, 1}, {64, 1, 1}, Piece(0), Piece(1), Piece(2));
  }
  void ExpectFault(const std::string& code, Kind kind, u64 address, const std::string& says) {
    const executor::RunOutcome outcome = RunCode(code);
    ASSERT_EQ(outcome.end, executor::RunOutcome::End::kFaulted) << code;
    EXPECT_EQ(outcome.fault->kind, kind) << outcome.fault->message;
    EXPECT_EQ(outcome.fault->address, address) << outcome.fault->message;
    EXPECT_THAT(outcome.fault->message, HasSubstr(says)) << code;
  }

  std::unique_ptr<Launcher> launcher_;
  u32* words_ = nullptr;
};

// All patterns in which lanes access memory, across the pieces.
const std::array<std::string, 12> kWays = {
    "ld.global.u32 %r1, [%a]; st.global.u32 [%b], %r1; ld.global.u32 %r2, [%b+256];"
    "st.global.u32 [%c], %r2;",
    "ld.u32 %r1, [%c]; st.u32 [%a], %r1; ld.u32 %r2, [%a]; add.u32 %r2, %r2, 1; st.u32 [%b], %r2;",
    // One word for all lanes, and a word of every fourth row.
    "ld.global.u32 %r1, [%b0+8]; st.global.u32 [%a], %r1; mad.wide.u32 %d1, %t, 16, %c0;"
    "ld.global.u32 %r2, [%d1]; st.global.u32 [%b], %r2;",
    // Access by a few lanes.
    "and.b32 %r1, %t, 5; setp.eq.u32 %p1, %r1, 1; @%p1 ld.global.u32 %r2, [%a];"
    "@%p1 st.global.u32 [%c], %r2; @!%p1 ld.global.u32 %r3, [%c]; @!%p1 st.global.u32 [%b], %r3;",
    // Access to a different piece by each lane.
    "rem.u32 %r1, %t, 3; setp.eq.u32 %p1, %r1, 1; setp.eq.u32 %p2, %r1, 2; selp.b64 %d1, %b, %a, "
    "%p1;"
    "selp.b64 %d1, %c, %d1, %p2; ld.global.u32 %r2, [%d1]; add.u32 %r2, %r2, 7;"
    "st.global.u32 [%d1+1024], %r2; ld.u32 %r2, [%d1+4]; st.u32 [%d1+512], %r2;",
    "mad.wide.u32 %d1, %t, 16, %a0; mad.wide.u32 %d2, %t, 16, %b0;"
    "ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%d1]; st.global.v4.u32 [%d2], {%r4, %r3, %r2, %r1};",
    "ld.volatile.global.u32 %r1, [%a]; st.volatile.global.u32 [%b], %r1;"
    "ld.relaxed.gpu.global.u32 %r1, [%c]; st.release.gpu.u32 [%a+256], %r1;",
    "atom.global.add.u32 %r1, [%a], %t; atom.add.u32 %r2, [%b], %r1; red.global.max.u32 [%c], %r2;"
    "st.global.u32 [%c+512], %r2;",
    "mov.u32 %r1, area; shl.b32 %r2, %t, 4; add.u32 %r1, %r1, %r2; mad.wide.u32 %d1, %t, 16, %b0;"
    "cp.async.cg.shared.global [%r1], [%d1], 16; cp.async.wait_all; ld.shared.u32 %r3, [%r1+4];"
    "st.global.u32 [%a], %r3; st.global.u32 [%c], %r3;",
    "ld.global.u8 %r1, [%a+3]; st.global.u8 [%b+1], %r1; ld.global.s16 %r2, [%c+2];"
    "st.global.u16 [%a], %r2; ld.global.u64 %d1, [%b0+64]; st.global.u64 [%c0+128], %d1;",
    // Variables of the module are not a part of the access set.
    "mov.u64 %d1, variable; mad.wide.u32 %d1, %t, 4, %d1; ld.global.u32 %r1, [%a];"
    "st.global.u32 [%d1], %r1; bar.sync 0; ld.u32 %r2, [%d1]; st.global.u32 [%b], %r2;",
    // No access to an invalid address, because the guard is false in all lanes.
    "setp.eq.u32 %p1, %t, 99; @%p1 ld.global.u32 %r1, [%d8]; st.global.u32 [%a], %t;"};

TEST_P(Window, EveryAccessPatternReachesEveryPiece) {
  const std::vector<u32> before(words_, words_ + 2 * kPieces * kPieceWords);
  for (const std::string& way : kWays) {
    for (const bool pauses : {false, true}) {
      std::copy(before.begin(), before.end(), words_);
      launcher_->reaches.clear();
      launcher_->pause_always = false;
      ASSERT_EQ(RunCode(way).end, executor::RunOutcome::End::kFinished) << way;
      const std::vector<u32> wanted(words_, words_ + before.size());
      EXPECT_NE(wanted, before) << way;
      std::copy(before.begin(), before.end(), words_);
      launcher_->reaches = {GetReach({0, 1, 2})};
      launcher_->pause_always = pauses;
      const executor::RunOutcome outcome = RunCode(way);
      ASSERT_EQ(outcome.end, executor::RunOutcome::End::kFinished) << way << outcome.fault->message;
      EXPECT_EQ(std::vector<u32>(words_, words_ + before.size()), wanted) << way;
    }
  }
}

TEST_P(Window, AccessBetweenPiecesIsAFault) {
  launcher_->reaches = {GetReach({0, 2})};
  const std::vector<u32> before(words_, words_ + 2 * kPieces * kPieceWords);
  const std::string says =
      "are outside of what the launch may touch: 2 pieces to which its "
      "parameters point, one of 2048 bytes at 0x";
  for (const char* access :
       {"ld.global.u32 %r1, [%b];", "ld.u32 %r1, [%b];", "ld.global.u32 %r1, [%b0];",
        "st.global.u32 [%b], %t;", "st.u32 [%b], %t;", "atom.global.add.u32 %r1, [%b], 1;",
        "red.add.u32 [%b], 1;", "ld.volatile.u32 %r1, [%b];", "st.release.gpu.global.u32 [%b], %t;",
        "ld.global.v2.u32 {%r1, %r2}, [%b0];",
        "setp.lt.u32 %p1, %t, 9; @%p1 st.global.u32 [%b], %t;",
        "cp.async.ca.shared.global [area], [%b0], 4;"}) {
    for (const char* first : {"", "ld.global.u32 %r3, [%a];", "ld.global.u32 %r3, [%c];"}) {
      ExpectFault(std::string(first) + access, Kind::kGlobalAddress, Piece(1), says);
    }
  }
  EXPECT_EQ(std::vector<u32>(words_, words_ + before.size()), before);
  ExpectFault("ld.global.u32 %r1, [%a0+2048];", Kind::kGlobalAddress, Piece(0) + kPieceSize,
              "0 bytes past its end");
  ExpectFault("ld.global.u32 %r1, [%c0+-4];", Kind::kGlobalAddress, Piece(2) - 4,
              "bytes past its end");
  // An address outside the client's memory is still reported as such.
  ExpectFault("ld.global.u32 %r1, [%d8];", Kind::kGlobalAddress, 0,
              "are outside the client's 65536 bytes of memory");
}

TEST_P(Window, AccessMustBeAlignedAndInsideOnePiece) {
  launcher_->reaches = {GetReach({0, 1, 2})};
  launcher_->reaches[0].Add({.base = Piece(1) + kPieceSize, .bytes = 4});
  ExpectFault("ld.global.u32 %r1, [%a]; ld.global.u64 %d1, [%b0+2048];", Kind::kGlobalAddress,
              Piece(1) + kPieceSize, "4 bytes too far");
  ExpectFault("ld.global.u32 %r1, [%a]; st.u64 [%b0+2048], %d1;", Kind::kGlobalAddress,
              Piece(1) + kPieceSize, "4 bytes too far");
  ExpectFault("ld.global.u32 %r1, [%a]; ld.global.u32 %r1, [%b0+2];", Kind::kMisaligned,
              Piece(1) + 2, "not aligned");
  ExpectFault("ld.global.u32 %r1, [%a]; ld.u32 %r1, [%b0+2];", Kind::kMisaligned, Piece(1) + 2,
              "not aligned");
}

TEST_P(Window, PiecesOutsideClientMemoryGrantNothing) {
  const u64 base = launcher_->base(), end = base + launcher_->mapped_bytes();
  device::Reach reach;
  reach.Add({.base = base - 64, .bytes = 128});
  reach.Add({.base = end - 64, .bytes = 4096});
  reach.Add({.base = end + 8192, .bytes = 4096});
  reach.Add({.base = 0, .bytes = 4096});
  launcher_->reaches = {reach};
  const std::string to_base = "mov.u64 %d1, " + std::to_string(base) + ";";
  const std::string to_end = "mov.u64 %d1, " + std::to_string(end) + ";";
  EXPECT_EQ(RunCode(to_base + "ld.global.u32 %r1, [%d1+60];").end,
            executor::RunOutcome::End::kFinished);
  EXPECT_EQ(RunCode(to_end + "ld.u32 %r1, [%d1+-64];").end, executor::RunOutcome::End::kFinished);
  for (const char* space : {".global", ""}) {
    const std::string load = std::string("ld") + space + ".u32 %r1, ";
    ExpectFault(to_base + load + "[%d1+-4];", Kind::kGlobalAddress, base - 4,
                "outside the client's");
    ExpectFault(to_base + load + "[%d1+64];", Kind::kGlobalAddress, base + 64, "may touch");
    ExpectFault(to_end + load + "[%d1];", Kind::kGlobalAddress, end, "outside the client's");
    ExpectFault(to_end + load + "[%d1+8192];", Kind::kGlobalAddress, end + 8192,
                "outside the client's");
    ExpectFault(load + "[%d8];", Kind::kGlobalAddress, 0, "outside the client's");
  }
}

TEST_P(Window, WithoutPiecesOnlyVariablesAndHeapAreAccessible) {
  launcher_->reaches = {device::Reach()};
  ExpectFault("ld.global.u32 %r1, [%a];", Kind::kGlobalAddress, Piece(0),
              "the launch may touch: no memory of its client");
  EXPECT_EQ(RunCode("mov.u32 %r1, area; st.shared.u32 [%r1], %t;").end,
            executor::RunOutcome::End::kFinished);
  launcher_->reaches = {device::Reach::Everything()};
  EXPECT_EQ(RunCode("ld.global.u32 %r1, [%a0+2048];").end, executor::RunOutcome::End::kFinished);
}

// Accesses one piece, then runs a loop at whose end the run may be paused, and then accesses
// another piece.
constexpr const char* kTwoHalves =
    "st.global.u32 [%a], %t; mov.u32 %r1, 0;\n"
    "again: add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 100; @%p1 bra again;\n"
    "st.global.u32 [%b], %r1;";

TEST_P(Window, ResumedRunUsesItsNewAccessSet) {
  launcher_->pause_always = true;
  launcher_->reaches = {GetReach({0}), GetReach({0, 1})};
  EXPECT_EQ(RunCode(kTwoHalves).end, executor::RunOutcome::End::kFinished);
  EXPECT_GT(launcher_->pauses, 1u);
  EXPECT_EQ(words_[2 * kPieceWords], 100u);
  launcher_->reaches = {GetReach({0}), device::Reach::Everything()};
  EXPECT_EQ(RunCode(kTwoHalves).end, executor::RunOutcome::End::kFinished);
  launcher_->reaches = {device::Reach::Everything(), GetReach({0})};
  ExpectFault(kTwoHalves, Kind::kGlobalAddress, Piece(1), "may touch");
  launcher_->reaches = {GetReach({0, 1}), GetReach({0})};
  ExpectFault(kTwoHalves, Kind::kGlobalAddress, Piece(1), "may touch");
}

GPUSHARED_INSTANTIATE_FLAVOURS(Window);

}  // namespace
}  // namespace gpushared::testing
