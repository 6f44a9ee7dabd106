// SPDX-License-Identifier: Apache-2.0
// Cooperation of a warp's lanes and a block's threads, with divergent control flow.
#include "tests/corpus/program.h"

namespace gpushared::corpus {
namespace {

constexpr int kThreads = 128, kBlocks = 3, kCount = kThreads * kBlocks;

__device__ int Here() { return static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); }

__global__ void Shuffles(const int* in, int* out) {
  const int value = in[Here()];
  out[Here() * 4 + 0] = __shfl_sync(0xffffffffu, value, (threadIdx.x * 5 + 1) % 32);
  out[Here() * 4 + 1] = __shfl_up_sync(0xffffffffu, value, 3);
  out[Here() * 4 + 2] = __shfl_down_sync(0xffffffffu, value, 5, 16);
  out[Here() * 4 + 3] = __shfl_xor_sync(0xffffffffu, value, 9);
}

__global__ void Votes(const int* in, unsigned* out) {
  const int value = in[Here()];
  const unsigned odd = __ballot_sync(0xffffffffu, value % 2);
  const bool any = __any_sync(0xffffffffu, value == 7), all = __all_sync(0xffffffffu, value < 9);
  out[Here() * 3 + 0] = odd;
  out[Here() * 3 + 1] = any + 2 * all;
  out[Here() * 3 + 2] = __match_any_sync(0xffffffffu, value);
}

__global__ void BlockVotes(const int* in, int* out) {
  const int value = in[Here()];
  const int count = __syncthreads_count(value > 4);
  const int all = __syncthreads_and(value < 9), any = __syncthreads_or(value == 8);
  out[Here()] = count + 1000 * (all != 0) + 2000 * (any != 0);
}

// Steps of the Collatz sequence: each lane's loop has a different length.
__host__ __device__ int Steps(unsigned long long n) {
  int steps = 0;
  for (; n > 1; ++steps) {
    if (steps > 400) break;
    n = n % 2 == 0 ? n / 2 : 3 * n + 1;
  }
  return steps;
}
__global__ void Loops(const int* in, int* out) {
  out[Here()] = Steps(static_cast<unsigned>(in[Here()]));
}

__host__ __device__ __noinline__ int Fibonacci(int n) {
  return n < 2 ? n : Fibonacci(n - 1) + Fibonacci(n - 2);
}
__global__ void Recursion(const int* in, int* out) { out[Here()] = Fibonacci(in[Here()] % 9); }

__host__ __device__ int Choose(int value) {
  switch (value) {
    case 0:
      return 17;
    case 1:
      return value * 3;
    case 2:
    case 3:
      return -value;
    case 5:
      return value * value;
    case 8:
      return 1000;
    default:
      return value ^ 0x55;
  }
}
__global__ void Switches(const int* in, int* out) {
  if (in[Here()] == 4) {
    out[Here()] = 4;
    return;
  }
  out[Here()] = Choose(in[Here()]);
}

template <typename Kernel, typename Reference>
std::string CheckEach(const char* what, Kernel kernel, Reference reference, int limit) {
  const std::vector<int> in = RandomValues<int>(kCount, 1, limit);
  const DeviceArray<int> d_in(in);
  DeviceArray<int> out(kCount);
  kernel<<<kBlocks, kThreads>>>(d_in.data, out.data);
  std::vector<int> want;
  for (const int value : in) want.push_back(reference(value));
  return Differs(what, out.Get(), want);
}

}  // namespace

std::string LanesExchange() {
  const std::vector<int> in = RandomValues<int>(kCount, 2, 1000);
  const DeviceArray<int> d_in(in);
  DeviceArray<int> out(kCount * 4);
  Shuffles<<<kBlocks, kThreads>>>(d_in.data, out.data);
  std::vector<int> want;
  for (std::size_t i = 0; i < kCount; ++i) {
    const std::size_t warp = i / 32 * 32, lane = i % 32;
    want.push_back(in[warp + (i % kThreads * 5 + 1) % 32]);
    want.push_back(in[lane >= 3 ? i - 3 : i]);
    want.push_back(in[lane % 16 + 5 < 16 ? i + 5 : i]);
    want.push_back(in[warp + (lane ^ 9)]);
  }
  return Differs("shuffles", out.Get(), want);
}

std::string LanesVote() {
  const std::vector<int> in = RandomValues<int>(kCount, 3, 10);
  const DeviceArray<int> d_in(in);
  DeviceArray<unsigned> out(kCount * 3);
  Votes<<<kBlocks, kThreads>>>(d_in.data, out.data);
  std::vector<unsigned> want;
  for (std::size_t i = 0; i < kCount; ++i) {
    unsigned odd = 0, same = 0;
    bool any = false, all = true;
    for (std::size_t l = 0; l < 32; ++l) {
      const int value = in[i / 32 * 32 + l];
      odd |= value % 2 != 0 ? 1u << l : 0;
      same |= value == in[i] ? 1u << l : 0;
      any |= value == 7;
      all &= value < 9;
    }
    want.insert(want.end(), {odd, static_cast<unsigned>(any + 2 * all), same});
  }
  return Differs("votes", out.Get(), want);
}

std::string ThreadsVote() {
  const std::vector<int> in = RandomValues<int>(kCount, 4, 10);
  const DeviceArray<int> d_in(in);
  DeviceArray<int> out(kCount);
  BlockVotes<<<kBlocks, kThreads>>>(d_in.data, out.data);
  std::vector<int> want(kCount);
  for (std::size_t i = 0; i < kCount; ++i) {
    int count = 0;
    bool all = true, any = false;
    for (std::size_t j = 0; j < kThreads; ++j) {
      const int value = in[i / kThreads * kThreads + j];
      count += value > 4;
      all &= value < 9;
      any |= value == 8;
    }
    want[i] = count + 1000 * all + 2000 * any;
  }
  return Differs("votes", out.Get(), want);
}

std::string LoopsOfManyLengths() {
  return CheckEach(
      "steps", Loops, [](int n) { return Steps(static_cast<unsigned>(n)); }, 100000);
}
std::string RecursiveCalls() {
  return CheckEach(
      "fibonacci", Recursion, [](int n) { return Fibonacci(n % 9); }, 100);
}
std::string SwitchesAndReturns() {
  return CheckEach("choice", Switches, Choose, 4) +
         CheckEach(
             "choice", Switches, [](int value) { return value == 4 ? 4 : Choose(value); }, 12);
}

}  // namespace gpushared::corpus
