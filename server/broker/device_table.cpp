// SPDX-License-Identifier: Apache-2.0
#include "server/broker/device_table.h"

#include <algorithm>
#include <tuple>

#include "ipc/gpu_uuid.h"
#include "server/config/config_values.h"

namespace gpushared::server {

std::string_view StateName(DeviceEntry::State state) {
  switch (state) {
    case DeviceEntry::State::kStarting:
      return "starting";
    case DeviceEntry::State::kReady:
      return "ready";
    case DeviceEntry::State::kRestarting:
      return "restarting";
    case DeviceEntry::State::kMissing:
      return "missing";
    case DeviceEntry::State::kDraining:
      return "draining";
    case DeviceEntry::State::kDrained:
      return "drained";
    case DeviceEntry::State::kLeaving:
      return "leaving";
    case DeviceEntry::State::kGone:
      return "gone";
  }
  return "unknown";
}

DeviceTable::DeviceTable(boost::asio::io_context& context,
                         const std::vector<device::SelectedDevice>& devices)
    : context_(context) {
  for (const device::SelectedDevice& device : devices) entries_.emplace_back(context, device);
}

Result<DeviceEntry*> DeviceTable::Named(std::string_view name) {
  if (DeviceEntry* entry = Find(name); entry != nullptr) return entry;
  const bool is_uuid = name.size() > 4 && (name.starts_with("GPU-") || name.starts_with("MIG-"));
  std::vector<DeviceEntry*> begin_so;
  for (DeviceEntry& entry : entries_) {
    if (is_uuid && entry.selected.uuid == name) return &entry;
    if (is_uuid && entry.selected.uuid.starts_with(name)) begin_so.push_back(&entry);
  }
  if (begin_so.size() == 1) return begin_so[0];
  std::string ids;
  for (const DeviceEntry& entry : entries_) ids += (ids.empty() ? "" : ", ") + entry.id;
  return Status(StatusCode::kNotFound,
                "device rejected: asked for '" + Escaped(name) + "'" +
                    (begin_so.empty() ? "" : ", with which several UUIDs begin") +
                    ", this server has " + ids);
}

bool DeviceTable::IsAmong(const DeviceEntry& device, const std::vector<std::string>& among) {
  return among.empty() || std::ranges::any_of(among, [&](const std::string& name) {
           const Result<DeviceEntry*> named = Named(name);
           return named.ok() && *named == &device;
         });
}

Result<DeviceEntry*> DeviceTable::Choose(std::string_view name, const SessionLog& session_log,
                                         const std::vector<std::string>& among) {
  std::vector<DeviceEntry*> open;
  std::string ids;
  for (DeviceEntry& entry : entries_) {
    if (!IsAmong(entry, among)) continue;
    open.push_back(&entry);
    ids += (ids.empty() ? "" : ", ") + entry.id;
  }
  if (!name.empty()) {
    Result<DeviceEntry*> named = Named(name);
    if (!named.ok() || IsAmong(**named, among)) return named;
    return Status(StatusCode::kPermissionDenied, "device rejected: asked for '" + Escaped(name) +
                                                     "', this endpoint has " +
                                                     (ids.empty() ? "none" : ids));
  }
  if (open.empty()) {
    return Status(StatusCode::kUnavailable,
                  "device rejected: none of this endpoint's devices exists");
  }
  const auto rank = [&](const DeviceEntry& entry) {
    return std::tuple(!entry.TakesClients(), entry.IsAway(), session_log.On(entry.id).size());
  };
  return *std::ranges::min_element(
      open, [&](const DeviceEntry* a, const DeviceEntry* b) { return rank(*a) < rank(*b); });
}

DeviceEntry* DeviceTable::Find(std::string_view id) {
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const DeviceEntry& entry) { return entry.id == id; });
  return found == entries_.end() ? nullptr : &*found;
}

DeviceEntry* DeviceTable::FindOf(const ipc::DeviceDescription& description) {
  const std::string name = ipc::GpuName(description.uuid);
  for (DeviceEntry& entry : entries_) {
    const bool has_uuid = entry.selected.uuid.starts_with("GPU-");
    if (has_uuid ? entry.selected.uuid == name : entry.id == description.id) return &entry;
  }
  return nullptr;
}

DeviceEntry& DeviceTable::Add(device::SelectedDevice device) {
  const std::string kind = device.id.substr(0, device.id.find(':') + 1);
  for (std::uint32_t number = 0; Find(device.id) != nullptr; ++number) {
    device.id = kind + std::to_string(number);
  }
  return entries_.emplace_back(context_, device);
}

std::vector<std::string> DeviceTable::Uuids() const {
  std::vector<std::string> uuids;
  for (const DeviceEntry& entry : entries_) {
    if (!entry.selected.uuid.empty()) uuids.push_back(entry.selected.uuid);
  }
  return uuids;
}

bool DeviceTable::HasWorkers() const {
  return std::ranges::any_of(entries_,
                             [](const DeviceEntry& entry) { return entry.worker != nullptr; });
}

}  // namespace gpushared::server
