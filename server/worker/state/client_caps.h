// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_STATE_CLIENT_CAPS_H_
#define GPUSHARED_SERVER_WORKER_STATE_CLIENT_CAPS_H_

#include <algorithm>
#include <cstdint>

#include "scheduler/share_caps.h"

namespace gpushared::server {

// Caps of a client's device time, in thousandths: its own cap, and that of its access rule, which
// all clients of the rule share.
struct ClientCaps {
  std::uint32_t own = kSharePerMilleMax;
  std::uint64_t rule_number = 0;
  std::uint32_t rule = kSharePerMilleMax;

  std::uint32_t Least() const { return std::min(own, rule); }
  friend bool operator==(const ClientCaps&, const ClientCaps&) = default;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_STATE_CLIENT_CAPS_H_
