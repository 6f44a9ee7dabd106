// SPDX-License-Identifier: Apache-2.0
// Device-wide reductions with CUB: whole, by key, by segment, and runs.
#include <algorithm>
#include <numeric>

#include "tests/corpus/program.h"
#include "tests/corpus/programs/temporary.h"

#include <cub/device/device_reduce.cuh>
#include <cub/device/device_run_length_encode.cuh>
#include <cub/device/device_segmented_reduce.cuh>

namespace gpushared::corpus {
namespace {

constexpr int kCount = 22031;

// Runs of equal keys, of all lengths from 1 to a few hundred.
std::vector<int> RunsOfKeys() {
  std::vector<int> keys;
  for (int key = 0; keys.size() < kCount; ++key) {
    keys.insert(keys.end(), static_cast<std::size_t>(key * 37 % 211 + 1), key % 5 + key);
  }
  keys.resize(kCount);
  return keys;
}

}  // namespace

std::string CubReduce() {
  const std::vector<int> in = RandomValues<int>(kCount, 1, 100000);
  const std::vector<float> reals = RandomValues<float>(kCount, 2, 1);
  const DeviceArray<int> d_in(in);
  const DeviceArray<float> d_reals(reals);
  DeviceArray<int> sum(1), smallest(1);
  DeviceArray<float> real_sum(1);
  WithTemporary([&](void* memory, std::size_t& bytes) {
    cub::DeviceReduce::Sum(memory, bytes, d_in.data, sum.data, kCount);
  });
  WithTemporary([&](void* memory, std::size_t& bytes) {
    cub::DeviceReduce::Min(memory, bytes, d_in.data, smallest.data, kCount);
  });
  WithTemporary([&](void* memory, std::size_t& bytes) {
    cub::DeviceReduce::Sum(memory, bytes, d_reals.data, real_sum.data, kCount);
  });
  const std::vector<int> want_sum = {std::accumulate(in.begin(), in.end(), 0)};
  const std::vector<int> want_smallest = {*std::min_element(in.begin(), in.end())};
  const std::vector<double> want_real = {std::accumulate(reals.begin(), reals.end(), 0.0)};
  const std::vector<double> got_real = {static_cast<double>(real_sum.Get()[0])};
  return Differs("sum", sum.Get(), want_sum) + Differs("min", smallest.Get(), want_smallest) +
         FarFrom("sum of floats", got_real, want_real, 1e-4);
}

std::string CubReduceByKey() {
  const std::vector<int> keys = RunsOfKeys(), values = RandomValues<int>(kCount, 3, 1000);
  const DeviceArray<int> d_keys(keys), d_values(values);
  DeviceArray<int> unique(kCount), sums(kCount), count(1);
  WithTemporary([&](void* memory, std::size_t& bytes) {
    cub::DeviceReduce::ReduceByKey(memory, bytes, d_keys.data, unique.data, d_values.data,
                                   sums.data, count.data, cuda::std::plus<>(), kCount);
  });
  std::vector<int> want_unique, want_sums;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (i == 0 || keys[i] != keys[i - 1]) {
      want_unique.push_back(keys[i]);
      want_sums.push_back(0);
    }
    want_sums.back() += values[i];
  }
  const std::vector<int> want_count = {static_cast<int>(want_unique.size())};
  std::vector<int> got_unique = unique.Get(), got_sums = sums.Get();
  got_unique.resize(want_unique.size());
  got_sums.resize(want_sums.size());
  return Differs("runs", count.Get(), want_count) + Differs("keys", got_unique, want_unique) +
         Differs("sums", got_sums, want_sums);
}

std::string CubRunLengths() {
  const std::vector<int> keys = RunsOfKeys();
  const DeviceArray<int> d_keys(keys);
  DeviceArray<int> unique(kCount), lengths(kCount), count(1);
  WithTemporary([&](void* memory, std::size_t& bytes) {
    cub::DeviceRunLengthEncode::Encode(memory, bytes, d_keys.data, unique.data, lengths.data,
                                       count.data, kCount);
  });
  std::vector<int> want_lengths;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (i == 0 || keys[i] != keys[i - 1]) want_lengths.push_back(0);
    ++want_lengths.back();
  }
  std::vector<int> got = lengths.Get();
  got.resize(want_lengths.size());
  return Differs("lengths", got, want_lengths);
}

std::string CubSegmentedReduce() {
  const std::vector<int> in = RandomValues<int>(kCount, 4, 1000);
  const std::vector<int> offsets = {0, 1, 1, 33, 1000, 9000, kCount};
  const DeviceArray<int> d_in(in), d_offsets(offsets);
  DeviceArray<int> sums(offsets.size() - 1);
  WithTemporary([&](void* memory, std::size_t& bytes) {
    cub::DeviceSegmentedReduce::Sum(memory, bytes, d_in.data, sums.data,
                                    static_cast<int>(sums.size), d_offsets.data,
                                    d_offsets.data + 1);
  });
  std::vector<int> want;
  for (std::size_t i = 0; i + 1 < offsets.size(); ++i) {
    want.push_back(std::accumulate(in.begin() + offsets[i], in.begin() + offsets[i + 1], 0));
  }
  return Differs("sums", sums.Get(), want);
}

}  // namespace gpushared::corpus
