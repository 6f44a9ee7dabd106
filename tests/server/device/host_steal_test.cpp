// SPDX-License-Identifier: Apache-2.0
#include "server/device/cpu/host_steal.h"

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

TEST(ExecutorTimes, AThreadWithoutWorkIsNeitherBusyNorDelayed) {
  ExecutorTimes times(Reading(0ms, 0ms));
  times.Idle(Reading(1ms, 1ms));
  EXPECT_EQ(times.UpTo(Reading(40ms, 1ms)).busy, 1ms);
  times.Run(Reading(50ms, 1ms));

  const Totals& totals = times.UpTo(Reading(52ms, 3ms));
  EXPECT_EQ(totals.busy, 3ms);
  EXPECT_EQ(totals.delayed, 0ms);
}

TEST(ExecutorTimes, WaitBeyondRequestedWakeUpIsDelay) {
  ExecutorTimes times(Reading(0ms, 0ms));
  times.Wait(At(11ms), Reading(1ms, 1ms));
  EXPECT_EQ(times.UpTo(Reading(5ms, 1ms)).delayed, 0ms);
  EXPECT_EQ(times.UpTo(Reading(21ms, 1ms)).delayed, 10ms - kUsuallyLate);
  times.Run(Reading(31ms, 1ms));

  const Totals& totals = times.UpTo(Reading(32ms, 2ms));
  EXPECT_EQ(totals.delayed, 20ms - kUsuallyLate);
  EXPECT_EQ(totals.busy, 32ms);
}

// If such a wait counted as delay, a client could occupy the device without being charged, by
// printing to a slow reader.
TEST(ExecutorTimes, UnboundedWaitIsNeverDelay) {
  ExecutorTimes times(Reading(0ms, 0ms));
  times.Wait(DeviceClock::time_point::max(), Reading(0ms, 0ms));
  times.Run(Reading(90ms, 0ms));

  EXPECT_EQ(times.UpTo(Reading(91ms, 1ms)).delayed, 0ms);
  EXPECT_EQ(times.UpTo(Reading(91ms, 1ms)).busy, 91ms);
}

// A processor clock that counts in ticks lags behind and then catches up, which must not count as
// steal.
TEST(ExecutorTimes, ClockInTicksCausesNoDelay) {
  ExecutorTimes times(Reading(0ms, 0ms));
  for (nanoseconds at = 0ms; at <= 1s; at += 250us) {
    times.UpTo(Reading(at, at - at % 10ms));
  }

  EXPECT_LE(times.UpTo(Reading(1s, 1s)).delayed, 10ms);
}

TEST(HostSteal, EqualsThatOfSingleThread) {
  HostSteal delay;
  delay.Update(std::vector<Totals>{{10ms, 0ms}});
  EXPECT_EQ(delay.total(), 0ms);
  delay.Update(std::vector<Totals>{{100ms, 80ms}});
  EXPECT_EQ(delay.total(), 80ms);
  delay.Update(std::vector<Totals>{{100ms, 80ms}});
  EXPECT_EQ(delay.total(), 80ms);
}

TEST(HostSteal, ScalesWithDelayOfAllThreads) {
  HostSteal delay;
  // The second thread had work for half of the time, and was kept off the cores for a quarter of
  // the total.
  delay.Update(std::vector<Totals>{{80ms, 10ms}, {40ms, 20ms}, {0ms, 0ms}});

  EXPECT_EQ(delay.total(), 20ms);
}

TEST(ExecutorClock, DistinguishesRunningThreadFromStarvedOne) {
  ExecutorClock clock;
  EXPECT_EQ(clock.Totals().busy, 0ms) << "no thread yet";
  clock.Begin();
  std::this_thread::sleep_for(50ms);  // This sleep is not announced, so it counts as delay.
  EXPECT_GE(clock.Totals().delayed, 45ms);

  const Totals before = clock.Totals();
  clock.Sleep(50ms);
  const Totals slept = clock.Totals();
  EXPECT_GE(slept.busy - before.busy, 50ms);
  EXPECT_LE(slept.delayed - before.delayed, slept.busy - before.busy - 49ms);

  clock.Block([] { std::this_thread::sleep_for(50ms); });
  const Totals blocked = clock.Totals();
  EXPECT_GE(blocked.busy - slept.busy, 50ms);
  EXPECT_LE(blocked.delayed - slept.delayed, blocked.busy - slept.busy - 49ms);

  clock.Idle();
  clock.Idle();
  const Totals idle = clock.Totals();
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(clock.Totals().busy, idle.busy);
  clock.Run();
  std::this_thread::sleep_for(20ms);
  EXPECT_GE(clock.Totals().delayed - idle.delayed, 15ms);
}

}  // namespace
}  // namespace gpushared::device
