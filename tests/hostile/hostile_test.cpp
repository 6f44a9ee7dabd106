// SPDX-License-Identifier: Apache-2.0
// A client that lies in every byte it can write. It may end its own session; the worker,
// and a neighbour's results, must not notice. The field tables of ipc/wire/fields.h drive
// the lies: a field without a case here fails.

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "gpushared/client.h"

#include "ipc/wire/fields.h"
#include "tests/support/raw_session.h"
#include "tests/support/server_process.h"

namespace gpushared::testing {
namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t kModule = 0;
constexpr std::uint64_t kMemoryBytes = 4u << 20;

// What must come of a field whose bits are all set.
enum class Verdict {
  kEnds,      // No honest client sends it: the session ends, with a sentence.
  kRefused,   // The session ends, or the command is an error of its stream.
  kHarmless,  // Nothing is wrong with it, or nobody looks at it.
};

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
                                       {"arena_offset", Verdict::kEnds}});
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
const Cases kPlainCases = WithHeader({{"reserved0", Verdict::kEnds}, {"reserved", Verdict::kEnds}});

class Hostile : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    server_ = std::make_unique<ServerProcess>(std::vector<std::string>{"--log-level", "error"});
    worker_ = server_->workers().at(0);
    image_ = ReadFile(GPUSHARED_SYSTEM_KERNELS);
    neighbour_ = std::make_unique<Client>(
        std::move(Client::Connect({.name = "neighbour", .socket = server_->socket()})).value());
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
    unsigned value = 0;
    const Stream stream = neighbour_->default_stream();
    EXPECT_TRUE(stream.Fill(*buffer_, FillElement::U32(++round_), 16).ok());
    EXPECT_TRUE(stream.CopyToHost(&value, *buffer_, sizeof value).ok());
    EXPECT_EQ(value, round_) << "the neighbour's result";
  }

  static std::unique_ptr<RawSession> Join(bool with_module = true) {
    auto session = std::make_unique<RawSession>();
    ipc::Hello hello;
    hello.name = "hostile";
    const auto must = [](const Status& status) { ASSERT_TRUE(status.ok()) << status.ToString(); };
    must(session->Connect(server_->socket()));
    must(session->Handshake(hello));
    if (with_module) must(session->LoadModule(kModule, image_));
    must(session->ResizeMemory(kMemoryBytes));
    must(session->AddArena(ipc::kArenaBytesDefault));
    return session;
  }

  // The sentence with which the server ended the session; empty when it has not within `limit`.
  static std::string Ending(RawSession& session, std::chrono::milliseconds limit) {
    const Result<ipc::Frame> frame = session.ReceiveFrame(limit);
    if (!frame)
      return frame.status().code() == StatusCode::kTimedOut ? "" : frame.status().ToString();
    const Result<ipc::Ended> ended = ipc::DecodeReply<ipc::Ended>(*frame);
    return ended.ok() ? ended->status.ToString() : ended.status().ToString();
  }

  // Writes a record as its bytes are, tag and continuations included.
  template <typename Record>
  static void PublishBytes(RawSession& session, Record record, const std::vector<std::byte>& tail) {
    ipc::Granule* granules = session.commands().granules;
    const std::uint64_t position = session.ring().position();
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
    session.Ring();
  }

  // One session per lie: every element of every field, with all bits set and with other
  // extremes, on top of a record that is right.
  template <typename Record, typename Make>
  static void LieInEveryField(const Cases& cases, Make make) {
    for (const ipc::Field& field : ipc::WireFields<Record>::kAll) {
      const auto found = cases.find(field.name);
      ASSERT_NE(found, cases.end())
          << "no case for field '" << field.name << "': what must come of it?";
      for (std::size_t at = 0; at < field.bytes; at += field.element_bytes) {
        for (const int filler : {0xff, 0x80, 0x7f}) {
          SCOPED_TRACE(std::string(field.name) + "+" + std::to_string(at) + " filled with " +
                       std::to_string(filler));
          const auto session = Join();
          std::vector<std::byte> tail;
          Record record = make(*session, tail);
          record.header.sequence = 1;
          record.header.tag = ipc::RingTag(0, false);
          record.header.continuations = static_cast<std::uint16_t>((tail.size() + 59) / 60);
          std::memset(reinterpret_cast<std::byte*>(&record) + field.offset + at, filler,
                      field.element_bytes);
          PublishBytes(*session, record, tail);
          Judge(*session, found->second, filler == 0xff);
        }
      }
    }
  }

  static void Judge(RawSession& session, Verdict verdict, bool all_bits) {
    if (verdict == Verdict::kHarmless) {
      EXPECT_EQ(Ending(session, 5ms), "");
    } else if (verdict == Verdict::kEnds && all_bits) {
      const std::string sentence = Ending(session, 20s);
      EXPECT_NE(sentence.find("ProtocolViolation"), std::string::npos)
          << "the session must end with a reason: " << sentence;
    } else if (all_bits) {
      EXPECT_TRUE(Ending(session, 10ms) != "" || StreamError(session) != StatusCode::kOk);
    }  // Other extremes may be right values: only the worker and the neighbour are judged.
  }

  static StatusCode StreamError(RawSession& session) {
    (void)session.WaitUntil(1, 20s);
    if (!session.Send(ipc::DescribeError{0}).ok()) return StatusCode::kDisconnected;
    const Result<ipc::ErrorText> text = session.Receive<ipc::ErrorText>();
    return text.ok() ? text->status.code() : text.status().code();
  }

  static inline std::unique_ptr<ServerProcess> server_;
  static inline std::unique_ptr<Client> neighbour_;
  static inline std::unique_ptr<DeviceBuffer> buffer_;
  static inline std::vector<std::byte> image_;
  static inline pid_t worker_ = -1;
  static inline unsigned round_ = 0;
};

TEST_F(Hostile, LaunchRecords) {
  LieInEveryField<ipc::LaunchRecord>(kLaunchCases,
                                     [](const RawSession& session, std::vector<std::byte>& tail) {
                                       return session.Launch("step", 12, tail);
                                     });
}
TEST_F(Hostile, CopyRecords) {
  for (const ipc::Op op : {ipc::Op::kCopyToDevice, ipc::Op::kCopyToHost}) {
    LieInEveryField<ipc::CopyRecord>(
        kCopyCases, [op](const RawSession& session, auto&) { return session.Copy(op, 4096); });
  }
}
TEST_F(Hostile, CopyOnDeviceRecords) {
  LieInEveryField<ipc::CopyOnDeviceRecord>(
      kCopyOnDeviceCases,
      [](const RawSession& session, auto&) { return session.CopyOnDevice(4096); });
}
TEST_F(Hostile, FillRecords) {
  LieInEveryField<ipc::FillRecord>(
      kFillCases, [](const RawSession& session, auto&) { return session.Fill(4096); });
}
TEST_F(Hostile, WaitForRecords) {
  LieInEveryField<ipc::WaitForRecord>(
      kWaitForCases, [](const RawSession& session, auto&) { return session.WaitFor(0); });
}
TEST_F(Hostile, PlainRecords) {
  LieInEveryField<ipc::PlainRecord>(kPlainCases, [](const RawSession& session, auto&) {
    return session.Plain(ipc::Op::kMark, 0);
  });
}

TEST_F(Hostile, HelloFields) {
  for (const ipc::Field& field : ipc::WireFields<ipc::HelloWire>::kAll) {
    SCOPED_TRACE(std::string(field.name));
    RawSession session;
    ASSERT_TRUE(session.Connect(server_->socket()).ok());
    std::vector<std::byte> payload = ipc::Encode(ipc::Hello{});
    std::memset(payload.data() + field.offset, 0xff, field.bytes);
    ASSERT_TRUE(ipc::SendFrame(session.socket(),
                               static_cast<std::uint16_t>(ipc::MessageType::kHello), 1, payload, {},
                               std::chrono::steady_clock::now() + 5s)
                    .ok());
    const Result<ipc::Welcome> welcome = session.Receive<ipc::Welcome>();
    if (field.name == "latency_promise_ns") continue;  // Any number is a promise.
    EXPECT_FALSE(welcome.ok()) << "every field of the hello is checked";
    EXPECT_FALSE(welcome.status().message().empty());
  }
}

TEST_F(Hostile, ControlFieldsOfARunningSession) {
  const auto try_all = [&]<typename Wire>(ipc::MessageType type, std::type_identity<Wire>) {
    for (const ipc::Field& field : ipc::WireFields<Wire>::kAll) {
      const auto session = Join(false);
      std::vector<std::byte> payload(sizeof(Wire));
      std::memset(payload.data() + field.offset, 0xff, field.bytes);
      const int fd = session->arena_fd();
      const std::size_t fds = type == ipc::MessageType::kLoadModule ? 1 : 0;
      (void)ipc::SendFrame(session->socket(), static_cast<std::uint16_t>(type), 9, payload,
                           std::span(&fd, fds), std::chrono::steady_clock::now() + 5s);
      EXPECT_NE(Ending(*session, 20s), "") << field.name << ": neither refused nor ended";
    }
  };
  try_all(ipc::MessageType::kLoadModule, std::type_identity<ipc::LoadModuleWire>());
  try_all(ipc::MessageType::kUnloadModule, std::type_identity<ipc::UnloadModuleWire>());
  try_all(ipc::MessageType::kResizeMemory, std::type_identity<ipc::ResizeMemoryWire>());
  try_all(ipc::MessageType::kAddArena, std::type_identity<ipc::AddArenaWire>());
  try_all(ipc::MessageType::kDescribeError, std::type_identity<ipc::DescribeErrorWire>());
}

TEST_F(Hostile, ScribblingOverTheWholeCommandSegment) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 20; ++round) {
    const auto session = Join();
    auto* bytes = reinterpret_cast<std::uint64_t*>(&session->commands());
    for (int i = 0; i < 20'000; ++i) {
      reinterpret_cast<std::atomic<std::uint64_t>*>(
          bytes)[random() % (sizeof(ipc::CommandSegment) / 8)]
          .store(random());
      if (i % 1000 == 0) session->Ring();
    }
  }
}

TEST_F(Hostile, RecordsThatChangeWhileTheyAreRead) {
  const auto session = Join();
  ipc::Granule* granules = session->commands().granules;
  std::jthread scribbler([granules](const std::stop_token& stop) {
    std::mt19937_64 random(3);
    while (!stop.stop_requested()) {
      auto* words = reinterpret_cast<std::atomic<std::uint32_t>*>(granules[random() % 64].data);
      words[random() % 15].store(static_cast<std::uint32_t>(random()), std::memory_order_relaxed);
    }
  });
  for (int i = 0; i < 2000; ++i) {
    session->Publish(session->Fill(4096));
    session->Ring();
  }
  std::this_thread::sleep_for(20ms);
}

TEST_F(Hostile, LiesAboutCredit) {
  for (const std::uint64_t lie :
       {~std::uint64_t{0}, std::uint64_t{1} << 63, std::uint64_t{100'000}}) {
    const auto session = Join();
    session->commands().completions_taken.store(lie);
    session->commands().waiting.store(~0u);
    for (int i = 0; i < 2000; ++i) session->Publish(session->Plain(ipc::Op::kMark, 0));
    session->Ring();
    std::this_thread::sleep_for(5ms);
  }
}

TEST_F(Hostile, SharedMemoryCannotBeShrunkGrownOrForged) {
  const auto session = Join();
  for (const int fd : {session->commands_fd(), session->completions_fd(), session->arena_fd()}) {
    EXPECT_NE(::ftruncate(fd, 0), 0);
    EXPECT_NE(::ftruncate(fd, 1 << 30), 0);
  }
  EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, session->completions_fd(), 0),
            MAP_FAILED);
  const char byte = 1;
  EXPECT_LT(::pwrite(session->completions_fd(), &byte, 1, 0), 0);
}

TEST_F(Hostile, HolesInSharedMemory) {
  const auto session = Join();
  for (int i = 0; i < 50; ++i) {
    session->Publish(session->Copy(ipc::Op::kCopyToDevice, 1u << 20));
    session->Ring();
    (void)::fallocate(session->arena_fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 1 << 20);
    (void)::fallocate(session->commands_fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                      ipc::kCommandSegmentBytes);
  }
}

TEST_F(Hostile, ModulesThatAreNotSealedMemory) {
  const auto session = Join(false);
  const int unsealed = ::memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(::ftruncate(unsealed, 4096), 0);
  const int file = ::open(GPUSHARED_SYSTEM_KERNELS, O_RDONLY | O_CLOEXEC);
  int pipe_ends[2];
  ASSERT_EQ(::pipe(pipe_ends), 0);
  for (const int fd : {unsealed, file, pipe_ends[0], session->doorbell()}) {
    const auto victim = Join(false);
    ASSERT_TRUE(victim->Send(ipc::LoadModule{.module = 1, .bytes = 4096}, {&fd, 1}).ok());
    EXPECT_NE(Ending(*victim, 20s), "");
  }
  for (const int fd : {unsealed, file, pipe_ends[0], pipe_ends[1]}) ::close(fd);
}

TEST_F(Hostile, ModulesThatDoNotParse) {
  const auto session = Join();
  std::mt19937_64 random(11);
  std::vector<std::byte> image = image_;
  for (int i = 0; i < 200; ++i) {
    std::vector<std::byte> broken = image;
    for (int bytes = 0; bytes < 8; ++bytes)
      broken[random() % broken.size()] = static_cast<std::byte>(random());
    if (i % 3 == 0) broken.resize(random() % broken.size() + 1);
    const Status status = session->LoadModule(static_cast<std::uint32_t>(1 + i % 500), broken);
    EXPECT_TRUE(status.ok() || !status.message().empty());
  }
}

TEST_F(Hostile, FloodOfRequestsWithoutReadingAnswers) {
  const auto session = Join();
  for (int i = 0; i < 200'000; ++i) {
    if (!ipc::SendMessage(session->socket(), 1, ipc::DescribeError{0},
                          std::chrono::steady_clock::now() + 20ms)
             .ok())
      break;
  }
}

TEST_F(Hostile, FloodOfCommandsLeavesTheNeighbourItsTurn) {
  const auto session = Join();
  std::jthread flood([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      session->Publish(session->Fill(64));
      session->Ring();
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
  const auto session = Join();
  const std::uint64_t most = ~std::uint64_t{0} - 1;
  for (int i = 0; i < 1000; ++i) {
    std::uint64_t drained = 0;
    (void)!::write(session->doorbell(), &most, sizeof most);
    (void)!::read(session->doorbell(), &drained, sizeof drained);
  }
  session->Publish(session->Fill(64));
  session->Ring();
  EXPECT_TRUE(session->WaitUntil(1, 20s))
      << "a client that reads its own doorbell harms at most itself";
}

TEST_F(Hostile, HalfFramesAndGarbageOnTheSocket) {
  for (const char* text : {"GET / HTTP/1.1\r\n\r\n", "\x47\x47\x53\x31", ""}) {
    RawSession session;
    ASSERT_TRUE(session.Connect(server_->socket()).ok());
    (void)!::write(session.socket(), text, std::strlen(text));
  }
}

}  // namespace
}  // namespace gpushared::testing
