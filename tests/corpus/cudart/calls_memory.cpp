// SPDX-License-Identifier: Apache-2.0
// The calls of the CUDA runtime: memory and symbols.
#include <cstdlib>

#include <cuda_runtime_api.h>

#include "tests/corpus/cudart/runtime.h"

using gpushared::Client;
using gpushared::CopyShape;
using gpushared::Result;
using gpushared::Status;
using gpushared::StatusCode;
using gpushared::Stream;
using gpushared::cudart::Noted;
using gpushared::cudart::Runtime;

namespace {

cudaError_t Waited(cudaError_t error, cudaStream_t stream) {
  return error == cudaSuccess ? cudaStreamSynchronize(stream) : error;
}

struct Rows {
  void* memory;
  std::size_t pitch, width, height;
};

cudaError_t Fill(const Rows& rows, int value, cudaStream_t handle) {
  if (rows.width == 0 || rows.height == 0) return cudaSuccess;
  const Stream* const stream = Runtime::Instance().Ordered(handle);
  if (stream == nullptr) return Noted(cudaErrorInvalidResourceHandle);
  const auto element = gpushared::FillElement::U8(static_cast<std::uint8_t>(value));
  const auto address = reinterpret_cast<gpushared::DeviceAddress>(rows.memory);
  return Noted(stream->Fill2d(
      address, element,
      {.width_elements = rows.width, .height = rows.height, .pitch_bytes = rows.pitch}));
}

CopyShape OneRow(std::size_t bytes) { return {bytes, 1, bytes, bytes}; }

// Returns the address of a part of a variable. Null, with the error recorded, if it has no such
// part.
char* GetPart(const void* symbol, std::size_t bytes, std::size_t offset) {
  const Result<Runtime::Variable> variable = Runtime::Instance().FindVariable(symbol);
  if (!variable.ok()) {
    Noted(variable.status());
    Noted(cudaErrorInvalidSymbol);
    return nullptr;
  }
  if (offset > variable->bytes || bytes > variable->bytes - offset) {
    Noted(cudaErrorInvalidValue);
    return nullptr;
  }
  return reinterpret_cast<char*>(variable->address) + offset;
}

}  // namespace

extern "C" {

cudaError_t cudaMalloc(void** out, std::size_t bytes) {
  const Result<void*> memory = Runtime::Instance().Allocate(bytes);
  *out = memory.ok() ? *memory : nullptr;
  return Noted(memory.status());
}
cudaError_t cudaMallocAsync(void** out, std::size_t bytes, cudaStream_t /*stream*/) {
  return cudaMalloc(out, bytes);
}
cudaError_t cudaMallocPitch(void** out, std::size_t* pitch, std::size_t width, std::size_t height) {
  constexpr std::size_t kStep = gpushared::cudart::kPitchBytes;
  *pitch = (width + kStep - 1) / kStep * kStep;
  return cudaMalloc(out, *pitch * height);
}
cudaError_t cudaMallocManaged(void** out, std::size_t /*bytes*/, unsigned /*flags*/) {
  *out = nullptr;
  return Noted(Status(StatusCode::kUnsupported, "memory that host and device share"));
}
cudaError_t cudaFree(void* memory) { return Noted(Runtime::Instance().Free(memory)); }
cudaError_t cudaFreeAsync(void* memory, cudaStream_t /*stream*/) { return cudaFree(memory); }
cudaError_t cudaMallocHost(void** out, std::size_t bytes) {
  *out = Runtime::Instance().AllocateHost(bytes);
  return Noted(*out == nullptr ? cudaErrorMemoryAllocation : cudaSuccess);
}
cudaError_t cudaHostAlloc(void** out, std::size_t bytes, unsigned /*flags*/) {
  return cudaMallocHost(out, bytes);
}
cudaError_t cudaFreeHost(void* memory) {
  Runtime::Instance().FreeHost(memory);
  return cudaSuccess;
}
cudaError_t cudaHostRegister(void*, std::size_t, unsigned) { return cudaSuccess; }
cudaError_t cudaHostUnregister(void* /*memory*/) { return cudaSuccess; }
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  const Client* const client = Runtime::Instance().Connected();
  if (client == nullptr) return cudaErrorInitializationError;
  const gpushared::MemoryInfo info = client->memory_info();
  *total = info.total_bytes;
  *free = info.total_bytes - info.used_bytes;
  return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* out, const void* memory) {
  *out = {};
  const bool on_device = Runtime::Instance().IsOnDevice(memory);
  out->type = on_device ? cudaMemoryTypeDevice : cudaMemoryTypeUnregistered;
  (on_device ? out->devicePointer : out->hostPointer) = const_cast<void*>(memory);
  return cudaSuccess;
}

cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from,
                              std::size_t from_pitch, std::size_t width, std::size_t height,
                              cudaMemcpyKind kind, cudaStream_t stream) {
  return Noted(
      Runtime::Instance().Copy(to, from, {width, height, to_pitch, from_pitch}, kind, stream));
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return Noted(Runtime::Instance().Copy(to, from, OneRow(bytes), kind, stream));
}
cudaError_t cudaMemcpy2D(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                         std::size_t width, std::size_t height, cudaMemcpyKind kind) {
  return Waited(cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, width, height, kind, nullptr),
                nullptr);
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  return Waited(cudaMemcpyAsync(to, from, bytes, kind, nullptr), nullptr);
}

cudaError_t cudaMemset2DAsync(void* to, std::size_t pitch, int value, std::size_t width,
                              std::size_t height, cudaStream_t stream) {
  return Fill({to, pitch, width, height}, value, stream);
}
cudaError_t cudaMemset2D(void* to, std::size_t pitch, int value, std::size_t width,
                         std::size_t height) {
  return cudaMemset2DAsync(to, pitch, value, width, height, nullptr);
}
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  return Fill({to, bytes, bytes, 1}, value, stream);
}
cudaError_t cudaMemset(void* to, int value, std::size_t bytes) {
  return cudaMemsetAsync(to, value, bytes, nullptr);
}

cudaError_t cudaGetSymbolAddress(void** out, const void* symbol) {
  *out = GetPart(symbol, 0, 0);
  return *out == nullptr ? cudaErrorInvalidSymbol : cudaSuccess;
}
cudaError_t cudaGetSymbolSize(std::size_t* bytes, const void* symbol) {
  const Result<Runtime::Variable> variable = Runtime::Instance().FindVariable(symbol);
  if (!variable.ok()) return Noted(cudaErrorInvalidSymbol);
  *bytes = variable->bytes;
  return cudaSuccess;
}
cudaError_t cudaMemcpyToSymbolAsync(const void* symbol, const void* from, std::size_t bytes,
                                    std::size_t offset, cudaMemcpyKind kind, cudaStream_t stream) {
  char* const to = GetPart(symbol, bytes, offset);
  return to == nullptr ? cudaPeekAtLastError() : cudaMemcpyAsync(to, from, bytes, kind, stream);
}
cudaError_t cudaMemcpyFromSymbolAsync(void* to, const void* symbol, std::size_t bytes,
                                      std::size_t offset, cudaMemcpyKind kind,
                                      cudaStream_t stream) {
  const char* const from = GetPart(symbol, bytes, offset);
  return from == nullptr ? cudaPeekAtLastError() : cudaMemcpyAsync(to, from, bytes, kind, stream);
}
cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* from, std::size_t bytes,
                               std::size_t offset, cudaMemcpyKind kind) {
  return Waited(cudaMemcpyToSymbolAsync(symbol, from, bytes, offset, kind, nullptr), nullptr);
}
cudaError_t cudaMemcpyFromSymbol(void* to, const void* symbol, std::size_t bytes,
                                 std::size_t offset, cudaMemcpyKind kind) {
  return Waited(cudaMemcpyFromSymbolAsync(to, symbol, bytes, offset, kind, nullptr), nullptr);
}

}  // extern "C"
