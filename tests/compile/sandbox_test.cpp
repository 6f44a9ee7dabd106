// SPDX-License-Identifier: Apache-2.0
#include "server/compile/sandbox.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gpushared::compile {
namespace {

using ::testing::HasSubstr;

Result<SandboxResult> Perform(std::vector<std::string> deed, const SandboxLimits& limits = {},
                              std::span<const std::byte> input = {}) {
  deed.insert(deed.begin(), GPUSHARED_HOSTILE_COMPILER);
  return RunSandboxed(deed, input, limits);
}

TEST(Sandbox, ProgramReadsItsInputAndWritesItsOutput) {
  std::string text(100000, 'x');
  text += "end";
  const auto run = Perform({"echo"}, {}, std::as_bytes(std::span(text)));
  ASSERT_TRUE(run.ok()) << run.status().ToString();
  EXPECT_EQ(run->exit_code, 0) << run->text;
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(run->output.data()), run->output.size()),
            text);
}

TEST(Sandbox, WhatRunsTooLongIsEnded) {
  for (const char* deed : {"loop", "sleep"}) {
    const auto run = Perform({deed}, {.time = std::chrono::seconds(1)});
    EXPECT_EQ(run.status().code(), StatusCode::kLimitExceeded) << deed;
    EXPECT_THAT(std::string(run.status().message()), HasSubstr("it ran 1 s")) << deed;
  }
}

TEST(Sandbox, WhatNobodyWaitsForAnyMoreIsEnded) {
  const int abandoned = ::eventfd(0, EFD_CLOEXEC);
  ASSERT_GE(abandoned, 0);
  std::thread leaver([abandoned] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(::eventfd_write(abandoned, 1), 0);
  });
  const auto run = RunSandboxed({GPUSHARED_HOSTILE_COMPILER, "loop"}, {},
                                {.time = std::chrono::hours(1)}, abandoned);
  leaver.join();
  ::close(abandoned);
  EXPECT_EQ(run.status().code(), StatusCode::kCancelled) << run.status().ToString();
}

TEST(Sandbox, WhatClosesItsOutputDoesNotGoOnUnseen) {
  EXPECT_EQ(Perform({"close"}).status().code(), StatusCode::kInternal);
}

TEST(Sandbox, WhatTakesTooMuchMemoryIsEnded) {
  const auto run = Perform({"grow"}, {.memory_bytes = std::uint64_t{256} << 20});
  EXPECT_EQ(run.status().code(), StatusCode::kInternal);
  EXPECT_THAT(std::string(run.status().message()), HasSubstr("268435456 bytes of memory"));
}

TEST(Sandbox, WhatWritesTooMuchIsEnded) {
  const auto run = Perform({"flood", kSandboxOutput}, {.output_bytes = 1 << 20});
  EXPECT_EQ(run.status().code(), StatusCode::kLimitExceeded);
  EXPECT_THAT(std::string(run.status().message()), HasSubstr("1048576 bytes"));
}

TEST(Sandbox, OnlyTheBeginningOfWhatIsPrintedIsKept) {
  const auto run = Perform({"chatter"}, {.text_bytes = 1000});
  ASSERT_TRUE(run.ok()) << run.status().ToString();
  EXPECT_EQ(run->text.size(), 1000U);
  EXPECT_THAT(run->text, HasSubstr("all work"));
}

TEST(Sandbox, ReachesNothingBesideItsFiles) {
  ::setenv("GPUSHARED_SECRET", "1", 1);
  const int open_fd = ::open("/dev/null", O_RDONLY);  // Without close-on-exec.
  const auto folder = std::filesystem::temp_directory_path();
  const std::string file = folder / "gpushared-sandbox-victim";
  const std::string fresh = folder / "gpushared-sandbox-fresh";
  std::ofstream(file) << "mine";
  std::filesystem::remove(fresh);  // Of a run that failed.
  const std::vector<std::vector<std::string>> deeds = {
      {"write", file}, {"write", fresh}, {"remove", file}, {"socket"},
      {"trace"},       {"kill"},         {"environment"},  {"descriptors"}};
  for (const std::vector<std::string>& deed : deeds) {
    const auto run = Perform(deed);
    ASSERT_TRUE(run.ok()) << deed[0] << ": " << run.status().ToString();
    EXPECT_EQ(run->exit_code, 3) << deed[0];
  }
  EXPECT_FALSE(std::filesystem::exists(fresh));
  EXPECT_TRUE(std::filesystem::remove(file));
  ::close(open_fd);
}

TEST(Sandbox, ProgramThatIsNotThereIsSaidToBe) {
  EXPECT_EQ(RunSandboxed({"/nowhere/ptxas"}, {}, {}).status().code(), StatusCode::kInternal);
}

}  // namespace
}  // namespace gpushared::compile
