// SPDX-License-Identifier: Apache-2.0
// Barriers in shared memory, as libcu++ creates them for compute capability 8.0.
#include <cuda/barrier>

using Barrier = cuda::barrier<cuda::thread_scope_block>;

// In each round every thread reads its neighbour's value and adds one.
extern "C" __global__ void pass_on(int* data, int rounds) {
  __shared__ alignas(Barrier) char room[sizeof(Barrier)];
  extern __shared__ int shown[];
  Barrier& barrier = *reinterpret_cast<Barrier*>(room);
  if (threadIdx.x == 0) init(&barrier, blockDim.x);
  __syncthreads();
  int mine = data[threadIdx.x];
  for (int round = 0; round < rounds; ++round) {
    shown[threadIdx.x] = mine;
    auto token = barrier.arrive();
    barrier.wait(std::move(token));
    mine = shown[(threadIdx.x + 1) % blockDim.x] + 1;
    barrier.arrive_and_wait();
  }
  data[threadIdx.x] = mine;
}

// Thread i leaves the barrier in round i, and stores 1 before it leaves.
extern "C" __global__ void leave_one_by_one(int* rounds_seen) {
  __shared__ alignas(Barrier) char room[sizeof(Barrier)];
  Barrier& barrier = *reinterpret_cast<Barrier*>(room);
  if (threadIdx.x == 0) init(&barrier, blockDim.x);
  __syncthreads();
  for (unsigned round = 0; round < threadIdx.x; ++round) barrier.arrive_and_wait();
  rounds_seen[threadIdx.x] = 1;
  barrier.arrive_and_drop();
}

// One half of each warp waits for a result that the other half produces later.
extern "C" __global__ void halves(int* out) {
  __shared__ alignas(Barrier) char room[sizeof(Barrier)];
  extern __shared__ int shown[];
  Barrier& barrier = *reinterpret_cast<Barrier*>(room);
  if (threadIdx.x == 0) init(&barrier, blockDim.x / 2);
  __syncthreads();
  if (threadIdx.x % 32 < 16) {
    barrier.wait_parity(false);
    out[threadIdx.x] = shown[threadIdx.x + 16];
  } else {
    int sum = 0;
    for (int i = 0; i < 1000; ++i) sum += i * static_cast<int>(threadIdx.x);
    shown[threadIdx.x] = sum;
    static_cast<void>(barrier.arrive());
  }
}
