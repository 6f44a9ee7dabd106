// SPDX-License-Identifier: Apache-2.0
// Kernels that every GPU course teaches; executor_bench runs them as well.
extern "C" __global__ void vector_add(const float* a, const float* b, float* c, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}

extern "C" __global__ void saxpy(int n, float alpha, const float* x, float* y) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    y[i] = alpha * x[i] + y[i];
  }
}

constexpr int kTile = 16;

extern "C" __global__ void matrix_product_tiled(const float* a, const float* b, float* c, int n) {
  __shared__ float tile_a[kTile][kTile], tile_b[kTile][kTile];
  const int row = blockIdx.y * kTile + threadIdx.y, column = blockIdx.x * kTile + threadIdx.x;
  float sum = 0;
  for (int t = 0; t < n / kTile; ++t) {
    tile_a[threadIdx.y][threadIdx.x] = a[row * n + t * kTile + threadIdx.x];
    tile_b[threadIdx.y][threadIdx.x] = b[(t * kTile + threadIdx.y) * n + column];
    __syncthreads();
    for (int k = 0; k < kTile; ++k) sum += tile_a[threadIdx.y][k] * tile_b[k][threadIdx.x];
    __syncthreads();
  }
  c[row * n + column] = sum;
}

extern "C" __global__ void matrix_product_naive(const float* a, const float* b, float* c, int n) {
  const int column = blockIdx.x * blockDim.x + threadIdx.x;
  const int row = blockIdx.y * blockDim.y + threadIdx.y;
  float sum = 0;
  for (int k = 0; k < n; ++k) sum += a[row * n + k] * b[k * n + column];
  c[row * n + column] = sum;
}

extern "C" __global__ void reduce(const float* values, float* total, int n) {
  __shared__ float partial[256];
  float sum = 0;
  for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) sum += values[i];
  partial[threadIdx.x] = sum;
  __syncthreads();
  for (int distance = 128; distance >= 32; distance >>= 1) {
    if (threadIdx.x < distance) partial[threadIdx.x] += partial[threadIdx.x + distance];
    __syncthreads();
  }
  if (threadIdx.x < 32) {
    sum = partial[threadIdx.x];
    for (int distance = 16; distance > 0; distance >>= 1) {
      sum += __shfl_down_sync(0xffffffffu, sum, distance);
    }
    if (threadIdx.x == 0) atomicAdd(total, sum);
  }
}

extern "C" __global__ void histogram(const unsigned char* bytes, unsigned* counts, int n) {
  __shared__ unsigned block_counts[256];
  block_counts[threadIdx.x] = 0;
  __syncthreads();
  for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) {
    atomicAdd(&block_counts[bytes[i]], 1u);
  }
  __syncthreads();
  atomicAdd(&counts[threadIdx.x], block_counts[threadIdx.x]);
}

extern "C" __global__ void mandelbrot(int* iterations, int width, int height, int limit) {
  const int px = blockIdx.x * blockDim.x + threadIdx.x, py = blockIdx.y * blockDim.y + threadIdx.y;
  if (px >= width || py >= height) return;
  const float cx = px * 3.0f / width - 2.0f, cy = py * 2.0f / height - 1.0f;
  float x = 0, y = 0;
  int count = 0;
  while (count < limit && x * x + y * y < 4.0f) {
    const float next = x * x - y * y + cx;
    y = 2 * x * y + cy;
    x = next;
    ++count;
  }
  iterations[py * width + px] = count;
}

extern "C" __global__ void n_body(const float4* bodies, float4* acceleration, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const float4 self = bodies[i];
  float ax = 0, ay = 0, az = 0;
  for (int j = 0; j < n; ++j) {
    const float4 other = bodies[j];
    const float dx = other.x - self.x, dy = other.y - self.y, dz = other.z - self.z;
    const float r = rsqrtf(dx * dx + dy * dy + dz * dz + 1e-3f);
    const float scale = other.w * r * r * r;
    ax += dx * scale;
    ay += dy * scale;
    az += dz * scale;
  }
  acceleration[i] = make_float4(ax, ay, az, 0);
}

// Inclusive sums within each block of 256, by shuffles inside each warp and one pass over the sums
// of the warps.
extern "C" __global__ void scan_blocks(const unsigned* values, unsigned* sums, int n) {
  __shared__ unsigned of_warps[8];
  const int i = blockIdx.x * 256 + threadIdx.x;
  const unsigned lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  unsigned sum = i < n ? values[i] : 0;
  for (int distance = 1; distance < 32; distance <<= 1) {
    const unsigned below = __shfl_up_sync(0xffffffffu, sum, distance);
    if (lane >= distance) sum += below;
  }
  if (lane == 31) of_warps[warp] = sum;
  __syncthreads();
  if (warp == 0) {
    unsigned total = lane < 8 ? of_warps[lane] : 0;
    for (int distance = 1; distance < 8; distance <<= 1) {
      const unsigned below = __shfl_up_sync(0xffffffffu, total, distance);
      if (lane >= distance) total += below;
    }
    if (lane < 8) of_warps[lane] = total;
  }
  __syncthreads();
  if (warp > 0) sum += of_warps[warp - 1];
  if (i < n) sums[i] = sum;
}

extern "C" __global__ void transpose(const float* in, float* out, int width, int height) {
  __shared__ float tile[kTile][kTile + 1];
  int x = blockIdx.x * kTile + threadIdx.x, y = blockIdx.y * kTile + threadIdx.y;
  if (x < width && y < height) tile[threadIdx.y][threadIdx.x] = in[y * width + x];
  __syncthreads();
  x = blockIdx.y * kTile + threadIdx.x;
  y = blockIdx.x * kTile + threadIdx.y;
  if (x < height && y < width) out[y * height + x] = tile[threadIdx.x][threadIdx.y];
}

// Sorts 1024 keys of each block with 512 threads.
extern "C" __global__ void bitonic_sort(int* keys) {
  __shared__ int shared[1024];
  int* mine = keys + blockIdx.x * 1024;
  for (int i = threadIdx.x; i < 1024; i += blockDim.x) shared[i] = mine[i];
  for (int size = 2; size <= 1024; size <<= 1) {
    for (int distance = size >> 1; distance > 0; distance >>= 1) {
      __syncthreads();
      const int low = 2 * threadIdx.x - (threadIdx.x & (distance - 1));
      const bool ascending = (low & size) == 0;
      const int a = shared[low], b = shared[low + distance];
      if ((a > b) == ascending) {
        shared[low] = b;
        shared[low + distance] = a;
      }
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < 1024; i += blockDim.x) mine[i] = shared[i];
}

// Five-point stencil over a grid with a constant border.
extern "C" __global__ void stencil(const float* in, float* out, int width, int height) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= width || y >= height) return;
  const int i = y * width + x;
  const bool border = x == 0 || y == 0 || x == width - 1 || y == height - 1;
  out[i] = border ? in[i] : 0.5f * in[i] + 0.125f * (in[i - 1] + in[i + 1] + in[i - width] + in[i + width]);
}

// Sparse matrix (compressed rows) times vector, one warp for a row.
extern "C" __global__ void sparse_product(const int* row_starts, const int* columns, const double* values,
                                          const double* x, double* y, int rows) {
  const int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x & 31;
  if (row >= rows) return;
  double sum = 0;
  for (int i = row_starts[row] + lane; i < row_starts[row + 1]; i += 32) sum += values[i] * x[columns[i]];
  for (int distance = 16; distance > 0; distance >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
  if (lane == 0) y[row] = sum;
}

// Converts rows of logits to probabilities, as at the end of a language model; one block per row.
extern "C" __global__ void softmax(const float* logits, float* probabilities, int columns) {
  __shared__ float partial[128];
  const float* row = logits + blockIdx.x * columns;
  float most = -3.4e38f;
  for (int i = threadIdx.x; i < columns; i += 128) most = fmaxf(most, row[i]);
  partial[threadIdx.x] = most;
  __syncthreads();
  for (int distance = 64; distance > 0; distance >>= 1) {
    if (threadIdx.x < distance) partial[threadIdx.x] = fmaxf(partial[threadIdx.x], partial[threadIdx.x + distance]);
    __syncthreads();
  }
  most = partial[0];
  __syncthreads();
  float sum = 0;
  for (int i = threadIdx.x; i < columns; i += 128) sum += expf(row[i] - most);
  partial[threadIdx.x] = sum;
  __syncthreads();
  for (int distance = 64; distance > 0; distance >>= 1) {
    if (threadIdx.x < distance) partial[threadIdx.x] += partial[threadIdx.x + distance];
    __syncthreads();
  }
  for (int i = threadIdx.x; i < columns; i += 128) {
    probabilities[blockIdx.x * columns + i] = expf(row[i] - most) / partial[0];
  }
}

// One layer of a character model: hidden = tanh(weights * input + bias), one thread per unit.
extern "C" __global__ void tanh_layer(const float* weights, const float* bias, const float* input,
                                      float* hidden, int inputs, int units) {
  const int unit = blockIdx.x * blockDim.x + threadIdx.x, sample = blockIdx.y;
  if (unit >= units) return;
  float sum = bias[unit];
  for (int i = 0; i < inputs; ++i) sum += weights[i * units + unit] * input[sample * inputs + i];
  hidden[sample * units + unit] = tanhf(sum);
}
