// SPDX-License-Identifier: Apache-2.0
// When work on a GPU ran, and for how long.

#include <chrono>
#include <string>
#include <vector>

#include "tests/server/device/cuda_device_fixture.h"

namespace gpushared::device::cuda {
namespace {

using std::chrono::milliseconds;

class CudaTimes : public CudaDeviceTest, public ::testing::WithParamInterface<CompletionKind> {};

TEST_P(CudaTimes, TimesSingleWorkExactlyAndSharesTimeOfBatch) {
  Start({.completion = GetParam()});
  const Tenant tenant = NewTenant();
  const Completion alone = Await(Store(tenant, tenant.At(0), 1));
  EXPECT_TRUE(alone.times_are_exact);
  EXPECT_LT(alone.started, alone.ended);
  std::vector<WorkId> batch;
  for (int i = 0; i < 10; ++i) batch.push_back(Store(tenant, tenant.At(0), 1));
  auto before = alone.ended;
  for (const WorkId id : batch) {
    const Completion completion = Await(id);
    // The first launch is marked at once; the others run while its end is detected.
    EXPECT_EQ(completion.times_are_exact, id == batch.front());
    EXPECT_GE(completion.started, before);
    EXPECT_GE(completion.ended, completion.started);
    before = completion.ended;
  }
  EXPECT_LE(before, DeviceClock::now());
  // One mark covers the other nine.
  const char* const mark =
      GetParam() == CompletionKind::kEvents ? "cuEventRecord" : "cuStreamWriteValue64";
  EXPECT_LE(fake_cuda_calls(mark), 6U);
}

TEST_P(CudaTimes, AreBetweenSubmissionAndPollThatSawEnd) {
  Start({.completion = GetParam()});
  const Tenant tenant = NewTenant();
  for (int i = 0; i < 5; ++i) {
    const auto before = DeviceClock::now();
    const Completion completion = Await(Store(tenant, tenant.At(0), 1));
    EXPECT_GE(completion.started, before);
    EXPECT_LE(completion.ended, DeviceClock::now());
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, CudaTimes,
                         ::testing::Values(CompletionKind::kEvents, CompletionKind::kWrites),
                         [](const auto& any) {
                           return any.param == CompletionKind::kEvents ? "events" : "writes";
                         });

// Times are right however far the GPU's clock has drifted from the host's while the GPU was idle.
TEST_F(CudaDeviceTest, ReportsGpusTimeForKernelAfterIdleTime) {
  Start();
  const Tenant tenant = NewTenant();
  Await(Store(tenant, tenant.At(0), 1));
  for (const char* clock : {"clock 1 10", "clock 600000 10", "clock -600000 -10"}) {
    Script(std::string(clock) + "; kernels 3");
    const auto before = DeviceClock::now();
    const Completion completion = Await(Store(tenant, tenant.At(0), 1));
    EXPECT_TRUE(completion.times_are_exact);
    EXPECT_GE(completion.ended - completion.started, milliseconds(3)) << clock;
    EXPECT_GE(completion.started, before) << clock;
    EXPECT_LE(completion.ended, DeviceClock::now()) << clock;
  }
}

TEST_F(CudaDeviceTest, ReportsGpusTimeForConsecutiveKernels) {
  Start();
  const Tenant tenant = NewTenant();
  Script("clock 600000 10; kernels 3; hold");
  std::vector<WorkId> works;
  for (int i = 0; i < 2; ++i) {
    works.push_back(Store(tenant, tenant.At(0), 1));
    // Each kernel is in a separate batch.
    EXPECT_FALSE(IsDone(works.back()));
  }
  Script("go");
  DeviceClock::time_point last;
  for (const WorkId id : works) {
    const Completion completion = Await(id);
    EXPECT_TRUE(completion.times_are_exact);
    EXPECT_GE(completion.ended - completion.started, milliseconds(3));
    EXPECT_GE(completion.started, last);
    last = completion.ended;
  }
  EXPECT_LE(last, DeviceClock::now());
}

// Untimed work has no timestamp, because a timestamp makes the GPU wait longer, and a second one
// before the work would double the wait.
TEST_F(CudaDeviceTest, UntimedWorkHasMarkWithoutTimestamp) {
  Start();
  const Tenant tenant = NewTenant();
  Await(Store(tenant, tenant.At(0), 1));
  fake_cuda_forget_calls();
  for (int i = 0; i < 3; ++i) {
    LaunchWork work = StoreWork(tenant, tenant.At(0), 1);
    work.wants_times = false;
    const auto before = DeviceClock::now();
    gpu().Submit(work);
    const Completion completion = Await(work.id);
    EXPECT_FALSE(completion.times_are_exact);
    EXPECT_GE(completion.started, before);
    EXPECT_LE(completion.ended, DeviceClock::now());
  }
  EXPECT_EQ(fake_cuda_calls("cuEventRecord"), 3U);
  EXPECT_EQ(fake_cuda_calls("cuEventElapsedTime"), 0U);
  EXPECT_TRUE(Await(Store(tenant, tenant.At(0), 1)).times_are_exact);
}

// Timed work after untimed work has its own start mark.
TEST_F(CudaDeviceTest, ReportsGpusTimeForTimedWorkAfterUntimedWork) {
  Start();
  const Tenant tenant = NewTenant();
  Script("kernels 3; hold");
  LaunchWork untimed = StoreWork(tenant, tenant.At(0), 1);
  untimed.wants_times = false;
  gpu().Submit(untimed);
  EXPECT_FALSE(IsDone(untimed.id));
  const WorkId timed = Store(tenant, tenant.At(0), 1);
  EXPECT_FALSE(IsDone(timed));
  // This sleep is long compared with the time for which a busy machine may keep the kernel off the
  // cores, so that a wrong start time is detected.
  std::this_thread::sleep_for(milliseconds(300));
  Script("go");
  EXPECT_FALSE(Await(untimed.id).times_are_exact);
  const Completion completion = Await(timed);
  EXPECT_TRUE(completion.times_are_exact);
  // The kernel takes 3 ms, less the inaccuracy of the relation between the two clocks.
  EXPECT_GE(completion.ended - completion.started, milliseconds(2));
  EXPECT_LT(completion.ended - completion.started, milliseconds(250));
}

// Each mark makes the GPU wait, but with fewer than two marks the GPU idles while the device
// detects an end.
TEST_F(CudaDeviceTest, KeepsTwoMarksOutstandingAndDelaysLaterOnes) {
  Start();
  const Tenant tenant = NewTenant();
  Await(Store(tenant, tenant.At(0), 1));
  Script("hold");
  fake_cuda_forget_calls();
  std::vector<WorkId> works;
  const auto marks = [&](std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      LaunchWork work = StoreWork(tenant, tenant.At(0), 1);
      work.wants_times = false;
      gpu().Submit(work);
      works.push_back(work.id);
    }
    for (int i = 0; i < 3; ++i) EXPECT_FALSE(IsDone(works.front()));
    return fake_cuda_calls("cuEventRecord");
  };
  EXPECT_EQ(marks(1), 1U);
  EXPECT_EQ(marks(10), 2U);
  EXPECT_EQ(marks(10), 2U);
  Script("go");
  for (const WorkId id : works) Await(id);
  EXPECT_EQ(fake_cuda_calls("cuEventRecord"), 3U);
}

TEST_F(CudaDeviceTest, ReportedEndIsNotBeforeWorkWasSeenRunning) {
  Start();
  const Tenant tenant = NewTenant();
  Script("hold; clock -600000 0");
  const WorkId work = Store(tenant, tenant.At(0), 1);
  std::this_thread::sleep_for(milliseconds(20));
  const auto seen = DeviceClock::now();
  EXPECT_FALSE(IsDone(work));
  Script("go");
  const Completion completion = Await(work);
  EXPECT_GE(completion.ended, seen);
  EXPECT_LE(completion.ended, DeviceClock::now());
}

TEST_F(CudaDeviceTest, ReportedStartIsNotBeforeSubmission) {
  Start();
  const Tenant tenant = NewTenant();
  std::vector<std::byte> host(4096);
  for (const char* clock : {"clock 0 0", "clock 600000 0", "clock -600000 0"}) {
    Script(clock);
    const auto before = DeviceClock::now();
    const WorkId copy = Copy(tenant, CopyWork::Direction::kHostToDevice, host, 0);
    std::this_thread::sleep_for(milliseconds(5));
    const Completion completion = Await(copy);
    EXPECT_GE(completion.started, before) << clock;
    EXPECT_LE(completion.ended, DeviceClock::now()) << clock;
  }
}

TEST_F(CudaDeviceTest, TimesDelayedWorkFromItsActualStart) {
  Start();
  const Tenant tenant = NewTenant();
  std::vector<std::byte> host(4096);
  Await(Copy(tenant, CopyWork::Direction::kHostToDevice, host, 0));
  Script("hold");
  const auto before = DeviceClock::now();
  const WorkId copy = Copy(tenant, CopyWork::Direction::kHostToDevice, host, 0);
  std::this_thread::sleep_for(milliseconds(100));
  Script("go");
  std::this_thread::sleep_for(milliseconds(5));
  // The clock relation is as accurate as a busy machine allows.
  EXPECT_GE(Await(copy).ended, before + milliseconds(50));
}

// Events that are reserved for later work must be reused.
TEST_F(CudaDeviceTest, ReusesEvents) {
  Start();
  const Tenant tenant = NewTenant();
  std::size_t events = 0;
  for (int i = 0; i < 20; ++i) {
    Script("hold");
    const WorkId first = Store(tenant, tenant.At(0), 1);
    EXPECT_FALSE(IsDone(first));
    const WorkId second = Store(tenant, tenant.At(0), 1);
    EXPECT_FALSE(IsDone(second));
    Script("go");
    Await(second);
    if (i == 1) events = fake_cuda_live("event");
  }
  EXPECT_EQ(fake_cuda_live("event"), events);
}

}  // namespace
}  // namespace gpushared::device::cuda
