// SPDX-License-Identifier: Apache-2.0
// What only the cpu device promises; the rest is in the conformance suite.
#include "server/device/cpu/cpu_device.h"

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "server/device/cpu/address_range.h"

namespace gpushared::device {
namespace {

using namespace std::chrono_literals;

constexpr std::string_view kText = R"(.version 8.0
.target sm_75
.address_size 64
.visible .entry endless() { $L: bra.uni $L; }
.visible .entry nothing(.param .u64 unused) { ret; }
.visible .entry small() .maxntid 32, 1, 1 { ret; }
)";
enum Kernel : std::uint32_t { kEndless, kNothing, kSmall };

class CpuDeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto created = CreateCpuDevice({.executor_threads = 2, .memory_bytes = 1 << 26}, [this] {
      const std::lock_guard lock(mutex_);
      ++wakes_;
      woken_.notify_all();
    });
    ASSERT_TRUE(created.ok()) << created.status().ToString();
    device_ = std::move(*created);
    space_ = std::move(*device_->CreateSpace({.quota_bytes = 1 << 24}));
    auto loaded = space_->LoadModule(std::as_bytes(std::span(kText.data(), kText.size())));
    ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
    module_ = *loaded;
  }

  LaunchWork Work(std::uint32_t kernel) {
    LaunchWork work;
    work.id = ++last_id_;
    work.space = space_.get();
    work.stream = 1;
    work.module = module_.get();
    work.kernel = kernel;
    return work;
  }

  Completion Await() {
    std::array<Completion, 2> out;  // Room for two asks for a wake when there is one.
    while (device_->TakeCompletions(out) == 0) {
      std::unique_lock lock(mutex_);
      woken_.wait(lock, [this] { return wakes_ > 0; });
      --wakes_;
    }
    return out[0];
  }

  std::mutex mutex_;
  std::condition_variable woken_;
  int wakes_ = 0;  // Protected by mutex_.

  std::unique_ptr<Device> device_;
  std::unique_ptr<Space> space_;
  std::shared_ptr<const Module> module_;
  WorkId last_id_ = 0;
};

TEST_F(CpuDeviceTest, LaunchThatDoesNotFitTheKernelIsRefusedInItsCompletion) {
  const std::array<std::byte, 8> eight{};
  std::vector<LaunchWork> wrong;
  wrong.push_back(Work(99));
  wrong.push_back(Work(kNothing));  // Without its parameters.
  wrong.push_back(Work(kEndless));
  wrong.back().parameters = eight;  // With parameters it does not have.
  wrong.push_back(Work(kEndless));
  wrong.back().block = {1025, 1, 1};
  wrong.push_back(Work(kEndless));
  wrong.back().block = {0, 1, 1};
  wrong.push_back(Work(kEndless));
  wrong.back().block = {0xffffffff, 0xffffffff, 1};
  wrong.push_back(Work(kEndless));
  wrong.back().grid = {1, 65536, 1};
  wrong.push_back(Work(kEndless));
  wrong.back().grid = {1, 1, 0};
  wrong.push_back(Work(kEndless));
  wrong.back().dynamic_shared_bytes = 228 * 1024;
  wrong.push_back(Work(kEndless));
  wrong.back().first_unit = 2;
  wrong.push_back(Work(kSmall));
  wrong.back().block = {33, 1, 1};
  wrong.push_back(Work(kEndless));
  wrong.back().module = nullptr;
  for (const LaunchWork& work : wrong) {
    device_->Submit(work);
    const Completion completion = Await();
    EXPECT_EQ(completion.id, work.id);
    EXPECT_EQ(completion.status.code(), StatusCode::kInvalidArgument) << "work " << work.id;
    EXPECT_NE(completion.status.message().find("refused"), std::string::npos);
  }
}

TEST_F(CpuDeviceTest, FillThatBreaksItsRulesIsRefusedInItsCompletion) {
  ASSERT_TRUE(space_->Resize(kMapStepBytes).ok());
  FillWork good;
  good.space = space_.get();
  good.stream = 1;
  good.destination = space_->base();
  good.element_bytes = 4;
  good.width_bytes = 64;
  good.height = 2;
  good.pitch_bytes = 128;
  std::vector<FillWork> wrong(7, good);
  wrong[0].element_bytes = 3;
  wrong[1].destination += 2;
  wrong[2].width_bytes = 63;
  wrong[3].pitch_bytes = 130;
  wrong[4].pitch_bytes = 60;
  wrong[5].height = std::uint64_t{1} << 60;
  wrong[6].pitch_bytes = std::uint64_t{1} << 63;
  for (FillWork work : wrong) {
    work.id = ++last_id_;
    device_->Submit(work);
    EXPECT_EQ(Await().status.code(), StatusCode::kInvalidArgument) << "work " << work.id;
  }
  good.id = ++last_id_;
  device_->Submit(good);
  EXPECT_TRUE(Await().status.ok());
}

// The worker is going down and waits for nothing.
TEST_F(CpuDeviceTest, DestructionEndsRunningAndWaitingWork) {
  for (int i = 0; i < 4; ++i) {
    LaunchWork work = Work(kEndless);
    work.grid = {8, 1, 1};
    device_->Submit(work);
  }
  device_.reset();
}

TEST_F(CpuDeviceTest, EndlessWorkLeavesTheOtherThreadToOthers) {
  const LaunchWork endless = Work(kEndless);
  device_->Submit(endless);
  const std::array<std::byte, 8> parameters{};
  for (int i = 0; i < 10; ++i) {
    LaunchWork work = Work(kNothing);
    work.stream = 2;
    work.grid = {100, 1, 1};
    work.parameters = parameters;
    device_->Submit(work);
    const Completion completion = Await();
    EXPECT_EQ(completion.id, work.id);
    EXPECT_TRUE(completion.status.ok()) << completion.status.ToString();
  }
  device_->RequestKill(endless.id);
  EXPECT_EQ(Await().status.code(), StatusCode::kCancelled);
}

// More busy threads than cores: each is kept from one for a part of the time.
TEST_F(CpuDeviceTest, TheHostsDelayGrowsAndIsNeverMoreThanTheTime) {
  const DeviceClock::time_point start = DeviceClock::now();
  const std::chrono::nanoseconds delay_at_start = device_->HostDelayUntil(start);
  std::atomic<bool> is_over = false;
  std::vector<std::thread> others;
  for (unsigned i = 0; i < 2 * std::thread::hardware_concurrency(); ++i) {
    others.emplace_back([&] {
      while (!is_over.load(std::memory_order_relaxed)) {
      }
    });
  }
  LaunchWork work = Work(kEndless);
  work.grid = {2, 1, 1};
  device_->Submit(work);
  std::chrono::nanoseconds delay{};
  while (delay < 20ms && DeviceClock::now() - start < 60s) {
    std::this_thread::sleep_for(1ms);
    const std::chrono::nanoseconds until_now = device_->HostDelayUntil(DeviceClock::now());
    const std::chrono::nanoseconds before = std::exchange(delay, until_now - delay_at_start);
    EXPECT_GE(delay, before);
    EXPECT_LE(delay, DeviceClock::now() - start);
  }
  EXPECT_GE(delay, 20ms);
  is_over = true;
  for (std::thread& other : others) other.join();
  device_->RequestKill(work.id);
  Await();
}

}  // namespace
}  // namespace gpushared::device
