// SPDX-License-Identifier: Apache-2.0
// Calls that name a stream run in its context, whichever context is current; and the exceptions.
#include <cstdint>
#include <vector>

#include <cuda.h>
#include <gtest/gtest.h>

#include "tests/drop_in/server_case.h"

namespace gpushared {
namespace {

using testing::All;
using testing::kBytes;
using testing::kCount;

// The current context while a stream of the first context is used: none, another context of the
// same device, or a context of another device.
enum class Other { kNone, kOfTheDevice, kOfAnotherDevice };

class StreamContextTest : public testing::DropInServerCase,
                          public ::testing::WithParamInterface<Other> {
 protected:
  StreamContextTest() : DropInServerCase({"--device", "cpu:0,cpu:1"}) {
    EXPECT_EQ(cuInit(0), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxCreate(&context_, nullptr, 0, 0), CUDA_SUCCESS);
    stream_ = NewStream();
    EXPECT_EQ(cuEventCreate(&event_, 0), CUDA_SUCCESS);
    numbers_ = Numbers();
    add_one_ = Function("add_one");
    if (GetParam() != Other::kNone) {
      const int device = GetParam() == Other::kOfAnotherDevice ? 1 : 0;
      EXPECT_EQ(cuCtxCreate(&other_, nullptr, 0, device), CUDA_SUCCESS);
    }
    EXPECT_EQ(cuCtxSetCurrent(other_), CUDA_SUCCESS);
  }

  ~StreamContextTest() override {
    CUcontext current = nullptr;
    EXPECT_EQ(cuCtxGetCurrent(&current), CUDA_SUCCESS);
    EXPECT_EQ(current, other_) << "a call changed it";
  }

  // Like AddOne, but does not look up the function, because lookups are only possible while the
  // function's context is current.
  CUresult LaunchAddOne() {
    unsigned n = kCount;
    void* parameters[] = {&numbers_, &n};
    return cuLaunchKernel(add_one_, 8, 1, 1, 128, 1, 1, 0, stream_, parameters, nullptr);
  }

  CUcontext other_ = nullptr;
  CUstream stream_ = nullptr;
  CUevent event_ = nullptr;
  CUdeviceptr numbers_ = 0;
  CUfunction add_one_ = nullptr;
};

TEST_P(StreamContextTest, CommandsRunInTheStreamsContext) {
  std::vector<std::uint32_t> host(kCount, 5), found(kCount);
  EXPECT_EQ(cuMemsetD32Async(numbers_, 3, kCount, stream_), CUDA_SUCCESS);
  EXPECT_EQ(LaunchAddOne(), CUDA_SUCCESS);
  EXPECT_EQ(cuMemcpyDtoHAsync(found.data(), numbers_, kBytes, stream_), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamSynchronize(stream_), CUDA_SUCCESS);
  EXPECT_EQ(found, All(4));
  EXPECT_EQ(cuMemcpyHtoDAsync(numbers_, host.data(), kBytes, stream_), CUDA_SUCCESS);
  CUlaunchConfig config = {};
  config.gridDimX = 8;
  config.blockDimX = 128;
  config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
  config.hStream = stream_;
  unsigned n = kCount;
  void* parameters[] = {&numbers_, &n};
  EXPECT_EQ(cuLaunchKernelEx(&config, add_one_, parameters, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(found.data()), numbers_, kBytes, stream_),
            CUDA_SUCCESS);
  EXPECT_EQ(cuStreamSynchronize(stream_), CUDA_SUCCESS);
  EXPECT_EQ(found, All(6));
  CUDA_MEMCPY2D plane = {};
  plane.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
  plane.srcDevice = numbers_;
  plane.dstMemoryType = CU_MEMORYTYPE_HOST;
  plane.dstHost = host.data();
  plane.WidthInBytes = kBytes;
  plane.Height = 1;
  EXPECT_EQ(cuMemcpy2DAsync(&plane, stream_), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamSynchronize(stream_), CUDA_SUCCESS);
  EXPECT_EQ(host, All(6));
}

TEST_P(StreamContextTest, EventsQueriesAndHostFunctionsUseTheStreamsContext) {
  EXPECT_EQ(cuEventRecord(event_, stream_), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamWaitEvent(stream_, event_, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuEventSynchronize(event_), CUDA_SUCCESS);
  EXPECT_TRUE(testing::Eventually([&] { return cuStreamQuery(stream_) == CUDA_SUCCESS; }));
  bool has_run = false;
  EXPECT_EQ(cuLaunchHostFunc(
                stream_, [](void* data) { *static_cast<bool*>(data) = true; }, &has_run),
            CUDA_SUCCESS);
  EXPECT_EQ(cuStreamSynchronize(stream_), CUDA_SUCCESS);
  EXPECT_TRUE(has_run);
  unsigned flags = 0;
  int priority = 1;
  unsigned long long id = 0;
  CUcontext of_stream = nullptr;
  EXPECT_EQ(cuStreamGetFlags(stream_, &flags), CUDA_SUCCESS);
  EXPECT_EQ(flags, unsigned{CU_STREAM_NON_BLOCKING});
  EXPECT_EQ(cuStreamGetPriority(stream_, &priority), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamGetId(stream_, &id), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamGetCtx(stream_, &of_stream), CUDA_SUCCESS);
  EXPECT_EQ(of_stream, context_);
}

TEST_P(StreamContextTest, MemoryAndGraphsUseTheStreamsContext) {
  CUdeviceptr pooled = 0;
  std::uint32_t found = 0;
  EXPECT_EQ(cuMemAllocAsync(&pooled, 64, stream_), CUDA_SUCCESS);
  EXPECT_EQ(cuMemsetD32Async(pooled, 8, 16, stream_), CUDA_SUCCESS);
  EXPECT_EQ(cuMemcpyDtoHAsync(&found, pooled, 4, stream_), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFreeAsync(pooled, stream_), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamSynchronize(stream_), CUDA_SUCCESS);
  EXPECT_EQ(found, 8u);
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  EXPECT_EQ(cuMemsetD32Async(numbers_, 1, kCount, stream_), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  EXPECT_EQ(LaunchAddOne(), CUDA_SUCCESS);
  EXPECT_EQ(cuMemcpyDtoHAsync(&found, numbers_, 4, stream_), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamEndCapture(stream_, &graph), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphInstantiate(&exec, graph, 0), CUDA_SUCCESS);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(cuGraphLaunch(exec, stream_), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamSynchronize(stream_), CUDA_SUCCESS);
  EXPECT_EQ(found, 4u);
}

TEST_P(StreamContextTest, DefaultStreamsAndInvalidHandlesNeedACurrentContext) {
  const bool has_none = GetParam() == Other::kNone;
  EXPECT_EQ(cuStreamSynchronize(nullptr), has_none ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS);
  EXPECT_EQ(cuStreamQuery(CU_STREAM_PER_THREAD),
            has_none ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS);
  EXPECT_EQ(cuStreamSynchronize(reinterpret_cast<CUstream>(0x1234)),
            has_none ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_HANDLE);
  ASSERT_EQ(cuCtxDestroy(context_), CUDA_SUCCESS);
  EXPECT_NE(cuStreamSynchronize(stream_), CUDA_SUCCESS) << "its context has ended";
}

INSTANTIATE_TEST_SUITE_P(Beside, StreamContextTest,
                         ::testing::Values(Other::kNone, Other::kOfTheDevice,
                                           Other::kOfAnotherDevice));

}  // namespace
}  // namespace gpushared
