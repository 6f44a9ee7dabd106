// SPDX-License-Identifier: Apache-2.0
// Driver calls that need a moment without work: when they begin, and how much they delay work.

#include <atomic>
#include <chrono>
#include <cstring>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "server/device/cuda/quiet_moments.h"
#include "tests/server/device/contained_kernels.h"
#include "tests/server/device/cuda_device_fixture.h"

namespace gpushared::device::cuda {
namespace {

using std::chrono::milliseconds;
using Hold = QuietMoments::Hold;

// ---- the moments alone; the test's thread acts as the device thread

class QuietMomentsTest : public ::testing::Test {
 protected:
  static constexpr auto kLater = QuietMoment::Wait::kLater;

  // Opens a quiet moment that delays work for this long.
  void HoldBackFor(std::chrono::nanoseconds time) {
    QuietMoment moment(moments_, Urgency::kHigh, kLater);
    while (!moment.HasCome()) std::this_thread::yield();
    ASSERT_FALSE(moments_.MayIssue(true));
    std::this_thread::sleep_for(time);
  }

  int wakes_ = 0, awaited_ = 0;
  QuietMoments moments_{[this] { ++wakes_; }, [this] { ++awaited_; }};
};

TEST_F(QuietMomentsTest, WithoutWorkACallBeginsAtOnceAndWorkWaitsForIt) {
  std::optional<QuietMoment> moment(std::in_place, moments_, Urgency::kAwaited);
  EXPECT_FALSE(moments_.MayIssue(true));
  EXPECT_EQ(wakes_, 0);
  moment.reset();
  EXPECT_EQ(wakes_, 1) << "work was held back";
  EXPECT_TRUE(moments_.MayIssue(false));
}

TEST_F(QuietMomentsTest, WaitingCallsBeginWhenDeviceIsDrained) {
  ASSERT_TRUE(moments_.MayIssue(false));
  EXPECT_FALSE(moments_.IsWanted());
  QuietMoment first(moments_, Urgency::kAwaited, kLater);
  QuietMoment second(moments_, Urgency::kHigh, kLater);
  EXPECT_FALSE(first.HasCome());
  EXPECT_TRUE(moments_.IsWanted());
  moments_.SetHold(Hold::kAllButHigh);
  EXPECT_TRUE(moments_.MayIssue(true));
  EXPECT_FALSE(moments_.MayIssue(false));
  moments_.SetHold(Hold::kAll);
  EXPECT_FALSE(moments_.MayIssue(true));
  moments_.SetHold(Hold::kNothing);
  moments_.EndWork(QuietMoments::Clock::now());
  EXPECT_TRUE(first.HasCome());
  EXPECT_TRUE(second.HasCome());
  EXPECT_FALSE(moments_.MayIssue(true));
}

TEST_F(QuietMomentsTest, NextMomentWaitsInProportionToDelayedWork) {
  constexpr milliseconds kSuspended(20);
  for (const auto& [urgency, factor] :
       {std::pair(Urgency::kHigh, 1), std::pair(Urgency::kAwaited, 4)}) {
    HoldBackFor(kSuspended);
    const auto begin = QuietMoments::Clock::now();
    QuietMoment next(moments_, urgency, kLater);
    while (!next.HasCome()) std::this_thread::yield();
    EXPECT_GE(QuietMoments::Clock::now() - begin, factor * kSuspended - milliseconds(1)) << factor;
  }
}

TEST_F(QuietMomentsTest, MomentWithoutDelayedWorkIsFollowedAtOnce) {
  {
    const QuietMoment moment(moments_, Urgency::kAwaited);
    std::this_thread::sleep_for(milliseconds(20));
  }
  QuietMoment next(moments_, Urgency::kAwaited, kLater);
  EXPECT_TRUE(next.HasCome());
  EXPECT_EQ(moments_.held_back().count(), 0);
}

TEST_F(QuietMomentsTest, IdleDeviceDoesNotAdmitCallEarly) {
  HoldBackFor(milliseconds(200));
  ASSERT_TRUE(moments_.MayIssue(false));
  QuietMoment moment(moments_, Urgency::kAwaited, kLater);
  moments_.EndWork();
  EXPECT_FALSE(moment.HasCome());
  EXPECT_TRUE(moments_.MayIssue(false));
  EXPECT_GE(moments_.held_back(), milliseconds(200));
}

TEST_F(QuietMomentsTest, NestedMomentsAndDeviceThreadDoNotWait) {
  {
    const QuietMoment outer(moments_, Urgency::kAwaited);
    const QuietMoment inner(moments_, Urgency::kUnhurried);
    EXPECT_EQ(awaited_, 0);
  }
  ASSERT_TRUE(moments_.MayIssue(false));
  const QuietMoment own(moments_, Urgency::kAwaited);
  EXPECT_TRUE(moments_.MayIssue(false)) << "it held nothing";
}

TEST_F(QuietMomentsTest, BackgroundMomentWaitsForUrgentRequests) {
  const QuietMoment moment(moments_, Urgency::kUnhurried);
  EXPECT_EQ(awaited_, 1);
}

TEST_F(QuietMomentsTest, DeadContextEndsAllWaits) {
  ASSERT_TRUE(moments_.MayIssue(false));
  auto waits = std::async(std::launch::async,
                          [this] { const QuietMoment moment(moments_, Urgency::kAwaited); });
  EXPECT_EQ(waits.wait_for(milliseconds(50)), std::future_status::timeout);
  moments_.GiveUp();
  waits.get();
}

// ---- a device whose driver blocks as badly as reported

class QuietDevice : public CudaDeviceTest {
 protected:
  void SetUp() override {
    CudaDeviceTest::SetUp();
    Script("lock on");
    Start();
    tenant_ = NewTenant();
    space_ = gpu()
                 .CreateSpace({.quota_bytes = 16 * kMebibyte, .isolation = Isolation::kContain})
                 .value();
    EXPECT_TRUE(space_->Resize(4 * kMebibyte).ok());
    contained_ = Load(*space_, kContainedKernels).value();
  }
  void TearDown() override {
    contained_.reset();
    space_.reset();
    tenant_ = {};
    CudaDeviceTest::TearDown();
  }

  // Starts an endless kernel.
  WorkId BeginEndless() {
    LaunchWork work;
    work.id = ++last_id_;
    work.space = space_.get();
    work.stream = 7;
    work.module = contained_.get();
    work.kernel = KernelNamed(*contained_, "endless");
    const std::uint64_t address = space_->base();
    parameters_[work.id].resize(8);
    std::memcpy(parameters_[work.id].data(), &address, 8);
    work.parameters = parameters_[work.id];
    gpu().Submit(work);
    const std::atomic_ref<std::uint32_t> runs(*reinterpret_cast<std::uint32_t*>(address));
    while (runs.load() == 0) Poll();
    return work.id;
  }
  std::future<bool> LoadElsewhere() {
    return std::async(std::launch::async, [this] { return Load(*tenant_.space, kStorePtx).ok(); });
  }
  // Waits until the device has tried to drain, failed, and resumed.
  void AwaitAbandonedDrain() {
    const auto end = std::chrono::steady_clock::now() + milliseconds(50);
    while (std::chrono::steady_clock::now() < end) Poll();
  }

  Tenant tenant_;
  std::unique_ptr<Space> space_;
  std::shared_ptr<const device::Module> contained_;
};

TEST_F(QuietDevice, LoadWaitsForEndlessKernelWithoutDelayingOthers) {
  const WorkId endless = BeginEndless();
  auto loaded = LoadElsewhere();
  AwaitAbandonedDrain();
  EXPECT_EQ(loaded.wait_for(milliseconds(0)), std::future_status::timeout);
  std::vector<std::byte> bytes(4096);
  const WorkId copy = Copy(tenant_, CopyWork::Direction::kDeviceToHost, bytes, 0);
  EXPECT_TRUE(Await(copy).status.ok()) << "another client's work goes on";
  gpu().RequestKill(endless);
  EXPECT_EQ(Await(endless).status.code(), StatusCode::kCancelled);
  EXPECT_TRUE(loaded.get());
}

// Makes every request that a client can make of its worker while other clients' kernels run.
TEST_F(QuietDevice, MakesBlockingCallsOnlyOnIdleGpu) {
  Script("kernels 1");
  const auto chores = [this] {
    for (int i = 0; i < 3; ++i) {
      auto space =
          gpu().CreateSpace({.quota_bytes = 64 * kMebibyte, .isolation = Isolation::kContain});
      EXPECT_TRUE(space.ok() && (*space)->Resize(32 * kMebibyte).ok());
      EXPECT_TRUE(Load(**space, kContainedKernels).ok());
      EXPECT_TRUE((*space)->Resize(8 * kMebibyte).ok());
      space = gpu().CreateSpace({.quota_bytes = 64 * kMebibyte});
      const std::uint64_t address = (*space)->mapping_area().base;
      auto chunk = (*space)->MakeChunk(2 * kMebibyte);
      EXPECT_TRUE(chunk.ok() && (*space)->MapChunk(**chunk, address).ok());
      EXPECT_TRUE((*space)->Unmap(address, 2 * kMebibyte).ok());
      std::vector<std::byte> memory(kMebibyte);
      EXPECT_TRUE(gpu().Pin(memory).ok());
    }
  };
  auto done = std::async(std::launch::async, chores);
  std::vector<WorkId> works;
  while (done.wait_for(milliseconds(0)) != std::future_status::ready) {
    while (works.size() < order_.size() + 4) {
      const auto stream = static_cast<StreamKey>(works.size() % 3);
      works.push_back(Store(tenant_, tenant_.At(64), 1 + stream));
    }
    Poll();
  }
  for (const WorkId id : works) EXPECT_TRUE(Await(id).status.ok());
  EXPECT_EQ(fake_cuda_lock_waits(), 0U);
}

TEST_F(QuietDevice, ResumesWorkOfAllClassesAfterLoad) {
  Script("kernels 2");
  std::vector<WorkId> works;
  auto loaded = LoadElsewhere();
  for (std::uint64_t i = 0; i < 30; ++i) {
    works.push_back(Store(tenant_, tenant_.At(4 * i), 1 + i % 3, static_cast<std::uint8_t>(i % 3)));
    Poll();
  }
  while (loaded.wait_for(milliseconds(0)) != std::future_status::ready) Poll();
  for (const WorkId id : works) EXPECT_TRUE(Await(id).status.ok());
}

TEST_F(QuietDevice, DeadContextEndsWaitOfLoad) {
  BeginEndless();
  auto loaded = LoadElsewhere();
  AwaitAbandonedDrain();
  Script("sticky 700");
  while (loaded.wait_for(milliseconds(0)) != std::future_status::ready) Poll();
  EXPECT_FALSE(loaded.get());
}

}  // namespace
}  // namespace gpushared::device::cuda
