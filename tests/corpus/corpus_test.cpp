// SPDX-License-Identifier: Apache-2.0
// Every program of the corpus runs on the executor and agrees with its host reference.
#include "tests/corpus/corpus.h"

#include <string>

#include <gtest/gtest.h>

#include "tests/corpus/runtime.h"

namespace gpushared::corpus {
namespace {

class CorpusProgram : public ::testing::TestWithParam<Program> {};

TEST_P(CorpusProgram, AgreesWithItsHostReference) { EXPECT_EQ(RunProgram(GetParam()), ""); }

std::string NameOf(const ::testing::TestParamInfo<Program>& info) { return info.param.name; }

// The stage `long` builds this file once more, for the programs over CUB and Thrust.
#ifdef GPUSHARED_CORPUS_CUB
INSTANTIATE_TEST_SUITE_P(Cub, CorpusProgram, ::testing::ValuesIn(CubPrograms()), NameOf);
#else
INSTANTIATE_TEST_SUITE_P(Own, CorpusProgram, ::testing::ValuesIn(OwnPrograms()), NameOf);
INSTANTIATE_TEST_SUITE_P(Toolkit, CorpusProgram, ::testing::ValuesIn(ToolkitPrograms()), NameOf);
#endif

}  // namespace
}  // namespace gpushared::corpus
