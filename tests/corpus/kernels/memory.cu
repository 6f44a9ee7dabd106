// SPDX-License-Identifier: Apache-2.0
// Memory spaces and widths of access, and atomic operations.
#include <cmath>
#include <numeric>

#include "tests/corpus/program.h"

namespace gpushared::corpus {
namespace {

constexpr int kThreads = 128, kBlocks = 4, kCount = kThreads * kBlocks;

__device__ int Here() { return static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); }

// A vector through global, shared and local memory, elements reversed.
template <typename V, typename T, int Width>
__global__ void ThroughAllSpaces(const V* in, V* out) {
  __shared__ V staged[kThreads];
  staged[threadIdx.x] = in[Here()];
  __syncthreads();
  V value = staged[kThreads - 1 - threadIdx.x];
  T local[Width];
  for (int i = 0; i < Width; ++i) local[i] = reinterpret_cast<const T*>(&value)[i];
  V reversed;
  // The index is known only at run time, so that the array is in memory.
  for (int i = 0; i < Width; ++i) {
    reinterpret_cast<T*>(&reversed)[i] = local[(Width - 1 - i + Here() / 1000) % Width];
  }
  out[Here()] = reversed;
}

template <typename V, typename T, int Width>
std::string CheckSpaces(const char* what) {
  const std::vector<T> in = RandomValues<T>(kCount * Width, Width, T(100));
  const DeviceArray<T> d_in(in);
  DeviceArray<T> out(in.size());
  ThroughAllSpaces<V, T, Width><<<kBlocks, kThreads>>>(reinterpret_cast<const V*>(d_in.data),
                                                       reinterpret_cast<V*>(out.data));
  std::vector<T> want(in.size());
  for (std::size_t i = 0; i < kCount; ++i) {
    const std::size_t from = i / kThreads * kThreads + kThreads - 1 - i % kThreads;
    for (std::size_t j = 0; j < Width; ++j) want[i * Width + j] = in[from * Width + Width - 1 - j];
  }
  return Differs(what, out.Get(), want);
}

__constant__ int table[16];
__device__ unsigned visits[2] = {5, 7};

__global__ void ReadModuleVariables(int* out) {
  out[Here()] = table[Here() % 16] + table[threadIdx.x * 7 % 16];
  atomicAdd(&visits[Here() % 2], 1u);
}

// The space of a pointer is known only at run time.
__global__ void GenericAddresses(int* global, int* out) {
  __shared__ int shared[kThreads];
  int own[2] = {Here(), Here() + 1};
  shared[threadIdx.x] = Here() * 3;
  __syncthreads();
  int* from = threadIdx.x % 3 == 0   ? global + Here()
              : threadIdx.x % 3 == 1 ? shared + threadIdx.x
                                     : own + Here() % 2;
  *from += 10;
  out[Here()] = *from;
}

template <typename T>
__global__ void Atomics(const T* in, T* global, T* out) {
  __shared__ T sum;
  if (threadIdx.x == 0) sum = 0;
  __syncthreads();
  const T value = in[Here()];
  atomicAdd(&sum, value);
  atomicAdd(&global[0], value);
  if constexpr (std::is_integral_v<T>) {
    atomicMin(&global[1], value);
    atomicMax(&global[2], value);
    atomicOr(&global[3], value);
    atomicAnd(&global[4], value);
    atomicXor(&global[5], value);
    T old = global[6], seen;
    do {
      seen = old;
      old = atomicCAS(&global[6], seen, static_cast<T>(seen + value));
    } while (old != seen);
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  if constexpr (std::is_same_v<T, double>) {
    out[blockIdx.x] = sum;  // Doubles cannot be exchanged.
  } else {
    atomicExch(&out[blockIdx.x], sum);
  }
}

__global__ void WrappingCounters(unsigned* counters) {
  atomicInc(&counters[0], 9);
  atomicDec(&counters[1], 9);
}

template <typename T>
std::string CheckAtomics(const char* what) {
  std::vector<T> in = RandomValues<T>(kCount, 8, T(1000));
  if constexpr (!std::is_integral_v<T>) {
    // Sums of small whole numbers are exact in any order.
    for (T& value : in) value = std::floor(value / 16);
  }
  const DeviceArray<T> d_in(in);
  const std::vector<T> begin = {0, 500, 500, 0, T(1023), 0, 0};
  DeviceArray<T> global(begin), sums(kBlocks);
  Atomics<T><<<kBlocks, kThreads>>>(d_in.data, global.data, sums.data);
  std::vector<T> want = begin, want_sums(kBlocks);
  for (std::size_t i = 0; i < kCount; ++i) {
    const T value = in[i];
    want[0] += value;
    want_sums[i / kThreads] += value;
    if constexpr (std::is_integral_v<T>) {
      want[1] = std::min(want[1], value);
      want[2] = std::max(want[2], value);
      want[3] |= value;
      want[4] &= value;
      want[5] ^= value;
      want[6] += value;
    }
  }
  return Differs(what, global.Get(), want) + Differs(what, sums.Get(), want_sums);
}

}  // namespace

std::string VectorsThroughMemory() {
  return CheckSpaces<unsigned char, unsigned char, 1>("byte") +
         CheckSpaces<uchar2, unsigned char, 2>("bytes") + CheckSpaces<short4, short, 4>("halves") +
         CheckSpaces<int2, int, 2>("pairs of words") +
         CheckSpaces<float4, float, 4>("four floats") +
         CheckSpaces<double2, double, 2>("pairs of doubles") +
         CheckSpaces<longlong2, long long, 2>("pairs of 64 bits");
}

std::string ModuleVariables() {
  std::vector<int> values(16);
  std::iota(values.begin(), values.end(), 100);
  cudaMemcpyToSymbol(table, values.data(), 16 * sizeof(int));
  DeviceArray<int> out(kCount);
  ReadModuleVariables<<<kBlocks, kThreads>>>(out.data);
  std::vector<int> want(kCount);
  for (std::size_t i = 0; i < kCount; ++i) want[i] = values[i % 16] + values[i % kThreads * 7 % 16];
  std::vector<unsigned> counted(2);
  cudaMemcpyFromSymbol(counted.data(), visits, 2 * sizeof(unsigned));
  return Differs("table", out.Get(), want) +
         Differs("visits", counted, {5u + kCount / 2, 7u + kCount / 2});
}

std::string AddressesOfAnySpace() {
  const std::vector<int> in = RandomValues<int>(kCount, 3, 1000);
  DeviceArray<int> global(in), out(kCount);
  GenericAddresses<<<kBlocks, kThreads>>>(global.data, out.data);
  std::vector<int> want(kCount);
  for (int i = 0; i < kCount; ++i) {
    const int way = i % kThreads % 3;
    want[static_cast<std::size_t>(i)] = 10 + (way == 0   ? in[static_cast<std::size_t>(i)]
                                              : way == 1 ? i * 3
                                                         : i + i % 2);
  }
  return Differs("values", out.Get(), want);
}

std::string AtomicOperations() {
  DeviceArray<unsigned> counters(2);
  WrappingCounters<<<kBlocks, kThreads>>>(counters.data);
  return CheckAtomics<int>("int") + CheckAtomics<unsigned>("unsigned") +
         CheckAtomics<unsigned long long>("unsigned long long") + CheckAtomics<float>("float") +
         CheckAtomics<double>("double") + Differs("counters", counters.Get(), {kCount % 10u, 8u});
}

}  // namespace gpushared::corpus
