// SPDX-License-Identifier: Apache-2.0
// Which devices exist, and how to make one. A device is named KIND:NUMBER ("cpu:0").

#ifndef GPUSHARED_SERVER_DEVICE_DEVICE_CATALOG_H_
#define GPUSHARED_SERVER_DEVICE_DEVICE_CATALOG_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gpushared/result.h"

#include "server/device/device.h"

namespace gpushared::device {

// What an operator may choose for every device; a kind ignores what does not concern it.
struct DeviceOptions {
  std::uint32_t executor_threads = 0;  // cpu: threads that execute; 0 = cores - 1, at least 1.
  std::uint64_t memory_bytes = 0;      // cpu: for all its clients; 0 = half of the machine's.
  OutputFunction output = {};          // May be empty: what kernels print is then dropped.
};

// One row of the catalog.
struct DeviceKind {
  std::string_view name;         // "cpu"
  std::string_view description;  // One line, for people.
  Result<std::unique_ptr<Device>> (*create)(std::uint32_t number, const DeviceOptions& options,
                                            WakeFunction wake);
};

// Every kind this build has, the preferred one of `auto` first. Lives for ever.
std::span<const DeviceKind> DeviceKinds();

// Creates the device named `id`. kNotFound for a name that no kind answers to, with
// the names that exist.
Result<std::unique_ptr<Device>> CreateDevice(std::string_view id, const DeviceOptions& options,
                                             WakeFunction wake);

// The ids that `selection` names: "auto", or a comma list such as "cpu:0,cpu:1".
// kInvalidArgument for empty items and duplicates, kNotFound for unknown kinds.
// Creates nothing.
Result<std::vector<std::string>> SelectDevices(std::string_view selection);

// Devices of one selection; more is kInvalidArgument.
inline constexpr std::size_t kDevicesMax = 64;

}  // namespace gpushared::device

#endif  // GPUSHARED_SERVER_DEVICE_DEVICE_CATALOG_H_
