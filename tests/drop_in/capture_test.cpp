// SPDX-License-Identifier: Apache-2.0
// Stream capture: which calls become nodes, which invalidate the capture, and the resulting error
// codes.
#include <algorithm>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/drop_in/drop_in_case.h"

namespace gpushared::drop_in {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int kGlobal = 0;
constexpr int kThreadLocal = 1;
constexpr int kRelaxed = 2;
constexpr unsigned kExternal = 1;

class CaptureTest : public DropInCase {
 protected:
  CaptureTest() {
    for (EventHandle* event : {&event_, &other_event_}) {
      EXPECT_EQ(EventCreate(event, 0), Code::kSuccess);
    }
    EXPECT_EQ(MemAlloc(&memory_, 4096), Code::kSuccess);
    int mode = kGlobal;
    EXPECT_EQ(ThreadExchangeStreamCaptureMode(&mode), Code::kSuccess);
  }

  void Begin(StreamHandle stream, int mode = kGlobal) {
    ASSERT_EQ(StreamBeginCapture(stream, mode), Code::kSuccess);
  }
  GraphHandle End(StreamHandle stream) {
    GraphHandle graph = nullptr;
    EXPECT_EQ(StreamEndCapture(stream, &graph), Code::kSuccess);
    return graph;
  }
  // Ends a capture that fails with `why` and creates no graph.
  void EndBadly(StreamHandle stream, Code why) {
    auto* graph = reinterpret_cast<GraphHandle>(7);
    EXPECT_EQ(StreamEndCapture(stream, &graph), why);
    EXPECT_EQ(graph, nullptr);
  }
  int StatusFor(StreamHandle stream) {
    int status = -1;
    EXPECT_EQ(StreamIsCapturing(stream, &status), Code::kSuccess);
    return status;
  }
  std::vector<GraphNodeHandle> Nodes(GraphHandle graph) {
    std::size_t count = 0;
    EXPECT_EQ(GraphGetNodes(graph, nullptr, &count), Code::kSuccess);
    std::vector<GraphNodeHandle> nodes(count);
    EXPECT_EQ(GraphGetNodes(graph, nodes.data(), &count), Code::kSuccess);
    return nodes;
  }
  std::vector<int> Types(GraphHandle graph) {
    std::vector<int> types;
    for (const GraphNodeHandle node : Nodes(graph)) {
      EXPECT_EQ(GraphNodeGetType(node, &types.emplace_back()), Code::kSuccess);
    }
    return types;
  }
  // Returns the edges as pairs of node indices.
  std::vector<std::pair<long, long>> Edges(GraphHandle graph) {
    std::size_t count = 0;
    EXPECT_EQ(GraphGetEdges(graph, nullptr, nullptr, &count), Code::kSuccess);
    std::vector<GraphNodeHandle> from(count), to(count);
    EXPECT_EQ(GraphGetEdges(graph, from.data(), to.data(), &count), Code::kSuccess);
    const std::vector<GraphNodeHandle> nodes = Nodes(graph);
    const auto place = [&](GraphNodeHandle node) {
      return std::ranges::find(nodes, node) - nodes.begin();
    };
    std::vector<std::pair<long, long>> edges;
    for (std::size_t i = 0; i < count; ++i) edges.emplace_back(place(from[i]), place(to[i]));
    return edges;
  }
  std::size_t Launches() {
    EXPECT_EQ(CtxSynchronize(), Code::kSuccess);
    return static_cast<std::size_t>(std::ranges::count_if(worker_.taken(), [](const auto& taken) {
      return std::holds_alternative<ipc::LaunchCommand>(taken.command.body);
    }));
  }

  const StreamHandle a_ = NewStream(), b_ = NewStream();
  EventHandle event_ = nullptr, other_event_ = nullptr;
  DevicePointer memory_ = 0;
};

TEST_F(CaptureTest, CallsBecomeNodesInTheirOrder) {
  char host[16] = {};
  const auto function = [](void* data) { ++*static_cast<char*>(data); };
  EXPECT_EQ(StatusFor(a_), 0);
  Begin(a_);
  EXPECT_EQ(StatusFor(a_), 1);
  EXPECT_EQ(LaunchOn(a_), Code::kSuccess);
  EXPECT_EQ(MemcpyHtoDAsync(memory_, host, 16, a_), Code::kSuccess);
  EXPECT_EQ(MemsetD32Async(memory_, 1, 4, a_), Code::kSuccess);
  EXPECT_EQ(LaunchHostFunc(a_, function, host), Code::kSuccess);
  EXPECT_EQ(EventRecordWithFlags(event_, a_, kExternal), Code::kSuccess);
  EXPECT_EQ(StreamWaitEvent(a_, event_, kExternal), Code::kSuccess);
  const GraphHandle graph = End(a_);
  EXPECT_THAT(Types(graph), ElementsAre(0, 1, 2, 3, 7, 6));
  EXPECT_THAT(Edges(graph), ElementsAre(std::pair(0, 1), std::pair(1, 2), std::pair(2, 3),
                                        std::pair(3, 4), std::pair(4, 5)));
  EXPECT_EQ(StatusFor(a_), 0);
  EXPECT_EQ(host[0], 0) << "capturing must not execute the function";
  EXPECT_EQ(Launches(), 0u);
}

TEST_F(CaptureTest, EventsForkAndJoinOtherStreams) {
  Begin(a_);
  EXPECT_EQ(LaunchOn(a_), Code::kSuccess);
  EXPECT_EQ(EventRecord(event_, a_), Code::kSuccess);
  EXPECT_EQ(StreamWaitEvent(b_, event_, 0), Code::kSuccess);
  EXPECT_EQ(StatusFor(b_), 1);
  EXPECT_EQ(LaunchOn(b_), Code::kSuccess);
  EXPECT_EQ(LaunchOn(a_), Code::kSuccess);
  EXPECT_EQ(EventRecord(other_event_, b_), Code::kSuccess);
  EXPECT_EQ(StreamWaitEvent(a_, other_event_, 0), Code::kSuccess);
  EXPECT_EQ(LaunchOn(a_), Code::kSuccess);
  const GraphHandle graph = End(a_);
  EXPECT_THAT(Edges(graph),
              ElementsAre(std::pair(0, 1), std::pair(0, 2), std::pair(2, 3), std::pair(1, 3)));
  EXPECT_EQ(StatusFor(b_), 0) << "the other stream's capture must end with the first stream's";
}

TEST_F(CaptureTest, UnjoinedWorkFailsTheCapture) {
  Begin(a_);
  EXPECT_EQ(EventRecord(event_, a_), Code::kSuccess);
  EXPECT_EQ(StreamWaitEvent(b_, event_, 0), Code::kSuccess);
  EXPECT_EQ(LaunchOn(b_), Code::kSuccess);
  EndBadly(a_, Code::kCaptureUnjoined);
  EXPECT_EQ(StatusFor(b_), 0);
  EXPECT_EQ(LaunchOn(b_), Code::kSuccess);
}

TEST_F(CaptureTest, UncapturableCallsInvalidateTheCapture) {
  Begin(a_, kRelaxed);
  EXPECT_EQ(LaunchOn(a_), Code::kSuccess);
  EXPECT_EQ(StreamSynchronize(a_), Code::kCaptureUnsupported);
  EXPECT_EQ(StatusFor(a_), 2);
  EXPECT_EQ(LaunchOn(a_), Code::kCaptureInvalidated);
  EXPECT_EQ(StreamQuery(a_), Code::kCaptureInvalidated);
  EndBadly(a_, Code::kCaptureInvalidated);
  EXPECT_EQ(LaunchOn(a_), Code::kSuccess);
  Begin(a_, kRelaxed);
  EXPECT_EQ(CtxSynchronize(), Code::kCaptureUnsupported);
  EndBadly(a_, Code::kCaptureInvalidated);
  EXPECT_EQ(Launches(), 1u);
}

TEST_F(CaptureTest, LegacyStreamCallsInvalidateCapturesOfBlockingStreams) {
  const StreamHandle blocking = NewStream(0);
  Begin(a_, kRelaxed);
  EXPECT_EQ(LaunchOn(nullptr), Code::kSuccess)
      << "the legacy stream does not wait for non-blocking streams";
  End(a_);
  Begin(blocking, kRelaxed);
  int status = -1;
  EXPECT_EQ(StreamIsCapturing(nullptr, &status), Code::kCaptureImplicit);
  EXPECT_EQ(StatusFor(blocking), 1) << "a query must not invalidate the capture";
  EXPECT_EQ(MemcpyDtoDAsync(memory_, memory_ + 64, 64, LegacyStream()), Code::kCaptureImplicit);
  EXPECT_EQ(StatusFor(blocking), 2);
  EndBadly(blocking, Code::kCaptureInvalidated);
  EXPECT_EQ(StreamBeginCapture(nullptr, kGlobal), Code::kCaptureUnsupported);
}

TEST_F(CaptureTest, RejectsWaitBetweenTwoCaptures) {
  Begin(a_);
  Begin(b_);
  EXPECT_EQ(StreamBeginCapture(b_, kGlobal), Code::kIllegalState);
  EXPECT_EQ(EventRecord(event_, a_), Code::kSuccess);
  EXPECT_EQ(StreamWaitEvent(b_, event_, 0), Code::kCaptureMerge);
  EndBadly(a_, Code::kCaptureInvalidated);
  EndBadly(b_, Code::kCaptureInvalidated);
}

TEST_F(CaptureTest, RejectsWaitForEventRecordedOutside) {
  EXPECT_EQ(EventRecord(event_, b_), Code::kSuccess);
  Begin(a_);
  EXPECT_EQ(StreamWaitEvent(a_, event_, 0), Code::kCaptureIsolation);
  EXPECT_EQ(StreamWaitEvent(a_, event_, 0), Code::kCaptureInvalidated);
  EndBadly(a_, Code::kCaptureInvalidated);
}

TEST_F(CaptureTest, RejectsWaitsOutsideCaptureForCapturedEvent) {
  Begin(a_, kRelaxed);
  EXPECT_EQ(EventRecord(event_, a_), Code::kSuccess);
  EXPECT_EQ(EventQuery(event_), Code::kCapturedEvent);
  EXPECT_EQ(EventSynchronize(event_), Code::kCapturedEvent);
  EXPECT_EQ(StatusFor(a_), 1) << "a query of the event must not invalidate the capture";
  End(a_);
  EXPECT_EQ(EventQuery(event_), Code::kCapturedEvent);
  EXPECT_EQ(StreamWaitEvent(b_, event_, 0), Code::kCapturedEvent);
  EXPECT_EQ(EventRecord(event_, b_), Code::kSuccess);
  EXPECT_EQ(StreamWaitEvent(a_, event_, 0), Code::kSuccess);
  EXPECT_EQ(EventSynchronize(event_), Code::kSuccess);
}

TEST_F(CaptureTest, EndsOnlyOnItsStreamAndThread) {
  EndBadly(a_, Code::kIllegalState);
  Begin(a_);
  EXPECT_EQ(EventRecord(event_, a_), Code::kSuccess);
  EXPECT_EQ(StreamWaitEvent(b_, event_, 0), Code::kSuccess);
  EndBadly(b_, Code::kCaptureUnmatched);
  EndBadly(a_, Code::kCaptureInvalidated);
  Begin(a_, kThreadLocal);
  std::thread([&] {
    ASSERT_EQ(CtxSetCurrent(context_), Code::kSuccess);
    EndBadly(a_, Code::kCaptureWrongThread);
  }).join();
  EXPECT_NE(End(a_), nullptr);
  Begin(a_, kRelaxed);
  std::thread([&] {
    ASSERT_EQ(CtxSetCurrent(context_), Code::kSuccess);
    EXPECT_NE(End(a_), nullptr);
  }).join();
}

// For each mode of a capture, tests whether the capturing thread and another thread may make an
// unsafe call.
TEST_F(CaptureTest, UnsafeCallsAreRejectedByTheModesOfBothThreads) {
  const auto allocate = [&] {
    DevicePointer memory = 0;
    return MemAlloc(&memory, 64);
  };
  const auto allocate_elsewhere = [&](int mode) {
    Code code = Code::kUnknown;
    std::thread([&] {
      ASSERT_EQ(CtxSetCurrent(context_), Code::kSuccess);
      ASSERT_EQ(ThreadExchangeStreamCaptureMode(&mode), Code::kSuccess);
      EXPECT_EQ(mode, kGlobal) << "the default mode of each thread";
      code = allocate();
    }).join();
    return code;
  };
  Begin(a_, kGlobal);
  EXPECT_EQ(allocate_elsewhere(kThreadLocal), Code::kSuccess);
  EXPECT_EQ(allocate_elsewhere(kGlobal), Code::kCaptureUnsupported);
  EndBadly(a_, Code::kCaptureInvalidated);
  Begin(a_, kThreadLocal);
  EXPECT_EQ(allocate_elsewhere(kGlobal), Code::kSuccess);
  int mode = kRelaxed;
  EXPECT_EQ(ThreadExchangeStreamCaptureMode(&mode), Code::kSuccess);
  EXPECT_EQ(allocate(), Code::kSuccess);
  EXPECT_EQ(ThreadExchangeStreamCaptureMode(&mode), Code::kSuccess);
  EXPECT_EQ(mode, kRelaxed);
  EXPECT_EQ(allocate(), Code::kCaptureUnsupported);
  EndBadly(a_, Code::kCaptureInvalidated);
  Begin(a_, kRelaxed);
  EXPECT_EQ(allocate(), Code::kSuccess);
  End(a_);
}

TEST_F(CaptureTest, DestroyingTheStreamEndsItsCapture) {
  Begin(a_);
  EXPECT_EQ(EventRecord(event_, a_), Code::kSuccess);
  EXPECT_EQ(StreamWaitEvent(b_, event_, 0), Code::kSuccess);
  EXPECT_EQ(StreamDestroy(a_), Code::kSuccess);
  DevicePointer memory = 0;
  EXPECT_EQ(MemAlloc(&memory, 64), Code::kSuccess);
  EXPECT_EQ(StatusFor(b_), 0);
}

// cuda-core destroys forked streams during the capture, once they have joined it again.
TEST_F(CaptureTest, StreamThatHasJoinedMayBeDestroyed) {
  for (const bool has_joined : {true, false}) {
    const StreamHandle forked = NewStream();
    Begin(a_);
    EXPECT_EQ(LaunchOn(a_), Code::kSuccess);
    EXPECT_EQ(EventRecord(event_, a_), Code::kSuccess);
    EXPECT_EQ(StreamWaitEvent(forked, event_, 0), Code::kSuccess);
    EXPECT_EQ(LaunchOn(forked), Code::kSuccess);
    if (has_joined) {
      EXPECT_EQ(EventRecord(event_, forked), Code::kSuccess);
      EXPECT_EQ(StreamWaitEvent(a_, event_, 0), Code::kSuccess);
    }
    EXPECT_EQ(StreamDestroy(forked), Code::kSuccess);
    EXPECT_EQ(LaunchOn(a_), Code::kSuccess);
    GraphHandle graph = nullptr;
    EXPECT_EQ(StreamEndCapture(a_, &graph), has_joined ? Code::kSuccess : Code::kCaptureUnjoined);
  }
}

TEST_F(CaptureTest, ProgramQueriesAndChangesDependencies) {
  Begin(a_);
  EXPECT_EQ(LaunchOn(a_), Code::kSuccess);
  int status = -1;
  std::uint64_t id = 0;
  GraphHandle graph = nullptr;
  const GraphNodeHandle* needs = nullptr;
  const EdgeData* edges = nullptr;
  std::size_t count = 0;
  EXPECT_EQ(StreamGetCaptureInfoV3(a_, &status, &id, &graph, &needs, &edges, &count),
            Code::kSuccess);
  EXPECT_EQ(status, 1);
  EXPECT_NE(id, 0u);
  ASSERT_EQ(count, 1u);
  EXPECT_EQ(needs[0], Nodes(graph)[0]);
  ASSERT_NE(edges, nullptr) << "programs read one edge for each dependency";
  EXPECT_EQ(edges[0].type, 0);
  GraphNodeHandle added = nullptr;
  GraphHandle child = nullptr;
  ASSERT_EQ(GraphCreate(&child, 0), Code::kSuccess);
  EXPECT_EQ(GraphAddChildGraphNode(&added, graph, needs, 1, child), Code::kSuccess);
  EXPECT_EQ(GraphDestroy(child), Code::kSuccess);
  EXPECT_EQ(StreamUpdateCaptureDependencies(a_, &added, 1, 1), Code::kSuccess);
  EXPECT_EQ(LaunchOn(a_), Code::kSuccess);
  EXPECT_EQ(GraphDestroy(graph), Code::kInvalidValue) << "the graph is being captured";
  EXPECT_EQ(End(a_), graph);
  EXPECT_THAT(Edges(graph), ElementsAre(std::pair(0, 1), std::pair(1, 2)));
  EXPECT_EQ(StreamUpdateCaptureDependencies(a_, &added, 1, 1), Code::kIllegalState);
  // A node that the stream depends on may be destroyed.
  EXPECT_EQ(StreamBeginCaptureToGraph(a_, graph, &added, nullptr, 1, kGlobal), Code::kSuccess);
  EXPECT_EQ(GraphDestroyNode(added), Code::kSuccess);
  EXPECT_EQ(LaunchOn(a_), Code::kSuccess);
  EXPECT_EQ(End(a_), graph);
  EXPECT_THAT(Edges(graph), IsEmpty());
  EXPECT_THAT(Types(graph), ElementsAre(0, 0, 0));
}

}  // namespace
}  // namespace gpushared::drop_in
