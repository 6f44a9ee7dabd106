// SPDX-License-Identifier: Apache-2.0
// Injects every kind of error code into every driver call that work passes through.

#include <array>
#include <string>
#include <vector>

#include "tests/server/device/cuda_device_fixture.h"

namespace gpushared::device::cuda {
namespace {

using ::testing::HasSubstr;

// The first and the last code that destroy a context; CudaCodes tests all of them.
constexpr std::array kStickyCodes = {214, 911};

class CallOfWork;

// A driver call, and work that makes it.
struct WorkCall {
  const char* call;
  WorkId (CallOfWork::*submit)(const Tenant&);
  // The call reports completions, so without it the end of work cannot be detected.
  bool is_mark = false;
  CompletionKind completion = CompletionKind::kEvents;
  bool is_suspended = false;  // The call is made only while work has not ended.
};

class CallOfWork : public CudaDeviceTest, public ::testing::WithParamInterface<WorkCall> {
 public:
  template <std::uint32_t kElementBytes, std::uint64_t kHeight>
  WorkId Fill(const Tenant& tenant) {
    FillWork work;
    work.id = ++last_id_;
    work.space = tenant.space.get();
    work.stream = 1;
    work.destination = tenant.At(0);
    work.element_bytes = kElementBytes;
    work.width_bytes = 64;
    work.height = kHeight;
    work.pitch_bytes = 128;
    gpu().Submit(work);
    return work.id;
  }
  template <std::uint64_t kHeight>
  WorkId CopyInside(const Tenant& tenant) {
    CopyWork work;
    work.id = ++last_id_;
    work.space = tenant.space.get();
    work.stream = 1;
    work.direction = CopyWork::Direction::kDeviceToDevice;
    work.source = tenant.At(0);
    work.destination = tenant.At(kMebibyte);
    work.width_bytes = 64;
    work.height = kHeight;
    work.source_pitch_bytes = work.destination_pitch_bytes = 128;
    gpu().Submit(work);
    return work.id;
  }
  template <CopyWork::Direction kDirection>
  WorkId CopyHost(const Tenant& tenant) {
    return Copy(tenant, kDirection, host_, 0);
  }
  WorkId Launch(const Tenant& tenant) { return Store(tenant, tenant.At(0), 1); }
  WorkId LaunchCooperatively(const Tenant& tenant) {
    LaunchWork work = StoreWork(tenant, tenant.At(0), 1);
    work.is_cooperative = true;
    gpu().Submit(work);
    return work.id;
  }

 protected:
  // Checks the work whose call fails, on a separate device.
  template <typename Check>
  void Failing(int code, Check check) {
    SCOPED_TRACE(code);
    device_.reset();
    fake_cuda_reset();
    completed_.clear();
    Start({.completion = GetParam().completion});
    const Tenant tenant = NewTenant();
    if (GetParam().is_suspended) Script("hold");
    Script("fail " + std::string(GetParam().call) + " 1 " + std::to_string(code));
    const Completion completion = Await((this->*GetParam().submit)(tenant));
    EXPECT_THAT(completion.status.message(), HasSubstr(GetParam().call));
    check(tenant, completion);
    Script("go");
  }

 private:
  std::vector<std::byte> host_ = std::vector<std::byte>(4096);
};

TEST_P(CallOfWork, FailureAffectsOnlyItsWorkUnlessItIsTheMark) {
  Failing(2, [&](const Tenant& tenant, const Completion& completion) {
    if (GetParam().is_mark) {
      EXPECT_EQ(completion.status.code(), StatusCode::kDeviceLost);
      EXPECT_NE(gpu().loss(), nullptr);
      // The remaining objects leak, because the device releases nothing in a context that it
      // assumes to be dead.
      Script("leaks ignored");
      return;
    }
    EXPECT_EQ(completion.status.code(), StatusCode::kOutOfMemory);
    EXPECT_EQ(completion.units_done, 0U);
    EXPECT_EQ(gpu().loss(), nullptr);
    EXPECT_TRUE(Await(Store(tenant, tenant.At(0), 1)).status.ok());
  });
  if (GetParam().is_mark) (void)fake_cuda_take_mistakes();
}

TEST_P(CallOfWork, DeadContextIsDeviceLossForAnyCode) {
  for (const int code : kStickyCodes) {
    Failing(code, [&](const Tenant& tenant, const Completion& completion) {
      EXPECT_EQ(completion.status.code(), StatusCode::kDeviceLost);
      ASSERT_NE(gpu().loss(), nullptr);
      EXPECT_THAT(gpu().loss()->why.message(), HasSubstr("(" + std::to_string(code) + ")"));
      EXPECT_THAT(gpu().loss()->why.message(), HasSubstr(GetParam().call));
      EXPECT_FALSE(gpu().must_be_polled());
      EXPECT_EQ(Await(Store(tenant, tenant.At(0), 2)).status.code(), StatusCode::kDeviceLost);
      EXPECT_EQ(gpu().CreateSpace({.quota_bytes = 1}).status().code(), StatusCode::kDeviceLost);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(
    Calls, CallOfWork,
    ::testing::Values(
        WorkCall{"cuMemcpyHtoDAsync", &CallOfWork::CopyHost<CopyWork::Direction::kHostToDevice>},
        WorkCall{"cuMemcpyDtoHAsync", &CallOfWork::CopyHost<CopyWork::Direction::kDeviceToHost>},
        WorkCall{"cuMemcpyDtoDAsync", &CallOfWork::CopyInside<1>},
        WorkCall{"cuMemcpy2DAsync", &CallOfWork::CopyInside<2>},
        WorkCall{"cuMemsetD8Async", &CallOfWork::Fill<1, 1>},
        WorkCall{"cuMemsetD16Async", &CallOfWork::Fill<2, 1>},
        WorkCall{"cuMemsetD32Async", &CallOfWork::Fill<4, 1>},
        WorkCall{"cuMemsetD2D8Async", &CallOfWork::Fill<1, 2>},
        WorkCall{"cuMemsetD2D16Async", &CallOfWork::Fill<2, 2>},
        WorkCall{"cuMemsetD2D32Async", &CallOfWork::Fill<4, 2>},
        WorkCall{"cuLaunchKernel", &CallOfWork::Launch},
        WorkCall{"cuLaunchKernelEx", &CallOfWork::LaunchCooperatively},
        WorkCall{"cuOccupancyMaxActiveBlocksPerMultiprocessor", &CallOfWork::LaunchCooperatively},
        WorkCall{"cuEventCreate", &CallOfWork::Launch, true},
        WorkCall{"cuEventRecord", &CallOfWork::Launch, true},
        WorkCall{"cuEventQuery", &CallOfWork::Launch, true},
        WorkCall{"cuEventElapsedTime", &CallOfWork::Launch, true},
        WorkCall{"cuStreamWriteValue64", &CallOfWork::Launch, true, CompletionKind::kWrites},
        WorkCall{"cuStreamQuery", &CallOfWork::Launch, true, CompletionKind::kWrites, true}),
    [](const auto& any) { return std::string(any.param.call); });

TEST_F(CudaDeviceTest, DeadContextAtRegistrationIsDeviceLossForAnyCode) {
  std::vector<std::byte> host(kMebibyte);
  for (const std::string call : {"cuMemHostRegister", "cuMemHostUnregister"}) {
    for (const int code : kStickyCodes) {
      SCOPED_TRACE(call + " " + std::to_string(code));
      device_.reset();
      fake_cuda_reset();
      Start();
      Script("fail " + call + " 1 " + std::to_string(code));
      const int wakes = wakes_;
      {
        const auto pinned = gpu().Pin(host);
        const bool is_first = call == "cuMemHostRegister";
        EXPECT_EQ(pinned.status().code(), is_first ? StatusCode::kDeviceLost : StatusCode::kOk);
      }
      EXPECT_GT(wakes_, wakes) << "nobody would look";
      Poll();
      ASSERT_NE(gpu().loss(), nullptr);
      EXPECT_THAT(gpu().loss()->why.message(), HasSubstr(call));
      EXPECT_EQ(gpu().Pin(host).status().code(), StatusCode::kDeviceLost);
    }
  }
}

}  // namespace
}  // namespace gpushared::device::cuda
