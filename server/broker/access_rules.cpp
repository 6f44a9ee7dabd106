// SPDX-License-Identifier: Apache-2.0
#include "server/broker/access_rules.h"

#include <algorithm>
#include <utility>

#include "ipc/share.h"
#include "scheduler/class_name.h"
#include "server/config/config_values.h"

namespace gpushared::server {
namespace {

AccessRule Everything(std::uint32_t uid, std::string label) {
  AccessRule rule;
  rule.who = {.kind = Subject::Kind::kUser, .id = uid, .label = std::move(label)};
  rule.label = rule.who.label;
  rule.highest_class = scheduler::SchedulingClass::kHigh;
  rule.max_weight = kWeightMax;
  rule.clients_max = kClientsPerUidMax;
  return rule;
}

Status Denied(std::string message, const std::string& who) {
  return {StatusCode::kPermissionDenied, std::move(message) + " [" + who + "]"};
}

}  // namespace

bool IsAbout(const Subject& subject, const Peer& peer) {
  switch (subject.kind) {
    case Subject::Kind::kUser:
      return subject.id == peer.uid;
    case Subject::Kind::kGroup:
      return subject.id == peer.gid ||
             std::find(peer.groups.begin(), peer.groups.end(), subject.id) != peer.groups.end();
    case Subject::Kind::kEveryone:
      return true;
  }
  return false;
}

std::string Peer::Who() const {
  if (pid == 0) return "uid " + std::to_string(uid) + " in another PID namespace";
  return "uid " + std::to_string(uid) + " pid " + std::to_string(pid);
}

AccessRules::AccessRules(std::vector<AccessRule> rules, std::uint32_t own_uid,
                         AccessDefaults defaults)
    : rules_(std::move(rules)), own_uid_(own_uid), defaults_(defaults) {
  rules_.push_back(Everything(own_uid, "the server's own uid " + std::to_string(own_uid)));
  if (own_uid != kRootUid) rules_.push_back(Everything(kRootUid, "root"));
  AccessRule others;
  others.label = "everyone else";
  rules_.push_back(std::move(others));
}

const AccessRule& AccessRules::RuleFor(const Peer& peer) const {
  const auto found = std::find_if(rules_.begin(), rules_.end(),
                                  [&](const AccessRule& rule) { return IsAbout(rule.who, peer); });
  return found != rules_.end() ? *found : rules_.back();
}

device::Isolation AccessRules::GetIsolation(const Peer& peer) const {
  if (const AccessRule& rule = RuleFor(peer); rule.isolation) return *rule.isolation;
  if (defaults_.isolation) return *defaults_.isolation;
  return peer.uid == own_uid_ ? device::Isolation::kOff : device::kIsolationOfOtherUsers;
}

device::Isolation AccessRules::IsolationUnder(const Allowance& allowance) const {
  return allowance.isolation.value_or(defaults_.isolation.value_or(device::kIsolationOfOtherUsers));
}

Status AccessRules::CheckShare(const Allowance& rule, const AccessRequest& request,
                               const std::string& who) const {
  const scheduler::SchedulingClass asked_class =
      request.scheduling_class.value_or(rule.UsualClass());
  const std::uint32_t asked_weight = request.weight.value_or(rule.usual_weight);
  // Lower values are served first, so a class above the allowance compares as less.
  if (asked_class < rule.highest_class) {
    return Denied("class rejected: asked for " + std::string(scheduler::ClassName(asked_class)) +
                      ", the access rule for " + rule.label + " allows at most " +
                      std::string(scheduler::ClassName(rule.highest_class)),
                  who);
  }
  if (asked_weight < 1 || asked_weight > kWeightMax) {
    return {StatusCode::kInvalidArgument, "weight rejected: asked for " +
                                              std::to_string(asked_weight) + ", allowed: 1 to " +
                                              std::to_string(kWeightMax) + " [" + who + "]"};
  }
  if (asked_weight > rule.max_weight) {
    return Denied("weight rejected: asked for " + std::to_string(asked_weight) +
                      ", the access rule for " + rule.label + " allows at most " +
                      std::to_string(rule.max_weight),
                  who);
  }
  const std::uint32_t share_most = std::min(rule.max_share, ClientShareUnder(rule));
  if (request.max_share && *request.max_share > share_most) {
    return Denied("max_share rejected: asked for " + ipc::ShareText(*request.max_share) +
                      ", the access rule for " + rule.label + " allows at most " +
                      ipc::ShareText(share_most),
                  who);
  }
  if (request.latency_target > std::chrono::nanoseconds::zero() && !rule.AllowsLatencyTargets()) {
    return Denied("latency target rejected: asked for " + FormatDuration(request.latency_target) +
                      ", the access rule for " + rule.label + " allows none",
                  who);
  }
  return Status::Ok();
}

Result<MemoryGrant> AccessRules::Admit(const Peer& peer, const AccessRequest& asked,
                                       const Holdings& held, std::uint64_t device_bytes) const {
  const Claimant claimant = {.who = peer.Who(),
                             .holder = "uid " + std::to_string(peer.uid),
                             .is_trusted = IsTrusted(peer.uid, own_uid_)};
  return AdmitUnder(RuleFor(peer), claimant, asked, held, device_bytes);
}

Result<MemoryGrant> AccessRules::AdmitUnder(const Allowance& rule, const Claimant& claimant,
                                            const AccessRequest& asked, const Holdings& held,
                                            std::uint64_t device_bytes) const {
  const std::string& who = claimant.who;
  if (Status status = CheckShare(rule, asked, who); !status.ok()) return status;
  if (held.clients >= rule.clients_max) {
    return Status(StatusCode::kLimitExceeded,
                  "client rejected: " + claimant.holder + " has " + std::to_string(held.clients) +
                      " live clients, the access rule for " + rule.label + " allows " +
                      std::to_string(rule.clients_max) + " [" + who + "]");
  }
  const std::uint64_t all = rule.memory.Of(device_bytes);
  std::uint64_t guaranteed = rule.client_memory ? rule.client_memory->Of(device_bytes) : all;
  // A user who may have all memory is limited only by the device. A smaller allowance protects
  // other users, so the guarantees of the user's clients must never add up to more.
  if (all < device_bytes) {
    guaranteed = std::min(guaranteed, all - std::min(all, held.granted_bytes));
  }
  std::uint64_t quota = rule.memory_limit
                            ? std::max(guaranteed, rule.memory_limit->LimitFor(device_bytes))
                            : guaranteed;
  if (!rule.MayUseReserve() && !claimant.is_trusted) {
    const MemoryQuota open = {.bytes = 0, .fraction = 1 - defaults_.memory_reserve};
    guaranteed = std::min(guaranteed, open.Of(device_bytes));
    // Memory beyond a guarantee does not reduce the reserve, because it can be swapped out.
    if (!rule.memory_limit) quota = guaranteed;
  }
  if (quota < kQuotaLeast) {
    return Status(StatusCode::kOutOfMemory,
                  "client rejected: the live clients of " + claimant.holder + " hold quotas of " +
                      FormatBytes(held.granted_bytes) + " on this device, the access rule for " +
                      rule.label + " allows " + FormatBytes(all) + " together [" + who + "]");
  }
  if (asked.memory_bytes > quota) {
    return Denied("memory rejected: asked for " + FormatBytes(asked.memory_bytes) +
                      ", the access rule for " + rule.label + " leaves " + FormatBytes(quota) +
                      " of this device",
                  who);
  }
  if (asked.memory_bytes == 0) return MemoryGrant{guaranteed, quota};
  if (asked.memory_bytes >= kQuotaLeast) {
    return MemoryGrant{std::min(guaranteed, asked.memory_bytes), asked.memory_bytes};
  }
  return Status(StatusCode::kInvalidArgument,
                "memory rejected: asked for " + FormatBytes(asked.memory_bytes) + ", at least " +
                    FormatBytes(kQuotaLeast) + " is needed [" + who + "]");
}

}  // namespace gpushared::server
