// SPDX-License-Identifier: Apache-2.0
// On which part of the machine a worker's threads and memory lie.

#ifndef GPUSHARED_SERVER_PLATFORM_NUMA_H_
#define GPUSHARED_SERVER_PLATFORM_NUMA_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gpushared/status.h"

namespace gpushared::server {

// The memory node that a device is attached to, and what this process may use of its processors.
struct NumaPlace {
  std::optional<std::uint32_t> node;  // None: threads and memory stay where they are.
  std::vector<std::uint32_t> processors;
  std::string why_none;  // Empty where there is a node, and for what lies on no bus.

  // "node 1, processors 16-31", or why there is none.
  std::string ToString() const;
};

// `pci_bus`: "0000:17:00.0"; empty for a device that lies on none. `sysfs`: where the kernel's
// description of the machine is mounted.
NumaPlace FindNumaPlace(std::string_view pci_bus, const std::string& sysfs = "/sys");

// From now on the calling thread runs on processors of the place's node, and memory that it takes
// comes from there while there is any. Threads that it starts do so, too. Nothing where the place
// has no node.
Status KeepThisThreadAt(const NumaPlace& place);

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_PLATFORM_NUMA_H_
