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

INSTANTIATE_TEST_SUITE_P(Own, CorpusProgram, ::testing::ValuesIn(OwnPrograms()), NameOf);
INSTANTIATE_TEST_SUITE_P(Toolkit, CorpusProgram, ::testing::ValuesIn(ToolkitPrograms()), NameOf);

}  // namespace
}  // namespace gpushared::corpus
