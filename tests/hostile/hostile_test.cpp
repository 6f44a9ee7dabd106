// SPDX-License-Identifier: Apache-2.0
// A client that lies in every byte it can write. It may end its own session; the worker,
// and a neighbour's results, must not notice. The field tables of tests/support/wire_fields.h drive
// the lies: a field without a case here fails.

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <ostream>
#include <random>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gpushared/client.h"

#include "tests/support/raw_client.h"
#include "tests/support/read_file.h"
#include "tests/support/server_process.h"
#include "tests/support/wire_fields.h"

namespace gpushared::testing {
namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t kModule = 0;
constexpr std::uint64_t kMemoryBytes = 4u << 20;

// The right answer to a field whose bits are all set.
enum class Verdict {
  kEnds,      // No honest client sends it: the session ends, with a sentence.
  kRefused,   // The session ends, or the command is an error of its stream.
  kHarmless,  // Nothing is wrong with it, or nobody looks at it.
};
std::ostream& operator<<(std::ostream& out, Verdict verdict) {
  return out << (verdict == Verdict::kEnds      ? "the session ends"
                 : verdict == Verdict::kRefused ? "refused"
                                                : "harmless");
}

using Cases = std::map<std::string_view, Verdict>;

const Cases kHeaderCases = {
    {"tag", Verdict::kHarmless},  // The record is never seen.
    {"op", Verdict::kEnds},       {"flags", Verdict::kEnds}, {"continuations", Verdict::kEnds},
    {"sequence", Verdict::kEnds}, {"stream", Verdict::kEnds}};

Cases WithHeader(Cases cases) {
  cases.insert(kHeaderCases.begin(), kHeaderCases.end());
  return cases;
}

const Cases kLaunchCases = WithHeader({{"module", Verdict::kEnds},
                                       {"kernel", Verdict::kEnds},
                                       {"grid", Verdict::kEnds},
                                       {"block", Verdict::kEnds},
                                       {"parameter_bytes", Verdict::kEnds},
                                       {"dynamic_shared_bytes", Verdict::kEnds},
                                       {"arena", Verdict::kEnds},
                                       {"arena_offset", Verdict::kEnds},
                                       {"cluster", Verdict::kEnds},
                                       {"reserved", Verdict::kEnds}});
const Cases kCopyCases = WithHeader({{"arena", Verdict::kEnds},
                                     {"device_address", Verdict::kRefused},
                                     {"device_pitch_bytes", Verdict::kEnds},
                                     {"arena_offset", Verdict::kRefused},
                                     {"arena_pitch_bytes", Verdict::kEnds},
                                     {"width_bytes", Verdict::kRefused},
                                     {"height", Verdict::kRefused},
                                     {"reserved", Verdict::kEnds}});
const Cases kCopyOnDeviceCases = WithHeader({{"height", Verdict::kRefused},
                                             {"destination", Verdict::kRefused},
                                             {"destination_pitch_bytes", Verdict::kEnds},
                                             {"source", Verdict::kRefused},
                                             {"source_pitch_bytes", Verdict::kEnds},
                                             {"width_bytes", Verdict::kRefused}});
const Cases kFillCases = WithHeader({{"height", Verdict::kRefused},
                                     {"destination", Verdict::kRefused},
                                     {"pitch_bytes", Verdict::kEnds},
                                     {"width_bytes", Verdict::kRefused},
                                     {"value", Verdict::kHarmless},
                                     {"element_bytes", Verdict::kEnds},
                                     {"reserved", Verdict::kEnds}});
const Cases kWaitForCases = WithHeader({{"wait_stream", Verdict::kEnds},
                                        {"wait_sequence", Verdict::kEnds},
                                        {"reserved", Verdict::kEnds}});
const Cases kRequestCases = WithHeader(
    {{"reserved0", Verdict::kEnds}, {"time_ns", Verdict::kEnds}, {"reserved", Verdict::kEnds}});
const Cases kPlainCases = WithHeader({{"reserved0", Verdict::kEnds}, {"reserved", Verdict::kEnds}});

const Cases kBufferCases = WithHeader({{"reserved0", Verdict::kEnds},
                                       {"address", Verdict::kEnds},
                                       {"bytes", Verdict::kEnds},
                                       {"reserved", Verdict::kEnds}});

const Cases kGraphCases = WithHeader({{"graph", Verdict::kEnds},
                                      {"node", Verdict::kEnds},
                                      {"content_bytes", Verdict::kEnds},
                                      {"reserved", Verdict::kEnds}});

// A value that a field of a control message does not have, put into each of its elements.
struct Lie {
  std::uint64_t value = 0;
  Verdict verdict = Verdict::kEnds;
};
using Lies = std::map<std::string_view, std::vector<Lie>>;

constexpr std::uint64_t kAllBits = ~std::uint64_t{0};
constexpr Lie kNotZero[] = {{1}, {kAllBits}};

const Lies kMakeImageLies = {{"bytes",
                              {{0},
                               {ipc::kModuleImageBytesMax, Verdict::kRefused},
                               {ipc::kModuleImageBytesMax + 1},
                               {kAllBits}}}};
Lies LoadModuleLies(std::uint64_t image_bytes) {
  return {
      {"module", {{kModule, Verdict::kRefused}, {ipc::kModulesMax}, {kAllBits}}},
      {"reserved", {kNotZero[0], kNotZero[1]}},
      {"bytes",
       {{0}, {image_bytes - 1}, {image_bytes + 1}, {ipc::kModuleImageBytesMax + 1}, {kAllBits}}}};
}
const Lies kUnloadModuleLies = {
    {"module", {{kModule + 1, Verdict::kRefused}, {ipc::kModulesMax}, {kAllBits}}},
    {"reserved", {kNotZero[0], kNotZero[1]}}};
const Lies kResizeMemoryLies = {
    {"bytes", {{ipc::kResizeBytesMax, Verdict::kRefused}, {ipc::kResizeBytesMax + 1}, {kAllBits}}}};
// The request makes a chunk.
const Lies kChangeChunkLies = {{"action", {{0}, {2}, {3}, {4}, {5}, {kAllBits}}},
                               {"chunk", {{ipc::kChunksMax}, {kAllBits}}},
                               {"bytes",
                                {{0},
                                 {ipc::kChunkBytesStep + 1},
                                 {ipc::kChunkBytesMax, Verdict::kHarmless},
                                 {ipc::kChunkBytesMax + ipc::kChunkBytesStep},
                                 {kAllBits}}},
                               {"address", {{ipc::kChunkBytesStep}, {kAllBits}}}};
const Lies kSetKernelMemoryLies = {
    {"stack_bytes", {{ipc::kStackBytesMax + 1}, {kAllBits}}},
    {"printed_bytes", {{ipc::kPrintedBytesMax + 1}, {kAllBits}}},
    {"heap_bytes", {{ipc::kResizeBytesMax + 1}, {kAllBits}, {1 << 20, Verdict::kHarmless}}}};
const Lies kAddArenaLies = {{"bytes",
                             {{0},
                              {ipc::kArenaBytesStep - 1},
                              {ipc::kArenaBytesStep + 1},
                              {std::uint64_t{ipc::kArenaBytesMax} + ipc::kArenaBytesStep},
                              {kAllBits}}}};
const Lies kDescribeErrorLies = {{"stream", {{ipc::kStreamsMax}, {kAllBits}}},
                                 {"reserved", {kNotZero[0], kNotZero[1]}}};
// Lies in the frame around a DescribeError.
const Lies kFrameHeaderLies = {{"magic", {{0}, {ipc::kChannelMagic}, {kAllBits}}},
                               {"type", {{0}, {1}, {17}, {31}, {kAllBits}}},
                               {"reserved", {kNotZero[0], kNotZero[1]}},
                               {"request", {{kAllBits, Verdict::kHarmless}}},
                               {"payload_bytes", {{0}, {7}, {9}, {kAllBits}}}};

// First messages end no session: all that is wrong with them is refused.
constexpr Lie Refused(std::uint64_t value) { return {value, Verdict::kRefused}; }
// Texts of these bytes alone: not UTF-8, a control character, without an end.
const std::vector<Lie> kTextLies = {Refused(0xff), Refused(7), Refused('a')};
const std::vector<Lie> kVersionLies = {Refused(0), Refused(ipc::kProtocolVersion - 1),
                                       Refused(ipc::kProtocolVersion + 1), Refused(kAllBits)};
const Lies kHelloLies = {
    {"version", kVersionLies},
    {"client_class", {Refused(3), Refused(0xfe)}},
    {"takes_printed", {Refused(2), Refused(kAllBits)}},
    {"reserved", {Refused(1)}},
    {"weight", {Refused(kWeightMax + 1), Refused(kAllBits)}},
    {"max_share", {Refused(kSharePerMilleMax + 1), Refused(kAllBits)}},
    {"latency_promise_ns", {Refused(ipc::kLatencyPromiseNsMax + 1), Refused(kAllBits)}},
    {"memory_bytes", {Refused(1), Refused(kAllBits)}},
    {"name", kTextLies},
    {"device", kTextLies}};
const Lies kAdminLies = {  // The verb takes nothing.
    {"version", kVersionLies},
    {"verb", {Refused(0), Refused(ipc::kAdminVerbMax + 1), Refused(kAllBits)}},
    {"client_class", {Refused(0), Refused(3)}},
    {"max_share", {Refused(1)}},
    {"weight", {Refused(1)}},
    {"text_bytes", {Refused(1), Refused(kAllBits)}},
    {"client", {Refused(1)}},
    {"request", {Refused(1)}}};
const Lies kWhyLies = {{"version", kVersionLies},
                       {"reserved", {Refused(1)}},
                       {"session", {Refused(0), Refused(kAllBits)}}};

const Lies kListDevicesLies = {{"version", kVersionLies}, {"reserved", {Refused(1)}}};

class Hostile : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    server_ = std::make_unique<ServerProcess>(std::vector<std::string>{"--log-level", "error"});
    image_ = ReadFile(GPUSHARED_SYSTEM_KERNELS);
    neighbour_ = std::make_unique<Client>(
        std::move(Client::Connect({.name = "neighbour", .socket = server_->socket()})).value());
    worker_ = server_->workers().at(0);  // A server accepts before its worker has started.
    buffer_ = std::make_unique<DeviceBuffer>(std::move(neighbour_->AllocateDevice(4096)).value());
  }
  static void TearDownTestSuite() {
    buffer_.reset();
    neighbour_.reset();
    server_.reset();
  }

  void TearDown() override {
    EXPECT_EQ(server_->workers(), std::vector<pid_t>{worker_}) << "the worker ended:\n"
                                                               << server_->Log();
    NeighbourGoesOn();
  }

  static void NeighbourGoesOn() {
    unsigned value = 0;
    const Stream stream = neighbour_->default_stream();
    EXPECT_TRUE(stream.Fill(*buffer_, FillElement::U32(++round_), 16).ok());
    EXPECT_TRUE(stream.CopyToHost(&value, *buffer_, sizeof value).ok());
    EXPECT_EQ(value, round_) << "the neighbour's result";
  }

  static RawClient Join(bool with_module = true) {
    const auto must = [](const Status& status) { EXPECT_TRUE(status.ok()) << status.ToString(); };
    Result<RawClient> client = RawClient::Connect(server_->socket());
    must(client.status());
    ipc::Hello hello;
    hello.name = "hostile";
    must(client->Join(hello));
    if (with_module) {
      const Result<ipc::ModuleLoaded> module = client->LoadModule(kModule, image_);
      must(module.status());
      step_kernel_ = KernelNumber(*module, "step");
    }
    must(client->Resize(kMemoryBytes).status());
    must(client->AddArena(ipc::kArenaBytesDefault).status());
    return *std::move(client);
  }

  // The sentence with which the server ended the session; empty when it has not within `limit`.
  static std::string Ending(RawClient& client, std::chrono::milliseconds limit) {
    const Result<ipc::Frame> frame = client.NextFrame(limit);
    if (!frame)
      return frame.status().code() == StatusCode::kTimedOut ? "" : frame.status().ToString();
    if (frame->type != static_cast<std::uint16_t>(ipc::MessageType::kEnded)) return "";
    const Result<ipc::Ended> ended = ipc::Decode<ipc::Ended>(frame->payload);
    return ended.ok() ? ended->status.ToString() : ended.status().ToString();
  }

  // Writes a record as its bytes are, tag and continuations included.
  template <typename Record>
  static void PublishBytes(RawClient& client, Record record, const std::vector<std::byte>& tail) {
    ipc::Granule* granules = client.commands().granules;
    const std::uint64_t position = client.ring_position();
    for (std::size_t i = 0; i * ipc::kContinuationDataBytes < tail.size(); ++i) {
      ipc::Granule& granule = granules[position + 1 + i];
      std::memcpy(
          granule.data, tail.data() + i * ipc::kContinuationDataBytes,
          std::min(tail.size() - i * ipc::kContinuationDataBytes, ipc::kContinuationDataBytes));
      granule.tag.store(ipc::RingTag(position + 1 + i, true));
    }
    std::memcpy(granules[position].data, reinterpret_cast<const std::byte*>(&record) + 4,
                ipc::kContinuationDataBytes);
    granules[position].tag.store(record.header.tag, std::memory_order_release);
    client.Ring();
  }

  // One session per lie: every element of every field, with all bits set and with other
  // extremes, on top of a record that is right.
  template <typename Record, typename Make>
  static void LieInEveryField(const Cases& cases, Make make) {
    {
      RawClient client = Join();
      std::vector<std::byte> tail;
      const Record record = make(client, tail);
      client.Publish(record, tail);
      client.Ring();
      EXPECT_TRUE(client.AwaitFinished(0, client.published(0))) << "without a lie";
      EXPECT_EQ(StreamError(client), StatusCode::kOk) << "without a lie";
    }
    for (const ipc::Field& field : FieldsOf<Record>()) {
      const auto found = cases.find(field.name);
      ASSERT_NE(found, cases.end())
          << "no case for field '" << field.name << "': what must come of it?";
      for (std::size_t at = 0; at < field.bytes; at += field.element_bytes) {
        for (const int filler : {0xff, 0x80, 0x7f}) {
          SCOPED_TRACE(std::string(field.name) + "+" + std::to_string(at) + " filled with " +
                       std::to_string(filler));
          RawClient client = Join();
          std::vector<std::byte> tail;
          Record record = make(client, tail);
          record.header.sequence = client.published(0) + 1;
          record.header.tag = ipc::RingTag(client.ring_position(), false);
          record.header.continuations = static_cast<std::uint16_t>((tail.size() + 59) / 60);
          std::memset(reinterpret_cast<std::byte*>(&record) + field.offset + at, filler,
                      field.element_bytes);
          PublishBytes(client, record, tail);
          Judge(client, found->second, filler == 0xff);
        }
      }
    }
  }

  static void Judge(RawClient& client, Verdict verdict, bool all_bits) {
    if (verdict == Verdict::kHarmless) {
      EXPECT_EQ(Ending(client, 5ms), "");
    } else if (verdict == Verdict::kEnds && all_bits) {
      const std::string sentence = Ending(client, 20s);
      EXPECT_NE(sentence.find("ProtocolViolation"), std::string::npos)
          << "the session must end with a reason: " << sentence;
    } else if (all_bits) {
      EXPECT_TRUE(Ending(client, 10ms) != "" || StreamError(client) != StatusCode::kOk);
    }  // Other extremes may be right values: only the worker and the neighbour are judged.
  }

  // Reads the server's answer to a frame that was just sent.
  static Verdict Answer(RawClient& client) {
    const Result<ipc::Frame> frame = client.NextFrame();
    if (!frame.ok()) {
      ADD_FAILURE() << "the server said nothing: " << frame.status().ToString();
      return Verdict::kHarmless;
    }
    const Status said = ipc::UnexpectedReply(*frame, ipc::MessageType::kEnded);
    switch (static_cast<ipc::MessageType>(frame->type)) {
      case ipc::MessageType::kEnded:
        EXPECT_EQ(said.code(), StatusCode::kProtocolViolation) << said.ToString();
        EXPECT_NE(said.message(), "");
        return Verdict::kEnds;
      case ipc::MessageType::kRefused:
        EXPECT_NE(said.message(), "");
        return Verdict::kRefused;
      default:
        return Verdict::kHarmless;
    }
  }

  // Bytes on the socket of a session that runs.
  static Verdict TryInSession(ipc::MessageType type, std::span<const std::byte> payload) {
    RawClient client = Join();
    if (type == ipc::MessageType::kLoadModule) {
      EXPECT_TRUE(client.MakeImage(image_).ok());
    }
    EXPECT_TRUE(ipc::SendFrame(client.socket(), static_cast<std::uint16_t>(type), 9, payload, {},
                               std::chrono::steady_clock::now() + 5s)
                    .ok());
    return AnswerToSession(client);
  }
  static Verdict AnswerToSession(RawClient& client) {
    const Verdict verdict = Answer(client);
    NeighbourGoesOn();
    // A refusal leaves the session as it was.
    if (verdict == Verdict::kRefused) {
      EXPECT_EQ(StreamErrorNow(client), StatusCode::kOk);
    }
    return verdict;
  }

  // Bytes as the first frame of a connection.
  static Verdict TryFirst(ipc::MessageType type, std::span<const std::byte> payload) {
    Result<RawClient> client = RawClient::Connect(server_->socket());
    EXPECT_TRUE(client.ok());
    EXPECT_TRUE(ipc::SendFrame(client->socket(), static_cast<std::uint16_t>(type), 9, payload, {},
                               std::chrono::steady_clock::now() + 5s)
                    .ok());
    return Answer(*client);
  }

  // A message as it should be, then with a lie in one field at a time.
  template <typename Message, typename Try>
  static void LieInEveryField(const std::vector<std::byte>& right, const Lies& lies, Try&& tries,
                              Verdict of_right = Verdict::kHarmless) {
    const ipc::Field& last = FieldsOf<Message>().back();
    ASSERT_EQ(right.size(), last.offset + last.bytes);
    EXPECT_EQ(tries(right), of_right) << "without a lie";
    for (const ipc::Field& field : FieldsOf<Message>()) {
      const auto found = lies.find(field.name);
      ASSERT_NE(found, lies.end()) << "no lie for field '" << field.name << "'";
      for (const Lie& lie : found->second) {
        SCOPED_TRACE(std::string(field.name) + " is " + std::to_string(lie.value));
        std::vector<std::byte> spoilt = right;
        for (std::size_t at = 0; at < field.bytes; at += field.element_bytes) {
          std::memcpy(spoilt.data() + field.offset + at, &lie.value, field.element_bytes);
        }
        EXPECT_EQ(tries(spoilt), lie.verdict);
      }
    }
  }
  template <typename Message>
  static void LieInSession(const Message& message, const Lies& lies) {
    SCOPED_TRACE(ipc::MessageTypeName(static_cast<std::uint16_t>(Message::kType)));
    std::vector<std::byte> payload = ipc::Encode(message);
    LieInEveryField<Message>(payload, lies,
                             [](const auto& bytes) { return TryInSession(Message::kType, bytes); });
    payload.push_back({});
    EXPECT_EQ(TryInSession(Message::kType, payload), Verdict::kEnds) << "a byte more";
    payload.resize(payload.size() - 2);
    EXPECT_EQ(TryInSession(Message::kType, payload), Verdict::kEnds) << "a byte less";
    lied_in_.insert(static_cast<std::uint16_t>(Message::kType));
  }
  template <typename Message>
  static void LieFirst(const Message& message, const Lies& lies,
                       Verdict of_right = Verdict::kHarmless) {
    SCOPED_TRACE(ipc::MessageTypeName(static_cast<std::uint16_t>(Message::kType)));
    LieInEveryField<Message>(
        ipc::Encode(message), lies,
        [](const auto& bytes) { return TryFirst(Message::kType, bytes); }, of_right);
    lied_in_.insert(static_cast<std::uint16_t>(Message::kType));
  }
  static void EveryMessageWasLiedIn(ipc::FrameRules rules) {
    for (unsigned type = 0; type <= 0xffff; ++type) {
      if (!rules(static_cast<std::uint16_t>(type))) continue;
      EXPECT_TRUE(lied_in_.contains(static_cast<std::uint16_t>(type)))
          << "no lies for " << ipc::MessageTypeName(static_cast<std::uint16_t>(type));
    }
  }

  static StatusCode StreamError(RawClient& client) {
    (void)client.AwaitFinished(0, 1, 20s);
    return StreamErrorNow(client);
  }
  static StatusCode StreamErrorNow(RawClient& client) {
    const Result<ipc::ErrorText> text = client.Ask<ipc::ErrorText>(ipc::DescribeError{0});
    return text.ok() ? text->status.code() : text.status().code();
  }

  static inline std::unique_ptr<ServerProcess> server_;
  static inline std::unique_ptr<Client> neighbour_;
  static inline std::unique_ptr<DeviceBuffer> buffer_;
  static inline std::string image_;
  static inline std::set<std::uint16_t> lied_in_;  // Types of control messages.
  static inline std::uint32_t step_kernel_ = 0;
  static inline pid_t worker_ = -1;
  static inline unsigned round_ = 0;
};

TEST_F(Hostile, LaunchRecords) {
  LieInEveryField<ipc::LaunchRecord>(kLaunchCases,
                                     [](const RawClient& client, std::vector<std::byte>& tail) {
                                       tail = ParametersAt(client.base(), 12);
                                       return LaunchOf(0, kModule, step_kernel_, {}, tail.size());
                                     });
}
TEST_F(Hostile, CopyRecords) {
  for (const ipc::Op op : {ipc::Op::kCopyToDevice, ipc::Op::kCopyToHost}) {
    LieInEveryField<ipc::CopyRecord>(kCopyCases, [op](const RawClient& client, auto&) {
      return CopyOf(op, {.address = client.base(), .bytes = 4096});
    });
  }
}
TEST_F(Hostile, CopyOnDeviceRecords) {
  LieInEveryField<ipc::CopyOnDeviceRecord>(kCopyOnDeviceCases, [](const RawClient& client, auto&) {
    ipc::CopyOnDeviceRecord record;
    record.header.op = static_cast<std::uint8_t>(ipc::Op::kCopyOnDevice);
    record.height = 1;
    record.destination = client.base();
    record.source = client.base() + 4096;
    record.destination_pitch_bytes = record.source_pitch_bytes = record.width_bytes = 4096;
    return record;
  });
}
TEST_F(Hostile, FillRecords) {
  LieInEveryField<ipc::FillRecord>(
      kFillCases, [](const RawClient& client, auto&) { return FillOf(0, client.base(), 4096, 0); });
}
TEST_F(Hostile, WaitForRecords) {
  LieInEveryField<ipc::WaitForRecord>(kWaitForCases, [](RawClient& client, auto&) {
    return WaitForOf(0, 0, client.Mark(0));  // Only what came before can be waited for.
  });
}
TEST_F(Hostile, RequestRecords) {
  LieInEveryField<ipc::RequestRecord>(
      kRequestCases, [](const auto&, auto&) { return RequestOf(ipc::Op::kBeginRequest, 0, 1000); });
}
TEST_F(Hostile, BufferRecords) {
  LieInEveryField<ipc::BufferRecord>(kBufferCases, [](const RawClient& client, auto&) {
    return BufferOf(0, client.base(), 4096);
  });
  LieInEveryField<ipc::BufferRecord>(kBufferCases, [](RawClient& client, auto&) {
    client.NameBuffer(client.base(), 4096);
    return BufferOf(0, client.base(), 0);
  });
}
TEST_F(Hostile, GraphRecords) {
  LieInEveryField<ipc::GraphRecord>(
      kGraphCases, [](const auto&, auto&) { return GraphOf(ipc::Op::kMakeGraph, 0, 1); });
  LieInEveryField<ipc::GraphRecord>(
      kGraphCases, [](RawClient& client, std::vector<std::byte>& tail) {
        client.MakeGraph(1);
        return NodeOf({.graph = 1}, LaunchOf(0, kModule, step_kernel_, {}, 12),
                      ParametersAt(client.base(), 12), tail);
      });
}
// Nodes with any bytes changed, launched as they are: the session ends, or its stream fails, or
// it computes nonsense in its own memory.
TEST_F(Hostile, MutatedNodesHarmTheirClientAlone) {
  std::mt19937_64 random(20261124);
  unsigned ended = 0, lived = 0;
  for (int round = 0; round < 24; ++round) {
    RawClient client = Join();
    client.MakeGraph(1);
    std::vector<std::byte> content;
    for (std::uint32_t node = 0; node < 12; ++node) {
      ipc::GraphRecord record =
          random() % 2 == 0
              ? NodeOf({.graph = 1, .node = node}, LaunchOf(0, kModule, step_kernel_, {}, 12),
                       ParametersAt(client.base(), 12), content)
              : NodeOf({.graph = 1, .node = node}, FillOf(0, client.base(), 4096, 1), {}, content);
      // One in two lists is whole but for the bytes that are the kernel's own.
      const std::size_t first = round % 2 == 0 ? ipc::kGranuleBytes : 16;
      if (random() % 3 == 0 && content.size() > first) {
        content[first + random() % (content.size() - first)] = static_cast<std::byte>(random());
      }
      client.Publish(record, content);
    }
    client.LaunchGraph(1);
    client.LaunchGraph(1);
    if (round % 5 == 0) {
      client.CloseSocket();
      continue;
    }
    std::string sentence;
    bool has_finished = false;
    for (int wait = 0; wait < 50 && !has_finished && sentence.empty(); ++wait) {
      has_finished = client.AwaitFinished(0, client.published(0), 10ms);
      if (!has_finished) sentence = Ending(client, 1ms);
    }
    ended += sentence.find("ProtocolViolation") != std::string::npos ? 1 : 0;
    lived += has_finished ? 1 : 0;
    EXPECT_TRUE(sentence.empty() || sentence.find("ProtocolViolation") != std::string::npos)
        << sentence;
    NeighbourGoesOn();
  }
  EXPECT_GT(ended, 0u);
  EXPECT_GT(lived, 0u);
}
TEST_F(Hostile, MoreRequestsThanMayBeOpen) {
  RawClient client = Join(false);
  for (std::uint32_t stream = 1; stream <= kOpenRequestsMax; ++stream) {
    client.CreateStream(stream);
    EXPECT_TRUE(client.AwaitFinished(stream, client.BeginRequest(stream)));
  }
  EXPECT_EQ(Ending(client, 5ms), "") << "as many as may be";
  client.BeginRequest(0);
  EXPECT_NE(Ending(client, 20s).find("16 requests are open, allowed are 16"), std::string::npos);
}
TEST_F(Hostile, PlainRecords) {
  LieInEveryField<ipc::PlainRecord>(kPlainCases,
                                    [](const auto&, auto&) { return PlainOf(ipc::Op::kMark, 0); });
}

TEST_F(Hostile, FieldsOfFirstMessages) {
  LieFirst(ipc::Hello{.name = "hostile", .device = {}}, kHelloLies);
  LieFirst(ipc::Admin{.verb = ipc::AdminVerb::kDevices}, kAdminLies);
  RawClient ended = Join(false);
  ASSERT_TRUE(ended.Send(ipc::DescribeError{ipc::kStreamsMax}).ok());
  ASSERT_NE(Ending(ended, 20s), "");
  // The answer to this question is how that session ended.
  LieFirst(ipc::Why{ended.welcome().session}, kWhyLies, Verdict::kEnds);
  LieFirst(ipc::ListDevices{}, kListDevicesLies);
  EveryMessageWasLiedIn(ipc::FirstFrameRules);
}

TEST_F(Hostile, ControlFieldsOfARunningSession) {
  LieInSession(ipc::MakeImage{4096}, kMakeImageLies);
  LieInSession(ipc::LoadModule{.module = kModule + 1, .bytes = image_.size()},
               LoadModuleLies(image_.size()));
  LieInSession(ipc::UnloadModule{kModule}, kUnloadModuleLies);
  LieInSession(ipc::ResizeMemory{2 * kMemoryBytes}, kResizeMemoryLies);
  LieInSession(ipc::ChangeChunk{.action = ipc::ChunkAction::kMake, .bytes = ipc::kChunkBytesStep},
               kChangeChunkLies);
  LieInSession(ipc::SetKernelMemory{}, kSetKernelMemoryLies);
  LieInSession(ipc::AddArena{ipc::kArenaBytesStep}, kAddArenaLies);
  LieInSession(ipc::DescribeError{0}, kDescribeErrorLies);
  // It has no field; and this session's hello asked for no printed text.
  EXPECT_EQ(TryInSession(ipc::MessageType::kTakePrinted, {}), Verdict::kRefused);
  EXPECT_EQ(TryInSession(ipc::MessageType::kTakePrinted, std::array<std::byte, 1>{}),
            Verdict::kEnds);
  lied_in_.insert(static_cast<std::uint16_t>(ipc::MessageType::kTakePrinted));
  EveryMessageWasLiedIn(ipc::ClientFrameRules);
}

// Chunks where none may be, and such that are not there.
TEST_F(Hostile, ChunksAreMappedWhereThereIsRoomOnly) {
  RawClient client = Join();
  using Action = ipc::ChunkAction;
  const auto ask = [&](const ipc::ChangeChunk& change) {
    return client.Ask<ipc::Done>(change).status().code();
  };
  const std::uint64_t area = client.welcome().mapping_base;
  const std::uint64_t end = area + client.welcome().mapping_bytes;
  const std::uint64_t two = 2 * ipc::kChunkBytesStep;
  const StatusCode kWrong = StatusCode::kInvalidArgument;
  EXPECT_EQ(ask({.action = Action::kMake, .chunk = 7, .bytes = two}), StatusCode::kOk);
  EXPECT_EQ(ask({.action = Action::kMake, .chunk = 7, .bytes = two}), kWrong) << "twice";
  EXPECT_EQ(ask({.action = Action::kFree, .chunk = 8}), StatusCode::kNotFound);
  EXPECT_EQ(ask({.action = Action::kMap, .chunk = 8, .address = area}), StatusCode::kNotFound);
  EXPECT_EQ(ask({.action = Action::kUnmap, .address = area}), StatusCode::kNotFound);
  for (const std::uint64_t wild :
       {std::uint64_t{0}, client.base(), area - ipc::kChunkBytesStep, end - ipc::kChunkBytesStep,
        end, (std::uint64_t{1} << 63) - ipc::kChunkBytesStep}) {
    EXPECT_EQ(ask({.action = Action::kMap, .chunk = 7, .address = wild}), kWrong) << wild;
  }
  EXPECT_EQ(ask({.action = Action::kMap, .chunk = 7, .address = end - two}), StatusCode::kOk);
  EXPECT_EQ(ask({.action = Action::kMap, .chunk = 7, .address = area}), StatusCode::kOk);
  EXPECT_EQ(ask({.action = Action::kMap, .chunk = 7, .address = area + ipc::kChunkBytesStep}),
            kWrong)
      << "in its own second half";
  EXPECT_EQ(ask({.action = Action::kFree, .chunk = 7}), kWrong) << "it is mapped";
  EXPECT_EQ(ask({.action = Action::kUnmap, .address = area + ipc::kChunkBytesStep}),
            StatusCode::kNotFound);
  // Copies reach what is mapped, and nothing beside it.
  EXPECT_TRUE(client.AwaitFinished(0, client.Fill(0, area + two - 16, 16, 1)));
  EXPECT_EQ(StreamErrorNow(client), StatusCode::kOk);
  EXPECT_EQ(ask({.action = Action::kUnmap, .address = area}), StatusCode::kOk);
  EXPECT_TRUE(client.AwaitFinished(0, client.Fill(0, area + two - 16, 16, 1)));
  EXPECT_EQ(StreamErrorNow(client), kWrong);
  NeighbourGoesOn();
}

// A client library waits for its own work first; this client does not.
TEST_F(Hostile, UnmappingTakesMemoryFromWorkThatHasNotBegun) {
  RawClient client = Join();
  using Action = ipc::ChunkAction;
  const std::uint64_t area = client.welcome().mapping_base;
  for (const ipc::ChangeChunk& change :
       {ipc::ChangeChunk{.action = Action::kMake, .bytes = ipc::kChunkBytesStep},
        ipc::ChangeChunk{.action = Action::kMap, .address = area}}) {
    ASSERT_TRUE(client.Ask<ipc::Done>(change).ok());
  }
  const auto module = client.LoadModule(kModule + 1, image_);
  ASSERT_TRUE(module.ok());
  constexpr std::uint32_t kLaunching = 0, kFilling = 1, kGate = 2;
  for (const std::uint32_t stream : {kFilling, kGate}) client.CreateStream(stream);
  // Both wait for a kernel that takes longer than the server takes to read the request.
  constexpr int kRounds = 100'000'000;
  std::vector<std::byte> parameters = ParametersAt(client.base(), 12);
  std::memcpy(parameters.data() + 8, &kRounds, sizeof kRounds);
  const Sequence gate =
      client.Launch(kGate, kModule + 1, KernelNumber(*module, "work"), {}, parameters);
  client.WaitFor(kLaunching, kGate, gate);
  client.WaitFor(kFilling, kGate, gate);
  const Sequence launch = client.Launch(kLaunching, kModule + 1, KernelNumber(*module, "store_at"),
                                        {}, ParametersAt(area, 16));
  const Sequence fill = client.Fill(kFilling, area, 16, 1);

  ASSERT_TRUE(client.Send(ipc::ChangeChunk{.action = Action::kUnmap, .address = area}).ok());
  EXPECT_TRUE(client.Receive<ipc::Done>().ok());
  EXPECT_TRUE(client.AwaitFinished(kLaunching, launch));
  EXPECT_TRUE(client.AwaitFinished(kFilling, fill));
  const auto error_of = [&](std::uint32_t stream) {
    const auto text = client.Ask<ipc::ErrorText>(ipc::DescribeError{stream});
    return text.ok() ? text->status.code() : text.status().code();
  };
  EXPECT_EQ(error_of(kLaunching), StatusCode::kKernelFault);
  EXPECT_EQ(error_of(kFilling), StatusCode::kInvalidArgument);
  NeighbourGoesOn();
}

TEST_F(Hostile, AClientThatLeavesItsChunksMappedGivesAllOfThemBack) {
  for (int round = 0; round < 3; ++round) {
    RawClient client = Join(false);
    const std::uint64_t area = client.welcome().mapping_base;
    std::uint32_t made = 0;
    for (; made < ipc::kChunksMax; ++made) {
      const auto status =
          client
              .Ask<ipc::Done>(ipc::ChangeChunk{
                  .action = ipc::ChunkAction::kMake, .chunk = made, .bytes = ipc::kChunkBytesStep})
              .status();
      if (status.code() == StatusCode::kOutOfMemory) break;
      ASSERT_TRUE(status.ok()) << status.ToString();
      EXPECT_TRUE(
          client
              .Ask<ipc::Done>(ipc::ChangeChunk{.action = ipc::ChunkAction::kMap,
                                               .chunk = made,
                                               .address = area + made * ipc::kChunkBytesStep})
              .ok());
    }
    EXPECT_GT(made, 8u) << "also in the last round";
  }
  NeighbourGoesOn();
}

TEST_F(Hostile, FrameHeadersOfARunningSession) {
  const std::vector<std::byte> payload = ipc::Encode(ipc::DescribeError{0});
  const ipc::FrameHeader right{.type = static_cast<std::uint16_t>(ipc::MessageType::kDescribeError),
                               .request = 9,
                               .payload_bytes = static_cast<std::uint32_t>(payload.size())};
  std::vector<std::byte> header(sizeof right);
  std::memcpy(header.data(), &right, sizeof right);
  LieInEveryField<ipc::FrameHeader>(
      header, kFrameHeaderLies, [&payload](std::vector<std::byte> frame) {
        frame.insert(frame.end(), payload.begin(), payload.end());
        RawClient client = Join();
        EXPECT_EQ(::write(client.socket(), frame.data(), frame.size()),
                  static_cast<ssize_t>(frame.size()));
        return AnswerToSession(client);
      });
}

TEST_F(Hostile, ScribblingOverTheWholeCommandSegment) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 20; ++round) {
    RawClient client = Join();
    auto* bytes = reinterpret_cast<std::uint64_t*>(&client.commands());
    for (int i = 0; i < 20'000; ++i) {
      reinterpret_cast<std::atomic<std::uint64_t>*>(
          bytes)[random() % (sizeof(ipc::CommandSegment) / 8)]
          .store(random());
      if (i % 1000 == 0) client.Ring();
    }
  }
}

TEST_F(Hostile, RecordsThatChangeWhileTheyAreRead) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the client races with itself, which is the point";
#endif
  RawClient client = Join();
  ipc::Granule* granules = client.commands().granules;
  std::jthread scribbler([granules](const std::stop_token& stop) {
    std::mt19937_64 random(3);
    while (!stop.stop_requested()) {
      auto* words = reinterpret_cast<std::atomic<std::uint32_t>*>(granules[random() % 64].data);
      words[random() % 15].store(static_cast<std::uint32_t>(random()), std::memory_order_relaxed);
    }
  });
  for (int i = 0; i < 2000; ++i) {
    client.Publish(FillOf(0, client.base(), 4096, 0));
    client.Ring();
  }
  std::this_thread::sleep_for(20ms);
}

TEST_F(Hostile, LiesAboutCredit) {
  for (const std::uint64_t lie :
       {~std::uint64_t{0}, std::uint64_t{1} << 63, std::uint64_t{100'000}}) {
    RawClient client = Join();
    client.commands().completions_taken.store(lie);
    client.commands().waiting.store(~0u);
    for (int i = 0; i < 2000; ++i) client.Publish(PlainOf(ipc::Op::kMark, 0));
    client.Ring();
    std::this_thread::sleep_for(5ms);
  }
}

TEST_F(Hostile, SharedMemoryCannotBeShrunkGrownOrForged) {
  RawClient client = Join();
  for (const int fd : {client.commands_fd(), client.completions_fd(), client.arena_fd(0)}) {
    EXPECT_NE(::ftruncate(fd, 0), 0);
    EXPECT_NE(::ftruncate(fd, 1 << 30), 0);
  }
  EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, client.completions_fd(), 0),
            MAP_FAILED);
  const char byte = 1;
  EXPECT_LT(::pwrite(client.completions_fd(), &byte, 1, 0), 0);
}

TEST_F(Hostile, HolesInSharedMemory) {
  RawClient client = Join();
  for (int i = 0; i < 50; ++i) {
    client.Publish(CopyOf(ipc::Op::kCopyToDevice, {.address = client.base(), .bytes = 1u << 20}));
    client.Ring();
    (void)::fallocate(client.arena_fd(0), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 1 << 20);
    (void)::fallocate(client.commands_fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                      ipc::kCommandSegmentBytes);
  }
}

// Whoever copies out of it meanwhile waits for milliseconds.
TEST_F(Hostile, WhoKeepsPunchingAnArenaThatIsCopiedIsEndedAndToldWhy) {
  RawClient client = Join(false);
  const std::jthread puncher([arena = client.arena_fd(0)](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      (void)::fallocate(arena, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                        ipc::kArenaBytesDefault);
    }
  });
  std::string ending;
  for (int i = 0; i < 2000 && ending.empty(); ++i) {
    client.Publish(CopyOf(ipc::Op::kCopyToDevice, {.address = client.base(), .bytes = 1u << 20}));
    client.Ring();
    while (client.TakeCompletion()) {
    }
    ending = Ending(client, 10ms);
  }
  EXPECT_THAT(ending, ::testing::HasSubstr("session ended: arena 0 has holes: "));
  EXPECT_THAT(ending, ::testing::HasSubstr(" of " + std::to_string(ipc::kArenaBytesDefault >> 10) +
                                           " KiB are missing"));
}

// A worker that does not run for a while finds its copies as slow, and looks at the arenas.
TEST_F(Hostile, SlowCopiesOfArenasThatAreWholeEndNobody) {
  const Client client =
      std::move(Client::Connect({.name = "honest", .socket = server_->socket()})).value();
  std::jthread pauser([](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      ::kill(worker_, SIGSTOP);
      std::this_thread::sleep_for(4ms);
      ::kill(worker_, SIGCONT);
      std::this_thread::sleep_for(2ms);
    }
  });
  // More than an arena, so that the library adds some.
  constexpr std::size_t kWords = std::size_t{6} << 20;
  const DeviceBuffer buffer = std::move(client.AllocateDevice(kWords * sizeof(int))).value();
  std::vector<int> words(kWords), back(kWords);
  for (int round = 0; round < 4; ++round) {
    std::iota(words.begin(), words.end(), round);
    const Stream stream = client.default_stream();
    Status status = stream.CopyToDevice(buffer.address(), words.data(), kWords * sizeof(int));
    if (status.ok())
      status = stream.CopyToHost(back.data(), buffer.address(), kWords * sizeof(int));
    ASSERT_TRUE(status.ok()) << status.ToString();
    ASSERT_EQ(words, back);
  }
}

// What is parsed is a copy: whatever the client does to its own memory meanwhile.
TEST_F(Hostile, ImagesThatChangeWhileTheyAreRead) {
  RawClient client = Join(false);
  for (std::uint32_t i = 0; i < 20; ++i) {
    const Result<ipc::UniqueFd> memory = client.MakeImage(image_);
    ASSERT_TRUE(memory.ok()) << memory.status().ToString();
    EXPECT_NE(::ftruncate(memory->get(), 0), 0);
    EXPECT_NE(::fcntl(memory->get(), F_ADD_SEALS, F_SEAL_WRITE), 0);
    std::jthread scribbler([&](const std::stop_token& stop) {
      std::mt19937_64 random(i);
      while (!stop.stop_requested()) {
        const std::uint64_t noise = random();
        (void)!::pwrite(memory->get(), &noise, sizeof noise,
                        static_cast<off_t>(random() % image_.size()));
        (void)::fallocate(memory->get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                          static_cast<off_t>(random() % image_.size()), 4096);
      }
    });
    const Status status =
        client.Ask<ipc::ModuleLoaded>(ipc::LoadModule{.module = i, .bytes = image_.size()})
            .status();
    EXPECT_TRUE(status.ok() || !status.message().empty());
  }
}

TEST_F(Hostile, ModulesThatDoNotParse) {
  RawClient client = Join();
  std::mt19937_64 random(11);
  const std::string image = image_;
  for (int i = 0; i < 200; ++i) {
    std::string broken = image;
    for (int bytes = 0; bytes < 8; ++bytes)
      broken[random() % broken.size()] = static_cast<char>(random());
    if (i % 3 == 0) broken.resize(random() % broken.size() + 1);
    const Status status =
        client.LoadModule(static_cast<std::uint32_t>(1 + i % 500), broken).status();
    EXPECT_TRUE(status.ok() || !status.message().empty());
  }
}

TEST_F(Hostile, FloodOfRequestsWithoutReadingAnswers) {
  RawClient client = Join();
  for (int i = 0; i < 200'000; ++i) {
    if (!ipc::SendMessage(client.socket(), 1, ipc::DescribeError{0},
                          std::chrono::steady_clock::now() + 20ms)
             .ok())
      break;
  }
}

TEST_F(Hostile, FloodOfCommandsLeavesTheNeighbourItsTurn) {
  RawClient client = Join();
  std::jthread flood([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      client.Publish(FillOf(0, client.base(), 64, 0));
      client.Ring();
    }
  });
  unsigned value = 0;
  for (unsigned i = 0; i < 50; ++i) {
    ASSERT_TRUE(neighbour_->default_stream().Fill(*buffer_, FillElement::U32(i), 16).ok());
    ASSERT_TRUE(neighbour_->default_stream().CopyToHost(&value, *buffer_, sizeof value).ok());
    ASSERT_EQ(value, i);
  }
}

TEST_F(Hostile, DoorbellAbuse) {
  RawClient client = Join();
  const std::uint64_t most = ~std::uint64_t{0} - 1;
  for (int i = 0; i < 1000; ++i) {
    std::uint64_t drained = 0;
    (void)!::write(client.doorbell(), &most, sizeof most);
    (void)!::read(client.doorbell(), &drained, sizeof drained);
  }
  client.Publish(FillOf(0, client.base(), 64, 0));
  client.Ring();
  EXPECT_TRUE(client.AwaitFinished(0, 1, 20s))
      << "a client that reads its own doorbell harms at most itself";
}

TEST_F(Hostile, HalfFramesAndGarbageOnTheSocket) {
  for (const char* text : {"GET / HTTP/1.1\r\n\r\n", "\x47\x47\x53\x31", ""}) {
    Result<RawClient> client = RawClient::Connect(server_->socket());
    ASSERT_TRUE(client.ok());
    (void)!::write(client->socket(), text, std::strlen(text));
  }
}

}  // namespace
}  // namespace gpushared::testing
