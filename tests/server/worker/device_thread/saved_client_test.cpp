// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ipc/wire/layout.h"
#include "server/worker/state/client_state.h"
#include "server/worker/state/save_client.h"
#include "tests/support/null_device.h"

namespace gpushared::server {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kBase = std::uint64_t{1} << 40;
constexpr std::uint64_t kMapped = 16 * kMapPageBytes;

class SavedClientTest : public ::testing::Test {
 protected:
  std::unique_ptr<ClientState> Make() {
    ClientState::Setup setup;
    setup.session = 7;
    setup.who = "client 7";
    setup.commands = commands_.get();
    setup.completions = completions_.get();
    setup.space = &space_;
    setup.graphs = graphs_;
    return std::make_unique<ClientState>(setup);
  }
  static SavedClient Example() {
    SavedClient saved;
    saved.commands_taken = 5000;
    saved.commands_published = 4900;
    saved.completions_written = 77;
    saved.completions_taken = 70;
    saved.completions_reserved = 2;
    saved.last_sleep = 12;
    saved.last_request = 3;
    saved.has_marked_requests = true;
    saved.counters.launches = 41;
    saved.counters.device_time = std::chrono::microseconds(8);
    saved.counters.queue_wait.Add(1000);
    saved.streams = {{.stream = 0, .is_live = true, .finished = 9, .last_time_ns = 5},
                     {.stream = 3,
                      .is_live = true,
                      .finished = 20,
                      .last_time_ns = 6,
                      .failed_first = 2,
                      .failed_last = 4}};
    saved.buffers = {{.address = kBase + 512, .bytes = 1024}};
    return saved;
  }
  static Result<SavedClient> PassOn(const SavedClient& saved) {
    const Result<std::vector<std::byte>> bytes = ipc::Encode(saved);
    if (!bytes.ok()) return bytes.status();
    return ipc::Decode<SavedClient>(*bytes);
  }
  Status RestoreWith(void (*change)(SavedClient&)) {
    SavedClient saved = Example();
    change(saved);
    const auto client = Make();
    return Restore(saved, kMapped, *client);
  }

  gpushared::testing::NullSpace space_{kBase};
  const std::shared_ptr<GraphBudget> graphs_ = std::make_shared<GraphBudget>(1 << 20, 4);
  const std::unique_ptr<ipc::CommandSegment> commands_ = std::make_unique<ipc::CommandSegment>();
  const std::unique_ptr<ipc::CompletionSegment> completions_ =
      std::make_unique<ipc::CompletionSegment>();
};

TEST_F(SavedClientTest, RestoredClientSavesTheSame) {
  const Result<SavedClient> arrived = PassOn(Example());
  ASSERT_TRUE(arrived.ok()) << arrived.status().ToString();
  const auto client = Make();
  ASSERT_TRUE(Restore(*arrived, kMapped, *client).ok());
  EXPECT_EQ(client->scope.mapped_bytes(), kMapped);
  EXPECT_TRUE(client->streams[3].HasFailed(3));
  EXPECT_FALSE(client->streams[3].HasFailed(5));
  EXPECT_EQ(client->requests_before, 3u);
  EXPECT_TRUE(client->has_marked_requests);
  EXPECT_TRUE(CheckMove(*client).ok());
  SavedClient again = Save(*client);
  again.last_sleep = 12;  // Known to the device thread only, like the next two.
  again.last_request = 3;
  again.has_marked_requests = true;
  EXPECT_EQ(ipc::Encode(again), ipc::Encode(Example()));
}

TEST_F(SavedClientTest, ImpossibleStateIsRejected) {
  EXPECT_TRUE(RestoreWith([](SavedClient&) {}).ok());
  const auto why = [&](auto change) { return std::string(RestoreWith(change).message()); };
  EXPECT_THAT(why([](SavedClient& saved) { saved.commands_published = 0; }),
              HasSubstr("command ring"));
  EXPECT_THAT(why([](SavedClient& saved) { saved.commands_published = 5001; }),
              HasSubstr("command ring"));
  EXPECT_THAT(why([](SavedClient& saved) { saved.completions_written = 2000; }),
              HasSubstr("completion ring"));
  EXPECT_THAT(why([](SavedClient& saved) { saved.buffers[0].address = kBase + kMapped; }),
              HasSubstr("buffers"));
  EXPECT_THAT(why([](SavedClient& saved) { saved.buffers[0].bytes = ~std::uint64_t{0}; }),
              HasSubstr("buffers"));
  EXPECT_THAT(why([](SavedClient& saved) { saved.buffers.push_back(saved.buffers[0]); }),
              HasSubstr("buffers"));
}

TEST_F(SavedClientTest, HostileBytesAreRejectedOrHarmless) {
  const std::vector<std::byte> good = ipc::Encode(Example());
  std::mt19937 random(3);
  std::uint64_t accepted = 0;
  for (int i = 0; i < 20000; ++i) {
    std::vector<std::byte> bytes = good;
    for (std::uint32_t changes = random() % 4 + 1; changes > 0; --changes) {
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    }
    if (random() % 4 == 0) bytes.resize(random() % (bytes.size() + 64));
    const Result<SavedClient> saved = ipc::Decode<SavedClient>(bytes);
    if (!saved.ok()) continue;
    const auto client = Make();
    if (!Restore(*saved, kMapped, *client).ok()) continue;
    ++accepted;
    // What was accepted can be used and saved again.
    (void)client->intake.HasRecord();
    (void)client->output.HasRoom();
    EXPECT_TRUE(PassOn(Save(*client)).ok());
  }
  EXPECT_GT(accepted, 0u);
}

}  // namespace
}  // namespace gpushared::server
