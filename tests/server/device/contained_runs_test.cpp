// SPDX-License-Identifier: Apache-2.0
// The cpu device that runs contained forms: what it shares with them, and how their faults become
// errors. What they may reach is for tests/passes.
#include "server/device/cpu/contained_runs.h"

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/device/cpu/cpu_device.h"
#include "server/device/cpu/cpu_space.h"
#include "server/ptx/passes/contain.h"
#include "tests/server/device/contained_kernels.h"

namespace gpushared::device {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::uint64_t kMebibyte = std::uint64_t{1} << 20;

// In the order of kContainedKernels.
enum Kernel : std::uint32_t { kFine, kTraps, kEndless, kByAddress, kFillsVariable };

class ContainedRunsTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    auto device = CreateCpuDevice(
        {.executor_threads = 2, .passes = {.isolation = Isolation::kContain, .claims = GetParam()}},
        [] {});
    ASSERT_TRUE(device) << device.status().message();
    device_ = *std::move(device);
    auto space = device_->CreateSpace({.quota_bytes = 16 * kMebibyte});
    ASSERT_TRUE(space) << space.status().message();
    space_ = *std::move(space);
    ASSERT_TRUE(space_->Resize(4 * kMebibyte));
    module_ = Load();
  }
  std::shared_ptr<const Module> Load() {
    auto module = space_->LoadModule(std::as_bytes(std::span(kContainedKernels)));
    EXPECT_TRUE(module) << module.status().message();
    return module ? *module : nullptr;
  }

  WorkId Submit(Kernel kernel, std::uint64_t address, StreamKey stream = 1, Dim3 grid = {1, 1, 1}) {
    LaunchWork work;
    work.id = ++last_;
    work.space = space_.get();
    work.stream = stream;
    work.module = module_.get();
    work.kernel = kernel;
    work.grid = grid;
    work.block = {1, 1, 1};
    parameters_.push_back(std::make_unique<std::uint64_t>(address));
    work.parameters = std::as_bytes(std::span(parameters_.back().get(), 1));
    device_->Submit(work);
    return work.id;
  }
  Completion Await(WorkId id) {
    for (;;) {
      for (Completion& completion : completions_) {
        if (completion.id == id) return completion;
      }
      std::array<Completion, 4> taken;
      const std::size_t count = device_->TakeCompletions(taken);
      completions_.insert(completions_.end(), taken.begin(), taken.begin() + count);
      std::this_thread::yield();
    }
  }
  Completion Run(Kernel kernel, std::uint64_t address, Dim3 grid = {1, 1, 1}) {
    return Await(Submit(kernel, address, 1, grid));
  }
  std::uint64_t At(std::uint64_t offset) const { return space_->base() + offset; }
  // Also while a kernel changes it with an atomic instruction.
  std::uint32_t Word(std::uint64_t offset) const {
    return std::atomic_ref(*reinterpret_cast<std::uint32_t*>(At(offset))).load();
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Space> space_;
  std::shared_ptr<const Module> module_;
  std::vector<std::unique_ptr<std::uint64_t>> parameters_;
  std::vector<Completion> completions_;
  WorkId last_ = 0;
};

TEST_P(ContainedRunsTest, AFaultFailsItsLaunchAloneAndIsForgotten) {
  const Completion faulted = Run(kTraps, At(0), {1000, 1, 1});
  EXPECT_EQ(faulted.status.code(), StatusCode::kKernelFault);
  EXPECT_THAT(std::string(faulted.status.message()),
              HasSubstr("kernel 'traps' ended early: trap at line 10 of 'traps' [block "
                        "(3,0,0) thread (0,0,0)]"));
  EXPECT_TRUE(Run(kFine, At(64)).status.ok());
  EXPECT_EQ(Word(64), 7U);
  EXPECT_TRUE(Run(kTraps, At(0), {3, 1, 1}).status.ok());
}

TEST_P(ContainedRunsTest, AKilledKernelLeavesByItsPollAndIsForgotten) {
  const WorkId endless = Submit(kEndless, At(0), 1, {4, 1, 1});
  while (Word(0) == 0) std::this_thread::yield();
  device_->RequestKill(endless);
  const Completion ended = Await(endless);
  EXPECT_EQ(ended.status.code(), StatusCode::kCancelled);
  EXPECT_THAT(std::string(ended.status.message()),
              HasSubstr("killed on request: kernel 'endless' ended early: stopped by the "
                        "server at line"));
  EXPECT_TRUE(Run(kFine, At(64)).status.ok());
}

TEST_P(ContainedRunsTest, KillingWhatHasNotBegunStopsNobody) {
  const WorkId endless = Submit(kEndless, At(0));
  const WorkId behind = Submit(kFine, At(64));
  while (Word(0) == 0) std::this_thread::yield();
  device_->RequestKill(behind);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  device_->RequestKill(endless);
  EXPECT_THAT(std::string(Await(endless).status.message()), HasSubstr("line 13 of 'endless'"));
  EXPECT_EQ(Await(behind).status.message(), "killed on request");
  EXPECT_EQ(Word(64), 0U);
}

TEST_P(ContainedRunsTest, AKillIsNeverLostBetweenTwoRuns) {
  // At every moment of its beginning.
  for (int round = 0; round < 600; ++round) {
    const WorkId endless = Submit(kEndless, At(0));
    const auto until = DeviceClock::now() + std::chrono::nanoseconds(150 * round);
    while (DeviceClock::now() < until) {
    }
    device_->RequestKill(endless);
    EXPECT_EQ(Await(endless).status.code(), StatusCode::kCancelled);
    EXPECT_TRUE(Run(kFine, At(64)).status.ok());
  }
}

TEST_P(ContainedRunsTest, VariablesAreReachedByTheirAddresses) {
  const Completion ran = Run(kByAddress, At(0));
  EXPECT_TRUE(ran.status.ok()) << ran.status.message();
  EXPECT_EQ(Word(0), 10U);
}

TEST_P(ContainedRunsTest, StrayWritesAreNeitherFaultsNorInMemoryThatIsMappedLater) {
  for (const std::uint64_t stray : {4 * kMebibyte, 8 * kMebibyte, std::uint64_t{1} << 31}) {
    const Completion ran = Run(kFine, At(stray));
    EXPECT_TRUE(ran.status.ok()) << ran.status.message();
  }
  EXPECT_EQ(Word(4 * kMebibyte), 7U) << "they went behind the limit";
  ASSERT_TRUE(space_->Resize(8 * kMebibyte));
  EXPECT_EQ(Word(4 * kMebibyte), 0U);
  EXPECT_TRUE(Run(kFine, At(6 * kMebibyte)).status.ok());
  EXPECT_EQ(Word(6 * kMebibyte), 7U) << "the limit has moved";
  ASSERT_TRUE(space_->Resize(2 * kMebibyte));
  EXPECT_TRUE(Run(kFine, At(6 * kMebibyte)).status.ok());
  EXPECT_EQ(Word(2 * kMebibyte), 7U);
  ASSERT_TRUE(space_->Resize(8 * kMebibyte));
  EXPECT_EQ(Word(2 * kMebibyte), 0U);
  EXPECT_EQ(Word(6 * kMebibyte), 0U);
}

TEST_P(ContainedRunsTest, KernelsDoNotReachTheWordsThatSpeakForThem) {
  const auto& runs = *static_cast<const CpuModule&>(*module_).contained();
  for (const std::uint64_t word :
       {runs.control_address() + offsetof(ptx::ContainControl, stop), runs.fault_address()}) {
    EXPECT_TRUE(Run(kFine, word).status.ok());
    EXPECT_EQ(*reinterpret_cast<const std::uint32_t*>(word), 0U);
  }
}

TEST_P(ContainedRunsTest, ModulesHaveVariablesAndWordsOfTheirOwn) {
  EXPECT_TRUE(Run(kFillsVariable, At(0)).status.ok());
  const std::shared_ptr<const Module> first = module_;
  module_ = Load();
  EXPECT_TRUE(Run(kByAddress, At(0)).status.ok());
  EXPECT_EQ(Word(0), 10U);
  EXPECT_NE(static_cast<const CpuModule&>(*first).contained()->fault_address(),
            static_cast<const CpuModule&>(*module_).contained()->fault_address());
}

INSTANTIATE_TEST_SUITE_P(All, ContainedRunsTest, ::testing::Bool(), [](const auto& any) {
  return std::string(any.param ? "Claimed" : "Whole");
});

}  // namespace
}  // namespace gpushared::device
