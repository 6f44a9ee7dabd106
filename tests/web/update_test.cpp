// SPDX-License-Identifier: Apache-2.0
#include "server/tools/web/update.h"

#include <chrono>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/tools/web/trace_timelines.h"

namespace gpushared::web {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using ::testing::HasSubstr;

constexpr MonotonicTime kNow(5s);

json Client(std::uint64_t id, const std::string& of_class, double device_time_s) {
  return {{"client", id},
          {"name", "c" + std::to_string(id)},
          {"class", of_class},
          {"device", "cpu:0"},
          {"device_time_s", device_time_s}};
}

TEST(Update, ContainsFiguresOfPage) {
  const json status = {
      {"server", {{"version", "1"}, {"policy", "fair"}, {"socket", "/s"}}},
      {"devices",
       {{{"device", "cpu:0"}, {"gap_used_percent", 99.5}, {"totals", {{"classes", {}}}}},
        "no device",
        {{"name", "nobody"}}}}};
  const json clients = {{"clients", {Client(3, "low", 1.5), Client(4, "high", 0.5), 7}}};
  const Timelines timelines = {{"cpu:0", {{"bin_ms", 10}}}};
  const json update = json::parse(UpdateText(status, clients, timelines, "n1", kNow));
  EXPECT_EQ(update["at_ms"], 5000.0);
  EXPECT_EQ(update["host"], "n1");
  EXPECT_EQ(update["server"], (json{{"version", "1"}, {"policy", "fair"}}));
  ASSERT_EQ(update["devices"].size(), 1U);
  EXPECT_EQ(
      update["devices"][0],
      (json{{"device", "cpu:0"}, {"gap_used_percent", 99.5}, {"timeline", {{"bin_ms", 10}}}}));
  ASSERT_EQ(update["clients"].size(), 2U);
  EXPECT_EQ(update["clients"][0]["client"], 4);
  EXPECT_EQ(update["clients"][1], Client(3, "low", 1.5));
  EXPECT_FALSE(update.contains("clients_left_out"));
}

TEST(Update, IgnoresAnswersWithUnexpectedLayout) {
  for (const json& nonsense :
       {json(), json(5), json::array({1}), json{{"devices", 3}, {"clients", "x"}},
        json{{"devices", json::array({json()})}, {"clients", {{"a", 1}}}}}) {
    const json update = json::parse(UpdateText(nonsense, nonsense, {}, "", kNow));
    EXPECT_EQ(update["devices"], json::array()) << nonsense;
    EXPECT_EQ(update["server"], json::object()) << nonsense;
  }
}

TEST(Update, HostileNamesStayNames) {
  json client = Client(1, "low", 0);
  client["name"] = "\n\ndata: {}\n\n</script>";
  const std::string text = UpdateText(json(), {{"clients", {client}}}, {}, "", kNow);
  // An event ends at an empty line.
  EXPECT_EQ(text.find('\n'), std::string::npos);
  EXPECT_EQ(json::parse(text)["clients"][0]["name"], client["name"]);
  client["name"] = std::string("a\xff") + std::string(4096, 'b');
  const std::string bad = UpdateText(json(), {{"clients", {client}}}, {}, "", kNow);
  EXPECT_THAT(json::parse(bad)["clients"][0]["name"].get<std::string>(), HasSubstr("a\xef\xbf\xbd"
                                                                                   "b"));
}

TEST(Update, OfManyClientsThoseOfHigherClassesAreShown) {
  json clients = {{"clients", json::array()}};
  for (std::uint64_t id = 1; id <= 700; ++id) clients["clients"].push_back(Client(id, "low", 0));
  clients["clients"].push_back(Client(701, "high", 0));
  const json update = json::parse(UpdateText(json(), clients, {}, "", kNow));
  EXPECT_EQ(update["clients"].size(), kClientsShownMax);
  EXPECT_EQ(update["clients"][0]["client"], 701);
  EXPECT_EQ(update["clients_left_out"], 701 - kClientsShownMax);
}

TEST(GrowthTimelines, ShowGrowthOfEachClientsTime) {
  GrowthTimelines growth;
  EXPECT_TRUE(
      growth.Take({{"clients", {Client(1, "low", 10), Client(2, "low", 5)}}}, kNow).empty());
  // The second one's counter was reset; the third one has just connected.
  const Timelines grown =
      growth.Take({{"clients", {Client(1, "low", 10.2), Client(2, "low", 1), Client(3, "low", 9)}}},
                  kNow + 250ms);
  ASSERT_EQ(grown.size(), 1U);
  const json& timeline = grown.at("cpu:0");
  EXPECT_EQ(timeline["bin_ms"], 250.0);
  ASSERT_EQ(timeline["ran"].size(), 1U);
  EXPECT_EQ(timeline["ran"][0]["client"], 1);
  EXPECT_EQ(timeline["ran"][0]["from_ms"], 5000.0);
  EXPECT_NEAR(timeline["ran"][0]["us"][0].get<double>(), 200'000, 1);
  EXPECT_TRUE(growth.Take(json("nonsense"), kNow + 500ms).empty());
}

trace::Slice GetSlice(std::uint64_t session, std::chrono::nanoseconds from,
                      std::chrono::nanoseconds to) {
  trace::Slice slice;
  slice.session = session;
  slice.started = scheduler::TimePoint(from);
  slice.ended = scheduler::TimePoint(to);
  return slice;
}

TEST(SliceBins, ShowRunTimeOfEachClient) {
  SliceBins bins;
  EXPECT_TRUE(bins.Take().is_null());
  bins.Add(GetSlice(7, 1'004ms, 1'023ms));
  bins.Add(GetSlice(7, 1'025ms, 1'026ms));
  bins.Add(GetSlice(9, 2'000ms, 2'010ms));
  bins.Add(GetSlice(9, 2'010ms, 2'010ms));  // This slice took no time.
  EXPECT_EQ(bins.Take(),
            (json{{"bin_ms", 10},
                  {"ran",
                   {{{"client", 7}, {"from_ms", 1000}, {"us", {6000.0, 10000.0, 4000.0}}},
                    {{"client", 9}, {"from_ms", 2000}, {"us", {10000.0}}}}}}));
  EXPECT_TRUE(bins.Take().is_null());
}

TEST(SliceBins, AreLimitedWhateverWorkerReports) {
  SliceBins bins;
  bins.Add(GetSlice(1, 0s, 1'000'000h));
  bins.Add(GetSlice(1, 5s, 6s));
  bins.Add(GetSlice(2, 6s, 5s));
  bins.Add(GetSlice(2, -6s, 5s));
  for (std::uint64_t client = 3; client < 1000; ++client) bins.Add(GetSlice(client, 1s, 2s));
  const json taken = bins.Take();
  EXPECT_LE(taken["ran"].size(), SliceBins::kClientsMax);
  for (const json& client : taken["ran"]) {
    EXPECT_NE(client["client"], 2);
    EXPECT_LE(client["us"].size(), 2 * SliceBins::kPast / SliceBins::kBin + 1);
  }
}

TEST(TraceTimelines, DeviceWithoutTraceHasCoarseTimelineWithReason) {
  int asked = 0;
  TraceTimelines traces([&](const std::string& device) -> Result<admin::TraceWatch> {
    ++asked;
    return Status(StatusCode::kLimitExceeded, device + " is watched by 8 others");
  });
  const json status = {{"devices",
                        {{{"device", "cpu:0"}, {"state", "ready"}},
                         {{"device", "cuda:0"}, {"state", "restarting"}}}}};
  traces.Follow(status, kNow);
  traces.Read();
  const Timelines told = traces.Take({{"cpu:0", {{"bin_ms", 250}, {"ran", {1}}}}});
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told.at("cpu:0")["bin_ms"], 250);
  EXPECT_EQ(told.at("cpu:0")["coarse"], "cpu:0 is watched by 8 others");
  // The trace is not requested again immediately.
  traces.Follow(status, kNow + 1s);
  EXPECT_EQ(asked, 1);
  traces.Follow(status, kNow + 6s);
  EXPECT_EQ(asked, 2);
}

}  // namespace
}  // namespace gpushared::web
