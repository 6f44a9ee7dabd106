// SPDX-License-Identifier: Apache-2.0
#include "server/platform/log_rate.h"

#include <chrono>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gpushared::server {
namespace {

using std::chrono_literals::operator""h;
using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using std::chrono_literals::operator""us;
using ::testing::HasSubstr;
using ::testing::Optional;

constexpr std::uint32_t kOwnUid = 990;
constexpr LogRate::TimePoint kStart{1000s};
constexpr std::size_t kText = 200;

// Returns how many of `count` simultaneous lines are allowed.
std::size_t Burst(LogRate& rate, LogRate::Cause cause, std::size_t count, LogRate::TimePoint now) {
  std::size_t allowed = 0;
  for (std::size_t i = 0; i < count; ++i) allowed += rate.Allow(cause, kText, now) ? 1 : 0;
  return allowed;
}

std::size_t GetBytes(std::size_t lines) {
  return lines * (kText + static_cast<std::size_t>(LogRate::kLineBytes));
}

TEST(LogRateTest, WritesAllOfFewLinesWithoutReport) {
  LogRate rate(kOwnUid);
  EXPECT_EQ(Burst(rate, {.uid = 1000, .pid = 7}, 90, kStart), 90U);
  EXPECT_FALSE(rate.report_due());
  EXPECT_FALSE(rate.Report(kStart + 1h));
}

TEST(LogRateTest, LimitsFloodingProcessButNotOthersOfItsUid) {
  LogRate rate(kOwnUid);
  const std::size_t written = Burst(rate, {.uid = 1000, .pid = 7}, 10'000, kStart);
  EXPECT_LE(GetBytes(written), (24U << 10) + GetBytes(1));
  EXPECT_TRUE(rate.Allow({.uid = 1000, .pid = 8}, kText, kStart));
}

TEST(LogRateTest, LimitsFloodingUidButNoOtherUid) {
  LogRate rate(kOwnUid);
  std::size_t written = 0;
  for (int pid = 1; pid <= 10'000; ++pid) {
    written += Burst(rate, {.uid = 1000, .pid = pid}, 10, kStart);
  }
  EXPECT_LE(GetBytes(written), (32U << 10) + GetBytes(1));
  EXPECT_TRUE(rate.Allow({.uid = 1001, .pid = 8}, kText, kStart));
}

// Returns the bytes written in a minute in which these uids flood the log, each from many
// processes.
std::size_t GetBytesInAMinute(LogRate& rate, const std::vector<std::uint32_t>& uids) {
  std::size_t bytes = 0;
  std::int32_t pid = 0;
  for (LogRate::TimePoint now = kStart; now < kStart + 60s; now += 100ms) {
    for (const std::uint32_t uid : uids) {
      for (int i = 0; i < 4; ++i) bytes += GetBytes(Burst(rate, {uid, ++pid % 900}, 10, now));
    }
    if (const auto report = rate.Report(now)) bytes += report->size();
  }
  return bytes;
}

TEST(LogRateTest, LimitsMinuteOfAnyFloodToHalfMegabyte) {
  std::vector<std::uint32_t> strangers(40);
  std::iota(strangers.begin(), strangers.end(), 1000);
  LogRate rate(kOwnUid);
  const std::size_t bytes = GetBytesInAMinute(rate, strangers);
  EXPECT_LT(bytes, 500'000U);
  EXPECT_GT(bytes, 300'000U);  // The log does not fall silent either.
  std::vector<std::uint32_t> all = strangers;
  all.insert(all.end(), {0, kOwnUid});
  LogRate of_all(kOwnUid);
  EXPECT_LT(GetBytesInAMinute(of_all, all), 500'000U)
      << "also when root and the server's uid flood";
}

TEST(LogRateTest, OtherUsersStormHidesNoLinesOfRootOrServer) {
  LogRate rate(kOwnUid);
  for (std::uint32_t uid = 1000; uid < 1700; ++uid) Burst(rate, {.uid = uid}, 300, kStart);
  EXPECT_TRUE(rate.Allow({.uid = 0, .pid = 5}, kText, kStart));
  EXPECT_TRUE(rate.Allow({.uid = kOwnUid, .pid = 6}, kText, kStart));
  EXPECT_FALSE(rate.Allow({.uid = 1900, .pid = 6}, kText, kStart));
  EXPECT_LT(Burst(rate, {.uid = 0, .pid = 5}, 10'000, kStart), 10'000U);  // Root is bounded, too.
}

TEST(LogRateTest, AllowsLinesAgainLater) {
  LogRate rate(kOwnUid);
  const LogRate::Cause cause = {.uid = 1000, .pid = 7};
  Burst(rate, cause, 10'000, kStart);
  EXPECT_FALSE(rate.Allow(cause, kText, kStart + 1ms));
  const std::size_t bytes = GetBytes(Burst(rate, cause, 1000, kStart + 10s));
  EXPECT_NEAR(static_cast<double>(bytes), 10'240, 2.0 * static_cast<double>(GetBytes(1)));
}

TEST(LogRateTest, FrequentChecksDoNotReduceRate) {
  LogRate rate(kOwnUid);
  const LogRate::Cause cause = {.uid = 1000, .pid = 7};
  Burst(rate, cause, 10'000, kStart);
  std::size_t written = 0;
  for (auto now = kStart; now < kStart + 10s; now += 100us) {
    written += rate.Allow(cause, kText, now) ? 1 : 0;
  }
  EXPECT_GE(GetBytes(written), 9U << 10);
}

TEST(LogRateTest, ReportsSuppressedLinesOnceInOneLine) {
  LogRate rate(kOwnUid);
  const std::size_t written = Burst(rate, {.uid = 1000, .pid = 7}, 10'000, kStart);
  EXPECT_EQ(rate.report_due(), kStart + 10s);
  EXPECT_FALSE(rate.Report(kStart + 9s));
  EXPECT_THAT(rate.Report(kStart + 10s), Optional("held back " + std::to_string(10'000 - written) +
                                                  " lines about uid 1000 in 10 s"));
  EXPECT_FALSE(rate.Report(kStart + 20s));
}

TEST(LogRateTest, ReportNamesUidsWithMostLinesAndTotalsRest) {
  LogRate rate(kOwnUid, {.uid = {.burst_bytes = 1, .bytes_per_second = 0},
                         .all = {.burst_bytes = 1 << 20, .bytes_per_second = 0}});
  for (std::uint32_t uid = 0; uid < 2000; ++uid) Burst(rate, {.uid = uid}, 2, kStart);
  Burst(rate, {.uid = 40}, 50, kStart);
  const std::optional<std::string> report = rate.Report(kStart + 12s);
  EXPECT_THAT(report, Optional(HasSubstr("held back 51 lines about uid 40, 1 line about uid 0, ")));
  EXPECT_THAT(report, Optional(HasSubstr(" lines about other uids in 12 s")));
  EXPECT_LT(report->size(), 400U);
}

}  // namespace
}  // namespace gpushared::server
