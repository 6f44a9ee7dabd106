// SPDX-License-Identifier: Apache-2.0
// The calls of the CUDA runtime: registration, launches, the device, errors.
#include <cstdlib>
#include <cstring>
#include <utility>

#include <cuda_runtime_api.h>

#include "tests/corpus/cudart/runtime.h"

using gpushared::Client;
using gpushared::Kernel;
using gpushared::Result;
using gpushared::Status;
using gpushared::StatusCode;
using gpushared::cudart::Noted;
using gpushared::cudart::Runtime;

namespace {

constexpr int kWarpSize = 32, kSharedBytes = 48 * 1024, kRegisters = 65536;
constexpr int kVersion = 13000;

gpushared::Dim3 Of(dim3 size) { return {size.x, size.y, size.z}; }

// The configuration that <<<...>>> pushes and nvcc's stub for the kernel pops.
struct CallConfiguration {
  dim3 grid, block;
  std::size_t shared_bytes = 0;
  cudaStream_t stream = nullptr;
};
thread_local CallConfiguration pending;

cudaError_t Launch(const void* function, gpushared::LaunchShape shape, void** arguments,
                   cudaStream_t stream) {
  const Status status = Runtime::Instance().Launch(
      function, {.shape = shape, .arguments = arguments, .stream = stream});
  const cudaError_t error = Noted(status);
  // A shape that no device accepts has a separate error code.
  return error == cudaErrorInvalidValue ? Noted(cudaErrorInvalidConfiguration) : error;
}

gpushared::LaunchShape GetShape(dim3 grid, dim3 block, std::size_t shared_bytes) {
  return {.grid = Of(grid),
          .block = Of(block),
          .dynamic_shared_bytes = static_cast<std::uint32_t>(shared_bytes)};
}

int AttributeFor(const Client& client, cudaDeviceAttr attribute) {
  const gpushared::DeviceProperties& device = client.device();
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor:
      return Runtime::Instance().TargetVersion() / 10;
    case cudaDevAttrComputeCapabilityMinor:
      return Runtime::Instance().TargetVersion() % 10;
    case cudaDevAttrMultiProcessorCount:
      return static_cast<int>(device.multiprocessors);
    case cudaDevAttrMaxGridDimX:
      return static_cast<int>(device.grid_max[0]);
    case cudaDevAttrMaxGridDimY:
      return static_cast<int>(device.grid_max[1]);
    case cudaDevAttrMaxGridDimZ:
      return static_cast<int>(device.grid_max[2]);
    case cudaDevAttrMaxBlockDimX:
      return static_cast<int>(device.block_max[0]);
    case cudaDevAttrMaxBlockDimY:
      return static_cast<int>(device.block_max[1]);
    case cudaDevAttrMaxBlockDimZ:
      return static_cast<int>(device.block_max[2]);
    case cudaDevAttrMaxThreadsPerBlock:
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      return static_cast<int>(device.threads_per_block_max);
    case cudaDevAttrWarpSize:
      return kWarpSize;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      return kSharedBytes;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      return static_cast<int>(device.shared_bytes_per_block_max);
    case cudaDevAttrMaxRegistersPerBlock:
    case cudaDevAttrMaxRegistersPerMultiprocessor:
      return kRegisters;
    case cudaDevAttrCooperativeLaunch:
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrClockRate:  // In kHz; nonzero because programs divide by it.
      return 1;
    default:
      return 0;
  }
}

}  // namespace

extern "C" {

// ---- registration

void** __cudaRegisterFatBinary(void* wrapper) {
  return static_cast<void**>(Runtime::Instance().RegisterFatbin(wrapper));
}
void __cudaRegisterFatBinaryEnd(void** /*module*/) {}
void __cudaUnregisterFatBinary(void** /*module*/) {}
char __cudaInitModule(void** /*module*/) { return 1; }
void __cudaRegisterFunction(void** module, const char* host_function, char* /*device_function*/,
                            const char* name, int /*thread_limit*/, uint3*, uint3*, dim3*, dim3*,
                            int*) {
  Runtime::Instance().RegisterFunction(module, host_function, name);
}
void __cudaRegisterVar(void** module, char* host_variable, char* /*device_address*/,
                       const char* name, int /*is_external*/, std::size_t bytes, int is_constant,
                       int /*is_global*/) {
  Runtime::Instance().RegisterVariable(module, host_variable, name, bytes, is_constant != 0);
}

// ---- launches

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared_bytes,
                                     cudaStream_t stream) {
  pending = {grid, block, shared_bytes, stream};
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* shared_bytes,
                                       void* stream) {
  *grid = pending.grid;
  *block = pending.block;
  *shared_bytes = pending.shared_bytes;
  *static_cast<cudaStream_t*>(stream) = pending.stream;
  return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host_function) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(host_function));
  return cudaSuccess;
}
cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments,
                             std::size_t shared_bytes, cudaStream_t stream) {
  return Launch(function, GetShape(grid, block, shared_bytes), arguments, stream);
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                               std::size_t shared_bytes, cudaStream_t stream) {
  return cudaLaunchKernel(kernel, grid, block, arguments, shared_bytes, stream);
}
cudaError_t cudaLaunchCooperativeKernel(const void* function, dim3 grid, dim3 block,
                                        void** arguments, std::size_t shared_bytes,
                                        cudaStream_t stream) {
  gpushared::LaunchShape shape = GetShape(grid, block, shared_bytes);
  shape.is_cooperative = true;
  return Launch(function, shape, arguments, stream);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* function,
                                void** arguments) {
  gpushared::LaunchShape shape =
      GetShape(config->gridDim, config->blockDim, config->dynamicSmemBytes);
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const cudaLaunchAttribute& attribute = config->attrs[i];
    if (attribute.id == cudaLaunchAttributeCooperative)
      shape.is_cooperative = attribute.val.cooperative != 0;
    if (attribute.id == cudaLaunchAttributeClusterDimension) {
      shape.cluster = {attribute.val.clusterDim.x, attribute.val.clusterDim.y,
                       attribute.val.clusterDim.z};
    }
  }
  return Launch(function, shape, arguments, config->stream);
}

// ---- function attributes

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* function) {
  *attributes = {};
  const Result<Kernel> kernel = Runtime::Instance().FindKernel(function);
  const Client* const client = Runtime::Instance().Connected();
  if (!kernel.ok() || client == nullptr) return Noted(kernel.status());
  attributes->ptxVersion = attributes->binaryVersion = Runtime::Instance().TargetVersion();
  const std::uint32_t threads = kernel->threads_per_block_max();
  attributes->maxThreadsPerBlock =
      static_cast<int>(threads == 0 ? client->device().threads_per_block_max : threads);
  attributes->sharedSizeBytes = kernel->static_shared_bytes();
  attributes->maxDynamicSharedSizeBytes =
      static_cast<int>(client->device().shared_bytes_per_block_max - kernel->static_shared_bytes());
  attributes->numRegs = kWarpSize;
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }
cudaError_t cudaFuncSetCacheConfig(const void*, cudaFuncCache) { return cudaSuccess; }
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int,
                                                                   std::size_t, unsigned) {
  *blocks = gpushared::cudart::kBlocksPerMultiprocessor;
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* function,
                                                          int threads, std::size_t shared_bytes) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, threads,
                                                                shared_bytes, 0);
}

// ---- the device

cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  return device == 0 ? cudaSuccess : Noted(cudaErrorInvalidDevice);
}
cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaSetDeviceFlags(unsigned /*flags*/) { return cudaSuccess; }
cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache /*config*/) { return cudaSuccess; }
cudaError_t cudaDeviceSetLimit(cudaLimit, std::size_t) { return cudaSuccess; }
cudaError_t cudaDeviceReset() { return cudaDeviceSynchronize(); }
cudaError_t cudaProfilerStart() { return cudaSuccess; }
cudaError_t cudaProfilerStop() { return cudaSuccess; }
cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
  *can = 0;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = kVersion;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) { return cudaDriverGetVersion(version); }
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int /*device*/) {
  const Client* const client = Runtime::Instance().Connected();
  if (client == nullptr) return cudaErrorInitializationError;
  *value = AttributeFor(*client, attribute);
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* out, int device) {
  *out = {};
  const Client* const client = Runtime::Instance().Connected();
  if (client == nullptr) return cudaErrorInitializationError;
  if (device != 0) return Noted(cudaErrorInvalidDevice);
  const auto attribute = [&](cudaDeviceAttr which) { return AttributeFor(*client, which); };
  std::strncpy(out->name, client->device().name.c_str(), sizeof out->name - 1);
  out->totalGlobalMem = client->memory_info().total_bytes;
  out->sharedMemPerBlock = kSharedBytes;
  out->sharedMemPerBlockOptin = client->device().shared_bytes_per_block_max;
  out->sharedMemPerMultiprocessor = client->device().shared_bytes_per_block_max;
  out->regsPerBlock = out->regsPerMultiprocessor = kRegisters;
  out->warpSize = kWarpSize;
  out->memPitch = 0x7fffffff;
  out->maxThreadsPerBlock = attribute(cudaDevAttrMaxThreadsPerBlock);
  out->maxThreadsPerMultiProcessor = attribute(cudaDevAttrMaxThreadsPerMultiProcessor);
  for (int i = 0; i < 3; ++i) {
    out->maxThreadsDim[i] = static_cast<int>(client->device().block_max[static_cast<size_t>(i)]);
    out->maxGridSize[i] = static_cast<int>(client->device().grid_max[static_cast<size_t>(i)]);
  }
  out->totalConstMem = 64 * 1024;
  out->major = attribute(cudaDevAttrComputeCapabilityMajor);
  out->minor = attribute(cudaDevAttrComputeCapabilityMinor);
  out->multiProcessorCount = attribute(cudaDevAttrMultiProcessorCount);
  out->concurrentKernels = out->asyncEngineCount = out->unifiedAddressing = 1;
  out->cooperativeLaunch = 1;
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  const Client* const client = Runtime::Instance().Connected();
  return client == nullptr ? cudaErrorInitializationError : Noted(client->Synchronize());
}

// ---- errors

cudaError_t cudaPeekAtLastError() { return gpushared::cudart::LastError(false); }
cudaError_t cudaGetLastError() { return gpushared::cudart::LastError(true); }
const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInitializationError:
      return "cudaErrorInitializationError";
    case cudaErrorInvalidConfiguration:
      return "cudaErrorInvalidConfiguration";
    case cudaErrorInvalidDeviceFunction:
      return "cudaErrorInvalidDeviceFunction";
    case cudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
    case cudaErrorLaunchFailure:
      return "cudaErrorLaunchFailure";
    case cudaErrorLaunchTimeout:
      return "cudaErrorLaunchTimeout";
    case cudaErrorNotReady:
      return "cudaErrorNotReady";
    case cudaErrorNotSupported:
      return "cudaErrorNotSupported";
    default:
      return "cudaErrorUnknown";
  }
}
// The full message is on stderr; this is for programs that print the error's text.
const char* cudaGetErrorString(cudaError_t error) { return cudaGetErrorName(error); }

}  // extern "C"
