// SPDX-License-Identifier: Apache-2.0
// One result per thread, computed from its own elements.
#include "tests/corpus/program.h"

namespace gpushared::corpus {
namespace {

__global__ void AddVectors(const float* a, const float* b, float* sum, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) sum[i] = a[i] + b[i];
}

}  // namespace

std::string VectorAdd() {
  constexpr int kCount = 1000;
  const auto a = RandomValues<float>(kCount, 1, 10), b = RandomValues<float>(kCount, 2, 10);
  const DeviceArray<float> d_a(a), d_b(b);
  DeviceArray<float> sum(kCount);
  AddVectors<<<8, 128>>>(d_a.data, d_b.data, sum.data, kCount);
  std::vector<float> want(kCount);
  for (std::size_t i = 0; i < want.size(); ++i) want[i] = a[i] + b[i];
  return Differs("sum", sum.Get(), want);
}

}  // namespace gpushared::corpus
