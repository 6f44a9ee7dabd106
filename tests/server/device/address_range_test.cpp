// SPDX-License-Identifier: Apache-2.0
#include "server/device/cpu/address_range.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/move_steps.h"

namespace gpushared::device {
namespace {

constexpr std::uint64_t kTotal = std::uint64_t{64} << 20;

std::byte* Pointer(std::uint64_t address) {
  return reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(address));
}

std::unique_ptr<AddressRange> Reserve(std::uint64_t quota,
                                      const std::shared_ptr<MemoryBudget>& budget) {
  auto range = AddressRange::Reserve(quota, budget);
  EXPECT_TRUE(range.ok()) << range.status().ToString();
  return std::move(*range);
}

TEST(MemoryBudget, NeverGivesMoreThanItHas) {
  MemoryBudget budget(100);
  EXPECT_TRUE(budget.TryTake(60));
  EXPECT_FALSE(budget.TryTake(41));
  EXPECT_FALSE(budget.TryTake(~std::uint64_t{0}));
  EXPECT_TRUE(budget.TryTake(40));
  EXPECT_EQ(budget.free_bytes(), 0U);
  budget.Return(100);
  EXPECT_EQ(budget.free_bytes(), 100U);
}

TEST(AddressRange, ReservedMemoryIsAvailableOnlyToPrivilegedClients) {
  constexpr std::uint64_t kMiB = 1 << 20;
  const auto budget = std::make_shared<MemoryBudget>(64 * kMiB);
  const auto ordinary = AddressRange::Reserve(64 * kMiB, budget, 16 * kMiB).value();
  const auto other = AddressRange::Reserve(64 * kMiB, budget).value();
  const Status rejected = ordinary->Resize(50 * kMiB).status();
  EXPECT_EQ(rejected.code(), StatusCode::kOutOfMemory);
  EXPECT_THAT(rejected.message(),
              ::testing::HasSubstr("64 MiB are free, and 16 MiB must remain free for"));
  EXPECT_TRUE(ordinary->Resize(48 * kMiB).ok());
  EXPECT_FALSE(ordinary->TakeModuleBlock(1).ok());
  EXPECT_TRUE(other->Resize(16 * kMiB).ok());
  EXPECT_TRUE(ordinary->Resize(2 * kMiB).ok()) << "less is always possible";
  EXPECT_TRUE(ordinary->Resize(48 * kMiB - 16 * kMiB).ok());
}

TEST(AddressRange, RangeGrowsWithTheQuota) {
  const auto budget = std::make_shared<MemoryBudget>(std::uint64_t{6} << 30);
  EXPECT_EQ(Reserve(kTotal, budget)->bytes(), std::uint64_t{4} << 30);
  // The module area and four times the quota for chunks must fit next to the range.
  EXPECT_EQ(Reserve(std::uint64_t{4} << 30, budget)->bytes(), std::uint64_t{32} << 30);
  EXPECT_EQ(Reserve(~std::uint64_t{0}, budget)->bytes(), std::uint64_t{32} << 30);
}

// Clients can see this address. If it were next to this process's libraries, it would reveal where
// those are mapped.
TEST(AddressRange, IsFarFromKernelsMappings) {
  const auto budget = std::make_shared<MemoryBudget>(kTotal);
  void* const beside = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(beside, MAP_FAILED);
  const auto of_kernel = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(beside));
  std::vector<std::unique_ptr<AddressRange>> ranges;
  std::vector<std::uint64_t> distances;
  for (int i = 0; i < 4; ++i) {
    ranges.push_back(Reserve(kTotal, budget));
    const std::uint64_t base = ranges.back()->base();
    EXPECT_EQ(base % ranges.back()->bytes(), 0U);
    EXPECT_GT(std::max(base, of_kernel) - std::min(base, of_kernel), std::uint64_t{1} << 40);
    for (std::size_t other = 0; other + 1 < ranges.size(); ++other) {
      distances.push_back(base - ranges[other]->base());
    }
  }
  std::ranges::sort(distances);
  EXPECT_EQ(std::ranges::adjacent_find(distances), distances.end())
      << "one of them tells nothing of the others";
  munmap(beside, 4096);
}

// The address space is limited even on a machine with much memory.
TEST(AddressRange, LimitsSpareAddresses) {
  constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;
  EXPECT_EQ(SpareAddresses(2 * kGiB), 8 * kGiB);
  EXPECT_EQ(SpareAddresses(1024 * kGiB), 256 * kGiB);
  EXPECT_EQ(SpareAddresses(~std::uint64_t{0}), 256 * kGiB);
}

TEST(AddressRange, FreedChunksUseNoMemory) {
  const auto budget = std::make_shared<MemoryBudget>(kTotal);
  const auto range = Reserve(kTotal, budget);
  const std::uint64_t at = range->mapping_area().base;
  EXPECT_EQ(at, range->base() + kTotal);
  EXPECT_EQ(at + range->mapping_area().bytes, range->module_base());
  for (int round = 0; round < 3; ++round) {
    const auto chunk = range->TakeChunk(kTotal);
    ASSERT_TRUE(chunk.ok()) << chunk.status().ToString();
    EXPECT_FALSE(range->TakeChunk(kMapPageBytes).ok());
    ASSERT_TRUE(range->MapChunk(*chunk, at).ok());
    EXPECT_EQ(*Pointer(at + kTotal - 1), std::byte{0});
    *Pointer(at + kTotal - 1) = std::byte{7};
    EXPECT_TRUE(range->pieces().Contains(at, kTotal));
    range->HideMapping(at);
    EXPECT_FALSE(range->pieces().Contains(at, 1));
    ASSERT_TRUE(range->Unmap(at, kTotal).ok());
    range->ReturnChunk(*chunk);
    EXPECT_EQ(budget->free_bytes(), kTotal);
  }
}

TEST(AddressRange, PlacesModuleBlocksAtTheTopWithoutOverlap) {
  const auto budget = std::make_shared<MemoryBudget>(kTotal);
  const auto range = Reserve(kTotal, budget);
  const auto a = range->TakeModuleBlock(100).value();
  const auto b = range->TakeModuleBlock(5000).value();
  EXPECT_EQ(a.address, range->module_base());
  EXPECT_EQ(a.bytes, kPageBytes);
  EXPECT_EQ(b.address, a.address + a.bytes);
  EXPECT_EQ(b.bytes, 2 * kPageBytes);
  EXPECT_EQ(budget->free_bytes(), kTotal - 3 * kPageBytes);
  EXPECT_FALSE(range->IsMapped(a.address, 1));
}

TEST(AddressRange, ReusesFreedModuleBlockFilledWithZeros) {
  const auto budget = std::make_shared<MemoryBudget>(kTotal);
  const auto range = Reserve(kTotal, budget);
  const auto a = range->TakeModuleBlock(kPageBytes).value();
  const auto b = range->TakeModuleBlock(kPageBytes).value();
  std::memset(Pointer(a.address), 1, a.bytes);
  range->ReturnModuleBlock(a);
  // Simulates a kernel that still has the address and writes once more.
  std::memset(Pointer(a.address), 2, a.bytes);
  const auto wide = range->TakeModuleBlock(2 * kPageBytes).value();
  EXPECT_GT(wide.address, b.address) << "two pages do not fit into the hole of one";
  const auto again = range->TakeModuleBlock(1).value();
  EXPECT_EQ(again.address, a.address);
  EXPECT_EQ(*Pointer(again.address), std::byte{0});
}

TEST(AddressRange, ModuleBlockBeyondAreaQuotaOrBudgetIsRejected) {
  const auto budget = std::make_shared<MemoryBudget>(std::uint64_t{2} << 30);
  const auto range = Reserve(std::uint64_t{1} << 30, budget);
  for (const std::uint64_t bytes : {kModuleAreaBytes + 1, ~std::uint64_t{0}}) {
    const Status status = range->TakeModuleBlock(bytes).status();
    EXPECT_EQ(status.code(), StatusCode::kOutOfMemory);
    EXPECT_NE(status.message().find("256 MiB together"), std::string::npos) << status.message();
  }
  const auto small = Reserve(kPageBytes, budget);
  EXPECT_EQ(small->TakeModuleBlock(kPageBytes + 1).status().code(), StatusCode::kOutOfMemory);
  EXPECT_TRUE(small->TakeModuleBlock(kPageBytes).ok());
  EXPECT_EQ(budget->free_bytes(), (std::uint64_t{2} << 30) - kPageBytes);
}

TEST(AddressRange, DestructionReturnsAllMemory) {
  const auto budget = std::make_shared<MemoryBudget>(kTotal);
  {
    const auto range = Reserve(kTotal, budget);
    ASSERT_TRUE(range->Resize(kTotal / 2).ok());
    ASSERT_TRUE(range->TakeModuleBlock(12345).ok());
    EXPECT_LT(budget->free_bytes(), kTotal);
  }
  EXPECT_EQ(budget->free_bytes(), kTotal);
}

// An invalid kernel may still write to memory that its client has returned. The process survives,
// and fresh memory is still zero.
TEST(AddressRange, WriteToReturnedMemoryNeitherCrashesNorReappears) {
  const auto budget = std::make_shared<MemoryBudget>(kTotal);
  const auto range = Reserve(kTotal, budget);
  ASSERT_TRUE(range->Resize(4 * kMapPageBytes).ok());
  ASSERT_TRUE(range->Resize(kMapPageBytes).ok());
  std::memset(Pointer(range->base() + 2 * kMapPageBytes), 9, kMapPageBytes);
  ASSERT_TRUE(range->Resize(4 * kMapPageBytes).ok());
  EXPECT_EQ(*Pointer(range->base() + 2 * kMapPageBytes), std::byte{0});
}

TEST(AddressRange, ReturnsMemoryToMachineAtOnce) {
  const auto budget = std::make_shared<MemoryBudget>(kTotal);
  const auto range = Reserve(kTotal, budget);
  const auto resident = [](std::uint64_t address) {
    unsigned char page = 0;
    EXPECT_EQ(mincore(Pointer(address), kPageBytes, &page), 0);
    return (page & 1) != 0;
  };
  ASSERT_TRUE(range->Resize(kMapPageBytes).ok());
  const auto block = range->TakeModuleBlock(kPageBytes).value();
  // Some sandboxes report every page as resident, so the test cannot observe anything.
  if (resident(range->base())) GTEST_SKIP() << "this system does not tell what is resident";
  *Pointer(range->base()) = std::byte{1};
  *Pointer(block.address) = std::byte{1};
  EXPECT_TRUE(resident(range->base()));
  EXPECT_TRUE(resident(block.address));
  ASSERT_TRUE(range->Resize(0).ok());
  range->ReturnModuleBlock(block);
  EXPECT_FALSE(resident(range->base()));
  EXPECT_FALSE(resident(block.address));
}

TEST(AddressRange, IsMappedChecksEveryBoundary) {
  const auto budget = std::make_shared<MemoryBudget>(kTotal);
  const auto range = Reserve(kTotal, budget);
  ASSERT_TRUE(range->Resize(kMapPageBytes).ok());
  const std::uint64_t base = range->base();
  EXPECT_TRUE(range->IsMapped(base, kMapPageBytes));
  EXPECT_TRUE(range->IsMapped(base + kMapPageBytes, 0));
  EXPECT_FALSE(range->IsMapped(base, kMapPageBytes + 1));
  EXPECT_FALSE(range->IsMapped(base - 1, 1));
  EXPECT_FALSE(range->IsMapped(base - 1, 2));
  EXPECT_FALSE(range->IsMapped(base + 1, ~std::uint64_t{0}));
  EXPECT_FALSE(range->IsMapped(base + kMapPageBytes, 1));
}

// Tenants' data must appear neither in a core dump (flag dd) nor in a child process (flag dc).
TEST(AddressRange, MemoryIsKeptOutOfCoreDumpsAndChildren) {
  const auto budget = std::make_shared<MemoryBudget>(kTotal);
  const auto range = Reserve(kTotal, budget);
  ASSERT_TRUE(range->Resize(kMapPageBytes).ok());
  std::ifstream maps("/proc/self/smaps");
  char start[32];
  std::snprintf(start, sizeof(start), "%lx-", static_cast<unsigned long>(range->base()));
  bool is_ours = false;
  bool was_found = false;
  for (std::string line; std::getline(maps, line);) {
    if (line.starts_with(start)) is_ours = true;
    if (!is_ours || !line.starts_with("VmFlags:")) continue;
    EXPECT_NE(line.find(" dd"), std::string::npos) << line;
    EXPECT_NE(line.find(" dc"), std::string::npos) << line;
    was_found = true;
    break;
  }
  // gVisor and some containers show no flags, so the test has nothing to compare.
  if (!was_found) GTEST_SKIP() << "this system shows no mapping flags";
}

// ---- swappable memory

std::shared_ptr<SwapStore> Store(std::uint64_t bytes) {
  auto store = SwapStore::Create({.bytes = bytes, .directory = ""});
  EXPECT_TRUE(store.ok()) << store.status().ToString();
  return *std::move(store);
}

// Fills each page with the page's number.
void Mark(const AddressRange& range, std::uint64_t steps) {
  for (std::uint64_t step = 0; step < steps; ++step) {
    std::memset(Pointer(range.base() + step * kMapPageBytes), static_cast<int>(step + 1),
                kMapPageBytes);
  }
}
void ExpectMarks(const AddressRange& range, std::uint64_t steps) {
  for (std::uint64_t step = 0; step < steps; ++step) {
    const std::span bytes(Pointer(range.base() + step * kMapPageBytes), kMapPageBytes);
    EXPECT_THAT(bytes.front(), std::byte(step + 1));
    EXPECT_THAT(bytes.back(), std::byte(step + 1));
  }
}

TEST(AddressRange, SwapsPagesOutAndInKeepingAddressesAndBytes) {
  const auto budget = std::make_shared<MemoryBudget>(kTotal);
  const auto store = Store(kTotal);
  const auto range = AddressRange::Reserve(kTotal, budget, 0, store).value();
  ASSERT_TRUE(store->Reserve(8 * kMapPageBytes).ok());
  ASSERT_TRUE(range->Resize(8 * kMapPageBytes).ok());
  Mark(*range, 8);
  ASSERT_TRUE(testing::SwapOut(*range, 5 * kMapPageBytes).ok());
  EXPECT_FALSE(range->is_whole());
  EXPECT_EQ(range->use().resident_bytes, 3 * kMapPageBytes);
  EXPECT_EQ(range->use().mapped_bytes, 8 * kMapPageBytes);
  EXPECT_EQ(budget->free_bytes(), kTotal - 3 * kMapPageBytes);
  EXPECT_EQ(store->used_bytes(), 5 * kMapPageBytes);
  // The pages have been returned to the machine, so the range reads as zero.
  EXPECT_EQ(*Pointer(range->base() + 3 * kMapPageBytes), std::byte{0});
  ASSERT_TRUE(testing::SwapIn(*range, 2 * kMapPageBytes).ok());
  ExpectMarks(*range, 5);
  ASSERT_TRUE(testing::SwapIn(*range, kTotal).ok());
  EXPECT_TRUE(range->is_whole());
  ExpectMarks(*range, 8);
  EXPECT_EQ(store->used_bytes(), 0U);
  EXPECT_EQ(store->medium().populated_bytes(), 0U) << "bytes are left in the store";
  EXPECT_EQ(budget->free_bytes(), kTotal - 8 * kMapPageBytes);
}

// The first access to a page cannot be interrupted, and other clients may have to wait until work
// on swappable memory stops. Small pages keep this wait short.
TEST(AddressRange, FirstTouchOfSwappableMemoryMapsOneSmallPage) {
  std::string huge_pages;
  std::getline(std::ifstream("/sys/kernel/mm/transparent_hugepage/enabled"), huge_pages);
  if (huge_pages.empty() || huge_pages.find("[never]") != std::string::npos) {
    GTEST_SKIP() << "this machine has no huge pages";
  }
  const auto budget = std::make_shared<MemoryBudget>(kTotal);
  const auto range = AddressRange::Reserve(kTotal, budget, 0, Store(kTotal)).value();
  ASSERT_TRUE(range->Resize(2 * kMapPageBytes).ok());
  *Pointer(range->base() + kMapPageBytes) = std::byte{1};
  std::vector<unsigned char> pages(2 * kMapPageBytes / kPageBytes);
  ASSERT_EQ(mincore(Pointer(range->base()), 2 * kMapPageBytes, pages.data()), 0);
  EXPECT_EQ(std::ranges::count_if(pages, [](auto page) { return (page & 1) != 0; }), 1)
      << "they come in huge pages";
}

TEST(AddressRange, SwappedOutMemoryCountsAgainstQuota) {
  const auto budget = std::make_shared<MemoryBudget>(kTotal);
  const auto store = Store(kTotal);
  ASSERT_TRUE(store->Reserve(8 * kMapPageBytes).ok());
  {
    const auto range = AddressRange::Reserve(8 * kMapPageBytes, budget, 0, store).value();
    ASSERT_TRUE(range->Resize(8 * kMapPageBytes).ok());
    ASSERT_TRUE(testing::SwapOut(*range, 8 * kMapPageBytes).ok());
    EXPECT_EQ(budget->free_bytes(), kTotal);
    EXPECT_FALSE(range->TakeModuleBlock(1).ok()) << "the quota is used up";
    // Shrinking returns the last pages first, including swapped-out ones.
    EXPECT_EQ(range->Resize(6 * kMapPageBytes).value(), 6 * kMapPageBytes);
    EXPECT_EQ(store->used_bytes(), 6 * kMapPageBytes);
    EXPECT_TRUE(range->TakeModuleBlock(1).ok());
    EXPECT_EQ(range->use().pinned_bytes, kPageBytes);
    // The range can grow up to its quota while some of its pages are swapped out.
    EXPECT_EQ(range->Resize(7 * kMapPageBytes).value(), 7 * kMapPageBytes);
    EXPECT_EQ(store->used_bytes(), 6 * kMapPageBytes);
    EXPECT_FALSE(range->Resize(8 * kMapPageBytes).ok()) << "the module has a page of its quota";
  }
  EXPECT_EQ(budget->free_bytes(), kTotal);
  EXPECT_EQ(store->used_bytes(), 0U);
  EXPECT_EQ(store->medium().populated_bytes(), 0U);
  store->GiveBack(8 * kMapPageBytes);
  EXPECT_EQ(store->reserved_bytes(), 0U);
}

TEST(AddressRange, SwapsInAsMuchAsFits) {
  const auto budget = std::make_shared<MemoryBudget>(8 * kMapPageBytes);
  const auto store = Store(kTotal);
  ASSERT_TRUE(store->Reserve(8 * kMapPageBytes).ok());
  const auto range = AddressRange::Reserve(8 * kMapPageBytes, budget, 0, store).value();
  ASSERT_TRUE(range->Resize(8 * kMapPageBytes).ok());
  Mark(*range, 8);
  ASSERT_TRUE(testing::SwapOut(*range, 6 * kMapPageBytes).ok());
  const auto other = Reserve(kTotal, budget);
  ASSERT_TRUE(other->Resize(4 * kMapPageBytes).ok());
  EXPECT_EQ(testing::SwapIn(*range, 6 * kMapPageBytes).code(), StatusCode::kOutOfMemory);
  EXPECT_EQ(range->use().resident_bytes, 4 * kMapPageBytes);
  ASSERT_TRUE(other->Resize(0).ok());
  ASSERT_TRUE(testing::SwapIn(*range, 6 * kMapPageBytes).ok());
  ExpectMarks(*range, 8);
}

}  // namespace
}  // namespace gpushared::device
