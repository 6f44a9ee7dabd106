// SPDX-License-Identifier: Apache-2.0
// Statistics of Residency about memory requests within a guarantee, and about swap bandwidth.
#include <cstdint>

#include <gtest/gtest.h>

#include "tests/scheduler/residency_case.h"

namespace gpushared::scheduler {
namespace {

// High clients request memory within their guarantees. A page of 2 MiB takes 1 ms to swap.
class MemoryRequestStatsTest : public ResidencyTest {
 protected:
  MemoryRequestStatsTest() {
    Grow(low_, 100);
    Busy(low_);
  }
  void Request(std::uint64_t pages) {
    const ClientId high = Add(40, SchedulingClass::kHigh);
    residency_.RequestMemory(high, pages * kPage, now_);
    Settle();
    EXPECT_EQ(granted_to_, high);
    Grow(high, pages);
  }

  const ClientId low_ = Add(0);
};

TEST_F(MemoryRequestStatsTest, CountsRequestsAndTheLongestWait) {
  EXPECT_EQ(residency_.request_stats().out_bytes_per_s, 0u);
  Request(8);
  Request(20);
  Request(4);
  const MemoryRequestStats stats = residency_.request_stats();
  EXPECT_EQ(stats.requests, 3u);
  EXPECT_EQ(stats.longest_wait, 20ms);
  EXPECT_EQ(stats.out_bytes_per_s, 1000 * kPage);
  EXPECT_EQ(stats.in_bytes_per_s, 0u);
}

// The swap store failed, and the swap was repeated after a second.
TEST_F(MemoryRequestStatsTest, WaitIncludesAFailedSwap) {
  Request(8);
  const ClientId high = Add(40, SchedulingClass::kHigh);
  residency_.RequestMemory(high, 10 * kPage, now_);
  const auto move = residency_.Next(Free(), now_);
  ASSERT_TRUE(move && move->kind == Kind::kSwapOut);
  residency_.OnSwapFailed(low_, Of(low_), now_);
  EXPECT_FALSE(Settle());
  now_ = residency_.wake_at().value();
  Settle();
  EXPECT_EQ(residency_.request_stats().longest_wait, 1s + 10ms);
}

TEST_F(MemoryRequestStatsTest, IgnoresRequestsBeyondTheGuarantee) {
  Request(8);
  const ClientId other = Add(0);
  residency_.RequestMemory(other, 20 * kPage, now_);
  now_ += 1s;
  Settle();
  EXPECT_EQ(granted_to_, other);
  EXPECT_EQ(residency_.request_stats().requests, 1u);
}

}  // namespace
}  // namespace gpushared::scheduler
