// SPDX-License-Identifier: Apache-2.0
// Gated programs over a modelled GPU that they share (shared_gpu.cpp), and a server that gives them
// turns: nothing is lost, whichever process dies, and launches during a capture are not marked.
#include <signal.h>
#include <sys/wait.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/read_file.h"
#include "tests/support/scratch_directory.h"
#include "tests/support/server_process.h"

#include <nlohmann/json.hpp>

namespace gpushared::testing {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using Words = std::vector<std::string>;
using nlohmann::json;

// The modelled GPU, and programs on it.
class Gpu {
 public:
  Words Command(const std::string& socket, const std::string& client_class, const Words& arguments,
                const Words& variables = {}) const {
    Words command = {"/usr/bin/env",
                     "SHARED_GPU=" + (directory_ / "gpu"),
                     "LD_LIBRARY_PATH=" GPUSHARED_DROP_IN_DIR ":" GPUSHARED_SHARED_GPU_DIR,
                     "GPUSHARED_MODE=gate",
                     "GPUSHARED_LOG=1",
                     "GPUSHARED_SOCKET=" + socket,
                     "GPUSHARED_CLASS=" + client_class};
    command.insert(command.end(), variables.begin(), variables.end());
    command.push_back(GPUSHARED_GATED_PROGRAM);
    command.insert(command.end(), arguments.begin(), arguments.end());
    return command;
  }
  std::string NewLog() { return directory_ / ("log" + std::to_string(++logs_)); }

 private:
  ScratchDirectory directory_;
  int logs_ = 0;
};

// A program that runs beside the test; killed at the end if it still runs.
class Background {
 public:
  Background(Gpu& gpu, const ServerProcess& server, const std::string& client_class,
             const Words& arguments, const Words& variables = {})
      : log_(gpu.NewLog()),
        pid_(StartProgram(gpu.Command(server.socket(), client_class, arguments, variables), log_)) {
  }
  ~Background() {
    if (pid_ <= 0) return;
    Signal(SIGCONT);
    Signal(SIGKILL);
    Await();
  }
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  void Signal(int signal) const { ::kill(pid_, signal); }
  pid_t pid() const { return pid_; }
  // Returns the exit code, or 128 + signal if a signal ended the program.
  int Await() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  std::string Log() const { return ReadFile(log_); }
  // The program's result, which is its last line.
  json Result() const {
    const std::string text = Log();
    const std::size_t begin = text.rfind('{');
    return begin == std::string::npos ? json() : json::parse(text.substr(begin), nullptr, false);
  }

 private:
  const std::string log_;
  pid_t pid_;
};

Words Train(int ms, int kernel_us = 50, const Words& more = {}) {
  Words words = {"train", "--ms", std::to_string(ms), "--kernel", std::to_string(kernel_us)};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}
Words Serve(int requests) {
  return {"serve", "--requests", std::to_string(requests), "--every", "4000"};
}

json Totals(const ServerProcess& server, const std::string& client_class, int device = 0) {
  const json status = json::parse(server.Ctl({"status", "--json"}).output);
  return status["devices"][device]["totals"]["classes"][client_class];
}
std::size_t CountClients(const ServerProcess& server) {
  const json clients = json::parse(server.Ctl({"ps", "--json"}).output, nullptr, false);
  return clients.is_discarded() ? 99 : clients["clients"].size();
}

TEST(GateSharing, HighClosesTheGateOfLowAndEveryLaunchIsCounted) {
  Gpu gpu;
  const ServerProcess server({"--device", "cpu:0", "--policy", "priority"});
  Background low(gpu, server, "low", Train(2000));
  Background high(gpu, server, "high", Serve(200));
  EXPECT_EQ(high.Await(), 0) << high.Log();
  EXPECT_EQ(low.Await(), 0) << low.Log();
  EXPECT_EQ(high.Result()["requests"], 200);
  ASSERT_TRUE(Eventually([&] { return CountClients(server) == 0; }));
  EXPECT_EQ(Totals(server, "high")["launches"], 2000);
  EXPECT_EQ(Totals(server, "low")["launches"], low.Result()["launches"]);
  EXPECT_GT(Totals(server, "low")["stops"], 50);
  EXPECT_EQ(Totals(server, "high")["stops"], 0);
}

TEST(GateSharing, BothGoOnUnderEveryPolicy) {
  for (const char* policy : {"fifo", "round_robin", "fair", "priority", "deadline"}) {
    Gpu gpu;
    const ServerProcess server({"--device", "cpu:0", "--policy", policy});
    Background one(gpu, server, "low", Train(800, 20)), two(gpu, server, "low", Train(800, 200));
    EXPECT_EQ(one.Await(), 0) << one.Log();
    EXPECT_EQ(two.Await(), 0) << two.Log();
    EXPECT_GT(one.Result()["launches"], 100) << policy;
    EXPECT_GT(two.Result()["launches"], 100) << policy;
  }
}

TEST(GateSharing, GraphsAndThreadsAreGatedAsOne) {
  Gpu gpu;
  const ServerProcess server({"--device", "cpu:0", "--policy", "priority"});
  Background high(gpu, server, "high", Serve(150));
  Background graphs(gpu, server, "low", Train(700, 20, {"--graph", "20"}));
  Background threads(gpu, server, "low", Train(700, 20, {"--threads", "4"}));
  EXPECT_EQ(graphs.Await(), 0) << graphs.Log();
  EXPECT_EQ(threads.Await(), 0) << threads.Log();
  EXPECT_EQ(high.Await(), 0) << high.Log();
  ASSERT_TRUE(Eventually([&] { return CountClients(server) == 0; }));
  EXPECT_EQ(Totals(server, "low")["launches"],
            graphs.Result()["launches"].get<int>() + threads.Result()["launches"].get<int>());
}

// A client of the other class runs at the same time, so that gates are closed and windows apply.
TEST(GateSharing, TrapsAreAvoided) {
  for (const char* trap : {"capture", "context", "fork", "stall", "streams", "threads"}) {
    for (const char* client_class : {"low", "high"}) {
      Gpu gpu;
      const ServerProcess server({"--device", "cpu:0", "--policy", "priority"});
      const bool is_low = std::string(client_class) == "low";
      Background other(gpu, server, is_low ? "high" : "low", is_low ? Serve(5000) : Train(20'000));
      ASSERT_TRUE(Eventually([&] { return CountClients(server) == 1; }));
      Background trapped(gpu, server, client_class, {"traps", trap});
      EXPECT_EQ(trapped.Await(), 0) << trap << ' ' << client_class << ": " << trapped.Log();
    }
  }
}

TEST(GateSharing, EveryFormOfALaunchIsCounted) {
  for (const char* client_class : {"low", "high"}) {
    Gpu gpu;
    const ServerProcess server({"--device", "cpu:0", "--policy", "priority"});
    Background forms(gpu, server, client_class, {"traps", "forms"});
    EXPECT_EQ(forms.Await(), 0) << forms.Log();
    ASSERT_TRUE(Eventually([&] { return CountClients(server) == 0; }));
    EXPECT_EQ(Totals(server, client_class)["launches"], 80);
  }
}

TEST(GateSharing, ExplanationsAndTracesNameTheLongestKernelOfATurn) {
  Gpu gpu;
  const ServerProcess server({"--device", "cpu:0", "--policy", "priority"});
  Background low(gpu, server, "low", Train(20'000, 3000));
  ASSERT_TRUE(Eventually([&] { return CountClients(server) == 1; }));
  Background high(gpu, server, "high", Serve(5000));
  ASSERT_TRUE(Eventually([&] {
    const std::string output = server.Ctl({"explain", "2"}).output;
    return output.find(", longest 'kernel' 3") != std::string::npos;
  })) << server.Ctl({"explain", "2"}).output;
  const ScratchDirectory directory;
  const std::string trace = directory / "trace.json";
  const ProgramOutcome recorded = server.Ctl({"trace", "--out", trace, "--seconds", "0.5"});
  EXPECT_EQ(recorded.exit_code, 0) << recorded.output;
  EXPECT_THAT(ReadFile(trace), ContainsRegex("turn of [0-9]+ launches, longest 'kernel'"));
}

TEST(GateSharing, GatedProgramIsNotParked) {
  Gpu gpu;
  const ServerProcess server({"--device", "cpu:0", "--overcommit", "64MiB", "--idle-after", "1s"});
  const Background low(gpu, server, "low", Train(20'000));
  ASSERT_TRUE(Eventually([&] { return CountClients(server) == 1; }));
  const ProgramOutcome rejected = server.Ctl({"park", "1", "--hold"});
  EXPECT_EQ(rejected.exit_code, 1);
  EXPECT_THAT(rejected.output, HasSubstr("in gate mode its memory belongs to the driver"));
}

TEST(GateSharing, LargeCopiesAreCounted) {
  Gpu gpu;
  const ServerProcess server({"--device", "cpu:0", "--policy", "priority"});
  Background copies(gpu, server, "low", {"traps", "copies"});
  EXPECT_EQ(copies.Await(), 0) << copies.Log();
  ASSERT_TRUE(Eventually([&] { return CountClients(server) == 0; }));
  EXPECT_EQ(Totals(server, "low")["launches"], 30);
}

TEST(GateSharing, EachGpuOfAProgramHasItsOwnTurns) {
  Gpu gpu;
  const ServerProcess server({"--device", "cpu:0,cpu:1", "--policy", "priority"});
  const Words two_gpus = {"SHARED_GPU_COUNT=2"};
  Background high(gpu, server, "high", Serve(5000), two_gpus);
  ASSERT_TRUE(Eventually([&] { return CountClients(server) == 1; }));
  Background low(gpu, server, "low", {"traps", "gpus"}, two_gpus);
  EXPECT_EQ(low.Await(), 0) << low.Log();
  ASSERT_TRUE(Eventually([&] { return CountClients(server) == 1; }));
  EXPECT_EQ(Totals(server, "low", 0)["launches"], 300);
  EXPECT_EQ(Totals(server, "low", 1)["launches"], 600);
  // The high client is on the other GPU.
  EXPECT_GT(Totals(server, "low", 0)["stops"], 0);
  EXPECT_EQ(Totals(server, "low", 1)["stops"], 0);
}

TEST(GateSharing, GpuThatTheServerDoesNotServeIsNotGated) {
  Gpu gpu;
  const ServerProcess server({"--device", "cpu:0", "--policy", "priority"});
  const Words two_gpus = {"SHARED_GPU_COUNT=2"};
  Background program(gpu, server, "low", {"traps", "gpus"}, two_gpus);
  EXPECT_EQ(program.Await(), 0) << program.Log();
  EXPECT_THAT(program.Log(), HasSubstr("runs on GPU 1 without a server until one answers: the "
                                       "server does not serve GPU 1 (GPU-"));
  EXPECT_EQ(Totals(server, "low")["launches"], 300);
  Background needy(gpu, server, "low", {"traps", "gpus"},
                   {"SHARED_GPU_COUNT=2", "GPUSHARED_FALLBACK=none"});
  EXPECT_EQ(needy.Await(), 1);
  EXPECT_EQ(needy.Result()["failed"], "cuLaunchKernel") << needy.Log();
  EXPECT_EQ(needy.Result()["code"], 101);
}

// ---- death, hang, loss

TEST(GateSharing, KilledClientsLeaveNothingBehind) {
  const char* const wanted = std::getenv("GPUSHARED_KILLS");
  const int kills = wanted == nullptr ? 24 : std::atoi(wanted) / 10;
  Gpu gpu;
  const ServerProcess server({"--device", "cpu:0", "--policy", "priority"});
  Background survivor(gpu, server, "low", Train(600'000));
  ASSERT_TRUE(Eventually([&] { return CountClients(server) == 1; }));
  const pid_t worker = server.workers().at(0);
  std::size_t descriptors = 0;
  for (int i = 0; i < kills; ++i) {
    const bool serves = i % 2 == 0;
    Background victim(gpu, server, i % 3 == 0 ? "low" : "high",
                      serves ? Serve(5000) : Train(60'000));
    ASSERT_TRUE(Eventually([&] { return CountClients(server) == 2; }));
    std::this_thread::sleep_for(std::chrono::milliseconds(i * 7 % 30));
    victim.Signal(SIGKILL);
    victim.Await();
    ASSERT_TRUE(Eventually([&] { return CountClients(server) == 1; })) << i;
    if (i == 1) descriptors = OpenFileDescriptors(worker);
  }
  EXPECT_EQ(OpenFileDescriptors(worker), descriptors);
  const std::uint64_t before = Totals(server, "low")["launches"];
  EXPECT_TRUE(Eventually([&] { return Totals(server, "low")["launches"] > before; }))
      << "the survivor goes on";
}

TEST(GateSharing, StoppedHighClientDoesNotKeepTheGateClosed) {
  Gpu gpu;
  const ServerProcess server({"--device", "cpu:0", "--policy", "priority"});
  Background low(gpu, server, "low", Train(600'000));
  Background high(gpu, server, "high", Serve(100'000));
  ASSERT_TRUE(Eventually([&] { return CountClients(server) == 2; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  high.Signal(SIGUSR1);
  const std::uint64_t before = Totals(server, "low")["launches"];
  EXPECT_TRUE(Eventually([&] { return Totals(server, "low")["launches"] > before + 2000; }));
}

TEST(GateSharing, StoppedLowClientDoesNotKeepTheTurn) {
  Gpu gpu;
  const ServerProcess server({"--device", "cpu:0", "--policy", "round_robin"});
  Background one(gpu, server, "low", Train(600'000)), two(gpu, server, "low", Train(600'000));
  ASSERT_TRUE(Eventually([&] { return CountClients(server) == 2; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  one.Signal(SIGSTOP);
  const std::uint64_t before = Totals(server, "low")["launches"];
  EXPECT_TRUE(Eventually([&] { return Totals(server, "low")["launches"] > before + 2000; }));
}

TEST(GateSharing, ProgramsSurviveTheServerAndFindTheNextOne) {
  Gpu gpu;
  ServerProcess server({"--device", "cpu:0", "--policy", "priority"});
  Background low(gpu, server, "low", Train(6000)), high(gpu, server, "high", Serve(1500));
  ASSERT_TRUE(Eventually([&] { return CountClients(server) == 2; }));
  const std::vector<pid_t> workers = server.workers();
  server.Crash();
  for (const pid_t worker : workers) ::kill(worker, SIGKILL);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  server.StartAgain();
  EXPECT_TRUE(Eventually([&] { return CountClients(server) == 2; }));
  EXPECT_EQ(low.Await(), 0) << low.Log();
  EXPECT_EQ(high.Await(), 0) << high.Log();
  EXPECT_THAT(low.Log(), HasSubstr("this program goes on without a server until one answers"));
}

TEST(GateSharing, ProgramThatNeedsItsServerFailsWithIt) {
  Gpu gpu;
  ServerProcess server({"--device", "cpu:0", "--policy", "priority"});
  Background low(gpu, server, "low", Train(600'000), {"GPUSHARED_FALLBACK=none"});
  ASSERT_TRUE(Eventually([&] { return CountClients(server) == 1; }));
  const std::vector<pid_t> workers = server.workers();
  server.Crash();
  for (const pid_t worker : workers) ::kill(worker, SIGKILL);
  EXPECT_EQ(low.Await(), 1);
  EXPECT_EQ(low.Result()["failed"], "cuLaunchKernel") << low.Log();
  EXPECT_EQ(low.Result()["code"], 810);
  // The program does not start without a server, either.
  Background again(gpu, server, "low", Train(100), {"GPUSHARED_FALLBACK=none"});
  EXPECT_EQ(again.Await(), 1);
  EXPECT_EQ(again.Result()["failed"], "cuInit");
  EXPECT_EQ(again.Result()["code"], 805);
}

TEST(GateSharing, WithoutAServerProgramsRunAndSaySo) {
  Gpu gpu;
  ServerProcess server({"--device", "cpu:0"});
  server.Signal(SIGTERM);
  ASSERT_EQ(server.WaitForExit(), 0);
  Background low(gpu, server, "low", Train(200));
  EXPECT_EQ(low.Await(), 0) << low.Log();
  EXPECT_THAT(low.Log(), HasSubstr("runs without a server until one answers"));
}

}  // namespace
}  // namespace gpushared::testing
