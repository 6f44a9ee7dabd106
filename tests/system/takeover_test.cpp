// SPDX-License-Identifier: Apache-2.0
// Real servers whose broker is killed and restarted, which no job may notice.
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gpushared/client.h"

#include "ipc/wire/channel.h"
#include "server/telemetry/admin/ask.h"
#include "tests/support/scratch_directory.h"
#include "tests/support/server_process.h"

#include <nlohmann/json.hpp>

namespace gpushared::testing {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using std::chrono::steady_clock;
using ::testing::HasSubstr;

// Fields that a crash must not change.
constexpr std::array kLasting = {"client", "name",       "pid",        "uid",      "gid",
                                 "class",  "weight",     "endpoint",   "device",   "quota_bytes",
                                 "state",  "generation", "worker_pid", "isolation"};

class Takeover : public ::testing::Test {
 protected:
  Takeover() : file_(directory_ / "gpushared.toml") {
    std::ofstream(file_) << "lease_grace = '1s'\n"
                            "[[endpoint]]\nname = 'batch'\nclass = 'low'\nmemory = '64MiB'\n"
                            "[[endpoint]]\nname = 'other'\nclass = 'low'\nwho = ['uid:12345']\n";
    server_ = std::make_unique<ServerProcess>(
        std::vector<std::string>{"--config", file_, "--memory", "256MiB", "--device", "cpu:0"});
  }

  ServerProcess& server() { return *server_; }
  std::string EndpointSocket(const std::string& name) {
    return std::filesystem::path(server().socket()).parent_path() / name / "gpushared.sock";
  }

  json Ask(ipc::AdminVerb verb) {
    ipc::Admin admin;
    admin.verb = verb;
    const Result<json> answer = admin::Ask(server().socket(), admin);
    EXPECT_TRUE(answer.ok()) << answer.status().ToString();
    return answer.ok() ? *answer : json::object();
  }
  json Clients() {
    json lasting = json::array();
    const json all = Ask(ipc::AdminVerb::kClients);
    for (const json& client : all["clients"]) {
      json row;
      for (const char* field : kLasting) row[field] = client.value(field, json());
      lasting.push_back(std::move(row));
    }
    return lasting;
  }
  json Endpoints() { return Ask(ipc::AdminVerb::kEndpoints).value("endpoints", json::array()); }
  json Device() { return Ask(ipc::AdminVerb::kDevices)["devices"][0]; }
  json Launches() {
    json launches;
    const json all = Ask(ipc::AdminVerb::kClients);
    for (const json& client : all["clients"]) {
      launches[client["client"].dump()] = client.value("launches", 0);
    }
    return launches;
  }

  void CrashAndStart() {
    server().Crash();
    server().StartAgain();
  }

  ScratchDirectory directory_;
  const std::string file_;
  std::unique_ptr<ServerProcess> server_;
};

// A client that repeatedly computes and checks the result.
class Adder {
 public:
  explicit Adder(const ClientOptions& options) {
    Result<Client> client = Client::Connect(options);
    status_ = client.status();
    if (!status_.ok()) return;
    client_ = std::move(*client);
    Result<Module> module = client_.LoadModuleFile(GPUSHARED_SYSTEM_KERNELS);
    status_ = module.status();
    if (!status_.ok()) return;
    module_ = std::move(*module);
    Result<Kernel> kernel = module_.GetKernel("add");
    Result<DeviceBuffer> memory = client_.AllocateDevice(3 * kBytes);
    status_ = kernel.ok() ? memory.status() : kernel.status();
    if (!status_.ok()) return;
    kernel_ = std::move(*kernel);
    memory_ = std::move(*memory);
  }

  const Status& status() const { return status_; }

  Status Add(float seed) {
    std::vector<float> a(kCount, seed), b(kCount), sum(kCount);
    for (int i = 0; i < kCount; ++i) b[static_cast<std::size_t>(i)] = static_cast<float>(i);
    const DeviceAddress da = memory_, db = da + kBytes, ds = db + kBytes;
    const Stream stream = client_.default_stream();
    Status status = stream.CopyToDevice(da, a.data(), kBytes);
    if (status.ok()) status = stream.CopyToDevice(db, b.data(), kBytes);
    if (status.ok()) {
      status = stream.Launch(kernel_, {.grid = {kCount / 128}, .block = {128}}, da, db, ds, kCount);
    }
    if (status.ok()) status = stream.CopyToHost(sum.data(), ds, kBytes);
    for (int i = 0; status.ok() && i < kCount; ++i) {
      if (sum[static_cast<std::size_t>(i)] != seed + static_cast<float>(i)) {
        status = Status(StatusCode::kInternal, "a sum is wrong");
      }
    }
    return status;
  }

 private:
  static constexpr int kCount = 1024;
  static constexpr std::size_t kBytes = kCount * sizeof(float);
  Status status_;
  Client client_;
  Module module_;
  Kernel kernel_;
  DeviceBuffer memory_;
};

// The reason must be in the error of the next call, because most programs show only that.
TEST_F(Takeover, NextCallNamesTheReasonOfTheEnd) {
  const auto connect = [&] {
    Result<Client> client = Client::Connect({.socket = server().socket()});
    EXPECT_TRUE(client.ok()) << client.status().ToString();
    return std::move(*client);
  };
  const auto kill_worker = [&] {
    ASSERT_EQ(server().workers().size(), 1u);
    ::kill(server().workers()[0], SIGKILL);
  };
  Client of_worker = connect();
  kill_worker();
  EXPECT_THAT(std::string(of_worker.AllocateDevice(4).status().message()),
              HasSubstr("its worker generation 1"));

  Client of_both = connect();
  const std::vector<pid_t> workers = server().workers();
  server().Crash();
  for (const pid_t worker : workers) ::kill(worker, SIGKILL);
  EXPECT_THAT(std::string(of_both.AllocateDevice(4).status().message()),
              HasSubstr("the server has ended together with its worker: no server answers at"));
  server().StartAgain();

  Client of_restart = connect();
  const std::vector<pid_t> later = server().workers();
  server().Crash();
  for (const pid_t worker : later) ::kill(worker, SIGKILL);
  server().StartAgain();
  EXPECT_THAT(std::string(of_restart.AllocateDevice(4).status().message()),
              HasSubstr("the server was restarted together with its worker"));

  Client of_operator = connect();
  EXPECT_EQ(
      server().Ctl({"client", "terminate", std::to_string(of_operator.session_id())}).exit_code, 0);
  EXPECT_THAT(std::string(of_operator.AllocateDevice(4).status().message()),
              HasSubstr("the operator ended it"));

  Client of_stop = connect();
  server().Signal(SIGTERM);
  ASSERT_TRUE(Eventually([&] { return server().Log().find("draining") != std::string::npos; }));
  server().Signal(SIGTERM);
  EXPECT_EQ(server().WaitForExit(), 0);
  EXPECT_THAT(std::string(of_stop.AllocateDevice(4).status().message()),
              HasSubstr("the server stops"));
}

TEST_F(Takeover, RestoresSessionsEndpointsAndCounters) {
  Adder main({.name = "main", .weight = 7, .socket = server().socket()});
  Adder batch({.name = "batch", .memory_bytes = 48 << 20, .socket = EndpointSocket("batch")});
  ASSERT_TRUE(main.status().ok() && batch.status().ok());
  ASSERT_EQ(server().Ctl({"client", "set", "1", "--class", "low", "--weight", "3"}).exit_code, 0);
  EXPECT_FALSE(Adder({.socket = EndpointSocket("other")}).status().ok());
  ASSERT_TRUE(main.Add(1).ok() && batch.Add(2).ok());
  const json clients = Clients(), endpoints = Endpoints(), launches = Launches();
  ASSERT_EQ(clients.size(), 2U);
  EXPECT_EQ(clients[0]["class"], "low");
  ASSERT_EQ(endpoints.size(), 3U);
  EXPECT_EQ(endpoints[2]["rejected"], json({{"PermissionDenied", 1}}));

  for (int crash = 0; crash < 3; ++crash) {
    CrashAndStart();
    EXPECT_EQ(Clients(), clients);
    EXPECT_EQ(Endpoints(), endpoints);
    EXPECT_EQ(Launches(), launches);
  }
  EXPECT_TRUE(main.Add(3).ok() && batch.Add(4).ok());
  // 48 of the endpoint's 64 MiB are in use, so 32 MiB more are rejected.
  EXPECT_EQ(Adder({.memory_bytes = 32 << 20, .socket = EndpointSocket("batch")}).status().code(),
            StatusCode::kPermissionDenied);
  Adder next({.name = "next", .socket = server().socket()});
  ASSERT_TRUE(next.status().ok()) << next.status().ToString();
  EXPECT_TRUE(next.Add(5).ok());
  EXPECT_EQ(Clients().size(), 3U);
  EXPECT_GT(Clients()[2]["client"], clients[1]["client"]) << "a number is never given twice";
  EXPECT_EQ(server().Ctl({"client", "terminate", "1"}).exit_code, 0);
  EXPECT_THAT(main.Add(6).message(), HasSubstr("the operator ended it"));
}

TEST_F(Takeover, LeaseOutlivesBrokerAndEndsWithItsHolder) {
  const pid_t holder =
      StartProgram({GPUSHARED_BIN_DIR "/gpusharedctl", "--socket", server().socket(), "endpoint",
                    "lease", "--who", "uid:" + std::to_string(::geteuid()), "--class", "low"},
                   directory_ / "lease");
  ASSERT_TRUE(Eventually([&] { return Endpoints().size() == 4; }));
  const json before = Endpoints();
  const std::string socket = before[3]["socket"];
  Adder client({.socket = socket});
  ASSERT_TRUE(client.status().ok()) << client.status().ToString();
  const json leased = Endpoints();

  CrashAndStart();
  EXPECT_EQ(Endpoints(), leased);
  EXPECT_TRUE(client.Add(1).ok());
  EXPECT_TRUE(Adder({.socket = socket}).status().ok());
  // A lease also ends if its holder exits while no broker serves.
  server().Crash();
  ::kill(holder, SIGKILL);
  ::waitpid(holder, nullptr, 0);
  server().StartAgain();
  EXPECT_FALSE(Adder({.socket = socket}).status().ok());
  EXPECT_TRUE(Eventually([&] {
    return client.Add(2).message().find("the lease of its") != std::string::npos;
  })) << client.Add(3).ToString();
  EXPECT_TRUE(Eventually([&] { return Endpoints().size() == 3; }));
  EXPECT_TRUE(Adder({.socket = server().socket()}).status().ok()) << "the device goes on";
}

TEST_F(Takeover, ClientThatEndedMeanwhileIsNotRestored) {
  Adder gone({.name = "gone", .socket = server().socket()});
  Adder stays({.name = "stays", .socket = server().socket()});
  ASSERT_TRUE(gone.status().ok() && stays.status().ok());
  const pid_t worker = server().workers().at(0);
  server().Crash();
  { const Adder left = std::move(gone); }
  EXPECT_TRUE(stays.Add(1).ok()) << "the worker " << worker << " serves on";
  server().StartAgain();
  EXPECT_TRUE(Eventually([&] { return Clients().size() == 1; }));
  EXPECT_EQ(Clients()[0]["name"], "stays");
}

// A worker without a session is replaced, because it would otherwise keep other options from ever
// taking effect.
TEST_F(Takeover, IdleWorkerWithOldOptionsIsReplaced) {
  auto client = std::make_unique<Adder>(ClientOptions{.socket = server().socket()});
  ASSERT_TRUE(client->status().ok());
  const json before = Clients();
  std::ofstream(file_) << "slice = '3ms'\n";
  CrashAndStart();
  EXPECT_EQ(Clients(), before);
  EXPECT_TRUE(client->Add(1).ok());
  EXPECT_EQ(Device().value("outdated", false), true);
  client.reset();
  EXPECT_TRUE(Eventually([&] {
    const json device = Device();
    return device["generation"] == 2 && device["state"] == "ready";
  }));
  EXPECT_TRUE(Adder({.socket = server().socket()}).status().ok());
}

TEST_F(Takeover, WorkerOfRemovedDeviceEndsWithItsSessions) {
  auto client = std::make_unique<Adder>(ClientOptions{.socket = server().socket()});
  ASSERT_TRUE(client->status().ok());
  server().Crash();
  server().ReplaceArgument("cpu:0", "cpu:1");
  server().StartAgain();
  EXPECT_EQ(Clients().size(), 1U);
  EXPECT_TRUE(client->Add(1).ok());
  const Adder next({.name = "next", .socket = server().socket()});
  ASSERT_TRUE(next.status().ok()) << next.status().ToString();
  EXPECT_EQ(Clients()[1]["device"], "cpu:1");
  EXPECT_EQ(Adder({.device = "cpu:0", .socket = server().socket()}).status().code(),
            StatusCode::kUnavailable);
  client.reset();
  EXPECT_TRUE(Eventually([&] {
    const json all = Ask(ipc::AdminVerb::kDevices);
    for (const json& device : all["devices"]) {
      if (device["device"] == "cpu:0") return device["state"] == "gone";
    }
    return false;
  }));
}

// systemd kills a broker whose drain takes longer than TimeoutStopSec; the next broker must end the
// drain.
TEST_F(Takeover, DrainedWorkerAcceptsClientsUnderNextBroker) {
  Adder client({.socket = server().socket()});
  ASSERT_TRUE(client.status().ok());
  ASSERT_EQ(server().Ctl({"drain"}).exit_code, 0);
  EXPECT_FALSE(Adder({.socket = server().socket()}).status().ok());
  CrashAndStart();
  EXPECT_EQ(Clients().size(), 1U);
  Adder next({.socket = server().socket()});
  EXPECT_TRUE(next.status().ok()) << next.status().ToString();
  EXPECT_TRUE(next.Add(1).ok() && client.Add(2).ok());
}

class Upgrade : public Takeover {
 protected:
  // Uses a copy of the program, which the test can replace.
  Upgrade() : program_(directory_ / "gpushared") {
    std::filesystem::copy_file(kProgram, program_);
    server().Crash();
    server().ReplaceArgument(kProgram, program_);
    server().StartAgain();
  }

  void Replace(const std::string& script) {
    const std::string next = directory_ / "next";
    std::ofstream(next) << "#!/bin/sh\n" << script << "\n";
    std::filesystem::permissions(next, std::filesystem::perms::owner_all);
    std::filesystem::rename(next, program_);
  }

  static constexpr const char* kProgram = GPUSHARED_BIN_DIR "/gpushared";
  const std::string program_;
};

TEST_F(Upgrade, RejectsNoClientDuringUpgrade) {
  constexpr std::size_t kConnecting = 64;
  const pid_t holder =
      StartProgram({GPUSHARED_BIN_DIR "/gpusharedctl", "--socket", server().socket(), "endpoint",
                    "lease", "--who", "uid:" + std::to_string(::geteuid()), "--class", "low"},
                   directory_ / "lease");
  ASSERT_TRUE(Eventually([&] { return Endpoints().size() == 4; }));
  const std::string leased = Endpoints()[3]["socket"];
  Adder job({.name = "job", .weight = 7, .memory_bytes = 4 << 20, .socket = server().socket()});
  ASSERT_TRUE(job.status().ok());
  const json clients = Clients();
  const std::array sockets = {server().socket(), EndpointSocket("batch"), leased};

  std::atomic<bool> is_over = false;
  std::atomic<std::size_t> welcomes = 0;
  std::atomic<std::int64_t> worst_us = 0;
  std::mutex mutex;
  std::vector<std::string> complaints;
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < kConnecting; ++i) {
    threads.emplace_back([&, i] {
      while (!is_over) {
        const auto begin = steady_clock::now();
        // Uses a query that the broker answers alone, because a worker does not have so many
        // sessions.
        const Result<std::vector<DeviceProperties>> devices =
            Client::ListDevices({.socket = sockets[i % sockets.size()]});
        const std::int64_t us =
            std::chrono::duration_cast<std::chrono::microseconds>(steady_clock::now() - begin)
                .count();
        if (us > worst_us) worst_us = us;
        ++welcomes;
        if (!devices.ok() || devices->empty()) {
          const std::lock_guard lock(mutex);
          complaints.push_back(devices.status().ToString());
          return;
        }
        std::this_thread::sleep_for(20ms);
      }
    });
  }
  for (std::uint64_t upgrade = 1; upgrade <= 3; ++upgrade) {
    const ProgramOutcome outcome = server().Ctl({"upgrade"});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_THAT(outcome.output, HasSubstr("1 sessions continue"));
    EXPECT_TRUE(job.Add(static_cast<float>(upgrade)).ok());
    const json status = Ask(ipc::AdminVerb::kStatus);
    EXPECT_EQ(status["server"]["upgrades"], upgrade);
    EXPECT_EQ(status["server"]["pid"], server().pid()) << "the same process";
  }
  is_over = true;
  for (std::thread& thread : threads) thread.join();
  std::printf("%zu answers, worst wait %.1f ms\n", welcomes.load(),
              static_cast<double>(worst_us) / 1000);
  EXPECT_THAT(complaints, ::testing::IsEmpty());
  EXPECT_EQ(Clients(), clients);
  ::kill(holder, SIGKILL);
  ::waitpid(holder, nullptr, 0);
  EXPECT_TRUE(Eventually([&] { return Endpoints().size() == 3; }))
      << "the lease went over, and ends with its holder";
}

TEST_F(Upgrade, KeepsOldProgramIfNewOneCannotTakeOver) {
  Adder job({.name = "job", .socket = server().socket()});
  ASSERT_TRUE(job.status().ok());
  const json clients = Clients();
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"echo gpushared channel 99 version 7.0", "says 'gpushared channel 99 version 7.0', the"},
      {"echo option policy >&2; echo rejected >&2; exit 2", "rejects: option policy rejected"},
      {"kill -9 $$", "rejects: "},
      {"head -c 100000 /dev/zero", "does not report in a line"},
      // A program that answers the check of its version correctly once, and then deletes itself.
      {"echo gpushared channel " + std::to_string(ipc::kChannelVersion) + " version 7.0; rm $0",
       "the server continues unchanged: executing"}};
  for (const auto& [script, message] : wrong) {
    Replace(script);
    const ProgramOutcome outcome = server().Ctl({"upgrade"});
    EXPECT_EQ(outcome.exit_code, 1);
    EXPECT_THAT(outcome.output, HasSubstr(message));
    EXPECT_EQ(Clients(), clients);
    EXPECT_TRUE(job.Add(1).ok());
  }
  EXPECT_THAT(server().Log(), HasSubstr("upgrade abandoned, this server continues: executing"));
  EXPECT_EQ(Ask(ipc::AdminVerb::kStatus)["server"]["upgrades"], 0);
}

// The new program would put the device back into service, so the message names the command to do
// first.
TEST_F(Upgrade, IsRejectedDuringDrainNamingRequiredCommand) {
  Adder job({.name = "job", .socket = server().socket()});
  ASSERT_TRUE(job.status().ok());
  ASSERT_EQ(server().Ctl({"drain", "cpu:0"}).exit_code, 0);
  const ProgramOutcome outcome = server().Ctl({"upgrade"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.output, HasSubstr("device cpu:0 is draining"));
  EXPECT_THAT(outcome.output, HasSubstr("`gpusharedctl resume cpu:0` cancels that"));
  EXPECT_EQ(server().Ctl({"resume", "cpu:0"}).exit_code, 0);
  EXPECT_EQ(server().Ctl({"upgrade"}).exit_code, 0);
  EXPECT_TRUE(job.Add(1).ok()) << "it lives on";
  EXPECT_TRUE(Adder({.socket = server().socket()}).status().ok());
}

// The new program would not trust the directory, so it would not find its workers and would start
// others for the same device.
TEST_F(Upgrade, IsRejectedIfWorkerDirectoryIsAccessibleToOthers) {
  Adder job({.name = "job", .socket = server().socket()});
  ASSERT_TRUE(job.status().ok());
  const std::string directory = server().socket() + ".workers";
  ASSERT_EQ(::chmod(directory.c_str(), 0755), 0);
  const ProgramOutcome outcome = server().Ctl({"upgrade"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.output, HasSubstr(directory));
  EXPECT_THAT(outcome.output, HasSubstr("mode 0700"));
  ASSERT_EQ(::chmod(directory.c_str(), 0700), 0);
  EXPECT_THAT(server().Ctl({"upgrade"}).output, HasSubstr("1 sessions continue"));
  EXPECT_TRUE(job.Add(1).ok()) << "it lives on";
}

TEST_F(Upgrade, InvalidConfigurationIsFoundBeforeUpgrade) {
  std::ofstream(file_) << "policy = 'chaos'\n";
  const ProgramOutcome outcome = server().Ctl({"upgrade"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.output, HasSubstr("gpushared.toml line 1"));
  EXPECT_TRUE(Adder({.socket = server().socket()}).status().ok());
}

std::size_t WantedKills() {
  const char* wanted = std::getenv("GPUSHARED_BROKER_KILLS");
  return wanted != nullptr ? std::strtoul(wanted, nullptr, 10) : 12;
}

TEST_F(Takeover, KillsAtRandomMomentsDoNotAffectClients) {
  // Maximum time to connect on a busy machine, including a start of the server.
  constexpr auto kWelcomeWithin = 20s;
  std::mutex mutex;
  std::vector<std::string> complaints;
  const auto complain = [&](const std::string& what) {
    const std::lock_guard lock(mutex);
    complaints.push_back(what);
  };
  std::atomic<bool> is_over = false;
  std::atomic<std::size_t> sums = 0, new_clients = 0;
  std::vector<std::unique_ptr<Adder>> jobs;
  for (const std::string& socket :
       {server().socket(), server().socket(), EndpointSocket("batch")}) {
    jobs.push_back(std::make_unique<Adder>(ClientOptions{
        .name = "job" + std::to_string(jobs.size()), .memory_bytes = 16 << 20, .socket = socket}));
    ASSERT_TRUE(jobs.back()->status().ok()) << jobs.back()->status().ToString();
  }
  std::vector<std::thread> threads;
  for (const auto& job : jobs) {
    threads.emplace_back([&, at = job.get()] {
      for (int i = 0; !is_over; ++i) {
        const Status status = at->Add(static_cast<float>(i));
        if (!status.ok()) return complain("a job: " + status.ToString());
        ++sums;
        std::this_thread::sleep_for(1ms);
      }
    });
  }
  // These clients connect and leave continuously, so that they meet every state of a server that
  // dies and starts.
  threads.emplace_back([&] {
    auto since = steady_clock::now();
    while (!is_over) {
      Adder visitor({.name = "visitor", .memory_bytes = 4 << 20, .socket = server().socket()});
      if (visitor.status().ok()) {
        const Status status = visitor.Add(1);
        if (!status.ok()) return complain("a visitor: " + status.ToString());
        since = steady_clock::now();
        ++new_clients;
      } else if (steady_clock::now() > since + kWelcomeWithin) {
        complain("no visitor is welcome: " + visitor.status().ToString());
        return;
      } else {
        std::this_thread::sleep_for(2ms);
      }
    }
  });
  const auto jobs_of = [](const json& clients) {
    json rows = json::array();
    for (const json& each : clients) {
      if (each["name"] != "visitor") rows.push_back(each);
    }
    return rows;
  };
  const json before = jobs_of(Clients());
  ASSERT_EQ(before.size(), 3U);
  std::mt19937 random(std::random_device{}());
  std::uniform_int_distribution<int> moment(0, 60'000);
  for (std::size_t kill = 0; kill < WantedKills(); ++kill) {
    // Sometimes kills the broker again while it starts and takes over.
    const bool waits = random() % 4 != 0;
    std::this_thread::sleep_for(std::chrono::microseconds(moment(random)));
    server().Crash();
    waits ? server().StartAgain() : server().StartWithoutWaiting();
  }
  server().Crash();
  server().StartAgain();
  is_over = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(complaints, ::testing::IsEmpty());
  EXPECT_TRUE(Eventually([&] { return Clients() == before; })) << Clients().dump(1);
  std::printf("%zu kills, %zu sums of jobs, %zu new clients\n", WantedKills(), sums.load(),
              new_clients.load());
  EXPECT_GT(sums, 0U);
  EXPECT_GT(new_clients, 0U);
}

}  // namespace
}  // namespace gpushared::testing
