// SPDX-License-Identifier: Apache-2.0
// Tests how the CUDA device reacts to the failure of every driver call.

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/server/device/cuda_device_fixture.h"
#include "tests/support/load_module.h"
#include "tests/support/plain_compiler.h"

namespace gpushared::device::cuda {
namespace {

using ::testing::HasSubstr;

struct CallAt {
  std::string name;
  std::size_t nth = 1;
};

// Returns the calls made since they were last cleared, each with its index among the calls of its
// name.
std::vector<CallAt> CallsMade() {
  std::vector<CallAt> made;
  std::map<std::string, std::size_t> counts;
  fake_cuda_call call{};
  for (std::size_t i = 0; fake_cuda_call_at(i, &call) != 0; ++i) {
    made.push_back({.name = call.name, .nth = ++counts[call.name]});
  }
  return made;
}

std::string Failing(const CallAt& call, int code) {
  return "fail " + call.name + " " + std::to_string(call.nth) + " " + std::to_string(code);
}

// Returns whether the device ignores a failure of the call: queries of attributes with a sensible
// default, and releases of objects, for which there is no remedy.
bool IsForgiven(const std::string& call) {
  static const std::set<std::string> kForgiven = {"cuDeviceGetAttribute", "cuGetProcAddress",
                                                  "cuDriverGetVersion", "cuModuleUnload",
                                                  "cuMemAddressFree"};
  return kForgiven.contains(call);
}

TEST_F(CudaDeviceTest, NamesCallThatFailsAtStartAndLeavesNothingBehind) {
  auto driver = Driver::Load();
  ASSERT_TRUE(driver.ok());
  fake_cuda_forget_calls();
  ASSERT_TRUE(CreateCudaDevice(*driver, {}, {}).ok());
  std::vector<CallAt> calls = CallsMade();
  // Calls after the last stream creation belong to the shutdown.
  while (calls.back().name != "cuStreamCreateWithPriority") calls.pop_back();
  ASSERT_GT(calls.size(), 40U);
  for (const CallAt& call : calls) {
    if (IsForgiven(call.name)) continue;
    SCOPED_TRACE(Failing(call, 2));
    fake_cuda_reset();
    driver = Driver::Load();
    ASSERT_TRUE(driver.ok());
    Script(Failing(call, 2));
    const auto device = CreateCudaDevice(*driver, {}, {});
    ASSERT_FALSE(device.ok());
    EXPECT_THAT(device.status().message(), HasSubstr("device cuda:0 rejected: "));
    EXPECT_THAT(device.status().message(), HasSubstr(call.name + ": CUDA_ERROR_OUT_OF_MEMORY"));
    EXPECT_STREQ(fake_cuda_take_mistakes(), "");
    for (const char* kind : {"context", "stream", "event", "host allocation"}) {
      EXPECT_EQ(fake_cuda_live(kind), 0U) << kind;
    }
  }
}

// Real drivers have undocumented attributes, and queries of these may return undocumented codes.
TEST_F(CudaDeviceTest, OmitsUnavailableAttributeUnlessDeviceNeedsIt) {
  const std::map<int, std::string> needed = {{16, "multiprocessors (attribute 16)"},
                                             {39, "threads per multiprocessor (attribute 39)"},
                                             {75, "compute capability (attribute 75)"},
                                             {76, "compute capability (attribute 76)"},
                                             {102, "virtual memory management (attribute 102)"}};
  for (int id = 1; id <= 159; ++id) {
    if (!needed.contains(id)) Script("attribute " + std::to_string(id) + " fails 999");
  }
  const CudaDeviceOptions options{
      .make_compiler = [] { return std::make_unique<testing::PlainCompiler>(); }};
  Start(options);
  std::vector<int> told;
  for (const NumberedAttribute& one : gpu().info().attributes) {
    told.push_back(static_cast<int>(one.id));
  }
  EXPECT_THAT(told, ::testing::ElementsAre(16, 39, 75, 76, 102));
  EXPECT_EQ(gpu().info().multiprocessors, 132U);
  {
    const Tenant tenant = NewTenant();
    EXPECT_TRUE(Await(Store(tenant, tenant.At(0), 1)).status.ok());
  }
  device_.reset();
  for (const auto& [id, name] : needed) {
    fake_cuda_reset();
    Script("attribute " + std::to_string(id) + " fails 999");
    const auto device = Create(options);
    ASSERT_FALSE(device.ok());
    EXPECT_THAT(device.status().message(), HasSubstr("asking for its " + name + " failed: "));
    EXPECT_THAT(device.status().message(),
                HasSubstr("cuDeviceGetAttribute: CUDA_ERROR_UNKNOWN (999)"));
  }
}

TEST_F(CudaDeviceTest, RejectsGpuUnderMpsWithAdvice) {
  Script("attribute 133 1");
  const auto device = Create();
  ASSERT_FALSE(device.ok());
  EXPECT_EQ(device.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(device.status().message(), HasSubstr("became a client of MPS"));
  EXPECT_THAT(device.status().message(), HasSubstr("echo quit | nvidia-cuda-mps-control"));
  EXPECT_EQ(fake_cuda_live("context"), 0U);
}

// Makes every request that a client makes of its space; stops at the first failure.
Status UseSpace(Device& device) {
  auto space = device.CreateSpace({.quota_bytes = 64 * kMebibyte});
  if (!space.ok()) return space.status();
  for (const std::uint64_t bytes : {8 * kMebibyte, 2 * kMebibyte}) {
    if (const auto resized = (*space)->Resize(bytes); !resized.ok()) return resized.status();
  }
  return testing::LoadModule(**space, kStorePtx).status();
}

std::vector<CallAt> CallsOfASpace(Device& device) {
  fake_cuda_forget_calls();
  EXPECT_TRUE(UseSpace(device).ok());
  std::vector<CallAt> calls = CallsMade();
  while (calls.back().name != "cuModuleUnload") calls.pop_back();
  return calls;
}

TEST_F(CudaDeviceTest, FailedCallForSpaceAffectsOnlyThatSpaceAndLeavesNothingBehind) {
  Start();
  for (const CallAt& call : CallsOfASpace(gpu())) {
    // The first, the second and the last piece of memory represent all others.
    if (IsForgiven(call.name) || call.nth > 3 || call.name == "cuStreamSynchronize") continue;
    SCOPED_TRACE(Failing(call, 2));
    const Tenant other = NewTenant();
    Script(Failing(call, 2));
    const Status status = UseSpace(gpu());
    EXPECT_EQ(status.code(), StatusCode::kOutOfMemory) << status.ToString();
    EXPECT_THAT(status.message(), HasSubstr(call.name + ": CUDA_ERROR_OUT_OF_MEMORY"));
    EXPECT_TRUE(Await(Store(other, other.At(0), 1)).status.ok());
    EXPECT_EQ(gpu().loss(), nullptr);
    const bool returns = call.name == "cuMemUnmap" || call.name == "cuMemRelease";
    if (returns) {
      // Objects that the driver did not release leak; the device only reports that.
      Script("leaks ignored");
      (void)fake_cuda_take_mistakes();
    }
  }
  Script("leaks ignored");
}

TEST_F(CudaDeviceTest, FailedWaitForZeroingIsDeviceLoss) {
  Start();
  Script("fail_late cuStreamSynchronize 1 999");
  EXPECT_EQ(UseSpace(gpu()).code(), StatusCode::kDeviceLost);
  Poll();
  EXPECT_NE(gpu().loss(), nullptr);
  Script("leaks ignored");
}

TEST_F(CudaDeviceTest, ContextDeathInAnyCallOfSpaceIsDeviceLoss) {
  Start();
  const std::vector<CallAt> calls = CallsOfASpace(gpu());
  for (const CallAt& call : calls) {
    if (call.name == "cuDeviceGetAttribute" || call.name == "cuCtxSetCurrent" || call.nth > 1 ||
        call.name == "cuModuleUnload" || call.name == "cuMemAddressFree") {
      continue;
    }
    SCOPED_TRACE(Failing(call, 700));
    device_.reset();
    fake_cuda_reset();
    Start();
    Script(Failing(call, 700));
    const int wakes = wakes_;
    const Status status = UseSpace(gpu());
    EXPECT_EQ(status.code(), StatusCode::kDeviceLost) << status.ToString();
    EXPECT_GT(wakes_, wakes) << "nobody would look";
    EXPECT_TRUE(gpu().must_be_polled());
    Poll();
    ASSERT_NE(gpu().loss(), nullptr);
    EXPECT_THAT(gpu().loss()->why.message(), HasSubstr(call.name));
    EXPECT_TRUE(gpu().loss()->suspects.empty());
    EXPECT_FALSE(gpu().must_be_polled());
    EXPECT_EQ(gpu().CreateSpace({.quota_bytes = 1 << 20}).status().code(), StatusCode::kDeviceLost);
  }
}

TEST_F(CudaDeviceTest, LaunchRejectedByDriverFailsAloneAndInOrder) {
  Start();
  const Tenant tenant = NewTenant();
  Script("hold");
  const WorkId first = Store(tenant, tenant.At(0), 1);
  Script("fail cuLaunchKernel 1 701");
  const WorkId rejected = Store(tenant, tenant.At(4), 1);
  const WorkId last = Store(tenant, tenant.At(8), 1);
  EXPECT_FALSE(IsDone(rejected));
  Script("go");
  EXPECT_TRUE(Await(last).status.ok());
  EXPECT_TRUE(Await(first).status.ok());
  const Completion completion = Await(rejected);
  EXPECT_EQ(completion.status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(completion.status.message(), HasSubstr("launch of kernel 'store' failed: "));
  EXPECT_THAT(completion.status.message(),
              HasSubstr("cuLaunchKernel: CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES (701)"));
  EXPECT_EQ(completion.units_done, 0U);
  EXPECT_EQ(order_, (std::vector<WorkId>{first, rejected, last}));
  EXPECT_EQ(gpu().loss(), nullptr);
}

TEST_F(CudaDeviceTest, BlamesKernelThatRanAlone) {
  Start();
  const Tenant bad = NewTenant();
  const Tenant good = NewTenant();
  EXPECT_TRUE(Await(Store(good, good.At(0), 2)).status.ok());
  Script("fault 1 700");
  const WorkId culprit = Store(bad, bad.At(0), 1);
  const Completion completion = Await(culprit);
  EXPECT_EQ(completion.status.code(), StatusCode::kDeviceLost);
  EXPECT_THAT(completion.status.message(), HasSubstr("(700)"));
  ASSERT_NE(gpu().loss(), nullptr);
  ASSERT_EQ(gpu().loss()->suspects.size(), 1U);
  EXPECT_EQ(gpu().loss()->suspects[0].id, culprit);
  EXPECT_EQ(gpu().loss()->suspects[0].what, "kernel 'store'");
  EXPECT_FALSE(gpu().must_be_polled());
  // Everything submitted from now on ends at once, in the same way.
  EXPECT_EQ(Await(Store(good, good.At(0), 2)).status.code(), StatusCode::kDeviceLost);
}

TEST_F(CudaDeviceTest, BlamesEveryKernelThatMayHaveRunAndNoCopy) {
  Start();
  const Tenant a = NewTenant();
  const Tenant b = NewTenant();
  std::vector<std::byte> host(4096);
  Script("hold");
  const WorkId of_a = Store(a, a.At(0), 10);
  const WorkId of_b = Store(b, b.At(0), 20);
  const WorkId copy = Copy(a, CopyWork::Direction::kHostToDevice, host, 0);
  EXPECT_FALSE(IsDone(of_a));
  Script("fault 1 716; go");
  for (const WorkId id : {of_a, of_b}) {
    EXPECT_EQ(Await(id).status.code(), StatusCode::kDeviceLost);
  }
  // The copy's status does not matter, because it may have ended before the failure.
  (void)Await(copy);
  std::set<WorkId> suspects;
  ASSERT_NE(gpu().loss(), nullptr);
  for (const auto& suspect : gpu().loss()->suspects) suspects.insert(suspect.id);
  EXPECT_EQ(suspects, (std::set<WorkId>{of_a, of_b}));
}

}  // namespace
}  // namespace gpushared::device::cuda
