// SPDX-License-Identifier: Apache-2.0
// A worker writes its trace for watchers, and limits who may watch.
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/telemetry/trace/reader.h"
#include "server/worker/control/trace_request_handler.h"
#include "tests/server/worker/harness.h"

#include <nlohmann/json.hpp>

namespace gpushared::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

// A watcher on a connection that the broker has handed over.
class Watcher {
 public:
  Watcher(WorkerHarness& worker, bool is_operator) {
    int pair[2] = {-1, -1};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    connection_ = ipc::UniqueFd(pair[0]);
    EXPECT_TRUE(ipc::SetNonBlocking(pair[1], true).ok());
    std::vector<ipc::UniqueFd> fds;
    fds.emplace_back(pair[1]);
    worker.Send(ipc::Watch{.uid = 1000, .pid = 7, .request = 5, .is_operator = is_operator}, 0,
                std::move(fds));
    Result<ipc::Frame> frame = ipc::ReceiveFrame(connection_.get(), ipc::ServerFrameRules, Soon());
    if (!frame.ok()) {
      why_ = frame.status();
      return;
    }
    EXPECT_EQ(frame->request, 5U);
    const Result<ipc::TraceOpened> opened = ipc::DecodeReply<ipc::TraceOpened>(*frame);
    why_ = opened.status();
    if (!opened.ok()) return;
    EXPECT_EQ(opened->layout, trace::kLayoutNumber);
    reader_ = *trace::Reader::Open(std::move(frame->fds.at(0)));
  }

  const Status& why() const { return why_; }
  trace::Reader& reader() { return *reader_; }
  int connection() const { return connection_.get(); }
  void Leave() { connection_.Reset(); }

  // Returns all events of one kind once there are `count`; fewer after 30 s.
  template <typename T>
  std::vector<T> Await(std::size_t count) {
    std::vector<T> found;
    (void)Eventually([&] {
      reader_->Poll([&](const trace::Event& event) {
        if (const T* const each = std::get_if<T>(&event)) found.push_back(*each);
      });
      return found.size() >= count;
    });
    EXPECT_EQ(found.size(), count);
    return found;
  }

 private:
  static ipc::Deadline Soon() { return std::chrono::steady_clock::now() + 30s; }

  ipc::UniqueFd connection_;
  Status why_;
  std::optional<trace::Reader> reader_;
};

TEST(WorkerTrace, SerialisesChargesOfConcurrentCommands) {
  WorkerHarness worker({.preemption = device::Preemption::kBetweenCommands});
  RawClient one = worker.Client({.name = "one", .client_class = SchedulingClass::kLow});
  RawClient two = worker.Client({.name = "two", .client_class = SchedulingClass::kHigh});
  Watcher watcher(worker, true);
  ASSERT_TRUE(watcher.why().ok()) << watcher.why().ToString();
  one.Launch(0, 0, 0);
  ASSERT_EQ(worker.device().WaitForSubmissions(1).size(), 1U);
  two.Launch(0, 0, 1, {.x = 4}, std::array<std::byte, 24>{});
  ASSERT_EQ(worker.device().WaitForSubmissions(2).size(), 2U);
  std::this_thread::sleep_for(20ms);
  worker.device().FinishLatest();
  std::vector<trace::Slice> slices = watcher.Await<trace::Slice>(1);
  ASSERT_EQ(slices.size(), 1U);
  std::this_thread::sleep_for(20ms);
  worker.device().FinishAll();
  for (const trace::Slice& each : watcher.Await<trace::Slice>(1)) slices.push_back(each);
  ASSERT_EQ(slices.size(), 2U);
  EXPECT_EQ(watcher.reader().GetClient(slices[0].session)->text, "two");
  EXPECT_EQ(watcher.reader().GetWhat(slices[0]), "three");
  EXPECT_EQ(watcher.reader().GetWhat(slices[1]), "null");
  EXPECT_LT(slices[0].charged, slices[0].ended - slices[0].submitted)
      << "half of it is the other's";
  EXPECT_EQ(slices[0].charged_from + slices[0].charged, slices[1].charged_from);
  EXPECT_GE(slices[1].charged, 20ms);
  EXPECT_EQ(slices[0].charged_from, slices[1].submitted) << "from when anything was there";
}

// A graph of a low client runs in parts: each part is one execution event, named after its nodes of
// the graph, and the charges add up to the client's charge.
TEST(WorkerTrace, PartsOfAGraphAreNamedAndChargedOnce) {
  WorkerHarness worker({.takes_nodes = true});
  RawClient client = worker.Client({.name = "decode", .client_class = SchedulingClass::kLow});
  Watcher watcher(worker, true);
  ASSERT_TRUE(watcher.why().ok()) << watcher.why().ToString();
  client.MakeGraph(5);
  for (std::uint32_t node = 0; node < 3; ++node) {
    client.SetNode({.graph = 5, .node = node}, GetLaunch(0, 0, 0, {}, 0));
  }
  const Sequence launch = client.LaunchGraph(5);
  for (std::size_t part = 1; part <= 3; ++part) {
    ASSERT_EQ(worker.device().WaitForSubmissions(part).size(), part);
    std::this_thread::sleep_for(3ms);
    worker.device().FinishOldest();
  }
  ASSERT_TRUE(client.AwaitFinished(0, launch));
  worker.device().RunAtOnce();
  ASSERT_TRUE(client.AwaitFinished(0, client.LaunchGraph(5)));
  const std::vector<trace::Slice> slices = watcher.Await<trace::Slice>(6);
  ASSERT_EQ(slices.size(), 6U) << "3 ms are longer than a part";
  scheduler::Duration charged{};
  for (std::size_t i = 0; i < slices.size(); ++i) {
    EXPECT_EQ(watcher.reader().GetWhat(slices[i]),
              "graph 5 node " + std::to_string(i % 3) + ": null");
    charged += slices[i].charged;
  }
  EXPECT_GE(charged, 9ms);
  const auto rows = nlohmann::json::parse(worker.AskAdmin(ipc::AdminVerb::kClients))["clients"];
  EXPECT_NEAR(rows[0]["device_time_s"].get<double>(),
              std::chrono::duration<double>(charged).count(), 1e-9);

  RawClient high = worker.Client({.name = "answer", .client_class = SchedulingClass::kHigh});
  high.MakeGraph(1);
  for (std::uint32_t node = 0; node < 3; ++node) {
    high.SetNode({.graph = 1, .node = node}, GetLaunch(0, 0, 0, {}, 0));
  }
  ASSERT_TRUE(high.AwaitFinished(0, high.LaunchGraph(1)));
  const std::vector<trace::Slice> whole = watcher.Await<trace::Slice>(1);
  ASSERT_EQ(whole.size(), 1U);
  EXPECT_EQ(watcher.reader().GetWhat(whole[0]), "graph 1 nodes 0 to 2");
}

TEST(WorkerTrace, ReportsRequestWithItsCommands) {
  WorkerHarness worker({.runs_at_once = true});
  RawClient client = worker.Client({.name = "serve", .latency_target_ns = 1'000'000'000});
  Watcher watcher(worker, false);
  ASSERT_TRUE(watcher.why().ok()) << watcher.why().ToString();
  client.CreateStream(4);
  client.BeginRequest(0);
  client.BeginRequest(4);
  client.Launch(4, 0, 0);
  ASSERT_TRUE(client.AwaitFinished(4, client.EndRequest(4)));
  client.Launch(0, 0, 0);
  ASSERT_TRUE(client.AwaitFinished(0, client.EndRequest(0)));
  client.Launch(0, 0, 0);
  ASSERT_TRUE(client.AwaitFinished(0, client.Launch(0, 0, 0)));
  std::vector<trace::Slice> slices;
  std::vector<trace::Request> requests;
  (void)Eventually([&] {
    watcher.reader().Poll([&](const trace::Event& event) {
      if (const auto* const slice = std::get_if<trace::Slice>(&event)) slices.push_back(*slice);
      if (const auto* const each = std::get_if<trace::Request>(&event)) requests.push_back(*each);
    });
    return slices.size() >= 4;
  });
  ASSERT_EQ(slices.size(), 4U);
  ASSERT_EQ(requests.size(), 2U);
  EXPECT_EQ(slices[0].request, 2U);
  EXPECT_EQ(slices[0].stream, 4);
  EXPECT_EQ(slices[1].request, 1U);
  EXPECT_EQ(slices[2].request, 0U) << "between two requests of a client that marks them";
  EXPECT_EQ(requests[0].number, 2U);
  EXPECT_EQ(requests[0].row, 1) << "the other one is open, and has row 0";
  EXPECT_EQ(requests[0].stream, std::uint8_t{4});
  EXPECT_EQ(requests[1].number, 1U);
  EXPECT_EQ(requests[1].row, 0);
  EXPECT_EQ(requests[1].target, 1s);
  EXPECT_TRUE(requests[1].is_target_met());
  EXPECT_LE(requests[1].begun, slices[1].submitted);
  EXPECT_GE(requests[1].ended, slices[1].ended);
}

TEST(WorkerTrace, StoppedCommandMakesOneExecutionEventPerRun) {
  WorkerHarness worker;
  RawClient low = worker.Client({.name = "train", .client_class = SchedulingClass::kLow});
  Watcher watcher(worker, true);
  ASSERT_TRUE(watcher.why().ok());
  low.Launch(0, 0, 0, {.x = 100});
  ASSERT_EQ(worker.device().WaitForSubmissions(1).size(), 1U);
  worker.device().RunUnits(30);
  RawClient high = worker.Client({.name = "serve", .client_class = SchedulingClass::kHigh});
  high.Launch(0, 0, 0);
  ASSERT_TRUE(Eventually([&] { return worker.device().stops_asked() > 0; }));
  worker.device().RunAtOnce();
  const std::vector<trace::Slice> slices = watcher.Await<trace::Slice>(3);
  ASSERT_EQ(slices.size(), 3U);
  const trace::Slice& stopped = slices[0];
  EXPECT_TRUE(stopped.is_part);
  EXPECT_EQ(stopped.cut, trace::Cut::kStopped);
  EXPECT_GE(stopped.stop_asked, stopped.submitted);
  EXPECT_LE(stopped.stop_asked, stopped.ended + 1s);
  EXPECT_EQ(slices[1].cut, trace::Cut::kHighClass);
  EXPECT_EQ(slices[2].session, stopped.session);
  EXPECT_FALSE(slices[2].is_part);
  EXPECT_EQ(slices[2].kernel, stopped.kernel);
}

TEST(WorkerTrace, TracesQueueGrowthOfBlockedClient) {
  WorkerHarness worker({.preemption = device::Preemption::kBetweenCommands});
  RawClient high = worker.Client({.name = "ahead", .client_class = SchedulingClass::kHigh});
  RawClient client = worker.Client({.name = "queued", .client_class = SchedulingClass::kLow});
  Watcher watcher(worker, true);
  ASSERT_TRUE(watcher.why().ok());
  high.Launch(0, 0, 0);
  ASSERT_EQ(worker.device().WaitForSubmissions(1).size(), 1U);
  std::size_t launches = 0;
  std::uint32_t most = 0;
  EXPECT_TRUE(Eventually([&] {
    if (launches < 900) {
      ++launches;
      client.Launch(0, 0, 0);
    }
    watcher.reader().Poll([&](const trace::Event& event) {
      if (const auto* const depth = std::get_if<trace::Depth>(&event)) {
        most = std::max(most, depth->depths.queued);
      }
    });
    return most > 0;
  }));
  worker.device().RunAtOnce();
  const std::vector<trace::Slice> slices = watcher.Await<trace::Slice>(launches + 1);
  ASSERT_EQ(slices.size(), launches + 1);
  EXPECT_EQ(slices.back().left, trace::Depths{}) << "nothing is left with the last one";
}

TEST(WorkerTrace, ObserversLeaveHalfOfWatchesToOperators) {
  WorkerHarness worker;
  std::vector<Watcher> watchers;
  const auto add = [&](bool is_operator) -> const Status& {
    return watchers.emplace_back(worker, is_operator).why();
  };
  for (std::size_t i = 0; i < server::TraceRequestHandler::kWatchersMax / 2; ++i) {
    ASSERT_TRUE(add(false).ok()) << i;
  }
  EXPECT_THAT(
      std::string(add(false).message()),
      HasSubstr("8 others watch this device, allowed: 8 in addition to operators [uid 1000"));
  EXPECT_TRUE(add(true).ok());
  watchers.front().Leave();
  watchers.front() = Watcher(worker, true);
  watchers.erase(watchers.begin() + 1, watchers.end());
  EXPECT_TRUE(Eventually([&] { return Watcher(worker, false).why().ok(); }));
}

// A watcher has nothing to send, so any message from it ends the watch.
TEST(WorkerTrace, LeavesNothingBehind) {
  WorkerHarness worker({.runs_at_once = true});
  RawClient client = worker.Client();
  ASSERT_TRUE(client.AwaitFinished(0, client.Launch(0, 0, 0)));
  const Holdings before = Holdings::Now();
  for (int i = 0; i < 5; ++i) {
    Watcher watcher(worker, true);
    ASSERT_TRUE(watcher.why().ok());
    ASSERT_TRUE(client.AwaitFinished(0, client.Launch(0, 0, 0)));
    if (i % 2 == 0) {
      ASSERT_EQ(::send(watcher.connection(), "x", 1, MSG_NOSIGNAL), 1);
      char end = 0;
      ASSERT_EQ(::recv(watcher.connection(), &end, 1, 0), 0) << "the worker closes it";
    }
  }
  EXPECT_TRUE(Eventually([&] { return Holdings::Now() == before; }));
}

}  // namespace
}  // namespace gpushared::testing
