// SPDX-License-Identifier: Apache-2.0
// Properties of a policy, for the rules that apply to every policy of the catalog.

#ifndef GPUSHARED_TESTS_SUPPORT_POLICY_TRAITS_H_
#define GPUSHARED_TESTS_SUPPORT_POLICY_TRAITS_H_

#include <chrono>

#include "scheduler/policy.h"

namespace gpushared::testing {

// Returns whether the policy never preempts: whether IsPreemptibleBy does not let even the high
// class preempt low work. PolicyConformance checks that every preemption obeys IsPreemptibleBy.
inline bool StopsNothing(const scheduler::Policy& policy) {
  const scheduler::ClientSpec low{.scheduling_class = scheduler::SchedulingClass::kLow};
  const scheduler::ClientSpec high{.scheduling_class = scheduler::SchedulingClass::kHigh,
                                   .latency_target = std::chrono::milliseconds(1)};
  return !policy.IsPreemptibleBy(low, high);
}

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_SUPPORT_POLICY_TRAITS_H_
