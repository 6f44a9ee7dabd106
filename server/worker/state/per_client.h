// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_STATE_PER_CLIENT_H_
#define GPUSHARED_SERVER_WORKER_STATE_PER_CLIENT_H_

#include <array>

#include "server/worker/state/client_state.h"
#include "server/worker/state/session_limits.h"

namespace gpushared::server {

// Per-client state that is private to one part of the device thread. An entry starts with Begin.
//
// Confined to the device thread. References remain valid as long as this object.
template <typename T>
class PerClient {
 public:
  // Resets the entry for a new client, whose index may have belonged to another one.
  T& Begin(const ClientState& client) { return entries_[client.index()] = T{}; }
  T& operator[](const ClientState& client) { return entries_[client.index()]; }
  const T& operator[](const ClientState& client) const { return entries_[client.index()]; }

 private:
  std::array<T, kSessionsLimit> entries_{};  // By ClientState::index.
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_STATE_PER_CLIENT_H_
