// SPDX-License-Identifier: Apache-2.0
// The memory of a CUDA device: how the clients' memory grows and shrinks, what is zeroed when, how
// much is reserved, and local memory.

#include <array>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/server/device/cuda_device_fixture.h"

namespace gpushared::device::cuda {
namespace {

using ::testing::HasSubstr;
using Direction = CopyWork::Direction;

TEST_F(CudaDeviceTest, MapsLargeMemoryInFewPiecesAndShrinkRetainsLittle) {
  Start();
  auto space = gpu().CreateSpace({.quota_bytes = std::uint64_t{2} << 30});
  ASSERT_TRUE(space.ok()) << space.status().ToString();
  const std::uint64_t large = 400 * kMebibyte;
  ASSERT_EQ((*space)->Resize(large).value(), large);
  EXPECT_LT(fake_cuda_live("memory"), 150U);
  for (const std::uint64_t asked : {376 * kMebibyte, 195 * kMebibyte, 64 * kMebibyte}) {
    const std::uint64_t kept = (*space)->Resize(asked).value();
    EXPECT_GE(kept, asked);
    EXPECT_LE(kept, asked + asked / 16 + 2 * kMebibyte);
  }
  EXPECT_EQ((*space)->Resize(0).value(), 0U);
  EXPECT_EQ(fake_cuda_memory_used(), 0U);
}

// Memory is zeroed in pieces that the GPU zeroes in 100 µs, because a larger piece would delay
// urgent work.
TEST_F(CudaDeviceTest, ZeroesMemoryInPiecesThatFitGpusBandwidth) {
  struct Case {
    const char* gpu;
    std::size_t fills;
  };
  for (const auto& [memory, fills] :
       {Case{"attribute 36 3201000", 1}, Case{"attribute 36 50000; attribute 37 64", 8},
        Case{"attribute 36 0", 1}, Case{"attribute 37 -1", 1}}) {
    SCOPED_TRACE(memory);
    device_.reset();
    fake_cuda_reset();
    Script(memory);
    Start();
    auto space = gpu().CreateSpace({.quota_bytes = 8 * kMebibyte});
    ASSERT_TRUE(space.ok()) << space.status().ToString();
    fake_cuda_forget_calls();
    ASSERT_EQ((*space)->Resize(8 * kMebibyte).value(), 8 * kMebibyte);
    EXPECT_EQ(fake_cuda_calls("cuMemsetD8Async"), fills);
    std::vector<std::byte> host(8 * kMebibyte, std::byte{1});
    const Tenant tenant{.space = *std::move(space), .module = nullptr};
    EXPECT_TRUE(Await(Copy(tenant, Direction::kDeviceToHost, host, 0)).status.ok());
    EXPECT_TRUE(host == std::vector<std::byte>(host.size()));
  }
}

// Access to memory is set in large portions, and memory is unmapped in one call, because each such
// call may wait for running work on the GPU.
TEST_F(CudaDeviceTest, SetsAccessInPortionsAndUnmapsAtOnce) {
  Start();  // The device zeroes 256 MiB per fill.
  const std::uint64_t bytes = 512 * kMebibyte;
  auto space = gpu().CreateSpace({.quota_bytes = bytes});
  ASSERT_TRUE(space.ok()) << space.status().ToString();
  const Tenant tenant{.space = *std::move(space), .module = nullptr};
  fake_cuda_forget_calls();
  ASSERT_EQ(tenant.space->Resize(bytes).value(), bytes);
  EXPECT_EQ(fake_cuda_calls("cuMemCreate"), 80U);
  EXPECT_EQ(fake_cuda_calls("cuMemMap"), 80U);
  for (const char* call : {"cuMemSetAccess", "cuMemsetD8Async", "cuStreamSynchronize"}) {
    EXPECT_EQ(fake_cuda_calls(call), 2U) << call;
  }
  for (const std::uint64_t at : {std::uint64_t{0}, bytes / 2 - 2, bytes - 4}) {
    std::vector<std::byte> host(4, std::byte{1});
    EXPECT_TRUE(Await(Copy(tenant, Direction::kDeviceToHost, host, at)).status.ok());
    EXPECT_EQ(host, std::vector<std::byte>(host.size())) << at;
  }
  fake_cuda_forget_calls();
  ASSERT_EQ(tenant.space->Resize(2 * kMebibyte).value(), 2 * kMebibyte);
  EXPECT_EQ(fake_cuda_calls("cuMemUnmap"), 1U);
  EXPECT_EQ(fake_cuda_calls("cuMemRelease"), 79U);
}

TEST_F(CudaDeviceTest, MemoryIsInaccessibleUntilItsPortionIsZeroed) {
  Script("attribute 36 50000; attribute 37 64");  // Portions of 1 MiB, smaller than a piece.
  Start();
  const Tenant tenant = NewTenant();
  fake_cuda_forget_calls();
  Script("hold");
  std::thread grows([&] { EXPECT_TRUE(tenant.space->Resize(12 * kMebibyte).ok()); });
  while (fake_cuda_calls("cuMemsetD8Async") == 0) std::this_thread::yield();
  EXPECT_EQ(fake_cuda_calls("cuMemMap"), 4U);
  EXPECT_EQ(fake_cuda_calls("cuMemSetAccess"), 1U);
  std::vector<std::byte> host(4, std::byte{1});
  const WorkId early = Copy(tenant, Direction::kDeviceToHost, host, 4 * kMebibyte);
  Script("go");
  grows.join();
  EXPECT_EQ(Await(early).status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(fake_cuda_calls("cuMemSetAccess"), 4U);
  EXPECT_TRUE(Await(Copy(tenant, Direction::kDeviceToHost, host, 4 * kMebibyte)).status.ok());
  EXPECT_EQ(host, std::vector<std::byte>(host.size()));
}

TEST_F(CudaDeviceTest, FailedGrowthReturnsAllItsMemory) {
  Script("attribute 36 50000; attribute 37 64");  // Each piece is zeroed in two portions.
  Start();
  const Tenant tenant = NewTenant();
  const std::uint64_t used = fake_cuda_memory_used();
  const std::size_t mapped = fake_cuda_live("mapping"), taken = fake_cuda_live("memory");
  for (const std::string call : {"cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemsetD8Async"}) {
    for (const std::string which : {"1", "2", "4"}) {
      SCOPED_TRACE(call + " " + which);
      Script("fail " + call + " " + which + " 2");
      const auto resized = tenant.space->Resize(12 * kMebibyte);
      EXPECT_EQ(resized.status().code(), StatusCode::kOutOfMemory);
      EXPECT_THAT(resized.status().message(), HasSubstr("8 MiB more asked"));
      EXPECT_THAT(resized.status().message(), HasSubstr(call));
      EXPECT_EQ(fake_cuda_memory_used(), used);
      EXPECT_EQ(fake_cuda_live("mapping"), mapped);
      EXPECT_EQ(fake_cuda_live("memory"), taken);
    }
  }
}

TEST_F(CudaDeviceTest, ShrinkRejectedByDriverIsRetriedByNextOne) {
  Start();
  const Tenant tenant = NewTenant(8 * kMebibyte);
  const std::uint64_t used = fake_cuda_memory_used(), free = gpu().free_memory_bytes();
  Script("fail cuMemUnmap 1 2");
  EXPECT_THAT(tenant.space->Resize(2 * kMebibyte).status().message(), HasSubstr("cuMemUnmap"));
  EXPECT_EQ(fake_cuda_memory_used(), used);
  EXPECT_EQ(gpu().free_memory_bytes(), free);
  EXPECT_EQ(tenant.space->Resize(2 * kMebibyte).value(), 2 * kMebibyte);
  EXPECT_EQ(fake_cuda_memory_used(), used - 6 * kMebibyte);
}

TEST_F(CudaDeviceTest, ReservesGibibyteOfLargeGpuForDriver) {
  Script("memory 141G; local at_once");
  Start();
  const std::uint64_t shared = (std::uint64_t{140} << 30) - fake_cuda_memory_used();
  EXPECT_EQ(gpu().info().memory_bytes, shared);
  device_.reset();
  Start({.memory_bytes = std::uint64_t{1} << 40});
  EXPECT_EQ(gpu().info().memory_bytes, shared) << "however much is asked for";
}

// A GPU has only 128 TiB of addresses for all clients.
TEST_F(CudaDeviceTest, ReportsUsersOfAddressesWhenTheyRunOut) {
  Start();
  Script("fail cuMemAddressReserve 1 2");
  const auto space = gpu().CreateSpace({.quota_bytes = 512 * kMebibyte});
  EXPECT_EQ(space.status().code(), StatusCode::kOutOfMemory);
  EXPECT_THAT(
      space.status().message(),
      HasSubstr("address range rejected: a quota of 512 MiB takes 8196 MiB of addresses, and "
                "the clients of this GPU have left fewer (a smaller quota takes fewer): "));
}

// ---- local memory

std::string PtxWithLocalBytes(std::uint32_t bytes) {
  return ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry small() { ret; }\n"
         ".visible .entry frame()\n{\n  .local .align 8 .b8 own[" +
         std::to_string(bytes) + "];\n  ret;\n}\n";
}

// At the launch of such a kernel, the driver would stop the GPU to enlarge local memory, on the
// thread that submits all launches.
TEST_F(CudaDeviceTest, RejectsKernelWithTooLargeFrameByName) {
  Start();
  const Tenant tenant = NewTenant();
  const auto launch = [&](const device::Module& module, std::string_view kernel) {
    LaunchWork work;
    work.id = ++last_id_;
    work.space = tenant.space.get();
    work.stream = 1;
    work.module = &module;
    work.kernel = KernelNamed(module, kernel);
    gpu().Submit(work);
    return Await(work.id).status;
  };
  const auto fits = Load(*tenant.space, PtxWithLocalBytes(4096));
  ASSERT_TRUE(fits.ok()) << fits.status().ToString();
  EXPECT_TRUE(launch(**fits, "frame").ok());
  const auto module = Load(*tenant.space, PtxWithLocalBytes(4112));
  ASSERT_TRUE(module.ok()) << module.status().ToString();
  const Status status = launch(**module, "frame");
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_EQ(
      status.message(),
      "launch rejected: kernel 'frame' needs 4112 bytes of local memory for each thread, at most "
      "4096 are allowed on this GPU (no option changes that)");
  EXPECT_TRUE(launch(**module, "small").ok());
}

TEST_F(CudaDeviceTest, LocalMemoryIs64thOfGpusWithinBounds) {
  for (const auto& [gpu_is, bytes] :
       {std::pair("memory 8G; sms 16", 4096), std::pair("memory 16G; sms 16", 8192),
        std::pair("memory 140G; sms 132", 8192), std::pair("memory 140G; sms 16", 16384),
        std::pair("memory 79G; sms 132", 8192), std::pair("memory 40G; sms 108", 4096)}) {
    SCOPED_TRACE(gpu_is);
    device_.reset();
    fake_cuda_reset();
    Script(gpu_is);
    Start();
    auto space = gpu().CreateSpace({.quota_bytes = kMebibyte});
    ASSERT_TRUE(space.ok());
    const auto module = Load(**space, PtxWithLocalBytes(20000));
    ASSERT_TRUE(module.ok()) << module.status().ToString();
    EXPECT_THAT((*module)->kernels()[KernelNamed(**module, "frame")].unsupported,
                HasSubstr(", at most " + std::to_string(bytes) + " are allowed"));
  }
}

// 132 multiprocessors of 2048 threads, 8 KiB each, of which the driver owns 1 KiB from the start.
constexpr std::uint64_t kLocalBytes = std::uint64_t{132} * 2048 * (8192 - 1024);

TEST_F(CudaDeviceTest, ReservesLocalMemoryThatDriverHasNotAllocated) {
  constexpr std::uint64_t kGibibyte = std::uint64_t{1} << 30;
  Script("memory 80G; local at_once");
  Start();
  const std::uint64_t free = 80 * kGibibyte - fake_cuda_memory_used();
  EXPECT_EQ(fake_cuda_memory_used(), std::uint64_t{132} * 2048 * 8192);
  EXPECT_EQ(gpu().info().memory_bytes, free - kGibibyte);
  device_.reset();
  fake_cuda_reset();
  Script("memory 80G; local lazily");
  Start();
  EXPECT_EQ(fake_cuda_memory_used(), 0U);
  EXPECT_EQ(gpu().info().memory_bytes, 80 * kGibibyte - kGibibyte - kLocalBytes);
}

TEST_F(CudaDeviceTest, KernelWithLocalMemoryRunsOnFullGpu) {
  for (const std::string local : {"at_once", "lazily"}) {
    SCOPED_TRACE(local);
    device_.reset();
    fake_cuda_reset();
    Script("memory 80G; local " + local);
    Start();
    const auto space = gpu().CreateSpace({.quota_bytes = 16 * kMebibyte}).value();
    const auto module = Load(*space, PtxWithLocalBytes(4096)).value();
    // Leaves only the memory that the device reserves for the driver, as if clients had taken all
    // of the rest.
    const std::uint64_t kept = (std::uint64_t{80} << 30) - gpu().info().memory_bytes;
    Script("memory " + std::to_string(kept));
    LaunchWork work;
    work.id = ++last_id_;
    work.space = space.get();
    work.stream = 1;
    work.module = module.get();
    work.kernel = KernelNamed(*module, "frame");
    gpu().Submit(work);
    const Status status = Await(work.id).status;
    EXPECT_TRUE(status.ok()) << status.ToString();
  }
}

}  // namespace
}  // namespace gpushared::device::cuda
