// SPDX-License-Identifier: Apache-2.0
// Many threads, contexts and streams at once, to be run under the thread sanitizer.
#include <array>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/drop_in/drop_in_case.h"

namespace gpushared::drop_in {
namespace {

constexpr int kThreads = 8;
constexpr int kRounds = 20;

class ThreadsTest : public DropInCase {
 protected:
  // Allocates and frees memory of a pool that both streams use.
  void UsePool(StreamHandle own, StreamHandle shared) {
    DevicePointer pooled = 0;
    for (StreamHandle stream : {own, shared}) {
      ASSERT_EQ(MemAllocAsync(&pooled, 1024, stream), Code::kSuccess);
      ASSERT_EQ(MemsetD8Async(pooled, 1, 1024, stream), Code::kSuccess);
      ASSERT_EQ(MemFreeAsync(pooled, stream), Code::kSuccess);
    }
  }

  // Captures and launches a graph. Because of the capture mode and the non-blocking stream, other
  // threads may make any call during the capture, even on the legacy stream.
  void UseGraph() {
    StreamHandle own = nullptr;
    GraphHandle graph = nullptr;
    GraphExecHandle exec = nullptr;
    ASSERT_EQ(StreamCreate(&own, device::cuda::kStreamNonBlocking), Code::kSuccess);
    DevicePointer memory = 0;
    ASSERT_EQ(StreamBeginCapture(own, 1), Code::kSuccess);
    ASSERT_EQ(MemAllocAsync(&memory, 1024, own), Code::kSuccess);
    ASSERT_EQ(LaunchOn(own), Code::kSuccess);
    ASSERT_EQ(MemFreeAsync(memory, own), Code::kSuccess);
    ASSERT_EQ(StreamEndCapture(own, &graph), Code::kSuccess);
    ASSERT_EQ(GraphInstantiateWithFlags(&exec, graph, 0), Code::kSuccess);
    ASSERT_EQ(GraphLaunch(exec, own), Code::kSuccess);
    ASSERT_EQ(GraphExecDestroy(exec), Code::kSuccess);
    ASSERT_EQ(GraphDestroy(graph), Code::kSuccess);
    ASSERT_EQ(StreamDestroy(own), Code::kSuccess);
  }

  // Work of one thread: on its own stream, on the shared and the legacy one, and on memory.
  void Work(StreamHandle shared) {
    StreamHandle own = nullptr;
    EventHandle event = nullptr;
    DevicePointer memory = 0;
    std::array<char, 256> host{};
    ASSERT_EQ(StreamCreate(&own, 0), Code::kSuccess);
    ASSERT_EQ(EventCreate(&event, 0), Code::kSuccess);
    ASSERT_EQ(MemAlloc(&memory, host.size()), Code::kSuccess);
    for (StreamHandle stream : {own, shared, LegacyStream(), PerThreadStream()}) {
      ASSERT_EQ(LaunchOn(stream), Code::kSuccess);
      ASSERT_EQ(MemcpyHtoDAsync(memory, host.data(), host.size(), stream), Code::kSuccess);
      ASSERT_EQ(EventRecord(event, stream), Code::kSuccess);
      ASSERT_EQ(StreamWaitEvent(own, event, 0), Code::kSuccess);
    }
    UsePool(own, shared);
    UseGraph();
    ASSERT_EQ(MemcpyDtoH(host.data(), memory, host.size()), Code::kSuccess);
    ASSERT_EQ(StreamSynchronize(own), Code::kSuccess);
    ASSERT_EQ(MemFree(memory), Code::kSuccess);
    ASSERT_EQ(EventDestroy(event), Code::kSuccess);
    ASSERT_EQ(StreamDestroy(own), Code::kSuccess);
  }
};

TEST_F(ThreadsTest, ShareContextsAndStreams) {
  StreamHandle shared = nullptr;
  ASSERT_EQ(StreamCreate(&shared, 0), Code::kSuccess);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      ASSERT_EQ(CtxSetCurrent(context_), Code::kSuccess);
      for (int round = 0; round < kRounds; ++round) Work(shared);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(CtxSynchronize(), Code::kSuccess);
}

TEST_F(ThreadsTest, CreateAndDestroyTheirOwnContexts) {
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < kRounds; ++round) {
        ContextHandle own = nullptr;
        StreamHandle stream = nullptr;
        ASSERT_EQ(CtxCreate(&own, 0, 0), Code::kSuccess);
        ASSERT_EQ(StreamCreate(&stream, 0), Code::kSuccess);
        Work(stream);
        ASSERT_EQ(CtxDestroy(own), Code::kSuccess);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Calls may lose the race and be rejected; they must not crash or hang.
TEST_F(ThreadsTest, DestroyAContextInUse) {
  for (int round = 0; round < kRounds; ++round) {
    ContextHandle doomed = nullptr;
    ASSERT_EQ(CtxCreate(&doomed, 0, 0), Code::kSuccess);
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&] {
        DevicePointer memory = 0;
        static_cast<void>(CtxSetCurrent(doomed));
        for (int call = 0; call < 20; ++call) {
          static_cast<void>(MemAlloc(&memory, 256));
          static_cast<void>(LaunchOn(call % 2 == 0 ? nullptr : PerThreadStream()));
          static_cast<void>(MemFree(memory));
        }
      });
    }
    EXPECT_EQ(CtxDestroy(doomed), Code::kSuccess);
    for (std::thread& thread : threads) thread.join();
  }
}

}  // namespace
}  // namespace gpushared::drop_in
