// SPDX-License-Identifier: Apache-2.0
// Memory of sessions: device memory, staging buffers, chunks and images.
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/worker/control/session.h"
#include "tests/server/worker/harness.h"
#include "tests/support/stuck_page.h"

namespace gpushared::testing {
namespace {

using ::testing::HasSubstr;

TEST(WorkerSession, AppliesIsolationThatBrokerRequests) {
  WorkerHarness worker(kAtOnce);
  for (const device::Isolation isolation : {device::Isolation::kFence, device::Isolation::kOff}) {
    const auto number = static_cast<std::uint8_t>(isolation);
    EXPECT_TRUE(worker.Connect({.uid = ::geteuid() + 1, .isolation = number}).AwaitWelcome().ok());
    EXPECT_EQ(worker.device().isolation(), isolation);
  }
}

// Memory grows page by page, so that other clients' calls run in between.
TEST(WorkerSession, MemoryGrowsByPageAndFailedGrowthLosesNothing) {
  server::WorkerOptions options;
  options.limits.grow_step_bytes = 4 * kMiB;
  WorkerHarness worker({}, std::move(options));
  RawClient client = worker.Client({.quota_bytes = 22 * kMiB});
  ASSERT_TRUE(client.Resize(14 * kMiB).ok());
  EXPECT_EQ(worker.device().resizes(),
            (std::vector<std::uint64_t>{4 * kMiB, 8 * kMiB, 12 * kMiB, 14 * kMiB}));
  const auto rejected = client.Resize(40 * kMiB);
  EXPECT_EQ(rejected.status().code(), StatusCode::kOutOfMemory);
  EXPECT_EQ(worker.device().mapped_bytes(), 14 * kMiB);
  EXPECT_TRUE(client.Resize(16 * kMiB).ok());
}

// Without this reserve, one low client could take all memory and leave none for a client of root.
TEST(WorkerSession, ReservesMemoryForClientsThatMayBeHigh) {
  server::WorkerOptions options;
  options.limits.memory_kept = 0.25;
  WorkerHarness worker(kAtOnce, std::move(options));
  constexpr auto kNormal = SchedulingClass::kNormal;
  RawClient ordinary = worker.Connect({.uid = 1000, .allowed_class = kNormal});
  ASSERT_TRUE(ordinary.AwaitWelcome().ok());
  EXPECT_EQ(worker.device().left_free_bytes(), worker.device().info().memory_bytes / 4);
  RawClient of_root = worker.Connect({.uid = 0, .allowed_class = kNormal});
  ASSERT_TRUE(of_root.AwaitWelcome().ok());
  EXPECT_EQ(worker.device().left_free_bytes(), 0U);
  RawClient high = worker.Connect({.uid = 1000});
  ASSERT_TRUE(high.AwaitWelcome().ok());
  EXPECT_EQ(worker.device().left_free_bytes(), 0U);
}

// Staging buffers are host memory, and a machine that runs out of it kills processes instead of
// rejecting requests.
TEST(WorkerSession, LimitsStagingBuffersOfAllClientsBeforeAllocation) {
  server::WorkerOptions options;
  options.limits.sessions_max = 4;
  options.limits.staging_bytes_total_max = 16 * kMiB;
  options.limits.staging_bytes = 16 * kMiB;  // 2 guaranteed to each, 8 shared.
  WorkerHarness worker(kAtOnce, std::move(options));
  const auto join = [&] {
    RawClient client = worker.Connect({.name = "copies"});
    EXPECT_TRUE(client.AwaitWelcome().ok());
    EXPECT_EQ(client.welcome().staging_bytes_total_max, 10 * kMiB);
    return client;
  };
  {
    RawClient greedy = join();
    ASSERT_TRUE(greedy.AddStagingBuffer(9 * kMiB).ok());
    const Status rejected = greedy.AddStagingBuffer(2 * kMiB).status();
    EXPECT_EQ(rejected.code(), StatusCode::kOutOfMemory);
    EXPECT_THAT(rejected.message(), HasSubstr("asked for 2097152 bytes"));
    EXPECT_THAT(rejected.message(), HasSubstr("1048576 left"));
    EXPECT_THAT(rejected.message(), HasSubstr("'copies'"));
    EXPECT_TRUE(greedy.AddStagingBuffer(1 * kMiB).ok()) << "a rejection takes nothing";

    RawClient modest = join();
    EXPECT_TRUE(modest.AddStagingBuffer(2 * kMiB).ok()) << "assured";
    EXPECT_FALSE(modest.AddStagingBuffer(64 * 1024).ok());
  }
  ASSERT_TRUE(worker.Await<ipc::SessionEnded>());
  ASSERT_TRUE(worker.Await<ipc::SessionEnded>());
  EXPECT_TRUE(join().AddStagingBuffer(10 * kMiB).ok()) << "all of it is back";
}

// Memory of ended sessions is counted as free, so it must actually be free.
TEST(WorkerSession, FreesStagingBuffersThatClientKeepsMapped) {
  WorkerHarness worker(kAtOnce);
  RawClient client = worker.Client();
  const Result<std::uint32_t> staging_buffer = client.AddStagingBuffer(1 << 20);
  ASSERT_TRUE(staging_buffer.ok());
  const auto blocks = [&] {
    struct stat about {};
    EXPECT_EQ(::fstat(client.staging_fd(*staging_buffer), &about), 0);
    return about.st_blocks;
  };
  ASSERT_EQ(blocks(), (1 << 20) / 512) << "taken when it is made, so that no fault comes later";
  client.CloseSocket();
  ASSERT_TRUE(worker.Await<ipc::SessionEnded>());
  EXPECT_EQ(blocks(), 0);
}

// If the device thread accessed the buffer directly, it would block on page faults while the client
// empties more of the buffer.
TEST(WorkerSession, ReadsParametersInEmptiedStagingBufferWithoutTouchingIt) {
  WorkerHarness worker(kAtOnce);
  RawClient client = worker.Client();
  const Result<std::uint32_t> staging_buffer = client.AddStagingBuffer(kMiB);
  ASSERT_TRUE(staging_buffer.ok());
  ASSERT_EQ(::fallocate(client.staging_fd(*staging_buffer),
                        FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(kMiB)),
            0);
  ipc::LaunchRecord launch = GetLaunch(0, 0, 1, {}, 24);
  launch.header.flags |= ipc::kFlagParametersInStagingBuffer;
  launch.header.continuations = 0;
  launch.staging_buffer = *staging_buffer;
  launch.staging_offset = 4096;
  const Sequence sequence = client.Publish(launch);
  client.Ring();
  ASSERT_TRUE(client.AwaitFinished(0, sequence));
  const auto seen = worker.device().submissions();
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_THAT(seen[0].parameters, ::testing::Each(std::byte{0}));
  struct stat about {};
  ASSERT_EQ(::fstat(client.staging_fd(*staging_buffer), &about), 0);
  EXPECT_EQ(about.st_blocks, 0) << "a page that is touched is there again";
}

StatusCode Change(RawClient& client, const ipc::ChangeChunk& change) {
  return client.Ask<ipc::Done>(change).status().code();
}

StatusCode MapChunk(RawClient& client, std::uint64_t place) {
  return Change(client, {.action = ipc::ChunkAction::kMap,
                         .chunk = 0,
                         .address = client.welcome().mapping_base + place * ipc::kChunkBytesStep});
}

TEST(WorkerSession, UnmapsChunkOnlyAfterEarlierCommandsEnd) {
  WorkerHarness worker;
  RawClient client = worker.Client();
  const ipc::ChangeChunk make{.action = ipc::ChunkAction::kMake, .bytes = ipc::kChunkBytesStep};
  ASSERT_EQ(Change(client, make), StatusCode::kOk);
  ASSERT_EQ(MapChunk(client, 0), StatusCode::kOk);
  const Sequence fill = client.Fill(0, client.base(), 16, 1);
  ASSERT_EQ(worker.device().WaitForSubmissions(1).size(), 1u);
  ASSERT_TRUE(client
                  .Send(ipc::ChangeChunk{.action = ipc::ChunkAction::kUnmap,
                                         .address = client.welcome().mapping_base})
                  .ok());
  EXPECT_EQ(client.NextFrame(std::chrono::milliseconds(100)).status().code(), StatusCode::kTimedOut)
      << "the fill is still on the device";
  worker.device().RunAtOnce();
  EXPECT_TRUE(client.Receive<ipc::Done>().ok());
  EXPECT_GE(client.finished(0), fill);
}

TEST(WorkerSession, LimitsMappingsOfAllSessions) {
  server::WorkerOptions options;
  options.limits.mappings_max = 3;
  WorkerHarness worker(kAtOnce, options);
  const ipc::ChangeChunk make{.action = ipc::ChunkAction::kMake, .bytes = ipc::kChunkBytesStep};
  RawClient first = worker.Client(), second = worker.Client();
  ASSERT_EQ(Change(first, make), StatusCode::kOk);
  ASSERT_EQ(Change(second, make), StatusCode::kOk);
  EXPECT_EQ(MapChunk(first, 0), StatusCode::kOk);
  EXPECT_EQ(MapChunk(first, 1), StatusCode::kOk);
  EXPECT_EQ(MapChunk(second, 0), StatusCode::kOk);
  EXPECT_EQ(MapChunk(second, 1), StatusCode::kLimitExceeded);
  EXPECT_EQ(Change(second,
                   {.action = ipc::ChunkAction::kUnmap, .address = second.welcome().mapping_base}),
            StatusCode::kOk);
  EXPECT_EQ(MapChunk(second, 1), StatusCode::kOk);
  // The images of a session that ends no longer count.
  first.CloseSocket();
  ASSERT_TRUE(worker.Await<ipc::SessionEnded>());
  EXPECT_EQ(MapChunk(second, 2), StatusCode::kOk);
  EXPECT_EQ(MapChunk(second, 3), StatusCode::kOk);
  EXPECT_EQ(MapChunk(second, 4), StatusCode::kLimitExceeded);
}

TEST(WorkerSession, ShrinksMemoryOnlyWhenUnused) {
  WorkerHarness worker;
  RawClient client = worker.Client();
  const Sequence fill = client.Fill(0, client.base() + (std::uint64_t{3} << 20), 16, 1);
  ASSERT_EQ(worker.device().WaitForSubmissions(1).size(), 1u);

  ASSERT_TRUE(client.Send(ipc::ResizeMemory{.bytes = std::uint64_t{2} << 20}).ok());
  EXPECT_EQ(client.NextFrame(std::chrono::milliseconds(100)).status().code(), StatusCode::kTimedOut)
      << "the fill is still on the device";
  EXPECT_EQ(worker.device().mapped_bytes(), std::uint64_t{4} << 20);
  worker.device().RunAtOnce();
  const Result<ipc::MemoryResized> resized = client.Receive<ipc::MemoryResized>();
  ASSERT_TRUE(resized.ok()) << resized.status().ToString();
  EXPECT_EQ(resized->mapped_bytes, std::uint64_t{2} << 20);
  EXPECT_GE(client.finished(0), fill);
  EXPECT_EQ(worker.device().mapped_bytes(), std::uint64_t{2} << 20);

  client.Fill(0, client.base() + (std::uint64_t{3} << 20), 16, 1);
  const auto notice = client.NextCompletion();
  ASSERT_TRUE(notice);
  EXPECT_EQ(notice->code, StatusCode::kInvalidArgument);
}

TEST(WorkerSession, ModuleWithoutImageEndsSession) {
  WorkerHarness worker(kAtOnce);
  const auto load = [](RawClient& client, std::uint64_t bytes) {
    return client.Ask<ipc::ModuleLoaded>(ipc::LoadModule{.module = 1, .bytes = bytes}).status();
  };
  RawClient without = worker.Client();
  EXPECT_EQ(load(without, 7).code(), StatusCode::kProtocolViolation);
  RawClient other_size = worker.Client();
  ASSERT_TRUE(other_size.MakeImage("null 0\n").ok());
  EXPECT_THAT(load(other_size, 6).message(),
              HasSubstr("of 6 bytes is to be loaded, the memory made for its image has 7"));
  RawClient twice = worker.Client();
  ASSERT_TRUE(twice.MakeImage("null 0\n").ok());
  EXPECT_TRUE(load(twice, 7).ok());
  EXPECT_EQ(load(twice, 7).code(), StatusCode::kProtocolViolation) << "each image loads once";
}

TEST(WorkerSession, RecreatedImageReplacesPreviousOne) {
  WorkerHarness worker(kAtOnce);
  RawClient client = worker.Client();
  const Holdings before = Holdings::Now();
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(client.MakeImage("three 24\n").ok());
  const auto loaded = client.LoadModule(1, "null 0\n");
  ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
  EXPECT_EQ(loaded->kernels.at(0).name, "null");
  EXPECT_EQ(Holdings::Now(), before);
}

TEST(WorkerSession, LimitsImagesOfAllSessionsAndGuaranteesEachAPart) {
  server::WorkerOptions options;
  options.limits.sessions_max = 4;
  options.limits.images_bytes = 16 * kMiB;  // 2 guaranteed to each, 8 shared.
  WorkerHarness worker(kAtOnce, std::move(options));
  const auto make = [](RawClient& client, std::uint64_t bytes) {
    return client.Ask<ipc::ImageMade>(ipc::MakeImage{.bytes = bytes}).status();
  };
  RawClient greedy = worker.Client();
  RawClient second = worker.Client();
  EXPECT_TRUE(make(greedy, 10 * kMiB).ok());
  EXPECT_THAT(make(second, 2 * kMiB + 1).message(),
              HasSubstr("its image has 2097153 bytes, the memory for images of all clients has "
                        "2097152 left for this one"));
  EXPECT_TRUE(make(second, 2 * kMiB).ok()) << "its own part";
  EXPECT_TRUE(make(greedy, kMiB).ok()) << "in place of the larger one";
  EXPECT_TRUE(make(second, 10 * kMiB).ok()) << "which is given back";
  greedy.CloseSocket();
  second.CloseSocket();
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(worker.Await<ipc::SessionEnded>());
  RawClient third = worker.Client();
  EXPECT_TRUE(make(third, 10 * kMiB).ok()) << "a session's memory goes with it";
  EXPECT_TRUE(make(third, 4096).ok());
  EXPECT_FALSE(make(third, 65 * kMiB).ok());
}

// Registrations are removed one by one, because removing one delays launches, and removing all of a
// client's at once would delay them for long.
TEST(WorkerSession, UnregistersStagingBuffersOneByOne) {
  class Pinned : public device::PinnedMemory {
   public:
    explicit Pinned(int& live) : live_(live) { ++live_; }
    Pinned(const Pinned&) = delete;
    Pinned& operator=(const Pinned&) = delete;
    ~Pinned() override { --live_; }

   private:
    int& live_;
  };
  int live = 0;
  server::SessionMemory memory;
  for (int i = 0; i < 3; ++i)
    memory.pinned_staging_buffers.push_back(std::make_unique<Pinned>(live));
  memory.pinned_staging_buffers.push_back(nullptr);  // A buffer that could not be registered.
  for (const int left : {3, 2, 1, 0}) {
    EXPECT_TRUE(memory.ReturnPart());
    EXPECT_EQ(live, left);
  }
  EXPECT_FALSE(memory.ReturnPart());
}

// The kernel takes tens of milliseconds to clear the pages of a large buffer, and all such calls
// share one thread.
TEST(WorkerSession, AllocationOfLargeStagingBufferDelaysNoOtherClient) {
  constexpr int kRounds = 8;
  WorkerHarness worker(kAtOnce);
  int welcomed_before = 0;
  for (int i = 0; i < kRounds; ++i) {
    RawClient greedy = worker.Client({.name = "greedy"});
    ASSERT_TRUE(greedy.Send(ipc::AddStagingBuffer{.bytes = 128 * kMiB}).ok());
    RawClient new_client = worker.Client({.name = "new_client"});
    if (greedy.NextFrame(std::chrono::milliseconds(0)).ok()) continue;
    ++welcomed_before;
    EXPECT_TRUE(greedy.NextFrame().ok());
  }
  // Half of the rounds suffice, because a busy machine may keep the new client off the cores.
  EXPECT_GE(welcomed_before, kRounds / 2);
}

// The kernel frees the pages of a file under the file's lock. A write holds this lock until its
// source page arrives.
TEST(WorkerSession, EndlessWriteToStagingBufferDelaysNoOtherClient) {
  StuckPage page;
  if (!page.ready()) GTEST_SKIP() << "no userfaultfd for us on this machine";
  WorkerHarness worker(kAtOnce);
  RawClient good = worker.Client({.name = "good"});
  RawClient bad = worker.Client({.name = "bad"});
  const Result<std::uint32_t> staging_buffer = bad.AddStagingBuffer(kMiB);
  ASSERT_TRUE(staging_buffer.ok());
  std::jthread writer(
      [&] { (void)!::pwrite(bad.staging_fd(*staging_buffer), page.data(), StuckPage::kBytes, 0); });
  struct AtTheEnd {
    StuckPage& page;
    ~AtTheEnd() { page.Release(); }
  } const at_the_end{page};  // Lets the writer end even if an assertion fails.
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  bad.CloseSocket();

  const auto began = std::chrono::steady_clock::now();
  for (int i = 0; i < 3; ++i) {
    RawClient new_client = worker.Client({.name = "new_client"});
    ASSERT_TRUE(new_client.AddStagingBuffer(kMiB).ok());
    new_client.CloseSocket();
    const auto ended = worker.Await<ipc::SessionEnded>();
    ASSERT_TRUE(ended);
    EXPECT_EQ(ended->session, worker.last_session()) << "the one before is not over";
  }
  EXPECT_TRUE(good.Resize(2 * kMiB).ok());
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(20));
  page.Release();
  const auto ended = worker.Await<ipc::SessionEnded>();
  ASSERT_TRUE(ended);
  EXPECT_EQ(ended->session, 2u);
}

TEST(WorkerSession, KeepsMemoryUntilDeviceReleasesIt) {
  server::WorkerOptions options;
  options.kill_after = std::chrono::hours(1);
  WorkerHarness worker({.ignores_stop = true}, std::move(options));
  {
    RawClient client = worker.Client();
    client.Launch(0, 0, 0);
    ASSERT_EQ(worker.device().WaitForSubmissions(1).size(), 1u);
  }
  ASSERT_TRUE(Eventually([&] { return worker.device().stops_asked() == 1; }));
  // The session is ending, and is reported as such to administrators.
  EXPECT_THAT(worker.AskAdmin(ipc::AdminVerb::kClients), HasSubstr("\"state\":\"ending\""));
  EXPECT_EQ(worker.device().spaces_alive(), 1);
  worker.device().FinishOldest();
  ASSERT_TRUE(worker.Await<ipc::SessionEnded>());
  EXPECT_EQ(worker.device().spaces_alive(), 0);
}

}  // namespace
}  // namespace gpushared::testing
