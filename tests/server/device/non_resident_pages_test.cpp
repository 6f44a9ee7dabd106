// SPDX-License-Identifier: Apache-2.0
#include "server/device/non_resident_pages.h"

#include <cstdint>
#include <random>
#include <set>

#include <gtest/gtest.h>

#include "server/device/memory_budget.h"

namespace gpushared::device {
namespace {

constexpr std::uint64_t kAwayBase = std::uint64_t{1} << 40;
constexpr std::uint64_t kAwayMapped = 200 * kMapPageBytes;
constexpr MappedRange kAwayRange = {
    .base = kAwayBase, .range_bytes = std::uint64_t{4} << 30, .mapped_bytes = kAwayMapped};

TEST(NonResidentPages, CountsNonResidentBytesOfAnyRange) {
  std::mt19937_64 random(1);
  const auto draw = [&](std::uint64_t below) { return random() % below; };
  NonResidentPages away(kAwayMapped);
  std::set<std::uint64_t> model;
  for (int round = 0; round < 20'000; ++round) {
    const std::uint64_t step = draw(200);
    const bool goes = draw(2) == 0;
    away.Set(step, goes);
    goes ? (void)model.insert(step) : (void)model.erase(step);
    ASSERT_EQ(away.bytes(), model.size() * kMapPageBytes);
    const std::uint64_t begin = draw(kAwayMapped), bytes = 1 + draw(kAwayMapped);
    std::uint64_t expected = 0;
    for (const std::uint64_t each : model) {
      const std::uint64_t at = each * kMapPageBytes;
      expected += at < begin + bytes && begin < at + kMapPageBytes ? kMapPageBytes : 0;
    }
    ASSERT_EQ(away.BytesIn(kAwayRange, kAwayBase + begin, bytes), expected)
        << begin << " " << bytes;
  }
}

TEST(NonResidentPages, UnmappedMemoryIsNeverNonResident) {
  NonResidentPages away(kAwayMapped);
  away.Set(150, true);
  MappedRange smaller = kAwayRange;
  smaller.mapped_bytes = 150 * kMapPageBytes;
  EXPECT_EQ(away.BytesIn(smaller, kAwayBase, ~std::uint64_t{0}), 0U);
  EXPECT_EQ(away.BytesIn(kAwayRange, kAwayBase, ~std::uint64_t{0}), kMapPageBytes);
  EXPECT_EQ(away.BytesIn(kAwayRange, kAwayBase - 1, 1), 0U);
  EXPECT_EQ(away.BytesIn(kAwayRange, kAwayBase + kAwayMapped, 1), 0U);
  EXPECT_EQ(away.BytesIn(kAwayRange, kAwayBase + 150 * kMapPageBytes, 0), 0U);
}

TEST(NonResidentPages, AccessSetIsResidentWhenAllItsPagesAre) {
  NonResidentPages away(kAwayMapped);
  EXPECT_TRUE(away.IsResident(kAwayRange, Reach::Everything()));
  away.Set(64, true);
  EXPECT_FALSE(away.IsResident(kAwayRange, Reach::Everything()));
  Reach reach;
  reach.Add({.base = kAwayBase, .bytes = 64 * kMapPageBytes});
  EXPECT_TRUE(away.IsResident(kAwayRange, reach));
  reach.Add({.base = kAwayBase + 65 * kMapPageBytes - 1, .bytes = 1});
  EXPECT_FALSE(away.IsResident(kAwayRange, reach));
  away.Set(64, false);
  EXPECT_TRUE(away.IsResident(kAwayRange, reach));
}

}  // namespace
}  // namespace gpushared::device
