/* SPDX-License-Identifier: Apache-2.0 */
/* A program that repeatedly launches kernels on device, managed and registered memory, and copies,
 * until it is killed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda.h>

#define COUNT 4096
#define CHECK(call)                                               \
  do {                                                            \
    const CUresult result = (call);                               \
    if (result != CUDA_SUCCESS) {                                 \
      fprintf(stderr, "%s: error %d\n", #call, (int)result);      \
      exit(1);                                                    \
    }                                                             \
  } while (0)

static const char kDouble[] =
    ".version 7.0\n.target sm_75\n.address_size 64\n"
    ".visible .entry twice(.param .u64 numbers) {\n"
    "  .reg .b32 %r<6>; .reg .b64 %rd<4>;\n"
    "  ld.param.u64 %rd1, [numbers];\n"
    "  mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;\n"
    "  mad.lo.s32 %r4, %r1, %r2, %r3; mul.wide.u32 %rd2, %r4, 4; add.s64 %rd3, %rd1, %rd2;\n"
    "  ld.global.u32 %r5, [%rd3]; add.u32 %r5, %r5, %r5; st.global.u32 [%rd3], %r5; ret;\n}\n";

static unsigned own[COUNT], copied[COUNT];

static void Launch(CUfunction twice, CUdeviceptr numbers, CUstream stream) {
  void* parameters[] = {&numbers};
  CHECK(cuLaunchKernel(twice, COUNT / 128, 1, 1, 128, 1, 1, 0, stream, parameters, NULL));
}

int main(void) {
  CUcontext context;
  CHECK(cuInit(0));
  CHECK(cuDevicePrimaryCtxRetain(&context, 0));
  CHECK(cuCtxSetCurrent(context));
  for (;;) {
    CUmodule module;
    CUfunction twice;
    CUstream stream;
    CUdeviceptr device, managed, mapped;
    CHECK(cuModuleLoadData(&module, kDouble));
    CHECK(cuModuleGetFunction(&twice, module, "twice"));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc(&device, sizeof own));
    CHECK(cuMemAllocManaged(&managed, sizeof own, CU_MEM_ATTACH_GLOBAL));
    CHECK(cuMemHostRegister(own, sizeof own, CU_MEMHOSTREGISTER_DEVICEMAP));
    CHECK(cuMemHostGetDevicePointer(&mapped, own, 0));
    for (int round = 0; round < 5; ++round) {
      own[7] = 3;
      ((unsigned*)managed)[7] = 5;
      CHECK(cuMemcpyHtoDAsync(device, own, sizeof own, stream));
      Launch(twice, device, stream);
      Launch(twice, managed, stream);
      Launch(twice, mapped, stream);
      CHECK(cuMemcpyDtoHAsync(copied, device, sizeof own, stream));
      CHECK(cuStreamSynchronize(stream));
      if (copied[7] != 6 || own[7] != 6 || ((unsigned*)managed)[7] != 10) {
        fprintf(stderr, "wrong: %u %u\n", copied[7], own[7]);
        return 1;
      }
    }
    CHECK(cuMemHostUnregister(own));
    CHECK(cuMemFree(managed));
    CHECK(cuMemFree(device));
    CHECK(cuStreamDestroy(stream));
    CHECK(cuModuleUnload(module));
  }
}
