// SPDX-License-Identifier: Apache-2.0
// Path of commands from a stream's queue to the device and back.

#ifndef GPUSHARED_SERVER_WORKER_DISPATCH_DISPATCHER_H_
#define GPUSHARED_SERVER_WORKER_DISPATCH_DISPATCHER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "gpushared/status.h"

#include "scheduler/device_lane.h"
#include "server/device/device.h"
#include "server/telemetry/totals/device_totals.h"
#include "server/worker/dispatch/kernel_limiter.h"
#include "server/worker/dispatch/staging_watch.h"
#include "server/worker/dispatch/submitter.h"
#include "server/worker/dispatch/turns.h"
#include "server/worker/output/publisher.h"
#include "server/worker/output/requests.h"
#include "server/worker/state/client_registry.h"
#include "server/worker/state/client_state.h"
#include "server/worker/state/energy_meter.h"
#include "server/worker/state/per_client.h"

namespace gpushared::server {

// Maintains the order of commands in their streams: determines which are ready, and handles
// commands that have ended and clients that leave.
//
// A command is ready when all earlier commands of its stream were submitted, its waits have
// finished, and no preemption of an earlier command of its stream could leave it running. A
// command that fails makes its stream fail. Later commands of the stream are skipped and counted as
// finished. Until the stream is destroyed, waits of other streams treat them as failed.
//
// The other duties belong to Submitter (lane and device), Requests (clients' requests),
// KernelLimiter (kernels that run too long) and Publisher (output to clients).
//
// Confined to the device thread.
class Dispatcher {
 public:
  // All references must outlive the dispatcher.
  struct Parts {
    device::Device& device;
    DeviceTotals& totals;
    scheduler::DeviceLane& lane;
    ClientRegistry& registry;
    Requests& requests;
    KernelLimiter& limiter;
    StagingWatch& staging_watch;
    Submitter& offers;
    Turns& turns;
    Publisher& publisher;
  };
  Dispatcher(const Parts& parts, scheduler::Duration kill_after);

  // A free index always exists, because the control thread limits the number of sessions.
  ClientState& AddClient(std::unique_ptr<ClientState> client, scheduler::TimePoint now);
  void ChangeClient(ClientState& client, const scheduler::ClientSpec& spec, const ClientCaps& caps,
                    scheduler::TimePoint now);
  // Called when parts of the client's memory became resident. Starts commands that waited for them.
  void OnMemoryCame(ClientState& client, scheduler::TimePoint now);
  // Called when the client is resumed while parts of its memory are swapped out. Withdraws queued
  // commands from the lane and submits those again whose access set is resident.
  void OfferAgain(ClientState& client, scheduler::TimePoint now);
  // Drops the client's queued commands and requests preemption of its running ones. Once none
  // remains on the device, TakeDeparted returns the client.
  void RemoveClient(ClientState& client, scheduler::TimePoint now);
  std::unique_ptr<ClientState> TakeDeparted();  // Null if none has departed.

  // Ends the intake from a client whose data violates the protocol. The client appears in broken()
  // once.
  [[gnu::cold]] void Break(ClientState& client, Status why);
  struct Broken {
    std::uint64_t session = 0;
    Status why;
  };
  // The caller empties it.
  std::vector<Broken>& broken() { return broken_; }
  // Modules whose last command has finished, by session. The caller empties it.
  struct Released {
    std::uint64_t session = 0;
    std::uint32_t module = 0;
  };
  std::vector<Released>& released() { return released_; }
  // Applies the client's pending barrier if possible. Returns whether it did.
  bool TryPassBarrier(ClientState& client);

  // Appends a slot filled by the pump, in ring order. The caller must then call Settle.
  void Append(ClientState& client, std::uint32_t slot, scheduler::TimePoint now);
  // Advances the client's marked streams as far as possible.
  void Settle(ClientState& client, scheduler::TimePoint now);

  // Returns how many commands left the device.
  std::size_t TakeCompletions(scheduler::TimePoint now);
  // Kills the remaining commands of leaving clients whose time is up, and kernels that have
  // exceeded their limits.
  void KillOverdue(scheduler::TimePoint now);
  // Time at which Submitter::Dispatch or KillOverdue must be called even if no event occurs.
  std::optional<scheduler::TimePoint> wake_at() const;

  // Running work must have been counted: Submitter::CountRunning.
  void EndEnergyInterval(std::uint64_t energy_mj, scheduler::TimePoint now) {
    energy_.EndInterval(energy_mj, now, registry_.present(), totals_.layout());
  }

  // Set once the device is lost: the reason, and the clients that may have caused it.
  const std::optional<Status>& loss() const { return loss_; }
  std::uint64_t commands() const { return commands_; }  // Number of finished commands.

 private:
  void LimitClient(const ClientState& client, scheduler::TimePoint now);
  enum class FrontOutcome { kRetired, kUnfinished };

  // Tries to finish the stream's front command.
  FrontOutcome SettleFront(ClientState& client, std::uint32_t stream, scheduler::TimePoint now);
  // Out of line, because most commands are device commands.
  [[gnu::noinline]] FrontOutcome SettleHostCommand(ClientState& client, std::uint32_t stream,
                                                   CommandSlot& command, scheduler::TimePoint now);
  bool SettleWait(ClientState& client, std::uint32_t stream, const CommandSlot& command,
                  scheduler::TimePoint now);
  void SettleChange(ClientState& client, std::uint32_t stream, CommandSlot& command,
                    scheduler::TimePoint now);
  void SettleMark(ClientState& client, const StreamState& state, const CommandSlot& command);
  void SettleAll(scheduler::TimePoint now);
  // Called if the command's memory is not resident. Fails the command if the device can never hold
  // all of that memory.
  [[gnu::cold]] static void RejectBeyondDevice(ClientState& client, std::uint32_t stream,
                                               CommandSlot& command);
  [[gnu::always_inline]] inline void OfferReady(ClientState& client, std::uint32_t stream,
                                                scheduler::TimePoint now);
  [[gnu::cold]] void FailStream(ClientState& client, std::uint32_t stream,
                                const CommandSlot& command, CommandFailure why,
                                scheduler::TimePoint now);
  void ReturnModule(ClientState& client, std::uint16_t module);
  void EndCommand(ClientState& client, StreamState& state, const CommandSlot& command);
  void Retire(ClientState& client, std::uint32_t stream, scheduler::TimePoint now);
  // Writes a record for `command`, regardless of `notice.id`.
  void WriteRecord(ClientState& client, const CommandSlot& command,
                   const ipc::CompletionNotice& notice);
  static void DestroyStream(ClientState& client, std::uint32_t stream, const CommandSlot& command);

  // Adds the client to unsettled_ if its stream may advance.
  void OnCompleted(const device::Completion& completion, scheduler::TimePoint now);
  void OnEnded(ClientState& client, CommandSlot& command, const device::Completion& completion,
               scheduler::TimePoint now);
  // Handles a command that left the device before all of its units were done.
  [[gnu::noinline]] void OnStopped(ClientState& client, CommandSlot& command,
                                   const device::Completion& completion, scheduler::TimePoint now);
  [[gnu::cold]] CommandFailure GetFailure(const CommandSlot& command,
                                          const device::Completion& completion) const;
  void MarkUnsettled(ClientState& client, std::uint32_t stream);
  // Must be called while the suspects' commands can still be identified by their names.
  [[gnu::cold]] void DescribeLoss(const device::DeviceLoss& loss);
  [[gnu::cold]] void Depart(ClientState& client, scheduler::TimePoint now);

  device::Device& device_;
  DeviceTotals& totals_;
  PerClient<DeviceTotals::Rows> totals_rows_;
  EnergyMeter energy_;
  const scheduler::Duration kill_after_;
  scheduler::DeviceLane& lane_;
  ClientRegistry& registry_;
  Requests& requests_;
  KernelLimiter& limiter_;
  StagingWatch& staging_watch_;
  Submitter& submitter_;
  Turns& turns_;
  Publisher& publisher_;
  std::vector<std::unique_ptr<ClientState>> departed_;
  std::vector<Broken> broken_;
  std::vector<Released> released_;
  std::vector<device::Completion> completions_;
  std::vector<device::Completion> turns_over_;  // Used within TakeCompletions.
  // Clients with streams to settle; used within TakeCompletions.
  std::vector<ClientState*> unsettled_;
  std::optional<Status> loss_;
  std::uint32_t leaving_ = 0;
  std::uint64_t commands_ = 0;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_DISPATCH_DISPATCHER_H_
