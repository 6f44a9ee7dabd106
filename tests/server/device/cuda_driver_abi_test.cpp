// SPDX-License-Identifier: Apache-2.0
// Compares our declarations of the driver's interface with the CUDA toolkit's at compile time: this
// file compiles only if they agree.

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <type_traits>

#include <cuda.h>
#include <cudaTypedefs.h>
#include <gtest/gtest.h>

#include "server/device/cuda/driver.h"
#include "tests/support/driver_abi.h"

namespace gpushared::testing {

GPUSHARED_SAME(device::cuda::ResourceDescriptionTarget, CUdevResourceDesc_st);
GPUSHARED_SAME(device::cuda::KernelNode, CUDA_KERNEL_NODE_PARAMS);
GPUSHARED_SAME(device::cuda::Resource, CUdevResource);

}  // namespace gpushared::testing

namespace gpushared::device::cuda {
namespace {

using testing::SameCall;

// ---- the same binary interface

// PFN_cuStreamDestroy_v4000 exists if and only if the call has a form of that version.
#define GPUSHARED_CHECK(name, suffix, version, feature, signature)          \
  static_assert(SameCall<Code signature, PFN_cu##name##_v##version>::value, \
                "cu" #name " is declared otherwise than in cuda.h");
GPUSHARED_CUDA_SYMBOLS(GPUSHARED_CHECK)

// Proves that the comparison can fail.
static_assert(!SameCall<Code(unsigned, int), PFN_cuInit_v2000>::value);
static_assert(!SameCall<Code(std::uint64_t), PFN_cuInit_v2000>::value);
static_assert(!SameCall<Code(int), PFN_cuInit_v2000>::value);
static_assert(!SameCall<Code(Event), PFN_cuStreamDestroy_v4000>::value);
static_assert(
    !SameCall<Code(const Stream*, unsigned, int), PFN_cuStreamCreateWithPriority_v5050>::value);

// ---- structures

GPUSHARED_LAYOUT(Uuid, CUuuid);
GPUSHARED_LAYOUT(MemoryLocation, CUmemLocation);
GPUSHARED_FIELD(MemoryLocation, type, CUmemLocation, type);
GPUSHARED_FIELD(MemoryLocation, id, CUmemLocation, id);
GPUSHARED_LAYOUT(AllocationProperties, CUmemAllocationProp);
GPUSHARED_FIELD(AllocationProperties, type, CUmemAllocationProp, type);
GPUSHARED_FIELD(AllocationProperties, requested_handle_types, CUmemAllocationProp,
                requestedHandleTypes);
GPUSHARED_FIELD(AllocationProperties, location, CUmemAllocationProp, location);
GPUSHARED_FIELD(AllocationProperties, flags, CUmemAllocationProp, allocFlags);
GPUSHARED_LAYOUT(AccessDescription, CUmemAccessDesc);
GPUSHARED_FIELD(AccessDescription, location, CUmemAccessDesc, location);
GPUSHARED_FIELD(AccessDescription, access, CUmemAccessDesc, flags);
GPUSHARED_LAYOUT(Copy2d, CUDA_MEMCPY2D);
GPUSHARED_FIELD(Copy2d, source_x_bytes, CUDA_MEMCPY2D, srcXInBytes);
GPUSHARED_FIELD(Copy2d, source_y, CUDA_MEMCPY2D, srcY);
GPUSHARED_FIELD(Copy2d, source_type, CUDA_MEMCPY2D, srcMemoryType);
GPUSHARED_FIELD(Copy2d, source_host, CUDA_MEMCPY2D, srcHost);
GPUSHARED_FIELD(Copy2d, source_device, CUDA_MEMCPY2D, srcDevice);
GPUSHARED_FIELD(Copy2d, source_array, CUDA_MEMCPY2D, srcArray);
GPUSHARED_FIELD(Copy2d, source_pitch, CUDA_MEMCPY2D, srcPitch);
GPUSHARED_FIELD(Copy2d, destination_x_bytes, CUDA_MEMCPY2D, dstXInBytes);
GPUSHARED_FIELD(Copy2d, destination_y, CUDA_MEMCPY2D, dstY);
GPUSHARED_FIELD(Copy2d, destination_type, CUDA_MEMCPY2D, dstMemoryType);
GPUSHARED_FIELD(Copy2d, destination_host, CUDA_MEMCPY2D, dstHost);
GPUSHARED_FIELD(Copy2d, destination_device, CUDA_MEMCPY2D, dstDevice);
GPUSHARED_FIELD(Copy2d, destination_array, CUDA_MEMCPY2D, dstArray);
GPUSHARED_FIELD(Copy2d, destination_pitch, CUDA_MEMCPY2D, dstPitch);
GPUSHARED_FIELD(Copy2d, width_bytes, CUDA_MEMCPY2D, WidthInBytes);
GPUSHARED_FIELD(Copy2d, height, CUDA_MEMCPY2D, Height);
GPUSHARED_LAYOUT(KernelNode, CUDA_KERNEL_NODE_PARAMS);
GPUSHARED_FIELD(KernelNode, function, CUDA_KERNEL_NODE_PARAMS, func);
GPUSHARED_FIELD(KernelNode, grid_x, CUDA_KERNEL_NODE_PARAMS, gridDimX);
GPUSHARED_FIELD(KernelNode, grid_z, CUDA_KERNEL_NODE_PARAMS, gridDimZ);
GPUSHARED_FIELD(KernelNode, block_x, CUDA_KERNEL_NODE_PARAMS, blockDimX);
GPUSHARED_FIELD(KernelNode, block_z, CUDA_KERNEL_NODE_PARAMS, blockDimZ);
GPUSHARED_FIELD(KernelNode, shared_bytes, CUDA_KERNEL_NODE_PARAMS, sharedMemBytes);
GPUSHARED_FIELD(KernelNode, parameters, CUDA_KERNEL_NODE_PARAMS, kernelParams);
GPUSHARED_FIELD(KernelNode, extra, CUDA_KERNEL_NODE_PARAMS, extra);
GPUSHARED_FIELD(KernelNode, context, CUDA_KERNEL_NODE_PARAMS, ctx);
GPUSHARED_LAYOUT(FillNode, CUDA_MEMSET_NODE_PARAMS);
GPUSHARED_FIELD(FillNode, destination, CUDA_MEMSET_NODE_PARAMS, dst);
GPUSHARED_FIELD(FillNode, pitch_bytes, CUDA_MEMSET_NODE_PARAMS, pitch);
GPUSHARED_FIELD(FillNode, value, CUDA_MEMSET_NODE_PARAMS, value);
GPUSHARED_FIELD(FillNode, element_bytes, CUDA_MEMSET_NODE_PARAMS, elementSize);
GPUSHARED_FIELD(FillNode, width_elements, CUDA_MEMSET_NODE_PARAMS, width);
GPUSHARED_FIELD(FillNode, height, CUDA_MEMSET_NODE_PARAMS, height);
GPUSHARED_LAYOUT(CopyNode, CUDA_MEMCPY3D);
GPUSHARED_FIELD(CopyNode, source.x_bytes, CUDA_MEMCPY3D, srcXInBytes);
GPUSHARED_FIELD(CopyNode, source.z, CUDA_MEMCPY3D, srcZ);
GPUSHARED_FIELD(CopyNode, source.level, CUDA_MEMCPY3D, srcLOD);
GPUSHARED_FIELD(CopyNode, source.type, CUDA_MEMCPY3D, srcMemoryType);
GPUSHARED_FIELD(CopyNode, source.host, CUDA_MEMCPY3D, srcHost);
GPUSHARED_FIELD(CopyNode, source.device, CUDA_MEMCPY3D, srcDevice);
GPUSHARED_FIELD(CopyNode, source.array, CUDA_MEMCPY3D, srcArray);
GPUSHARED_FIELD(CopyNode, source.pitch, CUDA_MEMCPY3D, srcPitch);
GPUSHARED_FIELD(CopyNode, destination.type, CUDA_MEMCPY3D, dstMemoryType);
GPUSHARED_FIELD(CopyNode, destination.host, CUDA_MEMCPY3D, dstHost);
GPUSHARED_FIELD(CopyNode, destination.device, CUDA_MEMCPY3D, dstDevice);
GPUSHARED_FIELD(CopyNode, destination.pitch, CUDA_MEMCPY3D, dstPitch);
GPUSHARED_FIELD(CopyNode, destination.height, CUDA_MEMCPY3D, dstHeight);
GPUSHARED_FIELD(CopyNode, width_bytes, CUDA_MEMCPY3D, WidthInBytes);
GPUSHARED_FIELD(CopyNode, height, CUDA_MEMCPY3D, Height);
GPUSHARED_FIELD(CopyNode, depth, CUDA_MEMCPY3D, Depth);
GPUSHARED_LAYOUT(LaunchAttribute, CUlaunchAttribute);
GPUSHARED_FIELD(LaunchAttribute, id, CUlaunchAttribute, id);
GPUSHARED_FIELD(LaunchAttribute, value, CUlaunchAttribute, value);
GPUSHARED_FIELD(LaunchAttribute::Value, cluster, CUlaunchAttributeValue, clusterDim);
GPUSHARED_FIELD(LaunchAttribute::Value, cooperative, CUlaunchAttributeValue, cooperative);
GPUSHARED_FIELD(LaunchAttribute::Value, priority, CUlaunchAttributeValue, priority);
GPUSHARED_LAYOUT(LaunchConfig, CUlaunchConfig);
GPUSHARED_FIELD(LaunchConfig, grid_x, CUlaunchConfig, gridDimX);
GPUSHARED_FIELD(LaunchConfig, grid_z, CUlaunchConfig, gridDimZ);
GPUSHARED_FIELD(LaunchConfig, block_x, CUlaunchConfig, blockDimX);
GPUSHARED_FIELD(LaunchConfig, block_z, CUlaunchConfig, blockDimZ);
GPUSHARED_FIELD(LaunchConfig, shared_bytes, CUlaunchConfig, sharedMemBytes);
GPUSHARED_FIELD(LaunchConfig, stream, CUlaunchConfig, hStream);
GPUSHARED_FIELD(LaunchConfig, attributes, CUlaunchConfig, attrs);
GPUSHARED_FIELD(LaunchConfig, attribute_count, CUlaunchConfig, numAttrs);
GPUSHARED_LAYOUT(Resource, CUdevResource);
GPUSHARED_FIELD(Resource, type, CUdevResource, type);
GPUSHARED_FIELD(Resource, sm.multiprocessors, CUdevResource, sm.smCount);
GPUSHARED_FIELD(Resource, sm.partition_least, CUdevResource, sm.minSmPartitionSize);
GPUSHARED_FIELD(Resource, sm.coscheduled_multiple, CUdevResource, sm.smCoscheduledAlignment);

// ---- numbers

#define GPUSHARED_NUMBER(ours, theirs) \
  static_assert(static_cast<long>(ours) == static_cast<long>(theirs))
#define GPUSHARED_CUDA_ERROR(number, ours, name, text) GPUSHARED_NUMBER(Code::ours, CUDA_##name);
#include "common/cuda_driver/driver_errors.inc"
#define GPUSHARED_CUDA_ATTRIBUTE(number, ours, name) \
  GPUSHARED_NUMBER(DeviceAttribute::ours, CU_DEVICE_ATTRIBUTE_##name);
#include "common/cuda_driver/driver_attributes.inc"
GPUSHARED_NUMBER(ComputeMode::kDefault, CU_COMPUTEMODE_DEFAULT);
GPUSHARED_NUMBER(ComputeMode::kProhibited, CU_COMPUTEMODE_PROHIBITED);
GPUSHARED_NUMBER(ComputeMode::kExclusiveProcess, CU_COMPUTEMODE_EXCLUSIVE_PROCESS);
GPUSHARED_NUMBER(FunctionAttribute::kThreadsPerBlockMax, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
GPUSHARED_NUMBER(FunctionAttribute::kSharedBytes, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
GPUSHARED_NUMBER(FunctionAttribute::kConstantBytes, CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES);
GPUSHARED_NUMBER(FunctionAttribute::kLocalBytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES);
GPUSHARED_NUMBER(FunctionAttribute::kRegisters, CU_FUNC_ATTRIBUTE_NUM_REGS);
GPUSHARED_NUMBER(FunctionAttribute::kPtxVersion, CU_FUNC_ATTRIBUTE_PTX_VERSION);
GPUSHARED_NUMBER(FunctionAttribute::kBinaryVersion, CU_FUNC_ATTRIBUTE_BINARY_VERSION);
GPUSHARED_NUMBER(FunctionAttribute::kDynamicSharedBytesMax,
                 CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
GPUSHARED_NUMBER(FunctionAttribute::kClusterSizeMustBeSet,
                 CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET);
GPUSHARED_NUMBER(FunctionAttribute::kNonPortableClusterSizeAllowed,
                 CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED);
GPUSHARED_NUMBER(Limit::kStackBytes, CU_LIMIT_STACK_SIZE);
GPUSHARED_NUMBER(Limit::kPrintfBytes, CU_LIMIT_PRINTF_FIFO_SIZE);
GPUSHARED_NUMBER(Limit::kHeapBytes, CU_LIMIT_MALLOC_HEAP_SIZE);
GPUSHARED_NUMBER(kContextSpin, CU_CTX_SCHED_SPIN);
GPUSHARED_NUMBER(kContextBlockingSync, CU_CTX_SCHED_BLOCKING_SYNC);
GPUSHARED_NUMBER(kContextKeepLocalMemory, CU_CTX_LMEM_RESIZE_TO_MAX);
GPUSHARED_NUMBER(kStreamNonBlocking, CU_STREAM_NON_BLOCKING);
GPUSHARED_NUMBER(kEventBlockingSync, CU_EVENT_BLOCKING_SYNC);
GPUSHARED_NUMBER(kEventDisableTiming, CU_EVENT_DISABLE_TIMING);
GPUSHARED_NUMBER(kHostPortable, CU_MEMHOSTREGISTER_PORTABLE);
GPUSHARED_NUMBER(kHostPortable, CU_MEMHOSTALLOC_PORTABLE);
GPUSHARED_NUMBER(kHostDeviceMap, CU_MEMHOSTREGISTER_DEVICEMAP);
GPUSHARED_NUMBER(kHostDeviceMap, CU_MEMHOSTALLOC_DEVICEMAP);
GPUSHARED_NUMBER(kHostRegisterReadOnly, CU_MEMHOSTREGISTER_READ_ONLY);
GPUSHARED_NUMBER(kLaunchEnd, CU_LAUNCH_PARAM_END_AS_INT);
GPUSHARED_NUMBER(kLaunchBuffer, CU_LAUNCH_PARAM_BUFFER_POINTER_AS_INT);
GPUSHARED_NUMBER(kLaunchBufferBytes, CU_LAUNCH_PARAM_BUFFER_SIZE_AS_INT);
GPUSHARED_NUMBER(kWriteValueDefault, CU_STREAM_WRITE_VALUE_DEFAULT);
GPUSHARED_NUMBER(kWriteValueNoBarrier, CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER);
GPUSHARED_NUMBER(kGreenContextDefaultStream, CU_GREEN_CTX_DEFAULT_STREAM);
GPUSHARED_NUMBER(kSplitIgnoreCoscheduling, CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING);
GPUSHARED_NUMBER(JitOption::kMaxRegisters, CU_JIT_MAX_REGISTERS);
GPUSHARED_NUMBER(JitOption::kInfoLogBuffer, CU_JIT_INFO_LOG_BUFFER);
GPUSHARED_NUMBER(JitOption::kInfoLogBytes, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES);
GPUSHARED_NUMBER(JitOption::kErrorLogBuffer, CU_JIT_ERROR_LOG_BUFFER);
GPUSHARED_NUMBER(JitOption::kErrorLogBytes, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES);
GPUSHARED_NUMBER(LoadingMode::kEager, CU_MODULE_EAGER_LOADING);
GPUSHARED_NUMBER(LoadingMode::kLazy, CU_MODULE_LAZY_LOADING);
GPUSHARED_NUMBER(ProcAddressResult::kFound, CU_GET_PROC_ADDRESS_SUCCESS);
GPUSHARED_NUMBER(ProcAddressResult::kNotFound, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
GPUSHARED_NUMBER(ProcAddressResult::kVersionNotSufficient,
                 CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
GPUSHARED_NUMBER(LocationType::kDevice, CU_MEM_LOCATION_TYPE_DEVICE);
GPUSHARED_NUMBER(LocationType::kHost, CU_MEM_LOCATION_TYPE_HOST);
GPUSHARED_NUMBER(AllocationType::kPinned, CU_MEM_ALLOCATION_TYPE_PINNED);
GPUSHARED_NUMBER(Granularity::kMinimum, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
GPUSHARED_NUMBER(Granularity::kRecommended, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
GPUSHARED_NUMBER(Access::kNone, CU_MEM_ACCESS_FLAGS_PROT_NONE);
GPUSHARED_NUMBER(Access::kRead, CU_MEM_ACCESS_FLAGS_PROT_READ);
GPUSHARED_NUMBER(Access::kReadWrite, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
GPUSHARED_NUMBER(MemoryType::kHost, CU_MEMORYTYPE_HOST);
GPUSHARED_NUMBER(MemoryType::kDevice, CU_MEMORYTYPE_DEVICE);
GPUSHARED_NUMBER(MemoryType::kArray, CU_MEMORYTYPE_ARRAY);
GPUSHARED_NUMBER(MemoryType::kUnified, CU_MEMORYTYPE_UNIFIED);
GPUSHARED_NUMBER(LaunchAttributeId::kIgnore, CU_LAUNCH_ATTRIBUTE_IGNORE);
GPUSHARED_NUMBER(LaunchAttributeId::kCooperative, CU_LAUNCH_ATTRIBUTE_COOPERATIVE);
GPUSHARED_NUMBER(LaunchAttributeId::kClusterDimension, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
GPUSHARED_NUMBER(LaunchAttributeId::kPriority, CU_LAUNCH_ATTRIBUTE_PRIORITY);
GPUSHARED_NUMBER(ResourceType::kInvalid, CU_DEV_RESOURCE_TYPE_INVALID);
GPUSHARED_NUMBER(ResourceType::kMultiprocessors, CU_DEV_RESOURCE_TYPE_SM);

// ---- exported names, which are requested only from drivers before 11.3

// cuda.h renames each call to its newest form. We use the newest form, too, except for these calls.
constexpr std::string_view kNewerForm[] = {"cuEventElapsedTime"};

#define GPUSHARED_TEXT(x) #x
#define GPUSHARED_TEXT_EXPANDED(x) GPUSHARED_TEXT(x)
struct ExportedName {
  std::string_view call, ours, theirs;
};
constexpr ExportedName kExportedNames[] = {
#define GPUSHARED_EXPORTED(name, suffix, version, feature, signature) \
  {"cu" #name, "cu" #name #suffix, GPUSHARED_TEXT_EXPANDED(cu##name)},
    GPUSHARED_CUDA_SYMBOLS(GPUSHARED_EXPORTED)};

TEST(CudaDriverAbi, ExportedNamesAreThoseOfTheHeader) {
  for (const ExportedName& name : kExportedNames) {
    if (std::ranges::find(kNewerForm, name.call) != std::end(kNewerForm)) continue;
    EXPECT_EQ(name.ours, name.theirs);
  }
}

}  // namespace
}  // namespace gpushared::device::cuda
