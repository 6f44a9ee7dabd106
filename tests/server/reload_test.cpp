// SPDX-License-Identifier: Apache-2.0
// Access rules that a running broker reloads.
#include <unistd.h>

#include <filesystem>
#include <future>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/broker_case.h"
#include "tests/server/other_user.h"

#include <nlohmann/json.hpp>

namespace gpushared::server {
namespace {

using gpushared::testing::Eventually;
using gpushared::testing::kNobody;
using gpushared::testing::ProgramOutcome;
using ::testing::HasSubstr;

class ReloadTest : public BrokerTest {
 protected:
  void SetUp() override {
    BrokerTest::SetUp();
    options_.read_rules = [this]() -> Result<NewRules> {
      const std::lock_guard lock(mutex_);
      if (!why_not_.ok()) return why_not_;
      return next_;
    };
  }
  void TearDown() override {
    BrokerTest::TearDown();
    broker_.reset();  // Ends the broker's threads, which read from this object.
  }

  static EndpointRule Rule(const std::string& name, scheduler::SchedulingClass its_class) {
    EndpointRule rule;
    rule.name = name;
    rule.label = "endpoint '" + name + "'";
    rule.usual_class = rule.highest_class = its_class;
    return rule;
  }
  std::string Socket(const std::string& name) { return directory_ / (name + "/gpushared.sock"); }
  Status Reload() {
    return admin::Ask(options_.socket_path, Verb(ipc::AdminVerb::kReload)).status();
  }
  std::string ClassOfClient(std::size_t index) {
    const Result<nlohmann::json> ps = Answer(ipc::AdminVerb::kClients);
    return ps.ok() ? std::string(ps->at("clients").at(index).at("class")) : "";
  }

  std::mutex mutex_;
  NewRules next_;
  Status why_not_;
};

TEST_F(ReloadTest, AppliesEndpointsAndRulesOfNewFile) {
  using enum scheduler::SchedulingClass;
  options_.rules.endpoints = {Rule("stays", kLow), Rule("goes", kLow)};
  StartBroker();
  const auto early = JoinAt(Socket("stays"), Hello("early"));
  const auto gone = JoinAt(Socket("goes"), Hello("gone"));
  ASSERT_TRUE(early.ok() && gone.ok());
  next_.endpoints = {Rule("stays", kNormal), Rule("comes", kHigh)};
  AccessRule nobody;
  nobody.clients_max = 0;
  next_.access = {nobody};
  next_.need_restart = {"slice", "device"};
  const ProgramOutcome told = Ctl({"reload"});
  EXPECT_EQ(told.exit_code, 0) << told.output;
  EXPECT_THAT(told.output, HasSubstr("is read again; a restart is needed for slice, device\n"));
  const auto late = JoinAt(Socket("stays"), Hello("late"));
  const auto came = JoinAt(Socket("comes"), Hello("came"));
  ASSERT_TRUE(late.ok() && came.ok());
  EXPECT_EQ(ClassOfClient(0), "low") << "who is here keeps what he has";
  EXPECT_EQ(ClassOfClient(2), "normal");
  EXPECT_EQ(ClassOfClient(3), "high");
  EXPECT_FALSE(std::filesystem::exists(Socket("goes")));
  EXPECT_EQ(Sessions(0), 4U) << "sessions outlive their endpoint";
  EXPECT_EQ(Join(Hello("at the main door")).status().code(), StatusCode::kLimitExceeded);
}

TEST_F(ReloadTest, NewFileDefinesObserversAndOperators) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to be another user";
  options_.rules.operators = {{.kind = Subject::Kind::kUser, .id = kNobody}};
  StartBroker();
  EXPECT_EQ(CtlOfNobody({"ps"}), 0);
  ASSERT_TRUE(Reload().ok());
  EXPECT_EQ(CtlOfNobody({"ps"}), 1);
  next_.observers = {{.kind = Subject::Kind::kUser, .id = kNobody}};
  ASSERT_TRUE(Reload().ok());
  EXPECT_EQ(CtlOfNobody({"ps"}), 0);
  EXPECT_EQ(CtlOfNobody({"drain"}), 1);
}

TEST_F(ReloadTest, InvalidFileChangesNothing) {
  using enum scheduler::SchedulingClass;
  options_.rules.endpoints = {Rule("old", kLow)};
  StartBroker();
  why_not_ = {StatusCode::kInvalidArgument, "config file x line 3 column 9: no such class"};
  const Status rejected = Reload();
  EXPECT_EQ(rejected.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(rejected.message(),
            "reload rejected, nothing has changed: config file x line 3 column 9: no such "
            "class");
  EXPECT_TRUE(JoinAt(Socket("old"), Hello("job")).ok());
}

TEST_F(ReloadTest, TwoEndpointsWithOneSocketAreRejected) {
  using enum scheduler::SchedulingClass;
  options_.rules.endpoints = {Rule("old", kLow)};
  StartBroker();
  EndpointRule same = Rule("same", kHigh);
  same.socket = Socket("old");
  next_.endpoints = {Rule("old", kLow), same};
  EXPECT_THAT(Reload().message(), HasSubstr("is that of another endpoint"));
  EndpointRule twin = Rule("twin", kHigh);
  twin.socket = Socket("new");
  next_.endpoints = {Rule("new", kLow), twin};
  EXPECT_THAT(Reload().message(), HasSubstr("is that of another endpoint"));
  EXPECT_FALSE(std::filesystem::exists(Socket("new")));
  const auto client = JoinAt(Socket("old"), Hello("job"));
  ASSERT_TRUE(client.ok());
  EXPECT_EQ(ClassOfClient(0), "low");
}

TEST_F(ReloadTest, FailedEndpointLeavesAllEndpointsUnchanged) {
  using enum scheduler::SchedulingClass;
  options_.rules.endpoints = {Rule("old", kLow)};
  StartBroker();
  EndpointRule broken = Rule("broken", kLow);
  broken.socket = directory_ / "no/such/directory/s";
  next_.endpoints = {Rule("old", kHigh), Rule("new", kLow), broken};
  EXPECT_THAT(Reload().message(), HasSubstr("no/such/directory"));
  EXPECT_FALSE(std::filesystem::exists(Socket("new")));
  const auto client = JoinAt(Socket("old"), Hello("job"));
  ASSERT_TRUE(client.ok());
  EXPECT_EQ(ClassOfClient(0), "low");
}

TEST_F(ReloadTest, KeepsLeasesAndTheirNames) {
  StartBroker();
  const Result<admin::Lease> lease =
      admin::Lease::Take(options_.socket_path, "name = 'job'\nwho = 'everyone'");
  ASSERT_TRUE(lease.ok());
  EXPECT_TRUE(Reload().ok());
  EXPECT_TRUE(JoinAt(lease->socket(), Hello("step")).ok());
  next_.endpoints = {Rule("job", scheduler::SchedulingClass::kLow)};
  EXPECT_THAT(Reload().message(), HasSubstr("there is one with the name 'job'"));
}

TEST_F(ReloadTest, RejectsConcurrentReload) {
  std::promise<void> goes_on;
  options_.read_rules = [future = goes_on.get_future().share()]() -> Result<NewRules> {
    future.wait();
    return NewRules();
  };
  StartBroker();
  const ipc::UniqueFd first = ConnectOnly();
  ASSERT_TRUE(ipc::SendMessage(first.get(), 1, Verb(ipc::AdminVerb::kReload), Soon()).ok());
  // Requests are handled in order, so the broker has already begun to handle the first one.
  EXPECT_TRUE(Eventually([&] { return Reload().code() == StatusCode::kNotReady; }));
  goes_on.set_value();
  const Result<ipc::Frame> told = ipc::ReceiveFrame(first.get(), ipc::ServerFrameRules, Soon());
  ASSERT_TRUE(told.ok());
  EXPECT_EQ(ipc::DecodeReply<ipc::AdminReply>(*told)->code, StatusCode::kOk);
}

TEST_F(ReloadTest, ReportsServerWithoutFile) {
  options_.read_rules = nullptr;
  StartBroker();
  EXPECT_THAT(Reload().message(), HasSubstr("this server has no configuration to read"));
}

}  // namespace
}  // namespace gpushared::server
