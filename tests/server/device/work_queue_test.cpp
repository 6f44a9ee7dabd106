// SPDX-License-Identifier: Apache-2.0
#include "server/device/cpu/work_queue.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <span>
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

std::shared_ptr<QueuedWork> Work(const WorkSpec& spec) {
  FillWork work;
  work.id = spec.id;
  work.stream = spec.stream;
  work.priority = spec.priority;
  work.first_unit = spec.first_unit;
  return std::make_shared<QueuedWork>(work, spec.units, Status());
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

void Finish(WorkQueue& queue, const Claim& claim) { queue.Finish(claim, Status()); }

TEST(WorkQueue, UnitsAreDealtInAscendingOrder) {
  WorkQueue queue(1, {});
  queue.Submit(Work({.first_unit = 3, .units = 7}));
  const Claim claim = *queue.Next();
  EXPECT_EQ(claim.unit, 3U);
  for (const std::uint64_t unit : {4U, 5U, 6U}) EXPECT_EQ(queue.Continue(claim), unit);
  EXPECT_FALSE(queue.Continue(claim));
  Finish(queue, claim);
  const Completion completion = TakeOne(queue);
  EXPECT_EQ(completion.units_done, 7U);
  EXPECT_FALSE(completion.stopped);
}

// The thread checks after every unit, because the next one may be long however short the previous
// ones were.
TEST(WorkQueue, ThreadSwitchesToMoreUrgentWorkAfterOneUnit) {
  WorkQueue queue(1, {});
  queue.Submit(Work({.id = 1, .stream = 1, .priority = 1, .units = 1000}));
  const Claim low = *queue.Next();
  for (int i = 0; i < 500; ++i) EXPECT_TRUE(queue.Continue(low));
  queue.Submit(Work({.id = 2, .stream = 2, .priority = 1, .units = 1}));
  EXPECT_TRUE(queue.Continue(low)) << "what is younger waits";
  queue.Submit(Work({.id = 3, .stream = 3, .priority = 2, .units = 2}));
  EXPECT_FALSE(queue.Continue(low));
  Finish(queue, low);
  const Claim high = *queue.Next();
  EXPECT_EQ(high.work->header().id, 3U);
  EXPECT_TRUE(queue.Continue(high));
  Finish(queue, high);
  const Claim again = *queue.Next();
  EXPECT_EQ(again.work->header().id, 1U);
  EXPECT_EQ(again.unit, 502U);
  Finish(queue, again);
}

// A thread that sleeps in the kernel on a client's behalf may sleep as long as the client chooses.
TEST(WorkQueue, SpareThreadRunsUrgentWorkWhenOthersAreStuck) {
  WorkQueue queue(1, {});
  queue.Submit(Work({.id = 1, .stream = 1, .priority = 1, .units = 10}));
  const Claim stuck = *queue.Next();
  for (const WorkId urgent : {2U, 3U}) {
    queue.Submit(Work({.id = urgent, .stream = urgent, .priority = 2}));
    const Claim claim = *queue.NextOfSpare();
    EXPECT_EQ(claim.work->header().id, urgent);
    Finish(queue, claim);
    EXPECT_EQ(TakeOne(queue).id, urgent);
  }
  Finish(queue, stuck);
}

// If the spare thread took other work, two threads would run on one core.
TEST(WorkQueue, SpareThreadTakesOnlyUrgentWork) {
  WorkQueue queue(2, {}, std::chrono::nanoseconds(0));
  std::atomic<int> taken{0};
  std::thread spare([&] {
    while (const std::optional<Claim> claim = queue.NextOfSpare()) {
      ++taken;
      Finish(queue, *claim);
    }
  });
  queue.Submit(Work({.id = 1, .stream = 1, .priority = 1, .units = 10}));
  const Claim first = *queue.Next();
  // So far, no queued work is more urgent than the running work.
  queue.Submit(Work({.id = 2, .stream = 2, .priority = 1, .units = 10}));
  queue.Submit(Work({.id = 3, .stream = 3, .priority = 0, .units = 10}));
  const Claim second = *queue.Next();
  EXPECT_FALSE(HasCompletion(queue));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(taken, 0);
  // Now urgent work is queued, and all ordinary threads have other work.
  queue.Submit(Work({.id = 4, .stream = 4, .priority = 2}));
  while (!HasCompletion(queue)) std::this_thread::yield();
  EXPECT_EQ(taken, 1);
  Finish(queue, first);
  Finish(queue, second);
  queue.Close();
  spare.join();
}

// The spare thread takes only work for which no other thread is free, so at the end of this work it
// must wake an idle thread for the next work of the stream.
TEST(WorkQueue, IdleThreadTakesWorkAfterSpareThreads) {
  WorkQueue queue(1, {}, std::chrono::nanoseconds(0));
  queue.Submit(Work({.id = 1, .stream = 1, .priority = 1}));
  const Claim low = *queue.Next();
  queue.Submit(Work({.id = 2, .stream = 2, .priority = 2}));
  queue.Submit(Work({.id = 3, .stream = 2, .priority = 2}));
  const Claim urgent = *queue.NextOfSpare();
  Finish(queue, low);
  std::atomic<bool> has_slept{false};
  const std::function<void()> rest = [&] { has_slept = true; };
  std::thread idle([&] {
    const Claim next = *queue.Next(nullptr, &rest);
    EXPECT_EQ(next.work->header().id, 3U);
    Finish(queue, next);
  });
  // The idle thread calls `rest` once when it begins to wait.
  while (!has_slept) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  Finish(queue, urgent);
  idle.join();  // Would never end without a wake-up, because the wait has no time-out.
}

// The spare thread waits again, because a thread that has come back may be blocked again later.
TEST(WorkQueue, SpareThreadWaitsAgainWhenAnotherThreadReturns) {
  constexpr std::chrono::milliseconds kPatience{500};
  WorkQueue queue(1, {}, kPatience);
  queue.Submit(Work({.id = 1, .stream = 1, .priority = 1, .units = 10}));
  const Claim stuck = *queue.Next();
  queue.Submit(Work({.id = 2, .stream = 2, .priority = 2}));
  Finish(queue, *queue.NextOfSpare());
  EXPECT_EQ(TakeOne(queue).id, 2U);
  Finish(queue, stuck);
  const Claim again = *queue.Next();
  EXPECT_EQ(again.work->header().id, 1U);
  const DeviceClock::time_point begun = DeviceClock::now();
  queue.Submit(Work({.id = 3, .stream = 3, .priority = 2}));
  Finish(queue, *queue.NextOfSpare());
  EXPECT_GE(DeviceClock::now() - begun, kPatience);
  Finish(queue, again);
}

TEST(WorkQueue, NoThreadSwitchesToFullyDealtWork) {
  WorkQueue queue(2, {});
  queue.Submit(Work({.id = 1, .stream = 1, .priority = 2, .units = 2}));
  const Claim high = *queue.Next();
  EXPECT_TRUE(queue.Continue(high));
  queue.Submit(Work({.id = 2, .stream = 2, .units = 10}));
  const Claim low = *queue.Next();
  EXPECT_EQ(low.work->header().id, 2U);
  EXPECT_TRUE(queue.Continue(low));
  Finish(queue, high);
  Finish(queue, low);
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
  Finish(queue, first);
  const Claim second = *queue.Next();
  EXPECT_EQ(second.work->header().id, 2U);
  Finish(queue, second);
  Finish(queue, other);
}

TEST(WorkQueue, HigherPriorityThenOlderWorkIsDealtFirst) {
  WorkQueue queue(1, {});
  queue.Submit(Work({.id = 1, .stream = 1, .priority = 1}));
  queue.Submit(Work({.id = 2, .stream = 2, .priority = 2}));
  queue.Submit(Work({.id = 3, .stream = 3, .priority = 2}));
  for (const WorkId expected : {2U, 3U, 1U}) {
    const Claim claim = *queue.Next();
    EXPECT_EQ(claim.work->header().id, expected);
    Finish(queue, claim);
  }
}

TEST(WorkQueue, StoppedWorkEndsWithDealtUnits) {
  WorkQueue queue(2, {});
  queue.Submit(Work({.id = 1, .units = 10}));
  const Claim first = *queue.Next();
  const Claim second = *queue.Next();
  EXPECT_EQ(queue.Continue(first), 2U);
  queue.RequestStop(1);
  EXPECT_FALSE(queue.Continue(first));
  EXPECT_FALSE(queue.Continue(second));
  Finish(queue, first);
  EXPECT_FALSE(HasCompletion(queue));
  Finish(queue, second);
  const Completion completion = TakeOne(queue);
  EXPECT_TRUE(completion.stopped);
  EXPECT_EQ(completion.units_done, 3U);
}

TEST(WorkQueue, WorkWhoseLastUnitIsDealtIsNotStopped) {
  WorkQueue queue(1, {});
  queue.Submit(Work({.id = 1, .units = 1}));
  const Claim claim = *queue.Next();
  queue.RequestStop(1);
  EXPECT_FALSE(HasCompletion(queue));
  Finish(queue, claim);
  const Completion completion = TakeOne(queue);
  EXPECT_FALSE(completion.stopped);
  EXPECT_EQ(completion.units_done, 1U);
}

// The head has dealt out all units, but they are still running.
TEST(WorkQueue, RequestForWaitingWorkDoesNotEndTheHeadOfItsStream) {
  WorkQueue queue(1, {});
  queue.Submit(Work({.id = 1}));
  queue.Submit(Work({.id = 2}));
  queue.Submit(Work({.id = 3}));
  const Claim claim = *queue.Next();
  queue.RequestStop(2);
  queue.RequestKill(3);
  EXPECT_FALSE(HasCompletion(queue));
  Finish(queue, claim);
  EXPECT_EQ(TakeOne(queue).id, 1U);
  EXPECT_TRUE(TakeOne(queue).stopped);
  EXPECT_EQ(TakeOne(queue).status.code(), StatusCode::kCancelled);
}

TEST(WorkQueue, FailedUnitEndsWorkAndOtherUnits) {
  WorkQueue queue(2, {});
  queue.Submit(Work({.id = 1, .units = 10}));
  const Claim first = *queue.Next();
  const Claim second = *queue.Next();
  queue.Finish(first, Status(StatusCode::kKernelFault, "first"));
  EXPECT_TRUE(second.work->abandon.load());
  EXPECT_FALSE(queue.Continue(second));
  EXPECT_FALSE(HasCompletion(queue));
  queue.Finish(second, Status(StatusCode::kKernelFault, "second"));
  EXPECT_EQ(TakeOne(queue).status.message(), "first");
}

TEST(WorkQueue, KilledWorkCompletesWhenItsLastClaimReturns) {
  WorkQueue queue(1, {});
  queue.Submit(Work({.id = 1, .units = 10}));
  const Claim claim = *queue.Next();
  queue.RequestKill(1);
  EXPECT_FALSE(HasCompletion(queue));
  EXPECT_FALSE(queue.Continue(claim));
  Finish(queue, claim);
  EXPECT_EQ(TakeOne(queue).status.code(), StatusCode::kCancelled);
}

TEST(WorkQueue, RejectedWorkCompletesInOrder) {
  WorkQueue queue(1, {});
  queue.Submit(Work({.id = 1, .units = 1}));
  FillWork rejected;
  rejected.id = 2;
  rejected.stream = 1;
  queue.Submit(std::make_unique<QueuedWork>(rejected, 5, Status(StatusCode::kUnsupported, "no")));
  EXPECT_FALSE(HasCompletion(queue));
  Finish(queue, *queue.Next());
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

TEST(WorkQueue, IdleThreadRestsOncePerIdlePeriod) {
  WorkQueue queue(1, {});
  std::atomic<int> rests = 0;
  std::thread thread([&] {
    const std::function<void()> rest = [&] { ++rests; };
    for (int i = 0; i < 2; ++i) {
      const auto claim = queue.Next(nullptr, &rest);
      ASSERT_TRUE(claim);
      Finish(queue, *claim);
    }
  });
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (rests == 0 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  std::this_thread::sleep_for(2 * kIdleAfter);
  EXPECT_EQ(rests, 1);
  queue.Submit(Work({.id = 1}));
  queue.Submit(Work({.id = 2}));
  thread.join();
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

// Every node is work of one unit.
class Nodes : public NodeMaker {
 public:
  std::shared_ptr<QueuedWork> MakeNode(const GraphWork& graph,
                                       std::size_t /*node*/) const override {
    return Work({.id = graph.id, .stream = graph.stream});
  }
};

GraphWork GetGraph(std::span<const GraphNode* const> nodes) {
  GraphWork graph;
  graph.id = 1;
  graph.stream = 1;
  graph.nodes = nodes;
  return graph;
}

TEST(WorkQueue, GraphStoppedDuringNodeEndsAfterThatNode) {
  const Nodes maker;
  const GraphNode fill = FillWork();
  const std::vector<const GraphNode*> nodes(5, &fill);
  WorkQueue queue(1, {});
  queue.Submit(GetGraph(nodes), maker);
  Finish(queue, *queue.Next());
  const Claim second = *queue.Next();
  queue.RequestStop(1);
  EXPECT_FALSE(HasCompletion(queue)) << "the node that has begun runs to its end";
  Finish(queue, second);
  const Completion completion = TakeOne(queue);
  EXPECT_TRUE(completion.stopped);
  EXPECT_EQ(completion.units_done, 2U);
}

TEST(WorkQueue, GraphStoppedInLastNodeIsComplete) {
  const Nodes maker;
  const GraphNode fill = FillWork();
  const std::vector<const GraphNode*> nodes(2, &fill);
  WorkQueue queue(1, {});
  queue.Submit(GetGraph(nodes), maker);
  Finish(queue, *queue.Next());
  const Claim last = *queue.Next();
  queue.RequestStop(1);
  Finish(queue, last);
  const Completion completion = TakeOne(queue);
  EXPECT_FALSE(completion.stopped);
  EXPECT_EQ(completion.units_done, 2U);
}

// Four threads with random stops: each unit runs at most once, the reported prefix is exact, and
// each work item completes once.
TEST(WorkQueue, PrefixIsExactUnderConcurrency) {
  constexpr WorkId kWorks = 200;
  constexpr std::uint64_t kUnits = 300;
  std::atomic<int> wakes{0};
  WorkQueue queue(4, [&wakes] { ++wakes; });
  std::vector<std::vector<std::atomic<int>>> runs(kWorks + 1);
  for (auto& units : runs) units = std::vector<std::atomic<int>>(kUnits);
  const auto run_threads = [&queue, &runs] {
    while (const auto claim = queue.Next()) {
      std::optional<std::uint64_t> unit = claim->unit;
      for (; unit; unit = queue.Continue(*claim)) ++runs[claim->work->header().id][*unit];
      Finish(queue, *claim);
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

// Units may wait for later units. The claim must then grow by the later units, because its units
// would otherwise never end.
TEST(WorkQueue, ClaimGrowsByUnitsThatNoThreadTakes) {
  WorkQueue queue(2, {});
  queue.Submit(Work({.id = 1, .units = 4}));
  const Claim first = *queue.Next();
  EXPECT_EQ(queue.Extend(first), 1U);
  const Claim second = *queue.Next();
  EXPECT_EQ(second.unit, 2U);
  EXPECT_EQ(queue.Extend(first), 3U);
  EXPECT_FALSE(queue.Extend(first));  // Unit 4 does not exist.
  Finish(queue, first);
  Finish(queue, second);
  EXPECT_EQ(TakeOne(queue).units_done, 4U);
}

// Begun work must finish, and no other thread takes units of stopped work.
TEST(WorkQueue, StoppedClaimGrowsDespiteIdleThread) {
  WorkQueue queue(2, {});
  queue.Submit(Work({.id = 1, .units = 4}));
  const Claim claim = *queue.Next();
  queue.RequestStop(1);
  std::thread idle([&queue] { EXPECT_FALSE(queue.Next().has_value()); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(queue.Extend(claim), 1U);
  Finish(queue, claim);
  EXPECT_EQ(TakeOne(queue).units_done, 2U);
  queue.Close();
  idle.join();
}

TEST(WorkQueue, AKilledClaimDoesNotGrow) {
  WorkQueue queue(1, {});
  queue.Submit(Work({.id = 1, .units = 4}));
  const Claim claim = *queue.Next();
  queue.RequestKill(1);
  EXPECT_FALSE(queue.Extend(claim));
  Finish(queue, claim);
}

TEST(WorkQueue, CountsIdleTimeUntilCompletionIsTaken) {
  WorkQueue queue(1, {});
  std::thread late([&] { Finish(queue, *queue.Next()); });
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  EXPECT_EQ(queue.stalled().count(), 0) << "there was nothing to do";
  queue.Submit(Work({}));
  late.join();
  const std::chrono::nanoseconds before = queue.stalled();

  // The work has ended, so no thread takes further units.
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  TakeOne(queue);
  const std::chrono::nanoseconds after = queue.stalled();
  EXPECT_GE(after - before, std::chrono::milliseconds(29));
  EXPECT_FALSE(HasCompletion(queue));
  EXPECT_EQ(queue.stalled(), after) << "each moment counts once";
}

TEST(WorkQueue, CountsIdleTimeUntilFirstThreadStarts) {
  WorkQueue queue(2, {});
  queue.Submit(Work({.units = 4}));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const Claim first = *queue.Next();
  const std::chrono::nanoseconds before = queue.stalled();
  EXPECT_GE(before, std::chrono::milliseconds(19));

  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const Claim second = *queue.Next();
  EXPECT_EQ(queue.stalled(), before) << "one thread ran";
  const DeviceClock::time_point start = DeviceClock::now();
  Finish(queue, first);
  Finish(queue, second);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const Claim third = *queue.Next();
  const std::chrono::nanoseconds after = queue.stalled();
  EXPECT_GE(after - before, std::chrono::milliseconds(19));
  EXPECT_LE(after - before, DeviceClock::now() - start) << "before that, threads ran";
  Finish(queue, third);
}

TEST(WorkQueue, CountsIdleTimeOfWorkStoppedBeforeItStarts) {
  WorkQueue queue(1, {});
  queue.Submit(Work({}));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  queue.RequestStop(1);
  EXPECT_GE(queue.stalled(), std::chrono::milliseconds(19));
  EXPECT_TRUE(TakeOne(queue).stopped);
}

// ---- thread boosts

// Records the value to which the calling thread's boost was last set.
struct Stood {
  Stood() {
    executor.Begin();
    EXPECT_TRUE(is_ahead);
  }
  std::atomic<bool> is_ahead = false;
  std::atomic<int> changes = 0;
  PrioritizeFunction prioritize = [this](pid_t thread, bool ahead) {
    EXPECT_EQ(thread, ::gettid());
    is_ahead = ahead;
    ++changes;
  };
  ExecutorPriority executor{prioritize};
};

// The thread that promotes another may be faster than the promoted thread itself.
TEST(ExecutorPriority, LastChangeWins) {
  bool is_ahead = false, is_overtaken = true;
  ExecutorPriority* called = nullptr;
  const PrioritizeFunction prioritize = [&](pid_t, bool ahead) {
    if (!ahead && std::exchange(is_overtaken, false)) called->Promote();
    is_ahead = ahead;
  };
  ExecutorPriority executor(prioritize);
  called = &executor;
  executor.Begin();
  executor.Demote();
  EXPECT_TRUE(is_ahead);
  EXPECT_FALSE(executor.is_demoted());
  executor.Demote();
  EXPECT_FALSE(is_ahead);
}

class QueueOfPriorities : public ::testing::Test {
 protected:
  QueueOfPriorities() { queue_.Enlist(executor_.executor); }
  Claim Next() { return *queue_.Next(nullptr, nullptr, &executor_.executor); }
  // Submits work of one unit, takes it and runs it.
  void Run(WorkId id, std::uint8_t priority) {
    queue_.Submit(Work({.id = id, .stream = id, .priority = priority}));
    const Claim claim = Next();
    EXPECT_EQ(claim.work->header().id, id);
    Finish(queue_, claim);
  }
  // Takes a unit of priority 1 after work of priority 2.
  Claim TakeLow() {
    Run(1, 2);
    queue_.Submit(Work({.id = 2, .stream = 2, .priority = 1, .units = 10}));
    Claim low = Next();
    EXPECT_EQ(low.work->header().id, 2U);
    EXPECT_FALSE(executor_.is_ahead);
    return low;
  }

  Stood executor_;
  WorkQueue queue_{1, {}};
};

TEST_F(QueueOfPriorities, IsBoostedUntilMoreUrgentWorkArrives) {
  Run(1, 0);
  Run(2, 1);
  Run(3, 1);
  EXPECT_TRUE(executor_.is_ahead);
  EXPECT_EQ(executor_.changes, 1) << "at its beginning";
}

TEST_F(QueueOfPriorities, IsDemotedForWorkLessUrgentThanRecent) {
  const Claim low = TakeLow();
  Finish(queue_, low);
  const int before = executor_.changes;
  const Claim still_low = Next();
  EXPECT_EQ(executor_.changes, before) << "told once";
  Finish(queue_, still_low);
  Run(3, 2);
  EXPECT_TRUE(executor_.is_ahead);
}

// The submitter promotes the thread, because a thread without a core cannot notice the arrival of
// urgent work.
TEST_F(QueueOfPriorities, UrgentWorkPromotesThreadsOfLessUrgentWork) {
  const Claim low = TakeLow();
  queue_.Submit(Work({.id = 3, .stream = 3, .priority = 1}));
  EXPECT_FALSE(executor_.is_ahead) << "it waits as well";
  queue_.Submit(Work({.id = 4, .stream = 4, .priority = 2}));
  EXPECT_TRUE(executor_.is_ahead);
  Finish(queue_, low);
}

TEST_F(QueueOfPriorities, EndingWorkIsPromoted) {
  Claim low = TakeLow();
  queue_.RequestStop(7);
  EXPECT_FALSE(executor_.is_ahead) << "that is other work";
  queue_.RequestStop(2);
  EXPECT_TRUE(executor_.is_ahead);
  Finish(queue_, low);
  EXPECT_EQ(TakeOne(queue_).id, 1U);

  queue_.Submit(Work({.id = 5, .stream = 5, .priority = 1, .units = 10}));
  low = Next();
  EXPECT_FALSE(executor_.is_ahead);
  queue_.RequestKill(5);
  EXPECT_TRUE(executor_.is_ahead);
  Finish(queue_, low);
}

TEST_F(QueueOfPriorities, BoostsThreadWithoutWork) {
  const Claim low = TakeLow();
  queue_.RequestKill(2);
  Finish(queue_, low);
  queue_.Submit(Work({.id = 5, .stream = 5, .priority = 1}));
  Finish(queue_, Next());
  EXPECT_FALSE(executor_.is_ahead);
  std::thread closer([&] {
    while (!executor_.is_ahead) std::this_thread::yield();
    queue_.Close();
  });
  EXPECT_FALSE(queue_.Next(nullptr, nullptr, &executor_.executor));
  closer.join();
}

}  // namespace
}  // namespace gpushared::device
