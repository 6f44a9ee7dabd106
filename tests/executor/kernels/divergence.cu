// SPDX-License-Identifier: Apache-2.0
// Kernels whose lanes diverge and reconverge. control_test.cpp computes the same results thread by
// thread.

// A walk through nested branches, loops with break and continue, and an early return.
__host__ __device__ inline unsigned Walk(unsigned x) {
  unsigned steps = 0;
  for (unsigned i = 0; i < 50; ++i) {
    if (x % 3 == 0) {
      x = x / 3 + i;
      if (x % 2 == 0) continue;
      steps += 5;
    } else if (x % 5 == 1) {
      unsigned inner = x & 7;
      while (true) {
        steps += inner;
        if (inner++ > 9 || steps % 11 == 0) break;
        if (steps > 1000) return steps * 3 + x;
      }
      x += inner;
    } else {
      x = x * 7 + 1;
    }
    if (x > 100000) break;
    ++steps;
  }
  return steps * 2 + x;
}

extern "C" __global__ void walk(unsigned* out, unsigned n) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  out[i] = Walk(i);
}

// A branch with many targets.
extern "C" __global__ void select_case(const unsigned* choice, unsigned* out) {
  unsigned value = threadIdx.x;
  for (int round = 0; round < 3; ++round) {
    switch ((choice[threadIdx.x] + round) % 12) {
      case 0: value += 1; break;
      case 1: value *= 3; break;
      case 2: value ^= 0x55; [[fallthrough]];
      case 3: value -= 7; break;
      case 4: value = value << 3 | 1; break;
      case 5: value = ~value; break;
      case 6: value %= 1000; [[fallthrough]];
      case 7: value += choice[threadIdx.x]; break;
      case 8: value = __brev(value); break;
      case 9: value = __popc(value); break;
      default: value += 100; break;
    }
  }
  out[threadIdx.x] = value;
}

// Threads that have returned do not block those at the barrier.
extern "C" __global__ void early_return(unsigned* out) {
  __shared__ unsigned sums[64];
  sums[threadIdx.x] = threadIdx.x;
  if (threadIdx.x % 3 == 0) return;
  __syncthreads();
  out[threadIdx.x] = sums[(threadIdx.x + 1) % 64] + 1;
}

// Every lane takes the same lock in turn, which requires that lanes of one warp make progress
// separately.
extern "C" __global__ void lane_lock(int* lock, unsigned* order, unsigned* count) {
  bool done = false;
  while (!done) {
    if (atomicCAS(lock, 0, 1) == 0) {
      order[*count] = threadIdx.x;
      *count += 1;
      __threadfence();
      atomicExch(lock, 0);
      done = true;
    }
  }
}

// The lock in its usual form: the winner waits for the losers' loop to end.
extern "C" __global__ void naive_lane_lock(int* lock, unsigned* count) {
  while (atomicCAS(lock, 0, 1) != 0) {
  }
  *count += 1;
  __threadfence();
  atomicExch(lock, 0);
}

// Odd lanes wait for a flag that even lanes of the same warp set.
extern "C" __global__ void wait_in_warp(volatile unsigned* flags, unsigned* out) {
  const unsigned lane = threadIdx.x;
  if (lane & 1) {
    while (flags[lane - 1] == 0) {
    }
    out[lane] = flags[lane - 1];
  } else {
    flags[lane] = lane + 100;
    out[lane] = lane;
  }
}

// Lanes reach the exchange on two paths of different length.
extern "C" __global__ void exchange_after_parting(unsigned* out, unsigned rounds) {
  unsigned value = threadIdx.x;
  for (unsigned r = 0; r < rounds; ++r) {
    if ((threadIdx.x + r) % 4 == 0) {
      for (unsigned i = 0; i < threadIdx.x; ++i) value = value * 5 + 1;
    }
    value += __shfl_xor_sync(0xffffffffu, value, 1 << (r % 5));
    __syncwarp();
  }
  out[threadIdx.x] = value;
}

// The halves of a warp run separately, each with its own mask.
extern "C" __global__ void halves_apart(unsigned* out) {
  const unsigned lane = threadIdx.x;
  unsigned value = lane;
  if (lane < 16) {
    for (int d = 8; d > 0; d >>= 1) value += __shfl_down_sync(0x0000ffffu, value, d);
    value = __shfl_sync(0x0000ffffu, value, 0);
  } else {
    for (int d = 8; d > 0; d >>= 1) value = max(value, __shfl_xor_sync(0xffff0000u, value, d));
  }
  out[lane] = value;
}
