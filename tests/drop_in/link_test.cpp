// SPDX-License-Identifier: Apache-2.0
// Links, and the execution of their results on the cpu device.
#include <cstdint>
#include <cstring>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include <cuda.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/drop_in/archive.h"
#include "tests/drop_in/server_case.h"
#include "tests/support/scratch_directory.h"

namespace gpushared {
namespace {

using testing::Archive;
using testing::DeviceRuntimeArchive;
using ::testing::HasSubstr;

constexpr char kHeader[] = ".version 7.0\n.target sm_75\n.address_size 64\n";
// numbers[i] = triple(i) + step, in blocks of 32 threads.
constexpr char kCaller[] = R"(
.extern .func (.param .b32 r) triple(.param .b32 x);
.extern .global .u32 step;
.visible .entry fill(.param .u64 numbers) {
  .reg .b32 %r<8>; .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [numbers];
  mov.u32 %r1, %ctaid.x; mov.u32 %r2, %tid.x; mad.lo.s32 %r3, %r1, 32, %r2;
  { .param .b32 x; st.param.b32 [x], %r3; .param .b32 r;
    call (r), triple, (x);
    ld.param.b32 %r4, [r]; }
  ld.global.u32 %r5, [step]; add.s32 %r6, %r4, %r5;
  mul.wide.u32 %rd2, %r3, 4; add.s64 %rd3, %rd1, %rd2; st.global.u32 [%rd3], %r6; ret;
})";
constexpr char kCallee[] = R"(
.visible .global .u32 step = 7;
.visible .func (.param .b32 r) triple(.param .b32 x) {
  .reg .b32 %r<3>;
  ld.param.b32 %r1, [x]; mul.lo.s32 %r2, %r1, 3; st.param.b32 [r], %r2; ret;
})";
// numbers[i] = the value that the next block wrote before the grid-wide barrier, in blocks of one
// thread.
constexpr char kGridSync[] = R"(
.extern .func (.param .b64 h) cudaCGGetIntrinsicHandle(.param .b32 scope);
.extern .func (.param .b32 e) cudaCGSynchronize(.param .b64 h, .param .b32 flags);
.visible .entry rotate(.param .u64 numbers) {
  .reg .b32 %r<8>; .reg .b64 %rd<8>;
  ld.param.u64 %rd1, [numbers];
  mov.u32 %r1, %ctaid.x; mov.u32 %r2, %nctaid.x;
  mul.wide.u32 %rd2, %r1, 4; add.s64 %rd3, %rd1, %rd2; st.global.u32 [%rd3], %r1;
  { .param .b32 scope; st.param.b32 [scope], 1; .param .b64 h;
    call (h), cudaCGGetIntrinsicHandle, (scope);
    ld.param.b64 %rd4, [h]; }
  { .param .b64 h; st.param.b64 [h], %rd4; .param .b32 flags; st.param.b32 [flags], 0;
    .param .b32 e;
    call (e), cudaCGSynchronize, (h, flags); }
  add.s32 %r3, %r1, 1; rem.u32 %r4, %r3, %r2;
  mul.wide.u32 %rd5, %r4, 4; add.s64 %rd6, %rd1, %rd5; ld.volatile.global.u32 %r5, [%rd6];
  { .param .b64 h; st.param.b64 [h], %rd4; .param .b32 flags; st.param.b32 [flags], 0;
    .param .b32 e;
    call (e), cudaCGSynchronize, (h, flags); }
  st.global.u32 [%rd3], %r5; ret;
})";
constexpr unsigned kBlocks = 4;

std::string Text(const char* body) { return std::string(kHeader) + body; }

// A link with an error log, on a server's cpu device.
class LinkTest : public testing::DropInServerCase {
 protected:
  LinkTest() {
    UsePrimary();
    EXPECT_EQ(cuLinkCreate(2, options_, values_, &link_), CUDA_SUCCESS);
  }
  ~LinkTest() override { EXPECT_EQ(cuLinkDestroy(link_), CUDA_SUCCESS); }

  CUresult Add(CUjitInputType type, std::string bytes, const char* name) {
    return cuLinkAddData(link_, type, bytes.data(), bytes.size(), name, 0, nullptr, nullptr);
  }
  CUresult AddText(const char* body, const char* name) {
    return Add(CU_JIT_INPUT_PTX, Text(body), name);
  }
  CUresult Complete() { return cuLinkComplete(link_, &image_, &bytes_); }

  // Runs a kernel of the linked image on `count` numbers.
  std::vector<std::uint32_t> Run(const char* kernel, unsigned threads, bool is_cooperative) {
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    CUdeviceptr numbers = 0;
    std::vector<std::uint32_t> read(kBlocks * threads);
    EXPECT_EQ(cuModuleLoadData(&module, image_), CUDA_SUCCESS);
    EXPECT_EQ(cuModuleGetFunction(&function, module, kernel), CUDA_SUCCESS);
    EXPECT_EQ(cuMemAlloc(&numbers, 4 * read.size()), CUDA_SUCCESS);
    void* parameters[] = {&numbers};
    EXPECT_EQ(is_cooperative ? cuLaunchCooperativeKernel(function, kBlocks, 1, 1, threads, 1, 1, 0,
                                                         nullptr, parameters)
                             : cuLaunchKernel(function, kBlocks, 1, 1, threads, 1, 1, 0, nullptr,
                                              parameters, nullptr),
              CUDA_SUCCESS);
    EXPECT_EQ(cuMemcpyDtoH(read.data(), numbers, 4 * read.size()), CUDA_SUCCESS);
    return read;
  }

  char log_[512] = {};
  CUjit_option options_[2] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values_[2] = {log_, reinterpret_cast<void*>(sizeof log_)};
  CUlinkState link_ = nullptr;
  void* image_ = nullptr;
  std::size_t bytes_ = 0;
};

TEST_F(LinkTest, SingleInputIsReturnedUnchanged) {
  const std::string text = Text(kCallee);
  ASSERT_EQ(Add(CU_JIT_INPUT_PTX, text, "a"), CUDA_SUCCESS);
  ASSERT_EQ(Complete(), CUDA_SUCCESS);
  EXPECT_EQ(bytes_, text.size() + 1) << "with the NUL that a load without a size needs";
  EXPECT_STREQ(static_cast<const char*>(image_), text.c_str());
  EXPECT_EQ(Add(CU_JIT_INPUT_PTX, text, "late"), CUDA_ERROR_INVALID_VALUE);
  EXPECT_THAT(log_, HasSubstr("'late'"));
  void* const first = image_;
  ASSERT_EQ(Complete(), CUDA_SUCCESS);
  EXPECT_EQ(image_, first);
}

// Returns the PTX of a kernel that keeps 60 numbers alive at once.
std::string KernelOfManyRegisters(const std::string& name, const std::string& limit) {
  std::string loads, sums;
  for (int i = 0; i < 60; ++i) {
    const std::string number = "%r" + std::to_string(i);
    loads += "ld.global.u32 " + number + ", [%rd1+" + std::to_string(4 * i) + "];\n";
    sums += "xor.b32 %r60, %r60, " + number + ";\n";
  }
  return ".visible .entry " + name + "(.param .u64 p) " + limit +
         "{ .reg .b32 %r<61>; .reg .b64 %rd<2>; ld.param.u64 %rd1, [p];\n" + loads +
         "mov.u32 %r60, 0;\n" + sums + "st.global.u32 [%rd1], %r60; ret; }\n";
}

int GetRegisters(CUmodule module, const char* name) {
  CUfunction function = nullptr;
  int registers = 0;
  EXPECT_EQ(cuModuleGetFunction(&function, module, name), CUDA_SUCCESS);
  EXPECT_EQ(cuFuncGetAttribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, function), CUDA_SUCCESS);
  return registers;
}

TEST_F(LinkTest, OptionLimitsRegistersOfKernelsWithoutDirective) {
  const std::string text = Text(
      (KernelOfManyRegisters("plain", "") + KernelOfManyRegisters("own", ".maxnreg 50 ")).c_str());
  CUmodule module = nullptr;
  ASSERT_EQ(cuModuleLoadData(&module, text.c_str()), CUDA_SUCCESS);
  EXPECT_GE(GetRegisters(module, "plain"), 60);
  EXPECT_EQ(GetRegisters(module, "own"), 50);

  CUjit_option option = CU_JIT_MAX_REGISTERS;
  void* most = reinterpret_cast<void*>(32);
  ASSERT_EQ(cuModuleLoadDataEx(&module, text.c_str(), 1, &option, &most), CUDA_SUCCESS);
  EXPECT_EQ(GetRegisters(module, "plain"), 32);
  EXPECT_EQ(GetRegisters(module, "own"), 50) << "the kernel's own directive takes precedence";

  CUlinkState link = nullptr;
  ASSERT_EQ(cuLinkCreate(1, &option, &most, &link), CUDA_SUCCESS);
  ASSERT_EQ(cuLinkAddData(link, CU_JIT_INPUT_PTX, const_cast<char*>(text.c_str()), text.size(), "a",
                          0, nullptr, nullptr),
            CUDA_SUCCESS);
  ASSERT_EQ(cuLinkComplete(link, &image_, &bytes_), CUDA_SUCCESS);
  ASSERT_EQ(cuModuleLoadData(&module, image_), CUDA_SUCCESS);
  EXPECT_EQ(GetRegisters(module, "plain"), 32);
  EXPECT_EQ(cuLinkDestroy(link), CUDA_SUCCESS);
  // An invalid module is reported even though the option is valid.
  EXPECT_EQ(cuModuleLoadDataEx(&module, "no PTX", 1, &option, &most), CUDA_ERROR_INVALID_PTX);
}

TEST_F(LinkTest, InputsUseFunctionsAndVariablesOfOtherInputs) {
  ASSERT_EQ(AddText(kCaller, "caller"), CUDA_SUCCESS);
  ASSERT_EQ(AddText(kCallee, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(Complete(), CUDA_SUCCESS) << log_;
  EXPECT_EQ(bytes_, std::strlen(static_cast<const char*>(image_)) + 1);
  std::vector<std::uint32_t> expected(kBlocks * 32);
  std::iota(expected.begin(), expected.end(), 0u);
  for (std::uint32_t& number : expected) number = 3 * number + 7;
  EXPECT_EQ(Run("fill", 32, /*is_cooperative=*/false), expected);
}

TEST_F(LinkTest, AcceptsFilesAsInputs) {
  const testing::ScratchDirectory directory;
  std::ofstream(directory / "callee.ptx") << Text(kCallee);
  ASSERT_EQ(AddText(kCaller, "caller"), CUDA_SUCCESS);
  EXPECT_EQ(
      cuLinkAddFile(link_, CU_JIT_INPUT_PTX, (directory / "none").c_str(), 0, nullptr, nullptr),
      CUDA_ERROR_FILE_NOT_FOUND);
  EXPECT_EQ(cuLinkAddFile(link_, CU_JIT_INPUT_PTX, "/dev/zero", 0, nullptr, nullptr),
            CUDA_ERROR_INVALID_PTX);
  EXPECT_THAT(log_, HasSubstr("268435456 bytes"));
  ASSERT_EQ(cuLinkAddFile(link_, CU_JIT_INPUT_PTX, (directory / "callee.ptx").c_str(), 0, nullptr,
                          nullptr),
            CUDA_SUCCESS);
  EXPECT_EQ(Complete(), CUDA_SUCCESS) << log_;
}

TEST_F(LinkTest, LinksPtxOfFatbins) {
  std::ifstream file(GPUSHARED_LINK_FATBIN, std::ios::binary);
  const std::string fatbin(std::istreambuf_iterator<char>(file), {});
  ASSERT_EQ(Add(CU_JIT_INPUT_FATBINARY, fatbin, "fatbin"), CUDA_SUCCESS);
  ASSERT_EQ(AddText(kCaller, "caller"), CUDA_SUCCESS);
  ASSERT_EQ(Complete(), CUDA_SUCCESS) << log_;
  EXPECT_EQ(Run("fill", 32, /*is_cooperative=*/false)[2], 13u);
}

TEST_F(LinkTest, LinksPtxOfObjectFiles) {
  ASSERT_EQ(AddText(kCaller, "caller"), CUDA_SUCCESS);
  ASSERT_EQ(cuLinkAddFile(link_, CU_JIT_INPUT_OBJECT, GPUSHARED_LINK_OBJECT, 0, nullptr, nullptr),
            CUDA_SUCCESS)
      << log_;
  ASSERT_EQ(Complete(), CUDA_SUCCESS) << log_;
  EXPECT_EQ(Run("fill", 32, /*is_cooperative=*/false)[2], 13u);
  EXPECT_EQ(Add(CU_JIT_INPUT_OBJECT, "ELF", "not.o"), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_THAT(log_, HasSubstr("'not.o'"));
}

TEST_F(LinkTest, BrokenFatbinIsRejectedByName) {
  ASSERT_EQ(Add(CU_JIT_INPUT_FATBINARY, "\x50\xed\x55\xba nonsense", "broken"), CUDA_SUCCESS);
  ASSERT_EQ(AddText(kCallee, "callee"), CUDA_SUCCESS);
  EXPECT_EQ(Complete(), CUDA_ERROR_INVALID_PTX);
  EXPECT_THAT(log_, HasSubstr("broken"));
}

TEST_F(LinkTest, NamesUndefinedSymbol) {
  ASSERT_EQ(AddText(kCaller, "caller"), CUDA_SUCCESS);
  ASSERT_EQ(AddText(".visible .entry k() { ret; }", "other"), CUDA_SUCCESS);
  EXPECT_EQ(Complete(), CUDA_ERROR_INVALID_PTX);
  EXPECT_THAT(log_, HasSubstr("'triple'"));
  EXPECT_EQ(image_, nullptr);
}

TEST_F(LinkTest, DeviceRuntimeSynchronisesAGrid) {
  ASSERT_EQ(Add(CU_JIT_INPUT_LIBRARY, DeviceRuntimeArchive(), "libcudadevrt.a"), CUDA_SUCCESS);
  ASSERT_EQ(AddText(kGridSync, "kernel"), CUDA_SUCCESS);
  ASSERT_EQ(Complete(), CUDA_SUCCESS) << log_;
  EXPECT_EQ(Run("rotate", 1, /*is_cooperative=*/true), (std::vector<std::uint32_t>{1, 2, 3, 0}));
}

TEST_F(LinkTest, OtherInputsAreRejectedByName) {
  EXPECT_EQ(Complete(), CUDA_ERROR_INVALID_PTX);
  EXPECT_THAT(log_, HasSubstr("no inputs"));
  EXPECT_EQ(Add(CU_JIT_INPUT_LIBRARY, Archive({{"mine.o/", "code"}}), "libmine.a"),
            CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_THAT(log_, HasSubstr("'libmine.a'"));
  EXPECT_EQ(Add(CU_JIT_INPUT_CUBIN, "ELF", "a.cubin"), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_THAT(log_, HasSubstr("'a.cubin'"));
}

}  // namespace
}  // namespace gpushared
