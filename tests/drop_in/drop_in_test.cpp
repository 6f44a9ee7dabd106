// SPDX-License-Identifier: Apache-2.0
// Initialisation, contexts, copies, streams and launches.
#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include <cuda.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/drop_in/server_case.h"

namespace gpushared {
namespace {

using testing::All;
using ::testing::HasSubstr;
using testing::kBytes;
using testing::kCount;
using testing::kKernels;

class DropInTest : public testing::DropInServerCase {};

void* Wild(std::uint64_t value) { return reinterpret_cast<void*>(value); }

// ---- initialisation

TEST(DropInWithoutServerTest, InitReportsThatNoServerAnswers) {
  ::setenv("GPUSHARED_SOCKET", "/nonexistent/gpushared.sock", 1);
  int count = 7;
  EXPECT_EQ(cuInit(0), CUDA_ERROR_MPS_CONNECTION_FAILED);
  EXPECT_EQ(cuDeviceGetCount(&count), CUDA_ERROR_NOT_INITIALIZED);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_NOT_INITIALIZED);
  EXPECT_EQ(cuInit(1), CUDA_ERROR_INVALID_VALUE);
}

// NVIDIA's runtime and cuFFT request these tables before their first driver call.
class WantedTable : public ::testing::TestWithParam<std::array<unsigned char, 8>> {};
INSTANTIATE_TEST_SUITE_P(DropInWithoutServerTest, WantedTable,
                         ::testing::Values(std::array<unsigned char, 8>{0x6b, 0xd5, 0xfb, 0x6c,
                                                                        0x5b, 0xf4, 0xe7, 0x4a},
                                           std::array<unsigned char, 8>{0x21, 0x31, 0x8c, 0x60,
                                                                        0x97, 0x14, 0x32, 0x48}));

TEST_P(WantedTable, RequestIsReportedOnceUnderRun) {
  CUuuid runtime = {};
  std::memcpy(runtime.bytes, GetParam().data(), GetParam().size());
  const CUuuid other = {{1}};
  const void* table = &runtime;
  const auto said = [&](const CUuuid& id) {
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(cuGetExportTable(&table, &id), CUDA_ERROR_NOT_FOUND);
    EXPECT_EQ(table, nullptr);
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(said(runtime), "") << "only programs under `gpusharedctl run` get the message";
  ::setenv("GPUSHARED_RUN", "1", 1);
  EXPECT_EQ(said(other), "");
  EXPECT_THAT(said(runtime), HasSubstr("NVIDIA's"));
  EXPECT_EQ(said(runtime), "") << "the message appears only once";
}

TEST_F(DropInTest, InitSucceedsLaterOnceAServerRuns) {
  ::setenv("GPUSHARED_SOCKET", "/nonexistent/gpushared.sock", 1);
  EXPECT_EQ(cuInit(0), CUDA_ERROR_MPS_CONNECTION_FAILED);
  ::setenv("GPUSHARED_SOCKET", server_.socket().c_str(), 1);
  EXPECT_EQ(cuInit(0), CUDA_SUCCESS);
}

TEST_F(DropInTest, DrainingServerIsNotReady) {
  ASSERT_EQ(cuInit(0), CUDA_SUCCESS);
  CUcontext held = nullptr;
  ASSERT_EQ(cuCtxCreate(&held, nullptr, 0, 0), CUDA_SUCCESS);
  EXPECT_EQ(server_.Ctl({"drain"}).exit_code, 0);
  const auto program = testing::RunProgram({GPUSHARED_VECTOR_ADD_PROGRAM});
  EXPECT_NE(program.exit_code, 0);
  EXPECT_THAT(program.output, HasSubstr("CUDA_ERROR_MPS_SERVER_NOT_READY (807)"));
}

TEST_F(DropInTest, InitBeginsNoSession) {
  ASSERT_EQ(cuInit(0), CUDA_SUCCESS);
  int count = 0;
  EXPECT_EQ(cuDeviceGetCount(&count), CUDA_SUCCESS);
  EXPECT_EQ(count, 1);
  EXPECT_TRUE(testing::Eventually([&] { return Sessions() == 0; }));
}

TEST_F(DropInTest, LastContextEndsTheSession) {
  UsePrimary();
  EXPECT_EQ(Sessions(), 1u);
  ASSERT_EQ(cuCtxSetCurrent(nullptr), CUDA_SUCCESS);
  ASSERT_EQ(cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS);
  EXPECT_TRUE(testing::Eventually([&] { return Sessions() == 0; }));
  // The handle remains, but is invalid until the context is retained again.
  EXPECT_EQ(cuCtxSetCurrent(context_), CUDA_SUCCESS);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  CUcontext again = nullptr;
  ASSERT_EQ(cuDevicePrimaryCtxRetain(&again, 0), CUDA_SUCCESS);
  EXPECT_EQ(again, context_);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
}

TEST_F(DropInTest, ThreadsContextsAndStreamsWorkAtOnce) {
  const auto program = testing::RunProgram({GPUSHARED_THREADS_PROGRAM});
  EXPECT_EQ(program.exit_code, 0) << program.output;
  EXPECT_THAT(program.output, HasSubstr("32 streams agree"));
}

TEST_F(DropInTest, ForkedChildIsRejected) {
  UsePrimary();
  const pid_t child = ::fork();
  if (child == 0) {
    CUdeviceptr address = 0;
    const bool rejected = cuInit(0) == CUDA_ERROR_NOT_INITIALIZED &&
                          cuMemAlloc(&address, 64) == CUDA_ERROR_NOT_INITIALIZED &&
                          cuCtxSynchronize() == CUDA_ERROR_NOT_INITIALIZED;
    ::_exit(rejected ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
}

TEST_F(DropInTest, ChildThatForkedBeforeInitWorks) {
  const pid_t child = ::fork();
  if (child == 0) {
    CUcontext context = nullptr;
    ::_exit(cuInit(0) == CUDA_SUCCESS && cuCtxCreate(&context, nullptr, 0, 0) == CUDA_SUCCESS ? 0
                                                                                              : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(DropInTest, SessionHasTheClassOfTheEnvironment) {
  ::setenv("GPUSHARED_CLASS", "low", 1);
  ::setenv("GPUSHARED_NAME", "night job", 1);
  UsePrimary();
  const std::string clients = server_.Ctl({"ps"}).output;
  EXPECT_THAT(clients, HasSubstr("night job"));
  EXPECT_THAT(clients, HasSubstr("low"));
}

TEST_F(DropInTest, RejectsInvalidEnvironment) {
  ::setenv("GPUSHARED_CLASS", "urgent", 1);
  EXPECT_EQ(cuInit(0), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(DropInTest, InitFailsIfNoDeviceIsVisible) {
  ::setenv("CUDA_VISIBLE_DEVICES", "-1", 1);
  EXPECT_EQ(cuInit(0), CUDA_ERROR_NO_DEVICE);
}

// ---- addresses

// cuMemcpy derives the type of memory from each address, so a freed device address must not be
// mistaken for host memory.
TEST_F(DropInTest, AllCopiesRejectFreedMemory) {
  UsePrimary();
  CUdeviceptr first = 0, freed = 0, last = 0;
  for (CUdeviceptr* memory : {&first, &freed, &last}) {
    ASSERT_EQ(cuMemAlloc(memory, kBytes), CUDA_SUCCESS);
  }
  ASSERT_EQ(cuMemFree(freed), CUDA_SUCCESS);
  std::vector<char> host(kBytes);
  const auto own = reinterpret_cast<CUdeviceptr>(host.data());
  EXPECT_EQ(cuMemcpyHtoD(freed, host.data(), kBytes), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemcpy(freed, own, kBytes), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemcpy(own, freed, kBytes), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemcpyAsync(last, freed, kBytes, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemcpy(last, own, kBytes), CUDA_SUCCESS);
  EXPECT_EQ(cuMemcpy(own, last, kBytes), CUDA_SUCCESS);
  // The program may map its own memory at that address later.
  void* const page = reinterpret_cast<void*>(freed & ~CUdeviceptr{4095});
  void* const mapped = ::mmap(page, 2 * 4096 + kBytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  ASSERT_EQ(mapped, page);
  EXPECT_EQ(cuMemcpy(last, freed, kBytes), CUDA_SUCCESS);
  ::munmap(mapped, 2 * 4096 + kBytes);
}

// ---- lookup of functions

TEST_F(DropInTest, ProcAddressChoosesVariantByVersionAndStream) {
  void* function = nullptr;
  CUdriverProcAddressQueryResult found{};
  EXPECT_EQ(cuGetProcAddress("cuMemAlloc", &function, 12000, 0, &found), CUDA_SUCCESS);
  EXPECT_EQ(function, reinterpret_cast<void*>(&cuMemAlloc));
  EXPECT_EQ(found, CU_GET_PROC_ADDRESS_SUCCESS);
  EXPECT_EQ(cuGetProcAddress("cuMemcpyHtoD", &function, 12000,
                             CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, &found),
            CUDA_SUCCESS);
  EXPECT_NE(function, reinterpret_cast<void*>(&cuMemcpyHtoD));
  // A function without a variant for the per-thread default stream has only one form.
  EXPECT_EQ(cuGetProcAddress("cuMemAlloc", &function, 12000,
                             CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, &found),
            CUDA_SUCCESS);
  EXPECT_EQ(function, reinterpret_cast<void*>(&cuMemAlloc));
  EXPECT_EQ(cuGetProcAddress("cuLaunchKernelEx", &function, 11000, 0, &found), CUDA_SUCCESS);
  EXPECT_EQ(function, nullptr);
  EXPECT_EQ(found, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
  EXPECT_EQ(cuGetProcAddress("cuNoSuchThing", &function, 13000, 0, &found), CUDA_SUCCESS);
  EXPECT_EQ(found, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  EXPECT_EQ(cuGetProcAddress(nullptr, &function, 13000, 0, &found), CUDA_ERROR_INVALID_VALUE);
}

// numba-cuda-mlir makes this call, and then looks up the missing function with dlsym.
TEST_F(DropInTest, ProcAddressOfUnknownFunctionIsNullWithoutError) {
  void* function = this;
  EXPECT_EQ(cuGetProcAddress("cuFuncSetAttribute", &function, 2000, 0, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(function, nullptr);
  // The form of CUDA 11.3 has no parameter that returns why a function is missing.
  const auto first_form = reinterpret_cast<CUresult (*)(const char*, void**, int, cuuint64_t)>(
      ::dlsym(RTLD_DEFAULT, "cuGetProcAddress"));
  EXPECT_EQ(first_form("cuFuncSetAttribute", &function, 2000, 0), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(first_form("cuFuncSetAttribute", &function, 9000, 0), CUDA_SUCCESS);
}

TEST_F(DropInTest, HasNoExportTables) {
  const void* table = Wild(1);
  CUuuid id{};
  for (int first = 0; first < 256; ++first) {
    id.bytes[0] = static_cast<char>(first);
    EXPECT_EQ(cuGetExportTable(&table, &id), CUDA_ERROR_NOT_FOUND);
    EXPECT_EQ(table, nullptr);
  }
}

TEST_F(DropInTest, MissingFunctionsReturnNotSupported) {
  CUmipmappedArray array = nullptr;
  const CUDA_ARRAY3D_DESCRIPTOR description{};
  EXPECT_EQ(cuMipmappedArrayCreate(&array, &description, 1), CUDA_ERROR_NOT_SUPPORTED);
}

// ---- contexts

TEST_F(DropInTest, ContextsStackUpPerThread) {
  ASSERT_EQ(cuInit(0), CUDA_SUCCESS);
  CUcontext first = nullptr, second = nullptr, current = nullptr;
  ASSERT_EQ(cuCtxCreate(&first, nullptr, 0, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxCreate(&second, nullptr, 0, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuCtxGetCurrent(&current), CUDA_SUCCESS);
  EXPECT_EQ(current, second);
  EXPECT_EQ(cuCtxPopCurrent(&current), CUDA_SUCCESS);
  EXPECT_EQ(current, second);
  EXPECT_EQ(cuCtxGetCurrent(&current), CUDA_SUCCESS);
  EXPECT_EQ(current, first);
  std::thread([] {
    CUcontext other = reinterpret_cast<CUcontext>(Wild(1));
    EXPECT_EQ(cuCtxGetCurrent(&other), CUDA_SUCCESS);
    EXPECT_EQ(other, nullptr);
    EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_INVALID_CONTEXT);
  }).join();
  EXPECT_EQ(cuCtxDestroy(first), CUDA_SUCCESS);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(cuCtxPushCurrent(second), CUDA_SUCCESS);
  EXPECT_EQ(cuCtxDestroy(first), CUDA_ERROR_INVALID_CONTEXT);
}

TEST_F(DropInTest, AcceptsOnlyEmptyContextParameters) {
  ASSERT_EQ(cuInit(0), CUDA_SUCCESS);
  CUcontext context = nullptr;
  CUctxCreateParams parameters{};
  ASSERT_EQ(cuCtxCreate_v4(&context, &parameters, 0, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuCtxDestroy(context), CUDA_SUCCESS);
  CUexecAffinityParam affinity{};
  parameters = {&affinity, 1, nullptr};
  EXPECT_EQ(cuCtxCreate_v4(&context, &parameters, 0, 0), CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY);
  CUctxCigParam graphics{};
  parameters = {nullptr, 0, &graphics};
  EXPECT_EQ(cuCtxCreate_v4(&context, &parameters, 0, 0), CUDA_ERROR_NOT_SUPPORTED);
}

TEST_F(DropInTest, DestroyingContextInvalidatesItsObjects) {
  UsePrimary();
  CUcontext made = nullptr;
  ASSERT_EQ(cuCtxCreate(&made, nullptr, 0, 0), CUDA_SUCCESS);
  CUdeviceptr numbers = 0;
  CUstream stream = nullptr;
  CUevent event = nullptr;
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  ASSERT_EQ(cuMemAlloc(&numbers, kBytes), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamCreate(&stream, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuEventCreate(&event, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuModuleLoadData(&module, kKernels), CUDA_SUCCESS);
  ASSERT_EQ(cuModuleGetFunction(&function, module, "nothing"), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxDestroy(made), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFree(numbers), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuStreamSynchronize(stream), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuEventQuery(event), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuModuleUnload(module), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr),
            CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(DropInTest, PrimaryContextIsReferenceCounted) {
  UsePrimary();
  CUcontext again = nullptr;
  unsigned flags = 0;
  int active = 0;
  EXPECT_EQ(cuDevicePrimaryCtxRetain(&again, 0), CUDA_SUCCESS);
  EXPECT_EQ(again, context_);
  EXPECT_EQ(cuCtxDestroy(context_), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS);
  EXPECT_EQ(cuDevicePrimaryCtxGetState(0, &flags, &active), CUDA_SUCCESS);
  EXPECT_EQ(active, 1);
  EXPECT_EQ(cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS);
  EXPECT_EQ(cuDevicePrimaryCtxGetState(0, &flags, &active), CUDA_SUCCESS);
  EXPECT_EQ(active, 0);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  EXPECT_EQ(cuDevicePrimaryCtxRelease(0), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(cuDevicePrimaryCtxRetain(&again, 0), CUDA_SUCCESS);
  EXPECT_EQ(again, context_);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
}

// ---- memory and copies

TEST_F(DropInTest, InvalidCopyLeavesTheStreamUsable) {
  UsePrimary();
  const CUdeviceptr numbers = Numbers();
  std::vector<std::uint32_t> sent = All(5);
  EXPECT_EQ(cuMemcpyHtoD(numbers, sent.data(), kBytes), CUDA_SUCCESS);
  EXPECT_EQ(cuMemcpyHtoD(numbers, sent.data(), kBytes + 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemcpyHtoD(numbers + 4, sent.data(), kBytes), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemcpyDtoH(sent.data(), 4096, 16), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemsetD8(numbers, 0, std::numeric_limits<std::size_t>::max()),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Read(numbers), All(5)) << "the stream must remain usable";
  const CUdeviceptr copy = Numbers();
  EXPECT_EQ(cuMemcpy(copy, numbers, kBytes), CUDA_SUCCESS);
  EXPECT_EQ(Read(copy), All(5));
  EXPECT_EQ(cuMemFree(numbers + 4), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemFree(numbers), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFree(numbers), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemFree(0), CUDA_SUCCESS);
}

TEST_F(DropInTest, MemoryInfoIsTheQuota) {
  UsePrimary();
  std::size_t before = 0, after = 0, total = 0;
  ASSERT_EQ(cuMemGetInfo(&before, &total), CUDA_SUCCESS);
  CUdeviceptr memory = 0;
  ASSERT_EQ(cuMemAlloc(&memory, 1 << 20), CUDA_SUCCESS);
  ASSERT_EQ(cuMemGetInfo(&after, &total), CUDA_SUCCESS);
  EXPECT_EQ(before - after, std::size_t{1} << 20);
  EXPECT_EQ(cuMemAlloc(&memory, total + 1), CUDA_ERROR_OUT_OF_MEMORY);
}

// ---- streams and events

TEST_F(DropInTest, EventsOrderStreamsAndMeasureTime) {
  UsePrimary();
  const CUdeviceptr numbers = Numbers();
  CUstream streams[2] = {};
  CUevent events[2] = {};
  for (CUstream& stream : streams) {
    ASSERT_EQ(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  }
  for (CUevent& event : events) ASSERT_EQ(cuEventCreate(&event, 0), CUDA_SUCCESS);
  float milliseconds = -1;
  EXPECT_EQ(cuEventElapsedTime(&milliseconds, events[0], events[1]), CUDA_ERROR_INVALID_HANDLE);
  ASSERT_EQ(cuEventRecord(events[0], streams[0]), CUDA_SUCCESS);
  ASSERT_EQ(AddOne(numbers, streams[0]), CUDA_SUCCESS);
  ASSERT_EQ(cuEventRecord(events[1], streams[0]), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamWaitEvent(streams[1], events[1], 0), CUDA_SUCCESS);
  ASSERT_EQ(AddOne(numbers, streams[1]), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamSynchronize(streams[1]), CUDA_SUCCESS);
  EXPECT_EQ(Read(numbers), All(2));
  EXPECT_EQ(cuEventQuery(events[1]), CUDA_SUCCESS);
  EXPECT_EQ(cuEventElapsedTime(&milliseconds, events[0], events[1]), CUDA_SUCCESS);
  EXPECT_GT(milliseconds, 0);
}

TEST_F(DropInTest, EachThreadHasItsOwnDefaultStream) {
  UsePrimary();
  void* get_id = nullptr;
  CUdriverProcAddressQueryResult found{};
  ASSERT_EQ(cuGetProcAddress("cuStreamGetId", &get_id, 13000,
                             CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, &found),
            CUDA_SUCCESS);
  const auto id_of_mine = reinterpret_cast<CUresult (*)(CUstream, unsigned long long*)>(get_id);
  unsigned long long legacy = 0, mine = 0, mine_again = 0, other = 0;
  EXPECT_EQ(cuStreamGetId(nullptr, &legacy), CUDA_SUCCESS);
  EXPECT_EQ(id_of_mine(nullptr, &mine), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamGetId(CU_STREAM_PER_THREAD, &mine_again), CUDA_SUCCESS);
  std::thread([&] {
    EXPECT_EQ(cuCtxSetCurrent(context_), CUDA_SUCCESS);
    EXPECT_EQ(id_of_mine(nullptr, &other), CUDA_SUCCESS);
  }).join();
  EXPECT_NE(legacy, mine);
  EXPECT_EQ(mine, mine_again);
  EXPECT_NE(mine, other);
}

// A thread must release its stream when it ends, because a session has only 255 of them.
TEST_F(DropInTest, EndedThreadsReleaseTheirStreams) {
  UsePrimary();
  for (int i = 0; i < 300; ++i) {
    std::thread([&] {
      unsigned long long id = 0;
      ASSERT_EQ(cuCtxSetCurrent(context_), CUDA_SUCCESS);
      ASSERT_EQ(cuStreamGetId(CU_STREAM_PER_THREAD, &id), CUDA_SUCCESS);
    }).join();
  }
}

// ---- modules and launches

TEST_F(DropInTest, BrokenImagesAreRejectedWithALog) {
  UsePrimary();
  char text[512] = "untouched";
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {text, Wild(sizeof text)};
  CUmodule module = nullptr;
  EXPECT_EQ(cuModuleLoadDataEx(&module, ".version 7.0\n.target sm_75\n.address_size 64\nnonsense",
                               2, options, values),
            CUDA_ERROR_INVALID_PTX);
  EXPECT_THAT(text, HasSubstr("line 4"));
  EXPECT_EQ(reinterpret_cast<std::size_t>(values[1]), std::strlen(text));
  EXPECT_NE(cuModuleLoadData(&module, ""), CUDA_SUCCESS);
  EXPECT_NE(cuModuleLoadData(&module, "x"), CUDA_SUCCESS);
  EXPECT_EQ(cuModuleLoad(&module, "/nonexistent"), CUDA_ERROR_FILE_NOT_FOUND);
}

TEST_F(DropInTest, AcceptsParametersAsArrayOrBuffer) {
  UsePrimary();
  const CUdeviceptr numbers = Numbers();
  struct {
    CUdeviceptr numbers;
    unsigned n;
    unsigned padding;
  } packed = {numbers, kCount, 0};
  std::size_t bytes = sizeof packed;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                   CU_LAUNCH_PARAM_END};
  const CUfunction add = Function("add_one");
  EXPECT_EQ(cuLaunchKernel(add, 8, 1, 1, 128, 1, 1, 0, nullptr, nullptr, extra), CUDA_SUCCESS);
  bytes = 12;
  EXPECT_EQ(cuLaunchKernel(add, 8, 1, 1, 128, 1, 1, 0, nullptr, nullptr, extra), CUDA_SUCCESS);
  bytes = 11;
  EXPECT_EQ(cuLaunchKernel(add, 8, 1, 1, 128, 1, 1, 0, nullptr, nullptr, extra),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Read(numbers), All(2));
  // Arguments in both forms are an error, and so are arguments in neither.
  void* parameters[] = {&packed.numbers, &packed.n};
  bytes = 12;
  EXPECT_EQ(cuLaunchKernel(add, 8, 1, 1, 128, 1, 1, 0, nullptr, parameters, extra),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuLaunchKernel(add, 8, 1, 1, 128, 1, 1, 0, nullptr, nullptr, nullptr),
            CUDA_ERROR_INVALID_VALUE);
  // An empty buffer needs no address. Slang relies on this, because its kernels read everything
  // from constant memory.
  const CUfunction nothing = Function("nothing");
  EXPECT_EQ(cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, extra),
            CUDA_ERROR_INVALID_VALUE);
  extra[1] = nullptr;
  EXPECT_EQ(cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, extra),
            CUDA_ERROR_INVALID_VALUE);
  bytes = 0;
  EXPECT_EQ(cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, extra), CUDA_SUCCESS);
  EXPECT_EQ(cuLaunchKernel(add, 8, 1, 1, 128, 1, 1, 0, nullptr, nullptr, extra),
            CUDA_ERROR_INVALID_VALUE);
}

TEST_F(DropInTest, FaultStaysWithTheContextUntilItIsReset) {
  UsePrimary();
  const CUfunction fault = Function("fault");
  EXPECT_EQ(cuLaunchKernel(fault, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr), CUDA_SUCCESS);
  const CUresult said = cuCtxSynchronize();
  EXPECT_EQ(said, CUDA_ERROR_ILLEGAL_ADDRESS);
  CUdeviceptr memory = 0;
  EXPECT_EQ(cuMemAlloc(&memory, 64), said);
  EXPECT_EQ(cuCtxSynchronize(), said);
  module_ = nullptr;
  EXPECT_EQ(cuDevicePrimaryCtxReset(0), CUDA_SUCCESS);
  const CUdeviceptr numbers = Numbers();
  EXPECT_EQ(AddOne(numbers, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(Read(numbers), All(1));
}

TEST_F(DropInTest, TerminatedClientGetsItsError) {
  UsePrimary();
  const CUdeviceptr numbers = Numbers();
  ASSERT_EQ(AddOne(numbers, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  const std::string clients = server_.Ctl({"ps", "--json"}).output;
  const std::size_t id = clients.find("\"client\":");
  ASSERT_NE(id, std::string::npos) << clients;
  const std::string number = std::to_string(std::atoi(clients.c_str() + id + 9));
  EXPECT_EQ(server_.Ctl({"client", "terminate", number}).exit_code, 0);
  // If no call is waiting, the failure is noticed at the next call that the server answers.
  EXPECT_TRUE(testing::Eventually(
      [&] { return cuModuleLoadData(&module_, kKernels) == CUDA_ERROR_MPS_CLIENT_TERMINATED; }));
  EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_MPS_CLIENT_TERMINATED);
}

}  // namespace
}  // namespace gpushared
