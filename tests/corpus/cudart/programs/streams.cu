// SPDX-License-Identifier: Apache-2.0
// The guarantees of streams and events: order within and between streams, and the default stream's
// waits.
#include "tests/corpus/cudart/programs/check.h"

// Takes a while, so that work that fails to wait would come first.
__global__ void Slowly(unsigned* value, unsigned from, unsigned to) {
  unsigned mixed = *value;
  for (int i = 0; i < 200000; ++i) mixed = mixed * 1664525u + 1013904223u;
  if (*value == from) *value = to;
  if (mixed == 0x12345678u) *value = 0;
}

int main() {
  unsigned* value = nullptr;
  MUST(cudaMalloc(&value, sizeof *value));
  MUST(cudaMemset(value, 0, sizeof *value));
  cudaStream_t first, second, apart;
  MUST(cudaStreamCreate(&first));
  MUST(cudaStreamCreateWithFlags(&second, cudaStreamDefault));
  MUST(cudaStreamCreateWithFlags(&apart, cudaStreamNonBlocking));
  cudaEvent_t begin, middle, end;
  MUST(cudaEventCreate(&begin));
  MUST(cudaEventCreateWithFlags(&middle, cudaEventDisableTiming));
  MUST(cudaEventCreate(&end));

  // An event orders the first two kernels, and the default stream orders the others.
  MUST(cudaEventRecord(begin, first));
  Slowly<<<1, 1, 0, first>>>(value, 0, 1);
  MUST(cudaEventRecord(middle, first));
  MUST(cudaStreamWaitEvent(apart, middle, 0));
  Slowly<<<1, 1, 0, apart>>>(value, 1, 2);
  MUST(cudaStreamSynchronize(apart));
  Slowly<<<1, 1, 0, first>>>(value, 2, 3);
  Slowly<<<1, 1>>>(value, 3, 4);
  Slowly<<<1, 1, 0, second>>>(value, 4, 5);
  MUST(cudaEventRecord(end, second));
  unsigned got = 0;
  MUST(cudaMemcpyAsync(&got, value, sizeof got, cudaMemcpyDeviceToHost, second));
  MUST(cudaStreamSynchronize(second));
  EXPECT(got == 5);
  MUST(cudaEventSynchronize(end));
  MUST(cudaEventQuery(end));
  float milliseconds = -1;
  MUST(cudaEventElapsedTime(&milliseconds, begin, end));
  EXPECT(milliseconds > 0);

  int called = 0;
  MUST(cudaLaunchHostFunc(first, [](void* argument) { *static_cast<int*>(argument) = 1; }, &called));
  MUST(cudaStreamSynchronize(first));
  EXPECT(called == 1);
  for (cudaStream_t stream : {first, second, apart}) MUST(cudaStreamDestroy(stream));
  for (cudaEvent_t event : {begin, middle, end}) MUST(cudaEventDestroy(event));
  EXPECT(cudaStreamQuery(first) == cudaErrorInvalidResourceHandle);
  return wrong_things;
}
