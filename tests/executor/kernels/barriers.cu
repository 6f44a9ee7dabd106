// SPDX-License-Identifier: Apache-2.0
// Barriers with numbers, counts and reductions.

// Warp 0 produces for warp 1 with two counted barriers; the other warps do not participate.
extern "C" __global__ void producer_consumer(unsigned* out) {
  __shared__ volatile unsigned slot[32];
  const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (unsigned round = 0; round < 5; ++round) {
    if (warp == 0) {
      slot[lane] = round * 100 + lane;
      asm volatile("bar.arrive 1, 64;" ::: "memory");
      asm volatile("bar.sync 2, 64;" ::: "memory");
    } else if (warp == 1) {
      asm volatile("bar.sync 1, 64;" ::: "memory");
      out[round * 32 + lane] = slot[31 - lane];
      asm volatile("bar.arrive 2, 64;" ::: "memory");
    }
  }
}

// Combines a condition over all threads: the thread's index is below the threshold or, if `above`,
// not below it.
extern "C" __global__ void reductions(int* out, int threshold, bool above) {
  const int holds = (static_cast<int>(threadIdx.x) < threshold) != above;
  out[threadIdx.x * 3] = __syncthreads_count(holds);
  out[threadIdx.x * 3 + 1] = __syncthreads_and(holds);
  out[threadIdx.x * 3 + 2] = __syncthreads_or(holds);
}

// In each round every thread reads the value of its neighbour in a ring from the previous round.
extern "C" __global__ void many_rounds(unsigned* out, int rounds) {
  extern __shared__ unsigned values[];
  values[threadIdx.x] = threadIdx.x;
  __syncthreads();
  for (int r = 0; r < rounds; ++r) {
    const unsigned next = values[(threadIdx.x + 1) % blockDim.x] + 1;
    __syncthreads();
    values[threadIdx.x] = next;
    __syncthreads();
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = values[threadIdx.x];
}

// Half of a warp waits at the barrier while the other half still runs.
extern "C" __global__ void parted_warp(unsigned* out) {
  __shared__ unsigned values[64];
  if (threadIdx.x % 2 == 0) {
    values[threadIdx.x] = threadIdx.x;
    asm volatile("barrier.sync 3;" ::: "memory");
    out[threadIdx.x] = values[threadIdx.x + 1];
  } else {
    unsigned value = threadIdx.x;
    for (unsigned i = 0; i < threadIdx.x; ++i) value = value * 7 + i;
    values[threadIdx.x] = value;
    asm volatile("barrier.sync 3;" ::: "memory");
    out[threadIdx.x] = values[threadIdx.x - 1];
  }
}

// A barrier counts whole warps, i.e. 96 threads even if the last of three warps is not full.
extern "C" __global__ void counts_whole_warps(unsigned* out) {
  __shared__ volatile unsigned values[80];
  values[threadIdx.x] = threadIdx.x + 5;
  asm volatile("bar.sync 1, 96;" ::: "memory");
  out[threadIdx.x] = values[79 - threadIdx.x];
}
