// SPDX-License-Identifier: Apache-2.0
// Calls into the device runtime: printf, assert, the heap, trap.
#include <cassert>
#include <cstdio>

extern "C" __global__ void report(const float* in, int count, int** kept) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  assert(i < 1 << 20);
  if (i < count) printf("%d of %d: %f %s\n", i, count, in[i], in[i] > 0 ? "plus" : "minus");
  if (i == count) {
    int* memory = static_cast<int*>(malloc(64));
    if (memory == nullptr) __trap();
    *memory = i;
    *kept = memory;
  }
  if (i > count) free(*kept);
}
