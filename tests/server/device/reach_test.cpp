// SPDX-License-Identifier: Apache-2.0
#include "server/device/reach.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace gpushared::device {
namespace {

std::uint64_t Holds(const Reach& reach, std::uint64_t address) {
  return static_cast<std::uint64_t>(std::ranges::count_if(
      reach.pieces(),
      [address](const MemoryPiece& piece) { return address - piece.base < piece.bytes; }));
}

TEST(Reach, MergesAdjacentPieces) {
  Reach reach;
  reach.Add({.base = 300, .bytes = 100});
  reach.Add({.base = 100, .bytes = 100});
  ASSERT_EQ(reach.pieces().size(), 2u);
  reach.Add({.base = 150, .bytes = 150});
  ASSERT_EQ(reach.pieces().size(), 1u);
  EXPECT_EQ(reach.pieces()[0].base, 100u);
  EXPECT_EQ(reach.pieces()[0].bytes, 300u);
  reach.Add({.base = 1000, .bytes = 0});
  EXPECT_EQ(reach.pieces().size(), 1u) << "nothing is touched there";
}

TEST(Reach, MergesClosestPiecesWhenFull) {
  Reach reach;
  for (std::uint64_t each = 0; each < Reach::kPiecesMax; ++each) {
    reach.Add({.base = each * 1000, .bytes = 10});
  }
  reach.Add({.base = 3100, .bytes = 10});
  EXPECT_EQ(reach.pieces().size(), Reach::kPiecesMax);
  EXPECT_EQ(Holds(reach, 3050), 1u) << "between two that lie close";
  EXPECT_EQ(Holds(reach, 2050), 0u);
}

TEST(Reach, ContainsAllAdditionsInAnyOrder) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 200; ++round) {
    Reach reach;
    std::vector<MemoryPiece> added;
    for (int each = 0; each < 30; ++each) {
      added.push_back({.base = random() % 10'000, .bytes = 1 + random() % 100});
      reach.Add(added.back());
      ASSERT_LE(reach.pieces().size(), Reach::kPiecesMax);
      for (const MemoryPiece& piece : added) {
        ASSERT_EQ(Holds(reach, piece.base), 1u);
        ASSERT_EQ(Holds(reach, piece.base + piece.bytes - 1), 1u);
      }
    }
  }
}

TEST(Reach, CopyTouchesItsRowsAndGapsBetweenThem) {
  CopyWork work;
  work.direction = CopyWork::Direction::kDeviceToDevice;
  work.source = 1'000'000;
  work.destination = 100;
  work.width_bytes = 10;
  work.height = 3;
  work.source_pitch_bytes = 1000;
  work.destination_pitch_bytes = 20;
  const Reach both = GetReach(work);
  ASSERT_EQ(both.pieces().size(), 2u);
  EXPECT_EQ(both.pieces()[0].bytes, 50u);
  EXPECT_EQ(both.pieces()[1].base, 1'000'000u);
  EXPECT_EQ(both.pieces()[1].bytes, 2010u);
  work.direction = CopyWork::Direction::kHostToDevice;
  EXPECT_EQ(GetReach(work).pieces().size(), 1u);
  EXPECT_EQ(GetReach(work).pieces()[0].base, 100u);
  work.direction = CopyWork::Direction::kDeviceToHost;
  EXPECT_EQ(GetReach(work).pieces()[0].base, 1'000'000u);
  work.height = 0;
  EXPECT_TRUE(GetReach(work).pieces().empty());
}

TEST(Reach, AFillTouchesItsRows) {
  FillWork work;
  work.destination = 64;
  work.width_bytes = 4;
  work.pitch_bytes = 16;
  work.height = 2;
  ASSERT_EQ(GetReach(work).pieces().size(), 1u);
  EXPECT_EQ(GetReach(work).pieces()[0].bytes, 20u);
  EXPECT_FALSE(GetReach(work).is_everything());
  EXPECT_TRUE(Reach::Everything().is_everything());
}

}  // namespace
}  // namespace gpushared::device
