// SPDX-License-Identifier: Apache-2.0
// `gpushared run`, and `gpusharedctl run`, which is the same.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/run/environment.h"
#include "server/run/program_file.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/server_process.h"

namespace gpushared {
namespace {

using server::RunWishes;
using server::Settings;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::ProgramOutcome;
using testing::RunProgram;
using testing::ServerProcess;

// ---- what is set

class RunSettingsTest : public ::testing::Test {
 protected:
  std::map<std::string, std::string> SettingsOf(const RunWishes& wishes) {
    std::map<std::string, std::string> found;
    for (const server::Setting& setting : Settings(
             wishes, [&](const char* name) { return environment_[name]; },
             [&](const std::string& path) { return files_.contains(path); })) {
      found[setting.variable] = setting.value;
    }
    return found;
  }
  std::map<std::string, std::string> environment_;
  std::map<std::string, bool> files_;
};

TEST_F(RunSettingsTest, DropInStandsInFrontOfTheUsersFolders) {
  EXPECT_EQ(SettingsOf({.drop_in = "/d"})["LD_LIBRARY_PATH"], "/d");
  environment_["LD_LIBRARY_PATH"] = "/u:/v";
  EXPECT_EQ(SettingsOf({.drop_in = "/d"})["LD_LIBRARY_PATH"], "/d:/u:/v");
}

// Some programs open "libnvrtc.so" at run time, which nothing preloaded answers to.
TEST_F(RunSettingsTest, PtxToolsAreFoundByNameOnlyWhereTheDeviceWantsPtx) {
  environment_["LD_LIBRARY_PATH"] = "/u";
  EXPECT_EQ(SettingsOf({.drop_in = "/d", .wants_ptx = true})["LD_LIBRARY_PATH"], "/d:/d/ptx:/u");
  EXPECT_EQ(SettingsOf({.drop_in = "/d"})["LD_LIBRARY_PATH"], "/d:/u");
}

TEST_F(RunSettingsTest, OnlyWhatWasAskedForIsSet) {
  EXPECT_EQ(SettingsOf({.drop_in = "/d"}).size(), 2u) << "the library's folder, and who started it";
  const auto all = SettingsOf({.socket = "/s",
                               .drop_in = "/d",
                               .scheduling_class = "low",
                               .name = "job",
                               .device = "cpu:0",
                               .weight = 7,
                               .promise = "2.5",
                               .is_interruptible = true});
  EXPECT_EQ(all.at("GPUSHARED_SOCKET"), "/s");
  EXPECT_EQ(all.at("GPUSHARED_CLASS"), "low");
  EXPECT_EQ(all.at("GPUSHARED_NAME"), "job");
  EXPECT_EQ(all.at("GPUSHARED_DEVICE"), "cpu:0");
  EXPECT_EQ(all.at("GPUSHARED_WEIGHT"), "7");
  EXPECT_EQ(all.at("GPUSHARED_PROMISE"), "2.5");
  EXPECT_EQ(all.at("GPUSHARED_INTERRUPT"), "1");
}

TEST_F(RunSettingsTest, ToolsAreAskedForPtxWhereTheUserHasNotChosen) {
  files_["/d/ptx/ptxas"] = true;
  EXPECT_FALSE(SettingsOf({.drop_in = "/d"}).contains("TRITON_PTXAS_PATH"));
  EXPECT_EQ(SettingsOf({.drop_in = "/d", .wants_ptx = true})["TRITON_PTXAS_PATH"], "/d/ptx/ptxas");
  environment_["TRITON_PTXAS_PATH"] = "/mine";
  EXPECT_FALSE(SettingsOf({.drop_in = "/d", .wants_ptx = true}).contains("TRITON_PTXAS_PATH"));
  EXPECT_FALSE(SettingsOf({.drop_in = "/d", .wants_ptx = true}).contains("LD_PRELOAD"));
  files_["/d/ptx/libnvrtc.so.13"] = true;
  environment_["LD_PRELOAD"] = "/u.so";
  EXPECT_EQ(SettingsOf({.drop_in = "/d", .wants_ptx = true})["LD_PRELOAD"],
            "/u.so:/d/ptx/libnvrtc.so.13")
      << "a sanitizer's runtime that the user preloads has to be the first library";
}

TEST_F(RunSettingsTest, AsanIsToldThatLibrariesComeBeforeIt) {
  const RunWishes wishes{.drop_in = "/d", .wants_ptx = true, .needs_asan = true};
  EXPECT_FALSE(SettingsOf(wishes).contains("ASAN_OPTIONS")) << "nothing is preloaded";
  files_["/d/ptx/libnvrtc.so.13"] = true;
  EXPECT_EQ(SettingsOf(wishes)["ASAN_OPTIONS"], "verify_asan_link_order=0");
  environment_["ASAN_OPTIONS"] = "detect_leaks=0";
  EXPECT_EQ(SettingsOf(wishes)["ASAN_OPTIONS"], "detect_leaks=0:verify_asan_link_order=0");
  environment_["ASAN_OPTIONS"] = "verify_asan_link_order=1";
  EXPECT_FALSE(SettingsOf(wishes).contains("ASAN_OPTIONS")) << "the user has chosen";
  EXPECT_FALSE(SettingsOf({.drop_in = "/d", .wants_ptx = true}).contains("ASAN_OPTIONS"));
}

TEST_F(RunSettingsTest, NvccIsStoodInForWhereThereIsOne) {
  files_["/d/ptx/bin/nvcc"] = true;
  environment_["PATH"] = "/usr/bin:/cuda/bin";
  EXPECT_FALSE(SettingsOf({.drop_in = "/d", .wants_ptx = true}).contains("PATH"));
  files_["/cuda/bin/nvcc"] = true;
  EXPECT_EQ(SettingsOf({.drop_in = "/d", .wants_ptx = true})["PATH"],
            "/d/ptx/bin:/usr/bin:/cuda/bin");
  EXPECT_EQ(SettingsOf({.drop_in = "/d", .wants_ptx = true})["CUDA_ROOT"], "/cuda");
  environment_["CUDA_ROOT"] = "/mine";
  EXPECT_FALSE(SettingsOf({.drop_in = "/d", .wants_ptx = true}).contains("CUDA_ROOT"));
  EXPECT_FALSE(SettingsOf({.drop_in = "/d"}).contains("PATH"));
}

// A compiler that says how it was called.
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
        "PATH=" GPUSHARED_NVCC_FOLDER ":" + folder_.path() + path + ":/usr/bin:/bin", "nvcc"};
    command.insert(command.end(), arguments.begin(), arguments.end());
    return RunProgram(command).output;
  }

  const testing::ScratchFolder folder_;
  const std::string real_ = folder_.path() + "/real";
};

TEST_F(NvccTest, MakesPtxUnderTheCubinsName) {
  EXPECT_EQ(CalledWith({"--cubin", "-arch", "sm_80", "kernel.cu"}),
            "--ptx|-arch|sm_80|kernel.cu|-o|kernel.cubin|");
  EXPECT_EQ(CalledWith({"a b.cu", "-cubin", "-code", "sm_80", "-o", "x y"}),
            "a b.cu|--ptx|-o|x y|");
  EXPECT_EQ(CalledWith({"-cubin", "--gpu-code=sm_80", "-odir", "/t", "in/k.cu"}),
            "--ptx|-odir|/t|in/k.cu|-o|/t/k.cubin|");
}

TEST_F(NvccTest, HandsOnWhatIsNoCubin) {
  EXPECT_EQ(CalledWith({"--fatbin", "-code", "sm_80", "a b.cu"}), "--fatbin|-code|sm_80|a b.cu|");
  EXPECT_EQ(CalledWith({"--version"}), "--version|gpushared: makes PTX in place of cubins\n");
  EXPECT_THAT(CalledWith({"--version"}, "/nothing"), HasSubstr("names no other nvcc"));
}

// ---- who would not see it

TEST(ProgramFileTest, ProgramsThatLoadNoLibraryAreNamed) {
  EXPECT_EQ(server::WhyNotSeen("/proc/self/exe"), "");
  EXPECT_EQ(server::WhyNotSeen("/nonexistent"), "");
  EXPECT_THAT(server::WhyNotSeen(GPUSHARED_STATIC_PROGRAM), HasSubstr("statically linked"));
  EXPECT_THAT(server::WhyNotSeen(GPUSHARED_RPATH_PROGRAM),
              HasSubstr("which has a libcuda.so.1 of its own"));
  EXPECT_EQ(server::WhyNotSeen(GPUSHARED_VECTOR_ADD_PROGRAM), "") << "a RUNPATH comes later";
}

TEST(ProgramFileTest, ProgramsAreFoundAsShellsFindThem) {
  EXPECT_EQ(server::FindProgram("sh", "/nonexistent:/bin"), "/bin/sh");
  EXPECT_EQ(server::FindProgram("sh", "/nonexistent"), "");
  EXPECT_EQ(server::FindProgram("/bin/sh", ""), "/bin/sh");
  EXPECT_EQ(server::FindProgram("/bin", ""), "") << "a folder";
}

// ---- the command

class RunTest : public ::testing::TestWithParam<const char*> {
 protected:
  ProgramOutcome Run(std::vector<std::string> arguments) {
    std::vector<std::string> command = {GetParam(), "run", "--socket", server_.socket()};
    command.insert(command.end(), arguments.begin(), arguments.end());
    return RunProgram(command);
  }
  ServerProcess server_;
};
INSTANTIATE_TEST_SUITE_P(BothNames, RunTest,
                         ::testing::Values(GPUSHARED_BIN_DIR "/gpushared",
                                           GPUSHARED_BIN_DIR "/gpusharedctl"),
                         [](const auto& chosen) {
                           return std::string(chosen.param).ends_with("ctl") ? "ctl" : "server";
                         });

TEST_P(RunTest, UnmodifiedProgramRunsAsTheClientThatIsAskedFor) {
  const ProgramOutcome outcome =
      Run({"--class", "low", "--name", "guest", "--", GPUSHARED_VECTOR_ADD_PROGRAM});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("added 100000 numbers"));
  EXPECT_THAT(server_.Log(), HasSubstr("'guest'"));
  EXPECT_THAT(server_.Log(), HasSubstr("class low"));
}

#ifndef GPUSHARED_SANITIZED
TEST_P(RunTest, SanitizedProgramsRun) {
  for (const char* sanitizer : {"address", "thread"}) {
    const ProgramOutcome outcome =
        Run({"--", std::string(GPUSHARED_SANITIZED_PROGRAMS) + sanitizer + "_sanitized"});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_THAT(outcome.output, HasSubstr("added 100000 numbers"));
  }
}

TEST_P(RunTest, SanitizersRuntimeThatTheUserPreloadsStaysFirst) {
  const std::string library = GPUSHARED_ASAN_LIBRARY;
  if (!std::filesystem::exists(library)) GTEST_SKIP() << "this compiler's runtime is another one";
  // The user's own: it is not told that others come before it.
  const ProgramOutcome outcome = RunProgram(
      {"/usr/bin/env", "LD_PRELOAD=" + std::filesystem::canonical(library).string(),
       "ASAN_OPTIONS=verify_asan_link_order=1", GetParam(), "run", "--socket", server_.socket(),
       "--", std::string(GPUSHARED_SANITIZED_PROGRAMS) + "address_sanitized"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("added 100000 numbers"));
}
#endif

TEST_P(RunTest, NamesProcWhereItIsMissing) {
  // A view of the machine without /proc: an empty folder lies on it.
  const ProgramOutcome outcome = RunProgram({"/usr/bin/unshare", "--mount", "/bin/sh", "-c",
                                             "mount -t tmpfs none /proc && exec \"$0\" \"$@\"",
                                             GetParam(), "run", "--", "true"});
  if (outcome.output.find("unshare") != std::string::npos) GTEST_SKIP() << outcome.output;
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.output, HasSubstr("cannot be found without /proc: mount it"));
}

TEST_P(RunTest, EndsAsTheProgramEnds) {
  EXPECT_EQ(Run({"--", "sh", "-c", "exit 41"}).exit_code, 41);
  EXPECT_EQ(Run({"--", "sh", "-c", "kill -USR1 $$"}).exit_code, 128 + SIGUSR1);
}

TEST_P(RunTest, SaysWhatIsWrongByItsExitCode) {
  EXPECT_EQ(Run({}).exit_code, 2);
  EXPECT_EQ(Run({"--class", "urgent", "--", "true"}).exit_code, 2);
  EXPECT_EQ(Run({"--promise", "-1", "--", "true"}).exit_code, 2);
  EXPECT_THAT(Run({"--promise", "0", "--", "true"}).output, HasSubstr("'0' is no number above 0"));
  EXPECT_THAT(Run({"true"}).output, HasSubstr("-- comes before the program"));
  const ProgramOutcome text = Run({"--", "/etc/passwd"});
  EXPECT_EQ(text.exit_code, 126);
  EXPECT_THAT(text.output, HasSubstr("/etc/passwd cannot run: Permission denied"));
  const ProgramOutcome none = Run({"--", "no-such-program"});
  EXPECT_EQ(none.exit_code, 127);
  EXPECT_THAT(none.output, HasSubstr("there is no program 'no-such-program'"));
  const ProgramOutcome alone =
      RunProgram({GetParam(), "run", "--socket", "/nonexistent", "--", "true"});
  EXPECT_EQ(alone.exit_code, 3);
  EXPECT_THAT(alone.output, HasSubstr("no server answers at '/nonexistent'"));
  const ProgramOutcome refused = Run({"--device", "cpu:7", "--", "true"});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.output, HasSubstr("'cpu:7'"));
}

TEST_P(RunTest, EveryUserMayRunPrograms) {
  if (::geteuid() != 0) GTEST_SKIP() << "becoming another user needs root";
  const std::vector<std::string> as_nobody = {"/usr/bin/setpriv", "--reuid=65534", "--regid=65534",
                                              "--clear-groups"};
  const auto run = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), as_nobody.begin(), as_nobody.end());
    return RunProgram(arguments);
  };
  if (run({"/usr/bin/test", "-x", GetParam()}).exit_code != 0) {
    GTEST_SKIP() << "the user nobody cannot reach " << GetParam();
  }
  std::filesystem::permissions(std::filesystem::path(server_.socket()).parent_path(),
                               std::filesystem::perms(0711));
  const ProgramOutcome outcome =
      run({GetParam(), "run", "--socket", server_.socket(), "--", GPUSHARED_VECTOR_ADD_PROGRAM});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("added 100000 numbers"));
}

// A program in a container finds the same socket at the usual place, where its folder is mounted.
TEST_P(RunTest, ComesThroughTheEntranceThatIsNamed) {
  const testing::ScratchFolder folder;
  std::ofstream(folder / "rules.toml")
      << "[[entrance]]\nname = \"batch\"\nclass = \"low\"\nclient_memory = \"64MiB\"\n";
  const ServerProcess server({"--config", folder / "rules.toml"});
  const auto run = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {GetParam(), "run", "--socket", server.socket()});
    return RunProgram(arguments);
  };
  const ProgramOutcome outcome =
      run({"--entrance", "batch", "--name", "guest", "--", GPUSHARED_VECTOR_ADD_PROGRAM});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("added 100000 numbers"));
  EXPECT_THAT(server.Log(), HasSubstr("batch"));
  EXPECT_THAT(server.Log(), HasSubstr("class low"));
  const ProgramOutcome refused =
      run({"--entrance", "batch", "--class", "high", "--", GPUSHARED_VECTOR_ADD_PROGRAM});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.output, HasSubstr("entrance 'batch'"));
  const ProgramOutcome none = run({"--entrance", "none", "--", "true"});
  EXPECT_EQ(none.exit_code, 3);
  EXPECT_THAT(none.output, HasSubstr("there is no entrance 'none' beside " + server.socket() +
                                     "; there are batch"));
  EXPECT_THAT(run({"--entrance", "bach", "--", "true"}).output, HasSubstr("did you mean 'batch'?"));
  EXPECT_EQ(run({"--entrance", "../x", "--", "true"}).exit_code, 2);
}

TEST_P(RunTest, WaitsForAServerThatStarts) {
  server_.Signal(SIGTERM);
  ASSERT_EQ(server_.WaitForExit(), 0);
  std::thread starts([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    server_.StartAgain();
  });
  const ProgramOutcome outcome = Run({"--", GPUSHARED_VECTOR_ADD_PROGRAM});
  starts.join();
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("yet, waiting up to 3 s"));
  EXPECT_THAT(outcome.output, HasSubstr("added 100000 numbers"));
}

TEST_P(RunTest, ExplainsWhatItSets) {
  const ProgramOutcome outcome = Run({"--explain", "--class", "high", "--", "true"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.output, HasSubstr("LD_LIBRARY_PATH="));
  EXPECT_THAT(outcome.output, HasSubstr("GPUSHARED_CLASS=high"));
  EXPECT_THAT(outcome.output, HasSubstr("TRITON_PTXAS_PATH="));
#ifndef GPUSHARED_SANITIZED
  EXPECT_THAT(outcome.output, HasSubstr("/libnvJitLink.so.13:"));
  EXPECT_THAT(outcome.output, HasSubstr("/libnvrtc.so.13"));
#endif
  EXPECT_EQ(Run({"--", "true"}).output, "") << "libraries that are preloaded say nothing";
  EXPECT_THAT(Run({"--", "true"}).output, Not(HasSubstr("LD_LIBRARY_PATH")));
}

TEST_P(RunTest, WarnsOfAProgramThatWouldNotSeeIt) {
  const ProgramOutcome outcome = Run({"--", GPUSHARED_STATIC_PROGRAM});
  EXPECT_THAT(outcome.output, HasSubstr("statically linked"));
}

}  // namespace
}  // namespace gpushared
