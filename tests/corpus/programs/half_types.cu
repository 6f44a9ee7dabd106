// SPDX-License-Identifier: Apache-2.0
// Arithmetic and functions of cuda_fp16.h and cuda_bf16.h.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "tests/corpus/program.h"

namespace gpushared::corpus {
namespace {

constexpr int kCount = 2048;

// Computes a * b + 0.5 with one rounding, arithmetic with minima and maxima of pairs, and functions
// of single halves.
__global__ void HalfMath(const __half2* a, const __half2* b, __half2* fused, __half2* mixed,
                         __half* functions, int pairs) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= pairs) return;
  fused[i] = __hfma2(a[i], b[i], __float2half2_rn(0.5f));
  const __half2 sum = __hadd2(a[i], b[i]), difference = __hsub2(a[i], b[i]);
  mixed[i] = __hmax2(__hmul2(sum, difference), __hmin2(__hneg2(sum), __habs2(difference)));
  const __half x = __habs(__low2half(a[i]));
  functions[i] = __hadd(hsqrt(x), __hadd(hexp2(x), hlog2(__hadd(x, __float2half(1.0f)))));
}

__global__ void BfloatMath(const __nv_bfloat162* a, const __nv_bfloat162* b, __nv_bfloat162* fused,
                           float* widened, int pairs) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= pairs) return;
  fused[i] = __hfma2(a[i], b[i], __float2bfloat162_rn(0.5f));
  widened[i] = __bfloat162float(__low2bfloat16(a[i])) * __high2float(b[i]);
}

std::vector<float> Small(unsigned seed) { return RandomValues<float>(kCount, seed, 2); }

}  // namespace

std::string HalfArithmetic() {
  const auto a = Small(1), b = Small(2);
  std::vector<__half> half_a(kCount), half_b(kCount);
  for (std::size_t i = 0; i < a.size(); ++i) {
    half_a[i] = __float2half(a[i]);
    half_b[i] = __float2half(b[i]);
  }
  const DeviceArray<__half> d_a(half_a), d_b(half_b);
  DeviceArray<__half> fused(kCount), mixed(kCount), functions(kCount / 2);
  HalfMath<<<8, 128>>>(reinterpret_cast<const __half2*>(d_a.data),
                       reinterpret_cast<const __half2*>(d_b.data),
                       reinterpret_cast<__half2*>(fused.data),
                       reinterpret_cast<__half2*>(mixed.data), functions.data, kCount / 2);
  std::vector<float> got_fused, got_mixed, got_functions, want_fused, want_mixed, want_functions;
  const auto round = [](float value) { return __half2float(__float2half(value)); };
  for (std::size_t i = 0; i < a.size(); ++i) {
    const float x = __half2float(half_a[i]), y = __half2float(half_b[i]);
    const float sum = round(x + y), difference = round(x - y);
    want_fused.push_back(round(x * y + 0.5f));
    want_mixed.push_back(
        std::fmax(round(sum * difference), std::fmin(-sum, std::fabs(difference))));
    got_fused.push_back(__half2float(fused.Get()[i]));
    got_mixed.push_back(__half2float(mixed.Get()[i]));
    if (i % 2 != 0) continue;
    want_functions.push_back(std::sqrt(std::fabs(x)) + std::exp2(std::fabs(x)) +
                             std::log2(std::fabs(x) + 1));
    got_functions.push_back(__half2float(functions.Get()[i / 2]));
  }
  return Differs("fused", got_fused, want_fused) + Differs("mixed", got_mixed, want_mixed) +
         FarFrom("functions", got_functions, want_functions, 3e-3);
}

std::string BfloatArithmetic() {
  const auto a = Small(3), b = Small(4);
  std::vector<__nv_bfloat16> bf_a(kCount), bf_b(kCount);
  for (std::size_t i = 0; i < a.size(); ++i) {
    bf_a[i] = __float2bfloat16(a[i]);
    bf_b[i] = __float2bfloat16(b[i]);
  }
  const DeviceArray<__nv_bfloat16> d_a(bf_a), d_b(bf_b);
  DeviceArray<__nv_bfloat16> fused(kCount);
  DeviceArray<float> widened(kCount / 2);
  BfloatMath<<<8, 128>>>(reinterpret_cast<const __nv_bfloat162*>(d_a.data),
                         reinterpret_cast<const __nv_bfloat162*>(d_b.data),
                         reinterpret_cast<__nv_bfloat162*>(fused.data), widened.data, kCount / 2);
  const std::vector<__nv_bfloat16> fused_bits = fused.Get();
  std::vector<float> got, want, want_widened;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const float x = __bfloat162float(bf_a[i]), y = __bfloat162float(bf_b[i]);
    got.push_back(__bfloat162float(fused_bits[i]));
    want.push_back(__bfloat162float(__float2bfloat16(std::fma(x, y, 0.5f))));
    if (i % 2 == 0) want_widened.push_back(x * __bfloat162float(bf_b[i + 1]));
  }
  return Differs("fused", got, want) + Differs("widened", widened.Get(), want_widened);
}

}  // namespace gpushared::corpus
