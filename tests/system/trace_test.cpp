// SPDX-License-Identifier: Apache-2.0
// A real server reports executed work in a trace.
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gpushared/client.h"

#include "server/telemetry/admin/ask.h"
#include "server/telemetry/admin/trace_watch.h"
#include "tests/support/filler.h"
#include "tests/support/scratch_directory.h"
#include "tests/support/server_process.h"

#include <nlohmann/json.hpp>

namespace gpushared::testing {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

Result<admin::TraceWatch> Watch(const ServerProcess& server, const std::string& device = "cpu:0") {
  Result<admin::TraceWatch> watch =
      Status(StatusCode::kNotReady, "the worker has not started in time");
  // Waits for the worker, because a server answers before its worker has started.
  (void)Eventually([&] {
    watch = admin::TraceWatch::Begin(server.socket(), device);
    return watch.ok() || watch.status().code() != StatusCode::kNotReady;
  });
  return watch;
}

// The client connects after the watcher, so the worker has turned the trace on before it serves the
// client.
TEST(TraceWatch, SlicesAddUpToClientsCharges) {
  ServerProcess server({"--device", "cpu:0", "--memory", "256MiB"});
  Result<admin::TraceWatch> watch = Watch(server);
  ASSERT_TRUE(watch.ok()) << watch.status().ToString();
  Filler low = ComeToFill(server, "batch", SchedulingClass::kLow);
  Filler high = ComeToFill(server, "serve", SchedulingClass::kHigh);
  Fill(low, 30);
  Fill(high, 20);
  Fill(low, 10);
  std::map<std::uint64_t, double> charged_s;
  std::map<std::uint64_t, int> slices, requests;
  scheduler::TimePoint charged_until{};
  const trace::Reader::Progress progress = watch->reader().Poll([&](const trace::Event& event) {
    if (const auto* const slice = std::get_if<trace::Slice>(&event)) {
      charged_s[slice->session] += std::chrono::duration<double>(slice->charged).count();
      ++slices[slice->session];
      EXPECT_LE(slice->submitted, slice->started);
      EXPECT_LE(slice->started, slice->ended);
      EXPECT_LE(charged_until, slice->charged_from) << "charges do not overlap";
      charged_until = slice->charged_from + slice->charged;
    }
    if (const auto* const request = std::get_if<trace::Request>(&event)) {
      ++requests[request->session];
      EXPECT_LE(request->begun, request->ended);
    }
  });
  EXPECT_EQ(progress.lost, 0U);
  const Result<json> clients = admin::Ask(server.socket(), {.verb = ipc::AdminVerb::kClients});
  ASSERT_TRUE(clients.ok());
  for (const json& row : (*clients)["clients"]) {
    const std::uint64_t session = row["client"];
    EXPECT_NEAR(charged_s[session], row["device_time_s"], 1e-9) << row.dump(1);
    EXPECT_EQ(slices[session], row["fills"].get<int>() + row["stops"].get<int>());
    EXPECT_GE(requests[session], 1);
    const trace::Name* const name = watch->reader().GetClient(session);
    ASSERT_NE(name, nullptr);
    EXPECT_EQ(name->text, row["name"]);
    EXPECT_EQ(name->pid, row["pid"]);
  }
  EXPECT_EQ(charged_s.size(), 2U);
}

// Keeps the device thread as busy as one client can.
void FillWithoutPause(Filler& filler, const std::atomic<bool>& is_over) {
  const Stream stream = filler.client.default_stream();
  while (!is_over.load()) {
    for (int i = 0; i < 500; ++i) {
      ASSERT_TRUE(stream.Fill(filler.memory, FillElement::U8(1), 64).ok());
    }
    ASSERT_TRUE(stream.Synchronize().ok());
  }
}

// Runs for a second, or in the long test trace_full_load for a minute.
TEST(TraceWatch, UnderFullLoadEverySliceIsReportedOrCountedAsLost) {
  const char* const asked = std::getenv("GPUSHARED_TRACE_SECONDS");
  const std::chrono::seconds length(asked != nullptr ? std::atoi(asked) : 1);
  ServerProcess server({"--device", "cpu:0", "--memory", "256MiB"});
  Result<admin::TraceWatch> watch = Watch(server);
  ASSERT_TRUE(watch.ok()) << watch.status().ToString();
  Filler low = ComeToFill(server, "low", SchedulingClass::kLow);
  Filler high = ComeToFill(server, "high", SchedulingClass::kHigh);
  std::atomic<bool> is_over{false};
  std::vector<std::thread> filling;
  for (Filler* const filler : {&low, &high}) {
    filling.emplace_back([&, filler] { FillWithoutPause(*filler, is_over); });
  }
  std::uint64_t slices = 0, lost = 0;
  const auto poll = [&] {
    lost += watch->reader()
                .Poll([&](const trace::Event& event) {
                  slices += std::holds_alternative<trace::Slice>(event) ? 1 : 0;
                })
                .lost;
  };
  const auto end = std::chrono::steady_clock::now() + length;
  while (std::chrono::steady_clock::now() < end) {
    poll();
    std::this_thread::sleep_for(10ms);  // The interval at which gpusharedctl reads the trace.
  }
  is_over.store(true);
  for (std::thread& thread : filling) thread.join();
  poll();
  const Result<json> clients = admin::Ask(server.socket(), {.verb = ipc::AdminVerb::kClients});
  ASSERT_TRUE(clients.ok());
  std::uint64_t ran = 0;
  for (const json& row : (*clients)["clients"]) {
    ran += row["fills"].get<std::uint64_t>() + row["stops"].get<std::uint64_t>();
  }
  std::printf("%llu slices in %lld s, %llu events lost\n", static_cast<unsigned long long>(ran),
              static_cast<long long>(length.count()), static_cast<unsigned long long>(lost));
  EXPECT_GT(ran, 1000U);
  EXPECT_LE(slices, ran);
  EXPECT_GE(slices + lost, ran) << "a slice is missing, and nobody says so";
}

TEST(TraceWatch, LastsAsLongAsItsConnectionAndItsWorker) {
  ServerProcess server({"--device", "cpu:0", "--memory", "256MiB"});
  Filler filler = ComeToFill(server, "filler", SchedulingClass::kNormal);
  for (int round = 0; round < 3; ++round) {
    // Each round requests its trace after the previous trace has ended, because only a new trace
    // starts from the beginning.
    Result<admin::TraceWatch> watch = Watch(server);
    ASSERT_TRUE(watch.ok()) << watch.status().ToString();
    Fill(filler, 5);
    std::uint64_t seen = watch->reader().Poll([](const trace::Event&) {}).events;
    EXPECT_GE(seen, 6U) << "five fills and a request";
    EXPECT_FALSE(watch->HasEnded());
  }
  Result<admin::TraceWatch> watch = Watch(server);
  ASSERT_TRUE(watch.ok());
  Fill(filler, 5);
  ASSERT_EQ(::kill(server.workers().at(0), SIGKILL), 0);
  EXPECT_TRUE(Eventually([&] { return watch->HasEnded(); }));
  EXPECT_GE(watch->reader().Poll([](const trace::Event&) {}).events, 6U)
      << "what a dead worker has written can be read";
  Result<admin::TraceWatch> next = Watch(server);
  ASSERT_TRUE(next.ok()) << next.status().ToString();
  EXPECT_GT(next->generation(), watch->generation());
}

TEST(TraceWatch, IsRejectedWithAReason) {
  const ServerProcess server({"--device", "cpu:0", "--memory", "256MiB"});
  EXPECT_THAT(std::string(Watch(server, "cpu:7").status().message()),
              AllOf(HasSubstr("asked for 'cpu:7'"), HasSubstr("this server has cpu:0")));
  std::vector<admin::TraceWatch> watches;
  for (int i = 0; i < 16; ++i) {
    Result<admin::TraceWatch> watch = Watch(server);
    ASSERT_TRUE(watch.ok()) << watch.status().ToString();
    watches.push_back(*std::move(watch));
  }
  EXPECT_THAT(std::string(Watch(server).status().message()),
              HasSubstr("16 others watch this device, allowed: 16"));
  watches.pop_back();
  EXPECT_TRUE(Eventually([&] { return Watch(server).ok(); }));
}

std::vector<std::string> Recorded(const std::string& file) {
  std::ifstream in(file);
  const json trace = json::parse(in, nullptr, /*allow_exceptions=*/false);
  std::vector<std::string> lines;
  EXPECT_TRUE(trace.is_object()) << file << " is whole";
  if (!trace.is_object()) return lines;
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] == "X") lines.push_back(event["name"]);
  }
  return lines;
}

// Returns the inode of the trace memory that a program reads, or 0 if it reads none.
std::uint64_t GetTrace(pid_t process) {
  std::ifstream maps("/proc/" + std::to_string(process) + "/maps");
  std::string range, rights, offset, device, rest;
  std::uint64_t inode = 0;
  while (maps >> range >> rights >> offset >> device >> inode && std::getline(maps, rest)) {
    if (rest.find("memfd:gpushared-trace") != std::string::npos) return inode;
  }
  return 0;
}

// Returns how often a program has gone to sleep.
std::uint64_t TimesSlept(pid_t process) {
  std::ifstream status("/proc/" + std::to_string(process) + "/status");
  std::string word;
  std::uint64_t times = 0;
  while (status >> word && word != "voluntary_ctxt_switches:") {
  }
  status >> times;
  return times;
}

// Waits until a program reads a different trace than `before` and has read its current position.
// The program maps the memory, reads the position and then sleeps, so the test waits for a sleep
// after the mapping.
bool AwaitTraceBehind(std::uint64_t before, pid_t process) {
  const auto is_there = [&] {
    const std::uint64_t now = GetTrace(process);
    return now != 0 && now != before;
  };
  if (!Eventually(is_there)) return false;
  const std::uint64_t slept = TimesSlept(process);
  return Eventually([&] { return TimesSlept(process) >= slept + 2; });
}

TEST(TraceCommand, FollowsADeviceToItsNextWorker) {
  ServerProcess server({"--device", "cpu:0", "--memory", "256MiB"});
  const ScratchDirectory directory;
  const std::string file = directory / "t.json", said = directory / "said";
  Filler before = ComeToFill(server, "before", SchedulingClass::kLow);
  const pid_t recording =
      StartProgram({GPUSHARED_BIN_DIR "/gpusharedctl", "--socket", server.socket(), "trace",
                    "--seconds", "600", "--json", "--out", file},
                   said);
  ASSERT_TRUE(AwaitTraceBehind(0, recording));
  Fill(before, 3);
  const std::uint64_t first = GetTrace(recording);
  ASSERT_EQ(::kill(server.workers().at(0), SIGKILL), 0);
  // Waits for any trace other than the first, because the next trace may begin before this test
  // observes that the first one has ended.
  ASSERT_TRUE(AwaitTraceBehind(first, recording));
  Filler after = ComeToFill(server, "after", SchedulingClass::kHigh);
  Fill(after, 4);
  ASSERT_EQ(::kill(recording, SIGTERM), 0) << "as Ctrl-C, it ends the file";
  int status = 0;
  ASSERT_EQ(::waitpid(recording, &status, 0), recording);
  std::ifstream in(said);
  const json summary = json::parse(in, nullptr, /*allow_exceptions=*/false);
  ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << summary.dump(1);
  EXPECT_EQ(summary["clients"], 2) << summary.dump(1);
  EXPECT_EQ(summary["lost"], 0);
  const std::vector<std::string> slices = Recorded(file);
  EXPECT_EQ(std::ranges::count(slices, "before"), 3);
  EXPECT_EQ(std::ranges::count(slices, "after"), 4);
}

TEST(TraceCommand, AFullFileIsWholeAndSaysSo) {
  ServerProcess server({"--device", "cpu:0", "--memory", "256MiB"});
  const ScratchDirectory directory;
  const std::string file = directory / "t.json";
  ProgramOutcome outcome;
  std::atomic<bool> is_over{false};
  std::thread recording([&] {
    outcome = server.Ctl({"trace", "--seconds", "600", "--max-mib", "1", "--out", file});
    is_over.store(true);
  });
  Filler filler = ComeToFill(server, "filler", SchedulingClass::kLow);
  EXPECT_TRUE(Eventually([&] {
    Fill(filler, 100);
    return is_over.load();
  }));
  recording.join();
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.output, HasSubstr("the file is full after"));
  EXPECT_GT(Recorded(file).size(), 1000U);
}

TEST(TraceCommand, SaysWhyThereIsNoTrace) {
  const ServerProcess server({"--device", "cpu:0", "--memory", "256MiB"});
  const ScratchDirectory directory;
  ProgramOutcome outcome = server.Ctl({"trace", "--out", directory / "no/such/t.json"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.output, HasSubstr("cannot write"));
  outcome = server.Ctl({"trace", "--device", "cpu:7", "--out", directory / "t.json"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.output, HasSubstr("this server has cpu:0"));
}

}  // namespace
}  // namespace gpushared::testing
