// SPDX-License-Identifier: Apache-2.0
// Every command of nvidia-cuda-mps-control on a real server, compared with gpusharedctl's output.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gpushared/client.h"

#include "tests/support/gpu_server.h"
#include "tests/support/scratch_directory.h"
#include "tests/support/server_process.h"

#include <nlohmann/json.hpp>

namespace gpushared::testing {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string PidText(const json& row) { return std::to_string(row.at("pid").get<int>()); }

std::vector<std::string> GetWords(const std::string& line) {
  std::istringstream stream(line);
  return {std::istream_iterator<std::string>(stream), std::istream_iterator<std::string>()};
}

ProgramOutcome RunMps(const std::string& socket, const std::string& line) {
  std::vector<std::string> command = {GPUSHARED_BIN_DIR "/gpushared-mps-control", "--socket",
                                      socket};
  for (const std::string& word : GetWords(line)) command.push_back(word);
  return RunProgram(command);
}

json Query(const ServerProcess& server, const std::string& verb) {
  return json::parse(server.Ctl({verb, "--json"}).output);
}

// Two devices, and two clients that connected through different endpoints.
class MpsControl : public ::testing::Test {
 protected:
  MpsControl() {
    std::ofstream(directory_ / "gpushared.toml") << "[[endpoint]]\nname = 'batch'\nclass = 'low'\n";
    server_ = std::make_unique<ServerProcess>(
        std::vector<std::string>{"--config", directory_ / "gpushared.toml", "--device",
                                 "cpu:0,cpu:1", "--memory", "256MiB", "--cpu-threads", "1"});
    batch_ = std::filesystem::path(server_->socket()).parent_path() / "batch/gpushared.sock";
    first_ = Join(server_->socket(), "first", "cpu:0");
    second_ = Join(batch_, "second", "cpu:1");
    EXPECT_TRUE(Eventually([&] { return Query(*server_, "ps").at("clients").size() == 2; }));
  }

  static std::unique_ptr<Client> Join(const std::string& socket, const std::string& name,
                                      const std::string& device) {
    Result<Client> client = Client::Connect({.name = name, .device = device, .socket = socket});
    EXPECT_TRUE(client.ok()) << client.status().ToString();
    return client.ok() ? std::make_unique<Client>(std::move(*client)) : nullptr;
  }

  ProgramOutcome Run(const std::string& line) const { return RunMps(server_->socket(), line); }
  // Returns the answer to the line; a rejection fails the test.
  std::string Answer(const std::string& line) const {
    const ProgramOutcome outcome = Run(line);
    EXPECT_EQ(outcome.exit_code, 0) << line << ": " << outcome.output;
    return outcome.output;
  }
  void ExpectRejected(const std::string& line, const std::string& message) const {
    const ProgramOutcome outcome = Run(line);
    EXPECT_EQ(outcome.exit_code, 1) << line;
    EXPECT_THAT(outcome.output, AllOf(HasSubstr("gpushared-mps-control: "), HasSubstr(message)))
        << line;
  }
  ProgramOutcome FromStdin(const std::string& lines) const {
    std::ofstream(directory_ / "lines", std::ios::binary) << lines;
    return RunProgram({"/bin/sh", "-c",
                       GPUSHARED_BIN_DIR "/gpushared-mps-control --socket " + server_->socket() +
                           " < " + (directory_ / "lines")});
  }
  json Devices() const { return Query(*server_, "devices").at("devices"); }
  json Clients() const { return Query(*server_, "ps").at("clients"); }
  std::string WorkerPid(std::size_t device) const {
    return std::to_string(Devices().at(device).at("worker_pid").get<int>());
  }

  ScratchDirectory directory_;
  std::unique_ptr<ServerProcess> server_;
  std::string batch_;  // Socket of the endpoint.
  std::unique_ptr<Client> first_, second_;
};

TEST_F(MpsControl, GetServerListHasTheWorkers) {
  EXPECT_EQ(Answer("get_server_list"), WorkerPid(0) + "\n" + WorkerPid(1) + "\n");
}

TEST_F(MpsControl, GetServerStatusFollowsTheDevicesState) {
  EXPECT_EQ(Devices().at(0).at("state"), "ready");
  EXPECT_EQ(Answer("get_server_status " + WorkerPid(0)), "ACTIVE\n");
  ExpectRejected("get_server_status 1", "server 1 does not exist; see get_server_list");
}

TEST_F(MpsControl, StartServerHasNothingToDoAndSaysSo) {
  EXPECT_THAT(Answer("start_server -uid 1000"), HasSubstr("nothing to do"));
  ExpectRejected("start_server -uid 4294967295", "uid rejected: asked for '4294967295'");
  ExpectRejected("start_server -uid 1000 -mlopart", "allowed: -uid UID alone");
  ExpectRejected("start_server 1000", "it has 1 arguments, allowed: start_server -uid UID");
}

TEST_F(MpsControl, ClientListsHaveThePidsThatPsHas) {
  EXPECT_EQ(Answer("get_client_list " + WorkerPid(0)), PidText(Clients().at(0)) + "\n");
  EXPECT_EQ(Answer("get_device_client_list"),
            "cpu:0\n" + PidText(Clients().at(0)) + "\ncpu:1\n" + PidText(Clients().at(1)) + "\n");
  EXPECT_EQ(Answer("get_device_client_list " + WorkerPid(1)),
            "cpu:1\n" + PidText(Clients().at(1)) + "\n");
  ExpectRejected("get_client_list 1", "server 1 does not exist");
  ExpectRejected("get_client_list", "it has 0 arguments");
}

TEST_F(MpsControl, PsHasNvidiasColumns) {
  std::istringstream lines(Answer("ps"));
  std::string line;
  std::getline(lines, line);
  EXPECT_THAT(GetWords(line), ElementsAre("PID", "ID", "SERVER", "DEVICE", "NAMESPACE", "COMMAND"));
  for (const json& client : Clients()) {
    std::getline(lines, line);
    EXPECT_THAT(GetWords(line),
                ElementsAre(PidText(client), std::to_string(client.at("client").get<int>()),
                            std::to_string(client.at("worker_pid").get<int>()),
                            client.at("device").get<std::string>(),
                            client.at("endpoint").get<std::string>(),
                            client.at("name").get<std::string>()));
  }
  EXPECT_EQ(Clients().at(1).at("endpoint"), "batch");
  EXPECT_FALSE(std::getline(lines, line)) << line;
  EXPECT_THAT(Answer("ps -p " + WorkerPid(1)),
              AllOf(HasSubstr("second"), ::testing::Not(HasSubstr("first"))));
  ExpectRejected("ps -p 1", "server 1 does not exist");
  ExpectRejected("ps -q " + WorkerPid(0), "allowed: ps [-p PID]");
}

TEST_F(MpsControl, TerminateClientEndsOnlyClientOfNamedServer) {
  const std::string pid = PidText(Clients().at(0));
  ExpectRejected("terminate_client " + WorkerPid(0) + " 1", "client 1 is not at server");
  ExpectRejected("terminate_client 1 " + pid, "server 1 does not exist");
  EXPECT_EQ(Clients().size(), 2U);
  EXPECT_EQ(Answer("terminate_client " + WorkerPid(0) + " " + pid), "");
  ASSERT_TRUE(Eventually([&] { return Clients().size() == 1; }));
  EXPECT_EQ(Clients().at(0).at("name"), "second");
}

TEST_F(MpsControl, PercentagesCapPresentAndFutureClients) {
  ExpectRejected("set_default_active_thread_percentage 101", "above 0 and at most 100");
  ExpectRejected("set_default_active_thread_percentage 0", "above 0 and at most 100");
  ExpectRejected("set_active_thread_percentage " + WorkerPid(0) + " -1", "above 0");
  ExpectRejected("set_active_thread_percentage 1 50", "server 1 does not exist");
  EXPECT_EQ(Answer("get_default_active_thread_percentage"), "100.0\n");
  EXPECT_EQ(Answer("get_active_thread_percentage " + WorkerPid(0)), "100.0\n");
  ExpectRejected("get_active_thread_percentage 1", "server 1 does not exist");

  EXPECT_THAT(Answer("set_active_thread_percentage " + WorkerPid(0) + " 50"),
              HasSubstr("applied to the 1 current clients of server " + WorkerPid(0)));
  EXPECT_EQ(Clients().at(0).at("max_share_percent"), 50);
  EXPECT_EQ(Clients().at(1).at("max_share_percent"), 100) << "it is at the other server";
  EXPECT_EQ(Answer("get_active_thread_percentage " + WorkerPid(0)), "50.0\n");
  EXPECT_EQ(Answer("get_active_thread_percentage " + WorkerPid(1)), "100.0\n");

  EXPECT_THAT(Answer("set_default_active_thread_percentage 33.3333"),
              HasSubstr("clients that connect from now on"));
  EXPECT_EQ(Answer("get_default_active_thread_percentage"), "33.3\n");
  const auto third = Join(server_->socket(), "third", "cpu:1");
  EXPECT_EQ(Clients().at(1).at("max_share_percent"), 100) << "it was there before";
  EXPECT_EQ(Clients().at(2).at("max_share_percent"), 33.3);
  Answer("set_default_active_thread_percentage 100");
  EXPECT_EQ(Answer("get_default_active_thread_percentage"), "100.0\n");
}

TEST_F(MpsControl, MemoryLimitsApplyToFutureClients) {
  for (const std::string device : {"2", "GPU-0", "cpu:9"}) {
    const std::string missing = "device '" + device + "' does not exist; see device_query";
    ExpectRejected("set_default_device_pinned_mem_limit " + device + " 1G", missing);
    ExpectRejected("get_default_device_pinned_mem_limit " + device, missing);
    ExpectRejected("set_device_pinned_mem_limit " + WorkerPid(0) + " " + device + " 1G", missing);
  }
  ExpectRejected("set_default_device_pinned_mem_limit 0 1T", "a number and G or M");
  ExpectRejected("set_default_device_pinned_mem_limit 0 1M", "at least 2 MiB is needed");
  ExpectRejected("set_device_pinned_mem_limit 1 0 1G", "server 1 does not exist");
  EXPECT_EQ(Answer("get_default_device_pinned_mem_limit 0"), "256M\n") << "all that there is";

  EXPECT_THAT(Answer("set_default_device_pinned_mem_limit 0 64M"),
              HasSubstr("clients that connect from now on"));
  EXPECT_EQ(Answer("get_default_device_pinned_mem_limit cpu:0"), "64M\n");
  EXPECT_EQ(Answer("get_device_pinned_mem_limit " + WorkerPid(0) + " 0"), "64M\n");
  EXPECT_EQ(Answer("get_default_device_pinned_mem_limit 1"), "256M\n") << "the other device";
  const auto third = Join(server_->socket(), "third", "cpu:0");
  EXPECT_EQ(Clients().at(2).at("quota_bytes"), 64 << 20);
  EXPECT_FALSE(third->AllocateDevice(65 << 20).ok());
  EXPECT_GT(Clients().at(0).at("quota_bytes"), 64 << 20) << "it was there before";
  Answer("set_device_pinned_mem_limit " + WorkerPid(0) + " 0 1G");
  EXPECT_EQ(Answer("get_default_device_pinned_mem_limit 0"), "256M\n") << "no more than there is";
}

TEST_F(MpsControl, PriorityIsClassOfClientsThatRequestNone) {
  EXPECT_EQ(Answer("get_default_client_priority"), "0\n");
  ExpectRejected("set_default_client_priority 2", "asked for '2', allowed: 0 to 1");
  Answer("set_default_client_priority 1");
  EXPECT_EQ(Answer("get_default_client_priority"), "1\n");
  const auto third = Join(server_->socket(), "third", "cpu:0");
  EXPECT_EQ(Clients().at(0).at("class"), "normal") << "it was there before";
  EXPECT_EQ(Clients().at(2).at("class"), "low");
  const Result<Client> fourth = Client::Connect({.name = "fourth",
                                                 .scheduling_class = SchedulingClass::kNormal,
                                                 .socket = server_->socket()});
  ASSERT_TRUE(fourth.ok()) << fourth.status().message();
  EXPECT_EQ(Clients().at(3).at("class"), "normal") << "it asked";
  Answer("set_default_client_priority 0");
  EXPECT_EQ(Answer("get_default_client_priority"), "0\n");
}

TEST_F(MpsControl, DeviceQueryHasTheDevices) {
  std::string expected = "ORDINAL,UUID,NAME,SERVER,SMS\n";
  for (std::size_t i = 0; i < Devices().size(); ++i) {
    const json device = Devices().at(i);
    std::string name = device.at("name");
    std::replace(name.begin(), name.end(), ',', ' ');
    expected += std::to_string(i) + "," + device.at("device").get<std::string>() + "," + name +
                "," + WorkerPid(i) + "," + std::to_string(device.at("multiprocessors").get<int>()) +
                "\n";
  }
  EXPECT_EQ(Answer("device_query --csv"), expected);
  EXPECT_THAT(Answer("device_query " + WorkerPid(1)),
              AllOf(HasSubstr("cpu:1"), ::testing::Not(HasSubstr("cpu:0"))));
  ExpectRejected("device_query 1", "server 1 does not exist");
  ExpectRejected("device_query --json", "PID of a server rejected");
}

TEST_F(MpsControl, RejectsPartitionCommandsNamingSmLimitOption) {
  ExpectRejected("sm_partition add cpu:0 2", "by --sm-limit when the server starts");
  ExpectRejected("sm_partition rm cpu:0 1", "by --sm-limit when the server starts");
  ExpectRejected("sm_partition add GPU-0 2", "device 'GPU-0' does not exist");
  ExpectRejected("sm_partition add cpu:0 0", "allowed: 1 to 4096");
  ExpectRejected("sm_partition list cpu:0 0", "allowed: add and rm");
  EXPECT_EQ(GetWords(Answer("lspart")).size(), 4U) << "headings alone: a cpu device has none";
}

TEST_F(MpsControl, OtherCommandsAndOptionsAreRejectedByName) {
  ExpectRejected("server list", "command 'server' rejected: there is no such command");
  EXPECT_THAT(Run("-S").output, HasSubstr("option '-S' rejected"));
  EXPECT_THAT(Run("-d -S").output, HasSubstr("option '-S' rejected"));
  EXPECT_EQ(Run("-df").exit_code, 2);
  for (const char* start : {"-d", "-f", "-d -multiuser-server", "-multiuser-server -d"}) {
    EXPECT_THAT(Answer(start), HasSubstr("nothing to do, a server answers")) << start;
  }
  EXPECT_EQ(Run("-multiuser-server").exit_code, 2);
  EXPECT_THAT(Answer("help"), AllOf(HasSubstr("get_server_list"), HasSubstr("lspart")));
  EXPECT_EQ(RunMps(batch_, "get_server_list").exit_code, 1) << "an endpoint answers no operator";
  EXPECT_THAT(RunMps(batch_, "-d").output, HasSubstr("nothing to do, a server answers"));
  const ProgramOutcome alone = RunMps(directory_ / "nobody.sock", "-d");
  EXPECT_EQ(alone.exit_code, 3);
  EXPECT_THAT(alone.output, HasSubstr("this program starts no server"));
  EXPECT_EQ(RunMps(directory_ / "nobody.sock", "get_server_list").exit_code, 3);
}

TEST_F(MpsControl, LinesFromStdinAreAnsweredOneByOne) {
  const std::string one = WorkerPid(0) + "\n" + WorkerPid(1) + "\n";
  EXPECT_EQ(FromStdin("get_server_list\n\n get_server_list").output, one + one);
  const ProgramOutcome mixed =
      FromStdin("nonsense\nps\x1b[2J\n" + std::string(5000, 'a') + "\nget_server_list\n");
  EXPECT_EQ(mixed.exit_code, 1);
  EXPECT_THAT(mixed.output,
              AllOf(HasSubstr("command 'nonsense' rejected"), HasSubstr("byte 3 is 27"),
                    HasSubstr("longer than 1024 bytes"), ::testing::EndsWith(one)));
}

TEST_F(MpsControl, QuitDrainsAndReadsNoFurther) {
  const ProgramOutcome outcome = FromStdin("quit\nget_server_list\n");
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.output, AllOf(HasSubstr("ends with the last of 2 sessions"),
                                    ::testing::Not(HasSubstr(WorkerPid(0) + "\n"))));
  EXPECT_EQ(Query(*server_, "status").at("server").at("state"), "draining");
  EXPECT_FALSE(Client::Connect({.socket = server_->socket()}).ok());
  first_.reset();
  second_.reset();
  EXPECT_EQ(server_->WaitForExit(), 0);
}

TEST_F(MpsControl, JobChangesNothingForOtherJobs) {
  const std::string first = WorkerPid(0);
  for (const std::string& line :
       {std::string("quit"), std::string("quit -t 0"), std::string("shutdown_server -f"),
        std::string("set_default_active_thread_percentage 5"),
        "set_active_thread_percentage " + first + " 5",
        std::string("set_default_device_pinned_mem_limit cpu:0 1M"),
        "set_device_pinned_mem_limit " + first + " cpu:0 1M",
        std::string("set_default_client_priority 1")}) {
    const ProgramOutcome outcome =
        RunProgram({"/bin/sh", "-c",
                    "echo " + line +
                        " | SLURM_JOB_ID=7 " GPUSHARED_BIN_DIR "/gpushared-mps-control --socket " +
                        server_->socket()});
    EXPECT_EQ(outcome.exit_code, 0) << line;
    EXPECT_THAT(outcome.output, HasSubstr("no effect in a Slurm job")) << line;
  }
  const json server = Query(*server_, "status").at("server");
  EXPECT_EQ(server.at("state"), "serving");
  EXPECT_EQ(server.at("new_clients"), json({{"max_share_percent", 100.0}}));
  EXPECT_EQ(Clients().size(), 2U);
  EXPECT_EQ(Answer("get_active_thread_percentage " + first), "100.0\n");
}

TEST_F(MpsControl, QuitWithTimeoutEndsRemainingClients) {
  ExpectRejected("quit -t soon", "allowed: 0 to 86400 seconds");
  EXPECT_EQ(Answer("quit -t 0"), "");
  EXPECT_EQ(server_->WaitForExit(), 0);
  EXPECT_FALSE(first_->AllocateDevice(4096).ok());
}

TEST_F(MpsControl, ShutDownServerIsForAllOrForNone) {
  ExpectRejected("shutdown_server " + WorkerPid(0) + " -f",
                 "is one of 2 that start and end together");
  ExpectRejected("shutdown_server 1", "server 1 does not exist");
  EXPECT_EQ(Clients().size(), 2U);
  EXPECT_EQ(Answer("shutdown_server -f"), "");
  EXPECT_EQ(server_->WaitForExit(), 0);
}

TEST(MpsControlOfGpus, PartitionsAreSmLimitsOfClasses) {
  GpuServer gpu({.statements = "", .arguments = {"--sm-limit", "low=50%", "--policy", "fair"}});
  ASSERT_TRUE(Eventually(
      [&] { return Query(gpu.server(), "devices").at("devices").at(0).contains("sm_limits"); }));
  const json device = Query(gpu.server(), "devices").at("devices").at(0);
  const json limit = device.at("sm_limits").at(0);
  const std::vector<std::string> words = GetWords(RunMps(gpu.socket(), "lspart").output);
  EXPECT_THAT(words, ElementsAre("GPU", "CLASS", "ASKED", "SMS", device.at("uuid"), "low",
                                 std::to_string(limit.at("asked").get<int>()),
                                 std::to_string(limit.at("granted").get<int>())));
  const std::string by_uuid = device.at("uuid");
  EXPECT_EQ(RunMps(gpu.socket(), "get_default_device_pinned_mem_limit " + by_uuid).output,
            std::to_string(device.at("memory_bytes").get<std::uint64_t>() >> 20U) + "M\n");
}

}  // namespace
}  // namespace gpushared::testing
