// SPDX-License-Identifier: Apache-2.0
// Fenced and contained kernels compute the same results as their originals, bit for bit, and access
// no other client's memory; the same holds for their preemptible forms.
#include "server/ptx/passes/fence.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/passes/fence_bench.h"
#include "tests/support/read_file.h"

namespace gpushared::testing {
namespace {

std::string Ptx(const std::string& file) {
  return ReadFile(std::string(GPUSHARED_PASSES_PTX_DIR) + "/" + file + ".ptx");
}

// Mapping 12 GiB of addresses takes no memory but some time, so cases share modules.
FenceBench& GetBench(const std::string& file) {
  static std::map<std::string, std::unique_ptr<FenceBench>> benches;
  std::unique_ptr<FenceBench>& bench = benches[file];
  if (!bench) bench = std::make_unique<FenceBench>(Ptx(file));
  return *bench;
}

constexpr std::array<std::string_view, 4> kNotContained = {
    "producer_consumer", "counts_whole_warps", "recurse", "call_each_other"};

class FencedKernels : public ::testing::TestWithParam<std::size_t> {};

TEST_P(FencedKernels, ComputeTheSameAsTheirOriginals) {
  const Case& what = Cases()[GetParam()];
  FenceBench& bench = GetBench(what.file);
  ASSERT_EQ(bench.Reason(what.kernel), "");
  // Barriers for a part of the block could hang, and recursion could overflow the stack.
  const bool may_hang = std::ranges::find(kNotContained, what.kernel) != kNotContained.end();
  ASSERT_EQ(bench.ReasonOfContained(what.kernel).empty(), !may_hang)
      << bench.ReasonOfContained(what.kernel);
  const FenceLaunch launch = bench.Prepare(what);
  ASSERT_EQ(bench.Run(Form::kPlain, launch), "");
  const std::vector<std::byte> wanted(bench.buffers().begin(), bench.buffers().end());
  const std::vector<std::byte> wanted_variables = bench.Variables(Form::kPlain);
  bench.ranges().Forbid();
  for (const Form form :
       {Form::kFenced, Form::kFencedAndClaimed, Form::kContained, Form::kContainedAndClaimed}) {
    if (!bench.Has(form, what.kernel)) continue;
    bench.Prepare(what);
    EXPECT_EQ(bench.Run(form, launch), "") << "form " << static_cast<int>(form);
    EXPECT_EQ(bench.fault().place, 0u);
    EXPECT_TRUE(std::ranges::equal(bench.buffers(), wanted)) << "form " << static_cast<int>(form);
    EXPECT_EQ(bench.Variables(form).size(), wanted_variables.size());
  }
  bench.ranges().Allow();
}

INSTANTIATE_TEST_SUITE_P(All, FencedKernels, ::testing::Range<std::size_t>(0, Cases().size()),
                         [](const auto& any) {
                           const Case& what = Cases()[any.param];
                           return std::string(what.file) + "_" + what.kernel + "_" +
                                  std::to_string(any.param);
                         });

}  // namespace
}  // namespace gpushared::testing
