// SPDX-License-Identifier: Apache-2.0
// Kernels of known length whose work leaves a trace, so that a launch that was lost or ran twice
// is seen.

// One thread. out[0] counts launches; out[1] is the result of `iterations` dependent steps.
extern "C" __global__ void step(unsigned* out, unsigned iterations) {
  unsigned value = 1;
#pragma unroll 1
  for (unsigned i = 0; i < iterations; ++i) value = value * 1664525u + 1013904223u;
  out[0] += 1;
  out[1] = value;
}

// Any number of blocks of 32 threads: out[0] is what each of them has computed.
extern "C" __global__ void occupy(unsigned* out, unsigned iterations) {
  unsigned value = 1;
#pragma unroll 1
  for (unsigned i = 0; i < iterations; ++i) value = value * 1664525u + 1013904223u;
  if (threadIdx.x == 0) out[0] = value;
}

// As long as a launch of `occupy`, with each block counted in one of `counters` words behind out[0].
extern "C" __global__ void count(unsigned* out, unsigned iterations, unsigned counters) {
  unsigned value = 1;
#pragma unroll 1
  for (unsigned i = 0; i < iterations; ++i) value = value * 1664525u + 1013904223u;
  if (threadIdx.x != 0) return;
  out[0] = value;
  atomicAdd(&out[1 + blockIdx.x % counters], 1);
}

// As `occupy`, for blocks that look at a word first and end at once where it is not 0.
extern "C" __global__ void watch(unsigned* out, unsigned iterations, const volatile unsigned* word) {
  if (*word != 0) return;
  unsigned value = 1;
#pragma unroll 1
  for (unsigned i = 0; i < iterations; ++i) value = value * 1664525u + 1013904223u;
  if (threadIdx.x == 0) out[0] = value;
}

// As many parameters as launches of libraries often have.
struct Wide {
  unsigned words[256];
};
extern "C" __global__ void wide(unsigned* out, Wide given) { out[1] = given.words[255]; }
