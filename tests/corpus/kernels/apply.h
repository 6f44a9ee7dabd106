// SPDX-License-Identifier: Apache-2.0
// A kernel per function object: out[i] = f(a[i], b[i]). The same source, compiled by the host's
// compiler, is the host reference.

#ifndef GPUSHARED_TESTS_CORPUS_KERNELS_APPLY_H_
#define GPUSHARED_TESTS_CORPUS_KERNELS_APPLY_H_

#include <limits>
#include <type_traits>

#include "tests/corpus/program.h"

namespace gpushared::corpus {

template <typename F, typename T, typename R>
__global__ void Apply(const T* a, const T* b, R* out, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) out[i] = F()(a[i], b[i]);
}

// Appends pairs of values to `a` and `b`: all combinations of values on which implementations tend
// to fail, and random values.
template <typename T>
void Pairs(std::vector<T>* a, std::vector<T>* b) {
  using Limits = std::numeric_limits<T>;
  std::vector<T> edges = {T(0), T(1), T(2), T(7), Limits::max(), Limits::lowest(), T(-1), T(100)};
  if constexpr (std::is_floating_point_v<T>) {
    edges.insert(edges.end(), {Limits::min(), Limits::denorm_min(), Limits::infinity(),
                               -Limits::infinity(), -T(0), T(0.5), T(2.5), T(-3.25)});
  }
  for (const T x : edges) {
    for (const T y : edges) {
      a->push_back(x);
      b->push_back(y);
    }
  }
  std::mt19937_64 random(1);
  for (int i = 0; i < 500; ++i) {
    if constexpr (std::is_floating_point_v<T>) {
      a->push_back(std::uniform_real_distribution<T>(-1000, 1000)(random));
      b->push_back(std::uniform_real_distribution<T>(-2, 2)(random));
    } else {
      a->push_back(static_cast<T>(random()));
      b->push_back(static_cast<T>(random() >> (random() % 64)));
    }
  }
}

// `relative`: permitted error of floating-point results (FarFrom). Other results must be equal.
template <typename F, typename T>
std::string CheckApply(const char* what, double relative = 0) {
  using R = decltype(F()(T(), T()));
  std::vector<T> a, b;
  Pairs(&a, &b);
  const DeviceArray<T> d_a(a), d_b(b);
  DeviceArray<R> out(a.size());
  const int count = static_cast<int>(a.size());
  Apply<F, T, R><<<(count + 127) / 128, 128>>>(d_a.data, d_b.data, out.data, count);
  std::vector<R> want(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) want[i] = F()(a[i], b[i]);
  if constexpr (std::is_floating_point_v<R>) return FarFrom(what, out.Get(), want, relative);
  return Differs(what, out.Get(), want);
}

template <typename F>
std::string CheckIntegers(const char* what) {
  return CheckApply<F, std::uint8_t>(what) + CheckApply<F, std::int16_t>(what) +
         CheckApply<F, std::uint16_t>(what) + CheckApply<F, std::int32_t>(what) +
         CheckApply<F, std::uint32_t>(what) + CheckApply<F, std::int64_t>(what) +
         CheckApply<F, std::uint64_t>(what);
}

template <typename F>
std::string CheckReals(const char* what, double relative = 0) {
  return CheckApply<F, float>(what, relative) + CheckApply<F, double>(what, relative);
}

}  // namespace gpushared::corpus

#endif  // GPUSHARED_TESTS_CORPUS_KERNELS_APPLY_H_
