// SPDX-License-Identifier: Apache-2.0
// Graphs built by a program, and the order in which a launch submits their nodes.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <future>
#include <string>
#include <variant>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/drop_in/drop_in_case.h"
#include "tests/support/read_file.h"
#include "tests/support/scratch_directory.h"

namespace gpushared::drop_in {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class GraphTest : public DropInCase {
 protected:
  GraphTest() {
    EXPECT_EQ(GraphCreate(&graph_, 0), Code::kSuccess);
    EXPECT_EQ(MemAlloc(&memory_, 4096), Code::kSuccess);
  }

  FillNodeParameters GetFill(unsigned value) {
    return {.destination = memory_,
            .pitch_bytes = 0,
            .value = value,
            .element_bytes = 1,
            .width_elements = 16,
            .height = 1};
  }
  KernelNodeParameters LaunchOfNothing() {
    KernelNodeParameters launch{};
    launch.launch = {.function = nothing_,
                     .grid_x = 3,
                     .grid_y = 1,
                     .grid_z = 1,
                     .block_x = 4,
                     .block_y = 1,
                     .block_z = 1,
                     .shared_bytes = 0,
                     .parameters = nullptr,
                     .extra = nullptr};
    return launch;
  }
  // Adds a fill node. The test identifies the node's command in the ring by the fill value.
  GraphNodeHandle AddFill(unsigned value, std::vector<GraphNodeHandle> needs = {}) {
    const FillNodeParameters fill = GetFill(value);
    GraphNodeHandle node = nullptr;
    EXPECT_EQ(GraphAddMemsetNode(&node, graph_, needs.data(), needs.size(), &fill, context_),
              Code::kSuccess);
    return node;
  }
  GraphExecHandle Instantiate() {
    GraphExecHandle exec = nullptr;
    EXPECT_EQ(GraphInstantiateWithFlags(&exec, graph_, 0), Code::kSuccess);
    return exec;
  }
  // Returns the values of all fills since the last call, in ring order.
  std::vector<unsigned> Filled() {
    EXPECT_EQ(CtxSynchronize(), Code::kSuccess);
    std::vector<unsigned> values;
    const std::vector<testing::TakenCommand> taken = worker_.taken();
    for (; looked_at_ < taken.size(); ++looked_at_) {
      const auto* const fill = std::get_if<ipc::FillCommand>(&taken[looked_at_].command.body);
      if (fill != nullptr) values.push_back(fill->value);
    }
    return values;
  }
  std::vector<unsigned> Launch(GraphExecHandle exec) {
    EXPECT_EQ(GraphLaunch(exec, stream_), Code::kSuccess);
    return Filled();
  }

  GraphHandle graph_ = nullptr;
  const StreamHandle stream_ = NewStream();
  DevicePointer memory_ = 0;
  std::size_t looked_at_ = 0;
};

TEST_F(GraphTest, NodesRunAfterTheirDependencies) {
  const GraphNodeHandle last = AddFill(3);
  const GraphNodeHandle first = AddFill(1);
  const GraphNodeHandle middle = AddFill(2, {first});
  EXPECT_EQ(GraphAddDependencies(graph_, &middle, &last, 1), Code::kSuccess);
  EXPECT_EQ(GraphAddDependencies(graph_, &middle, &last, 1), Code::kInvalidValue)
      << "the edge exists already";
  const GraphExecHandle exec = Instantiate();
  EXPECT_THAT(Launch(exec), ElementsAre(1, 2, 3));
  EXPECT_THAT(Launch(exec), ElementsAre(1, 2, 3));
  EXPECT_EQ(GraphAddDependencies(graph_, &last, &first, 1), Code::kSuccess);
  GraphExecHandle none = nullptr;
  EXPECT_EQ(GraphInstantiateWithFlags(&none, graph_, 0), Code::kInvalidValue) << "a circle";
  InstantiateParameters parameters{};
  EXPECT_EQ(GraphInstantiateWithParams(&none, graph_, &parameters), Code::kInvalidValue);
  EXPECT_EQ(parameters.result, 2);
  EXPECT_EQ(GraphRemoveDependencies(graph_, &last, &first, 1), Code::kSuccess);
  EXPECT_EQ(GraphRemoveDependencies(graph_, &last, &first, 1), Code::kInvalidValue);
  EXPECT_EQ(GraphInstantiateWithParams(&none, graph_, &parameters), Code::kSuccess);
  EXPECT_EQ(parameters.result, 0);
  EXPECT_EQ(GraphDestroy(graph_), Code::kSuccess);
  EXPECT_THAT(Launch(exec), ElementsAre(1, 2, 3))
      << "the executable graph must not change with the graph";
}

TEST_F(GraphTest, EdgesAreReportedAtBothEnds) {
  const GraphNodeHandle first = AddFill(1), second = AddFill(2);
  const GraphNodeHandle third = AddFill(3, {second, first});
  GraphNodeHandle list[4] = {};
  std::size_t count = 4;
  EXPECT_EQ(GraphNodeGetDependencies(third, list, &count), Code::kSuccess);
  EXPECT_THAT(list, ElementsAre(second, first, nullptr, nullptr));
  EXPECT_EQ(count, 2u);
  count = 1;
  EXPECT_EQ(GraphGetRootNodes(graph_, list, &count), Code::kSuccess);
  EXPECT_EQ(list[0], first);
  EXPECT_EQ(count, 1u);
  EXPECT_EQ(GraphNodeGetDependentNodes(first, nullptr, &count), Code::kSuccess);
  EXPECT_EQ(count, 1u);
  EXPECT_EQ(GraphDestroyNode(second), Code::kSuccess);
  EXPECT_EQ(GraphNodeGetDependencies(third, nullptr, &count), Code::kSuccess);
  EXPECT_EQ(count, 1u);
  int type = 0;
  EXPECT_EQ(GraphNodeGetType(second, &type), Code::kInvalidValue);
  const GraphNodeHandle twice[] = {first, first};
  EXPECT_EQ(GraphAddEmptyNode(list, graph_, twice, 2), Code::kInvalidValue);
  EdgeData early{};
  early.type = 1;
  EXPECT_EQ(GraphAddDependenciesV2(graph_, &third, &first, &early, 1), Code::kNotSupported);
}

TEST_F(GraphTest, ExecIsChangedThroughNodesOfItsGraph) {
  const GraphNodeHandle first = AddFill(1), second = AddFill(2, {first});
  const GraphExecHandle exec = Instantiate();
  FillNodeParameters fill = GetFill(9);
  EXPECT_EQ(GraphExecMemsetNodeSetParams(exec, second, &fill, context_), Code::kSuccess);
  EXPECT_THAT(Launch(exec), ElementsAre(1, 9));
  EXPECT_EQ(GraphMemsetNodeGetParams(second, &fill), Code::kSuccess);
  EXPECT_EQ(fill.value, 2u) << "the graph must not change";
  EXPECT_EQ(GraphMemsetNodeSetParams(first, &fill), Code::kSuccess);
  EXPECT_THAT(Launch(exec), ElementsAre(1, 9));
  EXPECT_EQ(GraphNodeSetEnabled(exec, first, 0), Code::kSuccess);
  EXPECT_THAT(Launch(exec), ElementsAre(9));
  unsigned is_enabled = 7;
  EXPECT_EQ(GraphNodeGetEnabled(exec, first, &is_enabled), Code::kSuccess);
  EXPECT_EQ(is_enabled, 0u);
  const HostNodeParameters host = {[](void*) {}, nullptr};
  EXPECT_EQ(GraphExecHostNodeSetParams(exec, second, &host), Code::kInvalidValue);
  EXPECT_EQ(GraphExecDestroy(exec), Code::kSuccess);
  EXPECT_EQ(GraphLaunch(exec, stream_), Code::kInvalidValue);
}

TEST_F(GraphTest, UpdateAcceptsGraphOfTheSameStructure) {
  AddFill(2, {AddFill(1)});
  const GraphExecHandle exec = Instantiate();
  ASSERT_EQ(GraphCreate(&graph_, 0), Code::kSuccess);
  const GraphNodeHandle first = AddFill(5);
  AddFill(6);
  UpdateResultInfo info{};
  EXPECT_EQ(GraphExecUpdate(exec, graph_, &info), Code::kGraphExecUpdateFailure);
  EXPECT_EQ(info.result, 2) << "CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED: an edge is missing";
  EXPECT_THAT(Launch(exec), ElementsAre(1, 2));
  ASSERT_EQ(GraphCreate(&graph_, 0), Code::kSuccess);
  AddFill(6, {AddFill(5)});
  EXPECT_EQ(GraphExecUpdate(exec, graph_, &info), Code::kSuccess);
  EXPECT_EQ(info.result, 0);
  EXPECT_THAT(Launch(exec), ElementsAre(5, 6));
  ASSERT_EQ(GraphCreate(&graph_, 0), Code::kSuccess);
  GraphNodeHandle empty = nullptr, found = nullptr;
  const GraphNodeHandle fill = AddFill(7);
  EXPECT_EQ(GraphAddEmptyNode(&empty, graph_, &fill, 1), Code::kSuccess);
  int result = 0;
  EXPECT_EQ(GraphExecUpdateV1(exec, graph_, &found, &result), Code::kGraphExecUpdateFailure);
  EXPECT_EQ(result, 3) << "CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED";
  EXPECT_EQ(found, empty);
  EXPECT_THAT(Launch(exec), ElementsAre(5, 6));
  EXPECT_EQ(GraphDestroyNode(first), Code::kSuccess);
}

TEST_F(GraphTest, ChildGraphsAreCopies) {
  const GraphNodeHandle inner = AddFill(1);
  const GraphHandle child = graph_;
  ASSERT_EQ(GraphCreate(&graph_, 0), Code::kSuccess);
  const GraphNodeHandle before = AddFill(0);
  GraphNodeHandle node = nullptr, found = nullptr;
  ASSERT_EQ(GraphAddChildGraphNode(&node, graph_, &before, 1, child), Code::kSuccess);
  AddFill(2, {node});
  const FillNodeParameters fill = GetFill(8);
  EXPECT_EQ(GraphMemsetNodeSetParams(inner, &fill), Code::kSuccess);
  const GraphExecHandle exec = Instantiate();
  EXPECT_THAT(Launch(exec), ElementsAre(0, 1, 2));
  GraphHandle own = nullptr;
  EXPECT_EQ(GraphChildGraphNodeGetGraph(node, &own), Code::kSuccess);
  EXPECT_EQ(GraphDestroy(own), Code::kInvalidValue) << "the child graph belongs to its node";
  EXPECT_EQ(GraphNodeFindInClone(&found, inner, own), Code::kSuccess);
  EXPECT_EQ(GraphExecMemsetNodeSetParams(exec, found, &fill, context_), Code::kSuccess);
  EXPECT_THAT(Launch(exec), ElementsAre(0, 8, 2));
  EXPECT_EQ(GraphExecChildGraphNodeSetParams(exec, node, own), Code::kSuccess);
  EXPECT_THAT(Launch(exec), ElementsAre(0, 1, 2));
  EXPECT_EQ(GraphExecChildGraphNodeSetParams(exec, node, graph_), Code::kInvalidValue);
  EXPECT_EQ(GraphDestroy(graph_), Code::kSuccess);
  int type = 0;
  EXPECT_EQ(GraphNodeGetType(found, &type), Code::kInvalidValue)
      << "the child graph's nodes end with the graph";
}

TEST_F(GraphTest, RejectsChildGraphsBeyondMaximumDepth) {
  int depth = 1;
  for (; depth < 100; ++depth) {
    GraphHandle outer = nullptr;
    GraphNodeHandle node = nullptr;
    ASSERT_EQ(GraphCreate(&outer, 0), Code::kSuccess);
    const Code code = GraphAddChildGraphNode(&node, outer, nullptr, 0, graph_);
    if (code == Code::kInvalidValue) break;
    ASSERT_EQ(code, Code::kSuccess);
    graph_ = outer;
  }
  EXPECT_EQ(depth, 64);
  EXPECT_EQ(GraphLaunch(Instantiate(), stream_), Code::kSuccess);
}

TEST_F(GraphTest, FindsNodesInClone) {
  const GraphNodeHandle first = AddFill(1);
  GraphHandle clone = nullptr;
  GraphNodeHandle copy = nullptr;
  ASSERT_EQ(GraphClone(&clone, graph_), Code::kSuccess);
  EXPECT_EQ(GraphNodeFindInClone(&copy, first, clone), Code::kSuccess);
  EXPECT_NE(copy, first);
  EXPECT_EQ(GraphNodeFindInClone(&copy, copy, clone), Code::kInvalidValue);
}

TEST_F(GraphTest, KernelNodesKeepParametersAndAttributes) {
  KernelNodeParameters launch = LaunchOfNothing();
  launch.launch.shared_bytes = 5;
  GraphNodeHandle node = nullptr;
  ASSERT_EQ(GraphAddKernelNode(&node, graph_, nullptr, 0, &launch), Code::kSuccess);
  launch.launch.grid_y = 0;
  EXPECT_EQ(GraphKernelNodeSetParams(node, &launch), Code::kInvalidValue);
  LaunchAttribute::Value value;
  value.cooperative = 1;
  EXPECT_EQ(GraphKernelNodeSetAttribute(node, 2, &value), Code::kSuccess);
  launch.launch.grid_y = 2;
  launch.launch.function = nullptr;
  launch.kernel = reinterpret_cast<KernelHandle>(nothing_);
  EXPECT_EQ(GraphKernelNodeSetParams(node, &launch), Code::kSuccess);
  value = {};
  EXPECT_EQ(GraphKernelNodeGetAttribute(node, 2, &value), Code::kSuccess);
  EXPECT_EQ(value.cooperative, 1) << "attributes stay";
  KernelNodeParameters got{};
  EXPECT_EQ(GraphKernelNodeGetParams(node, &got), Code::kSuccess);
  EXPECT_EQ(got.launch.function, nothing_);
  EXPECT_EQ(got.launch.grid_x, 3u);
  EXPECT_EQ(got.launch.grid_y, 2u);
  EXPECT_EQ(got.launch.shared_bytes, 5u);
  const GraphExecHandle exec = Instantiate();
  EXPECT_EQ(GraphLaunch(exec, stream_), Code::kSuccess);
  ASSERT_EQ(CtxSynchronize(), Code::kSuccess);
  const std::vector<testing::TakenCommand> taken = worker_.taken();
  const auto* const submitted = std::get_if<ipc::LaunchCommand>(&taken.back().command.body);
  ASSERT_NE(submitted, nullptr);
  EXPECT_EQ(ModuleUnload(module_), Code::kSuccess);
  EXPECT_EQ(GraphLaunch(exec, stream_), Code::kInvalidHandle) << "the kernel's module is unloaded";
}

// From the second consecutive launch on, a launch is one command of the server.
TEST_F(GraphTest, RepeatedLaunchesBecomeAGraphOfTheServer) {
  KernelNodeParameters launch = LaunchOfNothing();
  std::vector<GraphNodeHandle> nodes = {AddFill(1)};
  for (int i = 0; i < 10; ++i) {
    GraphNodeHandle node = nullptr;
    ASSERT_EQ(GraphAddKernelNode(&node, graph_, &nodes.back(), 1, &launch), Code::kSuccess);
    nodes.push_back(node);
  }
  AddFill(2, {nodes.back()});
  const GraphExecHandle exec = Instantiate();
  const auto counts = [&](const auto& launch_it) {
    const std::size_t before = worker_.taken().size();
    launch_it();
    EXPECT_EQ(CtxSynchronize(), Code::kSuccess);
    std::array<int, 4> count{};  // Launches, nodes set, graphs launched, fills.
    const std::vector<testing::TakenCommand> taken = worker_.taken();
    for (std::size_t i = before; i < taken.size(); ++i) {
      const auto& body = taken[i].command.body;
      count[0] += std::holds_alternative<ipc::LaunchCommand>(body);
      count[1] += std::holds_alternative<ipc::SetGraphNodeCommand>(body);
      count[2] += std::holds_alternative<ipc::LaunchGraphCommand>(body);
      count[3] += std::holds_alternative<ipc::FillCommand>(body);
    }
    return count;
  };
  const auto launch_it = [&] { EXPECT_EQ(GraphLaunch(exec, stream_), Code::kSuccess); };
  EXPECT_THAT(counts(launch_it), ElementsAre(10, 0, 0, 2))
      << "the first launch submits single commands";
  EXPECT_THAT(counts(launch_it), ElementsAre(0, 10, 1, 2));
  EXPECT_THAT(counts(launch_it), ElementsAre(0, 0, 1, 2));
  launch.launch.grid_x = 7;
  EXPECT_EQ(GraphExecKernelNodeSetParams(exec, nodes[4], &launch), Code::kSuccess);
  EXPECT_THAT(counts(launch_it), ElementsAre(0, 1, 1, 2)) << "only the changed node is sent";
  EXPECT_EQ(GraphNodeSetEnabled(exec, nodes[5], 0), Code::kSuccess);
  EXPECT_THAT(counts(launch_it), ElementsAre(0, 9, 1, 2)) << "one less: another graph";
  EXPECT_EQ(ModuleUnload(module_), Code::kSuccess);
  EXPECT_EQ(GraphLaunch(exec, stream_), Code::kInvalidHandle) << "the kernel's module is unloaded";
}

// The commands of a launch run after those of the previous launch, even if that was in another
// stream.
TEST_F(GraphTest, LaunchesOfOneExecDoNotOverlap) {
  AddFill(1);
  const GraphExecHandle exec = Instantiate();
  const StreamHandle other = NewStream();
  worker_.set_finishing(false);
  EXPECT_EQ(GraphLaunch(exec, stream_), Code::kSuccess);
  EXPECT_EQ(GraphLaunch(exec, other), Code::kSuccess);
  worker_.set_finishing(true);
  ASSERT_EQ(CtxSynchronize(), Code::kSuccess);
  const std::vector<testing::TakenCommand> taken = worker_.taken();
  const auto wait = std::ranges::find_if(taken, [](const testing::TakenCommand& it) {
    return std::holds_alternative<ipc::WaitForCommand>(it.command.body);
  });
  ASSERT_NE(wait, taken.end());
  EXPECT_LT(std::get<ipc::WaitForCommand>(wait->command.body).target.stream,
            wait->command.id.stream);
  ASSERT_EQ(StreamDestroy(other), Code::kSuccess);
  EXPECT_EQ(GraphLaunch(exec, stream_), Code::kSuccess) << "its last stream has been destroyed";
}

TEST_F(GraphTest, CapturedGraphLaunchBecomesChildGraph) {
  AddFill(1);
  const GraphExecHandle exec = Instantiate();
  ASSERT_EQ(StreamBeginCapture(stream_, 0), Code::kSuccess);
  EXPECT_EQ(GraphLaunch(exec, stream_), Code::kSuccess);
  ASSERT_EQ(StreamEndCapture(stream_, &graph_), Code::kSuccess);
  std::size_t count = 1;
  GraphNodeHandle node = nullptr;
  int type = 0;
  EXPECT_EQ(GraphGetNodes(graph_, &node, &count), Code::kSuccess);
  EXPECT_EQ(GraphNodeGetType(node, &type), Code::kSuccess);
  EXPECT_EQ(type, 4);
  EXPECT_THAT(Launch(Instantiate()), ElementsAre(1));
}

TEST_F(GraphTest, OneCallCreatesNodesOfAnyType) {
  NodeParameters node{};
  node.type = 2;
  node.fill = GetFill(4);
  GraphNodeHandle fill = nullptr, event_node = nullptr;
  ASSERT_EQ(GraphAddNode(&fill, graph_, nullptr, 0, &node), Code::kSuccess);
  EventHandle event = nullptr, got = nullptr;
  ASSERT_EQ(EventCreate(&event, 0), Code::kSuccess);
  node = {};
  node.type = 7;
  node.event = event;
  ASSERT_EQ(GraphAddNodeV2(&event_node, graph_, &fill, nullptr, 1, &node), Code::kSuccess);
  EXPECT_EQ(GraphEventRecordNodeGetEvent(event_node, &got), Code::kSuccess);
  EXPECT_EQ(got, event);
  EXPECT_EQ(GraphEventWaitNodeGetEvent(event_node, &got), Code::kInvalidValue);
  node.type = 8;
  EXPECT_EQ(GraphAddNode(&fill, graph_, nullptr, 0, &node), Code::kNotSupported);
  EXPECT_THAT(Launch(Instantiate()), ElementsAre(4));
  EXPECT_EQ(EventSynchronize(event), Code::kSuccess);
}

// Graphs and instantiated graphs keep an object alive until the last of them is destroyed.
TEST_F(GraphTest, UserObjectLivesAsLongAsItsGraphs) {
  std::promise<void> ended;
  std::future<void> end = ended.get_future();
  const auto has_ended = [&] {
    return end.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  };
  UserObjectHandle object = nullptr;
  const auto destroy = [](void* data) { static_cast<std::promise<void>*>(data)->set_value(); };
  EXPECT_EQ(UserObjectCreate(&object, &ended, destroy, 1, 0), Code::kInvalidValue) << "no flag";
  ASSERT_EQ(UserObjectCreate(&object, &ended, destroy, 2, 1), Code::kSuccess);
  EXPECT_EQ(GraphRetainUserObject(graph_, object, 3, 1), Code::kInvalidValue)
      << "the program has two references";
  EXPECT_EQ(GraphRetainUserObject(graph_, object, 1, 1), Code::kSuccess);
  AddFill(1);
  const GraphExecHandle exec = Instantiate();
  EXPECT_EQ(UserObjectRelease(object, 1), Code::kSuccess);
  EXPECT_EQ(UserObjectRelease(object, 1), Code::kInvalidValue)
      << "the program has no reference left";
  EXPECT_EQ(GraphReleaseUserObject(graph_, object, 1), Code::kSuccess)
      << "the graph has a reference";
  EXPECT_FALSE(has_ended());
  worker_.set_finishing(false);
  EXPECT_EQ(GraphLaunch(exec, stream_), Code::kSuccess);
  EXPECT_EQ(GraphExecDestroy(exec), Code::kSuccess);
  EXPECT_FALSE(has_ended()) << "must live until the launch has ended";
  worker_.set_finishing(true);
  end.wait();
  EXPECT_EQ(UserObjectRetain(object, 1), Code::kInvalidValue) << "the object has been destroyed";
}

TEST_F(GraphTest, DotOutputNamesNodesAndEdges) {
  const testing::ScratchDirectory directory;
  ASSERT_EQ(StreamBeginCaptureToGraph(stream_, graph_, nullptr, nullptr, 0, 0), Code::kSuccess);
  EXPECT_EQ(LaunchOn(stream_), Code::kSuccess);
  EXPECT_EQ(MemsetD8Async(memory_, 1, 1, stream_), Code::kSuccess);
  GraphHandle same = nullptr;
  ASSERT_EQ(StreamEndCapture(stream_, &same), Code::kSuccess);
  EXPECT_EQ(same, graph_);
  EXPECT_EQ(GraphDebugDotPrint(graph_, (directory / "graph.dot").c_str(), 0), Code::kSuccess);
  const std::string text = testing::ReadFile(directory / "graph.dot");
  EXPECT_THAT(text, HasSubstr("KERNEL\\nnothing"));
  EXPECT_THAT(text, HasSubstr("MEMSET"));
  EXPECT_THAT(text, HasSubstr("->"));
  EXPECT_EQ(GraphDebugDotPrint(graph_, "/nonexistent/graph.dot", 0), Code::kOperatingSystem);
}

TEST_F(GraphTest, NodesReturnTheirParameters) {
  const GraphNodeHandle fill = AddFill(5);
  NodeParameters parameters{};
  ASSERT_EQ(GraphNodeGetParams(fill, &parameters), Code::kSuccess);
  EXPECT_EQ(parameters.type, 2);
  EXPECT_EQ(parameters.fill.value, 5u);
  EXPECT_EQ(parameters.fill.destination, memory_);
  parameters.fill.value = 6;
  EXPECT_EQ(GraphNodeSetParams(fill, &parameters), Code::kSuccess)
      << "parameters as read must be accepted";
  EXPECT_THAT(Launch(Instantiate()), ElementsAre(6));
  parameters = {};
  parameters.kernel.launch = {.function = nothing_,
                              .grid_x = 3,
                              .grid_y = 1,
                              .grid_z = 1,
                              .block_x = 4,
                              .block_y = 1,
                              .block_z = 1};
  GraphNodeHandle launch = nullptr;
  ASSERT_EQ(GraphAddNode(&launch, graph_, nullptr, 0, &parameters), Code::kSuccess);
  parameters = {};
  ASSERT_EQ(GraphNodeGetParams(launch, &parameters), Code::kSuccess);
  EXPECT_EQ(parameters.type, 0);
  EXPECT_EQ(parameters.kernel.launch.function, nothing_);
  EXPECT_EQ(parameters.kernel.launch.grid_x, 3u);
  EXPECT_EQ(GraphNodeGetParams(nullptr, &parameters), Code::kInvalidValue);
}

TEST_F(GraphTest, IdsDistinguishGraphsAndNodes) {
  const GraphNodeHandle first = AddFill(1), second = AddFill(2);
  GraphHandle clone = nullptr, containing = nullptr;
  GraphNodeHandle copy = nullptr;
  ASSERT_EQ(GraphClone(&clone, graph_), Code::kSuccess);
  ASSERT_EQ(GraphNodeFindInClone(&copy, first, clone), Code::kSuccess);
  EXPECT_EQ(GraphNodeGetContainingGraph(first, &containing), Code::kSuccess);
  EXPECT_EQ(containing, graph_);
  EXPECT_EQ(GraphNodeGetContainingGraph(copy, &containing), Code::kSuccess);
  EXPECT_EQ(containing, clone);
  const auto number_of = [](GraphNodeHandle node) {
    unsigned local = 0;
    unsigned long long tools = 0;
    EXPECT_EQ(GraphNodeGetLocalId(node, &local), Code::kSuccess);
    EXPECT_EQ(GraphNodeGetToolsId(node, &tools), Code::kSuccess);
    EXPECT_EQ(local, tools);
    return local;
  };
  EXPECT_NE(number_of(first), number_of(second));
  EXPECT_NE(number_of(first), number_of(copy));
  const testing::ScratchDirectory directory;
  const std::string path = directory.path() + "/graph.dot";
  ASSERT_EQ(GraphDebugDotPrint(graph_, path.c_str(), 0), Code::kSuccess);
  EXPECT_THAT(testing::ReadFile(path), HasSubstr("node " + std::to_string(number_of(first))));
  unsigned one = 0, two = 0, three = 0;
  EXPECT_EQ(GraphGetId(graph_, &one), Code::kSuccess);
  EXPECT_EQ(GraphGetId(clone, &two), Code::kSuccess);
  EXPECT_EQ(GraphExecGetId(Instantiate(), &three), Code::kSuccess);
  EXPECT_NE(one, two);
  EXPECT_NE(three, one);
  EXPECT_NE(three, two);
}

}  // namespace
}  // namespace gpushared::drop_in
