// SPDX-License-Identifier: Apache-2.0
#include "scheduler/target_account.h"

#include <chrono>

#include <gtest/gtest.h>

namespace gpushared::scheduler {
namespace {

using namespace std::chrono_literals;

// A client with a latency target of 100 ms, and the events that happen to it.
class Account : public ::testing::Test {
 protected:
  Account() { account_.target = 100ms; }

  void Begin(std::uint64_t number) { account_.Begin({number, now_}, {}, now_); }
  TargetAccount::Ending End(std::uint64_t number, Duration disturbed = {}) {
    return account_.End(number, disturbed, now_);
  }
  void Run(Duration time) {
    account_.OnStarted(time, now_);
    now_ += time;
    account_.OnEnded(time, now_);
  }
  // Runs a request without overlap, with the given host time between its commands.
  void Request(Duration time, Duration host = {}, Duration disturbed = {}) {
    Begin(++last_);
    Run(time / 2);
    now_ += host;
    Run(time - time / 2);
    End(last_, disturbed);
  }

  TargetAccount account_;
  TimePoint now_{1s};
  std::uint64_t last_ = 1000;
};

TEST_F(Account, ARequestNeedsWhatItsCommandsTakeAndTheHostBetweenThem) {
  for (int i = 0; i < 5; ++i) Request(4ms, 3ms);
  Begin(1);
  EXPECT_EQ(account_.Need(1, now_).likely, 4ms);
  EXPECT_EQ(account_.Need(1, now_).safe, 7ms);
}

TEST_F(Account, FinishedWorkReducesNeed) {
  for (int i = 0; i < 5; ++i) Request(4ms);
  Begin(1);
  Run(1ms);
  EXPECT_EQ(account_.Need(1, now_).likely, 3ms);
  Begin(2);
  EXPECT_EQ(account_.Need(1, now_).likely, 3ms);
  EXPECT_EQ(account_.Need(2, now_).likely, 7ms);
  Run(3ms);
  End(1);
  EXPECT_EQ(account_.Need(1, now_).likely, 4ms);
}

// Work done before must not count for later requests, because these would appear to have no need
// left.
TEST_F(Account, LongRequestDoesNotShortenNeedOfLaterOnes) {
  for (int i = 0; i < 5; ++i) Request(4ms);
  Begin(1);
  Begin(2);
  Run(40ms);
  End(1);
  EXPECT_EQ(account_.Need(1, now_).likely, 0ms);
  Begin(3);
  EXPECT_EQ(account_.Need(2, now_).likely, 4ms);
}

TEST_F(Account, LearnsHostTimeFromUndisturbedRequests) {
  for (int i = 0; i < 5; ++i) Request(4ms, 3ms);
  for (int i = 0; i < 9; ++i) Request(4ms, 50ms, Duration(i + 1));
  Begin(1);
  EXPECT_EQ(account_.Need(1, now_).safe, 7ms);
}

// Two workers that alternate, so that one request is always open.
TEST_F(Account, LearnsRequestsThatAlwaysOverlap) {
  Begin(1);
  for (std::uint64_t next = 2; next < 40; ++next) {
    Run(2ms);
    Begin(next);
    Run(2ms);
    now_ += 1ms;
    End(next - 1);
  }
  ASSERT_TRUE(account_.knows());
  EXPECT_EQ(account_.Need(2, now_).likely - account_.Need(1, now_).likely, 4ms);
  // Includes twice 1 ms in which no work of either request ran.
  EXPECT_EQ(account_.Need(2, now_).safe - account_.Need(1, now_).safe, 4ms + 2ms);
}

TEST_F(Account, OverlappingRequestsDoNotHideSeparateOnes) {
  for (int i = 0; i < 3; ++i) {
    Begin(1);
    Begin(2);
    Run(12ms);
    End(1);
    End(2);
    Request(4ms);
  }
  Begin(3);
  EXPECT_EQ(account_.Need(1, now_).likely, 4ms);
}

TEST_F(Account, SeparateRequestsDoNotCountAsOverlapping) {
  for (int i = 0; i < 3; ++i) Request(4ms);
  Begin(1);
  for (std::uint64_t next = 2; next <= 5; ++next) {
    Run(2ms);
    Begin(next);
    Run(2ms);
    End(next - 1);
  }
  End(5);
  Begin(6);
  EXPECT_EQ(account_.Need(1, now_).safe, 4ms);
}

TEST_F(Account, HeadroomIsHalfOfSlackOfSlowestRequest) {
  for (int i = 0; i < 15; ++i) Request(10ms);
  EXPECT_FALSE(account_.Headroom());
  Request(18ms);
  EXPECT_EQ(account_.Headroom(), 41ms);
}

TEST_F(Account, DelayByOthersDoesNotCountAsSlowness) {
  for (int i = 0; i < 15; ++i) Request(10ms);
  Request(10ms, 8ms, 8ms);
  EXPECT_EQ(account_.Headroom(), 45ms);
}

TEST_F(Account, SingleOutlierDoesNotChangeHeadroom) {
  for (int i = 0; i < 20; ++i) Request(10ms);
  Request(10ms, 5s);
  EXPECT_EQ(account_.Headroom(), 45ms);
  Request(10ms, 5s);
  EXPECT_EQ(account_.Headroom(), 0ms) << "two are no accident";
}

TEST_F(Account, RequestsAreInTheOrderInWhichTheyArrived) {
  Begin(1);
  account_.Begin({2, now_ - 10ms}, {}, now_);
  EXPECT_EQ(account_.deadline(0), now_ + 90ms);
  EXPECT_EQ(account_.deadline(1), now_ + 100ms);
  account_.Abandon(0, now_);
  EXPECT_FALSE(End(1).was_abandoned);
  EXPECT_TRUE(End(2).was_abandoned);
  EXPECT_EQ(account_.abandoned_count(), 0u);
}

}  // namespace
}  // namespace gpushared::scheduler
