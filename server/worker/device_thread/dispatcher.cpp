// SPDX-License-Identifier: Apache-2.0
#include "server/worker/device_thread/dispatcher.h"

#include <fmt/format.h>

#include <algorithm>
#include <bitset>
#include <limits>
#include <utility>

#include "gpushared/check.h"

#include "ipc/wire/completion.h"

namespace gpushared::server {

namespace {

constexpr std::size_t kCompletionsPerCall = 64;
constexpr std::size_t kSuspectsNamedMax = 8;

std::uint64_t NsOf(device::DeviceClock::time_point time) {
  return static_cast<std::uint64_t>(
      std::max<std::int64_t>(0, std::chrono::nanoseconds(time.time_since_epoch()).count()));
}

}  // namespace

Dispatcher::Dispatcher(device::Device& device, std::unique_ptr<scheduler::Policy> policy,
                       const DispatcherOptions& options)
    : device_(device),
      options_(options),
      can_stop_launches_(device.info().preemption == device::Preemption::kWithinCommand),
      can_stop_copies_(device.info().copy_preemption == device::Preemption::kWithinCommand),
      lane_(std::move(policy), options.lane),
      has_kernel_limits_(std::ranges::any_of(options.kernel_limits,
                                             [](const auto& limit) { return limit.has_value(); })),
      meter_(lane_.rules().classes_matter),
      completions_(kCompletionsPerCall) {
  present_.reserve(kSessionsLimit);
  dirty_.reserve(kSessionsLimit);
  unsettled_.reserve(kSessionsLimit);
  asleep_.reserve(kSessionsLimit);
}

// ---- clients

ClientState& Dispatcher::AddClient(std::unique_ptr<ClientState> client, scheduler::TimePoint now) {
  const auto place = std::find(table_.begin(), table_.end(), nullptr);
  Check(place != table_.end(), "sessions are bounded before they reach the device thread");
  client->index = static_cast<std::uint32_t>(place - table_.begin());
  lane_.AddClient(client->id(), client->spec, now);
  meter_.Begin(client->activity, client->spec, now);
  *place = std::move(client);
  present_.push_back(place->get());
  ReviewGivingWay(now);
  return **place;
}

void Dispatcher::ChangeClient(ClientState& client, const scheduler::ClientSpec& spec,
                              scheduler::TimePoint now) {
  if (client.is_leaving) return;
  client.spec = spec;
  lane_.ChangeClient(client.id(), spec, now);
  meter_.OnChanged(client.activity, spec, now);
  NoteRequests(client);
  ReviewGivingWay(now);
  OfferAnew(client, now);  // One that leaves the high class may be stopped from now on.
}

ClientState* Dispatcher::Find(std::uint64_t session) const {
  const auto found = std::find_if(present_.begin(), present_.end(), [&](const ClientState* each) {
    return each->setup.session == session;
  });
  return found == present_.end() ? nullptr : *found;
}

void Dispatcher::RemoveClient(ClientState& client, scheduler::TimePoint now) {
  if (client.is_leaving) return;
  client.is_leaving = true;
  ++leaving_;
  meter_.End(client.activity, now);
  client.barrier.reset();
  for (const std::uint64_t command : lane_.RemoveClient(client.id(), now)) {
    device_.RequestStop(command);
  }
  client.kill_at = now + options_.kill_after;
  NoteRequests(client);
  ReviewGivingWay(now);
  if (client.in_flight == 0) Depart(client);
}

void Dispatcher::KillOverdue(scheduler::TimePoint now) {
  if (leaving_ == 0) return;
  for (ClientState* const client : present_) {
    if (!client->kill_at || client->was_killed || now < *client->kill_at) continue;
    client->was_killed = true;
    for (std::uint32_t slot = 0; slot < client->slab.size(); ++slot) {
      const CommandSlot& command = client->slab[slot];
      if (command.work_id != 0 && command.state == CommandState::kInFlight) {
        device_.RequestKill(command.work_id);
      }
    }
  }
}

void Dispatcher::Depart(ClientState& client) {
  --leaving_;
  std::erase(present_, &client);
  std::erase(dirty_, &client);
  departed_.push_back(std::move(table_[client.index]));
}

std::unique_ptr<ClientState> Dispatcher::TakeDeparted() {
  if (departed_.empty()) return nullptr;
  std::unique_ptr<ClientState> client = std::move(departed_.back());
  departed_.pop_back();
  return client;
}

void Dispatcher::Break(ClientState& client, Status why) {
  if (client.is_broken || client.is_leaving) return;
  client.is_broken = true;
  broken_.push_back({client.setup.session, std::move(why)});
}

void Dispatcher::LetGoOfModule(ClientState& client, std::uint32_t module) {
  ModuleEntry& entry = client.modules[module];
  if (!entry.is_leaving || entry.in_use > 0) return;
  entry = ModuleEntry{};
  released_.push_back({client.setup.session, module});
}

// ---- streams

void Dispatcher::Append(ClientState& client, std::uint32_t slot, scheduler::TimePoint now) {
  const std::uint32_t stream = client.slab[slot].stream;
  const bool begins =
      client.requests.empty() && !client.marks_requests && client.slab[slot].is_device_work();
  if (begins) {
    OpenRequest& request = client.requests.Add(OpenNow(client, OpenRequest::kAllStreams, now, now));
    request.is_told = client.spec.latency_promise.has_value();
    if (request.is_told) lane_.BeginRequest(client.id(), request.mark, now);
    NoteRequests(client);
  }
  StreamQueue(client, stream).Append(slot);
  client.MarkToSettle(stream);
}

void Dispatcher::Settle(ClientState& client, scheduler::TimePoint now) {
  while (client.to_settle_count > 0) {
    const std::uint32_t stream = client.to_settle[--client.to_settle_count];
    client.streams[stream].is_to_settle = false;
    while (client.streams[stream].front != kNoSlot &&
           SettleFront(client, stream, now) == FrontOutcome::kRetired) {
    }
    OfferReady(client, stream, now);
  }
}

Dispatcher::FrontOutcome Dispatcher::SettleFront(ClientState& client, std::uint32_t stream,
                                                 scheduler::TimePoint now) {
  StreamState& state = client.streams[stream];
  CommandSlot& command = client.slab[state.front];
  if (!command.is_device_work()) return SettleHostCommand(client, stream, command, now);
  if (command.state == CommandState::kOffered || command.state == CommandState::kInFlight) {
    return FrontOutcome::kStays;
  }
  if (state.has_failed) {
    ++client.counters.commands_skipped;
  } else if (command.failure != nullptr) {
    FailStream(client, stream, command, std::move(*command.failure), now);
  } else if (command.state == CommandState::kEnded) {
    CountRetired(client, command);
    state.last_time_ns = std::max(state.last_time_ns, command.ended_ns);
  } else {
    return FrontOutcome::kStays;
  }
  Retire(client, stream, now);
  return FrontOutcome::kRetired;
}

Dispatcher::FrontOutcome Dispatcher::SettleHostCommand(ClientState& client, std::uint32_t stream,
                                                       CommandSlot& command,
                                                       scheduler::TimePoint now) {
  StreamState& state = client.streams[stream];
  switch (command.kind) {
    case CommandKind::kWaitFor:
      if (!SettleWait(client, stream, command, now)) return FrontOutcome::kStays;
      break;
    case CommandKind::kMark: {
      ++client.counters.marks;
      --client.completions_reserved;
      // An idle stream reaches its mark when the mark arrives.
      const auto taken = static_cast<std::uint64_t>(command.taken.time_since_epoch().count());
      const std::uint64_t time = state.has_failed ? 0 : std::max(state.last_time_ns, taken);
      WriteRecord(client, ipc::CompletionKind::kMark, command,
                  state.has_failed ? StatusCode::kCancelled : StatusCode::kOk, time, time);
      break;
    }
    case CommandKind::kCreateStream:
      state.error.reset();
      break;
    case CommandKind::kDestroyStream:
      if (command.ends_request) EndRequest(client, stream, now);
      DestroyStream(client, stream, command);
      break;
    case CommandKind::kEndRequest:
      EndRequest(client, stream, now);
      break;
    case CommandKind::kBeginRequest:
    case CommandKind::kExpectRequest:
      break;  // Took effect when it was taken.
    default:
      Check(false, "a device command is not settled as a host command");
  }
  Retire(client, stream, now);
  return FrontOutcome::kRetired;
}

// Whether the wait is over. Later commands may have been offered already, earlier ones have
// all finished.
bool Dispatcher::SettleWait(ClientState& client, std::uint32_t stream, const CommandSlot& command,
                            scheduler::TimePoint now) {
  StreamState& state = client.streams[stream];
  if (state.has_failed) {
    ++client.counters.commands_skipped;
    return true;
  }
  const StreamState& target = client.streams[command.target.stream];
  if (target.finished < command.target.sequence) {
    AddWaiter(client, command.target.stream, stream);
    return false;
  }
  if (target.HasFailed(command.target.sequence)) {
    const Refusal why{.reason = Refusal::Reason::kWaitFailed,
                      .number = command.target.stream,
                      .at = command.target.sequence};
    FailStream(client, stream, command, CommandFailure(why), now);
  } else {
    state.last_time_ns = std::max(state.last_time_ns, target.last_time_ns);
  }
  return true;
}

void Dispatcher::DestroyStream(ClientState& client, std::uint32_t stream,
                               const CommandSlot& command) {
  StreamState& state = client.streams[stream];
  if (state.has_failed) {
    // Waits that name commands of this incarnation may still come.
    state.failed_before = {state.failed.first, command.sequence};
    state.failed = {};
    state.has_failed = false;
  } else {
    --client.completions_reserved;  // Its error record was never needed.
  }
}

void Dispatcher::FailStream(ClientState& client, std::uint32_t stream, const CommandSlot& command,
                            CommandFailure why, scheduler::TimePoint now) {
  StreamState& state = client.streams[stream];
  state.has_failed = true;
  state.failed = {command.sequence, std::numeric_limits<std::uint64_t>::max()};
  const StatusCode code = why.code;
  state.error = std::make_unique<CommandFailure>(std::move(why));
  state.error_sequence = command.sequence;
  --client.completions_reserved;
  WriteRecord(client, ipc::CompletionKind::kError, command, code, command.started_ns,
              command.ended_ns);

  // Commands offered already must not run any more.
  bool has_offered = false;
  for (std::uint32_t slot = state.front; slot != state.next; slot = client.slab[slot].next) {
    const CommandSlot& queued = client.slab[slot];
    has_offered |= queued.state == CommandState::kOffered;
    if (queued.state == CommandState::kInFlight) device_.RequestStop(queued.work_id);
  }
  // Looks at all that the client has queued, on all its streams.
  if (has_offered) DropOffered(client, stream, now);
  NotePhase(client, now);
}

void Dispatcher::DropOffered(ClientState& client, std::uint32_t stream, scheduler::TimePoint now) {
  lane_.Drop(
      client.id(),
      [&](std::uint64_t name) {
        CommandSlot& queued = client.slab[WorkName::Slot(name)];
        if (queued.stream != stream) return false;
        queued.state = CommandState::kQueued;
        --client.offered;
        return true;
      },
      now);
}

void Dispatcher::WriteRecord(ClientState& client, ipc::CompletionKind kind,
                             const CommandSlot& command, StatusCode code, std::uint64_t started_ns,
                             std::uint64_t ended_ns) {
  ipc::CompletionRecord record;
  record.header.op = static_cast<std::uint8_t>(kind);
  record.header.sequence = command.sequence;
  record.stream = command.stream;
  record.code = static_cast<std::uint32_t>(code);
  record.started_ns = started_ns;
  record.ended_ns = ended_ns;
  MarkDirty(client);
  // Room was reserved when the command was taken, so only a lie about credit gets here.
  if (client.completion_writer.TryWrite(record) != ipc::WriteResult::kWritten) {
    Break(client, Status(StatusCode::kProtocolViolation,
                         fmt::format("session ended: the number of completions taken is beyond "
                                     "what was written [{}]",
                                     client.setup.who)));
  }
}

void Dispatcher::CountRetired(ClientState& client, const CommandSlot& command) {
  ClientCounters& count = client.counters;
  switch (command.kind) {
    case CommandKind::kLaunch:
      ++count.launches;
      break;
    case CommandKind::kCopyToDevice:
      ++count.copies;
      count.bytes_in += command.bytes;
      break;
    case CommandKind::kCopyToHost:
      ++count.copies;
      count.bytes_out += command.bytes;
      break;
    case CommandKind::kCopyOnDevice:
      ++count.copies;
      count.bytes_on_device += command.bytes;
      break;
    default:
      ++count.fills;
      count.bytes_on_device += command.bytes;
      break;
  }
}

void Dispatcher::Retire(ClientState& client, std::uint32_t stream, scheduler::TimePoint now) {
  StreamState& state = client.streams[stream];
  const std::uint32_t slot = StreamQueue(client, stream).PopFront();
  CommandSlot& command = client.slab[slot];
  if (state.holding == slot) state.holding = kNoSlot;
  state.finished = command.sequence;
  if (command.names_module) {
    ModuleEntry& module = client.modules[command.module];
    --module.in_use;
    if (module.is_leaving) [[unlikely]]
      LetGoOfModule(client, command.module);
  }
  if (command.epoch != client.epoch) --client.barrier_waits_for;
  client.slab.Free(slot);
  if (client.slab.used() == 0 && !client.is_leaving) {
    EndRequest(client, OpenRequest::kAllStreams, now);
  }
  ++commands_;
  client.MarkToPublish(stream);
  MarkDirty(client);
  if (state.first_waiter != kNoStream) WakeWaiters(client, stream);
}

void Dispatcher::OfferReady(ClientState& client, std::uint32_t stream, scheduler::TimePoint now) {
  StreamState& state = client.streams[stream];
  StreamQueue queue(client, stream);
  while (state.next != kNoSlot && !state.has_failed && state.holding == kNoSlot) {
    CommandSlot& command = client.slab[state.next];
    if (command.failure != nullptr) return;  // Fails the stream when it is at the front.
    if (command.is_device_work()) {
      if (command.state == CommandState::kQueued) Offer(client, state.next, now);
    } else if (command.kind == CommandKind::kWaitFor) {
      const StreamState& target = client.streams[command.target.stream];
      if (target.finished < command.target.sequence) {
        AddWaiter(client, command.target.stream, stream);
        return;
      }
      if (target.HasFailed(command.target.sequence)) return;
    } else if (command.kind == CommandKind::kDestroyStream) {
      return;  // The rest belongs to another incarnation, which an error must not reach.
    }
    queue.PassNext();
  }
}

void Dispatcher::Offer(ClientState& client, std::uint32_t slot, scheduler::TimePoint now) {
  CommandSlot& command = client.slab[slot];
  command.predicted = costs_.Predict(command);
  const bool stoppable = IsWorthStopping(client, command);
  if (auto* const launch = std::get_if<device::LaunchWork>(&command.work)) {
    launch->may_be_stopped = stoppable;
  }
  if (stoppable) client.streams[command.stream].holding = slot;
  command.is_stoppable = stoppable;
  command.work_id = WorkName::Make(client.index, slot, next_serial_++);
  command.state = CommandState::kOffered;
  ++client.offered;
  NotePhase(client, now);
  lane_.Enqueue(client.id(), {command.work_id, command.predicted, stoppable, command.stream}, now);
}

bool Dispatcher::IsWorthStopping(const ClientState& client, const CommandSlot& command) {
  if (client.spec.scheduling_class == scheduler::SchedulingClass::kHigh) return false;
  if (command.predicted < kWorthStopping) return false;
  if (command.kind != CommandKind::kLaunch) return can_stop_copies_;
  if (!can_stop_launches_ || !client.must_give_way) return false;
  return device_.CanStop(std::get<device::LaunchWork>(command.work), command.predicted);
}

bool Dispatcher::MustGiveWay(const ClientState& client) const {
  if (!device_.info().stopping_costs) return true;
  return std::ranges::any_of(present_, [&](const ClientState* other) {
    return other != &client && !other->is_leaving && lane_.GivesWay(client.spec, other->spec);
  });
}

void Dispatcher::ReviewGivingWay(scheduler::TimePoint now) {
  for (ClientState* const client : present_) {
    if (client->is_leaving) continue;
    const bool is_new = !std::exchange(client->must_give_way, MustGiveWay(*client));
    if (is_new && client->must_give_way) OfferAnew(*client, now);
  }
}

void Dispatcher::OfferAnew(ClientState& client, scheduler::TimePoint now) {
  std::bitset<ipc::kStreamsMax> taken_back;
  lane_.Drop(
      client.id(),
      [&](std::uint64_t name) {
        const std::uint32_t slot = WorkName::Slot(name);
        CommandSlot& queued = client.slab[slot];
        StreamState& state = client.streams[queued.stream];
        if (!taken_back.test(queued.stream)) {
          if (queued.is_stoppable || !IsWorthStopping(client, queued)) return false;
          taken_back.set(queued.stream);
          state.next = slot;
          client.MarkToSettle(queued.stream);
        }
        if (state.holding == slot) state.holding = kNoSlot;
        queued.state = CommandState::kQueued;
        --client.offered;
        return true;
      },
      now);
  Settle(client, now);
}

// ---- the device

void Dispatcher::NoteHostDelay(scheduler::TimePoint now) {
  using Clock = device::DeviceClock;
  const Clock::time_point at(std::chrono::duration_cast<Clock::duration>(now.time_since_epoch()));
  lane_.SetHostDelay(device_.HostDelayUntil(at));
}

void Dispatcher::Dispatch(scheduler::TimePoint now) {
  while (const std::optional<scheduler::Action> action = lane_.Next(now)) {
    if (action->kind == scheduler::Action::Kind::kStop) {
      NoteStop(action->command, now);
      device_.RequestStop(action->command);
    } else {
      Submit(*action, now);
    }
  }
}

void Dispatcher::Submit(const scheduler::Action& action, scheduler::TimePoint now) {
  ClientState* const client = table_[WorkName::Client(action.command)].get();
  Check(client != nullptr, "the lane submits for clients that are here");
  CommandSlot& command = client->slab[WorkName::Slot(action.command)];
  Check(command.work_id == action.command && command.state == CommandState::kOffered,
        "the lane submits commands that were offered");
  CountSubmission(*client, command, now);
  std::visit(
      [&](auto& work) {
        work.id = command.work_id;
        work.space = client->setup.space;
        work.stream = client->KeyOf(command.stream);
        work.of_class = static_cast<std::uint8_t>(client->spec.scheduling_class);
        work.priority = action.priority;
        work.first_unit = command.units_done;
        if (watches()) Watch(*client, command, action.priority, now);
        device_.Submit(work);
      },
      command.work);
}

void Dispatcher::CountSubmission(ClientState& client, CommandSlot& command,
                                 scheduler::TimePoint now) {
  command.state = CommandState::kInFlight;
  command.submitted = now;
  command.stop_asked.reset();
  command.is_alone_at_stop = false;
  --client.offered;
  if (!command.was_started) {
    command.was_started = true;
    client.counters.queue_wait.Add(
        static_cast<std::uint64_t>(std::max<std::int64_t>(0, (now - command.taken).count())));
  }
  ++client.in_flight;
  NotePhase(client, now);
  command.found_idle = streams_in_flight_ == 0;
  if (client.streams[command.stream].in_flight++ == 0) ++streams_in_flight_;
  if (streams_in_flight_ > 1) ++overlaps_;
  command.is_alone = streams_in_flight_ == 1;
  command.overlap = overlaps_;
  command.counts_as_high = client.spec.scheduling_class == scheduler::SchedulingClass::kHigh;
  if (command.counts_as_high) ++high_in_flight_;
}

void Dispatcher::LeaveDevice(ClientState& client, CommandSlot& command) {
  --client.in_flight;
  if (--client.streams[command.stream].in_flight == 0) --streams_in_flight_;
  if (command.counts_as_high) --high_in_flight_;
}

ClientState* Dispatcher::ClientOf(device::WorkId id) const {
  const std::uint32_t index = WorkName::Client(id);
  ClientState* const client = index < table_.size() ? table_[index].get() : nullptr;
  if (client == nullptr || WorkName::Slot(id) >= client->slab.size()) return nullptr;
  const CommandSlot& command = client->slab[WorkName::Slot(id)];
  const bool is_current = command.work_id == id && command.state == CommandState::kInFlight;
  return is_current ? client : nullptr;
}

std::size_t Dispatcher::TakeCompletions(scheduler::TimePoint now) {
  std::size_t taken = 0;
  for (;;) {
    const std::size_t count = device_.TakeCompletions(completions_);
    if (const device::DeviceLoss* const loss = device_.loss(); loss != nullptr && !loss_)
        [[unlikely]] {
      DescribeLoss(*loss);
    }
    NoteHostDelay(now);
    for (std::size_t i = 0; i < count; ++i) OnCompleted(completions_[i], now);
    for (ClientState* const client : unsettled_) Settle(*client, now);
    unsettled_.clear();
    taken += count;
    if (count < completions_.size()) return taken;
  }
}

void Dispatcher::OnCompleted(const device::Completion& completion, scheduler::TimePoint now) {
  ClientState* const client = ClientOf(completion.id);
  if (client == nullptr) return;  // A command completes once; what comes twice is nobody's.
  const std::uint32_t slot = WorkName::Slot(completion.id);
  CommandSlot& command = client->slab[slot];
  const scheduler::Charge charge = lane_.OnCompleted(completion.id, now);
  client->counters.device_time += charge.held;
  if (charge.held > options_.slice && present_.size() > 1) ++client->counters.slice_overruns;
  // Set for what is to end by force, which may have ended in another way before.
  const bool is_forced = command.failure != nullptr;
  const bool is_part = completion.stopped && completion.status.ok() &&
                       completion.units_done < command.units && !is_forced;
  NoteStay(*client, command, charge.held, is_part, now);
  if (command.stop_asked) NoteSlowStop(*client, command, now);
  if ((is_part && completion.units_done <= command.units_done) || !completion.status.ok()) {
    client->counters.wasted += charge.held;
  }
  LeaveDevice(*client, command);
  NotePhase(*client, now);
  if (watches()) command.ran = watch_.OnCompleted(completion.id, now);
  std::erase_if(told_, [&](const Told& told) { return told.id == completion.id; });
  if (client->is_leaving) {
    command.work_id = 0;
    command.state = CommandState::kEnded;
    if (client->in_flight == 0) Depart(*client);
    return;
  }
  Measure(command, completion);
  if (command.started_ns == 0) command.started_ns = NsOf(completion.started);
  command.ended_ns = NsOf(completion.ended);
  if (is_part) {
    command.units_done = std::max(command.units_done, completion.units_done);
    OnStopped(*client, slot, now);
    return;
  }
  command.state = CommandState::kEnded;
  if (is_forced && completion.status.ok() && !completion.stopped) command.failure.reset();
  if (command.failure != nullptr) {
    ++client->counters.commands_failed;
  } else if (!completion.status.ok()) {
    ++client->counters.commands_failed;
    const bool is_lost = loss_ && completion.status.code() == StatusCode::kDeviceLost;
    const Status& why = is_lost ? *loss_ : completion.status;
    command.failure = std::make_unique<CommandFailure>(why.code(), why.message());
  } else if (command.is_timed) {
    Learn(command, now);
  }
  MarkUnsettled(*client, command.stream);
}

void Dispatcher::Measure(CommandSlot& command, const device::Completion& completion) const {
  command.measured += std::max(scheduler::Duration(completion.ended - completion.started),
                               scheduler::Duration::zero());
  command.is_timed &= completion.times_are_exact;
  // What it is stopped for may be beside it while it leaves, which takes a block or a piece.
  const bool is_alone = command.is_alone && command.overlap == overlaps_;
  command.had_device_alone &= is_alone || (completion.stopped && command.is_alone_at_stop);
}

void Dispatcher::Learn(const CommandSlot& command, scheduler::TimePoint now) {
  if (!command.had_device_alone) return costs_.AddBound(command, command.measured);
  costs_.AddSample(command, command.measured);
  if (!command.found_idle || command.was_stopped || command.kind != CommandKind::kLaunch) return;
  costs_.AddTurnaround(
      std::max(now - command.submitted - command.measured, scheduler::Duration::zero()));
  if (const auto turnaround = costs_.Turnaround()) lane_.SetTurnaround(*turnaround);
}

void Dispatcher::DescribeLoss(const device::DeviceLoss& loss) {
  std::string suspects;
  std::size_t named = 0;
  for (const device::DeviceLoss::Suspect& suspect : loss.suspects) {
    const ClientState* const client = ClientOf(suspect.id);
    if (client == nullptr) continue;
    if (++named > kSuspectsNamedMax) continue;
    const CommandSlot& command = client->slab[WorkName::Slot(suspect.id)];
    suspects += fmt::format("{}{} {}", named == 1 ? "" : ", ", suspect.what,
                            client->Who(command.stream, command.sequence));
  }
  if (named > kSuspectsNamedMax) suspects += fmt::format(" and {} more", named - kSuspectsNamedMax);
  const char* const who = named == 0   ? "nothing of any client was running"
                          : named == 1 ? "caused by "
                                       : "caused by one of ";
  loss_ = Status(StatusCode::kDeviceLost,
                 fmt::format("device {} lost with all memory on it: {}; {}{}", device_.info().id,
                             loss.why.message(), who, suspects));
}

void Dispatcher::MarkUnsettled(ClientState& client, std::uint32_t stream) {
  if (client.to_settle_count == 0) unsettled_.push_back(&client);
  client.MarkToSettle(stream);
}

void Dispatcher::OnStopped(ClientState& client, std::uint32_t slot, scheduler::TimePoint now) {
  CommandSlot& command = client.slab[slot];
  ++client.counters.stops;
  command.was_stopped = true;
  if (client.streams[command.stream].has_failed) {
    command.state = CommandState::kEnded;
    MarkUnsettled(client, command.stream);
    return;
  }
  command.state = CommandState::kOffered;
  ++client.offered;
  NotePhase(client, now);
  lane_.EnqueueFront(
      client.id(), {command.work_id, costs_.Predict(command), command.is_stoppable, command.stream},
      now);
}

// ---- what clients see

void Dispatcher::Publish() {
  std::ranges::partition(dirty_, [this](const ClientState* client) { return IsUrgent(*client); });
  for (ClientState* const client : dirty_) {
    client->is_dirty = false;
    for (std::size_t i = 0; i < client->to_publish_count; ++i) {
      StreamState& state = client->streams[client->to_publish[i]];
      state.is_to_publish = false;
      // Release: whoever sees the number sees the results and the completion records of the
      // commands up to it. Pairs with the acquire of a waiting client.
      client->setup.completions->timeline[client->to_publish[i]].store(state.finished,
                                                                       std::memory_order_release);
    }
    client->to_publish_count = 0;
    const ipc::CompletionDoorbell::Rung rung = client->doorbell.Ring();
    if (rung.has_woken) ++wakes_;
    if (rung.left_asleep > 0) [[unlikely]] {
      asleep_.push_back({.futex = client->doorbell.futex(), .count = rung.left_asleep});
    }
  }
  dirty_.clear();
}

std::optional<scheduler::TimePoint> Dispatcher::wake_at() const {
  std::optional<scheduler::TimePoint> at = lane_.wake_at();
  if (const auto over = watch_.wake_at(); over && !loss_ && (!at || *over < *at)) at = over;
  if (!told_.empty() && !loss_ && (!at || told_.front().until < *at)) at = told_.front().until;
  if (leaving_ == 0) return at;
  for (const ClientState* const client : present_) {
    if (!client->kill_at || client->was_killed) continue;
    if (!at || *client->kill_at < *at) at = client->kill_at;
  }
  return at;
}

}  // namespace gpushared::server
