// SPDX-License-Identifier: Apache-2.0
// Device memory that is allocated again must not show its earlier contents.
#include <algorithm>
#include <vector>

#include <cuda.h>
#include <gtest/gtest.h>

#include "tests/drop_in/server_case.h"

namespace gpushared {
namespace {

class ClearedMemoryTest : public testing::DropInServerCase {
 protected:
  static constexpr std::size_t kLarge = 6 << 20;
  // Returns the number of non-zero bytes.
  std::size_t Dirty(CUdeviceptr memory) {
    std::vector<char> bytes(kLarge);
    EXPECT_EQ(cuMemcpyDtoH(bytes.data(), memory, kLarge), CUDA_SUCCESS);
    return kLarge - static_cast<std::size_t>(std::count(bytes.begin(), bytes.end(), '\0'));
  }
};

TEST_F(ClearedMemoryTest, LargeMemoryIsZeroAfterReuse) {
  UsePrimary();
  const CUstream stream = NewStream();
  for (int round = 0; round < 4; ++round) {
    CUdeviceptr memory = 0, pooled = 0;
    ASSERT_EQ(cuMemAlloc(&memory, kLarge), CUDA_SUCCESS);
    EXPECT_EQ(Dirty(memory), 0u) << round;
    EXPECT_EQ(cuMemsetD8(memory, 7, kLarge), CUDA_SUCCESS);
    ASSERT_EQ(cuMemFree(memory), CUDA_SUCCESS);
    ASSERT_EQ(cuMemAllocAsync(&pooled, kLarge, stream), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
    EXPECT_EQ(Dirty(pooled), 0u) << round;
    EXPECT_EQ(cuMemsetD8Async(pooled, 9, kLarge, stream), CUDA_SUCCESS);
    ASSERT_EQ(cuMemFreeAsync(pooled, stream), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
  }
}

}  // namespace
}  // namespace gpushared
