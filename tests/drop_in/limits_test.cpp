// SPDX-License-Identifier: Apache-2.0
// The limits that cuCtxGetLimit reports are those that apply to kernels, and a kernel that exceeds
// a limit results in an error or a message.
#include <cstdint>
#include <string>

#include <cuda.h>
#include <gtest/gtest.h>

#include "tests/drop_in/server_case.h"

namespace gpushared {
namespace {

constexpr char kLimitKernels[] = R"(
.version 7.0
.target sm_75
.address_size 64
.extern .func (.param .b32 r) vprintf(.param .b64 format, .param .b64 arguments);
.extern .func (.param .b64 r) malloc(.param .b64 bytes);
.extern .func __assertfail(.param .b64 message, .param .b64 file, .param .b32 line,
                           .param .b64 function, .param .b64 size);
.global .align 1 .b8 line[32] = {48,49,50,51,52,53,54,55,48,49,50,51,52,53,54,55,
                                 48,49,50,51,52,53,54,55,48,49,50,51,52,53,10,0};
.global .align 1 .b8 text[7] = {91,37,115,93,10,0,0};
.global .align 1 .b8 message[6] = {110,61,61,53,0,0};
.global .align 1 .b8 file[6] = {107,46,99,117,0,0};
.global .align 1 .b8 function[6] = {102,40,105,41,0,0};
// Counts how many allocations of this size the heap can hold.
.visible .entry take(.param .u64 out, .param .u64 bytes) {
  .reg .b64 %rd<5>; .reg .b32 %r<2>; .reg .pred %p<2>;
  ld.param.u64 %rd1, [out]; ld.param.u64 %rd2, [bytes]; mov.u32 %r1, 0;
next:
  { .param .b64 a; .param .b64 b; st.param.b64 [a], %rd2; call.uni (b), malloc, (a);
    ld.param.b64 %rd3, [b]; }
  setp.eq.u64 %p1, %rd3, 0; @%p1 bra done;
  st.u8 [%rd3], %r1; add.u32 %r1, %r1, 1; bra next;
done:
  cvta.to.global.u64 %rd4, %rd1; st.global.u32 [%rd4], %r1; ret;
}
// Uses 512 bytes of stack per recursion level.
.func (.param .b32 sum) deep(.param .b32 n) {
  .local .align 8 .b8 own[512]; .reg .b32 %r<4>; .reg .pred %p<2>; .reg .b64 %rd<2>;
  ld.param.b32 %r1, [n]; mov.u64 %rd1, own; st.local.b32 [%rd1], %r1;
  mov.u32 %r2, 0; setp.eq.u32 %p1, %r1, 0; @%p1 bra done;
  sub.u32 %r3, %r1, 1;
  { .param .b32 a; .param .b32 b; st.param.b32 [a], %r3; call (b), deep, (a);
    ld.param.b32 %r2, [b]; }
  ld.local.b32 %r1, [%rd1]; add.u32 %r2, %r2, %r1;
done:
  st.param.b32 [sum], %r2; ret;
}
.visible .entry recurse(.param .u64 out, .param .u32 n) {
  .reg .b64 %rd<3>; .reg .b32 %r<3>;
  ld.param.u64 %rd1, [out]; ld.param.u32 %r1, [n];
  { .param .b32 a; .param .b32 b; st.param.b32 [a], %r1; call (b), deep, (a);
    ld.param.b32 %r2, [b]; }
  cvta.to.global.u64 %rd2, %rd1; st.global.u32 [%rd2], %r2; ret;
}
.visible .entry print(.param .u32 n) {
  .reg .b64 %rd<3>; .reg .b32 %r<3>; .reg .pred %p<2>;
  ld.param.u32 %r1, [n]; mov.u64 %rd1, line; cvta.global.u64 %rd1, %rd1; mov.u64 %rd2, 0;
next:
  { .param .b64 a; .param .b64 b; .param .b32 c; st.param.b64 [a], %rd1; st.param.b64 [b], %rd2;
    call.uni (c), vprintf, (a, b); ld.param.b32 %r2, [c]; }
  sub.u32 %r1, %r1, 1; setp.ne.u32 %p1, %r1, 0; @%p1 bra next;
  ret;
}
.visible .entry print_null() {
  .local .align 8 .b8 words[8]; .reg .b64 %rd<4>; .reg .b32 %r<2>;
  mov.u64 %rd1, text; cvta.global.u64 %rd1, %rd1; mov.u64 %rd2, words;
  cvta.local.u64 %rd2, %rd2; mov.u64 %rd3, 0; st.u64 [%rd2], %rd3;
  { .param .b64 a; .param .b64 b; .param .b32 c; st.param.b64 [a], %rd1; st.param.b64 [b], %rd2;
    call.uni (c), vprintf, (a, b); ld.param.b32 %r1, [c]; }
  ret;
}
.visible .entry check() {
  .reg .b64 %rd<5>; .reg .b32 %r<2>; .reg .pred %p<2>;
  mov.u32 %r1, %tid.x; setp.ne.u32 %p1, %r1, 2; @%p1 bra done;
  mov.u64 %rd1, message; cvta.global.u64 %rd1, %rd1; mov.u64 %rd2, file;
  cvta.global.u64 %rd2, %rd2; mov.u64 %rd3, function; cvta.global.u64 %rd3, %rd3; mov.u64 %rd4, 1;
  { .param .b64 a; .param .b64 b; .param .b32 c; .param .b64 d; .param .b64 e;
    st.param.b64 [a], %rd1; st.param.b64 [b], %rd2; st.param.b32 [c], 13;
    st.param.b64 [d], %rd3; st.param.b64 [e], %rd4;
    call.uni __assertfail, (a, b, c, d, e); }
done: ret;
}
)";

class LimitsTest : public testing::DropInServerCase {
 protected:
  void Load() {
    UsePrimary();
    ASSERT_EQ(cuModuleLoadData(&module_, kLimitKernels), CUDA_SUCCESS);
    ASSERT_EQ(cuMemAlloc(&out_, 4), CUDA_SUCCESS);
  }
  CUresult Launch(const char* name, void** parameters, unsigned threads = 1) {
    const CUresult code =
        cuLaunchKernel(Function(name), 1, 1, 1, threads, 1, 1, 0, nullptr, parameters, nullptr);
    return code == CUDA_SUCCESS ? cuCtxSynchronize() : code;
  }
  unsigned Out() {
    unsigned value = 0;
    EXPECT_EQ(cuMemcpyDtoH(&value, out_, 4), CUDA_SUCCESS);
    return value;
  }
  static std::size_t Limit(CUlimit which) {
    std::size_t value = 0;
    EXPECT_EQ(cuCtxGetLimit(&value, which), CUDA_SUCCESS);
    return value;
  }

  CUdeviceptr out_ = 0;
};

constexpr std::size_t kKiB = 1024, kMiB = 1024 * kKiB;

TEST_F(LimitsTest, LimitsAreOnlyRaisedAndOnlyUpToTheMaximum) {
  UsePrimary();
  struct Case {
    CUlimit which;
    std::size_t bound;
    CUresult beyond;
  };
  for (const Case& each : {Case{CU_LIMIT_STACK_SIZE, 256 * kKiB, CUDA_ERROR_INVALID_VALUE},
                           Case{CU_LIMIT_PRINTF_FIFO_SIZE, 64 * kMiB, CUDA_ERROR_INVALID_VALUE},
                           Case{CU_LIMIT_MALLOC_HEAP_SIZE, 256 * kMiB, CUDA_ERROR_OUT_OF_MEMORY}}) {
    const std::size_t before = Limit(each.which);
    for (const std::size_t less : {std::size_t{1}, before / 2, before}) {
      EXPECT_EQ(cuCtxSetLimit(each.which, less), CUDA_SUCCESS);
      EXPECT_EQ(Limit(each.which), before) << "reports what kernels really have";
    }
    EXPECT_EQ(cuCtxSetLimit(each.which, each.bound + 1), each.beyond);
    EXPECT_EQ(cuCtxSetLimit(each.which, ~std::size_t{0}), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(Limit(each.which), before);
    EXPECT_EQ(cuCtxSetLimit(each.which, 3 * before + 1), CUDA_SUCCESS);
    EXPECT_EQ(Limit(each.which), 3 * before + 1);
  }
}

TEST_F(LimitsTest, HeapSizeIsFixedAfterFirstAllocation) {
  Load();
  std::uint64_t bytes = 64 * kKiB;
  void* parameters[] = {&out_, &bytes};
  ASSERT_EQ(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 64 * kMiB), CUDA_SUCCESS);
  ASSERT_EQ(Launch("take", parameters), CUDA_SUCCESS);
  EXPECT_EQ(Out(), 1024u);
  EXPECT_EQ(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 65 * kMiB), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Limit(CU_LIMIT_MALLOC_HEAP_SIZE), 64 * kMiB);
}

TEST_F(LimitsTest, KernelsGetTheReportedHeap) {
  Load();
  std::uint64_t bytes = 64 * kKiB;
  void* parameters[] = {&out_, &bytes};
  ASSERT_EQ(Launch("take", parameters), CUDA_SUCCESS);
  EXPECT_EQ(Out(), Limit(CU_LIMIT_MALLOC_HEAP_SIZE) / bytes);
}

TEST_F(LimitsTest, KernelsGetTheReportedStack) {
  Load();
  for (const std::size_t set : {std::size_t{1}, std::size_t{100'000}, 256 * kKiB}) {
    ASSERT_EQ(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, set), CUDA_SUCCESS);
    unsigned depth = static_cast<unsigned>(Limit(CU_LIMIT_STACK_SIZE) / 512) - 1;
    void* parameters[] = {&out_, &depth};
    ASSERT_EQ(Launch("recurse", parameters), CUDA_SUCCESS) << set;
    EXPECT_EQ(Out(), depth * (depth + 1) / 2);
  }
  unsigned depth = 3 * 512;
  void* parameters[] = {&out_, &depth};
  EXPECT_EQ(Launch("recurse", parameters), CUDA_ERROR_HARDWARE_STACK_ERROR);
}

TEST_F(LimitsTest, RejectsLaunchBeyondStackOfABlock) {
  Load();
  ASSERT_EQ(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 256 * kKiB), CUDA_SUCCESS);
  unsigned depth = 400;
  void* parameters[] = {&out_, &depth};
  EXPECT_EQ(Launch("recurse", parameters, 480), CUDA_SUCCESS);
  EXPECT_EQ(Launch("recurse", parameters, 1024), CUDA_ERROR_LAUNCH_FAILED);
}

TEST_F(LimitsTest, PrintsAsMuchTextAsSet) {
  Load();
  constexpr std::size_t kLineBytes = 31;
  unsigned lines = 100'000;
  void* parameters[] = {&lines};
  ASSERT_EQ(cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, lines * kLineBytes), CUDA_SUCCESS);
  ::testing::internal::CaptureStdout();
  ASSERT_EQ(Launch("print", parameters), CUDA_SUCCESS);
  EXPECT_EQ(::testing::internal::GetCapturedStdout().size(), lines * kLineBytes);
}

TEST_F(LimitsTest, PrintsAsMuchTextAsReported) {
  Load();
  constexpr std::size_t kLineBytes = 31;
  auto lines = static_cast<unsigned>(Limit(CU_LIMIT_PRINTF_FIFO_SIZE) / kLineBytes);
  void* parameters[] = {&lines};
  ::testing::internal::CaptureStdout();
  ASSERT_EQ(Launch("print", parameters), CUDA_SUCCESS);
  std::string text = ::testing::internal::GetCapturedStdout();
  EXPECT_EQ(text.size(), lines * kLineBytes);
  EXPECT_EQ(text.find('['), std::string::npos) << "the text must not be truncated";
  lines *= 2;
  ::testing::internal::CaptureStdout();
  ASSERT_EQ(Launch("print", parameters), CUDA_SUCCESS);
  text = ::testing::internal::GetCapturedStdout();
  EXPECT_NE(text.find('['), std::string::npos) << "truncation must be reported";
}

TEST_F(LimitsTest, PrintsNullString) {
  Load();
  ::testing::internal::CaptureStdout();
  ASSERT_EQ(Launch("print_null", nullptr), CUDA_SUCCESS);
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "[(null)]\n");
}

TEST_F(LimitsTest, PrintsFailedAssertionLikeCuda) {
  Load();
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(Launch("check", nullptr, 4), CUDA_ERROR_ASSERT);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_ASSERT);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "k.cu:13: f(i): block: [0,0,0], thread: [2,0,0] Assertion `n==5` failed.\n");
}

}  // namespace
}  // namespace gpushared
