// SPDX-License-Identifier: Apache-2.0
#include "ipc/trusted_directory.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/scratch_directory.h"

namespace gpushared::ipc {
namespace {

using ::testing::HasSubstr;

class TrustedDirectory : public ::testing::Test {
 protected:
  TrustedDirectory() : inner_(directory_ / "outer/inner") {
    std::filesystem::create_directories(inner_);
    ::chmod((directory_ / "outer").c_str(), 0755);
    ::chmod(inner_.c_str(), 0755);
  }
  std::string Rejection(const std::string& path) const {
    const Status status = CheckTrustedDirectory(path);
    return status.ok() ? "(trusted)" : std::string(status.message());
  }
  const gpushared::testing::ScratchDirectory directory_;
  const std::string inner_;
};

TEST_F(TrustedDirectory, TrustsOwnDirectoryBelowStickyOne) {
  EXPECT_EQ(Rejection(inner_), "(trusted)");
  EXPECT_EQ(Rejection("/"), "(trusted)");
  EXPECT_EQ(Rejection(inner_ + "/"), "(trusted)");
}

TEST_F(TrustedDirectory, RejectsParentsThatOthersMayWrite) {
  for (const mode_t mode : {0775, 0757, 0777}) {
    for (const std::string& each : {directory_ / "outer", inner_}) {
      ::chmod(each.c_str(), mode);
      EXPECT_THAT(Rejection(inner_),
                  HasSubstr("'" + each + "' is writable by users other than its owner"));
      ::chmod(each.c_str(), 0755);
    }
  }
  ::chmod((directory_ / "outer").c_str(), 01777);
  EXPECT_EQ(Rejection(inner_), "(trusted)") << "sticky: others cannot rename what is in it";
}

TEST_F(TrustedDirectory, RequiresOwnerToBeUserOrRoot) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to give a directory away";
  for (const std::string& each : {directory_ / "outer", inner_}) {
    ASSERT_EQ(::chown(each.c_str(), 65534, 65534), 0);
    EXPECT_THAT(Rejection(inner_), HasSubstr("'" + each + "' belongs to uid 65534"));
    ASSERT_EQ(::chown(each.c_str(), 0, 0), 0);
  }
  EXPECT_EQ(Rejection(inner_), "(trusted)");
}

TEST_F(TrustedDirectory, ChecksTargetsOfLinks) {
  std::filesystem::create_directory(directory_ / "open");
  std::filesystem::create_directory(directory_ / "open/kept");
  ::chmod((directory_ / "open").c_str(), 0777);
  std::filesystem::create_symlink(directory_ / "open/kept", directory_ / "link");
  EXPECT_THAT(Rejection(directory_ / "link"), HasSubstr("open' is writable by"));
  std::filesystem::create_symlink(inner_, directory_ / "open/back");
  EXPECT_THAT(Rejection(directory_ / "open/back"), HasSubstr("open' is writable by"));
  std::filesystem::create_symlink(inner_, directory_ / "good");
  EXPECT_EQ(Rejection(directory_ / "good"), "(trusted)");
}

TEST_F(TrustedDirectory, RejectsOtherFiles) {
  EXPECT_THAT(Rejection(directory_ / "none"), HasSubstr("cannot be read: No such file"));
  EXPECT_THAT(Rejection("relative"), HasSubstr("not an absolute path"));
  EXPECT_THAT(Rejection("/etc/passwd"), HasSubstr("'/etc/passwd' is none"));
}

}  // namespace
}  // namespace gpushared::ipc
