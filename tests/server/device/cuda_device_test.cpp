// SPDX-License-Identifier: Apache-2.0
// Tests the CUDA device beyond the rules for every device: order, bounds, groups, missing parts.

#include <stdlib.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "server/device/cuda/issue.h"
#include "server/device/cuda/stream_table.h"
#include "tests/server/device/cuda_device_fixture.h"

namespace gpushared::device::cuda {
namespace {

using ::testing::HasSubstr;
using Direction = CopyWork::Direction;

// ---- facts

TEST_F(CudaDeviceTest, ReportsGpusAttributes) {
  Script("memory 1G; sms 114");
  Start({.id = "cuda:3"});
  const DeviceInfo& info = gpu().info();
  EXPECT_EQ(info.name, "NVIDIA Fake H200");
  EXPECT_EQ(info.id, "cuda:3");
  EXPECT_EQ(info.kind, "cuda");
  EXPECT_EQ(info.pci_bus, "0000:10:00.0");
  EXPECT_EQ(info.multiprocessors, 114U);
  EXPECT_EQ(info.memory_bytes, 896 * kMebibyte) << "an eighth is the driver's";
  EXPECT_EQ(info.shared_bytes_per_block_max, 227U * 1024);
  EXPECT_EQ(info.block_max, (std::array<std::uint32_t, 3>{1024, 1024, 64}));
  EXPECT_EQ(info.preemption, Preemption::kBetweenCommands);
  EXPECT_TRUE(info.spinning_pays);
  EXPECT_FALSE(info.isolates_clients);
}

TEST_F(CudaDeviceTest, RejectsMissingGpuWithNumberOfGpus) {
  const auto device = Create({.id = "cuda:2", .ordinal = 2});
  EXPECT_EQ(device.status().code(), StatusCode::kNotFound);
  EXPECT_EQ(device.status().message(),
            "device cuda:2 rejected: there is no GPU 2, this process sees 1");
}

TEST_F(CudaDeviceTest, GpuWithoutVirtualMemoryIsRejected) {
  Script("missing cuMemMap");
  const auto device = Create();
  EXPECT_EQ(device.status().code(), StatusCode::kUnsupported);
  EXPECT_THAT(device.status().message(), HasSubstr("no virtual memory management"));
}

TEST_F(CudaDeviceTest, ReportsMissingDriverFeaturesOnce) {
  Script("missing cuGreenCtxCreate; missing cuMemHostRegister");
  std::vector<std::string> warnings;
  Start({.warn = [&](const std::string& text) { warnings.push_back(text); }});
  EXPECT_THAT(warnings,
              ::testing::UnorderedElementsAre(HasSubstr("cuda:0: green contexts"),
                                              HasSubstr("cuda:0: registration of host memory")));
}

TEST_F(CudaDeviceTest, CompletionByWritesRequiresStreamWriteCalls) {
  Script("attribute 122 0");
  const auto device = Create({.completion = CompletionKind::kWrites});
  EXPECT_EQ(device.status().code(), StatusCode::kUnsupported);
  EXPECT_THAT(device.status().message(), HasSubstr("use events"));
}

// ---- streams

TEST(CudaStreamTable, StreamKeepsItsChannelWhileItHasWorkWhateverItsPriority) {
  StreamTable table;
  const std::size_t channel = table.Enter(7, 0);
  EXPECT_EQ(StreamTable::GetLevel(channel), 0U);
  EXPECT_EQ(table.Enter(7, 2), channel);
  table.Leave(7);
  EXPECT_EQ(table.Enter(7, 2), channel);
  table.Leave(7);
  table.Leave(7);
  EXPECT_EQ(StreamTable::GetLevel(table.Enter(7, 2)), 2U);
}

TEST(CudaStreamTable, StreamsSpreadOverTheChannelsOfTheirPriority) {
  StreamTable table;
  for (const std::uint8_t priority : std::to_array<std::uint8_t>({0, 1, 2, 200})) {
    const std::size_t level = std::min<std::size_t>(priority, 2);
    std::map<std::size_t, int> streams;
    for (std::size_t i = 0; i < 2 * StreamTable::kChannels[level]; ++i) {
      const StreamKey stream = priority * 1000 + i;
      const std::size_t channel = table.Enter(stream, priority);
      EXPECT_EQ(StreamTable::GetLevel(channel), level);
      ++streams[channel];
    }
    EXPECT_EQ(streams.size(), StreamTable::kChannels[level]);
    for (const auto& [channel, count] : streams) EXPECT_EQ(count, 2) << channel;
    for (std::size_t i = 0; i < 2 * StreamTable::kChannels[level]; ++i) {
      table.Leave(priority * 1000 + i);
    }
  }
}

// More streams would share hardware queues, and urgent words could queue up after the work that
// they are to stop.
TEST_F(CudaDeviceTest, EveryStreamHasAConnectionToTheGpu) {
  Start();
  EXPECT_GT(fake_cuda_live("stream"), StreamTable::kChannelsTotal);
  EXPECT_LE(fake_cuda_live("stream"), StreamTable::kChannelsTotal + StreamTable::kOtherStreams);
  EXPECT_STREQ(std::getenv("CUDA_DEVICE_MAX_CONNECTIONS"), "32");
}

TEST_F(CudaDeviceTest, WarnsOperatorOfFewerConnectionsThanStreams) {
  std::vector<std::string> warnings;
  const auto warn = [&](const std::string& text) { warnings.push_back(text); };
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "8", 1);
  PrepareEnvironment();
  Start({.warn = warn});
  EXPECT_THAT(warnings, ::testing::ElementsAre(HasSubstr(
                            "cuda:0: CUDA_DEVICE_MAX_CONNECTIONS is 8, 32 gives every stream")));
  warnings.clear();
  ::unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
  device_.reset();
  Start({.warn = warn});
  EXPECT_THAT(warnings, ::testing::ElementsAre(HasSubstr("is not set, 32 gives every stream")));
  warnings.clear();
  PrepareEnvironment();
  device_.reset();
  Start({.warn = warn});
  EXPECT_THAT(warnings, ::testing::IsEmpty());
}

TEST_F(CudaDeviceTest, MoreUrgentWorkRunsFirst) {
  Start();
  const Tenant tenant = NewTenant();
  Script("kernels 5; hold");
  std::vector<WorkId> expected(3);
  expected[2] = Store(tenant, tenant.At(0), 1, 0);
  expected[1] = Store(tenant, tenant.At(0), 2, 1);
  expected[0] = Store(tenant, tenant.At(0), 3, 2);
  Script("go");
  for (const WorkId id : expected) EXPECT_TRUE(Await(id).status.ok());
  for (std::size_t i = 1; i < expected.size(); ++i) {
    EXPECT_LE(Await(expected[i - 1]).ended, Await(expected[i]).ended);
  }
}

TEST_F(CudaDeviceTest, LimitsWorkOfStreamInDriver) {
  Start();
  const Tenant tenant = NewTenant();
  Script("hold");
  std::vector<WorkId> works;
  for (int i = 0; i < 600; ++i) works.push_back(Store(tenant, tenant.At(4 * (i % 64)), 1));
  EXPECT_FALSE(IsDone(works.front()));
  EXPECT_EQ(fake_cuda_calls("cuLaunchKernel"), ChannelLimits{}.parts_max);
  // Work that has not been submitted to the driver can still be withdrawn.
  gpu().RequestStop(works[550]);
  gpu().RequestKill(works[551]);
  gpu().RequestStop(works[0]);
  Script("go");
  for (std::size_t i = 0; i < works.size(); ++i) {
    const Completion completion = Await(works[i]);
    EXPECT_EQ(completion.status.code(), i == 551 ? StatusCode::kCancelled : StatusCode::kOk);
    EXPECT_EQ(completion.stopped, i == 550) << i;
  }
  EXPECT_EQ(order_, works);
  EXPECT_EQ(fake_cuda_calls("cuLaunchKernel"), 598U);
}

TEST_F(CudaDeviceTest, IdleDeviceNeedNotBePolled) {
  Start();
  const Tenant tenant = NewTenant();
  EXPECT_FALSE(gpu().must_be_polled());
  const WorkId work = Store(tenant, tenant.At(0), 1);
  EXPECT_TRUE(gpu().must_be_polled());
  Await(work);
  EXPECT_FALSE(gpu().must_be_polled());
  EXPECT_EQ(wakes_, 0);
}

// ---- copies

TEST(CudaGroups, TileEveryRectangleInOrder) {
  for (const std::uint64_t width : {std::uint64_t{1}, std::uint64_t{100}, kCopyPieceBytes - 1,
                                    kCopyPieceBytes, 3 * kCopyPieceBytes + 5}) {
    for (const std::uint64_t height : {1, 2, 7, 1000}) {
      for (const std::uint64_t most : {kCopyPieceBytes, 2 * kCopyPieceBytes + 17, kMebibyte}) {
        std::uint64_t unit = 0;
        std::uint64_t next_byte = 0;
        while (unit < CopyUnits(width, height)) {
          const Group group = GroupAt(unit, width, height, most);
          ASSERT_EQ(group.row * width + group.column_bytes, next_byte);
          ASSERT_LE(group.bytes(), most);
          ASSERT_GT(group.end_unit, unit);
          next_byte += group.bytes();
          unit = group.end_unit;
        }
        ASSERT_EQ(next_byte, width * height);
      }
    }
  }
}

TEST_F(CudaDeviceTest, LessUrgentCopyStopsAfterTwoSubmittedGroups) {
  Start();
  const Tenant tenant = NewTenant(16 * kMebibyte);
  std::vector<std::byte> host(16 * kMebibyte, std::byte{7});
  auto pinned = gpu().Pin(host);
  ASSERT_TRUE(pinned.ok()) << pinned.status().ToString();
  Script("hold");
  const WorkId copy = Copy(tenant, Direction::kHostToDevice, host, 0);
  EXPECT_EQ(fake_cuda_calls("cuMemcpyHtoDAsync"), 2U);
  EXPECT_FALSE(IsDone(copy));
  gpu().RequestStop(copy);
  Script("go");
  const Completion completion = Await(copy);
  EXPECT_TRUE(completion.stopped);
  EXPECT_TRUE(completion.status.ok());
  EXPECT_EQ(completion.units_done, 2 * ChannelLimits{}.host_group_bytes / kCopyPieceBytes);
  EXPECT_EQ(fake_cuda_calls("cuMemcpyHtoDAsync"), 2U);
}

TEST_F(CudaDeviceTest, SubmitsMostUrgentCopyWhole) {
  Start();
  const Tenant tenant = NewTenant(16 * kMebibyte);
  std::vector<std::byte> host(16 * kMebibyte, std::byte{7});
  auto pinned = gpu().Pin(host);
  ASSERT_TRUE(pinned.ok());
  EXPECT_TRUE(Await(Copy(tenant, Direction::kHostToDevice, host, 0, kHighestPriority)).status.ok());
  EXPECT_EQ(fake_cuda_calls("cuMemcpyHtoDAsync"), 1U);
}

// A copy that is submitted as one group needs no mark of its own, because only its client waits for
// its end.
TEST_F(CudaDeviceTest, SingleGroupCopiesOfAllPrioritiesShareMark) {
  Start();
  const Tenant tenant = NewTenant();
  std::vector<std::byte> host(kMebibyte);
  auto pinned = gpu().Pin(host);
  ASSERT_TRUE(pinned.ok());
  for (const std::uint8_t priority : {std::uint8_t{0}, kHighestPriority}) {
    Script("hold");
    fake_cuda_forget_calls();
    std::vector<WorkId> copies;
    for (int i = 0; i < 10; ++i) {
      copies.push_back(Copy(tenant, Direction::kHostToDevice, host, 0, priority));
    }
    EXPECT_FALSE(IsDone(copies.front()));
    EXPECT_EQ(fake_cuda_calls("cuMemcpyHtoDAsync"), 10U);
    EXPECT_EQ(fake_cuda_calls("cuEventRecord"), 3U) << "around the first, and behind the last";
    Script("go");
    for (const WorkId copy : copies) EXPECT_TRUE(Await(copy).status.ok());
  }
}

TEST_F(CudaDeviceTest, CopiesUnpinnedMemoryExactlyThroughBuffer) {
  Start();
  const Tenant tenant = NewTenant(8 * kMebibyte);
  std::vector<std::byte> host(5 * kMebibyte + 77);
  for (std::size_t i = 0; i < host.size(); ++i) host[i] = static_cast<std::byte>(i * 31 >> 3);
  std::vector<std::byte> back(host.size());
  for (const std::uint8_t priority : {std::uint8_t{0}, kHighestPriority}) {
    std::ranges::fill(back, std::byte{0});
    Copy(tenant, Direction::kHostToDevice, host, 3, priority);
    EXPECT_TRUE(Await(Copy(tenant, Direction::kDeviceToHost, back, 3, priority)).status.ok());
    EXPECT_EQ(back, host);
  }
  EXPECT_EQ(fake_cuda_pageable_copies(), 0U);
}

TEST_F(CudaDeviceTest, CopiesOfManyStreamsShareTheFewBuffers) {
  Start();
  const Tenant tenant = NewTenant(32 * kMebibyte);
  std::vector<std::vector<std::byte>> hosts(12, std::vector<std::byte>(2 * kMebibyte));
  std::vector<CopyWork> works(hosts.size());
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    std::ranges::fill(hosts[i], static_cast<std::byte>(i + 1));
    works[i].id = ++last_id_;
    works[i].space = tenant.space.get();
    works[i].stream = 100 + i;
    works[i].host = hosts[i].data();
    works[i].destination = tenant.At(i * 2 * kMebibyte);
    works[i].width_bytes = hosts[i].size();
    gpu().Submit(works[i]);
  }
  for (const CopyWork& work : works) EXPECT_TRUE(Await(work.id).status.ok());
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    std::vector<std::byte> back(hosts[i].size());
    EXPECT_TRUE(Await(Copy(tenant, Direction::kDeviceToHost, back, i * 2 * kMebibyte)).status.ok());
    EXPECT_EQ(back, hosts[i]) << i;
  }
}

TEST_F(CudaDeviceTest, UnpinsMemoryWhenItsOwnerEnds) {
  Start();
  const Tenant tenant = NewTenant();
  std::vector<std::byte> host(kMebibyte);
  {
    auto pinned = gpu().Pin(host);
    ASSERT_TRUE(pinned.ok());
    EXPECT_EQ(fake_cuda_live("registration"), 1U);
  }
  EXPECT_EQ(fake_cuda_live("registration"), 0U);
  EXPECT_TRUE(Await(Copy(tenant, Direction::kHostToDevice, host, 0)).status.ok());
  EXPECT_EQ(fake_cuda_pageable_copies(), 0U);
}

TEST_F(CudaDeviceTest, ReportsWhyMemoryCannotBePinned) {
  Start();
  std::vector<std::byte> host(kMebibyte);
  Script("fail cuMemHostRegister 1 801");
  const auto pinned = gpu().Pin(host);
  EXPECT_EQ(pinned.status().code(), StatusCode::kUnsupported);
  EXPECT_THAT(pinned.status().message(), HasSubstr("cuMemHostRegister"));
}

TEST_F(CudaDeviceTest, CopiesRowByRowIfDriverRejectsPitches) {
  Start();
  const Tenant tenant = NewTenant();
  std::vector<std::byte> host(1000);
  for (std::size_t i = 0; i < host.size(); ++i) host[i] = static_cast<std::byte>(i);
  EXPECT_TRUE(Await(Copy(tenant, Direction::kHostToDevice, host, 0)).status.ok());
  Script("fail cuMemcpy2DAsync * 1");
  CopyWork work;
  work.id = ++last_id_;
  work.space = tenant.space.get();
  work.direction = Direction::kDeviceToDevice;
  work.source = tenant.At(0);
  work.source_pitch_bytes = 100;
  work.destination = tenant.At(4096);
  work.destination_pitch_bytes = 50;
  work.width_bytes = 30;
  work.height = 10;
  gpu().Submit(work);
  EXPECT_TRUE(Await(work.id).status.ok());
  std::vector<std::byte> back(50 * 10);
  EXPECT_TRUE(Await(Copy(tenant, Direction::kDeviceToHost, back, 4096)).status.ok());
  for (std::size_t i = 0; i < back.size(); ++i) {
    const std::byte expected = i % 50 < 30 ? host[i / 50 * 100 + i % 50] : std::byte{0};
    ASSERT_EQ(back[i], expected) << i;
  }
}

// ---- modules

TEST_F(CudaDeviceTest, NewAndOldDriversDescribeKernelsAlike) {
  std::vector<std::vector<KernelInfo>> seen;
  for (const char* version : {"version 13000", "version 12000"}) {
    device_.reset();
    fake_cuda_reset();
    Script(version);
    Start();
    const Tenant tenant = NewTenant();
    const auto kernels = tenant.module->kernels();
    seen.emplace_back(kernels.begin(), kernels.end());
    EXPECT_TRUE(Await(Store(tenant, tenant.At(0), 1)).status.ok());
  }
  ASSERT_EQ(seen[0].size(), 2U);
  ASSERT_EQ(seen[1].size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(seen[0][i].name, seen[1][i].name);
    EXPECT_EQ(seen[0][i].parameter_bytes, seen[1][i].parameter_bytes);
    ASSERT_EQ(seen[0][i].parameters.size(), seen[1][i].parameters.size());
    for (std::size_t j = 0; j < seen[0][i].parameters.size(); ++j) {
      EXPECT_EQ(seen[0][i].parameters[j].offset, seen[1][i].parameters[j].offset);
      EXPECT_EQ(seen[0][i].parameters[j].bytes, seen[1][i].parameters[j].bytes);
    }
  }
}

TEST_F(CudaDeviceTest, ModuleWithoutKernelsCanBeLoaded) {
  Start();
  const Tenant tenant = NewTenant();
  const auto module = Load(*tenant.space,
                           ".version 8.0\n.target sm_75\n.address_size 64\n"
                           ".visible .global .align 4 .b8 table[64];\n");
  ASSERT_TRUE(module.ok()) << module.status().ToString();
  EXPECT_TRUE((*module)->kernels().empty());
}

TEST_F(CudaDeviceTest, ReportsCompilersMessageForRejectedModule) {
  Start();
  const Tenant tenant = NewTenant();
  const auto module = Load(*tenant.space,
                           ".version 8.0\n.target sm_75\n.address_size 64\n"
                           ".visible .entry k()\n{\n  add.u32 %r1 ,, ;\n}\n");
  EXPECT_EQ(module.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(module.status().message(), HasSubstr("module rejected: "));
  EXPECT_THAT(module.status().message(), HasSubstr("line 6 column"));
  EXPECT_THAT(module.status().message(), HasSubstr("; the compiler reports: "));
}

TEST_F(CudaDeviceTest, DoesNotGiveDriverTruncatedImage) {
  Start();
  const Tenant tenant = NewTenant();
  const std::size_t before = fake_cuda_calls("cuModuleLoadDataEx");
  for (const std::string& image :
       {std::string("\x50\xed\x55\xba\x01\x00\x10\x00\xff\xff\x00\x00\x00\x00\x00\x00", 16),
        std::string("\x50\xed\x55\xba\x01\x00\xff\xff\x00\x00\x00\x00\x00\x00\x00\x00", 16),
        std::string("\x50\xed\x55\xba", 4),
        std::string("\x7f"
                    "ELF"),
        std::string()}) {
    EXPECT_EQ(Load(*tenant.space, image).status().code(), StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(fake_cuda_calls("cuModuleLoadDataEx"), before);
}

TEST_F(CudaDeviceTest, SharedMemoryBeyondTheStaticLimitCanBeUsed) {
  Start();
  const Tenant tenant = NewTenant();
  LaunchWork work = StoreWork(tenant, tenant.At(0), 1);
  work.dynamic_shared_bytes = gpu().info().shared_bytes_per_block_max;
  gpu().Submit(work);
  EXPECT_TRUE(Await(work.id).status.ok());
}

// Kernels that use textures are rejected, so their limits are not reported to clients.
TEST_F(CudaDeviceTest, DoesNotReportTextureLimits) {
  Start();
  const auto& attributes = gpu().info().attributes;
  EXPECT_GT(attributes.size(), 10U);
  for (const NumberedAttribute& attribute : attributes) {
    EXPECT_FALSE(cuda::IsLimitOfTextures(static_cast<cuda::DeviceAttribute>(attribute.id)))
        << attribute.id;
  }
}

TEST_F(CudaDeviceTest, LaunchAttributesReachTheDriver) {
  Start();
  EXPECT_EQ(gpu().info().cluster_blocks_max, 8U);
  EXPECT_TRUE(gpu().info().can_launch_cooperatively);
  const Tenant tenant = NewTenant();
  EXPECT_TRUE(Await(Store(tenant, tenant.At(0), 1)).status.ok());
  EXPECT_STREQ(fake_cuda_last_attributes(), "");
  EXPECT_EQ(fake_cuda_calls("cuLaunchKernelEx"), 0U) << "plain launches take the shorter way";
  const auto launch = [&](Dim3 grid, Dim3 cluster, bool is_cooperative) {
    LaunchWork work = StoreWork(tenant, tenant.At(0), 1);
    work.grid = grid;
    work.cluster = cluster;
    work.is_cooperative = is_cooperative;
    gpu().Submit(work);
    return Await(work.id).status;
  };
  EXPECT_TRUE(launch({6, 4, 2}, {3, 2, 1}, false).ok());
  EXPECT_STREQ(fake_cuda_last_attributes(), "cluster 3x2x1");
  EXPECT_TRUE(launch({6, 1, 1}, {0, 0, 0}, true).ok());
  EXPECT_STREQ(fake_cuda_last_attributes(), "cooperative");
  EXPECT_TRUE(launch({6, 1, 1}, {2, 1, 1}, true).ok());
  EXPECT_STREQ(fake_cuda_last_attributes(), "cluster 2x1x1 cooperative");

  const Status torn = launch({7, 1, 1}, {2, 1, 1}, false);
  EXPECT_EQ(torn.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(torn.message(), HasSubstr("a grid of 7x1x1 blocks, which is not made of whole "
                                        "clusters of 2x1x1"));
  for (const Dim3 cluster : {Dim3{4, 1, 1}, Dim3{1, 4, 1}, Dim3{1, 1, 4}}) {
    EXPECT_THAT(launch({6, 6, 6}, cluster, false).message(),
                HasSubstr("a grid of 6x6x6 blocks, which is not made of whole clusters of "));
  }
  EXPECT_THAT(launch({9, 1, 1}, {9, 1, 1}, false).message(),
              HasSubstr("asks for clusters of 9 blocks, device cuda:0 allows 8"));
  // The maximum of a cooperative launch: 32 blocks of one thread on each of 132 multiprocessors.
  EXPECT_TRUE(launch({132 * 32, 1, 1}, {0, 0, 0}, true).ok());
  const Status large = launch({132 * 32 + 1, 1, 1}, {0, 0, 0}, true);
  EXPECT_EQ(large.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(large.message(), HasSubstr("launched cooperatively with 4225 blocks, 4224 fit at "
                                         "once (32 on each of 132 multiprocessors)"));
  EXPECT_EQ(gpu().loss(), nullptr);
}

TEST_F(CudaDeviceTest, NamesLaunchAttributeThatGpuOrDriverLacks) {
  for (const char* without : {"missing cuLaunchKernelEx", "attribute 95 0; attribute 120 0"}) {
    SCOPED_TRACE(without);
    device_.reset();
    fake_cuda_reset();
    Script(without);
    Start();
    const Tenant tenant = NewTenant();
    LaunchWork work = StoreWork(tenant, tenant.At(0), 1);
    work.cluster = {1, 1, 1};
    gpu().Submit(work);
    EXPECT_EQ(Await(work.id).status.code(), StatusCode::kUnsupported);
    EXPECT_THAT(Await(work.id).status.message(),
                HasSubstr("kernel 'store' is launched in clusters of blocks, which are not "
                          "supported by device cuda:0"));
    work = StoreWork(tenant, tenant.At(0), 1);
    work.is_cooperative = true;
    gpu().Submit(work);
    EXPECT_THAT(Await(work.id).status.message(),
                HasSubstr("is launched cooperatively, which is not supported by device cuda:0"));
  }
}

}  // namespace
}  // namespace gpushared::device::cuda
