// SPDX-License-Identifier: Apache-2.0
// Preemptible kernels compute the same results as their originals, whenever they are stopped.
#include "server/ptx/passes/claim.h"

#include <array>
#include <atomic>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/ptx/text/parser.h"
#include "tests/passes/claim_schedules.h"
#include "tests/passes/kernel_cases.h"
#include "tests/support/read_file.h"

namespace gpushared::testing {
namespace {

constexpr std::uint32_t kThreads = 3;
constexpr std::uint64_t kMemoryBytes = std::uint64_t{512} << 10;

// A module in separate memory, with its preemptible forms.
class Bench {
 public:
  explicit Bench(const std::string& file) : memory_(kMemoryBytes / sizeof(Line)) {
    const std::string text = ReadFile(std::string(GPUSHARED_PASSES_PTX_DIR) + "/" + file + ".ptx");
    Result<ptx::Module> module = ptx::Parse(text);
    EXPECT_TRUE(module) << module.status().message();
    if (!module) return;
    const auto layout = executor::LayOutModule(*module);
    EXPECT_TRUE(layout) << layout.status().message();
    const std::vector<std::byte> initial = layout->InitialBytes(base());
    std::ranges::copy(initial, reinterpret_cast<std::byte*>(memory_.data()));
    used_ = layout->bytes;
    auto made = ClaimedModule::Make(*module, *layout, base());
    EXPECT_TRUE(made) << made.status().message();
    if (made) module_ = *std::move(made);
  }

  // Returns nothing if there is no preemptible form.
  std::optional<PreemptibleLaunch> Prepare(const Case& what) {
    const ptx::PreemptibleKernel* kernel = module_ ? module_->Find(what.kernel) : nullptr;
    if (kernel == nullptr) return std::nullopt;
    PreemptibleLaunch launch;
    launch.original = &module_->Original(*kernel);
    launch.claimed = &module_->Claimed(*kernel);
    EXPECT_EQ(launch.claimed->info().unsupported, "");
    launch.parameter_offset = kernel->parameter_offset;
    launch.grid = what.grid;
    launch.block = what.block;
    launch.dynamic_shared_bytes = what.dynamic_shared_bytes;
    launch.parameters = FillBuffers(what, reinterpret_cast<std::byte*>(memory_.data()), used_);
    launch.parameters.resize(launch.original->info().parameter_bytes);
    launch.memory = {.base = base(), .mapped_bytes = &mapped_bytes_};
    launch.bytes = {reinterpret_cast<std::byte*>(memory_.data()), used_};
    return launch;
  }

  const ClaimedModule& module() const { return *module_; }

 private:
  struct alignas(256) Line {
    std::array<std::byte, 256> bytes;
  };

  std::uint64_t base() const { return reinterpret_cast<std::uint64_t>(memory_.data()); }

  std::vector<Line> memory_;
  std::atomic<std::uint64_t> mapped_bytes_ = kMemoryBytes;
  std::uint64_t used_ = 0;
  std::unique_ptr<ClaimedModule> module_;
};

class ClaimedKernels : public ::testing::TestWithParam<std::size_t> {};

TEST_P(ClaimedKernels, ComputeTheSameUnderEverySchedule) {
  const Case& what = Cases()[GetParam()];
  Bench bench(what.file);
  const std::optional<PreemptibleLaunch> launch = bench.Prepare(what);
  ASSERT_TRUE(launch) << what.kernel << " has no claimed form";
  const std::vector<std::byte> before(launch->bytes.begin(), launch->bytes.end());
  ScheduleRunner runner(kThreads);
  EXPECT_EQ(runner.Run(*launch, Schedules(), GetParam() * 100000), "");
  // The kernel must have changed memory, because comparing unchanged memory would prove nothing.
  EXPECT_FALSE(std::ranges::equal(before, launch->bytes)) << "the kernel writes nothing";
  EXPECT_EQ(runner.schedules(), Schedules());
  // Stops must have occurred in the middle of launches, not only between them.
  EXPECT_GT(runner.stops(), Schedules() / 10);
}

INSTANTIATE_TEST_SUITE_P(All, ClaimedKernels, ::testing::Range<std::size_t>(0, Cases().size()),
                         [](const auto& any) {
                           const Case& what = Cases()[any.param];
                           return std::string(what.file) + "_" + what.kernel + "_" +
                                  std::to_string(any.param);
                         });

// Memory that the original does not change is compared once, after all schedules.
TEST(Schedules, DetectDifferentAndStrayWrites) {
  const auto made = [](const std::string& body) {
    const Result<ptx::Module> module = ptx::Parse(
        ".version 8.0\n.target sm_75\n.address_size 64\n.entry k(.param .u64 out) {\n"
        ".reg .b64 %rd<4>; .reg .b32 %r<4>; ld.param.u64 %rd1, [out];\n"
        "mov.u32 %r1, %ctaid.x; mad.wide.u32 %rd2, %r1, 4, %rd1;\n" +
        body + "\nret; }\n");
    return *ClaimedModule::Make(*module, *executor::LayOutModule(*module), 0);
  };
  const auto original = made("st.global.u32 [%rd2], 7;");
  std::vector<std::uint64_t> memory(2048);
  const std::atomic<std::uint64_t> mapped_bytes{memory.size() * 8};
  const auto base = reinterpret_cast<std::uint64_t>(memory.data());
  const auto run = [&](const ClaimedModule& other) {
    std::ranges::fill(memory, 0);
    PreemptibleLaunch launch;
    launch.original = &original->Original(*original->Find("k"));
    launch.claimed = &other.Claimed(*other.Find("k"));
    launch.parameter_offset = other.Find("k")->parameter_offset;
    launch.grid = {5, 1, 1};
    launch.block = {1, 1, 1};
    launch.parameters.resize(sizeof base);
    std::memcpy(launch.parameters.data(), &base, sizeof base);
    launch.memory = {.base = base, .mapped_bytes = &mapped_bytes};
    launch.bytes = std::as_writable_bytes(std::span(memory));
    return ScheduleRunner(1).Run(launch, 10, 1);
  };
  EXPECT_EQ(run(*original), "");
  EXPECT_THAT(run(*made("st.global.u32 [%rd2], 8;")), ::testing::StartsWith("schedule 1: byte"));
  EXPECT_EQ(run(*made("st.global.u32 [%rd2], 7; st.global.u32 [%rd1+8192], 9;")),
            "one of 10 schedules: byte 8192 is 9 instead of 0");
}

TEST(Claimed, RejectsKernelsThatWaitForAllBlocksWithReason) {
  Bench bench("claims");
  const auto& kernels = bench.module().kernels();
  const auto found =
      std::ranges::find(kernels, "barrier_of_the_grid", &ptx::PreemptibleKernel::kernel);
  ASSERT_NE(found, kernels.end());
  EXPECT_EQ(found->claimed, "");
  EXPECT_THAT(found->reason, ::testing::HasSubstr("waiting"));
}

TEST(Claimed, TreatsLocksSharedByBlocksAsWaiting) {
  Bench bench("divergence");
  for (const char* kernel : {"lane_lock", "naive_lane_lock", "wait_in_warp"}) {
    EXPECT_EQ(bench.module().Find(kernel), nullptr) << kernel;
  }
}

}  // namespace
}  // namespace gpushared::testing
