// SPDX-License-Identifier: Apache-2.0
// `gpusharedctl run`.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/scratch_directory.h"
#include "tests/support/server_process.h"

namespace gpushared {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::ProgramOutcome;
using testing::RunProgram;
using testing::ServerProcess;

// Tests the drop-in's wrapper of nvcc over a fake nvcc that prints its arguments.
class NvccTest : public ::testing::Test {
 protected:
  NvccTest() {
    std::filesystem::create_directory(real_);
    std::ofstream(real_ + "/nvcc") << "#!/bin/sh\nprintf '%s|' \"$@\"\n";
    std::filesystem::permissions(real_ + "/nvcc", std::filesystem::perms::owner_all);
  }
  std::string CalledWith(std::vector<std::string> arguments, const std::string& path = "/real") {
    std::vector<std::string> command = {
        "/usr/bin/env",
        "PATH=" GPUSHARED_NVCC_DIRECTORY ":" + directory_.path() + path + ":/usr/bin:/bin", "nvcc"};
    command.insert(command.end(), arguments.begin(), arguments.end());
    return RunProgram(command).output;
  }

  const testing::ScratchDirectory directory_;
  const std::string real_ = directory_.path() + "/real";
};

TEST_F(NvccTest, MakesPtxUnderTheCubinsName) {
  EXPECT_EQ(CalledWith({"--cubin", "-arch", "sm_80", "kernel.cu"}),
            "--ptx|-arch|sm_80|kernel.cu|-o|kernel.cubin|");
  EXPECT_EQ(CalledWith({"a b.cu", "-cubin", "-code", "sm_80", "-o", "x y"}),
            "a b.cu|--ptx|-o|x y|");
  EXPECT_EQ(CalledWith({"-cubin", "--gpu-code=sm_80", "-odir", "/t", "in/k.cu"}),
            "--ptx|-odir|/t|in/k.cu|-o|/t/k.cubin|");
}

TEST_F(NvccTest, ForwardsCallsWithoutCubin) {
  EXPECT_EQ(CalledWith({"--fatbin", "-code", "sm_80", "a b.cu"}), "--fatbin|-code|sm_80|a b.cu|");
  EXPECT_EQ(CalledWith({"--version"}), "--version|gpushared: makes PTX in place of cubins\n");
  EXPECT_THAT(CalledWith({"--version"}, "/nothing"), HasSubstr("no other nvcc"));
}

// ---- the command

constexpr const char* kControl = GPUSHARED_BIN_DIR "/gpusharedctl";

class RunTest : public ::testing::Test {
 protected:
  ProgramOutcome Run(std::vector<std::string> arguments) {
    std::vector<std::string> command = {kControl, "run", "--socket", server_.socket()};
    command.insert(command.end(), arguments.begin(), arguments.end());
    return RunProgram(command);
  }
  ServerProcess server_;
};

TEST_F(RunTest, UnmodifiedProgramRunsWithRequestedClass) {
  const ProgramOutcome outcome =
      Run({"--class", "low", "--name", "guest", "--", GPUSHARED_VECTOR_ADD_PROGRAM});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("added 100000 numbers"));
  EXPECT_THAT(server_.Log(), HasSubstr("'guest'"));
  EXPECT_THAT(server_.Log(), HasSubstr("class low"));
}

#ifndef GPUSHARED_SANITIZED
TEST_F(RunTest, SanitizedProgramsRun) {
  for (const char* sanitizer : {"address", "thread"}) {
    const ProgramOutcome outcome =
        Run({"--", std::string(GPUSHARED_SANITIZED_PROGRAMS) + sanitizer + "_sanitized"});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_THAT(outcome.output, HasSubstr("added 100000 numbers"));
  }
}

TEST_F(RunTest, SanitizersRuntimeThatTheUserPreloadsStaysFirst) {
  const std::string library = GPUSHARED_ASAN_LIBRARY;
  if (!std::filesystem::exists(library))
    GTEST_SKIP() << "this compiler has no libasan of this name";
  // A preloaded library of the user's own works, and no message about the order of libraries
  // appears.
  const ProgramOutcome outcome = RunProgram(
      {"/usr/bin/env", "LD_PRELOAD=" + std::filesystem::canonical(library).string(),
       "ASAN_OPTIONS=verify_asan_link_order=1", kControl, "run", "--socket", server_.socket(), "--",
       std::string(GPUSHARED_SANITIZED_PROGRAMS) + "address_sanitized"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("added 100000 numbers"));
}
#endif

TEST_F(RunTest, NamesProcIfItIsMissing) {
  // Hides /proc behind an empty file system.
  const ProgramOutcome outcome = RunProgram({"/usr/bin/unshare", "--mount", "/bin/sh", "-c",
                                             "mount -t tmpfs none /proc && exec \"$0\" \"$@\"",
                                             kControl, "run", "--", "true"});
  if (outcome.output.find("unshare") != std::string::npos) GTEST_SKIP() << outcome.output;
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.output, HasSubstr("/proc"));
}

TEST_F(RunTest, ReturnsTheProgramsExitStatus) {
  EXPECT_EQ(Run({"--", "sh", "-c", "exit 41"}).exit_code, 41);
  EXPECT_EQ(Run({"--", "sh", "-c", "kill -USR1 $$"}).exit_code, 128 + SIGUSR1);
}

TEST_F(RunTest, ExitCodesDistinguishErrors) {
  EXPECT_EQ(Run({}).exit_code, 2);
  EXPECT_EQ(Run({"--class", "urgent", "--", "true"}).exit_code, 2);
  EXPECT_EQ(Run({"--latency-target", "-1", "--", "true"}).exit_code, 2);
  EXPECT_EQ(Run({"--latency-target", "0", "--", "true"}).exit_code, 2);
  EXPECT_EQ(Run({"true"}).exit_code, 2) << "the program must follow --";
  const ProgramOutcome text = Run({"--", "/etc/passwd"});
  EXPECT_EQ(text.exit_code, 126);
  EXPECT_THAT(text.output, HasSubstr("/etc/passwd"));
  const ProgramOutcome none = Run({"--", "no-such-program"});
  EXPECT_EQ(none.exit_code, 127);
  EXPECT_THAT(none.output, HasSubstr("'no-such-program'"));
  const ProgramOutcome alone =
      RunProgram({kControl, "run", "--socket", "/nonexistent", "--", "true"});
  EXPECT_EQ(alone.exit_code, 3);
  EXPECT_THAT(alone.output, HasSubstr("'/nonexistent'"));
  const ProgramOutcome rejected = Run({"--device", "cpu:7", "--", "true"});
  EXPECT_EQ(rejected.exit_code, 1);
  EXPECT_THAT(rejected.output, HasSubstr("'cpu:7'"));
}

TEST_F(RunTest, AnyUserCanRunPrograms) {
  if (::geteuid() != 0) GTEST_SKIP() << "becoming another user needs root";
  const std::vector<std::string> as_nobody = {"/usr/bin/setpriv", "--reuid=65534", "--regid=65534",
                                              "--clear-groups"};
  const auto run = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), as_nobody.begin(), as_nobody.end());
    return RunProgram(arguments);
  };
  if (run({"/usr/bin/test", "-x", kControl}).exit_code != 0) {
    GTEST_SKIP() << "the user nobody cannot reach " << kControl;
  }
  std::filesystem::permissions(std::filesystem::path(server_.socket()).parent_path(),
                               std::filesystem::perms(0711));
  const ProgramOutcome outcome =
      run({kControl, "run", "--socket", server_.socket(), "--", GPUSHARED_VECTOR_ADD_PROGRAM});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("added 100000 numbers"));
}

// A program in a container finds this socket at the usual path, because the socket's directory is
// mounted there.
TEST_F(RunTest, ConnectsThroughTheNamedEndpoint) {
  const testing::ScratchDirectory directory;
  std::ofstream(directory / "rules.toml")
      << "[[endpoint]]\nname = \"batch\"\nclass = \"low\"\nclient_memory = \"64MiB\"\n";
  const ServerProcess server({"--config", directory / "rules.toml"});
  const auto run = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {kControl, "run", "--socket", server.socket()});
    return RunProgram(arguments);
  };
  const ProgramOutcome outcome =
      run({"--endpoint", "batch", "--name", "guest", "--", GPUSHARED_VECTOR_ADD_PROGRAM});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("added 100000 numbers"));
  EXPECT_THAT(server.Log(), HasSubstr("batch"));
  EXPECT_THAT(server.Log(), HasSubstr("class low"));
  const ProgramOutcome rejected =
      run({"--endpoint", "batch", "--class", "high", "--", GPUSHARED_VECTOR_ADD_PROGRAM});
  EXPECT_EQ(rejected.exit_code, 1);
  EXPECT_THAT(rejected.output, HasSubstr("endpoint 'batch'"));
  const ProgramOutcome none = run({"--endpoint", "none", "--", "true"});
  EXPECT_EQ(none.exit_code, 3);
  EXPECT_THAT(none.output, HasSubstr("there are batch"));
  EXPECT_THAT(run({"--endpoint", "bach", "--", "true"}).output, HasSubstr("did you mean 'batch'?"));
  EXPECT_EQ(run({"--endpoint", "../x", "--", "true"}).exit_code, 2);
}

TEST_F(RunTest, WaitsForAServerThatStarts) {
  server_.Signal(SIGTERM);
  ASSERT_EQ(server_.WaitForExit(), 0);
  std::thread starts([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    server_.StartAgain();
  });
  const ProgramOutcome outcome = Run({"--", GPUSHARED_VECTOR_ADD_PROGRAM});
  starts.join();
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("waiting"));
  EXPECT_THAT(outcome.output, HasSubstr("added 100000 numbers"));
}

TEST_F(RunTest, ExplainsWhatItSets) {
  const ProgramOutcome outcome = Run({"--explain", "--class", "high", "--", "true"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.output, HasSubstr("LD_LIBRARY_PATH="));
  EXPECT_THAT(outcome.output, HasSubstr("GPUSHARED_CLASS=high"));
  EXPECT_THAT(outcome.output, HasSubstr("TRITON_PTXAS_PATH="));
#ifndef GPUSHARED_SANITIZED
  EXPECT_THAT(outcome.output, HasSubstr("/libnvJitLink.so.13:"));
  EXPECT_THAT(outcome.output, HasSubstr("/libnvrtc.so.13"));
#endif
  EXPECT_EQ(Run({"--", "true"}).output, "") << "preloaded libraries must not print anything";
  EXPECT_THAT(Run({"--", "true"}).output, Not(HasSubstr("LD_LIBRARY_PATH")));
}

TEST_F(RunTest, WarnsOfProgramThatCannotLoadTheDropIn) {
  const ProgramOutcome outcome = Run({"--", GPUSHARED_STATIC_PROGRAM});
  EXPECT_THAT(outcome.output, HasSubstr("statically linked"));
}

}  // namespace
}  // namespace gpushared
