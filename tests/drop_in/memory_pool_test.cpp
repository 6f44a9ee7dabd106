// SPDX-License-Identifier: Apache-2.0
// Stream-ordered memory: when freed memory is reused, and by which streams.
#include <cstdint>

#include <gtest/gtest.h>

#include "tests/drop_in/drop_in_case.h"

namespace gpushared::drop_in {
namespace {

constexpr std::size_t kPoolBytes = 64 << 10;

// CUmemPool_attribute.
constexpr int kOpportunistic = 2;
constexpr int kThreshold = 4;
constexpr int kReserved = 5;
constexpr int kReservedHigh = 6;
constexpr int kUsed = 7;
constexpr int kUsedHigh = 8;

class MemoryPoolTest : public DropInCase {
 protected:
  MemoryPoolTest() {
    EXPECT_EQ(DeviceGetDefaultMemPool(&default_pool_, 0), Code::kSuccess);
    EXPECT_EQ(DeviceSetMemPool(0, default_pool_), Code::kSuccess);
  }
  ~MemoryPoolTest() override { worker_.set_finishing(true); }

  DevicePointer Allocate(StreamHandle stream, std::size_t bytes = kPoolBytes) {
    DevicePointer address = 0;
    EXPECT_EQ(MemAllocAsync(&address, bytes, stream), Code::kSuccess);
    return address;
  }
  PoolHandle NewPool(std::size_t bytes_max) {
    const PoolProperties properties = {
        .type = AllocationType::kPinned, .location = {}, .bytes_max = bytes_max};
    PoolHandle pool = nullptr;
    EXPECT_EQ(MemPoolCreate(&pool, &properties), Code::kSuccess);
    return pool;
  }
  std::uint64_t Get(PoolHandle pool, int attribute) {
    std::uint64_t value = ~std::uint64_t{0};
    EXPECT_EQ(MemPoolGetAttribute(pool, attribute, &value), Code::kSuccess);
    return value;
  }
  void Set(PoolHandle pool, int attribute, std::uint64_t value) {
    EXPECT_EQ(MemPoolSetAttribute(pool, attribute, &value), Code::kSuccess);
  }

  PoolHandle default_pool_ = nullptr;
  const StreamHandle a_ = NewStream(), b_ = NewStream();
};

TEST_F(MemoryPoolTest, SameStreamUsesFreedMemoryAtOnce) {
  worker_.set_finishing(false);
  const DevicePointer first = Allocate(a_);
  ASSERT_EQ(LaunchOn(a_), Code::kSuccess);
  ASSERT_EQ(MemFreeAsync(first, a_), Code::kSuccess) << "the host must not wait";
  EXPECT_EQ(Allocate(a_, kPoolBytes - 1), first) << "sizes are rounded up, so these two are equal";
  EXPECT_NE(Allocate(a_), first) << "the first memory is in use";
}

TEST_F(MemoryPoolTest, OtherStreamReusesMemoryAfterFreeHasExecuted) {
  worker_.set_finishing(false);
  const DevicePointer first = Allocate(a_);
  ASSERT_EQ(LaunchOn(a_), Code::kSuccess);
  ASSERT_EQ(MemFreeAsync(first, a_), Code::kSuccess);
  EXPECT_NE(Allocate(b_), first);
  Set(default_pool_, kThreshold, ~std::uint64_t{0});
  worker_.set_finishing(true);
  ASSERT_EQ(StreamSynchronize(a_), Code::kSuccess);
  Set(default_pool_, kOpportunistic, 0);
  EXPECT_NE(Allocate(b_), first) << "the pool does not allow reuse by other streams";
  Set(default_pool_, kOpportunistic, 1);
  EXPECT_EQ(Allocate(b_), first);
  Set(default_pool_, kThreshold, 0);
}

TEST_F(MemoryPoolTest, SynchronizingReleasesMemoryAboveThreshold) {
  const PoolHandle pool = NewPool(0);
  DevicePointer address = 0;
  ASSERT_EQ(MemAllocFromPoolAsync(&address, kPoolBytes, pool, a_), Code::kSuccess);
  EXPECT_EQ(Get(pool, kUsed), kPoolBytes);
  ASSERT_EQ(MemFreeAsync(address, a_), Code::kSuccess);
  EXPECT_EQ(Get(pool, kUsed), 0u);
  EXPECT_EQ(Get(pool, kReserved), kPoolBytes) << "kept until a call waits";
  Set(pool, kThreshold, kPoolBytes);
  ASSERT_EQ(StreamSynchronize(a_), Code::kSuccess);
  EXPECT_EQ(Get(pool, kReserved), kPoolBytes);
  Set(pool, kThreshold, kPoolBytes - 1);
  ASSERT_EQ(StreamSynchronize(a_), Code::kSuccess);
  EXPECT_EQ(Get(pool, kReserved), 0u);
  EXPECT_EQ(Get(pool, kReservedHigh), kPoolBytes);
  EXPECT_EQ(Get(pool, kUsedHigh), kPoolBytes);
  Set(pool, kUsedHigh, 0);
  EXPECT_EQ(Get(pool, kUsedHigh), 0u);
  EXPECT_EQ(MemFreeAsync(address, a_), Code::kInvalidValue) << "twice";
}

TEST_F(MemoryPoolTest, AllocatingZeroBytesReturnsNull) {
  for (const bool is_from_pool : {false, true}) {
    DevicePointer address = 1;
    EXPECT_EQ(is_from_pool ? MemAllocFromPoolAsync(&address, 0, default_pool_, a_)
                           : MemAllocAsync(&address, 0, a_),
              Code::kSuccess);
    EXPECT_EQ(address, 0u);
    EXPECT_EQ(MemFreeAsync(address, a_), Code::kSuccess);
  }
}

TEST_F(MemoryPoolTest, TrimReleasesUnusedMemory) {
  const PoolHandle pool = NewPool(0);
  Set(pool, kThreshold, ~std::uint64_t{0});
  for (const bool is_done : {false, true}) {
    worker_.set_finishing(is_done);
    DevicePointer address = 0;
    ASSERT_EQ(MemAllocFromPoolAsync(&address, kPoolBytes, pool, a_), Code::kSuccess);
    ASSERT_EQ(LaunchOn(a_), Code::kSuccess);
    ASSERT_EQ(MemFreeAsync(address, a_), Code::kSuccess);
    if (is_done) {
      ASSERT_EQ(StreamSynchronize(a_), Code::kSuccess);
      EXPECT_EQ(MemPoolTrimTo(pool, kPoolBytes), Code::kSuccess);
      EXPECT_EQ(Get(pool, kReserved), kPoolBytes);
    }
    EXPECT_EQ(MemPoolTrimTo(pool, 0), Code::kSuccess);
    EXPECT_EQ(Get(pool, kReserved), is_done ? 0 : kPoolBytes);
  }
}

TEST_F(MemoryPoolTest, FreesRetainedMemoryBeforeAnAllocationFails) {
  Set(default_pool_, kThreshold, ~std::uint64_t{0});
  std::size_t free_bytes = 0, total = 0;
  ASSERT_EQ(MemGetInfo(&free_bytes, &total), Code::kSuccess);
  const DevicePointer most = Allocate(a_, total / 4 * 3);
  ASSERT_EQ(MemFreeAsync(most, a_), Code::kSuccess);
  DevicePointer half = Allocate(a_, total / 2);
  EXPECT_NE(half, 0u);
  EXPECT_EQ(MemAllocAsync(&half, total, a_), Code::kOutOfMemory);
  EXPECT_EQ(MemAllocAsync(&half, ~std::size_t{0}, a_), Code::kOutOfMemory);
  Set(default_pool_, kThreshold, 0);
}

TEST_F(MemoryPoolTest, PoolObeysItsMaximumSize) {
  const PoolHandle pool = NewPool(2 * kPoolBytes);
  DevicePointer address = 0, more = 0;
  ASSERT_EQ(MemAllocFromPoolAsync(&address, kPoolBytes, pool, a_), Code::kSuccess);
  EXPECT_EQ(MemAllocFromPoolAsync(&more, kPoolBytes + 1, pool, a_), Code::kOutOfMemory);
  ASSERT_EQ(MemFreeAsync(address, a_), Code::kSuccess);
  EXPECT_EQ(MemAllocFromPoolAsync(&more, 2 * kPoolBytes, pool, a_), Code::kSuccess)
      << "the pool must release retained memory first";
}

TEST_F(MemoryPoolTest, DestroyedPoolLivesAsLongAsItsAllocations) {
  const PoolHandle pool = NewPool(0);
  ASSERT_EQ(DeviceSetMemPool(0, pool), Code::kSuccess);
  PoolHandle current = nullptr;
  EXPECT_EQ(DeviceGetMemPool(&current, 0), Code::kSuccess);
  EXPECT_EQ(current, pool);
  const DevicePointer address = Allocate(a_);
  void* found = nullptr;
  EXPECT_EQ(PointerGetAttribute(&found, 17, address + 5), Code::kSuccess);
  EXPECT_EQ(found, pool);
  EXPECT_EQ(MemPoolDestroy(pool), Code::kSuccess);
  EXPECT_EQ(MemPoolDestroy(pool), Code::kInvalidValue);
  EXPECT_EQ(DeviceGetMemPool(&current, 0), Code::kSuccess);
  EXPECT_EQ(current, default_pool_);
  EXPECT_EQ(MemcpyDtoDAsync(address, address + 256, 256, a_), Code::kSuccess);
  EXPECT_EQ(MemFreeAsync(address, a_), Code::kSuccess);
  EXPECT_EQ(MemPoolDestroy(default_pool_), Code::kInvalidValue);
}

TEST_F(MemoryPoolTest, DestroyingContextReleasesItsMemory) {
  ContextHandle other = nullptr;
  ASSERT_EQ(CtxCreate(&other, 0, 0), Code::kSuccess);
  const PoolHandle pool = NewPool(0);
  DevicePointer address = 0;
  ASSERT_EQ(MemAllocFromPoolAsync(&address, kPoolBytes, pool, nullptr), Code::kSuccess);
  ASSERT_EQ(CtxDestroy(other), Code::kSuccess);
  EXPECT_EQ(Get(pool, kUsed), 0u);
  EXPECT_EQ(Get(pool, kReserved), 0u);
}

TEST_F(MemoryPoolTest, MemoryOfOtherCallsMayBeFreedInStreamOrder) {
  DevicePointer plain = 0;
  ASSERT_EQ(MemAlloc(&plain, kPoolBytes), Code::kSuccess);
  EXPECT_EQ(MemFreeAsync(plain, a_), Code::kSuccess);
  EXPECT_EQ(MemFree(plain), Code::kInvalidValue);
  EXPECT_EQ(MemFree(Allocate(a_)), Code::kSuccess);
  EXPECT_EQ(Get(default_pool_, kUsed), 0u);
}

TEST_F(MemoryPoolTest, OnlyItsDeviceAccessesAPool) {
  int access = -1;
  MemoryLocation own, other;
  other.id = 1;
  EXPECT_EQ(MemPoolGetAccess(&access, default_pool_, &own), Code::kSuccess);
  EXPECT_EQ(access, 3);
  EXPECT_EQ(MemPoolGetAccess(&access, default_pool_, &other), Code::kSuccess);
  EXPECT_EQ(access, 0);
  AccessDescription wanted;
  EXPECT_EQ(MemPoolSetAccess(default_pool_, &wanted, 1), Code::kSuccess);
  wanted.location = other;
  EXPECT_EQ(MemPoolSetAccess(default_pool_, &wanted, 1), Code::kInvalidDevice);
  PoolHandle pool = nullptr;
  PoolProperties shared = {.type = AllocationType::kPinned, .location = {}};
  shared.handle_types = 1;
  EXPECT_EQ(MemPoolCreate(&pool, &shared), Code::kNotSupported);
  shared.handle_types = 0;
  shared.location = other;
  EXPECT_EQ(MemPoolCreate(&pool, &shared), Code::kInvalidDevice);
}

}  // namespace
}  // namespace gpushared::drop_in
