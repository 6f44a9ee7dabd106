// SPDX-License-Identifier: Apache-2.0
// Classes that may use only a part of the multiprocessors.

#include <string>
#include <vector>

#include "server/device/cuda/stream_table.h"
#include "tests/server/device/cuda_device_fixture.h"

namespace gpushared::device::cuda {
namespace {

using ::testing::HasSubstr;

constexpr std::size_t kHigh = 0, kNormal = 1, kLow = 2;

class CudaSmLimit : public CudaDeviceTest {
 protected:
  static CudaDeviceOptions Limited(std::size_t of_class, SmLimit limit) {
    CudaDeviceOptions options;
    options.sm_limits.at(of_class) = limit;
    return options;
  }
  // Returns the grant for a limit of the low class on a GPU with `all` multiprocessors.
  std::uint32_t Granted(std::uint32_t all, SmLimit limit) {
    device_.reset();
    fake_cuda_reset();
    Script("sms " + std::to_string(all));
    Start(Limited(kLow, limit));
    EXPECT_EQ(gpu().info().sm_grants.size(), 1U);
    return gpu().info().sm_grants.at(0).granted;
  }
  // Returns how many multiprocessors a kernel of this class gets, derived from how many blocks run
  // at once.
  std::uint64_t GetMultiprocessors(const Tenant& tenant, std::size_t of_class,
                                   std::uint8_t priority) {
    LaunchWork work = StoreWork(tenant, tenant.At(0), 100 + of_class, priority);
    work.of_class = static_cast<std::uint8_t>(of_class);
    work.is_cooperative = true;
    work.grid = {1'000'000, 1, 1};
    gpu().Submit(work);
    const std::string message = Await(work.id).status.message();
    const std::size_t at = message.find("on each of ");
    EXPECT_NE(at, std::string::npos) << message;
    return at == std::string::npos ? 0 : std::stoul(message.substr(at + 11));
  }
};

TEST_F(CudaSmLimit, IsNotExceededByRounding) {
  EXPECT_EQ(Granted(132, {.fraction = 0.5}), 64U);
  EXPECT_EQ(Granted(132, {.multiprocessors = 32}), 32U);
  EXPECT_EQ(Granted(132, {.multiprocessors = 39}), 32U);
  EXPECT_EQ(Granted(132, {.fraction = 0.01}), 8U) << "the smallest part that there is";
  EXPECT_EQ(Granted(132, {.multiprocessors = 131}), 128U) << "the driver would round up to 136";
  EXPECT_EQ(Granted(132, {.fraction = 1}), 132U);
  EXPECT_EQ(Granted(132, {.multiprocessors = 4000}), 132U);
  EXPECT_EQ(Granted(6, {.multiprocessors = 7}), 6U) << "smaller than the driver's smallest part";
  EXPECT_EQ(gpu().info().sm_grants.at(0).asked, 6U);
  EXPECT_EQ(gpu().info().sm_grants.at(0).of_class, kLow);
}

TEST_F(CudaSmLimit, BoundsTheKernelsOfItsClassAndNoOthers) {
  Start(Limited(kLow, {.multiprocessors = 40}));
  const Tenant tenant = NewTenant();
  for (const auto priority : {std::uint8_t{0}, std::uint8_t{2}}) {
    // The limit also applies under a policy that assigns one priority to all classes.
    EXPECT_EQ(GetMultiprocessors(tenant, kLow, priority), 40U);
    EXPECT_EQ(GetMultiprocessors(tenant, kNormal, priority), 132U);
    EXPECT_EQ(GetMultiprocessors(tenant, kHigh, priority), 132U);
  }
  // Memory and modules of the whole GPU's context work on the partition.
  LaunchWork work = StoreWork(tenant, tenant.At(0), 5);
  work.of_class = kLow;
  gpu().Submit(work);
  EXPECT_TRUE(Await(work.id).status.ok());
  std::uint32_t value = 0;
  EXPECT_TRUE(Await(Copy(tenant, CopyWork::Direction::kDeviceToHost,
                         std::as_writable_bytes(std::span(&value, 1)), 0))
                  .status.ok());
  EXPECT_EQ(value, work.id);
}

// The driver's documentation demands that an event and its stream belong to one context, and
// drivers may or may not accept a green context in place of the GPU's own.
TEST_F(CudaSmLimit, DetectsCompletionWithEventsOfEitherContext) {
  for (const char* driver : {"green strict", ""}) {
    SCOPED_TRACE(driver);
    device_.reset();
    fake_cuda_reset();
    completed_.clear();
    Script(driver);
    CudaDeviceOptions options = Limited(kLow, {.multiprocessors = 40});
    options.sm_limits.at(kNormal) = SmLimit{.multiprocessors = 64};
    Start(options);
    const Tenant tenant = NewTenant();
    Script("kernels 1");
    for (const std::size_t of_class : {kLow, kHigh, kNormal, kLow}) {
      Script("hold");  // Submits several batches, more than the number of existing events.
      std::vector<LaunchWork> works;
      for (int i = 0; i < 5; ++i) {
        works.push_back(StoreWork(tenant, tenant.At(0), 10 * of_class + i));
        works.back().of_class = static_cast<std::uint8_t>(of_class);
        gpu().Submit(works.back());
      }
      Poll();
      Script("go");
      for (const LaunchWork& work : works) {
        const Completion completion = Await(work.id);
        ASSERT_TRUE(completion.status.ok()) << completion.status.ToString();
        EXPECT_TRUE(completion.times_are_exact);
        EXPECT_GE(completion.ended - completion.started, std::chrono::milliseconds(1));
      }
    }
    EXPECT_EQ(gpu().loss(), nullptr);
  }
}

TEST_F(CudaSmLimit, IsRejectedByNameOnGpuTooSmallToPartition) {
  Script("sms 6");
  const auto device = Create(Limited(kLow, {.multiprocessors = 2}));
  ASSERT_FALSE(device.ok());
  EXPECT_THAT(device.status().message(),
              HasSubstr("cuDevSmResourceSplitByCount: CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION"));
}

TEST_F(CudaSmLimit, ReleasesPartitionAtEnd) {
  CudaDeviceOptions options = Limited(kLow, {.multiprocessors = 32});
  options.sm_limits.at(kNormal) = SmLimit{.multiprocessors = 64};
  Start(options);
  EXPECT_EQ(fake_cuda_live("green context"), 2U);
  EXPECT_EQ(gpu().info().sm_grants.size(), 2U);
  device_.reset();
  EXPECT_EQ(fake_cuda_live("green context"), 0U);
  EXPECT_EQ(fake_cuda_live("context"), 0U);
}

TEST_F(CudaSmLimit, IsRejectedByNameWhereTheDriverLacksWhatItNeeds) {
  for (const char* call :
       {"cuGreenCtxCreate", "cuGreenCtxStreamCreate", "cuDevSmResourceSplitByCount"}) {
    fake_cuda_reset();
    Script("missing " + std::string(call));
    const auto device = Create(Limited(kLow, {.fraction = 0.5}));
    ASSERT_FALSE(device.ok());
    EXPECT_EQ(device.status().code(), StatusCode::kUnsupported);
    EXPECT_THAT(device.status().message(), HasSubstr("option sm-limit rejected: "));
    EXPECT_THAT(device.status().message(), HasSubstr(std::string(call) + " (CUDA 12."));
    // Devices without the option are unaffected.
    EXPECT_TRUE(Create().ok());
  }
}

// The driver decides whether a function of the whole GPU's context may be launched on a partition.
// The device tries such a launch once at the start, before any client could be affected.
TEST_F(CudaSmLimit, IsRejectedByNameIfPartitionRejectsLaunch) {
  Script("fail cuLaunchKernel 1 400");
  const auto device = Create(Limited(kLow, {.fraction = 0.5}));
  ASSERT_FALSE(device.ok());
  EXPECT_THAT(
      device.status().message(),
      HasSubstr("option sm-limit rejected: a launch on a part of the multiprocessors failed: "
                "cuLaunchKernel: "));
  Script("fail cuLaunchKernel 1 400");
  EXPECT_TRUE(Create().ok()) << "who does not ask for it is not troubled";
}

TEST_F(CudaSmLimit, TriesKernelOnEveryStreamOfPartition) {
  Start(Limited(kLow, {.fraction = 0.5}));
  EXPECT_EQ(fake_cuda_calls("cuLaunchKernel"), StreamTable::kChannels[0]);
  EXPECT_EQ(fake_cuda_live("module"), 0U);
}

TEST_F(CudaSmLimit, EveryCallThatFailsIsNamedAndLeavesNothingBehind) {
  for (const char* call :
       {"cuDeviceGetDevResource", "cuDevSmResourceSplitByCount", "cuDevResourceGenerateDesc",
        "cuGreenCtxCreate", "cuCtxFromGreenCtx", "cuGreenCtxStreamCreate", "cuModuleLoadDataEx",
        "cuModuleGetFunction", "cuLaunchKernel", "cuEventRecord", "cuStreamSynchronize",
        "cuEventElapsedTime"}) {
    SCOPED_TRACE(call);
    fake_cuda_reset();
    Script("fail " + std::string(call) + " 1 2");
    const auto device = Create(Limited(kLow, {.fraction = 0.5}));
    ASSERT_FALSE(device.ok());
    EXPECT_THAT(device.status().message(),
                HasSubstr(std::string(call) + ": CUDA_ERROR_OUT_OF_MEMORY"));
    EXPECT_STREQ(fake_cuda_take_mistakes(), "");
    for (const char* kind : {"context", "green context", "stream", "event", "module"}) {
      EXPECT_EQ(fake_cuda_live(kind), 0U) << kind;
    }
  }
}

}  // namespace
}  // namespace gpushared::device::cuda
