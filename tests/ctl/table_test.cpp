// SPDX-License-Identifier: Apache-2.0
#include "server/tools/ctl/table.h"

#include <algorithm>
#include <array>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/tools/ctl/report.h"

#include <nlohmann/json.hpp>

namespace gpushared::server {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::array kColumns = {
    Column{"ID", "id"},
    Column{"NAME", "name", 0, 0, true},
    Column{"TIME s", "time", 1000, 1},
    Column{"STATE", "state", 0, 0, true, false},
};
const json kRows = json::parse(R"([
  {"id": 1, "name": "a", "time": 1500, "state": "ready"},
  {"id": 20, "name": "much longer", "state": null}])");

TEST(Table, AlignsNumbersToTheRightAndTextsToTheLeft) {
  EXPECT_EQ(Table(kRows, kColumns, {}),
            "ID  NAME         TIME s\n"
            " 1  a               1.5\n"
            "20  much longer       -\n");
}

TEST(Table, ShowsAllOrRequestedColumnsInRequestedOrder) {
  EXPECT_THAT(Table(kRows, kColumns, {.wide = true}), HasSubstr("TIME s  STATE\n"));
  EXPECT_EQ(Table(kRows, kColumns, {.fields = {"state", "id"}}),
            "STATE  ID\nready   1\n-      20\n");
}

TEST(Table, RejectsUnknownColumnListingColumns) {
  EXPECT_TRUE(CheckFields({.fields = {"id", "state"}}, kColumns).ok());
  EXPECT_EQ(CheckFields({.fields = {"id", "colour\x1b"}}, kColumns).message(),
            "there is no column 'colour?'; available are id, name, time, state");
}

TEST(Table, AcceptsHeadingsAsColumnNames) {
  for (const char* name : {"ID", "Id", "NAME", "TIME s", "time_s", "State"}) {
    EXPECT_TRUE(CheckFields({.fields = {name}}, kColumns).ok()) << name;
  }
  EXPECT_EQ(Table(kRows, kColumns, {.fields = {"STATE", "ID"}}),
            "STATE  ID\nready   1\n-      20\n");
  EXPECT_EQ(FindColumn(ClientColumns(), "id")->field, "client");
  EXPECT_EQ(FindColumn(ClientColumns(), "memory")->field, "memory_bytes");
  EXPECT_EQ(FindColumn(ClientColumns(), "wait-p99")->field, "queue_wait_p99_us");
  EXPECT_EQ(FindColumn(ClientColumns(), "colour"), nullptr);
  for (const Column& column : ClientColumns()) {
    EXPECT_EQ(FindColumn(ClientColumns(), column.heading)->field, column.field) << column.heading;
  }
}

TEST(Table, TimesHaveTheUnitThatFitsThem) {
  EXPECT_EQ(TimeText(0), "0 us");
  EXPECT_EQ(TimeText(950), "950 us");
  EXPECT_EQ(TimeText(14'000), "14.0 ms");
  EXPECT_EQ(TimeText(1'073'741.8), "1.07 s");
  EXPECT_EQ(TimeText(34e6), "34.0 s");
  EXPECT_EQ(TimeText(125e6), "2.1 min");
  EXPECT_EQ(TimeText(7'500e6), "2.1 h");
  constexpr std::array kTimes = {Column{.heading = "WAIT", .field = "wait", .time_us = 1e6}};
  EXPECT_EQ(Table(json::parse(R"([{"wait": 0.25}, {}])"), kTimes, {}),
            "    WAIT\n250.0 ms\n       -\n");
}

TEST(Table, ListsAndCountsAreWords) {
  const json rows = json::parse(R"([{"name": {"PermissionDenied": 9, "Unavailable": 2}},
                                    {"name": ["cpu:0", "cpu:1"]}, {"name": []}, {"name": {}}])");
  EXPECT_EQ(Table(rows, kColumns, {.fields = {"name"}}),
            "NAME\nPermissionDenied 9, Unavailable 2\ncpu:0, cpu:1\n-\n-\n");
}

TEST(Table, TruncatesTextsButNoNumbersToFitTerminal) {
  EXPECT_EQ(Table(kRows, kColumns, {.width = 21}),
            "ID  NAME       TIME s\n"
            " 1  a             1.5\n"
            "20  much lon…       -\n");
  EXPECT_THAT(Table(kRows, kColumns, {.width = 1}), HasSubstr("20  much …       -\n"))
      << "a text keeps six characters";
  const json umlauts = json::parse(R"([{"id": 1, "name": "äöüäöüäöü", "time": 1}])");
  EXPECT_THAT(Table(umlauts, kColumns, {.width = 18}), HasSubstr(" 1  äöüäö…     0.0\n"));
}

TEST(Table, MakesClientsTextsPrintable) {
  const json row = json::parse(R"([{"id": 1, "name": "a\u001b[2Jb"}])");
  EXPECT_THAT(Table(row, kColumns, {}), HasSubstr("a?[2Jb"));
}

// A client with long names and large figures.
const json kBusyClient = {{"client", 9999},
                          {"name", std::string(63, 'n')},
                          {"pid", 4194304},
                          {"uid", 100000},
                          {"device", "cuda:15"},
                          {"class", "normal"},
                          {"device_time_s", 999999.999},
                          {"memory_bytes", 143771.0 * 1024 * 1024},
                          {"queue_wait_p99_us", 999999.9}};

TEST(Reports, TheUsualColumnsOfClientsFitATerminal) {
  std::istringstream lines(ClientsReport({{"clients", {kBusyClient}}}, {.width = 80}));
  for (std::string line; std::getline(lines, line);) {
    // The truncated name ends in a single character of three bytes.
    EXPECT_LE(line.size(), 80U + 2U) << line;
  }
  EXPECT_THAT(ClientsReport({{"clients", {kBusyClient}}}, {}), Not(HasSubstr("LAUNCHES")));
  EXPECT_THAT(ClientsReport({{"clients", {kBusyClient}}}, {.wide = true}), HasSubstr("LAUNCHES"));
}

TEST(Reports, ComputesSharesBetweenTwoAnswers) {
  const auto answer = [](double connected_s, double device_time_s) {
    return json{
        {"clients",
         {{{"client", 7}, {"connected_s", connected_s}, {"device_time_s", device_time_s}}}}};
  };
  json now = answer(12, 3.5);
  AddShares(now, answer(10, 3));
  EXPECT_EQ(now["clients"][0]["device_share_percent"], 25);
  json new_client = answer(0.1, 0.1);
  AddShares(new_client, json());
  EXPECT_FALSE(new_client["clients"][0].contains("device_share_percent"));
}

TEST(Reports, ExplainShowsUseOfDeviceTime) {
  json reply = {{"client", 7},          {"request", 3},          {"latency_us", 368'000.0},
                {"before_us", 305'000}, {"on_device_us", 63e3},  {"device_time_us", 15.9e3},
                {"commands", 8},        {"host_steal_us", 40e3}, {"host_us", 0.0}};
  EXPECT_THAT(ExplainReport(reply),
              AllOf(HasSubstr("305.0 ms in the client's own queue"),
                    HasSubstr("63.0 ms on the device: 8 commands, charged 15.9 ms\n"),
                    HasSubstr("40.0 ms of that the host ran other programs (host steal)\n"),
                    HasSubstr("7.1 ms of that were other clients'")));
  reply["device_time_us"] = 63e3;
  EXPECT_THAT(ExplainReport(reply), AllOf(Not(HasSubstr("steal")), Not(HasSubstr("of that were"))));
}

TEST(Reports, ExplainSaysThatARequestHasNotEnded) {
  json reply = {{"client", 7},
                {"request", 3},
                {"latency_us", 34.2e6},
                {"latency_target_us", 40e6},
                {"open", true}};
  EXPECT_THAT(ExplainReport(reply),
              HasSubstr("has not ended: so far it took 34.2 s, target 40.0 s\n"));
  reply["target_met"] = false;
  EXPECT_THAT(ExplainReport(reply), HasSubstr("target 40.0 s: missed\n"));
  reply["open"] = false;
  EXPECT_THAT(ExplainReport(reply), HasSubstr(" took 34.2 s, target 40.0 s: missed\n"));
}

TEST(Reports, OmitsNumberOfInvisibleProcess) {
  json client = kBusyClient;
  client["pid"] = 0;
  const View pids{.fields = {"client", "pid"}};
  EXPECT_THAT(ClientsReport({{"clients", {client}}}, pids), HasSubstr("9999  elsewhere"));
  EXPECT_THAT(ClientsReport({{"clients", {kBusyClient}}}, pids), HasSubstr("9999  4194304"));
}

}  // namespace
}  // namespace gpushared::server
