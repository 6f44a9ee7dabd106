// SPDX-License-Identifier: Apache-2.0
// Swaps of a client's pages: the stand-in for absent pages, and calls that fail.

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>

#include "server/device/memory_budget.h"
#include "server/device/reach.h"
#include "server/device/swap_store.h"
#include "tests/server/device/cuda_device_fixture.h"

namespace gpushared::device::cuda {
namespace {

constexpr std::uint64_t kMoveSteps = 4;

class CudaSwaps : public CudaDeviceTest {
 protected:
  void SetUp() override {
    CudaDeviceTest::SetUp();
    Start();
  }
  // Returns a client whose pages begin with their numbers, with pages 1 and 2 swapped out.
  Tenant NewTenantWithSomeAway() {
    Tenant tenant;
    const auto store = SwapStore::Create({.bytes = kMoveSteps * kMapPageBytes, .directory = ""});
    EXPECT_TRUE((*store)->Reserve(kMoveSteps * kMapPageBytes).ok());
    tenant.space = gpu().CreateSpace({.quota_bytes = 64 * kMebibyte, .store = *store}).value();
    EXPECT_TRUE(tenant.space->Resize(kMoveSteps * kMapPageBytes).ok());
    tenant.module = Load(*tenant.space, kStorePtx).value();
    for (std::uint32_t step = 0; step < kMoveSteps; ++step) {
      std::array<std::byte, 4> word;
      std::memcpy(word.data(), &step, sizeof step);
      const WorkId copy = Copy(tenant, CopyWork::Direction::kHostToDevice, word, At(step));
      EXPECT_TRUE(Await(copy).status.ok());
    }
    for (const std::uint64_t step : {1, 2}) {
      EXPECT_TRUE(tenant.space->SwapPageOut(At(step)).ok());
    }
    return tenant;
  }
  static std::uint64_t At(std::uint64_t step) { return step * kMapPageBytes; }
  static bool IsAway(const Tenant& tenant, std::uint64_t step) {
    return tenant.space->NonResidentBytes(tenant.At(At(step)), 1) > 0;
  }
  std::uint32_t FirstWord(const Tenant& tenant, std::uint64_t step) {
    std::array<std::byte, 4> word{};
    EXPECT_TRUE(
        Await(Copy(tenant, CopyWork::Direction::kDeviceToHost, word, At(step))).status.ok());
    std::uint32_t value = 0;
    std::memcpy(&value, word.data(), sizeof value);
    return value;
  }
  // Runs a launch that declares an access to page 0, and stores to this page or to another one.
  Status StoreIn(const Tenant& tenant, std::uint64_t step) {
    Reach reach;
    reach.Add({.base = tenant.At(0), .bytes = kMapPageBytes});
    LaunchWork work = StoreWork(tenant, tenant.At(At(step)) + 8, 1);
    work.reach = &reach;
    gpu().Submit(work);
    return Await(work.id).status;
  }
};

TEST_F(CudaSwaps, OneStandInPageReplacesAllSwappedOutPages) {
  const std::size_t before = fake_cuda_live("memory"), mapped = fake_cuda_live("mapping");
  const Tenant tenant = NewTenantWithSomeAway();
  EXPECT_EQ(fake_cuda_live("memory") - before, kMoveSteps - 2 + 1);
  EXPECT_EQ(fake_cuda_live("mapping") - mapped, kMoveSteps) << "no address is without memory";
  for (const std::uint64_t step : {0, 1, 2}) EXPECT_TRUE(StoreIn(tenant, step).ok());
  EXPECT_EQ(gpu().loss(), nullptr);
  ASSERT_TRUE(tenant.space->SwapPageIn(At(1)).ok());
  EXPECT_EQ(FirstWord(tenant, 1), 1U);
  ASSERT_TRUE(tenant.space->SwapPageIn(At(2)).ok());
  EXPECT_EQ(FirstWord(tenant, 2), 2U);
  EXPECT_EQ(fake_cuda_live("memory") - before, kMoveSteps) << "the stand-in went with the last";
}

TEST_F(CudaSwaps, FreeingSwappedOutPagesUnmapsTheirStandIn) {
  const std::size_t before = fake_cuda_live("memory"), mapped = fake_cuda_live("mapping");
  const Tenant tenant = NewTenantWithSomeAway();
  ASSERT_TRUE(tenant.space->Resize(At(1)).ok());
  EXPECT_EQ(fake_cuda_live("memory") - before, 1U);
  EXPECT_EQ(fake_cuda_live("mapping") - mapped, 1U);
  ASSERT_TRUE(tenant.space->Resize(At(3)).ok());
  EXPECT_FALSE(IsAway(tenant, 1));
  EXPECT_EQ(FirstWord(tenant, 1), 0U) << "what was there before";
}

TEST_F(CudaSwaps, AccessSetIsKnownUnderEveryIsolation) {
  for (const Isolation isolation : {Isolation::kOff, Isolation::kFence, Isolation::kContain}) {
    const auto space =
        gpu().CreateSpace({.quota_bytes = 64 * kMebibyte, .isolation = isolation}).value();
    ASSERT_TRUE(space->Resize(kMapPageBytes).ok());
    const auto module = Load(*space, kStorePtx).value();
    const KernelInfo& store = module->kernels()[KernelNamed(*module, "store")];
    EXPECT_EQ(store.why_reach_unknown, "");
    EXPECT_THAT(store.reach_offsets, ::testing::ElementsAre(0));
  }
}

class CallOfSwap : public CudaSwaps, public ::testing::WithParamInterface<const char*> {};

TEST_P(CallOfSwap, FailureKeepsPageInStoreAndStandInMapped) {
  const Tenant tenant = NewTenantWithSomeAway();
  Script("fail " + std::string(GetParam()) + " 1 2");
  EXPECT_EQ(tenant.space->SwapPageIn(At(1)).code(), StatusCode::kOutOfMemory);
  EXPECT_EQ(gpu().loss(), nullptr);
  EXPECT_TRUE(IsAway(tenant, 1));
  EXPECT_TRUE(StoreIn(tenant, 1).ok()) << "no memory lies there";
  EXPECT_EQ(gpu().loss(), nullptr);
  ASSERT_TRUE(tenant.space->SwapPageIn(At(1)).ok());
  EXPECT_EQ(FirstWord(tenant, 1), 1U);
  EXPECT_TRUE(StoreIn(tenant, 2).ok());
}

INSTANTIATE_TEST_SUITE_P(In, CallOfSwap,
                         ::testing::Values("cuMemCreate", "cuMemMap", "cuMemSetAccess",
                                           "cuMemcpyHtoDAsync"),
                         [](const auto& any) { return std::string(any.param); });

// After a failed call it is unknown whether the address is mapped, so the context must end.
TEST_F(CudaSwaps, PossiblyUnmappedAddressEndsContext) {
  const Tenant tenant = NewTenantWithSomeAway();
  Script("fail cuMemUnmap 1 2");
  EXPECT_EQ(tenant.space->SwapPageIn(At(1)).code(), StatusCode::kDeviceLost);
  EXPECT_EQ(Await(Store(tenant, tenant.At(0), 1)).status.code(), StatusCode::kDeviceLost);
  Script("leaks ignored");
  (void)fake_cuda_take_mistakes();
}

}  // namespace
}  // namespace gpushared::device::cuda
