// SPDX-License-Identifier: Apache-2.0
#include "client_lib/drop_in/device_list.h"

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

}  // namespace

Uuid DeviceUuid(const DeviceProperties& device) {
  const std::uint64_t halves[2] = {Hash(0xcbf29ce484222325, device.id),
                                   Hash(0x84222325cbf29ce4, device.id + device.kind)};
  Uuid uuid;
  static_assert(sizeof halves == sizeof uuid);
  std::memcpy(uuid.bytes, halves, sizeof uuid);
  return uuid;
}

Result<std::vector<DeviceProperties>> ListDevices() {
  Result<ClientOptions> options = OptionsFromEnvironment();
  if (!options.ok()) return options.status();
  if (const char* const device = std::getenv("GPUSHARED_DEVICE")) options->device = device;
  const Result<Client> client = Client::Connect(*options);
  if (!client.ok()) return client.status();
  std::vector<DeviceProperties> devices = {client->device()};
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (visible == nullptr) return devices;
  std::vector<Uuid> uuids;
  for (const DeviceProperties& device : devices) uuids.push_back(DeviceUuid(device));
  std::vector<DeviceProperties> shown;
  for (const std::size_t place : VisibleDevices(visible, uuids)) shown.push_back(devices[place]);
  return shown;
}

}  // namespace gpushared::drop_in
