// SPDX-License-Identifier: Apache-2.0
// The library's answers about devices, kernels, variables and faults must be the device's own.
#include <cstring>
#include <string>

#include <cuda.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/drop_in/server_case.h"

namespace gpushared {
namespace {

using testing::All;
using ::testing::HasSubstr;
using testing::kBytes;
using testing::kCount;

class DropInFactsTest : public testing::DropInServerCase {
 protected:
  static int Attribute(CUdevice_attribute id) {
    int value = -1;
    EXPECT_EQ(cuDeviceGetAttribute(&value, id, 0), CUDA_SUCCESS) << id;
    return value;
  }
  CUfunction Load(const char* text, const char* kernel) {
    EXPECT_EQ(cuModuleLoadData(&module_, text), CUDA_SUCCESS);
    CUfunction function = nullptr;
    EXPECT_EQ(cuModuleGetFunction(&function, module_, kernel), CUDA_SUCCESS);
    return function;
  }
  static CUresult RunOneThread(CUfunction function) {
    const CUresult launched =
        cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr);
    return launched != CUDA_SUCCESS ? launched : cuCtxSynchronize();
  }
};

// ---- devices

TEST_F(DropInFactsTest, DeviceReportsOnlyFeaturesOfTheLibrary) {
  ASSERT_EQ(cuInit(0), CUDA_SUCCESS);
  EXPECT_EQ(Attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR), 8);
  EXPECT_EQ(Attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE), 32);
  EXPECT_EQ(Attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK), 49152);
  EXPECT_GT(Attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN), 49152);
  EXPECT_EQ(Attribute(CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH), 1);
  EXPECT_EQ(Attribute(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING), 1);
  EXPECT_EQ(Attribute(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_HEIGHT), 65536);
  EXPECT_EQ(Attribute(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_LAYERS), 0);
  EXPECT_EQ(Attribute(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED), 1);
  EXPECT_EQ(Attribute(CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED), 1);
  EXPECT_EQ(Attribute(CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED), 0);
  EXPECT_EQ(Attribute(CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES), 0);
  EXPECT_EQ(Attribute(CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY), 1);
  EXPECT_EQ(Attribute(CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY), 1);
  EXPECT_EQ(Attribute(CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS), 0);
  EXPECT_EQ(Attribute(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED), 1);
  EXPECT_EQ(Attribute(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED), 0);
  int value = 0;
  EXPECT_EQ(cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(250), 0),
            CUDA_ERROR_INVALID_VALUE);
}

TEST_F(DropInFactsTest, NamedDeviceIsTheOnlyOneAndAnUnknownOneIsRejected) {
  ::setenv("GPUSHARED_DEVICE", "cpu:7", 1);
  EXPECT_EQ(cuInit(0), CUDA_ERROR_INVALID_DEVICE);
  ::setenv("GPUSHARED_DEVICE", "cpu:0", 1);
  EXPECT_EQ(cuInit(0), CUDA_SUCCESS);
  int count = 0;
  EXPECT_EQ(cuDeviceGetCount(&count), CUDA_SUCCESS);
  EXPECT_EQ(count, 1);
}

// ---- kernels

TEST_F(DropInFactsTest, KernelReportsItsAttributesAndParameters) {
  UsePrimary();
  const CUfunction function = Load(R"(
.version 7.0
.target sm_75
.address_size 64
.const .align 4 .b8 table[40];
.visible .entry takes(.param .u64 out) {
  .reg .b32 %r<9>; .reg .b64 %rd<4>; .local .align 8 .b8 depot[64]; .shared .align 4 .b8 tile[512];
  ld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x; st.local.u32 [depot], %r1; st.shared.u32 [tile], %r1;
  ld.const.u32 %r2, [table]; ld.local.u32 %r3, [depot]; add.u32 %r3, %r3, %r2;
  st.global.u32 [%rd1], %r3; ret;
})",
                                   "takes");
  const auto fact = [&](CUfunction_attribute id) {
    int value = -1;
    EXPECT_EQ(cuFuncGetAttribute(&value, id, function), CUDA_SUCCESS) << id;
    return value;
  };
  EXPECT_EQ(fact(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES), 512);
  EXPECT_EQ(fact(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES), 64);
  EXPECT_EQ(fact(CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES), 40);
  EXPECT_EQ(fact(CU_FUNC_ATTRIBUTE_PTX_VERSION), 75);
  EXPECT_EQ(fact(CU_FUNC_ATTRIBUTE_BINARY_VERSION), 80);
  EXPECT_GT(fact(CU_FUNC_ATTRIBUTE_NUM_REGS), 0);
  EXPECT_EQ(fact(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES), 49152 - 512);
}

// ---- variables

constexpr char kVariables[] = R"(
.version 7.0
.target sm_75
.address_size 64
.visible .global .align 4 .u32 step = 5;
.visible .const .align 4 .u32 factor = 3;
.visible .entry add_step(.param .u64 numbers) {
  .reg .b32 %r<6>; .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [numbers]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4;
  add.s64 %rd3, %rd1, %rd2; ld.global.u32 %r2, [step]; ld.const.u32 %r3, [factor];
  mul.lo.u32 %r2, %r2, %r3; ld.global.u32 %r4, [%rd3]; add.u32 %r4, %r4, %r2;
  st.global.u32 [%rd3], %r4; ret;
}
.visible .entry next_step() {
  .reg .b32 %r<2>;
  ld.global.u32 %r1, [step]; add.u32 %r1, %r1, 1; st.global.u32 [step], %r1; ret;
})";

TEST_F(DropInFactsTest, VariablesAreFoundByNameReadAndWritten) {
  UsePrimary();
  const CUfunction next_step = Load(kVariables, "next_step");
  CUdeviceptr step = 0, factor = 0;
  std::size_t bytes = 0;
  ASSERT_EQ(cuModuleGetGlobal(&step, &bytes, module_, "step"), CUDA_SUCCESS);
  EXPECT_EQ(bytes, 4u);
  ASSERT_EQ(cuModuleGetGlobal(&factor, nullptr, module_, "factor"), CUDA_SUCCESS);
  EXPECT_EQ(cuModuleGetGlobal(&step, &bytes, module_, "steps"), CUDA_ERROR_NOT_FOUND);

  unsigned value = 0;
  EXPECT_EQ(cuMemcpyDtoH(&value, step, sizeof value), CUDA_SUCCESS);
  EXPECT_EQ(value, 5u);
  EXPECT_EQ(cuMemcpyDtoH(&value, step, sizeof value + 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemFree(step), CUDA_ERROR_INVALID_VALUE) << "the variable belongs to the module";

  // Kernels read what the host has written, even in constants, and the host reads what a kernel has
  // written.
  const unsigned ten = 10;
  EXPECT_EQ(cuMemcpyHtoD(factor, &ten, sizeof ten), CUDA_SUCCESS);
  EXPECT_EQ(RunOneThread(next_step), CUDA_SUCCESS);
  CUfunction add_step = nullptr;
  ASSERT_EQ(cuModuleGetFunction(&add_step, module_, "add_step"), CUDA_SUCCESS);
  CUdeviceptr numbers = Numbers();
  void* parameters[] = {&numbers};
  EXPECT_EQ(cuLaunchKernel(add_step, 1, 1, 1, kCount, 1, 1, 0, nullptr, parameters, nullptr),
            CUDA_SUCCESS);
  EXPECT_EQ(Read(numbers), All(60));
  EXPECT_EQ(cuMemcpyDtoH(&value, step, sizeof value), CUDA_SUCCESS);
  EXPECT_EQ(value, 6u);
  EXPECT_EQ(cuModuleUnload(module_), CUDA_SUCCESS);
  EXPECT_EQ(cuMemcpyDtoH(&value, step, sizeof value), CUDA_ERROR_INVALID_VALUE);
}

// A variable may contain a pointer into another module of the same program.
TEST_F(DropInFactsTest, KernelsReachVariablesOfOtherModulesOfTheProgram) {
  UsePrimary();
  Load(kVariables, "next_step");
  CUdeviceptr step = 0;
  ASSERT_EQ(cuModuleGetGlobal(&step, nullptr, module_, "step"), CUDA_SUCCESS);
  module_ = nullptr;
  const CUfunction add_one = Function("add_one");
  unsigned n = 1;
  void* parameters[] = {&step, &n};
  EXPECT_EQ(cuLaunchKernel(add_one, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr),
            CUDA_SUCCESS);
  unsigned value = 0;
  EXPECT_EQ(cuMemcpyDtoH(&value, step, sizeof value), CUDA_SUCCESS);
  EXPECT_EQ(value, 6u);
}

TEST_F(DropInFactsTest, LibrariesHaveVariables) {
  UsePrimary();
  CUlibrary library = nullptr;
  ASSERT_EQ(cuLibraryLoadData(&library, kVariables, nullptr, nullptr, 0, nullptr, nullptr, 0),
            CUDA_SUCCESS);
  CUdeviceptr step = 0;
  std::size_t bytes = 0;
  EXPECT_EQ(cuLibraryGetGlobal(&step, &bytes, library, "step"), CUDA_SUCCESS);
  EXPECT_EQ(bytes, 4u);
  EXPECT_EQ(cuLibraryGetManaged(&step, &bytes, library, "step"), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(cuLibraryUnload(library), CUDA_SUCCESS);
}

// ---- occupancy

TEST_F(DropInFactsTest, OccupancyFollowsFromTheDevicesLimits) {
  UsePrimary();
  const CUfunction function = Function("add_one");
  int blocks = 0, multiprocessors = 0, threads = 0, least = 0;
  ASSERT_EQ(cuDeviceGetAttribute(&multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0),
            CUDA_SUCCESS);
  ASSERT_EQ(cuDeviceGetAttribute(&threads, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 0),
            CUDA_SUCCESS);
  ASSERT_EQ(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, 1024, 0), CUDA_SUCCESS);
  EXPECT_EQ(blocks, threads / 1024);
  EXPECT_EQ(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, 1025, 0), CUDA_SUCCESS);
  EXPECT_EQ(blocks, 0) << "more threads than the maximum of a block";
  EXPECT_EQ(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, 32, ~std::size_t{0}),
            CUDA_SUCCESS);
  EXPECT_EQ(blocks, 0) << "more shared memory than the maximum of a block";
  ASSERT_EQ(cuOccupancyMaxPotentialBlockSize(&least, &blocks, function, nullptr, 0, 0),
            CUDA_SUCCESS);
  EXPECT_EQ(blocks, 1024);
  EXPECT_EQ(least, threads / 1024 * multiprocessors);
  std::size_t shared = 0;
  ASSERT_EQ(cuOccupancyAvailableDynamicSMemPerBlock(&shared, function, 1, 32), CUDA_SUCCESS);
  EXPECT_EQ(shared, 48u << 10) << "only kernels that request it get more";
  ASSERT_EQ(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 64 << 10),
            CUDA_SUCCESS);
  ASSERT_EQ(cuOccupancyAvailableDynamicSMemPerBlock(&shared, function, 1, 32), CUDA_SUCCESS);
  EXPECT_EQ(shared, 64u << 10);
}

TEST_F(DropInFactsTest, DeviceWithoutClustersSupportsClustersOfOneBlock) {
  UsePrimary();
  const CUfunction function = Function("add_one");
  int blocks = 0, multiprocessors = 0, found = 0;
  ASSERT_EQ(cuDeviceGetAttribute(&multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0),
            CUDA_SUCCESS);
  ASSERT_EQ(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, 256, 0), CUDA_SUCCESS);
  CUlaunchConfig config{};
  config.gridDimX = 8;
  config.blockDimX = 256;
  config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
  EXPECT_EQ(cuOccupancyMaxActiveClusters(&found, function, &config), CUDA_SUCCESS);
  EXPECT_EQ(found, blocks * multiprocessors);
  EXPECT_EQ(cuOccupancyMaxPotentialClusterSize(&found, function, &config), CUDA_SUCCESS);
  EXPECT_EQ(found, 1);
  CUlaunchAttribute cluster{};
  cluster.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  cluster.value.clusterDim = {2, 1, 1};
  config.attrs = &cluster;
  config.numAttrs = 1;
  EXPECT_EQ(cuOccupancyMaxActiveClusters(&found, function, &config),
            CUDA_ERROR_INVALID_CLUSTER_SIZE);
  config.blockDimX = 0;
  EXPECT_EQ(cuOccupancyMaxActiveClusters(&found, function, &config), CUDA_ERROR_INVALID_VALUE);
}

// ---- faults

struct FaultCase {
  const char* name;
  const char* body;
  CUresult result;
};
class DropInFaultTest : public DropInFactsTest, public ::testing::WithParamInterface<FaultCase> {};

TEST_P(DropInFaultTest, KernelFaultHasTheDriversErrorCode) {
  UsePrimary();
  const std::string text =
      ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry fails() {\n"
      "  .reg .pred %p<2>; .reg .b32 %r<4>; .reg .b64 %rd<4>; .shared .align 4 .b8 tile[16];\n" +
      std::string(GetParam().body) + " ret;\n}\n";
  EXPECT_EQ(RunOneThread(Load(text.c_str(), "fails")), GetParam().result);
  CUdeviceptr memory = 0;
  EXPECT_EQ(cuMemAlloc(&memory, 16), GetParam().result) << "it stays";
}
INSTANTIATE_TEST_SUITE_P(
    Kinds, DropInFaultTest,
    ::testing::Values(FaultCase{"IllegalAddress", "mov.u64 %rd1, 64; st.global.u32 [%rd1], 1;",
                                CUDA_ERROR_ILLEGAL_ADDRESS},
                      FaultCase{
                          "Misaligned",
                          "mov.u64 %rd1, tile; add.u64 %rd1, %rd1, 2; st.shared.u32 [%rd1], 1;",
                          CUDA_ERROR_MISALIGNED_ADDRESS},
                      FaultCase{"Trap", "trap;", CUDA_ERROR_LAUNCH_FAILED}),
    [](const auto& chosen) { return std::string(chosen.param.name); });

// ---- printing

TEST_F(DropInFactsTest, KernelsPrintToTheProgramsOutput) {
  UsePrimary();
  const CUfunction says = Load(R"(
.version 7.0
.target sm_75
.address_size 64
.extern .func (.param .b32 count) vprintf(.param .b64 format, .param .b64 values);
.global .align 1 .b8 text[12] = {104, 101, 108, 108, 111, 32, 37, 100, 10, 0, 0, 0};
.visible .entry says() {
  .reg .b32 %r<3>; .reg .b64 %rd<5>; .local .align 8 .b8 depot[8];
  mov.u32 %r1, 42; st.local.u32 [depot], %r1;
  mov.u64 %rd1, text; cvta.global.u64 %rd2, %rd1; mov.u64 %rd3, depot; cvta.local.u64 %rd4, %rd3;
  { .param .b64 f; st.param.b64 [f], %rd2; .param .b64 v; st.param.b64 [v], %rd4; .param .b32 c;
    call.uni (c), vprintf, (f, v); ld.param.b32 %r2, [c]; }
  ret;
})",
                               "says");
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(RunOneThread(says), CUDA_SUCCESS);
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "hello 42\n");
  EXPECT_THAT(server_.Log(), ::testing::Not(HasSubstr("hello")));
}

}  // namespace
}  // namespace gpushared
