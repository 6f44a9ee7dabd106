// SPDX-License-Identifier: Apache-2.0
// Path of commands from a client's ring to a stream's queue.

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

// Takes records from the ring: copies each, validates the copy, and checks it against the session's
// state. A record that a correct client cannot write ends the session. A well-formed but invalid
// record becomes a command that makes its stream fail when it is reached.
//
// Confined to the device thread.
class CommandPump {
 public:
  // Limit of records per visit, so that no ring delays the others.
  static constexpr std::size_t kRecordsPerVisit = 32;
  // Limit per visit of graph nodes copied or checked, plus parameter words looked up in the
  // client's buffers.
  static constexpr std::size_t kNodesPerVisit = 1024;

  // All references must outlive the pump.
  CommandPump(const device::DeviceInfo& info, Dispatcher& dispatcher, Requests& requests,
              Publisher& publisher)
      : info_(info), dispatcher_(dispatcher), requests_(requests), publisher_(publisher) {}

  // Returns how many records were taken.
  std::size_t Visit(ClientState& client, scheduler::TimePoint now);

 private:
  [[gnu::always_inline]] inline void Take(ClientState& client, scheduler::TimePoint now);
  // End the session because of `violation` in the last record, or because of a damaged ring.
  [[gnu::cold]] void BreakFor(ClientState& client, const ipc::Violation& violation);
  [[gnu::cold]] void BreakForDamage(ClientState& client);
  void ReserveAnswers(ClientState& client, const ipc::Command& command);

  // Each fills `slot`, or returns the reason for rejecting the command.
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

  MaybeRejected Prepare(ClientState& client, const ipc::TurnCommand& turn, CommandSlot& slot);

  [[gnu::cold]] MaybeRejected RejectExcess(const ipc::LaunchCommand& launch,
                                           const ModuleEntry& module,
                                           const device::KernelInfo& kernel) const;
  // Checks whether the client may still name everything that the graph's nodes name.
  MaybeRejected CheckGraph(ClientState& client, Graph& graph);
  MaybeRejected PrepareHostCopy(ClientState& client, const ipc::CopyCommand& copy,
                                CommandSlot& slot, device::CopyWork::Direction direction);
  // Stores the access set of all nodes in the slot of the graph launch.
  void RecordReach(const ClientState& client, Graph& graph, CommandSlot& slot);
  // Copies the parameters into the slot. A staging buffer that contains them must have been
  // checked.
  static std::span<const std::byte> TakeParameters(const ClientState& client,
                                                   const ipc::LaunchCommand& launch,
                                                   CommandSlot& slot);

  const device::DeviceInfo& info_;
  Dispatcher& dispatcher_;
  Requests& requests_;
  Publisher& publisher_;
  ipc::RecordCopy record_;
  ipc::Command command_;
  std::size_t nodes_visited_ = 0;  // Counts toward kNodesPerVisit; reset by each visit.
  CommandSlot graph_slot_;         // Collects the modules of a node while it is checked.
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_INTAKE_COMMAND_PUMP_H_
