// SPDX-License-Identifier: Apache-2.0
#include "server/device/cpu/host_delay.h"

#include <chrono>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace gpushared::device {
namespace {

using namespace std::chrono_literals;
using std::chrono::nanoseconds;
using Totals = ExecutorTimes::Totals;

DeviceClock::time_point At(nanoseconds since_start) { return DeviceClock::time_point(since_start); }

ExecutorTimes::Reading Reading(nanoseconds at, nanoseconds ran) { return {At(at), ran}; }

TEST(ExecutorTimes, AThreadThatRunsWithoutACoreIsDelayed) {
  ExecutorTimes times(Reading(0ms, 0ms));

  EXPECT_EQ(times.UpTo(Reading(4ms, 4ms)).delayed, 0ms);
  EXPECT_EQ(times.UpTo(Reading(90ms, 10ms)).delayed, 80ms);
  EXPECT_EQ(times.UpTo(Reading(95ms, 15ms)).delayed, 80ms);
  EXPECT_EQ(times.UpTo(Reading(95ms, 15ms)).busy, 95ms);
}

TEST(ExecutorTimes, WaitingForWorkIsNeither) {
  ExecutorTimes times(Reading(0ms, 0ms));
  times.Wait(Reading(1ms, 1ms));
  times.Run(At(50ms), Reading(50ms, 1ms));

  const Totals& totals = times.UpTo(Reading(52ms, 3ms));
  EXPECT_EQ(totals.busy, 3ms);
  EXPECT_EQ(totals.delayed, 0ms);
}

TEST(ExecutorTimes, AThreadThatIsWokenLateIsDelayed) {
  ExecutorTimes times(Reading(0ms, 0ms));
  times.Wait(Reading(1ms, 1ms));
  times.Run(At(50ms), Reading(130ms, 1ms));

  const Totals& totals = times.UpTo(Reading(132ms, 3ms));
  EXPECT_EQ(totals.delayed, 80ms - kUsuallyLate);
  EXPECT_EQ(totals.busy, 3ms + totals.delayed);
}

// Work that was there before the thread had nothing else to do kept nobody waiting for it.
TEST(ExecutorTimes, NobodyIsLateBeforeHeWaits) {
  ExecutorTimes times(Reading(0ms, 0ms));
  times.Wait(Reading(50ms, 50ms));
  times.Run(At(10ms), Reading(50ms, 50ms));

  EXPECT_EQ(times.UpTo(Reading(51ms, 51ms)).delayed, 0ms);
}

TEST(ExecutorTimes, WorkMaySleepAndNoLongerThanItWants) {
  ExecutorTimes times(Reading(0ms, 0ms));
  times.Sleep(At(11ms), Reading(1ms, 1ms));
  EXPECT_EQ(times.UpTo(Reading(5ms, 1ms)).delayed, 0ms);
  EXPECT_EQ(times.UpTo(Reading(21ms, 1ms)).delayed, 10ms - kUsuallyLate);
  times.Wake(Reading(31ms, 1ms));

  const Totals& totals = times.UpTo(Reading(32ms, 2ms));
  EXPECT_EQ(totals.delayed, 20ms - kUsuallyLate);
  EXPECT_EQ(totals.busy, 32ms);
}

// Where processor time counts in ticks it is behind, and then catches up.
TEST(ExecutorTimes, AClockInTicksAddsUpToNoDelay) {
  ExecutorTimes times(Reading(0ms, 0ms));
  for (nanoseconds at = 0ms; at <= 1s; at += 250us) {
    times.UpTo(Reading(at, at - at % 10ms));
  }

  EXPECT_LE(times.UpTo(Reading(1s, 1s)).delayed, 10ms);
}

TEST(HostDelay, OfOneThreadIsThatOfTheDevice) {
  HostDelay delay;
  delay.Look(std::vector<Totals>{{10ms, 0ms}}, {}, At(10ms));
  EXPECT_EQ(delay.total(), 0ms);
  delay.Look(std::vector<Totals>{{100ms, 80ms}}, {}, At(100ms));
  EXPECT_EQ(delay.total(), 80ms);
}

TEST(HostDelay, OfSeveralThreadsIsTheirPart) {
  HostDelay delay;
  // The second had work for half of the time, and was kept from a quarter of all.
  delay.Look(std::vector<Totals>{{80ms, 10ms}, {40ms, 20ms}, {0ms, 0ms}}, {}, At(100ms));

  EXPECT_EQ(delay.total(), 20ms);
}

TEST(HostDelay, WhatHasEndedAndIsNotTakenIsDelayed) {
  HostDelay delay;
  delay.Look(std::vector<Totals>{{10ms, 0ms}}, At(10ms), At(10ms) + kUsuallyLate);
  EXPECT_EQ(delay.total(), 0ms);
  delay.Look(std::vector<Totals>{{20ms, 0ms}}, At(20ms), At(50ms));
  EXPECT_EQ(delay.total(), 30ms);
  delay.Look(std::vector<Totals>{{20ms, 0ms}}, At(20ms), At(60ms));
  EXPECT_EQ(delay.total(), 40ms) << "each moment counts once";
}

TEST(ExecutorClock, TellsAThreadThatRunsFromOneThatCannot) {
  ExecutorClock clock;
  EXPECT_EQ(clock.Totals().busy, 0ms) << "no thread yet";
  clock.Begin();
  std::this_thread::sleep_for(50ms);  // Nobody was told, so it should have run.
  EXPECT_GE(clock.Totals().delayed, 45ms);

  const Totals before = clock.Totals();
  clock.Sleep(50ms);
  const Totals after = clock.Totals();
  EXPECT_GE(after.busy - before.busy, 50ms);
  EXPECT_LE(after.delayed - before.delayed, after.busy - before.busy - 49ms);
}

}  // namespace
}  // namespace gpushared::device
