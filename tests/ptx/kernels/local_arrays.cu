// SPDX-License-Identifier: Apache-2.0
// Arrays that need a stack, and mathematical functions whose slow path needs one, too.
extern "C" __global__ void sort_each(int* data, float* angles, int per_thread) {
  int held[24];
  const int base = (blockIdx.x * blockDim.x + threadIdx.x) * 24;
  for (int i = 0; i < 24; ++i) held[i] = data[base + i];
  for (int i = 1; i < per_thread; ++i) {
    const int value = held[i];
    int at = i;
    while (at > 0 && held[at - 1] > value) {
      held[at] = held[at - 1];
      --at;
    }
    held[at] = value;
  }
  for (int i = 0; i < 24; ++i) data[base + i] = held[i];
  angles[base] = sinf(angles[base]) + tanf(angles[base + 1]) + powf(angles[base + 2], 1.5f);
}
