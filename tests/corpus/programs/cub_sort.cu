// SPDX-License-Identifier: Apache-2.0
// Sorting with CUB: least significant digit first in one sweep, and segments.
#include <algorithm>
#include <numeric>

#include "tests/corpus/program.h"
#include "tests/corpus/programs/temporary.h"

#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_segmented_sort.cuh>

namespace gpushared::corpus {

std::string CubRadixSort() {
  constexpr int kCount = 20011;
  const std::vector<unsigned> keys = RandomValues<unsigned>(kCount, 1, 0xffffffffu);
  const std::vector<float> reals = RandomValues<float>(kCount, 2, 100);
  std::vector<int> places(kCount);
  std::iota(places.begin(), places.end(), 0);
  const DeviceArray<unsigned> d_keys(keys);
  const DeviceArray<float> d_reals(reals);
  const DeviceArray<int> d_places(places);
  DeviceArray<unsigned> sorted(kCount);
  DeviceArray<float> falling(kCount);
  DeviceArray<int> origin(kCount);
  WithTemporary([&](void* memory, std::size_t& bytes) {
    cub::DeviceRadixSort::SortKeys(memory, bytes, d_keys.data, sorted.data, kCount);
  });
  WithTemporary([&](void* memory, std::size_t& bytes) {
    cub::DeviceRadixSort::SortPairsDescending(memory, bytes, d_reals.data, falling.data,
                                              d_places.data, origin.data, kCount);
  });
  // Few items use the kernel that sorts within one block.
  DeviceArray<unsigned> few(100);
  WithTemporary([&](void* memory, std::size_t& bytes) {
    cub::DeviceRadixSort::SortKeys(memory, bytes, d_keys.data, few.data, 100);
  });
  std::vector<unsigned> want = keys, want_few(keys.begin(), keys.begin() + 100);
  std::sort(want.begin(), want.end());
  std::sort(want_few.begin(), want_few.end());
  std::stable_sort(places.begin(), places.end(), [&](int a, int b) {
    return reals[static_cast<std::size_t>(a)] > reals[static_cast<std::size_t>(b)];
  });
  std::vector<float> want_falling;
  for (const int place : places) want_falling.push_back(reals[static_cast<std::size_t>(place)]);
  return Differs("sorted", sorted.Get(), want) + Differs("falling", falling.Get(), want_falling) +
         Differs("origin", origin.Get(), places) + Differs("few", few.Get(), want_few);
}

std::string CubSegmentedSort() {
  const std::vector<int> offsets = {0, 3, 3, 40, 300, 301, 2500, 9000};
  const std::vector<int> keys = RandomValues<int>(9000, 3, 100000);
  const DeviceArray<int> d_keys(keys), d_offsets(offsets);
  DeviceArray<int> sorted(keys.size());
  const int segments = static_cast<int>(offsets.size()) - 1;
  WithTemporary([&](void* memory, std::size_t& bytes) {
    cub::DeviceSegmentedSort::SortKeys(memory, bytes, d_keys.data, sorted.data,
                                       static_cast<int>(keys.size()), segments, d_offsets.data,
                                       d_offsets.data + 1);
  });
  std::vector<int> want = keys;
  for (std::size_t i = 0; i + 1 < offsets.size(); ++i) {
    std::sort(want.begin() + offsets[i], want.begin() + offsets[i + 1]);
  }
  return Differs("segments", sorted.Get(), want);
}

}  // namespace gpushared::corpus
