// SPDX-License-Identifier: Apache-2.0
// Device time follows weights between real processes.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gpushared/client.h"

#include "tests/support/scratch_directory.h"
#include "tests/support/server_process.h"

#include <nlohmann/json.hpp>

namespace gpushared::testing {
namespace {

// Never returns: the parent ends the process.
[[noreturn]] void LaunchWithoutEnd(const ClientOptions& options) {
  constexpr int kBatch = 200, kRounds = 1000;
  const Result<Client> client = Client::Connect(options);
  if (!client.ok()) _exit(1);
  const Result<Module> module = client->LoadModuleFile(GPUSHARED_SYSTEM_KERNELS);
  if (!module.ok()) _exit(2);
  const Result<Kernel> work = module->GetKernel("work");
  const Result<DeviceBuffer> done = client->AllocateDevice(4);
  if (!work.ok() || !done.ok()) _exit(3);
  const Stream stream = client->default_stream();
  // Up to two batches are queued, so that the device has work of this client even while the process
  // is kept off the cores.
  const Event ends[2] = {*client->CreateEvent(), *client->CreateEvent()};
  for (std::size_t batch = 0;; ++batch) {
    const Event& end = ends[batch % 2];
    if (batch >= 2 && !end.Synchronize().ok()) _exit(4);
    for (int i = 0; i < kBatch; ++i) {
      if (!stream.Launch(*work, {.grid = {16, 1, 1}, .block = {128, 1, 1}}, *done, kRounds).ok())
        _exit(5);
    }
    if (!stream.Record(end).ok()) _exit(6);
  }
}

class ShareOfProcesses : public ::testing::Test {
 protected:
  explicit ShareOfProcesses(std::vector<std::string> arguments = {"--policy", "fair"})
      : server_(std::move(arguments)) {}
  ~ShareOfProcesses() override {
    while (!processes_.empty()) End(processes_.begin()->first);
  }

  void Start(const std::string& name, std::uint32_t weight,
             std::optional<double> max_share = std::nullopt) {
    ClientOptions options;
    options.socket = server_.socket();
    options.name = name;
    options.weight = weight;
    options.max_share = max_share;
    const pid_t pid = fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) LaunchWithoutEnd(options);
    processes_[name] = pid;
    ASSERT_TRUE(Eventually([&] { return DeviceTimes()[name] > 0; }));
  }
  void End(const std::string& name) {
    kill(processes_.at(name), SIGKILL);
    waitpid(processes_.at(name), nullptr, 0);
    processes_.erase(name);
  }

  std::map<std::string, double> DeviceTimes() const {
    std::map<std::string, double> times;
    const auto report = nlohmann::json::parse(server_.Ctl({"ps", "--json"}).output, nullptr, false);
    Collect(report, times);
    return times;
  }

  // Returns each client's share of the next 3 s of device time, by name. One second would be too
  // short, because on a busy machine one kernel may occupy the device for 20 ms, which is 2 % of a
  // second.
  std::map<std::string, double> NextShares() const {
    const std::map<std::string, double> before = DeviceTimes();
    std::map<std::string, double> shares;
    double total = 0;
    EXPECT_TRUE(Eventually(
        [&] {
          total = 0;
          for (const auto& [name, time] : DeviceTimes()) {
            const auto found = before.find(name);
            shares[name] = time - (found == before.end() ? 0 : found->second);
            total += shares[name];
          }
          return total >= 3;
        },
        std::chrono::seconds(120)));
    for (auto& [name, share] : shares) share /= total;
    return shares;
  }

  // Bounds of the shares of the next second (or a little more) of wall time. A snapshot is taken at
  // an unknown moment during its request, hence two bounds.
  struct Bounds {
    double least = 0, most = 0;
    // Lower bound for all clients together: the time that the machine gave the device.
    double all = 0;
  };
  Bounds NextShareOfTime(const std::string& name) const {
    using Clock = std::chrono::steady_clock;
    const auto seconds = [](Clock::duration span) {
      return std::chrono::duration<double>(span).count();
    };
    const auto asked_first = Clock::now();
    std::map<std::string, double> before = DeviceTimes();
    const auto told_first = Clock::now();
    std::this_thread::sleep_for(std::chrono::seconds(1));
    const auto asked_last = Clock::now();
    std::map<std::string, double> used = DeviceTimes();
    const auto told_last = Clock::now();
    double all = 0;
    for (auto& [each, time] : used) all += time -= before[each];
    const double longest = seconds(told_last - asked_first);
    return {used[name] / longest, used[name] / seconds(asked_last - told_first), all / longest};
  }
  void SetMaxShare(const std::string& name, const std::string& share) {
    const auto report = nlohmann::json::parse(server_.Ctl({"ps", "--json"}).output);
    for (const auto& row : report["clients"]) {
      if (row["name"] != name) continue;
      const std::string id = std::to_string(row["client"].get<std::uint64_t>());
      EXPECT_EQ(server_.Ctl({"client", "set", id, "--max-share", share}).exit_code, 0);
      const auto after = nlohmann::json::parse(server_.Ctl({"ps", "--json"}).output);
      for (const auto& changed : after["clients"]) {
        if (changed["name"] != name) continue;
        EXPECT_EQ(changed["max_share_percent"].get<double>(), std::stod(share));
      }
      return;
    }
    ADD_FAILURE() << "no client is called " << name;
  }

  ServerProcess server_;

 private:
  // Collects every object that has both a name and a device time.
  static void Collect(const nlohmann::json& value, std::map<std::string, double>& times) {
    if (value.is_object() && value.contains("name") && value.contains("device_time_s"))
      times[value["name"].get<std::string>()] = value["device_time_s"].get<double>();
    if (value.is_structured()) {
      for (const auto& each : value) Collect(each, times);
    }
  }

  std::map<std::string, pid_t> processes_;
};

class FixedShareOfProcesses : public ShareOfProcesses {
 protected:
  FixedShareOfProcesses()
      : ShareOfProcesses({"--policy", "fixed_share", "--client-max-share", "25%"}) {}
};

TEST_F(FixedShareOfProcesses, IsNotExceededOnIdleDevice) {
  Start("alone", 1);
  for (int window = 0; window < 3; ++window) {
    EXPECT_LE(NextShareOfTime("alone").least, 0.25 + 0.02 + 0.02) << "window " << window;
  }
  ClientOptions greedy;
  greedy.socket = server_.socket();
  greedy.max_share = 26.0;
  const Status rejected = Client::Connect(greedy).status();
  EXPECT_EQ(rejected.code(), StatusCode::kPermissionDenied);
  EXPECT_THAT(rejected.message(), ::testing::HasSubstr("asked for 26%"));
  EXPECT_THAT(rejected.message(), ::testing::HasSubstr("allows at most 25%"));
}

TEST_F(ShareOfProcesses, FollowsWeightsAndIsLentWhileUnused) {
  Start("one", 1);
  Start("three", 3);
  Start("six", 6);
  std::map<std::string, double> shares = NextShares();
  EXPECT_NEAR(shares["one"], 0.1, 0.02);
  EXPECT_NEAR(shares["three"], 0.3, 0.02);
  EXPECT_NEAR(shares["six"], 0.6, 0.02);

  End("six");
  ASSERT_TRUE(Eventually([&] { return !DeviceTimes().contains("six"); }));
  shares = NextShares();
  EXPECT_NEAR(shares["one"], 0.25, 0.02);

  // Clients are not compensated for time before they connected.
  Start("new_client", 4);
  shares = NextShares();
  EXPECT_NEAR(shares["one"], 0.125, 0.02);
  EXPECT_NEAR(shares["new_client"], 0.5, 0.02);
}

// On a busy machine a command may occupy the device for 20 ms, for which the cap compensates later.
// The machine may also run the device for less than half of the time, and then each client gets
// half of that.
TEST_F(ShareOfProcesses, CapHoldsAndCanBeChangedAtRunTime) {
  Start("capped", 1, 25.0);
  Start("free", 1);
  std::vector<double> missing;
  for (int window = 0; window < 7; ++window) {
    const Bounds share = NextShareOfTime("capped");
    EXPECT_LE(share.least, 0.25 + 0.02 + 0.02) << "window " << window;
    missing.push_back(std::min(0.25, share.all / 2) - share.most);
  }
  std::ranges::sort(missing);
  EXPECT_LE(missing[missing.size() / 2], 0.02 + 0.03);

  SetMaxShare("capped", "100%");
  EXPECT_NEAR(NextShares()["capped"], 0.5, 0.04) << "the cap was lifted";

  SetMaxShare("capped", "10%");
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_LE(NextShareOfTime("capped").least, 0.10 + 0.02 + 0.02);

  // The cap holds without a competitor, too, because unused time is not lent.
  End("free");
  ASSERT_TRUE(Eventually([&] { return !DeviceTimes().contains("free"); }));
  EXPECT_LE(NextShareOfTime("capped").least, 0.10 + 0.02 + 0.02);

  for (const char* share : {"0%", "101%", "nan%", "-5%", "25", "some"}) {
    const ProgramOutcome outcome = server_.Ctl({"client", "set", "1", "--max-share", share});
    EXPECT_NE(outcome.exit_code, 0) << share;
    EXPECT_NE(outcome.output.find("0.1% to 100%"), std::string::npos) << outcome.output;
  }
}

// The access rule's own cap applies, so an operator cannot set a higher one.
TEST(ShareUnderARule, RejectsMaxShareAboveRuleAndChangesNothing) {
  const ScratchDirectory directory;
  const std::string file = directory / "server.toml";
  std::ofstream(file) << "[[access]]\neveryone = true\nmax_share = \"25%\"\n";
  ServerProcess server({"--config", file});
  const Result<Client> client = Client::Connect({.name = "job", .socket = server.socket()});
  ASSERT_TRUE(client.ok()) << client.status().message();
  const auto row = [&] {
    return nlohmann::json::parse(server.Ctl({"ps", "--json"}).output)["clients"][0];
  };
  for (const char* share : {"50%", "100%", "25.1%"}) {
    const ProgramOutcome rejected =
        server.Ctl({"client", "set", "1", "--max-share", share, "--weight", "7"});
    EXPECT_EQ(rejected.exit_code, 1) << rejected.output;
    EXPECT_THAT(rejected.output, ::testing::HasSubstr(std::string("asked for ") + share));
    EXPECT_THAT(rejected.output, ::testing::HasSubstr("effective max_share is 25%"));
    EXPECT_EQ(row()["max_share_percent"], 25);
    EXPECT_EQ(row()["weight"], 1);
  }
  EXPECT_EQ(server.Ctl({"client", "set", "1", "--max-share", "10%"}).exit_code, 0);
  EXPECT_EQ(row()["max_share_percent"], 10);
  EXPECT_EQ(server.Ctl({"client", "set", "1", "--max-share", "25%"}).exit_code, 0);
  EXPECT_EQ(row()["max_share_percent"], 25);
}

// The server cannot distinguish a stopped worker from a virtual machine whose host takes its cores
// away.
TEST_F(ShareOfProcesses, ChargesNoClientWhileMachineIsStopped) {
  Start("stopped", 1);
  const pid_t worker = server_.workers().at(0);
  const auto start = std::chrono::steady_clock::now();
  const double before = DeviceTimes()["stopped"];
  for (int i = 0; i < 5; ++i) {
    kill(worker, SIGSTOP);
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    kill(worker, SIGCONT);
    ASSERT_TRUE(Eventually([&] { return DeviceTimes().contains("stopped"); }));
  }
  const double charged = DeviceTimes()["stopped"] - before;
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
  // Work that was running at the beginning is charged when it ends.
  EXPECT_LE(charged, passed.count() - 0.5);
  const auto status = nlohmann::json::parse(server_.Ctl({"status", "--json"}).output);
  EXPECT_GE(status["devices"][0]["host_steal_s"], 0.5);
  EXPECT_GT(status["devices"][0]["executor_bytes"], 0);
}

}  // namespace
}  // namespace gpushared::testing
