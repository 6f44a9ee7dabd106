// SPDX-License-Identifier: Apache-2.0
// Runs each case in a separate process, like ctest, because a process stays connected to the first
// server that its driver found.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/server_process.h"

namespace gpushared::testing {
namespace {

class OwnProcesses : public ::testing::EmptyTestEventListener {
 public:
  void OnTestIterationStart(const ::testing::UnitTest& all, int) override {
    if (all.test_to_run_count() <= 1) return;
    // The sharding of the cases applies here; each child runs one case.
    ::unsetenv("GTEST_TOTAL_SHARDS");
    ::unsetenv("GTEST_SHARD_INDEX");
    int failed = 0;
    for (int i = 0; i < all.total_test_suite_count(); ++i) {
      const auto& suite = *all.GetTestSuite(i);
      for (int j = 0; j < suite.total_test_count(); ++j) {
        if (suite.GetTestInfo(j)->should_run() && !Passes(*suite.GetTestInfo(j))) ++failed;
      }
    }
    std::printf("%d cases, each in its own process: %d failed\n", all.test_to_run_count(), failed);
    std::exit(failed == 0 ? 0 : 1);
  }

 private:
  static bool Passes(const ::testing::TestInfo& test) {
    const std::string name = std::string(test.test_suite_name()) + "." + test.name();
    const auto ran =
        RunProgram({"/proc/self/exe", "--gtest_filter=" + name, "--gtest_also_run_disabled_tests"});
    const bool skipped = ran.output.find("[  SKIPPED ]") != std::string::npos;
    const bool has_run = ran.output.find("1 test from 1 test suite ran") != std::string::npos;
    const bool passed = ran.exit_code == 0 && has_run;
    if (!passed || skipped) std::fputs(ran.output.c_str(), stdout);
    std::printf("[%s] %s\n", passed ? "       OK " : "  FAILED  ", name.c_str());
    std::fflush(stdout);
    return passed;
  }
};

}  // namespace
}  // namespace gpushared::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  ::testing::UnitTest::GetInstance()->listeners().Append(new gpushared::testing::OwnProcesses);
  return RUN_ALL_TESTS();
}
