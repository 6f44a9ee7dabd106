// SPDX-License-Identifier: Apache-2.0
// Instantiation of graphs by the driver: for which graphs it happens, and what happens to these
// graphs afterwards.
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/server/device/cuda_device_fixture.h"

namespace gpushared::device::cuda {
namespace {

using ::testing::HasSubstr;

constexpr std::size_t kNodes = 10;

// A graph of launches that each write their own word.
class CudaGraph : public CudaDeviceTest {
 protected:
  void TearDown() override {
    nodes_.clear();
    tenant_ = {};
    CudaDeviceTest::TearDown();
  }
  void Begin(CudaDeviceOptions options = {}) {
    Start(std::move(options));
    tenant_ = NewTenant();
    for (std::size_t i = 0; i < kNodes; ++i) Set(i);
    fake_cuda_forget_calls();
  }
  // Replaces the node by a launch whose word is its own number.
  void Set(std::size_t node) {
    if (nodes_.size() == node) nodes_.emplace_back();
    nodes_[node] = StoreWork(tenant_, tenant_.At(4 * node), 1);
    Note(node);
  }
  // Marks the node's content as changed.
  void Note(std::size_t node) {
    node_versions_.resize(nodes_.size());
    node_versions_[node] = ++version_;
  }
  GraphWork Work() {
    pointers_.clear();
    for (const GraphNode& node : nodes_) pointers_.push_back(&node);
    GraphWork work;
    work.id = ++last_id_;
    work.space = tenant_.space.get();
    work.stream = 1;
    work.nodes = pointers_;
    work.number = 7;
    work.version = version_;
    node_versions_.resize(nodes_.size());
    work.node_versions = node_versions_;
    return work;
  }
  void Run(const GraphWork& work) {
    gpu().SubmitGraph(work);
    const Completion ended = Await(work.id);
    EXPECT_TRUE(ended.status.ok()) << ended.status.ToString();
    EXPECT_EQ(ended.units_done, nodes_.size());
    EXPECT_FALSE(ended.stopped);
  }
  // Launches the graph until the driver has instantiated it, for at most a second.
  bool RunUntilInstantiated() {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    while (fake_cuda_calls("cuGraphLaunch") == 0 && std::chrono::steady_clock::now() < end) {
      Run(Work());
    }
    return fake_cuda_calls("cuGraphLaunch") > 0;
  }
  void ExpectWords() {
    std::vector<std::uint32_t> words(nodes_.size());
    const WorkId copy = Copy(tenant_, CopyWork::Direction::kDeviceToHost,
                             std::as_writable_bytes(std::span(words)), 0);
    EXPECT_TRUE(Await(copy).status.ok());
    for (std::size_t i = 0; i < words.size(); ++i) {
      std::uint32_t value = 0;
      std::memcpy(&value, std::get<LaunchWork>(nodes_[i]).parameters.data() + 8, sizeof value);
      EXPECT_EQ(words[i], value) << i;
    }
  }

  Tenant tenant_;
  std::deque<GraphNode> nodes_;
  std::vector<const GraphNode*> pointers_;
  std::vector<std::uint64_t> node_versions_;
  std::uint64_t version_ = 0;
};

TEST_F(CudaGraph, RepeatedGraphBecomesOneCall) {
  Begin();
  Run(Work());
  EXPECT_EQ(fake_cuda_calls("cuGraphInstantiateWithFlags"), 0U)
      << "nothing is made for a single launch";
  ASSERT_TRUE(RunUntilInstantiated());
  ExpectWords();
  fake_cuda_forget_calls();
  for (int i = 0; i < 5; ++i) Run(Work());
  EXPECT_EQ(fake_cuda_calls("cuGraphLaunch"), 5U);
  EXPECT_EQ(fake_cuda_calls("cuLaunchKernel"), 0U);
  EXPECT_EQ(fake_cuda_calls("cuGraphExecKernelNodeSetParams"), 0U);
}

TEST_F(CudaGraph, NewParametersCostOneCallPerChangedNode) {
  Begin();
  ASSERT_TRUE(RunUntilInstantiated());
  fake_cuda_forget_calls();
  Set(3);
  Set(8);
  Run(Work());
  EXPECT_EQ(fake_cuda_calls("cuGraphExecKernelNodeSetParams"), 2U);
  EXPECT_EQ(fake_cuda_calls("cuGraphLaunch"), 1U);
  EXPECT_EQ(fake_cuda_calls("cuGraphInstantiateWithFlags"), 0U);
  ExpectWords();
}

// Both launches are submitted to the device before either has run.
TEST_F(CudaGraph, EarlierLaunchRunsGraphBeforeChange) {
  Begin();
  ASSERT_TRUE(RunUntilInstantiated());
  Script("hold");
  // The nodes of the first launch do not change.
  const std::deque<GraphNode> kept = nodes_;
  std::vector<const GraphNode*> pointers;
  for (const GraphNode& node : kept) pointers.push_back(&node);
  const std::vector<std::uint64_t> kept_versions = node_versions_;
  GraphWork first = Work();
  first.nodes = pointers;
  first.node_versions = kept_versions;
  gpu().SubmitGraph(first);
  Set(0);
  const GraphWork second = Work();
  gpu().SubmitGraph(second);
  Script("go");
  EXPECT_TRUE(Await(first.id).status.ok());
  EXPECT_TRUE(Await(second.id).status.ok());
  ExpectWords();
}

TEST_F(CudaGraph, ReinstantiatesDifferentNodeList) {
  Begin();
  ASSERT_TRUE(RunUntilInstantiated());
  Set(kNodes);
  fake_cuda_forget_calls();
  ASSERT_TRUE(RunUntilInstantiated());
  ExpectWords();
  EXPECT_EQ(fake_cuda_calls("cuGraphInstantiateWithFlags"), 1U);
}

TEST_F(CudaGraph, CopiesAndFillsAreNodes) {
  Begin();
  FillWork fill;
  fill.destination = tenant_.At(4096);
  fill.value = 0x01020304;
  fill.element_bytes = 4;
  fill.width_bytes = fill.pitch_bytes = 8192;
  CopyWork copy;
  copy.direction = CopyWork::Direction::kDeviceToDevice;
  copy.source = tenant_.At(4096);
  copy.destination = tenant_.At(65536);
  copy.width_bytes = copy.source_pitch_bytes = copy.destination_pitch_bytes = 64;
  copy.height = 4;
  nodes_.emplace_back(fill);
  Note(kNodes);
  nodes_.emplace_back(copy);
  Note(kNodes + 1);
  ASSERT_TRUE(RunUntilInstantiated());
  std::vector<std::uint32_t> words(64);
  const WorkId out = Copy(tenant_, CopyWork::Direction::kDeviceToHost,
                          std::as_writable_bytes(std::span(words)), 65536);
  EXPECT_TRUE(Await(out).status.ok());
  EXPECT_EQ(words, std::vector<std::uint32_t>(64, 0x01020304));
}

TEST_F(CudaGraph, UnloadingModuleDestroysGraph) {
  Begin();
  ASSERT_TRUE(RunUntilInstantiated());
  ASSERT_EQ(fake_cuda_live("instantiated graph"), 1U);
  tenant_.module.reset();
  EXPECT_EQ(fake_cuda_live("instantiated graph"), 0U);
  EXPECT_EQ(fake_cuda_live("graph"), 0U);
}

TEST_F(CudaGraph, PartialAndShortGraphsRunNodeByNode) {
  Begin();
  for (int i = 0; i < 20; ++i) {
    GraphWork part = Work();
    part.version = 0;
    Run(part);
  }
  nodes_.resize(3);
  for (int i = 0; i < 20; ++i) Run(Work());
  EXPECT_EQ(fake_cuda_calls("cuGraphInstantiateWithFlags"), 0U);
  EXPECT_EQ(fake_cuda_calls("cuGraphLaunch"), 0U);
}

// A kernel of an instantiated graph would run on all multiprocessors.
TEST_F(CudaGraph, RunsNodeByNodeOnPartitionedMultiprocessors) {
  CudaDeviceOptions options;
  options.sm_limits.at(2) = SmLimit{.fraction = 0.5};
  Begin(std::move(options));
  for (int i = 0; i < 20; ++i) {
    GraphWork work = Work();
    work.of_class = 2;
    Run(work);
  }
  EXPECT_EQ(fake_cuda_calls("cuGraphInstantiateWithFlags"), 0U);
  ExpectWords();
}

TEST_F(CudaGraph, RunsNodeByNodeWhenDriverRejectsGraph) {
  std::atomic<bool> was_noted = false;
  std::string noted;
  CudaDeviceOptions options;
  options.note = [&](const std::string& text) {
    noted = text;
    was_noted = true;
  };
  Begin(std::move(options));
  Script("fail cuGraphInstantiateWithFlags * 801");
  for (int i = 0; i < 5 || !was_noted; ++i) Run(Work());
  EXPECT_THAT(noted, HasSubstr("a graph of 10 nodes goes to the driver node by node: "));
  fake_cuda_forget_calls();
  for (int i = 0; i < 20; ++i) Run(Work());
  EXPECT_EQ(fake_cuda_calls("cuGraphInstantiateWithFlags"), 0U) << "nobody asks again";
  EXPECT_EQ(fake_cuda_live("graph"), 0U);
  ExpectWords();
}

TEST_F(CudaGraph, ADriverWithoutGraphsRunsThemNodeByNode) {
  Script("missing cuGraphInstantiateWithFlags");
  Begin();
  for (int i = 0; i < 20; ++i) Run(Work());
  EXPECT_EQ(fake_cuda_calls("cuGraphLaunch"), 0U);
  ExpectWords();
}

TEST_F(CudaGraph, ALaunchThatTheDriverRejectsFailsAlone) {
  Begin();
  ASSERT_TRUE(RunUntilInstantiated());
  Script("fail cuGraphLaunch 1 2");
  const GraphWork work = Work();
  gpu().SubmitGraph(work);
  const Completion failed = Await(work.id);
  EXPECT_THAT(failed.status.message(), HasSubstr("launch of a graph failed: cuGraphLaunch"));
  EXPECT_EQ(failed.units_done, 0U);
  Run(Work());
  ExpectWords();
}

}  // namespace
}  // namespace gpushared::device::cuda
