// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_IPC_GPU_UUID_H_
#define GPUSHARED_IPC_GPU_UUID_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace gpushared::ipc {

// Returns "GPU-" and the UUID, as nvidia-smi prints it and CUDA_VISIBLE_DEVICES accepts it.
inline std::string GpuName(const std::array<std::uint8_t, 16>& uuid) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string name = "GPU-";
  for (std::size_t i = 0; i < uuid.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) name += '-';
    name += kDigits[uuid[i] >> 4];
    name += kDigits[uuid[i] & 15];
  }
  return name;
}

}  // namespace gpushared::ipc

#endif  // GPUSHARED_IPC_GPU_UUID_H_
