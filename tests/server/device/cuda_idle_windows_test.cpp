// SPDX-License-Identifier: Apache-2.0
// Driver calls that need an idle window: when they begin, and how much they delay work.

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

#include "server/device/cuda/idle_windows.h"
#include "tests/server/device/contained_kernels.h"
#include "tests/server/device/cuda_device_fixture.h"

namespace gpushared::device::cuda {
namespace {

using std::chrono::milliseconds;
using Hold = IdleWindows::Hold;

// ---- the windows alone; the test's thread acts as the device thread

class IdleWindowsTest : public ::testing::Test {
 protected:
  static constexpr auto kLater = IdleWindow::Wait::kLater;

  // Opens an idle window that delays work for this long.
  void HoldBackFor(std::chrono::nanoseconds time) {
    IdleWindow window(idle_windows_, Urgency::kHigh, kLater);
    while (!window.HasBegun()) std::this_thread::yield();
    ASSERT_FALSE(idle_windows_.MayIssue(true));
    std::this_thread::sleep_for(time);
  }

  int wakes_ = 0, awaited_ = 0;
  IdleWindows idle_windows_{[this] { ++wakes_; }, [this] { ++awaited_; }};
};

TEST_F(IdleWindowsTest, WithoutWorkACallBeginsAtOnceAndWorkWaitsForIt) {
  std::optional<IdleWindow> window(std::in_place, idle_windows_, Urgency::kAwaited);
  EXPECT_FALSE(idle_windows_.MayIssue(true));
  EXPECT_EQ(wakes_, 0);
  window.reset();
  EXPECT_EQ(wakes_, 1) << "work was held back";
  EXPECT_TRUE(idle_windows_.MayIssue(false));
}

TEST_F(IdleWindowsTest, WaitingCallsBeginWhenDeviceIsDrained) {
  ASSERT_TRUE(idle_windows_.MayIssue(false));
  EXPECT_FALSE(idle_windows_.IsWanted());
  IdleWindow first(idle_windows_, Urgency::kAwaited, kLater);
  IdleWindow second(idle_windows_, Urgency::kHigh, kLater);
  EXPECT_FALSE(first.HasBegun());
  EXPECT_TRUE(idle_windows_.IsWanted());
  idle_windows_.SetHold(Hold::kAllButHigh);
  EXPECT_TRUE(idle_windows_.MayIssue(true));
  EXPECT_FALSE(idle_windows_.MayIssue(false));
  idle_windows_.SetHold(Hold::kAll);
  EXPECT_FALSE(idle_windows_.MayIssue(true));
  idle_windows_.SetHold(Hold::kNothing);
  idle_windows_.EndWork(IdleWindows::Clock::now());
  EXPECT_TRUE(first.HasBegun());
  EXPECT_TRUE(second.HasBegun());
  EXPECT_FALSE(idle_windows_.MayIssue(true));
}

TEST_F(IdleWindowsTest, NextWindowWaitsInProportionToDelayedWork) {
  constexpr milliseconds kSuspended(20);
  for (const auto& [urgency, factor] :
       {std::pair(Urgency::kHigh, 1), std::pair(Urgency::kAwaited, 4)}) {
    HoldBackFor(kSuspended);
    const auto begin = IdleWindows::Clock::now();
    IdleWindow next(idle_windows_, urgency, kLater);
    while (!next.HasBegun()) std::this_thread::yield();
    EXPECT_GE(IdleWindows::Clock::now() - begin, factor * kSuspended - milliseconds(1)) << factor;
  }
}

TEST_F(IdleWindowsTest, WindowWithoutDelayedWorkIsFollowedAtOnce) {
  {
    const IdleWindow window(idle_windows_, Urgency::kAwaited);
    std::this_thread::sleep_for(milliseconds(20));
  }
  IdleWindow next(idle_windows_, Urgency::kAwaited, kLater);
  EXPECT_TRUE(next.HasBegun());
  EXPECT_EQ(idle_windows_.held_back().count(), 0);
}

TEST_F(IdleWindowsTest, IdleDeviceDoesNotAdmitCallEarly) {
  HoldBackFor(milliseconds(200));
  ASSERT_TRUE(idle_windows_.MayIssue(false));
  IdleWindow window(idle_windows_, Urgency::kAwaited, kLater);
  idle_windows_.EndWork();
  EXPECT_FALSE(window.HasBegun());
  EXPECT_TRUE(idle_windows_.MayIssue(false));
  EXPECT_GE(idle_windows_.held_back(), milliseconds(200));
}

TEST_F(IdleWindowsTest, NestedWindowsAndDeviceThreadDoNotWait) {
  {
    const IdleWindow outer(idle_windows_, Urgency::kAwaited);
    const IdleWindow inner(idle_windows_, Urgency::kUnhurried);
    EXPECT_EQ(awaited_, 0);
  }
  ASSERT_TRUE(idle_windows_.MayIssue(false));
  const IdleWindow own(idle_windows_, Urgency::kAwaited);
  EXPECT_TRUE(idle_windows_.MayIssue(false)) << "it held nothing";
}

TEST_F(IdleWindowsTest, BackgroundWindowWaitsForUrgentRequests) {
  const IdleWindow window(idle_windows_, Urgency::kUnhurried);
  EXPECT_EQ(awaited_, 1);
}

TEST_F(IdleWindowsTest, DeadContextEndsAllWaits) {
  ASSERT_TRUE(idle_windows_.MayIssue(false));
  auto waits = std::async(std::launch::async,
                          [this] { const IdleWindow window(idle_windows_, Urgency::kAwaited); });
  EXPECT_EQ(waits.wait_for(milliseconds(50)), std::future_status::timeout);
  idle_windows_.GiveUp();
  waits.get();
}

// ---- a device whose driver blocks as badly as reported

class CudaIdleWindows : public CudaDeviceTest {
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
  // Polls for long enough that the device tries to drain, fails and resumes.
  void AwaitAbandonedDrain() {
    const auto end = std::chrono::steady_clock::now() + milliseconds(50);
    while (std::chrono::steady_clock::now() < end) Poll();
  }

  Tenant tenant_;
  std::unique_ptr<Space> space_;
  std::shared_ptr<const device::Module> contained_;
};

TEST_F(CudaIdleWindows, LoadWaitsForEndlessKernelWithoutDelayingOthers) {
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
TEST_F(CudaIdleWindows, MakesBlockingCallsOnlyOnIdleGpu) {
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

TEST_F(CudaIdleWindows, ResumesWorkOfAllClassesAfterLoad) {
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

TEST_F(CudaIdleWindows, DeadContextEndsWaitOfLoad) {
  BeginEndless();
  auto loaded = LoadElsewhere();
  AwaitAbandonedDrain();
  Script("sticky 700");
  while (loaded.wait_for(milliseconds(0)) != std::future_status::ready) Poll();
  EXPECT_FALSE(loaded.get());
}

}  // namespace
}  // namespace gpushared::device::cuda
