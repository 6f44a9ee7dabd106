// SPDX-License-Identifier: Apache-2.0
// The memory limit of gated programs, over a modelled GPU (shared_gpu.cpp): programs get exactly as
// much as their limit allows, in whatever way they allocate (gated_memory.cpp).
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/scratch_directory.h"
#include "tests/support/server_process.h"

namespace gpushared::testing {
namespace {

using ::testing::HasSubstr;

constexpr int kLimitMib = 256;

// `variables` have the form "NAME=VALUE".
ProgramOutcome RunCase(const std::string& socket, const std::string& name,
                       int expected_mib = kLimitMib,
                       const std::vector<std::string>& variables = {
                           "GPUSHARED_MEMORY=" + std::to_string(kLimitMib) + "MiB"}) {
  const ScratchDirectory directory;
  std::vector<std::string> command = {"/usr/bin/env",
                                      "-u",
                                      "GPUSHARED_MEMORY",
                                      "SHARED_GPU=" + (directory / "gpu"),
                                      "LD_LIBRARY_PATH=" GPUSHARED_DROP_IN_DIR
                                      ":" GPUSHARED_SHARED_GPU_DIR,
                                      "GPUSHARED_MODE=gate",
                                      "GPUSHARED_LOG=1",
                                      "GPUSHARED_SOCKET=" + socket};
  command.insert(command.end(), variables.begin(), variables.end());
  command.insert(command.end(),
                 {GPUSHARED_GATED_PROGRAM, "memory", name, std::to_string(expected_mib)});
  return RunProgram(command);
}

class GateMemory : public ::testing::TestWithParam<const char*> {};

TEST_P(GateMemory, LimitHolds) {
  const ServerProcess server({"--device", "cpu:0"});
  const ProgramOutcome outcome = RunCase(server.socket(), GetParam());
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
}

INSTANTIATE_TEST_SUITE_P(Cases, GateMemory,
                         ::testing::Values("capture", "contexts", "failures", "fork", "frees",
                                           "host", "limit", "mappings", "pools", "sizes",
                                           "threads"),
                         [](const auto& each) { return std::string(each.param); });

TEST(GateMemoryLimit, EnvironmentSetsIt) {
  const ServerProcess server({"--device", "cpu:0"});
  for (const int mib : {64, 192}) {
    const ProgramOutcome outcome =
        RunCase(server.socket(), "limit", mib, {"GPUSHARED_MEMORY=" + std::to_string(mib) + "MiB"});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  }
}

TEST(GateMemoryLimit, EachGpuHasItsOwn) {
  const ServerProcess server({"--device", "cpu:0,cpu:1"});
  const ProgramOutcome outcome =
      RunCase(server.socket(), "gpus", kLimitMib,
              {"GPUSHARED_MEMORY=" + std::to_string(kLimitMib) + "MiB", "SHARED_GPU_COUNT=2"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
}

TEST(GateMemoryLimit, RejectionIsLogged) {
  const ServerProcess server({"--device", "cpu:0"});
  const ProgramOutcome outcome = RunCase(server.socket(), "limit");
  EXPECT_THAT(outcome.output, HasSubstr("allocation of 1 bytes rejected: the program holds "
                                        "268435456 bytes of its limit of 268435456"));
}

TEST(GateMemoryLimit, WithoutAServerThereIsNone) {
  ServerProcess server({"--device", "cpu:0"});
  server.Signal(SIGTERM);
  ASSERT_EQ(server.WaitForExit(), 0);
  const ProgramOutcome outcome = RunCase(server.socket(), "unlimited");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
}

}  // namespace
}  // namespace gpushared::testing
