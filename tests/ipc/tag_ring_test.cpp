// SPDX-License-Identifier: Apache-2.0
#include "ipc/tag_ring.h"

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

namespace gpushared::ipc {
namespace {

PlainRecord Numbered(std::uint64_t number) {
  PlainRecord record;
  record.header.op = static_cast<std::uint8_t>(Op::kMark);
  record.header.sequence = number;
  return record;
}

std::vector<std::byte> Pattern(std::size_t bytes, unsigned seed) {
  std::vector<std::byte> tail(bytes);
  for (std::size_t i = 0; i < bytes; ++i) tail[i] = static_cast<std::byte>(seed + i * 7);
  return tail;
}

// A ring of N granules with both ends in one process.
template <std::size_t N>
struct Ring {
  std::array<Granule, N> granules{};
  std::atomic<std::uint64_t> taken{0};
  TagRingWriter writer{granules, taken};
  TagRingReader reader{granules, taken};
  std::unique_ptr<RecordCopy> copy = std::make_unique<RecordCopy>();
};

TEST(TagRing, EmptyRingHasNoRecord) {
  Ring<8> ring;
  EXPECT_FALSE(ring.reader.HasRecord());
  EXPECT_EQ(ring.reader.TryRead(*ring.copy), ReadResult::kEmpty);
}

TEST(TagRing, RecordsComeOutWholeAndInOrderOverManyLaps) {
  Ring<8> ring;
  for (std::uint64_t i = 1; i <= 1000; ++i) {
    const std::vector<std::byte> tail = Pattern(i % 300, static_cast<unsigned>(i));
    ASSERT_EQ(ring.writer.TryWrite(Numbered(i), tail), WriteResult::kWritten) << i;
    ASSERT_TRUE(ring.reader.HasRecord());
    ASSERT_EQ(ring.reader.TryRead(*ring.copy), ReadResult::kRecord) << i;
    EXPECT_EQ(ring.copy->As<PlainRecord>().header.sequence, i);
    EXPECT_TRUE(std::equal(tail.begin(), tail.end(), ring.copy->tail.begin())) << i;
    EXPECT_EQ(ring.copy->tail_bytes(), (tail.size() + 59) / 60 * 60);
  }
  EXPECT_EQ(ring.writer.position(), ring.reader.position());
}

TEST(TagRing, LargestRecordPasses) {
  Ring<128> ring;
  const std::vector<std::byte> tail = Pattern(kInlineParameterBytesMax, 3);
  ASSERT_EQ(ring.writer.TryWrite(Numbered(1), tail), WriteResult::kWritten);
  ASSERT_EQ(ring.reader.TryRead(*ring.copy), ReadResult::kRecord);
  EXPECT_TRUE(std::equal(tail.begin(), tail.end(), ring.copy->tail.begin()));
  EXPECT_EQ(ring.reader.position(), 1 + std::uint64_t{kContinuationsMax});
}

// A record that does not fit must leave no trace, because the reader would otherwise see half of
// it.
TEST(TagRing, FullRingRejectsRecordUnchanged) {
  Ring<8> ring;
  for (std::uint64_t i = 1; i <= 7; ++i) {
    ASSERT_EQ(ring.writer.TryWrite(Numbered(i)), WriteResult::kWritten);
  }
  EXPECT_FALSE(ring.writer.HasRoom(1));
  EXPECT_EQ(ring.writer.TryWrite(Numbered(8), Pattern(1, 0)), WriteResult::kFull);
  EXPECT_EQ(ring.writer.position(), 7u);
  EXPECT_TRUE(ring.writer.HasRoom(0));
  EXPECT_EQ(ring.writer.TryWrite(Numbered(8)), WriteResult::kWritten);
  EXPECT_EQ(ring.writer.TryWrite(Numbered(9)), WriteResult::kFull);
  for (std::uint64_t i = 1; i <= 8; ++i) {
    ASSERT_EQ(ring.reader.TryRead(*ring.copy), ReadResult::kRecord);
    EXPECT_EQ(ring.copy->As<PlainRecord>().header.sequence, i);
  }
}

TEST(TagRing, CreditComesBackInEighthsAndWhenTheRingRunsEmpty) {
  Ring<64> ring;
  for (std::uint64_t i = 1; i <= 11; ++i) (void)ring.writer.TryWrite(Numbered(i));
  for (int i = 0; i < 7; ++i) (void)ring.reader.TryRead(*ring.copy);
  EXPECT_EQ(ring.taken.load(), 0u);
  (void)ring.reader.TryRead(*ring.copy);
  EXPECT_EQ(ring.taken.load(), 8u);
  for (int i = 0; i < 3; ++i) (void)ring.reader.TryRead(*ring.copy);
  EXPECT_EQ(ring.taken.load(), 8u);
  EXPECT_EQ(ring.reader.TryRead(*ring.copy), ReadResult::kEmpty);
  EXPECT_EQ(ring.taken.load(), 11u);
}

// The tag has 31 bits of the position; a ring must continue to work when they wrap around.
TEST(TagRing, TagsOfNeighbouringLapsNeverCoincide) {
  for (const std::uint64_t position :
       {std::uint64_t{0}, (std::uint64_t{1} << 31) - 2, (std::uint64_t{1} << 31) - 1,
        std::uint64_t{1} << 31, (std::uint64_t{1} << 32) - 1, std::uint64_t{1} << 40}) {
    const std::uint32_t here = RingTag(position, false);
    EXPECT_NE(here, RingTag(position, true));
    for (std::uint64_t laps = 1; laps <= 3; ++laps) {
      for (const std::uint64_t size : {std::uint64_t{kCommandGranules}, std::uint64_t{64}}) {
        EXPECT_NE(here, RingTag(position + laps * size, false));
        EXPECT_NE(here, RingTag(position + laps * size, true));
      }
    }
  }
  EXPECT_NE(RingTag(0, false), 0u) << "fresh memory must not look like the first record";
}

// Payload that imitates headers must never be mistaken for one.
TEST(TagRing, ContinuationBytesNeverLookLikeAHeader) {
  Ring<8> ring;
  for (std::uint64_t lap = 0; lap < 20; ++lap) {
    std::vector<std::byte> tail(2 * kContinuationDataBytes);
    for (std::size_t at = 0; at + 4 <= tail.size(); at += 4) {
      const std::uint32_t forged = RingTag(ring.writer.position() + 3, false);
      std::memcpy(tail.data() + at, &forged, sizeof forged);
    }
    ASSERT_EQ(ring.writer.TryWrite(Numbered(lap + 1), tail), WriteResult::kWritten);
    ASSERT_EQ(ring.reader.TryRead(*ring.copy), ReadResult::kRecord);
    ASSERT_EQ(ring.reader.TryRead(*ring.copy), ReadResult::kEmpty);
  }
}

TEST(TagRing, CreditThatRanAheadIsRejected) {
  Ring<8> ring;
  for (std::uint64_t i = 1; i <= 8; ++i) (void)ring.writer.TryWrite(Numbered(i));
  ring.taken = 9;
  EXPECT_EQ(ring.writer.TryWrite(Numbered(9)), WriteResult::kPeerBroken);
  EXPECT_FALSE(ring.writer.HasRoom(0));
}

TEST(TagRing, CreditThatMovedBackwardsIsRejected) {
  Ring<8> ring;
  for (std::uint64_t i = 1; i <= 8; ++i) (void)ring.writer.TryWrite(Numbered(i));
  ring.taken = 8;
  for (std::uint64_t i = 9; i <= 16; ++i) {
    ASSERT_EQ(ring.writer.TryWrite(Numbered(i)), WriteResult::kWritten);
  }
  ring.taken = 7;
  EXPECT_EQ(ring.writer.TryWrite(Numbered(17)), WriteResult::kPeerBroken);
}

TEST(TagRing, AnyScribbledCreditIsPlausibleOrRejected) {
  for (const std::uint64_t lie : {~std::uint64_t{0}, std::uint64_t{1} << 63, std::uint64_t{9},
                                  std::uint64_t{1} << 32, std::uint64_t{1000}}) {
    Ring<8> ring;
    for (std::uint64_t i = 1; i <= 8; ++i) (void)ring.writer.TryWrite(Numbered(i));
    ring.taken = lie;
    EXPECT_EQ(ring.writer.TryWrite(Numbered(9)), WriteResult::kPeerBroken) << lie;
  }
}

TEST(TagRing, ScribbledHeaderTagOnlyStallsItsWriter) {
  Ring<8> ring;
  for (const std::uint32_t lie : {0u, 1u, 3u, 4u, 0xffffffffu, 0x80000002u}) {
    ring.granules[0].tag = lie;
    EXPECT_EQ(ring.reader.TryRead(*ring.copy), ReadResult::kEmpty) << lie;
    EXPECT_FALSE(ring.reader.HasRecord());
  }
}

// A hostile writer can tag as many continuations as the ring has granules; the copy holds 69.
TEST(TagRing, MoreContinuationsThanTheCopyHoldsAreRejected) {
  for (const std::uint16_t lie :
       {std::uint16_t{kContinuationsMax + 1}, std::uint16_t{100}, std::uint16_t{127},
        std::uint16_t{128}, std::uint16_t{0x8000}, std::uint16_t{0xffff}}) {
    Ring<128> ring;
    (void)ring.writer.TryWrite(Numbered(1));
    std::memcpy(ring.granules[0].data + offsetof(RecordHeader, continuations) - 4, &lie,
                sizeof lie);
    for (std::uint64_t at = 1; at < 128; ++at) ring.granules[at].tag = RingTag(at, true);
    EXPECT_EQ(ring.reader.TryRead(*ring.copy), ReadResult::kPeerBroken) << lie;
  }
}

TEST(TagRing, ContinuationsThatWereNotWrittenAreRejected) {
  Ring<8> ring;
  (void)ring.writer.TryWrite(Numbered(1), Pattern(100, 0));
  for (const std::uint32_t lie : {0u, RingTag(2, false), RingTag(1, true), RingTag(2 + 8, true)}) {
    ring.granules[2].tag = lie;
    EXPECT_EQ(ring.reader.TryRead(*ring.copy), ReadResult::kPeerBroken) << lie;
  }
  ring.granules[2].tag = RingTag(2, true);
  EXPECT_EQ(ring.reader.TryRead(*ring.copy), ReadResult::kRecord);
}

// A copied granule does not change when the writer changes the original.
TEST(TagRing, CopyIsIndependentOfTheRing) {
  Ring<8> ring;
  (void)ring.writer.TryWrite(Numbered(77), Pattern(60, 5));
  ASSERT_EQ(ring.reader.TryRead(*ring.copy), ReadResult::kRecord);
  for (Granule& granule : ring.granules) {
    granule.tag = 0xdeadbeef;
    std::fill(std::begin(granule.data), std::end(granule.data), std::byte{0xff});
  }
  EXPECT_EQ(ring.copy->As<PlainRecord>().header.sequence, 77u);
  EXPECT_EQ(ring.copy->tail[0], std::byte{5});
}

// Punching a hole into the memfd turns the ring into zeros; the reader must see "no new record".
TEST(TagRing, ZeroedRingIsAnEmptyRing) {
  Ring<8> ring;
  for (std::uint64_t i = 1; i <= 3; ++i) (void)ring.writer.TryWrite(Numbered(i));
  ASSERT_EQ(ring.reader.TryRead(*ring.copy), ReadResult::kRecord);
  for (Granule& granule : ring.granules) granule.tag = 0;
  EXPECT_EQ(ring.reader.TryRead(*ring.copy), ReadResult::kEmpty);
}

}  // namespace
}  // namespace gpushared::ipc
