// SPDX-License-Identifier: Apache-2.0
// Fenced kernels compute what their originals do, bit for bit, and touch nobody's memory while
// they do; so do fenced kernels that are claimed.
#include "server/ptx/fence.h"

#include <map>
#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/passes/fence_bench.h"
#include "tests/support/read_file.h"

namespace gpushared::testing {
namespace {

std::string Ptx(const std::string& file) {
  return ReadFile(std::string(GPUSHARED_PASSES_PTX_DIR) + "/" + file + ".ptx");
}

// Reaching 12 GiB of addresses takes no memory, but a moment; modules are shared by cases.
FenceBench& BenchOf(const std::string& file) {
  static std::map<std::string, std::unique_ptr<FenceBench>> benches;
  std::unique_ptr<FenceBench>& bench = benches[file];
  if (!bench) bench = std::make_unique<FenceBench>(Ptx(file));
  return *bench;
}

class FencedKernels : public ::testing::TestWithParam<std::size_t> {};

TEST_P(FencedKernels, ComputeTheSameAsTheirOriginals) {
  const Case& what = Cases()[GetParam()];
  FenceBench& bench = BenchOf(what.file);
  ASSERT_EQ(bench.Reason(what.kernel), "");
  const FenceLaunch launch = bench.Prepare(what);
  ASSERT_EQ(bench.Run(Form::kPlain, launch), "");
  const std::vector<std::byte> wanted(bench.buffers().begin(), bench.buffers().end());
  const std::vector<std::byte> wanted_variables = bench.Variables(Form::kPlain);
  bench.ranges().Forbid();
  for (const Form form : {Form::kFenced, Form::kFencedAndClaimed}) {
    if (form == Form::kFencedAndClaimed && !bench.IsClaimed(what.kernel)) continue;
    bench.Prepare(what);
    EXPECT_EQ(bench.Run(form, launch), "");
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
