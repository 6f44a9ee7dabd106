// SPDX-License-Identifier: Apache-2.0
// Instructions that a cpu device may lack and that must pass through nevertheless.
#include <cuda_runtime.h>
#include <mma.h>

using namespace nvcuda;

extern "C" __global__ void multiply_tile(const __half* a, const __half* b, float* c) {
  wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> left;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::col_major> right;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
  wmma::fill_fragment(sum, 0.0f);
  wmma::load_matrix_sync(left, a, 16);
  wmma::load_matrix_sync(right, b, 16);
  wmma::mma_sync(sum, left, right, sum);
  wmma::store_matrix_sync(c, sum, 16, wmma::mem_row_major);
}

extern "C" __global__ void sample(cudaTextureObject_t texture, cudaSurfaceObject_t surface,
                                  float4* out) {
  const int i = threadIdx.x;
  out[i] = tex2D<float4>(texture, i * 0.5f, 1.5f);
  out[i + 32] = tex3DLod<float4>(texture, i, 1, 2, 0.25f);
  surf2Dwrite(out[i].x, surface, i * 4, 0);
}
