// SPDX-License-Identifier: Apache-2.0

// One block is `rounds` steps of arithmetic long.
extern "C" __global__ void busy(unsigned* out, unsigned rounds) {
  unsigned value = threadIdx.x + 1;
  for (unsigned i = 0; i < rounds; ++i) value = value * 1664525u + 1013904223u;
  out[blockIdx.x % 1024 * blockDim.x + threadIdx.x] = value;
}

// Each thread reads and writes `rounds` words, those of a warp side by side.
extern "C" __global__ void stream(unsigned* out, unsigned rounds) {
  for (unsigned i = 0; i < rounds; ++i) {
    unsigned* const word = out + (blockIdx.x * 31u + i) % 4096u * blockDim.x + threadIdx.x;
    *word = *word * 3u + 1u;
  }
}
