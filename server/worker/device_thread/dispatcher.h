// SPDX-License-Identifier: Apache-2.0
// From a stream's queue to the device and back.

#ifndef GPUSHARED_SERVER_WORKER_DEVICE_THREAD_DISPATCHER_H_
#define GPUSHARED_SERVER_WORKER_DEVICE_THREAD_DISPATCHER_H_

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gpushared/status.h"

#include "scheduler/device_lane.h"
#include "server/device/device.h"
#include "server/worker/device_thread/activity_meter.h"
#include "server/worker/device_thread/client_state.h"
#include "server/worker/device_thread/cost_model.h"
#include "server/worker/device_thread/counters.h"
#include "server/worker/device_thread/kernel_watch.h"
#include "server/worker/device_thread/messages.h"
#include "server/worker/device_thread/stay_log.h"
#include "server/worker/device_thread/stream_queue.h"

namespace gpushared::server {

struct DispatcherOptions {
  scheduler::LaneOptions lane;
  scheduler::Duration slice = std::chrono::milliseconds(2);
  scheduler::Duration kill_after = std::chrono::milliseconds(100);
  KernelLimits kernel_limits;
  LimitEndsDevice limit_ends_device = {true, true, true};
  scheduler::Duration leaves_within = std::chrono::seconds(2);  // See WorkerOptions.
};

// Decides which commands are ready, lets the lane decide which of them run, and turns their
// ends into timelines and completion records.
//
// A command is ready when three things hold. All before it in its stream were submitted, none of
// those can be stopped half way, and its waits have finished. A command that fails fails its
// stream. Later commands are skipped and counted as finished. Waits of other streams recognise them
// as failed, until the stream is destroyed.
//
// Publish writes everything that clients can see, once per batch. It writes completion records
// first. So a client that sees a timeline advance finds the record that belongs to it.
//
// Confined to the device thread.
class Dispatcher {
 public:
  // `device` outlives the dispatcher.
  Dispatcher(device::Device& device, std::unique_ptr<scheduler::Policy> policy,
             const DispatcherOptions& options);

  // There is room: the control thread counts sessions.
  ClientState& AddClient(std::unique_ptr<ClientState> client, scheduler::TimePoint now);
  void ChangeClient(ClientState& client, const scheduler::ClientSpec& spec,
                    scheduler::TimePoint now);
  // Drops what is queued and asks the device to stop what runs. The client shows up in
  // TakeDeparted when nothing of it is left on the device.
  void RemoveClient(ClientState& client, scheduler::TimePoint now);
  std::unique_ptr<ClientState> TakeDeparted();  // Null when there is none.

  // The client's bytes can't come from an honest client: nothing more is taken from it. Once
  // per client; shows up in broken().
  void Break(ClientState& client, Status why);
  struct Broken {
    std::uint64_t session = 0;
    Status why;
  };
  std::vector<Broken>& broken() { return broken_; }
  // Modules whose last command has finished, by session; the caller empties it.
  struct Released {
    std::uint64_t session = 0;
    std::uint32_t module = 0;
  };
  std::vector<Released>& released() { return released_; }
  // Releases it now when no command uses it.
  void LetGoOfModule(ClientState& client, std::uint32_t module);

  // A request that the client marks begins on this stream, where none is begun and not ended.
  // Breaks the client when it has as many open as it may.
  void BeginRequest(ClientState& client, std::uint32_t stream, scheduler::Duration age,
                    scheduler::TimePoint now);
  // The client expects its next request in `in`.
  void ExpectRequest(ClientState& client, scheduler::Duration in, scheduler::TimePoint now);
  // A slot filled by the pump, in ring order. The caller then calls Settle.
  void Append(ClientState& client, std::uint32_t slot, scheduler::TimePoint now);
  // Moves the marked streams of a client on as far as they go.
  void Settle(ClientState& client, scheduler::TimePoint now);
  void MarkDirty(ClientState& client) {
    if (client.is_dirty) return;
    client.is_dirty = true;
    dirty_.push_back(&client);
  }

  // So that nobody is charged for what the device's host did until now.
  void NoteHostDelay(scheduler::TimePoint now);
  // Carries out what the lane decides.
  void Dispatch(scheduler::TimePoint now);
  // Returns how many commands left the device.
  std::size_t TakeCompletions(scheduler::TimePoint now);
  // Kills what leaving clients still have on the device after their time.
  void KillOverdue(scheduler::TimePoint now);
  // Ends kernels that are beyond the limit of their class: alone where the device can do that and
  // does, else with the device, which is lost then.
  void EnforceKernelLimits(scheduler::TimePoint now);
  // Those that were told to end since the last call.
  KernelsEnded TakeKernelsEnded() { return std::exchange(kernels_ended_, {}); }
  bool has_ended_kernels() const { return kernels_ended_.count > 0; }
  // Notes for the log, one per kernel.
  std::vector<KernelNoted>& noted() { return noted_; }

  // What is left to be done by threads that sleep on a publication: wake them, on another thread.
  struct Asleep {
    const std::atomic<std::uint32_t>* futex = nullptr;
    std::uint32_t count = 0;
  };
  // Clients that are not to wait for others are published first. Fills asleep().
  void Publish();
  std::vector<Asleep>& asleep() { return asleep_; }

  // When one of the three above has something to do even if nothing happens.
  std::optional<scheduler::TimePoint> wake_at() const;

  // Present clients, in no order.
  const std::vector<ClientState*>& clients() const { return present_; }
  ClientState* Find(std::uint64_t session) const;
  // Why the device is lost, once it is, and who may have done it.
  const std::optional<Status>& loss() const { return loss_; }
  // Whether the policy lets nobody else go before the client without need.
  bool IsUrgent(const ClientState& client) const { return lane_.rules().IsUrgent(client.spec); }
  bool has_urgent_request() const { return clients_with_urgent_request_ > 0; }
  bool has_high_class_in_flight() const { return high_in_flight_ > 0; }
  std::uint64_t commands() const { return commands_; }
  std::uint64_t wakes() const { return wakes_; }
  scheduler::Duration busy_time() const { return lane_.charged_total(); }
  scheduler::Duration host_delay() const { return lane_.host_delay(); }
  scheduler::Duration lookahead() const { return lane_.lookahead(); }
  scheduler::PromiseReport promises() const { return lane_.promises(); }
  const ActivityMeter::Gaps& gaps() const { return meter_.gaps(); }
  // Brings share errors up to date.
  void RefreshShares(scheduler::TimePoint now) {
    for (ClientState* const client : present_) meter_.Refresh(client->activity, now);
  }
  CostModel& costs() { return costs_; }
  const CostModel& costs() const { return costs_; }

 private:
  // Shorter commands go to the device back to back, also those that could be stopped: waiting
  // for each to end would cost more than what stopping it could save.
  static constexpr scheduler::Duration kWorthStopping = std::chrono::microseconds(100);
  // A kernel that others waited for so long after it was asked to stop is worth a line in the log.
  static constexpr scheduler::Duration kSlowStop = std::chrono::milliseconds(50);
  static constexpr std::size_t kKernelsNotedMax = 1024;

  // The next step of a stream's front.
  enum class FrontOutcome { kRetired, kStays };

  FrontOutcome SettleFront(ClientState& client, std::uint32_t stream, scheduler::TimePoint now);
  FrontOutcome SettleHostCommand(ClientState& client, std::uint32_t stream, CommandSlot& command,
                                 scheduler::TimePoint now);
  bool SettleWait(ClientState& client, std::uint32_t stream, const CommandSlot& command,
                  scheduler::TimePoint now);
  void OfferReady(ClientState& client, std::uint32_t stream, scheduler::TimePoint now);
  void Offer(ClientState& client, std::uint32_t slot, scheduler::TimePoint now);
  // Whether the command is to run so that it can be stopped.
  bool IsWorthStopping(const ClientState& client, const CommandSlot& command);
  // Whether commands of the client are to give way, by who else is here.
  bool MustGiveWay(const ClientState& client) const;
  // After a change of who is here, or what they are.
  void ReviewGivingWay(scheduler::TimePoint now);
  // Takes back commands that were offered as unstoppable and are worth stopping now, with
  // everything behind them in their streams. Offers them anew.
  void OfferAnew(ClientState& client, scheduler::TimePoint now);
  void FailStream(ClientState& client, std::uint32_t stream, const CommandSlot& command,
                  CommandFailure why, scheduler::TimePoint now);
  void DropOffered(ClientState& client, std::uint32_t stream, scheduler::TimePoint now);
  void Retire(ClientState& client, std::uint32_t stream, scheduler::TimePoint now);
  // After every change of the client's open requests, or of the client.
  void NoteRequests(ClientState& client);
  // The oldest of that stream, when there is one.
  void EndRequest(ClientState& client, std::uint32_t stream, scheduler::TimePoint now);
  OpenRequest OpenNow(ClientState& client, std::uint32_t stream, scheduler::TimePoint arrived,
                      scheduler::TimePoint now);
  void Report(ClientState& client, const OpenRequest& request, bool has_failed,
              scheduler::TimePoint now);
  void CountRequest(ClientState& client, const OpenRequest& request, bool has_failed,
                    scheduler::TimePoint now);
  void CountRetired(ClientState& client, const CommandSlot& command);
  void WriteRecord(ClientState& client, ipc::CompletionKind kind, const CommandSlot& command,
                   StatusCode code, std::uint64_t started_ns, std::uint64_t ended_ns);
  void DestroyStream(ClientState& client, std::uint32_t stream, const CommandSlot& command);

  void Submit(const scheduler::Action& action, scheduler::TimePoint now);
  // Leaves the client in unsettled_ if its stream may move on.
  void OnCompleted(const device::Completion& completion, scheduler::TimePoint now);
  // Measures the ended submission's cost; Learn takes all of a command's submissions together.
  void Measure(CommandSlot& command, const device::Completion& completion) const;
  void Learn(const CommandSlot& command, scheduler::TimePoint now);
  bool watches() const { return has_kernel_limits_; }
  // While the suspects' commands can still be told by their names.
  void DescribeLoss(const device::DeviceLoss& loss);
  void MarkUnsettled(ClientState& client, std::uint32_t stream);
  void OnStopped(ClientState& client, std::uint32_t slot, scheduler::TimePoint now);
  void Watch(const ClientState& client, const CommandSlot& command, std::uint8_t priority,
             scheduler::TimePoint now);
  // A kernel that was told to end.
  struct Told {
    device::WorkId id = 0;
    scheduler::TimePoint until;
    std::string sentence;  // Names its limit.
  };
  void EndKernel(const KernelWatch::Overdue& overdue, scheduler::TimePoint now);
  void EndWithDevice(device::WorkId id, const std::string& why);
  // Unless it was said of this kernel before.
  void NoteKernel(const ClientState& client, const CommandSlot& command, const std::string& what);
  void NoteSlowStop(const ClientState& client, const CommandSlot& command,
                    scheduler::TimePoint now);
  // After every change of what the client has ready or on the device.
  void NotePhase(ClientState& client, scheduler::TimePoint now);
  void NoteWait(ClientState& client, scheduler::TimePoint from, scheduler::TimePoint now);
  void NoteStop(device::WorkId id, scheduler::TimePoint now);
  void NoteStay(ClientState& client, const CommandSlot& command, scheduler::Duration charged,
                bool was_stopped, scheduler::TimePoint now);
  void NameStay(const Stay& stay, ShortText& name) const;
  void CountSubmission(ClientState& client, CommandSlot& command, scheduler::TimePoint now);
  void LeaveDevice(ClientState& client, CommandSlot& command);
  // Null for names of commands that are not on the device.
  ClientState* ClientOf(device::WorkId id) const;
  void Depart(ClientState& client);

  device::Device& device_;
  const DispatcherOptions options_;
  const bool can_stop_launches_;
  const bool can_stop_copies_;
  scheduler::DeviceLane lane_;
  const bool has_kernel_limits_;
  KernelWatch watch_;
  std::vector<Told> told_;  // Oldest first; of those that may not do it.
  KernelsEnded kernels_ended_;
  CostModel costs_;
  ActivityMeter meter_;
  StayLog stays_;
  std::array<std::unique_ptr<ClientState>, kSessionsLimit> table_;  // By ClientState::index.
  std::vector<ClientState*> present_;
  std::vector<ClientState*> dirty_;
  std::vector<std::unique_ptr<ClientState>> departed_;
  std::vector<Broken> broken_;
  std::vector<Released> released_;
  std::vector<Asleep> asleep_;
  std::vector<KernelNoted> noted_;
  std::set<std::uint64_t> kernels_noted_;  // By CommandSlot::cost_kernel.
  std::vector<device::Completion> completions_;
  std::vector<ClientState*> unsettled_;  // Have streams to settle, within TakeCompletions.
  std::optional<Status> loss_;
  std::uint64_t next_serial_ = 1;
  std::uint64_t overlaps_ = 0;           // Times a stream joined others on the device.
  std::uint32_t streams_in_flight_ = 0;  // With work on the device.
  std::uint32_t high_in_flight_ = 0;
  std::uint32_t clients_with_urgent_request_ = 0;
  std::uint32_t leaving_ = 0;
  std::uint64_t commands_ = 0;
  std::uint64_t wakes_ = 0;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_DEVICE_THREAD_DISPATCHER_H_
