// SPDX-License-Identifier: Apache-2.0
// Static and dynamic shared memory, barriers, shuffles, votes.
extern __shared__ int dynamic[];

extern "C" __global__ void __launch_bounds__(256, 2) reduce(const int* in, int* out, int count) {
  __shared__ int partial[32];
  int sum = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    sum += in[i];
  }
  for (int step = 16; step > 0; step /= 2) sum += __shfl_down_sync(0xffffffffu, sum, step);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
  dynamic[threadIdx.x] = __popc(__ballot_sync(0xffffffffu, sum > 0));
  const int any_odd = __syncthreads_or(sum & 1);
  if (threadIdx.x == 0) {
    for (unsigned i = 1; i < blockDim.x / 32; ++i) sum += partial[i];
    out[blockIdx.x] = sum + any_odd + dynamic[(count + 3) % blockDim.x];
  }
}
