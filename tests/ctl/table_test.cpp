// SPDX-License-Identifier: Apache-2.0
#include "server/ctl/table.h"

#include <algorithm>
#include <array>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/ctl/report.h"

#include <nlohmann/json.hpp>

namespace gpushared::server {
namespace {

using nlohmann::json;
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

TEST(Table, ShowsAllColumnsOrThoseAskedForInTheirOrder) {
  EXPECT_THAT(Table(kRows, kColumns, {.wide = true}), HasSubstr("TIME s  STATE\n"));
  EXPECT_EQ(Table(kRows, kColumns, {.fields = {"state", "id"}}),
            "STATE  ID\nready   1\n-      20\n");
}

TEST(Table, NamesTheColumnsThatThereAre) {
  EXPECT_TRUE(CheckFields({.fields = {"id", "state"}}, kColumns).ok());
  EXPECT_EQ(CheckFields({.fields = {"id", "colour\x1b"}}, kColumns).message(),
            "there is no column 'colour?'; there are id, name, time, state");
}

TEST(Table, CutsTextsAndNoNumbersToFitTheTerminal) {
  EXPECT_EQ(Table(kRows, kColumns, {.width = 21}),
            "ID  NAME       TIME s\n"
            " 1  a             1.5\n"
            "20  much lon…       -\n");
  EXPECT_THAT(Table(kRows, kColumns, {.width = 1}), HasSubstr("20  much …       -\n"))
      << "a text keeps six characters";
  const json umlauts = json::parse(R"([{"id": 1, "name": "äöüäöüäöü", "time": 1}])");
  EXPECT_THAT(Table(umlauts, kColumns, {.width = 18}), HasSubstr(" 1  äöüäö…     0.0\n"));
}

TEST(Table, WhatClientsWriteIsMadePrintable) {
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
    // The cut name ends in one character of three bytes.
    EXPECT_LE(line.size(), 80U + 2U) << line;
  }
  EXPECT_THAT(ClientsReport({{"clients", {kBusyClient}}}, {}), Not(HasSubstr("LAUNCHES")));
  EXPECT_THAT(ClientsReport({{"clients", {kBusyClient}}}, {.wide = true}), HasSubstr("LAUNCHES"));
}

TEST(Reports, AProcessThatTheServerCannotSeeHasNoNumber) {
  json client = kBusyClient;
  client["pid"] = 0;
  const View pids{.fields = {"client", "pid"}};
  EXPECT_THAT(ClientsReport({{"clients", {client}}}, pids), HasSubstr("9999  elsewhere"));
  EXPECT_THAT(ClientsReport({{"clients", {kBusyClient}}}, pids), HasSubstr("9999  4194304"));
}

TEST(Reports, TheLastRoomForMemoryIsExplainedWithItsAge) {
  const json request = {{"client", 7}, {"request", 3}};
  json room = {
      {"bytes", 153U << 20}, {"us", 3100.0}, {"promised_us", 4200.0}, {"ended_s_ago", 12.46}};
  const auto explain = [&] {
    json reply = request;
    reply["last_room"] = room;
    return ExplainReport(reply);
  };
  EXPECT_THAT(explain(), HasSubstr("  its last room for memory, 153.0 MiB, took 3.1 ms of 4.2 ms "
                                   "promised, 12.5 s ago\n"));
  room.erase("ended_s_ago");
  EXPECT_THAT(explain(), HasSubstr(" 4.2 ms promised\n")) << "an older server does not say it";
  EXPECT_THAT(ExplainReport(request), Not(HasSubstr("room")));
}

}  // namespace
}  // namespace gpushared::server
