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

// Who is at the other end of a connection, as the kernel says it; nothing in it was claimed by
// the peer.
struct Peer {
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::vector<std::uint32_t> groups;  // Supplementary groups.
  // For messages only: process ids are reused. 0: in a PID namespace that the server cannot see.
  std::int32_t pid = 0;

  std::string Who() const;  // "uid 1000 pid 4121", "uid 1000 in another PID namespace"
};

// By the kernel's word: uid, gid and supplementary groups.
bool IsAbout(const Subject& subject, const Peer& peer);

inline constexpr std::uint32_t kRootUid = 0;

// Root and the uid that runs the server: for them places are kept free.
inline bool IsTrusted(std::uint32_t uid, std::uint32_t own_uid) {
  return uid == kRootUid || uid == own_uid;
}

// Who asks, and with whom an allowance is shared.
struct Claimant {
  std::string who;          // "uid 1000 pid 4121"
  std::string holder;       // Whose holdings count: "uid 1000", "endpoint 'batch'".
  bool is_trusted = false;  // The reserve is for it in any case.
};

// The holdings of one uid, or of one endpoint, at this moment.
struct Holdings {
  std::uint32_t clients = 0;        // Live sessions on all devices.
  std::uint64_t granted_bytes = 0;  // Sum of their guarantees on the asked device.
};

// No client can do with less.
inline constexpr std::uint64_t kQuotaLeast = kMapPageBytes;

// Device memory of a new session.
struct MemoryGrant {
  std::uint64_t guaranteed_bytes = 0;  // There at any time.
  std::uint64_t quota_bytes = 0;       // At most; what is beyond the guarantee may be moved out.
};

struct AccessRequest {
  std::optional<scheduler::SchedulingClass> scheduling_class;  // Unset: the allowance's usual one.
  std::optional<std::uint32_t> weight;                         // The same.
  std::optional<std::uint32_t> max_share;     // Thousandths; unset: no cap but the rule's.
  std::uint64_t memory_bytes = 0;             // Zero: all that it may have.
  std::chrono::nanoseconds latency_target{};  // Zero: none.
};

// Decides who may have what: the operator's rules in their order, then the built-in ones (the
// server's own uid and root may have everything, everybody else at most class normal).
//
// Thread-compatible value; constant after construction.
class AccessRules {
 public:
  // Nobody is promised the memory that `defaults` reserves; the worker sees to it.
  AccessRules(std::vector<AccessRule> rules, std::uint32_t own_uid, AccessDefaults defaults = {});

  const AccessRule& RuleFor(const Peer& peer) const;
  // How the kernels of a client of theirs are kept in its memory.
  device::Isolation GetIsolation(const Peer& peer) const;

  // For somebody who came through an endpoint, whose own uid says nothing: a container has a root.
  device::Isolation IsolationUnder(const Allowance& allowance) const;

  // The memory of the new session, or why it is rejected.
  Result<MemoryGrant> Admit(const Peer& peer, const AccessRequest& asked, const Holdings& held,
                            std::uint64_t device_bytes) const;
  Result<MemoryGrant> AdmitUnder(const Allowance& allowance, const Claimant& claimant,
                                 const AccessRequest& asked, const Holdings& held,
                                 std::uint64_t device_bytes) const;

  // Whether class, weight, max_share and promise are within the rule.
  Status CheckShare(const Allowance& rule, const AccessRequest& request,
                    const std::string& who) const;

  // A client's own cap of device time under this rule, in thousandths; also the most that it may
  // ask for, beside the rule's max_share.
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
