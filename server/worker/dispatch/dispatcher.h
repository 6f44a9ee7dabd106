// SPDX-License-Identifier: Apache-2.0
// From a stream's queue to the device and back.

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
#include "server/worker/output/publisher.h"
#include "server/worker/output/requests.h"
#include "server/worker/state/client_registry.h"
#include "server/worker/state/client_state.h"
#include "server/worker/state/per_client.h"

namespace gpushared::server {

// The order of commands in their streams: which are ready, what becomes of those that have ended,
// and what of their clients when they leave.
//
// A command is ready when three things hold. All before it in its stream were submitted, none of
// those can be stopped half way without it, and its waits have finished. A command that fails fails
// its stream. Later commands are skipped and counted as finished. Waits of other streams recognise
// them as failed, until the stream is destroyed.
//
// Others have the other duties: Submitter knows the lane and the device, Requests what clients wait
// for, KernelLimiter which kernels run too long, Publisher what clients see.
//
// Confined to the device thread.
class Dispatcher {
 public:
  // All outlive the dispatcher.
  struct Parts {
    device::Device& device;
    DeviceTotals& totals;
    scheduler::DeviceLane& lane;
    ClientRegistry& registry;
    Requests& requests;
    KernelLimiter& limiter;
    StagingWatch& staging_watch;
    Submitter& offers;
    Publisher& publisher;
  };
  Dispatcher(const Parts& parts, scheduler::Duration kill_after);

  // There is room: the control thread counts sessions.
  ClientState& AddClient(std::unique_ptr<ClientState> client, scheduler::TimePoint now);
  void ChangeClient(ClientState& client, const scheduler::ClientSpec& spec, const ClientCaps& caps,
                    scheduler::TimePoint now);
  // Memory of the client is back on the device: commands that waited for it may start.
  void OnMemoryCame(ClientState& client, scheduler::TimePoint now);
  // Some has gone: commands that have not started wait for it, whatever was settled about them.
  void OfferAgain(ClientState& client, scheduler::TimePoint now);
  // Drops what is queued and asks the device to stop what runs. The client shows up in
  // TakeDeparted when nothing of it is left on the device.
  void RemoveClient(ClientState& client, scheduler::TimePoint now);
  std::unique_ptr<ClientState> TakeDeparted();  // Null when there is none.

  // The client's bytes can't come from an honest client: nothing more is taken from it. Once
  // per client; shows up in broken().
  [[gnu::cold]] void Break(ClientState& client, Status why);
  struct Broken {
    std::uint64_t session = 0;
    Status why;
  };
  // The caller empties it.
  std::vector<Broken>& broken() { return broken_; }
  // Modules whose last command has finished, by session; the caller empties it.
  struct Released {
    std::uint64_t session = 0;
    std::uint32_t module = 0;
  };
  std::vector<Released>& released() { return released_; }
  // What the client asked for behind its commands takes effect, if it can. True: it has.
  bool TryPassBarrier(ClientState& client);

  // A slot filled by the pump, in ring order. The caller then calls Settle.
  void Append(ClientState& client, std::uint32_t slot, scheduler::TimePoint now);
  // Moves the marked streams of a client on as far as they go.
  void Settle(ClientState& client, scheduler::TimePoint now);

  // Returns how many commands left the device.
  std::size_t TakeCompletions(scheduler::TimePoint now);
  // Kills what leaving clients still have on the device after their time, and kernels beyond their
  // limit.
  void KillOverdue(scheduler::TimePoint now);
  // When Submitter::Dispatch or KillOverdue has something to do even if nothing happens.
  std::optional<scheduler::TimePoint> wake_at() const;

  // Why the device is lost, once it is, and who may have done it.
  const std::optional<Status>& loss() const { return loss_; }
  std::uint64_t commands() const { return commands_; }  // Finished.

 private:
  void LimitClient(const ClientState& client, scheduler::TimePoint now);
  // The next step of a stream's front.
  enum class FrontOutcome { kRetired, kStays };

  FrontOutcome SettleFront(ClientState& client, std::uint32_t stream, scheduler::TimePoint now);
  // Out of line: most commands are for the device.
  [[gnu::noinline]] FrontOutcome SettleHostCommand(ClientState& client, std::uint32_t stream,
                                                   CommandSlot& command, scheduler::TimePoint now);
  bool SettleWait(ClientState& client, std::uint32_t stream, const CommandSlot& command,
                  scheduler::TimePoint now);
  void SettleChange(ClientState& client, std::uint32_t stream, CommandSlot& command,
                    scheduler::TimePoint now);
  void SettleMark(ClientState& client, const StreamState& state, const CommandSlot& command);
  void SettleAll(scheduler::TimePoint now);
  // A command whose memory is not there: fails it where it can never be.
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
  // About `command`, whatever `notice.id` says.
  void WriteRecord(ClientState& client, const CommandSlot& command,
                   const ipc::CompletionNotice& notice);
  static void DestroyStream(ClientState& client, std::uint32_t stream, const CommandSlot& command);

  // Leaves the client in unsettled_ if its stream may move on.
  void OnCompleted(const device::Completion& completion, scheduler::TimePoint now);
  void OnEnded(ClientState& client, CommandSlot& command, const device::Completion& completion,
               scheduler::TimePoint now);
  // It left with units to do.
  [[gnu::noinline]] void OnStopped(ClientState& client, CommandSlot& command,
                                   const device::Completion& completion, scheduler::TimePoint now);
  [[gnu::cold]] CommandFailure GetFailure(const CommandSlot& command,
                                          const device::Completion& completion) const;
  void MarkUnsettled(ClientState& client, std::uint32_t stream);
  // While the suspects' commands can still be told by their names.
  [[gnu::cold]] void DescribeLoss(const device::DeviceLoss& loss);
  [[gnu::cold]] void Depart(ClientState& client);

  device::Device& device_;
  DeviceTotals& totals_;
  PerClient<std::size_t> totals_rows_;
  const scheduler::Duration kill_after_;
  scheduler::DeviceLane& lane_;
  ClientRegistry& registry_;
  Requests& requests_;
  KernelLimiter& limiter_;
  StagingWatch& staging_watch_;
  Submitter& submitter_;
  Publisher& publisher_;
  std::vector<std::unique_ptr<ClientState>> departed_;
  std::vector<Broken> broken_;
  std::vector<Released> released_;
  std::vector<device::Completion> completions_;
  std::vector<ClientState*> unsettled_;  // Have streams to settle, within TakeCompletions.
  std::optional<Status> loss_;
  std::uint32_t leaving_ = 0;
  std::uint64_t commands_ = 0;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_DISPATCH_DISPATCHER_H_
