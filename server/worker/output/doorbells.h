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

// What ends a sleep of the device thread: the worker's own signal, and the doorbells of clients. A
// client has its eventfd, too, and may write it as often as it likes. Each write would cost a wake
// that takes a core for a moment and finds nothing to do. So not everybody is heard.
//
// Confined to the device thread.
class Doorbells {
 public:
  // `signal`: an eventfd that is always heard, and outlives this.
  static Result<Doorbells> Create(int signal);

  // Until Remove, where this succeeds.
  Status Add(ClientState& client);
  void Remove(const ClientState& client);

  // Call it before each sleep, and before the last look at the rings: a record that is published
  // between the two has to wake somebody. Returns when one that is not heard will be.
  //
  // A client whose commands fill all slots is not heard: its slots come free by what this thread
  // does. One that rings far more often than it has commands is not heard for a while. Who is heard
  // again may wake us once for an old ring. Nobody reads the counter: whether that may wait is up
  // to the client.
  std::optional<scheduler::TimePoint> Choose(std::span<ClientState* const> clients,
                                             scheduler::TimePoint now);
  // Empty: no matter how long it takes.
  void Wait(std::optional<std::chrono::nanoseconds> timeout);
  // Those that ended the last Wait. Before anybody is removed.
  void CountRings(scheduler::TimePoint now);
  // So many commands came out of its ring.
  void OnTaken(const ClientState& client, std::size_t commands);

 private:
  // Whether its doorbell ends a sleep.
  struct Door {
    bool is_heard = true;
    bool may_tell_old_ring = false;     // It is heard again, and has not rung since.
    std::uint32_t rings_left = 16;      // Before it is not heard for a while. Commands add some.
    scheduler::Duration pause{};        // The last such while,
    scheduler::TimePoint heard_from{};  // and its end.
  };

  explicit Doorbells(ipc::UniqueFd epoll) : epoll_(std::move(epoll)) {}
  // `change`: EPOLL_CTL_ADD or EPOLL_CTL_MOD. `client`: whose doorbell it is; null: nobody's.
  bool Set(int change, int fd, ClientState* client, bool is_heard);
  Status Watch(int fd, ClientState* client);

  ipc::UniqueFd epoll_;
  std::array<epoll_event, 64> events_{};  // Those of the last wait; more come with the next one.
  std::size_t count_ = 0;
  PerClient<Door> doors_;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_OUTPUT_DOORBELLS_H_
