// SPDX-License-Identifier: Apache-2.0
// CUDA programs that use the runtime API run against a real server, and agree with their
// references.
#include <ostream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/server_process.h"

namespace gpushared::testing {
namespace {

struct CudaProgram {
  const char* name;
  std::vector<std::string> arguments = {};

  friend void PrintTo(const CudaProgram& program, std::ostream* out) { *out << program.name; }
};

class CudartProgram : public ::testing::TestWithParam<CudaProgram> {
 protected:
  static ProgramOutcome Run(const ServerProcess& server, const CudaProgram& program) {
    std::vector<std::string> command = {
        "/usr/bin/env", "GPUSHARED_SOCKET=" + server.socket(),
        GPUSHARED_CUDART_PROGRAMS "/cudart_" + std::string(program.name)};
    command.insert(command.end(), program.arguments.begin(), program.arguments.end());
    return RunProgram(command);
  }
};

TEST_P(CudartProgram, AgreesWithItsReference) {
  const ServerProcess server;
  const ProgramOutcome outcome = Run(server, GetParam());
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
}

INSTANTIATE_TEST_SUITE_P(Own, CudartProgram,
                         ::testing::Values(CudaProgram{"copies"}, CudaProgram{"symbols"},
                                           CudaProgram{"streams"}, CudaProgram{"errors"},
                                           CudaProgram{"histogram", {"20000"}}),
                         [](const auto& program) { return std::string(program.param.name); });

TEST(Cudart, SaysWhyThereIsNoServer) {
  const ProgramOutcome outcome = RunProgram({"/usr/bin/env", "GPUSHARED_SOCKET=/nowhere/socket",
                                             GPUSHARED_CUDART_PROGRAMS "/cudart_histogram"});
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_NE(outcome.output.find("/nowhere/socket"), std::string::npos) << outcome.output;
}

// The README shows this script, which compiles a program and runs it with a dedicated server.
TEST(RunProgramScript, CompilesAndRunsAProgramAndReturnsItsExitCode) {
  const auto run = [](std::vector<std::string> arguments) {
    std::vector<std::string> command = {"/usr/bin/env", "BUILD=" GPUSHARED_BUILD_DIR,
                                        "NVCC=" GPUSHARED_NVCC,
                                        GPUSHARED_SOURCE_DIR "/tests/corpus/run_program.sh"};
    command.insert(command.end(), arguments.begin(), arguments.end());
    return RunProgram(command);
  };
  const std::string program = GPUSHARED_SOURCE_DIR "/tests/corpus/cudart/programs/histogram.cu";
  const ProgramOutcome outcome = run({program, "1000"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_EQ(run({"/bin/sh", "-c", "test -S \"$GPUSHARED_SOCKET\" && exit 7"}).exit_code, 7);
  EXPECT_EQ(run({"/nowhere/program.cu"}).exit_code, 2);
}

}  // namespace
}  // namespace gpushared::testing
