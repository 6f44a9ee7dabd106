// SPDX-License-Identifier: Apache-2.0
// The tables of boards, and that the search finds every layout once.

#include "server/tools/mig/layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/tools/mig/boards.h"
#include "tests/mig/brute_force.h"
#include "tests/support/fake_nvml/boards.h"

namespace gpushared::mig {
namespace {

using ::testing::HasSubstr;

std::vector<Layout> Found(const Board& board, const std::vector<Wanted>& wanted) {
  std::vector<Layout> found;
  ForEachLayout(board, wanted, [&](const Layout& layout) {
    found.push_back(layout);
    return true;
  });
  std::ranges::sort(found);
  return found;
}

Board Without(Board board, std::initializer_list<std::uint32_t> profiles) {
  std::erase_if(board.profiles, [&](const Profile& profile) {
    return std::ranges::find(profiles, profile.id) != profiles.end();
  });
  return board;
}

// NVIDIA lists 19 full layouts of an A100 (MIG User Guide, Supported MIG Profiles). They contain
// neither +me nor the 1g of twice the memory.
TEST(Boards, A100HasDocumentedLayouts) {
  const Board board = Without(FindKnownBoard("A100-40")->board, {20, 15});
  const std::vector<Layout> all = AllLayouts(board);
  EXPECT_EQ(all.size(), 298U);
  const auto is_full = [&](const Layout& layout) {
    return std::ranges::none_of(all, [&](const Layout& larger) {
      return larger.size() == layout.size() + 1 &&
             std::ranges::all_of(layout, [&](const Instance& instance) {
               return std::ranges::find(larger, instance) != larger.end();
             });
    });
  };
  EXPECT_EQ(std::ranges::count_if(all, is_full), 19);
  EXPECT_EQ(AllLayouts(Without(FindKnownBoard("A30")->board, {21, 6})).size(), 26U);
}

TEST(Boards, HaveSourcesAndIdsOfTheirOwn) {
  for (const KnownBoard& known : KnownBoards()) {
    EXPECT_THAT(known.source, HasSubstr("NVIDIA MIG User Guide"));
    for (const Profile& profile : known.board.profiles) {
      EXPECT_EQ(known.board.Find(profile.id), &profile) << profile.name;
      EXPECT_EQ(known.board.Find(std::string_view(profile.name)), &profile) << profile.name;
      EXPECT_EQ(profile.starts.size() >= profile.count_max, true) << profile.name;
    }
  }
  EXPECT_EQ(FindKnownBoard("V100"), std::nullopt);
}

// Two independently written tables: the product's, and the fake driver's.
TEST(Boards, AgreeWithTheFakeDriver) {
  for (const KnownBoard& known : KnownBoards()) {
    const std::string name = known.board.name == "H100-80" ? "H100" : known.board.name;
    const testing::fake_nvml::Board* const other = testing::fake_nvml::FindBoard(name);
    ASSERT_NE(other, nullptr) << name;
    ASSERT_EQ(other->profiles.size(), known.board.profiles.size()) << name;
    for (const testing::fake_nvml::Profile& profile : other->profiles) {
      const Profile* const mine = known.board.Find(profile.id);
      ASSERT_NE(mine, nullptr) << name << " " << profile.name;
      EXPECT_EQ(mine->name, profile.name) << name;
      EXPECT_EQ(mine->count_max, profile.count_max) << mine->name;
      EXPECT_EQ(mine->memory_slices, profile.slices) << mine->name;
      EXPECT_EQ(mine->compute_slices, profile.compute_slices()) << mine->name;
      EXPECT_TRUE(std::ranges::equal(mine->starts, profile.starts)) << mine->name;
      if (mine->memory_mib != 0) {
        EXPECT_EQ(mine->memory_mib, profile.memory_mib) << mine->name;
        EXPECT_EQ(mine->multiprocessors, profile.multiprocessors) << mine->name;
      }
    }
  }
}

TEST(Layouts, SearchFindsAllOfEveryTable) {
  for (const KnownBoard& known : KnownBoards()) {
    std::map<Counts, std::vector<Layout>> by_counts;
    for (const Layout& layout : AllLayouts(known.board)) {
      by_counts[GetCounts(layout)].push_back(layout);
    }
    std::size_t layouts = 0;
    for (const auto& [counts, expected] : by_counts) {
      EXPECT_EQ(Found(known.board, GetWanted(known.board, counts)), expected);
      layouts += expected.size();
    }
    EXPECT_EQ(layouts, known.board.name == "A30" ? 84U : 2319U) << known.board.name;
  }
}

// Tries every set of instances that no layout has, with at most one instance more of each profile
// than the board allows.
TEST(Layouts, SearchFindsNoImpossibleLayout) {
  for (const char* name : {"A30", "A100-40"}) {
    const Board board = FindKnownBoard(name)->board;
    std::map<Counts, bool> possible;
    for (const Layout& layout : AllLayouts(board)) possible[GetCounts(layout)] = true;
    Counts counts;
    std::size_t impossible = 0;
    const std::function<void(std::size_t)> count_up = [&](std::size_t i) {
      if (i == board.profiles.size()) {
        if (possible.contains(counts)) return;
        ++impossible;
        EXPECT_TRUE(Found(board, GetWanted(board, counts)).empty());
        return;
      }
      const Profile& profile = board.profiles[i];
      count_up(i + 1);
      for (std::uint32_t count = 1; count <= profile.count_max + 1; ++count) {
        counts[profile.id] = count;
        count_up(i + 1);
      }
      counts.erase(profile.id);
    };
    count_up(0);
    EXPECT_GT(impossible, 100U);
  }
}

TEST(Layouts, DistinguishDivisions) {
  const Board board = FindKnownBoard("A100-40")->board;
  // The 1c instances may be in either of the two GPU instances.
  EXPECT_EQ(
      Found(board, {{.profile = 9, .compute = {3}}, {.profile = 9, .compute = {1, 1, 1}}}).size(),
      2U);
  EXPECT_EQ(Found(board, {{.profile = 9, .compute = {3}, .count = 2}}).size(), 1U);
}

TEST(Layouts, SearchStopsOnRequest) {
  const Board board = FindKnownBoard("A100-40")->board;
  int shown = 0;
  ForEachLayout(board, {{.profile = 19, .compute = {1}, .count = 2}},
                [&](const Layout&) { return ++shown < 3; });
  EXPECT_EQ(shown, 3);
}

TEST(Layouts, CheckNamesViolation) {
  const Board board = FindKnownBoard("A100-40")->board;
  const auto rejection = [&](const Layout& layout) { return CheckLayout(board, layout).message(); };
  EXPECT_EQ(rejection({{9, 4, {3}}, {14, 2, {2}}, {19, 0, {1}}, {19, 1, {1}}}), "");
  EXPECT_EQ(rejection({{9, 2, {3}}}), "layout rejected: 3g.20gb at 2 may not begin at this slice");
  EXPECT_EQ(rejection({{9, 0, {3}}, {19, 3, {1}}}),
            "layout rejected: 1g.5gb at 3 overlaps another instance");
  EXPECT_EQ(rejection({{20, 0, {1}}, {20, 1, {1}}}),
            "layout rejected: 1g.5gb+me at 0 is one of 2, allowed: 1");
  EXPECT_THAT(rejection({{77, 0, {1}}}), HasSubstr("is no profile of A100-40"));
}

// Each division that fits is found, although the first free position can be the wrong one: a 3c at
// 0 leaves no space for two 2c.
TEST(Layouts, ComputeInstancesAreSearchedFor) {
  const Board seven = ComputeBoard(7);
  EXPECT_EQ(Found(seven, {{.profile = 3}, {.profile = 2, .count = 2}}),
            (std::vector<Layout>{{{2, 0, {}}, {2, 2, {}}, {3, 4, {}}}}));
  EXPECT_EQ(Found(seven, {{.profile = 4}, {.profile = 3}}).size(), 1U);
  EXPECT_TRUE(Found(seven, {{.profile = 4, .count = 2}}).empty());
  EXPECT_EQ(ComputeBoard(4).Find(3), nullptr);
  EXPECT_EQ(ComputeBoard(1).profiles.size(), 1U);
}

}  // namespace
}  // namespace gpushared::mig
