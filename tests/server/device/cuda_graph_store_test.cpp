// SPDX-License-Identifier: Apache-2.0
// Which graphs are instantiated in the driver when not all fit: limits on graphs and nodes, and
// clients' shares of them.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <future>
#include <thread>
#include <utility>
#include <vector>

#include "server/device/cuda/driver_graph.h"
#include "tests/server/device/cuda_device_fixture.h"

namespace gpushared::device::cuda {
namespace {

constexpr std::size_t kGraphNodes = 10;

class CudaGraphStore : public CudaDeviceTest {
 protected:
  struct Graph {
    Tenant* of = nullptr;
    std::uint32_t number = 0;
    std::deque<GraphNode> nodes;
    std::vector<const GraphNode*> pointers;
    std::vector<std::uint64_t> versions;
  };

  void TearDown() override {
    graphs_.clear();
    tenants_.clear();
    CudaDeviceTest::TearDown();
  }
  void Begin(GraphStoreLimits limits) {
    CudaDeviceOptions options;
    options.graph_limits = limits;
    Start(std::move(options));
  }
  Tenant& NewClient() { return tenants_.emplace_back(NewTenant()); }
  Graph& NewGraph(Tenant& of, std::size_t nodes = kGraphNodes) {
    Graph& graph = graphs_.emplace_back();
    graph.of = &of;
    graph.number = static_cast<std::uint32_t>(graphs_.size());
    for (std::size_t i = 0; i < nodes; ++i) graph.nodes.emplace_back(NewLaunch(graph, i));
    for (const GraphNode& node : graph.nodes) graph.pointers.push_back(&node);
    graph.versions.resize(nodes, ++last_version_);
    return graph;
  }
  LaunchWork NewLaunch(const Graph& graph, std::size_t node) {
    return StoreWork(*graph.of, graph.of->At(4 * node), graph.number);
  }
  void Change(Graph& graph, std::size_t node) {
    graph.nodes[node] = NewLaunch(graph, node);
    graph.versions[node] = ++last_version_;
  }
  GraphWork GetWork(Graph& graph) {
    GraphWork work;
    work.id = ++last_id_;
    work.space = graph.of->space.get();
    work.stream = graph.number;
    work.nodes = graph.pointers;
    work.number = graph.number;
    work.version = *std::max_element(graph.versions.begin(), graph.versions.end());
    work.node_versions = graph.versions;
    return work;
  }
  // Launches the graph. Returns whether it was passed to the driver as a whole.
  bool Launch(Graph& graph) {
    const std::size_t before = fake_cuda_calls("cuGraphLaunch");
    const GraphWork work = GetWork(graph);
    gpu().SubmitGraph(work);
    const Completion ended = Await(work.id);
    EXPECT_TRUE(ended.status.ok()) << ended.status.ToString();
    return fake_cuda_calls("cuGraphLaunch") > before;
  }
  // Launches the graph until it is passed to the driver as a whole, for at most a second.
  bool LaunchUntilWhole(Graph& graph) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    while (std::chrono::steady_clock::now() < end) {
      if (Launch(graph)) return true;
    }
    return false;
  }
  static std::size_t Instantiations() { return fake_cuda_calls("cuGraphInstantiateWithFlags"); }

  std::deque<Tenant> tenants_;
  std::deque<Graph> graphs_;
  std::uint64_t last_version_ = 0;
};

TEST_F(CudaGraphStore, EvictsLeastRecentlyLaunchedGraph) {
  Begin({.nodes = 2 * kGraphNodes});
  Tenant& client = NewClient();
  Graph &first = NewGraph(client), &second = NewGraph(client), &third = NewGraph(client);
  ASSERT_TRUE(LaunchUntilWhole(first));
  ASSERT_TRUE(LaunchUntilWhole(second));
  ASSERT_TRUE(Launch(first));
  ASSERT_TRUE(LaunchUntilWhole(third));
  EXPECT_TRUE(Launch(first));
  EXPECT_FALSE(Launch(second));
}

// If the least recently launched graph were always evicted, each launch would evict the graph that
// is launched next.
TEST_F(CudaGraphStore, KeepsSomeGraphsWhenMoreRotateThanFit) {
  Begin({.nodes = 2 * kGraphNodes});
  Tenant& client = NewClient();
  Graph &first = NewGraph(client), &second = NewGraph(client), &third = NewGraph(client);
  ASSERT_TRUE(LaunchUntilWhole(first));
  ASSERT_TRUE(LaunchUntilWhole(second));
  for (int round = 0; round < 30; ++round) {
    EXPECT_TRUE(Launch(first)) << round;
    EXPECT_TRUE(Launch(second)) << round;
    EXPECT_FALSE(Launch(third)) << round;
  }
  EXPECT_EQ(Instantiations(), 2U);
}

TEST_F(CudaGraphStore, ClientTakesItsShareFromClientAboveItsShare) {
  Begin({.nodes = 4 * kGraphNodes});
  Tenant &greedy = NewClient(), &other = NewClient();
  std::vector<Graph*> many;
  for (int i = 0; i < 4; ++i) {
    many.push_back(&NewGraph(greedy));
    ASSERT_TRUE(LaunchUntilWhole(*many.back())) << "a client alone may use the whole store: " << i;
  }
  Graph &one = NewGraph(other), &two = NewGraph(other), &three = NewGraph(other);
  ASSERT_TRUE(LaunchUntilWhole(one));
  ASSERT_TRUE(LaunchUntilWhole(two));
  EXPECT_FALSE(Launch(*many[0]));
  EXPECT_FALSE(Launch(*many[1]));
  EXPECT_TRUE(Launch(*many[2]));
  EXPECT_TRUE(Launch(*many[3]));
  // From now on both clients have the same share, and each evicts only its own graphs, however many
  // it launches.
  for (int round = 0; round < 20; ++round) {
    for (Graph* const each : {&one, &two, &three}) (void)Launch(*each);
  }
  ASSERT_TRUE(LaunchUntilWhole(three));
  EXPECT_TRUE(Launch(*many[2]));
  EXPECT_TRUE(Launch(*many[3]));
  EXPECT_EQ(fake_cuda_live("instantiated graph"), 4U);
}

// A client must not be able to occupy the whole store with graphs that there has been no time to
// instantiate.
TEST_F(CudaGraphStore, EvictsGraphAwaitingInstantiation) {
  std::promise<void> asked, is_quiet;
  std::shared_future<void> quiet = is_quiet.get_future().share();
  std::atomic<bool> has_asked = false;
  CudaDeviceOptions options;
  options.graph_limits = {.nodes = 4 * kGraphNodes};
  options.await_quiet = [&] {
    if (!has_asked.exchange(true)) asked.set_value();
    quiet.wait();
  };
  Start(std::move(options));
  Tenant &greedy = NewClient(), &other = NewClient();
  std::vector<Graph*> many;
  for (int i = 0; i < 4; ++i) {
    many.push_back(&NewGraph(greedy));
    for (int launch = 0; launch < 2; ++launch) EXPECT_FALSE(Launch(*many.back()));
  }
  asked.get_future().wait();
  Graph &one = NewGraph(other), &two = NewGraph(other);
  for (Graph* const each : {&one, &two}) {
    for (int launch = 0; launch < 2; ++launch) EXPECT_FALSE(Launch(*each));
  }
  is_quiet.set_value();
  EXPECT_TRUE(LaunchUntilWhole(one));
  EXPECT_TRUE(LaunchUntilWhole(two));
  EXPECT_FALSE(Launch(*many[0]));
  EXPECT_FALSE(Launch(*many[1]));
  EXPECT_TRUE(LaunchUntilWhole(*many[2]));
  EXPECT_TRUE(LaunchUntilWhole(*many[3]));
  EXPECT_EQ(Instantiations(), 4U) << "evicted graphs must not be instantiated";
}

// A client that launches without a pause must not be able to occupy the whole store.
TEST_F(CudaGraphStore, EvictsBusyGraphAfterItsLaunch) {
  Begin({.nodes = 2 * kGraphNodes});
  Tenant &busy = NewClient(), &other = NewClient();
  Graph &first = NewGraph(busy), &second = NewGraph(busy), &mine = NewGraph(other);
  ASSERT_TRUE(LaunchUntilWhole(first));
  ASSERT_TRUE(LaunchUntilWhole(second));
  EXPECT_FALSE(Launch(mine));
  Script("hold");
  std::vector<WorkId> held;
  for (Graph* const each : {&first, &second, &mine}) {
    const GraphWork work = GetWork(*each);
    gpu().SubmitGraph(work);
    held.push_back(work.id);
  }
  Script("go");
  for (const WorkId id : held) EXPECT_TRUE(Await(id).status.ok());
  EXPECT_FALSE(Launch(first));
  EXPECT_TRUE(Launch(second));
  EXPECT_TRUE(LaunchUntilWhole(mine));
}

// A client that launches each of its graphs once must not evict other clients' graphs before their
// second launch.
TEST_F(CudaGraphStore, ClientWithManyGraphsEvictsOnlyItsOwn) {
  Begin({.graphs = 8});
  Tenant &many = NewClient(), &other = NewClient();
  Graph &one = NewGraph(other), &two = NewGraph(other);
  ASSERT_TRUE(LaunchUntilWhole(one));
  (void)Launch(two);
  for (int i = 0; i < 50; ++i) (void)Launch(NewGraph(many));
  EXPECT_TRUE(Launch(one));
  (void)Launch(two);
  EXPECT_TRUE(LaunchUntilWhole(two));
}

TEST_F(CudaGraphStore, ClientWithAllGraphsYieldsToNewClient) {
  Begin({.graphs = 2});
  Tenant &many = NewClient(), &other = NewClient();
  Graph &oldest = NewGraph(many), &newest = NewGraph(many);
  ASSERT_TRUE(LaunchUntilWhole(oldest));
  ASSERT_TRUE(LaunchUntilWhole(newest));
  EXPECT_TRUE(LaunchUntilWhole(NewGraph(other)));
  EXPECT_TRUE(Launch(newest));
  EXPECT_FALSE(Launch(oldest));
}

TEST_F(CudaGraphStore, NewGraphEvictsOldestOfSameClient) {
  Begin({.graphs = 4});
  Tenant& client = NewClient();
  Graph& oldest = NewGraph(client);
  ASSERT_TRUE(LaunchUntilWhole(oldest));
  Graph& second = NewGraph(client);
  ASSERT_TRUE(LaunchUntilWhole(second));
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(LaunchUntilWhole(NewGraph(client)));
  ASSERT_TRUE(Launch(oldest));
  ASSERT_TRUE(LaunchUntilWhole(NewGraph(client)));
  EXPECT_TRUE(Launch(oldest));
  EXPECT_FALSE(Launch(second));
  EXPECT_EQ(Instantiations(), 5U);
}

TEST_F(CudaGraphStore, DropsGraphsOfDepartedClient) {
  Begin({.nodes = 2 * kGraphNodes, .graphs = 2});
  Tenant& client = NewClient();
  {
    Tenant gone = NewTenant();
    Graph &first = NewGraph(gone), &second = NewGraph(gone);
    ASSERT_TRUE(LaunchUntilWhole(first));
    ASSERT_FALSE(Launch(second));
    graphs_.clear();
  }
  EXPECT_EQ(fake_cuda_live("instantiated graph"), 0U);
  Graph &one = NewGraph(client), &two = NewGraph(client);
  EXPECT_TRUE(LaunchUntilWhole(one));
  EXPECT_TRUE(LaunchUntilWhole(two));
  EXPECT_TRUE(Launch(one)) << "a graph that was launched only once is dropped as well";
}

// ---- number of nodes that a launch inspects

// If all nodes were compared, the device thread would read up to 32 MiB of parameters per launch.
TEST_F(CudaGraphStore, DoesNotCompareNodesWithSameVersion) {
  Begin({});
  Tenant& client = NewClient();
  Graph& graph = NewGraph(client);
  ASSERT_TRUE(LaunchUntilWhole(graph));
  Change(graph, 2);
  // New content under the old version, which never happens in a worker.
  graph.nodes[5] = NewLaunch(graph, 5);
  fake_cuda_forget_calls();
  EXPECT_TRUE(Launch(graph));
  EXPECT_EQ(fake_cuda_calls("cuGraphExecKernelNodeSetParams"), 1U);
}

TEST_F(CudaGraphStore, NewVersionWithUnchangedContentMakesNoCall) {
  Begin({});
  Tenant& client = NewClient();
  Graph& graph = NewGraph(client);
  ASSERT_TRUE(LaunchUntilWhole(graph));
  graph.versions[2] = ++last_version_;
  fake_cuda_forget_calls();
  EXPECT_TRUE(Launch(graph));
  EXPECT_EQ(fake_cuda_calls("cuGraphExecKernelNodeSetParams"), 0U);
}

TEST_F(CudaGraphStore, LimitsNodesChangedByLaunch) {
  Begin({});
  Tenant& client = NewClient();
  Graph& graph = NewGraph(client, InstantiatedGraph::kChangesMax + kGraphNodes);
  ASSERT_TRUE(LaunchUntilWhole(graph));
  for (std::size_t i = 0; i < InstantiatedGraph::kChangesMax; ++i) Change(graph, i);
  fake_cuda_forget_calls();
  EXPECT_TRUE(Launch(graph));
  EXPECT_EQ(fake_cuda_calls("cuGraphExecKernelNodeSetParams"), InstantiatedGraph::kChangesMax);
  for (std::size_t i = 0; i <= InstantiatedGraph::kChangesMax; ++i) Change(graph, i);
  fake_cuda_forget_calls();
  EXPECT_FALSE(Launch(graph));
  EXPECT_EQ(fake_cuda_calls("cuGraphExecKernelNodeSetParams"), 0U);
}

TEST_F(CudaGraphStore, ReinstantiatesGraphThatChangedTooMuch) {
  Begin({});
  Tenant& client = NewClient();
  Graph& graph = NewGraph(client, InstantiatedGraph::kChangesMax + kGraphNodes);
  ASSERT_TRUE(LaunchUntilWhole(graph));
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) Change(graph, i);
  EXPECT_FALSE(Launch(graph));
  EXPECT_EQ(Instantiations(), 1U) << "a single launch must not cause an instantiation";
  EXPECT_TRUE(LaunchUntilWhole(graph));
  EXPECT_EQ(Instantiations(), 2U);
}

// Launches that the driver already has are not inspected again, but all other nodes are.
TEST_F(CudaGraphStore, ChecksNewNodesCopiesAndFillsAtEachLaunch) {
  Begin({});
  Tenant& client = NewClient();
  Graph& graph = NewGraph(client);
  FillWork fill;
  fill.destination = client.At(3 * kMebibyte);
  fill.width_bytes = 64;
  graph.nodes[3] = fill;
  ASSERT_TRUE(LaunchUntilWhole(graph));
  const auto rejection = [&] {
    const GraphWork work = GetWork(graph);
    gpu().SubmitGraph(work);
    return Await(work.id).status.message();
  };
  Change(graph, 5);
  std::get<LaunchWork>(graph.nodes[5]).block = {4096, 1, 1};
  EXPECT_THAT(rejection(), ::testing::HasSubstr("launch rejected: kernel 'store'"));
  Change(graph, 5);
  EXPECT_TRUE(Launch(graph));
  ASSERT_TRUE(client.space->Resize(2 * kMebibyte).ok());
  EXPECT_THAT(rejection(), ::testing::HasSubstr("fill rejected"));
}

// The other module may be unloaded while the graph remains, and then no instantiated graph may
// contain its kernel.
TEST_F(CudaGraphStore, KernelOfAnotherModuleRequiresNewInstantiation) {
  Begin({});
  Tenant& client = NewClient();
  Graph& graph = NewGraph(client);
  ASSERT_TRUE(LaunchUntilWhole(graph));
  auto second = Load(*client.space, kStorePtx);
  ASSERT_TRUE(second.ok());
  Change(graph, 4);
  std::get<LaunchWork>(graph.nodes[4]).module = second->get();
  ASSERT_TRUE(LaunchUntilWhole(graph));
  EXPECT_EQ(Instantiations(), 2U);
  second->reset();
  EXPECT_EQ(fake_cuda_live("instantiated graph"), 0U);
}

}  // namespace
}  // namespace gpushared::device::cuda
