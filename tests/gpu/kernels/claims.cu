// SPDX-License-Identifier: Apache-2.0

// One block is `rounds` steps of arithmetic long. Unrolled so far that the counter weighs little:
// ptxas chooses its instructions by what stands around the loop, not by what the loop does.
extern "C" __global__ void busy(unsigned* out, unsigned rounds) {
  unsigned value = threadIdx.x + 1;
#pragma unroll 32
  for (unsigned i = 0; i < rounds; ++i) value = value * value + 1013904223u;
  out[blockIdx.x % 1024 * blockDim.x + threadIdx.x] = value;
}

// What forms cost at worst: seven instructions for 16 rounds, so one more in the loop shows, and so
// does another one in the place of one of them.
extern "C" __global__ void tight(unsigned* out, unsigned rounds) {
  unsigned value = threadIdx.x + 1;
  for (unsigned i = 0; i < rounds; ++i) value = value * 1664525u + 1013904223u;
  out[blockIdx.x % 1024 * blockDim.x + threadIdx.x] = value;
}

// Each thread reads and writes `rounds` words, those of a warp side by side. No two blocks near
// each other in the grid are near each other in memory, so it does not matter which ones share a
// multiprocessor.
extern "C" __global__ void stream(unsigned* out, unsigned rounds) {
  for (unsigned i = 0; i < rounds; ++i) {
    unsigned* const word = out + (blockIdx.x * 40503u + i) % 65536u * blockDim.x + threadIdx.x;
    *word = *word * 3u + 1u;
  }
}

// As above, but on a GPU of 132 multiprocessors the blocks that share one also share most of their
// words: 132 * 31 is 4 less than 4096. Claimed blocks come to multiprocessors in another order.
extern "C" __global__ void sharing(unsigned* out, unsigned rounds) {
  for (unsigned i = 0; i < rounds; ++i) {
    unsigned* const word = out + (blockIdx.x * 31u + i) % 4096u * blockDim.x + threadIdx.x;
    *word = *word * 3u + 1u;
  }
}
