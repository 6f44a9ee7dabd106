// SPDX-License-Identifier: Apache-2.0
// Every program of the corpus runs on the executor and agrees with its host reference.
#include "tests/corpus/corpus.h"

#include <cstdio>
#include <span>
#include <string>

#include <gtest/gtest.h>

#include "tests/corpus/runtime.h"

namespace gpushared::corpus {
namespace {

constexpr double kKnownLeast = 0.5;

class CorpusProgram : public ::testing::TestWithParam<Program> {};

TEST_P(CorpusProgram, AgreesWithItsHostReference) { EXPECT_EQ(RunProgram(GetParam()), ""); }

std::span<const Program> SomePrograms() {
#ifdef GPUSHARED_CORPUS_CUB
  return CubPrograms();
#else
  return OwnPrograms();
#endif
}

// Each launch of the programs above accesses only its kernel's access set, if that is known.
TEST(CorpusReach, IsKnownOfManyKernels) {
  std::size_t known = 0, all = 0;
  for (const auto& module : Runtime::Instance().modules()) {
    for (std::size_t i = 0; i < module->image->size(); ++i) {
      const std::string& why = module->image->program(i).info().why_reach_unknown;
      ++all;
      known += why.empty() ? 1 : 0;
      if (!why.empty())
        std::printf("%s: %s\n", module->image->program(i).info().name.c_str(), why.c_str());
    }
  }
  std::printf("the reach of %zu of %zu kernels is known\n", known, all);
  EXPECT_GE(static_cast<double>(known), kKnownLeast * static_cast<double>(all));
  const std::uint64_t before = Runtime::Instance().bound_launches();
  EXPECT_EQ(RunProgram(SomePrograms().front()), "");
  EXPECT_GT(Runtime::Instance().bound_launches(), before);
}

std::string GetName(const ::testing::TestParamInfo<Program>& info) { return info.param.name; }

// The stage `long` builds this file a second time, for the programs that use CUB and Thrust.
#ifdef GPUSHARED_CORPUS_CUB
INSTANTIATE_TEST_SUITE_P(Cub, CorpusProgram, ::testing::ValuesIn(CubPrograms()), GetName);
#else
INSTANTIATE_TEST_SUITE_P(Own, CorpusProgram, ::testing::ValuesIn(OwnPrograms()), GetName);
INSTANTIATE_TEST_SUITE_P(Toolkit, CorpusProgram, ::testing::ValuesIn(ToolkitPrograms()), GetName);
#endif

}  // namespace
}  // namespace gpushared::corpus
