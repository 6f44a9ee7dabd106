// SPDX-License-Identifier: Apache-2.0
// Kernels that launch kernels.

extern "C" {

__global__ void digit(unsigned long long* value, int last) { *value = *value * 10 + last; }

// Kernels that a kernel launches into its own stream run in order, each together with all kernels
// that it launches. The tail launch runs last.
__global__ void parent(unsigned long long* value, int depth) {
  digit<<<1, 1, 0, cudaStreamTailLaunch>>>(value, 9);
  digit<<<1, 1>>>(value, depth);
  if (depth > 1) parent<<<1, 1>>>(value, depth - 1);
  digit<<<1, 1>>>(value, depth + 4);
}

__global__ void count(unsigned* sum, unsigned char small, double step, short none) {
  atomicAdd(&sum[threadIdx.x], static_cast<unsigned>(step) + small + none);
}

// Launches a kernel with several blocks and threads, and with parameters of different sizes.
__global__ void start_many(unsigned* sum) {
  cudaStream_t stream;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  count<<<2, 32, 64, stream>>>(sum + 32 * threadIdx.x, 3, 4.0, -1);
  cudaStreamDestroy(stream);
}

// Launches more kernels than fit into the queue.
__global__ void flood(unsigned* sum) {
  for (int i = 0; i < 100; ++i) count<<<1, 1>>>(sum, 0, 1.0, 0);
  __syncthreads();
  if (threadIdx.x == 0) sum[1] = cudaGetLastError();
}

__global__ void endless() { endless<<<1, 1>>>(); }

__global__ void start_badly() { endless<<<1, 5000>>>(); }

}  // extern "C"
