// SPDX-License-Identifier: Apache-2.0
// Matrix units through mma.h and through instructions, fed by asynchronous copies; and warp
// reductions in one instruction.
#include <mma.h>

#include <cuda_fp16.h>
#include <cuda_pipeline.h>

#include "tests/corpus/program.h"

namespace gpushared::corpus {
namespace {

constexpr int kSize = 64;  // Matrices are kSize x kSize.

// One warp per tile of 16 x 16.
template <typename T, typename Sum>
__global__ void WmmaProduct(const T* a, const T* b, Sum* c) {
  using namespace nvcuda;
  wmma::fragment<wmma::matrix_a, 16, 16, 16, T, wmma::row_major> tile_a;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, T, wmma::col_major> tile_b;
  wmma::fragment<wmma::accumulator, 16, 16, 16, Sum> sum;
  wmma::fill_fragment(sum, Sum(0));
  const unsigned row = blockIdx.y * 16, column = blockIdx.x * 16;
  for (int k = 0; k < kSize; k += 16) {
    wmma::load_matrix_sync(tile_a, a + row * kSize + k, kSize);
    wmma::load_matrix_sync(tile_b, b + column * kSize + k, kSize);
    wmma::mma_sync(sum, tile_a, tile_b, sum);
  }
  for (int i = 0; i < sum.num_elements; ++i) sum.x[i] = sum.x[i] * Sum(2);
  wmma::store_matrix_sync(c + row * kSize + column, sum, kSize, wmma::mem_row_major);
}

// One warp: a 16 x 8 tile of c from a (row by row) and b (column by column), staged in shared
// memory by asynchronous copies, of which two are in flight.
__global__ void PipelinedProduct(const __half* a, const __half* b, float* c) {
  __shared__ __align__(16) __half tiles_a[2][16][16], tiles_b[2][8][16];
  const unsigned lane = threadIdx.x, row = blockIdx.y * 16, column = blockIdx.x * 8;
  const auto stage = [&](int k) {
    const int slot = k / 16 % 2;
    __pipeline_memcpy_async(&tiles_a[slot][lane / 2][lane % 2 * 8],
                            a + (row + lane / 2) * kSize + k + lane % 2 * 8, 16);
    if (lane < 16) {
      __pipeline_memcpy_async(&tiles_b[slot][lane / 2][lane % 2 * 8],
                              b + (column + lane / 2) * kSize + k + lane % 2 * 8, 16);
    }
    __pipeline_commit();
  };
  float d[4] = {};
  stage(0);
  for (int k = 0; k < kSize; k += 16) {
    if (k + 16 < kSize) stage(k + 16);
    __pipeline_wait_prior(k + 16 < kSize ? 1 : 0);
    __syncwarp();
    const int slot = k / 16 % 2;
    unsigned x[4], y[2];
    const auto from_a =
        static_cast<unsigned>(__cvta_generic_to_shared(&tiles_a[slot][lane % 16][lane / 16 * 8]));
    const auto from_b =
        static_cast<unsigned>(__cvta_generic_to_shared(&tiles_b[slot][lane % 8][lane / 8 % 2 * 8]));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(from_a));
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(y[0]), "=r"(y[1])
                 : "r"(from_b));
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
    __syncwarp();
  }
  for (unsigned i = 0; i < 4; ++i) {
    c[(row + lane / 4 + i / 2 * 8) * kSize + column + lane % 4 * 2 + i % 2] = d[i];
  }
}

__global__ void WarpReductions(const unsigned* in, unsigned* out) {
  const unsigned value = in[threadIdx.x];
  out[threadIdx.x * 6 + 0] = __reduce_add_sync(0xffffffffu, value);
  out[threadIdx.x * 6 + 1] = __reduce_min_sync(0xffffffffu, value);
  out[threadIdx.x * 6 + 2] = __reduce_max_sync(0xffffffffu, value);
  out[threadIdx.x * 6 + 3] = __reduce_and_sync(0xffffffffu, value);
  out[threadIdx.x * 6 + 4] = __reduce_or_sync(0xffffffffu, value);
  out[threadIdx.x * 6 + 5] = __reduce_xor_sync(0xffffffffu, value);
}

// a times b, with b given column by column; small whole numbers, so that every sum is exact.
std::vector<float> Product(const std::vector<int>& a, const std::vector<int>& b, int factor) {
  std::vector<float> c(kSize * kSize);
  for (std::size_t i = 0; i < kSize; ++i) {
    for (std::size_t j = 0; j < kSize; ++j) {
      int sum = 0;
      for (std::size_t k = 0; k < kSize; ++k)
        sum += (a[i * kSize + k] - 4) * (b[j * kSize + k] - 4);
      c[i * kSize + j] = static_cast<float>(sum * factor);
    }
  }
  return c;
}

template <typename T>
std::vector<T> AsType(const std::vector<int>& values) {
  std::vector<T> out;
  for (const int value : values) out.push_back(T(static_cast<float>(value - 4)));
  return out;
}

template <typename T, typename Sum>
std::string CheckWmma(const char* what) {
  const std::vector<int> a = RandomValues<int>(kSize * kSize, 1, 9);
  const std::vector<int> b = RandomValues<int>(kSize * kSize, 2, 9);
  const DeviceArray<T> d_a(AsType<T>(a)), d_b(AsType<T>(b));
  DeviceArray<Sum> c(kSize * kSize);
  WmmaProduct<T, Sum><<<dim3(kSize / 16, kSize / 16), 32>>>(d_a.data, d_b.data, c.data);
  std::vector<float> got;
  for (const Sum value : c.Get()) got.push_back(static_cast<float>(value));
  return Differs(what, got, Product(a, b, 2));
}

}  // namespace

std::string MatrixProducts() {
  return CheckWmma<__half, float>("f16") + CheckWmma<signed char, int>("s8");
}

std::string PipelinedMatrixProduct() {
  const std::vector<int> a = RandomValues<int>(kSize * kSize, 3, 9);
  const std::vector<int> b = RandomValues<int>(kSize * kSize, 4, 9);
  const DeviceArray<__half> d_a(AsType<__half>(a)), d_b(AsType<__half>(b));
  DeviceArray<float> c(kSize * kSize);
  PipelinedProduct<<<dim3(kSize / 8, kSize / 16), 32>>>(d_a.data, d_b.data, c.data);
  return Differs("product", c.Get(), Product(a, b, 1));
}

std::string ReductionsOfAWarp() {
  const std::vector<unsigned> in = RandomValues<unsigned>(32, 5, 0xffffffffu);
  const DeviceArray<unsigned> d_in(in);
  DeviceArray<unsigned> out(32 * 6);
  WarpReductions<<<1, 32>>>(d_in.data, out.data);
  unsigned want[6] = {0, ~0u, 0, ~0u, 0, 0};
  for (const unsigned value : in) {
    want[0] += value;
    want[1] = std::min(want[1], value);
    want[2] = std::max(want[2], value);
    want[3] &= value;
    want[4] |= value;
    want[5] ^= value;
  }
  std::vector<unsigned> all;
  for (int i = 0; i < 32; ++i) all.insert(all.end(), want, want + 6);
  return Differs("reductions", out.Get(), all);
}

}  // namespace gpushared::corpus
