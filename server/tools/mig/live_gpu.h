// SPDX-License-Identifier: Apache-2.0
// A GPU's instances as NVML tells them.

#ifndef GPUSHARED_SERVER_TOOLS_MIG_LIVE_GPU_H_
#define GPUSHARED_SERVER_TOOLS_MIG_LIVE_GPU_H_

#include <cstdint>
#include <string>
#include <vector>

#include "server/tools/mig/layout.h"

namespace gpushared::mig {

// A device for programs.
struct LiveCompute {
  std::uint32_t id = 0;      // Within its GPU instance.
  std::uint32_t slices = 0;  // Multiprocessor slices.
  std::string uuid;          // "MIG-..."; empty when NVML did not tell.
  std::vector<std::uint32_t> processes;
};

struct LiveInstance {
  Instance instance;
  std::uint32_t id = 0;  // The driver's, within the GPU.
  std::vector<LiveCompute> compute;
};

struct MigGpu {
  std::uint32_t index = 0;  // The number that nvidia-smi shows.
  std::string uuid;         // "GPU-..."
  std::string name;
  std::uint32_t model = 0;  // PCI device and vendor, 0x233010DE.
  std::uint32_t minor = 0;  // Its file is /dev/nvidia<minor>.
  bool has_mig = false;     // The board can be cut.
  bool is_enabled = false;
  bool is_pending = false;  // The mode after the next reset.
  Board board;              // Empty where there is no MIG.
  std::vector<LiveInstance> instances;
  std::vector<std::uint32_t> processes;  // Holders of a context, anywhere on it.
  std::string trouble;                   // Why it could not be read.

  Layout layout() const;
  std::string Named() const;  // "GPU 0 (NVIDIA H200)"
};

}  // namespace gpushared::mig

#endif  // GPUSHARED_SERVER_TOOLS_MIG_LIVE_GPU_H_
