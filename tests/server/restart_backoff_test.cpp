// SPDX-License-Identifier: Apache-2.0
#include "server/broker/restart_backoff.h"

#include <chrono>

#include <gtest/gtest.h>

namespace gpushared::server {
namespace {

using namespace std::chrono_literals;

TEST(RestartBackoff, RestartsAtOnceAfterFirstDeath) {
  RestartBackoff backoff;
  EXPECT_EQ(backoff.OnDeath(1ms), 0ms);
}

TEST(RestartBackoff, DelayGrowsToMaximumForWorkersThatDieSoon) {
  RestartBackoff backoff;
  for (const std::chrono::milliseconds delay :
       {0ms, 100ms, 200ms, 400ms, 800ms, 1600ms, 3200ms, 5000ms, 5000ms, 5000ms})
    EXPECT_EQ(backoff.OnDeath(9s), delay);
}

TEST(RestartBackoff, LongLifeResetsDelay) {
  RestartBackoff backoff;
  for (int i = 0; i < 5; ++i) backoff.OnDeath(1ms);
  EXPECT_EQ(backoff.OnDeath(10s), 0ms);
  EXPECT_EQ(backoff.OnDeath(1ms), 0ms);
  EXPECT_EQ(backoff.OnDeath(1ms), 100ms);
}

}  // namespace
}  // namespace gpushared::server
