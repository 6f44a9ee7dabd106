// SPDX-License-Identifier: Apache-2.0
#include "server/broker/session_log.h"

#include <cstdint>
#include <string>

#include <gtest/gtest.h>

namespace gpushared::server {
namespace {

Peer UserWith(std::uint32_t uid) { return {.uid = uid, .gid = uid, .groups = {}, .pid = 5}; }

LiveSession Session(std::uint64_t id, std::uint32_t uid, const std::string& device,
                    std::uint64_t quota_bytes) {
  LiveSession session;
  session.id = id;
  session.peer = UserWith(uid);
  session.device = device;
  session.quota_bytes = quota_bytes;
  session.guaranteed_bytes = quota_bytes;
  return session;
}

std::uint64_t LiveAndDie(SessionLog& session_log, std::uint32_t uid) {
  const std::uint64_t id = session_log.NextId();
  session_log.Add(Session(id, uid, "cpu:0", 0));
  session_log.End(id, {StatusCode::kKernelFault, "fault"});
  return id;
}

TEST(SessionLog, CountsHoldingsPerUidAndDevice) {
  SessionLog session_log;
  session_log.Add(Session(1, 7, "cpu:0", 10));
  session_log.Add(Session(2, 7, "cpu:1", 20));
  session_log.Add(Session(3, 8, "cpu:0", 40));
  EXPECT_EQ(session_log.HeldBy(7, "cpu:0").clients, 2U);
  EXPECT_EQ(session_log.HeldBy(7, "cpu:0").granted_bytes, 10U);
  session_log.End(1, Status::Ok());
  EXPECT_EQ(session_log.HeldBy(7, "cpu:0").clients, 1U);
  EXPECT_EQ(session_log.HeldBy(7, "cpu:0").granted_bytes, 0U);
}

// A user who opens and closes sessions in a loop must not displace the end reasons of other users'
// sessions.
TEST(SessionLog, UidCannotEvictEndsOfOtherUid) {
  SessionLog session_log;
  const std::uint64_t mine = LiveAndDie(session_log, 1);
  for (std::size_t i = 0; i < 3 * SessionLog::kEndsMax; ++i) LiveAndDie(session_log, 2);
  EXPECT_TRUE(session_log.WhyEnded(mine, UserWith(1)).has_value());
  const std::uint64_t latest = LiveAndDie(session_log, 2);
  EXPECT_TRUE(session_log.WhyEnded(latest, UserWith(2)).has_value());
}

TEST(SessionLog, LimitsEndsOfAllUids) {
  SessionLog session_log;
  const std::uint64_t first = LiveAndDie(session_log, 0);
  for (std::size_t i = 1; i <= SessionLog::kEndsMax; ++i) {
    LiveAndDie(session_log, static_cast<std::uint32_t>(i));
  }
  EXPECT_FALSE(session_log.WhyEnded(first, UserWith(0)).has_value());
}

TEST(SessionLog, AnswersWhyOnlyToProcessThatOwnedSession) {
  SessionLog session_log;
  const std::uint64_t id = LiveAndDie(session_log, 1);
  Peer other_process = UserWith(1);
  other_process.pid = 6;
  EXPECT_FALSE(session_log.WhyEnded(id, other_process).has_value());
  EXPECT_FALSE(session_log.WhyEnded(id, UserWith(2)).has_value());
  EXPECT_EQ(session_log.WhyEnded(id, UserWith(1))->code(), StatusCode::kKernelFault);
}

}  // namespace
}  // namespace gpushared::server
