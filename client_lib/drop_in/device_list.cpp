// SPDX-License-Identifier: Apache-2.0
#include "client_lib/drop_in/device_list.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "client_lib/drop_in/session.h"
#include "client_lib/drop_in/visible_devices.h"

namespace gpushared::drop_in {
namespace {

// FNV-1a.
std::uint64_t Hash(std::uint64_t hash, const std::string& text) {
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

// GPUSHARED_DEVICE names one by its id.
Status KeepNamed(const std::string& id, std::vector<DeviceProperties>& devices) {
  std::string known;
  for (const DeviceProperties& device : devices) known += " " + device.id;
  std::erase_if(devices, [&](const DeviceProperties& device) { return device.id != id; });
  if (!devices.empty()) return Status::Ok();
  return Status(StatusCode::kNotFound, "device '" + id + "' not found: the server has" + known);
}

}  // namespace

Uuid DeviceUuid(const DeviceProperties& device) {
  Uuid uuid;
  static_assert(sizeof uuid == sizeof device.uuid);
  std::memcpy(uuid.bytes, device.uuid.data(), sizeof uuid);
  const bool has_own =
      std::ranges::any_of(device.uuid, [](std::uint8_t byte) { return byte != 0; });
  if (has_own) return uuid;
  const std::uint64_t halves[2] = {Hash(0xcbf29ce484222325, device.id),
                                   Hash(0x84222325cbf29ce4, device.id + device.kind)};
  static_assert(sizeof halves == sizeof uuid);
  std::memcpy(uuid.bytes, halves, sizeof uuid);
  return uuid;
}

Result<std::vector<DeviceProperties>> ListDevices() {
  const Result<ClientOptions> options = OptionsFromEnvironment();
  if (!options.ok()) return options.status();
  Result<std::vector<DeviceProperties>> devices = Client::ListDevices(*options);
  if (!devices.ok()) return devices;
  if (const char* const device = std::getenv("GPUSHARED_DEVICE");
      device != nullptr && *device != 0) {
    if (Status status = KeepNamed(device, *devices); !status.ok()) return status;
  }
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (visible == nullptr) return devices;
  std::vector<Uuid> uuids;
  for (const DeviceProperties& device : *devices) uuids.push_back(DeviceUuid(device));
  std::vector<DeviceProperties> shown;
  for (const std::size_t place : VisibleDevices(visible, uuids)) shown.push_back((*devices)[place]);
  return shown;
}

}  // namespace gpushared::drop_in
