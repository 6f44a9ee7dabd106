// SPDX-License-Identifier: Apache-2.0
// Launches that CUDA rejects must be rejected on the cpu device, too, because otherwise a program
// that works on the cpu device would fail on a GPU. CUDA's header and the PTX manual define the
// errors.
#include <cstdint>
#include <string>
#include <vector>

#include <cuda.h>
#include <gtest/gtest.h>

#include "tests/drop_in/server_case.h"

namespace gpushared {
namespace {

constexpr char kLimitedKernels[] = R"(
.version 7.8
.target sm_90
.address_size 64
.extern .shared .align 16 .b8 dynamic[];
.visible .entry exact3() .reqntid 32, 2, 2 { ret; }
.visible .entry exact2() .reqntid 0x20,2 { ret; }
.visible .entry exact1() .reqntid 64 { ret; }
.visible .entry most() .maxntid 16, 2, 2 .minnctapersm 2 { ret; }
.visible .entry clustered() .reqnctapercluster 1, 1, 1 { ret; }
.visible .entry pairs() .reqnctapercluster 2 { ret; }
.visible .entry plain() { ret; }
.visible .entry dynamic_only() { st.shared.u32 [dynamic], 1; ret; }
.visible .entry both_shared() {
  .shared .align 4 .b8 fixed[40000];
  st.shared.u32 [fixed], 1; st.shared.u32 [dynamic], 1; ret;
}
)";

struct Block {
  unsigned x = 1, y = 1, z = 1;
};

class LaunchLimitsTest : public testing::DropInServerCase {
 protected:
  LaunchLimitsTest() {
    UsePrimary();
    EXPECT_EQ(cuModuleLoadData(&limited_, kLimitedKernels), CUDA_SUCCESS);
  }

  CUfunction Limited(const char* name) {
    CUfunction function = nullptr;
    EXPECT_EQ(cuModuleGetFunction(&function, limited_, name), CUDA_SUCCESS) << name;
    return function;
  }
  CUresult Run(const char* name, Block block, unsigned shared_bytes = 0) {
    const CUresult launched = cuLaunchKernel(Limited(name), 1, 1, 1, block.x, block.y, block.z,
                                             shared_bytes, nullptr, nullptr, nullptr);
    EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS) << "a rejected launch leaves no error behind";
    return launched;
  }
  CUresult RunCluster(const char* name, unsigned grid, Block cluster) {
    CUlaunchAttribute attribute{};
    attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attribute.value.clusterDim = {cluster.x, cluster.y, cluster.z};
    CUlaunchConfig config{};
    config.gridDimX = grid;
    config.gridDimY = config.gridDimZ = 1;
    config.blockDimX = config.blockDimY = config.blockDimZ = 1;
    config.attrs = &attribute;
    config.numAttrs = 1;
    return cuLaunchKernelEx(&config, Limited(name), nullptr, nullptr);
  }
  int Attribute(const char* name, CUfunction_attribute attribute) {
    int value = -1;
    EXPECT_EQ(cuFuncGetAttribute(&value, attribute, Limited(name)), CUDA_SUCCESS);
    return value;
  }

  CUmodule limited_ = nullptr;
};

TEST_F(LaunchLimitsTest, RequiredBlockIsExactAlongEachAxis) {
  EXPECT_EQ(Run("exact3", {32, 2, 2}), CUDA_SUCCESS);
  for (const Block wrong : {Block{64, 2, 1}, Block{32, 4, 1}, Block{2, 32, 2}, Block{32, 2, 1},
                            Block{31, 2, 2}, Block{1, 1, 1}, Block{128, 1, 1}}) {
    EXPECT_EQ(Run("exact3", wrong), CUDA_ERROR_INVALID_VALUE)
        << wrong.x << ' ' << wrong.y << ' ' << wrong.z;
  }
  EXPECT_EQ(Run("exact2", {32, 2, 1}), CUDA_SUCCESS);
  EXPECT_EQ(Run("exact2", {64, 1, 1}), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Run("exact1", {64, 1, 1}), CUDA_SUCCESS);
  EXPECT_EQ(Run("exact1", {32, 2, 1}), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Attribute("exact3", CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK), 128);
}

TEST_F(LaunchLimitsTest, MaxntidLimitsTheProductAlone) {
  EXPECT_EQ(Run("most", {64, 1, 1}), CUDA_SUCCESS);
  EXPECT_EQ(Run("most", {1, 8, 8}), CUDA_SUCCESS);
  EXPECT_EQ(Run("most", {65, 1, 1}), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(LaunchLimitsTest, RequiredClusterIsExact) {
  EXPECT_EQ(RunCluster("clustered", 3, {1, 1, 1}), CUDA_SUCCESS);
  EXPECT_EQ(RunCluster("clustered", 4, {2, 1, 1}), CUDA_ERROR_INVALID_CLUSTER_SIZE);
  EXPECT_EQ(RunCluster("pairs", 4, {1, 1, 1}), CUDA_ERROR_INVALID_CLUSTER_SIZE);
  EXPECT_EQ(RunCluster("pairs", 4, {4, 1, 1}), CUDA_ERROR_INVALID_CLUSTER_SIZE);
  EXPECT_EQ(RunCluster("pairs", 3, {2, 1, 1}), CUDA_ERROR_INVALID_CLUSTER_SIZE);
  EXPECT_EQ(Run("clustered", {}), CUDA_SUCCESS);
  // Clusters of the cpu device have one block.
  EXPECT_EQ(RunCluster("pairs", 4, {2, 1, 1}), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(Attribute("pairs", CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH), 2);
  EXPECT_EQ(Attribute("pairs", CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH), 1);
  EXPECT_EQ(Attribute("most", CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH), 0);
  EXPECT_EQ(cuFuncSetAttribute(Limited("pairs"), CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, 1),
            CUDA_ERROR_NOT_PERMITTED);
}

TEST_F(LaunchLimitsTest, DynamicSharedMemoryObeysTheFunctionsAttribute) {
  constexpr auto kMost = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
  EXPECT_EQ(Run("dynamic_only", {}, 48 << 10), CUDA_SUCCESS);
  EXPECT_EQ(Run("dynamic_only", {}, (48 << 10) + 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Run("both_shared", {}, (48 << 10) - 40000), CUDA_SUCCESS);
  EXPECT_EQ(Run("both_shared", {}, (48 << 10) - 40000 + 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuFuncSetAttribute(Limited("dynamic_only"), kMost, 64 << 10), CUDA_SUCCESS);
  EXPECT_EQ(Run("dynamic_only", {}, 64 << 10), CUDA_SUCCESS);
  EXPECT_EQ(Run("dynamic_only", {}, (64 << 10) + 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuFuncSetAttribute(Limited("dynamic_only"), kMost, 1000), CUDA_SUCCESS);
  EXPECT_EQ(Run("dynamic_only", {}, 1000), CUDA_SUCCESS);
  EXPECT_EQ(Run("dynamic_only", {}, 1001), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuFuncSetAttribute(Limited("dynamic_only"), kMost, 0), CUDA_SUCCESS);
  EXPECT_EQ(Run("dynamic_only", {}, 1), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(LaunchLimitsTest, CooperativeGridFitsOntoTheDevice) {
  int multiprocessors = 0;
  ASSERT_EQ(cuDeviceGetAttribute(&multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0),
            CUDA_SUCCESS);
  for (const auto& [threads, shared] : {std::pair{256U, 0U}, {1024U, 0U}, {32U, 40U << 10}}) {
    int blocks = 0;
    ASSERT_EQ(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, Limited("plain"),
                                                          static_cast<int>(threads), shared),
              CUDA_SUCCESS);
    const auto most = static_cast<unsigned>(blocks * multiprocessors);
    const auto launch = [&, threads = threads, shared = shared](unsigned grid_x, unsigned grid_y) {
      return cuLaunchCooperativeKernel(Limited("plain"), grid_x, grid_y, 1, threads, 1, 1, shared,
                                       nullptr, nullptr);
    };
    EXPECT_EQ(launch(most, 1), CUDA_SUCCESS);
    EXPECT_EQ(launch(most + 1, 1), CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
    EXPECT_EQ(launch(1, most + 1), CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
  }
  EXPECT_EQ(cuLaunchCooperativeKernel(Limited("plain"), 1, 1, 1, 1025, 1, 1, 0, nullptr, nullptr),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
}

// Nodes and captures accept no launch that the driver would reject.
TEST_F(LaunchLimitsTest, GraphsRejectTheSameLaunches) {
  CUgraph graph = nullptr;
  ASSERT_EQ(cuGraphCreate(&graph, 0), CUDA_SUCCESS);
  CUDA_KERNEL_NODE_PARAMS node{};
  node.func = Limited("dynamic_only");
  node.gridDimX = node.gridDimY = node.gridDimZ = 1;
  node.blockDimX = node.blockDimY = node.blockDimZ = 1;
  node.sharedMemBytes = (48 << 10) + 1;
  CUgraphNode made = nullptr;
  EXPECT_EQ(cuGraphAddKernelNode(&made, graph, nullptr, 0, &node), CUDA_ERROR_INVALID_VALUE);
  node.sharedMemBytes = 48 << 10;
  EXPECT_EQ(cuGraphAddKernelNode(&made, graph, nullptr, 0, &node), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
}

}  // namespace
}  // namespace gpushared
