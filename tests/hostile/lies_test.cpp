// SPDX-License-Identifier: Apache-2.0
// A client that puts invalid values into every byte that it can write. It may end its own session,
// but must not affect the worker or a neighbour's results. The cases are checked against the field
// tables of tests/support/wire_fields.h, so that a field without a case fails.

#include <unistd.h>

#include <cstring>
#include <map>
#include <ostream>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/hostile/hostile_case.h"
#include "tests/support/wire_fields.h"

namespace gpushared::testing {
namespace {

// The correct reaction to a field with all bits set.
enum class Verdict {
  kEnds,      // No honest client sends the value, so the session ends with a message.
  kRejected,  // The session ends, or the command fails with an error of its stream.
  kHarmless,  // The value is valid, or is never read.
};
std::ostream& operator<<(std::ostream& out, Verdict verdict) {
  return out << (verdict == Verdict::kEnds       ? "the session ends"
                 : verdict == Verdict::kRejected ? "rejected"
                                                 : "harmless");
}

using Cases = std::map<std::string_view, Verdict>;

const Cases kHeaderCases = {
    {"tag", Verdict::kHarmless},  // The ring skips a record with a wrong tag.
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
                                       {"staging_buffer", Verdict::kEnds},
                                       {"staging_offset", Verdict::kEnds},
                                       {"cluster", Verdict::kEnds},
                                       {"reserved", Verdict::kEnds}});
const Cases kCopyCases = WithHeader({{"staging_buffer", Verdict::kEnds},
                                     {"device_address", Verdict::kRejected},
                                     {"device_pitch_bytes", Verdict::kEnds},
                                     {"staging_offset", Verdict::kRejected},
                                     {"staging_pitch_bytes", Verdict::kEnds},
                                     {"width_bytes", Verdict::kRejected},
                                     {"height", Verdict::kRejected},
                                     {"reserved", Verdict::kEnds}});
const Cases kCopyOnDeviceCases = WithHeader({{"height", Verdict::kRejected},
                                             {"destination", Verdict::kRejected},
                                             {"destination_pitch_bytes", Verdict::kEnds},
                                             {"source", Verdict::kRejected},
                                             {"source_pitch_bytes", Verdict::kEnds},
                                             {"width_bytes", Verdict::kRejected}});
const Cases kFillCases = WithHeader({{"height", Verdict::kRejected},
                                     {"destination", Verdict::kRejected},
                                     {"pitch_bytes", Verdict::kEnds},
                                     {"width_bytes", Verdict::kRejected},
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

// An invalid value for a field of a control message, put into each of its elements.
struct Lie {
  std::uint64_t value = 0;
  Verdict verdict = Verdict::kEnds;
};
using Lies = std::map<std::string_view, std::vector<Lie>>;

constexpr std::uint64_t kAllBits = ~std::uint64_t{0};
constexpr Lie kNotZero[] = {{1}, {kAllBits}};

const Lies kMakeImageLies = {{"bytes",
                              {{0},
                               {ipc::kModuleImageBytesMax, Verdict::kRejected},
                               {ipc::kModuleImageBytesMax + 1},
                               {kAllBits}}}};
Lies LoadModuleLies(std::uint64_t image_bytes) {
  return {
      {"module", {{kModule, Verdict::kRejected}, {ipc::kModulesMax}, {kAllBits}}},
      {"reserved", {kNotZero[0], kNotZero[1]}},
      {"bytes",
       {{0}, {image_bytes - 1}, {image_bytes + 1}, {ipc::kModuleImageBytesMax + 1}, {kAllBits}}}};
}
const Lies kUnloadModuleLies = {
    {"module", {{kModule + 1, Verdict::kRejected}, {ipc::kModulesMax}, {kAllBits}}},
    {"reserved", {kNotZero[0], kNotZero[1]}}};
const Lies kResizeMemoryLies = {
    {"bytes",
     {{ipc::kResizeBytesMax, Verdict::kRejected}, {ipc::kResizeBytesMax + 1}, {kAllBits}}}};
// For a request that creates a chunk.
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
const Lies kAddStagingBufferLies = {
    {"bytes",
     {{0},
      {ipc::kStagingBytesStep - 1},
      {ipc::kStagingBytesStep + 1},
      {std::uint64_t{ipc::kStagingBufferBytesMax} + ipc::kStagingBytesStep},
      {kAllBits}}}};
const Lies kDescribeErrorLies = {{"stream", {{ipc::kStreamsMax}, {kAllBits}}},
                                 {"reserved", {kNotZero[0], kNotZero[1]}}};
// Invalid values in the frame around a DescribeError.
const Lies kFrameHeaderLies = {{"magic", {{0}, {ipc::kChannelMagic}, {kAllBits}}},
                               {"type", {{0}, {1}, {17}, {31}, {kAllBits}}},
                               {"reserved", {kNotZero[0], kNotZero[1]}},
                               {"request", {{kAllBits, Verdict::kHarmless}}},
                               {"payload_bytes", {{0}, {7}, {9}, {kAllBits}}}};

// A lie in the first message of a connection is rejected, because there is no session yet that
// could end.
constexpr Lie Rejected(std::uint64_t value) { return {value, Verdict::kRejected}; }
// Texts in which every byte has this value: invalid UTF-8, control characters, or no terminator.
const std::vector<Lie> kTextLies = {Rejected(0xff), Rejected(7), Rejected('a')};
const std::vector<Lie> kVersionLies = {Rejected(0), Rejected(ipc::kProtocolVersion - 1),
                                       Rejected(ipc::kProtocolVersion + 1), Rejected(kAllBits)};
const Lies kHelloLies = {
    {"version", kVersionLies},
    {"client_class", {Rejected(3), Rejected(0xfe)}},
    {"takes_printed", {Rejected(2), Rejected(kAllBits)}},
    {"gated", {Rejected(2), Rejected(kAllBits)}},
    {"reserved", {Rejected(1)}},
    {"weight", {Rejected(kWeightMax + 1), Rejected(kAllBits)}},
    {"max_share", {Rejected(kSharePerMilleMax + 1), Rejected(kAllBits)}},
    {"latency_target_ns", {Rejected(ipc::kLatencyTargetNsMax + 1), Rejected(kAllBits)}},
    {"memory_bytes", {Rejected(1), Rejected(kAllBits)}},
    {"name", kTextLies},
    {"device", kTextLies}};
const Lies kAdminLies = {  // For a verb without an argument, so no other field may be set.
    {"version", kVersionLies},
    {"verb", {Rejected(0), Rejected(ipc::kAdminVerbMax + 1), Rejected(kAllBits)}},
    {"client_class", {Rejected(0), Rejected(3)}},
    {"max_share", {Rejected(1)}},
    {"weight", {Rejected(1)}},
    {"text_bytes", {Rejected(1), Rejected(kAllBits)}},
    {"client", {Rejected(1)}},
    {"request", {Rejected(1)}}};
const Lies kWhyLies = {{"version", kVersionLies},
                       {"reserved", {Rejected(1)}},
                       {"session", {Rejected(0), Rejected(kAllBits)}}};

const Lies kListDevicesLies = {{"version", kVersionLies}, {"reserved", {Rejected(1)}}};
class Lying : public Hostile {
 protected:
  // Writes a record unmodified, including its tag and continuations.
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

  // Tries every element of every field with all bits set and with other extremes, in an otherwise
  // valid record. Opens a session for each lie.
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
    for (const ipc::Field& field : GetFields<Record>()) {
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
      // Other extremes may be valid values, so for them only the worker and the neighbour are
      // checked.
    }
  }

  // Reads the server's answer to the frame that was just sent.
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
      case ipc::MessageType::kRejected:
        EXPECT_NE(said.message(), "");
        return Verdict::kRejected;
      default:
        return Verdict::kHarmless;
    }
  }

  // Sends bytes on the socket of a running session and returns the server's reaction.
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
    // A rejection leaves the session unchanged.
    if (verdict == Verdict::kRejected) {
      EXPECT_EQ(StreamErrorNow(client), StatusCode::kOk);
    }
    return verdict;
  }

  // Sends bytes as the first frame of a connection and returns the server's reaction.
  static Verdict TryFirst(ipc::MessageType type, std::span<const std::byte> payload) {
    Result<RawClient> client = RawClient::Connect(server_->socket());
    EXPECT_TRUE(client.ok());
    EXPECT_TRUE(ipc::SendFrame(client->socket(), static_cast<std::uint16_t>(type), 9, payload, {},
                               std::chrono::steady_clock::now() + 5s)
                    .ok());
    return Answer(*client);
  }

  // Sends a valid message, then one with a lie in one field at a time.
  template <typename Message, typename Try>
  static void LieInEveryField(const std::vector<std::byte>& right, const Lies& lies, Try&& tries,
                              Verdict of_right = Verdict::kHarmless) {
    const ipc::Field& last = GetFields<Message>().back();
    ASSERT_EQ(right.size(), last.offset + last.bytes);
    EXPECT_EQ(tries(right), of_right) << "without a lie";
    for (const ipc::Field& field : GetFields<Message>()) {
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

  static inline std::set<std::uint16_t> lied_in_;  // Types of the control messages with a case.
};

TEST_F(Lying, LaunchRecords) {
  LieInEveryField<ipc::LaunchRecord>(kLaunchCases,
                                     [](const RawClient& client, std::vector<std::byte>& tail) {
                                       tail = ParametersAt(client.base(), 12);
                                       return GetLaunch(0, kModule, step_kernel_, {}, tail.size());
                                     });
}
TEST_F(Lying, CopyRecords) {
  for (const ipc::Op op : {ipc::Op::kCopyToDevice, ipc::Op::kCopyToHost}) {
    LieInEveryField<ipc::CopyRecord>(kCopyCases, [op](const RawClient& client, auto&) {
      return GetCopy(op, {.address = client.base(), .bytes = 4096});
    });
  }
}
TEST_F(Lying, CopyOnDeviceRecords) {
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
TEST_F(Lying, FillRecords) {
  LieInEveryField<ipc::FillRecord>(kFillCases, [](const RawClient& client, auto&) {
    return GetFill(0, client.base(), 4096, 0);
  });
}
TEST_F(Lying, WaitForRecords) {
  LieInEveryField<ipc::WaitForRecord>(kWaitForCases, [](RawClient& client, auto&) {
    return WaitForOf(0, 0, client.Mark(0));  // A wait can only name an earlier command.
  });
}
TEST_F(Lying, RequestRecords) {
  LieInEveryField<ipc::RequestRecord>(kRequestCases, [](const auto&, auto&) {
    return GetRequest(ipc::Op::kBeginRequest, 0, 1000);
  });
}
TEST_F(Lying, BufferRecords) {
  LieInEveryField<ipc::BufferRecord>(kBufferCases, [](const RawClient& client, auto&) {
    return GetBuffer(0, client.base(), 4096);
  });
  LieInEveryField<ipc::BufferRecord>(kBufferCases, [](RawClient& client, auto&) {
    client.NameBuffer(client.base(), 4096);
    return GetBuffer(0, client.base(), 0);
  });
}
TEST_F(Lying, GraphRecords) {
  LieInEveryField<ipc::GraphRecord>(
      kGraphCases, [](const auto&, auto&) { return GetGraph(ipc::Op::kMakeGraph, 0, 1); });
  LieInEveryField<ipc::GraphRecord>(
      kGraphCases, [](RawClient& client, std::vector<std::byte>& tail) {
        client.MakeGraph(1);
        return GetNode({.graph = 1}, GetLaunch(0, kModule, step_kernel_, {}, 12),
                       ParametersAt(client.base(), 12), tail);
      });
}
TEST_F(Lying, PlainRecords) {
  LieInEveryField<ipc::PlainRecord>(kPlainCases,
                                    [](const auto&, auto&) { return GetPlain(ipc::Op::kMark, 0); });
}

TEST_F(Lying, FieldsOfFirstMessages) {
  LieFirst(ipc::Hello{.name = "hostile", .device = {}}, kHelloLies);
  LieFirst(ipc::Admin{.verb = ipc::AdminVerb::kDevices}, kAdminLies);
  RawClient ended = Join(false);
  ASSERT_TRUE(ended.Send(ipc::DescribeError{ipc::kStreamsMax}).ok());
  ASSERT_NE(Ending(ended, 20s), "");
  // The answer to a valid kWhy describes how the session ended.
  LieFirst(ipc::Why{ended.welcome().session}, kWhyLies, Verdict::kEnds);
  LieFirst(ipc::ListDevices{}, kListDevicesLies);
  EveryMessageWasLiedIn(ipc::FirstFrameRules);
}

TEST_F(Lying, ControlFieldsOfARunningSession) {
  LieInSession(ipc::MakeImage{4096}, kMakeImageLies);
  LieInSession(ipc::LoadModule{.module = kModule + 1, .bytes = image_.size()},
               LoadModuleLies(image_.size()));
  LieInSession(ipc::UnloadModule{kModule}, kUnloadModuleLies);
  LieInSession(ipc::ResizeMemory{2 * kMemoryBytes}, kResizeMemoryLies);
  LieInSession(ipc::ChangeChunk{.action = ipc::ChunkAction::kMake, .bytes = ipc::kChunkBytesStep},
               kChangeChunkLies);
  LieInSession(ipc::SetKernelMemory{}, kSetKernelMemoryLies);
  LieInSession(ipc::AddStagingBuffer{ipc::kStagingBytesStep}, kAddStagingBufferLies);
  LieInSession(ipc::DescribeError{0}, kDescribeErrorLies);
  // The message has no field. It is rejected because this session's hello did not request printed
  // text.
  EXPECT_EQ(TryInSession(ipc::MessageType::kTakePrinted, {}), Verdict::kRejected);
  EXPECT_EQ(TryInSession(ipc::MessageType::kTakePrinted, std::array<std::byte, 1>{}),
            Verdict::kEnds);
  lied_in_.insert(static_cast<std::uint16_t>(ipc::MessageType::kTakePrinted));
  EveryMessageWasLiedIn(ipc::ClientFrameRules);
}

TEST_F(Lying, FrameHeadersOfARunningSession) {
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

}  // namespace
}  // namespace gpushared::testing
