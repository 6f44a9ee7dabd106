// SPDX-License-Identifier: Apache-2.0
#include "server/tools/mig/profile_name.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/tools/mig/boards.h"

namespace gpushared::mig {
namespace {

using ::testing::HasSubstr;

using Compute = std::vector<std::uint32_t>;

class ProfileNames : public ::testing::Test {
 protected:
  const Board board_ = FindKnownBoard("A100-40")->board;
};

TEST_F(ProfileNames, MatchNvidias) {
  for (const char* name : {"1g.5gb", "1g.5gb+me", "1c.3g.20gb", "7g.141gb", "1g.24gb-me",
                           "1g.24gb+me.all", "4g.96gb+gfx"}) {
    EXPECT_TRUE(IsDeviceName(name)) << name;
  }
  for (const char* name : {"", "1g", "1g.5", "g.5gb", "1g.5gb+", "1g.5gb+ME", "1.5gb", "1g.5gb me",
                           "c.1g.5gb", "99999999999g.5gb"}) {
    EXPECT_FALSE(IsDeviceName(name)) << name;
  }
}

TEST_F(ProfileNames, ListsHaveIdsNamesAndCounts) {
  const auto wanted = ParseInstances(board_, "2x1g.5gb,14,3g.20gb,19");
  ASSERT_TRUE(wanted.ok()) << wanted.status().message();
  ASSERT_EQ(wanted->size(), 3U);
  EXPECT_EQ(wanted->at(0).count, 3U);
  EXPECT_EQ(wanted->at(1).profile, 14U);
  EXPECT_EQ(wanted->at(2).compute, Compute{3});
  const auto rejection = [&](const char* list) {
    return ParseInstances(board_, list).status().message();
  };
  EXPECT_THAT(rejection("19,,14"), HasSubstr("an item of the list is empty"));
  EXPECT_THAT(rejection("19,"), HasSubstr("an item of the list is empty"));
  EXPECT_THAT(rejection("0x19"), HasSubstr("'0x19' asks for no instance"));
  EXPECT_THAT(rejection("x19"), HasSubstr("has no profile 'x19'"));
  EXPECT_THAT(rejection("21"), HasSubstr("A100-40 has no profile '21', it has 1g.5gb, 1g.5gb+me"));
  EXPECT_THAT(rejection("4000000000x19"), HasSubstr("asked for 4000000000 instances"));
  EXPECT_TRUE(ParseInstances(board_, "")->empty());
}

TEST_F(ProfileNames, LayoutsHavePlaces) {
  EXPECT_EQ(*ParseLayout(board_, "9:4,19:0"), (Layout{{19, 0, {1}}, {9, 4, {3}}}));
  EXPECT_THAT(ParseLayout(board_, "9").status().message(), HasSubstr("'9' is not PROFILE:START"));
  EXPECT_THAT(ParseLayout(board_, "9:1").status().message(),
              HasSubstr("may not begin at this slice"));
}

TEST_F(ProfileNames, ComputeInstancesShareFewGpuInstances) {
  const auto kinds = [&](const DeviceCounts& devices) {
    std::vector<std::pair<Compute, std::uint32_t>> found;
    const auto instances = InstancesFor(board_, devices);
    EXPECT_TRUE(instances.ok()) << instances.status().message();
    for (const Wanted& one : *instances) found.emplace_back(one.compute, one.count);
    return found;
  };
  EXPECT_EQ(kinds({{"1g.5gb", 2}}), (std::vector<std::pair<Compute, std::uint32_t>>{{{1}, 2}}));
  EXPECT_EQ(kinds({{"1c.3g.20gb", 4}}),
            (std::vector<std::pair<Compute, std::uint32_t>>{{{1, 1, 1}, 1}, {{1}, 1}}));
  EXPECT_EQ(kinds({{"1c.3g.20gb", 1}, {"2c.3g.20gb", 1}}),
            (std::vector<std::pair<Compute, std::uint32_t>>{{{2, 1}, 1}}));
  EXPECT_EQ(kinds({{"3c.7g.40gb", 1}, {"2c.7g.40gb", 2}}),
            (std::vector<std::pair<Compute, std::uint32_t>>{{{3, 2, 2}, 1}}));
  // A compute instance of all slices has the GPU instance's name.
  EXPECT_EQ(kinds({{"3c.3g.20gb", 1}, {"3g.20gb", 1}}),
            (std::vector<std::pair<Compute, std::uint32_t>>{{{3}, 2}}));
  EXPECT_THAT(InstancesFor(board_, {{"1g.10gb+me", 1}}).status().message(),
              HasSubstr("has no profile '1g.10gb+me'"));
  EXPECT_THAT(InstancesFor(board_, {{"3c.4g.20gb", 1}}).status().message(),
              HasSubstr("has no profile '3c.4g.20gb'"));
  EXPECT_EQ(InstancesFor(board_, {{"1c.7g.40gb", 1024}}).status().code(),
            StatusCode::kLimitExceeded);
}

TEST_F(ProfileNames, LayoutsAreCountedByDevice) {
  const Layout layout = {{9, 0, {2, 1}}, {19, 4, {1}}, {19, 5, {1}}};
  EXPECT_EQ(GetDevices(board_, layout),
            (DeviceCounts{{"1c.3g.20gb", 1}, {"2c.3g.20gb", 1}, {"1g.5gb", 2}}));
}

}  // namespace
}  // namespace gpushared::mig
