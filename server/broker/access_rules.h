// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_BROKER_ACCESS_RULES_H_
#define GPUSHARED_SERVER_BROKER_ACCESS_RULES_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gpushared/limits.h"
#include "gpushared/result.h"

#include "server/config/config.h"

namespace gpushared::server {

// Identity of the process at the other end of a connection. Every field comes from the kernel,
// because the peer's own claims cannot be trusted.
struct Peer {
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::vector<std::uint32_t> groups;  // Supplementary groups.
  // Used in messages only, because process ids are reused. 0 if the process is in a PID namespace
  // that the server cannot see.
  std::int32_t pid = 0;

  std::string Who() const;  // "uid 1000 pid 4121", "uid 1000 in another PID namespace"
};

// Compares uid, gid and supplementary groups with the subject.
bool IsAbout(const Subject& subject, const Peer& peer);

inline constexpr std::uint32_t kRootUid = 0;

// Returns true for root and for the uid that runs the server; the reserved client places and the
// reserved memory are open to them.
inline bool IsTrusted(std::uint32_t uid, std::uint32_t own_uid) {
  return uid == kRootUid || uid == own_uid;
}

// The client that makes a request, and the holder whose totals the request counts toward.
struct Claimant {
  std::string who;          // "uid 1000 pid 4121"
  std::string holder;       // What the totals are counted for: "uid 1000", "endpoint 'batch'".
  bool is_trusted = false;  // May use the reserve regardless of its class.
};

// Current totals of one uid, or of one endpoint and those that share its budget.
struct Holdings {
  std::uint32_t clients = 0;        // Live sessions on all devices.
  std::uint64_t granted_bytes = 0;  // Sum of their guarantees on the requested device.
};

// Minimum quota: one page of the device's mapping granularity. A session with less would be
// accepted and then fail at its first allocation.
inline constexpr std::uint64_t kQuotaLeast = kMapPageBytes;

// Device memory granted to a new session.
struct MemoryGrant {
  std::uint64_t guaranteed_bytes = 0;  // Always available to the session.
  // Upper limit; memory beyond the guarantee may be swapped out.
  std::uint64_t quota_bytes = 0;
};

struct AccessRequest {
  // If unset, the allowance's default class.
  std::optional<scheduler::SchedulingClass> scheduling_class;
  // If unset, the allowance's default weight.
  std::optional<std::uint32_t> weight;
  std::optional<std::uint32_t> max_share;     // Thousandths. If unset, only the rule's cap applies.
  std::uint64_t memory_bytes = 0;             // Zero: as much as the allowance permits.
  std::chrono::nanoseconds latency_target{};  // Zero: no latency target.
};

// Evaluates the access rules: the operator's rules in order, then the default ones. By default the
// server's own uid and root may have everything, and other users at most class normal.
//
// Thread-compatible value; constant after construction.
class AccessRules {
 public:
  // `defaults` reserves memory for root, the server's uid and clients that may use the high class.
  // Guarantees of other clients do not include this reserve, which the worker enforces.
  AccessRules(std::vector<AccessRule> rules, std::uint32_t own_uid, AccessDefaults defaults = {});

  const AccessRule& RuleFor(const Peer& peer) const;
  // Isolation that applies to the kernels of this peer's clients.
  device::Isolation GetIsolation(const Peer& peer) const;

  // Isolation that applies to the kernels of an endpoint's clients. Their uid does not matter,
  // because a container may have its own root.
  device::Isolation IsolationUnder(const Allowance& allowance) const;

  // Returns the memory of the new session, or why the request is rejected.
  Result<MemoryGrant> Admit(const Peer& peer, const AccessRequest& asked, const Holdings& held,
                            std::uint64_t device_bytes) const;
  Result<MemoryGrant> AdmitUnder(const Allowance& allowance, const Claimant& claimant,
                                 const AccessRequest& asked, const Holdings& held,
                                 std::uint64_t device_bytes) const;

  // Checks class, weight, max_share and latency target against the rule.
  Status CheckShare(const Allowance& rule, const AccessRequest& request,
                    const std::string& who) const;

  // Cap of device time for a single client under this rule, in thousandths. A client may not
  // request more than this or than the rule's max_share.
  std::uint32_t ClientShareUnder(const Allowance& rule) const {
    return rule.client_max_share.value_or(defaults_.client_max_share);
  }

 private:
  std::vector<AccessRule> rules_;
  std::uint32_t own_uid_;
  AccessDefaults defaults_;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_BROKER_ACCESS_RULES_H_
