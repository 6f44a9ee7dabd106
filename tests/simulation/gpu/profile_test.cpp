// SPDX-License-Identifier: Apache-2.0
#include "scheduler/sim/profile.h"

#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scheduler/sim/json_view.h"

namespace gpushared::simulation {
namespace {

using namespace std::chrono_literals;
using scheduler::SchedulingClass;
using ::testing::HasSubstr;

class ProfileFiles : public ::testing::Test {
 protected:
  ~ProfileFiles() override { std::filesystem::remove(path_); }
  const std::string& Write(const std::string& text) {
    std::ofstream(path_) << text;
    return path_;
  }
  std::string WhyProfile(const std::string& text) {
    return ReadProfile(Write(text)).status().message();
  }
  std::string WhyNode(const std::string& text) { return ReadNode(Write(text)).status().message(); }

  const std::string path_ = ::testing::TempDir() + "profile-" + std::to_string(::getpid());
};

Profile Serve() {
  Profile profile{.name = "serve",
                  .spec = {.scheduling_class = SchedulingClass::kHigh,
                           .weight = 7,
                           .latency_target = 25ms,
                           .group = 1000},
                  .max_share_percent = 50,
                  .memory_mib = 12.5,
                  .pace = Profile::Pace::kOpen};
  profile.kernels = {{.name = "gemm"}, {.name = "in", .work = Profile::Work::kCopyToDevice}};
  profile.requests = {{.at_ms = 1.5, .steps = {{1, 20.25, 3.5}, {0, 400, {}}}},
                      {.at_ms = 9, .steps = {{0, 380, {}}}}};
  profile.seen = {.seconds = 10, .shared_percent = 2.5, .lost = 3, .streams = 2};
  return profile;
}

TEST_F(ProfileFiles, ReadsBackWhatItWrites) {
  const Result<Profile> read = ReadProfile(Write(ProfileText(Serve())));
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(ProfileText(*read), ProfileText(Serve()));
  EXPECT_EQ(read->name, "serve");
  EXPECT_EQ(read->spec.scheduling_class, SchedulingClass::kHigh);
  EXPECT_EQ(read->spec.weight, 7U);
  EXPECT_EQ(read->spec.latency_target, 25ms);
  EXPECT_EQ(read->spec.group, 1000U);
  EXPECT_EQ(read->max_share_percent, 50);
  EXPECT_EQ(read->memory_mib, 12.5);
  EXPECT_EQ(read->pace, Profile::Pace::kOpen);
  ASSERT_EQ(read->requests.size(), 2U);
  EXPECT_EQ(read->requests[1].at_ms, 9);
  ASSERT_EQ(read->requests[0].steps.size(), 2U);
  EXPECT_EQ(read->requests[0].steps[0].after_us, 3.5);
  EXPECT_EQ(read->requests[0].steps[1].us, 400);
  EXPECT_FALSE(read->requests[0].steps[1].after_us);
  EXPECT_EQ(read->kernels[1].work, Profile::Work::kCopyToDevice);
  EXPECT_EQ(read->seen.lost, 3U);
}

TEST_F(ProfileFiles, ANodeIsReadWithItsClients) {
  Node node{
      .name = "host cpu:0",
      .multiprocessors = 4,
      .stops_within_commands = false,
      .memory_mib = 1000,
      .policy = "fair",
      .costs = {
          .launch_us = 1, .gap_us = 2, .notice_us = 3, .stop_us = 4, .launch_bubble_us = 5.5}};
  node.options.slice = 3ms;
  node.costs.launches_us = {1, 2.5};
  node.costs.notices_us = {3};
  node.clients = {Serve(), Serve()};
  const Result<Node> read = ReadNode(Write(NodeText(node)));
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(NodeText(*read), NodeText(node));
  EXPECT_EQ(read->policy, "fair");
  EXPECT_EQ(read->options.slice, 3ms);
  EXPECT_EQ(read->costs.launch_bubble_us, 5.5);
  EXPECT_THAT(read->costs.launches_us, ::testing::ElementsAre(1, 2.5));
  EXPECT_FALSE(read->stops_within_commands);
  EXPECT_EQ(read->clients.size(), 2U);
}

TEST_F(ProfileFiles, HandwrittenProfileNeedsFewFields) {
  const Result<Profile> read = ReadProfile(Write(R"({"gpushared_profile": 1, "name": "new",
    "class": "normal", "pace": "poisson", "every_ms": 20, "kernels": [{"name": "gemm"}],
    "requests": [{"steps": [[0, 400], [0, 400]]}]})"));
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->every_ms, 20);
  EXPECT_EQ(read->spec.weight, 1U);
}

TEST_F(ProfileFiles, ARejectionNamesTheMemberAndWhatWasExpected) {
  const std::string head = "{\"gpushared_profile\": 1,\n\"name\": \"a\",\n\"class\": \"low\",\n";
  const std::string kernels = "\"kernels\": [{\"name\": \"k\"}],\n";
  for (const auto& [text, why] : std::vector<std::pair<std::string, std::string>>{
           {"", "is not JSON: [json.exception.parse_error.101] parse error at line 1"},
           {"[]", "the file's value is not an object"},
           {"{\"gpushared_profile\": 2}", "'gpushared_profile' 2 is not a number from 1 to 1"},
           {"{\n\n\"gpushared_profile\": 1\n}", "is not an object with 'name'"},
           {head + "\"weight\": 0\n}", "'weight' 0 is not a number from 1 to 1000"},
           {head + "\"weight\": 1.5, \"pace\": \"endless\"}",
            "'weight' 1.5 is not a number without"},
           {head + "\"wieght\": 1}", "'wieght' 1 is not one of gpushared_profile, name"},
           {head + "\"weight\": 1,\n\"weight\": 1}", "'weight' occurs twice"},
           {head + "\"pace\": \"fast\"}", "'pace' \"fast\" is not one of endless, open"},
           {head + "\"pace\": \"endless\",\n\"kernels\": []}", "'kernels' is not a list of 1 to"},
           {head + "\"pace\": \"endless\",\n" + kernels +
                "\"requests\": [\n{\"steps\": [[1, 5]]}]}",
            "'requests[0].steps[0][0]' 1 is not a number from 0 to 0"},
           {head + "\"pace\": \"endless\",\n" + kernels +
                "\"requests\": [\n{\"steps\": [[0, -5]]}]}",
            "'requests[0].steps[0][1]' -5 is not a number from 0.001"},
           {head + "\"pace\": \"open\",\n" + kernels + "\"requests\": [\n{\"steps\": [[0, 5]]}]}",
            "'requests[0]' is not an object with 'at_ms'"},
           {head + "\"pace\": \"open\",\n" + kernels +
                "\"requests\": [\n{\"at_ms\": 2, \"steps\": [[0, 5]]},\n{\"at_ms\": 1, \"steps\": "
                "[[0, 5]]}]}",
            "'requests[1].at_ms' 1 is not at least that of the previous request"}}) {
    EXPECT_THAT(WhyProfile(text), HasSubstr(why)) << text;
  }
  EXPECT_THAT(ReadProfile("/no/file").status().message(), HasSubstr("cannot read '/no/file'"));
  EXPECT_THAT(WhyProfile(std::string(100, '[')), HasSubstr("more than 16 deep"));
  EXPECT_THAT(WhyNode(R"({"gpushared_node": 1, "name": "n", "kind": "cpu", "multiprocessors": 1,
    "policy": "best", "clients": []})"),
              HasSubstr("'policy' \"best\" is not one of fifo"));
  const auto why_costs = [&](const std::string& costs) {
    return WhyNode(R"({"gpushared_node": 1, "name": "n", "kind": "cpu", "multiprocessors": 1,
    "policy": "fifo", "clients": [], "costs": {)" +
                   costs + "}}");
  };
  EXPECT_THAT(why_costs(R"("launches_us": [1, 2000000])"),
              HasSubstr("'costs.launches_us[1]' 2e+06 is not a number from 0 to 1e+06"));
  EXPECT_THAT(why_costs(R"("gaps_us": [-1])"),
              HasSubstr("'costs.gaps_us[0]' -1 is not a number from 0"));
  std::string many = "0";
  for (std::size_t i = 0; i < kCostQuantiles; ++i) many += ", 0";
  EXPECT_THAT(why_costs("\"notices_us\": [" + many + "]"),
              HasSubstr("'costs.notices_us' is not a list of 1 to 200"));
}

}  // namespace
}  // namespace gpushared::simulation
