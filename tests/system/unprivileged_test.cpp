// SPDX-License-Identifier: Apache-2.0
// An unprivileged user attempts what is forbidden on a real server: operators' requests, other
// users' endpoints, classes above the user's own, and false claims in the environment.
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gpushared/client.h"

#include "server/telemetry/admin/ask.h"
#include "tests/server/other_user.h"
#include "tests/support/scratch_directory.h"
#include "tests/support/server_process.h"

#include <nlohmann/json.hpp>

namespace gpushared::testing {
namespace {

using nlohmann::json;

constexpr const char* kConfig = R"(
[[endpoint]]
name = "batch"
class = "low"
client_memory = "64MiB"

[[endpoint]]
name = "team"
class = "high"
weight = 100
who = ["uid:4242"]

[[endpoint]]
name = "closed"
class = "high"
)";

class Unprivileged : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root, to be another user";
    std::ofstream(directory_ / "gpushared.toml") << kConfig;
    server_ = std::make_unique<ServerProcess>(
        std::vector<std::string>{"--config", directory_ / "gpushared.toml", "--memory", "256MiB"});
    place_ = std::filesystem::path(server_->socket()).parent_path();
    // Waits for an answer, because the server creates its own socket first and answers only once
    // all endpoints exist.
    (void)Query(ipc::AdminVerb::kStatus);
    ::chmod(place_.c_str(), 0755);
    ::chmod((place_ + "/closed").c_str(), 0700);
  }

  std::string Endpoint(const std::string& name) { return place_ + "/" + name + "/gpushared.sock"; }

  // Returns 1 and reports the status if the request was not rejected with this message; otherwise
  // returns 0.
  static int Expect(const Status& status, StatusCode code, const std::string& message) {
    if (status.code() == code && status.message().find(message) != std::string::npos) return 0;
    std::fprintf(stderr, "expected a rejection with '%s', got %s\n", message.c_str(),
                 status.ToString().c_str());
    return 1;
  }
  static int ExpectDenied(const Status& status, const std::string& message) {
    return Expect(status, StatusCode::kPermissionDenied, message);
  }
  // Returns the server's answer to a client whose environment contains this variable.
  static Status ConnectWith(const char* variable, const char* value, const std::string& socket) {
    ::setenv(variable, value, 1);
    const Status status = Client::Connect({.socket = socket}).status();
    ::unsetenv(variable);
    return status;
  }

  json Query(ipc::AdminVerb verb) { return *admin::Ask(server_->socket(), {.verb = verb}); }
  json EndpointRow(const std::string& name) {
    const json told = Query(ipc::AdminVerb::kEndpoints);
    for (const json& row : told.at("endpoints")) {
      if (row.at("endpoint") == name) return row;
    }
    return {};
  }

  ScratchDirectory directory_;
  std::unique_ptr<ServerProcess> server_;
  std::string place_;
};

ipc::Admin Question(ipc::AdminVerb verb) {
  using enum ipc::AdminVerb;
  ipc::Admin question{.verb = verb};
  if (ipc::GetFacts(verb).names_client) question.client = 1;
  if (verb == kSet) question.client_class = SchedulingClass::kHigh;
  if (verb == kResume || verb == kTrace || verb == kMove) question.terms = "cpu:0";
  if (verb == kLease) question.terms = "who = 'everyone'\nclass = 'high'";
  return question;
}

TEST_F(Unprivileged, RequestsOfOperatorsAreRejectedByNameAndCounted) {
  EXPECT_EQ(AsNobody([&] {
              int wrong = 0;
              for (std::uint8_t number = 1; number <= ipc::kAdminVerbMax; ++number) {
                const auto verb = static_cast<ipc::AdminVerb>(number);
                const std::string message =
                    "request '" + std::string(ipc::AdminVerbName(verb)) + "' denied";
                for (const std::string& socket : {server_->socket(), Endpoint("batch")}) {
                  wrong += ExpectDenied(admin::Ask(socket, Question(verb)).status(), message);
                }
              }
              return wrong;
            }),
            0);
  const json server = Query(ipc::AdminVerb::kStatus).at("server");
  EXPECT_EQ(server.at("state"), "serving");
  EXPECT_EQ(server.at("rejected_requests").size(), ipc::kAdminVerbMax);
  for (const auto& [verb, count] : server.at("rejected_requests").items()) EXPECT_EQ(count, 2);
}

TEST_F(Unprivileged, ClaimsInTheEnvironmentAreRejectedByNameAndCounted) {
  EXPECT_EQ(
      AsNobody([&] {
        const std::string& door = server_->socket();
        const std::string batch = Endpoint("batch");
        const auto nonsense = [&](const char* variable, const char* value) {
          return Expect(ConnectWith(variable, value, door), StatusCode::kInvalidArgument, variable);
        };
        return ExpectDenied(ConnectWith("GPUSHARED_CLASS", "high", door), "class rejected") +
               ExpectDenied(ConnectWith("GPUSHARED_WEIGHT", "2", door), "weight rejected") +
               ExpectDenied(ConnectWith("GPUSHARED_LATENCY_TARGET", "5", door), "target rejected") +
               ExpectDenied(ConnectWith("GPUSHARED_MEMORY", "1TiB", door), "memory rejected") +
               ExpectDenied(ConnectWith("GPUSHARED_CLASS", "normal", batch),
                            "class rejected: asked for normal, the access rule for endpoint "
                            "'batch' allows at most low") +
               ExpectDenied(ConnectWith("CUDA_MPS_CLIENT_PRIORITY", "0", batch), "class rejected") +
               ExpectDenied(ConnectWith("GPUSHARED_MEMORY", "65MiB", batch),
                            "memory rejected: asked for 65 MiB") +
               nonsense("GPUSHARED_CLASS", "root") + nonsense("GPUSHARED_WEIGHT", "1e9") +
               nonsense("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "all");
      }),
      0);
  EXPECT_EQ(EndpointRow("main").at("rejected").dump(), R"({"PermissionDenied":4})");
  EXPECT_EQ(EndpointRow("batch").at("rejected").dump(), R"({"PermissionDenied":3})");
  EXPECT_EQ(Query(ipc::AdminVerb::kClients).at("clients").size(), 0U);
}

TEST_F(Unprivileged, OtherPeoplesEndpointsAreClosedAndHisOwnIsOpen) {
  EXPECT_EQ(AsNobody([&] {
              const std::string team = Endpoint("team");
              return ExpectDenied(Client::Connect({.socket = team}).status(),
                                  "client rejected: endpoint 'team' is for uid 4242") +
                     ExpectDenied(Client::ListDevices({.socket = team}).status(),
                                  "client rejected: endpoint 'team' is for uid 4242") +
                     ExpectDenied(ConnectWith("GPUSHARED_SOCKET", team.c_str(), ""),
                                  "endpoint 'team'") +
                     // The user cannot see the socket, and thus cannot connect.
                     ExpectDenied(Client::Connect({.socket = Endpoint("closed")}).status(),
                                  "closed/gpushared.sock");
            }),
            0);
  EXPECT_EQ(EndpointRow("team").at("rejected").dump(), R"({"PermissionDenied":3})");
  EXPECT_EQ(EndpointRow("closed").at("rejected").dump(), "{}");
  EXPECT_EQ(AsNobody([&] {
              const Result<Client> client = Client::Connect({.socket = Endpoint("batch")});
              if (!client.ok()) return 1;
              return client->AllocateDevice(4096).ok() ? 0 : 2;
            }),
            0);
  EXPECT_EQ(EndpointRow("batch").at("admitted"), 1);
}

}  // namespace
}  // namespace gpushared::testing
