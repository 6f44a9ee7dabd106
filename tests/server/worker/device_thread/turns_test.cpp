// SPDX-License-Identifier: Apache-2.0
// Turns of gated clients: when their gates open and close, and how the worker limits the effect of
// invalid values that the clients write to shared memory.
#include "server/worker/dispatch/turns.h"

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/worker/harness.h"

#include <nlohmann/json.hpp>

namespace gpushared::testing {
namespace {

using server::Turns;
using std::chrono::milliseconds;
using ::testing::HasSubstr;

// A client that submits launches to a GPU that the test imitates: `passed` follows `marked` when
// the test calls Pass. A turn without launches soon ends, so tests that need an open gate launch
// before they request the turn.
class GatedClient {
 public:
  GatedClient(WorkerHarness& worker, SchedulingClass client_class)
      : client_(worker.Client({.name = "gated", .client_class = client_class, .is_gated = true})) {}

  RawClient& raw() { return client_; }
  const ipc::GateState& gate() const { return client_.completions().gate; }
  ipc::GateUse& use() { return client_.commands().gate; }
  std::uint64_t Ask() { return client_.Plain(ipc::Op::kTurn, 0); }
  bool IsOpen(std::uint64_t turn) const { return gate().open.load() == turn; }
  bool AwaitOpen(std::uint64_t turn) {
    return Eventually([&] { return IsOpen(turn); });
  }
  // Waits until the turn has been opened; it may have been closed again.
  bool AwaitOpened(std::uint64_t turn) {
    return Eventually([&] { return gate().last_opened.load() >= turn; });
  }
  bool AwaitClosed() {
    return Eventually([&] { return IsOpen(0); });
  }
  bool HasEnded(std::uint64_t turn) const { return client_.finished(0) >= turn; }
  bool AwaitEnd(std::uint64_t turn) { return client_.AwaitFinished(0, turn); }
  // Submits launches, followed by a mark.
  void Launch(std::uint32_t launches = 1, std::uint32_t slot = 0) {
    use().slots = std::max(use().slots.load(), slot + 1);
    use().marked[slot] += 1;
    use().submitted += launches;
  }
  void Pass(std::uint32_t slot = 0) { use().passed[slot] = use().marked[slot].load(); }
  std::uint32_t window_ns() const { return gate().window_ns.load(); }
  bool waits() const { return gate().waits.load() != 0; }

 private:
  RawClient client_;
};

server::WorkerOptions Policy(std::string policy) {
  return {.settings = {.policy = std::move(policy)}};
}

TEST(Turns, GateOpensWhileTheClientHasWork) {
  WorkerHarness worker(kAtOnce, Policy("priority"));
  GatedClient client(worker, SchedulingClass::kLow);
  EXPECT_TRUE(client.IsOpen(0));
  const std::atomic<std::uint32_t>& event = client.raw().completions().event;
  const std::uint32_t before = event;
  client.Launch(3);
  const std::uint64_t turn = client.Ask();
  ASSERT_TRUE(client.AwaitOpen(turn));
  EXPECT_TRUE(Eventually([&] { return event != before; })) << "its threads are woken";
  EXPECT_EQ(client.gate().last_opened.load(), turn);
  std::this_thread::sleep_for(4 * Turns::kUnused);
  EXPECT_TRUE(client.IsOpen(turn)) << "its GPU has not passed the mark";
  EXPECT_FALSE(client.HasEnded(turn));
  client.Pass();
  ASSERT_TRUE(client.AwaitEnd(turn));
  EXPECT_TRUE(client.IsOpen(0));
  EXPECT_EQ(client.gate().last_opened.load(), turn);
}

TEST(Turns, LaunchesAfterTheLastMarkCountAsWork) {
  WorkerHarness worker(kAtOnce, Policy("priority"));
  GatedClient client(worker, SchedulingClass::kLow);
  client.Launch();
  const std::uint64_t turn = client.Ask();
  ASSERT_TRUE(client.AwaitOpen(turn));
  const auto since = std::chrono::steady_clock::now();
  client.use().launched_ns[0] = 15'000'000;
  client.Pass();
  ASSERT_TRUE(client.AwaitEnd(turn));
  EXPECT_GE(std::chrono::steady_clock::now() - since, milliseconds(15));
}

TEST(Turns, UnusedTurnEnds) {
  WorkerHarness worker(kAtOnce, Policy("priority"));
  GatedClient client(worker, SchedulingClass::kLow);
  ASSERT_TRUE(client.AwaitEnd(client.Ask()));
  const std::uint64_t second = client.Ask();
  ASSERT_TRUE(client.AwaitOpened(second));
}

// Gated clients and library clients are scheduled by one lane.
TEST(Turns, HighLaunchOfLibraryClientClosesLowGate) {
  WorkerHarness worker({}, Policy("priority"));
  GatedClient low(worker, SchedulingClass::kLow);
  RawClient high = worker.Client({.name = "high", .client_class = SchedulingClass::kHigh});
  low.Launch(5);
  const std::uint64_t turn = low.Ask();
  ASSERT_TRUE(low.AwaitOpen(turn));
  const Sequence request = high.Launch(0, 0, 0);
  ASSERT_TRUE(low.AwaitClosed());
  std::this_thread::sleep_for(milliseconds(3));
  low.Pass();
  ASSERT_EQ(worker.device().WaitForSubmissions(1).size(), 1u);
  EXPECT_TRUE(low.IsOpen(0));
  EXPECT_FALSE(low.HasEnded(turn)) << "it was preempted, so it goes on later";
  worker.device().FinishOldest();
  ASSERT_TRUE(high.AwaitFinished(0, request));
  ASSERT_TRUE(Eventually([&] { return low.IsOpen(turn) || low.HasEnded(turn); }));
  const auto clients = nlohmann::json::parse(worker.AskAdmin(ipc::AdminVerb::kClients));
  EXPECT_EQ(clients["clients"][0]["launches"], 5);
  EXPECT_EQ(clients["clients"][0]["stops"], 1);
}

TEST(Turns, ExplanationNamesTheTurnThatARequestWaitedFor) {
  WorkerHarness worker({}, Policy("round_robin"));
  GatedClient low(worker, SchedulingClass::kLow);
  RawClient other = worker.Client({.name = "other"});
  low.Launch(5);
  ASSERT_TRUE(low.AwaitOpen(low.Ask()));
  low.use().longest_ns = 812'345;
  low.use().longest_name[0] = 0x1b'6d'6d'65'67'73;  // "sgemm" and a control character.
  other.BeginRequest(0);
  const Sequence request = other.Launch(0, 0, 0);
  other.EndRequest(0);
  ASSERT_TRUE(low.AwaitClosed());
  low.Pass();
  ASSERT_EQ(worker.device().WaitForSubmissions(1).size(), 1u);
  worker.device().FinishOldest();
  ASSERT_TRUE(other.AwaitFinished(0, request));
  EXPECT_THAT(worker.AskAdmin({.verb = ipc::AdminVerb::kExplain, .client = 2}),
              HasSubstr("turn of 5 launches, longest 'sgemm?' 0.812 ms"));
}

TEST(Turns, HighGatedClientPreemptsLowLaunchOfLibraryClient) {
  WorkerHarness worker({}, Policy("priority"));
  RawClient low = worker.Client({.name = "low", .client_class = SchedulingClass::kLow});
  GatedClient high(worker, SchedulingClass::kHigh);
  EXPECT_FALSE(high.waits());
  low.Launch(0, 0, 0, {.x = 100});
  ASSERT_EQ(worker.device().WaitForSubmissions(1).size(), 1u);
  high.Launch();  // A client of class high does not wait for its gate.
  const std::uint64_t turn = high.Ask();
  ASSERT_TRUE(Eventually([&] { return worker.device().stops_asked() == 1; }));
  ASSERT_TRUE(high.AwaitOpen(turn));
  high.Pass();
  ASSERT_TRUE(high.AwaitEnd(turn));
  worker.device().RunAtOnce();
}

TEST(Turns, WindowAndWaitingFollowTheOtherClients) {
  WorkerHarness worker(kAtOnce, Policy("priority"));
  GatedClient low(worker, SchedulingClass::kLow);
  EXPECT_EQ(low.window_ns(), 0u) << "nobody else is connected";
  EXPECT_TRUE(low.waits());
  RawClient normal = worker.Client({.name = "normal"});
  EXPECT_TRUE(Eventually([&] { return low.window_ns() == 500'000; }));
  {
    RawClient high = worker.Client({.name = "high", .client_class = SchedulingClass::kHigh});
    EXPECT_TRUE(Eventually([&] { return low.window_ns() == 250'000; }));
  }
  EXPECT_TRUE(Eventually([&] { return low.window_ns() == 500'000; }));
  worker.Send(ipc::SetSession{.session = 1, .client_class = SchedulingClass::kHigh});
  EXPECT_TRUE(Eventually([&] { return !low.waits(); }));
}

// Turns of the class that never waits are not preempted. Without this order, they would accumulate
// on the device.
TEST(Turns, TurnsOfAClientFollowOneAnother) {
  WorkerHarness worker(kAtOnce, Policy("priority"));
  GatedClient client(worker, SchedulingClass::kHigh);
  client.Launch();
  const std::uint64_t first = client.Ask();
  ASSERT_TRUE(client.AwaitOpen(first));
  for (int i = 0; i < 50; ++i) client.Ask();
  std::this_thread::sleep_for(milliseconds(20));
  const auto clients = nlohmann::json::parse(worker.AskAdmin(ipc::AdminVerb::kClients));
  EXPECT_EQ(clients["clients"][0]["commands_in_flight"], 1);
  EXPECT_TRUE(client.IsOpen(first));
  client.Pass();
  ASSERT_TRUE(client.AwaitEnd(first + 50));
}

TEST(Turns, EverybodyWaitsWhereClassesDoNotMatter) {
  for (const char* policy : {"fifo", "round_robin", "fair"}) {
    WorkerHarness worker(kAtOnce, Policy(policy));
    GatedClient high(worker, SchedulingClass::kHigh);
    EXPECT_TRUE(high.waits()) << policy;
  }
}

// Under fifo nothing is preempted. A turn therefore ends after a time limit if other clients are
// connected, and the client's next turn is queued last.
TEST(Turns, BusyGatedClientsAlternateUnderEveryPolicy) {
  for (const char* policy : {"fifo", "round_robin", "fair", "priority", "deadline"}) {
    WorkerHarness worker(kAtOnce, Policy(policy));
    GatedClient one(worker, SchedulingClass::kLow), two(worker, SchedulingClass::kLow);
    std::atomic<bool> over = false;
    std::atomic<int> opened[2] = {};
    const auto train = [&over](GatedClient& client, std::atomic<int>& count) {
      std::uint64_t turn = client.Ask();
      for (bool was_open = false; !over;) {
        const bool is_open = client.IsOpen(turn);
        if (is_open) client.Launch();
        if (is_open && !was_open) ++count;
        client.Pass();
        was_open = is_open;
        if (client.HasEnded(turn)) turn = client.Ask();
        std::this_thread::sleep_for(std::chrono::microseconds(20));
      }
    };
    std::thread first([&] { train(one, opened[0]); }), second([&] { train(two, opened[1]); });
    EXPECT_TRUE(Eventually([&] { return opened[0] >= 5 && opened[1] >= 5; }))
        << policy << ": " << opened[0] << ", " << opened[1];
    over = true;
    first.join();
    second.join();
  }
}

// The client lies about its marks, so that its work never seems to end.
TEST(Turns, LostTurnDelaysOthersByTheDrainLimitOnly) {
  WorkerHarness worker(kAtOnce, Policy("round_robin"));
  GatedClient low(worker, SchedulingClass::kLow);
  RawClient other = worker.Client({.name = "other"});
  low.Launch();
  const std::uint64_t turn = low.Ask();
  ASSERT_TRUE(low.AwaitOpen(turn));
  low.use().marked[0] = 0xffffffff;
  std::atomic<bool> over = false;
  std::thread liar([&] {
    while (!over) {
      low.use().submitted += 1;
      low.use().passed[0] += 1;
      std::this_thread::sleep_for(milliseconds(1));
    }
  });
  const auto since = std::chrono::steady_clock::now();
  ASSERT_TRUE(other.AwaitFinished(0, other.Launch(0, 0, 0)));
  EXPECT_GE(std::chrono::steady_clock::now() - since, Turns::kDrainMax);
  over = true;
  liar.join();
}

TEST(Turns, ClientThatLeavesFreesTheDevice) {
  WorkerHarness worker(kAtOnce, Policy("priority"));
  RawClient other = worker.Client({.name = "other", .client_class = SchedulingClass::kHigh});
  {
    GatedClient low(worker, SchedulingClass::kLow);
    low.Launch();
    ASSERT_TRUE(low.AwaitOpen(low.Ask()));
  }
  ASSERT_TRUE(other.AwaitFinished(0, other.Launch(0, 0, 0)));
  ASSERT_TRUE(Eventually([&] {
    const auto clients = nlohmann::json::parse(worker.AskAdmin(ipc::AdminVerb::kClients));
    return clients["clients"].size() == 1;
  }));
}

TEST(Turns, HighClientThatBecomesLowGivesUpItsTurn) {
  WorkerHarness worker(kAtOnce, Policy("priority"));
  GatedClient client(worker, SchedulingClass::kHigh);
  client.Launch();
  const std::uint64_t turn = client.Ask();
  ASSERT_TRUE(client.AwaitOpen(turn));
  worker.Send(ipc::SetSession{.session = 1, .client_class = SchedulingClass::kLow});
  ASSERT_TRUE(client.AwaitClosed());
  EXPECT_TRUE(client.waits());
  client.Pass();
  ASSERT_TRUE(client.AwaitEnd(turn));
  ASSERT_TRUE(client.AwaitOpened(client.Ask()));
}

TEST(Turns, WordsOutOfRangeAreBounded) {
  WorkerHarness worker(kAtOnce, Policy("priority"));
  GatedClient low(worker, SchedulingClass::kLow);
  low.use().slots = 0xffffffff;
  low.use().launched_ns[7] = ~std::uint64_t{0};
  const std::uint64_t turn = low.Ask();
  ASSERT_TRUE(low.AwaitOpened(turn));
  ASSERT_TRUE(low.AwaitEnd(turn));
}

TEST(Turns, OnlyGatedClientsMayRequestThem) {
  WorkerHarness worker(kAtOnce, Policy("priority"));
  RawClient client = worker.Client();
  client.Plain(ipc::Op::kTurn, 0);
  const Status why = client.AwaitEnd();
  EXPECT_EQ(why.code(), StatusCode::kProtocolViolation);
  EXPECT_THAT(why.message(), HasSubstr("client that is not gated"));
}

}  // namespace
}  // namespace gpushared::testing
