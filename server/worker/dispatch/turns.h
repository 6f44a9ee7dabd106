// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_DISPATCH_TURNS_H_
#define GPUSHARED_SERVER_WORKER_DISPATCH_TURNS_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "scheduler/types.h"
#include "server/device/device.h"
#include "server/worker/state/client_state.h"

namespace gpushared::server {

// The turns of gated clients that are on the device. Such a client submits its work to the driver
// itself, so its turn takes the place of a command. The turn begins when the client's gate opens,
// is preempted by closing the gate, and has left the device when the client's marks have passed.
//
// Confined to the device thread.
class Turns {
 public:
  // A turn without launches in flight ends after kIdle; a turn that has not launched anything yet,
  // after kUnused, because its client's threads may have to wake up first.
  static constexpr scheduler::Duration kIdle = std::chrono::microseconds(50);
  static constexpr scheduler::Duration kUnused = std::chrono::milliseconds(2);
  // A turn whose gate was closed ends after this time at the latest, even if its work has not: the
  // work may be waiting for another client, and the client may have forged the marks. Other clients
  // then run alongside the rest of the work.
  static constexpr scheduler::Duration kDrainMax = std::chrono::milliseconds(20);

  // `limit`: set if the policy never preempts; time after which a turn ends if other clients are
  // connected.
  explicit Turns(std::optional<scheduler::Duration> limit) : limit_(limit) {}

  bool empty() const { return turns_.empty(); }
  // Whether a turn is about to end, so that its end should be noticed soon.
  bool has_closed() const { return closed_ > 0; }

  // Opens the client's gate. `command` is its turn, which is on the device from now on.
  void Begin(ClientState& client, const CommandSlot& command, scheduler::TimePoint now);
  // Closes the gate; the turn completes as stopped. Ignored if `id` is not that of a turn.
  void RequestStop(device::WorkId id);
  // Closes the gate of each of the client's turns, which complete as if they had become idle. The
  // client then requests another turn.
  void End(const ClientState& client);
  // The turn completes at once, with kCancelled. Ignored if `id` is not that of a turn.
  void RequestKill(device::WorkId id);
  void KillAll();
  // Appends the completions of the turns that have ended.
  void TakeCompletions(std::vector<device::Completion>& out, scheduler::TimePoint now);

 private:
  enum class Ending : std::uint8_t { kNone, kStop, kEnd, kKill };
  struct Turn {
    device::WorkId id = 0;
    ClientState* client = nullptr;
    std::uint64_t number = 0;
    std::uint64_t units_before = 0;  // Launches of earlier parts of this turn.
    ClientGate::Use last;            // State at the last Review.
    scheduler::TimePoint began{}, changed_at{};
    Ending ending = Ending::kNone;
    std::optional<scheduler::TimePoint> closed_at;
  };

  Turn* Find(device::WorkId id);
  void Close(Turn& turn, Ending ending);
  // Returns whether the turn is over.
  bool Review(Turn& turn, scheduler::TimePoint now);
  bool HasDrained(const Turn& turn, scheduler::TimePoint now) const;

  const std::optional<scheduler::Duration> limit_;
  std::vector<Turn> turns_;  // Oldest first.
  std::uint32_t closed_ = 0;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_DISPATCH_TURNS_H_
