// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_TOOLS_MIG_HOLDERS_H_
#define GPUSHARED_SERVER_TOOLS_MIG_HOLDERS_H_

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace gpushared::mig {

struct Holder {
  pid_t pid = 0;
  std::string name;  // Name of the process, such as "dcgm-exporter".
};

// Returns the other processes that have the GPU's device file open; any of them prevents the driver
// from resetting the GPU. `proc` is the mount point of procfs. For users other than root, the
// processes of other users are missing.
std::vector<Holder> GetHolders(std::uint32_t minor, const std::string& proc = "/proc");

// Formats a process as "process 4711 (python3)"; omits the name if it is unknown.
std::string ProcessText(pid_t pid, const std::string& proc = "/proc");

}  // namespace gpushared::mig

#endif  // GPUSHARED_SERVER_TOOLS_MIG_HOLDERS_H_
