// SPDX-License-Identifier: Apache-2.0
// How many kernels launched by programs with CUB, Thrust, cuRAND and similar libraries run on the
// cpu device with correct results.
#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/corpus/corpus.h"
#include "tests/corpus/runtime.h"

namespace gpushared::corpus {
namespace {

constexpr double kRightLeast = 0.98;
// CUB launches different and more kernels depending on the architecture that it is compiled for.
constexpr std::size_t kLaunchedLeast = 50;

std::vector<Program> AllToolkitPrograms() {
  std::vector<Program> programs(ToolkitPrograms().begin(), ToolkitPrograms().end());
  programs.insert(programs.end(), CubPrograms().begin(), CubPrograms().end());
  return programs;
}

// Runs those programs. Returns for each kernel the reason why its results are not known to be
// correct, or "" if they are correct.
std::map<std::string, std::string> LaunchedKernels() {
  std::map<std::string, std::string> kernels;
  for (const Program& program : AllToolkitPrograms()) {
    const std::map<std::string, KernelHistory> before = Runtime::Instance().history();
    const std::string wrong = RunProgram(program);
    for (const auto& [name, history] : Runtime::Instance().history()) {
      const auto known = before.find(name);
      if (known != before.end() && known->second.launches == history.launches) continue;
      std::string& why = kernels[name];
      if (!history.rejection.empty()) {
        why = "it needs " + history.rejection;
      } else if (!wrong.empty()) {
        why = std::string(program.name) + ": " + wrong;
      }
    }
  }
  return kernels;
}

TEST(CorpusCoverage, KernelsOfToolkitProgramsRunWithRightResults) {
  const std::map<std::string, std::string> kernels = LaunchedKernels();
  std::size_t right = 0;
  for (const auto& [name, why] : kernels) {
    if (why.empty()) ++right;
    if (!why.empty()) std::printf("not right: %s: %s\n", name.c_str(), why.c_str());
  }
  std::printf("%zu of %zu kernels that %zu programs launched ran with right results\n", right,
              kernels.size(), AllToolkitPrograms().size());
  EXPECT_GE(kernels.size(), kLaunchedLeast);
  EXPECT_GE(static_cast<double>(right), kRightLeast * static_cast<double>(kernels.size()));
}

}  // namespace
}  // namespace gpushared::corpus
