// SPDX-License-Identifier: Apache-2.0
// Control and channel messages: decoding restores what was encoded, and every value outside of the
// documented limits is rejected by name.
#include "ipc/wire/control.h"

#include <algorithm>
#include <cstring>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ipc/wire/channel.h"
#include "tests/ipc/field_cases.h"

namespace gpushared::ipc {
namespace {

using ::gpushared::testing::FindField;
using ::gpushared::testing::GetFields;
using ::gpushared::testing::Poke;
using ::testing::HasSubstr;
using Bytes = std::vector<std::byte>;

Hello GoodHello() {
  Hello hello;
  hello.client_class = SchedulingClass::kHigh;
  hello.weight = 3;
  hello.latency_target_ns = 10'000'000;
  hello.memory_bytes = 1 << 20;
  hello.name = "serve";
  hello.device = "cpu:0";
  return hello;
}

DeviceDescription GoodDevice() {
  DeviceDescription device;
  device.name = "embedded cpu device, 1 executor thread";
  device.id = "cpu:0";
  device.kind = "cpu";
  device.memory_bytes = std::uint64_t{1} << 33;
  device.multiprocessors = 1;
  device.threads_per_block_max = 1024;
  device.block_max = {1024, 1024, 64};
  device.grid_max = {0x7fffffff, 65535, 65535};
  device.shared_bytes_per_block_max = 49152;
  device.preempts_within_command = true;
  device.uuid[15] = 7;
  device.attributes = {{1, 1024}, {75, 8}};
  return device;
}

Welcome GoodWelcome() {
  Welcome welcome;
  welcome.generation = 2;
  welcome.session = 77;
  welcome.spin_ns = 20'000;
  welcome.quota_bytes = 1 << 30;
  welcome.space_base = std::uint64_t{1} << 40;
  welcome.space_bytes = std::uint64_t{1} << 32;
  welcome.staging_bytes_total_max = 1 << 28;
  welcome.mapping_base = welcome.space_base + (std::uint64_t{1} << 30);
  welcome.mapping_bytes = std::uint64_t{1} << 31;
  welcome.device = GoodDevice();
  return welcome;
}

Attach GoodAttach() {
  Attach attach;
  attach.session = 9;
  attach.peer = {1234, 1000, 1000};
  attach.request = 5;
  attach.quota_bytes = 1 << 30;
  attach.guaranteed_bytes = 1 << 29;
  attach.allowed_class = SchedulingClass::kHigh;
  attach.client_class = SchedulingClass::kLow;
  attach.isolation = 1;
  attach.is_trusted = true;
  attach.share_group = 1000;
  attach.weight_max = 100;
  attach.weight = 3;
  attach.hello = GoodHello();
  return attach;
}

RegistrySession GoodRow() {
  return {.session = 9,
          .peer = {1234, 1000, 1000},
          .name = "serve",
          .client_class = SchedulingClass::kLow,
          .weight = 3,
          .endpoint = 4,
          .endpoint_name = "batch",
          .quota_bytes = 1 << 30,
          .guaranteed_bytes = 1 << 29,
          .isolation = 1,
          .has_started = true,
          .age_ns = 77};
}

ModuleLoaded GoodModule() {
  ModuleLoaded loaded;
  loaded.module = 4;
  loaded.kernels.push_back({"gemm",
                            "",
                            24,
                            4096,
                            1024,
                            {64, 2, 1},
                            {2, 1, 1},
                            {{0, 8}, {8, 8}, {16, 8}},
                            {32, 16, 64, 8192, 75, 80}});
  loaded.kernels.push_back({"odd", "tex.2d (line 7)", 0, 0, 256, {}, {}});
  loaded.variables.push_back({"counter", 0x7000, 4, VariableSpace::kGlobal});
  loaded.variables.push_back({"table", 0x7010, 64, VariableSpace::kConstant});
  loaded.variables.push_back({"weights", 0x8000, 1 << 20, VariableSpace::kGlobal});
  return loaded;
}

// One valid message of each type. No two lists in a message have the same length, so that a list
// read with the length of another one fails.
auto Samples() {
  const Status status(StatusCode::kOutOfMemory, "no memory");
  const Admin admin{.verb = AdminVerb::kSet,
                    .client = 4,
                    .client_class = SchedulingClass::kLow,
                    .weight = 2,
                    .max_share = 500};
  const Keep lease{.endpoint = 4, .lessee = "uid 0 pid 7", .terms = "class = \"low\""};
  return std::tuple(
      GoodHello(), admin, Why{3}, ListDevices{}, LoadModule{3, 100}, MakeImage{100},
      UnloadModule{3}, ResizeMemory{3},
      ChangeChunk{.action = ChunkAction::kMap, .chunk = 3, .address = kChunkBytesStep},
      SetKernelMemory{.stack_bytes = 16 << 10, .printed_bytes = 2 << 20},
      AddStagingBuffer{kStagingBufferBytesDefault}, DescribeError{3}, TakePrinted{}, GoodWelcome(),
      Rejected{status}, Ended{status}, AdminReply{StatusCode::kCancelled, "gone"},
      TraceOpened{7, 2}, DeviceList{{GoodDevice(), GoodDevice()}}, GoodModule(), Done{},
      MemoryResized{3}, StagingBufferAdded{3, kStagingBufferBytesDefault}, ImageMade{100},
      Printed{.end = 10, .dropped = 5, .text = std::string("a\0\xff", 3)}, ErrorText{3, 7, status},
      GoodAttach(), AdminRequest{admin}, Drain{}, Resume{}, TerminateSession{3, "the lease ended"},
      SetSession{3, SchedulingClass::kLow, 5, 500}, TakeOver{}, lease, Forget{3},
      Watch{1000, 7, 3, true}, Ready{1, GoodDevice()}, SessionStarted{3}, SessionEnded{3, status},
      ChannelReply{StatusCode::kOk, "{}"},
      Registry{.generation = 2, .made_by = 3, .last_session = 4, .sessions = 5, .ends = 6},
      GoodRow(), RegistryEnd{3, 7, 1000, status}, Kept{lease}, MoveOut{3},
      MoveIn{GoodRow(), SchedulingClass::kHigh, true}, MoveEnded{3, MoveEnd::kArrived, 5, 6},
      MovedSession{7, 8}, MovedBuffer{kStagingBufferBytesDefault}, MoveCommit{});
}

template <typename Message>
Bytes GetPayload(const Message& message) {
  return Encode(message);
}
Bytes GetPayload(const ModuleLoaded& message) { return *Encode(message); }

template <typename Message>
std::string WhyRejected(const Bytes& payload) {
  return Decode<Message>(payload).status().message();
}
template <typename Message>
std::string WhyRejected(const Message& message) {
  return WhyRejected<Message>(GetPayload(message));
}

struct Limits {
  std::vector<std::uint64_t> ends;     // Smallest and largest valid values.
  std::vector<std::uint64_t> outside;  // Invalid values next to these.
  std::string text;                    // Limits as a rejection names them.
};

// Reads limits such as "", "0", "1 to 2^28", "0 to 2 or 255" or "at least 1". If the elements have
// different limits, as in "1 to 7, then 1 to 5", returns the range that contains all of them.
Limits ReadLimits(const Field& field) {
  const std::uint64_t type_max = ~std::uint64_t{0} >> (64 - 8 * field.element_bytes);
  std::uint64_t low = type_max;
  std::uint64_t high = 0;
  std::vector<std::uint64_t> alternatives;
  std::istringstream words(field.limits.empty() ? "at least 0" : field.limits);
  for (std::string word, before; words >> word; before = word) {
    if (word == "at") high = type_max;
    if (word[0] < '0' || word[0] > '9') continue;
    const std::uint64_t number =
        word.starts_with("2^") ? std::uint64_t{1} << std::stoi(word.substr(2)) : std::stoull(word);
    if (before == "or") {
      alternatives.push_back(number);
      continue;
    }
    low = std::min(low, number);
    high = std::max(high, number);
  }
  Limits limits{.ends = {low, high}};
  const bool varies = field.limits.find("then") != std::string::npos;
  if (!varies)
    limits.text = std::to_string(low) + (high > low ? " to " + std::to_string(high) : "");
  if (low > 0) limits.outside.push_back(low - 1);
  if (high < type_max) limits.outside.push_back(high + 1);
  for (const std::uint64_t number : alternatives) {
    limits.ends.push_back(number);
    limits.outside.push_back(number - 1);
    if (number < type_max) limits.outside.push_back(number + 1);
  }
  return limits;
}

// Puts values at and beyond their limits into each element of each field of the T at offset `at` of
// a valid payload.
template <typename Message, typename T = Message>
void ExpectLimits(const Bytes& good, std::size_t at = 0) {
  for (const Field& field : GetFields<T>()) {
    SCOPED_TRACE(std::string(Message::kName) + ", field " + field.name);
    const auto with = [&](std::size_t element, std::uint64_t value) {
      Bytes payload = good;
      Poke(payload.data() + at, field, element, value);
      return payload;
    };
    if (field.element_bytes > sizeof(std::uint64_t)) {
      if (field.name == "hello") {
        ExpectLimits<Message, Hello>(good, at + field.offset);
      } else if (field.name == "row") {
        ExpectLimits<Message, RegistrySession>(good, at + field.offset);
      } else {
        ASSERT_EQ(field.name, "device") << "the test does not know the struct";
        ExpectLimits<Message, DeviceDescription>(good, at + field.offset);
      }
      continue;
    }
    if (field.limits == "text") {
      EXPECT_THAT(WhyRejected<Message>(with(0, 0x1b)),
                  HasSubstr(field.name + " is not printable UTF-8"));
      const auto* text = reinterpret_cast<const char*>(good.data() + at + field.offset);
      for (std::size_t i = std::strlen(text) + 1; i < field.bytes; ++i) {
        EXPECT_THAT(WhyRejected<Message>(with(i, 'x')),
                    HasSubstr(field.name + " is not filled up with zeros"));
      }
      continue;
    }
    const Limits limits = ReadLimits(field);
    for (std::size_t i = 0; i < field.bytes / field.element_bytes; ++i) {
      for (const std::uint64_t value : limits.outside) {
        const std::string rejection = " is " + std::to_string(value) + ", allowed: " + limits.text;
        const bool is_version = field.name == "version";  // Reported in words of its own.
        EXPECT_THAT(WhyRejected<Message>(with(i, value)),
                    HasSubstr(field.name + (is_version ? " " : rejection)));
      }
      for (const std::uint64_t value : limits.ends) {
        const Result<Message> message = Decode<Message>(with(i, value));
        if (!message.ok()) continue;  // Another rule of the message rejects the value.
        EXPECT_EQ(GetPayload(*message), with(i, value)) << value;
      }
    }
  }
}

template <typename Message>
void ExpectExactLength(const Bytes& good) {
  for (std::size_t bytes = 0; bytes < good.size(); ++bytes) {
    EXPECT_FALSE(Decode<Message>(std::span(good).first(bytes)).ok()) << bytes << " bytes";
  }
  Bytes longer = good;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(Decode<Message>(longer).ok());
}

template <typename Message>
void ExpectMessageAsDescribed(const Message& sample) {
  SCOPED_TRACE(Message::kName);
  const Bytes good = GetPayload(sample);
  const Result<Message> message = Decode<Message>(good);
  ASSERT_TRUE(message.ok()) << message.status().ToString();
  EXPECT_EQ(GetPayload(*message), good);
  ExpectExactLength<Message>(good);
  ExpectLimits<Message>(good);
}
template <typename... Messages>
void ExpectMessagesAsDescribed(MessageList<Messages...>) {
  const auto samples = Samples();
  (ExpectMessageAsDescribed(std::get<Messages>(samples)), ...);
}

// The limits themselves are compared with docs/protocol.md in protocol_page_test.cpp.
TEST(Messages, KeepTheirLimits) {
  ExpectMessagesAsDescribed(FirstMessages());
  ExpectMessagesAsDescribed(ClientMessages());
  ExpectMessagesAsDescribed(ServerMessages());
  ExpectMessagesAsDescribed(ToWorkerMessages());
  ExpectMessagesAsDescribed(ToBrokerMessages());
  ExpectMessagesAsDescribed(MoveMessages());
  ExpectMessagesAsDescribed(MoveAnswers());
  const Bytes list = GetPayload(std::get<DeviceList>(Samples()));
  const std::size_t second = GetLayout<DeviceList>().bytes + GetLayout<DeviceDescription>().bytes;
  ExpectLimits<DeviceList, DeviceDescription>(list, second);
}

TEST(Handshake, UnsetHelloFieldsStayUnset) {
  const Result<Hello> hello = Decode<Hello>(Encode(Hello{}));
  ASSERT_TRUE(hello.ok()) << hello.status().ToString();
  EXPECT_FALSE(hello->client_class);
  EXPECT_FALSE(hello->weight);
  EXPECT_EQ(hello->memory_bytes, 0u);
}

// A later version may have a different layout, so only its version number may be read.
TEST(Handshake, ReportsOtherVersionWhateverItsLength) {
  for (const std::size_t bytes : {std::size_t{4}, std::size_t{40}, std::size_t{4096}}) {
    Bytes payload(bytes, std::byte{0xff});
    const std::uint32_t version = 12;
    std::memcpy(payload.data(), &version, sizeof version);
    const Status status = Decode<Hello>(payload).status();
    EXPECT_EQ(status.code(), StatusCode::kVersionMismatch);
    EXPECT_THAT(status.message(), HasSubstr("protocol version 12, this side speaks version 11"));
  }
}

TEST(Handshake, DeviceExtentsHaveLimitsOfTheirOwn) {
  DeviceDescription device = GoodDevice();
  device.block_max[2] = 65;
  EXPECT_THAT(WhyRejected(Ready{1, device}), HasSubstr("block_max is 65, allowed: 1 to 64"));
  for (const std::size_t axis : {1, 2}) {
    device = GoodDevice();
    device.grid_max[axis] = 65536;
    EXPECT_THAT(WhyRejected(Ready{1, device}), HasSubstr("grid_max is 65536, allowed: 1 to 65535"));
  }
  device = GoodDevice();
  device.block_max[1] = 1024;
  device.grid_max[0] = 0x7fffffff;
  EXPECT_EQ(WhyRejected(Ready{1, device}), "");
}

TEST(Handshake, DeviceAttributesAscend) {
  DeviceDescription device = GoodDevice();
  device.attributes = {{0, 1}};
  EXPECT_THAT(WhyRejected(Ready{1, device}), HasSubstr("attribute id is 0, allowed: 1 to 1023"));
  device.attributes = {{1024, 1}};
  EXPECT_THAT(WhyRejected(Ready{1, device}), HasSubstr("attribute id is 1024, allowed: 1 to 1023"));
  device.attributes = {{75, 1}, {75, 1}};
  EXPECT_THAT(WhyRejected(Ready{1, device}), HasSubstr("attribute id is 75, allowed: 76 to 1023"));
}

TEST(Handshake, NothingFollowsTheLastDeviceAttribute) {
  const Bytes good = Encode(Ready{1, GoodDevice()});
  const std::size_t at = FindField<Ready>("device")->offset;
  const Field& table = *FindField<DeviceDescription>("table");
  for (std::size_t i = 2; i < kDeviceAttributesMax; ++i) {
    for (const std::uint64_t value : {std::uint64_t{1}, std::uint64_t{1} << 32}) {
      Bytes payload = good;
      Poke(payload.data() + at, table, i, value);
      EXPECT_THAT(WhyRejected<Ready>(payload), HasSubstr("attribute after the last is 1"));
    }
  }
}

TEST(Handshake, MappingAreaIsInsideTheSpace) {
  Welcome welcome = GoodWelcome();
  welcome.mapping_base = welcome.space_base - 1;
  EXPECT_THAT(WhyRejected(welcome), HasSubstr("mapping area is 18446744073709551615"));
  welcome.mapping_base = welcome.space_base + welcome.space_bytes + 1;
  EXPECT_THAT(WhyRejected(welcome), HasSubstr("mapping area is 4294967297"));
  welcome.mapping_base = welcome.space_base + welcome.space_bytes;
  EXPECT_THAT(WhyRejected(welcome), HasSubstr("mapping_bytes is 2147483648, allowed: 0"));
  welcome.mapping_bytes = 0;
  EXPECT_EQ(WhyRejected(welcome), "");
}

TEST(AdminMessage, OneRequestOfOneClientIsExplained) {
  const Admin explain{.verb = AdminVerb::kExplain, .client = 4, .request = ~std::uint64_t{0}};
  const Result<Admin> back = Decode<Admin>(Encode(explain));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->client, 4u);
  EXPECT_EQ(back->request, ~std::uint64_t{0});
  EXPECT_THAT(Decode<Admin>(Encode(Admin{.verb = AdminVerb::kExplain})).status().message(),
              HasSubstr("client is 0, allowed: 1"));
}

TEST(AdminMessage, ParkNamesAClientAndMayHoldIt) {
  const Admin held{.verb = AdminVerb::kPark, .client = 4, .request = 1};
  EXPECT_EQ(Decode<Admin>(Encode(held))->request, 1u);
  Admin wrong = held;
  wrong.request = 2;
  EXPECT_THAT(Decode<Admin>(Encode(wrong)).status().message(), HasSubstr("request is 2"));
  wrong = {.verb = AdminVerb::kWake, .client = 4, .request = 1};
  EXPECT_THAT(Decode<Admin>(Encode(wrong)).status().message(), HasSubstr("request is 1"));
  EXPECT_FALSE(Decode<Admin>(Encode(Admin{.verb = AdminVerb::kPark})).ok());
}

TEST(AdminMessage, NamesVerbsAsTheyAreTyped) {
  EXPECT_EQ(AdminVerbName(AdminVerb::kStatus), "status");
  EXPECT_EQ(AdminVerbName(AdminVerb::kClients), "ps");
  EXPECT_EQ(AdminVerbName(AdminVerb::kTerminate), "client terminate");
  EXPECT_EQ(AdminVerbName(AdminVerb::kLease), "endpoint lease");
  EXPECT_EQ(AdminVerbName(AdminVerb::kTrace), "trace");
  EXPECT_EQ(AdminVerbName(static_cast<AdminVerb>(0)), "unknown");
  EXPECT_EQ(AdminVerbName(static_cast<AdminVerb>(kAdminVerbMax + 1)), "unknown");
}

TEST(AdminMessage, LimitsLengthOfLeaseTerms) {
  const Admin lease{.verb = AdminVerb::kLease, .terms = "class = \"low\""};
  EXPECT_EQ(Decode<Admin>(Encode(lease))->terms, lease.terms);
  ExpectExactLength<Admin>(Encode(lease));
  Bytes longer = Encode(Admin{.verb = AdminVerb::kLease, .terms = std::string(2048, 't')});
  EXPECT_TRUE(Decode<Admin>(longer).ok());
  longer.push_back(std::byte{'t'});
  const std::uint32_t bytes = 2049;
  std::memcpy(longer.data() + FindField<Admin>("text_bytes")->offset, &bytes, sizeof bytes);
  EXPECT_THAT(Decode<Admin>(longer).status().message(),
              HasSubstr("text_bytes is 2049, allowed: 0 to 2048"));
}

TEST(AdminMessage, VerbsTakeOnlyTheirOwnArguments) {
  EXPECT_EQ(WhyRejected(Admin{}), "");
  EXPECT_THAT(WhyRejected(Admin{.client = 4}), HasSubstr("client is 4, allowed: 0"));
  EXPECT_THAT(WhyRejected(Admin{.client_class = SchedulingClass::kLow}),
              HasSubstr("class is given with a verb that takes none"));
  EXPECT_THAT(WhyRejected(Admin{.weight = 4}), HasSubstr("weight is 4, allowed: 0"));
  EXPECT_THAT(WhyRejected(Admin{.max_share = 4}), HasSubstr("max_share is 4, allowed: 0"));
  EXPECT_THAT(WhyRejected(Admin{.request = 1}), HasSubstr("request is 1, allowed: 0"));
  EXPECT_THAT(WhyRejected(Admin{.terms = "t"}), HasSubstr("text_bytes is 1, allowed: 0"));
  EXPECT_THAT(WhyRejected(Admin{.verb = AdminVerb::kTrace}),
              HasSubstr("text_bytes is 0, allowed: 1 to 64"));
  EXPECT_THAT(WhyRejected(Admin{.verb = AdminVerb::kDrain, .terms = std::string(65, 't')}),
              HasSubstr("text_bytes is 65, allowed: 0 to 64"));
  EXPECT_THAT(WhyRejected(Admin{.verb = AdminVerb::kTerminate}),
              HasSubstr("client is 0, allowed: 1 to"));
  EXPECT_THAT(WhyRejected(Admin{.verb = AdminVerb::kSet, .client = 4}),
              HasSubstr("the change sets no value"));
}

TEST(AdminMessage, BoundsOfNewClientsAreTermsAlone) {
  Admin bounds{.verb = AdminVerb::kSet, .terms = "class = \"low\""};
  EXPECT_EQ(Decode<Admin>(Encode(bounds))->terms, bounds.terms);
  bounds.weight = 3;
  EXPECT_THAT(Decode<Admin>(Encode(bounds)).status().message(),
              HasSubstr("a change for new clients has both terms and values"));
  bounds = {.verb = AdminVerb::kSet, .client = 4, .terms = "class = \"low\""};
  EXPECT_THAT(Decode<Admin>(Encode(bounds)).status().message(),
              HasSubstr("client is 4, allowed: 0"));
}

TEST(ClientMessages, ChunkActionsTakeOnlyTheirOwnArguments) {
  const std::uint64_t step = kChunkBytesStep;
  const auto why = [](ChunkAction action, std::uint32_t chunk, std::uint64_t bytes,
                      std::uint64_t address) {
    return WhyRejected(ChangeChunk{action, chunk, bytes, address});
  };
  EXPECT_EQ(why(ChunkAction::kMake, 3, step, 0), "");
  EXPECT_THAT(why(ChunkAction::kMake, 3, 0, 0),
              HasSubstr("bytes is 0, allowed: 2097152 to 1073741824"));
  EXPECT_THAT(why(ChunkAction::kMake, 3, step + 1, 0),
              HasSubstr("bytes is 2097153, allowed: multiples of 2097152"));
  EXPECT_THAT(why(ChunkAction::kMake, 3, step, step), HasSubstr("address is 2097152, allowed: 0"));
  EXPECT_THAT(why(ChunkAction::kFree, 3, step, 0), HasSubstr("bytes is 2097152, allowed: 0"));
  EXPECT_THAT(why(ChunkAction::kFree, 3, 0, step), HasSubstr("address is 2097152, allowed: 0"));
  EXPECT_THAT(why(ChunkAction::kMap, 3, step, step), HasSubstr("bytes is 2097152, allowed: 0"));
  EXPECT_THAT(why(ChunkAction::kMap, 3, 0, step + 1),
              HasSubstr("address is 2097153, allowed: multiples of 2097152"));
  EXPECT_THAT(why(ChunkAction::kUnmap, 3, 0, step), HasSubstr("chunk is 3, allowed: 0"));
}

TEST(ClientMessages, StagingBuffersConsistOfWholeSteps) {
  EXPECT_THAT(WhyRejected(AddStagingBuffer{65537}),
              HasSubstr("bytes is 65537, allowed: multiples of 65536"));
  EXPECT_THAT(WhyRejected(MovedBuffer{65537}),
              HasSubstr("bytes is 65537, allowed: multiples of 65536"));
  EXPECT_THAT(WhyRejected(StagingBufferAdded{3, 65537}),
              HasSubstr("bytes is 65537, allowed: multiples of 65536"));
}

TEST(ServerMessages, SplitsTextIntoPagesAtCharacterBoundaries) {
  std::string text(kPageTextBytesMax - 1, 'a');
  text += "\xc3\xa4 and the rest";
  std::string_view rest = text;
  const std::string_view first = TakePage(rest);
  EXPECT_EQ(first.size(), kPageTextBytesMax - 1);
  EXPECT_EQ(std::string(first) + std::string(rest), text);
  EXPECT_EQ(TakePage(rest), "\xc3\xa4 and the rest");
  EXPECT_TRUE(rest.empty());
  const std::string no_text(kPageTextBytesMax + 1, '\x80');
  rest = no_text;
  EXPECT_EQ(TakePage(rest).size(), kPageTextBytesMax);
}

TEST(ServerMessages, PrintedTextIsBounded) {
  const std::string text("a\0\xff", 3);  // A kernel chooses the bytes.
  EXPECT_EQ(WhyRejected(Printed{.end = 8, .dropped = 5, .text = text}), "");
  EXPECT_THAT(WhyRejected(Printed{.end = 4, .dropped = 5, .text = text}),
              HasSubstr("dropped is 5, allowed: 0 to 4"));
  EXPECT_THAT(WhyRejected(Printed{.end = 10, .dropped = 8, .text = text}),
              HasSubstr("text_bytes is 3, allowed: 0 to 2"));
  const Printed large{.end = ~std::uint64_t{0}, .text = std::string(kPrintedTextBytesMax + 1, 'x')};
  EXPECT_EQ(Decode<Printed>(Encode(large))->text.size(), kPrintedTextBytesMax);
}

TEST(ServerMessages, KernelsRequireNoExtentOfZero) {
  for (const bool is_block : {true, false}) {
    ModuleLoaded module = GoodModule();
    (is_block ? module.kernels[0].required_block : module.kernels[0].required_cluster) = {2, 0, 1};
    const Result<Bytes> payload = Encode(module);
    ASSERT_TRUE(payload.ok());
    EXPECT_FALSE(Decode<ModuleLoaded>(*payload).ok());
  }
}

// A program copies to [address, address + bytes), so an end that wraps around would be below the
// beginning.
TEST(ServerMessages, VariableEndsAfterItsBeginning) {
  ModuleLoaded loaded = GoodModule();
  loaded.variables[0].address = ~std::uint64_t{0} - 3;
  EXPECT_THAT(Decode<ModuleLoaded>(*Encode(loaded)).status().message(),
              HasSubstr("variables[0].bytes is 4, allowed: 0 to 3"));
  loaded = GoodModule();
  loaded.variables[1].space = static_cast<VariableSpace>(2);
  EXPECT_THAT(Decode<ModuleLoaded>(*Encode(loaded)).status().message(),
              HasSubstr("variables[1].space is 2, allowed: 0 to 1"));
}

// The client writes arguments according to this layout, so a parameter outside the buffer would
// mean a write outside the buffer.
TEST(ServerMessages, ParametersMustLieInsideTheArgumentBuffer) {
  ModuleLoaded loaded = GoodModule();
  loaded.kernels[0].parameters[2] = {20, 8};
  EXPECT_THAT(Decode<ModuleLoaded>(*Encode(loaded)).status().message(),
              HasSubstr("bytes of a parameter is 8, allowed: 0 to 4"));
  loaded.kernels[0].parameters[2] = {0xffffffff, 8};
  EXPECT_THAT(Decode<ModuleLoaded>(*Encode(loaded)).status().message(),
              HasSubstr("parameter offset is 4294967295, allowed: 0 to 24"));
}

// The list of kernels has no fixed offsets for its fields, so their positions are computed.
TEST(ServerMessages, FieldsOfAKernelAreBounded) {
  const ModuleLoaded module = GoodModule();
  const KernelDescription& first = module.kernels[0];
  const Bytes good = *Encode(module);
  const std::size_t name = GetLayout<ModuleLoaded>().bytes;
  const std::size_t unsupported = name + sizeof(std::uint32_t) + first.name.size();
  const std::size_t parameter_bytes = unsupported + sizeof(std::uint32_t);
  const std::size_t parameters =
      name + first.name.size() + GetLayout<KernelDescription>().bytes - sizeof(std::uint32_t);
  const auto rejection = [&](std::size_t at, std::uint32_t value) {
    Bytes payload = good;
    std::memcpy(payload.data() + at, &value, sizeof value);
    return Decode<ModuleLoaded>(payload).status().message();
  };
  EXPECT_THAT(rejection(name, 4097),
              HasSubstr("kernels[0].name_bytes is 4097, allowed: 0 to 4096"));
  EXPECT_THAT(rejection(unsupported, 8193),
              HasSubstr("kernels[0].unsupported_bytes is 8193, allowed: 0 to 8192"));
  EXPECT_THAT(rejection(parameter_bytes, 32765),
              HasSubstr("kernels[0].parameter_bytes is 32765, allowed: 0 to 32764"));
  EXPECT_THAT(rejection(parameters, 4097),
              HasSubstr("kernels[0].parameters is 4097, allowed: 0 to 4096"));
}

// A client's module decides these numbers, so they are rejected instead of asserted.
TEST(ServerMessages, ModuleBeyondTheLimitsIsRejectedByTheEncoder) {
  ModuleLoaded many;
  many.kernels.resize(kKernelsPerModuleMax + 1);
  EXPECT_EQ(Encode(many).status().code(), StatusCode::kLimitExceeded);
  ModuleLoaded wide = GoodModule();
  wide.kernels[0].parameters.resize(kParametersPerKernelMax + 1);
  EXPECT_EQ(Encode(wide).status().code(), StatusCode::kLimitExceeded);
  wide = GoodModule();
  wide.kernels[0].parameter_bytes = kParameterBytesMax + 1;
  EXPECT_EQ(Encode(wide).status().code(), StatusCode::kLimitExceeded);
  ModuleLoaded long_name = GoodModule();
  long_name.kernels[0].name.assign(kSymbolNameBytesMax + 1, 'k');
  EXPECT_EQ(Encode(long_name).status().code(), StatusCode::kLimitExceeded);
  ModuleLoaded named = GoodModule();
  named.variables[0].name.assign(kSymbolNameBytesMax + 1, 'v');
  EXPECT_EQ(Encode(named).status().code(), StatusCode::kLimitExceeded);
  ModuleLoaded full;
  full.variables.resize(kVariablesPerModuleMax + 1);
  EXPECT_EQ(Encode(full).status().code(), StatusCode::kLimitExceeded);
  ModuleLoaded wordy;
  wordy.variables.assign(3000, {std::string(4000, 'v'), 0, 0, VariableSpace::kGlobal});
  EXPECT_EQ(Encode(wordy).status().code(), StatusCode::kLimitExceeded);
  ModuleLoaded large;
  large.kernels.assign(2000, {std::string(4000, 'k'), std::string(4000, 'u'), 0, 0, 1, {}, {}});
  EXPECT_EQ(Encode(large).status().code(), StatusCode::kLimitExceeded);
}

TEST(ServerMessages, TruncatesLongMessages) {
  const Status status(StatusCode::kKernelFault, std::string(100'000, 'x'));
  const Result<Ended> ended = Decode<Ended>(Encode(Ended{status}));
  ASSERT_TRUE(ended.ok());
  EXPECT_EQ(ended->status.message().size(), kTextBytesMax);
  EXPECT_EQ(ended->status.code(), StatusCode::kKernelFault);
}

TEST(ServerMessages, RejectionBecomesTheStatusOfTheReply) {
  Frame frame;
  frame.type = static_cast<std::uint16_t>(MessageType::kRejected);
  frame.payload = Encode(Rejected{Status(StatusCode::kOutOfMemory, "quota is used up")});
  EXPECT_EQ(DecodeReply<MemoryResized>(frame).status().ToString(), "OutOfMemory: quota is used up");
  frame.type = static_cast<std::uint16_t>(MessageType::kDone);
  EXPECT_EQ(DecodeReply<MemoryResized>(frame).status().ToString(),
            "ProtocolViolation: reply rejected: it is Done, expected MemoryResized");
}

TEST(ChannelMessages, GuaranteedMemoryIsPartOfTheQuota) {
  Attach attach = GoodAttach();
  attach.guaranteed_bytes = attach.quota_bytes + 1;
  EXPECT_THAT(WhyRejected(attach), HasSubstr("guaranteed_bytes is 1073741825, allowed: 0 to"));
  RegistrySession row = GoodRow();
  row.guaranteed_bytes = row.quota_bytes + 1;
  EXPECT_THAT(WhyRejected(row), HasSubstr("guaranteed_bytes is 1073741825, allowed: 0 to"));
}

// Each type must be readable by exactly its intended side, and its real size must be accepted.
TEST(FrameRules, EveryMessageFitsTheRuleOfItsReceiver) {
  const auto fits = [](std::optional<FrameRule> rule, std::size_t bytes) {
    return rule && bytes >= rule->payload_bytes_min && bytes <= rule->payload_bytes_max;
  };
  const auto type = [](auto t) { return static_cast<std::uint16_t>(t); };
  EXPECT_TRUE(fits(FirstFrameRules(type(MessageType::kHello)), GetLayout<Hello>().bytes));
  EXPECT_TRUE(fits(FirstFrameRules(type(MessageType::kAdmin)), GetLayout<Admin>().bytes));
  EXPECT_TRUE(fits(FirstFrameRules(type(MessageType::kWhy)), GetLayout<Why>().bytes));
  EXPECT_TRUE(fits(ServerFrameRules(type(MessageType::kWelcome)), GetLayout<Welcome>().bytes));
  EXPECT_TRUE(
      fits(ServerFrameRules(type(MessageType::kModuleLoaded)), Encode(GoodModule())->size()));
  EXPECT_TRUE(fits(ClientFrameRules(type(MessageType::kMakeImage)), GetLayout<MakeImage>().bytes));
  EXPECT_TRUE(fits(ServerFrameRules(type(MessageType::kImageMade)), GetLayout<ImageMade>().bytes));
  EXPECT_TRUE(
      fits(ClientFrameRules(type(MessageType::kLoadModule)), GetLayout<LoadModule>().bytes));
  EXPECT_TRUE(fits(ChannelToWorkerRules(type(ChannelType::kAttach)), GetLayout<Attach>().bytes));
  EXPECT_TRUE(fits(ChannelToBrokerRules(type(ChannelType::kReady)), GetLayout<Ready>().bytes));
  for (std::uint16_t t = 0; t < 200; ++t) {
    const int receivers = FirstFrameRules(t).has_value() + ClientFrameRules(t).has_value() +
                          ServerFrameRules(t).has_value();
    EXPECT_LE(receivers, 1) << t;
    EXPECT_EQ(receivers == 1, MessageTypeName(t) != "unknown") << t;
    // Attach also goes from worker to worker.
    const bool is_moved = MoveRules(t).has_value() && t != type(ChannelType::kAttach);
    const int ends =
        ChannelToWorkerRules(t).has_value() + ChannelToBrokerRules(t).has_value() + is_moved;
    EXPECT_EQ(ends == 1, ChannelTypeName(t) != "unknown") << t;
  }
}

}  // namespace
}  // namespace gpushared::ipc
