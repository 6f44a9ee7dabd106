// SPDX-License-Identifier: Apache-2.0
#include "server/tools/mig/mig_parted_file.h"

#include <fstream>
#include <iterator>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/tools/mig/boards.h"

namespace gpushared::mig {
namespace {

using ::testing::HasSubstr;

std::string Published() {
  std::ifstream file(GPUSHARED_PUBLISHED_CONFIGS);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Returns the rejection of a file whose only configuration has these lines.
std::string Rejection(const std::string& entry) {
  const auto parsed = ParseConfigFile("version: v1\nmig-configs:\n  one:\n" + entry, "mig.yaml");
  EXPECT_FALSE(parsed.ok()) << entry;
  return parsed.status().message();
}

TEST(MigPartedFile, ReadsAllPublishedFiles) {
  const auto file = ParseConfigFile(Published(), "published");
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->size(), 81U);
  std::size_t entries = 0;
  for (const NamedConfig& config : *file) entries += config.entries.size();
  EXPECT_EQ(entries, 94U);
  EXPECT_FALSE(FindConfig(*file, "all-disabled")->entries.at(0).is_enabled);
  EXPECT_TRUE(FindConfig(*file, "all-enabled")->entries.at(0).is_enabled);
  EXPECT_TRUE(FindConfig(*file, "all-enabled")->entries.at(0).devices.empty());
  EXPECT_EQ(FindConfig(*file, "all-1g.24gb.me.all")->entries.at(0).devices,
            (DeviceCounts{{"1g.24gb+me.all", 1}}));
  EXPECT_EQ(FindConfig(*file, "no-such"), nullptr);
}

// The boards by the models of the filters, and the layout that `all-balanced` requires of each.
TEST(MigPartedFile, EveryBoardIsBalanced) {
  const auto file = ParseConfigFile(Published(), "published");
  ASSERT_TRUE(file.ok());
  const std::pair<std::string, std::uint32_t> models[] = {
      {"A30", 0x20B710DE},     {"A100-40", 0x20B010DE}, {"A100-80", 0x20B210DE},
      {"H100-80", 0x233010DE}, {"H100-96", 0x234210DE}, {"H200", 0x233510DE},
      {"B200", 0x290110DE}};
  for (const auto& [name, model] : models) {
    const Board board = FindKnownBoard(name)->board;
    std::size_t found = 0;
    for (const ConfigEntry& entry : FindConfig(*file, "all-balanced")->entries) {
      if (!entry.IsAbout(0, model)) continue;
      ++found;
      const auto wanted = InstancesFor(board, entry.devices);
      ASSERT_TRUE(wanted.ok()) << name << ": " << wanted.status().message();
      std::size_t layouts = 0;
      ForEachLayout(board, *wanted, [&](const Layout&) { return ++layouts > 0; });
      EXPECT_GT(layouts, 0U) << name;
    }
    EXPECT_EQ(found, 1U) << name;
  }
}

TEST(MigPartedFile, ReadsBackWhatItWrites) {
  const auto file = ParseConfigFile(Published(), "published");
  ASSERT_TRUE(file.ok());
  const std::string text = WriteConfigFile(*file);
  const auto again = ParseConfigFile(text, "written");
  ASSERT_TRUE(again.ok()) << again.status().message();
  ASSERT_EQ(again->size(), file->size());
  for (std::size_t i = 0; i < file->size(); ++i) {
    EXPECT_EQ((*again)[i].name, (*file)[i].name);
    ASSERT_EQ((*again)[i].entries.size(), (*file)[i].entries.size());
    for (std::size_t j = 0; j < (*file)[i].entries.size(); ++j) {
      const ConfigEntry &one = (*file)[i].entries[j], &other = (*again)[i].entries[j];
      EXPECT_EQ(one.models, other.models);
      EXPECT_EQ(one.indices, other.indices);
      EXPECT_EQ(one.is_enabled, other.is_enabled);
      EXPECT_EQ(one.devices, other.devices);
    }
  }
  EXPECT_EQ(WriteConfigFile(
                {{.name = "here",
                  .entries = {{.indices = {{0, 2}}, .is_enabled = true, .devices = {{"1g.5gb", 7}}},
                              {.models = {0x20B010DE}, .is_enabled = false}}}}),
            R"(version: v1
mig-configs:
  here:
    - devices: [0, 2]
      mig-enabled: true
      mig-devices:
        "1g.5gb": 7
    - device-filter: ["0x20B010DE"]
      devices: all
      mig-enabled: false
)");
}

TEST(MigPartedFile, UnknownKeysAreRejectedWithTheirLine) {
  EXPECT_EQ(Rejection("  - devices: all\n    mig-enabled: true\n    mig-device: {}\n"),
            "mig.yaml:6: unknown key 'mig-device', an entry has device-filter, devices, "
            "mig-enabled and mig-devices");
  EXPECT_EQ(ParseConfigFile("version: v1\nmig-confgs: {}\n", "f").status().message(),
            "f:2: unknown key 'mig-confgs', a file has version and mig-configs");
  EXPECT_EQ(
      Rejection("  - devices: all\n    mig-enabled: true\n    mig-devices:\n      1g-5gb: 7\n"),
      "mig.yaml:7: '1g-5gb' is no name of a MIG device, such as 1g.5gb");
}

TEST(MigPartedFile, RejectionsNameLineAndValue) {
  const std::string entry = "  - devices: all\n    mig-enabled: true\n";
  EXPECT_THAT(Rejection("  - mig-enabled: false\n"),
              HasSubstr("mig.yaml:4: the entry lacks devices"));
  EXPECT_THAT(Rejection("  - devices: all\n"), HasSubstr("lacks mig-enabled"));
  EXPECT_THAT(Rejection(entry), HasSubstr("lacks mig-devices"));
  EXPECT_THAT(Rejection("  - devices: all\n    mig-enabled: false\n    mig-devices: {1g.5gb: 1}\n"),
              HasSubstr("both mig-devices and mig-enabled: false"));
  EXPECT_THAT(Rejection("  - devices: some\n    mig-enabled: false\n"),
              HasSubstr("mig.yaml:4: devices must be all or a list of numbers, not 'some'"));
  EXPECT_THAT(Rejection("  - devices: [0, -1]\n    mig-enabled: false\n"),
              HasSubstr("a number from 0 to 256, not '-1'"));
  EXPECT_THAT(Rejection("  - devices: all\n    mig-enabled: perhaps\n"),
              HasSubstr("mig.yaml:5: mig-enabled must be true or false"));
  EXPECT_THAT(Rejection(entry + "    mig-devices: {1g.5gb: 1.5}\n"), HasSubstr("not '1.5'"));
  EXPECT_THAT(Rejection(entry + "    mig-devices: {1g.5gb: 4096}\n"),
              HasSubstr("a number from 0 to 1024"));
  EXPECT_THAT(Rejection(entry + "    mig-devices: {1g.5gb: 1, 1g.5gb: 2}\n"),
              HasSubstr("key '1g.5gb' of mig-devices is given twice"));
  EXPECT_THAT(Rejection(entry + "    device-filter: 20B010DE\n    mig-devices: {}\n"),
              HasSubstr("must be 0x and 8 hex digits, not '20B010DE'"));
  EXPECT_THAT(Rejection(entry + "    device-filter: [\"0x20B010DG\"]\n    mig-devices: {}\n"),
              HasSubstr("hex digits"));
  EXPECT_THAT(Rejection("    []\n"), HasSubstr("'one' has no entry"));
  EXPECT_THAT(Rejection("    word\n"), HasSubstr("'one' must be a list"));
}

TEST(MigPartedFile, RejectsInvalidFiles) {
  const auto rejection = [](const std::string& text) {
    const auto parsed = ParseConfigFile(text, "f");
    EXPECT_FALSE(parsed.ok()) << text;
    return parsed.status().message();
  };
  EXPECT_THAT(rejection(""), HasSubstr("one document"));
  EXPECT_THAT(rejection("version: v1\n---\nversion: v1\n"), HasSubstr("one document"));
  EXPECT_THAT(rejection("mig-configs: {}\n"), HasSubstr("lacks version: v1"));
  EXPECT_THAT(rejection("version: v2\n"), HasSubstr("f:1: version 'v2' is not known"));
  EXPECT_THAT(rejection("version: [v1\n"), HasSubstr("invalid YAML"));
  EXPECT_THAT(rejection("- a\n"), HasSubstr("must be a map"));
  EXPECT_THAT(rejection(std::string(kConfigBytesMax + 1, ' ')), HasSubstr("1048577 bytes"));
  // A file that is nested deeply, and one that grows without limit through references.
  EXPECT_FALSE(ParseConfigFile(std::string(100000, '['), "f").ok());
  EXPECT_THAT(rejection("version: v1\nmig-configs: &a {x: [*a]}\n"), HasSubstr("f:"));
}

}  // namespace
}  // namespace gpushared::mig
