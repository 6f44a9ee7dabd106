// SPDX-License-Identifier: Apache-2.0
#include "server/tools/web/exposition.h"

#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/tools/web/metrics.h"

#include <nlohmann/json.hpp>

namespace gpushared::web {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;
using Type = Exposition::Type;

std::string Both(TextFormat format) {
  Exposition text(format);
  text.Begin("x_seconds", Type::kCounter, "A \\ and \"b\"\nc.");
  text.Add({{"name", "one"}}, 0.1);
  text.Begin("y", Type::kInfo, "Why.");
  text.Add({{"version", "1"}}, 1);
  text.Begin("z_bytes", Type::kGauge, "Zed.");
  text.Add({}, 9007199254740991.0);
  text.Begin("h_seconds", Type::kHistogram, "Waits.");
  const std::vector<double> bounds = {1.024e-6, 0.5}, counts = {2, 0, 3};
  text.AddHistogram({{"class", "low"}}, bounds, counts, 7.25);
  return text.Finish();
}

TEST(Exposition, PlainText) {
  EXPECT_EQ(Both(TextFormat::kPlain),
            "# HELP x_seconds_total A \\\\ and \"b\"\\nc.\n"
            "# TYPE x_seconds_total counter\n"
            "x_seconds_total{name=\"one\"} 0.1\n"
            "# HELP y_info Why.\n"
            "# TYPE y_info gauge\n"
            "y_info{version=\"1\"} 1\n"
            "# HELP z_bytes Zed.\n"
            "# TYPE z_bytes gauge\n"
            "z_bytes 9007199254740991\n"
            "# HELP h_seconds Waits.\n"
            "# TYPE h_seconds histogram\n"
            "h_seconds_bucket{class=\"low\",le=\"1.024e-06\"} 2\n"
            "h_seconds_bucket{class=\"low\",le=\"0.5\"} 2\n"
            "h_seconds_bucket{class=\"low\",le=\"+Inf\"} 5\n"
            "h_seconds_sum{class=\"low\"} 7.25\n"
            "h_seconds_count{class=\"low\"} 5\n");
}

TEST(Exposition, OpenMetricsNamesFamiliesAndUnitsAndItsEnd) {
  EXPECT_EQ(Both(TextFormat::kOpenMetrics),
            "# HELP x_seconds A \\\\ and \\\"b\\\"\\nc.\n"
            "# TYPE x_seconds counter\n"
            "# UNIT x_seconds seconds\n"
            "x_seconds_total{name=\"one\"} 0.1\n"
            "# HELP y Why.\n"
            "# TYPE y info\n"
            "y_info{version=\"1\"} 1\n"
            "# HELP z_bytes Zed.\n"
            "# TYPE z_bytes gauge\n"
            "# UNIT z_bytes bytes\n"
            "z_bytes 9007199254740991\n"
            "# HELP h_seconds Waits.\n"
            "# TYPE h_seconds histogram\n"
            "# UNIT h_seconds seconds\n"
            "h_seconds_bucket{class=\"low\",le=\"1.024e-06\"} 2\n"
            "h_seconds_bucket{class=\"low\",le=\"0.5\"} 2\n"
            "h_seconds_bucket{class=\"low\",le=\"+Inf\"} 5\n"
            "h_seconds_sum{class=\"low\"} 7.25\n"
            "h_seconds_count{class=\"low\"} 5\n"
            "# EOF\n");
}

TEST(Exposition, EscapesHostileName) {
  for (const TextFormat format : {TextFormat::kPlain, TextFormat::kOpenMetrics}) {
    Exposition text(format);
    text.Begin("x", Type::kGauge, "");
    text.Add({{"name", "a\"} 1\nevil{b=\"\\"}}, 2);
    const std::string all = text.Finish();
    EXPECT_THAT(all, HasSubstr("x{name=\"a\\\"} 1\\nevil{b=\\\"\\\\\"} 2\n"));
    EXPECT_THAT(all, Not(HasSubstr("\nevil")));
  }
}

TEST(Exposition, NumbersRoundTrip) {
  Exposition text(TextFormat::kPlain);
  text.Begin("x", Type::kGauge, "");
  for (const double value :
       {0.0, -3.0, 1e300, 0.30000000000000004, std::numeric_limits<double>::infinity(),
        -std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    text.Add({}, value);
  }
  EXPECT_EQ(text.Finish(),
            "# HELP x \n# TYPE x gauge\nx 0\nx -3\nx 1e+300\nx 0.30000000000000004\nx +Inf\n"
            "x -Inf\nx NaN\n");
}

TEST(Exposition, ChoosesClientsPreferredFormat) {
  const auto is_open = [](std::string_view accept) {
    return PreferredFormat(accept) == TextFormat::kOpenMetrics;
  };
  // The headers of Prometheus 2.42 and of 2.53.
  EXPECT_TRUE(
      is_open("application/openmetrics-text;version=1.0.0,application/openmetrics-text;"
              "version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"));
  EXPECT_TRUE(
      is_open("application/openmetrics-text;version=1.0.0;q=0.5,application/"
              "openmetrics-text;version=0.0.1;q=0.4,text/plain;version=0.0.4;q=0.3"));
  EXPECT_TRUE(is_open("Application/OpenMetrics-Text ; Version=1.0.0"));
  EXPECT_FALSE(is_open(""));
  EXPECT_FALSE(is_open("*/*"));
  EXPECT_FALSE(is_open("application/openmetrics-text;version=0.0.1"));
  EXPECT_FALSE(is_open("application/openmetrics-text;version=2.0.0,text/plain;q=0.1"));
  EXPECT_FALSE(is_open("application/openmetrics-text;q=0"));
  EXPECT_FALSE(is_open("application/openmetrics-text;q=0.2,text/plain;q=0.3"));
  EXPECT_FALSE(is_open("application/openmetrics-text;q=nan"));
  EXPECT_FALSE(is_open("application/openmetrics-text;q=7,text/plain;q=0.1"));
  EXPECT_FALSE(is_open(",;,;;q=,=;version="));
}

TEST(Metrics, OmitsMissingFigures) {
  const json status = {{"server", {{"version", "1"}}},
                       {"devices",
                        {{{"device", "cuda:1"},
                          {"uuid", "GPU-1"},
                          {"name", "N\"V"},
                          {"state", "ready"},
                          {"generation", 3},
                          {"memory_bytes", "many"}},
                         "no device",
                         {{"device", 7}, {"totals", {{"classes", {{"high", 5}}}}}}}}};
  const std::string text = MetricsText(status, json(), "host", TextFormat::kPlain);
  EXPECT_THAT(text, HasSubstr("gpushared_device_up{gpu=\"1\",UUID=\"GPU-1\",device=\"cuda:1\","
                              "modelName=\"N\\\"V\",Hostname=\"host\"} 1\n"));
  json draining = status;
  draining["devices"][0]["state"] = "draining";
  EXPECT_THAT(MetricsText(draining, json(), "host", TextFormat::kPlain),
              HasSubstr("modelName=\"N\\\"V\",Hostname=\"host\"} 1\n"))
      << "its clients are served until they leave";
  EXPECT_THAT(text, HasSubstr("gpushared_device_generation{gpu=\"1\""));
  EXPECT_THAT(text, Not(HasSubstr("\ngpushared_device_memory_bytes{gpu=\"1\"")));
  EXPECT_THAT(text, Not(HasSubstr("\ngpushared_launches_total{")));
}

TEST(Metrics, CountsSwapsAndWaitsForThem) {
  json device = {{"device", "cpu:0"},
                 {"overcommit",
                  {{"bytes", 64},
                   {"reserved_bytes", 32},
                   {"used_bytes", 16},
                   {"swap_out_bytes_per_s", 15},
                   {"swap_in_bytes_per_s", 14},
                   {"memory_requests", 13},
                   {"memory_request_longest_s", 0.5},
                   {"parked", 12},
                   {"wakes", 11},
                   {"wakes_promised", 10},
                   {"wakes_in_time", 4},
                   {"wake_longest_s", 0.25}}}};
  device["classes"]["low"] = {{"resident_bytes", 5}, {"guaranteed_bytes", 6}};
  device["totals"]["classes"]["low"] = {{"memory_out_bytes", 7},
                                        {"memory_in_bytes", 8},
                                        {"memory_swaps", 9},
                                        {"memory_waited_s", 1.5}};
  const std::string text =
      MetricsText({{"devices", json::array({device})}}, json(), "h", TextFormat::kOpenMetrics);
  for (const char* const line :
       {"gpushared_class_memory_resident_bytes{C} 5",
        "gpushared_class_memory_guaranteed_bytes{C} 6",
        "gpushared_memory_swapped_out_bytes_total{C} 7",
        "gpushared_memory_swapped_in_bytes_total{C} 8", "gpushared_memory_swaps_total{C} 9",
        "gpushared_memory_waited_seconds_total{C} 1.5", "gpushared_overcommit_bytes{D} 64",
        "gpushared_overcommit_reserved_bytes{D} 32", "gpushared_overcommit_used_bytes{D} 16",
        "gpushared_overcommit_swap_out_bytes_per_second{D} 15",
        "gpushared_overcommit_swap_in_bytes_per_second{D} 14",
        "gpushared_overcommit_memory_requests_total{D} 13",
        "gpushared_overcommit_memory_request_longest_seconds{D} 0.5",
        "gpushared_overcommit_parked{D} 12", "gpushared_overcommit_wakes_total{D} 11",
        "gpushared_overcommit_wakes_promised_total{D} 10",
        "gpushared_overcommit_wakes_in_time_total{D} 4",
        "gpushared_overcommit_wake_longest_seconds{D} 0.25"}) {
    const std::string pattern = line;
    const std::size_t begin = pattern.find('{');
    const std::string name = "\n" + pattern.substr(0, begin) + "{";
    const std::size_t at = text.find(name);
    ASSERT_NE(at, std::string::npos) << line;
    const std::string found = text.substr(at, text.find('\n', at + 1) - at);
    EXPECT_THAT(found, ::testing::EndsWith(pattern.substr(begin + 2))) << line;
    EXPECT_EQ(found.find("class=\"low\"") != std::string::npos, pattern[begin + 1] == 'C');
  }
  device.erase("overcommit");
  EXPECT_THAT(MetricsText({{"devices", json::array({device})}}, json(), "h", TextFormat::kPlain),
              Not(HasSubstr("\ngpushared_overcommit_bytes{")));
}

// Users choose the names of programs.
TEST(Metrics, NamesOwnersLikeDcgmExporterAndEscapesThem) {
  const json owner = {{"uid", "0"},
                      {"namespace", "shop"},
                      {"pod", "web-1"},
                      {"container", "app"},
                      {"program", "a\"} 1\nb\\"}};
  json now = owner, ended = owner;
  now["memory_bytes"] = 4096;
  ended["device_time_s"] = 1.5;
  const json job = {{"uid", "4294967295"}, {"hpc_job", "7"}, {"hpc_step", "0"}, {"sessions", 2}};
  const json device = {
      {"device", "cuda:0"}, {"owners", {now}}, {"totals", {{"owners", {ended, job}}}}};
  const std::string text =
      MetricsText({{"devices", json::array({device})}}, json(), "h", TextFormat::kOpenMetrics);
  const std::string labels =
      R"(modelName="",Hostname="h",user="root",namespace="shop",pod="web-1",container="app",)"
      R"(program="a\"} 1\nb\\")";
  EXPECT_THAT(text, HasSubstr("gpushared_owner_memory_bytes{gpu=\"0\","));
  EXPECT_THAT(text, HasSubstr(labels + "} 4096\n"));
  EXPECT_THAT(text, HasSubstr("gpushared_owner_device_seconds_total{gpu=\"0\","));
  EXPECT_THAT(text, HasSubstr(labels + "} 1.5\n"));
  EXPECT_THAT(text, HasSubstr(R"(user="4294967295",hpc_job="7",hpc_step="0"} 2)"));
}

TEST(Metrics, DistinguishesDrainedFromLostDevice) {
  const auto states = [](const char* told) {
    const json status = {{"devices", {{{"device", "cpu:0"}, {"state", told}}}}};
    const std::string text = MetricsText(status, json(), "h", TextFormat::kPlain);
    std::string found;
    for (const std::string state : {"serving", "draining", "drained", "lost"}) {
      const std::size_t at = text.find("Hostname=\"h\",state=\"" + state + "\"} 1\n");
      if (at != std::string::npos) found += state + " ";
    }
    return found;
  };
  EXPECT_EQ(states("ready"), "serving ");
  EXPECT_EQ(states("draining"), "draining ");
  EXPECT_EQ(states("leaving"), "draining ");
  EXPECT_EQ(states("drained"), "drained ");
  EXPECT_EQ(states("gone"), "drained ");
  for (const char* const lost : {"starting", "restarting", "missing", "silent", ""}) {
    EXPECT_EQ(states(lost), "lost ") << lost;
  }
}

TEST(Metrics, AHistogramOfAnotherSizeIsLeftOut) {
  json status = {{"devices", {{{"device", "cpu:0"}}}}};
  json& wait = status["devices"][0]["totals"]["classes"]["low"]["queue_wait"];
  wait = {{"counts", json::array()}, {"sum_s", 1.5}};
  for (int i = 0; i < 26; ++i) wait["counts"].push_back(i);
  EXPECT_THAT(MetricsText(status, json(), "h", TextFormat::kPlain),
              HasSubstr("class=\"low\",le=\"17.179869184\"} 300\n"));
  EXPECT_THAT(MetricsText(status, json(), "h", TextFormat::kPlain),
              HasSubstr("class=\"low\",le=\"+Inf\"} 325\n"));
  wait["counts"].push_back(1);
  EXPECT_THAT(MetricsText(status, json(), "h", TextFormat::kPlain),
              Not(HasSubstr("gpushared_queue_wait_seconds_bucket")));
}

}  // namespace
}  // namespace gpushared::web
