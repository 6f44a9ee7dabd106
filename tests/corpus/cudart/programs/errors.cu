// SPDX-License-Identifier: Apache-2.0
// Errors have the correct codes, are reported once, and do not affect later work.
#include <cstring>

#include "tests/corpus/cudart/programs/check.h"

__global__ void Store(int* out) { *out = 7; }

int main() {
  int* out = nullptr;
  MUST(cudaMalloc(&out, sizeof *out));
  Store<<<1, 4096>>>(out);
  EXPECT(cudaPeekAtLastError() == cudaErrorInvalidConfiguration);
  EXPECT(cudaGetLastError() == cudaErrorInvalidConfiguration);
  EXPECT(cudaGetLastError() == cudaSuccess);
  EXPECT(std::strcmp(cudaGetErrorName(cudaErrorMemoryAllocation), "cudaErrorMemoryAllocation") == 0);

  void* much = out;
  EXPECT(cudaMalloc(&much, std::size_t{1} << 50) == cudaErrorMemoryAllocation && much == nullptr);
  EXPECT(cudaFree(&much) == cudaErrorInvalidValue);
  EXPECT(cudaSetDevice(3) == cudaErrorInvalidDevice);
  (void)cudaGetLastError();

  Store<<<1, 1>>>(out);
  int got = 0;
  MUST(cudaMemcpy(&got, out, sizeof got, cudaMemcpyDeviceToHost));
  EXPECT(got == 7);

  // A kernel with an invalid access fails its stream, and every later call reports the failure.
  Store<<<1, 1>>>(nullptr);
  EXPECT(cudaDeviceSynchronize() == cudaErrorLaunchFailure);
  EXPECT(cudaMemcpy(&got, out, sizeof got, cudaMemcpyDeviceToHost) == cudaErrorLaunchFailure);
  return wrong_things;
}
