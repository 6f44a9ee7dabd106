// SPDX-License-Identifier: Apache-2.0
// Decoded code from another process: most errors in it are found before it runs, and the others are
// harmless.
#include "server/device/cpu/executor/flat_code.h"

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "common/ptx/text/parser.h"
#include "server/device/cpu/executor/block_executor.h"
#include "server/device/cpu/executor/code.h"
#include "server/device/cpu/executor/op_table.h"
#include "server/device/cpu/executor/verify.h"
#include "server/ptx/analysis/kernel_reach.h"
#include "tests/executor/brief_run.h"

namespace gpushared::testing {
namespace {

using namespace device::executor;
using namespace std::chrono_literals;

constexpr Flavour kFlavour = Flavour::kBaseline;

std::unique_ptr<ModuleImage> Decode(std::string_view text) {
  const Result<ptx::Module> module = ptx::Parse(text);
  EXPECT_TRUE(module.ok()) << module.status().message();
  const Result<ModuleLayout> layout = LayOutModule(*module);
  EXPECT_TRUE(layout.ok());
  Result<std::unique_ptr<ModuleImage>> image = DecodeModule(*module, *layout, 0, kFlavour);
  EXPECT_TRUE(image.ok());
  EXPECT_EQ((*image)->program(0).info().unsupported, "");
  return *std::move(image);
}

std::vector<std::byte> Flatten(const Program& program) {
  std::vector<std::byte> bytes;
  device::FlatWriter to([&](auto piece) { bytes.insert(bytes.end(), piece.begin(), piece.end()); });
  PutProgram(program, kFlavour, to);
  to.Flush();
  return bytes;
}

class FlatCode : public ::testing::Test {
 protected:
  // Returns the status of the code above after a change.
  Status After(const std::function<void(Code&)>& change) {
    Code code = image_->program(0).code();
    change(code);
    return Check(image_->program(0).info(), code);
  }
  static Status Check(const device::KernelInfo& info, const Code& code) {
    std::vector<std::uint16_t> numbers;
    for (const MicroOp& op : code.ops) {
      numbers.push_back(static_cast<std::uint16_t>(GetNumber(kFlavour, op.handler)));
    }
    return Verify(info, code, numbers, kFlavour);
  }
  static MicroOp& Find(Code& code, std::string_view key) {
    for (MicroOp& op : code.ops) {
      if (op.handler == FindHandler(kFlavour, key)) return op;
    }
    ADD_FAILURE() << "no " << key;
    return code.ops.front();
  }

  const std::unique_ptr<ModuleImage> image_ = Decode(kManyForms);
};

TEST_F(FlatCode, AcceptsUnchangedCode) {
  EXPECT_TRUE(After([](Code&) {}).ok()) << After([](Code&) {}).message();
  const std::vector<std::byte> bytes = Flatten(image_->program(0));
  device::FlatReader from(bytes);
  const auto program = TakeProgram(from, kFlavour);
  ASSERT_TRUE(program.ok()) << program.status().message();
  EXPECT_EQ(from.left(), 0u);
  EXPECT_EQ(Flatten(**program), bytes);
}

TEST_F(FlatCode, RejectsOperandsOutsideTheFrame) {
  for (std::uint32_t MicroOp::*field :
       {&MicroOp::destination, &MicroOp::a, &MicroOp::b, &MicroOp::c, &MicroOp::guard}) {
    EXPECT_FALSE(After([&](Code& code) {
                   Find(code, "add.u32").*field = code.functions[0].frame_bytes;
                 }).ok());
    // A row must fit into the frame, so it cannot begin at the frame's last word.
    EXPECT_FALSE(After([&](Code& code) {
                   Find(code, "add.u32").*field = code.functions[0].frame_bytes - 64;
                 }).ok());
    // Rows must be aligned.
    EXPECT_FALSE(After([&](Code& code) { Find(code, "add.u32").*field += 2; }).ok());
  }
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_FALSE(
        After([&](Code& code) { Find(code, "st.global.a64.u32").rows[i] = 0x80000000; }).ok());
  }
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_FALSE(After([&](Code& code) {
                   Find(code, "atom.global.a64.cas.b128").rows[i] = 0x80000000;
                 }).ok());
  }
  for (const std::string_view key :
       {"bfi.b32", "tex.3d.s32", "suld.2d", "atom.global.a64.cas.b128"}) {
    EXPECT_FALSE(After([&](Code& code) { Find(code, key).extra = 0x80000000; }).ok()) << key;
  }
}

TEST_F(FlatCode, RejectsJumpsOutOfAFunction) {
  EXPECT_FALSE(After([](Code& code) { code.ops.back().handler = code.ops[0].handler; }).ok());
  EXPECT_FALSE(After([](Code& code) {
                 code.ops[code.functions[1].entry - 1].handler = code.ops[0].handler;
               }).ok());
  for (const std::string_view key : {"bra.if"}) {
    EXPECT_FALSE(After([&](Code& code) { Find(code, key).target = code.functions[1].entry; }).ok());
    EXPECT_FALSE(After([&](Code& code) {
                   Find(code, key).reconvergence = static_cast<std::uint32_t>(code.ops.size());
                 }).ok());
  }
  EXPECT_FALSE(After([](Code& code) { code.branch_tables[0][1] = code.functions[1].entry; }).ok());
  EXPECT_FALSE(After([](Code& code) { Find(code, "brx.idx").immediate = 1; }).ok());
  EXPECT_FALSE(After([](Code& code) { Find(code, "brx.idx").immediate = -1; }).ok());
  EXPECT_FALSE(After([](Code& code) {
                 Find(code, "bar.sync").handler = FindHandler(kFlavour, "return");
               }).ok());
}

TEST_F(FlatCode, RejectsCallCopiesOutsideTheParameterAreas) {
  EXPECT_FALSE(After([](Code& code) { Find(code, "call").immediate = 1; }).ok());
  EXPECT_FALSE(After([](Code& code) { code.call_sites[0].function = 0; }).ok());
  EXPECT_FALSE(After([](Code& code) { code.call_sites[0].function = 2; }).ok());
  EXPECT_FALSE(After([](Code& code) { code.call_sites[0].arguments[0].bytes = 32; }).ok());
  EXPECT_FALSE(After([](Code& code) { code.call_sites[0].results[0].offset = 0xfffffffe; }).ok());
  EXPECT_FALSE(After([](Code& code) { code.call_sites[0].arguments[0].bytes = 8; }).ok());
  EXPECT_FALSE(After([](Code& code) { code.call_sites[0].arguments.push_back({0, 1}); }).ok());
  EXPECT_FALSE(After([](Code& code) { code.functions[1].arguments[0].offset = 1 << 20; }).ok());
  EXPECT_FALSE(After([](Code& code) { code.callable.push_back({8, 2}); }).ok());
  EXPECT_FALSE(After([](Code& code) { Find(code, "vote.ballot").extra = kReadsWide; }).ok());
  EXPECT_FALSE(After([](Code& code) { Find(code, "ld.area").immediate = 13; }).ok());
  EXPECT_FALSE(After([](Code& code) { Find(code, "st.area").immediate = -4; }).ok());
  EXPECT_FALSE(After([](Code& code) { Find(code, "ld.area").extra = 9 | 1 << 8; }).ok());
  EXPECT_FALSE(After([](Code& code) { Find(code, "ld.area").extra = 4 | 5 << 8; }).ok());
}

TEST_F(FlatCode, RejectsInvalidParametersAndMatrices) {
  EXPECT_FALSE(After([](Code& code) { Find(code, "ld.param.u64").immediate = 8; }).ok());
  EXPECT_FALSE(After([](Code& code) { Find(code, "ld.param.u32").immediate = -4; }).ok());
  EXPECT_FALSE(After([](Code& code) { code.matrix_calls[1].m = 32; }).ok());
  EXPECT_FALSE(After([](Code& code) { code.matrix_calls[1].a.pop_back(); }).ok());
  EXPECT_FALSE(After([](Code& code) { code.matrix_calls[0].d.resize(8); }).ok());
  EXPECT_FALSE(After([](Code& code) { code.matrix_calls[0].d[0] = 0x40000000; }).ok());
  EXPECT_FALSE(After([](Code& code) { Find(code, "cp.async.a32").extra = 4096; }).ok());
  // Invalid sizes, counts and modes: 3 bytes, 3 elements, 8 elements, 32 bytes, a fourth mode.
  for (const std::int64_t moved : {0x203, 0x304, 0x804, 0x408, 0x30204}) {
    EXPECT_FALSE(After([&](Code& code) { Find(code, "suld.2d").immediate = moved; }).ok());
  }
}

TEST_F(FlatCode, RejectsInvalidFrameSizes) {
  EXPECT_FALSE(After([](Code& code) { code.functions[0].frame_bytes = 0x80000000; }).ok());
  EXPECT_FALSE(After([](Code& code) { code.functions[0].image.resize(1 << 20); }).ok());
  EXPECT_FALSE(After([](Code& code) { code.functions[0].area_bytes = 1 << 20; }).ok());
  EXPECT_FALSE(After([](Code& code) { code.functions[0].special_rows[0].offset = 1 << 24; }).ok());
  EXPECT_FALSE(After([](Code& code) { code.functions[0].address_rows[0].offset = 1 << 24; }).ok());
  EXPECT_FALSE(After([](Code& code) { code.functions[0].wide_begin += 64; }).ok());
  EXPECT_FALSE(After([](Code& code) { code.functions[1].entry = 0; }).ok());
  EXPECT_FALSE(After([](Code& code) { code.static_shared_bytes = 1 << 30; }).ok());
  EXPECT_FALSE(After([](Code& code) { code.local_bytes_per_thread = 1 << 30; }).ok());
  EXPECT_FALSE(After([](Code& code) { code.sources.pop_back(); }).ok());
  EXPECT_FALSE(After([](Code& code) { code.sources[0].spelling = 0xffff; }).ok());
}

// Removes the polls, as a hostile child process could do so that a kill would never be noticed.
Code WithoutChecks(Code code) {
  const Handler looks = FindHandler(kFlavour, "look");
  for (MicroOp& op : code.ops) {
    if (op.handler == looks) op.handler = FindHandler(kFlavour, "nothing");
  }
  return code;
}

TEST_F(FlatCode, RejectsLongPathsWithoutPoll) {
  std::string adds;
  for (std::uint32_t i = 0; i < kOpsPerCheck; ++i) adds += "add.u32 %r1, %r1, 1;\n";
  std::string straight, forward, past, ends;
  for (int i = 0; i < 8; ++i) {
    const std::string n = std::to_string(i);
    straight += adds;
    forward += adds + "bra F" + n + ";\nadd.u32 %r2, %r2, 1;\nF" + n + ":\n";
    ends += adds + "ret;\nE" + n + ":\n";
    past += "@%p bra P" + n + ";\nbra END;\nP" + n + ":\n" + adds;
  }
  for (const std::string& body : {straight, forward, past, ends}) {
    const auto image = Decode(
        ".version 7.8\n.target sm_80\n.address_size 64\n.visible .entry k()\n{\n.reg .pred %p;\n"
        ".reg .b32 %r<3>;\n" +
        body + "END:\nret;\n}\n");
    const Program& program = image->program(0);
    const Status as_decoded = Check(program.info(), program.code());
    EXPECT_TRUE(as_decoded.ok()) << as_decoded.message();
    const Status without = Check(program.info(), WithoutChecks(program.code()));
    EXPECT_NE(without.message().find("without a check"), std::string::npos) << without.message();
  }
}

// A path without polls ends at operations that always poll: backward branches and tables, whatever
// their targets.
TEST_F(FlatCode, BackwardBranchesAndTablesPoll) {
  std::string adds, body;
  for (std::uint32_t i = 0; i < kOpsPerCheck; ++i) adds += "add.u32 %r1, %r1, 1;\n";
  for (int i = 0; i < 8; ++i) {
    const std::string n = std::to_string(i);
    body += "bra TEST" + n + ";\nLOOP" + n + ":\n" + adds + "TEST" + n + ":\n@%p bra LOOP" + n +
            ";\nLIST" + n + ": .branchtargets ONE" + n + ", TWO" + n + ";\nbrx.idx %r2, LIST" + n +
            ";\nbra TWO" + n + ";\nONE" + n + ":\n" + adds + "TWO" + n + ":\n";
  }
  const auto image = Decode(
      ".version 7.8\n.target sm_80\n.address_size 64\n.visible .entry k()\n{\n.reg .pred %p;\n"
      ".reg .b32 %r<3>;\n" +
      body + "ret;\n}\n");
  const Status without = Check(image->program(0).info(), WithoutChecks(image->program(0).code()));
  EXPECT_TRUE(without.ok()) << without.message();
}

// Code that no PTX text decodes to: two branch tables whose lanes wait for each other in turn.
TEST_F(FlatCode, EndlesslyNestedBranchesAreAFault) {
  const auto image = Decode(R"(
.version 7.8
.target sm_80
.address_size 64
.visible .entry k()
{
  .reg .b32 %r<2>;
  mov.u32 %r1, 0;
FIRST:
  TO_SECOND: .branchtargets SECOND, OUT;
  brx.idx %r1, TO_SECOND;
SECOND:
  TO_FIRST: .branchtargets FIRST, OUT;
  brx.idx %r1, TO_FIRST;
OUT:
  ret;
}
)");
  const device::KernelInfo& info = image->program(0).info();
  auto code = std::make_unique<Code>(image->program(0).code());
  std::uint32_t point = 0;
  for (MicroOp& op : code->ops) {
    if (op.handler == FindHandler(kFlavour, "brx.idx")) op.reconvergence = point++;
  }
  ASSERT_EQ(point, 2u);
  ASSERT_TRUE(Check(info, *code).ok());
  const RunOutcome outcome = RunBriefly(Program(info, std::move(code)), 20s);
  ASSERT_TRUE(outcome.fault.has_value());
  EXPECT_EQ(outcome.fault->kind, Fault::Kind::kSplitDepth) << outcome.fault->message;
  EXPECT_NE(outcome.fault->message.find(" exceed 65536"), std::string::npos);
}

TEST_F(FlatCode, RejectsTruncatedBytes) {
  const std::vector<std::byte> bytes = Flatten(image_->program(0));
  for (std::size_t size = 0; size < bytes.size(); size += 7) {
    device::FlatReader from(std::span<const std::byte>(bytes).first(size));
    EXPECT_FALSE(TakeProgram(from, kFlavour).ok()) << size;
  }
}

TEST(FlatKernelInfo, AccessSetOffsetsMustFitTheParameters) {
  const auto is_taken = [](const std::vector<std::uint32_t>& offsets, const std::string& why) {
    device::KernelInfo info;
    info.name = "k";
    info.parameters = {{.offset = 0, .bytes = 8 * ptx::kReachOffsetsMax + 32}};
    info.parameter_bytes = info.parameters[0].bytes;
    info.reach_offsets = offsets;
    info.why_reach_unknown = why;
    std::vector<std::byte> bytes;
    device::FlatWriter to(
        [&](auto piece) { bytes.insert(bytes.end(), piece.begin(), piece.end()); });
    PutKernelInfo(info, to);
    to.Flush();
    device::FlatReader from(bytes);
    const Result<device::KernelInfo> taken = TakeKernelInfo(from);
    if (!taken.ok()) return false;
    EXPECT_EQ(taken->reach_offsets, offsets);
    EXPECT_EQ(taken->why_reach_unknown, why);
    return true;
  };
  constexpr std::uint32_t kLast = 8 * ptx::kReachOffsetsMax + 24;
  EXPECT_TRUE(is_taken({}, ""));
  EXPECT_TRUE(is_taken({}, "line 3: ld"));
  EXPECT_TRUE(is_taken({0, 8, 12, kLast}, ""));
  EXPECT_FALSE(is_taken({kLast + 1}, ""));
  EXPECT_FALSE(is_taken({0xfffffff8}, ""));
  EXPECT_FALSE(is_taken({8, 8}, ""));
  EXPECT_FALSE(is_taken({8, 0}, ""));
  EXPECT_FALSE(is_taken({8}, "line 3: ld"));
  EXPECT_FALSE(is_taken({}, "line\n"));
  std::vector<std::uint32_t> many;
  for (std::uint32_t i = 0; i < ptx::kReachOffsetsMax; ++i) many.push_back(8 * i);
  EXPECT_TRUE(is_taken(many, ""));
  many.push_back(many.back() + 8);
  EXPECT_FALSE(is_taken(many, ""));
}

// Accepted code may compute anything, but sanitizers would report an access outside its bounds.
TEST_F(FlatCode, ChangedCodeIsRejectedOrStaysInBounds) {
  const std::vector<std::byte> good = Flatten(image_->program(0));
  std::mt19937 random(20261122);
  std::size_t taken = 0;
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::byte> bytes = good;
    const std::uint32_t changes = 1 + random() % 4;
    for (std::uint32_t i = 0; i < changes; ++i) {
      const std::size_t at = random() % bytes.size();
      const bool is_small = random() % 2 == 0;
      bytes[at] = static_cast<std::byte>(
          is_small ? std::to_integer<unsigned>(bytes[at]) ^ 1u << random() % 8 : random());
    }
    device::FlatReader from(bytes);
    const auto program = TakeProgram(from, kFlavour);
    if (!program.ok() || !(*program)->info().unsupported.empty()) continue;
    ++taken;
    (void)RunBriefly(**program);
  }
  // Enough code must have been accepted and run, and enough must have been rejected.
  EXPECT_GT(taken, 300u);
  EXPECT_LT(taken, 2900u);
}

TEST(FrameLimit, DecodingStopsAtTheFrameLimit) {
  std::string text =
      ".version 7.8\n.target sm_80\n.address_size 64\n.visible .entry k()\n{\n.reg .b64 %rd<2>;\n";
  for (int i = 0; i < 60'000; ++i)
    text += "add.u64 %rd1, %rd1, " + std::to_string(1'000'000 + i) + ";\n";
  text += "ret;\n}\n";
  const Result<ptx::Module> module = ptx::Parse(text);
  ASSERT_TRUE(module.ok());
  const auto image = DecodeModule(*module, {}, 0, kFlavour);
  ASSERT_TRUE(image.ok());
  const Program& program = (*image)->program(0);
  EXPECT_NE(program.info().unsupported.find("bytes of registers per warp"), std::string::npos);
  // At 256 bytes for each constant, the frame would have 15 MB.
  EXPECT_LT(program.code().functions[0].frame_bytes, kRegisterBytesPerWarpMax + 4096);
  EXPECT_LT(program.code().ops.size(), 20'000u);
}

TEST(BuiltinCalls, RejectsParametersSmallerThanWhatIsRead) {
  const Result<ptx::Module> module = ptx::Parse(R"(
.version 7.8
.target sm_80
.address_size 64
.extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 a);
.visible .entry k()
{
  { .param .b64 f; .param .b64 a; .param .b8 r; call (r), vprintf, (f, a); }
  ret;
}
)");
  ASSERT_TRUE(module.ok()) << module.status().message();
  const auto image = DecodeModule(*module, {}, 0, kFlavour);
  ASSERT_TRUE(image.ok());
  EXPECT_NE((*image)->program(0).info().unsupported, "");
}

}  // namespace
}  // namespace gpushared::testing
