// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_IPC_GPU_NODES_H_
#define GPUSHARED_IPC_GPU_NODES_H_

namespace gpushared::ipc {

// Device files of which at least one exists on a machine where programs can open an NVIDIA GPU: the
// driver's control device on Linux, and the Windows GPU in WSL. If none exists, gate mode is not
// the default.
inline constexpr const char* kGpuNodes[] = {"/dev/nvidiactl", "/dev/dxg"};

}  // namespace gpushared::ipc

#endif  // GPUSHARED_IPC_GPU_NODES_H_
