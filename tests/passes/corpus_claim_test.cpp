// SPDX-License-Identifier: Apache-2.0
// Runs the programs of the corpus. Each kernel that has a preemptible form runs as the original and
// then in that form under random schedules; every schedule must leave the same memory as the
// original.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "tests/corpus/corpus.h"
#include "tests/corpus/runtime.h"
#include "tests/passes/claim_schedules.h"

namespace gpushared::testing {
namespace {

constexpr std::uint32_t kThreads = 2;
// Minimum number of schedules per launch; Schedules() is for all launches of a kernel together.
constexpr std::uint32_t kLeastSchedules = 4;

// Records which kernels are launched, and with how many blocks.
class ListingBackend : public corpus::Backend {
 public:
  Status Run(const corpus::KernelLaunch& launch) override {
    per_block_[launch.program->info().name] += 1.0 / static_cast<double>(launch.grid.Count());
    return corpus::Runtime::Instance().RunPlain(launch);
  }

  // Returns the number of schedules for a launch of this many blocks: launches of few blocks get
  // more than others.
  std::uint32_t Share(const std::string& kernel, std::uint64_t blocks) const {
    const double part = 1.0 / static_cast<double>(blocks) / per_block_.at(kernel);
    const auto share = static_cast<std::uint32_t>(std::ceil(part * Schedules()));
    return std::max(kLeastSchedules, share);
  }

 private:
  std::map<std::string, double> per_block_;
};

// Runs each launch in its original form, then under schedules.
class ClaimingBackend : public corpus::Backend {
 public:
  explicit ClaimingBackend(const ListingBackend& list) : list_(list) {}

  Status Run(const corpus::KernelLaunch& launch) override {
    corpus::Runtime& runtime = corpus::Runtime::Instance();
    const std::string& name = launch.program->info().name;
    const ClaimedModule* module = GetModule(*launch.module);
    const ptx::PreemptibleKernel* kernel = module == nullptr ? nullptr : module->Find(name);
    if (kernel == nullptr) {
      not_claimed_.insert(name);
      return corpus::Runtime::Instance().RunPlain(launch);
    }
    PreemptibleLaunch claimed;
    claimed.original = launch.program;
    claimed.claimed = &module->Claimed(*kernel);
    claimed.parameter_offset = kernel->parameter_offset;
    claimed.grid = launch.grid;
    claimed.block = launch.block;
    claimed.dynamic_shared_bytes = launch.dynamic_shared_bytes;
    claimed.parameters = launch.parameters;
    claimed.memory = runtime.window();
    claimed.bytes = runtime.used_memory();
    std::uint64_t& so_far = schedules_[name];
    const std::uint32_t count = list_.Share(name, launch.grid.Count());
    const std::string wrong = runner_.Run(claimed, count, so_far);
    so_far += count;
    if (wrong.empty()) return Status::Ok();
    return Status(StatusCode::kInternal, "kernel '" + name + "' claimed: " + wrong);
  }

  const std::map<std::string, std::uint64_t>& schedules() const { return schedules_; }
  const std::set<std::string>& not_claimed() const { return not_claimed_; }

 private:
  const ClaimedModule* GetModule(const corpus::LoadedModule& loaded) {
    std::unique_ptr<ClaimedModule>& module = modules_[&loaded];
    if (module == nullptr) {
      auto made = ClaimedModule::Make(loaded.module, loaded.layout, loaded.variables_base);
      EXPECT_TRUE(made) << made.status().message();
      if (made) module = *std::move(made);
    }
    return module.get();
  }

  const ListingBackend& list_;
  std::map<const corpus::LoadedModule*, std::unique_ptr<ClaimedModule>> modules_;
  std::map<std::string, std::uint64_t> schedules_;
  std::set<std::string> not_claimed_;
  ScheduleRunner runner_{kThreads};
};

class ClaimedCorpus : public ::testing::TestWithParam<corpus::Program> {};

TEST_P(ClaimedCorpus, ComputesTheSameUnderEverySchedule) {
  ListingBackend list;
  corpus::Runtime::Instance().SetBackend(&list);
  ASSERT_EQ(corpus::RunProgram(GetParam()), "");
  ClaimingBackend backend(list);
  corpus::Runtime::Instance().SetBackend(&backend);
  EXPECT_EQ(corpus::RunProgram(GetParam()), "");
  corpus::Runtime::Instance().SetBackend(nullptr);
  for (const auto& [kernel, count] : backend.schedules()) {
    std::printf("%6llu schedules: %s\n", static_cast<unsigned long long>(count), kernel.c_str());
    EXPECT_GE(count, Schedules()) << kernel;
  }
  for (const std::string& kernel : backend.not_claimed()) {
    std::printf("   not claimed: %s\n", kernel.c_str());
  }
}

std::string GetName(const ::testing::TestParamInfo<corpus::Program>& info) {
  return info.param.name;
}
// The stage `long` builds this file a second time, for the programs that use CUB and Thrust.
#ifdef GPUSHARED_CORPUS_CUB
INSTANTIATE_TEST_SUITE_P(Cub, ClaimedCorpus, ::testing::ValuesIn(corpus::CubPrograms()), GetName);
#else
INSTANTIATE_TEST_SUITE_P(Own, ClaimedCorpus, ::testing::ValuesIn(corpus::OwnPrograms()), GetName);
INSTANTIATE_TEST_SUITE_P(Toolkit, ClaimedCorpus, ::testing::ValuesIn(corpus::ToolkitPrograms()),
                         GetName);
#endif

}  // namespace
}  // namespace gpushared::testing
