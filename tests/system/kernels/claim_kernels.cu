// SPDX-License-Identifier: Apache-2.0

// Busy for `rounds` steps of arithmetic per thread, then counts its block.
extern "C" __global__ void work(unsigned* runs, int rounds) {
  unsigned value = threadIdx.x + 1;
  for (int i = 0; i < rounds; ++i) value = value * 1664525u + 1013904223u;
  if (threadIdx.x == 0) atomicAdd(&runs[blockIdx.x], value == 0 ? 2u : 1u);
}
