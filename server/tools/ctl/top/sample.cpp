// SPDX-License-Identifier: Apache-2.0
#include "server/tools/ctl/top/sample.h"

#include <cmath>

#include "server/telemetry/admin/json_fields.h"

#include <nlohmann/json.hpp>

namespace gpushared::server::top {
namespace {

using admin::Member;
using admin::Text;
using nlohmann::json;

Figure Number(const json& object, std::string_view key) {
  const Figure number = admin::Number(object, key);
  return number && std::isfinite(*number) && *number >= 0 ? number : std::nullopt;
}

// Returns the sum over the classes that have the key.
Figure OverClasses(const json& classes, std::string_view key) {
  Figure sum;
  for (const std::string_view name : kClassNames) {
    if (const Figure each = Number(Member(classes, name), key)) sum = sum.value_or(0) + *each;
  }
  return sum;
}

DeviceSample ReadDevice(const json& row) {
  const json& totals = Member(row, "totals");
  const json& classes = Member(totals, "classes");
  DeviceSample device;
  device.id = Text(row, "device");
  device.name = Text(row, "name");
  device.state = Text(row, "state");
  device.missing = Text(row, "missing");
  device.sessions = Number(row, "sessions");
  device.memory_bytes = Number(row, "memory_bytes");
  device.mapped_bytes = Number(row, "mapped_bytes");
  device.power_w = Number(Member(row, "gpu"), "power_w");
  for (std::size_t each = 0; each < kClassNames.size(); ++each) {
    device.device_s[each] = Number(Member(classes, kClassNames[each]), "device_time_s");
  }
  device.gap_s = Number(totals, "gap_s");
  device.gap_used_s = Number(totals, "gap_used_s");
  device.host_steal_s = Number(row, "host_steal_s");
  device.launches = OverClasses(classes, "launches");
  device.stops = OverClasses(classes, "stops");
  const json& overloaded = Member(row, "overloaded");
  device.is_overloaded = overloaded.is_boolean() && overloaded.get<bool>();
  return device;
}

std::optional<ClientSample> ReadClient(const json& row) {
  const json& id = Member(row, "client");
  if (!id.is_number_unsigned()) return std::nullopt;
  ClientSample client;
  client.id = id.get<std::uint64_t>();
  client.name = Text(row, "name");
  client.scheduling_class = Text(row, "class");
  client.device = Text(row, "device");
  client.endpoint = Text(row, "endpoint");
  for (std::size_t each = 0; each < kClientKeys.size(); ++each) {
    client.numbers[each] = Number(row, kClientKeys[each]);
  }
  return client;
}

}  // namespace

void ReadDevices(const json& status, double at_s, Sample& sample) {
  const json& server = Member(status, "server");
  sample.server = {.version = Text(server, "version"),
                   .policy = Text(server, "policy"),
                   .state = Text(server, "state"),
                   .uptime_s = Number(server, "uptime_s")};
  sample.devices.clear();
  for (const json& row : Member(status, "devices")) {
    if (sample.devices.size() == kDevicesMax) break;
    if (row.is_object()) sample.devices.push_back(ReadDevice(row));
  }
  sample.devices_at_s = at_s;
}

void ReadClients(const json& clients, double at_s, Sample& sample) {
  sample.clients.clear();
  for (const json& row : Member(clients, "clients")) {
    if (sample.clients.size() == kClientsMax) break;
    if (std::optional<ClientSample> client = ReadClient(row)) {
      sample.clients.push_back(*std::move(client));
    }
  }
  sample.clients_at_s = at_s;
}

}  // namespace gpushared::server::top
