// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_STATE_CLIENT_REGISTRY_H_
#define GPUSHARED_SERVER_WORKER_STATE_CLIENT_REGISTRY_H_

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "scheduler/types.h"
#include "server/device/device.h"
#include "server/worker/state/client_state.h"
#include "server/worker/state/session_limits.h"

namespace gpushared::server {

// Connected clients, by session and by the names of commands.
//
// Confined to the device thread.
class ClientRegistry {
 public:
  ClientRegistry() { present_.reserve(kSessionsLimit); }

  // A free index always exists, because the control thread limits the number of sessions.
  ClientState& Add(std::unique_ptr<ClientState> client);
  std::unique_ptr<ClientState> Remove(ClientState& client);

  // In no particular order.
  const std::vector<ClientState*>& present() const { return present_; }
  // Null if the client has left.
  ClientState* Find(std::uint64_t session) const;
  // Returns the client of a command named by the lane or the device; null if it has left.
  ClientState* Of(device::WorkId name) const {
    const std::uint32_t index = WorkName::Client(name);
    return index < table_.size() ? table_[index].get() : nullptr;
  }
  // Like Of(), but returns null also if the command is not on the device.
  ClientState* OnDevice(device::WorkId name) const {
    ClientState* const client = Of(name);
    if (client == nullptr) return nullptr;
    const CommandSlab& slab = client->streams.slab();
    if (WorkName::Slot(name) >= slab.size()) return nullptr;
    const CommandSlot& command = slab[WorkName::Slot(name)];
    const bool is_current = command.name() == name && command.state() == CommandState::kOnDevice;
    return is_current ? client : nullptr;
  }

 private:
  std::array<std::unique_ptr<ClientState>, kSessionsLimit> table_;  // By ClientState::index.
  std::vector<ClientState*> present_;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_STATE_CLIENT_REGISTRY_H_
