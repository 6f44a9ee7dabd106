// SPDX-License-Identifier: Apache-2.0
// With a real server, sessions end for every reason except the client's own request. Each client
// must receive the reason.
#include <signal.h>

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gpushared/client.h"

#include "tests/support/raw_client.h"
#include "tests/support/server_process.h"

namespace gpushared::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class EndReasons : public ::testing::Test {
 protected:
  // A client whose kernel would run for a long time.
  Client Busy(const std::string& name) {
    Result<Client> client = Client::Connect({.name = name, .socket = server_.socket()});
    EXPECT_TRUE(client.ok()) << client.status().ToString();
    const Result<Module> module = client->LoadModuleFile(GPUSHARED_SYSTEM_KERNELS);
    flags_.push_back(*client->AllocateDevice(4));
    const Status launched =
        client->default_stream().Launch(*module->GetKernel("endless"), {}, flags_.back());
    EXPECT_TRUE(launched.ok()) << launched.ToString();
    return *std::move(client);
  }
  pid_t worker() const { return server_.workers().at(0); }

  ServerProcess server_{{"--log-level", "warn"}};
  std::vector<DeviceBuffer> flags_;
};

TEST_F(EndReasons, ClientsOfAKilledWorkerGetDeviceLostWithSignalAndSessions) {
  const Client first = Busy("first"), second = Busy("second");
  ::kill(worker(), SIGKILL);
  for (const Client* client : {&first, &second}) {
    const Status status = client->Synchronize();
    EXPECT_EQ(status.code(), StatusCode::kDeviceLost);
    EXPECT_THAT(status.message(), AllOf(HasSubstr("generation 1"), HasSubstr("signal 9"),
                                        HasSubstr("2 sessions were on it: 1, 2")));
  }
}

TEST_F(EndReasons, MessageNamesTheOperator) {
  const Client client = Busy("unwanted");
  const ProgramOutcome ended = server_.Ctl({"client", "terminate", "1"});
  ASSERT_EQ(ended.exit_code, 0) << ended.output;
  const Status status = client.Synchronize();
  EXPECT_EQ(status.code(), StatusCode::kDisconnected);
  EXPECT_THAT(status.message(), HasSubstr("operator"));
}

// The broker keeps the reason, because a client may close its socket before it reads the message.
TEST_F(EndReasons, BrokerRemembersAProtocolViolation) {
  Result<RawClient> client = RawClient::Connect(server_.socket());
  ASSERT_TRUE(client.ok());
  ASSERT_TRUE(client->Join({}).ok());
  client->Publish(GetLaunch(0, 0, 0, {.x = 0}, 0));
  client->Ring();
  ASSERT_EQ(client->AwaitEnd().code(), StatusCode::kProtocolViolation);
  const std::uint64_t session = client->welcome().session;
  Result<RawClient> asker = RawClient::Connect(server_.socket());
  ASSERT_TRUE(asker.ok());
  const Result<ipc::Ended> ended = asker->Ask<ipc::Ended>(ipc::Why{session});
  ASSERT_TRUE(ended.ok()) << ended.status().ToString();
  EXPECT_EQ(ended->status.code(), StatusCode::kProtocolViolation);
  EXPECT_THAT(ended->status.message(), HasSubstr("grid"));
}

TEST_F(EndReasons, WithoutABrokerReportsThatNoServerAnswers) {
  const Client client = Busy("orphan");
  const pid_t orphan = worker();
  server_.Signal(SIGKILL);
  server_.WaitForExit();
  ::kill(orphan, SIGKILL);
  const Status status = client.Synchronize();
  EXPECT_EQ(status.code(), StatusCode::kDisconnected);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("session 1 ended"), HasSubstr("no server answers"),
                                      HasSubstr(server_.socket())));
}

TEST_F(EndReasons, DoesNotWaitForeverForAStoppedBroker) {
  const Client client = Busy("patient");
  server_.Signal(SIGSTOP);
  ::kill(worker(), SIGKILL);
  const Status status = client.Synchronize();
  server_.Signal(SIGCONT);
  EXPECT_EQ(status.code(), StatusCode::kDisconnected);
  EXPECT_THAT(status.message(), HasSubstr("gives no reason"));
}

}  // namespace
}  // namespace gpushared::testing
