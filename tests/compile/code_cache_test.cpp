// SPDX-License-Identifier: Apache-2.0
#include "server/modules/compile/code_cache.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/scratch_directory.h"

namespace gpushared::compile {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class CodeCaches : public ::testing::Test {
 protected:
  CodeCache Open(std::uint64_t bytes_max = 1 << 20) {
    Result<CodeCache> cache = CodeCache::Open(directory_, bytes_max);
    EXPECT_TRUE(cache.ok()) << cache.status().ToString();
    return *std::move(cache);
  }
  static Digest Key(int number) { return {static_cast<std::byte>(number)}; }
  static std::vector<std::byte> Code(std::size_t bytes) {
    return std::vector<std::byte>(bytes, std::byte{0x5a});
  }
  std::vector<fs::path> Files() const {
    return {fs::directory_iterator(directory_), fs::directory_iterator()};
  }

  const testing::ScratchDirectory scratch_;
  const fs::path root_ = scratch_.path();
  const fs::path directory_ = root_ / "deep" / "code";
};

TEST_F(CodeCaches, ReopenedCacheFindsStoredCodeByItsKeyOnly) {
  ASSERT_TRUE(Open().Store(Key(1), Code(1000)).ok());
  CodeCache later = Open();
  EXPECT_EQ(later.Find(Key(1)), Code(1000));
  EXPECT_EQ(later.Find(Key(2)), std::nullopt);
  EXPECT_EQ(Files().size(), 1U) << "no temporary file must remain";
}

TEST_F(CodeCaches, DetectsEveryDamagedByteAndDeletesTheFile) {
  CodeCache cache = Open();
  ASSERT_TRUE(cache.Store(Key(1), Code(20)).ok());
  const fs::path file = Files().at(0);
  const auto bytes = fs::file_size(file);
  ASSERT_EQ(bytes, 100U);
  for (std::uint64_t at = 0; at < bytes; ++at) {
    ASSERT_TRUE(cache.Store(Key(1), Code(20)).ok());
    std::fstream change(file, std::ios::in | std::ios::out | std::ios::binary);
    change.seekp(static_cast<std::streamoff>(at));
    change.put('\x77');
    change.close();
    EXPECT_EQ(cache.Find(Key(1)), std::nullopt) << at;
    EXPECT_EQ(cache.damaged(), at + 1);
    EXPECT_FALSE(fs::exists(file));
  }
  for (const std::uint64_t cut : {0, 50, 80, 99}) {
    ASSERT_TRUE(cache.Store(Key(1), Code(20)).ok());
    fs::resize_file(file, cut);
    EXPECT_EQ(cache.Find(Key(1)), std::nullopt) << cut;
  }
  ASSERT_TRUE(cache.Store(Key(1), Code(20)).ok());
  EXPECT_EQ(cache.Find(Key(1)), Code(20));
}

TEST_F(CodeCaches, RejectsFileUnderAnotherKeysName) {
  CodeCache cache = Open();
  ASSERT_TRUE(cache.Store(Key(1), Code(20)).ok());
  const fs::path mine = Files().at(0);
  ASSERT_TRUE(cache.Store(Key(2), Code(30)).ok());
  for (const fs::path& file : Files()) {
    if (file != mine) fs::copy_file(file, mine, fs::copy_options::overwrite_existing);
  }
  EXPECT_EQ(cache.Find(Key(1)), std::nullopt);
}

TEST_F(CodeCaches, EvictsLeastRecentlyUsed) {
  CodeCache cache = Open(3 * 1080);
  for (int i = 1; i <= 3; ++i) {
    ASSERT_TRUE(cache.Store(Key(i), Code(1000)).ok());
    for (const fs::path& file : Files()) {
      fs::last_write_time(file, fs::last_write_time(file) - std::chrono::hours(1));
    }
  }
  ASSERT_TRUE(cache.Find(Key(1)));
  ASSERT_TRUE(cache.Store(Key(4), Code(1000)).ok());
  EXPECT_TRUE(cache.Find(Key(1)));
  EXPECT_FALSE(cache.Find(Key(2)));
  EXPECT_TRUE(cache.Find(Key(3)));
  EXPECT_TRUE(cache.Find(Key(4)));
  EXPECT_TRUE(cache.Store(Key(5), Code(4000)).ok());
  EXPECT_FALSE(cache.Find(Key(5))) << "larger than the whole cache";
  EXPECT_TRUE(cache.Find(Key(1)));
}

TEST_F(CodeCaches, RejectsDirectoryWritableByOthers) {
  (void)Open();
  EXPECT_EQ(fs::status(directory_).permissions(), fs::perms::owner_all);
  fs::permissions(directory_, fs::perms::all);
  const Status rejected = CodeCache::Open(directory_, 1000).status();
  EXPECT_EQ(rejected.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(rejected.message()), HasSubstr("by others"));
  fs::permissions(directory_, fs::perms::owner_all);
  // A user who can rename the directory can put another one in its place.
  fs::permissions(directory_.parent_path(), fs::perms::all);
  EXPECT_THAT(std::string(CodeCache::Open(directory_, 1000).status().message()),
              HasSubstr("writable by users other than its owner"));
  fs::permissions(directory_.parent_path(), fs::perms::owner_all);
  EXPECT_TRUE(CodeCache::Open(directory_, 1000).ok());
  std::ofstream(root_ / "file") << "";
  EXPECT_THAT(std::string(CodeCache::Open(root_ / "file", 1000).status().message()),
              HasSubstr("no directory"));
}

}  // namespace
}  // namespace gpushared::compile
