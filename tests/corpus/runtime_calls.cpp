// SPDX-License-Identifier: Apache-2.0
// The calls of the CUDA runtime that the corpus' programs make, on Runtime::Instance().
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <span>
#include <utility>

#include <cuda_runtime_api.h>

#include "tests/corpus/runtime.h"

using gpushared::corpus::LoadedModule;
using gpushared::corpus::Runtime;

namespace {

// A fictitious device: enough multiprocessors for several blocks, and few enough that persistent
// grids remain small.
constexpr int kMultiprocessors = 4;
constexpr int kBlocksPerMultiprocessor = 2;
constexpr int kStaticSharedMax = 48 * 1024;
constexpr int kSharedMax = 227 * 1024;

cudaError_t last_error = cudaSuccess;

cudaError_t Noted(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

gpushared::device::Dim3 Of(dim3 size) { return {size.x, size.y, size.z}; }

cudaError_t LaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments,
                         std::size_t shared_bytes, bool is_cooperative = false) {
  const bool ok = Runtime::Instance().Launch(function, Of(grid), Of(block), arguments, shared_bytes,
                                             is_cooperative);
  return Noted(ok ? cudaSuccess : cudaErrorLaunchFailure);
}

// The configuration that <<<...>>> pushes and nvcc's stub for the kernel pops.
struct CallConfiguration {
  dim3 grid, block;
  std::size_t shared_bytes;
  cudaStream_t stream;
};
CallConfiguration pending;

int AttributeFor(cudaDeviceAttr attribute) {
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor:
      return 9;
    case cudaDevAttrMultiProcessorCount:
      return kMultiprocessors;
    case cudaDevAttrMaxGridDimX:
      return 0x7fffffff;
    case cudaDevAttrMaxGridDimY:
    case cudaDevAttrMaxGridDimZ:
      return 65535;
    case cudaDevAttrMaxThreadsPerBlock:
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      return 1024;
    case cudaDevAttrWarpSize:
      return 32;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      return kStaticSharedMax;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      return kSharedMax;
    case cudaDevAttrCooperativeLaunch:
      return 1;
    default:
      return 0;
  }
}

}  // namespace

extern "C" {

void** __cudaRegisterFatBinary(void* wrapper) {
  return reinterpret_cast<void**>(Runtime::Instance().Register(wrapper));
}
void __cudaRegisterFatBinaryEnd(void** /*module*/) {}
void __cudaUnregisterFatBinary(void** /*module*/) {}
void __cudaRegisterFunction(void** module, const char* host_function, char* /*device_function*/,
                            const char* name, int /*thread_limit*/, uint3*, uint3*, dim3*, dim3*,
                            int*) {
  Runtime::Instance().RegisterFunction(reinterpret_cast<LoadedModule*>(module), host_function,
                                       name);
}
void __cudaRegisterVar(void** module, char* host_variable, char* /*device_address*/,
                       const char* name, int, std::size_t, int, int) {
  Runtime::Instance().RegisterVariable(reinterpret_cast<LoadedModule*>(module), host_variable,
                                       name);
}
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
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                               std::size_t shared_bytes, cudaStream_t /*stream*/) {
  return LaunchKernel(kernel, grid, block, arguments, shared_bytes);
}
cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments,
                             std::size_t shared_bytes, cudaStream_t /*stream*/) {
  return LaunchKernel(function, grid, block, arguments, shared_bytes);
}
cudaError_t cudaLaunchCooperativeKernel(const void* function, dim3 grid, dim3 block,
                                        void** arguments, std::size_t shared_bytes,
                                        cudaStream_t /*stream*/) {
  return LaunchKernel(function, grid, block, arguments, shared_bytes, true);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* function,
                                void** arguments) {
  const std::span attributes(config->attrs, config->numAttrs);
  const bool is_cooperative =
      std::ranges::any_of(attributes, [](const cudaLaunchAttribute& attribute) {
        return attribute.id == cudaLaunchAttributeCooperative && attribute.val.cooperative != 0;
      });
  return LaunchKernel(function, config->gridDim, config->blockDim, arguments,
                      config->dynamicSmemBytes, is_cooperative);
}

cudaError_t cudaMalloc(void** out, std::size_t bytes) {
  *out = Runtime::Instance().Allocate(bytes);
  return Noted(*out == nullptr ? cudaErrorMemoryAllocation : cudaSuccess);
}
// All memory is released at once, by Runtime::Reset.
cudaError_t cudaFree(void* /*memory*/) { return cudaSuccess; }
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind /*kind*/) {
  if (bytes != 0) std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t /*stream*/) {
  return cudaMemcpy(to, from, bytes, kind);
}
cudaError_t cudaMemset(void* to, int value, std::size_t bytes) {
  std::memset(to, value, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t /*stream*/) {
  return cudaMemset(to, value, bytes);
}
cudaError_t cudaGetSymbolAddress(void** out, const void* symbol) {
  std::uint64_t bytes = 0;
  *out = Runtime::Instance().FindVariable(symbol, &bytes);
  return Noted(*out == nullptr ? cudaErrorInvalidSymbol : cudaSuccess);
}
cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* from, std::size_t bytes,
                               std::size_t offset, cudaMemcpyKind kind) {
  void* to = nullptr;
  if (const cudaError_t found = cudaGetSymbolAddress(&to, symbol); found != cudaSuccess) {
    return found;
  }
  return cudaMemcpy(static_cast<std::byte*>(to) + offset, from, bytes, kind);
}
cudaError_t cudaMemcpyFromSymbol(void* to, const void* symbol, std::size_t bytes,
                                 std::size_t offset, cudaMemcpyKind kind) {
  void* from = nullptr;
  if (const cudaError_t found = cudaGetSymbolAddress(&from, symbol); found != cudaSuccess) {
    return found;
  }
  return cudaMemcpy(to, static_cast<std::byte*>(from) + offset, bytes, kind);
}

cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int /*device*/) { return cudaSuccess; }
cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int /*device*/) {
  *value = AttributeFor(attribute);
  return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* function) {
  *attributes = {};
  const LoadedModule* module = Runtime::Instance().GetModule(function);
  const auto* program = Runtime::Instance().FindFunction(function);
  if (module == nullptr || program == nullptr) return Noted(cudaErrorInvalidDeviceFunction);
  // "sm_75" becomes 75.
  attributes->ptxVersion = std::atoi(module->module.target.c_str() + 3);
  attributes->binaryVersion = attributes->ptxVersion;
  attributes->maxThreadsPerBlock = static_cast<int>(program->info().threads_per_block_max);
  attributes->sharedSizeBytes = program->info().static_shared_bytes;
  attributes->maxDynamicSharedSizeBytes = kSharedMax;
  attributes->numRegs = 32;
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int,
                                                                   std::size_t, unsigned) {
  *blocks = kBlocksPerMultiprocessor;
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* function,
                                                          int threads, std::size_t shared_bytes) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, threads,
                                                                shared_bytes, 0);
}
cudaError_t cudaStreamSynchronize(cudaStream_t /*stream*/) { return cudaSuccess; }
cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
cudaError_t cudaPeekAtLastError() { return last_error; }
cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
const char* cudaGetErrorString(cudaError_t /*error*/) { return "an error of the corpus' runtime"; }
const char* cudaGetErrorName(cudaError_t /*error*/) { return "cudaError"; }

}  // extern "C"
