// SPDX-License-Identifier: Apache-2.0
// Floating-point arithmetic, comparisons, rounding and functions of f32 and f64.
#include "tests/corpus/kernels/apply.h"

namespace gpushared::corpus {
namespace {

struct Sums {
  template <typename T>
  __host__ __device__ T operator()(T a, T b) const {
    return a + b * T(1);
  }
};
struct Products {
  template <typename T>
  __host__ __device__ T operator()(T a, T b) const {
    return a * b;
  }
};
struct Quotients {
  template <typename T>
  __host__ __device__ T operator()(T a, T b) const {
    return a / b;
  }
};
struct Fused {
  __host__ __device__ double operator()(double a, double b) const { return fma(a, b, 0.75); }
  __host__ __device__ float operator()(float a, float b) const { return fmaf(a, b, 0.75f); }
};
struct Roots {
  __host__ __device__ double operator()(double a, double b) const { return sqrt(fabs(a)) - b; }
  __host__ __device__ float operator()(float a, float b) const { return sqrtf(fabsf(a)) - b; }
};
struct RealExtremes {
  __host__ __device__ double operator()(double a, double b) const { return fmax(fmin(a, 3.0), b); }
  __host__ __device__ float operator()(float a, float b) const { return fmaxf(fminf(a, 3.0f), b); }
};
struct RealRelations {
  template <typename T>
  __host__ __device__ int operator()(T a, T b) const {
    return (a < b) | (a <= b) << 1 | (a > b) << 2 | (a >= b) << 3 | (a == b) << 4 | (a != b) << 5 |
           !(a < b) << 6 | !(a >= b) << 7;
  }
};
struct Roundings {
  __host__ __device__ double operator()(double a, double b) const {
    return floor(a) + ceil(b) + trunc(a) + rint(b);
  }
  __host__ __device__ float operator()(float a, float b) const {
    return floorf(a) + ceilf(b) + truncf(a) + rintf(b);
  }
};
struct ToWhole {
  template <typename T>
  __host__ __device__ long long operator()(T a, T b) const {
    // Outside the range of int, C++ and PTX differ.
    const bool fits = a > T(-1e9) && a < T(1e9) && b > T(-1e9) && b < T(1e9);
    return fits ? static_cast<int>(a) + static_cast<long long>(b) * 3 : 0;
  }
};
struct Functions {
  __host__ __device__ float operator()(float a, float b) const {
    const float x = fabsf(a) < 1e6f ? a / 1000 : 0.5f, y = fabsf(b) < 1e6f ? fabsf(b) + 1 : 1.0f;
    return expf(x) + logf(y) + sinf(x) * cosf(x) + powf(y, x) + tanhf(x) + atan2f(x, y);
  }
  __host__ __device__ double operator()(double a, double b) const {
    const double x = fabs(a) < 1e6 ? a / 1000 : 0.5, y = fabs(b) < 1e6 ? fabs(b) + 1 : 1.0;
    return exp(x) + log(y) + sin(x) * cos(x) + pow(y, x) + tanh(x) + atan2(x, y) + erf(x) + cbrt(y);
  }
};
struct FastFunctions {
  __host__ __device__ float operator()(float a, float b) const {
    const float x = fabsf(a) < 1e6f ? a / 1000 : 0.5f, y = fabsf(b) < 1e6f ? fabsf(b) + 1 : 1.0f;
#ifdef __CUDA_ARCH__
    return __expf(x) + __logf(y) + __sinf(x) * __cosf(x) + __fdividef(x, y) + rsqrtf(y);
#else
    return expf(x) + logf(y) + sinf(x) * cosf(x) + x / y + 1 / sqrtf(y);
#endif
  }
};
// Directed rounding encloses the exact sum and product in an interval of at most one ulp.
struct Enclosed {
  __host__ __device__ int operator()(double a, double b) const {
#ifdef __CUDA_ARCH__
    const double low = __dadd_rd(a, b), high = __dadd_ru(a, b), cut = __dadd_rz(a, b);
    const float flow = __fmul_rd(float(a), float(b)), fhigh = __fmul_ru(float(a), float(b));
    const float froot = __fsqrt_rz(fabsf(float(a))), fquotient = __fdiv_rd(float(a), 3.0f);
    const bool sum = !(low > high) && (cut == low || cut == high || cut != cut);
    const bool product = !(flow > fhigh);
    const bool rest = !(froot > sqrtf(fabsf(float(a)))) && !(fquotient > float(a) / 3.0f);
    return sum + 2 * product + 4 * rest;
#else
    return 7;
#endif
  }
};

}  // namespace

std::string RealArithmetic() {
  return CheckReals<Sums>("sums", 1e-300) + CheckReals<Products>("products") +
         CheckReals<Quotients>("quotients") + CheckReals<Fused>("fused") +
         CheckReals<Roots>("roots");
}
std::string RealComparisons() {
  return CheckReals<RealExtremes>("extremes") + CheckReals<RealRelations>("relations");
}
std::string RealRounding() {
  return CheckReals<Roundings>("rounding") + CheckReals<ToWhole>("to whole") +
         CheckApply<Enclosed, double>("enclosed");
}
std::string RealFunctions() {
  return CheckApply<Functions, float>("functions", 1e-5) +
         CheckApply<Functions, double>("functions of doubles", 1e-14) +
         CheckApply<FastFunctions, float>("fast functions", 1e-4);
}

}  // namespace gpushared::corpus
