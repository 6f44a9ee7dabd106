// SPDX-License-Identifier: Apache-2.0
#include "server/platform/usable_memory.h"

#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gpushared::testing {
namespace {

using server::CgroupDirectory;
using server::GetMemoryLimit;
using server::MemoryCgroups;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

std::vector<std::string> Paths(std::string_view cgroup, std::string_view mountinfo) {
  std::vector<std::string> paths;
  for (const CgroupDirectory& directory : MemoryCgroups(cgroup, mountinfo))
    paths.push_back(directory.path);
  return paths;
}

TEST(MemoryCgroups, VersionTwoIncludesOwnGroupAndAllAncestors) {
  EXPECT_THAT(Paths("0::/system.slice/gpushared.service\n",
                    "25 30 0:22 / /proc rw,nosuid - proc proc rw\n"
                    "35 24 0:30 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw\n"),
              ElementsAre("/sys/fs/cgroup/system.slice/gpushared.service",
                          "/sys/fs/cgroup/system.slice", "/sys/fs/cgroup"));
}

TEST(MemoryCgroups, VersionOneUsesMemoryController) {
  const std::string mounts =
      "40 32 0:33 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
      "41 32 0:34 / /sys/fs/cgroup/cpu rw shared:15 master:2 - cgroup cgroup rw,cpu,cpuacct\n"
      "42 32 0:35 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
  EXPECT_THAT(Paths("9:cpu,cpuacct:/busy\n4:memory:/jobs/7\n0::/\n", mounts),
              ElementsAre("/sys/fs/cgroup/unified", "/sys/fs/cgroup/memory/jobs/7",
                          "/sys/fs/cgroup/memory/jobs", "/sys/fs/cgroup/memory"));
}

TEST(MemoryCgroups, ContainerSeesOnlyGroupsBelowItsMount) {
  EXPECT_THAT(
      Paths("4:memory:/docker/c0ffee/inner\n",
            "42 32 0:35 /docker/c0ffee /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"),
      ElementsAre("/sys/fs/cgroup/memory/inner", "/sys/fs/cgroup/memory"));
  // Only the mounted group's limit counts in two cases: a group whose name merely begins with the
  // same letters, and a namespace.
  EXPECT_THAT(
      Paths("4:memory:/docker/c0ffeebabe\n",
            "42 32 0:35 /docker/c0ffee /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"),
      ElementsAre("/sys/fs/cgroup/memory"));
  EXPECT_THAT(Paths("0::/\n", "42 32 0:35 / /sys/fs/cgroup ro - cgroup2 cgroup rw\n"),
              ElementsAre("/sys/fs/cgroup"));
}

TEST(MemoryCgroups, FindsMountWithBlanks) {
  EXPECT_THAT(Paths("0::/a:b\n", "42 32 0:35 / /mnt/my\\040groups rw - cgroup2 none rw\n"),
              ElementsAre("/mnt/my groups/a:b", "/mnt/my groups"));
}

TEST(MemoryCgroups, AreEmptyForUnrelatedTexts) {
  EXPECT_THAT(Paths("", ""), IsEmpty());
  EXPECT_THAT(Paths("memory\n::\n4:memory\n", "1 2 3\n - \n1 2 0:3 / /m rw - cgroup\n"), IsEmpty());
}

std::optional<std::uint64_t> LimitFor(const std::vector<CgroupDirectory>& directories,
                                      const std::map<std::string, std::string>& files) {
  return GetMemoryLimit(directories, [&](const std::string& path) -> std::optional<std::string> {
    const auto found = files.find(path);
    return found == files.end() ? std::nullopt : std::optional(found->second);
  });
}

TEST(MemoryLimit, IsSmallestLimitOfAllGroups) {
  const std::vector<CgroupDirectory> directories = {{"/g/a/b", true}, {"/g/a", true}, {"/g", true}};
  EXPECT_EQ(
      LimitFor(directories, {{"/g/a/b/memory.max", "max\n"}, {"/g/a/memory.max", "1610612736\n"}}),
      1536 * kMiB);
  EXPECT_EQ(LimitFor(directories,
                     {{"/g/a/b/memory.max", "536870912\n"}, {"/g/memory.max", "1073741824"}}),
            512 * kMiB);
}

TEST(MemoryLimit, TreatsVersionOnesLargestNumberAsNone) {
  const std::vector<CgroupDirectory> directories = {{"/m/jobs", false}, {"/m", false}};
  EXPECT_EQ(LimitFor(directories, {{"/m/memory.limit_in_bytes", "9223372036854771712\n"}}),
            std::nullopt);
  EXPECT_EQ(LimitFor(directories, {{"/m/memory.limit_in_bytes", "9223372036854771712\n"},
                                   {"/m/jobs/memory.limit_in_bytes", "1610612736\n"}}),
            1536 * kMiB);
}

TEST(MemoryLimit, IsAbsentWithoutLimits) {
  EXPECT_EQ(LimitFor({{"/g", true}}, {{"/g/memory.max", "max\n"}}), std::nullopt);
  EXPECT_EQ(LimitFor({{"/g", true}}, {{"/g/memory.max", ""}}), std::nullopt);
  EXPECT_EQ(LimitFor({}, {}), std::nullopt);
  EXPECT_GT(server::UsableMemoryBytes(), 0u);
}

}  // namespace
}  // namespace gpushared::testing
