// SPDX-License-Identifier: Apache-2.0
// Kernels that start kernels (dynamic parallelism), on devices that know nothing of it. A kernel
// writes what it starts into a queue, which is a variable of its module. Whoever launched it reads
// the queue when it has ended, and launches what is there.

#ifndef GPUSHARED_COMMON_PTX_LINK_CHILD_KERNELS_H_
#define GPUSHARED_COMMON_PTX_LINK_CHILD_KERNELS_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace gpushared::ptx {

// Functions of cudadevrt that the linker defines for it. Own work after the CUDA C++ Programming
// Guide, "Dynamic Parallelism".
inline constexpr std::array<std::string_view, 7> kChildKernelFunctions = {
    "__cudaCDP2GetParameterBufferV2",  "__cudaCDP2LaunchDeviceV2", "__cudaCDP2LaunchDeviceV2_ptsz",
    "__cudaCDP2StreamCreateWithFlags", "__cudaCDP2StreamDestroy",  "__cudaCDP2GetLastError",
    "__cudaCDP2PeekAtLastError"};

// The variable that begins with ChildQueue. ChildRecords follow it, each with its parameters.
inline constexpr std::string_view kChildQueueName = "gpushared_child_queue";
// Before a kernel's name: the variable whose address stands for the kernel.
inline constexpr std::string_view kChildKernelPrefix = "gpushared_kernel_";

struct ChildQueue {
  std::uint32_t taken;     // Records asked for; may exceed `records`.
  std::uint32_t launched;  // How many of them were launched.
  std::uint32_t error;     // cudaError_t of a start that failed, until a kernel reads it.
  std::uint32_t reserved;
  std::uint32_t records;       // Constant.
  std::uint32_t record_bytes;  // Constant; with the parameters.
  std::uint64_t reserved2;
};
static_assert(sizeof(ChildQueue) == 32);

struct ChildRecord {
  std::uint64_t kernel;  // Address of the variable that stands for it.
  std::uint64_t stream;
  std::uint32_t grid[3];
  std::uint32_t block[3];
  std::uint32_t shared_bytes;
  std::uint32_t is_launched;
  std::uint32_t order;  // Its place among the launches.
  std::uint32_t reserved[3];
};
static_assert(sizeof(ChildRecord) == 64);

// CUDA's default for launches that wait (cudaLimitDevRuntimePendingLaunchCount).
inline constexpr std::uint32_t kChildRecordsMax = 2048;
inline constexpr std::uint64_t kChildQueueBytesMax = std::uint64_t{1} << 20;
// No kernel has more parameters (PTX ISA, "Kernel Function Parameters").
inline constexpr std::uint64_t kChildParameterBytesMax = 32764;
// The handles that CUDA's own calls give kernels for such streams.
inline constexpr std::uint64_t kTailLaunchStream = 3;
// Kernels that start kernels that start kernels: as deep as CUDA allows.
inline constexpr int kChildDepthMax = 24;

// The functions and the queue, for kernels with so many bytes of parameters at most.
std::string ChildKernelRuntime(std::uint64_t parameter_bytes_max);

}  // namespace gpushared::ptx

#endif  // GPUSHARED_COMMON_PTX_LINK_CHILD_KERNELS_H_
