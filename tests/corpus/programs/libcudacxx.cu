// SPDX-License-Identifier: Apache-2.0
// libcu++: atomic references, and a barrier that threads of a block poll.
#include <cuda/atomic>
#include <cuda/barrier>

#include "tests/corpus/program.h"

namespace gpushared::corpus {
namespace {

__global__ void AtomicReferences(unsigned* sum, double* real_sum, int* largest, long long* wide) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  cuda::atomic_ref<unsigned, cuda::thread_scope_device>(*sum).fetch_add(static_cast<unsigned>(i),
                                                                        cuda::memory_order_relaxed);
  cuda::atomic_ref<double, cuda::thread_scope_device>(*real_sum).fetch_add(0.5);
  cuda::atomic_ref<int, cuda::thread_scope_system>(*largest).fetch_max(i * 7 % 1000);
  cuda::atomic_ref<long long, cuda::thread_scope_device> counter(*wide);
  long long old = counter.load(cuda::memory_order_acquire);
  while (!counter.compare_exchange_weak(old, old + 3, cuda::memory_order_acq_rel)) {
  }
}

// In each phase, all threads add their neighbour's value.
__global__ void PhasesOfABarrier(const int* in, int* out, int phases) {
  using Barrier = cuda::barrier<cuda::thread_scope_block>;
  __shared__ cuda::std::aligned_storage<sizeof(Barrier), alignof(Barrier)>::type storage;
  __shared__ int values[2][256];
  Barrier& barrier = reinterpret_cast<Barrier&>(storage);
  if (threadIdx.x == 0) init(&barrier, static_cast<cuda::std::ptrdiff_t>(blockDim.x));
  __syncthreads();
  const unsigned here = threadIdx.x, next = (here + 1) % blockDim.x;
  values[0][here] = in[blockIdx.x * blockDim.x + here];
  for (int phase = 0; phase < phases; ++phase) {
    barrier.arrive_and_wait();
    values[(phase + 1) % 2][here] = values[phase % 2][here] + values[phase % 2][next];
  }
  barrier.arrive_and_wait();
  out[blockIdx.x * blockDim.x + here] = values[phases % 2][here];
}

}  // namespace

std::string CudaAtomics() {
  DeviceArray<unsigned> sum(1);
  DeviceArray<double> real_sum(1);
  DeviceArray<int> largest(1);
  DeviceArray<long long> wide(1);
  AtomicReferences<<<5, 96>>>(sum.data, real_sum.data, largest.data, wide.data);
  unsigned want_sum = 0;
  int want_largest = 0;
  for (int i = 0; i < 480; ++i) {
    want_sum += static_cast<unsigned>(i);
    want_largest = std::max(want_largest, i * 7 % 1000);
  }
  return Differs("sum", sum.Get(), {want_sum}) + Differs("real sum", real_sum.Get(), {240.0}) +
         Differs("largest", largest.Get(), {want_largest}) +
         Differs("wide", wide.Get(), {3LL * 480});
}

std::string CudaBarrier() {
  constexpr int kPhases = 5;
  std::vector<int> in = RandomValues<int>(3 * 96, 1, 100);
  const DeviceArray<int> d_in(in);
  DeviceArray<int> out(in.size());
  PhasesOfABarrier<<<3, 96>>>(d_in.data, out.data, kPhases);
  for (int phase = 0; phase < kPhases; ++phase) {
    std::vector<int> next(in.size());
    for (std::size_t i = 0; i < in.size(); ++i) next[i] = in[i] + in[i / 96 * 96 + (i + 1) % 96];
    in = next;
  }
  return Differs("sums", out.Get(), in);
}

}  // namespace gpushared::corpus
