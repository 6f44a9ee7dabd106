// SPDX-License-Identifier: Apache-2.0
// Long mangled names, several instances, loops that nvcc unrolls, predicated code.
namespace filters {
template <int kRadius, typename Value>
struct Box {
  static constexpr int kSize = 2 * kRadius + 1;
  Value weights[kSize];
};

template <int kRadius, typename Value, bool kWrap>
__global__ void Convolve(const Value* __restrict__ in, Value* __restrict__ out,
                         Box<kRadius, Value> box, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  Value sum = 0;
#pragma unroll
  for (int k = -kRadius; k <= kRadius; ++k) {
    int at = i + k;
    if (kWrap) {
      at = (at + count) % count;
    } else if (at < 0 || at >= count) {
      continue;
    }
    sum += box.weights[k + kRadius] * in[at];
  }
  out[i] = sum;
}

template __global__ void Convolve<1, float, true>(const float*, float*, Box<1, float>, int);
template __global__ void Convolve<4, double, false>(const double*, double*, Box<4, double>, int);
template __global__ void Convolve<2, long long, true>(const long long*, long long*,
                                                      Box<2, long long>, int);
}  // namespace filters

extern "C" __global__ void keep_rolled(int* data, int rounds) {
#pragma unroll 1
  for (int r = 0; r < rounds; ++r) data[threadIdx.x] = data[threadIdx.x] * 3 + r;
}
