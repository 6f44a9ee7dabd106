// SPDX-License-Identifier: Apache-2.0
// Every policy there is, by name.

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
  std::string_view description;  // One line for people.
  std::unique_ptr<Policy> (*make)(const PolicyOptions& options);
};

std::span<const PolicyEntry> PolicyCatalog();

// Null when there is no policy of that name.
const PolicyEntry* FindPolicy(std::string_view name);

// "fifo, round_robin, …", for the message that rejects an unknown name.
std::string PolicyNames();

// Why these options cannot be used, as a lower-case sentence with the bounds; empty
// when they can. Policies may be made only from options that pass.
std::string_view WhyInvalid(const PolicyOptions& options);

}  // namespace gpushared::scheduler

#endif  // GPUSHARED_SCHEDULER_POLICY_CATALOG_H_
