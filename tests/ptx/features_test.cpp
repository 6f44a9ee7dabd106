// SPDX-License-Identifier: Apache-2.0
#include "server/ptx/analysis/features.h"

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/ptx/text/parser.h"

namespace gpushared::ptx {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::set<Feature> GetFeatures(const std::string& file, const std::string& kernel) {
  std::ifstream in(std::filesystem::path(GPUSHARED_TEST_PTX_DIR) / (file + ".ptx"));
  std::stringstream text;
  text << in.rdbuf();
  const Result<Module> module = Parse(text.str());
  EXPECT_TRUE(module) << module.status().message();
  const Function* function = module ? module->FindFunction(kernel) : nullptr;
  EXPECT_NE(function, nullptr);
  std::set<Feature> features;
  if (function == nullptr) return features;
  for (const FeatureUse& use : FindFeatures(*function)) features.insert(use.feature);
  return features;
}

TEST(Features, AreFoundInPtxOfNvcc) {
  EXPECT_THAT(GetFeatures("vectors", "pack"), IsEmpty());
  EXPECT_THAT(
      GetFeatures("print_assert", "report"),
      ElementsAre(Feature::kDeviceHeap, Feature::kPrint, Feature::kAssertion, Feature::kTrap));
  EXPECT_THAT(GetFeatures("tensor_texture", "sample"), ElementsAre(Feature::kTextures));
  EXPECT_THAT(GetFeatures("newer_architecture", "exchange"), ElementsAre(Feature::kClusters));
  EXPECT_THAT(GetFeatures("newer_architecture", "whole_grid"),
              ElementsAre(Feature::kGridSynchronisation, Feature::kTrap));
  EXPECT_THAT(GetFeatures("calls", "call"), ElementsAre(Feature::kIndirectCall));
}

TEST(Features, AreListedOnceWithTheirFirstLine) {
  const Result<Module> module = Parse(
      ".version 8.0\n.target sm_75\n.entry k()\n{\n.reg .b32 %r<2>;\n"
      "mov.u32 %r0, %envreg2;\nmov.u32 %r1, %envreg1;\nret;\n}\n");
  ASSERT_TRUE(module);
  const auto uses = FindFeatures(*module->FindFunction("k"));
  ASSERT_EQ(uses.size(), 1u);
  EXPECT_EQ(uses[0].line, 6u);
  EXPECT_EQ(FeatureName(uses[0].feature), "grid-wide synchronisation");
}

}  // namespace
}  // namespace gpushared::ptx
