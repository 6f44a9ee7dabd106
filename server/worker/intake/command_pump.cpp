// SPDX-License-Identifier: Apache-2.0
#include "server/worker/intake/command_pump.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <variant>

#include "gpushared/launch_limits.h"

#include "server/device/work_checks.h"
#include "server/worker/state/scope_checks.h"

namespace gpushared::server {

void CommandPump::Take(ClientState& client, scheduler::TimePoint now) {
  const ipc::Violation malformed = ipc::ValidateCommand(record_, command_);
  if (!malformed.ok()) return BreakFor(client, malformed);
  const bool in_request = client.intake.in_request(command_.id.stream);
  const ipc::Violation out_of_turn = client.intake.Accept(command_);
  if (!out_of_turn.ok()) return BreakFor(client, out_of_turn);
  ++client.counters.commands_taken;
  client.totals.AddCommand();
  ReserveAnswers(client, command_);
  const std::uint32_t index = client.streams.slab().Allocate();
  CommandSlot& slot = client.streams.slab()[index];
  slot.stream = static_cast<std::uint8_t>(command_.id.stream);
  slot.sequence = command_.id.sequence;
  slot.taken = now;
  slot.epoch = client.scope.epoch();
  // Checked first, because most commands are launches.
  const auto* const launch = std::get_if<ipc::LaunchCommand>(&command_.body);
  MaybeRejected rejected =
      launch != nullptr ? Prepare(client, *launch, slot)
                        : std::visit([&](const auto& body) { return Prepare(client, body, slot); },
                                     command_.body);
  if (in_request && slot.kind == CommandKind::kDestroyStream) {
    slot.kind = CommandKind::kDestroyStreamInRequest;
  }
  if (rejected != nullptr) [[unlikely]] {
    ++client.counters.commands_rejected;
    client.totals.of_class().commands_rejected.Add(1);
    slot.failure = std::move(rejected);
  }
  dispatcher_.Append(client, index, now);
}

std::size_t CommandPump::Visit(ClientState& client, scheduler::TimePoint now) {
  ClientIntake& ring = client.intake;
  const std::uint64_t published = ring.published();
  std::size_t taken = 0;
  nodes_visited_ = 0;
  while (taken < kRecordsPerVisit && nodes_visited_ < kNodesPerVisit && client.MayTake()) {
    if (!client.output.HasRoom()) {
      if (!ring.HasRecord()) client.scope.RecordRingEmpty();
      break;
    }
    const ipc::ReadResult result = ring.TryRead(record_);
    if (result == ipc::ReadResult::kEmpty) {
      client.scope.RecordRingEmpty();
      break;
    }
    if (result == ipc::ReadResult::kPeerBroken) {
      BreakForDamage(client);
      break;
    }
    ++taken;
    Take(client, now);
    client.scope.RecordTakenUpTo(ring.position());
  }
  // A client waits for credit only while its ring is full, and then gets credit in steps of an
  // eighth of the ring. Smaller steps occur only when the ring ran empty, and need no wake-up.
  if (ring.published() - published >= ipc::kCommandGranules / 8) {
    publisher_.Mark(client);
  }
  if (taken > 0) dispatcher_.Settle(client, now);
  return taken;
}

void CommandPump::BreakFor(ClientState& client, const ipc::Violation& violation) {
  const Status why = ipc::DescribeViolation(violation, record_);
  dispatcher_.Break(client, Status(why.code(), fmt::format("session ended: {} [{}]", why.message(),
                                                           client.setup.who)));
}

void CommandPump::BreakForDamage(ClientState& client) {
  dispatcher_.Break(
      client, Status(StatusCode::kProtocolViolation,
                     fmt::format("session ended: the command ring is damaged at granule {} [{}]",
                                 client.intake.position(), client.setup.who)));
}

void CommandPump::ReserveAnswers(ClientState& client, const ipc::Command& command) {
  // A stream's first error and a mark take one completion record each.
  if (std::holds_alternative<ipc::MarkCommand>(command.body) ||
      std::holds_alternative<ipc::CreateStreamCommand>(command.body)) {
    client.output.Reserve();
  }
}

// ---- launches

namespace {

LaunchExtents GetExtents(const ipc::LaunchCommand& launch, const device::KernelInfo& kernel) {
  return {.grid = launch.grid,
          .block = launch.block,
          .cluster = launch.cluster,
          .static_shared_bytes = kernel.static_shared_bytes,
          .dynamic_shared_bytes = launch.dynamic_shared_bytes};
}

NamedKernel GetNamed(const ipc::LaunchCommand& launch, const ModuleEntry& module) {
  return {.module = launch.module, .module_serial = module.serial, .kernel = launch.kernel};
}

}  // namespace

MaybeRejected CommandPump::RejectExcess(const ipc::LaunchCommand& launch, const ModuleEntry& module,
                                        const device::KernelInfo& kernel) const {
  return Reject(BeyondLaunchLimits{
      .kernel = GetNamed(launch, module),
      .excess = FindExcess(GetExtents(launch, kernel), device::GetLimits(kernel, info_))});
}

MaybeRejected CommandPump::Prepare(ClientState& client, const ipc::LaunchCommand& launch,
                                   CommandSlot& slot) {
  slot.kind = CommandKind::kLaunch;
  const ModuleEntry& module = client.scope.module(launch.module);
  if (module.module == nullptr || module.is_leaving) {
    return Reject(NoModule{.module = launch.module});
  }
  const std::span<const device::KernelInfo> kernels = module.module->kernels();
  if (launch.kernel >= kernels.size()) {
    return Reject(
        NoKernel{.module = launch.module, .kernel = launch.kernel, .kernels = kernels.size()});
  }
  const device::KernelInfo& kernel = kernels[launch.kernel];
  if (!kernel.unsupported.empty()) {
    return Reject(UnsupportedKernel{.kernel = GetNamed(launch, module)});
  }
  if (!IsWithinLaunchLimits(GetExtents(launch, kernel), device::GetLimits(kernel, info_))) {
    return RejectExcess(launch, module, kernel);
  }
  if (launch.parameter_bytes != kernel.parameter_bytes) {
    return Reject(WrongParameterBytes{.kernel = GetNamed(launch, module),
                                      .bytes = launch.parameter_bytes,
                                      .expected = kernel.parameter_bytes});
  }
  device::LaunchWork& work = slot.work.emplace<device::LaunchWork>();
  if (launch.parameters_in_staging_buffer) {
    if (MaybeRejected why = CheckStagingBuffer(client, "launch", launch.staging_parameters))
      return why;
  }
  work.parameters = TakeParameters(client, launch, slot);
  work.module = module.module;
  work.kernel = launch.kernel;
  work.grid = {launch.grid[0], launch.grid[1], launch.grid[2]};
  work.block = {launch.block[0], launch.block[1], launch.block[2]};
  // The device checks at the launch whether it supports clusters.
  work.cluster = {launch.cluster[0], launch.cluster[1], launch.cluster[2]};
  work.is_cooperative = launch.is_cooperative;
  work.dynamic_shared_bytes = launch.dynamic_shared_bytes;
  RetainModule(client, launch.module, slot);
  if (!client.buffers.empty()) [[unlikely]] {
    slot.SetReach(client.buffers.GetReach(kernel, work.parameters));
    nodes_visited_ += kernel.reach_offsets.size();
  }
  slot.units = work.grid.Count();
  slot.cost_key = CostModel::LaunchKey(module.identity, work);
  slot.cost_kernel = CostModel::KernelKey(module.identity, work);
  return {};
}

std::span<const std::byte> CommandPump::TakeParameters(const ClientState& client,
                                                       const ipc::LaunchCommand& launch,
                                                       CommandSlot& slot) {
  // Copied even from a staging buffer, because the client could otherwise change the bytes until
  // the kernel runs.
  const std::span<std::byte> room = slot.GetParameterSpace(launch.parameter_bytes);
  if (launch.parameters_in_staging_buffer) {
    client.scope.ReadStagingBuffer(launch.staging_parameters.staging_buffer,
                                   launch.staging_parameters.offset, room);
  } else if (!room.empty()) {
    std::memcpy(room.data(), launch.inline_parameters.data(), room.size());
  }
  return room;
}

// ---- buffers

MaybeRejected CommandPump::Prepare(ClientState& client, const ipc::NameBufferCommand& name,
                                   CommandSlot& slot) {
  slot.kind = CommandKind::kChangeBuffers;
  return client.buffers.Add(name.address, name.bytes, client.scope.mapped_bytes());
}

MaybeRejected CommandPump::Prepare(ClientState& client, const ipc::ForgetBufferCommand& forget,
                                   CommandSlot& slot) {
  slot.kind = CommandKind::kChangeBuffers;
  return client.buffers.Remove(forget.address);
}

// ---- turns

MaybeRejected CommandPump::Prepare(ClientState& client, const ipc::TurnCommand& /*turn*/,
                                   CommandSlot& slot) {
  slot.kind = CommandKind::kTurn;
  slot.units = std::numeric_limits<std::uint64_t>::max();  // Unlimited.
  slot.work.emplace<device::FillWork>();  // Accesses none of the memory that the worker manages.
  if (!client.setup.is_gated) {
    dispatcher_.Break(
        client,
        Status(StatusCode::kProtocolViolation,
               fmt::format("session ended: turn requested by a client that is not gated [{}]",
                           client.setup.who)));
  }
  return {};
}

// ---- copies and fills

MaybeRejected CommandPump::PrepareHostCopy(ClientState& client, const ipc::CopyCommand& copy,
                                           CommandSlot& slot,
                                           device::CopyWork::Direction direction) {
  slot.bytes = copy.width_bytes * copy.height;
  slot.units = device::CopyUnits(copy.width_bytes, copy.height);
  if (MaybeRejected why = CheckStagingBuffer(client, "copy", copy.staging_buffer)) return why;
  if (MaybeRejected why =
          CheckMapped(client, "copy", copy.device_address, copy.device_bytes, slot)) {
    return why;
  }
  device::CopyWork& work = slot.work.emplace<device::CopyWork>();
  work.direction = direction;
  work.host = client.scope.staging_buffer(copy.staging_buffer.staging_buffer).data() +
              copy.staging_buffer.offset;
  work.width_bytes = copy.width_bytes;
  work.height = copy.height;
  if (direction == device::CopyWork::Direction::kHostToDevice) {
    work.destination = copy.device_address;
    work.destination_pitch_bytes = copy.device_pitch_bytes;
    work.source_pitch_bytes = copy.staging_pitch_bytes;
  } else {
    work.source = copy.device_address;
    work.source_pitch_bytes = copy.device_pitch_bytes;
    work.destination_pitch_bytes = copy.staging_pitch_bytes;
  }
  return {};
}

MaybeRejected CommandPump::Prepare(ClientState& client, const ipc::CopyToDeviceCommand& copy,
                                   CommandSlot& slot) {
  slot.kind = CommandKind::kCopyToDevice;
  return PrepareHostCopy(client, copy, slot, device::CopyWork::Direction::kHostToDevice);
}

MaybeRejected CommandPump::Prepare(ClientState& client, const ipc::CopyToHostCommand& copy,
                                   CommandSlot& slot) {
  slot.kind = CommandKind::kCopyToHost;
  return PrepareHostCopy(client, copy, slot, device::CopyWork::Direction::kDeviceToHost);
}

MaybeRejected CommandPump::Prepare(ClientState& client, const ipc::CopyOnDeviceCommand& copy,
                                   CommandSlot& slot) {
  slot.kind = CommandKind::kCopyOnDevice;
  slot.bytes = copy.width_bytes * copy.height;
  slot.units = device::CopyUnits(copy.width_bytes, copy.height);
  if (MaybeRejected why =
          CheckMapped(client, "copy", copy.destination, copy.destination_bytes, slot)) {
    return why;
  }
  if (MaybeRejected why = CheckMapped(client, "copy", copy.source, copy.source_bytes, slot)) {
    return why;
  }
  device::CopyWork& work = slot.work.emplace<device::CopyWork>();
  work.direction = device::CopyWork::Direction::kDeviceToDevice;
  work.destination = copy.destination;
  work.source = copy.source;
  work.width_bytes = copy.width_bytes;
  work.height = copy.height;
  work.destination_pitch_bytes = copy.destination_pitch_bytes;
  work.source_pitch_bytes = copy.source_pitch_bytes;
  return {};
}

MaybeRejected CommandPump::Prepare(ClientState& client, const ipc::FillCommand& fill,
                                   CommandSlot& slot) {
  slot.kind = CommandKind::kFill;
  slot.bytes = fill.width_bytes * fill.height;
  slot.units = device::CopyUnits(fill.width_bytes, fill.height);
  if (MaybeRejected why =
          CheckMapped(client, "fill", fill.destination, fill.destination_bytes, slot)) {
    return why;
  }
  device::FillWork& work = slot.work.emplace<device::FillWork>();
  work.destination = fill.destination;
  work.value = fill.value;
  work.element_bytes = fill.element_bytes;
  work.width_bytes = fill.width_bytes;
  work.height = fill.height;
  work.pitch_bytes = fill.pitch_bytes;
  return {};
}

// ---- commands that are not device work

MaybeRejected CommandPump::Prepare(ClientState&, const ipc::WaitForCommand& wait,
                                   CommandSlot& slot) {
  slot.kind = CommandKind::kWaitFor;
  slot.target = wait.target;
  return {};
}

MaybeRejected CommandPump::Prepare(ClientState&, const ipc::MarkCommand&, CommandSlot& slot) {
  slot.kind = CommandKind::kMark;
  return {};
}

MaybeRejected CommandPump::Prepare(ClientState&, const ipc::CreateStreamCommand&,
                                   CommandSlot& slot) {
  slot.kind = CommandKind::kCreateStream;
  return {};
}

MaybeRejected CommandPump::Prepare(ClientState&, const ipc::DestroyStreamCommand&,
                                   CommandSlot& slot) {
  slot.kind = CommandKind::kDestroyStream;
  return {};
}

MaybeRejected CommandPump::Prepare(ClientState& client, const ipc::BeginRequestCommand& begin,
                                   CommandSlot& slot) {
  slot.kind = CommandKind::kBeginRequest;
  const Status begun =
      requests_.Begin(client, slot.stream, scheduler::Duration(begin.age_ns), slot.taken);
  if (!begun.ok()) dispatcher_.Break(client, begun);
  return {};
}

MaybeRejected CommandPump::Prepare(ClientState&, const ipc::EndRequestCommand&, CommandSlot& slot) {
  slot.kind = CommandKind::kEndRequest;
  return {};
}

MaybeRejected CommandPump::Prepare(ClientState& client, const ipc::ExpectRequestCommand& expect,
                                   CommandSlot& slot) {
  slot.kind = CommandKind::kExpectRequest;
  requests_.Expect(client, scheduler::Duration(expect.in_ns), slot.taken);
  return {};
}

}  // namespace gpushared::server
