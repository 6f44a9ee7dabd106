// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_OUTPUT_DOORBELLS_H_
#define GPUSHARED_SERVER_WORKER_OUTPUT_DOORBELLS_H_

#include <sys/epoll.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <utility>

#include "gpushared/result.h"

#include "ipc/unique_fd.h"
#include "scheduler/types.h"
#include "server/worker/state/client_state.h"
#include "server/worker/state/per_client.h"

namespace gpushared::server {

// Events that end a sleep of the device thread: the worker's own signal and the clients' doorbells.
// A client can write to its eventfd as often as it likes, and each write would cost a wake-up that
// briefly occupies a core and finds no work. Therefore doorbells that ring too often are muted.
//
// Confined to the device thread.
class Doorbells {
 public:
  // `signal`: an eventfd that is never muted. It must outlive this.
  static Result<Doorbells> Create(int signal);

  // On success, the doorbell stays registered until Remove.
  Status Add(ClientState& client);
  void Remove(const ClientState& client);

  // Mutes and unmutes doorbells. Must be called before the final check of the rings that precedes
  // each sleep, so that a record published after that check causes a wake-up. Returns the time at
  // which the next muted doorbell is unmuted, if any.
  //
  // A client whose commands fill all slots is muted, because only this thread can free its slots. A
  // client that rings far more often than it sends commands is muted for a while. An unmuted
  // doorbell may cause one wake-up for an old ring, because the counter is never read: reading
  // could block, depending on flags that the client controls.
  std::optional<scheduler::TimePoint> Choose(std::span<ClientState* const> clients,
                                             scheduler::TimePoint now);
  // Without a timeout, waits indefinitely.
  void Wait(std::optional<std::chrono::nanoseconds> timeout);
  // Counts the rings that ended the last Wait. Must be called before any client is removed.
  void CountRings(scheduler::TimePoint now);
  // Reports how many commands were taken from the client's ring.
  void OnTaken(const ClientState& client, std::size_t commands);

 private:
  // State of one doorbell.
  struct State {
    bool is_heard = true;
    bool may_report_old_ring = false;   // Was unmuted, and has not rung since.
    std::uint32_t rings_left = 16;      // Rings until it is muted; commands add to them.
    scheduler::Duration pause{};        // Duration of the last mute.
    scheduler::TimePoint heard_from{};  // End of the last mute.
  };

  explicit Doorbells(ipc::UniqueFd epoll) : epoll_(std::move(epoll)) {}
  // `change`: EPOLL_CTL_ADD or EPOLL_CTL_MOD. `client`: owner of the doorbell; null for the
  // worker's signal.
  bool Set(int change, int fd, ClientState* client, bool is_heard);
  Status Watch(int fd, ClientState* client);

  ipc::UniqueFd epoll_;
  // Events of the last wait; the next wait reports further ones.
  std::array<epoll_event, 64> events_{};
  std::size_t count_ = 0;
  PerClient<State> states_;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_OUTPUT_DOORBELLS_H_
