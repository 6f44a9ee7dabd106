// SPDX-License-Identifier: Apache-2.0
// alloca, stacksave and stackrestore; and the parser's treatment of vectors and of duplicate names.
#include <string>

#include "tests/executor/launcher.h"
#include "tests/executor/op_harness.h"

namespace gpushared::testing {
namespace {

constexpr const char* kStackHeader = ".version 8.4\n.target sm_90\n.address_size 64\n";
constexpr u32 kStackThreads = 70;

class Stack : public PerFlavour {
 protected:
  // Runs the kernel and returns one word of each thread; stores a fault's message in `fault`.
  std::vector<u32> Run(const std::string& text, std::string* fault = nullptr) {
    Launcher launcher(std::uint64_t{1} << 20, GetParam());
    launcher.Load(kStackHeader + text);
    u32* const out = launcher.Allocate<u32>(kStackThreads);
    const executor::RunOutcome outcome =
        launcher.Run("check", {1, 1, 1}, {kStackThreads, 1, 1}, out);
    const std::string message = outcome.fault ? outcome.fault->message : "";
    if (fault != nullptr) {
      *fault = message;
    } else {
      EXPECT_EQ(message, "");
    }
    return {out, out + kStackThreads};
  }
};

// Puts the thread's number into `word`, and at the end stores `word` at the thread's index.
constexpr const char* kStackBegin =
    ".visible .entry check(.param .u64 out) {\n.reg .b32 word, i, sum, value; .reg .pred p;\n"
    ".reg .b64 at, size, pointer, other, saved, again;\nmov.u32 word, %tid.x;\n";
constexpr const char* kStackEnd =
    "ld.param.u64 at, [out];\nmov.u32 i, %tid.x;\nmad.wide.u32 at, i, 4, at;\n"
    "st.global.u32 [at], word;\nret; }\n";

// Each thread allocates as many words as its number, and its functions' allocations do not overlap
// them.
constexpr const char* kFillAndSum = R"(
.func fill(.param .b64 to, .param .b32 count) {
  .reg .b64 a; .reg .b32 n; .reg .pred p;
  ld.param.u64 a, [to];
  ld.param.u32 n, [count];
AGAIN:
  setp.eq.u32 p, n, 0;
  @p ret;
  st.u32 [a], n;
  add.u64 a, a, 4;
  sub.u32 n, n, 1;
  bra AGAIN;
}
.func (.param .b32 sum) own(.param .b32 count) {
  .reg .b64 a, s; .reg .b32 n, m, v; .reg .pred p; .param .b64 to; .param .b32 c;
  ld.param.u32 n, [count];
  mul.wide.u32 s, n, 4;
  alloca.u64 a, s, 16;
  st.local.u32 [a], n;
  cvta.local.u64 a, a;
  st.param.b64 [to], a;
  st.param.b32 [c], n;
  call fill, (to, c);
  mov.u32 m, 0;
AGAIN:
  setp.eq.u32 p, n, 0;
  @p bra DONE;
  ld.u32 v, [a];
  add.u32 m, m, v;
  add.u64 a, a, 4;
  sub.u32 n, n, 1;
  bra AGAIN;
DONE:
  st.param.b32 [sum], m;
  ret;
}
)";

TEST_P(Stack, EachThreadAllocatesItsOwnAmount) {
  const std::vector<u32> words = Run(
      std::string(kFillAndSum) + kStackBegin +
      "add.u32 i, word, 1;\nmul.wide.u32 size, i, 8;\nalloca.u64 pointer, size;\n"
      "st.local.u32 [pointer], word;\nst.local.u32 [pointer+4], 77;\nstacksave.u64 saved;\n"
      "{ .param .b32 c, s;\nst.param.b32 [c], i;\ncall (s), own, (c);\nld.param.b32 sum, [s]; }\n"
      "stacksave.u64 again;\nsetp.ne.u64 p, saved, again;\n@p trap;\n"
      "ld.local.u32 i, [pointer];\nld.local.u32 value, [pointer+4];\n"
      "mad.lo.u32 word, i, 100000, value;\nadd.u32 word, word, sum;\n" +
      kStackEnd);
  for (u32 i = 0; i < kStackThreads; ++i) {
    EXPECT_EQ(words[i], i * 100000 + 77 + (i + 1) * (i + 2) / 2) << "thread " << i;
  }
}

TEST_P(Stack, SomeLanesOfAWarpAllocate) {
  const std::vector<u32> words =
      Run(std::string(kStackBegin) +
          "and.b32 i, word, 1;\nsetp.eq.u32 p, i, 0;\nalloca.u64 other, 8;\n"
          "st.local.u32 [other], word;\nmov.u64 pointer, other;\n@p alloca.u64 pointer, 64, 32;\n"
          "@p st.local.u32 [pointer], 5;\n@p st.local.u32 [pointer+60], 5;\n"
          "ld.local.u32 word, [other];\nld.local.u32 value, [pointer];\n"
          "mad.lo.u32 word, word, 1000, value;\n" +
          kStackEnd);
  for (u32 i = 0; i < kStackThreads; ++i) EXPECT_EQ(words[i], i * 1000 + (i % 2 == 0 ? 5 : i));
}

TEST_P(Stack, AlignsAndDoesNotOverlap) {
  for (const u32 alignment : {1u, 8u, 64u, 1024u}) {
    const std::string text = std::to_string(alignment);
    const std::vector<u32> words =
        Run(std::string(kStackBegin) + "alloca.u64 pointer, 12, " + text +
            ";\nalloca.u64 other, 20, " + text +
            ";\nsub.u64 size, pointer, other;\n"
            "cvt.u32.u64 word, size;\nor.b64 at, pointer, other;\nand.b64 at, at, " +
            std::to_string(std::max(alignment, 8u) - 1) + ";\nsetp.ne.u64 p, at, 0;\n@p trap;\n" +
            kStackEnd);
    EXPECT_EQ(words[0], std::max(alignment, 24u));
  }
}

TEST_P(Stack, RestoreFreesMemory) {
  const std::vector<u32> words =
      Run(std::string(kStackBegin) +
          "mov.u32 i, 0;\nAGAIN:\nstacksave.u64 saved;\nalloca.u64 pointer, 4000, 16;\n"
          "st.local.u32 [pointer+3996], i;\nld.local.u32 word, [pointer+3996];\n"
          "stackrestore.u64 saved;\nadd.u32 i, i, 1;\nsetp.lt.u32 p, i, 50;\n@p bra AGAIN;\n" +
          kStackEnd);
  EXPECT_EQ(words[69], 49u);
}

TEST_P(Stack, PointersMayHave32Bits) {
  const std::vector<u32> words =
      Run(std::string(kStackBegin) +
          "mov.u32 i, 24;\nalloca.u32 value, i, 8;\nst.local.u32 [value+20], word;\n"
          "stacksave.u32 i;\nsetp.ne.u32 p, i, value;\n@p trap;\nld.local.u32 word, [value+20];\n"
          "stackrestore.u32 i;\n" +
          kStackEnd);
  EXPECT_EQ(words[69], 69u);
}

TEST_P(Stack, RejectsMoreThanLocalMemory) {
  std::string fault;
  for (const char* size : {"8193", "0xffffffffffffffff", "0x8000000000000000"}) {
    Run(std::string(kStackBegin) + "alloca.u64 pointer, " + size + ";\n" + kStackEnd, &fault);
    EXPECT_NE(fault.find("bytes are more than is left of the thread's 8192 bytes of local memory"),
              std::string::npos)
        << fault;
  }
  // A program that restores an invalid stack pointer can still access only its own memory.
  for (const char* pointer : {"0x7000000000000000", "0", "-1"}) {
    Run(std::string(kStackBegin) + "mov.u64 saved, " + pointer +
            ";\nstackrestore.u64 saved;\nalloca.u64 pointer, 16;\nst.local.u32 [pointer], word;\n" +
            kStackEnd,
        &fault);
    EXPECT_NE(fault, "");
  }
  Run(std::string(kFillAndSum) + kStackBegin +
          "mov.u64 saved, 0;\nstackrestore.u64 saved;\n{ .param .b32 c, s;\nst.param.b32 [c], 1;\n"
          "call (s), own, (c); }\n" +
          kStackEnd,
      &fault);
  EXPECT_NE(fault, "");
}

TEST_P(Stack, VectorsEqualTheirComponents) {
  const std::vector<u32> words = Run(
      ".func (.reg .v2 .b32 r) swap(.reg .v2 .b32 a) {\nmov.b32 r.x, a.y;\nmov.b32 r.y, a.x;\n}\n" +
      std::string(kStackBegin) +
      ".reg .v4 .b32 v; .reg .v2 .b32 %w<4>; .local .align 16 .b8 own[16];\n"
      "mov.v4.b32 v, {word, 10, 200, 3000};\nst.local.v4.b32 [own], v;\nmov.b32 v.x, 0;\n"
      "ld.local.v4.b32 v, [own];\nmov.v2.b32 %w1, {v.y, v.z};\ncall (%w3), swap, (%w1);\n"
      "mov.b64 size, %w3;\nmov.b64 %w2, size;\nmad.lo.u32 word, v.r, 10000, v.a;\n"
      "mad.lo.u32 word, %w2.x, 2, word;\nadd.u32 word, word, %w2.g;\n" +
      kStackEnd);
  for (u32 i = 0; i < kStackThreads; ++i) EXPECT_EQ(words[i], i * 10000 + 3000 + 400 + 10);
}

TEST_P(Stack, AliasesCallTheirFunctions) {
  const std::vector<u32> words = Run(
      ".visible .func (.param .b32 r) twice(.param .b32 a) {\n.reg .b32 n;\nld.param.b32 n, [a];\n"
      "add.u32 n, n, n;\nst.param.b32 [r], n;\nret; }\n"
      ".visible .func (.param .b32 r) second(.param .b32 a);\n.alias second, twice;\n"
      ".global .u64 table[1] = {second};\n" +
      std::string(kStackBegin) +
      "{ .param .b32 a, r;\nst.param.b32 [a], word;\ncall (r), second, (a);\nld.param.b32 word, "
      "[r]; }\n"
      "ld.global.u64 pointer, [table];\nmov.u64 other, twice;\nsetp.ne.u64 p, pointer, other;\n@p "
      "trap;\n"
      "{ .param .b32 a, r;\nst.param.b32 [a], word;\nP: .callprototype (.param .b32 _) _ (.param "
      ".b32 _);\n"
      "call (r), pointer, (a), P;\nld.param.b32 word, [r]; }\n" +
      kStackEnd);
  for (u32 i = 0; i < kStackThreads; ++i) EXPECT_EQ(words[i], i * 4);
}

GPUSHARED_INSTANTIATE_FLAVOURS(Stack);

}  // namespace
}  // namespace gpushared::testing
