/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the results of driver calls and their effects on memory, one per line. The program runs
 * natively on a driver, and on the drop-in and a server with the same driver; the lines must agree.
 * It relies only on documented behaviour, so it never uses a destroyed handle. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cuda.h>

#define COUNT 1000
#define SAY(...) (printf(__VA_ARGS__), putchar('\n'))
/* Prints the call as written in this file, and its code. */
#define CALL(call) printf("%s = %d\n", #call, (int)(call))

static const char kKernels[] =
    ".version 7.0\n.target sm_75\n.address_size 64\n"
    ".global .align 4 .u32 counter = 41;\n"
    ".visible .entry add(.param .u64 numbers, .param .u32 n, .param .u32 what) {\n"
    "  .reg .pred %p<2>; .reg .b32 %r<8>; .reg .b64 %rd<4>;\n"
    "  ld.param.u64 %rd1, [numbers]; ld.param.u32 %r1, [n]; ld.param.u32 %r7, [what];\n"
    "  mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x;\n"
    "  mad.lo.s32 %r5, %r2, %r3, %r4; setp.ge.u32 %p1, %r5, %r1; @%p1 bra done;\n"
    "  mul.wide.u32 %rd2, %r5, 4; add.s64 %rd3, %rd1, %rd2;\n"
    "  ld.global.u32 %r6, [%rd3]; add.s32 %r6, %r6, %r7; st.global.u32 [%rd3], %r6;\n"
    "done: ret;\n}\n"
    ".visible .entry shared(.param .u64 out) {\n"
    "  .reg .b32 %r<3>; .reg .b64 %rd<2>; .shared .align 4 .b8 room[512];\n"
    "  ld.param.u64 %rd1, [out]; mov.u32 %r1, room; st.shared.u32 [room], 7;\n"
    "  ld.shared.u32 %r2, [room]; st.global.u32 [%rd1], %r2; ret;\n}\n"
    ".visible .entry count_up() {\n"
    "  .reg .b32 %r<3>; ld.global.u32 %r1, [counter]; add.u32 %r1, %r1, 1;\n"
    "  st.global.u32 [counter], %r1; ret;\n}\n"
    ".visible .entry fault() {\n"
    "  .reg .b32 %r<2>; .reg .b64 %rd<2>; mov.u64 %rd1, 16; ld.global.u32 %r1, [%rd1];\n"
    "  st.global.u32 [%rd1], %r1; ret;\n}\n"
    ".visible .entry stop() { trap; ret; }\n";

static uint32_t numbers[COUNT], found[COUNT];
static CUdeviceptr memory;
static CUstream stream;
static CUmodule module;

/* Prints a checksum of the memory. */
static void Contents(const char* what) {
  uint64_t sum = 0;
  memset(found, 0, sizeof found);
  CALL(cuMemcpyDtoHAsync(found, memory, sizeof found, stream));
  CALL(cuStreamSynchronize(stream));
  for (unsigned i = 0; i < COUNT; ++i) sum = sum * 31 + found[i];
  SAY("contents after %s: %llu, the first %u, the last %u", what, (unsigned long long)sum, found[0],
      found[COUNT - 1]);
}

static void Fill(void) {
  for (unsigned i = 0; i < COUNT; ++i) numbers[i] = i * 7;
  CALL(cuMemcpyHtoDAsync(memory, numbers, sizeof numbers, stream));
}

static CUfunction Function(const char* name) {
  CUfunction function = NULL;
  SAY("cuModuleGetFunction %s = %d", name, (int)cuModuleGetFunction(&function, module, name));
  return function;
}

static void Devices(void) {
  int count = -1, value = -1;
  size_t bytes = 0;
  char name[256] = "", bus[32] = "";
  CUdevice device = -1;
  CUuuid uuid = {{0}};
  CALL(cuDeviceGetCount(&count));
  SAY("devices: %d", count);
  CALL(cuDeviceGet(&device, 0));
  CALL(cuDeviceGet(&device, count));
  CALL(cuDeviceGet(&device, -1));
  CALL(cuDeviceGetName(name, sizeof name, 0));
  SAY("name: %s", name);
  CALL(cuDeviceTotalMem(&bytes, 0));
  SAY("total: %zu", bytes);
  CALL(cuDeviceGetUuid_v2(&uuid, 0));
  for (int i = 0; i < 16; ++i) printf("%02x", (unsigned char)uuid.bytes[i]);
  SAY(" is the uuid");
  CALL(cuDeviceGetPCIBusId(bus, sizeof bus, 0));
  for (int id = 1; id < 150; ++id) {
    value = -1;
    const int code = (int)cuDeviceGetAttribute(&value, (CUdevice_attribute)id, 0);
    SAY("attribute %d = %d: %d", id, code, value);
  }
  CALL(cuDeviceGetAttribute(&value, (CUdevice_attribute)1, count));
}

static void Errors(void) {
  const char* text = NULL;
  for (int code = 0; code < 1000; ++code) {
    const CUresult known = cuGetErrorName((CUresult)code, &text);
    if (known == CUDA_SUCCESS) SAY("error %d is %s", code, text);
  }
}

static void Contexts(void) {
  CUcontext context = (CUcontext)1, same = NULL;
  unsigned flags = 99;
  int active = 99, least = 99, greatest = 99;
  size_t limit = 0;
  CALL(cuCtxGetCurrent(&context));
  SAY("%s context is current", context == NULL ? "no" : "a");
  CALL(cuCtxSynchronize());
  CALL(cuMemAlloc(&memory, 4));
  CALL(cuDevicePrimaryCtxGetState(0, &flags, &active));
  SAY("flags %u active %d", flags, active);
  CALL(cuDevicePrimaryCtxRetain(&context, 0));
  CALL(cuDevicePrimaryCtxRetain(&same, 0));
  SAY("the primary context is %s", context == same ? "one" : "two");
  CALL(cuDevicePrimaryCtxRelease(0));
  CALL(cuDevicePrimaryCtxRetain(&same, 7));
  CALL(cuCtxSetCurrent(context));
  CALL(cuCtxGetCurrent(&same));
  SAY("current is %s", context == same ? "what was set" : "another");
  CALL(cuDevicePrimaryCtxGetState(0, &flags, &active));
  SAY("active %d", active);
  CALL(cuCtxGetStreamPriorityRange(&least, &greatest));
  CALL(cuCtxGetLimit(&limit, CU_LIMIT_STACK_SIZE));
  CALL(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 2048));
  CALL(cuCtxGetLimit(&limit, (CUlimit)99));
  CALL(cuCtxSynchronize());
}

static void Memory(void) {
  CUdeviceptr other = 0;
  size_t free_bytes = 0, total = 0;
  void* host = NULL;
  CUDA_MEMCPY2D copy = {0};
  CALL(cuMemAlloc(&memory, 0));
  CALL(cuMemAlloc(&memory, (size_t)1 << 60));
  CALL(cuMemAlloc(&memory, sizeof numbers));
  SAY("aligned: %d", memory % 256 == 0);
  CALL(cuMemAlloc(&other, 1 << 20));
  CALL(cuMemGetInfo(&free_bytes, &total));
  SAY("less is free than there is: %d", free_bytes < total);
  Fill();
  Contents("a copy to the device");
  CALL(cuMemcpyDtoDAsync(other, memory, sizeof numbers, stream));
  CALL(cuMemsetD32Async(memory, 0x01020304, COUNT, stream));
  Contents("a fill by words");
  CALL(cuMemsetD16Async(memory + 4, 0x0a0b, 100, stream));
  CALL(cuMemsetD8Async(memory + 801, 0x7f, 33, stream));
  CALL(cuMemsetD16Async(memory + 1, 0, 4, stream));
  CALL(cuMemsetD32Async(memory + 2, 0, 4, stream));
  CALL(cuMemsetD2D32Async(memory + 1600, 64, 5, 4, 6, stream));
  CALL(cuMemsetD2D16Async(memory + 2400, 32, 6, 4, 6, stream));
  CALL(cuMemsetD2D8Async(memory + 2800, 32, 7, 5, 6, stream));
  Contents("fills of all kinds");
  CALL(cuMemcpyDtoDAsync(memory + 400, other + 4, 1000, stream));
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = other;
  copy.srcPitch = 40;
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = memory;
  copy.dstPitch = 64;
  copy.WidthInBytes = 20;
  copy.Height = 30;
  CALL(cuMemcpy2DAsync(&copy, stream));
  copy.dstXInBytes = 8;
  copy.dstY = 3;
  copy.srcY = 2;
  CALL(cuMemcpy2DAsync(&copy, stream));
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = numbers;
  copy.dstXInBytes = 30;
  CALL(cuMemcpy2DAsync(&copy, stream));
  copy.WidthInBytes = 65;
  CALL(cuMemcpy2DAsync(&copy, stream));
  Contents("copies of rows");
  CALL(cuMemHostAlloc(&host, 4096, 0));
  memset(host, 3, 4096);
  CALL(cuMemcpyHtoDAsync(memory, host, sizeof numbers, stream));
  Contents("a copy from pinned memory");
  CALL(cuStreamSynchronize(stream));
  CALL(cuMemFreeHost(host));
  CALL(cuMemHostAlloc(&host, 0, 0));
  CALL(cuMemFreeHost(NULL));
  CALL(cuMemcpyHtoDAsync(memory, numbers, 0, stream));
  CALL(cuMemFree(other));
  CALL(cuMemFree(memory + 4));
}

#define STEP ((size_t)2 << 20)

static void VirtualMemory(void) {
  CUmemAllocationProp of = {0};
  CUmemAccessDesc may = {0};
  CUmemGenericAllocationHandle handle = 0;
  CUdeviceptr range = 0;
  size_t step = 0;
  of.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  of.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  may.location = of.location;
  may.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  CALL(cuMemGetAllocationGranularity(&step, &of, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  SAY("step: %zu", step);
  CALL(cuMemAddressReserve(&range, STEP + 1, 0, 0, 0));
  CALL(cuMemAddressReserve(&range, 8 * STEP, 0, 0, 0));
  CALL(cuMemCreate(&handle, 0, &of, 0));
  CALL(cuMemCreate(&handle, STEP / 2, &of, 0));
  CALL(cuMemCreate(&handle, STEP, &of, 0));
  CALL(cuMemMap(range + 1, STEP, 0, handle, 0));
  CALL(cuMemMap(range + 8 * STEP, STEP, 0, handle, 0));
  CALL(cuMemMap(range, STEP, STEP, handle, 0));
  CALL(cuMemMap(range, STEP, 0, handle, 0));
  CALL(cuMemMap(range + 4 * STEP, STEP, 0, handle, 0));
  CALL(cuMemSetAccess(range + STEP, STEP, &may, 1));
  CALL(cuMemSetAccess(range, STEP, &may, 1));
  CALL(cuMemSetAccess(range + 4 * STEP, STEP, &may, 1));
  CALL(cuMemcpyHtoDAsync(range, numbers, sizeof numbers, stream));
  CALL(cuMemcpyDtoDAsync(memory, range + 4 * STEP, sizeof numbers, stream));
  Contents("a copy through two addresses of one memory");
  CALL(cuMemUnmap(range, STEP / 2));
  CALL(cuMemUnmap(range, STEP));
  CALL(cuMemUnmap(range, STEP));
  CALL(cuMemRelease(handle));
  CALL(cuMemsetD32Async(range + 4 * STEP, 5, COUNT, stream));
  CALL(cuMemcpyDtoDAsync(memory, range + 4 * STEP, sizeof numbers, stream));
  Contents("a fill of memory that was released and is mapped");
  CALL(cuMemUnmap(range + 4 * STEP, STEP));
  CALL(cuMemAddressFree(range, STEP));
  CALL(cuMemAddressFree(range, 8 * STEP));
}

static void Modules(void) {
  CUdeviceptr address = 0;
  size_t bytes = 0, offset = 99;
  unsigned count = 0;
  uint32_t value = 0;
  int fits = 0;
  CUmodule none = NULL;
  CALL(cuModuleLoadDataEx(&none, ".version 7.0\nnonsense", 0, NULL, NULL));
  CALL(cuModuleLoadDataEx(&module, kKernels, 0, NULL, NULL));
  Function("none_such");
  CALL(cuModuleGetFunctionCount(&count, module));
  SAY("functions: %u", count);
  CALL(cuModuleGetGlobal(&address, &bytes, module, "counter"));
  SAY("counter has %zu bytes", bytes);
  CALL(cuModuleGetGlobal(&address, &bytes, module, "none_such"));
  CALL(cuModuleGetGlobal(&address, NULL, module, "counter"));
  const CUfunction add = Function("add"), shared = Function("shared");
  for (size_t i = 0; i < 4; ++i) {
    const int code = (int)cuFuncGetParamInfo(add, i, &offset, &bytes);
    SAY("parameter %zu = %d: %zu bytes at %zu", i, code, code == 0 ? bytes : 0,
        code == 0 ? offset : 0);
  }
  CALL(cuFuncGetAttribute(&fits, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, shared));
  SAY("shared bytes: %d", fits);
  CALL(cuFuncGetAttribute(&fits, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, add));
  SAY("threads: %d", fits);
  CALL(cuFuncGetAttribute(&fits, CU_FUNC_ATTRIBUTE_PTX_VERSION, add));
  SAY("architecture of the text: %d", fits);
  CALL(cuFuncGetAttribute(&fits, (CUfunction_attribute)99, add));
  CALL(cuFuncSetAttribute(add, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1024));
  CALL(cuOccupancyMaxActiveBlocksPerMultiprocessor(&fits, add, 128, 0));
  SAY("a multiprocessor holds some blocks: %d", fits > 0);
  const CUfunction count_up = Function("count_up");
  for (int i = 0; i < 3; ++i)
    CALL(cuLaunchKernel(count_up, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
  CALL(cuMemcpyDtoHAsync(&value, address, 4, stream));
  CALL(cuStreamSynchronize(stream));
  SAY("counter: %u", value);
}

static void Launches(void) {
  uint32_t n = COUNT, what = 5;
  void* parameters[] = {&memory, &n, &what};
  unsigned char packed[16];
  size_t packed_bytes = sizeof packed;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, packed, CU_LAUNCH_PARAM_BUFFER_SIZE,
                   &packed_bytes, CU_LAUNCH_PARAM_END};
  const CUfunction add = Function("add");
  CUlaunchConfig config = {0};
  memcpy(packed, &memory, 8);
  memcpy(packed + 8, &n, 4);
  memcpy(packed + 12, &what, 4);
  Fill();
  CALL(cuLaunchKernel(add, 8, 1, 1, 128, 1, 1, 0, stream, parameters, NULL));
  Contents("a launch");
  CALL(cuLaunchKernel(add, 2, 2, 2, 128, 1, 1, 0, stream, NULL, extra));
  Contents("a launch with its arguments packed");
  CALL(cuLaunchKernel(add, 0, 1, 1, 128, 1, 1, 0, stream, parameters, NULL));
  CALL(cuLaunchKernel(add, 1, 1, 1, 2048, 1, 1, 0, stream, parameters, NULL));
  CALL(cuLaunchKernel(add, 1, 1, 1, 64, 64, 1, 0, stream, parameters, NULL));
  CALL(cuLaunchKernel(add, 1, 1, 65536, 1, 1, 1, 0, stream, parameters, NULL));
  CALL(cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 1 << 20, stream, parameters, NULL));
  config.gridDimX = 8;
  config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
  config.blockDimX = 128;
  config.hStream = stream;
  CALL(cuLaunchKernelEx(&config, add, parameters, NULL));
  Contents("a launch by its description");
}

static void CUDA_CB Note(void* word) { ++*(int*)word; }

static void Streams(void) {
  CUstream other = NULL;
  CUevent begin = NULL, end = NULL, plain = NULL;
  float milliseconds = -1;
  int noted = 0;
  CALL(cuStreamCreateWithPriority(&other, CU_STREAM_NON_BLOCKING, 0));
  CALL(cuEventCreate(&begin, CU_EVENT_DEFAULT));
  CALL(cuEventCreate(&end, CU_EVENT_DEFAULT));
  CALL(cuEventCreate(&plain, CU_EVENT_DISABLE_TIMING));
  CALL(cuEventQuery(begin));
  CALL(cuEventElapsedTime(&milliseconds, begin, end));
  CALL(cuEventRecord(begin, stream));
  CALL(cuLaunchHostFunc(stream, Note, &noted));
  CALL(cuEventRecord(end, stream));
  CALL(cuEventRecord(plain, stream));
  CALL(cuStreamWaitEvent(other, end, 0));
  CALL(cuLaunchHostFunc(other, Note, &noted));
  CALL(cuStreamSynchronize(other));
  CALL(cuEventSynchronize(end));
  CALL(cuStreamSynchronize(stream));
  SAY("host functions: %d", noted);
  CALL(cuEventQuery(end));
  CALL(cuStreamQuery(stream));
  CALL(cuEventElapsedTime(&milliseconds, begin, end));
  SAY("time passed: %d", milliseconds >= 0);
  CALL(cuEventElapsedTime(&milliseconds, begin, plain));
  CALL(cuEventDestroy(begin));
  CALL(cuEventDestroy(end));
  CALL(cuEventDestroy(plain));
  CALL(cuStreamDestroy(other));
}

static uint32_t Number(uint32_t below) {
  static uint32_t state = 20261124;
  state = state * 1664525u + 1013904223u;
  return (state >> 8) % below;
}

/* Returns random rows within the memory, of `width` bytes and `pitch` bytes apart. */
static CUdeviceptr Rows(size_t* pitch, size_t* width, size_t* height) {
  *pitch = 64 + 4 * Number(20);
  *width = 4 * (1 + Number((uint32_t)*pitch / 4));
  *height = 1 + Number(10);
  return memory + 4 * Number((uint32_t)((sizeof numbers - *pitch * *height) / 4));
}

/* Submits a random operation to the stream `on`. Returns its code. */
static int AnyOperation(CUdeviceptr other, CUstream on) {
  size_t pitch, width, height;
  const CUdeviceptr rows = Rows(&pitch, &width, &height);
  const uint32_t value = Number(1u << 24);
  CUDA_MEMCPY2D copy = {0};
  switch (Number(8)) {
    case 0:
      return (int)cuMemsetD2D8Async(rows + Number(3), pitch, (unsigned char)value, width - 3,
                                    height, on);
    case 1:
      return (int)cuMemsetD2D16Async(rows + Number(2), pitch, (unsigned short)value, width / 4,
                                     height, on);
    case 2:
      return (int)cuMemsetD2D32Async(rows + 2 * Number(2), pitch, value, width / 8, height, on);
    case 3:
      return (int)cuMemsetD32Async(rows, value, width / 4, on);
    case 4:
      return (int)cuMemcpyDtoDAsync(other + Number(100), rows, width, on);
    case 5:
      return (int)cuMemcpyHtoDAsync(rows, numbers + Number(100), width, on);
    case 6: {
      uint32_t n = (uint32_t)width / 4;
      CUdeviceptr at = rows;
      void* parameters[] = {&at, &n, (void*)&value};
      return (int)cuLaunchKernel(Function("add"), 1 + Number(4), 1, 1, 64, 1, 1, 0, on, parameters,
                                 NULL);
    }
    default:
      copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
      copy.srcDevice = other;
      copy.srcXInBytes = Number(5);
      copy.srcY = Number(3);
      copy.srcPitch = pitch + Number(9);
      copy.dstDevice = rows;
      copy.dstPitch = pitch;
      copy.WidthInBytes = width;
      copy.Height = height;
      return (int)cuMemcpy2DAsync(&copy, on);
  }
}

static void Sequences(void) {
  CUdeviceptr other = 0;
  CUstream second = NULL;
  CUevent turn = NULL;
  CALL(cuMemAlloc(&other, 1 << 16));
  CALL(cuStreamCreateWithPriority(&second, CU_STREAM_NON_BLOCKING, 0));
  CALL(cuEventCreate(&turn, CU_EVENT_DISABLE_TIMING));
  CALL(cuMemsetD8Async(other, 5, 1 << 16, stream));
  Fill();
  for (int round = 0; round < 40; ++round) {
    const CUstream on = round % 2 == 0 ? stream : second;
    for (int i = 0; i < 10; ++i) SAY("operation %d.%d = %d", round, i, AnyOperation(other, on));
    CALL(cuEventRecord(turn, on));
    CALL(cuStreamWaitEvent(on == stream ? second : stream, turn, 0));
    if (round % 2 != 0) Contents("ten operations in each stream");
  }
  CALL(cuStreamSynchronize(second));
  CALL(cuEventDestroy(turn));
  CALL(cuStreamDestroy(second));
  CALL(cuMemFree(other));
}

/* Two modules with the same names have separate variables. */
static void TwoModules(void) {
  CUmodule second = NULL;
  CUdeviceptr one = 0, two = 0;
  CUfunction function = NULL, list[8] = {NULL};
  CUmoduleLoadingMode mode = (CUmoduleLoadingMode)0;
  const char* name = NULL;
  uint32_t value = 0;
  CALL(cuModuleLoadDataEx(&second, kKernels, 0, NULL, NULL));
  CALL(cuModuleGetGlobal(&one, NULL, module, "counter"));
  CALL(cuModuleGetGlobal(&two, NULL, second, "counter"));
  SAY("their addresses differ: %d", one != two);
  CALL(cuModuleGetFunction(&function, second, "count_up"));
  CALL(cuFuncGetName(&name, function));
  SAY("name: %s", name);
  CALL(cuFuncLoad(function));
  CALL(cuModuleGetLoadingMode(&mode));
  CALL(cuModuleEnumerateFunctions(list, 8, second));
  CALL(cuMemsetD32Async(two, 100, 1, stream));
  CALL(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
  CALL(cuMemcpyDtoHAsync(&value, two, 4, stream));
  CALL(cuStreamSynchronize(stream));
  SAY("counter of the second: %u", value);
  CALL(cuMemcpyDtoHAsync(&value, one, 4, stream));
  CALL(cuStreamSynchronize(stream));
  SAY("counter of the first: %u", value);
  CALL(cuModuleUnload(second));
}

/* Host memory that the program registers with the driver. */
static void HostMemory(void) {
  static uint32_t room[COUNT] __attribute__((aligned(4096)));
  CUdeviceptr address = 0;
  void* mapped = NULL;
  uint32_t n = COUNT, what = 1;
  void* parameters[] = {&address, &n, &what};
  CALL(cuMemHostRegister(room, sizeof room, 0));
  CALL(cuMemHostRegister(room, sizeof room, 0));
  CALL(cuMemcpyHtoDAsync(memory, room, sizeof room, stream));
  Contents("a copy of registered memory");
  CALL(cuMemHostUnregister(room));
  CALL(cuMemHostUnregister(room));
  CALL(cuMemHostAlloc(&mapped, sizeof room, CU_MEMHOSTALLOC_DEVICEMAP));
  memset(mapped, 0, sizeof room);
  CALL(cuMemHostGetDevicePointer(&address, mapped, 0));
  CALL(cuLaunchKernel(Function("add"), 8, 1, 1, 128, 1, 1, 0, stream, parameters, NULL));
  CALL(cuStreamSynchronize(stream));
  SAY("a kernel wrote %u and %u", ((uint32_t*)mapped)[0], ((uint32_t*)mapped)[COUNT - 1]);
  CALL(cuMemFreeHost(mapped));
}

/* A kernel's failure remains in the context: all later calls report it. */
static void Faults(const char* kernel) {
  const CUfunction function = Function(kernel);
  size_t bytes = 0;
  CUdeviceptr other = 0;
  CALL(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
  CALL(cuStreamSynchronize(stream));
  CALL(cuStreamSynchronize(stream));
  CALL(cuStreamQuery(stream));
  CALL(cuCtxSynchronize());
  CALL(cuMemAlloc(&other, 4));
  CALL(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
  CALL(cuMemcpyDtoHAsync(found, memory, 4, stream));
  CALL(cuMemGetInfo(&bytes, &bytes));
}

int main(int argc, char** argv) {
  setvbuf(stdout, NULL, _IONBF, 0);
  int version = 0;
  CUdevice device;
  CALL(cuDeviceGet(&device, 0));
  CALL(cuInit(1));
  CALL(cuInit(0));
  CALL(cuInit(0));
  CALL(cuDriverGetVersion(&version));
  Devices();
  Errors();
  Contexts();
  CALL(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0));
  Memory();
  VirtualMemory();
  Modules();
  Launches();
  Streams();
  Sequences();
  TwoModules();
  HostMemory();
  if (argc > 1) {
    Faults(argv[1]);
    return 0;
  }
  CALL(cuModuleUnload(module));
  CALL(cuMemFree(memory));
  CALL(cuStreamDestroy(stream));
  CALL(cuDevicePrimaryCtxRelease(0));
  return 0;
}
