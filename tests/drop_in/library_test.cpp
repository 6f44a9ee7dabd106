// SPDX-License-Identifier: Apache-2.0
// Libraries, which belong to no context.
#include <algorithm>
#include <cstddef>
#include <string>

#include <cuda.h>
#include <gtest/gtest.h>

#include "tests/drop_in/server_case.h"

namespace gpushared {
namespace {

using testing::All;
using testing::kCount;
using testing::kKernels;

class LibraryTest : public testing::DropInServerCase {};

TEST_F(LibraryTest, LibrariesLoadInTheContextThatUsesThem) {
  UsePrimary();
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  CUfunction function = nullptr;
  unsigned count = 0;
  ASSERT_EQ(cuLibraryLoadData(&library, kKernels, nullptr, nullptr, 0, nullptr, nullptr, 0),
            CUDA_SUCCESS);
  EXPECT_EQ(cuLibraryGetKernelCount(&count, library), CUDA_SUCCESS);
  EXPECT_EQ(count, 3u);
  EXPECT_EQ(cuLibraryGetKernel(&kernel, library, "no such kernel"), CUDA_ERROR_NOT_FOUND);
  ASSERT_EQ(cuLibraryGetKernel(&kernel, library, "add_one"), CUDA_SUCCESS);
  ASSERT_EQ(cuKernelGetFunction(&function, kernel), CUDA_SUCCESS);
  CUdeviceptr numbers = Numbers();
  unsigned n = kCount;
  void* parameters[] = {&numbers, &n};
  for (CUfunction launched : {function, reinterpret_cast<CUfunction>(kernel)}) {
    EXPECT_EQ(cuLaunchKernel(launched, 8, 1, 1, 128, 1, 1, 0, nullptr, parameters, nullptr),
              CUDA_SUCCESS);
  }
  EXPECT_EQ(Read(numbers), All(2));
  // The next incarnation of the primary context has a new session.
  ASSERT_EQ(cuDevicePrimaryCtxReset(0), CUDA_SUCCESS);
  numbers = Numbers();
  EXPECT_EQ(cuLaunchKernel(function, 8, 1, 1, 128, 1, 1, 0, nullptr, parameters, nullptr),
            CUDA_SUCCESS);
  EXPECT_EQ(Read(numbers), All(1));
  EXPECT_EQ(cuLibraryUnload(library), CUDA_SUCCESS);
  EXPECT_EQ(cuLaunchKernel(function, 8, 1, 1, 128, 1, 1, 0, nullptr, parameters, nullptr),
            CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(LibraryTest, LibrariesNeedNoContext) {
  ASSERT_EQ(cuInit(0), CUDA_SUCCESS);
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  const auto load = [&](const char* image) {
    return cuLibraryLoadData(&library, image, nullptr, nullptr, 0, nullptr, nullptr, 0);
  };
  EXPECT_EQ(load("no PTX at all"), CUDA_ERROR_INVALID_PTX);
  ASSERT_EQ(load(kKernels), CUDA_SUCCESS);
  unsigned count = 0;
  EXPECT_EQ(cuLibraryGetKernelCount(&count, library), CUDA_SUCCESS);
  EXPECT_EQ(count, 3u);
  CUkernel all[3] = {};
  EXPECT_EQ(cuLibraryEnumerateKernels(all, 3, library), CUDA_SUCCESS);
  ASSERT_EQ(cuLibraryGetKernel(&kernel, library, "add_one"), CUDA_SUCCESS);
  EXPECT_EQ(std::ranges::count(all, kernel), 1);
  std::size_t offset = 0, bytes = 0;
  EXPECT_EQ(cuKernelGetParamInfo(kernel, 1, &offset, &bytes), CUDA_SUCCESS);
  EXPECT_EQ(offset, 8u);
  EXPECT_EQ(bytes, 4u);
  EXPECT_EQ(cuKernelGetParamInfo(kernel, 2, &offset, &bytes), CUDA_ERROR_INVALID_VALUE);
  int threads = 0;
  EXPECT_EQ(cuKernelGetAttribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kernel, 0),
            CUDA_SUCCESS);
  EXPECT_EQ(threads, 1024);
  // A module belongs to a context, so it requires one.
  CUfunction function = nullptr;
  CUmodule module = nullptr;
  CUdeviceptr variable = 0;
  EXPECT_EQ(cuKernelGetFunction(&function, kernel), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(cuLibraryGetModule(&module, library), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(cuLibraryGetGlobal(&variable, nullptr, library, "x"), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(cuModuleLoadData(&module, kKernels), CUDA_ERROR_INVALID_CONTEXT);
  // The first context shares the session that the library began.
  EXPECT_EQ(Sessions(), 1u);
  UsePrimary();
  EXPECT_EQ(Sessions(), 1u);
  CUdeviceptr numbers = Numbers();
  unsigned n = kCount;
  void* parameters[] = {&numbers, &n};
  ASSERT_EQ(cuKernelGetFunction(&function, kernel), CUDA_SUCCESS);
  EXPECT_EQ(cuLaunchKernel(function, 8, 1, 1, 128, 1, 1, 0, nullptr, parameters, nullptr),
            CUDA_SUCCESS);
  EXPECT_EQ(Read(numbers), All(1));
  // The session ends when both its last context and the library are gone.
  EXPECT_EQ(cuCtxSetCurrent(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS);
  EXPECT_EQ(cuLibraryUnload(library), CUDA_SUCCESS);
  EXPECT_TRUE(testing::Eventually([&] { return Sessions() == 0; }));
  EXPECT_EQ(cuLibraryGetKernelCount(&count, library), CUDA_ERROR_INVALID_HANDLE);
}

}  // namespace
}  // namespace gpushared
