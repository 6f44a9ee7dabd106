// SPDX-License-Identifier: Apache-2.0
// Gate mode is transparent: a program gets the same results from the installed driver with and
// without the gate. The installed driver is the fake one, or another drop-in on a server.
#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/read_file.h"
#include "tests/support/scratch_directory.h"
#include "tests/support/server_process.h"

#include <nlohmann/json.hpp>

namespace gpushared {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::ProgramOutcome;
using testing::ReadFile;
using testing::RunProgram;
using testing::ScratchDirectory;
using testing::ServerProcess;

const std::string kGate = GPUSHARED_DROP_IN_DIR;
const std::string kFakeDriver = GPUSHARED_FAKE_DRIVER_DIR;
const std::string kFewFunctions = GPUSHARED_INSTALLED_DIR;  // fake_driver.c
// Statements for the fake driver: attributes that occupancy is computed from, and no report of
// leaks, because driver_calls.c leaks memory on purpose.
constexpr const char* kFakeGpu =
    "FAKE_CUDA=attribute 81 233472; attribute 82 65536; attribute 106 32; leaks ignored";

using Words = std::vector<std::string>;

// Runs a program with these variables, without gpushared's variables from the test's environment.
ProgramOutcome Start(Words variables, const Words& program) {
  Words command = {"/usr/bin/env", "-u", "GPUSHARED_LOG", "-u", "GPUSHARED_RUN"};
  command.insert(command.end(), variables.begin(), variables.end());
  command.insert(command.end(), program.begin(), program.end());
  return RunProgram(command);
}

ProgramOutcome Gated(const std::string& driver, Words variables, const Words& program) {
  variables.insert(variables.end(),
                   {"LD_LIBRARY_PATH=" + kGate + ":" + driver, "GPUSHARED_MODE=gate"});
  return Start(variables, program);
}

Words GetLines(const std::string& text) {
  std::istringstream stream(text);
  Words lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

void ExpectSameLines(const std::string& native, const std::string& gated) {
  const Words of_driver = GetLines(native), of_gate = GetLines(gated);
  ASSERT_EQ(of_driver.size(), of_gate.size()) << gated.substr(0, 2000);
  for (std::size_t i = 0, told = 0; i < of_driver.size() && told < 10; ++i) {
    EXPECT_EQ(of_driver[i], of_gate[i]) << "line " << i + 1;
    if (of_driver[i] != of_gate[i]) ++told;
  }
}

// A copy of the drop-in that the gate uses as a driver, and that never acts as a gate itself. The
// copy takes the place of a GPU, so it submits to a second server, at $-PUSHARED_SOCKET. The gate's
// own server would deadlock: it would not execute the work before the end of the turn, and the turn
// ends only when the work has been executed.
class DropInAsDriver {
 public:
  DropInAsDriver() {
    std::string bytes = ReadFile(kGate + "/libcuda.so.1");
    for (const std::string_view word :
         {"gpushared: a drop-in", "GPUSHARED_MODE", "GPUSHARED_SOCKET", "GPUSHARED_CLASS"}) {
      std::size_t count = 0;
      for (std::size_t at = 0; (at = bytes.find(word, at)) != std::string::npos; ++count) {
        bytes[at] = '-';
      }
      EXPECT_GT(count, 0U) << word;
    }
    std::ofstream(path(), std::ios::binary) << bytes;
  }
  const std::string& directory() const { return directory_.path(); }
  std::string path() const { return directory_ / "libcuda.so.1"; }

 private:
  ScratchDirectory directory_;
};

// ---- lookups

// lookups.c prints addresses as symbols, so that the gate's answers equal those of the driver alone
// even if they contain addresses of the gate.
void ExpectSameLookups(const std::string& directory) {
  const std::string driver = directory + "/libcuda.so.1";
  const auto native = Start({"LD_LIBRARY_PATH=" + directory}, {GPUSHARED_LOOKUPS, driver});
  const auto gated = Gated(directory, {}, {GPUSHARED_LOOKUPS, kGate + "/libcuda.so.1"});
  // The fake driver exits the program with 86, because lookups in versions other than the server's
  // count as mistakes.
  EXPECT_EQ(native.exit_code, gated.exit_code);
  EXPECT_GT(GetLines(native.output).size(), 20'000U);
  ExpectSameLines(native.output, gated.output);
}

TEST(GateTest, LookUpsEqualThoseOfTheFakeDriver) { ExpectSameLookups(kFakeDriver); }

TEST(GateTest, LookUpsEqualThoseOfAnotherDropIn) {
  const DropInAsDriver installed;
  ExpectSameLookups(installed.directory());
}

// A function that several symbols export goes through the hook of one of them, no matter under
// which symbol it is looked up.
TEST(GateTest, FunctionsOfOneAddressHaveOneDecision) {
  struct Row {
    const char *symbol, *decision;
  };
  static constexpr Row kRows[] = {
#define GPUSHARED_FUNCTION(name, version, symbol, stream, handler, hook) {#symbol, #hook},
#include "client_lib/drop_in/functions.inc"
#undef GPUSHARED_FUNCTION
  };
  const DropInAsDriver drop_in;
  for (const std::string& directory : {kFakeDriver, drop_in.directory()}) {
    void* const library = ::dlopen((directory + "/libcuda.so.1").c_str(), RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << ::dlerror();
    std::map<void*, std::set<std::string>> decisions;
    for (const Row& row : kRows) {
      if (void* const address = ::dlsym(library, row.symbol)) {
        decisions[address].insert(row.decision);
      }
    }
    EXPECT_GT(decisions.size(), 80U);
    for (const auto& [address, made] : decisions) {
      EXPECT_EQ(made.size(), 1U) << *made.begin() << " and " << *made.rbegin();
    }
  }
}

TEST(GateTest, BothNamesAreOneLibrary) {
  EXPECT_TRUE(std::filesystem::equivalent(kGate + "/libcuda.so", kGate + "/libcuda.so.1"));
}

// ---- programs

TEST(GateTest, DriverCallsPrintTheSameLinesAsOnTheFakeDriver) {
  for (const char* const what : {"", "fault", "stop"}) {
    const Words program =
        *what == 0 ? Words{GPUSHARED_DRIVER_CALLS} : Words{GPUSHARED_DRIVER_CALLS, what};
    const auto native = Start({"LD_LIBRARY_PATH=" + kFakeDriver, kFakeGpu}, program);
    const auto gated = Gated(kFakeDriver, {kFakeGpu}, program);
    EXPECT_GT(GetLines(native.output).size(), 700U);
    EXPECT_EQ(native.exit_code, gated.exit_code);
    ExpectSameLines(native.output, gated.output);
  }
}

TEST(GateTest, ProgramsRunOverAnotherDropInAndItsServer) {
  const DropInAsDriver installed;
  const ServerProcess executes, gives_turns({"--policy", "priority"});
  const std::string driver_socket = "-PUSHARED_SOCKET=" + executes.socket();
  const auto native = Start({"LD_LIBRARY_PATH=" + installed.directory(), driver_socket},
                            {GPUSHARED_THREADS_PROGRAM});
  for (const char* client_class : {"low", "high"}) {
    const Words variables = {"GPUSHARED_SOCKET=" + gives_turns.socket(),
                             "GPUSHARED_CLASS=" + std::string(client_class), driver_socket};
    const auto add = Gated(installed.directory(), variables, {GPUSHARED_VECTOR_ADD_PROGRAM});
    EXPECT_EQ(add.exit_code, 0) << add.output;
    EXPECT_THAT(add.output, HasSubstr("added"));
    // Launches from threads, captures and graphs: calls inside captures are forwarded like all
    // others.
    const auto threads = Gated(installed.directory(), variables, {GPUSHARED_THREADS_PROGRAM});
    EXPECT_EQ(threads.exit_code, 0) << threads.output;
    EXPECT_EQ(threads.output, native.output);
    const auto totals = nlohmann::json::parse(gives_turns.Ctl({"status", "--json"}).output);
    EXPECT_GT(totals["devices"][0]["totals"]["classes"][client_class]["launches"], 10)
        << "those beside captures are not counted";
  }
}

TEST(GateTest, ForwardsTheFunctionsOfADriverThatHasFew) {
  const auto gated = Gated(kFewFunctions, {}, {GPUSHARED_WHO_SERVES});
  EXPECT_EQ(gated.output, "init 0 0 count 0 21 version 4321 synchronize 801\n");
}

TEST(GateTest, FirstCallArrivesWithItsArguments) {
  EXPECT_EQ(Gated(kFewFunctions, {}, {GPUSHARED_FIRST_CALLS, "float"}).output, "succeeded 1\n");
  EXPECT_EQ(Gated(kFewFunctions, {}, {GPUSHARED_FIRST_CALLS, "many"}).output, "succeeded 1\n");
}

TEST(GateTest, FirstCallsOfManyThreadsAllArrive) {
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(Gated(kFewFunctions, {}, {GPUSHARED_FIRST_CALLS, "threads"}).output, "succeeded 8\n");
  }
}

// ---- messages, and machines without a driver

TEST(GateTest, PreloadedLibraryOpensNoDriver) {
  const auto maps = Gated(kFewFunctions, {"LD_PRELOAD=" + kGate + "/libcuda.so.1"},
                          {"/bin/cat", "/proc/self/maps"});
  EXPECT_THAT(maps.output, HasSubstr(kGate + "/libcuda.so.1"));
  EXPECT_THAT(maps.output, Not(HasSubstr(kFewFunctions)));
}

TEST(GateTest, WithoutAnInstalledDriverEveryCallReturnsStubLibrary) {
  const Words program = {GPUSHARED_WHO_SERVES};
  constexpr const char* kStub = "init 34 34 count 34 -1 version -1 synchronize 34\n";
  const ScratchDirectory nothing;
  // The test's machine may have a driver, so this checks that the loader does not find one.
  if (Gated(nothing.path(), {}, program).output != kStub) GTEST_SKIP() << "a driver is installed";
  const auto told = Gated(nothing.path(), {"GPUSHARED_RUN=1"}, program);
  EXPECT_THAT(told.output, HasSubstr("no libcuda.so.1"));
}

TEST(GateTest, LogNamesTheDriverAndThatItIsTooOldForTurns) {
  const auto log = Gated(kFewFunctions, {"GPUSHARED_LOG=1"}, {GPUSHARED_WHO_SERVES});
  EXPECT_EQ(GetLines(log.output).size(), 3U) << log.output;
  EXPECT_THAT(log.output, HasSubstr("the installed driver is too old to be gated"));
  EXPECT_THAT(log.output, HasSubstr("gate mode: " + kFewFunctions + "/libcuda.so.1"));
}

TEST(GateTest, OtherModesAreRejectedByName) {
  const auto run = Start({"LD_LIBRARY_PATH=" + kGate, "GPUSHARED_MODE=Gate", "GPUSHARED_LOG=1"},
                         {GPUSHARED_WHO_SERVES});
  EXPECT_THAT(run.output, HasSubstr("init 1 1"));
  EXPECT_THAT(run.output, HasSubstr("'Gate' for GPUSHARED_MODE"));
}

TEST(GateTest, RunStartsTheProgramBehindTheGate) {
  const auto run = [](Words arguments) {
    Words command = {GPUSHARED_BIN_DIR "/gpusharedctl", "run"};
    command.insert(command.end(), arguments.begin(), arguments.end());
    return Start({"LD_LIBRARY_PATH=" + kFewFunctions, "GPUSHARED_SOCKET=/nonexistent/socket"},
                 command);
  };
  const auto gated = run({"--mode", "gate", "--", GPUSHARED_WHO_SERVES});
  EXPECT_EQ(gated.exit_code, 0);
  EXPECT_THAT(gated.output, HasSubstr("the program runs without one until one answers"));
  EXPECT_THAT(gated.output, HasSubstr("init 0 0 count 0 21 version 4321 synchronize 801\n"));
  EXPECT_THAT(run({"--mode", "gate", "--explain"}).output, HasSubstr("GPUSHARED_MODE=gate"));
  const auto rejected = run({"--mode", "gate", "--interruptible", "--", GPUSHARED_WHO_SERVES});
  EXPECT_EQ(rejected.exit_code, 2);
  EXPECT_THAT(rejected.output, HasSubstr("--interruptible has no effect in mode gate"));
  const auto needs = run({"--mode", "gate", "--fallback", "none", "--", GPUSHARED_WHO_SERVES});
  EXPECT_EQ(needs.exit_code, 3) << needs.output;
  EXPECT_EQ(run({"--mode", "both", "--", GPUSHARED_WHO_SERVES}).exit_code, 2);
}

// ---- the trace

std::map<std::string, long> GetTrace(const ScratchDirectory& directory) {
  std::map<std::string, long> counts;
  for (const auto& file : std::filesystem::directory_iterator(directory.path())) {
    EXPECT_THAT(file.path().filename(), HasSubstr("trace."));
    for (const std::string& line : GetLines(ReadFile(file.path()))) {
      const std::size_t tab = line.rfind('\t');
      counts[line.substr(0, tab)] += std::atol(line.c_str() + tab);
    }
  }
  return counts;
}

TEST(GateTest, TraceCountsCalls) {
  const ScratchDirectory directory;
  const Words variables = {"GPUSHARED_GATE_TRACE=" + (directory / "trace")};
  const auto traced = Gated(kFewFunctions, variables, {GPUSHARED_FIRST_CALLS, "threads"});
  EXPECT_EQ(traced.output, "succeeded 8\n");
  EXPECT_EQ(GetTrace(directory), (std::map<std::string, long>{{"calls\tcuLaunchKernel", 8}}));
}

TEST(GateTest, TraceCountsLookUps) {
  const DropInAsDriver installed;
  const ScratchDirectory directory;
  const auto run = Gated(installed.directory(), {"GPUSHARED_GATE_TRACE=" + (directory / "trace")},
                         {GPUSHARED_LOOKUPS, kGate + "/libcuda.so.1"});
  EXPECT_EQ(run.exit_code, 0);
  const auto counts = GetTrace(directory);
  EXPECT_TRUE(counts.contains("fetched\tcuLaunchKernelEx"));
  EXPECT_TRUE(counts.contains("fetched\tcuLaunchKernelEx_ptsz"));
  EXPECT_TRUE(counts.contains("absent\tcuLaunchKernelEx@11050"));
  EXPECT_EQ(counts.at("absent\tcuNoSuchCall@13000"), 1);
}

TEST(GateTest, TraceChangesNothingForAProgramOfManyThreads) {
  const DropInAsDriver installed;
  const ServerProcess executes, gives_turns;
  const ScratchDirectory directory;
  const auto run =
      Gated(installed.directory(),
            {"GPUSHARED_SOCKET=" + gives_turns.socket(), "-PUSHARED_SOCKET=" + executes.socket(),
             "GPUSHARED_GATE_TRACE=" + (directory / "trace")},
            {GPUSHARED_THREADS_PROGRAM});
  EXPECT_EQ(run.exit_code, 0) << run.output;
  const auto counts = GetTrace(directory);
  // 8 threads with 4 streams, 5 rounds of two launches each, one of which is captured.
  EXPECT_EQ(counts.at("calls\tcuLaunchKernel"), 320);
  EXPECT_EQ(counts.at("calls\tcuGraphLaunch"), 160);
}

// A user who can predict the trace's path must not be able to make the gate overwrite a file, nor
// write through a link.
TEST(GateTest, TraceNeverOverwritesAnExistingFile) {
  const ScratchDirectory directory;
  const std::string mine = directory / "mine";
  std::ofstream(mine) << "mine";
  for (const std::string& make : {"ln -s " + mine + " ", "cp " + mine + " "}) {
    const auto run =
        Gated(kFewFunctions, {"GPUSHARED_LOG=1"},
              {"/bin/sh", "-c",
               make + directory.path() + "/t.$$ && GPUSHARED_GATE_TRACE=" + directory.path() +
                   "/t exec " GPUSHARED_WHO_SERVES});
    EXPECT_THAT(run.output, HasSubstr("no trace: "));
    EXPECT_THAT(run.output, HasSubstr("init 0 0"));
  }
  EXPECT_EQ(ReadFile(mine), "mine");
}

}  // namespace
}  // namespace gpushared
