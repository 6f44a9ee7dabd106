// SPDX-License-Identifier: Apache-2.0
#include "server/worker/dispatch/page_use.h"

#include <cstdint>
#include <memory>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/device/memory_budget.h"
#include "tests/support/null_device.h"

namespace gpushared::server {
namespace {

constexpr std::uint64_t kStep = kMapPageBytes;
constexpr std::uint64_t kBase = std::uint64_t{1} << 40;
constexpr std::uint64_t kSteps = 64;

// A client's memory of which some pages are swapped out.
class PartlyThere : public gpushared::testing::NullSpace {
 public:
  PartlyThere() : NullSpace(kBase) {}
  std::uint64_t NonResidentBytes(std::uint64_t address, std::uint64_t bytes) const override {
    std::uint64_t found = 0;
    for (const std::uint64_t step : away) {
      const std::uint64_t begin = kBase + step * kStep;
      if (begin < address + bytes && address < begin + kStep) found += kStep;
    }
    return found;
  }

  std::set<std::uint64_t> away;
};

// Queues a fill of [begin, begin + bytes) of the client's memory.
CommandSlot& Fill(ClientStreams& streams, std::uint32_t stream, std::uint64_t begin,
                  std::uint64_t bytes) {
  const std::uint32_t slot = streams.slab().Allocate();
  CommandSlot& command = streams.slab()[slot];
  command.kind = CommandKind::kFill;
  command.stream = static_cast<std::uint8_t>(stream);
  device::FillWork fill;
  fill.destination = kBase + begin;
  fill.width_bytes = bytes;
  fill.height = 1;
  command.work = fill;
  streams.Append(slot);
  return command;
}

std::uint64_t CountOnce(PageUse& use, const ClientStreams& streams, const PartlyThere& space) {
  (void)use.TakeExamined();
  use.Examine(streams, space, kSteps * kStep, kSteps * kStep);
  return use.Count(space, kSteps * kStep).missing_bytes;
}

TEST(PageUse, CountsEachNonResidentPageOnce) {
  PartlyThere space;
  space.away = {2, 3, 9, 40};
  ClientStreams streams(8);
  PageUse use;
  Fill(streams, 0, 3 * kStep - 1, 2);
  Fill(streams, 1, 3 * kStep, 4 * kStep);
  Fill(streams, 2, 9 * kStep + 7, 1);
  EXPECT_EQ(CountOnce(use, streams, space), 3 * kStep);
  EXPECT_FALSE(use.needs_everything());
  EXPECT_THAT(use.ToSwapIn(space, 4), ::testing::ElementsAre(2, 3, 9, 40));
  EXPECT_THAT(use.ToSwapOut(space, 2), ::testing::ElementsAre(63, 62));
}

// The device thread determines the needed pages for all clients, so a client with many queued
// commands must not slow down the others.
TEST(PageUse, CostIsLimitedByNumberOfPages) {
  PartlyThere space;
  space.away = {0, kSteps - 1};
  ClientStreams streams(ipc::kStreamsMax);
  PageUse use;
  for (std::uint32_t stream = 0; stream < ipc::kStreamsMax; ++stream) {
    Fill(streams, stream, stream, kSteps * kStep - stream);
  }
  EXPECT_EQ(CountOnce(use, streams, space), 2 * kStep);
  // Counts streams, commands, pieces and pages.
  EXPECT_EQ(use.TakeExamined(), 3 * ipc::kStreamsMax + kSteps);
  EXPECT_EQ(use.TakeExamined(), 0U);
}

// The pages of all commands would never fit at once, and if all were required, no command would
// run.
TEST(PageUse, LongestWaitingCommandsDetermineNeededPages) {
  PartlyThere space;
  for (std::uint64_t step = 0; step < kSteps; ++step) space.away.insert(step);
  ClientStreams streams(8);
  PageUse use;
  const scheduler::TimePoint now{std::chrono::seconds(1)};
  Fill(streams, 0, 0, 20 * kStep).taken = now + std::chrono::milliseconds(3);
  Fill(streams, 1, 20 * kStep, 20 * kStep).taken = now + std::chrono::milliseconds(1);
  Fill(streams, 2, 40 * kStep, 5 * kStep).taken = now + std::chrono::milliseconds(2);
  use.Examine(streams, space, kSteps * kStep, 25 * kStep);
  EXPECT_EQ(use.Count(space, kSteps * kStep).bytes, 25 * kStep);
  EXPECT_THAT(use.ToSwapIn(space, 1), ::testing::ElementsAre(20));
  EXPECT_FALSE(use.needs_everything());
  // The first command runs alone if necessary.
  use.Examine(streams, space, kSteps * kStep, 10 * kStep);
  EXPECT_EQ(use.Count(space, kSteps * kStep).bytes, 20 * kStep);
  // Pages that are already resident need no further memory.
  use.Examine(streams, space, kSteps * kStep, 45 * kStep);
  EXPECT_EQ(use.Count(space, kSteps * kStep).bytes, 45 * kStep);
}

TEST(PageUse, CountsCommandsWithoutDeviceWork) {
  PartlyThere space;
  ClientStreams streams(64);
  PageUse use;
  for (int i = 0; i < 40; ++i) {
    const std::uint32_t slot = streams.slab().Allocate();
    streams.slab()[slot].kind = CommandKind::kMark;
    streams.Append(slot);
  }
  use.Examine(streams, space, kSteps * kStep, kSteps * kStep);
  EXPECT_EQ(use.TakeExamined(), ipc::kStreamsMax + 40);
}

TEST(PageUse, LaunchNeedsItsAccessSet) {
  PartlyThere space;
  space.away = {1, 2, 3, 30};
  ClientStreams streams(8);
  PageUse use;
  const std::uint32_t slot = streams.slab().Allocate();
  CommandSlot& command = streams.slab()[slot];
  command.kind = CommandKind::kLaunch;
  command.work = device::LaunchWork();
  device::Reach reach;
  reach.Add({.base = kBase + 2 * kStep, .bytes = kStep});
  reach.Add({.base = kBase + 30 * kStep, .bytes = 2 * kStep});
  command.SetReach(reach);
  streams.Append(slot);
  EXPECT_EQ(CountOnce(use, streams, space), 2 * kStep);
  EXPECT_FALSE(IsResident(space, command));
  EXPECT_EQ(ReachBytes(command, kSteps * kStep), 3 * kStep);
  space.away = {1, 3};
  EXPECT_TRUE(IsResident(space, command));
  command.graph = std::make_shared<Graph>(
      1, std::make_shared<GraphBytes>(std::make_shared<GraphBudget>(4096, 1)));
  command.work = device::GraphWork();
  EXPECT_TRUE(IsResident(space, command)) << "and so does a graph";
  command.work = device::CopyWork{.destination = kBase + kStep, .width_bytes = 16};
  EXPECT_TRUE(IsResident(space, command)) << "each part of it as the whole";
  command.graph.reset();
  EXPECT_FALSE(IsResident(space, command)) << "a copy alone needs what it touches";
  command.work = device::LaunchWork();
  command.SetReach(device::Reach::Everything());
  EXPECT_FALSE(IsResident(space, command));
  EXPECT_EQ(ReachBytes(command, kSteps * kStep), kSteps * kStep);
}

}  // namespace
}  // namespace gpushared::server
