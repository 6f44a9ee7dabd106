// SPDX-License-Identifier: Apache-2.0
#include "ipc/loader_paths.h"

#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gpushared::ipc {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::string Number(std::uint32_t value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof value);
}

constexpr std::uint32_t kX64 = 0x0303;
constexpr std::uint32_t kTexts = 48 + 4 * 24;

// `path` is an offset from the beginning of the texts, which contains "name".
std::string Entry(std::uint32_t flags, std::uint32_t path) {
  return Number(flags) + Number(kTexts) + Number(kTexts + path) + std::string(12, '\0');
}

// One library for 32 bits, two for x86-64, and one with a relative path.
std::string Cache() {
  std::string cache = "glibc-ld.so.cache1.1" + Number(4) + std::string(24, '\0');
  cache += Entry(0x0003, 5) + Entry(kX64, 9) + Entry(kX64, 13) + Entry(kX64, 16);
  return cache + std::string("name\0/32\0/64\0/b\0rel\0", 20);
}

TEST(LoaderPathsTest, FindsLibrariesOfMachinesArchitectureInOrder) {
  const LoaderPaths paths(Cache());
  EXPECT_THAT(paths.PathsInCache("name"), ElementsAre("/64", "/b"));
  EXPECT_THAT(paths.PathsInCache("nam"), IsEmpty());
  EXPECT_EQ(paths.GetPaths("name").front(), "/64") << "the cache goes before the directories";
}

TEST(LoaderPathsTest, DirectoriesAreSearchedWithoutACache) {
  const LoaderPaths none("");
  EXPECT_THAT(none.PathsInCache("name"), IsEmpty());
  EXPECT_THAT(none.GetPaths("name"), Contains("/usr/lib/x86_64-linux-gnu/name"));
}

TEST(LoaderPathsTest, BrokenCacheHasNoLibraries) {
  std::string cache = Cache();
  for (std::size_t bytes = 0; bytes <= kTexts; ++bytes) {
    EXPECT_THAT(LoaderPaths(cache.substr(0, bytes)).PathsInCache("name"), IsEmpty()) << bytes;
  }
  cache.replace(20, 4, Number(0xffffffff));
  EXPECT_THAT(LoaderPaths(cache).PathsInCache("other"), IsEmpty());
}

TEST(LoaderPathsTest, ThisMachinesCacheHasTheCLibrary) {
  const std::vector<std::string> paths = LoaderPaths::OfThisMachine().GetPaths("libc.so.6");
  EXPECT_THAT(paths, Contains(::testing::EndsWith("/x86_64-linux-gnu/libc.so.6")));
}

}  // namespace
}  // namespace gpushared::ipc
