// SPDX-License-Identifier: Apache-2.0
#include "server/broker/session_ledger.h"

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

std::uint64_t LiveAndDie(SessionLedger& ledger, std::uint32_t uid) {
  const std::uint64_t id = ledger.NextId();
  ledger.Add(Session(id, uid, "cpu:0", 0));
  ledger.End(id, {StatusCode::kKernelFault, "fault"});
  return id;
}

TEST(SessionLedger, HoldingsAreOfTheUidAndTheDevice) {
  SessionLedger ledger;
  ledger.Add(Session(1, 7, "cpu:0", 10));
  ledger.Add(Session(2, 7, "cpu:1", 20));
  ledger.Add(Session(3, 8, "cpu:0", 40));
  EXPECT_EQ(ledger.HeldBy(7, "cpu:0").clients, 2U);
  EXPECT_EQ(ledger.HeldBy(7, "cpu:0").granted_bytes, 10U);
  ledger.End(1, Status::Ok());
  EXPECT_EQ(ledger.HeldBy(7, "cpu:0").clients, 1U);
  EXPECT_EQ(ledger.HeldBy(7, "cpu:0").granted_bytes, 0U);
}

// Otherwise a user who opens and closes sessions in a loop blinds everybody else.
TEST(SessionLedger, OneUidCannotPushOutTheEndsOfAnother) {
  SessionLedger ledger;
  const std::uint64_t mine = LiveAndDie(ledger, 1);
  for (std::size_t i = 0; i < 3 * SessionLedger::kEndsMax; ++i) LiveAndDie(ledger, 2);
  EXPECT_TRUE(ledger.WhyEnded(mine, UserWith(1)).has_value());
  const std::uint64_t latest = LiveAndDie(ledger, 2);
  EXPECT_TRUE(ledger.WhyEnded(latest, UserWith(2)).has_value());
}

TEST(SessionLedger, EndsAreBoundedOverAllUids) {
  SessionLedger ledger;
  const std::uint64_t first = LiveAndDie(ledger, 0);
  for (std::size_t i = 1; i <= SessionLedger::kEndsMax; ++i) {
    LiveAndDie(ledger, static_cast<std::uint32_t>(i));
  }
  EXPECT_FALSE(ledger.WhyEnded(first, UserWith(0)).has_value());
}

TEST(SessionLedger, WhyIsForTheProcessThatHadTheSession) {
  SessionLedger ledger;
  const std::uint64_t id = LiveAndDie(ledger, 1);
  Peer other_process = UserWith(1);
  other_process.pid = 6;
  EXPECT_FALSE(ledger.WhyEnded(id, other_process).has_value());
  EXPECT_FALSE(ledger.WhyEnded(id, UserWith(2)).has_value());
  EXPECT_EQ(ledger.WhyEnded(id, UserWith(1))->code(), StatusCode::kKernelFault);
}

}  // namespace
}  // namespace gpushared::server
