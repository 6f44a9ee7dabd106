// SPDX-License-Identifier: Apache-2.0
// Variables of the module: initial values, copies to and from them, their addresses.
#include "tests/corpus/cudart/programs/check.h"

__device__ int counter = 5;
__device__ float scale[3] = {1, 2, 3};
__constant__ int offsets[4] = {10, 20, 30, 40};

__global__ void Use(float* out) {
  const int i = threadIdx.x;
  out[i] = static_cast<float>(offsets[i]) + (i < 3 ? scale[i] : 0);
  if (i == 0) ++counter;
}

int main() {
  float* device = nullptr;
  MUST(cudaMalloc(&device, 4 * sizeof(float)));
  const auto run = [&](const float (&want)[4]) {
    Use<<<1, 4>>>(device);
    float out[4] = {};
    MUST(cudaMemcpy(out, device, sizeof out, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 4; ++i) EXPECT(out[i] == want[i]);
  };
  run({11, 22, 33, 40});
  int count = 0;
  MUST(cudaMemcpyFromSymbol(&count, counter, sizeof count));
  EXPECT(count == 6);

  const int second[2] = {200, 300};
  MUST(cudaMemcpyToSymbol(offsets, second, sizeof second, sizeof(int)));
  const float fresh[3] = {0.5f, 0.25f, 0.125f};
  void* address = nullptr;
  MUST(cudaGetSymbolAddress(&address, scale));
  MUST(cudaMemcpy(address, fresh, sizeof fresh, cudaMemcpyHostToDevice));
  run({10.5f, 200.25f, 300.125f, 40});
  std::size_t bytes = 0;
  MUST(cudaGetSymbolSize(&bytes, scale));
  EXPECT(bytes == sizeof fresh);
  MUST(cudaMemcpyFromSymbol(&count, counter, sizeof count));
  EXPECT(count == 7);

  EXPECT(cudaMemcpyToSymbol(counter, second, sizeof second) == cudaErrorInvalidValue);
  EXPECT(cudaGetLastError() == cudaErrorInvalidValue);
  EXPECT(cudaGetLastError() == cudaSuccess);
  return wrong_things;
}
