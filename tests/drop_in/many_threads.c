// SPDX-License-Identifier: Apache-2.0
// Eight threads, half of them with a separate context, with four streams each: launches, copies,
// events, stream-ordered memory, captures and graphs at once. Prints the number of streams with
// correct results.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include <cuda.h>

enum { kThreads = 8, kStreams = 4, kRounds = 5, kCount = 500 };

static const char kAddOne[] =
    ".version 7.0\n.target sm_75\n.address_size 64\n"
    ".visible .entry add_one(.param .u64 numbers, .param .u32 n) {\n"
    "  .reg .pred %p<2>; .reg .b32 %r<7>; .reg .b64 %rd<4>;\n"
    "  ld.param.u64 %rd1, [numbers]; ld.param.u32 %r1, [n];\n"
    "  mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x;\n"
    "  mad.lo.s32 %r5, %r2, %r3, %r4;\n"
    "  setp.ge.u32 %p1, %r5, %r1; @%p1 bra done;\n"
    "  mul.wide.u32 %rd2, %r5, 4; add.s64 %rd3, %rd1, %rd2;\n"
    "  ld.global.u32 %r6, [%rd3]; add.s32 %r6, %r6, 1; st.global.u32 [%rd3], %r6;\n"
    "done: ret;\n}\n";

static void Check(CUresult code, const char* call) {
  const char* name = "?";
  if (code == CUDA_SUCCESS) return;
  cuGetErrorName(code, &name);
  fprintf(stderr, "%s: %s\n", call, name);
  exit(1);
}
#define CHECK(call) Check(call, #call)

static CUcontext primary;

static void AddOne(CUfunction add, CUdeviceptr numbers, CUstream stream) {
  unsigned n = kCount;
  void* parameters[] = {&numbers, &n};
  CHECK(cuLaunchKernel(add, 4, 1, 1, 128, 1, 1, 0, stream, parameters, NULL));
}

// Adds 1 with a launch and 1 with a captured graph, in stream-ordered memory.
static int Round(CUfunction add, CUstream stream, CUevent event, CUstream other) {
  unsigned read[kCount];
  CUdeviceptr numbers = 0;
  CUgraph graph = NULL;
  CUgraphExec exec = NULL;
  CHECK(cuMemAllocAsync(&numbers, sizeof read, stream));
  CHECK(cuMemsetD32Async(numbers, 40, kCount, stream));
  AddOne(add, numbers, stream);
  CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  AddOne(add, numbers, stream);
  CHECK(cuStreamEndCapture(stream, &graph));
  CHECK(cuGraphInstantiate(&exec, graph, 0));
  CHECK(cuGraphLaunch(exec, stream));
  CHECK(cuEventRecord(event, stream));
  CHECK(cuStreamWaitEvent(other, event, 0));
  CHECK(cuMemcpyDtoHAsync(read, numbers, sizeof read, other));
  CHECK(cuStreamSynchronize(other));
  CHECK(cuMemFreeAsync(numbers, other));
  CHECK(cuGraphExecDestroy(exec));
  CHECK(cuGraphDestroy(graph));
  for (int i = 0; i < kCount; ++i) {
    if (read[i] != 42) return 0;
  }
  return 1;
}

static void* Work(void* argument) {
  const long number = (long)argument;
  CUcontext own = NULL;
  CUmodule module = NULL;
  CUfunction add = NULL;
  CUstream streams[kStreams] = {NULL};
  CUevent event = NULL;
  long agreed = 0;
  if (number % 2 == 0) {
    CHECK(cuCtxSetCurrent(primary));
  } else {
    CHECK(cuCtxCreate(&own, NULL, 0, 0));
  }
  CHECK(cuModuleLoadData(&module, kAddOne));
  CHECK(cuModuleGetFunction(&add, module, "add_one"));
  CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  for (int i = 0; i < kStreams; ++i) {
    CHECK(cuStreamCreate(&streams[i], i % 2 == 0 ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING));
  }
  for (int i = 0; i < kStreams; ++i) {
    int good = 1;
    for (int round = 0; round < kRounds; ++round) {
      good &= Round(add, streams[i], event, streams[(i + round) % kStreams]);
    }
    agreed += good;
  }
  for (int i = 0; i < kStreams; ++i) CHECK(cuStreamDestroy(streams[i]));
  CHECK(cuEventDestroy(event));
  CHECK(cuModuleUnload(module));
  if (own != NULL) CHECK(cuCtxDestroy(own));
  return (void*)agreed;
}

int main(void) {
  pthread_t threads[kThreads];
  long agreed = 0;
  CHECK(cuInit(0));
  CHECK(cuDevicePrimaryCtxRetain(&primary, 0));
  for (long i = 0; i < kThreads; ++i) {
    if (pthread_create(&threads[i], NULL, &Work, (void*)i) != 0) return 1;
  }
  for (int i = 0; i < kThreads; ++i) {
    void* result = NULL;
    pthread_join(threads[i], &result);
    agreed += (long)result;
  }
  printf("%ld streams agree\n", agreed);
  CHECK(cuDevicePrimaryCtxRelease(0));
  return agreed == kThreads * kStreams ? 0 : 1;
}
