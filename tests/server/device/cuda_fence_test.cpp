// SPDX-License-Identifier: Apache-2.0
// Fenced clients of a CUDA device: where their objects are placed, and which memory is returned.
// tests/conformance verifies that their kernels compute the same results and cannot access other
// clients' memory.

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "tests/server/device/cuda_device_fixture.h"
#include "tests/support/plain_compiler.h"

namespace gpushared::device::cuda {
namespace {

using ::testing::HasSubstr;

class FencedClient : public CudaDeviceTest {
 protected:
  void SetUp() override {
    CudaDeviceTest::SetUp();
    Start();
    space_ = NewSpace(64 * kMebibyte);
    ASSERT_NE(space_, nullptr);
  }
  void TearDown() override {
    space_.reset();
    CudaDeviceTest::TearDown();
  }
  std::unique_ptr<Space> NewSpace(std::uint64_t quota_bytes) {
    auto space = gpu().CreateSpace({.quota_bytes = quota_bytes, .isolation = Isolation::kFence});
    EXPECT_TRUE(space.ok()) << space.status().ToString();
    return space.ok() ? *std::move(space) : nullptr;
  }

  std::unique_ptr<Space> space_;
};

TEST_F(FencedClient, RangesAreFurtherApartThanFencedAccessesReach) {
  std::vector<std::unique_ptr<Space>> spaces;
  for (int i = 0; i < 8; ++i) spaces.push_back(NewSpace(64 * kMebibyte));
  std::ranges::sort(spaces, {}, [](const auto& space) { return space->base(); });
  for (std::size_t i = 0; i < spaces.size(); ++i) {
    EXPECT_EQ(spaces[i]->base() % spaces[i]->range_bytes(), 0U);
    if (i > 0) {
      EXPECT_GE(spaces[i]->base(),
                spaces[i - 1]->base() + spaces[i - 1]->range_bytes() + 2 * kMebibyte);
    }
  }
}

TEST_F(FencedClient, ModulesSharePagesOfVariablesAndReturnThem) {
  const std::uint64_t before = fake_cuda_memory_used();
  auto first = Load(*space_, kStorePtx);
  ASSERT_TRUE(first.ok()) << first.status().ToString();
  const std::uint64_t one = fake_cuda_memory_used();
  EXPECT_GE(one, before + 2 * kMebibyte);
  auto second = Load(*space_, kStorePtx);
  ASSERT_TRUE(second.ok()) << second.status().ToString();
  EXPECT_LT(fake_cuda_memory_used(), one + 2 * kMebibyte);
  first->reset();
  EXPECT_GE(fake_cuda_memory_used(), before + 2 * kMebibyte) << "the second one's are still there";
  second->reset();
  EXPECT_EQ(fake_cuda_memory_used(), before);
}

TEST_F(FencedClient, RangeAcceptsLargerModulesAfterUnload) {
  const auto text = [](std::uint64_t bytes) {
    return std::string(
               ".version 8.0\n.target sm_75\n.address_size 64\n.visible .global .align 4 ") +
           ".b8 large[" + std::to_string(bytes) + "];\n";
  };
  auto small = Load(*space_, text(1000));
  ASSERT_TRUE(small.ok());
  EXPECT_EQ(Load(*space_, text(80 * kMebibyte)).status().code(), StatusCode::kOutOfMemory);
  auto large = Load(*space_, text(50 * kMebibyte));
  ASSERT_TRUE(large.ok()) << large.status().ToString();
  EXPECT_EQ(Load(*space_, text(50 * kMebibyte)).status().code(), StatusCode::kOutOfMemory);
  large->reset();
  EXPECT_TRUE(Load(*space_, text(50 * kMebibyte)).ok());
  auto beyond = NewSpace(std::uint64_t{1} << 30);
  EXPECT_EQ(Load(*beyond, text(300 * kMebibyte)).status().code(), StatusCode::kInvalidArgument);
  const auto most = Load(*beyond, text(200 * kMebibyte));
  EXPECT_TRUE(most.ok());
  const Status rejected = Load(*beyond, text(100 * kMebibyte)).status();
  EXPECT_EQ(rejected.code(), StatusCode::kOutOfMemory);
  EXPECT_THAT(std::string(rejected.message()), HasSubstr("256 MiB together"));
}

TEST_F(FencedClient, MachineCodeIsRejectedWithTheReason) {
  const std::string cubin = std::string("\x7f") + "ELF" + std::string(100, '\0');
  const Status rejected = Load(*space_, cubin).status();
  EXPECT_EQ(rejected.code(), StatusCode::kUnsupported);
  EXPECT_THAT(std::string(rejected.message()),
              AllOf(HasSubstr("rewriting their PTX"), HasSubstr("a cubin holds no PTX")));
}

TEST_F(FencedClient, ModuleThatCannotBeFencedIsRejectedWithTheReason) {
  const Status rejected =
      Load(*space_, ".version 8.0\n.target sm_75\n.address_size 64\n.global .b8 __gs0_mine[4];\n")
          .status();
  EXPECT_EQ(rejected.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(rejected.message()), HasSubstr("kept in its client's memory"));
}

// The driver's compiler runs inside the worker, which maps every client's memory. Therefore this
// compiler must not compile PTX of users who are not trusted.
TEST_F(FencedClient, RejectsModuleOnlyDriverCanCompileUnlessAllowed) {
  const auto load = [&](const SpaceOptions& options) {
    const auto space = gpu().CreateSpace(options);
    return space.ok() ? Load(**space, kStorePtx).status() : space.status();
  };
  SpaceOptions stranger = {.quota_bytes = 64 * kMebibyte, .driver_may_compile = false};
  for (const Isolation isolation : {Isolation::kFence, Isolation::kContain}) {
    stranger.isolation = isolation;
    const std::size_t loaded = fake_cuda_calls("cuModuleLoadDataEx");
    const Status rejected = load(stranger);
    EXPECT_EQ(rejected.code(), StatusCode::kUnsupported);
    EXPECT_THAT(std::string(rejected.message()), AllOf(HasSubstr("ptxas"), HasSubstr("driver")));
    EXPECT_EQ(fake_cuda_calls("cuModuleLoadDataEx"), loaded);
    SpaceOptions trusted = stranger;
    trusted.driver_may_compile = true;
    EXPECT_EQ(load(trusted).ToString(), "Ok");
  }
  stranger.isolation = Isolation::kOff;
  EXPECT_EQ(load(stranger).ToString(), "Ok") << "whom the operator trusts with all memory";
}

TEST_F(FencedClient, OutsideCompilerCompilesForFencedClient) {
  space_.reset();
  device_.reset();
  Start({.make_compiler = [] { return std::make_unique<gpushared::testing::PlainCompiler>(); }});
  const auto space = gpu().CreateSpace(
      {.quota_bytes = 64 * kMebibyte, .isolation = Isolation::kFence, .driver_may_compile = false});
  ASSERT_TRUE(space.ok());
  EXPECT_EQ(Load(**space, kStorePtx).status().ToString(), "Ok");
}

TEST_F(FencedClient, FailedModulePreparationLeavesNothingBehind) {
  for (const char* call : {"cuModuleGetGlobal", "cuMemcpyHtoDAsync", "cuModuleGetFunction",
                           "cuModuleLoadDataEx", "cuMemCreate", "cuMemMap"}) {
    const std::uint64_t before = fake_cuda_memory_used();
    Script(std::string("fail ") + call + " 1 2");
    EXPECT_FALSE(Load(*space_, kStorePtx).ok()) << call;
    EXPECT_EQ(fake_cuda_memory_used(), before) << call;
    EXPECT_TRUE(Load(*space_, kStorePtx).ok()) << call;
  }
}

}  // namespace
}  // namespace gpushared::device::cuda
