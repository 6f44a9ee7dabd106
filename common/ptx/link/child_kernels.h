// SPDX-License-Identifier: Apache-2.0
// Kernels that launch kernels (dynamic parallelism), on devices without support for it. A kernel
// writes its launches to a queue, which is a variable of its module. When the kernel has ended, the
// drop-in library reads the queue and performs the launches.

#ifndef GPUSHARED_COMMON_PTX_LINK_CHILD_KERNELS_H_
#define GPUSHARED_COMMON_PTX_LINK_CHILD_KERNELS_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace gpushared::ptx {

// Functions of libcudadevrt that the linker defines for such launches. Own implementation based on
// the CUDA C++ Programming Guide, "Dynamic Parallelism".
inline constexpr std::array<std::string_view, 7> kChildKernelFunctions = {
    "__cudaCDP2GetParameterBufferV2",  "__cudaCDP2LaunchDeviceV2", "__cudaCDP2LaunchDeviceV2_ptsz",
    "__cudaCDP2StreamCreateWithFlags", "__cudaCDP2StreamDestroy",  "__cudaCDP2GetLastError",
    "__cudaCDP2PeekAtLastError"};

// Variable that begins with ChildQueue, followed by the ChildRecords, each with its parameters.
inline constexpr std::string_view kChildQueueName = "gpushared_child_queue";
// Prefix of the name of the variable whose address represents a kernel; the kernel's name follows.
inline constexpr std::string_view kChildKernelPrefix = "gpushared_kernel_";

struct ChildQueue {
  std::uint32_t taken;     // Requested records; may exceed `records`.
  std::uint32_t launched;  // Number of launched records.
  std::uint32_t error;     // cudaError_t of a failed launch, until a kernel gets the last error.
  std::uint32_t reserved;
  std::uint32_t records;       // Constant.
  std::uint32_t record_bytes;  // Constant; includes the parameters.
  std::uint64_t reserved2;
};
static_assert(sizeof(ChildQueue) == 32);

struct ChildRecord {
  std::uint64_t kernel;  // Address of the variable that represents the kernel.
  std::uint64_t stream;
  std::uint32_t grid[3];
  std::uint32_t block[3];
  std::uint32_t shared_bytes;
  std::uint32_t is_launched;
  std::uint32_t order;  // Position among the launches.
  std::uint32_t reserved[3];
};
static_assert(sizeof(ChildRecord) == 64);

// CUDA's default for pending launches (cudaLimitDevRuntimePendingLaunchCount).
inline constexpr std::uint32_t kChildRecordsMax = 2048;
inline constexpr std::uint64_t kChildQueueBytesMax = std::uint64_t{1} << 20;
// Limit for the parameters of any kernel (PTX ISA, "Kernel Function Parameters").
inline constexpr std::uint64_t kChildParameterBytesMax = 32764;
// Handle of the stream of tail launches in CUDA's own device code.
inline constexpr std::uint64_t kTailLaunchStream = 3;
// Maximum nesting depth of launches in CUDA.
inline constexpr int kChildDepthMax = 24;

// Returns PTX with the functions and the queue, for child kernels with at most
// `parameter_bytes_max` bytes of parameters.
std::string ChildKernelRuntime(std::uint64_t parameter_bytes_max);

}  // namespace gpushared::ptx

#endif  // GPUSHARED_COMMON_PTX_LINK_CHILD_KERNELS_H_
