// SPDX-License-Identifier: Apache-2.0
// The fake driver detects misuse and injects failures; otherwise tests that run on it would prove
// nothing. The conformance suite, which runs over it, tests how it executes work.

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/device/cuda/driver.h"
#include "tests/support/fake_cuda/fake_cuda.h"

namespace gpushared::device::cuda {
namespace {

using ::testing::HasSubstr;

constexpr std::size_t kMiB = std::size_t{1} << 20;

constexpr const char* kPtx = R"(.version 8.0
.target sm_80
.address_size 64
// Adds `step` to every word.
.visible .entry add(.param .u64 words, .param .u32 step) {
  .reg .u64 %rd<4>; .reg .u32 %r<5>;
  ld.param.u64 %rd1, [words];
  ld.param.u32 %r1, [step];
  mov.u32 %r2, %tid.x;
  mul.wide.u32 %rd2, %r2, 4;
  add.u64 %rd3, %rd1, %rd2;
  ld.global.u32 %r3, [%rd3];
  add.u32 %r4, %r3, %r1;
  st.global.u32 [%rd3], %r4;
  ret;
}
.visible .entry die(.param .u64 at) {
  .reg .u64 %rd<2>; .reg .u32 %r<2>;
  ld.param.u64 %rd1, [at];
  ld.global.u32 %r1, [%rd1];
  st.global.u32 [%rd1], %r1;
  ret;
}
.visible .entry for_ever() {
LOOP:
  bra LOOP;
}
)";

class FakeCuda : public ::testing::Test {
 protected:
  FakeCuda() {
    fake_cuda_reset();
    auto loaded = Driver::Load();
    EXPECT_TRUE(loaded.ok()) << loaded.status().ToString();
    driver_ = *loaded;
    Ok(driver_->DevicePrimaryCtxRetain(&context_, 0));
    Ok(driver_->CtxSetCurrent(context_));
    Ok(driver_->StreamCreateWithPriority(&stream_, kStreamNonBlocking, 0));
  }
  ~FakeCuda() override {
    EXPECT_EQ(Mistakes(), "");
    fake_cuda_reset();
  }

  static void Ok(Code code) { EXPECT_EQ(code, Code::kSuccess); }
  static void Script(const char* statements) {
    const char* wrong = fake_cuda_script(statements);
    ASSERT_EQ(wrong, nullptr) << wrong;
  }
  static std::string Mistakes() { return fake_cuda_take_mistakes(); }

  Stream NewStream(int priority = 0) {
    Stream stream = nullptr;
    Ok(driver_->StreamCreateWithPriority(&stream, kStreamNonBlocking, priority));
    return stream;
  }
  Function Get(const char* name) {
    if (module_ == nullptr) Ok(driver_->ModuleLoadDataEx(&module_, kPtx, 0, nullptr, nullptr));
    Function function = nullptr;
    Ok(driver_->ModuleGetFunction(&function, module_, name));
    return function;
  }
  // Returns mapped, writable memory at the beginning of a new range.
  DeviceAddress Mapped(std::size_t bytes = 2 * kMiB) {
    DeviceAddress at = 0;
    Ok(driver_->MemAddressReserve(&at, 4096 * kMiB, 4096 * kMiB, 0, 0));
    MapAt(at, bytes);
    return at;
  }
  void MapAt(DeviceAddress at, std::size_t bytes) {
    MemoryHandle handle = 0;
    const AllocationProperties here;
    const AccessDescription access;
    Ok(driver_->MemCreate(&handle, bytes, &here, 0));
    Ok(driver_->MemMap(at, bytes, 0, handle, 0));
    Ok(driver_->MemSetAccess(at, bytes, &access, 1));
    Ok(driver_->MemRelease(handle));
  }
  Code Launch(Function function, std::vector<void*> parameters, unsigned threads = 1,
              Stream stream = nullptr) {
    return driver_->LaunchKernel(function, 1, 1, 1, threads, 1, 1, 0,
                                 stream != nullptr ? stream : stream_, parameters.data(), nullptr);
  }
  std::vector<std::uint32_t> Read(DeviceAddress at, std::size_t words) {
    std::vector<std::uint32_t> out(words);
    Ok(driver_->MemcpyDtoHAsync(out.data(), at, words * 4, stream_));
    Ok(driver_->StreamSynchronize(stream_));
    return out;
  }

  std::shared_ptr<const Driver> driver_;
  Context context_ = nullptr;
  Stream stream_ = nullptr;
  Module module_ = nullptr;
};

TEST_F(FakeCuda, RejectsLaunchesThatDoNotFit) {
  const Function add = Get("add");
  DeviceAddress at = Mapped();
  std::uint32_t step = 1;
  void* parameters[] = {&at, &step};
  const auto launch = [&](unsigned grid, unsigned threads, unsigned shared) {
    return driver_->LaunchKernel(add, grid, 1, 1, threads, 1, 1, shared, stream_, parameters,
                                 nullptr);
  };
  EXPECT_EQ(launch(1, 1025, 0), Code::kInvalidValue);
  EXPECT_EQ(launch(0, 32, 0), Code::kInvalidValue);
  EXPECT_EQ(launch(1, 32, 48 * 1024 + 1), Code::kInvalidValue);
  EXPECT_EQ(driver_->FuncSetAttribute(add, FunctionAttribute::kDynamicSharedBytesMax, 228 * 1024),
            Code::kInvalidValue);
  Ok(driver_->FuncSetAttribute(add, FunctionAttribute::kDynamicSharedBytesMax, 200 * 1024));
  Ok(launch(1, 32, 200 * 1024));
  Ok(driver_->StreamSynchronize(stream_));
  // The parameters take 12 bytes.
  std::size_t bytes = 8;
  void* extra[] = {reinterpret_cast<void*>(kLaunchBuffer), &at,
                   reinterpret_cast<void*>(kLaunchBufferBytes), &bytes,
                   reinterpret_cast<void*>(kLaunchEnd)};
  EXPECT_EQ(driver_->LaunchKernel(add, 1, 1, 1, 32, 1, 1, 0, stream_, nullptr, extra),
            Code::kInvalidValue);

  LaunchAttribute cluster;
  cluster.id = LaunchAttributeId::kClusterDimension;
  cluster.value.cluster = {.x = 2, .y = 1, .z = 1};
  LaunchConfig config = {
      .grid_x = 3, .block_x = 32, .stream = stream_, .attributes = &cluster, .attribute_count = 1};
  EXPECT_EQ(driver_->LaunchKernelEx(&config, add, parameters, nullptr), Code::kInvalidClusterSize);
  config.grid_x = 2;
  Ok(driver_->LaunchKernelEx(&config, add, parameters, nullptr));
  Ok(driver_->StreamSynchronize(stream_));
}

// ---- memory

TEST_F(FakeCuda, FreshMemoryIsGarbageAndTwoMappingsShareIt) {
  DeviceAddress range = 0;
  Ok(driver_->MemAddressReserve(&range, 8 * kMiB, 8 * kMiB, 0, 0));
  EXPECT_EQ(range % (8 * kMiB), 0U);
  MemoryHandle handle = 0;
  const AllocationProperties here;
  const AccessDescription access;
  Ok(driver_->MemCreate(&handle, 2 * kMiB, &here, 0));
  Ok(driver_->MemMap(range, 2 * kMiB, 0, handle, 0));
  Ok(driver_->MemMap(range + 4 * kMiB, 2 * kMiB, 0, handle, 0));
  // Mapped memory is inaccessible until access has been set.
  EXPECT_EQ(driver_->MemsetD8Async(range, 0, 4, stream_), Code::kInvalidValue);
  Ok(driver_->MemSetAccess(range, 2 * kMiB, &access, 1));
  Ok(driver_->MemSetAccess(range + 4 * kMiB, 2 * kMiB, &access, 1));
  EXPECT_EQ(Read(range, 1)[0], 0xA5A5A5A5U);
  Ok(driver_->MemsetD8Async(range, 1, 4, stream_));
  EXPECT_EQ(Read(range + 4 * kMiB, 1)[0], 0x01010101U);
  // The memory exists until its handle is released and no mapping uses it.
  Ok(driver_->MemRelease(handle));
  Ok(driver_->MemUnmap(range, 2 * kMiB));
  EXPECT_EQ(fake_cuda_memory_used(), 2 * kMiB);
  Ok(driver_->MemUnmap(range + 4 * kMiB, 2 * kMiB));
  EXPECT_EQ(fake_cuda_memory_used(), 0U);
  Ok(driver_->MemAddressFree(range, 8 * kMiB));
}

TEST_F(FakeCuda, EnforcesRulesOfVirtualMemory) {
  const AllocationProperties here;
  DeviceAddress range = 0;
  MemoryHandle handle = 0;
  EXPECT_EQ(driver_->MemAddressReserve(&range, kMiB, 0, 0, 0), Code::kInvalidValue);
  EXPECT_EQ(driver_->MemCreate(&handle, kMiB, &here, 0), Code::kInvalidValue);
  Ok(driver_->MemAddressReserve(&range, 8 * kMiB, 0, 0, 0));
  Ok(driver_->MemCreate(&handle, 4 * kMiB, &here, 0));
  EXPECT_EQ(driver_->MemMap(range + 6 * kMiB, 4 * kMiB, 0, handle, 0), Code::kInvalidValue);
  EXPECT_EQ(driver_->MemMap(range, 4 * kMiB, 2 * kMiB, handle, 0), Code::kInvalidValue);
  Ok(driver_->MemMap(range, 4 * kMiB, 0, handle, 0));
  EXPECT_EQ(driver_->MemMap(range + 2 * kMiB, 4 * kMiB, 0, handle, 0), Code::kAlreadyMapped);
  // A part of a mapping cannot be unmapped, and a range with mappings cannot be freed.
  EXPECT_EQ(driver_->MemUnmap(range, 2 * kMiB), Code::kInvalidValue);
  EXPECT_EQ(driver_->MemAddressFree(range, 8 * kMiB), Code::kInvalidValue);
  EXPECT_THAT(Mistakes(), HasSubstr("cuMemUnmap: returns what is not there"));
  Ok(driver_->MemUnmap(range, 4 * kMiB));
  Ok(driver_->MemRelease(handle));
  Ok(driver_->MemAddressFree(range, 8 * kMiB));
}

TEST_F(FakeCuda, MemoryRunsOut) {
  Script("memory 8M");
  const AllocationProperties here;
  MemoryHandle first = 0, second = 0;
  Ok(driver_->MemCreate(&first, 6 * kMiB, &here, 0));
  EXPECT_EQ(driver_->MemCreate(&second, 4 * kMiB, &here, 0), Code::kOutOfMemory);
  DeviceAddress plain = 0;
  EXPECT_EQ(driver_->MemAlloc(&plain, 3 * kMiB), Code::kOutOfMemory);
  std::size_t free = 0, total = 0;
  Ok(driver_->MemGetInfo(&free, &total));
  EXPECT_EQ(free, 2 * kMiB);
  EXPECT_EQ(total, 8 * kMiB);
  Ok(driver_->MemRelease(first));
  Ok(driver_->MemAlloc(&plain, 3 * kMiB));
  Ok(driver_->MemFree(plain));
}

TEST_F(FakeCuda, RegistersHostMemoryOnceAndCountsCopiesWithoutRegistration) {
  const DeviceAddress at = Mapped();
  static std::uint32_t host[64];
  Ok(driver_->MemcpyHtoDAsync(at, host, sizeof host, stream_));
  EXPECT_EQ(fake_cuda_pageable_copies(), 1U);
  Ok(driver_->MemHostRegister(host, sizeof host, kHostDeviceMap));
  EXPECT_EQ(driver_->MemHostRegister(host, 4, 0), Code::kHostMemoryAlreadyRegistered);
  Ok(driver_->MemcpyHtoDAsync(at, host, sizeof host, stream_));
  Ok(driver_->StreamSynchronize(stream_));
  EXPECT_EQ(fake_cuda_pageable_copies(), 1U);
  Ok(driver_->MemHostUnregister(host));
  EXPECT_EQ(driver_->MemHostUnregister(host), Code::kHostMemoryNotRegistered);
  EXPECT_THAT(Mistakes(), HasSubstr("cuMemHostUnregister: returns what is not there"));
}

TEST_F(FakeCuda, WritesWordsOnlyToAlignedMemory) {
  static std::uint32_t words[2];
  Ok(driver_->MemHostRegister(words, sizeof words, kHostDeviceMap));
  DeviceAddress at = 0;
  Ok(driver_->MemHostGetDevicePointer(&at, words, 0));
  EXPECT_EQ(driver_->StreamWriteValue32(stream_, at + 2, 1, 0), Code::kInvalidValue);
  EXPECT_EQ(driver_->StreamWriteValue32(stream_, 0x1000, 1, 0), Code::kInvalidValue);
  Ok(driver_->MemHostUnregister(words));
}

TEST_F(FakeCuda, ElapsedTimeNeedsTimedFinishedEvents) {
  Event timed = nullptr, untimed = nullptr;
  Ok(driver_->EventCreate(&timed, 0));
  Ok(driver_->EventCreate(&untimed, kEventDisableTiming));
  float ms = 0;
  EXPECT_EQ(driver_->EventElapsedTime(&ms, timed, timed), Code::kInvalidHandle);
  Ok(driver_->EventRecord(timed, stream_));
  Ok(driver_->EventRecord(untimed, stream_));
  Ok(driver_->StreamSynchronize(stream_));
  EXPECT_EQ(driver_->EventElapsedTime(&ms, timed, untimed), Code::kInvalidHandle);
}

TEST_F(FakeCuda, RunsUrgentStreamsFirst) {
  const DeviceAddress at = Mapped();
  const Stream low = NewStream(0), high = NewStream(-5);
  Script("hold");
  Ok(driver_->MemsetD32Async(at, 1, 1, low));
  Ok(driver_->MemsetD32Async(at, 2, 1, high));
  Script("go");
  Ok(driver_->StreamSynchronize(low));
  Ok(driver_->StreamSynchronize(high));
  EXPECT_EQ(Read(at, 1)[0], 1U);
}

// An endless kernel delays neither copies nor the exit of the process.
TEST_F(FakeCuda, CopiesRunDuringAnEndlessKernel) {
  const DeviceAddress at = Mapped();
  const Stream other = NewStream();
  Ok(Launch(Get("for_ever"), {}, 1, other));
  Ok(driver_->MemsetD8Async(at, 3, 4, stream_));
  EXPECT_EQ(Read(at, 1)[0], 0x03030303U);
  EXPECT_EQ(driver_->StreamQuery(other), Code::kNotReady);
}

// ---- errors

TEST_F(FakeCuda, InvalidKernelAccessFailsAllLaterCalls) {
  DeviceAddress wild = 0x10;
  Ok(Launch(Get("die"), {&wild}));
  EXPECT_EQ(driver_->StreamSynchronize(stream_), Code::kIllegalAddress);
  DeviceAddress at = 0;
  EXPECT_EQ(driver_->MemAlloc(&at, 4096), Code::kIllegalAddress);
  EXPECT_EQ(driver_->CtxSynchronize(), Code::kIllegalAddress);
  Context again = nullptr;
  EXPECT_EQ(driver_->DevicePrimaryCtxRetain(&again, 0), Code::kIllegalAddress);
}

TEST_F(FakeCuda, MisalignedAccessHasItsOwnErrorCode) {
  DeviceAddress odd = Mapped() + 2;
  Ok(Launch(Get("die"), {&odd}));
  EXPECT_EQ(driver_->StreamSynchronize(stream_), Code::kMisalignedAddress);
}

TEST_F(FakeCuda, InjectsFailureAtRequestedCall) {
  Script("fail cuMemAlloc 2 2; fail cuStreamCreateWithPriority * 999");
  DeviceAddress a = 0, b = 0;
  Ok(driver_->MemAlloc(&a, 4096));
  EXPECT_EQ(driver_->MemAlloc(&b, 4096), Code::kOutOfMemory);
  EXPECT_EQ(fake_cuda_live("allocation"), 1U);
  Ok(driver_->MemFree(a));
  Stream stream = nullptr;
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(driver_->StreamCreateWithPriority(&stream, kStreamNonBlocking, 0), Code::kUnknown);
  }
  Script("fail_late cuMemAlloc 1 999");
  EXPECT_EQ(driver_->MemAlloc(&a, 4096), Code::kUnknown);
  EXPECT_EQ(fake_cuda_live("allocation"), 1U);
  Ok(driver_->MemFree(a));
}

TEST_F(FakeCuda, StickyFailurePersists) {
  Script("fail cuMemGetInfo 1 719");
  std::size_t free = 0, total = 0;
  EXPECT_EQ(driver_->MemGetInfo(&free, &total), Code::kLaunchFailed);
  EXPECT_EQ(driver_->StreamQuery(stream_), Code::kLaunchFailed);
  // Calls without a context still work.
  int count = 0;
  Ok(driver_->DeviceGetCount(&count));
}

TEST_F(FakeCuda, InjectsFaultIntoRequestedKernel) {
  DeviceAddress at = Mapped();
  std::uint32_t step = 1;
  Script("fault 2 716");
  Ok(Launch(Get("add"), {&at, &step}));
  Ok(driver_->StreamSynchronize(stream_));
  Ok(Launch(Get("add"), {&at, &step}));
  EXPECT_EQ(driver_->StreamSynchronize(stream_), Code::kMisalignedAddress);
}

TEST_F(FakeCuda, ProhibitedComputeModeRejectsContext) {
  Script("attribute 20 2");
  Context context = nullptr;
  EXPECT_EQ(driver_->DevicePrimaryCtxRetain(&context, 0), Code::kDeviceUnavailable);
}

// ---- mistakes

TEST_F(FakeCuda, ReportsUseAfterDestruction) {
  const Stream stream = NewStream();
  Ok(driver_->StreamDestroy(stream));
  EXPECT_EQ(driver_->StreamQuery(stream), Code::kInvalidHandle);
  EXPECT_THAT(Mistakes(), HasSubstr("cuStreamQuery: stream 0x"));
  EXPECT_EQ(driver_->StreamDestroy(stream), Code::kInvalidHandle);
  EXPECT_THAT(Mistakes(), HasSubstr("cuStreamDestroy: stream 0x"));
  const Function add = Get("add");
  Ok(driver_->ModuleUnload(module_));
  std::size_t offset = 0;
  EXPECT_EQ(driver_->FuncGetParamInfo(add, 0, &offset, nullptr), Code::kInvalidHandle);
  EXPECT_THAT(Mistakes(), HasSubstr("function 0x"));
}

TEST_F(FakeCuda, ReportsCallsWithoutContext) {
  std::thread([&] { EXPECT_EQ(driver_->StreamQuery(stream_), Code::kInvalidContext); }).join();
  EXPECT_THAT(Mistakes(), HasSubstr("cuStreamQuery: no context is current on this thread"));
  EXPECT_EQ(driver_->StreamQuery(nullptr), Code::kInvalidHandle);
  EXPECT_THAT(Mistakes(), HasSubstr("on the default stream"));
}

TEST_F(FakeCuda, ReportsFreeingMemoryOfPendingWork) {
  const DeviceAddress at = Mapped();
  static std::uint32_t host[4];
  Ok(driver_->MemHostRegister(host, sizeof host, 0));
  Script("hold");
  Ok(driver_->MemcpyDtoHAsync(host, at, sizeof host, stream_));
  Ok(driver_->MemHostUnregister(host));
  EXPECT_THAT(Mistakes(), HasSubstr("cuMemHostUnregister: takes memory away that a pending "
                                    "cuMemcpyDtoHAsync uses"));
  Ok(Launch(Get("for_ever"), {}));
  Ok(driver_->ModuleUnload(module_));
  EXPECT_THAT(Mistakes(), HasSubstr("a kernel of the module is pending"));
}

TEST_F(FakeCuda, ReportsObjectsLeftInContext) {
  (void)NewStream();
  Ok(driver_->DevicePrimaryCtxRelease(0));
  EXPECT_THAT(Mistakes(), HasSubstr("the context ends with 2 streams in it"));
  EXPECT_EQ(driver_->CtxSynchronize(), Code::kContextIsDestroyed);
  EXPECT_THAT(Mistakes(), HasSubstr("the context that is current was destroyed"));
  EXPECT_EQ(driver_->DevicePrimaryCtxRelease(0), Code::kInvalidContext);
  EXPECT_THAT(Mistakes(), HasSubstr("not retained"));
}

TEST_F(FakeCuda, GreenContextsHaveMultiplesOfEightMultiprocessors) {
  Resource all, rest;
  Ok(driver_->DeviceGetDevResource(0, &all, ResourceType::kMultiprocessors));
  EXPECT_EQ(all.sm.multiprocessors, 132U);
  unsigned groups = 0;
  Ok(driver_->DevSmResourceSplitByCount(nullptr, &groups, &all, nullptr, 0, 8));
  EXPECT_EQ(groups, 16U);
  Resource part;
  groups = 1;
  Ok(driver_->DevSmResourceSplitByCount(&part, &groups, &all, &rest, 0, 50));
  EXPECT_EQ(part.sm.multiprocessors, 56U);
  EXPECT_EQ(rest.sm.multiprocessors, 76U);
  ResourceDescription description = nullptr;
  Ok(driver_->DevResourceGenerateDesc(&description, &part, 1));
  GreenContext green = nullptr;
  EXPECT_EQ(driver_->GreenCtxCreate(&green, description, 0, 0), Code::kInvalidValue);
  Ok(driver_->GreenCtxCreate(&green, description, 0, kGreenContextDefaultStream));
  Stream stream = nullptr;
  Ok(driver_->GreenCtxStreamCreate(&stream, green, kStreamNonBlocking, -1));
  DeviceAddress at = Mapped();
  std::uint32_t step = 2;
  Ok(driver_->MemsetD32Async(at, 1, 1, stream_));
  Ok(driver_->StreamSynchronize(stream_));
  Ok(Launch(Get("add"), {&at, &step}, 1, stream));
  Ok(driver_->StreamSynchronize(stream));
  EXPECT_EQ(Read(at, 1)[0], 3U);
  Ok(driver_->StreamDestroy(stream));
  Ok(driver_->GreenCtxDestroy(green));
  EXPECT_EQ(fake_cuda_live("green context"), 0U);
}

TEST_F(FakeCuda, ShowsDevicesSelectedByEnvironment) {
  fake_cuda_reset();
  Script("devices 3; uuid 2 MIG-0a0b0c0d-1111-2222-3333-444455556666");
  ::setenv("CUDA_VISIBLE_DEVICES", "MIG-0a0b0c0d-1111-2222-3333-444455556666", 1);
  Ok(driver_->Init(0));
  int count = 0;
  Ok(driver_->DeviceGetCount(&count));
  EXPECT_EQ(count, 1);
  char name[64];
  Ok(driver_->DeviceGetName(name, sizeof name, 0));
  EXPECT_THAT(name, HasSubstr("MIG"));
  Uuid uuid{};
  Ok(driver_->DeviceGetUuid(&uuid, 0));
  EXPECT_EQ(uuid.bytes[0], 0x0a);
  EXPECT_EQ(uuid.bytes[15], 0x66);
  EXPECT_EQ(driver_->DeviceGetCount(&count), Code::kSuccess);
  ::setenv("CUDA_VISIBLE_DEVICES", "nonsense", 1);
  EXPECT_EQ(driver_->Init(0), Code::kNoDevice);
  ::unsetenv("CUDA_VISIBLE_DEVICES");
}

TEST_F(FakeCuda, CallsAreLogged) {
  fake_cuda_forget_calls();
  EXPECT_EQ(driver_->StreamQuery(stream_), Code::kSuccess);
  EXPECT_EQ(fake_cuda_calls(nullptr), 1U);
  fake_cuda_call call;
  ASSERT_EQ(fake_cuda_call_at(0, &call), 1);
  EXPECT_STREQ(call.name, "cuStreamQuery");
  EXPECT_EQ(call.result, 0);
  EXPECT_EQ(call.handle, reinterpret_cast<std::uintptr_t>(stream_));
  EXPECT_EQ(fake_cuda_call_at(1, &call), 0);
  EXPECT_THAT(fake_cuda_script("frobnicate 3"), HasSubstr("not understood: frobnicate 3"));
}

// Runs in a separate process, because the test is about its exit code.
TEST(FakeCudaDeathTest, ProcessThatLeavesObjectsBehindFails) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const auto driver = Driver::Load();
        Context context = nullptr;
        (void)(*driver)->DevicePrimaryCtxRetain(&context, 0);
        std::exit(0);
      },
      ::testing::ExitedWithCode(FAKE_CUDA_EXIT_CODE), "1 context left at the end of the process");
  EXPECT_EXIT(
      {
        const auto driver = Driver::Load();
        Context context = nullptr;
        (void)(*driver)->DevicePrimaryCtxRetain(&context, 0);
        (void)(*driver)->DevicePrimaryCtxRelease(0);
        std::exit(0);
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace gpushared::device::cuda
