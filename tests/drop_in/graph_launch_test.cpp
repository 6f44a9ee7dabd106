// SPDX-License-Identifier: Apache-2.0
// Graphs that are actually executed: captured ones and hand-built ones.
#include <algorithm>
#include <cstdint>
#include <vector>

#include <cuda.h>
#include <gtest/gtest.h>

#include "tests/drop_in/server_case.h"

namespace gpushared::testing {
namespace {

class GraphLaunchTest : public DropInServerCase {
 protected:
  void SetUp() override {
    UsePrimary();
    numbers_ = Numbers();
    stream_ = NewStream();
    other_ = NewStream();
    static_cast<void>(Function("add_one"));
  }

  // Returns the stream's captured work, instantiated.
  CUgraphExec EndCapture() {
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    EXPECT_EQ(cuStreamEndCapture(stream_, &graph), CUDA_SUCCESS);
    EXPECT_EQ(cuGraphInstantiate(&exec, graph, 0), CUDA_SUCCESS);
    EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
    return exec;
  }

  CUdeviceptr numbers_ = 0;
  CUstream stream_ = nullptr, other_ = nullptr;
};

// The first launch submits each node as a command; from the second one on, a launch is a single
// command of the server.
TEST_F(GraphLaunchTest, RepeatedLaunchesHaveTheSameEffect) {
  constexpr std::uint32_t kNodes = 20, kLaunches = 5;
  ASSERT_EQ(cuMemcpyHtoD(numbers_, All(10).data(), kBytes), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  for (std::uint32_t i = 0; i < kNodes; ++i) EXPECT_EQ(AddOne(numbers_, stream_), CUDA_SUCCESS);
  const CUgraphExec exec = EndCapture();
  for (std::uint32_t i = 0; i < kLaunches; ++i) {
    EXPECT_EQ(cuGraphLaunch(exec, stream_), CUDA_SUCCESS);
  }
  ASSERT_EQ(cuStreamSynchronize(stream_), CUDA_SUCCESS);
  EXPECT_EQ(Read(numbers_), All(10 + kNodes * kLaunches));
  EXPECT_EQ(cuGraphExecDestroy(exec), CUDA_SUCCESS);
}

TEST_F(GraphLaunchTest, CapturedWorkRunsAsOftenAsItIsLaunched) {
  std::vector<std::uint32_t> from = All(10), back = All(7);
  int calls = 0;
  ASSERT_EQ(cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  EXPECT_EQ(cuMemcpyHtoDAsync(numbers_, from.data(), kBytes, stream_), CUDA_SUCCESS);
  EXPECT_EQ(AddOne(numbers_, stream_), CUDA_SUCCESS) << "the capture must copy the parameters";
  EXPECT_EQ(AddOne(numbers_, stream_), CUDA_SUCCESS);
  EXPECT_EQ(cuMemcpyDtoHAsync(back.data(), numbers_, kBytes, stream_), CUDA_SUCCESS);
  EXPECT_EQ(cuLaunchHostFunc(
                stream_, [](void* count) { ++*static_cast<int*>(count); }, &calls),
            CUDA_SUCCESS);
  const CUgraphExec exec = EndCapture();
  EXPECT_EQ(back, All(7)) << "capturing must not execute the work";
  for (const std::uint32_t value : {10u, 40u}) {
    std::ranges::fill(from, value);
    ASSERT_EQ(cuGraphLaunch(exec, stream_), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamSynchronize(stream_), CUDA_SUCCESS);
    EXPECT_EQ(back, All(value + 2));
  }
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(cuGraphExecDestroy(exec), CUDA_SUCCESS);
}

TEST_F(GraphLaunchTest, CapturedAllocationLivesUntilItsFreeNode) {
  CUdeviceptr scratch = 0;
  ASSERT_EQ(cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  ASSERT_EQ(cuMemAllocAsync(&scratch, kBytes, stream_), CUDA_SUCCESS);
  EXPECT_EQ(cuMemcpyAsync(scratch, numbers_, kBytes, stream_), CUDA_SUCCESS);
  EXPECT_EQ(AddOne(scratch, stream_), CUDA_SUCCESS);
  EXPECT_EQ(cuMemcpyAsync(numbers_, scratch, kBytes, stream_), CUDA_SUCCESS);
  ASSERT_EQ(cuMemFreeAsync(scratch, stream_), CUDA_SUCCESS);
  const CUgraphExec exec = EndCapture();
  for (int launch = 0; launch < 3; ++launch) {
    ASSERT_EQ(cuGraphLaunch(exec, stream_), CUDA_SUCCESS);
  }
  ASSERT_EQ(cuStreamSynchronize(stream_), CUDA_SUCCESS);
  EXPECT_EQ(Read(numbers_), All(3));
  EXPECT_EQ(cuGraphExecDestroy(exec), CUDA_SUCCESS);
}

TEST_F(GraphLaunchTest, JoinedBranchesOfACaptureAreOrdered) {
  const CUdeviceptr more = Numbers();
  CUevent fork = nullptr, join = nullptr;
  for (CUevent* event : {&fork, &join}) {
    ASSERT_EQ(cuEventCreate(event, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  }
  ASSERT_EQ(cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  EXPECT_EQ(AddOne(numbers_, stream_), CUDA_SUCCESS);
  EXPECT_EQ(cuEventRecord(fork, stream_), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamWaitEvent(other_, fork, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuMemcpyDtoDAsync(more, numbers_, kBytes, other_), CUDA_SUCCESS);
  EXPECT_EQ(cuEventRecord(join, other_), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamWaitEvent(stream_, join, 0), CUDA_SUCCESS);
  EXPECT_EQ(AddOne(numbers_, stream_), CUDA_SUCCESS);
  const CUgraphExec exec = EndCapture();
  ASSERT_EQ(cuGraphLaunch(exec, stream_), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamSynchronize(stream_), CUDA_SUCCESS);
  EXPECT_EQ(Read(more), All(1));
  EXPECT_EQ(Read(numbers_), All(2));
}

TEST_F(GraphLaunchTest, SetParamsRedirectsKernelsOfABuiltGraph) {
  CUdeviceptr target = numbers_;
  const CUdeviceptr more = Numbers();
  unsigned n = kCount;
  void* parameters[] = {&target, &n};
  CUDA_KERNEL_NODE_PARAMS launch{};
  launch.func = Function("add_one");
  launch.gridDimX = 8;
  launch.blockDimX = 128;
  launch.gridDimY = launch.gridDimZ = launch.blockDimY = launch.blockDimZ = 1;
  launch.kernelParams = parameters;
  CUgraph graph = nullptr;
  CUgraphNode node = nullptr;
  CUgraphExec exec = nullptr;
  ASSERT_EQ(cuGraphCreate(&graph, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphAddKernelNode(&node, graph, nullptr, 0, &launch), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphInstantiate(&exec, graph, 0), CUDA_SUCCESS);
  target = more;
  ASSERT_EQ(cuGraphLaunch(exec, stream_), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphExecKernelNodeSetParams(exec, node, &launch), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphLaunch(exec, stream_), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphLaunch(exec, stream_), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamSynchronize(stream_), CUDA_SUCCESS);
  EXPECT_EQ(Read(numbers_), All(1));
  EXPECT_EQ(Read(more), All(2));
  CUDA_KERNEL_NODE_PARAMS got{};
  ASSERT_EQ(cuGraphKernelNodeGetParams(node, &got), CUDA_SUCCESS);
  EXPECT_EQ(*static_cast<CUdeviceptr*>(got.kernelParams[0]), numbers_);
  EXPECT_EQ(*static_cast<unsigned*>(got.kernelParams[1]), n);
}

}  // namespace
}  // namespace gpushared::testing
