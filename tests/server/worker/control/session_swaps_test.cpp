// SPDX-License-Identifier: Apache-2.0
// Session memory that is swapped out and in, on a device whose calls the test can block.
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/worker/harness.h"

#include <nlohmann/json.hpp>

namespace gpushared::testing {
namespace {

using ::testing::ElementsAre;
using Call = StepDevice::MemoryCall;

constexpr std::uint64_t kStep = 2 * kMiB;

server::WorkerOptions MovingWorker() {
  server::WorkerOptions options;
  options.settings.overcommit_bytes = 256 * kMiB;
  // Every client may be evicted as soon as its memory is requested.
  options.residency.residency_factor = 0;
  options.residency.residency_min = options.residency.idle_min = options.residency.notice = {};
  // No held call is ever due, so urgent calls always come first.
  options.slow_calls.held_max = std::chrono::hours(1);
  return options;
}

// Two clients without a guarantee share a device that is full. Six pages of the first one are
// swapped out.
class WorkerSwaps : public ::testing::Test {
 protected:
  explicit WorkerSwaps(const server::WorkerOptions& options = MovingWorker())
      : worker_({.runs_at_once = true, .memory_bytes = 64 * kMiB, .swaps_memory = true}, options) {
    EXPECT_TRUE(first_.Resize(32 * kMiB).ok());
    EXPECT_TRUE(second_.Resize(32 * kMiB).ok());
    EXPECT_EQ(worker_.device().free_memory_bytes(), 0u);
    EXPECT_EQ(Row("first")["resident_bytes"], 32 * kMiB - 6 * kStep);
    EXPECT_EQ(Row("second")["resident_bytes"], 32 * kMiB);
  }
  // Returns a high client with 4 MiB of memory and a guarantee of 8 MiB.
  RawClient High(const std::string& name) {
    return worker_.Client(
        {.name = name, .client_class = SchedulingClass::kHigh, .quota_bytes = 8 * kMiB});
  }
  RawClient Low(const std::string& name) {
    return worker_.Client({.name = name, .guaranteed_bytes = 0});
  }
  nlohmann::json Row(const std::string& name) {
    const auto told = nlohmann::json::parse(worker_.AskAdmin(ipc::AdminVerb::kClients));
    for (const auto& row : told["clients"]) {
      if (row["name"] == name) return row;
    }
    return {};
  }
  // Waits until the device thread reports that the client waits for memory. The device thread has
  // then carried out its decision.
  bool AwaitWaiting(const std::string& name) {
    return Eventually([&] { return Row(name)["memory_waited_s"] > 0; });
  }
  // Waits until the control thread has read all messages that clients have sent, and the device
  // thread has handled their effects.
  void LetThemRead() {
    for (int i = 0; i < 2; ++i) (void)Row("");
  }
  std::vector<Call> CallsSince(std::size_t count) {
    std::vector<Call> calls = worker_.device().memory_calls();
    calls.erase(calls.begin(), calls.begin() + static_cast<std::ptrdiff_t>(count));
    return calls;
  }
  Call Out(const RawClient& client, std::uint64_t step) {
    return {Call::Kind::kOut, client.base(), step * kStep};
  }

  WorkerHarness worker_;
  RawClient high_ = High("high"), other_ = High("other"), third_ = High("third");
  RawClient first_ = Low("first"), second_ = Low("second");
};

// Each swap must move at least one page, because a client that sends requests repeatedly could
// otherwise interrupt every swap before it begins.
TEST_F(WorkerSwaps, InterruptedSwapMovesExactlyOnePage) {
  StepDevice& device = worker_.device();
  device.HoldResizes(4 * kMiB + 1);
  // A resize is in progress, and the next requests are queued after it.
  ASSERT_TRUE(other_.Send(ipc::ResizeMemory{.bytes = 4 * kMiB}).ok());
  ASSERT_TRUE(device.AwaitHeldCall());
  ASSERT_TRUE(high_.Send(ipc::ResizeMemory{.bytes = 6 * kMiB}).ok());
  LetThemRead();
  ASSERT_TRUE(third_.Send(ipc::ResizeMemory{.bytes = 2 * kMiB}).ok());
  LetThemRead();
  // Six pages of the second client are to be evicted.
  const Sequence launch = first_.Launch(0, 0, 0);
  ASSERT_TRUE(AwaitWaiting("first"));

  device.ReleaseHeldCall();
  ASSERT_TRUE(other_.Receive<ipc::MemoryResized>().ok());
  ASSERT_TRUE(device.AwaitHeldCall());
  ASSERT_TRUE(AwaitWaiting("high")) << "the move that waits is cut for it";
  const std::size_t before = device.memory_calls().size();
  device.ReleaseHeldCall();
  ASSERT_TRUE(high_.Receive<ipc::MemoryResized>().ok());
  const std::vector<Call> calls = CallsSince(before);
  ASSERT_GE(calls.size(), 3u);
  EXPECT_THAT(std::vector<Call>(calls.begin(), calls.begin() + 3),
              ElementsAre(Call{Call::Kind::kResize, third_.base(), 2 * kMiB}, Out(second_, 15),
                          Call{Call::Kind::kResize, high_.base(), 6 * kMiB}));
  EXPECT_TRUE(first_.AwaitFinished(0, launch)) << "the rest of it is made afterwards";
}

// ---- which client is idle

// A device on which a client stays resident for longer than any test waits, unless it is idle, and
// which rarely checks for idleness.
class SeldomPolls : public WorkerSwaps {
 protected:
  static constexpr std::chrono::milliseconds kLookEvery{100}, kIdle{400}, kWatched{1200};

  SeldomPolls() : WorkerSwaps(Options()) {}
  static server::WorkerOptions Options() {
    server::WorkerOptions options = MovingWorker();
    options.residency.residency_min = options.residency.residency_max = std::chrono::hours(1);
    options.residency.idle_min = kIdle;
    options.residency.busy_check_interval = kLookEvery;
    return options;
  }
  // Submits one short command after another; returns whether no pause caused by the machine was
  // long enough to count as idle.
  bool WorkOn(RawClient& client) {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point end = Clock::now() + kWatched;
    Clock::time_point last = Clock::now();
    bool was_steady = true;
    while (last < end) {
      EXPECT_TRUE(client.AwaitFinished(0, client.Launch(0, 0, 0)));
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      was_steady &= Clock::now() - last < kIdle / 2;
      last = Clock::now();
    }
    return was_steady;
  }
};

// A client may seem idle at every check, because its commands begin and end between two checks.
TEST_F(SeldomPolls, ClientOfShortCommandsIsNotIdle) {
  bool was_steady = false;
  for (int attempt = 0; attempt < 10 && !was_steady; ++attempt) {
    const auto times_out = Row("second")["swap_outs"];
    const Sequence launch = first_.Launch(0, 0, 0);
    ASSERT_TRUE(AwaitWaiting("first"));
    was_steady = WorkOn(second_);
    if (was_steady) {
      EXPECT_EQ(Row("second")["swap_outs"], times_out);
    }
    EXPECT_TRUE(first_.AwaitFinished(0, launch)) << "without commands it is idle";
    EXPECT_TRUE(second_.AwaitFinished(0, second_.Launch(0, 0, 0)));
  }
  EXPECT_TRUE(was_steady) << "this machine pauses all the time";
}

// ---- clients that leave at a bad moment

TEST_F(WorkerSwaps, ClientDeathDuringItsSwapDelaysNoOther) {
  StepDevice& device = worker_.device();
  device.SuspendSwapsOut();
  const Sequence launch = first_.Launch(0, 0, 0);
  ASSERT_TRUE(device.AwaitHeldCall());
  second_.CloseSocket();
  LetThemRead();
  device.HoldNothing();
  ASSERT_TRUE(worker_.Await<ipc::SessionEnded>());
  EXPECT_EQ(device.spaces_alive(), 4);
  EXPECT_TRUE(first_.AwaitFinished(0, launch));
  EXPECT_EQ(device.free_memory_bytes(), 64 * kMiB - 12 * kMiB - 32 * kMiB);
}

TEST_F(WorkerSwaps, DeathOfClientThatAwaitsAnEvictionCancelsItsRequest) {
  StepDevice& device = worker_.device();
  device.SuspendSwapsOut();
  ASSERT_TRUE(high_.Send(ipc::ResizeMemory{.bytes = 8 * kMiB}).ok());
  ASSERT_TRUE(device.AwaitHeldCall());
  high_.CloseSocket();
  LetThemRead();
  device.HoldNothing();
  ASSERT_TRUE(worker_.Await<ipc::SessionEnded>());
  EXPECT_EQ(device.spaces_alive(), 4);
  EXPECT_TRUE(first_.AwaitFinished(0, first_.Launch(0, 0, 0)));
  EXPECT_TRUE(second_.AwaitFinished(0, second_.Launch(0, 0, 0)));
}

// Both clients are urgent, and the one that has left made its request first.
TEST_F(WorkerSwaps, CleanupOfDepartedClientRunsAfterConnectedClientsCalls) {
  StepDevice& device = worker_.device();
  device.HoldResizes(4 * kMiB + 1);
  ASSERT_TRUE(other_.Send(ipc::ResizeMemory{.bytes = 4 * kMiB}).ok());
  ASSERT_TRUE(device.AwaitHeldCall());
  const std::size_t before = device.memory_calls().size();
  high_.CloseSocket();
  ASSERT_TRUE(Eventually([&] { return Row("high").is_null(); })) << "its end waits for a call";
  ASSERT_TRUE(third_.Send(ipc::ResizeMemory{.bytes = 2 * kMiB}).ok());
  LetThemRead();
  // Modules are freed first, one at a time.
  const int modules = device.modules_alive();
  device.ReleaseHeldCall();
  ASSERT_TRUE(device.AwaitHeldCall());
  EXPECT_EQ(device.modules_alive(), modules) << "it went before one that is here";
  device.HoldNothing();
  ASSERT_TRUE(third_.Receive<ipc::MemoryResized>().ok());
  ASSERT_TRUE(worker_.Await<ipc::SessionEnded>());
  EXPECT_THAT(CallsSince(before), ElementsAre(Call{Call::Kind::kResize, other_.base(), 4 * kMiB},
                                              Call{Call::Kind::kResize, third_.base(), 2 * kMiB},
                                              Call{Call::Kind::kResize, high_.base(), 0}));
}

// Pages to swap are chosen in advance, and some have been freed when their turn comes.
TEST_F(WorkerSwaps, FreeingDuringSwapDelaysNoOther) {
  StepDevice& device = worker_.device();
  device.SuspendSwapsOut();
  const Sequence launch = first_.Launch(0, 0, 0);
  ASSERT_TRUE(device.AwaitHeldCall());
  ASSERT_TRUE(second_.Send(ipc::ResizeMemory{.bytes = 4 * kMiB}).ok());
  LetThemRead();
  device.HoldNothing();
  ASSERT_TRUE(second_.Receive<ipc::MemoryResized>().ok());
  EXPECT_TRUE(first_.AwaitFinished(0, launch));
  EXPECT_TRUE(second_.AwaitFinished(0, second_.Launch(0, 0, 0)));
  EXPECT_EQ(device.free_memory_bytes(), 64 * kMiB - 12 * kMiB - 36 * kMiB);
}

}  // namespace
}  // namespace gpushared::testing
