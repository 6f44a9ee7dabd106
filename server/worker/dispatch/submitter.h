// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_DISPATCH_OFFERS_H_
#define GPUSHARED_SERVER_WORKER_DISPATCH_OFFERS_H_

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>

#include "ipc/wire/layout.h"
#include "scheduler/device_lane.h"
#include "scheduler/types.h"
#include "server/device/device.h"
#include "server/worker/dispatch/kernel_limiter.h"
#include "server/worker/output/requests.h"
#include "server/worker/output/stay_log.h"
#include "server/worker/output/tracer.h"
#include "server/worker/state/client_graphs.h"
#include "server/worker/state/client_registry.h"
#include "server/worker/state/client_state.h"
#include "server/worker/state/cost_model.h"
#include "server/worker/state/per_client.h"

namespace gpushared::server {

// Ready commands in the lane and on the device: how each is offered, submitted, stopped, charged
// and measured.
//
// Confined to the device thread.
class Submitter {
 public:
  // All but `slice` and `secret`, which is CostModel's, outlive it.
  Submitter(device::Device& device, scheduler::DeviceLane& lane, const ClientRegistry& registry,
            Requests& requests, KernelLimiter& limiter, Tracer& tracer, scheduler::Duration slice,
            const HashSeed& secret);

  void OnClientAdded(const ClientState& client) { of_client_.Begin(client); }

  // Makes the stream's next command one that may be offered: a graph's launch gives up what is to
  // be offered behind it. False: it waits for a free slot.
  bool Cut(ClientState& client, std::uint32_t slot);
  // A command whose turn has come goes to the lane.
  void Offer(ClientState& client, std::uint32_t slot, scheduler::TimePoint now);
  // Nothing of the stream's commands in the lane is to run; those on the device are asked to stop.
  void Withdraw(ClientState& client, std::uint32_t stream, scheduler::TimePoint now);
  // Commands that were offered as unstoppable, and are worth stopping now, are taken back with
  // everything behind them. Their streams are to be settled: that offers them anew.
  void Review(ClientState& client, scheduler::TimePoint now);
  // So is all that was offered.
  void TakeAllBack(ClientState& client, scheduler::TimePoint now);
  // The first for all for whose sake somebody came, left or changed.
  void ReviewGivingWay(scheduler::TimePoint now);

  // Carries out what the lane decides.
  void Dispatch(scheduler::TimePoint now);
  // A command left the device; is charged and measured. True: with units left to do.
  bool TakeOff(ClientState& client, CommandSlot& command, const device::Completion& completion,
               scheduler::TimePoint now);
  // The lane has the rest of a stopped command again.
  void OfferRest(ClientState& client, std::uint32_t slot, scheduler::TimePoint now);
  // The same of one behind a launch that was stopped with it: its stream offers it anew.
  static void QueueRest(ClientState& client, std::uint32_t slot);
  // Whether the stream's next command may be offered, as far as one that may be stopped is ahead.
  bool MayFollow(const ClientState& client, const StreamState& state);
  // A launch has left the device that could not be stopped and was far longer than predicted. The
  // next ones of its client are not believed to be short; what was offered as short is taken back.
  void ReviewTrust(ClientState& client, const CommandSlot& command, scheduler::TimePoint now);
  // A command that ran to its end is a lesson for the cost model.
  void Learn(const CommandSlot& command, scheduler::TimePoint now);
  // So that nobody is charged for what the device's host did until now.
  void RecordHostSteal(scheduler::TimePoint now);

  // Counts the device time of work that has not ended, for whoever is about to look at counters: a
  // kernel may run for minutes.
  void CountRunning(scheduler::TimePoint now);

  bool has_high_class_on_device() const { return high_on_device_ > 0; }
  CostModel& costs() { return costs_; }
  const CostModel& costs() const { return costs_; }

 private:
  static constexpr std::uint32_t kDistrustMin = 4096, kDistrustMax = std::uint32_t{1} << 20;
  struct OfClient {
    // Its launches are better stoppable: somebody is here for whom the policy would stop them.
    bool must_give_way = false;
    // Of so many further launches no prediction is believed that says they are too short to be
    // worth stopping; and of how many after the next one that is far longer than predicted.
    std::uint32_t distrusted_launches = 0;
    std::uint32_t next_distrust = kDistrustMin;
    device::WorkId running = 0;  // The work that ClientState::running names; 0: none.
    std::array<std::uint32_t, ipc::kStreamsMax> on_device_of_stream = {};
  };

  // Shorter commands go to the device back to back, also those that could be stopped: waiting
  // for each to end would cost more than what stopping it could save.
  static constexpr scheduler::Duration kWorthStopping = std::chrono::microseconds(100);
  // A launch that takes so many times its prediction, and a slice, was no exception of a quantile.
  static constexpr int kFarLonger = 4;

  // Whether the device can stop it as it runs, if it turns out to be longer than predicted.
  bool CanStopLate(const ClientState& client, const CommandSlot& command) const;
  // Whether somebody may want it stopped, and it is long enough for that.
  bool IsToGiveWay(const ClientState& client, const CommandSlot& command,
                   scheduler::Duration predicted) const;
  // Whether the command is to run so that it can be stopped.
  bool IsWorthStopping(const ClientState& client, const CommandSlot& command,
                       scheduler::Duration predicted);
  bool TriesOriginal(const ClientState& client, const CommandSlot& command,
                     scheduler::Duration predicted) const;
  [[gnu::cold]] void RecordSlowForm(const ClientState& client, const CommandSlot& command);
  // Whether commands of the client are to give way, by who else is here.
  bool MustGiveWay(const ClientState& client) const;
  // Whether what the command has of a graph is to go to the lane in smaller parts.
  bool IsWorthCutting(const ClientState& client, const CommandSlot& command) const;
  // One past the last node of the part that is to be offered next.
  std::uint32_t EndOfPart(const ClientState& client, const CommandSlot& command) const;
  // Looks up what the nodes of a graph take, if that may have changed.
  void Refresh(const ClientState& client, Graph& graph) const;
  void TakeForm(ClientState& client, CommandSlot& command) const;
  void LearnGraph(const CommandSlot& command) const;
  static void TakeBack(ClientState& client, std::span<const std::uint64_t> names);
  void Submit(const scheduler::Action& action, scheduler::TimePoint now);
  void CountSubmission(ClientState& client, CommandSlot& command, scheduler::TimePoint now);
  // `held`: by a submission of the command, from its beginning.
  static void CountDeviceTime(ClientState& client, CommandSlot& command, scheduler::Duration held);
  // Names the work to the control thread; the first of those of a client that are on the device.
  void NameRunning(ClientState& client, const CommandSlot& command);
  void NameNextRunning(ClientState& client, const CommandSlot& left);
  // Nothing follows what the stream of that work has on the device, until that has left.
  [[gnu::cold]] void HoldOutlived(device::WorkId name, scheduler::TimePoint now);
  [[gnu::noinline]] void AskToStop(device::WorkId name, scheduler::TimePoint now);
  // Notes what leaves the device while work of the high class is there.
  void RecordNonpreemptible(ClientState& client, const CommandSlot& command,
                            const Stay& stay) const;
  Stay GetStay(const ClientState& client, const CommandSlot& command,
               const device::Completion& completion, const scheduler::Charge& charge, bool is_part,
               scheduler::TimePoint now) const;
  // Whether no other stream has been on the device since the command came.
  bool IsAlone(const Submission& submission) const {
    return submission.was_alone() && submission.overlaps == overlaps_;
  }
  // The same of other clients.
  bool IsAmongOwn(const Submission& submission) const {
    return !submission.is_beside_clients && submission.client_overlaps == client_overlaps_;
  }
  void Measure(CommandSlot& command, const device::Completion& completion) const;

  device::Device& device_;
  scheduler::DeviceLane& lane_;
  const ClientRegistry& registry_;
  Requests& requests_;
  KernelLimiter& limiter_;
  Tracer& tracer_;
  const scheduler::Duration slice_;
  const bool can_stop_launches_;
  const bool has_forms_;  // Launches that can be stopped run as something else.
  CostModel costs_;
  PerClient<OfClient> of_client_;
  std::uint64_t next_serial_ = 1;
  std::uint64_t overlaps_ = 0;           // Times a stream joined others on the device.
  std::uint32_t streams_on_device_ = 0;  // With work there.
  std::uint64_t client_overlaps_ = 0;    // The same of clients.
  std::uint32_t clients_on_device_ = 0;
  std::uint32_t high_on_device_ = 0;
  scheduler::TimePoint high_since_{};  // While that is not 0.
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_DISPATCH_OFFERS_H_
