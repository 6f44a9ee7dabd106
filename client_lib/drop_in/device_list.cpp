// SPDX-License-Identifier: Apache-2.0
#include "client_lib/drop_in/device_list.h"

#include <cstddef>
#include <cstring>

#include "client_lib/environment.h"

namespace gpushared::drop_in {
namespace {

client::KnownDevice GetKnown(const DeviceProperties& device) {
  return {.id = device.id, .kind = device.kind, .uuid = device.uuid};
}

}  // namespace

Uuid DeviceUuid(const DeviceProperties& device) {
  const client::DeviceUuid shown = GetKnown(device).ShownUuid();
  Uuid uuid;
  static_assert(sizeof uuid == sizeof shown);
  std::memcpy(uuid.bytes, shown.data(), sizeof uuid);
  return uuid;
}

Result<std::vector<DeviceProperties>> ListDevices() {
  // An invalid variable is rejected here, before a session needs it.
  const client::Environment environment;
  ClientOptions options;
  if (Status status = environment.Apply(options); !status.ok()) return status;
  Result<std::vector<DeviceProperties>> devices = Client::ListDevices({});
  if (!devices.ok()) return devices;
  std::vector<client::KnownDevice> known;
  for (const DeviceProperties& device : *devices) known.push_back(GetKnown(device));
  const Result<std::vector<std::size_t>> places = environment.Shown(known);
  if (!places.ok()) return places.status();
  std::vector<DeviceProperties> shown;
  for (const std::size_t place : *places) shown.push_back((*devices)[place]);
  return shown;
}

}  // namespace gpushared::drop_in
