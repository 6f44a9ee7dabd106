// SPDX-License-Identifier: Apache-2.0
#include "scheduler/deadline_policy.h"

#include <chrono>
#include <vector>

#include <gtest/gtest.h>

#include "tests/scheduler/deadline_cases.h"

namespace gpushared::scheduler {
namespace {

using namespace std::chrono_literals;
using testing::PolicyTimeline;

TEST(DeadlinePolicy, RunsEarliestDeadlineFirst) {
  PolicyTimeline timeline(Deadline());
  const ClientId relaxed = timeline.AddClient(Promised(100ms));
  const ClientId hurried = timeline.AddClient(Promised(20ms));
  const auto last = timeline.PostRequest(relaxed, {.time = 1ms}, 10);
  timeline.RunFor(100us);
  const auto first = timeline.PostRequest(hurried, {.time = 1ms}, 5);
  timeline.RunFor(50ms);

  EXPECT_EQ(timeline.Latency(first), 900us + 5ms);
  EXPECT_EQ(timeline.Latency(last), 15ms);
  EXPECT_EQ(timeline.lane().targets().met, 2u);
}

TEST(DeadlinePolicy, RequestThatWaitedBeforeItsMarkIsDueSooner) {
  PolicyTimeline timeline(Deadline());
  const ClientId fresh = timeline.AddClient(Promised(20ms));
  const ClientId late = timeline.AddClient(Promised(20ms));
  timeline.PostRequest(fresh, {.time = 1ms}, 5);
  const auto waited = timeline.PostRequest(late, {.time = 1ms}, 5, 10ms);
  timeline.RunFor(50ms);

  EXPECT_EQ(timeline.Latency(waited), 5ms);
}

TEST(DeadlinePolicy, SchedulesByClassAndWeightWithoutTargets) {
  PolicyTimeline timeline(Deadline());
  const ClientId high = timeline.AddBusyClient(kHigh, 1ms);
  const ClientId low = timeline.AddBusyClient(kLow, 1ms);
  timeline.RunFor(50ms);
  EXPECT_EQ(timeline.Held(high), 50ms);
  EXPECT_EQ(timeline.Held(low), 0ms);

  timeline.Remove(high);
  const ClientId heavy =
      timeline.AddBusyClient({.scheduling_class = SchedulingClass::kLow, .weight = 3}, 1ms);
  timeline.RunFor(101ms);
  EXPECT_NEAR(static_cast<double>(timeline.Held(heavy).count()), 75e6, 3e6);
}

TEST(DeadlinePolicy, LowRequestWithTargetPrecedesHighClass) {
  PolicyTimeline timeline(Deadline());
  timeline.AddBusyClient(kHigh, 1ms);
  const ClientId low = timeline.AddClient(Promised(10ms, SchedulingClass::kLow));
  timeline.RunFor(5ms);
  const auto request = timeline.PostRequest(low, {.time = 1ms}, 3);
  timeline.RunFor(20ms);

  // Waits for the running command, which cannot be stopped.
  EXPECT_EQ(timeline.Latency(request), 3ms + 1ms);
}

TEST(DeadlinePolicy, WorkOutsideRequestsHasNoTarget) {
  PolicyTimeline timeline(Deadline());
  const ClientId high = timeline.AddBusyClient(kHigh, 1ms);
  const ClientId low = timeline.AddBusyClient(Promised(10ms, SchedulingClass::kLow), {.time = 1ms});
  timeline.RunFor(50ms);

  EXPECT_EQ(timeline.Held(high), 50ms);
  EXPECT_EQ(timeline.Held(low), 0ms);
}

// ---- shares of clients that come and go

// With independent levels the client would count as new each time, without debt.
TEST(DeadlinePolicy, MarkingRequestsShedsNoDebt) {
  PolicyTimeline timeline(Deadline());
  const ClientId marking = timeline.AddBusyClient(Promised(10ms, SchedulingClass::kLow), 1ms);
  const ClientId heavy =
      timeline.AddBusyClient({.scheduling_class = SchedulingClass::kLow, .weight = 1000}, 1ms);
  for (std::uint64_t request = 1; request <= 800; ++request) {
    timeline.RunFor(500us);
    timeline.lane().BeginRequest(marking, {request, timeline.now()}, timeline.now());
    timeline.lane().EndRequest(marking, request, timeline.now());
  }

  EXPECT_LE(timeline.Held(marking), 2ms);
  EXPECT_GE(timeline.Held(heavy), 397ms);
}

TEST(DeadlinePolicy, ChargesEarlierWorkThatEndsInsideRequest) {
  PolicyTimeline timeline(Deadline());
  const ClientId marking = timeline.AddClient(Promised(10ms, SchedulingClass::kLow));
  timeline.AddBusyClient({.scheduling_class = SchedulingClass::kLow, .weight = 1000}, 1ms);
  std::uint64_t request = 0;
  bool is_open = false;
  for (int i = 0; i < 400; ++i) {
    if (timeline.lane().queued_count(marking) == 0) timeline.Post(marking, {.time = 1ms});
    timeline.RunFor(500us);
    // A request is open only while its client's command runs, and never while a command is queued.
    const bool runs = timeline.Posted(marking) > timeline.Completed(marking);
    if (is_open) timeline.lane().EndRequest(marking, request, timeline.now());
    is_open = runs && timeline.lane().queued_count(marking) == 0;
    if (is_open) timeline.lane().BeginRequest(marking, {++request, timeline.now()}, timeline.now());
  }

  EXPECT_LE(timeline.Completed(marking), 2u);
}

TEST(DeadlinePolicy, ARequestLeavesNoCreditInTheShare) {
  PolicyTimeline timeline(Deadline());
  const ClientId away = timeline.AddBusyClient(Promised(10s, SchedulingClass::kLow), 1ms);
  timeline.AddBusyClient(kLow, 1ms);
  timeline.Sleep(away);
  Teach(timeline, away, {.time = 1ms});
  timeline.lane().BeginRequest(away, {1000, timeline.now()}, timeline.now());
  timeline.RunFor(100ms);
  // The client returns with work, so it does not count as waking up.
  timeline.Wake(away);
  timeline.lane().EndRequest(away, 1000, timeline.now());
  const Duration before = timeline.Held(away);
  timeline.RunFor(100ms);

  EXPECT_NEAR(static_cast<double>((timeline.Held(away) - before).count()), 50e6, 2e6);
}

TEST(DeadlinePolicy, AClientThatQueuesOneCommandAtATimeKeepsItsPlace) {
  PolicyTimeline timeline(Deadline());
  const ClientId light = timeline.AddClient(kLow);
  const ClientId heavy =
      timeline.AddClient({.scheduling_class = SchedulingClass::kLow, .weight = 1000});
  for (int i = 0; i < 20'000; ++i) {
    for (const ClientId each : {light, heavy}) {
      const bool is_done = timeline.Posted(each) == timeline.Completed(each);
      if (is_done) timeline.Post(each, {.time = 500us});
    }
    timeline.RunFor(5us);
  }

  EXPECT_LE(timeline.Held(light), 2ms);
  EXPECT_GE(timeline.Held(heavy), 95ms);
}

TEST(DeadlinePolicy, TimeUsedAloneIsNoDebtAfterRequest) {
  PolicyTimeline timeline(Deadline());
  const ClientId early = timeline.AddBusyClient(Promised(10s, SchedulingClass::kLow), 1ms);
  timeline.RunFor(100ms);
  timeline.lane().BeginRequest(early, {1, timeline.now()}, timeline.now());
  timeline.AddBusyClient(kLow, 1ms);
  timeline.RunFor(1ms);
  timeline.lane().EndRequest(early, 1, timeline.now());
  const Duration before = timeline.Held(early);
  timeline.RunFor(20ms);

  EXPECT_NEAR(static_cast<double>((timeline.Held(early) - before).count()), 10e6, 1.1e6);
}

// The level's clock must not include a sleeper's debt, because new clients would start with the
// same lead.
TEST(DeadlinePolicy, RequestOfSleeperShedsNoDebtWhenAlone) {
  PolicyTimeline timeline(Deadline());
  const ClientId greedy = timeline.AddClient(Promised(10ms, SchedulingClass::kLow));
  const ClientId patient = timeline.AddBusyClient(kLow, 1ms);
  timeline.RunFor(1ms);
  timeline.Post(greedy, {.time = 50ms});
  timeline.RunFor(60ms);
  timeline.Sleep(patient);
  timeline.RunFor(5ms);
  const ClientId last = timeline.AddBusyClient(kLow, 1ms);
  timeline.RunFor(3ms);
  timeline.Remove(last);
  timeline.RunFor(3ms);
  timeline.lane().BeginRequest(greedy, {1, timeline.now()}, timeline.now());
  timeline.lane().EndRequest(greedy, 1, timeline.now());
  timeline.Wake(patient);
  const auto again = timeline.Post(greedy, {.time = 1ms});
  timeline.RunFor(100ms);

  EXPECT_GE(timeline.Latency(again).value_or(0ms), 30ms);
}

// ---- alongside requests with a target

TEST(DeadlinePolicy, LowWorkRunsAlongsideRequestWithSlackAndTargetIsMet) {
  PolicyTimeline timeline(Deadline());
  const ClientId high = timeline.AddClient(Promised(10ms));
  timeline.AddBusyClient(kLow, {.time = 50ms, .unit = 20us});
  Teach(timeline, high, {.time = 1ms});

  std::vector<std::uint64_t> requests;
  for (int i = 0; i < 50; ++i) {
    requests.push_back(timeline.PostRequest(high, {.time = 1ms}));
    timeline.RunFor(20ms);
  }
  Duration longest{};
  for (const auto request : requests) {
    longest = std::max(longest, timeline.Latency(request).value_or(1h));
  }
  EXPECT_GT(longest, 2ms) << "low work could have stayed for some of the slack";
  EXPECT_LE(longest, 10ms);
}

TEST(DeadlinePolicy, TightTargetPreemptsLowWorkAtOnce) {
  PolicyTimeline timeline(Deadline());
  const ClientId high = timeline.AddClient(Promised(1050us));
  const ClientId low = timeline.AddBusyClient(kLow, {.time = 50ms, .unit = 20us});
  Teach(timeline, high, {.time = 1ms});
  const std::size_t stops = timeline.CountStops(low);

  const auto request = timeline.PostRequest(high, {.time = 1ms});
  timeline.RunFor(10ms);

  EXPECT_LE(timeline.Latency(request), 1ms + 20us);
  EXPECT_EQ(timeline.CountStops(low), stops + 1);
}

// Slack of one request is also slack of the requests after it.
TEST(DeadlinePolicy, ReservesSlackForSlowRequests) {
  PolicyTimeline timeline(Deadline());
  const ClientId high = timeline.AddClient(Promised(10ms));
  timeline.AddBusyClient(kLow, {.time = 50ms, .unit = 20us});
  // Every tenth request takes nearly all of its target.
  for (int i = 0; i < 40; ++i) {
    timeline.PostRequest(high, {.time = i % 10 == 9 ? 9500us : 1ms});
    timeline.RunFor(20ms);
  }
  const auto request = timeline.PostRequest(high, {.time = 1ms});
  timeline.RunFor(20ms);

  EXPECT_LE(timeline.Latency(request), 1ms + 500us);
}

// Every fifth request takes 3.9 ms of the target of 4 ms, and the policy cannot tell which one.
TEST(DeadlinePolicy, WorkWithLongPreemptionLatencyWaitsForRequestsOfUncertainLength) {
  PolicyTimeline timeline(Deadline());
  const ClientId high = timeline.AddClient(Promised(4ms));
  timeline.AddBusyClient(kLow, {.time = 50ms, .unit = 300us});
  int late = 0;
  for (int i = 0; i < 200; ++i) {
    const auto request = timeline.PostRequest(high, {.time = i % 5 == 4 ? 3900us : 1ms});
    timeline.RunFor(7ms + i % 7 * 1ms);
    late += i >= 40 && timeline.Latency(request) > 4ms;
  }
  EXPECT_LE(late, 2);
}

// Each request spends most of its time on the host, and the next one arrives before it ends.
TEST(DeadlinePolicy, OthersRunAlongsideOverlappingRequestsOnceKnown) {
  PolicyTimeline timeline(Deadline());
  const ClientId high = timeline.AddClient(Promised(100ms));
  const ClientId low = timeline.AddBusyClient(kLow, {.time = 50ms, .unit = 20us});
  timeline.lane().BeginRequest(high, {1, timeline.now()}, timeline.now());
  for (std::uint64_t request = 2; request < 200; ++request) {
    timeline.Post(high, {.time = 1ms});
    timeline.RunFor(5ms);
    timeline.lane().BeginRequest(high, {request, timeline.now()}, timeline.now());
    timeline.RunFor(1ms);
    timeline.lane().EndRequest(high, request - 1, timeline.now());
  }
  EXPECT_GE(timeline.Held(low), 400ms);
}

TEST(DeadlinePolicy, NothingRunsAlongsideUnknownRequest) {
  PolicyTimeline timeline(Deadline());
  const ClientId high = timeline.AddClient(Promised(100ms));
  timeline.AddBusyClient(kLow, {.time = 50ms, .unit = 20us});
  timeline.RunFor(1ms);

  const auto request = timeline.PostRequest(high, {.time = 1ms}, 10);
  timeline.RunFor(50ms);

  EXPECT_LE(timeline.Latency(request), 10ms + 20us);
}

TEST(DeadlinePolicy, EmptyRequestDelaysOthersAtMostByItsTarget) {
  PolicyTimeline timeline(Deadline());
  const ClientId high = timeline.AddClient(Promised(5ms));
  const ClientId low = timeline.AddClient(kLow);
  timeline.lane().BeginRequest(high, {.number = 1, .arrived = timeline.now()}, timeline.now());
  timeline.Post(low, {.time = 1ms});
  timeline.RunFor(6ms);
  EXPECT_TRUE(timeline.lane().targets().is_overloaded);
  timeline.RunFor(44ms);

  EXPECT_EQ(timeline.LastSubmit(low), TimePoint(5ms + 1ns));
}

TEST(DeadlinePolicy, EmptyRequestDelaysNoHigherClass) {
  PolicyTimeline timeline(Deadline());
  const ClientId low = timeline.AddClient(Promised(1h, SchedulingClass::kLow));
  const ClientId high = timeline.AddBusyClient(kHigh, {.time = 1ms, .unit = 20us});
  for (const std::uint64_t request : {1, 2}) {
    timeline.lane().BeginRequest(low, {request, timeline.now()}, timeline.now());
    timeline.RunFor(1ms);
  }
  timeline.RunFor(998ms);

  EXPECT_EQ(timeline.Held(high), 1s);
  EXPECT_EQ(timeline.CountStops(high), 0u);
}

TEST(DeadlinePolicy, WaitsForEmptyRequestWhilePatienceLasts) {
  PolicyTimeline timeline(Deadline());
  const ClientId idle = timeline.AddClient(Promised(1h, SchedulingClass::kLow));
  const ClientId other = timeline.AddBusyClient(kLow, {.time = 5s, .unit = 20us});
  timeline.RunFor(1ms);
  const TimePoint began = timeline.now();
  timeline.lane().BeginRequest(idle, {1, timeline.now()}, timeline.now());
  timeline.RunFor(100ms);
  EXPECT_EQ(timeline.LastSubmit(other), began + 20ms);

  // The request's target counts as soon as the request has a command to run.
  const auto first = timeline.Post(idle, {.time = 1ms});
  timeline.RunFor(2ms);
  EXPECT_LE(timeline.Latency(first).value_or(1h), 1ms + 20us);
  timeline.RunFor(10ms);
  EXPECT_EQ(timeline.LastSubmit(other), began + 20ms) << "and it is waited for again";
  timeline.RunFor(20ms);
  EXPECT_EQ(timeline.LastSubmit(other), began + 101ms + 20ms);
}

TEST(DeadlinePolicy, WaitsForKnownRequestForItsExpectedTime) {
  PolicyTimeline timeline(Deadline());
  const ClientId idle = timeline.AddClient(Promised(1s, SchedulingClass::kLow));
  const auto begin = [&](std::uint64_t number) {
    timeline.lane().BeginRequest(idle, {number, timeline.now()}, timeline.now());
    timeline.Post(idle, {.time = 1ms});
  };
  // Each request spends most of its time on the host.
  for (std::uint64_t number = 1; number <= 20; ++number) {
    begin(number);
    timeline.RunFor(60ms);
    timeline.lane().EndRequest(idle, number, timeline.now());
    timeline.RunFor(50ms);
  }
  const ClientId other = timeline.AddClient(kLow);
  const TimePoint began = timeline.now();
  begin(100);
  timeline.Post(other, {.time = 5s});
  timeline.RunFor(200ms);

  // The expected time counts from the end of the request's command.
  EXPECT_EQ(timeline.LastSubmit(other), began + 1ms + 60ms);
}

TEST(DeadlinePolicy, UnknownRequestDelaysHigherClassAtMostByPatience) {
  PolicyTimeline timeline(Deadline());
  const ClientId low = timeline.AddBusyClient(Promised(1h, SchedulingClass::kLow), 1ms);
  timeline.lane().BeginRequest(low, {1, timeline.now()}, timeline.now());
  timeline.RunFor(50ms);
  EXPECT_EQ(timeline.Held(low), 50ms) << "nobody else is here";
  const ClientId high = timeline.AddBusyClient(kHigh, 1ms);
  timeline.RunFor(1s);
  EXPECT_GE(timeline.Held(high), 998ms);
  EXPECT_EQ(timeline.lane().targets().abandoned[2], 1u);
}

TEST(DeadlinePolicy, ShortFirstLowRequestMeetsTargetAlongsideHighClass) {
  PolicyTimeline timeline(Deadline());
  timeline.AddBusyClient(kHigh, 1ms);
  const ClientId low = timeline.AddClient(Promised(100ms, SchedulingClass::kLow));
  timeline.RunFor(5ms);
  const auto request = timeline.PostRequest(low, {.time = 1ms}, 20);
  timeline.RunFor(200ms);

  EXPECT_LE(timeline.Latency(request).value_or(1h), 20ms + 1ms);
}

// ---- in pauses

TEST(DeadlinePolicy, UnstoppableKernelWaitsIfNextRequestCouldNotWait) {
  PolicyTimeline timeline(Deadline({.patience = 100ms}));
  const ClientId high = timeline.AddClient(Promised(4ms));
  const ClientId low = timeline.AddClient(kLow);
  Teach(timeline, high, {.time = 1ms}, 10ms);
  // The next request may come at any time.
  timeline.RunFor(10ms);
  timeline.Post(low, {.time = 5ms});
  timeline.RunFor(5ms);
  EXPECT_EQ(timeline.LastSubmit(low), std::nullopt);

  const auto request = timeline.PostRequest(high, {.time = 1ms});
  timeline.RunFor(200ms);

  EXPECT_EQ(timeline.Latency(request), 1ms);
  EXPECT_EQ(timeline.Completed(low), 1u) << "patience has an end";
  EXPECT_EQ(timeline.lane().targets().at_risk, 1u);
}

TEST(DeadlinePolicy, ShortKernelStartsInAnyPauseIfNextRequestCanWait) {
  PolicyTimeline timeline(Deadline({.patience = 100ms}));
  const ClientId high = timeline.AddClient(Promised(4ms));
  const ClientId low = timeline.AddClient(kLow);
  Teach(timeline, high, {.time = 1ms}, 10ms);
  timeline.RunFor(10ms);
  timeline.Post(low, {.time = 1ms});
  timeline.RunFor(5ms);

  EXPECT_EQ(timeline.Completed(low), 1u);
  EXPECT_EQ(timeline.lane().targets().at_risk, 0u);
}

TEST(DeadlinePolicy, WithoutHeadroomOnlyKernelsShorterThanAStopRunInPauses) {
  PolicyTimeline timeline(Deadline({.patience = 100ms}));
  const ClientId high = timeline.AddClient(Promised(4ms));
  const ClientId low = timeline.AddClient(kLow);
  Teach(timeline, high, {.time = 2500us}, 10ms);
  // The second of two is late in any case, so slow requests leave no headroom.
  timeline.PostRequest(high, {.time = 2500us});
  timeline.PostRequest(high, {.time = 2500us});
  timeline.RunFor(20ms);

  // Preemption is assumed to take 100 us until a stop has been observed.
  timeline.Post(low, {.time = 101us});
  timeline.RunFor(5ms);
  EXPECT_EQ(timeline.Completed(low), 0u);
  timeline.RunFor(100ms);
  EXPECT_EQ(timeline.Completed(low), 1u) << "patience has an end";

  timeline.PostRequest(high, {.time = 2500us});
  timeline.RunFor(10ms);
  timeline.Post(low, {.time = 100us});
  timeline.RunFor(5ms);
  EXPECT_EQ(timeline.Completed(low), 2u);
  EXPECT_EQ(timeline.lane().targets().at_risk, 1u);
}

TEST(DeadlinePolicy, ShortKernelWaitsIfNextRequestHasLessSlack) {
  for (const bool beside_a_relaxed_one : {false, true}) {
    PolicyTimeline timeline(Deadline({.patience = 10s}));
    const ClientId tight = timeline.AddClient(Promised(1050us));
    const ClientId low = timeline.AddClient(kLow);
    // After a late request no other one may be late.
    timeline.PostRequest(tight, {.time = 2ms});
    Teach(timeline, tight, {.time = 1ms}, 10ms);
    if (beside_a_relaxed_one) {
      Teach(timeline, timeline.AddClient(Promised(50ms)), {.time = 1ms}, 10ms);
    }
    timeline.Post(low, {.time = 80us});
    timeline.RunFor(50ms);
    EXPECT_EQ(timeline.Completed(low), 0u);
  }
}

TEST(DeadlinePolicy, ALongKernelStartsEarlyInThePauseOfAPeriodicClient) {
  PolicyTimeline timeline(Deadline({.patience = 1s}));
  const ClientId high = timeline.AddClient(Promised(4ms));
  const ClientId low = timeline.AddClient(kLow);
  Teach(timeline, high, {.time = 1ms}, 32ms);
  timeline.PostRequest(high, {.time = 1ms});
  timeline.RunFor(5ms);
  timeline.Post(low, {.time = 20ms});
  timeline.RunFor(27ms);
  EXPECT_EQ(timeline.Completed(low), 1u);

  // Late in the pause, the kernel has to wait for the next pause.
  timeline.PostRequest(high, {.time = 1ms});
  timeline.RunFor(20ms);
  timeline.Post(low, {.time = 20ms});
  timeline.RunFor(12ms);
  const auto request = timeline.PostRequest(high, {.time = 1ms});
  timeline.RunFor(31ms);
  EXPECT_EQ(timeline.Latency(request), 1ms);
  EXPECT_EQ(timeline.Completed(low), 2u);
}

TEST(DeadlinePolicy, LowWorkHasLeftDeviceWhenAnnouncedRequestArrives) {
  PolicyTimeline timeline(Deadline());
  const ClientId high = timeline.AddClient(Promised(1300us));
  timeline.AddBusyClient(kLow, {.time = 500ms, .unit = 20us});
  Teach(timeline, high, {.time = 1ms});
  timeline.RunFor(7ms);
  timeline.lane().ExpectRequest(high, timeline.now() + 3ms, timeline.now());
  timeline.RunFor(3ms);

  const auto request = timeline.PostRequest(high, {.time = 1ms});
  timeline.RunFor(10ms);

  EXPECT_EQ(timeline.Latency(request), 1ms);
}

TEST(DeadlinePolicy, AbsentAnnouncedRequestDelaysOthersBriefly) {
  PolicyTimeline timeline(Deadline());
  const ClientId high = timeline.AddClient(Promised(4ms));
  const ClientId low = timeline.AddBusyClient(kLow, {.time = 500ms, .unit = 90us});
  timeline.RunFor(1ms);
  timeline.lane().ExpectRequest(high, timeline.now() + 2ms, timeline.now());
  timeline.RunFor(2ms);
  timeline.RunFor(20ms);

  EXPECT_EQ(timeline.LastSubmit(low), TimePoint(4ms)) << "it is overdue after 1 ms";
}

TEST(DeadlinePolicy, HintsFromBestEffortClientsAreIgnored) {
  PolicyTimeline timeline(Deadline());
  const ClientId other = timeline.AddClient(kLow);
  const ClientId low = timeline.AddBusyClient(kLow, {.time = 500ms, .unit = 90us});
  timeline.RunFor(1ms);
  timeline.lane().ExpectRequest(other, timeline.now() + 2ms, timeline.now());
  timeline.RunFor(20ms);

  EXPECT_EQ(timeline.CountStops(low), 0u);
}

TEST(DeadlinePolicy, HonoursHintsOfHighClientWithoutTarget) {
  PolicyTimeline timeline(Deadline());
  const ClientId high = timeline.AddClient(kHigh);
  const ClientId low = timeline.AddBusyClient(kLow, {.time = 500ms, .unit = 90us});
  timeline.RunFor(1ms);
  timeline.lane().ExpectRequest(high, timeline.now() + 2ms, timeline.now());
  timeline.RunFor(2ms);

  EXPECT_EQ(timeline.CountStops(low), 1u);
  EXPECT_EQ(timeline.lane().in_flight_count(), 0u);
}

TEST(DeadlinePolicy, RemovedClientDoesNotBlockOthers) {
  PolicyTimeline timeline(Deadline({.patience = 1s}));
  const ClientId high = timeline.AddClient(Promised(4ms));
  const ClientId gone = timeline.AddClient(kLow);
  const ClientId low = timeline.AddClient(kLow);
  Teach(timeline, high, {.time = 1ms}, 10ms);
  timeline.RunFor(10ms);
  timeline.Post(gone, {.time = 1ms});
  timeline.RunFor(100us);
  timeline.Remove(gone);
  timeline.RunFor(2ms);
  // If the removed client's work still counted, 1 ms of another client's work would be too much.
  timeline.Post(low, {.time = 1ms});
  timeline.RunFor(2ms);

  EXPECT_EQ(timeline.Completed(gone), 1u);
  EXPECT_EQ(timeline.Completed(low), 1u);
}

TEST(DeadlinePolicy, LowWorkResumesAfterTheHoldOff) {
  PolicyTimeline timeline(Deadline({.hold_off = 200us}));
  const ClientId high = timeline.AddClient(Promised(50ms));
  const ClientId low = timeline.AddClient(kLow);
  timeline.PostRequest(high, {.time = 1ms});
  timeline.Post(low, {.time = 1ms});
  timeline.RunFor(10ms);

  EXPECT_EQ(timeline.LastSubmit(low), TimePoint(1ms + 200us));
}

// ---- overload

TEST(DeadlinePolicy, AbandonsLowerClassFirstInOverload) {
  PolicyTimeline timeline(Deadline());
  const ClientId high = timeline.AddClient(Promised(10ms));
  const ClientId normal = timeline.AddClient(Promised(9ms, SchedulingClass::kNormal));
  // 8 ms each, so that only one fits into 10 ms.
  const auto lesser = timeline.PostRequest(normal, {.time = 1ms}, 8);
  const auto better = timeline.PostRequest(high, {.time = 1ms}, 8);
  timeline.RunFor(50ms);
  // Their needs were unknown before, and are known from now on.
  EXPECT_TRUE(timeline.Latency(lesser) && timeline.Latency(better));
  Teach(timeline, high, {.time = 8ms});
  Teach(timeline, normal, {.time = 8ms});
  const auto abandoned = timeline.lane().targets().abandoned;

  const auto first = timeline.PostRequest(normal, {.time = 8ms});
  const auto second = timeline.PostRequest(high, {.time = 8ms});
  EXPECT_EQ(timeline.Completed(high) + timeline.Completed(normal), 56u);
  timeline.RunFor(50ms);

  EXPECT_EQ(timeline.Latency(second), 8ms);
  EXPECT_EQ(timeline.Latency(first), 16ms + 20us);  // Includes the hold-off.
  EXPECT_EQ(timeline.lane().targets().abandoned[1], abandoned[1] + 1);
  EXPECT_EQ(timeline.lane().targets().abandoned[0], abandoned[0]);
}

TEST(DeadlinePolicy, AbandonsRequestThatNeedsMostInsideAClass) {
  PolicyTimeline timeline(Deadline());
  const ClientId large = timeline.AddClient(Promised(32ms));
  std::vector<ClientId> small;
  for (int i = 0; i < 3; ++i) small.push_back(timeline.AddClient(Promised(31ms)));
  Teach(timeline, large, {.time = 25ms}, 100ms);
  for (const ClientId each : small) Teach(timeline, each, {.time = 8ms}, 100ms);

  const auto late = timeline.PostRequest(large, {.time = 5ms}, 5);
  std::vector<std::uint64_t> kept;
  for (const ClientId each : small) kept.push_back(timeline.PostRequest(each, {.time = 8ms}));
  timeline.RunFor(200ms);

  for (const auto each : kept) EXPECT_LE(timeline.Latency(each), 31ms);
  EXPECT_GT(timeline.Latency(late), 32ms);
}

TEST(DeadlinePolicy, HopelessRequestCostsNoOtherTarget) {
  PolicyTimeline timeline(Deadline());
  const ClientId hopeless = timeline.AddClient(Promised(15ms));
  const ClientId other = timeline.AddClient(Promised(4ms, SchedulingClass::kNormal));
  Teach(timeline, hopeless, {.time = 12ms}, 50ms);
  Teach(timeline, other, {.time = 2ms}, 50ms);

  // Due in 5 ms, with a need of 12 ms.
  timeline.PostRequest(hopeless, {.time = 1ms}, 12, 10ms);
  const auto kept = timeline.PostRequest(other, {.time = 2ms});
  timeline.RunFor(100ms);

  EXPECT_LE(timeline.Latency(kept), 4ms);
}

TEST(DeadlinePolicy, AbandonsNoRequestThatIsDueLaterInOverload) {
  PolicyTimeline timeline(Deadline());
  const ClientId first = timeline.AddClient(Promised(6ms));
  const ClientId second = timeline.AddClient(Promised(7ms));
  const ClientId later = timeline.AddClient(Promised(200ms));
  Teach(timeline, first, {.time = 4ms}, 50ms);
  Teach(timeline, second, {.time = 4ms}, 50ms);
  Teach(timeline, later, {.time = 30ms}, 100ms);
  const auto before = timeline.lane().targets().abandoned;

  timeline.PostRequest(later, {.time = 1ms}, 30);
  timeline.PostRequest(first, {.time = 1ms}, 4);
  timeline.PostRequest(second, {.time = 1ms}, 4);
  timeline.RunFor(100ms);

  // 8 ms in 7: one of the two is abandoned. The third needs most, but abandoning it would not help.
  EXPECT_EQ(timeline.lane().targets().abandoned[0], before[0] + 1);
}

TEST(DeadlinePolicy, PreemptsCommandWithTargetForEarlierDeadline) {
  PolicyTimeline timeline(Deadline());
  const ClientId hurried = timeline.AddClient(Promised(6ms));
  const ClientId relaxed = timeline.AddClient(Promised(500ms));
  Teach(timeline, hurried, {.time = 4ms}, 50ms);
  const auto last = timeline.PostRequest(relaxed, {.time = 50ms, .unit = 20us});
  timeline.RunFor(10ms);
  const auto request = timeline.PostRequest(hurried, {.time = 4ms});
  timeline.RunFor(200ms);

  EXPECT_LE(timeline.Latency(request), 4ms + 20us);
  EXPECT_EQ(timeline.CountStops(relaxed), 1u);
  EXPECT_LE(timeline.Latency(last), 55ms);
}

TEST(DeadlinePolicy, AbandonedRequestKeepsItsClass) {
  PolicyTimeline timeline(Deadline());
  const ClientId high = timeline.AddClient(Promised(5ms));
  timeline.AddBusyClient(kLow, {.time = 50ms, .unit = 20us});
  const auto request = timeline.PostRequest(high, {.time = 1ms}, 30);
  timeline.RunFor(100ms);

  EXPECT_LE(timeline.Latency(request), 30ms + 100us);
  EXPECT_EQ(timeline.lane().targets().abandoned[0], 1u);
  EXPECT_FALSE(timeline.lane().targets().is_overloaded) << "it has ended";
}

TEST(DeadlinePolicy, CountsTargetsMetAndMissed) {
  PolicyTimeline timeline(Deadline());
  const ClientId high = timeline.AddClient(Promised(5ms));
  timeline.PostRequest(high, {.time = 4ms});
  timeline.RunFor(10ms);
  timeline.PostRequest(high, {.time = 6ms});
  timeline.RunFor(10ms);
  EXPECT_EQ(timeline.lane().targets().requests, 2u);
  EXPECT_EQ(timeline.lane().targets().met, 1u);
}

TEST(DeadlinePolicy, WithdrawnTargetHasNoEffect) {
  PolicyTimeline timeline(Deadline());
  const ClientId a = timeline.AddClient(Promised(50ms, SchedulingClass::kLow));
  timeline.AddBusyClient(kHigh, 1ms);
  const auto request = timeline.PostRequest(a, {.time = 1ms}, 10);
  timeline.RunFor(2ms);
  timeline.lane().ChangeClient(a, kLow, timeline.now());
  timeline.RunFor(30ms);

  EXPECT_EQ(timeline.Latency(request), std::nullopt);
}

}  // namespace
}  // namespace gpushared::scheduler
