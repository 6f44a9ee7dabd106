// SPDX-License-Identifier: Apache-2.0
#include "client_lib/staging_buffer_set.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "ipc/shared_segment.h"

namespace gpushared::client {
namespace {

class StagingBufferSetTest : public ::testing::Test {
 protected:
  StagingBufferSet Make(std::size_t staging_buffers_max) {
    return StagingBufferSet(
        progress_, {.add = [this, staging_buffers_max](
                               std::uint64_t bytes) -> Result<std::unique_ptr<StagingBuffer>> {
                      if (added_.size() == staging_buffers_max || bytes > bytes_left_) {
                        ++rejections_;
                        return Status(rejection_, "no more");
                      }
                      bytes_left_ -= bytes;
                      auto segment = ipc::SharedSegment::Create({.bytes = bytes});
                      if (!segment.ok()) return segment.status();
                      added_.push_back(bytes);
                      return std::make_unique<StagingBuffer>(
                          static_cast<std::uint32_t>(added_.size() + 9), std::move(*segment));
                    },
                    .wait =
                        [this](const Fence& fence) {
                          ++waits_;
                          for (const StreamPoint point : fence)
                            timelines_[point.stream] = point.sequence;
                          return Status::Ok();
                        }});
  }

  std::array<std::atomic<std::uint64_t>, ipc::kStreamsMax> timelines_ = {};
  Progress progress_{timelines_};
  std::vector<std::uint64_t> added_;
  std::uint64_t bytes_left_ = std::uint64_t{1} << 40;
  StatusCode rejection_ = StatusCode::kOutOfMemory;
  int rejections_ = 0;
  int waits_ = 0;
};

TEST_F(StagingBufferSetTest, BlocksAreAlignedWritableAndFoundByAddress) {
  StagingBufferSet staging_buffers = Make(1);
  const auto block = staging_buffers.Allocate(1000);
  ASSERT_TRUE(block.ok());
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block->data) % StagingBuffer::kAlignmentBytes, 0u);
  EXPECT_EQ(block->place.offset % StagingBuffer::kAlignmentBytes, 0u);
  std::memset(block->data, 1, 1000);
  const auto place = staging_buffers.Find(block->data + 10, 990);
  ASSERT_TRUE(place);
  EXPECT_EQ(place->staging_buffer, 10u);
  EXPECT_EQ(place->offset, block->place.offset + 10);
}

// The worker empties a staging buffer when its session has ended, and a host buffer may be freed
// later.
TEST_F(StagingBufferSetTest, BlocksCanBeFreedWhateverPeerWrites) {
  for (const int written : {0, 0xa5, 0xff}) {
    added_.clear();
    StagingBufferSet staging_buffers = Make(1);
    std::array<StagingBlock, 3> blocks = {};
    for (StagingBlock& block : blocks) block = *staging_buffers.Allocate(1000);
    std::memset(blocks[0].data - blocks[0].place.offset, written, added_[0]);
    for (const StagingBlock& block : {blocks[1], blocks[0], blocks[2]})
      staging_buffers.Free(block.data);
    EXPECT_TRUE(staging_buffers.Allocate(added_[0]).ok());
  }
}

TEST_F(StagingBufferSetTest, DoesNotFindRangesBeyondStagingBuffer) {
  StagingBufferSet staging_buffers = Make(1);
  const auto block = staging_buffers.Allocate(1000);
  ASSERT_TRUE(block.ok());
  int local = 0;
  EXPECT_FALSE(staging_buffers.Find(&local, sizeof local));
  EXPECT_FALSE(staging_buffers.Find(block->data, ipc::kStagingBufferBytesDefault + 1));
  EXPECT_FALSE(staging_buffers.Find(block->data, ~std::size_t{0}));
}

TEST_F(StagingBufferSetTest, LargeBlockGetsStagingBufferOfItsSize) {
  StagingBufferSet staging_buffers = Make(1);
  constexpr std::size_t kBytes = 100u << 20;
  const auto block = staging_buffers.Allocate(kBytes);
  ASSERT_TRUE(block.ok()) << block.status().ToString();
  ASSERT_EQ(added_.size(), 1u);
  EXPECT_GE(added_[0], kBytes);
  EXPECT_EQ(added_[0] % ipc::kStagingBytesStep, 0u);
}

// A size just below that of a staging buffer must not lead to a staging buffer that is too small
// for it.
TEST_F(StagingBufferSetTest, EverySizeFitsStagingBufferMadeForIt) {
  for (std::size_t below = 0; below < 6000; below += 250) {
    added_.clear();
    StagingBufferSet staging_buffers = Make(1);
    const auto block = staging_buffers.Allocate((32u << 20) - below);
    ASSERT_TRUE(block.ok()) << below << " " << block.status().ToString();
  }
}

// Creating a staging buffer takes time on the server, and other clients wait for that long.
TEST_F(StagingBufferSetTest, SmallNeedsStartWithSmallStagingBuffer) {
  constexpr std::uint64_t kMiB = 1u << 20;
  StagingBufferSet staging_buffers = Make(6);
  while (added_.size() < 6) ASSERT_TRUE(staging_buffers.Allocate(200'000).ok());
  EXPECT_EQ(added_, (std::vector<std::uint64_t>{kMiB, kMiB, 2 * kMiB, 4 * kMiB, 8 * kMiB,
                                                ipc::kStagingBufferBytesDefault}));
}

// Later copies must not wait only because the first staging buffer is small.
TEST_F(StagingBufferSetTest, StagingGrowsToDefaultSizeBeforeWaiting) {
  StagingBufferSet staging_buffers = Make(2);
  const auto small = staging_buffers.TryAllocateStaging(4096);
  ASSERT_TRUE(small.ok() && *small);
  progress_.RecordSubmitted(1, 1);
  staging_buffers.Retire((*small)->data, {{1, 1}});
  const auto large = staging_buffers.TryAllocateStaging(4u << 20);
  ASSERT_TRUE(large.ok() && *large);
  EXPECT_EQ(added_, (std::vector<std::uint64_t>{1u << 20, ipc::kStagingBufferBytesDefault}));
}

TEST_F(StagingBufferSetTest, StagingThatCannotGrowWaitsForRetiredBytes) {
  StagingBufferSet staging_buffers = Make(1);
  const auto small = staging_buffers.TryAllocateStaging(200'000);
  ASSERT_TRUE(small.ok() && *small);
  progress_.RecordSubmitted(1, 1);
  staging_buffers.Retire((*small)->data, {{1, 1}});
  const auto none = staging_buffers.TryAllocateStaging(900'000);
  ASSERT_TRUE(none.ok());
  EXPECT_FALSE(*none);
  ASSERT_TRUE(staging_buffers.WaitForOldest().ok());
  const auto again = staging_buffers.TryAllocateStaging(900'000);
  EXPECT_TRUE(again.ok() && *again);
}

TEST_F(StagingBufferSetTest, StagingWaitsForRetiredBytesInsteadOfAddingBuffer) {
  StagingBufferSet staging_buffers = Make(2);
  const auto block = staging_buffers.TryAllocateStaging(15u << 20);
  ASSERT_TRUE(block.ok() && *block);
  progress_.RecordSubmitted(1, 1);
  staging_buffers.Retire((*block)->data, {{1, 1}});
  const auto none = staging_buffers.TryAllocateStaging(15u << 20);
  ASSERT_TRUE(none.ok());
  EXPECT_FALSE(*none);
  ASSERT_TRUE(staging_buffers.WaitForOldest().ok());
  const auto again = staging_buffers.TryAllocateStaging(15u << 20);
  ASSERT_TRUE(again.ok() && *again);
  EXPECT_EQ(added_.size(), 1u);
}

TEST_F(StagingBufferSetTest, HostBuffersAddStagingBufferInsteadOfWaiting) {
  StagingBufferSet staging_buffers = Make(2);
  const auto block = staging_buffers.Allocate(15u << 20);
  ASSERT_TRUE(block.ok());
  progress_.RecordSubmitted(1, 1);
  staging_buffers.Retire(block->data, {{1, 1}});
  EXPECT_TRUE(staging_buffers.Allocate(15u << 20).ok());
  EXPECT_EQ(added_.size(), 2u);
  EXPECT_EQ(waits_, 0);
}

TEST_F(StagingBufferSetTest, HostBuffersWaitForRetiredBytesAtLimit) {
  StagingBufferSet staging_buffers = Make(1);
  const auto block = staging_buffers.Allocate(15u << 20);
  ASSERT_TRUE(block.ok());
  progress_.RecordSubmitted(1, 1);
  staging_buffers.Retire(block->data, {{1, 1}});
  EXPECT_TRUE(staging_buffers.Allocate(15u << 20).ok());
  EXPECT_EQ(waits_, 1);
}

TEST_F(StagingBufferSetTest, NeverAllocatesBytesInUse) {
  StagingBufferSet staging_buffers = Make(1);
  const auto first = staging_buffers.Allocate(4096);
  progress_.RecordSubmitted(1, 1);
  staging_buffers.Retire(first->data, {{1, 1}});
  EXPECT_NE(staging_buffers.Allocate(4096)->data, first->data);
}

TEST_F(StagingBufferSetTest, MakesSmallerStagingBuffersWhenMemoryIsShort) {
  StagingBufferSet staging_buffers = Make(64);
  bytes_left_ = ipc::kStagingBufferBytesDefault / 3;
  ASSERT_TRUE(staging_buffers.Allocate(1'000'000).ok());
  ASSERT_TRUE(staging_buffers.Allocate(4u << 20).status().code() == StatusCode::kOutOfMemory);
  EXPECT_EQ(added_, std::vector<std::uint64_t>{ipc::kStagingBufferBytesDefault / 4});
  EXPECT_TRUE(staging_buffers.Allocate(3u << 20).ok()) << "from the staging buffer that is there";
}

TEST_F(StagingBufferSetTest, RetriesSmallerSizeOnlyWhenOutOfMemory) {
  StagingBufferSet staging_buffers = Make(0);
  rejection_ = StatusCode::kDeviceLost;
  EXPECT_EQ(staging_buffers.Allocate(1).status().code(), StatusCode::kDeviceLost);
  EXPECT_EQ(rejections_, 1);
}

TEST_F(StagingBufferSetTest, RejectionReachesTheCaller) {
  StagingBufferSet staging_buffers = Make(0);
  EXPECT_EQ(staging_buffers.Allocate(1).status().code(), StatusCode::kOutOfMemory);
  EXPECT_EQ(staging_buffers.TryAllocateStaging(1).status().code(), StatusCode::kOutOfMemory);
  EXPECT_EQ(staging_buffers.Allocate(0).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(staging_buffers.Allocate(~std::size_t{0}).status().code(), StatusCode::kOutOfMemory);
}

}  // namespace
}  // namespace gpushared::client
