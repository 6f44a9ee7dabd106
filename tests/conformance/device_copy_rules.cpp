// SPDX-License-Identifier: Apache-2.0
// Rules for copies and fills.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "tests/conformance/device_suite.h"

namespace gpushared::testing {
namespace {

using device::CopyWork;
using device::FillWork;
using Direction = device::CopyWork::Direction;

std::vector<std::byte> Pattern(std::uint64_t bytes, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> pattern(bytes);
  for (std::byte& byte : pattern) byte = static_cast<std::byte>(random());
  return pattern;
}

// Uses memcmp, because a loop over megabytes is slow in unoptimised tests.
bool AllAre(std::uint32_t value, std::span<const std::uint32_t> words) {
  return words.empty() ||
         (words.front() == value &&
          std::memcmp(words.data(), words.data() + 1, words.size_bytes() - sizeof value) == 0);
}

// A rectangle with odd dimensions, wider than a piece.
struct Shape {
  std::uint64_t width = device::kCopyPieceBytes + 777, height = 5;
  std::uint64_t wide_pitch = device::kCopyPieceBytes + 1111;
  std::uint64_t narrow_pitch = device::kCopyPieceBytes + 801;
  std::uint64_t WideBytes() const { return wide_pitch * height; }
  std::uint64_t NarrowBytes() const { return narrow_pitch * height; }
};

// Reference implementation of a 2-D copy.
void CopyRows(std::vector<std::byte>& to, std::uint64_t to_pitch,
              const std::vector<std::byte>& from, std::uint64_t from_pitch, const Shape& shape) {
  for (std::uint64_t row = 0; row < shape.height; ++row) {
    const auto begin = from.begin() + static_cast<std::ptrdiff_t>(row * from_pitch);
    std::copy(begin, begin + static_cast<std::ptrdiff_t>(shape.width),
              to.begin() + static_cast<std::ptrdiff_t>(row * to_pitch));
  }
}

TEST_P(DeviceConformance, CopyRoundTripKeepsEveryByteAtOddSizesAndOffsets) {
  const TestClient client = NewClient();
  for (const std::uint64_t bytes :
       {std::uint64_t{1}, std::uint64_t{3}, std::uint64_t{4097}, device::kCopyPieceBytes - 1,
        device::kCopyPieceBytes, device::kCopyPieceBytes + 1, 3 * device::kCopyPieceBytes + 13}) {
    for (const std::uint64_t offset : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{4093}}) {
      const std::vector<std::byte> pattern = Pattern(bytes, static_cast<std::uint32_t>(bytes));
      Write(client, offset, pattern);
      EXPECT_EQ(Read(client, offset, bytes), pattern) << bytes << " bytes at " << offset;
    }
  }
}

TEST_P(DeviceConformance, CopyOnTheDeviceMovesEveryByteAndNoOther) {
  const TestClient client = NewClient();
  const std::vector<std::byte> pattern = Pattern(2 * device::kCopyPieceBytes + 77, 1);
  Write(client, 5, pattern);
  CopyWork work;
  work.space = client.space.get();
  work.stream = 1;
  work.direction = Direction::kDeviceToDevice;
  work.source = client.At(5);
  work.destination = client.At(kMebibyte + 3);
  work.width_bytes = pattern.size();
  AwaitOk(Submit(work));
  EXPECT_EQ(Read(client, kMebibyte + 3, pattern.size()), pattern);
  EXPECT_EQ(Read(client, kMebibyte + 2, 1)[0], std::byte{0});
  EXPECT_EQ(Read(client, kMebibyte + 3 + pattern.size(), 1)[0], std::byte{0});
}

TEST_P(DeviceConformance, TwoDimensionalCopyToTheDeviceTouchesOnlyItsRectangle) {
  const TestClient client = NewClient();
  const Shape shape;
  std::vector<std::byte> host = Pattern(shape.NarrowBytes(), 2);
  CopyWork work;
  work.space = client.space.get();
  work.stream = 1;
  work.direction = Direction::kHostToDevice;
  work.host = host.data();
  work.destination = client.At(9);
  work.width_bytes = shape.width;
  work.height = shape.height;
  work.destination_pitch_bytes = shape.wide_pitch;
  work.source_pitch_bytes = shape.narrow_pitch;
  AwaitOk(Submit(work));
  std::vector<std::byte> expected(shape.WideBytes());
  CopyRows(expected, shape.wide_pitch, host, shape.narrow_pitch, shape);
  EXPECT_EQ(Read(client, 9, shape.WideBytes()), expected);
}

TEST_P(DeviceConformance, TwoDimensionalCopyToTheHostTouchesOnlyItsRectangle) {
  const TestClient client = NewClient();
  const Shape shape;
  const std::vector<std::byte> pattern = Pattern(shape.WideBytes(), 3);
  Write(client, 7, pattern);
  std::vector<std::byte> host(shape.NarrowBytes());
  CopyWork work;
  work.space = client.space.get();
  work.stream = 1;
  work.direction = Direction::kDeviceToHost;
  work.host = host.data();
  work.source = client.At(7);
  work.width_bytes = shape.width;
  work.height = shape.height;
  work.destination_pitch_bytes = shape.narrow_pitch;
  work.source_pitch_bytes = shape.wide_pitch;
  AwaitOk(Submit(work));
  std::vector<std::byte> expected(shape.NarrowBytes());
  CopyRows(expected, shape.narrow_pitch, pattern, shape.wide_pitch, shape);
  EXPECT_EQ(host, expected);
}

TEST_P(DeviceConformance, TwoDimensionalCopyOnTheDeviceTouchesOnlyItsRectangle) {
  const TestClient client = NewClient();
  const Shape shape;
  const std::vector<std::byte> pattern = Pattern(shape.WideBytes(), 4);
  Write(client, 0, pattern);
  CopyWork work;
  work.space = client.space.get();
  work.stream = 1;
  work.direction = Direction::kDeviceToDevice;
  work.source = client.At(0);
  work.destination = client.At(4 * kMebibyte);
  work.width_bytes = shape.width;
  work.height = shape.height;
  work.destination_pitch_bytes = shape.narrow_pitch;
  work.source_pitch_bytes = shape.wide_pitch;
  AwaitOk(Submit(work));
  std::vector<std::byte> expected(shape.NarrowBytes());
  CopyRows(expected, shape.narrow_pitch, pattern, shape.wide_pitch, shape);
  EXPECT_EQ(Read(client, 4 * kMebibyte, shape.NarrowBytes()), expected);
}

TEST_P(DeviceConformance, FillRepeatsTheLowBytesOfItsValue) {
  const TestClient client = NewClient();
  for (const std::uint32_t element : {1U, 2U, 4U}) {
    FillWork work;
    work.space = client.space.get();
    work.stream = 1;
    work.destination = client.At(4 * element);
    work.value = 0xa1b2c3d4;
    work.element_bytes = element;
    work.width_bytes = device::kCopyPieceBytes + 12 * element;
    AwaitOk(Submit(work));
    const std::vector<std::byte> read = Read(client, 4 * element - 1, work.width_bytes + 2);
    for (std::uint64_t i = 0; i < work.width_bytes; ++i) {
      ASSERT_EQ(read[i + 1], static_cast<std::byte>(work.value >> (i % element * 8)))
          << "byte " << i << " of elements of " << element;
    }
    EXPECT_EQ(read.back(), std::byte{0});
  }
}

TEST_P(DeviceConformance, TwoDimensionalFillLeavesTheGapsAlone) {
  const TestClient client = NewClient();
  FillWork work;
  work.space = client.space.get();
  work.stream = 1;
  work.destination = client.At(64);
  work.value = 0x0000beef;
  work.element_bytes = 2;
  work.width_bytes = 30;
  work.height = 100;
  work.pitch_bytes = 46;
  AwaitOk(Submit(work));
  const std::vector<std::byte> read = Read(client, 64, 46 * 100);
  for (std::uint64_t i = 0; i < read.size(); ++i) {
    const auto filled = i % 2 == 0 ? std::byte{0xef} : std::byte{0xbe};
    ASSERT_EQ(read[i], i % 46 < 30 ? filled : std::byte{0}) << "byte " << i;
  }
}

TEST_P(DeviceConformance, EmptyCopyCompletes) {
  const TestClient client = NewClient();
  CopyWork work;
  work.space = client.space.get();
  work.stream = 1;
  work.direction = Direction::kDeviceToDevice;
  work.source = client.At(0);
  work.destination = client.At(64);
  const device::Completion completion = Await(Submit(work));
  EXPECT_TRUE(completion.status.ok());
  EXPECT_FALSE(completion.stopped);
  EXPECT_EQ(completion.units_done, 0U);
}

TEST_P(DeviceConformance, StoppedFillHasFilledExactlyAPrefixAndResumes) {
  const TestClient client = NewClient();
  std::mt19937 random(7);
  constexpr std::uint64_t kBytes = 2 * kMebibyte + 12;
  const std::uint64_t units = device::CopyUnits(kBytes, 1);
  for (std::uint32_t round = 1; round <= 6; ++round) {
    FillWork work;
    work.space = client.space.get();
    work.stream = 1;
    work.destination = client.At(0);
    work.value = round;
    work.element_bytes = 4;
    work.width_bytes = kBytes;
    bool is_stopped = true;
    // The limit of the random delay before the stop doubles with each submission, so that a fill
    // that runs in parallel with this thread eventually completes. A device that works only while
    // it is polled gains nothing from longer delays.
    constexpr std::uint64_t kTurnsMax = 1'000'000;
    for (std::uint64_t turns = 2000; is_stopped; turns = std::min(2 * turns, kTurnsMax)) {
      const device::WorkId id = Submit(work);
      for (auto spin = random() % turns; spin > 0; --spin) {
        asm volatile("" ::: "memory");
      }
      gpu().RequestStop(id);
      const device::Completion completion = Await(id);
      is_stopped = completion.stopped;
      ASSERT_TRUE(completion.status.ok()) << completion.status.ToString();
      ASSERT_GE(completion.units_done, work.first_unit);
      ASSERT_EQ(completion.stopped, completion.units_done < units);
      const std::vector<std::uint32_t> words = ReadWords(client, 0, kBytes / 4);
      const std::uint64_t filled = std::min(completion.units_done * (device::kCopyPieceBytes / 4),
                                            std::uint64_t{words.size()});
      ASSERT_TRUE(AllAre(round, std::span(words).first(filled)));
      ASSERT_TRUE(AllAre(round - 1, std::span(words).subspan(filled)));
      work.first_unit = completion.units_done;
    }
  }
}

// The caller must check addresses, but its mistake must not damage another client's memory.
TEST_P(DeviceConformance, CopyOutsideMappedMemoryIsRejectedInItsCompletion) {
  const TestClient client = NewClient(16 * kMebibyte, 2 * kMebibyte);
  std::vector<std::byte> host(4096);
  for (const std::uint64_t address :
       {client.At(2 * kMebibyte - 1), client.At(2 * kMebibyte), client.At(0) - 4096,
        client.At(client.space->range_bytes() - 4096), std::uint64_t{0}, ~std::uint64_t{0}}) {
    CopyWork work;
    work.space = client.space.get();
    work.stream = 1;
    work.direction = Direction::kHostToDevice;
    work.host = host.data();
    work.destination = address;
    work.width_bytes = host.size();
    EXPECT_EQ(Await(Submit(work)).status.code(), StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace gpushared::testing
