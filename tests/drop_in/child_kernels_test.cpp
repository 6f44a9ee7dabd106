// SPDX-License-Identifier: Apache-2.0
// Kernels that launch kernels, on the cpu device.
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <cuda.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/drop_in/archive.h"
#include "tests/drop_in/server_case.h"
#include "tests/support/read_file.h"

namespace gpushared::testing {
namespace {

using ::testing::HasSubstr;

class ChildKernelsTest : public DropInServerCase {
 protected:
  void SetUp() override {
    UsePrimary();
    CUlinkState link = nullptr;
    void* image = nullptr;
    std::string text = ReadFile(GPUSHARED_CHILD_KERNELS_PTX), runtime = DeviceRuntimeArchive();
    ASSERT_EQ(cuLinkCreate(0, nullptr, nullptr, &link), CUDA_SUCCESS);
    ASSERT_EQ(cuLinkAddData(link, CU_JIT_INPUT_PTX, text.data(), text.size(), "kernels", 0, nullptr,
                            nullptr),
              CUDA_SUCCESS);
    ASSERT_EQ(cuLinkAddData(link, CU_JIT_INPUT_LIBRARY, runtime.data(), runtime.size(),
                            "libcudadevrt.a", 0, nullptr, nullptr),
              CUDA_SUCCESS);
    ASSERT_EQ(cuLinkComplete(link, &image, nullptr), CUDA_SUCCESS);
    ASSERT_EQ(cuModuleLoadData(&module_, image), CUDA_SUCCESS);
    ASSERT_EQ(cuLinkDestroy(link), CUDA_SUCCESS);
    memory_ = Numbers();
  }

  CUresult Launch(const char* kernel, unsigned threads, std::vector<void*> parameters) {
    return cuLaunchKernel(Function(kernel), 1, 1, 1, threads, 1, 1, 0, nullptr, parameters.data(),
                          nullptr);
  }

  CUdeviceptr memory_ = 0;
};

TEST_F(ChildKernelsTest, RunInOrderAndBeforeTheParentEnds) {
  int depth = 2;
  ASSERT_EQ(Launch("parent", 1, {&memory_, &depth}), CUDA_SUCCESS);
  std::uint64_t value = 0;
  ASSERT_EQ(cuMemcpyDtoH(&value, memory_, sizeof value), CUDA_SUCCESS);
  EXPECT_EQ(value, 215969u) << "2, its child (1 5 9), 6, and the tail";
}

TEST_F(ChildKernelsTest, GetShapeAndParametersOfTheirLaunch) {
  ASSERT_EQ(Launch("start_many", 4, {&memory_}), CUDA_SUCCESS);
  const std::vector<std::uint32_t> sums = Read(memory_);
  EXPECT_EQ(std::vector(sums.begin(), sums.begin() + 128), std::vector<std::uint32_t>(128, 12));
  EXPECT_EQ(sums[128], 0u);
}

TEST_F(ChildKernelsTest, StartInEachLaunchOfAGraph) {
  const CUstream stream = NewStream();
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  void* parameters[] = {&memory_};
  const CUfunction starts = Function("start_many");
  ASSERT_EQ(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  ASSERT_EQ(cuLaunchKernel(starts, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphInstantiate(&exec, graph, 0), CUDA_SUCCESS);
  for (int i = 0; i < 3; ++i) ASSERT_EQ(cuGraphLaunch(exec, stream), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(Read(memory_)[31], 36u);
}

TEST_F(ChildKernelsTest, ReportFullQueueToTheParent) {
  ASSERT_EQ(Launch("flood", 64, {&memory_}), CUDA_SUCCESS);
  const std::vector<std::uint32_t> sums = Read(memory_);
  EXPECT_EQ(sums[0], 2048u);
  EXPECT_EQ(sums[1], 69u) << "cudaErrorLaunchPendingCountExceeded";
  ASSERT_EQ(Launch("start_many", 1, {&memory_}), CUDA_SUCCESS) << "the queue is empty again";
  EXPECT_EQ(Read(memory_)[2], 12u);
}

TEST_F(ChildKernelsTest, DepthHasALimit) {
  EXPECT_EQ(Launch("endless", 1, {}), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS) << "the error must not persist";
}

TEST_F(ChildKernelsTest, InvalidChildLaunchFailsTheParentsLaunch) {
  EXPECT_EQ(Launch("start_badly", 1, {}), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Launch("start_many", 1, {&memory_}), CUDA_SUCCESS);
}

// The queue is in the program's memory, so any garbage in it must result in an error code.
TEST_F(ChildKernelsTest, RejectsGarbageInTheQueue) {
  CUdeviceptr queue = 0;
  std::size_t bytes = 0;
  ASSERT_EQ(cuModuleGetGlobal(&queue, &bytes, module_, "gpushared_child_queue"), CUDA_SUCCESS);
  for (const std::uint32_t word : {1u, 63u, 64u, 0x7fffffffu, ~0u}) {
    std::array<std::uint32_t, 24> head;
    head.fill(word);
    ASSERT_EQ(cuMemcpyHtoD(queue, head.data(), sizeof head), CUDA_SUCCESS);
    EXPECT_NE(Launch("digit", 1, {&memory_, &head[0]}), CUDA_SUCCESS) << word;
  }
}

}  // namespace
}  // namespace gpushared::testing
