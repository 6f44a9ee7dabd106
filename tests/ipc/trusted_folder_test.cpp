// SPDX-License-Identifier: Apache-2.0
#include "ipc/trusted_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/scratch_folder.h"

namespace gpushared::ipc {
namespace {

using ::testing::HasSubstr;

class TrustedFolder : public ::testing::Test {
 protected:
  TrustedFolder() : inner_(folder_ / "outer/inner") {
    std::filesystem::create_directories(inner_);
    ::chmod((folder_ / "outer").c_str(), 0755);
    ::chmod(inner_.c_str(), 0755);
  }
  std::string Refusal(const std::string& path) const {
    const Status status = CheckTrustedFolder(path);
    return status.ok() ? "(trusted)" : std::string(status.message());
  }
  const gpushared::testing::ScratchFolder folder_;
  const std::string inner_;
};

TEST_F(TrustedFolder, OfThisUserBelowAStickyOneIsTrusted) {
  EXPECT_EQ(Refusal(inner_), "(trusted)");
  EXPECT_EQ(Refusal("/"), "(trusted)");
  EXPECT_EQ(Refusal(inner_ + "/"), "(trusted)");
}

TEST_F(TrustedFolder, OthersMayWriteToNoneAbove) {
  for (const mode_t mode : {0775, 0757, 0777}) {
    for (const std::string& each : {folder_ / "outer", inner_}) {
      ::chmod(each.c_str(), mode);
      EXPECT_THAT(Refusal(inner_), HasSubstr("'" + each + "' may be written to by others"));
      ::chmod(each.c_str(), 0755);
    }
  }
  ::chmod((folder_ / "outer").c_str(), 01777);
  EXPECT_EQ(Refusal(inner_), "(trusted)") << "sticky: others cannot rename what is in it";
}

TEST_F(TrustedFolder, EachBelongsToThisUserOrRoot) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to give a directory away";
  for (const std::string& each : {folder_ / "outer", inner_}) {
    ASSERT_EQ(::chown(each.c_str(), 65534, 65534), 0);
    EXPECT_THAT(Refusal(inner_), HasSubstr("'" + each + "' belongs to uid 65534"));
    ASSERT_EQ(::chown(each.c_str(), 0, 0), 0);
  }
  EXPECT_EQ(Refusal(inner_), "(trusted)");
}

TEST_F(TrustedFolder, WhatALinkLeadsToIsCheckedToo) {
  std::filesystem::create_directory(folder_ / "open");
  std::filesystem::create_directory(folder_ / "open/kept");
  ::chmod((folder_ / "open").c_str(), 0777);
  std::filesystem::create_symlink(folder_ / "open/kept", folder_ / "link");
  EXPECT_THAT(Refusal(folder_ / "link"), HasSubstr("open' may be written to"));
  std::filesystem::create_symlink(inner_, folder_ / "open/back");
  EXPECT_THAT(Refusal(folder_ / "open/back"), HasSubstr("open' may be written to"));
  std::filesystem::create_symlink(inner_, folder_ / "good");
  EXPECT_EQ(Refusal(folder_ / "good"), "(trusted)");
}

TEST_F(TrustedFolder, WhatIsNoDirectoryIsRefused) {
  EXPECT_THAT(Refusal(folder_ / "none"), HasSubstr("cannot be read: No such file"));
  EXPECT_THAT(Refusal("relative"), HasSubstr("no absolute path"));
  EXPECT_THAT(Refusal("/etc/passwd"), HasSubstr("'/etc/passwd' is none"));
}

}  // namespace
}  // namespace gpushared::ipc
