// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_CLIENT_LIB_VISIBLE_DEVICES_H_
#define GPUSHARED_CLIENT_LIB_VISIBLE_DEVICES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gpushared::client {

using DeviceUuid = std::array<std::uint8_t, 16>;

// A device as variables name it.
struct KnownDevice {
  std::string id, kind;  // "cpu:0", "cpu".
  DeviceUuid uuid = {};  // All zero where it has none.

  // Its own UUID, or a number that stands for the device of this name: the same in every process
  // and at any time.
  DeviceUuid ShownUuid() const;
  // "GPU-" and the UUID's digits, as nvidia-smi and CUDA_VISIBLE_DEVICES write it; of a MIG
  // instance its id, which is that.
  std::string VisibleName() const;
};

// Which of the server's devices, by place, `value` of CUDA_VISIBLE_DEVICES shows, in its order.
// Entries are numbers or beginnings of UUIDs, as in CUDA. The first one that names nothing ends the
// list, and a device named twice leaves none.
std::vector<std::size_t> VisibleDevices(std::string_view value,
                                        std::span<const KnownDevice> devices);

}  // namespace gpushared::client

#endif  // GPUSHARED_CLIENT_LIB_VISIBLE_DEVICES_H_
