// SPDX-License-Identifier: Apache-2.0
// NUMA placement of a worker's threads and memory.

#ifndef GPUSHARED_SERVER_PLATFORM_NUMA_H_
#define GPUSHARED_SERVER_PLATFORM_NUMA_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gpushared/status.h"

namespace gpushared::server {

// NUMA node that a device is attached to, and the processors of that node that this process may
// use.
struct NumaPlace {
  std::optional<std::uint32_t> node;  // If empty, threads and memory are not placed.
  std::vector<std::uint32_t> processors;
  // Why there is no node; empty if there is one or if the device is not on a bus.
  std::string why_none;

  // Returns "node 1, processors 16-31", or the reason why there is no node.
  std::string ToString() const;
};

// `pci_bus` has the form "0000:17:00.0"; it is empty for a device that is not on a bus. `sysfs` is
// the mount point of sysfs.
NumaPlace FindNumaPlace(std::string_view pci_bus, const std::string& sysfs = "/sys");

// Restricts the calling thread, and threads that it starts, to the processors of the node, and
// makes them allocate memory there as long as it has any free. Does nothing if `place` has no node.
Status KeepThisThreadAt(const NumaPlace& place);

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_PLATFORM_NUMA_H_
