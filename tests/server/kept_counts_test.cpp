// SPDX-License-Identifier: Apache-2.0
#include "server/broker/kept_counts.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/scratch_directory.h"

namespace gpushared::server {
namespace {

using ::testing::HasSubstr;

TEST(KeptCounts, PersistUntilRemoved) {
  const testing::ScratchDirectory directory;
  const std::string path = directory / "s.counts";
  {
    Result<KeptCounts> counts = KeptCounts::Open(path);
    ASSERT_TRUE(counts.ok()) << counts.status().ToString();
    ++counts->Claim("", 0).admitted;
    counts->Claim("batch", 3).rejected[static_cast<std::size_t>(StatusCode::kPermissionDenied)] = 5;
    counts->rejected_requests(ipc::AdminVerb::kDrain) = 2;
  }
  Result<KeptCounts> counts = KeptCounts::Open(path);
  ASSERT_TRUE(counts.ok()) << counts.status().ToString();
  EXPECT_EQ(counts->Numbers(), (std::map<std::string, std::uint64_t>{{"batch", 3}}));
  EXPECT_EQ(counts->Claim("", 0).admitted, 1U);
  EXPECT_EQ(counts->Claim("batch", 3).Rejected(),
            (std::map<std::string, std::uint64_t>{{"PermissionDenied", 5}}));
  EXPECT_EQ(counts->RejectedRequests(), (std::map<std::string, std::uint64_t>{{"drain", 2}}));
  counts->FreeAllBut({});
  EXPECT_EQ(counts->Claim("batch", 4).Rejected().size(), 0U);
  counts->Remove();
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(KeptCounts, RejectsForeignFile) {
  const testing::ScratchDirectory directory;
  const auto rejection = [&](const std::string& path) {
    return std::string(KeptCounts::Open(path).status().message());
  };
  const std::string path = directory / "s.counts";
  ASSERT_TRUE(KeptCounts::Open(path).ok());
  const auto write = [&](std::streamoff at, const std::string& bytes) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(at);
    file << bytes;
  };
  write(0, "x");
  EXPECT_THAT(rejection(path), HasSubstr("of another version, or damaged"));
  std::ofstream(path) << "short";
  EXPECT_THAT(rejection(path), HasSubstr("is no file of this server's counts"));
  std::filesystem::remove(path);
  ASSERT_TRUE(KeptCounts::Open(path).ok());
  std::filesystem::create_hard_link(path, directory / "link");
  EXPECT_THAT(rejection(path), HasSubstr("is no file of this server's counts"));
  std::filesystem::remove(directory / "link");
  ::chmod(path.c_str(), 0644);
  EXPECT_THAT(rejection(path), HasSubstr("is no file of this server's counts"));
  std::filesystem::remove(path);
  std::filesystem::create_symlink(directory / "elsewhere", path);
  EXPECT_THAT(rejection(path), HasSubstr("opening"));
  EXPECT_THAT(rejection(directory.path()), HasSubstr("opening"));
}

}  // namespace
}  // namespace gpushared::server
