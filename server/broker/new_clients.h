// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_BROKER_NEW_CLIENTS_H_
#define GPUSHARED_SERVER_BROKER_NEW_CLIENTS_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "scheduler/share_caps.h"
#include "scheduler/types.h"
#include "server/broker/access_rules.h"
#include "server/config/config_values.h"

namespace gpushared::server {

// Limits for new clients that request nothing themselves. An operator sets them at run time, like
// the "default" commands of MPS. They only lower what access rules and endpoints grant, and are
// lost when the broker exits or is upgraded.
//
// Thread-compatible value.
struct NewClients {
  std::optional<scheduler::SchedulingClass> usual_class;
  std::uint32_t max_share = kSharePerMilleMax;
  std::map<std::string, MemoryQuota> memory;  // By device.

  scheduler::SchedulingClass GetClass(const Allowance& rule) const {
    return std::max(rule.UsualClass(), usual_class.value_or(rule.UsualClass()));
  }
  // `asked_bytes` is 0 if the client did not specify it.
  MemoryGrant Lowered(MemoryGrant grant, std::uint64_t asked_bytes, const std::string& device,
                      std::uint64_t device_bytes) const {
    const auto found = memory.find(device);
    if (asked_bytes != 0 || found == memory.end()) return grant;
    const std::uint64_t most = found->second.Of(device_bytes);
    grant.guaranteed_bytes = std::min(grant.guaranteed_bytes, most);
    grant.quota_bytes = std::min(grant.quota_bytes, most);
    return grant;
  }
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_BROKER_NEW_CLIENTS_H_
