// SPDX-License-Identifier: Apache-2.0
#include "server/worker/dispatch/dispatcher.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <span>
#include <string>
#include <utility>

#include "gpushared/check.h"

#include "ipc/wire/completion.h"
#include "server/worker/dispatch/page_use.h"
#include "server/worker/state/device_loss.h"

namespace gpushared::server {

namespace {

constexpr std::size_t kCompletionsPerCall = 64;

// `work`: a command, or a node of a graph.
template <typename Work>
void CountWork(ClientState& client, const Work& work) {
  ClientCounters& count = client.counters;
  ClassTotals& total = client.totals.of_class();
  const auto add = [&](std::uint64_t& times, Total& times_total, std::uint64_t& bytes,
                       void (ClientTotals::*add_bytes)(std::uint64_t)) {
    ++times;
    times_total.Add(1);
    bytes += work.bytes;
    (client.totals.*add_bytes)(work.bytes);
  };
  switch (work.kind) {
    case CommandKind::kLaunch:
      ++count.launches;
      total.launches.Add(1);
      break;
    case CommandKind::kCopyToDevice:
      return add(count.copies, total.copies, count.bytes_in, &ClientTotals::AddBytesIn);
    case CommandKind::kCopyToHost:
      return add(count.copies, total.copies, count.bytes_out, &ClientTotals::AddBytesOut);
    case CommandKind::kCopyOnDevice:
      return add(count.copies, total.copies, count.bytes_on_device,
                 &ClientTotals::AddBytesOnDevice);
    case CommandKind::kTurn:
      break;  // Submitter::TakeOff has counted its launches.
    default:
      return add(count.fills, total.fills, count.bytes_on_device, &ClientTotals::AddBytesOnDevice);
  }
}

void CountRetired(ClientState& client, const CommandSlot& command) {
  if (command.kind != CommandKind::kGraph) return CountWork(client, command);
  for (std::uint32_t node = command.first_node; node < command.end_node; ++node) {
    CountWork(client, command.graph->node(node));
  }
}

void CountSkipped(ClientState& client) {
  ++client.counters.commands_skipped;
  client.totals.of_class().commands_skipped.Add(1);
}

}  // namespace

Dispatcher::Dispatcher(const Parts& parts, scheduler::Duration kill_after)
    : device_(parts.device),
      totals_(parts.totals),
      kill_after_(kill_after),
      lane_(parts.lane),
      registry_(parts.registry),
      requests_(parts.requests),
      limiter_(parts.limiter),
      staging_watch_(parts.staging_watch),
      submitter_(parts.offers),
      turns_(parts.turns),
      publisher_(parts.publisher),
      completions_(kCompletionsPerCall) {
  unsettled_.reserve(kSessionsLimit);
}

// ---- clients

ClientState& Dispatcher::AddClient(std::unique_ptr<ClientState> client, scheduler::TimePoint now) {
  ClientState& added = registry_.Add(std::move(client));
  const DeviceTotals::Rows rows = totals_rows_.Begin(added) =
      totals_.Enter(added.setup.endpoint, added.setup.owner);
  added.totals = totals_.For(added.spec().scheduling_class, rows);
  if (!added.was_saved) added.totals.AddSession();
  energy_.OnClientAdded(added);
  lane_.AddClient(added.id(), added.spec(), now);
  submitter_.OnClientAdded(added);
  if (added.caps() != ClientCaps{}) LimitClient(added, now);
  requests_.OnClientAdded(added, now);
  submitter_.ReviewPreemptibility(now);
  SettleAll(now);
  return added;
}

void Dispatcher::LimitClient(const ClientState& client, scheduler::TimePoint now) {
  const ClientCaps& caps = client.caps();
  std::array<scheduler::ShareCap, 2> set;
  std::size_t count = 0;
  const auto add = [&](std::uint64_t number, std::uint32_t per_mille) {
    if (per_mille < kSharePerMilleMax) set.at(count++) = {number, per_mille};
  };
  add(client.setup.session, caps.own);
  add(caps.rule_number, caps.rule);
  lane_.LimitClient(client.id(), std::span(set).first(count), now);
}

void Dispatcher::ChangeClient(ClientState& client, const scheduler::ClientSpec& spec,
                              const ClientCaps& caps, scheduler::TimePoint now) {
  if (client.life.is_leaving()) return;
  const bool caps_changed = caps != client.caps();
  const bool is_class_new = spec.scheduling_class != client.spec().scheduling_class;
  client.Change(spec, caps);
  client.totals = totals_.For(spec.scheduling_class, totals_rows_[client]);
  lane_.ChangeClient(client.id(), spec, now);
  if (caps_changed) LimitClient(client, now);
  requests_.OnClientChanged(client, now);
  submitter_.ReviewPreemptibility(now);
  // Commands of a client that leaves the high class become preemptible. A turn on the device does
  // not, so it ends.
  submitter_.Review(client, now);
  if (is_class_new) turns_.End(client);
  SettleAll(now);
}

void Dispatcher::RemoveClient(ClientState& client, scheduler::TimePoint now) {
  if (!client.life.Leave(now + kill_after_)) return;
  ++leaving_;
  requests_.OnClientLeaving(client, now);
  client.scope.DropBarrier();
  for (const std::uint64_t command : lane_.RemoveClient(client.id(), now)) {
    submitter_.RequestStop(command);
  }
  submitter_.ReviewPreemptibility(now);
  SettleAll(now);
  if (client.load.on_device() == 0) Depart(client, now);
}

void Dispatcher::Depart(ClientState& client, scheduler::TimePoint now) {
  --leaving_;
  publisher_.Forget(client);
  requests_.OnClientGone(client);
  energy_.OnClientGone(client);
  totals_.Leave(totals_rows_[client], now);
  departed_.push_back(registry_.Remove(client));
}

std::unique_ptr<ClientState> Dispatcher::TakeDeparted() {
  if (departed_.empty()) return nullptr;
  std::unique_ptr<ClientState> client = std::move(departed_.back());
  departed_.pop_back();
  return client;
}

void Dispatcher::Break(ClientState& client, Status why) {
  if (client.life.is_leaving() || !client.life.Break()) return;
  broken_.push_back({client.setup.session, std::move(why)});
}

bool Dispatcher::TryPassBarrier(ClientState& client) {
  const auto passed = client.scope.TryPassBarrier(client.streams.slab().used());
  if (passed && passed->released) released_.push_back({client.setup.session, *passed->released});
  return passed.has_value();
}

// ---- streams

void Dispatcher::Append(ClientState& client, std::uint32_t slot, scheduler::TimePoint now) {
  const CommandSlot& command = client.streams.slab()[slot];
  if (command.is_device_work()) requests_.OnWork(client, now);
  client.streams.Append(slot);
  client.streams.MarkToSettle(command.stream);
}

void Dispatcher::OfferReady(ClientState& client, std::uint32_t stream, scheduler::TimePoint now) {
  StreamState& state = client.streams[stream];
  while (state.next != kNoSlot && !state.has_failed && submitter_.MayFollow(client, state)) {
    CommandSlot& command = client.streams.slab()[state.next];
    if (command.failure != nullptr) return;  // The stream fails once the command is at the front.
    if (command.is_device_work()) {
      // This command was preempted together with an earlier one of its stream and has not left the
      // device yet.
      if (command.state() == CommandState::kOnDevice && command.submission().has_outlived) return;
      if (command.state() == CommandState::kQueued) {
        if (client.memory.is_by_page() && !IsResident(*client.setup.space, command)) [[unlikely]]
          return RejectBeyondDevice(client, stream, command);
        if (!submitter_.Cut(client, state.next)) return;
        submitter_.Offer(client, state.next, now);
      }
    } else if (command.kind == CommandKind::kWaitFor) {
      const StreamState& target = client.streams[command.target.stream];
      if (target.finished < command.target.sequence) {
        client.streams.AddWaiter(command.target.stream, stream);
        return;
      }
      if (target.HasFailed(command.target.sequence)) return;
    } else if (command.destroys_stream()) {
      // Later commands wait for the end of this one, because they belong to the stream's next
      // incarnation, to which an error of the current incarnation must not apply.
      return;
    }
    client.streams.PassNext(stream);
  }
}

void Dispatcher::RejectBeyondDevice(ClientState& client, std::uint32_t stream,
                                    CommandSlot& command) {
  const std::uint64_t bytes = ReachBytes(command, client.scope.mapped_bytes());
  if (bytes <= client.memory.most_bytes()) return;
  BeyondDevice why{.what = command.graph != nullptr               ? "graph launch"
                           : command.kind == CommandKind::kLaunch ? "launch"
                           : command.kind == CommandKind::kFill   ? "fill"
                                                                  : "copy",
                   .kernel = {},
                   .bytes = bytes,
                   .bytes_max = client.memory.most_bytes()};
  if (command.graph == nullptr && command.kind == CommandKind::kLaunch) {
    why.kernel = {.module = command.modules[0],
                  .module_serial = client.scope.module(command.modules[0]).serial,
                  .kernel = std::get<device::LaunchWork>(command.work).kernel};
  }
  command.failure = Reject(why);
  client.streams.MarkToSettle(stream);
}

void Dispatcher::Settle(ClientState& client, scheduler::TimePoint now) {
  while (!client.streams.is_settled() || client.streams.MarkOneAwaitingSlot()) {
    const std::uint32_t stream = client.streams.TakeToSettle();
    while (client.streams[stream].front != kNoSlot &&
           SettleFront(client, stream, now) == FrontOutcome::kRetired) {
    }
    OfferReady(client, stream, now);
  }
}

void Dispatcher::OfferAgain(ClientState& client, scheduler::TimePoint now) {
  submitter_.TakeAllBack(client, now);
  OnMemoryCame(client, now);
}

void Dispatcher::OnMemoryCame(ClientState& client, scheduler::TimePoint now) {
  for (std::uint32_t stream = 0; stream < ipc::kStreamsMax; ++stream) {
    if (client.streams[stream].next != kNoSlot) client.streams.MarkToSettle(stream);
  }
  Settle(client, now);
}

void Dispatcher::SettleAll(scheduler::TimePoint now) {
  for (ClientState* const client : registry_.present()) {
    if (!client->life.is_leaving()) Settle(*client, now);
  }
}

Dispatcher::FrontOutcome Dispatcher::SettleFront(ClientState& client, std::uint32_t stream,
                                                 scheduler::TimePoint now) {
  StreamState& state = client.streams[stream];
  CommandSlot& command = client.streams.slab()[state.front];
  if (!command.is_device_work()) return SettleHostCommand(client, stream, command, now);
  if (command.state() == CommandState::kOffered || command.state() == CommandState::kOnDevice) {
    return FrontOutcome::kUnfinished;
  }
  if (state.has_failed) {
    CountSkipped(client);
  } else if (command.failure != nullptr) {
    FailStream(client, stream, command, std::move(*command.failure), now);
  } else if (command.state() == CommandState::kEnded) {
    CountRetired(client, command);
    state.last_time_ns = std::max(state.last_time_ns, command.ended_ns);
  } else {
    return FrontOutcome::kUnfinished;
  }
  Retire(client, stream, now);
  return FrontOutcome::kRetired;
}

Dispatcher::FrontOutcome Dispatcher::SettleHostCommand(ClientState& client, std::uint32_t stream,
                                                       CommandSlot& command,
                                                       scheduler::TimePoint now) {
  switch (command.kind) {
    case CommandKind::kChangeGraph:
    case CommandKind::kChangeBuffers:
      SettleChange(client, stream, command, now);
      break;
    case CommandKind::kWaitFor:
      if (!SettleWait(client, stream, command, now)) return FrontOutcome::kUnfinished;
      break;
    case CommandKind::kMark:
      SettleMark(client, client.streams[stream], command);
      break;
    case CommandKind::kCreateStream:
      client.streams[stream].error.reset();
      break;
    case CommandKind::kDestroyStreamInRequest:
      requests_.End(client, stream, now);
      DestroyStream(client, stream, command);
      break;
    case CommandKind::kDestroyStream:
      DestroyStream(client, stream, command);
      break;
    case CommandKind::kEndRequest:
      requests_.End(client, stream, now);
      break;
    case CommandKind::kBeginRequest:
    case CommandKind::kExpectRequest:
      break;  // The command took effect when it was taken.
    default:
      Check(false, "a device command is not settled as a host command");
  }
  Retire(client, stream, now);
  return FrontOutcome::kRetired;
}

// The change took effect, or was rejected, when the command was taken.
void Dispatcher::SettleChange(ClientState& client, std::uint32_t stream, CommandSlot& command,
                              scheduler::TimePoint now) {
  if (client.streams[stream].has_failed) {
    CountSkipped(client);
  } else if (command.failure != nullptr) {
    FailStream(client, stream, command, std::move(*command.failure), now);
  }
}

void Dispatcher::SettleMark(ClientState& client, const StreamState& state,
                            const CommandSlot& command) {
  ++client.counters.marks;
  // In an idle stream the mark's time is that of its arrival.
  const auto taken = static_cast<std::uint64_t>(command.taken.time_since_epoch().count());
  const std::uint64_t time = state.has_failed ? 0 : std::max(state.last_time_ns, taken);
  WriteRecord(client, command,
              {.id = {},
               .kind = ipc::CompletionKind::kMark,
               .code = state.has_failed ? StatusCode::kCancelled : StatusCode::kOk,
               .fault = FaultKind::kNone,
               .started_ns = time,
               .ended_ns = time});
}

// Returns whether the wait is over. All earlier commands have finished; later ones may already be
// in the lane.
bool Dispatcher::SettleWait(ClientState& client, std::uint32_t stream, const CommandSlot& command,
                            scheduler::TimePoint now) {
  StreamState& state = client.streams[stream];
  if (state.has_failed) {
    CountSkipped(client);
    return true;
  }
  const StreamState& target = client.streams[command.target.stream];
  if (target.finished < command.target.sequence) {
    client.streams.AddWaiter(command.target.stream, stream);
    return false;
  }
  if (target.HasFailed(command.target.sequence)) {
    FailStream(client, stream, command, CommandFailure(WaitFailed{.command = command.target}), now);
  } else {
    state.last_time_ns = std::max(state.last_time_ns, target.last_time_ns);
  }
  return true;
}

void Dispatcher::DestroyStream(ClientState& client, std::uint32_t stream,
                               const CommandSlot& command) {
  StreamState& state = client.streams[stream];
  if (state.has_failed) {
    // Later waits may still name commands of this incarnation.
    state.failed_before = {state.failed.first, command.sequence};
    state.failed = {};
    state.has_failed = false;
  } else {
    client.output.GiveBack();  // The record reserved for an error was not needed.
  }
}

void Dispatcher::FailStream(ClientState& client, std::uint32_t stream, const CommandSlot& command,
                            CommandFailure why, scheduler::TimePoint now) {
  StreamState& state = client.streams[stream];
  state.has_failed = true;
  state.failed = {command.sequence, std::numeric_limits<std::uint64_t>::max()};
  const StatusCode code = why.code;
  const FaultKind fault = why.fault;
  state.error = std::make_unique<CommandFailure>(std::move(why));
  state.error_sequence = command.sequence;
  submitter_.Withdraw(client, stream, now);
  WriteRecord(client, command,
              {.id = {},
               .kind = ipc::CompletionKind::kError,
               .code = code,
               .fault = fault,
               .started_ns = command.started_ns,
               .ended_ns = command.ended_ns});
}

void Dispatcher::WriteRecord(ClientState& client, const CommandSlot& command,
                             const ipc::CompletionNotice& notice) {
  ipc::CompletionRecord record;
  record.header.op = static_cast<std::uint8_t>(notice.kind);
  record.header.sequence = command.sequence;
  record.stream = command.stream;
  record.code = static_cast<std::uint32_t>(notice.code);
  record.fault = static_cast<std::uint32_t>(notice.fault);
  record.started_ns = notice.started_ns;
  record.ended_ns = notice.ended_ns;
  publisher_.Mark(client);
  // Space was reserved when the command was taken, so this fails only if the client lied about its
  // credit.
  if (!client.output.Write(record)) {
    Break(client, Status(StatusCode::kProtocolViolation,
                         fmt::format("session ended: more completions were taken than written "
                                     "[{}]",
                                     client.setup.who)));
  }
}

void Dispatcher::ReturnModule(ClientState& client, std::uint16_t module) {
  if (client.scope.ReturnModule(module)) [[unlikely]]
    released_.push_back({client.setup.session, module});
}

// Called when all parts of a command have left its stream.
void Dispatcher::EndCommand(ClientState& client, StreamState& state, const CommandSlot& command) {
  ++commands_;
  state.finished = command.sequence;
  client.scope.RecordFinished(command.epoch);
  if (command.graph == nullptr) return;
  for (const std::uint16_t module : command.graph->modules()) ReturnModule(client, module);
  client.graphs.Return(*command.graph);
}

void Dispatcher::Retire(ClientState& client, std::uint32_t stream, scheduler::TimePoint now) {
  StreamState& state = client.streams[stream];
  const std::uint32_t slot = client.streams.PopFront(stream);
  CommandSlab& slab = client.streams.slab();
  const CommandSlot& command = slab[slot];
  state.Release(slot);
  if (!command.is_cut) EndCommand(client, state, command);
  for (const std::uint16_t module : command.modules) {
    if (module == CommandSlot::kNoModule) break;
    ReturnModule(client, module);
  }
  slab.Free(slot);
  if (slab.empty() && !client.life.is_leaving()) requests_.OnNothingLeft(client, now);
  client.output.Finish(stream, state.finished);
  publisher_.Mark(client);
  client.streams.WakeWaiters(stream);
}

// ---- completions

std::size_t Dispatcher::TakeCompletions(scheduler::TimePoint now) {
  turns_.TakeCompletions(turns_over_, now);
  std::size_t taken = turns_over_.size();
  for (const device::Completion& completion : turns_over_) OnCompleted(completion, now);
  turns_over_.clear();
  for (;;) {
    const std::size_t count = device_.TakeCompletions(completions_);
    if (const device::DeviceLoss* const loss = device_.loss(); loss != nullptr && !loss_)
        [[unlikely]] {
      DescribeLoss(*loss);
      turns_.KillAll();
    }
    submitter_.RecordHostSteal(now);
    for (std::size_t i = 0; i < count; ++i) {
      OnCompleted(completions_[i], now);
      completions_[i].paused.reset();  // Releases paused state that the command did not take.
    }
    for (ClientState* const client : unsettled_) Settle(*client, now);
    unsettled_.clear();
    taken += count;
    if (count < completions_.size()) return taken;
  }
}

void Dispatcher::OnCompleted(const device::Completion& completion, scheduler::TimePoint now) {
  ClientState* const client = registry_.OnDevice(completion.id);
  // A command completes only once; a duplicate completion has no owner.
  if (client == nullptr) return;
  CommandSlot& command = client->streams.slab()[WorkName::Slot(completion.id)];
  const bool is_part = submitter_.TakeOff(*client, command, completion, now);
  staging_watch_.OnLeft(*client, command, completion);
  if (client->life.is_leaving()) {
    command.End();
    if (client->load.on_device() == 0) Depart(*client, now);
    return;
  }
  if (is_part) return OnStopped(*client, command, completion, now);
  OnEnded(*client, command, completion, now);
  submitter_.ReviewTrust(*client, command, now);
}

void Dispatcher::OnStopped(ClientState& client, CommandSlot& command,
                           const device::Completion& completion, scheduler::TimePoint now) {
  // Paused units are treated as one unit that is not done.
  const bool has_paused = completion.paused != nullptr;
  const std::uint64_t done = std::min(completion.units_done, command.units - has_paused);
  command.units_done = std::max(command.units_done, done);
  if (has_paused) {
    std::visit(
        [&](auto& work) {
          if constexpr (requires { work.paused; }) work.paused = completion.paused;
        },
        command.work);
  }
  ++client.counters.stops;
  client.totals.of_class().stops.Add(1);
  const StreamState& stream = client.streams[command.stream];
  const std::uint32_t slot = WorkName::Slot(completion.id);
  // A command that outlived its prediction is preempted together with all later commands of its
  // stream.
  const bool is_behind =
      stream.chained == slot || (command.submission().has_outlived && stream.front != slot);
  if (!stream.has_failed && !is_behind) return submitter_.OfferRest(client, slot, now);
  if (stream.has_failed) {
    command.End();
  } else {
    Submitter::QueueRest(client, slot);  // The rest of the earlier command goes first.
  }
  MarkUnsettled(client, command.stream);
}

CommandFailure Dispatcher::GetFailure(const CommandSlot& command,
                                      const device::Completion& completion) const {
  const bool is_lost = loss_ && completion.status.code() == StatusCode::kDeviceLost;
  const Status& why = is_lost ? *loss_ : completion.status;
  std::string message(why.message());
  if (command.graph != nullptr && !is_lost) {
    const bool is_list = command.kind == CommandKind::kGraph;
    message = fmt::format("node {} of graph {}: {}",
                          command.first_node + (is_list ? completion.units_done : 0),
                          command.graph->number(), message);
  }
  return CommandFailure(why.code(), std::move(message), completion.fault);
}

void Dispatcher::OnEnded(ClientState& client, CommandSlot& command,
                         const device::Completion& completion, scheduler::TimePoint now) {
  command.End();
  // The kernel was to be killed, but ended normally before it could be.
  if (completion.status.ok() && !completion.stopped) command.failure.reset();
  if (command.failure == nullptr && !completion.status.ok()) [[unlikely]] {
    command.failure = std::make_unique<CommandFailure>(GetFailure(command, completion));
  }
  if (command.failure != nullptr) [[unlikely]] {
    ++client.counters.commands_failed;
    client.totals.of_class().commands_failed.Add(1);
  } else {
    submitter_.Learn(command, now);
  }
  MarkUnsettled(client, command.stream);
}

void Dispatcher::MarkUnsettled(ClientState& client, std::uint32_t stream) {
  if (client.streams.is_settled()) unsettled_.push_back(&client);
  client.streams.MarkToSettle(stream);
}

void Dispatcher::KillOverdue(scheduler::TimePoint now) {
  if (leaving_ > 0) {
    for (ClientState* const client : registry_.present()) {
      if (!client->life.kill_at() || now < *client->life.kill_at()) continue;
      client->life.RecordKilled();
      const CommandSlab& slab = client->streams.slab();
      for (std::uint32_t slot = 0; slot < slab.size(); ++slot) {
        if (slab[slot].state() != CommandState::kOnDevice) continue;
        device_.RequestKill(slab[slot].name());
        turns_.RequestKill(slab[slot].name());
      }
    }
  }
  if (loss_) return;
  if (const auto loss = limiter_.Enforce(now)) DescribeLoss(*loss);
}

void Dispatcher::DescribeLoss(const device::DeviceLoss& loss) {
  std::vector<std::string> suspects;
  for (const device::DeviceLoss::Suspect& suspect : loss.suspects) {
    const ClientState* const client = registry_.OnDevice(suspect.id);
    if (client == nullptr) continue;
    const CommandSlot& command = client->streams.slab()[WorkName::Slot(suspect.id)];
    suspects.push_back(suspect.what + " " + client->Who(command.stream, command.sequence));
  }
  loss_ = DescribeDeviceLoss(device_.info().id, loss.why.message(), suspects);
}

std::optional<scheduler::TimePoint> Dispatcher::wake_at() const {
  std::optional<scheduler::TimePoint> at = lane_.wake_at();
  if (!loss_) at = scheduler::Earlier(at, limiter_.wake_at());
  if (leaving_ == 0) return at;
  for (const ClientState* const client : registry_.present()) {
    at = scheduler::Earlier(at, client->life.kill_at());
  }
  return at;
}

}  // namespace gpushared::server
