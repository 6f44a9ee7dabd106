// SPDX-License-Identifier: Apache-2.0
// Algorithms of Thrust, which use CUB's kernels and its own.
#include <thrust/device_ptr.h>
#include <thrust/execution_policy.h>
#include <thrust/scan.h>
#include <thrust/set_operations.h>
#include <thrust/sort.h>
#include <thrust/transform_reduce.h>
#include <thrust/unique.h>

#include <algorithm>
#include <numeric>

#include "tests/corpus/program.h"

namespace gpushared::corpus {
namespace {

constexpr int kCount = 10007;

struct Square {
  __host__ __device__ long long operator()(int value) const {
    return static_cast<long long>(value) * value;
  }
};

}  // namespace

std::string ThrustTransformReduce() {
  const std::vector<int> in = RandomValues<int>(kCount, 1, 10000);
  const DeviceArray<int> d_in(in);
  const long long sum = thrust::transform_reduce(thrust::device, d_in.data, d_in.data + kCount,
                                                 Square(), 0LL, thrust::plus<long long>());
  long long want = 0;
  for (const int value : in) want += Square()(value);
  return Differs("sum of squares", std::vector<long long>{sum}, {want});
}

std::string ThrustSortByKey() {
  const std::vector<int> in = RandomValues<int>(kCount, 2, 500);
  std::vector<int> places(kCount);
  std::iota(places.begin(), places.end(), 0);
  DeviceArray<int> keys(in), values(places);
  thrust::stable_sort_by_key(thrust::device, keys.data, keys.data + kCount, values.data,
                             thrust::greater<int>());
  std::stable_sort(places.begin(), places.end(), [&](int a, int b) {
    return in[static_cast<std::size_t>(a)] > in[static_cast<std::size_t>(b)];
  });
  return Differs("places", values.Get(), places);
}

std::string ThrustScanAndUnique() {
  const std::vector<int> in = RandomValues<int>(kCount, 3, 3);
  const DeviceArray<int> d_in(in);
  DeviceArray<int> sums(kCount), unique(in);
  thrust::exclusive_scan(thrust::device, d_in.data, d_in.data + kCount, sums.data, 100);
  const int* end = thrust::unique(thrust::device, unique.data, unique.data + kCount);
  std::vector<int> want_sums(kCount), want_unique = in;
  int sum = 100;
  for (std::size_t i = 0; i < in.size(); ++i) {
    want_sums[i] = sum;
    sum += in[i];
  }
  want_unique.erase(std::unique(want_unique.begin(), want_unique.end()), want_unique.end());
  std::vector<int> got_unique = unique.Get();
  got_unique.resize(static_cast<std::size_t>(end - unique.data));
  return Differs("sums", sums.Get(), want_sums) + Differs("unique", got_unique, want_unique);
}

std::string ThrustSetIntersection() {
  std::vector<int> a = RandomValues<int>(kCount, 4, 20000), b = RandomValues<int>(kCount, 5, 20000);
  std::sort(a.begin(), a.end());
  std::sort(b.begin(), b.end());
  const DeviceArray<int> d_a(a), d_b(b);
  DeviceArray<int> both(kCount);
  const int* end = thrust::set_intersection(thrust::device, d_a.data, d_a.data + kCount, d_b.data,
                                            d_b.data + kCount, both.data);
  std::vector<int> want, got = both.Get();
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(want));
  got.resize(static_cast<std::size_t>(end - both.data));
  return Differs("intersection", got, want);
}

}  // namespace gpushared::corpus
