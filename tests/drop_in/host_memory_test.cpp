// SPDX-License-Identifier: Apache-2.0
// Memory that both the program and kernels can access: page-locked, registered, mapped and managed
// memory, and pools of host memory.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include <cuda.h>
#include <gtest/gtest.h>

#include "tests/drop_in/server_case.h"

namespace gpushared {
namespace {

using testing::All;
using testing::kBytes;
using testing::kCount;

// mirrored_memory_test covers accesses while many threads of the program run.
class HostMemoryTest : public testing::DropInServerCase {
 protected:
  static CUmemorytype GetType(CUdeviceptr address) {
    CUmemorytype type{};
    EXPECT_EQ(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address),
              CUDA_SUCCESS);
    return type;
  }
};

TEST_F(HostMemoryTest, PageLockedMemoryIsUpToDateAfterSynchronousCopy) {
  UsePrimary();
  const CUdeviceptr numbers = Numbers();
  void* host = nullptr;
  ASSERT_EQ(cuMemAllocHost(&host, kBytes), CUDA_SUCCESS);
  ASSERT_EQ(AddOne(numbers, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(cuMemcpyDtoH(host, numbers, kBytes), CUDA_SUCCESS);
  EXPECT_EQ(std::memcmp(host, All(1).data(), kBytes), 0);
  EXPECT_EQ(GetType(numbers), CU_MEMORYTYPE_DEVICE);
  ASSERT_EQ(AddOne(reinterpret_cast<CUdeviceptr>(host), nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFreeHost(host), CUDA_SUCCESS) << "while work uses the memory";
  EXPECT_EQ(cuMemFreeHost(host), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
}

TEST_F(HostMemoryTest, ManagedMemoryIsZeroAndFreedAsDeviceMemory) {
  UsePrimary();
  CUdeviceptr numbers = 0;
  EXPECT_EQ(cuMemAllocManaged(&numbers, kBytes, 7), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(cuMemAllocManaged(&numbers, kBytes, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
  auto* const seen = reinterpret_cast<std::uint32_t*>(numbers);
  EXPECT_EQ(std::vector<std::uint32_t>(seen, seen + kCount), All(0));
  unsigned is_managed = 0;
  EXPECT_EQ(cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, numbers),
            CUDA_SUCCESS);
  EXPECT_EQ(is_managed, 1u);
  EXPECT_EQ(cuMemFreeHost(seen), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemFree(numbers), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFree(numbers), CUDA_ERROR_INVALID_VALUE);
}

// A program may poll for completion instead of waiting for it.
TEST_F(HostMemoryTest, ManagedMemoryIsUpToDateAfterSuccessfulQuery) {
  UsePrimary();
  CUdeviceptr numbers = 0;
  ASSERT_EQ(cuMemAllocManaged(&numbers, kBytes, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
  const auto* const seen = reinterpret_cast<const std::uint32_t*>(numbers);
  EXPECT_EQ(AddOne(numbers, nullptr), CUDA_SUCCESS);
  EXPECT_TRUE(testing::Eventually([] { return cuStreamQuery(nullptr) == CUDA_SUCCESS; }));
  EXPECT_EQ(seen[5], 1u);
  CUevent event = nullptr;
  ASSERT_EQ(cuEventCreate(&event, 0), CUDA_SUCCESS);
  EXPECT_EQ(AddOne(numbers, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuEventRecord(event, nullptr), CUDA_SUCCESS);
  EXPECT_TRUE(testing::Eventually([&] { return cuEventQuery(event) == CUDA_SUCCESS; }));
  EXPECT_EQ(seen[5], 2u);
}

TEST_F(HostMemoryTest, AllocatedMemoryReportsItsAttributes) {
  UsePrimary();
  void* host = nullptr;
  CUdeviceptr address = 0;
  for (const unsigned wanted : {0u, unsigned{CU_MEMHOSTALLOC_DEVICEMAP}}) {
    unsigned flags = 99;
    ASSERT_EQ(cuMemHostAlloc(&host, kBytes, wanted), CUDA_SUCCESS);
    ASSERT_EQ(cuMemHostGetDevicePointer(&address, host, 0), CUDA_SUCCESS);
    EXPECT_EQ(address, reinterpret_cast<CUdeviceptr>(host)) << "with unified addressing";
    EXPECT_EQ(cuMemHostGetFlags(&flags, host), CUDA_SUCCESS);
    EXPECT_EQ(flags, wanted);
    EXPECT_EQ(cuMemFree(address), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemFreeHost(host), CUDA_SUCCESS);
  }
}

// According to CUDA, with unified addressing an address of page-locked, mapped or managed memory is
// valid in every call that takes a device address.
TEST_F(HostMemoryTest, CopiesAndFillsAcceptAllKindsAsDeviceMemory) {
  UsePrimary();
  const CUdeviceptr device = Numbers();
  void* locked = nullptr;
  void* mapped = nullptr;
  CUdeviceptr managed = 0;
  ASSERT_EQ(cuMemAllocHost(&locked, kBytes), CUDA_SUCCESS);
  ASSERT_EQ(cuMemHostAlloc(&mapped, kBytes, CU_MEMHOSTALLOC_DEVICEMAP), CUDA_SUCCESS);
  ASSERT_EQ(cuMemAllocManaged(&managed, kBytes, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
  for (void* const memory : {locked, mapped, reinterpret_cast<void*>(managed)}) {
    const auto address = reinterpret_cast<CUdeviceptr>(memory);
    auto* const bytes = static_cast<std::uint8_t*>(memory);
    CUdeviceptr found = 0;
    EXPECT_EQ(cuPointerGetAttribute(&found, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, address + 4),
              CUDA_SUCCESS);
    EXPECT_EQ(found, address + 4);
    EXPECT_EQ(GetType(address), address == managed ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST);
    std::memset(bytes, 1, kBytes);
    EXPECT_EQ(cuMemsetD8(address, 2, 64), CUDA_SUCCESS);
    EXPECT_EQ(bytes[63], 2);
    EXPECT_EQ(bytes[64], 1);
    EXPECT_EQ(cuMemsetD32(address + 8, 0x07060504, 2), CUDA_SUCCESS);
    EXPECT_EQ(bytes[8], 4);
    EXPECT_EQ(bytes[15], 7);
    EXPECT_EQ(bytes[16], 2);
    EXPECT_EQ(cuMemsetD2D8(address, 100, 5, 10, 3), CUDA_SUCCESS);
    EXPECT_EQ(bytes[209], 5);
    EXPECT_EQ(bytes[210], 1);
    EXPECT_EQ(cuMemsetD8(device, 8, kBytes), CUDA_SUCCESS);
    EXPECT_EQ(cuMemcpyDtoD(address, device, 64), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
    EXPECT_EQ(bytes[63], 8);
    std::memset(bytes, 9, kBytes);
    EXPECT_EQ(cuMemcpyDtoD(device, address, kBytes), CUDA_SUCCESS);
    EXPECT_EQ(Read(device)[kCount - 1], 0x09090909u);
    const std::uint32_t number = 77;
    EXPECT_EQ(cuMemcpyHtoD(address, &number, sizeof number), CUDA_SUCCESS);
    EXPECT_EQ(bytes[0], 77);
    std::uint32_t read = 0;
    EXPECT_EQ(cuMemcpyDtoH(&read, address, sizeof read), CUDA_SUCCESS);
    EXPECT_EQ(read, 77u);
    EXPECT_EQ(cuMemcpyPeer(address + 8, context_, address, context_, 4), CUDA_SUCCESS);
    EXPECT_EQ(bytes[8], 77);
    EXPECT_EQ(cuMemsetD8(address, 1, kBytes + 1), CUDA_ERROR_INVALID_VALUE);
    // A fill comes after an earlier kernel that writes to the same address.
    EXPECT_EQ(AddOne(address, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(cuMemsetD32Async(address, 5, 1, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(AddOne(address, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
    EXPECT_EQ(bytes[0], 6);
    EXPECT_EQ(bytes[8], 79);
  }
}

TEST_F(HostMemoryTest, RegisteredMemoryMayStartAtAnyByte) {
  UsePrimary();
  std::vector<std::uint32_t> own(2 * kCount, 20);
  std::uint32_t* const part = &own[4];  // Not at the start of a page.
  CUdeviceptr address = 0, again = 0;
  ASSERT_EQ(cuMemHostRegister(part, kBytes, CU_MEMHOSTREGISTER_DEVICEMAP), CUDA_SUCCESS);
  ASSERT_EQ(cuMemHostGetDevicePointer(&address, part, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuMemHostGetDevicePointer(&again, part + 5, 0), CUDA_SUCCESS);
  EXPECT_EQ(again, address + 20);
  unsigned flags = 0;
  void* host = nullptr;
  EXPECT_EQ(cuMemHostGetFlags(&flags, part), CUDA_SUCCESS);
  EXPECT_EQ(flags, unsigned{CU_MEMHOSTREGISTER_DEVICEMAP});
  EXPECT_EQ(GetType(address), CU_MEMORYTYPE_HOST);
  EXPECT_EQ(cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, again), CUDA_SUCCESS);
  EXPECT_EQ(host, part + 5);
  // A copy from the host address reads what earlier kernels have written.
  part[3] = 10;
  EXPECT_EQ(AddOne(address, nullptr), CUDA_SUCCESS);
  const CUdeviceptr numbers = Numbers();
  EXPECT_EQ(cuMemcpyHtoDAsync(numbers, part, kBytes, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(Read(numbers)[3], 11u);
  EXPECT_EQ(own[3], 20u) << "neighbouring bytes must not change";
  EXPECT_EQ(own[4 + kCount], 20u);
  EXPECT_EQ(cuMemFree(address), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemHostUnregister(part), CUDA_SUCCESS);
  EXPECT_EQ(part[3], 11u);
  EXPECT_EQ(cuMemcpyDtoH(part, address, 4), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(cuMemHostRegister(part, kBytes, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuMemHostGetDevicePointer(&address, part, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(HostMemoryTest, ProgramAndKernelsAccessPools) {
  UsePrimary();
  CUmemPoolProps properties = {};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_HOST;
  CUmemoryPool pool = nullptr, usual = nullptr, found = nullptr;
  ASSERT_EQ(cuMemPoolCreate(&pool, &properties), CUDA_SUCCESS);
  ASSERT_EQ(cuMemGetDefaultMemPool(&usual, &properties.location, properties.allocType),
            CUDA_SUCCESS);
  EXPECT_EQ(cuMemPoolDestroy(usual), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(cuMemSetMemPool(&properties.location, properties.allocType, pool), CUDA_SUCCESS);
  ASSERT_EQ(cuMemGetMemPool(&found, &properties.location, properties.allocType), CUDA_SUCCESS);
  EXPECT_EQ(found, pool);
  EXPECT_EQ(cuDeviceSetMemPool(0, pool), CUDA_ERROR_INVALID_VALUE)
      << "a host pool cannot be a device's pool";

  CUmemLocation device = {};
  device.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemAccess_flags access{};
  EXPECT_EQ(cuMemPoolGetAccess(&access, pool, &properties.location), CUDA_SUCCESS);
  EXPECT_EQ(access, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  const CUmemAccessDesc wanted = {device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  EXPECT_EQ(cuMemPoolSetAccess(pool, &wanted, 1), CUDA_SUCCESS);
  EXPECT_EQ(cuMemPoolGetAccess(&access, pool, &device), CUDA_SUCCESS);
  EXPECT_EQ(access, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);

  CUdeviceptr address = 0, again = 0;
  const CUstream stream = NewStream();
  ASSERT_EQ(cuMemAllocFromPoolAsync(&address, kBytes, pool, stream), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
  auto* const numbers = reinterpret_cast<std::uint32_t*>(address);
  std::fill_n(numbers, kCount, 4u);
  ASSERT_EQ(AddOne(address, stream), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(std::vector<std::uint32_t>(numbers, numbers + kCount), All(5));
  EXPECT_EQ(GetType(address), CU_MEMORYTYPE_HOST);
  EXPECT_EQ(cuPointerGetAttribute(&found, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, address),
            CUDA_SUCCESS);
  EXPECT_EQ(found, pool);

  std::uint64_t used = 0;
  ASSERT_EQ(cuMemFreeAsync(address, stream), CUDA_SUCCESS);
  EXPECT_EQ(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used), CUDA_SUCCESS);
  EXPECT_EQ(used, 0u);
  ASSERT_EQ(cuMemAllocFromPoolAsync(&again, kBytes, pool, stream), CUDA_SUCCESS);
  EXPECT_EQ(again, address) << "the same stream reuses the memory at once";
  ASSERT_EQ(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  CUgraph graph = nullptr;
  EXPECT_EQ(cuMemAllocFromPoolAsync(&address, kBytes, pool, stream), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
  EXPECT_EQ(cuMemPoolDestroy(pool), CUDA_SUCCESS);
  EXPECT_EQ(cuMemGetMemPool(&found, &properties.location, properties.allocType), CUDA_SUCCESS);
  EXPECT_EQ(found, usual);
  reinterpret_cast<std::uint32_t*>(again)[1] = 7;  // The allocation outlives its pool.
  EXPECT_EQ(cuMemFreeAsync(again, stream), CUDA_SUCCESS);

  properties.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
  EXPECT_EQ(cuMemPoolCreate(&pool, &properties), CUDA_ERROR_NOT_SUPPORTED);
}

}  // namespace
}  // namespace gpushared
