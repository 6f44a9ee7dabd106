// SPDX-License-Identifier: Apache-2.0
// Graphs: which commands are recorded and sent, and which errors are rejected before anything is
// sent.
#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gpushared/client.h"
#include "gpushared/gpushared.h"

#include "tests/support/fake_worker.h"

namespace gpushared {
namespace {

using testing::FakeWorker;
using ::testing::HasSubstr;

class GraphTest : public ::testing::Test {
 protected:
  GraphTest()
      : client_(*Client::Connect({.socket = worker_.socket_path()})),
        stream_(client_.default_stream()),
        recorder_(*client_.CreateRecorder()) {}
  ~GraphTest() override { EXPECT_THAT(worker_.violations(), ::testing::IsEmpty()); }

  Kernel LoadKernel(const char* name) { return *client_.LoadModule("any PTX")->GetKernel(name); }
  template <typename Body>
  std::vector<testing::TakenCommand> Taken() {
    EXPECT_TRUE(client_.Synchronize().ok());
    std::vector<testing::TakenCommand> found;
    for (const testing::TakenCommand& taken : worker_.taken()) {
      if (std::holds_alternative<Body>(taken.command.body)) found.push_back(taken);
    }
    return found;
  }

  FakeWorker worker_;
  Client client_;
  Stream stream_;
  Stream recorder_;
};

TEST_F(GraphTest, RecordedCommandsRunOnlyWhenLaunched) {
  const DeviceBuffer memory = *client_.AllocateDevice(64);
  HostBuffer host = *client_.AllocateHost(128);
  std::ranges::fill(host.bytes(), std::byte{3});
  ASSERT_TRUE(recorder_.CopyToDevice(memory, host.data(), 64).ok());
  ASSERT_TRUE(recorder_.Fill(DeviceAddress{memory} + 32, FillElement::U8(5), 32).ok());
  ASSERT_TRUE(recorder_.CopyToHost(host.data() + 64, memory, 64).ok());
  const Result<Graph> graph = recorder_.MakeGraph();
  ASSERT_TRUE(graph.ok()) << graph.status().ToString();
  EXPECT_EQ(graph->node_count(), 3u);
  EXPECT_EQ(host.data()[64], std::byte{3}) << "nothing has run";
  ASSERT_TRUE(graph->Launch(stream_).ok());
  ASSERT_TRUE(stream_.Synchronize().ok());
  EXPECT_EQ(host.data()[64 + 31], std::byte{3});
  EXPECT_EQ(host.data()[64 + 32], std::byte{5});
  EXPECT_EQ(Taken<ipc::LaunchGraphCommand>().size(), 1u);
  EXPECT_EQ(Taken<ipc::CopyToDeviceCommand>().size(), 0u);
}

TEST_F(GraphTest, LaunchesArriveWithTheirArguments) {
  const Kernel add = LoadKernel("add");
  ASSERT_TRUE(
      recorder_.Launch(add, {.grid = {3}}, DeviceAddress{1}, DeviceAddress{2}, DeviceAddress{3}, 7)
          .ok());
  const Result<Graph> graph = recorder_.MakeGraph();
  ASSERT_TRUE(graph.ok());
  ASSERT_TRUE(graph
                  ->SetLaunch(0, add, {.grid = {4}}, DeviceAddress{1}, DeviceAddress{2},
                              DeviceAddress{3}, 8)
                  .ok());
  EXPECT_EQ(Taken<ipc::SetGraphNodeCommand>().size(), 1u) << "sent with the next launch";
  ASSERT_TRUE(graph->Launch(stream_).ok());
  ASSERT_TRUE(graph->Launch(stream_).ok());
  const auto sets = Taken<ipc::SetGraphNodeCommand>();
  ASSERT_EQ(sets.size(), 2u) << "and once";
  for (int i = 0; i < 2; ++i) {
    const auto& set = std::get<ipc::SetGraphNodeCommand>(sets[i].command.body);
    EXPECT_EQ(std::get<ipc::LaunchCommand>(set.content).grid[0], 3u + i);
    int value = 0;
    std::memcpy(&value, sets[i].parameters.data() + 24, sizeof value);
    EXPECT_EQ(value, 7 + i);
  }
}

TEST_F(GraphTest, RejectsCommandsThatGraphsCannotHold) {
  const DeviceBuffer memory = *client_.AllocateDevice(64);
  const Event event = *client_.CreateEvent();
  std::array<std::byte, 64> pageable{};
  EXPECT_THAT(recorder_.CopyToDevice(memory, pageable.data(), 64).message(),
              HasSubstr("Client::AllocateHost"));
  EXPECT_THAT(recorder_.CopyToHost(pageable.data(), memory, 64).message(),
              HasSubstr("Client::AllocateHost"));
  for (const Status& status :
       {recorder_.Record(event), recorder_.Wait(event), recorder_.BeginRequest(),
        recorder_.EndRequest(), recorder_.Synchronize(), recorder_.Query()}) {
    EXPECT_THAT(status.message(), HasSubstr("records a graph"));
  }
  EXPECT_THAT(recorder_.MakeGraph().status().message(), HasSubstr("nothing was recorded"));
  EXPECT_THAT(stream_.MakeGraph().status().message(), HasSubstr("no recorder"));
  ASSERT_TRUE(recorder_.Fill(memory, FillElement::U8(0), 64).ok());
  const Graph graph = *recorder_.MakeGraph();
  EXPECT_THAT(graph.SetLaunch(1, LoadKernel("nothing"), {}).message(), HasSubstr("has 1 nodes"));
  EXPECT_THAT(graph.SetLaunch(0, LoadKernel("nothing"), {}).message(), HasSubstr("is no launch"));
  EXPECT_THAT(Graph().Launch(stream_).message(), HasSubstr("empty"));
}

TEST_F(GraphTest, MoreNodesThanAGraphHoldsAreRejected) {
  const DeviceBuffer memory = *client_.AllocateDevice(64);
  for (int i = 0; i < 4096; ++i) {
    ASSERT_TRUE(recorder_.Fill(memory, FillElement::U8(0), 64).ok());
  }
  const Status status = recorder_.Fill(memory, FillElement::U8(0), 64);
  EXPECT_EQ(status.code(), StatusCode::kLimitExceeded);
  EXPECT_THAT(status.message(), HasSubstr("at most 4096"));
}

TEST_F(GraphTest, LargeParametersTravelInStagingMemory) {
  const Kernel large = LoadKernel("large");
  std::vector<std::byte> parameters(large.parameter_bytes());
  parameters.back() = std::byte{9};
  ASSERT_TRUE(recorder_.LaunchPacked(large, {}, parameters).ok());
  ASSERT_TRUE(recorder_.MakeGraph().ok());
  const auto sets = Taken<ipc::SetGraphNodeCommand>();
  ASSERT_EQ(sets.size(), 1u);
  EXPECT_EQ(sets[0].parameters, parameters);
}

TEST_F(GraphTest, MakeGraphReturnsRejectionOfNode) {
  const DeviceBuffer memory = *client_.AllocateDevice(64);
  ASSERT_TRUE(recorder_.Fill(memory, FillElement::U8(0), 64).ok());
  worker_.FailAt(1, 3, Status(StatusCode::kInvalidArgument, "no such memory"));
  EXPECT_EQ(recorder_.MakeGraph().status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(stream_.Synchronize().ok()) << "no stream of the program has failed";
  EXPECT_EQ(Taken<ipc::DestroyGraphCommand>().size(), 1u);
}

TEST_F(GraphTest, ReusesNumbers) {
  const DeviceBuffer memory = *client_.AllocateDevice(64);
  for (int i = 0; i < 300; ++i) {
    ASSERT_TRUE(recorder_.Fill(memory, FillElement::U8(0), 64).ok());
    ASSERT_TRUE(recorder_.MakeGraph().ok()) << i;
  }
}

TEST_F(GraphTest, TheCInterfaceRecordsAndLaunches) {
  gpushared_client* client = nullptr;
  gpushared_client_options options;
  gpushared_client_options_init(&options);
  options.socket = worker_.socket_path().c_str();
  ASSERT_EQ(gpushared_connect(&options, &client), GPUSHARED_OK);
  gpushared_address memory = 0;
  ASSERT_EQ(gpushared_allocate_device(client, 64, &memory), GPUSHARED_OK);
  gpushared_stream* recorder = nullptr;
  ASSERT_EQ(gpushared_create_recorder(client, &recorder), GPUSHARED_OK);
  ASSERT_EQ(gpushared_fill(recorder, memory, 7, 1, 64), GPUSHARED_OK);
  gpushared_graph* graph = nullptr;
  ASSERT_EQ(gpushared_make_graph(recorder, &graph), GPUSHARED_OK);
  EXPECT_EQ(gpushared_get_node_count(graph), 1u);
  gpushared_stream* const stream = gpushared_default_stream(client);
  ASSERT_EQ(gpushared_launch_graph(graph, stream), GPUSHARED_OK);
  unsigned char first = 0;
  ASSERT_EQ(gpushared_copy_to_host(stream, &first, memory, 1), GPUSHARED_OK);
  EXPECT_EQ(first, 7);
  EXPECT_EQ(gpushared_launch_graph(nullptr, stream), GPUSHARED_INVALID_ARGUMENT);
  EXPECT_EQ(gpushared_make_graph(nullptr, &graph), GPUSHARED_INVALID_ARGUMENT);
  EXPECT_EQ(gpushared_create_recorder(nullptr, &recorder), GPUSHARED_INVALID_ARGUMENT);
  EXPECT_EQ(gpushared_set_node_launch(graph, 0, nullptr, nullptr, nullptr, 0),
            GPUSHARED_INVALID_ARGUMENT);
  gpushared_destroy_graph(graph);
  gpushared_destroy_stream(recorder);
  gpushared_destroy_client(client);
}

}  // namespace
}  // namespace gpushared
