// SPDX-License-Identifier: Apache-2.0
// Rules for graphs, on devices that run them.
#include <array>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "tests/conformance/device_suite.h"

namespace gpushared::testing {
namespace {

constexpr std::uint64_t kList = 0;
constexpr std::uint64_t kCursor = 4 * kMebibyte;
constexpr std::uint64_t kStays0 = 7 * kMebibyte;  // Kernels spin while it is zero.

std::vector<const device::GraphNode*> PointersTo(const std::vector<device::GraphNode>& nodes) {
  std::vector<const device::GraphNode*> pointers;
  for (const device::GraphNode& node : nodes) pointers.push_back(&node);
  return pointers;
}

TEST_P(DeviceConformance, NodesOfAGraphRunOneAfterTheOther) {
  const TestClient client = NewClientWithKernels();
  constexpr std::uint32_t kNodes = 100;
  std::vector<device::GraphNode> nodes;
  for (std::uint32_t tag = 0; tag < kNodes; ++tag) {
    // Several blocks, so that overlapping nodes would interleave.
    nodes.push_back(GetNode(client, "append", {.grid = {5, 1, 1}, .block = {1, 1, 1}},
                            Arguments::Pack(client.At(kCursor), client.At(kList), tag)));
  }
  const std::vector<const device::GraphNode*> pointers = PointersTo(nodes);
  if (SkipsUnlessItTakes(pointers)) return;
  const device::WorkId first = SubmitGraph(client, pointers, {});
  const device::WorkId second = SubmitGraph(client, pointers, {});
  EXPECT_EQ(Await(first).units_done, kNodes);
  AwaitOk(second);
  const std::vector<std::uint32_t> list = ReadWords(client, kList, std::size_t{10} * kNodes);
  for (std::uint32_t i = 0; i < list.size(); ++i) ASSERT_EQ(list[i], i / 5 % kNodes) << i;
}

// A device may cache an instantiated graph, and must update it when nodes get other parameters.
TEST_P(DeviceConformance, GraphUsesParametersOfItsNodesAtEachLaunch) {
  const TestClient client = NewClientWithKernels();
  constexpr std::uint32_t kNodes = 6;
  constexpr std::uint32_t kRounds = 60;
  std::vector<device::GraphNode> nodes;
  const auto node = [&](std::uint32_t tag) {
    return GetNode(client, "append", {.block = {1, 1, 1}},
                   Arguments::Pack(client.At(kCursor), client.At(kList), tag));
  };
  for (std::uint32_t tag = 0; tag < kNodes; ++tag) nodes.push_back(node(tag));
  const std::vector<const device::GraphNode*> pointers = PointersTo(nodes);
  if (SkipsUnlessItTakes(pointers)) return;
  std::vector<std::uint32_t> tags(kNodes);
  std::iota(tags.begin(), tags.end(), 0U);
  std::vector<std::uint32_t> expected;
  std::uint64_t version = 1;
  for (std::uint32_t round = 0; round < kRounds; ++round) {
    AwaitOk(SubmitGraph(client, pointers, {.graph_version = version}));
    expected.insert(expected.end(), tags.begin(), tags.end());
    if (round % 3 != 0) continue;
    tags[round % kNodes] = kNodes + round;
    nodes[round % kNodes] = node(tags[round % kNodes]);
    ++version;
  }
  EXPECT_EQ(ReadWords(client, kList, expected.size()), expected);
}

TEST_P(DeviceConformance, GraphResumesWhereItStopped) {
  const TestClient client = NewClientWithKernels();
  std::vector<device::GraphNode> nodes;
  for (std::uint32_t tag = 0; tag < 8; ++tag) {
    nodes.push_back(GetNode(client, "append", {.block = {1, 1, 1}},
                            Arguments::Pack(client.At(kCursor), client.At(kList), tag + 1)));
  }
  const std::vector<const device::GraphNode*> pointers = PointersTo(nodes);
  if (SkipsUnlessItTakes(pointers)) return;
  AwaitOk(SubmitGraph(client, pointers, {.first_unit = 5}));
  EXPECT_EQ(ReadWords(client, kList, 4), (std::vector<std::uint32_t>{6, 7, 8, 0}));
}

TEST_P(DeviceConformance, CopiesAndFillsOfAGraphMoveBytes) {
  const TestClient client = NewClientWithKernels();
  device::FillWork fill;
  fill.destination = client.At(kList);
  fill.value = 0x01020304;
  fill.element_bytes = 4;
  fill.width_bytes = fill.pitch_bytes = std::uint64_t{64} << 10;
  device::CopyWork copy;
  copy.direction = device::CopyWork::Direction::kDeviceToDevice;
  copy.source = client.At(kList);
  copy.destination = client.At(2 * kMebibyte);
  copy.width_bytes = copy.source_pitch_bytes = copy.destination_pitch_bytes = fill.width_bytes;
  std::vector<std::uint32_t> host(16 * 1024);
  const auto pinned = gpu().Pin(std::as_writable_bytes(std::span(host)));
  ASSERT_TRUE(pinned.ok()) << pinned.status().ToString();
  device::CopyWork out = copy;
  out.direction = device::CopyWork::Direction::kDeviceToHost;
  out.source = copy.destination;
  out.host = reinterpret_cast<std::byte*>(host.data());
  const std::vector<device::GraphNode> nodes = {fill, copy, out};
  const std::vector<const device::GraphNode*> pointers = PointersTo(nodes);
  if (SkipsUnlessItTakes(pointers)) return;
  AwaitOk(SubmitGraph(client, pointers, {}));
  EXPECT_EQ(host, std::vector<std::uint32_t>(host.size(), 0x01020304));
}

TEST_P(DeviceConformance, AStoppedGraphHasRunAPrefixOfItsNodes) {
  if (SkipsUnlessItKills()) return;
  const TestClient client = NewClientWithKernels();
  std::vector<device::GraphNode> nodes;
  for (std::uint32_t tag = 0; tag < 6; ++tag) {
    nodes.push_back(GetNode(client, "append", {.block = {1, 1, 1}},
                            Arguments::Pack(client.At(kCursor), client.At(kList), tag + 1)));
  }
  const std::vector<const device::GraphNode*> pointers = PointersTo(nodes);
  if (SkipsUnlessItTakes(pointers)) return;
  const device::WorkId plug = Plug(client, kStays0);
  const device::WorkId graph = SubmitGraph(client, pointers, {});
  gpu().RequestStop(graph);
  gpu().RequestKill(plug);
  (void)Await(plug);
  const device::Completion stopped = Await(graph);
  EXPECT_TRUE(stopped.status.ok()) << stopped.status.ToString();
  EXPECT_TRUE(stopped.stopped);
  ASSERT_LT(stopped.units_done, nodes.size());
  AwaitOk(SubmitGraph(client, pointers, {.first_unit = stopped.units_done}));
  EXPECT_EQ(ReadWords(client, kList, 7), (std::vector<std::uint32_t>{1, 2, 3, 4, 5, 6, 0}))
      << "each node once";
}

TEST_P(DeviceConformance, AGraphEndsAtTheNodeThatFails) {
  if (SkipsWhereNoAddressFaults() || SkipsUnlessItInterprets()) return;
  const TestClient client = NewClientWithKernels();
  const std::uint32_t value = 9;
  const auto write = [&](std::uint64_t address) {
    return GetNode(client, "write_at", {.block = {1, 1, 1}}, Arguments::Pack(address, value));
  };
  const std::vector<device::GraphNode> nodes = {write(client.At(kList)),
                                                write(client.At(0) + (std::uint64_t{1} << 44)),
                                                write(client.At(kList + 4))};
  const std::vector<const device::GraphNode*> pointers = PointersTo(nodes);
  if (SkipsUnlessItTakes(pointers)) return;
  const device::Completion ended = Await(SubmitGraph(client, pointers, {}));
  EXPECT_EQ(ended.status.code(), StatusCode::kKernelFault) << ended.status.ToString();
  EXPECT_EQ(ended.units_done, 1u);
  EXPECT_EQ(ReadWords(client, kList, 2), (std::vector<std::uint32_t>{9, 0}));
}

TEST_P(DeviceConformance, KilledGraphRunsNoFurtherNode) {
  if (SkipsUnlessItKills()) return;
  const TestClient client = NewClientWithKernels();
  const std::vector<device::GraphNode> nodes = {
      GetNode(client, "spin_for_ever", {.block = {1, 1, 1}}, Arguments::Pack(client.At(kStays0))),
      GetNode(client, "append", {.block = {1, 1, 1}},
              Arguments::Pack(client.At(kCursor), client.At(kList), std::uint32_t{1}))};
  const std::vector<const device::GraphNode*> pointers = PointersTo(nodes);
  if (SkipsUnlessItTakes(pointers)) return;
  const device::WorkId graph = SubmitGraph(client, pointers, {});
  gpu().RequestKill(graph);
  EXPECT_EQ(Await(graph).status.code(), StatusCode::kCancelled);
  EXPECT_EQ(ReadWords(client, kCursor, 1), std::vector<std::uint32_t>{0});
}

}  // namespace
}  // namespace gpushared::testing
