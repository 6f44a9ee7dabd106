// SPDX-License-Identifier: Apache-2.0
// Host functions in stream order: when they run, on which thread, and what waits for them.
#include <algorithm>
#include <atomic>
#include <future>
#include <mutex>
#include <thread>
#include <variant>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/drop_in/drop_in_case.h"

namespace gpushared::drop_in {
namespace {

using ::testing::ElementsAre;

class HostCallsTest : public DropInCase {
 protected:
  HostCallsTest() {
    for (StreamHandle* stream : {&a_, &b_}) EXPECT_EQ(StreamCreate(stream, 0), Code::kSuccess);
    EXPECT_EQ(MemAlloc(&memory_, 64), Code::kSuccess);
  }
  ~HostCallsTest() override {
    worker_.set_finishing(true);
    Open();
    EXPECT_EQ(CtxSynchronize(), Code::kSuccess);
  }

  // A host function that waits for Open, and then records the number of submitted launches and the
  // thread that it runs on.
  static void Note(void* self) {
    auto& test = *static_cast<HostCallsTest*>(self);
    test.opened_.wait();
    const std::lock_guard lock(test.mutex_);
    test.launches_seen_.push_back(test.Launches());
    test.threads_.push_back(std::this_thread::get_id());
  }
  Code LaunchNote(StreamHandle stream) { return LaunchHostFunc(stream, &Note, this); }
  void Open() {
    if (!std::exchange(is_open_, true)) gate_.set_value();
  }
  std::size_t Launches() {
    return static_cast<std::size_t>(std::ranges::count_if(worker_.taken(), [](const auto& taken) {
      return std::holds_alternative<ipc::LaunchCommand>(taken.command.body);
    }));
  }
  std::vector<std::size_t> LaunchesSeen() {
    const std::lock_guard lock(mutex_);
    return launches_seen_;
  }
  // Launches on a separate thread, because the call blocks.
  std::thread LaunchElsewhere(StreamHandle stream) {
    return std::thread([this, stream] {
      ASSERT_EQ(CtxSetCurrent(context_), Code::kSuccess);
      EXPECT_EQ(LaunchOn(stream), Code::kSuccess);
    });
  }

  StreamHandle a_ = nullptr, b_ = nullptr;
  DevicePointer memory_ = 0;
  std::promise<void> gate_;
  std::shared_future<void> opened_{gate_.get_future().share()};
  bool is_open_ = false;
  std::mutex mutex_;  // Guards the next two members.
  std::vector<std::size_t> launches_seen_;
  std::vector<std::thread::id> threads_;
};

TEST_F(HostCallsTest, RunInOrderOnAnotherThread) {
  EXPECT_EQ(LaunchNote(a_), Code::kSuccess);
  EXPECT_EQ(LaunchNote(a_), Code::kSuccess) << "the call must not wait for the first function";
  EXPECT_EQ(StreamQuery(a_), Code::kNotReady);
  EXPECT_EQ(LaunchOn(b_), Code::kSuccess) << "other streams must not wait";
  EXPECT_EQ(StreamSynchronize(b_), Code::kSuccess);
  EXPECT_THAT(LaunchesSeen(), ElementsAre());
  Open();
  EXPECT_EQ(StreamSynchronize(a_), Code::kSuccess);
  EXPECT_THAT(LaunchesSeen(), ElementsAre(1, 1));
  EXPECT_NE(threads_[0], std::this_thread::get_id());
  EXPECT_EQ(StreamQuery(a_), Code::kSuccess);
}

TEST_F(HostCallsTest, RunAfterEarlierWorkOfTheStream) {
  worker_.set_finishing(false);
  std::atomic<bool> has_ended{false};
  bool has_seen_the_end = false;
  struct Seen {
    std::atomic<bool>& has_ended;
    bool& result;
  } seen{has_ended, has_seen_the_end};
  EXPECT_EQ(LaunchOn(a_), Code::kSuccess);
  EXPECT_EQ(LaunchHostFunc(
                a_,
                [](void* data) {
                  auto& it = *static_cast<Seen*>(data);
                  it.result = it.has_ended;
                },
                &seen),
            Code::kSuccess);
  EXPECT_EQ(StreamQuery(a_), Code::kNotReady);
  has_ended = true;
  worker_.set_finishing(true);
  EXPECT_EQ(StreamSynchronize(a_), Code::kSuccess);
  EXPECT_TRUE(has_seen_the_end);
}

TEST_F(HostCallsTest, DelayLaterWorkOfTheStream) {
  EXPECT_EQ(LaunchNote(a_), Code::kSuccess);
  std::thread same = LaunchElsewhere(a_), legacy = LaunchElsewhere(LegacyStream());
  StreamHandle apart = nullptr;
  EXPECT_EQ(StreamCreate(&apart, 0), Code::kSuccess);
  EXPECT_EQ(MemsetD8Async(memory_, 0, 1, apart), Code::kSuccess)
      << "a waiting caller must not hold a lock";
  Open();
  same.join();
  legacy.join();
  EXPECT_THAT(LaunchesSeen(), ElementsAre(0))
      << "nothing must be submitted before the function ends";
  EXPECT_EQ(CtxSynchronize(), Code::kSuccess);
  EXPECT_EQ(Launches(), 2u);
}

TEST_F(HostCallsTest, StreamsDoNotWaitForEachOthersFunctions) {
  EXPECT_EQ(LaunchNote(a_), Code::kSuccess);
  std::atomic<int> calls{0};
  const auto count = [](void* data) { ++*static_cast<std::atomic<int>*>(data); };
  EXPECT_EQ(LaunchHostFunc(b_, count, &calls), Code::kSuccess);
  EXPECT_EQ(StreamSynchronize(b_), Code::kSuccess);
  EXPECT_EQ(calls, 1);
  EXPECT_THAT(LaunchesSeen(), ElementsAre());
  EXPECT_EQ(StreamDestroy(a_), Code::kSuccess) << "its function must still run";
  Open();
  EXPECT_EQ(CtxSynchronize(), Code::kSuccess);
  EXPECT_THAT(LaunchesSeen(), ElementsAre(0));
}

TEST_F(HostCallsTest, CannotCallTheDriver) {
  Code code = Code::kSuccess;
  EXPECT_EQ(
      LaunchHostFunc(
          a_, [](void* data) { *static_cast<Code*>(data) = StreamSynchronize(nullptr); }, &code),
      Code::kSuccess);
  EXPECT_EQ(StreamSynchronize(a_), Code::kSuccess);
  EXPECT_EQ(code, Code::kNotPermitted);
}

// If a stream has failed, its callbacks are called with the error, but host functions are not
// called.
class FailedStreamTest : public DropInCase {};
TEST_F(FailedStreamTest, CallbacksGetTheError) {
  StreamHandle stream = nullptr;
  ASSERT_EQ(StreamCreate(&stream, 0), Code::kSuccess);
  worker_.set_finishing(false);
  worker_.FailAt(1, 2, Status(StatusCode::kKernelFault, "it ran into a wall"));
  ASSERT_EQ(LaunchOn(stream), Code::kSuccess);
  Code told = Code::kSuccess;
  int calls = 0;
  EXPECT_EQ(
      StreamAddCallback(
          stream, [](StreamHandle, Code code, void* data) { *static_cast<Code*>(data) = code; },
          &told, 0),
      Code::kSuccess);
  EXPECT_EQ(LaunchHostFunc(
                stream, [](void* data) { ++*static_cast<int*>(data); }, &calls),
            Code::kSuccess);
  worker_.set_finishing(true);
  EXPECT_EQ(StreamSynchronize(stream), Code::kMisalignedAddress);
  EXPECT_EQ(told, Code::kMisalignedAddress);
  EXPECT_EQ(calls, 0);
}

}  // namespace
}  // namespace gpushared::drop_in
