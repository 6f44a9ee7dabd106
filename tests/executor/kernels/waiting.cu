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

extern "C" __global__ void wait_for_nobody(volatile unsigned* flag) {
  while (*flag == 0) {
  }
}

// Sleeps until the clock has moved on by `ns`.
extern "C" __global__ void sleep_for(unsigned long long ns, unsigned long long* looks) {
  unsigned long long begin, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  do {
    __nanosleep(500000 + threadIdx.x);
    if (threadIdx.x == 0) ++*looks;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (now - begin < ns);
}

// As wait_for_the_next, asleep.
extern "C" __global__ void sleep_for_the_next(volatile unsigned* done, unsigned* looks) {
  if (blockIdx.x + 1 < gridDim.x) {
    while (done[blockIdx.x + 1] == 0) {
      __nanosleep(1000000);
      ++*looks;
    }
  }
  done[blockIdx.x] = 1;
}

// Gives up after so many looks.
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

// Each lane takes the lock in a function, holds it over its return, and gives it back.
extern "C" __global__ void locks_in_functions(int* lock, volatile int* sum) {
  add_under_lock(lock, sum, 1);
  take(lock);
  *sum = *sum + 1000;
  __threadfence();
  atomicExch(lock, 0);
}
