// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_CLIENT_LIB_VISIBLE_DEVICES_H_
#define GPUSHARED_CLIENT_LIB_VISIBLE_DEVICES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gpushared::client {

using DeviceUuid = std::array<std::uint8_t, 16>;

// Device as environment variables refer to it.
struct KnownDevice {
  std::string id, kind;  // Such as "cpu:0" and "cpu".
  DeviceUuid uuid = {};  // All zero if the device has none.

  // Returns the device's UUID. If the device has none, returns a number that is derived from its id
  // and kind, is the same in every process and does not change.
  DeviceUuid ShownUuid() const;
  // Returns "GPU-" and the UUID in the format of nvidia-smi and CUDA_VISIBLE_DEVICES. For a MIG
  // instance, returns its id, which already has that form.
  std::string VisibleName() const;
};

// Returns the indexes of the server's devices that `value` of CUDA_VISIBLE_DEVICES makes visible,
// in its order. As in CUDA, entries are numbers or prefixes of UUIDs, the first entry without a
// device ends the list, and a device that is named twice leaves the list empty.
std::vector<std::size_t> VisibleDevices(std::string_view value,
                                        std::span<const KnownDevice> devices);

// Returns the index of the server's device that is the GPU with this UUID. If the server has cpu
// devices only, which stand in for GPUs in tests, the GPU's `number` selects one.
std::optional<std::size_t> DeviceOfGpu(const DeviceUuid& uuid, std::size_t number,
                                       std::span<const KnownDevice> devices);

}  // namespace gpushared::client

#endif  // GPUSHARED_CLIENT_LIB_VISIBLE_DEVICES_H_
