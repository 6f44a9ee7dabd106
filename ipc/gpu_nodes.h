// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_IPC_GPU_NODES_H_
#define GPUSHARED_IPC_GPU_NODES_H_

namespace gpushared::ipc {

// Files of which one exists where programs can open an NVIDIA GPU: the driver's control device on
// Linux, and the GPU of Windows in WSL. Where none exists, gate mode is not chosen by default.
inline constexpr const char* kGpuNodes[] = {"/dev/nvidiactl", "/dev/dxg"};

}  // namespace gpushared::ipc

#endif  // GPUSHARED_IPC_GPU_NODES_H_
