// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_STATE_PER_CLIENT_H_
#define GPUSHARED_SERVER_WORKER_STATE_PER_CLIENT_H_

#include <array>

#include "server/worker/state/client_state.h"
#include "server/worker/state/session_limits.h"

namespace gpushared::server {

// What one part of the device thread keeps about each client, and no other part sees. It begins
// with Begin.
//
// Confined to the device thread. References stay good as long as this.
template <typename T>
class PerClient {
 public:
  // The client has come, and may have the place of one that has gone.
  T& Begin(const ClientState& client) { return entries_[client.index()] = T{}; }
  T& operator[](const ClientState& client) { return entries_[client.index()]; }
  const T& operator[](const ClientState& client) const { return entries_[client.index()]; }

 private:
  std::array<T, kSessionsLimit> entries_{};  // By ClientState::index.
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_STATE_PER_CLIENT_H_
