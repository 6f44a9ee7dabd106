// SPDX-License-Identifier: Apache-2.0
// A client with false claims about its requests, alongside three honest ones. Each attack lasts a
// second, and its cost to the others is bounded. Every rule against lying clients is needed by at
// least one of these tests.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "tests/scheduler/deadline_cases.h"

namespace gpushared::scheduler {
namespace {

using namespace std::chrono_literals;
using testing::PolicyTimeline;

class DeadlineAttacks : public ::testing::Test {
 protected:
  DeadlineAttacks() { Teach(timeline_, promised_, kRequest, 10ms, 70); }

  // Calls `attack` every millisecond. Meanwhile a request arrives every 10 ms, and halfway between
  // two requests a command of the high class.
  void Suffer(const std::function<void()>& attack, Duration length = 1s) {
    std::vector<std::uint64_t> requests, commands;
    const Duration low_before = timeline_.Held(low_);
    for (Duration at{}; at < length; at += 1ms) {
      attack();
      if (at % 10ms == 0ms) requests.push_back(timeline_.PostRequest(promised_, kRequest));
      if (at % 10ms == 5ms) commands.push_back(timeline_.Post(high_, {.time = 500us}));
      timeline_.RunFor(1ms);
    }
    worst_request_ = Worst(requests);
    worst_command_ = Worst(commands);
    low_time_ = timeline_.Held(low_) - low_before;
  }

  // Begins a request that, according to the lying client, arrived `waited` ago.
  std::uint64_t Begin(ClientId client, Duration waited = {}) {
    timeline_.lane().BeginRequest(client, {++last_request_, timeline_.now() - waited},
                                  timeline_.now());
    return last_request_;
  }
  void End(ClientId client, std::uint64_t request) {
    timeline_.lane().EndRequest(client, request, timeline_.now());
  }

  static constexpr PolicyTimeline::Command kRequest{.time = 1ms, .unit = 20us};
  PolicyTimeline timeline_{Deadline()};
  const ClientId promised_ = timeline_.AddClient(Promised(4ms));
  const ClientId high_ = timeline_.AddClient(kHigh);
  const ClientId low_ = timeline_.AddBusyClient(kLow, {.time = 50ms, .unit = 20us});
  Duration worst_request_{}, worst_command_{}, low_time_{};

 private:
  Duration Worst(const std::vector<std::uint64_t>& commands) const {
    Duration worst{};
    for (const std::uint64_t command : commands) {
      worst = std::max(worst, timeline_.Latency(command).value_or(1h));
    }
    return worst;
  }

  std::uint64_t last_request_ = 1'000'000;
};

TEST_F(DeadlineAttacks, WithoutAttackAllClientsGetTheirDue) {
  Suffer([] {});
  EXPECT_LE(worst_request_, 4ms);
  EXPECT_LE(worst_command_, 600us);
  EXPECT_GE(low_time_, 800ms);
}

TEST_F(DeadlineAttacks, EmptyRequestsDoNotIdleDevice) {
  const ClientId liar = timeline_.AddClient(Promised(1h, SchedulingClass::kLow));
  Begin(liar);
  Suffer([] {});
  EXPECT_LE(worst_request_, 4ms);
  EXPECT_LE(worst_command_, 600us);
  EXPECT_GE(low_time_, 750ms);
}

TEST_F(DeadlineAttacks, EndlessRequestDelaysHigherClassAtMostByPatience) {
  const ClientId liar =
      timeline_.AddBusyClient(Promised(1h, SchedulingClass::kLow), {.time = 5ms, .unit = 20us});
  Begin(liar);
  Suffer([] {});
  EXPECT_LE(worst_request_, 4ms);
  EXPECT_LE(worst_command_, 21ms);
}

TEST_F(DeadlineAttacks, UnreachableTargetsGiveNoPrecedence) {
  const ClientId liar =
      timeline_.AddBusyClient(Promised(1us, SchedulingClass::kLow), {.time = 5ms, .unit = 20us});
  std::optional<std::uint64_t> open;
  Suffer([&] {
    if (open) End(liar, *open);
    open = Begin(liar);
  });
  EXPECT_LE(worst_request_, 4ms);
  EXPECT_LE(worst_command_, 1ms);
  EXPECT_GE(low_time_, 300ms);
}

TEST_F(DeadlineAttacks, UnreachableTargetsDoNotCostOtherClientsTheirs) {
  const ClientId honest = timeline_.AddClient(Promised(4ms, SchedulingClass::kNormal));
  Teach(timeline_, honest, kRequest, 10ms, 70);
  const ClientId liar = timeline_.AddClient(Promised(5ms));
  Duration worst{};
  for (int i = 0; i < 100; ++i) {
    timeline_.PostRequest(liar, {.time = 10ms, .unit = 20us});
    timeline_.RunFor(500us);
    const auto request = timeline_.PostRequest(honest, kRequest);
    timeline_.RunFor(20ms);
    worst = std::max(worst, timeline_.Latency(request).value_or(1h));
  }
  EXPECT_LE(worst, 4ms);
}

TEST_F(DeadlineAttacks, BackdatedRequestsGainNoPrecedence) {
  const ClientId liar =
      timeline_.AddBusyClient(Promised(4ms, SchedulingClass::kLow), {.time = 5ms, .unit = 20us});
  std::optional<std::uint64_t> open;
  Suffer([&] {
    if (open) End(liar, *open);
    open = Begin(liar, 1h);
  });
  EXPECT_LE(worst_request_, 4ms);
  EXPECT_LE(worst_command_, 1ms);
}

TEST_F(DeadlineAttacks, AbandonsRequestsOfTheClientThatAsksForTooMuch) {
  const ClientId liar = timeline_.AddClient(Promised(5ms, SchedulingClass::kLow));
  Suffer([&] {
    if (timeline_.lane().queued_count(liar) < 3)
      timeline_.PostRequest(liar, {.time = 2ms, .unit = 20us});
  });
  EXPECT_LE(worst_request_, 4ms);
}

TEST_F(DeadlineAttacks, ClientWithSlowStopsStarvesNoOther) {
  const ClientId liar = timeline_.AddBusyClient(kLow, {.time = 90ms, .unit = 30ms});
  Suffer([] {}, 300ms);
  timeline_.Remove(liar);
  timeline_.RunFor(100ms);
  Suffer([] {}, 2s);
  Suffer([] {});
  EXPECT_GE(low_time_, 700ms);
  EXPECT_LE(worst_request_, 4ms);
}

TEST_F(DeadlineAttacks, EndlessHintsDelayNoHigherClass) {
  const ClientId liar = timeline_.AddClient(Promised(1h, SchedulingClass::kLow));
  Suffer([&] { timeline_.lane().ExpectRequest(liar, timeline_.now(), timeline_.now()); });
  EXPECT_LE(worst_request_, 4ms);
  EXPECT_LE(worst_command_, 600us);
}

TEST_F(DeadlineAttacks, CountsAllUnstoppableWorkBeforeAdmittingMore) {
  std::vector<ClientId> liars;
  for (int i = 0; i < 8; ++i) liars.push_back(timeline_.AddBusyClient(kLow, 1400us));
  Suffer([] {});
  EXPECT_LE(worst_request_, 4ms);
}

// A client whose requests all meet their targets does not make those of others late.
TEST(DeadlineAttack, EmptyRequestsOfOneClientDoNotMakeThoseOfAnotherLate) {
  PolicyTimeline timeline(Deadline());
  TightRequests requests(timeline, timeline.AddClient(TightRequests::kSpec));
  const ClientId liar = timeline.AddClient(Promised(1050us, SchedulingClass::kLow));
  timeline.AddBusyClient(kLow, {.time = 50ms, .unit = 300us});
  std::uint64_t last = 1'000'000;
  for (int i = 0; i < 2000; ++i) {
    for (int empty = 0; empty < 10; ++empty) {
      timeline.lane().BeginRequest(liar, {++last, timeline.now()}, timeline.now());
      timeline.lane().EndRequest(liar, last, timeline.now());
    }
    requests.Post(1);
  }
  EXPECT_LE(requests.late(), 21);
}

}  // namespace
}  // namespace gpushared::scheduler
