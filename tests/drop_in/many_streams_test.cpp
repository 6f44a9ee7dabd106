// SPDX-License-Identifier: Apache-2.0
// More streams than a session has: ordinary ones are rejected, default streams never are.
#include <atomic>
#include <thread>
#include <vector>

#include <cuda.h>
#include <gtest/gtest.h>

#include "tests/drop_in/server_case.h"

namespace gpushared {
namespace {

using testing::All;
using testing::kCount;

class ManyStreamsTest : public testing::DropInServerCase {
 protected:
  // Creates streams until one is rejected.
  std::size_t TakeAllStreams() {
    std::size_t made = 0;
    CUstream stream = nullptr;
    while (made < 1000 && cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS) ++made;
    return made;
  }
};

TEST_F(ManyStreamsTest, DefaultStreamsWorkWhenAllStreamsAreTaken) {
  UsePrimary();
  EXPECT_EQ(TakeAllStreams(), 255u);
  CUdeviceptr numbers = 0, pooled = 0;
  CUevent event = nullptr;
  ASSERT_EQ(cuMemAlloc(&numbers, testing::kBytes), CUDA_SUCCESS);
  EXPECT_EQ(cuMemsetD32Async(numbers, 1, kCount, CU_STREAM_PER_THREAD), CUDA_SUCCESS);
  EXPECT_EQ(AddOne(numbers, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(AddOne(numbers, CU_STREAM_PER_THREAD), CUDA_SUCCESS);
  EXPECT_EQ(cuMemAllocAsync(&pooled, 64, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuEventCreate(&event, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuEventRecord(event, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuEventSynchronize(event), CUDA_SUCCESS);
  EXPECT_EQ(Read(numbers), All(3));
}

TEST_F(ManyStreamsTest, ManyContextsAndThreadsHaveDefaultStreams) {
  UsePrimary();
  const CUdeviceptr numbers = Numbers();
  for (int i = 0; i < 300; ++i) {
    CUcontext context = nullptr;
    ASSERT_EQ(cuCtxCreate(&context, nullptr, 0, 0), CUDA_SUCCESS) << i;
    ASSERT_EQ(cuMemsetD32(numbers, 4, kCount), CUDA_SUCCESS) << i;
  }
  ASSERT_EQ(cuCtxSetCurrent(context_), CUDA_SUCCESS);
  std::atomic<int> failed{0}, arrived{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 100; ++i) {
    threads.emplace_back([&] {
      cuCtxSetCurrent(context_);
      if (cuMemsetD32Async(numbers, 5, kCount, CU_STREAM_PER_THREAD) != CUDA_SUCCESS) ++failed;
      ++arrived;
      while (arrived < 100) std::this_thread::yield();
      if (cuStreamSynchronize(CU_STREAM_PER_THREAD) != CUDA_SUCCESS) ++failed;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failed, 0);
  EXPECT_EQ(Read(numbers), All(5));
}

}  // namespace
}  // namespace gpushared
