// SPDX-License-Identifier: Apache-2.0
// The real server on machines with GPUs, without GPUs, and with unusable ones: what it serves and
// reports, using the libraries that it finds on its own.

#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/scratch_directory.h"
#include "tests/support/server_process.h"

namespace gpushared::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class InventoryProcess : public ::testing::Test {
 protected:
  InventoryProcess() { ::setenv("CUDA_MPS_PIPE_DIRECTORY", directory_.path().c_str(), 1); }
  ~InventoryProcess() override {
    ::unsetenv("CUDA_MPS_PIPE_DIRECTORY");
    ::unsetenv("LD_LIBRARY_PATH");
    ::unsetenv("FAKE_NVML");
  }
  void Machine(const std::string& json) {
    std::ofstream(directory_ / "nvml.json") << json;
    ::setenv("FAKE_NVML", (directory_ / "nvml.json").c_str(), 1);
    ::setenv("LD_LIBRARY_PATH", GPUSHARED_FAKE_NVML_DIRECTORY, 1);
  }
  // Runs a server that is expected to exit at its start.
  ProgramOutcome Rejected(const std::string& device) {
    return RunProgram({std::string(GPUSHARED_BIN_DIR) + "/gpushared", "--socket", directory_ / "s",
                       "--device", device});
  }
  const testing::ScratchDirectory directory_;
};

constexpr const char* kTwoGpus = R"({"gpus": [{"board": "H200"}, {"board": "H100", "mig": true,
    "instances": [{"profile": "1g.10gb", "start": 0}, {"profile": "3g.40gb", "start": 4}]}]})";

TEST_F(InventoryProcess, AutoWithoutDriverSelectsCpuWithReason) {
  // The NVML in this directory lacks required calls, and hides the NVML of a machine with a driver.
  Machine("{}");
  ::setenv("LD_LIBRARY_PATH", GPUSHARED_BROKEN_NVML_DIRECTORY, 1);
  const ServerProcess server;
  EXPECT_THAT(server.Log(), AllOf(HasSubstr("device auto is cpu:0: NVIDIA management library"),
                                  HasSubstr("lacks nvmlDeviceGetCount_v2")));
  EXPECT_THAT(server.Ctl({"devices"}).output,
              AllOf(HasSubstr("cpu:0"), Not(HasSubstr("not used"))));
}

TEST_F(InventoryProcess, AutoWithoutTheCudaDriverNamesTheGpus) {
  Machine(kTwoGpus);
  const ServerProcess server;
  EXPECT_THAT(server.Log(), HasSubstr("device auto is cpu:0: no GPU can be used: no CUDA driver"));
  const std::string table = server.Ctl({"devices"}).output;
  EXPECT_THAT(table, AllOf(HasSubstr("not used: cuda:0, NVIDIA H200: "),
                           HasSubstr(", NVIDIA H100 80GB HBM3 MIG 1g.10gb: "),
                           HasSubstr(", NVIDIA H100 80GB HBM3 MIG 3g.40gb: ")));
}

TEST_F(InventoryProcess, NamedGpuIsRejectedByTheWorkerThatCannotOpenIt) {
  Machine(kTwoGpus);
  for (const std::string name :
       {"cuda:0", "GPU-a0000000", "MIG-a0000001-fa4e-4000-8000-000000000004"}) {
    const ProgramOutcome outcome = Rejected(name);
    EXPECT_EQ(outcome.exit_code, 1) << name;
    EXPECT_THAT(outcome.output,
                HasSubstr("the worker can't start: no CUDA driver on this machine"));
  }
}

TEST_F(InventoryProcess, RejectsMissingDeviceBeforeStartingWorkers) {
  Machine(kTwoGpus);
  for (const std::string name : {"cuda:7", "GPU-f", "MIG-f"}) {
    const ProgramOutcome outcome = Rejected(name);
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_THAT(outcome.output,
                HasSubstr("option device rejected: no device is called '" + name + "'"));
  }
  const ProgramOutcome whole = Rejected("cuda:1");
  EXPECT_EQ(whole.exit_code, 2);
  EXPECT_THAT(whole.output, HasSubstr("is in MIG mode, name its instances instead: MIG-"));
}

TEST_F(InventoryProcess, ExplainsProhibitedGpus) {
  Machine(R"({"gpus": [{"compute_mode": 2}]})");
  EXPECT_THAT(Rejected("cuda:0").output, HasSubstr("compute mode PROHIBITED"));
  Machine(R"({"gpus": [{"mig": true}]})");
  EXPECT_THAT(Rejected("cuda:0").output, HasSubstr("'nvidia-smi mig -i 0 -cgi <profile> -C'"));
  Machine(R"({"gpus": [{}]})");
  std::ofstream(directory_ / "nvidia-cuda-mps-control.pid") << ::getpid() << "\n";
  EXPECT_THAT(Rejected("cuda:0").output, HasSubstr("an MPS control daemon"));
}

}  // namespace
}  // namespace gpushared::testing
