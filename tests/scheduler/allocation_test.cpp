// SPDX-License-Identifier: Apache-2.0
// Verifies that decisions do not allocate. A separate program, because it replaces operator new.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "scheduler/device_lane.h"
#include "scheduler/policy_catalog.h"
#include "tests/support/allocation_count.h"

namespace gpushared::scheduler {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kClients = 64;

// 64 clients that always have commands queued, and a device that completes commands in order.
class Load {
 public:
  Load(const PolicyEntry& policy, std::optional<Duration> target)
      : lane_(policy.make({.slice = 100us, .low_floor = 0.1}), LaneOptions{}) {
    in_flight_.reserve(256);
    for (std::uint64_t id = 1; id <= kClients; ++id) {
      const auto of_class = static_cast<SchedulingClass>(id % 3);
      // Every fourth client has no target, so that there is work that has to be held back for the
      // others' requests.
      lane_.AddClient(ClientId{id},
                      {.scheduling_class = of_class,
                       .latency_target = id % 4 == 0 ? std::nullopt : target,
                       .group = id % 5 == 0 ? std::nullopt : std::optional(id % 7)},
                      now_);
      for (int i = 0; i < 100; ++i) Enqueue(ClientId{id});
    }
  }

  void Turn() {
    now_ += 5us;
    if (!in_flight_.empty()) {
      lane_.OnCompleted(in_flight_.front(), now_);
      in_flight_.erase(in_flight_.begin());
    }
    while (const auto action = lane_.Next(now_)) {
      if (action->kind != Action::Kind::kSubmit) {
        ++stops_;
        continue;
      }
      ++submits_;
      in_flight_.push_back(action->command);
      Enqueue(action->client);
    }
  }

  // Keeps a few requests of each client open at all times.
  void GoOnWithRequests() {
    const ClientId client{1 + requests_ % kClients};
    const std::uint64_t round = requests_++ / kClients;
    constexpr std::uint64_t kOpen = 3;
    if (round >= kOpen) lane_.EndRequest(client, round - kOpen, now_);
    lane_.BeginRequest(client, {round, now_ - 50us}, now_);
    if (requests_ % 7 == 0) lane_.ExpectRequest(client, now_ + 100us, now_);
    if (requests_ % 11 == 0) lane_.SetLaunchBubble(Duration(1000 + requests_ % 50'000));
  }

  std::uint64_t submits() const { return submits_; }
  std::uint64_t stops() const { return stops_; }
  TargetReport targets() const { return lane_.targets(); }

 private:
  void Enqueue(ClientId client) {
    ++last_command_;
    lane_.Enqueue(client, {last_command_, 7us, last_command_ % 2 == 0}, now_);
  }

  DeviceLane lane_;
  std::vector<std::uint64_t> in_flight_;
  TimePoint now_{};
  std::uint64_t last_command_ = 0;
  std::uint64_t submits_ = 0, stops_ = 0;
  std::uint64_t requests_ = 0;
};

class Allocation : public ::testing::TestWithParam<PolicyEntry> {};

TEST_P(Allocation, DecisionsStopsAndCompletionsAllocateNothing) {
  Load load(GetParam(), {});
  for (int i = 0; i < 1000; ++i) load.Turn();

  const std::uint64_t before = testing::AllocationCount();
  for (int i = 0; i < 10'000; ++i) load.Turn();

  EXPECT_EQ(testing::AllocationCount(), before);
  EXPECT_GT(load.submits(), 5000u);
}

// With targets that are all met, partly met, and impossible.
TEST_P(Allocation, RequestsHintsAndPlansAllocateNothing) {
  for (const Duration target : {Duration(1s), Duration(5ms), Duration(10us)}) {
    Load load(GetParam(), target);
    const std::uint64_t before = testing::AllocationCount();
    for (int i = 0; i < 10'000; ++i) {
      load.Turn();
      load.GoOnWithRequests();
    }

    EXPECT_EQ(testing::AllocationCount(), before);
    EXPECT_GT(load.submits(), 5000u);
    if (GetParam().name != "deadline") continue;
    const TargetReport targets = load.targets();
    EXPECT_GT(targets.requests, 5000u);
    const std::uint64_t abandoned =
        targets.abandoned[0] + targets.abandoned[1] + targets.abandoned[2];
    EXPECT_GE(abandoned, target == 10us ? 5000u : 0u);
    EXPECT_LE(abandoned, target == 1s ? 0u : targets.requests + 3 * kClients);
  }
}

INSTANTIATE_TEST_SUITE_P(Catalog, Allocation,
                         ::testing::ValuesIn(PolicyCatalog().begin(), PolicyCatalog().end()),
                         [](const auto& each) { return std::string(each.param.name); });

}  // namespace
}  // namespace gpushared::scheduler
