// SPDX-License-Identifier: Apache-2.0
#include "scheduler/policy_catalog.h"

#include <array>
#include <chrono>

#include "scheduler/deadline_policy.h"
#include "scheduler/fair_policy.h"
#include "scheduler/fifo_policy.h"
#include "scheduler/priority_policy.h"
#include "scheduler/round_robin_policy.h"

namespace gpushared::scheduler {

namespace {

using namespace std::chrono_literals;

constexpr std::array kPolicies = {
    PolicyEntry{"fifo", "arrival order, as in a context without a scheduler",
                [](const PolicyOptions&) -> std::unique_ptr<Policy> {
                  return std::make_unique<FifoPolicy>();
                }},
    PolicyEntry{"round_robin", "one client at a time, in equal slices",
                [](const PolicyOptions& options) -> std::unique_ptr<Policy> {
                  return std::make_unique<RoundRobinPolicy>(options);
                }},
    PolicyEntry{"fair", "device time by weight",
                [](const PolicyOptions& options) -> std::unique_ptr<Policy> {
                  return std::make_unique<FairPolicy>(options);
                }},
    PolicyEntry{"priority", "high before normal before low, weights inside a class",
                [](const PolicyOptions& options) -> std::unique_ptr<Policy> {
                  return std::make_unique<PriorityPolicy>(options);
                }},
    PolicyEntry{"deadline", "latency targets first, other work in the remaining slack",
                [](const PolicyOptions& options) -> std::unique_ptr<Policy> {
                  return std::make_unique<DeadlinePolicy>(options);
                }},
};

}  // namespace

std::span<const PolicyEntry> PolicyCatalog() { return kPolicies; }

const PolicyEntry* FindPolicy(std::string_view name) {
  for (const PolicyEntry& entry : kPolicies) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

std::string PolicyNames() {
  std::string names;
  for (const PolicyEntry& entry : kPolicies) {
    if (!names.empty()) names += ", ";
    names += entry.name;
  }
  return names;
}

std::string_view WhyInvalid(const PolicyOptions& options) {
  if (options.slice < 10us || options.slice > 10s) {
    return "the slice must be between 10 us and 10 s";
  }
  if (!(options.low_floor >= 0.0 && options.low_floor <= 0.9)) {
    return "the floor of the low class must be between 0 and 0.9";
  }
  if (options.hold_off < 0us || options.hold_off > 1s) {
    return "the hold-off must be between 0 and 1 s";
  }
  if (options.patience < 0us || options.patience > 10s) {
    return "the patience must be between 0 and 10 s";
  }
  return {};
}

}  // namespace gpushared::scheduler
