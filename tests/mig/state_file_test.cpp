// SPDX-License-Identifier: Apache-2.0
#include "server/tools/mig/state_file.h"

#include <sys/stat.h>

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/scratch_directory.h"

namespace gpushared::mig {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class MigStateFile : public ::testing::Test {
 protected:
  Result<SavedState> Read(const std::string& text) {
    std::ofstream(path_) << text;
    return StateFile::Open(path_)->Load();
  }
  const testing::ScratchDirectory directory_;
  const std::string path_ = directory_ / "mig/state.json";
};

TEST_F(MigStateFile, RestoresSavedState) {
  const GpuLayout one{.gpu = "GPU-1", .is_enabled = true, .layout = {{9, 4, {2, 1}}}};
  const GpuLayout off{.gpu = "GPU-1"};
  {
    const auto state = StateFile::Open(path_);
    ASSERT_TRUE(state.ok()) << state.status().message();
    EXPECT_THAT(state->Load()->at_boot, IsEmpty());
    SavedState saved;
    saved.SetAtBoot(off);
    saved.SetAtBoot(one);
    saved.under_way = {{.before = off, .after = one}};
    ASSERT_TRUE(state->Save(saved).ok());
  }
  const auto again = StateFile::Open(path_)->Load();
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(again->at_boot, std::vector{one});
  ASSERT_EQ(again->under_way.size(), 1U);
  EXPECT_EQ(again->under_way[0].before, off);
  EXPECT_EQ(again->under_way[0].after, one);
  struct stat told {};
  ASSERT_EQ(::stat(path_.c_str(), &told), 0);
  EXPECT_EQ(told.st_mode & 0777, 0600U);
  ASSERT_EQ(::stat((directory_ / "mig").c_str(), &told), 0);
  EXPECT_EQ(told.st_mode & 0777, 0700U);
}

TEST_F(MigStateFile, OneProgramAtATime) {
  const auto first = StateFile::Open(path_);
  ASSERT_TRUE(first.ok());
  const auto second = StateFile::Open(path_);
  EXPECT_EQ(second.status().code(), StatusCode::kUnavailable);
}

TEST_F(MigStateFile, RejectsInvalidFile) {
  ASSERT_TRUE(StateFile::Open(path_).ok());
  EXPECT_THAT(Read("{").status().message(), HasSubstr("is invalid"));
  EXPECT_THAT(Read("{}").status().message(), HasSubstr("is invalid"));
  EXPECT_THAT(Read(R"({"version": 2, "at_boot": [], "under_way": []})").status().message(),
              HasSubstr("a version other than 1"));
  EXPECT_THAT(Read(std::string(2 << 20, ' ')).status().message(), HasSubstr("longer than 1 MiB"));
  const auto nowhere = StateFile::Open(directory_ / "no/such/directory/state.json");
  EXPECT_EQ(nowhere.status().code(), StatusCode::kInternal);
}

}  // namespace
}  // namespace gpushared::mig
