// SPDX-License-Identifier: Apache-2.0
// From a client's ring to a stream's queue.

#ifndef GPUSHARED_SERVER_WORKER_INTAKE_COMMAND_PUMP_H_
#define GPUSHARED_SERVER_WORKER_INTAKE_COMMAND_PUMP_H_

#include <cstddef>
#include <memory>
#include <span>

#include "gpushared/status.h"

#include "ipc/wire/command.h"
#include "ipc/wire/validate.h"
#include "scheduler/types.h"
#include "server/device/device.h"
#include "server/worker/dispatch/dispatcher.h"
#include "server/worker/state/client_state.h"
#include "server/worker/state/rejection.h"

namespace gpushared::server {

// Takes records: copies, validates the copy, and checks what depends on the session. A record
// that no honest client writes breaks the session. A well-formed but impossible record becomes
// a command that fails its stream when its turn comes.
//
// Confined to the device thread.
class CommandPump {
 public:
  // Records taken per visit, so that no ring keeps the others waiting.
  static constexpr std::size_t kRecordsPerVisit = 32;
  // A visit ends when this many nodes of graphs were copied or checked, or words of parameters
  // looked up in the client's buffers.
  static constexpr std::size_t kNodesPerVisit = 1024;

  // All outlive the pump.
  CommandPump(const device::DeviceInfo& info, Dispatcher& dispatcher, Requests& requests,
              Publisher& publisher)
      : info_(info), dispatcher_(dispatcher), requests_(requests), publisher_(publisher) {}

  // Returns how many records were taken.
  std::size_t Visit(ClientState& client, scheduler::TimePoint now);

 private:
  [[gnu::always_inline]] inline void Take(ClientState& client, scheduler::TimePoint now);
  // The record that was read last is `violation`, or the ring is damaged.
  [[gnu::cold]] void BreakFor(ClientState& client, const ipc::Violation& violation);
  [[gnu::cold]] void BreakForDamage(ClientState& client);
  void ReserveAnswers(ClientState& client, const ipc::Command& command);

  // These fill `slot` or return why the command can't run.
  MaybeRejected Prepare(ClientState& client, const ipc::LaunchCommand& launch, CommandSlot& slot);
  MaybeRejected Prepare(ClientState& client, const ipc::CopyToDeviceCommand& copy,
                        CommandSlot& slot);
  MaybeRejected Prepare(ClientState& client, const ipc::CopyToHostCommand& copy, CommandSlot& slot);
  MaybeRejected Prepare(ClientState& client, const ipc::CopyOnDeviceCommand& copy,
                        CommandSlot& slot);
  MaybeRejected Prepare(ClientState& client, const ipc::FillCommand& fill, CommandSlot& slot);
  MaybeRejected Prepare(ClientState& client, const ipc::WaitForCommand& wait, CommandSlot& slot);
  MaybeRejected Prepare(ClientState& client, const ipc::MarkCommand& mark, CommandSlot& slot);
  MaybeRejected Prepare(ClientState& client, const ipc::CreateStreamCommand& create,
                        CommandSlot& slot);
  MaybeRejected Prepare(ClientState& client, const ipc::DestroyStreamCommand& destroy,
                        CommandSlot& slot);
  MaybeRejected Prepare(ClientState& client, const ipc::BeginRequestCommand& begin,
                        CommandSlot& slot);
  MaybeRejected Prepare(ClientState& client, const ipc::EndRequestCommand& end, CommandSlot& slot);
  MaybeRejected Prepare(ClientState& client, const ipc::ExpectRequestCommand& expect,
                        CommandSlot& slot);

  MaybeRejected Prepare(ClientState& client, const ipc::MakeGraphCommand& make, CommandSlot& slot);
  MaybeRejected Prepare(ClientState& client, const ipc::SetGraphNodeCommand& set,
                        CommandSlot& slot);
  MaybeRejected Prepare(ClientState& client, const ipc::LaunchGraphCommand& launch,
                        CommandSlot& slot);
  MaybeRejected Prepare(ClientState& client, const ipc::DestroyGraphCommand& destroy,
                        CommandSlot& slot);

  MaybeRejected Prepare(ClientState& client, const ipc::NameBufferCommand& name, CommandSlot& slot);
  MaybeRejected Prepare(ClientState& client, const ipc::ForgetBufferCommand& forget,
                        CommandSlot& slot);

  [[gnu::cold]] MaybeRejected RejectExcess(const ipc::LaunchCommand& launch,
                                           const ModuleEntry& module,
                                           const device::KernelInfo& kernel) const;
  // Looks whether the client may still name all that the graph's nodes do.
  MaybeRejected CheckGraph(ClientState& client, Graph& graph);
  MaybeRejected PrepareHostCopy(ClientState& client, const ipc::CopyCommand& copy,
                                CommandSlot& slot, device::CopyWork::Direction direction);
  // Notes in the slot of its launch what the graph's nodes may touch together.
  void RecordReach(const ClientState& client, Graph& graph, CommandSlot& slot);
  // Copies them into the slot. Where they are in a staging buffer, that is checked.
  static std::span<const std::byte> TakeParameters(const ClientState& client,
                                                   const ipc::LaunchCommand& launch,
                                                   CommandSlot& slot);

  const device::DeviceInfo& info_;
  Dispatcher& dispatcher_;
  Requests& requests_;
  Publisher& publisher_;
  ipc::RecordCopy record_;
  ipc::Command command_;
  std::size_t nodes_visited_ = 0;  // This visit has gone over so many nodes.
  CommandSlot graph_slot_;         // Takes the modules that a node names, while it is checked.
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_INTAKE_COMMAND_PUMP_H_
