// SPDX-License-Identifier: Apache-2.0
#include "server/broker/access_rules.h"

#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/broker/admin_rights.h"

namespace gpushared::server {
namespace {

using scheduler::SchedulingClass;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;
constexpr std::uint32_t kOwn = 500;

Peer User(std::uint32_t uid) { return {.uid = uid, .gid = uid, .groups = {}, .pid = 77}; }

AccessRule Rule(Subject::Kind kind, std::uint32_t id) {
  AccessRule rule;
  rule.who = {.kind = kind, .id = id, .label = "subject " + std::to_string(id)};
  rule.label = rule.who.label;
  return rule;
}

TEST(AccessRules, RejectionsSayWhoWasRejected) {
  EXPECT_EQ((Peer{.uid = 1000, .groups = {}, .pid = 4121}.Who()), "uid 1000 pid 4121");
  EXPECT_EQ((Peer{.uid = 1000, .groups = {}}.Who()), "uid 1000 in another PID namespace");
}

TEST(AccessRules, AllowsEverythingToOwnUidAndRootAndNormalClassToOthers) {
  const AccessRules rules({}, kOwn);
  const AccessRequest high = {.scheduling_class = SchedulingClass::kHigh, .weight = 1};
  EXPECT_TRUE(rules.Admit(User(kOwn), high, {}, kGiB).ok());
  EXPECT_TRUE(rules.Admit(User(0), high, {}, kGiB).ok());
  const Status rejected = rules.Admit(User(1000), high, {}, kGiB).status();
  EXPECT_EQ(rejected.code(), StatusCode::kPermissionDenied);
  EXPECT_THAT(rejected.message(),
              AllOf(HasSubstr("high"), HasSubstr("normal"), HasSubstr("uid 1000")));
  EXPECT_EQ(rules.Admit(User(1000), {}, {}, kGiB)->quota_bytes, kGiB);
}

TEST(AccessRules, GivesOrdinaryUsersDefaultShareUnlessRuleGivesMore) {
  AccessRule heavy = Rule(Subject::Kind::kUser, 2000);
  heavy.max_weight = 8;
  const AccessRules rules({heavy}, kOwn);
  EXPECT_TRUE(rules.Admit(User(1000), {.weight = 1}, {.clients = 31}, kGiB).ok());
  EXPECT_THAT(rules.Admit(User(1000), {.weight = 2}, {}, kGiB).status().message(),
              AllOf(HasSubstr("weight rejected: asked for 2"), HasSubstr("everyone else"),
                    HasSubstr("at most 1 [uid 1000")));
  EXPECT_EQ(rules.Admit(User(1000), {}, {.clients = 32}, kGiB).status().code(),
            StatusCode::kLimitExceeded);
  EXPECT_TRUE(rules.Admit(User(2000), {.weight = 8}, {}, kGiB).ok());
  for (const std::uint32_t uid : {kOwn, 0U}) {
    EXPECT_TRUE(rules.Admit(User(uid), {.weight = 1000}, {.clients = 63}, kGiB).ok()) << uid;
  }
}

TEST(AccessRules, NeverGuaranteesReservedMemoryToOrdinaryUsers) {
  AccessRule high = Rule(Subject::Kind::kUser, 2000);
  high.highest_class = SchedulingClass::kHigh;
  const AccessRules rules({high}, kOwn, {.memory_reserve = 0.25});
  EXPECT_EQ(rules.Admit(User(1000), {}, {}, kGiB)->quota_bytes, kGiB / 4 * 3);
  for (const std::uint32_t uid : {kOwn, 0U, 2000U}) {
    EXPECT_EQ(rules.Admit(User(uid), {}, {}, kGiB)->quota_bytes, kGiB) << uid;
  }
}

TEST(AccessRules, AppliesFirstMatchingRuleEvenToOwner) {
  AccessRule strict = Rule(Subject::Kind::kUser, kOwn);
  strict.highest_class = SchedulingClass::kLow;
  const AccessRules rules({strict, Rule(Subject::Kind::kUser, kOwn)}, kOwn);
  EXPECT_EQ(rules.Admit(User(kOwn), {.scheduling_class = SchedulingClass::kNormal}, {}, kGiB)
                .status()
                .code(),
            StatusCode::kPermissionDenied);
}

TEST(AccessRules, GroupRulesMatchSupplementaryGroupsToo) {
  AccessRule lab = Rule(Subject::Kind::kGroup, 42);
  lab.highest_class = SchedulingClass::kHigh;
  const AccessRules rules({lab}, kOwn);
  const AccessRequest high = {.scheduling_class = SchedulingClass::kHigh, .weight = 1};
  Peer member = User(1000);
  EXPECT_FALSE(rules.Admit(member, high, {}, kGiB).ok());
  member.groups = {7, 42};
  EXPECT_TRUE(rules.Admit(member, high, {}, kGiB).ok());
  member.groups.clear();
  member.gid = 42;
  EXPECT_TRUE(rules.Admit(member, high, {}, kGiB).ok());
}

TEST(AccessRules, WeightAboveTheRuleIsRejectedNotLowered) {
  AccessRule light = Rule(Subject::Kind::kEveryone, 0);
  light.max_weight = 5;
  const AccessRules rules({light}, kOwn);
  EXPECT_TRUE(rules.Admit(User(1), {.weight = 5}, {}, kGiB).ok());
  EXPECT_THAT(rules.Admit(User(1), {.weight = 6}, {}, kGiB).status().message(),
              AllOf(HasSubstr("6"), HasSubstr("at most 5")));
  EXPECT_EQ(rules.Admit(User(1), {.weight = 0}, {}, kGiB).status().code(),
            StatusCode::kInvalidArgument);
}

TEST(AccessRules, RulesClientShareReplacesServersDefault) {
  AccessRule own = Rule(Subject::Kind::kUser, 1000);
  own.client_max_share = 400;
  own.max_share = 300;  // A cap for all of the user's clients together.
  const AccessRules rules({own}, kOwn, {.client_max_share = 250});
  EXPECT_EQ(rules.ClientShareUnder(rules.RuleFor(User(1000))), 400U);
  for (const std::uint32_t uid : {kOwn, 0U, 2000U}) {
    EXPECT_EQ(rules.ClientShareUnder(rules.RuleFor(User(uid))), 250U) << uid;
    EXPECT_TRUE(rules.Admit(User(uid), {.max_share = 250}, {}, kGiB).ok()) << uid;
    EXPECT_THAT(rules.Admit(User(uid), {.max_share = 251}, {}, kGiB).status().message(),
                AllOf(HasSubstr("asked for 25.1%"), HasSubstr("at most 25%")));
  }
  EXPECT_TRUE(rules.Admit(User(1000), {.max_share = 300}, {}, kGiB).ok());
  EXPECT_THAT(rules.Admit(User(1000), {.max_share = 301}, {}, kGiB).status().message(),
              HasSubstr("at most 30%"));
}

// A request with a latency target runs before the high class whatever the client's own class is, so
// the right to targets follows the right to class high.
TEST(AccessRules, LatencyTargetsRequireHighClassUnlessRuleGrantsThem) {
  AccessRule trusted = Rule(Subject::Kind::kUser, 1000);
  trusted.targets = true;
  AccessRule high = Rule(Subject::Kind::kUser, 2000);
  high.highest_class = SchedulingClass::kHigh;
  AccessRule mute = high;
  mute.who.id = 3000;
  mute.targets = false;
  const AccessRules rules({trusted, high, mute}, kOwn);
  const AccessRequest promised = {.latency_target = std::chrono::milliseconds(10)};
  for (const std::uint32_t uid : {kOwn, 0U, 1000U, 2000U}) {
    EXPECT_TRUE(rules.Admit(User(uid), promised, {}, kGiB).ok()) << uid;
  }
  for (const std::uint32_t uid : {3000U, 4000U}) {
    EXPECT_TRUE(rules.Admit(User(uid), {}, {}, kGiB).ok()) << uid;
    const Status rejected = rules.Admit(User(uid), promised, {}, kGiB).status();
    EXPECT_EQ(rejected.code(), StatusCode::kPermissionDenied) << uid;
    EXPECT_THAT(rejected.message(), AllOf(HasSubstr("latency target"), HasSubstr("10 ms")));
  }
}

TEST(AccessRules, LimitsClientsOfOneUid) {
  AccessRule few = Rule(Subject::Kind::kEveryone, 0);
  few.clients_max = 2;
  const AccessRules rules({few}, kOwn);
  EXPECT_TRUE(rules.Admit(User(1), {}, {.clients = 1}, kGiB).ok());
  EXPECT_EQ(rules.Admit(User(1), {}, {.clients = 2}, kGiB).status().code(),
            StatusCode::kLimitExceeded);
}

// Without this limit, a user with an allowance of 1 GiB could connect four clients and allocate
// 4 GiB.
TEST(AccessRules, QuotasOfOneUidNeverAddUpToMoreThanItsAllowance) {
  AccessRule half = Rule(Subject::Kind::kEveryone, 0);
  half.memory = {.bytes = 0, .fraction = 0.5};
  half.client_memory = MemoryQuota{.bytes = kGiB, .fraction = 0};
  const AccessRules rules({half}, kOwn);
  EXPECT_EQ(rules.Admit(User(1), {}, {}, 4 * kGiB)->quota_bytes, kGiB);
  EXPECT_EQ(rules.Admit(User(1), {}, {.granted_bytes = kGiB}, 4 * kGiB)->quota_bytes, kGiB);
  EXPECT_EQ(rules.Admit(User(1), {}, {.granted_bytes = kGiB + kGiB / 2}, 4 * kGiB)->quota_bytes,
            kGiB / 2);
  // The user has no memory left, too little to map anything, or more in use than the present rules
  // allow.
  for (const std::uint64_t held : {2 * kGiB, 2 * kGiB - (1 << 20), 3 * kGiB}) {
    EXPECT_EQ(rules.Admit(User(1), {}, {.granted_bytes = held}, 4 * kGiB).status().code(),
              StatusCode::kOutOfMemory)
        << held;
  }
}

TEST(AccessRules, SharesWholeDeviceInsteadOfGivingItToFirstClient) {
  const AccessRules rules({}, kOwn);
  EXPECT_EQ(rules.Admit(User(1), {}, {.clients = 3, .granted_bytes = 3 * kGiB}, kGiB)->quota_bytes,
            kGiB);
}

TEST(AccessRules, FencesOtherUsersKernelsUnlessRuleOrDefaultDisablesIt) {
  using device::Isolation;
  AccessRule lab = Rule(Subject::Kind::kUser, 1000);
  lab.isolation = Isolation::kOff;
  AccessRule mine = Rule(Subject::Kind::kUser, 2000);
  const AccessRules built_in({lab, mine}, kOwn);
  EXPECT_EQ(built_in.GetIsolation(User(kOwn)), Isolation::kOff);
  EXPECT_EQ(built_in.GetIsolation(User(0)), Isolation::kFence) << "root is another user";
  EXPECT_EQ(built_in.GetIsolation(User(1000)), Isolation::kOff);
  EXPECT_EQ(built_in.GetIsolation(User(2000)), Isolation::kFence);
  EXPECT_EQ(built_in.GetIsolation(User(3000)), Isolation::kFence);

  const AccessRules all_fenced({lab}, kOwn, {.isolation = Isolation::kFence});
  EXPECT_EQ(all_fenced.GetIsolation(User(kOwn)), Isolation::kFence);
  EXPECT_EQ(all_fenced.GetIsolation(User(1000)), Isolation::kOff);
  const AccessRules none_fenced({mine}, kOwn, {.isolation = Isolation::kOff});
  EXPECT_EQ(none_fenced.GetIsolation(User(3000)), Isolation::kOff);
}

TEST(AdminRights, ObserversMayReadAndOperatorsMayAlsoAct) {
  const AdminRights rights({{.kind = Subject::Kind::kGroup, .id = 70}},
                           {{.kind = Subject::Kind::kUser, .id = 1000}}, kOwn);
  Peer observer = User(2000);
  observer.groups = {5, 70};
  const std::set<ipc::AdminVerb> read_only = {ipc::AdminVerb::kStatus,    ipc::AdminVerb::kClients,
                                              ipc::AdminVerb::kDevices,   ipc::AdminVerb::kExplain,
                                              ipc::AdminVerb::kEndpoints, ipc::AdminVerb::kTrace};
  for (const auto verb : read_only) {
    for (const Peer& peer : {User(0), User(kOwn), User(1000), observer}) {
      EXPECT_TRUE(rights.Check(peer, verb).ok()) << peer.uid;
    }
    EXPECT_EQ(rights.Check(User(2000), verb).code(), StatusCode::kPermissionDenied);
  }
  // All other verbs change something, and unknown numbers are treated as if they did.
  for (std::uint8_t number = 0; number <= ipc::kAdminVerbMax + 1; ++number) {
    const auto verb = static_cast<ipc::AdminVerb>(number);
    if (read_only.contains(verb)) continue;
    for (const Peer& peer : {User(0), User(kOwn), User(1000)}) {
      EXPECT_TRUE(rights.Check(peer, verb).ok()) << peer.uid;
    }
    EXPECT_THAT(rights.Check(observer, verb).message(),
                AllOf(HasSubstr("request '" + std::string(ipc::AdminVerbName(verb)) + "' denied"),
                      HasSubstr("the right 'operate'"), HasSubstr("[uid 2000 pid 77]")));
  }
}

TEST(AccessRules, ALimitLetsClientsHoldMoreThanTheirGuarantee) {
  AccessRule beyond = Rule(Subject::Kind::kEveryone, 0);
  beyond.memory = MemoryQuota{.bytes = kGiB, .fraction = 0};
  beyond.client_memory = MemoryQuota{.bytes = kGiB / 2, .fraction = 0};
  beyond.memory_limit = MemoryQuota{.bytes = 2 * kGiB, .fraction = 0};
  const AccessRules rules({beyond}, kOwn);
  const auto admit = [&](std::uint64_t asked, std::uint64_t granted) {
    return rules.Admit(User(1), {.memory_bytes = asked}, {.granted_bytes = granted}, 4 * kGiB);
  };
  EXPECT_EQ(admit(0, 0)->guaranteed_bytes, kGiB / 2);
  EXPECT_EQ(admit(0, 0)->quota_bytes, 2 * kGiB);
  // The rule bounds the sum of its clients' guarantees, and earlier clients have used it up.
  EXPECT_EQ(admit(0, kGiB)->guaranteed_bytes, 0U);
  EXPECT_EQ(admit(0, kGiB)->quota_bytes, 2 * kGiB);
  EXPECT_EQ(admit(kGiB, 0)->guaranteed_bytes, kGiB / 2);
  EXPECT_EQ(admit(kGiB, 0)->quota_bytes, kGiB);
  EXPECT_EQ(admit(kGiB / 4, 0)->guaranteed_bytes, kGiB / 4);
  EXPECT_EQ(admit(3 * kGiB, 0).status().code(), StatusCode::kPermissionDenied);
}

TEST(AccessRules, ALimitMayBeMoreThanTheDevice) {
  AccessRule beyond = Rule(Subject::Kind::kEveryone, 0);
  beyond.client_memory = MemoryQuota{.bytes = 8 * kGiB, .fraction = 0};
  beyond.memory_limit = MemoryQuota{.bytes = 12 * kGiB, .fraction = 0};
  const AccessRules rules({beyond}, kOwn);
  const auto grant = rules.Admit(User(1), {}, {}, 4 * kGiB);
  EXPECT_LE(grant->guaranteed_bytes, 4 * kGiB);
  EXPECT_EQ(grant->quota_bytes, 12 * kGiB);
}

}  // namespace
}  // namespace gpushared::server
