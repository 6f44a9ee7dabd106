// SPDX-License-Identifier: Apache-2.0
// Device time follows weights between real processes.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "gpushared/client.h"

#include "tests/support/server_process.h"

#include <nlohmann/json.hpp>

namespace gpushared::testing {
namespace {

// Never returns: the parent ends it.
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
  // Up to two batches are queued: it has work even when this process is kept from running.
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
  ~ShareOfProcesses() override {
    while (!processes_.empty()) End(processes_.begin()->first);
  }

  void Start(const std::string& name, std::uint32_t weight) {
    ClientOptions options;
    options.socket = server_.socket();
    options.name = name;
    options.weight = weight;
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

  // Of the next 3 s of device time, by name: on a busy machine one kernel may hold the device for
  // 20 ms, which is 2 points of one second.
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

  ServerProcess server_{{"--policy", "fair"}};

 private:
  // Every object that has both a name and a device time.
  static void Collect(const nlohmann::json& value, std::map<std::string, double>& times) {
    if (value.is_object() && value.contains("name") && value.contains("device_time_s"))
      times[value["name"].get<std::string>()] = value["device_time_s"].get<double>();
    if (value.is_structured()) {
      for (const auto& each : value) Collect(each, times);
    }
  }

  std::map<std::string, pid_t> processes_;
};

TEST_F(ShareOfProcesses, FollowsWeightsAndIsLentAndTakenBack) {
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

  // Nobody is paid for the time before.
  Start("newcomer", 4);
  shares = NextShares();
  EXPECT_NEAR(shares["one"], 0.125, 0.02);
  EXPECT_NEAR(shares["newcomer"], 0.5, 0.02);
}

// The same to the server as a virtual machine whose host gives its cores to another.
TEST_F(ShareOfProcesses, AStopOfTheMachineIsChargedToNobody) {
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
  // Work that ran when this began is charged when it ends.
  EXPECT_LE(charged, passed.count() - 0.5);
  const auto status = nlohmann::json::parse(server_.Ctl({"status", "--json"}).output);
  EXPECT_GE(status["devices"][0]["host_delay_s"], 0.5);
  EXPECT_GT(status["devices"][0]["executor_bytes"], 0);
}

}  // namespace
}  // namespace gpushared::testing
