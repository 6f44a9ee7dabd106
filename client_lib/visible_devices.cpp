// SPDX-License-Identifier: Apache-2.0
#include "client_lib/visible_devices.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>

#include "ipc/gpu_uuid.h"

namespace gpushared::client {
namespace {

std::string_view Trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(' ');
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(' ') - first + 1);
}

// FNV-1a.
std::uint64_t Hash(std::uint64_t hash, const std::string& text) {
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

// Returns the device that one entry names. A prefix of a UUID must match exactly one device.
std::optional<std::size_t> Named(std::string_view entry, std::span<const KnownDevice> devices) {
  std::size_t number = 0;
  const auto [end, error] = std::from_chars(entry.data(), entry.data() + entry.size(), number);
  if (error == std::errc() && end == entry.data() + entry.size()) {
    return number < devices.size() ? std::optional(number) : std::nullopt;
  }
  if (!entry.starts_with("GPU-") && !entry.starts_with("MIG-")) return std::nullopt;
  std::optional<std::size_t> found;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    if (!devices[i].VisibleName().starts_with(entry)) continue;
    if (found) return std::nullopt;
    found = i;
  }
  return found;
}

}  // namespace

DeviceUuid KnownDevice::ShownUuid() const {
  const bool has_own = std::ranges::any_of(uuid, [](std::uint8_t byte) { return byte != 0; });
  if (has_own) return uuid;
  const std::uint64_t halves[2] = {Hash(0xcbf29ce484222325, id),
                                   Hash(0x84222325cbf29ce4, id + kind)};
  DeviceUuid made;
  static_assert(sizeof halves == sizeof made);
  std::memcpy(made.data(), halves, sizeof made);
  return made;
}

std::string KnownDevice::VisibleName() const {
  if (id.starts_with("MIG-")) return id;
  return ipc::GpuName(ShownUuid());
}

std::vector<std::size_t> VisibleDevices(std::string_view value,
                                        std::span<const KnownDevice> devices) {
  std::vector<std::size_t> shown;
  while (!value.empty()) {
    const std::size_t comma = std::min(value.find(','), value.size());
    const std::optional<std::size_t> device = Named(Trimmed(value.substr(0, comma)), devices);
    if (!device) break;
    if (std::find(shown.begin(), shown.end(), *device) != shown.end()) return {};
    shown.push_back(*device);
    value.remove_prefix(std::min(comma + 1, value.size()));
  }
  return shown;
}

std::optional<std::size_t> DeviceOfGpu(const DeviceUuid& uuid, std::size_t number,
                                       std::span<const KnownDevice> devices) {
  const auto found = std::ranges::find(devices, uuid, &KnownDevice::ShownUuid);
  if (found != devices.end()) return static_cast<std::size_t>(found - devices.begin());
  const bool has_gpus =
      std::ranges::any_of(devices, [](const KnownDevice& device) { return device.kind != "cpu"; });
  return !has_gpus && number < devices.size() ? std::optional(number) : std::nullopt;
}

}  // namespace gpushared::client
