// SPDX-License-Identifier: Apache-2.0
// malloc and free in kernels: allocations never overlap, all memory is returned, and only allocated
// memory can be freed.
#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include <gmock/gmock.h>

#include "tests/executor/kernel_file.h"

namespace gpushared::testing {
namespace {

using executor::DeviceHeap;
using Kind = executor::Fault::Kind;
using ::testing::HasSubstr;

constexpr u64 kBase = u64{1} << 32;

// Compares with a plain map of the live allocations.
TEST(DeviceHeap, AllocationsNeverOverlapAndAllMemoryReturns) {
  constexpr u64 kBytes = u64{1} << 20;
  DeviceHeap heap(kBase, kBytes);
  std::mt19937 random(7);
  std::map<u64, u64> out;  // Sizes of live allocations, by address.
  const auto check = [&](u64 at, u64 bytes) {
    EXPECT_EQ(at % DeviceHeap::kGranule, 0u);
    EXPECT_GE(at, kBase);
    EXPECT_LE(at + bytes, kBase + kBytes);
    const auto behind = out.lower_bound(at);
    if (behind != out.end()) {
      EXPECT_LE(at + bytes, behind->first);
    }
    if (behind != out.begin()) {
      EXPECT_LE(std::prev(behind)->first + std::prev(behind)->second, at);
    }
  };
  for (int i = 0; i < 100'000 && !HasFailure(); ++i) {
    if (random() % 2 == 0 || out.empty()) {
      const u64 bytes = random() % (random() % 100 == 0 ? 200'000 : 600);
      const std::optional<u64> at = heap.Allocate(bytes);
      if (!at) continue;
      check(*at, bytes);
      out[*at] = std::max<u64>(bytes, 1);
    } else {
      auto chosen = out.lower_bound(kBase + random() % kBytes);
      if (chosen == out.end()) chosen = out.begin();
      EXPECT_TRUE(heap.Free(chosen->first));
      EXPECT_FALSE(heap.Free(chosen->first));
      out.erase(chosen);
    }
  }
  for (const auto& [at, bytes] : out) EXPECT_TRUE(heap.Free(at));
  EXPECT_EQ(heap.Allocate(kBytes), kBase);
}

TEST(DeviceHeap, ReturnsNullWhenFull) {
  DeviceHeap heap(kBase, 1024);
  EXPECT_FALSE(heap.Allocate(1025));
  EXPECT_FALSE(heap.Allocate(~u64{0}));
  std::set<u64> given;
  for (int i = 0; i < 16; ++i) {
    const std::optional<u64> at = heap.Allocate(i == 0 ? 0 : 64);
    ASSERT_TRUE(at);
    EXPECT_TRUE(given.insert(*at).second);
  }
  EXPECT_FALSE(heap.Allocate(0));
  EXPECT_TRUE(heap.Free(*given.begin()));
  EXPECT_EQ(heap.Allocate(1), *given.begin());
}

TEST(DeviceHeap, FreesOnlyItsAllocations) {
  DeviceHeap heap(kBase, 4096);
  const u64 first = heap.Allocate(64).value(), large = heap.Allocate(1024).value();
  for (const u64 wrong : {u64{0}, first + 1, large + 64, large + 960, first - 64, large + 1024,
                          kBase + 4096, kBase + 8192, ~u64{0}}) {
    EXPECT_FALSE(heap.Free(wrong)) << wrong - kBase;
  }
  EXPECT_TRUE(heap.Free(large));
  EXPECT_FALSE(heap.Free(large));
  EXPECT_TRUE(heap.Free(first));
  EXPECT_FALSE(heap.Free(first));
}

TEST(DeviceHeap, ServesSeveralThreadsAtOnce) {
  DeviceHeap heap(kBase, u64{1} << 20);
  std::vector<std::thread> threads;
  std::vector<std::vector<u64>> given(4);
  for (auto& mine : given) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20'000; ++i) {
        if (const auto at = heap.Allocate(static_cast<u64>(i % 300))) mine.push_back(*at);
        if (mine.size() > 100) {
          EXPECT_TRUE(heap.Free(mine.front()));
          mine.erase(mine.begin());
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::set<u64> all;
  for (const auto& mine : given) {
    for (const u64 at : mine) EXPECT_TRUE(all.insert(at).second);
  }
}

class Heap : public KernelFile {
 protected:
  Heap() : KernelFile("heap") {}
};

// Returns the pointers that the kernel `allocate` gave for this size, one per thread.
std::vector<u64> Allocate(Launcher& launcher, u64 bytes, u32 threads) {
  auto* out = launcher.Allocate<u64>(threads);
  EXPECT_FALSE(launcher.Run("allocate", {1, 1, 1}, {threads, 1, 1}, bytes, out).fault);
  return {out, out + threads};
}

TEST_P(Heap, NextKernelFreesTheListOfThePrevious) {
  DeviceHeap& heap = launcher.MakeHeap(u64{1} << 20);
  auto* list = launcher.Allocate<u64>(1);
  auto* seen = launcher.Allocate<unsigned>(1000);
  auto* failed = launcher.Allocate<unsigned>(1);
  for (unsigned round = 1; round <= 3; ++round) {
    Run("push", {10, 1, 1}, {100, 1, 1}, list, failed);
    EXPECT_NE(*list, 0u);
    Run("drain", {1, 1, 1}, {1, 1, 1}, list, seen);
    EXPECT_EQ(*failed, 0u);
    for (unsigned i = 0; i < 1000; ++i) ASSERT_EQ(seen[i], round) << i;
  }
  EXPECT_TRUE(heap.Allocate(heap.bytes()));
}

TEST_P(Heap, LateThreadsGetNullFromAFullHeap) {
  launcher.MakeHeap(100 * DeviceHeap::kGranule);
  auto* list = launcher.Allocate<u64>(1);
  auto* failed = launcher.Allocate<unsigned>(1);
  Run("push", {2, 1, 1}, {64, 1, 1}, list, failed);
  EXPECT_EQ(*failed, 28u);
}

TEST_P(Heap, MallocReturnsNullWithoutAHeap) {
  for (const u64 at : Allocate(launcher, 16, 32)) EXPECT_EQ(at, 0u);
}

TEST_P(Heap, AllocationsKeepTheirContents) {
  DeviceHeap& heap = launcher.MakeHeap(u64{1} << 20);
  auto* wrong = launcher.Allocate<unsigned>(1);
  Run("churn", {4, 1, 1}, {64, 1, 1}, 60u, wrong);
  EXPECT_EQ(*wrong, 0u);
  EXPECT_TRUE(heap.Allocate(heap.bytes()));
}

TEST_P(Heap, ObjectsWithVirtualDestructors) {
  DeviceHeap& heap = launcher.MakeHeap(u64{1} << 16);
  auto* legs = launcher.Allocate<unsigned>(64);
  auto* gone = launcher.Allocate<unsigned>(1);
  Run("objects", {1, 1, 1}, {64, 1, 1}, legs, gone);
  for (unsigned i = 0; i < 64; ++i) EXPECT_EQ(legs[i], i % 3 == 0 ? 2 : 8 + i);
  EXPECT_EQ(*gone, 22u);
  EXPECT_TRUE(heap.Allocate(heap.bytes()));
}

TEST_P(Heap, FreeOfUnallocatedMemoryIsAFault) {
  launcher.MakeHeap(u64{1} << 16);
  const std::vector<u64> given = Allocate(launcher, 256, 4);
  auto* what = launcher.Allocate<u64>(2);
  auto* reached = launcher.Allocate<unsigned>(1);
  for (const u64 wrong : {given[0] + 16, given[0] + 64, launcher.base(), u64{8}, ~u64{0},
                          reinterpret_cast<u64>(reached)}) {
    what[0] = 0, what[1] = wrong;
    const executor::Fault fault = Faulting("release", {1, 1, 1}, {2, 1, 1}, what, reached);
    EXPECT_EQ(fault.kind, Kind::kFreedAddress) << fault.message;
    EXPECT_EQ(fault.address, wrong);
    EXPECT_EQ(fault.thread.x, 1u);
    EXPECT_THAT(fault.message, HasSubstr("kernel 'release'"));
    EXPECT_THAT(fault.message, HasSubstr("was not returned by malloc, or was already freed"));
  }
  what[0] = what[1] = given[1];
  EXPECT_EQ(Faulting("release", {1, 1, 1}, {2, 1, 1}, what, reached).kind, Kind::kFreedAddress);
  EXPECT_EQ(*reached, 0u);
  what[0] = given[2], what[1] = given[3];
  Run("release", {1, 1, 1}, {2, 1, 1}, what, reached);
  EXPECT_EQ(*reached, 1u);
}

GPUSHARED_INSTANTIATE_FLAVOURS(Heap);

}  // namespace
}  // namespace gpushared::testing
