// SPDX-License-Identifier: Apache-2.0
// Shared code of the corpus' programs: vectors on the device, random inputs, and error reports.
// Also compiled by nvcc, as C++17.

#ifndef GPUSHARED_TESTS_CORPUS_PROGRAM_H_
#define GPUSHARED_TESTS_CORPUS_PROGRAM_H_

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <cuda_runtime.h>

namespace gpushared::corpus {

// An array in device memory. Never freed, because the runtime of the corpus drops all memory
// between two programs.
template <typename T>
struct DeviceArray {
  T* data = nullptr;
  std::size_t size = 0;

  explicit DeviceArray(std::size_t count) : size(count) {
    cudaMalloc(reinterpret_cast<void**>(&data), count * sizeof(T));
    cudaMemset(data, 0, count * sizeof(T));
  }
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) {
    cudaMemcpy(data, values.data(), size * sizeof(T), cudaMemcpyHostToDevice);
  }
  std::vector<T> Get() const {
    std::vector<T> values(size);
    cudaMemcpy(values.data(), data, size * sizeof(T), cudaMemcpyDeviceToHost);
    return values;
  }
};

inline std::string Text(double value) { return std::to_string(value); }

// Returns "" if got equals want to the last bit, otherwise the first difference.
template <typename T>
std::string Differs(const char* what, const std::vector<T>& got, const std::vector<T>& want) {
  if (got.size() != want.size()) {
    return std::string(what) + ": " + std::to_string(got.size()) + " values instead of " +
           std::to_string(want.size()) + "; ";
  }
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (std::memcmp(&got[i], &want[i], sizeof(T)) == 0) continue;
    std::string text = std::string(what) + "[" + std::to_string(i) + "]";
    if constexpr (std::is_arithmetic_v<T>) {
      text += " is " + std::to_string(got[i]) + " instead of " + std::to_string(want[i]);
    }
    return text + "; ";
  }
  return "";
}

// Like Differs, but permits an error of `relative` times the wanted value, or times 1 if that is
// smaller.
template <typename T>
std::string FarFrom(const char* what, const std::vector<T>& got, const std::vector<T>& want,
                    double relative) {
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double x = static_cast<double>(got[i]), y = static_cast<double>(want[i]);
    if (std::isnan(x) && std::isnan(y)) continue;
    if (x == y || std::fabs(x - y) <= relative * std::fmax(1.0, std::fabs(y))) continue;
    return std::string(what) + "[" + std::to_string(i) + "] is " + std::to_string(x) +
           " instead of " + std::to_string(y) + "; ";
  }
  return "";
}

// Deterministic pseudo-random values below `limit` (integers), or in [-limit, limit).
template <typename T>
std::vector<T> RandomValues(std::size_t count, unsigned seed, T limit) {
  std::mt19937_64 random(seed);
  std::vector<T> values(count);
  for (T& value : values) {
    if constexpr (std::is_floating_point_v<T>) {
      value = std::uniform_real_distribution<T>(-limit, limit)(random);
    } else {
      value = static_cast<T>(random() % static_cast<std::uint64_t>(limit));
    }
  }
  return values;
}

}  // namespace gpushared::corpus

#endif  // GPUSHARED_TESTS_CORPUS_PROGRAM_H_
