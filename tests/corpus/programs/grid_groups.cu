// SPDX-License-Identifier: Apache-2.0
// Barriers of a whole grid: every block waits for all others.
#include <cooperative_groups.h>

#include "tests/corpus/program.h"

namespace gpushared::corpus {
namespace {

namespace cg = cooperative_groups;

// Sums of neighbours, `rounds` times over the whole array, on a ring.
__global__ void Smooth(unsigned* from, unsigned* to, unsigned count, int rounds) {
  const auto grid = cg::this_grid();
  for (int round = 0; round < rounds; ++round) {
    for (unsigned i = static_cast<unsigned>(grid.thread_rank()); i < count;
         i += static_cast<unsigned>(grid.size())) {
      to[i] = from[i] + from[(i + 1) % count] + from[(i + count - 1) % count];
    }
    grid.sync();
    unsigned* other = from;
    from = to;
    to = other;
  }
}

// Every block writes the sum over all blocks, after a hand-written barrier: a counter that all
// blocks poll.
__global__ void CountedBarrier(const unsigned* in, unsigned* out, unsigned* arrived) {
  __shared__ unsigned total;
  if (threadIdx.x == 0) {
    __threadfence();
    atomicAdd(arrived + 1, in[blockIdx.x]);
    atomicAdd(arrived, 1);
    while (*reinterpret_cast<volatile unsigned*>(arrived) < gridDim.x) {
    }
    __threadfence();
    total = *reinterpret_cast<volatile unsigned*>(arrived + 1);
  }
  __syncthreads();
  out[blockIdx.x * blockDim.x + threadIdx.x] = total;
}

}  // namespace

std::string GridBarrier() {
  constexpr unsigned kCount = 777;
  constexpr int kRounds = 5;
  std::vector<unsigned> in = RandomValues<unsigned>(kCount, 1, 1000);
  DeviceArray<unsigned> a(in), b(kCount);
  unsigned count = kCount;
  int rounds = kRounds;
  void* arguments[] = {&a.data, &b.data, &count, &rounds};
  cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(&Smooth), dim3(6), dim3(96), arguments,
                              0, nullptr);
  for (int round = 0; round < kRounds; ++round) {
    std::vector<unsigned> next(kCount);
    for (std::size_t i = 0; i < kCount; ++i) {
      next[i] = in[i] + in[(i + 1) % kCount] + in[(i + kCount - 1) % kCount];
    }
    in = next;
  }
  return Differs("smoothed", (kRounds % 2 == 1 ? b : a).Get(), in);
}

std::string GridBarrierByHand() {
  const std::vector<unsigned> in = RandomValues<unsigned>(16, 2, 1000);
  const DeviceArray<unsigned> d_in(in);
  DeviceArray<unsigned> out(16 * 64), arrived(2);
  CountedBarrier<<<16, 64>>>(d_in.data, out.data, arrived.data);
  unsigned sum = 0;
  for (const unsigned value : in) sum += value;
  return Differs("total", out.Get(), std::vector<unsigned>(16 * 64, sum));
}

}  // namespace gpushared::corpus
