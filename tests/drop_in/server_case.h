// SPDX-License-Identifier: Apache-2.0
// The library on a real server with the cpu device, through the toolkit's own header.

#ifndef GPUSHARED_TESTS_DROP_IN_SERVER_CASE_H_
#define GPUSHARED_TESTS_DROP_IN_SERVER_CASE_H_

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include <cuda.h>
#include <gtest/gtest.h>

#include "tests/support/server_process.h"

namespace gpushared::testing {

inline constexpr char kKernels[] = R"(
.version 7.0
.target sm_75
.address_size 64
.visible .entry add_one(.param .u64 numbers, .param .u32 n) {
  .reg .pred %p<2>; .reg .b32 %r<7>; .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [numbers]; ld.param.u32 %r1, [n];
  mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x;
  mad.lo.s32 %r5, %r2, %r3, %r4;
  setp.ge.u32 %p1, %r5, %r1; @%p1 bra done;
  mul.wide.u32 %rd2, %r5, 4; add.s64 %rd3, %rd1, %rd2;
  ld.global.u32 %r6, [%rd3]; add.s32 %r6, %r6, 1; st.global.u32 [%rd3], %r6;
done: ret;
}
.visible .entry nothing() { ret; }
.visible .entry fault() {
  .reg .b32 %r<2>; .reg .b64 %rd<2>;
  mov.u64 %rd1, 16; ld.global.u32 %r1, [%rd1]; st.global.u32 [%rd1], %r1; ret;
}
)";
inline constexpr unsigned kCount = 1000;
inline constexpr std::size_t kBytes = kCount * sizeof(std::uint32_t);

// A server, and a driver that finds it. Each case runs in a separate process
// (own_process_main.cpp), so that it begins with an uninitialised driver.
class DropInServerCase : public ::testing::Test {
 protected:
  explicit DropInServerCase(std::vector<std::string> server_arguments = {})
      : server_(std::move(server_arguments)) {
    ::setenv("GPUSHARED_SOCKET", server_.socket().c_str(), 1);
  }

  // Makes the primary context current.
  void UsePrimary() {
    ASSERT_EQ(cuInit(0), CUDA_SUCCESS);
    ASSERT_EQ(cuDevicePrimaryCtxRetain(&context_, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuCtxSetCurrent(context_), CUDA_SUCCESS);
  }
  CUfunction Function(const char* name) {
    if (module_ == nullptr) {
      EXPECT_EQ(cuModuleLoadData(&module_, kKernels), CUDA_SUCCESS);
    }
    CUfunction function = nullptr;
    EXPECT_EQ(cuModuleGetFunction(&function, module_, name), CUDA_SUCCESS) << name;
    return function;
  }
  // Allocates memory for kCount numbers, all zero.
  CUdeviceptr Numbers() {
    CUdeviceptr numbers = 0;
    EXPECT_EQ(cuMemAlloc(&numbers, kBytes), CUDA_SUCCESS);
    EXPECT_EQ(cuMemsetD32(numbers, 0, kCount), CUDA_SUCCESS);
    return numbers;
  }
  static CUstream NewStream() {
    CUstream stream = nullptr;
    EXPECT_EQ(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    return stream;
  }
  CUresult AddOne(CUdeviceptr numbers, CUstream stream) {
    unsigned n = kCount;
    void* parameters[] = {&numbers, &n};
    return cuLaunchKernel(Function("add_one"), 8, 1, 1, 128, 1, 1, 0, stream, parameters, nullptr);
  }
  // Counts the sessions of all clients of the server.
  std::size_t Sessions() const {
    const std::string listed = server_.Ctl({"ps", "--json"}).output;
    std::size_t count = 0;
    for (std::size_t at = 0; (at = listed.find("\"pid\"", at)) != std::string::npos; ++at) ++count;
    return count;
  }
  std::vector<std::uint32_t> Read(CUdeviceptr numbers) {
    std::vector<std::uint32_t> read(kCount);
    EXPECT_EQ(cuMemcpyDtoH(read.data(), numbers, kBytes), CUDA_SUCCESS);
    return read;
  }

  ServerProcess server_;
  CUcontext context_ = nullptr;
  CUmodule module_ = nullptr;
};

inline std::vector<std::uint32_t> All(std::uint32_t value) {
  return std::vector<std::uint32_t>(kCount, value);
}

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_DROP_IN_SERVER_CASE_H_
