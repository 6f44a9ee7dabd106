// SPDX-License-Identifier: Apache-2.0
#include "scheduler/device_lane.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "scheduler/check.h"

namespace gpushared::scheduler {

namespace {

// The device should have work for this many launch bubbles. One would suffice if predictions and
// launch bubbles were exact.
constexpr int kLaunchBubblesAhead = 2;
// A command outlives its prediction when it has been charged this many times the prediction. A
// prediction is a 0.9 quantile, so one command in ten exceeds it, mostly by little.
constexpr int kOutlivedTimes = 2;
// A command is checked at most this many times per LaneOptions::outlived_after.
constexpr int kChecksPerOutlived = 8;
// A smaller lookahead would not shorten any request noticeably.
constexpr Duration kLookaheadMin = std::chrono::microseconds(20);

void CheckSpec(const ClientSpec& spec) {
  Check(spec.weight >= 1 && spec.weight <= kWeightMax, "a client's weight is out of range");
}

}  // namespace

DeviceLane::DeviceLane(std::unique_ptr<Policy> policy, const LaneOptions& options)
    : policy_(std::move(policy)),
      options_(options),
      rules_(policy_->rules()),
      in_flight_(options.in_flight_max + options.high_in_flight_max),
      lookahead_(options.window) {
  Check(options_.in_flight_max > 0 && options_.high_in_flight_max > 0 &&
            options_.beyond_window_max > 0,
        "a lane whose limits admit nothing");
  removed_in_flight_.reserve(options_.in_flight_max + options_.high_in_flight_max);
}

void DeviceLane::AddClient(ClientId client, const ClientSpec& spec, TimePoint now) {
  CheckSpec(spec);
  clients_.Add(client, Client{.spec = spec, .queue = {}});
  if (rules_.IsUrgent(spec)) ++urgent_count_;
  policy_->OnClientAdded(client, spec, now);
  settled_ = false;
}

void DeviceLane::ChangeClient(ClientId client, const ClientSpec& spec, TimePoint now) {
  CheckSpec(spec);
  ClientSpec& known = clients_.At(client).spec;
  if (rules_.IsUrgent(known)) --urgent_count_;
  if (rules_.IsUrgent(spec)) ++urgent_count_;
  known = spec;
  policy_->OnClientChanged(client, spec, now);
  settled_ = false;
}

void DeviceLane::LimitClient(ClientId client, std::span<const ShareCap> caps, TimePoint now) {
  Client& state = clients_.At(client);
  // The client joins the new caps before it leaves the former ones, so that a cap that is in both
  // sets keeps its state.
  const ShareCaps::Set joined = caps_.Join(caps, now);
  for (InFlight& command : in_flight_) {
    if (command.client != client) continue;
    BillSoFar(command, now);
    caps_.OnEnded(command.caps);
    command.caps = joined;
    caps_.OnStarted(joined, now);
  }
  caps_.Leave(state.caps);
  state.caps = joined;
  ReviewCaps(now);
  settled_ = false;
}

void DeviceLane::Hold(ClientId client, bool is_suspended, TimePoint now) {
  Client& state = clients_.At(client);
  const bool was_throttled = state.is_throttled();
  state.is_suspended = is_suspended;
  CountKept(state, now);
  OnThrottledChanged(client, state, was_throttled, now);
  settled_ = false;
}

std::span<const std::uint64_t> DeviceLane::RemoveClient(ClientId client, TimePoint now) {
  const Client& leaving = clients_.At(client);
  if (rules_.IsUrgent(leaving.spec)) --urgent_count_;
  caps_.Leave(leaving.caps);
  clients_.Remove(client);
  removed_in_flight_.clear();
  for (InFlight& command : in_flight_) {
    if (command.client != client) continue;
    if (command.stop_pending) --stops_pending_;
    command.stop_pending = false;
    command.stop_asked = true;
    command.stops_late = false;
    command.orphan = true;
    removed_in_flight_.push_back(command.command);
  }
  policy_->OnClientRemoved(client, now);
  settled_ = false;
  return removed_in_flight_;
}

void DeviceLane::Enqueue(ClientId client, const LaneCommand& command, TimePoint now) {
  Client& state = clients_.At(client);
  const bool becomes_head = state.queue.empty();
  state.queue.PushBack({Bounded(command), next_arrival_++});
  if (becomes_head) ReportHead(client, state, now);
}

void DeviceLane::EnqueueFront(ClientId client, const LaneCommand& command, TimePoint now) {
  Client& state = clients_.At(client);
  // The remainder arrived before the commands that are queued after it, so its arrival number must
  // not be larger than theirs.
  const std::uint64_t arrival = state.queue.empty() ? next_arrival_++ : state.queue.front().arrival;
  state.queue.PushFront({Bounded(command), arrival});
  ReportHead(client, state, now);
}

void DeviceLane::BeginRequest(ClientId client, const RequestMark& request, TimePoint now) {
  policy_->OnRequestBegan(client, {request.number, std::min(request.arrived, now)}, now);
  settled_ = false;
}

void DeviceLane::EndRequest(ClientId client, std::uint64_t number, TimePoint now) {
  policy_->OnRequestEnded(client, number, now);
  settled_ = false;
}

void DeviceLane::ExpectRequest(ClientId client, TimePoint at, TimePoint now) {
  // While the client is throttled the request could not start, so the policy must not keep the
  // device free for it.
  if (clients_.At(client).is_throttled()) return;
  policy_->OnRequestExpected(client, at, now);
  settled_ = false;
}

void DeviceLane::SetLaunchBubble(Duration launch_bubble) {
  const Duration wanted = kLaunchBubblesAhead * std::min(launch_bubble, options_.window);
  lookahead_ = std::min(std::max(wanted, kLookaheadMin), options_.window);
  settled_ = false;
}

LaneCommand DeviceLane::Bounded(const LaneCommand& command) {
  LaneCommand bounded = command;
  bounded.predicted = std::clamp(command.predicted, Duration::zero(), Duration(kCommandTimeMax));
  return bounded;
}

CommandQueue& DeviceLane::Queue(ClientId client) { return clients_.At(client).queue; }

std::size_t DeviceLane::queued_count(ClientId client) const {
  const Client* const state = clients_.Find(client);
  return state == nullptr ? 0 : state->queue.size();
}

void DeviceLane::OnQueueChanged(ClientId client, TimePoint now) {
  ReportHead(client, clients_.At(client), now);
}

void DeviceLane::ReportHead(ClientId client, Client& state, TimePoint now) {
  settled_ = false;
  if (state.is_throttled()) CountKept(state, now);
  if (!state.queue.empty() && !state.is_throttled()) {
    policy_->OnReady(client, GetHead(state), now);
    state.reported_ready = true;
  } else if (state.reported_ready) {
    policy_->OnIdle(client, now);
    state.reported_ready = false;
  }
}

Head DeviceLane::GetHead(const Client& state) {
  const QueuedCommand& first = state.queue.front();
  return {first.command.predicted, first.arrival, first.command.stoppable};
}

bool DeviceLane::IsCapped(ClientId client) const {
  const Client* const state = clients_.Find(client);
  return state != nullptr && !state->caps.empty();
}

Duration DeviceLane::ThrottledFor(ClientId client, TimePoint now) const {
  const Client* const state = clients_.Find(client);
  return state == nullptr ? Duration::zero() : state->capped_out_for.Until(now);
}

Duration DeviceLane::SuspendedFor(ClientId client, TimePoint now) const {
  const Client* const state = clients_.Find(client);
  return state == nullptr ? Duration::zero() : state->suspended_for.Until(now);
}

// ---- caps

void DeviceLane::KeptTime::Count(bool is_so, TimePoint now) {
  if (is_so == since.has_value()) return;
  if (is_so) {
    since = now;
  } else {
    before += now - *since;
    since.reset();
  }
}

Duration DeviceLane::KeptTime::Until(TimePoint now) const {
  return before + (since ? now - *since : Duration::zero());
}

void DeviceLane::CountKept(Client& state, TimePoint now) {
  const bool has_commands = !state.queue.empty();
  state.capped_out_for.Count(state.is_capped_out && has_commands, now);
  state.suspended_for.Count(state.is_suspended && has_commands, now);
}

void DeviceLane::BillSoFar(InFlight& command, TimePoint now) {
  const Duration so_far = HeldSoFar(command, now);
  caps_.Bill(command.caps, so_far - command.billed, now);
  command.billed = so_far;
}

void DeviceLane::ReviewCaps(TimePoint now) {
  for (InFlight& command : in_flight_) {
    if (!command.caps.empty()) BillSoFar(command, now);
  }
  caps_.Review(now);
  for (auto& [client, state] : clients_) {
    const bool is_capped_out = caps_.IsClosed(state.caps);
    if (is_capped_out == state.is_capped_out) continue;
    const bool was_throttled = state.is_throttled();
    state.is_capped_out = is_capped_out;
    CountKept(state, now);
    OnThrottledChanged(client, state, was_throttled, now);
  }
}

void DeviceLane::OnThrottledChanged(ClientId client, Client& state, bool was_throttled,
                                    TimePoint now) {
  if (state.is_throttled() == was_throttled) return;
  if (was_throttled) {
    policy_->OnThrottled(client, false, now);
    return ReportHead(client, state, now);
  }
  ReportHead(client, state, now);
  policy_->OnThrottled(client, true, now);
  for (InFlight& command : in_flight_) {
    if (command.client == client && command.stoppable && !command.stop_asked) AskToStop(command);
  }
}

Charge DeviceLane::OnCompleted(std::uint64_t command, TimePoint now) {
  // The command is usually the first one.
  InFlight* found = in_flight_.begin();
  while (found != in_flight_.end() && found->command != command) ++found;
  Check(found != in_flight_.end(), "a command completed that is not in flight");
  const InFlight& ended = *found;
  const Duration held = ended.reported + meter_.End(ended.charge, now);
  const Charge charge{ended.client, held, ended.stop_asked};
  if (!ended.caps.empty()) {
    caps_.Bill(ended.caps, charge.held - ended.billed, now);
    caps_.OnEnded(ended.caps);
  }
  if (ended.stop_pending) --stops_pending_;
  if (ended.windowed) {
    window_used_ -= ended.predicted;
    --windowed_count_;
  }
  if (!ended.orphan) {
    policy_->OnEnded(
        ended.client,
        Ended{.held = std::min<Duration>(charge.held - ended.reported, kCommandTimeMax),
              .predicted = ended.predicted,
              .stoppable = ended.stoppable,
              .stop_asked = ended.policy_asked,
              .account = ended.account},
        now);
  }
  in_flight_.Remove(found);
  settled_ = false;
  return charge;
}

std::optional<Action> DeviceLane::Next(TimePoint now) {
  if (stops_pending_ > 0) return TakePendingStop();
  if (settled_ && (!wake_at_ || now < *wake_at_)) return {};
  if (caps_.IsDue(now)) {
    ReviewCaps(now);
    if (stops_pending_ > 0) return TakePendingStop();
  }
  if (outlived_at_ && now >= *outlived_at_) {
    if (const std::optional<Action> outlived = TakeOutlived(now)) return outlived;
  }

  Decision decision = policy_->Pick(now);
  // The lane may already have stopped the client's commands, for example because of a cap.
  while (decision.kind == Decision::Kind::kStop && !MarkStops(decision.client)) {
    decision = policy_->Pick(now);
  }
  switch (decision.kind) {
    case Decision::Kind::kStop:
      return TakePendingStop();
    case Decision::Kind::kRun: {
      Client& state = clients_.At(decision.client);
      Check(!state.queue.empty(), "the policy picked a client that is not ready");
      if (Admits(decision.client, state)) return Submit(decision, state, now);
      Check(!in_flight_.empty(), "the lane rejected a command with nothing in flight");
      break;
    }
    case Decision::Kind::kWait:
      break;
  }
  Check(!decision.reconsider_at || *decision.reconsider_at > now,
        "the policy asked to be asked again at once");
  if (in_flight_.empty()) outlived_at_.reset();
  wake_at_ = Earlier(Earlier(decision.reconsider_at, caps_.due_at()), outlived_at_);
  settled_ = true;
  return {};
}

bool DeviceLane::IsWindowed(const Client& state) const {
  return !rules_.classes_matter || state.spec.scheduling_class != SchedulingClass::kHigh;
}

bool DeviceLane::Admits(ClientId client, const Client& state) const {
  // All commands in flight are of one client, so checking the first one suffices.
  if (rules_.one_client_at_a_time && !in_flight_.empty() && in_flight_.front().client != client) {
    return false;
  }
  if (!IsWindowed(state)) {
    if (in_flight_.size() - windowed_count_ >= options_.high_in_flight_max) return false;
    return state.caps.empty() || IsWithinOwnWindow(client, state);
  }
  if (windowed_count_ >= options_.in_flight_max) return false;
  // A lone client's next command delays no other client, and can run while the end of the previous
  // one is being reported.
  const std::size_t for_the_lone = clients_.size() == 1 && urgent_count_ == 0 ? 1 : 0;
  if (windowed_count_ < options_.beyond_window_max + for_the_lone) return true;
  const LaneCommand& next = state.queue.front().command;
  if (options_.chains_stops && windowed_count_ == 1 && IsChained(client, next)) return true;
  if (window_used_ + next.predicted > options_.window) return false;
  const Duration ahead = lookahead();
  return ahead == options_.window || GetTimeAfterOldest(client, next.stream) < ahead;
}

bool DeviceLane::IsChained(ClientId client, const LaneCommand& next) const {
  const InFlight* const ahead = std::find_if(in_flight_.begin(), in_flight_.end(),
                                             [](const InFlight& each) { return each.windowed; });
  return next.stoppable && ahead != in_flight_.end() && ahead->stoppable && !ahead->stop_asked &&
         ahead->client == client && ahead->stream == next.stream;
}

bool DeviceLane::IsWithinOwnWindow(ClientId client, const Client& state) const {
  Duration used{};
  bool is_first = true;
  for (const InFlight& each : in_flight_) {
    if (each.client != client) continue;
    used += each.predicted;
    is_first = false;
  }
  return is_first || used + state.queue.front().command.predicted <= options_.window;
}

Duration DeviceLane::GetTimeAfterOldest(ClientId client, std::uint32_t stream) const {
  const auto is_counted = [&](const InFlight& each) {
    return each.windowed && each.client == client && each.stream == stream;
  };
  const InFlight* each = std::find_if(in_flight_.begin(), in_flight_.end(), is_counted);
  Duration behind{};
  if (each != in_flight_.end()) ++each;
  for (; each != in_flight_.end(); ++each) {
    if (is_counted(*each)) behind += each->predicted;
  }
  return behind;
}

Action DeviceLane::Submit(const Decision& decision, Client& state, TimePoint now) {
  const ClientId client = decision.client;
  const Head head = GetHead(state);
  const LaneCommand& first = state.queue.front().command;
  const std::uint64_t command = first.command;
  const bool windowed = IsWindowed(state);
  in_flight_.Add([&] {
    return InFlight{.command = command,
                    .client = client,
                    .since = now,
                    .predicted = head.predicted,
                    .stream = first.stream,
                    .account = decision.account,
                    .charge = meter_.Start(head.predicted, now),
                    .stoppable = head.stoppable,
                    .stops_late = first.stops_late && !head.stoppable,
                    .windowed = windowed,
                    .caps = state.caps};
  });
  if (first.stops_late && !head.stoppable) {
    outlived_at_ = Earlier(
        outlived_at_, now + std::max(options_.outlived_after, kOutlivedTimes * head.predicted));
  }
  if (!state.caps.empty()) caps_.OnStarted(state.caps, now);
  if (windowed) {
    window_used_ += head.predicted;
    ++windowed_count_;
  }
  state.queue.PopFront();
  policy_->OnStarted(client, head, now);
  ReportHead(client, state, now);

  std::uint8_t priority = 0;
  if (rules_.classes_matter) {
    priority = static_cast<std::uint8_t>(kSchedulingClasses - 1 -
                                         static_cast<std::size_t>(state.spec.scheduling_class));
  }
  return {Action::Kind::kSubmit, client, command, priority};
}

// ---- outlived predictions

bool DeviceLane::HasOutlived(const InFlight& command, TimePoint now) const {
  if (now - command.since < options_.outlived_after ||
      meter_.SoFar(command.charge, now) < kOutlivedTimes * command.predicted) {
    return false;
  }
  // While an outlived command of another client is being stopped, this command does not count as
  // outlived, because it may only have been waiting for the other one.
  return std::none_of(in_flight_.begin(), in_flight_.end(), [&](const InFlight& each) {
    return each.has_outlived && each.stop_asked && each.client != command.client;
  });
}

TimePoint DeviceLane::NextCheckAt(const InFlight& command, TimePoint now) const {
  // `left` is the shortest time in which the command can outlive its prediction: it is charged for
  // all the time from now on only if it is alone on the device.
  const Duration left = kOutlivedTimes * command.predicted - meter_.SoFar(command.charge, now);
  const Duration delay = std::max(left, options_.outlived_after / kChecksPerOutlived);
  return std::max(command.since + options_.outlived_after, now + delay);
}

bool DeviceLane::SharesDevice(const InFlight& command) {
  const auto class_of = [&](const InFlight& each) {
    return rules_.classes_matter ? clients_.At(each.client).spec.scheduling_class
                                 : SchedulingClass::kNormal;
  };
  return std::any_of(in_flight_.begin(), in_flight_.end(), [&](const InFlight& each) {
    return each.client != command.client && !each.orphan && class_of(each) <= class_of(command);
  });
}

std::optional<Action> DeviceLane::TakeOutlived(TimePoint now) {
  outlived_at_.reset();
  for (InFlight& command : in_flight_) {
    if (!command.stops_late) continue;
    if (!HasOutlived(command, now)) {
      outlived_at_ = Earlier(outlived_at_, NextCheckAt(command, now));
      continue;
    }
    const auto is_of_stream = [&](const InFlight& each) {
      return each.client == command.client && each.stream == command.stream;
    };
    // All commands of the stream on the device must be able to stop, because a later one would
    // otherwise run between the two parts of this one.
    const bool can_all_stop =
        std::all_of(in_flight_.begin(), in_flight_.end(), [&](const InFlight& each) {
          return !is_of_stream(each) || each.stoppable || each.stops_late;
        });
    command.stops_late = can_all_stop;
    if (!can_all_stop) continue;
    // The command was admitted alongside others because its prediction was short. Its remainder is
    // queued as a long stoppable command.
    const bool leaves = SharesDevice(command) || clients_.At(command.client).is_throttled();
    for (InFlight& each : in_flight_) {
      if (!is_of_stream(each)) continue;
      if (each.stops_late) BecomeStoppable(each, now);
      if (leaves && !each.stop_asked) AskToStop(each);
    }
    // Set to now, because commands of other streams may have outlived their predictions as well.
    outlived_at_ = now;
    settled_ = false;
    return Action{Action::Kind::kOutlived, command.client, command.command, 0};
  }
  return {};
}

// Reports to the policy the end of one command and the start of another one, which can be stopped.
void DeviceLane::BecomeStoppable(InFlight& command, TimePoint now) {
  const Duration held = meter_.End(command.charge, now);
  // A command that outlives its prediction is expected to take the same time again.
  const Duration predicted = std::min<Duration>(std::max(command.predicted, held), kCommandTimeMax);
  policy_->OnStarted(command.client, Head{.predicted = predicted, .stoppable = true}, now);
  policy_->OnEnded(command.client,
                   Ended{.held = std::min<Duration>(held, kCommandTimeMax),
                         .predicted = command.predicted,
                         .account = command.account},
                   now);
  if (command.windowed) window_used_ += predicted - command.predicted;
  command.charge = meter_.Start(predicted, now);
  command.reported += held;
  command.predicted = predicted;
  command.stops_late = false;
  command.stoppable = command.has_outlived = true;
}

bool DeviceLane::MarkStops(ClientId client) {
  bool has_stoppable = false;
  for (InFlight& command : in_flight_) {
    if (command.client != client || !command.stoppable || command.policy_asked) continue;
    has_stoppable = true;
    command.policy_asked = true;
    if (!command.stop_asked) AskToStop(command);
  }
  Check(has_stoppable, "the policy stopped a client that has nothing to stop");
  return stops_pending_ > 0;
}

void DeviceLane::AskToStop(InFlight& command) {
  command.stop_asked = true;
  command.stop_pending = true;
  ++stops_pending_;
}

Action DeviceLane::TakePendingStop() {
  // Latest first, because stopping an earlier command could let the device begin a later one.
  InFlight* found = in_flight_.end();
  do {
    Check(found != in_flight_.begin(), "a pending stop has no command");
    --found;
  } while (!found->stop_pending);
  found->stop_pending = false;
  --stops_pending_;
  return {Action::Kind::kStop, found->client, found->command, 0};
}

}  // namespace gpushared::scheduler
