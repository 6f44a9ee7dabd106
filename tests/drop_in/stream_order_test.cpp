// SPDX-License-Identifier: Apache-2.0
// Which streams wait for which: the rules of the legacy default stream.
#include <unistd.h>

#include <string>
#include <variant>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client_lib/drop_in/default_stream.h"
#include "tests/drop_in/drop_in_case.h"

namespace gpushared::drop_in {
namespace {

using ::testing::ElementsAre;

class StreamOrderTest : public DropInCase {
 protected:
  // Lets no command end, so that every wait that the rules require is queued.
  StreamOrderTest() { worker_.set_finishing(false); }
  ~StreamOrderTest() override { worker_.set_finishing(true); }

  // Returns the first `count` launches and waits, once there are so many: "2" is a launch on stream
  // 2, "3>2" a wait of stream 3 for stream 2.
  std::vector<std::string> Taken(std::size_t count) {
    std::vector<std::string> list;
    for (int i = 0; i < 2000 && list.size() < count; ++i) {
      ::usleep(1000);
      list.clear();
      for (const testing::TakenCommand& taken : worker_.taken()) {
        const std::string stream = std::to_string(taken.command.id.stream);
        if (std::holds_alternative<ipc::LaunchCommand>(taken.command.body)) list.push_back(stream);
        if (const auto* wait = std::get_if<ipc::WaitForCommand>(&taken.command.body)) {
          list.push_back(stream + ">" + std::to_string(wait->target.stream));
        }
      }
    }
    return list;
  }
};

TEST_F(StreamOrderTest, LegacyStreamWaitsForBlockingStreamsThatHadWork) {
  const StreamHandle a = NewStream(0), b = NewStream(0);
  static_cast<void>(NewStream(0));  // Has no work, so the legacy stream does not wait for it.
  ASSERT_EQ(LaunchOn(a), Code::kSuccess);
  ASSERT_EQ(LaunchOn(b), Code::kSuccess);
  ASSERT_EQ(LaunchOn(nullptr), Code::kSuccess);
  EXPECT_THAT(Taken(5), ElementsAre("1", "2", "4>1", "4>2", "4"));
}

TEST_F(StreamOrderTest, BlockingStreamWaitsForTheLegacyStreamOnce) {
  const StreamHandle a = NewStream(0);
  ASSERT_EQ(LaunchOn(LegacyStream()), Code::kSuccess);
  ASSERT_EQ(LaunchOn(a), Code::kSuccess);
  ASSERT_EQ(LaunchOn(a), Code::kSuccess);
  EXPECT_THAT(Taken(4), ElementsAre("2", "1>2", "1", "1"));
}

TEST_F(StreamOrderTest, NonBlockingStreamDoesNotWaitForLegacyStream) {
  const StreamHandle a = NewStream();
  ASSERT_EQ(LaunchOn(nullptr), Code::kSuccess);
  ASSERT_EQ(LaunchOn(a), Code::kSuccess);
  ASSERT_EQ(LaunchOn(nullptr), Code::kSuccess);
  EXPECT_THAT(Taken(3), ElementsAre("2", "1", "2"));
}

TEST_F(StreamOrderTest, PerThreadDefaultStreamIsBlocking) {
  ASSERT_EQ(LaunchOn(nullptr), Code::kSuccess);
  {
    const DefaultStreamScope scope(DefaultStream::kPerThread);
    ASSERT_EQ(LaunchOn(nullptr), Code::kSuccess);
  }
  ASSERT_EQ(LaunchOn(nullptr), Code::kSuccess);
  EXPECT_THAT(Taken(5), ElementsAre("1", "2>1", "2", "1>2", "1"));
}

TEST_F(StreamOrderTest, StoresAttributesPerStream) {
  const StreamHandle a = NewStream(0), b = NewStream(0);
  LaunchAttribute::Value value;
  value.priority = 7;
  EXPECT_EQ(StreamSetAttribute(a, 8, &value), Code::kSuccess);
  EXPECT_EQ(StreamSetAttribute(a, 2, &value), Code::kInvalidValue)
      << "an attribute of launches only";
  EXPECT_EQ(StreamGetAttribute(b, 8, &value), Code::kSuccess);
  EXPECT_EQ(value.priority, 0);
  EXPECT_EQ(StreamCopyAttributes(b, a), Code::kSuccess);
  EXPECT_EQ(StreamGetAttribute(b, 8, &value), Code::kSuccess);
  EXPECT_EQ(value.priority, 7);
}

TEST_F(StreamOrderTest, IgnoresStreamsOfOtherContexts) {
  const StreamHandle a = NewStream(0);
  ASSERT_EQ(LaunchOn(a), Code::kSuccess);
  ContextHandle other = nullptr;
  ASSERT_EQ(CtxCreate(&other, 0, 0), Code::kSuccess);
  ASSERT_EQ(LaunchOn(nullptr), Code::kSuccess);
  EXPECT_THAT(Taken(2), ElementsAre("1", "2"));
  EXPECT_EQ(CtxDestroy(other), Code::kSuccess);
}

}  // namespace
}  // namespace gpushared::drop_in
