// SPDX-License-Identifier: Apache-2.0
// f16 and bf16 in the forms that model code uses.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

extern "C" __global__ void half_axpy(const __half2* x, __half2* y, float alpha, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = __hfma2(__float2half2_rn(alpha), x[i], y[i]);
}

// Rows of f16 with sums in f32.
extern "C" __global__ void half_dot(const __half* a, const __half* b, float* out, int n) {
  float sum = 0;
  for (int i = threadIdx.x; i < n; i += 32) sum += __half2float(a[i]) * __half2float(b[i]);
  for (int distance = 16; distance > 0; distance >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
  if (threadIdx.x == 0) out[0] = sum;
}

extern "C" __global__ void brain_gelu(const __nv_bfloat16* in, __nv_bfloat16* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const float x = __bfloat162float(in[i]);
  out[i] = __float2bfloat16_rn(0.5f * x * (1.0f + erff(x * 0.70710678f)));
}

extern "C" __global__ void half_extremes(const __half* in, __half* out, int n) {
  __half low = in[0], high = in[0];
  for (int i = 1; i < n; ++i) {
    low = __hmin(low, in[i]);
    high = __hmax(high, in[i]);
  }
  out[0] = low;
  out[1] = high;
  out[2] = __hsub(high, low);
  out[3] = hrint(__hmul(high, __float2half(1.375f)));
}
