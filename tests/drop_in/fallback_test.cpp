// SPDX-License-Identifier: Apache-2.0
// GPUSHARED_FALLBACK: the conditions under which the installed driver serves a program.
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/scratch_directory.h"
#include "tests/support/server_process.h"

namespace gpushared {
namespace {

using ::testing::HasSubstr;
using testing::ProgramOutcome;
using testing::RunProgram;
using testing::ServerProcess;

const std::string kDropIn = GPUSHARED_DROP_IN_DIR;
const std::string kInstalled = GPUSHARED_INSTALLED_DIR;
constexpr const char* kNative = "init 0 0 count 0 21 version 4321 synchronize 801";

// Runs a program with this environment and returns its output.
std::string Says(const std::string& library_path, const std::string& fallback,
                 const std::string& socket) {
  const std::string set =
      "exec env -u GPUSHARED_LOG LD_LIBRARY_PATH=\"$0\" "
      "GPUSHARED_FALLBACK=\"$1\" GPUSHARED_SOCKET=\"$2\" \"$3\"";
  return RunProgram({"/bin/sh", "-c", set, library_path, fallback, socket, GPUSHARED_WHO_SERVES})
      .output;
}

TEST(FallbackTest, InstalledDriverServesWhereNoServerAnswers) {
  EXPECT_THAT(Says(kDropIn + ":" + kInstalled, "native", "/nonexistent"), HasSubstr(kNative));
  EXPECT_THAT(Says(kInstalled + "x:" + kDropIn + "::" + kInstalled, "native", "/nonexistent"),
              HasSubstr(kNative));
}

TEST(FallbackTest, InstalledDriverIsNotUsedByDefault) {
  EXPECT_THAT(Says(kDropIn + ":" + kInstalled, "", "/nonexistent"),
              HasSubstr("init 805 805 count 3"));
}

TEST(FallbackTest, ServerIsPreferredToInstalledDriver) {
  const ServerProcess server;
  EXPECT_THAT(Says(kDropIn + ":" + kInstalled, "native", server.socket()),
              HasSubstr("init 0 0 count 0 1 version 13050"));
}

TEST(FallbackTest, OtherValuesAreRejectedByName) {
  const ServerProcess server;
  EXPECT_THAT(Says(kDropIn + ":" + kInstalled, "Native", server.socket()), HasSubstr("init 1 1"));
  ::setenv("GPUSHARED_LOG", "1", 1);
  ::setenv("GPUSHARED_FALLBACK", "cpu", 1);
  const std::string log =
      RunProgram({"/usr/bin/env", "LD_LIBRARY_PATH=" + kDropIn, GPUSHARED_WHO_SERVES}).output;
  EXPECT_THAT(log, HasSubstr("GPUSHARED_FALLBACK='cpu'"));
}

// A copy of the drop-in does not count as a driver, whatever directory it is in, because otherwise
// the two would search for each other endlessly.
TEST(FallbackTest, CopyOfTheDropInIsNotTheDriver) {
  const testing::ScratchDirectory directory;
  std::filesystem::copy_file(kDropIn + "/libcuda.so.1", directory / "libcuda.so.1");
  EXPECT_THAT(Says(kDropIn + ":" + directory.path(), "native", "/nonexistent"),
              HasSubstr("init 805 805"));
  EXPECT_THAT(Says(kDropIn + ":" + directory.path() + ":" + kInstalled, "native", "/nonexistent"),
              HasSubstr(kNative));
}

TEST(FallbackTest, RunStartsTheProgramWithoutAServer) {
  ::setenv("LD_LIBRARY_PATH", kInstalled.c_str(), 1);
  const auto run = [](std::vector<std::string> arguments) {
    std::vector<std::string> command = {GPUSHARED_BIN_DIR "/gpusharedctl", "run", "--socket",
                                        "/nonexistent"};
    command.insert(command.end(), arguments.begin(), arguments.end());
    return RunProgram(command);
  };
  const ProgramOutcome native = run({"--fallback", "native", "--", GPUSHARED_WHO_SERVES});
  EXPECT_EQ(native.exit_code, 0);
  EXPECT_THAT(native.output, HasSubstr(kNative));
  EXPECT_THAT(native.output, HasSubstr("'/nonexistent'"));
  EXPECT_THAT(run({"--fallback", "native", "--explain"}).output,
              HasSubstr("GPUSHARED_FALLBACK=native  (the installed driver serves the program"));
  EXPECT_EQ(run({"--fallback", "cpu", "--", GPUSHARED_WHO_SERVES}).exit_code, 2);
}

}  // namespace
}  // namespace gpushared
