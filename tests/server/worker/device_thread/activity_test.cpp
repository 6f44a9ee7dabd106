// SPDX-License-Identifier: Apache-2.0
// What the device thread records about requests, executions and shares.
#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/worker/output/execution_log.h"
#include "server/worker/output/request_history.h"
#include "server/worker/state/activity_meter.h"

namespace gpushared::server {
namespace {

using namespace std::chrono_literals;
using scheduler::SchedulingClass;
using scheduler::TimePoint;
using trace::ExecutionRecord;
using Phase = ClientActivity::Phase;

TimePoint At(scheduler::Duration since_start) { return TimePoint(since_start); }

// ---- the execution log

ExecutionRecord GetRecord(std::uint64_t session, TimePoint submitted, TimePoint ended) {
  return {.session = session,
          .submitted = submitted,
          .started = submitted,
          .ended = ended,
          .charged = ended - submitted};
}

TEST(ExecutionLog, BlamesClientWithLongestExecutionDuringWait) {
  ExecutionLog log;
  log.Add(GetRecord(2, At(0us), At(150us)));    // Occupies 50 us of the wait.
  log.Add(GetRecord(3, At(140us), At(220us)));  // Occupies 80 us.
  log.Add(GetRecord(1, At(0us), At(230us)));    // The waiting client itself.
  log.Add(GetRecord(4, At(230us), At(290us)));
  const ExecutionRecord* const found = log.LongestOfOthers(1, At(100us), At(300us));
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->session, 3u);
  EXPECT_EQ(log.LongestOfOthers(1, At(290us), At(300us)), nullptr) << "it had ended before";
}

TEST(ExecutionLog, RequestListsItsCommandsAndOtherClientsByDeviceTime) {
  ExecutionLog log;
  log.Add(GetRecord(9, At(0us), At(100us)));  // Ends before the wait.
  for (std::uint64_t other = 2; other <= 7; ++other) {
    log.Add(GetRecord(other, At(200us), At(200us + (9 - other) * 10us)));
  }
  log.Add(GetRecord(2, At(300us), At(400us)));
  log.Add(GetRecord(1, At(400us), At(430us)));
  ExecutionRecord stopped = GetRecord(1, At(430us), At(480us));
  stopped.was_stopped = true;
  log.Add(stopped);
  ExecutionRecord behind =
      GetRecord(1, At(400us), At(490us));  // On the device at the same time as the previous two.
  behind.started = At(480us);
  log.Add(behind);
  RequestReport report;
  report.begun = At(150us);
  const ExecutionRecord* const longest = log.Summarise(1, report);
  ASSERT_NE(longest, nullptr);
  EXPECT_EQ(longest->submitted, At(430us));
  EXPECT_EQ(report.longest_command, 50us);
  EXPECT_EQ(report.commands, 3u);
  EXPECT_EQ(report.stops, 1u);
  EXPECT_FALSE(report.is_cut);
  const std::array<std::pair<std::uint64_t, scheduler::Duration>, 4> most = {
      {{2, 170us}, {3, 60us}, {4, 50us}, {5, 40us}}};
  for (std::size_t i = 0; i < most.size(); ++i) {
    EXPECT_EQ(report.others[i].session, most[i].first) << i;
    EXPECT_EQ(report.others[i].charged, most[i].second) << i;
  }
  EXPECT_EQ(report.charged_to_rest, 20us + 30us);
}

TEST(ExecutionLog, ReportsThatItDoesNotReachBackFarEnough) {
  ExecutionLog log;
  for (std::size_t i = 0; i < ExecutionLog::kRecordsMax; ++i) {
    log.Add(GetRecord(1, At(i * 10us), At((i + 1) * 10us)));
  }
  RequestReport whole, cut;
  whole.begun = At(10us);
  cut.begun = At(5us);
  log.Summarise(1, whole);
  log.Summarise(1, cut);
  EXPECT_FALSE(whole.is_cut);
  EXPECT_TRUE(cut.is_cut);
  EXPECT_EQ(cut.commands, ExecutionLog::kRecordsMax);
}

// Clients whose numbers differ by a multiple of the table's size share an entry.
TEST(ExecutionLog, DeviceTimeOfOthersIsExactDespiteCollisions) {
  constexpr std::uint64_t kOthers = 300, kApart = 2 * ExecutionLog::kRecordsMax;
  ExecutionLog log;
  scheduler::Duration all{};
  for (std::uint64_t round = 0; round < 3; ++round) {
    for (std::uint64_t other = 1; other <= kOthers; ++other) {
      const auto charged = std::chrono::microseconds(other * 7919 % 1009);
      log.Add(GetRecord(5 + other % 2 + other * kApart, At(1ms), At(1ms + charged)));
      all += charged;
    }
  }
  for (int request = 0; request < 2; ++request) {  // The second request begins with an empty table.
    RequestReport report;
    log.Summarise(1, report);
    scheduler::Duration told = report.charged_to_rest;
    for (const RequestReport::Other& other : report.others) {
      const std::uint64_t number = other.session / kApart;
      EXPECT_EQ(other.charged, 3 * std::chrono::microseconds(number * 7919 % 1009)) << number;
      told += other.charged;
    }
    EXPECT_EQ(told, all);
    EXPECT_TRUE(std::ranges::is_sorted(report.others, std::ranges::greater{},
                                       &RequestReport::Other::charged));
    EXPECT_GE(report.others.back().charged, 3 * 990us) << "the most of all";
  }
}

TEST(Waterfall, KeepsLargestRowsInAnyOrderAndTotalsRest) {
  constexpr std::size_t kKept = 16;
  Largest<Wait, kKept> kept;
  scheduler::Duration all{};
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const auto size = std::chrono::microseconds(1 + i * 7919 % 1009);
    kept.Add({.from = At(0us), .to = At(size)}, size);
    all += size;
  }
  const Largest<Wait, kKept> copy = kept;
  std::vector<scheduler::TimePoint> ends;
  scheduler::Duration sum = copy.rest;
  for (const Wait& wait : copy.items()) {
    ends.push_back(wait.to);
    sum += wait.to - wait.from;
  }
  EXPECT_EQ(sum, all);
  EXPECT_EQ(copy.rest_count, 1000 - kKept);
  std::vector<scheduler::TimePoint> largest;
  for (std::uint64_t i = 0; i < 1000; ++i) largest.push_back(At(1us * (1 + i * 7919 % 1009)));
  std::ranges::sort(largest, std::ranges::greater{});
  largest.resize(kKept);
  EXPECT_THAT(ends, ::testing::UnorderedElementsAreArray(largest));
}

// ---- the history of requests

TEST(RequestHistory, KeepsLastRequestsAndFindsThemByNumber) {
  RequestHistory history;
  EXPECT_EQ(history.Slowest(), nullptr);
  EXPECT_EQ(history.first_number(), 0u);
  EXPECT_EQ(history.last_number(), 0u);
  for (std::uint64_t number = 1; number <= RequestHistory::kReportsMax + 3; ++number) {
    RequestReport report;
    report.number = number;
    report.ended = At(number == 2 ? 90ms : number == 40 ? 50ms : 1ms);
    history.Add(report);
  }
  EXPECT_EQ(history.Find(3), nullptr);
  ASSERT_NE(history.Find(4), nullptr);
  EXPECT_EQ(history.first_number(), 4u);
  EXPECT_EQ(history.last_number(), RequestHistory::kReportsMax + 3);
  EXPECT_EQ(history.Slowest()->number, 40u) << "the slower one is forgotten";
}

// ---- waits, gaps and shares

class Activity : public ::testing::Test {
 protected:
  static constexpr scheduler::ClientSpec Spec(SchedulingClass of_class, std::uint32_t weight = 1) {
    return {.scheduling_class = of_class, .weight = weight};
  }
  // Executes work of the client for `time`, beginning now.
  void Run(ClientActivity& client, scheduler::Duration time) {
    meter_.Set(client, Phase::kOnDevice, now_);
    now_ += time;
    meter_.OnCharged(client, time, now_);
    meter_.Set(client, Phase::kWaiting, now_);
  }

  TimePoint now_ = At(1s);
  ActivityMeter meter_{true};
};

TEST_F(Activity, ChargesTimeToItsPhase) {
  ClientActivity client;
  meter_.Begin(client, Spec(SchedulingClass::kLow), At(0ms));
  meter_.Set(client, Phase::kWaiting, At(10ms));
  meter_.Set(client, Phase::kOnDevice, At(13ms));
  meter_.Set(client, Phase::kAway, At(20ms));
  meter_.Set(client, Phase::kWaiting, At(50ms));
  EXPECT_EQ(client.waited, 3ms);
  EXPECT_EQ(client.on_device, 7ms);
  EXPECT_EQ(client.WaitedUntil(At(52ms)), 5ms);
  EXPECT_EQ(client.OnDeviceUntil(At(52ms)), 7ms);
}

TEST_F(Activity, ClientBelowOnePercentOfItsWaitStarves) {
  ClientActivity client;
  meter_.Begin(client, Spec(SchedulingClass::kLow), now_);
  now_ += 1s;
  EXPECT_EQ(client.StarvedFor(now_), 0s) << "it asks for nothing";
  meter_.Set(client, Phase::kWaiting, now_);
  for (int i = 1; i <= 10; ++i) {
    now_ += 1s;
    EXPECT_EQ(client.StarvedFor(now_), i * 1s);
    Run(client, 5ms);
    // Time that each piece of work spends on the host.
    meter_.Set(client, Phase::kAway, now_);
    now_ += 20ms;
    meter_.Set(client, Phase::kWaiting, now_);
  }
  EXPECT_EQ(client.StarvedFor(now_), 10s) << "neither crumbs nor short pauses change that";
  Run(client, 60ms);
  EXPECT_EQ(client.StarvedFor(now_), 0s) << "110 ms of 10 s";
  now_ += 2s;
  EXPECT_EQ(client.StarvedFor(now_), 2s) << "since it had the device";
  meter_.Set(client, Phase::kAway, now_);
  EXPECT_EQ(client.StarvedFor(now_ + 1s), 0s) << "it asks for nothing";
  meter_.Set(client, Phase::kWaiting, now_ + 1s);
  EXPECT_EQ(client.StarvedFor(now_ + 4s), 3s);
  meter_.Set(client, Phase::kOnDevice, now_ + 4s);
  EXPECT_EQ(client.StarvedFor(now_ + 5s), 0s) << "it has the device";
}

TEST_F(Activity, GapIsDeviceTimeThatOnlyLowerClassesWant) {
  ClientActivity high, low;
  meter_.Begin(high, Spec(SchedulingClass::kHigh), At(0ms));
  meter_.Begin(low, Spec(SchedulingClass::kLow), At(0ms));
  meter_.Set(low, Phase::kWaiting, At(10ms));   // Until now, no client had work.
  meter_.Set(low, Phase::kOnDevice, At(12ms));  // 2 ms of gap unused.
  meter_.Set(high, Phase::kWaiting, At(20ms));  // 8 ms used; no gap from here on.
  meter_.Set(low, Phase::kWaiting, At(21ms));
  meter_.Set(high, Phase::kOnDevice, At(21ms));
  meter_.Set(high, Phase::kAway, At(30ms));
  meter_.Set(low, Phase::kAway, At(35ms));  // 5 ms unused.
  meter_.Set(high, Phase::kWaiting, At(90ms));
  EXPECT_EQ(meter_.gaps().wanted, 2ms + 8ms + 5ms);
  EXPECT_EQ(meter_.gaps().used, 8ms);
}

TEST_F(Activity, SharesEqualToWeightsAreNoError) {
  ClientActivity heavy, light;
  meter_.Begin(heavy, Spec(SchedulingClass::kLow, 3), now_);
  meter_.Begin(light, Spec(SchedulingClass::kLow, 1), now_);
  meter_.Set(heavy, Phase::kWaiting, now_);
  meter_.Set(light, Phase::kWaiting, now_);
  for (int i = 0; i < 600; ++i) {
    Run(heavy, 3ms);
    Run(light, 1ms);
  }
  EXPECT_EQ(heavy.windows, 2u);
  EXPECT_NEAR(heavy.share_error, 0.0, 0.5);
  EXPECT_NEAR(light.share_error, 0.0, 0.5);
}

TEST_F(Activity, ExcessShareComesFromSameClassOnly) {
  ClientActivity greedy, modest, starved, other;
  meter_.Begin(greedy, Spec(SchedulingClass::kLow), now_);
  meter_.Begin(modest, Spec(SchedulingClass::kLow), now_);
  meter_.Begin(starved, Spec(SchedulingClass::kLow, 2), now_);
  meter_.Begin(other, Spec(SchedulingClass::kNormal), now_);
  for (ClientActivity* each : {&greedy, &modest, &starved, &other}) {
    meter_.Set(*each, Phase::kWaiting, now_);
  }
  for (int i = 0; i < 300; ++i) {
    Run(greedy, 3ms);
    Run(modest, 1ms);
    Run(other, 4ms);
  }
  meter_.Refresh(starved, now_);
  EXPECT_NEAR(greedy.share_error, 75.0 - 25.0, 1.0);
  EXPECT_NEAR(modest.share_error, 0.0, 1.0);
  EXPECT_NEAR(starved.share_error, -50.0, 1.0);
  EXPECT_NEAR(starved.share_error_worst, -50.0, 1.0);
  EXPECT_NEAR(other.share_error, 0.0, 0.1);
}

TEST_F(Activity, GroupIsDueShareOfOneClient) {
  ClientActivity alone, first, second;
  scheduler::ClientSpec spec = Spec(SchedulingClass::kLow);
  meter_.Begin(alone, spec, now_);
  spec.group = 1000;
  meter_.Begin(first, spec, now_);
  meter_.Begin(second, spec, now_);
  for (ClientActivity* each : {&alone, &first, &second}) meter_.Set(*each, Phase::kWaiting, now_);
  for (int i = 0; i < 600; ++i) {
    Run(alone, 2ms);
    Run(first, 1ms);
    Run(second, 1ms);
  }
  EXPECT_NEAR(alone.share_error, 0.0, 0.5);
  EXPECT_NEAR(first.share_error, 0.0, 0.5);
  meter_.End(second, now_);
  for (int i = 0; i < 600; ++i) {
    Run(alone, 3ms);
    Run(first, 1ms);
  }
  EXPECT_NEAR(alone.share_error, 25.0, 0.5);
  EXPECT_NEAR(first.share_error, -25.0, 0.5);
}

TEST_F(Activity, IdleClientIsDueNothing) {
  ClientActivity busy, asleep, late;
  meter_.Begin(busy, Spec(SchedulingClass::kLow), now_);
  meter_.Begin(asleep, Spec(SchedulingClass::kLow), now_);
  meter_.Begin(late, Spec(SchedulingClass::kLow), now_);
  meter_.Set(busy, Phase::kWaiting, now_);
  for (int i = 0; i < 1200; ++i) Run(busy, 1ms);
  EXPECT_EQ(busy.windows, 1u);
  EXPECT_NEAR(busy.share_error, 0.0, 0.01);
  meter_.Refresh(asleep, now_);
  EXPECT_EQ(asleep.windows, 0u);
  // A new client has no claim to device time from before it connected.
  meter_.Set(late, Phase::kWaiting, now_);
  for (int i = 0; i < 600; ++i) {
    Run(busy, 1ms);
    Run(late, 1ms);
  }
  EXPECT_NEAR(late.share_error, 0.0, 1.0);
}

TEST_F(Activity, TimeDueBeforePauseStaysDue) {
  ClientActivity busy, pauses;
  meter_.Begin(busy, Spec(SchedulingClass::kLow), now_);
  meter_.Begin(pauses, Spec(SchedulingClass::kLow), now_);
  meter_.Set(busy, Phase::kWaiting, now_);
  meter_.Set(pauses, Phase::kWaiting, now_);
  for (int i = 0; i < 600; ++i) Run(busy, 1ms);
  meter_.Set(pauses, Phase::kAway, now_);
  for (int i = 0; i < 600; ++i) Run(busy, 1ms);
  meter_.Refresh(pauses, now_);
  EXPECT_EQ(pauses.windows, 1u);
  EXPECT_NEAR(pauses.share_error, -50.0, 0.1);
}

TEST_F(Activity, WithoutClassesAllShareAlike) {
  ActivityMeter flat(false);
  ClientActivity high, low;
  flat.Begin(high, Spec(SchedulingClass::kHigh), At(0s));
  flat.Begin(low, Spec(SchedulingClass::kLow), At(0s));
  flat.Set(high, Phase::kOnDevice, At(0s));
  flat.Set(low, Phase::kWaiting, At(0s));
  flat.OnCharged(high, 2s, At(2s));
  flat.Refresh(low, At(2s));
  EXPECT_NEAR(high.share_error, 50.0, 0.1);
  EXPECT_NEAR(low.share_error, -50.0, 0.1);
}

}  // namespace
}  // namespace gpushared::server
