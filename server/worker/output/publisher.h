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

// Publishes everything that clients can see, once per batch. Completion records are written
// immediately and timelines at the end, so that a client that sees a timeline advance also finds
// the corresponding record.
//
// Confined to the device thread.
class Publisher {
 public:
  // Client threads that a publication has left asleep, to be woken by another thread.
  struct Asleep {
    const std::atomic<std::uint32_t>* futex = nullptr;
    std::uint32_t count = 0;
  };

  Publisher() {
    marked_.reserve(kSessionsLimit);
    asleep_.reserve(kSessionsLimit);
  }

  // Marks the client for the next Publish.
  void Mark(ClientState& client) {
    if (std::exchange(is_marked_[client], true)) return;
    marked_.push_back(&client);
  }
  void Forget(ClientState& client) {
    std::erase(marked_, &client);
    is_marked_[client] = false;
  }
  // Publishes first to clients for which `is_urgent(client)` holds. Fills asleep().
  template <typename IsUrgent>
  void Publish(IsUrgent is_urgent) {
    std::partition(marked_.begin(), marked_.end(), is_urgent);
    for (ClientState* const client : marked_) Publish(*client);
    marked_.clear();
  }
  // Threads that Publish has left asleep; the caller empties the list.
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

  std::vector<ClientState*> marked_;  // Without duplicates.
  PerClient<char> is_marked_;         // Whether the client is in marked_.
  std::vector<Asleep> asleep_;
  std::uint64_t wakes_ = 0;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_OUTPUT_PUBLISHER_H_
