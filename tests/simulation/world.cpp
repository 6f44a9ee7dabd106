// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/world.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "tests/support/policy_traits.h"

namespace gpushared::testing {

using namespace std::chrono_literals;
using scheduler::Action;
using scheduler::SchedulingClass;

namespace {

constexpr std::size_t kClientsAtOnce = 12;
constexpr std::size_t kQueuedMax = 200;  // Per client.

const scheduler::PolicyEntry& GetPolicy(std::uint64_t seed) {
  const auto catalog = scheduler::PolicyCatalog();
  return catalog[seed % catalog.size()];
}

scheduler::PolicyOptions GetPolicyOptions(std::uint64_t seed) {
  std::mt19937_64 random(seed ^ 0x706f6c696379u);
  scheduler::PolicyOptions options;
  options.slice = 500us * static_cast<int>(1 + random() % 8);
  options.hold_off = 10us * static_cast<int>(random() % 20);
  options.low_floor = random() % 2 == 0 ? 0.0 : 0.05 * static_cast<double>(1 + random() % 6);
  return options;
}

scheduler::LaneOptions GetLaneOptions(std::uint64_t seed) {
  std::mt19937_64 random(seed ^ 0x6c616e65u);
  scheduler::LaneOptions options;
  options.in_flight_max = 1 + random() % 16;
  options.high_in_flight_max = 1 + random() % 16;
  options.window = 100us * static_cast<int>(1 + random() % 10);
  options.beyond_window_max = random() % 4 == 0 ? 2 : 1;
  return options;
}

}  // namespace

World::World(std::uint64_t seed)
    : random_(seed),
      policy_(GetPolicy(seed)),
      policy_options_(GetPolicyOptions(seed)),
      lane_options_(GetLaneOptions(seed)),
      rules_(policy_.make(policy_options_)->rules()),
      stops_nothing_(StopsNothing(*policy_.make(policy_options_))),
      lane_(policy_.make(policy_options_), lane_options_) {}

std::string World::Describe() const {
  const auto us = [](Duration duration) { return std::to_string(duration.count() / 1000) + " us"; };
  return std::string(policy_.name) + ", slice " + us(policy_options_.slice) + ", hold-off " +
         us(policy_options_.hold_off) + ", floor " + std::to_string(policy_options_.low_floor) +
         ", window " + us(lane_options_.window) + ", in flight " +
         std::to_string(lane_options_.in_flight_max) + " and " +
         std::to_string(lane_options_.high_in_flight_max) + ", beyond the window " +
         std::to_string(lane_options_.beyond_window_max);
}

World::Outcome World::Run(std::uint64_t steps) {
  for (std::uint64_t step = 0; step < steps && outcome_.broken.empty(); ++step) {
    RandomEvent();
    TakeActions();
    AdvanceTo(now_ + RandomTime(1us, 2ms));
    ++outcome_.steps;
  }
  if (outcome_.broken.empty()) Drain();
  return outcome_;
}

void World::RandomEvent() {
  const std::optional<ClientId> client = RandomClient();
  const std::uint64_t dice = Random(100);
  if (!client || (dice < 6 && clients_.size() < kClientsAtOnce)) {
    AddClient();
  } else if (dice < 9) {
    Kill(*client);
  } else if (dice < 12) {
    ChangeSpec(*client);
  } else if (dice < 80) {
    Burst(*client);
  } else if (dice < 92) {
    MarkRequest(*client);
  } else if (dice < 94) {
    SetLaunchBubble();
  }
}

scheduler::ClientSpec World::RandomSpec() {
  return {.scheduling_class = static_cast<SchedulingClass>(Random(3)),
          .weight = static_cast<std::uint32_t>(Chance(20) ? 1000 : 1 + Random(10)),
          .latency_target = Chance(40) ? std::optional(RandomTime(500us, 50ms)) : std::nullopt};
}

void World::AddClient() {
  const ClientId client{++last_client_};
  Client& state = clients_[client];
  state.spec = RandomSpec();
  state.time_typical = RandomTime(2us, Chance(20) ? 20ms : 500us);
  // The floor can only be guaranteed if commands of the classes above the low class are short or
  // stoppable.
  const bool must_stop = state.time_typical > policy_options_.slice;
  if (must_stop || Chance(50)) state.unit = RandomTime(1us, 100us);
  lane_.AddClient(client, state.spec, now_);
}

void World::Burst(ClientId client) {
  Client& state = clients_.at(client);
  const std::uint64_t count = Chance(10) ? 50 : 1 + Random(4);
  for (std::uint64_t i = 0; i < count && state.queued < kQueuedMax; ++i) {
    Duration time = RandomTime(state.time_typical / 2, state.time_typical);
    if (Chance(2)) time *= 10;  // This kernel is much slower than the earlier ones.
    Duration unit = state.unit;
    if (time > policy_options_.slice && unit == Duration::zero()) unit = 50us;
    const Duration predicted = Chance(10) ? RandomTime(1us, 5ms) : time;
    const std::uint64_t id = ++last_command_;
    const auto stream = static_cast<std::uint32_t>(Random(2));
    commands_[id] = {
        .client = client, .left = time, .predicted = predicted, .unit = unit, .stream = stream};
    ++state.queued;
    lane_.Enqueue(client, {id, predicted, unit > Duration::zero(), stream}, now_);
  }
}

// Begins, ends or announces a request, within the limit of open requests.
void World::MarkRequest(ClientId client) {
  std::vector<std::uint64_t>& open = clients_.at(client).requests;
  if (Chance(20)) {
    lane_.ExpectRequest(client, now_ + RandomTime(1us, 10ms), now_);
  } else if (!open.empty() && (Chance(50) || open.size() == kOpenRequestsMax)) {
    const auto ended = open.begin() + static_cast<std::ptrdiff_t>(Random(open.size()));
    lane_.EndRequest(client, *ended, now_);
    open.erase(ended);
  } else {
    open.push_back(++last_request_);
    lane_.BeginRequest(client, {last_request_, now_ - RandomTime(1us, 1ms)}, now_);
  }
}

void World::Kill(ClientId client) {
  ++outcome_.deaths;
  const auto reported = lane_.RemoveClient(client, now_);
  std::set<std::uint64_t> expected;
  for (const auto& [id, command] : commands_) {
    if (command.client == client && command.is_in_flight) expected.insert(id);
  }
  Require(std::set(reported.begin(), reported.end()) == expected,
          "a dead client's commands on the device are reported to be stopped");
  for (const std::uint64_t id : expected) {
    commands_.at(id).stop_asked = true;
    device_.RequestStop(id, now_);
  }
  std::erase_if(commands_, [&](const auto& entry) {
    return entry.second.client == client && !entry.second.is_in_flight;
  });
  clients_.erase(client);
  dead_.insert(client);
}

void World::ChangeSpec(ClientId client) {
  Client& state = clients_.at(client);
  state.spec = RandomSpec();
  lane_.ChangeClient(client, state.spec, now_);
}

void World::SetLaunchBubble() {
  launch_bubble_ = RandomTime(1us, 600us);
  lane_.SetLaunchBubble(*launch_bubble_);
}

void World::AdvanceTo(TimePoint until) {
  while (outcome_.broken.empty()) {
    TakeActions();
    std::optional<TimePoint> next = device_.next_event();
    if (const auto wake_at = lane_.wake_at(); wake_at && (!next || *wake_at < *next)) {
      next = wake_at;
    }
    if (!next || *next > until) break;
    now_ = std::max(now_, *next);
    while (const auto finished = device_.TakeFinished(now_)) OnFinished(*finished);
    CheckConservation();
  }
  now_ = until;
}

void World::Drain() {
  for (int turn = 0; turn < 100'000 && !commands_.empty(); ++turn) {
    if (!outcome_.broken.empty()) return;
    AdvanceTo(now_ + 10ms);
  }
  Require(commands_.empty(), "every command of a living client ends");
  for (const auto& [client, state] : clients_) {
    Require(lane_.queued_count(client) == 0, "nothing is left queued");
  }
  Require(lane_.window_used() == Duration::zero(), "an empty device uses nothing of the window");
  Require(!lane_.Next(now_), "an empty lane has nothing to do");
}

void World::TakeActions() {
  int actions = 0;
  while (const auto action = lane_.Next(now_)) {
    Require(!dead_.contains(action->client), "no action names a dead client");
    if (!commands_.contains(action->command)) {
      Require(false, "every action names a command that is queued or in flight");
    }
    Require(++actions < 10'000, "actions come to an end");
    if (!outcome_.broken.empty()) return;
    action->kind == Action::Kind::kSubmit ? OnSubmit(*action) : OnStop(*action);
  }
  CheckBounds();
  CheckClasses();
  CheckFloor();
}

void World::OnSubmit(const Action& action) {
  ++outcome_.submits;
  Command& command = commands_.at(action.command);
  Client& client = clients_.at(action.client);
  Require(!command.is_in_flight, "a command is submitted once at a time");
  Require(command.client == action.client, "a command is its client's");
  if (IsPriority() && policy_options_.low_floor == 0.0) {
    for (const auto& [id, other] : clients_) {
      Require(other.spec.scheduling_class >= client.spec.scheduling_class || other.queued == 0,
              "nothing is submitted while a higher class is ready");
    }
  }
  if (policy_.name == "fifo") {
    for (const auto& [id, other] : commands_) {
      Require(id >= action.command || other.is_in_flight, "fifo submits in order of arrival");
    }
  }
  command.stop_asked = false;
  command.scheduling_class = client.spec.scheduling_class;
  command.is_windowed = !KnowsClasses() || command.scheduling_class != SchedulingClass::kHigh;
  CheckLookahead(command);
  command.is_in_flight = true;
  command.submission = outcome_.submits;
  --client.queued;
  device_.Submit({action.command, command.left, command.unit, action.priority}, now_);
}

void World::OnStop(const Action& action) {
  ++outcome_.stops;
  Command& command = commands_.at(action.command);
  Require(command.is_in_flight, "only what is on the device is stopped");
  Require(command.unit > Duration::zero(), "only what can be stopped is stopped");
  Require(!command.stop_asked, "a submission is stopped once");
  Require(!stops_nothing_, "a policy under which nobody gives way stops nothing");
  command.stop_asked = true;
  device_.RequestStop(action.command, now_);
}

void World::OnFinished(const SerialDevice::Finished& finished) {
  Command& command = commands_.at(finished.command);
  const ClientId client = command.client;
  const scheduler::Charge charge = lane_.OnCompleted(finished.command, now_);
  Require(charge.client == client, "a charge goes to the command's client");
  Require(charge.held >= Duration::zero(), "no charge is negative");
  charged_ += charge.held;
  charged_of_[client] += charge.held;
  if (command.scheduling_class == SchedulingClass::kLow) low_charged_ += charge.held;

  command.left -= finished.ran;
  if (finished.is_whole || dead_.contains(client)) {
    if (finished.is_whole) ++outcome_.completed;
    commands_.erase(finished.command);
    return;
  }
  command.is_in_flight = false;
  command.predicted = command.left;
  ++clients_.at(client).queued;
  lane_.EnqueueFront(client, {finished.command, command.predicted, true, command.stream}, now_);
}

void World::CheckBounds() {
  std::size_t windowed = 0, unwindowed = 0;
  Duration predicted{};
  Duration predicted_max{};
  std::set<ClientId> on_device;
  for (const auto& [id, command] : commands_) {
    if (!command.is_in_flight) continue;
    on_device.insert(command.client);
    if (!command.is_windowed) {
      ++unwindowed;
      continue;
    }
    ++windowed;
    predicted += command.predicted;
    predicted_max = std::max(predicted_max, command.predicted);
  }
  Require(windowed + unwindowed == lane_.in_flight_count(), "the lane knows what is in flight");
  Require(windowed <= lane_options_.in_flight_max, "the count on the device is bounded");
  Require(unwindowed <= lane_options_.high_in_flight_max, "the high class's count is bounded");
  Require(predicted == lane_.window_used(), "the lane knows what uses the window");
  // A client that is or was alone may have one more command on the device.
  const std::size_t beyond = lane_options_.beyond_window_max + 1;
  Require(predicted <= lane_options_.window || windowed <= beyond ||
              predicted <= lane_options_.window + predicted_max * static_cast<int>(beyond - 1),
          "the predicted time on the device stays within the window");
  if (rules_.one_client_at_a_time) {
    Require(on_device.size() <= 1, "the policy has one client on the device");
  }
}

bool World::HasUrgentClient() const {
  return KnowsClasses() && std::any_of(clients_.begin(), clients_.end(), [](const auto& entry) {
           const scheduler::ClientSpec& spec = entry.second.spec;
           return spec.scheduling_class == SchedulingClass::kHigh || spec.latency_target;
         });
}

// Checks the lookahead of `next`, just before it is submitted.
void World::CheckLookahead(const Command& next) {
  if (!next.is_windowed || !launch_bubble_ || !HasUrgentClient()) return;
  std::size_t windowed = 0;
  Duration before{};
  const Command* oldest = nullptr;
  for (const auto& [id, command] : commands_) {
    if (!command.is_in_flight || !command.is_windowed) continue;
    ++windowed;
    if (command.client != next.client || command.stream != next.stream) continue;
    before += command.predicted;
    if (oldest == nullptr || command.submission < oldest->submission) oldest = &command;
  }
  if (oldest == nullptr || windowed < lane_options_.beyond_window_max) return;
  ++outcome_.looked_ahead;
  const Duration ahead = std::max<Duration>(2 * *launch_bubble_, 20us);
  Require(before - oldest->predicted < ahead || ahead >= lane_options_.window,
          "no more waits on the device behind its stream than keeps it busy");
}

// Checked after all actions of a moment: a high-class client waits only for work that was on the
// device when the client arrived, and the stoppable part of this work has been stopped.
void World::CheckClasses() {
  if (!IsPriority() || policy_options_.low_floor > 0.0) return;
  std::size_t high_queued = 0, unwindowed = 0;
  for (const auto& [client, state] : clients_) {
    if (state.spec.scheduling_class == SchedulingClass::kHigh) high_queued += state.queued;
  }
  for (const auto& [id, command] : commands_) {
    if (command.is_in_flight && !command.is_windowed) ++unwindowed;
  }
  Require(high_queued == 0 || unwindowed >= lane_options_.high_in_flight_max,
          "ready high-class work is submitted at once");
  if (high_queued == 0) return;
  for (const auto& [id, command] : commands_) {
    const auto owner = clients_.find(command.client);
    if (!command.is_in_flight || owner == clients_.end()) continue;
    const bool is_lower = owner->second.spec.scheduling_class != SchedulingClass::kHigh;
    Require(!is_lower || command.unit == Duration::zero() || command.stop_asked,
            "lower work is stopped when high work is ready");
  }
}

void World::CheckConservation() {
  Require(charged_ == lane_.charged_total(), "the lane's charges add up to its total");
  Require(lane_.charged_total() <= now_ - TimePoint{}, "no more is charged than time has passed");
  if (lane_.in_flight_count() == 0) {
    Require(lane_.charged_total() == device_.busy(), "all busy time is charged, once");
  }
}

void World::CheckFloor() {
  if (!IsPriority() || policy_options_.low_floor == 0.0) return;
  const bool low_has_work = std::any_of(clients_.begin(), clients_.end(), [](const auto& entry) {
    return entry.second.spec.scheduling_class == SchedulingClass::kLow && entry.second.queued > 0;
  });
  if (!low_has_work) {
    low_since_.reset();
    return;
  }
  if (!low_since_) {
    low_since_ = now_;
    low_charged_ = Duration::zero();
  }
  // The low class earns its first slice before it gets one. Work on the device is not charged yet.
  // Debt above the cap is forgiven.
  const double promised =
      policy_options_.low_floor * static_cast<double>((now_ - *low_since_).count());
  const auto slack = 6 * policy_options_.slice + lane_options_.window;
  Require(static_cast<double>((low_charged_ + slack).count()) >= promised * 0.8,
          "the low class gets its floor");
}

void World::Require(bool holds, const std::string& invariant) {
  if (holds || !outcome_.broken.empty()) return;
  outcome_.broken = invariant + " [step " + std::to_string(outcome_.steps) + ", at " +
                    std::to_string((now_ - TimePoint{}).count()) + " ns]";
}

World::Duration World::RandomTime(Duration from, Duration to) {
  const auto span = static_cast<std::uint64_t>(std::max<Duration::rep>(1, (to - from).count()));
  return from + Duration(static_cast<Duration::rep>(Random(span))) + 1ns;
}

std::optional<World::ClientId> World::RandomClient() {
  if (clients_.empty()) return {};
  auto each = clients_.begin();
  std::advance(each, static_cast<std::ptrdiff_t>(Random(clients_.size())));
  return each->first;
}

}  // namespace gpushared::testing
