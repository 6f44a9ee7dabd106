// SPDX-License-Identifier: Apache-2.0
// Control and channel messages: decoding restores what was encoded, and every field out of range is
// rejected by name.
#include "ipc/wire/control.h"

#include <cstring>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ipc/wire/channel.h"
#include "tests/ipc/field_cases.h"

namespace gpushared::ipc {
namespace {

using ::gpushared::testing::AnyValue;
using ::gpushared::testing::FieldCase;
using ::gpushared::testing::GetFields;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
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
  return loaded;
}

// Returns the cases, plus one for each element of each reserved field.
template <typename T>
std::vector<FieldCase> WithReserved(std::vector<FieldCase> cases) {
  for (const Field& field : GetFields<T>()) {
    if (!gpushared::testing::IsReserved(field)) continue;
    for (std::size_t i = 0; i < field.bytes / field.element_bytes; ++i) {
      cases.push_back({field.name, 1, field.name + " is 1, allowed: 0", i});
    }
  }
  return cases;
}

// Applies every case to the T at offset `at` in a valid payload. Fields in `elsewhere` are structs
// with fields of their own.
template <typename Message, typename T>
void ExpectVerdicts(const Bytes& good, std::size_t at, const std::vector<FieldCase>& cases,
                    const std::vector<std::string_view>& elsewhere = {}) {
  ASSERT_TRUE(Decode<Message>(good).ok()) << Decode<Message>(good).status().ToString();
  EXPECT_THAT(gpushared::testing::FieldsWithoutCase<T>(cases, elsewhere), IsEmpty())
      << "a field has no hostile case";
  for (const FieldCase& c : WithReserved<T>(cases)) {
    const Field* field = gpushared::testing::FindField<T>(c.field);
    ASSERT_NE(field, nullptr) << c.field;
    Bytes payload = good;
    gpushared::testing::Poke(payload.data() + at, *field, c.element, c.value);
    const Status status = Decode<Message>(payload).status();
    if (c.rejection.empty()) {
      EXPECT_TRUE(status.ok()) << c.field << " = " << c.value << ": " << status.ToString();
    } else {
      EXPECT_FALSE(status.ok()) << c.field << " = " << c.value;
      EXPECT_THAT(status.message(), HasSubstr(c.rejection)) << c.field << " = " << c.value;
    }
  }
}
template <typename T>
void ExpectCases(const Bytes& good, const std::vector<FieldCase>& cases,
                 const std::vector<std::string_view>& elsewhere = {}) {
  ExpectVerdicts<T, T>(good, 0, cases, elsewhere);
}
// Tests the cases of a struct inside a message.
template <typename T, typename Inner>
void ExpectInnerCases(const Bytes& good, std::string_view member,
                      const std::vector<FieldCase>& cases) {
  const Field* outer = gpushared::testing::FindField<T>(member);
  ASSERT_NE(outer, nullptr);
  ASSERT_EQ(outer->bytes, GetLayout<Inner>().bytes);
  ExpectVerdicts<T, Inner>(good, outer->offset, cases);
}

// Neither a prefix nor an extension of a valid payload decodes.
template <typename T>
void ExpectExactLength(const Bytes& good) {
  for (std::size_t bytes = 0; bytes < good.size(); ++bytes) {
    EXPECT_FALSE(Decode<T>(std::span(good).first(bytes)).ok()) << bytes << " bytes";
  }
  Bytes longer = good;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(Decode<T>(longer).ok());
}

// `older` and `newer` are the rejections of other versions. Hello itself reports these with a
// separate message; the defaults are for a Hello inside another message.
std::vector<FieldCase> HelloCases(const std::string& older = "version is 10, allowed: 11",
                                  const std::string& newer = "version is 12, allowed: 11") {
  return {
      {"version", 10, older},
      {"version", 12, newer},
      {"client_class", 3, "class is 3, allowed: 0 to 2"},
      {"client_class", 255, ""},
      {"client_class", 254, "class is 254, allowed: 0 to 2"},
      {"takes_printed", 2, "takes_printed is 2, allowed: 0 to 1"},
      {"gated", 2, "gated is 2, allowed: 0 to 1"},
      {"weight", 0, ""},
      {"weight", 1001, "weight is 1001, allowed: 0 to 1000"},
      {"max_share", 0, ""},
      {"max_share", 1001, "max_share is 1001, allowed: 0 to 1000"},
      {"latency_target_ns", 3'600'000'000'001, "latency_target_ns is 3600000000001, allowed: 0 to"},
      {"latency_target_ns", ~std::uint64_t{0}, "latency_target_ns is"},
      AnyValue("memory_bytes"),
      {"name", 0x1b, "name is not printable UTF-8"},
      {"name", 'x', "name is not filled up with zeros after at most 63 bytes", 63},
      {"name", 'x', "name is not filled up with zeros", 10},
      {"device", '\n', "device is not printable UTF-8"},
      {"device", 'x', "device is not filled up with zeros", 63},
  };
}

TEST(Handshake, EveryFieldOfHelloIsBounded) {
  ExpectCases<Hello>(Encode(GoodHello()),
                     HelloCases("protocol version 10, this side speaks version 11",
                                "protocol version 12, this side speaks version 11"));
  ExpectExactLength<Hello>(Encode(GoodHello()));
}

TEST(Handshake, HelloRoundTrips) {
  const Result<Hello> hello = Decode<Hello>(Encode(GoodHello()));
  ASSERT_TRUE(hello.ok());
  EXPECT_EQ(hello->client_class, SchedulingClass::kHigh);
  EXPECT_EQ(hello->weight, 3u);
  EXPECT_EQ(hello->latency_target_ns, 10'000'000u);
  EXPECT_EQ(hello->memory_bytes, 1u << 20);
  EXPECT_EQ(hello->name, "serve");
  EXPECT_EQ(hello->device, "cpu:0");
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

std::vector<FieldCase> DeviceCases() {
  std::vector<FieldCase> cases = {
      AnyValue("memory_bytes"),
      AnyValue("multiprocessors"),
      {"threads_per_block_max", 0, "threads_per_block_max is 0, allowed: 1 to 1024"},
      {"threads_per_block_max", 1025, "threads_per_block_max is 1025, allowed: 1 to 1024"},
      {"block_max", 0, "block_max is 0, allowed: 1 to 1024", 0},
      {"block_max", 1025, "block_max is 1025, allowed: 1 to 1024", 1},
      {"block_max", 65, "block_max is 65, allowed: 1 to 64", 2},
      {"grid_max", 0, "grid_max is 0, allowed: 1 to 2147483647", 0},
      {"grid_max", 65536, "grid_max is 65536, allowed: 1 to 65535", 1},
      {"grid_max", 0, "grid_max is 0, allowed: 1 to 65535", 2},
      {"shared_bytes_per_block_max", (1 << 20) + 1, "shared_bytes_per_block_max is 1048577"},
      {"preempts_within_command", 2, "preempts_within_command is 2, allowed: 0 to 1"},
      {"spinning_pays", 2, "spinning_pays is 2, allowed: 0 to 1"},
      {"name", '\x7f', "name is not printable"},
      {"id", '\t', "id is not printable"},
      {"kind", '\t', "kind is not printable"},
      AnyValue("uuid"),
      {"attributes", 161, "attributes is 161, allowed: 0 to 160"},
      {"attributes", 1, "attribute after the last is 75, allowed: 0"},
      {"attributes", 3, "attribute id is 0, allowed: 76 to 1023"},
      {"table", 1024, "attribute id is 1024, allowed: 1 to 1023", 0},
      {"table", 0, "attribute id is 0, allowed: 1 to 1023", 0},
      {"table", 1, "attribute id is 1, allowed: 2 to 1023", 1},
  };
  for (std::size_t i = 2; i < kDeviceAttributesMax; ++i) {
    cases.push_back({"table", std::uint64_t{1} << 32, "attribute after the last is 1", i});
  }
  return cases;
}

TEST(Handshake, EveryFieldOfWelcomeIsBounded) {
  const Bytes good = Encode(GoodWelcome());
  ExpectCases<Welcome>(
      good,
      {
          {"version", 12, "protocol version 12"},
          AnyValue("generation"),
          {"session", 0, "session is 0, allowed: 1 to"},
          {"spin_ns", 1'000'000'001, "spin_ns is 1000000001, allowed: 0 to 1000000000"},
          AnyValue("quota_bytes"),
          {"space_base", std::uint64_t{1} << 63, "space_base is 9223372036854775808"},
          {"space_bytes", 0, "space_bytes is 0, allowed: 1 to"},
          {"command_granules", 4095, "command_granules is 4095, allowed: 4096"},
          {"completion_granules", 2048, "completion_granules is 2048, allowed: 1024"},
          {"streams_max", 255, "streams_max is 255, allowed: 256"},
          {"modules_max", 1, "modules_max is 1, allowed: 8192"},
          {"staging_buffers_max", 65, "staging_buffers_max is 65, allowed: 64"},
          {"staging_bytes_default", 0, "staging_bytes_default is 0, allowed: 16777216"},
          AnyValue("staging_bytes_total_max"),
          {"mapping_base", 0, "mapping area is 18446742974197923840, allowed: 0 to 4294967296"},
          {"mapping_bytes", 0, ""},
          {"mapping_bytes", ~std::uint64_t{0}, "mapping_bytes is 18446744073709551615"},
      },
      {"device"});
  ExpectInnerCases<Welcome, DeviceDescription>(good, "device", DeviceCases());
  ExpectExactLength<Welcome>(good);
}

TEST(Handshake, WelcomeRoundTrips) {
  const Result<Welcome> welcome = Decode<Welcome>(Encode(GoodWelcome()));
  ASSERT_TRUE(welcome.ok()) << welcome.status().ToString();
  EXPECT_EQ(welcome->generation, 2u);
  EXPECT_EQ(welcome->session, 77u);
  EXPECT_EQ(welcome->spin_ns, 20'000u);
  EXPECT_EQ(welcome->space_base, std::uint64_t{1} << 40);
  EXPECT_EQ(welcome->space_bytes, std::uint64_t{1} << 32);
  EXPECT_EQ(welcome->device.name, GoodDevice().name);
  EXPECT_EQ(welcome->device.grid_max, GoodDevice().grid_max);
  EXPECT_TRUE(welcome->device.preempts_within_command);
  EXPECT_FALSE(welcome->device.spinning_pays);
  EXPECT_EQ(welcome->device.uuid, GoodDevice().uuid);
  ASSERT_EQ(welcome->device.attributes.size(), 2u);
  EXPECT_EQ(welcome->device.attributes[1].id, 75u);
  EXPECT_EQ(welcome->device.attributes[1].value, 8);
}

TEST(DeviceListMessage, EveryFieldIsBounded) {
  ExpectCases<ListDevices>(Encode(ListDevices{}),
                           {{"version", 5, "protocol version 5, this side speaks version 11"}});
  const Bytes good = Encode(DeviceList{{GoodDevice(), GoodDevice()}});
  ExpectExactLength<DeviceList>(good);
  ExpectCases<DeviceList>(good, {{"devices", 65, "devices is 65, allowed: 0 to 64"},
                                 {"devices", 3, "too short"},
                                 {"devices", 1, "bytes too many"}});
}

TEST(DeviceListMessage, DevicesRoundTrip) {
  DeviceDescription other = GoodDevice();
  other.id = "cpu:1";
  const Result<DeviceList> list = Decode<DeviceList>(Encode(DeviceList{{GoodDevice(), other}}));
  ASSERT_TRUE(list.ok()) << list.status().ToString();
  ASSERT_EQ(list->devices.size(), 2u);
  EXPECT_EQ(list->devices[1].id, "cpu:1");
  EXPECT_EQ(list->devices[1].attributes.size(), 2u);
  DeviceDescription lie = GoodDevice();
  lie.threads_per_block_max = 0;
  EXPECT_FALSE(Decode<DeviceList>(Encode(DeviceList{{GoodDevice(), lie}})).ok());
}

TEST(AdminMessage, EveryFieldIsBounded) {
  Admin set;
  set.verb = AdminVerb::kSet;
  set.client = 4;
  set.client_class = SchedulingClass::kLow;
  set.weight = 2;
  ExpectCases<Admin>(Encode(set), {
                                      {"version", 12, "protocol version 12"},
                                      {"verb", 0, "verb is 0, allowed: 1 to 16"},
                                      {"verb", 17, "verb is 17, allowed: 1 to 16"},
                                      {"verb", 1, "class is given with a verb that takes none"},
                                      {"client_class", 3, "class is 3, allowed: 0 to 2"},
                                      {"weight", 1001, "weight is 1001, allowed: 0 to 1000"},
                                      {"max_share", 1001, "max_share is 1001, allowed: 0 to 1000"},
                                      {"text_bytes", 1, "client is 4, allowed: 0"},
                                      {"client", 0, "client is 0, allowed: 1 to"},
                                      {"request", 1, "request is 1, allowed: 0"},
                                  });
  ExpectExactLength<Admin>(Encode(set));
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
  std::memcpy(longer.data() + gpushared::testing::FindField<Admin>("text_bytes")->offset, &bytes,
              sizeof bytes);
  EXPECT_THAT(Decode<Admin>(longer).status().message(),
              HasSubstr("text_bytes is 2049, allowed: 0 to 2048"));
}

TEST(AdminMessage, VerbsTakeOnlyTheirOwnArguments) {
  Admin status;
  status.client = 4;
  EXPECT_THAT(Decode<Admin>(Encode(status)).status().message(),
              HasSubstr("client is 4, allowed: 0"));
  status = {};
  status.weight = 4;
  EXPECT_THAT(Decode<Admin>(Encode(status)).status().message(),
              HasSubstr("weight is 4, allowed: 0"));
  Admin nothing;
  nothing.verb = AdminVerb::kSet;
  nothing.client = 4;
  EXPECT_THAT(Decode<Admin>(Encode(nothing)).status().message(),
              HasSubstr("the change sets no value"));
  EXPECT_TRUE(Decode<Admin>(Encode(Admin{})).ok());
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

TEST(ClientMessages, EveryFieldIsBounded) {
  ExpectCases<Why>(Encode(Why{3}), {{"version", 12, "protocol version 12"},
                                    {"session", 0, "session is 0, allowed: 1 to"}});
  ExpectCases<MakeImage>(Encode(MakeImage{100}),
                         {{"bytes", 0, "bytes is 0, allowed: 1 to 268435456"},
                          {"bytes", 268435457, "bytes is 268435457, allowed: 1 to 268435456"}});
  ExpectCases<LoadModule>(Encode(LoadModule{3, 100}),
                          {{"module", 8192, "module is 8192, allowed: 0 to 8191"},
                           {"bytes", 0, "bytes is 0, allowed: 1 to 268435456"},
                           {"bytes", 268435457, "bytes is 268435457, allowed: 1 to 268435456"}});
  ExpectCases<UnloadModule>(Encode(UnloadModule{3}),
                            {{"module", 8192, "module is 8192, allowed: 0 to 8191"}});
  ExpectCases<ResizeMemory>(Encode(ResizeMemory{3}), {{"bytes", (std::uint64_t{1} << 48) + 1,
                                                       "bytes is 281474976710657, allowed: 0 to"}});
  const std::uint64_t step = kChunkBytesStep;
  ExpectCases<ChangeChunk>(
      Encode(ChangeChunk{.action = ChunkAction::kMake, .chunk = 3, .bytes = step}),
      {{"action", 0, "action is 0, allowed: 1 to 4"},
       {"action", 5, "action is 5, allowed: 1 to 4"},
       {"action", 2, "bytes is 2097152, allowed: 0"},
       {"chunk", 256, "chunk is 256, allowed: 0 to 255"},
       {"bytes", 0, "bytes is 0, allowed: 2097152 to 1073741824"},
       {"bytes", step + 1, "bytes is 2097153, allowed: multiples of 2097152"},
       {"bytes", kChunkBytesMax + step, "bytes is 1075838976, allowed: 0 to 1073741824"},
       {"address", step, "address is 2097152, allowed: 0"}});
  ExpectCases<ChangeChunk>(
      Encode(ChangeChunk{.action = ChunkAction::kMap, .chunk = 3, .address = step}),
      {{"action", 4, "chunk is 3, allowed: 0"},
       {"chunk", ~std::uint64_t{0}, "chunk is 4294967295"},
       {"bytes", step, "bytes is 2097152, allowed: 0"},
       {"address", step + 1, "address is 2097153, allowed: multiples of 2097152"},
       {"address", std::uint64_t{1} << 63, "address is 9223372036854775808"}});
  ExpectCases<SetKernelMemory>(
      Encode(SetKernelMemory{.stack_bytes = 16 << 10, .printed_bytes = 2 << 20}),
      {{"stack_bytes", kStackBytesMax + 1, "stack_bytes is 262145, allowed: 0 to 262144"},
       {"printed_bytes", kPrintedBytesMax + 1, "printed_bytes is 67108865, allowed: 0 to 67108864"},
       {"heap_bytes", kResizeBytesMax + 1, "heap_bytes is 281474976710657"}});
  ExpectCases<AddStagingBuffer>(Encode(AddStagingBuffer{kStagingBufferBytesDefault}),
                                {{"bytes", 0, "bytes is 0, allowed: 65536 to 1073741824"},
                                 {"bytes", 65537, "bytes is 65537, allowed: multiples of 65536"},
                                 {"bytes", ~std::uint64_t{0}, "bytes is 18446744073709551615"}});
  ExpectCases<DescribeError>(Encode(DescribeError{3}),
                             {{"stream", 256, "stream is 256, allowed: 0 to 255"}});
}

TEST(ServerMessages, EveryFieldIsBounded) {
  const Status status(StatusCode::kOutOfMemory, "no memory");
  const std::vector<FieldCase> text = {
      {"code", 18, "code is 18, allowed"},
      {"text_bytes", 8193, "text_bytes is 8193, allowed: 0 to 8192"},
      {"text_bytes", 10, "too short"},
      {"text_bytes", 8, "1 bytes too many"}};
  ExpectCases<Rejected>(Encode(Rejected{status}), text);
  ExpectCases<Ended>(Encode(Ended{status}), text);
  ExpectCases<AdminReply>(Encode(AdminReply{StatusCode::kOk, "{}"}),
                          {{"code", 18, "code is 18"},
                           {"text_bytes", 131073, "text_bytes is 131073"},
                           {"is_last", 2, "is_last is 2, allowed: 0 to 1"}});
  EXPECT_FALSE(Decode<AdminReply>(Encode(AdminReply{.text = "[", .is_last = false}))->is_last);
  EXPECT_FALSE(Decode<Rejected>(Encode(Rejected{Status()})).ok()) << "a rejection says why";
  ExpectCases<MemoryResized>(Encode(MemoryResized{3}),
                             {{"mapped_bytes", ~std::uint64_t{0}, "mapped_bytes is"}});
  ExpectCases<TraceOpened>(Encode(TraceOpened{7, 2}), {AnyValue("layout"), AnyValue("generation")});
  ExpectCases<StagingBufferAdded>(
      Encode(StagingBufferAdded{3, kStagingBufferBytesDefault}),
      {{"staging_buffer", 64, "staging_buffer is 64, allowed: 0 to 63"},
       {"bytes", 0, "bytes is 0"},
       {"bytes", 65537, "bytes is 65537, allowed: multiples of 65536"}});
  ExpectCases<ImageMade>(Encode(ImageMade{100}),
                         {{"bytes", 0, "bytes is 0, allowed: 1 to 268435456"},
                          {"bytes", 268435457, "bytes is 268435457, allowed: 1 to 268435456"}});
  ExpectCases<ErrorText>(
      Encode(ErrorText{3, 7, status}),
      {{"stream", 256, "stream is 256"},
       {"code", 18, "code is 18"},
       AnyValue("sequence"),
       {"text_bytes", 10, "too short"},
       {"text_bytes", 0xffffffff, "text_bytes is 4294967295, allowed: 0 to 8192"}});
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
  const Bytes good = Encode(Printed{.end = 10, .dropped = 5, .text = std::string("a\0\xff", 3)});
  ExpectExactLength<Printed>(good);
  EXPECT_EQ(Decode<Printed>(good)->text, std::string("a\0\xff", 3)) << "a kernel chose the bytes";
  ExpectCases<Printed>(good, {{"end", 4, "dropped is 5, allowed: 0 to 4"},
                              {"dropped", 11, "dropped is 11, allowed: 0 to 10"},
                              {"dropped", 8, "text_bytes is 3, allowed: 0 to 2"},
                              {"text_bytes", 6, "text_bytes is 6, allowed: 0 to 5"},
                              {"text_bytes", 4, "too short"},
                              {"text_bytes", 2, "bytes too many"}});
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

TEST(ServerMessages, ModuleLoadedRoundTrips) {
  const Result<Bytes> payload = Encode(GoodModule());
  ASSERT_TRUE(payload.ok());
  const Result<ModuleLoaded> loaded = Decode<ModuleLoaded>(*payload);
  ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
  ASSERT_EQ(loaded->kernels.size(), 2u);
  EXPECT_EQ(loaded->kernels[0].name, "gemm");
  EXPECT_EQ(loaded->kernels[0].required_block, (std::array<std::uint32_t, 3>{64, 2, 1}));
  EXPECT_EQ(loaded->kernels[0].required_cluster, (std::array<std::uint32_t, 3>{2, 1, 1}));
  EXPECT_EQ(loaded->kernels[0].parameters.size(), 3u);
  EXPECT_EQ(loaded->kernels[0].parameters[2].offset, 16u);
  EXPECT_EQ(loaded->kernels[1].unsupported, "tex.2d (line 7)");
  const KernelAttributes& attributes = loaded->kernels[0].attributes;
  EXPECT_EQ(attributes.registers, 32u);
  EXPECT_EQ(attributes.local_bytes, 16u);
  EXPECT_EQ(attributes.constant_bytes, 64u);
  EXPECT_EQ(attributes.dynamic_shared_bytes_max, 8192u);
  EXPECT_EQ(attributes.ptx_version, 75u);
  EXPECT_EQ(attributes.binary_version, 80u);
  ASSERT_EQ(loaded->variables.size(), 2u);
  EXPECT_EQ(loaded->variables[0].name, "counter");
  EXPECT_EQ(loaded->variables[1].address, 0x7010u);
  EXPECT_EQ(loaded->variables[1].bytes, 64u);
  EXPECT_EQ(loaded->variables[1].space, VariableSpace::kConstant);
  ExpectExactLength<ModuleLoaded>(*payload);
  ExpectCases<ModuleLoaded>(*payload,
                            {{"module", 8192, "module is 8192, allowed: 0 to 8191"},
                             {"kernels", 4097, "kernels is 4097, allowed: 0 to 4096"},
                             {"kernels", 3, "kernels[2]."},
                             {"kernels", 1, "variables[0]."},
                             {"variables", 16385, "variables is 16385, allowed: 0 to 16384"},
                             {"variables", 3, "too short"},
                             {"variables", 1, "bytes too many"}});
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

TEST(ChannelMessages, EveryFieldIsBounded) {
  ExpectCases<Ready>(Encode(Ready{1, GoodDevice()}),
                     {{"version", 12, "protocol version 12"}, AnyValue("generation")}, {"device"});
  ExpectInnerCases<Ready, DeviceDescription>(Encode(Ready{1, GoodDevice()}), "device",
                                             DeviceCases());
  ExpectCases<Attach>(Encode(GoodAttach()),
                      {{"session", 0, "session is 0, allowed: 1 to"},
                       AnyValue("pid"),
                       AnyValue("uid"),
                       AnyValue("gid"),
                       AnyValue("request"),
                       {"quota_bytes", 0, "guaranteed_bytes is 536870912, allowed: 0"},
                       {"guaranteed_bytes", ~std::uint64_t{0}, "guaranteed_bytes is"},
                       AnyValue("share_group"),
                       AnyValue("rule_cap"),
                       {"rule_share", 0, "rule_share is 0, allowed: 1 to 1000"},
                       {"max_share", 1001, "max_share is 1001, allowed: 1 to 1000"},
                       {"allowed_class", 3, "allowed_class is 3, allowed: 0 to 2"},
                       {"client_class", 255, "class is 255, allowed: 0 to 2"},
                       {"isolation", 3, "isolation is 3, allowed: 0 to 2"},
                       {"is_trusted", 2, "is_trusted is 2, allowed: 0 to 1"},
                       {"weight", 0, "weight is 0, allowed: 1 to 1000"},
                       {"weight_max", 0, "weight_max is 0, allowed: 1 to 1000"},
                       AnyValue("endpoint"),
                       {"endpoint_name", '\n', "endpoint_name is not printable"},
                       {"owner", '\n', "owner is not printable"}},
                      {"hello"});
  ExpectInnerCases<Attach, Hello>(Encode(GoodAttach()), "hello", HelloCases());
  ExpectCases<SessionStarted>(Encode(SessionStarted{3}), {{"session", 0, "session"}});
  ExpectCases<TerminateSession>(Encode(TerminateSession{3, "the lease ended"}),
                                {{"session", 0, "session is 0"},
                                 {"text_bytes", 8193, "text_bytes is 8193, allowed: 0 to 8192"},
                                 {"text_bytes", 16, "too short"},
                                 {"text_bytes", 14, "bytes too many"}});
  EXPECT_EQ(Decode<TerminateSession>(Encode(TerminateSession{3, "why"}))->why, "why");
  ExpectCases<SessionEnded>(
      Encode(SessionEnded{3, Status(StatusCode::kCancelled, "gone")}),
      {{"session", 0, "session is 0"}, {"code", 18, "code is 18"}, {"text_bytes", 5, "too short"}});
  ExpectCases<SetSession>(Encode(SetSession{3, SchedulingClass::kLow, 5}),
                          {{"session", 0, "session is 0"},
                           {"weight", 1001, "weight is 1001"},
                           {"max_share", 1001, "max_share is 1001"},
                           {"client_class", 3, "class is 3, allowed: 0 to 2"}});
}

TEST(ChannelMessages, EveryFieldOfARegistryIsBounded) {
  // The decoder accepts any version, because the worker checks it.
  ExpectCases<TakeOver>(Encode(TakeOver{}), {AnyValue("version")});
  ExpectCases<Registry>(Encode(Registry{.generation = 2, .made_by = 3, .last_session = 4}),
                        {{"version", 8, "version is 8, allowed: 7"},
                         {"generation", 0, "generation is 0, allowed: 1 to"},
                         AnyValue("made_by"),
                         AnyValue("last_session"),
                         {"sessions", 1025, "sessions is 1025, allowed: 0 to 1024"},
                         {"ends", 129, "ends is 129, allowed: 0 to 128"},
                         {"keeps", 257, "keeps is 257, allowed: 0 to 256"}});
  ExpectCases<RegistrySession>(Encode(GoodRow()),
                               {{"session", 0, "session is 0"},
                                {"quota_bytes", 0, "guaranteed_bytes is 536870912, allowed: 0"},
                                {"guaranteed_bytes", ~std::uint64_t{0}, "guaranteed_bytes is"},
                                {"age_ns", ~std::uint64_t{0}, "age_ns is"},
                                AnyValue("pid"),
                                AnyValue("uid"),
                                AnyValue("gid"),
                                AnyValue("endpoint"),
                                {"weight", 0, "weight is 0, allowed: 1 to 1000"},
                                {"client_class", 3, "class is 3, allowed: 0 to 2"},
                                {"isolation", 3, "isolation is 3, allowed: 0 to 2"},
                                {"has_started", 2, "has_started is 2, allowed: 0 to 1"},
                                {"endpoint_name", '\n', "endpoint_name is not printable"},
                                {"endpoint_name", 'x', "is not filled up with zeros", 39},
                                {"name", 0x1b, "name is not printable UTF-8"}});
  ExpectCases<RegistryEnd>(Encode(RegistryEnd{3, 7, 1000, Status(StatusCode::kCancelled, "gone")}),
                           {{"session", 0, "session is 0"},
                            AnyValue("pid"),
                            AnyValue("uid"),
                            {"code", 18, "code is 18"},
                            {"text_bytes", 5, "too short"}});
  ExpectCases<Keep>(
      Encode(Keep{.endpoint = 1, .lessee = "uid 0 pid 7", .terms = "who = \"uid:1\""}),
      {{"endpoint", 0, "endpoint is 0"},
       {"lessee_bytes", 65, "lessee_bytes is 65, allowed: 0 to 64"},
       {"terms_bytes", 2049, "terms_bytes is 2049, allowed: 0 to 2048"},
       {"terms_bytes", 15, "too short"}});
  ExpectCases<Forget>(Encode(Forget{3}), {{"endpoint", 0, "endpoint is 0"}});
  ExpectCases<Watch>(Encode(Watch{1000, 7, 3, true}),
                     {AnyValue("uid"),
                      AnyValue("pid"),
                      AnyValue("request"),
                      {"is_operator", 2, "is_operator is 2, allowed: 0 to 1"}});
}

TEST(ChannelMessages, ARegistryRoundTrips) {
  const Result<RegistrySession> row = Decode<RegistrySession>(Encode(GoodRow()));
  ASSERT_TRUE(row.ok()) << row.status().ToString();
  EXPECT_EQ(row->peer.uid, 1000U);
  EXPECT_EQ(row->name, "serve");
  EXPECT_EQ(row->endpoint_name, "batch");
  EXPECT_EQ(row->endpoint, 4U);
  EXPECT_EQ(row->client_class, SchedulingClass::kLow);
  EXPECT_TRUE(row->has_started);
  EXPECT_EQ(row->age_ns, 77U);
  const Result<Keep> keep = Decode<Keep>(Encode(Keep{4, "uid 0 pid 7", "class = \"low\""}));
  ASSERT_TRUE(keep.ok()) << keep.status().ToString();
  EXPECT_EQ(keep->lessee, "uid 0 pid 7");
  EXPECT_EQ(keep->terms, "class = \"low\"");
  const Result<RegistryEnd> end =
      Decode<RegistryEnd>(Encode(RegistryEnd{3, 7, 1000, Status(StatusCode::kCancelled, "gone")}));
  ASSERT_TRUE(end.ok()) << end.status().ToString();
  EXPECT_EQ(end->status.message(), "gone");
}

TEST(ChannelMessages, AttachRoundTrips) {
  const Result<Attach> attach = Decode<Attach>(Encode(GoodAttach()));
  ASSERT_TRUE(attach.ok()) << attach.status().ToString();
  EXPECT_EQ(attach->peer.pid, 1234);
  EXPECT_EQ(attach->peer.uid, 1000u);
  EXPECT_EQ(attach->allowed_class, SchedulingClass::kHigh);
  EXPECT_EQ(attach->isolation, 1U);
  EXPECT_EQ(attach->share_group, 1000U);
  EXPECT_EQ(attach->weight, 3U);
  EXPECT_EQ(attach->client_class, SchedulingClass::kLow);
  EXPECT_TRUE(attach->is_trusted);
  EXPECT_EQ(attach->hello.name, "serve");
}

TEST(ChannelMessages, MessagesWithoutFieldsHaveNoPayload) {
  EXPECT_TRUE(Decode<Drain>(Encode(Drain{})).ok());
  EXPECT_TRUE(Decode<Done>(Encode(Done{})).ok());
  EXPECT_TRUE(Decode<Resume>(Encode(Resume{})).ok());
  EXPECT_FALSE(Decode<Drain>(Bytes(1)).ok());
  EXPECT_FALSE(Decode<Resume>(Bytes(1)).ok());
  EXPECT_FALSE(Decode<Done>(Bytes(1)).ok());
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
