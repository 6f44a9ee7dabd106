// SPDX-License-Identifier: Apache-2.0
// Accounting of gate mode, hook by hook, with functions of this file as the driver.
#include <stdlib.h>

#include <algorithm>
#include <memory>

#include <gtest/gtest.h>

#include "client_lib/drop_in/gate/driver_functions.h"
#include "client_lib/drop_in/gate/hooks.h"
#include "client_lib/drop_in/gate/memory.h"

namespace gpushared::drop_in::gate {
namespace {

constexpr std::uint64_t kLimit = 1 << 20;

// What the driver does next.
// NOLINTBEGIN(cppcoreguidelines-avoid-non-const-global-variables): functions without context use
// it.
Code answer = Code::kSuccess;
std::uint64_t next = 0x1000;
std::size_t driver_pitch = 512;
ContextHandle current_context = nullptr;
std::uint64_t reserved = 0, used = 0;
Code pool_answer = Code::kSuccess;
// NOLINTEND(cppcoreguidelines-avoid-non-const-global-variables)

template <typename Handle>
Handle HandleAt(std::uintptr_t number) {
  return reinterpret_cast<Handle>(number);
}

Code Allocate(DevicePointer* address, std::size_t) {
  if (answer == Code::kSuccess) *address = next;
  return answer;
}
Code AllocatePitch(DevicePointer* address, std::size_t* pitch, std::size_t, std::size_t, unsigned) {
  *address = next;
  *pitch = driver_pitch;
  return answer;
}
Code Free(DevicePointer) { return answer; }
Code CreateArray(ArrayHandle* array, const ArrayShape3d*) {
  *array = HandleAt<ArrayHandle>(next);
  return answer;
}
Code CreateFlatArray(ArrayHandle* array, const ArrayShape*) {
  *array = HandleAt<ArrayHandle>(next);
  return answer;
}
Code DestroyArray(ArrayHandle) { return answer; }
Code CreateMipmapped(MipmappedArrayHandle* array, const ArrayShape3d*, unsigned) {
  *array = HandleAt<MipmappedArrayHandle>(next);
  return answer;
}
Code DestroyMipmapped(MipmappedArrayHandle) { return answer; }
Code AllocateFromPool(DevicePointer* address, std::size_t bytes, PoolHandle, StreamHandle) {
  if (answer != Code::kSuccess) return answer;
  *address = next;
  used += bytes;
  reserved = std::max(reserved, used);
  return answer;
}
Code DestroyPool(PoolHandle) { return answer; }
Code CreatePhysical(std::uint64_t* handle, std::size_t, const AllocationProperties*,
                    std::uint64_t) {
  *handle = next;
  return answer;
}
Code Map(DevicePointer, std::size_t, std::size_t, std::uint64_t, std::uint64_t) { return answer; }
Code Unmap(DevicePointer, std::size_t) { return answer; }
Code Release(std::uint64_t) { return answer; }
Code Import(std::uint64_t* handle, void*, int) {
  *handle = next;
  return answer;
}
Code AddAllocationNode(GraphNodeHandle*, GraphHandle, const GraphNodeHandle*, std::size_t,
                       MemoryNodeParameters*) {
  return answer;
}
Code AddNode(GraphNodeHandle*, GraphHandle, const GraphNodeHandle*, std::size_t, NodeParameters*) {
  return answer;
}

// Initializes the gate for one GPU, without a server.
void InitializeOnce() {
  [[maybe_unused]] static const bool kIsDone = [] {
    const auto any = [](auto...) { return Code::kSuccess; };
    driver_functions = {.device_get_count =
                            [](int* count) {
                              *count = 1;
                              return Code::kSuccess;
                            },
                        .ctx_get_current = any,
                        .ctx_get_device = any,
                        .launch_host_function = any,
                        .event_create = any,
                        .event_record = any,
                        .event_query = any,
                        .event_elapsed = any,
                        .event_destroy = any};
    // NOLINTNEXTLINE(concurrency-mt-unsafe): no other thread runs.
    ::setenv("GPUSHARED_SOCKET", "/nonexistent/gpushared.sock", 1);
    EXPECT_EQ(Init([](unsigned) { return Code::kSuccess; }, 0), Code::kSuccess);
    driver_functions = {};
    return true;
  }();
}

class MemoryQuotaTest : public ::testing::Test {
 protected:
  MemoryQuotaTest() {
    InitializeOnce();
    answer = pool_answer = Code::kSuccess;
    reserved = used = 0;
    driver_functions.ctx_get_current = [](ContextHandle* context) {
      *context = current_context;
      return Code::kSuccess;
    };
    driver_functions.pool_get_attribute = [](PoolHandle, int attribute, void* value) {
      *static_cast<std::uint64_t*>(value) = attribute == 5 ? reserved : used;
      return pool_answer;
    };
    driver_functions.pool_trim = [](PoolHandle, std::size_t) {
      reserved = used;
      return Code::kSuccess;
    };
    quota_.SetLimit(0, kLimit, *use_);
    EXPECT_EQ(held(), 0U);
  }
  ~MemoryQuotaTest() override {
    EXPECT_EQ(held(), 0U) << "each test frees what it allocates";
    quota_.LiftLimit(0, *use_);
    driver_functions = before_;
  }

  std::uint64_t held() const { return use_->held_bytes.load(); }
  DevicePointer New(std::size_t bytes) {
    next += 0x1000;
    DevicePointer address = 0;
    EXPECT_EQ(MemAlloc(Allocate, &address, bytes), Code::kSuccess);
    return address;
  }
  // Creates and destroys an array, and returns the number of bytes charged for the array.
  std::uint64_t BytesOf(const ArrayShape3d& shape, unsigned levels) {
    MipmappedArrayHandle array = nullptr;
    EXPECT_EQ(MipmappedArrayCreate(CreateMipmapped, &array, &shape, levels), Code::kSuccess);
    const std::uint64_t bytes = held();
    EXPECT_EQ(MipmappedArrayDestroy(DestroyMipmapped, array), Code::kSuccess);
    return bytes;
  }

  MemoryQuota& quota_ = MemoryQuota::Get();
  const std::unique_ptr<ipc::GateUse> use_ = std::make_unique<ipc::GateUse>();
  const DriverFunctions before_ = driver_functions;
  const PoolHandle pool_ = HandleAt<PoolHandle>(0x700);
};

TEST_F(MemoryQuotaTest, HeldMemoryIsReportedToTheServer) {
  const DevicePointer one = New(1000), two = New(24);
  EXPECT_EQ(held(), 1024U);
  EXPECT_EQ(quota_.Left(0), kLimit - 1024);
  EXPECT_EQ(MemFree(Free, one), Code::kSuccess);
  EXPECT_EQ(held(), 24U);
  // The held bytes are reported to the next session at once.
  const auto next_use = std::make_unique<ipc::GateUse>();
  ipc::GateUse& later = *next_use;
  quota_.SetLimit(0, 10, later);
  EXPECT_EQ(later.held_bytes, 24U);
  EXPECT_EQ(quota_.Left(0), 0U) << "more is held than allowed";
  quota_.LiftLimit(0, *use_);
  EXPECT_EQ(quota_.GetLimit(0), 10U) << "the loss of an earlier session changes nothing";
  quota_.LiftLimit(0, later);
  EXPECT_EQ(quota_.Left(0), MemoryQuota::kNoLimit);
  EXPECT_EQ(MemFree(Free, two), Code::kSuccess);
  quota_.SetLimit(0, kLimit, *use_);
}

TEST_F(MemoryQuotaTest, FailedCallsChangeNothing) {
  const DevicePointer kept = New(1000);
  answer = Code::kInvalidValue;
  DevicePointer address = 7;
  EXPECT_EQ(MemAlloc(Allocate, &address, 1000), Code::kInvalidValue);
  EXPECT_EQ(MemFree(Free, kept), Code::kInvalidValue);
  EXPECT_EQ(held(), 1000U);
  answer = Code::kSuccess;
  EXPECT_EQ(MemFree(Free, kept), Code::kSuccess);
}

TEST_F(MemoryQuotaTest, SecondAllocationAtAnAddressReplacesTheFirst) {
  const DevicePointer first = New(1000);
  DevicePointer second = 0;
  EXPECT_EQ(MemAlloc(Allocate, &second, 10), Code::kSuccess);
  EXPECT_EQ(first, second);
  EXPECT_EQ(held(), 10U);
  EXPECT_EQ(MemFree(Free, second), Code::kSuccess);
}

TEST_F(MemoryQuotaTest, ChargesThePitchThatTheDriverReturns) {
  DevicePointer address = 0;
  std::size_t pitch = 0;
  EXPECT_EQ(MemAllocPitch(AllocatePitch, &address, &pitch, 513, kLimit / 1024 + 1, 4),
            Code::kOutOfMemory);
  driver_pitch = 4096;
  EXPECT_EQ(MemAllocPitch(AllocatePitch, &address, &pitch, 513, 10, 4), Code::kSuccess);
  EXPECT_EQ(held(), 40960U);
  EXPECT_EQ(MemFree(Free, address), Code::kSuccess);
  EXPECT_EQ(MemAllocPitch(AllocatePitch, &address, &pitch, ~std::size_t{0}, ~std::size_t{0}, 4),
            Code::kOutOfMemory);
}

TEST_F(MemoryQuotaTest, ArraysAreChargedWithTheirTexels) {
  constexpr int kFloat = 0x20, kHalf = 0x10, kBc1 = 0x91, kBc7 = 0x9d, kNv12 = 0xb0;
  EXPECT_EQ(BytesOf({.width = 10, .format = kFloat, .channels = 4}, 1), 160U);
  EXPECT_EQ(BytesOf({.width = 10, .height = 6, .format = kHalf, .channels = 2}, 1), 240U);
  EXPECT_EQ(BytesOf({.width = 64, .height = 64, .format = kBc1, .channels = 4}, 1), 2048U);
  EXPECT_EQ(BytesOf({.width = 64, .height = 64, .format = kBc7, .channels = 4}, 1), 4096U);
  EXPECT_EQ(BytesOf({.width = 64, .height = 64, .format = kNv12, .channels = 3}, 1), 6144U);
  EXPECT_EQ(BytesOf({.width = 8, .height = 4, .depth = 2, .format = kFloat, .channels = 1}, 4),
            4U * (64 + 8 + 2 + 1));
  EXPECT_EQ(BytesOf({.width = 8, .format = kFloat, .channels = 1}, 100), 4U * (8 + 4 + 2 + 1));
  EXPECT_EQ(BytesOf({.width = 8, .format = kFloat, .channels = 1}, 0), 4U * 8);
  EXPECT_EQ(
      BytesOf({.width = 8, .depth = 6, .format = kFloat, .channels = 1, .flags = kArrayLayered}, 2),
      4U * (48 + 24));
  EXPECT_EQ(
      BytesOf(
          {.width = 8192, .height = 8192, .format = kFloat, .channels = 1, .flags = kArraySparse},
          1),
      0U);
  next += 0x1000;
  const ArrayShape3d huge = {
      .width = ~std::size_t{0}, .height = 2, .format = kFloat, .channels = 4};
  const ArrayShape small = {.width = 16, .height = 16, .format = kFloat, .channels = 1};
  ArrayHandle array = nullptr;
  EXPECT_EQ(Array3dCreate(CreateArray, &array, &huge), Code::kOutOfMemory);
  EXPECT_EQ(ArrayCreate(CreateFlatArray, &array, &small), Code::kSuccess);
  EXPECT_EQ(held(), 1024U);
  EXPECT_EQ(ArrayDestroy(DestroyArray, array), Code::kSuccess);
}

TEST_F(MemoryQuotaTest, MemoryEndsWithItsContext) {
  const auto primary = HandleAt<ContextHandle>(0x10), other = HandleAt<ContextHandle>(0x20);
  ContextHandle retained = nullptr;
  EXPECT_EQ(DevicePrimaryCtxRetain(
                [](ContextHandle* context, int) {
                  *context = HandleAt<ContextHandle>(0x10);
                  return Code::kSuccess;
                },
                &retained, 3),
            Code::kSuccess);
  current_context = primary;
  New(100);
  current_context = other;
  New(20);
  driver_functions.primary_get_state = [](int, unsigned*, int* is_active) {
    *is_active = 0;
    return Code::kSuccess;
  };
  const auto end = [](int) { return Code::kSuccess; };
  EXPECT_EQ(DevicePrimaryCtxEnd(end, 2), Code::kSuccess);
  EXPECT_EQ(held(), 120U) << "another device";
  EXPECT_EQ(DevicePrimaryCtxEnd(end, 3), Code::kSuccess);
  EXPECT_EQ(held(), 20U);
  EXPECT_EQ(CtxDestroy([](ContextHandle) { return Code::kSuccess; }, other), Code::kSuccess);
  EXPECT_EQ(held(), 0U);
}

TEST_F(MemoryQuotaTest, PhysicalMemoryLivesWhileItIsMapped) {
  const AllocationProperties properties;
  std::uint64_t handle = 0;
  EXPECT_EQ(MemCreate(CreatePhysical, &handle, 4096, &properties, 0), Code::kSuccess);
  // A program that imports its own memory gets a reference.
  EXPECT_EQ(MemImportFromShareableHandle(Import, &handle, nullptr, 1), Code::kSuccess);
  EXPECT_EQ(MemMap(Map, 0x10000, 2048, 0, handle, 0), Code::kSuccess);
  EXPECT_EQ(MemMap(Map, 0x10800, 2048, 2048, handle, 0), Code::kSuccess);
  EXPECT_EQ(MemRelease(Release, handle), Code::kSuccess);
  EXPECT_EQ(MemRelease(Release, handle), Code::kSuccess);
  EXPECT_EQ(held(), 4096U);
  answer = Code::kInvalidValue;
  EXPECT_EQ(MemUnmap(Unmap, 0x10000, 4096), Code::kInvalidValue);
  answer = Code::kSuccess;
  EXPECT_EQ(MemUnmap(Unmap, 0x10000, 2048), Code::kSuccess);
  EXPECT_EQ(held(), 4096U);
  EXPECT_EQ(MemUnmap(Unmap, 0x10800, 2048), Code::kSuccess);
  EXPECT_EQ(held(), 0U);
  // Memory that was imported from another process can be released, too.
  next += 0x1000;
  EXPECT_EQ(MemImportFromShareableHandle(Import, &handle, nullptr, 1), Code::kSuccess);
  EXPECT_EQ(MemRelease(Release, handle), Code::kSuccess);
}

TEST_F(MemoryQuotaTest, FailedReleaseKeepsTheReference) {
  const AllocationProperties properties;
  std::uint64_t handle = 0;
  EXPECT_EQ(MemCreate(CreatePhysical, &handle, 4096, &properties, 0), Code::kSuccess);
  answer = Code::kInvalidValue;
  EXPECT_EQ(MemRelease(Release, handle), Code::kInvalidValue);
  EXPECT_EQ(held(), 4096U);
  answer = Code::kSuccess;
  EXPECT_EQ(MemRelease(Release, handle), Code::kSuccess);
}

TEST_F(MemoryQuotaTest, PoolIsChargedWithWhatItReserves) {
  next += 0x1000;
  DevicePointer address = 0;
  reserved = 1000;
  EXPECT_EQ(MemAllocFromPoolAsync(AllocateFromPool, &address, 400, pool_, nullptr), Code::kSuccess);
  EXPECT_EQ(held(), 1000U);
  // The driver may reserve more than it needs.
  reserved = 5000;
  EXPECT_EQ(MemAllocFromPoolAsync(AllocateFromPool, &address, 100, pool_, nullptr), Code::kSuccess);
  EXPECT_EQ(held(), 5000U);
  answer = Code::kInvalidValue;
  EXPECT_EQ(MemAllocFromPoolAsync(AllocateFromPool, &address, 6000, pool_, nullptr),
            Code::kInvalidValue);
  EXPECT_EQ(held(), 5000U);
  EXPECT_EQ(MemPoolDestroy(DestroyPool, pool_), Code::kInvalidValue);
  EXPECT_EQ(held(), 5000U);
  answer = Code::kSuccess;
  EXPECT_EQ(MemAllocFromPoolAsync(AllocateFromPool, &address, kLimit - 499, pool_, nullptr),
            Code::kOutOfMemory);
  EXPECT_EQ(reserved, 500U) << "trimmed before the rejection";
  EXPECT_EQ(MemPoolDestroy(DestroyPool, pool_), Code::kSuccess);
  EXPECT_EQ(held(), 100U) << "of the last allocation at this address";
  EXPECT_EQ(MemFree(Free, address), Code::kSuccess);
}

TEST_F(MemoryQuotaTest, AllocationsAreChargedIfThePoolsSizeIsUnknown) {
  next += 0x1000;
  pool_answer = Code::kInvalidValue;
  DevicePointer address = 0;
  EXPECT_EQ(MemAllocFromPoolAsync(AllocateFromPool, &address, kLimit + 1, pool_, nullptr),
            Code::kOutOfMemory);
  EXPECT_EQ(MemAllocFromPoolAsync(AllocateFromPool, &address, kLimit, pool_, nullptr),
            Code::kSuccess);
  EXPECT_EQ(held(), kLimit);
  EXPECT_EQ(MemFreeAsync([](DevicePointer, StreamHandle) { return answer; }, address, nullptr),
            Code::kSuccess);
}

TEST_F(MemoryQuotaTest, NodeThatCanNeverRunIsRejected) {
  const DevicePointer kept = New(kLimit / 2);
  MemoryNodeParameters parameters = {};
  parameters.pool.location = {};
  parameters.bytes = kLimit / 2;
  EXPECT_EQ(GraphAddMemAllocNode(AddAllocationNode, nullptr, nullptr, nullptr, 0, &parameters),
            Code::kSuccess);
  EXPECT_EQ(held(), kLimit / 2) << "nodes are not counted";
  ++parameters.bytes;
  EXPECT_EQ(GraphAddMemAllocNode(AddAllocationNode, nullptr, nullptr, nullptr, 0, &parameters),
            Code::kOutOfMemory);
  NodeParameters node = {};
  node.type = 10;
  node.allocation = parameters;
  EXPECT_EQ(GraphAddNode(AddNode, nullptr, nullptr, nullptr, 0, &node), Code::kOutOfMemory);
  node.type = 11;
  EXPECT_EQ(GraphAddNode(AddNode, nullptr, nullptr, nullptr, 0, &node), Code::kSuccess);
  EXPECT_EQ(MemFree(Free, kept), Code::kSuccess);
}

}  // namespace
}  // namespace gpushared::drop_in::gate
