// SPDX-License-Identifier: Apache-2.0
// A real server reloads its configuration.
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gpushared/client.h"

#include "tests/support/scratch_directory.h"
#include "tests/support/server_process.h"

namespace gpushared::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Reload, AppliesValidFileAndRejectsInvalidOne) {
  ScratchDirectory directory;
  const std::string file = directory / "gpushared.toml";
  const auto write = [&](const std::string& text) { std::ofstream(file) << text; };
  write("slice = '2ms'\n");
  ServerProcess server({"--config", file, "--memory", "256MiB"});
  const std::string batch =
      std::filesystem::path(server.socket()).parent_path() / "batch/gpushared.sock";
  const Result<Client> client = Client::Connect({.socket = server.socket()});
  ASSERT_TRUE(client.ok()) << client.status().ToString();

  write("slice = '2ms'\n[[endpoint]]\nname = 'batch'\nclass = 'royal'\n");
  server.Signal(SIGHUP);
  const std::string message = "gpushared.toml line 4 column 9: endpoint key class rejected";
  EXPECT_TRUE(Eventually([&] { return server.Log().find(message) != std::string::npos; }));
  const ProgramOutcome rejected = server.Ctl({"reload"});
  EXPECT_EQ(rejected.exit_code, 1);
  EXPECT_THAT(rejected.output, AllOf(HasSubstr("nothing has changed"), HasSubstr(message)));
  EXPECT_FALSE(std::filesystem::exists(batch));

  write("slice = '3ms'\n[[endpoint]]\nname = 'batch'\nclass = 'low'\n");
  server.Signal(SIGHUP);
  EXPECT_TRUE(Eventually([&] { return Client::Connect({.socket = batch}).ok(); }));
  EXPECT_THAT(server.Ctl({"reload"}).output, HasSubstr("a restart is needed for slice"));
  EXPECT_TRUE(client->AllocateDevice(4096).ok()) << "nobody has noticed";
  server.Signal(SIGTERM);
}

TEST(Reload, ServerWithoutFileKeepsRunning) {
  ServerProcess server({"--memory", "256MiB"});
  server.Signal(SIGHUP);
  EXPECT_TRUE(Eventually([&] {
    return server.Log().find("this server has no configuration to read") != std::string::npos;
  }));
  EXPECT_TRUE(Client::Connect({.socket = server.socket()}).ok());
}

// Needs a configuration that admits only one client at a time, and therefore is in this file.
TEST(Admission, ClosingClientDoesNotBlockItsNextSession) {
  ScratchDirectory directory;
  const std::string file = directory / "gpushared.toml";
  std::ofstream(file) << "[[endpoint]]\nname = 'one'\nclients_max = 1\n";
  ServerProcess server({"--config", file, "--memory", "256MiB"});
  const std::string one =
      std::filesystem::path(server.socket()).parent_path() / "one/gpushared.sock";
  for (int i = 0; i < 30; ++i) {
    Result<Client> client = Client::Connect({.socket = one});
    ASSERT_TRUE(client.ok()) << "time " << i << ": " << client.status().ToString();
    const Result<Client> second = Client::Connect({.socket = one});
    ASSERT_THAT(second.status().message(), HasSubstr("clients"));
    const Status closed = client->CloseAndWait();
    ASSERT_TRUE(closed.ok()) << closed.ToString();
    EXPECT_EQ(client->status().code(), StatusCode::kDisconnected);
  }
}

}  // namespace
}  // namespace gpushared::testing
