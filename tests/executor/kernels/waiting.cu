// SPDX-License-Identifier: Apache-2.0
// Threads and blocks that wait for others by polling memory.

// Block i waits for block i + 1.
extern "C" __global__ void wait_for_the_next(volatile unsigned* done, unsigned* out) {
  if (threadIdx.x == 0 && blockIdx.x + 1 < gridDim.x) {
    while (done[blockIdx.x + 1] == 0) {
    }
  }
  __syncthreads();
  out[blockIdx.x * blockDim.x + threadIdx.x] =
      done[blockIdx.x + 1 < gridDim.x ? blockIdx.x + 1 : 0];
  if (threadIdx.x == 0) done[blockIdx.x] = blockIdx.x + 100;
}

// Like wait_for_the_next, with barriers of the block in each round.
extern "C" __global__ void wait_between_barriers(volatile unsigned* done, unsigned* out) {
  __shared__ unsigned ready;
  do {
    __syncthreads();
    if (threadIdx.x == 0) ready = blockIdx.x + 1 == gridDim.x || done[blockIdx.x + 1] != 0;
    __syncthreads();
  } while (ready == 0);
  out[blockIdx.x * blockDim.x + threadIdx.x] = done[blockIdx.x + 1 < gridDim.x ? blockIdx.x + 1 : 0];
  if (threadIdx.x == 0) done[blockIdx.x] = blockIdx.x + 100;
}

// Like wait_between_barriers, with counted rounds, so that the state of the block never repeats.
extern "C" __global__ void count_between_barriers(volatile unsigned* done, unsigned* rounds) {
  unsigned round = 0;
  while (__syncthreads_or(blockIdx.x + 1 == gridDim.x || done[blockIdx.x + 1] != 0) == 0) ++round;
  rounds[blockIdx.x * blockDim.x + threadIdx.x] = round;
  done[blockIdx.x] = 1;
}

// Barnes-Hut's sort: a binary tree of `count` nodes from its root down. Each thread handles nodes
// at a fixed stride. A node can be handled only after its parent, which may belong to any block.
extern "C" __global__ void sort_down_a_tree(volatile int* start, int count) {
  const int step = static_cast<int>(gridDim.x * blockDim.x);
  int node = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  while (node < count) {
    const int begin = start[node];
    if (begin >= 0) {
      if (2 * node + 1 < count) start[2 * node + 1] = begin + 1;
      if (2 * node + 2 < count) start[2 * node + 2] = begin + 2;
      node += step;
    }
    __syncthreads();
  }
}

// Does not poll: threads of many blocks add in turn, with a barrier after each addition.
extern "C" __global__ void add_in_rounds(unsigned* sum, unsigned rounds) {
  for (unsigned round = 0; round < rounds; ++round) {
    unsigned old = *sum, seen;
    while ((seen = atomicCAS(sum, old, old + 1)) != old) old = seen;
    __syncthreads();
  }
}

extern "C" __global__ void wait_for_nobody(volatile unsigned* flag) {
  while (*flag == 0) {
  }
}

extern "C" __global__ void wait_for_nobody_between_barriers(volatile unsigned* flag) {
  __shared__ unsigned ready;
  do {
    __syncthreads();
    if (threadIdx.x == 0) ready = *flag;
    __syncthreads();
  } while (ready == 0);
}

// Sleeps until the clock has advanced by `ns`.
extern "C" __global__ void sleep_for(unsigned long long ns, unsigned long long* looks) {
  unsigned long long begin, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  do {
    __nanosleep(500000 + threadIdx.x);
    if (threadIdx.x == 0) ++*looks;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (now - begin < ns);
}

// Like wait_for_the_next, but sleeping.
extern "C" __global__ void sleep_for_the_next(volatile unsigned* done, unsigned* looks) {
  if (blockIdx.x + 1 < gridDim.x) {
    while (done[blockIdx.x + 1] == 0) {
      __nanosleep(1000000);
      ++*looks;
    }
  }
  done[blockIdx.x] = 1;
}

// Waits for the flag, but for at most `looks` polls.
extern "C" __global__ void wait_a_while(volatile unsigned* flag, unsigned looks, unsigned* out) {
  unsigned look = 0;
  while (*flag == 0 && look < looks) ++look;
  *out = look;
}

__device__ __noinline__ void add_under_lock(int* lock, volatile int* sum, int value) {
  bool done = false;
  while (!done) {
    if (atomicCAS(lock, 0, 1) == 0) {
      *sum = *sum + value;
      __threadfence();
      atomicExch(lock, 0);
      done = true;
    }
  }
}

__device__ __noinline__ void take(int* lock) {
  while (atomicCAS(lock, 0, 1) != 0) {
  }
}

// Each lane takes the lock in a function, holds it beyond the return, and releases it.
extern "C" __global__ void locks_in_functions(int* lock, volatile int* sum) {
  add_under_lock(lock, sum, 1);
  take(lock);
  *sum = *sum + 1000;
  __threadfence();
  atomicExch(lock, 0);
}
