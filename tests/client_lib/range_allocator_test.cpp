// SPDX-License-Identifier: Apache-2.0
#include "client_lib/range_allocator.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace gpushared::client {
namespace {

constexpr std::uint64_t kRangeBase = 1u << 20;

TEST(RangeAllocator, EmptyRangeHasNothing) {
  RangeAllocator ranges(kRangeBase);
  EXPECT_FALSE(ranges.Allocate(1));
}

TEST(RangeAllocator, BlocksAreAlignedAndDisjoint) {
  RangeAllocator ranges(kRangeBase);
  ranges.Grow(4096);
  EXPECT_EQ(ranges.Allocate(1), kRangeBase);
  EXPECT_EQ(ranges.Allocate(257), kRangeBase + 256);
  EXPECT_EQ(ranges.Allocate(1), kRangeBase + 768);
  EXPECT_EQ(ranges.used_bytes(), 1024u);
}

TEST(RangeAllocator, ReleasedNeighboursBecomeOneBlock) {
  RangeAllocator ranges(kRangeBase);
  ranges.Grow(768);
  const auto first = ranges.Allocate(256), second = ranges.Allocate(256),
             third = ranges.Allocate(256);
  ASSERT_TRUE(first && second && third);
  EXPECT_TRUE(ranges.Release(*first));
  EXPECT_TRUE(ranges.Release(*third));
  EXPECT_FALSE(ranges.Allocate(512));
  EXPECT_TRUE(ranges.Release(*second));
  EXPECT_EQ(ranges.Allocate(768), *first);
}

TEST(RangeAllocator, GrowthJoinsTheFreeTail) {
  RangeAllocator ranges(kRangeBase);
  ranges.Grow(512);
  ASSERT_TRUE(ranges.Allocate(256));
  EXPECT_EQ(ranges.TailBytes(), 256u);
  ranges.Grow(512);
  EXPECT_EQ(ranges.Allocate(768), kRangeBase + 256);
}

TEST(RangeAllocator, TakesTheSmallestBlockThatFits) {
  RangeAllocator ranges(kRangeBase);
  ranges.Grow(4096);
  const auto large = ranges.Allocate(1024), fence1 = ranges.Allocate(256),
             small = ranges.Allocate(512), fence2 = ranges.Allocate(256);
  ASSERT_TRUE(large && fence1 && small && fence2);
  ranges.Release(*large);
  ranges.Release(*small);
  EXPECT_EQ(ranges.Allocate(512), *small);
}

TEST(RangeAllocator, LargeBlocksBeginOnAPage) {
  constexpr std::uint64_t kLarge = RangeAllocator::kLargeBytes;
  RangeAllocator ranges(kRangeBase);
  ranges.Grow(256 + kLarge);
  ASSERT_EQ(ranges.Allocate(256), kRangeBase);
  // The range would fit, but not at the required alignment.
  EXPECT_FALSE(ranges.Allocate(kLarge));
  EXPECT_EQ(ranges.GrowthFor(kLarge), 4096u - 256u);
  ranges.Grow(ranges.GrowthFor(kLarge));
  EXPECT_EQ(ranges.Allocate(kLarge), kRangeBase + 4096);
  // The space before the aligned range remains available.
  EXPECT_EQ(ranges.Allocate(4096 - 256), kRangeBase + 256);
  EXPECT_EQ(ranges.TailBytes(), 0u);
  EXPECT_TRUE(ranges.Release(kRangeBase + 4096));
  EXPECT_EQ(ranges.Allocate(kLarge - 256), kRangeBase + 4096);
}

TEST(RangeAllocator, UnknownAndTwiceReleasedAddressesAreRejected) {
  RangeAllocator ranges(kRangeBase);
  ranges.Grow(512);
  const auto block = ranges.Allocate(512);
  ASSERT_TRUE(block);
  EXPECT_FALSE(ranges.Release(*block + 256));
  EXPECT_TRUE(ranges.Release(*block));
  EXPECT_FALSE(ranges.Release(*block));
  EXPECT_EQ(ranges.used_bytes(), 0u);
}

TEST(RangeAllocator, SizesThatOverflowAreRejected) {
  RangeAllocator ranges(kRangeBase);
  ranges.Grow(512);
  EXPECT_FALSE(ranges.Allocate(std::numeric_limits<std::uint64_t>::max()));
  EXPECT_FALSE(ranges.Allocate(0));
}

// A random walk: blocks never overlap, and a single block remains when all are released.
TEST(RangeAllocator, NothingOverlapsAndNothingIsLost) {
  constexpr std::uint64_t kBytes = 1u << 20;
  RangeAllocator ranges(kRangeBase);
  ranges.Grow(kBytes);
  std::mt19937 random(7);
  std::vector<std::pair<std::uint64_t, std::uint64_t>> live;
  for (int step = 0; step < 5000; ++step) {
    if (random() % 2 == 0 && !live.empty()) {
      const std::size_t victim = random() % live.size();
      ASSERT_TRUE(ranges.Release(live[victim].first));
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(victim));
      continue;
    }
    const std::uint64_t bytes = 1 + random() % 20'000;
    const auto address = ranges.Allocate(bytes);
    if (!address) continue;
    ASSERT_EQ(*address % RangeAllocator::kAlignmentBytes, 0u);
    ASSERT_LE(*address + bytes, kRangeBase + kBytes);
    for (const auto& [other, other_bytes] : live) {
      ASSERT_TRUE(*address + bytes <= other || other + other_bytes <= *address);
    }
    live.emplace_back(*address, bytes);
  }
  for (const auto& [address, bytes] : live) ASSERT_TRUE(ranges.Release(address));
  EXPECT_EQ(ranges.Allocate(kBytes), kRangeBase);
}

}  // namespace
}  // namespace gpushared::client
