// SPDX-License-Identifier: Apache-2.0
// Device-wide selection with CUB: by condition, by flags, without repetitions, as a partition.
#include <algorithm>

#include "tests/corpus/program.h"
#include "tests/corpus/programs/temporary.h"

#include <cub/device/device_partition.cuh>
#include <cub/device/device_select.cuh>

namespace gpushared::corpus {
namespace {

struct IsOdd {
  __host__ __device__ bool operator()(int value) const { return value % 2 != 0; }
};

// Returns the first `count` values that a selection wrote.
template <typename T>
std::vector<T> Front(const DeviceArray<T>& values, const DeviceArray<int>& count) {
  std::vector<T> all = values.Get();
  all.resize(static_cast<std::size_t>(count.Get()[0]));
  return all;
}

}  // namespace

std::string CubSelect() {
  constexpr int kCount = 25013;
  const std::vector<int> in = RandomValues<int>(kCount, 1, 7);
  std::vector<unsigned char> flags(kCount);
  for (std::size_t i = 0; i < flags.size(); ++i) flags[i] = in[i] > 3;
  const DeviceArray<int> d_in(in);
  const DeviceArray<unsigned char> d_flags(flags);
  DeviceArray<int> odd(kCount), flagged(kCount), unique(kCount);
  DeviceArray<int> odd_count(1), flagged_count(1), unique_count(1);
  WithTemporary([&](void* memory, std::size_t& bytes) {
    cub::DeviceSelect::If(memory, bytes, d_in.data, odd.data, odd_count.data, kCount, IsOdd());
  });
  WithTemporary([&](void* memory, std::size_t& bytes) {
    cub::DeviceSelect::Flagged(memory, bytes, d_in.data, d_flags.data, flagged.data,
                               flagged_count.data, kCount);
  });
  WithTemporary([&](void* memory, std::size_t& bytes) {
    cub::DeviceSelect::Unique(memory, bytes, d_in.data, unique.data, unique_count.data, kCount);
  });
  std::vector<int> want_odd, want_flagged, want_unique;
  std::copy_if(in.begin(), in.end(), std::back_inserter(want_odd), IsOdd());
  std::copy_if(in.begin(), in.end(), std::back_inserter(want_flagged),
               [](int value) { return value > 3; });
  std::unique_copy(in.begin(), in.end(), std::back_inserter(want_unique));
  return Differs("odd", Front(odd, odd_count), want_odd) +
         Differs("flagged", Front(flagged, flagged_count), want_flagged) +
         Differs("unique", Front(unique, unique_count), want_unique);
}

std::string CubPartition() {
  constexpr int kCount = 12007;
  const std::vector<int> in = RandomValues<int>(kCount, 5, 1000);
  const DeviceArray<int> d_in(in);
  DeviceArray<int> out(kCount), first_count(1);
  WithTemporary([&](void* memory, std::size_t& bytes) {
    cub::DevicePartition::If(memory, bytes, d_in.data, out.data, first_count.data, kCount, IsOdd());
  });
  // The remaining values follow the selected ones, in reverse order.
  std::vector<int> want, rest;
  for (const int value : in) (IsOdd()(value) ? want : rest).push_back(value);
  const std::vector<int> want_count = {static_cast<int>(want.size())};
  want.insert(want.end(), rest.rbegin(), rest.rend());
  return Differs("partition", out.Get(), want) + Differs("count", first_count.Get(), want_count);
}

}  // namespace gpushared::corpus
