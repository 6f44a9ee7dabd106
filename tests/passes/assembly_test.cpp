// SPDX-License-Identifier: Apache-2.0
// ptxas must accept the result of each pass for every kernel of the tree.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/ptx/text/editor.h"
#include "common/ptx/text/parser.h"
#include "common/ptx/text/printer.h"
#include "server/ptx/passes/claim.h"
#include "server/ptx/passes/fence.h"
#include "tests/passes/ptxas.h"
#include "tests/support/read_file.h"

namespace gpushared::testing {
namespace {

// Returns the parts of the text between colons.
std::vector<std::string> Parts(const std::string& text) {
  std::istringstream words(text);
  std::vector<std::string> parts;
  for (std::string word; std::getline(words, word, ':');) parts.push_back(word);
  return parts;
}

std::vector<std::string> Files() { return Parts(GPUSHARED_PASSES_PTX_FILES); }

// Architectures to test. ptxas takes 15 s for each, so only the stage `long` requests 75:80:90:100.
std::vector<std::uint32_t> Architectures() {
  const char* const asked = std::getenv("GPUSHARED_ASSEMBLE_FOR");
  std::vector<std::uint32_t> architectures;
  for (const std::string& number : Parts(asked != nullptr ? asked : "90")) {
    architectures.push_back(static_cast<std::uint32_t>(std::stoul(number)));
  }
  return architectures;
}

class Assembly : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (!HasPtxas()) GTEST_SKIP() << "no ptxas beside nvcc";
    Result<ptx::Module> module = ptx::Parse(ReadFile(GetParam()));
    ASSERT_TRUE(module) << module.status().message();
    module_ = *std::move(module);
  }
  ptx::Module module_;
};

TEST_P(Assembly, ClaimedModulesAssembleWithUnchangedOriginals) {
  const ptx::Claims claims = ptx::Claim(module_);
  const std::string text = ptx::Print(claims.module);
  const Result<ptx::Module> again = ptx::Parse(text);
  ASSERT_TRUE(again) << again.status().message();
  EXPECT_EQ(ptx::Print(*again), text);
  for (const std::uint32_t architecture : Architectures()) {
    if (architecture < ptx::TargetArchitecture(module_)) continue;
    const std::string name = "sm_" + std::to_string(architecture);
    const auto before = Assemble(ptx::Print(module_), name);
    ASSERT_TRUE(before) << name << ": " << before.status().message();
    const auto after = Assemble(text, name);
    ASSERT_TRUE(after) << name << ": " << after.status().message();
    for (const auto& [kernel, code] : *before) {
      EXPECT_EQ(after->at(kernel).registers, code.registers) << kernel;
      EXPECT_EQ(after->at(kernel).instructions, code.instructions) << kernel;
    }
    for (const ptx::PreemptibleKernel& kernel : claims.kernels) {
      if (!kernel.claimed.empty()) {
        EXPECT_TRUE(after->contains(kernel.claimed)) << kernel.kernel;
      }
    }
  }
}

// Assembles the fenced or contained module for its architecture and all newer ones.
void AssembleFenced(const ptx::Module& module, const Result<ptx::Fenced>& fenced) {
  ASSERT_TRUE(fenced) << fenced.status().message();
  const std::string text = ptx::Print(fenced->module);
  const Result<ptx::Module> again = ptx::Parse(text);
  ASSERT_TRUE(again) << again.status().message();
  EXPECT_EQ(ptx::Print(*again), text);
  for (const std::uint32_t architecture : Architectures()) {
    if (architecture < ptx::TargetArchitecture(module)) continue;
    const std::string name = "sm_" + std::to_string(architecture);
    const auto code = Assemble(text, name);
    ASSERT_TRUE(code) << name << ": " << code.status().message();
    for (const ptx::FencedKernel& kernel : fenced->kernels) {
      EXPECT_EQ(code->contains(kernel.kernel), kernel.reason.empty()) << kernel.kernel;
    }
    const auto claimed = Assemble(ptx::Print(ptx::Claim(*again).module), name);
    ASSERT_TRUE(claimed) << name << ": " << claimed.status().message();
  }
}

TEST_P(Assembly, FencedModulesAssembleAloneAndClaimed) {
  AssembleFenced(module_, ptx::Fence(module_, ptx::kFenceRangeBytesMin));
}

TEST_P(Assembly, ModulesFencedForALargerRangeAssemble) {
  AssembleFenced(module_, ptx::Fence(module_, 32 * ptx::kFenceRangeBytesMin));
}

TEST_P(Assembly, ContainedModulesAssembleAloneAndClaimed) {
  AssembleFenced(module_, ptx::Contain(module_, ptx::kFenceRangeBytesMin));
}

// The kernels with which gpu_claims measures the costs of forms. If the form's loop had other
// instructions than the original's, the figure would mostly show the difference between the two
// loops.
class MeasuredKernels : public ::testing::Test {
 protected:
  using Code = std::map<std::string, MachineCode>;

  void SetUp() override {
    if (!HasPtxas()) GTEST_SKIP() << "no ptxas beside nvcc";
    const std::vector<std::string> files = Files();
    const auto file = std::ranges::find_if(
        files, [](const std::string& name) { return name.ends_with("gpu_claims.ptx"); });
    ASSERT_NE(file, files.end());
    Result<ptx::Module> module = ptx::Parse(ReadFile(*file));
    ASSERT_TRUE(module) << module.status().message();
    module_ = *std::move(module);
    original_ = Compile(module_);
  }

  static Code Compile(const ptx::Module& module) {
    auto code = Assemble(ptx::Print(module), "sm_90");
    EXPECT_TRUE(code) << code.status().message();
    return code ? *std::move(code) : Code();
  }
  static Code Compile(const Result<ptx::Fenced>& fenced) {
    EXPECT_TRUE(fenced) << fenced.status().message();
    return fenced ? Compile(fenced->module) : Code();
  }
  // Indexed by the names of the originals.
  Code Claimed() const {
    const ptx::Claims claims = ptx::Claim(module_);
    const Code all = Compile(claims.module);
    Code code;
    for (const ptx::PreemptibleKernel& kernel : claims.kernels) {
      EXPECT_EQ(kernel.reason, "") << kernel.kernel;
      code[kernel.kernel] = all.at(kernel.claimed);
    }
    return code;
  }
  std::size_t LoopOf(const char* kernel) const { return original_.at(kernel).loop.size(); }

  ptx::Module module_;
  Code original_;
};

TEST_F(MeasuredKernels, RepeatTheSameInstructionsInEachForm) {
  constexpr std::size_t kSteps = 32;
  ASSERT_GT(LoopOf("busy"), kSteps);
  EXPECT_LE(LoopOf("busy"), kSteps + 3) << "the loop counter takes too many instructions";
  EXPECT_EQ(Claimed().at("busy").loop, original_.at("busy").loop);
  const Code fenced = Compile(ptx::Fence(module_, ptx::kFenceRangeBytesMin));
  EXPECT_EQ(fenced.at("busy").loop, original_.at("busy").loop);
}

TEST_F(MeasuredKernels, RepeatNoMoreInstructionsThanTheOriginals) {
  const Code claimed = Claimed();
  const Code fenced = Compile(ptx::Fence(module_, ptx::kFenceRangeBytesMin));
  for (const char* kernel : {"busy", "tight", "stream", "sharing"}) {
    ASSERT_GT(LoopOf(kernel), 0U) << kernel;
    EXPECT_EQ(claimed.at(kernel).loop.size(), LoopOf(kernel)) << kernel;
    EXPECT_LE(fenced.at(kernel).loop.size(), LoopOf(kernel)) << kernel;
  }
}

TEST_F(MeasuredKernels, PollAWordInTheirLoopsIfContained) {
  const Code contained = Compile(ptx::Contain(module_, ptx::kFenceRangeBytesMin));
  // Three instructions in each iteration, and six more in iterations that poll.
  EXPECT_EQ(contained.at("busy").loop.size(), LoopOf("busy") + 9);
}

INSTANTIATE_TEST_SUITE_P(Kernels, Assembly, ::testing::ValuesIn(Files()), [](const auto& any) {
  const std::filesystem::path path(any.param);
  return path.parent_path().filename().string() + "_" + path.stem().string();
});

}  // namespace
}  // namespace gpushared::testing
