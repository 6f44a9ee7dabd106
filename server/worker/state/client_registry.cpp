// SPDX-License-Identifier: Apache-2.0
#include "server/worker/state/client_registry.h"

#include <algorithm>
#include <utility>

#include "gpushared/check.h"

namespace gpushared::server {

ClientState& ClientRegistry::Add(std::unique_ptr<ClientState> client) {
  const auto place = std::find(table_.begin(), table_.end(), nullptr);
  Check(place != table_.end(), "sessions are bounded before they reach the device thread");
  client->set_index(static_cast<std::uint32_t>(place - table_.begin()));
  *place = std::move(client);
  present_.push_back(place->get());
  return **place;
}

std::unique_ptr<ClientState> ClientRegistry::Remove(ClientState& client) {
  std::erase(present_, &client);
  return std::move(table_[client.index()]);
}

ClientState* ClientRegistry::Find(std::uint64_t session) const {
  const auto found = std::ranges::find_if(
      present_, [&](const ClientState* each) { return each->setup.session == session; });
  return found == present_.end() ? nullptr : *found;
}

}  // namespace gpushared::server
