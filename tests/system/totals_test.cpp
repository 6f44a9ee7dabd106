// SPDX-License-Identifier: Apache-2.0
// Counters of a real server: they are the sums over its clients, and never decrease.
#include <signal.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "gpushared/client.h"

#include "server/telemetry/admin/ask.h"
#include "tests/support/filler.h"
#include "tests/support/server_process.h"

#include <nlohmann/json.hpp>

namespace gpushared::testing {
namespace {

using nlohmann::json;

json Ask(const ServerProcess& server, ipc::AdminVerb verb) {
  ipc::Admin admin;
  admin.verb = verb;
  const Result<json> answer = admin::Ask(server.socket(), admin);
  EXPECT_TRUE(answer.ok()) << answer.status().ToString();
  return answer.ok() ? *answer : json::object();
}

// Retries, because a server answers before its worker has started.
json Totals(const ServerProcess& server) {
  json device;
  EXPECT_TRUE(Eventually([&] {
    device = Ask(server, ipc::AdminVerb::kStatus)["devices"][0];
    return device.contains("totals");
  })) << device.dump(1);
  return device["totals"];
}

// Returns every number in the totals by its path.
std::map<std::string, double> Numbers(const json& totals) {
  std::map<std::string, double> numbers;
  const json flat = totals.flatten();
  for (const auto& [place, value] : flat.items()) {
    if (value.is_number()) numbers[place] = value.get<double>();
  }
  return numbers;
}

// Checks that no number decreases from one snapshot to the next. Numbers of endpoints can be
// compared by path, because endpoints keep their order if none is added.
class NeverFalls {
 public:
  void CheckTotals(const ServerProcess& server, const std::string& when) {
    const std::map<std::string, double> now = Numbers(Totals(server));
    for (const auto& [place, value] : seen_) {
      const auto found = now.find(place);
      ASSERT_NE(found, now.end()) << when << ": " << place;
      EXPECT_GE(found->second, value) << when << ": " << place;
    }
    seen_ = now;
  }
  double Of(const std::string& place) { return seen_[place]; }

 private:
  std::map<std::string, double> seen_;
};

TEST(Totals, AreSumsOverConnectedAndDepartedClients) {
  ServerProcess server({"--device", "cpu:0", "--memory", "256MiB"});
  Filler low = ComeToFill(server, "filler", SchedulingClass::kLow);
  Fill(low, 30);
  double left_s = 0, left_fills = 0;
  {
    Filler leaves = ComeToFill(server, "filler", SchedulingClass::kLow);
    Fill(leaves, 20);
    const json clients = Ask(server, ipc::AdminVerb::kClients);
    for (const json& row : clients["clients"]) {
      if (row["client"] != leaves.client.session_id()) continue;
      left_s = row["device_time_s"].get<double>();
      left_fills = row["fills"].get<double>();
    }
  }
  ASSERT_EQ(left_fills, 20);
  Filler normal = ComeToFill(server, "filler", SchedulingClass::kNormal);
  Fill(normal, 10);
  // No client has work now, so the sums must be exact.
  std::map<std::string, double> time_s = {{"low", left_s}}, fills = {{"low", left_fills}};
  const json clients = Ask(server, ipc::AdminVerb::kClients);
  for (const json& row : clients["clients"]) {
    const std::string of_class = row["class"];
    // Skips the client that left, which may still be listed.
    if (row.value("fills", 20) == 20) continue;
    time_s[of_class] += row["device_time_s"].get<double>();
    fills[of_class] += row["fills"].get<double>();
  }
  const json totals = Totals(server);
  for (const std::string of_class : {"high", "normal", "low"}) {
    const json& row = totals["classes"][of_class];
    EXPECT_NEAR(row["device_time_s"], time_s[of_class], 1e-9) << of_class;
    EXPECT_EQ(row["fills"], fills[of_class]) << of_class;
    double waits = 0;
    for (const json& count : row["queue_wait"]["counts"]) waits += count.get<double>();
    EXPECT_GE(waits, fills[of_class]) << of_class;
  }
  EXPECT_EQ(totals["classes"]["low"]["sessions"], 2);
  ASSERT_EQ(totals["endpoints"].size(), 2U) << totals.dump(1);
  for (const json& row : totals["endpoints"]) {
    EXPECT_EQ(row["endpoint"], "main");
    EXPECT_NEAR(row["device_time_s"], time_s[row["class"]], 1e-9);
  }
}

TEST(Totals, WorkCountsForClassAtItsExecution) {
  const ServerProcess server({"--device", "cpu:0", "--memory", "256MiB"});
  NeverFalls totals;
  Filler filler = ComeToFill(server, "filler", SchedulingClass::kNormal);
  Fill(filler, 7);
  totals.CheckTotals(server, "normal");
  const ProgramOutcome set =
      server.Ctl({"client", "set", std::to_string(filler.client.session_id()), "--class", "low"});
  ASSERT_EQ(set.exit_code, 0) << set.output;
  Fill(filler, 3);
  totals.CheckTotals(server, "low");
  EXPECT_EQ(totals.Of("/classes/normal/fills"), 7);
  EXPECT_EQ(totals.Of("/classes/low/fills"), 3);
  EXPECT_EQ(totals.Of("/classes/low/sessions"), 0);  // The session began in another class.
}

TEST(Totals, DoNotFallWhenWorkersAndBrokersDie) {
  ServerProcess server({"--device", "cpu:0", "--memory", "256MiB"});
  NeverFalls totals;
  {
    Filler filler = ComeToFill(server, "filler", SchedulingClass::kLow);
    Fill(filler, 20);
    totals.CheckTotals(server, "at work");
  }
  totals.CheckTotals(server, "a client left");
  EXPECT_EQ(totals.Of("/classes/low/fills"), 20);
  {
    Filler filler = ComeToFill(server, "filler", SchedulingClass::kLow);
    Fill(filler, 5);
    const pid_t worker = server.workers().at(0);
    ASSERT_EQ(::kill(worker, SIGKILL), 0);
    ASSERT_TRUE(Eventually([&] {
      const std::vector<pid_t> now = server.workers();
      return now.size() == 1 && now[0] != worker;
    }));
  }
  totals.CheckTotals(server, "a worker was killed");
  // The counts of a worker that is killed are not lost.
  EXPECT_EQ(totals.Of("/classes/low/fills"), 25);
  EXPECT_TRUE(Eventually([&] { return Totals(server)["workers_started"] == 2; }));
  Filler filler = ComeToFill(server, "filler", SchedulingClass::kLow);
  Fill(filler, 5);
  server.Crash();
  Fill(filler, 5);
  server.StartAgain();
  totals.CheckTotals(server, "the broker was killed");
  EXPECT_EQ(totals.Of("/classes/low/fills"), 35);
  Fill(filler, 5);
  totals.CheckTotals(server, "the next broker serves");
  EXPECT_EQ(totals.Of("/classes/low/fills"), 40);
  EXPECT_EQ(totals.Of("/classes/low/sessions"), 3);
}

TEST(Totals, EndWithServer) {
  ServerProcess server({"--device", "cpu:0", "--memory", "256MiB"});
  (void)Totals(server);
  const std::string directory = server.socket() + ".workers";
  ASSERT_TRUE(std::filesystem::exists(directory + "/totals-cpu:0"));
  server.Signal(SIGTERM);
  EXPECT_EQ(server.WaitForExit(), 0);
  EXPECT_FALSE(std::filesystem::exists(directory));
}

}  // namespace
}  // namespace gpushared::testing
