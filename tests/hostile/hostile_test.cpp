// SPDX-License-Identifier: Apache-2.0
// Attacks that no client library performs, on shared memory, sockets and images. lies_test.cpp
// covers single fields.

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/hostile/hostile_case.h"

namespace gpushared::testing {
namespace {

// Launches nodes in which random bytes were changed. The session ends, its stream fails, or its
// kernels compute garbage in the client's own memory.
TEST_F(Hostile, MutatedNodesAffectOnlyTheirClient) {
  std::mt19937_64 random(20261124);
  unsigned ended = 0, lived = 0;
  for (int round = 0; round < 24; ++round) {
    RawClient client = Join();
    client.MakeGraph(1);
    std::vector<std::byte> content;
    for (std::uint32_t node = 0; node < 12; ++node) {
      ipc::GraphRecord record =
          random() % 2 == 0
              ? GetNode({.graph = 1, .node = node}, GetLaunch(0, kModule, step_kernel_, {}, 12),
                        ParametersAt(client.base(), 12), content)
              : GetNode({.graph = 1, .node = node}, GetFill(0, client.base(), 4096, 1), {},
                        content);
      // In every second round the records stay intact and only the kernels' parameters change.
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
    std::string message;
    bool has_finished = false;
    for (int wait = 0; wait < 50 && !has_finished && message.empty(); ++wait) {
      has_finished = client.AwaitFinished(0, client.published(0), 10ms);
      if (!has_finished) message = Ending(client, 1ms);
    }
    ended += message.find("ProtocolViolation") != std::string::npos ? 1 : 0;
    lived += has_finished ? 1 : 0;
    EXPECT_TRUE(message.empty() || message.find("ProtocolViolation") != std::string::npos)
        << message;
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
  EXPECT_NE(Ending(client, 20s).find("16 requests are open, allowed: 16"), std::string::npos);
}

// Requests chunks at invalid addresses, and changes to chunks that do not exist.
TEST_F(Hostile, MapsChunksOnlyAtFreeAddresses) {
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
  // Copies can access all of the mapped memory, and no byte beyond it.
  EXPECT_TRUE(client.AwaitFinished(0, client.Fill(0, area + two - 16, 16, 1)));
  EXPECT_EQ(StreamErrorNow(client), StatusCode::kOk);
  EXPECT_EQ(ask({.action = Action::kUnmap, .address = area}), StatusCode::kOk);
  EXPECT_TRUE(client.AwaitFinished(0, client.Fill(0, area + two - 16, 16, 1)));
  EXPECT_EQ(StreamErrorNow(client), kWrong);
  NeighbourGoesOn();
}

// A client library waits for its work before it unmaps memory; this client does not.
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
  // A launch and a fill wait for a kernel that runs longer than the server needs to read the
  // request.
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

TEST_F(Hostile, FreesMappedChunksOfDepartedClient) {
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

// A gated client's words say how much of its work is in flight. This client stores random values,
// requests turns without using them, and disconnects in the middle of a turn.
TEST_F(Hostile, ScribblingOverTheWordsOfAGatedClient) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 10; ++round) {
    Result<RawClient> client = RawClient::Connect(server_->socket());
    ASSERT_TRUE(client.ok());
    ipc::Hello hello;
    hello.name = "gated";
    hello.gated = true;
    ASSERT_TRUE(client->Join(hello).ok());
    auto* words = reinterpret_cast<std::atomic<std::uint64_t>*>(&client->commands().gate);
    for (int i = 0; i < 20'000; ++i) {
      words[random() % (sizeof(ipc::GateUse) / 8)].store(random());
      if (i % 500 == 0) client->Plain(ipc::Op::kTurn, 0);
      // Other commands are allowed, and compete with the client's turns.
      if (i % 700 == 0) client->Mark(0);
    }
    NeighbourGoesOn();
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
    client.Publish(GetFill(0, client.base(), 4096, 0));
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
    for (int i = 0; i < 2000; ++i) client.Publish(GetPlain(ipc::Op::kMark, 0));
    client.Ring();
    std::this_thread::sleep_for(5ms);
  }
}

TEST_F(Hostile, SharedMemoryCannotBeShrunkGrownOrForged) {
  RawClient client = Join();
  for (const int fd : {client.commands_fd(), client.completions_fd(), client.staging_fd(0)}) {
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
    client.Publish(GetCopy(ipc::Op::kCopyToDevice, {.address = client.base(), .bytes = 1u << 20}));
    client.Ring();
    (void)::fallocate(client.staging_fd(0), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 1 << 20);
    (void)::fallocate(client.commands_fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                      ipc::kCommandSegmentBytes);
  }
}

// The server ends the session because copies out of a staging buffer with holes take milliseconds.
TEST_F(Hostile, EndsClientThatKeepsPunchingStagingBuffer) {
  RawClient client = Join(false);
  const std::jthread puncher([staging_buffer = client.staging_fd(0)](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      (void)::fallocate(staging_buffer, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                        ipc::kStagingBufferBytesDefault);
    }
  });
  std::string ending;
  for (int i = 0; i < 2000 && ending.empty(); ++i) {
    client.Publish(GetCopy(ipc::Op::kCopyToDevice, {.address = client.base(), .bytes = 1u << 20}));
    client.Ring();
    while (client.TakeCompletion()) {
    }
    ending = Ending(client, 10ms);
  }
  EXPECT_THAT(ending, ::testing::HasSubstr("session ended: staging buffer 0 has holes: "));
  EXPECT_THAT(ending,
              ::testing::HasSubstr(" of " + std::to_string(ipc::kStagingBufferBytesDefault >> 10) +
                                   " KiB are missing"));
}

// A worker that is stopped for a while mistakes its copies for slow ones and inspects the staging
// buffers.
TEST_F(Hostile, SlowCopiesOfIntactStagingBuffersEndNoSession) {
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
  // The copy is larger than a staging buffer, so that the library adds more of them.
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

// The server parses a copy of the image, so changes that the client makes meanwhile have no effect.
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

TEST_F(Hostile, FloodOfCommandsDoesNotStarveNeighbour) {
  RawClient client = Join();
  std::jthread flood([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      client.Publish(GetFill(0, client.base(), 64, 0));
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
  client.Publish(GetFill(0, client.base(), 64, 0));
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
