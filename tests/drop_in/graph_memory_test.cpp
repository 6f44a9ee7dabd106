// SPDX-License-Identifier: Apache-2.0
// Nodes that allocate and free: when their memory exists, who owns it, and which uses are rejected.
#include <cstdint>

#include <gtest/gtest.h>

#include "client_lib/drop_in/graph.h"
#include "tests/drop_in/drop_in_case.h"

namespace gpushared::drop_in {
namespace {

constexpr std::size_t kBytes = 4096;
constexpr unsigned long long kAutoFree = 1;

class GraphMemoryTest : public DropInCase {
 protected:
  GraphMemoryTest() { EXPECT_EQ(GraphCreate(&graph_, 0), Code::kSuccess); }
  ~GraphMemoryTest() override { static_cast<void>(GraphDestroy(graph_)); }

  static MemoryNodeParameters Parameters(std::size_t bytes = kBytes) {
    MemoryNodeParameters parameters{};
    parameters.pool.type = AllocationType::kPinned;
    parameters.pool.location = {LocationType::kDevice, 0};
    parameters.bytes = bytes;
    return parameters;
  }
  GraphNodeHandle AddAllocation(DevicePointer& address) {
    MemoryNodeParameters parameters = Parameters();
    GraphNodeHandle node = nullptr;
    EXPECT_EQ(GraphAddMemAllocNode(&node, graph_, nullptr, 0, &parameters), Code::kSuccess);
    address = parameters.address;
    return node;
  }
  GraphExecHandle Instantiate(unsigned long long flags = 0) {
    GraphExecHandle exec = nullptr;
    EXPECT_EQ(GraphInstantiateWithFlags(&exec, graph_, flags), Code::kSuccess);
    return exec;
  }
  // Returns whether the address is valid for copies.
  bool IsAllocated(DevicePointer address) {
    return MemsetD8Async(address, 0, kBytes, stream_) == Code::kSuccess;
  }
  std::uint64_t Held() {
    std::uint64_t bytes = 0;
    EXPECT_EQ(DeviceGetGraphMemAttribute(0, 0, &bytes), Code::kSuccess);
    return bytes;
  }

  StreamHandle stream_ = NewStream();
  GraphHandle graph_ = nullptr;
};

TEST_F(GraphMemoryTest, LaunchAllocatesAndTheProgramFrees) {
  DevicePointer address = 0;
  AddAllocation(address);
  EXPECT_FALSE(IsAllocated(address)) << "nothing allocates before a launch";
  GraphExecHandle const exec = Instantiate();
  ASSERT_EQ(GraphLaunch(exec, stream_), Code::kSuccess);
  EXPECT_TRUE(IsAllocated(address));
  EXPECT_EQ(GraphLaunch(exec, stream_), Code::kInvalidValue) << "the memory is still allocated";
  EXPECT_EQ(MemFreeAsync(address, stream_), Code::kSuccess);
  EXPECT_FALSE(IsAllocated(address));
  EXPECT_EQ(GraphLaunch(exec, stream_), Code::kSuccess)
      << "must allocate at the same address again";
  EXPECT_EQ(MemFree(address), Code::kSuccess);
  EXPECT_EQ(MemFree(address), Code::kInvalidValue);
}

TEST_F(GraphMemoryTest, NodeFreesWhatAnEarlierOneAllocates) {
  DevicePointer address = 0;
  GraphNodeHandle const allocation = AddAllocation(address);
  GraphNodeHandle fill = nullptr, free = nullptr, second = nullptr;
  const FillNodeParameters bytes = {.destination = address,
                                    .pitch_bytes = 0,
                                    .value = 7,
                                    .element_bytes = 1,
                                    .width_elements = kBytes,
                                    .height = 1};
  ASSERT_EQ(GraphAddMemsetNode(&fill, graph_, &allocation, 1, &bytes, context_), Code::kSuccess);
  ASSERT_EQ(GraphAddMemFreeNode(&free, graph_, &fill, 1, address), Code::kSuccess);
  EXPECT_EQ(GraphAddMemFreeNode(&second, graph_, &fill, 1, address), Code::kInvalidValue);
  EXPECT_EQ(GraphAddMemFreeNode(&second, graph_, &fill, 1, address + 1), Code::kInvalidValue);
  GraphExecHandle const exec = Instantiate();
  for (int launch = 0; launch < 3; ++launch) {
    EXPECT_EQ(GraphLaunch(exec, stream_), Code::kSuccess);
    EXPECT_FALSE(IsAllocated(address));
  }
  int type = -1;
  EXPECT_EQ(GraphNodeGetType(allocation, &type), Code::kSuccess);
  EXPECT_EQ(type, kTypeAllocate);
  EXPECT_EQ(GraphNodeGetType(free, &type), Code::kSuccess);
  EXPECT_EQ(type, kTypeFree);
  MemoryNodeParameters parameters{};
  DevicePointer freed = 0;
  EXPECT_EQ(GraphMemAllocNodeGetParams(allocation, &parameters), Code::kSuccess);
  EXPECT_EQ(parameters.address, address);
  EXPECT_EQ(GraphMemFreeNodeGetParams(free, &freed), Code::kSuccess);
  EXPECT_EQ(freed, address);
  EXPECT_EQ(GraphMemFreeNodeGetParams(allocation, &freed), Code::kInvalidValue);
}

TEST_F(GraphMemoryTest, LaunchFreesRemainingMemoryIfRequested) {
  DevicePointer address = 0;
  AddAllocation(address);
  GraphExecHandle const exec = Instantiate(kAutoFree);
  for (int launch = 0; launch < 3; ++launch) {
    EXPECT_EQ(GraphLaunch(exec, stream_), Code::kSuccess);
  }
  EXPECT_TRUE(IsAllocated(address));
}

TEST_F(GraphMemoryTest, MemoryStaysUntilGraphAndProgramReleaseIt) {
  const std::uint64_t before = Held();
  DevicePointer address = 0;
  AddAllocation(address);
  EXPECT_EQ(Held(), before + kBytes);
  GraphExecHandle const exec = Instantiate();
  ASSERT_EQ(GraphLaunch(exec, stream_), Code::kSuccess);
  ASSERT_EQ(GraphDestroy(graph_), Code::kSuccess);
  ASSERT_EQ(GraphExecDestroy(exec), Code::kSuccess);
  EXPECT_TRUE(IsAllocated(address));
  EXPECT_EQ(Held(), before + kBytes);
  EXPECT_EQ(MemFree(address), Code::kSuccess);
  EXPECT_EQ(Held(), before);
  std::uint64_t high = 0;
  EXPECT_EQ(DeviceSetGraphMemAttribute(0, 0, &high), Code::kInvalidValue);
  EXPECT_EQ(DeviceSetGraphMemAttribute(0, 1, &high), Code::kSuccess);
  EXPECT_EQ(DeviceGetGraphMemAttribute(0, 3, &high), Code::kSuccess);
  EXPECT_EQ(high, before);
  EXPECT_EQ(DeviceGraphMemTrim(0), Code::kSuccess);
}

TEST_F(GraphMemoryTest, GraphWithMemoryNodesCannotBeCopied) {
  DevicePointer address = 0;
  GraphNodeHandle const node = AddAllocation(address);
  GraphExecHandle const exec = Instantiate();
  GraphExecHandle second = nullptr;
  GraphHandle copy = nullptr, outer = nullptr;
  GraphNodeHandle child = nullptr;
  EXPECT_EQ(GraphInstantiateWithFlags(&second, graph_, 0), Code::kInvalidValue);
  EXPECT_EQ(GraphClone(&copy, graph_), Code::kNotSupported);
  ASSERT_EQ(GraphCreate(&outer, 0), Code::kSuccess);
  EXPECT_EQ(GraphAddChildGraphNode(&child, outer, nullptr, 0, graph_), Code::kNotSupported);
  EXPECT_EQ(GraphDestroyNode(node), Code::kNotSupported);
  ASSERT_EQ(GraphExecDestroy(exec), Code::kSuccess);
  EXPECT_EQ(GraphInstantiateWithFlags(&second, graph_, 0), Code::kSuccess);
}

TEST_F(GraphMemoryTest, CaptureCreatesMemoryNodes) {
  DevicePointer address = 0, other = 0;
  ASSERT_EQ(MemAlloc(&other, kBytes), Code::kSuccess);
  ASSERT_EQ(StreamBeginCapture(stream_, 0), Code::kSuccess);
  ASSERT_EQ(MemAllocAsync(&address, kBytes, stream_), Code::kSuccess);
  EXPECT_EQ(MemcpyAsync(other, address, kBytes, stream_), Code::kSuccess);
  EXPECT_EQ(MemFreeAsync(other, stream_), Code::kInvalidValue)
      << "memory that no graph has allocated";
  ASSERT_EQ(MemFreeAsync(address, stream_), Code::kSuccess);
  GraphHandle graph = nullptr;
  ASSERT_EQ(StreamEndCapture(stream_, &graph), Code::kSuccess);
  GraphExecHandle exec = nullptr;
  ASSERT_EQ(GraphInstantiateWithFlags(&exec, graph, 0), Code::kSuccess);
  EXPECT_EQ(GraphLaunch(exec, stream_), Code::kSuccess);
  EXPECT_EQ(GraphLaunch(exec, stream_), Code::kSuccess);
  EXPECT_FALSE(IsAllocated(address));
  EXPECT_EQ(GraphExecDestroy(exec), Code::kSuccess);
  EXPECT_EQ(GraphDestroy(graph), Code::kSuccess);
}

TEST_F(GraphMemoryTest, WrongParametersAreRejected) {
  GraphNodeHandle node = nullptr;
  const auto add = [&](MemoryNodeParameters parameters) {
    return GraphAddMemAllocNode(&node, graph_, nullptr, 0, &parameters);
  };
  EXPECT_EQ(add(Parameters(0)), Code::kInvalidValue);
  EXPECT_EQ(add(Parameters(~std::size_t{0})), Code::kOutOfMemory);
  MemoryNodeParameters parameters = Parameters();
  parameters.pool.location.id = 99;
  EXPECT_EQ(add(parameters), Code::kInvalidDevice);
  parameters = Parameters();
  parameters.pool.handle_types = 1;
  EXPECT_EQ(add(parameters), Code::kNotSupported);
  parameters = Parameters();
  AccessDescription access{};
  access.location = {LocationType::kDevice, 1};
  parameters.access = &access;
  parameters.access_count = 1;
  EXPECT_EQ(add(parameters), Code::kInvalidDevice);
  access.location.id = 0;
  EXPECT_EQ(add(parameters), Code::kSuccess);
  EXPECT_EQ(GraphAddMemAllocNode(&node, graph_, nullptr, 0, nullptr), Code::kInvalidValue);
}

TEST_F(GraphMemoryTest, GraphOutlivesTheSessionWithoutAllocating) {
  DevicePointer address = 0;
  AddAllocation(address);
  GraphExecHandle const exec = Instantiate();
  ASSERT_EQ(CtxDestroy(context_), Code::kSuccess);
  EXPECT_EQ(Held(), 0u);
  ASSERT_EQ(CtxCreate(&context_, 0, 0), Code::kSuccess);
  stream_ = NewStream(0);
  EXPECT_EQ(GraphLaunch(exec, stream_), Code::kInvalidValue);
}

}  // namespace
}  // namespace gpushared::drop_in
