// SPDX-License-Identifier: Apache-2.0
// The manual clock of the fake device, which tests of the worker stand on. What it
// shares with every device is checked by the conformance suite.
#include "tests/support/fake_device.h"

#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace gpushared::testing {
namespace {

using namespace std::chrono_literals;

constexpr std::string_view kText = R"(.version 8.0
.target sm_75
.address_size 64
.visible .entry quick() { ret; }
.visible .entry slow() { ret; }
.visible .entry endless() { ret; }
)";

class FakeDeviceTest : public ::testing::Test {
 protected:
  void SetUp() override { Make({}); }

  void Make(FakeDeviceOptions options) {
    module_.reset();
    space_.reset();
    options.kernels["quick"].block_time = 10us;
    options.kernels["slow"].block_time = 1ms;
    options.kernels["endless"].block_time = kForEver;
    device_ = FakeDevice::Create(std::move(options), [this] { ++wakes_; });
    space_ = std::move(*device_->CreateSpace({.quota_bytes = 1 << 24}));
    auto loaded = space_->LoadModule(std::as_bytes(std::span(kText.data(), kText.size())));
    ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
    module_ = *loaded;
  }

  device::WorkId Launch(std::uint32_t kernel, std::uint32_t blocks, device::StreamKey stream = 1,
                        std::uint8_t priority = 0) {
    device::LaunchWork work;
    work.id = ++last_id_;
    work.space = space_.get();
    work.stream = stream;
    work.priority = priority;
    work.module = module_.get();
    work.kernel = kernel;
    work.grid = {blocks, 1, 1};
    device_->Submit(work);
    return work.id;
  }

  std::vector<device::Completion> Take() {
    std::array<device::Completion, 16> out;
    const std::size_t count = device_->TakeCompletions(out);
    return {out.begin(), out.begin() + static_cast<std::ptrdiff_t>(count)};
  }

  std::unique_ptr<FakeDevice> device_;
  std::unique_ptr<device::Space> space_;
  std::shared_ptr<const device::Module> module_;
  device::WorkId last_id_ = 0;
  int wakes_ = 0;
};

TEST_F(FakeDeviceTest, NothingEndsBeforeItsTime) {
  Launch(0, 3);
  device_->AdvanceBy(29us);
  EXPECT_TRUE(Take().empty());
  EXPECT_EQ(device_->work_count(), 1U);
  device_->AdvanceBy(1us);
  const auto done = Take();
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].ended - done[0].started, 30us);
  EXPECT_EQ(device_->work_count(), 0U);
  EXPECT_EQ(wakes_, 1);
}

TEST_F(FakeDeviceTest, StopTakesEffectAtTheEndOfTheUnit) {
  const device::WorkId id = Launch(1, 10);
  device_->AdvanceBy(2500us);
  device_->RequestStop(id);
  EXPECT_TRUE(Take().empty());
  device_->AdvanceBy(500us);
  const auto done = Take();
  ASSERT_EQ(done.size(), 1U);
  EXPECT_TRUE(done[0].stopped);
  EXPECT_EQ(done[0].units_done, 3U);
}

TEST_F(FakeDeviceTest, KillTakesEffectAtOnce) {
  const device::WorkId id = Launch(2, 1);
  EXPECT_FALSE(device_->AdvanceToNextEvent());
  device_->AdvanceBy(1h);
  EXPECT_TRUE(Take().empty());
  device_->RequestKill(id);
  const auto done = Take();
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].status.code(), StatusCode::kCancelled);
  EXPECT_EQ(done[0].ended - done[0].started, 1h);
}

TEST_F(FakeDeviceTest, MultiprocessorsRunUnitsSideBySide) {
  FakeDeviceOptions options;
  options.multiprocessors = 4;
  Make(std::move(options));
  Launch(1, 8);
  device_->AdvanceBy(2ms);
  EXPECT_EQ(Take().size(), 1U);
}

TEST_F(FakeDeviceTest, HigherPriorityTakesTheNextFreeMultiprocessor) {
  Launch(1, 5, 1, 0);
  device_->AdvanceBy(500us);
  const device::WorkId high = Launch(0, 1, 2, 1);
  device_->AdvanceBy(510us);
  const auto done = Take();
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].id, high);
}

TEST_F(FakeDeviceTest, DeviceThatCannotPreemptIgnoresStopsAndKills) {
  FakeDeviceOptions options;
  options.preemption = device::Preemption::kBetweenCommands;
  Make(std::move(options));
  const device::WorkId id = Launch(1, 4);
  device_->RequestStop(id);
  device_->RequestKill(id);
  device_->AdvanceBy(4ms);
  const auto done = Take();
  ASSERT_EQ(done.size(), 1U);
  EXPECT_TRUE(done[0].status.ok());
  EXPECT_FALSE(done[0].stopped);
}

TEST_F(FakeDeviceTest, CopiesTakeTheirTimePerPiece) {
  ASSERT_TRUE(space_->Resize(1 << 20).ok());
  device::FillWork work;
  work.id = 77;
  work.space = space_.get();
  work.destination = space_->base();
  work.width_bytes = 3 * device::kCopyPieceBytes;
  device_->Submit(work);
  device_->AdvanceBy(29us);
  EXPECT_TRUE(Take().empty());
  device_->AdvanceBy(1us);
  EXPECT_EQ(Take().size(), 1U);
}

TEST_F(FakeDeviceTest, DurationMayDependOnTheBlock) {
  FakeDeviceOptions options;
  options.kernels["quick"].block_time_of = [](const FakeBlock& block) {
    return std::chrono::microseconds(block.index);
  };
  Make(std::move(options));
  Launch(0, 4);
  device_->AdvanceBy(6us);
  EXPECT_EQ(Take().size(), 1U);
}

}  // namespace
}  // namespace gpushared::testing
