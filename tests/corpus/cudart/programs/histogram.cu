// SPDX-License-Identifier: Apache-2.0
// Written like a typical benchmark: properties, occupancy, dynamic shared memory, atomics, a host
// reference. Takes the number of values.
#include <algorithm>
#include <cstdlib>
#include <vector>

#include "tests/corpus/cudart/programs/check.h"

template <typename Counter>
__global__ void Count(const unsigned char* values, int n, Counter* totals, int bins) {
  extern __shared__ unsigned counts[];
  for (int i = threadIdx.x; i < bins; i += blockDim.x) counts[i] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    atomicAdd(&counts[values[i] % bins], 1u);
  __syncthreads();
  for (int i = threadIdx.x; i < bins; i += blockDim.x)
    atomicAdd(&totals[i], static_cast<Counter>(counts[i]));
}

int main(int argc, char** argv) {
  using Counter = unsigned long long;
  constexpr int kBins = 64;
  const int n = argc > 1 ? std::atoi(argv[1]) : 100000;
  std::vector<unsigned char> values(n);
  std::vector<Counter> want(kBins), got(kBins);
  unsigned state = 1;
  for (unsigned char& value : values) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<unsigned char>(state >> 24);
    ++want[value % kBins];
  }
  cudaDeviceProp properties;
  MUST(cudaGetDeviceProperties(&properties, 0));
  EXPECT(properties.multiProcessorCount > 0 && properties.warpSize == 32);
  EXPECT(properties.name[0] != 0 && properties.totalGlobalMem > 0);
  int grid = 0, block = 0;
  MUST(cudaOccupancyMaxPotentialBlockSize(&grid, &block, Count<Counter>, kBins * sizeof(unsigned)));
  EXPECT(grid > 0 && block >= 32);
  block = std::min(block, 128);

  unsigned char* device_values = nullptr;
  Counter* totals = nullptr;
  MUST(cudaMalloc(&device_values, values.size()));
  MUST(cudaMalloc(&totals, kBins * sizeof(Counter)));
  MUST(cudaMemcpy(device_values, values.data(), values.size(), cudaMemcpyHostToDevice));
  MUST(cudaMemset(totals, 0, kBins * sizeof(Counter)));
  Count<<<grid, block, kBins * sizeof(unsigned)>>>(device_values, n, totals, kBins);
  MUST(cudaPeekAtLastError());
  MUST(cudaMemcpy(got.data(), totals, kBins * sizeof(Counter), cudaMemcpyDeviceToHost));
  EXPECT(got == want);
  return wrong_things;
}
