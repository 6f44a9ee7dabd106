// SPDX-License-Identifier: Apache-2.0
#include "client_lib/arena_set.h"

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

class ArenaSetTest : public ::testing::Test {
 protected:
  ArenaSet Make(std::size_t arenas_max) {
    return ArenaSet(
        progress_,
        {.add = [this, arenas_max](std::uint64_t bytes) -> Result<std::unique_ptr<Arena>> {
           if (added_.size() == arenas_max || bytes > bytes_left_) {
             ++refusals_;
             return Status(refusal_, "no more");
           }
           bytes_left_ -= bytes;
           auto segment = ipc::SharedSegment::Create({.bytes = bytes});
           if (!segment.ok()) return segment.status();
           added_.push_back(bytes);
           return std::make_unique<Arena>(static_cast<std::uint32_t>(added_.size() + 9),
                                          std::move(*segment));
         },
         .wait =
             [this](const Fence& fence) {
               ++waits_;
               for (const StreamPoint point : fence) timelines_[point.stream] = point.sequence;
               return Status::Ok();
             }});
  }

  std::array<std::atomic<std::uint64_t>, ipc::kStreamsMax> timelines_ = {};
  Progress progress_{timelines_};
  std::vector<std::uint64_t> added_;
  std::uint64_t bytes_left_ = std::uint64_t{1} << 40;
  StatusCode refusal_ = StatusCode::kOutOfMemory;
  int refusals_ = 0;
  int waits_ = 0;
};

TEST_F(ArenaSetTest, BlocksAreAlignedWritableAndFoundByAddress) {
  ArenaSet arenas = Make(1);
  const auto block = arenas.Allocate(1000);
  ASSERT_TRUE(block.ok());
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block->data) % Arena::kAlignmentBytes, 0u);
  EXPECT_EQ(block->place.offset % Arena::kAlignmentBytes, 0u);
  std::memset(block->data, 1, 1000);
  const auto place = arenas.Find(block->data + 10, 990);
  ASSERT_TRUE(place);
  EXPECT_EQ(place->arena, 10u);
  EXPECT_EQ(place->offset, block->place.offset + 10);
}

// The worker empties an arena when its session has ended, and a host buffer may live longer.
TEST_F(ArenaSetTest, WhateverTheOtherSideWritesBlocksCanBeFreed) {
  for (const int written : {0, 0xa5, 0xff}) {
    added_.clear();
    ArenaSet arenas = Make(1);
    std::array<ArenaBlock, 3> blocks = {};
    for (ArenaBlock& block : blocks) block = *arenas.Allocate(1000);
    std::memset(blocks[0].data - blocks[0].place.offset, written, added_[0]);
    for (const ArenaBlock& block : {blocks[1], blocks[0], blocks[2]}) arenas.Free(block.data);
    EXPECT_TRUE(arenas.Allocate(added_[0]).ok());
  }
}

TEST_F(ArenaSetTest, RangesThatLeaveTheArenaAreNotFound) {
  ArenaSet arenas = Make(1);
  const auto block = arenas.Allocate(1000);
  ASSERT_TRUE(block.ok());
  int local = 0;
  EXPECT_FALSE(arenas.Find(&local, sizeof local));
  EXPECT_FALSE(arenas.Find(block->data, ipc::kArenaBytesDefault + 1));
  EXPECT_FALSE(arenas.Find(block->data, ~std::size_t{0}));
}

TEST_F(ArenaSetTest, LargeBlockGetsAnArenaOfItsSize) {
  ArenaSet arenas = Make(1);
  constexpr std::size_t kBytes = 100u << 20;
  const auto block = arenas.Allocate(kBytes);
  ASSERT_TRUE(block.ok()) << block.status().ToString();
  ASSERT_EQ(added_.size(), 1u);
  EXPECT_GE(added_[0], kBytes);
  EXPECT_EQ(added_[0] % ipc::kArenaBytesStep, 0u);
}

// Sizes just below an arena's must not end in an arena that cannot hold them.
TEST_F(ArenaSetTest, EverySizeFitsIntoTheArenaMadeForIt) {
  for (std::size_t below = 0; below < 6000; below += 250) {
    added_.clear();
    ArenaSet arenas = Make(1);
    const auto block = arenas.Allocate((32u << 20) - below);
    ASSERT_TRUE(block.ok()) << below << " " << block.status().ToString();
  }
}

// Memory for an arena costs the server time, for which other clients wait.
TEST_F(ArenaSetTest, WhoeverNeedsLittleBeginsWithLittleAndGrows) {
  constexpr std::uint64_t kMiB = 1u << 20;
  ArenaSet arenas = Make(6);
  while (added_.size() < 6) ASSERT_TRUE(arenas.Allocate(200'000).ok());
  EXPECT_EQ(added_, (std::vector<std::uint64_t>{kMiB, kMiB, 2 * kMiB, 4 * kMiB, 8 * kMiB,
                                                ipc::kArenaBytesDefault}));
}

// A small arena keeps no copies waiting that come later.
TEST_F(ArenaSetTest, StagingGrowsToTheUsualArenaBeforeItWaits) {
  ArenaSet arenas = Make(2);
  const auto small = arenas.TryAllocateStaging(4096);
  ASSERT_TRUE(small.ok() && *small);
  progress_.NoteSubmitted(1, 1);
  arenas.Retire((*small)->data, {{1, 1}});
  const auto large = arenas.TryAllocateStaging(4u << 20);
  ASSERT_TRUE(large.ok() && *large);
  EXPECT_EQ(added_, (std::vector<std::uint64_t>{1u << 20, ipc::kArenaBytesDefault}));
}

TEST_F(ArenaSetTest, StagingThatCannotGrowWaitsForRetiredBytes) {
  ArenaSet arenas = Make(1);
  const auto small = arenas.TryAllocateStaging(200'000);
  ASSERT_TRUE(small.ok() && *small);
  progress_.NoteSubmitted(1, 1);
  arenas.Retire((*small)->data, {{1, 1}});
  const auto none = arenas.TryAllocateStaging(900'000);
  ASSERT_TRUE(none.ok());
  EXPECT_FALSE(*none);
  ASSERT_TRUE(arenas.WaitForOldest().ok());
  const auto again = arenas.TryAllocateStaging(900'000);
  EXPECT_TRUE(again.ok() && *again);
}

TEST_F(ArenaSetTest, StagingWaitsForRetiredBytesInsteadOfAddingAnArena) {
  ArenaSet arenas = Make(2);
  const auto block = arenas.TryAllocateStaging(15u << 20);
  ASSERT_TRUE(block.ok() && *block);
  progress_.NoteSubmitted(1, 1);
  arenas.Retire((*block)->data, {{1, 1}});
  const auto none = arenas.TryAllocateStaging(15u << 20);
  ASSERT_TRUE(none.ok());
  EXPECT_FALSE(*none);
  ASSERT_TRUE(arenas.WaitForOldest().ok());
  const auto again = arenas.TryAllocateStaging(15u << 20);
  ASSERT_TRUE(again.ok() && *again);
  EXPECT_EQ(added_.size(), 1u);
}

TEST_F(ArenaSetTest, HostBuffersAddAnArenaInsteadOfWaiting) {
  ArenaSet arenas = Make(2);
  const auto block = arenas.Allocate(15u << 20);
  ASSERT_TRUE(block.ok());
  progress_.NoteSubmitted(1, 1);
  arenas.Retire(block->data, {{1, 1}});
  EXPECT_TRUE(arenas.Allocate(15u << 20).ok());
  EXPECT_EQ(added_.size(), 2u);
  EXPECT_EQ(waits_, 0);
}

TEST_F(ArenaSetTest, WithoutFurtherArenasHostBuffersWaitForRetiredBytes) {
  ArenaSet arenas = Make(1);
  const auto block = arenas.Allocate(15u << 20);
  ASSERT_TRUE(block.ok());
  progress_.NoteSubmitted(1, 1);
  arenas.Retire(block->data, {{1, 1}});
  EXPECT_TRUE(arenas.Allocate(15u << 20).ok());
  EXPECT_EQ(waits_, 1);
}

TEST_F(ArenaSetTest, BytesInUseAreNeverGivenOutAgain) {
  ArenaSet arenas = Make(1);
  const auto first = arenas.Allocate(4096);
  progress_.NoteSubmitted(1, 1);
  arenas.Retire(first->data, {{1, 1}});
  EXPECT_NE(arenas.Allocate(4096)->data, first->data);
}

TEST_F(ArenaSetTest, WhereMemoryIsShortArenasAreSmaller) {
  ArenaSet arenas = Make(64);
  bytes_left_ = ipc::kArenaBytesDefault / 3;
  ASSERT_TRUE(arenas.Allocate(1'000'000).ok());
  ASSERT_TRUE(arenas.Allocate(4u << 20).status().code() == StatusCode::kOutOfMemory);
  EXPECT_EQ(added_, std::vector<std::uint64_t>{ipc::kArenaBytesDefault / 4});
  EXPECT_TRUE(arenas.Allocate(3u << 20).ok()) << "from the arena that is there";
}

TEST_F(ArenaSetTest, OnlyForWantOfMemoryIsLessAsked) {
  ArenaSet arenas = Make(0);
  refusal_ = StatusCode::kDeviceLost;
  EXPECT_EQ(arenas.Allocate(1).status().code(), StatusCode::kDeviceLost);
  EXPECT_EQ(refusals_, 1);
}

TEST_F(ArenaSetTest, RefusalReachesTheCaller) {
  ArenaSet arenas = Make(0);
  EXPECT_EQ(arenas.Allocate(1).status().code(), StatusCode::kOutOfMemory);
  EXPECT_EQ(arenas.TryAllocateStaging(1).status().code(), StatusCode::kOutOfMemory);
  EXPECT_EQ(arenas.Allocate(0).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(arenas.Allocate(~std::size_t{0}).status().code(), StatusCode::kOutOfMemory);
}

}  // namespace
}  // namespace gpushared::client
