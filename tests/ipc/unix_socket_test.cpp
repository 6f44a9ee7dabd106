// SPDX-License-Identifier: Apache-2.0
#include "ipc/unix_socket.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <set>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/ipc/socket_pair.h"

namespace gpushared::ipc {
namespace {

using ::testing::HasSubstr;
using ::testing::IsSubsetOf;
using Bytes = std::vector<std::byte>;
using Progress = FrameReader::Progress;

// Returns the open descriptors with what they refer to, such as "5 -> anon_inode:[eventfd]", so
// that a failure identifies an unexpected descriptor. Excludes the descriptor used for listing, and
// descriptors that are closed in the meantime, because sanitizer threads open files of their own.
// Descriptors of earlier tests may still be closed, so a later set may be smaller.
std::set<std::string> OpenFds() {
  std::set<std::string> open;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    const std::string target = std::filesystem::read_symlink(entry.path(), error);
    const bool lists = target == "/proc/" + std::to_string(::getpid()) + "/fd";
    if (!lists && !error) open.insert(entry.path().filename().string() + " -> " + target);
  }
  return open;
}

Bytes RawFrame(MessageType type, std::uint32_t request, const Bytes& payload) {
  FrameHeader header;
  header.type = static_cast<std::uint16_t>(type);
  header.request = request;
  header.payload_bytes = static_cast<std::uint32_t>(payload.size());
  Bytes bytes(sizeof header + payload.size());
  std::memcpy(bytes.data(), &header, sizeof header);
  if (!payload.empty()) std::memcpy(bytes.data() + sizeof header, payload.data(), payload.size());
  return bytes;
}

void SendRaw(int socket, std::span<const std::byte> bytes, const std::vector<int>& fds = {}) {
  iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * 300)> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
    cmsghdr* item = CMSG_FIRSTHDR(&message);
    item->cmsg_level = SOL_SOCKET;
    item->cmsg_type = SCM_RIGHTS;
    item->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
    std::memcpy(CMSG_DATA(item), fds.data(), fds.size() * sizeof(int));
  }
  ASSERT_EQ(::sendmsg(socket, &message, MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
}

Status ReadStatus(FrameReader& reader, int socket) {
  Frame frame;
  return reader.Read(socket, frame).status();
}

// ---- frames

TEST(FrameReader, TakesAFrameThatArrivesByteByByte) {
  const Bytes bytes = RawFrame(MessageType::kUnloadModule, 9, Encode(UnloadModule{3}));
  for (std::size_t split = 1; split < bytes.size(); ++split) {
    const Pair pair = MakePair();
    FrameReader reader(ClientFrameRules);
    Frame frame;
    SendRaw(pair.theirs.get(), std::span(bytes).first(split));
    Result<Progress> first = reader.Read(pair.ours.get(), frame);
    ASSERT_TRUE(first.ok());
    EXPECT_EQ(*first, Progress::kWouldBlock) << split;
    SendRaw(pair.theirs.get(), std::span(bytes).subspan(split));
    Result<Progress> second = reader.Read(pair.ours.get(), frame);
    ASSERT_TRUE(second.ok());
    ASSERT_EQ(*second, Progress::kFrame) << split;
    EXPECT_EQ(frame.request, 9u);
    EXPECT_EQ(Decode<UnloadModule>(frame.payload)->module, 3u);
  }
}

// The broker hands the socket over after the hello, so a byte read too many would be lost to the
// worker.
TEST(FrameReader, NeverTakesAByteOfTheNextFrame) {
  const Pair pair = MakePair();
  Bytes two = RawFrame(MessageType::kHello, 1, Encode(Hello{}));
  const Bytes second = RawFrame(MessageType::kDescribeError, 2, Encode(DescribeError{7}));
  two.insert(two.end(), second.begin(), second.end());
  SendRaw(pair.theirs.get(), two);
  Frame frame;
  FrameReader broker(FirstFrameRules);
  ASSERT_EQ(*broker.Read(pair.ours.get(), frame), Progress::kFrame);
  EXPECT_EQ(frame.type, static_cast<std::uint16_t>(MessageType::kHello));
  FrameReader worker(ClientFrameRules);
  ASSERT_EQ(*worker.Read(pair.ours.get(), frame), Progress::kFrame);
  EXPECT_EQ(Decode<DescribeError>(frame.payload)->stream, 7u);
  EXPECT_EQ(*worker.Read(pair.ours.get(), frame), Progress::kWouldBlock);
}

TEST(FrameReader, EveryHeaderFieldIsChecked) {
  const auto rejection = [](void (*change)(FrameHeader&)) {
    const Pair pair = MakePair();
    FrameHeader header;
    header.type = static_cast<std::uint16_t>(MessageType::kUnloadModule);
    header.payload_bytes = GetLayout<UnloadModule>().bytes;
    change(header);
    SendRaw(pair.theirs.get(), std::as_bytes(std::span<FrameHeader, 1>(&header, 1)));
    FrameReader reader(ClientFrameRules);
    return ReadStatus(reader, pair.ours.get());
  };
  EXPECT_TRUE(rejection([](FrameHeader&) {}).ok());
  EXPECT_THAT(rejection([](FrameHeader& h) { h.magic ^= 1; }).message(), HasSubstr("magic number"));
  EXPECT_THAT(rejection([](FrameHeader& h) { h.magic = kChannelMagic; }).message(),
              HasSubstr("magic number"));
  EXPECT_THAT(rejection([](FrameHeader& h) { h.reserved = 1; }).message(),
              HasSubstr("reserved field is not zero"));
  EXPECT_THAT(rejection([](FrameHeader& h) { h.type = 999; }).message(),
              HasSubstr("frame of type 999 rejected: not allowed here"));
  EXPECT_THAT(rejection([](FrameHeader& h) { h.type = 18; }).message(),
              HasSubstr("not allowed here"))
      << "only the server says that a session ended";
  EXPECT_THAT(rejection([](FrameHeader& h) { h.payload_bytes = 9; }).message(),
              HasSubstr("it has 9 bytes of payload, allowed: 8 to 8"));
  EXPECT_THAT(rejection([](FrameHeader& h) { h.payload_bytes = 7; }).message(),
              HasSubstr("it has 7 bytes of payload"));
  EXPECT_THAT(rejection([](FrameHeader& h) { h.payload_bytes = 0xffffffff; }).message(),
              HasSubstr("it has 4294967295 bytes of payload"));
}

TEST(FrameReader, EndBetweenFramesIsCloseAndInsideOneIsDisconnect) {
  Pair pair = MakePair();
  pair.theirs.Reset();
  FrameReader reader(ClientFrameRules);
  Frame frame;
  EXPECT_EQ(*reader.Read(pair.ours.get(), frame), Progress::kClosed);

  const Bytes bytes = RawFrame(MessageType::kUnloadModule, 9, Encode(UnloadModule{3}));
  for (const std::size_t cut : {std::size_t{1}, std::size_t{16}, bytes.size() - 1}) {
    Pair broken = MakePair();
    SendRaw(broken.theirs.get(), std::span(bytes).first(cut));
    broken.theirs.Reset();
    FrameReader partial(ClientFrameRules);
    EXPECT_EQ(ReadStatus(partial, broken.ours.get()).code(), StatusCode::kDisconnected) << cut;
  }
}

// ---- descriptors

TEST(Descriptors, ArriveCloseOnExecWithTheirFrame) {
  const Pair pair = MakePair();
  UniqueFd event(::eventfd(5, 0));
  SendRaw(pair.theirs.get(), RawFrame(MessageType::kImageMade, 1, Encode(ImageMade{10})),
          {event.get()});
  FrameReader reader(ServerFrameRules);
  Frame frame;
  ASSERT_EQ(*reader.Read(pair.ours.get(), frame), Progress::kFrame);
  ASSERT_EQ(frame.fds.size(), 1u);
  EXPECT_NE(::fcntl(frame.fds[0].get(), F_GETFD) & FD_CLOEXEC, 0);
  std::uint64_t count = 0;
  EXPECT_EQ(::read(frame.fds[0].get(), &count, sizeof count), 8);
  EXPECT_EQ(count, 5u);
}

// If descriptors of a rejected frame stayed open, a hostile client could exhaust the worker's
// descriptors.
TEST(Descriptors, OfARejectedFrameAreClosed) {
  UniqueFd event(::eventfd(0, EFD_CLOEXEC));
  const Bytes image = RawFrame(MessageType::kImageMade, 1, Encode(ImageMade{10}));
  const Bytes resized = RawFrame(MessageType::kMemoryResized, 1, Encode(MemoryResized{1}));
  const Bytes unknown = RawFrame(MessageType::kHello, 1, {});
  struct Case {
    const Bytes& frame;
    std::size_t fds;
    const char* rejection;
  };
  const std::vector<Case> cases = {
      {image, 0, "it carries 0 descriptors, required 1"},
      {image, 2, "more than 1 descriptors"},
      {image, 4, "more than 1 descriptors"},
      {image, 5, "more than 1 descriptors"},
      {image, 7, "more than 6 descriptors"},
      {image, 253, "too many descriptors"},
      {resized, 1, "more than 0 descriptors"},
      {resized, 253, "too many descriptors"},
      {unknown, 3, "not allowed here"},
  };
  const std::set<std::string> before = OpenFds();
  for (const Case& c : cases) {
    const Pair pair = MakePair();
    SendRaw(pair.theirs.get(), c.frame, std::vector<int>(c.fds, event.get()));
    FrameReader reader(ServerFrameRules);
    const Status status = ReadStatus(reader, pair.ours.get());
    EXPECT_EQ(status.code(), StatusCode::kProtocolViolation) << c.fds;
    EXPECT_THAT(status.message(), HasSubstr(c.rejection)) << c.fds;
  }
  EXPECT_THAT(OpenFds(), IsSubsetOf(before));
}

TEST(Descriptors, TrickledInWithSinglePayloadBytesAreBounded) {
  UniqueFd event(::eventfd(0, EFD_CLOEXEC));
  const std::set<std::string> before = OpenFds();
  {
    const Pair pair = MakePair();
    const Bytes image = RawFrame(MessageType::kImageMade, 1, Encode(ImageMade{10}));
    SendRaw(pair.theirs.get(), std::span(image).first(16), {event.get()});
    FrameReader reader(ServerFrameRules);
    Frame frame;
    EXPECT_EQ(*reader.Read(pair.ours.get(), frame), Progress::kWouldBlock);
    SendRaw(pair.theirs.get(), std::span(image).subspan(16, 1), {event.get()});
    EXPECT_THAT(ReadStatus(reader, pair.ours.get()).message(),
                HasSubstr("more than 1 descriptors"));
  }
  EXPECT_THAT(OpenFds(), IsSubsetOf(before));
}

TEST(Descriptors, OfPartialFrameAreClosedWithReader) {
  UniqueFd event(::eventfd(0, EFD_CLOEXEC));
  const std::set<std::string> before = OpenFds();
  {
    const Pair pair = MakePair();
    const Bytes image = RawFrame(MessageType::kImageMade, 1, Encode(ImageMade{10}));
    SendRaw(pair.theirs.get(), std::span(image).first(10), {event.get()});
    FrameReader reader(ServerFrameRules);
    Frame frame;
    EXPECT_EQ(*reader.Read(pair.ours.get(), frame), Progress::kWouldBlock);
    EXPECT_EQ(OpenFds().size(), before.size() + 3);
  }
  EXPECT_THAT(OpenFds(), IsSubsetOf(before));
}

// ---- descriptors that are not received

TEST(RejectedDescriptors, AreNeverReceivedAndEndTheReading) {
  UniqueFd event(::eventfd(0, EFD_CLOEXEC));
  const Bytes unload = RawFrame(MessageType::kUnloadModule, 1, Encode(UnloadModule{1}));
  for (const std::size_t fds : {1, 4, 253}) {
    for (const std::size_t at : {std::size_t{0}, std::size_t{7}, unload.size() - 1}) {
      SCOPED_TRACE(std::to_string(fds) + " at byte " + std::to_string(at));
      const Pair pair = MakePair();
      SendRaw(pair.theirs.get(), unload);
      if (at > 0) SendRaw(pair.theirs.get(), std::span(unload).first(at));
      SendRaw(pair.theirs.get(), std::span(unload).subspan(at), std::vector<int>(fds, event.get()));
      const std::set<std::string> before = OpenFds();
      FrameReader reader(ClientFrameRules, Descriptors::kRejected);
      Frame frame;
      // The kernel may deliver the descriptors together with the preceding bytes, so the previous
      // frame may be lost.
      Result<Progress> progress = reader.Read(pair.ours.get(), frame);
      if (progress.ok()) progress = reader.Read(pair.ours.get(), frame);
      EXPECT_EQ(progress.status().message(),
                "frame rejected: it carries descriptors, which clients must not send");
      EXPECT_THAT(OpenFds(), IsSubsetOf(before));
      EXPECT_FALSE(DropBytes(pair.ours.get())) << "they are where they were";
    }
  }
}

TEST(RejectedDescriptors, FramesWithoutAnyArriveByteByByte) {
  const Pair pair = MakePair();
  const Bytes unload = RawFrame(MessageType::kUnloadModule, 9, Encode(UnloadModule{3}));
  FrameReader reader(ClientFrameRules, Descriptors::kRejected);
  Frame frame;
  for (const std::byte& byte : unload) {
    EXPECT_EQ(*reader.Read(pair.ours.get(), frame), Progress::kWouldBlock);
    SendRaw(pair.theirs.get(), {&byte, 1});
  }
  ASSERT_EQ(*reader.Read(pair.ours.get(), frame), Progress::kFrame);
  EXPECT_EQ(Decode<UnloadModule>(frame.payload)->module, 3u);
  EXPECT_TRUE(DropBytes(pair.ours.get()));
}

// ---- client side, with a deadline

TEST(BlockingFrames, RequestAndReplyWithDescriptors) {
  const Pair pair = MakePair();
  UniqueFd event(::eventfd(0, EFD_CLOEXEC));
  const int fd = event.get();
  ASSERT_TRUE(SendMessage(pair.ours.get(), 4, StagingBufferAdded{2, kStagingBufferBytesDefault},
                          Soon(), {&fd, 1})
                  .ok());
  Result<Frame> frame = ReceiveFrame(pair.theirs.get(), ServerFrameRules, Soon());
  ASSERT_TRUE(frame.ok()) << frame.status().ToString();
  EXPECT_EQ(frame->request, 4u);
  EXPECT_EQ(frame->fds.size(), 1u);
  EXPECT_EQ(DecodeReply<StagingBufferAdded>(*frame)->staging_buffer, 2u);
}

TEST(BlockingFrames, SilentPeerTimesOut) {
  const Pair pair = MakePair();
  const Deadline deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
  EXPECT_EQ(ReceiveFrame(pair.ours.get(), ServerFrameRules, deadline).status().code(),
            StatusCode::kTimedOut);
}

TEST(BlockingFrames, PeerThatDoesNotReadTimesOutTheSender) {
  const Pair pair = MakePair();
  const Bytes payload(1 << 20);
  Status status;
  for (int i = 0; i < 64 && status.ok(); ++i) {
    status = SendFrame(pair.ours.get(), 33, 1, payload, {},
                       std::chrono::steady_clock::now() + std::chrono::milliseconds(20));
  }
  EXPECT_EQ(status.code(), StatusCode::kTimedOut);
}

TEST(BlockingFrames, ClosedPeerIsReportedWithoutSignal) {
  Pair pair = MakePair();
  pair.theirs.Reset();
  EXPECT_EQ(
      SendMessage(pair.ours.get(), 1, AddStagingBuffer{kStagingBufferBytesDefault}, Soon()).code(),
      StatusCode::kDisconnected);
  EXPECT_EQ(ReceiveFrame(pair.ours.get(), ServerFrameRules, Soon()).status().code(),
            StatusCode::kDisconnected);
}

TEST(BlockingFrames, LargePageArrivesWhole) {
  const Pair pair = MakePair();
  AdminReply reply;
  reply.text.assign(kPageTextBytesMax, 'j');
  std::thread sender([&] { EXPECT_TRUE(SendMessage(pair.theirs.get(), 1, reply, Soon()).ok()); });
  Result<Frame> frame = ReceiveFrame(pair.ours.get(), ServerFrameRules, Soon());
  sender.join();
  ASSERT_TRUE(frame.ok()) << frame.status().ToString();
  EXPECT_EQ(DecodeReply<AdminReply>(*frame)->text, reply.text);
}

// ---- outbox

TEST(Outbox, KeepsOrderOverASocketThatTakesLittle) {
  const Pair pair = MakePair();
  Outbox outbox;
  constexpr std::uint32_t kFrames = 40;
  AdminReply reply;
  reply.text.assign(50'000, 'x');
  for (std::uint32_t i = 1; i <= kFrames; ++i) ASSERT_TRUE(outbox.Add(i, reply).ok());
  Result<bool> empty = outbox.Flush(pair.ours.get());
  ASSERT_TRUE(empty.ok());
  EXPECT_FALSE(*empty) << "the socket takes less than two megabytes at once";
  FrameReader reader(ServerFrameRules);
  Frame frame;
  for (std::uint32_t i = 1; i <= kFrames;) {
    Result<Progress> progress = reader.Read(pair.theirs.get(), frame);
    ASSERT_TRUE(progress.ok());
    if (*progress == Progress::kFrame) {
      EXPECT_EQ(frame.request, i++);
    } else {
      ASSERT_TRUE(outbox.Flush(pair.ours.get()).ok());
    }
  }
  EXPECT_TRUE(outbox.empty());
}

TEST(Outbox, ReportsPeerThatNeverReads) {
  Outbox outbox;
  AdminReply reply;
  reply.text.assign(kPageTextBytesMax, 'x');
  Status status;
  std::size_t added = 0;
  while (status.ok() && added < 10'000) {
    status = outbox.Add(1, reply);
    ++added;
  }
  EXPECT_EQ(status.code(), StatusCode::kLimitExceeded);
  EXPECT_LE(added * kPageTextBytesMax, Outbox::kBytesMax + kPageTextBytesMax);
}

TEST(Outbox, SendsDescriptorsOnceAndClosesThem) {
  const std::set<std::string> before = OpenFds();
  {
    const Pair pair = MakePair();
    Outbox outbox;
    std::vector<UniqueFd> fds;
    fds.emplace_back(::eventfd(0, EFD_CLOEXEC));
    ASSERT_TRUE(
        outbox.Add(1, StagingBufferAdded{2, kStagingBufferBytesDefault}, std::move(fds)).ok());
    ASSERT_TRUE(*outbox.Flush(pair.ours.get()));
    EXPECT_EQ(OpenFds().size(), before.size() + 2)
        << "the socket pair only: the descriptor is under way";
    Result<Frame> frame = ReceiveFrame(pair.theirs.get(), ServerFrameRules, Soon());
    ASSERT_TRUE(frame.ok());
    EXPECT_EQ(frame->fds.size(), 1u);
  }
  EXPECT_THAT(OpenFds(), IsSubsetOf(before));
}

TEST(Outbox, ClosedPeerIsDisconnected) {
  Pair pair = MakePair();
  pair.theirs.Reset();
  Outbox outbox;
  ASSERT_TRUE(outbox.Add(1, Done{}).ok());
  EXPECT_EQ(outbox.Flush(pair.ours.get()).status().code(), StatusCode::kDisconnected);
}

// ---- the channel between broker and worker

TEST(Channel, MessagesKeepTheirBoundariesAndDescriptors) {
  Result<std::pair<UniqueFd, UniqueFd>> channel = MakeChannelPair();
  ASSERT_TRUE(channel.ok());
  auto& [broker, worker] = *channel;
  Attach attach;
  attach.session = 3;
  Outbox outbox(Outbox::Kind::kSeqpacket);
  std::vector<UniqueFd> fds;
  fds.emplace_back(::eventfd(0, EFD_CLOEXEC));
  fds.emplace_back(::eventfd(0, EFD_CLOEXEC));
  ASSERT_TRUE(outbox.Add(0, attach, std::move(fds)).ok());
  ASSERT_TRUE(outbox.Add(8, TerminateSession{3}).ok());
  ASSERT_TRUE(*outbox.Flush(broker.get()));

  Result<std::optional<Frame>> first = ReceiveChannelMessage(worker.get(), ChannelToWorkerRules);
  ASSERT_TRUE(first.ok() && first->has_value()) << first.status().ToString();
  EXPECT_EQ((*first)->fds.size(), kAttachFds);
  EXPECT_EQ(Decode<Attach>((*first)->payload)->session, 3u);
  Result<std::optional<Frame>> second = ReceiveChannelMessage(worker.get(), ChannelToWorkerRules);
  ASSERT_TRUE(second.ok() && second->has_value());
  EXPECT_EQ((*second)->request, 8u);
  Result<std::optional<Frame>> none = ReceiveChannelMessage(worker.get(), ChannelToWorkerRules);
  ASSERT_TRUE(none.ok());
  EXPECT_FALSE(none->has_value());
}

TEST(Channel, LargestPageIsOneMessage) {
  Result<std::pair<UniqueFd, UniqueFd>> channel = MakeChannelPair();
  ASSERT_TRUE(channel.ok());
  auto& [broker, worker] = *channel;
  ChannelReply reply;
  reply.text.assign(kPageTextBytesMax, 'j');
  Outbox outbox(Outbox::Kind::kSeqpacket);
  ASSERT_TRUE(outbox.Add(8, reply).ok());
  Result<bool> sent = outbox.Flush(worker.get());
  ASSERT_TRUE(sent.ok() && *sent) << sent.status().ToString();
  Result<std::optional<Frame>> message = ReceiveChannelMessage(broker.get(), ChannelToBrokerRules);
  ASSERT_TRUE(message.ok() && message->has_value()) << message.status().ToString();
  EXPECT_EQ(Decode<ChannelReply>((*message)->payload)->text, reply.text);
}

TEST(Channel, WrongDirectionAndBrokenMessagesAreRejectedWithoutALeak) {
  const std::set<std::string> before = OpenFds();
  {
    Result<std::pair<UniqueFd, UniqueFd>> channel = MakeChannelPair();
    ASSERT_TRUE(channel.ok());
    auto& [broker, worker] = *channel;
    UniqueFd event(::eventfd(0, EFD_CLOEXEC));
    const auto rejection = [&](const Bytes& bytes, const std::vector<int>& fds) {
      SendRaw(worker.get(), bytes, fds);
      return ReceiveChannelMessage(broker.get(), ChannelToBrokerRules).status().message();
    };
    FrameHeader header;
    header.magic = kChannelMagic;
    header.type = static_cast<std::uint16_t>(ChannelType::kSessionStarted);
    header.payload_bytes = GetLayout<SessionStarted>().bytes;
    const auto with = [&](std::size_t bytes) {
      Bytes raw(bytes);
      std::memcpy(raw.data(), &header, std::min(bytes, sizeof header));
      return raw;
    };
    EXPECT_EQ(rejection(with(24), {}), "");
    EXPECT_THAT(rejection(with(23), {}), HasSubstr("its length is not that of its payload"));
    EXPECT_THAT(rejection(with(25), {}), HasSubstr("its length is not that of its payload"));
    EXPECT_THAT(rejection(with(3), {}), HasSubstr("it has 3 bytes"));
    EXPECT_THAT(rejection(with(24), {event.get()}),
                HasSubstr("it carries 1 descriptors, required 0"));
    EXPECT_THAT(rejection(with(24), std::vector<int>(100, event.get())),
                HasSubstr("too many descriptors"));
    header.type = static_cast<std::uint16_t>(ChannelType::kAttach);
    EXPECT_THAT(rejection(with(24), {}), HasSubstr("not allowed here"));
    header.magic = kFrameMagic;
    EXPECT_THAT(rejection(with(24), {}), HasSubstr("magic number"));
  }
  EXPECT_THAT(OpenFds(), IsSubsetOf(before));
}

TEST(Channel, DetectsEndOfPeer) {
  Result<std::pair<UniqueFd, UniqueFd>> channel = MakeChannelPair();
  ASSERT_TRUE(channel.ok());
  channel->second.Reset();
  EXPECT_EQ(ReceiveChannelMessage(channel->first.get(), ChannelToBrokerRules).status().code(),
            StatusCode::kDisconnected);
}

}  // namespace
}  // namespace gpushared::ipc
