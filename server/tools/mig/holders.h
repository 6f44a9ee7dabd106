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
  std::string name;  // "dcgm-exporter"
};

// The processes, but for this one, that have the GPU's file open: any of them keeps the driver from
// resetting it. `proc` is where the process directories are. Processes of others are seen by root
// only.
std::vector<Holder> GetHolders(std::uint32_t minor, const std::string& proc = "/proc");

// "process 4711 (python3)", with its name where it is known.
std::string ProcessText(pid_t pid, const std::string& proc = "/proc");

}  // namespace gpushared::mig

#endif  // GPUSHARED_SERVER_TOOLS_MIG_HOLDERS_H_
