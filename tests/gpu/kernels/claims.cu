// SPDX-License-Identifier: Apache-2.0

// Each block computes `rounds` steps of arithmetic. ptxas chooses the instructions of the loop's
// counter by the code around the loop, so the loop is unrolled to make the counter cost little.
extern "C" __global__ void busy(unsigned* out, unsigned rounds) {
  unsigned value = threadIdx.x + 1;
#pragma unroll 32
  for (unsigned i = 0; i < rounds; ++i) value = value * value + 1013904223u;
  out[blockIdx.x % 1024 * blockDim.x + threadIdx.x] = value;
}

// The worst case for the forms: 16 rounds take seven instructions, so a further or a slower
// instruction in the loop is noticeable.
extern "C" __global__ void tight(unsigned* out, unsigned rounds) {
  unsigned value = threadIdx.x + 1;
  for (unsigned i = 0; i < rounds; ++i) value = value * 1664525u + 1013904223u;
  out[blockIdx.x % 1024 * blockDim.x + threadIdx.x] = value;
}

// Each thread reads and writes `rounds` words, and those of a warp are adjacent. Blocks that are
// close to each other in the grid are far apart in memory, so it does not matter which ones share a
// multiprocessor.
extern "C" __global__ void stream(unsigned* out, unsigned rounds) {
  for (unsigned i = 0; i < rounds; ++i) {
    unsigned* const word = out + (blockIdx.x * 40503u + i) % 65536u * blockDim.x + threadIdx.x;
    *word = *word * 3u + 1u;
  }
}

// Like `stream`, but on a GPU of 132 multiprocessors the blocks that share one also share most of
// their words, because 132 * 31 is 4 less than 4096. Claimed blocks are assigned to multiprocessors
// in a different order.
extern "C" __global__ void sharing(unsigned* out, unsigned rounds) {
  for (unsigned i = 0; i < rounds; ++i) {
    unsigned* const word = out + (blockIdx.x * 31u + i) % 4096u * blockDim.x + threadIdx.x;
    *word = *word * 3u + 1u;
  }
}
