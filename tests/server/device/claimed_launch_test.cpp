// SPDX-License-Identifier: Apache-2.0
// That the cpu device with claims really runs the claimed forms; what they compute is for
// tests/conformance.
#include "server/device/cpu/claimed_launch.h"

#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "server/device/cpu/cpu_device.h"
#include "server/device/cpu/cpu_space.h"

namespace gpushared::device {
namespace {

// `whole` cannot be claimed; the module has a variable ahead of the claims' words.
constexpr const char* kText = R"(
.version 8.1
.target sm_75
.address_size 64
.global .align 4 .b8 variable[5];
.entry quick(.param .u64 words) {
.reg .b32 %r<3>; .reg .b64 %rd<4>;
ld.param.u64 %rd0, [words];
mov.u32 %r0, %ctaid.x;
mul.wide.u32 %rd1, %r0, 4;
add.s64 %rd2, %rd0, %rd1;
st.global.u32 [%rd2], 7;
ret;
}
.entry whole(.param .u64 words) {
.reg .b64 %rd<2>;
mov.u64 %rd0, %gridid;
ret;
}
)";

class ClaimedLaunches : public ::testing::Test {
 protected:
  void SetUp() override { Start(true); }

  void Start(bool claims) {
    module_.reset();
    space_.reset();
    auto device = CreateCpuDevice({.executor_threads = 2, .passes = {.claims = claims}}, [] {});
    ASSERT_TRUE(device) << device.status().message();
    device_ = *std::move(device);
    auto space = device_->CreateSpace({.quota_bytes = std::uint64_t{16} << 20});
    ASSERT_TRUE(space) << space.status().message();
    space_ = *std::move(space);
    ASSERT_TRUE(space_->Resize(std::uint64_t{2} << 20));
    auto module = space_->LoadModule(std::as_bytes(std::span(kText, std::strlen(kText))));
    ASSERT_TRUE(module) << module.status().message();
    module_ = *std::move(module);
    base_ = space_->base();
  }
  void TearDown() override { module_.reset(); }

  const CpuModule& module() const { return static_cast<const CpuModule&>(*module_); }
  LaunchWork Work(std::uint32_t kernel, Dim3 grid) {
    LaunchWork work;
    work.id = 1;
    work.space = space_.get();
    work.module = module_.get();
    work.kernel = kernel;
    work.grid = grid;
    work.block = {1, 1, 1};
    work.parameters = std::as_bytes(std::span(&base_, 1));
    return work;
  }
  Completion RunToEnd(const LaunchWork& work) {
    device_->Submit(work);
    std::vector<Completion> completions(1);
    while (device_->TakeCompletions(completions) == 0) std::this_thread::yield();
    return completions[0];
  }
  std::uint32_t FirstCounter() const {
    std::uint32_t counter = 0;
    std::memcpy(&counter, reinterpret_cast<const void*>(module().slots()->CounterAddress(0)), 4);
    return counter;
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Space> space_;
  std::shared_ptr<const Module> module_;
  std::uint64_t base_ = 0;
};

TEST_F(ClaimedLaunches, TakeTheirBlocksFromTheCounter) {
  const Completion completion = RunToEnd(Work(0, {20, 2, 1}));
  EXPECT_TRUE(completion.status.ok()) << completion.status.message();
  EXPECT_EQ(completion.units_done, 40u);
  EXPECT_EQ(FirstCounter(), 40u);
}

TEST_F(ClaimedLaunches, ResumeAtTheFirstUnit) {
  LaunchWork work = Work(0, {20, 1, 1});
  work.first_unit = 15;
  EXPECT_EQ(RunToEnd(work).units_done, 20u);
  std::vector<std::uint32_t> words(20);
  std::memcpy(words.data(), reinterpret_cast<const void*>(base_), 80);
  for (std::uint32_t i = 0; i < 20; ++i) EXPECT_EQ(words[i], i < 15 ? 0u : 7u) << i;
}

TEST_F(ClaimedLaunches, AStoppedOneClaimsNothingFurther) {
  const auto claimed = ClaimedLaunch::Make(Work(0, {20, 1, 1}));
  ASSERT_NE(claimed, nullptr);
  claimed->RequestStop();
  executor::Launch launch;
  launch.grid = {20, 1, 1};
  launch.block = {1, 1, 1};
  static const MemoryPieces::List none;
  launch.memory = module().window(none);
  claimed->Apply(launch);
  executor::BlockExecutor blocks;
  const std::atomic<bool> never{false};
  const auto outcome = blocks.Run(launch, 0, 20, never, never);
  EXPECT_EQ(outcome.end, executor::RunOutcome::End::kFinished);
  EXPECT_EQ(claimed->units_done(), 0u);
}

TEST_F(ClaimedLaunches, KernelsShowTheClientNothingOfTheirForms) {
  ASSERT_EQ(module().kernels().size(), 2u);
  EXPECT_EQ(module().kernels()[0].name, "quick");
  EXPECT_EQ(module().kernels()[1].name, "whole");
  EXPECT_EQ(module().kernels()[0].parameter_bytes, 8u);
  EXPECT_NE(module().kernel(0).claimed, nullptr);
  EXPECT_EQ(module().kernel(1).claimed, nullptr);
  EXPECT_EQ(module().slots()->CounterAddress(0) % 64, 0u);
}

TEST_F(ClaimedLaunches, RunAsTheyAreWhereTheyCannotBeClaimed) {
  EXPECT_EQ(ClaimedLaunch::Make(Work(1, {4, 1, 1})), nullptr);
  EXPECT_EQ(ClaimedLaunch::Make(Work(0, {0x7fffffff, 2, 1})), nullptr);
  LaunchWork large = Work(0, {4, 1, 1});
  large.dynamic_shared_bytes = executor::kSharedBytesMax - 15;
  EXPECT_EQ(ClaimedLaunch::Make(large), nullptr);
  EXPECT_EQ(RunToEnd(Work(1, {4, 1, 1})).units_done, 4u);
}

TEST_F(ClaimedLaunches, RunAsTheyAreWhenAllSlotsAreTaken) {
  std::vector<std::unique_ptr<ClaimedLaunch>> held;
  for (std::uint32_t i = 0; i < ClaimSlots::kSlots; ++i) {
    held.push_back(ClaimedLaunch::Make(Work(0, {4, 1, 1})));
    ASSERT_NE(held.back(), nullptr);
  }
  EXPECT_EQ(ClaimedLaunch::Make(Work(0, {4, 1, 1})), nullptr);
  EXPECT_EQ(RunToEnd(Work(0, {4, 1, 1})).units_done, 4u);
  held.pop_back();
  EXPECT_NE(ClaimedLaunch::Make(Work(0, {4, 1, 1})), nullptr);
}

TEST_F(ClaimedLaunches, ACounterThatTheKernelSpoiltIsNotBelieved) {
  LaunchWork work = Work(0, {20, 1, 1});
  work.first_unit = 5;
  const auto claimed = ClaimedLaunch::Make(work);
  ASSERT_NE(claimed, nullptr);
  for (const std::uint32_t value : {0u, 4u, 21u, 0xffffffffu}) {
    std::memcpy(reinterpret_cast<void*>(module().slots()->CounterAddress(0)), &value, 4);
    EXPECT_EQ(claimed->units_done(), value < 5 ? 5u : 20u) << value;
  }
}

TEST_F(ClaimedLaunches, ADeviceWithoutClaimsHasNone) {
  Start(false);
  EXPECT_EQ(module().slots(), nullptr);
  EXPECT_EQ(module().kernel(0).claimed, nullptr);
  EXPECT_EQ(RunToEnd(Work(0, {20, 1, 1})).units_done, 20u);
}

}  // namespace
}  // namespace gpushared::device
