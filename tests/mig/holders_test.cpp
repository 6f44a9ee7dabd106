// SPDX-License-Identifier: Apache-2.0
#include "server/tools/mig/holders.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "tests/support/scratch_directory.h"

namespace gpushared::mig {
namespace {

TEST(MigHolders, AreThoseWithTheFileOpen) {
  const testing::ScratchDirectory proc;
  const auto process = [&](const std::string& pid, const std::string& name,
                           const std::string& opened) {
    std::filesystem::create_directories(proc / pid + "/fd");
    std::ofstream(proc / pid + "/comm") << name << "\n";
    std::filesystem::create_symlink("/dev/null", proc / pid + "/fd/0");
    std::filesystem::create_symlink(opened, proc / pid + "/fd/3");
  };
  process("12", "dcgm", "/dev/nvidia1");
  process("7", "evil\033[2J", "/dev/nvidia1");
  process("8", "other", "/dev/nvidia10");
  std::filesystem::create_directories(proc / "self/fd");
  const std::vector<Holder> holders = GetHolders(1, proc.path());
  ASSERT_EQ(holders.size(), 2U);
  EXPECT_EQ(holders[0].pid, 7);
  EXPECT_EQ(holders[0].name, "evil?[2J");
  EXPECT_EQ(holders[1].name, "dcgm");
  EXPECT_TRUE(GetHolders(1, proc / "none").empty());
  EXPECT_EQ(ProcessText(12, proc.path()), "process 12 (dcgm)");
  EXPECT_EQ(ProcessText(99, proc.path()), "process 99");
}

}  // namespace
}  // namespace gpushared::mig
