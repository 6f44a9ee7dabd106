// SPDX-License-Identifier: Apache-2.0
#include "client_lib/device_memory.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ipc/wire/layout.h"

namespace gpushared::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

constexpr std::uint64_t kBase = std::uint64_t{1} << 32;
constexpr std::uint64_t kMiB = 1u << 20;

class DeviceMemoryTest : public ::testing::Test {
 protected:
  DeviceMemory Make(std::uint64_t quota_bytes) {
    return DeviceMemory(
        kBase, quota_bytes, progress_,
        {.resize = [this, quota_bytes](std::uint64_t bytes) -> Result<std::uint64_t> {
           resizes_.push_back(bytes);
           if (bytes > quota_bytes) return Status(StatusCode::kOutOfMemory, "no more");
           return bytes;
         },
         .wait =
             [this](const Fence& fence) {
               ++waits_;
               for (const StreamPoint point : fence) timelines_[point.stream] = point.sequence;
               return Status::Ok();
             }});
  }

  // Submits a command that does not end.
  void Submit(std::uint32_t stream) {
    progress_.RecordSubmitted(stream, progress_.submitted(stream) + 1);
  }
  void FinishAll(std::uint32_t stream) { timelines_[stream] = progress_.submitted(stream); }

  std::array<std::atomic<std::uint64_t>, ipc::kStreamsMax> timelines_ = {};
  Progress progress_{timelines_};
  std::vector<std::uint64_t> resizes_;
  int waits_ = 0;
};

TEST_F(DeviceMemoryTest, SmallAllocationsShareOneMappingStep) {
  DeviceMemory memory = Make(64 * kMiB);
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(memory.Allocate(4096).ok());
  EXPECT_THAT(resizes_, ElementsAre(2 * kMiB));
}

TEST_F(DeviceMemoryTest, GrowthDoublesUpToItsLimit) {
  DeviceMemory memory = Make(1024 * kMiB);
  while (resizes_.size() < 8) ASSERT_TRUE(memory.Allocate(2 * kMiB).ok());
  std::vector<std::uint64_t> growth;
  for (std::size_t i = 1; i < resizes_.size(); ++i) growth.push_back(resizes_[i] - resizes_[i - 1]);
  EXPECT_THAT(growth, ElementsAre(4 * kMiB, 8 * kMiB, 16 * kMiB, 32 * kMiB, 64 * kMiB, 64 * kMiB,
                                  64 * kMiB));
}

TEST_F(DeviceMemoryTest, LargeAllocationUsesFreeTailBeforeGrowing) {
  DeviceMemory memory = Make(64 * kMiB);
  ASSERT_TRUE(memory.Allocate(kMiB).ok());
  ASSERT_TRUE(memory.Allocate(31 * kMiB).ok());
  EXPECT_THAT(resizes_, ElementsAre(2 * kMiB, 32 * kMiB));
}

TEST_F(DeviceMemoryTest, TriesSmallerGrowthBeforeFailing) {
  // This quota is not a multiple of the mapping step. A percentage may result in such a quota.
  DeviceMemory memory = Make(5 * kMiB);
  EXPECT_TRUE(memory.Allocate(2 * kMiB).ok());
  EXPECT_TRUE(memory.Allocate(2 * kMiB).ok());
  EXPECT_THAT(resizes_, ElementsAre(2 * kMiB, 5 * kMiB));
}

TEST_F(DeviceMemoryTest, RejectionBeyondQuotaStatesAllSizes) {
  DeviceMemory memory = Make(4 * kMiB);
  ASSERT_TRUE(memory.Allocate(3 * kMiB).ok());
  const auto rejected = memory.Allocate(2 * kMiB);
  ASSERT_EQ(rejected.status().code(), StatusCode::kOutOfMemory);
  EXPECT_THAT(rejected.status().message(), HasSubstr("2097152 bytes asked, quota 4194304 bytes, "
                                                     "used 3145728 bytes"));
  EXPECT_EQ(memory.Allocate(~std::uint64_t{0}).status().code(), StatusCode::kOutOfMemory);
}

TEST_F(DeviceMemoryTest, ZeroBytesAreRejected) {
  DeviceMemory memory = Make(4 * kMiB);
  EXPECT_EQ(memory.Allocate(0).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(DeviceMemoryTest, ReusesFreedMemoryOnlyAfterEarlierCommands) {
  DeviceMemory memory = Make(64 * kMiB);
  const auto first = memory.Allocate(4096);
  ASSERT_TRUE(first.ok());
  Submit(3);
  memory.Free(*first);
  const auto second = memory.Allocate(4096);
  ASSERT_TRUE(second.ok());
  EXPECT_NE(*second, *first);
  FinishAll(3);
  const auto third = memory.Allocate(4096);
  ASSERT_TRUE(third.ok());
  EXPECT_EQ(*third, *first);
}

TEST_F(DeviceMemoryTest, ReusesFreedMemoryAtOnceIfIdle) {
  DeviceMemory memory = Make(64 * kMiB);
  const auto first = memory.Allocate(4096);
  memory.Free(*first);
  EXPECT_EQ(*memory.Allocate(4096), *first);
}

class NamedBuffersTest : public DeviceMemoryTest {
 protected:
  DeviceMemory Make(std::uint64_t quota_bytes) {
    return DeviceMemory(kBase, quota_bytes, progress_,
                        {.resize = [](std::uint64_t bytes) { return Result(bytes); },
                         .wait = [](const Fence&) { return Status::Ok(); },
                         .name_buffer =
                             [this](std::uint64_t address, std::uint64_t bytes) {
                               EXPECT_TRUE(named_.emplace(address, bytes).second) << "named twice";
                             },
                         .forget_buffer =
                             [this](std::uint64_t address) {
                               EXPECT_EQ(named_.erase(address), 1u) << "never named";
                             }});
  }
  std::map<std::uint64_t, std::uint64_t> named_;
};

TEST_F(NamedBuffersTest, NamesEachBufferToServerUntilItIsFreed) {
  DeviceMemory memory = Make(64 * kMiB);
  const auto first = memory.Allocate(1000);
  const auto second = memory.Allocate(4 * kMiB);
  EXPECT_THAT(named_, ElementsAre(Pair(*first, 1024u), Pair(*second, 4 * kMiB)));
  Submit(3);
  memory.Free(*first);
  EXPECT_THAT(named_, ElementsAre(Pair(*second, 4 * kMiB)));
  memory.Free(*first);  // A second Free is ignored.
  FinishAll(3);
  const auto third = memory.Allocate(500);
  EXPECT_EQ(*third, *first);
  EXPECT_THAT(named_, ElementsAre(Pair(*third, 512u), Pair(*second, 4 * kMiB)));
}

TEST_F(NamedBuffersTest, LimitsNumberOfNamedBuffers) {
  DeviceMemory memory = Make(64 * kMiB);
  const auto first = memory.Allocate(256);
  for (std::uint32_t i = 0; i < ipc::kBuffersMax; ++i) ASSERT_TRUE(memory.Allocate(256).ok());
  EXPECT_EQ(named_.size(), ipc::kBuffersMax);
  memory.Free(*first);
  EXPECT_EQ(named_.size(), ipc::kBuffersMax - 1);
  ASSERT_TRUE(memory.Allocate(256).ok());
  EXPECT_EQ(named_.size(), ipc::kBuffersMax);
}

TEST_F(DeviceMemoryTest, LaterCommandsDoNotDelayReuse) {
  DeviceMemory memory = Make(64 * kMiB);
  const auto first = memory.Allocate(4096);
  Submit(3);
  memory.Free(*first);
  FinishAll(3);
  Submit(3);
  EXPECT_EQ(*memory.Allocate(4096), *first);
}

TEST_F(DeviceMemoryTest, WaitsForFreedMemoryWhenQuotaIsExhausted) {
  DeviceMemory memory = Make(2 * kMiB);
  const auto first = memory.Allocate(2 * kMiB);
  ASSERT_TRUE(first.ok());
  Submit(0);
  memory.Free(*first);
  EXPECT_EQ(memory.Info().used_bytes, 2 * kMiB);
  const auto second = memory.Allocate(kMiB);
  ASSERT_TRUE(second.ok()) << second.status().ToString();
  EXPECT_EQ(waits_, 1);
}

TEST_F(DeviceMemoryTest, TrimWaitsForNoticesOfBuffersButNotForWork) {
  std::uint64_t told = 0;
  DeviceMemory memory(
      kBase, 64 * kMiB, progress_,
      {.resize = [](std::uint64_t bytes) -> Result<std::uint64_t> { return bytes; },
       .wait =
           [this](const Fence& fence) {
             ++waits_;
             for (const StreamPoint point : fence) timelines_[point.stream] = point.sequence;
             return Status::Ok();
           },
       .name_buffer = [&](std::uint64_t, std::uint64_t) { progress_.RecordNotice(0, ++told); },
       .forget_buffer = [&](std::uint64_t) { progress_.RecordNotice(0, ++told); }});
  memory.Free(memory.Allocate(4 * kMiB).value());
  EXPECT_EQ(*memory.Trim(), 4 * kMiB);
  EXPECT_EQ(waits_, 1);
  const std::uint64_t address = memory.Allocate(4 * kMiB).value();
  Submit(1);
  memory.Free(address);
  EXPECT_EQ(*memory.Trim(), 0u) << "work may still use it";
  EXPECT_EQ(waits_, 1);
  FinishAll(1);
  EXPECT_EQ(*memory.Trim(), 4 * kMiB);
}

TEST_F(DeviceMemoryTest, TrimUnmapsFreeMemoryAtTheEnd) {
  DeviceMemory memory = Make(64 * kMiB);
  const auto first = memory.Allocate(3 * kMiB), second = memory.Allocate(9 * kMiB);
  ASSERT_TRUE(first.ok() && second.ok());
  const std::uint64_t mapped = memory.Info().mapped_bytes;
  Submit(0);
  memory.Free(*second);
  EXPECT_EQ(*memory.Trim(), mapped - 12 * kMiB) << "commands may still use it";
  FinishAll(0);
  resizes_.clear();
  EXPECT_EQ(*memory.Trim(), 8 * kMiB);
  EXPECT_THAT(resizes_, ElementsAre(4 * kMiB)) << "whole steps";
  EXPECT_EQ(*memory.Trim(), 0u);
  EXPECT_EQ(memory.Info().mapped_bytes, 4 * kMiB);
  EXPECT_EQ(*memory.Allocate(kMiB), *first + 3 * kMiB);
  EXPECT_EQ(*memory.Allocate(2 * kMiB), *first + 4 * kMiB);
}

TEST_F(DeviceMemoryTest, ReportsReusedBytesOfBuffer) {
  DeviceMemory memory = Make(64 * kMiB);
  std::uint64_t used = 7;
  const auto first = memory.Allocate(kMiB, &used);
  EXPECT_EQ(used, 0u);
  memory.Free(*first);
  const auto more = memory.Allocate(4 * kMiB, &used);
  EXPECT_EQ(*more, *first);
  EXPECT_EQ(used, kMiB);
  memory.Free(*more);
  const auto less = memory.Allocate(2 * kMiB, &used);
  EXPECT_EQ(used, 2 * kMiB);
  EXPECT_GE(*memory.Trim(), 2 * kMiB);
  EXPECT_TRUE(memory.Allocate(kMiB, &used).ok());
  EXPECT_EQ(used, 0u) << "the server has cleared it";
  EXPECT_TRUE(less.ok());
}

TEST_F(DeviceMemoryTest, InfoShowsTheQuotaAsTotal) {
  DeviceMemory memory = Make(64 * kMiB);
  ASSERT_TRUE(memory.Allocate(1000).ok());
  const MemoryInfo info = memory.Info();
  EXPECT_EQ(info.total_bytes, 64 * kMiB);
  EXPECT_EQ(info.mapped_bytes, 2 * kMiB);
  EXPECT_EQ(info.used_bytes, 1024u);
}

}  // namespace
}  // namespace gpushared::client
