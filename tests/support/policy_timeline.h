// SPDX-License-Identifier: Apache-2.0
// A lane, a policy and a serial device on a virtual clock, with clients that are busy until the
// test makes them sleep.

#ifndef GPUSHARED_TESTS_SUPPORT_POLICY_TIMELINE_H_
#define GPUSHARED_TESTS_SUPPORT_POLICY_TIMELINE_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "scheduler/device_lane.h"
#include "tests/support/serial_device.h"

namespace gpushared::testing {

class PolicyTimeline {
 public:
  using ClientId = scheduler::ClientId;
  using Duration = scheduler::Duration;
  using TimePoint = scheduler::TimePoint;

  // A command of a client.
  struct Command {
    Duration time{};
    Duration unit{};                      // 0 if the command cannot be stopped.
    std::optional<Duration> predicted{};  // Empty: predicted correctly, as `time`.
    bool stops_late = false;              // Can be stopped only after its predicted end.
  };
  struct LoggedAction {
    TimePoint at;
    scheduler::Action action;
  };

  // By default at most one command is on the device, because shares are exact then.
  explicit PolicyTimeline(std::unique_ptr<scheduler::Policy> policy,
                          const scheduler::LaneOptions& options = {.in_flight_max = 1,
                                                                   .high_in_flight_max = 1})
      : lane_(std::move(policy), options) {}

  ClientId AddClient(const scheduler::ClientSpec& spec) {
    const ClientId client{++last_client_};
    clients_[client] = {};
    lane_.AddClient(client, spec, now_);
    return client;
  }

  // Adds a client that always has its next command ready.
  ClientId AddBusyClient(const scheduler::ClientSpec& spec, const Command& command) {
    const ClientId client = AddClient(spec);
    clients_[client].repeated = command;
    Refill(client);
    return client;
  }
  ClientId AddBusyClient(const scheduler::ClientSpec& spec, Duration command_time) {
    return AddBusyClient(spec, Command{.time = command_time});
  }

  // Submits one command now.
  std::uint64_t Post(ClientId client, const Command& command) {
    const std::uint64_t id = ++last_command_;
    commands_[id] = {.client = client, .left = command, .posted = now_};
    ++clients_.at(client).posted;
    lane_.Enqueue(client, LaneView(id, command), now_);
    return id;
  }

  // Submits a request that arrived `waited` ago and consists of `count` such commands. Returns the
  // last command.
  std::uint64_t PostRequest(ClientId client, const Command& command, int count = 1,
                            Duration waited = {}) {
    const std::uint64_t request = ++last_request_;
    lane_.BeginRequest(client, {request, now_ - waited}, now_);
    std::uint64_t last = 0;
    for (int i = 0; i < count; ++i) last = Post(client, command);
    commands_.at(last).ends_request = request;
    return last;
  }

  // Ends the client's supply of commands. Running ones continue, queued ones are dropped.
  void Sleep(ClientId client) {
    clients_.at(client).is_asleep = true;
    lane_.Drop(
        client, [](std::uint64_t) { return true; }, now_);
  }
  void Wake(ClientId client) {
    clients_.at(client).is_asleep = false;
    Refill(client);
  }

  void Remove(ClientId client) {
    const auto in_flight = lane_.RemoveClient(client, now_);
    for (const std::uint64_t command : in_flight) device_.RequestStop(command, now_);
    clients_.at(client).is_removed = true;
  }

  void RunFor(Duration span) { RunUntil(now_ + span); }

  void RunUntil(TimePoint end) {
    for (;;) {
      TakeActions();
      std::optional<TimePoint> next = device_.next_event();
      if (lane_.wake_at() && (!next || *lane_.wake_at() < *next)) next = lane_.wake_at();
      if (!next || *next > end) break;
      now_ = std::max(now_, *next);
      while (const auto finished = device_.TakeFinished(now_)) OnFinished(*finished);
    }
    now_ = end;
  }

  // Returns the device time charged to the client for commands that have ended.
  Duration Held(ClientId client) const { return clients_.at(client).held; }
  std::uint64_t Posted(ClientId client) const { return clients_.at(client).posted; }
  std::uint64_t Completed(ClientId client) const { return clients_.at(client).completed; }
  // Returns the time from Post to the end of the command's last unit.
  std::optional<Duration> Latency(std::uint64_t command) const {
    const CommandState& state = commands_.at(command);
    return state.ended ? std::optional(*state.ended - state.posted) : std::nullopt;
  }

  const std::vector<LoggedAction>& actions() const { return actions_; }
  std::size_t CountStops(ClientId client) const {
    return static_cast<std::size_t>(
        std::count_if(actions_.begin(), actions_.end(), [&](const LoggedAction& logged) {
          return logged.action.client == client &&
                 logged.action.kind == scheduler::Action::Kind::kStop;
        }));
  }
  // Returns when the client's latest command was submitted.
  std::optional<TimePoint> LastSubmit(ClientId client) const {
    std::optional<TimePoint> last;
    for (const LoggedAction& logged : actions_) {
      const bool is_submit = logged.action.kind == scheduler::Action::Kind::kSubmit;
      if (is_submit && logged.action.client == client) last = logged.at;
    }
    return last;
  }

  scheduler::DeviceLane& lane() { return lane_; }
  TimePoint now() const { return now_; }

 private:
  struct ClientState {
    std::optional<Command> repeated;
    Duration held{};
    std::uint64_t posted = 0;
    std::uint64_t completed = 0;
    bool is_asleep = false;
    bool is_removed = false;
  };
  struct CommandState {
    ClientId client;
    Command left;
    TimePoint posted;
    std::optional<TimePoint> ended{};
    std::uint64_t ends_request = 0;  // Request that ends with the command; 0 for none.
  };

  static scheduler::LaneCommand LaneView(std::uint64_t id, const Command& command) {
    return {.command = id,
            .predicted = command.predicted.value_or(command.time),
            .stoppable = command.unit > Duration::zero() && !command.stops_late,
            .stops_late = command.stops_late};
  }

  void Refill(ClientId client) {
    const ClientState& state = clients_.at(client);
    if (!state.repeated || state.is_asleep || state.is_removed) return;
    if (lane_.queued_count(client) == 0) Post(client, *state.repeated);
  }

  void TakeActions() {
    while (const auto action = lane_.Next(now_)) {
      actions_.push_back({now_, *action});
      if (action->kind == scheduler::Action::Kind::kStop) {
        device_.RequestStop(action->command, now_);
        continue;
      }
      if (action->kind == scheduler::Action::Kind::kOutlived) continue;
      const Command& command = commands_.at(action->command).left;
      device_.Submit({action->command, command.time, command.unit, action->priority}, now_);
      Refill(action->client);
    }
  }

  void OnFinished(const SerialDevice::Finished& finished) {
    CommandState& command = commands_.at(finished.command);
    ClientState& client = clients_.at(command.client);
    client.held += lane_.OnCompleted(finished.command, now_).held;
    if (finished.is_whole) {
      command.ended = now_;
      ++client.completed;
      if (command.ends_request != 0 && !client.is_removed) {
        lane_.EndRequest(command.client, command.ends_request, now_);
      }
      return;
    }
    command.left.time -= finished.ran;
    if (command.left.predicted) {
      *command.left.predicted = std::max(*command.left.predicted - finished.ran, Duration(1));
    }
    if (client.is_removed || client.is_asleep) return;
    lane_.EnqueueFront(command.client, LaneView(finished.command, command.left), now_);
  }

  scheduler::DeviceLane lane_;
  SerialDevice device_;
  std::map<ClientId, ClientState> clients_;
  std::map<std::uint64_t, CommandState> commands_;
  std::vector<LoggedAction> actions_;
  TimePoint now_{};
  std::uint64_t last_client_ = 0;
  std::uint64_t last_command_ = 0;
  std::uint64_t last_request_ = 0;
};

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_SUPPORT_POLICY_TIMELINE_H_
