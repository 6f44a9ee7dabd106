// SPDX-License-Identifier: Apache-2.0
// Caps of device time hold under every policy of the catalog, and cost only the capped clients.

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "scheduler/policy_catalog.h"
#include "tests/support/policy_timeline.h"
#include "tests/support/policy_traits.h"

namespace gpushared::scheduler {
namespace {

using namespace std::chrono_literals;
using testing::PolicyTimeline;

class CappedClients : public ::testing::TestWithParam<PolicyEntry> {
 protected:
  PolicyTimeline timeline_{GetParam().make({.slice = 2ms})};
  // Under a policy that stops nothing, a client that waits for longer commands could not use its
  // cap.
  const PolicyTimeline::Command stoppable_{
      .time = testing::StopsNothing(*GetParam().make({})) ? Duration(400us) : 40ms, .unit = 100us};

  void Cap(ClientId client, std::uint32_t per_mille) { Cap(client, client.value, per_mille); }
  void Cap(ClientId client, std::uint64_t number, std::uint32_t per_mille) {
    const std::array caps{ShareCap{.number = number, .per_mille = per_mille}};
    timeline_.lane().LimitClient(client, caps, timeline_.now());
  }
  // Returns the client's percentage of device time in the next `span`.
  double ShareOver(Duration span, const std::vector<ClientId>& clients) {
    const auto held = [&] {
      Duration sum{};
      for (const ClientId client : clients) sum += timeline_.Held(client);
      return sum;
    };
    const Duration before = held();
    timeline_.RunFor(span);
    return 100.0 * static_cast<double>((held() - before).count()) /
           static_cast<double>(span.count());
  }
};

TEST_P(CappedClients, StoppableClientKeepsItsCapAndOtherGetsRest) {
  for (const std::uint32_t per_mille : {10u, 250u, 450u}) {
    const ClientId capped = timeline_.AddBusyClient({}, stoppable_);
    const ClientId free = timeline_.AddBusyClient({}, stoppable_);
    Cap(capped, per_mille);
    for (int second = 0; second < 5; ++second) {
      const Duration before = timeline_.Held(free);
      EXPECT_NEAR(ShareOver(1s, {capped}), per_mille / 10.0, 2.0) << "second " << second;
      // Allows for a command of a slice or more, which may not be charged yet.
      EXPECT_GT(timeline_.Held(free) - before, 1s - Duration(1ms) * per_mille - 60ms);
    }
    timeline_.Remove(capped);
    timeline_.Remove(free);
  }
}

TEST_P(CappedClients, CappedClientAloneLeavesDeviceIdle) {
  const ClientId capped = timeline_.AddBusyClient({}, stoppable_);
  Cap(capped, 250);
  for (int second = 0; second < 5; ++second) EXPECT_NEAR(ShareOver(1s, {capped}), 25.0, 2.0);
}

TEST_P(CappedClients, SuspendedClientRunsNothingUntilReleased) {
  const ClientId held = timeline_.AddBusyClient({}, stoppable_);
  timeline_.AddBusyClient({}, stoppable_);
  timeline_.RunFor(100ms);
  timeline_.lane().Hold(held, true, timeline_.now());
  timeline_.RunFor(50ms);  // Waits until the client's commands have left the device.
  const Duration before = timeline_.Held(held);
  timeline_.RunFor(1s);
  EXPECT_EQ(timeline_.Held(held), before);
  EXPECT_GE(timeline_.lane().SuspendedFor(held, timeline_.now()), 1s);
  EXPECT_EQ(timeline_.lane().ThrottledFor(held, timeline_.now()), 0s);
  timeline_.lane().Hold(held, false, timeline_.now());
  EXPECT_GT(ShareOver(1s, {held}), 30.0);
}

TEST_P(CappedClients, CommandsThatCannotBeStoppedArePaidBack) {
  const ClientId lengthy = timeline_.AddBusyClient({}, 15ms);
  const ClientId short_ones = timeline_.AddBusyClient({}, 30us);
  timeline_.AddBusyClient({}, 1ms);
  Cap(lengthy, 250);
  Cap(short_ones, 200);
  for (int second = 0; second < 5; ++second) {
    const Duration before = timeline_.Held(short_ones);
    EXPECT_NEAR(ShareOver(1s, {lengthy}), 25.0, 2.0) << "second " << second;
    // fifo serves one command of each in turn, so a client with short ones does not reach its cap.
    EXPECT_LE(timeline_.Held(short_ones) - before, 220ms);
  }
}

TEST_P(CappedClients, ClientsUnderOneCapShareIt) {
  const ClientId a = timeline_.AddBusyClient({}, stoppable_);
  const ClientId b = timeline_.AddBusyClient({}, stoppable_);
  const ClientId c = timeline_.AddBusyClient({}, stoppable_);
  Cap(a, 77, 300);
  Cap(b, 77, 300);
  for (int second = 0; second < 5; ++second) EXPECT_NEAR(ShareOver(1s, {a, b}), 30.0, 2.0);
  EXPECT_GT(timeline_.Held(c), 3200ms);
}

TEST_P(CappedClients, SmallestOfClientsCapsHolds) {
  const ClientId a = timeline_.AddBusyClient({}, stoppable_);
  const ClientId b = timeline_.AddBusyClient({}, stoppable_);
  const std::array caps{ShareCap{.number = 1, .per_mille = 100},
                        ShareCap{.number = 2, .per_mille = 400},
                        ShareCap{.number = 3, .per_mille = 1000}};
  timeline_.lane().LimitClient(a, caps, timeline_.now());
  timeline_.lane().LimitClient(b, std::span(caps).subspan(1), timeline_.now());
  timeline_.RunFor(1s);
  EXPECT_NEAR(ShareOver(2s, {a}), 10.0, 2.0);
  EXPECT_NEAR(ShareOver(2s, {b}), 30.0, 2.0);
}

TEST_P(CappedClients, ALiveChangeTakesEffectWithin200Milliseconds) {
  const ClientId changed = timeline_.AddBusyClient({}, {.time = 10s, .unit = 100us});
  const ClientId other = timeline_.AddBusyClient({}, stoppable_);
  timeline_.RunFor(30ms);  // Each may have a command on the device that began before the cap.
  for (const std::uint32_t per_mille : {250u, 400u, 20u, 450u, 100u}) {
    Cap(changed, per_mille);
    timeline_.RunFor(200ms);
    EXPECT_NEAR(ShareOver(400ms, {changed}), per_mille / 10.0, 2.5) << per_mille;
  }
  timeline_.Remove(other);
  timeline_.RunFor(50ms);
  Cap(changed, 10);
  timeline_.RunFor(500ms);
  Cap(changed, kSharePerMilleMax);
  const auto lifted = timeline_.now();
  timeline_.RunFor(1ms);
  EXPECT_GE(*timeline_.LastSubmit(changed), lifted);
  timeline_.lane().LimitClient(changed, {}, timeline_.now());
  timeline_.RunFor(2s);
  EXPECT_EQ(timeline_.LastSubmit(changed), lifted) << "nobody stopped it again";
}

TEST_P(CappedClients, OldDebtEndsWithCapChange) {
  const ClientId capped = timeline_.AddBusyClient({}, 3s);
  Cap(capped, 100);
  timeline_.RunFor(4s);  // The debt is 2.7 s, which takes 27 s at that share.
  Cap(capped, 500);
  const auto changed = timeline_.now();
  timeline_.RunFor(200ms);
  EXPECT_GT(*timeline_.LastSubmit(capped), changed);
}

TEST_P(CappedClients, SleepingGivesNoCreditAgainstTheCap) {
  const ClientId capped = timeline_.AddBusyClient({}, stoppable_);
  Cap(capped, 500);
  for (int round = 0; round < 5; ++round) {
    timeline_.Sleep(capped);
    timeline_.RunFor(3s);
    timeline_.Wake(capped);
    EXPECT_NEAR(ShareOver(1s, {capped}), 50.0, 2.0);
  }
}

TEST_P(CappedClients, SuccessorUnderSameCapInheritsDebt) {
  const ClientId first = timeline_.AddBusyClient({}, 2s);
  Cap(first, 77, 200);
  timeline_.RunFor(1s);
  timeline_.Remove(first);
  timeline_.RunFor(1s);
  const ClientId second = timeline_.AddBusyClient({}, stoppable_);
  Cap(second, 77, 200);
  timeline_.RunFor(7s);
  EXPECT_EQ(timeline_.Held(second), 0ms) << "2 s are owed, and earned in 10 s";
  EXPECT_NEAR(ShareOver(10s, {second}), 18.0, 2.0);
}

TEST_P(CappedClients, OthersDoNotWaitForThrottledClientsRequest) {
  const ClientSpec promised{.scheduling_class = SchedulingClass::kHigh, .latency_target = 50ms};
  const ClientId capped = timeline_.AddClient(promised);
  Cap(capped, 50);
  const ClientId low =
      timeline_.AddBusyClient({.scheduling_class = SchedulingClass::kLow}, stoppable_);
  // Requests of 10 ms, of which the cap allows 5 per second.
  for (int round = 0; round < 200; ++round) {
    if (timeline_.Completed(capped) == timeline_.Posted(capped)) {
      timeline_.PostRequest(capped, {.time = 1ms}, 10);
    }
    timeline_.lane().ExpectRequest(capped, timeline_.now() + 25ms, timeline_.now());
    timeline_.RunFor(25ms);
  }
  EXPECT_NEAR(static_cast<double>(timeline_.Held(capped).count()) / 5e7, 5.0, 2.0);
  // The low client gets the rest, except hold-offs and time reserved for open requests.
  EXPECT_GT(timeline_.Held(low), 5s * 88 / 100);
}

TEST_P(CappedClients, CountsThrottledTime) {
  const ClientId capped = timeline_.AddBusyClient({}, stoppable_);
  timeline_.RunFor(100ms);
  EXPECT_EQ(timeline_.lane().ThrottledFor(capped, timeline_.now()), 0ms);
  Cap(capped, 250);
  timeline_.RunFor(1s);
  EXPECT_NEAR(static_cast<double>(timeline_.lane().ThrottledFor(capped, timeline_.now()).count()),
              750e6, 20e6);
  timeline_.Sleep(capped);
  const Duration before = timeline_.lane().ThrottledFor(capped, timeline_.now());
  timeline_.RunFor(1s);
  EXPECT_EQ(timeline_.lane().ThrottledFor(capped, timeline_.now()), before);
}

// Random changes, under the checks of the lane, of the policy's contract, and of the cap.
TEST_P(CappedClients, CapsHoldUnderRandomChanges) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    PolicyTimeline timeline(GetParam().make({.slice = 2ms, .low_floor = 0.2}), {});
    std::vector<ClientId> clients;
    for (int i = 0; i < 6; ++i) {
      const auto number = static_cast<std::uint32_t>(random() % 3);
      const ClientSpec spec{
          .scheduling_class = static_cast<SchedulingClass>(number),
          .weight = static_cast<std::uint32_t>(1 + random() % 9),
          .latency_target = random() % 3 == 0 ? std::optional<Duration>(5ms) : std::nullopt};
      const bool stoppable = random() % 3 != 0;
      clients.push_back(
          timeline.AddBusyClient(spec, {.time = Duration(10'000 + random() % 20'000'000),
                                        .unit = stoppable ? Duration(50us) : Duration::zero()}));
    }
    for (int step = 0; step < 400; ++step) {
      const ClientId client = clients[random() % clients.size()];
      switch (random() % 5) {
        case 0:
          timeline.Sleep(client);
          break;
        case 1:
          timeline.Wake(client);
          break;
        case 2:
          timeline.lane().LimitClient(client, {}, timeline.now());
          break;
        default: {
          const auto share = static_cast<std::uint32_t>(1 + random() % kSharePerMilleMax);
          const std::array caps{ShareCap{client.value, share}, ShareCap{100, 700}};
          timeline.lane().LimitClient(client, std::span(caps).first(1 + random() % 2),
                                      timeline.now());
        }
      }
      timeline.RunFor(Duration(random() % 20'000'000));
    }
    for (const ClientId client : clients) {
      const std::array caps{ShareCap{.number = 100, .per_mille = 100}};
      timeline.lane().LimitClient(client, caps, timeline.now());
      timeline.Wake(client);
    }
    // An uncapped high client may have had 64 commands of 20 ms on the device.
    timeline.RunFor(15s);
    const Duration before = timeline.lane().charged_total();
    timeline.RunFor(2s);
    EXPECT_NEAR(static_cast<double>((timeline.lane().charged_total() - before).count()) / 2e7, 10.0,
                2.0);
  }
}

std::string GetName(const ::testing::TestParamInfo<PolicyEntry>& info) {
  return std::string(info.param.name);
}

INSTANTIATE_TEST_SUITE_P(EveryPolicy, CappedClients, ::testing::ValuesIn(PolicyCatalog()), GetName);

}  // namespace
}  // namespace gpushared::scheduler
