// SPDX-License-Identifier: Apache-2.0
#include "server/modules/loader/load_queue.h"

#include <vector>

#include <gtest/gtest.h>

namespace gpushared::testing {
namespace {

using loader::LoadQueue;
using Lane = LoadQueue::Lane;
using std::chrono::milliseconds;
using std::chrono::seconds;

class LoadQueueTest : public ::testing::Test {
 protected:
  void Add(std::uint64_t session, std::uint32_t uid, std::uint8_t rank = 1,
           std::uint64_t bytes = 100, Lane lane = Lane::kQuick) {
    queue_.Add({++number_, session, uid, rank, bytes, lane});
  }
  // Returns sessions in the order in which they are taken.
  std::vector<std::uint64_t> TakeAll(Lane lane = Lane::kQuick) {
    std::vector<std::uint64_t> order;
    while (const auto entry = queue_.Take(lane, now_)) order.push_back(entry->session);
    return order;
  }
  void Charge(std::uint64_t session, std::uint32_t uid, milliseconds time) {
    queue_.Charge({.session = session, .uid = uid}, time, now_);
  }

  LoadQueue queue_;
  LoadQueue::Clock::time_point now_{seconds(1000)};
  std::uint64_t number_ = 0;
};

TEST_F(LoadQueueTest, ServesSameClassInOrder) {
  Add(1, 7);
  Add(2, 7);
  Add(3, 8);
  EXPECT_EQ(TakeAll(), (std::vector<std::uint64_t>{1, 2, 3}));
}

TEST_F(LoadQueueTest, TheMostUrgentClassIsServedFirst) {
  Add(1, 7, 2);
  Add(2, 7, 0);
  Add(3, 7, 1);
  Charge(2, 7, seconds(5));
  EXPECT_EQ(TakeAll(), (std::vector<std::uint64_t>{2, 3, 1}));
}

TEST_F(LoadQueueTest, ServesUserWithLessUsageFirst) {
  Charge(1, 7, seconds(3));
  Charge(9, 8, milliseconds(10));
  Add(1, 7);
  Add(2, 7);  // A new client of a user who has used much time.
  Add(3, 8);
  Add(4, 9);
  EXPECT_EQ(TakeAll(), (std::vector<std::uint64_t>{4, 3, 2, 1}));
}

TEST_F(LoadQueueTest, ForgetsUsageOverTime) {
  Charge(1, 7, seconds(1));
  now_ += 20 * LoadQueue::kForgetHalf;
  Charge(2, 8, milliseconds(2));
  Add(2, 8);
  Add(1, 7);
  EXPECT_EQ(TakeAll(), (std::vector<std::uint64_t>{1, 2}));
}

TEST_F(LoadQueueTest, ServesSmallImagesOfAUserFirst) {
  Add(1, 7, 1, 5'000'000);
  Add(2, 7, 1, 300);
  EXPECT_EQ(TakeAll(), (std::vector<std::uint64_t>{2, 1}));
}

TEST_F(LoadQueueTest, ServesLanesSeparately) {
  Add(1, 7, 1, 100, Lane::kLong);
  Add(2, 7);
  EXPECT_EQ(TakeAll(Lane::kQuick), (std::vector<std::uint64_t>{2}));
  EXPECT_EQ(TakeAll(Lane::kLong), (std::vector<std::uint64_t>{1}));
}

TEST_F(LoadQueueTest, ReservesTheLastReaderForUserWithoutReader) {
  const auto take = [&] { return queue_.Take(Lane::kMedium, now_, 3); };
  for (std::uint64_t session = 1; session <= 4; ++session) Add(session, 7, 1, 100, Lane::kMedium);
  EXPECT_EQ(take()->session, 1u);
  EXPECT_EQ(take()->session, 2u);
  EXPECT_FALSE(take()) << "the next user would have to wait for this load";
  Charge(9, 8, seconds(5));
  Add(5, 8, 1, 100, Lane::kMedium);
  EXPECT_EQ(take()->session, 5u);
  queue_.Charge({.session = 1, .uid = 7, .lane = Lane::kMedium}, seconds(1), now_);
  queue_.Charge({.session = 2, .uid = 7, .lane = Lane::kMedium}, seconds(1), now_);
  queue_.Charge({.session = 5, .uid = 8, .lane = Lane::kMedium}, seconds(1), now_);
  EXPECT_EQ(take()->session, 3u);
}

TEST_F(LoadQueueTest, AnyUserMayHaveTheOnlyReaderOfALane) {
  Add(1, 7);
  Add(2, 7);
  EXPECT_EQ(TakeAll(), (std::vector<std::uint64_t>{1, 2}));
}

TEST_F(LoadQueueTest, RemovesLoadsOfEndedSession) {
  Add(1, 7);
  Add(2, 7);
  EXPECT_EQ(queue_.Remove(1), (std::vector<std::uint64_t>{1}));
  EXPECT_EQ(TakeAll(), (std::vector<std::uint64_t>{2}));
}

TEST_F(LoadQueueTest, AppliesChangedClassToWaitingLoads) {
  Add(1, 7);
  Add(2, 7);
  queue_.SetRank(2, 0);
  EXPECT_EQ(TakeAll(), (std::vector<std::uint64_t>{2, 1}));
}

}  // namespace
}  // namespace gpushared::testing
