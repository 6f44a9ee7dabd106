// SPDX-License-Identifier: Apache-2.0
// Clients of a real server that are moved between two cpu devices while they compute, and while
// workers, brokers and clients are killed. GPUSHARED_MOVES=N moves N times where clients are moved
// at random.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gpushared/client.h"

#include "server/telemetry/admin/ask.h"
#include "tests/support/server_process.h"
#include "tests/system/memory_case.h"

#include <nlohmann/json.hpp>

namespace gpushared::testing {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using ::testing::HasSubstr;

std::uint64_t Moves(std::uint64_t otherwise) {
  const char* const asked = std::getenv("GPUSHARED_MOVES");
  return asked == nullptr ? otherwise : std::strtoull(asked, nullptr, 10);
}

class Moving : public ::testing::Test {
 protected:
  explicit Moving(const std::vector<std::string>& options = {}) : server_(Arguments(options)) {}

  static std::vector<std::string> Arguments(const std::vector<std::string>& options) {
    std::vector<std::string> all = {"--device", "cpu:0,cpu:1", "--memory", "256MiB"};
    all.insert(all.end(), options.begin(), options.end());
    return all;
  }
  ServerProcess& server() { return server_; }
  Result<Client> TryConnect(const std::string& name, const std::string& device = "cpu:0") {
    ClientOptions options;
    options.socket = server_.socket();
    options.name = name;
    options.device = device;
    options.memory_bytes = 64 << 20;
    return Client::Connect(options);
  }
  Client Connect(const std::string& name) {
    Result<Client> client = TryConnect(name);
    EXPECT_TRUE(client.ok()) << client.status().ToString();
    return *std::move(client);
  }
  json Rows() {
    const Result<json> all = admin::Ask(server_.socket(), {.verb = ipc::AdminVerb::kClients});
    return all.ok() ? all->value("clients", json::array()) : json::array();
  }
  json Row(const std::string& name) {
    for (const json& row : Rows()) {
      if (row["name"] == name) return row;
    }
    return {};
  }
  Result<json> Move(std::uint64_t client, const std::string& to) {
    return admin::Ask(server_.socket(),
                      {.verb = ipc::AdminVerb::kMove, .client = client, .terms = to});
  }
  // Moves the client to the other device.
  Result<json> MoveOver(const std::string& name) {
    const json row = Row(name);
    if (!row.is_object()) return Status(StatusCode::kNotFound, "the client has left");
    return Move(row["client"].get<std::uint64_t>(), row["device"] == "cpu:0" ? "cpu:1" : "cpu:0");
  }
  void ExpectNothingLeft() {
    EXPECT_TRUE(Eventually([&] { return Rows().empty(); })) << Rows().dump();
    EXPECT_TRUE(Eventually([&] {
      const Result<json> all = admin::Ask(server_.socket(), {.verb = ipc::AdminVerb::kDevices});
      if (!all.ok()) return false;
      for (const json& device : (*all)["devices"]) {
        if (device.value("state", "") != "ready" || device.value("sessions", 0) != 0) return false;
      }
      return true;
    })) << server_.Log();
  }
  // A process whose client computes until it is killed.
  pid_t StartDoomed() {
    const pid_t child = fork();
    if (child != 0) return child;
    const Result<Client> client = TryConnect("doomed");
    if (!client.ok()) _exit(1);
    Numbers numbers(*client, 8 << 20);
    for (std::size_t round = 0;; ++round) (void)numbers.Step(round);
  }

 private:
  ServerProcess server_;
};

TEST_F(Moving, KeepsMemoryModulesStreamsAndCounters) {
  const Client client = Connect("moves");
  Numbers numbers(client, 12 << 20);
  const Module module = client.LoadModuleFile(GPUSHARED_SYSTEM_KERNELS).value();
  const Kernel bump = *module.GetKernel("bump_module_counter");
  const DeviceBuffer counter = client.AllocateDevice(4).value();
  const Stream other = client.CreateStream().value();
  const auto count = [&] {
    std::uint32_t value = 0;
    EXPECT_TRUE(other.Launch(bump, {.grid = {1}, .block = {1}}, counter).ok());
    EXPECT_TRUE(other.CopyToHost(&value, counter, sizeof value).ok());
    return value;
  };
  ASSERT_TRUE(numbers.Step(0).ok());
  EXPECT_EQ(count(), 7u);
  const std::uint64_t launches = Row("moves")["launches"];

  const ProgramOutcome moved = server().Ctl({"move", "moves", "--to", "cpu:1"});
  ASSERT_EQ(moved.exit_code, 0) << moved.output << server().Log();
  EXPECT_THAT(moved.output, HasSubstr("from cpu:0 to cpu:1"));
  EXPECT_THAT(moved.output, HasSubstr("it was stopped for "));
  EXPECT_EQ(Row("moves")["device"], "cpu:1");
  EXPECT_EQ(Row("moves")["launches"], launches);

  EXPECT_EQ(count(), 8u);
  ASSERT_TRUE(numbers.Step(1).ok());
  EXPECT_TRUE(numbers.AreRight());
  // New objects, too.
  const DeviceBuffer more = client.AllocateDevice(4 << 20).value();
  EXPECT_TRUE(client.LoadModuleFile(GPUSHARED_SYSTEM_KERNELS).ok());
  ASSERT_TRUE(MoveOver("moves").ok());
  EXPECT_EQ(count(), 9u);
  EXPECT_TRUE(numbers.AreRight());
}

TEST_F(Moving, DoesNotChangeResultsOfClientsThatCompute) {
  const std::uint64_t moves = Moves(40);
  std::atomic<bool> is_over{false};
  std::vector<std::thread> clients;
  for (const std::string name : {"one", "two", "three"}) {
    clients.emplace_back([&, name] {
      const Client client = Connect(name);
      Numbers numbers(client, 6 << 20);
      std::vector<Stream> streams;
      for (int i = 0; i < 3; ++i) streams.push_back(client.CreateStream().value());
      for (std::size_t round = 0; !is_over; ++round) {
        // In one stream of several at a time, because the order of the kernels matters.
        const Stream& stream = streams[round % streams.size()];
        for (std::size_t i = 0; i < 5; ++i) {
          const Status launched = numbers.Launch(stream, round * 5 + i);
          ASSERT_TRUE(launched.ok()) << launched.ToString();
        }
        const Status done = stream.Synchronize();
        ASSERT_TRUE(done.ok()) << done.ToString() << server().Log();
        if (round % 64 == 0) {
          ASSERT_TRUE(numbers.AreRight()) << "round " << round;
        }
        if (round % 7 == 0) std::this_thread::sleep_for(2ms);
      }
      EXPECT_TRUE(numbers.AreRight());
    });
  }
  ASSERT_TRUE(Eventually([&] { return Rows().size() == 3; }));
  std::mt19937 random(7);
  const char* const names[] = {"one", "two", "three"};
  std::uint64_t done = 0;
  for (std::uint64_t tries = 0; done < moves && tries < 4 * moves; ++tries) {
    const Result<json> moved = MoveOver(names[random() % 3]);
    if (moved.ok()) ++done;
    // A session that has just left may not have been freed there yet.
    if (!moved.ok()) {
      EXPECT_EQ(moved.status().code(), StatusCode::kNotReady) << moved.status().ToString();
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 5000));
  }
  EXPECT_EQ(done, moves);
  is_over = true;
  for (std::thread& each : clients) each.join();
  ExpectNothingLeft();
}

TEST_F(Moving, RejectsByNameWhatCannotBeMoved) {
  const Client client = Connect("fixed");
  Numbers numbers(client, 4 << 20);
  const std::uint64_t id = Row("fixed")["client"];
  EXPECT_THAT(Move(id, "cpu:0").status().message(), HasSubstr("it is on device cpu:0"));
  EXPECT_EQ(Move(id, "cpu:7").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(Move(id + 1, "cpu:1").status().code(), StatusCode::kNotFound);
  {
    const Stream recorder = client.CreateRecorder().value();
    ASSERT_TRUE(numbers.Launch(recorder, 0).ok());
    const Graph graph = recorder.MakeGraph().value();
    ASSERT_TRUE(graph.Launch(client.default_stream()).ok());
    const Result<json> moved = Move(id, "cpu:1");
    EXPECT_EQ(moved.status().code(), StatusCode::kUnsupported);
    EXPECT_THAT(moved.status().message(), HasSubstr("it has graphs"));
    EXPECT_EQ(Row("fixed")["device"], "cpu:0");
    ASSERT_TRUE(client.default_stream().Synchronize().ok());
  }
  ASSERT_TRUE(server().Ctl({"drain", "cpu:1"}).exit_code == 0);
  EXPECT_THAT(Move(id, "cpu:1").status().message(), HasSubstr("cpu:1 is "));
  EXPECT_TRUE(numbers.AreRight());
}

// Kills one of the processes at random moments of moves.
class MovingAndDying : public Moving {
 protected:
  template <typename Kill>
  void Run(std::uint64_t times, Kill kill) {
    std::mt19937 random(11);
    for (std::uint64_t i = 0; i < times; ++i) {
      Result<Client> client = Status(StatusCode::kUnavailable, "");
      ASSERT_TRUE(Eventually([&] {
        client = TryConnect("moves");
        return client.ok();
      })) << client.status().ToString();
      Numbers numbers(*client, 8 << 20);
      ASSERT_TRUE(numbers.Step(0).ok());
      std::thread mover([&] { (void)MoveOver("moves"); });
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 15000));
      kill(i);
      mover.join();
      Status status;
      for (std::size_t round = 1; status.ok() && round < 50; ++round) status = numbers.Step(round);
      const json row = Row("moves");
      if (status.ok()) {
        ++survived_;
        EXPECT_TRUE(numbers.AreRight());
        EXPECT_TRUE(row.is_object()) << "a client that computes is unknown";
      } else {
        EXPECT_EQ(status.code(), StatusCode::kDeviceLost) << status.ToString();
      }
    }
  }
  pid_t WorkerOf(const std::string& device) {
    const Result<json> all = admin::Ask(server().socket(), {.verb = ipc::AdminVerb::kDevices});
    if (!all.ok()) return -1;
    for (const json& each : (*all)["devices"]) {
      if (each.value("device", "") == device) return each.value("worker_pid", -1);
    }
    return -1;
  }
  std::uint64_t survived_ = 0;
};

TEST_F(MovingAndDying, ClientsSurviveTheDeathOfTheTargetUnlessTheyHadArrived) {
  Run(Moves(8), [&](std::uint64_t) {
    const pid_t target = WorkerOf("cpu:1");
    if (target > 0) (void)::kill(target, SIGKILL);
  });
  ExpectNothingLeft();
}

TEST_F(MovingAndDying, ClientsSurviveTheDeathOfTheSourceIfTheyHadArrived) {
  Run(Moves(8), [&](std::uint64_t) {
    const pid_t source = WorkerOf("cpu:0");
    if (source > 0) (void)::kill(source, SIGKILL);
  });
  ExpectNothingLeft();
}

TEST_F(MovingAndDying, ClientsSurviveTheDeathOfTheBroker) {
  const std::uint64_t times = Moves(8);
  Run(times, [&](std::uint64_t) {
    server().Crash();
    server().StartAgain();
  });
  EXPECT_EQ(survived_, times);
  ExpectNothingLeft();
}

TEST_F(MovingAndDying, NothingIsLeftOfClientsThatDie) {
  std::mt19937 random(5);
  for (std::uint64_t i = 0; i < Moves(8); ++i) {
    const pid_t child = StartDoomed();
    ASSERT_GT(child, 0);
    ASSERT_TRUE(Eventually([&] {
      const json row = Row("doomed");
      return row.is_object() && row.value("launches", 0) > 0;
    }));
    std::thread mover([&] { (void)MoveOver("doomed"); });
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 15000));
    (void)::kill(child, SIGKILL);
    (void)::waitpid(child, nullptr, 0);
    mover.join();
    EXPECT_TRUE(Eventually([&] { return Rows().empty(); })) << Rows().dump();
  }
  ExpectNothingLeft();
}

}  // namespace
}  // namespace gpushared::testing
