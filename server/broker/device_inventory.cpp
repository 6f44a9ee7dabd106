// SPDX-License-Identifier: Apache-2.0
#include "server/broker/device_inventory.h"

#include <algorithm>
#include <tuple>

#include "server/config_values.h"

namespace gpushared::server {

std::string_view StateName(DeviceEntry::State state) {
  switch (state) {
    case DeviceEntry::State::kStarting:
      return "starting";
    case DeviceEntry::State::kReady:
      return "ready";
    case DeviceEntry::State::kRestarting:
      return "restarting";
    case DeviceEntry::State::kGone:
      return "gone";
  }
  return "unknown";
}

DeviceInventory::DeviceInventory(boost::asio::io_context& context,
                                 const std::vector<std::string>& ids) {
  for (const std::string& id : ids) entries_.emplace_back(context, id);
}

Result<DeviceEntry*> DeviceInventory::Choose(std::string_view name, const SessionLedger& ledger) {
  if (!name.empty()) {
    if (DeviceEntry* entry = Find(name); entry != nullptr) return entry;
    std::string ids;
    for (const DeviceEntry& entry : entries_) ids += (ids.empty() ? "" : ", ") + entry.id;
    return Status(StatusCode::kNotFound,
                  "device refused: asked for '" + Escaped(name) + "', this server has " + ids);
  }
  const auto rank = [&](const DeviceEntry& entry) {
    return std::tuple(!entry.TakesClients(), ledger.On(entry.id).size());
  };
  return &*std::min_element(
      entries_.begin(), entries_.end(),
      [&](const DeviceEntry& a, const DeviceEntry& b) { return rank(a) < rank(b); });
}

DeviceEntry* DeviceInventory::Find(std::string_view id) {
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const DeviceEntry& entry) { return entry.id == id; });
  return found == entries_.end() ? nullptr : &*found;
}

bool DeviceInventory::AllGone() const {
  return std::all_of(entries_.begin(), entries_.end(), [](const DeviceEntry& entry) {
    return entry.state == DeviceEntry::State::kGone;
  });
}

}  // namespace gpushared::server
