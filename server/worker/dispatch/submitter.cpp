// SPDX-License-Identifier: Apache-2.0
#include "server/worker/dispatch/submitter.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <type_traits>
#include <utility>
#include <variant>

#include "gpushared/check.h"

#include "server/device/shown_name.h"

namespace gpushared::server {

namespace {

std::uint64_t ToNs(device::DeviceClock::time_point time) {
  return static_cast<std::uint64_t>(
      std::max<std::int64_t>(0, std::chrono::nanoseconds(time.time_since_epoch()).count()));
}

}  // namespace

Submitter::Submitter(device::Device& device, scheduler::DeviceLane& lane,
                     const ClientRegistry& registry, Requests& requests, KernelLimiter& limiter,
                     Tracer& tracer, Turns& turns, scheduler::Duration slice,
                     const HashSeed& secret)
    : device_(device),
      lane_(lane),
      registry_(registry),
      requests_(requests),
      limiter_(limiter),
      tracer_(tracer),
      turns_(turns),
      slice_(slice),
      can_stop_launches_(device.info().preemption == device::Preemption::kWithinCommand),
      has_forms_(device.info().stopping_costs),
      costs_(secret) {}

// The policy determines how long a turn lasts.
scheduler::Duration Submitter::Predict(const CommandSlot& command) const {
  return command.kind == CommandKind::kTurn ? slice_ : costs_.Predict(command);
}

// ---- in the lane

void Submitter::Offer(ClientState& client, std::uint32_t slot, scheduler::TimePoint now) {
  CommandSlot& command = client.streams.slab()[slot];
  std::uint32_t& distrusted_launches = of_client_[client].distrusted_launches;
  if (distrusted_launches > 0 && command.kind == CommandKind::kLaunch) --distrusted_launches;
  // A command that has begun keeps its form.
  const bool has_begun = command.past() == CommandSlot::Past::kStopped;
  if (!has_begun) command.runs_stoppable_form = false;
  scheduler::Duration predicted = Predict(command);
  const bool is_stoppable = IsWorthStopping(client, command, predicted);
  if (has_forms_ && command.kind == CommandKind::kLaunch && !has_begun) {
    command.has_slow_form = !is_stoppable && ShouldBePreemptible(client, command, predicted) &&
                            costs_.GetForms(command).is_stoppable_slow();
    if (command.has_slow_form && !limiter_.HasRecordedNonpreemptible(command)) [[unlikely]]
      RecordSlowForm(client, command);
    if (is_stoppable) {
      command.runs_stoppable_form = true;
      predicted = Predict(command);
    }
  }
  if (auto* const launch = std::get_if<device::LaunchWork>(&command.work)) {
    launch->may_be_stopped = is_stoppable;
    launch->may_be_paused = true;
  }
  if (auto* const graph = std::get_if<device::GraphWork>(&command.work)) {
    graph->may_be_paused = true;
  }
  if (is_stoppable) client.streams[command.stream].Hold(slot);
  command.Offer(WorkName::Make(client.index(), slot, next_serial_++), predicted, is_stoppable);
  client.load.Queue();
  if (client.load.on_device() == 0) requests_.OnOffersChanged(client, now);
  lane_.Enqueue(client.id(),
                {.command = command.name(),
                 .predicted = predicted,
                 .stoppable = is_stoppable,
                 .stream = command.stream,
                 .stops_late = !is_stoppable && CanStopLate(client, command)},
                now);
}

void Submitter::OfferRest(ClientState& client, std::uint32_t slot, scheduler::TimePoint now) {
  CommandSlot& command = client.streams.slab()[slot];
  StreamState& state = client.streams[command.stream];
  if (state.holding == kNoSlot) state.Hold(slot);
  command.OfferRest();
  client.load.Queue();
  requests_.OnOffersChanged(client, now);
  lane_.EnqueueFront(
      client.id(), {command.name(), Predict(command), command.is_stoppable(), command.stream}, now);
}

void Submitter::QueueRest(ClientState& client, std::uint32_t slot) {
  CommandSlot& command = client.streams.slab()[slot];
  StreamState& state = client.streams[command.stream];
  state.Release(slot);
  command.QueueRest();
  // Other commands that were preempted together with this one may already be queued.
  const CommandSlab& slab = client.streams.slab();
  state.next = state.front;
  while (slab[state.next].state() != CommandState::kQueued) state.next = slab[state.next].next;
}

bool Submitter::CanStopLate(const ClientState& client, const CommandSlot& command) const {
  if (has_forms_ || client.spec().scheduling_class == scheduler::SchedulingClass::kHigh) {
    return false;
  }
  // A graph can be preempted between two nodes.
  if (command.kind == CommandKind::kGraph) return true;
  if (command.kind != CommandKind::kLaunch) return true;
  return can_stop_launches_ &&
         device_.CanStop(std::get<device::LaunchWork>(command.work), kWorthStopping);
}

bool Submitter::ShouldBePreemptible(const ClientState& client, const CommandSlot& command,
                                    scheduler::Duration predicted) const {
  if (command.kind == CommandKind::kTurn) return client.gate.waits();
  if (client.spec().scheduling_class == scheduler::SchedulingClass::kHigh) return false;
  if (command.kind == CommandKind::kGraph) return false;
  if (predicted < kWorthStopping && of_client_[client].distrusted_launches == 0) return false;
  if (command.kind != CommandKind::kLaunch) return true;
  return can_stop_launches_ && of_client_[client].must_be_preemptible;
}

bool Submitter::IsWorthStopping(const ClientState& client, const CommandSlot& command,
                                scheduler::Duration predicted) {
  if (!ShouldBePreemptible(client, command, predicted)) return false;
  if (command.kind != CommandKind::kLaunch) return true;
  const bool is_trusted = of_client_[client].distrusted_launches == 0;
  if (has_forms_ && is_trusted && command.past() != CommandSlot::Past::kStopped) {
    const CostModel::Forms forms = costs_.GetForms(command);
    if (forms.is_stoppable_slow()) return false;
    if (forms.lacks_original() && TriesOriginal(client, command, predicted)) return false;
  }
  return device_.CanStop(std::get<device::LaunchWork>(command.work),
                         is_trusted ? predicted : std::max(predicted, slice_));
}

void Submitter::ReviewTrust(ClientState& client, const CommandSlot& command,
                            scheduler::TimePoint now) {
  if (!has_forms_ || command.kind != CommandKind::kLaunch || command.is_stoppable() ||
      command.submission().counts_as_high || command.timing == Timing::kUnknown) {
    return;
  }
  // Uses the device's own times, because other work may have prolonged the charged time.
  if (command.measured < std::max(slice_, kFarLonger * command.predicted())) return;
  OfClient& mine = of_client_[client];
  mine.distrusted_launches = std::max(mine.distrusted_launches, mine.next_distrust);
  mine.next_distrust = std::min(2 * mine.next_distrust, kDistrustMax);
  Review(client, now);
}

// Called when the original form has run too seldom to be compared, because a more urgent client was
// always connected. Runs one launch in kSampleEvery in that form if no other client has work at
// that moment.
bool Submitter::TriesOriginal(const ClientState& client, const CommandSlot& command,
                              scheduler::Duration predicted) const {
  if (!costs_.IsSampled(client.setup.session, command.sequence) || predicted > slice_) return false;
  return std::ranges::all_of(registry_.present(), [&](const ClientState* other) {
    return other == &client || (other->load.queued() == 0 && other->load.on_device() == 0);
  });
}

void Submitter::RecordSlowForm(const ClientState& client, const CommandSlot& command) {
  const CostModel::Forms forms = costs_.GetForms(command);
  using Us = std::chrono::duration<double, std::micro>;
  limiter_.RecordNonpreemptible(
      client, command,
      fmt::format("is no longer preempted: its preemptible form takes {:.0f} us, its original form "
                  "{:.0f} us, and at most {:.2f} times that is allowed",
                  Us(forms.stoppable.median).count(), Us(forms.original.median).count(),
                  static_cast<double>(CostModel::kFormPermilleMax) / 1000.0));
}

bool Submitter::MayFollow(const ClientState& client, const StreamState& state) {
  // At most one turn of a client is on the device at a time, however many the client requests,
  // because the device thread polls each of them.
  if (client.streams.slab()[state.next].kind == CommandKind::kTurn) {
    return state.next == state.front;
  }
  if (state.outlived > 0) return false;
  if (state.holding == kNoSlot) return true;
  if (!has_forms_ || state.chained != kNoSlot) return false;
  const CommandSlab& slab = client.streams.slab();
  const CommandSlot& ahead = slab[state.holding];
  const CommandSlot& next = slab[state.next];
  if (ahead.kind != CommandKind::kLaunch || next.kind != CommandKind::kLaunch) return false;
  if (ahead.state() == CommandState::kOnDevice && ahead.submission().stop_asked) return false;
  return next.failure == nullptr && IsWorthStopping(client, next, Predict(next));
}

bool Submitter::MustBePreemptible(const ClientState& client) const {
  if (!has_forms_ || lane_.IsCapped(client.id())) return true;
  return std::ranges::any_of(registry_.present(), [&](const ClientState* other) {
    return other != &client && !other->life.is_leaving() &&
           lane_.IsPreemptibleBy(client.spec(), other->spec());
  });
}

void Submitter::ReviewPreemptibility(scheduler::TimePoint now) {
  for (ClientState* const client : registry_.present()) {
    if (client->life.is_leaving()) continue;
    bool& must_be_preemptible = of_client_[*client].must_be_preemptible;
    const bool was_preemptible = std::exchange(must_be_preemptible, MustBePreemptible(*client));
    if (must_be_preemptible && !was_preemptible) Review(*client, now);
    if (client->setup.is_gated) SetGate(*client);
  }
}

void Submitter::SetGate(ClientState& client) const {
  const scheduler::LaneRules& rules = lane_.rules();
  bool is_alone = true, is_urgent_connected = false;
  for (const ClientState* const other : registry_.present()) {
    if (other == &client || other->life.is_leaving()) continue;
    is_alone = false;
    is_urgent_connected |= rules.IsUrgent(other->spec());
  }
  const scheduler::Duration window = lane_.options().window;
  client.gate.SetTerms(
      is_alone              ? scheduler::Duration::zero()
      : is_urgent_connected ? std::min(window, kUrgentWindow)
                            : window,
      !rules.classes_matter || client.spec().scheduling_class != scheduler::SchedulingClass::kHigh);
}

void Submitter::Review(ClientState& client, scheduler::TimePoint now) {
  using Place = std::pair<std::uint64_t, std::uint32_t>;  // Sequence, first node.
  constexpr std::uint64_t kNone = std::numeric_limits<std::uint64_t>::max();
  std::array<Place, ipc::kStreamsMax> taken_back_from;  // By stream.
  taken_back_from.fill({kNone, 0});
  const CommandSlab& slab = client.streams.slab();
  for (std::uint32_t stream = 0; stream < ipc::kStreamsMax; ++stream) {
    StreamState& state = client.streams[stream];
    for (std::uint32_t slot = state.front; slot != state.next; slot = slab[slot].next) {
      const CommandSlot& command = slab[slot];
      if (command.state() != CommandState::kOffered || command.is_stoppable()) continue;
      if (!IsWorthStopping(client, command, command.predicted()) &&
          !IsWorthCutting(client, command)) {
        continue;
      }
      taken_back_from[stream] = {command.sequence, command.first_node};
      state.next = slot;
      client.streams.MarkToSettle(stream);
      break;
    }
  }
  TakeBack(client, lane_.Drop(
                       client.id(),
                       [&](std::uint64_t name) {
                         const CommandSlot& command = slab[WorkName::Slot(name)];
                         return Place(command.sequence, command.first_node) >=
                                taken_back_from[command.stream];
                       },
                       now));
}

void Submitter::TakeAllBack(ClientState& client, scheduler::TimePoint now) {
  const CommandSlab& slab = client.streams.slab();
  for (std::uint32_t stream = 0; stream < ipc::kStreamsMax; ++stream) {
    StreamState& state = client.streams[stream];
    std::uint32_t slot = state.front;
    while (slot != state.next && slab[slot].state() != CommandState::kOffered) {
      slot = slab[slot].next;
    }
    state.next = slot;
  }
  TakeBack(client, lane_.Drop(
                       client.id(), [](std::uint64_t) { return true; }, now));
  requests_.OnOffersChanged(client, now);
}

void Submitter::Withdraw(ClientState& client, std::uint32_t stream, scheduler::TimePoint now) {
  const StreamState& state = client.streams[stream];
  const CommandSlab& slab = client.streams.slab();
  bool has_offered = false;
  for (std::uint32_t slot = state.front; slot != state.next; slot = slab[slot].next) {
    has_offered |= slab[slot].state() == CommandState::kOffered;
    if (slab[slot].state() == CommandState::kOnDevice) RequestStop(slab[slot].name());
  }
  // Drop is called only if needed, because it examines the client's queued commands on all of its
  // streams.
  if (has_offered) {
    const auto is_of_stream = [&](std::uint64_t name) {
      return slab[WorkName::Slot(name)].stream == stream;
    };
    TakeBack(client, lane_.Drop(client.id(), is_of_stream, now));
  }
  requests_.OnOffersChanged(client, now);
}

void Submitter::TakeBack(ClientState& client, std::span<const std::uint64_t> names) {
  for (const std::uint64_t name : names) {
    CommandSlot& command = client.streams.slab()[WorkName::Slot(name)];
    StreamState& state = client.streams[command.stream];
    state.Release(WorkName::Slot(name));
    command.TakeBack();
  }
  client.load.TakeBack(static_cast<std::uint32_t>(names.size()));
}

// ---- to the device

void Submitter::RecordHostSteal(scheduler::TimePoint now) {
  using Clock = device::DeviceClock;
  const Clock::time_point at(std::chrono::duration_cast<Clock::duration>(now.time_since_epoch()));
  const scheduler::Duration total = device_.HostStealUntil(at);
  lane_.SetHostSteal(total);
  limiter_.SetHostSteal(total, now);
}

void Submitter::Dispatch(scheduler::TimePoint now) {
  while (const std::optional<scheduler::Action> action = lane_.Next(now)) {
    switch (action->kind) {
      case scheduler::Action::Kind::kStop:
        AskToStop(action->command, now);
        break;
      case scheduler::Action::Kind::kOutlived:
        HoldOutlived(action->command, now);
        break;
      case scheduler::Action::Kind::kSubmit:
        Submit(*action, now);
        break;
    }
  }
}

void Submitter::HoldOutlived(device::WorkId name, scheduler::TimePoint now) {
  ClientState* const client = registry_.OnDevice(name);
  Check(client != nullptr, "a command that outlives its prediction is on the device");
  CommandSlab& slab = client->streams.slab();
  const std::uint32_t stream = slab[WorkName::Slot(name)].stream;
  StreamState& state = client->streams[stream];
  std::uint32_t first = kNoSlot, first_behind = kNoSlot;
  for (std::uint32_t slot = state.front; slot != state.next; slot = slab[slot].next) {
    CommandSlot& command = slab[slot];
    if (command.state() == CommandState::kOffered && first_behind == kNoSlot) first_behind = slot;
    if (command.state() != CommandState::kOnDevice) continue;
    if (first == kNoSlot) first = slot;
    if (!command.submission().has_outlived) ++state.outlived;
    command.BecomeStoppable();
  }
  if (first_behind != kNoSlot) {
    const auto is_of_stream = [&](std::uint64_t each) {
      return slab[WorkName::Slot(each)].stream == stream;
    };
    TakeBack(*client, lane_.Drop(client->id(), is_of_stream, now));
    state.next = first_behind;
    requests_.OnOffersChanged(*client, now);
  }
  state.holding = first;
}

void Submitter::AskToStop(device::WorkId name, scheduler::TimePoint now) {
  if (ClientState* const client = registry_.OnDevice(name)) {
    CommandSlot& command = client->streams.slab()[WorkName::Slot(name)];
    command.AskToStop(IsAlone(command.submission()), now);
  }
  RequestStop(name);
}

void Submitter::Submit(const scheduler::Action& action, scheduler::TimePoint now) {
  ClientState* const client = registry_.Of(action.command);
  Check(client != nullptr, "the lane submits for connected clients");
  CommandSlot& command = client->streams.slab()[WorkName::Slot(action.command)];
  Check(command.name() == action.command, "the lane submits commands that were offered");
  CountSubmission(*client, command, now);
  if (command.kind == CommandKind::kTurn) return turns_.Begin(*client, command, now);
  // No access set is passed if all of the client's memory is resident, because the device then has
  // nothing to check.
  const device::Reach* const reach = client->memory.is_by_page() ? command.reach() : nullptr;
  std::visit(
      [&](auto& work) {
        if constexpr (requires { work.reach; }) work.reach = reach;
        work.id = command.name();
        work.space = client->setup.space;
        work.stream = client->GetKey(command.stream);
        work.of_class = static_cast<std::uint8_t>(client->spec().scheduling_class);
        work.priority = action.priority;
        work.first_unit = command.units_done;
        work.wants_times = costs_.WantsSample(client->setup.session, command);
        limiter_.OnSubmitted(*client, command, action.priority, now);
        if constexpr (std::is_same_v<std::decay_t<decltype(work)>, device::GraphWork>) {
          device_.SubmitGraph(work);
        } else {
          device_.Submit(work);
        }
        // The device now owns the paused units.
        if constexpr (requires { work.paused; }) work.paused.reset();
      },
      command.work);
}

void Submitter::CountSubmission(ClientState& client, CommandSlot& command,
                                scheduler::TimePoint now) {
  using OtherWork = Submission::OtherWork;
  if (command.past() == CommandSlot::Past::kNew) {
    const auto waited =
        static_cast<std::uint64_t>(std::max<std::int64_t>(0, (now - command.taken).count()));
    client.counters.queue_wait.Add(waited);
    client.totals.of_class().queue_wait.Add(waited);
  }
  OfClient& mine = of_client_[client];
  const bool found_idle = streams_on_device_ == 0;
  const bool is_only_one = client.load.Submit();
  if (is_only_one) ++clients_on_device_;
  if (clients_on_device_ > 1) ++client_overlaps_;
  if (mine.on_device_of_stream[command.stream]++ == 0) ++streams_on_device_;
  if (streams_on_device_ > 1) ++overlaps_;
  command.Submit(
      {.at = now,
       .other_work = found_idle                ? OtherWork::kNone
                     : streams_on_device_ == 1 ? OtherWork::kOwnStream
                                               : OtherWork::kOtherStreams,
       .shares_device = clients_on_device_ > 1,
       .counts_as_high = client.spec().scheduling_class == scheduler::SchedulingClass::kHigh,
       .overlaps = overlaps_,
       .client_overlaps = client_overlaps_,
       .stop_asked = {}});
  if (command.submission().counts_as_high && high_on_device_++ == 0) high_since_ = now;
  if (mine.running == 0) NameRunning(client, command);
  if (is_only_one) requests_.OnOffersChanged(client, now);
}

void Submitter::NameRunning(ClientState& client, const CommandSlot& command) {
  using Kind = RunningWork::Kind;
  of_client_[client].running = command.name();
  if (command.kind == CommandKind::kLaunch) {
    const auto& launch = std::get<device::LaunchWork>(command.work);
    client.running.Set(
        {.kind = Kind::kKernel, .module = command.modules[0], .number = launch.kernel});
  } else if (command.kind == CommandKind::kGraph) {
    client.running.Set({.kind = Kind::kGraph, .number = command.graph->number()});
  } else {
    client.running.Set({.kind = Kind::kUnnamed});
  }
}

// Work on other streams is not considered, because it is unknown which of these streams has the
// oldest work. Such work stays unnamed until the next submission.
void Submitter::NameNextRunning(ClientState& client, const CommandSlot& left) {
  const CommandSlab& slab = client.streams.slab();
  if (left.next != kNoSlot && slab[left.next].state() == CommandState::kOnDevice) {
    return NameRunning(client, slab[left.next]);
  }
  of_client_[client].running = 0;
  client.running.Set({.kind = client.load.on_device() == 0 ? RunningWork::Kind::kNothing
                                                           : RunningWork::Kind::kUnnamed});
}

void Submitter::CountRunning(scheduler::TimePoint now) {
  RecordHostSteal(now);
  lane_.ForEachHeld(now, [&](device::WorkId name, scheduler::Duration held) {
    ClientState* const client = registry_.OnDevice(name);
    if (client == nullptr) return;
    CountDeviceTime(*client, client->streams.slab()[WorkName::Slot(name)], held);
  });
}

void Submitter::CountDeviceTime(ClientState& client, CommandSlot& command,
                                scheduler::Duration held) {
  // Host steal that is detected late reduces `held`, so `held` may be less than what was counted.
  const scheduler::Duration more = std::max(held - command.counted, scheduler::Duration::zero());
  command.counted += more;
  client.counters.device_time += more;
  client.totals.AddDeviceTime(more);
}

// ---- off the device

bool Submitter::TakeOff(ClientState& client, CommandSlot& command,
                        const device::Completion& completion, scheduler::TimePoint now) {
  const Submission& submission = command.submission();
  const scheduler::Duration charged = lane_.OnCompleted(completion.id, now).held;
  const trace::ExecutionRecord& record = requests_.OnExecuted(
      client, [&] { return GetRecord(client, command, completion, charged, now); });
  CountDeviceTime(client, command, record.charged);
  command.counted = {};
  command.charged += record.charged;
  ClientCounters& count = client.counters;
  if (command.kind == CommandKind::kTurn) {
    const std::uint64_t launches = completion.units_done - command.units_done;
    count.launches += launches;
    client.totals.of_class().launches.Add(launches);
  } else if (record.charged > slice_ && registry_.present().size() > 1) {
    ++count.event_overruns;
  }
  if (record.cut == trace::Cut::kStopped) {
    const scheduler::Duration took = record.ended - record.stop_asked;
    count.stop_time += took;
    client.totals.of_class().stop_time.Add(took);
  }
  const bool got_on = completion.units_done > command.units_done || completion.paused != nullptr;
  if ((record.was_stopped && !got_on) || !completion.status.ok()) {
    count.wasted += record.charged;
    client.totals.of_class().wasted_ns.Add(record.charged);
  }
  if (submission.has_outlived) --client.streams[command.stream].outlived;
  if (high_on_device_ > 0 && !submission.counts_as_high)
    RecordNonpreemptible(client, command, record);
  limiter_.OnLeft(client, command, now);
  OfClient& mine = of_client_[client];
  if (--mine.on_device_of_stream[command.stream] == 0) --streams_on_device_;
  if (submission.counts_as_high) --high_on_device_;
  const bool was_only_one = client.load.Leave();
  if (was_only_one) --clients_on_device_;
  if (mine.running == command.name()) NameNextRunning(client, command);
  if (was_only_one) requests_.OnOffersChanged(client, now);
  if (tracer_.is_on()) [[unlikely]] {
    const std::uint64_t request = requests_.OpenNumber(client, command.stream);
    tracer_.OnLeft(client, command, completion, record, request, lane_.uncharged());
  }
  Measure(command, completion);
  return record.was_stopped;
}

void Submitter::RecordNonpreemptible(ClientState& client, const CommandSlot& command,
                                     const trace::ExecutionRecord& record) const {
  using trace::Cut;
  if (record.cut != Cut::kDeviceCannot && record.cut != Cut::kTooShort &&
      record.cut != Cut::kRanAsItIs && record.cut != Cut::kSlowForm) {
    return;
  }
  const scheduler::Duration alongside = record.ended - std::max(record.started, high_since_);
  ClientCounters& count = client.counters;
  count.nonpreemptible += std::max(alongside, scheduler::Duration::zero());
  const auto* const launch = std::get_if<device::LaunchWork>(&command.work);
  if (launch == nullptr || alongside <= count.nonpreemptible_longest) return;
  count.nonpreemptible_longest = alongside;
  count.nonpreemptible_cut = record.cut;
  count.nonpreemptible_kernel = device::ShownName(launch->module->kernels()[launch->kernel].name);
}

trace::ExecutionRecord Submitter::GetRecord(const ClientState& client, const CommandSlot& command,
                                            const device::Completion& completion,
                                            scheduler::Duration charged,
                                            scheduler::TimePoint now) const {
  using trace::Cut;
  const bool is_launch = command.kind == CommandKind::kLaunch;
  const Submission& submission = command.submission();
  trace::ExecutionRecord record{
      .session = client.setup.session,
      .submitted = submission.at,
      .started = std::clamp(ToTimePoint(completion.started), submission.at, now),
      .ended = now,
      .charged = charged,
      .predicted = command.predicted(),
      .work = ToWork(command.kind)};
  // A command that is to be killed does not continue, even if it was preempted before.
  record.was_stopped = completion.stopped && completion.status.ok() &&
                       (completion.units_done < command.units || completion.paused != nullptr) &&
                       command.failure == nullptr;
  if (command.graph != nullptr) {
    record.graph = command.graph->number();
    record.graph_serial = command.graph->serial();
    record.first_node = command.first_node;
    record.end_node = command.end_node;
  }
  if (is_launch) {
    record.module = command.modules[0];
    record.module_serial = client.scope.module(command.modules[0]).serial;
    record.kernel = std::get<device::LaunchWork>(command.work).kernel;
  }
  if (command.kind == CommandKind::kTurn) {
    record.kernel = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(completion.units_done - command.units_done, UINT32_MAX));
  }
  if (submission.stop_asked) {
    record.cut = Cut::kStopped;
    record.stop_asked = *submission.stop_asked;
  } else if (submission.counts_as_high) {
    record.cut = Cut::kHighClass;
  } else if (command.kind == CommandKind::kGraph) {
    record.cut = command.predicted() <= kWorthStopping ? Cut::kTooShort : Cut::kRanAsItIs;
  } else if (is_launch && !can_stop_launches_) {
    record.cut = Cut::kDeviceCannot;
  } else if (!command.is_stoppable()) {
    record.cut = command.predicted() < kWorthStopping ? Cut::kTooShort
                 : command.has_slow_form              ? Cut::kSlowForm
                                                      : Cut::kRanAsItIs;
  }
  return record;
}

void Submitter::Measure(CommandSlot& command, const device::Completion& completion) const {
  command.measured += std::max(scheduler::Duration(completion.ended - completion.started),
                               scheduler::Duration::zero());
  if (command.started_ns == 0) command.started_ns = ToNs(completion.started);
  command.ended_ns = ToNs(completion.ended);
  // While the command leaves, the work for which it was preempted may overlap with it, but only for
  // the time of one block or piece.
  const Submission& submission = command.submission();
  const bool had_device_alone =
      IsAlone(submission) || (completion.stopped && submission.was_alone_at_stop);
  const Timing timing = !completion.times_are_exact ? Timing::kUnknown
                        : had_device_alone          ? Timing::kSample
                                                    : Timing::kBound;
  command.timing = std::max(command.timing, timing);
  command.is_among_own = command.is_among_own && IsAmongOwn(submission);
}

void Submitter::Learn(const CommandSlot& command, scheduler::TimePoint now) {
  if (command.timing == Timing::kUnknown) return;
  if (command.kind == CommandKind::kGraph) return LearnGraph(command);
  // A launch that ran in parts has additional starts and ends, which would make its form look slow.
  const bool has_parts =
      command.runs_stoppable_form && command.past() == CommandSlot::Past::kStopped;
  if (command.timing == Timing::kBound || has_parts) {
    return costs_.AddBound(command, command.measured);
  }
  costs_.AddSample(command, command.measured);
  const Submission& submission = command.submission();
  if (submission.other_work != Submission::OtherWork::kNone ||
      command.past() == CommandSlot::Past::kStopped || command.kind != CommandKind::kLaunch) {
    return;
  }
  costs_.AddLaunchBubble(
      std::max(now - submission.at - command.measured, scheduler::Duration::zero()));
  if (const auto launch_bubble = costs_.LaunchBubble()) lane_.SetLaunchBubble(*launch_bubble);
}

}  // namespace gpushared::server
