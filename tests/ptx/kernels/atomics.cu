// SPDX-License-Identifier: Apache-2.0
// Atomics of every common kind, fences, and a spin lock.
__device__ int g_lock;
__device__ unsigned long long g_total;

extern "C" __global__ void count(const int* keys, unsigned* bins, float* sums, double* exact,
                                 unsigned long long* largest, int n) {
  __shared__ unsigned local[64];
  if (threadIdx.x < 64) local[threadIdx.x] = 0;
  __syncthreads();
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    atomicAdd(&local[keys[i] & 63], 1u);
    atomicAdd(&sums[keys[i] & 63], 0.5f);
    atomicAdd(exact, 0.25);
    atomicMax(largest, static_cast<unsigned long long>(keys[i]));
    atomicInc(&bins[64], 1000u);
    atomicXor(&bins[65], static_cast<unsigned>(i));
    atomicAdd_block(&bins[66], 2u);
    atomicAdd_system(&g_total, 1ull);
    atomicExch(&bins[67], atomicMin(reinterpret_cast<int*>(&bins[68]), -i));
  }
  __syncthreads();
  if (threadIdx.x < 64) atomicAdd(&bins[threadIdx.x], local[threadIdx.x]);
  if (threadIdx.x == 0) {
    while (atomicCAS(&g_lock, 0, 1) != 0) __nanosleep(100);
    __threadfence();
    bins[69] += 1;
    __threadfence();
    atomicExch(&g_lock, 0);
  }
}
