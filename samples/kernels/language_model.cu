// SPDX-License-Identifier: Apache-2.0
// Forward and backward pass of a character-level language model: embedding, two matrix products,
// tanh, softmax cross-entropy, stochastic gradient descent. All matrices are row-major. Every sum
// has a fixed order, so that a run can be repeated exactly, whatever else shares the device.

namespace {

constexpr int kTile = 16;  // Threads per block: kTile x kTile.

// c[m x n] = op(a)[m x k] * op(b)[k x n], where op transposes the stored matrix if kTransposeA or
// kTransposeB is set, and otherwise has no effect.
template <bool kTransposeA, bool kTransposeB>
__device__ void Multiply(const float* a, const float* b, float* c, int m, int n, int k) {
  __shared__ float tile_a[kTile][kTile];
  __shared__ float tile_b[kTile][kTile];
  const int tx = threadIdx.x, ty = threadIdx.y;
  const int row = blockIdx.y * kTile + ty;
  const int column = blockIdx.x * kTile + tx;

  float sum = 0;
  for (int first = 0; first < k; first += kTile) {
    const int ka = first + tx, kb = first + ty;
    tile_a[ty][tx] = row < m && ka < k ? (kTransposeA ? a[ka * m + row] : a[row * k + ka]) : 0.0f;
    tile_b[ty][tx] =
        column < n && kb < k ? (kTransposeB ? b[column * k + kb] : b[kb * n + column]) : 0.0f;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kTile; ++i) sum = fmaf(tile_a[ty][i], tile_b[i][tx], sum);
    __syncthreads();
  }
  if (row < m && column < n) c[row * n + column] = sum;
}

__device__ float WarpMax(float value) {
  for (int distance = 16; distance > 0; distance /= 2) {
    value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, distance));
  }
  return value;
}

__device__ float WarpSum(float value) {
  for (int distance = 16; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(0xffffffffu, value, distance);
  }
  return value;
}

}  // namespace

// Grid (ceil(n / 16), ceil(m / 16)), block (16, 16), for all three products.
extern "C" __global__ void multiply(const float* a, const float* b, float* c, int m, int n, int k) {
  Multiply<false, false>(a, b, c, m, n, k);
}
extern "C" __global__ void multiply_transposed_a(const float* a, const float* b, float* c, int m,
                                                 int n, int k) {
  Multiply<true, false>(a, b, c, m, n, k);
}
extern "C" __global__ void multiply_transposed_b(const float* a, const float* b, float* c, int m,
                                                 int n, int k) {
  Multiply<false, true>(a, b, c, m, n, k);
}

// rows[i] = embedding[characters[i]], one thread per float: count = characters x width.
extern "C" __global__ void embed(const float* embedding, const int* characters, float* rows,
                                 int count, int width) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) rows[i] = embedding[characters[i / width] * width + i % width];
}

extern "C" __global__ void add_bias(float* rows, const float* bias, int count, int width) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) rows[i] += bias[i % width];
}

extern "C" __global__ void add_bias_tanh(float* rows, const float* bias, int count, int width) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) rows[i] = tanhf(rows[i] + bias[i % width]);
}

// In place, one warp per row: block (32), grid (rows).
extern "C" __global__ void softmax(float* rows, int width) {
  float* row = rows + static_cast<long long>(blockIdx.x) * width;
  float largest = -3.4e38f;
  for (int i = threadIdx.x; i < width; i += 32) largest = fmaxf(largest, row[i]);
  largest = WarpMax(largest);
  float sum = 0;
  for (int i = threadIdx.x; i < width; i += 32) {
    row[i] = expf(row[i] - largest);
    sum += row[i];
  }
  sum = WarpSum(sum);
  for (int i = threadIdx.x; i < width; i += 32) row[i] /= sum;
}

// After softmax: losses[row] = -log p(target), and rows become the gradient of the
// mean loss with respect to the logits. One thread per row.
extern "C" __global__ void cross_entropy(float* rows, const int* targets, float* losses, int count,
                                         int width) {
  const int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= count) return;
  float* probabilities = rows + static_cast<long long>(row) * width;
  losses[row] = -logf(fmaxf(probabilities[targets[row]], 1e-30f));
  probabilities[targets[row]] -= 1.0f;
  const float scale = 1.0f / static_cast<float>(count);
  for (int i = 0; i < width; ++i) probabilities[i] *= scale;
}

// gradient *= 1 - activation^2.
extern "C" __global__ void tanh_backward(float* gradient, const float* activation, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) gradient[i] *= 1.0f - activation[i] * activation[i];
}

// sums[column] = sum over rows, one thread per column.
extern "C" __global__ void column_sums(const float* rows, float* sums, int count, int width) {
  const int column = blockIdx.x * blockDim.x + threadIdx.x;
  if (column >= width) return;
  float sum = 0;
  for (int row = 0; row < count; ++row) sum += rows[row * width + column];
  sums[column] = sum;
}

// gradient[character] = sum of the rows that embed() copied from embedding[character]. The sum is
// computed in order, without atomics, so that the result is reproducible. One block per character,
// one thread per float of a row.
extern "C" __global__ void embed_backward(const float* rows, const int* characters, float* gradient,
                                          int count, int width) {
  const int character = blockIdx.x, i = threadIdx.x;
  if (i >= width) return;
  float sum = 0;
  for (int row = 0; row < count; ++row) {
    if (characters[row] == character) sum += rows[row * width + i];
  }
  gradient[character * width + i] = sum;
}

extern "C" __global__ void descend(float* parameters, const float* gradient, int count, float rate) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) parameters[i] -= rate * gradient[i];
}
