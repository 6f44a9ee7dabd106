// SPDX-License-Identifier: Apache-2.0
#include <cassert>
#include <cstdio>

extern "C" __global__ void add(const float* a, const float* b, float* sum, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) sum[i] = a[i] + b[i];
}

// out[i] = out[i] * 3 + 1, so that the result depends on the order of launches.
extern "C" __global__ void step(unsigned* out, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) out[i] = out[i] * 3 + 1;
}

extern "C" __global__ void say(unsigned number) { printf("number %u\033[0m\n", number); }

// Busy for `rounds` steps of arithmetic per thread, then counts its block.
extern "C" __global__ void work(unsigned* blocks_done, int rounds) {
  unsigned value = threadIdx.x + 1;
  for (int i = 0; i < rounds; ++i) value = value * 1664525u + 1013904223u;
  if (threadIdx.x == 0) atomicAdd(blocks_done, value == 0 ? 2u : 1u);
}

extern "C" __global__ void endless(volatile unsigned* flag) {
  while (*flag == 0) {
  }
}

extern "C" __global__ void store_at(unsigned* base, long long offset_bytes) {
  *reinterpret_cast<unsigned*>(reinterpret_cast<char*>(base) + offset_bytes) = 0xdeadbeefu;
}

extern "C" __global__ void read_all(const unsigned* words, int count, unsigned* nonzero) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count && words[i] != 0) atomicAdd(nonzero, 1u);
}

extern "C" __global__ void assert_below(int limit) { assert(static_cast<int>(threadIdx.x) < limit); }

__device__ unsigned module_counter = 7;
extern "C" __global__ void bump_module_counter(unsigned* out) { *out = module_counter++; }

struct Large {
  unsigned values[1500];
};
extern "C" __global__ void sum_large(Large large, unsigned* out) {
  unsigned sum = 0;
  for (unsigned value : large.values) sum += value;
  *out = sum;
}
