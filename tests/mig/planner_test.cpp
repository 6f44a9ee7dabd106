// SPDX-License-Identifier: Apache-2.0
// Plans against all layouts of each board, and the messages of rejections.

#include "server/tools/mig/planner.h"

#include <cstdlib>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/tools/mig/boards.h"
#include "server/tools/mig/profile_name.h"
#include "tests/mig/brute_force.h"

namespace gpushared::mig {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<Present> GetPresent(const Layout& layout) {
  std::vector<Present> have;
  for (const Instance& instance : layout) have.push_back({.instance = instance});
  return have;
}

std::size_t Common(const Layout& one, const Layout& other) {
  return static_cast<std::size_t>(std::ranges::count_if(one, [&](const Instance& instance) {
    return std::ranges::find(other, instance) != other.end();
  }));
}

// All layouts of one board, by their contents.
struct Known {
  explicit Known(const Board& of) : board(of), all(AllLayouts(of)) {
    for (const Layout& layout : all) by_counts[GetCounts(layout)].push_back(layout);
    for (const auto& [counts, layouts] : by_counts) kinds.push_back(counts);
  }
  // Returns how many of `have` can remain if all used ones do; -1: none is possible.
  int MostKept(const std::vector<Present>& have, const Counts& counts) const {
    Layout there, used;
    for (const Present& present : have) {
      there.push_back(present.instance);
      if (!present.user.empty()) used.push_back(present.instance);
    }
    int most = -1;
    for (const Layout& layout : by_counts.at(counts)) {
      if (Common(used, layout) != used.size()) continue;
      most = std::max(most, static_cast<int>(Common(there, layout)));
    }
    return most;
  }
  void Check(const std::vector<Present>& have, const Counts& counts) const {
    const int most = MostKept(have, counts);
    const Result<Plan> plan = MakePlan(board, have, GetWanted(board, counts));
    ASSERT_EQ(plan.ok(), most >= 0) << plan.status().message();
    if (!plan.ok()) {
      EXPECT_EQ(plan.status().code(), StatusCode::kUnavailable);
      return;
    }
    EXPECT_EQ(plan->keep.size(), static_cast<std::size_t>(most));
    EXPECT_EQ(plan->keep.size() + plan->destroy.size(), have.size());
    EXPECT_EQ(GetCounts(plan->After()), counts);
    EXPECT_TRUE(CheckLayout(board, plan->After()).ok());
    for (const Present& present : have) {
      EXPECT_TRUE(present.user.empty() || Common({present.instance}, plan->keep) == 1);
    }
  }

  Board board;
  std::vector<Layout> all;
  std::map<Counts, std::vector<Layout>> by_counts;
  std::vector<Counts> kinds;
};

// Plans from every layout to every set of instances, also with each of the present instances in
// use.
TEST(Planner, MovesTheFewestOnAnA30) {
  const Known known(FindKnownBoard("A30")->board);
  for (const Layout& from : known.all) {
    for (const Counts& counts : known.kinds) {
      std::vector<Present> have = GetPresent(from);
      known.Check(have, counts);
      for (Present& present : have) {
        present.user = "process 1";
        known.Check(have, counts);
        present.user.clear();
      }
      if (HasFailure()) return;
    }
  }
}

// Random pairs on each board of eight slices, with random users: 2,000, and 20,000 in the stage
// `long`.
TEST(Planner, MovesTheFewestOnEveryBoard) {
  const int pairs = std::getenv("GPUSHARED_MIG_PLANS") != nullptr ? 20000 : 2000;
  for (const KnownBoard& each : KnownBoards()) {
    const Known known(each.board);
    std::mt19937 random(7);
    const auto below = [&](std::size_t bound) {
      return std::uniform_int_distribution<std::size_t>(0, bound - 1)(random);
    };
    for (int i = 0; i < pairs && !HasFailure(); ++i) {
      std::vector<Present> have = GetPresent(known.all[below(known.all.size())]);
      for (Present& present : have) {
        if (below(4) == 0) present.user = "process 1";
      }
      known.Check(have, known.kinds[below(known.kinds.size())]);
    }
  }
}

class A100 : public ::testing::Test {
 protected:
  Layout At(const std::string& list) const {
    const Result<Layout> layout = ParseLayout(board_, list);
    EXPECT_TRUE(layout.ok()) << layout.status().message();
    return *layout;
  }
  Result<Plan> From(const std::string& there, const std::string& used, const std::string& wanted) {
    std::vector<Present> have = GetPresent(At(there));
    for (Present& present : have) {
      if (Common({present.instance}, At(used)) == 1) present.user = "process 4711 (python3)";
    }
    return MakePlan(board_, have, *ParseInstances(board_, wanted));
  }
  const Board board_ = FindKnownBoard("A100-40")->board;
};

// The driver's own order takes 1g at 6, 1g at 4 and 2g at 0, and then has no position for 3g.
TEST_F(A100, FindsPlacementsThatNaiveOrderMisses) {
  const Result<Plan> plan = From("", "", "19,19,14,9");
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->create, At("14:0,19:2,19:3,9:4"));
  EXPECT_EQ(plan->After(), plan->create);
}

// Among positions of equal cost, the planner takes those that leave space for large instances.
TEST_F(A100, LeavesSpaceForFurtherInstances) {
  EXPECT_EQ(From("", "", "3g.20gb")->create, At("9:4"));
  EXPECT_EQ(From("9:4", "", "9,19")->create, At("19:0"));
  EXPECT_EQ(From("19:1", "", "19,19")->create, At("19:0"));
}

TEST_F(A100, RejectionsNameRequestAndAvailableSpace) {
  const auto rejection = [&](const std::string& there, const std::string& used,
                             const std::string& wanted) {
    const Result<Plan> plan = From(there, used, wanted);
    EXPECT_FALSE(plan.ok());
    return plan.status().message();
  };
  EXPECT_EQ(rejection("", "", "8x19"),
            "layout rejected: asked for 8 of 1g.5gb, A100-40 has at most 7");
  EXPECT_EQ(rejection("", "", "3x14,9"),
            "layout rejected: 3 of 2g.10gb, 1 of 3g.20gb need 10 memory slices, A100-40 has 8");
  EXPECT_THAT(rejection("", "", "9,9,19"), HasSubstr("need 9 memory slices"));
  // Eight slices, but 7g takes all of them, and a 4g has one position.
  EXPECT_THAT(rejection("", "", "4g.20gb,2x14"), HasSubstr("have no placement on A100-40"));
  EXPECT_EQ(rejection("9:0,19:4", "9:0", "19,19,14,9"),
            "layout rejected: each of the 2 layouts with 2 of 1g.5gb, 1 of 2g.10gb, 1 of 3g.20gb "
            "removes an instance that is in use: 3g.20gb at 0, used by process 4711 (python3)");
}

TEST_F(A100, ExactPlansUseGivenPlacements) {
  const Result<Plan> plan = MakeExactPlan(board_, GetPresent(At("9:0,14:4")), At("9:4,14:0"));
  ASSERT_TRUE(plan.ok());
  EXPECT_THAT(plan->keep, IsEmpty());
  EXPECT_EQ(plan->create, At("9:4,14:0"));
  EXPECT_THAT(MakeExactPlan(board_, {{.instance = {9, 0, {3}}, .user = "process 5"}}, At("9:4"))
                  .status()
                  .message(),
              HasSubstr("removes 3g.20gb at 0, which is used by process 5"));
  EXPECT_FALSE(MakeExactPlan(board_, {}, {{9, 2, {3}}}).ok());
}

// A GPU instance with a different division is a different instance: its devices are removed.
TEST_F(A100, DivisionsMatter) {
  const Result<std::vector<Wanted>> want = InstancesFor(board_, {{"1c.3g.20gb", 3}});
  ASSERT_TRUE(want.ok());
  const Result<Plan> plan = MakePlan(board_, GetPresent(At("9:0")), *want);
  ASSERT_TRUE(plan.ok());
  EXPECT_THAT(plan->keep, IsEmpty());
  EXPECT_EQ(plan->create.at(0).compute, (std::vector<std::uint32_t>{1, 1, 1}));
}

}  // namespace
}  // namespace gpushared::mig
