// SPDX-License-Identifier: Apache-2.0
// What a real server tells of what ran.
#include <signal.h>

#include <chrono>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gpushared/client.h"

#include "server/admin/ask.h"
#include "server/admin/trace_watch.h"
#include "tests/support/server_process.h"

#include <nlohmann/json.hpp>

namespace gpushared::testing {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::size_t kBytes = std::size_t{1} << 20;

struct Filler {
  Client client;
  DeviceBuffer memory;
};

Filler Come(const ServerProcess& server, const std::string& name, SchedulingClass of_class) {
  Filler filler;
  Result<Client> client =
      Client::Connect({.name = name, .scheduling_class = of_class, .socket = server.socket()});
  EXPECT_TRUE(client.ok()) << client.status().ToString();
  if (!client.ok()) return filler;
  filler.client = std::move(*client);
  Result<DeviceBuffer> memory = filler.client.AllocateDevice(kBytes);
  EXPECT_TRUE(memory.ok()) << memory.status().ToString();
  if (memory.ok()) filler.memory = std::move(*memory);
  return filler;
}

void Fill(Filler& filler, int times) {
  const Stream stream = filler.client.default_stream();
  for (int i = 0; i < times; ++i) {
    EXPECT_TRUE(stream.Fill(filler.memory, FillElement::U8(1), kBytes).ok());
  }
  EXPECT_TRUE(stream.Synchronize().ok());
}

Result<admin::TraceWatch> Watch(const ServerProcess& server, const std::string& device = "cpu:0") {
  Result<admin::TraceWatch> watch =
      Status(StatusCode::kNotReady, "the worker has not started in time");
  // A server answers before its worker does.
  (void)Eventually([&] {
    watch = admin::TraceWatch::Begin(server.socket(), device);
    return watch.ok() || watch.status().code() != StatusCode::kNotReady;
  });
  return watch;
}

// A worker has begun to write, or written, by the time that a client is served after it.
TEST(TraceWatch, SlicesAreWhatClientsAreCharged) {
  ServerProcess server({"--device", "cpu:0", "--memory", "256MiB"});
  Result<admin::TraceWatch> watch = Watch(server);
  ASSERT_TRUE(watch.ok()) << watch.status().ToString();
  Filler low = Come(server, "batch", SchedulingClass::kLow);
  Filler high = Come(server, "serve", SchedulingClass::kHigh);
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
    const trace::Name* const name = watch->reader().ClientOf(session);
    ASSERT_NE(name, nullptr);
    EXPECT_EQ(name->text, row["name"]);
    EXPECT_EQ(name->pid, row["pid"]);
  }
  EXPECT_EQ(charged_s.size(), 2U);
}

TEST(TraceWatch, LastsAsLongAsItsConnectionAndItsWorker) {
  ServerProcess server({"--device", "cpu:0", "--memory", "256MiB"});
  Filler filler = Come(server, "filler", SchedulingClass::kNormal);
  for (int round = 0; round < 3; ++round) {
    // Only one that was asked for after the last one ended, and so began anew.
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

TEST(TraceWatch, IsRefusedWithAReason) {
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
              HasSubstr("16 others watch this device, allowed are 16"));
  watches.pop_back();
  EXPECT_TRUE(Eventually([&] { return Watch(server).ok(); }));
}

}  // namespace
}  // namespace gpushared::testing
