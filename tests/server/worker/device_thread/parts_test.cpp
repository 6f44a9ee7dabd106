// SPDX-License-Identifier: Apache-2.0
// The small components of the device thread, one at a time.
#include <fcntl.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <random>
#include <span>
#include <string_view>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "ipc/doorbell.h"
#include "ipc/shared_segment.h"
#include "server/worker/intake/ring_visits.h"
#include "server/worker/output/kernel_watch.h"
#include "server/worker/output/mailbox.h"
#include "server/worker/output/waiter_wakes.h"
#include "server/worker/state/client_streams.h"
#include "server/worker/state/command_scope.h"
#include "server/worker/state/command_slab.h"
#include "server/worker/state/log_histogram.h"
#include "server/worker/state/spin_times.h"
#include "tests/support/null_device.h"

namespace gpushared::server {
namespace {

using namespace std::chrono_literals;

// A client's ring. A visit takes the time `takes`.
struct Visited {
  bool is_urgent = false;
  scheduler::Duration takes{};
  bool has_something = true;
  int visits = 0;
};

TEST(SpinTimesTest, ThreadsSpinForMillisecondsOnSpareCores) {
  constexpr SpinTimes kFew{.budget = 50us}, kMany{.budget = 50us, .has_spare_cores = true};
  for (const bool polls : {false, true}) {
    EXPECT_EQ(kMany.OfDeviceThread(polls, false), 1ms);
    EXPECT_EQ(kMany.OfDeviceThread(polls, true), 6ms);
  }
  EXPECT_EQ(kFew.OfDeviceThread(true, false), 1ms) << "the device is asked without pause";
  EXPECT_EQ(kFew.OfDeviceThread(true, true), 6ms);
  EXPECT_EQ(kFew.OfDeviceThread(false, false), 50us);
  EXPECT_EQ(kFew.OfDeviceThread(false, true), 200us);

  EXPECT_EQ(kMany.OfClient(SchedulingClass::kHigh), 6ms);
  EXPECT_EQ(kMany.OfClient(SchedulingClass::kLow), 1ms);
  EXPECT_EQ(kFew.OfClient(SchedulingClass::kHigh), 50us);
}

TEST(SpinTimesTest, NeverSpinsOnExecutorCores) {
  device::DeviceInfo info;
  info.spinning_pays = false;
  const SpinTimes none = SpinTimes::For(info);
  EXPECT_EQ(none.OfDeviceThread(true, true), 0us);
  EXPECT_EQ(none.OfClient(SchedulingClass::kHigh), 0us);
}

class RingVisitsTest : public ::testing::Test {
 protected:
  void Add(const Visited& client) { clients_.push_back(client); }
  // Visits the rings once and returns how long that took.
  scheduler::Duration Turn() {
    std::vector<Visited*> all;
    for (Visited& client : clients_) all.push_back(&client);
    const scheduler::TimePoint before = now_;
    visits_.Turn(
        std::span<Visited* const>(all), [](const Visited& client) { return client.is_urgent; },
        [this](Visited& client) {
          if (!client.has_something) return false;
          ++client.visits;
          now_ += client.takes;
          return true;
        },
        [this] { return now_; });
    return now_ - before;
  }

  std::vector<Visited> clients_;
  RingVisits visits_;
  scheduler::TimePoint now_{1s};
};

TEST_F(RingVisitsTest, FloodsDelayUrgentClientForBoundedTimePerIteration) {
  for (int i = 0; i < 60; ++i) Add({.takes = 40us});
  Add({.is_urgent = true, .takes = 10us});
  for (int turn = 1; turn <= 200; ++turn) {
    EXPECT_LE(Turn(), 10us + RingVisits::kOthersPerTurn + 40us);
    EXPECT_EQ(clients_.back().visits, turn) << "each turn begins with it";
  }
}

TEST_F(RingVisitsTest, ReportsWhetherIterationHitBound) {
  Add({.takes = 40us});
  Add({.is_urgent = true, .takes = 400us});
  Turn();
  EXPECT_FALSE(visits_.was_cut());
  for (int i = 0; i < 2; ++i) Add({.takes = 40us});
  Turn();
  EXPECT_TRUE(visits_.was_cut());
  for (Visited& client : clients_) client.has_something = false;
  Turn();
  EXPECT_FALSE(visits_.was_cut());
}

TEST_F(RingVisitsTest, VisitsAllClientsEquallyOften) {
  for (int i = 0; i < 7; ++i) Add({.takes = 60us});
  for (int turn = 0; turn < 700; ++turn) Turn();
  for (const Visited& client : clients_) EXPECT_NEAR(client.visits, 200, 2);
}

TEST_F(RingVisitsTest, IdleClientsAddNoOverhead) {
  Add({.takes = 10us});
  for (int i = 0; i < 63; ++i) Add({.takes = 10us, .has_something = false});
  for (int turn = 1; turn <= 100; ++turn) {
    EXPECT_EQ(Turn(), 10us);
    EXPECT_EQ(clients_.front().visits, turn);
  }
}

TEST(WaiterWakes, WakesAllSleepersAlternatingBetweenClients) {
  constexpr std::uint32_t kThreads = 100;
  std::array<std::atomic<std::uint32_t>, 2> futexes = {0, 0};
  std::atomic<std::uint32_t> begun{0}, awake{0};
  std::vector<std::thread> threads;
  for (std::uint32_t i = 0; i < 2 * kThreads; ++i) {
    threads.emplace_back([&, &futex = futexes.at(i % 2)] {
      begun.fetch_add(1);
      while (futex.load() == 0) {
        if (ipc::FutexWait(futex, 0, 20s) == ipc::FutexResult::kTimedOut) return;
      }
      awake.fetch_add(1);
    });
  }
  while (begun.load() < 2 * kThreads) std::this_thread::yield();
  std::this_thread::sleep_for(100ms);
  WaiterWakes wakes;
  for (std::atomic<std::uint32_t>& futex : futexes) {
    futex.store(1);
    wakes.Wake(&futex, kThreads);
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(awake.load(), 2 * kThreads) << "who is forgotten sleeps for 20 s";
}

// A client may lie about its number of waiters, and may unmap the memory that they wait on.
TEST(WaiterWakes, FakeWaitersDelayNoOtherClient) {
  WaiterWakes wakes;
  std::atomic<std::uint32_t> empty{0}, futex{0};
  const auto* const nowhere =
      reinterpret_cast<const std::atomic<std::uint32_t>*>(std::uintptr_t{4096});
  wakes.Wake(nowhere, 0xffffffff);
  wakes.Wake(&empty, 0xffffffff);
  std::thread sleeper([&] {
    while (futex.load() == 0) {
      if (ipc::FutexWait(futex, 0, 20s) == ipc::FutexResult::kTimedOut) return;
    }
  });
  std::this_thread::sleep_for(20ms);
  const auto start = std::chrono::steady_clock::now();
  futex.store(1);
  wakes.Wake(&futex, 1);
  sleeper.join();
  EXPECT_LT(std::chrono::steady_clock::now() - start, 10s);
}

class KernelWatchTest : public ::testing::Test {
 protected:
  static scheduler::TimePoint At(scheduler::Duration time) { return scheduler::TimePoint(time); }
  // Returns the work that is overdue at this time; 0 for none.
  device::WorkId OverdueAt(scheduler::Duration time) {
    const auto overdue = watch_.TakeOverdue(At(time));
    return overdue ? overdue->id : 0;
  }
  KernelWatch watch_;
};

TEST_F(KernelWatchTest, KernelIsOverdueAtItsLimitAndReportedOnce) {
  watch_.OnSubmitted(7, 0, 0ms, 10ms, At(100ms));
  EXPECT_EQ(watch_.wake_at(), At(110ms));
  EXPECT_EQ(OverdueAt(110ms - 1ns), 0U);
  const auto overdue = watch_.TakeOverdue(At(112ms));
  ASSERT_TRUE(overdue);
  EXPECT_EQ(overdue->id, 7U);
  EXPECT_EQ(overdue->ran, 12ms);
  EXPECT_EQ(overdue->limit, 10ms);
  EXPECT_EQ(OverdueAt(200ms), 0U);
  EXPECT_FALSE(watch_.wake_at());
  EXPECT_EQ(watch_.OnCompleted(7, At(120ms)), 20ms);
  EXPECT_EQ(watch_.OnCompleted(7, At(130ms)), 0ms) << "it is not there any more";
}

TEST_F(KernelWatchTest, WaitingBehindOthersDoesNotCount) {
  watch_.OnSubmitted(1, 0, 0ms, {}, At(0ms));
  watch_.OnSubmitted(2, 0, 0ms, 10ms, At(0ms));
  EXPECT_FALSE(watch_.wake_at()) << "the first may run for ever";
  EXPECT_EQ(OverdueAt(50ms), 0U);
  watch_.OnCompleted(1, At(60ms));
  EXPECT_EQ(watch_.wake_at(), At(70ms));
  // More urgent work stops the clock; less urgent work does not.
  watch_.OnSubmitted(3, 0, 0ms, 1ms, At(62ms));
  watch_.OnSubmitted(4, 2, 0ms, {}, At(64ms));
  EXPECT_EQ(OverdueAt(90ms), 0U);
  watch_.OnCompleted(4, At(94ms));
  EXPECT_EQ(watch_.wake_at(), At(100ms));
  EXPECT_EQ(OverdueAt(100ms), 2U);
  EXPECT_EQ(watch_.OnCompleted(2, At(100ms)), 10ms);
  EXPECT_EQ(OverdueAt(101ms), 3U);
}

TEST_F(KernelWatchTest, TimeWithoutDeviceDoesNotCount) {
  watch_.SetHostSteal(5ms, At(0ms));
  watch_.OnSubmitted(1, 0, 0ms, 10ms, At(0ms));
  watch_.SetHostSteal(12ms, At(8ms));
  EXPECT_EQ(watch_.wake_at(), At(17ms));
  EXPECT_EQ(OverdueAt(16ms), 0U);
  EXPECT_EQ(OverdueAt(17ms), 1U);
  watch_.SetHostSteal(1s, At(18ms));
  EXPECT_EQ(watch_.OnCompleted(1, At(20ms)), 2ms) << "never less than nothing";
}

TEST_F(KernelWatchTest, TimeBeforeStopCounts) {
  watch_.OnSubmitted(1, 0, 0ms, 10ms, At(0ms));
  const scheduler::Duration ran = watch_.OnCompleted(1, At(6ms));
  EXPECT_EQ(ran, 6ms);
  watch_.OnSubmitted(2, 0, ran, 10ms, At(100ms));
  EXPECT_EQ(watch_.wake_at(), At(104ms));
  EXPECT_EQ(OverdueAt(104ms), 2U);
}

TEST(LogHistogram, QuantilesAreNeverBelowTheTruthAndAtMostAnEighthAbove) {
  std::mt19937_64 random(7);
  LogHistogram histogram;
  std::vector<std::uint64_t> values;
  for (int i = 0; i < 20000; ++i) {
    const std::uint64_t value = random() >> (random() % 63);
    values.push_back(value);
    histogram.Add(value);
  }
  std::sort(values.begin(), values.end());
  for (const double fraction : {0.0, 0.01, 0.5, 0.9, 0.99, 0.999, 1.0}) {
    const auto rank = static_cast<std::size_t>(
        std::max(1.0, std::ceil(fraction * static_cast<double>(values.size()))));
    const std::uint64_t truth = values[rank - 1];
    EXPECT_GE(histogram.Quantile(fraction), truth) << fraction;
    EXPECT_LE(histogram.Quantile(fraction) - truth, truth / 8) << fraction;
  }
  EXPECT_EQ(LogHistogram().Quantile(0.5), 0u);
}

TEST(LogHistogram, AcceptsLargestValue) {
  LogHistogram histogram;
  histogram.Add(~std::uint64_t{0});
  EXPECT_EQ(histogram.Quantile(0.5), ~std::uint64_t{0});
}

TEST(Mailbox, KeepsOrderOfEachSenderAndWakesOncePerEmptyBox) {
  std::atomic<int> wakes{0};
  Mailbox<int> box([&] { ++wakes; });
  constexpr int kEach = 10000;
  std::thread first([&] {
    for (int i = 0; i < kEach; ++i) box.Post(i);
  });
  std::thread second([&] {
    for (int i = 0; i < kEach; ++i) box.Post(kEach + i);
  });
  int next_first = 0, next_second = kEach, takes = 0;
  while (next_first < kEach || next_second < 2 * kEach) {
    if (!box.has_mail()) continue;
    std::vector<int> taken;
    box.TakeAll(taken);
    ++takes;
    for (const int value : taken) EXPECT_EQ(value, value < kEach ? next_first++ : next_second++);
  }
  first.join();
  second.join();
  EXPECT_LE(wakes, takes);
}

TEST(CommandSlab, NamesDistinguishCommandsOfSameSlot) {
  CommandSlab slab(4);
  const std::uint32_t slot = slab.Allocate();
  const device::WorkId first = WorkName::Make(200, slot, 1);
  slab.Free(slot);
  ASSERT_EQ(slab.Allocate(), slot) << "the slot freed last is used next";
  const device::WorkId second = WorkName::Make(200, slot, 2);
  EXPECT_NE(first, second);
  EXPECT_EQ(WorkName::Client(second), 200u);
  EXPECT_EQ(WorkName::Slot(second), slot);
  EXPECT_EQ(slab[slot].name(), 0u) << "a new command has no name of an old one";
}

TEST(CommandSlot, StoppedCommandIsOfferedAgainUnderItsName) {
  CommandSlot slot;
  slot.Offer(7, 300us, true);
  slot.runs_stoppable_form = true;
  slot.TakeBack();
  EXPECT_FALSE(slot.runs_stoppable_form) << "the next offer chooses";
  slot.Offer(8, 200us, false);
  EXPECT_EQ(slot.past(), CommandSlot::Past::kNew);
  slot.Submit({.at = scheduler::TimePoint(1s), .counts_as_high = true, .stop_asked = {}});
  slot.AskToStop(true, scheduler::TimePoint(2s));
  EXPECT_EQ(slot.submission().stop_asked, scheduler::TimePoint(2s));
  slot.OfferRest();
  EXPECT_EQ(slot.state(), CommandState::kOffered);
  EXPECT_EQ(slot.name(), 8u);
  slot.Submit({.at = scheduler::TimePoint(3s), .stop_asked = {}});
  EXPECT_EQ(slot.past(), CommandSlot::Past::kStopped);
  EXPECT_FALSE(slot.submission().stop_asked) << "this one was not asked";
  EXPECT_FALSE(slot.submission().counts_as_high);
  slot.End();
  EXPECT_EQ(slot.state(), CommandState::kEnded);
}

TEST(CommandSlotDeathTest, RejectsSkippedStates) {
  CommandSlot slot;
  EXPECT_DEATH(slot.Submit({.stop_asked = {}}), "from one state to the next");
  slot.Offer(7, 300us, true);
  EXPECT_DEATH(slot.End(), "from one state to the next");
}

TEST(CommandScope, ReleasesModuleAfterItsLastCommand) {
  const testing::NullModule module(0);
  CommandScope scope;
  scope.AddModule(3, {.module = &module, .serial = 9});
  scope.UseModule(3);
  scope.UseModule(3);
  scope.RemoveModuleAfter(3, 0);
  EXPECT_FALSE(scope.TryPassBarrier(2)) << "the client may have submitted more before";
  scope.RecordRingEmpty();
  const auto passed = scope.TryPassBarrier(2);
  ASSERT_TRUE(passed);
  EXPECT_FALSE(passed->released);
  EXPECT_TRUE(scope.module(3).is_leaving);
  EXPECT_FALSE(scope.ReturnModule(3));
  EXPECT_TRUE(scope.ReturnModule(3));
  EXPECT_EQ(scope.module(3).serial, 0u) << "the number is free";
}

TEST(CommandScope, ShrinkWaitsOnlyForEarlierCommands) {
  CommandScope scope;
  scope.GrowTo(100);
  const std::uint32_t before = scope.epoch();
  scope.ShrinkAfter(40, 0);
  EXPECT_EQ(scope.mapped_bytes(), 100u);
  scope.RecordRingEmpty();
  EXPECT_FALSE(scope.TryPassBarrier(1)) << "a command of before has not finished";
  EXPECT_EQ(scope.mapped_bytes(), 40u) << "no new command may touch the rest";
  scope.RecordFinished(scope.epoch());
  EXPECT_FALSE(scope.TryPassBarrier(1));
  scope.RecordFinished(before);
  EXPECT_TRUE(scope.TryPassBarrier(1));
  EXPECT_FALSE(scope.has_barrier());
}

TEST(CommandScope, ReleasesMappingAfterEarlierCommands) {
  CommandScope scope;
  scope.AddMapping(1000, 100);
  scope.AddMapping(1100, 50);
  scope.AddMapping(1160, 50);
  EXPECT_TRUE(scope.IsInMappings(1050, 100)) << "two without a gap";
  EXPECT_FALSE(scope.IsInMappings(1050, 101)) << "into the gap";
  EXPECT_FALSE(scope.IsInMappings(999, 1));
  EXPECT_FALSE(scope.IsInMappings(1150, 1));
  EXPECT_FALSE(scope.IsInMappings(1050, ~std::uint64_t{0}));
  const std::uint32_t before = scope.epoch();
  scope.RemoveMappingAfter(1100, 0);
  scope.RecordRingEmpty();
  EXPECT_FALSE(scope.TryPassBarrier(1)) << "a command of before has not finished";
  EXPECT_FALSE(scope.IsInMappings(1100, 1)) << "no new command may touch it";
  scope.RecordFinished(before);
  EXPECT_TRUE(scope.TryPassBarrier(0));
  EXPECT_TRUE(scope.IsInMappings(1000, 100));
}

// A graph may have thousands of nodes, each with two ranges that cover all mapped memory.
TEST(CommandScope, LooksUpAdjacentMappingsAsOne) {
  CommandScope scope;
  std::vector<std::uint64_t> places(ipc::kMappingsMax);
  std::ranges::generate(places, [next = 0]() mutable { return std::uint64_t(next++) * 100; });
  std::mt19937 random(1);
  std::ranges::shuffle(places, random);
  std::vector<bool> is_mapped(places.size());
  const auto expect_right = [&] {
    std::size_t stretches = 0;
    for (std::size_t first = 0; first < places.size(); ++first) {
      stretches += is_mapped[first] && (first == 0 || !is_mapped[first - 1]);
      std::size_t end = first;
      while (end < places.size() && is_mapped[end]) ++end;
      const std::uint64_t bytes = (end - first) * 100;
      EXPECT_EQ(scope.IsInMappings(first * 100, std::max<std::uint64_t>(bytes, 1)), bytes > 0);
      EXPECT_FALSE(scope.IsInMappings(first * 100, bytes + 1));
    }
    EXPECT_EQ(scope.stretches(), stretches);
  };
  for (const std::uint64_t place : places) {
    scope.AddMapping(place, 100);
    is_mapped[place / 100] = true;
    if (place % 7 == 0) expect_right();
  }
  EXPECT_EQ(scope.stretches(), 1u);
  std::ranges::shuffle(places, random);
  for (const std::uint64_t place : places) {
    scope.RemoveMappingAfter(place, 0);
    scope.RecordRingEmpty();
    ASSERT_TRUE(scope.TryPassBarrier(0));
    is_mapped[place / 100] = false;
    if (place % 7 == 0) expect_right();
  }
  EXPECT_EQ(scope.stretches(), 0u);
}

// If a slot were offered to all waiting streams at once, each would inspect all nodes of its graph,
// although only one stream can get the slot.
TEST(ClientStreams, OffersFreeSlotToWaitingStreamsInOrder) {
  constexpr std::uint32_t kStreams = 100;
  ClientStreams streams(kStreams);
  std::vector<std::uint32_t> commands;
  for (std::uint32_t stream = 0; stream < kStreams; ++stream) {
    commands.push_back(streams.slab().Allocate());
    streams.slab()[commands.back()].stream = static_cast<std::uint8_t>(stream);
    streams.Append(commands.back());
  }
  std::vector<std::uint32_t> waiting;
  for (std::uint32_t stream = 0; stream < kStreams; ++stream) {
    EXPECT_FALSE(streams.AwaitsSlot(commands[stream]));
    if (streams.Cut(commands[stream])) continue;
    EXPECT_TRUE(streams.AwaitsSlot(commands[stream]));
    waiting.push_back(stream);
  }
  EXPECT_EQ(waiting.size(), kStreams - CommandSlab::kPartsMax);
  EXPECT_FALSE(streams.MarkOneAwaitingSlot()) << "there is no slot";

  streams.slab().Free(streams.PopFront(0));
  std::vector<std::uint32_t> woken;
  while (streams.MarkOneAwaitingSlot()) {
    woken.push_back(streams.TakeToSettle());
    EXPECT_TRUE(streams.is_settled()) << "one at a time";
    EXPECT_FALSE(streams.AwaitsSlot(commands[woken.back()]));
  }
  EXPECT_EQ(woken, waiting) << "nobody has taken it, and each was asked once";

  // A stream that gets a slot is queued last for further slots.
  for (const std::uint32_t stream : {40u, 50u, 60u})
    EXPECT_EQ(streams.Cut(commands[stream]), stream == 40);
  streams.slab().Free(streams.PopFront(1));
  ASSERT_TRUE(streams.MarkOneAwaitingSlot());
  EXPECT_EQ(streams.TakeToSettle(), 50u);
  EXPECT_TRUE(streams.Cut(commands[50]));
  EXPECT_FALSE(streams.MarkOneAwaitingSlot());
  EXPECT_TRUE(streams.AwaitsSlot(commands[60]));
}

// A thread that accesses a hole waits for as long as the client empties more of the staging buffer.
TEST(CommandScope, ReadsStagingBufferWithoutTouchingIt) {
  constexpr std::size_t kPage = 4096;
  Result<ipc::SharedSegment> staging_buffer = ipc::SharedSegment::Create({.bytes = 16 * kPage});
  ASSERT_TRUE(staging_buffer.ok());
  std::ranges::fill(staging_buffer->bytes(), std::byte{7});
  CommandScope scope;
  scope.AddStagingBuffer(3, staging_buffer->bytes(), staging_buffer->fd());
  ASSERT_EQ(::fallocate(staging_buffer->fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, kPage,
                        2 * kPage),
            0);
  ASSERT_EQ(staging_buffer->MissingBytes(), 2 * kPage);
  std::vector<std::byte> read(3 * kPage), expected(read.size(), std::byte{0});
  std::fill_n(expected.begin(), kPage - 100, std::byte{7});
  std::fill_n(expected.end() - 100, 100, std::byte{7});
  scope.ReadStagingBuffer(3, 100, read);
  EXPECT_EQ(read, expected);
  EXPECT_EQ(staging_buffer->MissingBytes(), 2 * kPage) << "a page that is touched is there again";

  scope.AddStagingBuffer(4, staging_buffer->bytes(), -1);
  std::ranges::fill(read, std::byte{1});
  scope.ReadStagingBuffer(4, 100, read);
  EXPECT_EQ(read, expected);
}

TEST(CommandScope, FullRingDelaysBarrierByAtMostItsLength) {
  CommandScope scope;
  scope.ShrinkAfter(0, 1000);
  scope.RecordTakenUpTo(1000 + ipc::kCommandGranules - 1);
  EXPECT_TRUE(scope.awaits_barrier());
  scope.RecordTakenUpTo(1000 + ipc::kCommandGranules);
  EXPECT_FALSE(scope.awaits_barrier());
  EXPECT_TRUE(scope.TryPassBarrier(0));
}

TEST(CommandSlab, GivesOutEverySlotOnce) {
  CommandSlab slab(64);
  std::vector<std::uint32_t> slots;
  while (!slab.full()) slots.push_back(slab.Allocate());
  std::sort(slots.begin(), slots.end());
  for (std::uint32_t i = 0; i < 64; ++i) EXPECT_EQ(slots[i], i);
  EXPECT_EQ(slab.used(), 64u);
}

TEST(CommandSlab, NewCommandHasNoStaleAccessSet) {
  CommandSlab slab(1);
  const std::uint32_t slot = slab.Allocate();
  slab[slot].SetReach(device::Reach::Everything());
  ASSERT_NE(slab[slot].reach(), nullptr);
  slab.Free(slot);
  ASSERT_EQ(slab.Allocate(), slot);
  EXPECT_EQ(slab[slot].reach(), nullptr);
}

TEST(CommandSlab, KeepsParametersOfAnySizeUntilSlotIsFreed) {
  CommandSlab slab(1);
  for (const std::size_t bytes : {0ul, 256ul, 257ul, 4096ul, 32764ul, 24ul}) {
    const std::uint32_t slot = slab.Allocate();
    const std::span<std::byte> room = slab[slot].GetParameterSpace(bytes);
    ASSERT_EQ(room.size(), bytes);
    std::fill(room.begin(), room.end(), std::byte{0x5a});
    slab.Free(slot);
  }
}

}  // namespace
}  // namespace gpushared::server
