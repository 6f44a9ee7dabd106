// SPDX-License-Identifier: Apache-2.0
// Calls that may take milliseconds must not delay urgent requests.
#include "server/worker/control/slow_calls.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/server/worker/harness.h"

namespace gpushared::testing {
namespace {

using namespace std::chrono_literals;
using server::SlowCalls;

constexpr std::chrono::nanoseconds kForGood = 1h;

// ---- the calls alone

// Records calls in the order in which they run. The first call blocks until the test has posted all
// others.
class SlowCallsTest : public ::testing::Test {
 protected:
  void HoldThread() {
    calls_.Post({.is_urgent = true}, [gate = gate_.get_future().share()] { gate.wait(); });
  }
  void LetGo() { gate_.set_value(); }
  void Post(const SlowCalls::Caller& caller, std::string name) {
    calls_.Post(caller, [this, name = std::move(name)] { made_.push_back(name); });
  }
  std::vector<std::string> Finish() {
    calls_.Finish();
    return made_;
  }

  std::promise<void> gate_;
  std::vector<std::string> made_;
  SlowCalls calls_{{.quiet = 0ns, .held_max = kForGood, .new_client_held_max = kForGood}};
};

using Names = std::vector<std::string>;

TEST_F(SlowCallsTest, UrgentCallsGoFirst) {
  HoldThread();
  Post({.session = 1}, "load of 1");
  Post({.session = 2, .is_urgent = true}, "load of 2");
  Post({.session = 2, .is_urgent = true}, "map of 2");
  LetGo();
  EXPECT_EQ(Finish(), (Names{"load of 2", "map of 2", "load of 1"}));
}

TEST_F(SlowCallsTest, NewClientsGoBeforeOtherNonUrgentClients) {
  HoldThread();
  Post({.session = 1}, "load of 1");
  Post({.session = 2, .is_new_client = true}, "welcome of 2");
  Post({.session = 3, .is_urgent = true}, "load of 3");
  LetGo();
  EXPECT_EQ(Finish(), (Names{"load of 3", "welcome of 2", "load of 1"}));
}

// Handshakes run before further calls of new clients, however many are already connected.
TEST_F(SlowCallsTest, HandshakesGoBeforeFurtherCallsOfNewClients) {
  HoldThread();
  Post({.session = 1, .is_new_client = true}, "staging buffer of 1");
  Post({.session = 2, .is_new_client = true}, "memory of 2");
  Post({.session = 3, .awaits_welcome = true}, "welcome of 3");
  Post({.session = 4, .is_urgent = true}, "load of 4");
  LetGo();
  EXPECT_EQ(Finish(), (Names{"load of 4", "welcome of 3", "staging buffer of 1", "memory of 2"}));
}

TEST_F(SlowCallsTest, HarmlessCallRunsDuringUrgentRequests) {
  calls_.RecordUrgentRequests(true);
  std::promise<void> made;
  calls_.Post({.session = 1, .disturbs = false}, [&] { made.set_value(); });
  EXPECT_EQ(made.get_future().wait_for(30s), std::future_status::ready);
}

TEST_F(SlowCallsTest, OtherCallsRunBetweenTwoPages) {
  HoldThread();
  calls_.Post({.session = 1}, [this, steps = 3]() mutable {
    made_.push_back("step of 1");
    return --steps > 0;
  });
  Post({.session = 1}, "next of 1");
  Post({.session = 2}, "map of 2");
  Post({.session = 3, .is_new_client = true}, "welcome of 3");
  LetGo();
  EXPECT_EQ(Finish(), (Names{"welcome of 3", "step of 1", "map of 2", "step of 1", "step of 1",
                             "next of 1"}));
}

// A connected urgent client does not wait for the cleanup of an urgent client that has left.
TEST_F(SlowCallsTest, DepartedClientsCallsAreLastAmongUrgentOnes) {
  HoldThread();
  Post({.session = 1, .awaits_welcome = true}, "welcome of 1");
  Post({.session = 2, .is_urgent = true, .has_left = true}, "memory of 2");
  Post({.session = 3, .is_urgent = true}, "memory of 3");
  LetGo();
  EXPECT_EQ(Finish(), (Names{"memory of 3", "memory of 2", "welcome of 1"}));
}

TEST_F(SlowCallsTest, HurriedSwapGoesFirst) {
  HoldThread();
  Post({.session = 1}, "load of 1");
  Post({.session = 2}, "load of 2");
  Post({.session = 2, .is_swap = true}, "move of 2");
  calls_.HurrySwap(2);
  LetGo();
  EXPECT_EQ(Finish(), (Names{"move of 2", "load of 1", "load of 2"}));
}

// The next page is not held even if the swap is hurried while the call for the previous page runs.
TEST_F(SlowCallsTest, PagesOfHurriedSwapAreNotHeld) {
  calls_.RecordUrgentRequests(true);
  std::promise<void> began, over;
  const std::future<void> has_begun = began.get_future();
  calls_.Post({.session = 1, .is_swap = true},
              [&, goes_on = gate_.get_future().share(), step = 0]() mutable {
                if (step++ == 0) {
                  began.set_value();
                  goes_on.wait();
                  return true;
                }
                over.set_value();
                return false;
              });
  EXPECT_EQ(has_begun.wait_for(20ms), std::future_status::timeout) << "it is held";
  calls_.RecordUrgentRequests(false);
  has_begun.wait();
  calls_.RecordUrgentRequests(true);
  calls_.HurrySwap(1);
  LetGo();
  EXPECT_EQ(over.get_future().wait_for(30s), std::future_status::ready);
}

TEST(SlowCallsHeld, NewClientsAreNotHeldForLong) {
  SlowCalls calls({.held_max = kForGood, .new_client_held_max = 10ms});
  calls.RecordUrgentRequests(true);
  std::promise<void> began;
  calls.Post({.session = 1, .is_new_client = true}, [&] { began.set_value(); });
  EXPECT_EQ(began.get_future().wait_for(20s), std::future_status::ready);
}

// A module must be freed before the memory that contains it.
TEST_F(SlowCallsTest, CallsKeepOrderWhenTheirSessionBecomesUrgent) {
  HoldThread();
  Post({.session = 1}, "unload of 1");
  Post({.session = 2}, "unload of 2");
  calls_.SetUrgent(2, true);
  Post({.session = 2, .is_urgent = true}, "end of 2");
  LetGo();
  EXPECT_EQ(Finish(), (Names{"unload of 2", "end of 2", "unload of 1"}));
}

TEST(SlowCallsHeld, AlternateWithUrgentOnesAfterBound) {
  std::promise<void> gate;
  Names made;
  SlowCalls calls({.held_max = 0ns});
  calls.RecordUrgentRequests(true);
  calls.Post({.is_urgent = true}, [opened = gate.get_future().share()] { opened.wait(); });
  for (const char* name : {"a low one", "a further low one"}) {
    calls.Post({.session = 1}, [&made, name] { made.emplace_back(name); });
  }
  for (const char* name : {"an urgent one", "a further urgent one"}) {
    calls.Post({.session = 2, .is_urgent = true}, [&made, name] { made.emplace_back(name); });
  }
  gate.set_value();
  calls.Finish();
  EXPECT_EQ(made,
            (Names{"an urgent one", "a low one", "a further urgent one", "a further low one"}));
}

// A call of many pages completes even if requests never pause.
TEST(SlowCallsHeld, FurtherPagesWaitInProportionToTheirDuration) {
  std::promise<void> begun, noted, ended;
  SlowCalls calls({.quiet = 0ns, .pause_factor = 1, .held_max = kForGood});
  calls.Post({.session = 1}, [&, left = 3]() mutable {
    if (left == 3) {
      begun.set_value();
      noted.get_future().wait();
    }
    if (--left == 0) ended.set_value();
    return left > 0;
  });
  begun.get_future().wait();
  calls.RecordUrgentRequests(true);
  noted.set_value();
  EXPECT_EQ(ended.get_future().wait_for(60s), std::future_status::ready);
  calls.Finish();
}

// Calls of earlier clients run, too, however many new clients connect.
TEST(SlowCallsHeld, AlternateWithNewClientsAfterBound) {
  std::promise<void> gate;
  Names made;
  SlowCalls calls({.held_max = 0ns});
  calls.Post({.is_urgent = true}, [opened = gate.get_future().share()] { opened.wait(); });
  calls.Post({.session = 1}, [&made] { made.emplace_back("an older one"); });
  for (std::uint64_t session = 2; session < 5; ++session) {
    calls.Post({.session = session, .is_new_client = true},
               [&made] { made.emplace_back("a new client"); });
  }
  gate.set_value();
  calls.Finish();
  EXPECT_EQ(made, (Names{"a new client", "an older one", "a new client", "a new client"}));
}

// Clients that connect and leave repeatedly do not delay connected clients indefinitely.
TEST(SlowCallsHeld, NewClientsAlternateWithHandshakesAfterBound) {
  std::promise<void> gate;
  Names made;
  SlowCalls calls({.held_max = kForGood, .new_client_held_max = 0ns});
  calls.Post({.is_urgent = true}, [opened = gate.get_future().share()] { opened.wait(); });
  calls.Post({.session = 1, .is_new_client = true}, [&] { made.emplace_back("memory"); });
  for (std::uint64_t session = 2; session < 5; ++session) {
    calls.Post({.session = session, .awaits_welcome = true},
               [&] { made.emplace_back("a welcome"); });
  }
  gate.set_value();
  calls.Finish();
  EXPECT_EQ(made, (Names{"a welcome", "memory", "a welcome", "a welcome"}));
}

TEST_F(SlowCallsTest, QueuedCallsRunAtShutdown) {
  calls_.RecordUrgentRequests(true);
  Post({.session = 1}, "load of 1");
  EXPECT_EQ(Finish(), Names{"load of 1"});
}

TEST_F(SlowCallsTest, HoldsCallsOfOtherThreads) {
  calls_.RecordUrgentRequests(true);
  std::atomic<bool> is_quiet = false;
  std::thread other([&] {
    calls_.AwaitQuiet();
    EXPECT_TRUE(is_quiet);
  });
  std::this_thread::sleep_for(20ms);
  is_quiet = true;
  calls_.RecordUrgentRequests(false);
  other.join();
}

TEST_F(SlowCallsTest, ShutdownDelaysNoCall) {
  calls_.RecordUrgentRequests(true);
  std::thread other([this] { calls_.AwaitQuiet(); });
  calls_.Finish();
  other.join();
}

TEST(SlowCallsQuiet, MustLastBeforeACallBegins) {
  SlowCalls calls({.quiet = 50ms, .held_max = kForGood});
  calls.RecordUrgentRequests(true);
  std::promise<SlowCalls::Clock::time_point> began;
  calls.Post({.session = 1}, [&] { began.set_value(SlowCalls::Clock::now()); });
  const SlowCalls::Clock::time_point quiet = SlowCalls::Clock::now();
  calls.RecordUrgentRequests(false);
  EXPECT_GE(began.get_future().get() - quiet, 50ms);
}

TEST(SlowCallsPause, FollowsCallThatDelayedUrgentRequest) {
  SlowCalls calls({.quiet = 0ns, .pause_factor = 2, .held_max = kForGood});
  SlowCalls::Clock::time_point ended;
  calls.Post({.session = 1}, [&] {
    calls.RecordUrgentRequests(true);
    std::this_thread::sleep_for(50ms);
    calls.RecordUrgentRequests(false);
    ended = SlowCalls::Clock::now();
  });
  std::promise<SlowCalls::Clock::time_point> began;
  calls.Post({.session = 1}, [&] { began.set_value(SlowCalls::Clock::now()); });
  EXPECT_GE(began.get_future().get() - ended, 100ms);
}

TEST(SlowCallsPause, FollowsNoOtherCall) {
  SlowCalls calls({.quiet = 0ns, .pause_factor = 1'000'000, .held_max = kForGood});
  calls.RecordUrgentRequests(true);
  calls.RecordUrgentRequests(false);
  calls.Post({.session = 1}, [] { std::this_thread::sleep_for(1ms); });
  std::promise<void> began;
  calls.Post({.session = 1}, [&] { began.set_value(); });
  EXPECT_EQ(began.get_future().wait_for(20s), std::future_status::ready);
}

// ---- in a worker

struct Urgent {
  const char* name;
  const char* policy;
  WorkerHarness::ClientOptions client;
};

server::WorkerOptions Options(const char* policy, std::chrono::nanoseconds held_max,
                              std::uint32_t new_client_calls) {
  server::WorkerOptions options;
  options.settings.policy = policy;
  options.slow_calls = {.quiet = 0ns, .held_max = held_max, .new_client_calls = new_client_calls};
  return options;
}

// A worker with an urgent and a low client, which have 4 MiB each.
class WorkerSlowCalls {
 public:
  explicit WorkerSlowCalls(
      std::chrono::nanoseconds held_max = kForGood, const char* policy = "priority",
      const WorkerHarness::ClientOptions& high = {.client_class = SchedulingClass::kHigh},
      std::uint32_t new_client_calls = 0)
      : worker_({}, Options(policy, held_max, new_client_calls)),
        urgent_(worker_.Client(high)),
        low_(worker_.Client({.client_class = SchedulingClass::kLow})) {}

  // Returns when the device thread has handled all messages sent to the worker so far, and the
  // other threads have handled its reports.
  void Settle() {
    EXPECT_NE(worker_.AskAdmin(ipc::AdminVerb::kStatus), "");
    EXPECT_NE(worker_.AskAdmin(ipc::AdminVerb::kStatus), "");
  }
  void OpenRequest() {
    urgent_.Launch(0, 0, 0);
    EXPECT_EQ(worker_.device().WaitForSubmissions(1).size(), 1u);
    Settle();
  }
  void AskForMore() {
    EXPECT_TRUE(low_.Send(ipc::ResizeMemory{.bytes = 8 * kMiB}).ok());
    Settle();
  }
  // Expects that the low client's request waits: a later request of the urgent client runs first.
  void ExpectItWaits() {
    EXPECT_TRUE(urgent_.Resize(6 * kMiB).ok());
    EXPECT_EQ(worker_.device().mapped_bytes(), 10 * kMiB);
  }
  void ExpectItGets() {
    const auto resized = low_.Receive<ipc::MemoryResized>();
    EXPECT_TRUE(resized.ok()) << resized.status().ToString();
  }

  WorkerHarness worker_;
  RawClient urgent_, low_;
};

class AnUrgentClient : public ::testing::TestWithParam<Urgent> {};

TEST_P(AnUrgentClient, IsNotDelayedByMemoryRequestOfLowClient) {
  WorkerSlowCalls test(kForGood, GetParam().policy, GetParam().client);
  test.OpenRequest();
  test.AskForMore();
  test.ExpectItWaits();
  test.worker_.device().FinishAll();
  test.ExpectItGets();
}

INSTANTIATE_TEST_SUITE_P(
    SlowCalls, AnUrgentClient,
    ::testing::Values(
        Urgent{"OfTheHighClass", "priority", {.client_class = SchedulingClass::kHigh}},
        Urgent{"WithAPromise", "deadline", {.latency_target_ns = 5'000'000}}),
    [](const auto& test) { return test.param.name; });

TEST(WorkerSlowCalls, RequestIsOpenFromItsMarkToItsEnd) {
  WorkerSlowCalls test;
  test.urgent_.BeginRequest(0);
  test.Settle();
  test.AskForMore();
  test.ExpectItWaits();
  test.urgent_.EndRequest(0);
  test.ExpectItGets();
}

// The device makes calls itself, for example to load a module that it has compiled.
TEST(WorkerSlowCalls, HoldsDevicesOwnCalls) {
  WorkerSlowCalls test;
  test.OpenRequest();
  std::atomic<bool> has_finished = false;
  std::thread device([&] {
    test.worker_.AwaitQuiet();
    EXPECT_TRUE(has_finished);
  });
  std::this_thread::sleep_for(20ms);
  has_finished = true;
  test.worker_.device().FinishAll();
  device.join();
}

TEST(WorkerSlowCalls, NoCallIsDelayedBeyondTheBound) {
  WorkerSlowCalls test(20ms);
  test.OpenRequest();
  test.AskForMore();
  test.ExpectItGets();
}

// A new client's first short calls load its module and allocate its first memory.
TEST(WorkerSlowCalls, HardlyHoldsFirstShortCallsOfNewClient) {
  const WorkerHarness::ClientOptions high = {.client_class = SchedulingClass::kHigh};
  WorkerSlowCalls test(kForGood, "priority", high, 3);
  test.OpenRequest();
  test.AskForMore();
  test.ExpectItGets();
  EXPECT_TRUE(test.low_.Send(ipc::ResizeMemory{.bytes = 12 * kMiB}).ok());
  test.Settle();
  EXPECT_EQ(test.worker_.device().mapped_bytes(), 12 * kMiB);
  test.worker_.device().FinishAll();
  test.ExpectItGets();
}

TEST(WorkerSlowCalls, HoldsLongCallOfNewClient) {
  const WorkerHarness::ClientOptions high = {.client_class = SchedulingClass::kHigh};
  WorkerSlowCalls test(kForGood, "priority", high, 3);
  test.OpenRequest();
  EXPECT_TRUE(test.low_.Send(ipc::ResizeMemory{.bytes = 64 * kMiB}).ok());
  std::this_thread::sleep_for(5 * server::SlowCallRules().new_client_held_max);
  EXPECT_EQ(test.worker_.device().mapped_bytes(), 8 * kMiB);
  test.worker_.device().FinishAll();
  test.ExpectItGets();
}

// A large staging buffer is held like other memory, although clearing its pages takes longer than
// other calls for as many bytes.
TEST(WorkerSlowCalls, HoldsLargeStagingBufferOfNewClient) {
  const WorkerHarness::ClientOptions high = {.client_class = SchedulingClass::kHigh};
  WorkerSlowCalls test(kForGood, "priority", high, 3);
  test.OpenRequest();
  EXPECT_TRUE(test.low_.Send(ipc::AddStagingBuffer{.bytes = 4 * kMiB}).ok());
  constexpr auto kLong = 5 * server::SlowCallRules().new_client_held_max;
  EXPECT_FALSE(test.low_.NextFrame(std::chrono::ceil<std::chrono::milliseconds>(kLong)).ok());
  test.worker_.device().FinishAll();
  EXPECT_TRUE(test.low_.NextFrame(30s).ok());
}

// A handshake does not delay other clients' work, so it waits for none of their requests.
TEST(WorkerSlowCalls, HandshakeRunsDuringUrgentRequest) {
  server::WorkerOptions options = Options("priority", kForGood, 0);
  options.slow_calls.new_client_held_max = kForGood;
  WorkerHarness worker({}, options);
  RawClient urgent = worker.Client({.client_class = SchedulingClass::kHigh});
  urgent.Launch(0, 0, 0);
  EXPECT_EQ(worker.device().WaitForSubmissions(1).size(), 1u);
  EXPECT_NE(worker.AskAdmin(ipc::AdminVerb::kStatus), "");
  RawClient new_client = worker.Connect({});
  const Status welcome = new_client.AwaitWelcome();
  EXPECT_TRUE(welcome.ok()) << welcome.ToString();
  worker.device().FinishAll();
}

TEST(WorkerSlowCalls, DoesNotWaitForDepartedClient) {
  WorkerSlowCalls test;
  test.OpenRequest();
  test.AskForMore();
  test.urgent_.CloseSocket();
  test.ExpectItGets();
}

TEST(WorkerSlowCalls, DoesNotWaitForClientThatCeasedToBeUrgent) {
  WorkerSlowCalls test;
  test.OpenRequest();
  test.AskForMore();
  test.worker_.Send(ipc::SetSession{.session = 1, .client_class = SchedulingClass::kLow});
  test.ExpectItGets();
}

TEST(WorkerSlowCalls, ClientThatBecomesUrgentStopsWaiting) {
  WorkerSlowCalls test;
  test.OpenRequest();
  test.AskForMore();
  test.worker_.Send(ipc::SetSession{.session = 2, .client_class = SchedulingClass::kHigh});
  test.ExpectItGets();
}

TEST(WorkerSlowCalls, DelaysNoCallUnderClasslessPolicies) {
  WorkerSlowCalls test(kForGood, "fair");
  test.OpenRequest();
  test.AskForMore();
  test.ExpectItGets();
}

}  // namespace
}  // namespace gpushared::testing
