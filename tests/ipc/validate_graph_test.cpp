// SPDX-License-Identifier: Apache-2.0
// Records of graphs: their own fields, and those of the contained node.
#include <cstring>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ipc/wire/validate.h"
#include "tests/ipc/field_cases.h"

namespace gpushared::ipc {
namespace {

using ::gpushared::testing::FieldCase;
using ::testing::HasSubstr;

constexpr std::uint32_t kParameterBytes = 100;

FillRecord Fill() {
  FillRecord record;
  record.header.op = static_cast<std::uint8_t>(Op::kFill);
  record.height = 1;
  record.destination = 4096;
  record.pitch_bytes = record.width_bytes = 64;
  record.element_bytes = 4;
  return record;
}

LaunchRecord Launch() {
  LaunchRecord record;
  record.header.op = static_cast<std::uint8_t>(Op::kLaunch);
  record.header.continuations = 2;
  record.module = 5;
  record.kernel = 7;
  record.grid[0] = record.grid[1] = record.grid[2] = 1;
  record.block[0] = record.block[1] = record.block[2] = 1;
  record.parameter_bytes = kParameterBytes;
  return record;
}

GraphRecord Head(Op op) {
  GraphRecord record;
  record.header.op = static_cast<std::uint8_t>(op);
  record.header.sequence = 41;
  record.stream = 3;
  record.graph = 2;
  return record;
}

template <typename Record>
RecordCopy Node(const Record& content, std::uint32_t parameter_bytes) {
  GraphRecord record = Head(Op::kSetGraphNode);
  record.node = 9;
  record.content_bytes = static_cast<std::uint32_t>(sizeof content) + parameter_bytes;
  record.header.continuations = static_cast<std::uint16_t>(
      (record.content_bytes + kContinuationDataBytes - 1) / kContinuationDataBytes);
  RecordCopy copy{};
  std::memcpy(copy.head.data(), &record, sizeof record);
  std::memcpy(copy.tail.data(), &content, sizeof content);
  return copy;
}

Status JudgeRecord(const RecordCopy& copy) {
  Command command;
  const Violation violation = ValidateCommand(copy, command);
  return violation.ok() ? Status::Ok() : DescribeViolation(violation, copy);
}

// Expects the rejections if one field of the head of `good`, or of the node's record in its tail,
// is corrupted.
template <typename Record>
void ExpectRejections(const RecordCopy& good, bool in_tail, const std::vector<FieldCase>& cases) {
  ASSERT_TRUE(JudgeRecord(good).ok()) << JudgeRecord(good).ToString();
  for (const FieldCase& c : cases) {
    const Field* field = gpushared::testing::FindField<Record>(c.field);
    ASSERT_NE(field, nullptr) << c.field;
    RecordCopy copy = good;
    gpushared::testing::Poke(in_tail ? copy.tail.data() : copy.head.data(), *field, c.element,
                             c.value);
    const Status status = JudgeRecord(copy);
    EXPECT_EQ(status.code(), StatusCode::kProtocolViolation) << c.field << " = " << c.value;
    EXPECT_THAT(status.message(), HasSubstr(c.rejection)) << c.field << " = " << c.value;
  }
}

TEST(ValidateGraph, EveryFieldIsBounded) {
  for (const Op op : {Op::kMakeGraph, Op::kLaunchGraph, Op::kDestroyGraph}) {
    RecordCopy copy{};
    const GraphRecord record = Head(op);
    std::memcpy(copy.head.data(), &record, sizeof record);
    ExpectRejections<GraphRecord>(copy, false,
                                  {{"graph", 256, "graph is 256, allowed: 0 to 255"},
                                   {"node", 1, "graph node is 1, allowed: 0"},
                                   {"content_bytes", 64, "graph content bytes is 64, allowed: 0"},
                                   {"flags", 1, "flags is 1, allowed: 0"},
                                   {"continuations", 1, "continuations is 1, allowed: 0"},
                                   {"stream", 256, "stream is 256"},
                                   {"sequence", 0, "sequence is 0"},
                                   {"reserved", 1, "reserved is 1", 0},
                                   {"reserved", 1, "reserved is 1", 3}});
  }
}

TEST(ValidateGraph, BoundsNodeLikeSingleCommand) {
  const RecordCopy launch = Node(Launch(), kParameterBytes);
  ExpectRejections<GraphRecord>(
      launch, false,
      {{"graph", 256, "graph is 256, allowed: 0 to 255"},
       {"node", 4096, "graph node is 4096, allowed: 0 to 4095"},
       {"content_bytes", 63, "graph content bytes is 63, allowed: 64 to 4140"},
       {"content_bytes", 4141, "graph content bytes is 4141, allowed: 64 to 4140"},
       {"content_bytes", 0xffffffff, "graph content bytes is 4294967295"},
       {"content_bytes", 165, "node parameter bytes is 101, allowed: 100"},
       {"continuations", 2, "graph continuations is 2, allowed: 3"},
       {"reserved", 1, "graph reserved is 1", 2}});
  ExpectRejections<LaunchRecord>(
      launch, true,
      {{"tag", 1, "node tag is 1, allowed: 0"},
       {"op", 6, "node op is 6, allowed: 1 to 5"},
       {"op", 14, "node op is 14, allowed: 1 to 5"},
       {"op", 0, "node op is 0, allowed: 1 to 5"},
       {"flags", 4, "launch flags is 4"},
       {"continuations", 1, "launch continuations is 1, allowed: 2"},
       {"sequence", 1, "node sequence is 1, allowed: 0"},
       {"stream", 1, "node stream is 1, allowed: 0"},
       {"module", 8192, "launch module is 8192"},
       {"grid", 0, "launch grid x is 0", 0},
       {"block", 1025, "launch block x is 1025", 0},
       {"parameter_bytes", 99, "node parameter bytes is 100, allowed: 99"},
       {"reserved", 1, "launch reserved is 1"}});
  ExpectRejections<FillRecord>(Node(Fill(), 0), true,
                               {{"element_bytes", 3, "fill element bytes is 3"},
                                {"destination", 4097, "fill destination modulo element is 1"},
                                {"height", 0, "fill height is 0"},
                                {"reserved", 1, "fill reserved is 1"}});
}

TEST(ValidateGraph, ANodeBecomesItsTypedValue) {
  const RecordCopy copy = Node(Launch(), kParameterBytes);
  Command command;
  ASSERT_TRUE(ValidateCommand(copy, command).ok());
  const auto& set = std::get<SetGraphNodeCommand>(command.body);
  EXPECT_EQ(set.graph, 2u);
  EXPECT_EQ(set.node, 9u);
  const auto& launch = std::get<LaunchCommand>(set.content);
  EXPECT_EQ(launch.kernel, 7u);
  EXPECT_EQ(launch.inline_parameters.data(), copy.tail.data() + kGranuleBytes);
  EXPECT_EQ(launch.inline_parameters.size(), kParameterBytes);
}

// Random bytes over valid records: whatever is accepted has its parameters inside the record.
TEST(ValidateGraph, MutatedNodesAreRejectedOrWhole) {
  std::mt19937_64 random(20261124);
  std::size_t accepted = 0;
  for (int round = 0; round < 20'000; ++round) {
    RecordCopy copy = round % 2 == 0 ? Node(Launch(), kParameterBytes) : Node(Fill(), 0);
    for (std::uint64_t changes = random() % 4; changes > 0; --changes) {
      const std::size_t at = random() % (2 * kGranuleBytes);
      std::byte& byte = at < kGranuleBytes ? copy.head[at] : copy.tail[at - kGranuleBytes];
      byte = static_cast<std::byte>(random());
    }
    Command command;
    if (!ValidateCommand(copy, command).ok()) continue;
    const auto* const set = std::get_if<SetGraphNodeCommand>(&command.body);
    if (set == nullptr) continue;
    ++accepted;
    ASSERT_LT(set->node, kGraphNodesMax);
    if (const auto* const launch = std::get_if<LaunchCommand>(&set->content)) {
      ASSERT_LE(launch->inline_parameters.size() + kGranuleBytes, copy.tail.size());
    }
  }
  EXPECT_GT(accepted, 1000u) << "a test of rejections alone says little";
}

}  // namespace
}  // namespace gpushared::ipc
