// SPDX-License-Identifier: Apache-2.0
// Kernels print the same text as the C library.
#include <cstdio>
#include <cstring>
#include <string>

#include <gmock/gmock.h>

#include "tests/executor/kernel_file.h"

namespace gpushared::testing {
namespace {

using ::testing::HasSubstr;

class Output : public KernelFile {
 protected:
  Output() : KernelFile("output") {}
};

TEST_P(Output, FormatsAsTheCLibraryDoes) {
  char* name = launcher.Allocate<char>(16);
  std::strcpy(name, "gpushared");
  Run("print_all", {1, 1, 1}, {32, 1, 1}, name, 77);
  char expected[1024];
  std::snprintf(expected, sizeof expected,
                "plain\n%d %5d|%-5d|%05d %i %u %x %X %o\n%lld %llu %ld %hd %c%c\n"
                "%f %.2f %10.3e %g %a %%\n%s, %.3s, %*d, %.*f\n%p\n",
                77, 77, 77, 77, -77, 3000000000u, 48879u, 48879u, 8u, -5000000000ll,
                18446744073709551615ull, -7l, static_cast<short>(-2), 'o', 'k', 1.5, 2.0 / 3,
                12345.678, 1e-9, 1.0, name, name, 6, 42, 2, 3.14159,
                reinterpret_cast<void*>(0x1234));
  EXPECT_EQ(launcher.printed, expected);
}

TEST_P(Output, EachThreadPrintsItsOwnLine) {
  int* results = launcher.Allocate<int>(64);
  Run("print_some", {2, 1, 1}, {64, 1, 1}, results);
  std::string expected;
  for (int block = 0; block < 2; ++block) {
    for (int thread = 3; thread < 64; thread += 8) {
      expected += "thread " + std::to_string(thread) + " of block " + std::to_string(block) + "\n";
    }
  }
  EXPECT_EQ(launcher.printed, expected);
  // vprintf returns the number of arguments (CUDA C++ Programming Guide, Formatted Output).
  EXPECT_EQ(results[3], 2);
}

// LLVM declares vprintf without a result if the result is unused.
TEST_P(Output, CallMayOmitTheResult) {
  Launcher plain(1 << 20, GetParam());
  plain.Load(R"(.version 7.8
.target sm_80
.address_size 64
.extern .func vprintf(.param .b64 format, .param .b64 arguments);
.global .align 1 .b8 text[10] = {108, 97, 110, 101, 32, 37, 100, 10, 0};
.visible .entry print_lane(.param .u64 to)
{
  .local .align 8 .b8 values[8];
  .reg .pred %p1;
  .reg .b32 %r1;
  .reg .b64 %rd<5>;
  mov.u32 %r1, %tid.x;
  setp.gt.u32 %p1, %r1, 1;
  @%p1 ret;
  st.local.u32 [values], %r1;
  mov.u64 %rd1, text;
  mov.u64 %rd2, values;
  cvta.local.u64 %rd2, %rd2;
  {
    .param .b64 format;
    .param .b64 arguments;
    st.param.b64 [format], %rd1;
    st.param.b64 [arguments], %rd2;
    call.uni vprintf, (format, arguments);
  }
  ret;
}
)");
  EXPECT_EQ(plain.Run("print_lane", {1, 1, 1}, {32, 1, 1}, u64{0}).end,
            executor::RunOutcome::End::kFinished);
  EXPECT_EQ(plain.printed, "lane 0\nlane 1\n");
}

// Compilers pass null if a call has no arguments.
TEST_P(Output, ConversionsWithoutArgumentsPrintZeros) {
  Launcher plain(1 << 20, GetParam());
  plain.Load(R"(.version 7.8
.target sm_80
.address_size 64
.extern .func vprintf(.param .b64 format, .param .b64 arguments);
.global .align 1 .b8 text[10] = {108, 97, 110, 101, 32, 37, 100, 10, 0};
.visible .entry print_nothing(.param .u64 to)
{
  .reg .b64 %rd<3>;
  mov.u64 %rd1, text;
  mov.u64 %rd2, 0;
  {
    .param .b64 format;
    .param .b64 arguments;
    st.param.b64 [format], %rd1;
    st.param.b64 [arguments], %rd2;
    call.uni vprintf, (format, arguments);
  }
  ret;
}
)");
  EXPECT_EQ(plain.Run("print_nothing", {1, 1, 1}, {1, 1, 1}, u64{0}).end,
            executor::RunOutcome::End::kFinished);
  EXPECT_EQ(plain.printed, "lane 0\n");
}

TEST_P(Output, FailedAssertionNamesItsPlace) {
  Run("assert_below", {1, 1, 1}, {40, 1, 1}, 40);
  const executor::Fault fault = Faulting("assert_below", {3, 1, 1}, {64, 1, 1}, 40);
  EXPECT_EQ(fault.kind, executor::Fault::Kind::kAssert);
  EXPECT_EQ(fault.thread.x, 40u);
  EXPECT_THAT(fault.message, HasSubstr("too far"));
  EXPECT_THAT(fault.message, HasSubstr("assert_below"));
  EXPECT_THAT(fault.message, HasSubstr("output.cu:"));
}

// A string or an argument outside the client's memory is a fault.
TEST_P(Output, BadStringsAreFaults) {
  const executor::Fault fault = Faulting("print_all", {1, 1, 1}, {32, 1, 1}, u64{16}, 1);
  EXPECT_EQ(fault.kind, executor::Fault::Kind::kGlobalAddress);
  EXPECT_EQ(fault.address, 16u);
}

GPUSHARED_INSTANTIATE_FLAVOURS(Output);

}  // namespace
}  // namespace gpushared::testing
