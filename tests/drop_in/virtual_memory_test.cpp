// SPDX-License-Identifier: Apache-2.0
// Address ranges without memory, memory without addresses, and mappings between them.
#include <array>
#include <cstdint>

#include "tests/drop_in/server_case.h"

namespace gpushared::testing {
namespace {

constexpr std::size_t kStep = std::size_t{2} << 20;

class VirtualMemoryTest : public DropInServerCase {
 protected:
  VirtualMemoryTest() {
    UsePrimary();
    of_.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    of_.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  }
  CUdeviceptr Reserve(std::size_t bytes) {
    CUdeviceptr range = 0;
    EXPECT_EQ(cuMemAddressReserve(&range, bytes, 0, 0, 0), CUDA_SUCCESS);
    return range;
  }
  CUmemGenericAllocationHandle Create(std::size_t bytes) {
    CUmemGenericAllocationHandle handle = 0;
    EXPECT_EQ(cuMemCreate(&handle, bytes, &of_, 0), CUDA_SUCCESS);
    return handle;
  }
  CUresult SetAccess(CUdeviceptr at, std::size_t bytes,
                     CUmemAccess_flags access = CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
    const CUmemAccessDesc may{.location = of_.location, .flags = access};
    return cuMemSetAccess(at, bytes, &may, 1);
  }
  std::size_t Free() {
    std::size_t free = 0, total = 0;
    EXPECT_EQ(cuMemGetInfo(&free, &total), CUDA_SUCCESS);
    return free;
  }

  CUmemAllocationProp of_ = {};
};

TEST_F(VirtualMemoryTest, DeviceReportsSupport) {
  int has = 0;
  EXPECT_EQ(cuDeviceGetAttribute(&has, CU_DEVICE_ATTRIBUTE_VIRTUAL_ADDRESS_MANAGEMENT_SUPPORTED, 0),
            CUDA_SUCCESS);
  EXPECT_EQ(has, 1);
  std::size_t step = 0;
  for (const auto which :
       {CU_MEM_ALLOC_GRANULARITY_MINIMUM, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED}) {
    EXPECT_EQ(cuMemGetAllocationGranularity(&step, &of_, which), CUDA_SUCCESS);
    EXPECT_EQ(step, kStep);
  }
}

// PyTorch's expandable segments do this: one array spans several pieces of memory.
TEST_F(VirtualMemoryTest, ArrayGrowsInPlace) {
  const CUdeviceptr range = Reserve(64 * kStep);
  for (std::size_t i = 0; i < 3; ++i) {
    const CUmemGenericAllocationHandle handle = Create(kStep);
    ASSERT_EQ(cuMemMap(range + i * kStep, kStep, 0, handle, 0), CUDA_SUCCESS);
    ASSERT_EQ(SetAccess(range + i * kStep, kStep), CUDA_SUCCESS);
    ASSERT_EQ(cuMemRelease(handle), CUDA_SUCCESS) << "the mapping keeps the memory alive";
  }
  // One half of the array is in the first piece of memory, and the other half is in the second.
  const CUdeviceptr numbers = range + kStep - kBytes / 2;
  ASSERT_EQ(cuMemsetD32(numbers, 4, kCount), CUDA_SUCCESS);
  ASSERT_EQ(AddOne(numbers, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(Read(numbers), All(5));
  EXPECT_EQ(cuMemsetD8(range, 1, 3 * kStep), CUDA_SUCCESS);
  EXPECT_EQ(cuMemsetD8(range, 1, 3 * kStep + 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemUnmap(range + kStep, kStep), CUDA_SUCCESS);
  EXPECT_EQ(cuMemsetD8(range, 1, 2 * kStep), CUDA_ERROR_INVALID_VALUE) << "the range now has a gap";
  EXPECT_EQ(cuMemUnmap(range, kStep), CUDA_SUCCESS);
  EXPECT_EQ(cuMemUnmap(range + 2 * kStep, kStep), CUDA_SUCCESS);
  EXPECT_EQ(cuMemAddressFree(range, 64 * kStep), CUDA_SUCCESS);
}

// cuda-core's VirtualMemoryResource moves memory in this way if it cannot grow in place.
TEST_F(VirtualMemoryTest, MemoryMovesToOtherAddressesWithItsContents) {
  const CUdeviceptr old = Reserve(kStep), wider = Reserve(2 * kStep);
  ASSERT_EQ(cuMemMap(old, kStep, 0, Create(kStep), 0), CUDA_SUCCESS);
  ASSERT_EQ(SetAccess(old, kStep), CUDA_SUCCESS);
  ASSERT_EQ(cuMemsetD32(old, 9, kCount), CUDA_SUCCESS);
  CUmemGenericAllocationHandle handle = 0;
  ASSERT_EQ(cuMemRetainAllocationHandle(&handle, reinterpret_cast<void*>(old + 4)), CUDA_SUCCESS);
  ASSERT_EQ(cuMemUnmap(old, kStep), CUDA_SUCCESS);
  ASSERT_EQ(cuMemMap(wider, kStep, 0, handle, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuMemMap(wider + kStep, kStep, 0, Create(kStep), 0), CUDA_SUCCESS);
  ASSERT_EQ(SetAccess(wider, 2 * kStep), CUDA_SUCCESS);
  ASSERT_EQ(AddOne(wider, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(Read(wider), All(10));
}

TEST_F(VirtualMemoryTest, RejectsUseWithoutAccessRights) {
  const CUdeviceptr range = Reserve(2 * kStep);
  const CUmemGenericAllocationHandle handle = Create(kStep);
  EXPECT_EQ(cuMemsetD32(range, 1, 4), CUDA_ERROR_INVALID_VALUE) << "reserved only";
  ASSERT_EQ(cuMemMap(range, kStep, 0, handle, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuMemsetD32(range, 1, 4), CUDA_ERROR_INVALID_VALUE) << "mapped only";
  std::uint32_t word = 0;
  const auto host = reinterpret_cast<CUdeviceptr>(&word);
  EXPECT_EQ(cuMemcpy(host, range, 4), CUDA_ERROR_INVALID_VALUE)
      << "must not be taken for host memory";
  EXPECT_EQ(cuMemcpy(range + kStep, host, 4), CUDA_ERROR_INVALID_VALUE);
  unsigned long long access = 9;
  EXPECT_EQ(cuMemGetAccess(&access, &of_.location, range), CUDA_SUCCESS);
  EXPECT_EQ(access, 0u);
  EXPECT_EQ(SetAccess(range, kStep, CU_MEM_ACCESS_FLAGS_PROT_READ), CUDA_ERROR_NOT_SUPPORTED);
  ASSERT_EQ(SetAccess(range, kStep), CUDA_SUCCESS);
  EXPECT_EQ(cuMemGetAccess(&access, &of_.location, range), CUDA_SUCCESS);
  EXPECT_EQ(access, static_cast<unsigned>(CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
  EXPECT_EQ(cuMemsetD32(range, 1, 4), CUDA_SUCCESS);
  CUmemAccessDesc of_another{.location = of_.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_NONE};
  of_another.location.id = 7;
  EXPECT_EQ(cuMemSetAccess(range, kStep, &of_another, 1), CUDA_SUCCESS);
  EXPECT_EQ(cuMemsetD32(range, 1, 4), CUDA_SUCCESS)
      << "the call must not change this device's access";
  ASSERT_EQ(SetAccess(range, kStep, CU_MEM_ACCESS_FLAGS_PROT_NONE), CUDA_SUCCESS);
  EXPECT_EQ(cuMemsetD32(range, 1, 4), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(SetAccess(range + kStep, kStep), CUDA_ERROR_INVALID_VALUE) << "nothing is mapped there";
  // Kernels cannot access the range without access rights either.
  ASSERT_EQ(AddOne(range, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_F(VirtualMemoryTest, TwoMappingsOfAHandleShareMemory) {
  const CUdeviceptr range = Reserve(4 * kStep);
  const CUmemGenericAllocationHandle handle = Create(2 * kStep);
  ASSERT_EQ(cuMemMap(range, 2 * kStep, 0, handle, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuMemMap(range, 2 * kStep, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemMap(range + kStep, 2 * kStep, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(cuMemMap(range + 2 * kStep, 2 * kStep, 0, handle, 0), CUDA_SUCCESS);
  ASSERT_EQ(SetAccess(range, 4 * kStep), CUDA_SUCCESS);
  ASSERT_EQ(cuMemsetD32(range, 6, kCount), CUDA_SUCCESS);
  EXPECT_EQ(Read(range + 2 * kStep), All(6));
  ASSERT_EQ(cuMemUnmap(range, 2 * kStep), CUDA_SUCCESS);
  EXPECT_EQ(Read(range + 2 * kStep), All(6))
      << "unmapping the other address must not affect this one";
}

TEST_F(VirtualMemoryTest, RejectsInvalidSizesAndAddresses) {
  const CUdeviceptr range = Reserve(4 * kStep);
  const CUmemGenericAllocationHandle two = Create(2 * kStep);
  CUmemGenericAllocationHandle none = 0;
  CUdeviceptr nowhere = 0;
  EXPECT_EQ(cuMemCreate(&none, kStep + 1, &of_, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemCreate(&none, ~std::size_t{0}, &of_, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemCreate(&none, 0 - kStep, &of_, 0), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cuMemAddressReserve(&nowhere, kStep, 3, 0, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemAddressReserve(&nowhere, 0 - kStep, 0, range + kStep, 0),
            CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cuMemMap(range + 4096, 2 * kStep, 0, two, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemMap(range + 3 * kStep, 2 * kStep, 0, two, 0), CUDA_ERROR_INVALID_VALUE)
      << "half outside";
  EXPECT_EQ(cuMemMap(range, kStep, 0, two, 0), CUDA_ERROR_NOT_SUPPORTED)
      << "maps only half of the handle";
  EXPECT_EQ(cuMemMap(range, ~std::size_t{0}, 0, two, 0), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(cuMemMap(range, 2 * kStep, 0, two, 0), CUDA_SUCCESS);
  EXPECT_EQ(SetAccess(range, kStep), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(SetAccess(range, ~std::size_t{0}), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemUnmap(range, kStep), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemUnmap(range, ~std::size_t{0}), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemUnmap(range, 2 * kStep), CUDA_SUCCESS);
  EXPECT_EQ(cuMemUnmap(range, 2 * kStep), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(VirtualMemoryTest, ReservesElsewhereIfRequestedAddressIsTaken) {
  const CUdeviceptr range = Reserve(4 * kStep);
  for (const CUdeviceptr wanted : {range, range + kStep, range - kStep}) {
    CUdeviceptr got = 0;
    ASSERT_EQ(cuMemAddressReserve(&got, 2 * kStep, 0, wanted, 0), CUDA_SUCCESS);
    EXPECT_TRUE(got >= range + 4 * kStep || got + 2 * kStep <= range);
  }
}

// Mapping a handle of two chunks fails if only one slot is free, and must release that slot again.
TEST_F(VirtualMemoryTest, FailedMappingReleasesItsSlots) {
  constexpr std::size_t kPlaces = 256, kGibibyte = std::size_t{1} << 30;
  CUmemGenericAllocationHandle large = 0;
  if (cuMemCreate(&large, kGibibyte + kStep, &of_, 0) != CUDA_SUCCESS) {
    GTEST_SKIP() << "the device has less than 1 GiB";
  }
  const CUmemGenericAllocationHandle small = Create(kStep);
  const CUdeviceptr range = Reserve(kPlaces * kStep), wide = Reserve(kGibibyte + kStep);
  for (std::size_t i = 0; i < kPlaces; ++i) {
    ASSERT_EQ(cuMemMap(range + i * kStep, kStep, 0, small, 0), CUDA_SUCCESS);
  }
  ASSERT_EQ(SetAccess(range, (kPlaces - 1) * kStep), CUDA_SUCCESS);
  ASSERT_EQ(cuMemMap(wide, kGibibyte + kStep, 0, large, 0), CUDA_SUCCESS);
  EXPECT_EQ(SetAccess(wide, kGibibyte + kStep), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cuMemsetD32(wide, 1, 4), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(SetAccess(range + (kPlaces - 1) * kStep, kStep), CUDA_SUCCESS);
}

TEST_F(VirtualMemoryTest, FreesOnlyWholeUnmappedRanges) {
  const CUdeviceptr range = Reserve(4 * kStep);
  ASSERT_EQ(cuMemMap(range + kStep, kStep, 0, Create(kStep), 0), CUDA_SUCCESS);
  EXPECT_EQ(cuMemAddressFree(range, 4 * kStep), CUDA_ERROR_INVALID_VALUE) << "something is mapped";
  EXPECT_EQ(cuMemUnmap(range, 2 * kStep), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemUnmap(range + kStep, kStep), CUDA_SUCCESS);
  EXPECT_EQ(cuMemAddressFree(range, kStep), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemAddressFree(range, 4 * kStep), CUDA_SUCCESS);
  EXPECT_EQ(cuMemMap(range, kStep, 0, Create(kStep), 0), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(VirtualMemoryTest, HandlesUseMemoryButReservationsDoNot) {
  const std::size_t before = Free();
  CUdeviceptr range = 0, more = 0;
  std::size_t total = 0;
  ASSERT_EQ(cuDeviceTotalMem(&total, 0), CUDA_SUCCESS);
  // A range may be larger than the device's memory, and start at an address that the program
  // requests.
  const std::size_t large = (total + total / 8) / kStep * kStep;
  ASSERT_EQ(cuMemAddressReserve(&range, large, 0, 0, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuMemAddressReserve(&more, kStep, 0, range + large, 0), CUDA_SUCCESS);
  EXPECT_EQ(more, range + large);
  EXPECT_EQ(Free(), before);
  const CUmemGenericAllocationHandle handle = Create(8 * kStep);
  EXPECT_EQ(Free(), before - 8 * kStep);
  ASSERT_EQ(cuMemMap(range, 8 * kStep, 0, handle, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuMemRelease(handle), CUDA_SUCCESS);
  EXPECT_EQ(cuMemRelease(handle), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Free(), before - 8 * kStep) << "the mapping keeps the memory";
  ASSERT_EQ(cuMemUnmap(range, 8 * kStep), CUDA_SUCCESS);
  EXPECT_EQ(Free(), before);
  CUmemGenericAllocationHandle huge = 0;
  EXPECT_EQ(cuMemCreate(&huge, large, &of_, 0), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(Free(), before) << "partly allocated memory must be released";
}

TEST_F(VirtualMemoryTest, ReturnsPropertiesOfHandle) {
  const CUmemGenericAllocationHandle handle = Create(kStep);
  CUmemAllocationProp told = {};
  ASSERT_EQ(cuMemGetAllocationPropertiesFromHandle(&told, handle), CUDA_SUCCESS);
  EXPECT_EQ(told.type, of_.type);
  EXPECT_EQ(told.location.id, 0);
  int file = -1;
  EXPECT_EQ(
      cuMemExportToShareableHandle(&file, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
      CUDA_ERROR_NOT_SUPPORTED);
  of_.location.id = 7;
  CUmemGenericAllocationHandle none = 0;
  EXPECT_EQ(cuMemCreate(&none, kStep, &of_, 0), CUDA_ERROR_INVALID_DEVICE);
}

}  // namespace
}  // namespace gpushared::testing
