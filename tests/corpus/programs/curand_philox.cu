// SPDX-License-Identifier: Apache-2.0
// Random numbers generated in the kernel by cuRAND's Philox generator.
#include <curand_kernel.h>

#include "tests/corpus/program.h"

namespace gpushared::corpus {
namespace {

constexpr unsigned long long kSeed = 0x123456789abcdef0;

__global__ void Draw(uint4* bits, float* uniform, float2* normal, int rounds) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  curandStatePhilox4_32_10_t state;
  curand_init(kSeed, i, 8, &state);
  for (int round = 0; round < rounds; ++round) {
    const unsigned at = i * static_cast<unsigned>(rounds) + static_cast<unsigned>(round);
    bits[at] = curand4(&state);
    uniform[at] = curand_uniform(&state);
    normal[at] = curand_normal2(&state);
  }
}

struct Counter {
  std::uint32_t word[4];
};

// Philox4x32-10 as described by Salmon et al. (SC 2011).
Counter Philox(Counter counter, std::uint32_t key0, std::uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53} * counter.word[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57} * counter.word[2];
    counter = {{static_cast<std::uint32_t>(b >> 32) ^ counter.word[1] ^ key0,
                static_cast<std::uint32_t>(b),
                static_cast<std::uint32_t>(a >> 32) ^ counter.word[3] ^ key1,
                static_cast<std::uint32_t>(a)}};
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  return counter;
}

// The n-th number of a subsequence.
std::uint32_t Number(unsigned subsequence, std::uint64_t n) {
  const std::uint64_t block = n / 4;
  const Counter counter = {
      {static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), subsequence, 0}};
  return Philox(counter, static_cast<std::uint32_t>(kSeed), static_cast<std::uint32_t>(kSeed >> 32))
      .word[n % 4];
}

}  // namespace

std::string CurandPhilox() {
  constexpr int kThreads = 256, kRounds = 4, kCount = kThreads * kRounds;
  DeviceArray<uint4> bits(kCount);
  DeviceArray<float> uniform(kCount);
  DeviceArray<float2> normal(kCount);
  Draw<<<4, 64>>>(bits.data, uniform.data, normal.data, kRounds);
  const auto got_bits = bits.Get();
  const auto got_normal = normal.Get();
  std::vector<std::uint32_t> got, want;
  std::vector<float> want_uniform, got_pairs, want_pairs;
  for (unsigned thread = 0; thread < kThreads; ++thread) {
    std::uint64_t n = 8;
    for (int round = 0; round < kRounds; ++round) {
      const std::size_t at = thread * kRounds + static_cast<std::size_t>(round);
      for (const unsigned word : {got_bits[at].x, got_bits[at].y, got_bits[at].z, got_bits[at].w}) {
        got.push_back(word);
        want.push_back(Number(thread, n++));
      }
      const auto next = [&] { return static_cast<float>(Number(thread, n++)); };
      want_uniform.push_back(std::fma(next(), 2.3283064e-10f, 2.3283064e-10f / 2));
      const float u = std::fma(next(), 2.3283064e-10f, 2.3283064e-10f / 2);
      const float v = std::fma(next(), 2.3283064e-10f * 6.2831855f, 2.3283064e-10f * 3.1415927f);
      const float radius = std::sqrt(-2.0f * std::log(u));
      want_pairs.push_back(radius * std::sin(v));
      want_pairs.push_back(radius * std::cos(v));
      got_pairs.push_back(got_normal[at].x);
      got_pairs.push_back(got_normal[at].y);
    }
  }
  return Differs("bits", got, want) + FarFrom("uniform", uniform.Get(), want_uniform, 1e-6) +
         FarFrom("normal", got_pairs, want_pairs, 2e-5);
}

}  // namespace gpushared::corpus
