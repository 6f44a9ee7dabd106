// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_BROKER_LIVE_RULES_H_
#define GPUSHARED_SERVER_BROKER_LIVE_RULES_H_

#include <chrono>
#include <string>
#include <vector>

#include "server/config.h"

namespace gpushared::server {

// The part of the configuration that a running server takes over.
struct LiveRules {
  std::vector<AccessRule> access;
  std::vector<EntranceRule> entrances;
  std::vector<Subject> observers, operators;
  std::chrono::nanoseconds lease_grace = std::chrono::seconds(10);
  std::vector<std::string> need_restart;  // Options that were changed, and are not taken over.
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_BROKER_LIVE_RULES_H_
