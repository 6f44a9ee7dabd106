// SPDX-License-Identifier: Apache-2.0
// Clients of a real server that are parked and woken while they compute, idle and die.
// GPUSHARED_PARKINGS=N sets the number of random parkings, and of cells that notebooks run.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gpushared/client.h"

#include "server/telemetry/admin/ask.h"
#include "tests/support/read_file.h"
#include "tests/support/server_process.h"
#include "tests/system/memory_case.h"

#include <nlohmann/json.hpp>

namespace gpushared::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;
using Words = std::vector<std::string>;
using nlohmann::json;

std::uint64_t Parkings(std::uint64_t otherwise) {
  const char* const asked = std::getenv("GPUSHARED_PARKINGS");
  return asked == nullptr ? otherwise : std::strtoull(asked, nullptr, 10);
}

// `guarantee`: each client's part of the device of 64 MiB.
class Parking : public MemoryBeyondTheDevice {
 protected:
  explicit Parking(const std::string& guarantee = "20%", const Words& options = {},
                   const std::string& overcommit = "512MiB", const std::string& gpu_memory = "")
      : MemoryBeyondTheDevice(overcommit, gpu_memory, "60%", "", guarantee, options) {}

  Result<json> Ask(ipc::AdminVerb verb, std::uint64_t client, bool is_held = false) const {
    return admin::Ask(server().socket(),
                      {.verb = verb, .client = client, .request = is_held ? std::uint64_t{1} : 0});
  }
  // Parks a client, which must become idle unless `is_held`, and waits until none of its memory is
  // resident.
  void Park(const std::string& name, bool is_held = false) {
    const std::uint64_t client = Figure(name, "client");
    Result<json> parked = Ask(ipc::AdminVerb::kPark, client, is_held);
    EXPECT_TRUE(Eventually([&] {  // Its last command may have ended just now.
      if (!parked.ok()) parked = Ask(ipc::AdminVerb::kPark, client, is_held);
      return parked.ok();
    })) << parked.status().ToString();
    EXPECT_TRUE(Eventually([&] { return Figure(name, "resident_bytes") == 0; }));
  }
  void Wake(const std::string& name) {
    const Result<json> woken = Ask(ipc::AdminVerb::kWake, Figure(name, "client"));
    EXPECT_TRUE(woken.ok()) << woken.status().ToString();
  }
  // Starts a process whose client computes until the process is killed. The caller reaps the
  // process.
  pid_t StartDoomed(std::size_t bytes) {
    const pid_t child = fork();
    if (child != 0) return child;
    ClientOptions options;
    options.socket = server().socket();
    options.name = "doomed";
    options.scheduling_class = SchedulingClass::kLow;
    const Result<Client> client = Client::Connect(options);
    if (!client.ok()) _exit(1);
    Numbers numbers(*client, bytes);
    for (std::size_t round = 0;; ++round) (void)numbers.Step(round);
  }
  void ParkAtRandom();
};

TEST_F(Parking, OfAnIdleClientFreesItsGuaranteeUntilItsNextCommand) {
  const Client client = Connect("idle"), other = Connect("other");
  Numbers numbers(client, 12 * kMebi);
  ASSERT_TRUE(numbers.Step(0).ok());
  const auto parked = server().Ctl({"park", "idle"});
  ASSERT_EQ(parked.exit_code, 0) << parked.output;
  EXPECT_THAT(parked.output, HasSubstr("12.0 MiB"));
  EXPECT_THAT(parked.output, HasSubstr("its next command wakes it"));
  EXPECT_TRUE(Eventually([&] { return Figure("idle", "resident_bytes") == 0; }));
  EXPECT_EQ(Row("idle")["state"], "idle");
  EXPECT_EQ(InStore("used_bytes"), 12 * kMebi);
  EXPECT_EQ(InStore("parked"), 1u);
  ASSERT_TRUE(numbers.Step(1).ok());
  EXPECT_TRUE(numbers.AreRight());
  EXPECT_EQ(Row("idle")["state"], "running");
  EXPECT_EQ(Figure("idle", "wakes"), 1u);
  EXPECT_EQ(InStore("wakes"), 1u);
  EXPECT_EQ(InStore("reserved_bytes"), 0u);
}

TEST_F(Parking, PrintsThePromisedWakeAndCountsWhetherItWasKept) {
  const Client client = Connect("idle");
  Numbers numbers(client, 12 * kMebi);
  Park("idle");
  ASSERT_TRUE(numbers.Step(0).ok());
  Park("idle");
  Wake("idle");
  ASSERT_TRUE(Eventually([&] { return Figure("idle", "wakes") == 2; }));
  const auto parked = server().Ctl({"park", "idle", "--hold"});
  EXPECT_THAT(parked.output, HasSubstr("a wake takes at most "));
  EXPECT_THAT(parked.output, HasSubstr("its commands wait"));
  ASSERT_TRUE(Eventually([&] { return Figure("idle", "resident_bytes") == 0; }));
  EXPECT_GT(Row("idle")["promised_wake_s"], 0.0);
  EXPECT_EQ(Row("idle")["state"], "parked");
  const auto woken = server().Ctl({"wake", "idle"});
  EXPECT_THAT(woken.output, HasSubstr("returns to the device"));
  ASSERT_TRUE(Eventually([&] { return Figure("idle", "wakes") == 3; }));
  const json row = Row("idle");
  EXPECT_EQ(row["wakes_promised"], 3);
  EXPECT_EQ(row["wakes_in_time"].get<int>() == 3,
            InStore("wakes_in_time") == InStore("wakes_promised"));
  const auto again = server().Ctl({"wake", "idle"});
  EXPECT_EQ(again.exit_code, 1);
  EXPECT_THAT(again.output, HasSubstr("is not parked"));
}

TEST_F(Parking, OfABusyClientNeedsHoldAndLosesNothing) {
  const Client client = Connect("busy");
  Numbers numbers(client, 12 * kMebi);
  std::atomic<bool> is_over = false;
  std::atomic<std::size_t> rounds = 0;
  std::thread computes([&] {
    const Stream stream = client.default_stream();
    while (!is_over) {
      // Many commands at a time, so that the client has one whenever it is parked.
      for (int i = 0; i < 50; ++i) EXPECT_TRUE(numbers.Launch(stream, rounds++).ok());
      EXPECT_TRUE(stream.Synchronize().ok());
    }
  });
  ASSERT_TRUE(Eventually([&] { return rounds > 100; }));
  EXPECT_TRUE(Eventually([&] {
    const auto rejected = server().Ctl({"park", "busy"});
    if (rejected.exit_code == 0) return false;  // Parked between two of its commands.
    EXPECT_THAT(rejected.output, HasSubstr("is busy"));
    EXPECT_THAT(rejected.output, HasSubstr("--hold"));
    return true;
  }));
  Park("busy", /*is_held=*/true);
  const std::size_t then = rounds;
  std::this_thread::sleep_for(100ms);
  EXPECT_LE(rounds, then + 50);
  EXPECT_EQ(Figure("busy", "resident_bytes"), 0u);
  Wake("busy");
  EXPECT_TRUE(Eventually([&] { return rounds > then + 100; }));
  is_over = true;
  computes.join();
  EXPECT_TRUE(numbers.AreRight());
}

TEST_F(Parking, ExplainReportsTheWakeForARequest) {
  const Client client = Connect("asks");
  Numbers numbers(client, 12 * kMebi);
  Park("asks");
  ASSERT_TRUE(numbers.Step(0).ok());
  ASSERT_TRUE(client.Synchronize().ok());
  const auto explain = [&](std::uint64_t request) {
    const auto answer = server().Ctl({"explain", "--json", "asks", std::to_string(request)});
    return json::parse(answer.output, nullptr, false);
  };
  const std::uint64_t last = explain(0)["requests_known"]["last"];
  const json request = explain(last);
  ASSERT_TRUE(request.contains("memory")) << request;
  EXPECT_EQ(request["memory"]["wakes"], 1) << request;
  EXPECT_EQ(request["memory"]["swapped_in_bytes"], 12 * kMebi);
  const auto told = server().Ctl({"explain", "asks", std::to_string(last)});
  EXPECT_THAT(told.output, HasSubstr("its own swapped in; it was parked"));
}

// Parks and wakes clients at random, within and beyond their guarantees, while they compute with
// launches, graphs and copies.
void Parking::ParkAtRandom() {
  struct Computing {
    std::string name;
    std::size_t bytes;
    std::uint64_t id = 0;
  };
  std::vector<Computing> all = {
      {"one", 12 * kMebi}, {"two", 12 * kMebi}, {"three", 34 * kMebi}, {"four", 6 * kMebi}};
  std::atomic<bool> is_over = false;
  std::atomic<std::size_t> ready = 0, right = 0;
  std::vector<std::thread> threads;
  for (const Computing& each : all) {
    threads.emplace_back([&, each] {
      const Client client = Connect(each.name);
      Numbers numbers(client, each.bytes);
      ++ready;
      std::mt19937 random(static_cast<std::uint32_t>(each.bytes));
      for (std::size_t round = 0; !is_over; round += 2) {
        const bool is_graph = random() % 2 == 0;
        const Status done = is_graph ? numbers.StepInGraph(round) : numbers.Step(round);
        ASSERT_TRUE(done.ok()) << done.ToString();
        if (random() % 16 == 0) {
          ASSERT_TRUE(numbers.AreRight());
        }
        if (random() % 4 == 0)
          std::this_thread::sleep_for(std::chrono::milliseconds(random() % 20));
      }
      right += numbers.AreRight();
    });
  }
  ASSERT_TRUE(Eventually([&] { return ready == all.size(); }));
  for (Computing& each : all) each.id = Figure(each.name, "client");
  std::mt19937 random(1);
  const std::uint64_t parkings = Parkings(40);
  for (std::uint64_t parked = 0; parked < parkings;) {
    const Computing& each = all[random() % all.size()];
    const bool is_held = random() % 2 == 0;
    parked += Ask(ipc::AdminVerb::kPark, each.id, is_held).ok();
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 12));
    for (const Computing& other : all) {
      if (random() % 2 == 0) (void)Ask(ipc::AdminVerb::kWake, other.id);
    }
  }
  is_over = true;
  for (const Computing& each : all) (void)Ask(ipc::AdminVerb::kWake, each.id);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, all.size());
  std::printf("%llu parkings, %llu wakes, of %llu promised %llu in time\n",
              static_cast<unsigned long long>(parkings),
              static_cast<unsigned long long>(InStore("wakes")),
              static_cast<unsigned long long>(InStore("wakes_promised")),
              static_cast<unsigned long long>(InStore("wakes_in_time")));
  EXPECT_GT(InStore("wakes"), 0u);
  EXPECT_TRUE(Eventually([&] { return InStore("reserved_bytes") == 0; }));
  EXPECT_EQ(InStore("used_bytes"), 0u);
}

TEST_F(Parking, AtRandomLosesNothing) { ParkAtRandom(); }

class ParkingOfAGpu : public Parking {
 protected:
  ParkingOfAGpu() : Parking("20%", {}, "512MiB", "76M") {}
};

TEST_F(ParkingOfAGpu, AtRandomLosesNothing) { ParkAtRandom(); }

// ---- programs

class ParkingOfPrograms : public Parking {
 protected:
  ParkingOfPrograms() : Parking("30%", {"--idle-after", "100ms"}) {}

  // Runs the program, and repeatedly parks and wakes its client if `is_parked`. Returns the number
  // of parkings.
  std::uint64_t Run(const Words& program, const std::string& name, bool is_parked) {
    Words command = {"/usr/bin/env", "GPUSHARED_SOCKET=" + server().socket()};
    command.insert(command.end(), program.begin(), program.end());
    const std::string log = directory_ / "log";
    const pid_t pid = StartProgram(command, log);
    std::mt19937 random(1);
    std::uint64_t parkings = 0;
    std::optional<int> exited;
    std::uint64_t client = 0;
    while (!exited) {
      std::this_thread::sleep_for(std::chrono::milliseconds(random() % 10));
      if (is_parked && client == 0) client = Figure(name, "client");
      if (client != 0 && Ask(ipc::AdminVerb::kPark, client, /*is_held=*/true).ok()) {
        ++parkings;
        std::this_thread::sleep_for(std::chrono::milliseconds(random() % 10));
        (void)Ask(ipc::AdminVerb::kWake, client);
      }
      int status = 0;
      if (waitpid(pid, &status, WNOHANG) == pid) exited = status;
    }
    EXPECT_EQ(*exited, 0) << ReadFile(log);
    std::printf("%s: %llu parkings\n", name.c_str(), static_cast<unsigned long long>(parkings));
    return parkings;
  }
  static std::string Program(const std::string& name) {
    return std::string(GPUSHARED_BIN_DIR) + "/" + name;
  }
};

TEST_F(ParkingOfPrograms, LearnTheSameModel) {
  const auto train = [&](const std::string& model, bool is_parked) {
    return Run({Program("train"), "--text", GPUSHARED_TEXT, "--model", directory_ / model,
                "--steps", "100", "--seconds", "0", "--batch", "32", "--hidden", "32"},
               "train", is_parked);
  };
  train("undisturbed", false);
  EXPECT_GT(train("parked", true), 0u);
  EXPECT_EQ(ReadFile(directory_ / "undisturbed"), ReadFile(directory_ / "parked"));
}

TEST_F(ParkingOfPrograms, ServeTheSameAnswers) {
  const std::string model = directory_ / "model";
  Run({Program("train"), "--text", GPUSHARED_TEXT, "--model", model, "--steps", "4", "--seconds",
       "0", "--batch", "32", "--hidden", "32"},
      "train", false);
  EXPECT_GT(Run({Program("serve"), "--model", model, "--class", "low", "--requests", "100"},
                "serve", true),
            0u);
}

// Threads, streams, events, stream-ordered memory and graphs over the driver API.
TEST_F(ParkingOfPrograms, UnmodifiedProgramComputesTheSame) {
  std::uint64_t parkings = 0;
  for (int times = 0; times < 20 && parkings < 5; ++times) {
    parkings += Run(
        {Program("gpusharedctl"), "run", "--class", "low", "--", Program("drop_in_many_threads")},
        "drop_in_many_threads", true);
  }
  EXPECT_GE(parkings, 5u);
}

// ---- deaths

class ParkingOfTheDying : public Parking {
 protected:
  ParkingOfTheDying() : Parking("50%") {}
};

TEST_F(ParkingOfTheDying, LeavesNothingBehind) {
  enum class State { kParking, kParked, kWaking };
  const Client survivor = Connect("survivor");
  Numbers numbers(survivor, 30 * kMebi);
  std::mt19937 random(1);
  for (std::uint64_t round = 0; round < 12; ++round) {
    const pid_t child = StartDoomed(30 * kMebi);
    ASSERT_TRUE(Eventually([&] { return Figure("doomed", "launches") > 0; }));
    const std::uint64_t client = Figure("doomed", "client");
    const auto state = static_cast<State>(round % 3);
    ASSERT_TRUE(Ask(ipc::AdminVerb::kPark, client, /*is_held=*/true).ok());
    if (state != State::kParking) {
      EXPECT_TRUE(Eventually([&] { return Figure("doomed", "resident_bytes") == 0; }));
    }
    if (state == State::kWaking) {
      ASSERT_TRUE(Ask(ipc::AdminVerb::kWake, client).ok());
    }
    if (state != State::kParked) {
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 4000));
    }
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    EXPECT_TRUE(Eventually([&] { return Row("doomed").empty(); }));
    EXPECT_TRUE(Eventually([&] { return InStore("reserved_bytes") == 0; }));
    EXPECT_EQ(InStore("used_bytes"), 0u);
    EXPECT_EQ(InStore("parked"), 0u);
    EXPECT_TRUE(numbers.Step(round).ok());
  }
  EXPECT_TRUE(numbers.AreRight());
  EXPECT_EQ(Figure("survivor", "swapped_out_bytes"), 0u);
  EXPECT_TRUE(Connect("next").AllocateDevice(30 * kMebi).ok());
}

TEST_F(ParkingOfTheDying, KilledWorkerLosesOnlyItsSessions) {
  const Client client = Connect("parked"), other = Connect("other");
  Numbers numbers(client, 30 * kMebi);
  Park("parked", /*is_held=*/true);
  std::thread waits([&] { EXPECT_EQ(numbers.Step(0).code(), StatusCode::kDeviceLost); });
  ASSERT_TRUE(Eventually([&] { return Figure("parked", "commands_pending") > 0; }));
  ASSERT_EQ(kill(server().workers().at(0), SIGKILL), 0);
  waits.join();
  const Client next = Connect("next");
  EXPECT_EQ(InStore("reserved_bytes"), 0u);
  EXPECT_EQ(InStore("parked"), 0u);
  EXPECT_TRUE(next.AllocateDevice(30 * kMebi).ok());
}

// ---- limits

class ParkingInASmallStore : public Parking {
 protected:
  ParkingInASmallStore() : Parking("20%", {}, "16MiB") {}
};

TEST_F(ParkingInASmallStore, FullStoreRejectsIt) {
  const Client first = Connect("first"), second = Connect("second");
  Numbers numbers(first, 12 * kMebi), others(second, 12 * kMebi);
  Park("first");
  const auto rejected = server().Ctl({"park", "second", "--hold"});
  EXPECT_EQ(rejected.exit_code, 1);
  EXPECT_THAT(rejected.output, HasSubstr("of 16 MiB are left"));
  EXPECT_TRUE(others.AreRight());
  EXPECT_TRUE(numbers.AreRight());
}

class ParkingWithoutRoom : public MemoryBeyondTheDevice {
 protected:
  ParkingWithoutRoom() : MemoryBeyondTheDevice("256MiB", "", "20%") {}
};

TEST_F(ParkingWithoutRoom, ClientThatCannotBeSwappedIsNamed) {
  const Client client = Connect("fixed");
  for (const char* const verb : {"park", "wake"}) {
    const auto rejected = server().Ctl({verb, "fixed"});
    EXPECT_EQ(rejected.exit_code, 1);
    EXPECT_THAT(rejected.output, HasSubstr("'fixed'"));
    EXPECT_THAT(rejected.output, HasSubstr("idle_after"));
  }
}

// ---- idle clients

// The guarantees of all clients together exceed the device.
class ParkingOfIdleClients : public Parking {
 protected:
  ParkingOfIdleClients() : Parking("25%", {"--idle-after", "200ms", "--memory-reserve", "0%"}) {}
};

TEST_F(ParkingOfIdleClients, HappensByItself) {
  const Client idle = Connect("idle"), high = Connect("high", SchedulingClass::kHigh);
  Numbers numbers(idle, 16 * kMebi - 256 * 1024), others(high, 4 * kMebi);
  EXPECT_TRUE(Eventually([&] { return Row("idle")["state"] == "idle"; }));
  EXPECT_TRUE(Eventually([&] { return Figure("idle", "resident_bytes") == 0; }));
  std::this_thread::sleep_for(300ms);
  EXPECT_EQ(Row("high")["state"], "running") << "an urgent client is not parked";
  EXPECT_TRUE(numbers.AreRight());
}

class ParkingWithoutALimit : public MemoryBeyondTheDevice {
 protected:
  ParkingWithoutALimit()
      : MemoryBeyondTheDevice("256MiB", "", "25%", "", "25%", {"--idle-after", "200ms"}) {}
};

TEST_F(ParkingWithoutALimit, OfIdleClientsHappensByItself) {
  const Client idle = Connect("idle");
  Numbers numbers(idle, 14 * kMebi);
  for (std::size_t round = 0; round < 3; ++round) {
    EXPECT_TRUE(Eventually([&] { return Row("idle")["state"] == "idle"; }));
    EXPECT_TRUE(Eventually([&] { return Figure("idle", "resident_bytes") == 0; }));
    ASSERT_TRUE(numbers.Step(round).ok());
  }
  EXPECT_TRUE(numbers.AreRight());
  EXPECT_GE(Figure("idle", "wakes_promised"), 3u);
}

// A client that submits a command each time after it is parked must not use the guarantees of other
// clients.
TEST_F(ParkingOfIdleClients, WakingInALoopHarmsNoOtherGuarantee) {
  const Client hostile = Connect("hostile"), beyond = Connect("beyond"),
               settled = Connect("settled", SchedulingClass::kHigh);  // Never parked itself.
  Numbers loop(hostile, 14 * kMebi), numbers(settled, 14 * kMebi), others(beyond, 34 * kMebi);
  std::atomic<bool> is_over = false;
  std::atomic<std::uint64_t> right = 0, steps = 0;
  std::vector<std::thread> threads;
  for (Numbers* const each : {&numbers, &others}) {
    threads.emplace_back([&, each] {
      for (std::size_t round = 0; !is_over; ++round) {
        ASSERT_TRUE(each->Step(round).ok());
        if (each == &others) ++steps;
      }
      right += each->AreRight();
    });
  }
  std::size_t wakes = 0;
  for (; wakes < 8; ++wakes) {
    const std::uint64_t before = steps;
    ASSERT_TRUE(Eventually([&] { return Row("hostile")["state"] == "idle"; }));
    ASSERT_TRUE(loop.Step(wakes).ok());
    EXPECT_TRUE(Eventually([&] { return steps > before; })) << "the others are kept off the device";
  }
  is_over = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 2u);
  EXPECT_TRUE(loop.AreRight());
  EXPECT_EQ(Figure("settled", "swapped_out_bytes"), 0u);
}

// Twelve notebooks together have three times the device's memory. Two compute at a time.
TEST_F(ParkingOfIdleClients, NotebooksShareADeviceOfAThirdOfTheirMemory) {
  constexpr std::size_t kNotebooks = 12;
  constexpr std::size_t kBytes = 14 * kMebi;  // Fits into 16 MiB together with the module.
  struct Notebook {
    explicit Notebook(Client connected) : client(std::move(connected)) {}
    Client client;
    std::unique_ptr<Numbers> numbers;
  };
  std::vector<std::unique_ptr<Notebook>> notebooks;
  for (std::size_t i = 0; i < kNotebooks; ++i) {
    const std::string name = "notebook" + std::to_string(i);
    notebooks.push_back(std::make_unique<Notebook>(Connect(name)));
    ASSERT_TRUE(Eventually([&] { return InStore("parked") + 3 > i; }));
    notebooks.back()->numbers = std::make_unique<Numbers>(notebooks.back()->client, kBytes);
  }
  // Each cell is a few kernels in a row; the first one wakes the notebook.
  const std::uint64_t cells = Parkings(24);
  std::vector<double> wakes_ms, steps_ms;
  std::mutex samples;
  std::vector<std::thread> threads;
  for (std::size_t user = 0; user < 2; ++user) {
    threads.emplace_back([&, user] {
      std::mt19937 random(static_cast<std::uint32_t>(user));
      for (std::uint64_t cell = user; cell < cells; cell += 2) {
        // Even notebooks belong to one user, odd ones to the other.
        const std::size_t i = 2 * (random() % (kNotebooks / 2)) + user;
        const bool was_idle = Row("notebook" + std::to_string(i))["state"] == "idle";
        for (std::size_t step = 0; step < 4; ++step) {
          const Clock::time_point begin = Clock::now();
          ASSERT_TRUE(notebooks[i]->numbers->Step(4 * cell + step).ok());
          const double ms = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
          const std::lock_guard lock(samples);
          (was_idle && step == 0 ? wakes_ms : steps_ms).push_back(ms);
        }
        std::this_thread::sleep_for(100ms);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& notebook : notebooks) EXPECT_TRUE(notebook->numbers->AreRight());
  const auto print = [](const char* what, std::vector<double>& ms) {
    std::ranges::sort(ms);
    if (ms.empty()) return;
    std::printf("%s: %zu, p50 %.1f ms, p99 %.1f ms\n", what, ms.size(), ms[ms.size() / 2],
                ms[ms.size() * 99 / 100]);
  };
  print("first step of a parked notebook", wakes_ms);
  print("other steps", steps_ms);
  std::printf("of %llu promised wakes %llu in time\n",
              static_cast<unsigned long long>(InStore("wakes_promised")),
              static_cast<unsigned long long>(InStore("wakes_in_time")));
  EXPECT_FALSE(wakes_ms.empty());
}

}  // namespace
}  // namespace gpushared::testing
