// SPDX-License-Identifier: Apache-2.0
// Shared parts of the deadline policy's tests.

#ifndef GPUSHARED_TESTS_SCHEDULER_DEADLINE_CASES_H_
#define GPUSHARED_TESTS_SCHEDULER_DEADLINE_CASES_H_

#include <chrono>
#include <memory>

#include "scheduler/deadline_policy.h"
#include "tests/support/policy_timeline.h"

namespace gpushared::scheduler {

inline constexpr ClientSpec kHigh{.scheduling_class = SchedulingClass::kHigh};
inline constexpr ClientSpec kLow{.scheduling_class = SchedulingClass::kLow};

inline ClientSpec Promised(Duration target, SchedulingClass of_class = SchedulingClass::kHigh) {
  return {.scheduling_class = of_class, .latency_target = target};
}

inline std::unique_ptr<Policy> Deadline(PolicyOptions options = {}) {
  return std::make_unique<DeadlinePolicy>(options);
}

// Posts requests at equal intervals until their needs and their headroom are known. Commands that
// other clients have posted run in the meantime.
inline void Teach(testing::PolicyTimeline& timeline, ClientId client,
                  const testing::PolicyTimeline::Command& command,
                  Duration gap = std::chrono::milliseconds(20), int count = 20) {
  for (int i = 0; i < count; ++i) {
    timeline.PostRequest(client, command);
    timeline.RunFor(gap);
  }
}

}  // namespace gpushared::scheduler

#endif  // GPUSHARED_TESTS_SCHEDULER_DEADLINE_CASES_H_
