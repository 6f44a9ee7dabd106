/* SPDX-License-Identifier: Apache-2.0 */
/* A program written as in NVIDIA's manual, with the driver interface only. It does not refer to
 * gpushared: it is built with the toolkit's cuda.h and linked to libcuda. */
#include <stdio.h>
#include <stdlib.h>

#include <cuda.h>

#define COUNT 100000
#define CHECK(call)                                                     \
  do {                                                                  \
    const CUresult result = (call);                                     \
    if (result != CUDA_SUCCESS) {                                       \
      const char *error = "?", *text = "?";                             \
      cuGetErrorName(result, &error);                                   \
      cuGetErrorString(result, &text);                                  \
      fprintf(stderr, "%s: %s (%d): %s\n", #call, error, result, text); \
      exit(1);                                                          \
    }                                                                   \
  } while (0)

static const char kAdd[] =
    ".version 7.0\n.target sm_75\n.address_size 64\n"
    ".visible .entry add(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n) {\n"
    "  .reg .pred %p<2>; .reg .f32 %f<4>; .reg .b32 %r<6>; .reg .b64 %rd<8>;\n"
    "  ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; ld.param.u64 %rd3, [c];\n"
    "  ld.param.u32 %r1, [n];\n"
    "  mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x;\n"
    "  mad.lo.s32 %r5, %r2, %r3, %r4;\n"
    "  setp.ge.u32 %p1, %r5, %r1; @%p1 bra done;\n"
    "  mul.wide.u32 %rd4, %r5, 4;\n"
    "  add.s64 %rd5, %rd1, %rd4; add.s64 %rd6, %rd2, %rd4; add.s64 %rd7, %rd3, %rd4;\n"
    "  ld.global.f32 %f1, [%rd5]; ld.global.f32 %f2, [%rd6];\n"
    "  add.f32 %f3, %f1, %f2; st.global.f32 [%rd7], %f3;\n"
    "done: ret;\n}\n";

int main(void) {
  static float a[COUNT], b[COUNT], sum[COUNT];
  const size_t bytes = sizeof a;
  char name[256];
  unsigned n = COUNT;
  CUdevice device;
  CUcontext context;
  CUmodule module;
  CUfunction add;
  CUstream stream;
  CUevent begin, end;
  CUdeviceptr da, db, dsum;
  float milliseconds = -1;
  void* parameters[] = {&da, &db, &dsum, &n};
  for (unsigned i = 0; i < COUNT; ++i) {
    a[i] = (float)i;
    b[i] = 2 * (float)i;
  }
  CHECK(cuInit(0));
  CHECK(cuDeviceGet(&device, 0));
  CHECK(cuDeviceGetName(name, sizeof name, device));
  CHECK(cuDevicePrimaryCtxRetain(&context, device));
  CHECK(cuCtxSetCurrent(context));
  CHECK(cuModuleLoadData(&module, kAdd));
  CHECK(cuModuleGetFunction(&add, module, "add"));
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CHECK(cuEventCreate(&begin, CU_EVENT_DEFAULT));
  CHECK(cuEventCreate(&end, CU_EVENT_DEFAULT));
  CHECK(cuMemAlloc(&da, bytes));
  CHECK(cuMemAlloc(&db, bytes));
  CHECK(cuMemAlloc(&dsum, bytes));
  CHECK(cuMemcpyHtoDAsync(da, a, bytes, stream));
  CHECK(cuMemcpyHtoDAsync(db, b, bytes, stream));
  CHECK(cuEventRecord(begin, stream));
  CHECK(cuLaunchKernel(add, (COUNT + 255) / 256, 1, 1, 256, 1, 1, 0, stream, parameters, NULL));
  CHECK(cuEventRecord(end, stream));
  CHECK(cuMemcpyDtoHAsync(sum, dsum, bytes, stream));
  CHECK(cuStreamSynchronize(stream));
  CHECK(cuEventElapsedTime(&milliseconds, begin, end));
  for (unsigned i = 0; i < COUNT; ++i) {
    if (sum[i] != a[i] + b[i]) {
      fprintf(stderr, "sum[%u] is %g, not %g\n", i, sum[i], a[i] + b[i]);
      return 1;
    }
  }
  CHECK(cuMemFree(da));
  CHECK(cuMemFree(db));
  CHECK(cuMemFree(dsum));
  CHECK(cuEventDestroy(begin));
  CHECK(cuEventDestroy(end));
  CHECK(cuStreamDestroy(stream));
  CHECK(cuModuleUnload(module));
  CHECK(cuDevicePrimaryCtxRelease(device));
  printf("added %d numbers on %s, the kernel took time: %s\n", COUNT, name,
         milliseconds > 0 ? "yes" : "no");
  return milliseconds > 0 ? 0 : 1;
}
