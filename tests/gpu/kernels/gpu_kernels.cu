// SPDX-License-Identifier: Apache-2.0
// Kernels of known duration that record their work, so that a launch that was lost or ran twice is
// detected.

// Runs one thread. out[0] counts launches; out[1] is the result of `iterations` dependent steps.
extern "C" __global__ void step(unsigned* out, unsigned iterations) {
  unsigned value = 1;
#pragma unroll 1
  for (unsigned i = 0; i < iterations; ++i) value = value * 1664525u + 1013904223u;
  out[0] += 1;
  out[1] = value;
}

// Runs any number of blocks of 32 threads: out[0] is the result that each of them computes.
extern "C" __global__ void occupy(unsigned* out, unsigned iterations) {
  unsigned value = 1;
#pragma unroll 1
  for (unsigned i = 0; i < iterations; ++i) value = value * 1664525u + 1013904223u;
  if (threadIdx.x == 0) out[0] = value;
}

// Takes as long as a launch of `occupy`, with each block counted in one of `counters` words after
// out[0].
extern "C" __global__ void count(unsigned* out, unsigned iterations, unsigned counters) {
  unsigned value = 1;
#pragma unroll 1
  for (unsigned i = 0; i < iterations; ++i) value = value * 1664525u + 1013904223u;
  if (threadIdx.x != 0) return;
  out[0] = value;
  atomicAdd(&out[1 + blockIdx.x % counters], 1);
}

// Like `occupy`, for blocks that read a word first and end at once if it is not 0.
extern "C" __global__ void watch(unsigned* out, unsigned iterations, const volatile unsigned* word) {
  if (*word != 0) return;
  unsigned value = 1;
#pragma unroll 1
  for (unsigned i = 0; i < iterations; ++i) value = value * 1664525u + 1013904223u;
  if (threadIdx.x == 0) out[0] = value;
}

// A large parameter, because the parameters of library kernels often have this size.
struct Wide {
  unsigned words[256];
};
extern "C" __global__ void wide(unsigned* out, Wide given) { out[1] = given.words[255]; }
