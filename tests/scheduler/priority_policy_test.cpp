// SPDX-License-Identifier: Apache-2.0
#include "scheduler/priority_policy.h"

#include <chrono>
#include <memory>

#include <gtest/gtest.h>

#include "tests/support/policy_timeline.h"

namespace gpushared::scheduler {
namespace {

using namespace std::chrono_literals;
using testing::PolicyTimeline;

constexpr ClientSpec kHigh{.scheduling_class = SchedulingClass::kHigh};
constexpr ClientSpec kNormal{.scheduling_class = SchedulingClass::kNormal};
constexpr ClientSpec kLow{.scheduling_class = SchedulingClass::kLow};

std::unique_ptr<Policy> Priority(PolicyOptions options = {}) {
  return std::make_unique<PriorityPolicy>(options);
}

TEST(PriorityPolicy, AHigherClassRunsFirst) {
  PolicyTimeline timeline(Priority());
  const ClientId low = timeline.AddBusyClient(kLow, 1ms);
  const ClientId normal = timeline.AddBusyClient(kNormal, 1ms);
  const ClientId high = timeline.AddBusyClient(kHigh, 1ms);

  timeline.RunFor(100ms);

  EXPECT_EQ(timeline.Held(high), 100ms);
  EXPECT_EQ(timeline.Held(normal), 0ms);
  EXPECT_EQ(timeline.Held(low), 0ms);
}

TEST(PriorityPolicy, WeightsHoldInsideAClass) {
  PolicyTimeline timeline(Priority());
  const ClientId heavy =
      timeline.AddBusyClient({.scheduling_class = SchedulingClass::kLow, .weight = 3}, 1ms);
  const ClientId light =
      timeline.AddBusyClient({.scheduling_class = SchedulingClass::kLow, .weight = 1}, 1ms);

  timeline.RunFor(400ms);

  EXPECT_EQ(timeline.Held(heavy), 300ms);
  EXPECT_EQ(timeline.Held(light), 100ms);
}

TEST(PriorityPolicy, LowerWorkHasLeftDeviceWhenExpectedRequestArrives) {
  PolicyTimeline timeline(Priority());
  const ClientId low = timeline.AddBusyClient(kLow, {.time = 50ms, .unit = 90us});
  const ClientId high = timeline.AddClient(kHigh);
  timeline.RunFor(10ms);
  timeline.lane().ExpectRequest(high, timeline.now() + 2ms, timeline.now());
  timeline.RunFor(1800us);
  EXPECT_EQ(timeline.CountStops(low), 0u) << "it is early";
  timeline.RunFor(200us);
  EXPECT_EQ(timeline.CountStops(low), 1u);
  EXPECT_EQ(timeline.lane().in_flight_count(), 0u);

  const auto command = timeline.Post(high, {.time = 1ms});
  timeline.RunFor(5ms);
  EXPECT_EQ(timeline.Latency(command), 1ms);
  EXPECT_GT(timeline.lane().in_flight_count(), 0u) << "it has come: low goes on";
}

TEST(PriorityPolicy, AnExpectedRequestThatComesEarlyIsNotExpectedAgain) {
  for (const bool is_marked : {false, true}) {
    SCOPED_TRACE(is_marked);
    PolicyTimeline timeline(Priority());
    const ClientId low = timeline.AddBusyClient(kLow, {.time = 50ms, .unit = 90us});
    const ClientId high = timeline.AddClient(kHigh);
    timeline.RunFor(10ms);
    timeline.lane().ExpectRequest(high, timeline.now() + 3ms, timeline.now());
    timeline.RunFor(1ms);
    if (is_marked) {
      timeline.lane().BeginRequest(high, {1, timeline.now()}, timeline.now());
      timeline.lane().EndRequest(high, 1, timeline.now());
    } else {
      timeline.Post(high, {.time = 200us});
    }
    timeline.RunFor(5ms);
    EXPECT_EQ(timeline.CountStops(low), is_marked ? 0u : 1u) << "for the request, and not again";
  }
}

TEST(PriorityPolicy, WorkQueuedBeforeHintDoesNotFulfilIt) {
  PolicyTimeline timeline(Priority());
  const ClientId low = timeline.AddBusyClient(kLow, {.time = 50ms, .unit = 90us});
  const ClientId high = timeline.AddClient(kHigh);
  for (int i = 0; i < 10; ++i) timeline.Post(high, {.time = 100us});
  timeline.lane().ExpectRequest(high, timeline.now() + 5ms, timeline.now());
  timeline.RunFor(4800us);
  EXPECT_EQ(timeline.lane().in_flight_count(), 1u) << "low fills the gap";
  const std::size_t stops = timeline.CountStops(low);
  timeline.RunFor(200us);
  EXPECT_EQ(timeline.CountStops(low), stops + 1);
  EXPECT_EQ(timeline.lane().in_flight_count(), 0u);
}

// While low work waits seconds for commands that cannot be stopped, the low class must not gain
// seconds of credit.
TEST(PriorityPolicy, FloorsCreditIsAtMostFewSlices) {
  PolicyTimeline timeline(Priority({.slice = 1ms, .low_floor = 0.25}));
  const ClientId high = timeline.AddClient(kHigh);
  const ClientId low = timeline.AddClient(kLow);
  timeline.Post(high, {.time = 2s});
  timeline.RunFor(1ms);
  for (int i = 0; i < 100; ++i) timeline.Post(low, {.time = 1ms});
  timeline.RunFor(2s);
  for (int i = 0; i < 200; ++i) timeline.Post(high, {.time = 1ms});
  const Duration before = timeline.Held(low);
  timeline.RunFor(80ms);

  // The low class gets a quarter of the time and four slices. If the classes took turns of a slice
  // each, the low class would get half.
  EXPECT_LE(timeline.Held(low) - before, 20ms + 4ms + 2ms);
}

TEST(PriorityPolicy, SoonForgetsAbsentExpectedRequest) {
  PolicyTimeline timeline(Priority());
  const ClientId low = timeline.AddBusyClient(kLow, {.time = 50ms, .unit = 80us});
  const ClientId high = timeline.AddClient(kHigh);
  timeline.lane().ExpectRequest(high, timeline.now() + 2ms, timeline.now());
  timeline.RunFor(2499us);
  EXPECT_EQ(timeline.lane().in_flight_count(), 0u);
  timeline.RunFor(1us);
  EXPECT_EQ(timeline.lane().in_flight_count(), 1u);
  EXPECT_GT(timeline.Held(low), 1800us);
}

TEST(PriorityPolicy, UnstoppableWorkWaitsIfRequestIsExpectedMeanwhile) {
  PolicyTimeline timeline(Priority());
  const ClientId high = timeline.AddClient(kHigh);
  const ClientId low = timeline.AddClient(kLow);
  timeline.lane().ExpectRequest(high, timeline.now() + 2ms, timeline.now());
  const auto fits = timeline.Post(low, {.time = 1900us});
  timeline.RunFor(1900us);
  EXPECT_EQ(timeline.Latency(fits), 1900us);
  const auto too_long = timeline.Post(low, {.time = 200us});
  timeline.RunFor(500us);
  EXPECT_EQ(timeline.Latency(too_long), std::nullopt);
  EXPECT_EQ(timeline.lane().in_flight_count(), 0u);
  timeline.RunFor(300us);
  EXPECT_EQ(timeline.Latency(too_long), 800us) << "the hint is over after 2.5 ms";
}

TEST(PriorityPolicy, DoesNotStartWorkThatExpectedRequestWouldStopAtOnce) {
  PolicyTimeline timeline(Priority());
  const ClientId high = timeline.AddClient(kHigh);
  const ClientId low = timeline.AddClient(kLow);
  timeline.lane().ExpectRequest(high, timeline.now() + 100us, timeline.now());
  timeline.Post(low, {.time = 1ms, .unit = 10us});
  timeline.RunFor(50us);
  EXPECT_EQ(timeline.lane().in_flight_count(), 0u);
  EXPECT_EQ(timeline.CountStops(low), 0u);
}

TEST(PriorityPolicy, HonoursOnlyHintsOfHighClass) {
  PolicyTimeline timeline(Priority());
  const ClientId normal = timeline.AddClient(kNormal);
  const ClientId changed = timeline.AddClient(kHigh);
  const ClientId gone = timeline.AddClient(kHigh);
  const ClientId low = timeline.AddClient(kLow);
  for (const ClientId each : {normal, changed, gone}) {
    timeline.lane().ExpectRequest(each, timeline.now(), timeline.now());
  }
  timeline.lane().ChangeClient(changed, kNormal, timeline.now());
  timeline.Remove(gone);
  const auto command = timeline.Post(low, {.time = 200us});
  timeline.RunFor(200us);
  EXPECT_EQ(timeline.Latency(command), 200us);
}

TEST(PriorityPolicy, AnArrivalStopsLowerWorkAtItsNextUnit) {
  PolicyTimeline timeline(Priority());
  const ClientId low = timeline.AddBusyClient(kLow, {.time = 50ms, .unit = 100us});
  const ClientId high = timeline.AddClient(kHigh);
  timeline.RunFor(20ms + 30us);

  const auto command = timeline.Post(high, {.time = 1ms});
  timeline.RunFor(10ms);

  EXPECT_EQ(timeline.Latency(command), 70us + 1ms);
  EXPECT_EQ(timeline.CountStops(low), 1u);
}

TEST(PriorityPolicy, ANormalClientIsStoppedForAHighOneAndStopsALowOne) {
  PolicyTimeline timeline(Priority());
  const ClientId low = timeline.AddBusyClient(kLow, {.time = 50ms, .unit = 100us});
  timeline.RunFor(1ms);
  const ClientId normal = timeline.AddClient(kNormal);
  timeline.Post(normal, {.time = 50ms, .unit = 100us});
  timeline.RunFor(1ms);
  const ClientId high = timeline.AddClient(kHigh);
  const auto command = timeline.Post(high, {.time = 1ms});
  timeline.RunFor(10ms);

  EXPECT_EQ(timeline.CountStops(low), 1u);
  EXPECT_EQ(timeline.CountStops(normal), 1u);
  EXPECT_EQ(timeline.Latency(command), 1ms);
}

TEST(PriorityPolicy, AStoppedCommandLosesNothingAndEnds) {
  PolicyTimeline timeline(Priority());
  const ClientId low = timeline.AddClient(kLow);
  const ClientId high = timeline.AddClient(kHigh);
  timeline.Post(low, {.time = 50ms, .unit = 100us});
  for (int i = 0; i < 20; ++i) {
    timeline.RunFor(5ms + 37us);
    timeline.Post(high, {.time = 2ms});
  }
  timeline.RunFor(1s);

  EXPECT_EQ(timeline.Completed(low), 1u);
  // While low work drains, high work is on the device, too, and is charged a part of the time.
  EXPECT_EQ(timeline.Held(low) + timeline.Held(high), 50ms + 40ms);
}

TEST(PriorityPolicy, LowWorkThatCannotBeStoppedIsWaitedForOnce) {
  PolicyTimeline timeline(Priority());
  const ClientId low = timeline.AddBusyClient(kLow, 5ms);
  const ClientId high = timeline.AddClient(kHigh);
  timeline.RunFor(1ms);

  const auto first = timeline.Post(high, {.time = 1ms});
  const auto second = timeline.Post(high, {.time = 1ms});
  timeline.RunFor(10ms);

  EXPECT_EQ(timeline.Latency(first), 4ms + 1ms);
  EXPECT_EQ(timeline.Latency(second), 4ms + 2ms);
  EXPECT_EQ(timeline.CountStops(low), 0u);
}

TEST(PriorityPolicy, LowWorkWaitsForHighWorkOnTheDevice) {
  PolicyTimeline timeline(Priority({.hold_off = 0us}), {});
  const ClientId high = timeline.AddClient(kHigh);
  const ClientId low = timeline.AddClient(kLow);
  timeline.Post(high, {.time = 5ms});
  timeline.RunFor(1ms);
  timeline.Post(low, {.time = 1ms});
  timeline.RunFor(20ms);

  EXPECT_EQ(timeline.LastSubmit(low), TimePoint(5ms));
}

TEST(PriorityPolicy, LowWorkResumesOnlyAfterTheHoldOff) {
  PolicyTimeline timeline(Priority({.hold_off = 200us}));
  const ClientId low = timeline.AddBusyClient(kLow, {.time = 50ms, .unit = 100us});
  const ClientId high = timeline.AddClient(kHigh);
  timeline.Post(high, {.time = 1ms});
  timeline.RunFor(1ms + 100us);
  EXPECT_EQ(timeline.LastSubmit(low), std::nullopt);

  // The pause was shorter than the hold-off, so this command finds an empty device.
  const auto second = timeline.Post(high, {.time = 1ms});
  timeline.RunFor(10ms);

  EXPECT_EQ(timeline.Latency(second), 1ms);
  EXPECT_EQ(timeline.LastSubmit(low), TimePoint(2100us + 200us));
}

TEST(PriorityPolicy, ARemovedHighClientLetsLowWorkIn) {
  PolicyTimeline timeline(Priority());
  const ClientId high = timeline.AddBusyClient(kHigh, 1ms);
  const ClientId low = timeline.AddBusyClient(kLow, 1ms);
  timeline.RunFor(10ms);
  timeline.Remove(high);
  timeline.RunFor(10ms);

  EXPECT_GE(timeline.Held(low), 7ms);
}

TEST(PriorityPolicy, AClassChangedWhileRunningHoldsFromThenOn) {
  PolicyTimeline timeline(Priority());
  const ClientId a = timeline.AddBusyClient(kHigh, 1ms);
  const ClientId b = timeline.AddBusyClient(kLow, 1ms);
  timeline.RunFor(10ms);
  timeline.lane().ChangeClient(a, kLow, timeline.now());
  timeline.lane().ChangeClient(b, kHigh, timeline.now());
  timeline.RunFor(10ms);

  EXPECT_EQ(timeline.Held(a), 11ms);  // Includes the command that was on the device.
  EXPECT_EQ(timeline.Held(b), 9ms);
}

TEST(PriorityPolicy, TheFloorIsKeptUnderAFullHighLoad) {
  PolicyTimeline timeline(Priority({.low_floor = 0.1}));
  const ClientId high = timeline.AddBusyClient(kHigh, 300us);
  const ClientId low = timeline.AddBusyClient(kLow, {.time = 20ms, .unit = 50us});

  timeline.RunFor(10s);

  EXPECT_NEAR(static_cast<double>(timeline.Held(low).count()), 1e9, 0.02e9);
  EXPECT_NEAR(static_cast<double>(timeline.Held(high).count()), 9e9, 0.02e9);
}

// Low work left on the device among a full queue of high work would be charged for its wait, so
// that it would have its floor according to its charges only.
TEST(PriorityPolicy, KeepsFloorInActualTimeWithDeepHighPipelines) {
  PolicyTimeline timeline(Priority({.low_floor = 0.2}), {});
  timeline.AddBusyClient(kHigh, 100us);
  timeline.AddBusyClient(kNormal, 100us);
  const ClientId low = timeline.AddBusyClient(kLow, 70us);

  timeline.RunFor(2s);

  const Duration ran = timeline.Completed(low) * 70us;
  EXPECT_NEAR(static_cast<double>(ran.count()), 0.4e9, 0.01e9);
}

TEST(PriorityPolicy, AFloorOfMostOfTheDeviceIsKeptToo) {
  PolicyTimeline timeline(Priority({.low_floor = 0.9}));
  const ClientId high = timeline.AddBusyClient(kHigh, 50us);
  const ClientId low = timeline.AddBusyClient(kLow, {.time = 20ms, .unit = 50us});

  timeline.RunFor(10s);

  EXPECT_NEAR(static_cast<double>(timeline.Held(low).count()), 9e9, 0.1e9);
  EXPECT_GE(timeline.Held(high), 800ms);
}

TEST(PriorityPolicy, GapsThatLowWorkUsedCountAgainstItsFloor) {
  PolicyTimeline timeline(Priority({.low_floor = 0.1, .hold_off = 0us}));
  const ClientId high = timeline.AddClient(kHigh);
  const ClientId low = timeline.AddBusyClient(kLow, {.time = 20ms, .unit = 50us});
  std::vector<std::uint64_t> requests;
  for (int i = 0; i < 100; ++i) {
    requests.push_back(timeline.Post(high, {.time = 5ms}));
    timeline.RunFor(10ms);
  }

  // The low class has half of the time in any case, so no request meets a turn of the floor.
  for (const auto request : requests) EXPECT_LE(*timeline.Latency(request), 5050us);
  EXPECT_GE(timeline.Held(low), 480ms);
}

TEST(PriorityPolicy, FloorRunsAtMostOneSliceAtATime) {
  PolicyTimeline timeline(Priority({.slice = 2ms, .low_floor = 0.1}));
  const ClientId high = timeline.AddBusyClient(kHigh, 500us);
  timeline.AddBusyClient(kLow, {.time = 20ms, .unit = 50us});
  TimePoint last_high{};
  timeline.RunFor(1s);

  for (const auto& logged : timeline.actions()) {
    if (logged.action.client != high) continue;
    EXPECT_LE(logged.at - last_high, 2ms + 500us + 50us);
    last_high = logged.at;
  }
}

TEST(PriorityPolicy, PassesClassToDevice) {
  PolicyTimeline timeline(Priority());
  for (const ClientSpec& spec : {kHigh, kNormal, kLow}) {
    timeline.Post(timeline.AddClient(spec), {.time = 1ms});
  }
  timeline.RunFor(1s);

  ASSERT_EQ(timeline.actions().size(), 3u);
  EXPECT_EQ(timeline.actions()[0].action.priority, 2);
  EXPECT_EQ(timeline.actions()[1].action.priority, 1);
  EXPECT_EQ(timeline.actions()[2].action.priority, 0);
}

}  // namespace
}  // namespace gpushared::scheduler
