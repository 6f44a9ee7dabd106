// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_OUTPUT_PUBLISHER_H_
#define GPUSHARED_SERVER_WORKER_OUTPUT_PUBLISHER_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <utility>
#include <vector>

#include "server/worker/state/client_state.h"
#include "server/worker/state/per_client.h"
#include "server/worker/state/session_limits.h"

namespace gpushared::server {

// Writes everything that clients can see, once per batch. Completion records are written as they
// come, timelines at the end. So a client that sees a timeline advance finds the record that
// belongs to it.
//
// Confined to the device thread.
class Publisher {
 public:
  // What is left to be done by threads that sleep on a publication: wake them, on another thread.
  struct Asleep {
    const std::atomic<std::uint32_t>* futex = nullptr;
    std::uint32_t count = 0;
  };

  Publisher() {
    marked_.reserve(kSessionsLimit);
    asleep_.reserve(kSessionsLimit);
  }

  // The client has something to see.
  void Mark(ClientState& client) {
    if (std::exchange(is_marked_[client], true)) return;
    marked_.push_back(&client);
  }
  void Forget(ClientState& client) {
    std::erase(marked_, &client);
    is_marked_[client] = false;
  }
  // Clients for whom `is_urgent(client)` holds are published first. Fills asleep().
  template <typename IsUrgent>
  void Publish(IsUrgent is_urgent) {
    std::partition(marked_.begin(), marked_.end(), is_urgent);
    for (ClientState* const client : marked_) Publish(*client);
    marked_.clear();
  }
  // The caller empties it.
  std::vector<Asleep>& asleep() { return asleep_; }
  std::uint64_t wakes() const { return wakes_; }  // Futex calls.

 private:
  void Publish(ClientState& client) {
    is_marked_[client] = false;
    const ipc::CompletionDoorbell::Rung rung = client.output.Publish();
    if (rung.has_woken) ++wakes_;
    if (rung.left_asleep > 0) [[unlikely]] {
      asleep_.push_back({.futex = client.output.futex(), .count = rung.left_asleep});
    }
  }

  std::vector<ClientState*> marked_;  // Each once.
  PerClient<char> is_marked_;         // A vector of bool has no references.
  std::vector<Asleep> asleep_;
  std::uint64_t wakes_ = 0;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_OUTPUT_PUBLISHER_H_
