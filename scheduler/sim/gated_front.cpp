// SPDX-License-Identifier: Apache-2.0
#include "scheduler/sim/gated_front.h"

#include <algorithm>
#include <utility>

namespace gpushared::simulation {
namespace {

// A client has at most one turn in the lane, so the client's number identifies the turn as well.
scheduler::ClientId GetId(std::size_t number) { return {number + 1}; }
std::size_t GetNumber(scheduler::ClientId id) { return id.value - 1; }

}  // namespace

GatedFront::GatedFront(GpuDevice& device, std::unique_ptr<scheduler::Policy> policy,
                       const FrontOptions& options)
    : device_(device), options_(options), lane_(std::move(policy), options.lane) {}

void GatedFront::AddClient(const scheduler::ClientSpec& spec, TimePoint now) {
  lane_.AddClient(GetId(clients_.size()), spec, now);
  clients_.push_back({.spec = spec});
  for (Client& client : clients_) SetTerms(client);
}

void GatedFront::SetTerms(Client& client) const {
  const scheduler::LaneRules& rules = lane_.rules();
  client.waits =
      !rules.classes_matter || client.spec.scheduling_class != scheduler::SchedulingClass::kHigh;
  client.window.reset();
  for (const Client& other : clients_) {
    if (&other == &client) continue;
    const Duration limit = rules.IsUrgent(other.spec) ? kUrgentWindow : options_.lane.window;
    client.window = std::min({client.window.value_or(limit), limit, options_.lane.window});
  }
}

void GatedFront::Enqueue(const Launch& launch, TimePoint) {
  clients_[launch.client].waiting.push_back(launch);
}

void GatedFront::OnRequestBegan(std::size_t number, std::uint64_t request, TimePoint arrived,
                                TimePoint now) {
  clients_[number].requests.Begin(lane_, GetId(number), {.number = request, .arrived = arrived},
                                  now);
}

void GatedFront::OnRequestEnded(std::size_t number, std::uint64_t request, TimePoint now) {
  clients_[number].requests.End(lane_, GetId(number), request, now);
}

bool GatedFront::OnFinished(const Finished& finished, TimePoint now) {
  const auto found = client_of_.find(finished.id);
  Client& client = clients_[found->second];
  client_of_.erase(found);
  const std::optional<Duration> launch = client.submitted.front();
  client.submitted.pop_front();
  if (!launch) return true;
  --client.in_flight;
  client.in_flight_time -= *launch;
  client.changed_at = now;
  return true;
}

bool GatedFront::MayLaunch(const Client& client, TimePoint now) const {
  if (!client.waits) return true;
  if (now < client.thread_free) return false;
  if (IsCopy(client.waiting.front().kernel)) return true;
  const bool is_open =
      (client.turn == Turn::kOpen && now >= client.opens_at) ||
      (client.turn == Turn::kStopped && now >= client.opens_at && now < client.closes_at);
  // The new launch comes on top of the window, as in the client library.
  const bool has_room = !client.window || client.in_flight_time <= *client.window;
  return is_open && has_room;
}

void GatedFront::SubmitWaiting(std::size_t number, TimePoint now) {
  Client& client = clients_[number];
  while (!client.waiting.empty() && MayLaunch(client, now)) {
    // A client that does not wait submits first, and its turn follows.
    const bool is_launch = !IsCopy(client.waiting.front().kernel);
    SubmitNext(number, now);
    if (is_launch && client.turn == Turn::kNone) AskForTurn(number, now);
  }
  if (client.turn == Turn::kNone && !client.waiting.empty() &&
      !IsCopy(client.waiting.front().kernel)) {
    AskForTurn(number, now);
  }
}

void GatedFront::SubmitNext(std::size_t number, TimePoint now) {
  Client& client = clients_[number];
  const Kernel first = client.waiting.front().kernel;
  client.thread_free = std::max(client.thread_free, now) + CallFor(first, options_.costs);
  do {
    const Launch launch = client.waiting.front();
    client.waiting.pop_front();
    device_.Submit({.id = launch.id, .stream = number, .kernel = launch.kernel},
                   client.thread_free);
    client_of_.emplace(launch.id, number);
    client.submitted.emplace_back();
    if (IsCopy(launch.kernel)) continue;
    client.submitted.back() = SoloTime(launch.kernel, options_.multiprocessors);
    ++client.in_flight;
    client.in_flight_time += *client.submitted.back();
  } while (!client.waiting.empty() && client.waiting.front().kernel.follows_in_graph);
  if (IsCopy(first)) return;
  client.changed_at = now;
  client.is_turn_used = true;
}

void GatedFront::AskForTurn(std::size_t number, TimePoint now) {
  Client& client = clients_[number];
  client.turn = Turn::kQueued;
  lane_.Enqueue(GetId(number), TurnCommand(number), now);
}

scheduler::LaneCommand GatedFront::TurnCommand(std::size_t number) const {
  return {.command = GetId(number).value,
          .predicted = options_.policy.slice,
          .stoppable = clients_[number].waits};
}

void GatedFront::Review(std::size_t number, TimePoint now) {
  Client& client = clients_[number];
  const bool is_drained = client.in_flight == 0;
  bool is_over = false;
  if (client.turn == Turn::kOpen) {
    is_over = is_drained && now - client.changed_at >= (client.is_turn_used ? kIdle : kUnused);
  } else if (client.turn == Turn::kStopped) {
    is_over = (is_drained && now >= client.closes_at) || now - client.stopped_at >= kDrainMax;
  }
  if (!is_over) return;
  client.charged += lane_.OnCompleted(GetId(number).value, now).held;
  client.is_turn_used = false;
  if (std::exchange(client.turn, Turn::kNone) == Turn::kStopped) {
    client.turn = Turn::kQueued;
    lane_.EnqueueFront(GetId(number), TurnCommand(number), now);
  }
}

void GatedFront::Act(TimePoint now) {
  for (std::size_t number = 0; number < clients_.size(); ++number) {
    SubmitWaiting(number, now);
    Review(number, now);
  }
  while (const std::optional<scheduler::Action> action = lane_.Next(now)) {
    Client& client = clients_[GetNumber(action->client)];
    if (action->kind == scheduler::Action::Kind::kStop) {
      client.turn = Turn::kStopped;
      client.stopped_at = now;
      client.closes_at = now + options_.costs.gate_relay;
      continue;
    }
    ++decisions_;
    client.turn = Turn::kOpen;
    client.changed_at = now;
    client.opens_at = now + options_.costs.gate_relay;
  }
  wake_at_ = lane_.wake_at();
  for (std::size_t number = 0; number < clients_.size(); ++number) {
    SubmitWaiting(number, now);
    wake_at_ = scheduler::Earlier(wake_at_, NextChange(clients_[number], now));
  }
}

std::optional<GatedFront::TimePoint> GatedFront::NextChange(const Client& client,
                                                            TimePoint now) const {
  const bool is_open = client.turn == Turn::kOpen;
  const bool is_on_device = is_open || client.turn == Turn::kStopped;
  std::optional<TimePoint> next;
  if (!client.waiting.empty()) {
    TimePoint launches_at = client.thread_free;
    if (!IsCopy(client.waiting.front().kernel))
      launches_at = std::max(launches_at, client.opens_at);
    if (launches_at > now) next = launches_at;
  }
  if (!is_on_device) return next;
  if (!is_open) {
    const TimePoint drained_at = client.in_flight == 0 ? client.closes_at : TimePoint::max();
    return scheduler::Earlier(next, std::min(drained_at, client.stopped_at + kDrainMax));
  }
  if (client.in_flight > 0) return next;
  return scheduler::Earlier(next, client.changed_at + (client.is_turn_used ? kIdle : kUnused));
}

}  // namespace gpushared::simulation
