// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_DISPATCH_SUBMITTER_H_
#define GPUSHARED_SERVER_WORKER_DISPATCH_SUBMITTER_H_

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>

#include "ipc/wire/layout.h"
#include "scheduler/device_lane.h"
#include "scheduler/types.h"
#include "server/device/device.h"
#include "server/telemetry/trace/execution_record.h"
#include "server/worker/dispatch/kernel_limiter.h"
#include "server/worker/dispatch/turns.h"
#include "server/worker/output/requests.h"
#include "server/worker/output/tracer.h"
#include "server/worker/state/client_graphs.h"
#include "server/worker/state/client_registry.h"
#include "server/worker/state/client_state.h"
#include "server/worker/state/cost_model.h"
#include "server/worker/state/per_client.h"

namespace gpushared::server {

// Manages ready commands in the lane and on the device: how each is submitted, preempted, charged
// and measured.
//
// Confined to the device thread.
class Submitter {
 public:
  // All references must outlive this. `secret` is passed to CostModel.
  Submitter(device::Device& device, scheduler::DeviceLane& lane, const ClientRegistry& registry,
            Requests& requests, KernelLimiter& limiter, Tracer& tracer, Turns& turns,
            scheduler::Duration slice, const HashSeed& secret);

  void OnClientAdded(const ClientState& client) { of_client_.Begin(client); }

  // Prepares the stream's next command for the lane: splits off the part of a graph launch that is
  // submitted later. Returns false if the stream must wait for a free slot.
  bool Cut(ClientState& client, std::uint32_t slot);
  // Submits a ready command to the lane.
  void Offer(ClientState& client, std::uint32_t slot, scheduler::TimePoint now);
  // Removes the stream's queued commands from the lane and requests preemption of its running ones.
  void Withdraw(ClientState& client, std::uint32_t stream, scheduler::TimePoint now);
  // Withdraws commands that were submitted to the lane as non-preemptible but are now worth
  // preempting, together with all later commands of their streams. Their streams are to be settled,
  // which submits the commands again.
  void Review(ClientState& client, scheduler::TimePoint now);
  // Withdraws all of the client's queued commands; their streams submit them again.
  void TakeAllBack(ClientState& client, scheduler::TimePoint now);
  // Called when a client has connected, left or changed. Calls Review for each client that must be
  // preemptible now and did not have to be before.
  void ReviewPreemptibility(scheduler::TimePoint now);

  // Requests preemption of a command on the device.
  void RequestStop(device::WorkId name) {
    device_.RequestStop(name);
    turns_.RequestStop(name);
  }
  // Carries out the lane's decisions.
  void Dispatch(scheduler::TimePoint now);
  // Charges and measures a command that has left the device. Returns true if it has units left.
  bool TakeOff(ClientState& client, CommandSlot& command, const device::Completion& completion,
               scheduler::TimePoint now);
  // Returns the rest of a preempted command to the lane.
  void OfferRest(ClientState& client, std::uint32_t slot, scheduler::TimePoint now);
  // Requeues a command that was preempted together with the launch before it. Its stream submits it
  // again.
  static void QueueRest(ClientState& client, std::uint32_t slot);
  // Whether the earlier preemptible commands permit submitting the stream's next command.
  bool MayFollow(const ClientState& client, const StreamState& state);
  // Called when a command has ended. If it was a non-preemptible launch that took far longer than
  // predicted, disregards short predictions for the client's next launches, and withdraws launches
  // that were already submitted as short.
  void ReviewTrust(ClientState& client, const CommandSlot& command, scheduler::TimePoint now);
  // Updates the cost model after a command that ran to completion.
  void Learn(const CommandSlot& command, scheduler::TimePoint now);
  // Updates the host steal, so that clients are not charged for time that the host withheld from
  // the device.
  void RecordHostSteal(scheduler::TimePoint now);

  // Adds the device time of running work to the counters. Called before the counters are read,
  // because a kernel may run for minutes.
  void CountRunning(scheduler::TimePoint now);

  bool has_high_class_on_device() const { return high_on_device_ > 0; }
  CostModel& costs() { return costs_; }
  const CostModel& costs() const { return costs_; }

 private:
  static constexpr std::uint32_t kDistrustMin = 4096, kDistrustMax = std::uint32_t{1} << 20;
  struct OfClient {
    // The client's launches should be preemptible, because another client is connected for which
    // the policy would preempt them.
    bool must_be_preemptible = false;
    // Number of further launches that are considered worth preempting even if they are predicted to
    // be short, and the number that applies after the next launch that takes far longer than
    // predicted.
    std::uint32_t distrusted_launches = 0;
    std::uint32_t next_distrust = kDistrustMin;
    device::WorkId running = 0;  // The work named by ClientState::running; 0 if none.
    std::array<std::uint32_t, ipc::kStreamsMax> on_device_of_stream = {};
  };

  // Shorter commands are submitted to the device back to back even if they are preemptible, because
  // waiting for each to end would cost more than preemption could save.
  static constexpr scheduler::Duration kWorthStopping = std::chrono::microseconds(100);
  // Maximum window of a gated client while a client whose latency matters is connected. The window
  // is short, because the latter waits for the work in flight.
  static constexpr scheduler::Duration kUrgentWindow = std::chrono::microseconds(250);
  // A launch that takes at least a time slice and kFarLonger times its prediction is not one of the
  // outliers that exceed a predicted quantile: the prediction is wrong.
  static constexpr int kFarLonger = 4;

  scheduler::Duration Predict(const CommandSlot& command) const;
  // Publishes to a gated client how much it may have in flight, given the connected clients.
  void SetGate(ClientState& client) const;
  // Whether the device can preempt the command in its current form if it takes longer than
  // predicted.
  bool CanStopLate(const ClientState& client, const CommandSlot& command) const;
  // Whether another client may need the command preempted, and the command is long enough to be
  // worth preempting.
  bool ShouldBePreemptible(const ClientState& client, const CommandSlot& command,
                           scheduler::Duration predicted) const;
  // Whether the command should run in a preemptible way.
  bool IsWorthStopping(const ClientState& client, const CommandSlot& command,
                       scheduler::Duration predicted);
  bool TriesOriginal(const ClientState& client, const CommandSlot& command,
                     scheduler::Duration predicted) const;
  [[gnu::cold]] void RecordSlowForm(const ClientState& client, const CommandSlot& command);
  // Whether the client's commands must be preemptible, given the connected clients.
  bool MustBePreemptible(const ClientState& client) const;
  // Whether the command's part of a graph should be split further.
  bool IsWorthCutting(const ClientState& client, const CommandSlot& command) const;
  // Returns the end of the node range of the part to be submitted next.
  std::uint32_t EndOfPart(const ClientState& client, const CommandSlot& command) const;
  // Updates the predictions of the graph's nodes, if they may have changed.
  void Refresh(const ClientState& client, Graph& graph) const;
  void TakeForm(ClientState& client, CommandSlot& command) const;
  void LearnGraph(const CommandSlot& command) const;
  static void TakeBack(ClientState& client, std::span<const std::uint64_t> names);
  void Submit(const scheduler::Action& action, scheduler::TimePoint now);
  void CountSubmission(ClientState& client, CommandSlot& command, scheduler::TimePoint now);
  // `held`: device time of the current submission since its beginning.
  static void CountDeviceTime(ClientState& client, CommandSlot& command, scheduler::Duration held);
  // Publish the client's oldest work on the device, which the control thread names in messages.
  void NameRunning(ClientState& client, const CommandSlot& command);
  void NameNextRunning(ClientState& client, const CommandSlot& left);
  // Called when the command `name` has outlived its prediction. Makes the work of its stream on the
  // device preemptible, and keeps the stream from submitting more until this work has left.
  [[gnu::cold]] void HoldOutlived(device::WorkId name, scheduler::TimePoint now);
  [[gnu::noinline]] void AskToStop(device::WorkId name, scheduler::TimePoint now);
  // Called when a command leaves the device while the high class has work there. Records the
  // command if it was not preemptible.
  void RecordNonpreemptible(ClientState& client, const CommandSlot& command,
                            const trace::ExecutionRecord& record) const;
  trace::ExecutionRecord GetRecord(const ClientState& client, const CommandSlot& command,
                                   const device::Completion& completion,
                                   scheduler::Duration charged, scheduler::TimePoint now) const;
  // Whether no other stream has had work on the device since the command was submitted.
  bool IsAlone(const Submission& submission) const {
    return submission.was_alone() && submission.overlaps == overlaps_;
  }
  // Whether no other client has had work on the device since the command was submitted.
  bool IsAmongOwn(const Submission& submission) const {
    return !submission.shares_device && submission.client_overlaps == client_overlaps_;
  }
  void Measure(CommandSlot& command, const device::Completion& completion) const;

  device::Device& device_;
  scheduler::DeviceLane& lane_;
  const ClientRegistry& registry_;
  Requests& requests_;
  KernelLimiter& limiter_;
  Tracer& tracer_;
  Turns& turns_;
  const scheduler::Duration slice_;
  const bool can_stop_launches_;
  const bool has_forms_;  // Preemptible launches run a different form of the kernel.
  CostModel costs_;
  PerClient<OfClient> of_client_;
  std::uint64_t next_serial_ = 1;
  std::uint64_t overlaps_ = 0;           // Submissions while other streams had work on the device.
  std::uint32_t streams_on_device_ = 0;  // Streams with work on the device.
  std::uint64_t client_overlaps_ = 0;    // Submissions while other clients had work on the device.
  std::uint32_t clients_on_device_ = 0;
  std::uint32_t high_on_device_ = 0;
  scheduler::TimePoint high_since_{};  // Valid while high_on_device_ is not 0.
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_DISPATCH_SUBMITTER_H_
