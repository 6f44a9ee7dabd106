// SPDX-License-Identifier: Apache-2.0
// Prints the driver's answers: the codes of two calls of cuInit, of cuDeviceGetCount and of
// cuCtxSynchronize, and between them the number of devices and the driver's version.
#include <stdio.h>

#include <cuda.h>

int main(void) {
  int count = -1, version = -1;
  const int first = cuInit(0);
  const int counted = cuDeviceGetCount(&count);
  cuDriverGetVersion(&version);
  const int again = cuInit(0);
  printf("init %d %d count %d %d version %d synchronize %d\n", first, again, counted, count,
         version, cuCtxSynchronize());
  return first;
}
