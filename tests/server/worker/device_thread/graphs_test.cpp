// SPDX-License-Identifier: Apache-2.0
// Graphs from a client's ring to the device: which are rejected, where they are split, how they are
// charged.
#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/worker/harness.h"

#include <nlohmann/json.hpp>

namespace gpushared::testing {
namespace {

using ::testing::HasSubstr;

ipc::LaunchRecord NullLaunch(std::uint32_t blocks = 1) {
  return GetLaunch(0, 0, 0, {.x = blocks}, 0);
}

std::string GetError(RawClient& client, std::uint32_t stream = 0) {
  const Result<ipc::ErrorText> text = client.Ask<ipc::ErrorText>(ipc::DescribeError{stream});
  return text.ok() ? text->status.ToString() : text.status().ToString();
}

// Creates the graph `graph` of `nodes` launches.
void MakeGraphOfLaunches(RawClient& client, std::uint32_t graph, std::uint32_t nodes) {
  client.MakeGraph(graph);
  for (std::uint32_t node = 0; node < nodes; ++node) {
    Sequence set = 0;
    while (set == 0) set = client.SetNode({.graph = graph, .node = node}, NullLaunch());
  }
}

TEST(WorkerGraphs, NodesRunInOrderWithTheirParameters) {
  WorkerHarness worker(kAtOnce);
  RawClient client = worker.Client();
  client.MakeGraph(3);
  std::vector<std::byte> parameters(24);
  for (std::uint32_t node = 0; node < 5; ++node) {
    parameters[0] = std::byte(node);
    client.SetNode({.graph = 3, .node = node}, GetLaunch(0, 0, 1, {.x = node + 1}, 24), parameters);
  }
  client.LaunchGraph(3);
  ASSERT_TRUE(client.AwaitFinished(0, client.LaunchGraph(3)));
  EXPECT_EQ(GetError(client), "Ok");
  const auto seen = worker.device().submissions();
  ASSERT_EQ(seen.size(), 10u);
  for (std::uint32_t i = 0; i < seen.size(); ++i) {
    EXPECT_EQ(seen[i].kernel, "three");
    EXPECT_EQ(seen[i].units, i % 5 + 1);
    EXPECT_EQ(seen[i].parameters[0], std::byte(i % 5));
  }
}

TEST(WorkerGraphs, AHighClientsGraphIsOneCommandOfTheDevice) {
  WorkerHarness worker({.runs_at_once = true, .takes_nodes = true});
  RawClient client = worker.Client({.client_class = SchedulingClass::kHigh});
  MakeGraphOfLaunches(client, 0, 300);
  ASSERT_TRUE(client.AwaitFinished(0, client.LaunchGraph(0)));
  const auto seen = worker.device().submissions();
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0].nodes, 300u);
  const auto row = nlohmann::json::parse(worker.AskAdmin(ipc::AdminVerb::kClients))["clients"][0];
  EXPECT_EQ(row["launches"], 300) << row;
}

TEST(WorkerGraphs, CopiesAndFillsOfAGraphMoveBytes) {
  WorkerHarness worker({.runs_at_once = true, .takes_nodes = true});
  RawClient client = worker.Client({.client_class = SchedulingClass::kHigh});
  ASSERT_TRUE(client.AddStagingBuffer(ipc::kStagingBytesStep).ok());
  const std::uint64_t at = client.base();
  std::ranges::fill(client.staging_buffer(0), std::byte{7});
  client.MakeGraph(0);
  client.SetNode({.node = 0}, GetCopy(ipc::Op::kCopyToDevice, {.address = at, .bytes = 64}));
  client.SetNode({.node = 1}, GetFill(0, at + 32, 32, 9));
  client.SetNode({.node = 2},
                 GetCopy(ipc::Op::kCopyToHost, {.offset = 4096, .address = at, .bytes = 64}));
  ASSERT_TRUE(client.AwaitFinished(0, client.LaunchGraph(0)));
  EXPECT_EQ(GetError(client), "Ok");
  EXPECT_EQ(client.staging_buffer(0)[4096 + 31], std::byte{7});
  EXPECT_EQ(client.staging_buffer(0)[4096 + 32], std::byte{9});
}

TEST(WorkerGraphs, ChecksNodeLikeSingleCommand) {
  WorkerHarness worker(kAtOnce);
  const auto rejection = [&](const auto& node, std::span<const std::byte> parameters = {}) {
    RawClient client = worker.Client();
    client.MakeGraph(0);
    client.SetNode({.node = 0}, NullLaunch());
    EXPECT_TRUE(client.AwaitFinished(0, client.SetNode({.node = 1}, node, parameters)));
    return GetError(client);
  };
  const std::uint64_t wild = std::uint64_t{1} << 50;
  EXPECT_THAT(rejection(GetLaunch(0, 9, 0, {}, 0)), HasSubstr("node 1 of graph 0: launch rejected: "
                                                              "there is no module 9"));
  EXPECT_THAT(rejection(GetLaunch(0, 0, 77, {}, 0)), HasSubstr("asked for number 77"));
  EXPECT_THAT(rejection(GetLaunch(0, 0, 0, {.x = 2'000'000}, 0)), HasSubstr("node 1 of graph 0"));
  EXPECT_THAT(rejection(GetLaunch(0, 0, 1, {}, 8), std::vector<std::byte>(8)),
              HasSubstr("takes 24 bytes of parameters, got 8"));
  EXPECT_THAT(rejection(GetFill(0, wild, 16, 1)), HasSubstr("fill rejected: 16 bytes at"));
  EXPECT_THAT(rejection(GetCopy(ipc::Op::kCopyToDevice,
                                {.staging_buffer = 5, .address = wild, .bytes = 16})),
              HasSubstr("there is no staging buffer 5"));
}

TEST(WorkerGraphs, RejectsUnknownNumbers) {
  WorkerHarness worker(kAtOnce);
  const auto error_after = [&](auto&& send) {
    RawClient client = worker.Client();
    client.MakeGraph(1);
    EXPECT_TRUE(client.AwaitFinished(0, send(client)));
    return GetError(client);
  };
  EXPECT_THAT(error_after([](auto& client) { return client.MakeGraph(1); }),
              HasSubstr("there is a graph 1 already"));
  EXPECT_THAT(error_after([](auto& client) { return client.LaunchGraph(2); }),
              HasSubstr("launch rejected: there is no graph 2"));
  EXPECT_THAT(error_after([](auto& client) { return client.LaunchGraph(1); }),
              HasSubstr("graph 1 has no nodes"));
  EXPECT_THAT(error_after([](auto& client) { return client.DestroyGraph(2); }),
              HasSubstr("there is no graph 2"));
  EXPECT_THAT(error_after([](auto& client) {
                return client.SetNode({.graph = 1, .node = 1}, NullLaunch());
              }),
              HasSubstr("graph 1 has 0 nodes, asked to set number 1"));
}

TEST(WorkerGraphs, LaunchFailsIfMemoryWasReturned) {
  WorkerHarness worker(kAtOnce);
  RawClient client = worker.Client();
  client.CreateStream(1);
  client.MakeGraph(0);
  client.SetNode({.node = 0}, NullLaunch());
  client.SetNode({.node = 1}, GetFill(0, client.base() + (std::uint64_t{3} << 20), 64, 1));
  ASSERT_TRUE(client.AwaitFinished(0, client.LaunchGraph(0)));
  EXPECT_EQ(GetError(client), "Ok");
  ASSERT_TRUE(client.Resize(std::uint64_t{2} << 20).ok());
  const std::size_t before = worker.device().submissions().size();
  ASSERT_TRUE(client.AwaitFinished(0, client.LaunchGraph(0)));
  EXPECT_THAT(GetError(client), HasSubstr("node 1 of graph 0: fill rejected: 64 bytes at"));
  EXPECT_EQ(worker.device().submissions().size(), before) << "no node of it runs";
  // Once the memory has grown again, the graph runs as before.
  ASSERT_TRUE(client.Resize(std::uint64_t{4} << 20).ok());
  ASSERT_TRUE(client.AwaitFinished(1, client.LaunchGraph(0, 1)));
  EXPECT_EQ(GetError(client, 1), "Ok");
}

TEST(WorkerGraphs, LaunchFailsIfModuleWasUnloaded) {
  WorkerHarness worker;
  RawClient client = worker.Client();
  MakeGraphOfLaunches(client, 0, 2);
  const Sequence running = client.LaunchGraph(0);
  ASSERT_EQ(worker.device().WaitForSubmissions(1).size(), 1u);
  ASSERT_TRUE(client.Ask<ipc::Done>(ipc::UnloadModule{.module = 0}).ok());
  const Sequence late = client.LaunchGraph(0);
  ASSERT_TRUE(Eventually([&] { return client.ring_position() > 0; }));
  EXPECT_EQ(worker.device().modules_alive(), 1) << "a launch that was taken needs it";
  worker.device().RunAtOnce();
  ASSERT_TRUE(client.AwaitFinished(0, running));
  ASSERT_TRUE(client.AwaitFinished(0, late));
  EXPECT_THAT(GetError(client),
              HasSubstr("node 0 of graph 0: launch rejected: there is no module 0"));
  EXPECT_TRUE(Eventually([&] { return worker.device().modules_alive() == 0; }));
}

TEST(WorkerGraphs, NodeChangeDoesNotAffectEarlierLaunch) {
  WorkerHarness worker;
  RawClient client = worker.Client();
  std::vector<std::byte> parameters(24);
  const auto set = [&](std::byte value) {
    parameters[0] = value;
    return client.SetNode({.node = 1}, GetLaunch(0, 0, 1, {}, 24), parameters);
  };
  client.MakeGraph(0);
  client.SetNode({.node = 0}, NullLaunch());
  set(std::byte{1});
  client.LaunchGraph(0);
  ASSERT_EQ(worker.device().WaitForSubmissions(1).size(), 1u);
  set(std::byte{2});
  const Sequence second = client.LaunchGraph(0);
  client.DestroyGraph(0);
  worker.device().RunAtOnce();
  ASSERT_TRUE(client.AwaitFinished(0, second));
  const auto seen = worker.device().submissions();
  ASSERT_EQ(seen.size(), 4u);
  EXPECT_EQ(seen[1].parameters[0], std::byte{1});
  EXPECT_EQ(seen[3].parameters[0], std::byte{2});
}

// Each change to a graph that launches still use makes a copy of it. When too many copies exist,
// the client's ring waits until launches have ended.
TEST(WorkerGraphs, ConstantlyChangedGraphDelaysOnlyItsClient) {
  constexpr std::uint32_t kChanges = 30;
  WorkerHarness worker({.preemption = device::Preemption::kBetweenCommands});
  RawClient client = worker.Client();
  MakeGraphOfLaunches(client, 0, 1);
  Sequence last = 0;
  for (std::uint32_t i = 0; i < kChanges; ++i) {
    client.LaunchGraph(0);
    last = client.SetNode({.node = 0}, NullLaunch(i + 2));
  }
  ASSERT_NE(worker.device().WaitForSubmissions(1).size(), 0u);
  worker.device().RunAtOnce();
  ASSERT_TRUE(client.AwaitFinished(0, last));
  const auto seen = worker.device().submissions();
  ASSERT_EQ(seen.size(), kChanges);
  for (std::uint32_t i = 0; i < kChanges; ++i) EXPECT_EQ(seen[i].units, i + 1);
}

TEST(WorkerGraphs, LimitsBytesOfGraphs) {
  WorkerHarness worker(kAtOnce, {.limits = {.graphs_bytes_max = 4096}});
  RawClient client = worker.Client();
  MakeGraphOfLaunches(client, 0, 40);
  ASSERT_TRUE(client.AwaitFinished(0, client.Mark(0)));
  EXPECT_THAT(GetError(client), HasSubstr("at most 4096 are allowed"));
}

TEST(WorkerGraphs, CountsNodesHeldOnlyByLaunches) {
  WorkerHarness worker({}, {.limits = {.graphs_bytes_max = 4352}});
  RawClient client = worker.Client();
  MakeGraphOfLaunches(client, 0, 10);
  client.LaunchGraph(0);
  client.DestroyGraph(0);
  MakeGraphOfLaunches(client, 1, 10);
  const Sequence last = client.Mark(0);
  ASSERT_NE(worker.device().WaitForSubmissions(1).size(), 0u);
  worker.device().RunAtOnce();
  ASSERT_TRUE(client.AwaitFinished(0, last));
  EXPECT_THAT(GetError(client), HasSubstr("at most 4352 are allowed"));
}

// Without a bound on the graphs of all clients together, many clients would exhaust the machine's
// memory.
TEST(WorkerGraphs, LimitsGraphsOfAllClientsAndGuaranteesEachAPart) {
  // 8 KiB are guaranteed to each of two clients, and 16 KiB are shared.
  WorkerHarness worker(kAtOnce,
                       {.limits = {.sessions_max = 2, .sessions_kept = 0, .graphs_bytes = 32768}});
  RawClient greedy = worker.Client();
  MakeGraphOfLaunches(greedy, 0, 200);
  ASSERT_TRUE(greedy.AwaitFinished(0, greedy.Mark(0)));
  EXPECT_THAT(GetError(greedy), HasSubstr("of the device's 32768 bytes for graphs"));
  RawClient other = worker.Client();
  MakeGraphOfLaunches(other, 0, 10);
  ASSERT_TRUE(other.AwaitFinished(0, other.LaunchGraph(0)));
  EXPECT_EQ(GetError(other), "Ok") << "its part is there whatever others hold";
  const auto device = [&] {
    return nlohmann::json::parse(worker.AskAdmin(ipc::AdminVerb::kStatus));
  };
  EXPECT_EQ(device()["graphs_bytes_max"], 32768);
  const std::uint64_t held = device()["graphs_bytes"];
  EXPECT_GT(held, 24000u);
  EXPECT_LE(held, 32768u);
  { const RawClient gone = std::move(greedy); }
  EXPECT_TRUE(Eventually([&] { return device()["graphs_bytes"] < held / 2; }));
  other.CreateStream(1);
  Sequence last = 0;
  for (std::uint32_t node = 10; node < 30; ++node) {
    last = other.SetNode({.graph = 0, .node = node, .stream = 1}, NullLaunch());
  }
  ASSERT_TRUE(other.AwaitFinished(1, last));
  EXPECT_EQ(GetError(other, 1), "Ok") << "what the other one had is there for this one";
}

// The lists of a graph are copied when it is changed while a launch uses it.
TEST(WorkerGraphs, CountsGraphCopiesHeldByLaunches) {
  WorkerHarness worker({}, {.limits = {.graphs_bytes_max = 12'000}});
  RawClient client = worker.Client();
  MakeGraphOfLaunches(client, 0, 10);
  for (std::uint32_t i = 0; i < 7; ++i) {
    client.LaunchGraph(0);
    client.SetNode({.node = 0}, NullLaunch());
  }
  const Sequence last = client.Mark(0);
  ASSERT_NE(worker.device().WaitForSubmissions(1).size(), 0u);
  worker.device().RunAtOnce();
  ASSERT_TRUE(client.AwaitFinished(0, last));
  EXPECT_THAT(GetError(client), HasSubstr("at most 12000 are allowed"));
}

// The device does not stop running work, so the lane decides before each node.
TEST(WorkerGraphs, HighWorkDoesNotWaitForRestOfLowGraph) {
  for (const bool takes_nodes : {false, true}) {
    WorkerHarness worker(
        {.preemption = device::Preemption::kBetweenCommands, .takes_nodes = takes_nodes},
        {.settings = {.policy = "priority"}});
    RawClient low = worker.Client({.client_class = SchedulingClass::kLow});
    RawClient high = worker.Client({.client_class = SchedulingClass::kHigh});
    MakeGraphOfLaunches(low, 0, 100);
    const Sequence training = low.LaunchGraph(0);
    ASSERT_EQ(worker.device().WaitForSubmissions(1).size(), 1u);
    const Sequence request = high.Launch(0, 0, 1, {}, std::vector<std::byte>(24));
    const auto seen = worker.device().WaitForSubmissions(2);
    ASSERT_GE(seen.size(), 2u);
    EXPECT_EQ(seen[0].nodes, 0u) << "a node of unknown length is on its own";
    EXPECT_EQ(seen[1].kernel, "three") << "the second node waits";
    worker.device().RunAtOnce();
    ASSERT_TRUE(high.AwaitFinished(0, request));
    ASSERT_TRUE(low.AwaitFinished(0, training));
    EXPECT_EQ(GetError(low), "Ok");
  }
}

TEST(WorkerGraphs, SubmitsShortNodesOfLowClientTogether) {
  WorkerHarness worker({.runs_at_once = true, .takes_nodes = true},
                       {.settings = {.policy = "priority"}});
  RawClient low = worker.Client({.client_class = SchedulingClass::kLow});
  const RawClient high = worker.Client({.client_class = SchedulingClass::kHigh});
  MakeGraphOfLaunches(low, 0, 50);
  ASSERT_TRUE(low.AwaitFinished(0, low.LaunchGraph(0)));
  const std::size_t first = worker.device().submissions().size();
  EXPECT_EQ(first, 50u) << "nothing is known of them";
  ASSERT_TRUE(low.AwaitFinished(0, low.LaunchGraph(0)));
  const auto seen = worker.device().submissions();
  EXPECT_LT(seen.size() - first, 50u);
  std::size_t nodes = 0;
  for (std::size_t i = first; i < seen.size(); ++i)
    nodes += std::max<std::size_t>(seen[i].nodes, 1);
  EXPECT_EQ(nodes, 50u) << "each once";
}

TEST(WorkerGraphs, AFailedNodeFailsTheStreamByItsNumber) {
  WorkerHarness worker({.takes_nodes = true});
  RawClient client = worker.Client({.client_class = SchedulingClass::kHigh});
  MakeGraphOfLaunches(client, 4, 10);
  const Sequence launch = client.LaunchGraph(4);
  ASSERT_EQ(worker.device().WaitForSubmissions(1).size(), 1u);
  worker.device().RunUnits(6);
  worker.device().FinishOldest(Status(StatusCode::kKernelFault, "kernel 'null' faulted"));
  ASSERT_TRUE(client.AwaitFinished(0, launch));
  EXPECT_THAT(GetError(client), HasSubstr("node 6 of graph 4: kernel 'null' faulted"));
}

// Uses more parts than slots, on more streams than slots.
TEST(WorkerGraphs, GraphsOnAllStreamsFinish) {
  WorkerHarness worker;
  RawClient client = worker.Client({.client_class = SchedulingClass::kLow});
  MakeGraphOfLaunches(client, 0, 20);
  ASSERT_TRUE(client.AwaitFinished(0, client.Mark(0)));
  std::vector<Sequence> last(100);
  for (std::uint32_t stream = 1; stream < last.size(); ++stream) {
    client.CreateStream(stream);
    client.LaunchGraph(0, stream);
    last[stream] = client.LaunchGraph(0, stream);
    ASSERT_NE(last[stream], 0u);
  }
  ASSERT_NE(worker.device().WaitForSubmissions(1).size(), 0u);
  worker.device().RunAtOnce();
  for (std::uint32_t stream = 1; stream < last.size(); ++stream) {
    EXPECT_TRUE(client.AwaitFinished(stream, last[stream])) << stream;
  }
  EXPECT_EQ(worker.device().submissions().size(), 99u * 2 * 20);
}

TEST(WorkerGraphs, ExplanationNamesGraphAndNode) {
  WorkerHarness worker({.preemption = device::Preemption::kBetweenCommands, .takes_nodes = true},
                       {.settings = {.policy = "priority"}});
  RawClient client = worker.Client({.client_class = SchedulingClass::kHigh});
  MakeGraphOfLaunches(client, 7, 12);
  ASSERT_TRUE(client.AwaitFinished(0, client.BeginRequest(0)));
  const Sequence launch = client.LaunchGraph(7);
  ASSERT_EQ(worker.device().WaitForSubmissions(1).size(), 1u);
  worker.device().RunAtOnce();
  ASSERT_TRUE(client.AwaitFinished(0, launch));
  ASSERT_TRUE(client.AwaitFinished(0, client.EndRequest(0)));
  const std::string said = worker.AskAdmin(
      ipc::Admin{.verb = ipc::AdminVerb::kExplain, .client = worker.last_session()});
  EXPECT_THAT(said, HasSubstr("graph 7 nodes 0 to 11"));
}

// After random changes and launches, the device must see exactly what a model of the list predicts.
TEST(WorkerGraphs, RandomChangesAndLaunchesMatchModel) {
  std::mt19937_64 random(7);
  WorkerHarness worker({.runs_at_once = true});
  RawClient client = worker.Client({.client_class = SchedulingClass::kLow});
  client.MakeGraph(0);
  std::vector<std::uint8_t> model;
  std::vector<std::uint8_t> expected;
  std::vector<std::byte> parameters(24);
  Sequence last = 0;
  for (int step = 0; step < 400; ++step) {
    if (model.empty() || random() % 3 != 0) {
      const auto node =
          static_cast<std::uint32_t>(random() % std::min<std::size_t>(model.size() + 1, 12));
      const auto value = static_cast<std::uint8_t>(random());
      parameters[0] = std::byte{value};
      last = client.SetNode({.node = node}, GetLaunch(0, 0, 1, {}, 24), parameters);
      if (node == model.size()) model.push_back(0);
      model[node] = value;
    } else {
      last = client.LaunchGraph(0);
      expected.insert(expected.end(), model.begin(), model.end());
    }
    ASSERT_NE(last, 0u);
    if (step % 50 == 0) {
      ASSERT_TRUE(client.AwaitFinished(0, last));
    }
  }
  ASSERT_TRUE(client.AwaitFinished(0, last));
  EXPECT_EQ(GetError(client), "Ok");
  std::vector<std::uint8_t> ran;
  for (const auto& submission : worker.device().submissions()) {
    ran.push_back(std::to_integer<std::uint8_t>(submission.parameters[0]));
  }
  EXPECT_EQ(ran, expected);
}

// A client that dies between any two records leaves nothing behind, so that its slots and memory
// can be reused.
TEST(WorkerGraphs, DeadClientLeavesNothingBehind) {
  std::mt19937_64 random(11);
  WorkerHarness worker({.takes_nodes = true});
  for (int round = 0; round < 12; ++round) {
    RawClient client = worker.Client({.client_class = SchedulingClass::kHigh});
    MakeGraphOfLaunches(client, 0, 1 + static_cast<std::uint32_t>(random() % 40));
    for (std::uint64_t more = random() % 5; more > 0; --more) {
      client.LaunchGraph(0);
      client.SetNode({.node = 0}, NullLaunch(2));
      if (random() % 2 == 0) client.LaunchGraph(0);
    }
    if (random() % 2 == 0) client.DestroyGraph(0);
    client.CloseSocket();
    EXPECT_TRUE(Eventually([&] {
      worker.device().FinishAll();
      return worker.device().spaces_alive() == 0;
    }));
  }
  EXPECT_EQ(worker.device().modules_alive(), 0);
}

}  // namespace
}  // namespace gpushared::testing
