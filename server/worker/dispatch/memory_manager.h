// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_DISPATCH_MEMORY_KEEPER_H_
#define GPUSHARED_SERVER_WORKER_DISPATCH_MEMORY_KEEPER_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "scheduler/residency.h"
#include "scheduler/types.h"
#include "server/device/device.h"
#include "server/worker/dispatch/dispatcher.h"
#include "server/worker/dispatch/page_use.h"
#include "server/worker/output/mailbox.h"
#include "server/worker/output/messages.h"
#include "server/worker/state/client_state.h"
#include "server/worker/state/counters.h"
#include "server/worker/state/per_client.h"

namespace gpushared::server {

// Carries out what scheduler::Residency decides: holds clients whose memory is not on the device,
// and has the control thread move it. Tells Residency who has commands, and, where the device moves
// single steps, how much of what is moved out they do not touch. A client that has all that its
// next commands touch is let go. From then on each command starts when all is there that it may
// touch.
//
// Confined to the device thread.
class MemoryManager {
 public:
  // All outlive it.
  struct Parts {
    const device::Device& device;
    scheduler::DeviceLane& lane;
    const ClientRegistry& registry;
    Requests& requests;
    Publisher& publisher;
    Dispatcher& dispatcher;
  };
  MemoryManager(const Parts& parts, Mailbox<ControlMessage>& control,
                const scheduler::ResidencyOptions& options)
      : device_(parts.device),
        lane_(parts.lane),
        registry_(parts.registry),
        requests_(parts.requests),
        publisher_(parts.publisher),
        dispatcher_(parts.dispatcher),
        control_(control),
        residency_(options),
        look_every_(options.look_every) {}

  void OnClientAdded(const ClientState& client);
  void OnClientChanged(const ClientState& client, scheduler::TimePoint now);
  void OnClientLeaving(ClientState& client, scheduler::TimePoint now);
  void OnMemory(ClientState& client, const device::SpaceUse& use, scheduler::TimePoint now);
  void OnSwapped(ClientState& client, const MemorySwapped& moved, scheduler::TimePoint now);
  void RequestMemory(const ClientState& client, std::uint64_t bytes, scheduler::TimePoint now);
  // Memory came back of a client that has left.
  void OnFreed() { is_due_ = true; }

  // Once per turn. `was_busy`: something happened to clients' commands.
  void Review(bool was_busy, scheduler::TimePoint now);
  std::optional<scheduler::TimePoint> wake_at() const;

  scheduler::MemoryRequestStats request_stats() const { return residency_.request_stats(); }
  MemorySnapshot GetSnapshot(const ClientState& client, scheduler::TimePoint now) const;

 private:
  // The more there is to look at, the less often: what clients hold and queue does not decide how
  // much of the device thread's time looks take. One stream, piece or step takes 8.5 ns (measured,
  // 2-core AMD EPYC): about a hundredth.
  static constexpr scheduler::Duration kPausePerItem = std::chrono::nanoseconds(800);

  scheduler::MemoryGrant GetGrant(const ClientState& client) const;
  scheduler::MemorySuspended GetHeld(const ClientState& client, const device::SpaceUse& use);
  // Says in `held` what its next commands do not touch.
  void RecordNeed(const ClientState& client, scheduler::MemorySuspended& held);
  // Finds out what its next commands touch.
  void Look(ClientState& client, scheduler::TimePoint now);
  // Whether its next commands wait for steps, from now on.
  void RecordLack(ClientState& client, scheduler::TimePoint now);
  // Steps may be there that were not.
  void OnPagesSwapped(ClientState& client, const device::SpaceUse& use, scheduler::TimePoint now);
  // Brings its totals up to date.
  void Count(ClientState& client, scheduler::TimePoint now);
  // Shows the client what it has, and how much of that others want.
  void Show(ClientState& client);
  void ReportWhoIsBusy(scheduler::TimePoint now);
  // Work of it has ended since the look before, or shortly before that: short commands come and go
  // between two looks.
  bool HadWork(ClientState& client, scheduler::TimePoint now);
  // Whether nothing is on the device any more of one whose end others wait for. Costs nothing while
  // there is none, so it needs no pause.
  bool ReportWhoHasDrained();
  void CarryOut(const scheduler::MemoryAction& action, scheduler::TimePoint now);
  void Move(ClientState& client, const scheduler::MemoryAction& action);
  bool IsUrgent(scheduler::ClientId client) const;

  struct OfClient {
    PageUse use;
    // At the last look at who is busy: launches, copies and fills, and until when they count.
    std::uint64_t work_ended = 0;
    scheduler::TimePoint had_work_until{};
    // The totals have so much of it.
    scheduler::MemorySwaps counted_swaps;
    scheduler::Duration counted_wait{};
  };

  const device::Device& device_;
  scheduler::DeviceLane& lane_;
  const ClientRegistry& registry_;
  Requests& requests_;
  Publisher& publisher_;
  Dispatcher& dispatcher_;
  Mailbox<ControlMessage>& control_;
  scheduler::Residency residency_;
  const scheduler::Duration look_every_;
  PerClient<OfClient> of_client_;
  std::vector<scheduler::ClientId> draining_;    // Held, with commands on the device.
  bool is_due_ = false;                          // Something was said that may change decisions.
  std::optional<scheduler::TimePoint> look_at_;  // Commands came or went since the last look.
  scheduler::TimePoint looked_{};
  scheduler::Duration look_pause_ = look_every_;  // From then on.
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_DISPATCH_MEMORY_KEEPER_H_
