// SPDX-License-Identifier: Apache-2.0
// Catalog of all policies by name.

#ifndef GPUSHARED_SCHEDULER_POLICY_CATALOG_H_
#define GPUSHARED_SCHEDULER_POLICY_CATALOG_H_

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "scheduler/policy.h"

namespace gpushared::scheduler {

struct PolicyEntry {
  std::string_view name;         // The value of `--policy`.
  std::string_view description;  // One human-readable line.
  std::unique_ptr<Policy> (*make)(const PolicyOptions& options);
};

std::span<const PolicyEntry> PolicyCatalog();

// Returns null if no policy has that name.
const PolicyEntry* FindPolicy(std::string_view name);

// Returns "fifo, round_robin, …", for the message that rejects an unknown name.
std::string PolicyNames();

// Returns why these options are invalid, as a lower-case message with the bounds; empty if they are
// valid. Policies may be created only from valid options.
std::string_view WhyInvalid(const PolicyOptions& options);

}  // namespace gpushared::scheduler

#endif  // GPUSHARED_SCHEDULER_POLICY_CATALOG_H_
