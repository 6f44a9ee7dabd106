// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/broker/endpoint_table.h"
#include "server/telemetry/admin/ask.h"
#include "tests/server/broker_case.h"
#include "tests/server/other_user.h"
#include "tests/support/read_file.h"

#include <nlohmann/json.hpp>

namespace gpushared::server {
namespace {

using gpushared::testing::AsNobody;
using gpushared::testing::Eventually;
using gpushared::testing::kNobody;
using gpushared::testing::ProgramOutcome;
using gpushared::testing::StartProgram;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

class EndpointTest : public BrokerTest {
 protected:
  static EndpointRule Batch() {
    EndpointRule rule;
    rule.name = "batch";
    rule.label = "endpoint 'batch'";
    rule.usual_class = rule.highest_class = scheduler::SchedulingClass::kLow;
    rule.usual_weight = rule.max_weight = 3;
    rule.max_share = 300;
    rule.memory = {.bytes = 256 * kMiB, .fraction = 0};
    rule.client_memory = MemoryQuota{.bytes = 64 * kMiB, .fraction = 0};
    rule.clients_max = 2;
    return rule;
  }
  std::string BatchSocket() { return directory_ / "batch/gpushared.sock"; }

  json Client(std::size_t index) {
    const Result<json> ps = Answer(ipc::AdminVerb::kClients);
    return ps.ok() && ps->at("clients").size() > index ? ps->at("clients").at(index)
                                                       : json::object();
  }
  json EndpointRow(const std::string& name) {
    const Result<json> rows = Answer(ipc::AdminVerb::kEndpoints);
    if (!rows.ok()) return {};
    for (const json& row : rows->at("endpoints")) {
      if (row.at("endpoint") == name) return row;
    }
    return {};
  }
  Result<admin::Lease> Take(const std::string& terms) {
    return admin::Lease::Take(options_.socket_path, terms);
  }
};

TEST_F(EndpointTest, ClientWithoutOptionsGetsEndpointDefaults) {
  options_.rules.endpoints = {Batch()};
  StartBroker();
  const auto client = JoinAt(BatchSocket(), Hello("job"));
  ASSERT_TRUE(client.ok()) << client.status().message();
  const json row = Client(0);
  EXPECT_EQ(row.at("endpoint"), "batch");
  EXPECT_EQ(row.at("class"), "low");
  EXPECT_EQ(row.at("weight"), 3);
  EXPECT_EQ(row.at("quota_bytes"), 64 * kMiB);
  EXPECT_EQ(row.at("isolation"), "fence") << "who runs the server is nobody special here";
  const auto other = Join(Hello("at the main door"));
  ASSERT_TRUE(other.ok());
  EXPECT_EQ(Client(1).at("endpoint"), "main");
  EXPECT_EQ(EndpointRow("batch").at("max_share_percent"), 30);
  EXPECT_EQ(EndpointRow("batch").at("sessions"), 1);
  EXPECT_EQ(EndpointRow("batch").at("admitted"), 1);
  EXPECT_THAT(Ctl({"endpoints"}).output, HasSubstr("batch     low"));
}

TEST_F(EndpointTest, RejectsAndCountsRequestsAboveEndpointsRule) {
  options_.rules.endpoints = {Batch()};
  StartBroker();
  const auto rejection = [&](const ipc::Hello& hello) {
    return JoinAt(BatchSocket(), hello).status().message();
  };
  EXPECT_THAT(rejection(Hello("a", "", SchedulingClass::kNormal)),
              HasSubstr("class rejected: asked for normal, the access rule for endpoint 'batch'"));
  ipc::Hello hello = Hello("b");
  hello.weight = 4;
  EXPECT_THAT(rejection(hello), HasSubstr("weight rejected: asked for 4"));
  hello = Hello("f");
  hello.max_share = 301;
  EXPECT_THAT(rejection(hello),
              HasSubstr("max_share rejected: asked for 30.1%, the access rule for "
                        "endpoint 'batch' allows at most 30%"));
  hello = Hello("c");
  hello.latency_target_ns = 1'000'000;
  EXPECT_THAT(rejection(hello), HasSubstr("latency target rejected"));
  hello = Hello("d");
  hello.memory_bytes = 65 * kMiB;
  EXPECT_THAT(rejection(hello), HasSubstr("memory rejected: asked for 65 MiB"));
  hello.memory_bytes = 1;
  EXPECT_THAT(rejection(hello), HasSubstr("at least 2 MiB"));
  hello.memory_bytes = 8 * kMiB;
  hello.weight = 2;
  hello.max_share = 100;
  const auto modest = JoinAt(BatchSocket(), hello);
  ASSERT_TRUE(modest.ok()) << modest.status().message();
  EXPECT_EQ(Client(0).at("quota_bytes"), 8 * kMiB);
  EXPECT_EQ(Client(0).at("weight"), 2);
  const auto second = JoinAt(BatchSocket(), Hello("e"));
  ASSERT_TRUE(second.ok());
  EXPECT_THAT(rejection(Hello("f")),
              HasSubstr("client rejected: endpoint 'batch' has 2 live clients"));
  EXPECT_EQ(EndpointRow("batch").at("rejected").dump(),
            R"({"InvalidArgument":1,"LimitExceeded":1,"PermissionDenied":5})");
}

TEST_F(EndpointTest, MemoryIsSharedOnlyByClientsOfEndpoint) {
  EndpointRule rule = Batch();
  rule.memory.bytes = 96 * kMiB;
  rule.clients_max = 9;
  AccessRule one;
  one.clients_max = 1;
  options_.rules.access = {one};
  options_.rules.endpoints = {rule};
  StartBroker();
  const auto first = JoinAt(BatchSocket(), Hello("1"));
  const auto second = JoinAt(BatchSocket(), Hello("2"));
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(Client(1).at("quota_bytes"), 32 * kMiB);
  EXPECT_EQ(JoinAt(BatchSocket(), Hello("3")).status().code(), StatusCode::kOutOfMemory);
  EXPECT_TRUE(Join(Hello("the user's one client")).ok());
}

TEST_F(EndpointTest, EndpointsOfOneBudgetShareIt) {
  StartBroker();
  const std::string terms =
      "budget = 'job-7'\nwho = 'everyone'\nmemory = '96MiB'\nclient_memory = '64MiB'\n"
      "owner = 'hpc_job:7'\n";
  const Result<admin::Lease> lease = Take("name = 'step-1'\nclients_max = 3\n" + terms);
  const Result<admin::Lease> other = Take("name = 'step-2'\nclients_max = 3\n" + terms);
  const Result<admin::Lease> apart = Take("name = 'apart'\nwho = 'everyone'\nmemory = '96MiB'");
  ASSERT_TRUE(lease.ok() && other.ok() && apart.ok());
  EXPECT_EQ(EndpointRow("step-1").at("budget"), "job-7");
  EXPECT_EQ(EndpointRow("step-1").at("owner"), "hpc_job:7");
  const auto first = JoinAt(lease->socket(), Hello("1"));
  const auto second = JoinAt(other->socket(), Hello("2"));
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(Client(0).at("quota_bytes"), 64 * kMiB);
  EXPECT_EQ(Client(1).at("quota_bytes"), 32 * kMiB);
  EXPECT_EQ(JoinAt(lease->socket(), Hello("3")).status().code(), StatusCode::kOutOfMemory);
  const auto stranger = JoinAt(apart->socket(), Hello("4"));
  ASSERT_TRUE(stranger.ok());
  EXPECT_EQ(Client(2).at("quota_bytes"), 96 * kMiB);
}

TEST_F(EndpointTest, OffersOnlyItsOwnDevices) {
  EndpointRule rule = Batch();
  rule.devices = {"fake:1", "GPU-not-here"};
  options_.devices = {{.id = "fake:0"}, {.id = "fake:1"}};
  options_.rules.endpoints = {rule};
  StartBroker();
  const auto first = JoinAt(BatchSocket(), Hello("1"));
  const auto second = JoinAt(BatchSocket(), Hello("2", "fake:1"));
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(Sessions(0), 0U);
  EXPECT_EQ(Sessions(1), 2U);
  EXPECT_THAT(JoinAt(BatchSocket(), Hello("3", "fake:0")).status().message(),
              HasSubstr("device rejected: asked for 'fake:0', this endpoint has fake:1"));
  const Result<ipc::Frame> told = Ask(ConnectTo(BatchSocket()), ipc::ListDevices{});
  ASSERT_TRUE(told.ok());
  EXPECT_EQ(ipc::DecodeReply<ipc::DeviceList>(*told)->devices.size(), 1U);
}

TEST_F(EndpointTest, AdmitsOnlyItsUsers) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to be another user";
  EndpointRule rule = Batch();
  rule.who = {{.kind = Subject::Kind::kUser, .id = kNobody, .label = "uid 65534"}};
  options_.rules.endpoints = {rule};
  StartBroker();
  EXPECT_EQ(AsNobody([&] { return JoinAt(BatchSocket(), Hello("job")).ok() ? 0 : 1; }), 0);
  const Status root = JoinAt(BatchSocket(), Hello("job")).status();
  EXPECT_EQ(root.code(), StatusCode::kPermissionDenied);
  EXPECT_THAT(root.message(), HasSubstr("client rejected: endpoint 'batch' is for uid 65534"));
  EXPECT_FALSE(
      Ask(ConnectTo(BatchSocket()), ipc::ListDevices{}).status().ok() &&
      ipc::DecodeReply<ipc::DeviceList>(*Ask(ConnectTo(BatchSocket()), ipc::ListDevices{})).ok());
}

// Not even root is an operator on an endpoint, because a container's root user has the same number
// as the machine's.
TEST_F(EndpointTest, AllowsNoOperators) {
  options_.rules.endpoints = {Batch()};
  StartBroker();
  for (std::uint8_t verb = 1; verb <= ipc::kAdminVerbMax; ++verb) {
    ipc::Admin asked = Verb(static_cast<ipc::AdminVerb>(verb));
    asked.client = ipc::GetFacts(asked.verb).names_client ? 1 : 0;
    if (asked.verb == ipc::AdminVerb::kSet) asked.weight = 2;
    if (asked.verb == ipc::AdminVerb::kResume || asked.verb == ipc::AdminVerb::kTrace ||
        asked.verb == ipc::AdminVerb::kMove) {
      asked.terms = "fake:0";
    }
    const Status rejected = admin::Ask(BatchSocket(), asked).status();
    EXPECT_EQ(rejected.code(), StatusCode::kPermissionDenied);
    EXPECT_THAT(rejected.message(),
                AllOf(HasSubstr("request '" + std::string(ipc::AdminVerbName(asked.verb)) +
                                "' denied: endpoint 'batch' is for clients"),
                      HasSubstr(options_.socket_path)));
  }
  const Result<json> status = Answer(ipc::AdminVerb::kStatus);
  ASSERT_TRUE(status.ok());
  EXPECT_EQ(status->at("server").at("rejected_requests").size(), ipc::kAdminVerbMax);
}

TEST_F(EndpointTest, NoGroupCanReplaceSocket) {
  options_.rules.endpoints = {Batch()};
  const std::string directory = directory_ / "batch";
  ASSERT_EQ(::mkdir(directory.c_str(), 0755), 0);
  ASSERT_EQ(::chmod(directory.c_str(), 0775), 0);
  auto log = std::make_shared<spdlog::logger>("quiet");
  const Status status = Broker(context_, options_, log).Start();
  EXPECT_EQ(status.code(), StatusCode::kPermissionDenied);
  EXPECT_THAT(status.message(), HasSubstr("other users may replace files in it"));
}

TEST_F(EndpointTest, ServersDirectoriesAreInaccessibleToOthers) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to be another user";
  options_.rules.endpoints = {Batch()};
  const std::string directory = directory_ / "batch";
  ASSERT_EQ(::mkdir(directory.c_str(), 0755), 0);
  ASSERT_EQ(::chown(directory.c_str(), kNobody, kNobody), 0);
  auto log = std::make_shared<spdlog::logger>("quiet");
  const Status status = Broker(context_, options_, log).Start();
  EXPECT_EQ(status.code(), StatusCode::kPermissionDenied);
  EXPECT_THAT(status.message(),
              HasSubstr("batch' is not a directory of root or the server's own user"));
}

TEST_F(EndpointTest, LeaseEndsWithItsConnectionAndSessionsAfterGracePeriod) {
  options_.rules.lease_grace = std::chrono::milliseconds(100);
  StartBroker();
  std::optional<ipc::UniqueFd> client;
  std::string socket;
  {
    const Result<admin::Lease> lease = Take("name = 'job-7'\nclass = 'low'\nwho = 'everyone'");
    ASSERT_TRUE(lease.ok()) << lease.status().message();
    EXPECT_EQ(lease->endpoint(), "job-7");
    socket = lease->socket();
    EXPECT_THAT(socket, ::testing::EndsWith(".leases/1/gpushared.sock"));
    auto joined = JoinAt(socket, Hello("step"));
    ASSERT_TRUE(joined.ok()) << joined.status().message();
    client = std::move(*joined);
    EXPECT_EQ(Client(0).at("class"), "low");
    EXPECT_THAT(std::string(EndpointRow("job-7").at("lessee")), HasSubstr("uid "));
    EXPECT_THAT(Take("name = 'job-7'\nwho = 'everyone'").status().message(),
                HasSubstr("there is one with the name 'job-7'"));
  }
  EXPECT_TRUE(AtEof(*client));
  EXPECT_THAT(Why(1).message(), HasSubstr("the lease of its endpoint 'job-7' is over"));
  EXPECT_FALSE(std::filesystem::exists(std::filesystem::path(socket).parent_path()));
  EXPECT_TRUE(Eventually([&] { return EndpointRow("job-7").is_null(); }));
}

TEST_F(EndpointTest, EndedLeaseAdmitsNoClientsAndEndsSessionsAfterGrace) {
  options_.rules.lease_grace = std::chrono::hours(1);
  StartBroker();
  std::string socket;
  std::optional<ipc::UniqueFd> client, late;
  {
    const Result<admin::Lease> lease = Take("name = 'job'\nwho = 'everyone'");
    ASSERT_TRUE(lease.ok());
    socket = lease->socket();
    client = *JoinAt(socket, Hello("early"));
    late = ConnectTo(socket);  // A connection that has not sent anything yet.
  }
  ASSERT_TRUE(Eventually([&] { return EndpointRow("job").at("open") == false; }));
  EXPECT_FALSE(Ask(*late, Hello("late")).ok());
  EXPECT_FALSE(ipc::ConnectUnix(socket, Soon()).ok());
  EXPECT_EQ(Sessions(0), 1U);
}

TEST_F(EndpointTest, ResumedLeaseKeepsSocketAndSessionsAndTakesNewTerms) {
  options_.rules.lease_grace = {};
  StartBroker();
  const std::string terms = "name = 'claim'\nwho = 'everyone'\nresume_within = '3600s'\n";
  std::string socket;
  std::optional<ipc::UniqueFd> client;
  {
    const Result<admin::Lease> lease = Take(terms);
    ASSERT_TRUE(lease.ok()) << lease.status().message();
    socket = lease->socket();
    client = *JoinAt(socket, Hello("early"));
  }
  ASSERT_TRUE(Eventually([&] { return EndpointRow("claim").contains("held"); }));
  const auto between = JoinAt(socket, Hello("while nobody holds the lease"));
  EXPECT_TRUE(between.ok()) << between.status().message();
  {
    const Result<admin::Lease> resumed = Take(terms + "class = 'low'");
    ASSERT_TRUE(resumed.ok()) << resumed.status().message();
    EXPECT_EQ(resumed->socket(), socket);
    EXPECT_EQ(EndpointRow("claim").at("class"), "low");
    EXPECT_FALSE(EndpointRow("claim").contains("held"));
    // A holder that only appeared to be dead loses the lease to the process that resumes it.
    const Result<admin::Lease> again = Take(terms);
    ASSERT_TRUE(again.ok()) << again.status().message();
    resumed->AwaitEnd();
    EXPECT_EQ(Sessions(0), 2U);
  }
  // Without the term `resume_within`, the lease is an ordinary one and ends with its connection.
  { ASSERT_TRUE(Take("name = 'claim'\nwho = 'everyone'").ok()); }
  EXPECT_TRUE(AtEof(*client));
  EXPECT_TRUE(Eventually([&] { return EndpointRow("claim").is_null(); }));
  EXPECT_FALSE(std::filesystem::exists(std::filesystem::path(socket).parent_path()));
}

// An operator must not be able to change the terms under which another operator's programs run.
TEST_F(EndpointTest, LeaseOfAnotherUserCannotBeResumed) {
  options_.rules.operators = {{.kind = Subject::Kind::kUser, .id = testing::kNobody}};
  StartBroker();
  const std::string terms = "name = 'claim'\nwho = 'everyone'\nresume_within = '3600s'\n";
  const Result<admin::Lease> lease = Take(terms);
  ASSERT_TRUE(lease.ok()) << lease.status().message();
  const testing::ActingAs nobody(testing::kNobody);
  if (!nobody.is_acting()) GTEST_SKIP() << "needs root, to be another user";
  EXPECT_THAT(Take(terms + "class = 'low'").status().message(), HasSubstr("'claim'"));
  EXPECT_EQ(EndpointRow("claim").at("class"), "normal");
}

TEST_F(EndpointTest, LeaseThatIsNotResumedInTimeEnds) {
  options_.rules.lease_grace = std::chrono::hours(1);
  StartBroker();
  { ASSERT_TRUE(Take("name = 'claim'\nwho = 'everyone'\nresume_within = '50ms'").ok()); }
  ASSERT_TRUE(Eventually([&] { return EndpointRow("claim").at("open") == false; }));
  // The name of the ended lease is free, although sessions of this lease could remain.
  const Result<admin::Lease> next = Take("name = 'claim'\nwho = 'everyone'");
  ASSERT_TRUE(next.ok()) << next.status().message();
  EXPECT_THAT(next->socket(), ::testing::EndsWith(".leases/2/gpushared.sock"));
  EXPECT_THAT(Take("who = 'everyone'\nresume_within = '3600s'").status().message(),
              HasSubstr("is resumed by its name, and has none"));
  EXPECT_THAT(Take("name = 'long'\nwho = 'everyone'\nresume_within = '3601s'").status().message(),
              HasSubstr("allowed: at most"));
}

TEST_F(EndpointTest, LeaseOfKilledLesseeIsRevoked) {
  options_.rules.lease_grace = {};
  StartBroker();
  const std::string log = directory_ / "ctl.log";
  const pid_t lessee =
      StartProgram({GPUSHARED_CTL, "--socket", options_.socket_path, "endpoint", "lease", "--who",
                    "everyone", "--class", "low", "--weight", "2", "--memory", "64MiB",
                    "--clients-max", "3", "--devices", "fake:0", "--name", "stepd"},
                   log);
  ASSERT_TRUE(Eventually([&] { return !testing::ReadFile(log).empty(); }));
  std::string socket = testing::ReadFile(log);
  socket.pop_back();
  const json row = EndpointRow("stepd");
  EXPECT_EQ(row.at("weight"), 2);
  EXPECT_EQ(row.at("memory"), "64 MiB");
  EXPECT_EQ(row.at("clients_max"), 3);
  EXPECT_EQ(row.at("devices").at(0), "fake:0");
  const auto client = JoinAt(socket, Hello("step"));
  ASSERT_TRUE(client.ok()) << client.status().message();
  ::kill(lessee, SIGKILL);
  ::waitpid(lessee, nullptr, 0);
  EXPECT_TRUE(AtEof(*client));
  EXPECT_FALSE(std::filesystem::exists(socket));
}

TEST_F(EndpointTest, RejectsInvalidLeaseWithoutLeftovers) {
  StartBroker();
  EXPECT_THAT(Take("class = 'low'").status().message(), HasSubstr("'who' is missing"));
  EXPECT_THAT(Take("who = 'everyone'\nclass = 'royal'").status().message(),
              HasSubstr("terms of the lease line 2 column 9: endpoint key class rejected"));
  EXPECT_THAT(Take("who = 'everyone'\nname = 'main'").status().message(), HasSubstr("not 'main'"));
  EXPECT_THAT(Take(std::string(ipc::kLeaseTermsBytesMax + 1, '#')).status().message(),
              HasSubstr("allowed: 2048"));
  EXPECT_THAT(
      Take("who = 'everyone'\nmemory = '10%'\nmemory_limit = '50%'").status().message(),
      AllOf(HasSubstr("memory_limit of 50%"), HasSubstr("start the server with overcommit")));
  EXPECT_EQ(Answer(ipc::AdminVerb::kEndpoints)->at("endpoints").size(), 1U);
  const ProgramOutcome rejected = Ctl({"endpoint", "lease", "--who", "user:no such user"});
  EXPECT_EQ(rejected.exit_code, 1);
  EXPECT_THAT(rejected.output, HasSubstr("does not exist here"));
}

TEST_F(EndpointTest, LeaseMayExceedGuaranteeWithOvercommit) {
  options_.has_overcommit = true;
  StartBroker();
  const Result<admin::Lease> lease =
      Take("name = 'job'\nwho = 'everyone'\nmemory = '10%'\nmemory_limit = '50%'");
  ASSERT_TRUE(lease.ok()) << lease.status().message();
  EXPECT_EQ(EndpointRow("job").at("memory_limit"), "50% of the device");
}

TEST_F(EndpointTest, AnyFurtherMessageOfLesseeEndsLease) {
  StartBroker();
  const Result<admin::Lease> lease = Take("name = 'job'\nwho = 'everyone'");
  ASSERT_TRUE(lease.ok());
  ASSERT_TRUE(ipc::SendMessage(lease->fd(), 2, ipc::ListDevices{}, Soon()).ok());
  lease->AwaitEnd();
  EXPECT_EQ(EndpointRow("job").at("open"), false);
}

TEST_F(EndpointTest, RemovesLeasesOfDeadServerAndItsOwnAtExit) {
  const std::string leases = options_.socket_path + ".leases";
  std::filesystem::create_directories(leases + "/3");
  StartBroker();
  EXPECT_FALSE(std::filesystem::exists(leases));
  const Result<admin::Lease> lease = Take("who = 'everyone'");
  ASSERT_TRUE(lease.ok()) << lease.status().message();
  EXPECT_EQ(lease->endpoint(), "lease-1");
  Stop();
  WaitForEnd();
  EXPECT_FALSE(std::filesystem::exists(leases));
}

}  // namespace
}  // namespace gpushared::server
