// SPDX-License-Identifier: Apache-2.0
// Current instances of a GPU, as reported by NVML.

#ifndef GPUSHARED_SERVER_TOOLS_MIG_LIVE_GPU_H_
#define GPUSHARED_SERVER_TOOLS_MIG_LIVE_GPU_H_

#include <cstdint>
#include <string>
#include <vector>

#include "server/tools/mig/layout.h"

namespace gpushared::mig {

// A compute instance, which is a device to programs.
struct LiveCompute {
  std::uint32_t id = 0;      // Id within its GPU instance.
  std::uint32_t slices = 0;  // Number of compute slices.
  std::string uuid;          // "MIG-..."; empty if NVML did not report it.
  std::vector<std::uint32_t> processes;
};

struct LiveInstance {
  Instance instance;
  std::uint32_t id = 0;  // Assigned by the driver, unique within the GPU.
  std::vector<LiveCompute> compute;
};

struct MigGpu {
  std::uint32_t index = 0;  // The number shown by nvidia-smi.
  std::string uuid;         // "GPU-..."
  std::string name;
  std::uint32_t model = 0;  // PCI device and vendor id, 0x233010DE.
  std::uint32_t minor = 0;  // Its device file is /dev/nvidia<minor>.
  bool has_mig = false;     // Whether the board supports MIG.
  bool is_enabled = false;
  bool is_pending = false;  // Whether MIG mode will be enabled after the next reset.
  Board board;              // Empty without MIG.
  std::vector<LiveInstance> instances;
  std::vector<std::uint32_t> processes;  // Processes with a context anywhere on the GPU.
  std::string trouble;                   // Why the GPU could not be read.

  Layout layout() const;
  std::string Named() const;  // Returns a name such as "GPU 0 (NVIDIA H200)".
};

}  // namespace gpushared::mig

#endif  // GPUSHARED_SERVER_TOOLS_MIG_LIVE_GPU_H_
