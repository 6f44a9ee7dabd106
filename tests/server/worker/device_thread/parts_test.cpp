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
#include "server/worker/state/cost_model.h"
#include "server/worker/state/keyed_hash.h"
#include "server/worker/state/log_histogram.h"
#include "server/worker/state/spin_times.h"
#include "tests/support/null_device.h"

namespace gpushared::server {
namespace {

using namespace std::chrono_literals;

// Clients with full rings, whose visits take as long as the test says.
struct Visited {
  bool is_urgent = false;
  scheduler::Duration takes{};
  bool has_something = true;
  int visits = 0;
};

TEST(SpinTimesTest, ThreadsSpinForMillisecondsWhereCoresAreToSpare) {
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

TEST_F(RingVisitsTest, FloodsOfOthersCostAnUrgentClientABoundedTimeInEachTurn) {
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

TEST_F(RingVisitsTest, EveryoneGetsTheSameTurnsInALongRun) {
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

TEST(WaiterWakes, WakesAllThatAreAsleepInTurnsOverClients) {
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

TEST_F(KernelWatchTest, AKernelIsOverdueAtItsLimitAndToldOnce) {
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

TEST_F(KernelWatchTest, WaitingBehindOthersIsNotRunning) {
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

TEST_F(KernelWatchTest, TimeInWhichTheDeviceCouldRunNothingIsNotRunning) {
  watch_.SetHostSteal(5ms, At(0ms));
  watch_.OnSubmitted(1, 0, 0ms, 10ms, At(0ms));
  watch_.SetHostSteal(12ms, At(8ms));
  EXPECT_EQ(watch_.wake_at(), At(17ms));
  EXPECT_EQ(OverdueAt(16ms), 0U);
  EXPECT_EQ(OverdueAt(17ms), 1U);
  watch_.SetHostSteal(1s, At(18ms));
  EXPECT_EQ(watch_.OnCompleted(1, At(20ms)), 2ms) << "never less than nothing";
}

TEST_F(KernelWatchTest, WhatRanBeforeAStopCounts) {
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

TEST(LogHistogram, TakesTheLargestValueThereIs) {
  LogHistogram histogram;
  histogram.Add(~std::uint64_t{0});
  EXPECT_EQ(histogram.Quantile(0.5), ~std::uint64_t{0});
}

TEST(Mailbox, KeepsTheOrderOfEachSenderAndWakesOncePerEmptyBox) {
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

TEST(CommandSlab, NamesTellCommandsApartThatUseTheSameSlot) {
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

TEST(CommandSlot, AStoppedCommandIsOfferedAgainUnderItsNameAndRemembersIt) {
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

TEST(CommandSlotDeathTest, NoStateIsLeftOut) {
  CommandSlot slot;
  EXPECT_DEATH(slot.Submit({.stop_asked = {}}), "from one state to the next");
  slot.Offer(7, 300us, true);
  EXPECT_DEATH(slot.End(), "from one state to the next");
}

TEST(CommandScope, AModuleIsReleasedWhenItsLastCommandHasFinished) {
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

TEST(CommandScope, LessMemoryIsWaitedForByCommandsOfBeforeOnly) {
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

TEST(CommandScope, AMappingGoesWhenCommandsOfBeforeHaveEnded) {
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
TEST(CommandScope, MappingsWithoutAGapAreLookedUpAsOne) {
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

// Otherwise every waiting stream would inspect all nodes of its graph although only one of them
// gets the slot.
TEST(ClientStreams, AFreeSlotIsOfferedToOneStreamThatAwaitsItAndThenToTheNext) {
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
  EXPECT_FALSE(streams.MarkNonpreemptible()) << "there is no slot";

  streams.slab().Free(streams.PopFront(0));
  std::vector<std::uint32_t> woken;
  while (streams.MarkNonpreemptible()) {
    woken.push_back(streams.TakeToSettle());
    EXPECT_TRUE(streams.is_settled()) << "one at a time";
    EXPECT_FALSE(streams.AwaitsSlot(commands[woken.back()]));
  }
  EXPECT_EQ(woken, waiting) << "nobody has taken it, and each was asked once";

  // A stream that gets a slot goes to the end of the queue for the next one.
  for (const std::uint32_t stream : {40u, 50u, 60u})
    EXPECT_EQ(streams.Cut(commands[stream]), stream == 40);
  streams.slab().Free(streams.PopFront(1));
  ASSERT_TRUE(streams.MarkNonpreemptible());
  EXPECT_EQ(streams.TakeToSettle(), 50u);
  EXPECT_TRUE(streams.Cut(commands[50]));
  EXPECT_FALSE(streams.MarkNonpreemptible());
  EXPECT_TRUE(streams.AwaitsSlot(commands[60]));
}

// A thread that touches a hole waits while its client empties more of the staging buffer.
TEST(CommandScope, BytesOfAnArenaAreReadWithoutTouchingIt) {
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

TEST(CommandScope, AFullRingPutsABarrierOffForItsLengthAtMost) {
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

TEST(CommandSlab, ACommandHasNoReachOfTheOneBeforeIt) {
  CommandSlab slab(1);
  const std::uint32_t slot = slab.Allocate();
  slab[slot].SetReach(device::Reach::Everything());
  ASSERT_NE(slab[slot].reach(), nullptr);
  slab.Free(slot);
  ASSERT_EQ(slab.Allocate(), slot);
  EXPECT_EQ(slab[slot].reach(), nullptr);
}

TEST(CommandSlab, ParametersOfAnySizeHaveRoomUntilTheSlotIsFreed) {
  CommandSlab slab(1);
  for (const std::size_t bytes : {0ul, 256ul, 257ul, 4096ul, 32764ul, 24ul}) {
    const std::uint32_t slot = slab.Allocate();
    const std::span<std::byte> room = slab[slot].ParameterRoom(bytes);
    ASSERT_EQ(room.size(), bytes);
    std::fill(room.begin(), room.end(), std::byte{0x5a});
    slab.Free(slot);
  }
}

CommandSlot LaunchSlot(std::uint64_t key) {
  CommandSlot slot;
  slot.kind = CommandKind::kLaunch;
  slot.cost_key = key;
  slot.cost_kernel = key;
  slot.units = 100;
  return slot;
}

TEST(CostModel, PredictsTheLongestOfWhatItSawAndTheRestOfAStoppedCommand) {
  CostModel costs;
  CommandSlot slot = LaunchSlot(42);
  EXPECT_EQ(costs.Predict(slot), scheduler::Predictor::kFirstGuess);
  costs.AddSample(slot, 300us);
  costs.AddSample(slot, 200us);
  EXPECT_EQ(costs.Predict(slot), 300us);
  slot.units_done = 50;
  EXPECT_EQ(costs.Predict(slot), 150us);
  EXPECT_EQ(costs.Predict(LaunchSlot(43)), scheduler::Predictor::kFirstGuess);
}

TEST(CostModel, PredictsOtherGridsOfKnownKernel) {
  CostModel costs;
  costs.AddSample(LaunchSlot(42), 300us);
  CommandSlot larger = LaunchSlot(43);
  larger.cost_kernel = 42;
  larger.units = 200;
  EXPECT_EQ(costs.Predict(larger), 600us);
}

TEST(CostModel, PredictionsAreJudgedByWhatCameAfterThem) {
  CostModel costs;
  const CommandSlot slot = LaunchSlot(42);
  costs.AddSample(slot, 300us);  // There was no prediction to judge.
  EXPECT_EQ(costs.accuracy().predictions, 0u);
  costs.AddSample(slot, 400us);
  costs.AddSample(slot, 200us);
  EXPECT_EQ(costs.accuracy().predictions, 2u);
  EXPECT_EQ(costs.accuracy().exceeded, 1u);
  // The errors: 300 us instead of 400, then 400 us instead of 200.
  EXPECT_GE(costs.accuracy().error_permille.Quantile(0.5), 250u);
  EXPECT_LT(costs.accuracy().error_permille.Quantile(0.5), 290u);
  EXPECT_GE(costs.accuracy().error_permille.Quantile(1.0), 1000u);
}

TEST(CostModel, LaunchesOfDifferentModulesKernelsOrShapesHaveTheirOwnKeys) {
  device::LaunchWork work;
  work.grid = {2, 3, 4};
  work.block = {5, 6, 7};
  std::vector<std::uint64_t> keys = {CostModel::LaunchKey(1, work), CostModel::LaunchKey(2, work)};
  const auto with = [&](auto change) {
    device::LaunchWork other = work;
    change(other);
    keys.push_back(CostModel::LaunchKey(1, other));
  };
  with([](device::LaunchWork& other) { other.kernel = 1; });
  with([](device::LaunchWork& other) { other.grid = {3, 2, 4}; });
  with([](device::LaunchWork& other) { other.grid = {2, 4, 3}; });
  with([](device::LaunchWork& other) { other.block = {6, 5, 7}; });
  with([](device::LaunchWork& other) { other.block = {5, 7, 6}; });
  with([](device::LaunchWork& other) { other.dynamic_shared_bytes = 64; });
  std::sort(keys.begin(), keys.end());
  EXPECT_EQ(std::unique(keys.begin(), keys.end()), keys.end());
}

// Otherwise a client could keep its kernels from ever running alone, and thus from being measured.
TEST(CostModel, LearnsChargedTimeNextToSameClientsWork) {
  CostModel costs;
  CommandSlot slot = LaunchSlot(42);
  costs.AddSample(slot, 50us);
  slot.charged = 2ms;
  slot.is_among_own = false;
  costs.AddBound(slot, 5ms);
  EXPECT_EQ(costs.Predict(LaunchSlot(42)), 50us) << "another client may have made it longer";
  slot.is_among_own = true;
  costs.AddBound(slot, 5ms);
  EXPECT_EQ(costs.Predict(LaunchSlot(42)), 2ms);
}

TEST(CostModel, OutlivedPredictionDoubles) {
  CostModel costs;
  CommandSlot slot = LaunchSlot(42);
  slot.units = 100;
  costs.AddSample(slot, 50us);
  slot.charged = 3ms;
  EXPECT_EQ(costs.Predict(slot), 3ms);
  costs.AddSample(slot, 10ms);
  slot.units_done = 50;
  EXPECT_EQ(costs.Predict(slot), 5ms) << "half of it, as it is known now";
}

// A strided fill may take longer, because each row may touch a page for the first time.
TEST(CostModel, StridedFillsDoNotAffectPredictionsOfContiguousOnes) {
  CostModel costs;
  CommandSlot plain, rows;
  plain.kind = rows.kind = CommandKind::kFill;
  plain.bytes = rows.bytes = 4096;
  plain.units = 1;
  rows.units = 4096;
  costs.AddSample(plain, 5us);
  costs.AddSample(rows, 10s);
  EXPECT_EQ(costs.Predict(plain), 5us);
  EXPECT_EQ(costs.Predict(rows), 10s);
}

// The time of a launch next to other work is only an upper bound of its time alone.
TEST(CostModel, TimesNextToOthersOnlyShortenPredictions) {
  CostModel costs;
  const CommandSlot slot = LaunchSlot(42);
  costs.AddBound(slot, 5ms);
  EXPECT_EQ(costs.Predict(slot), scheduler::Predictor::kFirstGuess);
  EXPECT_TRUE(costs.Known().empty()) << "longer than the guess says nothing";
  costs.AddBound(slot, 20us);
  EXPECT_EQ(costs.Predict(slot), 20us);
  for (int i = 0; i < 40; ++i) costs.AddBound(slot, 5ms);
  EXPECT_EQ(costs.Predict(slot), 20us);
  costs.AddSample(slot, 30us);
  EXPECT_EQ(costs.Predict(slot), 20us) << "one of nineteen";
  EXPECT_EQ(costs.accuracy().predictions, 1u) << "a bound is nothing to judge a prediction by";
}

TEST(CostModel, ABoundIsBelievedAsOftenAsASample) {
  CostModel costs;
  const CommandSlot slot = LaunchSlot(42);
  for (int i = 0; i < 19; ++i) costs.AddSample(slot, 100us);
  for (int i = 0; i < 17; ++i) costs.AddBound(slot, 60us);
  EXPECT_EQ(costs.Predict(slot), 100us);
  costs.AddBound(slot, 60us);
  EXPECT_EQ(costs.Predict(slot), 60us);
}

// If only samples below the prediction counted, the prediction would sink to the shortest of all.
TEST(CostModel, BoundsDoNotPullThePredictionBelowTheirOwnQuantile) {
  CostModel costs;
  const CommandSlot slot = LaunchSlot(42);
  for (int i = 0; i < 400; ++i) costs.AddBound(slot, i % 4 == 0 ? 100us : 60us);
  EXPECT_EQ(costs.Predict(slot), 100us);
}

TEST(CostModel, BoundsOfSiblingsAndCopiesCountLikeSamples) {
  CostModel costs;
  costs.AddSample(LaunchSlot(42), 300us);
  CommandSlot larger = LaunchSlot(43);
  larger.cost_kernel = 42;
  larger.units = 200;
  costs.AddBound(larger, 700us);
  EXPECT_EQ(costs.Predict(larger), 600us);
  costs.AddBound(larger, 500us);
  EXPECT_EQ(costs.Predict(larger), 500us);

  CommandSlot copy;
  copy.kind = CommandKind::kCopyToHost;
  copy.bytes = 1 << 20;
  copy.units = 16;
  const scheduler::Duration guess = costs.Predict(copy);
  costs.AddBound(copy, guess + 1us);
  EXPECT_EQ(costs.Predict(copy), guess);
  costs.AddBound(copy, 90us);
  EXPECT_EQ(costs.Predict(copy), 90us);
}

TEST(CostModel, KnownPartsTogetherContainEverything) {
  CostModel costs;
  for (std::uint64_t key = 1; key <= 500; ++key) costs.AddSample(LaunchSlot(key), 1us * key);
  costs.AddSample(LaunchSlot(7), 1us);
  std::vector<scheduler::KnownCost> parts;
  for (std::size_t part = 0; part < scheduler::Predictor::kKnownParts; ++part) {
    const auto more = costs.KnownPart(part);
    EXPECT_LT(more.size(), 100u);
    parts.insert(parts.end(), more.begin(), more.end());
  }
  scheduler::Predictor::SortByAge(parts);
  const std::vector<scheduler::KnownCost> all = costs.Known();
  ASSERT_EQ(parts.size(), all.size());
  EXPECT_GT(all.size(), 400u);
  for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(parts[i].key, all[i].key);
  EXPECT_EQ(all.back().key, 7u) << "the one sampled last";
}

// Test vectors from the appendix of the SipHash paper, and from the authors' implementation.
TEST(KeyedHash, IsSipHash) {
  const HashSeed seed = {0x0706050403020100u, 0x0f0e0d0c0b0a0908u};
  std::array<std::byte, 15> bytes;
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i);
  const auto hash = [&](std::size_t size) { return KeyedHash(std::span(bytes).first(size), seed); };
  EXPECT_EQ(hash(0), 0x726fdb47dd0e0e31u);
  EXPECT_EQ(hash(1), 0x74f839c593dc67fdu);
  EXPECT_EQ(hash(8), 0x93f5f5799a932462u);
  EXPECT_EQ(hash(15), 0xa129ca6149be45e5u);
  EXPECT_NE(MakeHashSeed(), MakeHashSeed());
}

TEST(CostModel, ModuleKeyCoversContentOwnerAndIsolation) {
  const auto identity = [](std::string_view text, std::uint32_t uid,
                           device::Isolation isolation = device::Isolation::kOff,
                           const HashSeed& seed = {1, 2}) {
    return CostModel::ModuleIdentity(std::as_bytes(std::span(text)), {uid, isolation}, seed);
  };
  std::vector<std::uint64_t> all = {identity("", 1),
                                    identity("12345678", 1),
                                    identity("12345678", 2),
                                    identity("12345679", 1),
                                    identity("123456781", 1),
                                    identity("123456782", 1),
                                    identity("1234567812", 1),
                                    identity("12345678", 1, device::Isolation::kFence),
                                    identity("12345678", 1, device::Isolation::kOff, {1, 3}),
                                    identity("12345678", 1, device::Isolation::kOff, {0, 2})};
  EXPECT_EQ(identity("12345678", 1), all[1]);
  std::ranges::sort(all);
  EXPECT_EQ(std::ranges::adjacent_find(all), all.end());
}

TEST(CostModel, PredictsWhatItLearntFromAnother) {
  CostModel first, second;
  first.AddSample(LaunchSlot(42), 300us);
  first.AddSample(LaunchSlot(43), 200us);
  first.AddSample(LaunchSlot(42), 250us);
  second.Learn(first.Known());
  EXPECT_EQ(second.Predict(LaunchSlot(42)), 300us);
  EXPECT_EQ(second.Predict(LaunchSlot(43)), 200us);
  EXPECT_EQ(second.accuracy().predictions, 0u) << "what was learnt is no prediction";
}

TEST(CostModel, EachFormOfALaunchIsPredictedFromItsOwnSamples) {
  CostModel costs;
  const CommandSlot launch = LaunchSlot(77);
  CommandSlot stoppable = LaunchSlot(77);
  stoppable.runs_stoppable_form = true;
  costs.AddSample(launch, 300us);
  EXPECT_EQ(costs.Predict(stoppable), 300us) << "as long as it has none";
  costs.AddSample(stoppable, 400us);
  EXPECT_EQ(costs.Predict(stoppable), 400us);
  EXPECT_EQ(costs.Predict(launch), 300us);

  CostModel other;
  other.AddSample(stoppable, 400us);
  EXPECT_EQ(other.Predict(launch), 400us) << "not the first guess";
}

TEST(CostModel, AFormIsSlowByTheMediansOfEnoughSamplesOfBoth) {
  const CommandSlot launch = LaunchSlot(77);
  CommandSlot stoppable = LaunchSlot(77);
  stoppable.runs_stoppable_form = true;
  const auto is_slow = [&](scheduler::Duration original, scheduler::Duration other,
                           std::size_t samples) {
    CostModel costs;
    for (std::size_t i = 0; i < CostModel::kFormSamplesMin; ++i) costs.AddSample(launch, original);
    for (std::size_t i = 0; i < samples; ++i) costs.AddSample(stoppable, other);
    return costs.GetForms(launch).is_stoppable_slow();
  };
  EXPECT_TRUE(is_slow(1000us, 1151us, 5));
  EXPECT_FALSE(is_slow(1000us, 1150us, 5));
  EXPECT_FALSE(is_slow(1000us, 9000us, 4));
  EXPECT_FALSE(is_slow(scheduler::kCommandTimeMax, scheduler::kCommandTimeMax, 5));

  CostModel costs;
  for (int i = 0; i < 5; ++i) costs.AddSample(launch, 1000us);
  for (const auto sample : {1010us, 9000us, 1020us, 9000us, 1030us}) {
    costs.AddSample(stoppable, sample);
  }
  EXPECT_FALSE(costs.GetForms(launch).is_stoppable_slow()) << "outliers decide nothing";
}

// A client that knew which of its launches are sampled could make those short, and be predicted
// accordingly.
TEST(CostModel, SamplesOneInSixteenBySecret) {
  const auto sampled = [](const HashSeed& secret, std::uint64_t session) {
    const CostModel costs(secret);
    std::vector<std::uint64_t> places;
    for (std::uint64_t begin = 0; begin < 4096; begin += CostModel::kSampleEvery) {
      std::size_t count = 0;
      for (std::uint64_t number = begin; number < begin + CostModel::kSampleEvery; ++number) {
        if (!costs.IsSampled(session, number)) continue;
        ++count;
        places.push_back(number - begin);
      }
      EXPECT_EQ(count, 1u) << begin;
    }
    return places;
  };
  const std::vector<std::uint64_t> places = sampled({1, 2}, 1);
  ASSERT_EQ(places.size(), 256u);
  EXPECT_EQ(places, sampled({1, 2}, 1));
  using Other = std::pair<HashSeed, std::uint64_t>;
  for (const auto& [secret, session] : {Other{{1, 3}, 1}, Other{{2, 2}, 1}, Other{{1, 2}, 2}}) {
    const std::vector<std::uint64_t> others = sampled(secret, session);
    std::size_t same = 0;
    for (std::size_t i = 0; i < places.size(); ++i) same += places[i] == others[i] ? 1 : 0;
    EXPECT_LT(same, 40u) << "one of 16 by chance";
  }
  for (std::uint64_t place = 0; place < CostModel::kSampleEvery; ++place) {
    EXPECT_GT(std::ranges::count(places, place), 4) << place;
  }
}

TEST(CostModel, ImportedCostsIncludeSlowForms) {
  CostModel first, second;
  const CommandSlot launch = LaunchSlot(77);
  CommandSlot stoppable = LaunchSlot(77);
  stoppable.runs_stoppable_form = true;
  for (int i = 0; i < 19; ++i) {
    first.AddSample(launch, 1000us);
    if (i < 4) first.AddSample(stoppable, 1300us);
  }
  second.Learn(first.Known());
  EXPECT_FALSE(second.GetForms(launch).is_stoppable_slow()) << "the first did not know it either";
  first.AddSample(stoppable, 1300us);
  CostModel third;
  third.Learn(first.Known());
  EXPECT_TRUE(third.GetForms(launch).is_stoppable_slow());
  EXPECT_TRUE(third.WantsSample(1, launch)) << "what was learnt is soon replaced";
}

TEST(CostModel, LaunchBubbleIsTheNinetiethPercentile) {
  CostModel costs;
  for (int i = 0; i < 8; ++i) costs.AddLaunchBubble(10us);
  EXPECT_FALSE(costs.LaunchBubble()) << "too few to tell";
  costs.AddLaunchBubble(10us);
  EXPECT_EQ(costs.LaunchBubble(), 10us);
  for (int i = 0; i < 9; ++i) costs.AddLaunchBubble(12us);
  costs.AddLaunchBubble(50ms);
  EXPECT_EQ(costs.LaunchBubble(), 12us) << "one that was slow";
  for (int i = 0; i < 2; ++i) costs.AddLaunchBubble(80us);
  EXPECT_EQ(costs.LaunchBubble(), 80us) << "three of nineteen are no accident";
  for (int i = 0; i < 19; ++i) costs.AddLaunchBubble(5us);
  EXPECT_EQ(costs.LaunchBubble(), 5us) << "nothing is kept for ever";
}

TEST(CostModel, CopiesArePredictedBySizeAndKind) {
  CostModel costs;
  CommandSlot copy;
  copy.kind = CommandKind::kCopyToHost;
  copy.bytes = 1 << 20;
  copy.units = 16;
  const scheduler::Duration guess = costs.Predict(copy);
  EXPECT_GT(guess, 500us) << "a gigabyte per second";
  costs.AddSample(copy, 90us);
  EXPECT_EQ(costs.Predict(copy), 90us);
  copy.kind = CommandKind::kFill;
  EXPECT_EQ(costs.Predict(copy), guess);
  copy.bytes = 16;
  EXPECT_LT(costs.Predict(copy), 50us);
}

TEST(CostModel, MeasuresOneInSixteenWellKnownCopies) {
  CostModel costs;
  CommandSlot copy;
  copy.kind = CommandKind::kCopyToDevice;
  copy.bytes = 1 << 20;
  copy.units = 256;
  for (int i = 0; i < 19; ++i) {
    copy.sequence = static_cast<std::uint64_t>(i);
    EXPECT_TRUE(costs.WantsSample(1, copy)) << i;
    costs.AddSample(copy, 90us);
  }
  std::uint64_t wanted = 0;
  for (copy.sequence = 0; copy.sequence < 160; ++copy.sequence) {
    wanted += costs.WantsSample(1, copy) ? 1 : 0;
  }
  EXPECT_EQ(wanted, 160 / CostModel::kSampleEvery);
  copy.bytes = 4 << 20;
  copy.units = 1024;
  EXPECT_TRUE(costs.WantsSample(1, copy)) << "none of its size was seen";
  copy.kind = CommandKind::kFill;
  copy.bytes = 1 << 20;
  EXPECT_TRUE(costs.WantsSample(1, copy)) << "no fill was seen";
}

}  // namespace
}  // namespace gpushared::server
