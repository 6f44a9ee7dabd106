// SPDX-License-Identifier: Apache-2.0
// f16, bf16 and f64, every direction of conversion that C++ can express.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

extern "C" __global__ void convert(const __half2* halves, const __nv_bfloat16* brains, double* out,
                                   signed char* bytes, unsigned long long* wide) {
  const int i = threadIdx.x;
  const __half2 h = __hfma2(halves[i], halves[i + 1], __float2half2_rn(0.5f));
  const __nv_bfloat16 b = __hmul(brains[i], brains[i + 1]);
  const double d = static_cast<double>(__low2float(h)) + static_cast<double>(__bfloat162float(b));
  out[i] = sqrt(d) / (1.0 + exp(d)) + fma(d, d, 1e-300) + __drcp_rd(d) + rsqrt(d);
  bytes[i] = static_cast<signed char>(__float2int_rz(__high2float(h)));
  wide[i] = __double2ull_ru(d) + __half2ull_rn(__high2half(h)) + __float_as_uint(erff(d));
  out[i + 32] = __int2double_rn(bytes[i]) + static_cast<float>(wide[i]) + log2(d) + floor(d) +
                __half2float(__hmax(__low2half(h), __high2half(h))) + nextafter(d, 0.0);
}
