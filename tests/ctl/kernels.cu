// SPDX-License-Identifier: Apache-2.0
// A kernel for fatbins.
extern "C" __global__ void scale(float* values, float factor, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) values[i] *= factor;
}
