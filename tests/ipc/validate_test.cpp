// SPDX-License-Identifier: Apache-2.0
#include "ipc/wire/validate.h"

#include <cstring>
#include <memory>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/ipc/field_cases.h"

namespace gpushared::ipc {
namespace {

using ::gpushared::testing::AnyValue;
using ::gpushared::testing::FieldCase;
using ::testing::HasSubstr;

constexpr std::uint64_t kAddressEnd = std::uint64_t{1} << 63;

template <typename Record>
RecordCopy GetCopy(const Record& record) {
  RecordCopy copy{};
  std::memcpy(copy.head.data(), &record, sizeof record);
  return copy;
}

RecordHeader HeaderFor(Op op) {
  RecordHeader header;
  header.op = static_cast<std::uint8_t>(op);
  header.sequence = 41;
  return header;
}

LaunchRecord GoodLaunch() {
  LaunchRecord record;
  record.header = HeaderFor(Op::kLaunch);
  record.header.continuations = 2;
  record.stream = 3;
  record.module = 5;
  record.kernel = 7;
  record.grid[0] = 10;
  record.grid[1] = record.grid[2] = 1;
  record.block[0] = 64;
  record.block[1] = 2;
  record.block[2] = 1;
  record.parameter_bytes = 100;
  record.dynamic_shared_bytes = 1024;
  return record;
}

LaunchRecord GoodStagedLaunch() {
  LaunchRecord record = GoodLaunch();
  record.header.flags = kFlagParametersInStagingBuffer;
  record.header.continuations = 0;
  record.parameter_bytes = 8000;
  record.staging_buffer = 2;
  record.staging_offset = 4096;
  return record;
}

CopyRecord GoodCopy(Op op) {
  CopyRecord record;
  record.header = HeaderFor(op);
  record.stream = 3;
  record.staging_buffer = 1;
  record.device_address = 0x10000;
  record.device_pitch_bytes = 512;
  record.staging_offset = 256;
  record.staging_pitch_bytes = 128;
  record.width_bytes = 100;
  record.height = 4;
  return record;
}

CopyOnDeviceRecord GoodCopyOnDevice() {
  CopyOnDeviceRecord record;
  record.header = HeaderFor(Op::kCopyOnDevice);
  record.stream = 3;
  record.height = 4;
  record.destination = 0x20000;
  record.destination_pitch_bytes = 200;
  record.source = 0x10000;
  record.source_pitch_bytes = 300;
  record.width_bytes = 100;
  return record;
}

FillRecord GoodFill() {
  FillRecord record;
  record.header = HeaderFor(Op::kFill);
  record.stream = 3;
  record.height = 4;
  record.destination = 0x20000;
  record.pitch_bytes = 200;
  record.width_bytes = 100;
  record.value = 0x12345678;
  record.element_bytes = 4;
  return record;
}

WaitForRecord GoodWaitFor() {
  WaitForRecord record;
  record.header = HeaderFor(Op::kWaitFor);
  record.stream = 3;
  record.wait_stream = 9;
  record.wait_sequence = 12;
  return record;
}

RequestRecord GoodRequest(Op op) {
  RequestRecord record;
  record.header = HeaderFor(op);
  record.stream = 3;
  record.time_ns = 5000;
  return record;
}

BufferRecord GoodBuffer(Op op) {
  BufferRecord record;
  record.header = HeaderFor(op);
  record.stream = 3;
  record.address = std::uint64_t{1} << 40;
  record.bytes = op == Op::kNameBuffer ? 4096 : 0;
  return record;
}

PlainRecord GoodPlain(Op op) {
  PlainRecord record;
  record.header = HeaderFor(op);
  record.stream = 3;
  return record;
}

CompletionRecord GoodCompletion() {
  CompletionRecord record;
  record.header.op = static_cast<std::uint8_t>(CompletionKind::kMark);
  record.header.sequence = 41;
  record.stream = 3;
  record.started_ns = 100;
  record.ended_ns = 200;
  return record;
}

Status Judge(const RecordCopy& copy) {
  Command command;
  const Violation violation = ValidateCommand(copy, command);
  return violation.ok() ? Status::Ok() : DescribeViolation(violation, copy);
}

Status JudgeCompletion(const RecordCopy& copy) {
  CompletionNotice notice;
  const Violation violation = ValidateCompletion(copy, notice);
  return violation.ok() ? Status::Ok() : DescribeViolation(violation, copy);
}

// Cases for the header of every record. `tag` has none, because the ring checks it.
std::vector<FieldCase> HeaderCases() {
  return {
      {"op", 0, "op is 0, allowed: 1 to 19"},
      {"op", 20, "op is 20, allowed: 1 to 19"},
      {"op", 255, "op is 255, allowed: 1 to 19"},
      {"flags", 1, "flags is 1, allowed: 0"},
      {"flags", 0x80, "flags is 128, allowed: 0"},
      {"continuations", 1, "continuations is 1, allowed: 0"},
      {"continuations", 69, "continuations is 69, allowed: 0"},
      {"sequence", 0, "sequence is 0, allowed: 1 to 18446744073709551615"},
      {"stream", 256, "stream is 256, allowed: 0 to 255"},
      {"stream", 0xffffffff, "stream is 4294967295, allowed: 0 to 255"},
  };
}

// Applies every case to a valid record.
template <typename Record>
void ExpectVerdicts(const Record& good, const std::vector<FieldCase>& cases,
                    Status (*judge)(const RecordCopy&) = Judge) {
  for (const FieldCase& c : cases) {
    const Field* field = gpushared::testing::FindField<Record>(c.field);
    ASSERT_NE(field, nullptr) << c.field;
    RecordCopy copy = GetCopy(good);
    gpushared::testing::Poke(copy.head.data(), *field, c.element, c.value);
    const Status status = judge(copy);
    if (c.rejection.empty()) {
      EXPECT_TRUE(status.ok()) << c.field << " = " << c.value << ": " << status.ToString();
    } else {
      EXPECT_EQ(status.code(), StatusCode::kProtocolViolation) << c.field << " = " << c.value;
      EXPECT_THAT(status.message(), HasSubstr(c.rejection)) << c.field << " = " << c.value;
    }
  }
}

// Applies every case to a valid record, and fails unless the cases cover every field. Adds a case
// for each element of each reserved field.
template <typename Record>
void ExpectCases(const Record& good, std::vector<FieldCase> cases,
                 Status (*judge)(const RecordCopy&) = Judge) {
  ASSERT_TRUE(judge(GetCopy(good)).ok()) << judge(GetCopy(good)).ToString();
  EXPECT_THAT(gpushared::testing::FieldsWithoutCase<Record>(cases, {"tag"}), ::testing::IsEmpty())
      << "a field has no hostile case";
  for (const Field& field : gpushared::testing::GetFields<Record>()) {
    if (!gpushared::testing::IsReserved(field)) continue;
    for (std::size_t i = 0; i < field.bytes / field.element_bytes; ++i) {
      cases.push_back({field.name, 1, "reserved is 1, allowed: 0", i});
    }
  }
  ExpectVerdicts(good, cases, judge);
}

std::vector<FieldCase> With(std::vector<FieldCase> base, const std::vector<FieldCase>& more) {
  base.insert(base.end(), more.begin(), more.end());
  return base;
}

TEST(ValidateCommand, EveryFieldOfALaunchIsBounded) {
  ExpectCases(GoodLaunch(),
              {
                  {"op", 0, "op is 0, allowed: 1 to 19"},
                  {"op", 20, "op is 20, allowed: 1 to 19"},
                  {"flags", 4, "launch flags is 4, allowed: 0 to 3"},
                  {"flags", 255, "launch flags is 255, allowed: 0 to 3"},
                  {"cluster", 1, "launch cluster y is 0, allowed: 1 to 16", 0},
                  {"cluster", 2, "launch cluster x is 0, allowed: 1 to 16", 1},
                  {"cluster", 3, "launch cluster x is 0, allowed: 1 to 16", 2},
                  {"cluster", 17, "launch cluster x is 17, allowed: 1 to 16", 0},
                  {"reserved", 1, "launch reserved is 1, allowed: 0"},
                  {"continuations", 1, "launch continuations is 1, allowed: 2"},
                  {"continuations", 3, "launch continuations is 3, allowed: 2"},
                  {"sequence", 0, "sequence is 0, allowed: 1 to 18446744073709551615"},
                  {"stream", 256, "stream is 256, allowed: 0 to 255"},
                  {"module", 8192, "launch module is 8192, allowed: 0 to 8191"},
                  {"kernel", 4096, "launch kernel is 4096, allowed: 0 to 4095"},
                  {"grid", 0, "launch grid x is 0, allowed: 1 to 2147483647", 0},
                  {"grid", 0x80000000, "launch grid x is 2147483648, allowed: 1 to 2147483647", 0},
                  {"grid", 0, "launch grid y is 0, allowed: 1 to 65535", 1},
                  {"grid", 65536, "launch grid y is 65536, allowed: 1 to 65535", 1},
                  {"grid", 0, "launch grid z is 0, allowed: 1 to 65535", 2},
                  {"grid", 65536, "launch grid z is 65536, allowed: 1 to 65535", 2},
                  {"block", 0, "launch block x is 0, allowed: 1 to 1024", 0},
                  {"block", 1025, "launch block x is 1025, allowed: 1 to 1024", 0},
                  {"block", 1024, "launch threads per block is 2048, allowed: 1 to 1024", 0},
                  {"block", 0, "launch block y is 0, allowed: 1 to 1024", 1},
                  {"block", 1025, "launch block y is 1025, allowed: 1 to 1024", 1},
                  {"block", 17, "launch threads per block is 1088, allowed: 1 to 1024", 1},
                  {"block", 0, "launch block z is 0, allowed: 1 to 64", 2},
                  {"block", 65, "launch block z is 65, allowed: 1 to 64", 2},
                  {"block", 9, "launch threads per block is 1152, allowed: 1 to 1024", 2},
                  {"parameter_bytes", 4097, "launch parameter bytes is 4097, allowed: 0 to 4096"},
                  {"parameter_bytes", 121, "launch continuations is 2, allowed: 3"},
                  {"dynamic_shared_bytes", (1 << 20) + 1,
                   "launch dynamic shared bytes is 1048577, allowed: 0 to 1048576"},
                  {"staging_buffer", 1, "launch staging buffer is 1, allowed: 0"},
                  {"staging_offset", 1, "launch staging buffer offset is 1, allowed: 0"},
              });
}

TEST(ValidateCommand, ClustersHaveUpToSixteenBlocks) {
  LaunchRecord record = GoodLaunch();
  record.cluster[0] = 4;
  record.cluster[1] = 2;
  record.cluster[2] = 2;
  record.header.flags = kFlagCooperative;
  Command command;
  ASSERT_TRUE(ValidateCommand(GetCopy(record), command).ok());
  const auto& launch = std::get<LaunchCommand>(command.body);
  EXPECT_EQ(launch.cluster, (std::array<std::uint32_t, 3>{4, 2, 2}));
  EXPECT_TRUE(launch.is_cooperative);
  ExpectVerdicts(record, {{"cluster", 0, "launch cluster x is 0, allowed: 1 to 16", 0},
                          {"cluster", 0, "launch cluster y is 0, allowed: 1 to 16", 1},
                          {"cluster", 5, "launch blocks per cluster is 20, allowed: 1 to 16", 0},
                          {"cluster", 3, "launch blocks per cluster is 24, allowed: 1 to 16", 1},
                          {"cluster", 255, "launch cluster z is 255, allowed: 1 to 16", 2},
                          {"reserved", 255, "launch reserved is 255, allowed: 0"}});

  record = GoodLaunch();
  ASSERT_TRUE(ValidateCommand(GetCopy(record), command).ok());
  EXPECT_EQ(std::get<LaunchCommand>(command.body).cluster, (std::array<std::uint32_t, 3>{0, 0, 0}));
  EXPECT_FALSE(std::get<LaunchCommand>(command.body).is_cooperative);
}

TEST(ValidateCommand, EveryFieldOfALaunchWithStagedParametersIsBounded) {
  std::vector<FieldCase> cases = {
      {"continuations", 1, "launch continuations is 1, allowed: 0"},
      {"parameter_bytes", 0, "launch parameter bytes is 0, allowed: 1 to 32764"},
      {"parameter_bytes", 32765, "launch parameter bytes is 32765, allowed: 1 to 32764"},
      {"staging_buffer", 64, "launch staging buffer is 64, allowed: 0 to 63"},
      {"staging_offset", (1 << 30) - 7999,
       "launch staging buffer offset is 1073733825, allowed: 0 to 1073733824"},
      {"staging_offset", 0xffffffff, "launch staging buffer offset is 4294967295"},
      {"reserved", 1, "launch reserved is 1"},
  };
  // The other fields have the limits of a launch with inline parameters.
  for (const std::string_view same :
       {"op", "flags", "sequence", "stream", "module", "kernel", "dynamic_shared_bytes"}) {
    cases.push_back({same, ~std::uint64_t{0}, same == "sequence" ? "" : "allowed"});
  }
  for (std::size_t i = 0; i < 3; ++i) {
    cases.push_back({"grid", 0, "launch grid", i});
    cases.push_back({"block", 0, "launch block", i});
    cases.push_back({"cluster", 17, "launch cluster", i});
  }
  ExpectCases(GoodStagedLaunch(), cases);
}

std::vector<FieldCase> CopyCases() {
  return With(
      HeaderCases(),
      {
          {"staging_buffer", 64, "copy staging buffer is 64, allowed: 0 to 63"},
          {"device_address", kAddressEnd - 99,
           "copy device address is 9223372036854775709, allowed: 0 to 9223372036854775708"},
          {"device_address", ~std::uint64_t{0}, "copy device address is 18446744073709551615"},
          {"device_pitch_bytes", 99, "copy device pitch is 99, allowed: 100 to"},
          {"device_pitch_bytes", ~std::uint64_t{0}, "copy device pitch is 18446744073709551615"},
          {"device_pitch_bytes", kAddressEnd / 3, "copy device pitch is 3074457345618258602"},
          {"staging_offset", (1 << 30) - 99,
           "copy staging buffer offset is 1073741725, allowed: 0 to 1073741724"},
          {"staging_offset", (1 << 30) - 100, "copy staging buffer pitch is 128, allowed: none"},
          {"staging_offset", 0xffffffff, "copy staging buffer offset is 4294967295"},
          {"staging_pitch_bytes", 99, "copy staging buffer pitch is 99, allowed: 100 to 357913822"},
          {"staging_pitch_bytes", 357913823,
           "copy staging buffer pitch is 357913823, allowed: 100 to 357913822"},
          {"staging_pitch_bytes", 357913822, ""},
          {"staging_pitch_bytes", 0xffffffff, "copy staging buffer pitch is 4294967295"},
          {"width_bytes", 0, "copy width is 0, allowed: 1 to 1073741824"},
          {"width_bytes", (1 << 30) + 1, "copy width is 1073741825, allowed: 1 to 1073741824"},
          {"width_bytes", 0xffffffff, "copy width is 4294967295"},
          {"width_bytes", 129, "copy staging buffer pitch is 128, allowed: 129 to"},
          {"height", 0, "copy height is 0, allowed: 1 to 1073741824"},
          {"height", 0xffffffff, "copy height is 4294967295, allowed: 1 to 1073741824"},
          {"height", 1 << 30, "copy staging buffer pitch is 128, allowed: none"},
      });
}

TEST(ValidateCommand, EveryFieldOfACopyToTheDeviceIsBounded) {
  ExpectCases(GoodCopy(Op::kCopyToDevice), CopyCases());
}

TEST(ValidateCommand, EveryFieldOfACopyToTheHostIsBounded) {
  ExpectCases(GoodCopy(Op::kCopyToHost), CopyCases());
}

TEST(ValidateCommand, EveryFieldOfACopyOnTheDeviceIsBounded) {
  ExpectCases(
      GoodCopyOnDevice(),
      With(HeaderCases(),
           {
               {"height", 0, "copy height is 0, allowed: 1 to 4294967295"},
               {"height", 0xffffffff, ""},
               {"destination", kAddressEnd - 99, "copy destination is 9223372036854775709"},
               {"destination", ~std::uint64_t{0}, "copy destination is 18446744073709551615"},
               {"destination_pitch_bytes", 99, "copy destination pitch is 99, allowed: 100 to"},
               {"destination_pitch_bytes", kAddressEnd / 3, "copy destination pitch is"},
               {"destination_pitch_bytes", ~std::uint64_t{0}, "copy destination pitch is"},
               {"source", kAddressEnd - 99, "copy source is 9223372036854775709"},
               {"source", ~std::uint64_t{0}, "copy source is 18446744073709551615"},
               {"source_pitch_bytes", 99, "copy source pitch is 99, allowed: 100 to"},
               {"source_pitch_bytes", ~std::uint64_t{0}, "copy source pitch is"},
               {"width_bytes", 0, "copy width is 0, allowed: 1 to 9223372036854775808"},
               {"width_bytes", ~std::uint64_t{0}, "copy width is 18446744073709551615"},
               {"width_bytes", 201, "copy destination pitch is 200, allowed: 201 to"},
           }));
}

TEST(ValidateCommand, EveryFieldOfAFillIsBounded) {
  ExpectCases(GoodFill(),
              With(HeaderCases(),
                   {
                       {"height", 0, "fill height is 0, allowed: 1 to 4294967295"},
                       {"destination", kAddressEnd - 99, "fill destination is"},
                       {"destination", 0x20002, "fill destination modulo element is 2, allowed: 0"},
                       {"pitch_bytes", 96, "fill pitch is 96, allowed: 100 to"},
                       {"pitch_bytes", 201, "fill pitch modulo element is 1, allowed: 0"},
                       {"pitch_bytes", ~std::uint64_t{0}, "fill pitch is 18446744073709551615"},
                       {"width_bytes", 0, "fill width is 0, allowed: 1 to"},
                       {"width_bytes", 99, "fill width modulo element is 3, allowed: 0"},
                       {"width_bytes", ~std::uint64_t{0}, "fill width is 18446744073709551615"},
                       AnyValue("value"),
                       {"element_bytes", 0, "fill element bytes is 0, allowed: 1 to 4"},
                       {"element_bytes", 3, "fill element bytes is 3, allowed: 1 to 2"},
                       {"element_bytes", 5, "fill element bytes is 5, allowed: 1 to 4"},
                       {"element_bytes", 8, "fill element bytes is 8, allowed: 1 to 4"},
                       {"element_bytes", 2, ""},
                       {"element_bytes", 1, ""},
                   }));
}

TEST(ValidateCommand, EveryFieldOfAWaitIsBounded) {
  ExpectCases(GoodWaitFor(),
              With(HeaderCases(), {
                                      {"wait_stream", 256, "wait stream is 256, allowed: 0 to 255"},
                                      {"wait_stream", 0xffffffff, "wait stream is 4294967295"},
                                      {"wait_sequence", 0, "wait sequence is 0, allowed: 1 to"},
                                  }));
}

TEST(ValidateCommand, EveryFieldOfAMarkIsBounded) {
  ExpectCases(GoodPlain(Op::kMark), HeaderCases());
}

TEST(ValidateCommand, EveryFieldOfARequestMarkIsBounded) {
  ExpectCases(GoodPlain(Op::kEndRequest), HeaderCases());
  for (const Op op : {Op::kBeginRequest, Op::kExpectRequest}) {
    ExpectCases(
        GoodRequest(op),
        With(HeaderCases(),
             {
                 {"time_ns", 0, ""},
                 {"time_ns", kRequestTimeNsMax, ""},
                 {"time_ns", kRequestTimeNsMax + 1, "request time is 3600000000001, allowed: 0 to"},
                 {"time_ns", ~std::uint64_t{0}, "request time is 18446744073709551615"},
             }));
  }
}

TEST(ValidateCommand, RequestMarksBecomeTheirTypedValues) {
  Command command;
  ASSERT_TRUE(ValidateCommand(GetCopy(GoodRequest(Op::kBeginRequest)), command).ok());
  EXPECT_EQ(std::get<BeginRequestCommand>(command.body).age_ns, 5000u);
  ASSERT_TRUE(ValidateCommand(GetCopy(GoodRequest(Op::kExpectRequest)), command).ok());
  EXPECT_EQ(std::get<ExpectRequestCommand>(command.body).in_ns, 5000u);
  ASSERT_TRUE(ValidateCommand(GetCopy(GoodPlain(Op::kEndRequest)), command).ok());
  EXPECT_TRUE(std::holds_alternative<EndRequestCommand>(command.body));
}

TEST(ValidateCommand, EveryFieldOfABufferIsBounded) {
  constexpr std::uint64_t kEnd = std::uint64_t{1} << 63;
  ExpectCases(
      GoodBuffer(Op::kNameBuffer),
      With(HeaderCases(), {
                              {"bytes", 0, "buffer bytes is 0, allowed: 1 to"},
                              {"bytes", kEnd + 1, "buffer bytes is 9223372036854775809"},
                              {"bytes", kEnd - (std::uint64_t{1} << 40), ""},
                              {"bytes", kEnd, "buffer address is 1099511627776, allowed: 0"},
                              {"address", kEnd - 4096, ""},
                              {"address", kEnd - 4095, "buffer address is"},
                              {"address", ~std::uint64_t{0}, "buffer address is"},
                          }));
  ExpectCases(GoodBuffer(Op::kForgetBuffer),
              With(HeaderCases(), {
                                      {"bytes", 1, "buffer bytes is 1, allowed: 0"},
                                      {"address", kEnd, ""},
                                      {"address", kEnd + 1, "buffer address is"},
                                  }));
}

TEST(ValidateCommand, BuffersBecomeTheirTypedValues) {
  Command command;
  ASSERT_TRUE(ValidateCommand(GetCopy(GoodBuffer(Op::kNameBuffer)), command).ok());
  const auto& named = std::get<NameBufferCommand>(command.body);
  EXPECT_EQ(named.address, std::uint64_t{1} << 40);
  EXPECT_EQ(named.bytes, 4096u);
  ASSERT_TRUE(ValidateCommand(GetCopy(GoodBuffer(Op::kForgetBuffer)), command).ok());
  EXPECT_EQ(std::get<ForgetBufferCommand>(command.body).address, std::uint64_t{1} << 40);
}

TEST(ValidateCommand, DefaultStreamIsNeitherCreatedNorDestroyed) {
  for (const Op op : {Op::kCreateStream, Op::kDestroyStream}) {
    ExpectCases(GoodPlain(op),
                With(HeaderCases(), {{"stream", 0, "stream is 0, allowed: 1 to 255"}}));
  }
}

TEST(ValidateCommand, ATurnIsOnTheDefaultStream) {
  PlainRecord turn = GoodPlain(Op::kTurn);
  turn.stream = 0;
  ExpectCases(turn, With(HeaderCases(), {{"stream", 1, "stream is 1, allowed: 0"}}));
  Command command;
  ASSERT_TRUE(ValidateCommand(GetCopy(turn), command).ok());
  EXPECT_TRUE(std::holds_alternative<TurnCommand>(command.body));
}

TEST(ValidateCompletion, EveryFieldIsBounded) {
  ExpectCases(GoodCompletion(),
              {
                  {"op", 0, "completion kind is 0, allowed: 1 to 2"},
                  {"op", 3, "completion kind is 3, allowed: 1 to 2"},
                  {"op", 1, "completion code is 0, allowed: 1 to 17"},
                  {"flags", 1, "flags is 1, allowed: 0"},
                  {"continuations", 1, "continuations is 1, allowed: 0"},
                  {"sequence", 0, "sequence is 0, allowed: 1 to"},
                  {"stream", 256, "stream is 256, allowed: 0 to 255"},
                  {"code", 18, "completion code is 18, allowed: 0 to 17"},
                  {"started_ns", 201, "completion end is 200, allowed: 201 to"},
                  {"ended_ns", 99, "completion end is 99, allowed: 100 to"},
                  {"fault", 700, "completion fault is 700, allowed: 0"},
                  {"fault", 1, "completion fault is 1, allowed: 0"},
              },
              JudgeCompletion);
}

TEST(ValidateCompletion, AFaultHasAKindThatIsKnown) {
  CompletionRecord record = GoodCompletion();
  record.header.op = static_cast<std::uint8_t>(CompletionKind::kError);
  record.code = static_cast<std::uint32_t>(StatusCode::kKernelFault);
  record.fault = 716;
  EXPECT_TRUE(JudgeCompletion(GetCopy(record)).ok());
  record.fault = 0;
  EXPECT_TRUE(JudgeCompletion(GetCopy(record)).ok()) << "a device may not tell";
  for (const std::uint32_t fault : {1U, 699U, 720U, 65536U + 700U}) {
    record.fault = fault;
    EXPECT_FALSE(JudgeCompletion(GetCopy(record)).ok()) << fault;
  }
}

TEST(ValidateCommand, RejectionNamesStreamAndCommand) {
  LaunchRecord record = GoodLaunch();
  record.grid[0] = 0;
  EXPECT_EQ(Judge(GetCopy(record)).ToString(),
            "ProtocolViolation: record rejected: launch grid x is 0, allowed: 1 to 2147483647 "
            "[stream 3 command 41]");
}

TEST(ValidateCommand, LaunchBecomesItsTypedValue) {
  const auto copy = std::make_unique<RecordCopy>(GetCopy(GoodLaunch()));
  Command command;
  ASSERT_TRUE(ValidateCommand(*copy, command).ok());
  EXPECT_EQ(command.id, (CommandId{3, 41}));
  const auto& launch = std::get<LaunchCommand>(command.body);
  EXPECT_EQ(launch.module, 5u);
  EXPECT_EQ(launch.kernel, 7u);
  EXPECT_EQ(launch.grid, (std::array<std::uint32_t, 3>{10, 1, 1}));
  EXPECT_EQ(launch.block, (std::array<std::uint32_t, 3>{64, 2, 1}));
  EXPECT_EQ(launch.dynamic_shared_bytes, 1024u);
  EXPECT_EQ(launch.inline_parameters.data(), copy->tail.data());
  EXPECT_EQ(launch.inline_parameters.size(), 100u);
  EXPECT_FALSE(launch.parameters_in_staging_buffer);
}

TEST(ValidateCommand, StagedParametersBecomeRange) {
  Command command;
  ASSERT_TRUE(ValidateCommand(GetCopy(GoodStagedLaunch()), command).ok());
  const auto& launch = std::get<LaunchCommand>(command.body);
  EXPECT_TRUE(launch.parameters_in_staging_buffer);
  EXPECT_TRUE(launch.inline_parameters.empty());
  EXPECT_EQ(launch.staging_parameters.staging_buffer, 2u);
  EXPECT_EQ(launch.staging_parameters.offset, 4096u);
  EXPECT_EQ(launch.staging_parameters.bytes, 8000u);
}

TEST(ValidateCommand, ComputesExtentOfRectangles) {
  Command command;
  ASSERT_TRUE(ValidateCommand(GetCopy(GoodCopy(Op::kCopyToHost)), command).ok());
  const auto& copy = std::get<CopyToHostCommand>(command.body);
  EXPECT_EQ(copy.staging_buffer.bytes, 3u * 128 + 100);
  EXPECT_EQ(copy.device_bytes, 3u * 512 + 100);
  ASSERT_TRUE(ValidateCommand(GetCopy(GoodCopyOnDevice()), command).ok());
  const auto& on_device = std::get<CopyOnDeviceCommand>(command.body);
  EXPECT_EQ(on_device.destination_bytes, 3u * 200 + 100);
  EXPECT_EQ(on_device.source_bytes, 3u * 300 + 100);
  ASSERT_TRUE(ValidateCommand(GetCopy(GoodFill()), command).ok());
  EXPECT_EQ(std::get<FillCommand>(command.body).destination_bytes, 3u * 200 + 100);
}

// With a single row the pitch is ignored, however large.
TEST(ValidateCommand, PlainRangeMayEndWhereMemoryEnds) {
  CopyOnDeviceRecord record = GoodCopyOnDevice();
  record.height = 1;
  record.destination = kAddressEnd - 100;
  record.destination_pitch_bytes = kAddressEnd;
  Command command;
  ASSERT_TRUE(ValidateCommand(GetCopy(record), command).ok());
  EXPECT_EQ(std::get<CopyOnDeviceCommand>(command.body).destination_bytes, 100u);
}

TEST(RangeInside, HoldsAtTheEdgesAndNeverOverflows) {
  constexpr std::uint64_t kMax = ~std::uint64_t{0};
  EXPECT_TRUE(RangeInside(0, 0, 0));
  EXPECT_TRUE(RangeInside(0, 16, 16));
  EXPECT_TRUE(RangeInside(16, 0, 16));
  EXPECT_FALSE(RangeInside(16, 1, 16));
  EXPECT_FALSE(RangeInside(17, 0, 16));
  EXPECT_FALSE(RangeInside(8, kMax - 4, 16));
  EXPECT_FALSE(RangeInside(kMax, 2, 16));
  EXPECT_TRUE(RangeInside(kMax, 0, kMax));
}

Command GetCommand(std::uint32_t stream, std::uint64_t sequence) {
  return {{stream, sequence}, MarkCommand{}};
}
Command GetWait(std::uint32_t stream, std::uint64_t sequence, CommandId target) {
  return {{stream, sequence}, WaitForCommand{target}};
}

TEST(StreamLog, SequencesCountFromOneWithoutGaps) {
  StreamLog session_log;
  EXPECT_FALSE(session_log.Accept(GetCommand(0, 2)).ok());
  EXPECT_TRUE(session_log.Accept(GetCommand(0, 1)).ok());
  EXPECT_FALSE(session_log.Accept(GetCommand(0, 1)).ok());
  EXPECT_FALSE(session_log.Accept(GetCommand(0, 3)).ok());
  EXPECT_TRUE(session_log.Accept(GetCommand(0, 2)).ok());
  EXPECT_EQ(session_log.last(0), 2u);
}

TEST(StreamLog, StreamsMustBeCreatedAndNumbersGoOnAfterDestruction) {
  StreamLog session_log;
  EXPECT_FALSE(session_log.Accept(GetCommand(5, 1)).ok());
  EXPECT_TRUE(session_log.Accept({{5, 1}, CreateStreamCommand{}}).ok());
  EXPECT_FALSE(session_log.Accept({{5, 2}, CreateStreamCommand{}}).ok());
  EXPECT_TRUE(session_log.Accept(GetCommand(5, 2)).ok());
  EXPECT_TRUE(session_log.Accept({{5, 3}, DestroyStreamCommand{}}).ok());
  EXPECT_FALSE(session_log.Accept(GetCommand(5, 4)).ok());
  EXPECT_FALSE(session_log.Accept({{5, 4}, DestroyStreamCommand{}}).ok());
  EXPECT_FALSE(session_log.Accept({{5, 1}, CreateStreamCommand{}}).ok());
  EXPECT_TRUE(session_log.Accept({{5, 4}, CreateStreamCommand{}}).ok());
  EXPECT_TRUE(session_log.live(5));
}

TEST(StreamLog, ARequestOfAStreamEndsOncePerBegin) {
  StreamLog session_log;
  EXPECT_FALSE(session_log.Accept({{0, 1}, EndRequestCommand{}}).ok()) << "none is open";
  EXPECT_TRUE(session_log.Accept({{0, 1}, BeginRequestCommand{}}).ok());
  EXPECT_TRUE(session_log.in_request(0));
  EXPECT_FALSE(session_log.Accept({{0, 2}, BeginRequestCommand{}}).ok()) << "they do not nest";
  EXPECT_TRUE(session_log.Accept({{0, 2}, EndRequestCommand{}}).ok());
  EXPECT_FALSE(session_log.in_request(0));
  EXPECT_FALSE(session_log.Accept({{0, 3}, EndRequestCommand{}}).ok());
  EXPECT_TRUE(session_log.Accept({{0, 3}, BeginRequestCommand{}}).ok());

  EXPECT_TRUE(session_log.Accept({{5, 1}, CreateStreamCommand{}}).ok());
  EXPECT_TRUE(session_log.Accept({{5, 2}, BeginRequestCommand{}}).ok())
      << "each stream has its own";
  EXPECT_TRUE(session_log.Accept({{5, 3}, DestroyStreamCommand{}}).ok());
  EXPECT_TRUE(session_log.Accept({{5, 4}, CreateStreamCommand{}}).ok());
  EXPECT_FALSE(session_log.Accept({{5, 5}, EndRequestCommand{}}).ok())
      << "it ended with its stream";
}

// The rule that makes it impossible to express deadlocks.
TEST(StreamLog, WaitsNameEarlierWorkOnly) {
  StreamLog session_log;
  EXPECT_TRUE(session_log.Accept({{1, 1}, CreateStreamCommand{}}).ok());
  EXPECT_FALSE(session_log.Accept(GetWait(0, 1, {1, 2})).ok()) << "not submitted yet";
  EXPECT_FALSE(session_log.Accept(GetWait(0, 1, {0, 1})).ok()) << "itself";
  EXPECT_FALSE(session_log.Accept(GetWait(0, 1, {2, 1})).ok()) << "a stream that never was";
  EXPECT_TRUE(session_log.Accept(GetWait(0, 1, {1, 1})).ok());
  EXPECT_TRUE(session_log.Accept({{1, 2}, DestroyStreamCommand{}}).ok());
  EXPECT_TRUE(session_log.Accept(GetWait(0, 2, {1, 2})).ok()) << "a destroyed stream's work counts";
}

}  // namespace
}  // namespace gpushared::ipc
