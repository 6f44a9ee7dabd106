// SPDX-License-Identifier: Apache-2.0
#include "server/device/cpu/work_queue.h"

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace gpushared::device {
namespace {

struct WorkSpec {
  WorkId id = 1;
  StreamKey stream = 1;
  std::uint8_t priority = 0;
  std::uint64_t first_unit = 0;
  std::uint64_t units = 1;
};

std::unique_ptr<QueuedWork> Work(const WorkSpec& spec) {
  FillWork work;
  work.id = spec.id;
  work.stream = spec.stream;
  work.priority = spec.priority;
  work.first_unit = spec.first_unit;
  return std::make_unique<QueuedWork>(work, spec.units, Status());
}

Completion TakeOne(WorkQueue& queue) {
  std::array<Completion, 1> out;
  EXPECT_EQ(queue.TakeCompletions(out), 1U);
  return out[0];
}

bool HasCompletion(WorkQueue& queue) {
  std::array<Completion, 1> out;
  return queue.TakeCompletions(out) == 1;
}

void FinishAll(WorkQueue& queue, const Claim& claim) {
  EXPECT_TRUE(queue.Finish(claim, claim.first_unit + claim.units, Status()));
}

TEST(WorkQueue, FirstClaimIsOneUnitAndLaterOnesAtMostDouble) {
  WorkQueue queue(1, {});
  queue.Submit(Work({.units = 1000}));
  std::uint64_t expected_first = 0;
  std::uint64_t last = 0;
  while (expected_first < 1000) {
    const Claim claim = *queue.Next();
    EXPECT_EQ(claim.first_unit, expected_first);
    if (last == 0) {
      EXPECT_EQ(claim.units, 1U);
    } else {
      EXPECT_LE(claim.units, 2 * last);
    }
    expected_first += claim.units;
    last = claim.units;
    FinishAll(queue, claim);
  }
  const Completion completion = TakeOne(queue);
  EXPECT_EQ(completion.units_done, 1000U);
  EXPECT_FALSE(completion.stopped);
}

// A thread that took a long run of units must not hold up work of higher priority.
TEST(WorkQueue, UnitsLongerThanTheClaimTimeAreDealtOneByOne) {
  WorkQueue queue(1, {});
  queue.Submit(Work({.units = 8}));
  for (std::uint64_t unit = 0; unit < 8; ++unit) {
    const Claim claim = *queue.Next();
    EXPECT_EQ(claim.units, 1U);
    std::this_thread::sleep_for(2 * kClaimTime);
    FinishAll(queue, claim);
  }
}

TEST(WorkQueue, OneThreadOfSeveralLeavesSomethingForTheOthers) {
  WorkQueue queue(4, {});
  queue.Submit(Work({.units = 100}));
  std::uint64_t dealt = 0;
  while (dealt < 100) {
    const Claim claim = *queue.Next();
    EXPECT_LE(claim.units, std::max<std::uint64_t>(1, (100 - dealt) / 8));
    dealt += claim.units;
    FinishAll(queue, claim);
  }
}

TEST(WorkQueue, SecondWorkOfAStreamWaitsForTheFirst) {
  WorkQueue queue(1, {});
  queue.Submit(Work({.id = 1, .stream = 1, .units = 1}));
  queue.Submit(Work({.id = 2, .stream = 1, .priority = 9, .units = 1}));
  queue.Submit(Work({.id = 3, .stream = 2, .units = 1}));
  const Claim first = *queue.Next();
  EXPECT_EQ(first.work->header().id, 1U);
  const Claim other = *queue.Next();
  EXPECT_EQ(other.work->header().id, 3U);
  FinishAll(queue, first);
  const Claim second = *queue.Next();
  EXPECT_EQ(second.work->header().id, 2U);
  FinishAll(queue, second);
  FinishAll(queue, other);
}

TEST(WorkQueue, HigherPriorityThenOlderWorkIsDealtFirst) {
  WorkQueue queue(1, {});
  queue.Submit(Work({.id = 1, .stream = 1, .priority = 1}));
  queue.Submit(Work({.id = 2, .stream = 2, .priority = 2}));
  queue.Submit(Work({.id = 3, .stream = 3, .priority = 2}));
  for (const WorkId expected : {2U, 3U, 1U}) {
    const Claim claim = *queue.Next();
    EXPECT_EQ(claim.work->header().id, expected);
    FinishAll(queue, claim);
  }
}

TEST(WorkQueue, UnitsLeftBecauseOfAStopGoBackFromTheEndOnly) {
  WorkQueue queue(2, {});
  queue.Submit(Work({.id = 1, .units = 10}));
  const Claim first = *queue.Next();
  const Claim second = *queue.Next();
  ASSERT_EQ(first.first_unit, 0U);
  ASSERT_EQ(second.first_unit, 1U);
  queue.RequestStop(1);
  // Unit 0 has not run, but unit 1 is another thread's already: 0 must run after all.
  EXPECT_FALSE(queue.Finish(first, 0, Status()));
  FinishAll(queue, first);
  EXPECT_TRUE(queue.Finish(second, 1, Status()));
  const Completion completion = TakeOne(queue);
  EXPECT_TRUE(completion.stopped);
  EXPECT_EQ(completion.units_done, 1U);
}

TEST(WorkQueue, WorkWhoseLastUnitIsDealtIsNotStopped) {
  WorkQueue queue(1, {});
  queue.Submit(Work({.id = 1, .units = 1}));
  const Claim claim = *queue.Next();
  queue.RequestStop(1);
  EXPECT_FALSE(HasCompletion(queue));
  FinishAll(queue, claim);
  const Completion completion = TakeOne(queue);
  EXPECT_FALSE(completion.stopped);
  EXPECT_EQ(completion.units_done, 1U);
}

// The head has nothing left to deal, but it still runs.
TEST(WorkQueue, RequestForWaitingWorkDoesNotEndTheHeadOfItsStream) {
  WorkQueue queue(1, {});
  queue.Submit(Work({.id = 1}));
  queue.Submit(Work({.id = 2}));
  queue.Submit(Work({.id = 3}));
  const Claim claim = *queue.Next();
  queue.RequestStop(2);
  queue.RequestKill(3);
  EXPECT_FALSE(HasCompletion(queue));
  FinishAll(queue, claim);
  EXPECT_EQ(TakeOne(queue).id, 1U);
  EXPECT_TRUE(TakeOne(queue).stopped);
  EXPECT_EQ(TakeOne(queue).status.code(), StatusCode::kCancelled);
}

TEST(WorkQueue, FailedUnitEndsTheWorkAndTellsTheOthersToAbandonIt) {
  WorkQueue queue(2, {});
  queue.Submit(Work({.id = 1, .units = 10}));
  const Claim first = *queue.Next();
  const Claim second = *queue.Next();
  EXPECT_TRUE(queue.Finish(first, 0, Status(StatusCode::kKernelFault, "first")));
  EXPECT_TRUE(second.work->abandon.load());
  EXPECT_FALSE(HasCompletion(queue));
  EXPECT_TRUE(queue.Finish(second, 1, Status(StatusCode::kKernelFault, "second")));
  EXPECT_EQ(TakeOne(queue).status.message(), "first");
}

TEST(WorkQueue, KilledWorkCompletesWhenItsLastClaimReturns) {
  WorkQueue queue(1, {});
  queue.Submit(Work({.id = 1, .units = 10}));
  const Claim claim = *queue.Next();
  queue.RequestKill(1);
  EXPECT_FALSE(HasCompletion(queue));
  EXPECT_TRUE(queue.Finish(claim, 0, Status()));
  EXPECT_EQ(TakeOne(queue).status.code(), StatusCode::kCancelled);
}

TEST(WorkQueue, RefusedWorkCompletesInItsTurn) {
  WorkQueue queue(1, {});
  queue.Submit(Work({.id = 1, .units = 1}));
  FillWork refused;
  refused.id = 2;
  refused.stream = 1;
  queue.Submit(std::make_unique<QueuedWork>(refused, 5, Status(StatusCode::kUnsupported, "no")));
  EXPECT_FALSE(HasCompletion(queue));
  FinishAll(queue, *queue.Next());
  EXPECT_EQ(TakeOne(queue).id, 1U);
  EXPECT_EQ(TakeOne(queue).status.code(), StatusCode::kUnsupported);
}

TEST(WorkQueue, WakesOnceUntilItIsFoundEmpty) {
  int wakes = 0;
  WorkQueue queue(1, [&wakes] { ++wakes; });
  for (WorkId id = 1; id <= 3; ++id) queue.Submit(Work({.id = id, .units = 0}));
  EXPECT_EQ(wakes, 1);
  TakeOne(queue);
  queue.Submit(Work({.id = 4, .units = 0}));
  EXPECT_EQ(wakes, 1) << "a full answer does not ask for a wake";
  std::array<Completion, 8> out;
  EXPECT_EQ(queue.TakeCompletions(out), 3U);
  queue.Submit(Work({.id = 5, .units = 0}));
  EXPECT_EQ(wakes, 2);
}

TEST(WorkQueue, CloseEndsEveryWait) {
  WorkQueue queue(2, {});
  std::array<std::thread, 2> threads;
  for (std::thread& thread : threads) {
    thread = std::thread([&queue] { EXPECT_FALSE(queue.Next().has_value()); });
  }
  queue.Close();
  for (std::thread& thread : threads) thread.join();
}

// Four threads, random stops and kills: each unit at most once, the reported prefix
// exactly, each work completed once.
TEST(WorkQueue, PrefixIsExactUnderConcurrency) {
  constexpr WorkId kWorks = 200;
  constexpr std::uint64_t kUnits = 300;
  std::atomic<int> wakes{0};
  WorkQueue queue(4, [&wakes] { ++wakes; });
  std::vector<std::vector<std::atomic<int>>> runs(kWorks + 1);
  for (auto& units : runs) units = std::vector<std::atomic<int>>(kUnits);
  const auto run_threads = [&queue, &runs] {
    while (const auto claim = queue.Next()) {
      const std::uint64_t end = claim->first_unit + claim->units;
      std::uint64_t next = claim->first_unit;
      bool may_stop = true;
      do {
        while (next < end && !(may_stop && claim->work->stop.load())) {
          ++runs[claim->work->header().id][next++];
        }
        may_stop = false;
      } while (!queue.Finish(*claim, next, Status()));
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back(run_threads);
  std::mt19937 random(5);
  for (WorkId id = 1; id <= kWorks; ++id) {
    queue.Submit(Work({.id = id, .stream = random() % 5, .units = kUnits}));
    queue.RequestStop(1 + random() % id);
  }
  std::vector<int> completions(kWorks + 1);
  for (WorkId taken = 0; taken < kWorks;) {
    std::array<Completion, 16> out;
    const std::size_t count = queue.TakeCompletions(out);
    for (std::size_t i = 0; i < count; ++i, ++taken) {
      ++completions[out[i].id];
      for (std::uint64_t unit = 0; unit < kUnits; ++unit) {
        ASSERT_EQ(runs[out[i].id][unit], unit < out[i].units_done ? 1 : 0)
            << "work " << out[i].id << " unit " << unit;
      }
    }
    if (count == 0) std::this_thread::yield();
  }
  queue.Close();
  for (std::thread& thread : threads) thread.join();
  for (WorkId id = 1; id <= kWorks; ++id) EXPECT_EQ(completions[id], 1);
  EXPECT_GT(wakes, 0);
}

// Units that wait for later ones must get them, or they would never end.
TEST(WorkQueue, AClaimGrowsByTheUnitBehindItAndIsDoneWithIt) {
  WorkQueue queue(2, {});
  queue.Submit(Work({.id = 1, .units = 4}));
  Claim first = *queue.Next();
  EXPECT_TRUE(queue.Extend(&first));
  EXPECT_EQ(first.units, 2U);
  const Claim second = *queue.Next();
  EXPECT_EQ(second.first_unit, 2U);
  EXPECT_FALSE(queue.Extend(&first));  // Unit 2 is dealt.
  Claim last = *queue.Next();
  EXPECT_FALSE(queue.Extend(&last));  // There is no unit 4.
  FinishAll(queue, first);
  FinishAll(queue, second);
  FinishAll(queue, last);
  EXPECT_EQ(TakeOne(queue).units_done, 4U);
}

TEST(WorkQueue, AKilledClaimDoesNotGrow) {
  WorkQueue queue(1, {});
  queue.Submit(Work({.id = 1, .units = 4}));
  Claim claim = *queue.Next();
  queue.RequestKill(1);
  EXPECT_FALSE(queue.Extend(&claim));
  FinishAll(queue, claim);
}

TEST(WorkQueue, StandsStillWhileNobodyTakesWhatHasEnded) {
  WorkQueue queue(1, {});
  std::thread late([&] { FinishAll(queue, *queue.Next()); });
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  EXPECT_EQ(queue.stood_still().count(), 0) << "there was nothing to do";
  queue.Submit(Work({}));
  late.join();
  const std::chrono::nanoseconds before = queue.stood_still();

  // It has ended, and nobody takes it.
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  TakeOne(queue);
  const std::chrono::nanoseconds after = queue.stood_still();
  EXPECT_GE(after - before, std::chrono::milliseconds(29));
  EXPECT_FALSE(HasCompletion(queue));
  EXPECT_EQ(queue.stood_still(), after) << "each moment counts once";
}

TEST(WorkQueue, StandsStillUntilTheFirstThreadComes) {
  WorkQueue queue(2, {});
  queue.Submit(Work({.units = 4}));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const Claim first = *queue.Next();
  const std::chrono::nanoseconds before = queue.stood_still();
  EXPECT_GE(before, std::chrono::milliseconds(19));

  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const Claim second = *queue.Next();
  EXPECT_EQ(queue.stood_still(), before) << "one thread ran";
  const DeviceClock::time_point start = DeviceClock::now();
  FinishAll(queue, first);
  FinishAll(queue, second);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const Claim third = *queue.Next();
  const std::chrono::nanoseconds after = queue.stood_still();
  EXPECT_GE(after - before, std::chrono::milliseconds(19));
  EXPECT_LE(after - before, DeviceClock::now() - start) << "before that, threads ran";
  FinishAll(queue, third);
}

TEST(WorkQueue, StoodStillForWhatIsStoppedBeforeAnyThreadCame) {
  WorkQueue queue(1, {});
  queue.Submit(Work({}));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  queue.RequestStop(1);
  EXPECT_GE(queue.stood_still(), std::chrono::milliseconds(19));
  EXPECT_TRUE(TakeOne(queue).stopped);
}

}  // namespace
}  // namespace gpushared::device
