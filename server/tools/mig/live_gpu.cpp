// SPDX-License-Identifier: Apache-2.0
#include "server/tools/mig/live_gpu.h"

namespace gpushared::mig {

Layout MigGpu::layout() const {
  Layout all;
  for (const LiveInstance& live : instances) all.push_back(live.instance);
  return all;
}

std::string MigGpu::Named() const {
  if (uuid.empty() && !name.empty()) return name;  // Represents a board without a GPU.
  return "GPU " + std::to_string(index) + (name.empty() ? "" : " (" + name + ")");
}

}  // namespace gpushared::mig
