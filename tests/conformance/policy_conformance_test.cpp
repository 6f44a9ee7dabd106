// SPDX-License-Identifier: Apache-2.0
// Rules for every policy of the catalog, regardless of its purpose.
//
// Method: all legal call orders up to a fixed length with two clients, and long random ones with
// many. A model of ready clients and running commands checks every decision.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "scheduler/policy_catalog.h"

namespace gpushared::scheduler {
namespace {

using namespace std::chrono_literals;

constexpr PolicyOptions kOptions{.slice = 2ms, .low_floor = 0.2, .hold_off = 20us};

bool Equal(const Decision& left, const Decision& right) {
  return left.kind == right.kind && left.client == right.client &&
         left.reconsider_at == right.reconsider_at;
}

// A policy with a record of its calls. Makes legal calls only.
class Driver {
 public:
  enum class Call {
    kAdd,
    kRemove,
    kChange,
    kReady,
    kIdle,
    kEnd,       // Ends the client's oldest running command.
    kBegin,     // Begins a request.
    kEndBegun,  // Ends the client's oldest request.
    kExpect,    // Announces a request.
    kBar,       // The client has used up its cap, and is no longer ready.
    kUnbar,
    kObey,      // Pick, and carry out the decisions until there is no new one (client ignored).
    kAskOnly,   // Pick only, because the lane's bounds do not admit the command (client ignored).
    kTimeGoes,  // Advances time by a little more than a slice (client ignored).
  };
  static constexpr int kCalls = 14;
  static bool IsOfAClient(Call call) { return call < Call::kObey; }
  static bool IsOfRequests(Call call) { return call >= Call::kBegin && call < Call::kBar; }
  static bool IsOfCaps(Call call) { return call == Call::kBar || call == Call::kUnbar; }

  explicit Driver(const PolicyEntry& entry) : policy_(entry.make(kOptions)) {}

  bool IsLegal(Call call, ClientId client) const {
    const auto found = clients_.find(client);
    const bool is_here = found != clients_.end();
    switch (call) {
      case Call::kAdd:
        return !is_here && !gone_.contains(client) && clients_.size() < kClientsMax;
      case Call::kRemove:
      case Call::kChange:
        return is_here;
      case Call::kReady:
      case Call::kExpect:
      case Call::kBar:
        return is_here && !found->second.is_throttled;
      case Call::kUnbar:
        return is_here && found->second.is_throttled;
      case Call::kIdle:
        return is_here && found->second.ready > 0;
      case Call::kEnd:
        return is_here && !found->second.running.empty();
      case Call::kBegin:
        return is_here && found->second.requests.size() < kOpenRequestsMax;
      case Call::kEndBegun:
        return is_here && !found->second.requests.empty();
      default:
        return true;
    }
  }

  void Make(Call call, ClientId client) {
    switch (call) {
      case Call::kAdd:
        clients_[client] = {.spec = SpecFor(client), .head = {}, .running = {}, .requests = {}};
        policy_->OnClientAdded(client, SpecFor(client), now_);
        break;
      case Call::kRemove:
        clients_.erase(client);
        gone_.insert(client);
        policy_->OnClientRemoved(client, now_);
        break;
      case Call::kChange:
        ++changes_;
        clients_.at(client).spec = SpecFor(client);
        policy_->OnClientChanged(client, SpecFor(client), now_);
        break;
      case Call::kReady:
        if (++clients_.at(client).ready == 1) ReportHead(client);
        break;
      case Call::kIdle:
        clients_.at(client).ready = 0;
        policy_->OnIdle(client, now_);
        break;
      case Call::kEnd:
        End(client);
        break;
      case Call::kBegin:
        clients_.at(client).requests.push_back(++requests_);
        policy_->OnRequestBegan(client, {requests_, now_ - Duration(requests_ % 2 * 300'000)},
                                now_);
        break;
      case Call::kEndBegun: {
        std::vector<std::uint64_t>& requests = clients_.at(client).requests;
        policy_->OnRequestEnded(client, requests.front(), now_);
        requests.erase(requests.begin());
        break;
      }
      case Call::kExpect:
        policy_->OnRequestExpected(client, now_ + 700us, now_);
        break;
      case Call::kBar:
        if (clients_.at(client).ready > 0) policy_->OnIdle(client, now_);
        clients_.at(client).ready = 0;
        clients_.at(client).is_throttled = true;
        policy_->OnThrottled(client, true, now_);
        break;
      case Call::kUnbar:
        clients_.at(client).is_throttled = false;
        policy_->OnThrottled(client, false, now_);
        break;
      case Call::kObey:
        while (Obey()) {
        }
        break;
      case Call::kAskOnly:
        Ask();
        break;
      case Call::kTimeGoes:
        now_ += 2100us;
        break;
    }
  }

  // If the device is idle, waiting until the times that the policy returns must lead to a decision
  // to run.
  void CheckLiveness() {
    const auto any = [&](auto holds) {
      return std::any_of(clients_.begin(), clients_.end(),
                         [&](const auto& entry) { return holds(entry.second); });
    };
    for (int turn = 0; turn < 8; ++turn) {
      if (any([](const State& state) { return !state.running.empty(); })) return;
      if (!any([](const State& state) { return state.ready > 0; })) return;
      const Decision decision = Ask();
      if (decision.kind == Decision::Kind::kRun) return;
      if (!decision.reconsider_at) break;
      now_ = *decision.reconsider_at;
    }
    ADD_FAILURE() << "a client is ready, the device empty, and nothing runs";
  }

  const std::vector<Decision>& decisions() const { return decisions_; }

 private:
  struct Running {
    Head head;
    bool stop_asked = false;
    TimePoint started;
    std::uint8_t account = 0;
  };
  struct State {
    ClientSpec spec;
    int ready = 0;  // Number of queued commands; the first is the head.
    bool is_throttled = false;
    Head head;
    std::vector<Running> running;
    std::vector<std::uint64_t> requests;  // The open requests.
  };

  ClientSpec SpecFor(ClientId client) const {
    const std::uint64_t kind = client.value + changes_;
    return {.scheduling_class = static_cast<SchedulingClass>(kind % 3),
            .weight = static_cast<std::uint32_t>(1 + kind % 7 * 100),
            .latency_target = kind % 2 == 0 ? std::optional<Duration>() : 3ms,
            .group = client.value % 3 == 0 ? std::nullopt : std::optional<std::uint64_t>(7)};
  }

  void ReportHead(ClientId client) {
    State& state = clients_.at(client);
    ++arrivals_;
    state.head = {.predicted = Duration(1000 + arrivals_ * 700'001 % 5'000'000),
                  .arrival = arrivals_,
                  .stoppable = arrivals_ % 3 != 0};
    policy_->OnReady(client, state.head, now_);
  }

  void End(ClientId client) {
    State& state = clients_.at(client);
    const Running first = state.running.front();
    state.running.erase(state.running.begin());
    policy_->OnEnded(client,
                     {.held = now_ - first.started,
                      .predicted = first.head.predicted,
                      .stoppable = first.head.stoppable,
                      .stop_asked = first.stop_asked,
                      .account = first.account},
                     now_);
  }

  Decision Ask() {
    const Decision decision = policy_->Pick(now_);
    decisions_.push_back(decision);
    if (decision.reconsider_at) {
      EXPECT_GT(*decision.reconsider_at, now_);
    }
    switch (decision.kind) {
      case Decision::Kind::kWait:
        break;
      case Decision::Kind::kRun: {
        const auto found = clients_.find(decision.client);
        EXPECT_TRUE(found != clients_.end() && found->second.ready > 0)
            << "client " << decision.client.value << " was to run and is not ready";
        break;
      }
      case Decision::Kind::kStop:
        Stop(decision.client);
        return decision;
    }
    EXPECT_TRUE(Equal(policy_->Pick(now_), decision)) << "a decision changed without an event";
    return decision;
  }

  void Stop(ClientId client) {
    std::size_t stopped = 0;
    const auto found = clients_.find(client);
    if (found != clients_.end()) {
      for (Running& running : found->second.running) {
        if (!running.head.stoppable || running.stop_asked) continue;
        running.stop_asked = true;
        ++stopped;
      }
    }
    EXPECT_GT(stopped, 0u) << "client " << client.value << " was stopped and has nothing to stop";
    if (stopped == 0) is_broken_ = true;
    EXPECT_TRUE(stopped == 0 || MayHaveToGiveWay(client)) << "it said that it never would";
  }

  // Whether the policy may stop commands of the client in favour of another present client.
  bool MayHaveToGiveWay(ClientId client) const {
    const ClientSpec& running = clients_.at(client).spec;
    return std::any_of(clients_.begin(), clients_.end(), [&](const auto& entry) {
      const ClientSpec& waiting = entry.second.spec;
      const bool is_slice_over =
          policy_->rules().classes_matter && waiting.scheduling_class == running.scheduling_class;
      return entry.first != client && (is_slice_over || policy_->IsPreemptibleBy(running, waiting));
    });
  }

  bool Obey() {
    const Decision decision = Ask();
    if (::testing::Test::HasFailure()) is_broken_ = true;
    if (is_broken_ || decision.kind == Decision::Kind::kWait) return false;
    if (decision.kind == Decision::Kind::kStop) return true;
    State& state = clients_.at(decision.client);
    if (state.running.size() >= 3) return false;  // Imitates the limits of the lane.
    state.running.push_back({state.head, false, now_, decision.account});
    policy_->OnStarted(decision.client, state.head, now_);
    if (--state.ready > 0) {
      ReportHead(decision.client);
    } else {
      policy_->OnIdle(decision.client, now_);
    }
    return true;
  }

  std::unique_ptr<Policy> policy_;
  std::map<ClientId, State> clients_;
  std::set<ClientId> gone_;
  std::vector<Decision> decisions_;
  TimePoint now_{};
  std::uint64_t arrivals_ = 0;
  std::uint64_t changes_ = 0;
  std::uint64_t requests_ = 0;
  bool is_broken_ = false;
};

struct Step {
  Driver::Call call;
  ClientId client;
};

std::string Describe(const std::vector<Step>& steps) {
  static constexpr const char* kNames[Driver::kCalls] = {
      "Add",      "Remove", "Change", "Ready", "Idle", "End",     "Begin",
      "EndBegun", "Expect", "Bar",    "Unbar", "Obey", "AskOnly", "TimeGoes"};
  std::string text;
  for (const Step& step : steps) {
    text += std::string(" ") + kNames[static_cast<int>(step.call)];
    if (Driver::IsOfAClient(step.call)) text += std::to_string(step.client.value);
  }
  return text;
}

class PolicyConformance : public ::testing::TestWithParam<PolicyEntry> {};

// Makes all legal call orders of a length, depth-first.
class AllOrders {
 public:
  AllOrders(const PolicyEntry& entry, std::vector<Step> opening, std::size_t length,
            bool with_requests = false, bool with_caps = false)
      : entry_(entry),
        steps_(std::move(opening)),
        length_(steps_.size() + length),
        with_requests_(with_requests),
        with_caps_(with_caps) {}

  std::uint64_t Play() {
    Extend(Replay());
    return played_;
  }

 private:
  std::unique_ptr<Driver> Replay() const {
    auto driver = std::make_unique<Driver>(entry_);
    for (const Step& step : steps_) driver->Make(step.call, step.client);
    return driver;
  }

  void Extend(std::unique_ptr<Driver> driver) {
    if (steps_.size() == length_) {
      ++played_;
      driver->CheckLiveness();
      if (::testing::Test::HasFailure()) ADD_FAILURE() << "after" << Describe(steps_);
      return;
    }
    // The first order continues from here; for the others the policy is created again, because it
    // cannot be copied.
    for (const Step& step : NextSteps(*driver)) {
      steps_.push_back(step);
      if (driver != nullptr) {
        driver->Make(step.call, step.client);
        Extend(std::move(driver));
      } else {
        Extend(Replay());
      }
      steps_.pop_back();
      if (::testing::Test::HasFailure()) return;
    }
  }

  std::vector<Step> NextSteps(const Driver& driver) const {
    std::vector<Step> steps;
    for (int call = 0; call < Driver::kCalls; ++call) {
      for (const ClientId client : {ClientId{1}, ClientId{2}}) {
        const Step step{static_cast<Driver::Call>(call), client};
        if (!Driver::IsOfAClient(step.call) && client.value > 1) continue;
        if (Driver::IsOfRequests(step.call) && !with_requests_) continue;
        if (Driver::IsOfCaps(step.call) && !with_caps_) continue;
        if (driver.IsLegal(step.call, step.client) && !IsPointless(step)) steps.push_back(step);
      }
    }
    return steps;
  }

  // Two consecutive picks or advances of time add orders, but no new situations.
  bool IsPointless(const Step& step) const {
    return !steps_.empty() && !Driver::IsOfAClient(step.call) && steps_.back().call == step.call;
  }

  const PolicyEntry& entry_;
  std::vector<Step> steps_;
  const std::size_t length_;
  const bool with_requests_;
  const bool with_caps_;
  std::uint64_t played_ = 0;
};

// Each further call of an order multiplies the time of the test by ten. Therefore orders are one
// call shorter than in the stage `long`, and cover the same code.
std::size_t CallsLeftOut() { return std::getenv("GPUSHARED_ALL_ORDERS") != nullptr ? 0 : 1; }

TEST_P(PolicyConformance, AllLegalCallOrdersFromTheStart) {
  AllOrders orders(GetParam(), {}, 7 - CallsLeftOut());
  EXPECT_GT(orders.Play(), 1000u);
}

TEST_P(PolicyConformance, AllLegalCallOrdersWithTwoBusyClients) {
  using enum Driver::Call;
  const ClientId a{1}, b{2};
  AllOrders orders(
      GetParam(),
      {{kAdd, a}, {kAdd, b}, {kReady, a}, {kReady, a}, {kObey, a}, {kReady, b}, {kReady, b}},
      6 - CallsLeftOut());
  EXPECT_GT(orders.Play(), 1000u);
}

TEST_P(PolicyConformance, AllLegalCallOrdersWithRequests) {
  using enum Driver::Call;
  const ClientId a{1}, b{2};
  AllOrders orders(GetParam(),
                   {{kAdd, a}, {kAdd, b}, {kBegin, a}, {kReady, a}, {kObey, a}, {kReady, b}},
                   5 - CallsLeftOut(), true);
  EXPECT_GT(orders.Play(), 1000u);
}

TEST_P(PolicyConformance, AllLegalCallOrdersWithCaps) {
  using enum Driver::Call;
  const ClientId a{1}, b{2};
  AllOrders orders(GetParam(),
                   {{kAdd, a}, {kAdd, b}, {kBegin, a}, {kReady, a}, {kObey, a}, {kReady, b}},
                   4 - CallsLeftOut(), true, true);
  EXPECT_GT(orders.Play(), 1000u);
}

// Makes `count` random legal calls, and returns them.
std::vector<Step> RandomSteps(const PolicyEntry& entry, std::uint64_t seed, int count) {
  std::mt19937_64 random(seed);
  Driver driver(entry);
  std::vector<Step> steps;
  std::uint64_t first = 1;  // Clients are drawn from a range that advances.
  while (steps.size() < static_cast<std::size_t>(count)) {
    if (random() % 50 == 0) ++first;
    const Step step{static_cast<Driver::Call>(random() % Driver::kCalls),
                    ClientId{first + random() % 12}};
    if (step.call == Driver::Call::kRemove && random() % 8 != 0) continue;
    if (!driver.IsLegal(step.call, step.client)) continue;
    driver.Make(step.call, step.client);
    steps.push_back(step);
    if (::testing::Test::HasFailure()) break;
  }
  return steps;
}

TEST_P(PolicyConformance, LongRandomCallOrders) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    RandomSteps(GetParam(), seed, 2000);
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
}

// Decisions must depend only on the calls: not on addresses, hashes or clocks.
TEST_P(PolicyConformance, EqualCallsGiveEqualDecisions) {
  const std::vector<Step> steps = RandomSteps(GetParam(), 99, 2000);
  Driver first(GetParam()), second(GetParam());
  for (const Step& step : steps) first.Make(step.call, step.client);
  for (const Step& step : steps) second.Make(step.call, step.client);

  ASSERT_EQ(first.decisions().size(), second.decisions().size());
  for (std::size_t i = 0; i < first.decisions().size(); ++i) {
    ASSERT_TRUE(Equal(first.decisions()[i], second.decisions()[i])) << "decision " << i;
  }
}

TEST_P(PolicyConformance, ForgetsRemovedClientsHoweverMany) {
  using enum Driver::Call;
  Driver driver(GetParam());
  // More clients than fit at the same time, each removed with work ready and on the device.
  for (std::uint64_t id = 1; id <= 4 * kClientsMax; ++id) {
    const ClientId client{id};
    driver.Make(kAdd, client);
    driver.Make(kReady, client);
    driver.Make(kReady, client);
    driver.Make(kObey, client);
    if (id % 3 == 0) driver.Make(kTimeGoes, client);
    driver.Make(kRemove, client);
    driver.Make(kAskOnly, client);
    ASSERT_EQ(driver.decisions().back().kind, Decision::Kind::kWait);
  }
  const ClientId last{100'000};
  driver.Make(kAdd, last);
  driver.Make(kReady, last);
  driver.CheckLiveness();
}

TEST_P(PolicyConformance, ServesMaximumNumberOfClients) {
  using enum Driver::Call;
  Driver driver(GetParam());
  for (std::uint64_t id = 1; id <= kClientsMax; ++id) {
    driver.Make(kAdd, ClientId{id});
    driver.Make(kReady, ClientId{id});
  }
  for (std::size_t turn = 0; turn < 4 * kClientsMax; ++turn) {
    driver.Make(kObey, {});
    driver.Make(kTimeGoes, {});
    for (std::uint64_t id = 1; id <= kClientsMax; ++id) {
      while (driver.IsLegal(kEnd, ClientId{id})) driver.Make(kEnd, ClientId{id});
    }
  }

  std::set<ClientId> ran;
  for (const Decision& decision : driver.decisions()) {
    if (decision.kind == Decision::Kind::kRun) ran.insert(decision.client);
  }
  EXPECT_EQ(ran.size(), kClientsMax);
}

INSTANTIATE_TEST_SUITE_P(Catalog, PolicyConformance,
                         ::testing::ValuesIn(PolicyCatalog().begin(), PolicyCatalog().end()),
                         [](const auto& each) { return std::string(each.param.name); });

}  // namespace
}  // namespace gpushared::scheduler
