// SPDX-License-Identifier: Apache-2.0
// A program that reaches a limit of the server gets CUDA's error code, and a message that names the
// limit and says how to raise it.
#include <string>

#include <cuda.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/drop_in/server_case.h"

namespace gpushared {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kEndless[] = R"(
.version 7.0
.target sm_75
.address_size 64
.visible .entry endless() {
again:
  bar.sync 0;
  bra again;
}
)";

class ServerLimitsTest : public testing::DropInServerCase {
 protected:
  ServerLimitsTest()
      : DropInServerCase({"--device", "cpu:0", "--kernel-limit", "high=200ms,normal=200ms",
                          "--load-limit", "128MiB", "--staging-memory", "64MiB"}) {}
};

TEST_F(ServerLimitsTest, KernelBeyondItsTimeLimitIsAPermanentLaunchTimeout) {
  UsePrimary();
  CUmodule module = nullptr;
  CUfunction endless = nullptr;
  ASSERT_EQ(cuModuleLoadData(&module, kEndless), CUDA_SUCCESS);
  ASSERT_EQ(cuModuleGetFunction(&endless, module, "endless"), CUDA_SUCCESS);
  ASSERT_EQ(cuLaunchKernel(endless, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_LAUNCH_TIMEOUT);
  CUdeviceptr memory = 0;
  EXPECT_EQ(cuMemAlloc(&memory, 4), CUDA_ERROR_LAUNCH_TIMEOUT) << "as in CUDA, it stays";
}

TEST_F(ServerLimitsTest, ModuleBeyondTheLoadLimitIsInvalidPtx) {
  UsePrimary();
  std::string text = ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry k()\n{\n";
  text += ".reg .b32 %r<3>;\n";
  for (int i = 0; i < 500'000; ++i) text += "add.u32 %r1, %r1, %r2;\n";
  text += "ret;\n}\n";
  CUmodule module = nullptr;
  char log[512] = "";
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {log, reinterpret_cast<void*>(sizeof log)};
  EXPECT_EQ(cuModuleLoadDataEx(&module, text.c_str(), 2, options, values), CUDA_ERROR_INVALID_PTX);
  EXPECT_THAT(log, AllOf(HasSubstr("128 MiB"), HasSubstr("--load-limit")));
  CUdeviceptr memory = 0;
  EXPECT_EQ(cuMemAlloc(&memory, 4), CUDA_SUCCESS) << "the error must not affect later calls";
}

// Half of the staging memory is guaranteed to clients in equal parts, so no client can use all of
// the staging memory.
TEST_F(ServerLimitsTest, PrintedTextNeedsStagingMemory) {
  UsePrimary();
  EXPECT_EQ(cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, 64 << 20), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, 4 << 20), CUDA_SUCCESS);
  std::size_t bytes = 0;
  EXPECT_EQ(cuCtxGetLimit(&bytes, CU_LIMIT_PRINTF_FIFO_SIZE), CUDA_SUCCESS);
  EXPECT_EQ(bytes, std::size_t{4} << 20);
}

}  // namespace
}  // namespace gpushared
