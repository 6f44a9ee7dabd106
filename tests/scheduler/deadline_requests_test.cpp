// SPDX-License-Identifier: Apache-2.0
// The deadline policy with several requests, and learning between them.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "tests/scheduler/deadline_cases.h"

namespace gpushared::scheduler {
namespace {

using namespace std::chrono_literals;
using testing::PolicyTimeline;

// ---- several open requests of a client

// Requests of 4 ms with a target of 10 ms, of a normal client, alongside a high client that is
// never idle.
class Overlapping : public ::testing::Test {
 protected:
  Overlapping() { Teach(timeline_, client_, {.time = 4ms}, 50ms); }
  void AddHigh() {
    timeline_.AddBusyClient(kHigh, {.time = 1ms, .unit = 10us});
    timeline_.RunFor(100us);
  }
  Duration GetLatency(std::uint64_t request) { return timeline_.Latency(request).value_or(1h); }
  std::uint64_t Post() { return timeline_.PostRequest(client_, {.time = 1ms}, 4); }
  std::uint64_t Abandoned() { return timeline_.lane().targets().abandoned[1]; }

  PolicyTimeline timeline_{Deadline()};
  const ClientId client_ = timeline_.AddClient(Promised(10ms, SchedulingClass::kNormal));
};

TEST_F(Overlapping, EachRequestHasItsOwnDeadline) {
  std::vector<std::uint64_t> requests;
  for (int i = 0; i < 3; ++i) {
    requests.push_back(Post());
    timeline_.RunFor(1ms);
  }
  AddHigh();
  timeline_.RunFor(50ms);
  for (const auto each : requests) EXPECT_LE(GetLatency(each), 10ms);
  EXPECT_EQ(Abandoned(), 0u);
}

TEST_F(Overlapping, AbandonsLastRequestOfAClientAndMeetsEarlierOnes) {
  AddHigh();
  std::vector<std::uint64_t> requests;
  for (int i = 0; i < 3; ++i) requests.push_back(Post());
  timeline_.RunFor(5ms);
  EXPECT_EQ(Abandoned(), 1u);
  EXPECT_TRUE(timeline_.lane().targets().is_overloaded);
  timeline_.RunFor(4ms);
  EXPECT_LE(GetLatency(requests[0]), 10ms);
  EXPECT_LE(GetLatency(requests[1]), 10ms);

  // The next request has a target again, and the earlier ones delay it.
  const auto next = timeline_.PostRequest(client_, {.time = 1ms}, 1);
  timeline_.RunFor(20ms);
  EXPECT_LE(GetLatency(next), 10ms);
  EXPECT_EQ(Abandoned(), 1u);
  EXPECT_FALSE(timeline_.lane().targets().is_overloaded);
}

TEST_F(Overlapping, WorkOfNextRequestIsNoNeedOfFirst) {
  const ClientId rival = timeline_.AddClient(Promised(9ms, SchedulingClass::kNormal));
  Teach(timeline_, rival, {.time = 4ms}, 50ms);
  const auto rivals = timeline_.PostRequest(rival, {.time = 4ms});
  const auto first = timeline_.PostRequest(client_, {.time = 4ms});
  timeline_.PostRequest(client_, {.time = 4ms});
  timeline_.RunFor(20ms);

  // Among equal requests the last one is abandoned.
  EXPECT_LE(GetLatency(rivals), 9ms);
  EXPECT_LE(GetLatency(first), 10ms);
  EXPECT_EQ(Abandoned(), 1u);
}

TEST_F(Overlapping, CountsEachAbandonedRequest) {
  AddHigh();
  for (int i = 0; i < 6; ++i) Post();
  timeline_.RunFor(1ms);
  EXPECT_EQ(Abandoned(), 4u);
  Post();
  timeline_.RunFor(1ms);
  EXPECT_EQ(Abandoned(), 5u);
}

TEST_F(Overlapping, EndlessRequestLeavesLaterOnesTheirTargets) {
  AddHigh();
  timeline_.lane().BeginRequest(client_, {999, timeline_.now()}, timeline_.now());
  timeline_.Post(client_, {.time = 4ms});
  timeline_.RunFor(15ms);
  EXPECT_TRUE(timeline_.lane().targets().is_overloaded);
  timeline_.RunFor(10ms);
  EXPECT_FALSE(timeline_.lane().targets().is_overloaded) << "it is late by more than a target";
  for (int i = 0; i < 20; ++i) {
    const auto request = Post();
    timeline_.RunFor(30ms);
    EXPECT_LE(GetLatency(request), 10ms) << i;
  }
}

TEST_F(Overlapping, NewTargetIsNotAbandoned) {
  AddHigh();
  const auto request = timeline_.PostRequest(client_, {.time = 1ms}, 20);
  timeline_.RunFor(15ms);
  EXPECT_EQ(Abandoned(), 1u);
  EXPECT_EQ(timeline_.Latency(request), std::nullopt);
  timeline_.lane().ChangeClient(client_, Promised(100ms, SchedulingClass::kNormal),
                                timeline_.now());
  EXPECT_FALSE(timeline_.lane().targets().is_overloaded);
  timeline_.RunFor(50ms);
  EXPECT_LE(GetLatency(request), 50ms);
}

TEST_F(Overlapping, DepartedClientCausesNoOverload) {
  timeline_.PostRequest(client_, {.time = 1ms}, 20);
  timeline_.RunFor(12ms);
  EXPECT_TRUE(timeline_.lane().targets().is_overloaded);
  timeline_.Remove(client_);
  EXPECT_FALSE(timeline_.lane().targets().is_overloaded);
  timeline_.PostRequest(timeline_.AddClient(Promised(50ms)), {.time = 1ms});
  timeline_.RunFor(5ms);
  EXPECT_FALSE(timeline_.lane().targets().is_overloaded);
}

TEST(DeadlinePolicy, RivalRunsBetweenTwoRequestsOfClient) {
  PolicyTimeline timeline(Deadline());
  const ClientId client = timeline.AddClient(Promised(20ms));
  const ClientId rival = timeline.AddClient(Promised(15ms));
  const auto first = timeline.PostRequest(client, {.time = 1ms}, 4, 10ms);
  const auto last = timeline.PostRequest(client, {.time = 1ms}, 4);
  const auto between = timeline.PostRequest(rival, {.time = 1ms}, 4);
  timeline.RunFor(50ms);

  EXPECT_EQ(timeline.Latency(first), 4ms);
  EXPECT_EQ(timeline.Latency(between), 8ms);
  EXPECT_EQ(timeline.Latency(last), 12ms);
}

// A delay of the first request also delays the other one, which is late already.
TEST(DeadlinePolicy, RunsNothingAlongsideARequestThatDelaysAnAbandonedOne) {
  PolicyTimeline timeline(Deadline());
  const ClientId client = timeline.AddClient(Promised(7ms));
  timeline.AddBusyClient(kLow, {.time = 500ms, .unit = 20us});
  Teach(timeline, client, {.time = 4ms}, 50ms);
  const auto alone = timeline.PostRequest(client, {.time = 4ms});
  timeline.RunFor(50ms);
  EXPECT_GE(timeline.Latency(alone), 5ms) << "it has some time for others";
  const auto abandoned = timeline.lane().targets().abandoned[0];

  const auto first = timeline.PostRequest(client, {.time = 4ms});
  const auto second = timeline.PostRequest(client, {.time = 4ms});
  timeline.RunFor(50ms);
  EXPECT_EQ(timeline.lane().targets().abandoned[0], abandoned + 1);
  EXPECT_LE(timeline.Latency(first).value_or(1h), 4ms + 20us);
  EXPECT_LE(timeline.Latency(second).value_or(1h), 8ms + 20us);
}

TEST(DeadlinePolicy, ReservesPartOfTargetForWrongPredictions) {
  PolicyTimeline timeline(Deadline(), {.in_flight_max = 1, .high_in_flight_max = 2});
  const ClientId hurried = timeline.AddClient(Promised(6ms));
  const ClientId relaxed = timeline.AddClient(Promised(500ms));
  Teach(timeline, hurried, {.time = 4ms}, 50ms);
  // A sixteenth of the target of 6 ms is reserved, so 1625 us are left for other work.
  for (const Duration in_the_way : {1600us, 1700us}) {
    timeline.PostRequest(relaxed, {.time = in_the_way, .unit = 20us});
    timeline.RunFor(10us);
    timeline.PostRequest(hurried, {.time = 4ms});
    timeline.RunFor(50ms);
    EXPECT_EQ(timeline.CountStops(relaxed), in_the_way > 1625us ? 1u : 0u);
  }
}

TEST(DeadlinePolicy, DepartedClientDoesNotRestrictOthers) {
  PolicyTimeline timeline(Deadline());
  const ClientId high = timeline.AddClient(Promised(10ms));
  timeline.AddBusyClient(kLow, {.time = 50ms, .unit = 20us});
  Teach(timeline, high, {.time = 1ms});
  const ClientId unknown = timeline.AddClient(Promised(10ms));
  timeline.lane().BeginRequest(unknown, {1, timeline.now()}, timeline.now());
  const auto request = timeline.PostRequest(high, {.time = 1ms});
  timeline.Remove(unknown);
  timeline.RunFor(20ms);

  EXPECT_GT(timeline.Latency(request), 2ms) << "low work could have stayed for some of the slack";
}

TEST(DeadlinePolicy, ServesFirstClientFirstForEqualDeadlines) {
  PolicyTimeline timeline(Deadline());
  const ClientId first = timeline.AddClient(Promised(20ms));
  const ClientId second = timeline.AddClient(Promised(20ms));
  const auto later = timeline.PostRequest(second, {.time = 1ms}, 4);
  const auto sooner = timeline.PostRequest(first, {.time = 1ms}, 4);
  timeline.RunFor(50ms);

  EXPECT_EQ(timeline.Latency(sooner), 4ms);
  EXPECT_EQ(timeline.Latency(later), 8ms);
}

// ---- preemption latency

// Requests of 1 ms with a target of 10 ms, one every 15 ms, alongside low work with short blocks.
class StopTimes : public ::testing::Test {
 protected:
  StopTimes() { Teach(timeline_, high_, kRequest, 15ms); }
  // Device time of the low client while this number of requests arrives.
  Duration LowTime(int requests) {
    const Duration before = timeline_.Held(low_);
    Teach(timeline_, high_, kRequest, 15ms, requests);
    return timeline_.Held(low_) - before;
  }
  // Adds a client whose stops take up to 11 ms, and removes it afterwards.
  void SeeSlowStops(int requests) {
    const ClientId slow = timeline_.AddBusyClient(kLow, {.time = 33ms, .unit = 11ms});
    Teach(timeline_, high_, kRequest, 15ms, requests);
    ASSERT_GT(timeline_.CountStops(slow), 0u);
    timeline_.Remove(slow);
    timeline_.RunFor(12ms);
  }

  static constexpr PolicyTimeline::Command kRequest{.time = 1ms};
  PolicyTimeline timeline_{Deadline()};
  const ClientId high_ = timeline_.AddClient(Promised(10ms));
  const ClientId low_ = timeline_.AddBusyClient(kLow, {.time = 50ms, .unit = 20us});
};

TEST_F(StopTimes, SingleSlowStopDoesNotPredictNext) {
  SeeSlowStops(1);
  EXPECT_GE(LowTime(40), 40 * 10ms);
}

TEST_F(StopTimes, ForgetsRemovedClientsSlowStops) {
  SeeSlowStops(60);
  EXPECT_LE(LowTime(20), 20 * 3ms) << "nobody knows that it has gone";
  LowTime(60);
  EXPECT_GE(LowTime(40), 40 * 10ms);
}

TEST_F(StopTimes, TriesSlowStopsIncreasinglyRarely) {
  const ClientId slow = timeline_.AddBusyClient(kLow, {.time = 75ms, .unit = 25ms});
  timeline_.Remove(low_);
  Teach(timeline_, high_, kRequest, 15ms, 60);
  const std::size_t stops = timeline_.CountStops(slow);
  Teach(timeline_, high_, kRequest, 15ms, 4000);
  // In 60 s, the policy tries again after 1, 2, 4, 8, 16 and 32 s.
  EXPECT_GE(timeline_.CountStops(slow), stops + 3);
  EXPECT_LE(timeline_.CountStops(slow), stops + 8);
}

TEST_F(StopTimes, LimitsUnstoppableWorkIfStopsAreTooSlow) {
  const ClientId slow = timeline_.AddBusyClient(kLow, {.time = 75ms, .unit = 25ms});
  timeline_.Remove(low_);
  // Slow requests leave no slack.
  for (int i = 0; i < 40; ++i) {
    timeline_.PostRequest(high_, {.time = i % 20 == 19 ? 12ms : 1ms});
    timeline_.RunFor(15ms);
  }
  timeline_.Sleep(slow);
  timeline_.RunFor(30ms);
  timeline_.PostRequest(high_, kRequest);
  timeline_.RunFor(8ms);
  const ClientId other = timeline_.AddClient(kLow);
  timeline_.Post(other, {.time = 8ms});
  timeline_.RunFor(6ms);

  EXPECT_EQ(timeline_.LastSubmit(other), std::nullopt);
}

// ---- preemption latencies of more than the slack

TEST(DeadlinePolicy, WorkWithSlowStopsMakesOneRequestInAHundredLate) {
  PolicyTimeline timeline(Deadline());
  TightRequests requests(timeline, timeline.AddClient(TightRequests::kSpec));
  const ClientId low = timeline.AddBusyClient(kLow, {.time = 50ms, .unit = 300us});
  requests.Post(5000);
  EXPECT_LE(requests.late(), 51);
  EXPECT_GE(requests.late(), 40) << "low work could have run for longer";
  EXPECT_GE(timeline.Held(low), 300ms);
}

TEST(DeadlinePolicy, WorkIsNotAdmittedIfItsStopWouldMakeARequestLateByMoreThanHalfItsTarget) {
  PolicyTimeline timeline(Deadline());
  TightRequests requests(timeline, timeline.AddClient(TightRequests::kSpec));
  timeline.AddBusyClient(kLow, {.time = 50ms, .unit = 1ms});
  requests.Post(5000);
  // The first requests, and probes of the preemption latency after 1, 2, 4 ... s.
  EXPECT_LE(requests.late(), 15);
}

TEST(DeadlinePolicy, WorkWithSlowStopsMakesNoRegularRequestLate) {
  PolicyTimeline timeline(Deadline());
  const ClientId high = timeline.AddClient(TightRequests::kSpec);
  const ClientId low = timeline.AddBusyClient(kLow, {.time = 50ms, .unit = 300us});
  Teach(timeline, high, {.time = 1ms}, 10ms, 40);
  const TargetReport before = timeline.lane().targets();
  const Duration low_before = timeline.Held(low);
  Teach(timeline, high, {.time = 1ms}, 10ms, 400);
  const TargetReport after = timeline.lane().targets();
  EXPECT_EQ(after.met - before.met, 400u);
  EXPECT_GE(timeline.Held(low) - low_before, 400 * 5ms);
}

}  // namespace
}  // namespace gpushared::scheduler
