// SPDX-License-Identifier: Apache-2.0
// Histograms and a merge sort with CUB.
#include <algorithm>

#include "tests/corpus/program.h"
#include "tests/corpus/programs/temporary.h"

#include <cub/device/device_histogram.cuh>
#include <cub/device/device_merge_sort.cuh>

namespace gpushared::corpus {
namespace {

struct ByLastDigits {
  __host__ __device__ bool operator()(long long a, long long b) const {
    return a % 1000 < b % 1000;
  }
};

}  // namespace

std::string CubHistogram() {
  constexpr int kCount = 30011, kLevels = 65;
  const std::vector<unsigned char> bytes_in = RandomValues<unsigned char>(kCount, 1, 255);
  const std::vector<float> reals = RandomValues<float>(kCount, 2, 10);
  const std::vector<float> levels = {-8, -7.5f, -1, 0, 0.25f, 3, 9};
  const DeviceArray<unsigned char> d_bytes(bytes_in);
  const DeviceArray<float> d_reals(reals), d_levels(levels);
  DeviceArray<int> even(kLevels - 1), ranges(levels.size() - 1);
  WithTemporary([&](void* memory, std::size_t& bytes) {
    cub::DeviceHistogram::HistogramEven(memory, bytes, d_bytes.data, even.data, kLevels, 0, 256,
                                        kCount);
  });
  WithTemporary([&](void* memory, std::size_t& bytes) {
    cub::DeviceHistogram::HistogramRange(memory, bytes, d_reals.data, ranges.data,
                                         static_cast<int>(levels.size()), d_levels.data, kCount);
  });
  std::vector<int> want_even(kLevels - 1), want_ranges(levels.size() - 1);
  for (const unsigned char value : bytes_in) ++want_even[value / 4];
  for (const float value : reals) {
    const auto above = std::upper_bound(levels.begin(), levels.end(), value);
    if (above == levels.begin() || above == levels.end()) continue;
    ++want_ranges[static_cast<std::size_t>(above - levels.begin() - 1)];
  }
  return Differs("even", even.Get(), want_even) + Differs("ranges", ranges.Get(), want_ranges);
}

std::string CubMergeSort() {
  constexpr int kCount = 9001;
  const std::vector<long long> in = RandomValues<long long>(kCount, 3, 1000000007);
  DeviceArray<long long> keys(in);
  WithTemporary([&](void* memory, std::size_t& bytes) {
    cub::DeviceMergeSort::StableSortKeys(memory, bytes, keys.data, kCount, ByLastDigits());
  });
  std::vector<long long> want = in;
  std::stable_sort(want.begin(), want.end(), ByLastDigits());
  return Differs("keys", keys.Get(), want);
}

}  // namespace gpushared::corpus
