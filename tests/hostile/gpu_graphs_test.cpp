// SPDX-License-Identifier: Apache-2.0
// Graphs of malicious clients on a GPU with the costs of a real one, where the driver instantiates
// graphs that are launched repeatedly.

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "gpushared/client.h"

#include "tests/support/gpu_server.h"
#include "tests/support/raw_client.h"
#include "tests/support/read_file.h"

namespace gpushared::testing {
namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t kModule = 0;
constexpr std::uint32_t kGraph = 1;
constexpr std::uint32_t kNodes = 12;

class GpuGraphs : public ::testing::Test {
 protected:
  // The tests corrupt records but no parameters of kernels, because those can affect only the
  // client itself.
  GpuGraphs()
      : gpu_({.statements = "sms 2; costs on", .arguments = {"--log-level", "error"}}),
        image_(ReadFile(GPUSHARED_SYSTEM_KERNELS)),
        neighbour_(std::make_unique<Client>(
            std::move(Client::Connect({.name = "neighbour", .socket = gpu_.socket()})).value())),
        workers_(gpu_.server().workers()),
        buffer_(std::move(neighbour_->AllocateDevice(4096)).value()) {}

  void NeighbourGoesOn() {
    unsigned value = 0;
    const Stream stream = neighbour_->default_stream();
    EXPECT_TRUE(stream.Fill(buffer_, FillElement::U32(++round_), 16).ok());
    EXPECT_TRUE(stream.CopyToHost(&value, buffer_, sizeof value).ok());
    EXPECT_EQ(value, round_) << "the neighbour's result";
    EXPECT_EQ(gpu_.server().workers(), workers_) << "the worker ended:\n" << gpu_.server().Log();
  }

  // Connects a client of the high class, whose graphs are submitted to the driver whole.
  RawClient Join() {
    const auto must = [](const Status& status) { EXPECT_TRUE(status.ok()) << status.ToString(); };
    Result<RawClient> client = RawClient::Connect(gpu_.socket());
    must(client.status());
    ipc::Hello hello;
    hello.name = "hostile";
    hello.client_class = SchedulingClass::kHigh;
    must(client->Join(hello));
    const Result<ipc::ModuleLoaded> module = client->LoadModule(kModule, image_);
    must(module.status());
    step_ = KernelNumber(*module, "step");
    must(client->Resize(4u << 20).status());
    return *std::move(client);
  }

  // Sends a graph. If `is_spoiled`, some bytes of its commands are wrong, but none of the kernels'
  // parameters.
  void SendGraph(RawClient& client, bool is_spoiled) {
    client.MakeGraph(kGraph);
    std::vector<std::byte> content;
    for (std::uint32_t node = 0; node < kNodes; ++node) {
      const NodePlace place{.graph = kGraph, .node = node};
      const ipc::GraphRecord record =
          node % 2 == 0 ? GetNode(place, GetLaunch(0, kModule, step_, {}, 12),
                                  ParametersAt(client.base(), 12), content)
                        : GetNode(place, GetFill(0, client.base(), 4096, 1), {}, content);
      if (is_spoiled && random_() % 3 == 0) {
        const std::size_t record_bytes = std::min(content.size(), ipc::kGranuleBytes);
        content[random_() % record_bytes] = static_cast<std::byte>(random_());
      }
      client.Publish(record, content);
    }
    client.Ring();
  }

  // Returns the server's message at the session's end, or "" once everything sent has ended.
  static std::string GetOutcome(RawClient& client) {
    for (int wait = 0; wait < 500; ++wait) {
      if (client.AwaitFinished(0, client.published(0), 10ms)) return "";
      const Result<ipc::Frame> frame = client.NextFrame(1ms);
      if (!frame && frame.status().code() == StatusCode::kTimedOut) continue;
      if (!frame) return frame.status().ToString();
      if (frame->type != static_cast<std::uint16_t>(ipc::MessageType::kEnded)) continue;
      const Result<ipc::Ended> ended = ipc::Decode<ipc::Ended>(frame->payload);
      return ended.ok() ? ended->status.ToString() : ended.status().ToString();
    }
    return "neither an end nor a sentence";
  }

  std::ptrdiff_t GetCalls(const std::string& name) const {
    const std::vector<std::string> calls = gpu_.Calls();
    return std::ranges::count(calls, name);
  }

  GpuServer gpu_;
  const std::string image_;
  std::unique_ptr<Client> neighbour_;
  const std::vector<pid_t> workers_;
  DeviceBuffer buffer_;
  std::mt19937_64 random_{20261125};
  std::uint32_t step_ = 0;
  unsigned round_ = 0;
};

TEST_F(GpuGraphs, CorruptedGraphsAffectOnlyTheirClient) {
  unsigned ended = 0, lived = 0;
  for (int round = 0; round < 24; ++round) {
    RawClient client = Join();
    SendGraph(client, round % 3 != 0);
    for (int launch = 0; launch < 4; ++launch) client.LaunchGraph(kGraph);
    if (round % 5 == 0) {
      client.CloseSocket();  // While the graph is being launched.
      NeighbourGoesOn();
      continue;
    }
    const std::string outcome = GetOutcome(client);
    EXPECT_TRUE(outcome.empty() || outcome.find("ProtocolViolation") != std::string::npos)
        << outcome;
    ++(outcome.empty() ? lived : ended);
    NeighbourGoesOn();
  }
  EXPECT_GT(ended, 0u);
  EXPECT_GT(lived, 0u);
}

// The client's session ends, because of an invalid node, while the driver has its instantiated
// graph.
TEST_F(GpuGraphs, ReleasesInstantiatedGraphOfDeadClient) {
  RawClient client = Join();
  SendGraph(client, false);
  EXPECT_TRUE(Eventually([&] {
    client.LaunchGraph(kGraph);
    EXPECT_TRUE(client.AwaitFinished(0, client.published(0)));
    return GetCalls("cuGraphLaunch") > 0;
  })) << "the driver never got it whole";
  for (int launch = 0; launch < 16; ++launch) client.LaunchGraph(kGraph);
  // A node with an invalid command, which no client library sends.
  ipc::FillRecord fill = GetFill(0, client.base(), 4096, 1);
  fill.header.flags = 0xff;
  client.SetNode({.graph = kGraph, .node = 1}, fill);
  client.LaunchGraph(kGraph);
  EXPECT_NE(GetOutcome(client).find("ProtocolViolation"), std::string::npos);
  NeighbourGoesOn();
  EXPECT_TRUE(Eventually([&] { return GetCalls("cuGraphExecDestroy") > 0; }))
      << "its graph stayed with the driver";
  NeighbourGoesOn();
}

}  // namespace
}  // namespace gpushared::testing
